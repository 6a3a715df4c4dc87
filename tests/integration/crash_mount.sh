#!/usr/bin/env bash
# Programs write files of 0 B to 40 MB through a mount, the gateway is killed at a random moment and started again: every file
# whose close was answered is whole, none is half, and behind the flush barrier the bucket equals the mount.
# timeout: 240
# long-timeout: 7200
. "$(dirname "$0")/../support/lib.sh"
lib_begin crash-mount
need_fuse
command -v python3 >/dev/null || skip 'no python3'

if [ "${HOLDFAST_TEST_LONG:-}" = 1 ]; then ROUNDS=${ROUNDS:-300}; else ROUNDS=${ROUNDS:-8}; fi
SEED=${HOLDFAST_SEED:-$(date +%s)}
RANDOM=$((SEED % 32768))
FILES=$LIB_ROOT/tests/integration/crash_files.py
MOUNT=$WORK/m
LEDGER=$WORK/ledger
echo "seed $SEED, $ROUNDS rounds"
mkdir "$MOUNT"
# A gateway that ends leaves the mountpoint guarded (INV-11), and a test that is cut off does not unmount it.
defer "while umount '$MOUNT' 2>/dev/null; do :; done"
: >"$LEDGER"

gateway_start "$WORK/state" "file://$WORK/bucket"
check_status 0 "$HOLDFAST" volume create v
check_status 0 "$HOLDFAST" mount v "$MOUNT"
is_mounted() { findmnt -n -t fuse.holdfast "$MOUNT" >/dev/null; }

for ((round = 1; round <= ROUNDS; round++)); do
    python3 "$FILES" write "$MOUNT" "$LEDGER" "$SEED.$round" >"$WORK/writer.log" 2>&1 &
    WRITER=$!
    defer "stop_pid $WRITER"
    sleep "$((RANDOM % 2)).$((RANDOM % 10))$((RANDOM % 10))"
    gateway_kill
    wait "$WRITER" || fail "round $round: the writer: $(tail -n 3 "$WORK/writer.log")"
    gateway_start "$WORK/state" "file://$WORK/bucket"
    wait_until 30 is_mounted || fail_now "round $round: not mounted again"
    python3 "$FILES" check "$MOUNT" "$LEDGER" >"$WORK/check.out" 2>&1 || fail "round $round: $(head -n 5 "$WORK/check.out")"
    check_status 0 "$HOLDFAST" flush --timeout 120 v
    python3 "$FILES" equal "$MOUNT" "$WORK/bucket/v" >"$WORK/equal.out" 2>&1 ||
        fail "round $round: bucket and mount differ: $(head -n 5 "$WORK/equal.out")"
    [ "$LIB_FAILED" = 0 ] || break
done
python3 "$FILES" sum "$LEDGER"
echo "$((round - 1)) rounds"
"$HOLDFAST" umount "$MOUNT" || fail 'cannot unmount'
gateway_stop
