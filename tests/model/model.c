#include "model.h"

#include <errno.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>

struct model_node *
model_new(enum index_kind kind, uint32_t mode)
{
    struct model_node *node = calloc(1, sizeof(*node));
    if (node == NULL)
        rig_die("out of memory");
    node->kind = kind;
    node->mode = mode;
    node->refs = 1;
    return node;
}

struct model_node *
model_ref(struct model_node *node)
{
    node->refs++;
    return node;
}

/* NOLINTBEGIN(misc-no-recursion): three folders deep, or little more */

void
model_unref(struct model_node *node)
{
    if (--node->refs > 0)
        return;
    for (size_t i = 0; i < node->count; i++)
        model_unref(node->child[i].node);
    free(node->bytes);
    free(node);
}

static size_t
find(const struct model_node *dir, const char *name)
{
    size_t i = 0;
    while (i < dir->count && strcmp(dir->child[i].name, name) != 0)
        i++;
    return i;
}

struct model_node *
model_child(const struct model_node *dir, const char *name)
{
    size_t at = find(dir, name);
    return at < dir->count ? dir->child[at].node : NULL;
}

void
model_add(struct model_node *dir, const char *name, struct model_node *node)
{
    if (dir->count == MODEL_CHILDREN)
        rig_die("a model folder is full");
    (void)snprintf(dir->child[dir->count].name, MODEL_NAME, "%s", name);
    dir->child[dir->count++].node = node;
}

void
model_cut(struct model_node *dir, const char *name)
{
    size_t at = find(dir, name);
    struct model_node *node = dir->child[at].node;
    dir->child[at] = dir->child[--dir->count];
    model_unref(node);
}

bool
model_is_below(const struct model_node *node, const struct model_node *top)
{
    if (node == top)
        return true;
    for (size_t i = 0; i < top->count; i++)
        if (model_is_below(node, top->child[i].node))
            return true;
    return false;
}

/* NOLINTEND(misc-no-recursion) */

int
model_remove(struct model_node *dir, const char *name, bool is_dir)
{
    struct model_node *node = model_child(dir, name);
    if (node == NULL)
        return ENOENT;
    if (is_dir != (node->kind == INDEX_DIR))
        return is_dir ? ENOTDIR : EISDIR;
    if (node->count > 0)
        return ENOTEMPTY;
    model_cut(dir, name);
    return 0;
}

static int
exchange(const struct model_place *from, const struct model_place *to)
{
    struct model_node *moved = model_child(from->dir, from->name);
    struct model_node *target = model_child(to->dir, to->name);
    if (model_is_below(to->dir, moved))
        return EINVAL; /* the kernel says ENOENT first where both are true; it asks nobody then */
    if (target == NULL)
        return ENOENT;
    if (model_is_below(from->dir, target))
        return EINVAL;
    from->dir->child[find(from->dir, from->name)].node = target;
    to->dir->child[find(to->dir, to->name)].node = moved;
    return 0;
}

static int
check_target(const struct model_node *moved, const struct model_node *target, unsigned flags)
{
    if ((flags & RENAME_NOREPLACE) != 0)
        return EEXIST;
    if (target->kind == INDEX_DIR && moved->kind != INDEX_DIR)
        return EISDIR;
    if (target->kind != INDEX_DIR && moved->kind == INDEX_DIR)
        return ENOTDIR;
    return target->count > 0 ? ENOTEMPTY : 0;
}

int
model_rename(const struct model_place *from, const struct model_place *to, unsigned flags)
{
    struct model_node *moved = model_child(from->dir, from->name);
    struct model_node *target = model_child(to->dir, to->name);
    if (moved == NULL)
        return ENOENT;
    if (moved == target)
        return 0;
    if ((flags & RENAME_EXCHANGE) != 0)
        return exchange(from, to);
    if (model_is_below(to->dir, moved))
        return EINVAL;
    if (target != NULL) {
        int rc = check_target(moved, target, flags);
        if (rc != 0)
            return rc;
        model_cut(to->dir, to->name);
    }
    model_add(to->dir, to->name, model_ref(moved));
    model_cut(from->dir, from->name);
    return 0;
}

void
model_truncate(struct model_node *node, size_t size)
{
    uint8_t *bytes = realloc(node->bytes, size + 1);
    if (bytes == NULL)
        rig_die("out of memory");
    if (size > node->len)
        memset(bytes + node->len, 0, size - node->len);
    node->bytes = bytes;
    node->len = size;
    node->mtime_known = false;
}

void
model_write(struct model_node *node, size_t off, const void *data, size_t len)
{
    if (off + len > node->len)
        model_truncate(node, off + len);
    memcpy(node->bytes + off, data, len);
    node->mtime_known = false;
}
