#include <sys/stat.h>

#include "base/log.h"
#include "base/path.h"
#include "base/scope.h"
#include "volume/listing_call_impl.h"
#include "volume/listing_impl.h"

/*
 * Listings of folders merged into the index as they come, batch by batch (docs/mechanisms.md section 8): however many keys
 * a folder has, memory holds one batch, and no transaction is longer than one.
 */

#define MERGE_BATCH 256u
#define MISSING_BATCH 256u

static void
batch_clear(struct listing_call *call)
{
    for (size_t i = 0; i < call->count; i++)
        free(call->batch[i].key);
    call->count = 0;
}

void
listing_keys_clear(struct listing_key_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->key[i]);
    list->count = 0;
}

int
listing_keys_add(struct listing_key_list *list, const char *key, struct err *err)
{
    if (list->count == list->cap) {
        size_t cap = list->cap == 0 ? 64 : list->cap * 2;
        char **grown = reallocarray(list->key, cap, sizeof(*grown));
        if (grown == NULL)
            return err_nomem(err);
        list->key = grown;
        list->cap = cap;
    }
    list->key[list->count] = strdup(key);
    if (list->key[list->count] == NULL)
        return err_nomem(err);
    list->count++;
    return 0;
}

static int
ids_add(struct listing_id_list *list, int64_t id, struct err *err)
{
    if (list->count == list->cap) {
        size_t cap = list->cap == 0 ? 64 : list->cap * 2;
        int64_t *grown = reallocarray(list->id, cap, sizeof(*grown));
        if (grown == NULL)
            return err_nomem(err);
        list->id = grown;
        list->cap = cap;
    }
    list->id[list->count++] = id;
    return 0;
}

/* What has no place in the tree is counted, and one of them named: status and doctor tell (INV-12). */
static void
hide_key(struct listing_call *call, const char *key, const char *why)
{
    log_debug(volume, "a key cannot be shown: %s key=%s", why, key);
    if (call->hidden.count++ > 0)
        return;
    text_set(call->hidden.key, key);
    text_set(call->hidden.why, why);
}

static int
dir_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct listing_call *call = arg;
    char path[LIMIT_PATH + 1];
    if (index_node_get(tx, call->dir, &call->node, err) != 0 ||
        index_volume_get(tx, call->node.volume, &call->volume, err) != 0 ||
        index_node_path(tx, call->dir, path, sizeof(path), err) != 0)
        return -1;
    call->sequence = index_sequence(tx);
    call->gone = gone_keys_now(&call->service->gone);
    return key_of_path(&call->volume, path, true, call->prefix, err);
}

static int
see_key(void *arg, const struct index_key *row, struct err *err)
{
    (void)row;
    (void)err;
    *(bool *)arg = true;
    return 0;
}

/* Below a prefix without a folder lie keys of ours that are on their way out (a folder that was renamed): whether there is
 * anything else, a later listing tells. */
static int
is_ours_leaving(struct index_tx *tx, struct listing_call *call, const char *prefix, bool *out,
                struct err *err)
{
    *out = gone_keys_since(&call->service->gone, call->gone, prefix, true);
    return *out ? 0 : index_key_range(tx, prefix, "", 1, see_key, out, err);
}

static int
make_listed_folder(struct index_tx *tx, struct listing_call *call, const struct volume_name *at,
                   struct index_node *node, struct err *err)
{
    struct volume_ctx nobody = { .actor = "bucket" };
    static const struct node_kind folder = { .kind = INDEX_DIR,
                                             .mode = S_IFDIR | 0755,
                                             .found = true };
    if (node_make(tx, &nobody, at, &folder, node, err) != 0)
        return -1;
    node->uid = call->node.uid;
    node->gid = call->node.gid;
    node->listed_ns = 0;
    node->mtime_ns = node->ctime_ns = call->node.mtime_ns;
    /* Whether it has a marker with a mode and times of its own, a HEAD tells when somebody asks. */
    node->flags |= INDEX_NODE_META_UNKNOWN;
    event_emit(call->service, VOLUME_EVENT_CREATED, node, 0);
    return index_node_update(tx, node, err);
}

