#!/usr/bin/env bash
# Two gateways on one bucket, eight writers over HTTP and in mounts on 50 shared files, and a store in trouble: each version that a
# writer was told is saved is the present one, in the history or a conflict afterwards, its bytes whole; none is lost, none in silence.
# Read from the bucket with another client. INV-3, INV-10, promises 1 to 3; S28, S14, S4
# HOLDFAST_TEST_LONG=1: 20,000 operations on Ceph RGW, and in small on stores with the rules of R2; HOLDFAST_TWO_ROUNDS (below): only
# these. HOLDFAST_SEED=N: the choices of an earlier run.
# timeout: 240
# long-timeout: 7200
. "$(dirname "$0")/../support/lib.sh"
lib_begin two-gateways
need_fuse

SUPPORT=$LIB_ROOT/tests/support
HERE=$LIB_ROOT/tests/integration
SEED=${HOLDFAST_SEED:-$(date +%N | sed 's/^0*//')}
SEED=${SEED:-1}
note "seed: $SEED"
NAMES=(a b)
PIDS=() URLS=() RELAYS=() PORTS=() SYNC=(close background)

# ---- a store, and a relay before it for each gateway ----
relays() {
    local i port=${S3_ENDPOINT##*:}
    WHERE=${port#"${port%%/*}"} # the path of an endpoint that has one
    for i in 0 1; do
        RELAYS[i]=$WORK/$ROUND-away-${NAMES[i]}
        python3 "$SUPPORT/relay.py" "${RELAYS[i]}" "${port%%/*}" >"$WORK/relay.port" 2>>"$WORK/relay.log" &
        defer "stop_pid $!"
        wait_until 10 grep -q '^[0-9]' "$WORK/relay.port" || fail_now 'a relay does not start'
        PORTS[i]=$(cat "$WORK/relay.port")
        rm "$WORK/relay.port"
    done
}
fault_store() { # [ARG...]
    local line
    BUCKET=test SERVER=$WORK/$ROUND-server
    defer "'$SUPPORT/fault-server.sh' wipe '$SERVER'"
    "$SUPPORT/fault-server.sh" start "$SERVER" "$@" >/dev/null || fail_now 'the fault server does not start'
    while read -r line; do export "${line?}"; done < <("$SUPPORT/fault-server.sh" env "$SERVER")
    FAULTS=$S3_ENDPOINT
    relays
}

# ---- gateways ----
state_of() { echo "$WORK/$ROUND-state-${NAMES[$1]}"; }
mount_of() { echo "$WORK/$ROUND-mount-${NAMES[$1]}"; }
holdfast() { # NUMBER ARG...
    local number=$1
    shift
    HOLDFAST_STATE=$(state_of "$number") "$HOLDFAST" "$@"
}
serve() { # NUMBER
    gateway_start "$(state_of "$1")" "s3://$BUCKET?endpoint=http://127.0.0.1:${PORTS[$1]}$WHERE&region=$S3_REGION&style=path" \
        --list-ttl 1s --stop-timeout 30s ${HOLDFAST_TWO_LOG:+--log $HOLDFAST_TWO_LOG}
    PIDS[$1]=$GATEWAY_PID URLS[$1]=$URL
    "$HOLDFAST" volume show v >/dev/null 2>&1 || check_status 0 "$HOLDFAST" volume create v --sync "${SYNC[$1]}"
    mkdir -p "$(mount_of "$1")"
    check_status 0 "$HOLDFAST" mount v "$(mount_of "$1")"
}
end() { # NUMBER
    if [ -n "${HELD:-}" ]; then
        holdfast "$1" umount "$(mount_of "$1")" --force --timeout 2 >/dev/null 2>&1
    else
        check_status 0 holdfast "$1" umount "$(mount_of "$1")" --timeout 100
    fi
    stop_pid "${PIDS[$1]}"
}
# 3 tells of conflicts, which are as they should be. A move that would bring an ETag back which a lost request named waits 20 minutes
# for that request (docs/mechanisms.md section 13), and what is to come to or go from its former key waits for it; each says so.
HELD_BACK='"why":"waits (up to 20 minutes: a request whose answer was lost|until the file whose bytes lie at this key)'
flushed() { # NUMBER
    local status=0 unsynced seconds=150 # a lease that ends by itself takes 70
    [ "$ROUND" != shared ] || seconds=45
    holdfast "$1" flush v --wait --timeout "$seconds" >"$WORK/flush.log" 2>&1 || status=$?
    case $status in 0 | 3) return 0 ;; esac
    unsynced=$(cat "$(mount_of "$1")/.holdfast/unsynced")
    if [ "$ROUND $status" = 'shared 7' ] && ! grep -qvE "$HELD_BACK" <<<"$unsynced"; then
        note "held back by a lost request: $(wc -l <<<"$unsynced") keys"
        HELD=1
        return 0
    fi
    fail "gateway ${NAMES[$1]} does not get everything into the bucket: $(head -c 300 "$WORK/flush.log")"
    head -n 5 <<<"$unsynced" >&2
}

# ---- one round ----
PHASE=0
work() { # OPERATIONS SECONDS WAIT
    PHASE=$((PHASE + 1))
    mkdir -p "$WORK/$ROUND-ledger"
    jq -n --argjson seed "$SEED" --argjson phase "$PHASE" --argjson operations "$(($1 / 8))" --argjson seconds "$2" \
        --argjson wait "$3" --arg faults "$FAULTS" --arg every "${FAULT_EVERY:-0.5}" --arg close "$SYNC_A" \
        --arg ua "${URLS[0]}" --arg ub "${URLS[1]}" --arg ta "$(state_of 0)/token" --arg tb "$(state_of 1)/token" \
        --arg ma "$(mount_of 0)" --arg mb "$(mount_of 1)" --arg ra "${RELAYS[0]}" --arg rb "${RELAYS[1]}" \
        '{seed: $seed, phase: $phase, volume: "v", writers: 8, operations: $operations, seconds: $seconds, wait: $wait,
          flush_wait: $wait, flush_every: 6, fault_server: $faults, fault_every: ($every | tonumber), gateways: [
          {name: "a", url: $ua, token: $ta, mount: $ma, relay: $ra, sync: $close},
          {name: "b", url: $ub, token: $tb, mount: $mb, relay: $rb, sync: "background"}]}' >"$WORK/plan.json"
    timeout $(($2 + 200)) python3 "$HERE/two_gateways.py" "$WORK/plan.json" "$WORK/$ROUND-ledger" ||
        fail 'a writer ended with an error'
}
listed() { # NUMBER: the conflicts that this gateway tells of
    holdfast "$1" conflicts list v --json >"$WORK/$ROUND-conflicts-$1.json" || fail 'no list of conflicts'
}
judged() {
    python3 "$HERE/two_gateways_check.py" "$BUCKET" v "$WORK/$ROUND-ledger" "$WORK/$ROUND"-conflicts-[01].json ||
        fail "round $ROUND: not everything that was told is so"
}

