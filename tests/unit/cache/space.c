#include "tests/unit/cache/cache_fixture.h"

#include <pthread.h>

#include "base/clock.h"
#include "base/ulid.h"

#define MIB (1u << 20)

/* ---- who is asked, and what is answered ---- */
static struct {
    int64_t asked[256];
    unsigned count;
    int64_t keep; /* refused */
} owner;

static bool
may_go(void *arg, int64_t number)
{
    (void)arg;
    assert_false(cache_pinned(cache, number)); /* the one call that is allowed here */
    owner.asked[owner.count++ % 256] = number;
    return number != owner.keep;
}

static void
open_small(uint64_t max, uint64_t floor)
{
    limits = (struct cache_limits){ .max_bytes = max, .floor_bytes = floor };
    reopen_cache();
    memset(&owner, 0, sizeof(owner));
    cache_on_evict(cache, may_go, NULL);
}

static uint64_t
used(void)
{
    struct cache_usage usage;
    cache_usage(cache, &usage);
    return usage.bytes;
}

static void
test_least_recently_used_goes_first(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    open_small(10 * MIB, 0);
    for (int64_t i = 1; i <= 9; i++)
        make_closed(i, MIB, false);
    cache_touch(cache, 1);
    cache_put(cache_get(cache, 2, &err)); /* used, too */
    assert_int_equal(owner.count, 0);
    make_closed(10, MIB + MIB / 2, false); /* over the limit: down to nine tenths with it */
    assert_true(owner.count >= 2);
    assert_int_equal(owner.asked[0], 3);
    assert_int_equal(owner.asked[1], 4);
    assert_true(used() <= 9 * MIB + 64 * 1024);
    assert_true(is_cached(1) && is_cached(2) && is_cached(5) && is_cached(10));
    assert_false(is_cached(3) || is_cached(4));
    assert_false(on_disk("cache/03/3"));
}

static void
test_low_mark_spares_the_next_writers(void **state)
{
    (void)state;
    open_small(20 * MIB, 0);
    for (int64_t i = 1; i <= 20; i++)
        make_closed(i, MIB - 8192, false);
    unsigned first = owner.count;
    make_closed(21, MIB - 8192, false);
    unsigned second = owner.count;
    assert_true(second > first);
    make_closed(22, MIB - 8192, false);
    assert_int_equal(owner.count, second); /* room was made ahead */
}

static void
test_refused_ones_stay(void **state)
{
    (void)state;
    open_small(10 * MIB, 0);
    for (int64_t i = 1; i <= 9; i++)
        make_closed(i, MIB, false);
    owner.keep = 1;
    make_closed(10, MIB + MIB / 2, false);
    assert_int_equal(owner.asked[0], 1);
    assert_true(is_cached(1));
    assert_false(is_cached(2));
}

/* Whose disk is full is no riddle. */
static void
assert_names_the_cache(const struct err *err)
{
    char path[sizeof(scratch) + 8];
    (void)snprintf(path, sizeof(path), "'%s/cache'", scratch);
    if (strstr(err->msg, path) == NULL)
        fail_msg("no %s in: %s", path, err->msg);
}

/* INV-7, B148 */
static void
test_staged_bytes_are_never_evicted(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    char byte = 0;
    open_small(8 * MIB, 0);
    for (int64_t i = 1; i <= 7; i++)
        make_closed(i, MIB, true);
    struct cache_file *file = make_file(8, MIB / 2, 'y', true);
    static char data[MIB];
    assert_int_equal(cache_file_write(file, data, sizeof(data), MIB / 2, &err), -1);
    assert_int_equal(err.code, ERR_NO_SPACE);
    assert_names_the_cache(&err);
    uint64_t size = 0;
    RUN_OK(err, cache_file_size(file, &size, &err));
    assert_int_equal(size, MIB / 2); /* not a byte was taken */
    assert_int_equal(owner.count, 0);
    for (int64_t i = 1; i <= 7; i++)
        assert_true(is_cached(i));
    /* Bytes in place need no room, and are not refused for want of it. */
    RUN_OK(err, cache_file_write(file, "n", 1, 3, &err));
    assert_int_equal(cache_file_read(file, &byte, 1, 3, &err), 1);
    assert_int_equal(byte, 'n');
    /* Once one is in the bucket there is room again. */
    cache_unpin(cache, 4);
    RUN_OK(err, cache_file_write(file, data, sizeof(data), MIB / 2, &err));
    assert_false(is_cached(4));
    cache_pin(cache, 8);
    cache_put(file);
}

