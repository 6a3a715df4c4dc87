#include <string.h>

#include "base/scope.h"
#include "volume/audit.h"
#include "volume/service_impl.h"
#include "volume/xattr.h"

/* Extended attributes of nodes: kept in the index, carried to the bucket as mode and owner are. */

#define OURS "user.holdfast."

struct xattr_call {
    struct volume_service *service;
    const struct volume_ctx *ctx;
    int64_t node;
    const char *name;
    struct buf *out;
    const struct volume_attr *attr;
    const struct volume_xattr *change;
    struct index_node row;
};

/* ---- what is said, not kept ---- */

static int
say(struct xattr_call *call, const char *text, struct err *err)
{
    if (text[0] == '\0')
        return err_set(err, ERR_NO_ATTRIBUTE, "there is none");
    return buf_append_str(call->out, text, err);
}

static int
say_version(struct index_tx *tx, struct xattr_call *call, struct err *err)
{
    (void)tx;
    return buf_append_str(call->out, call->attr->version, err);
}

static int
say_etag(struct index_tx *tx, struct xattr_call *call, struct err *err)
{
    (void)tx;
    return buf_append_str(call->out, call->attr->etag, err);
}

static int
say_synced(struct index_tx *tx, struct xattr_call *call, struct err *err)
{
    (void)tx;
    return buf_append_str(call->out, call->attr->synced ? "yes" : "no", err);
}

static int
say_key(struct index_tx *tx, struct xattr_call *call, struct err *err)
{
    char key[LIMIT_KEY + 1];
    if (key_of_node(tx, &call->row, key, err) != 0)
        return -1;
    return buf_append_str(call->out, key, err);
}

/* What unsynced bytes were made from. */
static int
say_base(struct index_tx *tx, struct xattr_call *call, struct err *err)
{
    struct index_content content = { .id = 0 };
    if (call->row.content != 0 && index_content_get(tx, call->row.content, &content, err) != 0)
        return -1;
    if (content.id == 0 || content.state == CONTENT_CLEAN)
        return say(call, "", err);
    return say(call, content.base_version[0] != '\0' ? content.base_version : content.base_etag,
               err);
}

struct find_conflict {
    char path[LIMIT_PATH + 1];
    char id[ULID_SIZE];
};

static int
match_path(void *arg, const struct index_conflict *row, struct err *err)
{
    struct find_conflict *find = arg;
    (void)err;
    if (strcmp(row->path, find->path) == 0)
        text_set(find->id, row->id);
    return 0;
}

/* The last one at this path. */
static int
say_conflict(struct index_tx *tx, struct xattr_call *call, struct err *err)
{
    struct find_conflict find = { .id = "" };
    if (index_node_path(tx, call->row.id, find.path, sizeof(find.path), err) != 0 ||
        index_conflict_each(tx, call->row.volume, match_path, &find, err) != 0)
        return -1;
    return say(call, find.id, err);
}

static const struct said {
    const char *name;
    int (*fn)(struct index_tx *tx, struct xattr_call *call, struct err *err);
} said[] = {
    { OURS "version", say_version }, { OURS "etag", say_etag }, { OURS "synced", say_synced },
    { OURS "key", say_key },         { OURS "base", say_base }, { OURS "conflict", say_conflict },
};

/* ---- reading ---- */

static int
get_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct xattr_call *call = arg;
    struct xattr_entry entry;
    if (xattr_class(call->name) == XATTR_OURS) {
        if (index_node_get(tx, call->node, &call->row, err) != 0)
            return -1;
        for (size_t i = 0; i < sizeof(said) / sizeof(said[0]); i++)
            if (strcmp(said[i].name, call->name) == 0)
                return said[i].fn(tx, call, err);
        return say(call, "", err);
    }
    scope_buf set;
    buf_init(&set, XATTR_SET_MAX);
    if (index_xattrs_get(tx, call->node, &set, err) != 0)
        return -1;
    if (!xattr_find(&set, call->name, &entry))
        return err_set(err, ERR_NO_ATTRIBUTE, "the file has no attribute of that name");
    return buf_append(call->out, entry.value, entry.len, err);
}

int
volume_xattr_get(struct volume_service *service, const struct volume_ctx *ctx, int64_t node,
                 const char *name, struct buf *out, struct err *err)
{
    struct volume_attr attr;
    struct xattr_call call = {
        .service = service, .ctx = ctx, .node = node, .name = name, .out = out, .attr = &attr
    };
    if (xattr_class(name) == XATTR_OTHER)
        return err_set(err, ERR_UNSUPPORTED, "only user.* attributes are kept here");
    if (volume_getattr(service, ctx, node, &attr, err) != 0)
        return -1;
    return index_read(service->index, get_tx, &call, err);
}

