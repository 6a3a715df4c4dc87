#!/usr/bin/env bash
# Links: published, followed by plain curl, counted, used up, expired, revoked, brought to; with names that URLs have to escape.
# On a directory the gateway sends the bytes; where an S3 server is at hand it sends clients there, and that server judges the
# signature. Tokens of a folder share only what lies in it.
# timeout: 300
. "$(dirname "$0")/../support/lib.sh"
lib_begin links

# Names with what is easy to escape wrongly: the store signs the key, and the file's name again in the query.
NAMES=('a b.csv' 'a+b.csv' '100%.csv' 'grün.txt' '中文.txt' '😀.png' "it's (1)!*.json" 'a%20b.csv' 'x&y=z?.bin' '#1;2,3.md')

follow() { # URL OUT: the status; redirects are followed, the last head is in $WORK/head
    curl -sS -L -m 60 -o "$2" -D "$WORK/head" -w '%{http_code}' "$1"
}
header() { tr -d '\r' <"$WORK/head" | sed -n "s/^$1: //Ip" | tail -n 1; }
link_of() { # WHAT FIELD...: of the link made last, from $WORK/out
    jq -r "$1" "$WORK/out"
}
artifacts() { "$HOLDFAST" link list --json | jq '.links | length'; }

names() { # STORE NAME...
    local store=$1 name url i=0
    shift
    for name in "$@"; do
        i=$((i + 1))
        printf 'bytes of %s\n' "$name" >"$WORK/file"
        check_status 0 "$HOLDFAST" put "$WORK/file" "v:/d/$name"
        check_status 0 "$HOLDFAST" publish --json "v:/d/$name"
        url=$(link_of .url)
        check_eq "$store: the file's name" "$name" "$(link_of .name)"
        check_eq "$store: following '$name'" 200 "$(follow "$url" "$WORK/got")"
        check_same "$store: bytes of '$name'" "$WORK/file" "$WORK/got"
        # What a browser saves it as: RFC 8187, unescaped by somebody else.
        check_eq "$store: saved as '$name'" "$name" "$(header Content-Disposition |
            python3 -c 'import sys, urllib.parse; print(urllib.parse.unquote(sys.stdin.read().strip().split("UTF-8" + chr(39) * 2)[1]))')"
    done
    check_eq "$store: links listed" "$i" "$(artifacts)"
}

life() { # STORE
    local url id
    printf 'first' >"$WORK/first"
    check_status 0 "$HOLDFAST" put "$WORK/first" v:/report.csv
    check_status 0 "$HOLDFAST" publish v:/report.csv --downloads 2 --json
    url=$(link_of .url) id=$(link_of .id)
    [[ $url =~ /l/[0-9a-f]{32}$ ]] || fail "$1: '$url' is no short URL"
    # Frozen: what the file becomes later changes nothing.
    printf 'second' >"$WORK/second"
    check_status 0 "$HOLDFAST" put "$WORK/second" v:/report.csv
    check_eq "$1: first of two" 200 "$(follow "$url" "$WORK/got")"
    check_same "$1: the frozen bytes" "$WORK/first" "$WORK/got"
    check_eq "$1: its type" 'text/csv; charset=utf-8' "$(header Content-Type)"
    check_eq "$1: counted" 1 "$("$HOLDFAST" link show "$id" --json | jq .hits)"
    check_eq "$1: second of two" 200 "$(follow "$url" "$WORK/got")"
    check_eq "$1: used up" 404 "$(follow "$url" "$WORK/got")"
    check_eq "$1: what is told then" not-found "$(jq -r .code "$WORK/got")"

    check_status 0 "$HOLDFAST" publish v:/report.csv --json
    url=$(link_of .url) id=$(link_of .id)
    check_eq "$1: before it is revoked" 200 "$(follow "$url" "$WORK/got")"
    check_status 0 "$HOLDFAST" link revoke "$id"
    check_eq "$1: the next request after that" 404 "$(follow "$url" "$WORK/got")"
    check_status 4 "$HOLDFAST" link show "$id"

    check_status 0 "$HOLDFAST" publish v:/report.csv --expires 1s --json
    url=$(link_of .url)
    ended() { [ "$(follow "$url" "$WORK/got")" = 404 ]; }
    wait_until 30 ended || fail "$1: a link of one second is still there"
    check_eq "$1: a guess" 404 "$(follow "$URL/l/00000000000000000000000000000000" "$WORK/got")"
    check_status 4 "$HOLDFAST" publish v:/none
    check_status 1 "$HOLDFAST" publish v:/d
}

