#!/usr/bin/env bash
# The audit reconstructs one agent run of 300 operations over mount, API and CLI without a gap, reads and its command among them. A
# record that was removed, changed, moved or cut off by hand is found by `audit verify`, here and in the bucket. Who checks
# the chain besides knows only its format.
# timeout: 120
. "$(dirname "$0")/../support/lib.sh"
lib_begin audit
need_fuse
command -v zstd >/dev/null || skip 'no zstd'

CHECK=$LIB_ROOT/tests/integration/audit_check.py
RUN=01KB9ZZZZZ0123456789ABCDE7
M=$WORK/m
A=$WORK/state/audit
umask 022
mkdir "$M"
defer "while umount '$M' 2>/dev/null; do :; done"
gateway_start "$WORK/state" "file://$WORK/bucket"
check_status 0 "$HOLDFAST" volume create v --audit-reads on
check_status 0 "$HOLDFAST" mount v "$M" --run $RUN
segments() { find "$1" -name '*.jsonl' -o -name '*.jsonl.zst' | sort; }
chain() { # DIR: how many records, by the checker of its own
    # shellcheck disable=SC2046 # names of ours
    python3 "$CHECK" chain $(segments "$1")
}
did() { printf '%s\t%s\n' "$1" "$2" >>"$WORK/did"; }

# ---- 300 operations ----
mkdir "$M/d" && did mkdir d
for i in $(seq 60); do echo "$i" >"$M/d/$i" && did create "d/$i" && did write "d/$i"; done
wait_until 30 sh -c "[ \"\$('$HOLDFAST' audit --run $RUN --verb write | wc -l)\" = 60 ]" || fail 'not every close is recorded'
for i in $(seq 60); do
    cat "$M/d/$i" >/dev/null && did read "d/$i"
    mv "$M/d/$i" "$M/d/$i.moved" && did rename "d/$i"
done
for i in $(seq 20); do
    api PUT "/v1/files/v/api$i" -H "Holdfast-Run: $RUN" -H 'If-None-Match: *' --data-binary "$i" >/dev/null && did create "api$i"
    api GET "/v1/files/v/api$i" -H "Holdfast-Run: $RUN" >/dev/null && did read "api$i"
done
for i in $(seq 19); do
    HOLDFAST_RUN=$RUN "$HOLDFAST" rm "v:api$i" >/dev/null 2>&1 || fail "rm api$i"
    did remove "api$i"
done
ln -s 1.moved "$M/d/link" && did symlink d/link
chmod 600 "$M/d/1.moved" && did attributes d/1.moved
rm "$M/d/2.moved" && did remove d/2.moved
HOLDFAST_RUN=$RUN "$HOLDFAST" cat v:d/3.moved >/dev/null && did read d/3.moved
"$HOLDFAST" audit --run $RUN >"$WORK/told" # what was noted is written
# shellcheck disable=SC2046 # names of ours
check_eq 'all of it, in its order' "$(wc -l <"$WORK/did")" "$(python3 "$CHECK" run $RUN "$WORK/did" $(segments "$A"))"
[ "$(wc -l <"$WORK/did")" -ge 300 ] || fail 'too few operations'
check_eq 'the command tells the same' "$(wc -l <"$WORK/did")" "$(wc -l <"$WORK/told")"
check_eq 'one file of it' 4 "$("$HOLDFAST" audit --run $RUN --path d/7 --json | jq '.records | length')"
check_eq 'by the API, page by page' "$(wc -l <"$WORK/did")" "$(
    cursor=0
    while [ "$cursor" != null ]; do
        api GET "/v1/audit?run=$RUN&limit=70&cursor=$cursor" >"$WORK/page"
        jq -r '.records[].seq' "$WORK/page"
        cursor=$(jq .next "$WORK/page")
    done | wc -l
)"
check_eq 'versions hang together' true "$("$HOLDFAST" audit --path d/9 --json | jq '[.records[] | select(.verb == "write")][0].after as $w
    | [.records[] | select(.verb == "read")][0].before as $r | ($w | length) == 26 and ($r == $w or $r == "")')"

