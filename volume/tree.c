#include <assert.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/path.h"
#include "base/scope.h"
#include "volume/link_impl.h"
#include "volume/listing_impl.h"

/* Reading the tree: the index answers; the store is asked where a folder was never listed or an object never looked at. */

struct node_call {
    const struct volume_service *service; /* attr.fresh_ns is wanted */
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
    if (index_node_get(tx, call->id, &call->node, err) != 0 ||
        attr_fill(tx, &call->node, &call->attr, err) != 0)
        return -1;
    if (call->service == NULL || (call->node.flags & INDEX_NODE_META_UNKNOWN) != 0)
        return 0;
    if (call->node.parent == 0) {
        attr_believe(call->service, NULL, &call->attr);
        return 0;
    }
    if (index_node_get(tx, call->node.parent, &call->dir, err) != 0)
        return -1;
    attr_believe(call->service, &call->dir, &call->attr);
    return 0;
}

static int
read_child(struct index_tx *tx, void *arg, struct err *err)
{
    struct node_call *call = arg;
    if (index_node_get(tx, call->id, &call->dir, err) != 0)
        return -1;
    if (call->dir.kind != INDEX_DIR)
        return err_set(err, ERR_NOT_DIR, "not a folder");
    attr_believe(call->service, &call->dir, &call->attr); /* also that it is not there */
    if (index_node_child(tx, call->id, call->name, call->len, &call->node, err) != 0)
        return -1;
    if ((call->node.flags & INDEX_NODE_NAME_HIDDEN) != 0)
        return err_set(err, ERR_NOT_FOUND, "no such file");
    int64_t fresh_ns = call->attr.fresh_ns;
    if (attr_fill(tx, &call->node, &call->attr, err) != 0)
        return -1;
    /* A further name's file may lie in a folder that is to be asked earlier. */
    bool unsure = (call->node.flags & (INDEX_NODE_META_UNKNOWN | INDEX_NODE_LINK)) != 0;
    call->attr.fresh_ns = unsure ? 0 : fresh_ns;
    return link_resolve(tx, &call->node, err);
}

/* How long a question waits for a listing that is only older than its time to live. */
#define FRESH_PATIENCE (1 * NS_PER_S)

static int
read_dir_row(struct volume_service *service, int64_t dir, struct node_call *call, struct err *err)
{
    call->service = NULL;
    call->id = dir;
    if (index_read(service->index, read_node, call, err) != 0)
        return -1;
    return call->node.kind == INDEX_DIR ? 0 : err_set(err, ERR_NOT_DIR, "not a folder");
}

static bool
store_is_away(struct volume_service *service)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&service->status_lock);
    return !service->store_ok;
}

/* Listed, but long ago: a quick store is waited for, a slow one refreshes the folder in the background. */
static int
freshen(struct volume_service *service, const struct volume_ctx *ctx, int64_t dir, struct err *err)
{
    if (store_is_away(service)) {
        bucket_refresh_dir(service, dir);
        return 0;
    }
    if (ctx->nowait)
        return err_set(err, ERR_AGAIN, "the folder's listing is old");
    lister_await(service, dir, FRESH_PATIENCE);
    return 0;
}

/* A folder whose bucket side was never seen is listed before anybody may say "not there" (INV-9). */
static int
ensure_listed(struct volume_service *service, const struct volume_ctx *ctx, int64_t dir,
              struct err *err)
{
    struct node_call call = { .id = dir };
    if (read_dir_row(service, dir, &call, err) != 0)
        return -1;
    if (service_listed_lately(service, &call.node))
        return 0;
    if (service_listed(service, &call.node))
        return freshen(service, ctx, dir, err);
    if (ctx->nowait)
        return err_set(err, ERR_AGAIN, "the folder has to be listed first");
    return bucket_list_dir(service, ctx, dir, err);
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
    heads_ahead(service, call->node.parent, call->node.id);
    if (heads_complete(service, ctx, call->node.id, err) != 0)
        return -1;
    call->id = call->node.id;
    return index_read(service->index, read_node, call, err);
}

int
volume_getattr(struct volume_service *service, const struct volume_ctx *ctx, int64_t node,
               struct volume_attr *out, struct err *err)
{
    struct node_call call = { .service = service, .id = node };
    if (index_read(service->index, read_node, &call, err) != 0 ||
        ensure_complete(service, ctx, &call, err) != 0)
        return -1;
    *out = call.attr;
    return attr_live(service, ctx, out, err);
}

