/*
 * The functions of volume/volume.h (and of the index) that mount/ calls, in memory: the front end is proven on a real kernel
 * mount without a store. Names that begin with "slow" stand for objects that are not here: with `nowait` they answer
 * ERR_AGAIN, without it they wait until fake.released or the deadline. The program that includes this replaces the library.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/scope.h"
#include "base/text.h"
#include "volume/locks.h"
#include "volume/volume.h"

/* NOLINTBEGIN(readability-function-size,readability-inconsistent-declaration-parameter-name) */

#define FAKE_NODES 4096
#define FAKE_ROOT 7 /* not 1: the numbers of FUSE's root and ours must change places */

struct fake_node {
    struct volume_attr attr;
    char name[LIMIT_NAME + 1];
    char target[LIMIT_SYMLINK + 1];
    char *data;
    unsigned opens;
    bool used;
    char xattr[64], xattr_value[64]; /* the one extended attribute */
    size_t xattr_len;
};
struct volume_service {
    int unused;
};
struct volume_file {
    int64_t node;
    bool writer;
};
static struct {
    pthread_mutex_t mutex;
    struct fake_node nodes[FAKE_NODES];
    int64_t next;
    _Atomic bool released;
    _Atomic unsigned open_files, flushes, fsyncs, waits, gone;
    _Atomic uint64_t last_unique;
    _Atomic int64_t last_connection;
    volume_event_fn *watch;
    void *watch_arg;
    struct index_mount rows[16];
    size_t row_count;
    int64_t next_row;
    bool unsynced;
    int flush_fails; /* err_code of volume_flush(), 0: none */
} fake = { .mutex = PTHREAD_MUTEX_INITIALIZER, .next = FAKE_ROOT, .next_row = 1 };
static struct volume_service fake_service;

static struct fake_node *
fake_node(int64_t id)
{
    return id > 0 && id < FAKE_NODES && fake.nodes[id].used ? &fake.nodes[id] : NULL;
}

static struct fake_node *
fake_child(int64_t parent, const char *name, size_t len)
{
    for (int64_t id = FAKE_ROOT; id < fake.next; id++) {
        struct fake_node *node = fake_node(id);
        if (node && node->attr.parent == parent && parent != 0 && strlen(node->name) == len &&
            memcmp(node->name, name, len) == 0)
            return node;
    }
    return NULL;
}

static struct fake_node *
fake_make(int64_t parent, const char *name, size_t len, uint32_t mode)
{
    if (fake.next >= FAKE_NODES)
        return NULL;
    struct fake_node *node = &fake.nodes[fake.next];
    memset(node, 0, sizeof(*node));
    node->used = true;
    node->attr.node = fake.next++;
    node->attr.parent = parent;
    node->attr.volume = 1;
    node->attr.mode = mode;
    node->attr.nlink = 1;
    node->attr.kind = S_ISDIR(mode) ? INDEX_DIR : S_ISLNK(mode) ? INDEX_SYMLINK : INDEX_FILE;
    node->attr.mtime_ns = node->attr.ctime_ns = clock_wall_ns();
    (void)snprintf(node->attr.version, sizeof(node->attr.version), "v%lld",
                   (long long)node->attr.node);
    memcpy(node->name, name, len);
    return node;
}

static int
fake_resize(struct fake_node *node, uint64_t size, struct err *err)
{
    char *data = realloc(node->data, size + 1);
    if (!data)
        return err_nomem(err);
    if (size > node->attr.size)
        memset(data + node->attr.size, 0, size - node->attr.size);
    node->data = data;
    node->attr.size = size;
    return 0;
}

static int
fake_missing(struct err *err)
{
    return err_set(err, ERR_NOT_FOUND, "not there");
}

