#!/usr/bin/env python3
"""posix.py DIR - does the operations of POSIX and Linux in DIR, which must be empty, and prints one line for each answer.

posix.sh runs it on the file system beside the mount and on a mount: every line has to be the same. Nothing printed may depend
on the machine, the time or the order of entries. Run as root; parts run as another user."""
import ctypes
import errno
import fcntl
import mmap
import os
import socket
import stat
import sys
import time

LIBC = ctypes.CDLL(None, use_errno=True)
NOREPLACE, EXCHANGE, WHITEOUT = 1, 2, 4
KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE = 1, 2, 16
NOBODY = 65534
group = ""


def say(what, answer):
    print("%s: %s: %s" % (group, what, answer))


def attempt(what, fn, *args, **named):
    """Prints what came of the call: its result in short form, or the name of its error."""
    try:
        result = fn(*args, **named)
    except OSError as e:
        say(what, errno.errorcode[e.errno])
        return None
    say(what, result if isinstance(result, (str, bytes, bool, tuple, list)) else "ok")
    return result


def put(path, data=b"data", mode=0o644):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    os.write(fd, data)
    os.close(fd)


def get(path):
    with open(path, "rb") as f:
        return f.read()


def shown(path):
    """What of a file's attributes is the same everywhere."""
    st = os.lstat(path)
    size = 0 if stat.S_ISDIR(st.st_mode) else st.st_size
    links = 0 if stat.S_ISDIR(st.st_mode) else st.st_nlink
    return "%06o %d:%d size %d links %d rdev %x" % (st.st_mode, st.st_uid, st.st_gid, size, links, st.st_rdev)


