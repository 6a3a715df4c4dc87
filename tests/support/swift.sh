#!/usr/bin/env bash
# tests/support/swift.sh COMMAND DIR - a small OpenStack Swift with its S3 face (s3api) on 127.0.0.1, for tests only.
#
#   start DIR      make it the first time, start it, print what `env` prints (3 to 6 s)
#   env DIR        endpoint, keys, region and pids as NAME=value lines
#   stop DIR       stop its servers; the data stay
#   wipe DIR       stop, then remove DIR (only a directory that this script has made)
#   bucket DIR NAME...        make buckets
#
# Its worth is that it answers 501 to conditional writes, and that nobody here wrote it. One device, one copy of
# everything, no background daemons, fixed keys: never for real data. SWIFT_PORT at the first start (else a free one).
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
access_key=test:tester
secret_key=testing
servers=(account container object proxy)
# shellcheck source=daemons.sh
. "$root/tests/support/daemons.sh"
daemons_begin swift.sh 'holdfast test swift'

halt_all() {
    local name
    for name in "${servers[@]}"; do halt "$name"; done
}

write_settings() {
    local proxy account container object
    read -r proxy account container object < <(free_ports 4)
    cat >"$dir/settings" <<SETTINGS
SWIFT_PORT=${SWIFT_PORT:-$proxy}
SWIFT_ACCOUNT_PORT=$account
SWIFT_CONTAINER_PORT=$container
SWIFT_OBJECT_PORT=$object
SETTINGS
}

common_conf() { # PORT
    cat <<CONF
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = $1
swift_dir = $dir/etc
user = $(id -un)
workers = 0
log_address = $dir/no-syslog
log_level = ERROR
CONF
}

# A storage server, and a ring of the one device that it has.
make_storage() { # KIND PORT
    {
        common_conf "$2"
        cat <<CONF
devices = $dir/devices
mount_check = false
fallocate_reserve = 0
recon_cache_path = $dir/recon
disable_fallocate = true
[pipeline:main]
pipeline = $1-server
[app:$1-server]
use = egg:swift#$1
CONF
    } >"$dir/etc/$1.conf"
    (
        cd "$dir/etc"
        swift-ring-builder "$1.builder" create 4 1 1
        swift-ring-builder "$1.builder" add "r1z1-127.0.0.1:$2/disk" 1
        swift-ring-builder "$1.builder" rebalance
    ) >>"$dir/make.log" 2>&1 || die "cannot make the ring of '$1', see '$dir/make.log'"
}

# tempauth wants a cache to be there; nothing listens at its address, and S3's keys need none.
make_proxy() {
    local filter
    {
        common_conf "$SWIFT_PORT"
        cat <<CONF
[pipeline:main]
pipeline = catch_errors gatekeeper healthcheck cache listing_formats s3api tempauth copy bulk slo dlo versioned_writes symlink proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
[filter:cache]
use = egg:swift#memcache
memcache_servers = 127.0.0.1:1
[filter:s3api]
use = egg:swift#s3api
location = us-east-1
[filter:tempauth]
use = egg:swift#tempauth
user_${access_key/:/_} = $secret_key .admin
[filter:versioned_writes]
use = egg:swift#versioned_writes
allow_object_versioning = true
CONF
        for filter in catch_errors gatekeeper healthcheck listing_formats copy bulk slo dlo symlink; do
            printf '[filter:%s]\nuse = egg:swift#%s\n' "$filter" "$filter"
        done
    } >"$dir/etc/proxy.conf"
}

make_all() {
    mkdir -p "$dir"/{etc,devices/disk,recon}
    cat >"$dir/etc/swift.conf" <<CONF
[swift-hash]
swift_hash_path_prefix = holdfast
swift_hash_path_suffix = test
[storage-policy:0]
name = one
default = yes
[swift-constraints]
# what S3 allows: 2 KiB of metadata in all
max_meta_value_length = 2048
CONF
    make_storage account "$SWIFT_ACCOUNT_PORT"
    make_storage container "$SWIFT_CONTAINER_PORT"
    make_storage object "$SWIFT_OBJECT_PORT"
    make_proxy
}

answers() { [ "$(curl -s --noproxy '*' -m 2 "http://127.0.0.1:$SWIFT_PORT/healthcheck")" = OK ]; }

start() {
    local name
    for name in swift-ring-builder swift-proxy-server swift-account-server swift-container-server swift-object-server curl aws; do
        command -v "$name" >/dev/null || die "'$name' is missing: run scripts/setup --tests"
    done
    claim_dir
    [ -f "$dir/settings" ] || write_settings
    load_settings
    if running proxy >/dev/null && answers; then return 0; fi
    [ -f "$dir/made" ] || make_all
    for name in "${servers[@]}"; do
        running "$name" >/dev/null || launch "$name" "swift-$name-server" "$dir/etc/$name.conf"
    done
    until_ready proxy 60 answers
    : >"$dir/made"
}

print_env() {
    local name
    load_settings
    print_keys "http://127.0.0.1:$SWIFT_PORT" us-east-1 "$access_key" "$secret_key"
    echo "S3_PIDS=$(for name in "${servers[@]}"; do running "$name" || true; done | paste -sd,)"
}

# The servers behind the proxy may come up a moment after it. (curl cannot sign here: the access key has a colon.)
make_bucket() { # NAME
    AWS_ACCESS_KEY_ID=$access_key AWS_SECRET_ACCESS_KEY=$secret_key AWS_DEFAULT_REGION=us-east-1 AWS_CONFIG_FILE=/dev/null \
        aws --endpoint-url "http://127.0.0.1:$SWIFT_PORT" s3api create-bucket --bucket "$1" >/dev/null
}
make_buckets() {
    local name i
    load_settings
    for name in "$@"; do
        for ((i = 0; i < 50; i++)); do
            ! make_bucket "$name" 2>"$dir/bucket.err" || continue 2
            sleep 0.2
        done
        die "cannot make the bucket '$name': $(cat "$dir/bucket.err")"
    done
}

command=${1:-help}
case $command in
start | env | stop | wipe | bucket) ;;
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
    start
    print_env
    ;;
env) print_env ;;
stop) halt_all ;;
wipe) wipe_dir ;;
bucket) make_buckets "$@" ;;
esac
