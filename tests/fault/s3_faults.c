#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/parse.h"
#include "base/scope.h"
#include "s3/open.h"

/*
 * Every fault that a store can have, driven through s3_store_open() against the server of tests/fault/server. After
 * each call the objects are looked at behind the client's back, and no call may end later than its deadline.
 */

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define SLACK (400 * NS_PER_MS)
#define SHORT (1200 * NS_PER_MS)

static pid_t server_pid;
static unsigned server_port;
static struct store *store;

/* ---- the server and its controls ---- */

static int
connect_server(void)
{
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)server_port),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

/* A request without signature; the body of the answer into `out` (not for NUL bytes). Answers the status. */
static int
plain_request(const char *method, const char *target, char *out, size_t size)
{
    static char answer[1 << 20];
    char text[4096];
    size_t len = 0;
    int fd = connect_server();
    int head = snprintf(text, sizeof(text), "%s %s HTTP/1.1\r\nHost: 127.0.0.1:%u\r\n\r\n", method,
                        target, server_port);
    assert_int_equal(write(fd, text, (size_t)head), head);
    (void)shutdown(fd, SHUT_WR);
    for (ssize_t got; (got = read(fd, answer + len, sizeof(answer) - 1 - len)) > 0;)
        len += (size_t)got;
    close(fd);
    answer[len] = '\0';
    const char *body = strstr(answer, "\r\n\r\n");
    assert_non_null(body);
    if (out)
        (void)snprintf(out, size, "%s", body + 4);
    return (int)strtol(answer + strlen("HTTP/1.1 "), NULL, 10);
}

__attribute__((format(printf, 1, 2))) static void
control(const char *fmt, ...)
{
    char target[512];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(target, sizeof(target), fmt, ap);
    va_end(ap);
    assert_int_equal(plain_request("POST", target, NULL, 0), 200);
}

static void
fault(const char *kind, const char *op, unsigned count, unsigned arg)
{
    control("/_fault?kind=%s&op=%s&count=%u&arg=%u", kind, op, count, arg);
}

static unsigned
seen(const char *op)
{
    char text[256];
    char name[16];
    assert_int_equal(plain_request("GET", "/_stats", text, sizeof(text)), 200);
    (void)snprintf(name, sizeof(name), "%s=", op);
    const char *at = strstr(text, name);
    assert_non_null(at);
    return (unsigned)strtoul(at + strlen(name), NULL, 10);
}

/* What lies at the key, asked without the code under test; NULL: nothing. */
static void
assert_raw(const char *key, const char *want)
{
    static char got[200000];
    char target[256];
    (void)snprintf(target, sizeof(target), "/_raw?key=%s", key);
    int status = plain_request("GET", target, got, sizeof(got));
    assert_int_equal(status, want ? 200 : 404);
    if (want)
        assert_string_equal(got, want);
}

static int
test_keys(void *arg, struct s3_credentials *out, struct err *err)
{
    (void)err;
    memset(out, 0, sizeof(*out));
    (void)snprintf(out->access_key, sizeof(out->access_key), "FAULTSERVERKEY000001");
    (void)snprintf(out->secret_key, sizeof(out->secret_key), "%s",
                   arg ? (const char *)arg : "faultServerSecret/0123456789+abcdefghij");
    return 0;
}

static struct store *
open_store(const char *bucket, unsigned port, bool wrong_secret)
{
    struct err err = ERR_INIT;
    char url[256];
    (void)snprintf(url, sizeof(url), "s3://%s?endpoint=http://127.0.0.1:%u&region=us-east-1",
                   bucket, port);
    static char wrong[] = "wrongSecret";
    const struct store_open_args args = { .url = url,
                                          .credentials = test_keys,
                                          .credentials_arg = wrong_secret ? wrong : NULL };
    struct store *opened = s3_store_open(&args, &err);
    assert_non_null(opened);
    return opened;
}

