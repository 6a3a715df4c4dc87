#!/usr/bin/env bash
# `run`: a sandbox sees its volumes and nothing else of this machine, has no network, ends with its client or its time, and its
# end waits for the bucket. The gateway itself is not root, and mounts work for other users' sandboxes too.
# timeout: 180
. "$(dirname "$0")/../support/lib.sh"
lib_begin run-sandbox
need_fuse
command -v bwrap >/dev/null || skip 'bubblewrap is not installed'

mkdir "$WORK/secret"
echo host >"$WORK/secret/file"
export SECRET_OF_THE_HOST=visible
gateway_start "$WORK/state" "file://$WORK/bucket"
check_status 0 "$HOLDFAST" volume create v
check_status 0 "$HOLDFAST" volume create w
echo hello >"$WORK/in"
check_status 0 "$HOLDFAST" put "$WORK/in" v:/in/file
check_status 0 "$HOLDFAST" put "$WORK/in" w:/other

# ---- the job itself ----
check_status 0 "$HOLDFAST" run -v v -- sh -c 'cat /mnt/data/1/in/file; mkdir /mnt/data/1/out; echo made >/mnt/data/1/out/new'
check_eq 'output passes through' hello "$(cat "$WORK/out")"
check_eq 'the bucket has it at the end' made "$(cat "$WORK/bucket/v/out/new")"
check_status 0 "$HOLDFAST" cat v:/out/new
check_eq 'a second face shows it' made "$(cat "$WORK/out")"
check_status 0 "$HOLDFAST" run -v v -- cat /mnt/data/1/out/new
check_eq 'a second sandbox shows it' made "$(cat "$WORK/out")"
check_eq 'standard input passes' 3 "$(printf 'a\nb\nc\n' | "$HOLDFAST" run -- wc -l)"
check_status 0 "$HOLDFAST" run -v v/in:ro@/srv/input -v w -- sh -c 'cat /srv/input/file /mnt/data/2/other'
check_eq 'a folder at a path of its own, and a second volume' 'hello hello' "$(tr '\n' ' ' <"$WORK/out" | sed 's/ $//')"
check_status 2 "$HOLDFAST" run -v v:ro -- sh -c 'echo x >/mnt/data/1/in/file'
check_eq 'nothing was written through read-only' hello "$(cat "$WORK/bucket/v/in/file")"
check_status 0 "$HOLDFAST" mounts --json
check_eq 'no mount is left' 0 "$(jq '.mounts|length' "$WORK/out")"
check_eq 'no mountpoint is left' '' "$(ls -A "$WORK/state/mnt" 2>/dev/null)"

# ---- what is seen inside ----
"$HOLDFAST" run -v v -- python3 - >"$WORK/seen" 2>&1 <<PY || fail "the look from inside failed: $(cat "$WORK/seen")"
import os, socket, sys
bad = []
top = set(os.listdir("/"))
allowed = {"bin", "sbin", "lib", "lib64", "usr", "etc", "dev", "proc", "tmp", "workspace", "mnt"}
if top - allowed: bad.append("in /: %s" % (top - allowed))
for path in ("$WORK", "$WORK/secret/file", "$WORK/state", "/root", "/home", "/var", "/sys", "/etc/shadow", "/run", "/boot"):
    if os.path.exists(path): bad.append("exists: " + path)
if os.listdir("/mnt/data") != ["1"]: bad.append("in /mnt/data: %s" % os.listdir("/mnt/data"))
for path in ("/tmp", "/workspace"):
    if os.listdir(path): bad.append("not empty: " + path)
    open(path + "/x", "w").close()
if "SECRET_OF_THE_HOST" in os.environ: bad.append("the environment came along")
if set(os.environ) - {"PATH", "HOME", "LANG", "TMPDIR", "HOLDFAST_RUN", "TERM", "PWD", "LC_CTYPE"}:
    bad.append("environment: %s" % set(os.environ))
pids = [p for p in os.listdir("/proc") if p.isdigit()]
if len(pids) > 4: bad.append("processes: %d" % len(pids))
for pid in pids:
    line = open("/proc/%s/cmdline" % pid, "rb").read()
    if b"$WORK" in line and pid != str(os.getpid()) and b"python3" not in line: bad.append("a path of the host in %r" % line)
if "$WORK/state" in open("/proc/self/mountinfo").read(): bad.append("a path of the host in mountinfo")
names = [line.split(":")[0].strip() for line in open("/proc/net/dev") if ":" in line]
if names != ["lo"]: bad.append("network: %s" % names)
for address in (("127.0.0.1", $PORT), ("10.0.0.1", 80), ("1.1.1.1", 53)):
    s = socket.socket(); s.settimeout(1)
    try:
        s.connect(address); bad.append("connected to %s" % (address,))
    except OSError:
        pass
status = dict(line.split(":\t", 1) for line in open("/proc/self/status") if ":\t" in line)
if int(status["CapEff"], 16) or int(status["CapBnd"], 16): bad.append("capabilities")
if status["NoNewPrivs"].strip() != "1": bad.append("new privileges are possible")
if os.getuid() == 0: bad.append("uid 0")
for path in ("/usr/x", "/etc/x", "/bin/x"):
    try:
        open(path, "w"); path.startswith("/etc") or bad.append("wrote " + path)
    except OSError:
        pass
try:
    os.unshare(os.CLONE_NEWUSER) if hasattr(os, "unshare") else None
except OSError:
    pass
print("\n".join(bad) or "nothing")
PY
check_eq 'what a sandbox sees that it should not' nothing "$(tail -n 1 "$WORK/seen")"
check_eq 'network on request' 0 "$("$HOLDFAST" run --net host -- python3 -c "
import socket; s = socket.socket(); s.settimeout(3); print(s.connect_ex(('127.0.0.1', $PORT)))")"

