#!/usr/bin/env bash
# An object beyond what one PUT and one copy can carry: up in parts, its size and bytes read by a client of others, down
# through a second gateway whole and in ranges, copied. Short form: 96 MiB with the limits lowered to 32 MiB; --long or
# HOLDFAST_TEST_LONG=1: 12 GiB with the real limits of 5 GiB.
# timeout: 300
# long-timeout: 5400
. "$(dirname "$0")/../support/lib.sh"
lib_begin huge
need_fuse

if [ -n "${HOLDFAST_TEST_LONG:-}" ]; then
    unset HOLDFAST_TEST_RGW # its own, larger
    SIZE=$((12 << 30))
    export RGW_SIZE_GB=40
    LIMITS=
else
    SIZE=$((96 << 20))
    LIMITS="&max-put=32M&max-copy=32M"
fi
rgw_start
# The object is nearly all zeros: the server's disk need not hold them.
pool=default.rgw.buckets.data
rgw_bucket huge
for setting in 'compression_mode force' 'compression_algorithm zstd'; do
    # shellcheck disable=SC2086
    "$LIB_ROOT/tests/support/rgw.sh" ceph "$HOLDFAST_TEST_RGW" osd pool set "$pool" $setting >>"$WORK/ceph.log" 2>&1 || true
done
STORE=$(rgw_store_url huge)$LIMITS

s3api() { "${AWS[@]}" s3api --output text "$@"; }
took() { # WHAT MS: says it with the rate
    note "$1: $(awk -v ms="$2" -v size="$SIZE" 'BEGIN { printf "%.1f s, %.0f MB/s", ms / 1000, size / 1e3 / ms }')"
}

# ---- up ----
gateway_start "$WORK/one" "$STORE"
check_status 0 "$HOLDFAST" volume create v
mkdir "$WORK/mnt"
check_status 0 "$HOLDFAST" mount v "$WORK/mnt"
python3 - "$WORK/mnt/huge.bin" "$WORK/plan" "$SIZE" <<'PY' || fail_now 'the file cannot be written'
import hashlib, os, random, sys
path, plan, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
random.seed(5)
# Marks at both ends, around each 5 GiB (or a third), at odd places and across boundaries of parts.
third = 5 << 30 if size > 6 << 30 else size // 3
places = [0, size - 4096, third - 100, third, 2 * third - 4097, (16 << 20) - 7, (64 << 20) + 13]
places += [random.randrange(0, size - 8192) for _ in range(25 if size > 6 << 30 else 3)]
with open(path, "wb") as f, open(plan, "w") as p:
    for at in sorted(set(places)):
        mark = random.randbytes(4096)
        f.seek(at)
        f.write(mark)
    f.truncate(size)
with open(path, "rb") as f, open(plan, "w") as p:
    for at in sorted(set(places)):
        f.seek(at)
        print(at, hashlib.sha256(f.read(4096)).hexdigest(), file=p)
PY
began=$(now_ms)
check_status 0 "$HOLDFAST" flush v --wait --timeout 5000
took 'up, in parts' $(($(now_ms) - began))
note "gateway's memory at its highest: $(awk '/VmHWM/ { print int($2 / 1024) " MiB" }' "/proc/$GATEWAY_PID/status")"

# ---- what a client of others sees ----
check_eq 'size in the bucket' "$SIZE" "$(s3api head-object --bucket huge --key v/huge.bin --query ContentLength)"
etag=$(s3api head-object --bucket huge --key v/huge.bin --query ETag)
case $etag in *-*) ;; *) fail "an object of many parts has an ETag like 'md5-N', this one has $etag" ;; esac
while read -r at sum; do
    s3api get-object --bucket huge --key v/huge.bin --range "bytes=$at-$((at + 4095))" "$WORK/range" >/dev/null
    check_eq "4 KiB at $at, through awscli" "$sum" "$(sha256sum <"$WORK/range" | cut -d' ' -f1)"
done <"$WORK/plan"
check_eq 'unfinished uploads' None "$(s3api list-multipart-uploads --bucket huge --query Uploads)"
began=$(now_ms)
WHOLE=$(sha256sum <"$WORK/mnt/huge.bin" | cut -d' ' -f1)
took 'read from the cache, with sha256' $(($(now_ms) - began))

# ---- copied inside the bucket: what lies in the way of an exchange is parked ----
echo small >"$WORK/mnt/small"
check_status 0 "$HOLDFAST" flush v --wait --timeout 5000
began=$(now_ms)
python3 - "$WORK/mnt" <<'PY' || fail 'the exchange failed'
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
a, b = (os.fsencode(sys.argv[1] + name) for name in ("/huge.bin", "/small"))
if libc.renameat2(-100, a, -100, b, 2) != 0:
    raise OSError(ctypes.get_errno(), "renameat2")
PY
check_status 0 "$HOLDFAST" flush v --wait --timeout 5000
took 'exchanged: parked by a copy in parts, sent again' $(($(now_ms) - began))
check_eq 'size under its other name' "$SIZE" "$(s3api head-object --bucket huge --key v/small --query ContentLength)"
check_eq 'the small one under its other name' 6 "$(s3api head-object --bucket huge --key v/huge.bin --query ContentLength)"
parked() { s3api list-objects-v2 --bucket huge --prefix .holdfast/park/ --query Contents; }
park_is_empty() { [ "$(parked)" = None ]; }
wait_until 30 park_is_empty || fail "left under park/: $(parked)"
check_status 0 "$HOLDFAST" umount "$WORK/mnt"
gateway_stop

# ---- down, by a gateway that has never seen it ----
rm -rf "$WORK/one"
gateway_start "$WORK/two" "$STORE"
check_status 0 "$HOLDFAST" volume create v
while read -r at sum; do
    curl -s -f -m 60 -H "Authorization: Bearer $(gateway_token)" -r "$at-$((at + 4095))" -o "$WORK/range" "$URL/v1/files/v/small" ||
        fail "the range at $at does not come"
    check_eq "4 KiB at $at, by HTTP" "$sum" "$(sha256sum <"$WORK/range" | cut -d' ' -f1)"
done <"$WORK/plan"
mkdir "$WORK/mnt2"
check_status 0 "$HOLDFAST" mount v "$WORK/mnt2"
began=$(now_ms)
check_eq 'every byte, cold' "$WHOLE" "$(sha256sum <"$WORK/mnt2/small" | cut -d' ' -f1)"
took 'down, cold, with sha256' $(($(now_ms) - began))
note "gateway's memory at its highest: $(awk '/VmHWM/ { print int($2 / 1024) " MiB" }' "/proc/$GATEWAY_PID/status")"
memory=$(awk '/VmHWM/ { print int($2 / 1024) }' "/proc/$GATEWAY_PID/status")
[ "$memory" -lt 200 ] || fail "the gateway took $memory MiB of memory, 200 is the limit"
check_status 0 "$HOLDFAST" umount "$WORK/mnt2"