static int
start_server(void **state)
{
    (void)state;
    int pipe_fd[2];
    char text[32] = "";
    if (pipe2(pipe_fd, O_CLOEXEC) < 0)
        return -1;
    server_pid = fork();
    if (server_pid == 0) {
        dup2(pipe_fd[1], STDOUT_FILENO);
        execl(FAULT_SERVER, "fault-server", "--port", "0", (char *)NULL);
        _exit(127);
    }
    close(pipe_fd[1]);
    ssize_t got = read(pipe_fd[0], text, sizeof(text) - 1);
    close(pipe_fd[0]);
    server_port = got > 0 ? (unsigned)strtoul(text, NULL, 10) : 0;
    return server_port ? 0 : -1;
}

static int
stop_server(void **state)
{
    (void)state;
    kill(server_pid, SIGTERM);
    waitpid(server_pid, NULL, 0);
    return 0;
}

static int
begin(void **state)
{
    (void)state;
    control("/_reset");
    store = open_store("test", server_port, false);
    return 0;
}

static int
end(void **state)
{
    (void)state;
    store_free(store);
    store = NULL;
    return 0;
}

/* ---- calls with a deadline that is watched ---- */

static struct err err;
static struct store_put_result res;
static int64_t deadline;

static int64_t
within(int64_t ns)
{
    deadline = clock_mono_ns() + ns;
    return deadline;
}

static int
on_time(int result)
{
    assert_true(clock_mono_ns() <= deadline + SLACK);
    return result;
}

static int
put_at(const char *key, const char *text, struct store_cond cond, const char *id, int64_t ns)
{
    struct meta meta;
    uint8_t digest[MD5_SIZE];
    meta_init(&meta);
    assert_int_equal(md5(text, strlen(text), digest, &err), 0);
    if (id)
        assert_int_equal(meta_set(&meta, "holdfast-version", id, &err), 0);
    const struct store_put req = {
        .key = key,
        .body = { .mem = text, .fd = -1, .size = strlen(text), .md5 = digest },
        .cond = cond,
        .meta = id ? &meta : NULL,
        .deadline_ns = within(ns),
    };
    int result = on_time(store_put(store, &req, &res, &err));
    meta_release(&meta);
    return result;
}

static const struct store_cond absent = { STORE_COND_ABSENT, NULL };
static const struct store_cond any = { STORE_COND_NONE, NULL };

static void
put_ok(const char *key, const char *text)
{
    assert_int_equal(put_at(key, text, any, NULL, 10 * NS_PER_S), 0);
}

/* ---- PUT ---- */

struct put_row {
    const char *fault;
    unsigned arg;
    unsigned puts; /* requests that reach the server */
};

/* Carried out or not, in the end the write is there exactly as asked, and the caller knows it (INV-10). */
static const struct put_row put_rows[] = {
    { "error500", 0, 2 },       { "error502", 0, 2 },       { "error504", 0, 2 },
    { "slowdown", 0, 2 },       { "busy429", 1, 2 },        { "request_timeout", 0, 2 },
    { "race409", 0, 2 },        { "reset_before", 0, 2 },   { "error200", 0, 2 },
    { "silent", 0, 2 },         { "reset_after", 0, 1 },    { "lost", 0, 1 },
    { "error500_after", 0, 1 }, { "error200_after", 0, 1 }, { "no_etag", 0, 1 },
    { "wrong_etag", 0, 1 },     { "long_length", 0, 1 },
};

static void
put_creates_once(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(put_rows); i++) {
        /* Without a kept connection: libcurl sends a request that broke on one again by itself. */
        (void)end(NULL);
        (void)begin(NULL);
        fault(put_rows[i].fault, "PUT", 1, put_rows[i].arg);
        if (put_at("dir/new", "the bytes", absent, "01WRITE", 2 * SHORT) < 0)
            fail_msg("%s: %s", put_rows[i].fault, err.msg);
        assert_int_equal(res.outcome, STORE_DONE);
        assert_string_equal(res.etag, "ab48e870377e5d9fbe11663949e229b0");
        assert_raw("dir/new", "the bytes");
        assert_int_equal(seen("PUT"), put_rows[i].puts);
    }
}

