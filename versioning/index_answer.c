#include <string.h>

#include "base/hash.h"
#include "versioning/index_impl.h"

/* What a takeover needs: the answers to requests that the kernel may send again (INV-13). */

/* Replies have no fixed size: read and written below, by hand. */
const struct index_table index_table_answers = { .name = "answers" };

int
index_answer_drop_connection(struct index_tx *tx, int64_t connection, struct err *err)
{
    scope_query query;
    if (connection != 0)
        return index_run_int(tx, STATEMENT_ANSWER_DROP, connection, NULL, err);
    if (index_change_start(tx, STATEMENT_ANSWER_DROP_ALL, &query, err) != 0)
        return -1;
    return index_query_step(&query, err);
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
