#!/usr/bin/env bash
# What changes behind a kernel's back is seen there: with names and attributes believed for ten minutes, changes made through
# another mount, the API and the command line show within moments, because the kernel is told exactly; what a foreign client
# does in the bucket shows when the folder's listing is to be asked again (store.list-ttl).
# timeout: 180
. "$(dirname "$0")/../support/lib.sh"
lib_begin elsewhere-changes
need_fuse

mount_two() {
    check_status 0 "$HOLDFAST" volume create v
    mkdir -p "$WORK/a" "$WORK/b"
    A=$WORK/a B=$WORK/b
    check_status 0 "$HOLDFAST" mount v "$A"
    check_status 0 "$HOLDFAST" mount v "$B"
    defer "'$HOLDFAST' umount '$A' --force 2>/dev/null"
    defer "'$HOLDFAST' umount '$B' --force 2>/dev/null"
}
# The kernel is told right behind the answer: moments, not the ten minutes that it would believe.
soon() { # WHAT COMMAND...
    local what=$1
    shift
    wait_until 5 "$@" || fail "$what is not seen in the other mount"
}
shows() { # FILE TEXT
    [ "$(cat "$1" 2>/dev/null)" = "$2" ]
}
stat_is() { # FILE FORMAT TEXT
    [ "$(stat -c "$2" "$1" 2>/dev/null)" = "$3" ]
}
requests() { "$HOLDFAST" mounts --json | jq "[.. | objects | select(.path? == \"$1\") | .requests][0]"; }

gateway_start "$WORK/state" "file://$WORK/bucket" --list-ttl 10m
mount_two

# ---- the kernel believes ----
echo 1 >"$A/f"
mkdir "$A/d"
stat "$B/f" "$B/d" >/dev/null || fail 'the other mount does not have the first files'
[ ! -e "$B/none" ] || fail 'a file from nowhere'
sleep 2
before=$(requests "$B")
for i in $(seq 200); do [ -e "$B/f" ] && [ ! -e "$B/none" ] && [ -d "$B/d" ]; done
after=$(requests "$B")
[ $((after - before)) -lt 50 ] || fail "600 looks at what is known made $((after - before)) requests"
note "600 looks at what is known, after two seconds: $((after - before)) requests"

# ---- another mount ----
for i in $(seq 20); do
    [ ! -e "$B/new$i" ] || fail 'a file before its time' # now a negative entry
    echo "$i" >"$A/new$i"
    soon "a new file ($i)" shows "$B/new$i" "$i"
    mkdir "$A/dir$i"
    soon 'a new folder' test -d "$B/dir$i"
    echo "longer $i" >"$A/new$i"
    soon 'new content' shows "$B/new$i" "longer $i"
    printf 'LONGER %s\n' "$i" | dd of="$A/new$i" conv=notrunc status=none
    soon 'the same size in place' shows "$B/new$i" "LONGER $i"
    truncate -s 3 "$A/new$i"
    soon 'a cut' stat_is "$B/new$i" %s 3
    chmod 640 "$A/new$i"
    soon 'a mode' stat_is "$B/new$i" %a 640
    touch -d @$((1000000000 + i)) "$A/new$i"
    soon 'a time' stat_is "$B/new$i" %Y $((1000000000 + i))
    mv "$A/new$i" "$A/dir$i/moved"
    soon 'the new name' test -e "$B/dir$i/moved"
    soon 'the end of the old name' test ! -e "$B/new$i"
    echo over >"$A/over"
    mv "$A/over" "$A/dir$i/moved"
    soon 'a rename over' shows "$B/dir$i/moved" over
    mv "$A/dir$i" "$A/dir$i.moved"
    soon 'a moved folder' shows "$B/dir$i.moved/moved" over
    soon 'the end of the old folder' test ! -e "$B/dir$i"
    rm -r "$A/dir$i.moved"
    soon 'a removed folder' test ! -e "$B/dir$i.moved"
    [ "$LIB_FAILED" = 0 ] || break
done
check_eq 'both list the same' "$(ls -A "$A")" "$(ls -A "$B")"

# ---- an open file, and a mapping ----
cat >"$WORK/map.py" <<'PY'
import mmap, os, sys, time
a, b = sys.argv[1:]
def until(what, test):
    end = time.monotonic() + 5
    while not test():
        if time.monotonic() > end:
            sys.exit(what + ' is not seen in the other mount')
        time.sleep(0.005)
with open(a + '/map', 'wb') as f:
    f.write(b'x' * 8192)
seen = os.open(b + '/map', os.O_RDONLY)
memory = mmap.mmap(seen, 8192, mmap.MAP_SHARED, mmap.PROT_READ)
assert memory[:] == b'x' * 8192
for i in range(30):  # a writer that stays open: each write is seen by the next read, however quick
    if i == 0:
        w = os.open(a + '/map', os.O_RDWR)
    os.pwrite(w, b'%04d' % i, 4000)
    got = os.pread(seen, 4, 4000)
    assert got == b'%04d' % i, (i, got)
