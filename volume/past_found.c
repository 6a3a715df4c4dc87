#include <sys/stat.h>

#include "base/scope.h"
#include "volume/history_impl.h"
#include "volume/manifest_impl.h"
#include "volume/past_impl.h"
#include "volume/snapshot_impl.h"

/*
 * A snapshot that a rebuild has found: how it was stands in its manifest, not in the index, which has lost the renames and who was
 * made from whom. Each version lies in the history, by the copy or the version that the manifest names, or is the present one, or was
 * moved since (past_moved.c).
 */

#define SLICE 512u
#define ROWS_MOST 1000u

struct found {
    struct volume_past *past;
    struct index_snapshot row;
    struct index_volume volume;
    struct manifest_reader *reader;
    size_t at; /* the next entry to be located */
    /* of the entry at hand */
    struct volume_past_entry *entry;
    char copy[ULID_SIZE];
};

/* ---- which snapshot ---- */

static int
match_time(void *arg, const struct index_snapshot *row, struct err *err)
{
    struct found *found = arg;
    (void)err;
    if (row->state == INDEX_SNAPSHOT_FOUND && row->at_ns == found->past->at_ns)
        found->row = *row;
    return 0;
}

static int
match_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct found *found = arg;
    if (index_volume_get(tx, found->past->volume, &found->volume, err) != 0)
        return -1;
    return index_snapshot_each(tx, found->volume.id, match_time, found, err);
}

/* ---- its entries ---- */

static int
add_line(void *arg, const struct manifest_line *line, struct err *err)
{
    struct found *found = arg;
    struct volume_past *past = found->past;
    struct volume_past_entry *entry = past_add(past, line->path, err);
    if (entry == NULL)
        return -1;
    entry->kind = line->kind;
    entry->size = line->size;
    entry->mode = line->mode;
    entry->uid = line->uid;
    entry->gid = line->gid;
    entry->mtime_ns = line->mtime_ns;
    entry->version = past_text(past, line->version, err);
    entry->sha256 = past_text(past, line->sha256, err);
    entry->copy = past_text(past, line->copy, err);
    int64_t made_ms = ulid_time_ms(line->version);
    entry->made_ns = made_ms > 0 ? made_ms * NS_PER_MS : past->at_ns;
    return entry->version != NULL && entry->sha256 != NULL && entry->copy != NULL ? 0 : -1;
}

static int
take(void *arg, const void *data, size_t len, struct err *err)
{
    struct found *found = arg;
    return manifest_feed(found->reader, data, len, err) < 0 ? -1 : 0;
}

static int
read_manifest(struct volume_service *service, struct found *found, struct err *err)
{
    struct manifest_readers fns = { .line = add_line, .arg = found };
    struct store_object object;
    char key[LIMIT_KEY + 1];
    (void)snprintf(key, sizeof(key), SNAPSHOT_PREFIX "%s/%s.json.zst", found->volume.name,
                   found->row.name);
    struct store_get get = {
        .key = key, .if_match = found->row.etag, .sink = take, .sink_arg = found
    };
    found->reader = manifest_reader_new(&fns, err);
    if (found->reader == NULL)
        return -1;
    store_object_init(&object);
    int rc = store_get(service->store, &get, &object, err);
    store_object_release(&object);
    manifest_reader_free(found->reader);
    return rc == 0 ? 0
                   : err_wrap(err, "cannot read the manifest of snapshot '%s'", found->row.name);
}

/* ---- where the bytes are ---- */

static int
match_copy(void *arg, const struct index_history *row, struct err *err)
{
    struct found *found = arg;
    const char *version = found->entry->version;
    bool same = row->version[0] != '\0' ? strcmp(row->version, version) == 0
                                        : strcmp(row->source_etag, version) == 0;
    (void)err;
    if (!history_is_kept(row) || row->volume != found->volume.id || !same)
        return 0;
    text_set(found->copy, row->id);
    return 1;
}

static int
find_copy(struct index_tx *tx, struct found *found, struct err *err)
{
    struct index_history row;
    struct err missing = ERR_INIT;
    const struct volume_past_entry *entry = found->entry;
    found->copy[0] = '\0';
    if (entry->copy[0] != '\0' && index_history_get(tx, entry->copy, &row, &missing) == 0) {
        text_set(found->copy, entry->copy);
        return 0;
    }
    if (missing.code != ERR_NOT_FOUND && entry->copy[0] != '\0') {
        *err = missing;
        return -1;
    }
    if (ulid_valid(entry->version))
        return index_history_of_version(tx, entry->version, match_copy, found, err);
    return index_history_at(tx, found->volume.id, entry->path, ROWS_MOST, match_copy, found, err);
}

static int
locate(struct index_tx *tx, struct found *found, struct err *err)
{
    struct volume_past_entry *entry = found->entry;
    struct index_node node;
    struct err missing = ERR_INIT;
    if (entry->kind != INDEX_DIR) {
        if (find_copy(tx, found, err) != 0)
            return -1;
        entry->copy = past_text(found->past, found->copy, err);
        if (entry->copy == NULL || entry->copy[0] != '\0')
            return entry->copy == NULL ? -1 : 0;
    }
    if (history_node_at(tx, &found->volume, entry->path, &node, &missing) != 0) {
        if (missing.code == ERR_NOT_FOUND)
            return 0;
        *err = missing;
        return -1;
    }
    if (entry->kind == INDEX_FILE && node.content == 0 && node.size != entry->size)
        return 0; /* another file by now */
    if ((node.kind == INDEX_DIR) == (entry->kind == INDEX_DIR))
        entry->node = node.id;
    return 0;
}

static int
locate_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct found *found = arg;
    size_t end = found->at + SLICE;
    for (; found->at < found->past->count && found->at < end; found->at++) {
        found->entry = &found->past->entry[found->at];
        if (locate(tx, found, err) != 0)
            return -1;
    }
    return 0;
}

int
past_found(struct volume_service *service, struct volume_past *past, bool *out, struct err *err)
{
    scope_free struct found *found = calloc(1, sizeof(*found));
    if (found == NULL)
        return err_nomem(err);
    found->past = past;
    if (index_read(service->index, match_tx, found, err) != 0)
        return -1;
    *out = found->row.id != 0;
    if (!*out)
        return 0;
    struct volume_past_entry *root = past_add(past, "", err);
    if (root == NULL)
        return -1;
    root->kind = INDEX_DIR;
    root->node = found->volume.root;
    root->mode = S_IFDIR | 0755;
    root->mtime_ns = past->at_ns;
    if (read_manifest(service, found, err) != 0)
        return -1;
    for (found->at = 1; found->at < past->count;)
        if (index_read(service->index, locate_tx, found, err) != 0)
            return -1;
    if (past_moved(service, past, found->volume.root, err) != 0)
        return -1;
    return past_order(past, err);
}
