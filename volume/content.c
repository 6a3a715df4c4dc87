#include <assert.h>
#include <errno.h>
#include <sys/stat.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/scope.h"
#include "volume/service_impl.h"

/* The bytes behind an inode: which content file, in which state, and what must be fetched first (docs/mechanisms.md
 * section 2). Everything here runs with inode->lock held; store I/O drops it (INV-8). */

/* A CLEAN file up to this size is copied for a writer; a larger one is changed in place. */
#define COPY_LIMIT (1u << 20)
/* How much one GET of a large file brings. */
#define FETCH_SPAN (4u << 20)

struct content_call {
    struct volume_service *service;
    struct inode *inode;
    struct index_node node;
    struct index_content content;
    bool has_content;
    bool attempt_sent;
    /* changes */
    enum content_open how;
    bool truncate;
    uint64_t open_fh;
    int64_t connection;
    const char *actor, *run;
    struct cache_meta meta;
    struct drop_list drop;
    struct stat st;
    bool made_fresh;
    int64_t before; /* what undo_write_tx() puts back */
};

struct frozen_call {
    struct index_content *out;
    bool found;
};

static int
pick_frozen(void *arg, const struct index_content *row, struct err *err)
{
    struct frozen_call *call = arg;
    (void)err;
    if (!call->found && row->state == CONTENT_FROZEN) {
        *call->out = *row;
        call->found = true;
    }
    return 0;
}

int
content_frozen_of(struct index_tx *tx, int64_t node, struct index_content *out, struct err *err)
{
    struct frozen_call call = { .out = out };
    if (index_content_of_node(tx, node, pick_frozen, &call, err) != 0)
        return -1;
    return call.found ? 0 : err_set(err, ERR_NOT_FOUND, "no frozen content");
}

void
content_meta_fill(struct index_tx *tx, const struct index_node *node,
                  const struct index_content *content, struct cache_meta *out)
{
    struct index_volume volume;
    struct err ignored = ERR_INIT;
    memset(out, 0, sizeof(*out));
    if (index_volume_get(tx, node->volume, &volume, &ignored) == 0)
        text_set(out->volume, volume.name);
    if (index_node_path(tx, node->id, out->path, sizeof(out->path), &ignored) != 0)
        out->path[0] = '\0';
    text_set(out->node, node->ulid);
    text_set(out->version, content->version);
    text_set(out->base_version, content->base_version);
    text_set(out->base_etag, content->base_etag);
    text_set(out->sha256, content->sha256);
    text_set(out->run, content->run);
    text_set(out->actor, content->actor);
    out->mode = node->mode;
    out->uid = node->uid;
    out->gid = node->gid;
    out->mtime_ns = content->mtime_ns;
    out->size = content->size;
    out->live = content->state == CONTENT_LIVE;
}

/* ---- opening ---- */

static int
load_rows(struct index_tx *tx, void *arg, struct err *err)
{
    struct content_call *call = arg;
    struct index_intent intent;
    struct err missing = ERR_INIT;
    char key[LIMIT_KEY + 1];
    if (index_node_get(tx, call->inode->node, &call->node, err) != 0)
        return -1;
    call->has_content = call->node.content != 0;
    if (!call->has_content)
        return 0;
    if (index_content_get(tx, call->node.content, &call->content, err) != 0)
        return -1;
    /* An attempt may run on the key where the object lies or on the home key: look at both. */
    call->attempt_sent = false;
    if (key_of_node(tx, &call->node, key, &missing) == 0 &&
        index_intent_get(tx, key, &intent, &missing) == 0)
        call->attempt_sent =
            intent.attempt.op == SYNC_OP_PUT && intent.attempt.content == call->content.id;
    if (call->node.key[0] != '\0' && index_intent_get(tx, call->node.key, &intent, &missing) == 0)
        call->attempt_sent |=
            intent.attempt.op == SYNC_OP_PUT && intent.attempt.content == call->content.id;
    return 0;
}

