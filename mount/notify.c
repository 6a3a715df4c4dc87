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
    uint64_t dropped;
    bool ending;
};

struct notify_plan
notify_plan(enum volume_event_kind kind)
{
    switch (kind) {
    case VOLUME_EVENT_CREATED:
        return (struct notify_plan){ .name = true };
    case VOLUME_EVENT_CHANGED:
        return (struct notify_plan){ .node_data = true };
    case VOLUME_EVENT_REMOVED:
    case VOLUME_EVENT_RENAMED:
        return (struct notify_plan){ .name = true, .node_attrs = true };
    case VOLUME_EVENT_SYNCED:
    case VOLUME_EVENT_CONFLICT:
    case VOLUME_EVENT_STORE:
        break;
    }
    return (struct notify_plan){ 0 };
}

static void
tell(struct session *session, const struct item *item)
{
    if (item->connection == session_id(session))
        return; /* its own doing: this kernel knows */
    if (item->plan.name && item->parent != 0) {
        if (item->name[0] != '\0')
            session_forget_name(session, item->parent, item->name);
        session_forget_node(session, item->parent, false);
    }
    if (item->node != 0 && (item->plan.node_data || item->plan.node_attrs))
        session_forget_node(session, item->node, item->plan.node_data);
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

static void *
notify_main(void *arg)
{
    struct notifier *notifier = arg;
    pthread_mutex_lock(&notifier->mutex);
    while (!notifier->ending) {
        if (!notifier->first) {
            pthread_cond_wait(&notifier->wake, &notifier->mutex);
            continue;
        }
        struct item *item = take_locked(notifier);
        pthread_mutex_unlock(&notifier->mutex);
        tell_all(notifier, item); /* no lock: the kernel may wait for a request of ours (INV-8) */
        free(item);
        pthread_mutex_lock(&notifier->mutex);
    }
    pthread_mutex_unlock(&notifier->mutex);
    return NULL;
}

static struct item *
make_item(const struct volume_event *event, struct notify_plan plan, bool with_name)
{
    const char *name = with_name && event->name ? event->name : "";
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

void
notifier_event(void *arg, const struct volume_event *event)
{
    struct notifier *notifier = arg;
    struct notify_plan plan = notify_plan(event->kind);
    if (!plan.name && !plan.node_data && !plan.node_attrs)
        return;
    scope_unlock pthread_mutex_t *held = scope_lock(&notifier->mutex);
    (void)held;
    bool with_name = notifier->queued < notifier->max_queued / 2;
    struct item *item = notifier->queued < notifier->max_queued && !notifier->ending
                            ? make_item(event, plan, with_name)
                            : NULL;
    if (!item) {
        if (notifier->dropped++ % 1000 == 0)
            log_warn(mount, "kernel notifications fall behind dropped=%llu",
                     (unsigned long long)notifier->dropped);
        return;
    }
    *notifier->end = item;
    notifier->end = &item->next;
    notifier->queued++;
    pthread_cond_signal(&notifier->wake);
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
    while (notifier->first)
        free(take_locked(notifier));
    pthread_cond_destroy(&notifier->wake);
    pthread_mutex_destroy(&notifier->mutex);
    free(notifier);
}
