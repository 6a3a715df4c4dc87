#!/usr/bin/env bash
# Every way in which a start or a command can be given something bad: one line that says what is wrong, the right exit status,
# within its deadline, and nothing half-made left behind. Prints case, seconds, status and message.
# timeout: 400
. "$(dirname "$0")/../support/lib.sh"
lib_begin bad-input

FAULT_SERVER=$HOLDFAST_BUILD/tests/fault/server/fault-server
[ -x "$FAULT_SERVER" ] || skip "no program '$FAULT_SERVER'"
cases=0

# Runs a command that must end by itself with this status, one line on stderr that holds the words, in so many seconds.
bad() { # CASE STATUS SECONDS WORDS COMMAND...
    local name=$1 wanted=$2 limit=$3 words=$4 begin seconds status=0 lines
    shift 4
    cases=$((cases + 1))
    begin=$(now_ms)
    timeout -k 5 $((limit + 20)) "$@" >"$WORK/out" 2>"$WORK/err" </dev/null || status=$?
    seconds=$(awk -v ms=$(($(now_ms) - begin)) 'BEGIN { printf "%.1f", ms / 1000 }')
    # The log has lines of its own kind; the message is the one that begins with the program's name.
    grep '^holdfast: ' "$WORK/err" >"$WORK/line"
    lines=$(wc -l <"$WORK/line")
    printf '%-34s %5s s  status %d  %s\n' "$name" "$seconds" "$status" "$(head -n 1 "$WORK/line")"
    [[ $status =~ ^$wanted$ ]] || fail "$name: status $status, wanted $wanted: $(head -c 600 "$WORK/err")"
    [ "$lines" = 1 ] || fail "$name: $lines lines: $(head -c 600 "$WORK/err")"
    grep -qiE -- "$words" "$WORK/line" || fail "$name: the message does not say '$words'"
    ! grep -qF .holdfast/probe "$WORK/line" || fail "$name: the message names a key that the user has never heard of"
    [ "${seconds%.*}" -lt "$limit" ] || fail "$name: took $seconds s, allowed are $limit"
    ! grep -qF -e "$SECRET" "$WORK/err" "$WORK/out" || fail "$name: the secret key is in a message"
}
bad_start() { # CASE STATUS SECONDS WORDS STATE STORE
    bad "$1" "$2" "$3" "$4" "$HOLDFAST" serve --state "$5" --store "$6" --listen none --log error
}
clean() { # CASE STATE: a refused first start leaves no index behind that names a store
    [ ! -e "$2/holdfast.sock" ] || fail "$1: a socket is left"
    [ ! -e "$2/token" ] || fail "$1: a token is left"
    pgrep -f -- "--state $2 " >/dev/null && fail "$1: a process is left"
    return 0
}

SECRET='faultServerSecret/0123456789+abcdefghij'
export AWS_ACCESS_KEY_ID=FAULTSERVERKEY000001 AWS_SECRET_ACCESS_KEY=$SECRET AWS_REGION=us-east-1
export AWS_EC2_METADATA_DISABLED=true HOME=$WORK
unset AWS_PROFILE AWS_SESSION_TOKEN AWS_ENDPOINT_URL AWS_ENDPOINT_URL_S3

"$FAULT_SERVER" --port 0 >"$WORK/fault-server" 2>"$WORK/fault-server.log" &
defer "stop_pid $!"
wait_until 10 test -s "$WORK/fault-server" || fail_now 'the fault server does not start'
FS=$(grep -oE '[0-9]+' "$WORK/fault-server" | head -n 1)
fault() { curl -s -f -X POST -o /dev/null "http://127.0.0.1:$FS/$1"; }
s3() { # BUCKET [PARAMETERS]
    echo "s3://$1?endpoint=http://127.0.0.1:$FS&region=us-east-1&style=path${2:-}"
}

# ---- the store ----
state=$WORK/s1
# B041: what can never work ends at once
bad_start 'no bucket' 4 20 'bucket' "$state" "$(s3 nosuchbucket)"
clean 'no bucket' "$state"
AWS_SECRET_ACCESS_KEY=wrong bad_start 'wrong secret key' 5 20 'key|signature|denied' "$state" "$(s3 test)"
AWS_ACCESS_KEY_ID=NOBODY bad_start 'unknown access key' 5 20 'key|denied' "$state" "$(s3 test)"
fault '_fault?kind=DENIED&op=*&count=1000'
bad_start 'no rights' 5 20 'denied|rights|key' "$state" "$(s3 test)"
fault _reset
fault '_fault?kind=EXPIRED&op=*&count=1000'
AWS_SESSION_TOKEN=old bad_start 'expired keys' 5 20 'expired' "$state" "$(s3 test)"
fault _reset
fault '_fault?kind=WRONG_REGION&op=*&count=1000'
bad_start 'wrong region' '[1-6]' 20 'region' "$state" "$(s3 test)"
fault _reset
closed=$(free_port)
bad_start 'nobody listens at the endpoint' 6 15 "refused|reach|connect" \
    "$state" "s3://test?endpoint=http://127.0.0.1:$closed&region=us-east-1&style=path"
