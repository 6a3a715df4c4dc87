#!/usr/bin/env bash
# Snapshots: taken in a moment, listed, compared, restored byte for byte, shown to a sandbox, deleted; their manifests can be read
# without Holdfast. By a rule they are taken by themselves, and a rebuild finds the rule and what it has taken.
# timeout: 120
# long: 1500
. "$(dirname "$0")/../support/lib.sh"
lib_begin snapshots
need_fuse
command -v zstd >/dev/null || skip 'no zstd'

M=$WORK/m
FILES=300
[ -z "${HOLDFAST_TEST_LONG:-}" ] || FILES=100000
umask 022
mkdir "$M"
defer "while umount '$M' 2>/dev/null; do :; done"

# The bucket is older than the gateway: nobody has listed its folders.
python3 - "$WORK/bucket/v" "$FILES" <<'PY' || fail 'cannot fill the bucket'
import os, sys
top, count = sys.argv[1], int(sys.argv[2])
for i in range(count):
    folder = f"{top}/d{i // 1000}/s{i % 7}"
    if i < 7000 or i % 1000 < 7:
        os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/f{i}", "w") as f:
        f.write(f"file {i}\n")
PY
[ "$(id -u)" != 0 ] || chmod -R a+rwX "$WORK/bucket"
gateway_start "$WORK/state" "file://$WORK/bucket" --sync-rest 0s
check_status 0 "$HOLDFAST" volume create v
check_status 0 "$HOLDFAST" mount v "$M"
printf 'one\n' >"$M/changed"
printf 'gone\n' >"$M/gone"
ln -s changed "$M/link"
mkdir "$M/old" && printf 'moved\n' >"$M/old/f"
chmod 640 "$M/old/f"
find "$M" >/dev/null
check_status 0 "$HOLDFAST" flush --timeout 60 v
cp -a "$M" "$WORK/then"

start=$(date +%s%N)
check_status 0 "$HOLDFAST" snapshot create v first
took=$((($(date +%s%N) - start) / 1000000))
note "$FILES files: the snapshot took $took ms"
((took < 1000)) || fail "the snapshot took $took ms, a second is allowed"
check_status 1 "$HOLDFAST" snapshot create v first
check_status 4 "$HOLDFAST" snapshot show v other
check_status 2 "$HOLDFAST" snapshot create v

printf 'two\n' >"$M/changed"
rm "$M/gone" "$M/link"
mv "$M/old" "$M/new"
printf 'new\n' >"$M/new/added"
rm -r "$M/d0/s3"
check_status 0 "$HOLDFAST" flush --timeout 60 v

# ---- what differs ----
"$HOLDFAST" snapshot diff v first --json >"$WORK/diff.json" || fail 'diff'
check_eq 'changed' '["changed"]' "$(jq -c '[.differences[]|select(.change=="changed").path]' "$WORK/diff.json")"
check_eq 'moved' '["old/f","new/f"]' "$(jq -c '[.differences[]|select(.change=="moved")|.path,.to]' "$WORK/diff.json")"
check_eq 'added' '["new/added"]' "$(jq -c '[.differences[]|select(.change=="added" and (.folder|not)).path]' "$WORK/diff.json")"
check_eq 'removed' "$(cd "$WORK/then" && find d0/s3 gone link -not -type d | LC_ALL=C sort)" \
    "$(jq -r '.differences[]|select(.change=="removed" and (.folder|not)).path' "$WORK/diff.json" | LC_ALL=C sort)"

# ---- the manifest: what any S3 client and zstd show ----
manifest=$WORK/bucket/.holdfast/snapshots/v/first.json.zst
wait_until 60 test -s "$manifest" || fail 'no manifest in the bucket'
wait_until 60 sh -c "'$HOLDFAST' snapshot show v first --json | jq -e .published" >/dev/null || fail 'not published'
zstd -dc "$manifest" >"$WORK/manifest" || fail 'the manifest cannot be read'
check_eq 'files in the manifest' "$(cd "$WORK/then" && find . -not -type d | wc -l)" "$(head -1 "$WORK/manifest" | jq .files)"
check_eq 'names in the manifest' "$(cd "$WORK/then" && find . -mindepth 1 | cut -c3- | LC_ALL=C sort | sha256sum)" \
    "$(tail -n +2 "$WORK/manifest" | jq -r .path | LC_ALL=C sort | sha256sum)"

