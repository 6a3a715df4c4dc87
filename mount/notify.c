#include "mount/notify.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/scope.h"

#define MAX_SESSIONS 256

struct item {
    struct item *next;
    struct notify_plan plan;
    volume_done_fn *done; /* instead: what comes behind all before it */
    void *done_arg;
    int64_t volume, node, parent, connection;
    char name[];
};

struct notifier {
    pthread_mutex_t mutex; /* the queue; a leaf */
    pthread_cond_t wake;
    pthread_t thread;
    notify_sessions_fn *sessions;
    void *arg;
    struct item *first;
    struct item **end;
    size_t queued, max_queued;
    uint64_t lost;   /* events that did not fit */
    bool forget_all; /* because of them */
    bool ending;
};

struct notify_plan
notify_plan(enum volume_event_kind kind)
{
    switch (kind) {
    case VOLUME_EVENT_CREATED:
        return (struct notify_plan){ .name = true };
    case VOLUME_EVENT_CHANGED:
    case VOLUME_EVENT_OPENED:
        return (struct notify_plan){ .node_data = true };
    case VOLUME_EVENT_REMOVED:
        return (struct notify_plan){ .name = true, .node_attrs = true, .removed = true };
    case VOLUME_EVENT_RENAMED:
        return (struct notify_plan){ .name = true, .node_attrs = true };
    case VOLUME_EVENT_SYNCED:
    case VOLUME_EVENT_CONFLICT:
    case VOLUME_EVENT_RESOLVED:
    case VOLUME_EVENT_STALE:
    case VOLUME_EVENT_STORE:
    case VOLUME_EVENT_LOST:
        break;
    }
    return (struct notify_plan){ 0 };
}

static void
tell_name(struct session *session, const struct item *item)
{
    bool removed = item->plan.removed && item->node != 0 &&
                   session_forget_removed(session, item->parent, item->node, item->name);
    if (!removed)
        (void)session_forget_name(session, item->parent, item->name);
    (void)session_forget_node(session, item->parent, false);
}

/* A kernel that does not know the node may be about to: a lookup under way has read the row already. Forgetting the name waits
 * for that lookup, which the kernel makes with the folder's lock held. */
static void
tell_node(struct session *session, const struct item *item)
{
    bool data = item->plan.node_data;
    if (session_forget_node(session, item->node, data) || item->parent == 0 ||
        item->name[0] == '\0')
        return;
    if (session_forget_name(session, item->parent, item->name))
        (void)session_forget_node(session, item->node, data);
}

static void
tell(struct session *session, const struct item *item)
{
    if (item->connection == session_id(session))
        return; /* its own doing: this kernel knows */
    if (item->plan.name && item->parent != 0)
        tell_name(session, item);
    if (item->node != 0 && (item->plan.node_data || item->plan.node_attrs))
        tell_node(session, item);
}

static void
tell_all(struct notifier *notifier, const struct item *item)
{
    struct session *sessions[MAX_SESSIONS];
    size_t count = notifier->sessions(notifier->arg, item->volume, sessions, MAX_SESSIONS);
    for (size_t i = 0; i < count; i++) {
        tell(sessions[i], item);
        session_unref(sessions[i]);
    }
}

static struct item *
take_locked(struct notifier *notifier)
{
    struct item *item = notifier->first;
    notifier->first = item->next;
    if (!notifier->first)
        notifier->end = &notifier->first;
    notifier->queued--;
    return item;
}

static void
tell_lost(struct notifier *notifier)
{
    struct session *sessions[MAX_SESSIONS];
    size_t count = notifier->sessions(notifier->arg, 0, sessions, MAX_SESSIONS);
    for (size_t i = 0; i < count; i++) {
        (void)session_forget_all(sessions[i]);
        session_unref(sessions[i]);
    }
}

