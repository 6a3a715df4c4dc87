#include "base/log.h"
#include "base/scope.h"
#include "volume/listing_impl.h"

/*
 * Who lists which folder. One listing of a folder runs at a time, on a thread of its own; everybody who needs it waits for
 * it together, and goes on waiting as long as it moves: a folder of a million keys takes minutes and is no failure, a store
 * that says nothing is one.
 */

#define FOREGROUND_THREADS 6u
#define BACKGROUND_THREADS 2u
#define QUEUE_MAX 256u
#define HIDDEN_MAX 256u

struct list_job {
    struct list_job *next;
    struct volume_service *service;
    int64_t dir;
    unsigned refs;
    int64_t began_ns; /* mono: when somebody first wanted it */
    uint64_t progress;
    bool background; /* queued behind others: who waits for it runs it itself */
    bool running, done;
    bool again; /* asked for while it ran: what it saw may be older */
    int rc;
    struct err err;
};

struct hidden_dir {
    int64_t dir;
    struct volume_unreachable what;
};

struct lister {
    pthread_mutex_t lock; /* a leaf */
    pthread_cond_t moved;
    struct list_job *jobs; /* queued, running, or done and still waited for */
    struct pool *pool, *background;
    struct heads *heads;
    struct hidden_dir hidden[HIDDEN_MAX];
    size_t hidden_count;
};

static struct list_job *
find_job_locked(struct lister *lister, int64_t dir)
{
    for (struct list_job *job = lister->jobs; job != NULL; job = job->next)
        if (job->dir == dir && !job->done)
            return job;
    return NULL;
}

static struct list_job *
add_job_locked(struct volume_service *service, int64_t dir)
{
    struct list_job *job = calloc(1, sizeof(*job));
    if (job == NULL)
        return NULL;
    job->service = service;
    job->dir = dir;
    job->began_ns = clock_mono_ns();
    job->err = (struct err)ERR_INIT;
    job->next = service->lister->jobs;
    service->lister->jobs = job;
    return job;
}

static void
unref_job_locked(struct lister *lister, struct list_job *job)
{
    if (--job->refs > 0)
        return;
    for (struct list_job **at = &lister->jobs; *at != NULL; at = &(*at)->next)
        if (*at == job) {
            *at = job->next;
            break;
        }
    free(job);
}

/* Runs the job unless another thread has begun it, and lets its reference go. */
static void
run_job(void *arg)
{
    struct list_job *job = arg;
    struct lister *lister = job->service->lister;
    pthread_mutex_lock(&lister->lock);
    bool mine = !job->running && !job->done;
    if (mine)
        job->running = true;
    pthread_mutex_unlock(&lister->lock);
    struct err err = ERR_INIT;
    int rc = -1;
    if (mine && atomic_load(&job->service->stopping))
        (void)err_set(&err, ERR_STORE_AWAY, "the gateway is stopping");
    else if (mine)
        rc = listing_run(job->service, job->dir, &err);
    pthread_mutex_lock(&lister->lock);
    if (mine) {
        job->rc = rc;
        job->err = err;
        job->running = false;
        job->done = true;
        pthread_cond_broadcast(&lister->moved);
    }
    bool again = mine && job->again;
    struct volume_service *service = job->service;
    int64_t dir = job->dir;
    unref_job_locked(lister, job);
    pthread_mutex_unlock(&lister->lock);
    if (again && !atomic_load(&service->stopping))
        bucket_refresh_dir(service, dir);
}

/* Gives the job, which nobody runs yet, to the foreground threads; without a place there it runs here. */
static void
start_job(struct lister *lister, struct list_job *job)
{
    struct err ignored = ERR_INIT;
    if (lister->pool == NULL || pool_submit(lister->pool, run_job, NULL, job, &ignored) != 0)
        run_job(job);
}

/* The job of this folder, begun when there is none; the caller lets its reference go. NULL without memory. */
static struct list_job *
join_job(struct volume_service *service, int64_t dir)
{
    struct lister *lister = service->lister;
    pthread_mutex_lock(&lister->lock);
    struct list_job *job = find_job_locked(lister, dir);
    bool start = job == NULL || (job->background && !job->running);
    if (job == NULL)
        job = add_job_locked(service, dir);
    if (job != NULL) {
        job->background = false;
        job->refs += 1u + start;
    }
    pthread_mutex_unlock(&lister->lock);
    if (job != NULL && start)
        start_job(lister, job);
    return job;
}

