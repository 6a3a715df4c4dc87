#include <linux/fs.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/parse.h"
#include "base/path.h"
#include "gateway/edit.h"
#include "gateway/router.h"

#define PAGE_DEFAULT 1000

static const char *
kind_name(enum index_kind kind)
{
    if (kind == INDEX_DIR)
        return "dir";
    if (kind == INDEX_SPECIAL)
        return "special";
    return kind == INDEX_SYMLINK ? "symlink" : "file";
}

int
gateway_tree_text(json_t *object, const char *field, const char *text, size_t len)
{
    char hex[2 * LIMIT_PATH + 1];
    char name[32];
    if (json_object_set_new(object, field, json_bytes(text, len)) < 0)
        return -1;
    if (utf8_valid(text, len) || len > LIMIT_PATH)
        return 0;
    hex_encode(text, len, hex);
    (void)snprintf(name, sizeof(name), "%s_hex", field);
    return json_object_set_new(object, name, json_string(hex));
}

int
gateway_tree_prefix(struct exchange *x, char out[LIMIT_PATH + 1], struct err *err)
{
    scope_buf text;
    buf_init(&text, LIMIT_PATH);
    out[0] = '\0';
    int found = gateway_request_query(&x->target, "prefix", &text, err);
    if (found <= 0)
        return found;
    return path_normalize(buf_cstr(&text), text.len, out, LIMIT_PATH + 1, err) < 0
               ? err_wrap(err, "prefix")
               : 0;
}

json_t *
gateway_tree_json(const char *name, size_t name_len, const struct volume_attr *attr)
{
    char mtime[TIME_RFC3339_SIZE];
    char tag[LIMIT_ETAG + 2];
    char mode[16];
    time_rfc3339(attr->mtime_ns, mtime, sizeof(mtime));
    (void)snprintf(tag, sizeof(tag), "\"%s\"", attr->version);
    (void)snprintf(mode, sizeof(mode), "%04o", attr->mode & 07777);
    json_t *object =
        json_pack("{s:s, s:I, s:s, s:s, s:I, s:I, s:b, s:b, s:b}", "kind", kind_name(attr->kind),
                  "size", (json_int_t)attr->size, "mtime", mtime, "mode", mode, "uid",
                  (json_int_t)attr->uid, "gid", (json_int_t)attr->gid, "synced", (int)attr->synced,
                  "conflict", (int)attr->conflict, "writing", (int)attr->writing);
    int rc = object ? gateway_tree_text(object, "name", name, name_len) : -1;
    if (rc == 0 && attr->version[0] != '\0')
        rc = json_object_set_new(object, "version", json_string(attr->version)) < 0 ||
                     json_object_set_new(object, "etag", json_string(tag)) < 0
                 ? -1
                 : 0;
    if (rc < 0) {
        json_decref(object);
        return NULL;
    }
    return object;
}

static const char *
base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static int
add_target(struct exchange *x, const struct volume_ctx *ctx, json_t *object, int64_t node,
           struct err *err)
{
    char target[LIMIT_SYMLINK + 1];
    if (volume_readlink(x->gateway->service, ctx, node, target, sizeof(target), err) < 0)
        return -1;
    if (json_object_set_new(object, "target", json_bytes(target, strlen(target))) < 0)
        return err_nomem(err);
    return 0;
}

static int
mark_one(struct exchange *x, int64_t volume, json_t *object, struct err *err)
{
    char dir[LIMIT_PATH + 1];
    const char *name = base_name(x->path);
    scope_json *entries = json_pack("[O]", object);
    (void)snprintf(dir, sizeof(dir), "%.*s", name > x->path ? (int)(name - x->path - 1) : 0,
                   x->path);
    return entries ? gateway_conflicts_mark(x, volume, dir, entries, err) : err_nomem(err);
}

