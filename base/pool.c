#include "base/pool.h"

#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/scope.h"

struct job {
    pool_fn *fn;
    pool_fn *drop;
    void *arg;
};

struct pool {
    pthread_mutex_t mutex;
    pthread_cond_t work; /* something was queued, or stopping was set */
    pthread_cond_t idle; /* nothing is queued or running */
    struct job *ring;
    unsigned max_queued;
    unsigned first;
    unsigned queued;
    unsigned running;
    bool stopping;
    unsigned threads; /* that were started */
    pthread_t thread[];
};

static struct job
take_locked(struct pool *pool)
{
    struct job job = pool->ring[pool->first];
    pool->first = (pool->first + 1) % pool->max_queued;
    pool->queued--;
    return job;
}

static void
tell_idle_locked(struct pool *pool)
{
    if (pool->queued == 0 && pool->running == 0)
        pthread_cond_broadcast(&pool->idle);
}

static void *
worker(void *arg)
{
    struct pool *pool = arg;
    pthread_mutex_lock(&pool->mutex);
    for (;;) {
        while (pool->queued == 0 && !pool->stopping)
            pthread_cond_wait(&pool->work, &pool->mutex);
        if (pool->queued == 0)
            break;
        struct job job = take_locked(pool);
        pool->running++;
        pthread_mutex_unlock(&pool->mutex);
        job.fn(job.arg);
        pthread_mutex_lock(&pool->mutex);
        pool->running--;
        tell_idle_locked(pool);
    }
    pthread_mutex_unlock(&pool->mutex);
    return NULL;
}

/* Signals belong to the main thread; those of faults must stay or the process would die without
 * a word. */
static void
block_signals(sigset_t *old)
{
    static const int faults[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS };
    sigset_t set;
    sigfillset(&set);
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
        sigdelset(&set, faults[i]);
    pthread_sigmask(SIG_BLOCK, &set, old);
}

static int
start_threads(struct pool *pool, const char *name, unsigned threads, struct err *err)
{
    sigset_t old;
    block_signals(&old);
    int rc = 0;
    while (pool->threads < threads && rc == 0) {
        rc = pthread_create(&pool->thread[pool->threads], NULL, worker, pool);
        if (rc == 0) {
            char label[16]; /* the kernel's limit */
            (void)snprintf(label, sizeof(label), "%.10s-%u", name, pool->threads % 1000);
            (void)pthread_setname_np(pool->thread[pool->threads++], label);
        }
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc == 0 ? 0 : err_sys(err, rc, "start thread of '%s'", name);
}

struct pool *
pool_new(const char *name, unsigned threads, unsigned max_queued, struct err *err)
{
    assert(threads > 0 && max_queued > 0);
    struct pool *pool = calloc(1, sizeof(*pool) + threads * sizeof(pthread_t));
    if (!pool) {
        err_nomem(err);
        return NULL;
    }
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_cond_init(&pool->work, NULL);
    pthread_cond_init(&pool->idle, NULL);
    pool->max_queued = max_queued;
    pool->ring = calloc(max_queued, sizeof(pool->ring[0]));
    if (!pool->ring) {
        err_nomem(err);
        goto fail;
    }
    if (start_threads(pool, name, threads, err) < 0)
        goto fail;
    return pool;
fail:
    pool_free(pool);
    return NULL;
}

int
pool_submit(struct pool *pool, pool_fn *fn, pool_fn *drop, void *arg, struct err *err)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&pool->mutex);
    (void)held;
    if (pool->queued == pool->max_queued)
        return err_set(err, ERR_AGAIN, "%u jobs are waiting already", pool->queued);
    unsigned at = (pool->first + pool->queued) % pool->max_queued;
    pool->ring[at] = (struct job){ .fn = fn, .drop = drop, .arg = arg };
    pool->queued++;
    pthread_cond_signal(&pool->work);
    return 0;
}

void
pool_drain(struct pool *pool)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&pool->mutex);
    (void)held;
    while (pool->queued > 0 || pool->running > 0)
        pthread_cond_wait(&pool->idle, &pool->mutex);
}

void
pool_free(struct pool *pool)
{
    if (!pool)
        return;
    pthread_mutex_lock(&pool->mutex);
    pool->stopping = true;
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->mutex);
    for (unsigned i = 0; i < pool->threads; i++)
        pthread_join(pool->thread[i], NULL);
    pthread_cond_destroy(&pool->idle);
    pthread_cond_destroy(&pool->work);
    pthread_mutex_destroy(&pool->mutex);
    free(pool->ring);
    free(pool);
}

void
pool_drop(struct pool *pool)
{
    pthread_mutex_lock(&pool->mutex);
    while (pool->queued > 0) {
        struct job job = take_locked(pool);
        if (!job.drop)
            continue;
        pthread_mutex_unlock(&pool->mutex); /* drop may take the caller's locks, or submit */
        job.drop(job.arg);
        pthread_mutex_lock(&pool->mutex);
    }
    tell_idle_locked(pool);
    pthread_mutex_unlock(&pool->mutex);
}

unsigned
pool_queued(struct pool *pool)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&pool->mutex);
    (void)held;
    return pool->queued;
}
