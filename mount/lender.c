#include "mount/lender.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/scope.h"
#include "mount/session.h"

#define MAX_SESSIONS 256
#define GONE_QUEUE 4096

struct lender {
    struct mounter *mounter;
    lender_sessions_fn *sessions;
    void *arg;
    pthread_mutex_t mutex; /* below; a leaf */
    pthread_cond_t wake;
    pthread_t thread;
    int64_t gone[GONE_QUEUE];
    size_t gone_count;
    bool overflow; /* more were removed: all idle ids are closed */
    bool kicked, ending;
    _Atomic bool used; /* there may be ids */
};

struct work {
    int64_t gone[GONE_QUEUE];
    size_t count;
    bool overflow;
};

static void
close_dead(struct lender *lender, struct session *session)
{
    int32_t ids[HELPER_CLOSE_MANY];
    size_t count;
    while ((count = session_backing_dead(session, ids, HELPER_CLOSE_MANY)) > 0) {
        struct err err = ERR_INIT;
        if (mounter_backing_close(lender->mounter, session_id(session), ids, count, &err) < 0)
            log_debug(mount, "ids are not closed mount=%lld error=\"%s\"",
                      (long long)session_id(session), err.msg);
        session_backing_closed(session, count);
    }
}

static void
run(struct lender *lender, const struct work *work)
{
    struct session *sessions[MAX_SESSIONS];
    size_t count = lender->sessions(lender->arg, sessions, MAX_SESSIONS);
    for (size_t i = 0; i < count; i++) {
        session_backing_gone(sessions[i], work->gone, work->count, work->overflow);
        close_dead(lender, sessions[i]);
        session_unref(sessions[i]);
    }
}

static void *
lender_main(void *arg)
{
    struct lender *lender = arg;
    static _Thread_local struct work work;
    pthread_mutex_lock(&lender->mutex);
    while (!lender->ending) {
        if (!lender->kicked) {
            pthread_cond_wait(&lender->wake, &lender->mutex);
            continue;
        }
        lender->kicked = false;
        work.count = lender->gone_count;
        work.overflow = lender->overflow;
        for (size_t i = 0; i < work.count; i++)
            work.gone[i] = lender->gone[i];
        lender->gone_count = 0;
        lender->overflow = false;
        pthread_mutex_unlock(&lender->mutex);
        run(lender, &work);
        pthread_mutex_lock(&lender->mutex);
    }
    pthread_mutex_unlock(&lender->mutex);
    return NULL;
}

struct lender *
lender_new(struct mounter *mounter, lender_sessions_fn *sessions, void *arg, struct err *err)
{
    struct lender *lender = calloc(1, sizeof(*lender));
    if (!lender) {
        err_nomem(err);
        return NULL;
    }
    lender->mounter = mounter;
    lender->sessions = sessions;
    lender->arg = arg;
    pthread_mutex_init(&lender->mutex, NULL);
    pthread_cond_init(&lender->wake, NULL);
    if (pthread_create(&lender->thread, NULL, lender_main, lender) == 0) {
        (void)pthread_setname_np(lender->thread, "fuse-lender");
        return lender;
    }
    free(lender);
    err_nomem(err);
    return NULL;
}

void
lender_free(struct lender *lender)
{
    if (!lender)
        return;
    pthread_mutex_lock(&lender->mutex);
    lender->ending = true;
    pthread_cond_signal(&lender->wake);
    pthread_mutex_unlock(&lender->mutex);
    (void)pthread_join(lender->thread, NULL);
    pthread_cond_destroy(&lender->wake);
    pthread_mutex_destroy(&lender->mutex);
    free(lender);
}

int
lender_open(struct lender *lender, int64_t mount, int fd, struct mounter_backing *backing,
            struct err *err)
{
    atomic_store(&lender->used, true);
    return mounter_backing_open(lender->mounter, mount, fd, backing, err);
}

void
lender_content_gone(void *arg, int64_t content)
{
    struct lender *lender = arg;
    if (!atomic_load(&lender->used))
        return;
    scope_unlock pthread_mutex_t *held = scope_lock(&lender->mutex);
    (void)held;
    if (lender->gone_count < GONE_QUEUE)
        lender->gone[lender->gone_count++] = content;
    else
        lender->overflow = true;
    if (!lender->kicked)
        pthread_cond_signal(&lender->wake);
    lender->kicked = true;
}

void
lender_kick(struct lender *lender)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&lender->mutex);
    (void)held;
    lender->kicked = true;
    pthread_cond_signal(&lender->wake);
}
