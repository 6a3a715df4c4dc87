#!/usr/bin/env bash
# run-fault-server.sh CONTRACT FAULT_SERVER [ARG...]: the contract suite on the S3 server of tests/fault/server, without faults.
set -euo pipefail

contract=$1
server=$2
shift 2
work=$(mktemp -d "${TMPDIR:-/tmp}/holdfast-contract-fault.XXXXXX")
"$server" --port 0 >"$work/port" &
pid=$!
trap 'kill "$pid" 2>/dev/null || true; rm -rf -- "$work"' EXIT
for _ in $(seq 100); do
    [ -s "$work/port" ] && break
    sleep 0.05
done
port=$(cat "$work/port")
export AWS_ACCESS_KEY_ID=FAULTSERVERKEY000001
export AWS_SECRET_ACCESS_KEY=faultServerSecret/0123456789+abcdefghij
"$contract" --name fault-server "$@" "s3://test?endpoint=http://127.0.0.1:$port&region=us-east-1&style=path"
