#include <limits.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/path.h"
#include "base/scope.h"
#include "volume/service_impl.h"

/* Listings of folders merged into the index (docs/mechanisms.md section 8). */

struct seen_entry {
    char *key;
    uint64_t size;
    int64_t mtime_ns;
    bool is_prefix;
    char etag[LIMIT_ETAG];
};

struct listing {
    struct seen_entry *entry;
    size_t count, cap;
};

static void
listing_release(struct listing *listing)
{
    for (size_t i = 0; i < listing->count; i++)
        free(listing->entry[i].key);
    free(listing->entry);
}

static int
listing_add(void *arg, const struct store_list_entry *entry, struct err *err)
{
    struct listing *listing = arg;
    if (listing->count == listing->cap) {
        size_t cap = listing->cap == 0 ? 64 : listing->cap * 2;
        struct seen_entry *grown = reallocarray(listing->entry, cap, sizeof(*grown));
        if (grown == NULL)
            return err_nomem(err);
        listing->entry = grown;
        listing->cap = cap;
    }
    struct seen_entry *seen = &listing->entry[listing->count];
    memset(seen, 0, sizeof(*seen));
    seen->key = strdup(entry->key);
    if (seen->key == NULL)
        return err_nomem(err);
    seen->size = entry->size;
    seen->mtime_ns = entry->last_modified_ns;
    seen->is_prefix = entry->is_prefix;
    if (entry->etag != NULL)
        text_set(seen->etag, entry->etag);
    listing->count++;
    return 0;
}

struct dir_call {
    struct volume_service *service;
    int64_t dir;
    struct index_node node;
    struct index_volume volume;
    char prefix[LIMIT_KEY + 2];
    uint64_t sequence;
    uint64_t gone; /* gone_keys_now() when the listing began */
    struct listing listing;
    size_t from, to; /* the part merged in one transaction */
    struct drop_list drop;
    /* keys that were there and were not listed */
    struct listing missing;
    char after[LIMIT_KEY + 1];
    unsigned seen;
};

static int
dir_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct dir_call *call = arg;
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
is_ours_leaving(struct index_tx *tx, struct dir_call *call, const char *prefix, bool *out,
                struct err *err)
{
    *out = gone_keys_since(&call->service->gone, call->gone, prefix, true);
    return *out ? 0 : index_key_range(tx, prefix, "", 1, see_key, out, err);
}

/* A common prefix: a folder that exists because something lies below it. */
static int
merge_prefix(struct index_tx *tx, struct dir_call *call, const struct seen_entry *entry,
             struct err *err)
{
    const char *name = entry->key + strlen(call->prefix);
    size_t len = strlen(name);
    struct index_node node;
    struct err local = ERR_INIT;
    struct volume_ctx nobody = { .actor = "bucket" };
    struct volume_name at = { .parent = call->dir, .name = name, .len = len > 0 ? len - 1 : 0 };
    if (call->prefix[0] == '\0' && strcmp(entry->key, ".holdfast/") == 0)
        return 0;
    if (path_check_name(at.name, at.len, &local) != 0) {
        log_warn(volume, "keys below '%s' cannot be names on Linux: %s", entry->key, local.msg);
        return 0;
    }
    if (index_node_child(tx, call->dir, at.name, at.len, &node, &local) == 0) {
        if (node.kind != INDEX_DIR)
            log_warn(volume, "keys below '%s' have no place: '%s' is a file", entry->key,
                     node.name);
        return 0;
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
    if (node_make(tx, &nobody, &at, &(struct node_kind){ INDEX_DIR, S_IFDIR | 0755 }, &node, err) !=
        0)
        return -1;
    node.uid = call->node.uid;
    node.gid = call->node.gid;
    node.listed_ns = 0;
    node.mtime_ns = node.ctime_ns = call->node.mtime_ns;
    event_emit(call->service, VOLUME_EVENT_CREATED, &node, 0);
    return index_node_update(tx, &node, err);
}

static int
merge_object(struct index_tx *tx, struct dir_call *call, const struct seen_entry *entry,
             struct err *err)
{
    struct index_key row;
    struct err missing = ERR_INIT;
    if (index_key_get(tx, entry->key, &row, &missing) == 0) {
        if (strcmp(row.etag, entry->etag) == 0)
            return 0;
        if (row.sequence > call->sequence)
            return 0; /* changed here since the listing began */
    } else if (missing.code != ERR_NOT_FOUND) {
        *err = missing;
        return -1;
    } else if (gone_keys_since(&call->service->gone, call->gone, entry->key, false)) {
        return 0;
    }
    struct key_view *kv = malloc(sizeof(*kv));
    if (kv == NULL)
        return err_nomem(err);
    struct observed seen = { .present = true, .size = entry->size };
    text_set(seen.etag, entry->etag);
    struct object_attrs attrs = { .mtime_ns = entry->mtime_ns };
    struct sync_effect effect = { .bits = 0 };
    int rc = view_build(call->service, tx, call->node.volume, entry->key, kv, err);
    if (rc == 0 && (kv->view.want.present || kv->view.have.present) &&
        kv->view.attempt.op == SYNC_OP_NONE) {
        /* Something of ours is there or wanted: a HEAD tells more than a listing, the engine does it. */
        free(kv);
        return listing_add(&call->missing, &(struct store_list_entry){ .key = entry->key }, err);
    }
    if (rc == 0)
        sync_observe(&kv->view, &seen, &effect);
    if (rc == 0 && effect.bits != 0)
        rc = view_apply(&(struct view_change){ .service = call->service,
                                               .tx = tx,
                                               .key = entry->key,
                                               .kv = kv,
                                               .effect = &effect,
                                               .attrs = &attrs,
                                               .drop = &call->drop },
                        err);
    free(kv);
    return rc;
}

static int
merge_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct dir_call *call = arg;
    for (size_t i = call->from; i < call->to; i++) {
        const struct seen_entry *entry = &call->listing.entry[i];
        int rc = entry->is_prefix ? merge_prefix(tx, call, entry, err)
                                  : merge_object(tx, call, entry, err);
        if (rc != 0)
            return -1;
    }
    return 0;
}