int
gateway_tree_stat(struct exchange *x, struct err *err)
{
    struct volume_info info;
    struct volume_attr attr;
    struct volume_ctx ctx;
    exchange_ctx(x, 30, &ctx);
    if (gateway_volume_of(x, &info, err) < 0 ||
        volume_resolve(x->gateway->service, &ctx, info.id, x->path, &attr, err) < 0)
        return -1;
    const char *name = base_name(x->path);
    json_t *object = gateway_tree_json(name, strlen(name), &attr);
    if (object && attr.kind == INDEX_SYMLINK && add_target(x, &ctx, object, attr.node, err) < 0) {
        json_decref(object);
        return -1;
    }
    if (object && (json_object_set_new(object, "volume", json_string(info.name)) < 0 ||
                   json_object_set_new(object, "path", json_bytes(x->path, strlen(x->path))) < 0)) {
        json_decref(object);
        return err_nomem(err);
    }
    if (object && mark_one(x, info.id, object, err) < 0) {
        json_decref(object);
        return -1;
    }
    return exchange_reply_json(x, 200, object, err);
}

/* ---- listing ---- */
struct page {
    struct exchange_list list;
    int64_t last;
    int64_t volume;
};

static int
add_entry(void *arg, const struct volume_entry *entry, struct err *err)
{
    struct page *page = arg;
    int rc = exchange_list_add(&page->list,
                               gateway_tree_json(entry->name, entry->name_len, &entry->attr), err);
    if (rc == 0)
        page->last = entry->cookie;
    return rc;
}

static int
fill_page(struct exchange *x, struct page *page, struct err *err)
{
    struct volume_info info;
    struct volume_attr attr;
    struct volume_ctx ctx;
    uint64_t cursor = 0;
    exchange_ctx(x, 30, &ctx);
    if (exchange_query_uint(x, "limit", &page->list.limit, err) < 0 ||
        exchange_query_uint(x, "cursor", &cursor, err) < 0)
        return -1;
    if (page->list.limit < 1 || page->list.limit > 10000 || cursor > INT64_MAX)
        return err_set(err, ERR_INVAL, "limit must be 1 to 10000, and cursor one that a page gave");
    if (gateway_volume_of(x, &info, err) < 0 ||
        volume_resolve(x->gateway->service, &ctx, info.id, x->path, &attr, err) < 0)
        return -1;
    if (attr.kind != INDEX_DIR)
        return err_set(err, ERR_NOT_DIR, "'%s' is not a folder", x->path);
    page->volume = info.id;
    return volume_list(x->gateway->service, &ctx,
                       &(struct volume_page){ .dir = attr.node,
                                              .after = (int64_t)cursor,
                                              .limit = (unsigned)page->list.limit + 1 },
                       add_entry, page, err);
}

int
gateway_tree_list(struct exchange *x, struct err *err)
{
    scope_json *entries = json_array();
    struct page page = {
        .list = { .items = entries, .limit = PAGE_DEFAULT, .room = EXCHANGE_LIST_ROOM }
    };
    char next[24];
    if (!entries)
        return err_nomem(err);
    if (gateway_past_asked(x))
        return gateway_past_list(x, err);
    if (fill_page(x, &page, err) < 0 ||
        gateway_conflicts_mark(x, page.volume, x->path, entries, err) < 0)
        return -1;
    (void)snprintf(next, sizeof(next), "%lld", (long long)page.last);
    return exchange_reply_json(x, 200,
                               json_pack("{s:s, s:o, s:O, s:s?}", "volume", x->name, "path",
                                         json_bytes(x->path, strlen(x->path)), "entries", entries,
                                         "next", page.list.truncated ? next : NULL),
                               err);
}

/* ---- operations ---- */
struct op {
    const json_t *body;
    struct volume_info info;
    struct volume_ctx ctx;
};

/* A path field of the body in normal form. */
static int
path_field(const struct op *op, const char *field, char *out, size_t size, struct err *err)
{
    const char *text;
    if (json_need_str(op->body, field, &text, err) < 0)
        return -1;
    if (path_normalize(text, strlen(text), out, size, err) < 0)
        return err_wrap(err, "%s", field);
    if (out[0] == '\0')
        return err_set(err, ERR_INVAL, "%s: the volume itself cannot be meant", field);
    return 0;
}

