#ifndef S3_ANSWER_H
#define S3_ANSWER_H

#include "s3/store.h"
#include "s3/xml.h"

/* From what a store answered to our errors and structures. Pure. */

/* Sets the error for a status and error document that are not a success, naming `what` ("key 'x'", "the bucket"):
 * 404 is ERR_NOT_FOUND only with the code of a missing key or without any document for a HEAD (INV-9). Answers -1. */
int answer_error(int status, const struct xml_error *error, const char *what, bool is_head,
                 struct err *err);

/* Content-Range: "bytes 5-9/20"; false unless it is complete and sane (RFC 9110 section 14.4). */
bool answer_content_range(const char *value, uint64_t *first, uint64_t *last, uint64_t *total);

/* 32 hexadecimal digits without "-N": may be an MD5. */
bool answer_is_md5(const char *etag);

#endif
