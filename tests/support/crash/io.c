#include "support/crash/io.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* Every hook calls the kernel itself, so that sanitizers that replace the same functions are not in the way. */

#define HOOK __attribute__((visibility("default")))

enum kind {
#define X(name) KIND_##name,
    CRASH_IO_KINDS(X)
#undef X
        KIND_COUNT
};
static const char *const kind_names[KIND_COUNT] = {
#define X(name) #name,
    CRASH_IO_KINDS(X)
#undef X
};

static struct {
    bool active, nosync, tear, armed;
    char root[PATH_MAX], dir[PATH_MAX];
    size_t root_len, dir_len;
    char report[PATH_MAX];
    int journal;
    bool kill_kind[KIND_COUNT];
    unsigned long kill_at, total, counts[KIND_COUNT]; /* total: of the kinds that kill */
} io = { .journal = -1 };
static pthread_mutex_t io_lock = PTHREAD_MUTEX_INITIALIZER;

static void
take_path(const char *name, char *out, size_t *len)
{
    const char *value = getenv(name);
    if (value != NULL && strlen(value) < PATH_MAX)
        *len = (size_t)snprintf(out, PATH_MAX, "%s", value);
}

static void
take_kinds(const char *kinds)
{
    bool any = kinds == NULL || strcmp(kinds, "any") == 0;
    for (int i = 0; i < KIND_COUNT; i++) {
        io.kill_kind[i] = any;
        size_t len = strlen(kind_names[i]);
        for (const char *at = kinds; !any && at != NULL && *at != '\0';) {
            size_t part = strcspn(at, ",");
            if (part == len && strncmp(at, kind_names[i], len) == 0)
                io.kill_kind[i] = true;
            at += part + (at[part] == ',');
        }
    }
}

