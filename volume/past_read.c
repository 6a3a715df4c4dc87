#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/scope.h"
#include "volume/aside_impl.h"
#include "volume/history_impl.h"
#include "volume/past.h"

/* Bytes and attributes of versions of the past. What was the present version when the past was made may have become history since. */

/* ---- attributes of copies ---- */

struct look_call {
    const char *id;
    struct object_attrs attrs;
};

static int
looked_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct look_call *call = arg;
    struct index_history row;
    struct err missing = ERR_INIT;
    if (index_history_get(tx, call->id, &row, &missing) != 0)
        return missing.code == ERR_NOT_FOUND ? 0 : err_set(err, missing.code, "%s", missing.msg);
    row.mode = call->attrs.mode;
    row.uid = call->attrs.uid;
    row.gid = call->attrs.gid;
    row.mtime_ns = call->attrs.mtime_ns;
    return index_history_put(tx, &row, err);
}

static enum index_kind
kind_of(uint32_t mode)
{
    return S_ISLNK(mode) ? INDEX_SYMLINK : S_ISREG(mode) ? INDEX_FILE : INDEX_SPECIAL;
}

int
volume_past_look(struct volume_service *service, const struct volume_ctx *ctx,
                 const struct volume_past_entry *entry, struct volume_past_entry *out,
                 struct err *err)
{
    struct index_history row;
    struct store_object object;
    struct observed seen;
    struct look_call call = { .id = entry->copy };
    char key[LIMIT_KEY + 1];
    *out = *entry;
    if (entry->mode != 0 || entry->copy[0] == '\0')
        return 0;
    if (history_row(service, entry->copy, &row, key, err) != 0)
        return -1;
    if (row.mode == 0) {
        if (ctx->nowait)
            return err_set(err, ERR_AGAIN, "the bucket has to be asked");
        store_object_init(&object);
        int rc = store_head(service->store, key, service_deadline(ctx), &object, err);
        if (rc == 0)
            object_read(&object, &seen, &call.attrs);
        store_object_release(&object);
        if (rc != 0)
            return -1;
        if (!call.attrs.has_mode)
            call.attrs.mode = S_IFREG | 0644;
        if (index_write(service->index, INDEX_NORMAL, looked_tx, &call, err) != 0)
            return -1;
        row.mode = call.attrs.mode;
        row.uid = call.attrs.uid;
        row.gid = call.attrs.gid;
        row.mtime_ns = call.attrs.mtime_ns;
    }
    out->mode = row.mode;
    out->uid = row.uid;
    out->gid = row.gid;
    out->mtime_ns = row.mtime_ns;
    out->kind = kind_of(row.mode);
    return 0;
}

/* ---- bytes ---- */

/* Where a version lies now: at the file that has it still, or in the history. */
struct find_call {
    const struct volume_past_entry *entry;
    char origin[LIMIT_ETAG];
    struct index_tx *tx;
    bool present;
    bool unknown; /* only a listing has shown the file */
    char id[ULID_SIZE];
};

static int
match_row(void *arg, const struct index_history *row, struct err *err)
{
    struct find_call *call = arg;
    char origin[LIMIT_ETAG];
    if (row->state != INDEX_HISTORY_KEPT)
        return 0;
    if (row->version[0] != '\0') {
        if (history_origin(call->tx, row->version, origin, err) != 0)
            return -1;
        if (strcmp(origin, call->origin) != 0)
            return 0;
    } else if (strcmp(row->source_etag, call->entry->version) != 0) {
        return 0;
    }
    memcpy(call->id, row->id, ULID_SIZE);
    return 1;
}

/* The file's newest bytes are those of its object. */
static int
is_synced(struct index_tx *tx, const struct index_node *node, bool *out, struct err *err)
{
    struct index_content row;
    *out = node->content == 0;
    if (*out)
        return 0;
    if (index_content_get(tx, node->content, &row, err) != 0)
        return -1;
    *out = row.state == CONTENT_CLEAN && strcmp(row.etag, node->etag) == 0;
    return 0;
}

/* Named by its ETag when only a listing had shown it; and after a rebuild nobody knows which version the present one was made from
 * by a move or new attributes: the bytes tell. */
static int
has_these_bytes(struct index_tx *tx, const struct index_node *node,
                const struct volume_past_entry *entry, bool *out, struct err *err)
{
    struct index_version made;
    struct err missing = ERR_INIT;
    bool synced;
    if (is_synced(tx, node, &synced, err) != 0)
        return -1;
    *out = synced && strcmp(node->etag, entry->version) == 0;
    if (*out || !synced || entry->sha256[0] == '\0' || node->version[0] == '\0')
        return 0;
    if (index_version_find(tx, node->version, &made, &missing) != 0)
        return missing.code == ERR_NOT_FOUND ? 0 : err_set(err, missing.code, "%s", missing.msg);
    *out = strcmp(made.sha256, entry->sha256) == 0;
    return 0;
}

