#!/usr/bin/env bash
# `holdfast fsck`: each kind of fault is planted behind the gateway's back, found with its code, and mended; nothing is lost on the
# way (INV-6), what is left is what cannot be mended, and where nothing is wrong nothing is found, also while files are written.
# timeout: 120
. "$(dirname "$0")/../support/lib.sh"
lib_begin fsck
need_fuse
command -v setfattr >/dev/null || skip 'no setfattr'

STATE=$WORK/state
BUCKET=$WORK/bucket
STORE=file://$BUCKET
M=$WORK/m
mkdir "$M"
defer "while umount '$M' 2>/dev/null; do :; done"
gateway_start "$STATE" "$STORE" --list-ttl 10m --sync-rest 100ms
check_status 0 "$HOLDFAST" volume create v
check_status 0 "$HOLDFAST" volume create w
check_status 0 "$HOLDFAST" mount v "$M"
fsck() { # STATUS [ARG...]: the codes in FOUND
    check_status "$1" "$HOLDFAST" fsck --json "${@:2}"
    FOUND=$(jq -r '.findings[] | "\(.code) \(.where)"' "$WORK/out" | sort)
}
found() { # CODE WHERE
    grep -qxF "$1 $2" <<<"$FOUND" || fail "'$1' at '$2' is not found: $FOUND"
}
flushed() { check_status 0 "$HOLDFAST" flush --timeout 60; }
ulid() { printf '01J%023d' "$1"; }
content_of() { # BYTES: the cache's file that holds exactly them
    local f
    for f in "$STATE"/cache/??/[0-9]*; do
        if [ "$(head -c 4096 "$f" | tr -d '\0')" = "$1" ]; then echo "$f" && return; fi
    done
}

# ---- nothing wrong ----
mkdir -p "$M/d/e"
for i in $(seq 200); do echo "file $i" >"$M/d/$i"; done
for f in missing changed wrong damaged gone parked; do echo "bytes of $f" >"$M/$f"; done
ln -s d/1 "$M/link" && mkfifo "$M/pipe" && : >"$M/nothing"
flushed
ls -R "$M" >/dev/null
fsck 0
check_eq 'nothing is found' '' "$FOUND"
fsck 0 --full
check_eq 'nor in the bytes' '' "$FOUND"
[ "$(jq .bytes_read "$WORK/out")" -gt 2000 ] || fail 'no bytes were read'
for i in $(seq 60); do echo "more $i" >"$M/more$i" && mv "$M/more$i" "$M/d/more$i" && rm "$M/d/$i"; done &
for _ in 1 2 3; do fsck 0 --full && check_eq 'nothing while files are written' '' "$FOUND"; done
wait $!
check_status 0 "$HOLDFAST" fsck v
check_contains 'in words' 'index, cache and bucket agree' "$WORK/out"
flushed

# ---- what others did ----
echo base >"$M/fought" && flushed
"$HOLDFAST" umount "$M" && gateway_stop
gateway_start "$STATE" "$STORE" --list-ttl 10m --sync-rest 60s
check_status 0 "$HOLDFAST" mount v "$M"
ls -R "$M" >/dev/null
cat "$M"/wrong "$M"/damaged "$M"/gone "$M"/missing >/dev/null
echo mine >"$M/fought" && echo theirs >"$BUCKET/v/fought"
check_status 3 "$HOLDFAST" flush --timeout 60
conflict=$("$HOLDFAST" flush --json >/dev/null; api GET /v1/conflicts | jq -r '.conflicts[0].id')
C=$BUCKET/.holdfast/conflicts/v
P=$BUCKET/.holdfast/park/v
fsck 0
echo stranger >"$BUCKET/v/d/stranger"
echo theirs again >"$BUCKET/v/changed"
rm "$BUCKET/v/missing"
cp --preserve=xattr,timestamps "$C/$conflict" "$C/$(ulid 1)"
mkdir -p "$P" && mv "$BUCKET/v/parked" "$P/$(ulid 2)"
rm "$BUCKET/.holdfast/volumes/w.json"
sed 's/"v"/"x"/; s,"v/","x/",' "$BUCKET/.holdfast/volumes/v.json" >"$BUCKET/.holdfast/volumes/x.json"
chown -R --reference="$C/$conflict" "$BUCKET/.holdfast"
fsck 1
found object-unknown v/d/stranger
found object-changed v/changed
found object-missing v/missing
found object-missing v/parked
found conflict-unknown ".holdfast/conflicts/v/$(ulid 1)"
found park-left ".holdfast/park/v/$(ulid 2)"
found settings-missing .holdfast/volumes/w.json
found volume-unknown .holdfast/volumes/x.json
check_eq 'and nothing else' 8 "$(wc -l <<<"$FOUND")"
check_eq 'looking changes nothing' 8 "$(fsck 1 && wc -l <<<"$FOUND")"
fsck 1 w
check_eq 'one volume alone' 'settings-missing .holdfast/volumes/w.json' "$FOUND"
fsck 1 --repair
check_eq 'all mended' 8 "$(jq .repaired "$WORK/out")"
check_status 3 "$HOLDFAST" flush --timeout 60
fsck 0
check_eq 'the stranger' stranger "$(cat "$M/d/stranger")"
check_eq 'the other bytes' 'theirs again' "$(cat "$M/changed")"
[ ! -e "$M/missing" ] || fail 'a file without an object'
check_eq 'settings again' '"w"' "$(jq .name "$BUCKET/.holdfast/volumes/w.json")"
check_eq 'the found volume' x "$("$HOLDFAST" volume list --json | jq -r '.volumes[].name' | grep x)"
[ -z "$(ls -A "$P" 2>/dev/null)" ] || fail 'the parked object is still there'
# Nothing is lost: what had only one copy left is among the conflicts.
for id in $(api GET /v1/conflicts | jq -r '.conflicts[].id'); do cat "$C/$id"; done | sort -u >"$WORK/kept"
printf '%s\n' 'bytes of missing' 'bytes of parked' mine | sort >"$WORK/kept.want"
check_same 'kept bytes' "$WORK/kept.want" "$WORK/kept"

