#ifndef VOLUME_SNAPSHOT_H
#define VOLUME_SNAPSHOT_H

#include "volume/past.h"

/*
 * Snapshots: moments of a volume that have a name. Taking one waits until everything written before is in the bucket, and is one row
 * then, whatever the volume's size; what was present at that moment is not pruned while it exists. Its manifest goes to the bucket
 * behind (docs/format/bucket.md), so that a rebuild finds it.
 */
struct volume_snapshot {
    char name[LIMIT_VOLUME_NAME + 1];
    int64_t at_ns;
    bool published;        /* its manifest is in the bucket */
    uint64_t files, bytes; /* once published */
    char actor[64], run[64];
    bool automatic; /* by the volume's rule, which removes it again */
};
typedef int volume_snapshot_fn(void *arg, const struct volume_snapshot *snapshot, struct err *err);

/* `name`: as a volume's; those that begin with "auto-" and "fork-" are Holdfast's own. ERR_EXISTS; ERR_NOT_SYNCED at the deadline: none was taken. */
int volume_snapshot_create(struct volume_service *service, const struct volume_ctx *ctx,
                           int64_t volume, const char *name, struct volume_snapshot *out,
                           struct err *err) MUST_CHECK;
/* Oldest first. */
int volume_snapshot_each(struct volume_service *service, int64_t volume, volume_snapshot_fn *fn,
                         void *arg, struct err *err) MUST_CHECK;
int volume_snapshot_find(struct volume_service *service, int64_t volume, const char *name,
                         struct volume_snapshot *out, struct err *err) MUST_CHECK;
/* What only it kept goes with the next pruning, when its time is over. */
int volume_snapshot_delete(struct volume_service *service, int64_t volume, const char *name,
                           struct err *err) MUST_CHECK;
/* When the next one by the volume's rule is due, 0: by none; a time that is over: with the next change. */
int volume_snapshot_next(struct volume_service *service, int64_t volume, int64_t *out,
                         struct err *err) MUST_CHECK;
/* A time (RFC 3339), how long ago ("2h"), or the name of a snapshot: as a time of the wall clock. */
int volume_snapshot_time(struct volume_service *service, int64_t volume, const char *text,
                         int64_t *out, struct err *err) MUST_CHECK;

#endif
