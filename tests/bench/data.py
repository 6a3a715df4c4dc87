"""`scripts/bench data`: Holdfast through a real mount against clients that do nothing but move bytes."""
import argparse
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile

import machine
import report as report_
import server as server_
from jobs import JOBS, Rig
from meter import perf_top
from others import KNOWN

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
QUICK = {"size": 8 << 20, "count": 60, "runs": 1, "concurrency": 4}
FULL = {"size": 1 << 30, "count": 2000, "runs": 3, "concurrency": 8}


def size(text):
    units = {"K": 10, "M": 20, "G": 30}
    text = text.upper().removesuffix("IB").removesuffix("B")
    shift = units.get(text[-1:], 0)
    return int(text[:-1] if shift else text) << shift


def words(known):
    def split(text):
        found = [w for w in text.split(",") if w]
        for word in found:
            if word not in known:
                raise argparse.ArgumentTypeError(f"'{word}' is not one of {', '.join(known)}")
        return found
    return split


def parse(arguments):
    jobs = [job.name for job in JOBS]
    p = argparse.ArgumentParser(prog="scripts/bench data", description=__doc__)
    p.add_argument("--store", metavar="URL", help="s3://BUCKET[/PREFIX]?endpoint=URL&region=NAME&style=path, keys in AWS_*; default: a "
                   "Ceph RGW of its own. Uses the volume hf-bench there")
    p.add_argument("--server-pids", type=lambda t: [int(n) for n in t.split(",")], default=[], metavar="PID,...",
                   help="processes of that server, for its CPU seconds")
    p.add_argument("--only", action="append", choices=jobs, metavar="JOB", help=f"one of {', '.join(jobs)}; may be repeated")
    p.add_argument("--runs", type=int, help="runs of each variant (3; 1 with --quick)")
    p.add_argument("--size", type=size, help="of the large file (1G; 8M)")
    p.add_argument("--count", type=int, help="of small files (2000; 60)")
    p.add_argument("--small-size", type=size, default=4096, help="bytes of a small file (4K)")
    p.add_argument("--concurrency", type=int, help="connections of the clients, and Holdfast's uploads and fetches (8; 4)")
    p.add_argument("--clients", type=words(("curl", "socket")), default=["curl", "socket"], metavar="curl,socket")
    p.add_argument("--with", dest="others", type=words(tuple(KNOWN)), default=[], metavar="rclone,s3fs",
                   help="the same jobs through these mounts too, where installed")
    p.add_argument("--dir", help="where files, caches and the server go: one disk (default: $TMPDIR or /tmp)")
    p.add_argument("--keep", metavar="DIR", help="as --dir, and leave server, bucket and sources there for the next run")
    p.add_argument("--json", metavar="FILE")
    p.add_argument("--html", metavar="FILE", help="a page with bars")
    p.add_argument("--perf", metavar="DIR", help="record Holdfast's processes with perf (slower), show the top functions")
    p.add_argument("--quick", action="store_true", help="small and once: does it work at all")
    p.add_argument("--judge", action="store_true", help="exit status 1 when a target is missed")
    options = p.parse_args(arguments)
    for name, value in (QUICK if options.quick else FULL).items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    if min(options.runs, options.size, options.count, options.small_size, options.concurrency) < 1:
        p.error("numbers are 1 or more")
    if "https://" in (options.store or "") and "socket" in options.clients:
        options.clients = [c for c in options.clients if c != "socket"] or p.error("the client 'socket' speaks no TLS")
        print("bench: the client 'socket' speaks no TLS: left out", file=sys.stderr)
    return options


def build(more=("tests/bench/hf-load",)):
    """The directory with the programs: HOLDFAST_BUILD as it is, else an optimised build of this tree."""
    given = os.environ.get("HOLDFAST_BUILD")
    where = given or os.path.join(ROOT, "build/bench")
    if not given:
        os.makedirs(os.path.join(ROOT, "build"), exist_ok=True)
        for command in (["scripts/setup", "--tests"],
                        ["cmake", "--preset", "release", "-B", where, "-DHOLDFAST_WERROR=OFF", "-DCMAKE_C_COMPILER_LAUNCHER=ccache"],
                        ["cmake", "--build", where, "--target", "holdfast", "holdfast-mounter", *map(os.path.basename, more)]):
            done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
            if done.returncode != 0:
                raise SystemExit(f"bench: {' '.join(command)} failed:\n{done.stdout[-3000:]}")
    for program in ("holdfast", "holdfast-mounter", *more):
        if not os.access(os.path.join(where, program), os.X_OK):
            raise SystemExit(f"bench: no '{program}' in '{where}': build the target {os.path.basename(program)}")
    return where


