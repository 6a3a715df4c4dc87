#ifndef VOLUME_PATTERN_H
#define VOLUME_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/*
 * Lines of a text that a pattern matches, by PCRE2 (the only includer of <pcre2.h>). Pure. A match lies in one line, however the pattern
 * is written. Texts need not be UTF-8: bytes that are none match nothing but what stands for them in a negated class.
 */
struct pattern;
struct pattern_options {
    bool fixed; /* the text itself, no expression */
    bool ignore_case;
};
/* ERR_INVAL says what is wrong and at which character. */
int pattern_compile(const char *text, size_t len, const struct pattern_options *options,
                    struct pattern **out, struct err *err) MUST_CHECK;
void pattern_free(struct pattern *pattern);

/* What one thread needs to match with it. */
struct pattern_matcher;
struct pattern_matcher *pattern_matcher_new(const struct pattern *pattern,
                                            struct err *err) MUST_CHECK;
void pattern_matcher_free(struct pattern_matcher *matcher);

struct pattern_hit {
    uint64_t line;      /* from 1 on */
    size_t start, end;  /* of the line, without its newline */
    size_t match, stop; /* the first match in it */
};
/* > 0: enough. */
typedef int pattern_hit_fn(void *arg, const struct pattern_hit *hit, struct err *err);
enum pattern_end {
    PATTERN_DONE,  /* to the end of the text, or `fn` had enough */
    PATTERN_LIMIT, /* it takes too many steps here: the rest was left out */
};
/* Hits in lines behind `after_line` (0: from the start). */
int pattern_lines(struct pattern_matcher *matcher, const char *data, size_t len,
                  uint64_t after_line, pattern_hit_fn *fn, void *arg, enum pattern_end *end,
                  struct err *err) MUST_CHECK;

#endif
