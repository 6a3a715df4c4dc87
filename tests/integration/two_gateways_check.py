"""Judges what two_gateways.py wrote down by what lies in the bucket, which it reads with a client of its own.

    two_gateways_check.py BUCKET VOLUME LEDGER-DIR [CONFLICTS.json...]

Every version that a writer was told is saved is at a file's key, in the history, or (for writers that a barrier told) a conflict that
its gateway lists; every loser that a writer was told is kept is there too; no deleted version lies at its key again.
"""
import collections
import concurrent.futures
import glob
import hashlib
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
from bucket import Bucket  # noqa: E402

SHOWN = 20


class Found:
    """Everything in the bucket that may be a version: where each sha256 lies."""

    def __init__(self, bucket, volume):
        self.where = collections.defaultdict(set)
        self.of_version = {}
        self.present = {}
        self.wrong, self.objects = [], collections.Counter()
        places = {"present": f"{volume}/", "history": f".holdfast/history/{volume}/", "conflict": f".holdfast/conflicts/{volume}/"}
        for place, prefix in places.items():
            keys = [key for key, _ in bucket.list(prefix) if not key.endswith("/")]
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                for key, got in zip(keys, pool.map(bucket.get, keys)):
                    if got is not None:
                        self.take(place, key, prefix, *got)

    def take(self, place, key, prefix, body, meta):
        sha = hashlib.sha256(body).hexdigest()
        self.objects[place] += 1
        self.where[sha].add(place)
        if meta.get("holdfast-sha256", sha) != sha or meta.get("holdfast-size", str(len(body))) != str(len(body)):
            self.wrong.append(f"{key} does not hold the bytes that its metadata name")
        version = meta.get("holdfast-version")
        if version and self.of_version.setdefault(version, sha) != sha:
            self.wrong.append(f"{key}: version {version} has other bytes elsewhere")
        if place == "present":
            self.present[key[len(prefix) :]] = (version, sha)


def rows_of(ledger):
    for name in sorted(glob.glob(f"{ledger}/*")):
        with open(name, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                row = json.loads(line)
                row["from"] = f"{os.path.basename(name)}:{number}"
                yield row


class Judge:
    def __init__(self, found, listed):
        self.found, self.listed = found, listed
        self.tally = collections.Counter()
        self.wrong = list(found.wrong)
        self.lost = self.silent = 0

    def saved(self, row):
        places = self.found.where.get(row["sha256"], set())
        kind = f"{row['op']}, {row['told']}"
        if row.get("shared"):
            self.tally[f"{kind}, beside others: {'found' if places else 'merged'}"] += 1
            return
        if row.get("etag") and self.found.of_version.get(row["etag"], row["sha256"]) != row["sha256"]:
            self.wrong.append(f"told another version's ETag: {json.dumps(row)}")
        place = next((p for p in ("present", "history", "conflict") if p in places), None)
        self.tally[f"{kind}: {place or 'LOST'}"] += 1
        if place is None:
            self.lost += 1
            self.wrong.append(f"lost: {json.dumps(row)}")
        elif place == "conflict" and (row["told"] == "saved" or row["sha256"] not in self.listed):
            self.silent += 1
            self.wrong.append(f"told saved, but only a conflict: {json.dumps(row)}")

    def row(self, row):
        if row["told"] in ("saved", "flushed", "kept") and row.get("sha256"):
            self.saved(row)
        elif row["op"] == "read":
            self.read(row)
        elif row["op"] == "delete" and row["told"] == "done":
            self.deleted(row)
        else:
            why = row.get("errno") or row.get("status") or ""
            self.tally[f"{row['op']}, {row['told']} {why}".rstrip()] += 1

    def read(self, row):
        wanted = self.found.of_version.get(row["etag"])
        self.tally["read: " + ("a version of the bucket" if wanted else "one that never got there")] += 1
        if wanted and wanted != row["sha256"]:
            self.wrong.append(f"a read got other bytes than its version has: {json.dumps(row)}")

    def deleted(self, row):
        self.tally["delete, done"] += 1
        if self.found.present.get(row["path"], (None,))[0] == row["etag"]:
            self.wrong.append(f"a deleted version is at its key: {json.dumps(row)}")


def sha_of_conflicts(bucket, volume, names):
    """The bytes of the losers that the gateways list, by the bucket's own objects."""
    listed = set()
    for name in names:
        with open(name, encoding="utf-8") as file:
            for one in json.load(file)["conflicts"]:
                got = bucket.get(f".holdfast/conflicts/{volume}/{one['id']}")
                if got is None:
                    print(f"a conflict is listed that the bucket does not have: {one}")
                else:
                    listed.add(hashlib.sha256(got[0]).hexdigest())
    return listed


def main():
    name, volume, ledger, *conflicts = sys.argv[1:]
    bucket = Bucket.from_env(name)
    found = Found(bucket, volume)
    judge = Judge(found, sha_of_conflicts(bucket, volume, conflicts))
    operations = 0
    for row in rows_of(ledger):
        operations += row["op"] != "read"
        judge.row(row)
    for kind, count in sorted(judge.tally.items()):
        print(f"  {count:6} {kind}")
    print("bucket:", ", ".join(f"{count} {place}" for place, count in sorted(found.objects.items())))
    for line in judge.wrong[:SHOWN]:
        print("WRONG", line)
    print(f"{operations} operations: {judge.lost} lost, {judge.silent} silent, {len(judge.wrong)} wrong")
    sys.exit(1 if judge.wrong or not operations else 0)


if __name__ == "__main__":
    main()
