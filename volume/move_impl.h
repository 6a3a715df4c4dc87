#ifndef VOLUME_MOVE_IMPL_H
#define VOLUME_MOVE_IMPL_H

#include "volume/service_impl.h"

/*
 * Moves of whole folders. The rename changes one name and makes one work item of a kind of its own; a worker makes those of
 * what lies below, a few hundred in a transaction, and then ends it (docs/mechanisms.md section 7). Until then a node below may
 * lie at another key than its path says and have no work item: whoever changes it goes by `node->key` and the rows of the keys.
 */
#define MOVE_PREFIX ".holdfast/moves/" /* and the folder's node; no object ever has such a key */

/* Inside the transaction of a rename, after the folder has its new name. */
int move_want(struct index_tx *tx, const struct index_node *folder, struct err *err) MUST_CHECK;
bool move_is_work(const char *key);
/* What a work item of this kind wants, for those who tell of it. */
int move_view(struct index_tx *tx, const char *key, struct key_view *out,
              struct err *err) MUST_CHECK;
/* As step_key(): true when nothing is left to do, here or at another key. */
bool move_run(struct volume_service *service, const char *key);

/* below.c */
struct below_move {
    struct volume_service *service;
    const struct volume_ctx *ctx;
    const struct volume_name *from, *to;
    bool exchange;
    uint64_t sequence; /* of the index as below_know() saw it */
};
/* Lists each folder below that nobody has looked into, and refuses what would make a key too long. */
int below_know(struct below_move *move, struct err *err) MUST_CHECK;
/* Inside the transaction of the rename, before a name changes: does it still fit? */
int below_fits(struct index_tx *tx, const struct below_move *move, struct err *err) MUST_CHECK;

#endif
