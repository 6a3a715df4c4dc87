"""`scripts/bench mount`: names and small files per second in a mount, against a server that does nothing but answer, and the disk."""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
import types

import machine
import server as server_
from data import build, say, words
from holdfast import Gateway
from others import KNOWN

TARGET = 0.7  # of what bare libfuse does
JUDGED = ("create", "lookup", "unlink")


class Local:
    """A store without a server."""

    def __init__(self, where):
        os.makedirs(where)
        os.chmod(where, 0o777) # the gateway is another user
        self.url, self.env, self.name = "file://" + where, {}, "file"

    def stop(self):
        """Nothing runs."""


# ---- what is timed: each makes what the next one needs ----

def create(place, count):
    for i in range(count):
        os.close(os.open(f"{place}/f{i}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))


def write(place, count):
    for i in range(count):
        fd = os.open(f"{place}/w{i}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        os.write(fd, b"x" * 4096)
        os.close(fd)


def lookup(place, count):
    """Names that are not there: each is a question of its own, which no kernel can answer by itself."""
    for i in range(count):
        if os.access(f"{place}/none{i}", os.F_OK):
            raise SystemExit("bench: a name that nobody made is there")


def stat(place, count):
    for i in range(count):
        os.stat(f"{place}/w{i}")


def read(place, count):
    for i in range(count):
        fd = os.open(f"{place}/w{i}", os.O_RDONLY)
        if len(os.read(fd, 8192)) != 4096:
            raise SystemExit(f"bench: '{place}/w{i}' has lost its bytes")
        os.close(fd)


def rename(place, count):
    for i in range(count):
        os.rename(f"{place}/f{i}", f"{place}/g{i}")


def unlink(place, count):
    for i in range(count):
        os.unlink(f"{place}/g{i}")


def mkdir(place, count):
    for i in range(count):
        os.mkdir(f"{place}/d{i}")


JOBS = (create, write, lookup, stat, read, rename, unlink, mkdir)


def run_side(place, count):
    """{job: per second}"""
    here = os.path.join(place, f"run-{time.monotonic_ns()}")
    os.mkdir(here)
    rates = {}
    for job in JOBS:
        began = time.perf_counter()
        job(here, count)
        rates[job.__name__] = count / (time.perf_counter() - began)
    subprocess.run(["rm", "-rf", here], check=False, stderr=subprocess.DEVNULL)
    return rates


class Ceiling:
    """`with Ceiling(...) as path`: the server in memory, mounted."""

    def __init__(self, programs, work):
        self.program = os.path.join(programs, "tests/bench/hf-ceiling")
        self.path = os.path.join(work, "ceiling")
        self.process = None

    def __enter__(self):
        os.makedirs(self.path)
        self.process = subprocess.Popen([self.program, self.path])
        deadline = time.monotonic() + 10
        while not os.path.ismount(self.path):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit("bench: hf-ceiling does not mount")
            time.sleep(0.02)
        return self.path

    def __exit__(self, *_unused):
        subprocess.run(["umount", self.path], check=False, timeout=30)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def measure(options, programs, work):
    """{side: {job: [rates]}}; every run on all sides in turn, so that a drifting machine hits all alike."""
    disk = os.path.join(work, "disk")
    os.mkdir(disk)
    server = server_.OwnRgw(os.path.join(work, "rgw"), 32, False) if options.rgw else Local(os.path.join(work, "bucket"))
    rates = {}
    rig = types.SimpleNamespace(work=work, trash=os.path.join(work, "trash"), server=server,
                                options=types.SimpleNamespace(concurrency=options.store_threads))
    try:
        with Ceiling(programs, work) as ceiling, Gateway(programs, work, server, options.store_threads) as gateway:
            for number in range(options.runs + 1):
                for side, place in (("disk", disk), ("ceiling", ceiling), ("holdfast", gateway.mount)):
                    seen = run_side(place, options.count)
                    if side == "holdfast":
                        gateway.flush() # the next side does not pay for it
                    if number > 0: # the first one warms up
                        say(f"  run {number}: {side:9} create {seen['create']:8.0f}/s  unlink {seen['unlink']:8.0f}/s")
                        for job, rate in seen.items():
                            rates.setdefault(side, {}).setdefault(job, []).append(rate)
        for name in options.others:
            if not shutil.which(name):
                say(f"bench: {name} is not installed: left out")
                continue
            with KNOWN[name](rig).mounted("other-" + name) as other:
                for _ in range(options.runs):
                    for job, rate in run_side(other.path, options.count).items():
                        rates.setdefault(name, {}).setdefault(job, []).append(rate)
    finally:
        server.stop()
    return server.name, rates


def judge(rates):
    rows = []
    for job in (j.__name__ for j in JOBS):
        row = {"job": job, "per_second": {side: statistics.median(jobs[job]) for side, jobs in rates.items()}}
        own = row["per_second"]["holdfast"]
        row["of_ceiling"] = own / row["per_second"]["ceiling"]
        row["of_disk"] = own / row["per_second"]["disk"]
        row["target"] = TARGET if job in JUDGED else None
        row["met"] = row["of_ceiling"] >= TARGET if job in JUDGED else None
        rows.append(row)
    return rows


def print_table(rows):
    sides = list(rows[0]["per_second"])
    print("per second   " + "".join(f"{side:>12}" for side in sides) + "   of ceiling    of disk")
    for row in rows:
        verdict = "" if row["met"] is None else f"   target {TARGET}: " + ("met" if row["met"] else "missed")
        print(f"{row['job']:12} " + "".join(f"{row['per_second'][side]:12.0f}" for side in sides)
              + f"{row['of_ceiling']:13.2f}{row['of_disk']:11.2f}{verdict}")


def parse(arguments):
    p = argparse.ArgumentParser(prog="scripts/bench mount", description=__doc__)
    p.add_argument("--count", type=int, help="of files and folders in each job (2000; 50)")
    p.add_argument("--runs", type=int, help="runs that count (3; 1)")
    p.add_argument("--rgw", action="store_true", help="on a Ceph RGW of its own instead of a directory")
    p.add_argument("--with", dest="others", type=words(tuple(KNOWN)), default=[], metavar="rclone,s3fs",
                   help="the same through these mounts; implies --rgw")
    p.add_argument("--store-threads", type=int, default=8, metavar="N")
    p.add_argument("--dir", help="where files, caches and the store go: one disk (default: $TMPDIR or /tmp)")
    p.add_argument("--json", metavar="FILE")
    p.add_argument("--quick", action="store_true", help="small and once: does it work at all")
    p.add_argument("--judge", action="store_true", help="exit status 1 when a target is missed")
    options = p.parse_args(arguments)
    options.rgw |= bool(options.others)
    options.count = options.count or (50 if options.quick else 2000)
    options.runs = options.runs or (1 if options.quick else 3)
    return options


def main(arguments):
    options = parse(arguments)
    programs = build(("tests/bench/hf-ceiling",))
    work = tempfile.mkdtemp(prefix="hf-bench.", dir=options.dir)
    os.chmod(work, 0o755)
    try:
        facts = machine.facts(work)
        store, rates = measure(options, programs, work)
        facts["load_average_end"] = machine.load_average()
    finally:
        shutil.rmtree(work, ignore_errors=True)
    rows = judge(rates)
    print_table(rows)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as out:
            json.dump({"machine": facts, "store": store, "count": options.count, "runs": options.runs, "jobs": rows,
                       "samples": rates}, out, indent=1)
    return 1 if options.judge and not all(row["met"] in (True, None) for row in rows) else 0
