#include "mount/park.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/pool.h"
#include "base/scope.h"

struct park {
    pthread_mutex_t mutex; /* everything below; a leaf: nothing is called with it held */
    pthread_cond_t timer_wake;
    pthread_cond_t empty;
    struct pool *pools[2];
    struct park_call **slots;
    uint32_t *free_slots; /* a queue, so that a slot rests as long as possible */
    uint32_t max;
    uint32_t free_head;
    uint32_t free_count;
    struct park_call *first, *last; /* not answered, by deadline */
    int64_t timer_until_ns;         /* the timer looks again then by itself */
    bool ending;
    bool timer_runs;
    pthread_t timer;
};

static void
unlist_locked(struct park_call *call)
{
    struct park *park = call->park;
    if (!call->listed)
        return;
    *(call->prev ? &call->prev->next : &park->first) = call->next;
    *(call->next ? &call->next->prev : &park->last) = call->prev;
    call->listed = false;
}

/* Deadlines nearly always rise, so this looks at the last one only. */
static void
list_locked(struct park_call *call)
{
    struct park *park = call->park;
    struct park_call *after = park->last;
    while (after && after->deadline_ns > call->deadline_ns)
        after = after->prev;
    call->prev = after;
    call->next = after ? after->next : park->first;
    *(call->prev ? &call->prev->next : &park->first) = call;
    *(call->next ? &call->next->prev : &park->last) = call;
    call->listed = true;
}

static bool
claim_locked(struct park_call *call)
{
    if (call->answered)
        return false;
    call->answered = true;
    unlist_locked(call);
    return true;
}

static void
unref(struct park_call *call)
{
    struct park *park = call->park;
    pthread_mutex_lock(&park->mutex);
    bool last = --call->refs == 0;
    if (last) {
        unlist_locked(call);
        park->slots[call->slot] = NULL;
    }
    pthread_mutex_unlock(&park->mutex);
    if (!last)
        return;
    uint32_t slot = call->slot;
    call->free(call);
    pthread_mutex_lock(&park->mutex);
    park->free_slots[(park->free_head + park->free_count++) % park->max] = slot;
    if (park->free_count == park->max)
        pthread_cond_broadcast(&park->empty);
    pthread_mutex_unlock(&park->mutex);
}

bool
park_claim(struct park_call *call)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&call->park->mutex);
    (void)held;
    return claim_locked(call);
}

bool
park_answered(struct park_call *call)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&call->park->mutex);
    (void)held;
    return call->answered;
}

int
park_enter(struct park *park, struct park_call *call, const void *key, struct err *err)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&park->mutex);
    (void)held;
    if (park->free_count == 0)
        return err_set(err, ERR_AGAIN, "%u requests wait already", park->max);
    call->park = park;
    call->slot = park->free_slots[park->free_head];
    park->free_head = (park->free_head + 1) % park->max;
    park->free_count--;
    park->slots[call->slot] = call;
    call->key = key;
    call->refs = 1;
    call->answered = false;
    return 0;
}

static void run_meta(void *arg);
static void run_store(void *arg);

static void
hand_over(struct park_call *call, enum park_pool pool)
{
    struct err err = ERR_INIT;
    if (pool_submit(call->park->pools[pool], pool == PARK_META ? run_meta : run_store, NULL, call,
                    &err) == 0)
        return;
    log_error(mount, "a parked request cannot be queued error=\"%s\"", err.msg);
    if (park_claim(call))
        call->give_up(call, ERR_NOMEM);
    unref(call);
}

static void
run_on(struct park_call *call, enum park_pool pool)
{
    bool go_on = (!park_answered(call) || call->must_run) && call->run(call, pool);
    if (go_on)
        hand_over(call, PARK_STORE);
    else
        unref(call);
}

static void
run_meta(void *arg)
{
    run_on(arg, PARK_META);
}

static void
run_store(void *arg)
{
    run_on(arg, PARK_STORE);
}

static void
list(struct park_call *call)
{
    pthread_mutex_lock(&call->park->mutex);
    if (!call->answered && call->deadline_ns != PARK_NEVER)
        list_locked(call);
    /* Most are answered long before their deadline: the timer sleeps on. */
    if (call->park->first == call && call->deadline_ns < call->park->timer_until_ns)
        pthread_cond_signal(&call->park->timer_wake);
    pthread_mutex_unlock(&call->park->mutex);
}

void
park_start(struct park_call *call, enum park_pool pool)
{
    list(call);
    hand_over(call, pool);
}

void
park_again(struct park_call *call)
{
    hand_over(call, PARK_STORE);
}

void
park_start_here(struct park_call *call)
{
    list(call);
    run_on(call, PARK_META);
}

