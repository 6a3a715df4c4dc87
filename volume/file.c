#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/path.h"
#include "base/scope.h"
#include "volume/audit.h"
#include "volume/locks.h"
#include "volume/reads_impl.h"
#include "volume/service_impl.h"

/* Open files of mounts, and the attributes that need the bytes. */

int64_t
volume_file_node(const struct volume_file *file)
{
    return file->inode->node;
}

struct open_call {
    struct volume_service *service;
    const struct volume_ctx *ctx;
    int64_t node;
    bool writing;
    bool growing; /* not emptied by this very open: a full volume may always be made smaller */
    bool guarded; /* what runs read here is remembered */
    bool audited; /* reads are recorded: of this version, */
    char version[LIMIT_ETAG];
    char path[LIMIT_PATH + 1];
    struct index_node row;
};

/* What is read, for the audit: bytes that are being written have no version yet. */
static int
find_read(struct index_tx *tx, struct open_call *call, struct err *err)
{
    struct index_content content;
    const struct index_node *row = &call->row;
    text_set(call->version, row->version[0] != '\0' ? row->version : row->etag);
    if (row->content != 0) {
        if (index_content_get(tx, row->content, &content, err) != 0)
            return -1;
        if (content.state == CONTENT_FROZEN)
            text_set(call->version, content.version);
    }
    if ((row->flags & INDEX_NODE_ORPHAN) != 0)
        return 0;
    return index_node_path(tx, row->id, call->path, sizeof(call->path), err);
}

static int
check_open(struct index_tx *tx, void *arg, struct err *err)
{
    struct open_call *call = arg;
    struct index_volume volume;
    if (index_node_get(tx, call->node, &call->row, err) != 0)
        return -1;
    if (call->row.kind != INDEX_FILE)
        return err_set(err,
                       call->row.kind == INDEX_DIR       ? ERR_IS_DIR
                       : call->row.kind == INDEX_SYMLINK ? ERR_LOOP
                                                         : ERR_UNSUPPORTED,
                       "not a file");
    bool run = call->ctx->run != NULL && call->ctx->run[0] != '\0';
    if (!call->writing && !run && !atomic_load(&call->service->audit_reads))
        return 0;
    if (index_volume_get(tx, call->row.volume, &volume, err) != 0)
        return -1;
    call->guarded = (volume.options & INDEX_VOLUME_STALE_OFF) == 0;
    call->audited = (volume.options & INDEX_VOLUME_AUDIT_READS) != 0;
    if (call->audited && find_read(tx, call, err) != 0)
        return -1;
    if (!call->writing)
        return 0;
    if (service_may_write(call->service, call->ctx, &volume, err) != 0)
        return -1;
    return call->growing ? service_may_grow(tx, &volume, 0, err) : 0;
}

struct volume_file *
handle_new(struct volume_service *service, const struct volume_ctx *ctx, int64_t node, int flags,
           struct err *err)
{
    struct volume_file *file = calloc(1, sizeof(*file));
    if (file == NULL) {
        err_nomem(err);
        return NULL;
    }
    file->service = service;
    file->connection = ctx->connection;
    file->fh = atomic_fetch_add(&service->next_fh, 1);
    /* Linux cuts a file that is opened for reading with O_TRUNC, too. */
    file->writable = (flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC) != 0;
    file->append = (flags & O_APPEND) != 0;
    /* The count goes up before the row is read: whoever unlinks from now on sees it (node_unname). */
    file->inode = inode_ref(&service->inodes, node, true, err);
    if (file->inode == NULL) {
        free(file);
        return NULL;
    }
    return file;
}

static int
start_writing(struct volume_file *file, const struct volume_ctx *ctx, bool truncate,
              struct err *err)
{
    struct inode *inode = file->inode;
    pthread_mutex_lock(&inode->lock);
    int rc = content_begin_write_locked(file->service, ctx, inode, truncate, err);
    if (rc == 0) {
        inode->writers++;
        file->counted = true;
    }
    pthread_mutex_unlock(&inode->lock);
    return rc;
}

void
handle_forget(struct volume_file *file)
{
    inode_unref(&file->service->inodes, file->inode, !file->closed);
    free(file);
}

/* An entry that others kept alive, an upload for one, may hold bytes from before the node was replaced. */
static void
drop_stale(struct inode *inode, const struct index_node *row)
{
    pthread_mutex_lock(&inode->lock);
    inode->volume = row->volume;
    if (inode->file != NULL && inode->writers == 0 && inode->state != CONTENT_LIVE &&
        inode->content != row->content && (row->flags & INDEX_NODE_ORPHAN) == 0) {
        cache_put(inode->file);
        inode->file = NULL;
        inode->content = 0;
    }
    pthread_mutex_unlock(&inode->lock);
}

