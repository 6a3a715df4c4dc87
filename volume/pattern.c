#include "volume/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/parse.h"
#include "base/scope.h"

/*
 * A whole text is searched at once, which skips what cannot match at the speed of memory; a match that leaves its line is looked
 * at again in that line alone. Expressions for which that could miss a line (what looks around, or does not give back what it took,
 * may take from the next line what a line by itself would not have) are matched line by line.
 */
#define PATTERN_MAX 1024u
#define STACK_START (32u << 10)
#define STACK_MAX (1u << 20)
#define STEPS_LINE 1000000u
#define STEPS_TEXT 2000000u
#define HARD_LINES 16u /* so many lines over the limit, and a text is given up */

struct pattern {
    pcre2_code *code;
    bool by_line;
};

struct pattern_matcher {
    const struct pattern *pattern;
    pcre2_match_data *found;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

/* ---- compiled ---- */
static bool
needs_lines(const char *text)
{
    static const char *const harmless[] = { "(?:", "(?i)", "(?i:", "(?<", "(?P<" };
    static const char *const words[] = { "(*",  "*+",  "++",  "?+",  "}+",
                                         "\\A", "\\z", "\\Z", "\\G", "\\K" };
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strstr(text, words[i]) != NULL)
            return true;
    for (const char *at = text; (at = strstr(at, "(?")) != NULL; at++) {
        bool fine = false;
        for (size_t i = 0; i < sizeof(harmless) / sizeof(harmless[0]) && !fine; i++) {
            size_t len = strlen(harmless[i]);
            fine = strncmp(at, harmless[i], len) == 0 &&
                   (at[len - 1] != '<' || (at[len] != '=' && at[len] != '!'));
        }
        if (!fine)
            return true;
    }
    return false;
}

static int
bad_pattern(int code, size_t at, struct err *err)
{
    PCRE2_UCHAR why[128] = "";
    (void)pcre2_get_error_message(code, why, sizeof(why));
    return err_set(err, ERR_INVAL, "the pattern is wrong at character %zu: %s", at + 1,
                   (const char *)why);
}

int
pattern_compile(const char *text, size_t len, const struct pattern_options *options,
                struct pattern **out, struct err *err)
{
    int code = 0;
    PCRE2_SIZE at = 0;
    uint32_t flags = PCRE2_UTF | PCRE2_MATCH_INVALID_UTF | PCRE2_NEVER_BACKSLASH_C;
    flags |= options->ignore_case ? PCRE2_CASELESS : 0;
    flags |= options->fixed ? PCRE2_LITERAL : PCRE2_MULTILINE;
    if (len == 0)
        return err_set(err, ERR_INVAL, "the pattern is empty");
    if (len > PATTERN_MAX)
        return err_set(err, ERR_TOO_LARGE, "a pattern has %u bytes at most", PATTERN_MAX);
    if (memchr(text, '\n', len) != NULL || memchr(text, '\0', len) != NULL)
        return err_set(err, ERR_INVAL, "the pattern is for one line, and for text");
    if (!utf8_valid(text, len))
        return err_set(err, ERR_INVAL, "the pattern is no UTF-8");
    struct pattern *pattern = calloc(1, sizeof(*pattern));
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (pattern == NULL || context == NULL) {
        free(pattern);
        pcre2_compile_context_free(context);
        return err_nomem(err);
    }
    (void)pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    /* In a literal PCRE2 knows no other flags than these. */
    if (options->fixed)
        flags &= ~(uint32_t)PCRE2_NEVER_BACKSLASH_C;
    pattern->code = pcre2_compile((PCRE2_SPTR)text, len, flags, &code, &at, context);
    pcre2_compile_context_free(context);
    if (pattern->code == NULL) {
        free(pattern);
        return bad_pattern(code, at, err);
    }
    /* Without it matching is slower, and the same. */
    (void)pcre2_jit_compile(pattern->code, PCRE2_JIT_COMPLETE);
    char copy[PATTERN_MAX + 1];
    memcpy(copy, text, len);
    copy[len] = '\0';
    pattern->by_line = !options->fixed && needs_lines(copy);
    *out = pattern;
    return 0;
}

void
pattern_free(struct pattern *pattern)
{
    if (pattern == NULL)
        return;
    pcre2_code_free(pattern->code);
    free(pattern);
}

struct pattern_matcher *
pattern_matcher_new(const struct pattern *pattern, struct err *err)
{
    struct pattern_matcher *matcher = calloc(1, sizeof(*matcher));
    if (matcher != NULL) {
        matcher->pattern = pattern;
        matcher->found = pcre2_match_data_create_from_pattern(pattern->code, NULL);
        matcher->context = pcre2_match_context_create(NULL);
        matcher->stack = pcre2_jit_stack_create(STACK_START, STACK_MAX, NULL);
    }
    if (matcher == NULL || matcher->found == NULL || matcher->context == NULL) {
        pattern_matcher_free(matcher);
        err_nomem(err);
        return NULL;
    }
    if (matcher->stack != NULL)
        pcre2_jit_stack_assign(matcher->context, NULL, matcher->stack);
    (void)pcre2_set_heap_limit(matcher->context, 16384); /* KiB */
    return matcher;
}