__attribute__((constructor)) static void
crash_io_init(void)
{
    const char *value;
    size_t ignored = 0;
    take_path("CRASH_IO_ROOT", io.root, &io.root_len);
    take_path("CRASH_IO_DIR", io.dir, &io.dir_len);
    take_path("CRASH_IO_COUNTS", io.report, &ignored);
    io.nosync = getenv("CRASH_IO_NOSYNC") != NULL;
    io.tear = getenv("CRASH_IO_TEAR") != NULL;
    io.armed = getenv("CRASH_IO_ARMED") != NULL;
    if ((value = getenv("CRASH_IO_KILL")) != NULL)
        io.kill_at = strtoul(value, NULL, 10);
    take_kinds(getenv("CRASH_IO_KIND"));
    value = getenv("CRASH_IO_JOURNAL");
    if (value != NULL && io.dir_len > 0)
        io.journal = (int)syscall(SYS_openat, AT_FDCWD, value,
                                  O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    io.active = io.root_len > 0;
}

HOOK void
crash_io_arm(void)
{
    pthread_mutex_lock(&io_lock);
    io.armed = true;
    pthread_mutex_unlock(&io_lock);
}

HOOK void
crash_io_report(void)
{
    char line[64];
    int fd = (int)syscall(SYS_openat, AT_FDCWD, io.report, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC,
                          0600);
    if (fd < 0)
        return;
    for (int i = 0; i < KIND_COUNT; i++) {
        int len = snprintf(line, sizeof(line), "%s %lu\n", kind_names[i], io.counts[i]);
        (void)!syscall(SYS_write, fd, line, len);
    }
    (void)syscall(SYS_close, fd);
}

HOOK void
crash_io_aim(const char *kinds, unsigned long at)
{
    pthread_mutex_lock(&io_lock);
    take_kinds(kinds);
    io.kill_at = at;
    io.total = 0;
    memset(io.counts, 0, sizeof(io.counts));
    io.armed = true;
    pthread_mutex_unlock(&io_lock);
}

HOOK unsigned long
crash_io_count(const char *kind)
{
    unsigned long count = io.total;
    for (int i = 0; i < KIND_COUNT; i++)
        if (strcmp(kind, kind_names[i]) == 0)
            count = io.counts[i];
    return count;
}

/* ---- paths ---- */

static bool
below(const char *path, const char *dir, size_t len)
{
    return len > 0 && strncmp(path, dir, len) == 0 && (path[len] == '/' || path[len] == '\0');
}

static bool
fd_path(int fd, char *out)
{
    char link[64];
    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    long len = syscall(SYS_readlinkat, AT_FDCWD, link, out, PATH_MAX - 1);
    if (len <= 0)
        return false;
    out[len] = '\0';
    return out[0] == '/';
}

/* True when the descriptor is a file or folder that we watch. */
static bool
watched_fd(int fd, char *path)
{
    return io.active && fd_path(fd, path) && below(path, io.root, io.root_len);
}

static bool
watched_at(int dir, const char *name, char *path)
{
    char base[PATH_MAX] = "";
    if (!io.active)
        return false;
    if (name[0] == '/')
        (void)snprintf(path, PATH_MAX, "%s", name);
    else if (dir == AT_FDCWD ? syscall(SYS_getcwd, base, sizeof(base)) > 0 : fd_path(dir, base))
        (void)snprintf(path, PATH_MAX, "%.*s/%.*s", PATH_MAX / 2, base, PATH_MAX / 2 - 2, name);
    else
        return false;
    return below(path, io.root, io.root_len);
}

/* ---- points and records; the lock is held ---- */

static bool
reached(enum kind kind)
{
    if (!io.armed)
        return false;
    io.counts[kind]++;
    io.total += io.kill_kind[kind];
    return io.kill_kind[kind] && io.total == io.kill_at;
}

static void
die(void)
{
    (void)syscall(SYS_kill, getpid(), SIGKILL);
    for (;;)
        (void)syscall(SYS_pause);
}

static void
point(enum kind kind)
{
    if (reached(kind))
        die();
}

HOOK void
crash_io_event(const char *kind)
{
    pthread_mutex_lock(&io_lock);
    for (int i = 0; i < KIND_COUNT; i++)
        if (strcmp(kind, kind_names[i]) == 0)
            point((enum kind)i);
    pthread_mutex_unlock(&io_lock);
}

static void
put_record(struct crash_io_record *record, const char *path1, const char *path2, const void *data,
           size_t len)
{
    const char *rel1 = path1 == NULL ? "" : path1 + io.dir_len,
               *rel2 = path2 == NULL ? "" : path2 + io.dir_len;
    rel1 += *rel1 == '/';
    rel2 += *rel2 == '/';
    record->magic = CRASH_IO_MAGIC;
    record->len1 = (uint16_t)strlen(rel1);
    record->len2 = (uint16_t)strlen(rel2);
    union {
        const void *from;
        void *to;
    } cast[3] = { { .from = rel1 }, { .from = rel2 }, { .from = data } };
    struct iovec part[4] = { { record, sizeof(*record) },
                             { cast[0].to, record->len1 },
                             { cast[1].to, record->len2 },
                             { cast[2].to, len } };
    (void)!syscall(SYS_writev, io.journal, part, 4);
}

static bool
journaled(const char *path)
{
    return io.journal >= 0 && below(path, io.dir, io.dir_len);
}

static uint64_t
ino_of_fd(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 ? st.st_ino : 0;
}

static void
record_fd(enum crash_io_op op, int fd, const char *path, uint64_t len)
{
    struct crash_io_record record = { .op = (uint8_t)op, .ino = ino_of_fd(fd), .len = len };
    if (journaled(path))
        put_record(&record, NULL, NULL, NULL, 0);
}

static void
record_paths(enum crash_io_op op, const char *path1, const char *path2, uint64_t flags, bool dir)
{
    struct crash_io_record record = { .op = (uint8_t)op, .off = flags, .dir = dir };
    if (journaled(path1))
        put_record(&record, path1, path2, NULL, 0);
}

static void
record_create(const char *path, bool dir)
{
    struct stat st;
    struct crash_io_record record = { .op = CRASH_IO_CREATE, .dir = dir };
    if (!journaled(path) || stat(path, &st) != 0)
        return;
    record.ino = st.st_ino;
    put_record(&record, path, NULL, NULL, 0);
}

static void
record_write(int fd, const char *path, uint64_t off, const void *data, size_t len)
{
    struct crash_io_record record = {
        .op = CRASH_IO_WRITE, .ino = ino_of_fd(fd), .off = off, .len = len
    };
    if (journaled(path))
        put_record(&record, NULL, NULL, data, len);
}

/* What is in the file now, for calls whose bytes we do not see. */
static void
record_range(int fd, const char *path, uint64_t off, uint64_t len)
{
    char buf[65536];
    while (len > 0 && journaled(path)) {
        long got = syscall(SYS_pread64, fd, buf, len < sizeof(buf) ? len : sizeof(buf), off);
        if (got <= 0)
            return;
        record_write(fd, path, off, buf, (size_t)got);
        off += (uint64_t)got;
        len -= (uint64_t)got;
    }
}

/* ---- opening ---- */

static int
hook_open(int dir, const char *name, int flags, mode_t mode)
{
    char path[PATH_MAX];
    struct stat st;
    if ((flags & (O_CREAT | O_TRUNC)) == 0 || !watched_at(dir, name, path))
        return (int)syscall(SYS_openat, dir, name, flags, mode);
    pthread_mutex_lock(&io_lock);
    bool existed = stat(path, &st) == 0;
    if (!existed || (flags & O_TRUNC) != 0)
        point(existed ? KIND_truncate : KIND_create);
    int fd = (int)syscall(SYS_openat, dir, name, flags, mode);
    int saved = errno;
    if (fd >= 0 && !existed)
        record_create(path, false);
    else if (fd >= 0 && (flags & O_TRUNC) != 0)
        record_fd(CRASH_IO_SIZE, fd, path, 0);
    pthread_mutex_unlock(&io_lock);
    errno = saved;
    return fd;
}

static mode_t
open_mode(int flags, va_list args)
{
    return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(args, mode_t) : 0;
}

#define OPEN_HOOK(name)                                \
    HOOK int name(const char *path, int flags, ...);   \
    HOOK int name(const char *path, int flags, ...)    \
    {                                                  \
        va_list args;                                  \
        va_start(args, flags);                         \
        mode_t mode = open_mode(flags, args);          \
        va_end(args);                                  \
        return hook_open(AT_FDCWD, path, flags, mode); \
    }
#define OPENAT_HOOK(name)                                     \
    HOOK int name(int dir, const char *path, int flags, ...); \
    HOOK int name(int dir, const char *path, int flags, ...)  \
    {                                                         \
        va_list args;                                         \
        va_start(args, flags);                                \
        mode_t mode = open_mode(flags, args);                 \
        va_end(args);                                         \
        return hook_open(dir, path, flags, mode);             \
    }
OPEN_HOOK(open)
OPEN_HOOK(open64)
OPENAT_HOOK(openat)
OPENAT_HOOK(openat64)

/* ---- bytes ---- */

static long
raw_write(int fd, const void *data, size_t len, int64_t off)
{
    return off < 0 ? syscall(SYS_write, fd, data, len) : syscall(SYS_pwrite64, fd, data, len, off);
}

/* The header of a frame that ends a transaction says how large the database is (SQLite's file format, 4.1). The index writes whole
 * frames, several at once (versioning/index_vfs.c). */
static bool
is_commit(const char *path, const void *data, size_t len)
{
    static const uint8_t none[4];
    const size_t header = 24, frame = header + 4096;
    const uint8_t *bytes = data;
    size_t path_len = strlen(path);
    if (path_len < 4 || strcmp(path + path_len - 4, "-wal") != 0 || len == 0)
        return false;
    if (len % frame == 0)
        bytes += len - frame;
    else if (len != header)
        return false;
    return memcmp(bytes + 4, none, sizeof(none)) != 0;
}

/* `off` -1: at the file's own position. */
static ssize_t
hook_write(int fd, const void *data, size_t len, int64_t off)
{
    char path[PATH_MAX];
    if (!watched_fd(fd, path))
        return raw_write(fd, data, len, off);
    pthread_mutex_lock(&io_lock);
    if (reached(is_commit(path, data, len) ? KIND_commit : KIND_write)) {
        if (io.tear)
            (void)raw_write(fd, data, len / 2, off);
        die();
    }
    long done = raw_write(fd, data, len, off);
    int saved = errno;
    long at = off < 0 ? syscall(SYS_lseek, fd, 0, SEEK_CUR) - (done > 0 ? done : 0) : off;
    if (done > 0 && at >= 0)
        record_write(fd, path, (uint64_t)at, data, (size_t)done);
    pthread_mutex_unlock(&io_lock);
    errno = saved;
    return done;
}

HOOK ssize_t
write(int fd, const void *data, size_t len)
{
    return hook_write(fd, data, len, -1);
}

/* This file is compiled without _FILE_OFFSET_BITS=64, which would make one name of both. */
HOOK ssize_t
pwrite(int fd, const void *data, size_t len, off_t off)
{
    return hook_write(fd, data, len, off);
}

HOOK ssize_t
pwrite64(int fd, const void *data, size_t len, off64_t off)
{
    return hook_write(fd, data, len, off);
}

static int
hook_truncate(int fd, int64_t size)
{
    char path[PATH_MAX];
    if (!watched_fd(fd, path))
        return (int)syscall(SYS_ftruncate, fd, size);
    pthread_mutex_lock(&io_lock);
    point(KIND_truncate);
    int rc = (int)syscall(SYS_ftruncate, fd, size);
    int saved = errno;
    if (rc == 0)
        record_fd(CRASH_IO_SIZE, fd, path, (uint64_t)size);
    pthread_mutex_unlock(&io_lock);
    errno = saved;
    return rc;
}

HOOK int
ftruncate(int fd, off_t size)
{
    return hook_truncate(fd, size);
}

HOOK int
ftruncate64(int fd, off64_t size)
{
    return hook_truncate(fd, size);
}

static int
hook_allocate(int fd, int mode, int64_t off, int64_t len)
{
    char path[PATH_MAX];
    struct stat st;
    if (!watched_fd(fd, path))
        return (int)syscall(SYS_fallocate, fd, mode, off, len);
    pthread_mutex_lock(&io_lock);
    point(KIND_allocate);
    int rc = (int)syscall(SYS_fallocate, fd, mode, off, len);
    int saved = errno;
    if (rc == 0 && (mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE)) != 0)
        record_range(fd, path, (uint64_t)off, (uint64_t)len);
    if (rc == 0 && (mode & FALLOC_FL_KEEP_SIZE) == 0 && fstat(fd, &st) == 0)
        record_fd(CRASH_IO_SIZE, fd, path, (uint64_t)st.st_size);
    pthread_mutex_unlock(&io_lock);
    errno = saved;
    return rc;
}

