#!/usr/bin/env bash
# Versions on stores with the rules of Cloudflare's R2 (one write per second and key, names composed to NFC, equal parts, deletes and
# copies whose conditions are ignored), on R2's own local server, and on others: history, restore, undo of a run, snapshots,
# conflicts, the bytes of each version that a writer was told is saved, and a rebuild from the bucket alone.
# One store in the short form, HOLDFAST_TEST_LONG=1: all; HOLDFAST_TEST_STORES='NAME...': those (support/stores.sh).
# timeout: 240
# long-timeout: 1800
. "$(dirname "$0")/../support/lib.sh"
lib_begin past-on-stores
need_fuse
# shellcheck source=../support/stores.sh
. "$LIB_ROOT/tests/support/stores.sh"
TREE=$LIB_ROOT/tests/integration/history.py
NAME=$(printf 'caf\303\251') OTHER=$(printf 'cafe\314\201')
umask 022

flushed() { check_status 0 "$HOLDFAST" flush --wait --timeout 120 v; }
sum() { sha256sum <"$1" | cut -d' ' -f1; }
sums() { "$HOLDFAST" history --json "v:/$1" | jq -r '.versions[].sha256'; } # PATH
files() { find . -type f -not -path './.holdfast/*' -print0 | LC_ALL=C sort -z | xargs -0 sha256sum; }
version() { "$HOLDFAST" history --json "v:/$1" | jq -r ".versions[$2].version"; }
look() { python3 "$TREE" walk "$M" >"$WORK/$1.json" || fail "$STORE: cannot walk the mount for $1"; } # NAME
same() { python3 "$TREE" same "$WORK/$2.json" "$WORK/$3.json" || fail "$STORE: $1"; }                 # WHAT A B
mounted() {
    mkdir -p "$M"
    check_status 0 "$HOLDFAST" mount v "$M"
}

# Newest first: what the history knows, what it reads, and what another client finds in the bucket.
check_history() { # WHAT PATH FILE...
    local what="$STORE: $1" path=$2 i=0 file
    shift 2
    check_eq "$what" "$(for file in "$@"; do sum "$file"; done)" "$(sums "$path")"
    for file in "$@"; do
        "$HOLDFAST" cat --version "$(version "$path" $i)" "v:/$path" >"$WORK/got" || fail "$what: cat of version $i"
        check_same "$what: version $i" "$file" "$WORK/got"
        i=$((i + 1))
    done
    shift
    check_eq "$what: copies in the bucket" "$(for file in "$@"; do sum "$file"; done | sort)" \
        "$(bucket_sums ".holdfast/history/v/$path/")"
}

versions() {
    local i
    seq 1 20000 >"$WORK/one"
    head -c 3000000 /dev/urandom >"$WORK/two"
    printf 'three' >"$WORK/three"
    mkdir "$M/d"
    for i in one two three; do cp "$WORK/$i" "$M/d/f" && flushed; done
    check_history 'written over' d/f "$WORK/three" "$WORK/two" "$WORK/one"
    check_status 0 "$HOLDFAST" restore v:/d/f --version "$(version d/f 2)" --json
    cp "$WORK/out" "$WORK/done.json"
    flushed
    bucket_get v/d/f | cmp -s - "$WORK/one" || fail "$STORE: a restored file is another one in the bucket"
    check_status 0 "$HOLDFAST" undo --run "$(jq -r .run "$WORK/done.json")" v
    check_same "$STORE: a restore undone" "$WORK/three" "$M/d/f"
    check_history 'and back' d/f "$WORK/three" "$WORK/one" "$WORK/three" "$WORK/two" "$WORK/one"
    mv "$M/d" "$M/e" && flushed
    cp "$WORK/two" "$M/e/f" && flushed
    check_eq "$STORE: a folder moved" 6 "$(sums e/f | wc -l)"
    rm "$M/e/f" && flushed
    check_status 0 "$HOLDFAST" trash restore v:/e/f
    check_same "$STORE: from the trash" "$WORK/two" "$M/e/f"
    # Five writers one after the other, each told that its bytes are saved, within a second.
    for i in 1 2 3 4 5; do
        echo "saved $i" >"$WORK/hot.$i"
        check_status 0 "$HOLDFAST" put --no-wait "$WORK/hot.$i" v:/hot
    done
    flushed
    check_eq "$STORE: no writer's version is lost" "$(for i in 5 4 3 2 1; do sum "$WORK/hot.$i"; done)" "$(sums hot | uniq)"
    # One that was on its way up when it was replaced may be kept twice.
    check_eq "$STORE: copies of them in the bucket" "$(for i in 1 2 3 4; do sum "$WORK/hot.$i"; done | sort)" \
        "$(bucket_sums .holdfast/history/v/hot/ | uniq)"
}