/* Waits as a fetch would; the mutex is not held. */
static int
fake_wait(const struct volume_ctx *ctx, struct err *err)
{
    if (ctx->nowait)
        return err_set(err, ERR_AGAIN, "not here yet");
    pthread_mutex_lock(&fake.mutex);
    fake.waits++;
    while (!fake.released && clock_mono_ns() < ctx->deadline_ns) {
        pthread_mutex_unlock(&fake.mutex);
        clock_sleep_ns(2 * NS_PER_MS);
        pthread_mutex_lock(&fake.mutex);
    }
    bool released = fake.released;
    pthread_mutex_unlock(&fake.mutex);
    return released ? 0 : err_set(err, ERR_STORE_TIMEOUT, "too late");
}

static void
fake_see(const struct volume_ctx *ctx)
{
    fake.last_unique = ctx->unique;
    fake.last_connection = ctx->connection;
}

static void
fake_reset(void)
{
    for (int64_t id = 0; id < FAKE_NODES; id++)
        free(fake.nodes[id].data);
    memset(fake.nodes, 0, sizeof(fake.nodes));
    fake.next = FAKE_ROOT;
    fake.released = false;
    fake.row_count = 0;
    fake.flush_fails = 0;
    (void)fake_make(0, "", 0, S_IFDIR | 0777);
}

/* For tests while a mount is served. */
static int64_t
fake_put(int64_t parent, const char *name, uint32_t mode, uint64_t size)
{
    struct err err = ERR_INIT;
    scope_unlock pthread_mutex_t *held = scope_lock(&fake.mutex);
    (void)held;
    struct fake_node *node = fake_make(parent, name, strlen(name), mode);
    return node && fake_resize(node, size, &err) == 0 ? node->attr.node : 0;
}

/* ---- volumes ---- */
static void
fake_info(struct volume_info *out)
{
    memset(out, 0, sizeof(*out));
    out->id = 1;
    out->root = FAKE_ROOT;
    memcpy(out->name, "fake", 5);
    memcpy(out->prefix, "pre/", 5);
}

int
volume_find(struct volume_service *service, const char *name, struct volume_info *out,
            struct err *err)
{
    (void)service;
    if (strcmp(name, "fake") != 0)
        return fake_missing(err);
    fake_info(out);
    return 0;
}

int
volume_each(struct volume_service *service, volume_info_fn *fn, void *arg, struct err *err)
{
    struct volume_info info;
    (void)service;
    fake_info(&info);
    return fn(arg, &info, err);
}

struct cache *
volume_service_cache(struct volume_service *service)
{
    (void)service;
    return NULL;
}

void
cache_usage(struct cache *cache, struct cache_usage *out)
{
    (void)cache;
    *out = (struct cache_usage){ .max_bytes = 1u << 30, .free_bytes = 1u << 30 };
}

/* ---- the tree ---- */
int
volume_lookup(struct volume_service *service, const struct volume_ctx *ctx,
              const struct volume_name *at, struct volume_attr *out, struct err *err)
{
    (void)service;
    scope_unlock pthread_mutex_t *held = scope_lock(&fake.mutex);
    (void)held;
    fake_see(ctx);
    const struct fake_node *node = fake_child(at->parent, at->name, at->len);
    if (!node)
        return fake_missing(err);
    *out = node->attr;
    return 0;
}

int
volume_resolve(struct volume_service *service, const struct volume_ctx *ctx, int64_t volume,
               const char *path, struct volume_attr *out, struct err *err)
{
    (void)volume; /* one component is enough here */
    return volume_lookup(service, ctx, &(struct volume_name){ FAKE_ROOT, path, strlen(path) }, out,
                         err);
}

int
volume_getattr(struct volume_service *service, const struct volume_ctx *ctx, int64_t node,
               struct volume_attr *out, struct err *err)
{
    (void)service;
    scope_unlock pthread_mutex_t *held = scope_lock(&fake.mutex);
    (void)held;
    fake_see(ctx);
    const struct fake_node *found = fake_node(node);
    if (!found)
        return fake_missing(err);
    *out = found->attr;
    return 0;
}