static void *
notify_main(void *arg)
{
    struct notifier *notifier = arg;
    pthread_mutex_lock(&notifier->mutex);
    while (!notifier->ending) {
        bool all = notifier->forget_all;
        notifier->forget_all = false;
        struct item *item = !all && notifier->first ? take_locked(notifier) : NULL;
        if (!item && !all) {
            pthread_cond_wait(&notifier->wake, &notifier->mutex);
            continue;
        }
        pthread_mutex_unlock(&notifier->mutex);
        /* No lock: the kernel may wait for a request of ours (INV-8). */
        if (all)
            tell_lost(notifier);
        else if (item->done)
            item->done(item->done_arg);
        else
            tell_all(notifier, item);
        free(item);
        pthread_mutex_lock(&notifier->mutex);
    }
    pthread_mutex_unlock(&notifier->mutex);
    return NULL;
}

static struct item *
make_item(const struct volume_event *event, struct notify_plan plan)
{
    const char *name = event->name ? event->name : "";
    size_t len = strlen(name) + 1;
    struct item *item = malloc(sizeof(*item) + len);
    if (!item)
        return NULL;
    *item = (struct item){ .plan = plan, .volume = event->volume, .node = event->node };
    item->parent = event->parent;
    item->connection = event->connection;
    memcpy(item->name, name, len);
    return item;
}

static void
put_locked(struct notifier *notifier, struct item *item)
{
    *notifier->end = item;
    notifier->end = &item->next;
    notifier->queued++;
    pthread_cond_signal(&notifier->wake);
}

/* Some were not told: no name is believed unasked. An older kernel believes what it knows until it times out. */
static void
lose_locked(struct notifier *notifier)
{
    if (notifier->lost++ % 1000 == 0)
        log_warn(mount, "kernel notifications fall behind lost=%llu",
                 (unsigned long long)notifier->lost);
    notifier->forget_all = true;
    pthread_cond_signal(&notifier->wake);
}

void
notifier_event(void *arg, const struct volume_event *event)
{
    struct notifier *notifier = arg;
    struct notify_plan plan = notify_plan(event->kind);
    bool lost = event->kind == VOLUME_EVENT_LOST;
    if (!plan.name && !plan.node_data && !plan.node_attrs && !lost)
        return;
    scope_unlock pthread_mutex_t *held = scope_lock(&notifier->mutex);
    (void)held;
    if (notifier->ending)
        return;
    struct item *item =
        !lost && notifier->queued < notifier->max_queued ? make_item(event, plan) : NULL;
    if (!item) {
        lose_locked(notifier);
        return;
    }
    put_locked(notifier, item);
}

bool
notifier_pass(struct notifier *notifier, volume_done_fn *done, void *done_arg)
{
    struct item *item = calloc(1, sizeof(*item));
    pthread_mutex_lock(&notifier->mutex);
    bool put = item && !notifier->ending;
    if (put) {
        item->done = done;
        item->done_arg = done_arg;
        put_locked(notifier, item);
    }
    pthread_mutex_unlock(&notifier->mutex);
    if (!put)
        free(item);
    return put;
}

struct notifier *
notifier_new(notify_sessions_fn *sessions, void *arg, size_t max_queued, struct err *err)
{
    struct notifier *notifier = calloc(1, sizeof(*notifier));
    if (!notifier) {
        err_nomem(err);
        return NULL;
    }
    notifier->sessions = sessions;
    notifier->arg = arg;
    notifier->max_queued = max_queued;
    notifier->end = &notifier->first;
    pthread_mutex_init(&notifier->mutex, NULL);
    pthread_cond_init(&notifier->wake, NULL);
    if (pthread_create(&notifier->thread, NULL, notify_main, notifier) == 0) {
        (void)pthread_setname_np(notifier->thread, "fuse-notify");
        return notifier;
    }
    free(notifier);
    err_nomem(err);
    return NULL;
}

void
notifier_free(struct notifier *notifier)
{
    if (!notifier)
        return;
    pthread_mutex_lock(&notifier->mutex);
    notifier->ending = true;
    pthread_cond_signal(&notifier->wake);
    pthread_mutex_unlock(&notifier->mutex);
    (void)pthread_join(notifier->thread, NULL);
    while (notifier->first) {
        struct item *item = take_locked(notifier);
        if (item->done)
            item->done(item->done_arg);
        free(item);
    }
    pthread_cond_destroy(&notifier->wake);
    pthread_mutex_destroy(&notifier->mutex);
    free(notifier);
}
