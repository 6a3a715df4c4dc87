#include <assert.h>
#include <errno.h>

#include "base/scope.h"
#include "volume/service_impl.h"

/* Bytes that only the bucket has, brought block by block. Called with inode->lock held; store I/O drops it (INV-8). */

/* How much one GET of a large file brings. */
#define FETCH_SPAN (4u << 20)

struct rows_call {
    int64_t node_id;
    struct index_node node;
    struct index_content content;
    bool has_content;
};

static int
read_rows(struct index_tx *tx, void *arg, struct err *err)
{
    struct rows_call *call = arg;
    memset(&call->content, 0, sizeof(call->content));
    if (index_node_get(tx, call->node_id, &call->node, err) != 0)
        return -1;
    call->has_content = call->node.content != 0;
    return call->has_content ? index_content_get(tx, call->node.content, &call->content, err) : 0;
}

struct fetch_sink {
    struct cache_file *file;
    uint64_t off;
    size_t have;
    uint8_t *block;
};

static int
sink_flush(struct fetch_sink *sink, struct err *err)
{
    if (sink->have == 0)
        return 0;
    if (cache_map_fill(sink->file, sink->off, sink->block, sink->have, err) != 0)
        return -1;
    sink->off += sink->have;
    sink->have = 0;
    return 0;
}

static int
sink_bytes(void *arg, const void *data, size_t len, struct err *err)
{
    struct fetch_sink *sink = arg;
    const uint8_t *bytes = data;
    while (len > 0) {
        size_t room = CACHE_BLOCK_SIZE - sink->have;
        size_t part = len < room ? len : room;
        memcpy(sink->block + sink->have, bytes, part);
        sink->have += part;
        bytes += part;
        len -= part;
        if (sink->have == CACHE_BLOCK_SIZE && sink_flush(sink, err) != 0)
            return -1;
    }
    return 0;
}

struct fetch_job {
    struct cache_file *file;
    char key[LIMIT_KEY + 1];
    char etag[LIMIT_ETAG];
    uint64_t off, len, size;
    int64_t deadline_ns;
};

static int
fetch_range(struct volume_service *service, const struct fetch_job *job, struct err *err)
{
    struct fetch_sink sink = { .file = job->file, .off = job->off };
    scope_free uint8_t *block = malloc(CACHE_BLOCK_SIZE);
    if (block == NULL)
        return err_nomem(err);
    sink.block = block;
    struct store_object object;
    store_object_init(&object);
    bool whole = job->off == 0 && job->len == job->size;
    struct store_get get = { .key = job->key,
                             .off = job->off,
                             .len = whole ? 0 : job->len,
                             .if_match = job->etag,
                             .sink = sink_bytes,
                             .sink_arg = &sink,
                             .deadline_ns = job->deadline_ns };
    int rc = store_get(service->store, &get, &object, err);
    if (rc == 0 && object.size != job->size)
        rc = err_set(err, ERR_CONFLICT, "the object has another size than its version");
    store_object_release(&object);
    if (rc == 0)
        rc = sink_flush(&sink, err);
    if (rc == 0 && sink.off != job->off + job->len)
        rc = err_set(err, ERR_STORE_BAD_ANSWER, "the store sent %llu of %llu bytes",
                     (unsigned long long)(sink.off - job->off), (unsigned long long)job->len);
    service_store_seen(service, rc == 0 ? NULL : err);
    return rc;
}

static int
mark_complete(struct index_tx *tx, void *arg, struct err *err)
{
    struct inode *inode = arg;
    struct index_content row;
    if (index_content_get(tx, inode->content, &row, err) != 0)
        return err->code == ERR_NOT_FOUND ? 0 : -1;
    row.flags |= CONTENT_COMPLETE;
    return index_content_update(tx, &row, err);
}

struct attempt_call {
    const char *key;
    bool open;
};

static int
attempt_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct attempt_call *call = arg;
    struct index_intent intent;
    struct err missing = ERR_INIT;
    (void)err;
    call->open = index_intent_get(tx, call->key, &intent, &missing) == 0 &&
                 intent.attempt.op != SYNC_OP_NONE;
    return 0;
}

/* Our own request may have replaced the object, and the engine is about to find out (after a crash above all): waits a
 * moment. False when no request is open. */
static bool
await_attempt(struct volume_service *service, struct inode *inode, const struct fetch_job *job)
{
    struct attempt_call call = { .key = job->key };
    struct err ignored = ERR_INIT;
    uint64_t seen = sync_progress(service);
    int64_t until = clock_mono_ns() + NS_PER_S / 5;
    if (index_read(service->index, attempt_tx, &call, &ignored) != 0 || !call.open)
        return false;
    pthread_mutex_unlock(&inode->lock);
    sync_kick(service);
    (void)sync_wait(service, seen, until < job->deadline_ns ? until : job->deadline_ns);
    pthread_mutex_lock(&inode->lock);
    return true;
}

/* The object is not what the row says: look again, and say whether another try makes sense. */
static int
reresolve(struct volume_service *service, struct inode *inode, const struct fetch_job *job,
          struct err *err)
{
    struct rows_call call = { .node_id = inode->node };
    struct err local = ERR_INIT;
    if (index_read(service->index, read_rows, &call, &local) != 0) {
        *err = local;
        return -1;
    }
    if (call.content.id == inode->content && strcmp(call.node.key, job->key) != 0)
        return 0; /* it moved meanwhile */
    pthread_mutex_unlock(&inode->lock);
    int rc = bucket_observe_key(service, inode->volume, job->key, &local);
    pthread_mutex_lock(&inode->lock);
    if (rc != 0 || index_read(service->index, read_rows, &call, &local) != 0) {
        *err = local;
        return -1;
    }
    if (call.has_content && call.content.id == inode->content) {
        if (strcmp(call.content.etag, job->etag) != 0 || await_attempt(service, inode, job))
            return 0;
        return err_set(err, ERR_IO,
                       "the object was replaced in the bucket while the file was open, and its old "
                       "bytes are not here");
    }
    cache_put(inode->file);
    inode->file = NULL;
    inode->content = 0;
    return 0;
}

