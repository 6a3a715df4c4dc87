#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/log.h"
#include "versioning/index_impl.h"

enum form {
    FORM_RAW,
    FORM_SELECT,
    FORM_INSERT,
    FORM_REPLACE,
    FORM_UPDATE,
    FORM_UPDATE_IN_PLACE,
    FORM_DELETE
};

static const struct definition {
    enum form form;
    const struct index_table *table;
    const char *text;
} definitions[STATEMENT_COUNT] = {
#define X(name, form, table, text) [STATEMENT_##name] = { FORM_##form, table, text },
    INDEX_STATEMENTS(X)
#undef X
};

/* The columns of nodes that are in an index: an update that leaves them alone does not name them. */
#define IN_PLACE_FIXED 5 /* id, volume, parent, name, kind: what the indexes of nodes are made of */

int
index_fail(struct index_conn *conn, int rc, const char *what, struct err *err)
{
    int sys_errno = conn->db != NULL ? sqlite3_system_errno(conn->db) : 0;
    if (rc == SQLITE_IOERR_WRITE || rc == SQLITE_IOERR_FSYNC)
        sys_errno = atomic_load(&conn->index->disk_errno);
    switch (rc & 0xff) {
    case SQLITE_FULL:
        return err_set(err, ERR_NO_SPACE,
                       "cannot %s: the disk is full; free space in the state directory", what);
    case SQLITE_NOMEM:
        return err_nomem(err);
    case SQLITE_CONSTRAINT:
        return err_set(err, ERR_EXISTS, "cannot %s: the entry exists already", what);
    case SQLITE_READONLY:
        return err_set(err, ERR_READ_ONLY, "cannot %s: the state directory is read-only", what);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return err_set(err, ERR_BUSY,
                       "cannot %s: another process holds it; stop the other holdfast", what);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return err_set(err, ERR_CORRUPT, "cannot %s: it is damaged; run 'holdfast rebuild'", what);
    case SQLITE_IOERR:
        if (rc == SQLITE_IOERR_DATA)
            return err_set(err, ERR_CORRUPT, "cannot %s: a page is damaged; run 'holdfast rebuild'",
                           what);
        if (rc == SQLITE_IOERR_NOMEM)
            return err_nomem(err);
        /* EFBIG: a file size limit; the same to the user. */
        if (sys_errno == ENOSPC || sys_errno == EDQUOT || sys_errno == EFBIG)
            return err_set(err, ERR_NO_SPACE,
                           "cannot %s: the disk is full; free space in the state directory", what);
        return err_sys(err, sys_errno != 0 ? sys_errno : EIO, "cannot %s", what);
    case SQLITE_CANTOPEN:
        return err_sys(err, sys_errno != 0 ? sys_errno : EIO, "cannot %s", what);
    default:
        return err_set(err, ERR_IO, "cannot %s: %s", what, sqlite3_errstr(rc));
    }
}

/* ---- statements ---- */
static int
append_columns(struct buf *sql, const struct index_table *table, unsigned from, struct err *err)
{
    for (unsigned i = from; i < table->count; i++) {
        if (buf_appendf(sql, err, "%s, ", table->columns[i].name) != 0)
            return -1;
    }
    return buf_append_str(sql, "crc", err);
}

static int
append_marks(struct buf *sql, const struct index_table *table, unsigned from, struct err *err)
{
    for (unsigned i = from; i < table->count; i++) {
        if (buf_appendf(sql, err, "?%u, ", i + 1) != 0)
            return -1;
    }
    return buf_appendf(sql, err, "?%u", table->count + 1);
}

static int
append_update(struct buf *sql, const struct index_table *table, unsigned from, struct err *err)
{
    if (buf_appendf(sql, err, "UPDATE %s SET (", table->name) != 0 ||
        append_columns(sql, table, from, err) != 0 || buf_append_str(sql, ") = (", err) != 0 ||
        append_marks(sql, table, from, err) != 0 || buf_append_str(sql, ") WHERE ", err) != 0)
        return -1;
    for (unsigned i = 0; i < from; i++) {
        if (buf_appendf(sql, err, "%s%s = ?%u", i > 0 ? " AND " : "", table->columns[i].name,
                        i + 1) != 0)
            return -1;
    }
    return 0;
}

