#!/usr/bin/env bash
# The gateway is killed again and again, and upgraded, while programs run in a mount: they wait, and none sees an error or a wrong
# byte (docs/design.md section 2.7, INV-13). Prints the longest pause, and what the kernel sent again; in the long form no kind of
# request may be missing there. Then the mounter dies too, and the mount comes back by itself. B038 B043 S35
# The long form has npm too where its registry can be reached; TAKEOVER_NPM=FILE is another package.json.
# timeout: 180
# long-timeout: 5400
. "$(dirname "$0")/../support/lib.sh"
lib_begin takeover
need_fuse
command -v python3 >/dev/null || skip 'no python3'
command -v git >/dev/null || skip 'no git'
export HOLDFAST_TAKEOVER=respawn

if [ "${HOLDFAST_TEST_LONG:-}" = 1 ]; then KILLS=${KILLS:-300} UPGRADES=${UPGRADES:-20}; else KILLS=${KILLS:-10} UPGRADES=${UPGRADES:-2}; fi
# What the programs below ask for all the time, and passthrough does not take away.
KINDS=${KINDS:-LOOKUP GETATTR SETATTR SYMLINK MKDIR UNLINK RMDIR RENAME LINK OPEN CREATE READ WRITE FSYNC RELEASE}
SEED=${HOLDFAST_SEED:-$(date +%s)}
RANDOM=$((SEED % 32768))
LOAD=$LIB_ROOT/tests/integration/takeover_load.py
MOUNT=$WORK/m
MOUNT2=$WORK/m2
STOP=$WORK/stop
echo "seed $SEED, $KILLS kills, $UPGRADES upgrades"
mkdir "$MOUNT" "$MOUNT2"
defer "while umount '$MOUNT' 2>/dev/null; do :; done"
defer "while umount '$MOUNT2' 2>/dev/null; do :; done"

status_field() { # EXPRESSION over the status document
    "$HOLDFAST" status --json 2>/dev/null | python3 -c "import json, sys; s = json.load(sys.stdin); print($1)"
}
# It is another process after each death, and no child of ours.
stop_successor() {
    local pid
    pid=$(status_field "s['pid']") && kill "$pid" && wait_until 30 test ! -d "/proc/$pid"
}
gateway_start "$WORK/state" "file://$WORK/bucket" --mount-parent "$WORK/data"
defer stop_successor
if [ "$(status_field "s['takeover']['possible']")" != True ]; then
    skip "no takeover here: $(status_field "s['takeover']['why']")"
fi
check_status 0 "$HOLDFAST" volume create v
check_status 0 "$HOLDFAST" volume create w
check_status 0 "$HOLDFAST" mount v "$MOUNT"
check_status 0 "$HOLDFAST" mount w "$MOUNT2"

mkdir "$WORK/source"
cp -r "$LIB_ROOT/mount" "$WORK/source/mount"
cp -r "$LIB_ROOT/docs" "$WORK/source/docs"
PIDS=()
start_load() { # NAME DIR [SOURCE]
    python3 "$LOAD" "$1" "$2/$1" "$STOP" ${3:+"$3"} >"$WORK/load.$1.out" 2>"$WORK/load.$1.err" &
    PIDS+=("$!:$1")
    defer "stop_pid $!"
}
start_load names "$MOUNT"
start_load open "$MOUNT"
start_load sqlite-wal "$MOUNT"
start_load sqlite-delete "$MOUNT2"
start_load tar "$MOUNT" "$WORK/source"
start_load git "$MOUNT2" "$WORK/source"
# npm's cache is filled beside the mount first: later turns need no network.
npm_project() {
    export npm_config_cache=$WORK/npm-cache
    mkdir "$WORK/npm"
    if [ -n "${TAKEOVER_NPM:-}" ]; then
        cp "$TAKEOVER_NPM" "$WORK/npm/package.json"
    else
        echo '{"name": "app", "version": "1.0.0", "dependencies": {"express": "4.19.2", "eslint": "8.57.0"}}' >"$WORK/npm/package.json"
    fi
    timeout 300 npm --prefix "$WORK/npm" install --no-audit --no-fund --ignore-scripts >"$WORK/npm.log" 2>&1 || return 1
    rm -rf "$WORK/npm/node_modules"
}
if [ "${HOLDFAST_TEST_LONG:-}" = 1 ]; then
    # A kind of request that is rare is met when many are under way.
    for extra in 2 3 4 5; do start_load "names-$extra" "$MOUNT"; done
    if ! command -v npm >/dev/null; then
        note 'without npm: there is none'
    elif npm_project; then
        start_load npm "$MOUNT2" "$WORK/npm"
    else
        note "without npm: $(tail -n 1 "$WORK/npm.log")"
    fi
