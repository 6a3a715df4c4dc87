#include "base/log.h"
#include "base/scope.h"
#include "volume/listing_impl.h"

/*
 * Many HEADs at once. A listing tells no mode, time or kind; asking one object after the other would take a round trip
 * each, so those that are wanted together, or are likely to be wanted next, are asked by a few threads. One object is
 * never asked twice at the same time.
 */

#define HEAD_THREADS 16u
#define HEAD_QUEUE 1024u
#define AHEAD_FIRST 32u
#define AHEAD_MOST 256u
#define AHEAD_DIRS 32u
#define AHEAD_WITHIN (5 * NS_PER_S)

struct asked {
    struct asked *next;
    int64_t node;
};

/* A folder whose entries are asked for one by one, in the order of their numbers. */
struct ahead {
    int64_t dir;
    int64_t upto;    /* entries up to here were queued */
    int64_t last_ns; /* mono: when one was last missed */
    unsigned window;
};

struct heads {
    pthread_mutex_t lock; /* a leaf */
    pthread_cond_t moved;
    struct asked *asked; /* being asked now */
    struct ahead ahead[AHEAD_DIRS];
    struct pool *pool;
};

/* ---- one object, one request ---- */

static bool
is_asked_locked(const struct heads *heads, int64_t node)
{
    for (const struct asked *one = heads->asked; one != NULL; one = one->next)
        if (one->node == node)
            return true;
    return false;
}

/* False: somebody else asked it meanwhile, and has the answer. */
static bool
begin_asking(struct heads *heads, struct asked *self)
{
    pthread_mutex_lock(&heads->lock);
    bool mine = !is_asked_locked(heads, self->node);
    /* Bounded: whoever asks has a deadline. */
    while (!mine && is_asked_locked(heads, self->node))
        pthread_cond_wait(&heads->moved, &heads->lock);
    if (mine) {
        self->next = heads->asked;
        heads->asked = self;
    }
    pthread_mutex_unlock(&heads->lock);
    return mine;
}

static void
end_asking(struct heads *heads, struct asked *self)
{
    pthread_mutex_lock(&heads->lock);
    for (struct asked **at = &heads->asked; *at != NULL; at = &(*at)->next)
        if (*at == self) {
            *at = self->next;
            break;
        }
    pthread_cond_broadcast(&heads->moved);
    pthread_mutex_unlock(&heads->lock);
}

int
heads_complete(struct volume_service *service, const struct volume_ctx *ctx, int64_t node,
               struct err *err)
{
    struct heads *heads = lister_heads(service);
    struct asked self = { .node = node };
    /* When another's question failed, this one asks for itself: it needs the reason. */
    bool mine = begin_asking(heads, &self);
    (void)prefetch_complete(service, ctx, node);
    int rc = bucket_complete_node(service, ctx, node, err);
    if (mine)
        end_asking(heads, &self);
    return rc;
}

/* ---- many ---- */

struct fan {
    pthread_mutex_t lock;
    pthread_cond_t done;
    size_t left;
    int rc;
    struct err err;
};

struct head_job {
    struct volume_service *service;
    struct fan *fan;     /* NULL: nobody waits */
    int64_t deadline_ns; /* mono, 0: its own */
    int64_t node;        /* complete this one, or, when 0, */
    int64_t volume;      /* observe this key */
    const char *key;
};

static void
fan_done(struct fan *fan, int rc, const struct err *err)
{
    pthread_mutex_lock(&fan->lock);
    if (rc != 0 && fan->rc == 0) {
        fan->rc = rc;
        fan->err = *err;
    }
    fan->left--;
    pthread_cond_signal(&fan->done);
    pthread_mutex_unlock(&fan->lock);
}

static void
run_head(void *arg)
{
    struct head_job *job = arg;
    struct volume_ctx ctx = { .actor = "bucket", .deadline_ns = job->deadline_ns };
    struct err err = ERR_INIT;
    int rc = 0;
    if (job->deadline_ns != 0 && clock_mono_ns() >= job->deadline_ns)
        rc = err_set(&err, ERR_STORE_TIMEOUT, "the store is too slow to look at every object");
    else if (atomic_load(&job->service->stopping))
        rc = err_set(&err, ERR_STORE_AWAY, "the gateway is stopping");
    else if (job->node != 0)
        rc = heads_complete(job->service, &ctx, job->node, &err);
    else
        rc = bucket_observe_key(job->service, job->volume, job->key, &err);
    if (job->fan != NULL)
        fan_done(job->fan, rc, &err);
    else if (rc != 0)
        log_debug(volume, "cannot look at an object ahead: %s", err.msg);
    free(job);
}

static int
submit(struct heads *heads, const struct head_job *job, struct err *err)
{
    struct head_job *copy = malloc(sizeof(*copy));
    if (copy == NULL)
        return err_nomem(err);
    *copy = *job;
    if (pool_submit(heads->pool, run_head, NULL, copy, err) == 0)
        return 0;
    free(copy);
    return -1;
}

/* In the pool, or, where that has no room, here. */
static void
give(struct heads *heads, const struct head_job *job)
{
    struct err ignored = ERR_INIT;
    struct head_job *copy;
    if (submit(heads, job, &ignored) == 0)
        return;
    copy = malloc(sizeof(*copy));
    if (copy == NULL) {
        (void)err_nomem(&ignored);
        fan_done(job->fan, -1, &ignored);
        return;
    }
    *copy = *job;
    run_head(copy);
}

