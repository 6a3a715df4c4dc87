#!/usr/bin/env python3
"""Opens of one file in every order, in a mount and on the disk beside it: the same answers and the same bytes.

passthrough.py random SEED STEPS DISK MOUNT [MOUNT2]   prints how many opens there were
passthrough.py records FILE SECONDS                    writes checksummed records without end
passthrough.py check FILE                              0: every record is whole, and none is older than a later one
"""

import ctypes
import errno
import mmap
import os
import random
import struct
import sys
import time
import zlib

LIBC = ctypes.CDLL(None, use_errno=True)
MODES = [
    os.O_RDONLY,
    os.O_WRONLY,
    os.O_RDWR,
    os.O_RDWR | os.O_APPEND,
    os.O_WRONLY | os.O_TRUNC,
    os.O_RDWR | os.O_CREAT,
    os.O_RDONLY | os.O_CREAT,
]
SIZES = [0, 1, 4096, 100_000, 131_072, 300_000, 2_000_000]


class Side:
    """One of the two file systems: what is done here is done there too."""

    def __init__(self, roots):
        self.roots = roots  # several mounts of one volume, or the same directory several times
        self.fds = {}
        self.maps = {}

    def path(self, root, name):
        return os.path.join(self.roots[root], name)

    def run(self, op, *args):
        try:
            return getattr(self, "op_" + op)(*args)
        except OSError as e:
            return errno.errorcode.get(e.errno, e.errno)
        except ValueError as e:
            return "map: " + type(e).__name__

    def op_open(self, key, root, name, flags):
        self.fds[key] = os.open(self.path(root, name), flags, 0o644)

    def op_close(self, key):
        os.close(self.fds.pop(key))

    def op_map(self, key, writable):
        fd = self.fds[key]
        size = os.fstat(fd).st_size
        if size == 0:
            return "empty"
        prot = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        self.maps[key] = (mmap.mmap(fd, size, mmap.MAP_SHARED, prot), size)
        return size

    def op_unmap(self, key):
        self.maps.pop(key)[0].close()

    def op_store(self, key, off, data):
        area, size = self.maps[key]
        area[off % size : off % size + 1] = data[:1]

    def op_load(self, key, limit):
        area, size = self.maps[key]
        return zlib.crc32(area[: min(size, limit)])

    def op_pwrite(self, key, data, off):
        return os.pwrite(self.fds[key], data, off)

    def op_write(self, key, data):
        return os.write(self.fds[key], data)

    def op_pread(self, key, length, off):
        return zlib.crc32(os.pread(self.fds[key], length, off))

    def op_size(self, key):
        return os.fstat(self.fds[key]).st_size

    def op_ftruncate(self, key, size):
        os.ftruncate(self.fds[key], size)

    def op_fallocate(self, key, mode, off, length):
        if LIBC.fallocate(self.fds[key], mode, ctypes.c_long(off), ctypes.c_long(length)) != 0:
            raise OSError(ctypes.get_errno(), "fallocate")

    def op_fsync(self, key):
        os.fsync(self.fds[key])

    def op_truncate(self, root, name, size):
        os.truncate(self.path(root, name), size)

    def op_unlink(self, root, name):
        os.unlink(self.path(root, name))

    def op_rename(self, root, name, to):
        os.rename(self.path(root, name), self.path(root, to))

    def op_utime(self, root, name, ns):
        os.utime(self.path(root, name), ns=(ns, ns))

    def op_stat(self, root, name):
        return os.stat(self.path(root, name)).st_size

    def op_mtime(self, root, name):
        return os.stat(self.path(root, name)).st_mtime_ns

    def op_whole(self, root, name):
        with open(self.path(root, name), "rb") as f:
            return zlib.crc32(f.read())

    def op_make(self, root, name, size, seed):
        with open(self.path(root, name), "wb") as f:
            f.write(random.Random(seed).randbytes(size))