def as_user(uid, fn, *args, gid=None):
    """Runs fn in a process of another user and answers with what it printed there."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.setgroups([])
            os.setgid(uid if gid is None else gid)
            os.setuid(uid)
            fn(*args)
            status = 0
        finally:
            sys.stdout.flush()
            os._exit(status)
    if os.waitpid(pid, 0)[1] != 0:
        say("a process of user %d" % uid, "failed")


def renameat2(old, new, flags):
    if LIBC.renameat2(-100, os.fsencode(old), -100, os.fsencode(new), flags) != 0:
        raise OSError(ctypes.get_errno(), "renameat2")


def fallocate(fd, mode, off, length):
    if LIBC.fallocate(fd, mode, ctypes.c_int64(off), ctypes.c_int64(length)) != 0:
        raise OSError(ctypes.get_errno(), "fallocate")


# ---- open flags ----
def test_open():
    put("f", b"0123456789")
    os.mkdir("d")
    os.symlink("f", "l")
    os.symlink("nowhere", "dangling")
    flags = {n: getattr(os, n) for n in ("O_RDONLY", "O_WRONLY", "O_RDWR", "O_CREAT", "O_EXCL", "O_TRUNC", "O_APPEND", "O_DIRECTORY", "O_NOFOLLOW")}
    sets = ["O_RDONLY", "O_WRONLY", "O_RDWR", "O_RDONLY O_CREAT", "O_WRONLY O_CREAT O_EXCL", "O_RDWR O_TRUNC", "O_RDONLY O_DIRECTORY",
            "O_RDONLY O_NOFOLLOW", "O_WRONLY O_APPEND", "O_RDONLY O_TRUNC"]
    for target in ("f", "d", "l", "dangling", "absent", "f/x", "d/"):
        for chosen in sets:
            put("f", b"0123456789")
            bits = 0
            for name in chosen.split():
                bits |= flags[name]
            try:
                fd = os.open(target, bits, 0o640)
                say("%s %s" % (target, chosen), "ok, %d bytes" % (0 if stat.S_ISDIR(os.fstat(fd).st_mode) else os.fstat(fd).st_size))
                os.close(fd)
            except OSError as e:
                say("%s %s" % (target, chosen), errno.errorcode[e.errno])
            for extra in ("absent", "nowhere"):
                if os.path.lexists(extra):
                    say("made", shown(extra))
                    os.unlink(extra)
    fd = os.open("f", os.O_RDONLY)
    attempt("write to a reader", os.write, fd, b"x")
    attempt("ftruncate of a reader", os.ftruncate, fd, 1)
    os.close(fd)
    fd = os.open("f", os.O_WRONLY)
    attempt("read from a writer", os.read, fd, 1)
    os.close(fd)
    fd = os.open("noperm", os.O_WRONLY | os.O_CREAT, 0)
    attempt("write to a file made with mode 0", os.write, fd, b"abc")
    os.close(fd)
    say("its bytes", get("noperm"))
    fd = os.open("f", os.O_PATH)
    attempt("read through O_PATH", os.read, fd, 1)
    say("fstat through O_PATH", os.fstat(fd).st_size)
    os.close(fd)


# ---- append ----
def test_append():
    # B153: every line of every writer is there once, whole; B154: the size never goes back.
    pids = []
    for writer in range(4):
        pid = os.fork()
        if pid == 0:
            fd = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            for line in range(150):
                os.write(fd, b"writer %d line %04d %s\n" % (writer, line, b"x" * (line % 60)))
            os._exit(0)
        pids.append(pid)
    seen, back = 0, 0
    while True:
        try:
            size = os.stat("log").st_size
            back += size < seen
            seen = max(seen, size)
        except FileNotFoundError:
            pass
        if os.waitpid(pids[-1], os.WNOHANG)[0] != 0:
            break
        time.sleep(0.001)
    for pid in pids[:-1]:
        os.waitpid(pid, 0)
    lines = sorted(get("log").split(b"\n"))
    wanted = sorted([b"writer %d line %04d %s" % (w, n, b"x" * (n % 60)) for w in range(4) for n in range(150)] + [b""])
    say("lines of four writers", lines == wanted)
    say("times that the size went back", back)
    put("a", b"12345678")
    for i in range(50):
        put("a", b"12345678")
        fd = os.open("a", os.O_WRONLY | os.O_APPEND)
        os.pwrite(fd, b"9", 0)
        os.close(fd)
        if get("a") != b"123456789":
            say("append", i)
    say("append after a rewrite", get("a"))


# ---- sizes ----
def test_truncate():
    put("f", b"0123456789")
    for size in (4, 12, 5000, 0, 3):
        attempt("truncate to %d" % size, os.truncate, "f", size)
        say("bytes", (os.stat("f").st_size, get("f").rstrip(b"\0")))
    fd = os.open("f", os.O_RDWR)
    for size in (10, 1):
        attempt("ftruncate to %d" % size, os.ftruncate, fd, size)
        say("bytes", get("f"))
    attempt("ftruncate to 2^63 - 1", os.ftruncate, fd, 2**63 - 1)
    attempt("write at 2^63 - 4096", os.pwrite, fd, b"x", 2**63 - 4096)
    attempt("ftruncate to -1", os.ftruncate, fd, -1)
    say("bytes", get("f"))
    os.pwrite(fd, b"far", 5 << 30)
    say("size of a sparse file", os.fstat(fd).st_size)
    say("bytes before the end", os.pread(fd, 10, (5 << 30) - 4))
    os.ftruncate(fd, 1)
    os.close(fd)
    os.mkdir("d")
    os.symlink("f", "l")
    attempt("truncate a folder", os.truncate, "d", 0)
    attempt("truncate through a link", os.truncate, "l", 2)
    attempt("truncate what is not there", os.truncate, "absent", 0)
    attempt("truncate below a file", os.truncate, "f/x", 0)
    # B137: those who read while it is emptied see old bytes or the end, and no error.
    fd = os.open("f", os.O_RDONLY)
    for _ in range(30):
        put("f", b"a" * 8192)
        os.pread(fd, 8192, 0)
        os.close(os.open("f", os.O_WRONLY | os.O_TRUNC))
        if os.pread(fd, 8192, 0) != b"":
            say("a reader of an emptied file", "old bytes")
    os.close(fd)


def test_allocate():
    fd = os.open("f", os.O_RDWR | os.O_CREAT, 0o644)
    os.write(fd, b"x" * 20000)
    for name, mode, off, length in (("more", 0, 10000, 30000), ("kept size", KEEP_SIZE, 50000, 10000), ("hole", PUNCH_HOLE | KEEP_SIZE, 4096, 4096),
                                    ("odd hole", PUNCH_HOLE | KEEP_SIZE, 100, 300), ("zeros", ZERO_RANGE, 12000, 1000), ("hole alone", PUNCH_HOLE, 0, 10),
                                    ("nothing", 0, 0, 0), ("before the start", 0, -1, 10)):
        attempt("fallocate %s" % name, fallocate, fd, mode, off, length)
        data = get("f")
        say("bytes", (len(data), data.count(b"x")))
    os.close(fd)
    fd = os.open("s", os.O_RDWR | os.O_CREAT, 0o644)
    os.pwrite(fd, b"d" * 65536, 1 << 20)
    say("first data", os.lseek(fd, 0, os.SEEK_DATA) <= 1 << 20)
    say("hole behind", os.lseek(fd, 1 << 20, os.SEEK_HOLE) == (1 << 20) + 65536)
    attempt("data behind the end", os.lseek, fd, 2 << 20, os.SEEK_DATA)
    attempt("hole behind the end", os.lseek, fd, 2 << 20, os.SEEK_HOLE)
    os.close(fd)


def test_mmap():
    put("f", b"a" * 10000)
    fd = os.open("f", os.O_RDWR)
    shared = mmap.mmap(fd, 10000)
    private = mmap.mmap(fd, 10000, access=mmap.ACCESS_COPY)
    shared[5000:5003] = b"xyz"
    private[1:2] = b"P"
    say("read sees a shared map", os.pread(fd, 4, 4999))
    os.pwrite(fd, b"W", 9999)
    say("a shared map sees a write", shared[9999:10000])
    shared.flush()
    say("bytes", (get("f")[:2], get("f")[4999:5004]))
    shared.close()
    private.close()
    os.close(fd)
    put("f", b"b" * 100)
    say("bytes after a rewrite", get("f") == b"b" * 100)


# ---- names ----
def test_names():
    names = [b"n" * 255, b"\xff\xfe\x01 not text", b" leading", b"trailing ", b"dot.", b"...", b"-rf", b"new\nline", b"tab\t", b"\x7f", b"a\\b", b"*?[", b"%2F",
             "ü".encode(), "u\u0308".encode(), "日本語".encode(), "\U0001f980".encode(), b"CON", b"UPPER", b"upper", b"~", b"#1", b".hidden", b"\x01", b"a+b c&d=e"]
    for name in names:
        attempt("make %r" % name, put, name, name)
    say("listed", sorted(os.listdir(b".")) == sorted(names))
    say("found", all(get(name) == name for name in names))
    attempt("256 bytes", put, b"n" * 256)
    attempt("a folder of 256 bytes", os.mkdir, b"n" * 256)
    attempt("look for 256 bytes", os.stat, b"n" * 256)
    attempt("rename to 256 bytes", os.rename, b"dot.", b"n" * 256)
    attempt("a link of 256 bytes", os.symlink, b"x", b"n" * 256)
    for name in names:
        os.rename(name, b"tmp")
        os.rename(b"tmp", name)
    say("listed after renames", sorted(os.listdir(b".")) == sorted(names))
    for name in names:
        os.unlink(name)
    say("left", os.listdir("."))


def test_paths():
    put("f")
    os.mkdir("d")
    os.symlink("loop2", "loop1")
    os.symlink("loop1", "loop2")
    os.symlink("d", "ld")
    long = "x" * 256
    for path in ("f/x", "absent/x", "loop1", "loop1/x", long, long + "/x", "f/" + long, "absent/" + long, "d/../f", "ld/x", "d/x/", "f/", "f/.", "", "./" * 2000 + "f",
                 "./" * 3000 + "f"):
        for name, fn in (("stat", os.stat), ("open", lambda p: os.close(os.open(p, os.O_RDONLY))), ("unlink", os.unlink), ("mkdir", os.mkdir), ("rmdir", os.rmdir),
                         ("truncate", lambda p: os.truncate(p, 1)), ("chmod", lambda p: os.chmod(p, 0o600)), ("readlink", os.readlink),
                         ("mkfifo", os.mkfifo), ("rename", lambda p: os.rename(p, "new")), ("rename to", lambda p: os.rename("f", p))):
            try:
                fn(path)
                answer = "ok"
            except OSError as e:
                answer = errno.errorcode[e.errno]
            say("%s %.20s (%d)" % (name, path, len(path)), answer)
            for made in ("new", "d/x"):
                wipe(made)
            if kind_of("f") != "file":
                wipe("f")
                put("f")
    for name in (".", "d/.", "d/..", "/"):
        attempt("rmdir %s" % name, os.rmdir, name)
    attempt("rename .", os.rename, ".", "x")


# ---- rename ----
KINDS = ("absent", "file", "empty", "full", "link", "fifo")


def make(kind, path):
    if kind == "file":
        put(path, kind.encode() + path.encode())
    elif kind in ("empty", "full"):
        os.mkdir(path)
        if kind == "full":
            put(path + "/in")
    elif kind == "link":
        os.symlink("anywhere", path)
    elif kind == "fifo":
        os.mkfifo(path)


def wipe(path):
    if not os.path.lexists(path):
        return
    if os.path.isdir(path) and not os.path.islink(path):
        for name in os.listdir(path):
            wipe(os.path.join(path, name))
        os.rmdir(path)
    else:
        os.unlink(path)


def kind_of(path):
    if not os.path.lexists(path):
        return "absent"
    mode = os.lstat(path).st_mode
    if stat.S_ISDIR(mode):
        return "full" if os.listdir(path) else "empty"
    return {stat.S_IFREG: "file", stat.S_IFLNK: "link", stat.S_IFIFO: "fifo"}[stat.S_IFMT(mode)]


def test_rename():
    for flags in (0, NOREPLACE, EXCHANGE, NOREPLACE | EXCHANGE, 64):
        for old in KINDS:
            for new in KINDS:
                make(old, "a")
                make(new, "b")
                ino = os.lstat("a").st_ino if old != "absent" else 0
                try:
                    renameat2("a", "b", flags)
                    answer = "ok, number kept %s" % (os.lstat("b").st_ino == ino)
                except OSError as e:
                    answer = errno.errorcode[e.errno]
                say("%s to %s, flags %d" % (old, new, flags), "%s, now %s and %s" % (answer, kind_of("a"), kind_of("b")))
                wipe("a")
                wipe("b")
    os.makedirs("p/q/r")
    attempt("into itself", os.rename, "p", "p/x")
    attempt("into its child", os.rename, "p", "p/q/r/x")
    attempt("over its parent", os.rename, "p/q", "p")
    attempt("exchange with its child", renameat2, "p", "p/q", EXCHANGE)
    attempt("exchange with its parent", renameat2, "p/q", "p", EXCHANGE)
    attempt("to itself", os.rename, "p", "p")
    say("still", sorted(d for d, _, _ in os.walk("p")))
    # B127: a lock folder made by a rename is there at once, and its names are found below the new one.
    os.makedirs("lock.tmp/deep")
    put("lock.tmp/deep/f", b"x")
    os.rename("lock.tmp", "lock")
    say("the folder", (os.path.isdir("lock"), os.path.exists("lock.tmp"), get("lock/deep/f")))
    # B161: the new bytes show at once, and who has the old file open keeps it.
    for i in range(40):
        put("target", b"old %d" % i)
        fd = os.open("target", os.O_RDONLY)
        put("target.tmp", b"new %d" % i)
        os.rename("target.tmp", "target")
        if get("target") != b"new %d" % i or os.pread(fd, 20, 0) != b"old %d" % i or os.fstat(fd).st_nlink != 0:
            say("rename over", i)
        os.close(fd)
    fd = os.open("target", os.O_RDWR)
    os.rename("target", "moved")
    os.write(fd, b"NEW")
    os.close(fd)
    say("written through a moved name", get("moved")[:3])


def test_link():
    put("f", b"one")
    os.mkdir("d")
    os.symlink("f", "l")
    os.mkfifo("p")
    for old, new in (("f", "g"), ("f", "d/g"), ("f", "g"), ("d", "d2"), ("l", "l2"), ("p", "p2"), ("absent", "x"), ("f", "d"), ("f", "d/g/x"), ("f", "n" * 256)):
        attempt("%s to %.9s" % (old, new), os.link, old, new, follow_symlinks=False)
    for name in ("f", "g", "d/g", "l", "l2", "p", "p2"):
        say(name, shown(name))
    say("one number", len({os.stat(n).st_ino for n in ("f", "g", "d/g")}))
    write_to("g", b"two")
    os.chmod("d/g", 0o600)
    say("all names show it", [(get(n), shown(n)) for n in ("f", "g", "d/g")])
    for old, new, flags in (("f", "g", 0), ("f", "g", NOREPLACE), ("f", "g", EXCHANGE)):
        attempt("rename to another name of it, flags %d" % flags, renameat2, old, new, flags)
        say("names", sorted(os.listdir(".")))
    fd = os.open("f", os.O_RDONLY)
    for name in ("f", "d/g", "g"):
        os.unlink(name)
        say("links left", (os.fstat(fd).st_nlink, os.pread(fd, 9, 0)))
    os.close(fd)
    put("f", b"three")
    os.link("f", "g")
    put("new", b"four")
    os.rename("new", "f")
    say("a rename over one name", (get("f"), get("g"), os.stat("g").st_nlink))


# ---- names that go ----
def test_unlink():
    put("f", b"alive")
    fd = os.open("f", os.O_RDWR)
    os.unlink("f")
    say("read", os.pread(fd, 10, 0))
    os.pwrite(fd, b"more", 5)
    os.ftruncate(fd, 7)
    os.fchmod(fd, 0o600)
    say("after more", (os.pread(fd, 10, 0), os.fstat(fd).st_nlink, os.fstat(fd).st_size, oct(os.fstat(fd).st_mode)))
    attempt("open its name", os.stat, "f")
    put("f", b"another")
    say("a new one of its name", (get("f"), os.pread(fd, 10, 0)))
    attempt("fsync", os.fsync, fd)
    os.close(fd)
    os.mkdir("d")
    dfd = os.open("d", os.O_RDONLY | os.O_DIRECTORY)
    put("d/x")
    attempt("rmdir of a full folder", os.rmdir, "d")
    attempt("unlink of a folder", os.unlink, "d")
    attempt("rmdir of a file", os.rmdir, "d/x")
    os.unlink("d/x")
    os.rmdir("d")
    attempt("make a file in it", os.open, "new", os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=dfd)
    attempt("make a folder in it", os.mkdir, "new", dir_fd=dfd)
    os.close(dfd)


def test_folders():
    os.mkdir("big")
    for i in range(1500):
        os.close(os.open("big/%04d" % i, os.O_CREAT | os.O_WRONLY, 0o644))
    say("entries", len(os.listdir("big")))
    # Positions stay valid while entries go: each of those that stay is seen once.
    seen = []
    with os.scandir("big") as entries:
        for entry in entries:
            seen.append(entry.name)
            if int(entry.name) % 3 == 0:
                os.unlink("big/" + entry.name)
    say("seen while a third goes", (len(seen), len(set(seen))))
    say("left", len(os.listdir("big")))
    LIBC.opendir.restype = LIBC.readdir64.restype = ctypes.c_void_p
    LIBC.telldir.restype = ctypes.c_long
    handle = ctypes.c_void_p(LIBC.opendir(b"big"))

    def step():
        entry = LIBC.readdir64(handle)
        return None if not entry else ctypes.string_at(entry + 19)
    marks = []
    for i in range(400):
        step()
        if i % 50 == 0:
            at = LIBC.telldir(handle)
            marks.append((at, step()))
            LIBC.seekdir(handle, ctypes.c_long(at))
    wrong = 0
    for at, name in reversed(marks):
        LIBC.seekdir(handle, ctypes.c_long(at))
        wrong += step() != name
    LIBC.rewinddir(handle)
    count = 0
    while step() is not None:
        count += 1
    LIBC.closedir(handle)
    say("positions that lead elsewhere", wrong)
    say("entries with . and ..", count)
    say("types", sorted({(e.is_dir(), e.is_file()) for e in os.scandir("big")}))
    for name in os.listdir("big"):
        os.unlink("big/" + name)
    attempt("rmdir", os.rmdir, "big")


# ---- times ----
def moved(paths, fn):
    """Which of atime, mtime, ctime of each path fn moved."""
    before = [os.lstat(p) if os.path.lexists(p) else None for p in paths]
    time.sleep(0.012)
    fn()
    out = []
    for path, old in zip(paths, before):
        if old is None or not os.path.lexists(path):
            out.append("%s -" % path)
            continue
        new = os.lstat(path)
        out.append("%s %s%s" % (path, "m" if new.st_mtime_ns != old.st_mtime_ns else "-", "c" if new.st_ctime_ns != old.st_ctime_ns else "-"))
    return ", ".join(out)


def write_to(path, data=b"x"):
    fd = os.open(path, os.O_WRONLY)
    os.write(fd, data)
    os.close(fd)


def test_times():
    os.mkdir("d")
    os.mkdir("e")
    put("f")
    os.symlink("f", "l")
    for what, paths, fn in (
            ("write", ["f", "."], lambda: write_to("f")), ("open and close", ["f"], lambda: os.close(os.open("f", os.O_RDWR))),
            ("read", ["f"], lambda: get("f")), ("truncate", ["f"], lambda: os.truncate("f", 2)),
            ("truncate to the same", ["f"], lambda: os.truncate("f", 2)), ("O_TRUNC of an empty file", ["f"], lambda: (os.truncate("f", 0), put("f", b""))),
            ("chmod", ["f", "."], lambda: os.chmod("f", 0o600)), ("chown", ["f"], lambda: os.chown("f", 1, 1)), ("chown to nobody", ["f"], lambda: os.chown("f", -1, -1)),
            ("chmod of a folder", ["d", "."], lambda: os.chmod("d", 0o700)),
            ("make a file", ["d", "."], lambda: put("d/x")), ("make a folder", ["d"], lambda: os.mkdir("d/sub")), ("make a link", ["d"], lambda: os.symlink("x", "d/l")),
            ("make a fifo", ["d"], lambda: os.mkfifo("d/p")), ("write below", ["d"], lambda: write_to("d/x")), ("rename within", ["d"], lambda: os.rename("d/x", "d/y")),
            ("rename across", ["d", "e", "."], lambda: os.rename("d/y", "e/y")), ("rename a folder", ["d", "e", "."], lambda: os.rename("d/sub", "e/sub")),
            ("remove a file", ["e"], lambda: os.unlink("e/y")), ("remove a folder", ["e"], lambda: os.rmdir("e/sub")), ("list", ["d"], lambda: os.listdir("d")),
            ("a failed mkdir", ["."], lambda: attempt("mkdir", os.mkdir, "d")), ("utime", ["f", "."], lambda: os.utime("f", ns=(1, 2))),
            ("utime of a link", ["l", "f"], lambda: os.utime("l", ns=(1, 2), follow_symlinks=False)), ("fsync", ["f"], lambda: os.fsync(os.open("f", os.O_RDONLY)))):
        say(what, moved(paths, fn))
    for atime, mtime in ((1, 2), (10**18 + 123456789, 10**18 + 987654321), (0, 0), (-1, -10**18), (2**31 * 10**9, 2**32 * 10**9)):
        for path in ("f", "d", "l"):
            os.utime(path, ns=(atime, mtime), follow_symlinks=False)
            say("set on %s" % path, (os.lstat(path).st_atime_ns, os.lstat(path).st_mtime_ns))
    now = time.time_ns()
    os.utime("f")
    st = os.stat("f")
    say("now", (abs(st.st_mtime_ns - now) < 5e9, st.st_atime_ns == st.st_mtime_ns))

    def others():
        for path in ("f", "g"):
            attempt("a stranger sets times of %s" % path, os.utime, path, ns=(1, 2))
            attempt("a stranger sets now of %s" % path, os.utime, path)
    put("g")
    os.chmod("f", 0o600)
    os.chmod("g", 0o666)
    as_user(NOBODY, others)


# ---- rights ----
def test_rights():
    os.chmod(".", 0o777)
    for mode in (0o6755, 0o2745, 0o6777, 0o4644):
        for what, fn in (("chown", lambda: os.chown("f", 5, 5)), ("write by a stranger", lambda: as_user(NOBODY, write_to, "f")),
                         ("truncate by a stranger", lambda: as_user(NOBODY, os.truncate, "f", 1)), ("write by root", lambda: write_to("f")),
                         ("chmod by its owner", lambda: as_user(7, os.chmod, "f", mode, gid=8))):
            put("f", b"data")
            os.chown("f", 7, 7 if "owner" in what else NOBODY)
            os.chmod("f", mode | (0o666 if "stranger" in what else 0))
            fn()
            say("%s of %04o" % (what, mode), "%04o" % stat.S_IMODE(os.stat("f").st_mode))
            os.unlink("f")
    os.mkdir("sticky")
    os.chmod("sticky", 0o1777)
    for name, owner in (("mine", NOBODY), ("theirs", 7)):
        put("sticky/" + name)
        os.chown("sticky/" + name, owner, owner)

    def in_sticky():
        attempt("rename what is another's", os.rename, "sticky/theirs", "sticky/x")
        attempt("remove what is another's", os.unlink, "sticky/theirs")
        attempt("rename over what is another's", os.rename, "sticky/mine", "sticky/theirs")
        attempt("remove one's own", os.unlink, "sticky/mine")
    as_user(NOBODY, in_sticky)
    os.mkdir("group")
    os.chown("group", 0, 77)
    os.chmod("group", 0o2775)
    put("group/f")
    os.mkdir("group/d")
    os.mkfifo("group/p")
    os.symlink("x", "group/l")
    for name in ("f", "d", "p", "l"):
        say("in a folder with the group's bit: %s" % name, shown("group/" + name))
    os.mkdir("closed", 0o700)
    put("closed/f")
    put("private", mode=0o600)

    def strangers():
        for what, fn in (("stat", lambda: os.stat("closed/f")), ("list", lambda: os.listdir("closed")), ("read", lambda: get("private")),
                         ("write", lambda: write_to("private")), ("chmod", lambda: os.chmod("private", 0o777)), ("chown", lambda: os.chown("private", NOBODY, NOBODY)),
                         ("truncate", lambda: os.truncate("private", 0)), ("make", lambda: put("closed/x")), ("device", lambda: os.mknod("dev", stat.S_IFCHR | 0o666, os.makedev(1, 3)))):
            attempt("a stranger: %s" % what, fn)
        say("access", [os.access("private", mode) for mode in (os.F_OK, os.R_OK, os.W_OK, os.X_OK)])
    as_user(NOBODY, strangers)
    for umask in (0, 0o027, 0o777):
        old = os.umask(umask)
        os.close(os.open("u", os.O_CREAT | os.O_WRONLY, 0o666))
        os.mkdir("ud", 0o777)
        os.mkfifo("up", 0o666)
        os.umask(old)
        say("umask %03o" % umask, [shown(n)[:6] for n in ("u", "ud", "up")])
        for name in ("u", "up"):
            os.unlink(name)
        os.rmdir("ud")


# ---- what is no plain file ----
def test_special():
    for target in ("x", "/abs/olute", "with\nnewline", "y" * 4095, "../" * 500):
        os.symlink(target, "l")
        say("a link of %d bytes" % len(target), (os.readlink("l") == target, os.lstat("l").st_size))
        os.unlink("l")
    attempt("an empty link", os.symlink, "", "l")
    attempt("a link of 4096 bytes", os.symlink, "y" * 4096, "l")
    os.mkfifo("p", 0o640)
    say("fifo", shown("p"))
    pid = os.fork()
    if pid == 0:
        fd = os.open("p", os.O_WRONLY)
        os.write(fd, b"through")
        os._exit(0)
    say("through a fifo", get("p"))
    os.waitpid(pid, 0)
    attempt("a fifo without a reader", os.open, "p", os.O_WRONLY | os.O_NONBLOCK)
    server, client = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    server.bind("s")
    server.listen(1)
    say("socket", shown("s"))
    client.connect("s")
    client.send(b"hello")
    say("through a socket", server.accept()[0].recv(10))
    os.rename("s", "s2")
    os.unlink("s2")
    attempt("open of no socket", os.open, "s2", os.O_RDONLY)
    os.mknod("c", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    os.mknod("b", stat.S_IFBLK | 0o600, os.makedev(259, 70000))
    os.mknod("r", stat.S_IFREG | 0o600)
    for name in ("c", "b", "r"):
        os.chmod(name, 0o604)
        os.chown(name, 3, 4)
        os.rename(name, name + "2")
        say("node", shown(name + "2"))
    attempt("write to a made file", write_to, "r2", b"bytes")
    say("its bytes", get("r2"))
    attempt("truncate a fifo", os.truncate, "p", 0)
    attempt("list a fifo", os.listdir, "p")
    attempt("readlink of a fifo", os.readlink, "p")


def test_statfs():
    # B139: figures that can be.
    fs = os.statvfs(".")
    say("figures", (fs.f_namemax, fs.f_bsize >= 512, fs.f_blocks > 0, 0 < fs.f_bavail <= fs.f_blocks, fs.f_bfree <= fs.f_blocks, fs.f_files > 0, 0 < fs.f_ffree <= fs.f_files))
    say("limits", (os.pathconf(".", "PC_NAME_MAX"), os.pathconf(".", "PC_PATH_MAX")))


def main():
    global group
    os.chdir(sys.argv[1])
    os.umask(0o022)
    if os.listdir("."):
        sys.exit("posix.py: '%s' is not empty" % sys.argv[1])
    chosen = sys.argv[2:]
    for name, fn in list(globals().items()):
        if not name.startswith("test_") or (chosen and name[5:] not in chosen):
            continue
        group = name[5:]
        os.mkdir(group)
        os.chdir(group)
        fn()
        sys.stdout.flush()
        os.chdir("..")
        wipe(group)
    say("left", os.listdir("."))


if __name__ == "__main__":
    main()
