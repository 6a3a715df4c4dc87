#ifndef VOLUME_SNAPSHOT_IMPL_H
#define VOLUME_SNAPSHOT_IMPL_H

#include "volume/snapshot.h"

#define SNAPSHOT_PREFIX ".holdfast/snapshots/"

/* snapshot.c: the thread that brings manifests to the bucket. */
int snapshot_start(struct volume_service *service, struct err *err) MUST_CHECK;
void snapshot_stop(struct volume_service *service);
/* The row goes, and its manifest with it. */
int snapshot_end(struct index_tx *tx, const struct index_snapshot *row, struct err *err) MUST_CHECK;
/* The row, for one whose volume was flushed; any name. */
int snapshot_insert(struct volume_service *service, const struct volume_ctx *ctx, int64_t volume,
                    const char *name, struct volume_snapshot *out, struct err *err) MUST_CHECK;

#endif
