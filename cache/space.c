#include <errno.h>
#include <inttypes.h>
#include <sys/stat.h>

#include "base/log.h"
#include "cache/cache_impl.h"

/*
 * Room (INV-7). Above the limit, or below the floor of free disk, what is CLEAN goes in the order of its last use, down to
 * nine tenths of the limit, so that the next writers need not wait. Staged bytes stay; when they fill the cache, writers
 * are told before a byte of theirs is accepted.
 */

uint64_t
cache_space_on_disk(const struct stat *st)
{
    return (uint64_t)st->st_blocks * 512;
}

static int
free_bytes(struct cache *cache, uint64_t *out, struct err *err)
{
    struct statvfs vfs;
    if (sys->fstatvfs(cache->dir_fd, &vfs) != 0)
        return err_sys(err, errno, "cannot ask for the free space of the cache");
    *out = (uint64_t)vfs.f_bavail * vfs.f_frsize;
    return 0;
}

/* What stands in the way of `bytes` more. */
struct lack {
    bool limit, floor;
};
/* The high mark is what must hold, the low one the aim of eviction; PROMISE takes the bytes when nothing is lacking, in one
 * step with the test. */
enum mark { HIGH, LOW, PROMISE };

static int
measure(struct cache *cache, uint64_t bytes, enum mark mark, struct lack *out, struct err *err)
{
    uint64_t disk = 0;
    uint64_t max = cache->limits.max_bytes - (mark == LOW ? cache->limits.max_bytes / 10 : 0);
    uint64_t floor = cache->limits.floor_bytes + (mark == LOW ? cache->limits.floor_bytes / 10 : 0);
    if (free_bytes(cache, &disk, err) != 0)
        return -1;
    pthread_mutex_lock(&cache->lock);
    uint64_t used = cache->bytes + cache->promised;
    uint64_t kept = floor + cache->promised;
    out->limit = bytes > 0 && (used > max || bytes > max - used);
    out->floor = bytes > 0 && (disk < kept || bytes > disk - kept);
    if (mark == PROMISE && !out->limit && !out->floor)
        cache->promised += bytes;
    pthread_mutex_unlock(&cache->lock);
    return 0;
}

/* Takes the least recently used candidate off the list; 0: none is left that was not refused in this pass. */
static int64_t
pick(struct cache *cache, uint64_t pass)
{
    int64_t number = 0;
    pthread_mutex_lock(&cache->lock);
    struct entry *entry = cache->oldest;
    if (entry != NULL && entry->asked != pass && cache->evict != NULL) {
        entry->asked = pass;
        cache_table_unlist(cache, entry);
        number = entry->number;
    }
    pthread_mutex_unlock(&cache->lock);
    return number;
}

static void
put_back(struct cache *cache, int64_t number)
{
    pthread_mutex_lock(&cache->lock);
    struct entry *entry = cache_table_find(cache, number);
    if (entry != NULL)
        cache_table_list(cache, entry);
    pthread_mutex_unlock(&cache->lock);
}

static int
evict(struct cache *cache, uint64_t bytes, struct err *err)
{
    struct lack lack;
    unsigned gone = 0;
    pthread_mutex_lock(&cache->lock);
    uint64_t pass = ++cache->pass;
    pthread_mutex_unlock(&cache->lock);
    for (;;) {
        if (measure(cache, bytes, LOW, &lack, err) != 0)
            return -1;
        int64_t number = lack.limit || lack.floor ? pick(cache, pass) : 0;
        if (number == 0)
            break;
        if (!cache->evict(cache->evict_arg, number) || cache_pinned(cache, number)) {
            put_back(cache, number);
            continue;
        }
        cache_remove(cache, number);
        gone++;
    }
    log_debug(cache, "evicted %u files to make room for %" PRIu64 " bytes", gone, bytes);
    return 0;
}

static int
make_room(struct cache *cache, uint64_t bytes, enum mark mark, struct err *err)
{
    struct lack lack;
    if (measure(cache, bytes, mark, &lack, err) != 0)
        return -1;
    if (!lack.limit && !lack.floor)
        return 0;
    if (evict(cache, bytes, err) != 0 || measure(cache, bytes, mark, &lack, err) != 0)
        return -1;
    if (lack.floor)
        return err_set(err, ERR_NO_SPACE,
                       "the disk of the cache '%s/cache' is full but for the %" PRIu64
                       " bytes that stay free: free space there",
                       cache->state_dir, cache->limits.floor_bytes);
    if (lack.limit)
        return err_set(err, ERR_NO_SPACE,
                       "the cache '%s/cache' (%" PRIu64
                       " bytes) is full of files that are in use or not yet in "
                       "the bucket: wait until they are, or give it more room",
                       cache->state_dir, cache->limits.max_bytes);
    return 0;
}

int
cache_space_take(struct cache *cache, uint64_t bytes, struct err *err)
{
    return make_room(cache, bytes, HIGH, err);
}

int
cache_space_promise(struct cache *cache, uint64_t bytes, struct err *err)
{
    return make_room(cache, bytes, PROMISE, err);
}

void
cache_space_settle(struct cache_file *file, uint64_t promised)
{
    struct stat st;
    bool known = fstat(file->fd, &st) == 0;
    pthread_mutex_lock(&file->cache->lock);
    file->cache->promised -= promised;
    if (known)
        cache_table_set_bytes(file->cache, file->entry, cache_space_on_disk(&st));
    pthread_mutex_unlock(&file->cache->lock);
}
