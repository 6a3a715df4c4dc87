#!/usr/bin/env bash
# git (B126), SQLite in both journal modes (B122, B123), packages that are unpacked and renamed as npm does (B128), and files
# saved as sed, vim, nano and careful programs do (B176), all in one mount whose gateway and mounter are killed at random moments: nothing that was answered is lost,
# no file is half, integrity_check and fsck pass.
# timeout: 240
# long-timeout: 14400
. "$(dirname "$0")/../support/lib.sh"
lib_begin crash-tools
need_fuse
command -v git >/dev/null || skip 'no git'

if [ "${HOLDFAST_TEST_LONG:-}" = 1 ]; then ROUNDS=${ROUNDS:-500}; else ROUNDS=${ROUNDS:-5}; fi
SEED=${HOLDFAST_SEED:-$(date +%s)}
RANDOM=$((SEED % 32768))
TOOLS=$LIB_ROOT/tests/integration/crash_tools.py
MOUNT=$WORK/m
LEDGER=$WORK/ledger
echo "seed $SEED, $ROUNDS rounds"
mkdir "$MOUNT"
defer "while umount '$MOUNT' 2>/dev/null; do :; done"
: >"$LEDGER"

START=("$WORK/state" "file://$WORK/bucket" --sync-open 300ms)
gateway_start "${START[@]}"
check_status 0 "$HOLDFAST" volume create v
check_status 0 "$HOLDFAST" mount v "$MOUNT"
is_mounted() { findmnt -n -t fuse.holdfast "$MOUNT" >/dev/null; }
python3 "$TOOLS" prepare "$MOUNT" || fail_now 'cannot prepare'

for ((round = 1; round <= ROUNDS; round++)); do
    python3 "$TOOLS" write "$MOUNT" "$LEDGER" "$SEED.$round" >"$WORK/writer.log" 2>&1 &
    WRITER=$!
    defer "stop_pid $WRITER"
    sleep "1.$((RANDOM % 10))$((RANDOM % 10))"
    # Both: else the mounter lends the mount to the next gateway, and no program ends (takeover.sh).
    MOUNTER=$(pgrep -P "$GATEWAY_PID" -f holdfast-mounter)
    [ -z "$MOUNTER" ] || kill -KILL "$MOUNTER"
    gateway_kill
    wait "$WRITER" || fail "round $round: the programs: $(tail -n 3 "$WORK/writer.log")"
    gateway_start "${START[@]}"
    wait_until 30 is_mounted || fail_now "round $round: not mounted again"
    python3 "$TOOLS" check "$MOUNT" "$LEDGER" >"$WORK/check.out" 2>&1 || fail "round $round: $(head -n 5 "$WORK/check.out")"
    [ "$LIB_FAILED" = 0 ] || break
done
check_status 0 "$HOLDFAST" flush --timeout 120 v
diff <(cd "$MOUNT" && find . -type f -print0 | sort -z | xargs -0 sha256sum) \
    <(cd "$WORK/bucket/v" && find . -type f ! -name '*.hf~*' -print0 | sort -z | xargs -0 sha256sum) >"$WORK/equal" ||
    fail "bucket and mount differ: $(head -n 5 "$WORK/equal")"
# Nothing staged is left over of all these crashes (B178).
check_eq 'staged bytes' 0 "$("$HOLDFAST" status --json | jq .cache.staged_bytes)"
python3 "$TOOLS" sum "$LEDGER"
"$HOLDFAST" umount "$MOUNT" || fail 'cannot unmount'
