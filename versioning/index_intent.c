#include <string.h>

#include "versioning/index_impl.h"

#define ATTEMPT(kind, field) INDEX_COLUMN_AS(index_intent, kind, "attempt_" #field, attempt.field)

static const struct index_column columns[] = {
    INDEX_COLUMN(index_intent, BYTES, key),
    INDEX_COLUMN(index_intent, INT, volume),
    INDEX_COLUMN(index_intent, INT, not_before_ns),
    INDEX_COLUMN(index_intent, UINT, tries),
    INDEX_COLUMN(index_intent, BYTES, last_error),
    INDEX_COLUMN(index_intent, INT, since_ns),
    ATTEMPT(INT, op),
    ATTEMPT(BOOL, unknown),
    ATTEMPT(INT, node),
    ATTEMPT(INT, content),
    ATTEMPT(TEXT, version),
    ATTEMPT(UINT, size),
    ATTEMPT(TEXT, md5),
    ATTEMPT(TEXT, sha256),
    ATTEMPT(BOOL, cond_absent),
    ATTEMPT(TEXT, cond_etag),
    INDEX_COLUMN(index_intent, INT, look_again_until_ns),
};
const struct index_table index_table_intents = INDEX_TABLE(index_intent, "intents", columns);

int
index_intent_get(struct index_tx *tx, const char *key, struct index_intent *out, struct err *err)
{
    scope_query query;
    if (index_query_start(tx, STATEMENT_INTENT_GET, &query, err) != 0)
        return -1;
    index_bind_bytes(&query, 1, key, strlen(key));
    int rc = index_query_row(&query, &index_table_intents, out, err);
    if (rc == 0)
        return err_set(err, ERR_NOT_FOUND, "no work is queued for '%s'", key);
    return rc < 0 ? -1 : 0;
}

int
index_intent_put(struct index_tx *tx, const struct index_intent *row, struct err *err)
{
    return index_row_write(tx, STATEMENT_INTENT_PUT, &index_table_intents, row, NULL, err);
}

int
index_intent_delete(struct index_tx *tx, const char *key, struct err *err)
{
    scope_query query;
    if (index_change_start(tx, STATEMENT_INTENT_DELETE, &query, err) != 0)
        return -1;
    index_bind_bytes(&query, 1, key, strlen(key));
    return index_query_step(&query, err);
}

static int
each(struct index_query *query, unsigned limit, index_intent_fn *fn, void *arg, struct err *err)
{
    struct index_intent row;
    int rc = 0;
    while (limit-- > 0 && (rc = index_query_row(query, &index_table_intents, &row, err)) == 1) {
        if ((rc = fn(arg, &row, err)) != 0)
            break;
    }
    return rc < 0 ? -1 : 0;
}

struct by_time {
    enum index_statement id;
    int64_t time_ns;
    unsigned limit;
};

static int
each_by_time(struct index_tx *tx, const struct by_time *which, index_intent_fn *fn, void *arg,
             struct err *err)
{
    scope_query query;
    if (index_query_start(tx, which->id, &query, err) != 0)
        return -1;
    index_bind_int(&query, 1, which->time_ns);
    return each(&query, which->limit, fn, arg, err);
}

int
index_intent_due(struct index_tx *tx, int64_t until_ns, unsigned limit, index_intent_fn *fn,
                 void *arg, struct err *err)
{
    struct by_time which = { STATEMENT_INTENT_DUE, until_ns, limit };
    return each_by_time(tx, &which, fn, arg, err);
}

int
index_intent_later(struct index_tx *tx, int64_t after_ns, unsigned limit, index_intent_fn *fn,
                   void *arg, struct err *err)
{
    struct by_time which = { STATEMENT_INTENT_LATER, after_ns, limit };
    return each_by_time(tx, &which, fn, arg, err);
}

int /* NOLINTNEXTLINE(readability-function-size): the contract has seven parameters */
index_intent_each(struct index_tx *tx, int64_t volume, const char *after, unsigned limit,
                  index_intent_fn *fn, void *arg, struct err *err)
{
    scope_query query;
    enum index_statement id = volume == 0 ? STATEMENT_INTENT_EACH_ALL : STATEMENT_INTENT_EACH;
    if (index_query_start(tx, id, &query, err) != 0)
        return -1;
    index_bind_bytes(&query, 1, after, strlen(after));
    if (volume != 0)
        index_bind_int(&query, 2, volume);
    return each(&query, limit, fn, arg, err);
}

int
index_intent_count(struct index_tx *tx, int64_t volume, uint64_t *out, struct err *err)
{
    scope_query query;
    enum index_statement id = volume == 0 ? STATEMENT_INTENT_COUNT_ALL : STATEMENT_INTENT_COUNT;
    if (index_query_start(tx, id, &query, err) != 0)
        return -1;
    if (volume != 0)
        index_bind_int(&query, 1, volume);
    if (index_query_step(&query, err) < 0)
        return -1;
    *out = (uint64_t)sqlite3_column_int64(query.stmt, 0);
    return 0;
}
