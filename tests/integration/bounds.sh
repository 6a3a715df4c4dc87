#!/usr/bin/env bash
# What a mount takes does not grow with the tree behind it: mounting, memory, threads and descriptors with very many files, of
# which every one is looked at. Short form: 60,000 files; --long or HOLDFAST_TEST_LONG=1: 1,000,000.
# timeout: 120
# long-timeout: 1200
. "$(dirname "$0")/../support/lib.sh"
lib_begin bounds
need_fuse

FILES=1000
FOLDERS=$([ -n "${HOLDFAST_TEST_LONG:-}" ] && echo 1000 || echo 60)
ENTRIES=$((FOLDERS * FILES + FOLDERS + 1))
FILL=$HOLDFAST_BUILD/tests/support/hf-fill-index
[ -x "$FILL" ] || fail_now "no program '$FILL': build it first"

gateway_start "$WORK/state" "file://$WORK/bucket"
check_status 0 "$HOLDFAST" volume create v
gateway_stop
check_status 0 "$FILL" "$WORK/state" v "$FOLDERS" "$FILES"
chown -R --reference="$WORK/state/index.db" "$WORK/state" 2>/dev/null
gateway_start "$WORK/state" "file://$WORK/bucket" --list-ttl 24h

resident() { awk '/VmRSS/ { print int($2 / 1024) }' "/proc/$GATEWAY_PID/status"; }
threads() { awk '/^Threads/ { print $2 }' "/proc/$GATEWAY_PID/status"; }
descriptors() { find "/proc/$GATEWAY_PID/fd" -mindepth 1 2>/dev/null | wc -l; }
mkdir "$WORK/m"
began=$(now_ms)
check_status 0 "$HOLDFAST" mount v "$WORK/m"
took=$(($(now_ms) - began))
defer "'$HOLDFAST' umount '$WORK/m' --force 2>/dev/null"
note "mounted in $took ms, $(resident) MiB resident, $(threads) threads"
[ "$took" -lt 5000 ] || fail "mounting took $took ms"
ls "$WORK/m" >/dev/null
THREADS=$(threads)
FDS=$(descriptors)

# Twice: what the second one takes more would be growth.
for turn in 1 2; do
    began=$(now_ms)
    check_eq "entries found, turn $turn" "$ENTRIES" "$(find "$WORK/m" | wc -l)"
    took=$(($(now_ms) - began))
    note "find: $((ENTRIES * 1000 / (took + 1))) entries/s, $(resident) MiB resident"
done
began=$(now_ms)
check_eq 'sizes of all' "$((FOLDERS * FILES))" "$(find "$WORK/m" -size 4096c | wc -l)"
took=$(($(now_ms) - began))
note "with attributes: $((ENTRIES * 1000 / (took + 1))) entries/s, $(resident) MiB resident"
LIMIT=250
[ "$(resident)" -lt "$LIMIT" ] || fail "$(resident) MiB resident, $LIMIT allowed"
[ "$(threads)" -le $((THREADS + 24)) ] || fail "$(threads) threads, $THREADS before"

# Descriptors: files that were written are not kept open.
mkdir "$WORK/m/w"
for i in $(seq 300); do echo "$i" >"$WORK/m/w/$i"; done
cat "$WORK"/m/w/* >/dev/null
check_status 0 "$HOLDFAST" flush --wait v
few() { [ "$(descriptors)" -lt $((FDS + 150)) ]; }
wait_until 20 few || fail "$(descriptors) descriptors, $FDS before"
note "$(threads) threads, $(descriptors) descriptors, $(resident) MiB resident after 300 written files"
check_status 0 "$HOLDFAST" umount "$WORK/m"
gateway_stop