static int
insert_clean(struct index_tx *tx, void *arg, struct err *err)
{
    struct content_call *call = arg;
    if (load_rows(tx, call, err) != 0)
        return -1;
    if (call->has_content)
        return 0;
    if (call->node.kind != INDEX_FILE)
        return err_set(err, ERR_IS_DIR, "not a file");
    memset(&call->content, 0, sizeof(call->content));
    call->content.node = call->node.id;
    call->content.volume = call->node.volume;
    call->content.state = CONTENT_CLEAN;
    call->content.size = call->node.size;
    call->content.mtime_ns = call->node.mtime_ns;
    text_copy(call->content.version, ULID_SIZE, call->node.version);
    text_copy(call->content.etag, LIMIT_ETAG, call->node.etag);
    text_set(call->content.boot_id, call->service->boot_id);
    if (index_content_insert(tx, &call->content, err) != 0)
        return -1;
    call->node.content = call->content.id;
    call->made_fresh = true;
    return index_node_update(tx, &call->node, err);
}

static int
drop_content_row(struct index_tx *tx, void *arg, struct err *err)
{
    struct content_call *call = arg;
    struct index_node node;
    if (index_content_delete(tx, call->content.id, err) != 0)
        return -1;
    if (index_node_get(tx, call->inode->node, &node, err) != 0)
        return -1;
    if (node.content != call->content.id)
        return 0;
    node.content = 0;
    return index_node_update(tx, &node, err);
}

void
content_adopt_locked(struct inode *inode, const struct index_content *content,
                     struct cache_file *file)
{
    if (inode->file != file)
        cache_put(inode->file);
    inode->file = file;
    inode->content = content->id;
    inode->volume = content->volume;
    inode->state = content->state;
    inode->content_flags = content->flags;
}

static int
open_fresh(struct volume_service *service, struct content_call *call, struct err *err)
{
    struct cache_file *file = cache_create(service->cache, call->content.id, NULL, false, err);
    if (file == NULL || cache_map_begin(file, call->content.size, err) != 0) {
        struct err ignored = ERR_INIT;
        cache_put(file);
        if (index_write(service->index, INDEX_NORMAL, drop_content_row, call, &ignored) != 0)
            log_warn(volume, "cannot take back a content row: %s", ignored.msg);
        cache_remove(service->cache, call->content.id);
        return -1;
    }
    content_adopt_locked(call->inode, &call->content, file);
    return 0;
}

/* The cache's file is not there (somebody removed it): a synced version comes from the bucket again. */
static int
forget_missing(struct index_tx *tx, void *arg, struct err *err)
{
    struct content_call *call = arg;
    struct index_content row;
    if (index_content_get(tx, call->content.id, &row, err) != 0)
        return err->code == ERR_NOT_FOUND ? 0 : -1;
    if (row.state != CONTENT_CLEAN)
        return err_set(err, ERR_IO, "the staged bytes of content file %lld are not there",
                       (long long)row.id);
    return drop_content_row(tx, arg, err);
}

static int
open_once(struct volume_service *service, struct inode *inode, struct err *err)
{
    struct content_call call = { .service = service, .inode = inode };
    struct err local = ERR_INIT;
    if (index_read(service->index, load_rows, &call, err) != 0)
        return -1;
    if (!call.has_content &&
        index_write(service->index, INDEX_NORMAL, insert_clean, &call, err) != 0)
        return -1;
    if (call.made_fresh)
        return open_fresh(service, &call, err);
    struct cache_file *file = cache_get(service->cache, call.content.id, &local);
    if (file == NULL && local.code == ERR_NOT_FOUND) {
        log_error(volume, "content file %lld of node %lld is gone", (long long)call.content.id,
                  (long long)inode->node);
        return index_write(service->index, INDEX_NORMAL, forget_missing, &call, err);
    }
    if (file == NULL) {
        *err = local;
        return err_wrap(err, "content file %lld", (long long)call.content.id);
    }
    content_adopt_locked(inode, &call.content, file);
    /* Nobody remembers what its writer did: it counts as changed. */
    if (call.content.state == CONTENT_LIVE)
        inode->dirty_size = inode->loose = true;
    cache_touch(service->cache, call.content.id);
    return 0;
}

/* The name of a new file is there a moment before its content file (create.c). */
static void
await_making(struct inode *inode)
{
    while (inode->making)
        pthread_cond_wait(&inode->fetched, &inode->lock);
}

