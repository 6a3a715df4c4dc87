#include <assert.h>
#include <errno.h>

#include "base/log.h"
#include "base/scope.h"
#include "volume/service_impl.h"

/* flush, fsync and close: what is promised, and from when on (docs/mechanisms.md section 3). */

struct ack_call {
    struct volume_service *service;
    struct inode *inode;
    int64_t content; /* the row that gets the promise */
    unsigned flags;
    bool sync_close;
    bool lost; /* somebody else replaced or removed the file meanwhile: what is written here becomes a conflict */
    char key[LIMIT_KEY + 1];
};

static bool
has_lost(const struct index_node *node)
{
    return (node->flags & INDEX_NODE_ORPHAN) != 0 && (node->flags & INDEX_NODE_LOSER) != 0;
}

static int
ack_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct ack_call *call = arg;
    struct index_content row;
    if (call->content == 0)
        return 0;
    if (index_content_get(tx, call->content, &row, err) != 0)
        return err->code == ERR_NOT_FOUND ? 0 : -1;
    if ((row.flags & call->flags) == call->flags && row.state != CONTENT_LIVE)
        return 0;
    row.flags |= call->flags;
    text_set(row.boot_id, call->service->boot_id);
    return index_content_update(tx, &row, err);
}

static int
read_sync_close(struct index_tx *tx, void *arg, struct err *err)
{
    struct ack_call *call = arg;
    struct index_node node;
    struct index_volume volume;
    if (index_node_get(tx, call->inode->node, &node, err) != 0 ||
        index_volume_get(tx, node.volume, &volume, err) != 0)
        return -1;
    call->sync_close = volume.sync_close && (node.flags & INDEX_NODE_ORPHAN) == 0;
    call->lost = has_lost(&node);
    return call->sync_close ? key_of_node(tx, &node, call->key, err) : 0;
}

static int
flush_tx(struct index_tx *tx, void *arg, struct err *err)
{
    return ack_tx(tx, arg, err) == 0 ? read_sync_close(tx, arg, err) : -1;
}

static int
tell_lost(struct err *err)
{
    return err_set(err, ERR_CONFLICT,
                   "the bucket holds a newer version; yours is kept: see /v1/conflicts");
}

static int
told_error(struct inode *inode, struct err *err)
{
    int number = atomic_exchange(&inode->told_error, 0);
    if (number == 0)
        return 0;
    if (number == ESTALE)
        return tell_lost(err);
    return err_sys(err, number, "an earlier write could not be kept");
}

struct landing_call {
    int64_t node, content;
    char version[ULID_SIZE]; /* what this close froze, "": what was there is synced */
    bool landed;             /* that or a later one, or the file has no name any more */
    bool lost;               /* because somebody else has it */
};

static int
read_version(struct index_tx *tx, void *arg, struct err *err)
{
    struct landing_call *call = arg;
    struct index_content row;
    if (index_content_get(tx, call->content, &row, err) != 0)
        return err->code == ERR_NOT_FOUND ? 0 : -1;
    if (row.state == CONTENT_FROZEN)
        text_set(call->version, row.version);
    return 0;
}

static int
read_landing(struct index_tx *tx, void *arg, struct err *err)
{
    struct landing_call *call = arg;
    struct index_node node;
    if (index_node_get(tx, call->node, &node, err) != 0)
        return -1;
    bool ours = ulid_valid(node.version) && strcmp(node.version, call->version) >= 0;
    call->landed = ours || (node.flags & INDEX_NODE_ORPHAN) != 0;
    call->lost = !ours && call->version[0] != '\0' && has_lost(&node);
    return 0;
}

/* Others may write on meanwhile, in a copy (content.c): what is waited for is what was there at this close. */
static int
await_landing(struct volume_file *file, const struct volume_ctx *ctx, struct landing_call *call,
              struct err *err)
{
    struct inode *inode = file->inode;
    int64_t deadline = service_deadline(ctx);
    for (;;) {
        uint64_t seen = sync_progress(file->service);
        struct volume_attr attr;
        if (told_error(inode, err) != 0 ||
            volume_getattr(file->service, ctx, inode->node, &attr, err) != 0 ||
            index_read(file->service->index, read_landing, call, err) != 0)
            return -1;
        if (call->lost)
            return tell_lost(err);
        if (attr.synced || call->landed)
            return told_error(inode, err); /* a lost one looks synced too */
        if (!sync_wait(file->service, seen, deadline))
            return err_set(err, ERR_NOT_SYNCED,
                           "kept here, but the bucket did not take it in time");
    }
}