class Run:
    def __init__(self, seed, disk, mounts):
        self.dice = random.Random(seed)
        self.sides = [Side([disk] * len(mounts)), Side(mounts)]
        self.roots = len(mounts)
        self.names = ["a", "b", "c"]
        self.open = {}
        self.maps = {}
        self.next = 0
        self.opens = 0
        self.log = []

    def both(self, *op):
        self.log.append(op[:1] + tuple(x if not isinstance(x, bytes) else len(x) for x in op[1:]))
        disk, mount = (side.run(*op) for side in self.sides)
        if disk != mount:
            for line in self.log[-60:]:
                print("   ", *line, file=sys.stderr)
            sys.exit(f"{op[0]}: the disk says {disk!r}, the mount {mount!r}")
        return disk

    def pick_open(self):
        return self.dice.choice(sorted(self.open)) if self.open else None

    def step(self):
        kind = self.dice.choices(
            ["open", "close", "io", "map", "store", "unmap", "path", "check"], [6, 5, 10, 3, 3, 2, 3, 4]
        )[0]
        getattr(self, "do_" + kind)()

    def do_open(self):
        if len(self.open) > 8:
            return self.do_close()
        key, self.next = self.next, self.next + 1
        root = self.dice.randrange(self.roots)
        name = self.dice.choice(self.names)
        flags = self.dice.choice(MODES)
        self.opens += 1
        if self.both("open", key, root, name, flags) is None:
            self.open[key] = (root, name, flags)
        return None

    def do_close(self):
        key = self.pick_open()
        if key is not None:
            self.both("close", key)
            del self.open[key]

    def do_io(self):
        key = self.pick_open()
        if key is None:
            return
        dice = self.dice
        data = dice.randbytes(dice.choice([1, 100, 4096, 70_000]))
        off = dice.choice([0, 4095, 50_000, 131_072, 400_000])
        dice.choice(
            [
                lambda: self.both("pwrite", key, data, off),
                lambda: self.both("write", key, data),
                lambda: self.both("pread", key, 1 << 22, 0),
                lambda: self.both("pread", key, 5000, off),
                lambda: self.both("size", key),
                lambda: self.both("ftruncate", key, dice.choice(SIZES)),
                lambda: self.both("fallocate", key, dice.choice([0, 1, 3]), off, 20_000),
                lambda: self.both("fsync", key),
            ]
        )()

    def do_map(self):
        key = self.pick_open()
        if key is None or key in self.maps:
            return
        writable = bool(self.open[key][2] & os.O_RDWR)
        size = self.both("map", key, writable)
        if isinstance(size, int):
            self.maps[key] = (self.open[key], writable)

    def do_store(self):
        keys = [k for k in self.maps if self.maps[k][1]]
        if keys and self.roots == 1:
            key = self.dice.choice(keys)
            if self.map_fits(key):
                self.both("store", key, self.dice.randrange(1 << 21), self.dice.randbytes(1))

    def map_fits(self, key):
        """Touching a map behind the end of its file is SIGBUS on both sides."""
        size = self.sides[0].maps[key][1]
        if key not in self.open:
            return False
        return os.fstat(self.sides[0].fds[key]).st_size >= size

    def do_unmap(self):
        if self.maps:
            key = self.dice.choice(sorted(self.maps))
            self.both("unmap", key)
            del self.maps[key]

    def do_path(self):
        dice, root, name = self.dice, self.dice.randrange(self.roots), self.dice.choice(self.names)
        dice.choice(
            [
                lambda: self.both("truncate", root, name, dice.choice(SIZES)),
                lambda: self.both("unlink", root, name),
                lambda: self.both("rename", root, name, dice.choice(self.names)),
                lambda: self.both("make", root, name, dice.choice(SIZES), dice.random()),
                lambda: self.utime(root, name),
            ]
        )()

    def utime(self, root, name):
        if self.both("utime", root, name, 10**18 + self.dice.randrange(10**9)) is None:
            self.both("mtime", root, name)

    def do_check(self):
        root, name = self.dice.randrange(self.roots), self.dice.choice(self.names)
        self.both("stat", root, name)
        self.both("whole", root, name)
        if self.maps and self.roots == 1:
            key = self.dice.choice(sorted(self.maps))
            if self.map_fits(key):
                self.both("load", key, 1 << 22)

    def end(self):
        for key in sorted(self.open):
            self.both("close", key)
        for key in sorted(self.maps):
            self.both("unmap", key)
        for name in self.names:
            self.both("stat", 0, name)
            self.both("whole", 0, name)


def run_random(seed, steps, disk, mounts):
    run = Run(seed, disk, mounts)
    try:
        for _ in range(steps):
            run.step()
        run.end()
    except SystemExit:
        print(f"seed {seed}", file=sys.stderr)
        raise
    print(run.opens)


RECORD = 4096
RECORDS = 64


def record(turn, at):
    body = struct.pack("<QQ", turn, at) + bytes([turn % 251]) * (RECORD - 20)
    return body + struct.pack("<I", zlib.crc32(body))


def write_records(path, seconds):
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    end = time.monotonic() + seconds
    turn = 0
    while time.monotonic() < end:
        turn += 1
        for at in range(RECORDS):
            os.pwrite(fd, record(turn, at), at * RECORD)
            if at % 8 == 7:
                time.sleep(0.001)
        time.sleep(0.1 if turn % 4 == 0 else 0)
    os.close(fd)
    print(turn)


def check_records(path):
    with open(path, "rb") as f:
        data = f.read()
    if len(data) % RECORD != 0:
        sys.exit(f"{len(data)} bytes are no records")
    turns = []
    for at in range(len(data) // RECORD):
        part = data[at * RECORD : (at + 1) * RECORD]
        turn, number = struct.unpack("<QQ", part[:16])
        if number != at or part != record(turn, at):
            sys.exit(f"record {at} is torn")
        turns.append(turn)
    # Written front to back, turn after turn: at any moment the front is of one turn and the rest of the one before.
    if turns and (sorted(turns, reverse=True) != turns or turns[0] - turns[-1] > 1):
        sys.exit(f"a mixture that never was: {turns}")
    print(turns[0] if turns else 0)


def main():
    what = sys.argv[1]
    if what == "random":
        run_random(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5:])
    elif what == "records":
        write_records(sys.argv[2], float(sys.argv[3]))
    else:
        check_records(sys.argv[2])


main()