static int
list_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct xattr_call *call = arg;
    scope_buf set;
    buf_init(&set, XATTR_SET_MAX);
    if (index_xattrs_get(tx, call->node, &set, err) != 0)
        return -1;
    return xattr_names(&set, call->out, err);
}

int
volume_xattr_list(struct volume_service *service, const struct volume_ctx *ctx, int64_t node,
                  struct buf *out, struct err *err)
{
    struct volume_attr attr;
    struct xattr_call call = { .node = node, .out = out };
    if (volume_getattr(service, ctx, node, &attr, err) != 0)
        return -1;
    return index_read(service->index, list_tx, &call, err);
}

/* ---- changing ---- */

static int
edit_set(struct index_tx *tx, const struct xattr_call *call, struct err *err)
{
    const struct volume_xattr *change = call->change;
    struct xattr_value value = { .data = change->value,
                                 .len = change->len,
                                 .flags = change->flags };
    scope_buf set;
    buf_init(&set, XATTR_SET_MAX);
    if (index_xattrs_get(tx, call->node, &set, err) != 0)
        return -1;
    int rc = change->remove ? xattr_remove(&set, change->name, err)
                            : xattr_set(&set, change->name, &value, err);
    return rc != 0 ? -1 : index_xattrs_put(tx, call->node, set.data, set.len, err);
}

static int
note_xattr(struct index_tx *tx, const struct xattr_call *call, struct err *err)
{
    char path[LIMIT_PATH + 1];
    if ((call->row.flags & INDEX_NODE_ORPHAN) != 0)
        return 0;
    if (index_node_path(tx, call->row.id, path, sizeof(path), err) != 0)
        return -1;
    volume_audit_act(call->service, call->ctx,
                     (struct audit_record){ .verb = "attributes",
                                            .volume = call->row.volume,
                                            .path = path,
                                            .detail = call->change->name,
                                            .bytes = -1 });
    return 0;
}

static int
change_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct xattr_call *call = arg;
    struct index_volume volume;
    if (answer_replay(tx, call->ctx, NULL))
        return 0;
    if (index_node_get(tx, call->node, &call->row, err) != 0 ||
        index_volume_get(tx, call->row.volume, &volume, err) != 0 ||
        service_may_write(call->service, call->ctx, &volume, err) != 0)
        return -1;
    if (call->row.kind != INDEX_FILE && call->row.kind != INDEX_DIR)
        return err_set(err, ERR_PERM, "only files and folders have extended attributes");
    call->row.ctime_ns = clock_wall_ns();
    rest_begin(call->service, call->ctx, tx);
    if (edit_set(tx, call, err) != 0 || node_attrs_changed(tx, &call->row, err) != 0 ||
        note_xattr(tx, call, err) != 0)
        return -1;
    return answer_record(tx, call->ctx, NULL, err);
}

int
volume_xattr_change(struct volume_service *service, const struct volume_ctx *ctx, int64_t node,
                    const struct volume_xattr *change, struct err *err)
{
    struct volume_attr before;
    struct xattr_call call = { .service = service, .ctx = ctx, .node = node, .change = change };
    switch (xattr_class(change->name)) {
    case XATTR_USER:
        break;
    case XATTR_OURS:
        return err_set(err, ERR_PERM, "names that begin with '" OURS "' are reserved");
    case XATTR_OTHER:
        return err_set(err, ERR_UNSUPPORTED, "only user.* attributes are kept here");
    }
    if (ctx->nowait)
        return err_set(err, ERR_AGAIN, "changing attributes waits for the index");
    /* What the object has is known before it is changed. */
    if (volume_getattr(service, ctx, node, &before, err) != 0)
        return -1;
    if (index_write(service->index, INDEX_NORMAL, change_tx, &call, err) != 0)
        return -1;
    if (call.row.id == 0)
        return 0; /* it was a request sent again */
    rest_kick(service, ctx);
    event_emit(service, VOLUME_EVENT_CHANGED, &call.row, ctx->connection);
    return 0;
}

int
xattrs_copy(struct index_tx *tx, int64_t from, int64_t to, struct err *err)
{
    scope_buf set;
    buf_init(&set, XATTR_SET_MAX);
    if (index_xattrs_get(tx, from, &set, err) != 0)
        return -1;
    return set.len == 0 ? 0 : index_xattrs_put(tx, to, set.data, set.len, err);
}
