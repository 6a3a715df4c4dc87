#include "base/ticker.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/clock.h"

struct ticker {
    pthread_mutex_t lock; /* a leaf */
    pthread_cond_t wake;
    pthread_t thread;
    bool stopping, kicked;
    int64_t next_ns; /* mono */
    ticker_fn *fn;
    void *arg;
};

static void *
ticker_main(void *arg)
{
    struct ticker *ticker = arg;
    pthread_mutex_lock(&ticker->lock);
    while (!ticker->stopping) {
        struct timespec until = { .tv_sec = ticker->next_ns / NS_PER_S,
                                  .tv_nsec = ticker->next_ns % NS_PER_S };
        if (!ticker->kicked && clock_mono_ns() < ticker->next_ns) {
            (void)pthread_cond_timedwait(&ticker->wake, &ticker->lock, &until);
            continue;
        }
        ticker->kicked = false;
        pthread_mutex_unlock(&ticker->lock);
        int64_t pause = ticker->fn(ticker->arg);
        pthread_mutex_lock(&ticker->lock);
        ticker->next_ns = clock_mono_ns() + pause;
    }
    pthread_mutex_unlock(&ticker->lock);
    return NULL;
}

struct ticker *
ticker_start(const char *name, int64_t first_ns, ticker_fn *fn, void *arg, struct err *err)
{
    struct ticker *ticker = calloc(1, sizeof(*ticker));
    pthread_condattr_t attr;
    if (ticker == NULL) {
        err_nomem(err);
        return NULL;
    }
    ticker->next_ns = clock_mono_ns() + first_ns;
    ticker->fn = fn;
    ticker->arg = arg;
    pthread_mutex_init(&ticker->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&ticker->wake, &attr);
    pthread_condattr_destroy(&attr);
    int rc = pthread_create(&ticker->thread, NULL, ticker_main, ticker);
    if (rc == 0) {
        (void)pthread_setname_np(ticker->thread, name);
        return ticker;
    }
    err_sys(err, rc, "cannot start the thread '%s'", name);
    pthread_cond_destroy(&ticker->wake);
    pthread_mutex_destroy(&ticker->lock);
    free(ticker);
    return NULL;
}

void
ticker_kick(struct ticker *ticker)
{
    if (ticker == NULL)
        return;
    pthread_mutex_lock(&ticker->lock);
    ticker->kicked = true;
    pthread_cond_broadcast(&ticker->wake);
    pthread_mutex_unlock(&ticker->lock);
}

void
ticker_stop(struct ticker *ticker)
{
    if (ticker == NULL)
        return;
    pthread_mutex_lock(&ticker->lock);
    ticker->stopping = true;
    pthread_cond_broadcast(&ticker->wake);
    pthread_mutex_unlock(&ticker->lock);
    pthread_join(ticker->thread, NULL);
    pthread_cond_destroy(&ticker->wake);
    pthread_mutex_destroy(&ticker->lock);
    free(ticker);
}
