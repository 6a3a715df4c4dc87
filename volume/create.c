#include <fcntl.h>
#include <sys/stat.h>

#include "base/log.h"
#include "volume/audit.h"
#include "volume/form_impl.h"
#include "volume/service_impl.h"

/* A new file: name, LIVE content and answer in one transaction, which also opens it; then its content file. */

struct create_call {
    struct volume_service *service;
    const struct volume_ctx *ctx;
    const struct volume_name *at;
    uint32_t mode;
    int flags;
    struct index_node node;
    struct index_content content;
    struct cache_meta meta;
    struct volume_attr *attr;
    struct volume_file *file; /* open already, also for those who unlink at once */
    bool replayed;
    bool looked; /* the folder was asked for the name */
    bool unsure; /* it has to be, first */
};

static int
make_content(struct index_tx *tx, struct create_call *call, struct err *err)
{
    call->content = (struct index_content){ .id = call->node.content,
                                            .node = call->node.id,
                                            .volume = call->node.volume,
                                            .state = CONTENT_LIVE,
                                            .flags = CONTENT_COMPLETE | CONTENT_TRUNCATED,
                                            .mtime_ns = call->node.mtime_ns };
    text_set(call->content.boot_id, call->service->boot_id);
    text_set(call->content.actor, call->ctx->actor ? call->ctx->actor : "");
    text_set(call->content.run, call->ctx->run ? call->ctx->run : "");
    return index_content_insert(tx, &call->content, err);
}

/* Whatever the flags say: who makes a file holds its LIVE content until the last close freezes it. The kernel keeps a
 * read-only descriptor from writing. */
static int
make_handle(struct create_call *call, struct err *err)
{
    int flags = (call->flags & O_APPEND) | O_RDWR;
    call->file = handle_new(call->service, call->ctx, call->node.id, flags, err);
    if (call->file == NULL)
        return -1;
    inode_making(&call->service->inodes, call->file->inode);
    return 0;
}

/* Done by an earlier gateway, which could not tell. Without a content file its recovery took the name back: nobody had been
 * told of it, so it is made once more. */
static int
create_replay(struct index_tx *tx, struct create_call *call, struct err *err)
{
    struct index_node node;
    struct err missing = ERR_INIT;
    struct volume_ctx quiet = *call->ctx;
    quiet.replayed = NULL;
    if (!answer_replay(tx, &quiet, call->attr))
        return 0;
    call->replayed = index_node_get(tx, call->attr->node, &node, &missing) == 0;
    if (call->replayed && call->ctx->replayed != NULL)
        *call->ctx->replayed = true;
    if (call->replayed)
        return 0;
    return index_answer_forget(tx, call->ctx->connection, call->ctx->unique, err);
}

static int
create_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct create_call *call = arg;
    struct index_node dir;
    struct index_volume volume;
    struct node_kind kind = { .kind = INDEX_FILE, .mode = call->mode };
    if (create_replay(tx, call, err) != 0)
        return -1;
    if (call->replayed)
        return 0;
    if (index_node_get(tx, call->at->parent, &dir, err) != 0)
        return -1;
    call->unsure = !call->looked && !service_listed_lately(call->service, &dir);
    if (call->unsure)
        return err_set(err, ERR_AGAIN, "the folder has to be listed first");
    if (index_volume_get(tx, dir.volume, &volume, err) != 0 ||
        service_may_write(call->service, call->ctx, &volume, err) != 0 ||
        service_may_grow(tx, &volume, 0, err) != 0 ||
        form_check(call->service, tx, call->at, err) != 0 ||
        index_content_number(tx, &kind.content, err) != 0 ||
        node_make(tx, call->ctx, call->at, &kind, &call->node, err) != 0 ||
        make_content(tx, call, err) != 0 || make_handle(call, err) != 0 ||
        attr_fill(tx, &call->node, call->attr, err) != 0)
        return -1;
    attr_believe(call->service, &dir, call->attr);
    content_meta_fill(tx, &call->node, &call->content, &call->meta);
    return answer_record(tx, call->ctx, call->attr, err);
}

static int
uncreate_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct create_call *call = arg;
    if (index_content_delete(tx, call->content.id, err) != 0)
        return -1;
    return index_node_delete(tx, call->node.id, err);
}

