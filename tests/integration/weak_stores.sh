#!/usr/bin/env bash
# A whole gateway on stores that cannot do everything: each role of the fault server, Swift and R2's local server. doctor names
# what is missing in words that say what to do, files are written, changed, renamed and deleted through a mount and read back
# out of the bucket, and where conditions are ignored a change from outside is still not overwritten unseen.
# timeout: 900
. "$(dirname "$0")/../support/lib.sh"
lib_begin weak-stores
need_fuse

# shellcheck source=../support/stores.sh
. "$LIB_ROOT/tests/support/stores.sh"

# ---- one store at a time ----
serve() { # NAME
    gateway_start "$WORK/state-$1" "$STORE_URL"
    check_status 0 "$HOLDFAST" volume create v
    M=$WORK/mount-$1
    mkdir "$M"
    check_status 0 "$HOLDFAST" mount v "$M"
}
serve_end() {
    check_status 0 "$HOLDFAST" umount "$M"
    gateway_stop
}
flushed() { check_status 0 "$HOLDFAST" flush v --wait; }

# doctor may warn, never fail for what a store lacks; each text is in one of its lines, also as JSON.
doctor_names() { # STORE TEXT...
    local store=$1 text
    shift
    "$HOLDFAST" doctor >"$WORK/doctor" 2>&1
    "$HOLDFAST" doctor --json >"$WORK/doctor.json" 2>&1
    for text in "$@"; do
        check_contains "doctor on $store" "$text" "$WORK/doctor"
        jq -e --arg text "$text" '[.checks[] | select(.check == "store") | .detail | contains($text)] | any' \
            "$WORK/doctor.json" >/dev/null || fail "doctor --json on $store does not say '$text'"
    done
    check_eq "limits in the status of $store" "$(grep -c '^warn  *store' "$WORK/doctor")" \
        "$("$HOLDFAST" status | grep -c '^limit ')"
    ! grep -q '^fail  *store' "$WORK/doctor" || fail "doctor takes the store '$store' for broken: $(cat "$WORK/doctor")"
}

# Written, written over, renamed and deleted, each seen in the bucket after the barrier.
ordinary_life() { # STORE
    local store=$1
    printf 'first' >"$M/file" || fail "$store: a file cannot be written"
    mkdir "$M/dir"
    head -c 300000 /dev/urandom >"$WORK/bytes"
    check_status 0 cp "$WORK/bytes" "$M/dir/bytes"
    flushed
    bucket_get v/dir/bytes | cmp - "$WORK/bytes" || fail "$store: other bytes in the bucket"
    check_eq "$store: a new file in the bucket" first "$(bucket_get v/file)"
    printf 'second, and longer' >"$M/file" || fail "$store: a file cannot be written over"
    flushed
    check_eq "$store: its new bytes" 'second, and longer' "$(bucket_get v/file)"
    check_status 0 mv "$M/file" "$M/dir/renamed"
    check_status 0 rm "$M/dir/bytes"
    flushed
    check_eq "$store: under its new name" 'second, and longer' "$(bucket_get v/dir/renamed)"
    ! bucket_has v/file || fail "$store: the old name is still in the bucket"
    ! bucket_has v/dir/bytes || fail "$store: a deleted file is still in the bucket"
    check_eq "$store: names in the mount" 'dir renamed' "$(cd "$M" && find . -mindepth 1 -printf "%f\n" | sort | xargs)"
    check_eq "$store: nothing is unsynced" '[0,0]' "$("$HOLDFAST" status --json | jq -c '[.unsynced_files,.conflicts]')"
}

# A change from outside that the gateway has not seen: it keeps the name, our bytes are kept as a conflict.
outside_is_kept() { # STORE
    printf 'ours' >"$M/shared"
    flushed
    printf 'from outside' | bucket_put v/shared
    printf 'ours again' >"$M/shared" 2>/dev/null
    "$HOLDFAST" flush v --wait >/dev/null 2>&1
    check_eq "$1: a change from outside" 'from outside' "$(bucket_get v/shared)"
    check_eq "$1: conflicts told" 1 "$("$HOLDFAST" status --json | jq .conflicts)"
}

composed_only() { # STORE
    printf 'composed' >"$M/$(printf 'caf\303\251')" || fail "$1: a composed name is refused"
    if (printf 'other' >"$M/$(printf 'cafe\314\201')") 2>"$WORK/err"; then fail "$1: a second form of one name is taken"; fi
    check_status 1 "$HOLDFAST" put "$WORK/bytes" "v:/$(printf 'cafe\314\201')"
    check_contains "$1: the refusal" 'same name' "$WORK/err"
    flushed
    check_eq "$1: the first one's bytes" composed "$(bucket_get "v/$(printf 'caf\303\251')")"
}

# ---- roles ----
role() { # ROLE TEXT...: what doctor has to say
    local role=$1
    shift
    note "-- fault server, $role"
    store_begin fault-server test --role "$role" --lag-ms 1500
    serve "$role"
    doctor_names "$role" "$@"
    ordinary_life "$role"
    case $role in
    no-conditions | not-implemented | weak-copy) outside_is_kept "$role" ;;
    nfc) composed_only "$role" ;;
    esac
    serve_end
    store_end
}
no_creation='no conditional creation (If-None-Match)'
no_replacement='no conditional replacement (If-Match)'
role no-conditions "$no_creation" "$no_replacement" 'deletes: degraded' 'let only one gateway write here'
role not-implemented "$no_creation" "$no_replacement" 'let only one gateway write here'
role weak-copy 'deletes: degraded' 'copies ignore the condition on their source'
role one-write 'one write per file in 1000 ms'
role nfc 'names are composed here (Unicode NFC)'
role lying-list 'listings lag behind'
role equal-parts 'answers'

# ---- servers that nobody here wrote ----
server() { # KIND TEXT...
    local kind=$1
    shift
    note "-- $kind"
    store_begin "$kind" weak
    serve "$kind"
    doctor_names "$kind" "$@"
    ordinary_life "$kind"
    [ "$kind" != swift ] || outside_is_kept "$kind"
    serve_end
    store_end
}
server swift "$no_creation" "$no_replacement" 'long metadata is not kept here'
if "$LIB_ROOT/tests/support/r2.sh" install >"$WORK/install" 2>&1 || [ $? != 77 ]; then
    server r2 'deletes: degraded' 'one write per file in 1000 ms' 'names that are not UTF-8'
else
    note "-- r2: npm's registry cannot be reached"
fi
