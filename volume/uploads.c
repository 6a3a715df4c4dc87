#include <errno.h>

#include "base/log.h"
#include "base/scope.h"
#include "base/ticker.h"
#include "volume/uploads.h"

/*
 * Uploads in parts. Each is in the index before its first part goes out, and its row goes with the end of its PUT. A row that
 * stays is a leftover: of a process that died, or of a PUT whose end is not known. It is ended before its key is looked at, so
 * that nothing of it can land afterwards, and by a thread at the start and once a day.
 *
 * What the bucket lists as unfinished and no row names is another client's, or that of an index that was lost. Below a volume
 * it may be another client at work, and is left alone whatever its age; only its number is told. Below `.holdfast/` nobody but
 * Holdfast writes: there it is ended when it is so old that no gateway can still be at it.
 */

#define LEFT_OVER (24 * 3600 * NS_PER_S) /* a recorded one that is so old is not at work any more */
#define NOBODYS (7 * 24 * 3600 * NS_PER_S) /* the same of one that another gateway may have begun */
#define SWEEP_EVERY (24 * 3600 * NS_PER_S)
#define SWEEP_RETRY (10 * 60 * NS_PER_S)
#define LANDS_LATE (20 * 60 * NS_PER_S)
#define OURS ".holdfast/"
#define COPY "copy:"
#define BATCH 64u

struct uploads {
    struct volume_service *service;
    char life[ULID_SIZE]; /* this process's: rows with another one are leftovers */
    pthread_mutex_t lock; /* a leaf */
    struct ticker *ticker;
    uint64_t foreign; /* found by the last sweep */
    atomic_uint rows; /* about as many as the table has; 0 is exact */
};

/* ---- rows ---- */

struct rows_call {
    struct uploads *uploads;
    struct index_tx *tx; /* NULL: only counted */
    const char *key;     /* NULL: all that are left over */
    int64_t now_ns;
    size_t count;
    struct index_upload row[BATCH];
};

/* Whoever brings the key to its state looks first whether it landed. */
static bool
is_attempted(struct index_tx *tx, const char *key)
{
    struct index_intent intent;
    struct err ignored = ERR_INIT;
    return index_intent_get(tx, key, &intent, &ignored) == 0 && intent.attempt.op != SYNC_OP_NONE;
}

static int
collect(void *arg, const struct index_upload *row, struct err *err)
{
    struct rows_call *call = arg;
    (void)err;
    bool over = strcmp(row->life, call->uploads->life) != 0 ||
                call->now_ns - row->begun_ns > LEFT_OVER || call->key != NULL;
    if (over && call->key == NULL && call->tx != NULL && is_attempted(call->tx, row->key))
        over = false;
    if (over && call->count < BATCH)
        call->row[call->count++] = *row;
    return 0;
}

static int
collect_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct rows_call *call = arg;
    call->tx = tx;
    return call->key != NULL ? index_upload_of_key(tx, call->key, collect, call, err)
                             : index_upload_each(tx, collect, call, err);
}

static int
put_tx(struct index_tx *tx, void *arg, struct err *err)
{
    return index_upload_put(tx, arg, err);
}

static int
delete_tx(struct index_tx *tx, void *arg, struct err *err)
{
    return index_upload_delete(tx, arg, err);
}

int
uploads_begin(struct volume_service *service, int64_t volume, const char *key, const char *id,
              struct err *err)
{
    struct index_upload row = { .volume = volume, .begun_ns = clock_wall_ns() };
    if (strlen(id) >= sizeof(row.id))
        return err_set(err, ERR_STORE_BAD_ANSWER, "the store gave an upload id of %zu bytes",
                       strlen(id));
    text_set(row.id, id);
    text_set(row.key, key);
    text_set(row.life, service->uploads->life);
    atomic_fetch_add(&service->uploads->rows, 1);
    return index_write(service->index, INDEX_FULL, put_tx, &row, err);
}

/* A copy has no id of the store: its row is named by the key that it writes. */
static void
copy_id(const char *to, char out[INDEX_UPLOAD_ID])
{
    (void)snprintf(out, INDEX_UPLOAD_ID, COPY "%.*s", INDEX_UPLOAD_ID - (int)sizeof(COPY), to);
}

int
uploads_begin_copy(struct volume_service *service, int64_t volume, const char *to, struct err *err)
{
    char id[INDEX_UPLOAD_ID];
    copy_id(to, id);
    return uploads_begin(service, volume, to, id, err);
}

