#!/usr/bin/env bash
# The store goes away in the middle of a git clone and of a large copy: both finish, what was read before is read on, status says
# so, and when the store is back everything goes up by itself. The same with a network that drops everything, with a gateway that
# is suspended, and with a cache that fills up meanwhile: writers get ENOSPC then, and nothing answered is harmed (INV-7).
# timeout: 240
# long-timeout: 3600
. "$(dirname "$0")/../support/lib.sh"
lib_begin store-away
need_fuse
command -v git >/dev/null || skip 'no git'

# Short: 8 s and 64 MiB; long: ten minutes and 1 GiB.
if [ "${HOLDFAST_TEST_LONG:-}" = 1 ]; then AWAY=${AWAY:-600} MIB=${MIB:-1024}; else AWAY=${AWAY:-8} MIB=${MIB:-64}; fi
export GIT_CONFIG_GLOBAL=$WORK/gitconfig GIT_CONFIG_NOSYSTEM=1
git config --file "$GIT_CONFIG_GLOBAL" safe.directory '*'
git config --file "$GIT_CONFIG_GLOBAL" user.name tester
git config --file "$GIT_CONFIG_GLOBAL" user.email tester@example.org

relay_start
SERVE=("$WORK/state" "$STORE_URL")
gateway_start "${SERVE[@]}" --sync-open 2s
check_status 0 "$HOLDFAST" volume create v
mkdir "$WORK/m"
defer "while umount '$WORK/m' 2>/dev/null; do :; done"
check_status 0 "$HOLDFAST" mount v "$WORK/m"
M=$WORK/m
raw() { "$LIB_ROOT/tests/support/fault-server.sh" control "$WORK/fault" "_raw?key=v/$1" 2>/dev/null; }
says_away() { "$HOLDFAST" status | grep -q '^store *AWAY'; }
says_ok() { "$HOLDFAST" status | grep -q '^store *ok'; }

# ---- a repository and a large file, made beside ----
git init -q "$WORK/origin"
for i in $(seq 150); do
    mkdir -p "$WORK/origin/d$((i % 10))"
    seq "$i" "$((i * 20))" >"$WORK/origin/d$((i % 10))/f$i"
done
git -C "$WORK/origin" add -A
git -C "$WORK/origin" commit -q -m one
head -c "${MIB}M" /dev/urandom >"$WORK/large"
echo cached >"$M/cached"
check_status 0 "$HOLDFAST" flush v
check_eq 'read before' cached "$(cat "$M/cached")"

# ---- away in the middle ----
(sleep 0.3; cp "$WORK/large" "$M/large"; echo $? >"$WORK/cp.status") &
COPY=$!
(git clone -q "$WORK/origin" "$M/clone" 2>"$WORK/clone.err"; echo $? >"$WORK/clone.status") &
CLONE=$!
sleep 0.4
store_away
BEGUN=$(now_ms)
wait "$COPY" "$CLONE"
check_eq 'cp while the store is away' 0 "$(cat "$WORK/cp.status")"
check_eq "git clone while the store is away: $(tail -n 2 "$WORK/clone.err")" 0 "$(cat "$WORK/clone.status")"
wait_until 15 says_away || fail "status does not say that the store is away: $("$HOLDFAST" status | head -n 3)"
api GET /v1/status >"$WORK/status.json"
check_eq 'the document says so too' false "$(jq .store.ok "$WORK/status.json")"
[ "$(jq .unsynced_files "$WORK/status.json")" -gt 0 ] || fail 'nothing is unsynced although the store is away'

# Reads of what is here, writes, names and fsync go on all the time: none of them waits for the store (B124).
exec 8>>"$M/log"
n=0 slowest=0
while [ $(($(now_ms) - BEGUN)) -lt $((AWAY * 1000)) ]; do
    n=$((n + 1))
    t=$(now_ms)
    echo "line $n" >&8
    if ! { echo "$n" >"$M/new$n" && mv "$M/new$n" "$M/moved$n"; }; then fail "a save in second $SECONDS of the outage"; fi
    [ "$(cat "$M/cached")" = cached ] || fail 'a cached file is not read on'
    git -C "$M/clone" status --porcelain >"$WORK/porcelain" 2>&1 || fail "git status: $(cat "$WORK/porcelain")"
    sync "$M/moved$n" || fail 'fsync while the store is away'
    t=$(($(now_ms) - t))
    [ "$t" -le "$slowest" ] || slowest=$t
    [ "$LIB_FAILED" = 0 ] || break
    sleep "$((AWAY > 60 ? 2 : 0)).2"
