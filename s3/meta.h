#ifndef S3_META_H
#define S3_META_H

#include <stddef.h>

#include "base/err.h"

/*
 * User metadata of an object: x-amz-meta-* without the prefix. Names are lower case ASCII (RFC 9110 token characters);
 * values are bytes without control characters, encoded on the wire by RFC 2047 where they are not ASCII (docs/stores.md).
 * A name that begins with "~" is a header of the object itself, which stores keep and give back like user metadata:
 * "~cache-control", "~content-disposition", "~content-encoding", "~content-language"; an empty value is not sent.
 */
struct meta_entry {
    char *name;
    char *value;
};

struct meta {
    struct meta_entry entry[LIMIT_META_ENTRIES];
    size_t count;
};

void meta_init(struct meta *meta);
void meta_release(struct meta *meta);
/* Copies both; replaces an entry of the same name (case-insensitive). ERR_TOO_LARGE beyond LIMIT_META_*. */
int meta_set(struct meta *meta, const char *name, const char *value, struct err *err) MUST_CHECK;
/* NULL when absent; the answer lives as long as the entry. */
const char *meta_get(const struct meta *meta, const char *name);
/* Replaces what `to` holds; on error `to` is as before. */
int meta_copy(struct meta *to, const struct meta *from, struct err *err) MUST_CHECK;

#endif
