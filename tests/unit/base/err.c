#include "base/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <string.h>

static void
test_set(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    err.sys = 5;
    assert_int_equal(err_set(&err, ERR_NOT_FOUND, "no file '%s'", "a/b"), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_int_equal(err.sys, 0);
    assert_string_equal(err.msg, "no file 'a/b'");
}

static void
test_set_from_own_text(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    err_set(&err, ERR_IO, "disk");
    err_set(&err, ERR_CORRUPT, "%s is bad: %s", err.msg, err.msg);
    assert_string_equal(err.msg, "disk is bad: disk");
}

static void
test_control_characters_are_escaped(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    err_set(&err, ERR_INVAL, "'%s'",
            "a\nb\x1b[31m\x7f\t\xff"
            "\xc2\x9b"
            "\xc3\xa9");
    assert_string_equal(err.msg, "'a\\x0ab\\x1b[31m\\x7f\\x09\\xff\\xc2\\x9b\xc3\xa9'");
    /* wrapping does not escape what is escaped */
    err_wrap(&err, "line %d", 1);
    assert_string_equal(err.msg, "line 1: 'a\\x0ab\\x1b[31m\\x7f\\x09\\xff\\xc2\\x9b\xc3\xa9'");
}

static void
test_wrap(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    err_sys(&err, ENOSPC, "write");
    assert_int_equal(err_wrap(&err, "put '%s'", "x"), -1);
    assert_int_equal(err.code, ERR_NO_SPACE);
    assert_int_equal(err.sys, ENOSPC);
    assert_string_equal(err.msg, "put 'x': write: No space left on device");
}

static void
test_long_texts_are_cut(void **state)
{
    (void)state;
    char text[2 * LIMIT_ERR_MSG];
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    struct err err = ERR_INIT;
    err_set(&err, ERR_INVAL, "%s", text);
    assert_int_equal(strlen(err.msg), LIMIT_ERR_MSG - 1);
    err_wrap(&err, "context");
    assert_int_equal(strlen(err.msg), LIMIT_ERR_MSG - 1);
    assert_memory_equal(err.msg, "context: xxx", 12);
    err_wrap(&err, "%s", text);
    assert_int_equal(strlen(err.msg), LIMIT_ERR_MSG - 1);
}

static void
test_errno_chooses_code(void **state)
{
    (void)state;
    static const struct {
        int sys;
        enum err_code code;
    } cases[] = {
        { ENOSPC, ERR_NO_SPACE }, { EDQUOT, ERR_QUOTA },        { ENOMEM, ERR_NOMEM },
        { EMFILE, ERR_FILES },    { ENFILE, ERR_FILES },        { EACCES, ERR_DENIED },
        { EROFS, ERR_READ_ONLY }, { ENOENT, ERR_NOT_FOUND },    { EEXIST, ERR_EXISTS },
        { ENOTDIR, ERR_NOT_DIR }, { EISDIR, ERR_IS_DIR },       { EIO, ERR_IO },
        { EINVAL, ERR_IO },       { ENOTEMPTY, ERR_NOT_EMPTY }, { EXDEV, ERR_CROSS_DEVICE },
        { 12345, ERR_IO },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct err err = ERR_INIT;
        assert_int_equal(err_sys(&err, cases[i].sys, "it"), -1);
        assert_int_equal(err.code, cases[i].code);
        assert_int_equal(err.sys, cases[i].sys);
    }
    struct err err = ERR_INIT;
    err_sys(&err, 12345, "it");
    assert_string_equal(err.msg, "it: error 12345");
    err_nomem(&err);
    assert_int_equal(err.code, ERR_NOMEM);
    assert_string_equal(err.msg, "out of memory");
}

/* The exit and HTTP statuses that the manual promises. */
static void
test_table(void **state)
{
    (void)state;
    static const struct {
        enum err_code code;
        int sys, http, exit;
        bool retryable;
    } cases[] = {
        { ERR_USAGE, EINVAL, 400, 2, false },           { ERR_CONFLICT, ESTALE, 412, 3, false },
        { ERR_NOT_FOUND, ENOENT, 404, 4, false },       { ERR_DENIED, EACCES, 403, 5, false },
        { ERR_STORE_AWAY, EIO, 503, 6, true },          { ERR_NOT_SYNCED, EIO, 503, 7, true },
        { ERR_NO_SPACE, ENOSPC, 507, 8, false },        { ERR_QUOTA, EDQUOT, 507, 8, false },
        { ERR_UNAUTHENTICATED, EACCES, 401, 5, false }, { ERR_LEASED, EROFS, 423, 1, false },
        { ERR_PRECONDITION, EINVAL, 428, 1, false },    { ERR_RATE, EAGAIN, 429, 6, true },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(err_errno(cases[i].code), cases[i].sys);
        assert_int_equal(err_http(cases[i].code), cases[i].http);
        assert_int_equal(err_exit(cases[i].code), cases[i].exit);
        assert_int_equal(err_retryable(cases[i].code), cases[i].retryable);
    }
}

static void
test_every_row_is_sane(void **state)
{
    (void)state;
    for (int i = 0; i < ERR_CODE_COUNT; i++) {
        enum err_code code = (enum err_code)i;
        assert_true(err_errno(code) > 0);
        assert_in_range((uintmax_t)err_http(code), 400, 599);
        assert_in_range((uintmax_t)err_exit(code), 1, 8);
        assert_int_equal(err_from_slug(err_slug(code)), code); /* so slugs are unique */
        assert_int_equal(strspn(err_slug(code), "abcdefghijklmnopqrstuvwxyz-"),
                         strlen(err_slug(code)));
    }
    assert_int_equal(err_http(ERR_CODE_COUNT), 500);
    assert_int_equal(err_errno((enum err_code) - 1), EIO);
    assert_int_equal(err_from_slug("no such slug"), ERR_INTERNAL);
    assert_int_equal(err_from_slug(NULL), ERR_INTERNAL);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_set),
        cmocka_unit_test(test_set_from_own_text),
        cmocka_unit_test(test_control_characters_are_escaped),
        cmocka_unit_test(test_wrap),
        cmocka_unit_test(test_long_texts_are_cut),
        cmocka_unit_test(test_errno_chooses_code),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_every_row_is_sane),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
