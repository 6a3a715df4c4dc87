#!/usr/bin/env python3
"""audit_check.py chain FILE... - holds a chain of records against itself, knowing only docs/format/audit.md.
audit_check.py run RUN EXPECTED FILE... - the records of one run are exactly those of EXPECTED (verb TAB path lines), for each path
in that order: what a close makes comes a moment after the close.

FILE: segments in their order, plain or zstd (by the zstd program).
"""
import hashlib
import json
import subprocess
import sys


def lines(names):
    for name in names:
        if name.endswith(".zst"):
            data = subprocess.run(["zstd", "-dcq", name], check=True, stdout=subprocess.PIPE).stdout
        else:
            with open(name, "rb") as f:
                data = f.read()
        for line in data.split(b"\n")[:-1]:
            yield name, line


def chain(names):
    last, count = "0" * 64, 0
    for name, line in lines(names):
        count += 1
        record = json.loads(line)
        body, mark, tail = line.rpartition(b',"hash":"')
        if not mark or hashlib.sha256(body).hexdigest() + '"}' != tail.decode():
            sys.exit(f"{name}: record {count}: the hash is not that of its bytes")
        if record["seq"] != count or record["prev"] != last:
            sys.exit(f"{name}: record {record['seq']} does not follow number {count - 1}")
        last = record["hash"]
    print(count)


def run(run_id, expected, names):
    with open(expected, encoding="utf-8") as f:
        wanted = [tuple(line.rstrip("\n").split("\t")) for line in f]
    seen = []
    for _, line in lines(names):
        record = json.loads(line)
        if record.get("run") == run_id:
            seen.append((record["verb"], record.get("path", "")))
    wanted.sort(key=lambda done: done[1])
    seen.sort(key=lambda done: done[1])
    for i in range(max(len(wanted), len(seen))):
        a = wanted[i] if i < len(wanted) else None
        b = seen[i] if i < len(seen) else None
        if a != b:
            sys.exit(f"operation {i + 1}: done was {a}, recorded {b}")
    print(len(seen))


if sys.argv[1] == "chain":
    chain(sys.argv[2:])
else:
    run(sys.argv[2], sys.argv[3], sys.argv[4:])
