#!/usr/bin/env bash
# A gateway that is killed and replaced under running programs holds the locks that its predecessor held, over two mounts, and
# answers those who waited.
# timeout: 120
. "$(dirname "$0")/../support/lib.sh"
lib_begin locks-takeover
need_fuse
export HOLDFAST_TAKEOVER=respawn

field() { "$HOLDFAST" status --json 2>/dev/null | jq -r "$1"; }
stop_successor() { # no child of ours
    local pid
    pid=$(field .pid) && kill "$pid" && wait_until 30 test ! -d "/proc/$pid"
}
mkdir "$WORK/a" "$WORK/b"
A=$WORK/a B=$WORK/b
defer "while umount '$A' 2>/dev/null; do :; done"
defer "while umount '$B' 2>/dev/null; do :; done"
gateway_start "$WORK/state" "file://$WORK/bucket"
defer stop_successor
[ "$(field .takeover.possible)" = true ] || skip "no takeover here: $(field .takeover.why)"
check_status 0 "$HOLDFAST" volume create v
check_status 0 "$HOLDFAST" mount v "$A"
check_status 0 "$HOLDFAST" mount v "$B"

cat >"$WORK/range.py" <<'PY'
import fcntl, sys, time
f = open(sys.argv[1], 'r+b')
fcntl.lockf(f, fcntl.LOCK_EX, 10, 5)
print('held', flush=True)
sys.stdin.read()
PY
cat >"$WORK/try.py" <<'PY'
import errno, fcntl, sys
f = open(sys.argv[1], 'r+b')
for start in 4, 5, 14, 15:
    try:
        fcntl.lockf(f, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, start)
        print('free', end=' ')
    except OSError as e:
        print(errno.errorcode[e.errno], end=' ')
PY
echo x >"$A/f"
mkfifo "$WORK/end"
python3 "$WORK/range.py" "$A/f" <"$WORK/end" >"$WORK/held" &
holder=$!
exec 7>"$WORK/end"
exec 8>>"$A/f"
flock 8
wait_until 20 grep -q held "$WORK/held" || fail_now 'no lock at all'
flock "$B/f" sh -c 'echo got it' >"$WORK/got" 7>&- 8>&- &
waiter=$!
sleep 0.5
for round in 1 2 3; do
    pid=$(field .pid)
    kill -KILL "$pid"
    wait_until 30 sh -c "[ \"\$('$HOLDFAST' status --json | jq .pid)\" != '$pid' ]" || fail_now 'no successor'
    check_eq "the range, round $round" 'free EAGAIN EAGAIN free ' "$(python3 "$WORK/try.py" "$B/f")"
    flock -n "$B/f" true 7>&- 8>&- && fail "the whole file is free in round $round"
    [ ! -s "$WORK/got" ] || fail 'who waited got what is held'
done
exec 8>&-
wait_until 10 grep -q 'got it' "$WORK/got" || fail 'who waited has not got the lock'
wait "$waiter" || fail 'who waited saw an error'
exec 7>&-
wait "$holder"
check_eq 'the range at last' 'free free free free ' "$(python3 "$WORK/try.py" "$B/f")"
