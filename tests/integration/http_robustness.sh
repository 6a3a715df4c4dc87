#!/usr/bin/env bash
# Hostile heads on raw sockets are refused and the connection closed; nobody holds a place for long without using it.
# timeout: 180
. "$(dirname "$0")/../support/lib.sh"
lib_begin http-robustness

gateway_start "$WORK/state" "file://$WORK/bucket"
check_status 0 "$HOLDFAST" volume create v
python3 "$(dirname "$0")/http_robustness.py" 127.0.0.1 "$PORT" "$(gateway_token)" --slow || fail 'see above'
gateway_ready || fail 'the gateway does not answer any more'
check_eq 'volumes afterwards' 200 "$(api GET /v1/volumes >/dev/null; api_status)"
gateway_stop

# Few descriptors, many clients: those beyond the limit wait, the gateway does not spin, and what it does have keeps working.
port=$(free_port)
(
    ulimit -n 80
    exec "$HOLDFAST" serve --state "$WORK/state" --store "file://$WORK/bucket" --listen "127.0.0.1:$port"
) >>"$WORK/gateway.log" 2>&1 &
pid=$!
defer "stop_pid $pid"
wait_until 20 curl -s -f -o /dev/null "http://127.0.0.1:$port/readyz" || fail_now 'no start with 80 descriptors'
python3 - "$port" "$pid" "$HOLDFAST" <<'PY' || fail 'few descriptors: see above'
import socket, subprocess, sys, time
port, pid, holdfast = int(sys.argv[1]), sys.argv[2], sys.argv[3]
def cpu():
    fields = open("/proc/%s/stat" % pid).read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100
clients = []
for _ in range(200):
    try:
        clients.append(socket.create_connection(("127.0.0.1", port), timeout=0.2))
    except OSError:
        break
before = cpu()
time.sleep(3)
used = cpu() - before
list_rc = subprocess.run([holdfast, "ls", "v"], stdout=subprocess.DEVNULL, timeout=60).returncode
for c in clients: c.close()
time.sleep(1)
s = socket.create_connection(("127.0.0.1", port), timeout=20)
s.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
after = s.recv(100)
print("%d clients, %.2f s of CPU in 3 s, ls ended with %d, afterwards %r" % (len(clients), used, list_rc, after[:15]))
sys.exit(not (len(clients) > 64 and used < 0.5 and list_rc == 0 and after.startswith(b"HTTP/1.1 200")))
PY
