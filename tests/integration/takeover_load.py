"""Programs that run in a mount while its gateway is killed: each says how much it did and how long it waited at most, and fails
at the first error or the first byte that is not as it was written.

    takeover_load.py names[-N]|open|sqlite-wal|sqlite-delete|tar|git|npm DIR STOPFILE [SOURCE]
"""
import hashlib
import mmap
import os
import shutil
import sqlite3
import subprocess
import sys
import time

work, stop = sys.argv[2], sys.argv[3]
longest, done = 0.0, 0


def running():
    return not os.path.exists(stop)


def step(fn, *args, **kwargs):
    """One operation, its time counted."""
    global longest, done
    began = time.monotonic()
    result = fn(*args, **kwargs)
    longest = max(longest, time.monotonic() - began)
    done += 1
    return result


def put(path, data, flags=os.O_CREAT | os.O_EXCL | os.O_WRONLY):
    fd = step(os.open, path, flags, 0o644)
    try:
        at = 0
        while at < len(data):
            at += step(os.write, fd, data[at:])
    finally:
        step(os.close, fd)


def get(path):
    fd = step(os.open, path, os.O_RDONLY)
    try:
        parts = []
        while part := step(os.read, fd, 65536):
            parts.append(part)
        return b"".join(parts)
    finally:
        step(os.close, fd)


def check(what, wanted, seen):
    if wanted != seen:
        raise SystemExit(f"{what}: wanted {wanted[:80]!r}, saw {seen[:80]!r}")


def names():
    """Everything that must have its effect once: a repeated one is an error here."""
    turn = 0
    while running():
        turn += 1
        folder = f"{work}/d{turn}"
        data = hashlib.sha256(str(turn).encode()).digest() * (1 + turn % 300)
        step(os.mkdir, folder)
        put(f"{folder}/a", data)
        put(f"{folder}/b", b"to be replaced")
        step(os.rename, f"{folder}/a", f"{folder}/b")
        check("renamed", data, get(f"{folder}/b"))
        step(os.symlink, "b", f"{folder}/l")
        check("symlink", "b", step(os.readlink, f"{folder}/l"))
        step(os.mkdir, f"{folder}/sub")
        step(os.rename, f"{folder}/b", f"{folder}/sub/c")
        step(os.truncate, f"{folder}/sub/c", 10)
        step(os.chmod, f"{folder}/sub/c", 0o600)
        check("cut", data[:10], get(f"{folder}/sub/c"))
        step(os.link, f"{folder}/sub/c", f"{folder}/h")
        step(os.unlink, f"{folder}/sub/c")
        step(os.rename, f"{folder}/h", f"{folder}/sub/c")
        check("entries", ["l", "sub"], sorted(step(os.listdir, folder)))
        step(os.unlink, f"{folder}/l")
        step(os.unlink, f"{folder}/sub/c")
        step(os.rmdir, f"{folder}/sub")
        step(os.rmdir, folder)


def opened():
    """Files that stay open over many deaths: appended, without a name, mapped, read-only and without a name."""
    log = step(os.open, f"{work}/log", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)
    hidden = step(os.open, f"{work}/hidden", os.O_CREAT | os.O_RDWR, 0o644)
    step(os.unlink, f"{work}/hidden")
    big = os.urandom(1 << 20)
    put(f"{work}/big", big)
    read_only = step(os.open, f"{work}/big", os.O_RDONLY)
    mapped = mmap.mmap(read_only, 0, prot=mmap.PROT_READ)
    step(os.unlink, f"{work}/big")
    lines = []
    while running():
        line = f"{len(lines)} {time.time()}\n".encode()
        lines.append(line)
        step(os.write, log, line)
        step(os.pwrite, hidden, line.ljust(64), 64 * (len(lines) % 1000))
        check("without a name", line.ljust(64), step(os.pread, hidden, 64, 64 * (len(lines) % 1000)))
        at = (len(lines) * 7919) % (len(big) - 4096)
        check("read-only without a name", big[at:at + 4096], step(os.pread, read_only, 4096, at))
        check("mapped", big[at:at + 16], mapped[at:at + 16])
        if len(lines) % 50 == 0:
            step(os.fsync, log)
    step(os.close, log)
    step(os.close, hidden)
    mapped.close()
    step(os.close, read_only)
    check("log", b"".join(lines), get(f"{work}/log"))


