#include <errno.h>

#include "base/clock.h"
#include "base/log.h"
#include "versioning/index_impl.h"

/*
 * Changes run one after the other, on the thread of one of those who wait: it takes what is queued, runs it in one transaction,
 * one savepoint per change, and wakes the others after the commit. While it does, the next batch gathers, and its first member
 * gets the turn; nobody waits for more members to come. Alone, a change costs no switch of threads. Durable members then
 * wait for the disk (index_durable.c).
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
    index->volume_known = false;
    if (in_transaction(index))
        (void)index_conn_run(&index->writer, STATEMENT_ROLLBACK);
}

/* Changes nothing: who has come through is behind all that ran before. */
static int
pass_fn(struct index_tx *tx, void *arg, struct err *err)
{
    (void)tx;
    (void)arg;
    (void)err;
    return 0;
}

static bool
only_passes(const struct index_op *op)
{
    while (op != NULL && op->fn == pass_fn)
        op = op->next;
    return op == NULL;
}

/* Runs one change. -1: the transaction as a whole is lost, for the reason in err. `alone`: it is the transaction, and needs no
 * savepoint in it. */
static int
run_op(struct index *index, struct index_op *op, bool alone, struct err *err)
{
    struct index_conn *conn = &index->writer;
    struct index_tx tx = { .index = index,
                           .conn = conn,
                           .writing = true,
                           .sequence = index->counters.sequence + 1,
                           .op = op };
    if (op->fn == pass_fn) {
        op->done = true;
        return 0;
    }
    int rc = alone ? SQLITE_OK : index_conn_run(conn, STATEMENT_SAVEPOINT);
    if (rc != SQLITE_OK)
        return index_fail(conn, rc, "change the index", err);
    op->done = true;
    op->rc = op->fn(&tx, op->arg, op->err) < 0 ? -1 : 0;
    index_node_memo_clear(index);
    if (!in_transaction(index)) {
        if (op->rc == 0)
            return err_set(err, ERR_IO, "cannot change the index: the transaction was lost");
        *err = *op->err;
        return -1;
    }
    if (op->rc == 0)
        index->counters.sequence++;
    else
        index->volume_known = false;
    if (alone) {
        if (op->rc != 0)
            rollback(index);
        return 0;
    }
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
    if (only_passes(first)) {
        wake_all(first);
        return NULL;
    }
    bool alone = first->next == NULL;
    int rc = begin(index, &err);
    if (rc != 0) { /* nothing ran: all of them fail, and nothing is tried over and over */
        for (; op != NULL; op = op->next)
            last = op;
    }
    for (; rc == 0 && op != NULL; op = op->next) {
        op->commit = number;
        rc = run_op(index, op, alone, &err);
        last = op;
    }
    if (rc == 0 && in_transaction(index))
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

static struct index_op *
take_batch_locked(struct index_queue *queue)
{
    struct index_op *first = queue->first, *op = first;
    for (unsigned i = 1; op->next != NULL && i < BATCH_MAX; i++)
        op = op->next;
    queue->first = op->next;
    if (queue->first == NULL)
        queue->last = &queue->first;
    op->next = NULL;
    return first;
}

/* The changes that run now are this thread's: index_write() from inside one would wait for itself. */
static _Thread_local const struct index *leading;

/* Runs a batch for everybody in it, then hands the turn to the first who waits. The caller's own change may be in a later
 * batch. */
static void
lead_locked(struct index *index)
{
    struct index_queue *queue = &index->queue;
    struct index_op *batch = take_batch_locked(queue);
    pthread_mutex_unlock(&queue->mutex);
    leading = index;
    while (batch != NULL)
        batch = run_transaction(index, batch);
    leading = NULL;
    pthread_mutex_lock(&queue->mutex);
    if (queue->first != NULL) {
        queue->first->leads = true;
        (void)sem_post(&queue->first->ready);
        return;
    }
    queue->led = false;
    pthread_cond_broadcast(&queue->idle);
}

/* True: the turn is this thread's; false: the change was refused. */
static bool
enter_locked(struct index_queue *queue, struct index_op *op, struct err *err)
{
    if (queue->stop) {
        err_set(err, ERR_CANCELED, "the index is being closed");
        return false;
    }
    *queue->last = op;
    queue->last = &op->next;
    op->leads = !queue->led;
    queue->led = true;
    return true;
}

static void
await(struct index_op *op)
{
    while (sem_wait(&op->ready) != 0)
        continue; /* EINTR */
}

static int
run_queued(struct index *index, struct index_op *op, struct err *err)
{
    struct index_queue *queue = &index->queue;
    pthread_mutex_lock(&queue->mutex);
    if (!enter_locked(queue, op, err)) {
        pthread_mutex_unlock(&queue->mutex);
        return -1;
    }
    if (!op->leads) {
        pthread_mutex_unlock(&queue->mutex);
        await(op);
        if (!op->leads)
            return op->rc;
        pthread_mutex_lock(&queue->mutex);
    }
    /* Who has the turn is the first in the queue. */
    lead_locked(index);
    pthread_mutex_unlock(&queue->mutex);
    await(op);
    return op->rc;
}

int
index_write(struct index *index, enum index_durability durability, index_fn *fn, void *arg,
            struct err *err)
{
    struct index_op op = { .fn = fn, .arg = arg, .durability = durability, .err = err };
    if (leading == index)
        return err_set(err, ERR_INTERNAL, "index_write() from inside a change");
    if (sem_init(&op.ready, 0, 0) != 0)
        return err_sys(err, errno, "cannot wait for the index");
    int rc = run_queued(index, &op, err);
    (void)sem_destroy(&op.ready);
    if (rc != 0 || op.durability != INDEX_FULL)
        return rc;
    return index_durable_wait(index, op.commit, err);
}

int
index_pass(struct index *index, struct err *err)
{
    return index_write(index, INDEX_NORMAL, pass_fn, NULL, err);
}

void
index_tx_durable(struct index_tx *tx)
{
    if (tx->op != NULL)
        tx->op->durability = INDEX_FULL;
}

void
index_writer_stop(struct index *index)
{
    pthread_mutex_lock(&index->queue.mutex);
    index->queue.stop = true;
    while (index->queue.led)
        pthread_cond_wait(&index->queue.idle, &index->queue.mutex);
    pthread_mutex_unlock(&index->queue.mutex);
}

void
index_tx_rest(struct index_tx *tx, int64_t rest_ns)
{
    tx->rest_ns = rest_ns;
}

int64_t
index_tx_rests(const struct index_tx *tx)
{
    return tx->rest_ns;
}