/* Level three: the bucket has the bytes before the answer (`sync=close`). */
static int
close_through(struct volume_file *file, const struct volume_ctx *ctx, struct err *err)
{
    struct inode *inode = file->inode;
    struct landing_call call = { .node = inode->node };
    pthread_mutex_lock(&inode->lock);
    int rc = content_freeze_locked(file->service, inode, err);
    call.content = inode->content;
    if (rc == 0)
        rc = index_read(file->service->index, read_version, &call, err);
    inode->awaited += rc == 0;
    pthread_mutex_unlock(&inode->lock);
    if (rc != 0)
        return -1;
    rest_suspend(file->service);
    sync_kick(file->service);
    rc = await_landing(file, ctx, &call, err);
    rest_resume(file->service);
    pthread_mutex_lock(&inode->lock);
    inode->awaited--;
    pthread_mutex_unlock(&inode->lock);
    return rc;
}

/* A writer that lost its name is told at each flush and fsync, in any volume: nothing that it writes gets to the path. */
static int
promise_bucket(struct volume_file *file, const struct volume_ctx *ctx, const struct ack_call *call,
               struct err *err)
{
    struct inode *inode = file->inode;
    if (call->sync_close)
        return close_through(file, ctx, err);
    if (!call->lost)
        return 0;
    scope_unlock pthread_mutex_t *held = scope_lock(&inode->lock);
    return inode->file != NULL && backing_changed_locked(inode) ? tell_lost(err) : 0;
}

int
volume_file_flush(struct volume_file *file, const struct volume_ctx *ctx, struct err *err)
{
    struct inode *inode = file->inode;
    struct ack_call call = { .service = file->service, .inode = inode, .flags = CONTENT_ACKED };
    bool asked = false;
    if (!file->writable)
        return 0;
    pthread_mutex_lock(&inode->lock);
    int rc = told_error(inode, err);
    if (file->lent_writer)
        cache_file_settle(inode->file);
    call.content = inode->content;
    if (rc == 0 && inode->state == CONTENT_LIVE && (inode->content_flags & CONTENT_ACKED) == 0) {
        rc = index_write(file->service->index, INDEX_NORMAL, flush_tx, &call, err);
        asked = rc == 0;
        if (rc == 0)
            inode->content_flags |= CONTENT_ACKED;
    }
    pthread_mutex_unlock(&inode->lock);
    if (rc != 0 || (!asked && index_read(file->service->index, read_sync_close, &call, err) != 0))
        return -1;
    return promise_bucket(file, ctx, &call, err);
}

/* The row of a file that is fsynced again and again says so already: then only what else was committed has to be kept. */
static int
promise_locked(struct ack_call *call, enum index_durability durability, struct err *err)
{
    const struct inode *inode = call->inode;
    bool promised = call->content != 0 && inode->content == call->content &&
                    inode->state == CONTENT_LIVE &&
                    (inode->content_flags & call->flags) == call->flags;
    if (!promised)
        return index_write(call->service->index, durability, ack_tx, call, err);
    return durability == INDEX_FULL ? index_make_durable(call->service->index, err) : 0;
}

/* The inode's lock is held, but not during the sync. A freeze meanwhile may have ended bytes that came after this sync began: they
 * are in the row that will be promised, and do not change any more. */
static int
sync_locked(struct inode *inode, int64_t content, struct err *err)
{
    struct cache_file *bytes = cache_ref(inode->file);
    unsigned freezes;
    int rc;
    do {
        freezes = inode->freezes;
        if (inode->content == content)
            inode->loose = false;
        inode->syncing++;
        pthread_mutex_unlock(&inode->lock);
        rc = cache_file_sync(bytes, err);
        pthread_mutex_lock(&inode->lock);
        inode->syncing--;
    } while (rc == 0 && inode->freezes != freezes);
    cache_put(bytes);
    return rc;
}

/* Bytes first, then the row that promises them (INV-2). CLEAN bytes lie in the bucket: nothing to do. */
static int
keep_bytes(struct ack_call *call, enum index_durability durability, struct err *err)
{
    struct inode *inode = call->inode;
    int rc = 0;
    pthread_mutex_lock(&inode->lock);
    if (inode->state != CONTENT_CLEAN && inode->file != NULL) {
        call->content = inode->content;
        rc = sync_locked(inode, call->content, err);
    }
    if (rc == 0)
        rc = promise_locked(call, durability, err);
    else if (err->code == ERR_IO)
        atomic_store(&call->service->read_only, true);
    if (rc != 0)
        inode->loose = true;
    else if (inode->content == call->content)
        inode->content_flags |= call->flags;
    pthread_mutex_unlock(&inode->lock);
    return rc;
}

