#include <errno.h>

#include "base/log.h"
#include "base/scope.h"
#include "volume/step_impl.h"

/*
 * The background engine that brings the bucket to what the tree says. A dispatcher reads the work items that are due and
 * hands keys to workers; a key is with one worker at a time. A worker decides, does one step without any lock, commits its
 * effect, and decides anew (versioning/sync.h).
 */

#define QUEUE_MAX 256u
#define QUEUE_LOW 64u               /* the dispatcher reads again when so few are left */
#define READ_PAUSE (2 * NS_PER_MS)  /* between two readings, so that a burst costs one */
#define REST_PAUSE (20 * NS_PER_MS) /* the same while nobody waits for it */
#define BUSY_BUCKETS 1024u
#define WAIT_MAX (120 * NS_PER_S)
#define LATE_MAX 1024u
#define LATE_LIFE (20 * 60 * NS_PER_S)

/* A key that waits for a worker or is with one. */
struct work {
    struct work *next;  /* in the queue */
    struct work *chain; /* in its bucket of `busy` */
    int64_t volume;
    bool again;     /* found due meanwhile */
    int64_t due_ns; /* wall */
    char key[LIMIT_KEY + 1];
};

struct pace;

struct late {
    char key[LIMIT_KEY + 1];
    struct sync_attempt attempt;
    int64_t until_ns;
};

struct sync_engine {
    struct volume_service *service;
    pthread_mutex_t lock;
    pthread_cond_t wake;     /* dispatcher: new work, a free place, or the end */
    pthread_cond_t ready;    /* workers: something is queued */
    pthread_cond_t progress; /* barriers */
    struct work *head, *tail;
    unsigned queued;
    struct work *busy[BUSY_BUCKETS]; /* keys queued or with a worker */
    uint64_t progress_count;
    bool kicked;        /* rows changed since the dispatcher read them */
    int64_t kick_at_ns; /* mono: they will be due then, 0: none that it has not read */
    int64_t until_ns;   /* mono: so long the dispatcher sleeps */
    bool more;          /* it left some that did not fit */
    bool stopping;
    unsigned running; /* workers that are at a key */
    bool is_short;    /* rest_is_short(), when the work items were last read */
    int64_t pause_ns; /* mono: while they give way, none begins before */
    int64_t window;   /* number of the BUSY_WINDOW in which mounts changed `changes` things, */
    unsigned changes, changes_before; /* and so many in the one before it */
    struct pace *paces[BUSY_BUCKETS];
    struct late *late[LATE_MAX];
    size_t late_count;
    pthread_t dispatcher;
    pthread_t *worker;
    unsigned workers;
};

/* ---- one key at a time ---- */

static size_t
busy_slot(const char *key)
{
    return crc32c(0, key, strlen(key)) % BUSY_BUCKETS;
}

static struct work *
find_busy_locked(struct sync_engine *engine, const char *key)
{
    struct work *work = engine->busy[busy_slot(key)];
    while (work != NULL && strcmp(work->key, key) != 0)
        work = work->chain;
    return work;
}

static void
enqueue_locked(struct sync_engine *engine, struct work *work)
{
    struct work **bucket = &engine->busy[busy_slot(work->key)];
    work->chain = *bucket;
    *bucket = work;
    if (engine->tail == NULL)
        engine->head = work;
    else
        engine->tail->next = work;
    engine->tail = work;
    engine->queued++;
}

static struct work *
dequeue_locked(struct sync_engine *engine)
{
    struct work *work = engine->head;
    engine->head = work->next;
    if (engine->head == NULL)
        engine->tail = NULL;
    engine->queued--;
    return work;
}

static void
end_busy_locked(struct sync_engine *engine, struct work *work)
{
    struct work **link = &engine->busy[busy_slot(work->key)];
    while (*link != work)
        link = &(*link)->chain;
    *link = work->chain;
}

/* ---- attempts that may land late ---- */

