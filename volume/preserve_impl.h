#ifndef VOLUME_PRESERVE_IMPL_H
#define VOLUME_PRESERVE_IMPL_H

#include "volume/step_impl.h"

/* preserve.c: what a write ends is copied to the history first (docs/mechanisms.md section 5). */

#define HISTORY_PREFIX ".holdfast/history/"

/* Whether versions at this key are kept when they end: files, not markers and not what is Holdfast's own. */
bool preserve_wanted(const struct index_volume *volume, const char *key);
/* The key of a copy. Where it would be too long, the path's sha256 stands for it. `out` holds LIMIT_KEY + 1. */
int preserve_key(const struct index_volume *volume, const char *path, const char *id, char *out,
                 struct err *err) MUST_CHECK;
/* SYNC_PRESERVE. */
int preserve_step(struct step *step, struct err *err) MUST_CHECK;
/* What a store that cannot copy would have copied goes through here. */
int preserve_carry(struct volume_service *service, const struct store_copy *copy,
                   struct store_put_result *result, struct err *err) MUST_CHECK;
/* A copy is no longer wanted: its row goes, and its object by the work of its own key, as any that is discarded. */
int preserve_drop(struct index_tx *tx, const struct index_history *row, struct err *err) MUST_CHECK;

/* Before a node gets other bytes or loses its name: what is staged of it, and was promised to whoever wrote it, goes to the history as
 * the version that it was. A node without such bytes is left alone. `op`: "write" or "delete". */
int preserve_staged(struct volume_service *service, struct index_tx *tx,
                    const struct volume_ctx *ctx, struct index_node *node, const char *op,
                    struct err *err) MUST_CHECK;
/* Such a version is in the bucket. */
int preserve_synced(struct index_tx *tx, struct view_change *change, struct err *err) MUST_CHECK;

/* change.c: what was done to a name goes into the index with it. Only what can be undone: of files that the bucket has, of folders
 * that moved, and everything that a run did. */
enum change_op { CHANGE_DELETE, CHANGE_RMDIR, CHANGE_RENAME, CHANGE_MAKE };
int change_note(struct index_tx *tx, const struct volume_ctx *ctx, enum change_op op,
                const struct index_node *node, const char *to_path, struct err *err) MUST_CHECK;
/* Whether it would note anything: the paths need not be looked up otherwise. */
bool change_wanted(const struct volume_ctx *ctx, enum change_op op, const struct index_node *node);

#endif
