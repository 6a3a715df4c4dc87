#include <signal.h>

#include "base/clock.h"
#include "base/log.h"
#include "versioning/index_impl.h"

/*
 * Moves the WAL into the database beside the writer. PASSIVE does the bulk and waits for nobody. A writer that never rests
 * keeps it from reaching the end of the WAL, which could then never start over: so a second, short pass holds the writer.
 * On a full disk it fails, which harms nothing; it is tried again after a while.
 */
#define PASSIVE_PAGES ((8u << 20) / INDEX_PAGE_SIZE)
#define TRUNCATE_PAGES ((64u << 20) / INDEX_PAGE_SIZE)
#define RETRY_NS (1 * NS_PER_S)

/* After each commit, on the thread that made it. */
static int
on_commit(void *arg, sqlite3 *db, const char *name, int pages)
{
    struct index_checkpoint *checkpoint = &((struct index *)arg)->checkpoint;
    (void)db;
    (void)name;
    if ((unsigned)pages < PASSIVE_PAGES)
        return SQLITE_OK;
    pthread_mutex_lock(&checkpoint->mutex);
    checkpoint->pages = (unsigned)pages;
    if (!checkpoint->wanted &&
        (checkpoint->failed_ns == 0 || clock_mono_ns() - checkpoint->failed_ns > RETRY_NS)) {
        checkpoint->wanted = true;
        pthread_cond_signal(&checkpoint->wake);
    }
    pthread_mutex_unlock(&checkpoint->mutex);
    return SQLITE_OK;
}

static int
move_wal(struct index *index, unsigned pages)
{
    sqlite3 *db = index->checkpointer.db;
    if (atomic_load(&index->broken))
        return SQLITE_IOERR;
    int rc = sqlite3_wal_checkpoint_v2(db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    if (rc == SQLITE_OK) {
        int mode = pages > TRUNCATE_PAGES ? SQLITE_CHECKPOINT_TRUNCATE : SQLITE_CHECKPOINT_RESTART;
        rc = sqlite3_wal_checkpoint_v2(db, NULL, mode, NULL, NULL);
    }
    if (rc != SQLITE_OK && rc != SQLITE_BUSY)
        log_warn(index, "a checkpoint of the index failed and will be tried again: %s",
                 sqlite3_errstr(rc));
    return rc;
}

static void *
checkpoint_main(void *arg)
{
    struct index *index = arg;
    struct index_checkpoint *checkpoint = &index->checkpoint;
    pthread_mutex_lock(&checkpoint->mutex);
    while (!checkpoint->stop) {
        if (!checkpoint->wanted) {
            pthread_cond_wait(&checkpoint->wake, &checkpoint->mutex);
            continue;
        }
        unsigned pages = checkpoint->pages;
        pthread_mutex_unlock(&checkpoint->mutex);
        int rc = move_wal(index, pages);
        pthread_mutex_lock(&checkpoint->mutex);
        checkpoint->wanted = false;
        checkpoint->failed_ns = rc == SQLITE_OK ? 0 : clock_mono_ns();
    }
    pthread_mutex_unlock(&checkpoint->mutex);
    return NULL;
}

int
index_checkpoint_start(struct index *index, struct err *err)
{
    sigset_t all, old;
    (void)sqlite3_wal_hook(index->writer.db, on_commit, index);
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_BLOCK, &all, &old);
    int rc = pthread_create(&index->checkpoint_thread, NULL, checkpoint_main, index);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc != 0)
        return err_sys(err, rc, "cannot start the index's checkpoints");
    (void)pthread_setname_np(index->checkpoint_thread, "index-ckpt");
    index->checkpoint_started = true;
    return 0;
}

void
index_checkpoint_stop(struct index *index)
{
    if (!index->checkpoint_started)
        return;
    pthread_mutex_lock(&index->checkpoint.mutex);
    index->checkpoint.stop = true;
    pthread_cond_signal(&index->checkpoint.wake);
    pthread_mutex_unlock(&index->checkpoint.mutex);
    (void)pthread_join(index->checkpoint_thread, NULL);
}
