#ifndef S3_HTTP_STORE_PUT_IMPL_H
#define S3_HTTP_STORE_PUT_IMPL_H

#include "base/hash.h"
#include "s3/http_store_impl.h"

/* What the two ways to write an object share: one PUT (http_store_put.c), and parts (http_store_put_parts.c). */

#define HTTP_STORE_WRITE_ID "holdfast-version"

struct writing {
    struct http_store *self;
    const struct store_put *req;
    struct store_put_result *res;
    const char *write_id; /* NULL: none */
    bool in_parts;
    bool maybe_done; /* an attempt may have been, or may still be, carried out */
    int64_t deadline_ns;
    char seen[LIMIT_ETAG]; /* what the last look saw; "" for nothing */
    uint64_t seen_size;
    bool seen_torn; /* it has our write id and fewer bytes than ours */
    bool cut;       /* an attempt broke off before all of it was sent */
    char payload_hash[SHA256_HEX];
    struct buf etag, md5, meta;
};

/* The condition as headers. */
int http_store_put_condition(struct writing *writing, struct client_request *request,
                             struct err *err) MUST_CHECK;

/* Does the answer say that the condition does not hold? */
bool http_store_put_is_refusal(const struct writing *writing, const struct client_answer *answer);

/* Whose object lies there? LOOK_FAILED also: cannot tell. `err` is set only for a HEAD that failed. */
enum http_store_look { LOOK_OURS, LOOK_OTHER, LOOK_ABSENT, LOOK_FAILED };
enum http_store_look http_store_put_look(struct writing *writing, struct err *err);

/* The ends of a write: they set the outcome, and the error that goes with it. */
int http_store_put_done(struct writing *writing);
int http_store_put_undecided(struct writing *writing, struct err *err);
int http_store_put_refused(struct writing *writing, struct err *err);

/* In parts beyond what one PUT takes, and also where that is faster and the completion judges the condition. Pure. */
bool http_store_put_wants_parts(const struct store_caps *caps, enum store_cond_kind cond,
                                uint64_t size);
int http_store_put_parts(struct writing *writing, struct err *err) MUST_CHECK;

#endif
