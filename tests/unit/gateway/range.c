/* Range, conditions: the examples of RFC 9110 sections 13 and 14, and its rules for what may be ignored. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gateway/range.h"

#define SECOND 1000000000ll

struct range_case {
    const char *value;
    uint64_t size;
    enum gateway_range_result result;
    uint64_t first, last;
};

static const struct range_case range_cases[] = {
    { NULL, 10000, GATEWAY_RANGE_WHOLE, 0, 0 },
    /* RFC 9110 section 14.1.2: a representation of 10000 bytes */
    { "bytes=0-499", 10000, GATEWAY_RANGE_PART, 0, 499 },
    { "bytes=500-999", 10000, GATEWAY_RANGE_PART, 500, 999 },
    { "bytes=-500", 10000, GATEWAY_RANGE_PART, 9500, 9999 },
    { "bytes=9500-", 10000, GATEWAY_RANGE_PART, 9500, 9999 },
    { "bytes=0-0,-1", 10000, GATEWAY_RANGE_WHOLE, 0, 0 },
    { "BYTES=0-0", 10000, GATEWAY_RANGE_PART, 0, 0 },
    /* the last byte is beyond the end: the rest */
    { "bytes=9999-20000", 10000, GATEWAY_RANGE_PART, 9999, 9999 },
    { "bytes=-20000", 10000, GATEWAY_RANGE_PART, 0, 9999 },
    { "bytes=10000-", 10000, GATEWAY_RANGE_UNSATISFIABLE, 0, 0 },
    { "bytes=10000-10001", 10000, GATEWAY_RANGE_UNSATISFIABLE, 0, 0 },
    { "bytes=-0", 10000, GATEWAY_RANGE_UNSATISFIABLE, 0, 0 },
    { "bytes=0-", 0, GATEWAY_RANGE_UNSATISFIABLE, 0, 0 },
    { "bytes=-5", 0, GATEWAY_RANGE_UNSATISFIABLE, 0, 0 },
    /* malformed or of another unit: ignored */
    { "bytes=5-4", 10000, GATEWAY_RANGE_WHOLE, 0, 0 },
    { "bytes=", 10000, GATEWAY_RANGE_WHOLE, 0, 0 },
    { "bytes=-", 10000, GATEWAY_RANGE_WHOLE, 0, 0 },
    { "bytes=a-b", 10000, GATEWAY_RANGE_WHOLE, 0, 0 },
    { "bytes= 0-1", 10000, GATEWAY_RANGE_WHOLE, 0, 0 },
    { "bytes=+0-1", 10000, GATEWAY_RANGE_WHOLE, 0, 0 },
    { "lines=0-1", 10000, GATEWAY_RANGE_WHOLE, 0, 0 },
    { "bytes=18446744073709551616-", 10000, GATEWAY_RANGE_WHOLE, 0, 0 },
    { "bytes=0-18446744073709551615", 10000, GATEWAY_RANGE_PART, 0, 9999 },
};

static void
test_ranges(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(range_cases) / sizeof(range_cases[0]); i++) {
        const struct range_case *c = &range_cases[i];
        uint64_t first = 0;
        uint64_t last = 0;
        print_message("range %s of %llu\n", c->value ? c->value : "(none)",
                      (unsigned long long)c->size);
        assert_int_equal(gateway_range_parse(c->value, c->size, &first, &last), c->result);
        assert_int_equal(first, c->first);
        assert_int_equal(last, c->last);
    }
}

/* Sun, 06 Nov 1994 08:49:37 GMT, the date of RFC 9110 section 5.6.7, is 784111777 (date -u -d). */
#define THE_DATE "Sun, 06 Nov 1994 08:49:37 GMT"
#define THE_TIME (784111777ll * SECOND)

struct condition_case {
    struct gateway_conditions conditions;
    int64_t mtime_ns;
    int rc;
    enum gateway_condition_result result;
};

