#include <limits.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/path.h"
#include "base/scope.h"
#include "volume/extra_impl.h"
#include "volume/listing_impl.h"

/* What others put into the bucket: listings and HEADs merged into the index (docs/mechanisms.md section 8). */

#define SYMLINK_MODE(mode) (((mode)&S_IFMT) == S_IFLNK)

/* ---- one object ---- */

struct observe_call {
    struct volume_service *service;
    int64_t volume;
    const char *key;
    struct observed seen;
    struct object_attrs attrs;
    bool has_attrs;
    uint64_t sequence, gone; /* before the question: what changed since is newer than the answer */
    struct drop_list drop;
};

static int
before_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct observe_call *call = arg;
    (void)err;
    call->sequence = index_sequence(tx);
    call->gone = gone_keys_now(&call->service->gone);
    return 0;
}

/* Answered before the key was written or deleted by ourselves? */
static int
is_outdated(struct index_tx *tx, const struct observe_call *call, bool *out, struct err *err)
{
    struct index_key row;
    struct err missing = ERR_INIT;
    if (index_key_get(tx, call->key, &row, &missing) == 0) {
        *out = row.sequence > call->sequence;
        return 0;
    }
    if (missing.code != ERR_NOT_FOUND) {
        *err = missing;
        return -1;
    }
    *out = gone_keys_since(&call->service->gone, call->gone, call->key, false);
    return 0;
}

static int
observe_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct observe_call *call = arg;
    struct sync_effect effect;
    bool outdated;
    if (is_outdated(tx, call, &outdated, err) != 0)
        return -1;
    if (outdated)
        return 0;
    struct key_view *kv = malloc(sizeof(*kv));
    if (kv == NULL)
        return err_nomem(err);
    int rc = view_build(call->service, tx, call->volume, call->key, kv, err);
    if (rc == 0) {
        sync_observe(&kv->view, &call->seen, &effect);
        if (effect.bits != 0)
            rc = view_apply(&(struct view_change){ .service = call->service,
                                                   .tx = tx,
                                                   .key = call->key,
                                                   .kv = kv,
                                                   .effect = &effect,
                                                   .attrs = call->has_attrs ? &call->attrs : NULL,
                                                   .drop = &call->drop },
                            err);
        /* Where the tree is dirty the engine makes the conflict. */
        if (rc == 0 && (effect.bits & SYNC_SET_HAVE) != 0 && kv->view.want.dirty)
            rc = key_want_sync(tx, call->volume, call->key, 0, err);
    }
    free(kv);
    return rc;
}

static int
observe_commit(struct observe_call *call, struct err *err)
{
    int rc = index_write(call->service->index, INDEX_NORMAL, observe_tx, call, err);
    if (rc == 0)
        drop_run(call->service, &call->drop);
    free(call->drop.number);
    call->drop = (struct drop_list){ 0 };
    return rc;
}

int
bucket_observe_key(struct volume_service *service, int64_t volume, const char *key, struct err *err)
{
    struct observe_call call = { .service = service, .volume = volume, .key = key };
    struct store_object object;
    struct err local = ERR_INIT;
    if (index_read(service->index, before_tx, &call, err) != 0)
        return -1;
    store_object_init(&object);
    int rc = store_head(service->store, key, 0, &object, &local);
    bool absent = rc != 0 && local.code == ERR_NOT_FOUND;
    service_store_seen(service, rc == 0 || absent ? NULL : &local);
    if (rc == 0) {
        object_read(&object, &call.seen, &call.attrs);
        call.has_attrs = true;
    }
    store_object_release(&object);
    if (rc != 0 && !absent) {
        *err = local;
        return -1;
    }
    rc = observe_commit(&call, err);
    sync_kick(service);
    return rc;
}

/* ---- completing a node that only a listing showed ---- */