int
content_open_locked(struct volume_service *service, struct inode *inode, struct err *err)
{
    await_making(inode);
    for (unsigned tries = 0; tries < 3 && inode->file == NULL; tries++)
        if (open_once(service, inode, err) != 0)
            return -1;
    return inode->file != NULL ? 0 : err_set(err, ERR_IO, "the content file cannot be kept");
}

/* ---- fetching ---- */

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

/* The object is not what the row says: look again, and say whether another try makes sense. */
static int
reresolve(struct volume_service *service, struct inode *inode, const struct fetch_job *job,
          struct err *err)
{
    struct content_call call = { .service = service, .inode = inode };
    struct err local = ERR_INIT;
    if (index_read(service->index, load_rows, &call, &local) != 0) {
        *err = local;
        return -1;
    }
    if (call.content.id == inode->content && strcmp(call.node.key, job->key) != 0)
        return 0; /* it moved meanwhile */
    pthread_mutex_unlock(&inode->lock);
    int rc = bucket_observe_key(service, inode->volume, job->key, &local);
    pthread_mutex_lock(&inode->lock);
    if (rc != 0 || index_read(service->index, load_rows, &call, &local) != 0) {
        *err = local;
        return -1;
    }
    if (call.has_content && call.content.id == inode->content)
        return err_set(err, ERR_IO,
                       "the object was replaced in the bucket while the file was open, and its old "
                       "bytes are not here");
    cache_put(inode->file);
    inode->file = NULL;
    inode->content = 0;
    return 0;
}

static int
job_fill(struct volume_service *service, struct inode *inode, const struct volume_ctx *ctx,
         struct fetch_job *job, struct err *err)
{
    struct content_call call = { .service = service, .inode = inode };
    uint64_t off, len;
    if (index_read(service->index, load_rows, &call, err) != 0)
        return -1;
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

/* 1: the object is another one by now. */
static int
fetch_once(struct volume_service *service, const struct volume_ctx *ctx, struct inode *inode,
           uint64_t off, uint64_t len, struct err *err)
{
    struct fetch_job job = { .off = off, .len = len };
    struct err local = ERR_INIT;
    if (job_fill(service, inode, ctx, &job, err) != 0)
        return -1;
    inode->fetching = true;
    pthread_mutex_unlock(&inode->lock);
    int rc = fetch_range(service, &job, &local);
    pthread_mutex_lock(&inode->lock);
    inode->fetching = false;
    pthread_cond_broadcast(&inode->fetched);
    bool complete = rc == 0 && cache_complete(job.file);
    cache_put(job.file);
    inode->failed_ns = rc == 0 ? 0 : clock_mono_ns();
    if (rc != 0) {
        *err = inode->fetch_err = local;
        if (local.code == ERR_CONFLICT || local.code == ERR_NOT_FOUND)
            return reresolve(service, inode, &job, err) == 0 ? 1 : -1;
        return -1;
    }
    if (complete) {
        inode->content_flags |= CONTENT_COMPLETE;
        return index_write(service->index, INDEX_NORMAL, mark_complete, inode, err);
    }
    return 0;
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

/* ---- writing ---- */

static void
stage_row(struct content_call *call)
{
    struct index_content *row = &call->content;
    memset(row, 0, sizeof(*row));
    row->node = call->node.id;
    row->volume = call->node.volume;
    row->state = CONTENT_LIVE;
    row->flags = CONTENT_COMPLETE | (call->truncate ? CONTENT_TRUNCATED : 0u);
    text_set(row->base_version, call->node.version);
    text_set(row->base_etag, call->node.etag);
    text_set(row->boot_id, call->service->boot_id);
    text_set(row->actor, call->actor);
    text_set(row->run, call->run);
}

static int
begin_write_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct content_call *call = arg;
    struct index_content seen = call->content;
    bool in_place = call->how == CONTENT_OPEN_THAW || call->how == CONTENT_OPEN_IN_PLACE;
    if (load_rows(tx, call, err) != 0)
        return -1;
    /* The engine may have frozen the bytes for a move and sent them since. */
    if ((call->has_content ? call->content.id : 0) != seen.id ||
        (call->has_content && call->content.state != seen.state) ||
        (in_place && call->attempt_sent))
        return err_set(err, ERR_AGAIN, "the file changed meanwhile");
    call->before = call->node.content;
    if (call->how == CONTENT_OPEN_NEW_EMPTY || call->how == CONTENT_OPEN_NEW_COPY) {
        stage_row(call);
        if (index_content_insert(tx, &call->content, err) != 0)
            return -1;
        call->node.content = call->content.id;
        if (index_node_update(tx, &call->node, err) != 0)
            return -1;
    } else if (call->how != CONTENT_OPEN_JOIN) {
        call->content.state = CONTENT_LIVE;
        call->content.sha256[0] = call->content.md5[0] = '\0';
        /* A thawed file keeps its promise: the fsynced bytes have no other place. */
        if (call->how == CONTENT_OPEN_IN_PLACE) {
            call->content.flags &= ~(unsigned)CONTENT_DURABLE;
            text_copy(call->content.base_version, ULID_SIZE, call->node.version);
            text_copy(call->content.base_etag, LIMIT_ETAG, call->node.etag);
        }
        text_set(call->content.boot_id, call->service->boot_id);
        if (index_content_update(tx, &call->content, err) != 0)
            return -1;
    }
    content_meta_fill(tx, &call->node, &call->content, &call->meta);
    if (call->open_fh == 0)
        return 0;
    struct index_open open = {
        .connection = call->connection, .fh = call->open_fh, .node = call->node.id, .writable = true
    };
    return index_open_put(tx, &open, err);
}

static int
undo_write_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct content_call *call = arg;
    struct index_node node;
    if (index_content_delete(tx, call->content.id, err) != 0 ||
        index_node_get(tx, call->inode->node, &node, err) != 0)
        return -1;
    node.content = call->before;
    return index_node_update(tx, &node, err);
}

