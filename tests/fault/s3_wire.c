#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/parse.h"
#include "s3/open.h"

/*
 * What goes over the wire, byte for byte: stores differ in what they take beside the signature, and none takes everything. A
 * server of a few lines keeps the heads of the requests and answers each with what a store would say.
 */

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define HEAD_MAX 16384
#define HEADS_MAX 16

static int listener = -1;
static unsigned port;
static pthread_t server;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* the two below */
static char heads[HEADS_MAX][HEAD_MAX];
static unsigned head_count;

/* ---- the server ---- */

/* For a test whose store answers in its own way; called on the server's thread. */
static _Atomic(const char *(*)(const char *head)) special;

static const char *
answer_to(const char *head)
{
    static const char *const ok = "HTTP/1.1 200 OK\r\nETag: \"e1\"\r\nConnection: close\r\n"
                                  "Content-Length: 0\r\n\r\n";
    static const char *const gone =
        "HTTP/1.1 204 No Content\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    static const char *const bytes = "HTTP/1.1 200 OK\r\nETag: \"e1\"\r\nConnection: close\r\n"
                                     "Content-Length: 5\r\n\r\nbytes";
    static const char *const copied =
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 56\r\n\r\n"
        "<CopyObjectResult><ETag>\"e1\"</ETag></CopyObjectResult>  ";
    static const char *const list =
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 71\r\n\r\n"
        "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>  ";
    if (strncmp(head, "DELETE ", 7) == 0)
        return gone;
    if (strncmp(head, "GET ", 4) == 0)
        return strstr(head, "list-type=2") ? list : bytes;
    return strcasestr(head, "\nx-amz-copy-source:") ? copied : ok;
}

static atomic_uint cuts; /* so many next PUTs are broken off in the middle of their body */

/* Reads a head and the body behind it; the length of the head, 0 for none. */
static size_t
read_request(int fd, char *head)
{
    size_t len = 0;
    char *end = NULL, body[4096];
    while (!end && len < HEAD_MAX - 1) {
        ssize_t got = read(fd, head + len, HEAD_MAX - 1 - len);
        if (got <= 0)
            return 0;
        len += (size_t)got;
        head[len] = '\0';
        end = strstr(head, "\r\n\r\n");
    }
    if (!end)
        return 0;
    const char *length = strcasestr(head, "\ncontent-length:");
    size_t left = length && length < end ? strtoul(length + 16, NULL, 10) : 0;
    size_t have = len - (size_t)(end + 4 - head);
    bool cut = strncmp(head, "PUT ", 4) == 0 && atomic_load(&cuts) > 0;
    if (cut)
        left = left / 16;
    while (have < left) {
        ssize_t got = read(fd, body, sizeof(body));
        if (got <= 0)
            return 0;
        have += (size_t)got;
    }
    end[2] = '\0';
    if (cut)
        atomic_fetch_sub(&cuts, 1);
    return cut ? 0 : (size_t)(end + 2 - head);
}

static void *
serve(void *arg)
{
    static char head[HEAD_MAX];
    (void)arg;
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        if (fd < 0)
            return NULL;
        if (read_request(fd, head) > 0) {
            const char *(*own)(const char *) = atomic_load(&special);
            const char *answer = own ? own(head) : answer_to(head);
            pthread_mutex_lock(&lock);
            if (head_count < HEADS_MAX)
                memcpy(heads[head_count++], head, HEAD_MAX);
            pthread_mutex_unlock(&lock);
            (void)!write(fd, answer, strlen(answer));
        }
        close(fd);
    }
}

static int
start(void **state)
{
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof(address);
    (void)state;
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, size) < 0 ||
        listen(listener, 8) < 0 || getsockname(listener, (struct sockaddr *)&address, &size) < 0)
        return -1;
    port = ntohs(address.sin_port);
    return pthread_create(&server, NULL, serve, NULL);
}

static int
stop(void **state)
{
    (void)state;
    (void)shutdown(listener, SHUT_RDWR);
    pthread_join(server, NULL);
    close(listener);
    return 0;
}

/* ---- the client under test ---- */

static struct store *store;
static struct err err;

static int
some_keys(void *arg, struct s3_credentials *out, struct err *failure)
{
    (void)arg;
    (void)failure;
    memset(out, 0, sizeof(*out));
    memcpy(out->access_key, "ACCESS", 7);
    memcpy(out->secret_key, "SECRET", 7);
    return 0;
}