HOOK int
fallocate(int fd, int mode, off_t off, off_t len)
{
    return hook_allocate(fd, mode, off, len);
}

HOOK int
fallocate64(int fd, int mode, off64_t off, off64_t len)
{
    return hook_allocate(fd, mode, off, len);
}

HOOK ssize_t
copy_file_range(int from, off64_t *from_off, int to, off64_t *to_off, size_t len, unsigned flags)
{
    char path[PATH_MAX];
    if (!watched_fd(to, path) || to_off == NULL)
        return syscall(SYS_copy_file_range, from, from_off, to, to_off, len, flags);
    pthread_mutex_lock(&io_lock);
    point(KIND_copy);
    off64_t at = *to_off;
    long done = syscall(SYS_copy_file_range, from, from_off, to, to_off, len, flags);
    int saved = errno;
    if (done > 0)
        record_range(to, path, (uint64_t)at, (uint64_t)done);
    pthread_mutex_unlock(&io_lock);
    errno = saved;
    return done;
}

/* Reflinks are refused below the watched directory: callers fall back to copies that we see. */
HOOK int
ioctl(int fd, unsigned long request, ...)
{
    char path[PATH_MAX];
    va_list args;
    va_start(args, request);
    void *arg = va_arg(args, void *);
    va_end(args);
    if ((request == FICLONE || request == FICLONERANGE) && watched_fd(fd, path)) {
        errno = EOPNOTSUPP;
        return -1;
    }
    return (int)syscall(SYS_ioctl, fd, request, arg);
}