static void
put_replaces_once(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(put_rows); i++) {
        control("/_reset");
        put_ok("k", "old");
        char etag[LIMIT_ETAG];
        memcpy(etag, res.etag, sizeof(etag));
        fault(put_rows[i].fault, "PUT", 1, put_rows[i].arg);
        if (put_at("k", "new bytes", (struct store_cond){ STORE_COND_MATCH, etag }, "01WRITE",
                   2 * SHORT) < 0)
            fail_msg("%s: %s", put_rows[i].fault, err.msg);
        assert_int_equal(res.outcome, STORE_DONE);
        assert_raw("k", "new bytes");
    }
}

/* A held-back attempt lands after its retry: the condition keeps it from doing harm. */
static void
put_late(void **state)
{
    (void)state;
    fault("late", "PUT", 1, 700);
    assert_int_equal(put_at("k", "bytes", absent, "01W", 2 * SHORT), 0);
    assert_int_equal(res.outcome, STORE_DONE);
    char etag[LIMIT_ETAG];
    memcpy(etag, res.etag, sizeof(etag));
    assert_int_equal(
        put_at("k", "newer", (struct store_cond){ STORE_COND_MATCH, etag }, "02W", SHORT), 0);
    clock_sleep_ns(900 * NS_PER_MS);
    assert_raw("k", "newer");
}

static void
put_conflicts(void **state)
{
    (void)state;
    put_ok("k", "theirs");
    assert_int_equal(put_at("k", "mine", absent, "01W", SHORT), -1);
    assert_int_equal(err.code, ERR_CONFLICT);
    assert_int_equal(res.outcome, STORE_REFUSED);
    /* The same after a lost answer. */
    fault("reset_after", "PUT", 1, 0);
    assert_int_equal(put_at("k", "mine", absent, "01W", 2 * SHORT), -1);
    assert_int_equal(err.code, ERR_CONFLICT);
    assert_int_equal(res.outcome, STORE_REFUSED);
    assert_raw("k", "theirs");
    /* If-Match on a key that is gone. */
    const struct store_cond gone = { STORE_COND_MATCH, "d41d8cd98f00b204e9800998ecf8427e" };
    assert_int_equal(put_at("none", "mine", gone, "01W", SHORT), -1);
    assert_int_equal(err.code, ERR_CONFLICT);
    assert_int_equal(res.outcome, STORE_REFUSED);
    assert_raw("none", NULL);
}

/* Without a write id nobody can say whose the same bytes are. */
static void
put_without_id_stays_unknown(void **state)
{
    (void)state;
    fault("reset_after", "PUT", 1, 0);
    assert_int_equal(put_at("k", "bytes", absent, NULL, SHORT), -1);
    assert_int_equal(res.outcome, STORE_UNKNOWN);
    assert_int_not_equal(err.code, ERR_CONFLICT);
}

static void
put_undecided(void **state)
{
    (void)state;
    /* The answer is lost and the store silent from then on: it has landed, and nobody can know. */
    fault("lost", "PUT", 1, 0);
    fault("silent", "*", 100, 0);
    assert_int_equal(put_at("k", "bytes", absent, "01W", SHORT), -1);
    assert_int_equal(res.outcome, STORE_UNKNOWN);
    assert_int_equal(err.code, ERR_STORE_TIMEOUT);
    control("/_reset");
    fault("error500", "*", 1000, 0);
    assert_int_equal(put_at("k", "bytes", absent, "01W", SHORT), -1);
    assert_int_equal(res.outcome, STORE_UNKNOWN);
    assert_int_equal(err.code, ERR_STORE_AWAY);
}

/* Looking is tried again too. */
static void
put_looks_again(void **state)
{
    (void)state;
    fault("reset_after", "PUT", 1, 0);
    fault("error500", "HEAD", 2, 0);
    assert_int_equal(put_at("k", "bytes", absent, "01W", 2 * SHORT), 0);
    assert_int_equal(res.outcome, STORE_DONE);
    assert_int_equal(seen("PUT"), 1);
}

