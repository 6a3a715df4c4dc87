#ifndef VOLUME_REBUILD_IMPL_H
#define VOLUME_REBUILD_IMPL_H

#include "volume/admin_impl.h"
#include "volume/locks.h"
#include "volume/rebuild.h"

/* What the files of a rebuild share. One thread works, but for the HEADs of conflicts. */

#define REBUILD_BATCH 1000u /* rows of one transaction, and keys of one listing page */

struct rebuild {
    const struct volume_rebuild_args *args;
    struct volume_rebuild_report *out;
    struct store *store;
    struct index *index; /* the new one */
    int state_fd;
    char boot_id[SYS_BOOT_ID_SIZE];
    bool same_boot; /* the last gateway ran in this boot: what it wrote is there */
    struct index_volume *volume;
    size_t volume_count, volume_cap;
};

void rebuild_progress(const struct rebuild *rebuild, const char *what, const char *volume,
                      uint64_t done);
/* By name; NULL: there is none. */
const struct index_volume *rebuild_volume(const struct rebuild *rebuild, const char *name,
                                          size_t len);

/* rebuild_volumes.c: the settings in the bucket become volumes of the index. A document that cannot be read is left out, and `left_out`
 * (of LIMIT_ERR_MSG) tells of one. `fn` may be NULL. */
typedef int rebuild_volume_fn(void *arg, const struct index_volume *row, struct err *err);
struct rebuild_find {
    struct store *store;
    struct index *index;
    rebuild_volume_fn *fn;
    void *arg;
    const char *only; /* this document alone; NULL: all */
    char *left_out;
};
int rebuild_volumes(const struct rebuild_find *find, struct err *err) MUST_CHECK;

/* rebuild_tree.c: one listing of the volume's prefix becomes its tree. */
int rebuild_tree(struct rebuild *rebuild, const struct index_volume *volume,
                 struct err *err) MUST_CHECK;
/* Makes the folders of a path that are missing; `last` is where its last name goes. ERR_EXISTS: one is a file; ERR_BAD_NAME. */
int rebuild_make_parents(struct index_tx *tx, const struct index_volume *volume, const char *path,
                         struct volume_name *last, struct err *err) MUST_CHECK;

/* rebuild_look.c: calls `fn` for each of an array's members, several at a time; the first error comes back. */
typedef int rebuild_look_fn(void *item, struct err *err);
int rebuild_look_many(void *items, size_t size, size_t count, rebuild_look_fn *fn,
                      struct err *err) MUST_CHECK;

/* rebuild_history.c: copies of versions that were replaced or removed, from a listing and a HEAD each. Those that `skip` (may be
 * NULL) knows are left out. Uses store, index, volumes and out->history alone. */
typedef int rebuild_skip_fn(void *arg, const struct index_volume *volume, const char *id,
                            const char *key, bool *skip, struct err *err);
int rebuild_history(struct rebuild *rebuild, rebuild_skip_fn *skip, void *arg,
                    struct err *err) MUST_CHECK;

/* rebuild_snapshots.c: from a listing and the beginning of each manifest. */
int rebuild_snapshots(struct rebuild *rebuild, struct err *err) MUST_CHECK;

/* rebuild_kept.c: losers of conflicts, from a listing and a HEAD each. */
int rebuild_conflicts(struct rebuild *rebuild, struct err *err) MUST_CHECK;
/* What exchanges of names left: counted. */
int rebuild_parked(struct rebuild *rebuild, struct err *err) MUST_CHECK;
/* A loser's row from its object. */
struct rebuild_loser {
    struct index_conflict row;
    struct index_key key;
};
int rebuild_read_loser(struct store *store, const char *key, int64_t volume,
                       struct rebuild_loser *out, struct err *err) MUST_CHECK;
int rebuild_put_loser(struct index_tx *tx, const struct rebuild_loser *loser,
                      struct err *err) MUST_CHECK;

/* rebuild_staged.c: what the cache holds that the bucket may not have. After the tree and the conflicts. */
int rebuild_staged(struct rebuild *rebuild, struct err *err) MUST_CHECK;

#endif