shared_writing() { # OPERATIONS SECONDS [ROLE]
    HELD='' ROUND=shared SYNC=(close background) SYNC_A=close
    note '-- a store that judges conditions: both gateways write'
    PHASE=0
    if [ -n "${3:-}" ]; then fault_store --role "$3"; else fault_store; fi
    serve 0
    serve 1
    work "$1" "$2" 10
    flushed 0
    flushed 1
    listed 0
    listed 1
    judged
    end 0
    end 1
}

# ---- a store that does not judge all conditions: who holds the lease writes, the other waits, and says so ----
# Both say from the start what the store lacks.
limits() { # TEXT
    local i
    for i in 0 1; do
        holdfast "$i" status >"$WORK/status"
        check_contains "the status of gateway ${NAMES[i]}" "$1" "$WORK/status"
    done
}
waits() { # NUMBER: it has no lease, so what it was given waits, and its barrier says why
    check_status 7 holdfast "$1" flush v --wait --timeout 1
    check_contains "what gateway ${NAMES[$1]} waits for" 'writer lease' "$WORK/err"
}
# The holder ends, everything of it in the bucket; the other one takes the lease, gets rid of what waited; the holder comes back.
hand_over() { # FROM TO
    flushed "$1"
    end "$1"
    flushed "$2"
    serve "$1"
}
leased_writing() { # OPERATIONS SECONDS TURNS TEXT
    local turn from=0 to=1
    SYNC=(background background) SYNC_A=background PHASE=0
    serve 0
    echo first >"$(mount_of 0)/first"
    flushed 0 # it has the lease
    serve 1
    limits "$4"
    for ((turn = 0; turn < $3; turn++)); do
        work $(($1 / $3)) "$2" 1
        waits "$to"
        hand_over "$from" "$to"
        from=$to to=$((1 - to))
    done
    listed "$to"
    flushed "$from"
    listed "$from"
    end "$from"
    flushed "$to"
    listed "$to"
    judged
    end "$to"
}
without_conditions() {
    HELD='' ROUND=degraded
    note '-- a store that ignores all conditions: the writer lease carries the safety between the gateways'
    fault_store --role no-conditions
    leased_writing "$@" 'degraded: no conditional writes'
}
on_rgw() {
    HELD='' ROUND=rgw
    note '-- Ceph RGW, whose deletes ignore conditions: the lease too'
    rgw_start
    BUCKET=two-gateways-$$ FAULTS=
    rgw_bucket "$BUCKET"
    relays
    leased_writing "$@" 'deletes: degraded'
}

