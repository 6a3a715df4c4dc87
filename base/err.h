#ifndef BASE_ERR_H
#define BASE_ERR_H

#include <stdbool.h>

#include "base/limits.h"

/*
 * The one error type and the one table that gives each code its errno (FUSE), HTTP status, exit
 * status of the command line and whether trying again can help. No other file translates between
 * these.
 *
 * A function that can fail takes a `struct err *` as its last parameter (never NULL), leaves it
 * untouched on success, and answers 0 or -1 (or a pointer or NULL). The text is lower case, has its
 * 'subject' in quotes and no full stop.
 */

/* X(code, errno, HTTP status, exit status, retryable, slug of the problem+json document) */
#define ERR_TABLE(X)                                                     \
    X(ERR_INTERNAL, EIO, 500, 1, 0, "internal")                          \
    X(ERR_INVAL, EINVAL, 400, 1, 0, "invalid")                           \
    X(ERR_USAGE, EINVAL, 400, 2, 0, "usage")                             \
    X(ERR_BAD_NAME, EINVAL, 400, 1, 0, "bad-name")                       \
    X(ERR_NAME_TOO_LONG, ENAMETOOLONG, 400, 1, 0, "name-too-long")       \
    X(ERR_NOT_FOUND, ENOENT, 404, 4, 0, "not-found")                     \
    X(ERR_NO_ATTRIBUTE, ENODATA, 404, 4, 0, "no-attribute")              \
    X(ERR_EXISTS, EEXIST, 409, 1, 0, "exists")                           \
    X(ERR_NOT_DIR, ENOTDIR, 409, 1, 0, "not-a-directory")                \
    X(ERR_IS_DIR, EISDIR, 409, 1, 0, "is-a-directory")                   \
    X(ERR_NOT_EMPTY, ENOTEMPTY, 409, 1, 0, "not-empty")                  \
    X(ERR_LOOP, ELOOP, 409, 1, 0, "loop")                                \
    X(ERR_BUSY, EBUSY, 409, 1, 0, "busy")                                \
    X(ERR_CROSS_DEVICE, EXDEV, 422, 1, 0, "cross-volume")                \
    X(ERR_UNAUTHENTICATED, EACCES, 401, 5, 0, "unauthenticated")         \
    X(ERR_DENIED, EACCES, 403, 5, 0, "denied")                           \
    X(ERR_PERM, EPERM, 403, 5, 0, "not-permitted")                       \
    X(ERR_READ_ONLY, EROFS, 403, 5, 0, "read-only")                      \
    X(ERR_METHOD, EINVAL, 405, 1, 0, "method-not-allowed")               \
    X(ERR_CONFLICT, ESTALE, 412, 3, 0, "version-differs")                \
    X(ERR_NO_MERGE, ESTALE, 409, 3, 0, "no-merge")                       \
    X(ERR_STALE_READ, ESTALE, 409, 3, 0, "stale-read")                   \
    X(ERR_PRECONDITION, EINVAL, 428, 1, 0, "precondition-needed")        \
    X(ERR_TOO_LARGE, EFBIG, 413, 1, 0, "too-large")                      \
    X(ERR_RANGE, EINVAL, 416, 1, 0, "range")                             \
    X(ERR_MISDIRECTED, EINVAL, 421, 1, 0, "misdirected")                 \
    X(ERR_UNSUPPORTED, EOPNOTSUPP, 422, 1, 0, "unsupported")             \
    X(ERR_LEASED, EROFS, 423, 1, 0, "leased-elsewhere")                  \
    X(ERR_REQUEST_TIMEOUT, ETIMEDOUT, 408, 1, 1, "request-timeout")      \
    X(ERR_HEADERS_TOO_LARGE, EINVAL, 431, 1, 0, "headers-too-large")     \
    X(ERR_RATE, EAGAIN, 429, 6, 1, "too-many-requests")                  \
    X(ERR_AGAIN, EAGAIN, 503, 6, 1, "not-now")                           \
    X(ERR_CANCELED, EINTR, 503, 1, 0, "canceled")                        \
    X(ERR_STORE_AWAY, EIO, 503, 6, 1, "store-away")                      \
    X(ERR_STORE_TIMEOUT, EIO, 503, 6, 1, "store-timeout")                \
    X(ERR_STORE_BAD_ANSWER, EIO, 502, 6, 1, "store-bad-answer")          \
    X(ERR_STORE_DENIED, EIO, 503, 5, 0, "store-denied")                  \
    X(ERR_STORE_NO_BUCKET, EIO, 503, 4, 0, "store-no-bucket")            \
    X(ERR_STORE_UNSUPPORTED, EOPNOTSUPP, 422, 1, 0, "store-unsupported") \
    X(ERR_STORE_RACE, EIO, 409, 6, 1, "store-race")                      \
    X(ERR_WRONG_STORE, EIO, 503, 1, 0, "wrong-store")                    \
    X(ERR_GATEWAY_AWAY, EIO, 503, 6, 0, "gateway-away")                  \
    X(ERR_NOT_SYNCED, EIO, 503, 7, 1, "not-synced")                      \
    X(ERR_NO_SPACE, ENOSPC, 507, 8, 0, "no-space")                       \
    X(ERR_QUOTA, EDQUOT, 507, 8, 0, "quota")                             \
    X(ERR_NOMEM, ENOMEM, 503, 1, 1, "no-memory")                         \
    X(ERR_FILES, EMFILE, 503, 1, 1, "too-many-open-files")               \
    X(ERR_IO, EIO, 500, 1, 0, "io")                                      \
    X(ERR_CORRUPT, EIO, 500, 1, 0, "corrupt")                            \
    X(ERR_NEWER_FORMAT, EIO, 500, 1, 0, "newer-format")

enum err_code {
#define X(code, sys, http, status, retry, slug) code,
    ERR_TABLE(X)
#undef X
        ERR_CODE_COUNT
};

struct err {
    enum err_code code;
    int sys;                 /* errno of the failing system call, 0 when there was none */
    char msg[LIMIT_ERR_MSG]; /* always NUL-terminated */
};

#define ERR_INIT                                  \
    {                                             \
        .code = ERR_INTERNAL, .sys = 0, .msg = "" \
    }
#define MUST_CHECK __attribute__((warn_unused_result))

/* Sets code and text; answers -1 so that callers can `return err_set(...)`. Control characters
 * in the text are escaped. */
int err_set(struct err *err, enum err_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The same from errno `sys`, which chooses the code (ENOSPC → ERR_NO_SPACE, EDQUOT → ERR_QUOTA,
 * ENOMEM, EMFILE/ENFILE, EACCES, EROFS, ENOENT, ... else ERR_IO) and is appended to the text as
 * ": " strerror. */
int err_sys(struct err *err, int sys, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Puts "context: " before the text; code and errno stay. Answers -1. */
int err_wrap(struct err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* "out of memory" with ERR_NOMEM. Answers -1. */
int err_nomem(struct err *err);

/* The table. Unknown codes count as ERR_INTERNAL. */
int err_errno(enum err_code code);
int err_http(enum err_code code);
int err_exit(enum err_code code);
bool err_retryable(enum err_code code);
const char *err_slug(enum err_code code);
/* The code whose slug this is; ERR_INTERNAL when there is none. For clients that read a
 * problem+json document. */
enum err_code err_from_slug(const char *slug);

#endif
