#include <limits.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/parse.h"
#include "gateway/router.h"
#include "s3/cost.h"
#include "volume/history.h"

int
gateway_state_health(struct exchange *x, struct err *err)
{
    return exchange_reply_text(x, 200, "ok\n", err);
}

int
gateway_state_ready(struct exchange *x, struct err *err)
{
    struct volume_status status;
    if (volume_status(x->gateway->service, &status, err) < 0)
        return -1;
    if (!status.store_ok)
        return err_set(err, ERR_STORE_AWAY, "the store does not answer: %s", status.store_error);
    if (status.disk_low)
        return err_set(err, ERR_NO_SPACE, "the disk of the state directory is nearly full");
    return exchange_reply_text(x, 200, "ready\n", err);
}

/* ---- status ---- */
static int
set(json_t *object, const char *name, json_t *value)
{
    return json_object_set_new(object, name, value);
}

static json_t *
counters_json(const struct store_counters *c)
{
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:i, s:i}", "gets", (json_int_t)c->gets,
        "heads", (json_int_t)c->heads, "puts", (json_int_t)c->puts, "copies", (json_int_t)c->copies,
        "lists", (json_int_t)c->lists, "upload_calls", (json_int_t)c->upload_calls, "deletes",
        (json_int_t)c->deletes, "other", (json_int_t)c->other, "slow_downs",
        (json_int_t)c->slow_downs, "limited_ms", (json_int_t)(c->limited_ns / (uint64_t)NS_PER_MS),
        "window", (int)c->window, "in_flight", (int)c->in_flight);
}

static json_t *
cost_json(const struct volume_status *status)
{
    struct cost cost;
    cost_estimate(status->provider, &status->counters, &cost);
    return json_pack("{s:I, s:I, s:I, s:o, s:o}", "class_a", (json_int_t)cost.class_a, "class_b",
                     (json_int_t)cost.class_b, "free", (json_int_t)cost.free, "usd",
                     cost.priced ? json_real(cost.usd) : json_null(), "usd_per_gb_month",
                     cost.priced ? json_real(cost.usd_per_gb_month) : json_null());
}

/* What the store lacks and somebody should know, a sentence each; what asks for nothing ("note: ") is for doctor only. */
static json_t *
limits_json(const struct store_caps *caps)
{
    struct err err = ERR_INIT;
    scope_buf words;
    json_t *out = json_array();
    buf_init(&words, 16384);
    if (!out || store_caps_explain(caps, &words, &err) < 0)
        return out;
    for (const char *line = buf_cstr(&words); *line;) {
        size_t len = strcspn(line, "\n");
        if (strncmp(line, "note: ", 6) != 0)
            (void)json_array_append_new(out, json_stringn(line, len));
        line += len + (line[len] == '\n');
    }
    return out;
}

static json_t *
store_json(const struct volume_status *status)
{
    const struct store_counters *c = &status->counters;
    char since[TIME_RFC3339_SIZE] = "";
    if (!status->store_ok)
        time_rfc3339(status->store_error_since_ns, since, sizeof(since));
    return json_pack(
        "{s:s, s:s, s:b, s:s?, s:s?, s:s?, s:b, s:o, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "url",
        status->store_url, "provider", status->provider, "ok", (int)status->store_ok, "error",
        status->store_ok ? NULL : status->store_error, "error_code",
        status->store_ok ? NULL : err_slug(status->store_error_code), "away_since",
        status->store_ok ? NULL : since, "degraded", (int)status->degraded, "limits",
        limits_json(&status->caps), "requests", (json_int_t)c->requests, "retries",
        (json_int_t)c->retries, "errors", (json_int_t)c->errors, "bytes_up",
        (json_int_t)c->bytes_up, "bytes_down", (json_int_t)c->bytes_down, "counters",
        counters_json(c), "cost", cost_json(status));
}

