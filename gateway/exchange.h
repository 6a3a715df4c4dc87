#ifndef GATEWAY_EXCHANGE_H
#define GATEWAY_EXCHANGE_H

#include <sys/types.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/ulid.h"
#include "gateway/access.h"
#include "gateway/gateway.h"
#include "gateway/request.h"

/*
 * One request and its answer, as the handlers see it: nothing of libmicrohttpd, straight-line code that may block (each connection
 * has its thread). A handler answers 0 with the reply set, or -1: then the caller makes the problem document of the error.
 */
#define GATEWAY_HEADERS_MAX 64
#define GATEWAY_REPLY_HEADERS_MAX 16
#define GATEWAY_REPLY_VALUE_MAX 512

struct exchange;
typedef int exchange_fn(struct exchange *x, struct err *err);
typedef int exchange_chunk_fn(struct exchange *x, const void *data, size_t len, struct err *err);

enum exchange_takes {
    EXCHANGE_TAKES_NOTHING,
    EXCHANGE_TAKES_NAME, /* one more component: a volume or an id, in x->name */
    EXCHANGE_TAKES_FILE, /* volume and a path that is not empty */
    EXCHANGE_TAKES_TREE, /* volume and a path, which may be empty */
    EXCHANGE_TAKES_PART, /* an id, in x->name, and one word, in x->path */
};
struct exchange_route {
    const char *method;
    const char *prefix; /* without slashes at the ends */
    enum exchange_takes takes;
    struct gateway_need need; /* who may: nobody, when nothing is said */
    exchange_fn *begin;       /* head complete, body not yet read; may be NULL */
    exchange_chunk_fn *chunk; /* NULL: a body is collected in x->body (at most LIMIT_JSON_DOC) */
    exchange_fn *end;
};

#define EXCHANGE_SIZE_UNKNOWN UINT64_MAX
/* A streamed body. `read` answers bytes (0 only at the end) or -1. Where the size is not known it may block for long. */
struct exchange_stream {
    ssize_t (*read)(void *arg, uint64_t off, void *out, size_t max, struct err *err);
    void (*free)(void *arg);
    void *arg;
    uint64_t size;
};

struct exchange_reply {
    int status; /* 0: not set yet */
    size_t header_count;
    struct {
        const char *name;
        char value[GATEWAY_REPLY_VALUE_MAX];
    } headers[GATEWAY_REPLY_HEADERS_MAX];
    struct buf body;
    struct exchange_stream stream; /* used when stream.read is set */
    struct buf location;           /* of a redirect: longer than other headers */
};

struct exchange {
    const struct gateway *gateway;
    bool local;                   /* came over STATE/holdfast.sock; the peer's uid was checked */
    struct gateway_access access; /* who asks */
    char method[16];
    char *raw; /* the target as sent */
    struct gateway_request_target target;
    struct gateway_request_header headers[GATEWAY_HEADERS_MAX];
    size_t header_count;
    int64_t content_length; /* -1: none */
    bool chunked;
    const struct exchange_route *route;
    char name[LIMIT_NAME + 1];
    const char *path; /* inside the volume, normal form */
    /* Of an upload by link: its secret, where the file goes, and how long it may be (0: as any). It has to be a new file. */
    char link[64], link_path[LIMIT_PATH + 1];
    uint64_t put_most;
    char trace[ULID_SIZE];
    struct buf body;
    void *state; /* the handler's, between begin and end */
    void (*state_free)(void *state);
    struct exchange_reply reply;
    struct json_t *extra; /* further members of the problem document, or NULL */
    char allow[96];       /* for 405 */
    uint64_t whole_size;  /* for 416 */
};

struct exchange *exchange_new(const struct gateway *gateway, bool local, const char *method,
                              const char *raw, struct err *err) MUST_CHECK;
void exchange_free(struct exchange *x);
/* The target as logs and the audit may show it: a link's address is its secret. */
const char *exchange_shown(const struct exchange *x);
const char *exchange_header(const struct exchange *x, const char *name);
/* The query parameter as text (NULL when absent) in a buffer of the caller's. */
int exchange_query_uint(struct exchange *x, const char *name, uint64_t *out,
                        struct err *err) MUST_CHECK;
int exchange_query_bool(struct exchange *x, const char *name, bool *out,
                        struct err *err) MUST_CHECK;

/* The reply. `name` must be a constant; a value that is too long is cut off before it is sent, so check where it matters. */
int exchange_reply_header(struct exchange *x, const char *name, struct err *err, const char *fmt,
                          ...) MUST_CHECK __attribute__((format(printf, 4, 5)));
/* Takes the reference of `value` also on error; NULL is ERR_NOMEM. */
int exchange_reply_json(struct exchange *x, int status, json_t *value, struct err *err) MUST_CHECK;
int exchange_reply_text(struct exchange *x, int status, const char *text,
                        struct err *err) MUST_CHECK;
/* A list of an answer, which ends before the answer gets longer than clients read (LIMIT_JSON_DOC); `truncated` says so. Takes
 * `item`, NULL is ERR_NOMEM. 1: it was left off, and so is what comes. */
#define EXCHANGE_LIST_ROOM (LIMIT_JSON_DOC - (64u << 10))
struct exchange_list {
    json_t *items;
    uint64_t limit; /* items */
    size_t room;    /* bytes that it may still take */
    bool truncated;
};
int exchange_list_add(struct exchange_list *list, json_t *item, struct err *err) MUST_CHECK;
/* The problem document (RFC 9457) of an error, replacing whatever the reply was. */
void exchange_reply_problem(struct exchange *x, const struct err *why);

/* The JSON body; NULL on error. Content-Type must be application/json when one is sent by a browser. */
json_t *exchange_json(struct exchange *x, struct err *err) MUST_CHECK;
/* Refuses a field that is not in `known` (ends with NULL), so that a misspelt one is not silently without effect. */
int exchange_known_fields(const json_t *body, const char *const *known, struct err *err) MUST_CHECK;
/* Who asks: actor from the login, run from the token that is bound to one or the header "Holdfast-Run", deadline from "Prefer: wait=S" or `seconds`. */
void exchange_ctx(const struct exchange *x, unsigned seconds, struct volume_ctx *ctx);
/* Whether "Prefer" names this preference (RFC 7240); `value` (may be NULL) gets what stands behind '='. */
bool exchange_prefers(const struct exchange *x, const char *name, uint64_t *value);

#endif
