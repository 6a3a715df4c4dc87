"""The same jobs through other mounts of buckets: rclone mount, s3fs."""
import contextlib
import json
import os
import signal
import subprocess
import time
import urllib.request

import machine
from holdfast import free_port


class Mount:
    """path, pids, flush(n): comes back when the bucket has the n files of this mount, with the moment of it."""

    def __init__(self, path, process, flush):
        self.path = path
        self.pids = machine.tree(process.pid)
        self.flush = flush


class Other:
    """Each `mounted(prefix)` starts with an empty cache on the same disk."""

    name = ""

    def __init__(self, rig):
        self.rig = rig
        self.place = os.path.join(rig.work, self.name)

    def command(self, prefix, mount, cache): # (arguments, environment)
        raise NotImplementedError

    def flush(self, _files):
        return time.monotonic() # close comes back with the upload

    def settle(self):
        """Comes back when it does nothing more behind its programs."""

    @contextlib.contextmanager
    def mounted(self, prefix):
        machine.discard(self.place, self.rig.trash)
        mount, cache = os.path.join(self.place, "mnt"), os.path.join(self.place, "cache")
        os.makedirs(mount)
        os.makedirs(cache)
        command, env = self.command(prefix.rstrip("/"), mount, cache)
        with open(os.path.join(self.place, "log"), "wb") as log:
            # rclone 1.60 ends when AWS_CA_BUNDLE is set.
            clean = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "RCLONE_"))}
            process = subprocess.Popen(command, env=dict(clean, **env), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            deadline = time.monotonic() + 30
            while not os.path.ismount(mount):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"bench: {self.name} does not mount: " + machine.read(os.path.join(self.place, "log"))[-400:])
                time.sleep(0.05)
            yield Mount(mount, process, self.flush)
        finally:
            subprocess.run(["fusermount3", "-u", mount], check=False, timeout=60, stderr=subprocess.DEVNULL)
            process.send_signal(signal.SIGTERM)
            process.wait(60)
            if not os.path.ismount(mount):
                machine.discard(self.place, self.rig.trash)


class Rclone(Other):
    name = "rclone"
    write_back = "0s" # its own default is five seconds

    def command(self, prefix, mount, cache):
        server, jobs = self.rig.server, str(self.rig.options.concurrency)
        self.port = free_port()
        env = dict(server.env, RCLONE_CONFIG_BENCH_TYPE="s3", RCLONE_CONFIG_BENCH_PROVIDER="Ceph", RCLONE_CONFIG_BENCH_ENV_AUTH="true",
                   RCLONE_CONFIG_BENCH_ENDPOINT=server.endpoint, RCLONE_CONFIG_BENCH_REGION=server.region, RCLONE_CONFIG="/dev/null",
                   no_proxy="*")
        return ["rclone", "mount", f"bench:{server.bucket}/{prefix}", mount, "--vfs-cache-mode", "full", "--cache-dir", cache,
                "--vfs-write-back", self.write_back, "--transfers", jobs, "--s3-upload-concurrency", jobs, "--rc",
                "--rc-addr", f"127.0.0.1:{self.port}", "--rc-no-auth"], env

    def ask(self, what):
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/{what}", data=b"", method="POST")
        with opener.open(request, timeout=10) as answer:
            return json.load(answer)

    def flush(self, files):
        """The end of a file reaches it a moment after close: so the uploads that are done are counted too."""
        while True:
            cache = self.ask("vfs/stats")["diskCache"]
            if not cache["uploadsInProgress"] and not cache["uploadsQueued"] and self.ask("core/stats")["transfers"] >= files:
                return time.monotonic()
            time.sleep(0.02)


    def settle(self):
        while True:
            cache = self.ask("vfs/stats")["diskCache"]
            if not cache["uploadsInProgress"] and not cache["uploadsQueued"]:
                return
            time.sleep(0.02)


class S3fs(Other):
    name = "s3fs"

    def command(self, prefix, mount, cache):
        server = self.rig.server
        env = dict(server.env, AWSACCESSKEYID=server.env["AWS_ACCESS_KEY_ID"],
                   AWSSECRETACCESSKEY=server.env["AWS_SECRET_ACCESS_KEY"])
        return ["s3fs", f"{server.bucket}:/{prefix}", mount, "-f", "-o", f"url={server.endpoint}", "-o", "use_path_request_style",
                "-o", f"endpoint={server.region}", "-o", f"use_cache={cache}",
                "-o", f"parallel_count={self.rig.options.concurrency}"], env


KNOWN = {"rclone": Rclone, "s3fs": S3fs}
