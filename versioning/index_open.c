#include <string.h>

#include "base/hash.h"
#include "versioning/index_impl.h"

/* What a takeover needs: open files, and the answers to requests that the kernel may send again (INV-13). */

static const struct index_column open_columns[] = {
    INDEX_COLUMN(index_open, INT, connection), INDEX_COLUMN(index_open, UINT, fh),
    INDEX_COLUMN(index_open, INT, node),       INDEX_COLUMN(index_open, BOOL, writable),
    INDEX_COLUMN(index_open, INT, error),
};
const struct index_table index_table_opens = INDEX_TABLE(index_open, "opens", open_columns);
/* Replies have no fixed size: read and written below, by hand. */
const struct index_table index_table_answers = { .name = "answers" };

int
index_open_put(struct index_tx *tx, const struct index_open *row, struct err *err)
{
    return index_row_write(tx, STATEMENT_OPEN_PUT, &index_table_opens, row, NULL, err);
}

int
index_open_delete(struct index_tx *tx, int64_t connection, uint64_t fh, struct err *err)
{
    scope_query query;
    if (index_change_start(tx, STATEMENT_OPEN_DELETE, &query, err) != 0)
        return -1;
    index_bind_int(&query, 1, connection);
    index_bind_int(&query, 2, (int64_t)fh);
    return index_query_step(&query, err);
}

int
index_open_each(struct index_tx *tx, int64_t connection, index_open_fn *fn, void *arg,
                struct err *err)
{
    struct index_open row;
    scope_query query;
    enum index_statement id = connection == 0 ? STATEMENT_OPEN_EACH_ALL : STATEMENT_OPEN_EACH;
    if (index_query_start(tx, id, &query, err) != 0)
        return -1;
    if (connection != 0)
        index_bind_int(&query, 1, connection);
    int rc;
    while ((rc = index_query_row(&query, &index_table_opens, &row, err)) == 1) {
        if ((rc = fn(arg, &row, err)) != 0)
            break;
    }
    return rc < 0 ? -1 : 0;
}

static int
run_all(struct index_tx *tx, enum index_statement id, struct err *err)
{
    scope_query query;
    if (index_change_start(tx, id, &query, err) != 0)
        return -1;
    return index_query_step(&query, err);
}

int
index_open_drop_connection(struct index_tx *tx, int64_t connection, struct err *err)
{
    if (connection == 0)
        return run_all(tx, STATEMENT_OPEN_DROP_ALL, err) != 0 ||
                       run_all(tx, STATEMENT_ANSWER_DROP_ALL, err) != 0
                   ? -1
                   : 0;
    if (index_run_int(tx, STATEMENT_OPEN_DROP, connection, NULL, err) != 0)
        return -1;
    return index_run_int(tx, STATEMENT_ANSWER_DROP, connection, NULL, err);
}

int
index_answer_drop_others(struct index_tx *tx, int64_t connection, uint32_t first, uint32_t end,
                         struct err *err)
{
    scope_query query;
    if (index_change_start(tx, STATEMENT_ANSWER_DROP_OTHERS, &query, err) != 0)
        return -1;
    index_bind_int(&query, 1, connection);
    index_bind_int(&query, 2, first);
    index_bind_int(&query, 3, end);
    return index_query_step(&query, err);
}

int
index_answer_forget(struct index_tx *tx, int64_t connection, uint64_t unique, struct err *err)
{
    scope_query query;
    if (index_change_start(tx, STATEMENT_ANSWER_FORGET, &query, err) != 0)
        return -1;
    index_bind_int(&query, 1, connection);
    index_bind_int(&query, 2, (int64_t)unique);
    return index_query_step(&query, err);
}

static uint32_t
answer_crc(int64_t connection, int64_t slot, uint64_t unique, const void *reply, size_t len)
{
    uint64_t head[3] = { (uint64_t)connection, (uint64_t)slot, unique };
    uint8_t bytes[sizeof(head)];
    for (unsigned i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)(head[i / 8] >> (8 * (i % 8)));
    return crc32c(crc32c(0, bytes, sizeof(bytes)), reply, len);
}

int /* NOLINTNEXTLINE(readability-function-size): the contract has seven parameters */
index_answer_put(struct index_tx *tx, int64_t connection, uint32_t slot, uint64_t unique,
                 const void *reply, size_t len, struct err *err)
{
    scope_query query;
    if (index_change_start(tx, STATEMENT_ANSWER_PUT, &query, err) != 0)
        return -1;
    index_bind_int(&query, 1, connection);
    index_bind_int(&query, 2, slot);
    index_bind_int(&query, 3, (int64_t)unique);
    index_bind_bytes(&query, 4, reply, len);
    index_bind_int(&query, 5, answer_crc(connection, slot, unique, reply, len));
    return index_query_step(&query, err);
}

int /* NOLINTNEXTLINE(readability-function-size): the contract has seven parameters */
index_answer_get(struct index_tx *tx, int64_t connection, uint64_t unique, void *out, size_t size,
                 size_t *len, struct err *err)
{
    scope_query query;
    if (index_query_start(tx, STATEMENT_ANSWER_GET, &query, err) != 0)
        return -1;
    index_bind_int(&query, 1, connection);
    index_bind_int(&query, 2, (int64_t)unique);
    int rc = index_query_step(&query, err);
    if (rc < 0)
        return -1;
    if (rc == 0)
        return err_set(err, ERR_NOT_FOUND, "no answer is kept for request %llu",
                       (unsigned long long)unique);
    const void *reply = sqlite3_column_blob(query.stmt, 0);
    size_t reply_len = (size_t)sqlite3_column_bytes(query.stmt, 0);
    int64_t slot = sqlite3_column_int64(query.stmt, 2);
    if (sqlite3_column_int64(query.stmt, 1) !=
        (int64_t)answer_crc(connection, slot, unique, reply, reply_len))
        return err_set(err, ERR_CORRUPT, "a row of table 'answers' of the index is damaged");
    if (reply_len > size)
        return err_set(err, ERR_TOO_LARGE, "a kept answer is too long");
    if (reply_len > 0)
        memcpy(out, reply, reply_len);
    *len = reply_len;
    return 0;
}
