#!/usr/bin/env bash
# `.holdfast/at/TIME/` shows the volume as it was, for plain diff, cp, tar and grep; `.holdfast/versions/PATH/` what is kept of a file. What
# is right is what `cp -a` had copied to the disk at that time. While the volume changes, from two mounts, in a sandbox, and over
# the death of the gateway.
# timeout: 180
. "$(dirname "$0")/../support/lib.sh"
lib_begin time-travel
need_fuse
command -v bwrap >/dev/null || skip 'bubblewrap is not installed'
command -v setpriv >/dev/null || skip 'no setpriv'
export HOLDFAST_TAKEOVER=respawn

M=$WORK/m
N=$WORK/n
S=$WORK/s
mkdir "$M" "$N" "$S"
defer "while umount '$M' 2>/dev/null; do :; done"
defer "while umount '$N' 2>/dev/null; do :; done"
defer "while umount '$S' 2>/dev/null; do :; done"
umask 022
status_field() { "$HOLDFAST" status --json 2>/dev/null | jq -r "$1"; }
# It is another process after each death, and no child of ours.
stop_successor() {
    local pid
    pid=$(status_field .pid) && kill "$pid" && wait_until 30 test ! -d "/proc/$pid"
}
gateway_start "$WORK/state" "file://$WORK/bucket"
defer stop_successor
check_status 0 "$HOLDFAST" volume create v
check_status 0 "$HOLDFAST" mount v "$M"
flushed() { check_status 0 "$HOLDFAST" flush --timeout 60 v; }
stamp() { date -u +%Y-%m-%dT%H:%M:%S.%NZ; }

# Names, types, bits without those to write, owners, sizes and times to the second: the bucket's metadata has no more of a copy.
facts() { # DIR
    (cd "$1" && find . -mindepth 1 -printf '%y %m %U:%G %s %Ts %l %p\0' |
        perl -0 -pe 's{^(\S) (\d+) (\S+) (\d+) (\d+)}{
            my ($t, $m, $o, $s, $w) = ($1, oct($2), $3, $4, $5);
            $t eq "l" ? "l - $o" : $t eq "d" ? sprintf("d %o %s", $m & 0555, $o) : sprintf("%s %o %s %d %d", $t, $m & 0555, $o, $s, $w)}e' |
        sort -z | tr '\0' '\1')
}
same_tree() { # WHAT WANTED SEEN
    check_status 0 diff -r --no-dereference -x fifo "$2" "$3"
    [ "$STATUS" = 0 ] || fail "$1: $(head -c 600 "$WORK/out")"
    facts "$2" >"$WORK/facts.wanted"
    facts "$3" >"$WORK/facts.seen"
    cmp -s "$WORK/facts.wanted" "$WORK/facts.seen" ||
        fail "$1: $(diff <(tr '\1' '\n' <"$WORK/facts.wanted") <(tr '\1' '\n' <"$WORK/facts.seen") | head -n 10)"
    [ -s "$WORK/facts.wanted" ] || fail "$1: nothing was compared"
}

# ---- a tree with everything in it ----
ODD=$'new\nline "quoted" \'single\' $(x) `y` \\ back'
RAW=$'raw \xff\xfe'
mkdir -p "$M/d/deep/er" "$M/moves/in" "$M/goes" "$M/empty" "$M/-dash"
for i in $(seq 30); do echo "file $i" >"$M/d/$i"; done
echo one >"$M/d/deep/er/a"
echo 'stays' >"$M/d/stays"
echo 'in a folder that moves' >"$M/moves/in/x"
echo 'in a folder that goes' >"$M/goes/x"
echo odd >"$M/$ODD"
echo raw >"$M/$RAW"
echo dash >"$M/-dash/-rf"
echo long >"$M/$(printf 'n%.0s' $(seq 255))"
echo 2h >"$M/2h"
head -c 3000000 /dev/urandom >"$M/large"
: >"$M/nothing"
printf '#!/bin/sh\necho run\n' >"$M/script"
chmod 755 "$M/script"
chmod 640 "$M/d/1"
chmod 700 "$M/moves"
chmod 400 "$M/d/2"
ln -s d/stays "$M/link"
ln -s '/no/where else' "$M/d/dangling"
mkfifo "$M/fifo"
touch -d '2001-02-03 04:05:06' "$M/d/3"
flushed
cp -a "$M" "$WORK/was"
T1=$(stamp)
sleep 0.05
AT=$M/.holdfast/at/$T1

same_tree 'just now' "$WORK/was" "$AT"

