#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "mount/park.h"

struct job {
    struct park_call call; /* first */
    bool to_store;         /* the meta pool passes it on */
    bool hold;             /* waits for `go` */
    bool keep_quiet;       /* never answers */
};
static struct {
    _Atomic bool go;
    _Atomic unsigned ran, answered, given_up, freed, in_store;
    _Atomic int last_code;
} seen;

static bool
run(struct park_call *call, enum park_pool pool)
{
    struct job *job = (struct job *)call;
    seen.ran++;
    seen.in_store += pool == PARK_STORE;
    while (job->hold && !seen.go)
        clock_sleep_ns(NS_PER_MS);
    if (job->to_store && pool == PARK_META)
        return true;
    if (!job->keep_quiet && park_claim(call))
        seen.answered++;
    return false;
}

static void
give_up(struct park_call *call, enum err_code code)
{
    (void)call;
    seen.given_up++;
    seen.last_code = (int)code;
}

static void
free_job(struct park_call *call)
{
    seen.freed++;
    free(call);
}

static struct job *
make_job(int64_t span_ns)
{
    struct job *job = calloc(1, sizeof(*job));
    assert_non_null(job);
    job->call.run = run;
    job->call.give_up = give_up;
    job->call.free = free_job;
    job->call.deadline_ns = clock_mono_ns() + span_ns;
    return job;
}

static struct park *
make_park(unsigned threads, unsigned max)
{
    struct err err = ERR_INIT;
    struct park *park = park_new(threads, threads, max, &err);
    assert_non_null(park);
    seen.go = false;
    seen.ran = seen.answered = seen.given_up = seen.freed = seen.in_store = 0;
    return park;
}

static void
start(struct park *park, struct job *job, enum park_pool pool, const void *key)
{
    struct err err = ERR_INIT;
    assert_int_equal(park_enter(park, &job->call, key, &err), 0);
    park_start(&job->call, pool);
}

static void
wait_for(_Atomic unsigned *counter, unsigned wanted)
{
    for (int i = 0; i < 30000 && *counter < wanted; i++)
        clock_sleep_ns(NS_PER_MS);
    assert_int_equal(*counter, wanted);
}

static void
test_answers_once_each(void **state)
{
    (void)state;
    struct park *park = make_park(3, 64);
    for (int i = 0; i < 50; i++) {
        struct job *job = make_job(10 * NS_PER_S);
        job->to_store = i % 2 == 0;
        start(park, job, PARK_META, NULL);
    }
    wait_for(&seen.freed, 50);
    assert_int_equal(park_count(park), 0);
    assert_int_equal(seen.answered, 50);
    assert_int_equal(seen.in_store, 25);
    assert_int_equal(seen.given_up, 0);
    park_free(park);
}

/* On the caller's thread; what has to wait for the store goes on elsewhere. */
static void
test_runs_here(void **state)
{
    struct err err = ERR_INIT;
    (void)state;
    struct park *park = make_park(1, 8);
    struct job *job = make_job(10 * NS_PER_S);
    assert_int_equal(park_enter(park, &job->call, NULL, &err), 0);
    park_start_here(&job->call);
    assert_int_equal(seen.answered, 1);
    assert_int_equal(seen.freed, 1);
    assert_int_equal(park_count(park), 0);

    job = make_job(10 * NS_PER_S);
    job->to_store = job->hold = true;
    seen.go = true;
    assert_int_equal(park_enter(park, &job->call, NULL, &err), 0);
    park_start_here(&job->call);
    wait_for(&seen.freed, 2);
    assert_int_equal(seen.answered, 2);
    assert_int_equal(seen.in_store, 1);
    park_free(park);
}

