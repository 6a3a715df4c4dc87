#ifndef GATEWAY_FEED_H
#define GATEWAY_FEED_H

#include "base/buf.h"
#include "volume/volume.h"

/*
 * What changed in all volumes, numbered, for who follows over HTTP. The last FEED_ITEMS are kept, over restarts too
 * (docs/format/state-dir.md). Numbers only rise; where something may not have been told there is an item of type "lost". Thread safe.
 */
struct feed;

#define FEED_ITEMS 16384u

/* Begins to watch; before volume_service_start(). What lies in `state_dir` and is no feed is set aside. */
struct feed *feed_open(struct volume_service *volumes, const char *state_dir,
                       struct err *err) MUST_CHECK;
/* Whoever waits in feed_read() comes back, now and from now on. NULL is fine. */
void feed_wake(struct feed *feed);
bool feed_ends(struct feed *feed);
/* Only when nobody reads any more and the volumes' service is closed. NULL is fine. */
void feed_close(struct feed *feed);

struct feed_item {
    uint64_t seq;
    const char *type; /* volume_event_type() */
    const char *line; /* one JSON object, without a newline */
};
typedef int feed_fn(void *arg, const struct feed_item *item, struct err *err);

struct feed_query {
    const char *volume; /* "": all; items of no volume (the store's, "lost") are always told */
    const char *folder; /* "": all of it */
    uint64_t since;     /* in and out: up to here it is told */
    size_t limit;       /* items */
    uint64_t first;     /* out: the oldest number still known, or that the next one will have */
    bool gap; /* out: some between `since` and the first one told are no longer known, or `since` never was */
};
#define FEED_NOW UINT64_MAX /* as `since`: only what comes */
/* Calls `fn` under no lock; answers without an item when `deadline_ns` (mono) has come. */
int feed_read(struct feed *feed, struct feed_query *query, int64_t deadline_ns, feed_fn *fn,
              void *arg, struct err *err) MUST_CHECK;

#endif
