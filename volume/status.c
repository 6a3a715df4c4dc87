#include "volume/listing_impl.h"
#include "volume/uploads.h"

/* volume_status(). */

struct status_call {
    struct volume_service *service;
    struct volume_status *out;
    char after[LIMIT_KEY + 1];
    unsigned seen;
};

static int
count_failing(void *arg, const struct index_intent *row, struct err *err)
{
    struct status_call *call = arg;
    (void)err;
    text_set(call->after, row->key);
    call->seen++;
    call->out->uploads_failing += row->tries > 0;
    return 0;
}

static int
count_conflict(void *arg, const struct index_conflict *row, struct err *err)
{
    struct status_call *call = arg;
    (void)row;
    (void)err;
    call->out->conflicts++;
    return 0;
}

static int
status_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct status_call *call = arg;
    struct volume_status *out = call->out;
    if (index_content_unsynced(tx, 0, &out->unsynced_files, &out->unsynced_bytes, err) != 0 ||
        index_intent_count(tx, 0, &out->pending_keys, err) != 0 ||
        index_conflict_each(tx, 0, count_conflict, call, err) != 0 ||
        uploads_count(call->service, tx, &out->uploads_open, &out->uploads_foreign, err) != 0)
        return -1;
    do {
        call->seen = 0;
        if (index_intent_each(tx, 0, call->after, 256, count_failing, call, err) != 0)
            return -1;
    } while (call->seen == 256);
    return 0;
}

/* An operation tries for its whole deadline; who looks at the status wants to know sooner. */
#define SILENCE_MAX (2 * NS_PER_S)

static void
tell_silence(struct volume_status *out)
{
    int64_t silent = out->counters.silent_ns == 0 ? 0 : clock_mono_ns() - out->counters.silent_ns;
    if (!out->store_ok || silent < SILENCE_MAX)
        return;
    out->store_ok = false;
    out->store_error_code = ERR_STORE_AWAY;
    out->store_error_since_ns = clock_wall_ns() - silent;
    text_set(out->store_error, "nothing answers there; requests go on being tried");
}

int
volume_status(struct volume_service *service, struct volume_status *out, struct err *err)
{
    struct status_call call = { .service = service, .out = out };
    memset(out, 0, sizeof(*out));
    if (index_read(service->index, status_tx, &call, err) != 0)
        return -1;
    text_set(out->store_url, service->store->url);
    text_set(out->provider, service->store->provider);
    pthread_mutex_lock(&service->status_lock);
    out->store_ok = service->store_ok;
    if (!out->store_ok) {
        text_set(out->store_error, service->store_error);
        out->store_error_code = service->store_error_code;
        out->store_error_since_ns = service->store_error_since_ns;
    }
    pthread_mutex_unlock(&service->status_lock);
    out->caps = service->store->caps;
    out->degraded = out->caps.put_if_absent != STORE_YES || out->caps.put_if_match != STORE_YES;
    store_counters(service->store, &out->counters);
    tell_silence(out);
    cache_usage(service->cache, &out->cache);
    fetcher_tell(service, &out->reading);
    out->disk_low = out->cache.free_bytes < out->cache.floor_bytes || out->cache.reserve_freed;
    out->read_only = atomic_load(&service->read_only);
    text_set(out->recovered, service->recovered);
    lister_unreachable(service, &out->unreachable);
    return 0;
}

const struct store_timing *
volume_store_timing(const struct volume_service *service)
{
    return &service->store->timing;
}
