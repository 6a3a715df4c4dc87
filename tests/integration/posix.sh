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
