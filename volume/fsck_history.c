#include "base/scope.h"
#include "volume/fsck_impl.h"
#include "volume/preserve_impl.h"
#include "volume/rebuild_impl.h"

/*
 * Copies of older versions in the bucket against their rows. Another gateway of the bucket makes copies that this index does not
 * have, so these are told as one finding for each volume.
 */

struct ids {
    char (*id)[ULID_SIZE];
    size_t count, cap;
};

struct history {
    struct fsck *fsck;
    struct ids listed;
    const struct index_volume *volume; /* of the unknown ones */
    uint64_t *unknown;                 /* by volume */
    char (*first)[LIMIT_KEY + 1];
    /* of the copy at hand */
    const char *id, *key;
    bool known;
};

static int
add_id(struct ids *ids, const char *id, struct err *err)
{
    if (ids->count == ids->cap) {
        size_t cap = ids->cap == 0 ? 1024 : ids->cap * 2;
        void *grown = reallocarray(ids->id, cap, sizeof(*ids->id));
        if (grown == NULL)
            return err_nomem(err);
        ids->id = grown;
        ids->cap = cap;
    }
    text_set(ids->id[ids->count], id);
    ids->count++;
    return 0;
}

static int
by_id(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* ---- copies without a row ---- */

/* A row, or the key has work: a copy that is being removed has none any more. */
static int
known_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct history *history = arg;
    struct index_history row;
    struct index_key key;
    struct err local = ERR_INIT;
    history->known = index_history_get(tx, history->id, &row, &local) == 0;
    if (!history->known && local.code == ERR_NOT_FOUND) {
        local = (struct err)ERR_INIT;
        history->known = index_key_get(tx, history->key, &key, &local) == 0;
    }
    if (history->known || local.code == ERR_NOT_FOUND)
        return 0;
    *err = local;
    return -1;
}

static int
meet(void *arg, const struct store_list_entry *entry, struct err *err)
{
    struct history *history = arg;
    struct fsck *fsck = history->fsck;
    const char *name = entry->key + sizeof(HISTORY_PREFIX) - 1;
    const struct index_volume *volume = fsck_volume(fsck, name, strcspn(name, "/"));
    history->id = strrchr(entry->key, '/') + 1;
    history->key = entry->key;
    if (volume == NULL || !ulid_valid(history->id) ||
        (fsck->args->volume != 0 && fsck->args->volume != volume->id))
        return 0;
    if (add_id(&history->listed, history->id, err) != 0 ||
        index_read(fsck->service->index, known_tx, history, err) != 0)
        return -1;
    if (history->listed.count % 1000 == 0)
        fsck_progress(fsck, "versions", history->listed.count);
    size_t at = (size_t)(volume - fsck->volume);
    if (!history->known && history->unknown[at]++ == 0)
        text_set(history->first[at], entry->key);
    return 0;
}

static int
skip_known(void *arg, const struct index_volume *volume, const char *id, const char *key,
           bool *skip, struct err *err)
{
    struct history *history = arg;
    history->id = id;
    history->key = key;
    if (index_read(history->fsck->service->index, known_tx, history, err) != 0)
        return -1;
    *skip = history->known || volume->id != history->volume->id;
    return 0;
}

static int
mend_unknown(struct fsck *fsck, void *arg, struct err *err)
{
    struct volume_rebuild_args args = { .store = fsck->service->store };
    struct volume_rebuild_report report = { 0 };
    struct rebuild rebuild = { .args = &args,
                               .out = &report,
                               .store = fsck->service->store,
                               .index = fsck->service->index,
                               .volume = fsck->volume,
                               .volume_count = fsck->volume_count };
    if (rebuild_history(&rebuild, skip_known, arg, err) != 0)
        return -1;
    return report.nameless == 0
               ? 0
               : err_set(err, ERR_NOT_FOUND, "of %llu the record of their path is not there",
                         (unsigned long long)report.nameless);
}

