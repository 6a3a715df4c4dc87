#include <string.h>

#include "versioning/index_impl.h"

static const struct index_column columns[] = {
    INDEX_COLUMN(index_key, BYTES, key),     INDEX_COLUMN(index_key, INT, volume),
    INDEX_COLUMN(index_key, TEXT, etag),     INDEX_COLUMN(index_key, TEXT, version),
    INDEX_COLUMN(index_key, TEXT, sha256),   INDEX_COLUMN(index_key, UINT, size),
    INDEX_COLUMN(index_key, INT, owner),     INDEX_COLUMN(index_key, BOOL, discard),
    INDEX_COLUMN(index_key, UINT, sequence), INDEX_COLUMN(index_key, INT, modified_ns),
    INDEX_COLUMN(index_key, LATER, kept),
};
const struct index_table index_table_keys = INDEX_TABLE(index_key, "keys", columns);

int
index_key_get(struct index_tx *tx, const char *key, struct index_key *out, struct err *err)
{
    scope_query query;
    if (index_query_start(tx, STATEMENT_KEY_GET, &query, err) != 0)
        return -1;
    index_bind_bytes(&query, 1, key, strlen(key));
    int rc = index_query_row(&query, &index_table_keys, out, err);
    if (rc == 0)
        return err_set(err, ERR_NOT_FOUND, "nothing is known to lie at '%s'", key);
    return rc < 0 ? -1 : 0;
}

int
index_key_put(struct index_tx *tx, const struct index_key *row, struct err *err)
{
    struct index_key now = *row;
    now.sequence = index_sequence(tx);
    return index_row_write(tx, STATEMENT_KEY_PUT, &index_table_keys, &now, NULL, err);
}

int
index_key_delete(struct index_tx *tx, const char *key, struct err *err)
{
    scope_query query;
    if (index_change_start(tx, STATEMENT_KEY_DELETE, &query, err) != 0)
        return -1;
    index_bind_bytes(&query, 1, key, strlen(key));
    return index_query_step(&query, err);
}

int /* NOLINTNEXTLINE(readability-function-size): the contract has seven parameters */
index_key_range(struct index_tx *tx, const char *prefix, const char *after, unsigned limit,
                index_key_fn *fn, void *arg, struct err *err)
{
    struct index_key row;
    scope_query query;
    size_t prefix_len = strlen(prefix);
    const char *from = strcmp(after, prefix) > 0 ? after : prefix;
    if (index_query_start(tx, STATEMENT_KEY_FROM, &query, err) != 0)
        return -1;
    index_bind_bytes(&query, 1, from, strlen(from));
    int rc = 0;
    while (limit > 0 && (rc = index_query_row(&query, &index_table_keys, &row, err)) == 1) {
        if (strncmp(row.key, prefix, prefix_len) != 0)
            return 0;
        if (strcmp(row.key, after) <= 0 && after[0] != '\0')
            continue;
        if ((rc = fn(arg, &row, err)) != 0)
            break;
        limit--;
    }
    return rc < 0 ? -1 : 0;
}
