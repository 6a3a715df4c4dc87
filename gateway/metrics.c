#include "gateway/metrics.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "gateway/router.h"
#include "s3/cost.h"
#include "volume/history.h"

/*
 * GET /metrics in the text format of Prometheus, version 0.0.4 (prometheus.io/docs/instrumenting/exposition_formats). Names end in their
 * unit; counters begin with the process.
 */

#define CLASSES 6 /* 1xx to 5xx; 0: none */

static struct {
    _Atomic uint64_t answers[CLASSES], took_ns;
} http;

void
gateway_metrics_answered(int status, int64_t took_ns)
{
    unsigned class = status >= 100 && status < 600 ? (unsigned)status / 100 : 0;
    (void)atomic_fetch_add_explicit(&http.answers[class], 1, memory_order_relaxed);
    (void)atomic_fetch_add_explicit(&http.took_ns, (uint64_t)(took_ns > 0 ? took_ns : 0),
                                    memory_order_relaxed);
}

/* ---- lines ---- */
struct page {
    struct buf *out;
    struct err *err;
    bool failed;
};

static void __attribute__((format(printf, 2, 3))) put(struct page *page, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (!page->failed)
        page->failed = buf_vappendf(page->out, page->err, fmt, ap) < 0;
    va_end(ap);
}

static void
head(struct page *page, const char *name, const char *type, const char *help)
{
    put(page, "# HELP holdfast_%s %s\n# TYPE holdfast_%s %s\n", name, help, name, type);
}

static void
counter(struct page *page, const char *name, const char *help, uint64_t value)
{
    head(page, name, "counter", help);
    put(page, "holdfast_%s %llu\n", name, (unsigned long long)value);
}

static void
gauge(struct page *page, const char *name, const char *help, double value)
{
    head(page, name, "gauge", help);
    put(page, "holdfast_%s %.15g\n", name, value);
}

static double
seconds(uint64_t ns)
{
    return (double)ns / (double)NS_PER_S;
}

/* ---- the store ---- */
static void
put_requests(struct page *page, const struct store_counters *c)
{
    const struct {
        const char *kind;
        uint64_t count;
    } kinds[] = { { "get", c->gets },
                  { "head", c->heads },
                  { "put", c->puts },
                  { "copy", c->copies },
                  { "list", c->lists },
                  { "delete", c->deletes },
                  { "upload", c->upload_calls },
                  { "other", c->other } };
    head(page, "store_requests_total", "counter",
         "Requests that reached the store, each attempt and each part counted.");
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        put(page, "holdfast_store_requests_total{kind=\"%s\"} %llu\n", kinds[i].kind,
            (unsigned long long)kinds[i].count);
    counter(page, "store_retries_total", "Requests that were sent again.", c->retries);
    counter(page, "store_errors_total", "Requests that failed.", c->errors);
    counter(page, "store_slow_downs_total", "Answers that asked for fewer requests.",
            c->slow_downs);
    counter(page, "store_sent_bytes_total", "Bytes of objects sent to the store.", c->bytes_up);
    counter(page, "store_received_bytes_total", "Bytes of objects received from the store.",
            c->bytes_down);
    gauge(page, "store_requests_in_flight", "Requests under way.", c->in_flight);
    gauge(page, "store_requests_window", "How many requests may be under way.", c->window);
}

static void
put_histogram(struct page *page, const struct store_timing *timing, enum store_call call,
              enum store_result result)
{
    const char *name = store_call_name(call), *judged = store_result_name(result);
    uint64_t below = 0;
    for (unsigned i = 0; i <= STORE_TIMING_BOUNDS; i++) {
        below += atomic_load_explicit(&timing->of[call][result].count[i], memory_order_relaxed);
        put(page, "holdfast_store_call_seconds_bucket{call=\"%s\",result=\"%s\",le=\"", name,
            judged);
        if (i < STORE_TIMING_BOUNDS)
            put(page, "%g\"} %llu\n", seconds((uint64_t)store_timing_bound_ns[i]),
                (unsigned long long)below);
        else
            put(page, "+Inf\"} %llu\n", (unsigned long long)below);
    }
    put(page, "holdfast_store_call_seconds_sum{call=\"%s\",result=\"%s\"} %.9g\n", name, judged,
        seconds(atomic_load_explicit(&timing->of[call][result].sum_ns, memory_order_relaxed)));
    put(page, "holdfast_store_call_seconds_count{call=\"%s\",result=\"%s\"} %llu\n", name, judged,
        (unsigned long long)below);
}