# ---- everything changes ----
for i in $(seq 4 10); do echo "another $i" >"$M/d/$i"; done
for i in $(seq 11 15); do rm "$M/d/$i"; done
for i in $(seq 16 18); do mv "$M/d/$i" "$M/d/moved.$i"; done
mv "$M/moves" "$M/moved" && echo more >"$M/moved/in/more" && echo other >"$M/moved/in/x"
rm -r "$M/goes"
rm "$M/link" && ln -s d/1 "$M/link"
echo again >"$M/d/.tmp" && mv "$M/d/.tmp" "$M/d/stays"
head -c 3000000 /dev/urandom >"$M/large"
rm "$M/$ODD" "$M/$RAW" "$M/fifo" && echo no >"$M/2h"
mkdir "$M/young" && echo young >"$M/young/x"
same_tree 'before the bucket has the new ones' "$WORK/was" "$AT"
flushed
same_tree 'after' "$WORK/was" "$AT"
cp -a "$M" "$WORK/now1"
T2=$(stamp)
T2B=$(stamp)
sleep 0.05
mkdir "$WORK/copy"
check_status 0 cp -a "$AT/." "$WORK/copy"
same_tree 'what cp -a takes out' "$WORK/was" "$WORK/copy"
check_eq 'tar has all' "$(find "$WORK/was" -printf x | wc -c)" "$(tar -C "$AT" -cf - . | tar -tf - --quoting-style=c | wc -l)"
check_status 0 grep -rl 'in a folder' "$AT/"
check_eq 'grep -r' 2 "$(wc -l <"$WORK/out")"
check_eq 'as many bytes' "$(sha256sum <"$WORK/was/large")" "$(sha256sum <"$AT/large")"
check_eq 'a part of the middle' "$(tail -c +1500001 "$WORK/was/large" | head -c 5000 | sha256sum)" "$(dd if="$AT/large" bs=1 skip=1500000 count=5000 status=none | sha256sum)"
check_status 0 cp "$AT/large" "$M/taken.back"
check_same 'cp into the same mount' "$WORK/was/large" "$M/taken.back"
rm "$M/taken.back"
flushed
check_eq 'the numbers are one' "$(stat -c %i "$AT/large")" "$(cd "$AT" && find . -name large -printf %i)"
[ "$(stat -c %i "$AT/large")" != "$(stat -c %i "$M/large")" ] || fail 'now and then have one number'
check_eq 'its own type' 'symbolic link' "$(stat -c %F "$AT/link")"
check_eq 'what it led to' d/stays "$(readlink "$AT/link")"

# ---- the words for a time ----
check_status 2 ls "$M/.holdfast/at/yesterday"
check_status 2 ls "$M/.holdfast/at/2199-01-01T00:00:00Z"
check_status 2 ls "$AT/not there"
check_status 0 sh -c "ls -A '$M/.holdfast/at/1h' | wc -l"
check_eq 'an hour ago it was empty' 0 "$(cat "$WORK/out")"
sleep 1.2
check_status 0 test -f "$M/.holdfast/at/1s/young/x"
check_status 1 test -e "$AT/young"

# ---- the same on the command line, and over HTTP ----
check_status 0 "$HOLDFAST" snapshot create v kept
check_eq 'snapshots are listed' kept "$(ls "$M/.holdfast/at")"
same_tree 'a snapshot by its name' "$WORK/now1" "$M/.holdfast/at/kept"
exec 8>"$M/d/stays"
echo 'being written' >&8
sync "$M/d/stays"
touch "$M/d/stays"
same_tree 'made while a file is written' "$WORK/now1" "$M/.holdfast/at/$T2B"
exec 8>&-
flushed
same_tree 'when it is closed' "$WORK/now1" "$M/.holdfast/at/$T2B"
check_status 0 "$HOLDFAST" cat v:d/stays v:d/11 --at "$T1"
check_eq 'cat' "$(cat "$WORK/was/d/stays" "$WORK/was/d/11")" "$(cat "$WORK/out")"
check_status 0 "$HOLDFAST" get v:large "$WORK/got" --at "$T1"
check_same 'get' "$WORK/was/large" "$WORK/got"
check_status 0 "$HOLDFAST" ls v:d --at "$T1" --json
check_eq 'ls' "$(ls -A "$WORK/was/d")" "$(jq -r '.entries[].name' "$WORK/out" | sort)"
check_eq 'its kinds' "$(find "$WORK/was/d" -mindepth 1 -maxdepth 1 -printf '%y\n' | sort | uniq -c | xargs)" \
    "$(jq -r '.entries[].kind | {file: "f", dir: "d", symlink: "l"}[.]' "$WORK/out" | sort | uniq -c | xargs)"
