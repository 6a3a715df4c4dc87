#include "volume/pattern.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct hits {
    char text[4096];
    unsigned most; /* 0: any number */
    unsigned count;
    const char *data;
};

static int
take(void *arg, const struct pattern_hit *hit, struct err *err)
{
    struct hits *hits = arg;
    size_t len = strlen(hits->text);
    (void)err;
    assert_true(hit->start <= hit->match && hit->match <= hit->stop && hit->stop <= hit->end);
    (void)snprintf(hits->text + len, sizeof(hits->text) - len, "%llu:%.*s ",
                   (unsigned long long)hit->line, (int)(hit->end - hit->start),
                   hits->data + hit->start);
    return ++hits->count == hits->most;
}

static enum pattern_end
grep(const char *pattern, const struct pattern_options *options, const char *text,
     struct hits *hits, uint64_t after)
{
    struct err err = ERR_INIT;
    struct pattern *compiled = NULL;
    enum pattern_end end = PATTERN_LIMIT;
    if (pattern_compile(pattern, strlen(pattern), options, &compiled, &err) != 0)
        fail_msg("'%s': %s", pattern, err.msg);
    struct pattern_matcher *matcher = pattern_matcher_new(compiled, &err);
    assert_non_null(matcher);
    hits->data = text;
    if (pattern_lines(matcher, text, strlen(text), after, take, hits, &end, &err) != 0)
        fail_msg("%s", err.msg);
    pattern_matcher_free(matcher);
    pattern_free(compiled);
    return end;
}

static void
assert_hits(const char *pattern, const struct pattern_options *options, const char *text,
            const char *wanted)
{
    struct hits hits = { .count = 0 };
    assert_int_equal(grep(pattern, options, text, &hits, 0), PATTERN_DONE);
    if (strcmp(hits.text, wanted) != 0)
        fail_msg("'%s': wanted '%s', saw '%s'", pattern, wanted, hits.text);
}

static const struct pattern_options plain = { .fixed = false };
static const struct pattern_options fixed = { .fixed = true };
static const struct pattern_options any_case = { .ignore_case = true };

static void
finds_lines(void **state)
{
    (void)state;
    static const char text[] = "one\ntwo\n\nthree two\nfour";
    assert_hits("two", &plain, text, "2:two 4:three two ");
    assert_hits("^t", &plain, text, "2:two 4:three two ");
    assert_hits("o$", &plain, text, "2:two 4:three two ");
    assert_hits("^$", &plain, text, "3: ");
    assert_hits("x*", &plain, text, "1:one 2:two 3: 4:three two 5:four ");
    assert_hits("FOUR", &any_case, text, "5:four ");
    assert_hits("\xc3\x84", &any_case, "\xc3\xa4\n", "1:\xc3\xa4 ");
    assert_hits("a.c", &fixed, "abc\na.c\n", "2:a.c ");
    assert_hits("a.c", &plain,
                "abc\na\xffz\na\xc3\xbc"
                "c\n",
                "1:abc 3:a\xc3\xbc"
                "c ");
    assert_hits("b", &plain, "\xff\xfe b\n", "1:\xff\xfe b ");
    assert_hits("x", &plain, "", "");
}

/* Nothing of one line is found with the help of another. */
static void
stays_in_its_line(void **state)
{
    (void)state;
    assert_hits("a\\s+b", &plain, "a\nb\na b\n", "3:a b ");
    assert_hits("a[^x]*$", &plain, "a1\nx\na2\n", "1:a1 3:a2 ");
    assert_hits("[^b]*+$", &plain, "aa\nb\n", "1:aa 2:b ");
    assert_hits("a(?!\\s*b)", &plain, "a\nb\na b\n", "1:a ");
    assert_hits("(?<!\\n)b", &plain, "a\nb\n", "2:b ");
    assert_hits("(?>\\s*)c", &plain, "a \nc\n", "2:c ");
    assert_hits("\\Ab", &plain, "a\nb\n", "2:b ");
    assert_hits("(?s)a.*c", &plain, "a\nc\na c\n", "3:a c ");
}

static void
goes_on_behind_a_line(void **state)
{
    (void)state;
    struct hits hits = { .most = 2 };
    static const char text[] = "x1\ny\nx2\nx3\nx4\n";
    (void)grep("x", &plain, text, &hits, 0);
    assert_string_equal(hits.text, "1:x1 3:x2 ");
    hits.most = 0;
    (void)grep("x", &plain, text, &hits, 3);
    assert_string_equal(hits.text, "1:x1 3:x2 4:x3 5:x4 ");
}

static void
says_what_is_wrong(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *says;
    } bad[] = { { "a(b", "character 4" },   { "", "empty" },     { "a\nb", "one line" },
                { "[z-a]", "character 4" }, { "\xff", "UTF-8" }, { "a{2,1}", "character" } };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct err err = ERR_INIT;
        struct pattern *pattern = NULL;
        assert_int_equal(
            pattern_compile(bad[i].pattern, strlen(bad[i].pattern), &plain, &pattern, &err), -1);
        assert_int_equal(err.code, ERR_INVAL);
        if (strstr(err.msg, bad[i].says) == NULL)
            fail_msg("'%s' does not say '%s'", err.msg, bad[i].says);
    }
}

/* What would take for ever ends, and says so; what other lines have is found. */
static void
ends_what_would_not(void **state)
{
    (void)state;
    struct hits hits = { .count = 0 };
    char text[256] = "aaa\n";
    memset(text + 4, 'a', 60);
    (void)snprintf(text + 64, sizeof(text) - 64, "!\nend a\n");
    assert_int_equal(grep("^(a+)+$", &plain, text, &hits, 0), PATTERN_LIMIT);
    assert_string_equal(hits.text, "1:aaa ");
}

/* Against the C library's regular expressions, line by line. */
static void
agrees_with_regexec(void **state)
{
    (void)state;
    static const char *const parts[] = {
        "a", "b", ".", "a*", "b+", "[^a]", "^", "$", "ab", "[^b]*"
    };
    uint32_t seed = 77;
    for (unsigned round = 0; round < 4000; round++) {
        char pattern[64] = "", text[64], wanted[512] = "";
        for (unsigned i = 0; i <= round % 4; i++) {
            seed = seed * 1103515245u + 12345u;
            strncat(pattern, parts[(seed >> 16) % (sizeof(parts) / sizeof(parts[0]))], 8);
        }
        for (unsigned i = 0; i < 30; i++) {
            seed = seed * 1103515245u + 12345u;
            text[i] = "aabbc\n\n "[(seed >> 16) % 8];
        }
        text[30] = '\0';
        regex_t regex;
        if (regcomp(&regex, pattern, REG_EXTENDED | REG_NOSUB) != 0)
            continue;
        unsigned line = 1;
        for (char *at = text; *at != '\0'; line++) {
            char one[64];
            size_t len = strcspn(at, "\n");
            memcpy(one, at, len);
            one[len] = '\0';
            size_t end = strlen(wanted);
            if (regexec(&regex, one, 0, NULL, 0) == 0)
                (void)snprintf(wanted + end, sizeof(wanted) - end, "%u:%s ", line, one);
            at += len + (at[len] == '\n');
        }
        regfree(&regex);
        assert_hits(pattern, &plain, text, wanted);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_lines),           cmocka_unit_test(stays_in_its_line),
        cmocka_unit_test(goes_on_behind_a_line), cmocka_unit_test(says_what_is_wrong),
        cmocka_unit_test(ends_what_would_not),   cmocka_unit_test(agrees_with_regexec),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
