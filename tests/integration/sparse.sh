#!/usr/bin/env bash
# Holes, fallocate(2), SEEK_DATA and copy_file_range(2) do in a mount what they do on the disk; a sparse file keeps its bytes in
# the bucket and its holes here; a copy of a file that is not here yet brings it.
# timeout: 120
. "$(dirname "$0")/../support/lib.sh"
lib_begin sparse
need_fuse

gateway_start "$WORK/state" "file://$WORK/bucket"
check_status 0 "$HOLDFAST" volume create v
mkdir "$WORK/m" "$WORK/disk"
M=$WORK/m
check_status 0 "$HOLDFAST" mount v "$M"
defer "'$HOLDFAST' umount '$M' --force 2>/dev/null"
here=$(dirname "$0")
python3 "$here/sparse.py" "$WORK/disk" >"$WORK/wanted" || fail_now 'the script fails on the disk'
python3 "$here/sparse.py" "$M" >"$WORK/seen" || fail 'the script fails in the mount'
diff -u "$WORK/wanted" "$WORK/seen" >&2 || fail 'the mount does otherwise than the disk'
check_same 'bytes after all of it' "$WORK/disk/sparse.to" "$M/sparse.to"

# ---- through the bucket ----
truncate -s 300M "$WORK/disk/big"
printf 'in the middle' | dd of="$WORK/disk/big" bs=1 seek=150000000 conv=notrunc status=none
printf 'the end' | dd of="$WORK/disk/big" bs=1 seek=314572793 conv=notrunc status=none
check_status 0 cp --sparse=always "$WORK/disk/big" "$M/big"
check_status 0 "$HOLDFAST" flush v
check_same 'the object' "$WORK/disk/big" "$WORK/bucket/v/big"
used=$(du -sm "$WORK/state/cache" | cut -f1)
[ "$used" -lt 50 ] || fail "a file of holes takes $used MiB in the cache"
head -c 20000000 /dev/urandom >"$M/full"
check_status 0 "$HOLDFAST" flush v
check_status 0 "$HOLDFAST" umount "$M"
gateway_stop

# ---- another gateway has nothing of it: a copy brings what it needs ----
gateway_start "$WORK/state2" "file://$WORK/bucket"
"$HOLDFAST" volume list 2>/dev/null | grep -qw v || check_status 0 "$HOLDFAST" volume create v
check_status 0 "$HOLDFAST" mount v "$M"
defer "'$HOLDFAST' umount '$M' --force 2>/dev/null"
cat >"$WORK/copy.py" <<'PY'
import os, sys
src, dst = os.open(sys.argv[1], os.O_RDONLY), os.open(sys.argv[2], os.O_RDWR | os.O_CREAT, 0o644)
done = 0
while n := os.copy_file_range(src, dst, 50000000, done, done):
    done += n
print(done)
PY
check_eq 'copied' 20000000 "$(python3 "$WORK/copy.py" "$M/full" "$M/copy")"
check_same 'a copy of what was not here' "$WORK/bucket/v/full" "$M/copy"
check_status 0 "$HOLDFAST" flush v
check_same 'its object' "$WORK/bucket/v/full" "$WORK/bucket/v/copy"