void
pattern_matcher_free(struct pattern_matcher *matcher)
{
    if (matcher == NULL)
        return;
    pcre2_match_data_free(matcher->found);
    pcre2_match_context_free(matcher->context);
    pcre2_jit_stack_free(matcher->stack);
    free(matcher);
}

/* ---- matched ---- */
static void
allow_steps(struct pattern_matcher *matcher, uint64_t steps)
{
    (void)pcre2_set_match_limit(matcher->context,
                                steps < UINT32_MAX ? (uint32_t)steps : UINT32_MAX);
}

/* 1: found, `hit` has where; 0: not; -1: an error, or -2: too many steps. */
static int
match(const struct pattern_matcher *matcher, const char *data, size_t len, size_t from,
      struct pattern_hit *hit, struct err *err)
{
    int rc = pcre2_match(matcher->pattern->code, (PCRE2_SPTR)data, len, from, 0, matcher->found,
                         matcher->context);
    if (rc == PCRE2_ERROR_NOMATCH)
        return 0;
    if (rc == PCRE2_ERROR_MATCHLIMIT || rc == PCRE2_ERROR_DEPTHLIMIT ||
        rc == PCRE2_ERROR_HEAPLIMIT || rc == PCRE2_ERROR_JIT_STACKLIMIT)
        return -2;
    if (rc == PCRE2_ERROR_NOMEMORY) {
        (void)err_nomem(err);
        return -1;
    }
    if (rc < 0) {
        (void)err_set(err, ERR_INTERNAL, "PCRE2 fails with %d", rc);
        return -1;
    }
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(matcher->found);
    hit->match = at[0];
    hit->stop = at[1] > at[0] ? at[1] : at[0];
    return 1;
}

struct search {
    struct pattern_matcher *matcher;
    const char *data;
    size_t len;
    uint64_t line;  /* of `counted` */
    size_t counted; /* up to here newlines are counted */
    unsigned hard;  /* lines over the limit */
    pattern_hit_fn *fn;
    void *arg;
};

static size_t
line_end(const struct search *search, size_t from)
{
    const char *end =
        from < search->len ? memchr(search->data + from, '\n', search->len - from) : NULL;
    return end != NULL ? (size_t)(end - search->data) : search->len;
}

static uint64_t
line_at(struct search *search, size_t at)
{
    const char *p = search->data + search->counted;
    while ((p = memchr(p, '\n', (size_t)(search->data + at - p))) != NULL) {
        search->line++;
        p++;
    }
    search->counted = at;
    return search->line;
}

/* One line by itself. 1: enough. */
static int
try_line(struct search *search, size_t start, size_t end, struct err *err)
{
    struct pattern_hit hit = { .start = start, .end = end };
    allow_steps(search->matcher, STEPS_LINE);
    int rc = match(search->matcher, search->data + start, end - start, 0, &hit, err);
    if (rc == -2) {
        search->hard++;
        return search->hard >= HARD_LINES;
    }
    if (rc <= 0)
        return rc;
    hit.match += start;
    hit.stop += start;
    hit.line = line_at(search, start);
    return search->fn(search->arg, &hit, err);
}

static int
search_lines(struct search *search, size_t from, struct err *err)
{
    while (from < search->len) {
        size_t end = line_end(search, from);
        int rc = try_line(search, from, end, err);
        if (rc != 0)
            return rc;
        from = end + 1;
    }
    return 0;
}

static int
search_text(struct search *search, size_t from, struct err *err)
{
    struct pattern_hit hit;
    while (from < search->len) {
        allow_steps(search->matcher, STEPS_TEXT + 8 * (uint64_t)search->len);
        int rc = match(search->matcher, search->data, search->len, from, &hit, err);
        if (rc == -2) /* perhaps only because it went on from line to line */
            return search_lines(search, from, err);
        /* Behind the last newline is no line. */
        if (rc <= 0 || (hit.match == search->len && search->data[hit.match - 1] == '\n'))
            return rc < 0 ? -1 : 0;
        const char *before = memrchr(search->data + from, '\n', hit.match - from);
        hit.start = before != NULL ? (size_t)(before - search->data) + 1 : from;
        hit.end = line_end(search, hit.match);
        if (hit.stop > hit.end) {
            rc = try_line(search, hit.start, hit.end, err);
        } else {
            hit.line = line_at(search, hit.start);
            rc = search->fn(search->arg, &hit, err);
        }
        if (rc != 0)
            return rc;
        from = hit.end + 1;
    }
    return 0;
}

/* The beginning of the line behind that many. */
static size_t
skip_lines(struct search *search, uint64_t count)
{
    size_t at = 0;
    while (count-- > 0 && at < search->len)
        at = line_end(search, at) + 1;
    return at;
}

int /* NOLINTNEXTLINE(readability-function-size): the contract has eight parameters */
pattern_lines(struct pattern_matcher *matcher, const char *data, size_t len, uint64_t after_line,
              pattern_hit_fn *fn, void *arg, enum pattern_end *end, struct err *err)
{
    struct search search = {
        .matcher = matcher, .data = data, .len = len, .line = 1, .fn = fn, .arg = arg
    };
    size_t from = skip_lines(&search, after_line);
    int rc = matcher->pattern->by_line ? search_lines(&search, from, err)
                                       : search_text(&search, from, err);
    *end = search.hard > 0 ? PATTERN_LIMIT : PATTERN_DONE;
    return rc < 0 ? -1 : 0;
}
