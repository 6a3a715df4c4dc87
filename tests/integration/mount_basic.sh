#!/usr/bin/env bash
# Ordinary programs work on a mount, and after the barrier the bucket holds the same bytes as plain objects (INV-5).
# timeout: 180
. "$(dirname "$0")/../support/lib.sh"
lib_begin mount-basic
need_fuse

gateway_start "$WORK/state" "file://$WORK/bucket"
check_status 0 "$HOLDFAST" volume create v
mkdir "$WORK/m"
M=$WORK/m
check_status 0 "$HOLDFAST" mount v "$M"
check_eq 'the path is printed' "$M" "$(cat "$WORK/out")"
defer "'$HOLDFAST' umount '$M' --force 2>/dev/null"
umask 022

# ---- trees ----
mkdir -p "$WORK/tree/a/b c/d" "$WORK/tree/empty"
for i in $(seq 60); do head -c $((i * 997)) /dev/urandom >"$WORK/tree/a/file$i"; done
printf 'x' >"$WORK/tree/a/b c/d/ü name with 'quotes'"
: >"$WORK/tree/a/nothing"
ln -s ../a/file1 "$WORK/tree/a/link"
ln -s /nowhere "$WORK/tree/dangling"
chmod 755 "$WORK/tree/a/file2"
touch -d '2001-02-03 04:05:06.123456789' "$WORK/tree/a/file3"

check_status 0 cp -a "$WORK/tree" "$M/copy"
check_status 0 diff -r --no-dereference "$WORK/tree" "$M/copy"
check_eq 'mode and time of a copy' "$(stat -c '%a %y' "$WORK/tree/a/file2" "$WORK/tree/a/file3")" \
    "$(stat -c '%a %y' "$M/copy/a/file2" "$M/copy/a/file3")"
check_status 0 tar -C "$WORK" -cf "$M/t.tar" tree
check_status 0 tar -C "$M" -xf "$M/t.tar"
check_status 0 diff -r --no-dereference "$WORK/tree" "$M/tree"
check_status 0 mv "$M/tree" "$M/moved"
check_status 0 diff -r --no-dereference "$WORK/tree" "$M/moved"
check_status 0 mv "$M/moved/a/b c" "$M/copy/bc"
check_status 0 mv -T "$M/moved/empty" "$M/copy/empty"
check_status 0 rm -r "$M/moved"
[ ! -e "$M/moved" ] || fail 'a removed tree is still there'
check_eq 'names found' "$(cd "$WORK/tree/a" && find . -type f | wc -l)" \
    "$(find "$M/copy/a" "$M/copy/bc" -type f | wc -l | awk '{print $1 - 1}')"

# ---- single files ----
printf 'one\ntwo\n' >"$M/f"
echo three >>"$M/f"
sed -i s/two/2/ "$M/f"
for i in $(seq 100); do
    printf '12345678' >"$M/append"
    printf '9' >>"$M/append"
    [ "$(stat -c %s "$M/append")" = 9 ] || { fail "append number $i hit the beginning" && break; }
done
rm "$M/append"
check_eq 'sed -i and append' 'one 2 three' "$(tr '\n' ' ' <"$M/f" | sed 's/ $//')"
check_status 0 dd if=/dev/urandom of="$WORK/big" bs=1M count=20 status=none
check_status 0 dd if="$WORK/big" of="$M/big" bs=300000 conv=fsync status=none
check_same 'a big file' "$WORK/big" "$M/big"
check_status 0 truncate -s 1234567 "$M/big" "$WORK/big"
check_status 0 truncate -s 2000000 "$M/big" "$WORK/big"
check_status 0 dd if=/dev/urandom of="$WORK/part" bs=4096 count=1 status=none
check_status 0 dd if="$WORK/part" of="$M/big" bs=4096 seek=7 conv=notrunc status=none
check_status 0 dd if="$WORK/part" of="$WORK/big" bs=4096 seek=7 conv=notrunc status=none
check_same 'cut, grown and patched' "$WORK/big" "$M/big"
check_status 0 chmod 640 "$M/f"
check_status 0 touch -d '1999-12-31 23:59:59' "$M/f"
check_eq 'mode and time' '640 946684799' "$(stat -c '%a %Y' "$M/f")"
check_status 0 mkfifo "$M/fifo"
check_eq "a fifo" "fifo" "$(stat -c %F "$M/fifo")"
check_status 0 rm "$M/fifo"
check_status 1 mkdir "$M/.holdfast"
check_eq 'the version of a file' yes "$(getfattr --only-values -n user.holdfast.version "$M/f" 2>/dev/null | grep -q . && echo yes)"
check_eq 'the key of a file' v/f "$(getfattr --only-values -n user.holdfast.key "$M/f" 2>/dev/null)"
exec 7<"$M/f"
rm "$M/f"
check_eq 'an open file without a name' 'one' "$(head -n 1 <&7)"
exec 7<&-

