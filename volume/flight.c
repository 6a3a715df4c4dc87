#include <assert.h>

#include "base/log.h"
#include "base/scope.h"
#include "volume/fetch_impl.h"

/* Requests under way: ranges of an object, each into its own blocks of one content file. */

#define AHEAD_DEADLINE_NS (20 * NS_PER_S)
#define AHEAD_PAUSE_NS NS_PER_S /* after a failure nothing is fetched ahead for so long */
#define DROP_MIN (8u << 20)
/* libcurl hands out 16 KiB at a time: each write of its own takes the file's lock in the kernel, which several requests share. */
#define GATHER (256u << 10)
_Static_assert(CACHE_BLOCK_SIZE % GATHER == 0,
               "what is gathered never reaches into the next block");

bool
fetch_enter(struct fetcher *fetcher)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&fetcher->lock);
    bool free = fetcher->busy < fetcher->slots && !atomic_load(&fetcher->service->stopping);
    fetcher->busy += free;
    return free;
}

void
fetch_leave(struct fetcher *fetcher)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&fetcher->lock);
    assert(fetcher->busy > 0);
    fetcher->busy--;
}

/* ---- who brings what ---- */

void
flight_begin_locked(struct inode *inode, struct flight *flight, uint64_t off, uint64_t end)
{
    flight->inode = inode;
    flight->file = cache_ref(inode->file);
    flight->off = off;
    flight->end = end;
    flight->next = inode->flights;
    inode->flights = flight;
}

static void
end_locked(struct flight *flight)
{
    struct flight **at = &flight->inode->flights;
    while (*at != flight)
        at = &(*at)->next;
    *at = flight->next;
    cache_put(flight->file);
    flight->file = NULL;
    pthread_cond_broadcast(&flight->inode->fetched);
}

struct flight *
flight_at_locked(struct inode *inode, uint64_t off)
{
    struct flight *at = inode->flights;
    while (at != NULL && (at->file != inode->file || off < at->off || off >= at->end))
        at = at->next;
    return at;
}

bool
flight_unclaimed_locked(struct inode *inode, uint64_t off, uint64_t end, uint64_t *from,
                        uint64_t *to)
{
    uint64_t len;
    while (off < end && cache_map_missing(inode->file, off, end - off, from, &len)) {
        const struct flight *there = flight_at_locked(inode, *from);
        if (there != NULL) {
            off = there->end;
            continue;
        }
        *to = *from + len;
        for (const struct flight *at = inode->flights; at != NULL; at = at->next)
            if (at->file == inode->file && at->off > *from && at->off < *to)
                *to = at->off;
        return true;
    }
    return false;
}

/* ---- the bytes ---- */

struct sink {
    struct volume_service *service;
    struct flight *flight;
    struct cache_fill fill;
    uint8_t *data; /* GATHER bytes, of which `have` are to be written at fill.off */
    size_t have;
};

/* Other files have gone already: a file that is larger than the room for it gives its own blocks back, oldest first. */
static bool
make_room(struct sink *sink, const struct err *err)
{
    struct cache_usage usage;
    if (err->code != ERR_NO_SPACE || !sink->flight->may_drop)
        return false;
    cache_usage(sink->service->cache, &usage);
    uint64_t bytes = usage.max_bytes / 8 > DROP_MIN ? usage.max_bytes / 8 : DROP_MIN;
    return cache_map_drop(sink->flight->file, bytes) > 0;
}

static void
tell_waiters(struct inode *inode)
{
    pthread_mutex_lock(&inode->lock);
    pthread_cond_broadcast(&inode->fetched);
    pthread_mutex_unlock(&inode->lock);
}

static int
write_gathered(struct sink *sink, struct err *err)
{
    struct flight *flight = sink->flight;
    uint64_t before = sink->fill.off;
    while (cache_fill_bytes(&sink->fill, sink->data + (sink->fill.off - before),
                            sink->have - (size_t)(sink->fill.off - before), err) != 0) {
        if (make_room(sink, err))
            continue;
        flight->local = err->code != ERR_INTERNAL;
        return -1;
    }
    sink->have = 0;
    if (sink->fill.off / CACHE_BLOCK_SIZE != before / CACHE_BLOCK_SIZE)
        tell_waiters(flight->inode);
    return 0;
}

