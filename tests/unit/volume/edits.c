#include "volume/edits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#define EDIT(from, to)                                                               \
    {                                                                                \
        .old = (from), .old_len = strlen(from), .text = (to), .text_len = strlen(to) \
    }

static struct edits_result result;
static struct err err;

static int
apply(const char *text, const struct edit *edits, size_t count, char *out, size_t size)
{
    scope_buf from;
    scope_buf to;
    struct err setup = ERR_INIT;
    buf_init(&from, 1u << 20);
    buf_init(&to, 1u << 20);
    err = (struct err)ERR_INIT;
    assert_int_equal(buf_append_str(&from, text, &setup), 0);
    int rc = edits_apply(&from, edits, count, &to, &result, &err);
    assert_true(rc == 0 || to.len == 0);
    (void)snprintf(out, size, "%s", buf_cstr(&to));
    return rc;
}

static void
becomes(const char *text, const struct edit *edits, size_t count, const char *wanted)
{
    char out[4096];
    if (apply(text, edits, count, out, sizeof(out)) != 0)
        fail_msg("%s", err.msg);
    assert_string_equal(out, wanted);
}

static void
refused(const char *text, const struct edit *edits, size_t count, enum edits_reason reason,
        const char *says)
{
    char out[4096];
    assert_int_equal(apply(text, edits, count, out, sizeof(out)), -1);
    assert_int_equal(result.reason, reason);
    if (strstr(err.msg, says) == NULL)
        fail_msg("'%s' does not say '%s'", err.msg, says);
}

static void
replaces_what_is_there_once(void **state)
{
    (void)state;
    becomes("a b c\n", &(struct edit)EDIT("b", "B"), 1, "a B c\n");
    assert_int_equal(result.replacements, 1);
    becomes("one\ntwo\nthree", &(struct edit)EDIT("two\nthree", ""), 1, "one\n");
    assert_int_equal(result.first_line, 2);
    /* All are found in the text as it was, in whatever order they are given. */
    struct edit both[] = { EDIT("b", "a"), EDIT("a", "b") };
    becomes("a b", both, 2, "b a");
    struct edit every = EDIT("x", "yx");
    every.all = true;
    becomes("x.x.x", &every, 1, "yx.yx.yx");
    assert_int_equal(result.replacements, 3);
}

static void
keeps_endings_and_mark(void **state)
{
    (void)state;
    becomes("a\r\nb\r\nc\r\n", &(struct edit)EDIT("a\nb\n", "x\ny\nz\n"), 1,
            "x\r\ny\r\nz\r\nc\r\n");
    becomes("a\r\nb\r\n", &(struct edit)EDIT("b", "b\nc"), 1, "a\r\nb\r\nc\r\n");
    becomes("a\nb\n", &(struct edit)EDIT("a\r\nb", "x\r\ny"), 1, "x\ny\n");
    /* In a file that has both, what matches as it is stays as it is. */
    becomes("a\r\nb\nc\n", &(struct edit)EDIT("b\nc", "b\nd"), 1, "a\r\nb\nd\n");
    struct edit start = { .text = "first\n", .text_len = 6, .at = EDIT_START };
    struct edit end = { .text = "last\n", .text_len = 5, .at = EDIT_END };
    becomes("\xef\xbb\xbfx\n", &start, 1,
            "\xef\xbb\xbf"
            "first\nx\n");
    becomes("x\r\n", &end, 1, "x\r\nlast\r\n");
    becomes("", &end, 1, "last\n");
    struct edit both[] = { EDIT("x", "y"), start };
    becomes("x", both, 2, "first\ny");
}

static void
says_what_is_wrong(void **state)
{
    (void)state;
    refused("a\nb\nab\n", &(struct edit)EDIT("b", "c"), 1, EDITS_AMBIGUOUS,
            "2 times, at lines 2, 3");
    assert_int_equal(result.found, 2);
    assert_int_equal(result.lines[0], 2);
    refused("aaa", &(struct edit)EDIT("aa", "b"), 1, EDITS_AMBIGUOUS, "2 times");
    refused("abc", &(struct edit)EDIT("x", "y"), 1, EDITS_NOT_FOUND, "edit 1");
    refused("x\nint main(void)\n", &(struct edit)EDIT("  int main(void)\n  {", "y"), 1,
            EDITS_NOT_FOUND, "line 2");
    struct edit cross[] = { EDIT("abc", "x"), EDIT("cde", "y") };
    refused("abcde", cross, 2, EDITS_OVERLAP, "1 and 2");
    refused("abc", &(struct edit)EDIT("b", "b"), 1, EDITS_SAME, "same");
    /* One that fails leaves the others undone. */
    struct edit second[] = { EDIT("a", "x"), EDIT("no", "y") };
    refused("abc", second, 2, EDITS_NOT_FOUND, "edit 2");
    refused("abc", NULL, 0, EDITS_OK, "1 to");
    refused("abc", &(struct edit){ .old = "", .text = "x", .text_len = 1 }, 1, EDITS_OK, "empty");
    scope_buf binary;
    scope_buf to;
    struct err setup = ERR_INIT;
    buf_init(&binary, 16);
    buf_init(&to, 16);
    assert_int_equal(buf_append(&binary, "a\0b", 3, &setup), 0);
    assert_int_equal(edits_apply(&binary, &(struct edit)EDIT("a", "b"), 1, &to, &result, &err), -1);
    assert_int_equal(result.reason, EDITS_BINARY);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replaces_what_is_there_once),
        cmocka_unit_test(keeps_endings_and_mark),
        cmocka_unit_test(says_what_is_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