/* Answers that trying again does not change are not tried again. */
static void
put_final_answers(void **state)
{
    (void)state;
    const struct {
        const char *fault, *text;
    } rows[] = { { "denied", "policy" },
                 { "expired", "fresh" },
                 { "wrong_region", "region=eu-west-3" } };
    for (size_t i = 0; i < COUNT(rows); i++) {
        control("/_reset");
        fault(rows[i].fault, "PUT", 5, 0);
        assert_int_equal(put_at("k", "bytes", absent, "01W", SHORT), -1);
        assert_int_equal(err.code, ERR_STORE_DENIED);
        assert_int_equal(res.outcome, STORE_NOT_DONE);
        assert_non_null(strstr(err.msg, rows[i].text));
        assert_int_equal(seen("PUT"), 1);
    }
}

/* ---- GET ---- */

#define BIG 100000
static char big[BIG + 1];

static void
make_big(void)
{
    for (int i = 0; i < BIG; i++)
        big[i] = (char)('a' + (i * 7 + i / 26) % 26);
    big[BIG] = '\0';
}

static int
collect(void *arg, const void *data, size_t len, struct err *failure)
{
    return buf_append(arg, data, len, failure);
}

static int
get_at(const char *key, uint64_t off, uint64_t len, const char *if_match, struct buf *out,
       int64_t ns)
{
    struct store_object object;
    const struct store_get req = { .key = key,
                                   .off = off,
                                   .len = len,
                                   .if_match = if_match,
                                   .sink = collect,
                                   .sink_arg = out,
                                   .deadline_ns = within(ns) };
    store_object_init(&object);
    buf_clear(out);
    int result = on_time(store_get(store, &req, &object, &err));
    store_object_release(&object);
    return result;
}

/* The sink sees each byte once (INV-9). */
static void
get_goes_on(void **state)
{
    (void)state;
    const struct {
        const char *fault;
        unsigned count, arg;
    } rows[] = { { "cut", 1, 30000 },   { "cut", 3, 20000 },  { "cut", 1, 0 },
                 { "stall", 1, 50000 }, { "silent", 1, 0 },   { "reset_before", 2, 0 },
                 { "error500", 2, 0 },  { "slowdown", 1, 0 }, { "busy429", 1, 1 } };
    scope_buf out;
    buf_init(&out, 1u << 20);
    make_big();
    put_ok("big", big);
    for (size_t i = 0; i < COUNT(rows); i++) {
        fault(rows[i].fault, "GET", rows[i].count, rows[i].arg);
        if (get_at("big", 0, 0, res.etag, &out, 3 * SHORT) < 0)
            fail_msg("%s: %s", rows[i].fault, err.msg);
        assert_int_equal(out.len, BIG);
        assert_memory_equal(out.data, big, BIG);
        fault(rows[i].fault, "GET", rows[i].count, rows[i].arg);
        assert_int_equal(get_at("big", 1234, 70000, NULL, &out, 3 * SHORT), 0);
        assert_int_equal(out.len, 70000);
        assert_memory_equal(out.data, big + 1234, 70000);
    }
}

static void
get_bad_answers(void **state)
{
    (void)state;
    const char *rows[] = { "no_length",   "long_length", "no_etag",  "wrong_etag",
                           "other_range", "wrong_range", "error200", "html404" };
    scope_buf out;
    buf_init(&out, 1u << 20);
    make_big();
    put_ok("big", big);
    for (size_t i = 0; i < COUNT(rows); i++) {
        bool ranged = strstr(rows[i], "range") != NULL;
        fault(rows[i], "GET", 1, 0);
        assert_int_equal(get_at("big", ranged ? 10 : 0, ranged ? 500 : 0, res.etag, &out, SHORT),
                         -1);
        if (err.code != ERR_STORE_BAD_ANSWER)
            fail_msg("%s: code %d %s", rows[i], err.code, err.msg);
        /* What the sink got is the object's, as far as it goes. */
        assert_memory_equal(buf_cstr(&out), big + (ranged ? 10 : 0), out.len);
    }
}

