#!/usr/bin/env bash
# Mounts come, go and come back: default paths, bad mountpoints, busy ones, a killed gateway, a mount that somebody else took
# away. An unmounted mountpoint takes no writes (INV-11), and no gateway process runs as root.
# timeout: 180
. "$(dirname "$0")/../support/lib.sh"
lib_begin mount-life
need_fuse

wanted() { # PATH: beneath or beside the volume nothing may be written
    if sh -c "echo x >'$1/beside'" 2>/dev/null; then fail "'$1' takes writes although it is not mounted"; fi
}
is_mounted() { findmnt -n -t fuse.holdfast "$1" >/dev/null; }

gateway_start "$WORK/state" "file://$WORK/bucket"
check_status 0 "$HOLDFAST" volume create v

# ---- default paths ----
check_status 0 "$HOLDFAST" mount v
ONE=$(cat "$WORK/out")
check_status 0 "$HOLDFAST" mount v
TWO=$(cat "$WORK/out")
[ "$ONE" != "$TWO" ] || fail 'two mounts at one path'
echo hello >"$ONE/f"
check_eq 'the second mount' hello "$(cat "$TWO/f")"
echo changed >"$TWO/f"
wait_until 20 grep -q changed "$ONE/f" || fail 'a change is not seen through the other mount'
check_status 0 "$HOLDFAST" umount "$TWO"
[ ! -e "$TWO" ] || fail "'$TWO' is left behind"

# ---- bad mountpoints: one line, the right status, nothing left ----
mkdir "$WORK/full" "$WORK/m"
touch "$WORK/file" "$WORK/full/file"
check_status 1 "$HOLDFAST" mount v "$WORK/file"
check_one_line
check_status 1 "$HOLDFAST" mount v "$WORK/full"
check_one_line
check_status 4 "$HOLDFAST" mount v "$WORK/none"
check_one_line
check_status 1 "$HOLDFAST" mount v "$ONE"
check_one_line
check_status 4 "$HOLDFAST" mount nothing "$WORK/m"
check_one_line
check_status 4 "$HOLDFAST" mount v/nothing "$WORK/m"
check_one_line
check_eq 'mounts left' 1 "$("$HOLDFAST" mounts --json | jq '[.. | objects | select(has("path"))] | length')"

# ---- busy ----
check_status 0 "$HOLDFAST" mount v "$WORK/m"
(exec sleep 300) 0<"$WORK/m/f" &
USER_PID=$!
defer "stop_pid $USER_PID"
wait_until 20 test "/proc/$USER_PID/fd/0" -ef "$WORK/m/f"
check_status 1 "$HOLDFAST" umount "$WORK/m"
check_contains 'who uses it' "$USER_PID" "$WORK/err"
is_mounted "$WORK/m" || fail 'a busy mount went away'
stop_pid "$USER_PID"

# ---- who runs as what ----
check_eq 'gateway processes of root' '' "$(ps -o user=,args= -p "$GATEWAY_PID" --ppid "$GATEWAY_PID" | grep '^root' | grep -v holdfast-mounter)"
MOUNTER=$(pgrep -P "$GATEWAY_PID" -f holdfast-mounter)
check_eq 'capabilities of the mounter' 'CapEff: CapPrm: NoNewPrivs:1 Seccomp:2' \
    "$(awk '/^Cap(Prm|Eff)/{print $1, ($2 == "00000000002c0004" ? "" : $2)} /^(NoNewPrivs|Seccomp):/{print $1 $2}' \
        "/proc/$MOUNTER/status" | sed 's/ *$//' | sort | tr '\n' ' ' | sed 's/ $//')"

# ---- killed: the names go at once, nothing is written beside, the next start mounts again ----
echo kept >"$WORK/m/kept"
# What the kernel has by itself it goes on reading: the local file of a writer whose close is under way, and its own cache.
check_status 0 "$HOLDFAST" flush --timeout 20
exec 8<"$WORK/m/kept"
dd if="$WORK/m/kept" iflag=nocache count=0 status=none
gateway_kill
wait_until 20 sh -c "! findmnt -n -t fuse.holdfast '$WORK/m'" || fail 'the mounter leaves a dead mount'
wanted "$WORK/m"
wanted "$ONE"
if timeout 5 head -c 1 <&8 >/dev/null 2>&1; then fail 'an open file of a dead mount is still read'; fi
exec 8<&-
gateway_start "$WORK/state" "file://$WORK/bucket"
is_mounted "$WORK/m" || fail 'not mounted again'
is_mounted "$ONE" || fail 'not mounted again at the default path'
check_eq 'written before the kill' kept "$(cat "$WORK/m/kept")"

# ---- taken away by somebody else ----
umount "$WORK/m"
wanted "$WORK/m"
wait_until 20 sh -c "'$HOLDFAST' mounts | grep -q failed" || fail 'a mount that was taken away is not told'
wanted "$WORK/m"
check_status 0 "$HOLDFAST" umount "$WORK/m"
echo mine >"$WORK/m/mine" || fail 'the mountpoint is not given back'
rm "$WORK/m/mine"

# ---- an orderly end keeps what is to come back ----
gateway_stop
wanted "$ONE"
gateway_start "$WORK/state" "file://$WORK/bucket"
is_mounted "$ONE" || fail 'not mounted again after an orderly end'

# ---- gateway and mounter killed together: dead mounts stay behind and are cleared by the next start ----
MOUNTER=$(pgrep -P "$GATEWAY_PID" -f holdfast-mounter)
check_status 0 "$HOLDFAST" mount v "$WORK/m"
kill -KILL "$MOUNTER"
gateway_kill
if stat "$ONE/f" >/dev/null 2>&1; then fail 'a dead mount answers'; fi
gateway_start "$WORK/state" "file://$WORK/bucket"
check_eq 'served again at the default path' changed "$(cat "$ONE/f")"
check_eq 'served again' changed "$(cat "$WORK/m/f")"
check_eq 'mounts of ours at one path' 1 "$(findmnt -n -t fuse.holdfast -o TARGET | grep -c "^$WORK/m\$")"
check_status 0 "$HOLDFAST" umount "$WORK/m"

# ---- force ----
(exec sleep 300) 0<"$ONE/f" &
USER_PID=$!
defer "stop_pid $USER_PID"
wait_until 20 test "/proc/$USER_PID/fd/0" -ef "$ONE/f"
check_status 0 "$HOLDFAST" umount "$ONE" --force
[ ! -e "$ONE" ] || fail "'$ONE' is left behind"
