#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/limits.h"
#include "s3/parts.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define MIB (1ull << 20)
#define GIB (1ull << 30)
#define TIB (1ull << 40)

/* The limits of docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html. */
static void
plans(void **state)
{
    (void)state;
    const struct {
        uint64_t total, wanted, bytes;
        unsigned count;
    } rows[] = {
        { 0, 0, 16 * MIB, 1 },
        { 1, 0, 16 * MIB, 1 },
        { 16 * MIB, 0, 16 * MIB, 1 },
        { 16 * MIB + 1, 0, 16 * MIB, 2 },
        { 32 * MIB, 0, 16 * MIB, 2 },
        { 100 * MIB, 5 * MIB, 5 * MIB, 20 },
        { 10000 * 16 * MIB, 0, 16 * MIB, 10000 },
        { 10000 * 16 * MIB + 1, 0, 17 * MIB, 9412 }, /* 160000 / 17, rounded up */
        { 12 * GIB, 0, 16 * MIB, 768 },
        { 5 * TIB, 0, 525 * MIB, 9987 }, /* 5242880 / 525, rounded up */
    };
    struct err err = ERR_INIT;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct parts parts;
        assert_int_equal(parts_plan(rows[i].total, rows[i].wanted, 5 * GIB, &parts, &err), 0);
        assert_int_equal(parts.bytes, rows[i].bytes);
        assert_int_equal(parts.count, rows[i].count);
    }
}

/* All equal but the last, which is not larger and never empty; together they are the whole (B017). */
static void
parts_cover_the_whole(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    const uint64_t totals[] = { 1, 999, 1000, 1001, 2000, 9999, 10000, 123457 };
    for (size_t i = 0; i < COUNT(totals); i++) {
        struct parts parts;
        uint64_t at = 0;
        assert_int_equal(parts_plan(totals[i], 1000, 5 * GIB, &parts, &err), 0);
        for (unsigned p = 0; p < parts.count; p++) {
            assert_int_equal(parts_off(&parts, p), at);
            at += parts_len(&parts, p);
            if (p + 1 < parts.count)
                assert_int_equal(parts_len(&parts, p), parts.bytes);
            else
                assert_in_range(parts_len(&parts, p), 1, parts.bytes);
        }
        assert_int_equal(at, totals[i]);
    }
}

static void
too_large(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct parts parts;
    assert_int_equal(parts_plan(LIMIT_FILE_SIZE + 1, 0, 5 * GIB, &parts, &err), -1);
    assert_int_equal(err.code, ERR_TOO_LARGE);
    /* 10,000 parts of at most 1 MiB. */
    assert_int_equal(parts_plan(10000 * MIB, 0, MIB, &parts, &err), 0);
    assert_int_equal(parts_plan(10000 * MIB + 1, 0, MIB, &parts, &err), -1);
    assert_int_equal(parts_plan(10, 0, 0, &parts, &err), -1);
}

/* ---- side by side ---- */

struct job {
    atomic_uint calls, now, most;
    atomic_uint times[64];
    unsigned fail_at; /* index + 1; 0: never */
};

static int
work(void *arg, unsigned index, struct err *err)
{
    struct job *job = arg;
    unsigned now = atomic_fetch_add(&job->now, 1) + 1;
    unsigned most = atomic_load(&job->most);
    while (now > most && !atomic_compare_exchange_weak(&job->most, &most, now))
        continue;
    atomic_fetch_add(&job->calls, 1);
    atomic_fetch_add(&job->times[index], 1);
    clock_sleep_ns(5 * NS_PER_MS);
    atomic_fetch_sub(&job->now, 1);
    if (job->fail_at != index + 1)
        return 0;
    return err_set(err, ERR_NO_SPACE, "number %u", index);
}

static void
runs_each_once(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct job job = { .calls = 0 };
    assert_int_equal(parts_run(40, 4, work, &job, &err), 0);
    assert_int_equal(job.calls, 40);
    for (int i = 0; i < 40; i++)
        assert_int_equal(job.times[i], 1);
    assert_in_range(job.most, 2, 4);
    memset(&job, 0, sizeof(job));
    assert_int_equal(parts_run(3, 1, work, &job, &err), 0);
    assert_int_equal(job.most, 1);
    assert_int_equal(parts_run(0, 4, work, &job, &err), 0);
}

static void
stops_at_a_failure(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct job job = { .fail_at = 3 };
    assert_int_equal(parts_run(60, 4, work, &job, &err), -1);
    assert_int_equal(err.code, ERR_NO_SPACE);
    assert_string_equal(err.msg, "number 2");
    assert_int_equal(job.now, 0);         /* nobody is left behind */
    assert_in_range(job.calls, 3, 3 + 8); /* those under way end, and a few had begun */
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans),
        cmocka_unit_test(parts_cover_the_whole),
        cmocka_unit_test(too_large),
        cmocka_unit_test(runs_each_once),
        cmocka_unit_test(stops_at_a_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