static void
leave_job(struct lister *lister, struct list_job *job)
{
    pthread_mutex_lock(&lister->lock);
    unref_job_locked(lister, job);
    pthread_mutex_unlock(&lister->lock);
}

/* Until the job has moved on from `seen` (UINT64_MAX: until it is done). -1: no progress within `patience_ns`; `renew`: each
 * progress gives patience anew. */
static int
wait_job(struct lister *lister, struct list_job *job, uint64_t seen, int64_t patience_ns,
         bool renew)
{
    int rc = 0;
    pthread_mutex_lock(&lister->lock);
    uint64_t last = job->progress;
    int64_t until = clock_mono_ns() + patience_ns;
    while (!job->done && (seen == UINT64_MAX || job->progress == seen)) {
        if (renew && job->progress != last) {
            last = job->progress;
            until = clock_mono_ns() + patience_ns;
        }
        if (clock_mono_ns() >= until) {
            rc = -1;
            break;
        }
        struct timespec at = { .tv_sec = until / NS_PER_S, .tv_nsec = until % NS_PER_S };
        (void)pthread_cond_timedwait(&lister->moved, &lister->lock, &at);
    }
    pthread_mutex_unlock(&lister->lock);
    return rc;
}

static int64_t
patience_of(const struct volume_ctx *ctx)
{
    int64_t left = service_deadline(ctx) - clock_mono_ns();
    return left > 0 ? left : 0;
}

static int
answer_of(const struct list_job *job, struct err *err)
{
    if (job->rc != 0)
        *err = job->err;
    return job->rc;
}

static int
too_slow(struct err *err)
{
    return err_set(err, ERR_STORE_TIMEOUT,
                   "the store does not answer: the folder cannot be listed");
}

int
bucket_list_dir(struct volume_service *service, const struct volume_ctx *ctx, int64_t dir,
                struct err *err)
{
    struct lister *lister = service->lister;
    struct list_job *job = join_job(service, dir);
    if (job == NULL)
        return err_nomem(err);
    int rc = wait_job(lister, job, UINT64_MAX, patience_of(ctx), true);
    rc = rc == 0 ? answer_of(job, err) : too_slow(err);
    leave_job(lister, job);
    return rc;
}

static int
dir_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct index_node *node = arg;
    return index_node_get(tx, node->id, node, err);
}

/* The listing that was waited for may have ended before the next step: it is not begun anew for that. */
static bool
has_ended(struct volume_service *service, int64_t dir)
{
    struct index_node node = { .id = dir };
    struct err ignored = ERR_INIT;
    return index_read(service->index, dir_tx, &node, &ignored) == 0 &&
           service_listed(service, &node);
}

int
lister_step(struct volume_service *service, const struct volume_ctx *ctx, int64_t dir,
            uint64_t *seen, bool *done, struct err *err)
{
    struct lister *lister = service->lister;
    if (*seen > 0 && has_ended(service, dir)) {
        *done = true;
        return 0;
    }
    struct list_job *job = join_job(service, dir);
    if (job == NULL)
        return err_nomem(err);
    int rc = wait_job(lister, job, *seen, patience_of(ctx), true);
    pthread_mutex_lock(&lister->lock);
    *seen = job->progress;
    *done = job->done;
    if (rc != 0)
        (void)too_slow(err);
    else if (job->done)
        rc = answer_of(job, err);
    unref_job_locked(lister, job);
    pthread_mutex_unlock(&lister->lock);
    return rc;
}

void
lister_await(struct volume_service *service, int64_t dir, int64_t patience_ns)
{
    struct lister *lister = service->lister;
    struct list_job *job = join_job(service, dir);
    if (job == NULL)
        return;
    /* A long listing is waited for once, not by everybody who comes while it runs. */
    int64_t left = job->began_ns + patience_ns - clock_mono_ns();
    if (left > 0)
        (void)wait_job(lister, job, UINT64_MAX, left, false);
    leave_job(lister, job);
}

void
lister_progress(struct volume_service *service, int64_t dir)
{
    struct lister *lister = service->lister;
    if (lister == NULL)
        return;
    pthread_mutex_lock(&lister->lock);
    struct list_job *job = find_job_locked(lister, dir);
    if (job != NULL)
        job->progress++;
    pthread_cond_broadcast(&lister->moved);
    pthread_mutex_unlock(&lister->lock);
}

