#ifndef VOLUME_REBUILD_H
#define VOLUME_REBUILD_H

#include <stdint.h>

#include "base/err.h"
#include "cache/cache.h"
#include "s3/store.h"

/*
 * `holdfast rebuild`: the index made anew from the bucket alone, with no gateway running (INV-6; docs/mechanisms.md section 3). The
 * bucket is only read: the settings of the volumes, one listing of each (1,000 keys a request), one look at each kept
 * conflict, at each version in the history and at each staged file. Modes, times and symbolic links come when somebody looks, as after a listing.
 *
 * The new index is built beside the old one, in STATE/rebuild, and renamed into its place when it is whole. Until then nothing
 * in the state directory is changed, and an attempt that was cut off is simply made again. The old one is set aside, never removed.
 */
struct volume_rebuild_args {
    const char *state_dir; /* the caller has its lock (volume_state_lock()) */
    struct store *store;   /* stays the caller's; needs no probe */
    struct cache_limits cache;
    /* Told from time to time, on the caller's thread; may be NULL. `what`: "objects", "conflicts", "versions", "staged files". */
    void (*progress)(void *arg, const char *what, const char *volume, uint64_t done);
    void *progress_arg;
};

struct volume_rebuild_report {
    uint64_t volumes, files, folders, bytes;
    uint64_t unreachable; /* keys that cannot be shown as files */
    uint64_t history;     /* versions that were replaced or removed, kept in the bucket */
    uint64_t nameless;    /* the same without the record of their path: left where they are */
    uint64_t snapshots;
    uint64_t conflicts;  /* losers in the bucket */
    uint64_t parked;     /* objects that an exchange of names left, for fsck */
    uint64_t volumeless; /* of `.holdfast/` below the name of a volume that is not there */
    /* Files that were staged when the index was lost: the bucket has these bytes, and they need not be fetched; they go up when the
     * gateway starts, with what they were made from as the condition; the bucket has something else there, and they become
     * conflicts at the start; nobody promised that they were whole, and they are conflicts marked torn; not needed, or of no
     * volume: the next start moves them to STATE/lost for 7 days. */
    uint64_t staged_synced, staged_uploads, staged_contrary, staged_torn, staged_left;
    uint64_t lists, heads, gets;
    int64_t took_ns;
    char old_index[80]; /* name of the old index in the state directory, "" when there was none */
    char left_out[LIMIT_ERR_MSG]; /* a volume that could not be taken in, and why; "" */
};

/* ERR_NOT_FOUND: the bucket holds nothing of Holdfast's. ERR_WRONG_STORE: the old index, as far as it can be read, belongs to
 * another store. */
int volume_rebuild(const struct volume_rebuild_args *args, struct volume_rebuild_report *out,
                   struct err *err) MUST_CHECK;

#endif