on_r2() {
    local line
    HELD='' ROUND=r2 BUCKET=two FAULTS='' SERVER=$WORK/r2-server
    note "-- R2's own local server: the lease too"
    defer "'$SUPPORT/r2.sh' wipe '$SERVER'"
    "$SUPPORT/r2.sh" start "$SERVER" >/dev/null || fail_now 'r2 does not start'
    "$SUPPORT/r2.sh" bucket "$SERVER" "$BUCKET" || fail_now 'no bucket on r2'
    while read -r line; do export "${line?}"; done < <("$SUPPORT/r2.sh" env "$SERVER")
    relays
    leased_writing "$@" 'deletes: degraded'
}
on_r2_rules() {
    HELD='' ROUND=rules
    note "-- R2's rules: one write per second and key, composed names, equal parts, weak copies and deletes"
    fault_store --role one-write,nfc,equal-parts,weak-copy
    leased_writing "$@" 'deletes: degraded'
}

# HOLDFAST_TWO_ROUNDS='NAME...': only these, in small.
if [ -n "${HOLDFAST_TWO_ROUNDS:-}" ]; then
    for round in $HOLDFAST_TWO_ROUNDS; do
        case $round in
        r2) FAULT_EVERY=0 on_r2 "${HOLDFAST_OPERATIONS:-300}" 20 2 ;;
        r2-rules) FAULT_EVERY=0 on_r2_rules "${HOLDFAST_OPERATIONS:-300}" 20 2 ;;
        rgw) on_rgw "${HOLDFAST_OPERATIONS:-2000}" 300 2 ;;
        one-write) shared_writing "${HOLDFAST_OPERATIONS:-600}" 20 one-write ;;
        *) fail_now "no round '$round'" ;;
        esac
    done
elif [ "${HOLDFAST_TEST_LONG:-0}" = 1 ]; then
    HOLDFAST_TWO_ROUNDS='r2 r2-rules one-write' "$0" || fail 'on a store with the rules of R2'
    on_rgw "${HOLDFAST_OPERATIONS:-20000}" 300 10
    shared_writing "${HOLDFAST_OPERATIONS:-20000}" 1200
    without_conditions "${HOLDFAST_OPERATIONS:-5000}" 300 6
else
    shared_writing "${HOLDFAST_OPERATIONS:-1200}" 10
    # Without faults: after an answer that was lost the lease is not let go, but ends by itself, 70 s later.
    FAULT_EVERY=0 without_conditions "${HOLDFAST_OPERATIONS:-200}" 6 1
fi
