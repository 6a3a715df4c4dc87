"""The four jobs of `scripts/bench data`, each for Holdfast and for the load clients.

A side of a job answers {variant: sample}. Every variant is one measured run; what it leaves behind is removed again.
"""
import hashlib
import json
import os
import shutil
import subprocess
import time

import machine
from holdfast import VOLUME, Gateway
from meter import Meter


class Rig:
    """What all jobs share: programs, places, the server, the options."""

    def __init__(self, options, build, work, server):
        self.options = options
        self.build = build
        self.work = work
        self.server = server
        self.volume = server.prefix + VOLUME + "/"
        self.client = server.prefix + VOLUME + "-client/"
        self.big = os.path.join(work, "src", "big.bin")
        self.small = os.path.join(work, "src", "small")
        self.out = os.path.join(work, "out")
        self.trash = os.path.join(work, "trash")
        self.caches_dropped = False
        self.peak = 0
        self.sums = {}

    # ---- programs ----
    def load(self, *words, client=None, conns=None):
        """Runs hf-load; what it printed."""
        command = [os.path.join(self.build, "tests/bench/hf-load"), "--conns", str(conns or self.options.concurrency)]
        if client:
            command += ["--client", client, "--endpoint", self.server.endpoint, "--region", self.server.region,
                        "--bucket", self.server.bucket]
        done = subprocess.run([*command, *words], env=dict(os.environ, **self.server.env), capture_output=True, text=True,
                              check=False, timeout=3600)
        if done.returncode != 0:
            raise SystemExit(f"bench: hf-load {' '.join(words)}: {done.stderr.strip()}")
        return json.loads(done.stdout)

    def gateway(self):
        return Gateway(self.build, self.work, self.server, self.options.concurrency)

    def remove(self, prefix):
        self.load("delete-many", prefix, client=self.options.clients[0])

    def perf(self, name):
        return os.path.join(self.options.perf, name + ".perf") if self.options.perf else None

    # ---- caches and places ----
    def cold(self):
        machine.discard(self.out, self.trash)
        os.makedirs(self.out)
        self.caches_dropped = machine.drop_caches()

    def warm_source(self, source):
        """Uploads begin with the file in the kernel's cache on both sides: it was just written."""
        self.cold()
        machine.warm(source)

    def keep_peak(self, sample):
        self.peak = max(self.peak, sample["memory"] or 0)
        return sample

    # ---- sources, and what lies in the bucket for reading ----
    def prepare(self):
        mark = os.path.join(self.work, "prepared.json")
        wanted = {"size": self.options.size, "count": self.options.count, "small_size": self.options.small_size,
                  "url": self.server.url}
        held = json.loads(machine.read(mark) or "{}")
        if held.get("wanted") == wanted:
            self.sums = held["sums"]
            return
        shutil.rmtree(os.path.join(self.work, "src"), ignore_errors=True)
        os.makedirs(self.small)
        random_file(self.big, self.options.size)
        for i in range(self.options.count):
            random_file(os.path.join(self.small, f"file-{i:06}"), self.options.small_size)
        self.sums = {"big": sum_of(self.big), "small": sum_of_tree(self.small)}
        self.remove(self.volume)
        with self.gateway() as gateway:
            os.mkdir(os.path.join(gateway.mount, "small"))
            self.load("copy", self.big, os.path.join(gateway.mount, "big.bin"))
            self.load("copy-tree", self.small, os.path.join(gateway.mount, "small"), conns=1)
            gateway.flush()
        with open(mark, "w", encoding="utf-8") as file:
            json.dump({"wanted": wanted, "sums": self.sums}, file)


def random_file(path, size):
    with open(path, "wb") as file:
        while size > 0:
            file.write(os.urandom(min(size, 4 << 20)))
            size -= 4 << 20


def sum_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def sum_of_tree(path):
    """One digest over names and contents."""
    digest = hashlib.sha256()
    for name in sorted(os.listdir(path)):
        digest.update(f"{name} {sum_of(os.path.join(path, name))}\n".encode())
    return digest.hexdigest()


class Job:
    name = title = unit = ""
    target = 0.0
    ours = ""       # the variant that is compared
    explained = ""  # what is compared with what
    ways = ()       # of the clients
    beside = ()     # of these: shown, never compared

    def __init__(self, rig):
        self.rig = rig

    def rate(self, sample):
        return sample["mb_per_s"] if self.unit == "MB/s" else sample["items_per_s"]

    def clients(self, number):
        return {f"{client} {way}": self.client(client, way, number) for client in self.rig.options.clients for way in self.ways}


