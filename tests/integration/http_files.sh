#!/usr/bin/env bash
# GET, HEAD, PUT and DELETE of files as RFC 9110 has them, judged by curl: conditions, ranges, statuses, problem documents.
# timeout: 120
. "$(dirname "$0")/../support/lib.sh"
lib_begin http-files

gateway_start "$WORK/state" "file://$WORK/bucket"
check_eq 'create a volume' 201 "$(api POST /v1/volumes --data '{"name":"v"}' >/dev/null; api_status)"
F=/v1/files/v

put() { # PATH FILE [CURL-ARG...]: prints the status
    local path=$1 file=$2
    shift 2
    api PUT "$F/$path" -T "$file" "$@" >/dev/null
    api_status
}
get() { # PATH [CURL-ARG...]: prints the status
    local path=$1
    shift
    api GET "$F/$path" "$@" >/dev/null
    api_status
}
header() { # NAME of the last answer saved with -D
    tr -d '\r' <"$WORK/head" | sed -n "s/^$1: //Ip" | head -n 1
}
code() { jq -r .code "$WORK/api.body"; }

printf '0123456789' >"$WORK/ten"
printf 'abcde' >"$WORK/five"

# ---- a write says what it believes to be there ---- (B104)
check_eq 'PUT without a condition' 428 "$(put a "$WORK/ten")"
check_eq 'its code' precondition-needed "$(code)"
check_eq 'its title' 'Precondition Required' "$(jq -r .title "$WORK/api.body")"
[ ! -e "$WORK/bucket/v/a" ] || fail 'a refused PUT reached the bucket'
check_eq 'If-Match on nothing' 412 "$(put a "$WORK/ten" -H 'If-Match: *')"
check_eq 'PUT of a new file' 201 "$(put a "$WORK/ten" -H 'If-None-Match: *' -D "$WORK/head")"
etag=$(header ETag)
check_same 'the object' "$WORK/ten" "$WORK/bucket/v/a"
check_eq 'PUT of a new file again' 412 "$(put a "$WORK/five" -H 'If-None-Match: *')"
check_eq 'a 412 tells the ETag that is there' "$etag" "$(jq -r .current.etag "$WORK/api.body")"
check_eq 'wrong If-Match' 412 "$(put a "$WORK/five" -H 'If-Match: "wrong"')"
check_eq 'weak If-Match' 400 "$(put a "$WORK/five" -H "If-Match: W/$etag")"
check_eq 'malformed If-Match' 400 "$(put a "$WORK/five" -H 'If-Match: x')"
check_eq 'right If-Match' 200 "$(put a "$WORK/ten" -H "If-Match: $etag" -D "$WORK/head")"
[ "$(header ETag)" != "$etag" ] || fail 'a new version has the old ETag'
etag=$(header ETag)
check_eq 'respond-async' 202 "$(put async "$WORK/ten" -H 'If-None-Match: *' -H 'Prefer: respond-async')"
check_eq 'PUT makes folders' 201 "$(put x/y/z "$WORK/ten" -H 'If-None-Match: *')"
check_eq 'PUT on a folder' 409 "$(put x/y "$WORK/ten" -H 'If-Match: *')"
check_eq 'PUT below a file' 409 "$(put a/b "$WORK/ten" -H 'If-None-Match: *')"
check_eq 'PUT on no volume' 404 "$(api PUT /v1/files/none/a -T "$WORK/ten" -H 'If-None-Match: *' >/dev/null; api_status)"
check_eq 'chunked PUT' 201 "$(put chunked - -H 'If-None-Match: *' -H 'Transfer-Encoding: chunked' <"$WORK/five")"
check_same 'the chunked object' "$WORK/five" "$WORK/bucket/v/chunked"

# ---- reading ----
check_eq GET 200 "$(get a -D "$WORK/head")"
check_same 'its bytes' "$WORK/ten" "$WORK/api.body"
check_eq 'nosniff' nosniff "$(header X-Content-Type-Options)"
check_eq 'ETag of GET' "$etag" "$(header ETag)"
modified=$(header Last-Modified)
check_eq 'length of HEAD' '200 10' "$(curl -s -I -m 10 -H "Authorization: Bearer $(gateway_token)" \
    -o "$WORK/head" -w '%{http_code}' "$URL$F/a"; echo -n ' '; header Content-Length)"
check_eq 'GET of nothing' 404 "$(get none)"
check_eq 'its code' not-found "$(code)"
check_eq 'GET of a folder' 409 "$(get x)"
check_eq 'If-None-Match' 304 "$(get a -H "If-None-Match: $etag")"
check_eq 'If-None-Match of another' 200 "$(get a -H 'If-None-Match: "other"')"
check_eq 'If-None-Match in a list' 304 "$(get a -H "If-None-Match: \"other\", W/$etag")"
check_eq 'If-Match' 200 "$(get a -H "If-Match: $etag")"
check_eq 'If-Match of another' 412 "$(get a -H 'If-Match: "other"')"
check_eq 'If-Modified-Since' 304 "$(get a -H "If-Modified-Since: $modified")"
check_eq 'If-Unmodified-Since long ago' 412 "$(get a -H 'If-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT')"
check_eq 'version that is there' 200 "$(get "a?version=$(tr -d '"' <<<"$etag")")"
check_eq 'version that is not' 404 "$(get 'a?version=01ARZ3NDEKTSV4RRFFQ69G5FAV')"

