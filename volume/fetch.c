#include <assert.h>
#include <errno.h>

#include "base/scope.h"
#include "volume/fetch_impl.h"

/* Bytes that only the bucket has, brought for whoever needs them now. Called with inode->lock held; store I/O drops it (INV-8).
 * Who finds that somebody else brings his bytes already waits for them, not for all that is on its way. */

struct rows_call {
    int64_t node_id;
    struct index_node node;
    struct index_content content;
    bool has_content;
};

static int
read_rows(struct index_tx *tx, void *arg, struct err *err)
{
    struct rows_call *call = arg;
    memset(&call->content, 0, sizeof(call->content));
    if (index_node_get(tx, call->node_id, &call->node, err) != 0)
        return -1;
    call->has_content = call->node.content != 0;
    return call->has_content ? index_content_get(tx, call->node.content, &call->content, err) : 0;
}

static int
mark_complete(struct index_tx *tx, void *arg, struct err *err)
{
    struct inode *inode = arg;
    struct index_content row;
    if (index_content_get(tx, inode->content, &row, err) != 0)
        return err->code == ERR_NOT_FOUND ? 0 : -1;
    row.flags |= CONTENT_COMPLETE;
    return index_content_update(tx, &row, err);
}

struct attempt_call {
    const char *key;
    bool open;
};

static int
attempt_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct attempt_call *call = arg;
    struct index_intent intent;
    struct err missing = ERR_INIT;
    (void)err;
    call->open = index_intent_get(tx, call->key, &intent, &missing) == 0 &&
                 intent.attempt.op != SYNC_OP_NONE;
    return 0;
}

/* Our own request may have replaced the object, and the engine is about to find out (after a crash above all): waits a
 * moment. False when no request is open. */
static bool
await_attempt(struct volume_service *service, struct inode *inode, const struct flight *job,
              int64_t deadline_ns)
{
    struct attempt_call call = { .key = job->key };
    struct err ignored = ERR_INIT;
    uint64_t seen = sync_progress(service);
    int64_t until = clock_mono_ns() + NS_PER_S / 5;
    if (index_read(service->index, attempt_tx, &call, &ignored) != 0 || !call.open)
        return false;
    pthread_mutex_unlock(&inode->lock);
    sync_kick(service);
    (void)sync_wait(service, seen, until < deadline_ns ? until : deadline_ns);
    pthread_mutex_lock(&inode->lock);
    return true;
}

/* The object is not what the row says: look again, and say whether another try makes sense. */
static int
reresolve(struct volume_service *service, struct inode *inode, const struct flight *job,
          int64_t deadline_ns, struct err *err)
{
    struct rows_call call = { .node_id = inode->node };
    struct err local = ERR_INIT;
    if (index_read(service->index, read_rows, &call, &local) != 0) {
        *err = local;
        return -1;
    }
    if (call.content.id == inode->content && strcmp(call.node.key, job->key) != 0)
        return 0; /* it moved meanwhile */
    pthread_mutex_unlock(&inode->lock);
    int rc = bucket_observe_key(service, inode->volume, job->key, &local);
    pthread_mutex_lock(&inode->lock);
    if (rc != 0 || index_read(service->index, read_rows, &call, &local) != 0) {
        *err = local;
        return -1;
    }
    if (call.has_content && call.content.id == inode->content) {
        if (strcmp(call.content.etag, job->etag) != 0 ||
            await_attempt(service, inode, job, deadline_ns))
            return 0;
        return err_set(err, ERR_IO,
                       "the object was replaced in the bucket while the file was open, and its old "
                       "bytes are not here");
    }
    cache_put(inode->file);
    inode->file = NULL;
    inode->content = 0;
    return 0;
}

static int
wait_fetch(struct inode *inode, int64_t deadline_ns, struct err *err)
{
    struct timespec until = { .tv_sec = deadline_ns / NS_PER_S, .tv_nsec = deadline_ns % NS_PER_S };
    if (pthread_cond_timedwait(&inode->fetched, &inode->lock, &until) == ETIMEDOUT)
        return err_set(err, ERR_STORE_TIMEOUT, "the bytes did not arrive in time");
    return 0;
}

