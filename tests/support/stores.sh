# shellcheck shell=bash
# tests/support/stores.sh - sourced behind lib.sh: S3 servers of any kind, one at a time, and another client's view of them.
#
#   store_begin KIND BUCKET [ARG...]   starts it (KIND: fault-server, r2, swift), with the arguments of its script; sets STORE_URL
#   store_of NAME                      the same by a name: r2, swift, rgw, or roles of the fault server, with commas between them
#   store_end
#   bucket_get KEY, bucket_put KEY, bucket_has KEY, bucket_keys PREFIX

export AWS_CONFIG_FILE=/dev/null AWS_SHARED_CREDENTIALS_FILE=/dev/null

store_begin() { # KIND BUCKET [ARG...]: sets S3_*, AWS_*, BUCKET, SERVER, STORE_URL
    local kind=$1 line
    BUCKET=$2
    SERVER=$WORK/$kind-server
    shift 2
    KIND=$kind
    defer "'$LIB_ROOT/tests/support/$kind.sh' wipe '$SERVER'"
    "$LIB_ROOT/tests/support/$kind.sh" start "$SERVER" "$@" >/dev/null || fail_now "$kind does not start"
    "$LIB_ROOT/tests/support/$kind.sh" bucket "$SERVER" "$BUCKET" || fail_now "no bucket on $kind"
    while read -r line; do export "${line?}"; done < <("$LIB_ROOT/tests/support/$kind.sh" env "$SERVER")
    STORE_URL=$(rgw_store_url "$BUCKET")
}
store_of() { # NAME
    case $1 in
    r2 | swift) store_begin "$1" stores ;;
    rgw)
        KIND=
        rgw_start
        BUCKET=stores-$$
        rgw_bucket "$BUCKET"
        # shellcheck disable=SC2034 # for the tests that source this
        STORE_URL=$(rgw_store_url "$BUCKET")
        ;;
    *) store_begin fault-server test --role "$1" ;;
    esac
}
store_end() { [ -z "$KIND" ] || "$LIB_ROOT/tests/support/$KIND.sh" wipe "$SERVER"; }

# With the tests' own client, which starts quicker than aws.
bucket_do() { python3 "$LIB_ROOT/tests/support/bucket.py" "$BUCKET" "$@"; }
bucket_get() { bucket_do get "$1" 2>/dev/null; }         # KEY
bucket_put() { bucket_do put "$1"; }                     # KEY <BYTES
bucket_has() { bucket_do get "$1" >/dev/null 2>&1; }     # KEY
bucket_keys() { bucket_do list "$1"; }                   # PREFIX
bucket_sums() { bucket_do sums "$1" | cut -f1 | sort; } # PREFIX: of each object below it
