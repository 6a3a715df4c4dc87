#ifndef S3_CLIENT_H
#define S3_CLIENT_H

#include <pthread.h>
#include <stdatomic.h>

#include "s3/canonical.h"
#include "s3/credentials.h"
#include "s3/http.h"
#include "s3/open.h"
#include "s3/provider.h"
#include "s3/retry.h"
#include "s3/xml.h"

/*
 * Requests to one bucket: signs each attempt anew, judges the answer, keeps the limit of requests under way, learns the
 * clock's offset. Whether to try again is asked by client_again(); what a lost answer means is the caller's business
 * (http_store_put.c). Thread safe.
 */

struct client_endpoint {
    bool tls;
    char *host; /* as in the Host header, with ":port" when it is not the scheme's own */
    char *path; /* raw; "" for none */
};

struct client {
    struct client_endpoint endpoint;
    struct client_endpoint public_endpoint; /* for presigned URLs; host NULL: the same */
    char *bucket;
    char *prefix; /* "" or ending in '/' */
    char *region;
    bool path_style;
    bool loopback;
    const struct provider *provider;
    s3_credentials_fn *credentials; /* the caller's own, or NULL: keys */
    void *credentials_arg;
    struct credentials *keys;
    char *ca_file, *pins; /* NULL: none */
    bool requester_pays;
    uint64_t max_put_bytes, max_copy_bytes; /* from the URL; 0: as the store says */
    struct limit requests_limit, up_limit, down_limit;
    struct http *http;

    pthread_mutex_t lock; /* protects limit */
    pthread_cond_t freed; /* CLOCK_MONOTONIC; a place became free */
    struct retry_limit limit;

    _Atomic int64_t skew_ns;        /* store's clock minus ours */
    _Atomic int64_t bucket_seen_ns; /* when the bucket was last known to exist; 0: never */
    _Atomic int64_t silent_ns;      /* mono: no attempt was answered since; 0: the last one was */
    _Atomic int64_t ends_ns;        /* mono: nothing takes longer than until then; 0: no such end */
    atomic_bool answered;           /* anything at all has come from the endpoint */
    atomic_int etag_is_md5; /* enum store_yes_no, learned from answers to PUT with a known MD5 */
    _Atomic uint64_t seed;
    _Atomic uint64_t requests, retries, errors, bytes_up, bytes_down;
    _Atomic uint64_t gets, puts, heads, deletes, lists, copies;
    _Atomic uint64_t upload_calls, other, slow_downs, limited_ns;
};

/* From the URL and its parameters; no network traffic. client_close() also after a failure. */
int client_open(struct client *client, const struct store_open_args *args,
                struct err *err) MUST_CHECK;
void client_close(struct client *client);
/* Lowers what one PUT and one copy may carry to what the URL says. */
void client_limit_caps(const struct client *client, struct store_caps *caps);

/* As what a request counts; by its method when not said. */
enum client_count { CLIENT_BY_METHOD, CLIENT_UPLOAD, CLIENT_OTHER };

#define CLIENT_FIELDS 48
struct client_request {
    enum client_count count;
    const char *method;
    const char *key; /* relative to the prefix; NULL: the bucket */
    struct canonical_query query;
    struct http_field field[CLIENT_FIELDS]; /* lower-case names; all are signed */
    size_t field_count;
    const struct store_body *body;
    const char *payload_hash; /* NULL: of an empty body */
    http_head_fn *head;
    store_sink_fn *sink;
    void *arg;
    int64_t deadline_ns;
    int64_t deadline_bonus_ns_per_mib;
    int64_t idle_max_ns; /* how long the store may be silent; 0: the usual 15 s */
};
void client_field(struct client_request *request, const char *name, const char *value);

struct client_answer {
    struct http_response response;
    struct xml_error error;
    enum retry_verdict verdict;
    bool maybe_done;          /* no success, but the store may have carried it out */
    uint64_t keys_generation; /* of the keys that signed it */
};
void client_answer_init(struct client_answer *answer);
void client_answer_release(struct client_answer *answer);
/* Empties it for the next attempt. */
void client_answer_reset(struct client_answer *answer);

/* One attempt. 0: a whole 2xx without an error document. -1: `err` says what, answer->verdict whether again. */
int client_attempt(struct client *client, const struct client_request *request,
                   struct client_answer *answer, struct err *err) MUST_CHECK;

/* The tries of one operation. */
struct client_try {
    int64_t deadline_ns;
    unsigned attempt;
    bool clock_learned;
    bool keys_renewed;
    int64_t first_failed_ns; /* 0: none yet */
};
/* After a failed attempt: waits and answers true when another one makes sense before the deadline. */
bool client_again(struct client *client, struct client_try *tries,
                  const struct client_answer *answer);
/* Attempts until success, a final answer, or the deadline; for requests that may be repeated without harm. */
int client_call(struct client *client, const struct client_request *request,
                struct client_answer *answer, struct err *err) MUST_CHECK;

/* From now on nothing takes longer than until then (mono), and what is tried again is so only before. */
void client_end(struct client *client, int64_t deadline_ns);

/* How much longer a body of `size` may take because of the user's limit of bytes up, which many may share. */
int64_t client_slack_ns(const struct client *client, uint64_t size);

/* The keys to sign with now; `generation` changes whenever they become others. */
int client_keys(struct client *client, int64_t deadline_ns, struct s3_credentials *out,
                uint64_t *generation, struct err *err) MUST_CHECK;

/* prefix + key; ERR_NAME_TOO_LONG beyond LIMIT_KEY. */
int client_full_key(const struct client *client, const char *key, struct buf *out,
                    struct err *err) MUST_CHECK;
/* Our time as the store sees it. */
int64_t client_wall_ns(struct client *client);
/* https://host/path without a query, for `endpoint`. */
int client_url(const struct client *client, const struct client_endpoint *endpoint,
               const char *canonical_path, struct buf *out, struct err *err) MUST_CHECK;
/* The Host header for `endpoint`. */
int client_host(const struct client *client, const struct client_endpoint *endpoint,
                struct buf *out, struct err *err) MUST_CHECK;

#endif
