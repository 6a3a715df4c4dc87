#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/scope.h"
#include "s3/rfc2047.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* The first rows are from RFC 2047 section 8, the rest was made with Python's email.header. */
static void
decode(void **state)
{
    (void)state;
    const struct {
        const char *text, *want;
    } rows[] = {
        { "(=?US-ASCII?Q?a?=)", "(a)" },
        { "(=?utf-8?Q?a?= b)", "(a b)" },
        { "(=?UTF-8?Q?a?= =?UTF-8?Q?b?=)", "(ab)" },
        { "(=?UTF-8?Q?a?=  =?UTF-8?Q?b?=)", "(ab)" },
        { "(=?UTF-8?Q?a_b?=)", "(a b)" },
        { "(=?UTF-8?Q?a?= =?UTF-8?Q?_b?=)", "(a b)" },
        { "=?UTF-8?B?R3LDvMOfZQ==?=", "Gr\xc3\xbc\xc3\x9f"
                                      "e" },
        { "=?utf-8?q?Gr=C3=BC=C3=9Fe?=", "Gr\xc3\xbc\xc3\x9f"
                                         "e" },
        { "plain = text ?=", "plain = text ?=" },
        { "=?ISO-8859-1?Q?a?=", "=?ISO-8859-1?Q?a?=" },
        { "=?UTF-8?B?unfinished", "=?UTF-8?B?unfinished" },
        { "", "" },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct err err = ERR_INIT;
        scope_buf out;
        buf_init(&out, 4096);
        assert_int_equal(rfc2047_decode(rows[i].text, &out, &err), 0);
        assert_string_equal(buf_cstr(&out), rows[i].want);
    }
}

static void
refuse(void **state)
{
    (void)state;
    const char *rows[] = { "=?UTF-8?Q?=00?=", "=?UTF-8?Q?=0D=0A?=", "=?UTF-8?Q?=zz?=",
                           "=?UTF-8?B?!!!!?=", "=?UTF-8?Q?=4?=" };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct err err = ERR_INIT;
        scope_buf out;
        buf_init(&out, 4096);
        assert_int_equal(rfc2047_decode(rows[i], &out, &err), -1);
    }
}

static void
encode(void **state)
{
    (void)state;
    const struct {
        const char *text, *want;
    } rows[] = {
        { "", "" },
        { "plain 1700000000.5", "plain 1700000000.5" },
        { "Gr\xc3\xbc\xc3\x9f"
          "e",
          "=?UTF-8?B?R3LDvMOfZQ==?=" },
        { " a", "=?UTF-8?B?IGE=?=" },
        { "=?x", "=?UTF-8?B?PT94?=" },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct err err = ERR_INIT;
        scope_buf out;
        buf_init(&out, 4096);
        assert_int_equal(rfc2047_encode(rows[i].text, &out, &err), 0);
        assert_string_equal(buf_cstr(&out), rows[i].want);
    }
}

static void
long_values_are_split_between_characters(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    char value[301] = "";
    for (size_t i = 0; i + 3 <= 300; i += 3)
        memcpy(value + i, (const char[]){ '\xe2', '\x82', '\xac' }, 3);
    scope_buf out;
    scope_buf back;
    buf_init(&out, 4096);
    buf_init(&back, 4096);
    assert_int_equal(rfc2047_encode(value, &out, &err), 0);
    for (const char *p = buf_cstr(&out); *p;) {
        size_t len = strcspn(p, " ");
        assert_true(len <= 75);
        p += len + (p[len] == ' ');
    }
    assert_int_equal(rfc2047_decode(buf_cstr(&out), &back, &err), 0);
    assert_string_equal(buf_cstr(&back), value);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decode),
        cmocka_unit_test(refuse),
        cmocka_unit_test(encode),
        cmocka_unit_test(long_values_are_split_between_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