int
volume_path(struct volume_service *service, int64_t node, char *out, size_t size, struct err *err)
{
    (void)service;
    scope_unlock pthread_mutex_t *held = scope_lock(&fake.mutex);
    (void)held;
    const struct fake_node *found = fake_node(node);
    if (!found)
        return fake_missing(err);
    (void)snprintf(out, size, "%s", found->name);
    return 0;
}

int
volume_xattr_get(struct volume_service *service, const struct volume_ctx *ctx, int64_t id,
                 const char *name, struct buf *out, struct err *err)
{
    char path[LIMIT_PATH + 1];
    (void)ctx;
    if (strcmp(name, "user.holdfast.key") == 0)
        return volume_path(service, id, path, sizeof(path), err) != 0
                   ? -1
                   : buf_appendf(out, err, "pre/%s", path);
    struct fake_node *node = fake_node(id);
    if (!node || strcmp(node->xattr, name) != 0)
        return err_set(err, ERR_NO_ATTRIBUTE, "none");
    return buf_append(out, node->xattr_value, node->xattr_len, err);
}

int
volume_xattr_list(struct volume_service *service, const struct volume_ctx *ctx, int64_t id,
                  struct buf *out, struct err *err)
{
    (void)service;
    (void)ctx;
    struct fake_node *node = fake_node(id);
    if (!node || node->xattr[0] == '\0')
        return 0;
    return buf_append(out, node->xattr, strlen(node->xattr) + 1, err);
}

int
volume_xattr_change(struct volume_service *service, const struct volume_ctx *ctx, int64_t id,
                    const struct volume_xattr *change, struct err *err)
{
    (void)service;
    (void)ctx;
    struct fake_node *node = fake_node(id);
    bool there = node && strcmp(node->xattr, change->name) == 0;
    if (!node || ((change->remove || change->flags == 2) && !there))
        return err_set(err, ERR_NO_ATTRIBUTE, "none");
    if (there && change->flags == 1)
        return err_set(err, ERR_EXISTS, "there");
    text_set(node->xattr, change->remove ? "" : change->name);
    node->xattr_len = change->len;
    if (change->len > 0)
        memcpy(node->xattr_value, change->value, change->len);
    return 0;
}

int
volume_list(struct volume_service *service, const struct volume_ctx *ctx,
            const struct volume_page *page, volume_entry_fn *fn, void *arg, struct err *err)
{
    unsigned limit = page->limit;
    (void)service;
    (void)ctx;
    scope_unlock pthread_mutex_t *held = scope_lock(&fake.mutex);
    (void)held;
    for (int64_t id = page->after + 1; id < fake.next && limit > 0; id++) {
        const struct fake_node *node = fake_node(id);
        if (!node || node->attr.parent != page->dir)
            continue;
        struct volume_entry entry = { node->name, strlen(node->name), id, node->attr, false };
        limit--;
        if (fn(arg, &entry, err) != 0)
            break;
    }
    return 0;
}

int
volume_setattr(struct volume_service *service, const struct volume_ctx *ctx, int64_t node,
               const struct volume_change *change, struct volume_attr *out, struct err *err)
{
    (void)service;
    scope_unlock pthread_mutex_t *held = scope_lock(&fake.mutex);
    (void)held;
    struct fake_node *found = fake_node(node);
    if (ctx->read_only)
        return err_set(err, ERR_READ_ONLY, "read-only");
    if (!found)
        return fake_missing(err);
    if (change->bits & VOLUME_SET_SIZE && fake_resize(found, change->size, err) < 0)
        return -1;
    if (change->bits & VOLUME_SET_MODE)
        found->attr.mode = (found->attr.mode & S_IFMT) | change->mode;
    if (change->bits & VOLUME_SET_UID)
        found->attr.uid = change->uid;
    if (change->bits & VOLUME_SET_GID)
        found->attr.gid = change->gid;
    if (change->bits & VOLUME_SET_MTIME)
        found->attr.mtime_ns = change->mtime_ns;
    else if (change->bits & VOLUME_SET_SIZE)
        found->attr.mtime_ns = clock_wall_ns();
    *out = found->attr;
    return 0;
}

