#include "base/pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

static sem_t started;
static sem_t go;
static _Atomic unsigned ran;
static _Atomic unsigned dropped;
static unsigned order[100];

static int
setup(void **state)
{
    (void)state;
    ran = 0;
    dropped = 0;
    return sem_init(&started, 0, 0) || sem_init(&go, 0, 0);
}

static int
teardown(void **state)
{
    (void)state;
    return sem_destroy(&started) || sem_destroy(&go);
}

static void
note(void *arg)
{
    unsigned *slot = arg;
    *slot = ++ran;
}

static void
note_drop(void *arg)
{
    unsigned *slot = arg;
    *slot = 1000 + ++dropped;
}

static void
wait_for_go(void *arg)
{
    (void)arg;
    sem_post(&started);
    sem_wait(&go);
    ran++;
}

static struct pool *
make(unsigned threads, unsigned max_queued)
{
    struct err err = ERR_INIT;
    struct pool *pool = pool_new("test", threads, max_queued, &err);
    assert_non_null(pool);
    return pool;
}

/* Occupies the only worker, so that what follows stays queued. */
static void
block(struct pool *pool)
{
    struct err err = ERR_INIT;
    assert_int_equal(pool_submit(pool, wait_for_go, NULL, NULL, &err), 0);
    sem_wait(&started);
    assert_int_equal(pool_queued(pool), 0);
}

static void
test_order_of_submission(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct pool *pool = make(1, 100);
    for (unsigned round = 0; round < 3; round++) { /* the ring goes round */
        ran = 0;
        block(pool);
        for (unsigned i = 0; i < 70; i++)
            assert_int_equal(pool_submit(pool, note, NULL, &order[i], &err), 0);
        assert_int_equal(pool_queued(pool), 70);
        sem_post(&go);
        pool_drain(pool);
        assert_int_equal(pool_queued(pool), 0);
        for (unsigned i = 0; i < 70; i++)
            assert_int_equal(order[i], i + 2);
    }
    pool_free(pool);
}

static void
test_overflow(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    unsigned slots[3] = { 0 };
    struct pool *pool = make(1, 2);
    block(pool);
    assert_int_equal(pool_submit(pool, note, NULL, &slots[0], &err), 0);
    assert_int_equal(pool_submit(pool, note, NULL, &slots[1], &err), 0);
    assert_int_equal(pool_submit(pool, note, note_drop, &slots[2], &err), -1);
    assert_int_equal(err.code, ERR_AGAIN);
    assert_true(err_retryable(err.code));
    sem_post(&go);
    pool_drain(pool);
    assert_int_equal(ran, 3);
    assert_int_equal(slots[2], 0); /* neither run nor dropped: it is still ours */
    assert_int_equal(pool_submit(pool, note, NULL, &slots[2], &err), 0);
    pool_free(pool);
    assert_int_equal(slots[2], 4);
}

static void
test_free_runs_what_is_queued(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    unsigned slots[20] = { 0 };
    struct pool *pool = make(1, 20);
    block(pool);
    for (unsigned i = 0; i < 20; i++)
        assert_int_equal(pool_submit(pool, note, note_drop, &slots[i], &err), 0);
    sem_post(&go);
    pool_free(pool);
    assert_int_equal(ran, 21);
    assert_int_equal(dropped, 0);
    pool_free(NULL);
}

static void
test_drop(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    unsigned slots[3] = { 0 };
    struct pool *pool = make(1, 20);
    block(pool);
    assert_int_equal(pool_submit(pool, note, note_drop, &slots[0], &err), 0);
    assert_int_equal(pool_submit(pool, note, NULL, &slots[1], &err), 0);
    assert_int_equal(pool_submit(pool, note, note_drop, &slots[2], &err), 0);
    pool_drop(pool);
    assert_int_equal(pool_queued(pool), 0);
    assert_int_equal(slots[0], 1001);
    assert_int_equal(slots[1], 0);
    assert_int_equal(slots[2], 1002);
    sem_post(&go);
    pool_drain(pool);
    assert_int_equal(ran, 1); /* what ran already ran on */
    assert_int_equal(pool_submit(pool, note, NULL, &slots[1], &err), 0);
    pool_free(pool);
    assert_int_equal(slots[1], 2);
}

static void
look_around(void *arg)
{
    char *name = arg;
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    static const int must[] = {
        SIGTERM, SIGINT, SIGHUP, SIGCHLD, SIGPIPE, SIGUSR1, SIGALRM, SIGQUIT
    };
    bool good = true;
    for (size_t i = 0; i < sizeof(must) / sizeof(must[0]); i++)
        good = good && sigismember(&blocked, must[i]) == 1;
    if (good && sigismember(&blocked, SIGSEGV) == 0)
        pthread_getname_np(pthread_self(), name, 16);
    sem_post(&started);
}

static void
test_names_and_signals(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    char name[16] = "";
    sigset_t before, after;
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    struct pool *pool = pool_new("a-long-pool-name", 1, 1, &err);
    assert_non_null(pool);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    assert_int_equal(sigismember(&after, SIGTERM), sigismember(&before, SIGTERM));
    assert_int_equal(pool_submit(pool, look_around, NULL, name, &err), 0);
    pool_free(pool);
    assert_string_equal(name, "a-long-poo-0");
}

static void
add_one(void *arg)
{
    (*(_Atomic unsigned *)arg)++;
}

static void *
submit_many(void *arg)
{
    struct err err = ERR_INIT;
    for (int i = 0; i < 500;) {
        if (pool_submit(arg, add_one, NULL, &ran, &err) == 0)
            i++;
    }
    return NULL;
}

static void
test_many_threads(void **state)
{
    (void)state;
    struct pool *pool = make(4, 16);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, submit_many, pool), 0);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    pool_drain(pool);
    assert_int_equal(ran, 1500);
    pool_free(pool);
}

static struct pool *chain_pool;

static void
submit_next(void *arg)
{
    struct err err = ERR_INIT;
    if (++ran < 5 && pool_submit(chain_pool, submit_next, NULL, arg, &err) < 0)
        dropped++;
}

static void
test_jobs_submit_jobs(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    chain_pool = make(2, 4);
    assert_int_equal(pool_submit(chain_pool, submit_next, NULL, NULL, &err), 0);
    pool_drain(chain_pool);
    assert_int_equal(ran, 5);
    ran = 0;
    assert_int_equal(pool_submit(chain_pool, submit_next, NULL, NULL, &err), 0);
    pool_free(chain_pool);
    assert_int_equal(ran, 5);
    assert_int_equal(dropped, 0);
}

/* All workers can run at the same time. */
static void
test_parallel(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct pool *pool = make(3, 3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pool_submit(pool, wait_for_go, NULL, NULL, &err), 0);
    for (int i = 0; i < 3; i++)
        sem_wait(&started);
    for (int i = 0; i < 3; i++)
        sem_post(&go);
    pool_free(pool);
    assert_int_equal(ran, 3);
}

#define test(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        test(test_order_of_submission),      test(test_overflow),
        test(test_free_runs_what_is_queued), test(test_drop),
        test(test_names_and_signals),        test(test_many_threads),
        test(test_jobs_submit_jobs),         test(test_parallel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