/* Each freeze and each change of attributes moves one of these. What is LIVE may change between two looks. */
static uint64_t
stamp_of(struct inode *inode, const struct index_node *row)
{
    uint64_t hash = (uint64_t)row->ctime_ns * 0x9e3779b97f4a7c15ull;
    pthread_mutex_lock(&inode->lock);
    bool live = inode->making || (inode->file != NULL && inode->state == CONTENT_LIVE);
    pthread_mutex_unlock(&inode->lock);
    if (live)
        return 0;
    hash = (hash ^ (uint64_t)row->mtime_ns) * 0x9e3779b97f4a7c15ull;
    hash = (hash ^ row->size) * 0x9e3779b97f4a7c15ull;
    for (const char *at = row->etag; *at != '\0'; at++)
        hash = (hash ^ (uint8_t)*at) * 0x100000001b3ull;
    return hash == 0 ? 1 : hash;
}

uint64_t
volume_file_stamp(const struct volume_file *file)
{
    return file->stamp;
}

static void
note_read(const struct open_call *call)
{
    const struct index_node *row = &call->row;
    volume_audit_act(call->service, call->ctx,
                     (struct audit_record){ .verb = "read",
                                            .volume = row->volume,
                                            .path = call->path,
                                            .before = call->version,
                                            .bytes = (int64_t)row->size });
}

/* A file that is emptied by its open, or opened for writing only, is not read. */
static int
look_at_opened(struct open_call *call, int flags, struct err *err)
{
    struct volume_service *service = call->service;
    if ((flags & O_ACCMODE) == O_WRONLY || (flags & O_TRUNC) != 0)
        return index_read(service->index, check_open, call, err);
    if (reads_meet(service, call->ctx, err) != 0)
        return -1;
    reads_begin(service, call->ctx, call->node);
    call->row.id = call->node;
    int rc = index_read(service->index, check_open, call, err);
    reads_end(service, call->ctx, &call->row, rc == 0 && call->guarded);
    if (rc == 0 && call->audited)
        note_read(call);
    return rc;
}

static int
open_handle(struct open_call *call, int flags, struct volume_file **out, struct err *err)
{
    struct volume_service *service = call->service;
    const struct volume_ctx *ctx = call->ctx;
    struct volume_file *file = handle_new(service, ctx, call->node, flags, err);
    if (file == NULL)
        return -1;
    call->writing = file->writable;
    if (call->writing && ctx->nowait) {
        handle_forget(file);
        return err_set(err, ERR_AGAIN, "a writing open waits for the index");
    }
    int rc = look_at_opened(call, flags, err);
    if (rc == 0)
        drop_stale(file->inode, &call->row);
    if (rc == 0 && (call->row.flags & INDEX_NODE_ORPHAN) != 0)
        (void)inode_open_count(&service->inodes, call->node); /* its last close ends it */
    if (rc == 0 && file->writable)
        rc = start_writing(file, ctx, (flags & O_TRUNC) != 0, err);
    if (rc != 0) {
        volume_file_close(file, ctx);
        return -1;
    }
    file->local = call->row.content != 0;
    file->stamp = stamp_of(file->inode, &call->row);
    file->row_size = call->row.size;
    if (!call->writing)
        prefetch_opened(service, file->inode, &call->row);
    *out = file;
    return 0;
}

int
volume_file_open(struct volume_service *service, const struct volume_ctx *ctx, int64_t node,
                 int flags, struct volume_file **out, struct err *err)
{
    struct open_call call = {
        .service = service, .ctx = ctx, .node = node, .growing = (flags & O_TRUNC) == 0
    };
    return open_handle(&call, flags, out, err);
}

/* ---- reading and writing ---- */

ssize_t
volume_file_read(struct volume_file *file, const struct volume_ctx *ctx, void *out, size_t len,
                 uint64_t off, struct err *err)
{
    struct inode *inode = file->inode;
    struct cache_reading reading;
    struct content_need need = { .off = off, .len = len, .lent = &reading };
    if (len == 0)
        return 0;
    pthread_mutex_lock(&inode->lock);
    int rc = content_lend_locked(file->service, ctx, inode, &need, err);
    pthread_mutex_unlock(&inode->lock);
    if (rc != 0)
        return need.local ? content_read_past(file->service, ctx, inode, &need, out, err) : -1;
    ssize_t got = cache_file_read(reading.file, out, len, off, err);
    cache_read_end(&reading);
    return got;
}

