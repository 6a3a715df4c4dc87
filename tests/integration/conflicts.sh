#!/usr/bin/env bash
# Conflicts from end to end: an independent writer changes objects behind the gateway's back, a program in a mount loses; the loser is
# listed, compared, merged and resolved in every way, by command and by HTTP; races and a killed gateway lose nothing (S25, S26).
# timeout: 180
. "$(dirname "$0")/../support/lib.sh"
lib_begin conflicts
need_fuse

B=$WORK/bucket
gateway_start "$WORK/state" "file://$B"
check_status 0 "$HOLDFAST" volume create v
mkdir "$WORK/m"
M=$WORK/m
H=$M/.holdfast
check_status 0 "$HOLDFAST" mount v "$M"
defer "'$HOLDFAST' umount '$M' --force 2>/dev/null"
umask 022

# The texts of one round. Each round has its own: bytes that an unanswered request named as its condition are not sent again so soon.
ROUND=0
texts() {
    ROUND=$((ROUND + 1))
    printf '1\n2\n3\n4\n5\n6\nround %d\n' "$ROUND" >"$WORK/base"
    sed 's/^1$/one/' "$WORK/base" >"$WORK/mine"
    sed 's/^6$/six/' "$WORK/base" >"$WORK/theirs"
    sed 's/^6$/six/' "$WORK/mine" >"$WORK/both"
    sed 's/^6$/SIX/' "$WORK/base" >"$WORK/over"
}

count() { "$HOLDFAST" conflicts list v --json | jq '.conflicts | length'; }
has_more() { [ "$(count)" -gt "$1" ]; }
losers() { find "$B/.holdfast/conflicts" -type f 2>/dev/null | grep -cv '\.hf~'; }
# A program writes FILE's bytes over PATH while the other writer puts THEIRS there; sets ID.
lose() { # PATH MINE THEIRS|-
    local before
    before=$(count)
    exec 7<>"$M/$1"
    cat "$2" >&7
    if [ "$3" = - ]; then rm "$B/v/$1"; else cp --remove-destination "$3" "$B/v/$1"; fi
    exec 7>&-
    wait_until 20 has_more "$before" || fail_now "no conflict at '$1'"
    ID=$("$HOLDFAST" conflicts list v --json | jq -r '.conflicts[-1].id')
    DIR=$H/conflict/$ID
}
make() { # PATH [MINE] [THEIRS]: from the base
    texts
    cp "$WORK/base" "$M/$1"
    jq -e .synced "$H/flush" >/dev/null || fail "the base of '$1' is not in the bucket"
    lose "$1" "${2:-$WORK/mine}" "${3:-$WORK/theirs}"
}
resolve() { # WANTED-STATUS KEEP [ARG...]
    local wanted=$1 keep=$2
    shift 2
    check_status "$wanted" "$HOLDFAST" conflicts resolve "$ID" --keep "$keep" "$@"
}
ended() { # the record, its bytes and all that tells of it are gone
    check_status 4 "$HOLDFAST" conflicts show "$ID"
    [ ! -e "$DIR" ] || fail "$DIR is still there"
    ! grep -q "$ID" "$H/conflicts" || fail "$ID is still in .holdfast/conflicts"
    jq -e .synced "$H/flush" >/dev/null
    [ ! -e "$B/.holdfast/conflicts/v/$ID" ] || fail "the loser's object of $ID is still in the bucket"
}