done
exec 8>&-
note "$n rounds within $((($(now_ms) - BEGUN) / 1000)) s without a store, the slowest took $slowest ms"
check_status 7 "$HOLDFAST" flush v --timeout 1

# ---- back: everything goes up by itself ----
store_back
BEGUN=$(now_ms)
wait_until 120 says_ok || fail "status still says: $("$HOLDFAST" status | head -n 3)"
synced() { "$HOLDFAST" status | grep -q 'everything is in the bucket'; }
wait_until $((120 + MIB / 4)) synced || fail "not synced by itself: $("$HOLDFAST" status)"
note "all was up $((($(now_ms) - BEGUN) / 1000)) s after the store came back"
raw large | cmp -s - "$WORK/large" || fail 'the large file in the bucket is not the one that was copied'
check_eq 'the log' "$n" "$(raw log | wc -l)"
check_eq 'the last save' "$n" "$(raw "moved$n")"
git -C "$M/clone" fsck --full --strict >"$WORK/fsck" 2>&1 || fail "git fsck: $(head -n 3 "$WORK/fsck")"
(cd "$M/clone" && find . -type f -print0 | sort -z | xargs -0 sha256sum) >"$WORK/sums"
while read -r sum name; do
    check_eq "$name in the bucket" "$sum" "$(raw "clone/${name#./}" | sha256sum | cut -d' ' -f1)"
    [ "$LIB_FAILED" = 0 ] || break
done < <(shuf -n 25 "$WORK/sums")
check_eq 'conflicts' 0 "$("$HOLDFAST" status --json | jq .conflicts)"

# ---- a network that drops everything: the same, and no call hangs ----
store_away mute
echo mute >"$M/mute"
check_eq 'read while nothing answers' mute "$(timeout 10 cat "$M/mute")"
check_eq 'a cached one' cached "$(timeout 10 cat "$M/cached")"
timeout 10 ls "$M" >"$WORK/ls" || fail 'ls hangs while nothing answers'
store_back
in_bucket() { [ "$(raw "$1")" = "$2" ]; }
wait_until 90 in_bucket mute mute || fail 'not up after the network was back'

# ---- suspended, as a machine that sleeps: programs wait, and go on ----
(for i in $(seq 40); do echo "$i" >"$M/s$i" || exit 1; sleep 0.05; done; echo 0 >"$WORK/sleep.status") &
WRITER=$!
sleep 0.3
kill -STOP "$GATEWAY_PID"
sleep 3
kill -CONT "$GATEWAY_PID"
wait "$WRITER"
check_eq 'a writer over a sleep' 0 "$(cat "$WORK/sleep.status" 2>/dev/null)"
check_status 0 "$HOLDFAST" flush v
check_eq 'the last one' 40 "$(raw s40)"

# ---- the cache fills up while the store is away (B002, B012): ENOSPC, and what was answered is whole ----
gateway_stop
gateway_start "$WORK/small" "$STORE_URL" --cache-size 48M --cache-floor 1M
check_status 0 "$HOLDFAST" volume create w
mkdir "$WORK/w"
defer "while umount '$WORK/w' 2>/dev/null; do :; done"
check_status 0 "$HOLDFAST" mount w "$WORK/w"
W=$WORK/w
ls "$W" >/dev/null # a folder that was never listed is not known to be empty
head -c 4M "$WORK/large" >"$WORK/four"
store_away
kept=0
for i in $(seq 20); do
    timeout 60 cp "$WORK/four" "$W/f$i" 2>"$WORK/cp.err" || break
    kept=$i
done
check_contains 'a full cache' 'No space left' "$WORK/cp.err"
[ "$kept" -ge 4 ] || fail "only $kept files of 4 MiB fit in 48 MiB"
[ "$kept" -le 12 ] || fail "$kept files of 4 MiB in 48 MiB"
for i in $(seq "$kept"); do
    check_same 'acknowledged, and read while the cache is full' "$WORK/four" "$W/f$i"
done
store_back
check_status 0 "$HOLDFAST" flush w --timeout 120
for i in $(seq "$kept"); do
    "$LIB_ROOT/tests/support/fault-server.sh" control "$WORK/fault" "_raw?key=w/f$i" | cmp -s - "$WORK/four" ||
        fail "f$i of the full cache is not in the bucket"
done
# What is up makes room (B151).
cp "$WORK/four" "$W/again" || fail 'no write after the store is back'
note "$kept files of 4 MiB in a cache of 48 MiB"