int
fetch_note_complete(struct volume_service *service, struct inode *inode, struct err *err)
{
    if ((inode->content_flags & CONTENT_COMPLETE) != 0 || !cache_complete(inode->file))
        return 0;
    if (index_write(service->index, INDEX_NORMAL, mark_complete, inode, err) != 0)
        return -1;
    inode->content_flags |= CONTENT_COMPLETE;
    return 0;
}

static void
note_failure(struct inode *inode, const struct flight *flight, const struct err *err)
{
    inode->failed_ns = clock_mono_ns();
    inode->failed_off = flight->off;
    inode->failed_end = flight->end;
    inode->failed_local = flight->local;
    inode->fetch_err = *err;
}

/* Brings [off, end) itself. 1: the object is another one by now. */
static int
fetch_once(struct volume_service *service, struct inode *inode, struct flight *flight,
           int64_t deadline_ns, struct err *err)
{
    struct err local = ERR_INIT;
    if (flight_run_locked(service, flight, deadline_ns, &local) == 0) {
        inode->failed_ns = 0;
        if (!flight->stale)
            return 0;
        if (inode->file == flight->file) {
            cache_put(inode->file);
            inode->file = NULL;
            inode->content = 0;
        }
        return 1;
    }
    note_failure(inode, flight, &local);
    *err = local;
    if (flight->local || (local.code != ERR_CONFLICT && local.code != ERR_NOT_FOUND))
        return -1;
    return reresolve(service, inode, flight, deadline_ns, err) == 0 ? 1 : -1;
}

/* The kernel asks page by page again when its read-ahead failed: the second answer is the first one, not another full
 * deadline later. */
#define FAIL_FAST_NS (NS_PER_S / 2)

static bool
failed_just_now(const struct inode *inode, uint64_t off, struct err *err)
{
    if (inode->failed_ns == 0 || clock_mono_ns() - inode->failed_ns > FAIL_FAST_NS)
        return false;
    if (off < inode->failed_off || off >= inode->failed_end)
        return false;
    if (inode->fetch_err.code == ERR_CONFLICT || inode->fetch_err.code == ERR_NOT_FOUND)
        return false; /* looked at again already */
    *err = inode->fetch_err;
    return true;
}

/* What one caller wants. */
struct bring {
    uint64_t off, len;
    struct content_need *need; /* a reader's; NULL: the bytes only have to be there */
    int64_t deadline_ns;
    bool told, joined;
};

/* True: all is there, and lent to a reader. */
static bool
is_there(struct volume_service *service, struct inode *inode, struct bring *bring)
{
    uint64_t off, len;
    if (bring->need == NULL)
        return !cache_map_missing(inode->file, bring->off, bring->len, &off, &len);
    struct cache_reading *lent = bring->need->lent;
    bool there = cache_read_begin(inode->file, bring->off, bring->len, lent);
    /* A file that has become complete is followed too, as long as somebody reads what was fetched ahead. */
    if (!bring->told && (!there || lent->listed || inode->ahead_end > 0)) {
        bring->told = true;
        readahead_saw(&inode->ahead, bring->off, bring->len, !there, service->fetcher->ahead_max);
        flight_ahead_locked(service, inode);
    }
    return there;
}

/* Waits for, or brings, the first bytes that are missing. 1: the object is another one by now. */
static int
bring_more(struct volume_service *service, struct inode *inode, struct bring *bring,
           struct err *err)
{
    uint64_t off, len, from, to, end = bring->off + bring->len;
    struct flight mine = { .may_drop = bring->need != NULL };
    if (!cache_map_missing(inode->file, bring->off, bring->len, &off, &len))
        return 0;
    if (failed_just_now(inode, off, err)) {
        if (bring->need != NULL)
            bring->need->local = inode->failed_local;
        return -1;
    }
    if (clock_mono_ns() >= bring->deadline_ns)
        return err_set(err, ERR_STORE_TIMEOUT, "the bytes did not arrive in time");
    struct flight *other = flight_at_locked(inode, off);
    if (other != NULL) {
        if (!bring->joined)
            atomic_fetch_add(&service->fetcher->joined, 1);
        bring->joined = true;
        other->ahead = false; /* wanted now, whoever closes the file */
        return wait_fetch(inode, bring->deadline_ns, err);
    }
    if (!flight_unclaimed_locked(inode, off, end, &from, &to))
        return 0;
    if (to - from > FETCH_SPAN)
        to = from + FETCH_SPAN;
    flight_begin_locked(inode, &mine, from, to);
    flight_spread_locked(service, inode, to, end, FETCH_SPAN);
    int rc = fetch_once(service, inode, &mine, bring->deadline_ns, err);
    if (rc < 0 && mine.local && bring->need != NULL)
        bring->need->local = true;
    return rc;
}