static int
find_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct find_call *call = arg;
    const struct volume_past_entry *entry = call->entry;
    struct index_node node;
    struct err missing = ERR_INIT;
    char now[LIMIT_ETAG];
    call->tx = tx;
    if (history_origin(tx, entry->version, call->origin, err) != 0)
        return -1;
    if (entry->key[0] == '\0' && index_node_get(tx, entry->node, &node, &missing) == 0) {
        if (node.version[0] == '\0' && node.content == 0)
            text_set(now, node.etag);
        else if (history_origin_of_node(tx, &node, now, err) != 0)
            return -1;
        call->present = strcmp(now, call->origin) == 0;
        if (!call->present && has_these_bytes(tx, &node, entry, &call->present, err) != 0)
            return -1;
        if (call->present)
            return 0;
    }
    if (entry->node != 0 &&
        index_history_of_node(tx, entry->node, UINT32_MAX, match_row, call, err) != 0)
        return -1;
    if (call->id[0] == '\0' && ulid_valid(entry->version))
        return index_history_of_version(tx, entry->version, match_row, call, err);
    return 0;
}

/* The version of the handle is fixed when it is opened: what it is, is looked at again behind that. */
static ssize_t
read_present(struct volume_service *service, const struct volume_ctx *ctx, struct find_call *call,
             const struct aside_part *part, struct err *err)
{
    struct volume_file *file;
    struct volume_ctx reader = *ctx;
    reader.run = "";
    if (volume_file_open(service, &reader, call->entry->node, O_RDONLY, &file, err) != 0)
        return -1;
    ssize_t got = volume_file_read(file, &reader, part->out, part->len, part->off, err);
    volume_file_close(file, &reader);
    if (got < 0)
        return -1;
    call->present = false;
    if (index_read(service->index, find_tx, call, err) != 0)
        return -1;
    return call->present ? got : err_set(err, ERR_AGAIN, "it is being replaced at this moment");
}

static ssize_t
read_target(struct volume_service *service, const struct volume_ctx *ctx, int64_t node,
            const struct aside_part *part, struct err *err)
{
    char target[LIMIT_SYMLINK + 1];
    if (volume_readlink(service, ctx, node, target, sizeof(target), err) != 0)
        return -1;
    size_t len = strlen(target);
    if (part->off >= len)
        return 0;
    size_t got = len - part->off < part->len ? len - (size_t)part->off : part->len;
    memcpy(part->out, target + part->off, got);
    return (ssize_t)got;
}

static int
unknown_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct find_call *call = arg;
    struct index_node node;
    struct err missing = ERR_INIT;
    call->unknown = index_node_get(tx, call->entry->node, &node, &missing) == 0 &&
                    (node.flags & INDEX_NODE_META_UNKNOWN) != 0;
    return call->unknown || missing.code == ERR_NOT_FOUND || missing.code == ERR_INTERNAL
               ? 0
               : err_set(err, missing.code, "%s", missing.msg);
}

/* Which version a file has that only a listing has shown, its object tells. */
static int
know_node(struct volume_service *service, const struct volume_ctx *ctx, struct find_call *call,
          struct err *err)
{
    if (call->entry->node == 0 || call->entry->key[0] != '\0')
        return 0;
    if (index_read(service->index, unknown_tx, call, err) != 0)
        return -1;
    if (!call->unknown)
        return 0;
    if (ctx->nowait)
        return err_set(err, ERR_AGAIN, "the bucket has to be asked");
    return bucket_complete_node(service, ctx, call->entry->node, err);
}

ssize_t /* NOLINTNEXTLINE(readability-function-size): the contract has seven parameters */
volume_past_read(struct volume_service *service, const struct volume_ctx *ctx,
                 const struct volume_past_entry *entry, void *out, size_t len, uint64_t off,
                 struct err *err)
{
    scope_free struct find_call *call = calloc(1, sizeof(*call));
    struct aside_part part = { out, len, off };
    if (call == NULL)
        return err_nomem(err);
    if (entry->copy[0] != '\0')
        return volume_history_read(service, ctx, entry->copy, out, len, off, err);
    call->entry = entry;
    if (know_node(service, ctx, call, err) != 0 ||
        index_read(service->index, find_tx, call, err) != 0)
        return -1;
    if (call->present && entry->kind == INDEX_SYMLINK)
        return read_target(service, ctx, entry->node, &part, err);
    if (call->present) {
        ssize_t got = read_present(service, ctx, call, &part, err);
        if (got >= 0 || err->code != ERR_AGAIN || ctx->nowait)
            return got;
    }
    if (call->id[0] != '\0')
        return volume_history_read(service, ctx, call->id, out, len, off, err);
    if (entry->key[0] == '\0')
        return err_set(err, ERR_NOT_FOUND, "this version of '%s' is not kept any more",
                       entry->path);
    struct aside_object object = { .key = entry->key, .etag = entry->etag, .size = entry->size };
    return aside_read(service, ctx, &object, &part, err);
}