int
uploads_copied_tx(struct index_tx *tx, const char *to, struct err *err)
{
    char id[INDEX_UPLOAD_ID];
    copy_id(to, id);
    return index_upload_delete(tx, id, err);
}

/* The copy of a process that died may land as late as any request (docs/mechanisms.md section 6); its key is its own, so what
 * lies there is nobody's and goes without a condition. */
static int
end_copy(struct volume_service *service, const struct index_upload *row, struct err *err)
{
    enum store_outcome outcome;
    const struct store_delete gone = { .key = row->key };
    if (clock_wall_ns() - row->begun_ns < LANDS_LATE)
        return err_set(err, ERR_BUSY, "the copy may still land");
    return store_delete(service->store, &gone, &outcome, err);
}

static int
end_row(struct volume_service *service, const struct index_upload *row, const char *id,
        struct err *err)
{
    if (strncmp(id, COPY, sizeof(COPY) - 1) == 0 && strncmp(row->key, OURS, sizeof(OURS) - 1) == 0)
        return end_copy(service, row, err);
    return store_upload_abort(service->store, row->key, id, 0, err);
}

/* Ends what was collected; how many could not be ended comes back. */
static size_t
abort_rows(struct volume_service *service, const struct rows_call *call)
{
    size_t left = 0;
    for (size_t i = 0; i < call->count; i++) {
        const struct index_upload *row = &call->row[i];
        struct err err = ERR_INIT;
        char id[INDEX_UPLOAD_ID];
        text_set(id, row->id);
        if (atomic_load(&service->stopping) || end_row(service, row, id, &err) != 0 ||
            index_write(service->index, INDEX_NORMAL, delete_tx, id, &err) != 0) {
            log_warn(sync, "an unfinished upload cannot be ended yet key=%s why=%s", row->key,
                     err.msg);
            left++;
            continue;
        }
        log_info(sync, "ended an unfinished upload key=%s", row->key);
    }
    return left;
}

static int
abort_leftovers(struct volume_service *service, const char *key, bool *ended)
{
    struct uploads *uploads = service->uploads;
    struct err err = ERR_INIT;
    *ended = false;
    if (atomic_load(&uploads->rows) == 0)
        return 0;
    struct rows_call *call = calloc(1, sizeof(*call));
    if (call == NULL)
        return -1;
    call->uploads = uploads;
    call->key = key;
    call->now_ns = clock_wall_ns();
    int rc = index_read(service->index, collect_tx, call, &err);
    size_t left = rc == 0 ? abort_rows(service, call) : 0;
    *ended = rc == 0 && call->count > left;
    if (left > 0)
        rc = -1;
    free(call);
    return rc;
}

bool
uploads_end_of_key(struct volume_service *service, const char *key)
{
    bool ended;
    if (abort_leftovers(service, key, &ended) != 0)
        log_debug(sync, "an upload of the key stays for the next sweep key=%s", key);
    return ended;
}

/* ---- what the bucket lists ---- */

struct listed_call {
    struct volume_service *service;
    bool ours; /* below .holdfast/ */
    int64_t now_ns;
    uint64_t foreign;
    size_t count;
    struct {
        char key[LIMIT_KEY + 1];
        char id[INDEX_UPLOAD_ID];
    } old[BATCH];
};

static int
look_at_listed(void *arg, const struct store_upload *upload, struct err *err)
{
    struct listed_call *call = arg;
    /* Both are UTC; a store that does not tell the time tells nothing. */
    int64_t age = upload->initiated_ns == 0 ? 0 : call->now_ns - upload->initiated_ns;
    (void)err;
    if (age <= LEFT_OVER)
        return 0;
    if (!call->ours) {
        call->foreign++;
    } else if (age > NOBODYS && call->count < BATCH && strlen(upload->key) <= LIMIT_KEY &&
               strlen(upload->upload_id) < INDEX_UPLOAD_ID) {
        text_set(call->old[call->count].key, upload->key);
        text_set(call->old[call->count].id, upload->upload_id);
        call->count++;
    }
    return 0;
}

static int
list_below(struct listed_call *call, const char *prefix, struct err *err)
{
    call->ours = strcmp(prefix, OURS) == 0;
    return store_uploads(call->service->store, prefix, look_at_listed, call, err);
}

struct prefixes {
    size_t count;
    char prefix[BATCH][LIMIT_KEY + 1];
};

