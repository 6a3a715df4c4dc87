#include "base/log.h"
#include "base/path.h"
#include "base/scope.h"
#include "volume/manifest_impl.h"
#include "volume/rebuild_impl.h"
#include "volume/snapshot_impl.h"

/* Snapshots from the heads of their manifests; how they were is read there when somebody asks (past_found.c). */

#define HEAD_BYTES (192u << 10) /* more than one block of zstd, the first of which has the head */
#define SUFFIX ".json.zst"

struct look {
    struct store *store;
    char key[LIMIT_KEY + 1];
    uint64_t size;
    struct index_snapshot row;
    struct manifest_reader *reader;
    bool done, left_out;
};

struct found {
    struct rebuild *rebuild;
    struct look *look; /* REBUILD_BATCH */
    size_t count;
};

static int
take_head(void *arg, const struct manifest_found *head, struct err *err)
{
    struct look *look = arg;
    (void)err;
    look->row.at_ns = head->at_ns;
    look->row.files = head->files;
    look->row.bytes = head->bytes;
    look->done = true;
    return 0;
}

static int
take(void *arg, const void *data, size_t len, struct err *err)
{
    struct look *look = arg;
    if (look->done)
        return 0;
    return manifest_feed(look->reader, data, len, err) < 0 ? -1 : 0;
}

static int
look_at(void *arg, struct err *err)
{
    struct look *look = arg;
    struct store_object object;
    struct manifest_readers fns = { .head = take_head, .arg = look };
    struct store_get get = { .key = look->key,
                             .len = look->size < HEAD_BYTES ? look->size : HEAD_BYTES,
                             .sink = take,
                             .sink_arg = look };
    struct err local = ERR_INIT;
    look->reader = manifest_reader_new(&fns, err);
    if (look->reader == NULL)
        return -1;
    store_object_init(&object);
    int rc = store_get(look->store, &get, &object, &local);
    if (rc == 0)
        text_set(look->row.etag, object.etag);
    store_object_release(&object);
    manifest_reader_free(look->reader);
    look->left_out = !look->done;
    if (rc == 0 || local.code == ERR_NOT_FOUND)
        return 0;
    if (local.code == ERR_CORRUPT || local.code == ERR_NEWER_FORMAT || local.code == ERR_INVAL ||
        local.code == ERR_RANGE) {
        log_warn(volume, "a snapshot is left out key=%s why=%s", look->key, local.msg);
        return 0;
    }
    *err = local;
    return -1;
}

static int
put_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct found *found = arg;
    for (size_t i = 0; i < found->count; i++)
        if (!found->look[i].left_out && index_snapshot_insert(tx, &found->look[i].row, err) != 0)
            return -1;
    return 0;
}

static int
flush_page(struct found *found, struct err *err)
{
    if (found->count == 0)
        return 0;
    if (rebuild_look_many(found->look, sizeof(*found->look), found->count, look_at, err) != 0 ||
        index_write(found->rebuild->index, INDEX_NORMAL, put_tx, found, err) != 0)
        return -1;
    for (size_t i = 0; i < found->count; i++)
        found->rebuild->out->snapshots += !found->look[i].left_out;
    found->count = 0;
    return 0;
}

/* For fsck: the index may have it. */
static int
known_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct look *look = arg;
    struct index_snapshot row;
    struct err missing = ERR_INIT;
    look->done = index_snapshot_find(tx, look->row.volume, look->row.name, &row, &missing) == 0;
    return look->done || missing.code == ERR_NOT_FOUND
               ? 0
               : err_set(err, missing.code, "%s", missing.msg);
}

static int
add_manifest(void *arg, const struct store_list_entry *entry, struct err *err)
{
    struct found *found = arg;
    const char *volume = entry->key + sizeof(SNAPSHOT_PREFIX) - 1;
    size_t len = strcspn(volume, "/");
    const char *name = volume + len + (volume[len] == '/');
    size_t name_len = strlen(name), suffix = sizeof(SUFFIX) - 1;
    struct err bad = ERR_INIT;
    if (name_len <= suffix || strcmp(name + name_len - suffix, SUFFIX) != 0 ||
        name_len - suffix > LIMIT_VOLUME_NAME)
        return 0;
    const struct index_volume *known = rebuild_volume(found->rebuild, volume, len);
    struct look *look = &found->look[found->count];
    memset(look, 0, sizeof(*look));
    (void)snprintf(look->row.name, sizeof(look->row.name), "%.*s", (int)(name_len - suffix), name);
    if (known == NULL || path_check_volume(look->row.name, &bad) != 0) {
        found->rebuild->out->volumeless++;
        return 0;
    }
    look->store = found->rebuild->store;
    look->size = entry->size;
    look->row.volume = known->id;
    look->row.state = INDEX_SNAPSHOT_FOUND;
    text_set(look->key, entry->key);
    if (index_read(found->rebuild->index, known_tx, look, err) != 0 || look->done)
        return look->done ? 0 : -1;
    return ++found->count < REBUILD_BATCH ? 0 : flush_page(found, err);
}

int
rebuild_snapshots(struct rebuild *rebuild, struct err *err)
{
    struct found found = { .rebuild = rebuild };
    scope_free struct look *look = calloc(REBUILD_BATCH, sizeof(*look));
    if (look == NULL)
        return err_nomem(err);
    found.look = look;
    struct store_list list = { .prefix = SNAPSHOT_PREFIX, .fn = add_manifest, .arg = &found };
    int rc = store_list(rebuild->store, &list, err);
    if (rc == 0)
        rc = flush_page(&found, err);
    return rc == 0 ? 0 : err_wrap(err, "cannot take in the snapshots");
}
