#include "versioning/index_impl.h"

static const struct index_column columns[] = {
    INDEX_COLUMN(index_content, INT, id),
    INDEX_COLUMN(index_content, INT, node),
    INDEX_COLUMN(index_content, INT, volume),
    INDEX_COLUMN(index_content, INT, state),
    INDEX_COLUMN(index_content, UINT, flags),
    INDEX_COLUMN(index_content, TEXT, version),
    INDEX_COLUMN(index_content, TEXT, base_version),
    INDEX_COLUMN(index_content, TEXT, base_etag),
    INDEX_COLUMN(index_content, TEXT, etag),
    INDEX_COLUMN(index_content, UINT, size),
    INDEX_COLUMN(index_content, TEXT, sha256),
    INDEX_COLUMN(index_content, TEXT, md5),
    INDEX_COLUMN(index_content, TEXT, boot_id),
    INDEX_COLUMN(index_content, INT, mtime_ns),
    INDEX_COLUMN(index_content, BYTES, actor),
    INDEX_COLUMN(index_content, BYTES, run),
};
const struct index_table index_table_contents = INDEX_TABLE(index_content, "contents", columns);

static int
absent(int64_t id, struct err *err)
{
    return err_set(err, ERR_NOT_FOUND, "no content has number %lld", (long long)id);
}

int
index_content_get(struct index_tx *tx, int64_t id, struct index_content *out, struct err *err)
{
    scope_query query;
    if (index_query_start(tx, STATEMENT_CONTENT_GET, &query, err) != 0)
        return -1;
    index_bind_int(&query, 1, id);
    int rc = index_query_row(&query, &index_table_contents, out, err);
    if (rc == 0)
        return absent(id, err);
    return rc < 0 ? -1 : 0;
}

int
index_content_number(struct index_tx *tx, int64_t *out, struct err *err)
{
    if (!tx->writing)
        return err_set(err, ERR_INTERNAL, "a change to the index outside index_write()");
    *out = index_counter_next(tx, COUNTER_CONTENT);
    return 0;
}

/* A row for a file made before has its number (index_content_number(), or what a rebuild found on disk). */
int
index_content_insert(struct index_tx *tx, struct index_content *row, struct err *err)
{
    if (!tx->writing)
        return err_set(err, ERR_INTERNAL, "a change to the index outside index_write()");
    int64_t *last = &tx->index->counters.last[COUNTER_CONTENT];
    if (row->id == 0)
        row->id = index_counter_next(tx, COUNTER_CONTENT);
    else if (row->id > *last)
        *last = row->id;
    if (index_row_write(tx, STATEMENT_CONTENT_INSERT, &index_table_contents, row, NULL, err) != 0)
        return -1;
    return 0;
}

int
index_content_update(struct index_tx *tx, const struct index_content *row, struct err *err)
{
    int changes = 0;
    if (index_row_write(tx, STATEMENT_CONTENT_UPDATE, &index_table_contents, row, &changes, err) !=
        0)
        return -1;
    if (changes == 0)
        return absent(row->id, err);
    return 0;
}

int
index_content_delete(struct index_tx *tx, int64_t id, struct err *err)
{
    int changes = 0;
    if (index_run_int(tx, STATEMENT_CONTENT_DELETE, id, &changes, err) != 0)
        return -1;
    return changes > 0 ? 0 : absent(id, err);
}

static int
each(struct index_query *query, index_content_fn *fn, void *arg, struct err *err)
{
    struct index_content row;
    int rc;
    while ((rc = index_query_row(query, &index_table_contents, &row, err)) == 1) {
        if ((rc = fn(arg, &row, err)) != 0)
            break;
    }
    return rc < 0 ? -1 : 0;
}

int
index_content_each(struct index_tx *tx, index_content_fn *fn, void *arg, struct err *err)
{
    scope_query query;
    if (index_query_start(tx, STATEMENT_CONTENT_EACH, &query, err) != 0)
        return -1;
    return each(&query, fn, arg, err);
}

int
index_content_each_staged(struct index_tx *tx, index_content_fn *fn, void *arg, struct err *err)
{
    scope_query query;
    if (index_query_start(tx, STATEMENT_CONTENT_EACH_STAGED, &query, err) != 0)
        return -1;
    return each(&query, fn, arg, err);
}

int
index_content_of_node(struct index_tx *tx, int64_t node, index_content_fn *fn, void *arg,
                      struct err *err)
{
    scope_query query;
    if (index_query_start(tx, STATEMENT_CONTENT_OF_NODE, &query, err) != 0)
        return -1;
    index_bind_int(&query, 1, node);
    return each(&query, fn, arg, err);
}

int
index_content_unsynced(struct index_tx *tx, int64_t volume, uint64_t *count, uint64_t *bytes,
                       struct err *err)
{
    scope_query query;
    enum index_statement id =
        volume == 0 ? STATEMENT_CONTENT_UNSYNCED_ALL : STATEMENT_CONTENT_UNSYNCED;
    if (index_query_start(tx, id, &query, err) != 0)
        return -1;
    if (volume != 0)
        index_bind_int(&query, 1, volume);
    if (index_query_step(&query, err) < 0)
        return -1;
    *count = (uint64_t)sqlite3_column_int64(query.stmt, 0);
    *bytes = (uint64_t)sqlite3_column_int64(query.stmt, 1);
    return 0;
}
