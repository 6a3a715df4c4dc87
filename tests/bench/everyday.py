"""`scripts/bench everyday`: what people and their tools do all day in a folder, on the disk, in a mount, and in the mounts of others."""
import argparse
import contextlib
import json
import os
import random
import select
import shutil
import signal
import sqlite3
import statistics
import subprocess
import tarfile
import tempfile
import time
import types

import machine
import server as server_
from data import build, say, words
from holdfast import Gateway
from mount import Ceiling, Local
from others import KNOWN

MIB = 1 << 20
BLOCK = 4096
SMALL = 1000 # files in the jobs with small files
PACKAGE = 3000 # files in the package that is unpacked
ACCESSES = 8000
GIT = ("git", "-c", "user.name=bench", "-c", "user.email=bench@example.org", "-c", "init.defaultBranch=main", "-c", "gc.auto=0",
       "-c", "maintenance.auto=false")


class Material:
    """The same bytes for all sides: 64 MiB that do not compress, and a package of many small files."""

    def __init__(self, work, scale):
        rng = random.Random(4711)
        self.small, self.package, self.accesses = (max(10, n // scale) for n in (SMALL, PACKAGE, ACCESSES))
        self.bytes = rng.randbytes(64 * MIB // scale)
        self.tar = os.path.join(work, "package.tar")
        source = os.path.join(work, "package")
        for i in range(self.package):
            folder = os.path.join(source, f"lib{i % 100:02}", f"part{i % 3}")
            os.makedirs(folder, exist_ok=True)
            with open(os.path.join(folder, f"source{i}.js"), "wb") as out:
                start = i * 997 % (len(self.bytes) - 8192)
                out.write(self.bytes[start:start + rng.choice((500, 1200, 3000, 8000))])
        with tarfile.open(self.tar, "w") as tar:
            tar.add(source, arcname="package")
        shutil.rmtree(source)


def run(place, *command):
    subprocess.run(command, cwd=place, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


# ---- what happens before the clock runs, and what is timed: f(place, material) ----

def nothing(_place, _m):
    """The job makes what it needs."""


def make_small(place, m):
    for i in range(m.small):
        with open(f"{place}/f{i}", "wb") as out:
            out.write(b"x" * 512)


def stat_small(place, m):
    for i in range(m.small):
        os.stat(f"{place}/f{i}")


def read_small(place, m):
    for i in range(m.small):
        with open(f"{place}/f{i}", "rb") as source:
            source.read()


def rename_small(place, m):
    for i in range(m.small):
        os.rename(f"{place}/f{i}", f"{place}/g{i}")


def remove_small(place, m):
    for i in range(m.small):
        os.unlink(f"{place}/f{i}")


def make_tree(place, _m):
    for i in range(1000):
        os.makedirs(f"{place}/{i // 100}/{i // 10 % 10}/{i % 10}")


def find_tree(place, _m):
    run(place, "find", ".")


def fill_folder(place, m):
    os.mkdir(f"{place}/old")
    make_small(f"{place}/old", m)


def move_folder(place, _m):
    os.rename(f"{place}/old", f"{place}/new")


def write_large(place, m, how="wb", name="large", sync=False):
    with open(f"{place}/{name}", how, buffering=0) as out:
        for at in range(0, len(m.bytes), MIB):
            out.write(m.bytes[at:at + MIB])
        if sync:
            os.fsync(out.fileno())


def write_large_synced(place, m):
    write_large(place, m, sync=True)


def overwrite_large(place, m):
    write_large(place, m, "r+b")


def read_large(place, _m):
    with open(f"{place}/large", "rb", buffering=0) as source:
        while source.read(MIB):
            pass


def copy_large(place, _m):
    run(place, "cp", "--reflink=never", "large", "copy")


def offsets(m, seed):
    rng = random.Random(seed)
    blocks = len(m.bytes) // BLOCK
    return [rng.randrange(blocks) * BLOCK for _ in range(m.accesses)]


def read_here_and_there(place, m):
    fd = os.open(f"{place}/large", os.O_RDONLY)
    for at in offsets(m, 1):
        os.pread(fd, BLOCK, at)
    os.close(fd)


def write_here_and_there(place, m):
    fd = os.open(f"{place}/large", os.O_RDWR)
    for at in offsets(m, 2):
        os.pwrite(fd, m.bytes[:BLOCK], at)
    os.close(fd)


def append_and_sync(place, _m):
    fd = os.open(f"{place}/log", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)
    for i in range(200):
        os.write(fd, b"%06d one line of a log, to be kept at once\n" % i)
        os.fsync(fd)
    os.close(fd)


def fill_repository(place, m):
    os.mkdir(f"{place}/work")
    run(f"{place}/work", *GIT, "init", "-q")
    for i in range(100):
        with open(f"{place}/work/text{i}", "wb") as out:
            out.write(m.bytes[i * 613:i * 1319 + 3000])


def git_commit(place, _m):
    run(f"{place}/work", *GIT, "add", "-A")
    run(f"{place}/work", *GIT, "commit", "-qm", "all")


def commit_repository(place, m):
    fill_repository(place, m)
    git_commit(place, m)


def git_clone(place, _m):
    run(place, *GIT, "clone", "-q", "--no-hardlinks", "work", "clone")


def git_status(place, _m):
    for _ in range(5):
        run(f"{place}/work", *GIT, "status", "--porcelain")


def untar(place, m):
    run(place, "tar", "xf", m.tar)


def tar_create(place, _m):
    run(place, "sh", "-c", "tar cf - package | cat >/dev/null") # to /dev/null tar would read nothing


def grep(place, _m):
    subprocess.run(["grep", "-r", "nobody wrote this", "package"], cwd=place, check=False, stdout=subprocess.DEVNULL)


def remove_tree(place, _m):
    run(place, "rm", "-rf", "package")


def sqlite_commits(place, m):
    with contextlib.closing(sqlite3.connect(f"{place}/rows.db", isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = DELETE")
        db.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, bytes BLOB)")
        for i in range(60):
            db.execute("BEGIN")
            db.executemany("INSERT INTO t(bytes) VALUES(?)", [(m.bytes[i + j:i + j + 200],) for j in range(20)])
            db.execute("COMMIT")


# name: before, job, the most that it may take of the disk's time
JOBS = {
    "create 1000 files": (nothing, make_small, 5),
    "stat 1000 files": (make_small, stat_small, 1.15),
    "read 1000 files": (make_small, read_small, 2.5),
    "rename 1000 files": (make_small, rename_small, 5),
    "rm 1000 files": (make_small, remove_small, 5),
    "mkdir 1000 folders": (nothing, make_tree, 1.5),
    "find 1000 folders": (make_tree, find_tree, 6),
    "mv folder of 1000": (fill_folder, move_folder, None),
    "write 64 MiB": (nothing, write_large, 1.5),
    "write 64 MiB, fsync": (nothing, write_large_synced, 1.5),
    "read 64 MiB": (write_large, read_large, 1.15),
    "copy 64 MiB": (write_large, copy_large, 6),
    "overwrite 64 MiB": (write_large, overwrite_large, 1.5),
    "8000 random reads": (write_large, read_here_and_there, 1.15),
    "8000 random writes": (write_large, write_here_and_there, 1.5),
    "200 appends, fsync": (nothing, append_and_sync, 1.5),
    "git add, commit": (fill_repository, git_commit, 2.5),
    "git clone": (commit_repository, git_clone, 2.5),
    "git status x5": (commit_repository, git_status, 2.5),
    "untar 3000 files": (nothing, untar, 2.5),
    "tar c 3000 files": (untar, tar_create, 2.5),
    "grep -r 3000 files": (untar, grep, 2.5),
    "rm -rf 3000 files": (untar, remove_tree, 5),
    "sqlite 60 commits": (nothing, sqlite_commits, 1.5),
}
MOVE, MOVE_MS = "mv folder of 1000", 2.0 # no ratio: a disk does nothing for it
MEAN, MOST = 1.6, 6


class TooSlow(Exception):
    """Stopped at the limit, in the job or in what comes before it."""


def timed_here(place, job, material):
    before, timed, _ = JOBS[job]
    before(place, material)
    began = time.perf_counter()
    timed(place, material)
    return (time.perf_counter() - began) * 1e3


def timed_apart(place, job, material, limit):
    """The same in a process that can be stopped: the mounts of others may take an hour."""
    source, sink = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        try:
            os.write(sink, f"{timed_here(place, job, material)}".encode())
            os._exit(0)
        except BaseException as error: # pylint: disable=broad-except
            os.write(sink, f"! {type(error).__name__}: {error}".encode()[:500])
            os._exit(1)
    os.close(sink)
    with open(source, "rb", buffering=0) as answers:
        if select.select([answers], [], [], limit)[0]:
            told = answers.read(600).decode()
            os.waitpid(child, 0)
            if told.startswith("!"):
                raise OSError(told[2:])
            return float(told)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise TooSlow(f"not done after {limit} s")


def once(side, job, material, limit):
    """Milliseconds; then the side gets rid of what it does behind the program's back, so that the next one does not pay for it."""
    place = tempfile.mkdtemp(prefix="everyday-", dir=side.path)
    try:
        return timed_apart(place, job, material, limit) if side.slow else timed_here(place, job, material)
    finally:
        subprocess.run(["timeout", str(limit), "rm", "-rf", place], check=False, stderr=subprocess.DEVNULL)
        side.settle()


def measure_job(sides, job, options, material):
    """{side: [ms]} or {side: "what went wrong"}"""
    times = {}
    for number in range(options.runs + 1):
        for side in sides:
            if isinstance(times.get(side.name), str) or (side.slow and not 0 < number <= options.other_runs):
                continue
            try:
                took = once(side, job, material, options.limit)
            except (OSError, subprocess.CalledProcessError, sqlite3.Error, TooSlow) as error:
                times[side.name] = f"{type(error).__name__}: {error}"
                continue
            if number > 0: # the first one warms up
                times.setdefault(side.name, []).append(took)
    return times


def rate(job, times):
    row = {"job": job, "samples": times, "ms": {s: None if isinstance(t, str) else statistics.median(t) for s, t in times.items()}}
    disk, own = row["ms"]["disk"], row["ms"]["holdfast"]
    row["ratio"] = own / disk if disk and own else None
    if job == MOVE:
        row["target"], row["met"] = f"{MOVE_MS} ms", own is not None and own <= MOVE_MS
    else:
        row["target"] = JOBS[job][2]
        row["met"] = row["ratio"] is not None and row["ratio"] <= row["target"]
    row["lost_to"] = [s for s, ms in row["ms"].items() if s in KNOWN and ms is not None and own is not None and ms < own]
    return row


def print_head(sides):
    say(f"{'milliseconds':22}" + "".join(f"{side.name:>10}" for side in sides) + f"{'of disk':>10}{'wanted':>9}")


def print_row(row):
    cells = "".join(f"{'failed':>10}" if ms is None else f"{ms:10.1f}" for ms in row["ms"].values())
    ratio = "" if row["ratio"] is None or row["job"] == MOVE else f"{row['ratio']:.2f}"
    verdict = ("" if row["met"] else "  missed") + "".join(f"  slower than {other}" for other in row["lost_to"])
    say(f"{row['job']:22}{cells}{ratio:>10}{row['target']!s:>9}{verdict}")
    for side, samples in row["samples"].items():
        if isinstance(samples, str):
            say(f"    {side}: {samples}")


def side_of(name, path, settle=lambda: None, slow=False):
    return types.SimpleNamespace(name=name, path=path, settle=settle, slow=slow)


@contextlib.contextmanager
def all_sides(options, programs, work):
    disk = os.path.join(work, "disk")
    os.mkdir(disk)
    server = Local(os.path.join(work, "bucket")) if options.file else server_.OwnRgw(os.path.join(work, "rgw"), 32, False)
    rig = types.SimpleNamespace(work=work, trash=os.path.join(work, "trash"), server=server,
                                options=types.SimpleNamespace(concurrency=options.store_threads))
    with contextlib.ExitStack() as stack:
        stack.callback(server.stop)
        sides = [side_of("disk", disk)]
        if options.ceiling:
            sides.append(side_of("ceiling", stack.enter_context(Ceiling(programs, work))))
        gateway = stack.enter_context(Gateway(programs, work, server, options.store_threads))
        sides.append(side_of("holdfast", gateway.mount, gateway.flush))
        for name in options.others:
            if not shutil.which(name):
                say(f"bench: {name} is not installed: left out")
                continue
            other = KNOWN[name](rig)
            other.write_back = "5s" # as it is when nobody says anything
            mounted = stack.enter_context(other.mounted("other-" + name))
            sides.append(side_of(name, mounted.path, other.settle, slow=True))
        yield server.name, sides


def parse(arguments):
    p = argparse.ArgumentParser(prog="scripts/bench everyday", description=__doc__)
    p.add_argument("--runs", type=int, help="runs that count, after one that warms up (3; 1)")
    p.add_argument("--other-runs", type=int, default=1, metavar="N", help="of the mounts of others, which take long; none warms up (1)")
    p.add_argument("--limit", type=int, default=60, metavar="S", help="of one run in the mounts of others, seconds (60)")
    p.add_argument("--only", default="", metavar="NAME,...", help="beginnings of jobs' names")
    p.add_argument("--file", action="store_true", help="on a directory instead of a Ceph RGW of its own")
    p.add_argument("--ceiling", action="store_true", help="also a server in memory on bare libfuse: what FUSE itself costs")
    p.add_argument("--with", dest="others", type=words(tuple(KNOWN)), default=[], metavar="rclone,s3fs",
                   help="the same in these mounts")
    p.add_argument("--store-threads", type=int, default=8, metavar="N")
    p.add_argument("--dir", help="where files, caches and the store go: one disk (default: $TMPDIR or /tmp)")
    p.add_argument("--json", metavar="FILE")
    p.add_argument("--quick", action="store_true", help="small and once: does it work at all")
    p.add_argument("--judge", action="store_true", help="exit status 1 when a target is missed")
    options = p.parse_args(arguments)
    if options.file and options.others:
        p.error("--with wants an S3 server, not --file")
    wanted = [w for w in options.only.split(",") if w]
    options.jobs = [job for job in JOBS if not wanted or any(job.startswith(w) for w in wanted)]
    if not options.jobs:
        p.error(f"--only: no such job; there are {', '.join(JOBS)}")
    options.runs = options.runs or (1 if options.quick else 3)
    return options


def summary(rows):
    ratios = [row["ratio"] for row in rows if row["ratio"] and row["job"] != MOVE]
    mean = statistics.geometric_mean(ratios) if ratios else None
    met = all(row["met"] and not row["lost_to"] for row in rows) and (mean is None or (mean <= MEAN and max(ratios) <= MOST))
    return {"geometric_mean": mean, "target": MEAN, "worst": max(ratios, default=None), "worst_allowed": MOST, "met": met}


def main(arguments):
    options = parse(arguments)
    programs = build(("tests/bench/hf-ceiling",))
    work = tempfile.mkdtemp(prefix="hf-bench.", dir=options.dir)
    os.chmod(work, 0o755)
    rows = []
    try:
        facts = machine.facts(work)
        material = Material(work, 20 if options.quick else 1)
        with all_sides(options, programs, work) as (store, sides):
            print_head(sides)
            for job in options.jobs:
                rows.append(rate(job, measure_job(sides, job, options, material)))
                print_row(rows[-1])
        facts["load_average_end"] = machine.load_average()
    finally:
        shutil.rmtree(work, ignore_errors=True)
    total = summary(rows)
    if total["geometric_mean"]:
        say(f"geometric mean {total['geometric_mean']:.2f} (wanted {MEAN}), worst {total['worst']:.2f} (wanted {MOST})")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as out:
            json.dump({"machine": facts, "store": store, "runs": options.runs, "jobs": rows, "summary": total}, out, indent=1)
    failed = any(isinstance(row["samples"].get("holdfast"), str) for row in rows)
    return 1 if failed or (options.judge and not total["met"]) else 0
