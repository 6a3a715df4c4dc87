#include "versioning/index_impl.h"

/* Tokens and sessions: who may ask over HTTP. */

static const struct index_column token_columns[] = {
    INDEX_COLUMN(index_token, TEXT, id),        INDEX_COLUMN(index_token, TEXT, hash),
    INDEX_COLUMN(index_token, INT, volume),     INDEX_COLUMN(index_token, BYTES, folder),
    INDEX_COLUMN(index_token, UINT, verbs),     INDEX_COLUMN(index_token, TEXT, run),
    INDEX_COLUMN(index_token, BYTES, label),    INDEX_COLUMN(index_token, INT, created_ns),
    INDEX_COLUMN(index_token, INT, expires_ns),
};
const struct index_table index_table_tokens = INDEX_TABLE(index_token, "tokens", token_columns);

static const struct index_column session_columns[] = {
    INDEX_COLUMN(index_session, TEXT, hash),
    INDEX_COLUMN(index_session, INT, created_ns),
    INDEX_COLUMN(index_session, INT, expires_ns),
};
const struct index_table index_table_sessions =
    INDEX_TABLE(index_session, "sessions", session_columns);

/* The row whose first parameter is `text`; `what` names it when there is none. */
static int
find_text(struct index_tx *tx, enum index_statement id, const char *text,
          const struct index_table *table, void *out, struct err *err)
{
    scope_query query;
    if (index_query_start(tx, id, &query, err) != 0)
        return -1;
    index_bind_text(&query, 1, text);
    int rc = index_query_row(&query, table, out, err);
    if (rc == 0)
        return err_set(err, ERR_NOT_FOUND, "there is no such row in '%s'", table->name);
    return rc < 0 ? -1 : 0;
}

static int
delete_text(struct index_tx *tx, enum index_statement id, const char *text, struct err *err)
{
    scope_query query;
    if (index_change_start(tx, id, &query, err) != 0)
        return -1;
    index_bind_text(&query, 1, text);
    return index_query_step(&query, err) < 0 ? -1 : 0;
}

int
index_token_insert(struct index_tx *tx, const struct index_token *row, struct err *err)
{
    return index_row_write(tx, STATEMENT_TOKEN_INSERT, &index_table_tokens, row, NULL, err);
}

int
index_token_find(struct index_tx *tx, const char *hash, struct index_token *out, struct err *err)
{
    return find_text(tx, STATEMENT_TOKEN_FIND, hash, &index_table_tokens, out, err);
}

int
index_token_get(struct index_tx *tx, const char *id, struct index_token *out, struct err *err)
{
    struct err missing = ERR_INIT;
    if (find_text(tx, STATEMENT_TOKEN_GET, id, &index_table_tokens, out, &missing) == 0)
        return 0;
    if (missing.code != ERR_NOT_FOUND)
        return err_set(err, missing.code, "%s", missing.msg);
    return err_set(err, ERR_NOT_FOUND, "there is no token '%s'", id);
}

int
index_token_delete(struct index_tx *tx, const char *id, struct err *err)
{
    struct index_token row;
    if (index_token_get(tx, id, &row, err) != 0)
        return -1;
    return delete_text(tx, STATEMENT_TOKEN_DELETE, id, err);
}

int
index_token_each(struct index_tx *tx, index_token_fn *fn, void *arg, struct err *err)
{
    struct index_token row;
    scope_query query;
    if (index_query_start(tx, STATEMENT_TOKEN_EACH, &query, err) != 0)
        return -1;
    int rc;
    while ((rc = index_query_row(&query, &index_table_tokens, &row, err)) == 1) {
        if ((rc = fn(arg, &row, err)) != 0)
            break;
    }
    return rc < 0 ? -1 : 0;
}

int
index_token_forget(struct index_tx *tx, int64_t before_ns, struct err *err)
{
    return index_run_int(tx, STATEMENT_TOKEN_DELETE_EXPIRED, before_ns, NULL, err);
}

int
index_session_insert(struct index_tx *tx, const struct index_session *row, struct err *err)
{
    return index_row_write(tx, STATEMENT_SESSION_INSERT, &index_table_sessions, row, NULL, err);
}

int
index_session_find(struct index_tx *tx, const char *hash, struct index_session *out,
                   struct err *err)
{
    return find_text(tx, STATEMENT_SESSION_GET, hash, &index_table_sessions, out, err);
}

int
index_session_delete(struct index_tx *tx, const char *hash, struct err *err)
{
    return delete_text(tx, STATEMENT_SESSION_DELETE, hash, err);
}

int
index_session_forget(struct index_tx *tx, int64_t before_ns, struct err *err)
{
    return index_run_int(tx, STATEMENT_SESSION_DELETE_EXPIRED, before_ns, NULL, err);
}
