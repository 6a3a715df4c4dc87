#!/usr/bin/env python3
"""The programs and the judge of crash_tools.sh.

crash_tools.py prepare MOUNT           makes what the programs work in
crash_tools.py write MOUNT LEDGER SEED works until the mount dies
crash_tools.py check MOUNT LEDGER      what was answered is there, and all of it is whole

A line of the ledger is "KIND NAME NUMBER" behind a "begin" before the work or an "ack" after its answer.
"""
import os
import random
import sqlite3
import subprocess
import sys
import threading
import time

MODES = ("wal", "delete")
SAVES = ("sed", "vim", "nano", "sync")
PACKAGE = 25


def text_of(name, number):
    return (f"{name} {number}\n" * random.Random(f"{name}/{number}").randrange(1, 4000)).encode()


class Ledger:
    def __init__(self, path):
        self.fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def say(self, word, kind, name, number):
        os.write(self.fd, f"{word} {kind} {name} {number}\n".encode())


def read_ledger(path):
    last = {}
    with open(path, encoding="ascii") as file:
        for line in file:
            word, kind, name, number = line.split()
            last.setdefault((kind, name), {"begin": 0, "ack": 0})[word] = int(number)
    return last


def write_file(path, data, flags=os.O_CREAT | os.O_TRUNC, sync=False):
    fd = os.open(path, os.O_WRONLY | flags, 0o644)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view[:8192]):]
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)


def save(kind, path, data):
    """As these programs do: sed -i, vim with a backup, nano, and a careful program."""
    if kind == "nano":
        write_file(path, data)
    elif kind == "vim":
        os.rename(path, path + "~")
        write_file(path, data, os.O_CREAT | os.O_EXCL, sync=True)
        os.unlink(path + "~")
    else:
        temp = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.new")
        write_file(temp, data, sync=kind == "sync")
        os.rename(temp, path)


def git(top, *words):
    env = dict(os.environ, GIT_CONFIG_NOSYSTEM="1", GIT_CONFIG_GLOBAL="/dev/null")
    who = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "safe.directory=*", "-c", "gc.auto=0")
    return subprocess.run(["git", "-C", top, *who, *words], env=env, capture_output=True, text=True, check=True).stdout


def database(mount, mode):
    base = sqlite3.connect(os.path.join(mount, f"{mode}.db"), timeout=30, isolation_level=None)
    base.execute(f"pragma journal_mode={mode}")
    base.execute("create table if not exists t(n integer primary key, b text)")
    return base


# ---- programs: each does its work for one number ----
def run_sqlite(mount, mode, number, state):
    base = state.get("base") or state.setdefault("base", database(mount, mode))
    base.execute("begin immediate")
    base.execute("insert or replace into t values (?, ?)", (number, "x" * 700))
    base.execute("update t set b = b || 'y' where n % 5 = ?", (number % 5,))
    base.execute("commit")


def run_git(mount, name, number, state):
    top = os.path.join(mount, name)
    write_file(os.path.join(top, f"f{number % 7}"), text_of(name, number))
    git(top, "add", "-A")
    git(top, "commit", "-q", "-m", str(number))


def run_package(mount, name, number, state):
    top = os.path.join(mount, name)
    temp = os.path.join(top, f".p{number}-tmp")
    os.mkdir(temp)
    os.mkdir(os.path.join(temp, "lib"))
    for i in range(PACKAGE):
        write_file(os.path.join(temp, "lib" if i % 2 else "", f"m{i}.js"), text_of(f"p{i}", number)[:3000])
    os.rename(temp, os.path.join(top, f"p{number}"))


def run_save(mount, name, number, state):
    save(name, os.path.join(mount, f"edited-{name}"), text_of(name, number))


PROGRAMS = [("sqlite", mode, run_sqlite) for mode in MODES]
PROGRAMS += [("git", "repository", run_git), ("package", "modules", run_package)]
PROGRAMS += [("save", kind, run_save) for kind in SAVES]


def work(program, mount, ledger, first, rng):
    kind, name, run = program
    number, state = first, {}
    while True:
        number += 1
        try:
            ledger.say("begin", kind, name, number)
            run(mount, name, number, state)
            ledger.say("ack", kind, name, number)
        except (OSError, sqlite3.Error, subprocess.CalledProcessError):
            return  # the mount has died
        time.sleep(rng.random() / 30)


