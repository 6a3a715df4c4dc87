#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/sys.h"
#include "versioning/index_impl.h"

/* Opening and closing. The order of tests in index_open() is such that nothing is written to a file that is refused. */

static pthread_once_t configured = PTHREAD_ONCE_INIT;

/* Each SQLite allocation would otherwise take one lock of the whole process to count bytes. */
static void
configure(void)
{
    (void)sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
}

static uint32_t
big_endian(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static int
check_format(int64_t format, struct err *err)
{
    if (format <= INDEX_FORMAT)
        return 0;
    return err_set(err, ERR_NEWER_FORMAT,
                   "the index has format %lld and this holdfast knows %d: use the newer holdfast "
                   "that wrote it",
                   (long long)format, INDEX_FORMAT);
}

/* The header of a database file (sqlite.org/fileformat.html section 1.3). Other bytes are SQLite's to judge. */
static int
check_header(const uint8_t head[100], struct err *err)
{
    bool ours = big_endian(head + 68) == INDEX_APPLICATION_ID;
    if (memcmp(head, "SQLite format 3", 16) != 0)
        return err_set(
            err, ERR_CORRUPT,
            "'index.db' is damaged or not an index: run 'holdfast rebuild', which keeps it");
    if (ours && check_format(big_endian(head + 60), err) != 0)
        return -1;
    bool shaped =
        head[16] == INDEX_PAGE_SIZE >> 8 && head[17] == 0 && head[20] == INDEX_PAGE_RESERVE;
    if ((!ours && big_endian(head + 68) != 0) || !shaped)
        return err_set(err, ERR_CORRUPT,
                       "'index.db' is damaged or another program's: run 'holdfast rebuild', "
                       "which keeps it");
    return 0;
}

/* Looks at the file without SQLite. */
static int
check_file(int dir_fd, bool create, struct err *err)
{
    uint8_t head[100];
    scope_fd int fd = sys->openat(dir_fd, "index.db", O_RDONLY, 0);
    if (fd < 0 && errno == ENOENT)
        return create ? 0
                      : err_set(err, ERR_NOT_FOUND, "there is no index: run 'holdfast rebuild'");
    if (fd < 0)
        return err_sys(err, errno, "cannot open 'index.db'");
    ssize_t len = sys_read_full(fd, head, sizeof(head), 0, err);
    if (len < 0)
        return err_wrap(err, "cannot read 'index.db'");
    if (len == 0) /* a crash while it was made */
        return create ? 0
                      : err_set(err, ERR_NOT_FOUND, "the index is empty: run 'holdfast rebuild'");
    if (len < (ssize_t)sizeof(head))
        return err_set(err, ERR_CORRUPT,
                       "'index.db' is cut short: run 'holdfast rebuild', which keeps it");
    return check_header(head, err);
}

static int
check_directory(const char *dir, int *dir_fd, struct err *err)
{
    *dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*dir_fd < 0)
        return err_sys(err, errno, "cannot open the state directory '%s'", dir);
    if (faccessat(*dir_fd, ".", W_OK | X_OK, AT_EACCESS) != 0)
        return err_sys(err, errno, "cannot write in the state directory '%s'", dir);
    return 0;
}