void
sync_late_add(struct volume_service *service, const char *key, const struct sync_attempt *attempt)
{
    struct sync_engine *engine = service->sync;
    scope_unlock pthread_mutex_t *held = scope_lock(&engine->lock);
    int64_t now = clock_wall_ns();
    size_t kept = 0;
    for (size_t i = 0; i < engine->late_count; i++) {
        if (engine->late[i]->until_ns > now)
            engine->late[kept++] = engine->late[i];
        else
            free(engine->late[i]);
    }
    engine->late_count = kept;
    struct late *late = kept < LATE_MAX ? calloc(1, sizeof(*late)) : NULL;
    if (late == NULL)
        return;
    text_set(late->key, key);
    late->attempt = *attempt;
    late->until_ns = now + LATE_LIFE;
    engine->late[engine->late_count++] = late;
}

size_t
sync_late_of(struct volume_service *service, const char *key,
             struct sync_attempt out[SYNC_LATE_PER_KEY])
{
    struct sync_engine *engine = service->sync;
    scope_unlock pthread_mutex_t *held = scope_lock(&engine->lock);
    size_t count = 0;
    int64_t now = clock_wall_ns();
    for (size_t i = engine->late_count; i > 0 && count < SYNC_LATE_PER_KEY; i--) {
        struct late *late = engine->late[i - 1];
        if (late->until_ns > now && strcmp(late->key, key) == 0)
            out[count++] = late->attempt;
    }
    return count;
}

/* ---- stores that take a write of one key only so often (R2: one in a second) ---- */

/* Keys written less than that interval ago. In memory: a write too early after a restart is refused by the store and tried
 * again. */
struct pace {
    struct pace *next;
    int64_t until_ns; /* wall */
    char key[];
};

static void
drop_old_paces_locked(struct sync_engine *engine, size_t slot, int64_t now, int64_t interval)
{
    struct pace **link = &engine->paces[slot];
    while (*link != NULL) {
        struct pace *pace = *link;
        if (pace->until_ns > now && pace->until_ns <= now + interval) {
            link = &pace->next;
            continue;
        }
        *link = pace->next;
        free(pace);
    }
}

void
sync_wrote(struct volume_service *service, const char *key)
{
    struct sync_engine *engine = service->sync;
    int64_t interval = service->store->caps.min_write_interval_ns, now = clock_wall_ns();
    if (interval <= 0)
        return;
    size_t slot = busy_slot(key), size = strlen(key) + 1;
    struct pace *pace = malloc(sizeof(*pace) + size);
    if (pace == NULL)
        return; /* the store says so itself */
    pace->until_ns = now + interval;
    memcpy(pace->key, key, size);
    scope_unlock pthread_mutex_t *held = scope_lock(&engine->lock);
    drop_old_paces_locked(engine, slot, now, interval);
    pace->next = engine->paces[slot];
    engine->paces[slot] = pace;
}

int64_t
sync_paced_until(struct volume_service *service, const char *key)
{
    struct sync_engine *engine = service->sync;
    int64_t interval = service->store->caps.min_write_interval_ns, until = 0;
    if (interval <= 0)
        return 0;
    size_t slot = busy_slot(key);
    scope_unlock pthread_mutex_t *held = scope_lock(&engine->lock);
    drop_old_paces_locked(engine, slot, clock_wall_ns(), interval);
    for (const struct pace *pace = engine->paces[slot]; pace != NULL; pace = pace->next)
        if (strcmp(pace->key, key) == 0 && pace->until_ns > until)
            until = pace->until_ns;
    return until;
}

/* ---- giving way ---- */

/* While programs change much in the mounts, and nobody waits for the bucket, one worker goes on with a fifth of its time: on a small
 * machine uploads and programs want the same processors. It ends with what is late. */
#define BUSY_WINDOW (100 * NS_PER_MS)
#define BUSY_CHANGES 10u
#define WAY_LATE (10 * NS_PER_S)
#define WAY_SHARE 4
#define WAY_PAUSE_MAX (100 * NS_PER_MS)

