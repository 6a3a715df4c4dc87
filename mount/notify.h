#ifndef MOUNT_NOTIFY_H
#define MOUNT_NOTIFY_H

#include <stddef.h>
#include <stdint.h>

#include "mount/session.h"
#include "volume/volume.h"

/*
 * The one thread that tells kernels what changed behind their backs: events of volume_watch() go through a bounded queue. When
 * more come than fit, no name is believed unasked any more (Linux 6.16 and newer; an older one believes until its time-out).
 */
struct notifier;

/* Answers referenced sessions of a volume (0: of all), at most `max`. */
typedef size_t notify_sessions_fn(void *arg, int64_t volume, struct session **out, size_t max);

struct notifier *notifier_new(notify_sessions_fn *sessions, void *arg, size_t max_queued,
                              struct err *err) MUST_CHECK;
void notifier_free(struct notifier *notifier); /* stops the thread; NULL is fine */
/* A volume_event_fn; `arg` is the notifier. Never blocks. */
void notifier_event(void *arg, const struct volume_event *event);

/* Runs `done` once, by any thread, when every kernel was told of the events before it. False, and it does not: for want of
 * memory, or at the end. */
bool notifier_pass(struct notifier *notifier, volume_done_fn *done, void *done_arg);

/* Pure: what an event means for a kernel that did not cause it. */
struct notify_plan {
    bool node_data;  /* forget pages and attributes of the node */
    bool node_attrs; /* only attributes */
    bool name;       /* forget parent/name, and the parent's attributes */
    bool removed;    /* that name is gone, not only moved */
};
struct notify_plan notify_plan(enum volume_event_kind kind);

#endif