static int
build_sql(const struct definition *def, struct buf *sql, struct err *err)
{
    const struct index_table *table = def->table;
    switch (def->form) {
    case FORM_RAW:
        return buf_append_str(sql, def->text, err);
    case FORM_SELECT:
        if (buf_append_str(sql, "SELECT ", err) != 0 || append_columns(sql, table, 0, err) != 0)
            return -1;
        return buf_appendf(sql, err, " FROM %s %s", table->name, def->text);
    case FORM_INSERT:
    case FORM_REPLACE:
        if (buf_appendf(sql, err, "INSERT %sINTO %s(",
                        def->form == FORM_REPLACE ? "OR REPLACE " : "", table->name) != 0 ||
            append_columns(sql, table, 0, err) != 0 ||
            buf_append_str(sql, ") VALUES (", err) != 0 || append_marks(sql, table, 0, err) != 0)
            return -1;
        return buf_append_str(sql, ")", err);
    case FORM_UPDATE:
        return append_update(sql, table, 1, err);
    case FORM_UPDATE_IN_PLACE:
        return append_update(sql, table, IN_PLACE_FIXED, err);
    case FORM_DELETE:
        return buf_appendf(sql, err, "DELETE FROM %s %s", table->name, def->text);
    }
    return err_set(err, ERR_INTERNAL, "unknown form of statement");
}

static int
prepare(struct index_conn *conn, enum index_statement id, unsigned flags, sqlite3_stmt **out,
        struct err *err)
{
    scope_buf sql;
    buf_init(&sql, 8192);
    if (build_sql(&definitions[id], &sql, err) != 0)
        return -1;
    int rc = sqlite3_prepare_v3(conn->db, buf_cstr(&sql), (int)sql.len, flags, out, NULL);
    if (rc ==
        SQLITE_ERROR) /* a statement that does not fit the schema: a bug, or a damaged schema */
        return err_set(err, ERR_CORRUPT, "the index does not fit: %s; run 'holdfast rebuild'",
                       sqlite3_errmsg(conn->db));
    if (rc != SQLITE_OK)
        return index_fail(conn, rc, "read the index", err);
    return 0;
}

int
index_conn_run(struct index_conn *conn, enum index_statement id)
{
    struct err err = ERR_INIT;
    if (conn->statements[id] == NULL &&
        prepare(conn, id, SQLITE_PREPARE_PERSISTENT, &conn->statements[id], &err) != 0)
        return err.code == ERR_NOMEM ? SQLITE_NOMEM : SQLITE_ERROR;
    int rc = sqlite3_step(conn->statements[id]);
    int reset = sqlite3_reset(conn->statements[id]);
    return rc == SQLITE_DONE || rc == SQLITE_ROW ? reset : rc;
}

int
index_query_start(struct index_tx *tx, enum index_statement id, struct index_query *query,
                  struct err *err)
{
    struct index_conn *conn = tx->conn;
    *query = (struct index_query){ .conn = conn };
    if (conn->statements[id] == NULL &&
        prepare(conn, id, SQLITE_PREPARE_PERSISTENT, &conn->statements[id], err) != 0)
        return -1;
    if (!sqlite3_stmt_busy(conn->statements[id])) {
        query->stmt = conn->statements[id];
        return 0;
    }
    query->own = true;
    return prepare(conn, id, 0, &query->stmt, err);
}

int
index_change_start(struct index_tx *tx, enum index_statement id, struct index_query *query,
                   struct err *err)
{
    *query = (struct index_query){ .conn = tx->conn };
    if (!tx->writing)
        return err_set(err, ERR_INTERNAL, "a change to the index outside index_write()");
    return index_query_start(tx, id, query, err);
}

void
index_query_end(struct index_query *query)
{
    if (query->own) {
        (void)sqlite3_finalize(query->stmt);
    } else if (query->stmt != NULL) {
        (void)sqlite3_reset(query->stmt);
        (void)sqlite3_clear_bindings(query->stmt);
    }
    query->stmt = NULL;
}

int
index_query_step(struct index_query *query, struct err *err)
{
    int rc = sqlite3_step(query->stmt);
    if (rc == SQLITE_ROW)
        return 1;
    if (rc == SQLITE_DONE)
        return 0;
    return index_fail(query->conn, rc,
                      sqlite3_stmt_readonly(query->stmt) ? "read the index" : "change the index",
                      err);
}

/* Binding fails only for want of memory, and then step() answers with it or with a NULL that the strict tables refuse. */
void
index_bind_int(struct index_query *query, int at, int64_t value)
{
    (void)sqlite3_bind_int64(query->stmt, at, value);
}

void
index_bind_text(struct index_query *query, int at, const char *text)
{
    (void)sqlite3_bind_text(query->stmt, at, text, -1, SQLITE_STATIC);
}

void
index_bind_bytes(struct index_query *query, int at, const void *data, size_t len)
{
    /* A zero-length blob with a NULL pointer would be bound as NULL. */
    (void)sqlite3_bind_blob64(query->stmt, at, len > 0 ? data : "", len, SQLITE_STATIC);
}