static void
test_full(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct park *park = make_park(1, 2);
    for (int i = 0; i < 2; i++) {
        struct job *job = make_job(10 * NS_PER_S);
        job->hold = true;
        start(park, job, PARK_STORE, NULL);
    }
    struct job *third = make_job(10 * NS_PER_S);
    assert_int_equal(park_enter(park, &third->call, NULL, &err), -1);
    assert_int_equal(err.code, ERR_AGAIN);
    seen.go = true;
    wait_for(&seen.freed, 2);
    for (int i = 0; i < 30000 && park_count(park) > 0; i++)
        clock_sleep_ns(NS_PER_MS);
    start(park, third, PARK_STORE, NULL);
    wait_for(&seen.freed, 3);
    park_free(park);
}

/* Both the one that runs and the one behind it are answered in time, and the late worker stays silent. */
static void
test_deadline(void **state)
{
    (void)state;
    struct park *park = make_park(1, 8);
    struct job *running = make_job(50 * NS_PER_MS);
    running->hold = true;
    start(park, running, PARK_STORE, NULL);
    start(park, make_job(60 * NS_PER_MS), PARK_STORE, NULL);
    struct job *must = make_job(70 * NS_PER_MS);
    must->call.must_run = true;
    start(park, must, PARK_STORE, NULL);
    wait_for(&seen.given_up, 3);
    assert_int_equal(seen.last_code, ERR_STORE_TIMEOUT);
    assert_int_equal(seen.freed, 0);
    seen.go = true;
    wait_for(&seen.freed, 3);
    assert_int_equal(seen.answered, 0);
    assert_int_equal(seen.ran, 2); /* the second was skipped, the third had to run */
    park_free(park);
}

static void
test_interrupt(void **state)
{
    (void)state;
    int key;
    int other;
    struct park *park = make_park(1, 8);
    struct job *job = make_job(10 * NS_PER_S);
    job->hold = true;
    start(park, job, PARK_STORE, &key);
    uint32_t slot = job->call.slot;
    park_interrupt(park, slot, &other); /* an earlier request of that slot */
    park_interrupt(park, 10000, &key);
    assert_int_equal(seen.given_up, 0);
    park_interrupt(park, slot, &key);
    park_interrupt(park, slot, &key);
    assert_int_equal(seen.given_up, 1);
    assert_int_equal(seen.last_code, ERR_CANCELED);
    seen.go = true;
    wait_for(&seen.freed, 1);
    assert_int_equal(seen.answered, 0);
    park_free(park);
}

/* What is interrupted between park_enter() and park_start() never runs. */
static void
test_interrupt_before_start(void **state)
{
    (void)state;
    int key;
    struct err err = ERR_INIT;
    struct park *park = make_park(1, 8);
    struct job *job = make_job(10 * NS_PER_S);
    assert_int_equal(park_enter(park, &job->call, &key, &err), 0);
    park_interrupt(park, job->call.slot, &key);
    park_start(&job->call, PARK_STORE);
    wait_for(&seen.freed, 1);
    assert_int_equal(seen.ran, 0);
    assert_int_equal(seen.given_up, 1);
    park_free(park);
}

/* INV-13: a slot rests as long as possible, and no two live calls share one. */
static void
test_slots(void **state)
{
    (void)state;
    struct park *park = make_park(1, 4);
    uint32_t last = UINT32_MAX;
    for (unsigned i = 0; i < 12; i++) {
        struct job *job = make_job(10 * NS_PER_S);
        struct err err = ERR_INIT;
        assert_int_equal(park_enter(park, &job->call, NULL, &err), 0);
        uint32_t slot = job->call.slot;
        assert_int_not_equal(slot, last);
        last = slot;
        park_start(&job->call, PARK_META);
        for (int n = 0; n < 3000 && park_count(park) > 0; n++)
            clock_sleep_ns(NS_PER_MS);
    }
    park_free(park);
    assert_int_equal(seen.freed, 12);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers_once_each),
        cmocka_unit_test(test_runs_here),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_deadline),
        cmocka_unit_test(test_interrupt),
        cmocka_unit_test(test_interrupt_before_start),
        cmocka_unit_test(test_slots),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
