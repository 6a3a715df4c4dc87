#include <errno.h>

#include "base/scope.h"
#include "volume/audit.h"
#include "volume/form_impl.h"
#include "volume/link_impl.h"

/* link(2). */

struct make_call {
    struct volume_service *service;
    const struct volume_ctx *ctx;
    const struct volume_name *at;
    int64_t node;
    struct index_node inode, name;
    struct volume_attr *attr;
    bool replayed;
};

/* Whether the file may have one more name in that folder. */
static int
check_linkable(struct index_tx *tx, struct make_call *call, struct err *err)
{
    struct index_node *inode = &call->inode, parent;
    struct index_volume volume;
    uint32_t further = 0;
    if (node_parent_writable(call->service, tx, call->ctx, call->at->parent, err) != 0 ||
        index_node_get(tx, call->at->parent, &parent, err) != 0 ||
        index_node_get(tx, call->node, inode, err) != 0 || link_resolve(tx, inode, err) != 0 ||
        index_volume_get(tx, inode->volume, &volume, err) != 0)
        return -1;
    if ((inode->flags & INDEX_NODE_ORPHAN) != 0)
        return err_set(err, ERR_NOT_FOUND, "the file was removed while it was open");
    if (inode->kind == INDEX_DIR)
        return err_set(err, ERR_PERM, "a folder has one name");
    if (parent.volume != inode->volume)
        return err_set(err, ERR_CROSS_DEVICE, "a link into another volume is a copy");
    if (index_link_count(tx, inode->id, &further, err) != 0)
        return -1;
    if (1 + further >= LIMIT_LINKS)
        return err_sys(err, EMLINK, "a file has at most %d names", LIMIT_LINKS);
    if (service_may_grow(tx, &volume, inode->size, err) != 0)
        return -1;
    return form_check(call->service, tx, call->at, err);
}

static int
make_name(struct index_tx *tx, struct make_call *call, struct err *err)
{
    struct index_node *name = &call->name, *inode = &call->inode;
    struct node_kind kind = {
        .kind = inode->kind, .mode = inode->mode, .flags = INDEX_NODE_LINK, .target = inode->target
    };
    char key[LIMIT_KEY + 1];
    if (node_make(tx, call->ctx, call->at, &kind, name, err) != 0)
        return -1;
    struct index_link link = { .node = name->id, .inode = inode->id };
    name->uid = inode->uid;
    name->gid = inode->gid;
    name->mtime_ns = inode->mtime_ns;
    name->size = inode->size;
    inode->flags |= INDEX_NODE_LINKED;
    inode->ctime_ns = clock_wall_ns();
    if (index_node_update(tx, name, err) != 0 || index_link_put(tx, &link, err) != 0 ||
        index_node_update(tx, inode, err) != 0 || key_of_node(tx, name, key, err) != 0)
        return -1;
    return key_want_sync(tx, name->volume, key, 0, err);
}

static int
note_link(struct index_tx *tx, const struct make_call *call, struct err *err)
{
    char path[LIMIT_PATH + 1], to[LIMIT_PATH + 1];
    if (index_node_path(tx, call->inode.id, path, sizeof(path), err) != 0 ||
        index_node_path(tx, call->name.id, to, sizeof(to), err) != 0)
        return -1;
    volume_audit_act(
        call->service, call->ctx,
        (struct audit_record){
            .verb = "link", .volume = call->name.volume, .path = path, .to = to, .bytes = -1 });
    return 0;
}

static int
make_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct make_call *call = arg;
    call->replayed = answer_replay(tx, call->ctx, call->attr);
    if (call->replayed)
        return 0;
    rest_begin(call->service, call->ctx, tx);
    if (check_linkable(tx, call, err) != 0 || make_name(tx, call, err) != 0 ||
        attr_fill(tx, &call->name, call->attr, err) != 0 || note_link(tx, call, err) != 0)
        return -1;
    return answer_record(tx, call->ctx, call->attr, err);
}

/* The file's attributes, and that the name is free, must be known first. */
static int
know_both(struct make_call *call, struct err *err)
{
    struct err local = ERR_INIT;
    const struct volume_name *at = call->at;
    if (answer_waits(call->service, call->ctx))
        return 0;
    if (volume_getattr(call->service, call->ctx, call->node, call->attr, err) != 0)
        return -1;
    if (volume_lookup(call->service, call->ctx,
                      &(struct volume_name){ at->parent, at->name, at->len }, call->attr,
                      &local) == 0)
        return err_set(err, ERR_EXISTS, "'%.*s' exists", (int)at->len, at->name);
    if (local.code == ERR_NOT_FOUND)
        return 0;
    *err = local;
    return -1;
}

int
volume_link(struct volume_service *service, const struct volume_ctx *ctx, int64_t node,
            const struct volume_name *at, struct volume_attr *out, struct err *err)
{
    struct make_call call = { .service = service, .ctx = ctx, .at = at, .node = node, .attr = out };
    if (know_both(&call, err) != 0 ||
        index_write(service->index, INDEX_NORMAL, make_tx, &call, err) != 0)
        return -1;
    if (!call.replayed) {
        rest_kick(service, ctx);
        call.name.id = call.inode.id;
        event_emit(service, VOLUME_EVENT_CREATED, &call.name, ctx->connection);
        event_emit(service, VOLUME_EVENT_CHANGED, &call.inode, ctx->connection);
        event_settle(service, ctx);
    }
    return attr_live(service, ctx, out, err);
}
