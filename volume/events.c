#include "base/log.h"
#include "base/scope.h"
#include "volume/service_impl.h"

/* One notifier thread tells the watchers. Events are queued inside index functions, before their commit; the thread passes
 * through the writer once, so that what it tells can be read. */

#define EVENTS_MAX 65536u
#define WATCHERS_MAX 8u

struct event {
    struct event *next;
    struct volume_event event;
    char name[LIMIT_NAME + 1];
};

struct event_queue {
    struct volume_service *service;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct event *head, *tail;
    unsigned count;
    bool stopping, started;
    pthread_t thread;
    struct {
        volume_event_fn *fn;
        void *arg;
    } watcher[WATCHERS_MAX];
    unsigned watchers;
};

void
event_emit(struct volume_service *service, enum volume_event_kind kind,
           const struct index_node *node, int64_t connection)
{
    struct event_queue *queue = service->events;
    if (queue == NULL || queue->watchers == 0)
        return;
    struct event *event = calloc(1, sizeof(*event));
    if (event == NULL)
        return;
    event->event.kind = kind;
    event->event.connection = connection;
    if (node != NULL) {
        event->event.volume = node->volume;
        event->event.node = node->id;
        event->event.parent = node->parent;
        text_set(event->name, node->name);
    }
    pthread_mutex_lock(&queue->lock);
    if (queue->count >= EVENTS_MAX || queue->stopping) {
        pthread_mutex_unlock(&queue->lock);
        free(event);
        return;
    }
    if (queue->tail == NULL)
        queue->head = event;
    else
        queue->tail->next = event;
    queue->tail = event;
    queue->count++;
    pthread_cond_signal(&queue->wake);
    pthread_mutex_unlock(&queue->lock);
}

static void
tell(struct event_queue *queue, struct event *event)
{
    event->event.name = event->name;
    for (unsigned i = 0; i < queue->watchers; i++)
        queue->watcher[i].fn(queue->watcher[i].arg, &event->event);
}

static void *
notifier_main(void *arg)
{
    struct event_queue *queue = arg;
    pthread_setname_np(pthread_self(), "hf-notify");
    pthread_mutex_lock(&queue->lock);
    for (;;) {
        while (queue->head == NULL && !queue->stopping)
            pthread_cond_wait(&queue->wake, &queue->lock);
        if (queue->head == NULL)
            break;
        struct event *batch = queue->head;
        queue->head = queue->tail = NULL;
        queue->count = 0;
        pthread_mutex_unlock(&queue->lock);
        struct err err = ERR_INIT;
        if (index_pass(queue->service->index, &err) != 0)
            log_debug(volume, "the notifier cannot pass the writer: %s", err.msg);
        for (struct event *next; batch != NULL; batch = next) {
            next = batch->next;
            tell(queue, batch);
            free(batch);
        }
        pthread_mutex_lock(&queue->lock);
    }
    pthread_mutex_unlock(&queue->lock);
    return NULL;
}

int
volume_watch(struct volume_service *service, volume_event_fn *fn, void *arg, struct err *err)
{
    struct event_queue *queue = service->events;
    if (queue->watchers == WATCHERS_MAX || queue->started)
        return err_set(err, ERR_BUSY, "no more watchers can be added");
    queue->watcher[queue->watchers].fn = fn;
    queue->watcher[queue->watchers].arg = arg;
    queue->watchers++;
    return 0;
}

int
event_queue_open(struct volume_service *service, struct err *err)
{
    struct event_queue *queue = calloc(1, sizeof(*queue));
    if (queue == NULL)
        return err_nomem(err);
    pthread_mutex_init(&queue->lock, NULL);
    pthread_cond_init(&queue->wake, NULL);
    queue->service = service;
    service->events = queue;
    return 0;
}

int
event_queue_start(struct volume_service *service, struct err *err)
{
    struct event_queue *queue = service->events;
    int rc = pthread_create(&queue->thread, NULL, notifier_main, queue);
    queue->started = rc == 0;
    return rc == 0 ? 0 : err_sys(err, rc, "cannot start the notifier thread");
}

void
event_queue_close(struct volume_service *service)
{
    struct event_queue *queue = service->events;
    if (queue == NULL)
        return;
    pthread_mutex_lock(&queue->lock);
    queue->stopping = true;
    pthread_cond_broadcast(&queue->wake);
    pthread_mutex_unlock(&queue->lock);
    if (queue->started)
        pthread_join(queue->thread, NULL);
    for (struct event *event = queue->head, *next; event != NULL; event = next) {
        next = event->next;
        free(event);
    }
    pthread_cond_destroy(&queue->wake);
    pthread_mutex_destroy(&queue->lock);
    free(queue);
    service->events = NULL;
}
