"""What locks.sh does with locks, in two folders that are the same one: two mounts of a volume, or a folder of the disk twice. Prints
what happened; both must print the same."""
import errno
import fcntl
import os
import signal
import struct
import subprocess
import sys
import time

a, b = sys.argv[1:3]
OFD_GETLK, OFD_SETLK = 36, 37
FORMAT = "hhqqi4x"


def say(*words):
    print(*words, flush=True)


def attempt(what, call, *args):
    try:
        call(*args)
        say(what, "ok")
    except OSError as e:
        say(what, errno.errorcode[e.errno])


def in_child(code, *args):
    """In a process of its own, so as another owner, with descriptors of its own."""
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(into, 1)
        sys.argv = ["-", *args]
        try:
            exec(code, {"fcntl": fcntl, "os": os, "sys": sys, "errno": errno, "struct": struct})
        finally:
            sys.stdout.flush()
            os._exit(0)
    os.close(into)
    with os.fdopen(out) as f:
        said = f.read().strip()
    os.waitpid(pid, 0)
    return said


TRY = """
f = open(sys.argv[1], 'r+b')
kind, start, length = int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
try:
    fcntl.lockf(f, kind | fcntl.LOCK_NB, length, start)
    print('ok')
except OSError as e:
    print(errno.errorcode[e.errno])
"""
GETLK = """
f = open(sys.argv[1], 'r+b')
got = struct.unpack('hhqqi4x', fcntl.fcntl(f, fcntl.F_GETLK, struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, int(sys.argv[2]), 1, 0)))
print(got[0], got[2], got[3], 'holder' if got[4] == int(sys.argv[3]) else got[4])
"""
FLOCK = """
f = open(sys.argv[1], 'rb')
try:
    fcntl.flock(f, int(sys.argv[2]) | fcntl.LOCK_NB)
    print('ok')
except OSError as e:
    print(errno.errorcode[e.errno])
"""
HOLD = """
f = open(sys.argv[1], 'r+b')
fcntl.lockf(f, fcntl.LOCK_EX, 10, 0)
print('held', flush=True)
time.sleep(60)
"""
for name in ("range", "flock", "other"):
    with open(a + "/" + name, "wb") as f:
        f.write(b"x" * 100)

# ---- ranges, seen from elsewhere ----
f = open(a + "/range", "r+b")
fcntl.lockf(f, fcntl.LOCK_EX, 10, 0)
fcntl.lockf(f, fcntl.LOCK_SH, 10, 20)
for where in (a, b):
    for start in (0, 5, 9, 10, 19, 20, 29, 30):
        for kind in (fcntl.LOCK_SH, fcntl.LOCK_EX):
            say("byte", start, kind, in_child(TRY, where + "/range", str(kind), str(start), "1"))
    say("getlk", in_child(GETLK, where + "/range", "3", str(os.getpid())))
    say("getlk", in_child(GETLK, where + "/range", "25", str(os.getpid())))
    say("getlk", in_child(GETLK, where + "/range", "15", str(os.getpid())))
    say("whole", in_child(TRY, where + "/range", str(fcntl.LOCK_EX), "0", "0"))
fcntl.lockf(f, fcntl.LOCK_SH, 4, 3)  # a part goes down
fcntl.lockf(f, fcntl.LOCK_UN, 2, 24)  # a hole
for start in (2, 3, 6, 7, 23, 24, 25, 26):
    say("split", start, in_child(TRY, b + "/range", str(fcntl.LOCK_SH), str(start), "1"),
        in_child(TRY, b + "/range", str(fcntl.LOCK_EX), str(start), "1"))