static struct fake_node *
fake_add(const struct volume_ctx *ctx, const struct volume_name *at, uint32_t mode, struct err *err)
{
    fake_see(ctx);
    if (ctx->read_only) {
        err_set(err, ERR_READ_ONLY, "read-only");
        return NULL;
    }
    if (fake_child(at->parent, at->name, at->len)) {
        err_set(err, ERR_EXISTS, "there already");
        return NULL;
    }
    struct fake_node *node = fake_make(at->parent, at->name, at->len, mode);
    if (!node) {
        err_set(err, ERR_NO_SPACE, "full");
        return NULL;
    }
    node->attr.uid = ctx->uid;
    node->attr.gid = ctx->gid;
    return node;
}

int
volume_mkdir(struct volume_service *service, const struct volume_ctx *ctx,
             const struct volume_name *at, uint32_t mode, struct volume_attr *out, struct err *err)
{
    (void)service;
    scope_unlock pthread_mutex_t *held = scope_lock(&fake.mutex);
    (void)held;
    const struct fake_node *node = fake_add(ctx, at, S_IFDIR | mode, err);
    if (!node)
        return -1;
    *out = node->attr;
    return 0;
}

int
volume_symlink(struct volume_service *service, const struct volume_ctx *ctx,
               const struct volume_name *at, const char *target, struct volume_attr *out,
               struct err *err)
{
    (void)service;
    scope_unlock pthread_mutex_t *held = scope_lock(&fake.mutex);
    (void)held;
    struct fake_node *node = fake_add(ctx, at, S_IFLNK | 0777, err);
    if (!node)
        return -1;
    (void)snprintf(node->target, sizeof(node->target), "%s", target);
    node->attr.size = strlen(target);
    *out = node->attr;
    return 0;
}

/* Another name for a plain file is a node of its own here, that only counts: what links are is the volume's. */
int
volume_link(struct volume_service *service, const struct volume_ctx *ctx, int64_t node,
            const struct volume_name *at, struct volume_attr *out, struct err *err)
{
    (void)service;
    scope_unlock pthread_mutex_t *held = scope_lock(&fake.mutex);
    (void)held;
    struct fake_node *found = fake_node(node);
    if (!found)
        return fake_missing(err);
    if (!fake_add(ctx, at, found->attr.mode, err))
        return -1;
    found->attr.nlink++;
    *out = found->attr;
    return 0;
}

int
volume_mknod(struct volume_service *service, const struct volume_ctx *ctx,
             const struct volume_node *special, struct volume_attr *out, struct err *err)
{
    (void)service;
    scope_unlock pthread_mutex_t *held = scope_lock(&fake.mutex);
    (void)held;
    struct fake_node *node = fake_add(ctx, &special->at, special->mode, err);
    if (!node)
        return -1;
    node->attr.rdev = special->rdev;
    *out = node->attr;
    return 0;
}

int
volume_readlink(struct volume_service *service, const struct volume_ctx *ctx, int64_t node,
                char *out, size_t size, struct err *err)
{
    (void)service;
    (void)ctx;
    scope_unlock pthread_mutex_t *held = scope_lock(&fake.mutex);
    (void)held;
    const struct fake_node *found = fake_node(node);
    if (!found)
        return fake_missing(err);
    (void)snprintf(out, size, "%s", found->target);
    return 0;
}

static void
fake_unname(struct fake_node *node)
{
    node->attr.parent = 0; /* an orphan while it is open */
    if (node->opens == 0) {
        free(node->data);
        node->data = NULL;
        node->used = false;
    }
}

static bool
fake_empty(int64_t dir)
{
    for (int64_t id = FAKE_ROOT; id < fake.next; id++) {
        if (fake_node(id) && fake.nodes[id].attr.parent == dir)
            return false;
    }
    return true;
}

