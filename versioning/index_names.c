#include "versioning/index_impl.h"

/* Names of many nodes without their rows: what the database's own indexes hold, a page of which has hundreds. Pages have their
 * checksum; who shows a node reads its row. */

int
index_node_names(struct index_tx *tx, const struct index_names *want, index_name_fn *fn, void *arg,
                 struct err *err)
{
    scope_query query;
    int rc;
    if (index_query_start(tx, STATEMENT_NODE_NAMES, &query, err) != 0)
        return -1;
    index_bind_int(&query, 1, want->parent);
    index_bind_bytes(&query, 2, want->after, want->after_len);
    index_bind_int(&query, 3, want->limit);
    while ((rc = index_query_step(&query, err)) == 1) {
        const char *name = sqlite3_column_blob(query.stmt, 0);
        int len = sqlite3_column_bytes(query.stmt, 0);
        if (name == NULL || len <= 0 || len > LIMIT_NAME)
            return err_set(err, ERR_CORRUPT, "a name in the index is damaged");
        if ((rc = fn(arg, sqlite3_column_int64(query.stmt, 1), name, (size_t)len, err)) != 0)
            break;
    }
    return rc < 0 ? -1 : 0;
}

int
index_node_folders_brief(struct index_tx *tx, int64_t parent, index_folder_fn *fn, void *arg,
                         struct err *err)
{
    scope_query query;
    int rc;
    if (index_query_start(tx, STATEMENT_NODE_FOLDERS_BRIEF, &query, err) != 0)
        return -1;
    index_bind_int(&query, 1, parent);
    while ((rc = index_query_step(&query, err)) == 1) {
        struct index_folder folder = { .node = sqlite3_column_int64(query.stmt, 0),
                                       .listed_ns = sqlite3_column_int64(query.stmt, 1),
                                       .flags = (unsigned)sqlite3_column_int64(query.stmt, 2) };
        if ((rc = fn(arg, &folder, err)) != 0)
            break;
    }
    return rc < 0 ? -1 : 0;
}

int
index_node_brief(struct index_tx *tx, int64_t node, struct index_brief *out, struct err *err)
{
    scope_query query;
    if (index_query_start(tx, STATEMENT_NODE_BRIEF, &query, err) != 0)
        return -1;
    index_bind_int(&query, 1, node);
    int rc = index_query_step(&query, err);
    if (rc < 0)
        return -1;
    if (rc == 0)
        return err_set(err, ERR_NOT_FOUND, "no node has number %lld", (long long)node);
    *out = (struct index_brief){ .flags = (unsigned)sqlite3_column_int64(query.stmt, 0),
                                 .content = sqlite3_column_int64(query.stmt, 1),
                                 .size = (uint64_t)sqlite3_column_int64(query.stmt, 2),
                                 .mtime_ns = sqlite3_column_int64(query.stmt, 3) };
    return 0;
}
