"""mount_twin.py MOUNT DISK [--seed N] [--seconds N | --steps N] [--processes N] [--groups N] [--without OP,...] [--log N]

The same random operations in a folder of a mount and in a folder of a local disk: results, errors, bytes, attributes and times
have to be the same. A group is a folder with several worker processes that have files of it open at the same time; its
operations run one after the other, in the order that the seed gives, each by a worker of its choice. Groups run beside each
other. Ends with 1 at the first difference, after printing the group's last operations; the seed repeats them.
"""
import argparse
import ctypes
import errno
import fcntl
import hashlib
import mmap
import multiprocessing
import os
import random
import stat
import sys
import time

LIBC = ctypes.CDLL(None, use_errno=True)
SIZE_MAX = 3 << 20
TIME_SLACK = 2_000_000_000  # between an operation on one side and on the other; the machine may be busy
NAMES = [b'a', b'b', b'c', b'd', 'größe'.encode(), b'\xff\xfe raw', b'with\nline', b'L' * 150, b'.hidden', b'-rf', b'~', b'%41']
TOO_LONG = b'M' * 256


def renameat2(old, new, flags):
    if LIBC.renameat2(-100, old, -100, new, flags) != 0:
        raise OSError(ctypes.get_errno(), 'renameat2')


def fallocate(fd, mode, off, size):
    if LIBC.fallocate(fd, mode, ctypes.c_long(off), ctypes.c_long(size)) != 0:
        raise OSError(ctypes.get_errno(), 'fallocate')


def digest(path):
    total = hashlib.sha256()
    with open(path, 'rb') as file:
        while block := file.read(1 << 20):
            total.update(block)
    return total.hexdigest()


def describe(st):
    """What both sides have in common; times apart."""
    size = 0 if stat.S_ISDIR(st.st_mode) else st.st_size
    links = 0 if stat.S_ISDIR(st.st_mode) else st.st_nlink
    return (st.st_mode, st.st_uid, st.st_gid, size, links)


