#!/usr/bin/env bash
# Events over HTTP: told as they happen, numbered, taken up again after the last one that was seen, over restarts of the gateway;
# what may be missing is said, never passed over in silence.
# timeout: 180
. "$(dirname "$0")/../support/lib.sh"
lib_begin events
command -v python3 >/dev/null || skip 'no python3'

FOLLOW=$LIB_ROOT/tests/integration/events.py
STATE=$WORK/state
start() { gateway_start "$STATE" "file://$WORK/bucket" --sync-rest 0s; }
put() { printf '%s' "$2" | "$HOLDFAST" put - "v:/$1" || fail "put of $1"; }
follow() { # FILE [SINCE]: in the background, until it is open
    python3 "$FOLLOW" "$URL" "$(gateway_token)" 60 "${2:-}" >"$1" 2>"$1.err" &
    FOLLOWER=$!
    defer "stop_pid $FOLLOWER"
    wait_until 20 grep -q '^open' "$1" || fail_now "a stream does not open: $(cat "$1.err")"
}
# shellcheck disable=SC2317 # called by wait_until
seen() { grep -q "$2" "$1"; } # FILE TEXT
ids() { cut -f1 "$1" | grep '^[0-9]'; }

# ---- as they happen ----
start
check_status 0 "$HOLDFAST" volume create v
check_status 0 "$HOLDFAST" volume create other
follow "$WORK/first"
put 'a ü 中.txt' one
wait_until 20 seen "$WORK/first" 'synced.*"path":"a ü 中.txt"' || fail "not told: $(cat "$WORK/first")"
check_status 0 "$HOLDFAST" mkdir v:/d
check_status 0 "$HOLDFAST" mv 'v:/a ü 中.txt' v:/d/b
check_status 0 "$HOLDFAST" rm v:/d/b
printf x | "$HOLDFAST" put - other:/o || fail 'put'
wait_until 20 seen "$WORK/first" '"volume":"other","path":"o"' || fail "not told: $(cat "$WORK/first")"
check_eq 'each change once, in order' 'create a ü 中.txt
create d
move_from a ü 中.txt
create d/b
remove d/b' "$(grep '^[0-9]' "$WORK/first" | cut -f3 | jq -r 'select(.type == "change" and .volume == "v") | "\(.op) \(.path)"')"
check_eq 'numbers rise' "$(ids "$WORK/first" | sort -n -u)" "$(ids "$WORK/first")"
check_eq 'the number is in the text too' "$(ids "$WORK/first")" "$(grep '^[0-9]' "$WORK/first" | cut -f3 | jq .seq)"
LAST=$(ids "$WORK/first" | tail -1)

# ---- the end of the gateway ends the stream, and what comes while nobody listens is not lost ----
put early 1
gateway_stop
wait_until 20 seen "$WORK/first" '^end' || fail 'the stream does not end with the gateway'
start
put late 2
follow "$WORK/second" "$LAST"
wait_until 20 seen "$WORK/second" 'synced.*"path":"late"' || fail "not told: $(cat "$WORK/second")"
check_eq 'what was missed' 'early late' "$(grep '^[0-9]' "$WORK/second" | cut -f3 | jq -r 'select(.op == "create") | .path' | xargs)"
check_eq 'nothing said to be lost' 0 "$(grep -cE 'gap|lost' "$WORK/second")"
stop_pid "$FOLLOWER"

# ---- a whole folder that goes: nothing is told to have lain elsewhere ----
for i in 1 2 3 4 5; do put "gone/deep/inner$i" x; done
check_status 0 "$HOLDFAST" rm -r v:/gone
# shellcheck disable=SC2317 # called by wait_until
gone() {
    api GET "/v1/events?follow=false&since=$LAST&volume=v" >"$WORK/gone.json"
    jq -e '[.events[] | select(.op == "remove" and .path == "gone")] | length == 1' "$WORK/gone.json"
}
wait_until 20 gone || fail "the folder's end is not told: $(cat "$WORK/gone.json")"
check_eq 'each file, by its path or its name alone' 'inner1 inner2 inner3 inner4 inner5' \
    "$(jq -r '.events[] | select(.op == "remove") | .name // .path' "$WORK/gone.json" | sed -n 's|^\(gone/deep/\)\{0,1\}\(inner.\)$|\2|p' | sort | xargs)"
