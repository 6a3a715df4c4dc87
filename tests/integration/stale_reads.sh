#!/usr/bin/env bash
# A run reads files, others change them, and the run writes: what it wrote is marked in the history, as an event and in the
# status, or refused where the volume says so. What it read again, or changed itself, is not stale; a file that others replaced or
# removed is. After a restart of the gateway the run counts as not complete.
# timeout: 120
. "$(dirname "$0")/../support/lib.sh"
lib_begin stale-reads
need_fuse

R1=01KB9ZZZZZ0123456789ABCDE1
R2=01KB9ZZZZZ0123456789ABCDE2
R3=01KB9ZZZZZ0123456789ABCDE3
P=$WORK/person R=$WORK/run
umask 022
mkdir "$P" "$R"
for dir in "$P" "$R"; do defer "while umount '$dir' 2>/dev/null; do :; done"; done
gateway_start "$WORK/state" "file://$WORK/bucket"
check_status 0 "$HOLDFAST" volume create v
check_status 0 "$HOLDFAST" mount v "$P"
check_status 0 "$HOLDFAST" mount v "$R" --run $R1

marks() { # FILE [VOLUME]: what is told of its present version
    "$HOLDFAST" history "${2:-v}:$1" --json | jq -c '.versions[0].stale_reads // "none"'
}
settled() { # FILE: the writer's close has made its version
    wait_until 30 sh -c "\"$HOLDFAST\" history v:$1 --json | jq -e '.versions[0].version != \"\"'" || fail "$1 has no version"
}
person() { # FILE TEXT: and everybody knows
    echo "$2" >"$P/$1" && check_status 0 "$HOLDFAST" flush v --timeout 60
}
run_writes() { # FILE
    echo "by the run" >"$R/$1" || fail "the run cannot write $1"
    settled "$1"
}

# ---- marked ----
for f in a b c d; do echo "$f 1" >"$P/$f"; done
check_status 0 "$HOLDFAST" flush v --timeout 60
cat "$R/a" "$R/b" "$R/c" "$R/d" >/dev/null
run_writes clean
check_eq 'nothing has changed yet' '"none"' "$(marks clean)"
person a 'a 2'
run_writes out
check_eq 'the mark' '{"changed":1,"complete":true,"inputs":[{"volume":"v","path":"a"}]}' "$(marks out)"
wait_until 30 sh -c "jq -es 'any(.[]; .type == \"stale\" and .path == \"out\")' '$P/.holdfast/events'" || fail 'no event'
check_eq 'the status' '4 1 true 1 0' "$(jq -r '.stale_reads | "\(.inputs) \(.changed) \(.complete) \(.marked) \(.refused)"' "$R/.holdfast/status")"
check_eq 'who is no run has none' null "$(jq .stale_reads "$P/.holdfast/status")"
cat "$R/a" >/dev/null
run_writes again
check_eq 'what is read again is fresh' '"none"' "$(marks again)"

# ---- what others do to a name counts; what the run does itself does not ----
echo new >"$P/b.new" && mv "$P/b.new" "$P/b" && rm "$P/c"
check_status 0 "$HOLDFAST" flush v --timeout 60
run_writes third
check_eq 'replaced and removed' '2 b c' "$(marks third | jq -r '"\(.changed) \([.inputs[].path] | sort | join(" "))"')"
cat "$R/b" >/dev/null
echo c >"$R/c" && cat "$R/c" >/dev/null
echo own >>"$R/a" && cat "$R/a" >/dev/null && echo own >"$R/d.new" && mv "$R/d.new" "$R/d" && rm "$R/b"
check_eq 'all is read again, or its own' 0 "$(jq .stale_reads.changed "$R/.holdfast/status")"

