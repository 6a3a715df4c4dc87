#ifndef VERSIONING_PRECONDITION_H
#define VERSIONING_PRECONDITION_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

/*
 * A precondition as a value: what the writer believes about the file it is about to change (RFC 9110 section 13.1). Pure.
 * HTTP's ETag here is our quoted version id, or for a foreign version its ETag; weak tags never match in If-Match.
 */
enum precondition_kind {
    PRECONDITION_NONE, /* nothing said: HTTP writes to an existing file are refused with it (428) */
    PRECONDITION_ABSENT,     /* If-None-Match: * */
    PRECONDITION_EXISTS,     /* If-Match: * */
    PRECONDITION_MATCH,      /* If-Match: "a", "b" */
    PRECONDITION_NONE_MATCH, /* If-None-Match: "a", "b" (reads) */
    PRECONDITION_ANY, /* the caller takes whatever is there as its base (mount, restore): never from outside */
};

#define PRECONDITION_TAGS 8
struct precondition {
    enum precondition_kind kind;
    size_t count;
    char tag[PRECONDITION_TAGS][LIMIT_ETAG]; /* without quotes */
};

/* From the values of If-Match and If-None-Match (either may be NULL). Both at once, a weak or malformed tag in If-Match, or
 * too many tags are ERR_INVAL. */
int precondition_parse(const char *if_match, const char *if_none_match, struct precondition *out,
                       struct err *err) MUST_CHECK;
/* Whether it holds for the present version (`tag` NULL: the file is absent). */
bool precondition_holds(const struct precondition *pre, const char *tag);

#endif