int
volume_file_lend(struct volume_file *file, const struct volume_ctx *ctx, uint64_t off, size_t len,
                 struct volume_lent *out, struct err *err)
{
    struct inode *inode = file->inode;
    struct content_need need = { .off = off, .len = len, .lent = &out->reading };
    struct err ignored = ERR_INIT;
    uint64_t size = 0;
    pthread_mutex_lock(&inode->lock);
    int rc = content_lend_locked(file->service, ctx, inode, &need, err);
    bool still = rc == 0 && inode->state != CONTENT_LIVE;
    pthread_mutex_unlock(&inode->lock);
    if (rc != 0)
        return need.local ? 1 : -1;
    /* What is being written may become shorter before the reply is there. */
    if (!still || cache_file_size(out->reading.file, &size, &ignored) != 0 || off >= size) {
        cache_read_end(&out->reading);
        return 1;
    }
    out->fd = cache_file_fd(out->reading.file);
    out->len = len < size - off ? len : (size_t)(size - off);
    return 0;
}

void
volume_file_return(struct volume_lent *lent)
{
    cache_read_end(&lent->reading);
}

/* The file may have been frozen by a barrier while it is open: it comes back to life before it changes. */
static int
ensure_live(struct volume_file *file, const struct volume_ctx *ctx, struct err *err)
{
    struct inode *inode = file->inode;
    if (!file->writable)
        return err_set(err, ERR_DENIED, "the file is not open for writing");
    if (hold_check(file->service, inode->volume, err) != 0)
        return -1;
    if (inode->state == CONTENT_LIVE && inode->file != NULL)
        return 0;
    return content_begin_write_locked(file->service, ctx, inode, false, err);
}

static void
note_written(struct volume_file *file)
{
    struct inode *inode = file->inode;
    inode->dirty_size = inode->loose = inode->moved = true;
    if (inode->wrote_by != file->connection)
        inode->wrote_by = 0;
}

int
volume_file_write(struct volume_file *file, const struct volume_ctx *ctx, const void *data,
                  size_t len, uint64_t off, struct err *err)
{
    struct inode *inode = file->inode;
    if (off > LIMIT_FILE_SIZE || len > LIMIT_FILE_SIZE - off)
        return err_set(err, ERR_TOO_LARGE, "files end at %llu bytes",
                       (unsigned long long)LIMIT_FILE_SIZE);
    scope_unlock pthread_mutex_t *held = scope_lock(&inode->lock);
    if (ensure_live(file, ctx, err) != 0)
        return -1;
    note_written(file);
    return cache_file_write(inode->file, data, len, off, err);
}

#define COPY_PIECE (8u << 20) /* who waits can be interrupted between two */

ssize_t
volume_file_copy(struct volume_file *to, const struct volume_ctx *ctx,
                 const struct volume_copy *copy, struct err *err)
{
    struct volume_file *from = copy->from;
    struct cache_reading reading;
    uint64_t size = 0;
    size_t len = copy->len < COPY_PIECE ? copy->len : COPY_PIECE;
    struct content_need need = { .off = copy->from_off, .len = len, .lent = &reading };
    if (copy->to_off > LIMIT_FILE_SIZE || len > LIMIT_FILE_SIZE - copy->to_off)
        return err_set(err, ERR_TOO_LARGE, "files end at %llu bytes",
                       (unsigned long long)LIMIT_FILE_SIZE);
    pthread_mutex_lock(&from->inode->lock);
    int rc = content_lend_locked(from->service, ctx, from->inode, &need, err);
    pthread_mutex_unlock(&from->inode->lock);
    if (rc != 0)
        return need.local ? err_set(err, ERR_UNSUPPORTED, "the bytes come past the cache") : -1;
    rc = cache_file_size(reading.file, &size, err);
    ssize_t done = rc == 0 ? 0 : -1;
    if (rc == 0 && copy->from_off < size) {
        len = len < size - copy->from_off ? len : (size_t)(size - copy->from_off);
        pthread_mutex_lock(&to->inode->lock);
        done = ensure_live(to, ctx, err);
        if (done == 0) {
            note_written(to);
            done = cache_file_copy_range(to->inode->file, copy->to_off, reading.file,
                                         copy->from_off, len, err);
        }
        pthread_mutex_unlock(&to->inode->lock);
    }
    cache_read_end(&reading);
    return done;
}

