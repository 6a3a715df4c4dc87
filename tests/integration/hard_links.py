#!/usr/bin/env python3
"""Random operations on names and hard links, on a mount and on a disk's file system beside it.

hard_links.py run MOUNT REFERENCE SEED COUNT   every answer (success or errno) is the same, and at the end every name
hard_links.py same MOUNT REFERENCE             names, kinds, sizes, bytes, modes, link counts, and which names are one file
hard_links.py bucket REFERENCE DIRECTORY       every name of the reference is an object with the same bytes, and none is more
"""
import ctypes
import errno
import hashlib
import os
import random
import stat
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
NOREPLACE, EXCHANGE = 1, 2
FOLDERS = ["", "d1", "d1/d2", "d3"]
NAMES = ["a", "b", "c", "x y", "ü"]


def renameat2(old, new, flags):
    if LIBC.renameat2(-100, os.fsencode(old), -100, os.fsencode(new), flags) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


class Side:
    """One of the two trees, with the files that it has open."""

    def __init__(self, root):
        self.root = root
        self.open = {}

    def at(self, path):
        return os.path.join(self.root, path)

    def write(self, path, data, flags):
        fd = os.open(self.at(path), flags | os.O_CLOEXEC, 0o644)
        try:
            os.write(fd, data)
        finally:
            os.close(fd)

    def hold(self, path, slot):
        fd = os.open(self.at(path), os.O_RDWR | os.O_CLOEXEC)
        self.release(slot)
        self.open[slot] = fd

    def held_write(self, slot, data):
        if slot in self.open:
            os.pwrite(self.open[slot], data, 3)
            return os.fstat(self.open[slot]).st_nlink
        return None

    def held_link(self, slot, path):
        if slot in self.open:
            os.link(f"/proc/self/fd/{self.open[slot]}", self.at(path), follow_symlinks=True)

    def release(self, slot):
        fd = self.open.pop(slot, None)
        if fd is not None:
            os.close(fd)

    def do(self, op):
        kind, args = op[0], op[1:]
        if kind == "link":
            os.link(self.at(args[0]), self.at(args[1]), follow_symlinks=False)
        elif kind == "unlink":
            os.unlink(self.at(args[0]))
        elif kind == "rename":
            renameat2(self.at(args[0]), self.at(args[1]), args[2])
        elif kind == "rmdir":
            os.rmdir(self.at(args[0]))
        elif kind == "mkdir":
            os.mkdir(self.at(args[0]))
        elif kind == "symlink":
            os.symlink(args[1], self.at(args[0]))
        elif kind == "chmod":
            os.chmod(self.at(args[0]), args[1])
        elif kind == "truncate":
            os.truncate(self.at(args[0]), args[1])
        elif kind == "nlink":
            return os.lstat(self.at(args[0])).st_nlink if not os.path.isdir(self.at(args[0])) else 0
        else:
            return getattr(self, kind)(*args)
        return None


def choose(rnd):
    def path():
        return os.path.join(rnd.choice(FOLDERS), rnd.choice(NAMES))

    data = rnd.randbytes(rnd.choice([1, 100, 5000, 70000]))
    slot = rnd.randrange(3)
    table = [
        (14, lambda: ("write", path(), data, os.O_WRONLY | os.O_CREAT)),
        (6, lambda: ("write", path(), data, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)),
        (3, lambda: ("write", path(), data, os.O_WRONLY | os.O_APPEND)),
        (30, lambda: ("link", path(), path())),
        (14, lambda: ("unlink", path())),
        (14, lambda: ("rename", path(), path(), 0)),
        (4, lambda: ("rename", path(), path(), NOREPLACE)),
        (6, lambda: ("rename", path(), path(), EXCHANGE)),
        (2, lambda: ("rename", rnd.choice(FOLDERS[1:]), os.path.join(rnd.choice(FOLDERS), "moved"), 0)),
        (2, lambda: ("rename", os.path.join(rnd.choice(FOLDERS), "moved"), rnd.choice(FOLDERS[1:]), 0)),
        (3, lambda: ("link", rnd.choice(FOLDERS[1:]), path())),
        (3, lambda: ("symlink", path(), rnd.choice(NAMES))),
        (3, lambda: ("rmdir", rnd.choice(FOLDERS[1:]))),
        (3, lambda: ("mkdir", rnd.choice(FOLDERS[1:]))),
        (4, lambda: ("chmod", path(), rnd.choice([0o600, 0o644, 0o755]))),
        (4, lambda: ("truncate", path(), rnd.randrange(9000))),
        (5, lambda: ("hold", path(), slot)),
        (5, lambda: ("held_write", slot, data[:50])),
        (3, lambda: ("held_link", slot, path())),
        (4, lambda: ("release", slot)),
        (6, lambda: ("nlink", path())),
    ]
    return rnd.choices([make for _, make in table], [weight for weight, _ in table])[0]()


