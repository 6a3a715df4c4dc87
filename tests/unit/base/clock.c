#include "base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

static int64_t fake_ns;
static int64_t slept_ns;

static int64_t
fake_wall(void)
{
    return fake_ns;
}

static int64_t
fake_mono(void)
{
    return fake_ns + 1;
}

static int64_t
fake_boot(void)
{
    return fake_ns + 2;
}

static void
fake_sleep(int64_t ns)
{
    slept_ns += ns;
}

static const struct clock_table fake = { fake_wall, fake_mono, fake_boot, fake_sleep };

static int
use_real(void **state)
{
    (void)state;
    clock_replace(NULL);
    return 0;
}

static void
test_replace(void **state)
{
    (void)state;
    clock_replace(&fake);
    fake_ns = 42;
    assert_true(clock_wall_ns() == 42);
    assert_true(clock_mono_ns() == 43);
    assert_true(clock_boot_ns() == 44);
    clock_sleep_ns(7);
    assert_true(slept_ns == 7);
    clock_replace(NULL);
    assert_true(clock_wall_ns() > 1700000000 * NS_PER_S);
}

static void
test_real(void **state)
{
    (void)state;
    int64_t mono = clock_mono_ns();
    int64_t boot = clock_boot_ns();
    clock_sleep_ns(5 * NS_PER_MS);
    clock_sleep_ns(0);
    clock_sleep_ns(-1);
    assert_true(clock_mono_ns() - mono >= 5 * NS_PER_MS);
    assert_true(clock_boot_ns() - boot >= 5 * NS_PER_MS);
}

#define S(seconds) ((seconds)*NS_PER_S)

static void
test_rfc3339(void **state)
{
    (void)state;
    static const struct {
        int64_t ns;
        const char *text;
    } cases[] = {
        { 0, "1970-01-01T00:00:00Z" },
        { 1782900000123456789, "2026-07-01T10:00:00.123456789Z" },
        { S(1782900000) + 1, "2026-07-01T10:00:00.000000001Z" },
        { S(951782400), "2000-02-29T00:00:00Z" },
        { -1, "1969-12-31T23:59:59.999999999Z" },
        { INT64_MAX, "2262-04-11T23:47:16.854775807Z" },
        { -1000000000 * NS_PER_S, "1938-04-24T22:13:20Z" },
        { INT64_MIN, "1677-09-21T00:12:43.145224192Z" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[TIME_RFC3339_SIZE];
        int64_t back = 5;
        time_rfc3339(cases[i].ns, text, sizeof(text));
        assert_string_equal(text, cases[i].text);
        assert_int_equal(time_parse_rfc3339(text, &back), 0);
        assert_true(back == cases[i].ns);
    }
}

/* RFC 3339 section 5.8, and the form of S3. */
static void
test_parse_rfc3339(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t ns;
    } cases[] = {
        { "1985-04-12T23:20:50.52Z", 482196050520000000 },
        { "1996-12-19T16:39:57-08:00", S(851042397) },
        { "1990-12-31T23:59:60Z", S(662688000) },
        { "1990-12-31T15:59:60-08:00", S(662688000) },
        { "1937-01-01T12:00:27.87+00:20", -1041337172130000000 },
        { "2026-07-01T10:00:00.000Z", S(1782900000) },
        { "2026-07-01t10:00:00z", S(1782900000) },
        { "2026-07-01T10:00:00.1234567899Z", 1782900000123456789 },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int64_t ns = 5;
        assert_int_equal(time_parse_rfc3339(cases[i].text, &ns), 0);
        assert_true(ns == cases[i].ns);
    }
}

