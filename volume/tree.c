#include <assert.h>

#include "base/path.h"
#include "base/scope.h"
#include "volume/service_impl.h"

/* Reading the tree: the index answers; the store is asked where a folder was never listed or an object never looked at. */

struct node_call {
    int64_t id;
    const char *name;
    size_t len;
    struct index_node node;
    struct index_node dir;
    struct volume_attr attr;
};

static int
read_node(struct index_tx *tx, void *arg, struct err *err)
{
    struct node_call *call = arg;
    if (index_node_get(tx, call->id, &call->node, err) != 0)
        return -1;
    return attr_fill(tx, &call->node, &call->attr, err);
}

static int
read_child(struct index_tx *tx, void *arg, struct err *err)
{
    struct node_call *call = arg;
    if (index_node_get(tx, call->id, &call->dir, err) != 0)
        return -1;
    if (call->dir.kind != INDEX_DIR)
        return err_set(err, ERR_NOT_DIR, "not a folder");
    if (index_node_child(tx, call->id, call->name, call->len, &call->node, err) != 0)
        return -1;
    if ((call->node.flags & INDEX_NODE_NAME_HIDDEN) != 0)
        return err_set(err, ERR_NOT_FOUND, "no such file");
    return attr_fill(tx, &call->node, &call->attr, err);
}

/* A folder whose bucket side was never seen is listed before anybody may say "not there" (INV-9). */
static int
ensure_listed(struct volume_service *service, const struct volume_ctx *ctx, int64_t dir,
              struct err *err)
{
    struct node_call call = { .id = dir };
    if (index_read(service->index, read_node, &call, err) != 0)
        return -1;
    if (call.node.kind != INDEX_DIR)
        return err_set(err, ERR_NOT_DIR, "not a folder");
    if (!service_listed(service, &call.node)) {
        if (ctx->nowait)
            return err_set(err, ERR_AGAIN, "the folder has to be listed first");
        return bucket_list_dir(service, ctx, dir, err);
    }
    if (clock_wall_ns() - call.node.listed_ns > service->list_ttl_ns)
        bucket_refresh_dir(service, dir);
    return 0;
}

/* An object that only a listing showed: its mode, times and kind come from a HEAD. */
static int
ensure_complete(struct volume_service *service, const struct volume_ctx *ctx,
                struct node_call *call, struct err *err)
{
    if ((call->node.flags & INDEX_NODE_META_UNKNOWN) == 0)
        return 0;
    if (ctx->nowait)
        return err_set(err, ERR_AGAIN, "the object has to be looked at first");
    if (bucket_complete_node(service, ctx, call->node.id, err) != 0)
        return -1;
    call->id = call->node.id;
    return index_read(service->index, read_node, call, err);
}

int
volume_getattr(struct volume_service *service, const struct volume_ctx *ctx, int64_t node,
               struct volume_attr *out, struct err *err)
{
    struct node_call call = { .id = node };
    if (index_read(service->index, read_node, &call, err) != 0 ||
        ensure_complete(service, ctx, &call, err) != 0)
        return -1;
    *out = call.attr;
    return attr_live(service, ctx, out, err);
}

static int
find_child(struct volume_service *service, const struct volume_ctx *ctx, struct node_call *call,
           struct err *err)
{
    struct err local = ERR_INIT;
    if (index_read(service->index, read_child, call, &local) != 0) {
        if (local.code != ERR_NOT_FOUND) {
            *err = local;
            return -1;
        }
        if (ensure_listed(service, ctx, call->id, err) != 0)
            return -1;
        return index_read(service->index, read_child, call, err);
    }
    if (service_listed(service, &call->dir) &&
        clock_wall_ns() - call->dir.listed_ns > service->list_ttl_ns)
        bucket_refresh_dir(service, call->id);
    return 0;
}

int
volume_lookup(struct volume_service *service, const struct volume_ctx *ctx,
              const struct volume_name *at, struct volume_attr *out, struct err *err)
{
    if (path_check_name(at->name, at->len, err) != 0)
        return -1;
    struct node_call call = { .id = at->parent, .name = at->name, .len = at->len };
    if (find_child(service, ctx, &call, err) != 0)
        return -1;
    if (ensure_complete(service, ctx, &call, err) != 0)
        return -1;
    *out = call.attr;
    return attr_live(service, ctx, out, err);
}

struct root_call {
    int64_t volume;
    int64_t root;
};

static int
read_root(struct index_tx *tx, void *arg, struct err *err)
{
    struct root_call *call = arg;
    struct index_volume volume;
    if (index_volume_get(tx, call->volume, &volume, err) != 0)
        return -1;
    call->root = volume.root;
    return 0;
}

int
volume_resolve(struct volume_service *service, const struct volume_ctx *ctx, int64_t volume,
               const char *path, struct volume_attr *out, struct err *err)
{
    if (path_check(path, strlen(path), err) != 0)
        return -1;
    struct root_call root = { .volume = volume };
    if (index_read(service->index, read_root, &root, err) != 0 ||
        volume_getattr(service, ctx, root.root, out, err) != 0)
        return -1;
    const char *rest = path;
    size_t rest_len = strlen(path);
    const char *name;
    size_t len;
    while (path_next(&rest, &rest_len, &name, &len)) {
        if (out->kind != INDEX_DIR)
            return err_set(err, ERR_NOT_DIR, "a part of '%s' is not a folder", path);
        if (volume_lookup(service, ctx, &(struct volume_name){ out->node, name, len }, out, err) !=
            0) {
            if (err->code == ERR_NOT_FOUND)
                return err_set(err, ERR_NOT_FOUND, "no such file: '%s'", path);
            return -1;
        }
    }
    return 0;
}

