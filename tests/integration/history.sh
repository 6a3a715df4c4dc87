#!/usr/bin/env bash
# Promise 3, everything can be undone: replaced and removed versions are kept with their bytes and attributes, whoever made them
# and however; they are listed, read, compared and brought back, and bringing back is undone as anything else is.
# timeout: 120
. "$(dirname "$0")/../support/lib.sh"
lib_begin history
need_fuse
command -v python3 >/dev/null || skip 'no python3'

TREE=$LIB_ROOT/tests/integration/history.py
M=$WORK/m
umask 022
mkdir "$M"
defer "while umount '$M' 2>/dev/null; do :; done"
gateway_start "$WORK/state" "file://$WORK/bucket" --sync-rest 0s
check_status 0 "$HOLDFAST" volume create v
check_status 0 "$HOLDFAST" mount v "$M"

flushed() { check_status 0 "$HOLDFAST" flush --timeout 30 v; }
history() { "$HOLDFAST" history --json "v:/$1"; }
sum() { sha256sum <"$1" | cut -d' ' -f1; }
# Newest first, the sums of what history knows of a path, against files in the same order.
check_history() { # WHAT PATH FILE...
    local what=$1 path=$2 file version i=0
    shift 2
    history "$path" >"$WORK/history.json" || fail "$what: no history of '$path'"
    check_eq "$what: versions" "$(for file in "$@"; do sum "$file"; done)" "$(jq -r '.versions[].sha256' "$WORK/history.json")"
    for file in "$@"; do
        version=$(jq -r ".versions[$i].version" "$WORK/history.json")
        "$HOLDFAST" cat --version "$version" "v:/$path" >"$WORK/got" || fail "$what: cat of version $version"
        check_same "$what: version $i" "$file" "$WORK/got"
        check_status 0 "$HOLDFAST" get --version "$version" "v:/$path" "$WORK/got"
        check_same "$what: get of version $i" "$file" "$WORK/got"
        i=$((i + 1))
    done
    check_eq "$what: the present one" "[true$(printf ',false%.0s' $(seq 2 $#))]" "$(jq -c '[.versions[].present]' "$WORK/history.json")"
}
version() { # PATH INDEX
    history "$1" | jq -r ".versions[$2].version"
}

# ---- a file changed in every way that programs have ----
seq 1 2000 >"$WORK/one"
(cat "$WORK/one" && echo two) >"$WORK/two"
head -c 3000000 /dev/urandom >"$WORK/three"
cp "$WORK/three" "$WORK/four"
printf 'in place' | dd of="$WORK/four" conv=notrunc bs=1 seek=1500000 2>/dev/null
cp "$WORK/one" "$M/f" && flushed
cp "$WORK/two" "$M/.f.swp" && mv "$M/.f.swp" "$M/f" && flushed # an editor
cat "$WORK/three" >"$M/f" && flushed                           # a shell
printf 'in place' | dd of="$M/f" conv=notrunc bs=1 seek=1500000 2>/dev/null && flushed
check_history 'rename-over, truncation, in place' f "$WORK/four" "$WORK/three" "$WORK/two" "$WORK/one"
check_eq 'who made them' '["mount"]' "$(jq -c '[.versions[].actor]|unique' "$WORK/history.json")"
check_eq 'times fall' true "$(jq '[.versions[].made] | . == (sort|reverse)' "$WORK/history.json")"
check_eq 'each ends when it was gone' true "$(jq '[.versions[1:][].gone.time] | all(. != null)' "$WORK/history.json")"
"$HOLDFAST" put "$WORK/one" v:/f || fail 'put'
check_history 'after a put' f "$WORK/one" "$WORK/four" "$WORK/three" "$WORK/two" "$WORK/one"

# ---- names that move take their history along ----
mkdir "$M/d" && mv "$M/f" "$M/d/g" && flushed
cp "$WORK/two" "$M/d/g" && flushed
check_history 'a file that moved' d/g "$WORK/two" "$WORK/one" "$WORK/four" "$WORK/three" "$WORK/two" "$WORK/one"
mv "$M/d" "$M/e" && flushed
cp "$WORK/one" "$M/e/g" && flushed
check_history 'a folder that moved' e/g "$WORK/one" "$WORK/two" "$WORK/one" "$WORK/four" "$WORK/three" "$WORK/two" "$WORK/one"
check_status 0 "$HOLDFAST" history v:/e/g
check_contains 'the table says where' PATH "$WORK/out"
check_status 0 "$HOLDFAST" history v:/e/g --limit 2 --json
check_eq 'a limit cuts and says so' '[2,true]' "$(jq -c '[(.versions|length),.truncated]' "$WORK/out")"
check_status 4 "$HOLDFAST" history v:/nothing
check_one_line

