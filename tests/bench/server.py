"""The S3 server under both sides: a Ceph RGW of our own, or one that is given by its URL."""
import json
import os
import socket
import struct
import subprocess
import urllib.parse

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
RGW = os.path.join(ROOT, "tests/support/rgw.sh")
BUCKET = "bench"
KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_EC2_METADATA_DISABLED")


class Server:
    """endpoint, region, bucket, prefix ("" or with a final slash), keys in `env`, pids of its processes."""

    def __init__(self, url, env, pids):
        parts = urllib.parse.urlsplit(url)
        query = dict(urllib.parse.parse_qsl(parts.query))
        if parts.scheme != "s3" or not query.get("endpoint"):
            raise SystemExit("bench: the store is s3://BUCKET[/PREFIX]?endpoint=URL&region=NAME&style=path")
        if query.get("style") == "virtual":
            raise SystemExit("bench: hf-load names the bucket in the path only (style=path)")
        self.url = url
        self.endpoint = query["endpoint"].rstrip("/")
        self.region = query.get("region", "us-east-1")
        self.bucket = parts.netloc
        self.prefix = parts.path.strip("/") + "/" if parts.path.strip("/") else ""
        self.env = env
        self.pids = pids
        self.name = "given"

    def counters(self):
        """Requests as the server itself counts them, or None where it does not tell."""
        return None

    def collect(self):
        """Let the server throw away what was deleted, so that it does not do so during the next run."""

    def stop(self):
        """Nothing: it is not ours."""


def given(url, pids):
    env = {k: os.environ[k] for k in KEYS if os.environ.get(k)}
    if "AWS_ACCESS_KEY_ID" not in env or "AWS_SECRET_ACCESS_KEY" not in env:
        raise SystemExit("bench: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY for --store")
    return Server(url, env, pids)


class OwnRgw(Server):
    def __init__(self, where, size_gb, keep):
        self.where = where
        self.keep = keep
        env = dict(os.environ, RGW_SIZE_GB=str(size_gb))
        done = subprocess.run([RGW, "start", where], env=env, stdout=subprocess.PIPE, text=True, check=False, timeout=300)
        if done.returncode != 0:
            raise SystemExit("bench: Ceph RGW does not start")
        told = dict(line.split("=", 1) for line in done.stdout.split())
        subprocess.run([RGW, "bucket", where, BUCKET], check=True, timeout=60)
        url = f"s3://{BUCKET}?endpoint={told['S3_ENDPOINT']}&region={told['S3_REGION']}&style=path"
        super().__init__(url, {k: told[k] for k in KEYS if k in told}, [int(n) for n in told["S3_PIDS"].split(",")])
        self.name = "Ceph RGW"

    def counters(self):
        try:
            rgw = ask_daemon(os.path.join(self.where, "run/client.rgw.asok"), "perf dump")["rgw"]
        except (OSError, KeyError, ValueError):
            return None
        return {"requests": rgw["req"], "failed": rgw["failed_req"], "gets": rgw["get"], "puts": rgw["put"],
                "bytes_down": rgw["get_b"], "bytes_up": rgw["put_b"]}

    def collect(self):
        subprocess.run([RGW, "admin", self.where, "gc", "process", "--include-all"],
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False, timeout=300)

    def stop(self):
        if not self.keep:
            subprocess.run([RGW, "wipe", self.where], check=False, timeout=120)


def ask_daemon(path, command):
    """Ceph's admin socket: a JSON command and a NUL out, a length of four bytes and JSON back."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(10)
        try:
            sock.connect(path)
        except OSError: # a path longer than a socket's name may be
            held = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY)
            try:
                sock.connect(f"/proc/self/fd/{held}/{os.path.basename(path)}")
            finally:
                os.close(held)
        sock.sendall(json.dumps({"prefix": command}).encode() + b"\0")
        with sock.makefile("rb") as answer:
            length = struct.unpack(">I", answer.read(4))[0]
            return json.loads(answer.read(length))
