#include <string.h>

#include "versioning/index_impl.h"

/* What was done to names, and by whom. The numbers are those of versions too: they tell what came first. */

static const struct index_column columns[] = {
    INDEX_COLUMN(index_change, INT, id),        INDEX_COLUMN(index_change, INT, volume),
    INDEX_COLUMN(index_change, INT, node),      INDEX_COLUMN(index_change, INT, parent),
    INDEX_COLUMN(index_change, TEXT, op),       INDEX_COLUMN(index_change, BYTES, path),
    INDEX_COLUMN(index_change, BYTES, to_path), INDEX_COLUMN(index_change, BYTES, key),
    INDEX_COLUMN(index_change, TEXT, version),  INDEX_COLUMN(index_change, UINT, mode),
    INDEX_COLUMN(index_change, BYTES, actor),   INDEX_COLUMN(index_change, BYTES, run),
    INDEX_COLUMN(index_change, INT, time_ns),
};
const struct index_table index_table_changes = INDEX_TABLE(index_change, "changes", columns);

int
index_change_insert(struct index_tx *tx, struct index_change *row, struct err *err)
{
    if (!tx->writing)
        return err_set(err, ERR_INTERNAL, "a change to the index outside index_write()");
    row->id = index_counter_next(tx, COUNTER_VERSION);
    return index_row_write(tx, STATEMENT_CHANGE_INSERT, &index_table_changes, row, NULL, err);
}

int
index_change_of_key(struct index_tx *tx, const char *key, struct index_change *out, struct err *err)
{
    scope_query query;
    if (index_query_start(tx, STATEMENT_CHANGE_OF_KEY, &query, err) != 0)
        return -1;
    index_bind_bytes(&query, 1, key, strlen(key));
    int rc = index_query_row(&query, &index_table_changes, out, err);
    if (rc == 0)
        return err_set(err, ERR_NOT_FOUND, "nobody is known to have removed '%s'", key);
    return rc < 0 ? -1 : 0;
}

int
index_change_of_run(struct index_tx *tx, const char *run, index_change_fn *fn, void *arg,
                    struct err *err)
{
    struct index_change row;
    scope_query query;
    if (index_query_start(tx, STATEMENT_CHANGE_OF_RUN, &query, err) != 0)
        return -1;
    index_bind_bytes(&query, 1, run, strlen(run));
    int rc;
    while ((rc = index_query_row(&query, &index_table_changes, &row, err)) == 1) {
        if ((rc = fn(arg, &row, err)) != 0)
            break;
    }
    return rc < 0 ? -1 : 0;
}

int
index_change_since(struct index_tx *tx, int64_t volume, int64_t since_ns, index_change_fn *fn,
                   void *arg, struct err *err)
{
    struct index_change row;
    scope_query query;
    if (index_query_start(tx, STATEMENT_CHANGE_NEWEST, &query, err) != 0)
        return -1;
    int rc;
    while ((rc = index_query_row(&query, &index_table_changes, &row, err)) == 1) {
        if (row.time_ns <= since_ns)
            return 0;
        if (row.volume == volume && (rc = fn(arg, &row, err)) != 0)
            break;
    }
    return rc < 0 ? -1 : 0;
}

/* In order of their numbers the first ones are the oldest. */
int
index_change_prune(struct index_tx *tx, int64_t volume, int64_t before_ns, unsigned limit,
                   unsigned *count, struct err *err)
{
    int64_t after = 0;
    *count = 0;
    while (*count < limit) {
        struct index_change row;
        scope_query query;
        if (index_query_start(tx, STATEMENT_CHANGE_OLD, &query, err) != 0)
            return -1;
        index_bind_int(&query, 1, after);
        int rc = index_query_row(&query, &index_table_changes, &row, err);
        if (rc <= 0 || row.time_ns >= before_ns)
            return rc < 0 ? -1 : 0;
        after = row.id;
        if (row.volume != volume)
            continue;
        index_query_end(&query);
        query = (struct index_query){ 0 };
        if (index_run_int(tx, STATEMENT_CHANGE_DELETE, row.id, NULL, err) != 0)
            return -1;
        (*count)++;
    }
    return 0;
}
