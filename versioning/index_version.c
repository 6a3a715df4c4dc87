#include <string.h>

#include "versioning/index_impl.h"

/* What was synced, and the conflicts. */

static const struct index_column version_columns[] = {
    INDEX_COLUMN(index_version, INT, id),
    INDEX_COLUMN(index_version, INT, volume),
    INDEX_COLUMN(index_version, INT, node),
    INDEX_COLUMN(index_version, TEXT, version),
    INDEX_COLUMN(index_version, TEXT, base_version),
    INDEX_COLUMN(index_version, TEXT, etag),
    INDEX_COLUMN(index_version, TEXT, sha256),
    INDEX_COLUMN(index_version, UINT, size),
    INDEX_COLUMN(index_version, BYTES, path),
    INDEX_COLUMN(index_version, BYTES, actor),
    INDEX_COLUMN(index_version, BYTES, run),
    INDEX_COLUMN(index_version, TEXT, op),
    INDEX_COLUMN(index_version, INT, time_ns),
};
const struct index_table index_table_versions =
    INDEX_TABLE(index_version, "versions", version_columns);

static const struct index_column conflict_columns[] = {
    INDEX_COLUMN(index_conflict, TEXT, id),
    INDEX_COLUMN(index_conflict, INT, volume),
    INDEX_COLUMN(index_conflict, INT, node),
    INDEX_COLUMN(index_conflict, BYTES, path),
    INDEX_COLUMN(index_conflict, TEXT, reason),
    INDEX_COLUMN(index_conflict, TEXT, base_version),
    INDEX_COLUMN(index_conflict, TEXT, mine_version),
    INDEX_COLUMN(index_conflict, TEXT, theirs_version),
    INDEX_COLUMN(index_conflict, TEXT, theirs_etag),
    INDEX_COLUMN(index_conflict, INT, content),
    INDEX_COLUMN(index_conflict, BOOL, synced),
    INDEX_COLUMN(index_conflict, BYTES, actor),
    INDEX_COLUMN(index_conflict, BYTES, run),
    INDEX_COLUMN(index_conflict, INT, time_ns),
};
const struct index_table index_table_conflicts =
    INDEX_TABLE(index_conflict, "conflicts", conflict_columns);

int
index_version_insert(struct index_tx *tx, struct index_version *row, struct err *err)
{
    if (!tx->writing)
        return err_set(err, ERR_INTERNAL, "a change to the index outside index_write()");
    row->id = index_counter_next(tx, COUNTER_VERSION);
    return index_row_write(tx, STATEMENT_VERSION_INSERT, &index_table_versions, row, NULL, err);
}

int
index_version_of_node(struct index_tx *tx, int64_t node, unsigned limit, index_version_fn *fn,
                      void *arg, struct err *err)
{
    struct index_version row;
    scope_query query;
    if (index_query_start(tx, STATEMENT_VERSION_OF_NODE, &query, err) != 0)
        return -1;
    index_bind_int(&query, 1, node);
    int rc = 0;
    while (limit-- > 0 && (rc = index_query_row(&query, &index_table_versions, &row, err)) == 1) {
        if ((rc = fn(arg, &row, err)) != 0)
            break;
    }
    return rc < 0 ? -1 : 0;
}

int
index_version_find(struct index_tx *tx, const char *version, struct index_version *out,
                   struct err *err)
{
    scope_query query;
    if (index_query_start(tx, STATEMENT_VERSION_FIND, &query, err) != 0)
        return -1;
    index_bind_text(&query, 1, version);
    int rc = index_query_row(&query, &index_table_versions, out, err);
    if (rc == 0)
        return err_set(err, ERR_NOT_FOUND, "there is no version '%s'", version);
    return rc < 0 ? -1 : 0;
}

int
index_version_of_run(struct index_tx *tx, const char *run, index_version_fn *fn, void *arg,
                     struct err *err)
{
    struct index_version row;
    scope_query query;
    if (index_query_start(tx, STATEMENT_VERSION_OF_RUN, &query, err) != 0)
        return -1;
    index_bind_bytes(&query, 1, run, strlen(run));
    int rc;
    while ((rc = index_query_row(&query, &index_table_versions, &row, err)) == 1) {
        if ((rc = fn(arg, &row, err)) != 0)
            break;
    }
    return rc < 0 ? -1 : 0;
}

int
index_conflict_put(struct index_tx *tx, const struct index_conflict *row, struct err *err)
{
    return index_row_write(tx, STATEMENT_CONFLICT_PUT, &index_table_conflicts, row, NULL, err);
}

int
index_conflict_get(struct index_tx *tx, const char *id, struct index_conflict *out, struct err *err)
{
    scope_query query;
    if (index_query_start(tx, STATEMENT_CONFLICT_GET, &query, err) != 0)
        return -1;
    index_bind_text(&query, 1, id);
    int rc = index_query_row(&query, &index_table_conflicts, out, err);
    if (rc == 0)
        return err_set(err, ERR_NOT_FOUND, "there is no conflict '%s'", id);
    return rc < 0 ? -1 : 0;
}

int
index_conflict_delete(struct index_tx *tx, const char *id, struct err *err)
{
    scope_query query;
    if (index_change_start(tx, STATEMENT_CONFLICT_DELETE, &query, err) != 0)
        return -1;
    index_bind_text(&query, 1, id);
    return index_query_step(&query, err);
}

int
index_conflict_each(struct index_tx *tx, int64_t volume, index_conflict_fn *fn, void *arg,
                    struct err *err)
{
    struct index_conflict row;
    scope_query query;
    if (index_query_start(tx, STATEMENT_CONFLICT_EACH, &query, err) != 0)
        return -1;
    int rc;
    while ((rc = index_query_row(&query, &index_table_conflicts, &row, err)) == 1) {
        if (volume != 0 && row.volume != volume)
            continue;
        if ((rc = fn(arg, &row, err)) != 0)
            break;
    }
    return rc < 0 ? -1 : 0;
}
