#!/usr/bin/env bash
# A folder of many objects that others made: all are listed, the first ones before the last is known, in little memory; what a
# listing does not tell is asked for many at a time, and only when somebody wants it. B067 B132
# HOLDFAST_TEST_LONG=1: 100,000 objects, 10,000 of them looked at.
# timeout: 180
# long-timeout: 1800
. "$(dirname "$0")/../support/lib.sh"
lib_begin many-objects
need_fuse
COUNT=3000 LOOK=1000
if [ "${HOLDFAST_TEST_LONG:-0}" = 1 ]; then COUNT=100000 LOOK=10000; fi
LOAD=$HOLDFAST_BUILD/tests/bench/hf-load
[ -x "$LOAD" ] || fail_now "no '$LOAD': build it first"
rgw_start
BUCKET=many-$$
rgw_bucket "$BUCKET"

mkdir "$WORK/src" "$WORK/m"
python3 -c '
import os, sys
for i in range(int(sys.argv[2])):
    with open(os.path.join(sys.argv[1], "f%06d.txt" % i), "w") as f:
        f.write("%d\n" % i)' "$WORK/src" "$COUNT"
check_status 0 "$LOAD" --client socket --endpoint "$S3_ENDPOINT" --region "$S3_REGION" --bucket "$BUCKET" --conns 16 \
    put-many "$WORK/src" v/many/
# A sub-folder between them, and an empty folder by its marker.
"${AWS[@]}" s3api put-object --bucket "$BUCKET" --key v/many/f000001/x >/dev/null
"${AWS[@]}" s3api put-object --bucket "$BUCKET" --key v/many/f000002/ >/dev/null

M=$WORK/m
gateway_start "$WORK/state" "$(rgw_store_url "$BUCKET")" --list-ttl 10m
check_status 0 "$HOLDFAST" volume create v
check_status 0 "$HOLDFAST" mount v "$M"
defer "'$HOLDFAST' umount '$M' --force 2>/dev/null"
heads() { api GET /v1/status | jq .store.counters.heads; }

check_status 0 python3 -c '
import os, sys, time
began = time.time()
first = None
names = set()
for entry in os.scandir(sys.argv[1]):
    first = first or time.time() - began
    assert entry.name not in names, entry.name
    names.add(entry.name)
print("first entry after %.2f s, all %d after %.2f s" % (first, len(names), time.time() - began))
print(len(names), sum(n.endswith(".txt") for n in names))' "$M/many"
note "$(head -n 1 "$WORK/out")"
check_eq 'names, and files among them' "$((COUNT + 2)) $COUNT" "$(tail -n 1 "$WORK/out")"
# B134
note "memory: $(grep VmHWM "/proc/$GATEWAY_PID/status")"
[ "$(awk '/VmHWM/ { print $2 }' "/proc/$GATEWAY_PID/status")" -lt $((200 << 10)) ] || fail 'more than 200 MiB of memory'
BEFORE=$(heads)
[ "$BEFORE" -lt $((COUNT / 4)) ] || fail "names alone made $BEFORE HEADs"

check_status 0 python3 -c '
import os, sys, time
began = time.time()
for i in range(int(sys.argv[2])):
    st = os.lstat(os.path.join(sys.argv[1], "f%06d.txt" % i))
    assert st.st_size == len("%d\n" % i), i
print("%d looked at in %.2f s" % (int(sys.argv[2]), time.time() - began))' "$M/many" "$LOOK"
note "$(cat "$WORK/out")"
# Each once, and not many more than were asked for.
AFTER=$(heads)
if [ "$AFTER" -lt "$LOOK" ] || [ "$AFTER" -gt $((LOOK + 1200)) ]; then fail "$LOOK files took $AFTER HEADs"; fi
check_status 0 ls -l "$M/many/f000001" "$M/many/f000002"
check_eq 'a folder among them' x "$(ls "$M/many/f000001")"

# What others took away is gone after the time to live, all at once; what they put there is seen.
check_status 0 "$HOLDFAST" umount "$M"
gateway_stop
gateway_start "$WORK/state" "$(rgw_store_url "$BUCKET")" --list-ttl 1s
check_status 0 "$HOLDFAST" mount v "$M"
defer "'$HOLDFAST' umount '$M' --force 2>/dev/null"
check_status 0 "${AWS[@]}" s3 rm --quiet --recursive "s3://$BUCKET/v/many" --exclude '*' --include 'f0000*'
echo new | "${AWS[@]}" s3 cp --quiet - "s3://$BUCKET/v/many/new.txt"
GONE=$(find "$WORK/src" -name 'f0000*' | wc -l)
left() { [ "$(find "$M/many" -name '*.txt' | wc -l)" = $((COUNT - GONE + 1)) ]; }
wait_until $((60 + COUNT / 500)) left || fail "wanted $((COUNT - GONE + 1)) files, saw $(find "$M/many" -name '*.txt' | wc -l)"
check_eq 'a new one' new "$(cat "$M/many/new.txt")"