static json_t *
reading_json(const struct volume_reading *r)
{
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "requests", (json_int_t)r->requests,
        "bytes", (json_int_t)r->bytes, "joined", (json_int_t)r->joined, "past_cache",
        (json_int_t)r->past_cache, "ahead_bytes", (json_int_t)r->ahead_bytes, "ahead_unread",
        (json_int_t)r->ahead_unread, "prefetched", (json_int_t)r->prefetched, "prefetch_used",
        (json_int_t)r->prefetch_used, "prefetch_unread", (json_int_t)r->prefetch_unread);
}

static json_t *
cache_json(const struct cache_usage *usage)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:b}", "files", (json_int_t)usage->files,
                     "bytes", (json_int_t)usage->bytes, "staged_bytes",
                     (json_int_t)usage->pinned_bytes, "max_bytes", (json_int_t)usage->max_bytes,
                     "disk_free_bytes", (json_int_t)usage->free_bytes, "floor_bytes",
                     (json_int_t)usage->floor_bytes, "reserve_freed", (int)usage->reserve_freed);
}

static int
note_oldest(void *arg, const struct volume_unsynced *row, struct err *err)
{
    int64_t *oldest = arg;
    (void)err;
    if (*oldest == 0 || row->since_ns < *oldest)
        *oldest = row->since_ns;
    return 0;
}

int
gateway_state_oldest(struct volume_service *service, int64_t *since_ns, struct err *err)
{
    *since_ns = 0;
    return volume_unsynced_each(service, 0, 10000, note_oldest, since_ns, err);
}

struct mount_counts {
    uint64_t active, failed;
    uint64_t plain; /* without passthrough */
    char plain_why[LIMIT_ERR_MSG];
};

static int
count_mount(void *arg, const struct mount_info *info, struct err *err)
{
    struct mount_counts *counts = arg;
    (void)err;
    counts->failed += info->state == MOUNT_FAILED;
    counts->active += info->state != MOUNT_FAILED;
    if (info->state != MOUNT_ACTIVE || info->passthrough)
        return 0;
    counts->plain++;
    (void)snprintf(counts->plain_why, sizeof(counts->plain_why), "%s", info->plain_why);
    return 0;
}

static json_t *
unreachable_json(const struct volume_unreachable *what)
{
    char key[4 * LIMIT_KEY + 1];
    (void)text_escape(what->key, strlen(what->key), key, sizeof(key));
    return json_pack("{s:I, s:s, s:s}", "count", (json_int_t)what->count, "key", key, "why",
                     what->why);
}

static int
add_numbers(const struct volume_status *status, json_t *out)
{
    return set(out, "unsynced_files", json_integer((json_int_t)status->unsynced_files)) ||
           set(out, "unsynced_bytes", json_integer((json_int_t)status->unsynced_bytes)) ||
           set(out, "pending_keys", json_integer((json_int_t)status->pending_keys)) ||
           set(out, "uploads_failing", json_integer((json_int_t)status->uploads_failing)) ||
           set(out, "uploads_open", json_integer((json_int_t)status->uploads_open)) ||
           set(out, "uploads_foreign", json_integer((json_int_t)status->uploads_foreign)) ||
           set(out, "conflicts", json_integer((json_int_t)status->conflicts)) ||
           set(out, "disk_low", json_boolean(status->disk_low)) ||
           set(out, "read_only", json_boolean(status->read_only)) ||
           set(out, "unreachable", unreachable_json(&status->unreachable)) ||
           set(out, "recovered", json_string(status->recovered));
}

static int
add_places(const struct exchange *x, int64_t oldest, const struct mount_counts *counts, json_t *out)
{
    char started[TIME_RFC3339_SIZE];
    char since[TIME_RFC3339_SIZE] = "";
    time_rfc3339(x->gateway->started_ns, started, sizeof(started));
    if (oldest)
        time_rfc3339(oldest, since, sizeof(since));
    return set(out, "unsynced_since", oldest ? json_string(since) : json_null()) ||
           set(out, "mounts", json_integer((json_int_t)counts->active)) ||
           set(out, "mounts_failed", json_integer((json_int_t)counts->failed)) ||
           set(out, "mounts_plain", json_integer((json_int_t)counts->plain)) ||
           set(out, "mounts_plain_why", json_string(counts->plain_why)) ||
           set(out, "can_mount", json_boolean(x->gateway->mounts != NULL)) ||
           set(out, "state_dir", json_string(x->gateway->state_dir)) ||
           set(out, "hardening", json_string(x->gateway->hardening)) ||
           set(out, "started", json_string(started)) ||
           set(out, "pid", json_integer((json_int_t)getpid())) ||
           set(out, "takeover", gateway_takeover_json(x->gateway)) ||
           set(out, "version", json_string(HOLDFAST_VERSION));
}

