#include "mount/past_cache.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/scope.h"

#define MAX_KEPT 16u
#define MAX_ENTRIES 2000000u /* of all together: some 300 bytes each */
#define MAX_MAKERS 2u
#define UNUSED (180 * NS_PER_S)

struct past_kept {
    struct past_kept *next; /* last used first */
    int64_t volume, at_ns;
    struct volume_past *past; /* NULL: it is being made */
    size_t count;
    unsigned refs;
    int64_t used_ns;
};

struct past_cache {
    struct volume_service *volumes;
    pthread_mutex_t mutex;
    struct past_kept *list;
    struct past_waiter *waiters;
    unsigned makers;
};

struct past_cache *
past_cache_new(struct volume_service *volumes, struct err *err)
{
    struct past_cache *cache = calloc(1, sizeof(*cache));
    if (!cache) {
        err_nomem(err);
        return NULL;
    }
    cache->volumes = volumes;
    pthread_mutex_init(&cache->mutex, NULL);
    return cache;
}

static void
free_list(struct past_kept *list)
{
    for (struct past_kept *next; list; list = next) {
        next = list->next;
        volume_past_close(list->past);
        free(list);
    }
}

void
past_cache_free(struct past_cache *cache)
{
    if (!cache)
        return;
    free_list(cache->list);
    pthread_mutex_destroy(&cache->mutex);
    free(cache);
}

/* ---- too many, or unused ---- */

/* Takes what has to go out of the list: from the first on that is one too many. */
static struct past_kept *
take_excess_locked(struct past_cache *cache, int64_t now)
{
    struct past_kept *out = NULL;
    size_t seen = 0, entries = 0;
    for (struct past_kept **at = &cache->list; *at;) {
        struct past_kept *kept = *at;
        seen++;
        entries += kept->count;
        bool excess = now - kept->used_ns > UNUSED ||
                      (seen > 1 && (seen > MAX_KEPT || entries > MAX_ENTRIES));
        if (!excess || kept->refs > 0) {
            at = &kept->next;
            continue;
        }
        *at = kept->next;
        kept->next = out;
        out = kept;
    }
    return out;
}

void
past_cache_sweep(struct past_cache *cache)
{
    pthread_mutex_lock(&cache->mutex);
    struct past_kept *gone = take_excess_locked(cache, clock_mono_ns());
    pthread_mutex_unlock(&cache->mutex);
    free_list(gone);
}

/* ---- found ---- */

/* Moved to the front. */
static struct past_kept *
find_locked(struct past_cache *cache, int64_t volume, int64_t at_ns)
{
    for (struct past_kept **at = &cache->list; *at; at = &(*at)->next) {
        struct past_kept *kept = *at;
        if (kept->volume != volume || kept->at_ns != at_ns)
            continue;
        *at = kept->next;
        kept->next = cache->list;
        cache->list = kept;
        return kept;
    }
    return NULL;
}

static struct past_kept *
take_locked(struct past_kept *kept)
{
    if (!kept || !kept->past)
        return NULL;
    kept->refs++;
    kept->used_ns = clock_mono_ns();
    return kept;
}

struct past_kept *
past_cache_find(struct past_cache *cache, int64_t volume, int64_t at_ns)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&cache->mutex);
    (void)held;
    return take_locked(find_locked(cache, volume, at_ns));
}

/* ---- made ---- */

/* An entry that is being made, for the caller; NULL: it waits, or there is no memory. */
static struct past_kept *
begin_locked(struct past_cache *cache, bool busy, struct past_waiter *waiter, bool *waits)
{
    *waits = busy || cache->makers >= MAX_MAKERS;
    if (*waits) {
        waiter->next = cache->waiters;
        cache->waiters = waiter;
        return NULL;
    }
    struct past_kept *kept = calloc(1, sizeof(*kept));
    if (!kept)
        return NULL;
    kept->refs = 1;
    kept->next = cache->list;
    cache->list = kept;
    cache->makers++;
    return kept;
}

static void
remove_locked(struct past_cache *cache, struct past_kept *kept)
{
    for (struct past_kept **at = &cache->list; *at; at = &(*at)->next) {
        if (*at != kept)
            continue;
        *at = kept->next;
        return;
    }
}

static void
wake_all(struct past_waiter *waiters)
{
    for (struct past_waiter *next; waiters; waiters = next) {
        next = waiters->next;
        waiters->wake(waiters);
    }
}

/* Whoever was late is woken: also those who want another one, for a maker is free now. */
static void
end(struct past_cache *cache, struct past_kept *kept, struct volume_past *past)
{
    size_t count = 0;
    while (past && volume_past_next(past, &count) != NULL)
        continue;
    pthread_mutex_lock(&cache->mutex);
    struct past_waiter *waiters = cache->waiters;
    cache->waiters = NULL;
    cache->makers--;
    kept->past = past;
    kept->count = count;
    kept->used_ns = clock_mono_ns();
    if (!past)
        remove_locked(cache, kept);
    struct past_kept *gone = take_excess_locked(cache, kept->used_ns);
    pthread_mutex_unlock(&cache->mutex);
    free_list(gone);
    wake_all(waiters);
}

struct past_kept *
past_cache_make(struct past_cache *cache, int64_t volume, int64_t at_ns, struct past_waiter *waiter,
                bool *waits, struct err *err)
{
    struct volume_past *past = NULL;
    int64_t begun = clock_mono_ns();
    pthread_mutex_lock(&cache->mutex);
    struct past_kept *there = find_locked(cache, volume, at_ns);
    struct past_kept *made = take_locked(there);
    *waits = false;
    if (made) {
        pthread_mutex_unlock(&cache->mutex);
        return made;
    }
    struct past_kept *kept = begin_locked(cache, there != NULL, waiter, waits);
    if (kept) {
        kept->volume = volume;
        kept->at_ns = at_ns;
    }
    pthread_mutex_unlock(&cache->mutex);
    if (!kept) {
        if (!*waits)
            err_nomem(err);
        return NULL;
    }
    int rc = volume_past_open(cache->volumes, volume, at_ns, &past, err);
    end(cache, kept, rc < 0 ? NULL : past);
    if (rc < 0) {
        free(kept);
        return NULL;
    }
    log_debug(mount, "a past was made volume=%lld entries=%zu ms=%lld", (long long)volume,
              kept->count, (long long)((clock_mono_ns() - begun) / NS_PER_MS));
    return kept;
}

const struct volume_past *
past_kept(const struct past_kept *kept)
{
    return kept->past;
}

size_t
past_kept_count(const struct past_kept *kept)
{
    return kept->count;
}

void
past_cache_put(struct past_cache *cache, struct past_kept *kept)
{
    if (!kept)
        return;
    scope_unlock pthread_mutex_t *held = scope_lock(&cache->mutex);
    (void)held;
    kept->refs--;
}