os.close(w)
until('the page of a mapping', lambda: memory[4000:4004] == b'0029')
os.truncate(a + '/map', 5)
until('a cut of an open file', lambda: os.fstat(seen).st_size == 5)
# A file that is removed or replaced elsewhere goes on for who has it open (B174).
os.unlink(a + '/map')
until('an unlink', lambda: not os.path.exists(b + '/map'))
assert os.pread(seen, 5, 0) == b'xxxxx'
until('the lost link', lambda: os.fstat(seen).st_nlink == 0)
PY
python3 "$WORK/map.py" "$A" "$B" || fail 'open files and mappings'

# ---- the API and the command line ----
[ ! -e "$B/api" ] || fail 'a file before its time'
echo one | "$HOLDFAST" put - v:/api || fail 'put'
shows "$B/api" one || fail 'a put is not seen when it was answered'
shows "$A/api" one || fail 'a put is not seen in the other mount when it was answered'
exec 5<"$B/api" # open: the name gets another node
echo two | "$HOLDFAST" put - v:/api || fail 'put over an open file'
shows "$B/api" two || fail 'a put over an open file is not seen when it was answered'
check_eq 'who has it open keeps its bytes' one "$(cat <&5)"
exec 5<&-
echo three! | "$HOLDFAST" put - v:/api || fail 'put over a closed file'
soon 'a put over a closed file' shows "$B/api" 'three!'
check_status 0 "$HOLDFAST" mv v:/api v:/ipa
soon 'a rename of the API' shows "$B/ipa" 'three!'
soon 'the old name' test ! -e "$A/api"
check_status 0 "$HOLDFAST" mkdir v:/made
soon 'a folder of the API' test -d "$B/made"
check_status 0 "$HOLDFAST" rm v:/ipa
test ! -e "$B/ipa" || fail 'a removal is not seen when it was answered'

# ---- both change the same folder at once: telling needs locks that requests under way hold (B163, B164) ----
mkdir "$A/both"
churn() { # DIR NAME
    local i
    for i in $(seq 150); do
        echo "$i" >"$1/$2$i" && mv "$1/$2$i" "$1/$2" && mkdir "$1/$2.d" && rmdir "$1/$2.d" &&
            ls "$1" >/dev/null && : >>"$1/shared" || return 1
    done
}
export -f churn
timeout 60 bash -c "churn '$A/both' a" &
first=$!
timeout 60 bash -c "churn '$B/both' b" || fail 'changes in one folder through the second mount'
wait "$first" || fail 'changes in one folder through the first mount'
check_eq 'both list the same' "$(ls -A "$A/both")" "$(ls -A "$B/both")"
check_eq 'what is left' 'a b shared' "$(cd "$B/both" && echo *)"

# ---- many at once ----
mkdir "$A/many"
ls "$B/many" >/dev/null
(cd "$A/many" && seq 3000 | xargs touch)
all_seen() { [ "$(find "$B/many" -mindepth 1 | wc -l)" = 3000 ]; }
wait_until 20 all_seen || fail '3000 files are not all seen'
stat "$B"/many/* >/dev/null
rm -r "$A/many"
soon 'the end of 3000 files' test ! -e "$B/many/3000"
check_status 0 "$HOLDFAST" umount "$A"
check_status 0 "$HOLDFAST" umount "$B"
gateway_stop

# ---- a foreign client in the bucket ----
gateway_start "$WORK/state2" "file://$WORK/bucket2" --list-ttl 2s
mount_two
echo mine >"$A/f"
mkdir "$A/d"
check_status 0 "$HOLDFAST" flush v
# Asked again and again, as a program that waits for a file does; shown within the listing's time and a moment.
foreign() { # WHAT COMMAND...
    local what=$1 began
    shift
    began=$(now_ms)
    if wait_until 8 "$@"; then note "$what: seen after $(($(now_ms) - began)) ms"; else fail "$what is not seen"; fi
}
[ ! -e "$A/d/theirs" ] || fail 'a file before its time'
shows "$B/f" mine || fail 'mine'
echo theirs >"$WORK/bucket2/v/d/theirs"
foreign 'a foreign file' shows "$A/d/theirs" theirs
shows "$B/d/theirs" theirs || foreign 'a foreign file in the second mount' shows "$B/d/theirs" theirs
sleep 1.1 # another time, whatever the clock's grain
echo over >"$WORK/bucket2/v/f"
foreign 'a foreign write' shows "$B/f" over
echo longer over >"$WORK/bucket2/v/f"
foreign 'another one' stat_is "$A/f" %s 12
rm "$WORK/bucket2/v/f"
foreign 'a foreign removal' test ! -e "$A/f"