upload() { # STORE
    local url
    printf 'brought' >"$WORK/brought"
    check_status 0 "$HOLDFAST" link create --put v:/in/new.txt --max-bytes 10 --json
    url=$(link_of .url)
    check_eq "$1: too long" 413 "$(curl -sS -o /dev/null -w '%{http_code}' -T "$0" "$url")"
    check_eq "$1: GET of an upload link" 404 "$(follow "$url" "$WORK/got")"
    check_eq "$1: brought" 201 "$(curl -sS -o /dev/null -w '%{http_code}' -T "$WORK/brought" "$url")"
    check_status 0 "$HOLDFAST" get v:/in/new.txt "$WORK/got"
    check_same "$1: what was brought" "$WORK/brought" "$WORK/got"
    # Never over something that is there.
    check_eq "$1: brought again" 412 "$(curl -sS -o /dev/null -w '%{http_code}' -T "$WORK/first" "$url")"
    "$HOLDFAST" cat v:/in/new.txt >"$WORK/got"
    check_same "$1: still what was brought first" "$WORK/brought" "$WORK/got"
}

# ---- a directory: the gateway sends the bytes ----
gateway_start "$WORK/state" "file://$WORK/bucket"
check_status 0 "$HOLDFAST" volume create v
names file "${NAMES[@]:2:3}"
life file
upload file
gone() { [ -z "$(find "$WORK/bucket/.holdfast/artifacts" -type f -name report.csv 2>/dev/null | tail -n +3)" ]; }
wait_until 60 gone || fail 'the copy of a revoked link stays in the bucket'
check_status 0 "$HOLDFAST" publish v:/report.csv --inline --json
check_eq 'inline' 200 "$(follow "$(link_of .url)" "$WORK/got")"
[[ $(header Content-Disposition) == inline* ]] || fail 'a link that browsers may show is an attachment'
check_eq 'and sandboxed' "sandbox; default-src 'none'" "$(header Content-Security-Policy)"

# ---- who came by a link is known, the link's secret to nobody ----
SECRET=$(link_of .url)
SECRET=${SECRET##*/}
"$HOLDFAST" audit --json >"$WORK/audit" || fail 'no audit'
grep -q "link:$(link_of .id)" "$WORK/audit" || fail 'a download by a link is not in the audit'
if grep -q "$SECRET" "$WORK/audit" "$WORK"/*.log; then fail 'the secret of a link is in the audit or a log'; fi

# ---- a token shares what it may read, where it reaches ----
token() { HOLDFAST_URL=$URL HOLDFAST_TOKEN=$TOKEN "$HOLDFAST" "$@"; }
TOKEN=$("$HOLDFAST" token create -v v/d --allow read 2>/dev/null)
check_status 5 token publish 'v:/d/100%.csv'
TOKEN=$("$HOLDFAST" token create -v v/d --allow read,share 2>/dev/null)
check_status 0 token publish 'v:/d/100%.csv'
check_status 5 token publish v:/report.csv
check_status 5 token link create --put v:/d/new
check_status 0 token link list --json
check_eq 'its list' '["d"]' "$(jq -c '[.links[].path | split("/")[0]] | unique' "$WORK/out")"
ID=$("$HOLDFAST" link list --json | jq -r '[.links[] | select(.path == "report.csv")][0].id')
check_status 4 token link revoke "$ID"
check_status 4 token link show "$ID"
gateway_stop

# ---- an S3 server: it judges the signature ----
if [ -n "${HOLDFAST_TEST_RGW:-}" ]; then # scripts/test starts one for all
    rgw_start
    rgw_bucket links
    gateway_start "$WORK/state-s3" "$(rgw_store_url links)"
    check_status 0 "$HOLDFAST" volume create v
    names s3 "${NAMES[@]}"
    check_status 0 "$HOLDFAST" publish "v:/d/${NAMES[0]}" --json
    check_eq 's3: a redirect' 302 "$(curl -sS -o /dev/null -D "$WORK/head" -w '%{http_code}' "$(link_of .url)")"
    [[ $(header Location) == "$S3_ENDPOINT"/*X-Amz-Signature=* ]] || fail "not sent to the store: $(header Location)"
    check_status 0 "$HOLDFAST" publish "v:/d/${NAMES[0]}" --proxy --json
    check_eq 's3: no redirect' 200 "$(curl -sS -o "$WORK/got" -w '%{http_code}' "$(link_of .url)")"
    life s3
    upload s3
    gateway_stop
fi