class Worker:
    """Does one operation on one side after the other. Open files and mappings are pairs in slots."""

    def __init__(self, roots):
        self.roots = roots
        self.files = {}
        self.maps = {}

    def run(self, op, args):
        return [self.once(op, args, side) for side in (0, 1)]

    def once(self, op, args, side):
        try:
            return ('ok', getattr(self, op)(side, *args))
        except OSError as error:
            return ('error', errno.errorcode.get(error.errno, error.errno))

    def at(self, side, path):
        return os.path.join(self.roots[side], path)

    def fd(self, side, slot):
        pair = self.files.get(slot)
        if pair is None or pair[side] is None:
            raise OSError(errno.EBADF, 'closed')
        return pair[side]

    # ---- open files ----
    def open(self, side, slot, path, flags, mode):
        if side == 0:
            self.drop(slot)
            self.files[slot] = [None, None]
        self.files[slot][side] = os.open(self.at(side, path), flags, mode)

    def drop(self, slot):
        for fd in self.files.pop(slot, ()):
            if fd is not None:
                os.close(fd)

    def close(self, side, slot):
        fd = self.fd(side, slot)
        self.files[slot][side] = None
        os.close(fd)

    def pread(self, side, slot, off, size):
        return hashlib.sha256(os.pread(self.fd(side, slot), size, off)).hexdigest()

    def read(self, side, slot, size):
        return hashlib.sha256(os.read(self.fd(side, slot), size)).hexdigest()

    def pwrite(self, side, slot, off, seed, size):
        return os.pwrite(self.fd(side, slot), random.Random(seed).randbytes(size), off)

    def write(self, side, slot, seed, size):
        return os.write(self.fd(side, slot), random.Random(seed).randbytes(size))

    def lseek(self, side, slot, off, whence):
        if stat.S_ISDIR(os.fstat(self.fd(side, slot)).st_mode):
            return None  # each file system has its own places in a folder
        return os.lseek(self.fd(side, slot), off, whence)

    def ftruncate(self, side, slot, size):
        os.ftruncate(self.fd(side, slot), size)

    def fallocate(self, side, slot, mode, off, size):
        fallocate(self.fd(side, slot), mode, off, size)

    def fsync(self, side, slot, data):
        (os.fdatasync if data else os.fsync)(self.fd(side, slot))

    def fstat(self, side, slot):
        return describe(os.fstat(self.fd(side, slot)))

    def fchmod(self, side, slot, mode):
        os.fchmod(self.fd(side, slot), mode)

    def copy_range(self, side, slot, off, to_slot, to_off, size):
        done = 0
        while done < size:
            part = os.copy_file_range(self.fd(side, slot), self.fd(side, to_slot), size - done, off + done, to_off + done)
            if part == 0:
                break
            done += part
        return done

    def lock(self, side, slot, how, off, size):
        fcntl.lockf(self.fd(side, slot), how if how == fcntl.LOCK_UN else how | fcntl.LOCK_NB, size, off)

    def flock(self, side, slot, how):
        fcntl.flock(self.fd(side, slot), how | fcntl.LOCK_NB)

    # ---- mappings ----
    def map(self, side, slot, file_slot, writable):
        fd = self.fd(side, file_slot)
        if side == 0:
            self.unmap_all(slot)
            self.maps[slot] = [None, None, [None, None]]
        st = os.fstat(fd)
        if not stat.S_ISREG(st.st_mode):
            raise OSError(errno.ENODEV, 'not a file')
        size = st.st_size
        if size == 0:
            raise OSError(errno.EINVAL, 'empty')
        prot = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        self.maps[slot][2][side] = os.dup(fd)  # to know how far the file reaches
        self.maps[slot][side] = mmap.mmap(fd, size, mmap.MAP_SHARED, prot)

    def unmap_all(self, slot):
        pair = self.maps.pop(slot, None)
        if pair is None:
            return
        for side in (0, 1):
            if pair[side] is not None:
                pair[side].close()
            if pair[2][side] is not None:
                os.close(pair[2][side])

    def reach(self, side, slot):
        pair = self.maps.get(slot)
        if pair is None or pair[side] is None:
            raise OSError(errno.EBADF, 'no mapping')
        return pair[side], min(len(pair[side]), os.fstat(pair[2][side]).st_size)

    def map_write(self, side, slot, off, seed, size):
        mapping, end = self.reach(side, slot)
        data = random.Random(seed).randbytes(size)[:max(0, end - off)]
        try:
            mapping[off:off + len(data)] = data
        except TypeError:
            raise OSError(errno.EACCES, 'read-only mapping') from None
        return len(data)

    def map_ino(self, side, slot):
        return os.fstat(self.maps[slot][2][side]).st_ino

    def map_read(self, side, slot, off, size):
        mapping, end = self.reach(side, slot)
        return hashlib.sha256(mapping[off:min(end, off + size)]).hexdigest()

    def map_sync(self, side, slot):
        mapping, end = self.reach(side, slot)
        if end == len(mapping):
            mapping.flush()

    def unmap(self, side, slot):
        if side == 1:
            self.unmap_all(slot)

    # ---- names ----
    def mkdir(self, side, path, mode):
        os.mkdir(self.at(side, path), mode)

    def rmdir(self, side, path):
        os.rmdir(self.at(side, path))

    def unlink(self, side, path):
        os.unlink(self.at(side, path))

    def rename(self, side, path, to, flags):
        renameat2(self.at(side, path), self.at(side, to), flags)

    def symlink(self, side, target, path):
        os.symlink(target, self.at(side, path))

    def readlink(self, side, path):
        return os.readlink(self.at(side, path))

    def link(self, side, path, to):
        os.link(self.at(side, path), self.at(side, to), follow_symlinks=False)

    def list(self, side, path):
        return sorted(os.listdir(self.at(side, path)))

    def lstat(self, side, path):
        return describe(os.lstat(self.at(side, path)))

    def truncate(self, side, path, size):
        os.truncate(self.at(side, path), size)

    def chmod(self, side, path, mode):
        os.chmod(self.at(side, path), mode)

    def chown(self, side, path, uid, gid):
        os.chown(self.at(side, path), uid, gid, follow_symlinks=False)

    def utime(self, side, path, ns):
        os.utime(self.at(side, path), ns=(ns, ns), follow_symlinks=False)
        return os.lstat(self.at(side, path)).st_mtime_ns

    def save(self, side, path, seed, size):
        """As editors do: a temporary file beside it, synced, renamed over it."""
        temporary = self.at(side, path) + b'~new'
        with open(temporary, 'wb') as file:
            file.write(random.Random(seed).randbytes(size))
            file.flush()
            os.fsync(file.fileno())
        try:
            os.rename(temporary, self.at(side, path))
        except OSError:
            os.unlink(temporary)
            raise

    def xattr_set(self, side, path, name, value, flags):
        os.setxattr(self.at(side, path), name, value, flags, follow_symlinks=False)

    def xattr_get(self, side, path, name):
        return os.getxattr(self.at(side, path), name, follow_symlinks=False)

    def xattr_list(self, side, path):
        return sorted(name for name in os.listxattr(self.at(side, path), follow_symlinks=False) if name.startswith('user.'))

    def xattr_remove(self, side, path, name):
        os.removexattr(self.at(side, path), name, follow_symlinks=False)


