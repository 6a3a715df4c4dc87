#include "versioning/index_impl.h"

/* What others wrote with an object, by node. Rows end with their nodes, by a trigger. */

static const struct index_column columns[] = {
    INDEX_COLUMN(index_extra, INT, node),
    INDEX_COLUMN(index_extra, BYTES, text),
};
const struct index_table index_table_extras = INDEX_TABLE(index_extra, "extras", columns);

int
index_extra_get(struct index_tx *tx, int64_t node, struct index_extra *out, struct err *err)
{
    scope_query query;
    if (index_query_start(tx, STATEMENT_EXTRA_GET, &query, err) != 0)
        return -1;
    index_bind_int(&query, 1, node);
    int rc = index_query_row(&query, &index_table_extras, out, err);
    if (rc == 0)
        return err_set(err, ERR_NOT_FOUND, "nothing more is known of node %lld", (long long)node);
    return rc < 0 ? -1 : 0;
}

int
index_extra_put(struct index_tx *tx, const struct index_extra *row, struct err *err)
{
    return index_row_write(tx, STATEMENT_EXTRA_PUT, &index_table_extras, row, NULL, err);
}

int
index_extra_delete(struct index_tx *tx, int64_t node, struct err *err)
{
    return index_run_int(tx, STATEMENT_EXTRA_DELETE, node, NULL, err);
}