class ReadLarge(Job):
    name, title, unit, target = "read-large", "cold sequential read of one large file", "MB/s", 0.9
    ours = "cat"
    ways = ("ranges", "single")
    explained = ("Holdfast: one program reads the file in the mount from its first to its last byte (the cache writes a file meanwhile), "
                 "state and caches empty, the first lookup included; 'copy' also writes a second file. Client: the same object into "
                 "a file, by parallel ranges or in one GET.")

    def holdfast(self, number):
        return {way: self.one(way, number) for way in ("cat", "copy")}

    def one(self, way, number):
        rig = self.rig
        target = [os.path.join(rig.out, "copy")] if way == "copy" else []
        with rig.gateway() as gateway:
            rig.cold()
            path = os.path.join(gateway.mount, "big.bin")
            with Meter(rig.server, gateway, rig.perf(f"{self.name}-{way}")) as meter:
                tally = rig.load("read", path, *target)
            sample = rig.keep_peak(meter.sample(tally))
            if number == 0:
                sample["sha256_ok"] = sum_of(target[0] if target else path) == rig.sums["big"]
        return sample

    def client(self, client, way, number):
        rig = self.rig
        rig.cold()
        path = os.path.join(rig.out, "big.bin")
        with Meter(rig.server) as meter:
            tally = rig.load(*(["--single"] if way == "single" else []), "get", rig.volume + "big.bin", path, client=client)
        sample = meter.sample(tally)
        if number == 0:
            sample["sha256_ok"] = sum_of(path) == rig.sums["big"]
        os.unlink(path)
        return sample

    def mounted(self, other, number):
        rig = self.rig
        with other.mounted(rig.volume) as mount:
            rig.cold()
            with Meter(rig.server, pids=mount.pids) as meter:
                tally = rig.load("read", os.path.join(mount.path, "big.bin"))
            sample = meter.sample(tally)
            if number == 0:
                sample["sha256_ok"] = sum_of(os.path.join(mount.path, "big.bin")) == rig.sums["big"]
        return sample


class WriteLarge(Job):
    name, title, unit, target = "write-large", "upload of one large file", "MB/s", 0.9
    ours = "from close"
    ways = ("multipart", "single", "single, new")
    beside = ("single, new",)
    explained = ("Holdfast: a file is copied into the mount; compared is the time from its close to 'the bucket has it' (flush --wait), "
                 "as the client too starts with a whole file; 'from first write' has the copying in it. Client: PUT, or multipart "
                 "with the parts in flight, without a condition ('new': with If-None-Match, beside). Sources are in the kernel's cache on "
                 "both sides.")

    def holdfast(self, number):
        rig = self.rig
        name = f"up-{number}.bin"
        rig.warm_source(rig.big)
        with rig.gateway() as gateway:
            machine.warm(rig.big)
            with Meter(rig.server, gateway, rig.perf(self.name)) as meter:
                tally = rig.load("copy", rig.big, os.path.join(gateway.mount, name))
                synced = gateway.flush()
            samples = {"from close": meter.sample(tally, synced - tally["ended"]),
                       "from first write": meter.sample(tally, synced - tally["first_write"])}
            rig.keep_peak(samples["from close"])
        if number == 0:
            samples["from close"]["sha256_ok"] = self.in_bucket(rig.volume + name)
        rig.remove(rig.volume + "up-")
        rig.server.collect()
        return samples

    def in_bucket(self, key):
        path = os.path.join(self.rig.out, "back")
        self.rig.load("get", key, path, client=self.rig.options.clients[0])
        same = sum_of(path) == self.rig.sums["big"]
        os.unlink(path)
        return same

    def client(self, client, way, number):
        rig = self.rig
        key = f"{rig.client}up-{number}.bin"
        rig.warm_source(rig.big)
        with Meter(rig.server) as meter:
            tally = rig.load(*(["--single"] if way.startswith("single") else []), *(["--new"] if way.endswith("new") else []),
                             "put", rig.big, key, client=client)
        sample = meter.sample(tally)
        if number == 0:
            sample["sha256_ok"] = self.in_bucket(key)
        rig.remove(key)
        rig.server.collect()
        return sample

    def mounted(self, other, number):
        rig = self.rig
        name = f"up-{number}.bin"
        rig.warm_source(rig.big)
        with other.mounted(rig.client) as mount:
            with Meter(rig.server, pids=mount.pids) as meter:
                tally = rig.load("copy", rig.big, os.path.join(mount.path, name))
                synced = mount.flush(1)
            sample = meter.sample(tally, synced - tally["first_write"])
        if number == 0:
            sample["sha256_ok"] = self.in_bucket(rig.client + name)
        rig.remove(rig.client)
        rig.server.collect()
        return sample


