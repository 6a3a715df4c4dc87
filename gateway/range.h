#ifndef GATEWAY_RANGE_H
#define GATEWAY_RANGE_H

#include <stdbool.h>
#include <stdint.h>

#include "versioning/precondition.h"

/*
 * What a GET or HEAD asks for (RFC 9110 sections 13 and 14), without any I/O.
 */
enum gateway_range_result {
    GATEWAY_RANGE_WHOLE,         /* no range, one that we may ignore, or several */
    GATEWAY_RANGE_PART,          /* *first to *last, both included */
    GATEWAY_RANGE_UNSATISFIABLE, /* 416 */
};

/* `value` is the Range header or NULL. Only one "bytes" range is served; a malformed or other one is ignored, as RFC 9110
 * section 14.2 allows. */
enum gateway_range_result gateway_range_parse(const char *value, uint64_t size, uint64_t *first,
                                              uint64_t *last);

struct gateway_conditions {
    const char *if_match;
    const char *if_none_match;
    const char *if_modified_since;
    const char *if_unmodified_since;
    const char *if_range;
};
enum gateway_condition_result {
    GATEWAY_CONDITION_GO,
    GATEWAY_CONDITION_NOT_MODIFIED, /* 304 */
    GATEWAY_CONDITION_FAILED,       /* 412 */
};

/* The order of RFC 9110 section 13.2.2 for GET and HEAD. `tag` is our ETag without quotes. A malformed header is ERR_INVAL. */
int gateway_range_judge(const struct gateway_conditions *conditions, const char *tag,
                        int64_t mtime_ns, enum gateway_condition_result *out,
                        struct err *err) MUST_CHECK;

/* Whether a Range may be used: no If-Range, or one that names this very version. Weak tags and dates that are not exactly the
 * file's time do not (RFC 9110 section 13.1.5). */
bool gateway_range_applies(const char *if_range, const char *tag, int64_t mtime_ns);

#endif