static int
take_bytes(void *arg, const void *data, size_t len, struct err *err)
{
    struct sink *sink = arg;
    const uint8_t *at = data;
    if (atomic_load(&sink->flight->cancel) || atomic_load(&sink->service->stopping))
        return err_set(err, ERR_CANCELED, "nobody wants these bytes any more");
    atomic_fetch_add(&sink->service->fetcher->bytes, len);
    while (len > 0) {
        size_t part = len < GATHER - sink->have ? len : GATHER - sink->have;
        memcpy(sink->data + sink->have, at, part);
        sink->have += part;
        at += part;
        len -= part;
        bool all = sink->fill.off + sink->have >= sink->fill.end;
        if ((all || sink->have == GATHER) && write_gathered(sink, err) != 0)
            return -1;
    }
    return 0;
}

static int
get_range(struct volume_service *service, struct flight *flight, uint64_t size, int64_t deadline_ns,
          struct err *err)
{
    scope_free uint8_t *data = malloc(GATHER);
    struct sink sink = { .service = service,
                         .flight = flight,
                         .data = data,
                         .fill = { .file = flight->file, .off = flight->off, .end = flight->end } };
    struct store_object object;
    bool whole = flight->off == 0 && flight->end == size;
    struct store_get get = { .key = flight->key,
                             .off = flight->off,
                             .len = whole ? 0 : flight->end - flight->off,
                             .if_match = flight->etag,
                             .sink = take_bytes,
                             .sink_arg = &sink,
                             .deadline_ns = deadline_ns };
    if (data == NULL)
        return err_nomem(err);
    store_object_init(&object);
    atomic_fetch_add(&service->fetcher->requests, 1);
    int rc = store_get(service->store, &get, &object, err);
    if (rc == 0 && object.size != size)
        rc = err_set(err, ERR_CONFLICT, "the object has another size than its version");
    store_object_release(&object);
    cache_fill_end(&sink.fill);
    if (rc == 0 && sink.fill.off != flight->end)
        rc = err_set(err, ERR_STORE_BAD_ANSWER, "the store sent %llu of %llu bytes",
                     (unsigned long long)(sink.fill.off - flight->off),
                     (unsigned long long)(flight->end - flight->off));
    if (rc == 0 || (!flight->local && err->code != ERR_CANCELED))
        service_store_seen(service, rc == 0 ? NULL : err);
    return rc;
}

/* ---- one request ---- */

struct source_call {
    int64_t node;
    struct index_node row;
    struct index_content content;
};

static int
read_source(struct index_tx *tx, void *arg, struct err *err)
{
    struct source_call *call = arg;
    memset(&call->content, 0, sizeof(call->content));
    if (index_node_get(tx, call->node, &call->row, err) != 0)
        return -1;
    return call->row.content == 0 ? 0
                                  : index_content_get(tx, call->row.content, &call->content, err);
}

/* One file never gets bytes of two versions (INV-1): where the node has other bytes by now than the entry, none are fetched. */
static int
find_source(struct volume_service *service, struct flight *flight, uint64_t *size, struct err *err)
{
    struct inode *inode = flight->inode;
    struct source_call call = { .node = inode->node };
    if (index_read(service->index, read_source, &call, err) != 0)
        return -1;
    flight->stale = inode->file != flight->file || call.content.id != inode->content;
    if (flight->stale && (call.row.flags & INDEX_NODE_ORPHAN) != 0)
        return err_set(err, ERR_IO, "the file was replaced, and its old bytes are not here");
    *size = call.content.size;
    text_set(flight->key, call.row.key);
    text_set(flight->etag, call.content.etag);
    return 0;
}

int
flight_run_locked(struct volume_service *service, struct flight *flight, int64_t deadline_ns,
                  struct err *err)
{
    struct inode *inode = flight->inode;
    uint64_t size = 0;
    int rc = find_source(service, flight, &size, err);
    bool same = inode->file == flight->file;
    if (rc == 0 && atomic_load(&flight->cancel))
        rc = err_set(err, ERR_CANCELED, "nobody wants these bytes any more");
    if (rc == 0 && !flight->stale) {
        pthread_mutex_unlock(&inode->lock);
        rc = get_range(service, flight, size, deadline_ns, err);
        pthread_mutex_lock(&inode->lock);
        same = inode->file == flight->file;
    }
    end_locked(flight);
    /* Of what the entry holds now, which may be another file than was fetched into. */
    if (rc == 0 && same && !flight->stale)
        rc = fetch_note_complete(service, inode, err);
    return rc;
}

/* ---- in the background ---- */

