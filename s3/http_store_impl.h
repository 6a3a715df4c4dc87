#ifndef S3_HTTP_STORE_IMPL_H
#define S3_HTTP_STORE_IMPL_H

#include "base/hash.h"
#include "s3/client.h"
#include "s3/store.h"

/* The s3:// store: what its files share. */
struct http_store {
    struct store store; /* first: the operations cast back */
    struct client client;
};

static inline struct http_store *
http_store_of(struct store *store)
{
    return (struct http_store *)store;
}

int http_store_head(struct store *store, const char *key, int64_t deadline_ns,
                    struct store_object *out, struct err *err) MUST_CHECK;
int http_store_get(struct store *store, const struct store_get *req, struct store_object *out,
                   struct err *err) MUST_CHECK;
int http_store_put(struct store *store, const struct store_put *req, struct store_put_result *res,
                   struct err *err) MUST_CHECK;
int http_store_delete(struct store *store, const struct store_delete *req,
                      enum store_outcome *outcome, struct err *err) MUST_CHECK;
int http_store_copy(struct store *store, const struct store_copy *req, struct store_put_result *res,
                    struct err *err) MUST_CHECK;
int http_store_list(struct store *store, const struct store_list *req, struct err *err) MUST_CHECK;
int http_store_delete_many(struct store *store, const char *const *keys, size_t count,
                           int64_t deadline_ns, store_deleted_fn *fn, void *arg,
                           struct err *err) MUST_CHECK;
/* One DeleteObjects of at most 4 keys, for the probe: has the store deleted them all? */
bool http_store_delete_batched(struct http_store *self, const char *const *keys, size_t count);
int http_store_uploads(struct store *store, const char *prefix, store_uploads_fn *fn, void *arg,
                       struct err *err) MUST_CHECK;
int http_store_upload_abort(struct store *store, const char *key, const char *upload_id,
                            int64_t deadline_ns, struct err *err) MUST_CHECK;
int http_store_presign(struct store *store, const struct store_presign *req, struct buf *url,
                       struct err *err) MUST_CHECK;

/* `deadline_ns`, or the default for `size` when it is 0. */
int64_t http_store_deadline(int64_t deadline_ns, uint64_t size);
/* x-amz-content-sha256 of a body as hexadecimal digits; "" for one that is sent unsigned. */
int http_store_payload_hash(const struct http_store *self, const struct store_body *body,
                            char out[SHA256_HEX], struct err *err) MUST_CHECK;
/* "etag" as conditions want it here: in quotes, or bare (caps.etag_quoted; else the provider's profile). */
int http_store_etag(const struct http_store *self, const char *etag, struct buf *out,
                    struct err *err) MUST_CHECK;
/* x-amz-meta-* headers, RFC 2047 encoded; names and values go one after the other into `text`, which must outlive the
 * request and may not move: it is reserved first. */
int http_store_meta_fields(const struct meta *meta, struct buf *text,
                           struct client_request *request, struct err *err) MUST_CHECK;
/* How the object is to be kept: x-amz-storage-class and the encryption headers, for whatever makes an object (PUT,
 * CopyObject, CreateMultipartUpload; not for parts). The strings must outlive the request. `placement` may be NULL. */
int http_store_placement_fields(const struct store_placement *placement,
                                struct client_request *request, struct err *err) MUST_CHECK;
/* ETag, size (from `total` or, when that is UINT64_MAX, Content-Length), times, type and metadata of an answer. */
int http_store_object(const struct http_response *response, uint64_t total,
                      struct store_object *out, struct err *err) MUST_CHECK;

/* probe.c: asks with conditions that the ordinary calls would not send. */
int http_store_probe(struct store *store, struct store_caps *caps, struct err *err) MUST_CHECK;

#endif