/* 1: the node has other bytes by now than the entry holds; one file never gets bytes of two versions (INV-1). */
static int
job_fill(struct volume_service *service, struct inode *inode, const struct volume_ctx *ctx,
         struct fetch_job *job, struct err *err)
{
    struct rows_call call = { .node_id = inode->node };
    uint64_t off, len;
    if (index_read(service->index, read_rows, &call, err) != 0)
        return -1;
    if (call.content.id != inode->content && (call.node.flags & INDEX_NODE_ORPHAN) != 0)
        return err_set(err, ERR_IO, "the file was replaced, and its old bytes are not here");
    if (call.content.id != inode->content) {
        cache_put(inode->file);
        inode->file = NULL;
        inode->content = 0;
        return 1;
    }
    job->size = call.content.size;
    if (job->len < FETCH_SPAN)
        job->len = FETCH_SPAN;
    if (job->size - job->off < job->len)
        job->len = job->size - job->off;
    if (cache_map_missing(inode->file, job->off, job->len, &off, &len)) {
        job->off = off;
        job->len = len;
    }
    text_set(job->key, call.node.key);
    text_set(job->etag, call.content.etag);
    job->file = cache_ref(inode->file);
    job->deadline_ns = service_deadline(ctx);
    return 0;
}

static int
wait_fetch(struct inode *inode, int64_t deadline_ns, struct err *err)
{
    struct timespec until = { .tv_sec = deadline_ns / NS_PER_S, .tv_nsec = deadline_ns % NS_PER_S };
    if (pthread_cond_timedwait(&inode->fetched, &inode->lock, &until) == ETIMEDOUT)
        return err_set(err, ERR_STORE_TIMEOUT, "the bytes did not arrive in time");
    return 0;
}

/* A crash may have come between the last block and its row; an empty file never had a block to fetch. */
static int
note_complete(struct volume_service *service, struct inode *inode, struct err *err)
{
    if ((inode->content_flags & CONTENT_COMPLETE) != 0 || !cache_complete(inode->file))
        return 0;
    if (index_write(service->index, INDEX_NORMAL, mark_complete, inode, err) != 0)
        return -1;
    inode->content_flags |= CONTENT_COMPLETE;
    return 0;
}

/* 1: the object is another one by now. */
static int
fetch_once(struct volume_service *service, const struct volume_ctx *ctx, struct inode *inode,
           uint64_t off, uint64_t len, struct err *err)
{
    struct fetch_job job = { .off = off, .len = len };
    struct err local = ERR_INIT;
    int filled = job_fill(service, inode, ctx, &job, err);
    if (filled != 0)
        return filled;
    inode->fetching = true;
    pthread_mutex_unlock(&inode->lock);
    int rc = fetch_range(service, &job, &local);
    pthread_mutex_lock(&inode->lock);
    inode->fetching = false;
    pthread_cond_broadcast(&inode->fetched);
    cache_put(job.file);
    inode->failed_ns = rc == 0 ? 0 : clock_mono_ns();
    if (rc != 0) {
        *err = inode->fetch_err = local;
        if (local.code == ERR_CONFLICT || local.code == ERR_NOT_FOUND)
            return reresolve(service, inode, &job, err) == 0 ? 1 : -1;
        return -1;
    }
    /* Of what the entry holds now, which may be another file than was fetched into. */
    return inode->file == NULL ? 0 : note_complete(service, inode, err);
}

/* The kernel asks page by page again when its read-ahead failed: the second answer is the first one, not another full
 * deadline later. */
#define FAIL_FAST_NS (NS_PER_S / 2)

static bool
failed_just_now(const struct inode *inode, struct err *err)
{
    if (inode->failed_ns == 0 || clock_mono_ns() - inode->failed_ns > FAIL_FAST_NS)
        return false;
    if (inode->fetch_err.code == ERR_CONFLICT || inode->fetch_err.code == ERR_NOT_FOUND)
        return false; /* looked at again already */
    *err = inode->fetch_err;
    return true;
}

int
content_need_locked(struct volume_service *service, const struct volume_ctx *ctx,
                    struct inode *inode, uint64_t off, uint64_t len, struct err *err)
{
    uint64_t miss_off, miss_len;
    int64_t deadline = service_deadline(ctx);
    for (unsigned changes = 0; changes < 64;) {
        if (content_open_locked(service, inode, err) != 0)
            return -1;
        if (!cache_map_missing(inode->file, off, len, &miss_off, &miss_len))
            return ctx->nowait ? 0 : note_complete(service, inode, err);
        if (ctx->nowait)
            return err_set(err, ERR_AGAIN, "bytes have to be fetched first");
        if (failed_just_now(inode, err))
            return -1;
        if (clock_mono_ns() >= deadline)
            return err_set(err, ERR_STORE_TIMEOUT, "the bytes did not arrive in time");
        int rc = inode->fetching ? wait_fetch(inode, deadline, err)
                                 : fetch_once(service, ctx, inode, miss_off, miss_len, err);
        if (rc < 0)
            return -1;
        changes += (unsigned)rc;
    }
    return err_set(err, ERR_IO, "the object keeps changing in the bucket");
}