static void
test_parse_rfc3339_refuses(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "2026",
        "2026-07-01",
        "2026-07-01T10:00:00",
        "2026-07-01 10:00:00Z",
        "2026-13-01T10:00:00Z",
        "2026-00-01T10:00:00Z",
        "2026-02-29T10:00:00Z",
        "1900-02-29T10:00:00Z",
        "2026-04-31T10:00:00Z",
        "2026-07-00T10:00:00Z",
        "2026-07-01T24:00:00Z",
        "2026-07-01T10:60:00Z",
        "2026-07-01T10:00:61Z",
        "2026-07-01T10:00:00.Z",
        "2026-07-01T10:00:00Zx",
        "2026-07-01T10:00:00+0200",
        "2026-07-01T10:00:00+24:00",
        "2026-7-01T10:00:00Z",
        "+026-07-01T10:00:00Z",
        "2026-07-01T10:00:00+02:60",
        "9999-12-31T23:59:59Z",
        "1677-09-21T00:12:43.145224191Z",
        "2262-04-11T23:47:16.854775808Z",
        "0001-01-01T00:00:00Z",
        "2026-07-01T10:00",
        "2026-07-01T1",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        int64_t ns = 5;
        assert_int_equal(time_parse_rfc3339(bad[i], &ns), -1);
        assert_true(ns == 5);
    }
}

/* RFC 9110 section 5.6.7 writes one moment in all three forms. */
static void
test_http(void **state)
{
    (void)state;
    static const char *const forms[] = { "Sun, 06 Nov 1994 08:49:37 GMT",
                                         "Sunday, 06-Nov-94 08:49:37 GMT",
                                         "Sun Nov  6 08:49:37 1994" };
    fake_ns = S(1782900000);
    clock_replace(&fake);
    for (size_t i = 0; i < 3; i++) {
        int64_t ns = 5;
        assert_int_equal(time_parse_http(forms[i], &ns), 0);
        assert_true(ns == S(784111777));
    }
    char text[TIME_HTTP_SIZE];
    time_http(S(784111777), text, sizeof(text));
    assert_string_equal(text, forms[0]);
    time_http(S(1782900000) + 999999999, text, sizeof(text));
    assert_string_equal(text, "Wed, 01 Jul 2026 10:00:00 GMT");
    int64_t ns;
    assert_int_equal(time_parse_http("Wed Jul 01 10:00:00 2026", &ns), 0);
    assert_true(ns == S(1782900000));
}

/* "more than 50 years in the future" is the past (RFC 9110 5.6.7); now is 2026. */
static void
test_two_digit_year(void **state)
{
    (void)state;
    int64_t ns;
    fake_ns = S(1782900000);
    clock_replace(&fake);
    assert_int_equal(time_parse_http("Friday, 01-Jan-76 00:00:00 GMT", &ns), 0);
    assert_true(ns == S(3345062400)); /* 2076 */
    assert_int_equal(time_parse_http("Saturday, 01-Jan-77 00:00:00 GMT", &ns), 0);
    assert_true(ns == S(220924800)); /* 1977 */
}

static void
test_http_refuses(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "Sun",
        "Sun, 06 Nov 1994 08:49:37",
        "Sun, 06 Nov 1994 08:49:37 UTC",
        "Sun, 06 Nov 1994 08:49:37 GMT ",
        "Son, 06 Nov 1994 08:49:37 GMT",
        "Sun, 6 Nov 1994 08:49:37 GMT",
        "Sun, 06 nov 1994 08:49:37 GMT",
        "Sun, 31 Nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 94 08:49:37 GMT",
        "Sunday, 06-Nov-1994 08:49:37 GMT",
        "Sun Nov 6 08:49:37 1994",
        "Sun Nov  6 08:49:37 94",
        "Sun, 06 Nov 1994 25:49:37 GMT",
        "784111777",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        int64_t ns = 5;
        assert_int_equal(time_parse_http(bad[i], &ns), -1);
        assert_true(ns == 5);
    }
}

/* The date of AWS's Signature Version 4 test suite. */
static void
test_iso_basic(void **state)
{
    (void)state;
    char text[TIME_ISO_BASIC_SIZE];
    time_iso_basic(S(1440938160), text, sizeof(text));
    assert_string_equal(text, "20150830T123600Z");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_replace, use_real),
        cmocka_unit_test(test_real),
        cmocka_unit_test(test_rfc3339),
        cmocka_unit_test(test_parse_rfc3339),
        cmocka_unit_test(test_parse_rfc3339_refuses),
        cmocka_unit_test_teardown(test_http, use_real),
        cmocka_unit_test_teardown(test_two_digit_year, use_real),
        cmocka_unit_test(test_http_refuses),
        cmocka_unit_test(test_iso_basic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
