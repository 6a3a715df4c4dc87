#!/usr/bin/env bash
# Keys that end while files are copied, keys that are taken away and come back, keys that are changed in their file, and a
# credential_process that hangs, fails or prints nonsense. On Ceph RGW with its token service. In the long form the
# copy lasts five minutes with keys that live 30 seconds.
# B106: an agent works on while the keys of its files end again and again; expiry is never shown as EACCES.
# B107: keys are fetched ahead of their end, and once more when the store refuses them.
# timeout: 600
# long-timeout: 1200
. "$(dirname "$0")/../support/lib.sh"
lib_begin credentials

command -v radosgw >/dev/null || skip 'no radosgw on this machine: scripts/setup --tests'
COPY_SECONDS=40
LIFE=12
if [ "${HOLDFAST_TEST_LONG:-0}" = 1 ]; then
    COPY_SECONDS=300
    LIFE=30
fi
unset HOLDFAST_TEST_RGW
export RGW_STS=1
rgw_start
RGW=$LIB_ROOT/tests/support/rgw.sh
rgw_bucket keys
MAIN_KEY=$S3_ACCESS_KEY MAIN_SECRET=$S3_SECRET_KEY
unset AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN AWS_PROFILE AWS_ENDPOINT_URL AWS_ENDPOINT_URL_S3
export HOME=$WORK/home AWS_CONFIG_FILE=$WORK/config AWS_SHARED_CREDENTIALS_FILE=$WORK/credentials
mkdir "$HOME"
STORE=$(rgw_store_url keys)

# The gateway's user reads it, and nobody else has to.
readable_by_gateway() { [ "$(id -u)" != 0 ] || chown holdfast "$@" 2>/dev/null || chown nobody "$@"; }
put_file() { # FILE: from stdin, whole at once, as those who rotate keys do
    cat >"$1.new" && chmod 600 "$1.new" && readable_by_gateway "$1.new" && mv "$1.new" "$1"
}
fresh_keys() { # what the process prints
    local line
    while read -r line; do local "${line?}"; done < <("$RGW" token "$HOLDFAST_TEST_RGW" "$LIFE")
    # shellcheck disable=SC2154
    printf '{"Version":1,"AccessKeyId":"%s","SecretAccessKey":"%s","SessionToken":"%s","Expiration":"%s"}\n' \
        "$S3_TOKEN_ACCESS_KEY" "$S3_TOKEN_SECRET_KEY" "$S3_SESSION_TOKEN" "$S3_TOKEN_EXPIRES" | put_file "$WORK/keys.json"
}
keep_fresh() { while sleep 3; do [ -e "$WORK/revoked" ] || fresh_keys; done; }
log_count() { grep -cF -- "$1" "$WORK/gateway.log" || true; }
status() { "$HOLDFAST" status; }

# ---- keys that end during a copy ----
put_file "$WORK/config" <<CONFIG
[default]
region = us-east-1
credential_process = /bin/cat "$WORK/keys.json"
CONFIG
fresh_keys
keep_fresh &
keeper=$!
defer "stop_pid $keeper"
gateway_start "$WORK/state" "$STORE"
check_status 0 "$HOLDFAST" volume create v
place=
if [ -c /dev/fuse ] && [ "$(id -u)" = 0 ]; then
    mkdir "$WORK/mnt"
    check_status 0 "$HOLDFAST" mount v "$WORK/mnt" && place=$WORK/mnt
fi
mkdir "$WORK/files"
end=$((SECONDS + COPY_SECONDS))
n=0
while [ "$SECONDS" -lt "$end" ]; do
    n=$((n + 1))
    head -c $((20000 + n)) /dev/urandom >"$WORK/files/f$n"
    if [ -n "$place" ] && [ $((n % 2)) = 0 ]; then
        cp "$WORK/files/f$n" "$place/f$n" || fail "copy $n into the mount"
    else
        check_status 0 "$HOLDFAST" put "$WORK/files/f$n" "v:/f$n"
    fi
    # Reading something that is not in the cache any more needs keys too.
    [ $((n % 5)) != 0 ] || check_status 0 "$HOLDFAST" stat "v:/f$n"
    sleep 0.2
done
check_status 0 "$HOLDFAST" flush --wait --timeout 60
fetched=$(log_count 'fresh keys for the store')
note "files: $n in $COPY_SECONDS s, keys that lived $LIFE s were fetched $fetched times"
[ "$fetched" -ge $((COPY_SECONDS / LIFE)) ] || fail "keys were fetched $fetched times only"
check_eq 'times that the store was away or refused' 0 "$(log_count 'the store ')"
check_eq 'answers that the keys had ended' 0 "$(log_count ExpiredToken)"
mkdir "$WORK/back"
AWS_ACCESS_KEY_ID=$MAIN_KEY AWS_SECRET_ACCESS_KEY=$MAIN_SECRET "${AWS[@]}" s3 cp --only-show-errors --recursive \
    s3://keys/v/ "$WORK/back" 2>>"$WORK/aws.log" || fail 'the bucket cannot be read'
diff -r "$WORK/files" "$WORK/back" >"$WORK/diff" || fail "the bucket differs: $(head -n 5 "$WORK/diff")"
[ -z "$(find "$HOLDFAST_STATE" "$WORK/gateway.log" -type f -exec grep -lF "$MAIN_SECRET" {} +)" ] || fail 'a secret key was written down'

