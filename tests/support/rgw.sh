#!/usr/bin/env bash
# tests/support/rgw.sh COMMAND DIR - a small Ceph cluster with an object gateway (S3) on 127.0.0.1, for tests only.
#
#   start DIR      make the cluster the first time, start it, print what `env` prints (5 to 10 s, later 3 s)
#   env DIR        endpoint, keys, region and pids as NAME=value lines
#   stop DIR       stop its daemons; the data stay (also with RGW_STORE=memstore)
#   wipe DIR       stop, then remove DIR (only a directory that this script has made)
#   bucket DIR NAME...        make buckets
#   pause DIR / resume DIR    freeze and thaw the OSD: requests are taken, the answer is lost or late
#   token DIR [SECONDS]       with RGW_STS=1: temporary keys with a session token, as NAME=value lines; they end after
#                  an hour, or after SECONDS (STS itself gives none that live less than 15 minutes)
#   admin DIR ...  radosgw-admin; ceph DIR ...  ceph
#
# Read at the first start of DIR, then kept in DIR/settings:
#   RGW_PORT (a free one)   RGW_TLS=1 (https too, self-signed, DIR/tls.crt)   RGW_STORE=bluestore|memstore
#   RGW_SIZE_GB=8           RGW_STS=1 (temporary keys)                        RGW_DEBUG=0..20 (DIR/rgw.log)
#
# One monitor, one OSD, no manager, no authentication inside, one copy of everything, fsync switched off (libeatmydata):
# it forgets at a power cut and must never see real data. User `holdfast-test` owns what it makes; `stranger` owns nothing.
set -euo pipefail

access_key=HFTESTACCESSKEY00001
secret_key='hfTestSecret/Key+00000000000000000000001'
other_access_key=HFSTRANGERKEY0000001
other_secret_key='hfStranger/Key+0000000000000000000000001'
# shellcheck source=daemons.sh
. "$(dirname "${BASH_SOURCE[0]}")/daemons.sh"
daemons_begin rgw.sh 'holdfast test cluster'

launch_unsynced() { # NAME COMMAND...: without fsync
    local name=$1
    shift
    launch "$name" env LD_PRELOAD="$(ldconfig -p | sed -n 's/.*=> \(.*libeatmydata\.so\).*/\1/p' | head -n 1)" "$@"
}

halt_all() {
    halt rgw
    halt osd
    halt mon
}

ceph_() { timeout 30 ceph -c "$conf" --connect-timeout 10 "$@"; }
osd_is_up() { ceph_ osd stat | grep -q ' 1 up'; }
rgw_answers() { curl -s -f -o /dev/null --noproxy '*' -m 2 "http://127.0.0.1:$RGW_PORT/"; }

# ---- the first start ----
write_settings() {
    local port tls_port mon_port
    read -r port tls_port mon_port < <(free_ports 3)
    [ "${RGW_TLS:-0}" = 1 ] || tls_port=0
    cat >"$dir/settings" <<SETTINGS
RGW_FSID=$(cat /proc/sys/kernel/random/uuid)
RGW_PORT=${RGW_PORT:-$port}
RGW_TLS_PORT=$tls_port
RGW_MON_PORT=$mon_port
RGW_STORE=${RGW_STORE:-bluestore}
RGW_SIZE_GB=${RGW_SIZE_GB:-8}
RGW_STS=${RGW_STS:-0}
RGW_DEBUG=${RGW_DEBUG:-0}
SETTINGS
}

