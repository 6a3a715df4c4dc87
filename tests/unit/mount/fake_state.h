#ifndef UNIT_MOUNT_FAKE_STATE_H
#define UNIT_MOUNT_FAKE_STATE_H

/* The state of the volume that fake_volume.h is, and what its parts share. */
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
    _Atomic unsigned open_files, flushes, fsyncs, waits, gone, lists;
    _Atomic uint64_t last_unique;
    _Atomic int64_t last_connection;
    volume_event_fn *watch;
    void *watch_arg;
    struct index_mount rows[16];
    size_t row_count;
    int64_t next_row;
    _Atomic bool unsynced;
    _Atomic int flush_fails; /* err_code of volume_flush(), 0: none */
} fake = { .mutex = PTHREAD_MUTEX_INITIALIZER, .next = FAKE_ROOT, .next_row = 1 };
static struct volume_service fake_service;

static inline struct fake_node *
fake_node(int64_t id)
{
    return id > 0 && id < FAKE_NODES && fake.nodes[id].used ? &fake.nodes[id] : NULL;
}

static inline struct fake_node *
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

static inline struct fake_node *
fake_make(int64_t parent, const char *name, size_t len, uint32_t mode)
{
    if (fake.next >= FAKE_NODES)
        __builtin_trap(); /* a test makes too many */
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

static inline int
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

static inline int
fake_missing(struct err *err)
{
    return err_set(err, ERR_NOT_FOUND, "not there");
}

/* Waits as a fetch would; the mutex is not held. */
static inline int
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

static inline void
fake_see(const struct volume_ctx *ctx)
{
    fake.last_unique = ctx->unique;
    fake.last_connection = ctx->connection;
}

static inline void
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
static inline int64_t
fake_put(int64_t parent, const char *name, uint32_t mode, uint64_t size)
{
    struct err err = ERR_INIT;
    scope_unlock pthread_mutex_t *held = scope_lock(&fake.mutex);
    (void)held;
    struct fake_node *node = fake_make(parent, name, strlen(name), mode);
    return node && fake_resize(node, size, &err) == 0 ? node->attr.node : 0;
}

static inline struct fake_node *
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

static inline void
fake_unname(struct fake_node *node)
{
    node->attr.parent = 0; /* an orphan while it is open */
    if (node->opens == 0) {
        free(node->data);
        node->data = NULL;
        node->used = false;
    }
}

#endif