int
volume_remove(struct volume_service *service, const struct volume_ctx *ctx,
              const struct volume_name *at, bool dir, const struct precondition *pre,
              struct err *err)
{
    (void)service;
    (void)pre;
    (void)ctx;
    scope_unlock pthread_mutex_t *held = scope_lock(&fake.mutex);
    (void)held;
    struct fake_node *node = fake_child(at->parent, at->name, at->len);
    if (!node)
        return fake_missing(err);
    if (dir != (node->attr.kind == INDEX_DIR))
        return err_set(err, dir ? ERR_NOT_DIR : ERR_IS_DIR, "other kind");
    if (dir && !fake_empty(node->attr.node))
        return err_set(err, ERR_NOT_EMPTY, "not empty");
    fake_unname(node);
    return 0;
}

int
volume_rename(struct volume_service *service, const struct volume_ctx *ctx,
              const struct volume_name *from, const struct volume_name *to, unsigned flags,
              struct err *err)
{
    (void)service;
    (void)ctx;
    scope_unlock pthread_mutex_t *held = scope_lock(&fake.mutex);
    (void)held;
    struct fake_node *node = fake_child(from->parent, from->name, from->len);
    struct fake_node *old = fake_child(to->parent, to->name, to->len);
    if (!node || (flags & RENAME_EXCHANGE && !old))
        return fake_missing(err);
    if (old && flags & RENAME_NOREPLACE)
        return err_set(err, ERR_EXISTS, "there already");
    if (old && flags & RENAME_EXCHANGE) {
        memcpy(old->name, node->name, sizeof(old->name));
        old->attr.parent = from->parent;
    } else if (old) {
        if (old->attr.kind == INDEX_DIR && !fake_empty(old->attr.node))
            return err_set(err, ERR_NOT_EMPTY, "not empty");
        fake_unname(old);
    }
    memset(node->name, 0, sizeof(node->name));
    memcpy(node->name, to->name, to->len);
    node->attr.parent = to->parent;
    return 0;
}

/* ---- files ---- */
static struct volume_file *
fake_open(struct fake_node *node, int flags, struct err *err)
{
    struct volume_file *file = calloc(1, sizeof(*file));
    if (!file) {
        err_nomem(err);
        return NULL;
    }
    file->node = node->attr.node;
    file->writer = (flags & O_ACCMODE) != O_RDONLY;
    node->opens++;
    fake.open_files++;
    if (flags & O_TRUNC)
        node->attr.size = 0;
    return file;
}

int
volume_file_open(struct volume_service *service, const struct volume_ctx *ctx, int64_t node,
                 int flags, struct volume_file **out, struct err *err)
{
    (void)service;
    (void)ctx;
    scope_unlock pthread_mutex_t *held = scope_lock(&fake.mutex);
    (void)held;
    struct fake_node *found = fake_node(node);
    if (!found)
        return fake_missing(err);
    *out = fake_open(found, flags, err);
    return *out ? 0 : -1;
}

bool
volume_file_back_again(struct volume_file *file, int64_t content)
{
    (void)file;
    (void)content;
    return false;
}

int
volume_file_reopen(struct volume_service *service, const struct volume_ctx *ctx, int64_t node,
                   bool writer, struct volume_file **out, struct err *err)
{
    return volume_file_open(service, ctx, node, writer ? O_RDWR : O_RDONLY, out, err);
}

int
volume_file_create(struct volume_service *service, const struct volume_ctx *ctx,
                   const struct volume_new *new_file, struct volume_attr *attr,
                   struct volume_file **out, struct err *err)
{
    const struct volume_name *at = &new_file->at;
    int flags = new_file->flags;
    (void)service;
    scope_unlock pthread_mutex_t *held = scope_lock(&fake.mutex);
    (void)held;
    struct fake_node *node = flags & O_EXCL ? NULL : fake_child(at->parent, at->name, at->len);
    if (!node)
        node = fake_add(ctx, at, S_IFREG | new_file->mode, err);
    if (!node)
        return -1;
    *out = fake_open(node, flags, err);
    *attr = node->attr;
    return *out ? 0 : -1;
}

