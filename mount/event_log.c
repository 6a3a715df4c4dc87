#include "mount/event_log.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/scope.h"
#include "base/text.h"

struct ring {
    struct ring *next;
    int64_t volume;
    unsigned wanted;
    uint64_t first, end; /* numbers of the oldest, and of the one to come */
    struct event_item items[EVENT_LOG_ITEMS];
};

struct event_log {
    pthread_mutex_t mutex; /* a leaf */
    struct ring *rings;
};

struct event_log *
event_log_new(struct err *err)
{
    struct event_log *log = calloc(1, sizeof(*log));
    if (!log) {
        err_nomem(err);
        return NULL;
    }
    pthread_mutex_init(&log->mutex, NULL);
    return log;
}

void
event_log_free(struct event_log *log)
{
    if (!log)
        return;
    for (struct ring *ring = log->rings, *next; ring; ring = next) {
        next = ring->next;
        free(ring);
    }
    pthread_mutex_destroy(&log->mutex);
    free(log);
}

static struct ring *
find_locked(struct event_log *log, int64_t volume)
{
    for (struct ring *ring = log->rings; ring; ring = ring->next)
        if (ring->volume == volume)
            return ring;
    return NULL;
}

int
event_log_want(struct event_log *log, int64_t volume, struct err *err)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&log->mutex);
    (void)held;
    struct ring *ring = find_locked(log, volume);
    if (!ring) {
        ring = calloc(1, sizeof(*ring));
        if (!ring)
            return err_nomem(err);
        ring->volume = volume;
        ring->first = ring->end = (uint64_t)(clock_wall_ns() / NS_PER_MS);
        ring->next = log->rings;
        log->rings = ring;
    }
    ring->wanted++;
    return 0;
}

void
event_log_release(struct event_log *log, int64_t volume)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&log->mutex);
    (void)held;
    for (struct ring **at = &log->rings; *at; at = &(*at)->next) {
        struct ring *ring = *at;
        if (ring->volume != volume)
            continue;
        if (--ring->wanted == 0) {
            *at = ring->next;
            free(ring);
        }
        return;
    }
}

static void
add(struct ring *ring, const struct volume_event *event)
{
    struct event_item *item = &ring->items[ring->end % EVENT_LOG_ITEMS];
    item->seq = ring->end++;
    item->time_ns = clock_wall_ns();
    item->node = event->node;
    item->parent = event->parent;
    item->kind = event->kind;
    text_set(item->name, event->name ? event->name : "");
    if (ring->end - ring->first > EVENT_LOG_ITEMS)
        ring->first = ring->end - EVENT_LOG_ITEMS;
}

void
event_log_event(struct event_log *log, const struct volume_event *event)
{
    if (event->kind == VOLUME_EVENT_OPENED)
        return; /* for kernels; its close is told */
    scope_unlock pthread_mutex_t *held = scope_lock(&log->mutex);
    (void)held;
    for (struct ring *ring = log->rings; ring; ring = ring->next)
        if (event->volume == 0 || event->volume == ring->volume)
            add(ring, event);
}

size_t
event_log_read(struct event_log *log, int64_t volume, uint64_t seq, struct event_item *out,
               uint64_t *first)
{
    size_t count = 0;
    scope_unlock pthread_mutex_t *held = scope_lock(&log->mutex);
    (void)held;
    const struct ring *ring = find_locked(log, volume);
    *first = ring ? ring->first : seq + 1;
    if (!ring)
        return 0;
    uint64_t from = seq + 1 > ring->first ? seq + 1 : ring->first;
    for (uint64_t at = from; at < ring->end; at++)
        out[count++] = ring->items[at % EVENT_LOG_ITEMS];
    return count;
}