struct path_call {
    int64_t node;
    char *out;
    size_t size;
};

static int
read_path(struct index_tx *tx, void *arg, struct err *err)
{
    struct path_call *call = arg;
    return index_node_path(tx, call->node, call->out, call->size, err);
}

int /* NOLINTNEXTLINE(readability-non-const-parameter): filled through path_call */
volume_path(struct volume_service *service, int64_t node, char *out, size_t size, struct err *err)
{
    struct path_call call = { .node = node, .out = out, .size = size };
    return index_read(service->index, read_path, &call, err);
}

int
volume_readlink(struct volume_service *service, const struct volume_ctx *ctx, int64_t node,
                char *out, size_t size, struct err *err)
{
    struct node_call call = { .id = node };
    if (index_read(service->index, read_node, &call, err) != 0 ||
        ensure_complete(service, ctx, &call, err) != 0)
        return -1;
    if (call.node.kind != INDEX_SYMLINK)
        return err_set(err, ERR_INVAL, "not a symbolic link");
    text_copy(out, size, call.node.target);
    return 0;
}

/* ---- listing ---- */

struct list_row {
    struct volume_attr attr;
    bool incomplete;
    uint16_t name_len;
    char name[LIMIT_NAME + 1];
};

struct list_call {
    struct index_tx *tx;
    int64_t dir, after;
    unsigned limit;
    struct list_row *row;
    size_t count;
};

static int
list_one(void *arg, const struct index_node *node, struct err *err)
{
    struct list_call *call = arg;
    struct list_row *row = &call->row[call->count];
    if (attr_fill(call->tx, node, &row->attr, err) != 0)
        return -1;
    row->incomplete = (node->flags & INDEX_NODE_META_UNKNOWN) != 0;
    row->name_len = (node->flags & INDEX_NODE_NAME_HIDDEN) != 0 ? 0 : node->name_len;
    memcpy(row->name, node->name, (size_t)node->name_len + 1);
    call->count++;
    return 0;
}

static int
list_rows(struct index_tx *tx, void *arg, struct err *err)
{
    struct list_call *call = arg;
    call->tx = tx;
    return index_node_children(tx, call->dir, call->after, call->limit, list_one, call, err);
}

static int
complete_row(struct volume_service *service, const struct volume_ctx *ctx, struct list_row *row,
             struct err *err)
{
    if (!row->incomplete)
        return 0;
    if (ctx->nowait)
        return err_set(err, ERR_AGAIN, "objects have to be looked at first");
    struct err local = ERR_INIT;
    if (volume_getattr(service, ctx, row->attr.node, &row->attr, &local) == 0)
        return 0;
    if (local.code == ERR_NOT_FOUND)
        row->name_len = 0; /* went away since the listing */
    else if (!err_retryable(local.code)) {
        *err = local;
        return -1;
    }
    return 0; /* the store is away: what the listing told stands */
}

#define LIST_BATCH 256u

struct giving {
    int64_t after;
    unsigned given;
    volume_entry_fn *fn;
    void *arg;
};

/* 1: the caller's function has had enough. */
static int
give_row(struct volume_service *service, const struct volume_ctx *ctx, struct list_row *row,
         struct giving *giving, struct err *err)
{
    if (complete_row(service, ctx, row, err) != 0)
        return -1;
    giving->after = row->attr.node;
    if (row->name_len == 0)
        return 0;
    if (attr_live(service, ctx, &row->attr, err) != 0)
        return -1;
    struct volume_entry entry = {
        .name = row->name, .name_len = row->name_len, .cookie = giving->after, .attr = row->attr
    };
    int rc = giving->fn(giving->arg, &entry, err);
    giving->given += rc == 0;
    return rc;
}

int
volume_list(struct volume_service *service, const struct volume_ctx *ctx,
            const struct volume_page *page, volume_entry_fn *fn, void *arg, struct err *err)
{
    unsigned limit = page->limit;
    struct giving giving = { .after = page->after, .fn = fn, .arg = arg };
    if (ensure_listed(service, ctx, page->dir, err) != 0)
        return -1;
    scope_free struct list_row *rows = calloc(LIST_BATCH, sizeof(*rows));
    if (rows == NULL)
        return err_nomem(err);
    while (giving.given < limit) {
        unsigned want = limit - giving.given < LIST_BATCH ? limit - giving.given : LIST_BATCH;
        struct list_call call = {
            .dir = page->dir, .after = giving.after, .limit = want, .row = rows
        };
        if (index_read(service->index, list_rows, &call, err) != 0)
            return -1;
        for (size_t i = 0; i < call.count; i++) {
            int rc = give_row(service, ctx, &rows[i], &giving, err);
            if (rc != 0)
                return rc > 0 ? 0 : -1;
        }
        if (call.count < want)
            break;
    }
    return 0;
}
