#ifndef UNIT_MOUNT_FAKE_TREE_H
#define UNIT_MOUNT_FAKE_TREE_H

/* For fake_volume.h: names, attributes and extended attributes. */
#include "fake_state.h"

/* NOLINTBEGIN(readability-function-size,readability-inconsistent-declaration-parameter-name) */

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
    bool stopped = false;
    (void)service;
    (void)ctx;
    fake.lists++;
    scope_unlock pthread_mutex_t *held = scope_lock(&fake.mutex);
    (void)held;
    for (int64_t id = page->after + 1; id < fake.next && limit > 0; id++) {
        const struct fake_node *node = fake_node(id);
        if (!node || node->attr.parent != page->dir)
            continue;
        struct volume_entry entry = { node->name, strlen(node->name), id, node->attr, false };
        limit--;
        stopped = fn(arg, &entry, err) != 0;
        if (stopped)
            break;
    }
    if (page->ended)
        *page->ended = !stopped && limit > 0;
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

/* NOLINTEND(readability-function-size,readability-inconsistent-declaration-parameter-name) */

#endif