# Any descriptor's close drops them all (B158): as POSIX says, not as one would like.
second = open(a + "/range", "r+b")
second.close()
say("after another's close", in_child(TRY, b + "/range", str(fcntl.LOCK_EX), "0", "0"))
fcntl.lockf(f, fcntl.LOCK_EX, 10, 0)
reader = open(a + "/range", "rb")
reader.close()
say("after a reader's close", in_child(TRY, b + "/range", str(fcntl.LOCK_EX), "0", "0"))
fcntl.lockf(f, fcntl.LOCK_EX, 10, 0)
pid = os.fork()
if pid == 0:
    attempt("a child has none", lambda: fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0))
    os._exit(0)
os.waitpid(pid, 0)
say("after the child's end", in_child(TRY, b + "/range", str(fcntl.LOCK_EX), "0", "1"))
f.close()
say("after close", in_child(TRY, b + "/range", str(fcntl.LOCK_EX), "0", "0"))
r = open(a + "/range", "rb")
attempt("write lock without write", lambda: fcntl.lockf(r, fcntl.LOCK_EX | fcntl.LOCK_NB))
attempt("read lock", lambda: fcntl.lockf(r, fcntl.LOCK_SH | fcntl.LOCK_NB))
say("reader holds", in_child(TRY, b + "/range", str(fcntl.LOCK_EX), "0", "1"))
r.close()


def soon(code, *args):  # the kernel tells of the end of an open file a moment later
    for _ in range(200):
        got = in_child(code, *args)
        if got == "ok":
            return got
        time.sleep(0.01)
    return got


say("reader closed", soon(TRY, b + "/range", str(fcntl.LOCK_EX), "0", "1"))

# ---- of open files (F_OFD_SETLK) ----
one, two = open(a + "/range", "r+b"), open(b + "/range", "r+b")


def ofd(f, kind, start, length):
    fcntl.fcntl(f, OFD_SETLK, struct.pack(FORMAT, kind, 0, start, length, 0))


attempt("ofd", ofd, one, fcntl.F_WRLCK, 0, 10)
attempt("ofd elsewhere", ofd, two, fcntl.F_RDLCK, 9, 1)
attempt("ofd beside", ofd, two, fcntl.F_WRLCK, 10, 5)
copy = os.dup(one.fileno())
one.close()
attempt("ofd while a copy lives", ofd, two, fcntl.F_RDLCK, 9, 1)
os.close(copy)
for _ in range(200):
    try:
        ofd(two, fcntl.F_RDLCK, 9, 1)
        break
    except OSError:
        time.sleep(0.01)
attempt("ofd after the end", ofd, two, fcntl.F_RDLCK, 9, 1)
two.close()