static int
collect_prefix(void *arg, const struct index_volume *row, struct err *err)
{
    struct prefixes *all = arg;
    (void)err;
    if (all->count < BATCH) {
        text_set(all->prefix[all->count], row->prefix);
        all->count++;
    }
    return 0;
}

static int
prefixes_tx(struct index_tx *tx, void *arg, struct err *err)
{
    return index_volume_each(tx, collect_prefix, arg, err);
}

static int
sweep_listed(struct volume_service *service, struct err *err)
{
    scope_free struct prefixes *all = calloc(1, sizeof(*all));
    scope_free struct listed_call *call = calloc(1, sizeof(*call));
    if (all == NULL || call == NULL)
        return err_nomem(err);
    call->service = service;
    call->now_ns = clock_wall_ns();
    if (index_read(service->index, prefixes_tx, all, err) != 0 || list_below(call, OURS, err) != 0)
        return -1;
    for (size_t i = 0; i < all->count; i++)
        if (list_below(call, all->prefix[i], err) != 0)
            return -1;
    for (size_t i = 0; i < call->count && !atomic_load(&service->stopping); i++) {
        struct err why = ERR_INIT;
        if (store_upload_abort(service->store, call->old[i].key, call->old[i].id, 0, &why) != 0)
            log_warn(sync, "an old upload cannot be ended key=%s why=%s", call->old[i].key,
                     why.msg);
    }
    pthread_mutex_lock(&service->uploads->lock);
    service->uploads->foreign = call->foreign;
    pthread_mutex_unlock(&service->uploads->lock);
    return 0;
}

int
uploads_sweep(struct volume_service *service, struct err *err)
{
    bool ended;
    int rc = abort_leftovers(service, NULL, &ended);
    if (service->store->caps.list_uploads == STORE_YES && sweep_listed(service, err) != 0)
        return -1;
    return rc == 0 ? 0 : err_set(err, ERR_STORE_AWAY, "some uploads could not be ended");
}

/* ---- the thread ---- */

static int64_t
sweep_now(void *arg)
{
    struct err err = ERR_INIT;
    int rc = uploads_sweep(arg, &err);
    if (rc != 0)
        log_debug(sync, "the sweep of uploads did not end well: %s", err.msg);
    return rc == 0 ? SWEEP_EVERY : SWEEP_RETRY;
}

static int
count_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct rows_call *call = arg;
    return index_upload_each(tx, collect, call, err);
}

int
uploads_open(struct volume_service *service, struct err *err)
{
    struct uploads *uploads = calloc(1, sizeof(*uploads));
    scope_free struct rows_call *call = calloc(1, sizeof(*call));
    if (uploads == NULL || call == NULL) {
        free(uploads);
        return err_nomem(err);
    }
    pthread_mutex_init(&uploads->lock, NULL);
    uploads->service = service;
    service->uploads = uploads;
    call->uploads = uploads;
    if (ulid_new(uploads->life, err) != 0 || index_read(service->index, count_tx, call, err) != 0)
        return -1;
    atomic_store(&uploads->rows, (unsigned)call->count);
    return 0;
}

int
uploads_start(struct volume_service *service, struct err *err)
{
    service->uploads->ticker = ticker_start("hf-uploads", 0, sweep_now, service, err);
    return service->uploads->ticker != NULL ? 0 : -1;
}

void
uploads_close(struct volume_service *service)
{
    if (service->uploads == NULL)
        return;
    ticker_stop(service->uploads->ticker);
    service->uploads->ticker = NULL;
}

void
uploads_release(struct volume_service *service)
{
    struct uploads *uploads = service->uploads;
    if (uploads == NULL)
        return;
    pthread_mutex_destroy(&uploads->lock);
    free(uploads);
    service->uploads = NULL;
}

static int
count_row(void *arg, const struct index_upload *row, struct err *err)
{
    uint64_t *count = arg;
    (void)row;
    (void)err;
    (*count)++;
    return 0;
}

int
uploads_count(struct volume_service *service, struct index_tx *tx, uint64_t *open,
              uint64_t *foreign, struct err *err)
{
    struct uploads *uploads = service->uploads;
    *open = 0;
    pthread_mutex_lock(&uploads->lock);
    *foreign = uploads->foreign;
    pthread_mutex_unlock(&uploads->lock);
    return index_upload_each(tx, count_row, open, err);
}
