#ifndef MOUNT_EVENT_LOG_H
#define MOUNT_EVENT_LOG_H

#include <stdint.h>

#include "volume/volume.h"

/*
 * The last events of each volume that is mounted, for `.holdfast/events`. Taking one costs a copy; whoever reads makes the text.
 * Numbers rise over restarts too: they begin with the clock's milliseconds.
 */
struct event_log;

#define EVENT_LOG_ITEMS 1000u

struct event_item {
    uint64_t seq;
    int64_t time_ns; /* wall */
    int64_t node, parent;
    enum volume_event_kind kind;
    char name[LIMIT_NAME + 1];
};

struct event_log *event_log_new(struct err *err) MUST_CHECK;
void event_log_free(struct event_log *log); /* nobody may use it any more; NULL is fine */
/* Events of this volume are kept from now on, until as many releases. */
int event_log_want(struct event_log *log, int64_t volume, struct err *err) MUST_CHECK;
void event_log_release(struct event_log *log, int64_t volume);
/* A volume_event_fn; never blocks. Events of no volume (the store's) go to all. */
void event_log_event(struct event_log *log, const struct volume_event *event);
/* Copies those after `seq`, oldest first, at most EVENT_LOG_ITEMS; `*first` is the number of the oldest that is still known, or
 * that the next one will have. */
size_t event_log_read(struct event_log *log, int64_t volume, uint64_t seq, struct event_item *out,
                      uint64_t *first);

#endif