def work(roots, pipe):
    os.umask(0)
    worker = Worker(roots)
    while (order := pipe.recv()) is not None:
        pipe.send(worker.run(*order))


class Difference(Exception):
    pass


class Group:
    """Chooses operations, has them done, compares."""

    def __init__(self, roots, seed, options, without):
        self.random = random.Random(seed)
        self.roots = roots
        self.without = without
        self.keep = options.log
        self.mapped = set()  # files, by their inode on the disk, that were written through a mapping
        self.log = []
        self.count = 0
        self.pipes = []
        self.workers = []
        self.choices = [(name, weight) for name, weight in self.WEIGHTS if name not in without]
        for _ in range(options.processes):
            mine, theirs = multiprocessing.Pipe()
            process = multiprocessing.Process(target=work, args=(roots, theirs), daemon=True)
            process.start()
            self.pipes.append(mine)
            self.workers.append(process)

    WEIGHTS = [('open', 14), ('close', 6), ('pread', 8), ('read', 3), ('pwrite', 12), ('write', 8), ('lseek', 3), ('ftruncate', 4),
               ('fallocate', 3), ('fsync', 2), ('fstat', 4), ('fchmod', 1), ('copy_range', 3), ('lock', 3), ('flock', 2),
               ('map', 3), ('map_write', 5), ('map_read', 5), ('map_sync', 1), ('unmap', 1),
               ('mkdir', 4), ('rmdir', 2), ('unlink', 5), ('rename', 8), ('symlink', 2), ('readlink', 2), ('link', 3), ('list', 3),
               ('lstat', 6), ('truncate', 4), ('chmod', 2), ('chown', 2), ('utime', 3), ('save', 4),
               ('xattr_set', 3), ('xattr_get', 2), ('xattr_list', 2), ('xattr_remove', 1)]

    # ---- arguments ----
    def path(self):
        depth = self.random.choice((1, 1, 1, 2, 2, 3))
        parts = [self.random.choice(NAMES) for _ in range(depth)]
        if self.random.random() < 0.005:
            parts[-1] = TOO_LONG
        return b'/'.join(parts)

    def slot(self):
        return self.random.randrange(4)

    def off(self):
        return self.random.choice((0, self.random.randrange(SIZE_MAX), self.random.randrange(20000), 4096 * self.random.randrange(64)))

    def size(self):
        return self.random.choice((0, 1, 4096, self.random.randrange(1, 10000), self.random.randrange(1, 300000)))

    def seed(self):
        return self.random.randrange(1 << 32)

    def mode(self):
        return self.random.choice((0o600, 0o644, 0o755, 0o400, 0o000, 0o4755, 0o2755, 0o1777, 0o777))

    def flags(self):
        flags = self.random.choice((os.O_RDONLY, os.O_RDWR, os.O_RDWR, os.O_RDWR, os.O_WRONLY))
        for flag, chance in ((os.O_CREAT, 0.7), (os.O_EXCL, 0.15), (os.O_TRUNC, 0.15), (os.O_APPEND, 0.2), (os.O_NOFOLLOW, 0.1),
                             (os.O_DIRECTORY, 0.03), (os.O_SYNC, 0.03)):
            if self.random.random() < chance:
                flags |= flag
        # Linux has no meaning for it without O_CREAT, and file systems differ.
        return flags if flags & os.O_CREAT else flags & ~os.O_EXCL

    def arguments(self, op):
        pick = self.random
        return {
            'open': lambda: (self.slot(), self.path(), self.flags(), self.mode()),
            'close': lambda: (self.slot(),),
            'pread': lambda: (self.slot(), self.off(), self.size()),
            'read': lambda: (self.slot(), self.size()),
            'pwrite': lambda: (self.slot(), self.off(), self.seed(), self.size()),
            'write': lambda: (self.slot(), self.seed(), self.size()),
            'lseek': lambda: (self.slot(), self.off(), pick.choice((os.SEEK_SET, os.SEEK_CUR, os.SEEK_END))),
            'ftruncate': lambda: (self.slot(), self.off()),
            # plain, keep size, punch a hole
            'fallocate': lambda: (self.slot(), pick.choice((0, 1, 3)), self.off(), self.size()),
            'fsync': lambda: (self.slot(), pick.random() < 0.5),
            'fstat': lambda: (self.slot(),),
            'fchmod': lambda: (self.slot(), self.mode()),
            'copy_range': lambda: (self.slot(), self.off(), self.slot(), self.off(), self.size()),
            'lock': lambda: (self.slot(), pick.choice((fcntl.LOCK_SH, fcntl.LOCK_EX, fcntl.LOCK_UN)), pick.randrange(100),
                             pick.randrange(50)),
            'flock': lambda: (self.slot(), pick.choice((fcntl.LOCK_SH, fcntl.LOCK_EX, fcntl.LOCK_UN))),
            'map': lambda: (self.slot(), self.slot(), pick.random() < 0.7),
            'map_write': lambda: (self.slot(), self.off(), self.seed(), self.size()),
            'map_read': lambda: (self.slot(), self.off(), self.size()),
            'map_sync': lambda: (self.slot(),),
            'unmap': lambda: (self.slot(),),
            'mkdir': lambda: (self.path(), self.mode()),
            'rmdir': lambda: (self.path(),),
            'unlink': lambda: (self.path(),),
            'rename': lambda: (self.path(), self.path(), pick.choice((0, 0, 0, 1, 2))),
            'symlink': lambda: (pick.choice((b'a', b'nowhere', b'../b', b'c/d', self.path())), self.path()),
            'readlink': lambda: (self.path(),),
            'link': lambda: (self.path(), self.path()),
            'list': lambda: (pick.choice((b'', self.path())),),
            'lstat': lambda: (self.path(),),
            'truncate': lambda: (self.path(), self.off()),
            'chmod': lambda: (self.path(), self.mode()),
            'chown': lambda: (self.path(), pick.choice((-1, 0, 1000)), pick.choice((0, 1000))),
            'utime': lambda: (self.path(), pick.randrange(10 ** 9, 2 * 10 ** 18)),
            'save': lambda: (self.path(), self.seed(), self.size()),
            'xattr_set': lambda: (self.path(), self.xattr(), pick.randbytes(pick.randrange(100)), pick.choice((0, 0, 1, 2))),
            'xattr_get': lambda: (self.path(), self.xattr()),
            'xattr_list': lambda: (self.path(),),
            'xattr_remove': lambda: (self.path(), self.xattr()),
        }[op]()

    def xattr(self):
        return self.random.choice(('user.a', 'user.b', 'user.größe'))

    # ---- steps ----
    def step(self):
        names, weights = zip(*self.choices)
        op = self.random.choices(names, weights)[0]
        args = self.arguments(op)
        who = self.random.randrange(len(self.pipes))
        self.pipes[who].send((op, args))
        self.count += 1
        self.log.append('%d worker %d %s %r' % (self.count, who, op, args))
        del self.log[:-self.keep]
        ours, disk = self.pipes[who].recv()
        self.log[-1] += ' -> %r' % (ours,)
        if ours != disk:
            raise Difference('%s%r: the mount says %r, the disk %r' % (op, args, ours, disk))
        if op == 'map_write' and ours[0] == 'ok':
            self.pipes[who].send(('map_ino', args[:1]))
            self.mapped.add(self.pipes[who].recv()[1][1])
        if self.count % 250 == 0:
            self.compare(b'')

    def compare(self, path):
        """The whole tree below `path`."""
        here = [os.path.join(root, path) for root in self.roots]
        entries = [sorted(os.listdir(one)) for one in here]
        if entries[0] != entries[1]:
            raise Difference('the folder %r has %r, on the disk %r' % (path, entries[0], entries[1]))
        for name in entries[0]:
            below = os.path.join(path, name)
            seen = [os.lstat(os.path.join(root, below)) for root in self.roots]
            self.compare_one(below, seen)
            if stat.S_ISDIR(seen[0].st_mode):
                self.compare(below)

    def compare_one(self, path, seen):
        if describe(seen[0]) != describe(seen[1]):
            raise Difference('%r is %r, on the disk %r' % (path, describe(seen[0]), describe(seen[1])))
        # POSIX lets the time of a write through a mapping come as late as its msync.
        for what in () if seen[1].st_ino in self.mapped else ('st_mtime_ns', 'st_ctime_ns'):
            times = [getattr(one, what) for one in seen]
            if abs(times[0] - times[1]) > TIME_SLACK:
                raise Difference('%r has the %s %d, on the disk %d' % (path, what, times[0], times[1]))
        both = [os.path.join(root, path) for root in self.roots]
        if stat.S_ISREG(seen[0].st_mode) and digest(both[0]) != digest(both[1]):
            raise Difference('%r has other bytes than on the disk' % path)
        if stat.S_ISLNK(seen[0].st_mode) and os.readlink(both[0]) != os.readlink(both[1]):
            raise Difference('%r leads elsewhere' % path)
        if 'xattr_list' not in self.without and Worker(self.roots).run('xattr_list', (path,))[0] != \
                Worker(self.roots).run('xattr_list', (path,))[1]:
            raise Difference('%r has other extended attributes' % path)

    def end(self):
        for pipe in self.pipes:
            pipe.send(None)
        for process in self.workers:
            process.join()
        self.compare(b'')


