#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "versioning/index_impl.h"

/*
 * A layer over SQLite's own file layer ("unix"), one per index, that adds what SQLite leaves out:
 *  - a crc32c over number and bytes of each page of the database file, in the page's reserved bytes, tested at each read
 *    (SQLite has no page checksums; its WAL has some, so WAL frames are left alone);
 *  - when a write finds the disk full: the reserve is freed and the write is tried once more, below SQLite, so that no
 *    transaction has to run twice;
 *  - a failed sync marks the index broken (INV-2);
 *  - the frames of a transaction go to the WAL in one write: SQLite writes each in two, header and page.
 * The calls of sqlite3_io_methods are described at sqlite.org/c3ref/io_methods.html.
 */
struct file {
    sqlite3_file base;
    struct index *index;
    bool is_db, is_wal;
    /* WAL: frames that are not in the file yet; they end with a commit's last one at the latest. */
    uint8_t *frames;
    size_t have;
    sqlite3_int64 at;    /* of the first of them */
    sqlite3_int64 end;   /* the first byte behind all that was written, -1: not known */
    bool commits;        /* the last header is that of a commit's last frame */
    sqlite3_file real[]; /* of the layer below; its size is known at run time only */
};

static struct file *
up(sqlite3_file *base)
{
    return (struct file *)base;
}

static sqlite3_file *
down(sqlite3_file *base)
{
    return up(base)->real;
}

/* ---- page checksums ---- */
static bool
is_page(const struct file *file, int amount, sqlite3_int64 offset)
{
    return file->is_db && amount == INDEX_PAGE_SIZE && offset % INDEX_PAGE_SIZE == 0;
}