static int
make_live_file(struct volume_service *service, struct content_call *call, struct err *err)
{
    struct cache_file *file =
        cache_create(service->cache, call->content.id, &call->meta, true, err);
    int rc = file == NULL ? -1 : 0;
    if (rc == 0 && call->how == CONTENT_OPEN_NEW_COPY)
        rc = cache_file_copy(file, call->inode->file, err);
    if (rc == 0) {
        content_adopt_locked(call->inode, &call->content, file);
        return 0;
    }
    struct err ignored = ERR_INIT;
    cache_put(file);
    if (index_write(service->index, INDEX_NORMAL, undo_write_tx, call, &ignored) != 0)
        log_error(volume, "cannot take back a staged content row: %s", ignored.msg);
    cache_remove(service->cache, call->content.id);
    return -1;
}

static int
decide_write(struct volume_service *service, const struct volume_ctx *ctx,
             struct content_call *call, struct err *err)
{
    struct inode *inode = call->inode;
    if (index_read(service->index, load_rows, call, err) != 0)
        return -1;
    if (call->node.kind != INDEX_FILE)
        return err_set(err, call->node.kind == INDEX_DIR ? ERR_IS_DIR : ERR_LOOP, "not a file");
    struct content_view view = { .exists = call->has_content,
                                 .state = call->content.state,
                                 .flags = call->content.flags,
                                 .attempt_sent = call->attempt_sent,
                                 .other_writers = inode->writers > 0,
                                 .size = call->has_content ? call->content.size : call->node.size };
    if (!call->has_content && inode->file != NULL && (call->node.flags & INDEX_NODE_ORPHAN) != 0) {
        /* Its bytes became a conflict's, and its writer goes on. */
        call->content.id = 0;
        call->how = call->truncate ? CONTENT_OPEN_NEW_EMPTY : CONTENT_OPEN_NEW_COPY;
        return 0;
    }
    if (!call->has_content) {
        call->content.id = 0;
        /* Evicted between our first look and now: the descriptor must not outlive its row. */
        cache_put(inode->file);
        inode->file = NULL;
        inode->content = 0;
    }
    /* Bytes that only the bucket has count as a CLEAN file with everything missing. */
    if (!view.exists && call->node.size > 0 && call->node.key[0] != '\0') {
        view.exists = true;
        view.state = CONTENT_CLEAN;
    }
    if (view.exists && view.state == CONTENT_CLEAN && call->has_content) {
        if (content_open_locked(service, inode, err) != 0)
            return -1;
        if (cache_complete(inode->file))
            view.flags |= CONTENT_COMPLETE;
    }
    call->how = content_open_for_writing(&view, call->truncate, COPY_LIMIT);
    if (call->how == CONTENT_OPEN_FETCH_FIRST)
        return content_need_locked(service, ctx, inode, 0, view.size, err);
    if (call->how == CONTENT_OPEN_ASIDE_IN_PLACE)
        call->how = CONTENT_OPEN_NEW_COPY; /* no backing is ever lent yet */
    return 0;
}

