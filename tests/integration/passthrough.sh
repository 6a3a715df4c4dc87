#!/usr/bin/env bash
# Files that the kernel reads and writes by itself (FUSE passthrough): the same answers and bytes as on a disk whatever is open
# how, no EIO from open, nothing lost with the gateway, nothing torn in the bucket.
# timeout: 180
. "$(dirname "$0")/../support/lib.sh"
lib_begin passthrough
need_fuse
HERE=$LIB_ROOT/tests/integration

gateway_start "$WORK/state" "file://$WORK/bucket" --sync-open 1s
check_status 0 "$HOLDFAST" volume create v
mkdir "$WORK/m" "$WORK/m2" "$WORK/ro" "$WORK/disk"
M=$WORK/m
check_status 0 "$HOLDFAST" mount v "$M"
defer "while umount '$M' 2>/dev/null; do :; done"
check_status 0 "$HOLDFAST" mount v "$WORK/m2"
defer "while umount '$WORK/m2' 2>/dev/null; do :; done"

field() { # NAME: of the first mount
    curl -sS -m 10 -H "Authorization: Bearer $(gateway_token)" "$URL/v1/mounts" |
        python3 -c 'import json, sys; print(json.load(sys.stdin)["mounts"][0][sys.argv[1]])' "$1"
}
[ "$(field passthrough)" = True ] || skip "no passthrough here: $(field passthrough_why)"
check_status 0 "$HOLDFAST" status
! grep -q 'without passthrough' "$WORK/out" || fail 'status says that there is none'

# ---- it is really the kernel that reads and writes ----
cat >"$WORK/io.py" <<'EOF'
import mmap, os, sys
path, what = sys.argv[1], sys.argv[2]
fd = os.open(path, os.O_RDWR if what == "write" else os.O_RDONLY)
for i in range(2000):
    at = i * 7919 % 1000 * 4096
    if what == "write": os.pwrite(fd, i.to_bytes(4, "big") * 1024, at)
    elif what == "read": os.pread(fd, 4096, at)
if what == "map":
    area = mmap.mmap(fd, 0, mmap.MAP_SHARED, mmap.PROT_READ)
    for i in range(1000): area[i * 4096]
EOF
head -c 4096000 /dev/urandom >"$WORK/plain"
check_status 0 cp "$WORK/plain" "$M/f"
for what in read map write; do
    before=$(field requests)
    check_status 0 python3 "$WORK/io.py" "$M/f" "$what"
    asked=$(($(field requests) - before))
    [ "$asked" -lt 100 ] || fail "2000 times $what were $asked requests to the gateway"
    check_status 0 python3 "$WORK/io.py" "$WORK/plain" "$what"
done
check_same 'what was written past the gateway' "$WORK/plain" "$M/f"
check_eq 'size on the second mount' "$(stat -c %s "$WORK/plain")" "$(stat -c %s "$WORK/m2/f")"
check_status 0 "$HOLDFAST" flush v
check_same 'in the bucket' "$WORK/plain" "$WORK/bucket/v/f"