/* ---- rows ---- */
static int64_t
load_int(const struct index_column *column, const void *row)
{
    const char *at = (const char *)row + column->offset;
    if (column->kind == COLUMN_BOOL) {
        bool flag;
        memcpy(&flag, at, sizeof(flag));
        return flag;
    }
    if (column->size == 8) {
        int64_t value;
        memcpy(&value, at, sizeof(value));
        return value;
    }
    assert(column->size == 4);
    uint32_t bits;
    memcpy(&bits, at, sizeof(bits));
    return column->kind == COLUMN_INT ? (int64_t)(int32_t)bits : (int64_t)bits;
}

/* False when the value does not fit the field. */
static bool
store_int(const struct index_column *column, void *row, int64_t value)
{
    char *at = (char *)row + column->offset;
    if (column->kind == COLUMN_BOOL) {
        bool flag = value != 0;
        memcpy(at, &flag, sizeof(flag));
        return value == 0 || value == 1;
    }
    if (column->size == 8) {
        memcpy(at, &value, sizeof(value));
        return true;
    }
    uint32_t bits = (uint32_t)value;
    memcpy(at, &bits, sizeof(bits));
    return load_int(column, row) == value;
}

static bool
is_number(const struct index_column *column)
{
    return column->kind == COLUMN_INT || column->kind == COLUMN_UINT ||
           column->kind == COLUMN_BOOL || column->kind == COLUMN_LATER;
}

static uint32_t
crc_int(uint32_t crc, int64_t value)
{
    uint8_t bytes[8];
    for (unsigned i = 0; i < 8; i++)
        bytes[i] = (uint8_t)((uint64_t)value >> (8 * i));
    return crc32c(crc, bytes, sizeof(bytes));
}

static uint32_t
crc_number(uint32_t crc, const struct index_column *column, int64_t value)
{
    return column->kind == COLUMN_LATER && value == 0 ? crc : crc_int(crc, value);
}

static uint32_t
crc_bytes(uint32_t crc, const void *data, size_t len)
{
    crc = crc_int(crc, (int64_t)len);
    return crc32c(crc, data, len);
}

static uint32_t
crc_start(const struct index_table *table)
{
    return crc32c(0, table->name, strlen(table->name));
}

static int
bind_row(struct index_query *query, const struct index_table *table, const void *row,
         struct err *err)
{
    uint32_t crc = crc_start(table);
    for (unsigned i = 0; i < table->count; i++) {
        const struct index_column *column = &table->columns[i];
        if (is_number(column)) {
            int64_t value = load_int(column, row);
            index_bind_int(query, (int)i + 1, value);
            crc = crc_number(crc, column, value);
            continue;
        }
        const char *text = (const char *)row + column->offset;
        size_t len = strnlen(text, column->size);
        if (len == column->size)
            return err_set(err, ERR_INTERNAL, "column '%s' is not terminated", column->name);
        if (column->kind == COLUMN_BYTES)
            index_bind_bytes(query, (int)i + 1, text, len);
        else
            (void)sqlite3_bind_text(query->stmt, (int)i + 1, text, (int)len, SQLITE_STATIC);
        crc = crc_bytes(crc, text, len);
    }
    index_bind_int(query, (int)table->count + 1, crc);
    return 0;
}

/* Puts column `i` into the row and goes on with the checksum; false when the value cannot be ours. */
static bool
read_column(sqlite3_stmt *stmt, unsigned i, const struct index_column *column, void *row,
            uint32_t *crc)
{
    int type = sqlite3_column_type(stmt, (int)i);
    if (is_number(column)) {
        if (type != SQLITE_INTEGER)
            return false;
        int64_t value = sqlite3_column_int64(stmt, (int)i);
        *crc = crc_number(*crc, column, value);
        return store_int(column, row, value);
    }
    if (type != (column->kind == COLUMN_TEXT ? SQLITE_TEXT : SQLITE_BLOB))
        return false;
    const void *data = sqlite3_column_blob(stmt, (int)i);
    size_t len = (size_t)sqlite3_column_bytes(stmt, (int)i);
    if (len >= column->size || (len > 0 && (data == NULL || memchr(data, 0, len) != NULL)))
        return false;
    char *at = (char *)row + column->offset;
    if (len > 0)
        memcpy(at, data, len);
    at[len] = '\0';
    *crc = crc_bytes(*crc, at, len);
    return true;
}

static int
damaged(struct index_query *query, const struct index_table *table, struct err *err)
{
    struct index *index = query->conn->index;
    if (!atomic_exchange(&index->damage_logged, true))
        log_error(index, "a row of table '%s' fails its checksum; run 'holdfast rebuild'",
                  table->name);
    return err_set(err, ERR_CORRUPT,
                   "a row of table '%s' of the index is damaged; run 'holdfast rebuild'",
                   table->name);
}

