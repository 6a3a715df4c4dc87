#include "base/scope.h"
#include "base/ticker.h"
#include "volume/fsck_impl.h"
#include "volume/rebuild_impl.h"
#include "volume/snapshot_impl.h"

/* Manifests of snapshots in the bucket against their rows. */

#define SUFFIX ".json.zst"

struct listed {
    int64_t volume;
    char name[LIMIT_VOLUME_NAME + 1];
};

struct snapshots {
    struct fsck *fsck;
    struct listed *listed;
    size_t count, cap;
    struct index_snapshot *row; /* published, and not listed */
    size_t row_count, row_cap;
    /* of the manifest at hand */
    struct listed at;
    bool known;
};

static int
known_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct snapshots *all = arg;
    struct index_snapshot row;
    struct err missing = ERR_INIT;
    all->known = index_snapshot_find(tx, all->at.volume, all->at.name, &row, &missing) == 0;
    return all->known || missing.code == ERR_NOT_FOUND
               ? 0
               : err_set(err, missing.code, "%s", missing.msg);
}

static int
mend_unknown(struct fsck *fsck, void *arg, struct err *err)
{
    struct snapshots *all = arg;
    struct volume_rebuild_args args = { .store = fsck->service->store };
    struct volume_rebuild_report report = { 0 };
    struct rebuild rebuild = { .args = &args,
                               .out = &report,
                               .store = fsck->service->store,
                               .index = fsck->service->index,
                               .volume = fsck->volume,
                               .volume_count = fsck->volume_count };
    if (rebuild_snapshots(&rebuild, err) != 0 ||
        index_read(fsck->service->index, known_tx, all, err) != 0)
        return -1;
    return all->known ? 0 : err_set(err, ERR_CORRUPT, "its manifest cannot be read");
}

static const struct fsck_fault unknown = { "snapshot-unknown",
                                           "the bucket holds the manifest of a snapshot that this "
                                           "index does not have: another gateway took it",
                                           "it is taken in", mend_unknown };

static int
add_listed(struct snapshots *all, struct err *err)
{
    if (all->count == all->cap) {
        size_t cap = all->cap == 0 ? 64 : all->cap * 2;
        struct listed *grown = reallocarray(all->listed, cap, sizeof(*grown));
        if (grown == NULL)
            return err_nomem(err);
        all->listed = grown;
        all->cap = cap;
    }
    all->listed[all->count++] = all->at;
    return 0;
}

static int
meet(void *arg, const struct store_list_entry *entry, struct err *err)
{
    struct snapshots *all = arg;
    struct fsck *fsck = all->fsck;
    const char *volume = entry->key + sizeof(SNAPSHOT_PREFIX) - 1;
    size_t len = strcspn(volume, "/");
    const char *name = volume + len + (volume[len] == '/');
    size_t name_len = strlen(name), suffix = sizeof(SUFFIX) - 1;
    const struct index_volume *known = fsck_volume(fsck, volume, len);
    if (known == NULL || name_len <= suffix || name_len - suffix > LIMIT_VOLUME_NAME ||
        strcmp(name + name_len - suffix, SUFFIX) != 0 ||
        (fsck->args->volume != 0 && fsck->args->volume != known->id))
        return 0;
    all->at.volume = known->id;
    (void)snprintf(all->at.name, sizeof(all->at.name), "%.*s", (int)(name_len - suffix), name);
    if (add_listed(all, err) != 0 || index_read(fsck->service->index, known_tx, all, err) != 0)
        return -1;
    return all->known ? 0 : fsck_tell(fsck, &unknown, known->name, entry->key, all, err);
}

/* ---- rows without a manifest ---- */

static int
again_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct index_snapshot *row = arg;
    row->state = INDEX_SNAPSHOT_TAKEN;
    row->etag[0] = '\0';
    return index_snapshot_update(tx, row, err);
}

static int
mend_missing(struct fsck *fsck, void *arg, struct err *err)
{
    struct index_snapshot *row = arg;
    if (row->state == INDEX_SNAPSHOT_FOUND)
        return err_set(err, ERR_NOT_FOUND,
                       "a rebuild had found it, so only its manifest knew how it was");
    if (index_write(fsck->service->index, INDEX_FULL, again_tx, row, err) != 0)
        return -1;
    if (fsck->service->publisher != NULL)
        ticker_kick(fsck->service->publisher);
    return 0;
}

static const struct fsck_fault missing = {
    "snapshot-missing",
    "the manifest of a snapshot is not in the bucket: with the index the snapshot would be lost",
    "it is written again, from the index", mend_missing
};

static int
add_row(void *arg, const struct index_snapshot *row, struct err *err)
{
    struct snapshots *all = arg;
    if (row->state == INDEX_SNAPSHOT_TAKEN)
        return 0;
    for (size_t i = 0; i < all->count; i++)
        if (all->listed[i].volume == row->volume && strcmp(all->listed[i].name, row->name) == 0)
            return 0;
    if (all->row_count == all->row_cap) {
        size_t cap = all->row_cap == 0 ? 16 : all->row_cap * 2;
        struct index_snapshot *grown = reallocarray(all->row, cap, sizeof(*grown));
        if (grown == NULL)
            return err_nomem(err);
        all->row = grown;
        all->row_cap = cap;
    }
    all->row[all->row_count++] = *row;
    return 0;
}

static int
rows_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct snapshots *all = arg;
    return index_snapshot_each(tx, all->fsck->args->volume, add_row, all, err);
}

/* Published, or deleted, while the bucket was listed? */
static int
look_again(struct snapshots *all, struct index_snapshot *row, struct err *err)
{
    struct fsck *fsck = all->fsck;
    struct store_object object;
    struct err local = ERR_INIT;
    char key[LIMIT_KEY + 1];
    const struct index_volume *volume = NULL;
    for (size_t i = 0; i < fsck->volume_count; i++)
        if (fsck->volume[i].id == row->volume)
            volume = &fsck->volume[i];
    if (volume == NULL)
        return 0;
    (void)snprintf(key, sizeof(key), SNAPSHOT_PREFIX "%s/%s" SUFFIX, volume->name, row->name);
    store_object_init(&object);
    int rc = store_head(fsck->service->store, key, 0, &object, &local);
    store_object_release(&object);
    if (rc == 0)
        return 0;
    if (local.code != ERR_NOT_FOUND)
        return err_set(err, local.code, "%s", local.msg);
    all->at.volume = row->volume;
    text_set(all->at.name, row->name);
    if (index_read(fsck->service->index, known_tx, all, err) != 0)
        return -1;
    return all->known ? fsck_tell(fsck, &missing, volume->name, key, row, err) : 0;
}

int
fsck_snapshots(struct fsck *fsck, struct err *err)
{
    struct snapshots all = { .fsck = fsck };
    struct store_list list = { .prefix = SNAPSHOT_PREFIX, .fn = meet, .arg = &all };
    int rc = store_list(fsck->service->store, &list, err);
    if (rc == 0)
        rc = index_read(fsck->service->index, rows_tx, &all, err);
    for (size_t i = 0; rc == 0 && i < all.row_count; i++)
        rc = look_again(&all, &all.row[i], err);
    free(all.listed);
    free(all.row);
    return rc == 0 ? 0 : err_wrap(err, "cannot check the snapshots");
}
