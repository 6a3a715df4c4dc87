#!/usr/bin/env bash
# The limits of requests and bytes per second hold for all threads together, without an error; status counts the requests by
# what they cost and says what they come to; a volume's storage class and encryption are set, shown and kept.
# timeout: 180
. "$(dirname "$0")/../support/lib.sh"
lib_begin limits

SERVER=$HOLDFAST_BUILD/tests/fault/server/fault-server
[ -x "$SERVER" ] || fail_now 'no fault-server in the build'
"$SERVER" --port 0 >"$WORK/server.port" 2>"$WORK/server.log" &
defer "stop_pid $!"
wait_until 10 test -s "$WORK/server.port" || fail_now 'the fault server does not start'
export AWS_ACCESS_KEY_ID=FAULTSERVERKEY000001 AWS_SECRET_ACCESS_KEY=faultServerSecret/0123456789+abcdefghij
unset AWS_SESSION_TOKEN AWS_ENDPOINT_URL AWS_ENDPOINT_URL_S3
STORE="s3://test?endpoint=http://127.0.0.1:$(tr -dc 0-9 <"$WORK/server.port")&region=us-east-1&style=path"

took() { # MS-AT-LEAST MS-AT-MOST WHAT COMMAND...
    local least=$1 most=$2 what=$3 begin ms
    shift 3
    begin=$(now_ms)
    check_status 0 "$@"
    ms=$(($(now_ms) - begin))
    note "$what: $ms ms"
    [ "$ms" -ge "$least" ] || fail "$what took $ms ms, the limit wants $least at least"
    [ "$ms" -le "$most" ] || fail "$what took $ms ms, allowed are $most"
}

# ---- bytes: 4 x 512 KiB at 512 KiB a second take about 4 s, whoever sends them ----
head -c $((512 << 10)) /dev/urandom >"$WORK/half"
gateway_start "$WORK/up" "$STORE" --limit-up 512K
check_status 0 "$HOLDFAST" volume create v
begin=$(now_ms)
pids=()
for i in 1 2 3 4; do
    "$HOLDFAST" put "$WORK/half" "v:/f$i" >/dev/null 2>"$WORK/put$i" &
    pids+=($!)
done
for pid in "${pids[@]}"; do wait "$pid" || fail "a put failed: $(cat "$WORK"/put?)"; done
ms=$(($(now_ms) - begin))
note "2 MiB up at 512 KiB/s: $ms ms"
[ "$ms" -ge 3400 ] || fail "2 MiB went up in $ms ms at 512 KiB a second"
check_status 0 "$HOLDFAST" status --json
[ "$(jq .store.counters.limited_ms "$WORK/out")" -ge 1000 ] || fail "the wait was not counted: $(jq -c .store.counters "$WORK/out")"
check_eq 'retries under the limit' 0 "$(jq .store.retries "$WORK/out")"
gateway_stop

# ---- bytes down, with an empty cache ----
gateway_start "$WORK/down" "$STORE" --limit-down 256K
check_status 0 "$HOLDFAST" volume create v
took 1500 60000 '512 KiB down at 256 KiB/s' "$HOLDFAST" get v:/f1 "$WORK/back"
check_same 'what came down' "$WORK/half" "$WORK/back"
gateway_stop

# ---- requests; costs at the prices of the provider that is named ----
gateway_start "$WORK/requests" "$STORE" --limit-requests 5 --provider aws
check_status 0 "$HOLDFAST" volume create v
for i in 1 2 3 4 5 6; do "$HOLDFAST" put --no-wait "$WORK/put1" "v:/small$i" >/dev/null || fail "put $i"; done
took 700 60000 'the rest of 6 uploads at 5 requests/s' "$HOLDFAST" flush --wait --timeout 60
check_status 0 "$HOLDFAST" status
check_contains 'status counts requests' 'that write or list' "$WORK/out"
check_contains 'status names the price list' 'at the list prices of aws' "$WORK/out"
check_status 0 "$HOLDFAST" status --json
check_eq 'counts agree' true "$(jq '.store | (.cost.class_a + .cost.class_b + .cost.free) == .requests' "$WORK/out")"
check_eq 'cost agrees' true "$(jq '.store.cost | ((.class_a * 5 + .class_b * 0.4) / 1e6 - .usd) | fabs < 1e-9' "$WORK/out")"

# ---- how a volume's objects are kept ----
check_status 0 "$HOLDFAST" volume create cold --storage-class STANDARD_IA --encryption aws:kms:key-1
check_status 0 "$HOLDFAST" volume show cold
check_contains 'class' 'STANDARD_IA' "$WORK/out"
check_contains 'encryption' 'aws:kms:key-1' "$WORK/out"
check_status 0 "$HOLDFAST" volume set cold --encryption AES256
check_status 0 "$HOLDFAST" volume list --json
check_eq 'class and encryption' 'STANDARD_IA AES256' \
    "$(jq -r '.volumes[] | select(.name == "cold") | "\(.storage_class) \(.encryption)"' "$WORK/out")"
check_status 1 "$HOLDFAST" volume set cold --encryption ROT13
check_one_line
gateway_stop
gateway_start "$WORK/requests" "$STORE"
check_status 0 "$HOLDFAST" volume show cold --json
check_eq 'after a restart' 'STANDARD_IA AES256' "$(jq -r '"\(.storage_class) \(.encryption)"' "$WORK/out")"