# ---- listed, shown, compared ----
check_status 0 "$HOLDFAST" conflicts list
check_status 0 "$HOLDFAST" conflicts
make f.txt
check_status 0 "$HOLDFAST" conflicts list v
check_contains 'the table' "$ID" "$WORK/out"
check_contains 'its file' 'v:/f.txt' "$WORK/out"
check_status 4 "$HOLDFAST" conflicts list nosuch
check_status 0 "$HOLDFAST" conflicts show "$ID"
check_contains 'who' 'mount' "$WORK/out"
check_contains 'that it can be merged' 'keep merge' "$WORK/out"
check_status 0 "$HOLDFAST" conflicts show "$ID" --json
check_eq 'as JSON' '["clean","conflict","f.txt","v",22,22]' "$(jq -c '[.merge,.reason,.path,.volume,.size,.now.size]' "$WORK/out")"
(cd "$WORK" && diff -u --label theirs --label mine theirs mine) >"$WORK/wanted"
check_status 0 "$HOLDFAST" conflicts diff "$ID"
check_same 'a diff is that of diff(1)' "$WORK/wanted" "$WORK/out"
(cd "$WORK" && diff -u --label base --label merged base both) >"$WORK/wanted"
check_status 0 "$HOLDFAST" conflicts diff "$ID" --from base --to merged
check_same 'between other sides' "$WORK/wanted" "$WORK/out"
check_status 0 "$HOLDFAST" conflicts diff "$ID" --json
check_eq 'diff as JSON' "$ID theirs mine" "$(jq -r '.id + " " + .from + " " + .to' "$WORK/out")"
for usage in "conflicts frobnicate" "conflicts show" "conflicts show nope" "conflicts resolve $ID" \
    "conflicts resolve $ID --keep all" "conflicts resolve $ID --keep mine --base x --create" "conflicts diff $ID --from nowhere"; do
    # shellcheck disable=SC2086 # words
    check_status 2 "$HOLDFAST" $usage
    check_one_line
done
check_status 4 "$HOLDFAST" conflicts show 01ARZ3NDEKTSV4RRFFQ69G5FAV
check_status 0 "$HOLDFAST" conflicts --help
check_contains 'help has an example' 'example: holdfast conflicts' "$WORK/out"
"$HOLDFAST" status >"$WORK/out"
check_contains 'status points there' 'holdfast conflicts list' "$WORK/out"

check_eq 'the listing marks it' 'f.txt' "$("$HOLDFAST" ls --json v:/ | jq -r '[.entries[] | select(.conflict) | .name] | join(" ")')"
check_eq 'so does stat' true "$("$HOLDFAST" stat --json v:/f.txt | jq .conflict)"

# ---- inside the mount ----
check_eq 'its files' 'base info merged mine theirs' "$(find "$DIR" -mindepth 1 -printf '%f\n' | sort | xargs)"
for side in base mine theirs; do check_same "$side in the mount" "$WORK/$side" "$DIR/$side"; done
(cd "$WORK" && diff3 -m mine base theirs) >"$WORK/wanted"
check_same 'merged is what diff3 says' "$WORK/wanted" "$DIR/merged"
check_eq 'its size' "$(stat -c %s "$WORK/both")" "$(stat -c %s "$DIR/merged")"
check_status 1 bash -c "echo x >'$DIR/merged'"
check_status 0 ls -l "$DIR/"

# ---- each way ----
resolve 0 merge
check_same 'merged, in the bucket' "$WORK/both" "$B/v/f.txt"
check_same 'merged, in the mount' "$WORK/both" "$M/f.txt"
ended
check_status 0 wait_until 10 grep -q '"type":"resolved","path":"f.txt"' "$H/events"

make f.txt
check_eq 'the attribute' "$ID" "$(getfattr --only-values -n user.holdfast.conflict "$M/f.txt" 2>/dev/null)"
resolve 0 mine
check_same 'mine, in the bucket' "$WORK/mine" "$B/v/f.txt"
check_same 'mine, in the mount' "$WORK/mine" "$M/f.txt"
ended
check_eq 'nor does the listing mark it' false "$("$HOLDFAST" stat --json v:/f.txt | jq .conflict)"
! getfattr -n user.holdfast.conflict "$M/f.txt" >/dev/null 2>&1 || fail 'the attribute names a conflict that is over'

make f.txt
resolve 0 theirs --json
check_eq 'nothing written' '[false,"f.txt"]' "$(jq -c '[.written,.path]' "$WORK/out")"
check_same 'theirs, in the bucket' "$WORK/theirs" "$B/v/f.txt"
ended

mkdir "$M/d"
make d/f.txt
resolve 0 both --json
SIBLING=$(jq -r .path "$WORK/out")
case $SIBLING in "d/f (conflict "????").txt") ;; *) fail "the sibling's name is '$SIBLING'" ;; esac
check_same 'mine beside it' "$WORK/mine" "$M/$SIBLING"
check_same 'in the bucket too' "$WORK/mine" "$B/v/$SIBLING"
check_same 'theirs at the path' "$WORK/theirs" "$M/d/f.txt"
ended

make d/g.txt "$WORK/mine" -
resolve 3 merge
check_one_line
resolve 0 mine
check_same 'a removed file is back' "$WORK/mine" "$B/v/d/g.txt"
ended