/* A common prefix: a folder that exists because something lies below it. */
static int
merge_prefix(struct index_tx *tx, struct listing_call *call, const struct listing_entry *entry,
             struct err *err)
{
    const char *name = entry->key + strlen(call->prefix);
    size_t len = strlen(name);
    struct index_node node;
    struct err local = ERR_INIT;
    struct volume_name at = { .parent = call->dir, .name = name, .len = len > 0 ? len - 1 : 0 };
    if (call->prefix[0] == '\0' && strcmp(entry->key, ".holdfast/") == 0)
        return 0;
    if (path_check_name(at.name, at.len, &local) != 0) {
        hide_key(call, entry->key, "no name on Linux");
        return 0;
    }
    if (index_node_child(tx, call->dir, at.name, at.len, &node, &local) == 0) {
        if (node.kind != INDEX_DIR)
            hide_key(call, entry->key, "a file has this name");
        return ids_add(&call->folders, node.id, err);
    }
    if (local.code != ERR_NOT_FOUND) {
        *err = local;
        return -1;
    }
    bool leaving;
    if (is_ours_leaving(tx, call, entry->key, &leaving, err) != 0)
        return -1;
    if (leaving)
        return 0;
    if (make_listed_folder(tx, call, &at, &node, err) != 0)
        return -1;
    return ids_add(&call->folders, node.id, err);
}

/* The same bytes under another time: a client has written the object's metadata anew (chmod by s3fs is a copy onto itself). */
int
listing_mark_changed(struct index_tx *tx, struct volume_service *service, int64_t id,
                     struct err *err)
{
    struct index_node node;
    struct index_content content;
    struct err missing = ERR_INIT;
    if (id <= 0)
        return 0;
    if (index_node_get(tx, id, &node, &missing) != 0) {
        if (missing.code == ERR_NOT_FOUND)
            return 0;
        *err = missing;
        return -1;
    }
    /* What is newer here goes out with its own; a further name of a file has its attributes. */
    if ((node.flags & (INDEX_NODE_ATTRS_DIRTY | INDEX_NODE_ORPHAN | INDEX_NODE_LINK)) != 0)
        return 0;
    if (node.content != 0 && (index_content_get(tx, node.content, &content, &missing) != 0 ||
                              content.state != CONTENT_CLEAN))
        return 0;
    node.flags |= INDEX_NODE_META_UNKNOWN;
    event_emit(service, VOLUME_EVENT_CHANGED, &node, 0);
    return index_node_update(tx, &node, err);
}

static int
note_time(struct index_tx *tx, struct listing_call *call, const struct listing_entry *entry,
          struct index_key *row, struct err *err)
{
    if (row->modified_ns == entry->mtime_ns || row->sequence > call->sequence)
        return 0;
    if (row->modified_ns != 0 && listing_mark_changed(tx, call->service, row->owner, err) != 0)
        return -1;
    row->modified_ns = entry->mtime_ns;
    return index_key_put(tx, row, err);
}

static int
note_new_time(struct index_tx *tx, const struct listing_entry *entry, struct err *err)
{
    struct index_key row;
    struct err missing = ERR_INIT;
    if (index_key_get(tx, entry->key, &row, &missing) != 0) {
        if (missing.code == ERR_NOT_FOUND)
            return 0;
        *err = missing;
        return -1;
    }
    row.modified_ns = entry->mtime_ns;
    return index_key_put(tx, &row, err);
}

/* An object that has no row yet, or another ETag than its row. */
static int
merge_new_object(struct index_tx *tx, struct listing_call *call, const struct listing_entry *entry,
                 struct err *err)
{
    scope_free struct key_view *kv = malloc(sizeof(*kv));
    struct observed seen = { .present = true, .size = entry->size };
    struct object_attrs attrs = { .mtime_ns = entry->mtime_ns };
    struct sync_effect effect = { .bits = 0 };
    if (kv == NULL)
        return err_nomem(err);
    text_set(seen.etag, entry->etag);
    if (view_build(call->service, tx, call->node.volume, entry->key, kv, err) != 0)
        return -1;
    /* Something of ours is there or wanted: a HEAD tells more than a listing, the engine does it. */
    if ((kv->view.want.present || kv->view.have.present) && kv->view.attempt.op == SYNC_OP_NONE)
        return listing_keys_add(&call->missing, entry->key, err);
    sync_observe(&kv->view, &seen, &effect);
    if (effect.bits == 0)
        return 0;
    if (view_apply(&(struct view_change){ .service = call->service,
                                          .tx = tx,
                                          .key = entry->key,
                                          .kv = kv,
                                          .effect = &effect,
                                          .attrs = &attrs,
                                          .drop = &call->drop },
                   err) != 0)
        return -1;
    return note_new_time(tx, entry, err);
}

