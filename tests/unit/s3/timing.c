#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "s3/timing.h"

static int64_t now;

static int64_t
fake_now(void)
{
    return now;
}

static uint64_t
count_of(const struct store_timing *timing, enum store_call call, enum store_result result,
         unsigned bucket)
{
    return atomic_load(&timing->of[call][result].count[bucket]);
}

static void
a_call_counts_where_it_took_no_longer(void **state)
{
    (void)state;
    struct store_timing timing = { 0 };
    struct err err = ERR_INIT;
    const struct {
        int64_t took;
        unsigned bucket;
    } calls[] = { { 0, 0 },
                  { NS_PER_MS, 0 },
                  { NS_PER_MS + 1, 1 },
                  { 30 * NS_PER_S, STORE_TIMING_BOUNDS - 1 },
                  { 30 * NS_PER_S + 1, STORE_TIMING_BOUNDS },
                  { -5, 0 } }; /* a clock that went back */
    clock_replace(&(struct clock_table){ .wall = fake_now, .mono = fake_now, .boot = fake_now });
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        uint64_t before = count_of(&timing, STORE_CALL_PUT, STORE_RESULT_OK, calls[i].bucket);
        now = 1000 + calls[i].took;
        store_timing_add(&timing, STORE_CALL_PUT, 1000, 0, &err);
        assert_int_equal(count_of(&timing, STORE_CALL_PUT, STORE_RESULT_OK, calls[i].bucket),
                         before + 1);
    }
    clock_replace(NULL);
    assert_int_equal(atomic_load(&timing.of[STORE_CALL_PUT][STORE_RESULT_OK].sum_ns),
                     2 * NS_PER_MS + 1 + 60 * NS_PER_S + 1);
    for (unsigned i = 1; i < STORE_TIMING_BOUNDS; i++)
        assert_true(store_timing_bound_ns[i - 1] < store_timing_bound_ns[i]);
}

static void
judged_is_not_failed(void **state)
{
    (void)state;
    struct store_timing timing = { 0 };
    struct err err = ERR_INIT;
    const struct {
        enum err_code code;
        enum store_result result;
    } all[] = { { ERR_CONFLICT, STORE_RESULT_REFUSED },
                { ERR_NOT_FOUND, STORE_RESULT_REFUSED },
                { ERR_STORE_AWAY, STORE_RESULT_FAILED },
                { ERR_STORE_TIMEOUT, STORE_RESULT_FAILED },
                { ERR_STORE_DENIED, STORE_RESULT_FAILED } };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        uint64_t sum = 0, before = 0;
        for (unsigned b = 0; b <= STORE_TIMING_BOUNDS; b++)
            before += count_of(&timing, STORE_CALL_GET, all[i].result, b);
        (void)err_set(&err, all[i].code, "x");
        store_timing_add(&timing, STORE_CALL_GET, clock_mono_ns(), -1, &err);
        for (unsigned b = 0; b <= STORE_TIMING_BOUNDS; b++)
            sum += count_of(&timing, STORE_CALL_GET, all[i].result, b);
        assert_int_equal(sum, before + 1);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_counts_where_it_took_no_longer),
        cmocka_unit_test(judged_is_not_failed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