# A composed name has versions as any; the other form is no second file, and what it was told does not touch the first.
composed() {
    printf 'one' >"$M/$NAME" && flushed && printf 'two' >"$M/$NAME" && flushed
    [ "$("$HOLDFAST" doctor | grep -c 'names are composed here')" = 1 ] || return 0
    (printf 'other' >"$M/$OTHER") 2>/dev/null && fail "$STORE: two forms of one name"
    check_status 1 "$HOLDFAST" put "$WORK/one" "v:/$OTHER"
    mv "$M/hot" "$M/$OTHER" 2>/dev/null && fail "$STORE: a second form by a rename"
    check_status 4 "$HOLDFAST" history "v:/$OTHER"
    check_status 0 "$HOLDFAST" restore "v:/$NAME"
    check_eq "$STORE: the first form goes back" one "$(cat "$M/$NAME")"
    rm "$M/$NAME" && flushed
    (printf 'other' >"$M/$OTHER") 2>/dev/null && fail "$STORE: a form that is not composed"
    check_status 0 "$HOLDFAST" trash restore "v:/$NAME"
    check_eq "$STORE: and out of the trash" one "$(cat "$M/$NAME")"
}

run_undone() {
    local i run=01KB9ZZZZZ0123456789STRSTR
    mkdir "$M/gone" "$M/new" "$M/folder"
    for i in $(seq 8); do echo "file $i" >"$M/gone/$i" && echo "old $i" >"$M/new/$i" && echo "in it $i" >"$M/folder/$i"; done
    flushed
    look before
    check_status 0 "$HOLDFAST" mount v "$WORK/run" --run "$run"
    rm "$WORK"/run/gone/*
    for i in $(seq 8); do echo "rewritten $i" >"$WORK/run/new/$i"; done
    mv "$WORK/run/folder" "$WORK/run/moved"
    echo made >"$WORK/run/made"
    check_status 0 "$HOLDFAST" umount "$WORK/run" --timeout 120
    echo 'a person' >"$M/new/3"
    flushed
    look person
    check_status 3 "$HOLDFAST" undo --run "$run" v --json
    check_eq "$STORE: left to the person" '["new/3"]' "$(jq -c '[.steps[]|select(.action=="skip").path]' "$WORK/out")"
    cp "$WORK/out" "$WORK/done.json"
    look undone
    python3 "$TREE" merge "$WORK/before.json" "$WORK/person.json" new/3 >"$WORK/wanted.json"
    same 'undo' wanted undone
    check_status 0 "$HOLDFAST" undo --run "$(jq -r .run "$WORK/done.json")" v
    look again
    same 'undo of the undo' person again
}

snapshot() {
    check_status 0 "$HOLDFAST" snapshot create v first
    look past
    (cd "$M" && files) >"$WORK/past"
    echo changed >"$M/new/1"
    rm "$M/made"
    mv "$M/moved" "$M/folder"
    flushed
    look now
    check_eq "$STORE: then, in the mount" 'rewritten 1' "$(cat "$M/.holdfast/at/first/new/1")"
    wait_until 60 sh -c "'$HOLDFAST' snapshot show v first --json | jq -e .published" || fail "$STORE: the snapshot is not published"
    check_status 0 "$HOLDFAST" snapshot restore v first --json
    look restored
    same 'a snapshot restored' past restored
    check_status 0 "$HOLDFAST" undo --run "$(jq -r .run "$WORK/out")" v
    look undone
    same 'and undone' now undone
}

conflicts() { "$HOLDFAST" conflicts list --json | jq -r '.conflicts[]|[.id,.path,.reason]|join(" ")' | sort; }
lose() { # PATH: base, mine, theirs
    printf '1\n2\n3\n4\n5\n' >"$M/$1" && flushed
    exec 7<>"$M/$1"
    printf 'one\n2\n3\n4\n5\n' >&7
    printf '1\n2\n3\n4\nfive\n' | bucket_put "v/$1"
    exec 7>&-
    check_status 3 "$HOLDFAST" flush --wait --timeout 120 v
    ID=$(conflicts | awk -v path="$1" '$2 == path { print $1 }')
    check_eq "$STORE: the loser of '$1'" one "$(bucket_get ".holdfast/conflicts/v/$ID" | head -n 1)"
    check_eq "$STORE: the winner of '$1'" five "$(bucket_get "v/$1" | tail -n 1)"
}
conflicted() {
    lose c1
    check_status 0 "$HOLDFAST" conflicts resolve "$ID" --keep merge
    flushed
    check_eq "$STORE: merged" 'one five' "$(bucket_get v/c1 | sed -n '1p;5p' | xargs)"
    check_eq "$STORE: no loser is left" '' "$(bucket_keys .holdfast/conflicts/)"
    lose c2
}

# Everything that is known, without the index.
known() { # NAME
    local path
    for path in e/f hot d/f new/1 "$NAME" c1; do
        "$HOLDFAST" history --json "v:/$path" 2>/dev/null | jq -c '.versions[]|[.version,.sha256,.size,.present]'
    done | sort >"$WORK/$1.versions"
    conflicts >"$WORK/$1.conflicts"
    (cd "$M/.holdfast/at/first" && files) >"$WORK/$1.past" || fail "$STORE: cannot read the snapshot"
    look "$1"
}
rebuilt() {
    known kept
    check_eq "$STORE: what there is to compare" 3 "$(find "$WORK" -maxdepth 1 -name 'kept.*' -not -name '*.json' -size +0 | wc -l)"
    check_status 0 "$HOLDFAST" umount "$M" --timeout 120
    gateway_stop
    rm -r "$STATE"
    check_status 0 "$HOLDFAST" rebuild --state "$STATE" --store "$STORE_URL"
    gateway_start "$STATE" "$STORE_URL"
    mounted
    known found
    same 'the tree of a rebuild' kept found
    check_same "$STORE: the snapshot all the time" "$WORK/past" "$WORK/kept.past"
    for what in versions conflicts past; do check_same "$STORE: $what after a rebuild" "$WORK/kept.$what" "$WORK/found.$what"; done
    check_status 0 "$HOLDFAST" fsck --full
}

on() { # STORE
    local part
    STORE=$1 STATE=$WORK/state-$1 M=$WORK/mount-$1
    note "-- $STORE"
    store_of "$STORE"
    mkdir -p "$WORK/run"
    defer "while umount '$M' 2>/dev/null || umount '$WORK/run' 2>/dev/null; do :; done"
    gateway_start "$STATE" "$STORE_URL" --sync-rest 200ms ${HOLDFAST_STORES_LOG:+--log $HOLDFAST_STORES_LOG}
    check_status 0 "$HOLDFAST" volume create v
    mounted
    for part in versions composed run_undone snapshot conflicted rebuilt; do
        SECONDS=0
        $part
        note "$part: $SECONDS s"
        [ "$LIB_FAILED" = 0 ] || return
    done
    check_status 0 "$HOLDFAST" umount "$M" --timeout 120
    gateway_stop
    store_end
}

R2_RULES=one-write,nfc,equal-parts,weak-copy
if [ -n "${HOLDFAST_TEST_STORES:-}" ]; then
    read -r -a STORES <<<"$HOLDFAST_TEST_STORES"
elif [ "${HOLDFAST_TEST_LONG:-0}" = 1 ]; then
    STORES=("$R2_RULES" one-write nfc equal-parts weak-copy no-conditions not-implemented swift)
    [ -z "${HOLDFAST_TEST_RGW:-}" ] || STORES+=(rgw)
    if "$LIB_ROOT/tests/support/r2.sh" install >"$WORK/install" 2>&1 || [ $? != 77 ]; then
        STORES+=(r2)
    else
        note "-- r2: npm's registry cannot be reached"
    fi
else
    STORES=("$R2_RULES")
fi
for store in "${STORES[@]}"; do
    on "$store"
    [ "$LIB_FAILED" = 0 ] || break
done
