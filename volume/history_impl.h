#ifndef VOLUME_HISTORY_IMPL_H
#define VOLUME_HISTORY_IMPL_H

#include "base/path.h"
#include "volume/history.h"
#include "volume/service_impl.h"

/* What history.c, restore.c, restore_plan.c and undo.c share. */

/* history.c */
/* Its bytes can be read: in the bucket, or here on their way there. */
static inline bool
history_is_kept(const struct index_history *row)
{
    return row->state == INDEX_HISTORY_KEPT || row->state == INDEX_HISTORY_STAGED;
}
void history_fill(const struct index_history *row, struct volume_version *out);
/* The node at a path as the index has it; ERR_NOT_FOUND. */
int history_node_at(struct index_tx *tx, const struct index_volume *volume, const char *path,
                    struct index_node *out, struct err *err) MUST_CHECK;
/* The version whose bytes these are: moves and new attributes give bytes new ids. `out` may be `version`. */
int history_origin(struct index_tx *tx, const char *version, char out[LIMIT_ETAG],
                   struct err *err) MUST_CHECK;
/* When these bytes were made: the time of that version. */
int history_made(struct index_tx *tx, const char *version, int64_t *out,
                 struct err *err) MUST_CHECK;
/* The same of what a file is now, staged or not; "" when there are newer bytes that have no id yet. */
int history_origin_of_node(struct index_tx *tx, const struct index_node *node, char out[LIMIT_ETAG],
                           struct err *err) MUST_CHECK;
/* A row and the key of its copy. */
int history_row(struct volume_service *service, const char *id, struct index_history *out,
                char key[LIMIT_KEY + 1], struct err *err) MUST_CHECK;

/* ---- restore.c: a plan, and how it is done ---- */

struct restore_step {
    enum volume_restore_action action;
    char *path, *to;          /* owned; `to`: RENAME */
    char copy[ULID_SIZE];     /* WRITE, CREATE: the copy whose bytes it gets */
    char version[LIMIT_ETAG]; /* the same as a version, for telling */
    char expect[LIMIT_ETAG];  /* WRITE, REMOVE: what is there; "": anything, MKDIR and RMDIR */
    uint64_t size;
    uint32_t mode; /* MKDIR: permission bits */
    char *why;     /* SKIP */
};
struct restore_plan {
    struct restore_step *step;
    size_t count, cap;
};
/* Appends a step with copies of the texts (NULL is fine); NULL without memory. */
struct restore_step *restore_add(struct restore_plan *plan, enum volume_restore_action action,
                                 const char *path, const char *to, struct err *err);
int restore_skip(struct restore_plan *plan, const char *path, struct err *err, const char *fmt, ...)
    __attribute__((format(printf, 4, 5))) MUST_CHECK;
void restore_release(struct restore_plan *plan);
/* Does the steps in their order, or tells them only. `word`: what the run is called by when the caller has none. */
int restore_do(struct volume_service *service, const struct volume_ctx *ctx,
               const struct volume_restore *want, const struct restore_plan *plan, const char *word,
               struct volume_restore_result *out, struct err *err) MUST_CHECK;

/* ---- undo_nodes.c ---- */

struct undo_node {
    int64_t node;      /* 0: a free place */
    size_t file, gone; /* places in the lists of undo.c, from 1; 0: none. gone: the first one */
    bool made;         /* by the run, which says so: a symlink, a folder */
    bool removed;      /* by the run */
};
struct undo_nodes {
    struct undo_node *slot;
    size_t count, cap;
};
/* The place of a node (> 0), made where there is none; until the next call. NULL without memory. */
struct undo_node *undo_nodes_add(struct undo_nodes *nodes, int64_t node, struct err *err);
/* Never NULL: all 0 for a node that is not there. */
const struct undo_node *undo_nodes_get(const struct undo_nodes *nodes, int64_t node);
void undo_nodes_release(struct undo_nodes *nodes);

#endif
