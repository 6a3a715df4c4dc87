"""Holdfast's side: a gateway with a fresh state, its mount, its counters."""
import json
import os
import pwd
import signal
import socket
import subprocess
import time
import urllib.request

import machine

VOLUME = "hf-bench"


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


class Gateway:
    """`with Gateway(...) as gateway`: serves a state that was empty before, mounted at gateway.mount."""

    def __init__(self, build, work, server, threads):
        self.program = os.path.join(build, "holdfast")
        self.place = os.path.join(work, "gateway")
        self.trash = os.path.join(work, "trash")
        self.state = os.path.join(self.place, "state")
        self.mount = os.path.join(self.place, "mnt")
        self.server = server
        self.threads = threads
        self.process = None
        self.env = None

    def __enter__(self):
        machine.discard(self.place, self.trash)
        os.makedirs(self.state)
        os.makedirs(self.mount)
        if os.geteuid() == 0:
            try:
                user = pwd.getpwnam("holdfast") # whom the gateway becomes
                os.chown(self.state, user.pw_uid, user.pw_gid)
            except KeyError:
                pass
        port = free_port()
        env = {k: v for k, v in os.environ.items() if not k.startswith(("HOLDFAST_", "AWS_"))}
        self.env = dict(env, HOLDFAST_STATE=self.state, no_proxy="*", **self.server.env)
        with open(os.path.join(self.place, "log"), "wb") as log:
            self.process = subprocess.Popen(
                [self.program, "serve", "--state", self.state, "--store", self.server.url, "--listen", f"127.0.0.1:{port}",
                 "--store-threads", str(self.threads), "--log", "warn"],
                env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            self.wait_ready(f"http://127.0.0.1:{port}/readyz")
            self.call("volume", "create", VOLUME)
            self.call("mount", VOLUME, self.mount)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def wait_ready(self, url):
        deadline = time.monotonic() + 60
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        while True:
            try:
                with opener.open(url, timeout=2):
                    return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit("bench: the gateway does not get ready: " + self.log()) from None
                time.sleep(0.05)

    def __exit__(self, *_unused):
        if os.path.ismount(self.mount):
            subprocess.run([self.program, "umount", self.mount, "--force"], env=self.env, check=False, timeout=120,
                           stdout=subprocess.DEVNULL)
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for _ in range(100): # the mounter takes the mount away a moment later
            if not os.path.ismount(self.mount):
                machine.discard(self.place, self.trash)
                return
            time.sleep(0.1)

    def log(self):
        return machine.read(os.path.join(self.place, "log"))[-600:]

    def call(self, *words):
        done = subprocess.run([self.program, *words], env=self.env, capture_output=True, text=True, check=False, timeout=1800)
        if done.returncode != 0:
            raise SystemExit(f"bench: holdfast {' '.join(words)} ended with {done.returncode}: {done.stderr.strip()}\n{self.log()}")
        return done.stdout

    def flush(self):
        """Comes back when the bucket has everything; the moment of it (time.monotonic)."""
        self.call("flush", VOLUME, "--wait", "--timeout", "1700")
        return time.monotonic()

    def store_counters(self):
        """The numbers of the store in `status --json`, also those of later versions."""
        store = json.loads(self.call("status", "--json"))["store"]
        numbers = {}
        for name, value in store.items():
            if isinstance(value, dict):
                numbers.update({f"{name}.{k}": v for k, v in value.items() if isinstance(v, int)})
            elif isinstance(value, int) and not isinstance(value, bool):
                numbers[name] = value
        return numbers

    def processes(self):
        """(pids of the gateway, pids of the mounter)"""
        gateway, mounter = [], []
        for pid in machine.tree(self.process.pid):
            name = machine.stat_of(pid)[0]
            (mounter if name.startswith("holdfast-mount") else gateway).append(pid)
        return gateway, mounter

    def peak_memory(self):
        return max(machine.peak_memory(pid) for pid in self.processes()[0])
