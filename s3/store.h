#ifndef S3_STORE_H
#define S3_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/hash.h"
#include "base/scope.h"
#include "s3/meta.h"
#include "s3/timing.h"

struct buf;

/*
 * The store contract: a flat map from keys to immutable objects, judged by conditions. Every implementation (mem:,
 * file:, s3:) and every wrapper (gate, fault, trace) is a `struct store`; wrappers hold a `next`. All calls block, may
 * come from many threads at once, and end by their deadline (INV: no hang).
 *
 * Keys are 1 to 1,024 bytes relative to the store's prefix, no NUL, passed as NUL-terminated strings. "a" and "a/b" can
 * both exist; so can "a/" (a directory marker). ETags are opaque, without quotes or "W/".
 *
 * Errors:  ERR_NOT_FOUND only for a complete, believed 404 of the key (INV-9); ERR_CONFLICT a condition did not hold
 * (412, and 404 on If-Match); ERR_STORE_RACE 409, try again; ERR_STORE_AWAY, ERR_STORE_TIMEOUT, ERR_STORE_BAD_ANSWER
 * "unavailable", never "absent"; ERR_STORE_DENIED keys, signature or rights; ERR_STORE_NO_BUCKET; ERR_STORE_UNSUPPORTED
 * 501 or a capability that the store has not.
 */

struct store_object {
    uint64_t size;
    char etag[LIMIT_ETAG];
    int64_t last_modified_ns; /* wall clock of the store, second or millisecond precision */
    char content_type[128];
    struct meta meta;
};
void store_object_init(struct store_object *object);
void store_object_release(struct store_object *object);

/* Where a PUT takes its bytes: `mem`, or `fd` from `off` (read with pread, so that an attempt can begin again). */
struct store_body {
    const void *mem;
    int fd; /* used when mem is NULL and size > 0 */
    uint64_t off;
    uint64_t size;
    const uint8_t *sha256; /* SHA256_SIZE bytes when known, else NULL */
    const uint8_t *md5;    /* MD5_SIZE bytes when known, else NULL; sent as Content-MD5 */
};

enum store_cond_kind { STORE_COND_NONE, STORE_COND_ABSENT, STORE_COND_MATCH };
struct store_cond {
    enum store_cond_kind kind;
    const char *etag; /* for STORE_COND_MATCH */
};

/*
 * What is known after a call that changes something. STORE_UNKNOWN: the request may have been, or may still be, carried
 * out (lost answer, time-out, 5xx after the body was sent); the caller looks before acting (INV-10).
 */
enum store_outcome { STORE_NOT_DONE, STORE_DONE, STORE_REFUSED, STORE_UNKNOWN };

/* How an object is to be kept; NULL or "" members: as the bucket's own settings say. */
struct store_placement {
    const char *storage_class; /* x-amz-storage-class */
    const char *encryption;    /* x-amz-server-side-encryption: "AES256", "aws:kms" */
    const char *kms_key_id;    /* with "aws:kms" */
};

/*
 * Told of a multipart upload before its first part goes out; it makes `upload_id` durable, so that a crash leaves
 * nothing that nobody knows of. An error ends the PUT with STORE_NOT_DONE (the upload is aborted). Called again when the
 * store has lost an upload and the PUT begins anew. After STORE_DONE the ids may be forgotten; after any other outcome they
 * are kept until store_upload_abort() has succeeded (after STORE_UNKNOWN: not before the key was looked at).
 */
typedef int store_upload_fn(void *arg, const char *upload_id, struct err *err);

struct store_put {
    const char *key;
    struct store_body body;
    struct store_cond cond;
    const char *content_type; /* NULL: application/octet-stream */
    /* May be NULL. "holdfast-version" in it is the write id of the lost-answer check. */
    const struct meta *meta;
    int64_t deadline_ns; /* clock_mono_ns() value; 0: the store's default for the size */
    /*
     * May be NULL. Whether a PUT goes in parts is the store's decision: always beyond caps.max_put_bytes; below it only
     * where the completion was proven to judge `cond` (docs/mechanisms.md section 1), else it is one conditional PUT.
     */
    store_upload_fn *on_upload;
    void *on_upload_arg;
    const struct store_placement *placement; /* may be NULL */
    /* May be NULL. Asked when all bytes of a PUT in parts were sent: false means that they changed while they were read, and
     * that the upload must not be completed. */
    bool (*still)(void *arg);
    void *still_arg;
};
struct store_put_result {
    enum store_outcome outcome; /* set on success and on error */
    char etag[LIMIT_ETAG];      /* on STORE_DONE */
};

/* Receives the bytes of a GET in order, without gaps or repeats also when the store resumes a cut body. A failing sink
 * ends the GET with its error. */
typedef int store_sink_fn(void *arg, const void *data, size_t len, struct err *err);

struct store_get {
    const char *key;
    uint64_t off;
    uint64_t len;         /* 0: to the end. Asking beyond the end gives ERR_RANGE */
    const char *if_match; /* ETag or NULL; a mismatch is ERR_CONFLICT */
    store_sink_fn *sink;
    void *sink_arg;
    int64_t deadline_ns;
};