static bool
was_listed(const struct listing *listing, const char *key)
{
    size_t low = 0, high = listing->count;
    while (low < high) {
        size_t mid = (low + high) / 2;
        int order = strcmp(listing->entry[mid].key, key);
        if (order == 0)
            return true;
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return false;
}

static int
find_missing(void *arg, const struct index_key *row, struct err *err)
{
    struct dir_call *call = arg;
    const char *rest = row->key + strlen(call->prefix);
    const char *slash = strchr(rest, '/');
    call->seen++;
    text_set(call->after, row->key);
    if (slash != NULL) {
        /* Below a sub-folder: jump behind all of it. */
        size_t len = (size_t)(slash - row->key) + 1;
        if (len + 1 < sizeof(call->after)) {
            memcpy(call->after, row->key, len);
            call->after[len] = '\xff';
            call->after[len + 1] = '\0';
        }
        return 0;
    }
    if (row->sequence > call->sequence || was_listed(&call->listing, row->key))
        return 0;
    return listing_add(&call->missing, &(struct store_list_entry){ .key = row->key }, err);
}

static int
missing_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct dir_call *call = arg;
    call->after[0] = '\0';
    do {
        call->seen = 0;
        if (index_key_range(tx, call->prefix, call->after, 64, find_missing, call, err) != 0)
            return -1;
    } while (call->seen > 0);
    return 0;
}

#define BARE_MAX 64u
struct bare_folders {
    struct index_tx *tx;
    struct dir_call *call;
    int64_t node[BARE_MAX];
    size_t count;
};

static int
is_bare(struct index_tx *tx, const struct index_node *dir, bool *out, struct err *err)
{
    bool children = true;
    *out = false;
    if (dir->kind != INDEX_DIR || (dir->flags & (INDEX_NODE_MARKER | INDEX_NODE_ORPHAN)) != 0)
        return 0;
    if (index_node_has_children(tx, dir->id, &children, err) != 0)
        return -1;
    *out = !children;
    return 0;
}

static int
find_bare(void *arg, const struct index_node *row, struct err *err)
{
    struct bare_folders *bare = arg;
    char key[LIMIT_KEY + LIMIT_NAME + 8];
    bool found;
    (void)snprintf(key, sizeof(key), "%s%s/", bare->call->prefix, row->name);
    if (bare->count == BARE_MAX || row->kind != INDEX_DIR || was_listed(&bare->call->listing, key))
        return 0;
    if (is_bare(bare->tx, row, &found, err) != 0)
        return -1;
    if (found)
        bare->node[bare->count++] = row->id;
    return 0;
}

static int
find_bare_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct bare_folders *bare = arg;
    bare->tx = tx;
    return index_node_children(tx, bare->call->dir, 0, UINT_MAX, find_bare, bare, err);
}

/* A folder of others is there as long as something lies below it. */
static int
end_bare_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct bare_folders *bare = arg;
    struct volume_service *service = bare->call->service;
    struct index_node node;
    for (size_t i = 0; i < bare->count; i++) {
        struct err missing = ERR_INIT;
        bool found;
        if (index_node_get(tx, bare->node[i], &node, &missing) != 0)
            continue;
        if (is_bare(tx, &node, &found, err) != 0)
            return -1;
        if (!found)
            continue;
        event_emit(service, VOLUME_EVENT_REMOVED, &node, 0);
        if (node_unname(service, tx, &node, false, &bare->call->drop, err) != 0)
            return -1;
    }
    return 0;
}

static int
end_bare_folders(struct dir_call *call, struct err *err)
{
    struct bare_folders bare = { .call = call };
    struct index *index = call->service->index;
    if (index_read(index, find_bare_tx, &bare, err) != 0)
        return -1;
    return bare.count == 0 ? 0 : index_write(index, INDEX_NORMAL, end_bare_tx, &bare, err);
}

