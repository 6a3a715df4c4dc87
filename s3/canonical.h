#ifndef S3_CANONICAL_H
#define S3_CANONICAL_H

#include "base/buf.h"

/*
 * The one canonicaliser: what it writes is both what is signed and what is sent, so the two cannot differ. S3 encodes
 * each byte of the path once (RFC 3986) and keeps "." and ".." segments and double slashes as they are
 * (docs.aws.amazon.com, "Authenticating Requests (AWS Signature Version 4)"). Pure.
 */

/* Path of a request: the endpoint's own path, the bucket (NULL: it is in the host), the key (NULL: the bucket itself).
 * All three are raw (not encoded). Appends, beginning with '/'. */
int canonical_path(const char *endpoint_path, const char *bucket, const char *key, struct buf *out,
                   struct err *err) MUST_CHECK;

#define CANONICAL_QUERY_MAX 16
struct canonical_param {
    const char *name; /* raw, not encoded */
    const char *value;
};
/* Query parameters in any order. The strings must outlive it. */
struct canonical_query {
    struct canonical_param param[CANONICAL_QUERY_MAX];
    size_t count;
};
void canonical_query_add(struct canonical_query *query, const char *name, const char *value);
/* Appends "a=1&b=2": encoded, sorted by encoded name, then by encoded value; a parameter without value ends in '='. */
int canonical_query_write(const struct canonical_query *query, struct buf *out,
                          struct err *err) MUST_CHECK;

#endif
