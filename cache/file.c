#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/falloc.h>
#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/log.h"
#include "cache/cache_impl.h"

/* The bytes of one content file. */

int64_t
cache_file_number(const struct cache_file *file)
{
    return file->entry->number;
}

int
cache_file_fd(const struct cache_file *file)
{
    return file->fd;
}

static int
stat_file(struct cache_file *file, struct stat *st, struct err *err)
{
    if (fstat(file->fd, st) == 0)
        return 0;
    return err_sys(err, errno, "content %" PRId64 " of the cache", file->entry->number);
}

int
cache_file_size(struct cache_file *file, uint64_t *size, struct err *err)
{
    struct stat st;
    if (stat_file(file, &st, err) != 0)
        return -1;
    *size = (uint64_t)st.st_size;
    return 0;
}

int
cache_file_reader(struct cache_file *file, int *fd, struct err *err)
{
    char name[CACHE_NAME_SIZE];
    struct stat ours, there;
    cache_name(file->entry->number, CACHE_DATA, name);
    scope_fd int got = sys->openat(file->cache->dir_fd, name, O_RDONLY | O_CLOEXEC, 0);
    if (got < 0)
        return err_sys(err, errno, "content %" PRId64 " of the cache", file->entry->number);
    if (stat_file(file, &ours, err) != 0)
        return -1;
    if (fstat(got, &there) != 0 || ours.st_ino != there.st_ino)
        return err_set(err, ERR_NOT_FOUND, "content %" PRId64 " of the cache was replaced",
                       file->entry->number);
    *fd = steal_fd(&got);
    return 0;
}

void
cache_file_unseen(struct cache_file *file)
{
    cache_running_forbid(&file->running);
}

void
cache_file_stir(struct cache_file *file)
{
    atomic_fetch_add(&file->stirs, 1);
}

uint64_t
cache_file_stirs(struct cache_file *file)
{
    return atomic_load(&file->stirs);
}

void
cache_file_settle(struct cache_file *file)
{
    cache_space_settle(file, 0);
}

bool
cache_in_memory(struct cache *cache)
{
    struct statfs fs;
    return fstatfs(cache->dir_fd, &fs) == 0 &&
           (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC);
}

static int
check_range(uint64_t off, uint64_t len, struct err *err)
{
    if (off <= LIMIT_FILE_SIZE && len <= LIMIT_FILE_SIZE - off)
        return 0;
    return err_set(err, ERR_TOO_LARGE, "a file may have %llu bytes",
                   (unsigned long long)LIMIT_FILE_SIZE);
}

ssize_t
cache_file_read(struct cache_file *file, void *out, size_t len, uint64_t off, struct err *err)
{
    if (off > LIMIT_FILE_SIZE)
        return 0;
    ssize_t got = sys_read_full(file->fd, out, len, (off_t)off, err);
    return got >= 0 ? got : err_wrap(err, "cannot read from the cache");
}

/* How much the file may grow on disk when [off, off+len) is written. Without holes only what lies behind its end. */
static uint64_t
growth(const struct stat *st, uint64_t off, uint64_t len)
{
    uint64_t size = (uint64_t)st->st_size, have = cache_space_on_disk(st);
    if (have < size)
        return len;
    uint64_t end = off + len;
    if (end <= have)
        return 0;
    return off > have ? len : end - have;
}

static int
promise(struct cache_file *file, uint64_t off, uint64_t len, uint64_t *taken, struct err *err)
{
    struct stat st;
    if (check_range(off, len, err) != 0 || stat_file(file, &st, err) != 0)
        return -1;
    *taken = growth(&st, off, len);
    return cache_space_promise(file->cache, *taken, err);
}

int
cache_file_write(struct cache_file *file, const void *data, size_t len, uint64_t off,
                 struct err *err)
{
    uint64_t taken = 0;
    /* A later fill of such a block would put old bytes over these. */
    if (cache_map_touches_missing(file, off, len))
        return err_set(err, ERR_INTERNAL, "a write to bytes of the cache that are not there yet");
    if (promise(file, off, len, &taken, err) != 0)
        return -1;
    cache_running_write(&file->running, data, len, off);
    int rc = sys_write_full(file->fd, data, len, (off_t)off, err);
    if (rc != 0)
        cache_running_stop(&file->running);
    cache_space_settle(file, taken);
    return rc == 0 ? 0 : err_wrap(err, "cannot write to the cache");
}

int
cache_file_truncate(struct cache_file *file, uint64_t size, struct err *err)
{
    if (check_range(size, 0, err) != 0)
        return -1;
    if (sys->ftruncate(file->fd, (off_t)size) != 0)
        return err_sys(err, errno, "cannot change the size of a file in the cache");
    cache_running_truncated(&file->running, size);
    cache_space_settle(file, 0);
    return 0;
}