bad_start 'endpoint whose name does not exist' 6 15 'resolve|host|name' \
    "$state" 's3://test?endpoint=http://nowhere.invalid&region=us-east-1&style=path'
python3 -c '
import socket, sys, time
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen(64)
print(s.getsockname()[1], flush=True)
held = []
while True: held.append(s.accept())' >"$WORK/silent" &
defer "stop_pid $!"
wait_until 10 test -s "$WORK/silent"
bad_start 'endpoint that never answers' 6 35 'time|answer|silent' \
    "$state" "s3://test?endpoint=http://127.0.0.1:$(cat "$WORK/silent")&region=us-east-1&style=path"
bad_start 'endpoint that is no S3 server' '[1-6]' 45 '.' \
    "$state" "s3://test?endpoint=http://127.0.0.1:$FS/x&region=us-east-1&style=path"
(
    unset AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
    bad_start 'no keys' 5 20 'AWS_ACCESS_KEY_ID|credential|key' "$state" "$(s3 test)"
    exit "$LIB_FAILED"
) || LIB_FAILED=1
bad_start 'unknown kind of store' 2 5 'ftp|scheme|store' "$state" 'ftp://x/y'
bad_start 'unknown parameter of the URL' 2 5 'regoin' "$state" "s3://test?endpoint=http://127.0.0.1:$FS&regoin=x"
clean 'refused starts' "$state"
# Nothing of all that stands in the way of a good start.
gateway_start "$state" "$(s3 test)"
check_status 0 "$HOLDFAST" volume create first
gateway_stop
fault _reset

# A clock ten minutes off: the store's refusal is corrected from its own Date, and the start succeeds.
cases=$((cases + 1))
begin=$(now_ms)
faketime -f '+10m' "$HOLDFAST" serve --state "$WORK/skew" --store "$(s3 test)" --listen none --log error \
    >"$WORK/out" 2>"$WORK/err" &
pid=$!
wait_until 20 test -S "$WORK/skew/holdfast.sock" || fail "clock ten minutes off: $(head -c 400 "$WORK/err")"
printf '%-34s %5s s  starts: the offset is taken from the store\n' 'clock ten minutes off' \
    "$(awk -v ms=$(($(now_ms) - begin)) 'BEGIN { printf "%.1f", ms / 1000 }')"
check_status 0 "$HOLDFAST" volume create --state "$WORK/skew" skewed
echo x >"$WORK/x"
check_status 0 "$HOLDFAST" put --state "$WORK/skew" "$WORK/x" skewed:/x
# faketime may wait for the gateway rather than become it
gateway=$pid
[ "$(cat "/proc/$pid/comm")" = holdfast ] || gateway=$(pgrep -P "$pid" | head -n 1)
stop_pid "$gateway"
wait "$pid" 2>/dev/null
fault _reset

# ---- the state directory and the store belong together ----
state=$WORK/s2
gateway_start "$state" "file://$WORK/bucket"
check_status 0 "$HOLDFAST" volume create v
check_status 0 "$HOLDFAST" put "$WORK/x" v:/x
# B204: one process for one state directory
bad_start 'second daemon on the same state' 1 10 'another|already|second|lock|runs|use' "$state" "file://$WORK/bucket"
check_status 0 "$HOLDFAST" cat v:/x
bad 'overlapping prefix' 1 10 "'v'" "$HOLDFAST" volume create inner --prefix v/inner/
bad 'overlapping prefix, outer' 1 10 'overlap|prefix' "$HOLDFAST" volume create outer --prefix ''
bad 'prefix of our own folder' 1 10 'holdfast|prefix' "$HOLDFAST" volume create ours --prefix .holdfast/x/
bad 'volume name with a slash' 1 5 "a/b|name" "$HOLDFAST" volume create a/b
bad 'volume name with capitals' 1 5 "name" "$HOLDFAST" volume create Reports
bad 'volume that exists' 1 5 "exists|already" "$HOLDFAST" volume create v
check_status 0 "$HOLDFAST" volume list --json
check_eq 'volumes after refused ones' '["v"]' "$(jq -c '[.volumes[].name]' "$WORK/out")"
port_taken=$PORT
bad 'port in use' 1 10 "in use" "$HOLDFAST" serve --state "$WORK/s3" --store "file://$WORK/b3" --listen "127.0.0.1:$port_taken" \
    --log error