int
volume_file_fsync(struct volume_file *file, const struct volume_ctx *ctx, struct err *err)
{
    struct inode *inode = file->inode;
    struct ack_call call = { .service = file->service,
                             .inode = inode,
                             .flags = CONTENT_ACKED | CONTENT_DURABLE };
    pthread_mutex_lock(&inode->lock);
    int rc = told_error(inode, err);
    pthread_mutex_unlock(&inode->lock);
    if (rc != 0 || keep_bytes(&call, INDEX_FULL, err) != 0)
        return -1;
    if (!file->writable || index_read(file->service->index, read_sync_close, &call, err) != 0)
        return rc;
    return promise_bucket(file, ctx, &call, err);
}

int
close_keep(struct volume_service *service, int64_t node, struct err *err)
{
    struct ack_call call = { .service = service, .flags = CONTENT_DURABLE };
    call.inode = inode_ref(&service->inodes, node, false, err);
    if (call.inode == NULL)
        return -1;
    pthread_mutex_lock(&call.inode->lock);
    int rc = content_open_locked(service, call.inode, err);
    pthread_mutex_unlock(&call.inode->lock);
    if (rc == 0)
        rc = keep_bytes(&call, INDEX_NORMAL, err);
    inode_unref(&service->inodes, call.inode, false);
    return rc;
}

struct close_call {
    struct volume_service *service;
    struct volume_file *file;
    struct drop_list drop;
};

/* True: the node is nobody's any more, and may have been unlinked meanwhile. Counts once, also where the transaction that did so
 * was undone. */
static bool
unopen(struct volume_file *file)
{
    bool counted;
    if (file->closed)
        return file->last;
    unsigned left = inode_unopen(&file->service->inodes, file->inode, &counted);
    file->closed = true;
    file->last = left == 0 && counted;
    return file->last;
}

static int
close_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct close_call *call = arg;
    struct index_node node;
    struct err missing = ERR_INIT;
    int64_t id = call->file->inode->node;
    /* Counted down here, so that of two that close at once one is the last. */
    (void)unopen(call->file);
    if (index_node_get(tx, id, &node, &missing) != 0 || (node.flags & INDEX_NODE_ORPHAN) == 0 ||
        inode_open_count(&call->service->inodes, id) > 0)
        return 0;
    if (node_drop_contents(tx, id, 0, &call->drop, err) != 0)
        return -1;
    return index_node_delete(tx, id, err);
}

/* Its bytes are still LIVE: the entry stays, for the next barrier to try again. */
static void
keep_stuck(struct volume_service *service, struct inode *inode)
{
    struct err ignored = ERR_INIT;
    if (!inode->stuck && inode->state == CONTENT_LIVE)
        inode->stuck = inode_ref(&service->inodes, inode->node, false, &ignored) != NULL;
}

bool
volume_file_close_waits(const struct volume_file *file)
{
    return file->writable || file->counted || inode_is_counted(&file->service->inodes, file->inode);
}

void
volume_file_close(struct volume_file *file, const struct volume_ctx *ctx)
{
    struct volume_service *service = file->service;
    struct inode *inode = file->inode;
    struct close_call call = { .service = service, .file = file };
    struct err err = ERR_INIT;
    bool ended = false;
    (void)ctx;
    pthread_mutex_lock(&inode->lock);
    bool wrote = file->counted, late = rest_is_over(service, inode->since_ns);
    backing_return_locked(file);
    if (wrote && --inode->writers == 0) {
        ended = content_freeze_and_locked(service, inode, close_tx, &call, &err) == 0;
        if (!ended) {
            log_error(volume, "cannot freeze node %lld: %s", (long long)inode->node, err.msg);
            keep_stuck(service, inode);
        }
    }
    pthread_mutex_unlock(&inode->lock);
    if (ended)
        drop_run(service, &call.drop);
    /* A close without a freeze changes nothing in the index but when it was the last of a file that has no name any more. */
    bool change = !ended && unopen(file);
    if (change && index_write(service->index, INDEX_NORMAL, close_tx, &call, &err) != 0)
        log_error(volume, "cannot close node %lld in the index: %s", (long long)inode->node,
                  err.msg);
    else if (change)
        drop_run(service, &call.drop);
    free(call.drop.number);
    content_unused(service, inode);
    handle_forget(file);
    if (wrote && late)
        sync_kick(service); /* before it is opened again */
    else if (wrote)
        rest_kick(service, NULL);
}