range() { # RANGE STATUS BYTES [CURL-ARG...]
    local range=$1 status=$2 bytes=$3
    shift 3
    check_eq "Range $range" "$status" "$(get a -H "Range: $range" -D "$WORK/head" "$@")"
    [ "$status" = 416 ] || check_eq "bytes of $range" "$bytes" "$(cat "$WORK/api.body")"
}
range bytes=0-3 206 0123
check_eq Content-Range 'bytes 0-3/10' "$(header Content-Range)"
range bytes=4- 206 456789
range bytes=-2 206 89
range bytes=9-100 206 9
range bytes=10- 416 ''
check_eq 'Content-Range of 416' 'bytes */10' "$(header Content-Range)"
range bytes=0-1,3-4 200 0123456789
range bytes=x 200 0123456789
range bytes=2-3 206 23 -H "If-Range: $etag"
range bytes=2-3 200 0123456789 -H 'If-Range: "other"'

# A large file in pieces, and whole through a slow reader.
head -c 20000000 /dev/urandom >"$WORK/big"
check_eq 'a large PUT' 201 "$(put big "$WORK/big" -H 'If-None-Match: *')"
check_eq 'a large GET' 200 "$(get big)"
check_same 'a large file' "$WORK/big" "$WORK/api.body"
tail -c +12345679 "$WORK/big" | head -c 1000000 >"$WORK/piece"
check_eq 'a piece' 206 "$(get big -H 'Range: bytes=12345678-13345677')"
check_same 'a piece of a large file' "$WORK/piece" "$WORK/api.body"

# A PUT that is cut in the middle changes nothing. (S39)
python3 - "$PORT" "$(gateway_token)" "$etag" <<'PY'
import socket, sys
port, token, etag = sys.argv[1:]
with socket.create_connection(("127.0.0.1", int(port))) as s:
    s.sendall(b"PUT /v1/files/v/a HTTP/1.1\r\nHost: 127.0.0.1:%s\r\nAuthorization: Bearer %s\r\nIf-Match: %s\r\n"
              b"Content-Length: 1000000\r\n\r\n" % (port.encode(), token.encode(), etag.encode()) + b"x" * 500000)
PY
sleep 0.5
check_eq 'after a cut PUT' 200 "$(get a -D "$WORK/head")"
check_eq 'the ETag is the old one' "$etag" "$(header ETag)"
check_same 'the bytes are the old ones' "$WORK/ten" "$WORK/api.body"

# ---- listing, operations, removing ----
check_eq list 200 "$(api GET '/v1/list/v?limit=2' >/dev/null; api_status)"
check_eq 'entries of a page' 2 "$(jq '.entries|length' "$WORK/api.body")"
next=$(jq -r .next "$WORK/api.body")
api GET "/v1/list/v?limit=1000&cursor=$next" >"$WORK/rest"
check_eq 'the rest of a listing' 3 "$(jq '.entries|length' "$WORK/rest")"
check_eq 'its end' null "$(jq .next "$WORK/rest")"
check_eq 'list of a file' 409 "$(api GET /v1/list/v/a >/dev/null; api_status)"
check_eq mkdir 201 "$(api POST /v1/ops --data '{"op":"mkdir","volume":"v","path":"d"}' >/dev/null; api_status)"
check_eq 'mkdir again' 409 "$(api POST /v1/ops --data '{"op":"mkdir","volume":"v","path":"d"}' >/dev/null; api_status)"
check_eq 'move over a file' 409 "$(api POST /v1/ops --data '{"op":"move","volume":"v","from":"a","to":"big"}' >/dev/null; api_status)"
check_eq 'unknown operation' 422 "$(api POST /v1/ops --data '{"op":"fly","volume":"v"}' >/dev/null; api_status)"
check_eq 'no JSON' 400 "$(api POST /v1/ops --data '{"op":' >/dev/null; api_status)"
check_eq 'path with ..' 400 "$(api POST /v1/ops --data '{"op":"mkdir","volume":"v","path":"../x"}' >/dev/null; api_status)"
check_eq 'DELETE without a condition' 428 "$(api DELETE $F/a >/dev/null; api_status)"
check_eq 'DELETE of another version' 412 "$(api DELETE $F/a -H 'If-Match: "other"' >/dev/null; api_status)"
check_eq DELETE 204 "$(api DELETE $F/a -H "If-Match: $etag" >/dev/null; api_status)"
check_eq 'DELETE again' 404 "$(api DELETE $F/a -H 'If-Match: *' >/dev/null; api_status)"
check_eq 'DELETE of a full folder' 409 "$(api DELETE $F/x -H 'If-Match: *' >/dev/null; api_status)"
check_eq 'DELETE of a whole folder' 204 "$(api DELETE "$F/x?recursive=true" -H 'If-Match: *' >/dev/null; api_status)"
check_eq flush 200 "$(api POST /v1/flush --data '{"timeout_s":20}' >/dev/null; api_status)"
[ ! -e "$WORK/bucket/v/a" ] || fail 'a removed file is still in the bucket'
check_eq 'wrong method' 405 "$(api POST /v1/list/v >/dev/null; api_status)"
check_eq 'nothing there' 404 "$(api GET /v2/x >/dev/null; api_status)"
check_eq 'liveness without a token' 200 "$(curl -s -o /dev/null -w '%{http_code}' "$URL/healthz")"
check_eq 'API without a token' 401 "$(curl -s -o /dev/null -w '%{http_code}' "$URL/v1/volumes")"
check_eq 'mode of the token' 600 "$(stat -c %a "$HOLDFAST_STATE/token")"