void
park_interrupt(struct park *park, uint32_t slot, const void *key)
{
    pthread_mutex_lock(&park->mutex);
    struct park_call *call = slot < park->max ? park->slots[slot] : NULL;
    bool found = call && call->key == key;
    bool asked = found && call->cancel;
    bool claimed = found && !asked && claim_locked(call);
    if (asked || claimed)
        call->refs++;
    pthread_mutex_unlock(&park->mutex);
    if (asked)
        call->cancel(call);
    else if (claimed)
        call->give_up(call, ERR_CANCELED);
    if (asked || claimed)
        unref(call);
}

void
park_hold(struct park_call *call)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&call->park->mutex);
    (void)held;
    call->refs++;
}

void
park_release(struct park_call *call)
{
    unref(call);
}

unsigned
park_count(struct park *park)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&park->mutex);
    (void)held;
    return park->max - park->free_count;
}

/* Takes the first call whose deadline has passed, claimed and referenced. */
static struct park_call *
take_late_locked(struct park *park, int64_t now)
{
    struct park_call *call = park->first;
    if (!call || call->deadline_ns > now)
        return NULL;
    (void)claim_locked(call);
    call->refs++;
    return call;
}

static void
wait_locked(struct park *park, int64_t now)
{
    int64_t span = park->first ? park->first->deadline_ns - now : NS_PER_S;
    park->timer_until_ns = now + (span > NS_PER_S ? NS_PER_S : span);
    struct timespec until = { .tv_sec = park->timer_until_ns / NS_PER_S,
                              .tv_nsec = park->timer_until_ns % NS_PER_S };
    (void)pthread_cond_timedwait(&park->timer_wake, &park->mutex, &until);
}

static void *
timer_main(void *arg)
{
    struct park *park = arg;
    pthread_mutex_lock(&park->mutex);
    while (!park->ending) {
        int64_t now = clock_mono_ns();
        struct park_call *late = take_late_locked(park, now);
        if (!late) {
            wait_locked(park, now);
            continue;
        }
        pthread_mutex_unlock(&park->mutex);
        late->give_up(late, ERR_STORE_TIMEOUT);
        unref(late);
        pthread_mutex_lock(&park->mutex);
    }
    pthread_mutex_unlock(&park->mutex);
    return NULL;
}

static int
init_locks(struct park *park)
{
    pthread_condattr_t attr;
    if (pthread_condattr_init(&attr) != 0)
        return -1;
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    int bad = pthread_mutex_init(&park->mutex, NULL) | pthread_cond_init(&park->empty, NULL) |
              pthread_cond_init(&park->timer_wake, &attr);
    (void)pthread_condattr_destroy(&attr);
    return bad ? -1 : 0;
}

struct park *
park_new(unsigned meta_threads, unsigned store_threads, unsigned max_parked, struct err *err)
{
    struct park *park = calloc(1, sizeof(*park));
    if (!park || init_locks(park) < 0) {
        free(park);
        err_nomem(err);
        return NULL;
    }
    park->max = park->free_count = max_parked;
    park->slots = calloc(max_parked, sizeof(struct park_call *));
    park->free_slots = calloc(max_parked, sizeof(*park->free_slots));
    if (!park->slots || !park->free_slots) {
        err_nomem(err);
        goto fail;
    }
    for (uint32_t i = 0; i < max_parked; i++)
        park->free_slots[i] = i;
    park->pools[PARK_META] = pool_new("fuse-meta", meta_threads, max_parked, err);
    if (!park->pools[PARK_META])
        goto fail;
    park->pools[PARK_STORE] = pool_new("fuse-store", store_threads, max_parked, err);
    if (!park->pools[PARK_STORE])
        goto fail;
    if (pthread_create(&park->timer, NULL, timer_main, park) != 0) {
        err_nomem(err);
        goto fail;
    }
    park->timer_runs = true;
    return park;
fail:
    park_free(park);
    return NULL;
}

void
park_free(struct park *park)
{
    if (!park)
        return;
    pthread_mutex_lock(&park->mutex);
    while (park->free_count < park->max)
        pthread_cond_wait(&park->empty, &park->mutex);
    park->ending = true;
    pthread_cond_signal(&park->timer_wake);
    pthread_mutex_unlock(&park->mutex);
    if (park->timer_runs)
        (void)pthread_join(park->timer, NULL);
    for (int i = 0; i < 2; i++) {
        if (park->pools[i])
            pool_free(park->pools[i]);
    }
    pthread_cond_destroy(&park->timer_wake);
    pthread_cond_destroy(&park->empty);
    pthread_mutex_destroy(&park->mutex);
    free(park->free_slots);
    free(park->slots);
    free(park);
}
