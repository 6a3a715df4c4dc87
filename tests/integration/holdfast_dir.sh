#!/usr/bin/env bash
# `.holdfast/` as an agent uses it that has only a shell: status, what is saved, conflicts, events; and that nothing there can be changed.
# timeout: 180
# shellcheck disable=SC2016 # $ENV is jq's
. "$(dirname "$0")/../support/lib.sh"
lib_begin holdfast-dir
need_fuse

gateway_start "$WORK/state" "file://$WORK/bucket"
check_status 0 "$HOLDFAST" volume create v
mkdir "$WORK/m" "$WORK/sub"
M=$WORK/m
H=$M/.holdfast
export RUN=01KB8Q4Z017M3XW9D2TR5VNC6H
check_status 0 "$HOLDFAST" mount v "$M" --run "$RUN" --lease 30
defer "'$HOLDFAST' umount '$M' --force 2>/dev/null"
umask 022

# ---- there, and not in the way ----
check_eq 'not listed' '' "$(ls -A "$M")"
check_eq 'its files' 'README at conflict conflicts events flush status unsynced versions' "$(find "$H" -mindepth 1 -maxdepth 1 -printf '%f\n' | sort | xargs)"
check_status 0 find "$M" -mindepth 1
[ ! -s "$WORK/out" ] || fail "find sees it: $(cat "$WORK/out")"
check_status 0 head -n 3 "$H/README"
check_contains 'the help names the volume' '"v" (read and write)' "$WORK/out"

# ---- status: one line of JSON, by any means of reading ----
check_status 0 jq -e '.format == 1 and .volume == "v" and .run == $ENV.RUN and .read_only == false and .store.state == "ok"
    and .unsynced.files == 0 and .lease.left_s > 1700 and .lease.left_s <= 1800' "$H/status"
check_eq 'one line' 1 "$(wc -l <"$H/status")"
check_status 0 python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["volume"])' "$H/status"
check_eq 'python reads it' v "$(cat "$WORK/out")"
check_status 0 grep -c '"volume":"v"' "$H/status"
check_eq 'head -c' '{"form' "$(head -c 6 "$H/status")"
check_eq 'tail -c' ']}' "$(tail -c 3 "$H/status")"
check_status 0 cp "$H/README" "$WORK/readme"
check_same 'cp' "$H/README" "$WORK/readme"
check_eq 'size of a copy' "$(stat -c %s "$H/README")" "$(wc -c <"$WORK/readme")"

check_status 0 flock -s -n "$H/status" true

# ---- is it saved? ----
[ ! -s "$H/unsynced" ] || fail "something is unsynced in an empty volume: $(cat "$H/unsynced")"
mkdir "$M/d"
printf 'one' >"$M/d/a"
printf 'two' >"$M/d/ü 'b\"\\
c"
printf 'raw' >"$M/d/"$'\xff\xfe'
check_status 0 jq -e '.synced == true and .pending == 0' "$H/flush"
[ ! -s "$H/unsynced" ] || fail "unsynced after a flush: $(cat "$H/unsynced")"
check_eq 'in the bucket by then' one "$(cat "$WORK/bucket/v/d/a")"
printf 'three' >"$M/d/late"
check_status 0 sh -c "echo now >'$H/flush'"
check_eq 'written to' three "$(cat "$WORK/bucket/v/d/late")"

# The bucket cannot be written: it says so, and says what waits.
chattr +i "$WORK/bucket/v" "$WORK/bucket/v/d" 2>/dev/null && away=1 || away=
if [ -n "$away" ]; then
    defer "chattr -i '$WORK/bucket/v' '$WORK/bucket/v/d' 2>/dev/null"
    printf 'waits' >"$M/d/waits"
    check_status 0 wait_until 10 test -s "$H/unsynced"
    check_status 0 jq -s -e 'map(.path) | index("d/waits") != null' "$H/unsynced"
    check_status 0 jq -e '.unsynced.files >= 1' "$H/status"
    [ "$(wc -c <"$H/unsynced")" -gt 0 ] || fail 'what waits has no size'
    chattr -i "$WORK/bucket/v" "$WORK/bucket/v/d"
    check_status 0 wait_until 60 sh -c "cat '$H/flush' | jq -e .synced"
    check_eq 'when it can be written again' waits "$(cat "$WORK/bucket/v/d/waits")"
fi

# ---- events ----
timeout 20 tail -n +1 -f "$H/events" >"$WORK/tail" 2>/dev/null &
TAIL=$!
defer "stop_pid $TAIL"
check_status 0 wait_until 10 grep -q '"path":"d/late"' "$WORK/tail"
printf 'seen' >"$M/d/seen"
mv "$M/d/seen" "$M/d/moved"
rm "$M/d/moved"
check_status 0 curl -sS -f -m 10 -X PUT -H "Authorization: Bearer $(gateway_token)" -H 'If-None-Match: *' --data-binary other "$URL/v1/files/v/d/http"
check_status 0 wait_until 10 grep -q '"op":"remove","path":"d/moved"' "$WORK/tail"
check_status 0 wait_until 10 grep -q '"type":"synced","path":"d/http"' "$WORK/tail"
stop_pid "$TAIL"
check_contains 'made' '"op":"create","path":"d/seen"' "$WORK/tail"
check_contains 'moved' '"op":"move_from","path":"d/seen"' "$WORK/tail"
check_status 0 jq -s -e '.[0].first_seq <= .[1].seq and ([.[1:][].seq] == ([.[1:][].seq] | sort | unique)) and all(.[1:][]; .time and .type)' "$WORK/tail"
check_eq 'raw names too' "$(printf 'd/\xff\xfe' | base64)" "$(jq -r 'select(.path_b64 and .op == "create").path_b64' "$WORK/tail" | head -n 1)"
check_eq 'cat and wc agree' "$(stat -c %s "$H/events")" "$(wc -c <"$H/events")"
# More than are kept: the text goes on, without doubles, and says what is missing.
for i in $(seq 600); do : >"$M/d/many$((i % 5))"; done
check_status 0 jq -s -e '[.[] | select(.seq)] | (map(.seq) == (map(.seq) | sort | unique)) and length > 500' "$H/events"