write_conf() {
    # tcp_nodelay: without it an answer with a body waits 40 ms for the client's delayed ACK.
    local front="beast endpoint=127.0.0.1:$RGW_PORT tcp_nodelay=1" bytes=$((RGW_SIZE_GB << 30)) sts=false part
    [ "$RGW_STS" = 0 ] || sts=true
    [ "$RGW_TLS_PORT" = 0 ] ||
        front+=" ssl_endpoint=127.0.0.1:$RGW_TLS_PORT ssl_certificate=$dir/tls.crt ssl_private_key=$dir/tls.key"
    {
        cat <<CONF
[global]
fsid = $RGW_FSID
mon_host = v2:127.0.0.1:$RGW_MON_PORT
mon_initial_members = a
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
ms_bind_msgr1 = false
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
# radosgw asks for 'secure' only, and there is no key to be secure with
ms_mon_client_mode = crc secure
run_dir = $dir/run
admin_socket = $dir/run/\$name.asok
log_file = $dir/\$name.log
mon_cluster_log_file = $dir/cluster.log
pid_file =
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 4
osd_pool_default_pgp_num = 4
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = 0
mon_allow_pool_size_one = true
mon_warn_on_pool_no_redundancy = false
mon_max_pg_per_osd = 1000
# a nearly full test machine is no reason to refuse writes
mon_osd_nearfull_ratio = 0.97
mon_osd_backfillfull_ratio = 0.98
mon_osd_full_ratio = 0.985
osd_failsafe_full_ratio = 0.99
CONF
        for part in auth bdev bluefs bluestore context memstore mon monc ms objclass objecter osd paxos rados rocksdb; do
            echo "debug_$part = 0/0"
        done
        cat <<CONF
debug_rgw = $RGW_DEBUG/$RGW_DEBUG
[mon]
mon_data = $dir/mon
mon_data_avail_warn = 2
mon_data_avail_crit = 1
# each pool that radosgw makes is a round of these; the default is a second
paxos_propose_interval = 0.05
paxos_min_wait = 0.02
[osd]
osd_data = $dir/osd
# Debian 13's ceph looks for these in a relative path
osd_class_dir = $(dirname "$(find /usr/lib -name libcls_rgw.so -print -quit)")
osd_objectstore = $RGW_STORE
osd_op_num_shards = 2
osd_op_num_threads_per_shard = 1
osd_enable_op_tracker = false
osd_memory_target = 1073741824
osd_max_object_name_len = 2048
# memstore writes itself out at an orderly stop only
osd_fast_shutdown = false
memstore_device_bytes = $bytes
bluestore_block_size = $bytes
bluestore_block_create = true
bluestore_fsck_on_mount = false
[client]
rgw_data = $dir/rgw
rgw_frontends = $front
rgw_dns_name = localhost
rgw_thread_pool_size = 64
rgw_enable_usage_log = false
rgw_enable_ops_log = false
rgw_override_bucket_index_max_shards = 1
rgw_dynamic_resharding = false
rgw_s3_auth_use_sts = $sts
rgw_sts_key = holdfasttestsk16
CONF
    } >"$conf"
}

make_certificate() {
    openssl req -x509 -newkey rsa:2048 -nodes -days 3650 -subj /CN=localhost -keyout "$dir/tls.key" -out "$dir/tls.crt" \
        -addext 'subjectAltName=DNS:localhost,DNS:*.localhost,IP:127.0.0.1' 2>>"$dir/make.log"
}

make_cluster() {
    rm -rf -- "${dir:?}"/{mon,osd,rgw,run,monmap,settings}
    mkdir -p "$dir"/{mon,osd,rgw,run}
    write_settings
    load_settings
    [ "$RGW_TLS_PORT" = 0 ] || make_certificate
    write_conf
    {
        monmaptool --create --fsid "$RGW_FSID" --addv a "[v2:127.0.0.1:$RGW_MON_PORT]" "$dir/monmap" &&
            ceph-mon -c "$conf" --mkfs -i a --monmap "$dir/monmap"
    } >>"$dir/make.log" 2>&1 || die "cannot make the monitor, see '$dir/make.log'"
}

make_osd() {
    local id
    id=$(cat /proc/sys/kernel/random/uuid)
    { ceph_ osd new "$id" && ceph-osd -c "$conf" -i 0 --mkfs --osd-uuid "$id"; } >>"$dir/make.log" 2>&1 ||
        die "cannot make the OSD, see '$dir/make.log'"
}

admin() { radosgw-admin -c "$conf" "$@"; }
logged_admin() {
    admin "$@" >>"$dir/make.log" 2>&1 || die "radosgw-admin $1 $2 failed, see '$dir/make.log'"
}

make_users() {
    logged_admin user create --uid=holdfast-test --display-name=holdfast-test \
        --access-key="$access_key" --secret-key="$secret_key"
    logged_admin user create --uid=stranger --display-name=stranger \
        --access-key="$other_access_key" --secret-key="$other_secret_key"
    [ "$RGW_STS" = 1 ] || return 0
    local trust='{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":["arn:aws:iam:::user/holdfast-test"]},"Action":["sts:AssumeRole"]}]}'
    local rights='{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["s3:*"],"Resource":"arn:aws:s3:::*"}]}'
    logged_admin role create --role-name=tester --path=/ --assume-role-policy-doc="$trust"
    logged_admin role-policy put --role-name=tester --policy-name=all --policy-doc="$rights"
}

# ---- commands ----
start() {
    local program
    for program in ceph-mon ceph-osd ceph radosgw radosgw-admin monmaptool curl python3; do
        command -v "$program" >/dev/null || die "'$program' is missing: run scripts/setup --tests"
    done
    claim_dir
    if [ ! -f "$dir/made" ]; then
        halt_all
        make_cluster
    fi
    load_settings
    if running rgw >/dev/null && rgw_answers; then return 0; fi
    running mon >/dev/null || launch_unsynced mon ceph-mon -c "$conf" -f -i a
    until_ready mon 30 ceph -c "$conf" --connect-timeout 5 mon stat
    [ -f "$dir/osd/whoami" ] || make_osd
    running osd >/dev/null || launch_unsynced osd ceph-osd -c "$conf" -f -i 0
    until_ready osd 30 osd_is_up
    [ -f "$dir/made" ] || make_users
    launch rgw radosgw -c "$conf" -f -n client.rgw
    until_ready rgw 30 rgw_answers
    : >"$dir/made"
}

