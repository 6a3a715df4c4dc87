#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/log.h"
#include "cache/cache_impl.h"

/*
 * A file of real blocks. When the index finds the disk full its blocks are given back, and index and journal live on until
 * there is room again. It is kept open by nobody and has no content of interest.
 */
static const char name[] = "reserve";

/* Blocks for real: where fallocate is not known, zeros are written. */
static int
fill(int fd, uint64_t bytes, struct err *err)
{
    static const char zeros[64 << 10];
    if (bytes == 0 || sys->fallocate(fd, 0, 0, (off_t)bytes) == 0)
        return 0;
    if (errno != EOPNOTSUPP)
        return err_sys(err, errno, "cannot allocate the reserve");
    for (uint64_t off = 0; off < bytes; off += sizeof(zeros)) {
        size_t len = bytes - off < sizeof(zeros) ? (size_t)(bytes - off) : sizeof(zeros);
        if (sys_write_full(fd, zeros, len, (off_t)off, err) != 0)
            return err_wrap(err, "cannot write the reserve");
    }
    return 0;
}

static int
restore_locked(struct cache *cache, struct err *err)
{
    struct stat st;
    scope_fd int fd = sys->openat(cache->state_fd, name, O_RDWR | O_CREAT | O_NOFOLLOW, 0600);
    if (fd < 0 || fstat(fd, &st) != 0)
        return err_sys(err, errno, "cannot open the reserve");
    uint64_t want = cache->limits.reserve_bytes;
    if ((uint64_t)st.st_size > want && sys->ftruncate(fd, (off_t)want) != 0)
        return err_sys(err, errno, "cannot cut the reserve");
    if (fill(fd, want, err) != 0) {
        (void)sys->ftruncate(fd, 0); /* half a reserve would only be in the way */
        return -1;
    }
    cache->reserve_freed = false;
    return 0;
}

int
cache_reserve_restore(struct cache *cache, struct err *err)
{
    struct statvfs vfs;
    scope_unlock pthread_mutex_t *held = scope_lock(&cache->reserve_lock);
    (void)held;
    if (!cache->reserve_freed)
        return 0;
    if (sys->fstatvfs(cache->dir_fd, &vfs) != 0)
        return err_sys(err, errno, "cannot ask for the free space of the cache");
    uint64_t disk = (uint64_t)vfs.f_bavail * vfs.f_frsize;
    if (disk < cache->limits.floor_bytes ||
        disk - cache->limits.floor_bytes < cache->limits.reserve_bytes)
        return err_set(err, ERR_NO_SPACE, "there is no room for the reserve yet");
    return restore_locked(cache, err);
}

void
cache_reserve_free(struct cache *cache)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&cache->reserve_lock);
    (void)held;
    scope_fd int fd = sys->openat(cache->state_fd, name, O_RDWR | O_NOFOLLOW, 0);
    if (fd < 0 || sys->ftruncate(fd, 0) != 0) {
        log_warn(cache, "cannot free the reserve: %s", strerrordesc_np(errno));
        return;
    }
    /* Freed blocks may count only once the change is on disk. */
    (void)sys->fsync(fd);
    cache->reserve_freed = true;
}

/* Opening goes on without a reserve: it is said, and made when there is room. */
void
cache_reserve_init(struct cache *cache)
{
    struct err err = ERR_INIT;
    scope_unlock pthread_mutex_t *held = scope_lock(&cache->reserve_lock);
    (void)held;
    cache->reserve_freed = true;
    if (restore_locked(cache, &err) != 0)
        log_warn(cache, "%s; going on without it until there is room", err.msg);
}
