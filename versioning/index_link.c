#include "versioning/index_impl.h"

/* Further names of an inode. A row ends with the node of its name, by a trigger. */

static const struct index_column columns[] = {
    INDEX_COLUMN(index_link, INT, node),
    INDEX_COLUMN(index_link, INT, inode),
    INDEX_COLUMN(index_link, TEXT, version),
};
const struct index_table index_table_links = INDEX_TABLE(index_link, "links", columns);

int
index_link_get(struct index_tx *tx, int64_t node, struct index_link *out, struct err *err)
{
    scope_query query;
    if (index_query_start(tx, STATEMENT_LINK_GET, &query, err) != 0)
        return -1;
    index_bind_int(&query, 1, node);
    int rc = index_query_row(&query, &index_table_links, out, err);
    if (rc == 0)
        return err_set(err, ERR_NOT_FOUND, "node %lld is no further name of a file",
                       (long long)node);
    return rc < 0 ? -1 : 0;
}

int
index_link_put(struct index_tx *tx, const struct index_link *row, struct err *err)
{
    return index_row_write(tx, STATEMENT_LINK_PUT, &index_table_links, row, NULL, err);
}

int
index_link_delete(struct index_tx *tx, int64_t node, struct err *err)
{
    return index_run_int(tx, STATEMENT_LINK_DELETE, node, NULL, err);
}

int
index_link_each(struct index_tx *tx, int64_t inode, int64_t after, index_link_fn *fn, void *arg,
                struct err *err)
{
    struct index_link row;
    scope_query query;
    if (index_query_start(tx, STATEMENT_LINK_EACH, &query, err) != 0)
        return -1;
    index_bind_int(&query, 1, inode);
    index_bind_int(&query, 2, after);
    int rc;
    while ((rc = index_query_row(&query, &index_table_links, &row, err)) == 1) {
        if ((rc = fn(arg, &row, err)) != 0)
            break;
    }
    return rc < 0 ? -1 : 0;
}

int
index_link_count(struct index_tx *tx, int64_t inode, uint32_t *out, struct err *err)
{
    scope_query query;
    if (index_query_start(tx, STATEMENT_LINK_COUNT, &query, err) != 0)
        return -1;
    index_bind_int(&query, 1, inode);
    if (index_query_step(&query, err) < 0)
        return -1;
    *out = (uint32_t)sqlite3_column_int64(query.stmt, 0);
    return 0;
}