struct complete_call {
    struct volume_service *service;
    int64_t node;
    struct index_node row;
    char key[LIMIT_KEY + 1]; /* where to look: the row's, or where a folder's marker would be */
    struct observed seen;
    struct object_attrs attrs;
    char extra[LIMIT_EXTRA + 1];
    char target[LIMIT_SYMLINK + 1];
    bool symlink;
    bool stale;
};

static int
node_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct complete_call *call = arg;
    if (index_node_get(tx, call->node, &call->row, err) != 0)
        return -1;
    text_set(call->key, call->row.key);
    if (call->key[0] != '\0' || call->row.kind != INDEX_DIR)
        return 0;
    return key_of_node(tx, &call->row, call->key, err);
}

static void
complete_attrs(struct index_node *row, const struct object_attrs *attrs)
{
    if (attrs->has_owner) {
        row->uid = attrs->uid;
        row->gid = attrs->gid;
    }
    row->mtime_ns = attrs->mtime_ns;
    row->ctime_ns = attrs->mtime_ns;
    row->atime_ns = 0;
    uint32_t type = row->kind == INDEX_DIR ? S_IFDIR : S_IFREG;
    if (attrs->has_mode)
        row->mode = type | (attrs->mode & 07777);
}

/* Made by another gateway, or by this one before its index was lost: who made it is known as of any version. */
static int
note_version(struct index_tx *tx, const struct index_node *node, const struct bucket_told *told,
             struct err *err)
{
    const struct observed *seen = told->seen;
    struct index_version row;
    struct err missing = ERR_INIT;
    if (!ulid_valid(seen->version) || index_version_find(tx, seen->version, &row, &missing) == 0)
        return 0;
    if (missing.code != ERR_NOT_FOUND)
        return err_set(err, missing.code, "%s", missing.msg);
    row = (struct index_version){ .volume = node->volume, .node = node->id, .size = seen->size };
    text_set(row.version, seen->version);
    text_set(row.base_version, seen->base);
    text_set(row.etag, seen->etag);
    text_set(row.sha256, seen->sha256);
    text_set(row.actor, told->attrs->actor);
    text_set(row.run, told->attrs->run);
    (void)snprintf(row.op, sizeof(row.op), "put");
    row.time_ns = ulid_time_ms(seen->version) * NS_PER_MS;
    if (index_node_path(tx, node->id, row.path, sizeof(row.path), err) != 0)
        return -1;
    return index_version_insert(tx, &row, err);
}

int
bucket_complete_row(struct index_tx *tx, struct index_node *row, const struct bucket_told *told,
                    struct err *err)
{
    const struct observed *seen = told->seen;
    struct index_key key;
    row->flags &= ~(unsigned)INDEX_NODE_META_UNKNOWN;
    complete_attrs(row, told->attrs);
    if (extra_save(tx, row->id, told->extra, err) != 0)
        return -1;
    if (row->version[0] != '\0' || !identity_believed(seen, NULL))
        return 0;
    text_set(row->version, seen->version);
    if (index_key_get(tx, row->key, &key, err) != 0)
        return -1;
    text_set(key.version, seen->version);
    if (index_key_put(tx, &key, err) != 0)
        return -1;
    return note_version(tx, row, told, err);
}

static int
complete_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct complete_call *call = arg;
    struct index_node row;
    if (index_node_get(tx, call->node, &row, err) != 0)
        return -1;
    call->stale = strcmp(row.etag, call->seen.etag) != 0 || strcmp(row.key, call->row.key) != 0;
    if (call->stale || (row.flags & INDEX_NODE_META_UNKNOWN) == 0)
        return 0;
    struct bucket_told told = { &call->seen, &call->attrs, call->extra };
    if (bucket_complete_row(tx, &row, &told, err) != 0)
        return -1;
    if (row.kind == INDEX_FILE && call->attrs.has_mode && special_mode(call->attrs.mode) &&
        call->seen.size == 0)
        special_set(&row, call->attrs.mode, call->attrs.rdev);
    if (call->symlink) {
        row.kind = INDEX_SYMLINK;
        row.mode = S_IFLNK | 0777;
        text_set(row.target, call->target);
    }
    return index_node_update(tx, &row, err);
}