static void
note_change_locked(struct sync_engine *engine)
{
    int64_t window = clock_mono_ns() / BUSY_WINDOW;
    if (window != engine->window) {
        engine->changes_before = window == engine->window + 1 ? engine->changes : 0;
        engine->changes = 0;
        engine->window = window;
    }
    engine->changes++;
}

static bool
gives_way_locked(const struct sync_engine *engine, int64_t now)
{
    int64_t age = now / BUSY_WINDOW - engine->window;
    unsigned recent = age == 0   ? engine->changes + engine->changes_before
                      : age == 1 ? engine->changes
                                 : 0;
    if (recent < BUSY_CHANGES || engine->is_short || atomic_load(&engine->service->hurried) > 0)
        return false;
    return engine->head == NULL || clock_wall_ns() - engine->head->due_ns < WAY_LATE;
}

static bool
may_begin_locked(const struct sync_engine *engine)
{
    int64_t now = clock_mono_ns();
    return !gives_way_locked(engine, now) || (engine->running == 0 && now >= engine->pause_ns);
}

/* Until there is a key to work on, and it is its time. */
static void
await_turn_locked(struct sync_engine *engine)
{
    while (!engine->stopping) {
        if (engine->head == NULL) {
            pthread_cond_wait(&engine->ready, &engine->lock);
            continue;
        }
        if (may_begin_locked(engine))
            return;
        int64_t until = clock_mono_ns() + WAY_PAUSE_MAX / 4;
        struct timespec end = { .tv_sec = until / NS_PER_S, .tv_nsec = until % NS_PER_S };
        (void)pthread_cond_timedwait(&engine->ready, &engine->lock, &end);
    }
}

static void
pause_locked(struct sync_engine *engine, int64_t begun)
{
    int64_t now = clock_mono_ns(), pause = WAY_SHARE * (now - begun);
    engine->pause_ns = now + (pause < WAY_PAUSE_MAX ? pause : WAY_PAUSE_MAX);
}

/* ---- threads ---- */

/* The dispatcher has something to read, and there is room for what it finds. */
static bool
wants_reading_locked(const struct sync_engine *engine)
{
    return (engine->kicked || engine->more) && engine->queued < QUEUE_LOW;
}

static void
kick_locked(struct sync_engine *engine)
{
    engine->kicked = true;
    if (wants_reading_locked(engine))
        pthread_cond_signal(&engine->wake);
}

static void *
worker_main(void *arg)
{
    struct sync_engine *engine = arg;
    pthread_setname_np(pthread_self(), "hf-sync");
    pthread_mutex_lock(&engine->lock);
    for (;;) {
        await_turn_locked(engine);
        if (engine->stopping)
            break;
        struct work *work = dequeue_locked(engine);
        int64_t begun = clock_mono_ns();
        engine->running++;
        if (engine->queued == QUEUE_LOW - 1 && wants_reading_locked(engine))
            pthread_cond_signal(&engine->wake);
        pthread_mutex_unlock(&engine->lock);
        bool settled = step_key(engine->service, work->volume, work->key);
        pthread_mutex_lock(&engine->lock);
        engine->running--;
        pause_locked(engine, begun);
        end_busy_locked(engine, work);
        if (!settled || work->again)
            kick_locked(engine);
        free(work);
    }
    pthread_mutex_unlock(&engine->lock);
    return NULL;
}

struct due_call {
    struct sync_engine *engine;
    int64_t now;
    int64_t next; /* the earliest one that is not due yet, 0: none */
};

