#!/usr/bin/env bash
# A run deletes 200 files, rewrites 50 and renames a folder; a person edits 3 of them after. `undo --run` takes back exactly the
# others, in one command, and `--dry-run` had said so; undo of the undo is the run's work again, byte for byte. What is there
# is judged by a walk of the mount and of the bucket's directory that were taken before.
# timeout: 120
# long-timeout: 1800
. "$(dirname "$0")/../support/lib.sh"
lib_begin undo
need_fuse
command -v python3 >/dev/null || skip 'no python3'

TREE=$LIB_ROOT/tests/integration/history.py
M=$WORK/m
RUN=01KB9ZZZZZ0123456789ABCDEF
umask 022
mkdir "$M" "$WORK/run"
defer "while umount '$M' 2>/dev/null; do :; done"
for dir in run r r.run; do defer "while umount '$WORK/$dir' 2>/dev/null; do :; done"; done
gateway_start "$WORK/state" "file://$WORK/bucket"
check_status 0 "$HOLDFAST" volume create v
check_status 0 "$HOLDFAST" mount v "$M"
flushed() { check_status 0 "$HOLDFAST" flush --timeout 60 v; }
look() { # NAME: the mount and the bucket, as they are
    python3 "$TREE" walk "$M" >"$WORK/$1.json" || fail "cannot walk the mount for $1"
    python3 "$TREE" objects "$WORK/bucket/v" >"$WORK/$1.bucket.json" || fail "cannot walk the bucket for $1"
    python3 "$TREE" bucket "$WORK/$1.json" "$WORK/$1.bucket.json" || fail "$1: the bucket is not the mount"
}
same() { # WHAT A B
    python3 "$TREE" same "$WORK/$2.json" "$WORK/$3.json" || fail "$1"
}

# ---- what was there ----
mkdir "$M/gone" "$M/new" "$M/folder" "$M/folder/below" "$M/still"
for i in $(seq 200); do echo "file $i of the person" >"$M/gone/$i"; done
for i in $(seq 50); do head -c $((i * 1000)) /dev/urandom >"$M/new/$i"; done
for i in $(seq 5); do echo "in a folder $i" >"$M/folder/$i" && echo "below $i" >"$M/folder/below/$i"; done
echo untouched >"$M/still/x"
chmod 0600 "$M/gone/7" && chmod 0755 "$M/new/7"
ln -s ../still/x "$M/gone/link"
setfattr -n user.tag -v seven "$M/gone/8"
flushed
look before