class WriteSmall(Job):
    name, title, unit, target = "write-small", "small files written and synced", "files/s", 0.8
    ours = "one writer"
    ways = ("puts", "puts, new")
    beside = ("puts, new",)
    explained = ("Holdfast: files are copied into an empty folder of the mount by one program, one after the other as cp and tar do; the "
                 "time is from the first open to 'the bucket has them all' (flush --wait); 'N writers' does so with as many writers as "
                 "the client has connections. Client: one PUT a file, without a condition ('new': with If-None-Match, beside). Sources are "
                 "in the kernel's cache on both sides.")

    def holdfast(self, number):
        return {"one writer": self.one(1, number), "N writers": self.one(self.rig.options.concurrency, number)}

    def one(self, writers, number):
        rig = self.rig
        name = f"new-{number}-{writers}"
        rig.warm_source(rig.small)
        with rig.gateway() as gateway:
            target = os.path.join(gateway.mount, name)
            os.mkdir(target)
            gateway.flush()
            machine.warm(rig.small)
            with Meter(rig.server, gateway, rig.perf(f"{self.name}-{writers}")) as meter:
                tally = rig.load("copy-tree", rig.small, target, conns=writers)
                synced = gateway.flush()
            sample = rig.keep_peak(meter.sample(tally, synced - tally["first_write"]))
            sample["seconds_to_last_close"] = tally["ended"] - tally["first_write"]
        if number == 0:
            sample["sha256_ok"] = self.in_bucket(f"{rig.volume}{name}/")
        rig.remove(f"{rig.volume}{name}/")
        return sample

    def in_bucket(self, prefix):
        path = os.path.join(self.rig.out, "back")
        os.makedirs(path)
        self.rig.load("get-many", prefix, path, client=self.rig.options.clients[0])
        same = sum_of_tree(path) == self.rig.sums["small"]
        machine.discard(path, self.rig.trash)
        return same

    def client(self, client, way, number):
        rig = self.rig
        prefix = f"{rig.client}new-{number}/"
        rig.warm_source(rig.small)
        with Meter(rig.server) as meter:
            tally = rig.load(*(["--new"] if way.endswith("new") else []), "put-many", rig.small, prefix, client=client)
        sample = meter.sample(tally)
        if number == 0:
            sample["sha256_ok"] = self.in_bucket(prefix)
        rig.remove(prefix)
        return sample

    def mounted(self, other, number):
        rig = self.rig
        name = f"new-{number}"
        rig.warm_source(rig.small)
        with other.mounted(rig.client) as mount:
            target = os.path.join(mount.path, name)
            os.mkdir(target)
            with Meter(rig.server, pids=mount.pids) as meter:
                tally = rig.load("copy-tree", rig.small, target, conns=1)
                synced = mount.flush(rig.options.count)
            sample = meter.sample(tally, synced - tally["first_write"])
        if number == 0:
            sample["sha256_ok"] = self.in_bucket(f"{rig.client}{name}/")
        rig.remove(rig.client)
        return sample


class ReadSmall(Job):
    name, title, unit, target = "read-small", "cold small files read in directory order", "files/s", 0.7
    ours = "all cold"
    ways = ("gets",)
    explained = ("Holdfast: one program lists the folder in the mount and reads each file in the order of the listing, state and caches "
                 "empty, so that listing the bucket is in the time; 'listed before' had an ls -l first, only the contents are cold. "
                 "Client: lists the prefix, then one GET a file, in parallel, each into a file.")

    def holdfast(self, number):
        return {"all cold": self.one(False, number), "listed before": self.one(True, number)}

    def one(self, listed, number):
        rig = self.rig
        with rig.gateway() as gateway:
            path = os.path.join(gateway.mount, "small")
            if listed:
                for entry in os.scandir(path):
                    entry.stat()
                time.sleep(0.2)
            rig.cold()
            with Meter(rig.server, gateway, rig.perf(self.name + ("-listed" if listed else ""))) as meter:
                tally = rig.load("read-tree", path, conns=1)
            sample = rig.keep_peak(meter.sample(tally))
            if number == 0:
                sample["sha256_ok"] = sum_of_tree(path) == rig.sums["small"]
        return sample

    def client(self, client, _way, number):
        rig = self.rig
        rig.cold()
        with Meter(rig.server) as meter:
            tally = rig.load("get-many", rig.volume + "small/", rig.out, client=client)
        sample = meter.sample(tally)
        sample["items_per_s"] = self.rig.options.count / sample["seconds"] # a marker is no file
        if number == 0:
            sample["sha256_ok"] = sum_of_tree(rig.out) == rig.sums["small"]
        return sample

    def mounted(self, other, number):
        rig = self.rig
        with other.mounted(rig.volume) as mount:
            path = os.path.join(mount.path, "small")
            rig.cold()
            with Meter(rig.server, pids=mount.pids) as meter:
                tally = rig.load("read-tree", path, conns=1)
            sample = meter.sample(tally)
            if number == 0:
                sample["sha256_ok"] = sum_of_tree(path) == rig.sums["small"]
        return sample


JOBS = (ReadLarge, WriteLarge, WriteSmall, ReadSmall)