void
content_set_mtime_locked(struct inode *inode, int64_t mtime_ns)
{
    struct timespec times[2] = {
        { .tv_nsec = UTIME_OMIT }, { .tv_sec = mtime_ns / NS_PER_S, .tv_nsec = mtime_ns % NS_PER_S }
    };
    if (times[1].tv_nsec < 0) {
        times[1].tv_nsec += NS_PER_S;
        times[1].tv_sec--;
    }
    (void)futimens(cache_file_fd(inode->file), times);
}

static int
apply_write(struct volume_service *service, struct content_call *call, struct err *err)
{
    struct inode *inode = call->inode;
    bool durable = call->how == CONTENT_OPEN_IN_PLACE || call->how == CONTENT_OPEN_THAW;
    if (call->how != CONTENT_OPEN_NEW_EMPTY && content_open_locked(service, inode, err) != 0)
        return -1;
    if (index_write(service->index, durable ? INDEX_FULL : INDEX_NORMAL, begin_write_tx, call,
                    err) != 0)
        return -1;
    if (call->how == CONTENT_OPEN_NEW_EMPTY || call->how == CONTENT_OPEN_NEW_COPY) {
        if (make_live_file(service, call, err) != 0)
            return -1;
        /* A LIVE file's time is its node's, and opening alone changes no time. */
        if (call->how == CONTENT_OPEN_NEW_COPY)
            content_set_mtime_locked(inode, call->node.mtime_ns);
        return 0;
    }
    inode->state = CONTENT_LIVE;
    inode->content_flags = call->content.flags;
    if (call->how != CONTENT_OPEN_JOIN) {
        cache_pin(service->cache, call->content.id);
        if (cache_meta_write(inode->file, &call->meta, err) != 0)
            return -1;
        content_set_mtime_locked(inode, call->node.mtime_ns);
    }
    if (!call->truncate)
        return 0;
    inode->dirty_size = inode->loose = true;
    return cache_file_truncate(inode->file, 0, err);
}

int
content_begin_write_locked(struct volume_service *service, const struct volume_ctx *ctx,
                           struct inode *inode, bool truncate, uint64_t open_fh, struct err *err)
{
    await_making(inode);
    for (unsigned tries = 0; tries < 16; tries++) {
        struct content_call call = { .service = service,
                                     .inode = inode,
                                     .truncate = truncate,
                                     .open_fh = open_fh,
                                     .connection = ctx->connection,
                                     .actor = ctx->actor == NULL ? "" : ctx->actor,
                                     .run = ctx->run == NULL ? "" : ctx->run };
        if (decide_write(service, ctx, &call, err) != 0)
            return -1;
        if (call.how == CONTENT_OPEN_FETCH_FIRST)
            continue;
        if (apply_write(service, &call, err) == 0) {
            inode->volume = call.node.volume;
            inode->dirty_size |= truncate;
            return 0;
        }
        if (err->code == ERR_AGAIN && !ctx->nowait)
            continue;
        /* No close of a writer will come: what is LIVE in the index already is frozen as it was. */
        struct err ignored = ERR_INIT;
        if (inode->writers == 0 && content_freeze_locked(service, inode, &ignored) != 0)
            log_error(volume, "cannot freeze node %lld: %s", (long long)inode->node, ignored.msg);
        return -1;
    }
    return err_set(err, ERR_BUSY, "the file keeps changing");
}

/* ---- freezing ---- */

struct freeze_call {
    struct volume_service *service;
    struct inode *inode;
    struct stat st;
    bool changed;
    bool kept; /* fdatasynced right before */
    bool replaces_promised;
    struct cache_meta meta;
    struct index_node node;
    struct index_content content;
    struct drop_list drop;
};