/* What comes before the first block: 0 the content file is open, 1 look again. */
static int
open_bytes(struct volume_service *service, const struct volume_ctx *ctx, struct inode *inode,
           struct bring *bring, struct err *err)
{
    struct small_rows rows;
    if (inode->file != NULL || inode->making)
        return content_open_locked(service, inode, err);
    if (inode->bringing) {
        if (ctx->nowait)
            return err_set(err, ERR_AGAIN, "bytes have to be fetched first");
        if (!bring->joined)
            atomic_fetch_add(&service->fetcher->joined, 1);
        bring->joined = true;
        return wait_fetch(inode, bring->deadline_ns, err) == 0 ? 1 : -1;
    }
    if (failed_just_now(inode, 0, err) || small_look(service, inode->node, &rows, err) != 0)
        return -1;
    if (!rows.fits)
        return content_open_locked(service, inode, err);
    if (ctx->nowait)
        return err_set(err, ERR_AGAIN, "bytes have to be fetched first");
    int rc = small_bring_locked(service, inode, &rows, bring->deadline_ns, err);
    return rc == 0 ? content_open_locked(service, inode, err) : rc < 0 ? -1 : 0;
}

static int
bring_locked(struct volume_service *service, const struct volume_ctx *ctx, struct inode *inode,
             struct bring *bring, struct err *err)
{
    bring->deadline_ns = service_deadline(ctx);
    for (unsigned changes = 0; changes < 64;) {
        int rc = open_bytes(service, ctx, inode, bring, err);
        if (rc < 0)
            return -1;
        if (rc > 0 || inode->file == NULL)
            continue;
        if (is_there(service, inode, bring))
            return ctx->nowait ? 0 : fetch_note_complete(service, inode, err);
        if (ctx->nowait)
            return err_set(err, ERR_AGAIN, "bytes have to be fetched first");
        rc = bring_more(service, inode, bring, err);
        if (rc < 0)
            return -1;
        changes += (unsigned)rc;
    }
    return err_set(err, ERR_IO, "the object keeps changing in the bucket");
}

int
content_need_locked(struct volume_service *service, const struct volume_ctx *ctx,
                    struct inode *inode, uint64_t off, uint64_t len, struct err *err)
{
    struct bring bring = { .off = off, .len = len };
    return bring_locked(service, ctx, inode, &bring, err);
}

int
content_lend_locked(struct volume_service *service, const struct volume_ctx *ctx,
                    struct inode *inode, struct content_need *need, struct err *err)
{
    struct bring bring = { .off = need->off, .len = need->len, .need = need };
    *need->lent = (struct cache_reading){ .file = NULL };
    if (bring_locked(service, ctx, inode, &bring, err) == 0)
        return 0;
    if (need->lent->file != NULL) /* there, but its row could not be written */
        cache_read_end(need->lent);
    return -1;
}

/* ---- past the cache ---- */

struct past {
    uint8_t *out;
    size_t len, have;
};

static int
take_past(void *arg, const void *data, size_t len, struct err *err)
{
    struct past *past = arg;
    if (len > past->len - past->have)
        return err_set(err, ERR_STORE_BAD_ANSWER, "the store sends more than was asked for");
    memcpy(past->out + past->have, data, len);
    past->have += len;
    return 0;
}