/* ---- durability ---- */

static int
hook_sync(int fd, enum kind kind, long number)
{
    char path[PATH_MAX];
    if (!watched_fd(fd, path))
        return (int)syscall(number, fd);
    pthread_mutex_lock(&io_lock);
    point(kind);
    int rc = io.nosync ? 0 : (int)syscall(number, fd);
    int saved = errno;
    if (rc == 0)
        record_fd(number == SYS_syncfs ? CRASH_IO_SYNC_ALL : CRASH_IO_SYNC, fd, path, 0);
    pthread_mutex_unlock(&io_lock);
    errno = saved;
    return rc;
}

HOOK int
fsync(int fd)
{
    return hook_sync(fd, KIND_fsync, SYS_fsync);
}

HOOK int
fdatasync(int fd)
{
    return hook_sync(fd, KIND_fdatasync, SYS_fdatasync);
}

HOOK int
syncfs(int fd)
{
    return hook_sync(fd, KIND_fsync, SYS_syncfs);
}

/* ---- names ---- */

HOOK int
renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    char path1[PATH_MAX], path2[PATH_MAX];
    if (!watched_at(from_dir, from, path1) || !watched_at(to_dir, to, path2))
        return (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, flags);
    pthread_mutex_lock(&io_lock);
    point(KIND_rename);
    int rc = (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, flags);
    int saved = errno;
    if (rc == 0)
        record_paths(CRASH_IO_RENAME, path1, path2, flags, false);
    pthread_mutex_unlock(&io_lock);
    errno = saved;
    return rc;
}

