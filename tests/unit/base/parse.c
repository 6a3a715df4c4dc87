#include "base/parse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#define UNTOUCHED 0x5a5a5a5a

static void
test_u64(void **state)
{
    (void)state;
    static const char *const bad[] = { "",
                                       "+1",
                                       "-1",
                                       " 1",
                                       "1 ",
                                       "1x",
                                       "0x1",
                                       "18446744073709551616",
                                       "99999999999999999999999",
                                       "1.0",
                                       "\xd9\xa1" };
    uint64_t n = UNTOUCHED;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_false(parse_u64(bad[i], &n));
        assert_int_equal(n, UNTOUCHED);
    }
    assert_true(parse_u64("0", &n));
    assert_int_equal(n, 0);
    assert_true(parse_u64("18446744073709551615", &n));
    assert_true(n == UINT64_MAX);
    assert_true(parse_u64_n("123456", 3, &n));
    assert_int_equal(n, 123);
    assert_false(parse_u64_n("123", 0, &n));
    assert_false(parse_u64_n("12\0", 3, &n));
}

static void
test_i64(void **state)
{
    (void)state;
    int64_t n = UNTOUCHED;
    assert_false(parse_i64("", &n));
    assert_false(parse_i64("-", &n));
    assert_false(parse_i64("--1", &n));
    assert_false(parse_i64("+1", &n));
    assert_false(parse_i64("9223372036854775808", &n));
    assert_false(parse_i64("-9223372036854775809", &n));
    assert_int_equal(n, UNTOUCHED);
    assert_true(parse_i64("-9223372036854775808", &n));
    assert_true(n == INT64_MIN);
    assert_true(parse_i64("9223372036854775807", &n));
    assert_true(n == INT64_MAX);
    assert_true(parse_i64("-12", &n));
    assert_true(n == -12);
}

static void
test_hex_and_octal(void **state)
{
    (void)state;
    uint64_t n = UNTOUCHED;
    uint32_t mode = UNTOUCHED;
    assert_false(parse_hex_u64("", &n));
    assert_false(parse_hex_u64("0x1", &n));
    assert_false(parse_hex_u64("g", &n));
    assert_false(parse_hex_u64("10000000000000000", &n));
    assert_int_equal(n, UNTOUCHED);
    assert_true(parse_hex_u64("fFfFfFfFfFfFfFfF", &n));
    assert_true(n == UINT64_MAX);
    assert_false(parse_octal_u32("8", &mode));
    assert_false(parse_octal_u32("40000000000", &mode));
    assert_int_equal(mode, UNTOUCHED);
    assert_true(parse_octal_u32("0644", &mode));
    assert_int_equal(mode, 420);
    assert_true(parse_octal_u32("37777777777", &mode));
    assert_true(mode == UINT32_MAX);
}

static void
test_bool(void **state)
{
    (void)state;
    static const char *const yes[] = { "true", "yes", "on", "1" };
    static const char *const no[] = { "false", "no", "off", "0" };
    static const char *const bad[] = { "", "TRUE", "y", "2", " on", "truex" };
    for (size_t i = 0; i < 4; i++) {
        bool value = false;
        assert_true(parse_bool(yes[i], &value));
        assert_true(value);
        assert_true(parse_bool(no[i], &value));
        assert_false(value);
    }
    bool value = true;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(parse_bool(bad[i], &value));
    assert_true(value);
}

static void
test_size(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {
        { "0", 0 },
        { "10", 10 },
        { "10B", 10 },
        { "4K", 4096 },
        { "4k", 4096 },
        { "4KB", 4096 },
        { "4KiB", 4096 },
        { "1.5G", 1610612736 },
        { "2TB", 2199023255552 },
        { "0.5M", 524288 },
        { "15E", 17293822569102704640u },
    };
    static const char *const bad[] = { "",
                                       "K",
                                       "1.5",
                                       ".5K",
                                       "1.K",
                                       "4KX",
                                       "4KiBs",
                                       "4 K",
                                       "-1",
                                       "16E",
                                       "18446744073709551616",
                                       "1Bi",
                                       "1Z",
                                       "4KBB",
                                       "1.5B",
                                       "1..5K" };
    uint64_t n = UNTOUCHED;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_true(parse_size(good[i].text, &n));
        assert_int_equal(n, good[i].bytes);
    }
    n = UNTOUCHED;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(parse_size(bad[i], &n));
    assert_int_equal(n, UNTOUCHED);
}

