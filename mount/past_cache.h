#ifndef MOUNT_PAST_CACHE_H
#define MOUNT_PAST_CACHE_H

#include "volume/past.h"

/*
 * Volumes as they were, kept in memory for all mounts of a gateway. One is made from the whole index of its volume, which takes a
 * second for some 100,000 files: by one thread, for all who want it. Unused for some minutes it goes, the longest unused first where they are
 * too many.
 *
 * Thread safe; the mutex is a leaf, and not held while one is made.
 */
struct past_cache;
struct past_kept; /* one of them, with a reference */

struct past_cache *past_cache_new(struct volume_service *volumes, struct err *err) MUST_CHECK;
void past_cache_free(struct past_cache *cache); /* nobody may use it any more; NULL is fine */

/* Takes a reference; NULL: there is none (yet). */
struct past_kept *past_cache_find(struct past_cache *cache, int64_t volume, int64_t at_ns);
/* Called once, from another thread, when it is worth while to ask again. */
struct past_waiter {
    struct past_waiter *next;
    void (*wake)(struct past_waiter *waiter);
};
/* Makes it, which takes time, and takes a reference; NULL with `*waits` set: others are at work, `waiter` is called later. */
struct past_kept *past_cache_make(struct past_cache *cache, int64_t volume, int64_t at_ns,
                                  struct past_waiter *waiter, bool *waits, struct err *err);
const struct volume_past *past_kept(const struct past_kept *kept);
/* How many entries it has: no `at` of volume_past_next() is greater. */
size_t past_kept_count(const struct past_kept *kept);
void past_cache_put(struct past_cache *cache, struct past_kept *kept); /* NULL is fine */
/* Drops what nobody has used for long; call it now and then. */
void past_cache_sweep(struct past_cache *cache);

#endif
