#include <string.h>

#include "versioning/index_impl.h"

/* Uploads in parts that were begun and whose end is not known yet. */

static const struct index_column columns[] = {
    INDEX_COLUMN(index_upload, BYTES, id),     INDEX_COLUMN(index_upload, BYTES, key),
    INDEX_COLUMN(index_upload, INT, volume),   INDEX_COLUMN(index_upload, TEXT, life),
    INDEX_COLUMN(index_upload, INT, begun_ns),
};
const struct index_table index_table_uploads = INDEX_TABLE(index_upload, "uploads", columns);

int
index_upload_put(struct index_tx *tx, const struct index_upload *row, struct err *err)
{
    return index_row_write(tx, STATEMENT_UPLOAD_PUT, &index_table_uploads, row, NULL, err);
}

int
index_upload_delete(struct index_tx *tx, const char *id, struct err *err)
{
    scope_query query;
    if (index_change_start(tx, STATEMENT_UPLOAD_DELETE, &query, err) != 0)
        return -1;
    index_bind_bytes(&query, 1, id, strlen(id));
    return index_query_step(&query, err);
}

static int
each(struct index_query *query, index_upload_fn *fn, void *arg, struct err *err)
{
    struct index_upload row;
    int rc;
    while ((rc = index_query_row(query, &index_table_uploads, &row, err)) == 1) {
        if ((rc = fn(arg, &row, err)) != 0)
            break;
    }
    return rc < 0 ? -1 : 0;
}

int
index_upload_each(struct index_tx *tx, index_upload_fn *fn, void *arg, struct err *err)
{
    scope_query query;
    if (index_query_start(tx, STATEMENT_UPLOAD_EACH, &query, err) != 0)
        return -1;
    return each(&query, fn, arg, err);
}

int
index_upload_of_key(struct index_tx *tx, const char *key, index_upload_fn *fn, void *arg,
                    struct err *err)
{
    scope_query query;
    if (index_query_start(tx, STATEMENT_UPLOAD_OF_KEY, &query, err) != 0)
        return -1;
    index_bind_bytes(&query, 1, key, strlen(key));
    return each(&query, fn, arg, err);
}