ssize_t
content_read_past(struct volume_service *service, const struct volume_ctx *ctx, struct inode *inode,
                  const struct content_need *need, void *out, struct err *err)
{
    struct rows_call call = { .node_id = inode->node };
    if (index_read(service->index, read_rows, &call, err) != 0)
        return -1;
    if (call.has_content && call.content.state != CONTENT_CLEAN)
        return err_set(err, ERR_IO, "the staged bytes cannot be read");
    uint64_t size = call.has_content ? call.content.size : call.node.size;
    if (need->off >= size)
        return 0;
    struct past past = { .out = out,
                         .len = need->len < size - need->off ? need->len
                                                             : (size_t)(size - need->off) };
    struct store_object object;
    struct store_get get = { .key = call.node.key,
                             .off = need->off,
                             .len = past.len,
                             .if_match = call.has_content ? call.content.etag : call.node.etag,
                             .sink = take_past,
                             .sink_arg = &past,
                             .deadline_ns = service_deadline(ctx) };
    store_object_init(&object);
    int rc = store_get(service->store, &get, &object, err);
    if (rc == 0 && (object.size != size || past.have != past.len))
        rc = err_set(err, ERR_STORE_BAD_ANSWER, "the store sent other bytes than were asked for");
    store_object_release(&object);
    atomic_fetch_add(&service->fetcher->direct, 1);
    return rc == 0 ? (ssize_t)past.len : -1;
}

/* ---- life ---- */

void
content_unused(struct volume_service *service, struct inode *inode)
{
    if (inode_is_open(&service->inodes, inode))
        return;
    pthread_mutex_lock(&inode->lock);
    for (struct flight *at = inode->flights; at != NULL; at = at->next)
        if (at->ahead)
            atomic_store(&at->cancel, true);
    uint64_t seen = 0;
    for (unsigned i = 0; i < READAHEAD_STREAMS; i++)
        if (inode->ahead.stream[i].next > seen)
            seen = inode->ahead.stream[i].next;
    if (inode->ahead_end > seen)
        atomic_fetch_add(&service->fetcher->ahead_wasted, inode->ahead_end - seen);
    inode->ahead_end = 0;
    inode->ahead = (struct readahead){ .tick = 0 };
    pthread_mutex_unlock(&inode->lock);
}

int
fetcher_open(struct volume_service *service, unsigned slots, struct err *err)
{
    struct cache_usage usage;
    struct fetcher *fetcher = calloc(1, sizeof(*fetcher));
    if (fetcher == NULL)
        return err_nomem(err);
    fetcher->service = service;
    fetcher->slots = slots;
    pthread_mutex_init(&fetcher->lock, NULL);
    cache_usage(service->cache, &usage);
    fetcher->ahead_max = usage.max_bytes / 8 < READAHEAD_MAX ? usage.max_bytes / 8 : READAHEAD_MAX;
    service->fetcher = fetcher;
    fetcher->pool = pool_new("fetch", slots, slots, err);
    return fetcher->pool != NULL ? prefetch_open(service, err) : -1;
}

void
fetcher_close(struct volume_service *service)
{
    struct fetcher *fetcher = service->fetcher;
    if (fetcher != NULL && fetcher->pool != NULL)
        pool_free(steal(&fetcher->pool));
}

void
fetcher_release(struct volume_service *service)
{
    if (service->fetcher == NULL)
        return;
    pthread_mutex_destroy(&service->fetcher->lock);
    free(steal(&service->fetcher));
}

void
fetcher_tell(struct volume_service *service, struct volume_reading *out)
{
    struct fetcher *fetcher = service->fetcher;
    *out = (struct volume_reading){ .requests = atomic_load(&fetcher->requests),
                                    .bytes = atomic_load(&fetcher->bytes),
                                    .joined = atomic_load(&fetcher->joined),
                                    .past_cache = atomic_load(&fetcher->direct),
                                    .ahead_bytes = atomic_load(&fetcher->ahead_bytes),
                                    .ahead_unread = atomic_load(&fetcher->ahead_wasted),
                                    .prefetched = atomic_load(&fetcher->prefetched),
                                    .prefetch_used = atomic_load(&fetcher->prefetch_used),
                                    .prefetch_unread = atomic_load(&fetcher->prefetch_wasted) };
}