static void
test_open_files_stay(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    open_small(4 * MIB, 0);
    struct cache_file *file = make_file(1, 3 * MIB, 'o', false);
    assert_int_equal(cache_space_take(cache, 2 * MIB, &err), -1);
    assert_int_equal(err.code, ERR_NO_SPACE);
    assert_int_equal(owner.count, 0); /* it would free nothing */
    assert_true(on_disk("cache/01/1"));
    cache_put(file);
    RUN_OK(err, cache_space_take(cache, 2 * MIB, &err));
    assert_false(is_cached(1));
}

static bool
none_may_go(void *arg, int64_t number)
{
    (void)arg;
    owner.asked[owner.count++ % 256] = number;
    if (owner.count > 100)
        fail_msg("asked over and over");
    return false;
}

static void
test_each_is_asked_once(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    open_small(4 * MIB, 0);
    cache_on_evict(cache, none_may_go, NULL);
    for (int64_t i = 1; i <= 3; i++)
        make_closed(i, MIB, false);
    assert_int_equal(cache_space_take(cache, 2 * MIB, &err), -1);
    assert_int_equal(err.code, ERR_NO_SPACE);
    assert_int_equal(owner.count, 3);
}

static void
test_nothing_goes_before_the_owner_is_known(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    limits = (struct cache_limits){ .max_bytes = 4 * MIB };
    reopen_cache();
    make_closed(1, 3 * MIB, false);
    assert_int_equal(cache_space_take(cache, 2 * MIB, &err), -1);
    assert_true(is_cached(1));
}

/* B142 B148 */
static void
test_floor_of_free_disk(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    open_small(100 * MIB, 10 * MIB);
    make_closed(1, MIB, false);
    make_closed(2, MIB, true);
    plan.free_bytes = 12 * MIB;
    RUN_OK(err, cache_space_take(cache, 2 * MIB, &err));
    assert_int_equal(owner.count, 0);
    assert_int_equal(cache_space_take(cache, 2 * MIB + 4096, &err),
                     -1); /* the disk stays as full as it was */
    assert_int_equal(err.code, ERR_NO_SPACE);
    assert_int_equal(owner.count, 1);
    assert_false(is_cached(1));
    assert_true(is_cached(2));
    plan.free_bytes = 9 * MIB;
    struct cache_file *file = cache_get(cache, 2, &err);
    assert_int_equal(cache_file_write(file, "x", 1, 2 * MIB, &err), -1);
    assert_int_equal(err.code, ERR_NO_SPACE);
    assert_non_null(strstr(err.msg, "disk"));
    assert_names_the_cache(&err);
    plan.free_bytes = 0;
    RUN_OK(err, cache_file_write(file, "x", 1, 2 * MIB, &err)); /* without a restart */
    cache_put(file);
}

static void
test_order_survives_a_restart(void **state)
{
    (void)state;
    char path[256];
    open_small(10 * MIB, 0);
    for (int64_t i = 1; i <= 9; i++) {
        make_closed(i, MIB, false);
        struct timespec times[2] = { { .tv_sec = 1000 - i },
                                     { .tv_sec = 1000 - i } }; /* 9 is the oldest */
        (void)snprintf(path, sizeof(path), "%s/cache/%02x/%d", scratch, (unsigned)i, (int)i);
        assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    }
    open_small(10 * MIB, 0);
    make_closed(10, MIB + MIB / 2, false);
    assert_int_equal(owner.asked[0], 9);
    assert_int_equal(owner.asked[1], 8);
}

static void
test_passthrough_writes_are_counted_at_the_end(void **state)
{
    (void)state;
    open_small(10 * MIB, 0);
    struct cache_file *file = make_file(1, 10, 'p', true);
    static char data[MIB];
    memset(data, 1, sizeof(data));
    assert_int_equal(pwrite(cache_file_fd(file), data, sizeof(data), 0), (ssize_t)sizeof(data));
    cache_put(file);
    assert_true(used() >= MIB);
}

/* ---- the reserve ---- */
static uint64_t
reserve_on_disk(void)
{
    char path[256];
    struct stat st;
    (void)snprintf(path, sizeof(path), "%s/reserve", scratch);
    assert_int_equal(stat(path, &st), 0);
    return (uint64_t)st.st_blocks * 512;
}

static void
test_reserve(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct cache_usage usage;
    limits = (struct cache_limits){ .max_bytes = 10 * MIB,
                                    .floor_bytes = MIB,
                                    .reserve_bytes = 2 * MIB };
    reopen_cache();
    assert_true(reserve_on_disk() >= 2 * MIB); /* real blocks */
    cache_usage(cache, &usage);
    assert_false(usage.reserve_freed);
    cache_reserve_free(cache);
    assert_int_equal(reserve_on_disk(), 0);
    cache_usage(cache, &usage);
    assert_true(usage.reserve_freed);
    cache_reserve_free(cache); /* twice is fine */
    plan.free_bytes = 2 * MIB;
    assert_int_equal(cache_reserve_restore(cache, &err), -1);
    assert_int_equal(err.code, ERR_NO_SPACE);
    plan.free_bytes = 0;
    RUN_OK(err, cache_reserve_restore(cache, &err));
    assert_true(reserve_on_disk() >= 2 * MIB);
    cache_usage(cache, &usage);
    assert_false(usage.reserve_freed);
}

