/* Pasts of volumes: one is made once, whoever wants it meanwhile; not two many at a time; unused they go. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "base/clock.h"
#include "fake_past.h"
#include "mount/past_cache.h"

static struct past_cache *cache;

static int
setup(void **state)
{
    struct err err = ERR_INIT;
    (void)state;
    atomic_store(&fake_pasts_made, 0);
    cache = past_cache_new(NULL, &err);
    return cache ? 0 : -1;
}

static int
teardown(void **state)
{
    (void)state;
    past_cache_free(cache);
    assert_int_equal(atomic_load(&fake_pasts), 0);
    return 0;
}

struct waiter {
    struct past_waiter waiter;
    atomic_int woken;
};

static void
wake(struct past_waiter *waiter)
{
    atomic_fetch_add(&((struct waiter *)waiter)->woken, 1);
}

struct maker {
    pthread_t thread;
    int64_t at_ns;
    struct past_kept *kept;
    bool waits;
    struct err err;
};

static void *
make(void *arg)
{
    struct maker *maker = arg;
    struct waiter waiter = { .waiter.wake = wake };
    maker->kept =
        past_cache_make(cache, 1, maker->at_ns, &waiter.waiter, &maker->waits, &maker->err);
    return NULL;
}

static void
start(struct maker *maker, int64_t at_ns, int made)
{
    *maker = (struct maker){ .at_ns = at_ns };
    assert_int_equal(pthread_create(&maker->thread, NULL, make, maker), 0);
    while (atomic_load(&fake_pasts_made) < made)
        clock_sleep_ns(NS_PER_MS);
}

static struct past_kept *
make_now(int64_t at_ns)
{
    struct maker maker = { .at_ns = at_ns };
    (void)make(&maker);
    assert_non_null(maker.kept);
    return maker.kept;
}

static void
test_made_once(void **state)
{
    struct maker first;
    struct waiter late = { .waiter.wake = wake };
    struct err err = ERR_INIT;
    bool waits;
    (void)state;
    assert_null(past_cache_find(cache, 1, 5));
    pthread_mutex_lock(&fake_past_gate);
    start(&first, 5, 1);
    assert_null(past_cache_find(cache, 1, 5));
    assert_null(past_cache_make(cache, 1, 5, &late.waiter, &waits, &err));
    assert_true(waits);
    assert_int_equal(atomic_load(&late.woken), 0);
    pthread_mutex_unlock(&fake_past_gate);
    (void)pthread_join(first.thread, NULL);
    assert_int_equal(atomic_load(&late.woken), 1);
    struct past_kept *again = past_cache_find(cache, 1, 5);
    assert_ptr_equal(again, first.kept);
    assert_int_equal(past_kept_count(again), FAKE_PAST_ENTRIES);
    assert_null(past_cache_find(cache, 2, 5));
    past_cache_put(cache, again);
    past_cache_put(cache, first.kept);
    assert_int_equal(atomic_load(&fake_pasts_made), 1);
}

static void
test_two_at_a_time(void **state)
{
    struct maker one, two;
    struct waiter late = { .waiter.wake = wake };
    struct err err = ERR_INIT;
    bool waits;
    (void)state;
    pthread_mutex_lock(&fake_past_gate);
    start(&one, 1, 1);
    start(&two, 2, 2);
    assert_null(past_cache_make(cache, 1, 3, &late.waiter, &waits, &err));
    assert_true(waits);
    pthread_mutex_unlock(&fake_past_gate);
    (void)pthread_join(one.thread, NULL);
    (void)pthread_join(two.thread, NULL);
    assert_int_equal(atomic_load(&late.woken), 1);
    past_cache_put(cache, one.kept);
    past_cache_put(cache, two.kept);
    past_cache_put(cache, make_now(3));
}

static void
test_failure(void **state)
{
    struct maker maker = { .at_ns = 7 };
    (void)state;
    atomic_store(&fake_past_fails, true);
    (void)make(&maker);
    atomic_store(&fake_past_fails, false);
    assert_null(maker.kept);
    assert_false(maker.waits);
    assert_int_equal(maker.err.code, ERR_IO);
    past_cache_put(cache, make_now(7));
}

static void
test_too_many_go(void **state)
{
    (void)state;
    struct past_kept *held = make_now(1);
    for (int64_t i = 2; i <= 100; i++)
        past_cache_put(cache, make_now(i));
    assert_true(atomic_load(&fake_pasts) <= 17);
    assert_null(past_cache_find(cache, 1, 2));
    struct past_kept *last = past_cache_find(cache, 1, 100);
    assert_non_null(last);
    past_cache_put(cache, last);
    /* What somebody uses stays. */
    assert_non_null(volume_past_find(past_kept(held), "d/f"));
    past_cache_put(cache, held);
}

static int64_t
in_a_while(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (now.tv_sec + 200) * NS_PER_S;
}

static void
test_unused_go(void **state)
{
    static const struct clock_table later = { .mono = in_a_while };
    (void)state;
    past_cache_put(cache, make_now(1));
    struct past_kept *held = make_now(2);
    past_cache_sweep(cache);
    assert_int_equal(atomic_load(&fake_pasts), 2);
    clock_replace(&later);
    past_cache_sweep(cache);
    clock_replace(NULL);
    assert_int_equal(atomic_load(&fake_pasts), 1);
    assert_null(past_cache_find(cache, 1, 1));
    past_cache_put(cache, held);
}

int
main(void)
{
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_made_once),   TEST(test_two_at_a_time), TEST(test_failure),
        TEST(test_too_many_go), TEST(test_unused_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
