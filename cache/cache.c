#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "cache/cache_impl.h"

/* Opening the cache, and the life of its content files. */

void
cache_name(int64_t number, enum cache_part part, char out[CACHE_NAME_SIZE])
{
    static const char *const ends[] = { [CACHE_DATA] = "", [CACHE_MAP] = ".map" };
    (void)snprintf(out, CACHE_NAME_SIZE, "%02x/%" PRId64 "%s", (unsigned)(number & 0xff), number,
                   ends[part]);
}

/* ---- opening ---- */
static int
open_directory(int at, const char *name, int *fd, struct err *err)
{
    *fd = sys->openat(at, name, O_RDONLY | O_DIRECTORY, 0);
    return *fd >= 0 ? 0 : err_sys(err, errno, "cannot open the directory '%s'", name);
}

/* All 256 at once: then only the last directory has to be synced with a file. */
static int
make_directories(struct cache *cache, struct err *err)
{
    bool made = false;
    for (unsigned i = 0; i < 256; i++) {
        char name[4];
        (void)snprintf(name, sizeof(name), "%02x", i & 0xff);
        if (sys->mkdirat(cache->dir_fd, name, 0700) == 0)
            made = true;
        else if (errno != EEXIST)
            return err_sys(err, errno, "cannot make the directory 'cache/%s'", name);
    }
    if (made && (sys->fsync(cache->dir_fd) != 0 || sys->fsync(cache->state_fd) != 0))
        return err_sys(err, errno, "cannot keep the directory 'cache'");
    return 0;
}

static int
open_directories(struct cache *cache, const char *state_dir, struct err *err)
{
    static const char *const names[] = { "cache", "lost" };
    if (open_directory(AT_FDCWD, state_dir, &cache->state_fd, err) != 0)
        return -1;
    for (unsigned i = 0; i < 2; i++) {
        if (sys->mkdirat(cache->state_fd, names[i], 0700) != 0 && errno != EEXIST)
            return err_sys(err, errno, "cannot make the directory '%s/%s'", state_dir, names[i]);
    }
    if (open_directory(cache->state_fd, "cache", &cache->dir_fd, err) != 0 ||
        open_directory(cache->state_fd, "lost", &cache->lost_fd, err) != 0)
        return -1;
    return make_directories(cache, err);
}

static int
set_limits(struct cache *cache, const struct cache_limits *limits, struct err *err)
{
    struct statvfs vfs;
    cache->limits = *limits;
    if (limits->max_bytes > 0)
        return 0;
    if (sys->fstatvfs(cache->dir_fd, &vfs) != 0)
        return err_sys(err, errno, "cannot ask for the size of the cache's file system");
    cache->limits.max_bytes = (uint64_t)vfs.f_blocks * vfs.f_frsize / 10 * 8;
    return 0;
}

struct cache *
cache_open(const char *state_dir, const struct cache_limits *limits, struct err *err)
{
    struct cache *cache = calloc(1, sizeof(*cache));
    if (cache == NULL) {
        err_nomem(err);
        return NULL;
    }
    cache->state_fd = cache->dir_fd = cache->lost_fd = cache->metas_fd = -1;
    (void)pthread_mutex_init(&cache->lock, NULL);
    (void)pthread_mutex_init(&cache->reserve_lock, NULL);
    (void)pthread_mutex_init(&cache->gone_lock, NULL);
    cache->state_dir = strdup(state_dir);
    if (cache->state_dir == NULL) {
        err_nomem(err);
        cache_close(cache);
        return NULL;
    }
    if (cache_table_init(cache, err) != 0 || open_directories(cache, state_dir, err) != 0 ||
        set_limits(cache, limits, err) != 0 || sys_boot_id(cache->boot_id, err) != 0 ||
        cache_scan_load(cache, err) != 0 || cache_meta_load(cache, err) != 0) {
        cache_close(cache);
        return NULL;
    }
    cache_reserve_init(cache);
    cache_lost_sweep(cache);
    return cache;
}

void
cache_close(struct cache *cache)
{
    if (cache == NULL)
        return;
    cache_table_release(cache);
    cache_meta_unload(cache);
    scope_close_fd(&cache->state_fd);
    scope_close_fd(&cache->dir_fd);
    scope_close_fd(&cache->lost_fd);
    (void)pthread_mutex_destroy(&cache->lock);
    (void)pthread_mutex_destroy(&cache->reserve_lock);
    (void)pthread_mutex_destroy(&cache->gone_lock);
    free(cache->state_dir);
    free(cache);
}

void
cache_on_evict(struct cache *cache, cache_evict_fn *fn, void *arg)
{
    pthread_mutex_lock(&cache->lock);
    cache->evict = fn;
    cache->evict_arg = arg;
    pthread_mutex_unlock(&cache->lock);
}