static bool
fake_is_slow(const struct volume_file *file)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&fake.mutex);
    (void)held;
    return strncmp(fake.nodes[file->node].name, "slow", 4) == 0;
}

int
volume_file_lend(struct volume_file *file, const struct volume_ctx *ctx, uint64_t off, size_t len,
                 struct volume_lent *out, struct err *err)
{
    (void)file;
    (void)ctx;
    (void)off;
    (void)len;
    (void)out;
    (void)err;
    return 1; /* the fake's bytes lie in memory */
}

void
volume_file_return(struct volume_lent *lent)
{
    (void)lent;
}

int64_t
volume_file_node(const struct volume_file *file)
{
    return file->node;
}

/* Nothing is lent: the bytes are in memory. */
int
volume_file_back(struct volume_file *file, const struct volume_ctx *ctx,
                 struct volume_backing *backing, struct err *err)
{
    (void)file;
    (void)ctx;
    (void)backing;
    (void)err;
    return 1;
}

int
volume_file_backing_fd(struct volume_file *file, int *fd, struct err *err)
{
    (void)file;
    (void)fd;
    return err_set(err, ERR_INTERNAL, "nothing is lent");
}

void
volume_file_unback(struct volume_file *file)
{
    (void)file;
}

bool
volume_file_paged(struct volume_file *file)
{
    (void)file;
    return true;
}

uint64_t
volume_file_stamp(const struct volume_file *file)
{
    (void)file;
    return 0;
}

void
volume_on_content_gone(struct volume_service *service, volume_content_gone_fn *fn, void *arg)
{
    (void)service;
    (void)fn;
    (void)arg;
}

ssize_t
volume_file_read(struct volume_file *file, const struct volume_ctx *ctx, void *out, size_t len,
                 uint64_t off, struct err *err)
{
    if (fake_is_slow(file) && fake_wait(ctx, err) < 0)
        return -1;
    scope_unlock pthread_mutex_t *held = scope_lock(&fake.mutex);
    (void)held;
    const struct fake_node *node = &fake.nodes[file->node];
    if (off >= node->attr.size)
        return 0;
    if (len > node->attr.size - off)
        len = node->attr.size - off;
    memcpy(out, node->data + off, len);
    return (ssize_t)len;
}

int
volume_file_write(struct volume_file *file, const struct volume_ctx *ctx, const void *data,
                  size_t len, uint64_t off, struct err *err)
{
    if (!file->writer)
        return err_set(err, ERR_PERM, "not open for writing");
    if (fake_is_slow(file) && fake_wait(ctx, err) < 0)
        return -1;
    scope_unlock pthread_mutex_t *held = scope_lock(&fake.mutex);
    (void)held;
    struct fake_node *node = &fake.nodes[file->node];
    if (off + len > node->attr.size && fake_resize(node, off + len, err) < 0)
        return -1;
    memcpy(node->data + off, data, len);
    node->attr.mtime_ns = clock_wall_ns();
    return 0;
}

int
volume_file_allocate(struct volume_file *file, const struct volume_ctx *ctx, int mode, uint64_t off,
                     uint64_t len, struct err *err)
{
    (void)ctx;
    scope_unlock pthread_mutex_t *held = scope_lock(&fake.mutex);
    (void)held;
    if (mode != 0)
        return err_set(err, ERR_UNSUPPORTED, "mode");
    struct fake_node *node = &fake.nodes[file->node];
    return off + len > node->attr.size ? fake_resize(node, off + len, err) : 0;
}

int
volume_file_seek(struct volume_file *file, const struct volume_ctx *ctx, uint64_t off, int whence,
                 uint64_t *out, struct err *err)
{
    (void)ctx;
    scope_unlock pthread_mutex_t *held = scope_lock(&fake.mutex);
    (void)held;
    uint64_t size = fake.nodes[file->node].attr.size;
    if (off >= size)
        return err_set(err, ERR_RANGE, "behind the end");
    *out = whence == SEEK_DATA ? off : size;
    return 0;
}

