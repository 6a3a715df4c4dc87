#include <errno.h>
#include <signal.h>

#include "base/clock.h"
#include "base/log.h"
#include "versioning/index_impl.h"

/*
 * The writer thread: takes what is queued, runs it in one transaction, one savepoint per change, and wakes the callers
 * after the commit; nobody waits for more members to come. Durable members then wait for the disk (index_durable.c) on their
 * own threads.
 */
#define BATCH_MAX 256

int
index_check_broken(const struct index *index, struct err *err)
{
    if (!atomic_load(&index->broken))
        return 0;
    return err_set(err, ERR_IO,
                   "the disk failed to keep the index; check the disk and start holdfast anew");
}

static int
begin(struct index *index, struct err *err)
{
    struct index_conn *conn = &index->writer;
    if (index_check_broken(index, err) != 0)
        return -1;
    int rc = index_conn_run(conn, STATEMENT_BEGIN_WRITE);
    return rc == SQLITE_OK ? 0 : index_fail(conn, rc, "change the index", err);
}

/* Whether the transaction still stands: SQLite ends it by itself after some errors (disk full, I/O, no memory). */
static bool
in_transaction(const struct index *index)
{
    return sqlite3_get_autocommit(index->writer.db) == 0;
}

static void
rollback(struct index *index)
{
    if (in_transaction(index))
        (void)index_conn_run(&index->writer, STATEMENT_ROLLBACK);
}

/* Runs one change. -1: the transaction as a whole is lost, for the reason in err. */
static int
run_op(struct index *index, struct index_op *op, struct err *err)
{
    struct index_conn *conn = &index->writer;
    struct index_tx tx = { .index = index,
                           .conn = conn,
                           .writing = true,
                           .sequence = index->counters.sequence + 1,
                           .op = op };
    int rc = index_conn_run(conn, STATEMENT_SAVEPOINT);
    if (rc != SQLITE_OK)
        return index_fail(conn, rc, "change the index", err);
    op->done = true;
    op->rc = op->fn(&tx, op->arg, op->err) < 0 ? -1 : 0;
    if (!in_transaction(index)) {
        if (op->rc == 0)
            return err_set(err, ERR_IO, "cannot change the index: the transaction was lost");
        *err = *op->err;
        return -1;
    }
    if (op->rc == 0)
        index->counters.sequence++;
    if (op->rc != 0 && (rc = index_conn_run(conn, STATEMENT_ROLLBACK_TO)) != SQLITE_OK)
        return index_fail(conn, rc, "take back a change of the index", err);
    rc = index_conn_run(conn, STATEMENT_RELEASE);
    return rc == SQLITE_OK ? 0 : index_fail(conn, rc, "change the index", err);
}

static int
commit(struct index *index, uint64_t before, struct err *err)
{
    struct index_conn *conn = &index->writer;
    struct index_tx tx = { .index = index, .conn = conn, .writing = true };
    if (index->counters.sequence != before &&
        index_row_write(&tx, STATEMENT_COUNTERS_PUT, &index_table_counters, &index->counters, NULL,
                        err) != 0)
        return -1;
    int rc = index_conn_run(conn, STATEMENT_COMMIT);
    if (rc != SQLITE_OK)
        return index_fail(conn, rc, "change the index", err);
    return index_check_broken(index, err);
}

static void
wake_all(struct index_op *op)
{
    while (op != NULL) {
        struct index_op *next = op->next; /* `op` is on a stack that goes on once it is woken */
        (void)sem_post(&op->ready);
        op = next;
    }
}