static int
note_frozen(void *arg, const struct volume_info *info, struct err *err)
{
    json_t *names = arg;
    if (!info->frozen)
        return 0;
    return json_array_append_new(names, json_string(info->name)) < 0 ? err_nomem(err) : 0;
}

int
gateway_state_status(struct exchange *x, struct err *err)
{
    struct volume_status status;
    int64_t oldest = 0;
    struct mount_counts counts = { 0 };
    struct volume_history_kept kept;
    if (volume_status(x->gateway->service, &status, err) < 0 ||
        volume_history_usage(x->gateway->service, 0, &kept, err) < 0 ||
        gateway_state_oldest(x->gateway->service, &oldest, err) < 0)
        return -1;
    if (x->gateway->mounts && mount_each(x->gateway->mounts, count_mount, &counts, err) < 0)
        return -1;
    scope_json *frozen = json_array();
    if (!frozen)
        return err_nomem(err);
    if (volume_each(x->gateway->service, note_frozen, frozen, err) < 0)
        return -1;
    json_t *out = json_pack("{s:O, s:o, s:o, s:o, s:{s:I, s:I}}", "frozen", frozen, "store",
                            store_json(&status), "cache", cache_json(&status.cache), "reading",
                            reading_json(&status.reading), "history", "versions",
                            (json_int_t)kept.versions, "bytes", (json_int_t)kept.bytes);
    if (out && (add_numbers(&status, out) || add_places(x, oldest, &counts, out))) {
        json_decref(out);
        out = NULL;
    }
    return exchange_reply_json(x, 200, out, err);
}

/* ---- what is not in the bucket, and what went wrong ---- */
int
gateway_state_volume(struct exchange *x, int64_t *volume, struct err *err)
{
    struct volume_info info;
    scope_buf name;
    buf_init(&name, LIMIT_VOLUME_NAME);
    int found = gateway_request_query(&x->target, "volume", &name, err);
    *volume = x->access.volume;
    if (found <= 0)
        return found;
    if (volume_find(x->gateway->service, buf_cstr(&name), &info, err) < 0)
        return -1;
    *volume = info.id;
    return 0;
}

struct unsynced_call {
    struct exchange_list list;
    const struct gateway_access *access;
};

static int
add_unsynced(void *arg, const struct volume_unsynced *row, struct err *err)
{
    struct unsynced_call *call = arg;
    char since[TIME_RFC3339_SIZE];
    /* The volume is the token's (gateway_state_volume()). */
    if (!gateway_access_sees(call->access, call->access->volume, row->path))
        return 0;
    time_rfc3339(row->since_ns, since, sizeof(since));
    json_t *item = json_pack(
        "{s:o, s:o, s:s, s:I, s:i, s:s, s:s?}", "key", json_bytes(row->key, strlen(row->key)),
        "path", json_bytes(row->path, strlen(row->path)), "what", row->what, "size",
        (json_int_t)row->size, "tries", (int)row->tries, "since", since, "last_error",
        row->last_error && row->last_error[0] != '\0' ? row->last_error : NULL);
    return exchange_list_add(&call->list, item, err) < 0 ? -1 : 0;
}