# ---- the run ----
check_status 0 "$HOLDFAST" mount v "$WORK/run" --run "$RUN"
rm "$WORK"/run/gone/* || fail 'rm'
for i in $(seq 50); do echo "rewritten $i" >"$WORK/run/new/$i"; done
mv "$WORK/run/folder" "$WORK/run/moved" || fail 'mv'
echo 'of the run' >"$WORK/run/made"
check_status 0 "$HOLDFAST" umount "$WORK/run"
flushed
look run
check_eq 'removed by the run' 0 "$(find "$M/gone" -mindepth 1 | wc -l)"

# ---- the person goes on ----
echo 'edited after' >"$M/new/3"
sed -i 's/rewritten/corrected/' "$M/new/4"
echo 'made anew' >"$M/gone/5"
flushed
look person
KEPT=(new/3 new/4 gone/5)

# ---- what would be done ----
check_status 0 "$HOLDFAST" undo --run "$RUN" --dry-run --json
cp "$WORK/out" "$WORK/plan.json"
look dry
same 'a dry run changes nothing' person dry
check_eq 'skipped in the dry run' "$(printf '%s\n' "${KEPT[@]}" | sort)" \
    "$(jq -r '.steps[]|select(.action=="skip").path' "$WORK/plan.json" | sort)"
check_eq 'what would be written anew' 48 "$(jq '[.steps[]|select(.action=="write")]|length' "$WORK/plan.json")"
check_eq 'what would be made' 200 "$(jq '[.steps[]|select(.action=="create")]|length' "$WORK/plan.json")"
check_eq 'the folder would move back' '[["moved","folder"]]' \
    "$(jq -c '[.steps[]|select(.action=="rename")|[.path,.to]]' "$WORK/plan.json")"
check_eq 'what the run made would go' '["made"]' "$(jq -c '[.steps[]|select(.action=="remove").path]' "$WORK/plan.json")"
check_eq 'all of it is told' false "$(jq .truncated "$WORK/plan.json")"

# ---- undo ----
check_status 3 "$HOLDFAST" undo --run "$RUN" v --json
cp "$WORK/out" "$WORK/done.json"
check_eq 'done as said' "$(jq -c '[.done,.skipped,.failed]' "$WORK/plan.json")" "$(jq -c '[.done,.skipped,.failed]' "$WORK/done.json")"
check_eq 'the same steps' "$(jq -c '[.steps[]|[.action,.path,.to]]|sort' "$WORK/plan.json")" \
    "$(jq -c '[.steps[]|[.action,.path,.to]]|sort' "$WORK/done.json")"
check_eq 'the bucket has it' true "$(jq .synced "$WORK/done.json")"
look undone
python3 "$TREE" merge "$WORK/before.json" "$WORK/person.json" "${KEPT[@]}" >"$WORK/wanted.json"
same 'undo: what was there before the run, and the edits of the person' wanted undone

# ---- once more: what is back already is no step, and nothing that stands in the way ----
check_status 3 "$HOLDFAST" undo --run "$RUN" v --json
check_eq 'undo again' '[0,3,0]' "$(jq -c '[.done,.skipped,.failed]' "$WORK/out")"
look twice
same 'undo twice' undone twice

# ---- undo of the undo ----
check_status 0 "$HOLDFAST" undo --run "$(jq -r .run "$WORK/done.json")" v --json
look again
same 'undo of the undo: the state before it' person again
check_status 4 "$HOLDFAST" undo --run 01ARZ3NDEKTSV4RRFFQ69G5FAV v
check_one_line

# ---- an undo that is cut off by kill -9 is repeated ----
check_status 0 "$HOLDFAST" mount v "$WORK/run" --run 01KB9ZZZZZ0123456789CVTCVT
rm -r "$WORK"/run/moved && rm "$WORK"/run/new/2? && mv "$WORK/run/new" "$WORK/run/newer" && echo x >"$WORK/run/newer/x"
check_status 0 "$HOLDFAST" umount "$WORK/run"
for seconds in ${HOLDFAST_TEST_LONG:+0.02 0.05 0.3} 0.1; do
    "$HOLDFAST" undo --run 01KB9ZZZZZ0123456789CVTCVT v >/dev/null 2>&1 &
    cut=$!
    sleep "$seconds"
    gateway_kill
    wait "$cut" || true
    gateway_start "$WORK/state" "file://$WORK/bucket"
done
check_status 0 "$HOLDFAST" undo --run 01KB9ZZZZZ0123456789CVTCVT v
wait_until 30 findmnt -n -t fuse.holdfast "$M" || fail_now 'not mounted again'
look cut
same 'undo after it was cut off' person cut

# ---- whatever a run does: undo is what was there before, and undo of that is the run's work ----
if [ "${HOLDFAST_TEST_LONG:-}" = 1 ]; then ROUNDS=${ROUNDS:-60} COUNT=${COUNT:-120}; else ROUNDS=${ROUNDS:-2} COUNT=${COUNT:-60}; fi
SEED=${HOLDFAST_SEED:-$(date +%s)}
echo "seed $SEED, $ROUNDS rounds of $COUNT changes"
for round in $(seq "$ROUNDS"); do
    check_status 0 "$HOLDFAST" volume create "r$round"
    mkdir "$WORK/r" "$WORK/r.run"
    check_status 0 "$HOLDFAST" mount "r$round" "$WORK/r"
    python3 "$TREE" change "$WORK/r" "$SEED.$round.before" 60
    check_status 0 "$HOLDFAST" flush --timeout 60 "r$round"
    python3 "$TREE" walk "$WORK/r" >"$WORK/r1.json"
    run=01KB9ZZZZZ0123456789$(printf '%06d' "$round")
    check_status 0 "$HOLDFAST" mount "r$round" "$WORK/r.run" --run "$run"
    python3 "$TREE" change "$WORK/r.run" "$SEED.$round.one" "$((COUNT / 2))"
    check_status 0 "$HOLDFAST" flush --timeout 60 "r$round"
    python3 "$TREE" change "$WORK/r.run" "$SEED.$round.two" "$((COUNT / 2))"
    check_status 0 "$HOLDFAST" umount "$WORK/r.run"
    python3 "$TREE" walk "$WORK/r" >"$WORK/r2.json"
    check_status 0 "$HOLDFAST" undo --run "$run" "r$round" --json
    cp "$WORK/out" "$WORK/done.json"
    python3 "$TREE" walk "$WORK/r" >"$WORK/r3.json"
    same "undo of random changes, seed $SEED, round $round" r1 r3
    check_status 0 "$HOLDFAST" undo --run "$run" "r$round" --json
    check_eq "undo twice, seed $SEED, round $round" '[0,0,0]' "$(jq -c '[.done,.skipped,.failed]' "$WORK/out")"
    check_status 0 "$HOLDFAST" undo --run "$(jq -r .run "$WORK/done.json")" "r$round" --json
    python3 "$TREE" walk "$WORK/r" >"$WORK/r4.json"
    same "undo of the undo, seed $SEED, round $round" r2 r4
    check_status 0 "$HOLDFAST" umount "$WORK/r"
    rmdir "$WORK/r" "$WORK/r.run"
    [ "$LIB_FAILED" = 0 ] || break
done