static void
count_ahead(struct volume_service *service, const struct flight *flight)
{
    atomic_fetch_add(&service->fetcher->ahead_bytes, flight->end - flight->off);
    if (flight->inode->ahead_end < flight->end)
        flight->inode->ahead_end = flight->end;
}

static bool find_ahead_locked(struct inode *inode, uint64_t *from, uint64_t *to);

static void
run_locked(struct volume_service *service, struct flight *flight)
{
    struct inode *inode = flight->inode;
    struct err err = ERR_INIT;
    int64_t deadline = clock_mono_ns() + AHEAD_DEADLINE_NS;
    if (flight_run_locked(service, flight, deadline, &err) == 0) {
        if (flight->ahead && !flight->stale)
            count_ahead(service, flight);
        return;
    }
    /* Whoever needs these bytes asks again and gets the error himself. */
    if (err.code != ERR_CANCELED)
        log_debug(volume, "fetching ahead failed node=%lld error=\"%s\"", (long long)inode->node,
                  err.msg);
    readahead_cut(&inode->ahead);
    inode->ahead_after_ns = clock_mono_ns() + AHEAD_PAUSE_NS;
}

static struct flight *
new_flight_locked(struct volume_service *service, struct inode *inode, uint64_t off, uint64_t end,
                  bool ahead)
{
    struct flight *flight = calloc(1, sizeof(*flight));
    if (flight == NULL)
        return NULL;
    flight->service = service;
    flight->ahead = ahead;
    flight_begin_locked(inode, flight, off, end);
    return flight;
}

/* A worker that has ended one goes on with the next of the same file, in its slot. */
static struct flight *
next_locked(struct volume_service *service, struct inode *inode)
{
    uint64_t from, to;
    if (atomic_load(&service->stopping) || !find_ahead_locked(inode, &from, &to))
        return NULL;
    return new_flight_locked(service, inode, from, to, true);
}

static void
flight_main(void *arg)
{
    struct flight *flight = arg;
    struct inode *inode = flight->inode;
    struct volume_service *service = flight->service;
    pthread_mutex_lock(&inode->lock);
    while (flight != NULL) {
        run_locked(service, flight);
        free(flight);
        flight = next_locked(service, inode);
    }
    pthread_mutex_unlock(&inode->lock);
    fetch_leave(service->fetcher);
    inode_unref(&service->inodes, inode, false);
}

/* False: no slot, or no memory. */
static bool
launch_locked(struct volume_service *service, struct inode *inode, uint64_t off, uint64_t end,
              bool ahead)
{
    struct fetcher *fetcher = service->fetcher;
    struct err ignored = ERR_INIT;
    if (!fetch_enter(fetcher))
        return false;
    struct flight *flight = new_flight_locked(service, inode, off, end, ahead);
    if (flight != NULL && inode_ref(&service->inodes, inode->node, false, &ignored) == inode) {
        if (pool_submit(fetcher->pool, flight_main, NULL, flight, &ignored) == 0)
            return true;
        inode_unref(&service->inodes, inode, false);
    }
    if (flight != NULL)
        end_locked(flight);
    free(flight);
    fetch_leave(fetcher);
    return false;
}

void
flight_spread_locked(struct volume_service *service, struct inode *inode, uint64_t off,
                     uint64_t end, uint64_t span)
{
    uint64_t from, to;
    while (flight_unclaimed_locked(inode, off, end, &from, &to)) {
        off = to - from < span ? to : from + span;
        if (!launch_locked(service, inode, from, off, false))
            return;
    }
}

/* Where the readers of this file want bytes that nobody brings yet. */
static bool
find_ahead_locked(struct inode *inode, uint64_t *from, uint64_t *to)
{
    uint64_t off, end;
    if (inode->file == NULL || clock_mono_ns() < inode->ahead_after_ns)
        return false;
    for (unsigned i = 0; i < READAHEAD_STREAMS; i++) {
        if (!readahead_want(&inode->ahead, i, UINT64_MAX, &off, &end) ||
            !flight_unclaimed_locked(inode, off, end, from, to))
            continue;
        uint64_t span = readahead_span(&inode->ahead, i);
        /* The window moves on with each read: what is still far off waits until it is worth a request. */
        if (*to - *from<span && * to >= end && * from - off> span)
            continue;
        if (*to - *from > span)
            *to = *from + span;
        return true;
    }
    return false;
}

void
flight_ahead_locked(struct volume_service *service, struct inode *inode)
{
    uint64_t from, to;
    while (find_ahead_locked(inode, &from, &to) && launch_locked(service, inode, from, to, true))
        continue;
}
