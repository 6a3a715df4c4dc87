# shellcheck shell=bash
# tests/support/lib.sh - sourced by the shell tests: a work directory, cleanup, checks, a gateway, a store.
#
# A test ends with 0 (passed), 77 (skipped, the reason on the last line) or anything else (failed). `lib_begin NAME` makes
# WORK; whatever `defer` was given runs at the end in reverse order, also after a failure.

set -u -o pipefail

LIB_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
HOLDFAST_BUILD=${HOLDFAST_BUILD:-$LIB_ROOT/build/dev}
HOLDFAST=$HOLDFAST_BUILD/holdfast
LIB_FAILED=0
LIB_DEFERRED=()
LIB_SINCE=() # when the process of a deferred stop_pid began
export LC_ALL=C.UTF-8 no_proxy='*' NO_PROXY='*'
unset HOLDFAST_URL HOLDFAST_TOKEN HOLDFAST_STATE HOLDFAST_CONFIG HOLDFAST_RUN
export HOLDFAST_TAKEOVER=off # what a test kills stays dead; takeover.sh wants it otherwise

# ---- frame ----
lib_begin() { # NAME
    WORK=$(mktemp -d "${TMPDIR:-/tmp}/holdfast-$1.XXXXXX") || exit 1
    chmod 755 "$WORK"
    trap lib_end EXIT
    trap 'exit 130' INT TERM
    [ -x "$HOLDFAST" ] || fail_now "no program '$HOLDFAST': build it first, or set HOLDFAST_BUILD"
}

