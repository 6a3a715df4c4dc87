#ifndef TESTS_BENCH_LOAD_H
#define TESTS_BENCH_LOAD_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/*
 * hf-load: what an S3 server gives to a client that does nothing but move bytes between it and files on the local disk.
 * It shares hashing, buffers and errors with the product, and nothing of its S3 code. Keys are of unreserved characters
 * and '/', so that no key needs an escape.
 */

struct endpoint {
    bool tls;
    char host[256]; /* without the port */
    char port[8];
    char host_header[270];
    const char *region;
    const char *bucket;
    const char *access_key;
    const char *secret_key;
    const char *token; /* NULL: none */
};
/* "http://host[:port]" or https; no path. */
int endpoint_parse(struct endpoint *endpoint, const char *url, struct err *err) MUST_CHECK;

struct request {
    const char *method;
    const char *key;   /* "" for the bucket itself */
    const char *query; /* canonical: sorted, escaped, "name=" without a value; "" for none */
    /* The body: memory, or a file from an offset. */
    const void *mem;
    int in_fd; /* -1: none */
    uint64_t in_off;
    uint64_t in_len;
    /* Where the answer's body goes: a file from an offset, or (-1) into the answer's buffer. */
    int out_fd;
    uint64_t out_off;
    /* Range of a GET; len 0: all of it. */
    uint64_t range_off;
    uint64_t range_len;
    bool if_absent; /* If-None-Match: *; no signed header (only host and x-amz-* have to be) */
};
/* A request without bodies and range. */
struct request request_of(const char *method, const char *key, const char *query);

struct answer {
    int status;
    uint64_t length; /* of the body by its header; of a HEAD the object's size */
    uint64_t got;    /* bytes of the body that came */
    char etag[160];  /* as sent, with quotes */
    struct buf body; /* when out_fd is -1 */
};

/*
 * Three header lines with CRLF: date, payload (UNSIGNED-PAYLOAD), Authorization; with a session token a fourth one.
 * Signature V4 as in AWS's "Authenticating Requests: Using the Authorization Header". `out` is cleared first.
 */
int sign_headers(const struct endpoint *endpoint, const struct request *request, struct buf *out,
                 struct err *err) MUST_CHECK;

/* A way to the server. A connection belongs to one thread and carries one request at a time. */
struct transport {
    const char *name;
    void *(*open)(const struct endpoint *endpoint, struct err *err);
    /* -1 when no whole answer came; any status is 0. Connects when it has to. */
    int (*send)(void *conn, const struct request *request, struct answer *answer, struct err *err);
    void (*close)(void *conn);
};
extern const struct transport transport_curl;   /* libcurl's easy interface */
extern const struct transport transport_socket; /* the thinnest: a socket, sendfile and pwrite */

/* What a job did; printed as JSON. Times are of CLOCK_MONOTONIC in nanoseconds. */
struct tally {
    int64_t began_ns;
    int64_t first_write_ns; /* local jobs that write; 0 elsewhere */
    int64_t ended_ns;       /* the last answer, or the last close */
    atomic_uint_fast64_t bytes;
    atomic_uint_fast64_t requests;
    atomic_uint_fast64_t items;
};

struct load {
    struct endpoint endpoint;
    const struct transport *transport;
    unsigned connections;
    uint64_t part;  /* bytes of a range or part; 0: one contiguous piece a connection */
    bool single;    /* the whole object in one request */
    bool if_absent; /* PUTs are conditional */
    struct tally tally;
};

/* Jobs against the server; -1 with the first error. Files are made or replaced, directories must exist. */
int load_get(struct load *load, const char *key, const char *file, struct err *err) MUST_CHECK;
int load_put(struct load *load, const char *file, const char *key, struct err *err) MUST_CHECK;
/* Lists the prefix, then GETs every object below it into `dir`, named by what follows the last '/'. */
int load_get_many(struct load *load, const char *prefix, const char *dir,
                  struct err *err) MUST_CHECK;
int load_put_many(struct load *load, const char *dir, const char *prefix,
                  struct err *err) MUST_CHECK;
int load_delete_many(struct load *load, const char *prefix, struct err *err) MUST_CHECK;

/* Jobs of an ordinary program on mounted files; `connections` is the number of writers. */
int load_read(struct load *load, const char *file, const char *copy, struct err *err) MUST_CHECK;
/* Every file of `dir` in the order of readdir, opened, read and closed one after the other. */
int load_read_tree(struct load *load, const char *dir, struct err *err) MUST_CHECK;
int load_copy(struct load *load, const char *from, const char *to, struct err *err) MUST_CHECK;
/* Every file of `from` to a new file in `to`. */
int load_copy_tree(struct load *load, const char *from, const char *to, struct err *err) MUST_CHECK;

/* Names of a directory or keys of a listing, in the order in which they came. */
struct names {
    char **list;
    size_t count;
};
int names_add(struct names *names, const char *name, size_t len, struct err *err) MUST_CHECK;
int names_of_dir(struct names *names, const char *dir, struct err *err) MUST_CHECK;
void names_release(struct names *names);

/*
 * Calls `fn` for 0 to count-1 from `load->connections` threads, each with a number and, when `connect` is set, a
 * connection of its own. The first error ends it and is answered.
 */
struct worker {
    struct load *load;
    void *conn;
    struct answer answer; /* for reuse; empty between items */
    char *block;          /* BLOCK_SIZE bytes for reading and writing files */
};
#define BLOCK_SIZE ((size_t)1 << 20)
typedef int item_fn(void *arg, struct worker *worker, size_t item, struct err *err);
int workers_run(struct load *load, bool connect, size_t count, item_fn *fn, void *arg,
                struct err *err) MUST_CHECK;
/* One request of a worker; any other status than 2xx is an error. Counts it. */
int worker_send(struct worker *worker, const struct request *request, struct err *err) MUST_CHECK;
int worker_init(struct worker *worker, struct load *load, bool connect, struct err *err) MUST_CHECK;
void worker_release(struct worker *worker);

#endif
