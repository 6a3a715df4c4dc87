#!/usr/bin/env bash
# Random operations of many processes, each done in a mount and on the local disk: no difference in results, errors, bytes,
# attributes or times; then the bucket holds what the mount shows (INV-5), and so does the mount after a restart.
# TWIN_SECONDS, TWIN_SEED and TWIN_GROUPS choose another run, TWIN_WITHOUT leaves operations out, TWIN_LOG=N prints more of
# them; HOLDFAST_TEST_LONG=1: an hour.
# timeout: 180
# long-timeout: 5400
. "$(dirname "$0")/../support/lib.sh"
lib_begin mount-twin
need_fuse

# What a mount refuses today.
NOT_SERVED=
seconds=12
if [ "${HOLDFAST_TEST_LONG:-0}" = 1 ]; then seconds=3600; fi
seconds=${TWIN_SECONDS:-$seconds}
seed=${TWIN_SEED:-$((RANDOM * 16))}
gateway_start "$WORK/state" "file://$WORK/bucket"
check_status 0 "$HOLDFAST" volume create v
mkdir "$WORK/m" "$WORK/disk"
check_status 0 "$HOLDFAST" mount v "$WORK/m"
defer "'$HOLDFAST' umount '$WORK/m' --force 2>/dev/null"

python3 "$LIB_ROOT/tests/integration/mount_twin.py" "$WORK/m" "$WORK/disk" --seed "$seed" --seconds "$seconds" \
    --groups "${TWIN_GROUPS:-3}" --log "${TWIN_LOG:-60}" --without "${TWIN_WITHOUT-$NOT_SERVED}" >"$WORK/twin" 2>&1 ||
    fail "the mount is not like the disk: $(cat "$WORK/twin")"
note "$(grep '^group' "$WORK/twin")"

same_tree() { # WHAT
    (cd "$WORK/disk" && find . -type f -print0 | LC_ALL=C sort -z | xargs -0 -r sha256sum) >"$WORK/wanted"
    (cd "$WORK/m" && find . -type f -print0 | LC_ALL=C sort -z | xargs -0 -r sha256sum) >"$WORK/seen"
    check_same "$1" "$WORK/wanted" "$WORK/seen"
}
check_status 0 "$HOLDFAST" flush v --wait
same_tree 'the mount and the disk'
python3 - "$WORK/m" "$WORK/bucket/v" <<'PY' || fail "the bucket differs from the mount (seed $seed)"
import filecmp, os, sys
mount, bucket = (os.fsencode(arg) for arg in sys.argv[1:])
bad = 0
for top, _, names in os.walk(mount):
    for name in names:
        path = os.path.join(top, name)
        if os.path.islink(path) or len(name) > 200:
            continue  # the file store gives long names another form
        folder = os.path.join(bucket, os.path.relpath(top, mount))
        there = os.path.join(folder, name)
        if not os.path.isfile(there):
            there = os.path.join(folder, b'.hf~o~' + name)  # where a folder of this name was
        if not os.path.exists(there) or not filecmp.cmp(path, there, shallow=False):
            print('other bytes, or none, at', there)
            bad = 1
sys.exit(bad)
PY
check_status 0 "$HOLDFAST" umount "$WORK/m"
gateway_stop
gateway_start "$WORK/state" "file://$WORK/bucket"
check_status 0 "$HOLDFAST" mount v "$WORK/m"
same_tree 'the mount after a restart and the disk'
check_status 0 "$HOLDFAST" umount "$WORK/m"
