#include <string.h>

#include "versioning/index_impl.h"

/* The first five are those of UPDATE_IN_PLACE (index_statement.c): keep their order. */
static const struct index_column columns[] = {
    INDEX_COLUMN(index_node, INT, id),       INDEX_COLUMN(index_node, INT, volume),
    INDEX_COLUMN(index_node, INT, parent),   INDEX_COLUMN(index_node, BYTES, name),
    INDEX_COLUMN(index_node, INT, kind),     INDEX_COLUMN(index_node, UINT, flags),
    INDEX_COLUMN(index_node, UINT, mode),    INDEX_COLUMN(index_node, UINT, uid),
    INDEX_COLUMN(index_node, UINT, gid),     INDEX_COLUMN(index_node, INT, mtime_ns),
    INDEX_COLUMN(index_node, INT, ctime_ns), INDEX_COLUMN(index_node, UINT, size),
    INDEX_COLUMN(index_node, TEXT, ulid),    INDEX_COLUMN(index_node, INT, content),
    INDEX_COLUMN(index_node, TEXT, version), INDEX_COLUMN(index_node, TEXT, etag),
    INDEX_COLUMN(index_node, BYTES, key),    INDEX_COLUMN(index_node, INT, listed_ns),
    INDEX_COLUMN(index_node, BYTES, target), INDEX_COLUMN(index_node, LATER, atime_ns),
};
const struct index_table index_table_nodes = INDEX_TABLE(index_node, "nodes", columns);

/* 1: a row, 0: no more, -1. */
static int
next_row(struct index_query *query, struct index_node *row, struct err *err)
{
    int rc = index_query_row(query, &index_table_nodes, row, err);
    if (rc == 1)
        row->name_len = (uint16_t)strlen(row->name);
    return rc;
}

static int
absent(int64_t id, struct err *err)
{
    return err_set(err, ERR_NOT_FOUND, "no node has number %lld", (long long)id);
}

/* ---- rows that the running change has in hand ---- */
void
index_node_memo_clear(struct index *index)
{
    memset(index->nodes.id, 0, sizeof(index->nodes.id));
}

static const struct index_node *
memo_find(const struct index_tx *tx, int64_t id)
{
    const struct index_node_memo *memo = &tx->index->nodes;
    for (unsigned i = 0; tx->writing && id != 0 && i < INDEX_NODE_MEMO; i++) {
        if (memo->id[i] == id)
            return &memo->row[i];
    }
    return NULL;
}

static void
memo_forget(struct index_tx *tx, int64_t id)
{
    struct index_node_memo *memo = &tx->index->nodes;
    for (unsigned i = 0; tx->writing && i < INDEX_NODE_MEMO; i++) {
        if (memo->id[i] == id)
            memo->id[i] = 0;
    }
}

static void
memo_keep(struct index_tx *tx, const struct index_node *row)
{
    struct index_node_memo *memo = &tx->index->nodes;
    if (!tx->writing)
        return;
    memo_forget(tx, row->id);
    memo->row[memo->next] = *row;
    memo->id[memo->next] = row->id;
    memo->next = (memo->next + 1) % INDEX_NODE_MEMO;
}

int
index_node_get(struct index_tx *tx, int64_t id, struct index_node *out, struct err *err)
{
    const struct index_node *known = memo_find(tx, id);
    scope_query query = { 0 };
    if (known != NULL) {
        *out = *known;
        return 0;
    }
    if (index_query_start(tx, STATEMENT_NODE_GET, &query, err) != 0)
        return -1;
    index_bind_int(&query, 1, id);
    int rc = next_row(&query, out, err);
    if (rc == 0)
        return absent(id, err);
    if (rc < 0)
        return -1;
    memo_keep(tx, out);
    return 0;
}

int
index_node_child(struct index_tx *tx, int64_t parent, const char *name, size_t name_len,
                 struct index_node *out, struct err *err)
{
    scope_query query;
    if (index_query_start(tx, STATEMENT_NODE_CHILD, &query, err) != 0)
        return -1;
    index_bind_int(&query, 1, parent);
    index_bind_bytes(&query, 2, name, name_len);
    int rc = next_row(&query, out, err);
    if (rc == 0)
        return err_set(err, ERR_NOT_FOUND, "'%.*s' does not exist", (int)name_len, name);
    if (rc < 0)
        return -1;
    memo_keep(tx, out);
    return 0;
}

/* Calls fn for up to `limit` rows. */
static int
each(struct index_query *query, unsigned limit, index_node_fn *fn, void *arg, struct err *err)
{
    struct index_node row;
    int rc = 0;
    while (limit-- > 0 && (rc = next_row(query, &row, err)) == 1) {
        if ((rc = fn(arg, &row, err)) != 0)
            break;
    }
    return rc < 0 ? -1 : 0;
}

int /* NOLINTNEXTLINE(readability-function-size): the contract has seven parameters */
index_node_children(struct index_tx *tx, int64_t parent, int64_t after, unsigned limit,
                    index_node_fn *fn, void *arg, struct err *err)
{
    scope_query query;
    if (index_query_start(tx, STATEMENT_NODE_CHILDREN, &query, err) != 0)
        return -1;
    index_bind_int(&query, 1, parent);
    index_bind_int(&query, 2, after);
    return each(&query, limit, fn, arg, err);
}

