#!/usr/bin/env bash
# What a mount changes rests for a second before it goes to the bucket: requests are counted on their way to a store. A temporary
# file causes none, ten saves one, modes and times after an untar no further ones; a barrier does not wait for the rest, and a
# file that never rests goes up all the same.
# timeout: 120
. "$(dirname "$0")/../support/lib.sh"
lib_begin rest
need_fuse

defer "'$LIB_ROOT/tests/support/fault-server.sh' wipe '$WORK/fault'"
"$LIB_ROOT/tests/support/fault-server.sh" start "$WORK/fault" >/dev/null || fail_now 'the fault server does not start'
while read -r line; do export "${line?}"; done < <("$LIB_ROOT/tests/support/fault-server.sh" env "$WORK/fault")
gateway_start "$WORK/state" "s3://test?endpoint=$S3_ENDPOINT&region=$S3_REGION&style=path" --log info,s3=trace
check_status 0 "$HOLDFAST" volume create v
M=$WORK/m
mkdir "$M"
defer "while umount '$M' 2>/dev/null; do :; done"
check_status 0 "$HOLDFAST" mount v "$M"

# Requests for objects of the volume, by method, whose key begins so. Listings are GETs of the bucket and do not count.
requests() { # METHOD [KEY]
    grep -cE "s3 +$1 [^ ]*/test/v/${2:-}" "$WORK/gateway.log"
}
pending() { "$HOLDFAST" volume show v --json | jq -r .pending_keys; }
# shellcheck disable=SC2317 # wait_until calls it
settled() { [ "$(pending)" = 0 ]; }
there() { [ "$(requests PUT "$1")" -gt 0 ]; }
sees() { # the log is where requests show at all
    echo first >"$M/first"
    wait_until 20 there first || fail_now "no PUT in the log: $(grep -c . "$WORK/gateway.log") lines"
    wait_until 20 settled || fail 'something is left to do'
}
sees

# ---- files that go again ----
for i in $(seq 20); do
    echo "$i" >"$M/lock$i"
    rm "$M/lock$i"
done
mkdir "$M/tmpdir" && echo x >"$M/tmpdir/f" && rm -r "$M/tmpdir"
wait_until 20 settled || fail 'removed files are not settled'
check_eq 'requests for temporary files' 0 "$(requests '[A-Z]+' '(lock|tmpdir)')"

# ---- ten saves; as editors do ----
begun=$(now_ms)
for i in $(seq 10); do echo "save $i" >"$M/ten"; done
took=$(($(now_ms) - begun))
wait_until 20 settled || fail 'ten saves are not settled'
# On a machine that is too busy for ten saves within a second there may be more.
[ "$took" -ge 900 ] || check_eq 'PUTs for ten saves' 1 "$(requests PUT ten)"
begun=$(now_ms)
for i in $(seq 5); do echo "edit $i" >"$M/doc.swp" && mv "$M/doc.swp" "$M/doc"; done
took=$(($(now_ms) - begun))
wait_until 20 settled || fail 'saves by rename are not settled'
if [ "$took" -lt 900 ]; then
    check_eq 'requests for the name of the temporary file' 0 "$(requests '[A-Z]+' doc.swp)"
    check_eq 'PUTs for five saves by rename' 1 "$(requests PUT 'doc( |\?|$)')"
fi

# ---- an archive: content, mode, owner and time are one request ----
mkdir "$WORK/tree"
for i in $(seq 40); do
    echo "file $i" >"$WORK/tree/u$i"
    chmod 640 "$WORK/tree/u$i"
    touch -d '2001-02-03 04:05:06' "$WORK/tree/u$i"
done
tar -C "$WORK/tree" -cf "$WORK/tree.tar" .
mkdir "$M/un"
tar -C "$M/un" -xpf "$WORK/tree.tar"
chmod 600 "$M"/un/u*
touch -d '2002-02-03 04:05:06' "$M"/un/u*
wait_until 30 settled || fail 'the archive is not settled'
check_eq 'PUTs for 40 files of an archive' 40 "$(requests PUT un/u)"
check_eq 'other requests for them' 0 "$(requests '(HEAD|GET|DELETE|POST)' un/u)"

# ---- a barrier starts at once ----
cat "$M/ten" >/dev/null
for i in $(seq 1000); do echo "$i"; done | (cd "$M" && split -l 1 -a 4 - many)
begun=$(now_ms)
check_status 0 "$HOLDFAST" flush v
note "flush after 1,000 saves: $(($(now_ms) - begun)) ms"
check_eq 'all of them are in the bucket' 1000 "$(requests PUT many)"
check_eq 'nothing is left' 0 "$(pending)"
fast=999999
for i in 1 2 3; do
    echo "$i" >"$M/one"
    begun=$(now_ms)
    check_status 0 "$HOLDFAST" flush v
    took=$(($(now_ms) - begun))
    [ "$took" -ge "$fast" ] || fast=$took
done
note "flush after one save: $fast ms"
[ "$fast" -lt 900 ] || fail "a barrier waits for the rest: $fast ms at best"

# ---- never at rest ----
begun=$(now_ms)
until there always; do
    [ $(($(now_ms) - begun)) -lt 30000 ] || fail_now 'a file that is saved all the time does not go up'
    echo "$begun and later" >>"$M/always"
    sleep 0.2
done
took=$(($(now_ms) - begun))
note "a file saved every 200 ms is in the bucket after $took ms"
[ "$took" -ge 1000 ] || fail "it did not rest: $took ms"

check_status 0 "$HOLDFAST" umount "$M"
exit "$LIB_FAILED"
