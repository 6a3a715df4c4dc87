#include <assert.h>
#include <errno.h>
#include <fcntl.h>

#include "base/log.h"
#include "base/scope.h"
#include "volume/service_impl.h"

/* Content files that kernels read and write by themselves: FUSE passthrough (docs/design.md section 7, docs/mechanisms.md
 * sections 2 and 10). */

#define ROOM_ON_DISK (2ull << 30)
#define ROOM_IN_QUOTA (1ull << 30)

/* A write within the same tick of the kernel's clock moves no time stamp. */
#define TICK_NS (20 * NS_PER_MS)

static int64_t
stamp_ns(const struct timespec *at)
{
    return at->tv_sec * NS_PER_S + at->tv_nsec;
}

bool
backing_changed_locked(struct inode *inode)
{
    struct stat now;
    if (inode->dirty_size || !inode->was_lent)
        return inode->dirty_size;
    if (fstat(cache_file_fd(inode->file), &now) != 0)
        return true;
    int64_t mtime = stamp_ns(&now.st_mtim);
    int64_t age = inode->seen_ns - mtime;
    return now.st_size != inode->seen.st_size || mtime != stamp_ns(&inode->seen.st_mtim) ||
           (age < TICK_NS && age > -TICK_NS);
}

/* ---- may it be written past us? ---- */

struct room_call {
    int64_t node;
    bool enough;
};

static int
room_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct room_call *call = arg;
    struct index_node node;
    struct index_volume volume;
    if (index_node_get(tx, call->node, &node, err) != 0 ||
        index_volume_get(tx, node.volume, &volume, err) != 0)
        return -1;
    struct err full = ERR_INIT;
    call->enough = !volume.sync_close && service_may_grow(tx, &volume, ROOM_IN_QUOTA, &full) == 0;
    return 0;
}

/* Writes that the gateway does not see count against nothing before the close: only where there is plenty (mechanisms.md
 * section 10). With sync=close every close waits for the bucket, and is frozen while others write on. */
static bool
has_room(struct volume_service *service, int64_t node)
{
    struct cache_usage usage;
    struct room_call call = { .node = node };
    struct err ignored = ERR_INIT;
    if (cache_in_memory(service->cache))
        return false;
    cache_usage(service->cache, &usage);
    if (usage.free_bytes < usage.floor_bytes + ROOM_ON_DISK ||
        usage.max_bytes < usage.pinned_bytes + ROOM_ON_DISK)
        return false;
    return index_read(service->index, room_tx, &call, &ignored) == 0 && call.enough;
}

static void
begin_writing_locked(struct volume_file *file)
{
    struct inode *inode = file->inode;
    file->lent_writer = true;
    inode->lent_writers++;
    cache_file_unseen(inode->file);
    if (inode->was_lent)
        return;
    inode->was_lent = true;
    inode->seen_ns = clock_wall_ns();
    if (fstat(cache_file_fd(inode->file), &inode->seen) != 0)
        inode->dirty_size = true;
}

/* ---- lent and given back ---- */

static bool
is_fit_locked(struct volume_file *file, const struct volume_backing *want)
{
    struct inode *inode = file->inode;
    uint64_t size = 0;
    struct err ignored = ERR_INIT;
    if (file->writable)
        return file->counted && inode->state == CONTENT_LIVE && (want->direct || inode->paged == 0);
    return cache_complete(inode->file) && cache_file_size(inode->file, &size, &ignored) == 0 &&
           size >= want->min_size;
}

/* By its row alone: most files are small, and opening the bytes only to see that costs more than all the rest of an open. */
static bool
is_too_short(const struct volume_file *file, const struct volume_backing *want)
{
    return !file->writable && file->stamp != 0 && file->row_size < want->min_size;
}

int
volume_file_back(struct volume_file *file, const struct volume_ctx *ctx,
                 struct volume_backing *backing, struct err *err)
{
    struct inode *inode = file->inode;
    (void)ctx;
    if (is_too_short(file, backing))
        return 1;
    if (file->writable && !backing->direct && !has_room(file->service, inode->node))
        return 1;
    scope_unlock pthread_mutex_t *held = scope_lock(&inode->lock);
    (void)held;
    if (file->lent || inode->making || (inode->file == NULL && !file->local))
        return 1;
    if (content_open_locked(file->service, inode, err) != 0)
        return -1;
    if (!is_fit_locked(file, backing))
        return 1;
    backing->content = inode->content;
    file->lent = true;
    inode->lent++;
    if (file->writable)
        begin_writing_locked(file);
    return 0;
}

bool
volume_file_back_again(struct volume_file *file, int64_t content)
{
    struct inode *inode = file->inode;
    struct err ignored = ERR_INIT;
    scope_unlock pthread_mutex_t *held = scope_lock(&inode->lock);
    (void)held;
    if (file->lent || content_open_locked(file->service, inode, &ignored) != 0 ||
        inode->content != content)
        return false;
    file->lent = true;
    inode->lent++;
    if (file->writable) {
        begin_writing_locked(file);
        inode->dirty_size = inode->loose = true;
    }
    return true;
}

