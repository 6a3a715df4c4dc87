#include <string.h>

#include "versioning/index_impl.h"

/* Small named values, the counters, and the sequence. */

struct meta {
    char name[64];
    char value[512];
};

static const struct index_column meta_columns[] = {
    INDEX_COLUMN(meta, TEXT, name),
    INDEX_COLUMN(meta, TEXT, value),
};
const struct index_table index_table_meta = INDEX_TABLE(meta, "meta", meta_columns);

static const struct index_column counter_columns[] = {
    INDEX_COLUMN(index_counters, INT, id),
    INDEX_COLUMN(index_counters, UINT, sequence),
    INDEX_COLUMN_AS(index_counters, INT, "volume", last[COUNTER_VOLUME]),
    INDEX_COLUMN_AS(index_counters, INT, "node", last[COUNTER_NODE]),
    INDEX_COLUMN_AS(index_counters, INT, "content", last[COUNTER_CONTENT]),
    INDEX_COLUMN_AS(index_counters, INT, "version", last[COUNTER_VERSION]),
    INDEX_COLUMN_AS(index_counters, INT, "mount", last[COUNTER_MOUNT]),
};
const struct index_table index_table_counters =
    INDEX_TABLE(index_counters, "counters", counter_columns);

/* Copies with its NUL; false when it does not fit. */
static bool
put_text(char *out, size_t size, const char *text)
{
    size_t len = strlen(text);
    if (len >= size)
        return false;
    memcpy(out, text, len + 1);
    return true;
}

int
index_meta_get(struct index_tx *tx, const char *name, char *out, size_t size, struct err *err)
{
    struct meta row;
    scope_query query;
    if (index_query_start(tx, STATEMENT_META_GET, &query, err) != 0)
        return -1;
    index_bind_text(&query, 1, name);
    int rc = index_query_row(&query, &index_table_meta, &row, err);
    if (rc == 0)
        return err_set(err, ERR_NOT_FOUND, "the index holds no '%s'", name);
    if (rc < 0)
        return -1;
    if (!put_text(out, size, row.value))
        return err_set(err, ERR_TOO_LARGE, "'%s' in the index is too long", name);
    return 0;
}

int
index_meta_set(struct index_tx *tx, const char *name, const char *value, struct err *err)
{
    struct meta row;
    if (!put_text(row.name, sizeof(row.name), name) ||
        !put_text(row.value, sizeof(row.value), value))
        return err_set(err, ERR_TOO_LARGE, "'%s' is too long for the index", name);
    return index_row_write(tx, STATEMENT_META_PUT, &index_table_meta, &row, NULL, err);
}

uint64_t
index_sequence(struct index_tx *tx)
{
    if (tx->writing)
        return tx->sequence;
    struct index_counters row;
    struct err err = ERR_INIT;
    scope_query query;
    if (index_query_start(tx, STATEMENT_COUNTERS_GET, &query, &err) != 0 ||
        index_query_row(&query, &index_table_counters, &row, &err) != 1)
        return 0; /* as if nothing had changed since: the caller judges nothing from it */
    return row.sequence;
}