static int
listed_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct dir_call *call = arg;
    struct index_node node;
    if (index_node_get(tx, call->dir, &node, err) != 0)
        return -1;
    node.listed_ns = clock_wall_ns();
    return index_node_update(tx, &node, err);
}

#define MERGE_BATCH 512u

static int
merge_all(struct dir_call *call, struct err *err)
{
    struct volume_service *service = call->service;
    int rc = 0;
    for (call->from = 0; rc == 0 && call->from < call->listing.count; call->from = call->to) {
        call->to = call->from + MERGE_BATCH < call->listing.count ? call->from + MERGE_BATCH
                                                                  : call->listing.count;
        rc = index_write(service->index, INDEX_NORMAL, merge_tx, call, err);
        if (rc == 0)
            drop_run(service, &call->drop);
    }
    if (rc == 0)
        rc = index_read(service->index, missing_tx, call, err);
    /* "Absent" is confirmed by a HEAD, each. */
    for (size_t i = 0; rc == 0 && i < call->missing.count; i++)
        rc = bucket_observe_key(service, call->node.volume, call->missing.entry[i].key, err);
    if (rc == 0)
        rc = end_bare_folders(call, err);
    if (rc == 0)
        rc = index_write(service->index, INDEX_NORMAL, listed_tx, call, err);
    if (rc == 0)
        drop_run(service, &call->drop);
    free(call->drop.number);
    return rc;
}

int
bucket_list_dir(struct volume_service *service, const struct volume_ctx *ctx, int64_t dir,
                struct err *err)
{
    struct dir_call call = { .service = service, .dir = dir };
    if (index_read(service->index, dir_tx, &call, err) != 0)
        return -1;
    struct store_list list = { .prefix = call.prefix,
                               .delimiter = '/',
                               .fn = listing_add,
                               .arg = &call.listing,
                               .deadline_ns = service_deadline(ctx) };
    int rc = store_list(service->store, &list, err);
    service_store_seen(service, rc == 0 ? NULL : err);
    if (rc != 0)
        (void)err_wrap(err, "cannot list '%s'", call.prefix);
    if (rc == 0)
        rc = merge_all(&call, err);
    listing_release(&call.listing);
    listing_release(&call.missing);
    return rc;
}

/* ---- refreshing in the background ---- */

#define REFRESH_MAX 256u

struct lister {
    pthread_mutex_t lock;
    int64_t dir[REFRESH_MAX]; /* queued or running */
    size_t count;
    struct pool *pool;
};

struct refresh_job {
    struct volume_service *service;
    int64_t dir;
};

static void
refresh_done(struct lister *lister, int64_t dir)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&lister->lock);
    for (size_t i = 0; i < lister->count; i++)
        if (lister->dir[i] == dir) {
            lister->dir[i] = lister->dir[--lister->count];
            return;
        }
}

static void
refresh_run(void *arg)
{
    struct refresh_job *job = arg;
    struct volume_ctx ctx = { .actor = "bucket" };
    struct err err = ERR_INIT;
    if (!atomic_load(&job->service->stopping) &&
        bucket_list_dir(job->service, &ctx, job->dir, &err) != 0 && err.code != ERR_NOT_FOUND)
        log_debug(volume, "cannot refresh folder %lld: %s", (long long)job->dir, err.msg);
    refresh_done(job->service->lister, job->dir);
    free(job);
}

void
bucket_refresh_dir(struct volume_service *service, int64_t dir)
{
    struct lister *lister = service->lister;
    struct refresh_job *job = NULL;
    struct err ignored = ERR_INIT;
    if (lister == NULL || lister->pool == NULL)
        return;
    pthread_mutex_lock(&lister->lock);
    bool known = lister->count == REFRESH_MAX;
    for (size_t i = 0; i < lister->count; i++)
        known |= lister->dir[i] == dir;
    if (!known && (job = calloc(1, sizeof(*job))) != NULL)
        lister->dir[lister->count++] = dir;
    pthread_mutex_unlock(&lister->lock);
    if (job == NULL)
        return;
    job->service = service;
    job->dir = dir;
    if (pool_submit(lister->pool, refresh_run, NULL, job, &ignored) != 0) {
        refresh_done(lister, dir);
        free(job);
    }
}

int
lister_open(struct volume_service *service, struct err *err)
{
    struct lister *lister = calloc(1, sizeof(*lister));
    if (lister == NULL)
        return err_nomem(err);
    pthread_mutex_init(&lister->lock, NULL);
    service->lister = lister;
    lister->pool = pool_new("hf-list", 2, REFRESH_MAX, err);
    return lister->pool == NULL ? -1 : 0;
}

void
lister_close(struct volume_service *service)
{
    struct lister *lister = service->lister;
    if (lister == NULL)
        return;
    if (lister->pool != NULL) {
        pool_drain(lister->pool);
        pool_free(lister->pool);
    }
    pthread_mutex_destroy(&lister->lock);
    free(lister);
    service->lister = NULL;
}