# ---- somebody else changed the same file ----
check_status 0 jq -e .synced "$H/flush"
printf 'base' >"$M/d/shared"
check_status 0 jq -e .synced "$H/flush"
exec 7<>"$M/d/shared"
printf 'mine' >&7
printf 'theirs' >"$WORK/theirs"
cp "$WORK/theirs" "$WORK/bucket/v/d/shared"
exec 7>&-
check_status 0 wait_until 20 test -s "$H/conflicts"
check_status 0 jq -e '.path == "d/shared" and .why == "changed_meanwhile" and .run == $ENV.RUN' "$H/conflicts"
DIR=$M/$(jq -r .dir "$H/conflicts")
check_eq 'both are kept' 'mine theirs' "$(cat "$DIR/mine") $(cat "$DIR/theirs")"
check_eq 'its files' 'base info merged mine theirs' "$(find "$DIR" -mindepth 1 -printf '%f\n' | sort | xargs)"
check_same 'info' "$H/conflicts" "$DIR/info"
check_eq 'listed' "$(basename "$DIR")" "$(ls "$H/conflict")"
check_eq 'the attribute' "$(basename "$DIR")" "$(getfattr --only-values -n user.holdfast.conflict "$M/d/shared" 2>/dev/null)"
check_status 0 jq -e '.conflicts == 1 and (.messages | length) == 1' "$H/status"
check_status 0 wait_until 20 sh -c "jq -e .synced '$H/flush' && cat '$DIR/mine' | grep -qx mine"
check_status 1 diff "$DIR/mine" "$DIR/theirs"

# ---- nothing here can be changed ----
for command in "touch $H/new" "mkdir $H/new" "rm $H/status" "rmdir $H/conflict" "rmdir $DIR" "mv $H/status $M/x" \
    "mv $M/d $H/d" "ln -s x $H/x" "ln $M/d/a $H/x" "truncate -s 0 $H/status" "chmod 777 $H" "dd if=/dev/zero of=$H/events count=1 status=none"; do
    # shellcheck disable=SC2086 # words
    check_status 1 $command
done
check_status 0 jq -e .format "$H/status"
[ ! -e "$WORK/bucket/v/.holdfast" ] || fail 'it is in the bucket'

# ---- a mounted folder shows nothing of its neighbours; read-only ----
mkdir "$M/e"
printf 'secret' >"$M/e/neighbour"
check_status 0 "$HOLDFAST" mount v/d "$WORK/sub" --read-only
defer "'$HOLDFAST' umount '$WORK/sub' --force 2>/dev/null"
S=$WORK/sub/.holdfast
cat "$S/events" "$S/conflicts" "$S/unsynced" >/dev/null
printf 'secret' >"$M/e/neighbour2"
printf 'shown' >"$M/d/shown"
check_status 0 wait_until 10 grep -q '"path":"shown"' "$S/events"
grep -q neighbour "$S/events" "$S/unsynced" "$S/status" && fail 'a neighbour is seen'
check_status 0 jq -e '.folder == "d" and .read_only == true' "$S/status"
check_eq 'paths as seen there' shared "$(jq -r .path "$S/conflicts")"
check_eq 'theirs' theirs "$(cat "$S/conflict/"*/theirs)"
check_status 0 "$HOLDFAST" umount "$WORK/sub"

# What a program asked inside the mount takes no news away from whoever has to hear of the conflict.
check_status 3 "$HOLDFAST" umount "$M"
gateway_stop

# ---- what is open there goes on when the gateway is replaced ----
export HOLDFAST_TAKEOVER=respawn
gateway_start "$WORK/state" "file://$WORK/bucket"
pid_now() { "$HOLDFAST" status --json | jq -r .pid; }
stop_successor() {
    local pid
    pid=$(pid_now) && kill "$pid" && wait_until 30 test ! -d "/proc/$pid"
}
defer stop_successor
if [ "$("$HOLDFAST" status --json | jq -r .takeover.possible)" = true ]; then
    check_status 0 "$HOLDFAST" mount v "$M"
    exec 5<"$H/README" 6<"$H/status" 7<"$H/events"
    check_eq 'first bytes' HOLDFAST "$(dd bs=8 count=1 status=none <&5)"
    gateway_kill
    check_eq 'the rest of the help' "$(tail -c +9 "$H/README" | cksum)" "$(cksum <&5)"
    check_status 0 jq -e '.volume == "v"' /dev/fd/6
    printf 'after' >"$M/d/after"
    check_status 0 wait_until 10 grep -q '"path":"d/after"' "$H/events"
    check_eq 'events anew' first_seq "$(head -n 1 <&7 | jq -r 'keys[0]')"
    check_eq 'attributes of a file' v/d/after "$(getfattr --only-values -n user.holdfast.key "$M/d/after" 2>/dev/null)"
    exec 5<&- 6<&- 7<&-
    check_status 0 "$HOLDFAST" umount "$M"
else
    note "no takeover here: that part is left out"
fi