void
bucket_refresh_dir(struct volume_service *service, int64_t dir)
{
    struct lister *lister = service->lister;
    struct err ignored = ERR_INIT;
    if (lister == NULL || lister->background == NULL)
        return;
    pthread_mutex_lock(&lister->lock);
    struct list_job *job =
        find_job_locked(lister, dir) == NULL ? add_job_locked(service, dir) : NULL;
    if (job != NULL) {
        job->background = true;
        job->refs = 1;
    }
    pthread_mutex_unlock(&lister->lock);
    if (job == NULL || pool_submit(lister->background, run_job, NULL, job, &ignored) == 0)
        return;
    /* No place: whoever has joined meanwhile runs it. */
    leave_job(lister, job);
}

bool
lister_renew(struct volume_service *service, int64_t dir)
{
    struct lister *lister = service->lister;
    if (lister == NULL || lister->background == NULL)
        return true;
    pthread_mutex_lock(&lister->lock);
    struct list_job *job = find_job_locked(lister, dir);
    if (job != NULL && job->running)
        job->again = true;
    pthread_mutex_unlock(&lister->lock);
    if (job != NULL)
        return true;
    if (pool_queued(lister->background) > QUEUE_MAX / 2)
        return false;
    bucket_refresh_dir(service, dir);
    return true;
}

/* ---- what cannot be shown ---- */

void
lister_hidden(struct volume_service *service, int64_t dir, const struct volume_unreachable *what)
{
    struct lister *lister = service->lister;
    if (lister == NULL)
        return;
    scope_unlock pthread_mutex_t *held = scope_lock(&lister->lock);
    size_t at = 0;
    while (at < lister->hidden_count && lister->hidden[at].dir != dir)
        at++;
    if (what->count == 0) {
        if (at < lister->hidden_count)
            lister->hidden[at] = lister->hidden[--lister->hidden_count];
        return;
    }
    if (at == HIDDEN_MAX)
        return;
    if (at == lister->hidden_count) {
        lister->hidden_count++;
        log_warn(volume, "%llu keys of a folder cannot be shown as files (%s) key=%s",
                 (unsigned long long)what->count, what->why, what->key);
    }
    lister->hidden[at] = (struct hidden_dir){ dir, *what };
}

void
lister_unreachable(struct volume_service *service, struct volume_unreachable *out)
{
    struct lister *lister = service->lister;
    memset(out, 0, sizeof(*out));
    if (lister == NULL)
        return;
    scope_unlock pthread_mutex_t *held = scope_lock(&lister->lock);
    for (size_t i = 0; i < lister->hidden_count; i++) {
        uint64_t count = out->count + lister->hidden[i].what.count;
        if (out->count == 0)
            *out = lister->hidden[i].what;
        out->count = count;
    }
}

/* ---- life ---- */

struct heads *
lister_heads(struct volume_service *service)
{
    return service->lister->heads;
}

int
lister_open(struct volume_service *service, struct err *err)
{
    struct lister *lister = calloc(1, sizeof(*lister));
    if (lister == NULL)
        return err_nomem(err);
    pthread_condattr_t monotonic;
    pthread_mutex_init(&lister->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&lister->moved, &monotonic);
    pthread_condattr_destroy(&monotonic);
    service->lister = lister;
    lister->pool = pool_new("hf-list", FOREGROUND_THREADS, QUEUE_MAX, err);
    if (lister->pool == NULL)
        return -1;
    lister->background = pool_new("hf-relist", BACKGROUND_THREADS, QUEUE_MAX, err);
    if (lister->background == NULL)
        return -1;
    lister->heads = heads_new(err);
    return lister->heads == NULL ? -1 : 0;
}

static void
end_pool(struct pool *pool)
{
    if (pool == NULL)
        return;
    pool_drain(pool);
    pool_free(pool);
}

void
lister_close(struct volume_service *service)
{
    struct lister *lister = service->lister;
    if (lister == NULL)
        return;
    end_pool(lister->pool);
    end_pool(lister->background);
    heads_free(lister->heads);
    pthread_cond_destroy(&lister->moved);
    pthread_mutex_destroy(&lister->lock);
    free(lister);
    service->lister = NULL;
}