static void
get_flipped_byte(void **state)
{
    (void)state;
    scope_buf out;
    char hex[SHA256_HEX];
    uint8_t digest[SHA256_SIZE];
    struct meta meta;
    const char *text = "some bytes that matter";
    buf_init(&out, 4096);
    meta_init(&meta);
    assert_int_equal(sha256(text, strlen(text), digest, &err), 0);
    hex_encode(digest, sizeof(digest), hex);
    assert_int_equal(meta_set(&meta, "holdfast-sha256", hex, &err), 0);
    assert_int_equal(md5(text, strlen(text), digest, &err), 0);
    hex_encode(digest, MD5_SIZE, hex);
    assert_int_equal(meta_set(&meta, "holdfast-md5", hex, &err), 0);
    assert_int_equal(meta_set(&meta, "holdfast-size", "22", &err), 0);
    const struct store_put req = { .key = "k",
                                   .body = { .mem = text, .fd = -1, .size = strlen(text) },
                                   .meta = &meta };
    assert_int_equal(store_put(store, &req, &res, &err), 0);
    fault("flip", "GET", 1, 0);
    assert_int_equal(get_at("k", 0, 0, NULL, &out, SHORT), -1);
    assert_int_equal(err.code, ERR_STORE_BAD_ANSWER);
    assert_non_null(strstr(err.msg, "checksum mismatch"));
    assert_int_equal(get_at("k", 0, 0, NULL, &out, SHORT), 0);
    assert_string_equal(buf_cstr(&out), text);
    meta_release(&meta);
}

struct overwriter {
    struct store *other;
    struct buf got;
    bool done;
};

static int
overwrite_then_collect(void *arg, const void *data, size_t len, struct err *failure)
{
    struct overwriter *overwriter = arg;
    if (!overwriter->done) {
        overwriter->done = true;
        if (store_put_small(overwriter->other, "big", "other", 5, any, &res, failure) < 0)
            return -1;
    }
    return buf_append(&overwriter->got, data, len, failure);
}

/* INV-1: the object is replaced while a cut GET is gone on with. */
static void
get_never_mixes_versions(void **state)
{
    (void)state;
    struct store_object object;
    struct overwriter overwriter = { .other = open_store("test", server_port, false) };
    const struct store_get req = { .key = "big",
                                   .sink = overwrite_then_collect,
                                   .sink_arg = &overwriter,
                                   .deadline_ns = within(2 * SHORT) };
    make_big();
    put_ok("big", big);
    buf_init(&overwriter.got, 1u << 20);
    store_object_init(&object);
    fault("cut", "GET", 1, 40000);
    assert_int_equal(store_get(store, &req, &object, &err), -1);
    assert_int_equal(err.code, ERR_CONFLICT);
    assert_int_equal(overwriter.got.len, 40000);
    assert_memory_equal(overwriter.got.data, big, 40000);
    buf_release(&overwriter.got);
    store_object_release(&object);
    store_free(overwriter.other);
}

static void
get_away(void **state)
{
    (void)state;
    scope_buf out;
    buf_init(&out, 4096);
    put_ok("k", "bytes");
    fault("silent", "*", 100, 0);
    assert_int_equal(get_at("k", 0, 0, NULL, &out, SHORT), -1);
    assert_int_equal(err.code, ERR_STORE_TIMEOUT);
    control("/_reset");
    fault("error500", "*", 1000, 0);
    assert_int_equal(get_at("k", 0, 0, NULL, &out, SHORT), -1);
    assert_int_equal(err.code, ERR_STORE_AWAY); /* never "not found" */
}

/* ---- HEAD ---- */

static int
head_of(struct store *from, const char *key, int64_t ns)
{
    struct store_object object;
    store_object_init(&object);
    int result = on_time(store_head(from, key, within(ns), &object, &err));
    store_object_release(&object);
    return result;
}

