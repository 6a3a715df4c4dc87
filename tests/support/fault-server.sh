#!/usr/bin/env bash
# tests/support/fault-server.sh COMMAND DIR - the S3 server of tests/fault/server on 127.0.0.1, outside of a test program.
#
#   start DIR [ARG...]        start it (ARG: as of fault-server, see its README.md: --role NAME, --lag-ms N), print `env`
#   env DIR                   endpoint, keys, region and pid as NAME=value lines
#   stop DIR                  stop it; the objects are gone
#   wipe DIR                  stop, then remove DIR (only a directory that this script has made)
#   bucket DIR test           there is one bucket, `test`: nothing to do
#   control DIR REQUEST       a control request: '_role?name=nfc', '_fault?kind=LOST&op=PUT', '_reset'; prints the answer
#
# FAULT_SERVER=FILE is the program, else it is looked for in HOLDFAST_BUILD (build/dev). Any S3 client may talk to it.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=daemons.sh
. "$root/tests/support/daemons.sh"
daemons_begin fault-server.sh 'holdfast test fault server'

halt_all() { halt server; }

start() {
    local program=${FAULT_SERVER:-}
    [ -n "$program" ] || program=$(find "${HOLDFAST_BUILD:-$root/build/dev}" -name fault-server -type f 2>/dev/null | head -n 1)
    [ -x "$program" ] || die "no program fault-server: build it, or set HOLDFAST_BUILD or FAULT_SERVER"
    claim_dir
    if running server >/dev/null; then return 0; fi
    mkdir -p "$dir/spool"
    TMPDIR=$dir/spool launch server "$program" --port 0 --stay --lenient "$@"
    until_ready server 10 grep -q '^[0-9]' "$dir/server.out"
    echo "FAULT_PORT=$(head -n 1 "$dir/server.out")" >"$dir/settings"
}

print_env() {
    load_settings
    print_keys "http://127.0.0.1:$FAULT_PORT" us-east-1 FAULTSERVERKEY000001 'faultServerSecret/0123456789+abcdefghij'
    echo "S3_PIDS=$(running server || true)"
}

make_buckets() {
    local name
    for name in "$@"; do
        [ "$name" = test ] || die "there is only the bucket 'test', not '$name'"
    done
}

control() { # REQUEST
    local method=POST
    load_settings
    case $1 in _stats* | _raw*) method=GET ;; esac
    curl -sS -f -m 10 --noproxy '*' -X "$method" "http://127.0.0.1:$FAULT_PORT/$1"
}

command=${1:-help}
case $command in
start | env | stop | wipe | bucket | control) ;;
*)
    sed -n '2,/^set /s/^# \{0,1\}//p' "$0"
    [ "$command" = help ] && exit 0 || exit 2
    ;;
esac
[ -n "${2:-}" ] || die "$command needs a directory"
daemons_dir "$2"
shift 2
case $command in
start)
    start "$@"
    print_env
    ;;
env) print_env ;;
stop) halt_all ;;
wipe) wipe_dir ;;
bucket) make_buckets "$@" ;;
control) control "$@" ;;
esac
