#include "versioning/index_impl.h"

/*
 * One read connection per thread and index. The registry lock covers both lists that a connection is in (its index's and its
 * thread's), because a thread may end while an index is closed.
 */
static pthread_mutex_t registry = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static bool key_made;

struct thread_conn {
    struct index_conn conn;
    struct thread_conn *next; /* of the same thread */
    struct thread_conns *thread;
};
struct thread_conns {
    struct thread_conn *first;
};

static void
unlink_from_index(struct index_conn *conn)
{
    struct index_conn **at = &conn->index->readers;
    while (*at != conn)
        at = &(*at)->next;
    *at = conn->next;
}

static void
thread_end(void *arg)
{
    struct thread_conns *thread = arg;
    pthread_mutex_lock(&registry);
    while (thread->first != NULL) {
        struct thread_conn *conn = thread->first;
        thread->first = conn->next;
        unlink_from_index(&conn->conn);
        index_conn_close(&conn->conn);
        free(conn);
    }
    pthread_mutex_unlock(&registry);
    free(thread);
}

static void
make_key(void)
{
    key_made = pthread_key_create(&key, thread_end) == 0;
}

static struct thread_conns *
this_thread(struct err *err)
{
    if (pthread_once(&once, make_key) != 0 || !key_made) {
        err_set(err, ERR_NOMEM, "no thread-specific data left");
        return NULL;
    }
    struct thread_conns *thread = pthread_getspecific(key);
    if (thread != NULL)
        return thread;
    thread = calloc(1, sizeof(*thread));
    if (thread == NULL || pthread_setspecific(key, thread) != 0) {
        free(thread);
        err_nomem(err);
        return NULL;
    }
    return thread;
}

static struct index_conn *
add_conn(struct index *index, struct thread_conns *thread, struct err *err)
{
    struct thread_conn *conn = calloc(1, sizeof(*conn));
    if (conn == NULL) {
        err_nomem(err);
        return NULL;
    }
    if (index_conn_open(index, INDEX_READER, &conn->conn, err) != 0) {
        free(conn);
        return NULL;
    }
    conn->thread = thread;
    pthread_mutex_lock(&registry);
    conn->next = thread->first;
    thread->first = conn;
    conn->conn.next = index->readers;
    index->readers = &conn->conn;
    pthread_mutex_unlock(&registry);
    return &conn->conn;
}

static struct index_conn *
my_conn(struct index *index, struct err *err)
{
    struct thread_conns *thread = this_thread(err);
    if (thread == NULL)
        return NULL;
    pthread_mutex_lock(&registry);
    struct thread_conn *conn = thread->first;
    while (conn != NULL && conn->conn.index != index)
        conn = conn->next;
    pthread_mutex_unlock(&registry);
    return conn != NULL ? &conn->conn : add_conn(index, thread, err);
}

static int
read_locked(struct index *index, index_fn *fn, void *arg, struct err *err)
{
    struct index_conn *conn = my_conn(index, err);
    if (conn == NULL)
        return -1;
    if (conn->busy)
        return err_set(err, ERR_INTERNAL, "index_read() from inside index_read()");
    int rc = index_conn_run(conn, STATEMENT_BEGIN_READ);
    if (rc != SQLITE_OK)
        return index_fail(conn, rc, "read the index", err);
    conn->busy = true;
    struct index_tx tx = { .index = index, .conn = conn };
    int answer = fn(&tx, arg, err) < 0 ? -1 : 0;
    conn->busy = false;
    /* Nothing was written: whether the end succeeds changes no answer, but an open transaction would hold back the
     * checkpoint. */
    rc = index_conn_run(conn, STATEMENT_COMMIT);
    if (rc != SQLITE_OK && sqlite3_get_autocommit(conn->db) == 0)
        (void)sqlite3_exec(conn->db, "ROLLBACK", NULL, NULL, NULL);
    return answer;
}

int
index_read(struct index *index, index_fn *fn, void *arg, struct err *err)
{
    (void)pthread_rwlock_rdlock(&index->life);
    int rc = read_locked(index, fn, arg, err);
    (void)pthread_rwlock_unlock(&index->life);
    return rc;
}

static void
unlink_from_thread(struct thread_conn *conn)
{
    struct thread_conn **at = &conn->thread->first;
    while (*at != conn)
        at = &(*at)->next;
    *at = conn->next;
}

void
index_readers_close(struct index *index)
{
    pthread_mutex_lock(&registry);
    while (index->readers != NULL) {
        struct thread_conn *conn = (struct thread_conn *)index->readers; /* its first member */
        index->readers = conn->conn.next;
        unlink_from_thread(conn);
        index_conn_close(&conn->conn);
        free(conn);
    }
    pthread_mutex_unlock(&registry);
}
