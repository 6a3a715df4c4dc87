#!/usr/bin/env bash
# Extended attributes: as tools use them and as ext4 answers, kept over a restart, carried to the bucket, read by another gateway.
# timeout: 180
. "$(dirname "$0")/../support/lib.sh"
lib_begin xattrs
need_fuse
for tool in setfattr getfattr rsync tar; do
    command -v "$tool" >/dev/null || skip "no program $tool (Debian packages attr, rsync, tar)"
done

gateway_start "$WORK/state" "file://$WORK/bucket"
check_status 0 "$HOLDFAST" volume create v
mkdir "$WORK/m" "$WORK/plain"
M=$WORK/m
P=$WORK/plain # of the machine's own file system: what is right
check_status 0 "$HOLDFAST" mount v "$M"
defer "'$HOLDFAST' umount '$M' --force 2>/dev/null"
# The reference has to know them itself.
touch "$P/probe" && setfattr -n user.probe -v 1 "$P/probe" 2>/dev/null || P=
[ -n "$P" ] || skip "the file system of $WORK has no extended attributes to compare with"

# ---- the calls, answered as there ----
cat >"$WORK/calls.py" <<'PY'
import errno, os, sys
os.chdir(sys.argv[1])
open('f', 'w').write('bytes')
os.mkdir('d')
os.symlink('f', 'l')
def say(what, fn, *args, **kw):
    try:
        answer = fn(*args, **kw)
        print(what, sorted(answer) if isinstance(answer, list) else answer)
    except OSError as e:
        print(what, errno.errorcode[e.errno])
for path in 'f', 'd':
    say('absent', os.getxattr, path, 'user.a')
    say('none', os.listxattr, path)
    say('remove absent', os.removexattr, path, 'user.a')
    say('replace absent', os.setxattr, path, 'user.a', b'1', os.XATTR_REPLACE)
    say('create', os.setxattr, path, 'user.a', b'1', os.XATTR_CREATE)
    say('create again', os.setxattr, path, 'user.a', b'2', os.XATTR_CREATE)
    say('kept', os.getxattr, path, 'user.a')
    say('replace', os.setxattr, path, 'user.a', bytes(range(256)), os.XATTR_REPLACE)
    say('replaced', os.getxattr, path, 'user.a')
    say("empty", os.setxattr, path, "user.empty", b"") # B159
    say('empty', os.getxattr, path, 'user.empty')
    say('odd', os.setxattr, path, b'user.\xff "\\,:{}\n', b'odd')
    say('odd', os.getxattr, path, b'user.\xff "\\,:{}\n')
    say('long name', os.setxattr, path, 'user.' + 'n' * 250, b'long')
    say('longer', os.setxattr, path, 'user.' + 'n' * 251, b'long')
    say('no name', os.setxattr, path, 'user.', b'x')
    say('no class', os.setxattr, path, 'nothing', b'x')
    say('too large', os.setxattr, path, 'user.large', b'x' * 65537)
    say('list', os.listxattr, path)
    say('remove', os.removexattr, path, 'user.' + 'n' * 250)
    say('removed', os.getxattr, path, 'user.' + 'n' * 250)
say('link', os.setxattr, 'l', 'user.a', b'1', follow_symlinks=False)
say('link', os.getxattr, 'l', 'user.a', follow_symlinks=False)
say('link', os.listxattr, 'l', follow_symlinks=False)
say('through the link', os.getxattr, 'l', 'user.a')
os.rename('f', 'g')
say('renamed', os.getxattr, 'g', 'user.a')
fd = os.open('g', os.O_RDWR)
say('open', os.setxattr, fd, 'user.open', b'yes')
say('truncated', os.ftruncate, fd, 0)
before = os.fstat(fd)
say('open', os.getxattr, fd, 'user.open')
say('changes', os.setxattr, fd, 'user.open', b'no')
after = os.fstat(fd)
print('ctime moves', after.st_ctime_ns > before.st_ctime_ns, 'mtime stays', after.st_mtime_ns == before.st_mtime_ns)
os.unlink('g')
say('unlinked', os.getxattr, fd, 'user.open')
say('unlinked', os.setxattr, fd, 'user.open', b'still')
say('unlinked', os.getxattr, fd, 'user.open')
PY
for dir in "$P/calls" "$M/calls"; do
    mkdir "$dir"
    check_status 0 python3 "$WORK/calls.py" "$dir"
    mv "$WORK/out" "$WORK/answers.$(basename "$(dirname "$dir")")"
done
diff "$WORK/answers.plain" "$WORK/answers.m" >"$WORK/diff" || fail "answers differ from ext4's: $(head -c 600 "$WORK/diff")"

# ---- limits ----
touch "$M/limits"
check_status 0 python3 - "$M/limits" <<'PY'
import errno, os, sys
path = sys.argv[1]
os.setxattr(path, 'user.large', b'x' * 60000)
try:
    os.setxattr(path, 'user.more', b'y' * 6000)
    sys.exit('over 64 KiB was taken')
except OSError as e:
    assert e.errno == errno.ENOSPC, e
