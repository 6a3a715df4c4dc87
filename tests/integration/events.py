"""Follows GET /v1/events as a browser does: events.py URL TOKEN SECONDS [SINCE] - prints 'id TAB event TAB data' until the time is
over or the gateway ends the stream. A parser of its own, after the WHATWG's rules for event streams."""
import http.client
import socket
import sys
import time
import urllib.parse


def follow(url, token, seconds, since):
    at = urllib.parse.urlsplit(url)
    end = time.monotonic() + seconds
    link = http.client.HTTPConnection(at.hostname, at.port, timeout=20)
    headers = {"Authorization": "Bearer " + token, "Accept": "text/event-stream"}
    if since:
        headers["Last-Event-ID"] = since
    link.request("GET", "/v1/events", headers=headers)
    answer = link.getresponse()
    assert answer.status == 200, answer.status
    assert answer.getheader("Content-Type") == "text/event-stream", answer.getheader("Content-Type")
    print("open", flush=True)
    last, event, data = since or "", "message", []
    while time.monotonic() < end:
        try:
            line = answer.readline()
        except socket.timeout:
            sys.exit("silent for more than 20 s")
        if not line:
            print("end", flush=True)
            return
        line = line.rstrip(b"\n").decode()
        if line == "":
            if data:
                print(last, event, "\n".join(data), sep="\t", flush=True)
            event, data = "message", []
            continue
        name, _, value = line.partition(":")
        value = value[1:] if value.startswith(" ") else value
        if name == "id":
            last = value
        elif name == "event":
            event = value
        elif name == "data":
            data.append(value)


follow(sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4] if len(sys.argv) > 4 else "")
