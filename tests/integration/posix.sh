#!/usr/bin/env bash
# A mount answers every operation of posix.py as the file system beside it does (docs/posix.md).
# timeout: 180
. "$(dirname "$0")/../support/lib.sh"
lib_begin posix
need_fuse

gateway_start "$WORK/state" "file://$WORK/bucket"
check_status 0 "$HOLDFAST" volume create v
mkdir "$WORK/m" "$WORK/beside"
check_status 0 "$HOLDFAST" mount v "$WORK/m"
defer "'$HOLDFAST' umount '$WORK/m' --force 2>/dev/null"

for at in beside m; do
    timeout 120 python3 "$LIB_ROOT/tests/integration/posix.py" "$WORK/$at" "$@" >"$WORK/$at.seen" 2>"$WORK/$at.log" </dev/null ||
        fail "posix.py in '$at' ended with $?: $(tail -n 3 "$WORK/$at.log")"
done
[ "$(wc -l <"$WORK/beside.seen")" -gt 3 ] || fail 'posix.py saw nothing'
diff "$WORK/beside.seen" "$WORK/m.seen" >"$WORK/differences" ||
    fail "the mount ('>') answers otherwise than the disk ('<'): $(grep -c '^>' "$WORK/differences") lines: $(head -n 60 "$WORK/differences")"

# ---- figures: the quota is the size, and what was written is used ----
[ $# = 0 ] || exit 0
check_status 0 "$HOLDFAST" volume set v --quota $((64 << 20))
check_status 0 dd if=/dev/zero of="$WORK/m/f" bs=1M count=16 conv=fsync status=none
check_status 0 df --output=size,used,avail -B1M "$WORK/m"
check_eq 'size, used and free under a quota of 64 MiB' '64 16 48' "$(tail -n 1 "$WORK/out" | xargs)"
