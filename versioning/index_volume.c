#include "versioning/index_impl.h"

static const struct index_column columns[] = {
    INDEX_COLUMN(index_volume, INT, id),          INDEX_COLUMN(index_volume, TEXT, name),
    INDEX_COLUMN(index_volume, BYTES, prefix),    INDEX_COLUMN(index_volume, BOOL, read_only),
    INDEX_COLUMN(index_volume, BOOL, sync_close), INDEX_COLUMN(index_volume, UINT, quota),
    INDEX_COLUMN(index_volume, INT, history_ns),  INDEX_COLUMN(index_volume, INT, created_ns),
    INDEX_COLUMN(index_volume, INT, root),        INDEX_COLUMN(index_volume, TEXT, storage_class),
    INDEX_COLUMN(index_volume, TEXT, encryption), INDEX_COLUMN(index_volume, LATER, history_count),
    INDEX_COLUMN(index_volume, LATER, options),
};
const struct index_table index_table_volumes = INDEX_TABLE(index_volume, "volumes", columns);

int
index_volume_get(struct index_tx *tx, int64_t id, struct index_volume *out, struct err *err)
{
    struct index *index = tx->index;
    scope_query query = { 0 };
    if (tx->writing && index->volume_known && index->volume.id == id) {
        *out = index->volume;
        return 0;
    }
    if (index_query_start(tx, STATEMENT_VOLUME_GET, &query, err) != 0)
        return -1;
    index_bind_int(&query, 1, id);
    int rc = index_query_row(&query, &index_table_volumes, out, err);
    if (rc == 0)
        return err_set(err, ERR_NOT_FOUND, "no volume has number %lld", (long long)id);
    if (rc == 1 && tx->writing) {
        index->volume = *out;
        index->volume_known = true;
    }
    return rc < 0 ? -1 : 0;
}

int
index_volume_find(struct index_tx *tx, const char *name, struct index_volume *out, struct err *err)
{
    scope_query query;
    if (index_query_start(tx, STATEMENT_VOLUME_FIND, &query, err) != 0)
        return -1;
    index_bind_text(&query, 1, name);
    int rc = index_query_row(&query, &index_table_volumes, out, err);
    if (rc == 0)
        return err_set(err, ERR_NOT_FOUND, "there is no volume '%s'", name);
    return rc < 0 ? -1 : 0;
}

int
index_volume_each(struct index_tx *tx, index_volume_fn *fn, void *arg, struct err *err)
{
    struct index_volume row;
    scope_query query;
    if (index_query_start(tx, STATEMENT_VOLUME_EACH, &query, err) != 0)
        return -1;
    int rc;
    while ((rc = index_query_row(&query, &index_table_volumes, &row, err)) == 1) {
        if ((rc = fn(arg, &row, err)) != 0)
            break;
    }
    return rc < 0 ? -1 : 0;
}

int
index_volume_insert(struct index_tx *tx, struct index_volume *row, struct err *err)
{
    if (!tx->writing)
        return err_set(err, ERR_INTERNAL, "a change to the index outside index_write()");
    row->id = index_counter_next(tx, COUNTER_VOLUME);
    if (index_row_write(tx, STATEMENT_VOLUME_INSERT, &index_table_volumes, row, NULL, err) == 0)
        return 0;
    if (err->code == ERR_EXISTS)
        return err_set(err, ERR_EXISTS, "there is a volume '%s' already", row->name);
    return -1;
}

int
index_volume_update(struct index_tx *tx, const struct index_volume *row, struct err *err)
{
    int changes = 0;
    tx->index->volume_known = false;
    if (index_row_write(tx, STATEMENT_VOLUME_UPDATE, &index_table_volumes, row, &changes, err) != 0)
        return -1;
    if (changes == 0)
        return err_set(err, ERR_NOT_FOUND, "no volume has number %lld", (long long)row->id);
    return 0;
}

int
index_volume_delete(struct index_tx *tx, int64_t id, struct err *err)
{
    /* Answers first: they find their volume through mounts. */
    static const enum index_statement parts[] = {
        STATEMENT_VOLUME_DELETE_ANSWERS,   STATEMENT_VOLUME_DELETE_NODES,
        STATEMENT_VOLUME_DELETE_KEYS,      STATEMENT_VOLUME_DELETE_CONTENTS,
        STATEMENT_VOLUME_DELETE_INTENTS,   STATEMENT_VOLUME_DELETE_VERSIONS,
        STATEMENT_VOLUME_DELETE_CONFLICTS, STATEMENT_VOLUME_DELETE_MOUNTS,
        STATEMENT_VOLUME_DELETE_USAGE,     STATEMENT_VOLUME_DELETE_HISTORY,
        STATEMENT_VOLUME_DELETE_CHANGES,   STATEMENT_VOLUME_DELETE_SNAPSHOTS,
        STATEMENT_VOLUME_DELETE_STALE,     STATEMENT_VOLUME_DELETE_TOKENS,
    };
    int changes = 0;
    tx->index->volume_known = false;
    index_node_memo_clear(tx->index);
    for (unsigned i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (index_run_int(tx, parts[i], id, NULL, err) != 0)
            return -1;
    }
    if (index_run_int(tx, STATEMENT_VOLUME_DELETE, id, &changes, err) != 0)
        return -1;
    if (changes == 0)
        return err_set(err, ERR_NOT_FOUND, "no volume has number %lld", (long long)id);
    return 0;
}
