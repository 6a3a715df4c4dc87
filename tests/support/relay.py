#!/usr/bin/env python3
"""relay.py AWAY-FILE TARGET-PORT - a TCP relay on 127.0.0.1 whose port is the first line on stdout.

While AWAY-FILE exists the other side is away: connections are cut, and new ones are refused as soon as they are made. With the
word "mute" in it they are taken and nothing is ever answered, as a network that drops packets does.
"""
import os
import socket
import sys
import threading
import time

AWAY, PORT = sys.argv[1], int(sys.argv[2])
PAIRS, LOCK = set(), threading.Lock()


def state():
    try:
        with open(AWAY, encoding="ascii") as file:
            return file.read().strip() or "cut"
    except FileNotFoundError:
        return ""


def close(pair):
    for one in pair:
        try:
            one.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        one.close()


def pump(source, sink, pair):
    try:
        while True:
            data = source.recv(262144)
            while state() == "mute":
                time.sleep(0.05)
            if not data:
                break
            sink.sendall(data)
    except OSError:
        pass
    with LOCK:
        known = pair in PAIRS
        PAIRS.discard(pair)
    if known:
        close(pair)


def watch():
    while True:
        if state() == "cut":
            with LOCK:
                cut = list(PAIRS)
                PAIRS.clear()
            for pair in cut:
                close(pair)
        time.sleep(0.05)


def serve():
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)
    print(listener.getsockname()[1], flush=True)
    threading.Thread(target=watch, daemon=True).start()
    while True:
        client, _ = listener.accept()
        if state() == "cut":
            client.close()
            continue
        try:
            server = socket.create_connection(("127.0.0.1", PORT), timeout=5)
            server.settimeout(None)
        except OSError:
            client.close()
            continue
        pair = (client, server)
        with LOCK:
            PAIRS.add(pair)
        for ends in (pair, pair[::-1]):
            threading.Thread(target=pump, args=(*ends, pair), daemon=True).start()


if __name__ == "__main__":
    if os.getppid() == 1:
        sys.exit("the test that started this has ended")
    serve()