struct older_call {
    struct index_tx *tx;
    int64_t keep;
    int64_t stale[8];
    size_t count;
};

static int
find_older(void *arg, const struct index_content *row, struct err *err)
{
    struct older_call *call = arg;
    (void)err;
    if (row->id != call->keep && row->state != CONTENT_LIVE && call->count < 8 &&
        (row->flags & CONTENT_PINNED) == 0)
        call->stale[call->count++] = row->id;
    return 0;
}

/* Older bytes of the node that nothing needs any more: CLEAN ones, and FROZEN ones that were never sent. */
static int
drop_older(struct index_tx *tx, struct freeze_call *call, const char *key, struct err *err)
{
    struct older_call older = { .tx = tx, .keep = call->content.id };
    struct index_intent intent;
    struct err missing = ERR_INIT;
    int64_t sent = 0;
    if (index_intent_get(tx, key, &intent, &missing) == 0 && intent.attempt.op == SYNC_OP_PUT)
        sent = intent.attempt.content;
    if (index_content_of_node(tx, call->node.id, find_older, &older, err) != 0)
        return -1;
    for (size_t i = 0; i < older.count; i++) {
        if (older.stale[i] == sent)
            continue;
        if (index_content_delete(tx, older.stale[i], err) != 0 ||
            drop_add(&call->drop, older.stale[i], err) != 0)
            return -1;
    }
    return 0;
}

struct loser_call {
    int64_t node;
    bool found;
    char path[LIMIT_PATH + 1]; /* the name that it had then */
};

static int
match_conflict(void *arg, const struct index_conflict *row, struct err *err)
{
    struct loser_call *call = arg;
    (void)err;
    if (row->node != call->node)
        return 0;
    call->found = true;
    text_set(call->path, row->path);
    return 0;
}

/* An orphan that lost a conflict goes on losing: what its writer still had to say is kept too. Any other orphan was
 * unlinked by its owner. */
static int
keep_orphan(struct index_tx *tx, struct freeze_call *call, struct err *err)
{
    struct view_loser kept = { .content = &call->content, .reason = "conflict" };
    struct loser_call loser = { .node = call->node.id };
    if (index_conflict_each(tx, call->node.volume, match_conflict, &loser, err) != 0 ||
        index_content_update(tx, &call->content, err) != 0)
        return -1;
    if (loser.found) {
        call->node.content = 0;
        kept.path = loser.path;
        if (view_keep_loser(call->service, tx, &call->node, &kept, err) != 0)
            return -1;
    }
    return index_node_update(tx, &call->node, err);
}

/* Opened for writing, but nothing was written: the bytes are still those of the synced version. */
static int
unfreeze_unchanged(struct index_tx *tx, struct freeze_call *call, struct err *err)
{
    struct index_content *row = &call->content;
    row->state = CONTENT_CLEAN;
    row->size = (uint64_t)call->st.st_size;
    text_set(row->version, call->node.version);
    text_set(row->etag, call->node.etag);
    if (index_content_update(tx, row, err) != 0)
        return -1;
    if ((call->node.flags & INDEX_NODE_ORPHAN) != 0)
        return 0;
    /* What waited for the writer, a move or new attributes, goes on. */
    char home[LIMIT_KEY + 1];
    if (key_of_node(tx, &call->node, home, err) != 0)
        return -1;
    bool waits =
        (call->node.flags & INDEX_NODE_ATTRS_DIRTY) != 0 || strcmp(call->node.key, home) != 0;
    return waits ? key_want_sync(tx, call->node.volume, home, 0, err) : 0;
}