struct store_delete {
    const char *key;
    /* ETag or NULL. ERR_STORE_UNSUPPORTED when caps say that DELETE ignores conditions. */
    const char *if_match;
    int64_t deadline_ns;
};

/* Server-side copy, only to fresh keys (INV-15). */
struct store_copy {
    const char *from;
    /* ETag or NULL; where the store ignores it the result is compared with `from_etag` rules. */
    const char *from_if_match;
    const char *to;
    const struct meta *meta; /* NULL: copy the source's metadata, else replace it */
    int64_t deadline_ns;
    const struct store_placement *placement; /* may be NULL */
    /* Bytes of the source when known, else 0: beyond caps.max_copy_bytes the copy goes in parts. */
    uint64_t from_size;
};

struct store_list_entry {
    const char *key; /* relative to the store's prefix; a common prefix ends in the delimiter */
    bool is_prefix;
    uint64_t size;
    const char *etag;
    int64_t last_modified_ns;
};
/* Called in bytewise order of the keys; return -1 to stop with an error. */
typedef int store_list_fn(void *arg, const struct store_list_entry *entry, struct err *err);
struct store_list {
    const char *prefix;      /* "" for all */
    const char *start_after; /* NULL or a key: only greater keys */
    char delimiter;          /* '/' or 0 */
    unsigned limit;          /* stop after so many entries; 0: all, page after page */
    store_list_fn *fn;
    void *arg;
    int64_t deadline_ns;
};

/* An unfinished multipart upload. */
struct store_upload {
    const char *key; /* relative to the store's prefix */
    const char *upload_id;
    int64_t initiated_ns; /* wall clock of the store; 0: not told */
};
typedef int store_uploads_fn(void *arg, const struct store_upload *upload, struct err *err);

/* What became of one key of store_delete_many(): `code` 0 for deleted (or absent). Called once for each key. */
typedef void store_deleted_fn(void *arg, const char *key, enum err_code code, const char *message);

struct store_presign {
    const char *method; /* "GET", "PUT", "HEAD" */
    const char *key;
    int64_t expires_s; /* 1 to 604800 */
    /* NULL or the header that the answer shall carry. */
    const char *response_content_type;
    const char *response_content_disposition;
};

/* What the store does, found by the probe and the provider's profile, never assumed (docs/stores.md). */
enum store_yes_no { STORE_NO, STORE_YES, STORE_NOT_PROBED };
struct store_caps {
    enum store_yes_no put_if_absent;
    enum store_yes_no put_if_match;
    enum store_yes_no put_atomic; /* of parallel conditional creates exactly one wins */
    enum store_yes_no delete_if_match;
    enum store_yes_no copy_source_if_match;
    enum store_yes_no copy_dest_conditions;
    enum store_yes_no server_side_copy;
    enum store_yes_no etag_quoted; /* YES: conditions need "etag" in quotes; NO: bare */
    enum store_yes_no list_consistent;
    enum store_yes_no presign;
    enum store_yes_no folds_names; /* YES: keys are composed to NFC */
    enum store_yes_no any_bytes;   /* NO: keys that are not UTF-8 are refused, or become others */
    enum store_yes_no long_meta;   /* NO: values of metadata beyond 256 bytes are refused */
    enum store_yes_no multipart;
    enum store_yes_no complete_if_absent,
        complete_if_match;        /* CompleteMultipartUpload judges them */
    enum store_yes_no copy_parts; /* UploadPartCopy */
    /* YES: UploadPartCopy decodes the name of its source twice (RGW 16), so that "a%20b" would be "a b" */
    enum store_yes_no copy_parts_decodes_twice;
    enum store_yes_no delete_many; /* DeleteObjects */
    enum store_yes_no list_uploads;
    int64_t min_write_interval_ns; /* per key; 1 s at R2 */
    uint64_t max_put_bytes;
    uint64_t max_copy_bytes; /* of one CopyObject; larger ones go in parts */
    uint64_t part_bytes;     /* of an upload's parts, more when they would be too many; 0: 16 MiB */
};

/* Counters since open, for status, metrics and the cost meter. Each attempt that reached the store counts as one. */
struct store_counters {
    uint64_t requests, retries, errors, bytes_up, bytes_down;
    uint64_t gets, puts, heads, deletes, lists, copies;
    uint64_t upload_calls; /* initiate, parts, complete, abort, list of uploads */
    uint64_t other;
    uint64_t slow_downs; /* answers that asked for fewer requests */
    uint64_t limited_ns; /* time that requests waited for the limiter */
    int64_t silent_ns; /* mono: every attempt since then found nobody; 0: the last one was answered */
    unsigned window, in_flight; /* how many requests may be, and are, under way */
};

