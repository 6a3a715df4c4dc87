#!/usr/bin/env bash
# run-rgw.sh CONTRACT [ARG...]: the contract suite on a real S3 server (Ceph RGW) that lives for this run.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
rgw=$here/../support/rgw.sh
contract=$1
shift
if ! command -v radosgw >/dev/null || ! command -v ceph-osd >/dev/null; then
    echo "skipped: radosgw and ceph-osd are not installed (scripts/setup)"
    exit 77
fi
work=$(mktemp -d "${TMPDIR:-/tmp}/holdfast-contract-rgw.XXXXXX")
trap '"$rgw" wipe "$work/rgw" >/dev/null 2>&1 || true; rm -rf -- "$work"' EXIT
RGW_STORE=memstore "$rgw" start "$work/rgw" >"$work/env"
"$rgw" bucket "$work/rgw" contract >/dev/null
set -a
# shellcheck disable=SC1091
. "$work/env"
set +a
"$contract" --name rgw "$@" "s3://contract?endpoint=${AWS_ENDPOINT_URL_S3}&region=${AWS_REGION}&style=path"
