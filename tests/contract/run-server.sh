#!/usr/bin/env bash
# run-server.sh SERVER CONTRACT [ARG...]: the contract suite on a server of tests/support that lives for this run: rgw, r2,
# swift, or fault-server:ROLE[,ROLE] (a role of tests/fault/server/README.md, or nothing).
set -euo pipefail

support=$(cd "$(dirname "$0")/../support" && pwd)
name=$1
contract=$2
shift 2
kind=${name%%:*}
role=${name#"$kind"}
bucket=contract
options=()
case $kind in
rgw) needs='radosgw ceph-osd' ;;
r2) needs='npm' ;;
swift) needs='swift-proxy-server aws' ;;
fault-server)
    needs=''
    bucket="test"
    # Short enough for a suite that writes each key again and again; listings lag by requests, not by the clock.
    options=(--role "${role#:}" --write-ms 100 --lag-ms 0 --lag-lists 2)
    ;;
*)
    echo "run-server.sh: unknown server '$name'" >&2
    exit 2
    ;;
esac
for program in $needs; do
    command -v "$program" >/dev/null || {
        echo "skip: '$program' is not installed (scripts/setup --tests)"
        exit 77
    }
done
work=$(mktemp -d "${TMPDIR:-/tmp}/holdfast-contract-$kind.XXXXXX")
trap '"$support/$kind.sh" wipe "$work/server" >/dev/null 2>&1 || true; rm -rf -- "$work"' EXIT
export RGW_STORE=memstore
status=0
"$support/$kind.sh" start "$work/server" ${options[@]+"${options[@]}"} >"$work/env" || status=$?
[ "$status" = 0 ] || exit "$status"
"$support/$kind.sh" bucket "$work/server" "$bucket" >/dev/null
"$support/$kind.sh" env "$work/server" >"$work/env"
while read -r line; do export "${line?}"; done <"$work/env"
"$contract" --name "$name" "$@" "s3://$bucket?endpoint=$S3_ENDPOINT&region=$S3_REGION&style=path"