static int
merge_object(struct index_tx *tx, struct listing_call *call, const struct listing_entry *entry,
             struct err *err)
{
    const char *name = entry->key + strlen(call->prefix);
    struct index_key row;
    struct err missing = ERR_INIT;
    if (name[0] != '\0' && path_check_name(name, strlen(name), &missing) != 0) {
        hide_key(call, entry->key, "no name on Linux");
        return 0;
    }
    missing = (struct err)ERR_INIT;
    if (index_key_get(tx, entry->key, &row, &missing) == 0) {
        if (strcmp(row.etag, entry->etag) == 0) {
            if (row.owner == 0 && !row.discard)
                hide_key(call, entry->key, "a folder has this name");
            return note_time(tx, call, entry, &row, err);
        }
        if (row.sequence > call->sequence)
            return 0; /* changed here since the listing began */
    } else if (missing.code != ERR_NOT_FOUND) {
        *err = missing;
        return -1;
    } else if (gone_keys_since(&call->service->gone, call->gone, entry->key, false)) {
        return 0;
    }
    return merge_new_object(tx, call, entry, err);
}

static int
merge_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct listing_call *call = arg;
    for (size_t i = 0; i < call->count; i++) {
        const struct listing_entry *entry = &call->batch[i];
        int rc = entry->is_prefix ? merge_prefix(tx, call, entry, err)
                                  : merge_object(tx, call, entry, err);
        if (rc != 0)
            return -1;
    }
    return 0;
}

static int
merge_batch(struct listing_call *call, struct err *err)
{
    struct volume_service *service = call->service;
    if (call->count > 0) {
        if (index_write(service->index, INDEX_NORMAL, merge_tx, call, err) != 0)
            return -1;
        drop_run(service, &call->drop);
        call->drop = (struct drop_list){ 0 };
    }
    if (listing_absent_find(call, err) != 0)
        return -1;
    batch_clear(call);
    if (call->missing.count >= MISSING_BATCH || (call->complete && call->missing.count > 0))
        return listing_absent_ask(call, err);
    return 0;
}

static int
listing_add(void *arg, const struct store_list_entry *entry, struct err *err)
{
    struct listing_call *call = arg;
    struct listing_entry *seen = &call->batch[call->count];
    if (atomic_load(&call->service->stopping))
        return err_set(err, ERR_STORE_AWAY, "the gateway is stopping");
    memset(seen, 0, sizeof(*seen));
    seen->key = strdup(entry->key);
    if (seen->key == NULL)
        return err_nomem(err);
    seen->size = entry->size;
    seen->mtime_ns = entry->last_modified_ns;
    seen->is_prefix = entry->is_prefix;
    if (entry->etag != NULL)
        text_set(seen->etag, entry->etag);
    if (++call->count < MERGE_BATCH)
        return 0;
    if (merge_batch(call, err) != 0)
        return -1;
    lister_progress(call->service, call->dir);
    return 0;
}

static int
listed_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct listing_call *call = arg;
    struct index_node node;
    if (index_node_get(tx, call->dir, &node, err) != 0)
        return -1;
    node.listed_ns = clock_wall_ns();
    return index_node_update(tx, &node, err);
}

static int
finish(struct listing_call *call, struct err *err)
{
    struct volume_service *service = call->service;
    call->complete = true;
    if (merge_batch(call, err) != 0 || listing_absent_folders(call, err) != 0 ||
        index_write(service->index, INDEX_NORMAL, listed_tx, call, err) != 0)
        return -1;
    drop_run(service, &call->drop);
    call->drop = (struct drop_list){ 0 };
    lister_hidden(service, call->dir, &call->hidden);
    return 0;
}

int
listing_run(struct volume_service *service, int64_t dir, struct err *err)
{
    scope_free struct listing_call *call = calloc(1, sizeof(*call));
    scope_free struct listing_entry *batch = calloc(MERGE_BATCH, sizeof(*batch));
    if (call == NULL || batch == NULL)
        return err_nomem(err);
    *call = (struct listing_call){ .service = service, .dir = dir, .batch = batch };
    if (index_read(service->index, dir_tx, call, err) != 0)
        return -1;
    /* No deadline for the whole: each page has one of its own, and who waits counts from the last progress. */
    struct store_list list = {
        .prefix = call->prefix, .delimiter = '/', .fn = listing_add, .arg = call
    };
    int rc = store_list(service->store, &list, err);
    service_store_seen(service, rc == 0 ? NULL : err);
    if (rc != 0)
        (void)err_wrap(err, "cannot list '%s'", call->prefix);
    if (rc == 0)
        rc = finish(call, err);
    batch_clear(call);
    listing_keys_clear(&call->missing);
    free(call->missing.key);
    free(call->folders.id);
    free(call->drop.number);
    return rc;
}
