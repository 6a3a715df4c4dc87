#!/usr/bin/env bash
# Conflicts on a real S3 server (Ceph RGW), with another client that changes objects: merged, kept, kept beside and lost again,
# seen with that client; the losers' objects and nothing else go, and what was replaced is in the history (S25).
# timeout: 300
. "$(dirname "$0")/../support/lib.sh"
lib_begin conflicts-s3
need_fuse
rgw_start
export AWS_CONFIG_FILE=/dev/null AWS_SHARED_CREDENTIALS_FILE=/dev/null
BUCKET=conflicts-$$
rgw_bucket "$BUCKET"

gateway_start "$WORK/state" "$(rgw_store_url "$BUCKET")"
check_status 0 "$HOLDFAST" volume create v
mkdir "$WORK/m"
M=$WORK/m
check_status 0 "$HOLDFAST" mount v "$M"
defer "'$HOLDFAST' umount '$M' --force 2>/dev/null"

get() { "${AWS[@]}" s3 cp --quiet "s3://$BUCKET/$1" - 2>/dev/null; } # KEY
put() { "${AWS[@]}" s3 cp --quiet - "s3://$BUCKET/$1"; }              # KEY <BYTES
keys() { "${AWS[@]}" s3api list-objects-v2 --bucket "$BUCKET" --prefix "$1" --query 'Contents[].Key' --output text | tr '\t' '\n' | grep -v '^None$'; }
has_conflict() { [ "$("$HOLDFAST" conflicts list --json | jq '.conflicts | length')" = 1 ]; }
texts() { # N: base, mine, theirs, both
    printf '1\n2\n3\n4\n5\n6\nround %d\n' "$1" >"$WORK/base"
    sed 's/^1$/one/' "$WORK/base" >"$WORK/mine"
    sed 's/^6$/six/' "$WORK/base" >"$WORK/theirs"
    sed 's/^6$/six/' "$WORK/mine" >"$WORK/both"
}
lose() { # N PATH: sets ID
    texts "$1"
    cp "$WORK/base" "$M/$2"
    check_status 0 "$HOLDFAST" flush v
    exec 7<>"$M/$2"
    cat "$WORK/mine" >&7
    put "v/$2" <"$WORK/theirs"
    exec 7>&-
    wait_until 30 has_conflict || fail_now "no conflict at '$2'"
    check_status 3 "$HOLDFAST" flush v
    ID=$("$HOLDFAST" conflicts list --json | jq -r '.conflicts[0].id')
    check_eq 'the loser is in the bucket' "$(cat "$WORK/mine")" "$(get ".holdfast/conflicts/v/$ID")"
    check_eq 'theirs stands' "$(cat "$WORK/theirs")" "$(get "v/$2")"
}
ended() {
    check_status 0 "$HOLDFAST" flush v
    check_eq 'no loser is left' '' "$(keys .holdfast/conflicts/)"
    check_eq 'no conflict is left' 0 "$("$HOLDFAST" conflicts list --json | jq '.conflicts | length')"
}

lose 1 f.txt
check_status 0 "$HOLDFAST" conflicts resolve "$ID" --keep merge
check_eq 'merged' "$(cat "$WORK/both")" "$(get v/f.txt)"
ended
lose 4 f.txt
check_status 0 "$HOLDFAST" conflicts resolve "$ID" --keep both --json
check_eq 'mine beside it' "$(cat "$WORK/mine")" "$(get "v/$(jq -r .path "$WORK/out")")"
check_eq 'theirs at the path' "$(cat "$WORK/theirs")" "$(get v/f.txt)"
ended

# The other client is faster than the resolve, and nobody here has seen it.
lose 5 f.txt
cat "$M/f.txt" >/dev/null
echo late | put v/f.txt
check_status 3 "$HOLDFAST" conflicts resolve "$ID" --keep mine
check_one_line
check_eq 'not overwritten' late "$(get v/f.txt)"
check_eq 'the same conflict' "$ID" "$("$HOLDFAST" conflicts list --json | jq -r '.conflicts | map(.id) | join(" ")')"
check_status 0 "$HOLDFAST" conflicts resolve "$ID" --keep mine --base "$("$HOLDFAST" conflicts show "$ID" --json | jq -r .now.version)"
check_eq 'mine' "$(cat "$WORK/mine")" "$(get v/f.txt)"
ended

# Replaced over HTTP while a program writes it, and after.
texts 6
cp "$WORK/base" "$M/g.txt"
check_status 0 "$HOLDFAST" flush v
BASE=$("$HOLDFAST" stat --json v:/g.txt | jq -r .version)
exec 7<>"$M/g.txt"
cat "$WORK/mine" >&7
check_status 1 "$HOLDFAST" put "$WORK/theirs" v:/g.txt --base "$BASE" # it is open: said, not replaced
exec 7>&-
check_status 0 "$HOLDFAST" flush v
check_eq 'the program wins' "$(cat "$WORK/mine")" "$(get v/g.txt)"
check_status 3 "$HOLDFAST" put "$WORK/theirs" v:/g.txt --base "$BASE"
ended

check_eq 'what was replaced is kept' "$(cat "$WORK/base")" "$(get "$(keys .holdfast/history/v/g.txt/ | head -n 1)")"
check_status 0 "$HOLDFAST" umount "$M"