int /* NOLINTNEXTLINE(readability-function-size): the contract has seven parameters */
index_node_folders(struct index_tx *tx, int64_t parent, int64_t after, unsigned limit,
                   index_node_fn *fn, void *arg, struct err *err)
{
    scope_query query;
    if (index_query_start(tx, STATEMENT_NODE_FOLDERS, &query, err) != 0)
        return -1;
    index_bind_int(&query, 1, parent);
    index_bind_int(&query, 2, after);
    return each(&query, limit, fn, arg, err);
}

int
index_node_has_children(struct index_tx *tx, int64_t parent, bool *out, struct err *err)
{
    scope_query query;
    if (index_query_start(tx, STATEMENT_NODE_ANY_CHILD, &query, err) != 0)
        return -1;
    index_bind_int(&query, 1, parent);
    if (index_query_step(&query, err) < 0)
        return -1;
    *out = sqlite3_column_int(query.stmt, 0) != 0;
    return 0;
}

static int
check_row(const struct index_node *row, struct err *err)
{
    if (row->name_len > LIMIT_NAME || strnlen(row->name, sizeof(row->name)) != row->name_len)
        return err_set(err, ERR_INTERNAL, "a node's name and its length differ");
    return 0;
}

static int
name_taken(const struct index_node *row, struct err *err)
{
    if (err->code == ERR_EXISTS)
        return err_set(err, ERR_EXISTS, "'%s' exists already", row->name);
    return -1;
}

int
index_node_insert(struct index_tx *tx, struct index_node *row, struct err *err)
{
    if (!tx->writing)
        return err_set(err, ERR_INTERNAL, "a change to the index outside index_write()");
    if (check_row(row, err) != 0)
        return -1;
    row->id = index_counter_next(tx, COUNTER_NODE);
    if (index_row_write(tx, STATEMENT_NODE_INSERT, &index_table_nodes, row, NULL, err) != 0)
        return name_taken(row, err);
    memo_keep(tx, row);
    return 0;
}

int
index_node_update(struct index_tx *tx, const struct index_node *row, struct err *err)
{
    int changes = 0;
    if (check_row(row, err) != 0)
        return -1;
    memo_forget(tx, row->id);
    /* Most changes leave the name and the kind alone: then no index has to be touched. */
    if (index_row_write(tx, STATEMENT_NODE_UPDATE_IN_PLACE, &index_table_nodes, row, &changes,
                        err) != 0)
        return -1;
    if (changes == 0 &&
        index_row_write(tx, STATEMENT_NODE_UPDATE, &index_table_nodes, row, &changes, err) != 0)
        return name_taken(row, err);
    if (changes == 0)
        return absent(row->id, err);
    memo_keep(tx, row);
    return 0;
}

int
index_node_delete(struct index_tx *tx, int64_t id, struct err *err)
{
    int changes = 0;
    memo_forget(tx, id);
    if (index_run_int(tx, STATEMENT_NODE_DELETE, id, &changes, err) != 0)
        return -1;
    return changes > 0 ? 0 : absent(id, err);
}

int
index_node_path(struct index_tx *tx, int64_t id, char *out, size_t size, struct err *err)
{
    struct index_node row;
    char path[LIMIT_PATH + 1];
    size_t at = sizeof(path) - 1;
    path[at] = '\0';
    for (unsigned depth = 0; depth <= LIMIT_PATH_DEPTH; depth++) {
        if (index_node_get(tx, id, &row, err) != 0)
            return -1;
        if ((row.flags & INDEX_NODE_ORPHAN) != 0)
            return err_set(err, ERR_NOT_FOUND, "the file was removed while it was open");
        if (row.parent == 0) {
            size_t len = sizeof(path) - at; /* with the NUL */
            if (len > size)
                return err_set(err, ERR_NAME_TOO_LONG, "the path is too long");
            memcpy(out, path + at, len);
            return 0;
        }
        size_t need = row.name_len + (path[at] != '\0' ? 1u : 0u);
        if (need > at)
            return err_set(err, ERR_NAME_TOO_LONG, "the path of '%s' is over %d bytes", row.name,
                           LIMIT_PATH);
        if (path[at] != '\0')
            path[--at] = '/';
        at -= row.name_len;
        memcpy(path + at, row.name, row.name_len);
        id = row.parent;
    }
    return err_set(err, ERR_CORRUPT,
                   "a path in the index is deeper than %d: run 'holdfast rebuild'",
                   LIMIT_PATH_DEPTH);
}

int
index_node_orphans(struct index_tx *tx, index_node_fn *fn, void *arg, struct err *err)
{
    scope_query query;
    if (index_query_start(tx, STATEMENT_NODE_ORPHANS, &query, err) != 0)
        return -1;
    index_bind_int(&query, 1, 0);
    return each(&query, UINT32_MAX, fn, arg, err);
}

int
index_node_usage(struct index_tx *tx, int64_t volume, uint64_t *files, uint64_t *bytes,
                 struct err *err)
{
    scope_query query;
    if (index_query_start(tx, STATEMENT_NODE_USAGE, &query, err) != 0)
        return -1;
    index_bind_int(&query, 1, volume);
    int rc = index_query_step(&query, err);
    if (rc < 0)
        return -1;
    *files = rc == 1 ? (uint64_t)sqlite3_column_int64(query.stmt, 0) : 0;
    *bytes = rc == 1 ? (uint64_t)sqlite3_column_int64(query.stmt, 1) : 0;
    return 0;
}