def say(text):
    print(text, file=sys.stderr, flush=True)


def run_job(job, options, others):
    """{side: {variant: [sample, ...]}}; A B A B."""
    runs = {}

    def add(side, samples):
        for variant, sample in samples.items():
            say(f"  {side:9} {variant:18} {job.rate(sample):9.1f} {job.unit}")
            runs.setdefault(side, {}).setdefault(variant, []).append(sample)

    for number in range(options.runs):
        say(f"{job.name}, run {number + 1} of {options.runs}")
        add("holdfast", job.holdfast(number))
        add("client", job.clients(number))
        for other in others:
            add(other.name, {"mount": job.mounted(other, number)})
    return runs


def installed(names, rig):
    for name in names:
        if shutil.which(name):
            yield KNOWN[name](rig)
        else:
            say(f"bench: {name} is not installed: left out")


def clean_up(rig):
    """A store that is not ours gets back what it had, but for the volume's entry in .holdfast/."""
    for prefix in (rig.volume, rig.client):
        rig.remove(prefix)


def run(options, programs, work):
    facts = machine.facts(work)
    version = machine.first_line(os.path.join(programs, "holdfast"), "version") + ", tree at " + machine.first_line(
        "git", "-C", ROOT, "describe", "--always", "--dirty")
    if facts["file_system"].startswith("tmpfs"):
        say(f"bench: '{work}' is in memory, not on a disk; see --dir")
    if options.store:
        server = server_.given(options.store, options.server_pids)
    else:
        say("starting Ceph RGW")
        # Deleted objects go later; the disk of the server is a sparse file.
        server = server_.OwnRgw(os.path.join(work, "rgw"), max(32, (options.size * 16 >> 30) + 4), bool(options.keep))
    rig = Rig(options, programs, work, server)
    try:
        say(f"sources in {work}, and in the bucket")
        rig.prepare()
        others = list(installed(options.others, rig))
        wanted = [job(rig) for job in JOBS if not options.only or job.name in options.only]
        results = [report_.judge(job, run_job(job, options, others)) for job in wanted]
    finally:
        if options.store and not options.keep:
            clean_up(rig)
        server.stop()
    facts["load_average_end"] = machine.load_average()
    perf = {}
    if options.perf:
        perf = {n[:-5]: perf_top(os.path.join(options.perf, n)) for n in sorted(os.listdir(options.perf)) if n.endswith(".perf")}
    return {
        "version": version,
        "server": server.name, "machine": facts, "caches_dropped": rig.caches_dropped, "memory": rig.peak,
        "options": {n: getattr(options, n) for n in ("size", "count", "small_size", "concurrency", "runs", "clients", "quick")},
        "notes": list(report_.NOTES), "jobs": results, "perf": perf,
    }


def main(arguments):
    options = parse(arguments)
    programs = build()
    if options.perf:
        os.makedirs(options.perf, exist_ok=True)
    base = options.keep or options.dir
    if options.keep:
        os.makedirs(base, exist_ok=True)
    work = os.path.abspath(options.keep) if options.keep else tempfile.mkdtemp(prefix="hf-bench.", dir=base)
    os.chmod(work, 0o755) # the gateway gives root up
    lock = os.open(os.path.join(work, "lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise SystemExit(f"bench: another run uses '{work}'") from None
    try:
        report = run(options, programs, work)
    finally:
        if options.keep:
            shutil.rmtree(os.path.join(work, "trash"), ignore_errors=True)
            say(f"kept: '{work}'; its end: tests/support/rgw.sh wipe {work}/rgw; rm -r {work}")
        else:
            shutil.rmtree(work, ignore_errors=True)
    report_.print_text(report)
    report_.write(report, options.json, options.html)
    if not all(result["bytes_ok"] for result in report["jobs"]):
        return 1
    return 1 if options.judge and not report_.passed(report) else 0