lib_end() {
    local status=$? i
    trap - EXIT
    for ((i = ${#LIB_DEFERRED[@]} - 1; i >= 0; i--)); do eval "${LIB_DEFERRED[i]}" || true; done
    if [ "$status" = 0 ] && [ "$LIB_FAILED" != 0 ]; then status=1; fi
    if [ "$status" != 0 ] && [ "$status" != 77 ]; then
        tail -n 30 "$WORK"/*.log >&2 2>/dev/null || true
    fi
    if [ -n "${KEEP:-}" ]; then echo "kept: $WORK" >&2; else rm -rf -- "$WORK"; fi
    exit "$status"
}

defer() {
    local argv
    read -r -a argv <<<"$*"
    # By the time it runs the number may be another process's.
    [ "${argv[0]}" != stop_pid ] || LIB_SINCE[argv[1]]=$(started_at "${argv[1]}")
    LIB_DEFERRED+=("$*")
}

# ---- checks: each names what it saw ----
note() { printf '%s\n' "$*"; }
fail() {
    printf 'FAIL: %s\n' "$*" >&2
    LIB_FAILED=1
}
fail_now() {
    fail "$@"
    exit 1
}
skip() { # REASON
    printf 'skip: %s\n' "$*"
    exit 77
}
check_eq() { # WHAT WANTED SEEN
    [ "$2" = "$3" ] || fail "$1: wanted '$2', saw '$3'"
}
check_status() { # WANTED COMMAND...: output in $WORK/out and $WORK/err, status in STATUS
    local wanted=$1
    shift
    STATUS=0
    "$@" >"$WORK/out" 2>"$WORK/err" || STATUS=$?
    [ "$STATUS" = "$wanted" ] || fail "'$*' ended with $STATUS, wanted $wanted: $(head -c 400 "$WORK/err")"
}
check_one_line() { # the last check_status said why in one line, within what a person reads
    local lines
    lines=$(wc -l <"$WORK/err")
    [ "$lines" = 1 ] || fail "wanted one line on stderr, saw $lines: $(head -c 400 "$WORK/err")"
}
check_same() { # WHAT FILE FILE
    cmp -s -- "$2" "$3" || fail "$1: '$2' and '$3' differ"
}
check_contains() { # WHAT TEXT FILE
    grep -qF -- "$2" "$3" || fail "$1: no '$2' in: $(head -c 400 "$3")"
}

wait_until() { # SECONDS COMMAND...
    local deadline=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$deadline" ] || return 1
        sleep 0.1
    done
}
now_ms() { date +%s%3N; }

# ---- processes ----
started_at() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }
stop_pid() { # PID [SIGNAL]: ends one process that this test has started, and waits for it
    local pid=$1 i
    [ "${LIB_SINCE[pid]:-$(started_at "$pid")}" = "$(started_at "$pid")" ] || return 0
    kill "-${2:-TERM}" "$pid" 2>/dev/null || return 0
    for ((i = 0; i < 600; i++)); do
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.1
    done
    kill -KILL "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
}

# ---- the gateway ----
free_port() {
    python3 -c 'import socket
s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# Starts `holdfast serve`; sets GATEWAY_PID, PORT, URL, HOLDFAST_STATE. Extra arguments go to serve.
gateway_start() { # STATE STORE [ARG...]
    local state=$1 store=$2
    shift 2
    mkdir -p "$state"
    PORT=$(free_port)
    URL=http://127.0.0.1:$PORT
    HOLDFAST_STATE=$state
    export HOLDFAST_STATE URL PORT
    "$HOLDFAST" serve --state "$state" --store "$store" --listen "127.0.0.1:$PORT" "$@" >>"$WORK/gateway.log" 2>&1 &
    GATEWAY_PID=$!
    defer "stop_pid $GATEWAY_PID"
    wait_until 30 gateway_ready || fail_now "the gateway does not get ready: $(tail -n 5 "$WORK/gateway.log")"
}
gateway_ready() { curl -s -f -o /dev/null -m 2 "$URL/readyz"; }
gateway_stop() { stop_pid "$GATEWAY_PID"; }
gateway_kill() { # at once, as a crash does; the mounter notices by itself
    kill -KILL "$GATEWAY_PID" 2>/dev/null || true
    wait "$GATEWAY_PID" 2>/dev/null || true
}
gateway_token() { cat "$HOLDFAST_STATE/token"; }
api() { # METHOD PATH [CURL-ARG...]: the body on stdout, the status in API_STATUS_FILE
    local method=$1 path=$2
    shift 2
    curl -sS -m 30 -X "$method" -H "Authorization: Bearer $(gateway_token)" -o "$WORK/api.body" -w '%{http_code}' \
        "$@" "$URL$path" >"$WORK/api.status"
    cat "$WORK/api.body"
}
api_status() { cat "$WORK/api.status"; }

# ---- stores ----
# Starts Ceph RGW once per work directory; sets S3_* and AWS_*. With HOLDFAST_TEST_RGW=DIR a running one is used.
rgw_start() {
    local line
    if [ -z "${HOLDFAST_TEST_RGW:-}" ]; then
        HOLDFAST_TEST_RGW=$WORK/rgw
        defer "'$LIB_ROOT/tests/support/rgw.sh' wipe '$HOLDFAST_TEST_RGW'"
        "$LIB_ROOT/tests/support/rgw.sh" start "$HOLDFAST_TEST_RGW" >/dev/null || fail_now "Ceph RGW does not start"
    fi
    while read -r line; do export "${line?}"; done < <("$LIB_ROOT/tests/support/rgw.sh" env "$HOLDFAST_TEST_RGW")
    # Debian 12's client ignores AWS_ENDPOINT_URL.
    # shellcheck disable=SC2034 # for the tests that source this
    AWS=(aws --endpoint-url "$S3_ENDPOINT")
}
rgw_bucket() { # NAME...
    "$LIB_ROOT/tests/support/rgw.sh" bucket "$HOLDFAST_TEST_RGW" "$@" || fail_now "no bucket '$1'"
}
rgw_store_url() { # BUCKET[/PREFIX]
    echo "s3://$1?endpoint=$S3_ENDPOINT&region=$S3_REGION&style=path"
}
need_fuse() {
    [ -c /dev/fuse ] || skip "no /dev/fuse on this machine"
    [ "$(id -u)" = 0 ] || skip "mounting needs root"
}
# The fault server behind a relay that can be cut: sets STORE_URL and the S3 settings. `store_away [mute]`, `store_back`.
relay_start() {
    local line
    defer "'$LIB_ROOT/tests/support/fault-server.sh' wipe '$WORK/fault'"
    "$LIB_ROOT/tests/support/fault-server.sh" start "$WORK/fault" >/dev/null || fail_now "the fault server does not start"
    while read -r line; do export "${line?}"; done < <("$LIB_ROOT/tests/support/fault-server.sh" env "$WORK/fault")
    python3 "$LIB_ROOT/tests/support/relay.py" "$WORK/away" "${S3_ENDPOINT##*:}" >"$WORK/relay.port" 2>>"$WORK/relay.log" &
    defer "stop_pid $!"
    wait_until 10 grep -q '^[0-9]' "$WORK/relay.port" || fail_now "the relay does not start"
    # shellcheck disable=SC2034 # for the tests that source this
    STORE_URL="s3://test?endpoint=http://127.0.0.1:$(cat "$WORK/relay.port")&region=$S3_REGION&style=path"
}
store_away() {
    echo "${1:-cut}" >"$WORK/away"
    sleep 0.3 # the relay looks every 50 ms
}
store_back() { rm -f "$WORK/away"; }