# ---- a save by rename has a base too ----
texts
cp "$WORK/base" "$M/sed.txt"
jq -e .synced "$H/flush" >/dev/null
BEFORE=$(count)
cp --remove-destination "$WORK/theirs" "$B/v/sed.txt"
check_status 0 sed -i 's/^1$/one/' "$M/sed.txt"
wait_until 20 has_more "$BEFORE" || fail_now "no conflict at 'sed.txt'"
ID=$("$HOLDFAST" conflicts list v --json | jq -r '.conflicts[-1].id')
DIR=$H/conflict/$ID
check_same 'its base' "$WORK/base" "$DIR/base"
resolve 0 merge
check_same 'merged' "$WORK/both" "$B/v/sed.txt"
ended

# ---- conflict_copy=on: the sibling is there at once ----
check_status 2 "$HOLDFAST" volume set v --conflict-copy maybe
check_status 0 "$HOLDFAST" volume set v --conflict-copy on
check_eq 'the setting' true "$("$HOLDFAST" volume show v --json | jq .conflict_copy)"
check_eq 'in the bucket too' true "$(jq .conflict_copy "$B/.holdfast/volumes/v.json")"
mkdir "$M/cc"
make cc/a.txt
SIBLING="cc/a (conflict $(printf %s "${ID:22:4}" | tr '[:upper:]' '[:lower:]')).txt"
check_status 0 wait_until 10 test -e "$M/$SIBLING"
check_same 'mine beside it' "$WORK/mine" "$M/$SIBLING"
check_same 'theirs at the path' "$WORK/theirs" "$M/cc/a.txt"
resolve 0 both --json
check_eq 'nothing to write' false "$(jq .written "$WORK/out")"
check_eq 'one sibling' 2 "$(find "$M/cc" -type f | wc -l)"
ended
check_same 'in the bucket' "$WORK/mine" "$B/v/$SIBLING"
check_status 0 "$HOLDFAST" volume set v --conflict-copy off

# ---- what overlaps, and races: exit status 3, nothing changed ----
make f.txt "$WORK/over"
resolve 3 merge
check_one_line
check_contains 'advice' 'keep mine, theirs or both' "$WORK/err"
check_contains 'marks' '<<<<<<< mine' "$DIR/merged"
printf 'third' >"$WORK/third"
cp "$WORK/third" "$M/f.txt"
jq -e .synced "$H/flush" >/dev/null
resolve 3 mine
check_one_line
check_same 'not overwritten' "$WORK/third" "$B/v/f.txt"
cp --remove-destination "$WORK/both" "$B/v/f.txt" # nobody here has seen it
resolve 3 mine --base "$("$HOLDFAST" conflicts show "$ID" --json | jq -r .now.version)"
check_same 'nor what only the bucket had' "$WORK/both" "$B/v/f.txt"
check_eq 'one conflict, not two' 1 "$(count)"
resolve 0 mine --base "$("$HOLDFAST" conflicts show "$ID" --json | jq -r .now.version)"
check_same 'what was seen is replaced' "$WORK/over" "$B/v/f.txt"
ended

# ---- HTTP ----
make f.txt
http() { # WANTED METHOD PATH [CURL-ARG...]
    local wanted=$1
    shift
    api "$@" >"$WORK/out"
    check_eq "$1 $2" "$wanted" "$(api_status)"
}
http 200 GET "/v1/conflicts?volume=v"
check_eq 'listed' "[\"$ID\",\"v\"]" "$(jq -c '[.conflicts[0].id,.conflicts[0].volume]' "$WORK/out")"
http 200 GET "/v1/conflicts/$ID"
check_eq 'shown' clean "$(jq -r .merge "$WORK/out")"
for side in base mine theirs; do
    http 200 GET "/v1/conflicts/$ID/$side"
    check_same "$side over HTTP" "$WORK/$side" "$WORK/out"