# ---- restore, and the restore of the restore ----
check_status 0 "$HOLDFAST" restore v:/e/g --version "$(version e/g 4)" --dry-run
check_same 'a dry run does nothing' "$WORK/one" "$M/e/g"
check_status 0 "$HOLDFAST" restore v:/e/g --version "$(version e/g 4)" --json
check_eq 'one step' '[1,0,0,true]' "$(jq -c '[.done,.skipped,.failed,.synced]' "$WORK/out")"
run=$(jq -r .run "$WORK/out")
check_same 'a restored file' "$WORK/three" "$M/e/g"
check_same 'and its object' "$WORK/three" "$WORK/bucket/v/e/g"
check_eq 'it is a version of its own' 8 "$(history e/g | jq '.versions|length')"
check_status 0 "$HOLDFAST" undo --run "$run" v
check_same 'a restore undone' "$WORK/one" "$M/e/g"
check_status 0 "$HOLDFAST" restore v:/e/g
check_same 'restore without a version takes the one before' "$WORK/three" "$M/e/g"
before_h=$(date -u +%Y-%m-%dT%H:%M:%S.%NZ)
sleep 0.01
cp "$WORK/one" "$M/h" && flushed && cp "$WORK/two" "$M/h" && flushed
sleep 1.1
at=$(date -u +%Y-%m-%dT%H:%M:%SZ)
sleep 1.1
cp "$WORK/three" "$M/h" && flushed
check_status 0 "$HOLDFAST" restore v:/h --at "$at"
check_same 'restore to a time' "$WORK/two" "$M/h"
cp "$WORK/three" "$M/h" && flushed
check_status 0 "$HOLDFAST" restore v:/h --at "$(TZ=Asia/Tokyo date -d "$at" '+%Y-%m-%dT%H:%M:%S%:z')"
check_same 'restore to a time of another zone' "$WORK/two" "$M/h"
cp "$WORK/three" "$M/h" && flushed
TZ=Asia/Tokyo check_status 0 "$HOLDFAST" restore v:/h --at "$(TZ=Asia/Tokyo date -d "$at" '+%Y-%m-%d %H:%M:%S')"
check_same 'restore to a local time' "$WORK/two" "$M/h"
check_status 4 "$HOLDFAST" restore v:/h --version 01ARZ3NDEKTSV4RRFFQ69G5FAV
check_one_line
check_status 0 "$HOLDFAST" restore v:/h --at "$before_h" --json
check_eq 'a file goes back to a time when it was not there' '["remove"]' "$(jq -c '[.steps[].action]' "$WORK/out")"
[ ! -e "$M/h" ] || fail 'and is still there'
check_status 0 "$HOLDFAST" undo --run "$(jq -r .run "$WORK/out")" v
check_same 'and comes back by undo' "$WORK/two" "$M/h"

# ---- the trash: what is removed comes back with all that it was ----
mkdir -p "$M/box/deep"
cp "$WORK/two" "$M/box/a" && chmod 0640 "$M/box/a" && touch -d '2020-01-02T03:04:05.25Z' "$M/box/a"
setfattr -n user.colour -v blue "$M/box/a"
ln -s ../h "$M/box/link"
cp "$WORK/one" "$M/box/deep/b" && chmod 0755 "$M/box/deep/b"
: >"$M/box/empty"
flushed
python3 "$TREE" walk "$M/box" >"$WORK/box.json"
rm -r "$M/box" && flushed
check_status 0 "$HOLDFAST" trash v:/box --json
check_eq 'the trash of a folder' '["box/a","box/deep/b","box/empty","box/link"]' "$(jq -c '[.files[].path]' "$WORK/out")"
check_status 0 "$HOLDFAST" trash v
check_contains 'the trash of the volume' box/deep/b "$WORK/out"
check_status 0 "$HOLDFAST" trash v:/e --json
check_eq 'nothing is in the trash of another folder' 0 "$(jq '.files|length' "$WORK/out")"
"$HOLDFAST" cat --version "$(version box/a 0)" v:/box/a >"$WORK/got" || fail 'cat of a removed file'
check_same 'bytes of a removed file' "$WORK/two" "$WORK/got"
check_status 0 "$HOLDFAST" trash restore v:/box/a
check_same 'a file from the trash' "$WORK/two" "$M/box/a"
for path in box/link box/deep/b box/empty; do check_status 0 "$HOLDFAST" restore "v:/$path"; done
python3 "$TREE" walk "$M/box" >"$WORK/got.json"
python3 "$TREE" same "$WORK/box.json" "$WORK/got.json" || fail 'what came out of the trash is not what went in'
check_status 0 "$HOLDFAST" trash v:/box --json
check_eq 'what is back is in the trash no more' 0 "$(jq '.files|length' "$WORK/out")"
at=$(date -u +%Y-%m-%dT%H:%M:%S.%NZ)
sleep 0.01
rm -r "$M/box" && flushed
check_status 0 "$HOLDFAST" restore v:/box --at "$at"
python3 "$TREE" walk "$M/box" >"$WORK/got.json"
python3 "$TREE" same "$WORK/box.json" "$WORK/got.json" || fail 'a folder did not come back as it was'
rm -r "$M/box" && flushed
check_status 0 "$HOLDFAST" trash restore v:/box
python3 "$TREE" walk "$M/box" >"$WORK/got.json"
python3 "$TREE" same "$WORK/box.json" "$WORK/got.json" || fail 'a folder did not come out of the trash as it was'
check_status 1 "$HOLDFAST" restore v:/box --version "$(version box/a 0)"
check_one_line
check_status 4 "$HOLDFAST" restore v:/never

