#!/usr/bin/env bash
# The public POSIX suite pjdfstest on a mount: passed and failed per folder. HOLDFAST_PJDFSTEST=DIR names its built sources
# (autoreconf -ifs && ./configure && make there); the suite is not ours and is never part of this repository. What may fail
# is listed, with the reason, in tests/cases/pjdfstest.tsv and docs/posix.md.
#   HOLDFAST_PJDFSTEST_FOLDERS='open rename'  only these    HOLDFAST_PJDFSTEST_AT=DIR  there, rather than on a mount
#   HOLDFAST_PJDFSTEST_LOG=FILE  what failed, line by line
# timeout: 1800
. "$(dirname "$0")/../support/lib.sh"
lib_begin pjdfstest
SUITE=${HOLDFAST_PJDFSTEST:-}
[ -n "$SUITE" ] || skip "the suite is not here: HOLDFAST_PJDFSTEST=DIR (docs/posix.md says how to get it)"
[ -x "$SUITE/pjdfstest" ] || fail_now "'$SUITE/pjdfstest' is not built: autoreconf -ifs && ./configure && make"
need_fuse
EXCEPTIONS=$LIB_ROOT/tests/cases/pjdfstest.tsv

M=${HOLDFAST_PJDFSTEST_AT:-}
if [ -z "$M" ]; then
    gateway_start "$WORK/state" "file://$WORK/bucket"
    check_status 0 "$HOLDFAST" volume create v
    M=$WORK/m
    mkdir "$M"
    check_status 0 "$HOLDFAST" mount v "$M"
    defer "'$HOLDFAST' umount '$M' --force 2>/dev/null"
fi
umask 022

# One file of checks, in a folder of its own. Its output is TAP.
run_one() { # FILE
    local at folder
    folder=$(basename "$(dirname "$1")")
    at=$M/run-$folder-$(basename "$1" .t)
    mkdir "$at" && chmod 755 "$at" || return 1
    (cd "$at" && timeout -k 5 600 sh "$1" 2>&1 </dev/null) >"$WORK/tap/$(basename "$(dirname "$1")").$(basename "$1" .t)"
    rm -rf "$at" || echo "cannot remove $at" >&2
}
export -f run_one
export WORK M
mkdir "$WORK/tap"
folders=${HOLDFAST_PJDFSTEST_FOLDERS:-$(find "$SUITE/tests" -mindepth 1 -maxdepth 1 -type d -printf '%f\n' | sort)}
for folder in $folders; do
    find "$SUITE/tests/$folder" -name '*.t' | sort
done | xargs -P "${HOLDFAST_PJDFSTEST_JOBS:-4}" -I{} bash -c 'run_one {}'

python3 - "$WORK/tap" "$EXCEPTIONS" "${HOLDFAST_PJDFSTEST_LOG:-$WORK/failed}" <<'PY' || fail 'checks failed that no exception covers'
import fnmatch, os, re, sys
from collections import defaultdict
taps, exceptions, log = sys.argv[1:]
allowed = []
if os.path.exists(exceptions):
    for line in open(exceptions):
        line = line.rstrip("\n")
        if line and line[0] != "#":
            where, text, reason = line.split("\t")
            allowed.append([where, re.compile(text), reason, 0])
tally = defaultdict(lambda: [0, 0, 0])
bad = 0
with open(log, "w") as out:
    for name in sorted(os.listdir(taps)):
        folder, test = name.split(".")
        seen = planned = 0
        row = tally[folder]
        lines = open(os.path.join(taps, name), errors="replace").read().split("\n")
        failures = []
        for line in lines:
            if re.match(r"1\.\.\d+", line):
                planned = int(line[3:])
            elif re.match(r"ok\b", line) or re.match(r"not ok .*# TODO", line):
                seen += 1
                row[0] += 1
            elif re.match(r"not ok\b", line):
                seen += 1
                failures.append(line)
        if seen != planned:
            failures += ["%d checks of %d never came" % (planned - seen, planned)] * max(planned - seen, 1)
        for line in failures:
            known = [a for a in allowed if fnmatch.fnmatch(folder + "/" + test, a[0]) and a[1].search(line)]
            if known:
                row[1] += 1
                known[0][3] += 1
            else:
                row[2] += 1
            out.write("%s%s/%s %s\n" % ("allowed " if known else "", folder, test, line))
print("%-16s %7s %8s %7s" % ("folder", "passed", "allowed", "failed"))
total = [0, 0, 0]
for folder, row in sorted(tally.items()):
    print("%-16s %7d %8d %7d" % (folder, *row))
    total = [a + b for a, b in zip(total, row)]
print("%-16s %7d %8d %7d   %.2f %% of %d" % ("all", *total, 100.0 * total[0] / max(sum(total), 1), sum(total)))
for where, text, reason, count in allowed:
    print("allowed %d: %s %s (%s)" % (count, where, text.pattern, reason))
sys.exit(1 if total[2] or not total[0] else 0)
PY