fi

alive() { # all programs still run
    local one
    for one in "${PIDS[@]}"; do
        kill -0 "${one%%:*}" 2>/dev/null || fail "'${one#*:}' has ended: $(tail -n 3 "$WORK/load.${one#*:}.err")"
    done
    [ "$LIB_FAILED" = 0 ]
}
pause() { sleep "0.$((4 + RANDOM % 6))$((RANDOM % 10))"; }
back() { # it answers, and is another than before; no answer is not yet another
    local pid
    pid=$(status_field "s['pid']" 2>/dev/null) && [ -n "$pid" ] && [ "$pid" != "$1" ]
}

sleep 1
for ((round = 1; round <= KILLS; round++)); do
    pid=$(status_field "s['pid']") || fail_now "round $round: no gateway"
    kill -KILL "$pid" || fail_now "round $round: no process $pid"
    wait_until 30 back "$pid" || fail_now "round $round: no other gateway came"
    alive || break
    pause
done
for ((round = 1; round <= UPGRADES && LIB_FAILED == 0; round++)); do
    pid=$(status_field "s['pid']")
    check_status 0 "$HOLDFAST" upgrade
    wait_until 30 back "$pid" || fail "upgrade $round: still the same process"
    alive || break
    pause
done
touch "$STOP"
longest=0
for one in "${PIDS[@]}"; do
    wait "${one%%:*}" || fail "'${one#*:}' saw an error: $(tail -n 3 "$WORK/load.${one#*:}.err")"
    read -r what count waited <"$WORK/load.${one#*:}.out" || true
    note "$what: $count operations${waited:+, the longest took $waited ms}"
    [ "${waited:-0}" -le "$longest" ] || longest=$waited
done
note "longest pause $longest ms"
status_field "'%d takeovers of a mount met a request under way in %d; sent again: %s; of these done before: %s' % (
    s['takeover']['count'], s['takeover']['met'], s['takeover']['resent'], s['takeover']['replayed'])"
[ "$(status_field "s['takeover']['met'] > 0")" = True ] || fail 'no kill met a request under way'
if [ "${HOLDFAST_TEST_LONG:-}" = 1 ]; then
    for kind in $KINDS; do
        [ "$(status_field "s['takeover']['resent'].get('$kind', 0) > 0")" = True ] || fail "no $kind was answered when it was sent again"
    done
fi
check_status 0 "$HOLDFAST" flush --timeout 120

# The mounter's own death: nobody notices while the gateway lives; then both are gone, programs get an error, and the mount comes
# back at the same path. Nothing is ever written beside the volume (INV-11).
mounter=$(pgrep -f "holdfast-mounter $WORK/data") || fail_now 'no mounter'
kill -KILL "$mounter"
echo before >"$MOUNT/before" || fail 'the mount ended with the mounter'
[ "$(status_field "s['takeover']['possible']")" = False ] || fail 'status does not say that the mounter has ended'
pid=$(status_field "s['pid']")
kill -KILL "$pid"
deadline=$((SECONDS + 30))
until echo after 2>/dev/null >"$MOUNT/after"; do
    [ "$SECONDS" -lt "$deadline" ] || fail_now 'the mount does not come back'
done 2>"$WORK/meanwhile"
[ "$(cat "$MOUNT/before")" = before ] || fail 'the mount came back with other files'
grep -v 'Transport endpoint is not connected\|Read-only file system\|Permission denied' "$WORK/meanwhile" && fail 'an unexpected error meanwhile'
wait_until 30 back "$pid" || fail 'no other gateway came'
wait_until 10 test -e "$WORK/bucket/v/after" || fail 'what was written went beside the volume'
check_status 0 "$HOLDFAST" umount "$MOUNT"
[ -z "$(ls -A "$MOUNT")" ] || fail "something was written beside the volume: $(ls -A "$MOUNT")"
check_status 0 "$HOLDFAST" umount "$MOUNT2"
