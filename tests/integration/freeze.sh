#!/usr/bin/env bash
# The owner's emergency stop: by no face anything is written to a frozen volume, not even by files that are open, nothing of it goes to the
# bucket, over a restart too; what was done before can be looked at, waits, goes on with the thaw, and is undone then.
# timeout: 120
. "$(dirname "$0")/../support/lib.sh"
lib_begin freeze
need_fuse

M=$WORK/m RUN=01KB7Q2M4T6V8XZAC1EG3HJ5KN
mkdir "$M"
defer "while umount '$M' 2>/dev/null; do :; done"
start() { gateway_start "$WORK/state" "file://$WORK/bucket" --sync-rest "${1:-0s}" --stop-timeout 1s; }
bucket() { (cd "$WORK/bucket" && find v other -type f | LC_ALL=C sort | xargs sha256sum); }
refused() { # WHAT COMMAND...
    local what=$1
    shift
    if "$@" >"$WORK/out" 2>&1; then fail "$what is not refused"; fi
}
start
check_status 0 "$HOLDFAST" volume create v
check_status 0 "$HOLDFAST" volume create other
check_status 0 "$HOLDFAST" mount v "$M" --run "$RUN"
for i in $(seq 20); do echo "$i" >"$M/f$i"; done
mkdir "$M/d" && echo log >"$M/log"
printf o | "$HOLDFAST" put - other:/o || fail 'put'
check_status 0 "$HOLDFAST" flush --timeout 30
gateway_stop
# What is done now rests here for a while, as what an agent did a moment ago.
start 30s
exec 7>>"$M/log" 8>"$M/open"
echo half >&8
for i in $(seq 10); do rm "$M/f$i"; done
mv "$M/f11" "$M/d/moved"
bucket >"$WORK/before"

# ---- frozen ----
check_status 0 "$HOLDFAST" freeze v
check_contains 'the command' 'froze 1 volume' "$WORK/out"
check_status 0 "$HOLDFAST" freeze v
check_contains 'again' 'froze 0 volumes' "$WORK/out"
for try in 1 2; do
    refused 'a new file' touch "$M/new"
    refused 'an overwrite' sh -c "echo x >'$M/f12'"
    refused 'a removal' rm "$M/f12"
    refused 'a rename' mv "$M/f12" "$M/g"
    refused 'a folder' mkdir "$M/e"
    refused 'a mode' chmod 600 "$M/f12"
    refused 'a link' ln -s f12 "$M/l"
    refused 'an attribute' setfattr -n user.x -v y "$M/f12"
    refused 'a put' "$HOLDFAST" put "$WORK/before" v:/p
    check_contains 'and it is said why' 'thaw' "$WORK/out"
    refused 'an rm' "$HOLDFAST" rm v:/f12
    refused 'an mv' "$HOLDFAST" mv v:/f12 v:/g
    refused 'an undo' "$HOLDFAST" undo --run "$RUN" v
    check_eq 'it can be read' 12 "$(cat "$M/f12")"
    check_eq 'the change before it is seen' 11 "$(cat "$M/d/moved")"
    check_eq 'the mount says so' true "$(jq .frozen "$M/.holdfast/status")"
    check_status 0 "$HOLDFAST" status
    check_contains 'status' "FROZEN     volume 'v'" "$WORK/out"
    printf 'o%s' "$try" | "$HOLDFAST" put - other:/o || fail 'the other volume is frozen too'
    check_status 7 "$HOLDFAST" flush --timeout 3 v
    check_eq 'the bucket is as it was' "$(grep ' v/' "$WORK/before")" "$(bucket | grep ' v/')"
    [ "$try" = 1 ] || break
    # A file that is open: refused, unless the kernel writes by itself (passthrough), and then it waits here.
    echo late >&7 2>/dev/null || true
    exec 7>&- 8>&-
    check_status 7 "$HOLDFAST" umount "$M" --force --timeout 1
    gateway_stop
    start 0s
    check_status 0 "$HOLDFAST" mount v "$M" --run "$RUN"
done
check_eq 'its reason' true "$(api GET '/v1/unsynced?volume=v' | jq '[.unsynced[].last_error] | any(. != null and startswith("held"))')"

# ---- thawed ----
check_status 0 "$HOLDFAST" thaw
check_contains 'the command' 'thawed 1 volume' "$WORK/out"
check_status 0 "$HOLDFAST" flush --timeout 30 v
check_eq 'what waited is in the bucket' "d/moved $(seq -f 'f%g' 12 20 | xargs) log open" \
    "$(cd "$WORK/bucket/v" && find . -type f ! -name '.hf~*' | sed 's|^\./||' | LC_ALL=C sort | xargs)"
check_eq 'a file that was open' half "$(head -n 1 "$WORK/bucket/v/open")"
check_status 0 "$HOLDFAST" undo --run "$RUN" v
check_status 0 "$HOLDFAST" freeze
check_contains 'all volumes' 'froze 2 volumes' "$WORK/out"
check_status 4 "$HOLDFAST" freeze none
check_status 0 "$HOLDFAST" thaw --json
check_eq 'json' '{"frozen":false,"changed":2}' "$(jq -c . "$WORK/out")"
touch "$M/new" || fail 'after the thaw'
lib_end
