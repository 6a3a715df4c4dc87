#ifndef S3_HTTP_STORE_COPY_IMPL_H
#define S3_HTTP_STORE_COPY_IMPL_H

#include "s3/http_store_impl.h"

/* What the two ways to copy share: CopyObject (http_store_copy.c), and parts (http_store_copy_parts.c). */

struct copying {
    struct http_store *self;
    const struct store_copy *req;
    struct store_put_result *res;
    bool maybe_done;
    int64_t deadline_ns;
    struct buf source, etag, meta;
};

/* The value of x-amz-copy-source; encoded `twice` for a store that decodes it twice. */
int http_store_copy_source(const struct client *client, const char *from, bool twice,
                           struct buf *out, struct err *err) MUST_CHECK;
/* Says that `err` is about the source. */
int http_store_copy_source_error(const struct copying *copying, struct err *err);
/* What lies at the fresh key is the copy: sets the result, after comparing it with the source. */
int http_store_copy_look(struct copying *copying, struct err *err) MUST_CHECK;
/* Sets the outcome, and the error that goes with it. `status` is that of the last answer. */
int http_store_copy_give_up(struct copying *copying, int status, struct err *err);

int http_store_copy_parts(struct copying *copying, struct err *err) MUST_CHECK;

#endif
