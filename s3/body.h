#ifndef S3_BODY_H
#define S3_BODY_H

#include "s3/store.h"

/* Reading and judging the body of a PUT, for the stores that hold objects themselves (mem:, file:). */

/* Bytes `off` to `off + len` of the body into `out`; the range must lie within body->size. A file that ends too early is
 * ERR_IO. */
int body_read(const struct store_body *body, uint64_t off, void *out, size_t len,
              struct err *err) MUST_CHECK;
/* Holds what was received to the digests that the caller stated; ERR_CORRUPT on a difference. `sha256` may be NULL when
 * body->sha256 is. */
int body_verify(const struct store_body *body, const char *key, const uint8_t *md5,
                const uint8_t *sha256, struct err *err) MUST_CHECK;

#endif