/* Runs the list in one transaction. Those that ran share its fate; the rest, if any, comes back for the next. */
static struct index_op *
run_transaction(struct index *index, struct index_op *first)
{
    struct err err = ERR_INIT;
    struct index_op *op = first, *last = NULL;
    uint64_t before = index->counters.sequence;
    uint64_t number = atomic_load(&index->durable.committed) + 1;
    int rc = begin(index, &err);
    if (rc != 0) { /* nothing ran: all of them fail, and nothing is tried over and over */
        for (; op != NULL; op = op->next)
            last = op;
    }
    for (; rc == 0 && op != NULL; op = op->next) {
        op->commit = number;
        rc = run_op(index, op, &err);
        last = op;
    }
    if (rc == 0)
        rc = commit(index, before, &err);
    if (last == NULL)
        return NULL;
    last->next = NULL;
    if (rc == 0) {
        atomic_store(&index->durable.committed, number);
        wake_all(first);
        return NULL;
    }
    rollback(index);
    index->counters.sequence = before;
    for (struct index_op *lost = first; lost != NULL; lost = lost->next) {
        if (!lost->done || lost->rc == 0)
            *lost->err = err;
        lost->rc = -1;
    }
    wake_all(first);
    return op;
}

/* Waits for work; NULL when the index is being closed and nothing is left. */
static struct index_op *
take_batch(struct index_queue *queue)
{
    pthread_mutex_lock(&queue->mutex);
    while (queue->first == NULL && !queue->stop) {
        queue->sleeping = true;
        pthread_cond_wait(&queue->wake, &queue->mutex);
        queue->sleeping = false;
    }
    struct index_op *first = queue->first, *op = first;
    for (unsigned i = 1; op != NULL && op->next != NULL && i < BATCH_MAX; i++)
        op = op->next;
    queue->first = op != NULL ? op->next : NULL;
    if (queue->first == NULL)
        queue->last = &queue->first;
    if (op != NULL)
        op->next = NULL;
    pthread_mutex_unlock(&queue->mutex);
    return first;
}

static void *
writer_main(void *arg)
{
    struct index *index = arg;
    struct index_op *batch;
    while ((batch = take_batch(&index->queue)) != NULL) {
        while (batch != NULL)
            batch = run_transaction(index, batch);
    }
    return NULL;
}

int
index_write(struct index *index, enum index_durability durability, index_fn *fn, void *arg,
            struct err *err)
{
    struct index_queue *queue = &index->queue;
    struct index_op op = { .fn = fn, .arg = arg, .durability = durability, .err = err };
    if (pthread_equal(pthread_self(), index->writer_thread))
        return err_set(err, ERR_INTERNAL, "index_write() from inside a change");
    if (sem_init(&op.ready, 0, 0) != 0)
        return err_sys(err, errno, "cannot wait for the index");
    pthread_mutex_lock(&queue->mutex);
    bool stop = queue->stop;
    if (!stop) {
        *queue->last = &op;
        queue->last = &op.next;
        if (queue->sleeping)
            pthread_cond_signal(&queue->wake);
    }
    pthread_mutex_unlock(&queue->mutex);
    if (stop)
        return err_set(err, ERR_CANCELED, "the index is being closed");
    while (sem_wait(&op.ready) != 0)
        continue; /* EINTR */
    (void)sem_destroy(&op.ready);
    if (op.rc != 0 || op.durability != INDEX_FULL)
        return op.rc;
    return index_durable_wait(index, op.commit, err);
}

void
index_tx_durable(struct index_tx *tx)
{
    if (tx->op != NULL)
        tx->op->durability = INDEX_FULL;
}

int
index_writer_start(struct index *index, struct err *err)
{
    sigset_t all, old;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_BLOCK, &all, &old);
    int rc = pthread_create(&index->writer_thread, NULL, writer_main, index);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc != 0)
        return err_sys(err, rc, "cannot start the index's writer");
    (void)pthread_setname_np(index->writer_thread, "index-writer");
    index->writer_started = true;
    return 0;
}

void
index_writer_stop(struct index *index)
{
    if (!index->writer_started)
        return;
    pthread_mutex_lock(&index->queue.mutex);
    index->queue.stop = true;
    pthread_cond_signal(&index->queue.wake);
    pthread_mutex_unlock(&index->queue.mutex);
    (void)pthread_join(index->writer_thread, NULL);
}