void
cache_on_gone(struct cache *cache, cache_gone_fn *fn, void *arg)
{
    pthread_mutex_lock(&cache->gone_lock);
    cache->gone = fn;
    cache->gone_arg = arg;
    pthread_mutex_unlock(&cache->gone_lock);
}

static void
tell_gone(struct cache *cache, int64_t number)
{
    pthread_mutex_lock(&cache->gone_lock);
    if (cache->gone != NULL)
        cache->gone(cache->gone_arg, number);
    pthread_mutex_unlock(&cache->gone_lock);
}

/* ---- content files ---- */
static struct cache_file *
attach(struct cache *cache, struct entry *entry, int fd, struct err *err)
{
    struct cache_file *file = calloc(1, sizeof(*file));
    if (file == NULL) {
        err_nomem(err);
        return NULL;
    }
    file->cache = cache;
    file->entry = entry;
    file->refs = 1;
    file->fd = fd;
    (void)pthread_mutex_init(&file->map_lock, NULL);
    (void)pthread_mutex_init(&file->meta_lock, NULL);
    cache_running_init(&file->running);
    entry->file = file;
    cache_table_list(cache, entry); /* in use: off the list */
    return file;
}

static struct cache_file *
create_locked(struct cache *cache, int64_t number, bool staged, uint32_t pair, struct err *err)
{
    char name[CACHE_NAME_SIZE];
    cache_name(number, CACHE_DATA, name);
    if (cache_table_find(cache, number) != NULL) {
        err_set(err, ERR_EXISTS, "content %" PRId64 " is in the cache already", number);
        return NULL;
    }
    scope_fd int fd =
        sys->openat(cache->dir_fd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
    if (fd < 0) {
        err_sys(err, errno, "cannot make 'cache/%s'", name);
        return NULL;
    }
    struct entry *entry = cache_table_add(cache, number);
    struct cache_file *file = entry != NULL ? attach(cache, entry, fd, err) : NULL;
    if (file == NULL) {
        if (entry == NULL)
            err_nomem(err);
        else
            cache_table_remove(cache, entry);
        (void)sys->unlinkat(cache->dir_fd, name, 0);
        return NULL;
    }
    (void)steal_fd(&fd);
    entry->pair = pair;
    cache_table_set_pinned(cache, entry, staged);
    return file;
}

struct cache_file *
cache_create(struct cache *cache, int64_t number, const struct cache_meta *meta, bool staged,
             struct err *err)
{
    pthread_mutex_lock(&cache->lock);
    bool taken = cache_table_find(cache, number) != NULL;
    pthread_mutex_unlock(&cache->lock);
    if (number <= 0 || taken) { /* before its meta would be written over */
        err_set(err, ERR_EXISTS, "content %" PRId64 " is in the cache already", number);
        return NULL;
    }
    uint32_t pair = meta != NULL ? cache_meta_create(cache, number, meta, err) : 0;
    if (meta != NULL && pair == 0)
        return NULL;
    pthread_mutex_lock(&cache->lock);
    struct cache_file *file = create_locked(cache, number, staged, pair, err);
    pthread_mutex_unlock(&cache->lock);
    if (file == NULL) {
        cache_meta_abandon(cache, pair);
        return NULL;
    }
    if (staged)
        cache_running_start(&file->running);
    file->meta_known = pair != 0; /* in slot 0, not synced */
    return file;
}

static struct cache_file *
get_locked(struct cache *cache, int64_t number, struct err *err)
{
    char name[CACHE_NAME_SIZE];
    struct entry *entry = cache_table_find(cache, number);
    if (entry == NULL) {
        err_set(err, ERR_NOT_FOUND, "content %" PRId64 " is not in the cache", number);
        return NULL;
    }
    if (entry->file != NULL) {
        entry->file->refs++;
        return entry->file;
    }
    cache_name(number, CACHE_DATA, name);
    scope_fd int fd = sys->openat(cache->dir_fd, name, O_RDWR | O_NOFOLLOW, 0);
    if (fd < 0) {
        err_sys(err, errno, "cannot open 'cache/%s'", name);
        return NULL;
    }
    struct cache_file *file = attach(cache, entry, fd, err);
    if (file != NULL)
        (void)steal_fd(&fd);
    return file;
}

struct cache_file *
cache_get(struct cache *cache, int64_t number, struct err *err)
{
    pthread_mutex_lock(&cache->lock);
    struct cache_file *file = get_locked(cache, number, err);
    pthread_mutex_unlock(&cache->lock);
    return file;
}

struct cache_file *
cache_ref(struct cache_file *file)
{
    pthread_mutex_lock(&file->cache->lock);
    file->refs++;
    pthread_mutex_unlock(&file->cache->lock);
    return file;
}

void
cache_put(struct cache_file *file)
{
    struct stat st;
    if (file == NULL)
        return;
    struct cache *cache = file->cache;
    pthread_mutex_lock(&cache->lock);
    bool last = --file->refs == 0;
    if (last) {
        /* Passthrough and mmap writes were not counted. */
        if (fstat(file->fd, &st) == 0)
            cache_table_set_bytes(cache, file->entry, cache_space_on_disk(&st));
        cache_table_unuse(cache, file->entry);
    }
    pthread_mutex_unlock(&cache->lock);
    if (!last)
        return;
    (void)close(file->fd);
    cache_map_release(file);
    (void)pthread_mutex_destroy(&file->map_lock);
    (void)pthread_mutex_destroy(&file->meta_lock);
    cache_running_release(&file->running);
    free(file);
}

/* ---- pins and use ---- */
static void
set_pinned(struct cache *cache, int64_t number, bool pinned)
{
    pthread_mutex_lock(&cache->lock);
    struct entry *entry = cache_table_find(cache, number);
    if (entry != NULL)
        cache_table_set_pinned(cache, entry, pinned);
    pthread_mutex_unlock(&cache->lock);
}

void
cache_pin(struct cache *cache, int64_t number)
{
    set_pinned(cache, number, true);
}

void
cache_unpin(struct cache *cache, int64_t number)
{
    set_pinned(cache, number, false);
}

void
cache_clean(struct cache *cache, int64_t number)
{
    pthread_mutex_lock(&cache->lock);
    struct entry *entry = cache_table_find(cache, number);
    if (entry != NULL) {
        uint32_t pair = entry->pair;
        cache_table_set_pinned(cache, entry, false);
        cache_meta_unpair(cache, entry);
        if (pair != 0 && entry->pair == 0)
            cache_meta_void(cache, pair);
    }
    pthread_mutex_unlock(&cache->lock);
}

bool
cache_pinned(struct cache *cache, int64_t number)
{
    pthread_mutex_lock(&cache->lock);
    const struct entry *entry = cache_table_find(cache, number);
    bool pinned = entry != NULL && entry->pinned;
    pthread_mutex_unlock(&cache->lock);
    return pinned;
}

void
cache_touch(struct cache *cache, int64_t number)
{
    pthread_mutex_lock(&cache->lock);
    struct entry *entry = cache_table_find(cache, number);
    if (entry != NULL && entry->listed)
        cache_table_list(cache, entry);
    pthread_mutex_unlock(&cache->lock);
}

/* True when the name is gone. */
static bool
unlink_part(struct cache *cache, int64_t number, enum cache_part part)
{
    char name[CACHE_NAME_SIZE];
    cache_name(number, part, name);
    if (sys->unlinkat(cache->dir_fd, name, 0) == 0 || errno == ENOENT)
        return true;
    log_warn(cache, "cannot remove 'cache/%s': %s", name, strerrordesc_np(errno));
    return false;
}

void
cache_forget(struct cache *cache, int64_t number)
{
    pthread_mutex_lock(&cache->lock);
    struct entry *entry = cache_table_find(cache, number);
    (void)unlink_part(cache, number, CACHE_MAP);
    if (entry != NULL)
        cache_table_remove(cache, entry);
    pthread_mutex_unlock(&cache->lock);
}

void
cache_remove(struct cache *cache, int64_t number)
{
    pthread_mutex_lock(&cache->lock);
    struct entry *entry = cache_table_find(cache, number);
    /* The content file goes first: without it the others say nothing. What cannot be removed stays counted. */
    bool gone = unlink_part(cache, number, CACHE_DATA);
    if (!gone && entry != NULL)
        cache_table_list(cache, entry);
    pthread_mutex_unlock(&cache->lock);
    if (!gone)
        return;
    cache_forget(cache, number);
    tell_gone(cache, number);
}

void
cache_usage(struct cache *cache, struct cache_usage *out)
{
    struct statvfs vfs;
    memset(out, 0, sizeof(*out));
    if (sys->fstatvfs(cache->dir_fd, &vfs) == 0)
        out->free_bytes = (uint64_t)vfs.f_bavail * vfs.f_frsize;
    pthread_mutex_lock(&cache->lock);
    out->files = cache->files;
    out->bytes = cache->bytes;
    out->pinned_files = cache->pinned_files;
    out->pinned_bytes = cache->pinned_bytes;
    pthread_mutex_unlock(&cache->lock);
    out->max_bytes = cache->limits.max_bytes;
    out->floor_bytes = cache->limits.floor_bytes;
    pthread_mutex_lock(&cache->reserve_lock);
    out->reserve_freed = cache->reserve_freed;
    pthread_mutex_unlock(&cache->reserve_lock);
}