# ---- what a run executes, denials, settings ----
check_status 0 "$HOLDFAST" run -v v --run 01KB9ZZZZZ0123456789ABCDE8 -- sh -c 'cat /mnt/data/1/d/4.moved'
check_eq 'the command' "sh -c 'cat /mnt/data/1/d/4.moved'" "$("$HOLDFAST" audit --run 01KB9ZZZZZ0123456789ABCDE8 --verb exec --json | jq -r '.records[0].command')"
check_eq 'its end' 'status 0' "$("$HOLDFAST" audit --run 01KB9ZZZZZ0123456789ABCDE8 --verb exit --json | jq -r '.records[0].detail')"
check_eq 'and what it read' d/4.moved "$("$HOLDFAST" audit --run 01KB9ZZZZZ0123456789ABCDE8 --verb read --json | jq -r '.records[0].path')"
curl -s -o /dev/null -H 'Authorization: Bearer wrong' "$URL/v1/volumes"
check_eq 'a denial' 'unauthenticated GET /v1/volumes' "$("$HOLDFAST" audit --verb denied --json | jq -r '.records[-1] | "\(.result) \(.detail)"')"
check_status 0 "$HOLDFAST" volume set v --quota 10G
"$HOLDFAST" audit --verb request --json | jq -r '.records[-1].detail' | grep -q 'PATCH /v1/volumes/v .*quota' || fail 'no record of the settings'

# ---- the chain goes on over a kill; what it has is what it had ----
check_status 0 "$HOLDFAST" audit verify
before=$(chain "$A") || fail 'the chain does not hold'
sleep 2 # a tick: the end is remembered
check_status 0 "$HOLDFAST" umount "$M"
gateway_kill
gateway_start "$WORK/state" "file://$WORK/bucket"
check_status 0 "$HOLDFAST" audit verify
after=$(chain "$A") || fail 'the chain does not hold after a kill'
[ "$after" -gt "$before" ] || fail "the chain is shorter: $before, $after"
sent() { "$HOLDFAST" audit verify --json >"$WORK/verified"; jq -e '.bucket_segments >= 1 and .ok' "$WORK/verified"; }
wait_until 30 sent || fail "closed segments are not in the bucket: $(cat "$WORK/verified")"
check_eq 'the bucket by itself' "$(jq .bucket_records "$WORK/verified")" "$(chain "$WORK/bucket/.holdfast/audit")"

# ---- by hand: each time in a copy of all of it ----
for i in 1 2 3 4; do check_status 0 "$HOLDFAST" mkdir "v:later$i"; done
gateway_stop
NAME=$(basename "$(find "$A" -name '*.jsonl' | sort | tail -n 1)")
PACKED=$(find "$WORK/bucket/.holdfast/audit" -name '*.zst' | sort | head -n 1)
number=0
tamper() { # WHAT TOLD [OPTION] -- COMMAND...: which leaves the file as somebody did
    local what=$1 told=$2
    shift 2
    number=$((number + 1))
    cp -a "$WORK/state" "$WORK/state.$number" && cp -a "$WORK/bucket" "$WORK/bucket.$number"
    FILE=$WORK/state.$number/audit/$NAME OBJECT=$WORK/bucket.$number${PACKED#"$WORK/bucket"}
    "$@"
    gateway_start "$WORK/state.$number" "file://$WORK/bucket.$number"
    check_status 1 "$HOLDFAST" audit verify
    grep -q "$told" "$WORK/out" || fail "$what is told as: $(head -c 300 "$WORK/out")"
    gateway_stop
}
edit() { cp "$FILE" "$WORK/right" && "$@" <"$WORK/right" >"$FILE"; }
drop_object() { rm "$OBJECT"; }
tamper 'a removed record' 'records are missing' edit sed 3d
tamper 'a tail cut off' 'cut off' edit head -n 2
tamper 'an object removed' 'missing' drop_object
gateway_start "$WORK/state" "file://$WORK/bucket"
check_status 0 "$HOLDFAST" audit verify
