"""Writers on two gateways that share a bucket, and the faults between; see two_gateways.sh.

    two_gateways.py PLAN.json LEDGER-DIR

Eight processes change shared files over HTTP and in mounts. Each writes down, in a file of its own, what it was told: the sha256 of
every version with the answer that it got. Nothing is judged here: two_gateways_check.py does so from the bucket alone.
"""
import errno
import hashlib
import http.client
import json
import multiprocessing
import os
import random
import sys
import threading
import time
import traceback
import urllib.parse
import urllib.request

FILES = 50


def path_of(number):
    return f"d{number // 10}/f{number:02d}"


class Traffic:
    """Who works on which file of which gateway right now. Two programs that write one file of one gateway at once share its next
    version, as on any disk: such a version is written down, but nobody was promised its bytes alone."""

    def __init__(self, gateways):
        self.count = multiprocessing.Array("q", gateways * FILES)
        self.active = multiprocessing.Array("q", gateways * FILES, lock=False)

    def begin(self, gateway, files):
        with self.count.get_lock():
            for at in (gateway * FILES + f for f in files):
                self.count[at] += 1
                self.active[at] += 1
            alone = all(self.active[gateway * FILES + f] == 1 for f in files)
            return alone, self.seen(gateway, files)

    def end(self, gateway, files):
        with self.count.get_lock():
            for f in files:
                self.active[gateway * FILES + f] -= 1

    def seen(self, gateway, files):
        return [self.count[gateway * FILES + f] for f in files]


class Api:
    """The HTTP face of one gateway."""

    def __init__(self, url, token):
        self.host = urllib.parse.urlsplit(url).netloc
        with open(token, encoding="ascii") as file:
            self.auth = "Bearer " + file.read().strip()
        self.link = None

    def call(self, method, path, headers=None, body=None):
        """Status (0: no answer), headers and body."""
        sent = {"Authorization": self.auth, **(headers or {})}
        if self.link is None:
            self.link = http.client.HTTPConnection(self.host, timeout=90)
        try:
            self.link.request(method, path, body, sent)
            answer = self.link.getresponse()
            return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
        except (OSError, http.client.HTTPException):
            self.link.close()
            self.link = None
            return 0, {}, b""


class Writer:
    def __init__(self, plan, number, traffic, ledger):
        self.plan, self.number, self.traffic = plan, number, traffic
        self.at = number % len(plan["gateways"])
        self.gateway = plan["gateways"][self.at]
        self.api = Api(self.gateway["url"], self.gateway["token"])
        self.files = f"/v1/files/{plan['volume']}/"
        self.random = random.Random(f"{plan['seed']}/{plan['phase']}/{number}")
        self.ledger = open(f"{ledger}/{plan['phase']}-{number}", "a", encoding="utf-8")
        self.turn = 0
        self.pending, self.since = [], 0

    def note(self, op, file, **more):
        row = {"op": op, "gateway": self.gateway["name"], "path": path_of(file), **more, "since": self.since, "until": time.time()}
        self.ledger.write(json.dumps(row) + "\n")
        self.ledger.flush()

    def content(self):
        """Bytes that no other version has."""
        self.turn += 1
        size = self.random.choice((0, 60, 900, 5000, 40000)) + self.random.randrange(100)
        head = f"{self.plan['seed']} {self.plan['phase']} {self.number} {self.turn}\n".encode()
        return head + self.random.randbytes(size)

    def run(self):
        until = time.monotonic() + self.plan["seconds"]
        for _ in range(self.plan["operations"]):
            if time.monotonic() > until:
                break
            self.since = time.time()
            self.step()
        self.finish()
        self.ledger.close()

    def finish(self):
        pass


def digest(data):
    return hashlib.sha256(data).hexdigest()


def quoted(headers):
    return headers.get("etag", "").strip('"')