static void
head_answers(void **state)
{
    (void)state;
    put_ok("k", "bytes");
    const char *passing[] = { "error500", "slowdown", "reset_before", "silent", "lost" };
    for (size_t i = 0; i < COUNT(passing); i++) {
        fault(passing[i], "HEAD", 1, 0);
        assert_int_equal(head_of(store, "k", 2 * SHORT), 0);
    }
    fault("no_etag", "HEAD", 1, 0);
    assert_int_equal(head_of(store, "k", SHORT), -1);
    assert_int_equal(err.code, ERR_STORE_BAD_ANSWER);
    fault("denied", "HEAD", 1, 0);
    assert_int_equal(head_of(store, "k", SHORT), -1);
    assert_int_equal(err.code, ERR_STORE_DENIED);
    assert_int_equal(head_of(store, "none", SHORT), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
}

/* INV-9: a missing bucket is not a missing key, and a HEAD has no body to say so. */
static void
no_bucket_and_wrong_keys(void **state)
{
    (void)state;
    scope_buf out;
    buf_init(&out, 4096);
    struct store *none = open_store("nobucket", server_port, false);
    struct store *wrong = open_store("test", server_port, true);
    assert_int_equal(head_of(none, "k", SHORT), -1);
    assert_int_equal(err.code, ERR_STORE_NO_BUCKET);
    assert_int_equal(head_of(wrong, "k", SHORT), -1);
    assert_int_equal(err.code, ERR_STORE_DENIED);
    assert_non_null(strstr(err.msg, "secret key"));
    assert_int_equal(store_put_small(none, "k", "x", 1, any, &res, &err), -1);
    assert_int_equal(err.code, ERR_STORE_NO_BUCKET);
    assert_int_equal(store_put_small(wrong, "k", "x", 1, any, &res, &err), -1);
    assert_int_equal(err.code, ERR_STORE_DENIED);
    store_free(none);
    store_free(wrong);
}

static void
nobody_listens(void **state)
{
    (void)state;
    struct store *away = open_store("test", 1, false);
    assert_int_equal(head_of(away, "k", NS_PER_S), -1);
    assert_int_equal(err.code, ERR_STORE_AWAY);
    const struct store_put req = { .key = "k",
                                   .body = { .mem = "x", .fd = -1, .size = 1 },
                                   .deadline_ns = within(NS_PER_S) };
    assert_int_equal(on_time(store_put(away, &req, &res, &err)), -1);
    assert_int_equal(res.outcome, STORE_NOT_DONE);
    store_free(away);
}

/* ---- DELETE and COPY ---- */

static int
delete_at(const char *key, const char *if_match, enum store_outcome *outcome)
{
    const struct store_delete req = { .key = key,
                                      .if_match = if_match,
                                      .deadline_ns = within(SHORT) };
    return on_time(store_delete(store, &req, outcome, &err));
}

static void
deletes(void **state)
{
    (void)state;
    const char *rows[] = { "error500", "slowdown", "reset_before",  "reset_after",
                           "lost",     "silent",   "error500_after" };
    enum store_outcome outcome;
    for (size_t i = 0; i < COUNT(rows); i++) {
        put_ok("k", "bytes");
        char etag[LIMIT_ETAG];
        memcpy(etag, res.etag, sizeof(etag));
        fault(rows[i], "DELETE", 1, 0);
        if (delete_at("k", i % 2 ? etag : NULL, &outcome) < 0)
            fail_msg("%s: %s", rows[i], err.msg);
        assert_int_equal(outcome, STORE_DONE);
        assert_raw("k", NULL);
    }
    put_ok("k", "bytes");
    assert_int_equal(delete_at("k", "d41d8cd98f00b204e9800998ecf8427e", &outcome), -1);
    assert_int_equal(outcome, STORE_REFUSED);
    assert_raw("k", "bytes");
    fault("silent", "*", 100, 0);
    assert_int_equal(delete_at("k", NULL, &outcome), -1);
    assert_int_equal(outcome, STORE_UNKNOWN);
}

static int
copy_at(const char *from, const char *etag, const char *to)
{
    const struct store_copy req = {
        .from = from, .from_if_match = etag, .to = to, .deadline_ns = within(2 * SHORT)
    };
    return on_time(store_copy(store, &req, &res, &err));
}

static void
copies(void **state)
{
    (void)state;
    const char *rows[] = { "error500", "slowdown", "reset_before",   "reset_after",   "lost",
                           "error200", "silent",   "error500_after", "error200_after" };
    char etag[LIMIT_ETAG];
    char to[32];
    put_ok("k", "bytes");
    memcpy(etag, res.etag, sizeof(etag));
    for (size_t i = 0; i < COUNT(rows); i++) {
        (void)snprintf(to, sizeof(to), "copy/%zu", i);
        fault(rows[i], "COPY", 1, 0);
        if (copy_at("k", etag, to) < 0)
            fail_msg("%s: %s", rows[i], err.msg);
        assert_int_equal(res.outcome, STORE_DONE);
        assert_raw(to, "bytes");
    }
    put_ok("k", "newer");
    assert_int_equal(copy_at("k", etag, "copy/stale"), -1);
    assert_int_equal(res.outcome, STORE_REFUSED);
    assert_raw("copy/stale", NULL);
    /* A store that ignores the condition copies the wrong version: it is noticed and removed. */
    fault("ignore_conditions", "COPY", 1, 0);
    assert_int_equal(copy_at("k", etag, "copy/stale"), -1);
    assert_int_equal(err.code, ERR_CONFLICT);
    assert_int_equal(res.outcome, STORE_REFUSED);
    assert_raw("copy/stale", NULL);
    assert_int_equal(copy_at("none", NULL, "copy/none"), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
}

/* ---- LIST ---- */

static int
note_key(void *arg, const struct store_list_entry *entry, struct err *failure)
{
    return buf_appendf(arg, failure, "%s,", entry->key);
}

static int
list_keys(struct buf *out)
{
    const struct store_list req = {
        .prefix = "d/", .fn = note_key, .arg = out, .deadline_ns = within(2 * SHORT)
    };
    buf_clear(out);
    return on_time(store_list(store, &req, &err));
}

static void
lists(void **state)
{
    (void)state;
    const char *want = "d/0,d/1,d/2,d/3,d/4,d/5,d/6,d/7,";
    const char *passing[] = { "none",   "error500", "slowdown", "reset_before",
                              "silent", "cut",      "error200", "empty_page" };
    const char *failing[] = { "same_token", "no_token", "foreign_key", "dup_page", "html404" };
    scope_buf out;
    buf_init(&out, 65536);
    for (char c = '0'; c < '8'; c++) {
        char key[] = { 'd', '/', c, '\0' };
        put_ok(key, "x");
    }
    put_ok("e", "x");
    control("/_mode?page=3");
    for (size_t i = 0; i < COUNT(passing); i++) {
        /* On the second page. */
        control("/_fault?kind=%s&op=LIST&skip=1&count=1&arg=20", passing[i]);
        if (list_keys(&out) < 0)
            fail_msg("%s: %s", passing[i], err.msg);
        assert_string_equal(buf_cstr(&out), want);
    }
    for (size_t i = 0; i < COUNT(failing); i++) {
        control("/_fault?kind=%s&op=LIST&skip=1&count=1", failing[i]);
        assert_int_equal(list_keys(&out), -1);
        if (err.code != ERR_STORE_BAD_ANSWER)
            fail_msg("%s: code %d %s", failing[i], err.code, err.msg);
        /* What was passed on is true and in order. */
        assert_memory_equal(buf_cstr(&out), want, out.len);
    }
    /* Empty pages that lead back to themselves. */
    control("/_fault?kind=same_token&op=LIST&skip=1&count=3&arg=1");
    assert_int_equal(list_keys(&out), -1);
    assert_int_equal(err.code, ERR_STORE_BAD_ANSWER);
}

/* ---- clock, load, probe, links ---- */

static void
wrong_clock(void **state)
{
    (void)state;
    struct store_counters before;
    struct store_counters after;
    control("/_mode?skew=1800");
    put_ok("k", "bytes");
    assert_int_equal(head_of(store, "k", SHORT), 0);
    store_counters(store, &before);
    put_ok("k", "bytes2");
    store_counters(store, &after);
    assert_int_equal(after.requests - before.requests, 1); /* learned once */
    /* A HEAD has no body that names the reason. */
    struct store *fresh = open_store("test", server_port, false);
    assert_int_equal(head_of(fresh, "k", SHORT), 0);
    store_free(fresh);
    control("/_mode?skew=0");
    assert_int_equal(head_of(store, "k", SHORT), 0); /* and back */
}

struct worker {
    pthread_t thread;
    int number;
    int failures;
};

static void *
work(void *arg)
{
    struct worker *worker = arg;
    for (int i = 0; i < 10; i++) {
        struct err own = ERR_INIT;
        struct store_put_result result;
        char key[32];
        (void)snprintf(key, sizeof(key), "w/%d-%d", worker->number, i);
        worker->failures +=
            store_put_small(store, key, key, strlen(key), absent, &result, &own) < 0;
    }
    return NULL;
}

static void
slowdown_under_load(void **state)
{
    (void)state;
    struct worker workers[8];
    struct store_counters counters;
    scope_buf out;
    buf_init(&out, 65536);
    fault("slowdown", "PUT", 30, 0);
    for (int i = 0; i < 8; i++) {
        workers[i] = (struct worker){ .number = i };
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < 8; i++) {
        pthread_join(workers[i].thread, NULL);
        assert_int_equal(workers[i].failures, 0);
    }
    store_counters(store, &counters);
    assert_int_equal(counters.retries, 30);
    assert_int_equal(seen("PUT"), 110);
    assert_raw("w/7-9", "w/7-9");
}

static void
probe_tells_the_truth(void **state)
{
    (void)state;
    scope_buf out;
    buf_init(&out, 4096);
    assert_int_equal(store_probe(store, &err), 0);
    assert_int_equal(store->caps.put_if_absent, STORE_YES);
    assert_int_equal(store->caps.put_if_match, STORE_YES);
    assert_int_equal(store->caps.put_atomic, STORE_YES);
    assert_int_equal(store->caps.delete_if_match, STORE_YES);
    assert_int_equal(store->caps.copy_source_if_match, STORE_YES);
    assert_int_equal(store->caps.copy_dest_conditions, STORE_NO);
    assert_int_equal(store->caps.etag_quoted, STORE_YES);
    assert_int_equal(store->caps.list_consistent, STORE_YES);
    assert_int_equal(store->caps.presign, STORE_YES);
    fault("ignore_conditions", "*", 1, 0);
    assert_int_equal(store_probe(store, &err), 0);
    assert_int_equal(store->caps.put_if_absent, STORE_NO);
    assert_int_equal(store->caps.put_if_match, STORE_NO);
    assert_int_equal(store->caps.put_atomic, STORE_NO);
    assert_int_equal(store->caps.delete_if_match, STORE_NO);
    assert_int_equal(store->caps.copy_source_if_match, STORE_NO);
    const struct store_list req = { .prefix = "", .fn = note_key, .arg = &out };
    assert_int_equal(store_list(store, &req, &err), 0);
    assert_int_equal(out.len, 0); /* nothing is left behind */
}

static void
presigned_links(void **state)
{
    (void)state;
    char got[64];
    scope_buf url;
    buf_init(&url, 8192);
    put_ok("a b/\xc3\xa4!*", "linked");
    const struct store_presign req = { .method = "GET",
                                       .key = "a b/\xc3\xa4!*",
                                       .expires_s = 60,
                                       .response_content_disposition = "attachment; filename=x" };
    assert_int_equal(store_presign(store, &req, &url, &err), 0);
    const char *target = strchr(buf_cstr(&url) + strlen("http://"), '/');
    assert_int_equal(plain_request("GET", target, got, sizeof(got)), 200);
    assert_string_equal(got, "linked");
    assert_int_equal(plain_request("HEAD", target, got, sizeof(got)), 403); /* another method */
    control("/_mode?skew=61");
    assert_int_equal(plain_request("GET", target, got, sizeof(got)), 403);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(put_creates_once),
        TEST(put_replaces_once),
        TEST(put_late),
        TEST(put_conflicts),
        TEST(put_without_id_stays_unknown),
        TEST(put_undecided),
        TEST(put_looks_again),
        TEST(put_final_answers),
        TEST(get_goes_on),
        TEST(get_bad_answers),
        TEST(get_flipped_byte),
        TEST(get_never_mixes_versions),
        TEST(get_away),
        TEST(head_answers),
        TEST(no_bucket_and_wrong_keys),
        TEST(nobody_listens),
        TEST(deletes),
        TEST(copies),
        TEST(lists),
        TEST(wrong_clock),
        TEST(slowdown_under_load),
        TEST(probe_tells_the_truth),
        TEST(presigned_links),
    };
    return cmocka_run_group_tests(tests, start_server, stop_server);
}