static void
put_store(struct page *page, const struct volume_service *service,
          const struct volume_status *status)
{
    const struct store_timing *timing = volume_store_timing(service);
    struct cost cost;
    gauge(page, "store_up", "Whether the store answered last time.", status->store_ok);
    gauge(page, "store_degraded", "Whether the store lacks conditional writes.", status->degraded);
    put_requests(page, &status->counters);
    head(page, "store_call_seconds", "histogram",
         "How long calls to the store took, with their retries and parts.");
    for (int call = 0; call < STORE_CALL_COUNT; call++)
        for (int result = 0; result < STORE_RESULT_COUNT; result++)
            put_histogram(page, timing, (enum store_call)call, (enum store_result)result);
    cost_estimate(status->provider, &status->counters, &cost);
    if (!cost.priced)
        return;
    head(page, "store_cost_usd_total", "counter",
         "What these requests come to at the provider's list prices; an estimate.");
    put(page, "holdfast_store_cost_usd_total %.9g\n", cost.usd);
}

/* ---- cache and reading ---- */
static void
put_cache(struct page *page, const struct volume_status *status)
{
    const struct cache_usage *cache = &status->cache;
    const struct volume_reading *r = &status->reading;
    gauge(page, "cache_files", "Files in the cache.", (double)cache->files);
    gauge(page, "cache_bytes", "Bytes in the cache.", (double)cache->bytes);
    gauge(page, "cache_staged_bytes", "Of these, bytes that the bucket does not have yet.",
          (double)cache->pinned_bytes);
    gauge(page, "cache_max_bytes", "The cache's limit.", (double)cache->max_bytes);
    gauge(page, "disk_free_bytes", "Free bytes of the state directory's file system.",
          (double)cache->free_bytes);
    gauge(page, "disk_low", "Whether the floor of free space is reached.", status->disk_low);
    counter(page, "fetches_total", "GETs of files' bytes: what the cache did not have.",
            r->requests);
    counter(page, "fetched_bytes_total", "Bytes that they brought.", r->bytes);
    counter(page, "fetches_joined_total", "Reads that waited for a fetch under way.", r->joined);
    counter(page, "fetches_past_cache_total", "Reads past a cache that was full or broken.",
            r->past_cache);
    counter(page, "prefetched_files_total", "Small files fetched before they were opened.",
            r->prefetched);
    counter(page, "prefetched_used_total", "Of these, those that were opened then.",
            r->prefetch_used);
}

/* ---- what is to be done ---- */
static int
put_work(struct page *page, struct volume_service *service, const struct volume_status *status,
         struct err *err)
{
    int64_t oldest = 0;
    struct volume_history_kept kept;
    if (gateway_state_oldest(service, &oldest, err) < 0 ||
        volume_history_usage(service, 0, &kept, err) < 0)
        return -1;
    int64_t age = oldest ? clock_wall_ns() - oldest : 0;
    gauge(page, "unsynced_files", "Files whose newest bytes are not in the bucket.",
          (double)status->unsynced_files);
    gauge(page, "unsynced_bytes", "Their bytes.", (double)status->unsynced_bytes);
    gauge(page, "unsynced_age_seconds", "Age of the oldest change that is not in the bucket.",
          seconds(age > 0 ? (uint64_t)age : 0));
    gauge(page, "pending_keys", "Keys with work left, deletes and moves included.",
          (double)status->pending_keys);
    gauge(page, "failing_keys", "Of these, those whose last attempt failed.",
          (double)status->uploads_failing);
    gauge(page, "conflicts", "Conflicts that wait for somebody.", (double)status->conflicts);
    gauge(page, "history_versions", "Older versions kept in the bucket.", (double)kept.versions);
    gauge(page, "history_bytes", "Their bytes.", (double)kept.bytes);
    return 0;
}

static int
count_mount(void *arg, const struct mount_info *info, struct err *err)
{
    uint64_t *count = arg;
    (void)err;
    count[info->state == MOUNT_FAILED]++;
    return 0;
}

static int
put_mounts(struct page *page, struct mount_service *mounts, struct err *err)
{
    uint64_t count[2] = { 0, 0 };
    if (mounts && mount_each(mounts, count_mount, count, err) < 0)
        return -1;
    head(page, "mounts", "gauge", "Mounts of volumes.");
    put(page, "holdfast_mounts{state=\"active\"} %llu\nholdfast_mounts{state=\"failed\"} %llu\n",
        (unsigned long long)count[0], (unsigned long long)count[1]);
    return 0;
}

