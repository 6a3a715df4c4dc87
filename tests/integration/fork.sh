#!/usr/bin/env bash
# A fork is a new volume with the files of a snapshot, byte for byte, with modes, times, links and names; whatever happens to the parent
# meanwhile, and though the gateway is killed again and again. It never changes the parent, and the parent never changes it.
# timeout: 180
. "$(dirname "$0")/../support/lib.sh"
lib_begin fork
need_fuse

M=$WORK/m
N=$WORK/n
FILES=250
umask 022
mkdir "$M" "$N"
defer "while umount '$M' 2>/dev/null; do :; done"
defer "while umount '$N' 2>/dev/null; do :; done"
gateway_start "$WORK/state" "file://$WORK/bucket" --sync-rest 0s
check_status 0 "$HOLDFAST" volume create v
check_status 0 "$HOLDFAST" mount v "$M"
flushed() { check_status 0 "$HOLDFAST" flush --timeout 60 v; }
facts() { # DIR: of folders the names alone, for a snapshot shows the bits of now
    (cd "$1" && find . -mindepth 1 \( -type d -printf '%P\0d\0' -o -printf '%P\0%y %m %U:%G %s %Ts %l\0' \) |
        python3 -c 'import sys
words = sys.stdin.buffer.read().split(b"\0")[:-1]
for name, rest in sorted(zip(words[::2], words[1::2])):
    print(repr(name), repr(rest))')
}
same_tree() { # WHAT WANTED SEEN
    check_status 0 diff -r --no-dereference -x pipe "$2" "$3"
    diff <(facts "$2") <(facts "$3") >"$WORK/facts" || fail "$1: $(head -n 5 "$WORK/facts")"
}
mkdir -p "$M/d/deep/er" "$M/moves/in" "$M/goes" "$M/empty" "$M/-dash"
for i in $(seq "$FILES"); do echo "file $i" >"$M/d/$i"; done
echo one >"$M/d/deep/er/a"
echo 'in a folder that moves' >"$M/moves/in/x"
echo 'in a folder that goes' >"$M/goes/x"
# shellcheck disable=SC2016
echo odd >"$M/"$'new\nline "quoted" $(x) `y`'
echo raw >"$M/"$'raw \xff'
echo dash >"$M/-dash/-rf"
head -c 3000000 /dev/urandom >"$M/large"
: >"$M/nothing"
chmod 640 "$M/d/1"
chmod 4755 "$M/d/2"
touch -d '2001-02-03 04:05:06' "$M/d/3"
ln -s d/1 "$M/link"
mkfifo "$M/pipe"
flushed
cp -a "$M" "$WORK/then"
check_status 0 "$HOLDFAST" snapshot create v first

# ---- the parent goes on: replaced, removed, moved, in the bucket and on the way there ----
for i in $(seq 10 20); do echo "another $i" >"$M/d/$i"; done
rm -r "$M/goes" "$M/link"
mv "$M/moves" "$M/moved"
echo more >"$M/moved/in/x"
head -c 100000 /dev/urandom >"$M/large"
flushed
cp -a "$M" "$WORK/now"
find "$WORK/bucket/v" -type f -printf '%P %s %T@\n' | LC_ALL=C sort >"$WORK/parent"

check_status 0 "$HOLDFAST" snapshot fork v first w
check_contains 'it says so' "volume 'w' is v@first" "$WORK/out"
check_status 0 "$HOLDFAST" mount w "$N"
same_tree 'the fork' "$WORK/then" "$N"
check_eq 'the bucket has the files, for any client' "$(cd "$WORK/then/d" && find . -type f -exec sha256sum {} + | LC_ALL=C sort)" \
    "$(cd "$WORK/bucket/w/d" && find . -type f -not -name '.hf~*' -exec sha256sum {} + | LC_ALL=C sort)"
check_eq 'the parent is as it was' "$(cat "$WORK/parent")" "$(find "$WORK/bucket/v" -type f -printf '%P %s %T@\n' | LC_ALL=C sort)"
same_tree 'its mount too' "$WORK/now" "$M"
check_eq 'nothing is held any more' first "$("$HOLDFAST" snapshot list v --json | jq -r '.snapshots[].name' | xargs)"

# ---- two volumes from here on ----
echo 'only in the fork' >"$N/d/1"
rm "$N/d/2" "$N/d/deep/er/a"
mv "$N/moves" "$N/elsewhere"
check_status 0 "$HOLDFAST" flush --timeout 60 w
same_tree 'the parent does not see it' "$WORK/now" "$M"
echo 'only in the parent' >"$M/d/30"
flushed
check_eq 'nor the fork the parent' 'file 30' "$(cat "$N/d/30")"
check_status 0 "$HOLDFAST" restore w:/d/1
check_eq 'a fork has a history of its own' 'file 1' "$(cat "$N/d/1")"
check_status 0 "$HOLDFAST" snapshot create w of-its-own

# ---- a name that is taken, a time, what is refused ----
check_status 1 "$HOLDFAST" snapshot fork v first w
mkdir "$WORK/bucket/taken" && echo x >"$WORK/bucket/taken/x" && chmod -R a+rwX "$WORK/bucket/taken"
check_status 1 "$HOLDFAST" snapshot fork v first taken
check_status 4 "$HOLDFAST" snapshot fork v never x
check_status 4 "$HOLDFAST" snapshot fork never first x
check_status 1 "$HOLDFAST" snapshot create v fork-mine
api POST /v1/volumes -d '{"name": "x", "from": "v"}' >"$WORK/answer"
check_eq 'of now, over HTTP' 202 "$(api_status)"
wait_until 60 sh -c "'$HOLDFAST' volume show x --json | jq -e '.fork == null'" >/dev/null || fail 'it never ended'
check_status 0 "$HOLDFAST" cat x:/d/30
check_eq 'has the newest' 'only in the parent' "$(cat "$WORK/out")"

# ---- killed again and again, while the parent changes ----
check_status 0 "$HOLDFAST" umount "$N"
check_status 0 "$HOLDFAST" umount "$M"
check_status 0 "$HOLDFAST" snapshot fork v first k --no-wait
kills=0
for pause in 0.02 0.1 0.2; do
    sleep "$pause"
    gateway_kill
    kills=$((kills + 1))
    gateway_start "$WORK/state" "file://$WORK/bucket" --sync-rest 0s
    echo "changed $kills" >"$WORK/in"
    check_status 0 "$HOLDFAST" put "$WORK/in" "v:/d/$((100 + kills))"
    check_status 0 "$HOLDFAST" rm "v:/d/$((200 + kills))"
done
if "$HOLDFAST" volume show k --json | jq -e .fork >/dev/null; then
    note 'the fork is under way after the kills'
fi
wait_until 90 sh -c "'$HOLDFAST' volume show k --json | jq -e '.fork == null'" >/dev/null || fail "it never ended: $("$HOLDFAST" volume show k)"
check_status 0 "$HOLDFAST" mount k "$N"
same_tree "the fork after $kills kills" "$WORK/then" "$N"
check_status 0 "$HOLDFAST" fsck k
[ "$STATUS" = 0 ] || cat "$WORK/out"
