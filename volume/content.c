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

struct content_call {
    struct volume_service *service;
    struct inode *inode;
    struct index_node node;
    struct index_content content;
    bool has_content;
    bool attempt_sent;
    int64_t since_ns; /* wall: of the work at its key, 0: none */
    bool copied;      /* the same version has another row */
    /* changes */
    enum content_open how;
    bool truncate;
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
    /* By version, not by number: a copy of a file that stays open has a higher number than the file. */
    bool newer = !call->found || strcmp(row->version, call->out->version) > 0;
    if (newer && row->state == CONTENT_FROZEN) {
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
find_copy(void *arg, const struct index_content *row, struct err *err)
{
    struct content_call *call = arg;
    (void)err;
    call->copied |= row->id != call->content.id && row->state == CONTENT_FROZEN &&
                    strcmp(row->version, call->content.version) == 0;
    return 0;
}

/* Who only reads the bytes needs no more. */
static int
load_content(struct index_tx *tx, void *arg, struct err *err)
{
    struct content_call *call = arg;
    if (index_node_get(tx, call->inode->node, &call->node, err) != 0)
        return -1;
    call->has_content = call->node.content != 0;
    return call->has_content ? index_content_get(tx, call->node.content, &call->content, err) : 0;
}

static int
load_rows(struct index_tx *tx, void *arg, struct err *err)
{
    struct content_call *call = arg;
    struct index_intent intent;
    struct err missing = ERR_INIT;
    char key[LIMIT_KEY + 1];
    if (load_content(tx, call, err) != 0)
        return -1;
    if (!call->has_content)
        return 0;
    /* An attempt may run on the key where the object lies or on the home key: look at both. */
    call->attempt_sent = false;
    call->since_ns = 0;
    if (key_of_node(tx, &call->node, key, &missing) == 0 &&
        index_intent_get(tx, key, &intent, &missing) == 0) {
        call->attempt_sent =
            intent.attempt.op == SYNC_OP_PUT && intent.attempt.content == call->content.id;
        call->since_ns = intent.since_ns;
    }
    if (call->node.key[0] != '\0' && index_intent_get(tx, call->node.key, &intent, &missing) == 0)
        call->attempt_sent |=
            intent.attempt.op == SYNC_OP_PUT && intent.attempt.content == call->content.id;
    call->copied = false;
    if (call->content.state != CONTENT_FROZEN || call->inode->lent == 0)
        return 0;
    return index_content_of_node(tx, call->node.id, find_copy, call, err);
}

static int
insert_clean(struct index_tx *tx, void *arg, struct err *err)
{
    struct content_call *call = arg;
    if (load_content(tx, call, err) != 0)
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

/* Made for a synced version a moment before the gateway died. */
static bool
is_cut(const struct index_content *content, struct cache_file *file)
{
    uint64_t size = 0;
    struct err ignored = ERR_INIT;
    return content->state == CONTENT_CLEAN && cache_file_size(file, &size, &ignored) == 0 &&
           size != content->size;
}

static int
open_once(struct volume_service *service, struct inode *inode, struct err *err)
{
    struct content_call call = { .service = service, .inode = inode };
    struct err local = ERR_INIT;
    if (index_read(service->index, load_content, &call, err) != 0)
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
    if (is_cut(&call.content, file)) {
        cache_put(file);
        if (index_write(service->index, INDEX_NORMAL, forget_missing, &call, err) != 0)
            return -1;
        cache_remove(service->cache, call.content.id);
        return 0;
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
        /* Emptied in place for the sake of readers: until the close the version before counts. */
        if (call->truncate) {
            call->content.flags &= ~(unsigned)(CONTENT_ACKED | CONTENT_DURABLE);
            call->content.flags |= CONTENT_TRUNCATED;
        }
        text_set(call->content.boot_id, call->service->boot_id);
        if (index_content_update(tx, &call->content, err) != 0)
            return -1;
    }
    content_meta_fill(tx, &call->node, &call->content, &call->meta);
    return 0;
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
    struct content_view view = {
        .exists = call->has_content,
        .state = call->content.state,
        .flags = call->content.flags | (inode->awaited > 0 ? CONTENT_PINNED : 0u),
        .attempt_sent = call->attempt_sent,
        .other_writers = inode->writers > 0,
        .backing_lent = inode->lent > 0 && inode->content == call->content.id,
        .copied = call->copied,
        .size = call->has_content ? call->content.size : call->node.size
    };
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
    if (call->how != CONTENT_OPEN_ASIDE_IN_PLACE)
        return 0;
    call->how = CONTENT_OPEN_FETCH_FIRST;
    return content_aside_locked(service, inode, call->content.id, err);
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
    if (call->how == CONTENT_OPEN_THAW)
        inode->since_ns = call->since_ns;
    if (call->how != CONTENT_OPEN_JOIN) {
        cache_file_stir(inode->file); /* an upload of these bytes may be reading them */
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

/* Other kernels may hold sizes and bytes that end now. */
static void
tell_opened(struct volume_service *service, const struct content_call *call)
{
    struct inode *inode = call->inode;
    bool joined = call->how == CONTENT_OPEN_JOIN && inode->writers > 0;
    if (!joined)
        text_set(inode->wrote_run, call->run);
    else if (strcmp(inode->wrote_run, call->run) != 0)
        inode->wrote_run[0] = '\0';
    if (joined && inode->wrote_by == call->connection)
        return;
    inode->wrote_by = joined ? 0 : call->connection;
    event_emit(service, VOLUME_EVENT_OPENED, &call->node, call->connection);
}

int
content_begin_write_locked(struct volume_service *service, const struct volume_ctx *ctx,
                           struct inode *inode, bool truncate, struct err *err)
{
    await_making(inode);
    for (unsigned tries = 0; tries < 16; tries++) {
        struct content_call call = { .service = service,
                                     .inode = inode,
                                     .truncate = truncate,
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
            tell_opened(service, &call);
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
