#!/usr/bin/env bash
# Reading through a mount what only the bucket has: a large file from its first to its last byte and here and there, through the
# mount and over HTTP; a folder of small files in the order of the listing and in that of the names. The bytes are those of the
# bucket, no byte is asked for twice, and the gateway stays small. B133
# HOLDFAST_TEST_LONG=1: 1 GiB and 2,000 files.
# timeout: 180
# long-timeout: 900
. "$(dirname "$0")/../support/lib.sh"
lib_begin reading
need_fuse
SIZE_MB=48 COUNT=200
if [ "${HOLDFAST_TEST_LONG:-0}" = 1 ]; then SIZE_MB=1024 COUNT=2000; fi
LOAD=$HOLDFAST_BUILD/tests/bench/hf-load
[ -x "$LOAD" ] || fail_now "no '$LOAD': build it first"
rgw_start
BUCKET=reading-$$
rgw_bucket "$BUCKET"
LOAD=("$LOAD" --client socket --endpoint "$S3_ENDPOINT" --region "$S3_REGION" --bucket "$BUCKET")

mkdir "$WORK/src" "$WORK/m"
head -c "${SIZE_MB}M" /dev/urandom >"$WORK/big"
for ((i = 0; i < COUNT; i++)); do head -c 4096 /dev/urandom >"$WORK/src/f$((i * 7919 % COUNT))"; done
check_status 0 "${LOAD[@]}" put "$WORK/big" v/big
check_status 0 "${LOAD[@]}" put-many "$WORK/src" v/small/

M=$WORK/m
fresh() { # NAME: a gateway that knows nothing yet
    gateway_start "$WORK/$1" "$(rgw_store_url "$BUCKET")"
    check_status 0 "$HOLDFAST" volume create v
    check_status 0 "$HOLDFAST" mount v "$M"
}
old() {
    check_status 0 "$HOLDFAST" umount "$M" --force
    gateway_stop
}
reading() { api GET /v1/status | jq ".reading.$1"; }
check_memory() {
    note "memory: $(grep VmHWM "/proc/$GATEWAY_PID/status")"
    [ "$(awk '/VmHWM/ { print $2 }' "/proc/$GATEWAY_PID/status")" -lt $((200 << 10)) ] || fail 'more than 200 MiB of memory'
}

# ---- on and on ----
fresh one
check_same 'the large file, read on' "$WORK/big" "$M/big"
check_eq 'bytes asked for' $((SIZE_MB << 20)) "$(reading bytes)"
note "$(reading requests) requests, $(reading ahead_bytes) bytes ahead"
[ "$(reading requests)" -le $((SIZE_MB / 4 + 24)) ] || fail "$(reading requests) requests for $SIZE_MB MiB"
# A reader that gets the processors more often than the bytes come waits, and what it waits for is not ahead: a part is enough.
[ "$(reading ahead_bytes)" -gt $((SIZE_MB << 17)) ] || fail "only $(reading ahead_bytes) bytes ahead"
check_same 'again, from the cache' "$WORK/big" "$M/big"
check_eq 'and nothing more' $((SIZE_MB << 20)) "$(reading bytes)"

# ---- a folder ----
(cd "$M/small" && for f in *; do cmp -s "$f" "$WORK/src/$f" || echo "$f"; done) >"$WORK/out"
check_eq 'files that differ, in the order of names' '' "$(cat "$WORK/out")"
check_eq 'each asked for once' $(((SIZE_MB << 20) + 4096 * COUNT)) "$(reading bytes)"
[ "$(reading prefetched)" -gt $((COUNT / 2)) ] || fail "only $(reading prefetched) files came before they were opened"
check_memory
old

# ---- the order of the listing ----
fresh two
check_status 0 python3 -c '
import os, sys
for entry in os.scandir(sys.argv[1]):
    with open(entry.path, "rb") as a, open(os.path.join(sys.argv[2], entry.name), "rb") as b:
        assert a.read() == b.read(), entry.name' "$M/small" "$WORK/src"
[ "$(reading prefetched)" -gt $((COUNT / 2)) ] || fail "only $(reading prefetched) files came before they were opened"

# ---- here and there: a block for each ----
BEFORE=$(reading bytes)
check_status 0 python3 -c '
import os, sys
a, b = (os.open(p, os.O_RDONLY) for p in sys.argv[1:3])
for mib in (33, 5, 19, 41, 11):
    at = (mib << 20) + 12345
    assert os.pread(a, 4096, at) == os.pread(b, 4096, at), mib' "$M/big" "$WORK/big"
[ $(($(reading bytes) - BEFORE)) -le $((10 << 20)) ] || fail "5 random reads brought $(($(reading bytes) - BEFORE)) bytes"

# ---- over HTTP, with what is here already ----
check_status 0 curl -sS -m 60 -H "Authorization: Bearer $(gateway_token)" -o "$WORK/got" "$URL/v1/files/v/big"
check_same 'the large file over HTTP' "$WORK/big" "$WORK/got"
check_memory
old