# B188: opened directly and mapped, in passthrough and through the gateway.
cat >"$WORK/direct.py" <<'EOF'
import mmap, os, sys
for path in sys.argv[1:]:
    fd = os.open(path, os.O_RDWR | os.O_DIRECT)
    area = mmap.mmap(fd, 0, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    area[1:4] = b"map"
    area.close()
    os.close(fd)
EOF
head -c 20000 /dev/zero >"$WORK/small"
head -c 20000 /dev/zero >"$M/small"
exec 5<"$M/small" # pages first, so no passthrough
check_status 0 python3 "$WORK/direct.py" "$WORK/plain" "$M/f" "$WORK/small" "$M/small"
exec 5<&-
check_same 'mapped past the gateway' "$WORK/plain" "$M/f"
check_same 'mapped through the gateway' "$WORK/small" "$M/small"

# ---- opens of one file in every order, each compared with the disk ----
SEED=${HOLDFAST_TEST_SEED:-$RANDOM}
ROUNDS=4
[ -z "${HOLDFAST_TEST_LONG:-}" ] || ROUNDS=200
opens=0
for ((i = 0; i < ROUNDS; i++)); do
    mkdir -p "$WORK/disk/$i" "$M/$i"
    check_status 0 timeout 120 python3 "$HERE/passthrough.py" random $((SEED + i)) 400 "$WORK/disk/$i" "$M/$i"
    opens=$((opens + $(cat "$WORK/out")))
    [ "$LIB_FAILED" = 0 ] || fail_now "seed $((SEED + i))"
done
note "$opens opens of files that were open, from seed $SEED"

# ---- a reader who has it open sees what writers do, and keeps what was unlinked ----
head -c 300000 /dev/zero >"$M/seen"
exec 5<"$M/seen"
head -c 4 <&5 >/dev/null
printf 'new' | dd of="$M/seen" conv=notrunc status=none
check_eq 'a reader sees a write in place' "$(printf 'new' | od -An -tx1)" "$(dd if=/dev/fd/5 bs=3 count=1 iflag=skip_bytes skip=0 status=none <"$M/seen" | od -An -tx1)"
: >"$M/seen"
check_eq 'and that it was emptied' 0 "$(stat -L -c %s /dev/fd/5)"
exec 5<&-
head -c 300000 /dev/urandom >"$WORK/kept"
cp "$WORK/kept" "$M/kept"
exec 5<"$M/kept"
rm "$M/kept"
check_same 'unlinked while open' "$WORK/kept" /dev/fd/5
exec 5<&-

# ---- the other mount writes ----
check_status 0 cp "$WORK/plain" "$M/two"
exec 5<"$M/two"
head -c 1 <&5 >/dev/null
check_status 0 dd if="$WORK/kept" of="$WORK/m2/two" conv=notrunc status=none
check_status 0 dd if="$WORK/kept" of="$WORK/plain" conv=notrunc status=none
check_same 'written through the second mount' "$WORK/plain" /dev/fd/5
check_same 'opened anew' "$WORK/plain" "$M/two"
exec 5<&-

# ---- read-only stays read-only ----
check_status 0 "$HOLDFAST" mount v "$WORK/ro" --read-only
defer "while umount '$WORK/ro' 2>/dev/null; do :; done"
check_same 'read-only' "$WORK/plain" "$WORK/ro/two"
check_status 1 dd if="$WORK/kept" of="$WORK/ro/two" conv=notrunc status=none
check_same 'as before' "$WORK/plain" "$M/two"

# ---- what is uploaded of a file that never rests ----
python3 "$HERE/passthrough.py" records "$M/records" 4 >"$WORK/turns" &
WRITER=$!
seen=0
while kill -0 "$WRITER" 2>/dev/null; do
    if [ -f "$WORK/bucket/v/records" ] && cp "$WORK/bucket/v/records" "$WORK/copy" 2>/dev/null; then
        check_status 0 python3 "$HERE/passthrough.py" check "$WORK/copy"
        seen=$((seen + 1))
    fi
    timeout 1 "$HOLDFAST" flush v >/dev/null 2>&1
    sleep 0.2
done
wait "$WRITER" || fail 'the writer failed'
check_status 0 "$HOLDFAST" flush v
check_status 0 python3 "$HERE/passthrough.py" check "$WORK/bucket/v/records"
check_eq 'the last turn is there' "$(cat "$WORK/turns")" "$(cat "$WORK/out")"
note "$seen copies in the bucket while it was written"

# ---- the gateway dies: what was closed is there ----
cat >"$WORK/close.py" <<'EOF'
import os, sys
for i in range(20):
    fd = os.open(f"{sys.argv[1]}/dead{i}", os.O_CREAT | os.O_RDWR)
    os.pwrite(fd, bytes([i]) * 200000, 0)
    os.close(fd)
fd = os.open(sys.argv[1] + "/two", os.O_RDWR)
os.pwrite(fd, b"after the open", 1000)
os.close(fd)
EOF
check_status 0 python3 "$WORK/close.py" "$M"
gateway_kill
printf 'after the open' | dd of="$WORK/plain" bs=1 seek=1000 conv=notrunc status=none
gateway_start "$WORK/state" "file://$WORK/bucket" --sync-open 1s
wait_until 20 test -s "$M/two" || fail "the mount does not come back"
check_same 'in place, before the gateway died' "$WORK/plain" "$M/two"
for i in 0 7 19; do
    check_eq "file $i" "$(python3 -c "print(bytes([$i])*200000==open('$M/dead$i','rb').read())")" True
done
check_status 0 "$HOLDFAST" flush v
check_same 'and in the bucket' "$WORK/plain" "$WORK/bucket/v/two"
for m in "$M" "$WORK/m2" "$WORK/ro"; do check_status 0 "$HOLDFAST" umount "$m"; done
