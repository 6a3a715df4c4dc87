#ifndef GATEWAY_REQUEST_H
#define GATEWAY_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/*
 * The strict reading of a request's head, done once at the edge (INV-12). Pure. libmicrohttpd 0.9.75 lets through what two
 * servers in a row would read differently (docs/http.md), so everything of that kind is refused here.
 */
struct gateway_request_header {
    const char *name; /* NUL-terminated, as sent */
    size_t name_len;
    const char *value; /* NUL-terminated, without white space at the ends */
    size_t value_len;
};

struct gateway_request_target {
    struct buf path;     /* decoded components joined by '/', without a leading or trailing slash */
    bool trailing_slash; /* the path ended in '/' (never for "/") */
    const char *
        query; /* raw text behind '?', "" when there is none; points into the argument of the parser */
};

/* Origin form only (RFC 9112 section 3.2.1). Refused: anything but visible ASCII, a fragment, empty components, "." and "..",
 * escaped slashes, %00 and broken escapes. */
int gateway_request_target(const char *raw, struct gateway_request_target *out,
                           struct err *err) MUST_CHECK;
void gateway_request_target_release(struct gateway_request_target *target);

/* The decoded value of a query parameter: 1 when it is there, 0 when not, -1 when it is malformed or there twice. */
int gateway_request_query(const struct gateway_request_target *target, const char *name,
                          struct buf *out, struct err *err) MUST_CHECK;

/* Names are tokens, values hold no control characters; Host exactly once; Content-Length at most once, only digits, never with
 * Transfer-Encoding; Transfer-Encoding only "chunked" and once. *length is -1 when no Content-Length was sent. */
int gateway_request_headers(const struct gateway_request_header *headers, size_t count,
                            int64_t *length, bool *chunked, struct err *err) MUST_CHECK;

/* The value of a header that may be there once; NULL when it is not. */
const char *gateway_request_header(const struct gateway_request_header *headers, size_t count,
                                   const char *name);

/* Whether a Host or Origin authority names this machine's loopback ("localhost", "127.0.0.1", "[::1]") with `port`, or is in the
 * comma-separated list `more` (may be NULL), there with any or no port. */
bool gateway_request_host_allowed(const char *host, unsigned port, const char *more);

#endif