# ---- snapshots and older versions ----
S=$BUCKET/.holdfast/snapshots/v
check_status 0 "$HOLDFAST" snapshot create v one
wait_until 20 test -s "$S/one.json.zst" || fail 'no manifest'
fsck 0
cp -p --preserve=all "$S/one.json.zst" "$S/two.json.zst"
rm "$S/one.json.zst"
fsck 1 --repair
found snapshot-missing .holdfast/snapshots/v/one.json.zst
found snapshot-unknown .holdfast/snapshots/v/two.json.zst
wait_until 20 test -s "$S/one.json.zst" || fail 'the manifest is not written again'
check_eq 'both' 'one two' "$("$HOLDFAST" snapshot list v --json | jq -r '[.snapshots[].name] | sort | join(" ")')"
check_status 0 "$HOLDFAST" snapshot diff v two
for s in one two; do check_status 0 "$HOLDFAST" snapshot delete v "$s"; done
flushed
fsck 0

# ---- bytes that are wrong, which only reading tells ----
file=$(content_of 'bytes of wrong')
printf 'BYTES' | dd of="$file" conv=notrunc status=none
gone=$(content_of 'bytes of gone')
rm "$gone"
before=$(stat -c %y "$BUCKET/v/damaged")
printf 'B' | dd of="$BUCKET/v/damaged" conv=notrunc status=none
touch -d "$before" "$BUCKET/v/damaged"
rm "$C/$conflict"
fsck 1
found cache-missing "cache/${gone#"$STATE"/cache/}"
found conflict-missing ".holdfast/conflicts/v/$conflict"
check_eq 'without reading' 2 "$(wc -l <<<"$FOUND")"
fsck 1 --full
found cache-wrong "cache/${file#"$STATE"/cache/}"
found object-wrong v/damaged
"$HOLDFAST" umount "$M"
fsck 1 --full --repair
check_eq 'three of the four can be mended' '3 4' "$(jq -r '"\(.repaired) \(.found)"' "$WORK/out")"
check_status 0 "$HOLDFAST" flush --timeout 60
fsck 1 --full
check_eq 'what is lost stays told' "conflict-missing .holdfast/conflicts/v/$conflict" "$FOUND"
check_status 0 "$HOLDFAST" mount v "$M"
check_eq 'fetched again' 'bytes of wrong' "$(cat "$M/wrong")"
check_eq 'fetched again too' 'bytes of gone' "$(cat "$M/gone")"
check_eq 'sent again' 'bytes of damaged' "$(cat "$BUCKET/v/damaged")"

# ---- an index from a backup: older than its bucket (S33) ----
"$HOLDFAST" umount "$M"
gateway_stop
cp -p "$STATE/index.db" "$WORK/old.db"
gateway_start "$STATE" "$STORE" --list-ttl 10m --sync-rest 100ms
check_status 0 "$HOLDFAST" mount v "$M"
echo newer >"$M/changed" && rm "$M/d/100" && echo young >"$M/d/young" && mv "$M/d/101" "$M/d/moved"
echo second >"$M/gone"
flushed
"$HOLDFAST" umount "$M"
gateway_stop
cp -p "$WORK/old.db" "$STATE/index.db"
gateway_start "$STATE" "$STORE" --list-ttl 10m --sync-rest 100ms
check_status 0 "$HOLDFAST" mount v "$M"
echo 'over what it does not know' >"$M/gone"
check_status 3 "$HOLDFAST" flush --timeout 60
check_eq 'no silent overwrite' second "$(cat "$BUCKET/v/gone")"
fsck 1
found object-changed v/changed
found object-missing v/d/100
found object-missing v/d/101
found object-unknown v/d/young
found object-unknown v/d/moved
grep -q '^history-unknown .holdfast/history/v/' <<<"$FOUND" || fail "the older versions are not found: $FOUND"
fsck 1 --repair
fsck 1
check_eq 'only what was lost is still told' "conflict-missing .holdfast/conflicts/v/$conflict" "$FOUND"
check_eq 'as the bucket has it' 'newer young file 101' "$(cat "$M/changed" "$M/d/young" "$M/d/moved" | paste -sd' ')"
{ [ ! -e "$M/d/100" ] && [ ! -e "$M/d/101" ]; } || fail 'names that the bucket does not have'

# ---- without a gateway ----
"$HOLDFAST" umount "$M"
gateway_stop
echo later >"$BUCKET/v/d/later"
check_status 1 "$HOLDFAST" fsck --state "$STATE" --store "$STORE" --json v
check_eq 'offline' 'object-unknown v/d/later' "$(jq -r '.findings[] | select(.code != "conflict-missing") | "\(.code) \(.where)"' "$WORK/out")"
check_status 1 "$HOLDFAST" fsck --state "$STATE" --store "$STORE" --repair
check_contains 'in words' 'repaired: it is looked at' "$WORK/out"
check_status 4 "$HOLDFAST" fsck --state "$STATE" --store "$STORE" none
check_status 4 "$HOLDFAST" fsck --state "$WORK/none" --store "$STORE"
check_one_line
check_contains 'a wrong place' 'holdfast rebuild' "$WORK/err"
[ ! -e "$WORK/none" ] || fail 'a wrong path became a state directory'