def answer(side, op):
    try:
        return side.do(op)
    except OSError as error:
        return errno.errorcode.get(error.errno, error.errno)


def describe(root):
    """path → facts, with the number of the group of names that are one file."""
    facts, groups, inodes = {}, {}, []
    for folder, folders, files in os.walk(os.fsencode(root)):
        for name in sorted(folders + files):
            inodes.append(os.path.join(folder, name))
    for path in sorted(inodes):
        seen = os.lstat(path)
        rel = os.path.relpath(path, os.fsencode(root)).decode()
        if stat.S_ISDIR(seen.st_mode):
            facts[rel] = ("dir",)
            continue
        group = groups.setdefault(seen.st_ino, rel)
        if stat.S_ISLNK(seen.st_mode):
            facts[rel] = ("symlink", os.readlink(path), group, seen.st_nlink)
            continue
        with open(path, "rb") as file:
            digest = hashlib.sha256(file.read()).hexdigest()
        facts[rel] = ("file", oct(seen.st_mode), seen.st_size, digest, group, seen.st_nlink)
    return facts


def same(mount, reference):
    ours, theirs = describe(mount), describe(reference)
    bad = [path for path in sorted(set(ours) | set(theirs)) if ours.get(path) != theirs.get(path)]
    for path in bad[:5]:
        print(f"'{path}': the mount has {ours.get(path)}, the disk {theirs.get(path)}")
    return not bad


def run(mount, reference, seed, count):
    rnd = random.Random(seed)
    sides = [Side(mount), Side(reference)]
    for side in sides:
        for folder in FOLDERS[1:]:
            os.makedirs(side.at(folder), exist_ok=True)
    linked = 0
    for number in range(count):
        op = choose(rnd)
        seen = [answer(side, op) for side in sides]
        linked += op[0] in ("link", "held_link") and seen[1] is None
        if seen[0] != seen[1]:
            shown = tuple(len(a) if isinstance(a, bytes) else a for a in op)
            print(f"seed {seed}, operation {number} {shown}: the mount says {seen[0]}, the disk {seen[1]}")
            return False
    for side in sides:
        for slot in list(side.open):
            side.release(slot)
    print(f"{count} operations, {linked} links made")
    if linked < count // 50:
        print("too few links: nothing was shown")
        return False
    return same(mount, reference)


def bucket(reference, directory):
    wanted = {}
    for path, facts in describe(reference).items():
        full = os.path.join(reference, path)
        if facts[0] == "file":
            with open(full, "rb") as file:
                wanted[path] = file.read()
        elif facts[0] == "symlink":
            wanted[path] = os.readlink(full).encode()
    found = {}
    for folder, _, files in os.walk(directory):
        for name in files:
            full = os.path.join(folder, name)
            if name.startswith(".hf~") or "/.hf~" in full:
                continue
            with open(full, "rb") as file:
                found[os.path.relpath(full, directory)] = file.read()
    bad = [path for path in sorted(set(wanted) | set(found)) if wanted.get(path) != found.get(path)]
    for path in bad[:5]:
        print(f"'{path}': the bucket has {len(found[path]) if path in found else 'nothing'},"
              f" the tree {len(wanted[path]) if path in wanted else 'nothing'}")
    return not bad


def main():
    what = sys.argv[1]
    if what == "run":
        good = run(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
    elif what == "same":
        good = same(sys.argv[2], sys.argv[3])
    else:
        good = bucket(sys.argv[2], sys.argv[3])
    return 0 if good else 1


sys.exit(main())
