#include <string.h>

#include "versioning/index_impl.h"

/* Versions that were written on the strength of inputs that had changed, and the runs whose inputs were ever remembered. */

static const struct index_column stale_columns[] = {
    INDEX_COLUMN(index_stale, TEXT, version),    INDEX_COLUMN(index_stale, INT, volume),
    INDEX_COLUMN(index_stale, BYTES, run),       INDEX_COLUMN(index_stale, INT, changed),
    INDEX_COLUMN(index_stale, BOOL, incomplete), INDEX_COLUMN(index_stale, BYTES, inputs),
    INDEX_COLUMN(index_stale, INT, time_ns),
};
const struct index_table index_table_stale = INDEX_TABLE(index_stale, "stale_reads", stale_columns);

static const struct index_column run_columns[] = {
    INDEX_COLUMN(index_run, BYTES, run),
    INDEX_COLUMN(index_run, INT, since_ns),
};
const struct index_table index_table_runs = INDEX_TABLE(index_run, "runs", run_columns);

int
index_stale_put(struct index_tx *tx, const struct index_stale *row, struct err *err)
{
    return index_row_write(tx, STATEMENT_STALE_PUT, &index_table_stale, row, NULL, err);
}

int
index_stale_get(struct index_tx *tx, const char *version, struct index_stale *out, struct err *err)
{
    scope_query query;
    if (index_query_start(tx, STATEMENT_STALE_GET, &query, err) != 0)
        return -1;
    index_bind_text(&query, 1, version);
    int rc = index_query_row(&query, &index_table_stale, out, err);
    if (rc == 0)
        return err_set(err, ERR_NOT_FOUND, "nothing is told of the inputs of '%s'", version);
    return rc < 0 ? -1 : 0;
}

static int
drop_before(struct index_tx *tx, enum index_statement id, int64_t before_ns, int64_t volume,
            struct err *err)
{
    scope_query query;
    if (index_change_start(tx, id, &query, err) != 0)
        return -1;
    index_bind_int(&query, 1, before_ns);
    if (volume != 0)
        index_bind_int(&query, 2, volume);
    return index_query_step(&query, err) < 0 ? -1 : 0;
}

int
index_stale_prune(struct index_tx *tx, int64_t volume, int64_t before_ns, struct err *err)
{
    return drop_before(tx, STATEMENT_STALE_PRUNE, before_ns, volume, err);
}

int
index_run_known(struct index_tx *tx, const char *run, bool *known, struct err *err)
{
    struct index_run row;
    scope_query query;
    if (index_query_start(tx, STATEMENT_RUN_GET, &query, err) != 0)
        return -1;
    index_bind_bytes(&query, 1, run, strlen(run));
    int rc = index_query_row(&query, &index_table_runs, &row, err);
    *known = rc == 1;
    return rc < 0 ? -1 : 0;
}

int
index_run_meet(struct index_tx *tx, const char *run, int64_t now_ns, bool *met, struct err *err)
{
    struct index_run row;
    if (index_run_known(tx, run, met, err) != 0)
        return -1;
    if (*met)
        return 0;
    if (strlen(run) >= sizeof(row.run))
        return err_set(err, ERR_INVAL, "run id '%s' is too long", run);
    memset(&row, 0, sizeof(row));
    memcpy(row.run, run, strlen(run));
    row.since_ns = now_ns;
    return index_row_write(tx, STATEMENT_RUN_PUT, &index_table_runs, &row, NULL, err);
}

int
index_run_prune(struct index_tx *tx, int64_t before_ns, struct err *err)
{
    return drop_before(tx, STATEMENT_RUN_PRUNE, before_ns, 0, err);
}