static void
test_duration(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t ns;
    } good[] = {
        { "90", 90000000000 },
        { "90s", 90000000000 },
        { "250ms", 250000000 },
        { "2m", 120000000000 },
        { "3h", 10800000000000 },
        { "1d", 86400000000000 },
        { "0", 0 },
        { "9223372036", 9223372036000000000 },
    };
    static const char *const bad[] = {
        "", "s", "-1", "1.5s", "1 s", "1w", "1S", "9223372037", "106752d", "99999999999999999999"
    };
    int64_t n = UNTOUCHED;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_true(parse_duration(good[i].text, &n));
        assert_true(n == good[i].ns);
    }
    n = UNTOUCHED;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(parse_duration(bad[i], &n));
    assert_int_equal(n, UNTOUCHED);
}

static void
test_decimal_seconds(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t ns;
        const char *back;
    } good[] = {
        { "1700000000.123456789", 1700000000123456789, "1700000000.123456789" },
        { "1700000000", 1700000000000000000, "1700000000" },
        { "1700000000.5", 1700000000500000000, "1700000000.500000000" },
        { "1.0000000019", 1000000001, "1.000000001" },
        { "-1.5", -1500000000, "-1.500000000" },
        { "-0.5", -500000000, "-0.500000000" },
        { "0.000", 0, "0" },
        { "9223372036.854775807", INT64_MAX, "9223372036.854775807" },
        { "-9223372036.854775808", INT64_MIN, "-9223372036.854775808" },
    };
    static const char *const bad[] = { "",
                                       ".",
                                       ".5",
                                       "1.",
                                       "-",
                                       "+1",
                                       "1e9",
                                       "1.5x",
                                       " 1",
                                       "--1",
                                       "9223372036.854775808",
                                       "-9223372036.854775809",
                                       "1.-5" };
    int64_t n = UNTOUCHED;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        char text[32];
        assert_true(parse_decimal_seconds(good[i].text, &n));
        assert_true(n == good[i].ns);
        format_decimal_seconds(n, text, sizeof(text));
        assert_string_equal(text, good[i].back);
    }
    n = UNTOUCHED;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(parse_decimal_seconds(bad[i], &n));
    assert_int_equal(n, UNTOUCHED);
}

static void
test_checked(void **state)
{
    (void)state;
    uint64_t n = UNTOUCHED;
    assert_false(checked_add(UINT64_MAX, 1, &n));
    assert_false(checked_mul(1ull << 32, 1ull << 32, &n));
    assert_int_equal(n, UNTOUCHED);
    assert_true(checked_add(UINT64_MAX - 1, 1, &n));
    assert_true(n == UINT64_MAX);
    assert_true(checked_mul(1ull << 32, (1ull << 32) - 1, &n));
    assert_true(n == 0xffffffff00000000u);
    assert_true(checked_mul(0, UINT64_MAX, &n));
    assert_int_equal(n, 0);
}

static void
test_hex(void **state)
{
    (void)state;
    char text[9];
    uint8_t bytes[4] = { 1, 2, 3, 4 };
    hex_encode("\x00\x1f\xab\xff", 4, text);
    assert_string_equal(text, "001fabff");
    hex_encode("", 0, text);
    assert_string_equal(text, "");
    assert_false(hex_decode("001fabf", 7, bytes, 4));
    assert_false(hex_decode("001fabff0", 9, bytes, 4));
    assert_false(hex_decode("001fabfg", 8, bytes, 4));
    assert_false(hex_decode("001fab", 6, bytes, 4));
    assert_memory_equal(bytes, "\x01\x02\x03\x04", 4);
    assert_true(hex_decode("001FabFf", 8, bytes, 4));
    assert_memory_equal(bytes, "\x00\x1f\xab\xff", 4);
}

