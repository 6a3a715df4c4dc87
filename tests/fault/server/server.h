#ifndef TESTS_FAULT_SERVER_H
#define TESTS_FAULT_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/hash.h"

/*
 * A small S3 server that misbehaves by plan: sockets, threads, objects in memory and in one sparse file. See README.md
 * for its controls. The signature check has its own canonicaliser, which works from the request as received; only
 * SHA-256, HMAC and hexadecimal are shared with the code under test.
 */

#define BUCKET "test"
#define MAX_FIELDS 64
#define MAX_DOCUMENT (64u << 20) /* of an answer held in memory */
#define MAX_OBJECT (5ull << 30)  /* of one PUT, part or copy, as at AWS */
#define MAX_TOKEN 2300           /* a key in hexadecimal */
#define OP_SIZE 12

struct content;
struct field {
    const char *name; /* lower case */
    const char *value;
};
struct request {
    char *head; /* owns the texts below */
    const char *method;
    const char *path;  /* raw, before '?' */
    const char *query; /* raw, "" for none */
    struct field field[MAX_FIELDS];
    size_t field_count;
    struct content *body; /* never NULL once it is read */
    char body_sha256[SHA256_HEX];
    uint8_t body_md5[MD5_SIZE];
    char bucket[64]; /* decoded */
    char key[1100];
};
const char *request_field(const struct request *request, const char *name);
/* Decoded value of a query parameter into `out`; false when absent. */
bool request_param(const struct request *request, const char *name, char *out, size_t size);
/* The parameter is there, with or without a value. */
bool request_has(const struct request *request, const char *name);
uint64_t request_number(const struct request *request, const char *name, uint64_t fallback);
/* Percent-decodes; false for broken escapes, NUL, or no room. */
bool decode(const char *text, size_t len, char *out, size_t size);

