#include "base/ulid.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

static int64_t now_ns;

static int64_t
fake_wall(void)
{
    return now_ns;
}

static const struct clock_table fake = { .wall = fake_wall };

static int
use_fake(void **state)
{
    (void)state;
    clock_replace(&fake);
    return 0;
}

static int
use_real(void **state)
{
    (void)state;
    clock_replace(NULL);
    return 0;
}

/* github.com/ulid/spec: the example in the text, the largest value, and the time of the
 * reference implementation's test (1469918176385 is 01ARYZ6S41). */
static void
test_spec(void **state)
{
    (void)state;
    assert_true(ulid_valid("01ARZ3NDEKTSV4RRFFQ69G5FAV"));
    assert_true(ulid_time_ms("01ARZ3NDEKTSV4RRFFQ69G5FAV") == 1469922850259);
    assert_true(ulid_time_ms("01ARYZ6S41TSV4RRFFQ69G5FAV") == 1469918176385);
    assert_true(ulid_time_ms("7ZZZZZZZZZZZZZZZZZZZZZZZZZ") == 281474976710655);
    assert_true(ulid_time_ms("00000000000000000000000000") == 0);
    static const char *const bad[] = {
        "8ZZZZZZZZZZZZZZZZZZZZZZZZZ", "80000000000000000000000000",  "",
        "01ARZ3NDEKTSV4RRFFQ69G5FA",  "01ARZ3NDEKTSV4RRFFQ69G5FAVX", "01arz3ndektsv4rrffq69g5fav",
        "01ARZ3NDEKTSV4RRFFQ69G5FAU", "01ARZ3NDEKTSV4RRFFQ69G5FAI",  "01ARZ3NDEKTSV4RRFFQ69G5FAL",
        "01ARZ3NDEKTSV4RRFFQ69G5FAO", "01ARZ3NDEKTSV4RRFFQ69G5FA-"
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_false(ulid_valid(bad[i]));
        assert_true(ulid_time_ms(bad[i]) == -1);
    }
}

static void
test_time_part(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    char id[ULID_SIZE];
    now_ns = 1469918176385 * NS_PER_MS + 999999;
    assert_int_equal(ulid_new(id, &err), 0);
    assert_true(ulid_valid(id));
    assert_memory_equal(id, "01ARYZ6S41", 10);
}

static void
test_rising(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    char last[ULID_SIZE] = "";
    now_ns = 1500000000000 * NS_PER_MS;
    for (int i = 0; i < 3000; i++) {
        char id[ULID_SIZE];
        if (i == 1000)
            now_ns += NS_PER_MS;
        if (i == 2000)
            now_ns -= 3600 * NS_PER_S; /* the clock steps back */
        assert_int_equal(ulid_new(id, &err), 0);
        assert_true(ulid_valid(id));
        assert_true(strcmp(last, id) < 0);
        memcpy(last, id, sizeof(id));
    }
    assert_true(ulid_time_ms(last) == 1500000000001);
}

static void
test_clock_before_1970(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    char id[ULID_SIZE];
    now_ns = -NS_PER_S;
    assert_int_equal(ulid_new(id, &err), 0);
    assert_true(ulid_valid(id));
}

/* A child has its parent's last value in memory and must not continue from it. */
static void
test_fork(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    char mine[ULID_SIZE], child[ULID_SIZE];
    now_ns = 1600000000000 * NS_PER_MS;
    assert_int_equal(ulid_new(mine, &err), 0);
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int rc = ulid_new(child, &err);
        _exit(rc == 0 && write(ends[1], child, sizeof(child)) == sizeof(child) ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(read(ends[0], child, sizeof(child)), sizeof(child));
    assert_int_equal(ulid_new(mine, &err), 0);
    assert_true(ulid_valid(child));
    assert_memory_equal(mine, child, 10);
    assert_string_not_equal(mine, child);
    close(ends[0]);
    close(ends[1]);
}

#define THREADS 4
#define EACH 500
static char made[THREADS][EACH][ULID_SIZE];

static void *
make_many(void *arg)
{
    char(*ids)[ULID_SIZE] = arg;
    struct err err = ERR_INIT;
    for (int i = 0; i < EACH; i++) {
        if (ulid_new(ids[i], &err) < 0)
            return NULL;
    }
    return arg;
}

static int
compare(const void *a, const void *b)
{
    return memcmp(a, b, ULID_SIZE);
}

static void
test_threads(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, make_many, made[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        void *done;
        pthread_join(threads[i], &done);
        assert_non_null(done);
    }
    char(*all)[ULID_SIZE] = made[0];
    qsort(all, THREADS * EACH, ULID_SIZE, compare);
    for (int i = 1; i < THREADS * EACH; i++)
        assert_string_not_equal(all[i - 1], all[i]);
}

static void
test_random_bytes(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    uint8_t a[300] = { 0 }, b[300] = { 0 }, zero[300] = { 0 };
    assert_int_equal(random_bytes(a, sizeof(a), &err), 0);
    assert_int_equal(random_bytes(b, sizeof(b), &err), 0);
    assert_memory_not_equal(a, b, sizeof(a));
    assert_memory_not_equal(a + 268, zero, 32); /* to the very end */
    assert_int_equal(random_bytes(NULL, 0, &err), 0);
}

/* Rosetta Code, "Pseudo-random numbers/Splitmix64", seed 1234567. */
static void
test_splitmix64(void **state)
{
    (void)state;
    uint64_t seed = 1234567;
    assert_true(random_next(&seed) == 6457827717110365317u);
    assert_true(random_next(&seed) == 3203168211198807973u);
    assert_true(random_next(&seed) == 9817491932198370423u);
    assert_true(random_next(&seed) == 4593380528125082431u);
    assert_true(random_next(&seed) == 16408922859458223821u);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spec),
        cmocka_unit_test_setup_teardown(test_time_part, use_fake, use_real),
        cmocka_unit_test_setup_teardown(test_rising, use_fake, use_real),
        cmocka_unit_test_setup_teardown(test_clock_before_1970, use_fake, use_real),
        cmocka_unit_test_setup_teardown(test_fork, use_fake, use_real),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_random_bytes),
        cmocka_unit_test(test_splitmix64),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