api GET "/v1/files/v/large?at=$T1" -H 'Range: bytes=1048570-1048585' >"$WORK/range"
check_eq 'a range' "$(tail -c +1048571 "$WORK/was/large" | head -c 16 | sha256sum)" "$(sha256sum <"$WORK/range")"
check_eq 'its status' 206 "$(api_status)"
LIST=
NEXT=0
while [ "$NEXT" != null ]; do
    api GET "/v1/list/v/d?at=kept&limit=7&cursor=$NEXT" >"$WORK/page"
    LIST+=$(jq -r '.entries[].name' "$WORK/page")$'\n'
    NEXT=$(jq -r .next "$WORK/page")
done
check_eq 'page by page' "$(ls -A "$WORK/now1/d")" "$(sort <<<"${LIST%$'\n'}")"
check_status 4 "$HOLDFAST" cat v:young/x --at "$T1"
check_status 4 "$HOLDFAST" ls v:/ --at never
check_status 1 "$HOLDFAST" ls v:/ --at 2199-01-01T00:00:00Z
check_status 2 "$HOLDFAST" cat v:d/3 --at "$T1" --version 12345678

# ---- nothing can be changed ----
for try in "touch '$AT/x'" "echo x >'$AT/d/1'" "rm '$AT/d/1'" "mkdir '$AT/x'" "rmdir '$AT/d'" "mv '$AT/d/1' '$AT/d/x'" "ln -s x '$AT/x'" "chmod 777 '$AT/d/1'" \
    "truncate -s 0 '$AT/d/1'" "ln '$AT/d/1' '$AT/x'" "touch '$AT/d/1'" "mkdir '$M/.holdfast/at/x'" "mkdir '$M/.holdfast/versions/x'" "rm '$M/.holdfast/versions/d/stays/'*"; do
    check_status 1 sh -c "LC_ALL=C; ($try) || exit 1"
    grep -q 'Read-only file system' "$WORK/err" || fail "not EROFS: $try: $(cat "$WORK/err")"
done
check_eq 'not listed' '' "$(find "$M" -name .holdfast)"
check_status 1 setpriv --reuid 12345 --regid 12345 --clear-groups cat "$AT/moves/in/x"
check_status 1 setpriv --reuid 12345 --regid 12345 --clear-groups cat "$AT/d/1"
check_status 0 setpriv --reuid 12345 --regid 12345 --clear-groups cat "$AT/d/3"

# ---- versions of a file ----
for i in 1 2 3; do
    echo "version $i" >"$M/d/often"
    flushed
done
V=$M/.holdfast/versions/d/often
check_eq 'each that was in the bucket' 3 "$(find "$V" -type f | wc -l)"
check_eq 'in the order of their names' 'version 1 version 2 version 3' "$(cat "$V"/* | xargs)"
check_eq 'the newest comes first' 'version 3' "$(cat "$(find "$V" -type f | head -n 1)")"
find "$V" -type f -printf '%f\n' | grep -vE '^20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9:]{8}\.[0-9]{3}Z-[0-9A-Z]{10}$' && fail 'another name'
FIRST=$(find "$V" -type f | LC_ALL=C sort | head -n 1)
check_eq 'size' 10 "$(stat -c %s "$FIRST")"
rm "$M/d/often"
flushed
check_eq 'also of what is gone' 'version 1 version 2 version 3' "$(cat "$V"/* | xargs)"
check_status 0 sh -c "ls '$M/.holdfast/versions/goes'"
check_eq 'a folder that is gone' x "$(cat "$WORK/out")"
check_eq 'folders are folders' "$(find "$WORK/was" "$M" -mindepth 1 -maxdepth 1 -printf '%f\0' | grep -azv '^moves$' | sort -zu | tr '\0' '/')" \
    "$(find "$M/.holdfast/versions" -mindepth 1 -maxdepth 1 -printf '%f\0' | sort -z | tr '\0' '/')"
check_status 2 ls "$M/.holdfast/versions/never"
check_status 2 setpriv --reuid 12345 --regid 12345 --clear-groups ls "$M/.holdfast/versions/d/1"

# ---- a second mount, of a folder ----
check_status 0 "$HOLDFAST" mount v/d "$N" --read-only
same_tree 'only the mounted folder' "$WORK/was/d" "$N/.holdfast/at/$T1"
check_status 2 ls "$N/.holdfast/versions/large"
check_status 0 ls "$N/.holdfast/versions/often"
check_status 0 "$HOLDFAST" umount "$N"