static int
take_due(void *arg, const struct index_intent *row, struct err *err)
{
    struct due_call *call = arg;
    struct sync_engine *engine = call->engine;
    scope_unlock pthread_mutex_t *held = scope_lock(&engine->lock);
    struct work *busy = find_busy_locked(engine, row->key);
    if (busy != NULL) {
        busy->again = true;
        return 0;
    }
    engine->more = engine->queued >= QUEUE_MAX;
    if (engine->more)
        return 1;
    struct work *work = calloc(1, sizeof(*work));
    if (work == NULL)
        return err_nomem(err);
    work->volume = row->volume;
    work->due_ns = row->not_before_ns;
    text_set(work->key, row->key);
    enqueue_locked(engine, work);
    pthread_cond_signal(&engine->ready);
    return 0;
}

static int
take_next(void *arg, const struct index_intent *row, struct err *err)
{
    struct due_call *call = arg;
    (void)err;
    call->next = row->not_before_ns;
    return 1;
}

static int
due_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct due_call *call = arg;
    unsigned limit = QUEUE_MAX + call->engine->service->upload_threads + 1;
    if (index_intent_due(tx, call->now, limit, take_due, call, err) != 0 ||
        index_intent_later(tx, call->now, 1, take_next, call, err) != 0)
        return -1;
    /* No wait is longer than a minute: a later time comes of a clock that was put back. */
    return index_intent_later(tx, call->now + WAIT_MAX, limit, take_due, call, err);
}

static void
sleep_until_locked(struct sync_engine *engine, int64_t mono,
                   bool (*enough)(const struct sync_engine *))
{
    engine->until_ns = mono;
    while (!engine->stopping && (enough == NULL || !enough(engine))) {
        if (enough != NULL && engine->kick_at_ns != 0 && engine->kick_at_ns < engine->until_ns)
            engine->until_ns = engine->kick_at_ns;
        mono = engine->until_ns;
        struct timespec until = { .tv_sec = mono / NS_PER_S, .tv_nsec = mono % NS_PER_S };
        if (pthread_cond_timedwait(&engine->wake, &engine->lock, &until) == ETIMEDOUT)
            break;
    }
}

static void *
dispatcher_main(void *arg)
{
    struct sync_engine *engine = arg;
    struct err err = ERR_INIT;
    pthread_setname_np(pthread_self(), "hf-dispatch");
    pthread_mutex_lock(&engine->lock);
    while (!engine->stopping) {
        engine->kicked = engine->more = false;
        engine->kick_at_ns = 0;
        pthread_mutex_unlock(&engine->lock);
        struct due_call call = { .engine = engine, .now = clock_wall_ns() };
        if (index_read(engine->service->index, due_tx, &call, &err) != 0)
            log_warn(sync, "cannot read the work items: %s", err.msg);
        int64_t wait = call.next == 0 ? 5 * NS_PER_S : call.next - call.now;
        if (wait > 5 * NS_PER_S)
            wait = 5 * NS_PER_S;
        if (wait < REST_PAUSE) /* things that rest come due one after the other */
            wait = REST_PAUSE;
        int64_t now = clock_mono_ns();
        bool is_short = rest_is_short(engine->service);
        pthread_mutex_lock(&engine->lock);
        engine->is_short = is_short;
        sleep_until_locked(engine, now + READ_PAUSE, NULL);
        sleep_until_locked(engine, now + wait, wants_reading_locked);
    }
    pthread_mutex_unlock(&engine->lock);
    return NULL;
}

void
sync_kick(struct volume_service *service)
{
    struct sync_engine *engine = service->sync;
    pthread_mutex_lock(&engine->lock);
    kick_locked(engine);
    pthread_mutex_unlock(&engine->lock);
}

void
sync_hurry(struct volume_service *service)
{
    struct sync_engine *engine = service->sync;
    pthread_mutex_lock(&engine->lock);
    pthread_cond_broadcast(&engine->ready);
    pthread_mutex_unlock(&engine->lock);
}

void
sync_kick_at(struct volume_service *service, int64_t at_ns)
{
    struct sync_engine *engine = service->sync;
    pthread_mutex_lock(&engine->lock);
    note_change_locked(engine);
    if (engine->kick_at_ns == 0 || at_ns < engine->kick_at_ns)
        engine->kick_at_ns = at_ns;
    if (at_ns < engine->until_ns)
        pthread_cond_signal(&engine->wake);
    pthread_mutex_unlock(&engine->lock);
}