/* The folder that holds `path`, and the last name of it. */
static int
resolve_parent(struct exchange *x, struct op *op, const char *path, struct volume_name *out,
               struct err *err)
{
    char folder[LIMIT_PATH + 1];
    struct volume_attr attr;
    const char *name = base_name(path);
    size_t len = name == path ? 0 : (size_t)(name - path) - 1;
    memcpy(folder, path, len);
    folder[len] = '\0';
    if (volume_resolve(x->gateway->service, &op->ctx, op->info.id, folder, &attr, err) < 0)
        return -1;
    *out = (struct volume_name){ attr.node, name, strlen(name) };
    return 0;
}

static int
op_mkdir(struct exchange *x, struct op *op, struct err *err)
{
    char path[LIMIT_PATH + 1];
    bool parents = false;
    struct volume_name at;
    struct volume_attr attr;
    if (path_field(op, "path", path, sizeof(path), err) < 0 ||
        json_opt_bool(op->body, "parents", &parents, err) < 0)
        return -1;
    if (parents) {
        if (volume_make_dirs(x->gateway->service, &op->ctx, op->info.id, path, &attr, err) < 0)
            return -1;
    } else if (resolve_parent(x, op, path, &at, err) < 0 ||
               volume_mkdir(x->gateway->service, &op->ctx, &at, 0755, &attr, err) < 0) {
        return -1;
    }
    const char *name = base_name(path);
    return exchange_reply_json(x, 201, gateway_tree_json(name, strlen(name), &attr), err);
}

static int
op_move(struct exchange *x, struct op *op, struct err *err)
{
    char from[LIMIT_PATH + 1];
    char to[LIMIT_PATH + 1];
    bool replace = false;
    struct volume_name from_name;
    struct volume_name to_name;
    struct volume_attr attr;
    if (path_field(op, "from", from, sizeof(from), err) < 0 ||
        path_field(op, "to", to, sizeof(to), err) < 0 ||
        json_opt_bool(op->body, "replace", &replace, err) < 0)
        return -1;
    if (resolve_parent(x, op, from, &from_name, err) < 0 ||
        resolve_parent(x, op, to, &to_name, err) < 0)
        return -1;
    if (volume_rename(x->gateway->service, &op->ctx, &from_name, &to_name,
                      replace ? 0 : RENAME_NOREPLACE, err) < 0)
        return -1;
    if (volume_resolve(x->gateway->service, &op->ctx, op->info.id, to, &attr, err) < 0)
        return -1;
    return exchange_reply_json(x, 200, gateway_tree_json(to_name.name, to_name.len, &attr), err);
}

static int
op_edit(struct exchange *x, struct op *op, struct err *err)
{
    return gateway_edit_op(x, op->body, &op->info, err);
}

static int
op_copy(struct exchange *x, struct op *op, struct err *err)
{
    return gateway_edit_copy(x, op->body, &op->info, err);
}

int
gateway_tree_ops(struct exchange *x, struct err *err)
{
    static const struct {
        const char *name;
        int (*fn)(struct exchange *x, struct op *op, struct err *err);
    } ops[] = {
        { "mkdir", op_mkdir }, { "move", op_move }, { "edit", op_edit }, { "copy", op_copy }
    };
    const char *name;
    const char *volume;
    scope_json *body = exchange_json(x, err);
    struct op op = { .body = body };
    if (!body || json_need_str(body, "op", &name, err) < 0)
        return -1;
    if (strcmp(name, "restore") == 0)
        return gateway_restore_path(x, err);
    if (json_need_str(body, "volume", &volume, err) < 0)
        return -1;
    if (volume_find(x->gateway->service, volume, &op.info, err) < 0)
        return -1;
    if (op.info.read_only)
        return err_set(err, ERR_READ_ONLY, "volume '%s' is read-only", op.info.name);
    exchange_ctx(x, 30, &op.ctx);
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
        if (strcmp(ops[i].name, name) == 0)
            return ops[i].fn(x, &op, err);
    }
    return err_set(err, ERR_UNSUPPORTED,
                   "unknown operation '%s': mkdir, move, copy, edit and restore are known", name);
}