# ---- a mount of a snapshot ----
check_status 4 "$HOLDFAST" mount v@never "$S"
check_status 4 "$HOLDFAST" mount v@kept/never "$S"
check_status 1 "$HOLDFAST" mount v@kept/large "$S"
check_status 0 "$HOLDFAST" mount v@kept/d "$S"
same_tree 'a folder of a snapshot' "$WORK/now1/d" "$S"
check_status 0 "$HOLDFAST" umount "$S"
check_status 0 "$HOLDFAST" mount v@kept "$S"
same_tree 'a snapshot' "$WORK/now1" "$S"
check_status 1 touch "$S/x"
check_status 1 rm "$S/d/3"
check_status 2 ls "$S/.holdfast"
check_status 0 "$HOLDFAST" mounts
grep -q 'v@kept .* ro ' "$WORK/out" || fail "the list does not say what it is: $(cat "$WORK/out")"
check_status 0 stat -f "$S"

# ---- read while the present is replaced, again and again ----
echo 0 >"$WORK/go"
(
    i=0
    while [ -e "$WORK/go" ]; do
        i=$((i + 1))
        head -c $((RANDOM * 30)) /dev/urandom >"$M/.new" && mv "$M/.new" "$M/large"
        echo "turn $i" >"$M/d/stays"
        rm -f "$M/d/deep/er/a" && echo "turn $i" >"$M/d/deep/er/a"
    done
) &
WRITER=$!
T3=$(stamp)
for _ in 1 2 3 4; do
    same_tree 'while it changes' "$WORK/was" "$AT"
    same_tree 'the same of a later time' "$WORK/now1" "$M/.holdfast/at/$T2"
    sleep 0.2
    echo 3 >/proc/sys/vm/drop_caches 2>/dev/null || true
done
check_status 0 diff -r --no-dereference "$M/.holdfast/at/$T3/moved" "$WORK/now1/moved"

# ---- the gateway dies ----
exec 9<"$AT/d/3"
RULER=$(status_field .pid)
same_tree 'before the end, for the kernel to know it' "$WORK/was" "$AT"
kill -KILL "$RULER"
same_tree 'after a takeover' "$WORK/was" "$AT"
same_tree 'the same of a later time' "$WORK/now1" "$M/.holdfast/at/$T2"
same_tree 'a mounted snapshot' "$WORK/now1" "$S"
STATUS=0
SEEN=$(cat <&9 2>/dev/null) || STATUS=$?
exec 9<&-
[ "$STATUS" != 0 ] || check_eq 'an open file of before' 'file 3' "$SEEN"
rm "$WORK/go"
wait "$WRITER"
check_status 0 wait_until 30 "$HOLDFAST" flush --timeout 60 v
same_tree 'after all' "$WORK/was" "$AT"

[ "$(status_field .pid)" != "$RULER" ] || fail 'nobody died'

# ---- the same in a sandbox, as somebody else ----
check_status 0 "$HOLDFAST" volume create w
check_status 0 "$HOLDFAST" mount w "$N"
mkdir -p "$N/a/b" "$N/goes"
for i in $(seq 20); do echo "line $i" >"$N/a/b/$i"; done
echo x >"$N/goes/x"
check_status 0 "$HOLDFAST" flush --timeout 60 w
mkdir "$WORK/beside" && cp -a "$N" "$WORK/beside/was"
T4=$(stamp)
sleep 0.05
for i in 3 5 7; do echo "another $i" >"$N/a/b/$i"; done
rm -r "$N/a/b/9" "$N/goes" && echo new >"$N/a/new" && mv "$N/a/b/11" "$N/a/b/moved"
cp -a "$N" "$WORK/beside/now"
STATUS=0
"$HOLDFAST" run -v w -- sh -c "cd /mnt/data/1 && diff -r --no-dereference .holdfast/at/$T4 ." >"$WORK/sandbox" 2>&1 || STATUS=$?
check_eq 'there are differences' 1 "$STATUS"
(cd "$WORK/beside" && diff -r --no-dereference was now) | sed -E 's#\bnow\b#.#g' >"$WORK/expected"
sed -E "s#\.holdfast/at/$T4#was#g" "$WORK/sandbox" >"$WORK/seen"
cmp -s "$WORK/expected" "$WORK/seen" || fail "a sandbox sees other differences: $(diff "$WORK/expected" "$WORK/seen" | head -n 10)"
check_eq 'all of them' 8 "$(grep -cE '^(Only in|diff )' "$WORK/seen" | head -n 1)"

check_status 0 "$HOLDFAST" umount "$N"
# ---- after a restart the mounts come back ----
stop_successor
check_eq 'gone' '' "$(ls -A "$S")"
gateway_start "$WORK/state" "file://$WORK/bucket"
defer stop_successor
same_tree 'after a restart' "$WORK/was" "$AT"
same_tree 'a mounted snapshot after a restart' "$WORK/now1" "$S"
check_status 0 "$HOLDFAST" umount "$S"
check_status 0 "$HOLDFAST" umount "$M"
check_eq 'no mount is left' '' "$(mount | grep -F "$WORK" || true)"
