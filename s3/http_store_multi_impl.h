#ifndef S3_HTTP_STORE_MULTI_IMPL_H
#define S3_HTTP_STORE_MULTI_IMPL_H

#include "s3/http_store_impl.h"
#include "s3/parts.h"
#include "s3/xml_multi.h"

/*
 * One multipart upload: begun, its parts carried out side by side, completed or given up. What a failure means for the
 * object is the business of those who use it (http_store_put_parts.c, http_store_copy_parts.c).
 */
struct http_store_multi {
    struct http_store *self;
    const char *key;
    struct parts parts;
    int64_t
        deadline_ns; /* of the parts and the completion; what is left after it is for cleaning up */
    int64_t end_ns;  /* of all */
    char (*etag)[LIMIT_ETAG]; /* of each part; "" until it is there */
    char id[XML_UPLOAD_ID];
    struct buf document; /* the body of the completion */
    atomic_bool failed;  /* a part has failed: the others stop trying */
    atomic_bool lost;    /* the store no longer knows the upload, or one of its parts */
};
int http_store_multi_init(struct http_store_multi *multi, struct http_store *self, const char *key,
                          int64_t end_ns, struct err *err) MUST_CHECK;
void http_store_multi_release(struct http_store_multi *multi);

/* CreateMultipartUpload with the headers that `request` has already; everything else of it is set here. */
int http_store_multi_begin(struct http_store_multi *multi, struct client_request *request,
                           struct err *err) MUST_CHECK;

/* Fills the headers and the body of a part's request; called anew before each attempt. */
typedef int http_store_part_fn(void *arg, unsigned index, struct client_request *request,
                               struct err *err);
/* The part's ETag from a 2xx. */
typedef int http_store_part_etag_fn(const struct client_answer *answer, char etag[LIMIT_ETAG],
                                    struct err *err);
/* One part, tried again by itself until its deadline: 30 s, and 1 s for each MiB that may be under way with it. */
int http_store_multi_part(struct http_store_multi *multi, unsigned index, http_store_part_fn *fn,
                          void *arg, http_store_part_etag_fn *etag_fn, struct err *err) MUST_CHECK;
/* How many parts may be under way together: half of what the client may have, 4 to 16. */
unsigned http_store_multi_threads(const struct http_store_multi *multi);

/* One CompleteMultipartUpload with the headers that `request` has already. 0: the whole result came, its ETag is in
 * `etag`: that of the answer, else what S3 makes of the parts' MD5s, "" when they are none. -1: as client_attempt(). All parts must be there. */
int http_store_multi_complete(struct http_store_multi *multi, struct client_request *request,
                              struct client_answer *answer, char etag[LIMIT_ETAG],
                              struct err *err) MUST_CHECK;
/* Is it an answer that only a new upload helps against? */
bool http_store_multi_is_lost(const struct client_answer *answer);

/* Gives the upload up; a failure is logged: the one who recorded the id tries again. */
void http_store_multi_drop(struct http_store_multi *multi);

#endif
