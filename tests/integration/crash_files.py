#!/usr/bin/env python3
"""The writer and the judge of crash_mount.sh.

crash_files.py write MOUNT LEDGER SEED    writes until the mount dies
crash_files.py check MOUNT LEDGER         every file is what the ledger allows
crash_files.py equal MOUNT DIR            both hold the same files with the same bytes
crash_files.py sum LEDGER                 says what was written

The ledger has a line "begin NAME VERSION SIZE" before each save and "ack NAME VERSION" after its close was answered.
"""
import hashlib
import os
import random
import sys
import threading
import time

THREADS = 3
NAMES = 6
BIG = 40 << 20


def content(name, version, size):
    return random.Random(f"{name}/{version}").randbytes(size)


def size_of(rng):
    kind = rng.randrange(24)
    if kind == 0:
        return rng.randrange(BIG + 1)
    if kind < 4:
        return 0
    if kind < 10:
        return rng.randrange(1, 4097)
    return rng.randrange(1 << rng.randrange(1, 22))


class Writer(threading.Thread):
    def __init__(self, mount, ledger, seed, number, first):
        super().__init__()
        self.mount, self.ledger, self.number = mount, ledger, number
        self.rng = random.Random(f"{seed}/{number}")
        self.version = first
        self.error = None

    def log(self, line):
        os.write(self.ledger, (line + "\n").encode())

    def save(self, path, data):
        with open(path, "wb", buffering=0) as file:
            view = memoryview(data)
            while view:
                view = view[file.write(view[: 1 << 20]):]
            if self.rng.randrange(4) == 0:
                os.fsync(file.fileno())

    def step(self):
        name = f"t{self.number}-{self.rng.randrange(NAMES)}"
        self.version += 1
        size = size_of(self.rng)
        data = content(name, self.version, size)
        path = os.path.join(self.mount, name)
        if self.rng.randrange(3) == 0:
            temp = os.path.join(self.mount, f".{name}.tmp")
            self.save(temp, data)
            self.log(f"begin {name} {self.version} {size}")
            os.rename(temp, path)
        else:
            self.log(f"begin {name} {self.version} {size}")
            self.save(path, data)
        self.log(f"ack {name} {self.version}")
        if self.rng.randrange(3) == 0:
            time.sleep(self.rng.random() / 50)

    def run(self):
        try:
            while True:
                self.step()
        except OSError as error:  # the gateway died: ENOTCONN, ENOENT and the like
            self.error = error


def read_ledger(path):
    begun, acked = {}, {}
    with open(path, encoding="ascii") as file:
        for line in file:
            words = line.split()
            if words[0] == "begin":
                begun.setdefault(words[1], []).append((int(words[2]), int(words[3])))
            elif words[0] == "ack":
                acked[words[1]] = int(words[2])
    return begun, acked


def write(mount, ledger, seed):
    begun, _ = read_ledger(ledger)
    first = max([version for saves in begun.values() for version, _ in saves], default=0)
    fd = os.open(ledger, os.O_WRONLY | os.O_APPEND)
    threads = [Writer(mount, fd, seed, number, first) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


def describe(data, name, saves):
    if data is None:
        return "absent"
    for version, size in saves:
        full = content(name, version, size)
        if data == full:
            return f"version {version}"
        if data and full.startswith(data):
            return f"HALF: {len(data)} of {size} bytes of version {version}"
    return f"{len(data)} bytes that nobody wrote"


def check(mount, ledger):
    begun, acked = read_ledger(ledger)
    bad = 0
    for name, saves in sorted(begun.items()):
        floor = acked.get(name, 0)
        data = read(os.path.join(mount, name))
        allowed = [(version, size) for version, size in saves if version >= floor]
        good = any(data is not None and len(data) == size and data == content(name, version, size)
                   for version, size in allowed)
        # Before its first close a file may be absent, or just made.
        if not good and floor == 0 and (data is None or data == b""):
            good = True
        if not good:
            bad += 1
            print(f"'{name}' is {describe(data, name, saves)}; closed: version {floor}, begun: up to {saves[-1][0]}")
    settle(ledger, mount, begun)
    return bad


def settle(ledger, mount, begun):
    """What is there now is promised from now on; a save that did not arrive never will."""
    lines = []
    for name, saves in sorted(begun.items()):
        data = read(os.path.join(mount, name))
        for version, size in reversed(saves):
            if data is not None and len(data) == size and data == content(name, version, size):
                lines.append(f"begin {name} {version} {size}\nack {name} {version}\n")
                break
    with open(ledger + ".all", "a", encoding="ascii") as out, open(ledger, encoding="ascii") as old:
        out.write(old.read())
    with open(ledger + ".new", "w", encoding="ascii") as out:
        out.writelines(lines)
    os.replace(ledger + ".new", ledger)


def tree(top):
    out = {}
    for base, _, files in os.walk(top):
        for name in files:
            path = os.path.join(base, name)
            relative = os.path.relpath(path, top)
            if ".hf~" in relative:  # the file: store's own
                continue
            with open(path, "rb") as file:
                out[relative] = hashlib.file_digest(file, "sha256").hexdigest() if hasattr(
                    hashlib, "file_digest") else hashlib.sha256(file.read()).hexdigest()
    return out


def equal(mount, bucket):
    mine, theirs = tree(mount), tree(bucket)
    bad = 0
    for path in sorted(set(mine) | set(theirs)):
        if mine.get(path) != theirs.get(path):
            bad += 1
            print(f"'{path}': mount {mine.get(path, 'absent')[:12]}, bucket {theirs.get(path, 'absent')[:12]}")
    return bad


def total(ledger):
    begun, acked, size = 0, 0, 0
    with open(ledger + ".all", encoding="ascii") as file:
        for line in file:
            words = line.split()
            begun += words[0] == "begin"
            acked += words[0] == "ack"
            size += int(words[3]) if words[0] == "begin" else 0
    print(f"{begun} saves begun, {acked} closed, {size >> 20} MiB")
    return 0


def main():
    command, *args = sys.argv[1:]
    if command == "write":
        write(*args)
        return 0
    return 1 if {"check": check, "equal": equal, "sum": total}[command](*args) else 0


if __name__ == "__main__":
    sys.exit(main())
