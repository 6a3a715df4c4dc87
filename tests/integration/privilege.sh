#!/usr/bin/env bash
# Who runs as whom while mounts work: the gateway and its launcher never as root, the mounter alone with its few capabilities;
# a bubblewrap sandbox of a third uid, without capability, /dev/fuse or network, reads and writes the volume.
# timeout: 90
. "$(dirname "$0")/../support/lib.sh"
lib_begin privilege
need_fuse
UID_OF_SANDBOX=54321

gateway_start "$WORK/state" "file://$WORK/bucket"
check_status 0 "$HOLDFAST" volume create v
mkdir "$WORK/mnt"
check_status 0 "$HOLDFAST" mount v "$WORK/mnt"
defer "'$HOLDFAST' umount '$WORK/mnt' --force"
echo 'from outside' >"$WORK/mnt/given"

# ---- the processes of this gateway ----
family() { # PID: it and all below it
    local child
    echo "$1"
    for child in $(pgrep -P "$1"); do family "$child"; done
}
gateway_is_up() { "$HOLDFAST" status >/dev/null; }
wait_until 30 gateway_is_up || fail_now 'the gateway does not answer'
seen=0
for pid in $(family "$GATEWAY_PID"); do
    [ -d "/proc/$pid" ] || continue
    command=$(tr '\0' ' ' <"/proc/$pid/cmdline")
    uids=$(awk '/^Uid:/ { print $2, $3, $4, $5 }' "/proc/$pid/status")
    caps=$(awk '/^CapEff:/ { print $2 }' "/proc/$pid/status")
    note "pid $pid uids $uids capabilities $caps: ${command:0:60}"
    case $command in
    *holdfast-mounter*)
        case $caps in 000001ffffffffff | 000001fffeffffff) fail 'the mounter keeps every capability' ;; esac
        ;;
    *)
        seen=$((seen + 1))
        case " $uids " in *' 0 '*) fail "a process of the gateway runs as root: $command" ;; esac
        check_eq "capabilities of pid $pid" 0000000000000000 "$caps"
        ;;
    esac
done
[ "$seen" -ge 2 ] || fail "wanted the gateway and its launcher, saw $seen processes"

# ---- a sandbox of another uid ----
sandbox() { # SCRIPT
    setpriv --reuid "$UID_OF_SANDBOX" --regid "$UID_OF_SANDBOX" --clear-groups --inh-caps=-all --bounding-set=-all \
        bwrap --unshare-all --die-with-parent --ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/lib /lib \
        --symlink usr/lib64 /lib64 --proc /proc --dev /dev --tmpfs /tmp --bind "$WORK/mnt" /mnt/data/1 \
        --chdir / /bin/sh -c "$1"
}
check_eq 'what the sandbox reads' 'from outside' "$(sandbox 'cat /mnt/data/1/given')"
# shellcheck disable=SC2016 # the sandbox's shell expands it
sandbox 'echo "uid $(id -u)" >/mnt/data/1/written && mkdir /mnt/data/1/dir && mv /mnt/data/1/written /mnt/data/1/dir/' ||
    fail 'the sandbox cannot write'
check_eq 'what the sandbox wrote' "uid $UID_OF_SANDBOX" "$(cat "$WORK/mnt/dir/written")"
check_eq 'the owner of what it wrote' "$UID_OF_SANDBOX" "$(stat -c %u "$WORK/mnt/dir/written")"
check_eq 'capabilities inside' 0000000000000000 "$(sandbox 'sed -n "s/^CapEff:[[:space:]]*//p" /proc/self/status')"
sandbox 'test ! -e /dev/fuse' || fail 'the sandbox has /dev/fuse'
sandbox 'echo no >/mnt/data/1/given' 2>/dev/null && fail "the sandbox wrote another one's file with mode 0644"
check_status 0 "$HOLDFAST" flush v --wait
check_same 'in the bucket' "$WORK/mnt/dir/written" "$WORK/bucket/v/dir/written"
check_status 0 "$HOLDFAST" umount "$WORK/mnt"