# ---- whole files ----
f, g, h = open(a + "/flock", "rb"), open(b + "/flock", "rb"), open(b + "/flock", "rb")
attempt("flock sh", fcntl.flock, f, fcntl.LOCK_SH | fcntl.LOCK_NB)
attempt("flock sh", fcntl.flock, g, fcntl.LOCK_SH | fcntl.LOCK_NB)
attempt("flock ex", fcntl.flock, h, fcntl.LOCK_EX | fcntl.LOCK_NB)
attempt("flock up", fcntl.flock, g, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails, and the old one is gone
attempt("flock up", fcntl.flock, f, fcntl.LOCK_EX | fcntl.LOCK_NB)
attempt("flock sh", fcntl.flock, g, fcntl.LOCK_SH | fcntl.LOCK_NB)
attempt("ranges do not see it", lambda: fcntl.lockf(h, fcntl.LOCK_SH | fcntl.LOCK_NB))
attempt("flock down", fcntl.flock, f, fcntl.LOCK_SH | fcntl.LOCK_NB)
attempt("flock sh", fcntl.flock, g, fcntl.LOCK_SH | fcntl.LOCK_NB)
attempt("flock un", fcntl.flock, f, fcntl.LOCK_UN)
attempt("flock un", fcntl.flock, g, fcntl.LOCK_UN)
attempt("flock ex", fcntl.flock, h, fcntl.LOCK_EX | fcntl.LOCK_NB)
pid = os.fork()
if pid == 0:  # it belongs to the open file: the child has it too, and gives it back for both
    attempt("flock of a child", fcntl.flock, h, fcntl.LOCK_EX | fcntl.LOCK_NB)
    attempt("flock un in a child", fcntl.flock, h, fcntl.LOCK_UN)
    os._exit(0)
os.waitpid(pid, 0)
say("flock free", in_child(FLOCK, a + "/flock", str(fcntl.LOCK_EX)))
fcntl.flock(h, fcntl.LOCK_EX)
h.close()
say("flock closed", soon(FLOCK, a + "/flock", str(fcntl.LOCK_EX)))

# ---- waiting ----
holder = subprocess.Popen([sys.executable, "-c", "import fcntl, sys, time\n" + HOLD, b + "/other"], stdout=subprocess.PIPE, text=True)
holder.stdout.readline()
f = open(a + "/other", "r+b")


class Alarm(Exception):
    pass


def ring(*_):
    raise Alarm


signal.signal(signal.SIGALRM, ring)
signal.setitimer(signal.ITIMER_REAL, 0.3)
began = time.monotonic()
try:
    fcntl.lockf(f, fcntl.LOCK_EX, 5, 0)
    say("got it?")
except Alarm:
    say("interrupted", 0.2 < time.monotonic() - began < 5)
say("still the holder's", in_child(TRY, a + "/other", str(fcntl.LOCK_EX), "0", "1"))
pid = os.fork()  # waits for ever: killed all the same
if pid == 0:
    fcntl.lockf(f, fcntl.LOCK_EX, 5, 0)
    os._exit(1)
time.sleep(0.2)
os.kill(pid, signal.SIGKILL)
began = time.monotonic()
say("killed while it waited", os.waitpid(pid, 0)[1], time.monotonic() - began < 5)
pid = os.fork()
if pid == 0:
    fcntl.lockf(f, fcntl.LOCK_EX, 5, 0)
    os._exit(7)
time.sleep(0.3)
say("it waits", os.waitpid(pid, os.WNOHANG)[0] == 0)
holder.kill()  # what it held is free
holder.wait()
began = time.monotonic()
say("got it", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), time.monotonic() - began < 5)
say("all free", in_child(TRY, b + "/other", str(fcntl.LOCK_EX), "0", "0"))

# ---- two that wait for each other ----
to_child, to_parent = os.pipe(), os.pipe()
fcntl.lockf(f, fcntl.LOCK_EX, 1, 0)
pid = os.fork()
if pid == 0:
    g = open(b + "/other", "r+b")
    fcntl.lockf(g, fcntl.LOCK_EX, 1, 1)
    os.write(to_parent[1], b"x")
    fcntl.lockf(g, fcntl.LOCK_EX, 1, 0)  # waits for the parent
    os._exit(3)
os.read(to_parent[0], 1)
time.sleep(0.3)
attempt("a cycle", lambda: fcntl.lockf(f, fcntl.LOCK_EX, 1, 1))
fcntl.lockf(f, fcntl.LOCK_UN, 1, 0)
say("the other goes on", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
f.close()

# ---- many wait, and each gets its turn: a counter under a lock, from both sides ----
COUNT = """
path, rounds = sys.argv[1], int(sys.argv[2])
for i in range(rounds):
    f = open(path, 'r+b')
    (fcntl.lockf if sys.argv[3] == 'range' else fcntl.flock)(f, fcntl.LOCK_EX)
    n = int(f.read() or b'0')
    f.seek(0)
    f.write(b'%d' % (n + 1))
    f.flush()
    f.close()
"""
for kind in ("range", "flock"):
    path = "/count-" + kind
    open(a + path, "wb").close()
    workers = [subprocess.Popen([sys.executable, "-c", "import fcntl, sys\n" + COUNT, where + path, "40", kind])
               for where in (a, b) for _ in range(4)]
    ends = [w.wait(timeout=120) for w in workers]
    with open(a + path, "rb") as f:
        say("counted", kind, ends, f.read())
