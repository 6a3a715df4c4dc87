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
    volume_done_fn *done; /* instead of an event: behind what was told before */
    void *done_arg;
    char name[LIMIT_NAME + 1];
};

struct event_queue {
    struct volume_service *service;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct event *head, *tail;
    unsigned count;
    bool stopping, started;
    bool lost; /* some did not fit */
    pthread_t thread;
    struct {
        volume_event_fn *fn;
        void *arg;
    } watcher[WATCHERS_MAX];
    unsigned watchers;
    volume_pass_fn *pass;
    void *pass_arg;
};

static bool
queue_event(struct event_queue *queue, struct event *event)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&queue->lock);
    (void)held;
    if (queue->count >= EVENTS_MAX || queue->stopping) {
        queue->lost = true;
        return false;
    }
    if (queue->tail == NULL)
        queue->head = event;
    else
        queue->tail->next = event;
    queue->tail = event;
    queue->count++;
    pthread_cond_signal(&queue->wake);
    return true;
}

void
event_emit(struct volume_service *service, enum volume_event_kind kind,
           const struct index_node *node, int64_t connection)
{
    struct event_queue *queue = service->events;
    if (queue == NULL || queue->watchers == 0)
        return;
    /* For other kernels only. */
    if (kind == VOLUME_EVENT_OPENED && connection != 0 && atomic_load(&service->kernels) < 2)
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
    if (!queue_event(queue, event))
        free(event);
}

void
volume_teller(struct volume_service *service, volume_pass_fn *pass, void *arg)
{
    service->events->pass = pass;
    service->events->pass_arg = arg;
}

static bool
pass(struct volume_service *service, volume_done_fn *done, void *done_arg)
{
    struct event *event = calloc(1, sizeof(*event));
    if (event == NULL)
        return false;
    event->event.connection = -1; /* nothing to be read: no need to pass the writer */
    event->done = done;
    event->done_arg = done_arg;
    if (queue_event(service->events, event))
        return true;
    free(event);
    return false;
}

bool
volume_told(struct volume_service *service, volume_done_fn *done, void *done_arg)
{
    return atomic_load(&service->kernels) > 1 && pass(service, done, done_arg);
}

struct settling {
    pthread_mutex_t lock;
    pthread_cond_t told;
    unsigned refs;
    bool done;
};

static void
leave_settling(struct settling *wait, bool done)
{
    pthread_mutex_lock(&wait->lock);
    wait->done |= done;
    bool last = --wait->refs == 0;
    pthread_cond_signal(&wait->told);
    pthread_mutex_unlock(&wait->lock);
    if (!last)
        return;
    pthread_cond_destroy(&wait->told);
    pthread_mutex_destroy(&wait->lock);
    free(wait);
}

static void
settled(void *arg)
{
    leave_settling(arg, true);
}

void
event_settle(struct volume_service *service, const struct volume_ctx *ctx)
{
    if (ctx->connection != 0 || ctx->nowait || atomic_load(&service->kernels) == 0)
        return;
    struct settling *wait = calloc(1, sizeof(*wait));
    if (wait == NULL)
        return;
    struct timespec until;
    pthread_mutex_init(&wait->lock, NULL);
    pthread_cond_init(&wait->told, NULL);
    wait->refs = 2;
    if (!pass(service, settled, wait))
        wait->refs--;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec++;
    pthread_mutex_lock(&wait->lock);
    while (wait->refs == 2 && !wait->done &&
           pthread_cond_timedwait(&wait->told, &wait->lock, &until) == 0)
        continue;
    pthread_mutex_unlock(&wait->lock);
    leave_settling(wait, false);
}

unsigned
volume_kernel_count(struct volume_service *service)
{
    return atomic_load(&service->kernels);
}

void
volume_kernels(struct volume_service *service, int change)
{
    (void)atomic_fetch_add(&service->kernels, (unsigned)change);
}

static void
tell(struct event_queue *queue, struct event *event)
{
    if (event->done != NULL && queue->pass != NULL) {
        queue->pass(queue->pass_arg, event->done, event->done_arg);
        return;
    }
    if (event->done != NULL) {
        event->done(event->done_arg);
        return;
    }
    event->event.name = event->name;
    for (unsigned i = 0; i < queue->watchers; i++)
        queue->watcher[i].fn(queue->watcher[i].arg, &event->event);
}

/* What a mount's request did is told after its commit; only the others may still be inside their transaction. */
static bool
is_open(const struct event *batch)
{
    while (batch != NULL && batch->event.connection != 0)
        batch = batch->next;
    return batch != NULL;
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
        bool lost = queue->lost;
        queue->lost = false;
        pthread_mutex_unlock(&queue->lock);
        struct err err = ERR_INIT;
        if (is_open(batch) && index_pass(queue->service->index, &err) != 0)
            log_debug(volume, "the notifier cannot pass the writer: %s", err.msg);
        for (struct event *next; batch != NULL; batch = next) {
            next = batch->next;
            tell(queue, batch);
            free(batch);
        }
        if (lost)
            tell(queue, &(struct event){ .event.kind = VOLUME_EVENT_LOST });
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
        if (event->done != NULL)
            event->done(event->done_arg);
        free(event);
    }
    pthread_cond_destroy(&queue->wake);
    pthread_mutex_destroy(&queue->lock);
    free(queue);
    service->events = NULL;
}