static int
fan_wait(struct fan *fan, struct err *err)
{
    pthread_mutex_lock(&fan->lock);
    while (fan->left > 0)
        pthread_cond_wait(&fan->done, &fan->lock);
    pthread_mutex_unlock(&fan->lock);
    pthread_cond_destroy(&fan->done);
    pthread_mutex_destroy(&fan->lock);
    if (fan->rc != 0)
        *err = fan->err;
    return fan->rc;
}

static void
fan_init(struct fan *fan, size_t count)
{
    *fan = (struct fan){ .left = count, .err = ERR_INIT };
    pthread_mutex_init(&fan->lock, NULL);
    pthread_cond_init(&fan->done, NULL);
}

int
heads_observe(struct volume_service *service, int64_t volume, const char *const *keys, size_t count,
              struct err *err)
{
    struct fan fan;
    if (count == 1)
        return bucket_observe_key(service, volume, keys[0], err);
    fan_init(&fan, count);
    for (size_t i = 0; i < count; i++)
        give(lister_heads(service),
             &(struct head_job){
                 .service = service, .fan = &fan, .volume = volume, .key = keys[i] });
    return fan_wait(&fan, err);
}

int
heads_complete_many(struct volume_service *service, const struct volume_ctx *ctx,
                    const int64_t *nodes, size_t count, struct err *err)
{
    struct fan fan;
    int64_t deadline_ns = service_deadline(ctx);
    fan_init(&fan, count);
    for (size_t i = 0; i < count; i++)
        give(lister_heads(service),
             &(struct head_job){
                 .service = service, .fan = &fan, .deadline_ns = deadline_ns, .node = nodes[i] });
    return fan_wait(&fan, err);
}

/* ---- ahead of who goes through a folder ---- */

struct next_call {
    int64_t dir, after;
    unsigned window;
    int64_t node[AHEAD_MOST];
    size_t count;
};

static int
take_unknown(void *arg, const struct index_node *row, struct err *err)
{
    struct next_call *call = arg;
    (void)err;
    call->after = row->id;
    if ((row->flags & INDEX_NODE_META_UNKNOWN) != 0)
        call->node[call->count++] = row->id;
    return call->count == call->window ? 1 : 0;
}

static int
next_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct next_call *call = arg;
    return index_node_children(tx, call->dir, call->after, AHEAD_MOST, take_unknown, call, err);
}

/* Two misses in a folder within seconds: the third is on its way. 0: not yet, or queued already. */
static unsigned
window_of(struct heads *heads, int64_t dir, int64_t node, int64_t *after)
{
    int64_t now = clock_mono_ns();
    scope_unlock pthread_mutex_t *held = scope_lock(&heads->lock);
    struct ahead *at = &heads->ahead[(uint64_t)dir % AHEAD_DIRS];
    bool follows = at->dir == dir && now - at->last_ns < AHEAD_WITHIN;
    if (!follows)
        *at = (struct ahead){ .dir = dir, .window = AHEAD_FIRST / 2 };
    at->last_ns = now;
    if (!follows)
        return 0;
    if (at->window < AHEAD_MOST)
        at->window *= 2;
    *after = node > at->upto ? node : at->upto;
    return at->window;
}

static void
set_upto(struct heads *heads, int64_t dir, int64_t upto)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&heads->lock);
    struct ahead *at = &heads->ahead[(uint64_t)dir % AHEAD_DIRS];
    if (at->dir == dir && at->upto < upto)
        at->upto = upto;
}

void
heads_ahead(struct volume_service *service, int64_t dir, int64_t node)
{
    struct heads *heads = lister_heads(service);
    struct next_call call = { .dir = dir };
    struct err ignored = ERR_INIT;
    if (prefetch_follows(service, dir))
        return; /* its files are fetched whole, with what a HEAD tells */
    call.window = window_of(heads, dir, node, &call.after);
    if (call.window == 0 || pool_queued(heads->pool) > HEAD_QUEUE / 2 ||
        index_read(service->index, next_tx, &call, &ignored) != 0)
        return;
    set_upto(heads, dir, call.after);
    for (size_t i = 0; i < call.count; i++)
        if (submit(heads, &(struct head_job){ .service = service, .node = call.node[i] },
                   &ignored) != 0)
            return;
}

/* ---- life ---- */

struct heads *
heads_new(struct err *err)
{
    struct heads *heads = calloc(1, sizeof(*heads));
    if (heads == NULL) {
        err_nomem(err);
        return NULL;
    }
    pthread_mutex_init(&heads->lock, NULL);
    pthread_cond_init(&heads->moved, NULL);
    heads->pool = pool_new("hf-head", HEAD_THREADS, HEAD_QUEUE, err);
    if (heads->pool != NULL)
        return heads;
    heads_free(heads);
    return NULL;
}

void
heads_free(struct heads *heads)
{
    if (heads == NULL)
        return;
    if (heads->pool != NULL) {
        pool_drain(heads->pool);
        pool_free(heads->pool);
    }
    pthread_cond_destroy(&heads->moved);
    pthread_mutex_destroy(&heads->lock);
    free(heads);
}