# ---- statuses ----
check_status 5 "$HOLDFAST" run -- sh -c 'exit 5'
check_status 127 "$HOLDFAST" run -- no-such-program
check_status 137 "$HOLDFAST" run -- sh -c 'kill -KILL $$'
check_status 125 "$HOLDFAST" run -v none -- true
check_one_line
check_status 125 "$HOLDFAST" run -v v/none -- true
check_one_line
begin=$(now_ms)
check_status 124 "$HOLDFAST" run -v v --timeout 1 -- sh -c 'echo early >/mnt/data/1/early; sleep 300'
[ $(($(now_ms) - begin)) -lt 30000 ] || fail "the time limit took $(($(now_ms) - begin)) ms"
check_eq 'what a timed-out command wrote is kept' early "$(cat "$WORK/bucket/v/early")"

# ---- a signal to the client ends the sandbox, and the mount goes ----
mark=$((RANDOM + 100000))
"$HOLDFAST" run -v v --timeout 0 -- sh -c "echo begun >/mnt/data/1/begun; sleep $mark" >"$WORK/out" 2>&1 &
pid=$!
wait_until 30 pgrep -f "^sleep $mark" || fail 'the sandbox did not start'
kill -TERM "$pid"
STATUS=0
wait "$pid" || STATUS=$?
check_eq 'status after SIGTERM' 143 "$STATUS"
! pgrep -f "^sleep $mark" >/dev/null || fail 'the sandbox outlives its client'
check_status 0 "$HOLDFAST" mounts --json
check_eq 'no mount is left after a signal' 0 "$(jq '.mounts|length' "$WORK/out")"
check_eq 'what it wrote is kept' begun "$(cat "$WORK/bucket/v/begun")"
"$HOLDFAST" run --timeout 0 -- sleep "$mark" &
disown $!
pid=$!
wait_until 30 pgrep -f "^sleep $mark" || fail 'the sandbox did not start'
kill -KILL "$pid"
wait_until 30 sh -c "! pgrep -f '^sleep $mark'" || fail 'the sandbox outlives a killed client'

# ---- a conflict of the run is told: 3 ----
check_status 0 "$HOLDFAST" put "$WORK/in" v:/contested
STATUS=0
"$HOLDFAST" run -v v -- sh -c '
    cat /mnt/data/1/contested >/dev/null; exec 3>/mnt/data/1/contested; echo mine >&3; echo ready
    until [ -e /mnt/data/1/go ]; do sleep 0.1; done; exec 3>&-' \
    >"$WORK/out" 2>"$WORK/err" &
pid=$!
wait_until 30 grep -q ready "$WORK/out"
echo theirs >"$WORK/bucket/v/contested"
check_status 0 "$HOLDFAST" put "$WORK/in" v:/go
wait "$pid" || STATUS=$?
check_eq 'status of a run with a conflict' 3 "$STATUS"
check_eq 'the other writer keeps the name' theirs "$(cat "$WORK/bucket/v/contested")"

# ---- ten at a time ----
for i in 1 2 3 4 5 6 7 8 9 10; do
    "$HOLDFAST" run -v v -- sh -c "echo $i >/mnt/data/1/parallel-$i" 2>>"$WORK/parallel.err" &
    pids[i]=$!
done
for i in 1 2 3 4 5 6 7 8 9 10; do
    wait "${pids[i]}" || fail "parallel run $i: $(cat "$WORK/parallel.err")"
    check_eq "parallel run $i" "$i" "$(cat "$WORK/bucket/v/parallel-$i" 2>/dev/null)"
done

# ---- no gateway process is root while a mount is served, and a sandbox of another user reads it ----
mkdir "$WORK/m"
check_status 0 "$HOLDFAST" mount v "$WORK/m"
ps -eo user=,pid=,ppid=,args= >"$WORK/ps"
check_eq 'user of the gateway' 0 "$(awk -v p="$GATEWAY_PID" '$2==p && $1=="root"' "$WORK/ps" | wc -l)"
check_eq 'root children of the gateway but the mounter' 0 \
    "$(awk -v p="$GATEWAY_PID" '$3==p && $1=="root" && !/holdfast-mounter/' "$WORK/ps" | wc -l)"
check_eq 'another user through a sandbox of its own' hello "$(setpriv --reuid 65534 --regid 65534 --clear-groups bwrap \
    --unshare-all --ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/lib /lib --symlink usr/lib64 /lib64 \
    --bind "$WORK/m" /mnt -- cat /mnt/in/file)"
check_status 0 "$HOLDFAST" umount "$WORK/m"

# ---- the gateway dies under a run: the sandbox lives on, and its client does not say that all is well ----
"$HOLDFAST" run -v v -- sh -c 'echo x >/mnt/data/1/before; echo ready; sleep 3; echo x >/mnt/data/1/after; true' \
    >"$WORK/out" 2>"$WORK/err" &
pid=$!
wait_until 30 grep -q ready "$WORK/out" || fail 'the sandbox did not start'
gateway_kill
gateway_start "$WORK/state" "file://$WORK/bucket"
STATUS=0
wait "$pid" || STATUS=$?
if [ "$STATUS" = 0 ]; then
    check_eq 'a run that ended well over a restart' x "$(cat "$WORK/bucket/v/after" 2>/dev/null)"
else
    check_eq 'status of a run whose gateway died' 7 "$STATUS"
fi
wait_until 30 test -e "$WORK/bucket/v/before" || fail 'what was closed before the death is not in the bucket'