# ---- over HTTP ----
echo one >"$P/h"
check_status 0 "$HOLDFAST" flush v --timeout 60
as() { # RUN METHOD PATH [CURL-ARG...]
    local run=$1
    shift
    api "$@" -H "Holdfast-Run: $run"
}
check_eq 'read over HTTP' one "$(as $R2 GET /v1/files/v/h)"
person h two
as $R2 PUT /v1/files/v/made -H 'If-None-Match: *' --data-binary made >/dev/null
check_eq 'written over HTTP' 201 "$(api_status)"
check_eq 'its mark' '{"changed":1,"complete":true,"inputs":[{"volume":"v","path":"h"}]}' "$(marks made)"
check_eq 'told of the run' '1 1 1' "$(api GET /v1/runs/$R2 | jq -r '"\(.inputs) \(.changed) \(.marked)"')"

# ---- refused ----
check_status 1 "$HOLDFAST" volume set v --stale-reads sometimes
check_status 0 "$HOLDFAST" volume set v --stale-reads refuse
check_eq 'in the bucket' '"refuse"' "$(jq .stale_reads "$WORK/bucket/.holdfast/volumes/v.json")"
cat "$R/a" >/dev/null
person a 'a 3'
as $R2 PUT /v1/files/v/made2 -H 'If-None-Match: *' --data-binary made >/dev/null
check_eq 'refused over HTTP' '409 stale-read' "$(api_status) $(jq -r .code "$WORK/api.body")"
check_status 4 "$HOLDFAST" stat v:made2
for do in "echo x >'$R/third'" "rm '$R/third'" "mkdir '$R/dir'" "mv '$R/third' '$R/fourth'"; do
    sh -c "$do" 2>"$WORK/err" && fail "not refused: $do"
    grep -q 'Stale file handle' "$WORK/err" || fail "$do: $(cat "$WORK/err")"
done
check_eq 'nothing was lost' 'by the run' "$(cat "$P/third")"
echo fine >"$P/third" || fail 'others may write'
check_eq 'read again' two "$(as $R2 GET /v1/files/v/h)"
as $R2 PUT /v1/files/v/made2 -H 'If-None-Match: *' --data-binary made >/dev/null
check_eq 'then it may write' 201 "$(api_status)"

# ---- holdfast run ends with 3 ----
echo 1 >"$P/input"
check_status 0 "$HOLDFAST" flush v --timeout 60
"$HOLDFAST" run -v v --timeout 100 -- sh -c 'cd /mnt/data/1; cat input; touch read; until grep -q go go; do sleep 0.2; done; (echo late >late) || true' \
    >"$WORK/run.out" 2>"$WORK/run.err" &
PID=$!
wait_until 30 test -e "$P/read" || fail 'the run does not begin'
echo 2 >"$P/input" && echo go >"$P/go"
STATUS=0
wait $PID || STATUS=$?
check_eq 'its status' 3 "$STATUS"
check_contains 'why' 'were refused (ESTALE)' "$WORK/run.err"
[ ! -e "$P/late" ] || fail 'written all the same'

# ---- off ----
check_status 0 "$HOLDFAST" volume set v --stale-reads off
as $R3 GET /v1/files/v/h >/dev/null
person h three
as $R3 PUT /v1/files/v/off -H 'If-None-Match: *' --data-binary made >/dev/null
check_eq 'nobody looks' '"none"' "$(marks off)"

# ---- a gateway that was started anew says that it does not know ----
check_status 0 "$HOLDFAST" volume set v --stale-reads mark
as $R2 GET /v1/files/v/h >/dev/null
for dir in "$P" "$R"; do check_status 0 "$HOLDFAST" umount "$dir"; done
gateway_stop
gateway_start "$WORK/state" "file://$WORK/bucket"
as $R2 PUT /v1/files/v/later -H 'If-None-Match: *' --data-binary made >/dev/null
check_eq 'not complete' '{"changed":0,"complete":false,"inputs":[]}' "$(marks later)"
as 01KB9ZZZZZ0123456789ABCDE4 PUT /v1/files/v/other -H 'If-None-Match: *' --data-binary made >/dev/null
check_eq 'another run is' '"none"' "$(marks other)"