/* A name in a folder that is listed for the first time: found as soon as the listing has come so far. */
static int
find_while_listing(struct volume_service *service, const struct volume_ctx *ctx,
                   struct node_call *call, struct err *err)
{
    uint64_t seen = 0;
    bool done = false;
    while (!done) {
        struct err local = ERR_INIT;
        if (lister_step(service, ctx, call->id, &seen, &done, err) != 0)
            return -1;
        if (index_read(service->index, read_child, call, &local) == 0)
            return 0;
        if (done || local.code != ERR_NOT_FOUND) {
            *err = local;
            return -1;
        }
    }
    return 0;
}

static int
find_child(struct volume_service *service, const struct volume_ctx *ctx, struct node_call *call,
           struct err *err)
{
    struct err local = ERR_INIT;
    struct node_call dir;
    if (index_read(service->index, read_child, call, &local) == 0) {
        if (service_listed(service, &call->dir) && !service_listed_lately(service, &call->dir))
            bucket_refresh_dir(service, call->id);
        return 0;
    }
    bool known = call->dir.id == call->id && service_listed_lately(service, &call->dir);
    if (local.code != ERR_NOT_FOUND || known) {
        *err = local;
        return -1;
    }
    if (read_dir_row(service, call->id, &dir, err) != 0)
        return -1;
    if (!service_listed(service, &dir.node) && !ctx->nowait)
        return find_while_listing(service, ctx, call, err);
    if (ensure_listed(service, ctx, call->id, err) != 0)
        return -1;
    return index_read(service->index, read_child, call, err);
}

int
volume_lookup(struct volume_service *service, const struct volume_ctx *ctx,
              const struct volume_name *at, struct volume_attr *out, struct err *err)
{
    if (path_check_name(at->name, at->len, err) != 0)
        return -1;
    struct node_call call = {
        .service = service, .id = at->parent, .name = at->name, .len = at->len
    };
    int found = find_child(service, ctx, &call, err);
    out->fresh_ns = call.attr.fresh_ns;
    if (found != 0)
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
    int64_t cookie; /* the name's node: not the file's where it has several */
    bool incomplete;
    uint16_t name_len;
    char name[LIMIT_NAME + 1];
};

struct list_call {
    const struct volume_service *service;
    struct index_tx *tx;
    int64_t dir, after;
    unsigned limit;
    bool names;
    struct list_row *row;
    size_t count;
    int64_t fresh_ns;
};

static int
list_one(void *arg, const struct index_node *node, struct err *err)
{
    struct list_call *call = arg;
    struct list_row *row = &call->row[call->count];
    if (attr_fill(call->tx, node, &row->attr, err) != 0)
        return -1;
    row->cookie = node->id;
    row->incomplete = (node->flags & INDEX_NODE_META_UNKNOWN) != 0;
    bool unsure = row->incomplete || (node->flags & INDEX_NODE_LINK) != 0;
    row->attr.fresh_ns = unsure ? 0 : call->fresh_ns;
    if (row->incomplete && call->names && node->kind != INDEX_DIR)
        row->attr.mode &= ~(uint32_t)S_IFMT; /* perhaps a link: whoever must know asks */
    row->name_len = (node->flags & INDEX_NODE_NAME_HIDDEN) != 0 ? 0 : node->name_len;
    memcpy(row->name, node->name, (size_t)node->name_len + 1);
    call->count++;
    return 0;
}

static int
list_rows(struct index_tx *tx, void *arg, struct err *err)
{
    struct list_call *call = arg;
    struct index_node dir;
    struct volume_attr known = { 0 };
    if (index_node_get(tx, call->dir, &dir, err) != 0)
        return -1;
    attr_believe(call->service, &dir, &known);
    call->fresh_ns = known.fresh_ns;
    call->tx = tx;
    return index_node_children(tx, call->dir, call->after, call->limit, list_one, call, err);
}

/* What the index knows of it now, after it was asked for. */
static int
reread_row(struct volume_service *service, struct list_row *row, struct err *err)
{
    struct node_call call = { .service = service, .id = row->attr.node };
    struct err local = ERR_INIT;
    if (index_read(service->index, read_node, &call, &local) == 0) {
        row->attr = call.attr;
        return 0;
    }
    if (local.code != ERR_NOT_FOUND) {
        *err = local;
        return -1;
    }
    row->name_len = 0; /* went away since the listing */
    return 0;
}

#define LIST_BATCH 256u

/* What a batch still has to be asked for, all at once. What cannot be asked for shows what the listing told: one bad object
 * holds up no others, and a store that is away is not waited for by each. */