def prepare(mount):
    os.mkdir(os.path.join(mount, "repository"))
    os.mkdir(os.path.join(mount, "modules"))
    git(os.path.join(mount, "repository"), "init", "-q")
    for kind in SAVES:
        write_file(os.path.join(mount, f"edited-{kind}"), text_of(kind, 0))
    for mode in MODES:
        database(mount, mode).close()


def write(mount, path, seed):
    last, ledger = read_ledger(path), Ledger(path)
    threads = []
    for program in PROGRAMS:
        first = last.get(program[:2], {"begin": 0})["begin"]
        rng = random.Random(f"{seed}/{program[1]}")
        threads.append(threading.Thread(target=work, args=(program, mount, ledger, first, rng), daemon=True))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)


# ---- the judge ----
def check_sqlite(mount, mode, begun, acked):
    base = database(mount, mode)
    seen = base.execute("pragma integrity_check").fetchone()[0]
    last = base.execute("select max(n) from t").fetchone()[0] or 0
    base.close()
    if seen != "ok":
        return f"integrity_check: {seen}"
    return None if acked <= last <= begun else f"the last row is {last}"


def check_git(mount, name, begun, acked):
    top = os.path.join(mount, name)
    for lock in ("index.lock", "HEAD.lock", "refs/heads/master.lock"):
        if os.path.exists(os.path.join(top, ".git", lock)):
            os.unlink(os.path.join(top, ".git", lock))  # as its user would, after a crash
    if acked == 0:
        return None
    try:
        last = int(git(top, "log", "-1", "--format=%s").strip())
        git(top, "fsck", "--full", "--strict")
    except subprocess.CalledProcessError as error:
        return f"git {error.cmd[-1]}: {error.stderr[:200]}"
    git(top, "add", "-A")
    return None if acked <= last <= begun else f"the last commit is {last}"


def check_package(mount, name, begun, acked):
    top = os.path.join(mount, name)
    there = {entry for entry in os.listdir(top) if not entry.startswith(".")}
    wanted = {f"p{number}" for number in range(max(1, acked - 20), acked + 1)}
    for entry in sorted(there):
        for i in range(PACKAGE):
            path = os.path.join(top, entry, "lib" if i % 2 else "", f"m{i}.js")
            with open(path, "rb") as file:
                if file.read() != text_of(f"p{i}", int(entry[1:]))[:3000]:
                    return f"{path} is not what was written"
    # Packages whose making was cut off in an earlier round have no name.
    missing = [entry for entry in wanted - there if entry not in SKIPPED]
    return f"missing: {missing[:3]}" if missing else None


def check_save(mount, name, begun, acked):
    path = os.path.join(mount, f"edited-{name}")
    seen = None
    for place in (path, path + "~") if name == "vim" else (path,):
        if os.path.exists(place):
            with open(place, "rb") as file:
                seen = file.read()
            break
    if seen is None:
        return "the file is gone"
    for number in range(begun, acked - 1, -1):
        if seen == text_of(name, number):
            if not os.path.exists(path):
                os.rename(path + "~", path)
            elif os.path.exists(path + "~"):
                os.unlink(path + "~")
            return None
    return f"{len(seen)} bytes that are no version from {acked} to {begun}: {seen[:40]!r}"


CHECKS = {"sqlite": check_sqlite, "git": check_git, "package": check_package, "save": check_save}
SKIPPED = set()


def check(mount, path):
    begun, done = set(), set()
    with open(path, encoding="ascii") as file:
        for line in file:
            word, kind, name, number = line.split()
            if kind == "package":
                (begun if word == "begin" else done).add(f"p{number}")
    SKIPPED.update(begun - done)
    bad = 0
    for (kind, name), numbers in sorted(read_ledger(path).items()):
        why = CHECKS[kind](mount, name, numbers["begin"], numbers["ack"])
        if why:
            bad += 1
            print(f"{kind} {name}, answered up to {numbers['ack']} of {numbers['begin']}: {why}")
    return bad


def main():
    command = sys.argv[1]
    if command == "prepare":
        prepare(sys.argv[2])
    elif command == "write":
        write(*sys.argv[2:5])
        os._exit(0)
    elif command == "check":
        sys.exit(1 if check(sys.argv[2], sys.argv[3]) else 0)
    elif command == "sum":
        print(", ".join(f"{kind} {name} {n['ack']}" for (kind, name), n in sorted(read_ledger(sys.argv[2]).items())))


if __name__ == "__main__":
    main()
