"""What sparse.sh does with holes in a folder; a mount and the disk must print the same."""
import ctypes
import errno
import os
import sys

libc = ctypes.CDLL(None, use_errno=True)
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
KEEP, PUNCH, COLLAPSE, ZERO, INSERT = 1, 2, 8, 16, 32
MIB = 1 << 20
path = sys.argv[1] + "/sparse"


def say(*words):
    print(*words, flush=True)


def fallocate(fd, mode, off, length):
    return "ok" if libc.fallocate(fd, mode, off, length) == 0 else errno.errorcode[ctypes.get_errno()]


def seek(fd, off, whence):
    try:
        return os.lseek(fd, off, whence)
    except OSError as e:
        return errno.errorcode[e.errno]


def holes(what, fd):
    say(what, os.fstat(fd).st_size, [(seek(fd, off, os.SEEK_DATA), seek(fd, off, os.SEEK_HOLE))
                                     for off in (0, 4096, MIB, 3 * MIB, 8 * MIB - 1, 8 * MIB, 9 * MIB)])


fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
holes("empty", fd)
os.ftruncate(fd, 8 * MIB)
holes("all hole", fd)
os.pwrite(fd, b"x" * 65536, MIB)
os.pwrite(fd, b"y" * 65536, 6 * MIB)
os.fsync(fd)
holes("two islands", fd)
say("punch", fallocate(fd, PUNCH | KEEP, MIB, 32768))
say("punched", os.pread(fd, 32768, MIB) == b"\0" * 32768, os.pread(fd, 1, MIB + 32768))
holes("after the punch", fd)
say("punch over the end", fallocate(fd, PUNCH | KEEP, 7 * MIB, 100 * MIB), os.fstat(fd).st_size)
say("punch without keep", fallocate(fd, PUNCH, MIB, 4096))
say("zero", fallocate(fd, ZERO, 6 * MIB + 100, 1000), os.pread(fd, 4, 6 * MIB + 98), os.fstat(fd).st_size)
say("zero beyond", fallocate(fd, ZERO, 9 * MIB, 1000), os.fstat(fd).st_size)
say("zero, size kept", fallocate(fd, ZERO | KEEP, 10 * MIB, 1000), os.fstat(fd).st_size)
say("more", fallocate(fd, 0, 0, 12 * MIB), os.fstat(fd).st_size)
say("more, size kept", fallocate(fd, KEEP, 0, 20 * MIB), os.fstat(fd).st_size)
say("nothing", fallocate(fd, 0, 0, 0), fallocate(fd, 0, -1, 5))
say("shorter than is there", fallocate(fd, 0, 0, MIB), os.fstat(fd).st_size)
os.close(fd)
say("read only", fallocate(os.open(path, os.O_RDONLY), 0, 0, 1))
try:
    os.posix_fallocate(os.open(path, os.O_RDWR), 0, 13 * MIB)
    say("posix_fallocate", os.stat(path).st_size)
except OSError as e:
    say("posix_fallocate", errno.errorcode[e.errno])
fd = os.open(path, os.O_RDWR)
os.ftruncate(fd, 5)
os.ftruncate(fd, 4 * MIB)
say("cut and grown", os.pread(fd, 10, 0), seek(fd, 0, os.SEEK_HOLE), seek(fd, MIB, os.SEEK_DATA))
os.close(fd)
# Copied inside the kernel, or here: the same bytes, whatever the offsets.
with open(path + ".from", "wb") as f:
    f.write(os.urandom(0) + bytes(range(256)) * 4096)
a, b = os.open(path + ".from", os.O_RDWR), os.open(path + ".to", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)


def copy(src, dst, count, from_, to):
    done = 0
    try:
        while done < count:
            n = os.copy_file_range(src, dst, count - done, from_ + done, to + done)
            if n == 0:
                break
            done += n
        return done
    except OSError as e:
        return errno.errorcode[e.errno]


say("copy", copy(a, b, 100000, 5, 7), os.fstat(b).st_size, os.pread(b, 8, 4))
say("copy to the end", copy(a, b, 4 * MIB, MIB - 10, 0), os.fstat(b).st_size, os.pread(b, 14, 0))
say("copy behind the end", copy(a, b, 10, 2 * MIB, 0))
say("copy over itself", copy(a, a, 1000, 0, 500))
say("copy within", copy(a, a, 1000, 0, 5000), os.pread(a, 4, 5001))
say("copy far", copy(a, b, 10, 0, 30 * MIB), os.fstat(b).st_size, os.pread(b, 3, 30 * MIB - 1))
say("copy nothing", copy(a, b, 0, 0, 0))
r = os.open(path + ".to", os.O_RDONLY)
say("copy to a reader", copy(a, r, 10, 0, 0))
w = os.open(path + ".to", os.O_WRONLY | os.O_APPEND)
say("copy to an appender", copy(a, w, 10, 0, 0))
w2 = os.open(path + ".from", os.O_WRONLY)
say("copy from a writer", copy(w2, b, 10, 0, 0))
