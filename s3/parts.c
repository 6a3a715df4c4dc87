#include "s3/parts.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include "base/limits.h"
#include "base/scope.h"

#define MIB (1ull << 20)
#define THREADS_MAX 16
#define STACK_BYTES (512u << 10)

int
parts_plan(uint64_t total, uint64_t wanted, uint64_t max, struct parts *out, struct err *err)
{
    uint64_t bytes = wanted ? wanted : PARTS_DEFAULT_BYTES;
    uint64_t least = total / PARTS_MAX + (total % PARTS_MAX != 0);
    if (bytes > max)
        bytes = max;
    if (bytes < least)
        bytes = (least + MIB - 1) / MIB * MIB;
    if (bytes == 0 || bytes > max || total > LIMIT_FILE_SIZE)
        return err_set(err, ERR_TOO_LARGE, "%" PRIu64 " bytes are too many for %d parts", total,
                       PARTS_MAX);
    *out = (struct parts){ .total = total,
                           .bytes = bytes,
                           .count = total == 0 ? 1 : (unsigned)((total - 1) / bytes + 1) };
    return 0;
}

uint64_t
parts_off(const struct parts *parts, unsigned index)
{
    assert(index < parts->count);
    return index * parts->bytes;
}

uint64_t
parts_len(const struct parts *parts, unsigned index)
{
    uint64_t left = parts->total - parts_off(parts, index);
    return left < parts->bytes ? left : parts->bytes;
}

/* ---- side by side ---- */

struct crew {
    parts_fn *fn;
    void *arg;
    unsigned count;
    atomic_uint next;
    atomic_bool failed;
    pthread_mutex_t lock; /* protects err: that of the first failure */
    struct err *err;
};

static void
note_failure(struct crew *crew, const struct err *err)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&crew->lock);
    (void)held;
    if (!atomic_exchange(&crew->failed, true))
        *crew->err = *err;
}

static void *
work(void *arg)
{
    struct crew *crew = arg;
    while (!atomic_load(&crew->failed)) {
        unsigned index = atomic_fetch_add(&crew->next, 1);
        struct err err = ERR_INIT;
        if (index >= crew->count)
            break;
        if (crew->fn(crew->arg, index, &err) < 0)
            note_failure(crew, &err);
    }
    return NULL;
}

/* Signals go to the threads that wait for them. */
static unsigned
start(struct crew *crew, pthread_t thread[], unsigned wanted)
{
    pthread_attr_t attributes;
    sigset_t all;
    sigset_t before;
    unsigned started = 0;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_BLOCK, &all, &before);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    while (started < wanted && pthread_create(&thread[started], &attributes, work, crew) == 0)
        started++;
    pthread_attr_destroy(&attributes);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

int
parts_run(unsigned count, unsigned threads, parts_fn *fn, void *arg, struct err *err)
{
    struct crew crew = { .fn = fn, .arg = arg, .count = count, .err = err };
    pthread_t thread[THREADS_MAX];
    if (threads > count)
        threads = count;
    if (threads > THREADS_MAX)
        threads = THREADS_MAX;
    pthread_mutex_init(&crew.lock, NULL);
    unsigned started = threads > 1 ? start(&crew, thread, threads - 1) : 0;
    (void)work(&crew);
    for (unsigned i = 0; i < started; i++)
        pthread_join(thread[i], NULL);
    pthread_mutex_destroy(&crew.lock);
    return atomic_load(&crew.failed) ? -1 : 0;
}
