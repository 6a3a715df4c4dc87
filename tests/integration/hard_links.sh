#!/usr/bin/env bash
# Hard links: one file under several names in the mount, an object with the same bytes at each of them in the bucket; after a
# restart, after kill -9 of the gateway, and after random operations that a disk beside it answers alike (docs/adr/0008, B184).
# timeout: 180
# long-timeout: 3600
. "$(dirname "$0")/../support/lib.sh"
lib_begin hard-links
need_fuse
command -v python3 >/dev/null || skip 'no python3'

if [ "${HOLDFAST_TEST_LONG:-}" = 1 ]; then ROUNDS=${ROUNDS:-100} COUNT=${COUNT:-3000}; else ROUNDS=${ROUNDS:-3} COUNT=${COUNT:-600}; fi
SEED=${HOLDFAST_SEED:-$(date +%s)}
LINKS=$LIB_ROOT/tests/integration/hard_links.py
M=$WORK/m
B=$WORK/bucket/v
echo "seed $SEED, $ROUNDS rounds of $COUNT operations"
umask 022
mkdir "$M" "$WORK/ref"
defer "while umount '$M' 2>/dev/null; do :; done"
gateway_start "$WORK/state" "file://$WORK/bucket"
check_status 0 "$HOLDFAST" volume create v
check_status 0 "$HOLDFAST" mount v "$M"
is_mounted() { findmnt -n -t fuse.holdfast "$M" >/dev/null; }
names() { stat -c '%h' "$@" | sort -u; }
inodes() { stat -c '%i' "$@" | sort -u | wc -l; }
again() { # the gateway dies as kill -9 ends it, and comes back
    gateway_kill
    gateway_start "$WORK/state" "file://$WORK/bucket"
    wait_until 30 is_mounted || fail_now 'not mounted again'
}
flushed() { check_status 0 "$HOLDFAST" flush --timeout 60 v; }

# ---- what a person sees ----
head -c 300000 /dev/urandom >"$WORK/data"
mkdir "$M/d"
cp "$WORK/data" "$M/one"
check_status 0 ln "$M/one" "$M/d/two"
check_eq 'names of one file' 2 "$(names "$M/one" "$M/d/two")"
check_eq 'one inode' 1 "$(inodes "$M/one" "$M/d/two")"
flushed
check_same 'the object at the first name' "$WORK/data" "$B/one"
check_same 'the object at the second name' "$WORK/data" "$B/d/two"
echo more >>"$M/d/two"
echo more >>"$WORK/data"
check_same 'written under one name, read under the other' "$WORK/data" "$M/one"
again
check_eq 'names after the crash' 2 "$(names "$M/one" "$M/d/two")"
check_same 'what was closed before the crash' "$WORK/data" "$M/one"
flushed
check_same 'the first object follows' "$WORK/data" "$B/one"
check_same 'the second object follows' "$WORK/data" "$B/d/two"
rm "$M/one"
again
check_same 'the other name stays' "$WORK/data" "$M/d/two"
check_eq 'one name left' 1 "$(names "$M/d/two")"
flushed
[ ! -e "$B/one" ] || fail 'the object of a removed name is still there'
check_same 'the other object stays' "$WORK/data" "$B/d/two"
check_status 1 ln "$M/d" "$M/e"
mkdir "$WORK/outside"
check_status 1 ln "$M/d/two" "$WORK/outside/x"
check_eq 'HTTP shows a name as a file' "$(sha256sum <"$WORK/data")" \
    "$(ln "$M/d/two" "$M/h" && api GET /v1/files/v/h | sha256sum)"
check_status 0 rsync -aH "$M/" "$WORK/copy/"
check_eq 'rsync -H finds one file' 1 "$(inodes "$WORK/copy/h" "$WORK/copy/d/two")"
rm -r "$M/d" "$M/h"

# ---- as a disk does it ----
for ((round = 1; round <= ROUNDS; round++)); do
    timeout 600 python3 "$LINKS" run "$M" "$WORK/ref" "$((SEED + round))" "$COUNT" >"$WORK/run.out" 2>&1 ||
        fail_now "round $round: $(head -n 5 "$WORK/run.out")"
    cat "$WORK/run.out"
    again
    python3 "$LINKS" same "$M" "$WORK/ref" >"$WORK/same.out" 2>&1 || fail "round $round, after the crash: $(head -n 5 "$WORK/same.out")"
    flushed
    python3 "$LINKS" same "$M" "$WORK/ref" >"$WORK/same.out" 2>&1 || fail "round $round, synced: $(head -n 5 "$WORK/same.out")"
    python3 "$LINKS" bucket "$WORK/ref" "$B" >"$WORK/bucket.out" 2>&1 || fail "round $round: $(head -n 5 "$WORK/bucket.out")"
    [ "$LIB_FAILED" = 0 ] || break
done
check_eq 'no conflicts' 0 "$("$HOLDFAST" status --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["conflicts"])')"

# ---- the same while the gateway dies under it and is followed by another ----
# A save that was cut off before its close may be kept aside as torn: that is no fault of the tree.
status_field() { # EXPRESSION over the status document
    "$HOLDFAST" status --json 2>/dev/null | python3 -c "import json, sys; s = json.load(sys.stdin); print($1)"
}
back() { [ "$(status_field "s['pid']" 2>/dev/null || echo "$1")" != "$1" ]; }
stop_successor() {
    local pid
    pid=$(status_field "s['pid']") && kill "$pid" && wait_until 30 test ! -d "/proc/$pid"
}
export HOLDFAST_TAKEOVER=respawn
again
defer stop_successor
if [ "$LIB_FAILED" = 0 ] && [ "$(status_field "s['takeover']['possible']")" = True ]; then
    timeout 600 python3 "$LINKS" run "$M" "$WORK/ref" "$SEED" $((COUNT * 5)) >"$WORK/run.out" 2>&1 &
    RUNNER=$!
    defer "stop_pid $RUNNER"
    while sleep "0.$((2 + RANDOM % 7))" && kill -0 "$RUNNER" 2>/dev/null; do
        pid=$(status_field "s['pid']") || break
        kill -KILL "$pid"
        wait_until 30 back "$pid" || fail_now 'no other gateway came'
    done
    wait "$RUNNER" || fail "with gateways that die: $(head -n 5 "$WORK/run.out")"
    cat "$WORK/run.out"
    flushed
    python3 "$LINKS" same "$M" "$WORK/ref" >"$WORK/same.out" 2>&1 || fail "after the kills: $(head -n 5 "$WORK/same.out")"
    python3 "$LINKS" bucket "$WORK/ref" "$B" >"$WORK/bucket.out" 2>&1 || fail "after the kills: $(head -n 5 "$WORK/bucket.out")"
    status_field "'%d kills, sent again: %s' % (s['takeover']['count'], s['takeover']['resent'])"
fi
"$HOLDFAST" umount "$M" || fail 'cannot unmount'
gateway_stop