struct buf;
struct store;
struct store_ops {
    const char *name; /* "mem", "file", "s3", "gate", "fault", "trace" */
    int (*head)(struct store *store, const char *key, int64_t deadline_ns, struct store_object *out,
                struct err *err);
    int (*get)(struct store *store, const struct store_get *req, struct store_object *out,
               struct err *err);
    int (*put)(struct store *store, const struct store_put *req, struct store_put_result *res,
               struct err *err);
    int (*del)(struct store *store, const struct store_delete *req, enum store_outcome *outcome,
               struct err *err);
    int (*copy)(struct store *store, const struct store_copy *req, struct store_put_result *res,
                struct err *err);
    int (*list)(struct store *store, const struct store_list *req, struct err *err);
    /* These three may be NULL: the gate answers ERR_STORE_UNSUPPORTED, and deletes one by one. */
    int (*delete_many)(struct store *store, const char *const *keys, size_t count,
                       int64_t deadline_ns, store_deleted_fn *fn, void *arg, struct err *err);
    int (*uploads)(struct store *store, const char *prefix, store_uploads_fn *fn, void *arg,
                   struct err *err);
    int (*upload_abort)(struct store *store, const char *key, const char *upload_id,
                        int64_t deadline_ns, struct err *err);
    /* The URL goes into `url`; ERR_STORE_UNSUPPORTED where there is no such thing (mem:, file:). */
    int (*presign)(struct store *store, const struct store_presign *req, struct buf *url,
                   struct err *err);
    /* Asks the store how it behaves, on scratch keys under ".holdfast/probe/", and cleans up. */
    int (*probe)(struct store *store, struct store_caps *caps, struct err *err);
    void (*counters)(struct store *store, struct store_counters *out);
    void (*end)(struct store *store, int64_t deadline_ns); /* NULL: its calls are short */
    void (*free)(struct store *store);
};
struct store {
    const struct store_ops *ops;
    struct store *next; /* the wrapped store, owned; NULL at the bottom */
    struct store_caps caps;
    struct store_timing timing; /* of the calls below */
    char url[512];              /* for messages: never holds a secret */
    char provider[24];          /* name of its profile (s3/provider.h), "" when it has none */
};

/*
 * The calls below go through the gate (s3/gate.c): it checks the arguments (key length and bytes, conditions that caps
 * deny), asserts the contract of the answer (size and ETag set, outcome consistent with the result, listing keys inside
 * the prefix and rising) and passes on. `out` objects are initialised by the caller, filled on success.
 */
int store_head(struct store *store, const char *key, int64_t deadline_ns, struct store_object *out,
               struct err *err) MUST_CHECK;
int store_get(struct store *store, const struct store_get *req, struct store_object *out,
              struct err *err) MUST_CHECK;
int store_put(struct store *store, const struct store_put *req, struct store_put_result *res,
              struct err *err) MUST_CHECK;
int store_delete(struct store *store, const struct store_delete *req, enum store_outcome *outcome,
                 struct err *err) MUST_CHECK;
int store_copy(struct store *store, const struct store_copy *req, struct store_put_result *res,
               struct err *err) MUST_CHECK;
int store_list(struct store *store, const struct store_list *req, struct err *err) MUST_CHECK;
/*
 * Deletes keys without a condition, in batches of at most 1,000: for write-once keys under ".holdfast/" only (INV-4).
 * -1 when any key failed; `fn` (may be NULL) tells of each, on the caller's thread. A key that is none ends the call before
 * anything is done.
 */
int store_delete_many(struct store *store, const char *const *keys, size_t count,
                      int64_t deadline_ns, store_deleted_fn *fn, void *arg,
                      struct err *err) MUST_CHECK;
/* Unfinished multipart uploads below `prefix`. */
int store_uploads(struct store *store, const char *prefix, store_uploads_fn *fn, void *arg,
                  struct err *err) MUST_CHECK;
/* Ends an upload and frees its parts; 0 also when it is gone. Checks afterwards, since a late part brings it back. */
int store_upload_abort(struct store *store, const char *key, const char *upload_id,
                       int64_t deadline_ns, struct err *err) MUST_CHECK;
int store_presign(struct store *store, const struct store_presign *req, struct buf *url,
                  struct err *err) MUST_CHECK;
/* Stores what it finds in store->caps. */
int store_probe(struct store *store, struct err *err) MUST_CHECK;
void store_counters(struct store *store, struct store_counters *out);
/* The end of the process is near: from now on no call takes longer than until `deadline_ns` (mono), those under way too. What is
 * cut off may have been done (STORE_UNKNOWN). */
void store_end(struct store *store, int64_t deadline_ns);
void store_free(struct store *store);
#define scope_store scope(store_free_ptr) struct store
void store_free_ptr(struct store **store);

/* A small object whole, at most `max` bytes; caller frees *data (NUL-terminated beyond *len). */
int store_get_small(struct store *store, const char *key, size_t max, char **data, size_t *len,
                    struct store_object *out, struct err *err) MUST_CHECK;
/* A small object from memory. */
int store_put_small(struct store *store, const char *key, const void *data, size_t len,
                    struct store_cond cond, struct store_put_result *res,
                    struct err *err) MUST_CHECK;

/* Plain words for each capability that is missing or was not proven, one line each, for doctor and status: what it means
 * and what to do. Lines that begin with "note: " ask for nothing. */
int store_caps_explain(const struct store_caps *caps, struct buf *out, struct err *err) MUST_CHECK;

#endif
