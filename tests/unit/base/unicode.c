#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/unicode.h"

/* Rows of NormalizationTest.txt of the Unicode Character Database (columns 1 and 2), as UTF-8. */
static const struct {
    const char *source, *composed;
} rows[] = {
    { "u\xcc\x88", "\xc3\xbc" },                        /* 0075 0308 → 00FC */
    { "\xe1\xb8\x8a\xcc\xa3", "\xe1\xb8\x8c\xcc\x87" }, /* 1E0A 0323 → 1E0C 0307 */
    { "D\xcc\x87\xcc\xa3", "\xe1\xb8\x8c\xcc\x87" },    /* 0044 0307 0323 → 1E0C 0307 */
    { "\xe2\x84\xab", "\xc3\x85" },                     /* 212B → 00C5, a singleton */
    { "\xe1\x84\x80\xe1\x85\xa1", "\xea\xb0\x80" },     /* 1100 1161 → AC00, Hangul */
    { "\xef\xa4\x80", "\xe8\xb1\x88" },                 /* F900 → 8C48 */
    { "\xe0\xa5\x98",
      "\xe0\xa4\x95\xe0\xa4\xbc" }, /* 0958 → 0915 093C, excluded from composition */
};

static void
what_is_not_composed_becomes_so(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char *out = NULL;
        assert_int_equal(unicode_compose(rows[i].source, strlen(rows[i].source), &out, &err), 0);
        assert_non_null(out);
        assert_string_equal(out, rows[i].composed);
        free(out);
    }
}

static void
what_is_composed_stays(void **state)
{
    static const char *const names[] = {
        "",
        "plain",
        "\xc3\xbc",
        "\xe4\xb8\xad\xe6\x96\x87",
        "\xf0\x9f\x98\x80",
        "\xff\xfe",
        "a\xc3",
        "\xe1\xb8\x8c\xcc\x87", /* composed as far as it goes */
    };
    (void)state;
    struct err err = ERR_INIT;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char *out = NULL;
        assert_int_equal(unicode_compose(names[i], strlen(names[i]), &out, &err), 0);
        assert_null(out);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_not_composed_becomes_so),
        cmocka_unit_test(what_is_composed_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
