#include "versioning/index_impl.h"

/* What was shared by links. */

static const struct index_column columns[] = {
    INDEX_COLUMN(index_share, TEXT, id),        INDEX_COLUMN(index_share, TEXT, hash),
    INDEX_COLUMN(index_share, INT, volume),     INDEX_COLUMN(index_share, BYTES, path),
    INDEX_COLUMN(index_share, BYTES, key),      INDEX_COLUMN(index_share, BYTES, name),
    INDEX_COLUMN(index_share, UINT, size),      INDEX_COLUMN(index_share, UINT, hits),
    INDEX_COLUMN(index_share, UINT, most),      INDEX_COLUMN(index_share, UINT, flags),
    INDEX_COLUMN(index_share, BYTES, actor),    INDEX_COLUMN(index_share, BYTES, run),
    INDEX_COLUMN(index_share, INT, created_ns), INDEX_COLUMN(index_share, INT, expires_ns),
};
const struct index_table index_table_shares = INDEX_TABLE(index_share, "shares", columns);

int
index_share_put(struct index_tx *tx, const struct index_share *row, struct err *err)
{
    return index_row_write(tx, STATEMENT_SHARE_PUT, &index_table_shares, row, NULL, err);
}

static int
find(struct index_tx *tx, enum index_statement id, const char *text, struct index_share *out,
     struct err *err)
{
    scope_query query;
    if (index_query_start(tx, id, &query, err) != 0)
        return -1;
    index_bind_text(&query, 1, text);
    int rc = index_query_row(&query, &index_table_shares, out, err);
    if (rc == 0)
        return err_set(err, ERR_NOT_FOUND, "there is no such link");
    return rc < 0 ? -1 : 0;
}

int
index_share_find(struct index_tx *tx, const char *hash, struct index_share *out, struct err *err)
{
    return find(tx, STATEMENT_SHARE_FIND, hash, out, err);
}

int
index_share_get(struct index_tx *tx, const char *id, struct index_share *out, struct err *err)
{
    return find(tx, STATEMENT_SHARE_GET, id, out, err);
}

int
index_share_delete(struct index_tx *tx, const char *id, struct err *err)
{
    scope_query query;
    if (index_change_start(tx, STATEMENT_SHARE_DELETE, &query, err) != 0)
        return -1;
    index_bind_text(&query, 1, id);
    return index_query_step(&query, err) < 0 ? -1 : 0;
}

int
index_share_each(struct index_tx *tx, index_share_fn *fn, void *arg, struct err *err)
{
    struct index_share row;
    scope_query query;
    if (index_query_start(tx, STATEMENT_SHARE_EACH, &query, err) != 0)
        return -1;
    int rc;
    while ((rc = index_query_row(&query, &index_table_shares, &row, err)) == 1) {
        if ((rc = fn(arg, &row, err)) != 0)
            break;
    }
    return rc < 0 ? -1 : 0;
}