static int
complete_rows(struct volume_service *service, const struct volume_ctx *ctx,
              const struct list_call *call, struct err *err)
{
    int64_t unknown[LIST_BATCH];
    size_t count = 0;
    struct err ignored = ERR_INIT;
    for (size_t i = 0; i < call->count; i++)
        if (call->row[i].incomplete)
            unknown[count++] = call->row[i].attr.node;
    if (count == 0 || store_is_away(service))
        return 0;
    if (ctx->nowait)
        return err_set(err, ERR_AGAIN, "objects have to be looked at first");
    heads_ahead(service, call->dir, unknown[count - 1]);
    if (heads_complete_many(service, ctx, unknown, count, &ignored) != 0)
        log_debug(volume, "not every object of a folder can be looked at: %s", ignored.msg);
    for (size_t i = 0; i < call->count; i++)
        if (call->row[i].incomplete && reread_row(service, &call->row[i], err) != 0)
            return -1;
    return 0;
}

struct giving {
    const struct volume_page *page;
    int64_t after;
    unsigned given;
    volume_entry_fn *fn;
    void *arg;
    struct list_row *rows;
};

/* 1: the caller's function has had enough. */
static int
give_row(struct volume_service *service, const struct volume_ctx *ctx, struct list_row *row,
         struct giving *giving, struct err *err)
{
    giving->after = row->cookie;
    if (row->name_len == 0)
        return 0;
    if (attr_live(service, ctx, &row->attr, err) != 0)
        return -1;
    struct volume_entry entry = {
        .name = row->name,
        .name_len = row->name_len,
        .cookie = giving->after,
        .attr = row->attr,
        .name_only = row->incomplete && giving->page->names,
    };
    int rc = giving->fn(giving->arg, &entry, err);
    giving->given += rc == 0;
    return rc;
}

/* What the index has now. 1: the limit is reached, or the caller has had enough. */
static int
give_known(struct volume_service *service, const struct volume_ctx *ctx, struct giving *giving,
           struct err *err)
{
    while (giving->given < giving->page->limit) {
        unsigned left = giving->page->limit - giving->given;
        struct list_call call = { .service = service,
                                  .dir = giving->page->dir,
                                  .after = giving->after,
                                  .limit = left < LIST_BATCH ? left : LIST_BATCH,
                                  .names = giving->page->names,
                                  .row = giving->rows };
        if (index_read(service->index, list_rows, &call, err) != 0 ||
            (!call.names && complete_rows(service, ctx, &call, err) != 0))
            return -1;
        for (size_t i = 0; i < call.count; i++) {
            int rc = give_row(service, ctx, &giving->rows[i], giving, err);
            if (rc != 0)
                return rc;
        }
        if (call.count < call.limit)
            return 0;
    }
    return 1;
}

/* New entries have higher numbers than those before: a listing that goes on is followed by its cookie. */
static int
give_while_listing(struct volume_service *service, const struct volume_ctx *ctx,
                   struct giving *giving, struct err *err)
{
    uint64_t seen = 0;
    bool done = false;
    for (;;) {
        int rc = give_known(service, ctx, giving, err);
        if (rc != 0 || done || (giving->page->partial && giving->given > 0))
            return rc < 0 ? -1 : 0;
        if (lister_step(service, ctx, giving->page->dir, &seen, &done, err) != 0)
            return -1;
    }
}

int
volume_list(struct volume_service *service, const struct volume_ctx *ctx,
            const struct volume_page *page, volume_entry_fn *fn, void *arg, struct err *err)
{
    struct node_call dir;
    struct giving giving = { .page = page, .after = page->after, .fn = fn, .arg = arg };
    if (read_dir_row(service, page->dir, &dir, err) != 0)
        return -1;
    bool listed = service_listed(service, &dir.node);
    bool old = listed && !service_listed_lately(service, &dir.node);
    if (old && page->after == 0 && ensure_listed(service, ctx, page->dir, err) != 0)
        return -1;
    if (!listed && ctx->nowait)
        return err_set(err, ERR_AGAIN, "the folder has to be listed first");
    /* list_one() fills each. */
    size_t batch = page->limit < LIST_BATCH ? page->limit : LIST_BATCH;
    scope_free struct list_row *rows = malloc((batch > 0 ? batch : 1) * sizeof(*rows));
    if (rows == NULL)
        return err_nomem(err);
    giving.rows = rows;
    if (!listed)
        return give_while_listing(service, ctx, &giving, err);
    int rc = give_known(service, ctx, &giving, err);
    if (rc == 0 && page->ended != NULL)
        *page->ended = true;
    return rc < 0 ? -1 : 0;
}
