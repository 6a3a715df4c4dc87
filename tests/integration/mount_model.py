"""mount_model.py SEED DIRECTORY SECONDS: random operations on files of a mount, each compared with a model in memory.

Prints the seed, so that a failure can be repeated; ends with 1 at the first difference.
"""
import mmap
import os
import random
import sys
import time


class Model:
    def __init__(self, seed, top):
        self.random = random.Random(seed)
        self.top = os.path.join(top, 'seed%d' % seed)
        self.files = {}
        os.mkdir(self.top)

    def path(self, name):
        return os.path.join(self.top, name)

    def name(self):
        return 'f%d' % self.random.randrange(6)

    def bytes(self, most):
        return self.random.randbytes(self.random.randrange(1, most))

    def known(self):
        return self.random.choice(sorted(self.files)) if self.files else None

    def patch(self, name, off, data):
        have = self.files[name]
        if len(have) < off:
            have += bytes(off - len(have))
        have[off:off + len(data)] = data

    # ---- operations ----
    def save(self):
        name, data = self.name(), self.bytes(200000)
        with open(self.path(name), 'wb') as file:
            file.write(data)
        self.files[name] = bytearray(data)

    def append(self):
        name, data = self.known(), self.bytes(50000)
        with open(self.path(name), 'ab') as file:
            file.write(data)
        self.files[name] += data

    def write_inside(self):
        name, off, data = self.known(), self.random.randrange(300000), self.bytes(30000)
        fd = os.open(self.path(name), os.O_RDWR)
        os.pwrite(fd, data, off)
        self.patch(name, off, data)
        if self.random.random() < 0.2:
            os.fsync(fd)
        if self.random.random() < 0.5:
            assert os.pread(fd, len(self.files[name]) + 1, 0) == bytes(self.files[name]), 'pread ' + name
        os.close(fd)

    def truncate(self):
        name, size = self.known(), self.random.randrange(300000)
        os.truncate(self.path(name), size)
        have = self.files[name]
        self.files[name] = have[:size] + bytes(max(0, size - len(have)))

    def rename(self):
        name, to = self.known(), self.name()
        if name != to:
            os.rename(self.path(name), self.path(to))
            self.files[to] = self.files.pop(name)

    def unlink(self):
        if self.random.random() < 0.3:
            name = self.known()
            os.unlink(self.path(name))
            del self.files[name]

    def map(self):
        name = self.known()
        have = self.files[name]
        if not have:
            return
        off = self.random.randrange(len(have))
        data = self.bytes(5000)[:len(have) - off]
        with open(self.path(name), 'r+b') as file, mmap.mmap(file.fileno(), len(have)) as view:
            view[off:off + len(data)] = data
        self.patch(name, off, data)

    def replace(self):
        name, data = self.name(), self.bytes(5000)
        with open(self.path('new'), 'wb') as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.rename(self.path('new'), self.path(name))
        self.files[name] = bytearray(data)

    # ---- comparisons ----
    def compare(self):
        name = self.known()
        size = os.stat(self.path(name)).st_size
        assert size == len(self.files[name]), 'size of %s: %d, not %d' % (name, size, len(self.files[name]))
        with open(self.path(name), 'rb') as file:
            assert file.read() == bytes(self.files[name]), 'bytes of ' + name

    def compare_names(self):
        assert sorted(os.listdir(self.top)) == sorted(self.files), 'names'

    def step(self):
        always = [self.save, self.replace]
        some = [self.append, self.append, self.write_inside, self.write_inside, self.truncate, self.rename,
                self.unlink, self.map, self.compare, self.compare, self.compare_names]
        self.random.choice(always + some if self.files else always)()


def main():
    seed, top, seconds = int(sys.argv[1]), sys.argv[2], float(sys.argv[3])
    model, steps, end = Model(seed, top), 0, time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            model.step()
            steps += 1
        model.compare_names()
    except AssertionError as error:
        print('seed %d, step %d: %s' % (seed, steps, error))
        return 1
    print('seed %d: %d steps' % (seed, steps))
    return 0


sys.exit(main())