static const struct condition_case condition_cases[] = {
    { { NULL, NULL, NULL, NULL, NULL }, THE_TIME, 0, GATEWAY_CONDITION_GO },
    { { "\"v1\"", NULL, NULL, NULL, NULL }, THE_TIME, 0, GATEWAY_CONDITION_GO },
    { { "*", NULL, NULL, NULL, NULL }, THE_TIME, 0, GATEWAY_CONDITION_GO },
    { { "\"v0\", \"v1\"", NULL, NULL, NULL, NULL }, THE_TIME, 0, GATEWAY_CONDITION_GO },
    { { "\"v0\"", NULL, NULL, NULL, NULL }, THE_TIME, 0, GATEWAY_CONDITION_FAILED },
    { { "v1", NULL, NULL, NULL, NULL }, THE_TIME, -1, GATEWAY_CONDITION_GO },
    { { NULL, "\"v1\"", NULL, NULL, NULL }, THE_TIME, 0, GATEWAY_CONDITION_NOT_MODIFIED },
    { { NULL, "W/\"v1\"", NULL, NULL, NULL }, THE_TIME, 0, GATEWAY_CONDITION_NOT_MODIFIED },
    { { NULL, "*", NULL, NULL, NULL }, THE_TIME, 0, GATEWAY_CONDITION_NOT_MODIFIED },
    { { NULL, "\"v0\"", NULL, NULL, NULL }, THE_TIME, 0, GATEWAY_CONDITION_GO },
    /* the entity tag counts, the date is ignored beside it (section 13.1.3) */
    { { NULL, "\"v0\"", THE_DATE, NULL, NULL }, THE_TIME, 0, GATEWAY_CONDITION_GO },
    { { NULL, NULL, THE_DATE, NULL, NULL }, THE_TIME, 0, GATEWAY_CONDITION_NOT_MODIFIED },
    { { NULL, NULL, THE_DATE, NULL, NULL },
      THE_TIME + SECOND / 2,
      0,
      GATEWAY_CONDITION_NOT_MODIFIED },
    { { NULL, NULL, THE_DATE, NULL, NULL }, THE_TIME + SECOND, 0, GATEWAY_CONDITION_GO },
    { { NULL, NULL, "yesterday", NULL, NULL }, THE_TIME, 0, GATEWAY_CONDITION_GO },
    { { NULL, NULL, NULL, THE_DATE, NULL }, THE_TIME, 0, GATEWAY_CONDITION_GO },
    { { NULL, NULL, NULL, THE_DATE, NULL }, THE_TIME + SECOND, 0, GATEWAY_CONDITION_FAILED },
    { { "\"v1\"", NULL, NULL, THE_DATE, NULL }, THE_TIME + SECOND, 0, GATEWAY_CONDITION_GO },
};

static void
test_conditions(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(condition_cases) / sizeof(condition_cases[0]); i++) {
        const struct condition_case *c = &condition_cases[i];
        enum gateway_condition_result result = GATEWAY_CONDITION_GO;
        struct err err = ERR_INIT;
        print_message("condition %zu\n", i);
        assert_int_equal(gateway_range_judge(&c->conditions, "v1", c->mtime_ns, &result, &err),
                         c->rc);
        if (c->rc == 0)
            assert_int_equal(result, c->result);
        else
            assert_int_equal(err.code, ERR_INVAL);
    }
}

static void
test_if_range(void **state)
{
    (void)state;
    assert_true(gateway_range_applies(NULL, "v1", THE_TIME));
    assert_true(gateway_range_applies("\"v1\"", "v1", THE_TIME));
    assert_false(gateway_range_applies("\"v2\"", "v1", THE_TIME));
    assert_false(gateway_range_applies("\"v1", "v1", THE_TIME));
    assert_false(gateway_range_applies("W/\"v1\"", "v1", THE_TIME));
    assert_false(gateway_range_applies("*", "v1", THE_TIME));
    assert_true(gateway_range_applies(THE_DATE, "v1", THE_TIME));
    assert_false(gateway_range_applies(THE_DATE, "v1", THE_TIME + SECOND));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_conditions),
        cmocka_unit_test(test_if_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