if [ -c /dev/fuse ] && [ "$(id -u)" = 0 ]; then
    mkdir "$WORK/busy" "$WORK/full"
    echo x >"$WORK/full/x"
    bad 'mountpoint that is a file' 1 10 'not a directory|no directory|directory' "$HOLDFAST" mount v "$WORK/x"
    bad 'mountpoint that is missing' 4 10 'no such|not there|missing|does not exist' "$HOLDFAST" mount v "$WORK/none"
    bad 'mountpoint that is not empty' 1 10 'empty' "$HOLDFAST" mount v "$WORK/full"
    check_status 0 "$HOLDFAST" mount v "$WORK/busy"
    bad 'mountpoint in use' 1 10 'mount' "$HOLDFAST" mount v "$WORK/busy"
    (cd "$WORK/busy" && exec sleep 300) &
    sleeper=$!
    defer "stop_pid $sleeper KILL"
    sleep 0.3
    # B147, S34
    bad 'unmount of a mount in use' 1 40 "$sleeper|in use|busy" "$HOLDFAST" umount "$WORK/busy"
    check_same 'still mounted' "$WORK/x" "$WORK/busy/x"
    stop_pid "$sleeper" KILL
    check_status 0 "$HOLDFAST" umount "$WORK/busy"
    bad 'unmount of nothing' 4 10 'mounted' "$HOLDFAST" umount "$WORK/busy"
    bad 'mount of no volume' 4 10 "none" "$HOLDFAST" mount none "$WORK/busy"
    bad 'mount of no folder' 4 10 "none" "$HOLDFAST" mount v/none "$WORK/busy"
    check_eq 'nothing is left in the mountpoint' '' "$(ls -A "$WORK/busy")"
fi
gateway_stop

bad_start 'another store behind old state' 1 20 'store' "$state" "file://$WORK/other-bucket"
mv "$WORK/bucket" "$WORK/bucket.away"
bad_start 'emptied store behind old state' 1 20 'store' "$state" "file://$WORK/bucket"
rm -rf "$WORK/bucket"
mv "$WORK/bucket.away" "$WORK/bucket"
cp -a "$state" "$WORK/newer"
sqlite3 "$WORK/newer/index.db" 'PRAGMA user_version=9999' 2>/dev/null || python3 - "$WORK/newer/index.db" <<'PY'
import sqlite3, sys
c = sqlite3.connect(sys.argv[1]); c.execute("PRAGMA user_version=9999"); c.commit(); c.close()
PY
bad_start 'newer state format' 1 20 'newer|format' "$WORK/newer" "file://$WORK/bucket"
gateway_start "$state" "file://$WORK/bucket"
check_status 0 "$HOLDFAST" cat v:/x
check_same 'the right store behind old state still works' "$WORK/x" "$WORK/out"
gateway_stop

# ---- the place ----
touch "$WORK/plain"
bad_start 'state directory that is a file' 1 5 "directory" "$WORK/plain" "file://$WORK/b4"
bad_start 'state directory below a file' 1 5 "directory" "$WORK/plain/x" "file://$WORK/b4"
if [ "$(id -u)" = 0 ]; then
    mkdir "$WORK/foreign" "$WORK/ro" "$WORK/tiny"
    chown 12345 "$WORK/foreign"
    bad_start 'state directory of somebody else' 5 5 'belongs' "$WORK/foreign" "file://$WORK/b4"
    mkdir -m 700 "$WORK/closed"
    bad_start 'state that the user cannot reach' 5 5 'may not' "$WORK/closed/state" "file://$WORK/b4"
    mkdir "$WORK/roots"
    touch "$WORK/roots/file"
    bad_start 'store of root' 5 5 'may not' "$WORK/s6" "file://$WORK/roots"
    mount -t tmpfs -o ro,size=1M tmpfs "$WORK/ro" && defer "umount '$WORK/ro'"
    bad_start 'read-only state directory' 5 10 'read-only' "$WORK/ro" "file://$WORK/b4"
    bad_start 'read-only parent of the state' 5 10 'read-only' "$WORK/ro/state" "file://$WORK/b4"
    mount -t tmpfs -o size=64k,mode=777 tmpfs "$WORK/tiny" && defer "umount '$WORK/tiny'"
    head -c 1000000 /dev/zero >"$WORK/tiny/filler" 2>/dev/null
    bad_start 'full state directory' 8 20 'space|full' "$WORK/tiny" "file://$WORK/b4"
fi
printf '[http]\nlisten = 127.0.0.1:0\nlistne = x\n' >"$WORK/conf"
bad 'unknown key in the file' 2 5 "conf:3.*did you mean" "$HOLDFAST" serve --config "$WORK/conf" --state "$WORK/s5"
printf '[htpp]\n' >"$WORK/conf"
bad 'unknown section in the file' 2 5 "conf:1.*did you mean" "$HOLDFAST" serve --config "$WORK/conf" --state "$WORK/s5"
bad 'no such settings file' 4 5 "nothing.conf" "$HOLDFAST" serve --config "$WORK/nothing.conf" --state "$WORK/s5"
bad 'listening wider without a password' 2 5 'password|loopback' "$HOLDFAST" serve --state "$WORK/s5" --listen 0.0.0.0:0
[ ! -e "$WORK/s5" ] || fail 'a refused start made a state directory'
bad 'no such user' 2 5 'nosuchuser' "$HOLDFAST" serve --state "$WORK/s5" --user nosuchuser
echo "cases: $cases"