assert os.listxattr(path) == ['user.large']
os.setxattr(path, 'user.small', b's')
for name, want in (('trusted.x', errno.ENOTSUP), ('security.x', errno.ENOTSUP), ('user.holdfast.x', errno.EPERM)):
    try:
        os.setxattr(path, name, b'x')
        sys.exit(name + ' was taken')
    except OSError as e:
        assert e.errno == want, (name, e)
assert os.getxattr(path, 'user.holdfast.key') == b'v/limits'
PY

# ---- tools ----
mkdir -p "$P/tree/sub"
printf 'one' >"$P/tree/a"
printf 'two' >"$P/tree/sub/b"
ln -s a "$P/tree/l"
setfattr -n user.comment -v 'first file' "$P/tree/a"
setfattr -n user.mime_type -v text/plain "$P/tree/sub/b"
setfattr -n user.raw -v 0x00ff0d0a2c3a "$P/tree/sub/b"
setfattr -n user.folder -v yes "$P/tree/sub"
attrs() { # DIR: sorted, as the order of a list means nothing
    (cd "$1" && find . | sort | while read -r path; do
        echo "# $path"
        getfattr -h -d -m '^user\.' -e hex "$path" 2>/dev/null | grep -v '^#' | sort
    done)
}
attrs "$P/tree" >"$WORK/wanted"
grep -q user.raw=0x00ff0d0a2c3a "$WORK/wanted" || fail_now 'the reference has no attributes'
check_tree() { # WHAT DIR
    attrs "$2" >"$WORK/seen"
    check_same "$1" "$WORK/wanted" "$WORK/seen"
    check_status 0 diff -r --no-dereference "$P/tree" "$2"
}
check_status 0 cp -a "$P/tree" "$M/cp"
[ ! -s "$WORK/err" ] || fail "cp -a complains: $(cat "$WORK/err")"
check_tree 'cp -a' "$M/cp"
check_status 0 rsync -aX "$P/tree/" "$M/rsync/"
check_tree 'rsync -X' "$M/rsync"
check_eq 'rsync -X again transfers nothing' '' "$(rsync -aXi "$P/tree/" "$M/rsync/")"
check_status 0 tar -C "$P" --xattrs --xattrs-include='*' -cf "$WORK/t.tar" tree
check_status 0 tar -C "$M" --xattrs --xattrs-include='*' -xf "$WORK/t.tar"
check_tree 'tar --xattrs' "$M/tree"
check_status 0 tar -C "$M" --xattrs --xattrs-include='*' -cf "$M/back.tar" tree
mkdir "$P/back"
check_status 0 tar -C "$P/back" --xattrs --xattrs-include='*' -xf "$M/back.tar"
check_tree 'tar back' "$P/back/tree"
check_status 0 cp -a "$M/tree" "$P/copy"
check_tree 'cp -a back' "$P/copy"
check_status 0 mv "$M/cp" "$M/moved"
check_tree 'moved' "$M/moved"
check_status 0 ls -l "$M/moved"
grep -q '^-[rwx-]\{9\}[+@]' "$WORK/out" && fail "ls shows an access list: $(cat "$WORK/out")"

touch "$M/name"
ln "$M/name" "$M/other"
check_status 0 setfattr -n user.one -v file "$M/other"
check_eq 'by another name' file "$(getfattr --only-values -n user.one "$M/name" 2>/dev/null)"

# ---- over a restart, and in the bucket ----
check_status 0 "$HOLDFAST" flush v --wait
check_status 0 "$HOLDFAST" umount "$M"
gateway_stop
gateway_start "$WORK/state" "file://$WORK/bucket"
check_status 0 "$HOLDFAST" mount v "$M"
check_tree 'after a restart' "$M/moved"
check_status 0 setfattr -n user.comment -v 'changed alone' "$M/moved/a"
check_eq 'large ones stay here' 60000 "$(getfattr --only-values -n user.large "$M/limits" 2>/dev/null | wc -c)"
check_status 0 "$HOLDFAST" flush v --wait
check_status 0 "$HOLDFAST" umount "$M"
gateway_stop

# ---- another gateway that knows nothing but the bucket ----
gateway_start "$WORK/state2" "file://$WORK/bucket"
check_status 0 "$HOLDFAST" volume create v
check_status 0 "$HOLDFAST" mount v "$M"
check_eq 'a change of attributes alone' 'changed alone' "$(getfattr --only-values -n user.comment "$M/moved/a" 2>/dev/null)"
check_tree 'another gateway' "$M/rsync"
check_eq 'what fits beside a large one' s "$(getfattr --only-values -n user.small "$M/limits" 2>/dev/null)"
check_eq 'each name of a file' filefile "$(getfattr --only-values -n user.one "$M/name" "$M/other" 2>/dev/null)"
check_status 0 setfattr -x user.comment "$M/moved/a"
check_status 0 chmod 600 "$M/moved/sub/b"
check_eq 'chmod keeps them' text/plain "$(getfattr --only-values -n user.mime_type "$M/moved/sub/b" 2>/dev/null)"
check_status 0 "$HOLDFAST" umount "$M"