/* Who found the name meanwhile waits for this (content.c). */
static void
end_making(struct inode *inode)
{
    pthread_mutex_lock(&inode->lock);
    inode->making = false;
    pthread_cond_broadcast(&inode->fetched);
    pthread_mutex_unlock(&inode->lock);
}

static int
create_new(struct create_call *call, struct err *err)
{
    struct volume_service *service = call->service;
    if (index_write(service->index, INDEX_NORMAL, create_tx, call, err) != 0) {
        if (call->file != NULL) {
            end_making(call->file->inode);
            handle_forget(call->file);
        }
        return -1;
    }
    if (call->replayed)
        return volume_file_open(service, call->ctx, call->attr->node,
                                call->flags & ~(O_CREAT | O_EXCL | O_TRUNC), &call->file, err);
    struct inode *inode = call->file->inode;
    struct cache_file *bytes =
        cache_create(service->cache, call->content.id, &call->meta, true, err);
    if (bytes == NULL) {
        struct err ignored = ERR_INIT;
        if (index_write(service->index, INDEX_NORMAL, uncreate_tx, call, &ignored) != 0)
            log_error(volume, "cannot take back a file that could not be staged: %s", ignored.msg);
        end_making(inode);
        handle_forget(call->file);
        return -1;
    }
    pthread_mutex_lock(&inode->lock);
    content_adopt_locked(inode, &call->content, bytes);
    inode->writers++;
    inode->wrote_by = call->ctx->connection;
    text_set(inode->wrote_run, call->content.run);
    call->file->counted = true;
    inode->dirty_size = true; /* an empty new file is a change too */
    inode->making = false;
    pthread_cond_broadcast(&inode->fetched);
    pthread_mutex_unlock(&inode->lock);
    event_emit(service, VOLUME_EVENT_CREATED, &call->node, call->ctx->connection);
    volume_audit_act(service, call->ctx,
                     (struct audit_record){ .verb = "create",
                                            .volume_name = call->meta.volume,
                                            .path = call->meta.path,
                                            .bytes = -1 });
    return 0;
}

/* 1: the name is there already, call->attr tells of what; 0: it is not; -1. */
static int
look(struct create_call *call, struct err *err)
{
    struct err local = ERR_INIT;
    struct volume_name at = { call->at->parent, call->at->name, call->at->len };
    call->looked = true;
    if (volume_lookup(call->service, call->ctx, &at, call->attr, &local) == 0)
        return 1;
    if (local.code == ERR_NOT_FOUND)
        return 0;
    *err = local;
    return -1;
}

/* Finds the name or makes it; *existed says which. The kernel asks for a new file only after it was told that the name is free,
 * so it is made at once where the index knows the folder. */
static int
find_or_create(struct create_call *call, bool *existed, struct err *err)
{
    struct err local = ERR_INIT;
    *existed = false;
    if (create_new(call, &local) == 0)
        return 0;
    if (!call->unsure && local.code != ERR_EXISTS) {
        *err = local;
        return -1;
    }
    int found = look(call, err);
    *existed = found == 1;
    if (found != 0)
        return found > 0 ? 0 : -1;
    local = (struct err)ERR_INIT;
    if (create_new(call, &local) == 0)
        return 0;
    *existed = local.code == ERR_EXISTS && look(call, &local) == 1; /* somebody was faster */
    if (!*existed)
        *err = local;
    return *existed ? 0 : -1;
}

int
volume_file_create(struct volume_service *service, const struct volume_ctx *ctx,
                   const struct volume_new *new_file, struct volume_attr *attr,
                   struct volume_file **out, struct err *err)
{
    int flags = new_file->flags;
    const struct volume_name *at = &new_file->at;
    struct create_call call = { .service = service,
                                .ctx = ctx,
                                .at = at,
                                .mode = S_IFREG | (new_file->mode & 07777),
                                .flags = flags,
                                .attr = attr };
    bool existed;
    if (find_or_create(&call, &existed, err) != 0)
        return -1;
    if (!existed) {
        *out = call.file;
        return 0;
    }
    if ((flags & O_EXCL) != 0)
        return err_set(err, ERR_EXISTS, "'%.*s' exists", (int)at->len, at->name);
    if (volume_file_open(service, ctx, attr->node, flags & ~(O_CREAT | O_EXCL), out, err) != 0)
        return -1;
    if (volume_getattr(service, ctx, attr->node, attr, err) == 0)
        return 0;
    volume_file_close(*out, ctx);
    return -1;
}
