#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "s3/http_store_put_impl.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define MIB (1ull << 20)
#define GIB (1ull << 30)

/* docs/mechanisms.md section 1: one conditional PUT, unless the completion was proven to judge the very condition. */
static void
when_in_parts(void **state)
{
    (void)state;
    const struct {
        enum store_yes_no multipart, absent, match;
        enum store_cond_kind cond;
        uint64_t size;
        bool want;
    } rows[] = {
        { STORE_YES, STORE_YES, STORE_YES, STORE_COND_MATCH, 64 * MIB, false },
        { STORE_YES, STORE_YES, STORE_YES, STORE_COND_MATCH, 64 * MIB + 1, true },
        { STORE_YES, STORE_YES, STORE_NO, STORE_COND_MATCH, GIB, false },
        { STORE_YES, STORE_YES, STORE_NO, STORE_COND_ABSENT, GIB, true },
        { STORE_YES, STORE_NOT_PROBED, STORE_YES, STORE_COND_ABSENT, GIB, false },
        { STORE_YES, STORE_NO, STORE_NO, STORE_COND_NONE, GIB, true },
        { STORE_NOT_PROBED, STORE_NO, STORE_NO, STORE_COND_NONE, GIB, false },
        { STORE_NO, STORE_YES, STORE_YES, STORE_COND_MATCH, GIB, false },
        /* One PUT would not take it. */
        { STORE_YES, STORE_NO, STORE_NO, STORE_COND_MATCH, 5 * GIB, false },
        { STORE_YES, STORE_NO, STORE_NO, STORE_COND_MATCH, 5 * GIB + 1, true },
        { STORE_NOT_PROBED, STORE_NO, STORE_NO, STORE_COND_ABSENT, 5 * GIB + 1, true },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        const struct store_caps caps = { .multipart = rows[i].multipart,
                                         .complete_if_absent = rows[i].absent,
                                         .complete_if_match = rows[i].match,
                                         .max_put_bytes = 5 * GIB };
        assert_int_equal(http_store_put_wants_parts(&caps, rows[i].cond, rows[i].size),
                         rows[i].want);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(when_in_parts) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
