#!/usr/bin/env bash
# Locks of programs hold over two mounts of one volume, and behave as on the disk: ranges (fcntl), open files (OFD), whole files
# (flock), waiting, interrupts, the death of a holder; SQLite writes one database through two mounts at the same time.
# timeout: 180
. "$(dirname "$0")/../support/lib.sh"
lib_begin locks
need_fuse

gateway_start "$WORK/state" "file://$WORK/bucket" --list-ttl 10m
check_status 0 "$HOLDFAST" volume create v
mkdir "$WORK/a" "$WORK/b" "$WORK/disk"
A=$WORK/a B=$WORK/b
for m in "$A" "$B"; do
    check_status 0 "$HOLDFAST" mount v "$m"
    defer "'$HOLDFAST' umount '$m' --force 2>/dev/null"
done

# ---- the same as on the disk (B158) ----
here=$(dirname "$0")
timeout 120 python3 "$here/locks.py" "$WORK/disk" "$WORK/disk" >"$WORK/wanted" || fail_now 'the script fails on the disk'
timeout 120 python3 "$here/locks.py" "$A" "$B" >"$WORK/seen" || fail 'the script fails on two mounts'
diff -u "$WORK/wanted" "$WORK/seen" >&2 || fail 'two mounts lock otherwise than the disk'
mkdir "$A/single"
timeout 120 python3 "$here/locks.py" "$A/single" "$A/single" >"$WORK/seen" || fail 'the script fails on one mount'
diff -u "$WORK/wanted" "$WORK/seen" >&2 || fail 'one mount locks otherwise than the disk'
note "$(wc -l <"$WORK/wanted") findings, the same on the disk, on two mounts and on one"
printf 'x' >"$A/f"
flock "$A/f" sh -c "flock -n '$B/f' true" && fail 'flock(1) got what the other mount holds'
wait_until 5 flock -n "$B/f" true || fail 'a lock whose holder has ended is not free'

# ---- what waits takes no thread, and is no hindrance: more wait than there are workers ----
exec 8>>"$A/f"
flock 8
waiting=()
for _ in $(seq 60); do
    flock "$B/f" true 8>&- &
    waiting+=($!)
done
sleep 1
began=$(now_ms)
check_status 0 cp "$A/f" "$B/g"
check_status 0 ls "$B"
[ $(($(now_ms) - began)) -lt 5000 ] || fail 'locks that wait hold others up'
exec 8>&-
for pid in "${waiting[@]}"; do wait "$pid" || fail 'one who waited did not get the lock'; done

# ---- SQLite, two mounts, one database (B122, B123, B124) ----
cat >"$WORK/sql.py" <<'PY'
import sqlite3, sys
path, who, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
db = sqlite3.connect(path, timeout=60, isolation_level=None)
for i in range(rounds):
    db.execute('BEGIN IMMEDIATE')
    n, = db.execute('SELECT coalesce(max(n), 0) FROM t').fetchone()
    db.execute('INSERT INTO t VALUES (?, ?, ?)', (n + 1, who, 'x' * (i % 700)))
    db.execute('COMMIT')
PY
python3 -c "import sqlite3, sys
db = sqlite3.connect(sys.argv[1]); db.execute('CREATE TABLE t (n INTEGER PRIMARY KEY, who TEXT, fill TEXT)'); db.commit()" "$A/db"
timeout 120 python3 "$WORK/sql.py" "$A/db" a 60 &
first=$!
timeout 120 python3 "$WORK/sql.py" "$B/db" b 60 || fail 'SQLite through the second mount'
wait "$first" || fail 'SQLite through the first mount'
for m in "$A" "$B"; do
    check_eq 'integrity, rows, numbers' 'ok 120 120' "$(python3 -c "import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
print(db.execute('PRAGMA integrity_check').fetchone()[0], *db.execute('SELECT count(*), max(n) FROM t').fetchone())" "$m/db")"
done

# ---- kill -9 of the one who is writing, again and again: the other rolls back what it left ----
for i in 1 2 3 4 5 6; do
    python3 "$WORK/sql.py" "$A/db" a 100000 &
    pid=$!
    sleep "0.$i"
    kill -KILL $pid
    wait $pid 2>/dev/null
    timeout 60 python3 "$WORK/sql.py" "$B/db" b 3 || fail "SQLite after the death of a writer ($i)"
    check_eq 'integrity after a death' ok "$(python3 -c "import sqlite3, sys
print(sqlite3.connect(sys.argv[1]).execute('PRAGMA integrity_check').fetchone()[0])" "$B/db")"
done

# ---- WAL in one mount ----
check_eq 'WAL' 'wal ok' "$(python3 -c "import sqlite3, sys
db = sqlite3.connect(sys.argv[1]); mode = db.execute('PRAGMA journal_mode=wal').fetchone()[0]
for i in range(50): db.execute('INSERT INTO t (who) VALUES (1)'); db.commit()
print(mode, db.execute('PRAGMA integrity_check').fetchone()[0])" "$A/db")"

# ---- a mount that goes gives its locks back ----
mkdir "$WORK/c"
check_status 0 "$HOLDFAST" mount v "$WORK/c"
flock --no-fork "$WORK/c/f" sleep 60 &
holder=$!
defer stop_pid "$holder"
wait_until 5 sh -c "! flock -n '$B/f' true" || fail 'the third mount does not lock'
check_status 0 "$HOLDFAST" umount "$WORK/c" --force
wait_until 20 flock -n "$B/f" true || fail 'a mount that is gone still holds its lock'