print_env() {
    load_settings
    print_keys "http://127.0.0.1:$RGW_PORT" us-east-1 "$access_key" "$secret_key"
    cat <<ENV
S3_OTHER_ACCESS_KEY=$other_access_key
S3_OTHER_SECRET_KEY=$other_secret_key
S3_PIDS=$(for name in mon osd rgw; do running $name || true; done | paste -sd,)
ENV
    [ "$RGW_TLS_PORT" = 0 ] || printf '%s\n' "S3_TLS_ENDPOINT=https://localhost:$RGW_TLS_PORT" "S3_CA_FILE=$dir/tls.crt"
}

# curl signs with Signature V4 by itself; radosgw takes a missing x-amz-content-sha256 for UNSIGNED-PAYLOAD, curl does not.
signed_curl() { # SERVICE BODY CURL-ARG...; the keys go in on curl's standard input
    local service=$1 hash
    hash=$(printf %s "$2" | sha256sum | cut -d' ' -f1)
    shift 2
    printf 'user = "%s:%s"\n' "$access_key" "$secret_key" |
        curl -sS -f --noproxy '*' -m 20 -K - --aws-sigv4 "aws:amz:us-east-1:$service" \
            -H "x-amz-content-sha256: $hash" "$@"
}

make_buckets() {
    local name
    load_settings
    for name in "$@"; do
        signed_curl s3 '' -o /dev/null -X PUT "http://127.0.0.1:$RGW_PORT/$name" || die "cannot make the bucket '$name'"
    done
}

# Another end for a session token. radosgw keeps it inside the token, encrypted with rgw_sts_key (AES-128-CBC, the IV is
# CEPH_AES_IV of auth/Crypto.h), as a text of 30 bytes; we made that key, so we may write what STS would refuse to.
shorten_token() { # SECONDS <TOKEN
    local key iv
    key=$(printf holdfasttestsk16 | od -An -tx1 | tr -d ' \n')
    iv=$(printf cephsageyudagreg | od -An -tx1 | tr -d ' \n')
    base64 -d | openssl enc -d -aes-128-cbc -K "$key" -iv "$iv" | python3 -c '
import datetime, re, sys
end = datetime.datetime.utcnow() + datetime.timedelta(seconds=int(sys.argv[1]))
text = end.strftime("%Y-%m-%dT%H:%M:%S.%f000Z").encode()
blob, count = re.subn(rb"(?<=\x1e\0\0\0)\d{4}-[0-9T:.-]{24}Z", text, sys.stdin.buffer.read(), count=1)
assert count == 1 and len(text) == 30
sys.stdout.buffer.write(blob)' "$1" | openssl enc -aes-128-cbc -K "$key" -iv "$iv" | base64 -w 0
}

print_token() { # [SECONDS]
    load_settings
    [ "$RGW_STS" = 1 ] || die "this cluster was not made with RGW_STS=1"
    local seconds=${1:-3600} answer name tag value body='Action=AssumeRole&Version=2011-06-15&RoleArn=arn:aws:iam:::role/tester&RoleSessionName=tests&DurationSeconds=3600'
    answer=$(signed_curl sts "$body" --data-raw "$body" "http://127.0.0.1:$RGW_PORT/")
    while read -r name tag; do
        value=$(sed -n "s:.*<$tag>\([^<]*\)</$tag>.*:\1:p" <<<"$answer")
        [ "$name" != S3_SESSION_TOKEN ] || value=$(shorten_token "$seconds" <<<"$value")
        echo "$name=$value"
    done <<'NAMES'
S3_TOKEN_ACCESS_KEY AccessKeyId
S3_TOKEN_SECRET_KEY SecretAccessKey
S3_SESSION_TOKEN SessionToken
NAMES
    date -u -d "+$seconds seconds" '+S3_TOKEN_EXPIRES=%Y-%m-%dT%H:%M:%SZ'
}

osd_signal() {
    local pid
    pid=$(running osd) || die "no OSD runs in '$dir'"
    kill "-$1" "$pid"
}

command=${1:-help}
case $command in
start | env | stop | wipe | bucket | pause | resume | token | admin | ceph) ;;
*)
    sed -n '2,/^set /s/^# \{0,1\}//p' "$0"
    [ "$command" = help ] && exit 0 || exit 2
    ;;
esac
[ -n "${2:-}" ] || die "$command needs a directory"
daemons_dir "$2"
conf=$dir/ceph.conf
export CEPH_ARGS='' CEPH_CONF=$conf
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
pause) osd_signal STOP ;;
resume) osd_signal CONT ;;
token) print_token "$@" ;;
admin) admin "$@" ;;
ceph) ceph_ "$@" ;;
esac