static int
read_target(struct volume_service *service, struct complete_call *call, struct err *err)
{
    scope_free char *data = NULL;
    size_t len;
    struct store_object object;
    store_object_init(&object);
    int rc =
        store_get_small(service->store, call->row.key, LIMIT_SYMLINK, &data, &len, &object, err);
    bool same = rc == 0 && strcmp(object.etag, call->seen.etag) == 0;
    store_object_release(&object);
    if (rc != 0)
        return -1;
    if (!same) {
        text_set(call->seen.etag, ""); /* another one than the HEAD saw: looked at anew */
        return 0;
    }
    if (len == 0 || memchr(data, '\0', len) != NULL)
        return 0; /* not a link after all: shown as the plain file it is */
    text_set(call->target, data);
    call->symlink = true;
    return 0;
}

/* A folder without a marker: nothing more is to be known. */
static int
no_marker_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct complete_call *call = arg;
    struct index_node row;
    if (index_node_get(tx, call->node, &row, err) != 0)
        return -1;
    if (row.key[0] != '\0')
        return 0;
    row.flags &= ~(unsigned)INDEX_NODE_META_UNKNOWN;
    return index_node_update(tx, &row, err);
}

/* The object is not there. */
static int
complete_absent(struct volume_service *service, struct complete_call *call, struct err *err)
{
    struct err local = ERR_INIT;
    if (call->row.key[0] == '\0' && call->row.kind == INDEX_DIR)
        return index_write(service->index, INDEX_NORMAL, no_marker_tx, call, err);
    if (bucket_observe_key(service, call->row.volume, call->row.key, &local) != 0)
        *err = local;
    else
        (void)err_set(err, ERR_NOT_FOUND, "the object was removed");
    return -1;
}

/* A folder that a listing showed has a marker: it becomes the folder's own first. */
static int
adopt_marker(struct volume_service *service, struct complete_call *call, struct err *err)
{
    if (call->row.key[0] != '\0')
        return 0;
    if (bucket_observe_key(service, call->row.volume, call->key, err) != 0)
        return -1;
    return index_read(service->index, node_tx, call, err);
}

int
bucket_complete_node(struct volume_service *service, const struct volume_ctx *ctx, int64_t node,
                     struct err *err)
{
    struct complete_call call = { .service = service, .node = node };
    struct store_object object;
    struct err local = ERR_INIT;
    if (index_read(service->index, node_tx, &call, err) != 0)
        return -1;
    if ((call.row.flags & INDEX_NODE_META_UNKNOWN) == 0 || call.key[0] == '\0')
        return 0;
    store_object_init(&object);
    int rc = store_head(service->store, call.key, service_deadline(ctx), &object, &local);
    if (rc == 0) {
        object_read(&object, &call.seen, &call.attrs);
        extra_collect(&object, &call.row, call.extra);
    }
    store_object_release(&object);
    service_store_seen(service, rc == 0 || local.code == ERR_NOT_FOUND ? NULL : &local);
    if (rc != 0 && local.code == ERR_NOT_FOUND)
        return complete_absent(service, &call, err);
    if (rc != 0) {
        *err = local;
        return -1;
    }
    if (adopt_marker(service, &call, err) != 0)
        return -1;
    if (call.row.kind == INDEX_FILE && call.attrs.has_mode && SYMLINK_MODE(call.attrs.mode) &&
        call.seen.size <= LIMIT_SYMLINK && read_target(service, &call, err) != 0)
        return -1;
    if (index_write(service->index, INDEX_NORMAL, complete_tx, &call, err) != 0)
        return -1;
    return call.stale ? bucket_observe_key(service, call.row.volume, call.row.key, err) : 0;
}