# ---- a name that is no text ----
odd=$(printf 'x\377y')
cp "$WORK/one" "$M/$odd" && flushed && cp "$WORK/two" "$M/$odd" && flushed
check_status 0 "$HOLDFAST" restore "v:/$odd"
check_same 'a restored file whose name is no text' "$WORK/one" "$M/$odd"
rm "$M/$odd" && flushed
check_status 0 "$HOLDFAST" trash restore "v:/$odd"
check_same 'and back from the trash' "$WORK/one" "$M/$odd"

# ---- diff ----
printf 'a\nb\nc\n' >"$M/text" && flushed
printf 'a\nB\nc\n' >"$M/text" && flushed
printf 'a\nB\nc\nd\n' >"$M/text" && flushed
check_status 0 "$HOLDFAST" diff v:/text
check_eq 'diff against the one before' '+d' "$(grep '^[+-][^+-]' "$WORK/out")"
check_status 0 "$HOLDFAST" diff v:/text --version "$(version text 2)" --version "$(version text 1)"
check_eq 'diff of two versions' $'-b\n+B' "$(grep '^[+-][^+-]' "$WORK/out")"
check_status 0 "$HOLDFAST" diff v:/text --version "$(version text 2)" --json
check_eq 'diff as JSON' '[false,false,true]' "$(jq -c '[.same,.binary,(.diff|contains("+d"))]' "$WORK/out")"
printf 'x\0y' >"$M/text" && flushed
check_status 0 "$HOLDFAST" diff v:/text
check_contains 'a binary file' "$(printf 'x\0y' | sha256sum | cut -d' ' -f1)" "$WORK/out"
echo alone >"$M/alone" && flushed
check_status 4 "$HOLDFAST" diff v:/alone
check_one_line

# ---- HTTP ----
old=$(version e/g 2)
get() { api GET "/v1/files/v/e/g?version=$old" -D "$WORK/head" "$@" >"$WORK/got"; }
header() { tr -d '\r' <"$WORK/head" | sed -n "s/^$1: //Ip" | head -n 1; }
get && cp "$WORK/got" "$WORK/old"
check_eq 'GET of an old version' 200 "$(api_status)"
check_eq 'its sum' "$(history e/g | jq -r '.versions[2].sha256')" "$(sum "$WORK/old")"
check_eq 'its ETag' "\"$old\"" "$(header ETag)"
check_eq 'it never changes' 'private, max-age=31536000, immutable' "$(header Cache-Control)"
get -H 'Range: bytes=100-199'
check_eq 'a range of it' '206 100' "$(api_status) $(stat -c %s "$WORK/got")"
check_eq 'the bytes of the range' "$(tail -c +101 "$WORK/old" | head -c 100 | sum /dev/stdin)" "$(sum "$WORK/got")"
get -H "If-None-Match: \"$old\""
check_eq 'a client that has it' 304 "$(api_status)"
api GET '/v1/files/v/e/g?version=01ARZ3NDEKTSV4RRFFQ69G5FAV' >/dev/null
check_eq 'a version that never was' 404 "$(api_status)"
api GET '/v1/files/v/e/g?version=' >/dev/null
check_eq 'no version' 400 "$(api_status)"
post() { api POST "/v1/$1" --data "$2" >/dev/null; }
post restore '{"volume":"v","path":"e/g","verion":"x"}'
check_eq 'a misspelt field' 400 "$(api_status)"
post restore '{"volume":"v","path":"","version":"x"}'
check_eq 'a version of a volume' 400 "$(api_status)"
post restore '{"volume":"v","path":"e/g","at":"last week"}'
check_eq 'no time, and no snapshot' 404 "$(api_status)"
post undo '{"volume":"v","run":"01ARZ3NDEKTSV4RRFFQ69G5FAV"}'
check_eq 'a run that never was' 404 "$(api_status)"
post undo '{"volume":"none","run":"01ARZ3NDEKTSV4RRFFQ69G5FAV"}'
check_eq 'no volume' 404 "$(api_status)"
api GET '/v1/trash/v?limit=0' >/dev/null
check_eq 'a limit of nothing' 400 "$(api_status)"
check_status 0 "$HOLDFAST" volume set v --read-only
post restore "{\"volume\":\"v\",\"path\":\"e/g\",\"version\":\"$old\"}"
check_eq 'a volume that is read-only' 403 "$(api_status)"
check_status 0 "$HOLDFAST" volume set v --read-write

# ---- after kill -9 and a restart it is all still there ----
history e/g >"$WORK/history.before"
gateway_kill
gateway_start "$WORK/state" "file://$WORK/bucket" --sync-rest 0s
history e/g >"$WORK/history.after"
check_same 'history after a restart' "$WORK/history.before" "$WORK/history.after"