class HttpWriter(Writer):
    def step(self):
        file = self.random.randrange(FILES)
        op = self.random.choices((self.put, self.delete, self.read), (75, 15, 10))[0]
        self.traffic.begin(self.at, [file])
        try:
            op(file)
        finally:
            self.traffic.end(self.at, [file])

    def read(self, file):
        status, headers, body = self.api.call("GET", self.files + path_of(file))
        if status == 200:
            self.note("read", file, etag=quoted(headers), sha256=digest(body), told="read",
                      head=body[:30].decode("latin-1"), size=len(body))
        return status, quoted(headers)

    def put(self, file):
        status, etag = self.read(file)
        if status not in (200, 404):
            return self.note("put", file, told="nothing", status=status)
        headers = {"If-Match": f'"{etag}"'} if status == 200 else {"If-None-Match": "*"}
        headers["Prefer"] = f"wait={self.plan['wait']}"
        data = self.content()
        status, answer, body = self.api.call("PUT", self.files + path_of(file), headers, data)
        more = {"sha256": digest(data), "status": status, "base": etag}
        try:
            problem = json.loads(body) if status >= 400 else {}
        except ValueError:
            problem = {}
        if status in (200, 201):
            told, more["etag"] = "saved", quoted(answer)
        elif status == 412 and "yours is kept" in problem.get("detail", ""):
            told = "kept"
        elif problem.get("staged") or status == 202:
            told = "staged"
        else:
            told = "refused" if status else "unknown"
        return self.note("put", file, told=told, **more)

    def delete(self, file):
        status, etag = self.read(file)
        if status != 200:
            return
        status, _, _ = self.api.call("DELETE", self.files + path_of(file), {"If-Match": f'"{etag}"'})
        self.note("delete", file, told="done" if status == 204 else "refused", etag=etag, status=status)


class MountWriter(Writer):
    def where(self, file):
        return f"{self.gateway['mount']}/{path_of(file)}"

    def step(self):
        file, other = self.random.sample(range(FILES), 2)
        name = self.random.choices(("write", "edit", "save", "rename", "unlink"), (30, 30, 20, 12, 8))[0]
        if name == "rename":
            # Bytes never come back to a key: a write that restores an ETag which a lost request named waits 20 minutes for that
            # request (docs/mechanisms.md section 13), and so would every barrier.
            file, other = sorted((file, other))
        files = [file, other] if name == "rename" else [file]
        alone, seen = self.traffic.begin(self.at, files)
        row = {"op": name, "file": file, "files": files, "alone": alone, "seen": seen, "sha256": None, "since": self.since, "closed": 0}
        try:
            getattr(self, name)(row, other)
        except OSError as problem:
            row["told"] = "kept" if problem.errno == errno.ESTALE else "refused"
            row["errno"] = errno.errorcode.get(problem.errno)
        finally:
            self.traffic.end(self.at, files)
            row["closed"] = time.time()
        self.judge(row)
        if len(self.pending) >= self.plan["flush_every"]:
            self.flush()

    def judge(self, row):
        if row.get("told") is None and self.gateway["sync"] == "close" and row["op"] in ("write", "edit"):
            row["told"] = "saved"
        if row.get("told") is None:
            self.pending.append(row)
        else:
            self.settle(row, row["told"])

    def settle(self, row, told):
        quiet = row["alone"] and row["seen"] == self.traffic.seen(self.at, row["files"])
        more = {k: row[k] for k in ("sha256", "errno", "to", "closed") if row.get(k)}
        self.since = row["since"]
        self.note(row["op"], row["file"], told=told, shared=not quiet, **more)

    def flush(self):
        body = json.dumps({"volume": self.plan["volume"], "timeout_s": self.plan["flush_wait"]})
        status, _, _ = self.api.call("POST", "/v1/flush", {"Content-Type": "application/json"}, body)
        for row in self.pending:
            self.settle(row, "flushed" if status == 200 else "unknown")
        self.pending = []

    def finish(self):
        self.flush()

    # What is written is read back through the descriptor before the close: these are the bytes that the close tells of.
    def write(self, row, _):
        data = self.content()
        fd = os.open(self.where(row["file"]), os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o644)
        row["sha256"] = digest(data)
        self.put_and_close(fd, data, 0)

    def put_and_close(self, fd, data, where):
        try:
            os.pwrite(fd, data, where)
        except OSError:
            try:
                os.close(fd)
            except OSError:
                pass
            raise
        os.close(fd)

    def edit(self, row, _):
        try:
            fd = os.open(self.where(row["file"]), os.O_RDWR)
        except FileNotFoundError:
            return self.write(row, _)
        data = self.content()[:600]
        try:
            before = os.pread(fd, 1 << 20, 0)
        except OSError:
            os.close(fd)
            raise
        where = self.random.randrange(len(before) + 1)
        row["sha256"] = digest(before[:where] + data + before[where + len(data) :])
        self.put_and_close(fd, data, where)

    def save(self, row, _):
        data = self.content()
        beside = f"{self.gateway['mount']}/d{row['file'] // 10}/.save-{self.plan['phase']}-{self.number}-{self.turn}"
        row["sha256"] = digest(data)
        self.put_and_close(os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644), data, 0)
        os.rename(beside, self.where(row["file"]))

    def rename(self, row, other):
        os.rename(self.where(row["file"]), self.where(other))
        row["to"] = path_of(other)

    def unlink(self, row, _):
        os.unlink(self.where(row["file"]))