static uint32_t
page_crc(const uint8_t *page, sqlite3_int64 offset)
{
    uint64_t number = (uint64_t)offset / INDEX_PAGE_SIZE + 1;
    uint8_t bytes[8];
    for (unsigned i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(number >> (8 * i));
    return crc32c(crc32c(0, bytes, sizeof(bytes)), page, INDEX_PAGE_SIZE - INDEX_PAGE_RESERVE);
}

static void
page_sign(uint8_t *page, sqlite3_int64 offset)
{
    uint8_t *at = page + INDEX_PAGE_SIZE - INDEX_PAGE_RESERVE;
    uint32_t crc = page_crc(page, offset);
    for (unsigned i = 0; i < 4; i++)
        at[i] = (uint8_t)(crc >> (8 * i));
    memset(at + 4, 0, INDEX_PAGE_RESERVE - 4);
}

static bool
page_is_hole(const uint8_t *page)
{
    /* A page that was allocated and freed in one transaction is never written: a hole when a later one was. */
    return page[0] == 0 && memcmp(page, page + 1, INDEX_PAGE_SIZE - 1) == 0;
}

static bool
page_is_right(const uint8_t *page, sqlite3_int64 offset)
{
    const uint8_t *at = page + INDEX_PAGE_SIZE - INDEX_PAGE_RESERVE;
    static const uint8_t zeros[INDEX_PAGE_RESERVE - 4];
    uint32_t crc = 0;
    for (unsigned i = 0; i < 4; i++)
        crc |= (uint32_t)at[i] << (8 * i);
    return (crc == page_crc(page, offset) && memcmp(at + 4, zeros, sizeof(zeros)) == 0) ||
           page_is_hole(page);
}

/* Writes `data`; with the disk full, frees the reserve and tries once more. */
static int
write_once_more(sqlite3_file *base, const void *data, int amount, sqlite3_int64 offset)
{
    sqlite3_file *real = down(base);
    const struct index_options *options = &up(base)->index->options;
    int rc = real->pMethods->xWrite(real, data, amount, offset);
    if (rc != SQLITE_OK)
        atomic_store(&up(base)->index->disk_errno, errno);
    if (rc != SQLITE_FULL || options->free_reserve == NULL)
        return rc;
    log_warn(index, "the disk is full: freeing the reserve");
    options->free_reserve(options->free_reserve_arg);
    return real->pMethods->xWrite(real, data, amount, offset);
}

/* ---- frames of the WAL ---- */
/* sqlite.org/fileformat2.html, "WAL File Format": a frame is a header of 24 bytes and a page; bytes 4 to 7 of the header are
 * not 0 in the last frame of a commit, which is why nothing of a commit stays here. */
#define WAL_HEADER 32
#define FRAME_HEADER 24
#define FRAME_SIZE (FRAME_HEADER + INDEX_PAGE_SIZE)
#define FRAMES_MAX 31 /* SQLite's own layer takes at most 128 KiB at once */

static int
frames_flush(sqlite3_file *base)
{
    struct file *file = up(base);
    size_t have = file->have;
    file->have = 0; /* also when it fails: SQLite takes the transaction back */
    file->commits = false;
    if (have == 0)
        return SQLITE_OK;
    int rc = write_once_more(base, file->frames, (int)have, file->at);
    if (rc != SQLITE_OK)
        file->end = file->at;
    return rc;
}

/* Whether this is the next part of a frame behind everything else. */
static bool
frame_follows(const struct file *file, int amount, sqlite3_int64 offset)
{
    if (offset != file->end)
        return false;
    return file->have % FRAME_SIZE == 0 ? amount == FRAME_HEADER : amount == INDEX_PAGE_SIZE;
}

static int
wal_write(sqlite3_file *base, const void *data, int amount, sqlite3_int64 offset)
{
    struct file *file = up(base);
    static const uint8_t zeros[4];
    int rc = SQLITE_OK;
    if (file->frames == NULL)
        file->frames = malloc((size_t)FRAMES_MAX * FRAME_SIZE);
    if (file->frames == NULL || !frame_follows(file, amount, offset)) {
        if ((rc = frames_flush(base)) != SQLITE_OK)
            return rc;
        if (file->end < offset + amount || (offset == 0 && amount == WAL_HEADER))
            file->end = offset + amount;
        return write_once_more(base, data, amount, offset);
    }
    if (file->have == 0)
        file->at = offset;
    memcpy(file->frames + file->have, data, (size_t)amount);
    file->have += (size_t)amount;
    file->end = offset + amount;
    if (amount == FRAME_HEADER)
        file->commits = memcmp((const uint8_t *)data + 4, zeros, sizeof(zeros)) != 0;
    else if (file->commits || file->have == (size_t)FRAMES_MAX * FRAME_SIZE)
        rc = frames_flush(base);
    return rc;
}

static int
file_read(sqlite3_file *base, void *data, int amount, sqlite3_int64 offset)
{
    if (frames_flush(base) != SQLITE_OK)
        return SQLITE_IOERR_WRITE;
    int rc = down(base)->pMethods->xRead(down(base), data, amount, offset);
    if (rc != SQLITE_OK || !is_page(up(base), amount, offset) || page_is_right(data, offset))
        return rc;
    if (!atomic_exchange(&up(base)->index->damage_logged, true))
        log_error(index, "page %lld of '%s' is damaged; run 'holdfast rebuild'",
                  (long long)(offset / INDEX_PAGE_SIZE + 1), up(base)->index->path);
    return SQLITE_IOERR_DATA;
}

static int
file_write(sqlite3_file *base, const void *data, int amount, sqlite3_int64 offset)
{
    if (up(base)->is_wal)
        return wal_write(base, data, amount, offset);
    if (!is_page(up(base), amount, offset))
        return write_once_more(base, data, amount, offset);
    uint8_t page[INDEX_PAGE_SIZE];
    memcpy(page, data, sizeof(page));
    page_sign(page, offset);
    return write_once_more(base, page, amount, offset);
}

static int
file_sync(sqlite3_file *base, int flags)
{
    int rc = frames_flush(base);
    if (rc == SQLITE_OK)
        rc = down(base)->pMethods->xSync(down(base), flags);
    if (rc != SQLITE_OK)
        atomic_store(&up(base)->index->disk_errno, errno);
    if (rc != SQLITE_OK && !atomic_exchange(&up(base)->index->broken, true))
        log_error(index,
                  "the disk failed to keep '%s': no change is accepted until holdfast starts anew",
                  up(base)->index->path);
    return rc;
}

/* ---- the rest goes down as it is ---- */
static int
file_close(sqlite3_file *base)
{
    free(up(base)->frames); /* of no commit */
    up(base)->frames = NULL;
    return down(base)->pMethods->xClose(down(base));
}

static int
file_truncate(sqlite3_file *base, sqlite3_int64 size)
{
    up(base)->have = 0;
    up(base)->end = -1;
    return down(base)->pMethods->xTruncate(down(base), size);
}

static int
file_size(sqlite3_file *base, sqlite3_int64 *size)
{
    int rc = frames_flush(base);
    return rc == SQLITE_OK ? down(base)->pMethods->xFileSize(down(base), size) : rc;
}

static int
file_lock(sqlite3_file *base, int level)
{
    return down(base)->pMethods->xLock(down(base), level);
}

static int
file_unlock(sqlite3_file *base, int level)
{
    return down(base)->pMethods->xUnlock(down(base), level);
}

static int
file_check_reserved(sqlite3_file *base, int *out)
{
    return down(base)->pMethods->xCheckReservedLock(down(base), out);
}

static int
file_control(sqlite3_file *base, int op, void *arg)
{
    return down(base)->pMethods->xFileControl(down(base), op, arg);
}

static int
file_sector_size(sqlite3_file *base)
{
    return down(base)->pMethods->xSectorSize(down(base));
}

static int
file_characteristics(sqlite3_file *base)
{
    return down(base)->pMethods->xDeviceCharacteristics(down(base));
}

static int
file_shm_map(sqlite3_file *base, int region, int size, int extend, void volatile **out)
{
    return down(base)->pMethods->xShmMap(down(base), region, size, extend, out);
}

static int
file_shm_lock(sqlite3_file *base, int offset, int count, int flags)
{
    return down(base)->pMethods->xShmLock(down(base), offset, count, flags);
}

static void
file_shm_barrier(sqlite3_file *base)
{
    down(base)->pMethods->xShmBarrier(down(base));
}

static int
file_shm_unmap(sqlite3_file *base, int delete_too)
{
    return down(base)->pMethods->xShmUnmap(down(base), delete_too);
}

/* Version 2: no xFetch, so that no page is ever read around file_read(). */
static const sqlite3_io_methods methods = {
    .iVersion = 2,
    .xClose = file_close,
    .xRead = file_read,
    .xWrite = file_write,
    .xTruncate = file_truncate,
    .xSync = file_sync,
    .xFileSize = file_size,
    .xLock = file_lock,
    .xUnlock = file_unlock,
    .xCheckReservedLock = file_check_reserved,
    .xFileControl = file_control,
    .xSectorSize = file_sector_size,
    .xDeviceCharacteristics = file_characteristics,
    .xShmMap = file_shm_map,
    .xShmLock = file_shm_lock,
    .xShmBarrier = file_shm_barrier,
    .xShmUnmap = file_shm_unmap,
};

static struct index *
owner(sqlite3_vfs *vfs)
{
    return vfs->pAppData;
}

static int
vfs_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *base, int flags, int *out_flags)
{
    struct file *file = up(base);
    sqlite3_vfs *real = sqlite3_vfs_find("unix");
    *file = (struct file){ .index = owner(vfs),
                           .is_db = (flags & SQLITE_OPEN_MAIN_DB) != 0,
                           .is_wal = (flags & SQLITE_OPEN_WAL) != 0,
                           .end = -1 };
    int rc = real->xOpen(real, name, file->real, flags, out_flags);
    if (rc == SQLITE_OK)
        file->base.pMethods = &methods;
    return rc;
}

int
index_vfs_register(struct index *index, struct err *err)
{
    sqlite3_vfs *real = sqlite3_vfs_find("unix");
    if (real == NULL)
        return err_set(err, ERR_INTERNAL, "SQLite has no file layer");
    index->vfs =
        *real; /* all but xOpen is used as it is; those calls look at their own fields only */
    index->vfs.pNext = NULL;
    index->vfs.szOsFile = (int)sizeof(struct file) + real->szOsFile;
    index->vfs.zName = index->vfs_name;
    index->vfs.pAppData = index;
    index->vfs.xOpen = vfs_open;
    if (snprintf(index->vfs_name, sizeof(index->vfs_name), "holdfast-%p", (void *)index) < 0 ||
        sqlite3_vfs_register(&index->vfs, 0) != SQLITE_OK)
        return err_set(err, ERR_INTERNAL, "cannot register the index's file layer");
    return 0;
}

void
index_vfs_unregister(struct index *index)
{
    if (index->vfs.pAppData != NULL)
        (void)sqlite3_vfs_unregister(&index->vfs);
}