check_eq 'no other path' '' "$(jq -r '.events[] | .path // empty' "$WORK/gone.json" | grep '^\(deep\|inner\)')"

# ---- a document at a time ----
api GET '/v1/events?follow=false&since=0&volume=v&prefix=d' >"$WORK/page.json"
check_eq 'below a folder' 'd d/b d/b' "$(jq -r '[.events[] | select(.type == "change") | .path] | join(" ")' "$WORK/page.json")"
api GET "/v1/events?follow=false&since=$LAST&limit=1" >"$WORK/page.json"
check_eq 'a page of one' '1 false' "$(jq -r '"\(.events | length) \(.gap)"' "$WORK/page.json")"
BEGUN=$(now_ms)
api GET '/v1/events?follow=false&wait=1' >"$WORK/page.json"
check_eq 'nothing comes' 0 "$(jq '.events | length' "$WORK/page.json")"
[ $(($(now_ms) - BEGUN)) -ge 900 ] || fail 'it did not wait'
for query in since=x limit=0 limit=1001 wait=26 prefix=d follow=perhaps 'volume=v&prefix=../x'; do
    api GET "/v1/events?follow=false&$query" >/dev/null
    check_eq "refused: $query" 400 "$(api_status)"
done
api GET '/v1/events?volume=none' >/dev/null
check_eq 'a volume that is none' 404 "$(api_status)"
check_status 0 "$HOLDFAST" events v:/d --since "$LAST"
check_status 0 "$HOLDFAST" events v
check_contains 'the command' 'move_from  v:a ü 中.txt' "$WORK/out"
"$HOLDFAST" events --json >"$WORK/all.json" || fail 'events --json'
check_eq 'one document' object "$(jq -r type "$WORK/all.json")"
LAST=$(jq .next "$WORK/all.json")

# ---- a crash: something may not have been told, and that is told ----
gateway_kill
start
put after 3
follow "$WORK/third" "$LAST"
wait_until 20 seen "$WORK/third" '"path":"after"' || fail "not told: $(cat "$WORK/third")"
check_eq 'told that some may be lost' lost "$(grep '^[0-9]' "$WORK/third" | head -1 | cut -f2)"
check_eq 'no number twice' '' "$(ids "$WORK/third" | awk -v last="$LAST" '$1 <= last')"
stop_pid "$FOLLOWER"
gateway_stop

# ---- more than is kept, lines that were cut, and no file at all ----
NEXT=$(tail -n 1 "$STATE/events.jsonl" | jq .seq)
{
    printf '{"seq":%s,"time":"2026-01-01T00:00:0\n\0\377\n{"seq":5}\n[]\n' "$NEXT"
    seq "$NEXT" $((NEXT + 19999)) |
        sed 's|.*|{"seq":&,"time":"2026-01-01T00:00:00Z","type":"change","op":"write","volume":"v","path":"p&"}|'
    printf '{"seq":%s,"end":true}\n' $((NEXT + 20000))
} >>"$STATE/events.jsonl"
start
api GET "/v1/events?follow=false&since=$((NEXT + 10000))&limit=1" >"$WORK/page.json"
check_eq 'still known' "$((NEXT + 10001)) false" "$(jq -r '"\(.events[0].seq) \(.gap)"' "$WORK/page.json")"
api GET "/v1/events?follow=false&since=$NEXT&limit=1" >"$WORK/page.json"
check_eq 'the last 16,384 are known' "$((NEXT + 3616)) true" "$(jq -r '"\(.events[0].seq) \(.gap)"' "$WORK/page.json")"
follow "$WORK/fourth" "$NEXT"
wait_until 20 seen "$WORK/fourth" "^[0-9]*.change" || fail 'nothing is told'
check_eq 'a stream says it first' "gap {\"first_seq\":$((NEXT + 3616))}" "$(sed -n 2p "$WORK/fourth" | cut -f2,3 | tr '\t' ' ')"
stop_pid "$FOLLOWER"
api GET '/v1/events?follow=false&since=99999999999999' >"$WORK/page.json"
check_eq 'a number that was never given' true "$(jq .gap "$WORK/page.json")"
gateway_stop
rm "$STATE/events.jsonl"
start
api GET "/v1/events?follow=false&since=$((NEXT + 100000))" >"$WORK/page.json"
check_eq 'without a file, numbers of before are unknown' true "$(jq .gap "$WORK/page.json")"
lib_end