static void
open_style(const char *host, const char *style)
{
    char url[256];
    (void)snprintf(url, sizeof(url), "s3://bucket/pre?endpoint=http://%s:%u&region=eu&style=%s",
                   host, port, style);
    const struct store_open_args args = { .url = url, .credentials = some_keys };
    store_free(store);
    store = s3_store_open(&args, &err);
    if (!store)
        fail_msg("%s", err.msg);
}

static int
begin(void **state)
{
    (void)state;
    pthread_mutex_lock(&lock);
    head_count = 0;
    pthread_mutex_unlock(&lock);
    open_style("127.0.0.1", "path");
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

#define OK(call)                                \
    do {                                        \
        if ((call) != 0)                        \
            fail_msg("%s: %s", #call, err.msg); \
    } while (0)

static int64_t
soon(void)
{
    return clock_mono_ns() + 10 * NS_PER_S;
}

static void
put(const char *key, const char *text, const uint8_t *digest)
{
    const struct store_put req = {
        .key = key,
        .body = { .mem = text, .fd = -1, .size = strlen(text), .md5 = digest },
        .deadline_ns = soon(),
    };
    struct store_put_result res;
    OK(store_put(store, &req, &res, &err));
}

static int
to_nowhere(void *arg, const void *data, size_t len, struct err *failure)
{
    (void)arg;
    (void)data;
    (void)len;
    (void)failure;
    return 0;
}

static void
get(const char *key)
{
    const struct store_get req = { .key = key, .sink = to_nowhere, .deadline_ns = soon() };
    OK(store_get(store, &req, NULL, &err));
}

static void
copy(const char *from, const char *to)
{
    const struct store_copy req = { .from = from, .to = to, .deadline_ns = soon() };
    struct store_put_result res;
    OK(store_copy(store, &req, &res, &err));
}

static int
no_entry(void *arg, const struct store_list_entry *entry, struct err *failure)
{
    (void)arg;
    return err_set(failure, ERR_INTERNAL, "'%s' was never put", entry->key);
}

/* One call of each kind. */
static void
call_everything(void)
{
    const struct store_delete del = { .key = "k", .deadline_ns = soon() };
    const struct store_list list = { .prefix = "", .fn = no_entry, .deadline_ns = soon() };
    put("k", "some bytes", NULL);
    put("empty", "", NULL);
    OK(store_head(store, "k", soon(), NULL, &err));
    get("k");
    copy("k", "to");
    OK(store_delete(store, &del, NULL, &err));
    OK(store_list(store, &list, &err));
}

/* How often the head has this header. */
static unsigned
fields(const char *head, const char *name)
{
    unsigned count = 0;
    for (const char *at = strchr(head, '\n'); at; at = strchr(at + 1, '\n'))
        count += strncasecmp(at + 1, name, strlen(name)) == 0 && at[1 + strlen(name)] == ':';
    return count;
}

static const char *
field(const char *head, const char *name)
{
    static char value[HEAD_MAX];
    for (const char *at = strchr(head, '\n'); at; at = strchr(at + 1, '\n')) {
        if (strncasecmp(at + 1, name, strlen(name)) != 0 || at[1 + strlen(name)] != ':')
            continue;
        at += 2 + strlen(name);
        at += strspn(at, " ");
        (void)snprintf(value, sizeof(value), "%.*s", (int)strcspn(at, "\r\n"), at);
        return value;
    }
    return "";
}

static bool
begins(const char *head, const char *method)
{
    return strncmp(head, method, strlen(method)) == 0 && head[strlen(method)] == ' ';
}

/* The only request with this method and target. */
static const char *
head_of(const char *method, const char *target)
{
    const char *found = NULL;
    for (unsigned i = 0; i < head_count; i++) {
        const char *at = heads[i] + strlen(method) + 1;
        if (!begins(heads[i], method) || strncmp(at, target, strlen(target)) != 0 ||
            at[strlen(target)] != ' ')
            continue;
        if (found)
            fail_msg("%s %s came twice", method, target);
        found = heads[i];
    }
    if (!found)
        fail_msg("no %s %s", method, target);
    return found;
}

/* ---- the tests ---- */

/* B141: what has no body says nothing about one. */
static void
no_body_no_body_headers(void **state)
{
    (void)state;
    unsigned seen = 0;
    call_everything();
    for (unsigned i = 0; i < head_count; i++) {
        if (begins(heads[i], "PUT"))
            continue;
        seen++;
        assert_int_equal(fields(heads[i], "content-length"), 0);
        assert_int_equal(fields(heads[i], "content-type"), 0);
        assert_int_equal(fields(heads[i], "transfer-encoding"), 0);
    }
    assert_int_equal(seen, 5); /* HEAD, also of what was copied, GET, DELETE, the listing */
}

/* B198: no bytes are a body too, for a PUT; so are those of a copy. */
static void
an_empty_body_has_a_length(void **state)
{
    (void)state;
    call_everything();
    assert_string_equal(field(head_of("PUT", "/bucket/pre/empty"), "content-length"), "0");
    assert_string_equal(field(head_of("PUT", "/bucket/pre/to"), "content-length"), "0");
    assert_string_equal(field(head_of("PUT", "/bucket/pre/k"), "content-length"), "10");
}

/* B091, B092, B093: no checksum that nobody asked for, no chunks with signatures, no trailers; the payload's own hash. */
static void
no_checksums_but_the_payloads(void **state)
{
    (void)state;
    static const char *const never[] = { "x-amz-checksum",  "x-amz-sdk-checksum",
                                         "x-amz-trailer",   "aws-chunked",
                                         "streaming-",      "transfer-encoding",
                                         "content-encoding" };
    uint8_t digest[SHA256_SIZE];
    char hex[SHA256_HEX];
    call_everything();
    for (unsigned i = 0; i < head_count; i++) {
        for (size_t k = 0; k < COUNT(never); k++) {
            if (strcasestr(heads[i], never[k]))
                fail_msg("'%s' in %s", never[k], heads[i]);
        }
    }
    OK(sha256("some bytes", 10, digest, &err));
    hex_encode(digest, sizeof(digest), hex);
    assert_string_equal(field(head_of("PUT", "/bucket/pre/k"), "x-amz-content-sha256"), hex);
    /* The MD5 of RFC 1864 when the caller has one. */
    OK(md5("hello", 5, digest, &err));
    put("m", "hello", digest);
    assert_string_equal(field(head_of("PUT", "/bucket/pre/m"), "content-md5"),
                        "XUFAKrxLKna5cZ2REBfFkg==");
}

/* To a store on this machine: what the server would hash only for the signature goes unsigned, if the MD5 says that it is whole. */
static void
large_bodies_go_unsigned_with_their_md5(void **state)
{
    (void)state;
    enum { SIZE = 9 << 20 };
    uint8_t sha[SHA256_SIZE], md[MD5_SIZE];
    char hex[SHA256_HEX];
    char *bytes = calloc(1, SIZE);
    assert_non_null(bytes);
    OK(sha256(bytes, SIZE, sha, &err));
    OK(md5(bytes, SIZE, md, &err));
    hex_encode(sha, sizeof(sha), hex);
    struct store_put req = {
        .key = "large",
        .body = { .mem = bytes, .fd = -1, .size = SIZE, .sha256 = sha, .md5 = md },
        .deadline_ns = soon()
    };
    struct store_put_result res;
    OK(store_put(store, &req, &res, &err));
    assert_string_equal(field(head_of("PUT", "/bucket/pre/large"), "x-amz-content-sha256"),
                        "UNSIGNED-PAYLOAD");
    assert_int_equal(fields(head_of("PUT", "/bucket/pre/large"), "content-md5"), 1);
    req.key = "large2";
    req.body.md5 = NULL;
    OK(store_put(store, &req, &res, &err));
    assert_string_equal(field(head_of("PUT", "/bucket/pre/large2"), "x-amz-content-sha256"), hex);
    free(bytes);
}

/* B196: one host, the one that is signed, on HTTP/1.1; nothing that makes a server wait. */
static void
one_host(void **state)
{
    (void)state;
    char want[64];
    call_everything();
    (void)snprintf(want, sizeof(want), "127.0.0.1:%u", port);
    for (unsigned i = 0; i < head_count; i++) {
        assert_int_equal(fields(heads[i], "host"), 1);
        assert_string_equal(field(heads[i], "host"), want);
        assert_non_null(strstr(heads[i], " HTTP/1.1\r\n"));
        assert_non_null(strstr(heads[i], "SignedHeaders="));
        assert_non_null(strstr(strstr(heads[i], "SignedHeaders="), "host;"));
        assert_int_equal(fields(heads[i], "expect"), 0);
        assert_int_equal(fields(heads[i], "upgrade"), 0);
    }
}

/* B086: the bytes as they are stored. */
static void
no_codings(void **state)
{
    (void)state;
    call_everything();
    for (unsigned i = 0; i < head_count; i++)
        assert_string_equal(field(heads[i], "accept-encoding"), "identity");
}

#define ODD "a+b c%20d#e?f&g=h"
#define ODD_CODED "a%2Bb%20c%2520d%23e%3Ff%26g%3Dh"

/* B073, B074, B076: a name is encoded once, in the path and in the source of a copy, which has the bucket in any style. */
static void
names_are_encoded_once(void **state)
{
    (void)state;
    char host[64];
    put(ODD, "x", NULL);
    copy(ODD, "path");
    (void)head_of("PUT", "/bucket/pre/" ODD_CODED);
    assert_string_equal(field(head_of("PUT", "/bucket/pre/path"), "x-amz-copy-source"),
                        "/bucket/pre/" ODD_CODED);
    open_style("localhost", "virtual");
    copy(ODD, "virtual");
    get(ODD);
    const char *head = head_of("PUT", "/pre/virtual");
    assert_string_equal(field(head, "x-amz-copy-source"), "/bucket/pre/" ODD_CODED);
    (void)snprintf(host, sizeof(host), "bucket.localhost:%u", port);
    assert_string_equal(field(head, "host"), host);
    (void)head_of("GET", "/pre/" ODD_CODED);
}

/* B094, B186, B187: a link has no checksum of bytes that nobody knows, and is encoded by RFC 3986 all over. */
static void
links_are_plain(void **state)
{
    (void)state;
    struct buf url;
    const struct store_presign req = { .method = "PUT",
                                       .key = "a b+c%/\xc3\xbc#?!*'()",
                                       .expires_s = 60,
                                       .response_content_disposition =
                                           "attachment; filename=\"a!b(1)*.txt\"; x=a+b c'" };
    buf_init(&url, 65536);
    OK(store_presign(store, &req, &url, &err));
    const char *text = buf_cstr(&url);
    assert_non_null(strstr(text, "/bucket/pre/a%20b%2Bc%25/%C3%BC%23%3F%21%2A%27%28%29?"));
    assert_non_null(strstr(text,
                           "response-content-disposition=attachment%3B%20filename%3D%22a%21b%281"
                           "%29%2A.txt%22%3B%20x%3Da%2Bb%20c%27"));
    assert_null(strcasestr(text, "checksum"));
    assert_null(strcasestr(text, "content-sha256"));
    assert_null(strchr(text, '+'));
    assert_non_null(strstr(text, "X-Amz-SignedHeaders=host&"));
    buf_release(&url);
}

/* Two pages of uploads that lead to each other. */
static const char *
circle(const char *head)
{
    static char answer[1024];
    char body[512];
    bool second = strstr(head, "key-marker=pre%2Fb") != NULL;
    int len =
        snprintf(body, sizeof(body),
                 "<ListMultipartUploadsResult><IsTruncated>true</IsTruncated><NextKeyMarker>"
                 "pre/%s</NextKeyMarker><NextUploadIdMarker>%s</NextUploadIdMarker><Upload>"
                 "<Key>pre/%s</Key><UploadId>%s</UploadId><Initiated>2026-01-01T00:00:00Z"
                 "</Initiated></Upload></ListMultipartUploadsResult>",
                 second ? "a" : "b", second ? "1" : "2", second ? "a" : "b", second ? "1" : "2");
    (void)snprintf(answer, sizeof(answer),
                   "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len,
                   body);
    return answer;
}

static int
count_upload(void *arg, const struct store_upload *upload, struct err *failure)
{
    unsigned *count = arg;
    (void)upload;
    return ++*count > 100 ? err_set(failure, ERR_CANCELED, "round and round") : 0;
}

/* B048: pages that go back are no list. */
static void
pages_do_not_go_back(void **state)
{
    (void)state;
    unsigned count = 0;
    atomic_store(&special, circle);
    int rc = store_uploads(store, "", count_upload, &count, &err);
    atomic_store(&special, NULL);
    assert_int_equal(rc, -1);
    assert_int_equal(err.code, ERR_STORE_BAD_ANSWER);
    assert_true(count <= 2);
}

/* A store that keeps the piece of a PUT that was cut, under the names that came with it. */
static const char *
keeps_pieces(const char *head)
{
    static const char *const piece =
        "HTTP/1.1 200 OK\r\nETag: \"piece\"\r\nConnection: close\r\nContent-Length: 100000\r\n"
        "x-amz-meta-holdfast-version: 01WRITE\r\n\r\n";
    static const char *const refused =
        "HTTP/1.1 412 Precondition Failed\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    if (strncmp(head, "HEAD ", 5) == 0)
        return piece;
    return strcasestr(head, "\nif-match: \"piece\"") ? answer_to(head) : refused;
}

/* B202: such a piece is ours, and no version of somebody else: the next attempt replaces it, and nothing but it. */
static void
a_piece_of_a_cut_write_is_replaced(void **state)
{
    (void)state;
    const size_t size = 24u << 20; /* more than the sockets hold */
    struct store_put_result res;
    struct meta meta;
    char *bytes = calloc(1, size);
    assert_non_null(bytes);
    meta_init(&meta);
    OK(meta_set(&meta, "holdfast-version", "01WRITE", &err));
    const struct store_put req = { .key = "k",
                                   .body = { .mem = bytes, .fd = -1, .size = size },
                                   .cond = { .kind = STORE_COND_ABSENT },
                                   .meta = &meta,
                                   .deadline_ns = soon() };
    atomic_store(&special, keeps_pieces);
    atomic_store(&cuts, 1);
    OK(store_put(store, &req, &res, &err));
    assert_int_equal(res.outcome, STORE_DONE);
    assert_string_equal(res.etag, "e1");
    /* Without a cut of ours the same object is another's. */
    assert_int_equal(store_put(store, &req, &res, &err), -1);
    assert_int_equal(err.code, ERR_CONFLICT);
    assert_int_equal(res.outcome, STORE_REFUSED);
    atomic_store(&special, NULL);
    meta_release(&meta);
    free(bytes);
}

/* The MD5 of other bytes than were sent. */
static const char *
keeps_less(const char *head)
{
    static char answer[512];
    (void)snprintf(
        answer, sizeof(answer),
        "HTTP/1.1 200 OK\r\nETag: \"5d41402abc4b2a76b9719d911017c592\"\r\nConnection: close\r\n"
        "Content-Length: %s\r\nx-amz-meta-holdfast-version: 01WRITE\r\n\r\n",
        strncmp(head, "HEAD ", 5) == 0 ? "5" : "0");
    return answer;
}

/* B144: a store that says yes and keeps less is found out, and the write is not called done. */
static void
a_store_that_keeps_less_is_found_out(void **state)
{
    (void)state;
    struct store_put_result res;
    struct meta meta;
    uint8_t digest[MD5_SIZE];
    meta_init(&meta);
    OK(meta_set(&meta, "holdfast-version", "01WRITE", &err));
    OK(md5("hello world", 11, digest, &err));
    const struct store_put req = {
        .key = "k",
        .body = { .mem = "hello world", .fd = -1, .size = 11, .md5 = digest },
        .meta = &meta,
        .deadline_ns = soon()
    };
    atomic_store(&special, keeps_less);
    assert_int_equal(store_put(store, &req, &res, &err), -1);
    atomic_store(&special, NULL);
    assert_int_equal(err.code, ERR_STORE_BAD_ANSWER);
    assert_int_equal(res.outcome, STORE_UNKNOWN);
    meta_release(&meta);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(no_body_no_body_headers),
        TEST(an_empty_body_has_a_length),
        TEST(no_checksums_but_the_payloads),
        TEST(large_bodies_go_unsigned_with_their_md5),
        TEST(one_host),
        TEST(no_codings),
        TEST(names_are_encoded_once),
        TEST(links_are_plain),
        TEST(pages_do_not_go_back),
        TEST(a_piece_of_a_cut_write_is_replaced),
        TEST(a_store_that_keeps_less_is_found_out),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