# ---- back, and back again ----
cp -a "$M" "$WORK/now"
if command -v bwrap >/dev/null; then
    STATUS=0
    "$HOLDFAST" run --timeout 900 -v v -v v@first -v v@first/d0@/srv/then -- sh -c '
        diff -r --no-dereference /mnt/data/2 /mnt/data/1 >/tmp/diff
        [ $? = 1 ] && cat /tmp/diff && diff -r /mnt/data/2/d0 /srv/then && ! touch /mnt/data/2/x 2>/dev/null && ! rm /srv/then/s0/f0 2>/dev/null' \
        >"$WORK/sandbox" 2>"$WORK/err" || STATUS=$?
    check_eq 'a sandbox with now and then' 0 "$STATUS"
    check_eq 'diff -r in it' "$(cd "$WORK" && diff -r --no-dereference 'then' 'now' | sha256sum)" \
        "$(sed 's|/mnt/data/2|then|g; s|/mnt/data/1|now|g' "$WORK/sandbox" | sha256sum)"
    [ -s "$WORK/sandbox" ] || fail 'nothing differs in the sandbox'
    check_status 125 "$HOLDFAST" run -v v@never -- true
    check_status 2 "$HOLDFAST" run -v v@first:rw -- true
fi
"$HOLDFAST" snapshot restore v first --path d0/s3 --json >"$WORK/folder.json" || fail 'restore of a folder'
diff -r "$WORK/then/d0/s3" "$M/d0/s3" || fail 'the folder is another one'
check_eq 'the rest is left' 'two' "$(cat "$M/changed")"
check_status 0 "$HOLDFAST" undo --run "$(jq -r .run "$WORK/folder.json")" v
"$HOLDFAST" snapshot restore v first --dry-run --json >"$WORK/dry.json" || fail 'dry run'
"$HOLDFAST" snapshot restore v first --json >"$WORK/restore.json" || fail 'restore'
check_eq 'as the dry run told' "$(jq .done "$WORK/dry.json")" "$(jq .done "$WORK/restore.json")"
diff -r --no-dereference "$WORK/then" "$M" || fail 'the restored tree is another one'
check_eq 'mode' 640 "$(stat -c %a "$M/old/f")"
check_status 0 "$HOLDFAST" undo --run "$(jq -r .run "$WORK/restore.json")" v
diff -r --no-dereference "$WORK/now" "$M" || fail 'the undone tree is another one'

# ---- gone ----
check_status 0 "$HOLDFAST" snapshot delete v first
check_status 4 "$HOLDFAST" snapshot show v first
wait_until 30 test ! -e "$manifest" || fail 'the manifest stays'

# ---- by a rule ----
automatic() { "$HOLDFAST" snapshot list v --json | jq -r '.snapshots[] | select(.automatic) | .name'; }
check_status 1 "$HOLDFAST" volume set v --snapshots 'hourly=0'
check_status 1 "$HOLDFAST" snapshot create v auto-mine
check_status 0 "$HOLDFAST" snapshot create v mine
check_status 0 "$HOLDFAST" volume set v --snapshots 'hourly=24,daily=7'
wait_until 60 sh -c "'$HOLDFAST' snapshot list v --json | jq -e '.snapshots | any(.automatic)'" >/dev/null || fail 'none was taken by the rule'
check_contains 'the rule is listed' 'hourly=24,daily=7, the next one' <("$HOLDFAST" snapshot list v)
check_contains 'and shown' 'hourly=24,daily=7, the next one' <("$HOLDFAST" volume show v)
NAME=$(automatic | head -n 1)
check_eq 'its name is its time' 1 "$(grep -cE '^auto-20[0-9]{2}-[0-9]{2}-[0-9]{2}-[0-9]{6}$' <<<"$NAME")"
next=$("$HOLDFAST" volume show v --json | jq -r .next_snapshot)
check_eq 'the next one comes with an hour' 00:00 "$(date -u -d "$next" +%M:%S)"
wait_until 60 test -s "$WORK/bucket/.holdfast/snapshots/v/$NAME.json.zst" || fail 'its manifest is not in the bucket'
api PATCH /v1/volumes/v -d '{"snapshots": "weekly=2"}' >"$WORK/answer"
check_eq 'set over HTTP' weekly=2 "$(jq -r .snapshots "$WORK/answer")"
check_eq 'not refused' 200 "$(api_status)"
while umount "$M" 2>/dev/null; do :; done
gateway_stop
check_status 0 "$HOLDFAST" rebuild --state "$WORK/state2" --store "file://$WORK/bucket"
gateway_start "$WORK/state2" "file://$WORK/bucket"
check_eq 'a rebuild finds the rule' weekly=2 "$("$HOLDFAST" volume show v --json | jq -r .snapshots)"
automatic | grep -qx "$NAME" || fail "and what it took: $NAME, not $(automatic | xargs)"
"$HOLDFAST" snapshot show v mine --json >"$WORK/mine" || fail 'and what a person took'
check_eq 'which is no automatic one' false "$(jq .automatic "$WORK/mine")"
check_status 0 "$HOLDFAST" volume set v --snapshots off
check_eq 'off' null "$("$HOLDFAST" snapshot list v --json | jq .next_snapshot)"
automatic | grep -qx "$NAME" || fail 'what was taken stays'
