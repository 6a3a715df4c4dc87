#include "volume/audit.h"
#include "volume/link_impl.h"
#include "volume/preserve_impl.h"
#include "volume/reads_impl.h"

/* unlink and rmdir: one index transaction, whatever lies behind the name. */

struct remove_call {
    struct volume_service *service;
    const struct volume_ctx *ctx;
    const struct volume_name *at;
    bool dir;
    const struct precondition *pre;
    struct index_node node;
    int64_t inode;          /* the same, or the file that it is a name of */
    struct index_node left; /* the file when it has other names, id 0: it has none */
    struct drop_list drop;
    bool replayed;
    bool looked; /* the bucket was asked where the index cannot know */
    bool unsure; /* it has to be, first */
    char path[LIMIT_PATH + 1];
};

static int
check_removable(struct index_tx *tx, struct remove_call *call, struct err *err)
{
    struct index_node *node = &call->node;
    struct volume_attr attr;
    bool children = false;
    if (call->dir && node->kind != INDEX_DIR)
        return err_set(err, ERR_NOT_DIR, "'%s' is not a folder", node->name);
    if (!call->dir && node->kind == INDEX_DIR)
        return err_set(err, ERR_IS_DIR, "'%s' is a folder", node->name);
    if (node->kind == INDEX_DIR && index_node_has_children(tx, node->id, &children, err) != 0)
        return -1;
    if (children)
        return err_set(err, ERR_NOT_EMPTY, "folder '%s' is not empty", node->name);
    if (call->pre == NULL)
        return 0;
    if (attr_fill(tx, node, &attr, err) != 0)
        return -1;
    if (!precondition_holds(call->pre, attr.version))
        return err_set(err, ERR_CONFLICT, "'%s' was changed meanwhile (now version %s)", node->name,
                       attr.version);
    return 0;
}

/* Whether the index alone can say what has this name, and what lies below it: -1 with ERR_AGAIN and `unsure` when it cannot. */
static int
find_removed(struct index_tx *tx, struct remove_call *call, struct err *err)
{
    struct index_node dir;
    struct err missing = ERR_INIT;
    const struct volume_name *at = call->at;
    bool found = index_node_child(tx, at->parent, at->name, at->len, &call->node, &missing) == 0;
    if (!found && missing.code != ERR_NOT_FOUND) {
        *err = missing;
        return -1;
    }
    if (!call->looked) {
        if (!found && index_node_get(tx, at->parent, &dir, err) != 0)
            return -1;
        call->unsure = !found ? !service_listed_lately(call->service, &dir)
                              : !node_is_known(call->service, &call->node);
        if (call->unsure)
            return err_set(err, ERR_AGAIN, "the bucket has to be asked first");
    }
    if (!found)
        *err = missing;
    return found ? 0 : -1;
}

static int
remove_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct remove_call *call = arg;
    call->replayed = answer_replay(tx, call->ctx, NULL);
    if (call->replayed)
        return 0;
    rest_begin(call->service, call->ctx, tx);
    if (node_parent_writable(call->service, tx, call->ctx, call->at->parent, err) != 0 ||
        find_removed(tx, call, err) != 0 || check_removable(tx, call, err) != 0)
        return -1;
    struct index_node gone = call->node;
    bool left = (gone.flags & (INDEX_NODE_LINK | INDEX_NODE_LINKED)) != 0;
    if (link_inode_of(tx, &gone, &call->inode, err) != 0 ||
        index_node_path(tx, gone.id, call->path, sizeof(call->path), err) != 0 ||
        change_note(tx, call->ctx, call->dir ? CHANGE_RMDIR : CHANGE_DELETE, &gone, NULL, err) !=
            0 ||
        (call->ctx->connection == 0 && inode_open_count(&call->service->inodes, gone.id) == 0 &&
         preserve_staged(call->service, tx, call->ctx, &gone, "delete", err) != 0) ||
        node_unname(call->service, tx, &gone, true, &call->drop, err) != 0 ||
        (left && index_node_get(tx, call->inode, &call->left, err) != 0) ||
        node_touch_dir(tx, call->at->parent, err) != 0 ||
        node_keep_empty(tx, call->at->parent, err) != 0)
        return -1;
    return answer_record(tx, call->ctx, NULL, err);
}

int
volume_remove(struct volume_service *service, const struct volume_ctx *ctx,
              const struct volume_name *at, bool dir, const struct precondition *pre,
              struct err *err)
{
    struct remove_call call = { .service = service, .ctx = ctx, .at = at, .dir = dir, .pre = pre };
    struct volume_attr attr;
    struct err local = ERR_INIT;
    int rc = index_write(service->index, INDEX_NORMAL, remove_tx, &call, &local);
    if (rc != 0 && call.unsure) {
        local = (struct err)ERR_INIT;
        rc = volume_lookup(service, ctx, &(struct volume_name){ at->parent, at->name, at->len },
                           &attr, &local);
        if (rc == 0 && attr.kind == INDEX_DIR)
            rc = node_know_folder(service, ctx, attr.node, &local);
        call.looked = true;
        call.unsure = false;
        if (rc == 0)
            rc = index_write(service->index, INDEX_NORMAL, remove_tx, &call, &local);
    }
    if (rc == 0)
        drop_run(service, &call.drop);
    else
        *err = local;
    free(call.drop.number);
    if (rc == 0 && !call.replayed) {
        rest_kick(service, ctx);
        call.node.id = call.inode;
        reads_changed(service, call.inode, ctx->run);
        volume_audit_act(service, ctx,
                         (struct audit_record){ .verb = dir ? "rmdir" : "remove",
                                                .volume = call.node.volume,
                                                .path = call.path,
                                                .before = call.node.version,
                                                .bytes = -1 });
        event_emit(service, VOLUME_EVENT_REMOVED, &call.node, ctx->connection);
        if (call.left.id != 0)
            event_emit(service, VOLUME_EVENT_CHANGED, &call.left, ctx->connection);
        event_settle(service, ctx);
    }
    return rc;
}