/* RFC 4648 section 10. */
static void
test_base64(void **state)
{
    (void)state;
    static const char *const pairs[][2] = { { "", "" },
                                            { "f", "Zg==" },
                                            { "fo", "Zm8=" },
                                            { "foo", "Zm9v" },
                                            { "foob", "Zm9vYg==" },
                                            { "fooba", "Zm9vYmE=" },
                                            { "foobar", "Zm9vYmFy" },
                                            { "\xfb\xff\xbf", "+/+/" } };
    struct err err = ERR_INIT;
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        scope_buf out;
        buf_init(&out, 100);
        assert_int_equal(base64_encode(pairs[i][0], strlen(pairs[i][0]), &out, &err), 0);
        assert_string_equal(buf_cstr(&out), pairs[i][1]);
        buf_clear(&out);
        assert_int_equal(base64_decode(pairs[i][1], strlen(pairs[i][1]), &out, &err), 0);
        assert_string_equal(buf_cstr(&out), pairs[i][0]);
    }
}

static void
test_base64_refuses(void **state)
{
    (void)state;
    static const char *const bad[] = { "Z",    "Zg",   "Zg=",     "Z===", "====",
                                       "Zh==", "Zm9=", "Zm9v\n",  "Zm9 ", "Zg==Zg==",
                                       "Zm-_", "=Zg=", "Zm9vZg=a" };
    struct err err = ERR_INIT;
    scope_buf out;
    buf_init(&out, 100);
    assert_int_equal(buf_append_str(&out, "old", &err), 0);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        err.code = ERR_INTERNAL;
        assert_int_equal(base64_decode(bad[i], strlen(bad[i]), &out, &err), -1);
        assert_int_equal(err.code, ERR_INVAL);
        assert_string_equal(out.data, "old");
    }
    assert_int_equal(base64_decode("Zg\0=", 4, &out, &err), -1);
}

static void
test_percent(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    scope_buf out;
    buf_init(&out, 1000);
    /* RFC 3986 2.3: the unreserved characters stay; 2.1: upper-case digits. */
    static const char plain[] = "ABCXYZabcxyz0189-._~";
    assert_int_equal(percent_encode(plain, strlen(plain), false, &out, &err), 0);
    assert_string_equal(out.data, plain);
    buf_clear(&out);
    static const char odd[] = "a b/c+d%\xc3\xa9*!'()\n";
    assert_int_equal(percent_encode(odd, strlen(odd), false, &out, &err), 0);
    assert_string_equal(out.data, "a%20b%2Fc%2Bd%25%C3%A9%2A%21%27%28%29%0A");
    buf_clear(&out);
    assert_int_equal(percent_encode(odd, strlen(odd), true, &out, &err), 0);
    assert_string_equal(out.data, "a%20b/c%2Bd%25%C3%A9%2A%21%27%28%29%0A");
    buf_clear(&out);
    assert_int_equal(percent_encode("\0", 1, true, &out, &err), 0);
    assert_string_equal(out.data, "%00");
}

static void
test_percent_decode(void **state)
{
    (void)state;
    static const char *const bad[] = { "%",   "%4",    "a%4",  "%zz", "%0",
                                       "%00", "a%00b", "%%41", "%-1", "% 1" };
    struct err err = ERR_INIT;
    scope_buf out;
    buf_init(&out, 1000);
    static const char text[] = "a%20b%2fc%2F+%C3%a9";
    assert_int_equal(percent_decode(text, strlen(text), &out, &err), 0);
    assert_string_equal(out.data, "a b/c/+\xc3\xa9");
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        err.code = ERR_INTERNAL;
        assert_int_equal(percent_decode(bad[i], strlen(bad[i]), &out, &err), -1);
        assert_int_equal(err.code, ERR_INVAL);
        assert_string_equal(out.data, "a b/c/+\xc3\xa9");
    }
}

/* What does not fit is refused whole. */
static void
test_encoders_keep_the_maximum(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    scope_buf out;
    buf_init(&out, 5);
    assert_int_equal(percent_encode("  ", 2, false, &out, &err), -1);
    assert_int_equal(err.code, ERR_TOO_LARGE);
    assert_int_equal(percent_decode("123456", 6, &out, &err), -1);
    assert_int_equal(base64_encode("foob", 4, &out, &err), -1);
    assert_int_equal(base64_decode("Zm9vYmFy", 8, &out, &err), -1);
    assert_int_equal(printable_append("ab\n", 3, &out, &err), -1);
    assert_int_equal(err.code, ERR_TOO_LARGE);
    assert_string_equal(buf_cstr(&out), "");
    assert_int_equal(percent_encode("% ", 1, false, &out, &err), 0);
    assert_int_equal(percent_encode("ab", 2, false, &out, &err), 0);
    assert_string_equal(buf_cstr(&out), "%25ab");
}

