#!/usr/bin/env bash
# mv of a large folder answers at once, however many files lie below; the bucket ends with exactly the new keys, also when the
# gateway is killed before the items of what lies below are made, while they are, and while the objects move, and files are
# written, removed and made anew at the old names meanwhile (S30, B069, B128). What is wanted stands in a list that only the test writes.
# HOLDFAST_TEST_LONG=1: 20,000 files.
# timeout: 120
# long-timeout: 900
. "$(dirname "$0")/../support/lib.sh"
lib_begin move-folder
need_fuse
COUNT=600
PAUSES=(0.05 1.02 1.1 1.25)
if [ "${HOLDFAST_TEST_LONG:-0}" = 1 ]; then
    COUNT=20000
    PAUSES=(0.05 1.02 1.1 1.3 1.7 2.5 4)
fi

mkdir "$WORK/bucket" "$WORK/m"
M=$WORK/m
gateway_start "$WORK/state" "file://$WORK/bucket"
check_status 0 "$HOLDFAST" volume create v
check_status 0 "$HOLDFAST" mount v "$M"
defer "while umount '$M' 2>/dev/null; do :; done"
# shellcheck disable=SC2317 # called by name
is_mounted() { mountpoint -q "$M" && ls "$M"; }

cat >"$WORK/tree.py" <<'PYTHON'
import json, os, sys, time

command, listed, top = sys.argv[1:4]
want = json.load(open(listed)) if os.path.exists(listed) else {}


def path(name):
    return os.path.join(top, name)


def write(name, text):
    os.makedirs(os.path.dirname(path(name)), exist_ok=True)
    with open(path(name), "w") as f:
        f.write(text)
    want[name] = text


def rename(source, target):
    began = time.monotonic()
    os.rename(path(source), path(target))
    took = (time.monotonic() - began) * 1000
    for name in [name for name in want if name.startswith(source + "/")]:
        want[target + name[len(source):]] = want.pop(name)
    return took


def tree():
    seen = {}
    for folder, _, files in os.walk(top):
        for name in files:
            full = os.path.join(folder, name)
            if os.path.getsize(full) > 0:  # else a folder's marker
                with open(full) as f:
                    seen[os.path.relpath(full, top)] = f.read()
    return seen


if command == "make":
    for i in range(int(sys.argv[4])):
        write("big/s%d/f%06d" % (i % 5, i), "%d\n" % i)
    for name in "(x)", "!y", " z", "-w", "s0.txt", "s0-a/s0", "+":  # in order before a slash
        write("big/" + name, name)
elif command == "rename":
    print("%.1f" % rename(sys.argv[4], sys.argv[5]))
elif command == "round":
    number = int(sys.argv[4])
    old, new = "n%d" % number, "n%d" % (number + 1)
    rename(old, new)
    rename(new + "/s4", new + "/s3/deeper")
    rename(new + "/s3/deeper", new + "/s4")
    write(new + "/s0/f000000", "written in round %d\n" % number)
    gone = new + "/s1/f%06d" % (1 + 5 * number)
    os.unlink(path(gone))
    del want[gone]
    write(old + "/s2/f000002", "another one of round %d\n" % number)
elif command == "check":
    seen = tree()
    wrong = sorted(name for name in set(seen) | set(want) if seen.get(name) != want.get(name))
    assert not wrong, (len(seen), len(want), wrong[:5])
with open(listed, "w") as f:
    json.dump(want, f)
PYTHON
tree() { # COMMAND ARG...: in the mount
    local command=$1
    shift
    python3 "$WORK/tree.py" "$command" "$WORK/want.json" "$M" "$@"
}
check_bucket() {
    check_status 0 "$HOLDFAST" flush v --wait
    check_status 0 python3 "$WORK/tree.py" check "$WORK/want.json" "$WORK/bucket/v"
}

check_status 0 tree make "$COUNT"
check_bucket

# ---- at once ----
# The quickest of five: what others do on the machine is not the rename's. One that makes an item for each file takes 85 us for it.
TOOK=1000000
for turn in 1 2 3 4 5; do
    if [ $((turn % 2)) = 1 ]; then ONE=$(tree rename big n0); else ONE=$(tree rename n0 big); fi
    note "rename of $COUNT files: $ONE ms"
    [ "${ONE%.*}" -ge "$TOOK" ] || TOOK=${ONE%.*}
done
[ "$TOOK" -lt 20 ] || fail "the quickest rename of $COUNT files took $TOOK ms"
check_bucket

# ---- told: while it rests, and nothing below has an item yet ----
mkdir "$WORK/below"
check_status 0 "$HOLDFAST" mount v/n0/s1 "$WORK/below"
defer "while umount '$WORK/below' 2>/dev/null; do :; done"
[ ! -s "$WORK/below/.holdfast/unsynced" ] || fail 'something is unsynced after a flush'
check_status 0 tree rename n0 big
check_eq 'what the mount of a folder below tells' '["."]' "$(jq -s -c 'map(.path)' "$WORK/below/.holdfast/unsynced")"
check_status 0 jq -s -e 'map(.path) | index("big") != null' "$M/.holdfast/unsynced"
check_status 0 tree rename big n0
check_status 0 "$HOLDFAST" flush v --wait
[ ! -s "$WORK/below/.holdfast/unsynced" ] || fail 'something is unsynced after a flush'
check_status 0 "$HOLDFAST" umount "$WORK/below"

# ---- killed ----
round=0
for pause in "${PAUSES[@]}"; do
    check_status 0 tree round "$round"
    sleep "$pause"
    gateway_kill
    gateway_start "$WORK/state" "file://$WORK/bucket"
    wait_until 30 is_mounted || fail_now "round $round: not mounted again"
    check_status 0 tree check
    round=$((round + 1))
done
check_bucket
check_eq 'conflicts' 0 "$("$HOLDFAST" status --json | jq .conflicts)"
check_status 0 "$HOLDFAST" umount "$M"
lib_end
