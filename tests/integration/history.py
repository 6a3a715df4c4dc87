#!/usr/bin/env python3
"""What files are there and what they hold, seen past Holdfast: for tests that take something back.

history.py walk DIRECTORY           one JSON object: path -> [kind, mode, mtime in ns, sha256 or target, attributes]
history.py objects DIRECTORY        the same for a bucket that is a directory: path -> sha256
history.py same A B [WITHOUT...]    whether two walks are alike but for the paths WITHOUT; what differs is printed
history.py merge A B PATH...        A, where the named paths are as in B (or missing as there)
history.py change DIRECTORY SEED N  changes of every kind that a program makes to files, folders and links below a directory
history.py bucket WALK OBJECTS      whether each file of the walk is an object with its bytes, and nothing more is there
"""
import hashlib
import json
import os
import random
import stat
import sys


MARKER = "/.hf~o~"  # where a file store keeps the object of a folder


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def attributes(path):
    return {
        name: os.getxattr(path, name, follow_symlinks=False).hex()
        for name in sorted(os.listxattr(path, follow_symlinks=False))
        if name.startswith("user.") and not name.startswith("user.holdfast")
    }


def walk(root):
    found = {}
    for folder, folders, files in os.walk(root):
        for name in folders + files:
            path = os.path.join(folder, name)
            st = os.lstat(path)
            short = os.path.relpath(path, root)
            if stat.S_ISLNK(st.st_mode):
                found[short] = ["link", 0, 0, os.readlink(path), {}]
            elif stat.S_ISDIR(st.st_mode):
                found[short] = ["dir", stat.S_IMODE(st.st_mode), 0, "", attributes(path)]
            else:
                found[short] = ["file", stat.S_IMODE(st.st_mode), st.st_mtime_ns, sha256(path), attributes(path)]
    return found


def objects(root):
    found = {}
    for folder, _, files in os.walk(root):
        for name in files:
            path = os.path.join(folder, name)
            found[os.path.relpath(path, root)] = sha256(path)
    return found


def load(name):
    with open(name, encoding="utf-8") as file:
        return json.load(file)


def same(a, b, without):
    paths = sorted((set(a) | set(b)) - set(without))
    differ = [path for path in paths if a.get(path) != b.get(path)]
    for path in differ[:10]:
        print(f"'{path}': {a.get(path)} and {b.get(path)}")
    if len(differ) > 10:
        print(f"... {len(differ)} in all")
    return not differ


def merge(a, b, paths):
    out = dict(a)
    for path in paths:
        out.pop(path, None)
        if path in b:
            out[path] = b[path]
    return out


def bucket(files, found):
    wanted = {path: row[3] for path, row in files.items() if row[0] == "file"}
    links = {path for path, row in files.items() if row[0] == "link"}
    seen = {path: digest for path, digest in found.items() if path not in links and not path.endswith(MARKER)}
    return same(wanted, seen, ())


class Changes:
    """Random changes: each method does one, or nothing where there is nothing to do it to."""

    def __init__(self, root, seed):
        self.root, self.random, self.made = root, random.Random(seed), 0

    def pick(self, kinds):
        found = []
        for folder, folders, files in os.walk(self.root):
            for name in folders + files:
                path = os.path.join(folder, name)
                kind = "link" if os.path.islink(path) else "dir" if os.path.isdir(path) else "file"
                if kind in kinds:
                    found.append(path)
        return self.random.choice(sorted(found)) if found else None

    def new_name(self):
        folder = self.pick(["dir"]) if self.random.random() < 0.7 else None
        self.made += 1
        return os.path.join(folder or self.root, f"n{self.made}-{self.random.randrange(1000)}")

    def text(self):
        return f"text {self.random.random()}\n" * self.random.randrange(0, 400)

    def write(self, path=None):
        path = path or self.pick(["file"])
        if path:
            with open(path, "w", encoding="utf-8") as file:
                file.write(self.text())

    def write_in_place(self):
        path = self.pick(["file"])
        if path:
            with open(path, "r+", encoding="utf-8") as file:
                file.seek(self.random.randrange(1 + os.path.getsize(path)))
                file.write("in place")

    def save(self):
        path = self.pick(["file"])
        if path:
            self.write(path + ".tmp")
            os.rename(path + ".tmp", path)

    def create(self):
        self.write(self.new_name())

    def remove(self):
        path = self.pick(["file", "link"])
        if path:
            os.unlink(path)

    def remove_and_make(self):
        path = self.pick(["file"])
        if path:
            os.unlink(path)
            self.write(path)

    def make_folder(self):
        os.mkdir(self.new_name())

    def remove_folder(self):
        path = self.pick(["dir"])
        if path and self.random.random() < 0.3:
            for folder, folders, files in os.walk(path, topdown=False):
                for name in files:
                    os.unlink(os.path.join(folder, name))
                for name in folders:
                    child = os.path.join(folder, name)
                    os.unlink(child) if os.path.islink(child) else os.rmdir(child)
            os.rmdir(path)

    def move(self):
        path, to = self.pick(["file", "link", "dir"]), self.new_name()
        if path and not to.startswith(path + "/"):
            os.rename(path, to)

    def move_over(self):
        path, to = self.pick(["file"]), self.pick(["file"])
        if path and to and path != to:
            os.rename(path, to)

    def link(self):
        os.symlink(f"../target{self.random.randrange(100)}", self.new_name())

    def one(self):
        kinds = [self.write, self.write_in_place, self.save, self.create, self.remove, self.remove_and_make]
        kinds += [self.make_folder, self.remove_folder, self.move, self.move_over, self.link, self.write, self.remove]
        what = self.random.choice(kinds)
        what()
        return what.__name__


def change(root, seed, count):
    changes = Changes(root, seed)
    for _ in range(count):
        changes.one()


def main():
    what, args = sys.argv[1], sys.argv[2:]
    if what in ("walk", "objects"):
        json.dump(walk(args[0]) if what == "walk" else objects(args[0]), sys.stdout, sort_keys=True)
        return 0
    if what == "change":
        change(args[0], args[1], int(args[2]))
        return 0
    if what == "merge":
        json.dump(merge(load(args[0]), load(args[1]), args[2:]), sys.stdout, sort_keys=True)
        return 0
    if what == "same":
        return 0 if same(load(args[0]), load(args[1]), args[2:]) else 1
    return 0 if bucket(load(args[0]), load(args[1])) else 1


if __name__ == "__main__":
    sys.exit(main())
