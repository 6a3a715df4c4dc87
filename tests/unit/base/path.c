#include "base/path.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

static int
check_name(const char *name, enum err_code *code)
{
    struct err err = ERR_INIT;
    int rc = path_check_name(name, strlen(name), &err);
    *code = err.code;
    return rc;
}

/* INV-12: names from outside are checked at the edge. */
static void
test_inv12_names(void **state)
{
    (void)state;
    static const char *const good[] = { "a",        "...", ".a", "..a", "a b",
                                        "\xff\xfe", "\n",  "-",  "\\",  "a:b" };
    static const char *const bad[] = { "", ".", "..", "/", "a/b", "/a", "a/" };
    enum err_code code;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        assert_int_equal(check_name(good[i], &code), 0);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(check_name(bad[i], &code), -1);
        assert_int_equal(code, ERR_BAD_NAME);
    }
    struct err err = ERR_INIT;
    assert_int_equal(path_check_name("a\0b", 3, &err), -1);
    assert_int_equal(err.code, ERR_BAD_NAME);
}

static void
test_inv12_name_length(void **state)
{
    (void)state;
    char name[257];
    memset(name, 'n', sizeof(name));
    struct err err = ERR_INIT;
    assert_int_equal(path_check_name(name, 255, &err), 0);
    assert_int_equal(path_check_name(name, 256, &err), -1);
    assert_int_equal(err.code, ERR_NAME_TOO_LONG);
}

static int
check_path(const char *path, enum err_code *code)
{
    struct err err = ERR_INIT;
    int rc = path_check(path, strlen(path), &err);
    *code = err.code;
    return rc;
}

static void
test_inv12_paths(void **state)
{
    (void)state;
    static const char *const good[] = { "", "a", "a/b", "a/.../b", "a b/\xff/c" };
    static const char *const bad[] = { "/",      "/a",  "a/",  "a//b", ".",   "..",
                                       "a/../b", "a/.", "./a", "../a", "a/.." };
    enum err_code code;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        assert_int_equal(check_path(good[i], &code), 0);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(check_path(bad[i], &code), -1);
        assert_int_equal(code, ERR_BAD_NAME);
    }
    struct err err = ERR_INIT;
    assert_int_equal(path_check("a\0b", 3, &err), -1);
    assert_int_equal(err.code, ERR_BAD_NAME);
}

/* Fills `path` with `depth` components of `size` bytes each and answers the length. */
static size_t
fill(char *path, size_t depth, size_t size)
{
    size_t len = 0;
    for (size_t i = 0; i < depth; i++) {
        if (i > 0)
            path[len++] = '/';
        memset(path + len, 'x', size);
        len += size;
    }
    path[len] = '\0';
    return len;
}

static void
test_inv12_path_limits(void **state)
{
    (void)state;
    char path[2000];
    struct err err = ERR_INIT;
    assert_int_equal(path_check(path, fill(path, 256, 1), &err), 0);
    assert_int_equal(path_check(path, fill(path, 257, 1), &err), -1);
    assert_int_equal(err.code, ERR_NAME_TOO_LONG);
    assert_int_equal(fill(path, 4, 255), 1023);
    path[1023] = '/';
    path[1024] = 'y';
    assert_int_equal(path_check(path, 1023, &err), 0);
    err.code = ERR_INTERNAL;
    assert_int_equal(path_check(path, 1025, &err), -1);
    assert_int_equal(err.code, ERR_NAME_TOO_LONG);
    memset(path, 'x', 256);
    assert_int_equal(path_check(path, 256, &err), -1);
    assert_int_equal(err.code, ERR_NAME_TOO_LONG);
}

static void
test_normalize(void **state)
{
    (void)state;
    static const char *const pairs[][2] = { { "", "" },        { "/", "" },         { "a", "a" },
                                            { "/a/b", "a/b" }, { "a/b///", "a/b" }, { "/a/", "a" } };
    static const char *const bad[] = { "//a", "a//b", ".", "./a", "/..", "a/../b", "a/./b" };
    char out[LIMIT_PATH + 1];
    struct err err = ERR_INIT;
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        int len = path_normalize(pairs[i][0], strlen(pairs[i][0]), out, sizeof(out), &err);
        assert_int_equal(len, strlen(pairs[i][1]));
        assert_string_equal(out, pairs[i][1]);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(path_normalize(bad[i], strlen(bad[i]), out, sizeof(out), &err), -1);
        assert_int_equal(err.code, ERR_BAD_NAME);
    }
    assert_int_equal(path_normalize("abc", 3, out, 3, &err), -1);
    assert_int_equal(err.code, ERR_NAME_TOO_LONG);
}

static void
test_next(void **state)
{
    (void)state;
    const char *rest = "ab/c/def";
    size_t rest_len = strlen(rest);
    const char *name;
    size_t len;
    static const char *const want[] = { "ab", "c", "def" };
    for (size_t i = 0; i < 3; i++) {
        assert_true(path_next(&rest, &rest_len, &name, &len));
        assert_int_equal(len, strlen(want[i]));
        assert_memory_equal(name, want[i], len);
    }
    assert_false(path_next(&rest, &rest_len, &name, &len));
    assert_int_equal(rest_len, 0);
}

static void
test_volume(void **state)
{
    (void)state;
    static const char *const good[] = {
        "a", "0", "a-b_c.d", "project-1",
        "a23456789012345678901234567890123456789012345678901234567890123"
    };
    static const char *const bad[] = { "",    "A",   "-a",       ".a", "_a", "a/b",
                                       "a b", "a\n", "\xc3\xa9", "..", "a%" };
    struct err err = ERR_INIT;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        assert_int_equal(path_check_volume(good[i], &err), 0);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(path_check_volume(bad[i], &err), -1);
        assert_int_equal(err.code, ERR_BAD_NAME);
    }
    static const char long_name[] =
        "a234567890123456789012345678901234567890123456789012345678901234";
    assert_int_equal(path_check_volume(long_name, &err), -1);
    assert_int_equal(err.code, ERR_NAME_TOO_LONG);
}

static void
test_within(void **state)
{
    (void)state;
    assert_true(path_within("", ""));
    assert_true(path_within("a/b", ""));
    assert_true(path_within("a", "a"));
    assert_true(path_within("a/b", "a"));
    assert_true(path_within("a/b/c", "a/b"));
    assert_false(path_within("ab", "a"));
    assert_false(path_within("a", "a/b"));
    assert_false(path_within("", "a"));
    assert_false(path_within("b/a", "a"));
    assert_false(path_within("a-b/c", "a"));
}

/* An error names the subject in a form that is safe to print. */
static void
test_messages(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    assert_int_equal(path_check("a/\x1b/..", 6, &err), -1);
    assert_string_equal(err.msg, "path 'a/\\x1b/..': '..' is not a name");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_inv12_names), cmocka_unit_test(test_inv12_name_length),
        cmocka_unit_test(test_inv12_paths), cmocka_unit_test(test_inv12_path_limits),
        cmocka_unit_test(test_normalize),   cmocka_unit_test(test_next),
        cmocka_unit_test(test_volume),      cmocka_unit_test(test_within),
        cmocka_unit_test(test_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
