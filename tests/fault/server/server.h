#ifndef TESTS_FAULT_SERVER_H
#define TESTS_FAULT_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/*
 * A small S3 server that misbehaves by plan: sockets, threads, objects in memory. See README.md for its controls. The
 * signature check has its own canonicaliser, which works from the request as received; only SHA-256, HMAC and
 * hexadecimal are shared with the code under test.
 */

#define MAX_FIELDS 64
#define MAX_BODY (64u << 20)

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
    char *body;
    size_t body_len;
    char bucket[64]; /* decoded */
    char key[1100];
};
const char *request_field(const struct request *request, const char *name);
/* Decoded value of a query parameter into `out`; false when absent. */
bool request_param(const struct request *request, const char *name, char *out, size_t size);
/* Percent-decodes; false for broken escapes, NUL, or no room. */
bool decode(const char *text, size_t len, char *out, size_t size);

struct reply {
    int status;
    struct buf head; /* further header lines, each ending in CRLF */
    struct buf body;
    bool no_body; /* HEAD: Content-Length of `body` without sending it */
};
void reply_init(struct reply *reply);
void reply_release(struct reply *reply);
void reply_header(struct reply *reply, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void reply_body(struct reply *reply, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void reply_error(struct reply *reply, int status, const char *code, const char *message);

/* ---- faults.c ---- */

/* X(name, in the control request in any case) */
/* clang-format off */
#define FAULT_KINDS(X) \
    X(NONE) \
    /* not carried out */ \
    X(ERROR500) X(ERROR502) X(ERROR504) X(SLOWDOWN) X(BUSY429) X(REQUEST_TIMEOUT) \
    X(RACE409) X(RESET_BEFORE) X(SILENT) X(ERROR200) X(DENIED) X(EXPIRED) X(WRONG_REGION) \
    X(HTML404) \
    /* carried out */ \
    X(RESET_AFTER) X(LOST) X(ERROR500_AFTER) X(ERROR200_AFTER) X(LATE) \
    /* carried out, answered wrongly */ \
    X(CUT) X(STALL) X(LONG_LENGTH) X(NO_LENGTH) X(WRONG_ETAG) X(NO_ETAG) X(FLIP) \
    X(OTHER_RANGE) X(WRONG_RANGE) X(DUP_PAGE) X(SAME_TOKEN) X(NO_TOKEN) X(FOREIGN_KEY) \
    X(EMPTY_PAGE) \
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
/* Adds an entry of the plan; false for unknown names. `op` is a method, LIST, COPY or "*". */
bool faults_add(const char *kind, const char *op, unsigned skip, unsigned count, unsigned long arg);
void faults_clear(void);
/* What the plan has for the next request of this kind; counts it. */
struct hit faults_next(const char *op);
bool faults_ignore_conditions(const char *op);
void faults_stats(struct buf *out);
/* The server's clock minus the machine's. */
extern _Atomic int64_t faults_skew_s;
int64_t server_wall_ns(void);

/* ---- sigv4_check.c ---- */

#define SERVER_ACCESS_KEY "FAULTSERVERKEY000001"
#define SERVER_SECRET_KEY "faultServerSecret/0123456789+abcdefghij"
#define SERVER_REGION "us-east-1"
/* True when header or query signature, time and payload hash are right; else the reply is filled. */
bool sigv4_check(const struct request *request, struct reply *reply);

/* ---- objects.c ---- */

extern _Atomic unsigned objects_page_size; /* keys per listing page */
/* Carries the request out. `op` as in faults_next(). */
void objects_handle(const struct request *request, const char *op, struct hit hit,
                    struct reply *reply);
/* The bytes of a key, without signature or fault, for the tests. */
void objects_raw(const char *key, struct reply *reply);
void objects_clear(void);

#endif