static int
quick_check(struct index_conn *conn, struct err *err)
{
    sqlite3_stmt *stmt = NULL;
    int rc = sqlite3_prepare_v2(conn->db, "PRAGMA quick_check(1)", -1, &stmt, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(stmt);
    int answer = 0;
    if (rc == SQLITE_ROW && strcmp((const char *)sqlite3_column_text(stmt, 0), "ok") != 0)
        answer = err_set(err, ERR_CORRUPT, "the index is damaged (%s): run 'holdfast rebuild'",
                         (const char *)sqlite3_column_text(stmt, 0));
    else if (rc != SQLITE_ROW)
        answer = index_fail(conn, rc, "check the index", err);
    (void)sqlite3_finalize(stmt);
    return answer;
}

/* WAL with our page shape; the shape counts only while the file is empty. */
static int
prepare_writer(struct index *index, struct err *err)
{
    struct index_conn *conn = &index->writer;
    int reserve = INDEX_PAGE_RESERVE;
    (void)sqlite3_file_control(conn->db, "main", SQLITE_FCNTL_RESERVE_BYTES, &reserve);
    int64_t format = 0;
    if (index_conn_exec(conn, "PRAGMA page_size = 4096; PRAGMA auto_vacuum = NONE;", err) != 0 ||
        index_conn_int(conn, "PRAGMA user_version", &format, err) != 0 ||
        check_format(format, err) != 0)
        return -1;
    return index_conn_exec(conn,
                           "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0;"
                           "PRAGMA journal_size_limit = 16777216; PRAGMA synchronous = NORMAL;",
                           err);
}

static int
load_counters(struct index *index, struct err *err)
{
    struct index_tx tx = { .index = index, .conn = &index->writer };
    scope_query query;
    if (index_query_start(&tx, STATEMENT_COUNTERS_GET, &query, err) != 0)
        return -1;
    int rc = index_query_row(&query, &index_table_counters, &index->counters, err);
    if (rc == 0)
        return err_set(err, ERR_CORRUPT, "the index has lost its counters: run 'holdfast rebuild'");
    return rc < 0 ? -1 : 0;
}

static int
open_database(struct index *index, int dir_fd, struct err *err)
{
    int64_t format = 0;
    if (index_vfs_register(index, err) != 0 ||
        index_conn_open(index, INDEX_WRITER, &index->writer, err) != 0 ||
        prepare_writer(index, err) != 0 || quick_check(&index->writer, err) != 0 ||
        index_conn_int(&index->writer, "PRAGMA user_version", &format, err) != 0)
        return -1;
    if (format == 0 && !index->options.create)
        return err_set(err, ERR_NOT_FOUND, "the index is empty: run 'holdfast rebuild'");
    if (index_schema_migrate(index, (int)format, dir_fd, err) != 0 ||
        load_counters(index, err) != 0)
        return -1;
    return index_conn_open(index, INDEX_CHECKPOINTER, &index->checkpointer, err);
}

/* Frees what there is; `clean`: the WAL is emptied and removed. */
static void
destroy(struct index *index, bool clean)
{
    index_readers_close(index);
    index_conn_close(&index->checkpointer);
    if (clean) {
        (void)sqlite3_db_config(index->writer.db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, NULL);
        int rc = sqlite3_wal_checkpoint_v2(index->writer.db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL,
                                           NULL);
        if (rc != SQLITE_OK)
            log_warn(index, "the last checkpoint of the index failed (nothing is lost): %s",
                     sqlite3_errstr(rc));
    }
    index_conn_close(&index->writer);
    index_vfs_unregister(index);
    (void)pthread_mutex_destroy(&index->queue.mutex);
    (void)pthread_cond_destroy(&index->queue.idle);
    (void)pthread_mutex_destroy(&index->checkpoint.mutex);
    (void)pthread_cond_destroy(&index->checkpoint.wake);
    (void)pthread_rwlock_destroy(&index->life);
    index_durable_release(&index->durable);
    free(index->path);
    free(index);
}

static struct index *
new_index(const char *dir, const struct index_options *options, struct err *err)
{
    struct index *index = calloc(1, sizeof(*index));
    if (index == NULL) {
        err_nomem(err);
        return NULL;
    }
    if (options != NULL)
        index->options = *options;
    (void)pthread_mutex_init(&index->queue.mutex, NULL);
    (void)pthread_cond_init(&index->queue.idle, NULL);
    (void)pthread_mutex_init(&index->checkpoint.mutex, NULL);
    (void)pthread_cond_init(&index->checkpoint.wake, NULL);
    (void)pthread_rwlock_init(&index->life, NULL);
    index->queue.last = &index->queue.first;
    index_durable_init(&index->durable);
    int len = asprintf(&index->path, "%s/index.db", dir);
    if (len < 0) {
        index->path = NULL;
        destroy(index, false);
        err_nomem(err);
        return NULL;
    }
    return index;
}

struct index *
index_open(const char *dir, const struct index_options *options, struct err *err)
{
    scope_fd int dir_fd = -1;
    (void)pthread_once(&configured, configure);
    if (check_directory(dir, &dir_fd, err) != 0 ||
        check_file(dir_fd, options != NULL && options->create, err) != 0)
        return NULL;
    struct index *index = new_index(dir, options, err);
    if (index == NULL)
        return NULL;
    if (open_database(index, dir_fd, err) != 0)
        goto fail;
    if (index_checkpoint_start(index, err) == 0)
        return index;
    index_writer_stop(index);
fail:
    destroy(index, false);
    err_wrap(err, "'%s'", dir);
    return NULL;
}

void
index_close(struct index *index)
{
    if (index == NULL)
        return;
    index_writer_stop(index);
    index_checkpoint_stop(index);
    (void)pthread_rwlock_wrlock(&index->life); /* waits for running index_read() */
    (void)pthread_rwlock_unlock(&index->life);
    destroy(index, !atomic_load(&index->broken));
}
