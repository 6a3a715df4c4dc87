#!/usr/bin/env bash
# Hostile heads on raw sockets are refused and the connection closed; nobody holds a place for long without using it.
# timeout: 180
. "$(dirname "$0")/../support/lib.sh"
lib_begin http-robustness

gateway_start "$WORK/state" "file://$WORK/bucket"
check_status 0 "$HOLDFAST" volume create v
python3 "$(dirname "$0")/http_robustness.py" 127.0.0.1 "$PORT" "$(gateway_token)" --slow || fail 'see above'
gateway_ready || fail 'the gateway does not answer any more'
check_eq 'volumes afterwards' 200 "$(api GET /v1/volumes >/dev/null; api_status)"