static int
tell_unknown(struct history *history, struct err *err)
{
    struct fsck *fsck = history->fsck;
    char what[200];
    for (size_t i = 0; i < fsck->volume_count; i++) {
        if (history->unknown[i] == 0)
            continue;
        (void)snprintf(
            what, sizeof(what),
            "%llu older versions lie in the bucket that this index does not know, such as this "
            "one: another gateway kept them, or a power cut lost their rows",
            (unsigned long long)history->unknown[i]);
        const struct fsck_fault fault = { "history-unknown", what, "they are taken in",
                                          mend_unknown };
        history->volume = &fsck->volume[i];
        if (fsck_tell(fsck, &fault, fsck->volume[i].name, history->first[i], history, err) != 0)
            return -1;
    }
    return 0;
}

/* ---- rows without a copy ---- */

struct rows {
    struct history *history;
    struct index_history row[64]; /* that are not in the listing */
    size_t count;
    char after[ULID_SIZE];
    unsigned seen;
};

static int
add_row(void *arg, const struct index_history *row, struct err *err)
{
    struct rows *rows = arg;
    const struct ids *ids = &rows->history->listed;
    int64_t only = rows->history->fsck->args->volume;
    (void)err;
    rows->seen++;
    text_set(rows->after, row->id);
    bool listed =
        ids->count > 0 && bsearch(row->id, ids->id, ids->count, sizeof(*ids->id), by_id) != NULL;
    if (row->state == INDEX_HISTORY_KEPT && !listed && (only == 0 || only == row->volume))
        rows->row[rows->count++] = *row;
    return 0;
}

static int
rows_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct rows *rows = arg;
    rows->seen = 0;
    rows->count = 0;
    return index_history_each(tx, rows->after, 64, add_row, rows, err);
}

static const struct fsck_fault missing = {
    "history-missing", "the list of versions has one whose copy is not in the bucket any more",
    "none: the entry stays, so that the loss is not hidden", NULL
};

/* Made or removed while the bucket was listed? */
static int
look_again(struct history *history, const struct index_history *row, struct err *err)
{
    struct fsck *fsck = history->fsck;
    const struct index_volume *volume = NULL;
    struct store_object object;
    struct err local = ERR_INIT;
    char key[LIMIT_KEY + 1];
    for (size_t i = 0; i < fsck->volume_count; i++)
        if (fsck->volume[i].id == row->volume)
            volume = &fsck->volume[i];
    if (volume == NULL)
        return 0;
    if (preserve_key(volume, row->path, row->id, key, err) != 0)
        return -1;
    store_object_init(&object);
    int rc = store_head(fsck->service->store, key, 0, &object, &local);
    store_object_release(&object);
    if (rc == 0)
        return 0;
    if (local.code != ERR_NOT_FOUND) {
        *err = local;
        return -1;
    }
    history->id = row->id;
    history->key = "";
    if (index_read(fsck->service->index, known_tx, history, err) != 0)
        return -1;
    return history->known ? fsck_tell(fsck, &missing, volume->name, key, history, err) : 0;
}

static int
check_rows(struct history *history, struct err *err)
{
    scope_free struct rows *rows = calloc(1, sizeof(*rows));
    if (rows == NULL)
        return err_nomem(err);
    rows->history = history;
    if (history->listed.count > 0)
        qsort(history->listed.id, history->listed.count, sizeof(*history->listed.id), by_id);
    do {
        if (index_read(history->fsck->service->index, rows_tx, rows, err) != 0)
            return -1;
        for (size_t i = 0; i < rows->count; i++)
            if (look_again(history, &rows->row[i], err) != 0)
                return -1;
    } while (rows->seen == 64);
    return 0;
}

int
fsck_history(struct fsck *fsck, struct err *err)
{
    struct history history = { .fsck = fsck };
    struct store_list list = { .prefix = HISTORY_PREFIX, .fn = meet, .arg = &history };
    scope_free uint64_t *unknown = calloc(fsck->volume_count + 1, sizeof(*unknown));
    scope_free char(*first)[LIMIT_KEY + 1] = calloc(fsck->volume_count + 1, sizeof(*first));
    if (unknown == NULL || first == NULL)
        return err_nomem(err);
    history.unknown = unknown;
    history.first = first;
    int rc = store_list(fsck->service->store, &list, err);
    if (rc == 0)
        rc = tell_unknown(&history, err);
    if (rc == 0)
        rc = check_rows(&history, err);
    free(history.listed.id);
    return rc == 0 ? 0 : err_wrap(err, "cannot check the history");
}