static void
test_utf8(void **state)
{
    (void)state;
    static const char *const good[] = { "",
                                        "ascii",
                                        "\x7f",
                                        "\xc2\x80",
                                        "\xce\xba\xe1\xbd\xb9\xcf\x83",
                                        "\xdf\xbf",
                                        "\xe0\xa0\x80",
                                        "\xed\x9f\xbf",
                                        "\xee\x80\x80",
                                        "\xef\xbf\xbf",
                                        "\xf0\x90\x80\x80",
                                        "\xf4\x8f\xbf\xbf" };
    /* After Markus Kuhn's decoder stress test: stray and missing continuations, overlong forms,
     * surrogates, too big. */
    static const char *const bad[] = { "\x80",
                                       "\xbf",
                                       "\xc2",
                                       "\xc2\x20",
                                       "\xe1\x80",
                                       "\xf1\x80\x80",
                                       "\xc0\x80",
                                       "\xc1\xbf",
                                       "\xe0\x80\x80",
                                       "\xe0\x9f\xbf",
                                       "\xf0\x80\x80\x80",
                                       "\xf0\x8f\xbf\xbf",
                                       "\xed\xa0\x80",
                                       "\xed\xbf\xbf",
                                       "\xf4\x90\x80\x80",
                                       "\xf5\x80\x80\x80",
                                       "\xf8\x88\x80\x80\x80",
                                       "\xfe",
                                       "\xff",
                                       "ok\xff",
                                       "\xf1\x80\x80\x41",
                                       "\xe1\x80\x41" };
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        assert_true(utf8_valid(good[i], strlen(good[i])));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(utf8_valid(bad[i], strlen(bad[i])));
    assert_true(utf8_valid("a\0b", 3));
    assert_int_equal(utf8_next("\xe1\x80\x80z", 4), 3);
    assert_int_equal(utf8_next("", 0), 0);
}

static void
test_printable(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    scope_buf out;
    buf_init(&out, 1000);
    static const char text[] = "caf\xc3\xa9 \\ \n\r\x1b\x00\x7f\xff\xc2\x85\xc2\xa0";
    assert_int_equal(printable_append(text, sizeof(text) - 1, &out, &err), 0);
    assert_string_equal(out.data,
                        "caf\xc3\xa9 \\x5c \\x0a\\x0d\\x1b\\x00\\x7f\\xff\\xc2\\x85\xc2\xa0");
}

static void
test_escape(void **state)
{
    (void)state;
    char out[12];
    assert_int_equal(text_escape("a\\\nb", 4, out, sizeof(out)), 7);
    assert_string_equal(out, "a\\\\x0ab");
    /* cut before the character that does not fit whole */
    assert_int_equal(text_escape("12345678\nx", 10, out, sizeof(out)), 8);
    assert_string_equal(out, "12345678");
    assert_int_equal(text_escape("1234567890\xc3\xa9", 12, out, sizeof(out)), 10);
    assert_string_equal(out, "1234567890");
    assert_int_equal(text_escape("12345678901", 11, out, sizeof(out)), 11);
    assert_int_equal(text_escape("x", 1, out, 1), 0);
    assert_string_equal(out, "");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_u64),
        cmocka_unit_test(test_i64),
        cmocka_unit_test(test_hex_and_octal),
        cmocka_unit_test(test_bool),
        cmocka_unit_test(test_size),
        cmocka_unit_test(test_duration),
        cmocka_unit_test(test_decimal_seconds),
        cmocka_unit_test(test_checked),
        cmocka_unit_test(test_hex),
        cmocka_unit_test(test_base64),
        cmocka_unit_test(test_base64_refuses),
        cmocka_unit_test(test_percent),
        cmocka_unit_test(test_percent_decode),
        cmocka_unit_test(test_encoders_keep_the_maximum),
        cmocka_unit_test(test_utf8),
        cmocka_unit_test(test_printable),
        cmocka_unit_test(test_escape),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
