#include "volume/preserve_impl.h"

/* What was done to names, by whom: for undo, and for the history to say who ended a version. */

static const char *const op_names[] = {
    [CHANGE_DELETE] = "delete",
    [CHANGE_RMDIR] = "rmdir",
    [CHANGE_RENAME] = "rename",
    [CHANGE_MAKE] = "make",
};

static bool
is_of_run(const struct volume_ctx *ctx)
{
    return ctx->run != NULL && ctx->run[0] != '\0';
}

bool
change_wanted(const struct volume_ctx *ctx, enum change_op op, const struct index_node *node)
{
    bool in_bucket = node->kind != INDEX_DIR && node->key[0] != '\0';
    bool moves = op == CHANGE_RENAME && node->kind == INDEX_DIR;
    return is_of_run(ctx) || moves || (in_bucket && op != CHANGE_MAKE);
}

int
change_note(struct index_tx *tx, const struct volume_ctx *ctx, enum change_op op,
            const struct index_node *node, const char *to_path, struct err *err)
{
    struct index_change row = { .volume = node->volume,
                                .node = node->id,
                                .parent = node->parent,
                                .mode = node->mode,
                                .time_ns = clock_wall_ns() };
    if (!change_wanted(ctx, op, node))
        return 0;
    text_set(row.op, op_names[op]);
    text_set(row.version, node->version);
    if (op == CHANGE_DELETE)
        text_set(row.key, node->key);
    if (to_path != NULL)
        text_set(row.to_path, to_path);
    if (ctx->actor != NULL)
        text_copy(row.actor, sizeof(row.actor), ctx->actor);
    if (ctx->run != NULL)
        text_copy(row.run, sizeof(row.run), ctx->run);
    if (index_node_path(tx, node->id, row.path, sizeof(row.path), err) != 0)
        return -1;
    return index_change_insert(tx, &row, err);
}