int
volume_file_allocate(struct volume_file *file, const struct volume_ctx *ctx, int mode, uint64_t off,
                     uint64_t len, struct err *err)
{
    struct inode *inode = file->inode;
    if ((mode & ~(FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE)) != 0)
        return err_set(err, ERR_UNSUPPORTED, "this kind of allocation is not supported");
    if (off > LIMIT_FILE_SIZE || len > LIMIT_FILE_SIZE - off)
        return err_set(err, ERR_TOO_LARGE, "files end at %llu bytes",
                       (unsigned long long)LIMIT_FILE_SIZE);
    scope_unlock pthread_mutex_t *held = scope_lock(&inode->lock);
    if (ensure_live(file, ctx, err) != 0)
        return -1;
    note_written(file);
    return cache_file_allocate(inode->file, mode, off, len, err);
}

int
volume_file_seek(struct volume_file *file, const struct volume_ctx *ctx, uint64_t off, int whence,
                 uint64_t *out, struct err *err)
{
    struct inode *inode = file->inode;
    scope_unlock pthread_mutex_t *held = scope_lock(&inode->lock);
    if (content_open_locked(file->service, inode, err) != 0)
        return -1;
    (void)ctx;
    struct stat st;
    if (fstat(cache_file_fd(inode->file), &st) != 0)
        return err_sys(err, errno, "cannot look at a content file");
    if (off >= (uint64_t)st.st_size)
        return err_set(err, ERR_RANGE, "beyond the end");
    if (!cache_complete(inode->file)) {
        /* What is not here yet counts as data: the holes of a partial file are ours, not the user's. */
        *out = whence == SEEK_DATA ? off : (uint64_t)st.st_size;
        return 0;
    }
    off_t at = lseek(cache_file_fd(inode->file), (off_t)off, whence);
    if (at < 0 && errno == ENXIO)
        return err_set(err, ERR_RANGE, "no data behind it");
    if (at < 0)
        return err_sys(err, errno, "cannot seek");
    *out = (uint64_t)at;
    return 0;
}

/* ---- attributes ---- */

struct setattr_call {
    struct volume_service *service;
    const struct volume_ctx *ctx;
    int64_t node;
    const struct volume_change *change;
    struct index_node row;
    struct volume_attr *attr;
    struct drop_list drop;
};

#define ATTR_DELAY (2 * NS_PER_S)

static int64_t
keep_atime(int64_t atime_ns)
{
    return atime_ns == 0 ? INDEX_ATIME_1970 : atime_ns;
}

static void
change_row(struct index_node *row, const struct volume_change *change)
{
    if ((change->bits & VOLUME_SET_MODE) != 0)
        row->mode = (row->mode & S_IFMT) | (change->mode & 07777);
    if ((change->bits & VOLUME_SET_UID) != 0)
        row->uid = change->uid;
    if ((change->bits & VOLUME_SET_GID) != 0)
        row->gid = change->gid;
    if ((change->bits & VOLUME_SET_ATIME) != 0)
        row->atime_ns = keep_atime(change->atime_ns);
    else if ((change->bits & VOLUME_SET_MTIME) != 0 && row->atime_ns == 0)
        row->atime_ns = keep_atime(row->mtime_ns);
    if ((change->bits & VOLUME_SET_MTIME) != 0)
        row->mtime_ns = change->mtime_ns;
    row->ctime_ns = clock_wall_ns();
}

int
node_attrs_changed(struct index_tx *tx, struct index_node *row, struct err *err)
{
    char key[LIMIT_KEY + 1];
    bool named = (row->flags & INDEX_NODE_ORPHAN) == 0 && row->parent != 0;
    if (named && row->kind == INDEX_DIR)
        return node_want_marker(tx, row, err);
    row->flags |= INDEX_NODE_ATTRS_DIRTY;
    if (index_node_update(tx, row, err) != 0)
        return -1;
    if (!named)
        return 0;
    if (key_of_node(tx, row, key, err) != 0)
        return -1;
    return key_want_sync(tx, row->volume, key, ATTR_DELAY, err);
}

static int
note_attributes(struct index_tx *tx, const struct setattr_call *call, struct err *err)
{
    char path[LIMIT_PATH + 1], detail[96];
    if ((call->change->bits & (VOLUME_SET_MODE | VOLUME_SET_UID | VOLUME_SET_GID)) == 0 ||
        (call->row.flags & INDEX_NODE_ORPHAN) != 0)
        return 0; /* times alone */
    if (index_node_path(tx, call->row.id, path, sizeof(path), err) != 0)
        return -1;
    (void)snprintf(detail, sizeof(detail), "mode=%o uid=%u gid=%u", call->row.mode & 07777,
                   call->row.uid, call->row.gid);
    volume_audit_act(call->service, call->ctx,
                     (struct audit_record){ .verb = "attributes",
                                            .volume = call->row.volume,
                                            .path = path,
                                            .detail = detail,
                                            .bytes = -1 });
    return 0;
}