static int
freeze_rows(struct index_tx *tx, struct freeze_call *call, struct err *err)
{
    struct index_content *row = &call->content;
    char key[LIMIT_KEY + 1];
    row->state = CONTENT_FROZEN;
    row->size = (uint64_t)call->st.st_size;
    row->mtime_ns = call->st.st_mtim.tv_sec * NS_PER_S + call->st.st_mtim.tv_nsec;
    row->flags |= CONTENT_COMPLETE | CONTENT_ACKED | (call->kept ? CONTENT_DURABLE : 0u);
    row->sha256[0] = row->md5[0] = '\0';
    if (ulid_new(row->version, err) != 0)
        return -1;
    call->node.size = row->size;
    call->node.mtime_ns = row->mtime_ns;
    if (row->mtime_ns > call->node.ctime_ns)
        call->node.ctime_ns = row->mtime_ns;
    content_meta_fill(tx, &call->node, row, &call->meta);
    if ((call->node.flags & INDEX_NODE_ORPHAN) != 0)
        return keep_orphan(tx, call, err);
    if (index_content_update(tx, row, err) != 0 || index_node_update(tx, &call->node, err) != 0)
        return -1;
    if (key_of_node(tx, &call->node, key, err) != 0 || drop_older(tx, call, key, err) != 0)
        return -1;
    return key_want_sync(tx, call->node.volume, key, call->service->sync_delay_ns, err);
}

static int
freeze_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct freeze_call *call = arg;
    if (index_node_get(tx, call->inode->node, &call->node, err) != 0 ||
        index_content_get(tx, call->inode->content, &call->content, err) != 0)
        return -1;
    if (call->content.state != CONTENT_LIVE)
        return 0;
    struct index_content staged;
    struct err missing = ERR_INIT;
    bool was_synced = call->node.key[0] != '\0' && call->content.version[0] == '\0';
    was_synced |=
        call->node.key[0] != '\0' && strcmp(call->content.version, call->node.version) == 0;
    /* A copy made beside an upload holds bytes that no object has yet: it is no copy of the synced version. */
    bool beside = content_frozen_of(tx, call->node.id, &staged, &missing) == 0;
    if (!beside && missing.code != ERR_NOT_FOUND) {
        *err = missing;
        return -1;
    }
    if (!call->changed && was_synced && !beside &&
        strcmp(call->content.base_etag, call->node.etag) == 0 &&
        (call->content.flags & CONTENT_TRUNCATED) == 0)
        return unfreeze_unchanged(tx, call, err);
    return freeze_rows(tx, call, err);
}

static int
find_promised(void *arg, const struct index_content *row, struct err *err)
{
    struct freeze_call *call = arg;
    (void)err;
    call->replaces_promised |= row->id != call->inode->content && row->state == CONTENT_FROZEN &&
                               (row->flags & CONTENT_DURABLE) != 0;
    return 0;
}

static int
find_promised_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct freeze_call *call = arg;
    return index_content_of_node(tx, call->inode->node, find_promised, call, err);
}

/* fsync was answered for these bytes and more were written since, or for an unsynced version that freezing ends: after a
 * power cut a row that says durable is believed, and nothing else holds what it promised. */
static int
keep_promise(struct freeze_call *call, struct err *err)
{
    struct inode *inode = call->inode;
    bool durable = (inode->content_flags & CONTENT_DURABLE) != 0;
    if (!call->changed || (durable && !inode->loose))
        return 0;
    if (index_read(call->service->index, find_promised_tx, call, err) != 0)
        return -1;
    if (!durable && !call->replaces_promised)
        return 0;
    if (cache_file_sync(inode->file, err) != 0) {
        if (err->code == ERR_IO)
            atomic_store(&call->service->read_only, true);
        return -1;
    }
    call->kept = true;
    return 0;
}

int
content_freeze_locked(struct volume_service *service, struct inode *inode, struct err *err)
{
    struct freeze_call call = { .service = service, .inode = inode, .changed = inode->dirty_size };
    if (inode->file == NULL || inode->state != CONTENT_LIVE)
        return 0;
    if (keep_promise(&call, err) != 0)
        return -1;
    if (fstat(cache_file_fd(inode->file), &call.st) != 0)
        return err_sys(err, errno, "cannot look at a content file");
    if (index_write(service->index, INDEX_NORMAL, freeze_tx, &call, err) != 0) {
        free(call.drop.number);
        return -1;
    }
    drop_run(service, &call.drop);
    inode->state = call.content.state;
    inode->content_flags = call.content.flags;
    inode->dirty_size = inode->loose = false;
    if (call.content.state == CONTENT_CLEAN) {
        cache_unpin(service->cache, inode->content);
        return 0;
    }
    return cache_meta_write(inode->file, &call.meta, err);
}