done
http 200 GET "/v1/conflicts/$ID/merged"
check_same 'merged over HTTP' "$WORK/both" "$WORK/out"
http 200 GET "/v1/conflicts/$ID/diff?from=theirs&to=mine"
http 400 GET "/v1/conflicts/$ID/diff?from=here"
http 404 GET "/v1/conflicts/$ID/other"
http 404 GET "/v1/conflicts/$ID/mine/more"
http 404 GET /v1/conflicts/nope
http 404 GET /v1/conflicts/01ARZ3NDEKTSV4RRFFQ69G5FAV/mine
http 405 PUT "/v1/conflicts/$ID/resolve"
http 400 POST "/v1/conflicts/$ID/resolve" -d '{"keep":"all"}'
http 400 POST "/v1/conflicts/$ID/resolve" -d '{"keep":"mine","force":true}'
http 412 POST "/v1/conflicts/$ID/resolve" -H 'If-Match: "other"' -d '{"keep":"mine"}'
check_eq 'what is there' "$(stat -c %s "$WORK/theirs")" "$(jq .current.size "$WORK/out")"
http 200 POST "/v1/conflicts/$ID/resolve" -d '{"keep":"merge"}'
check_same 'merged by HTTP' "$WORK/both" "$B/v/f.txt"
ended
make f.txt "$WORK/over"
http 409 POST "/v1/conflicts/$ID/resolve" -d '{"keep":"merge"}'
check_eq 'its code' no-merge "$(jq -r .code "$WORK/out")"
http 200 POST "/v1/conflicts/$ID/resolve" -d '{"keep":"theirs"}'
ended

# ---- killed in the middle ----
rounds=2
[ -z "${HOLDFAST_TEST_LONG:-}" ] || rounds=40
for ((i = 0; i < rounds; i++)); do
    make k.txt
    keep=mine
    [ $((i % 2)) = 0 ] || keep=merge
    "$HOLDFAST" conflicts resolve "$ID" --keep "$keep" >/dev/null 2>&1 &
    RESOLVE=$!
    sleep "0.0$((RANDOM % 5))$((RANDOM % 10))"
    gateway_kill
    wait "$RESOLVE" 2>/dev/null
    umount "$M" 2>/dev/null || umount -l "$M" 2>/dev/null
    gateway_start "$WORK/state" "file://$B"
    findmnt -n "$M" >/dev/null || "$HOLDFAST" mount v "$M" >/dev/null || fail_now 'it cannot be mounted again'
    if "$HOLDFAST" conflicts show "$ID" >/dev/null 2>&1; then
        check_same "mine is whole after a kill ($i)" "$WORK/mine" "$DIR/mine"
        resolve 0 "$keep"
    fi
    [ "$keep" = mine ] && wanted=$WORK/mine || wanted=$WORK/both
    check_same "the bytes after a kill ($i)" "$wanted" "$B/v/k.txt"
    check_same "and in the mount ($i)" "$wanted" "$M/k.txt"
    ended
done

# ---- sync=close: close(2) and fsync(2) themselves say it ----
texts
check_status 0 "$HOLDFAST" volume create c --sync close
mkdir "$WORK/c"
check_status 0 "$HOLDFAST" mount c "$WORK/c"
defer "'$HOLDFAST' umount '$WORK/c' --force 2>/dev/null"
cp "$WORK/base" "$WORK/c/a"
cp "$WORK/base" "$WORK/c/b"
check_status 0 python3 - "$WORK/c" "$B/c" "$WORK/theirs" <<'PY'
import errno, os, shutil, sys
mount, bucket, theirs = sys.argv[1:]
def lose(name, call):
    fd = os.open(f"{mount}/{name}", os.O_RDWR)
    os.write(fd, b"mine")
    os.unlink(f"{bucket}/{name}")
    shutil.copyfile(theirs, f"{bucket}/{name}")
    try:
        call(fd)
    except OSError as e:
        if e.errno != errno.ESTALE:
            sys.exit(f"{call.__name__}: {e}")
    else:
        sys.exit(f"{call.__name__} said that all is well")
    return fd
lose("a", os.close)
os.close(lose("b", os.fsync))
PY
check_eq 'both are kept' 2 "$("$HOLDFAST" conflicts list c --json | jq '.conflicts | length')"
check_same 'theirs stands' "$WORK/theirs" "$B/c/a"
check_same 'theirs stands' "$WORK/theirs" "$WORK/c/b"
for ID in $("$HOLDFAST" conflicts list c --json | jq -r '.conflicts[].id'); do resolve 0 theirs; done
check_status 0 "$HOLDFAST" umount "$WORK/c"

check_eq 'no loser is left in the bucket' 0 "$(losers)"
check_status 0 "$HOLDFAST" umount "$M"
