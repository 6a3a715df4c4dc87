#include <string.h>

#include "cache/cache_impl.h"

/*
 * The hashes of a new file, computed while it is written from its beginning to its end, which is how nearly all files are
 * made: then nothing has to be read again before the upload. Each write that does not begin where the last one ended gives
 * them up for good, until the file is emptied. Of two writes at one place at most one begins at the end, so whatever order they
 * reach the disk in, the hashes are given up.
 */

static void
give_up_locked(struct cache_running *running)
{
    hash_free(running->sha256);
    hash_free(running->md5);
    running->sha256 = running->md5 = NULL;
}

static void
start_locked(struct cache_running *running)
{
    struct err ignored = ERR_INIT;
    give_up_locked(running);
    running->end = 0;
    if (running->forbidden)
        return;
    running->sha256 = hash_new(HASH_SHA256, &ignored);
    running->md5 = hash_new(HASH_MD5, &ignored);
    if (running->sha256 == NULL || running->md5 == NULL)
        give_up_locked(running);
}

void
cache_running_init(struct cache_running *running)
{
    memset(running, 0, sizeof(*running));
    (void)pthread_mutex_init(&running->lock, NULL);
}

void
cache_running_release(struct cache_running *running)
{
    give_up_locked(running);
    (void)pthread_mutex_destroy(&running->lock);
}

void
cache_running_start(struct cache_running *running)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&running->lock);
    (void)held;
    start_locked(running);
}

void
cache_running_stop(struct cache_running *running)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&running->lock);
    (void)held;
    give_up_locked(running);
}

void
cache_running_forbid(struct cache_running *running)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&running->lock);
    (void)held;
    running->forbidden = true;
    give_up_locked(running);
}

void
cache_running_truncated(struct cache_running *running, uint64_t size)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&running->lock);
    (void)held;
    if (size == 0)
        start_locked(running);
    else if (size != running->end)
        give_up_locked(running);
}

void
cache_running_write(struct cache_running *running, const void *data, size_t len, uint64_t off)
{
    struct err ignored = ERR_INIT;
    scope_unlock pthread_mutex_t *held = scope_lock(&running->lock);
    (void)held;
    if (running->sha256 == NULL)
        return;
    if (off != running->end || hash_update(running->sha256, data, len, &ignored) != 0 ||
        hash_update(running->md5, data, len, &ignored) != 0)
        give_up_locked(running);
    else
        running->end += len;
}

bool
cache_file_hashed(struct cache_file *file, uint64_t size, uint8_t sha256_out[SHA256_SIZE],
                  uint8_t md5_out[MD5_SIZE])
{
    struct err ignored = ERR_INIT;
    struct cache_running *running = &file->running;
    scope_unlock pthread_mutex_t *held = scope_lock(&running->lock);
    (void)held;
    return running->sha256 != NULL && running->end == size &&
           hash_peek(running->sha256, sha256_out, &ignored) == 0 &&
           hash_peek(running->md5, md5_out, &ignored) == 0;
}
