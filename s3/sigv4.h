#ifndef S3_SIGV4_H
#define S3_SIGV4_H

#include "base/buf.h"
#include "base/hash.h"
#include "s3/canonical.h"

/*
 * AWS Signature Version 4 (docs.aws.amazon.com, "Signature Calculations for the Authorization Header" and
 * "Authenticating Requests: Using Query Parameters"). Pure: no clock, no environment.
 */

#define SIGV4_UNSIGNED_PAYLOAD "UNSIGNED-PAYLOAD"
#define SIGV4_EMPTY_SHA256 "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define SIGV4_HEADERS_MAX 64

struct sigv4_header {
    const char *name; /* lower case */
    const char *value;
};

struct sigv4_request {
    const char *method;
    const char *path;  /* from canonical_path() */
    const char *query; /* from canonical_query_write(), "" for none */
    const struct sigv4_header
        *headers;             /* those to be signed, in any order; "host" must be among them */
    size_t header_count;      /* at most SIGV4_HEADERS_MAX */
    const char *payload_hash; /* lower-case hexadecimal SHA-256 or SIGV4_UNSIGNED_PAYLOAD */
    int64_t wall_ns;          /* the time of x-amz-date */
};

struct sigv4_scope {
    const char *access_key;
    const char *secret_key;
    const char *region;
    const char *service; /* "s3" */
};

/* The canonical request, for the signature and for messages about a refused one. */
int sigv4_canonical_request(const struct sigv4_request *request, struct buf *out,
                            struct err *err) MUST_CHECK;
/* The value of the Authorization header. */
int sigv4_authorization(const struct sigv4_request *request, const struct sigv4_scope *scope,
                        struct buf *out, struct err *err) MUST_CHECK;

/* What makes a presigned query beside the request: further parameters, its life in seconds, the session token or "". */
struct sigv4_link {
    const struct canonical_query *query;
    int64_t expires_s;
    const char *token;
};
/* The whole query, sorted, with its signature behind it, is appended to `out`. request->query and ->payload_hash are not
 * used: the payload of a link is UNSIGNED-PAYLOAD. */
int sigv4_presign(const struct sigv4_request *request, const struct sigv4_scope *scope,
                  const struct sigv4_link *link, struct buf *out, struct err *err) MUST_CHECK;

#endif
