#!/usr/bin/env bash
# What one gateway brings into the bucket is seen by another within the stated bound, though listings are believed for an hour and
# the kernels were told so: created, overwritten, removed and renamed files and folders, attributes, through mounts and over HTTP
# (docs/mechanisms.md section 8). A gateway that is killed is made good for by a sweep. One that is alone writes nothing more than
# that it is there.
# timeout: 300
. "$(dirname "$0")/../support/lib.sh"
lib_begin change-log
need_fuse

BUCKET=$WORK/bucket
STATE_a='' STATE_b='' PID_a=''
ROUNDS=1
[ -z "${HOLDFAST_TEST_LONG:-}" ] || ROUNDS=6
BOUND_MS=5000 # docs/mechanisms.md section 8; what is waited for longer fails, the figure is told
start() { # NAME: a gateway with a mount of the volume
    gateway_start "$WORK/state-$1" "file://$BUCKET" --list-ttl 1h --sync-rest 0s --log debug
    mkdir -p "$WORK/$1"
    if [ "$1" = a ] && ! "$HOLDFAST" volume list 2>/dev/null | grep -q "^v"; then
        check_status 0 "$HOLDFAST" volume create v
    fi
    # A gateway that was killed mounts anew by itself.
    mountpoint -q "$WORK/$1" || check_status 0 "$HOLDFAST" mount v "$WORK/$1"
    defer "HOLDFAST_STATE='$HOLDFAST_STATE' '$HOLDFAST' umount '$WORK/$1' --force 2>/dev/null"
    eval "STATE_$1=\$HOLDFAST_STATE PID_$1=\$GATEWAY_PID"
}
shows() { [ "$(cat "$1" 2>/dev/null)" = "$2" ]; } # FILE TEXT
is_gone() { # by a look, and by a listing
    ! [ -e "$1" ] && [ -z "$(find "${1%/*}" -mindepth 1 -maxdepth 1 -name "${1##*/}" 2>/dev/null)" ]
}
mode_is() { [ "$(stat -c %a "$1" 2>/dev/null)" = "$2" ]; }
log_objects() { find "$BUCKET/.holdfast/log/v" -type f 2>/dev/null | wc -l; }
members() { find "$BUCKET/.holdfast/log/v" -mindepth 1 -maxdepth 1 -type d 2>/dev/null | wc -l; }

# From the moment that the bucket has it. Polled as a program does; nothing else makes the other gateway look.
WORST=0
seen() { # WHAT COMMAND...
    local what=$1 began took
    shift
    check_status 0 env HOLDFAST_STATE="$STATE_a" "$HOLDFAST" flush v
    began=$(now_ms)
    if ! wait_until 60 "$@"; then
        fail "$what is not seen"
        return
    fi
    took=$(($(now_ms) - began))
    [ "$took" -le "$WORST" ] || WORST=$took
}

# ---- alone: a sign, and no more ----
start a
A=$WORK/a
has_sign() { [ "$(log_objects)" = 1 ]; }
wait_until 30 has_sign || fail "a gateway that uses a volume has $(log_objects) objects in the change log"
echo one >"$A/f"
mkdir "$A/d"
echo two >"$A/d/g"
check_status 0 "$HOLDFAST" flush v
sleep 2
check_eq 'objects of a gateway that is alone' 1 "$(log_objects)"

# ---- another one comes: each learns of the other ----
start b
B=$WORK/b
two_members() { [ "$(members)" = 2 ]; }
wait_until 30 two_members || fail 'the second gateway does not say that it is there'
knows() { [ "$(grep -c 'another gateway follows' "$WORK/gateway.log")" -ge 2 ]; }
wait_until 60 knows || fail 'the gateways do not find one another'
shows "$B/f" one || fail 'the first file'
shows "$B/d/g" two || fail 'the first file in a folder'
ls -l "$B" "$B/d" >/dev/null
[ ! -e "$B/new" ] || fail 'a file before its time' # a negative entry, believed for an hour

# Several changes at once, each of which has to be seen.
for ((i = 1; i <= ROUNDS; i++)); do
    echo "new $i" >"$A/new"
    echo "over $i" >"$A/f"
    echo "same$i" >"$A/d/g" # the second time as long as before
    printf 'by hand %s\n' "$i" | HOLDFAST_STATE=$STATE_a "$HOLDFAST" put - "v:/d/put$i" || fail put
    written() { shows "$B/new" "new $i" && shows "$B/f" "over $i" && shows "$B/d/g" "same$i" && shows "$B/d/put$i" "by hand $i"; }
    seen 'a new file, an overwritten one, one of the same size, one that was put over HTTP' written
    chmod "60$i" "$A/d/g"
    mv "$A/new" "$A/d/moved"
    mkdir -p "$A/x/y"
    echo deep >"$A/x/y/z"
    moved() { mode_is "$B/d/g" "60$i" && shows "$B/d/moved" "new $i" && is_gone "$B/new" && shows "$B/x/y/z" deep; }
    seen 'a mode, a renamed file, new folders' moved
    mv "$A/x" "$A/w"
    rm "$A/d/put$i"
    renamed() { shows "$B/w/y/z" deep && is_gone "$B/x" && is_gone "$B/d/put$i"; }
    seen 'a renamed folder, a removed file' renamed
    rm -r "$A/w"
    rm "$A/d/moved"
    removed() { is_gone "$B/w" && is_gone "$B/d/moved"; }
    seen 'a removed folder' removed
    [ "$LIB_FAILED" = 0 ] || break
done

# ---- names that are no text, and many at once ----
name=$(printf 'n\xff\xc3')
echo odd >"$A/$name"
mkdir "$A/many"
(cd "$A/many" && for i in $(seq 300); do echo "$i" >"$i"; done)
all_many() { shows "$B/$name" odd && [ "$(find "$B/many" -type f 2>/dev/null | wc -l)" = 300 ]; }
seen '300 files, and a name that is no UTF-8' all_many
note "changes of another gateway are seen after $WORST ms at most (bound $BOUND_MS ms), listings believed for an hour"
[ "$WORST" -le $((BOUND_MS * 4)) ] || fail "a change was seen after $WORST ms"

# ---- the other way round, and an open file ----
exec 5<"$A/f"
before=$(cat "$A/f")
echo theirs >"$B/f"
check_status 0 env HOLDFAST_STATE="$STATE_b" "$HOLDFAST" flush v
wait_until 60 shows "$A/f" theirs || fail 'a change of the second gateway'
check_eq 'who has it open keeps its bytes' "$before" "$(cat <&5)"
exec 5<&-

# ---- killed in the middle: what it had not told is found by a sweep ----
echo untold >"$A/untold"
kill -KILL "$PID_a"
wait "$PID_a" 2>/dev/null
HOLDFAST_STATE=$STATE_a "$HOLDFAST" umount "$A" --force 2>/dev/null || umount -l "$A" 2>/dev/null
start a
check_status 0 env HOLDFAST_STATE="$STATE_a" "$HOLDFAST" flush v
wait_until 60 shows "$B/untold" untold || fail 'what a gateway did before it was killed'

# ---- an orderly end: nothing is left untold ----
echo last >"$A/last"
check_status 0 env HOLDFAST_STATE="$STATE_a" "$HOLDFAST" umount "$A"
stop_pid "$PID_a"
wait_until 60 shows "$B/last" last || fail 'the last change of a gateway that ended'