# ---- taken away: writes wait, status says why, new keys set them going ----
touch "$WORK/revoked"
sleep 0.5
rm -f "$WORK/keys.json"
refused() { status >"$WORK/status" && grep -q 'REFUSES THE KEYS' "$WORK/status"; }
stage() { "$HOLDFAST" put --no-wait "$WORK/files/f1" "v:/late$1" >/dev/null 2>"$WORK/err" || fail "a write was refused: $(cat "$WORK/err")"; }
i=0
until refused; do
    rm -f "$WORK/keys.json" # the keeper may have been at it when the word came
    stage $((i += 1))
    [ "$i" -lt 60 ] || break
    sleep 1
done
refused || fail "status does not say that the keys are refused: $(cat "$WORK/status")"
check_contains 'status says why' 'keys.json' "$WORK/status"
check_contains 'status says what happens' 'waits here' "$WORK/status"
"$HOLDFAST" doctor >"$WORK/doctor" 2>&1
check_contains 'doctor says it too' 'refuses the keys' "$WORK/doctor"
check_contains 'status counts what waits' 'unsynced   ' "$WORK/status"
check_status 0 "$HOLDFAST" status --json
check_eq 'code of the trouble' store-denied "$(jq -r .store.error_code "$WORK/out")"
[ "$(jq .unsynced_files "$WORK/out")" -ge 1 ] || fail 'nothing is staged'
if [ -n "$place" ]; then
    cp "$WORK/files/f2" "$place/late-mount" || fail 'a write in the mount was refused'
    check_same 'what was written is there' "$WORK/files/f2" "$place/late-mount"
fi
grep -vF 'Errno 13' "$WORK/gateway.log" | grep -qi 'EACCES\|permission denied' && fail 'expiry was shown as a lack of rights'
rm "$WORK/revoked"
fresh_keys
check_status 0 "$HOLDFAST" flush --wait --timeout 120
status >"$WORK/status"
check_contains 'status after the new keys' 'store      ok' "$WORK/status"
check_status 0 "$HOLDFAST" cat "v:/late1"
check_same 'the late write' "$WORK/files/f1" "$WORK/out"
if [ -n "$place" ]; then check_status 0 "$HOLDFAST" umount "$place"; fi
gateway_stop
stop_pid "$keeper"

# ---- a process that hangs, fails, prints nonsense: a start says which ----
bad_process() { # CASE WORDS COMMAND
    put_file "$WORK/config" <<<"[default]
credential_process = $3"
    check_status 5 timeout 30 "$HOLDFAST" serve --state "$WORK/bad" --store "$STORE" --listen none --log error
    grep '^holdfast: ' "$WORK/err" >"$WORK/line"
    grep -qE -- "$2" "$WORK/line" || fail "$1: the message does not say '$2': $(cat "$WORK/err")"
    note "$1: $(head -n 1 "$WORK/line")"
}
bad_process 'no such program' 'no such program' '/nonexistent/keys --role x'
bad_process 'fails with words' 'ended with 3.*session is over' "/bin/sh -c 'echo session is over >&2; exit 3'"
bad_process 'prints no document' 'JSON' '/bin/echo AKIA topSecretWord'
! grep -qF topSecretWord "$WORK/err" || fail 'what the process printed is in a message'
# shellcheck disable=SC2016 # nobody is to expand it
bad_process 'no words of a shell' 'JSON|ended' '/bin/echo $(id) | cat'
# B156: nothing of ours is open in what we start.
bad_process 'descriptors of the process' 'printed nothing: 0 +1 +2 +3$' "/bin/sh -c 'exec >&2; exec ls -C /proc/self/fd'"
bad_process 'open quote' 'quote' "/bin/echo 'x"
bad_process 'endless output' 'more than' '/usr/bin/yes keys'

# ---- keys in a file: revoked, then replaced while the gateway runs ----
rotate() { # KEY SECRET
    put_file "$WORK/credentials" <<FILE
[default]
aws_access_key_id = $1
aws_secret_access_key = $2
FILE
}
make_key() { "$RGW" admin "$HOLDFAST_TEST_RGW" key create --uid=holdfast-test --key-type=s3 --access-key="$1" --secret-key="$2" >/dev/null 2>>"$WORK/admin.log"; }
rm -f "$WORK/config"
make_key HFROTATED1 rotatedSecretOne
rotate HFROTATED1 rotatedSecretOne
gateway_start "$WORK/state" "$STORE"
check_status 0 "$HOLDFAST" put "$WORK/files/f1" v:/rotated1
"$RGW" admin "$HOLDFAST_TEST_RGW" key rm --uid=holdfast-test --key-type=s3 --access-key=HFROTATED1 >/dev/null 2>>"$WORK/admin.log"
check_status 0 "$HOLDFAST" put --no-wait "$WORK/files/f2" v:/rotated2
wait_until 30 refused || fail "revoked keys: $(cat "$WORK/status")"
check_contains 'revoked keys: status says what to do' 'other keys' "$WORK/status"
make_key HFROTATED2 rotatedSecretTwo
rotate HFROTATED2 rotatedSecretTwo
check_status 0 "$HOLDFAST" flush --wait --timeout 120
check_status 0 "$HOLDFAST" cat v:/rotated2
check_same 'written with revoked keys, sent with new ones' "$WORK/files/f2" "$WORK/out"
gateway_stop

# ---- a file that the gateway's user may not read ----
if [ "$(id -u)" = 0 ]; then
    chown root "$WORK/credentials"
    check_status 5 "$HOLDFAST" serve --state "$WORK/unreadable" --store "$STORE" --listen none --log error
    check_contains 'unreadable file' 'may not read' "$WORK/err"
fi