def run_group(index, options, seed, without, results):
    roots = []
    for top in (options.mount, options.disk):
        root = os.path.join(os.fsencode(top), b'group%d' % index)
        os.mkdir(root)
        roots.append(root)
    group = Group(roots, seed, options, without)
    deadline = time.monotonic() + options.seconds if options.steps is None else None
    try:
        while group.count < options.steps if deadline is None else time.monotonic() < deadline:
            group.step()
        group.end()
    except (Difference, OSError, EOFError) as difference:
        results.put((index, seed, group.count, '%s\nlast operations:\n  %s' % (difference, '\n  '.join(group.log))))
        for process in group.workers:
            process.kill()
        return
    results.put((index, seed, group.count, None))


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument('mount')
    parser.add_argument('disk')
    parser.add_argument('--seed', type=int, default=int(time.time()))
    parser.add_argument('--seconds', type=float, default=10)
    parser.add_argument('--steps', type=int)
    parser.add_argument('--processes', type=int, default=3)
    parser.add_argument('--groups', type=int, default=3)
    parser.add_argument('--log', type=int, default=60, help='how many of the last operations are printed')
    parser.add_argument('--without', default='', help='operations to leave out')
    options = parser.parse_args()
    os.umask(0)
    results = multiprocessing.Queue()
    groups = [multiprocessing.Process(target=run_group, args=(i, options, options.seed + i, options.without.split(','), results))
              for i in range(options.groups)]
    for process in groups:
        process.start()
    bad = 0
    for _ in groups:
        index, seed, count, difference = results.get()
        print('group %d, seed %d: %d operations%s' % (index, seed, count, '' if difference is None else ', DIFFERENT: ' + difference))
        bad += difference is not None
    for process in groups:
        process.join()
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())
