#include "base/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/scope.h"
#include "base/ulid.h"

#define COPY_CHUNK (256u << 10)

static int
real_openat(int dir, const char *path, int flags, mode_t mode)
{
    return openat(dir, path, flags | O_CLOEXEC, mode);
}

const struct sys_table sys_real = {
    .openat = real_openat,
    .pread = pread,
    .pwrite = pwrite,
    .fdatasync = fdatasync,
    .fsync = fsync,
    .ftruncate = ftruncate,
    .fallocate = fallocate,
    .renameat2 = renameat2,
    .linkat = linkat,
    .unlinkat = unlinkat,
    .mkdirat = mkdirat,
    .fstatvfs = fstatvfs,
};
const struct sys_table *sys = &sys_real;

ssize_t
sys_read_full(int fd, void *data, size_t len, off_t off, struct err *err)
{
    char *to = data;
    size_t done = 0;
    while (done < len) {
        ssize_t got = sys->pread(fd, to + done, len - done, off + (off_t)done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_sys(err, errno, "read");
        if (got == 0)
            break;
        done += (size_t)got;
    }
    return (ssize_t)done;
}

int
sys_write_full(int fd, const void *data, size_t len, off_t off, struct err *err)
{
    const char *from = data;
    size_t done = 0;
    while (done < len) {
        ssize_t put = sys->pwrite(fd, from + done, len - done, off + (off_t)done);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return err_sys(err, errno, "write");
        if (put == 0)
            return err_set(err, ERR_IO, "write: nothing was taken");
        done += (size_t)put;
    }
    return 0;
}

/* Opens the directory that holds `name` and points *base behind its last slash. */
static int
open_parent(int dir, const char *name, const char **base, struct err *err)
{
    const char *slash = strrchr(name, '/');
    scope_free char *parent = slash ? strndup(name, (size_t)(slash - name) + 1) : strdup(".");
    if (!parent)
        return err_nomem(err);
    *base = slash ? slash + 1 : name;
    int fd = sys->openat(dir, parent, O_RDONLY | O_DIRECTORY, 0);
    return fd < 0 ? err_sys(err, errno, "directory of '%s'", name) : fd;
}

static int
write_new_file(int dir, const char *temp, const void *data, size_t len, mode_t mode,
               struct err *err)
{
    scope_fd int fd = sys->openat(dir, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode);
    if (fd < 0)
        return err_sys(err, errno, "create '%s'", temp);
    if (sys_write_full(fd, data, len, 0, err) < 0)
        return -1;
    return sys->fdatasync(fd) < 0 ? err_sys(err, errno, "fdatasync") : 0;
}

int
sys_replace_file(int dir, const char *name, const void *data, size_t len, mode_t mode,
                 struct err *err)
{
    const char *base = NULL;
    char id[ULID_SIZE];
    char temp[ULID_SIZE + 8];
    scope_fd int parent = open_parent(dir, name, &base, err);
    if (parent < 0 || ulid_new(id, err) < 0)
        return -1;
    (void)snprintf(temp, sizeof(temp), ".tmp-%s", id);
    if (write_new_file(parent, temp, data, len, mode, err) < 0)
        goto fail;
    if (sys->renameat2(parent, temp, parent, base, 0) < 0) {
        err_sys(err, errno, "rename");
        goto fail;
    }
    if (sys->fsync(parent) < 0)
        return err_sys(err, errno, "fsync of the directory of '%s'", name);
    return 0;
fail:
    (void)sys->unlinkat(parent, temp, 0);
    return err_wrap(err, "write '%s'", name);
}

int
sys_read_file(int dir, const char *name, size_t max, char **data, size_t *len, struct err *err)
{
    scope_fd int fd = sys->openat(dir, name, O_RDONLY, 0);
    if (fd < 0)
        return err_sys(err, errno, "open '%s'", name);
    /* Read to the end instead of asking for the size: files of /proc have none. One byte more
     * shows "too long". */
    scope_buf buf;
    buf_init(&buf, max < SIZE_MAX ? max + 1 : max);
    struct stat st;
    size_t step = fstat(fd, &st) == 0 && st.st_size > 0 ? (size_t)st.st_size + 1 : 4096;
    for (;;) {
        size_t room = buf.max - buf.len;
        size_t want = step < room ? step : room;
        char *to = buf_reserve(&buf, want, err);
        ssize_t got = to ? sys_read_full(fd, to, want, (off_t)buf.len, err) : -1;
        if (got < 0)
            return err_wrap(err, "read '%s'", name);
        buf_commit(&buf, (size_t)got);
        if (buf.len > max)
            return err_set(err, ERR_TOO_LARGE, "'%s' is longer than %zu bytes", name, max);
        if ((size_t)got < want)
            break;
    }
    *len = buf.len;
    *data = buf_steal(&buf);
    return 0;
}

int
sys_make_dirs(const char *path, mode_t mode, struct err *err)
{
    scope_free char *part = strdup(path);
    if (!part)
        return err_nomem(err);
    for (char *at = part; *at != '\0';) {
        at += strspn(at, "/");
        at += strcspn(at, "/");
        char end = *at;
        *at = '\0';
        if (sys->mkdirat(AT_FDCWD, part, mode) < 0 && errno != EEXIST)
            return err_sys(err, errno, "create directory '%s'", part);
        *at = end;
    }
    struct stat st;
    if (stat(path, &st) < 0)
        return err_sys(err, errno, "directory '%s'", path);
    if (!S_ISDIR(st.st_mode))
        return err_set(err, ERR_NOT_DIR, "'%s' is not a directory", path);
    return 0;
}

static bool
try_reflink(int from, off_t from_off, int to, off_t to_off, uint64_t size)
{
    struct file_clone_range range = {
        .src_fd = from,
        .src_offset = (uint64_t)from_off,
        .src_length = size,
        .dest_offset = (uint64_t)to_off,
    };
    return ioctl(to, FICLONERANGE, &range) == 0;
}

/* Answers how much the kernel copied before it ended or gave up, or -1 for a failure that a
 * plain copy would share. */
static int64_t
kernel_copy(int from, off_t from_off, int to, off_t to_off, uint64_t size)
{
    uint64_t done = 0;
    while (done < size) {
        size_t want = size - done < (1u << 30) ? (size_t)(size - done) : 1u << 30;
        ssize_t got = copy_file_range(from, &from_off, to, &to_off, want, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && (errno == ENOSPC || errno == EDQUOT || errno == EIO || errno == EFBIG))
            return -1;
        if (got <= 0)
            break; /* other file system, or a source (like /proc) that it takes for empty */
        done += (uint64_t)got;
    }
    return (int64_t)done;
}

static int
plain_copy(int from, off_t from_off, int to, off_t to_off, uint64_t size, struct err *err)
{
    scope_free char *chunk = malloc(COPY_CHUNK);
    if (!chunk)
        return err_nomem(err);
    while (size > 0) {
        size_t want = size < COPY_CHUNK ? (size_t)size : COPY_CHUNK;
        ssize_t got = sys_read_full(from, chunk, want, from_off, err);
        if (got < 0)
            return -1;
        if ((size_t)got < want)
            return err_set(err, ERR_IO, "copy: the source ends early");
        if (sys_write_full(to, chunk, want, to_off, err) < 0)
            return -1;
        from_off += (off_t)want;
        to_off += (off_t)want;
        size -= want;
    }
    return 0;
}

int
sys_copy_range(int from, off_t from_off, int to, off_t to_off, uint64_t size, struct err *err)
{
    if (size > INT64_MAX || from_off > (off_t)(INT64_MAX - size) ||
        to_off > (off_t)(INT64_MAX - size))
        return err_set(err, ERR_TOO_LARGE, "copy: range is too large");
    /* A length of 0 would mean "to the end" to FICLONERANGE. */
    if (size == 0 || try_reflink(from, from_off, to, to_off, size))
        return 0;
    int64_t done = kernel_copy(from, from_off, to, to_off, size);
    if (done < 0)
        return err_sys(err, errno, "copy");
    return plain_copy(from, from_off + done, to, to_off + done, size - (uint64_t)done, err);
}

int
sys_boot_id(char out[SYS_BOOT_ID_SIZE], struct err *err)
{
    const char *fake = secure_getenv("HOLDFAST_TEST_BOOT_ID");
    scope_free char *text = NULL;
    size_t len = 0;
    if (!fake &&
        sys_read_file(AT_FDCWD, "/proc/sys/kernel/random/boot_id", 4096, &text, &len, err) < 0)
        return -1;
    const char *id = fake ? fake : text;
    len = strcspn(id, "\n");
    if (len == 0 || len >= SYS_BOOT_ID_SIZE)
        return err_set(err, ERR_INVAL, "'%.*s' is not a boot id", (int)(len < 64 ? len : 64), id);
    memcpy(out, id, len);
    out[len] = '\0';
    return 0;
}
