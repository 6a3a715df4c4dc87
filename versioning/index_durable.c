#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/log.h"
#include "base/sys.h"
#include "versioning/index_impl.h"

/*
 * What a durable change waits for. The writer commits with synchronous=NORMAL, which leaves the WAL in the kernel's cache;
 * here it is synced, by whoever waits and finds nobody at it, for all that was committed until then. Everybody else shares
 * that sync or the next one, and the writer goes on meanwhile: nobody who wants no durability waits for the disk.
 *
 * That a sync of the WAL makes every commit before it durable holds over checkpoints too: SQLite syncs the WAL before it
 * copies from it, and the database before it begins the WAL anew (sqlite.org/wal.html, synchronous=NORMAL).
 */

void
index_durable_init(struct index_durable *durable)
{
    durable->fd = -1;
    (void)pthread_mutex_init(&durable->mutex, NULL);
    (void)pthread_cond_init(&durable->done_more, NULL);
}

void
index_durable_release(struct index_durable *durable)
{
    scope_close_fd(&durable->fd);
    (void)pthread_cond_destroy(&durable->done_more);
    (void)pthread_mutex_destroy(&durable->mutex);
}

/* The WAL is there from the first commit on, under the same inode until the last connection closes. */
static int
open_wal(struct index *index, struct err *err)
{
    if (index->durable.fd >= 0)
        return 0;
    /* Absolute, as SQLite opened it: the working directory may be another one by now. */
    const char *path = sqlite3_filename_wal(sqlite3_db_filename(index->writer.db, "main"));
    index->durable.fd = sys->openat(AT_FDCWD, path, O_RDWR | O_NOFOLLOW, 0);
    return index->durable.fd >= 0 ? 0 : err_sys(err, errno, "cannot open the index's WAL");
}

/* INV-2: a failed sync is never tried again as a success. */
static int
sync_wal(struct index *index, struct err *err)
{
    if (open_wal(index, err) == 0 && sys->fdatasync(index->durable.fd) == 0)
        return 0;
    atomic_store(&index->disk_errno, errno);
    if (!atomic_exchange(&index->broken, true))
        log_error(index,
                  "the disk failed to keep '%s': no change is accepted until holdfast starts anew",
                  index->path);
    return -1;
}

int
index_make_durable(struct index *index, struct err *err)
{
    return index_durable_wait(index, atomic_load(&index->durable.committed), err);
}

int
index_durable_wait(struct index *index, uint64_t commit, struct err *err)
{
    struct index_durable *durable = &index->durable;
    struct err ignored = ERR_INIT;
    pthread_mutex_lock(&durable->mutex);
    while (durable->done < commit && !atomic_load(&index->broken)) {
        if (durable->syncing) {
            pthread_cond_wait(&durable->done_more, &durable->mutex);
            continue;
        }
        durable->syncing = true;
        uint64_t all = atomic_load(&durable->committed);
        pthread_mutex_unlock(&durable->mutex);
        int rc = sync_wal(index, &ignored);
        pthread_mutex_lock(&durable->mutex);
        durable->syncing = false;
        if (rc == 0)
            durable->done = all;
        pthread_cond_broadcast(&durable->done_more);
    }
    bool kept = durable->done >= commit;
    pthread_mutex_unlock(&durable->mutex);
    return kept ? 0 : index_check_broken(index, err);
}