int
volume_file_backing_fd(struct volume_file *file, int *fd, struct err *err)
{
    struct inode *inode = file->inode;
    scope_unlock pthread_mutex_t *held = scope_lock(&inode->lock);
    (void)held;
    assert(file->lent && inode->file != NULL);
    if (!file->writable)
        return cache_file_reader(inode->file, fd, err);
    *fd = fcntl(cache_file_fd(inode->file), F_DUPFD_CLOEXEC, 0);
    return *fd < 0 ? err_sys(err, errno, "cannot double a descriptor") : 0;
}

void
backing_return_locked(struct volume_file *file)
{
    struct inode *inode = file->inode;
    inode->lent -= file->lent;
    inode->lent_writers -= file->lent_writer;
    inode->paged -= file->paged;
    file->lent = file->lent_writer = file->paged = false;
}

void
volume_file_unback(struct volume_file *file)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&file->inode->lock);
    (void)held;
    backing_return_locked(file);
}

bool
volume_file_paged(struct volume_file *file)
{
    struct inode *inode = file->inode;
    scope_unlock pthread_mutex_t *held = scope_lock(&inode->lock);
    (void)held;
    if (file->paged || inode->lent_writers > 0)
        return file->paged;
    file->paged = true;
    inode->paged++;
    return true;
}

/* ---- what is gone ---- */

void
volume_on_content_gone(struct volume_service *service, volume_content_gone_fn *fn, void *arg)
{
    cache_on_gone(service->cache, fn, arg);
}

/* ---- a copy for the uploader ---- */

struct aside_call {
    struct inode *inode;
    int64_t from, to;
    bool done;
    struct index_content row;
};

static int
number_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct aside_call *call = arg;
    call->to = 0;
    if (index_content_get(tx, call->from, &call->row, err) != 0)
        return -1;
    return index_content_number(tx, &call->to, err);
}

static int
turn_attempt(struct index_tx *tx, const char *key, const struct aside_call *call, struct err *err)
{
    struct index_intent intent;
    struct err missing = ERR_INIT;
    if (key[0] == '\0' || index_intent_get(tx, key, &intent, &missing) != 0 ||
        intent.attempt.op != SYNC_OP_PUT || intent.attempt.content != call->from)
        return 0;
    intent.attempt.content = call->to;
    return index_intent_put(tx, &intent, err);
}

/* From here on the copy is what is sent, and pinned where the original was. */
static int
aside_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct aside_call *call = arg;
    struct index_node node;
    char home[LIMIT_KEY + 1] = "";
    struct err missing = ERR_INIT;
    struct index_content row;
    if (index_content_get(tx, call->from, &row, err) != 0 ||
        index_node_get(tx, call->inode->node, &node, err) != 0)
        return -1;
    if (row.state != call->row.state || strcmp(row.version, call->row.version) != 0)
        return 0; /* it landed meanwhile, or was written: the caller decides anew */
    call->done = true;
    struct index_content copy = row;
    copy.id = call->to;
    row.flags &= ~(unsigned)CONTENT_PINNED;
    if (index_content_insert(tx, &copy, err) != 0 || index_content_update(tx, &row, err) != 0)
        return -1;
    if (key_of_node(tx, &node, home, &missing) != 0)
        home[0] = '\0';
    if (turn_attempt(tx, home, call, err) != 0)
        return -1;
    return strcmp(home, node.key) == 0 ? 0 : turn_attempt(tx, node.key, call, err);
}

static int
make_copy(struct volume_service *service, struct aside_call *call, struct err *err)
{
    struct cache_meta meta;
    struct err unknown = ERR_INIT;
    bool known = cache_meta_read(service->cache, call->from, &meta, &unknown) == 0;
    struct cache_file *copy =
        cache_create(service->cache, call->to, known ? &meta : NULL, true, err);
    if (copy == NULL)
        return -1;
    int rc = cache_file_copy(copy, call->inode->file, err);
    if (rc == 0 && (call->row.flags & CONTENT_DURABLE) != 0)
        rc = cache_file_sync(copy, err);
    cache_put(copy);
    return rc;
}

int
content_aside_locked(struct volume_service *service, struct inode *inode, int64_t number,
                     struct err *err)
{
    struct aside_call call = { .inode = inode, .from = number };
    if (content_open_locked(service, inode, err) != 0)
        return -1;
    if (inode->content != number)
        return err_set(err, ERR_BUSY, "the file changed meanwhile: try again");
    if (index_write(service->index, INDEX_NORMAL, number_tx, &call, err) != 0)
        return -1;
    int rc = make_copy(service, &call, err);
    if (rc == 0)
        rc = index_write(service->index, INDEX_FULL, aside_tx, &call, err);
    if (rc != 0 || !call.done)
        cache_remove(service->cache, call.to);
    return rc;
}
