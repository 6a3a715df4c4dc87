#include "base/buf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

/* A request for more than there can be is an error here, not the end of the program. */
/* NOLINTBEGIN(readability-identifier-naming): the sanitizers look for these names */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
/* NOLINTEND(readability-identifier-naming) */

const char *
__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}

const char *
__tsan_default_options(void)
{
    return "allocator_may_return_null=1";
}

static void
test_append(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    scope_buf buf;
    buf_init(&buf, 1000);
    assert_null(buf.data);
    assert_string_equal(buf_cstr(&buf), "");
    assert_int_equal(buf_append(&buf, "ab", 2, &err), 0);
    assert_int_equal(buf_append_str(&buf, "cd", &err), 0);
    assert_int_equal(buf_appendf(&buf, &err, "%d-%s", 42, "x"), 0);
    assert_int_equal(buf_append(&buf, NULL, 0, &err), 0);
    assert_string_equal(buf_cstr(&buf), "abcd42-x");
    assert_int_equal(buf.len, 8);
    assert_int_equal(buf.data[buf.len], '\0');
    buf_truncate(&buf, 3);
    assert_string_equal(buf.data, "abc");
    buf_clear(&buf);
    assert_int_equal(buf.len, 0);
    assert_string_equal(buf.data, "");
}

static void
test_bytes_with_nul(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    scope_buf buf;
    buf_init(&buf, 10);
    assert_int_equal(buf_append(&buf, "a\0b", 3, &err), 0);
    assert_int_equal(buf.len, 3);
    assert_memory_equal(buf.data, "a\0b", 4);
}

static void
test_maximum(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    scope_buf buf;
    buf_init(&buf, 5);
    assert_int_equal(buf_append_str(&buf, "12345", &err), 0);
    assert_int_equal(buf_append(&buf, "", 0, &err), 0);
    assert_int_equal(buf_append_str(&buf, "6", &err), -1);
    assert_int_equal(err.code, ERR_TOO_LARGE);
    assert_string_equal(buf.data, "12345");
    assert_int_equal(buf_appendf(&buf, &err, "%d", 6), -1);
    assert_null(buf_reserve(&buf, SIZE_MAX, &err));
    assert_int_equal(buf.len, 5);
    assert_true(buf.cap <= 6);

    scope_buf none;
    buf_init(&none, 0);
    assert_int_equal(buf_append_str(&none, "", &err), 0);
    assert_int_equal(buf_append_str(&none, "x", &err), -1);
    assert_string_equal(buf_cstr(&none), "");
}

static void
test_no_maximum(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    scope_buf buf;
    buf_init(&buf, SIZE_MAX);
    assert_int_equal(buf_append_str(&buf, "x", &err), 0);
    /* more than any machine has: an error, not an overflow */
    assert_null(buf_reserve(&buf, SIZE_MAX - 8, &err));
    assert_string_equal(buf.data, "x");
}

static void
test_growth(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    scope_buf buf;
    buf_init(&buf, 100000);
    unsigned moves = 0;
    for (unsigned i = 0; i < 100000; i++) {
        size_t cap = buf.cap;
        char byte = (char)('a' + i % 26);
        assert_int_equal(buf_append(&buf, &byte, 1, &err), 0);
        moves += buf.cap != cap;
        assert_true(buf.cap <= 100001);
    }
    assert_true(moves < 20);
    for (unsigned i = 0; i < 100000; i++)
        assert_int_equal(buf.data[i], 'a' + i % 26);
}

static void
test_reserve_and_commit(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    scope_buf buf;
    buf_init(&buf, 100);
    char *to = buf_reserve(&buf, 100, &err);
    assert_non_null(to);
    memset(to, 'z', 100);
    assert_int_equal(buf.len, 0);
    buf_commit(&buf, 3);
    assert_string_equal(buf.data, "zzz");
    to = buf_reserve(&buf, 97, &err); /* what was not committed is gone */
    assert_ptr_equal(to, buf.data + 3);
    memset(to, 'y', 97);
    buf_commit(&buf, 97);
    assert_int_equal(strlen(buf.data), 100);
}

static void
test_steal(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    scope_buf buf;
    buf_init(&buf, 100);
    char *empty = buf_steal(&buf);
    assert_string_equal(empty, "");
    free(empty);
    assert_int_equal(buf_append_str(&buf, "text", &err), 0);
    char *text = buf_steal(&buf);
    assert_string_equal(text, "text");
    assert_null(buf.data);
    assert_int_equal(buf.max, 100);
    assert_int_equal(buf_append_str(&buf, "more", &err), 0);
    assert_string_equal(text, "text");
    free(text);
    buf_release(&buf);
    buf_release(&buf);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_append),  cmocka_unit_test(test_bytes_with_nul),
        cmocka_unit_test(test_maximum), cmocka_unit_test(test_no_maximum),
        cmocka_unit_test(test_growth),  cmocka_unit_test(test_reserve_and_commit),
        cmocka_unit_test(test_steal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
