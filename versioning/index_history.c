#include <string.h>

#include "versioning/index_impl.h"

/* Versions that went, each a copy in the bucket, and what was done to names. */

static const struct index_column columns[] = {
    INDEX_COLUMN(index_history, TEXT, id),          INDEX_COLUMN(index_history, INT, volume),
    INDEX_COLUMN(index_history, INT, node),         INDEX_COLUMN(index_history, INT, state),
    INDEX_COLUMN(index_history, TEXT, version),     INDEX_COLUMN(index_history, TEXT, base_version),
    INDEX_COLUMN(index_history, TEXT, source_etag), INDEX_COLUMN(index_history, TEXT, etag),
    INDEX_COLUMN(index_history, TEXT, sha256),      INDEX_COLUMN(index_history, UINT, size),
    INDEX_COLUMN(index_history, BYTES, path),       INDEX_COLUMN(index_history, BYTES, actor),
    INDEX_COLUMN(index_history, BYTES, run),        INDEX_COLUMN(index_history, INT, made_ns),
    INDEX_COLUMN(index_history, INT, gone_ns),      INDEX_COLUMN(index_history, TEXT, gone_op),
    INDEX_COLUMN(index_history, BYTES, gone_actor), INDEX_COLUMN(index_history, BYTES, gone_run),
    INDEX_COLUMN(index_history, UINT, mode),        INDEX_COLUMN(index_history, UINT, uid),
    INDEX_COLUMN(index_history, UINT, gid),         INDEX_COLUMN(index_history, INT, mtime_ns),
    INDEX_COLUMN(index_history, INT, content),
};
const struct index_table index_table_history = INDEX_TABLE(index_history, "history", columns);

int
index_history_put(struct index_tx *tx, const struct index_history *row, struct err *err)
{
    return index_row_write(tx, STATEMENT_HISTORY_PUT, &index_table_history, row, NULL, err);
}

int
index_history_get(struct index_tx *tx, const char *id, struct index_history *out, struct err *err)
{
    scope_query query;
    if (index_query_start(tx, STATEMENT_HISTORY_GET, &query, err) != 0)
        return -1;
    index_bind_text(&query, 1, id);
    int rc = index_query_row(&query, &index_table_history, out, err);
    if (rc == 0)
        return err_set(err, ERR_NOT_FOUND, "the history has no '%s'", id);
    return rc < 0 ? -1 : 0;
}

int
index_history_delete(struct index_tx *tx, const char *id, struct err *err)
{
    scope_query query;
    if (index_change_start(tx, STATEMENT_HISTORY_DELETE, &query, err) != 0)
        return -1;
    index_bind_text(&query, 1, id);
    return index_query_step(&query, err);
}

static int
each(struct index_query *query, unsigned limit, index_history_fn *fn, void *arg, struct err *err)
{
    struct index_history row;
    int rc = 0;
    while (limit-- > 0 && (rc = index_query_row(query, &index_table_history, &row, err)) == 1) {
        if ((rc = fn(arg, &row, err)) != 0)
            break;
    }
    return rc < 0 ? -1 : 0;
}

int /* NOLINTNEXTLINE(readability-function-size): the contract has seven parameters */
index_history_at(struct index_tx *tx, int64_t volume, const char *path, unsigned limit,
                 index_history_fn *fn, void *arg, struct err *err)
{
    scope_query query;
    if (index_query_start(tx, STATEMENT_HISTORY_AT, &query, err) != 0)
        return -1;
    index_bind_int(&query, 1, volume);
    index_bind_bytes(&query, 2, path, strlen(path));
    return each(&query, limit, fn, arg, err);
}

int
index_history_below(struct index_tx *tx, int64_t volume, const char *prefix, index_history_fn *fn,
                    void *arg, struct err *err)
{
    char end[LIMIT_PATH + 2];
    size_t len = strlen(prefix);
    scope_query query;
    if (len > LIMIT_PATH)
        return err_set(err, ERR_NAME_TOO_LONG, "no path is so long");
    /* What begins so comes before this: no path is so long. */
    memset(end, 0xff, sizeof(end));
    memcpy(end, prefix, len);
    len = LIMIT_PATH + 1;
    if (index_query_start(tx, STATEMENT_HISTORY_BELOW, &query, err) != 0)
        return -1;
    index_bind_int(&query, 1, volume);
    index_bind_bytes(&query, 2, prefix, strlen(prefix));
    index_bind_bytes(&query, 3, end, len);
    return each(&query, UINT32_MAX, fn, arg, err);
}

int
index_history_from(struct index_tx *tx, int64_t volume, const char *path, index_history_fn *fn,
                   void *arg, struct err *err)
{
    scope_query query;
    if (index_query_start(tx, STATEMENT_HISTORY_FROM, &query, err) != 0)
        return -1;
    index_bind_int(&query, 1, volume);
    index_bind_bytes(&query, 2, path, strlen(path));
    return each(&query, UINT32_MAX, fn, arg, err);
}

int
index_history_of_node(struct index_tx *tx, int64_t node, unsigned limit, index_history_fn *fn,
                      void *arg, struct err *err)
{
    scope_query query;
    if (index_query_start(tx, STATEMENT_HISTORY_OF_NODE, &query, err) != 0)
        return -1;
    index_bind_int(&query, 1, node);
    return each(&query, limit, fn, arg, err);
}

int
index_history_of_version(struct index_tx *tx, const char *version, index_history_fn *fn, void *arg,
                         struct err *err)
{
    scope_query query;
    if (index_query_start(tx, STATEMENT_HISTORY_OF_VERSION, &query, err) != 0)
        return -1;
    index_bind_text(&query, 1, version);
    return each(&query, UINT32_MAX, fn, arg, err);
}

int
index_history_of_run(struct index_tx *tx, const char *run, index_history_fn *fn, void *arg,
                     struct err *err)
{
    scope_query query;
    if (index_query_start(tx, STATEMENT_HISTORY_OF_RUN, &query, err) != 0)
        return -1;
    index_bind_bytes(&query, 1, run, strlen(run));
    return each(&query, UINT32_MAX, fn, arg, err);
}

int
index_history_each(struct index_tx *tx, const char *after, unsigned limit, index_history_fn *fn,
                   void *arg, struct err *err)
{
    scope_query query;
    if (index_query_start(tx, STATEMENT_HISTORY_EACH, &query, err) != 0)
        return -1;
    index_bind_text(&query, 1, after);
    return each(&query, limit, fn, arg, err);
}

int
index_history_usage(struct index_tx *tx, int64_t volume, uint64_t *count, uint64_t *bytes,
                    struct err *err)
{
    scope_query query;
    if (index_query_start(tx, STATEMENT_HISTORY_USAGE, &query, err) != 0)
        return -1;
    index_bind_int(&query, 1, volume);
    if (index_query_step(&query, err) < 0)
        return -1;
    *count = (uint64_t)sqlite3_column_int64(query.stmt, 0);
    *bytes = (uint64_t)sqlite3_column_int64(query.stmt, 1);
    return 0;
}