# ---- faults ----
# Of the requests: how often, and for how many; `arg` as in tests/fault/server/README.md.
KINDS = (
    ("ERROR500", "PUT", 0), ("SLOWDOWN", "PUT", 0), ("RESET_BEFORE", "PUT", 0), ("RESET_AFTER", "PUT", 0),
    ("ERROR500_AFTER", "PUT", 0), ("LATE", "PUT", 1500), ("RESET_AFTER", "COPY", 0), ("ERROR500", "COPY", 0),
    ("RESET_AFTER", "DELETE", 0), ("RESET_BEFORE", "DELETE", 0), ("ERROR500_AFTER", "DELETE", 0), ("LATE", "DELETE", 900),
    ("RESET_BEFORE", "HEAD", 0), ("ERROR502", "GET", 0), ("CUT", "GET", 40), ("RESET_AFTER", "LIST", 0),
)  # fmt: skip


def make_fault(plan, rng):
    relay = rng.choice([g["relay"] for g in plan["gateways"]])
    if plan["fault_server"] and rng.random() < 0.8:
        kind, op, arg = rng.choice(KINDS)
        url = f"{plan['fault_server']}/_fault?kind={kind}&op={op}&count={rng.randint(1, 3)}&arg={arg}"
        urllib.request.urlopen(urllib.request.Request(url, method="POST"), timeout=10).close()
        return f"{kind} {op}"
    with open(relay, "w", encoding="ascii") as file:
        file.write(rng.choice(("cut", "cut", "mute")))
    time.sleep(rng.choice((0.2, 0.4, 1.0)))
    os.unlink(relay)
    return "away"


def faults(plan, stop):
    rng = random.Random(f"{plan['seed']}/{plan['phase']}/faults")
    made = {}
    while not stop.wait(rng.uniform(0.1, 2 * plan["fault_every"])):
        try:
            what = make_fault(plan, rng)
        except OSError as problem:
            what = f"not made: {problem}"
        made[what] = made.get(what, 0) + 1
    print("faults:", ", ".join(f"{v} {k}" for k, v in sorted(made.items())) or "none")


def write_for(plan, number, traffic, ledger):
    try:
        kind = HttpWriter if number < plan["writers"] // 2 else MountWriter
        kind(plan, number, traffic, ledger).run()
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        plan = json.load(file)
    traffic = Traffic(len(plan["gateways"]))
    began = time.monotonic()
    writers = [
        multiprocessing.Process(target=write_for, args=(plan, n, traffic, sys.argv[2])) for n in range(plan["writers"])
    ]
    for one in writers:
        one.start()
    stop = threading.Event()
    trouble = threading.Thread(target=faults, args=(plan, stop))
    if plan["fault_every"]:
        trouble.start()
    for one in writers:
        one.join()
    stop.set()
    if plan["fault_every"]:
        trouble.join()
    print(f"phase {plan['phase']}: {time.monotonic() - began:.1f} s")
    sys.exit(any(one.exitcode for one in writers))


if __name__ == "__main__":
    main()
