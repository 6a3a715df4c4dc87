#include "base/glob.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

static bool
match(const char *pattern, const char *path)
{
    struct err err = ERR_INIT;
    scope_glob *glob = NULL;
    if (glob_compile(pattern, strlen(pattern), &glob, &err) < 0)
        fail_msg("'%s': %s", pattern, err.msg);
    return glob_match(glob, path);
}

static void
means_what_agents_know(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *path;
        bool yes;
    } cases[] = {
        { "*.csv", "a.csv", true },
        { "*.csv", "deep/down/a.csv", true }, /* without a slash: the name, anywhere */
        { "*.csv", "a.csv/b", false },
        { "/*.csv", "a.csv", true },
        { "/*.csv", "deep/a.csv", false },
        { "deep/*.csv", "deep/a.csv", true },
        { "deep/*.csv", "deep/down/a.csv", false },
        { "deep/*.csv", "x/deep/a.csv", false },
        { "**/*.csv", "a.csv", true },
        { "**/*.csv", "x/y/a.csv", true },
        { "a/**/z", "a/z", true },
        { "a/**/z", "a/b/c/z", true },
        { "a/**/z", "a/b/c", false },
        { "a/**", "a/b/c", true },
        { "a/**", "a", false },
        { "a/**", "ab/c", false },
        { "**", "x/y", true },
        { "**/**/a", "a", true },
        { "**/b/**/d", "a/b/c/b/d", true },
        { "*", ".hidden", true },
        { "?", "\xc3\xbc", true }, /* one character */
        { "??", "\xc3\xbc", false },
        { "?", "\xff", true },
        { "[\xc3\xa4-\xc3\xbc]", "\xc3\xb6", true },
        { "[!a-c]", "d", true },
        { "[!a-c]", "b", false },
        { "[^a-c]", "d", true },
        { "[]a]", "]", true },
        { "[a-]", "-", true },
        { "[\\]]", "]", true },
        { "{a,b}.c", "b.c", true },
        { "{a,b}.c", "c.c", false },
        { "*.{c,h{,pp}}", "x/y.hpp", true },
        { "*.{c,h{,pp}}", "x/y.h", true },
        { "{src/**,doc}/*.md", "src/a/b.md", true },
        { "{src/**,doc}/*.md", "doc/b.md", true },
        { "{src/**,doc}/*.md", "doc/a/b.md", false },
        { "{*.c,src/*.h}", "x/y.c", true },
        { "{*.c,src/*.h}", "x/y.h", false },
        { "[{]", "{", true },
        { "\\{a\\}", "{a}", true },
        { "\\*", "*", true },
        { "\\*", "a", false },
        { "a**b", "axxb", true },
        { "a**b", "a/b", false },
        { "}", "}", true },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (match(cases[i].pattern, cases[i].path) != cases[i].yes)
            fail_msg("'%s' and '%s'", cases[i].pattern, cases[i].path);
    }
}

static void
refuses_what_it_cannot_mean(void **state)
{
    (void)state;
    static const char *const bad[] = { "",   "/",     "a/", "a//b", "../a", "a/./b",
                                       "[a", "[b-a]", "{a", "a\\",  "[]",   "{a,}" };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct err err = ERR_INIT;
        struct glob *glob = NULL;
        if (glob_compile(bad[i], strlen(bad[i]), &glob, &err) == 0)
            fail_msg("'%s' was taken", bad[i]);
        assert_int_equal(err.code, ERR_INVAL);
        assert_null(glob);
    }
    static const char many[] = "{1,2,3,4}{1,2,3,4}{1,2,3,4}{1,2,3,4}{1,2,3,4}{1,2,3,4}{1,2,3,4}";
    struct err err = ERR_INIT;
    struct glob *glob = NULL;
    assert_int_equal(glob_compile(many, strlen(many), &glob, &err), -1);
    assert_int_equal(err.code, ERR_TOO_LARGE);
    assert_int_equal(glob_compile("a\0b", 3, &glob, &err), -1);
    assert_int_equal(err.code, ERR_INVAL);
}

/* Whatever the C library's fnmatch() means by a pattern of one folder's names, this means too. */
static void
agrees_with_fnmatch(void **state)
{
    (void)state;
    static const char pattern_bytes[] = "aab*?[]!-\\b";
    static const char name_bytes[] = "aabb.-]";
    uint32_t seed = 20261130;
    unsigned compared = 0, matched = 0;
    for (unsigned round = 0; round < 200000; round++) {
        char pattern[10] = "/", name[8];
        size_t len = 1 + round % 7, name_len = 1 + round % 5;
        for (size_t i = 0; i < len; i++) {
            seed = seed * 1103515245u + 12345u;
            pattern[1 + i] = pattern_bytes[(seed >> 16) % (sizeof(pattern_bytes) - 1)];
        }
        pattern[1 + len] = '\0';
        for (size_t i = 0; i < name_len; i++) {
            seed = seed * 1103515245u + 12345u;
            name[i] = name_bytes[(seed >> 16) % (sizeof(name_bytes) - 1)];
        }
        name[name_len] = '\0';
        struct err err = ERR_INIT;
        scope_glob *glob = NULL;
        /* What is refused here, an unclosed class for one, is a literal there. */
        if (glob_compile(pattern, strlen(pattern), &glob, &err) < 0)
            continue;
        bool expected = fnmatch(pattern + 1, name, 0) == 0;
        if (glob_match(glob, name) != expected)
            fail_msg("'%s' and '%s': fnmatch says %d", pattern + 1, name, expected);
        compared++;
        matched += expected;
    }
    assert_true(compared > 50000 && matched > 1000);
}

/* A folder is entered only when something below it can match. */
static void
knows_where_to_look(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    scope_glob *glob = NULL;
    struct glob_at root, at, below;
    assert_int_equal(glob_compile("src/*/test", 10, &glob, &err), 0);
    glob_start(glob, &root);
    glob_step(glob, &root, "doc", 3, &at);
    assert_false(glob_more(glob, &at));
    glob_step(glob, &root, "src", 3, &at);
    assert_true(glob_more(glob, &at) && !glob_done(glob, &at));
    glob_step(glob, &at, "any", 3, &below);
    glob_step(glob, &below, "test", 4, &at);
    assert_true(glob_done(glob, &at) && !glob_more(glob, &at));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(means_what_agents_know),
        cmocka_unit_test(refuses_what_it_cannot_mean),
        cmocka_unit_test(agrees_with_fnmatch),
        cmocka_unit_test(knows_where_to_look),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
