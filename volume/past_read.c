#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/scope.h"
#include "volume/aside_impl.h"
#include "volume/history_impl.h"
#include "volume/past_impl.h"

/* Bytes and attributes of versions of the past. What was the present version when the past was made may have become history since. */

#define TRIES 4u           /* a version goes from its file to its key to the history */
#define CHANGES_MOST 1000u /* of the last ones that are looked through */

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

/* ERR_NOT_FOUND, ERR_CONFLICT: not that version, any more. */
static int
ask_attrs(struct volume_service *service, const struct volume_ctx *ctx, const char *key,
          const char *etag, struct object_attrs *out, struct err *err)
{
    struct store_object object;
    struct observed seen;
    if (ctx->nowait)
        return err_set(err, ERR_AGAIN, "the bucket has to be asked");
    store_object_init(&object);
    int rc = store_head(service->store, key, service_deadline(ctx), &object, err);
    if (rc == 0 && etag[0] != '\0' && strcmp(object.etag, etag) != 0)
        rc = err_set(err, ERR_CONFLICT, "another version lies there");
    if (rc == 0)
        object_read(&object, &seen, out);
    store_object_release(&object);
    if (rc == 0 && !out->has_mode)
        out->mode = S_IFREG | 0644;
    return rc;
}

static void
set_attrs(struct volume_past_entry *out, const struct object_attrs *attrs)
{
    out->mode = attrs->mode;
    out->uid = attrs->uid;
    out->gid = attrs->gid;
    out->mtime_ns = attrs->mtime_ns;
    out->kind = kind_of(attrs->mode);
}

static int
look_at_copy(struct volume_service *service, const struct volume_ctx *ctx, const char *id,
             struct volume_past_entry *out, struct err *err)
{
    struct index_history row;
    struct look_call call = { .id = id };
    char key[LIMIT_KEY + 1];
    if (history_row(service, id, &row, key, err) != 0)
        return -1;
    call.attrs.mode = row.mode;
    call.attrs.uid = row.uid;
    call.attrs.gid = row.gid;
    call.attrs.mtime_ns = row.mtime_ns;
    if (row.mode == 0 && (ask_attrs(service, ctx, key, "", &call.attrs, err) != 0 ||
                          index_write(service->index, INDEX_NORMAL, looked_tx, &call, err) != 0))
        return -1;
    set_attrs(out, &call.attrs);
    return 0;
}

/* ---- where it lies ---- */

/* Where a version lies now: at the file that has it still, in the history, or, removed and not copied yet, at its key. */
struct find_call {
    const struct volume_past_entry *entry;
    unsigned seen;
    char origin[LIMIT_ETAG];
    struct index_tx *tx;
    bool present;
    bool unknown; /* only a listing has shown the file */
    char id[ULID_SIZE];
    char key[LIMIT_KEY + 1], etag[LIMIT_ETAG];       /* "": not there */
    char home[LIMIT_KEY + 1], home_etag[LIMIT_ETAG]; /* where the present one lies */
};