HOOK int
renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    return renameat2(from_dir, from, to_dir, to, 0);
}

HOOK int
rename(const char *from, const char *to)
{
    return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0);
}

HOOK int
linkat(int from_dir, const char *from, int to_dir, const char *to, int flags)
{
    char path[PATH_MAX];
    struct stat st;
    if (!watched_at(to_dir, to, path))
        return (int)syscall(SYS_linkat, from_dir, from, to_dir, to, flags);
    pthread_mutex_lock(&io_lock);
    point(KIND_link);
    int rc = (int)syscall(SYS_linkat, from_dir, from, to_dir, to, flags);
    int saved = errno;
    if (rc == 0 && journaled(path) && stat(path, &st) == 0) {
        struct crash_io_record record = { .op = CRASH_IO_LINK, .ino = st.st_ino };
        put_record(&record, NULL, path, NULL, 0);
    }
    pthread_mutex_unlock(&io_lock);
    errno = saved;
    return rc;
}

HOOK int
unlinkat(int dir, const char *name, int flags)
{
    char path[PATH_MAX];
    if (!watched_at(dir, name, path))
        return (int)syscall(SYS_unlinkat, dir, name, flags);
    pthread_mutex_lock(&io_lock);
    point(KIND_unlink);
    int rc = (int)syscall(SYS_unlinkat, dir, name, flags);
    int saved = errno;
    if (rc == 0)
        record_paths(CRASH_IO_UNLINK, path, NULL, 0, (flags & AT_REMOVEDIR) != 0);
    pthread_mutex_unlock(&io_lock);
    errno = saved;
    return rc;
}

HOOK int
unlink(const char *name)
{
    return unlinkat(AT_FDCWD, name, 0);
}

HOOK int
rmdir(const char *name)
{
    return unlinkat(AT_FDCWD, name, AT_REMOVEDIR);
}

HOOK int
mkdirat(int dir, const char *name, mode_t mode)
{
    char path[PATH_MAX];
    if (!watched_at(dir, name, path))
        return (int)syscall(SYS_mkdirat, dir, name, mode);
    pthread_mutex_lock(&io_lock);
    point(KIND_mkdir);
    int rc = (int)syscall(SYS_mkdirat, dir, name, mode);
    int saved = errno;
    if (rc == 0)
        record_create(path, true);
    pthread_mutex_unlock(&io_lock);
    errno = saved;
    return rc;
}

HOOK int
mkdir(const char *name, mode_t mode)
{
    return mkdirat(AT_FDCWD, name, mode);
}
