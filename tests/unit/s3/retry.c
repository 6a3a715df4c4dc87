#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "s3/retry.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void
classify(void **state)
{
    (void)state;
    const struct {
        int status;
        const char *code;
        enum retry_verdict want;
    } rows[] = {
        { 500, "InternalError", RETRY_AGAIN },
        { 502, "", RETRY_AGAIN },
        { 503, "", RETRY_AGAIN },
        { 503, "SlowDown", RETRY_SLOW },
        { 504, "", RETRY_AGAIN },
        { 429, "", RETRY_SLOW },
        { 400, "RequestTimeout", RETRY_AGAIN },
        { 400, "InvalidArgument", RETRY_NO },
        { 409, "ConditionalRequestConflict", RETRY_AGAIN },
        { 403, "RequestTimeTooSkewed", RETRY_CLOCK },
        { 403, "AccessDenied", RETRY_NO },
        { 404, "NoSuchKey", RETRY_NO },
        { 412, "PreconditionFailed", RETRY_NO },
        { 416, "InvalidRange", RETRY_NO },
        { 501, "NotImplemented", RETRY_NO },
        { 301, "PermanentRedirect", RETRY_NO },
        { 200, "InternalError", RETRY_AGAIN }, /* an error document in a 200 */
        { 200, "SlowDown", RETRY_SLOW },
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        assert_int_equal(retry_classify(rows[i].status, rows[i].code), rows[i].want);
}

static void
backoff_is_jittered_and_bounded(void **state)
{
    (void)state;
    uint64_t seed = 7;
    for (unsigned attempt = 0; attempt < 40; attempt++) {
        int64_t top = attempt < 6 ? (100 * NS_PER_MS) << attempt : 5 * NS_PER_S;
        int64_t low = INT64_MAX;
        int64_t high = 0;
        for (int i = 0; i < 200; i++) {
            int64_t wait = retry_backoff_ns(attempt, &seed);
            assert_true(wait >= 0 && wait <= top && wait <= 5 * NS_PER_S);
            low = wait < low ? wait : low;
            high = wait > high ? wait : high;
        }
        int64_t bound = top < 5 * NS_PER_S ? top : 5 * NS_PER_S;
        assert_true(low < bound / 5); /* full jitter reaches both ends */
        assert_true(high > bound / 5 * 4);
    }
}

/* B022 */
static void
retry_after(void **state)
{
    (void)state;
    int64_t now = 1445412420 * NS_PER_S; /* Wed, 21 Oct 2015 07:27:00 GMT */
    assert_true(retry_after_ns(NULL, now) == 0);
    assert_true(retry_after_ns("3", now) == 3 * NS_PER_S);
    assert_true(retry_after_ns("99999", now) == 60 * NS_PER_S);
    assert_true(retry_after_ns("soon", now) == 0);
    assert_true(retry_after_ns("-1", now) == 0);
    /* RFC 9110 section 10.2.3 gives both forms. */
    assert_true(retry_after_ns("Wed, 21 Oct 2015 07:27:05 GMT", now) == 5 * NS_PER_S);
    assert_true(retry_after_ns("Wed, 21 Oct 2015 07:26:05 GMT", now) == 0);
    assert_true(retry_after_ns("Wed, 21 Oct 2016 07:28:00 GMT", now) == 60 * NS_PER_S);
}

static void
deadlines(void **state)
{
    (void)state;
    assert_true(retry_deadline_ns(5, 0) == 5 + 30 * NS_PER_S);
    assert_true(retry_deadline_ns(0, 100u << 20) == 130 * NS_PER_S);
}

static void
enter_all(struct retry_limit *limit)
{
    while (retry_limit_enter(limit))
        continue;
}

/* So many answers of this kind, all of requests under way together. */
static void
leave_all(struct retry_limit *limit, enum retry_result result)
{
    while (limit->in_flight > 0)
        retry_limit_leave(limit, result);
}

static void
limiter_starts_slowly(void **state)
{
    (void)state;
    struct retry_limit limit;
    retry_limit_init(&limit, 16);
    const unsigned rounds[] = { 4, 8, 16, 16 };
    for (size_t i = 0; i < COUNT(rounds); i++) {
        enter_all(&limit);
        assert_int_equal(limit.in_flight, rounds[i]);
        leave_all(&limit, RETRY_RESULT_GOOD);
    }
    retry_limit_init(&limit, 2);
    enter_all(&limit);
    assert_int_equal(limit.in_flight, 2);
}

/* B021: one overload halves the window once, however many requests it hits; then one more per round. */
static void
limiter_halves_once(void **state)
{
    (void)state;
    struct retry_limit limit;
    retry_limit_init(&limit, 16);
    for (int i = 0; i < 3; i++) {
        enter_all(&limit);
        leave_all(&limit, RETRY_RESULT_GOOD);
    }
    enter_all(&limit);
    assert_int_equal(limit.in_flight, 16);
    leave_all(&limit, RETRY_RESULT_SLOW);
    assert_int_equal(limit.window, 8);
    for (unsigned want = 9; want <= 12; want++) {
        enter_all(&limit);
        leave_all(&limit, RETRY_RESULT_GOOD);
        assert_int_equal(limit.window, want);
    }
    /* A new overload is noticed at once, also while others still succeed. */
    enter_all(&limit);
    retry_limit_leave(&limit, RETRY_RESULT_SLOW);
    assert_int_equal(limit.window, 6);
    assert_false(retry_limit_enter(&limit)); /* 11 under way, 6 allowed */
    leave_all(&limit, RETRY_RESULT_BAD);
    assert_int_equal(limit.window, 6);
    assert_int_equal(limit.settling, 0);
}

static void
limiter_never_stands_still(void **state)
{
    (void)state;
    struct retry_limit limit;
    retry_limit_init(&limit, 8);
    for (int i = 0; i < 10; i++) {
        assert_true(retry_limit_enter(&limit));
        leave_all(&limit, RETRY_RESULT_SLOW);
    }
    assert_int_equal(limit.window, 1);
    for (int i = 0; i < 40; i++) {
        assert_true(retry_limit_enter(&limit));
        retry_limit_leave(&limit, RETRY_RESULT_GOOD);
    }
    assert_int_equal(limit.window, 8);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(classify),
        cmocka_unit_test(backoff_is_jittered_and_bounded),
        cmocka_unit_test(retry_after),
        cmocka_unit_test(deadlines),
        cmocka_unit_test(limiter_starts_slowly),
        cmocka_unit_test(limiter_halves_once),
        cmocka_unit_test(limiter_never_stands_still),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