static int
match_row(void *arg, const struct index_history *row, struct err *err)
{
    struct find_call *call = arg;
    char origin[LIMIT_ETAG];
    if (!history_is_kept(row))
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
match_key(struct find_call *call, const char *name, struct err *err)
{
    struct index_key key;
    struct err missing = ERR_INIT;
    char origin[LIMIT_ETAG];
    if (index_key_get(call->tx, name, &key, &missing) != 0)
        return missing.code == ERR_NOT_FOUND ? 0 : err_set(err, missing.code, "%s", missing.msg);
    if (history_origin(call->tx, key.version, origin, err) != 0)
        return -1;
    if (strcmp(key.version[0] != '\0' ? origin : key.etag, call->origin) == 0) {
        text_set(call->key, key.key);
        text_set(call->etag, key.etag);
    }
    return 0;
}

static int
match_change(void *arg, const struct index_change *row, struct err *err)
{
    struct find_call *call = arg;
    bool of_it = row->node == call->entry->node && row->key[0] != '\0';
    if (call->seen++ == CHANGES_MOST)
        return 1;
    if (of_it && match_key(call, row->key, err) != 0)
        return -1;
    return of_it;
}

/* Its name is gone; the worker has not come yet. */
static int
find_removed(struct find_call *call, struct err *err)
{
    char name[LIMIT_KEY + 1];
    struct index_volume volume;
    const struct volume_past_entry *entry = call->entry;
    if (entry->key[0] != '\0') {
        text_set(call->key, entry->key);
        text_set(call->etag, entry->etag);
        return 0;
    }
    if (index_volume_get(call->tx, entry->volume, &volume, err) != 0)
        return -1;
    int len = snprintf(name, sizeof(name), "%s%s", volume.prefix, entry->path);
    if (len > 0 && (size_t)len < sizeof(name) && match_key(call, name, err) != 0)
        return -1;
    call->seen = 0;
    return call->key[0] != '\0' || entry->node == 0
               ? 0
               : index_change_since(call->tx, entry->volume, entry->made_ns, match_change, call,
                                    err);
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
        text_set(call->home, node.key);
        text_set(call->home_etag, node.etag);
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
    if (call->id[0] == '\0' && ulid_valid(entry->version) &&
        index_history_of_version(tx, entry->version, match_row, call, err) != 0)
        return -1;
    return call->id[0] != '\0' ? 0 : find_removed(call, err);
}

static int
find(struct volume_service *service, struct find_call *call, struct err *err)
{
    call->present = false;
    call->id[0] = call->key[0] = call->home[0] = '\0';
    return index_read(service->index, find_tx, call, err);
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
    if (find(service, call, err) != 0)
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

static bool
moves_on(enum err_code code)
{
    return code == ERR_AGAIN || code == ERR_NOT_FOUND || code == ERR_CONFLICT;
}

/* One that lay at a key, where it may be no more. */
static int
look_at_key(struct volume_service *service, const struct volume_ctx *ctx, struct find_call *call,
            struct volume_past_entry *out, struct err *err)
{
    struct object_attrs attrs = { 0 };
    if (find(service, call, err) != 0)
        return -1;
    if (call->id[0] != '\0')
        return look_at_copy(service, ctx, call->id, out, err);
    if (ask_attrs(service, ctx, call->key, call->etag, &attrs, err) != 0)
        return -1;
    set_attrs(out, &attrs);
    return 0;
}

int
volume_past_look(struct volume_service *service, const struct volume_ctx *ctx,
                 const struct volume_past_entry *entry, struct volume_past_entry *out,
                 struct err *err)
{
    struct err why = ERR_INIT;
    *out = *entry;
    if (volume_past_looked(entry))
        return 0;
    if (entry->copy[0] != '\0')
        return look_at_copy(service, ctx, entry->copy, out, err);
    scope_free struct find_call *call = calloc(1, sizeof(*call));
    if (call == NULL)
        return err_nomem(err);
    call->entry = entry;
    for (unsigned i = 0; i < TRIES; i++) {
        why = (struct err)ERR_INIT;
        if (look_at_key(service, ctx, call, out, &why) == 0)
            return 0;
        if (ctx->nowait || !moves_on(why.code))
            break;
    }
    *err = why;
    return -1;
}

/* ---- the object itself ---- */

static int
source_of_copy(struct volume_service *service, const char *id, struct past_source *out,
               struct err *err)
{
    struct index_history row;
    if (history_row(service, id, &row, out->key, err) != 0)
        return -1;
    text_set(out->etag, row.etag);
    out->size = row.size;
    return row.state == INDEX_HISTORY_KEPT
               ? 0
               : err_set(err, ERR_AGAIN, "it is on its way to the history");
}

int
past_source(struct volume_service *service, const struct volume_ctx *ctx,
            const struct volume_past_entry *entry, struct past_source *out, struct err *err)
{
    scope_free struct find_call *call = calloc(1, sizeof(*call));
    if (call == NULL)
        return err_nomem(err);
    call->entry = entry;
    if (entry->copy[0] != '\0')
        return source_of_copy(service, entry->copy, out, err);
    if (know_node(service, ctx, call, err) != 0 || find(service, call, err) != 0)
        return -1;
    if (!call->present && call->id[0] != '\0')
        return source_of_copy(service, call->id, out, err);
    text_set(out->key, call->present ? call->home : call->key);
    text_set(out->etag, call->present ? call->home_etag : call->etag);
    out->size = entry->size;
    return out->key[0] != '\0' && out->etag[0] != '\0'
               ? 0
               : err_set(err, call->present ? ERR_AGAIN : ERR_NOT_FOUND,
                         "this version of '%.100s' is not there%s", entry->path,
                         call->present ? " yet" : " any more");
}

/* ---- read ---- */

/* Once. ERR_AGAIN, ERR_NOT_FOUND, ERR_CONFLICT: it may have moved on meanwhile. */
static ssize_t
read_found(struct volume_service *service, const struct volume_ctx *ctx, struct find_call *call,
           const struct aside_part *part, struct err *err)
{
    const struct volume_past_entry *entry = call->entry;
    if (call->present && entry->kind == INDEX_SYMLINK)
        return read_target(service, ctx, entry->node, part, err);
    if (call->present)
        return read_present(service, ctx, call, part, err);
    if (call->id[0] != '\0')
        return volume_history_read(service, ctx, call->id, part->out, part->len, part->off, err);
    if (call->key[0] == '\0')
        return err_set(err, ERR_NOT_FOUND, "this version of '%s' is not kept any more",
                       entry->path);
    struct aside_object object = { .key = call->key, .etag = call->etag, .size = entry->size };
    return aside_read(service, ctx, &object, part, err);
}

ssize_t /* NOLINTNEXTLINE(readability-function-size): the contract has seven parameters */
volume_past_read(struct volume_service *service, const struct volume_ctx *ctx,
                 const struct volume_past_entry *entry, void *out, size_t len, uint64_t off,
                 struct err *err)
{
    scope_free struct find_call *call = calloc(1, sizeof(*call));
    struct aside_part part = { out, len, off };
    struct err why = ERR_INIT;
    if (call == NULL)
        return err_nomem(err);
    if (entry->copy[0] != '\0')
        return volume_history_read(service, ctx, entry->copy, out, len, off, err);
    call->entry = entry;
    if (know_node(service, ctx, call, err) != 0)
        return -1;
    for (unsigned i = 0; i < TRIES; i++) {
        why = (struct err)ERR_INIT;
        if (find(service, call, err) != 0)
            return -1;
        ssize_t got = read_found(service, ctx, call, &part, &why);
        if (got >= 0)
            return got;
        if (ctx->nowait || !moves_on(why.code))
            break;
    }
    *err = why;
    return -1;
}
