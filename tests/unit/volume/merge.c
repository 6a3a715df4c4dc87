#include "volume/merge.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/tmp.h"

/* Line by line: against `diff -u` and `merge`'s rules as `git merge-file` and diff3(1) have them. */

static struct err err = ERR_INIT;

static char *
merged(const char *base, const char *mine, const char *theirs, bool *clean)
{
    struct buf out;
    struct merge_text a = { "base", base, strlen(base) }, b = { "mine", mine, strlen(mine) },
                      c = { "theirs", theirs, strlen(theirs) };
    buf_init(&out, 1u << 20);
    if (merge_three(&a, &b, &c, &out, clean, &err) != 0)
        fail_msg("%s", err.msg);
    char *text = buf_steal(&out);
    assert_non_null(text);
    return text;
}

static void
assert_merged(const char *base, const char *mine, const char *theirs, const char *wanted)
{
    bool clean = false;
    char *text = merged(base, mine, theirs, &clean);
    assert_true(clean);
    assert_string_equal(text, wanted);
    free(text);
}

static void
changes_of_different_lines_are_put_together(void **state)
{
    (void)state;
    assert_merged("1\n2\n3\n4\n5\n", "one\n2\n3\n4\n5\n", "1\n2\n3\n4\nfive\n",
                  "one\n2\n3\n4\nfive\n");
    assert_merged("1\n2\n3\n4\n5\n", "0\n1\n2\n3\n4\n5\n", "1\n2\n4\n5\n", "0\n1\n2\n4\n5\n");
}

static void
one_side_alone_wins(void **state)
{
    (void)state;
    assert_merged("a\nb\n", "a\nb\n", "a\nc\n", "a\nc\n");
    assert_merged("a\nb\n", "a\nc\n", "a\nb\n", "a\nc\n");
    assert_merged("a\nb\n", "a\nc\n", "a\nc\n", "a\nc\n");
    assert_merged("a\n", "", "a\n", "");
}

static void
a_last_line_without_an_end_stays_so(void **state)
{
    (void)state;
    assert_merged("a\nb\nc\nd\ne", "A\nb\nc\nd\ne", "a\nb\nc\nd\ne", "A\nb\nc\nd\ne");
    assert_merged("a\r\nb\r\nc\r\nd\r\n", "A\r\nb\r\nc\r\nd\r\n", "a\r\nb\r\nc\r\nD\r\n",
                  "A\r\nb\r\nc\r\nD\r\n");
}

static void
bytes_that_are_no_utf8_are_kept(void **state)
{
    (void)state;
    assert_merged("\xff\nb\nc\nd\n", "\xff\nb\nc\n\xfe\n", "\xfd\nb\nc\nd\n", "\xfd\nb\nc\n\xfe\n");
}

static void
the_same_lines_stand_between_marks(void **state)
{
    bool clean = true;
    (void)state;
    char *text = merged("a\nb\nc\n", "a\nmine\nc\n", "a\ntheirs\nc\n", &clean);
    assert_false(clean);
    assert_string_equal(text, "a\n<<<<<<< mine\nmine\n=======\ntheirs\n>>>>>>> theirs\nc\n");
    free(text);
}

static void
what_is_text(void **state)
{
    (void)state;
    assert_true(merge_is_text("", 0));
    assert_true(merge_is_text("\xff\x01", 2));
    assert_false(merge_is_text("a\0b", 3));
    char *large = calloc(1, LIMIT_MERGE + 1);
    assert_non_null(large);
    memset(large, 'x', LIMIT_MERGE + 1);
    assert_true(merge_is_text(large, LIMIT_MERGE));
    assert_false(merge_is_text(large, LIMIT_MERGE + 1));
    free(large);
}

/* ---- a diff says what diff(1) says ---- */

static void
put_file(const char *dir, const char *name, const char *text)
{
    char path[512];
    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
}

static void
assert_as_diff(const char *from, const char *to)
{
    char dir[256], command[512], wanted[4096];
    struct buf out;
    struct merge_text a = { "from", from, strlen(from) }, b = { "to", to, strlen(to) };
    (void)snprintf(dir, sizeof(dir), "%s/hf-merge-XXXXXX", tmp_base());
    assert_non_null(mkdtemp(dir));
    put_file(dir, "a", from);
    put_file(dir, "b", to);
    (void)snprintf(command, sizeof(command), "cd %s && diff -u --label from --label to a b; rm a b",
                   dir);
    FILE *pipe = popen(command, "re"); /* NOLINT(cert-env33-c): names of our own */
    assert_non_null(pipe);
    size_t len = fread(wanted, 1, sizeof(wanted) - 1, pipe);
    wanted[len] = '\0';
    (void)pclose(pipe);
    assert_int_equal(rmdir(dir), 0);
    buf_init(&out, 1u << 20);
    if (merge_diff(&a, &b, &out, &err) != 0)
        fail_msg("%s", err.msg);
    assert_string_equal(buf_cstr(&out), wanted);
    buf_release(&out);
}

static void
a_diff_is_that_of_diff(void **state)
{
    (void)state;
    assert_as_diff("a\nb\nc\n", "a\nB\nc\n");
    assert_as_diff("", "new\n");
    assert_as_diff("old\n", "");
    assert_as_diff("same\n", "same\n");
    assert_as_diff("a\nb", "a\nc\n");
    assert_as_diff("a\nb\n", "a\nb");
    assert_as_diff("1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n13\n14\n",
                   "1\ntwo\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\nthirteen\n14\n");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(changes_of_different_lines_are_put_together),
        cmocka_unit_test(one_side_alone_wins),
        cmocka_unit_test(a_last_line_without_an_end_stays_so),
        cmocka_unit_test(bytes_that_are_no_utf8_are_kept),
        cmocka_unit_test(the_same_lines_stand_between_marks),
        cmocka_unit_test(what_is_text),
        cmocka_unit_test(a_diff_is_that_of_diff),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
