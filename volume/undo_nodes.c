#include <stdlib.h>

#include "volume/history_impl.h"

/* What is known of each node that a run touched, by the node's number: a table with open addresses, half full at most. */

#define LEAST 256u

static struct undo_node *
slot_of(struct undo_node *slot, size_t cap, int64_t node)
{
    /* Numbers of nodes are given one after the other: their low bits are as good as a hash. */
    size_t at = (size_t)node & (cap - 1);
    while (slot[at].node != 0 && slot[at].node != node)
        at = (at + 1) & (cap - 1);
    return &slot[at];
}

static int
grow(struct undo_nodes *nodes, struct err *err)
{
    size_t cap = nodes->cap == 0 ? LEAST : nodes->cap * 2;
    struct undo_node *grown = calloc(cap, sizeof(*grown));
    if (grown == NULL)
        return err_nomem(err);
    for (size_t i = 0; i < nodes->cap; i++)
        if (nodes->slot[i].node != 0)
            *slot_of(grown, cap, nodes->slot[i].node) = nodes->slot[i];
    free(nodes->slot);
    nodes->slot = grown;
    nodes->cap = cap;
    return 0;
}

struct undo_node *
undo_nodes_add(struct undo_nodes *nodes, int64_t node, struct err *err)
{
    if (2 * (nodes->count + 1) > nodes->cap && grow(nodes, err) != 0)
        return NULL;
    struct undo_node *slot = slot_of(nodes->slot, nodes->cap, node);
    nodes->count += slot->node == 0;
    slot->node = node;
    return slot;
}

const struct undo_node *
undo_nodes_get(const struct undo_nodes *nodes, int64_t node)
{
    static const struct undo_node none;
    return nodes->cap > 0 ? slot_of(nodes->slot, nodes->cap, node) : &none;
}

void
undo_nodes_release(struct undo_nodes *nodes)
{
    free(nodes->slot);
    *nodes = (struct undo_nodes){ 0 };
}