int
gateway_state_unsynced(struct exchange *x, struct err *err)
{
    int64_t volume;
    scope_json *items = json_array();
    struct unsynced_call call = {
        .list = { .items = items, .limit = 1000, .room = EXCHANGE_LIST_ROOM }, .access = &x->access
    };
    if (!items)
        return err_nomem(err);
    if (gateway_state_volume(x, &volume, err) < 0 ||
        exchange_query_uint(x, "limit", &call.list.limit, err) < 0)
        return -1;
    if (call.list.limit < 1 || call.list.limit > 10000)
        return err_set(err, ERR_INVAL, "limit must be 1 to 10000");
    /* A folder's rows may come behind many others. */
    unsigned row_limit = x->access.folder[0] != '\0' ? UINT_MAX : (unsigned)call.list.limit + 1;
    if (volume_unsynced_each(x->gateway->service, volume, row_limit, add_unsynced, &call, err) < 0)
        return -1;
    return exchange_reply_json(
        x, 200, json_pack("{s:O, s:b}", "unsynced", items, "truncated", (int)call.list.truncated),
        err);
}

/* ---- the barrier ---- */
/* For a token of a folder the key that waits may be one that it does not know. */
static json_t *
barrier_json(const struct exchange *x, struct volume_barrier *barrier, bool synced)
{
    if (x->access.folder[0] != '\0')
        barrier->first_key[0] = barrier->first_error[0] = '\0';
    return json_pack("{s:b, s:I, s:I, s:o, s:s}", "synced", (int)synced, "pending",
                     (json_int_t)barrier->pending, "conflicts", (json_int_t)barrier->conflicts,
                     "first_key", json_bytes(barrier->first_key, strlen(barrier->first_key)),
                     "first_error", barrier->first_error);
}

static int
read_flush(struct exchange *x, int64_t *volume, int64_t *seconds, struct err *err)
{
    struct volume_info info;
    const char *name = NULL;
    scope_json *body = NULL;
    *volume = x->access.volume;
    if (x->body.len == 0)
        return 0;
    body = exchange_json(x, err);
    if (!body || json_opt_str(body, "volume", &name, err) < 0 ||
        json_opt_int(body, "timeout_s", seconds, err) < 0)
        return -1;
    if (*seconds < 0 || *seconds > 86400)
        return err_set(err, ERR_INVAL, "timeout_s must be 0 to 86400");
    if (!name)
        return 0;
    if (volume_find(x->gateway->service, name, &info, err) < 0)
        return -1;
    *volume = info.id;
    return 0;
}

int
gateway_state_flush(struct exchange *x, struct err *err)
{
    int64_t volume = 0;
    int64_t seconds = 60;
    struct volume_barrier barrier = { 0 };
    if (read_flush(x, &volume, &seconds, err) < 0)
        return -1;
    int rc = volume_flush(x->gateway->service, volume, clock_mono_ns() + seconds * NS_PER_S,
                          &barrier, err);
    if (rc < 0 && err->code != ERR_CONFLICT) {
        json_decref(x->extra);
        x->extra = barrier_json(x, &barrier, false);
        return -1;
    }
    /* Synced, and some writes met a conflict: the barrier did its work, the counts tell the rest. */
    if (rc < 0 && barrier.conflicts == 0)
        barrier.conflicts = 1;
    return exchange_reply_json(x, 200, barrier_json(x, &barrier, true), err);
}

/* ---- doctor: what only the gateway knows ---- */
int
gateway_state_doctor(struct exchange *x, struct err *err)
{
    struct volume_status status;
    scope_buf words;
    buf_init(&words, 16384);
    if (volume_status(x->gateway->service, &status, err) < 0 ||
        store_caps_explain(&status.caps, &words, err) < 0)
        return -1;
    return exchange_reply_json(
        x, 200,
        json_pack("{s:o, s:s, s:s, s:b, s:s, s:o, s:o}", "store", store_json(&status),
                  "capabilities", buf_cstr(&words), "hardening", x->gateway->hardening, "can_mount",
                  (int)(x->gateway->mounts != NULL), "state_dir", x->gateway->state_dir,
                  "unreachable", unreachable_json(&status.unreachable), "takeover",
                  gateway_takeover_json(x->gateway)),
        err);
}