def sqlite(mode):
    db = sqlite3.connect(f"{work}/{mode}.db", isolation_level=None, timeout=30)
    db.execute(f"PRAGMA journal_mode={mode}")
    db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, text TEXT)")
    rows = 0
    while running():
        rows += 1
        step(db.execute, "INSERT INTO t VALUES (?, ?)", (rows, "x" * (rows % 500)))
        if rows % 100 == 0:
            step(db.execute, "UPDATE t SET text = 'y' WHERE id % 7 = 0")
    db.close()
    db = sqlite3.connect(f"{work}/{mode}.db")
    check("rows", [(rows,)], db.execute("SELECT count(*) FROM t").fetchall())
    check("integrity", [("ok",)], db.execute("PRAGMA integrity_check").fetchall())


def run(*words, **kwargs):
    result = step(subprocess.run, words, capture_output=True, check=False, **kwargs)
    if result.returncode != 0:
        raise SystemExit(f"{words[0]} ended with {result.returncode}: {result.stderr[-400:].decode()}")
    return result.stdout


def tar(source):
    turn = 0
    while running():
        turn += 1
        to = f"{work}/t{turn}"
        step(os.mkdir, to)
        run("sh", "-c", f"tar -C '{source}' -cf - . | tar -C '{to}' -xf -")
        run("diff", "-r", source, to)
        run("tar", "-C", to, "-cf", f"{work}/back.tar", ".")
        step(shutil.rmtree, to)


def git(source):
    turn = 0
    environment = dict(os.environ, GIT_AUTHOR_NAME="a", GIT_AUTHOR_EMAIL="a@b", GIT_COMMITTER_NAME="a",
                       GIT_COMMITTER_EMAIL="a@b", GIT_CONFIG_GLOBAL="/dev/null")
    while running():
        turn += 1
        to = f"{work}/g{turn}"
        run("git", "init", "-q", to)
        shutil.copytree(source, f"{to}/src")
        for _ in range(3):
            run("git", "-C", to, "add", "-A")
            run("git", "-C", to, "commit", "-q", "--allow-empty", "-m", "one", env=environment)
        run("git", "-C", to, "gc", "-q")
        run("git", "-C", to, "fsck", "--strict")
        check("clean", b"", run("git", "-C", to, "status", "--porcelain"))
        step(shutil.rmtree, to)


def npm(source):
    turn = 0
    while running():
        turn += 1
        to = f"{work}/n{turn}"
        step(os.mkdir, to)
        for name in os.listdir(source):
            shutil.copy(f"{source}/{name}", to)
        run("npm", "install", "--no-audit", "--no-fund", "--prefer-offline", "--ignore-scripts", cwd=to)
        run("npm", "ls", "--all", cwd=to)
        step(shutil.rmtree, to)


def main():
    os.makedirs(work, exist_ok=True)
    source = sys.argv[4] if len(sys.argv) > 4 else None
    what = "names" if sys.argv[1].startswith("names") else sys.argv[1]
    if what.startswith("sqlite-"):
        sqlite(what.removeprefix("sqlite-"))
    elif what in ("tar", "git", "npm"):
        {"tar": tar, "git": git, "npm": npm}[what](source)
    else:
        {"names": names, "open": opened}[what]()
    # A program's own time is no pause of ours: only single operations are timed to the point.
    exact = "" if what in ("tar", "git", "npm") else f" {longest * 1000:.0f}"
    print(f"{what} {done}{exact}")


main()
