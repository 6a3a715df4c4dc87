#include "versioning/index_impl.h"

static const struct index_column columns[] = {
    INDEX_COLUMN(index_mount, INT, id),         INDEX_COLUMN(index_mount, INT, volume),
    INDEX_COLUMN(index_mount, BYTES, folder),   INDEX_COLUMN(index_mount, BYTES, path),
    INDEX_COLUMN(index_mount, BOOL, read_only), INDEX_COLUMN(index_mount, BYTES, run),
    INDEX_COLUMN(index_mount, INT, lease_ns),   INDEX_COLUMN(index_mount, INT, expires_ns),
    INDEX_COLUMN(index_mount, UINT, uuid_hint),
};
const struct index_table index_table_mounts = INDEX_TABLE(index_mount, "mounts", columns);

int
index_mount_put(struct index_tx *tx, struct index_mount *row, struct err *err)
{
    if (!tx->writing)
        return err_set(err, ERR_INTERNAL, "a change to the index outside index_write()");
    if (row->id == 0)
        row->id = index_counter_next(tx, COUNTER_MOUNT);
    return index_row_write(tx, STATEMENT_MOUNT_PUT, &index_table_mounts, row, NULL, err);
}

int
index_mount_delete(struct index_tx *tx, int64_t id, struct err *err)
{
    int changes = 0;
    if (index_run_int(tx, STATEMENT_MOUNT_DELETE, id, &changes, err) != 0)
        return -1;
    if (changes == 0)
        return err_set(err, ERR_NOT_FOUND, "no mount has number %lld", (long long)id);
    return 0;
}

int
index_mount_each(struct index_tx *tx, index_mount_fn *fn, void *arg, struct err *err)
{
    struct index_mount row;
    scope_query query;
    if (index_query_start(tx, STATEMENT_MOUNT_EACH, &query, err) != 0)
        return -1;
    int rc;
    while ((rc = index_query_row(&query, &index_table_mounts, &row, err)) == 1) {
        if ((rc = fn(arg, &row, err)) != 0)
            break;
    }
    return rc < 0 ? -1 : 0;
}
