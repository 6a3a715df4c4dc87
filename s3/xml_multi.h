#ifndef S3_XML_MULTI_H
#define S3_XML_MULTI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/*
 * The documents of multipart uploads and of DeleteObjects, written and read. Answers are believed only as whole documents
 * of the expected kind: an <Error> or anything else is ERR_STORE_BAD_ANSWER, also after a 200. Pure.
 */

#define XML_UPLOAD_ID 1024
/* <InitiateMultipartUploadResult>. */
int xml_multi_initiated(const void *data, size_t len, char id[XML_UPLOAD_ID],
                        struct err *err) MUST_CHECK;
/* <CopyPartResult>; the ETag without quotes. */
int xml_multi_part_copied(const void *data, size_t len, char etag[LIMIT_ETAG],
                          struct err *err) MUST_CHECK;
/* <CompleteMultipartUploadResult>; the ETag without quotes, or "": RGW 16 leaves it empty. */
int xml_multi_completed(const void *data, size_t len, char etag[LIMIT_ETAG],
                        struct err *err) MUST_CHECK;
/* <CompleteMultipartUpload> of parts 1 to `count`. */
int xml_multi_complete(const char (*etag)[LIMIT_ETAG], unsigned count, struct buf *out,
                       struct err *err) MUST_CHECK;

/* One page of ListMultipartUploads, in the store's order. */
struct xml_upload {
    char *key;
    char *id;
    int64_t initiated_ns; /* 0: not told */
};
struct xml_uploads {
    struct xml_upload *entry;
    size_t count;
    bool truncated;
    char *next_key; /* NULL when absent */
    char *next_id;
};
void xml_uploads_init(struct xml_uploads *uploads);
void xml_uploads_release(struct xml_uploads *uploads);
int xml_multi_uploads(const void *data, size_t len, struct xml_uploads *out,
                      struct err *err) MUST_CHECK;

/* Whether XML can carry the key: valid UTF-8 without characters that XML 1.0 does not have. */
bool xml_multi_can_name(const char *key);
/* <Delete> of keys that it can carry, not quiet. Begins with xml_multi_delete_begin(), ends with _end(). */
int xml_multi_delete_begin(struct buf *out, struct err *err) MUST_CHECK;
int xml_multi_delete_key(const char *key, struct buf *out, struct err *err) MUST_CHECK;
int xml_multi_delete_end(struct buf *out, struct err *err) MUST_CHECK;

/* What <DeleteResult> says of one key; `code` is "" for <Deleted>. Return -1 with an error to stop. */
typedef int xml_deleted_fn(void *arg, const char *key, const char *code, const char *message,
                           struct err *err);
int xml_multi_deleted(const void *data, size_t len, xml_deleted_fn *fn, void *arg,
                      struct err *err) MUST_CHECK;

#endif
