#ifndef VOLUME_LINK_IMPL_H
#define VOLUME_LINK_IMPL_H

#include "volume/step_impl.h"

/*
 * Hard links (docs/adr/0008-hard-links-are-followers.md). An inode is a node with INDEX_NODE_LINKED; each of its further names is a
 * node with INDEX_NODE_LINK, which follows it: link.c has the rows, link_step.c what the engine does for a name's key,
 * link_make.c makes one. All but link_step_copy() work inside an index transaction.
 */

/* A name's row becomes its inode's row; any other stays what it is. */
int link_resolve(struct index_tx *tx, struct index_node *node, struct err *err) MUST_CHECK;
/* The number of the inode that a row is a name of, or its own. */
int link_inode_of(struct index_tx *tx, const struct index_node *node, int64_t *out,
                  struct err *err) MUST_CHECK;
/* The inode has other bytes or attributes now: its further names have work. `since_ns`: as key_want_since(). */
int link_want(struct index_tx *tx, const struct index_node *inode, int64_t delay_ns,
              int64_t since_ns, struct err *err) MUST_CHECK;
/* Which version the inode's newest frozen or synced bytes are, "" when there are none yet. `frozen` is its FROZEN row, id 0: none. */
int link_identity(struct index_tx *tx, const struct index_node *inode, char out[LIMIT_ETAG],
                  struct index_content *frozen, struct err *err) MUST_CHECK;
/* The name becomes a file of its own, with its own newest bytes; the caller writes the row. */
int link_break(struct index_tx *tx, struct index_node *name, struct err *err) MUST_CHECK;
/* A name of the inode is gone, or was moved: its change time, and the flag when it was the last further one. */
int link_touch_inode(struct index_tx *tx, int64_t inode, struct err *err) MUST_CHECK;
/* Somebody else ends one of a file's names, this row: kernels hear that the file has fewer. Before the rows change. */
int link_tell(struct volume_service *service, struct index_tx *tx, const struct index_node *row,
              struct err *err) MUST_CHECK;
/* node_unname() of the name that the inode's own row stands for: the inode moves to another one. True in *moved: done; else there
 * is no other name (any more), and the node is like any. */
struct link_move {
    struct volume_service *service;
    struct index_tx *tx;
    bool discard_object; /* the user unlinks the name; else somebody else took or removed its object */
    struct drop_list *drop;
};
int link_move_inode(const struct link_move *move, struct index_node *inode, bool *moved,
                    struct err *err) MUST_CHECK;

/* What is wanted at a name's key; kv->node is the name's row, and gets the attributes of the inode. */
int link_view(struct index_tx *tx, const char *key, struct key_view *kv,
              struct err *err) MUST_CHECK;
/* The key's node is a name that has no copy of the inode's newest bytes. */
bool link_needs_copy(const struct step *step);
int link_step_copy(struct step *step, struct err *err) MUST_CHECK;

#endif