/* ---- volumes: one family after the other, as the format wants it ---- */
struct volumes {
    struct volume_info *list;
    size_t count, cap;
};

static int
add_volume(void *arg, const struct volume_info *info, struct err *err)
{
    struct volumes *volumes = arg;
    if (volumes->count == volumes->cap) {
        size_t cap = volumes->cap ? 2 * volumes->cap : 16;
        struct volume_info *list = reallocarray(volumes->list, cap, sizeof(*list));
        if (!list)
            return err_nomem(err);
        volumes->list = list;
        volumes->cap = cap;
    }
    volumes->list[volumes->count++] = *info;
    return 0;
}

static void
put_family(struct page *page, const struct volumes *volumes, const char *name, const char *help,
           size_t field)
{
    head(page, name, "gauge", help);
    for (size_t i = 0; i < volumes->count; i++) {
        uint64_t value;
        memcpy(&value, (const char *)&volumes->list[i] + field, sizeof(value));
        put(page, "holdfast_%s{volume=\"%s\"} %llu\n", name, volumes->list[i].name,
            (unsigned long long)value);
    }
}

static int
put_volumes(struct page *page, struct volume_service *service, struct err *err)
{
    struct volumes volumes = { 0 };
    int rc = volume_each(service, add_volume, &volumes, err);
    if (rc == 0) {
        put_family(page, &volumes, "volume_files", "Files of the volume.",
                   offsetof(struct volume_info, files));
        put_family(page, &volumes, "volume_bytes", "Their bytes.",
                   offsetof(struct volume_info, bytes));
        put_family(page, &volumes, "volume_quota_bytes", "The volume's quota, 0: none.",
                   offsetof(struct volume_info, quota));
        put_family(page, &volumes, "volume_unsynced_files",
                   "Files of the volume that the bucket does not have yet.",
                   offsetof(struct volume_info, unsynced_files));
        put_family(page, &volumes, "volume_conflicts", "Conflicts of the volume.",
                   offsetof(struct volume_info, conflicts));
    }
    free(volumes.list);
    return rc;
}

/* ---- the process ---- */
static void
put_process(struct page *page, const struct gateway *gateway)
{
    struct rusage usage = { 0 };
    (void)getrusage(RUSAGE_SELF, &usage);
    head(page, "info", "gauge", "The version that runs.");
    put(page, "holdfast_info{version=\"%s\"} 1\n", HOLDFAST_VERSION);
    gauge(page, "start_time_seconds", "When the process was ready, since 1970.",
          (double)gateway->started_ns / (double)NS_PER_S);
    head(page, "cpu_seconds_total", "counter", "Time on processors.");
    put(page, "holdfast_cpu_seconds_total %.6f\n",
        (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
            (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6);
    gauge(page, "resident_peak_bytes", "The most memory that was resident.",
          (double)usage.ru_maxrss * 1024);
    head(page, "http_answers_total", "counter", "HTTP answers by class of status.");
    for (int class = 1; class < CLASSES; class ++)
        put(page, "holdfast_http_answers_total{class=\"%dxx\"} %llu\n", class,
            (unsigned long long)atomic_load(&http.answers[class]));
    head(page, "http_seconds_total", "counter", "Time until the heads of these answers.");
    put(page, "holdfast_http_seconds_total %.6f\n", seconds(atomic_load(&http.took_ns)));
}

int
gateway_metrics(struct exchange *x, struct err *err)
{
    struct volume_service *service = x->gateway->service;
    struct volume_status status;
    struct page page = { .out = &x->reply.body, .err = err };
    if (volume_status(service, &status, err) < 0)
        return -1;
    buf_clear(&x->reply.body);
    put_process(&page, x->gateway);
    put_store(&page, service, &status);
    put_cache(&page, &status);
    if (put_work(&page, service, &status, err) < 0 ||
        put_mounts(&page, x->gateway->mounts, err) < 0 || put_volumes(&page, service, err) < 0 ||
        page.failed)
        return -1;
    x->reply.status = 200;
    return exchange_reply_header(x, "Content-Type", err,
                                 "text/plain; version=0.0.4; charset=utf-8");
}
