#include "base/hash.h"
#include "versioning/index_impl.h"

/* Extended attributes, all of a node in one value: it may hold any bytes, so it is no column of a row's struct. Rows end with
 * their nodes, by a trigger. */

static uint32_t
row_crc(int64_t node, const void *data, size_t len)
{
    uint8_t bytes[8];
    for (unsigned i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)((uint64_t)node >> (8 * i));
    return crc32c(crc32c(0, bytes, sizeof(bytes)), data, len);
}

int
index_xattrs_get(struct index_tx *tx, int64_t node, struct buf *out, struct err *err)
{
    scope_query query;
    if (index_query_start(tx, STATEMENT_XATTRS_GET, &query, err) != 0)
        return -1;
    index_bind_int(&query, 1, node);
    int rc = index_query_step(&query, err);
    if (rc <= 0)
        return rc;
    const void *data = sqlite3_column_blob(query.stmt, 0);
    size_t len = (size_t)sqlite3_column_bytes(query.stmt, 0);
    if (len == 0)
        data = "";
    if (sqlite3_column_int64(query.stmt, 1) != (int64_t)row_crc(node, data, len))
        return err_set(err, ERR_CORRUPT,
                       "a row of table 'xattrs' of the index is damaged; run 'holdfast rebuild'");
    return buf_append(out, data, len, err);
}

int
index_xattrs_put(struct index_tx *tx, int64_t node, const void *data, size_t len, struct err *err)
{
    scope_query query;
    if (len == 0)
        return index_run_int(tx, STATEMENT_XATTRS_DELETE, node, NULL, err);
    if (len > LIMIT_XATTRS)
        return err_set(err, ERR_NO_SPACE, "extended attributes of a file end at %d bytes",
                       LIMIT_XATTRS);
    if (index_change_start(tx, STATEMENT_XATTRS_PUT, &query, err) != 0)
        return -1;
    index_bind_int(&query, 1, node);
    index_bind_bytes(&query, 2, data, len);
    index_bind_int(&query, 3, row_crc(node, data, len));
    return index_query_step(&query, err);
}
