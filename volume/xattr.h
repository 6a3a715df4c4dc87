#ifndef VOLUME_XATTR_H
#define VOLUME_XATTR_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

/*
 * Extended attributes of one node as one run of bytes, in the order in which they were made: name, NUL, length of the value
 * (4 bytes, little-endian), value. That is the form of the index (docs/format/index-bytes.md). And their two forms in an object's
 * metadata (docs/format/bucket.md): s3fs's own, `xattr`, for names that its parser can stand, and ours for the others. Pure.
 *
 * Sets come from the index and from the bucket: a damaged one ends where it can no longer be read.
 */

/* Buffers for sets and lists are born with this maximum. */
#define XATTR_SET_MAX LIMIT_XATTRS

enum xattr_class {
    XATTR_USER, /* user.*: a program's */
    XATTR_OURS, /* user.holdfast.*: said by us, never kept */
    XATTR_OTHER, /* security., trusted., system.: not supported here; kept when another client wrote them */
};
enum xattr_class xattr_class(const char *name);

struct xattr_entry {
    const char *name; /* NUL-terminated, inside the set */
    const char *value;
    size_t len;
    size_t at, size; /* where the whole entry lies */
};
/* The entry at `*at` (0: the first), and moves `*at` behind it; false at the end. */
bool xattr_next(const struct buf *set, size_t *at, struct xattr_entry *out);
bool xattr_find(const struct buf *set, const char *name, struct xattr_entry *out);

/* `flags`: XATTR_CREATE (ERR_EXISTS), XATTR_REPLACE (ERR_NO_ATTRIBUTE) or 0. ERR_NO_SPACE beyond LIMIT_XATTRS in all. On error
 * the set is unchanged. */
struct xattr_value {
    const void *data;
    size_t len;
    int flags;
};
int xattr_set(struct buf *set, const char *name, const struct xattr_value *value,
              struct err *err) MUST_CHECK;
int xattr_remove(struct buf *set, const char *name, struct err *err) MUST_CHECK;
/* The names that programs may see, each with its NUL: the form of listxattr(2). */
int xattr_names(const struct buf *set, struct buf *out, struct err *err) MUST_CHECK;

/* Both values together take at most `room` bytes, each at most `value_max`. What does not fit is counted in `left`, the
 * others are there: an attribute is written whole or not at all. "" where there is nothing. */
struct xattr_meta {
    struct buf s3fs, own;
    unsigned left;
};
void xattr_meta_init(struct xattr_meta *meta);
void xattr_meta_release(struct xattr_meta *meta);
int xattr_encode(const struct buf *set, size_t room, size_t value_max, struct xattr_meta *out,
                 struct err *err) MUST_CHECK;
/* Add what a value tells; ERR_INVAL when it is not wholly understood: the set may have got a part then. */
int xattr_decode_s3fs(const char *text, struct buf *set, struct err *err) MUST_CHECK;
int xattr_decode_own(const char *text, struct buf *set, struct err *err) MUST_CHECK;

#endif