static int
no_fallocate(int fd, int mode, off_t off, off_t len)
{
    (void)fd;
    (void)mode;
    (void)off;
    (void)len;
    errno = EOPNOTSUPP;
    return -1;
}

static void
test_reserve_without_fallocate(void **state)
{
    (void)state;
    struct cache_usage usage;
    table.fallocate = no_fallocate;
    limits = (struct cache_limits){ .max_bytes = 10 * MIB, .reserve_bytes = MIB + 5 };
    reopen_cache();
    assert_true(reserve_on_disk() >= MIB); /* written */
    plan.pwrite_errno = ENOSPC;
    cache_reserve_free(cache);
    reopen_cache(); /* no room for one: goes on without it, and says so */
    cache_usage(cache, &usage);
    assert_true(usage.reserve_freed);
    assert_int_equal(reserve_on_disk(), 0);
}

static void
test_many_files(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct cache_usage usage;
    for (int64_t i = 1; i <= 2500; i++) { /* the table grows twice */
        struct cache_file *file = cache_create(cache, i, NULL, false, &err);
        assert_non_null(file);
        cache_put(file);
    }
    for (int64_t i = 1; i <= 2500; i++)
        assert_true(is_cached(i));
    for (int64_t i = 2; i <= 2500; i += 2)
        cache_remove(cache, i);
    cache_usage(cache, &usage);
    assert_int_equal(usage.files, 1250);
    assert_true(is_cached(2499));
    assert_false(is_cached(2500));
}

/* ---- threads ---- */
#define THREADS 4
static atomic_int_least64_t next_number = 1;
static atomic_bool stop;

static bool
any_may_go(void *arg, int64_t number)
{
    (void)arg;
    return !cache_pinned(cache, number);
}

static void *
churn(void *arg)
{
    uint64_t seed = (uint64_t)(uintptr_t)arg;
    static char data[64 * 1024];
    while (!atomic_load(&stop)) {
        struct err err = ERR_INIT;
        int64_t last = atomic_load(&next_number);
        struct cache_file *file;
        if (random_next(&seed) % 3 == 0) {
            int64_t number = atomic_fetch_add(&next_number, 1);
            file = cache_create(cache, number, NULL, number % 16 == 0, &err);
            assert_non_null(file);
            if (cache_file_write(file, data, sizeof(data), 0, &err) != 0)
                assert_int_equal(err.code, ERR_NO_SPACE);
        } else {
            file = cache_get(cache, 1 + (int64_t)(random_next(&seed) % (uint64_t)last), &err);
            if (file == NULL)
                continue;
            (void)cache_complete(file);
            cache_put(cache_ref(file));
        }
        int64_t number = cache_file_number(file);
        if (random_next(&seed) % 8 == 0)
            cache_unpin(cache, number);
        if (random_next(&seed) % 32 == 0)
            cache_remove(cache, number);
        cache_put(file);
        cache_touch(cache, number);
    }
    return NULL;
}

static void
test_threads(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    struct cache_usage usage;
    limits = (struct cache_limits){ .max_bytes = 4 * MIB };
    reopen_cache();
    cache_on_evict(cache, any_may_go, NULL);
    atomic_store(&stop, false);
    for (uintptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, churn, (void *)(i + 1)), 0);
    clock_sleep_ns(1000 * NS_PER_MS);
    atomic_store(&stop, true);
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_true(atomic_load(&next_number) > 200);
    cache_usage(cache, &usage);
    uint64_t bytes = usage.bytes, files = usage.files;
    assert_true(bytes <= 4 * MIB);
    reopen_cache(); /* what was counted is what lies there */
    cache_usage(cache, &usage);
    assert_int_equal(usage.bytes, bytes);
    assert_int_equal(usage.files, files);
}

int
main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_least_recently_used_goes_first),
        T(test_low_mark_spares_the_next_writers),
        T(test_refused_ones_stay),
        T(test_staged_bytes_are_never_evicted),
        T(test_open_files_stay),
        T(test_each_is_asked_once),
        T(test_nothing_goes_before_the_owner_is_known),
        T(test_floor_of_free_disk),
        T(test_order_survives_a_restart),
        T(test_passthrough_writes_are_counted_at_the_end),
        T(test_reserve),
        T(test_reserve_without_fallocate),
        T(test_many_files),
        T(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