int
volume_file_flush(struct volume_file *file, const struct volume_ctx *ctx, struct err *err)
{
    (void)file;
    (void)ctx;
    (void)err;
    scope_unlock pthread_mutex_t *held = scope_lock(&fake.mutex);
    (void)held;
    fake.flushes++;
    return 0;
}

int
volume_file_fsync(struct volume_file *file, const struct volume_ctx *ctx, struct err *err)
{
    (void)file;
    (void)err;
    scope_unlock pthread_mutex_t *held = scope_lock(&fake.mutex);
    (void)held;
    fake_see(ctx);
    fake.fsyncs++;
    return 0;
}

void
volume_file_close(struct volume_file *file, const struct volume_ctx *ctx)
{
    (void)ctx;
    scope_unlock pthread_mutex_t *held = scope_lock(&fake.mutex);
    (void)held;
    struct fake_node *node = &fake.nodes[file->node];
    fake.open_files--;
    if (--node->opens == 0 && node->attr.parent == 0 && node->attr.node != FAKE_ROOT)
        fake_unname(node);
    free(file);
}

bool
volume_file_close_waits(const struct volume_file *file)
{
    (void)file;
    return true;
}

int
volume_fsync_dir(struct volume_service *service, const struct volume_ctx *ctx, int64_t dir,
                 struct err *err)
{
    (void)dir;
    (void)service;
    (void)ctx;
    (void)err;
    return 0;
}

ssize_t
volume_file_copy(struct volume_file *to, const struct volume_ctx *ctx,
                 const struct volume_copy *copy, struct err *err)
{
    (void)to;
    (void)ctx;
    (void)copy;
    return err_set(err, ERR_UNSUPPORTED, "not in the fake");
}

struct lock_table *
volume_locks(struct volume_service *service)
{
    static struct lock_table *table;
    struct err err = ERR_INIT;
    (void)service;
    if (table == NULL)
        table = lock_table_new(NULL, 64, 8, &err);
    return table;
}

void
volume_teller(struct volume_service *service, volume_pass_fn *pass, void *arg)
{
    (void)service;
    (void)pass;
    (void)arg;
}

bool
volume_told(struct volume_service *service, volume_done_fn *done, void *done_arg)
{
    (void)service;
    (void)done;
    (void)done_arg;
    return false;
}

unsigned
volume_kernel_count(struct volume_service *service)
{
    (void)service;
    return 2;
}

void
volume_kernels(struct volume_service *service, int change)
{
    (void)service;
    (void)change;
}

void
volume_connection_gone(struct volume_service *service, int64_t connection)
{
    (void)service;
    (void)connection;
    scope_unlock pthread_mutex_t *held = scope_lock(&fake.mutex);
    (void)held;
    fake.gone++;
}

void
volume_connection_settled(struct volume_service *service, int64_t connection, uint32_t first,
                          uint32_t end)
{
    (void)service;
    (void)connection;
    (void)first;
    (void)end;
}

int
volume_flush(struct volume_service *service, int64_t volume, int64_t deadline_ns,
             struct volume_barrier *out, struct err *err)
{
    (void)service;
    (void)volume;
    (void)deadline_ns;
    (void)out;
    return fake.flush_fails ? err_set(err, (enum err_code)fake.flush_fails, "not yet") : 0;
}

int
volume_flush_quietly(struct volume_service *service, int64_t volume, int64_t deadline_ns,
                     struct volume_barrier *out, struct err *err)
{
    memset(out, 0, sizeof(*out));
    return volume_flush(service, volume, deadline_ns, out, err);
}

int
volume_status(struct volume_service *service, struct volume_status *out, struct err *err)
{
    (void)service;
    (void)err;
    memset(out, 0, sizeof(*out));
    out->store_ok = true;
    return 0;
}