static int
setattr_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct setattr_call *call = arg;
    struct index_volume volume;
    if (index_node_get(tx, call->node, &call->row, err) != 0 ||
        index_volume_get(tx, call->row.volume, &volume, err) != 0 ||
        service_may_write(call->service, call->ctx, &volume, err) != 0)
        return -1;
    rest_begin(call->service, call->ctx, tx);
    change_row(&call->row, call->change);
    if (node_attrs_changed(tx, &call->row, err) != 0 || note_attributes(tx, call, err) != 0)
        return -1;
    return attr_fill(tx, &call->row, call->attr, err);
}

/* The content file's own mtime is what a later look at a LIVE file shows, so it moves along. */
static void
touch_live(struct volume_service *service, int64_t node, int64_t mtime_ns)
{
    struct inode *inode = inode_find(&service->inodes, node);
    if (inode == NULL)
        return;
    pthread_mutex_lock(&inode->lock);
    if (inode->file != NULL && inode->state == CONTENT_LIVE) {
        content_set_mtime_locked(inode, mtime_ns);
        inode->moved = false; /* the time is the program's, to the nanosecond */
        inode->dirty_size = true;
    }
    pthread_mutex_unlock(&inode->lock);
    inode_unref(&service->inodes, inode, false);
}

static int
set_size(struct volume_service *service, const struct volume_ctx *ctx,
         const struct volume_attr *before, uint64_t size, struct err *err)
{
    struct volume_file *file = NULL;
    if (size > LIMIT_FILE_SIZE)
        return err_set(err, ERR_TOO_LARGE, "files end at %llu bytes",
                       (unsigned long long)LIMIT_FILE_SIZE);
    struct open_call call = {
        .service = service, .ctx = ctx, .node = before->node, .growing = size > before->size
    };
    if (open_handle(&call, size == 0 ? O_WRONLY | O_TRUNC : O_WRONLY, &file, err) != 0)
        return -1;
    pthread_mutex_lock(&file->inode->lock);
    int rc = ensure_live(file, ctx, err);
    if (rc == 0) {
        note_written(file);
        rc = cache_file_truncate(file->inode->file, size, err);
    }
    pthread_mutex_unlock(&file->inode->lock);
    if (rc == 0)
        rc = volume_file_flush(file, ctx, err);
    volume_file_close(file, ctx);
    return rc;
}

int
volume_setattr(struct volume_service *service, const struct volume_ctx *ctx, int64_t node,
               const struct volume_change *change, struct volume_attr *out, struct err *err)
{
    struct setattr_call call = {
        .service = service, .ctx = ctx, .node = node, .change = change, .attr = out
    };
    struct volume_attr before;
    if (ctx->nowait)
        return err_set(err, ERR_AGAIN, "changing attributes waits for the index");
    if (volume_getattr(service, ctx, node, &before, err) != 0)
        return -1;
    if ((change->bits & VOLUME_SET_SIZE) != 0 &&
        set_size(service, ctx, &before, change->size, err) != 0)
        return -1;
    if ((change->bits & ~(unsigned)VOLUME_SET_SIZE) != 0) {
        if ((change->bits & VOLUME_SET_MTIME) != 0)
            touch_live(service, node, change->mtime_ns);
        if (index_write(service->index, INDEX_NORMAL, setattr_tx, &call, err) != 0)
            return -1;
        rest_kick(service, ctx);
        event_emit(service, VOLUME_EVENT_CHANGED, &call.row, ctx->connection);
    }
    return volume_getattr(service, ctx, node, out, err);
}

struct gone_call {
    int64_t connection;
};

static int
gone_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct gone_call *call = arg;
    return index_answer_drop_connection(tx, call->connection, err);
}

void
volume_connection_gone(struct volume_service *service, int64_t connection)
{
    struct gone_call call = { .connection = connection };
    lock_drop_connection(service->locks, connection);
    struct err err = ERR_INIT;
    if (index_write(service->index, INDEX_NORMAL, gone_tx, &call, &err) != 0)
        log_warn(volume, "cannot forget the answers of mount %lld: %s", (long long)connection,
                 err.msg);
}
