#ifndef UNIT_MOUNT_FAKE_FILES_H
#define UNIT_MOUNT_FAKE_FILES_H

/* For fake_volume.h: open files. */
#include "fake_state.h"

/* NOLINTBEGIN(readability-function-size,readability-inconsistent-declaration-parameter-name) */

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
    *fd = -1;
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

/* NOLINTEND(readability-function-size,readability-inconsistent-declaration-parameter-name) */

#endif