/* The answer's body is `body`, or the range of `content` when that is set. */
struct reply {
    int status;
    struct buf head; /* further header lines, each ending in CRLF */
    struct buf body;
    struct content *content; /* held */
    uint64_t off, len;
    bool no_body; /* HEAD: Content-Length without the bytes */
};
void reply_init(struct reply *reply);
void reply_release(struct reply *reply);
void reply_header(struct reply *reply, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void reply_body(struct reply *reply, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* `text` into the body: percent-encoded (encoding-type=url), else as XML wants it. */
void reply_text(struct reply *reply, const char *text, bool encoded);
void reply_error(struct reply *reply, int status, const char *code, const char *message);
/* The bytes of `content` from `off`; takes a reference of its own. */
void reply_content(struct reply *reply, struct content *content, uint64_t off, uint64_t len);

/* ---- content.c: bytes of objects, shared and never changed once they are complete ---- */

/* For `size` bytes that content_add() then brings: up to 4 MiB in memory, else in the spool file without zero blocks. */
struct content *content_new(uint64_t size);
bool content_add(struct content *content, const void *data, size_t len);
struct content *content_hold(struct content *content);
void content_drop(struct content *content); /* NULL is fine */
uint64_t content_len(const struct content *content);
/* Appends bytes of `from` without copying them. */
bool content_share(struct content *content, const struct content *from, uint64_t off, uint64_t len);
/* At most `size` bytes from `off`; 0 at the end. */
size_t content_read(const struct content *content, uint64_t off, void *out, size_t size);
/* The whole as a string; NULL when larger than `max`. The caller frees it. */
char *content_text(const struct content *content, size_t max);

/* ---- faults.c ---- */

/* X(name, in the control request in any case) */
/* clang-format off */
#define FAULT_KINDS(X) \
    X(NONE) \
    /* not carried out */ \
    X(ERROR500) X(ERROR502) X(ERROR504) X(SLOWDOWN) X(BUSY429) X(REQUEST_TIMEOUT) \
    X(RACE409) X(RESET_BEFORE) X(SILENT) X(ERROR200) X(DENIED) X(EXPIRED) X(WRONG_REGION) \
    X(HTML404) X(NO_UPLOAD) X(SPACES_ERROR) \
    /* carried out */ \
    X(RESET_AFTER) X(LOST) X(ERROR500_AFTER) X(ERROR200_AFTER) X(LATE) X(SPACES) \
    X(SPACES_ERROR_AFTER) \
    /* carried out, answered wrongly */ \
    X(CUT) X(STALL) X(SLOW) X(LONG_LENGTH) X(NO_LENGTH) X(WRONG_ETAG) X(NO_ETAG) X(FLIP) \
    X(OTHER_RANGE) X(WRONG_RANGE) X(DUP_PAGE) X(SAME_TOKEN) X(NO_TOKEN) X(FOREIGN_KEY) \
    X(EMPTY_PAGE) \
    /* of some calls only: see README.md */ \
    X(KEY_DENIED) X(COMES_BACK) \
    /* for each request until /_reset */ \
    X(IGNORE_CONDITIONS)
/* clang-format on */
enum fault {
#define X(name) FAULT_##name,
    FAULT_KINDS(X)
#undef X
};
struct hit {
    enum fault fault;
    unsigned long arg;
};
/* Adds an entry of the plan; false for unknown names. `op` is one of FAULT_OPS or "*". */
#define FAULT_OPS                                                                             \
    "GET", "HEAD", "PUT", "DELETE", "LIST", "COPY", "CREATE", "PART", "PARTCOPY", "COMPLETE", \
        "ABORT", "UPLOADS", "PARTS", "DELMANY"
bool faults_add(const char *kind, const char *op, unsigned skip, unsigned count, unsigned long arg);
void faults_clear(void);
/* What the plan has for the next request of this kind; counts it. */
struct hit faults_next(const char *op);
bool faults_ignore_conditions(const char *op);
void faults_stats(struct buf *out);
/* The server's clock minus the machine's. */
extern _Atomic int64_t faults_skew_s;
int64_t server_wall_ns(void);

/* ---- roles.c: habits of stores, for as long as the server runs ---- */

enum role {
    ROLE_NO_CONDITIONS = 1, /* every condition is ignored: GCS' S3 face, Wasabi, Garage */
    ROLE_WEAK_COPY = 2,     /* conditions of copies and deletes are ignored: Spaces, Hetzner, RGW */
    ROLE_ONE_WRITE = 4,     /* one write per second and key: R2 */
    ROLE_NFC = 8,           /* names are composed to NFC: R2 */
    ROLE_LYING_LIST = 16,   /* listings lag behind: eventually consistent stores */
    ROLE_EQUAL_PARTS = 32,  /* parts of one size but the last, which may not be larger: R2 */
    ROLE_NOT_IMPLEMENTED = 64 /* 501 to conditions of writes: B2, Swift */
};
/* "name,name" or "" for none; false for an unknown one. */
bool roles_set(const char *names);
/* "a, b, c" for messages. */
void roles_names(char *out, size_t size);
bool roles_has(enum role role);
/* Whether this role ignores conditions of `op`. */
bool roles_ignore_conditions(const char *op);
/* Composes the key in place when the role says so: Latin, Greek and Cyrillic letters with accents, and Hangul. */
void roles_fold(char *key, size_t size);
/* False when this key was written less than the interval ago (and the role minds); else remembers the write. */
bool roles_may_write(const char *key, unsigned interval_ms);
void roles_clear(void);

/* ---- sigv4_check.c ---- */

#define SERVER_ACCESS_KEY "FAULTSERVERKEY000001"
#define SERVER_SECRET_KEY "faultServerSecret/0123456789+abcdefghij"
#define SERVER_REGION "us-east-1"
/* True when header or query signature, time and payload hash are right; else the reply is filled. */
bool sigv4_check(const struct request *request, struct reply *reply);

/* ---- objects.c ---- */

/* Settings of POST /_mode. */
struct mode {
    unsigned page;              /* keys, uploads or parts per listing page */
    uint64_t min_part;          /* of a part that is not the last */
    uint64_t max_copy;          /* of one CopyObject or UploadPartCopy */
    unsigned write_ms;          /* between two writes of a key, with ROLE_ONE_WRITE */
    unsigned lag_ms, lag_lists; /* how long, and for how many listings, ROLE_LYING_LIST lies */
};
/* Requests that some stores refuse are fine: a Content-Length where no body belongs. For clients that are not ours. */
extern _Atomic bool objects_lenient;
extern struct mode mode_default; /* with the options of the start */
void objects_mode(const struct mode *mode);
/* Carries the request out. `op` as in faults_next(). May fold request->key. */
void objects_handle(struct request *request, const char *op, struct hit hit, struct reply *reply);
/* The bytes of a key, without signature or fault, for the tests. */
void objects_raw(const char *key, struct reply *reply);
void objects_clear(void);

#endif
