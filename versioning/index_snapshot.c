#include "versioning/index_impl.h"

/* Moments of volumes that have a name. */

static const struct index_column columns[] = {
    INDEX_COLUMN(index_snapshot, INT, id),      INDEX_COLUMN(index_snapshot, INT, volume),
    INDEX_COLUMN(index_snapshot, TEXT, name),   INDEX_COLUMN(index_snapshot, INT, at_ns),
    INDEX_COLUMN(index_snapshot, INT, state),   INDEX_COLUMN(index_snapshot, UINT, files),
    INDEX_COLUMN(index_snapshot, UINT, bytes),  INDEX_COLUMN(index_snapshot, TEXT, etag),
    INDEX_COLUMN(index_snapshot, BYTES, actor), INDEX_COLUMN(index_snapshot, BYTES, run),
};
const struct index_table index_table_snapshots = INDEX_TABLE(index_snapshot, "snapshots", columns);

int
index_snapshot_insert(struct index_tx *tx, struct index_snapshot *row, struct err *err)
{
    if (!tx->writing)
        return err_set(err, ERR_INTERNAL, "a change to the index outside index_write()");
    row->id = index_counter_next(tx, COUNTER_VERSION);
    if (index_row_write(tx, STATEMENT_SNAPSHOT_INSERT, &index_table_snapshots, row, NULL, err) == 0)
        return 0;
    if (err->code == ERR_EXISTS)
        return err_set(err, ERR_EXISTS, "there is a snapshot '%s' already", row->name);
    return -1;
}

int
index_snapshot_update(struct index_tx *tx, const struct index_snapshot *row, struct err *err)
{
    int changes = 0;
    if (index_row_write(tx, STATEMENT_SNAPSHOT_UPDATE, &index_table_snapshots, row, &changes,
                        err) != 0)
        return -1;
    if (changes == 0)
        return err_set(err, ERR_NOT_FOUND, "the snapshot '%s' was deleted", row->name);
    return 0;
}

int
index_snapshot_find(struct index_tx *tx, int64_t volume, const char *name,
                    struct index_snapshot *out, struct err *err)
{
    scope_query query;
    if (index_query_start(tx, STATEMENT_SNAPSHOT_FIND, &query, err) != 0)
        return -1;
    index_bind_int(&query, 1, volume);
    index_bind_text(&query, 2, name);
    int rc = index_query_row(&query, &index_table_snapshots, out, err);
    if (rc == 0)
        return err_set(err, ERR_NOT_FOUND, "there is no snapshot '%s'", name);
    return rc < 0 ? -1 : 0;
}

int
index_snapshot_delete(struct index_tx *tx, int64_t id, struct err *err)
{
    return index_run_int(tx, STATEMENT_SNAPSHOT_DELETE, id, NULL, err);
}

int
index_snapshot_each(struct index_tx *tx, int64_t volume, index_snapshot_fn *fn, void *arg,
                    struct err *err)
{
    struct index_snapshot row;
    scope_query query;
    if (index_query_start(tx, STATEMENT_SNAPSHOT_EACH, &query, err) != 0)
        return -1;
    int rc;
    while ((rc = index_query_row(&query, &index_table_snapshots, &row, err)) == 1) {
        if (volume != 0 && row.volume != volume)
            continue;
        if ((rc = fn(arg, &row, err)) != 0)
            break;
    }
    return rc < 0 ? -1 : 0;
}

int
index_snapshot_is_behind(struct index_tx *tx, const struct index_snapshot *row, bool *out,
                         struct err *err)
{
    scope_query query;
    if (index_query_start(tx, STATEMENT_SNAPSHOT_IS_BEHIND, &query, err) != 0)
        return -1;
    index_bind_int(&query, 1, row->id);
    index_bind_int(&query, 2, row->volume);
    index_bind_int(&query, 3, row->at_ns);
    if (index_query_step(&query, err) < 0)
        return -1;
    *out = sqlite3_column_int64(query.stmt, 0) != 0;
    return 0;
}