void
sync_progressed(struct volume_service *service)
{
    struct sync_engine *engine = service->sync;
    pthread_mutex_lock(&engine->lock);
    engine->progress_count++;
    pthread_cond_broadcast(&engine->progress);
    pthread_mutex_unlock(&engine->lock);
}

uint64_t
sync_progress(struct volume_service *service)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&service->sync->lock);
    return service->sync->progress_count;
}

bool
sync_wait(struct volume_service *service, uint64_t seen, int64_t deadline_ns)
{
    struct sync_engine *engine = service->sync;
    scope_unlock pthread_mutex_t *held = scope_lock(&engine->lock);
    struct timespec until = { .tv_sec = deadline_ns / NS_PER_S, .tv_nsec = deadline_ns % NS_PER_S };
    while (engine->progress_count == seen && !engine->stopping)
        if (pthread_cond_timedwait(&engine->progress, &engine->lock, &until) == ETIMEDOUT)
            return false;
    return !engine->stopping && clock_mono_ns() < deadline_ns;
}

int
sync_engine_open(struct volume_service *service, struct err *err)
{
    struct sync_engine *engine = calloc(1, sizeof(*engine));
    if (engine == NULL)
        return err_nomem(err);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&engine->lock, NULL);
    pthread_cond_init(&engine->wake, &attr);
    pthread_cond_init(&engine->ready, &attr);
    pthread_cond_init(&engine->progress, &attr);
    pthread_condattr_destroy(&attr);
    engine->service = service;
    service->sync = engine;
    return 0;
}

int
sync_engine_start(struct volume_service *service, struct err *err)
{
    struct sync_engine *engine = service->sync;
    engine->worker = calloc(service->upload_threads, sizeof(*engine->worker));
    if (engine->worker == NULL)
        return err_nomem(err);
    int rc = pthread_create(&engine->dispatcher, NULL, dispatcher_main, engine);
    for (unsigned i = 0; rc == 0 && i < service->upload_threads; i++) {
        rc = pthread_create(&engine->worker[i], NULL, worker_main, engine);
        engine->workers += rc == 0;
    }
    return rc == 0 ? 0 : err_sys(err, rc, "cannot start the upload threads");
}

void
sync_engine_close(struct volume_service *service, int64_t deadline_ns)
{
    struct sync_engine *engine = service->sync;
    (void)deadline_ns;
    if (engine == NULL)
        return;
    pthread_mutex_lock(&engine->lock);
    engine->stopping = true;
    pthread_cond_broadcast(&engine->wake);
    pthread_cond_broadcast(&engine->ready);
    pthread_cond_broadcast(&engine->progress);
    pthread_mutex_unlock(&engine->lock);
    for (unsigned i = 0; i < engine->workers; i++)
        pthread_join(engine->worker[i], NULL);
    if (engine->worker != NULL && service->started)
        pthread_join(engine->dispatcher, NULL);
}

/* Not before every thread that may kick it has ended. */
void
sync_engine_release(struct volume_service *service)
{
    struct sync_engine *engine = service->sync;
    if (engine == NULL)
        return;
    for (struct work *work = engine->head, *next; work != NULL; work = next) {
        next = work->next;
        free(work);
    }
    for (size_t i = 0; i < engine->late_count; i++)
        free(engine->late[i]);
    for (size_t i = 0; i < BUSY_BUCKETS; i++)
        drop_old_paces_locked(engine, i, INT64_MAX, 0);
    pthread_cond_destroy(&engine->wake);
    pthread_cond_destroy(&engine->ready);
    pthread_cond_destroy(&engine->progress);
    pthread_mutex_destroy(&engine->lock);
    free(engine->worker);
    free(engine);
    service->sync = NULL;
}
