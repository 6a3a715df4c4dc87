#!/usr/bin/env bash
# Unmounting, the end of a run and the end of the gateway wait for the bucket, say what is left, and lose nothing of it: not
# when they give up, not when they are forced, and not when they are killed meanwhile.
# timeout: 180
. "$(dirname "$0")/../support/lib.sh"
lib_begin unmount
need_fuse

relay_start
SERVE=("$WORK/state" "$STORE_URL")
gateway_start "${SERVE[@]}" --stop-timeout 3s
check_status 0 "$HOLDFAST" volume create v
mkdir "$WORK/m"
# A gateway that ends leaves the mountpoint guarded (INV-11).
defer "while umount '$WORK/m' 2>/dev/null; do :; done"
check_status 0 "$HOLDFAST" mount v "$WORK/m"
is_mounted() { findmnt -n -t fuse.holdfast "$WORK/m" >/dev/null; }
bucket() { "$LIB_ROOT/tests/support/fault-server.sh" control "$WORK/fault" "_raw?key=$1" 2>/dev/null; }
in_bucket() { [ "$(bucket "v/$1")" = "$2" ]; }

# ---- nothing left: at once, and "unmounted" is said when it is so (B147) ----
echo one >"$WORK/m/f"
check_status 0 "$HOLDFAST" umount "$WORK/m" --json
check_eq 'the document' 'true 0 0 0' "$(jq -r '"\(.unmounted) \(.pending) \(.unsynced_files) \(.conflicts)"' "$WORK/out")"
if is_mounted; then fail 'said that it unmounted'; fi
in_bucket f one || fail "unmounted, and the bucket has '$(bucket v/f)'"

# ---- the store is away: it waits, says how much is left, and leaves the mount as it was ----
check_status 0 "$HOLDFAST" mount v "$WORK/m"
store_away cut
head -c 3000000 /dev/zero >"$WORK/m/large"
echo two >"$WORK/m/f"
begin=$(now_ms)
check_status 7 "$HOLDFAST" umount "$WORK/m" --timeout 3
took=$(($(now_ms) - begin))
[ "$took" -ge 2500 ] || fail "gave up after $took ms"
check_contains 'progress' 'waiting for v: 2 files (2.9M)' "$WORK/err"
check_contains 'what to do' '--force' "$WORK/err"
is_mounted || fail 'unmounted although not synced'
check_eq 'still served' two "$(cat "$WORK/m/f")"
check_status 7 "$HOLDFAST" umount "$WORK/m" --timeout 1 --json
check_eq 'the document' 'false 2' "$(jq -r '"\(.unmounted) \(.unsynced_files)"' "$WORK/out")"

# ---- killed while it waits: nothing changes ----
"$HOLDFAST" umount "$WORK/m" --timeout 60 2>/dev/null &
WAITER=$!
sleep 1
kill -KILL "$WAITER"
wait "$WAITER" 2>/dev/null
is_mounted || fail 'a killed umount took the mount away'
check_eq 'still served' two "$(cat "$WORK/m/f")"

# ---- the store comes back while it waits ----
("$HOLDFAST" umount "$WORK/m" --timeout 60 >"$WORK/later.out" 2>&1; echo $? >"$WORK/later") &
WAITER=$!
sleep 1
store_back
wait "$WAITER"
check_eq 'umount when the store is back' 0 "$(cat "$WORK/later")"
in_bucket f two || fail "unmounted, and the bucket has '$(bucket v/f)'"
check_eq 'the large one' 3000000 "$(bucket v/large | wc -c)"

# ---- force: gone from the tree at once, kept here, and says so ----
check_status 0 "$HOLDFAST" mount v "$WORK/m"
store_away cut
echo three >"$WORK/m/f"
check_status 7 "$HOLDFAST" umount "$WORK/m" --force --timeout 1
check_contains 'what is kept' 'stay here' "$WORK/err"
if is_mounted; then fail 'not unmounted by force'; fi
check_eq 'kept' three "$("$HOLDFAST" cat v:/f)"
check_contains 'status' 'unsynced' <("$HOLDFAST" status)

# ---- SIGTERM: within its time limit although the mount is in use (B166, B167), and the next start goes on ----
check_status 0 "$HOLDFAST" mount v "$WORK/m"
echo four >"$WORK/m/g"
exec 7>"$WORK/m/open"
echo five >&7
begin=$(now_ms)
gateway_stop
took=$(($(now_ms) - begin))
[ "$took" -lt 12000 ] || fail "the gateway took $took ms to end"
exec 7>&-
check_contains 'what the log says' 'not in the bucket yet' "$WORK/gateway.log"
store_back
gateway_start "${SERVE[@]}" --stop-timeout 20s
wait_until 30 in_bucket f three || fail "after the start the bucket has '$(bucket v/f)'"
wait_until 30 in_bucket g four || fail "after the start the bucket has '$(bucket v/g)'"
wait_until 30 in_bucket open five || fail "what was open at the end: '$(bucket v/open)'"

# ---- SIGTERM with the store there: all is in the bucket when it has ended (B168) ----
is_mounted || fail 'not mounted again'
for i in $(seq 20); do echo "$i" >"$WORK/m/n$i"; done
gateway_stop
for i in $(seq 20); do in_bucket "n$i" "$i" || fail "n$i is not in the bucket after the end"; done

# ---- the end of a run ----
if command -v bwrap >/dev/null; then
    gateway_start "${SERVE[@]}"
    store_away cut
    check_status 7 "$HOLDFAST" run -v v --sync-timeout 3 -- sh -c 'echo run >/mnt/data/1/run'
    check_contains 'progress' 'waiting for v' "$WORK/err"
    store_back
    wait_until 60 in_bucket run run || fail "the run's file: '$(bucket v/run)'"
fi