# ---- programs that are hard to please ----
git init -q "$M/repo"
cp -r "$WORK/tree/a" "$M/repo/"
git -C "$M/repo" config user.email a@example.com
git -C "$M/repo" config user.name a
check_status 0 git -C "$M/repo" add -A
check_status 0 git -C "$M/repo" commit -q -m one
check_status 0 git -C "$M/repo" gc -q
check_status 0 git -C "$M/repo" fsck --strict
check_status 0 git clone -q "$M/repo" "$M/clone"
check_eq 'a clean work tree' '' "$(git -C "$M/clone" status --porcelain)"
cat >"$WORK/db.py" <<'PY'
import sqlite3, sys
for mode in ('wal', 'delete'):
    c = sqlite3.connect(sys.argv[1] + '.' + mode)
    c.execute('pragma journal_mode=' + mode)
    c.execute('create table t(a)')
    for i in range(100):
        c.execute('insert into t values(?)', (i,))
        c.commit()
    print(mode, *c.execute('pragma integrity_check').fetchone(), *c.execute('select sum(a) from t').fetchone())
    c.close()
PY
check_status 0 python3 "$WORK/db.py" "$M/db"
check_eq 'SQLite' 'wal ok 4950 delete ok 4950' "$(tr '\n' ' ' <"$WORK/out" | sed 's/ $//')"
check_status 0 python3 -c '
import mmap, os, sys
with open(sys.argv[1], "w+b") as f:
    f.truncate(10000)
    m = mmap.mmap(f.fileno(), 10000)
    m[5000:5005] = b"hello"
    m.flush()
    m.close()
assert open(sys.argv[1], "rb").read()[4999:5006] == b"\0hello\0"' "$M/mapped"

# ---- two processes at once ----
for p in 1 2 3 4; do
    (for i in $(seq 25); do
        mkdir -p "$M/many/$p" && echo "$p $i" >"$M/many/$p/tmp" && mv "$M/many/$p/tmp" "$M/many/$p/$i"
    done) &
    PIDS+=($!)
done
wait "${PIDS[@]}"
check_eq 'files of four writers' 100 "$(find "$M/many" -type f | wc -l)"
check_eq 'their contents' 100 "$(cat "$M"/many/*/* | sort -u | wc -l)"

# ---- the bucket ----
check_status 0 "$HOLDFAST" flush v --wait
find "$M" -type f -printf '%P\n' | sort >"$WORK/mounted"
wrong=0
while read -r name; do
    cmp -s "$M/$name" "$WORK/bucket/v/$name" || { wrong=$((wrong + 1)) && note "differs: $name"; }
done <"$WORK/mounted"
check_eq 'files that differ in the bucket' 0 "$wrong"
find "$WORK/bucket/v" -type f -size +0 -printf '%P\n' | sort >"$WORK/stored"
find "$M" \( -type f -size +0 -o -type l \) -printf '%P\n' | sort >"$WORK/shown"
check_eq 'objects that no file stands for' '' \
    "$(comm -13 "$WORK/shown" "$WORK/stored")"

# ---- away and back ----
check_status 0 "$HOLDFAST" umount "$M"
check_eq 'nothing mounted' '' "$(findmnt -n -o TARGET "$M")"
check_status 0 rmdir "$M"
mkdir "$M"
check_status 0 "$HOLDFAST" mount v/copy "$M" --read-only
check_status 0 diff -r --no-dereference "$WORK/tree/a/file9" "$M/a/file9"
check_status 1 touch "$M/new"
check_status 1 bash -c "echo x >>'$M/a/file9'"
check_status 0 "$HOLDFAST" umount "$M"
