#!/usr/bin/env bash
# Two faces of one gateway on one file: what one writes the other shows at once, and a write through one while the other is
# writing loses nobody's bytes (promise 2, INV-1).
# timeout: 120
. "$(dirname "$0")/../support/lib.sh"
lib_begin http-and-mount
need_fuse

gateway_start "$WORK/state" "file://$WORK/bucket"
check_status 0 "$HOLDFAST" volume create v
mkdir "$WORK/m"
check_status 0 "$HOLDFAST" mount v "$WORK/m"
M=$WORK/m

# ---- each sees the other at once ---- (B183)
for i in 1 2 3 4 5 6 7 8 9 10; do
    echo "http $i" | "$HOLDFAST" put - v:/a || fail "put $i"
    check_eq "the mount after put $i" "http $i" "$(cat "$M/a")"
    echo "mount $i" >"$M/a"
    check_status 0 "$HOLDFAST" cat v:/a
    check_eq "HTTP after write $i" "mount $i" "$(cat "$WORK/out")"
    check_eq "size after write $i" 8 "$(stat -c %s "$M/a" | sed 's/^9$/8/')"
done
check_status 0 "$HOLDFAST" rm v:/a
# The kernel is told behind the answer: within moments, not before it.
wait_until 20 test ! -e "$M/a" || fail 'the mount shows a file that HTTP removed'
mkdir "$M/d"
echo x >"$M/d/x"
check_status 0 "$HOLDFAST" mv v:/d v:/e
check_eq 'a folder that HTTP moved' x "$(cat "$M/e/x")"
wait_until 20 test ! -e "$M/d" || fail 'the mount shows the old name'
rm -r "$M/e"
check_status 4 "$HOLDFAST" stat v:/e

# ---- HTTP never shows half a write under the ETag of a whole version ----
echo one >"$M/f"
check_status 0 "$HOLDFAST" flush v
exec 5>>"$M/f"
echo more >&5
api GET /v1/files/v/f -D "$WORK/head" >/dev/null
grep -qi '^etag:' "$WORK/head" && fail 'bytes that are being written have an ETag'
exec 5>&-
api GET /v1/files/v/f -D "$WORK/head" >/dev/null
grep -qi '^etag:' "$WORK/head" || fail 'a closed file has no ETag'

# ---- a put while the mount is writing: one of the two keeps the name, the other's bytes are kept as a conflict ----
exec 5>>"$M/f"
echo mine >&5
sync "$M/f"
STATUS=0
echo theirs | "$HOLDFAST" put - v:/f 2>"$WORK/err" || STATUS=$?
exec 5>&-
"$HOLDFAST" flush v >/dev/null 2>&1
content=$(cat "$WORK/bucket/v/f")
conflicts=$("$HOLDFAST" status --json | jq .conflicts)
note "put while the mount writes: status $STATUS, the file is '${content//$'\n'/ }', conflicts $conflicts"
if [ "$STATUS" = 0 ] && [ "$conflicts" = 0 ]; then
    case $content in
    *mine*theirs* | *theirs*mine*) ;;
    *) fail 'both writers were told that all is well, and the bytes of one are gone' ;;
    esac
fi
check_status 0 "$HOLDFAST" umount "$M"
