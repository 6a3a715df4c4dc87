#ifndef MOUNT_NOTIFY_H
#define MOUNT_NOTIFY_H

#include <stddef.h>
#include <stdint.h>

#include "mount/session.h"
#include "volume/volume.h"

/*
 * The one thread that tells kernels what changed behind their backs: events of volume_watch() go through a bounded queue. Above
 * half of it names are left out (then only inodes are forgotten, names time out after a second); above all of it events are
 * counted and dropped: attributes time out, and AUTO_INVAL_DATA drops the pages of what changed.
 */
struct notifier;

/* Answers referenced sessions of a volume, at most `max`. */
typedef size_t notify_sessions_fn(void *arg, int64_t volume, struct session **out, size_t max);

struct notifier *notifier_new(notify_sessions_fn *sessions, void *arg, size_t max_queued,
                              struct err *err) MUST_CHECK;
void notifier_free(struct notifier *notifier); /* stops the thread; NULL is fine */
/* A volume_event_fn; `arg` is the notifier. Never blocks. */
void notifier_event(void *arg, const struct volume_event *event);

/* Pure: what an event means for a kernel that did not cause it. */
struct notify_plan {
    bool node_data;  /* forget pages and attributes of the node */
    bool node_attrs; /* only attributes */
    bool name;       /* forget parent/name, and the parent's attributes */
};
struct notify_plan notify_plan(enum volume_event_kind kind);

#endif