/* One file that waits, and one conflict. */
int
volume_unsynced_each(struct volume_service *service, int64_t volume, unsigned limit,
                     volume_unsynced_fn *fn, void *arg, struct err *err)
{
    static const struct volume_unsynced row = {
        .key = "pre/sub/b", .path = "sub/b", .what = "upload", .size = 7, .last_error = ""
    };
    (void)service;
    (void)volume;
    (void)limit;
    return fake.unsynced ? fn(arg, &row, err) : 0;
}

int
volume_conflict_each(struct volume_service *service, int64_t volume, index_conflict_fn *fn,
                     void *arg, struct err *err)
{
    static struct index_conflict row = { .id = "01KB8Q4Z017M3XW9D2TR5VNC6H",
                                         .path = "sub/b",
                                         .reason = "conflict",
                                         .mine_version = "mine" };
    (void)service;
    (void)volume;
    return fake.unsynced ? fn(arg, &row, err) : 0;
}

ssize_t
volume_conflict_read(struct volume_service *service, const struct volume_ctx *ctx, const char *id,
                     void *out, size_t len, uint64_t off, struct err *err)
{
    static const char bytes[] = "the loser's bytes";
    (void)service;
    (void)id;
    if (ctx->nowait)
        return err_set(err, ERR_AGAIN, "in the bucket");
    size_t left = off < sizeof(bytes) - 1 ? sizeof(bytes) - 1 - off : 0;
    if (!out)
        return sizeof(bytes) - 1;
    memcpy(out, bytes + off, left < len ? left : len);
    return (ssize_t)(left < len ? left : len);
}

int
volume_watch(struct volume_service *service, volume_event_fn *fn, void *arg, struct err *err)
{
    (void)service;
    (void)err;
    fake.watch = fn;
    fake.watch_arg = arg;
    return 0;
}

/* ---- the index ---- */
struct index *
volume_service_index(struct volume_service *service)
{
    (void)service;
    return NULL;
}

int
index_write(struct index *index, enum index_durability durability, index_fn *fn, void *arg,
            struct err *err)
{
    (void)index;
    (void)durability;
    scope_unlock pthread_mutex_t *held = scope_lock(&fake.mutex);
    (void)held;
    return fn(NULL, arg, err);
}

int
index_read(struct index *index, index_fn *fn, void *arg, struct err *err)
{
    return index_write(index, INDEX_NORMAL, fn, arg, err);
}

int
index_meta_get(struct index_tx *tx, const char *name, char *out, size_t size, struct err *err)
{
    (void)tx;
    (void)err;
    (void)snprintf(out, size, "a %s", name);
    return 0;
}

int
index_mount_put(struct index_tx *tx, struct index_mount *row, struct err *err)
{
    (void)tx;
    if (row->id == 0)
        row->id = fake.next_row++;
    for (size_t i = 0; i < fake.row_count; i++) {
        if (fake.rows[i].id == row->id) {
            fake.rows[i] = *row;
            return 0;
        }
    }
    if (fake.row_count == sizeof(fake.rows) / sizeof(fake.rows[0]))
        return err_set(err, ERR_NO_SPACE, "full");
    fake.rows[fake.row_count++] = *row;
    return 0;
}

int
index_mount_delete(struct index_tx *tx, int64_t id, struct err *err)
{
    (void)tx;
    for (size_t i = 0; i < fake.row_count; i++) {
        if (fake.rows[i].id == id) {
            fake.rows[i] = fake.rows[--fake.row_count];
            return 0;
        }
    }
    return fake_missing(err);
}

int
index_mount_each(struct index_tx *tx, index_mount_fn *fn, void *arg, struct err *err)
{
    (void)tx;
    for (size_t i = 0; i < fake.row_count; i++) {
        if (fn(arg, &fake.rows[i], err) < 0)
            return -1;
    }
    return 0;
}

/* NOLINTEND(readability-function-size,readability-inconsistent-declaration-parameter-name) */
