#ifndef S3_HTTP_H
#define S3_HTTP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "s3/limit.h"
#include "s3/store.h"

/*
 * One HTTP/1.1 exchange on libcurl. No retries, no redirects, no decoding, no proxies on loopback, TCP_NODELAY, no
 * "Expect:". Connections are kept and used again. Thread safe; each call blocks its thread. The process ignores SIGPIPE
 * (the gateway does; OpenSSL writes with write(2)).
 */
struct http;
struct http *http_new(unsigned max_idle, struct err *err) MUST_CHECK;
void http_free(struct http *http);

/* For all exchanges of an http; what it points at must outlive it. Call before the first one. */
struct http_options {
    const char *
        ca_file; /* PEM file of the authorities that count, in place of the system's; NULL: AWS_CA_BUNDLE, else
                          * the system's */
    const char *
        pins; /* "sha256//BASE64[;sha256//...]": the server's key must also be one of these; NULL: any */
    struct limit *up, *down;      /* bytes per second; NULL: no limit */
    _Atomic uint64_t *limited_ns; /* counts the waits for them; may be NULL */
    _Atomic int64_t *
        ends_ns; /* mono: no exchange goes on longer than until then, 0: no such end; may be NULL */
};
void http_configure(struct http *http, const struct http_options *options);

struct http_field {
    const char *name;
    const char *value;
};

struct http_response;
/* Sees the status and the headers before the first byte of the body; an error ends the exchange with HTTP_REFUSED. */
typedef int http_head_fn(void *arg, const struct http_response *response, struct err *err);

struct http_request {
    const char *method;
    const char *url;                 /* already encoded, sent as it is */
    const struct http_field *fields; /* "host" replaces the one of the URL */
    size_t field_count;
    const struct store_body *body; /* NULL: none. A body of size 0 sends Content-Length: 0 */
    int64_t deadline_ns; /* clock_mono_ns() value, never 0; waits for the byte limits move it */
    int64_t idle_ns;     /* silence longer than this ends the exchange */
    int64_t
        deadline_bonus_ns_per_mib; /* the deadline moves with each MiB of a body received; 0: it does not */
    bool loopback;                 /* no proxy */
    long connect_ms;               /* time for making a connection; 0: 5 s */
    http_head_fn *head;            /* may be NULL */
    store_sink_fn *sink; /* gets the body of a 200 or 206; NULL: it goes into response->body */
    void *arg;           /* for both */
};

enum http_end {
    HTTP_WHOLE,         /* a complete answer arrived */
    HTTP_REFUSED,       /* head or sink said no */
    HTTP_NO_CONNECTION, /* nothing was sent */
    HTTP_BROKEN,        /* reset, cut, garbage */
    HTTP_TIMEOUT,       /* idle or deadline */
    HTTP_LOCAL          /* our own trouble: memory, reading the body's file */
};

#define HTTP_FIELDS_MAX 128
struct http_response {
    enum http_end end;
    int status;              /* 0 until the status line came */
    bool whole_request_sent; /* the server may have acted on it */
    bool maybe_resent; /* the connection was made anew: libcurl may have sent the request before, on the old one */
    bool has_length;
    uint64_t length;   /* Content-Length */
    uint64_t received; /* bytes of the body */
    struct buf body;   /* of errors and documents; at most LIMIT_XML_BODY */
    struct buf text;   /* names and values, one after the other, each ending in NUL */
    size_t field_offset[HTTP_FIELDS_MAX]; /* of the names in `text` */
    size_t field_count;
};
void http_response_init(struct http_response *response);
void http_response_release(struct http_response *response);
/* Value of a header, names case-insensitive; NULL when absent. */
const char *http_response_field(const struct http_response *response, const char *name);
/* The i-th header (name in lower case); false beyond the last. */
bool http_response_nth(const struct http_response *response, size_t i, const char **name,
                       const char **value);

/* 0 for HTTP_WHOLE whatever the status; -1 else, with response->end saying how. `response` is freshly initialised. */
int http_perform(struct http *http, const struct http_request *request,
                 struct http_response *response, struct err *err) MUST_CHECK;

#endif
