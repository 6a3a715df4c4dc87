#include "mount/probe.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"

/* Shared by the asker and the thread; the last one frees it. */
struct probe {
    pthread_mutex_t mutex;
    pthread_cond_t done_cond;
    unsigned refs;
    bool done;
    int error;
    struct stat st;
    char path[];
};

static void
drop(struct probe *probe)
{
    pthread_mutex_lock(&probe->mutex);
    bool last = --probe->refs == 0;
    pthread_mutex_unlock(&probe->mutex);
    if (!last)
        return;
    pthread_cond_destroy(&probe->done_cond);
    pthread_mutex_destroy(&probe->mutex);
    free(probe);
}

static void *
ask(void *arg)
{
    struct probe *probe = arg;
    struct stat st = { 0 };
    int error = stat(probe->path, &st) < 0 ? errno : 0;
    pthread_mutex_lock(&probe->mutex);
    probe->st = st;
    probe->error = error;
    probe->done = true;
    pthread_cond_signal(&probe->done_cond);
    pthread_mutex_unlock(&probe->mutex);
    drop(probe);
    return NULL;
}

static struct probe *
make(const char *path)
{
    size_t len = strlen(path) + 1;
    pthread_condattr_t attr;
    struct probe *probe = calloc(1, sizeof(*probe) + len);
    if (!probe)
        return NULL;
    memcpy(probe->path, path, len);
    probe->refs = 2;
    pthread_mutex_init(&probe->mutex, NULL);
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&probe->done_cond, &attr);
    (void)pthread_condattr_destroy(&attr);
    return probe;
}

static bool
wait_done(struct probe *probe, int64_t wait_ns)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t end = until.tv_nsec + wait_ns;
    until.tv_sec += end / NS_PER_S;
    until.tv_nsec = end % NS_PER_S;
    pthread_mutex_lock(&probe->mutex);
    while (!probe->done && pthread_cond_timedwait(&probe->done_cond, &probe->mutex, &until) == 0)
        continue;
    bool done = probe->done;
    pthread_mutex_unlock(&probe->mutex);
    return done;
}

int
probe_stat(const char *path, int64_t wait_ns, struct stat *out, struct err *err)
{
    pthread_t thread;
    int result = 0;
    struct probe *probe = make(path);
    if (!probe)
        return err_nomem(err);
    if (pthread_create(&thread, NULL, ask, probe) != 0) {
        drop(probe);
        drop(probe);
        return err_nomem(err);
    }
    (void)pthread_detach(thread);
    if (!wait_done(probe, wait_ns))
        result =
            err_set(err, ERR_BUSY, "'%s' does not answer: a mount that hangs is in the way", path);
    else if (probe->error != 0)
        result = err_sys(err, probe->error, "'%s'", path);
    else
        *out = probe->st;
    drop(probe);
    return result;
}
