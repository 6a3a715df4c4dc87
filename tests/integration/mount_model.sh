#!/usr/bin/env bash
# Random operations of several processes on a mount, each compared with a model in memory; then the bucket holds what the mount
# shows (INV-5). MODEL_SECONDS and MODEL_SEED choose another run.
# timeout: 180
. "$(dirname "$0")/../support/lib.sh"
lib_begin mount-model
need_fuse

seconds=${MODEL_SECONDS:-10}
seed=${MODEL_SEED:-$((RANDOM * 3))}
gateway_start "$WORK/state" "file://$WORK/bucket"
check_status 0 "$HOLDFAST" volume create v
mkdir "$WORK/m"
check_status 0 "$HOLDFAST" mount v "$WORK/m"
defer "'$HOLDFAST' umount '$WORK/m' --force 2>/dev/null"

pids=()
for i in 0 1 2; do
    python3 "$LIB_ROOT/tests/integration/mount_model.py" $((seed + i)) "$WORK/m" "$seconds" >"$WORK/model$i" 2>&1 &
    pids+=($!)
done
for i in 0 1 2; do
    wait "${pids[i]}" || fail "the mount differs from the model: $(tail -n 3 "$WORK/model$i")"
    note "$(tail -n 1 "$WORK/model$i")"
done

check_status 0 "$HOLDFAST" flush v --wait
find "$WORK/m" -type f -printf '%P\n' | sort >"$WORK/shown"
while read -r name; do
    cmp -s "$WORK/m/$name" "$WORK/bucket/v/$name" || fail "the bucket has other bytes at '$name' (seed $seed)"
done <"$WORK/shown"
check_eq 'objects that no file stands for' '' \
    "$(find "$WORK/bucket/v" -type f -printf '%P\n' | sort | comm -13 "$WORK/shown" - | grep -v '\.hf~o~')"
check_status 0 "$HOLDFAST" umount "$WORK/m"
