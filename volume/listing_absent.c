#include "volume/listing_call_impl.h"
#include "volume/listing_impl.h"

/* What a listing did not show though it was there before: keys, which are asked for, and folders that nothing keeps. */

static bool
in_batch(const struct listing_call *call, const char *key)
{
    size_t low = 0, high = call->count;
    while (low < high) {
        size_t mid = (low + high) / 2;
        int order = strcmp(call->batch[mid].key, key);
        if (order == 0)
            return true;
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return false;
}

/* Below a sub-folder: on behind all of it. Never back, so that keys with bytes above any text end too. */
static void
skip_subfolder(struct listing_call *call, const char *key, size_t len)
{
    char behind[LIMIT_KEY + 1];
    if (len + 1 >= sizeof(behind))
        return;
    memcpy(behind, key, len);
    behind[len] = '\xff';
    behind[len + 1] = '\0';
    if (strcmp(behind, call->after) > 0)
        text_set(call->after, behind);
}

/* 1: behind what this batch can tell. */
static int
find_missing(void *arg, const struct index_key *row, struct err *err)
{
    struct listing_call *call = arg;
    const char *slash = strchr(row->key + strlen(call->prefix), '/');
    if (!call->complete && strcmp(row->key, call->batch[call->count - 1].key) > 0)
        return 1;
    call->seen++;
    text_set(call->after, row->key);
    if (slash != NULL) {
        skip_subfolder(call, row->key, (size_t)(slash - row->key) + 1);
        return 1;
    }
    if (row->sequence > call->sequence || in_batch(call, row->key))
        return 0;
    return listing_keys_add(&call->missing, row->key, err);
}

static int
missing_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct listing_call *call = arg;
    call->seen = 0;
    return index_key_range(tx, call->prefix, call->after, 256, find_missing, call, err);
}

/* Read in short transactions. */
int
listing_absent_find(struct listing_call *call, struct err *err)
{
    text_set(call->after, call->from);
    do {
        if (index_read(call->service->index, missing_tx, call, err) != 0)
            return -1;
    } while (call->seen > 0);
    if (call->count > 0)
        text_set(call->from, call->batch[call->count - 1].key);
    return 0;
}

int
listing_absent_ask(struct listing_call *call, struct err *err)
{
    int rc = heads_observe(call->service, call->node.volume, (const char *const *)call->missing.key,
                           call->missing.count, err);
    listing_keys_clear(&call->missing);
    return rc;
}

/* ---- folders ---- */

static int
compare_ids(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

#define BARE_MAX 64u
#define BARE_STEP 512u
#define MISSING_FOLDERS 1024u
struct bare_folders {
    struct index_tx *tx;
    struct listing_call *call;
    int64_t node[BARE_MAX];
    size_t count;
    int64_t after; /* children up to here were looked at */
    unsigned seen;
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
    const struct listing_id_list *shown = &bare->call->folders;
    bool found;
    bare->after = row->id;
    bare->seen++;
    if (bare->count == BARE_MAX || row->kind != INDEX_DIR ||
        (shown->count > 0 &&
         bsearch(&row->id, shown->id, shown->count, sizeof(*shown->id), compare_ids) != NULL))
        return 0;
    /* Its marker alone would show it. */
    if ((row->flags & INDEX_NODE_MARKER) != 0 && row->key[0] != '\0' &&
        bare->call->missing.count < MISSING_FOLDERS)
        return listing_keys_add(&bare->call->missing, row->key, err);
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
    bare->seen = 0;
    return index_node_children(tx, bare->call->dir, bare->after, BARE_STEP, find_bare, bare, err);
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

int
listing_absent_folders(struct listing_call *call, struct err *err)
{
    struct bare_folders bare = { .call = call };
    struct index *index = call->service->index;
    if (call->folders.count > 0)
        qsort(call->folders.id, call->folders.count, sizeof(*call->folders.id), compare_ids);
    do {
        if (index_read(index, find_bare_tx, &bare, err) != 0)
            return -1;
    } while (bare.seen == BARE_STEP && bare.count < BARE_MAX);
    if (call->missing.count > 0 && listing_absent_ask(call, err) != 0)
        return -1;
    return bare.count == 0 ? 0 : index_write(index, INDEX_NORMAL, end_bare_tx, &bare, err);
}