int
cache_file_allocate(struct cache_file *file, int mode, uint64_t off, uint64_t len, struct err *err)
{
    uint64_t taken = 0;
    bool frees = (mode & FALLOC_FL_PUNCH_HOLE) != 0;
    if (cache_map_touches_missing(file, off, len))
        return err_set(err, ERR_INTERNAL, "a change of bytes of the cache that are not there yet");
    if (frees ? check_range(off, len, err) != 0 : promise(file, off, len, &taken, err) != 0)
        return -1;
    cache_running_stop(&file->running);
    int sys_errno = sys->fallocate(file->fd, mode, (off_t)off, (off_t)len) == 0 ? 0 : errno;
    cache_space_settle(file, taken);
    if (sys_errno == EOPNOTSUPP)
        return err_set(err, ERR_UNSUPPORTED,
                       "the file system of the cache cannot allocate like this");
    return sys_errno == 0 ? 0 : err_sys(err, sys_errno, "cannot allocate space in the cache");
}

ssize_t
cache_file_copy_range(struct cache_file *to, uint64_t to_off, struct cache_file *from,
                      uint64_t from_off, size_t len, struct err *err)
{
    uint64_t taken = 0;
    off_t in = (off_t)from_off, out = (off_t)to_off;
    if (cache_map_touches_missing(to, to_off, len) ||
        cache_map_touches_missing(from, from_off, len))
        return err_set(err, ERR_INTERNAL, "a copy of bytes of the cache that are not there yet");
    if (promise(to, to_off, len, &taken, err) != 0)
        return -1;
    cache_running_stop(&to->running);
    ssize_t done = copy_file_range(from->fd, &in, to->fd, &out, len, 0);
    int sys_errno = errno;
    cache_space_settle(to, taken);
    if (done >= 0)
        return done;
    if (sys_errno == EXDEV || sys_errno == EOPNOTSUPP || sys_errno == ENOSYS || sys_errno == EINVAL)
        return err_set(err, ERR_UNSUPPORTED, "the file system of the cache copies no ranges");
    return err_sys(err, sys_errno, "cannot copy in the cache");
}

int
cache_file_copy(struct cache_file *to, struct cache_file *from, struct err *err)
{
    struct stat st;
    if (stat_file(from, &st, err) != 0)
        return -1;
    uint64_t size = (uint64_t)st.st_size;
    uint64_t taken = cache_space_on_disk(&st) < size ? cache_space_on_disk(&st) : size;
    if (cache_space_promise(to->cache, taken, err) != 0)
        return -1;
    cache_running_stop(&to->running);
    int rc = sys_copy_range(from->fd, 0, to->fd, 0, size, err);
    if (rc == 0 && sys->ftruncate(to->fd, (off_t)size) != 0)
        rc = err_sys(err, errno, "cannot set the size");
    cache_space_settle(to, taken);
    return rc == 0 ? 0 : err_wrap(err, "cannot copy a file in the cache");
}

/* cache/ and cache/xx/ : the names of the file and its meta. */
static int
sync_dirs(struct cache_file *file, struct err *err)
{
    char name[CACHE_NAME_SIZE];
    if (atomic_load(&file->entry->dirs_synced))
        return 0;
    cache_name(file->entry->number, CACHE_DATA, name);
    name[2] = '\0';
    scope_fd int fd = sys->openat(file->cache->dir_fd, name, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0 || sys->fsync(fd) != 0)
        return err_sys(err, errno, "cannot keep the directory 'cache/%s'", name);
    atomic_store(&file->entry->dirs_synced, true);
    return 0;
}

int
cache_file_sync(struct cache_file *file, struct err *err)
{
    struct entry *entry = file->entry;
    if (atomic_load(&entry->failed))
        return err_set(err, ERR_IO,
                       "the disk failed to keep these bytes earlier: save the file anew");
    if (sys->fdatasync(file->fd) != 0)
        err_sys(err, errno, "the disk failed to keep content %" PRId64, entry->number);
    else if (cache_meta_sync(file, err) == 0 && sync_dirs(file, err) == 0)
        return 0;
    atomic_store(&entry->failed, true);
    log_error(cache, "%s", err->msg);
    return -1;
}

/* A large file is hashed by two threads, one for each kind. */
#define HASH_APART (16u << 20)

struct hash_call {
    int fd;
    uint64_t size;
    uint8_t *sha256;
    struct err err;
    int rc;
};

static void *
hash_main(void *arg)
{
    struct hash_call *call = arg;
    call->rc = hash_fd(call->fd, 0, call->size, call->sha256, NULL, &call->err);
    return NULL;
}

static int
hash_apart(int fd, uint64_t size, uint8_t *sha256_out, uint8_t *md5_out, struct err *err)
{
    struct hash_call call = { .fd = fd, .size = size, .sha256 = sha256_out, .err = ERR_INIT };
    pthread_t thread;
    if (pthread_create(&thread, NULL, hash_main, &call) != 0)
        return hash_fd(fd, 0, size, sha256_out, md5_out, err);
    int rc = hash_fd(fd, 0, size, NULL, md5_out, err);
    (void)pthread_join(thread, NULL);
    if (rc == 0 && call.rc != 0)
        *err = call.err;
    return rc == 0 ? call.rc : rc;
}

int
cache_file_hash(struct cache_file *file, uint64_t size, uint8_t sha256_out[SHA256_SIZE],
                uint8_t md5_out[MD5_SIZE], struct err *err)
{
    if (cache_file_hashed(file, size, sha256_out, md5_out))
        return 0;
    return size < HASH_APART ? hash_fd(file->fd, 0, size, sha256_out, md5_out, err)
                             : hash_apart(file->fd, size, sha256_out, md5_out, err);
}