int
index_query_row(struct index_query *query, const struct index_table *table, void *row,
                struct err *err)
{
    int rc = index_query_step(query, err);
    if (rc != 1)
        return rc;
    uint32_t crc = crc_start(table);
    for (unsigned i = 0; i < table->count; i++) {
        if (!read_column(query->stmt, i, &table->columns[i], row, &crc))
            return damaged(query, table, err);
    }
    if (sqlite3_column_int64(query->stmt, (int)table->count) != (int64_t)crc)
        return damaged(query, table, err);
    return 1;
}

static int
run_change(struct index_query *query, int *changes, struct err *err)
{
    if (index_query_step(query, err) != 0)
        return -1;
    if (changes != NULL)
        *changes = sqlite3_changes(query->conn->db);
    return 0;
}

int
index_row_write(struct index_tx *tx, enum index_statement id, const struct index_table *table,
                const void *row, int *changes, struct err *err)
{
    scope_query query;
    if (index_change_start(tx, id, &query, err) != 0 || bind_row(&query, table, row, err) != 0)
        return -1;
    return run_change(&query, changes, err);
}

int
index_run_int(struct index_tx *tx, enum index_statement id, int64_t value, int *changes,
              struct err *err)
{
    scope_query query;
    if (index_change_start(tx, id, &query, err) != 0)
        return -1;
    index_bind_int(&query, 1, value);
    return run_change(&query, changes, err);
}

int64_t
index_counter_next(struct index_tx *tx, enum index_counter counter)
{
    assert(tx->writing);
    return ++tx->index->counters.last[counter];
}

/* ---- connections ---- */
static const char *const setup[] = {
    [INDEX_WRITER] =
        "PRAGMA busy_timeout = 10000; PRAGMA mmap_size = 0; PRAGMA foreign_keys = OFF;"
        "PRAGMA temp_store = MEMORY; PRAGMA secure_delete = OFF; PRAGMA cache_size = -16384;"
        "PRAGMA locking_mode = NORMAL; PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;",
    [INDEX_READER] =
        "PRAGMA busy_timeout = 10000; PRAGMA mmap_size = 0; PRAGMA temp_store = MEMORY;"
        "PRAGMA cache_size = -4096; PRAGMA locking_mode = NORMAL; PRAGMA trusted_schema = OFF;"
        "PRAGMA cell_size_check = ON; PRAGMA query_only = ON; PRAGMA wal_autocheckpoint = 0;",
    [INDEX_CHECKPOINTER] =
        "PRAGMA busy_timeout = 50; PRAGMA mmap_size = 0; PRAGMA locking_mode = NORMAL;"
        "PRAGMA trusted_schema = OFF; PRAGMA synchronous = NORMAL;"
        "PRAGMA wal_autocheckpoint = 0; PRAGMA journal_size_limit = 16777216;",
};

int
index_conn_exec(struct index_conn *conn, const char *sql, struct err *err)
{
    int rc = sqlite3_exec(conn->db, sql, NULL, NULL, NULL);
    return rc == SQLITE_OK
               ? 0
               : index_fail(conn, sqlite3_extended_errcode(conn->db), "use the index", err);
}

int
index_conn_int(struct index_conn *conn, const char *sql, int64_t *out, struct err *err)
{
    sqlite3_stmt *stmt = NULL;
    int rc = sqlite3_prepare_v2(conn->db, sql, -1, &stmt, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(stmt);
    if (rc == SQLITE_ROW)
        *out = sqlite3_column_int64(stmt, 0);
    (void)sqlite3_finalize(stmt);
    return rc == SQLITE_ROW ? 0 : index_fail(conn, rc, "read the index", err);
}

int
index_conn_open(struct index *index, enum index_role role, struct index_conn *conn, struct err *err)
{
    conn->index = index;
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
    if (role == INDEX_WRITER)
        flags |= SQLITE_OPEN_CREATE;
    int rc = sqlite3_open_v2(index->path, &conn->db, flags, index->vfs_name);
    if (rc != SQLITE_OK) {
        index_fail(conn, rc, "open the index", err);
        index_conn_close(conn);
        return -1;
    }
    /* Only index_close() checkpoints at the end: a refused open changes nothing. */
    (void)sqlite3_db_config(conn->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    if (index_conn_exec(conn, setup[role], err) != 0) {
        index_conn_close(conn);
        return -1;
    }
    return 0;
}

void
index_conn_close(struct index_conn *conn)
{
    for (unsigned i = 0; i < STATEMENT_COUNT; i++) {
        (void)sqlite3_finalize(conn->statements[i]);
        conn->statements[i] = NULL;
    }
    (void)sqlite3_close_v2(conn->db);
    conn->db = NULL;
}
