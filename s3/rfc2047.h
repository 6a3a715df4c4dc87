#ifndef S3_RFC2047_H
#define S3_RFC2047_H

#include "base/buf.h"

/* Encoded words (RFC 2047) for user metadata that is not plain ASCII; S3 headers carry ASCII only. Pure. */

/* Appends `value` as it is when it is printable ASCII that neither begins nor ends with a blank nor holds "=?";
 * otherwise as encoded words in UTF-8 and base64. */
int rfc2047_encode(const char *value, struct buf *out, struct err *err) MUST_CHECK;
/* Appends the value with its encoded words (B and Q, charset UTF-8 or US-ASCII) decoded; what is none stays as it is.
 * Decoded control characters and NULs are ERR_INVAL. */
int rfc2047_decode(const char *value, struct buf *out, struct err *err) MUST_CHECK;

#endif
