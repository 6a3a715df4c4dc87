#!/usr/bin/env bash
# Whom the gateway trusts: certificates that have expired, are for another host, or come from nobody we know are refused with
# words that say what to do; an own authority and a pinned key work, and nothing switches the checks off. The good case is
# Ceph RGW with TLS. Also: an endpoint that is not there is told of within seconds.
# timeout: 300
. "$(dirname "$0")/../support/lib.sh"
lib_begin trust

command -v radosgw >/dev/null || skip 'no radosgw on this machine: scripts/setup --tests'
unset AWS_CA_BUNDLE SSL_CERT_FILE SSL_CERT_DIR CURL_CA_BUNDLE
export RGW_TLS=1
unset HOLDFAST_TEST_RGW
rgw_start
rgw_bucket trust
unset AWS_ENDPOINT_URL AWS_ENDPOINT_URL_S3
chmod 644 "$S3_CA_FILE"

refused() { # CASE SECONDS WORDS STORE [ARG...]
    local name=$1 limit=$2 words=$3 store=$4 begin ms
    shift 4
    begin=$(now_ms)
    check_status '6' timeout 60 "$HOLDFAST" serve --state "$WORK/bad" --store "$store" --listen none --log error "$@"
    ms=$(($(now_ms) - begin))
    printf '%-28s %5s ms  %s\n' "$name" "$ms" "$(grep '^holdfast: ' "$WORK/err" | head -n 1)"
    grep '^holdfast: ' "$WORK/err" | grep -qiE -- "$words" || fail "$name: the message does not say '$words': $(cat "$WORK/err")"
    [ "$ms" -lt $((limit * 1000)) ] || fail "$name: took $ms ms, allowed are $limit s"
}
tls() { echo "s3://trust?endpoint=$S3_TLS_ENDPOINT&region=$S3_REGION&style=path${1:-}"; }
pin_of() { # CERTIFICATE
    openssl x509 -in "$1" -pubkey -noout | openssl pkey -pubin -outform der | openssl dgst -sha256 -binary | base64
}

# ---- refused ----
refused 'unknown authority' 10 'authority.*not known.*--store-ca.*ca=.*AWS_CA_BUNDLE' "$(tls)"
openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=other -keyout "$WORK/other.key" -out "$WORK/other.crt" 2>/dev/null
refused 'another authority' 10 'authority.*not known' "$(tls "&ca=$WORK/other.crt")"
refused 'no such file' 10 'cannot be read' "$(tls "&ca=$WORK/none.crt")"
echo nonsense >"$WORK/nonsense.crt"
refused 'file without a certificate' 10 'cannot be read or holds no certificate' "$(tls)" --store-ca "$WORK/nonsense.crt"
PIN=$(pin_of "$S3_CA_FILE")
refused 'another key than the pinned one' 10 'not the pinned one' "$(tls "&ca=$S3_CA_FILE&pin=sha256//$(pin_of "$WORK/other.crt")")"
# A pin alone is no trust.
refused 'pinned, of an unknown authority' 10 'authority.*not known' "$(tls "&pin=sha256//$PIN")"
refused 'no TLS there' 10 'no TLS|http://' "s3://trust?endpoint=${S3_ENDPOINT/http:/https:}&region=$S3_REGION&style=path"

serve_tls() { # CERTIFICATE KEY: sets TLS_PORT
    TLS_PORT=$(free_port)
    openssl s_server -accept "127.0.0.1:$TLS_PORT" -cert "$1" -key "$2" -www -quiet >/dev/null 2>&1 &
    defer "stop_pid $!"
    wait_until 10 bash -c "</dev/tcp/127.0.0.1/$TLS_PORT" || fail_now 'openssl s_server does not start'
}
faketime '2020-01-01 00:00:00' openssl req -x509 -newkey rsa:2048 -nodes -days 10 -subj /CN=localhost -keyout "$WORK/old.key" \
    -out "$WORK/old.crt" -addext subjectAltName=DNS:localhost 2>/dev/null
serve_tls "$WORK/old.crt" "$WORK/old.key"
refused 'expired certificate' 10 'expired' "s3://trust?endpoint=https://localhost:$TLS_PORT&region=$S3_REGION&style=path&ca=$WORK/old.crt"
faketime '2037-01-01 00:00:00' openssl req -x509 -newkey rsa:2048 -nodes -days 10 -subj /CN=localhost -keyout "$WORK/new.key" \
    -out "$WORK/new.crt" -addext subjectAltName=DNS:localhost 2>/dev/null
serve_tls "$WORK/new.crt" "$WORK/new.key"
refused 'certificate of the future' 10 'not valid yet.*clock' "s3://trust?endpoint=https://localhost:$TLS_PORT&region=$S3_REGION&style=path&ca=$WORK/new.crt"
openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=elsewhere.example -keyout "$WORK/host.key" -out "$WORK/host.crt" \
    -addext subjectAltName=DNS:elsewhere.example 2>/dev/null
serve_tls "$WORK/host.crt" "$WORK/host.key"
refused 'certificate of another host' 10 'another host' "s3://trust?endpoint=https://localhost:$TLS_PORT&region=$S3_REGION&style=path&ca=$WORK/host.crt"

# ---- bad settings are told before anything is sent ----
check_status 2 "$HOLDFAST" serve --state "$WORK/bad" --store "$(tls '&pin=sha256//short')" --listen none
check_contains 'bad pin' 'sha256//BASE64' "$WORK/err"
check_status 2 "$HOLDFAST" serve --state "$WORK/bad" --store "$(tls '&insecure=yes')" --listen none
check_contains 'no insecure mode' "insecure" "$WORK/err"
check_status 2 "$HOLDFAST" serve --state "$WORK/bad" --listen none \
    --store "s3://trust?endpoint=$S3_ENDPOINT&style=path&ca=$S3_CA_FILE"
check_contains 'an authority without TLS' 'https://' "$WORK/err"

# ---- an endpoint that is not there ----
refused 'nobody listens' 12 'refused|connect' "s3://trust?endpoint=http://127.0.0.1:$(free_port)&region=x&style=path"
refused 'no such name' 12 'resolve|name' 's3://trust?endpoint=http://nowhere.invalid&region=x&style=path'

# ---- trusted: by --store-ca, by ca= with a pin (one of two), by AWS_CA_BUNDLE; root's gateway reads the file behind Landlock ----
echo hello >"$WORK/hello"
works() { # STORE [ARG...]
    local store=$1
    shift
    gateway_start "$WORK/good" "$store" "$@"
    "$HOLDFAST" volume show v >/dev/null 2>&1 || check_status 0 "$HOLDFAST" volume create v
    check_status 0 "$HOLDFAST" put "$WORK/hello" "v:/hello$((n += 1))"
    gateway_stop
}
n=0
works "$(tls)" --store-ca "$S3_CA_FILE"
works "$(tls "&ca=$S3_CA_FILE&pin=sha256//$(pin_of "$WORK/other.crt");sha256//$PIN")"
AWS_CA_BUNDLE=$S3_CA_FILE works "$(tls)"
check_status 0 "$HOLDFAST" version
