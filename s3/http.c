#include "s3/http.h"

#include <ctype.h>
#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/parse.h"
#include "base/scope.h"
#include "base/sys.h"
#include "s3/http_tls.h"

#define CONNECT_TIMEOUT_MS 5000L
#define POLL_MAX_MS 1000

/* A handle with the connection that it keeps. Last in, first out, so that few stay warm. */
struct slot {
    struct slot *next;
    CURLM *multi;
    CURL *easy;
    bool connected; /* the last exchange ended well: a connection may be left */
};

struct http {
    pthread_mutex_t lock; /* protects idle, idle_count */
    struct slot *idle;
    unsigned idle_count;
    unsigned max_idle;
    struct http_options options;
};

static pthread_once_t curl_once = PTHREAD_ONCE_INIT;
static CURLcode curl_ready;

static void
init_curl(void)
{
    curl_ready = curl_global_init(CURL_GLOBAL_DEFAULT);
}

struct http *
http_new(unsigned max_idle, struct err *err)
{
    pthread_once(&curl_once, init_curl);
    if (curl_ready != CURLE_OK) {
        err_set(err, ERR_INTERNAL, "libcurl does not start: %s", curl_easy_strerror(curl_ready));
        return NULL;
    }
    struct http *http = calloc(1, sizeof(*http));
    if (!http) {
        err_nomem(err);
        return NULL;
    }
    pthread_mutex_init(&http->lock, NULL);
    http->max_idle = max_idle;
    return http;
}

void
http_configure(struct http *http, const struct http_options *options)
{
    http->options = *options;
}

static void
slot_free(struct slot *slot)
{
    if (!slot)
        return;
    if (slot->easy)
        curl_easy_cleanup(slot->easy);
    if (slot->multi)
        curl_multi_cleanup(slot->multi);
    free(slot);
}

void
http_free(struct http *http)
{
    if (!http)
        return;
    while (http->idle) {
        struct slot *slot = http->idle;
        http->idle = slot->next;
        slot_free(slot);
    }
    pthread_mutex_destroy(&http->lock);
    free(http);
}

static struct slot *
slot_take(struct http *http, struct err *err)
{
    pthread_mutex_lock(&http->lock);
    struct slot *slot = http->idle;
    if (slot) {
        http->idle = slot->next;
        http->idle_count--;
    }
    pthread_mutex_unlock(&http->lock);
    if (slot)
        return slot;
    slot = calloc(1, sizeof(*slot));
    if (slot) {
        slot->multi = curl_multi_init();
        slot->easy = curl_easy_init();
    }
    if (slot && slot->multi && slot->easy)
        return slot;
    slot_free(slot);
    err_nomem(err);
    return NULL;
}

static void
slot_give(struct http *http, struct slot *slot)
{
    pthread_mutex_lock(&http->lock);
    bool keep = http->idle_count < http->max_idle;
    if (keep) {
        slot->next = http->idle;
        http->idle = slot;
        http->idle_count++;
    }
    pthread_mutex_unlock(&http->lock);
    if (!keep)
        slot_free(slot);
}

/* ---- the answer ---- */

void
http_response_init(struct http_response *response)
{
    memset(response, 0, sizeof(*response));
    buf_init(&response->body, LIMIT_XML_BODY);
    buf_init(&response->text, LIMIT_HTTP_HEADERS);
}

void
http_response_release(struct http_response *response)
{
    buf_release(&response->body);
    buf_release(&response->text);
}

bool
http_response_nth(const struct http_response *response, size_t i, const char **name,
                  const char **value)
{
    if (i >= response->field_count)
        return false;
    *name = response->text.data + response->field_offset[i];
    *value = *name + strlen(*name) + 1;
    return true;
}

const char *
http_response_field(const struct http_response *response, const char *name)
{
    const char *at;
    const char *value;
    for (size_t i = 0; http_response_nth(response, i, &at, &value); i++) {
        if (strcasecmp(at, name) == 0)
            return value;
    }
    return NULL;
}

/* ---- one exchange ---- */

struct exchange {
    struct http *http;
    const struct http_request *request;
    struct http_response *response;
    struct err *err;
    enum http_end end; /* HTTP_REFUSED or HTTP_LOCAL when a callback failed, and err is set */
    bool failed;
    bool head_seen;
    uint64_t sent;
    int64_t active_ns; /* when the last byte moved */
    int64_t deadline_ns;
    struct curl_slist *list;
    char why[CURL_ERROR_SIZE]; /* libcurl's own words */
};

static void
touch(struct exchange *x)
{
    x->active_ns = clock_mono_ns();
}

static size_t
fail(struct exchange *x, enum http_end end)
{
    x->failed = true;
    x->end = end;
    return 0;
}

/* Waits until `len` bytes are allowed; that is nobody's silence and nobody's delay. */
static void
obey(struct exchange *x, struct limit *limit, size_t len)
{
    if (!limit)
        return;
    int64_t wait = limit_take(limit, len, clock_mono_ns(), INT64_MAX);
    if (wait <= 0)
        return;
    clock_sleep_ns(wait);
    x->deadline_ns += wait;
    if (x->http->options.limited_ns)
        atomic_fetch_add(x->http->options.limited_ns, (uint64_t)wait);
    touch(x);
}

static size_t
on_read(char *to, size_t size, size_t count, void *arg)
{
    struct exchange *x = arg;
    const struct store_body *body = x->request->body;
    touch(x);
    uint64_t left = body->size - x->sent;
    size_t len = size * count;
    if (len > left)
        len = (size_t)left;
    if (len == 0)
        return 0;
    if (x->http->options.up && len > limit_piece(x->http->options.up))
        len = (size_t)limit_piece(x->http->options.up);
    obey(x, x->http->options.up, len);
    if (body->mem) {
        memcpy(to, (const char *)body->mem + x->sent, len);
    } else {
        ssize_t got = sys_read_full(body->fd, to, len, (off_t)(body->off + x->sent), x->err);
        if (got < 0 || (size_t)got < len) {
            if (got >= 0)
                err_set(x->err, ERR_IO, "the staged file is shorter than its upload");
            (void)fail(x, HTTP_LOCAL);
            return CURL_READFUNC_ABORT;
        }
    }
    x->sent += len;
    return len;
}

static int
on_seek(void *arg, curl_off_t off, int origin)
{
    struct exchange *x = arg;
    if (origin != SEEK_SET || off < 0 || (uint64_t)off > x->request->body->size)
        return CURL_SEEKFUNC_FAIL;
    x->sent = (uint64_t)off;
    return CURL_SEEKFUNC_OK;
}

static size_t
on_body(char *data, size_t size, size_t count, void *arg)
{
    struct exchange *x = arg;
    struct http_response *response = x->response;
    size_t len = size * count;
    touch(x);
    response->received += len;
    obey(x, x->http->options.down, len);
    x->deadline_ns += (int64_t)len * x->request->deadline_bonus_ns_per_mib / (1 << 20);
    bool good = response->status == 200 || response->status == 206;
    int result = x->request->sink && good ? x->request->sink(x->request->arg, data, len, x->err)
                                          : buf_append(&response->body, data, len, x->err);
    return result == 0 ? len : fail(x, HTTP_REFUSED);
}

static int
begin_headers(struct exchange *x, const char *line, size_t len)
{
    struct http_response *response = x->response;
    uint64_t status = 0;
    const char *blank = memchr(line, ' ', len);
    if (!blank || blank + 4 > line + len || !parse_u64_n(blank + 1, 3, &status))
        return err_set(x->err, ERR_STORE_BAD_ANSWER, "the store's answer is not HTTP");
    response->status = (int)status;
    response->field_count = 0;
    response->has_length = false;
    buf_clear(&response->text);
    return 0;
}

static int
add_length(struct exchange *x, const char *value)
{
    struct http_response *response = x->response;
    uint64_t length = 0;
    if (!parse_u64(value, &length) || (response->has_length && response->length != length))
        return err_set(x->err, ERR_STORE_BAD_ANSWER, "bad Content-Length '%.40s'", value);
    response->has_length = true;
    response->length = length;
    return 0;
}

static int
add_header(struct exchange *x, const char *line, size_t len)
{
    struct http_response *response = x->response;
    const char *colon = memchr(line, ':', len);
    if (!colon || response->field_count == HTTP_FIELDS_MAX)
        return 0;
    size_t name_len = (size_t)(colon - line);
    const char *value = colon + 1;
    const char *end = line + len;
    while (value < end && isblank((unsigned char)*value))
        value++;
    while (end > value && isspace((unsigned char)end[-1]))
        end--;
    size_t value_len = (size_t)(end - value);
    if (memchr(value, '\0', value_len))
        return err_set(x->err, ERR_STORE_BAD_ANSWER, "a NUL in a header");
    size_t at = response->text.len;
    if (buf_append(&response->text, line, name_len, x->err) < 0 ||
        buf_append(&response->text, "", 1, x->err) < 0 ||
        buf_append(&response->text, value, value_len, x->err) < 0 ||
        buf_append(&response->text, "", 1, x->err) < 0)
        return -1;
    for (size_t i = 0; i < name_len; i++)
        response->text.data[at + i] = (char)tolower((unsigned char)response->text.data[at + i]);
    response->field_offset[response->field_count++] = at;
    if (strcmp(response->text.data + at, "content-length") == 0)
        return add_length(x, response->text.data + at + name_len + 1);
    return 0;
}

static int
header_line(struct exchange *x, const char *line, size_t len)
{
    if (len >= 5 && memcmp(line, "HTTP/", 5) == 0)
        return begin_headers(x, line, len);
    if (len > 2)
        return add_header(x, line, len);
    if (x->response->status < 200 || x->head_seen)
        return 0;
    x->head_seen = true;
    return x->request->head ? x->request->head(x->request->arg, x->response, x->err) : 0;
}

static size_t
on_header(char *data, size_t size, size_t count, void *arg)
{
    struct exchange *x = arg;
    size_t len = size * count;
    touch(x);
    return header_line(x, data, len) == 0 ? len : fail(x, HTTP_REFUSED);
}

/* libcurl's own socket() call has no SOCK_CLOEXEC in every version. */
static curl_socket_t
on_open_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *address)
{
    (void)arg;
    (void)purpose;
    return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

static int
set_fields(struct exchange *x)
{
    scope_buf line;
    buf_init(&line, LIMIT_HTTP_HEADERS);
    for (size_t i = 0; i < x->request->field_count; i++) {
        const struct http_field *field = &x->request->fields[i];
        buf_clear(&line);
        /* libcurl's way to send a header with an empty value is a semicolon. */
        if (buf_appendf(&line, x->err, *field->value ? "%s: %s" : "%s;", field->name,
                        field->value) < 0)
            return -1;
        struct curl_slist *list = curl_slist_append(x->list, buf_cstr(&line));
        if (!list)
            return err_nomem(x->err);
        x->list = list;
    }
    /* Two that libcurl is not to send, and no coding: the bytes come as they are stored. */
    static const char *const always[] = { "Expect:", "Accept:", "Accept-Encoding: identity" };
    for (size_t i = 0; i < sizeof(always) / sizeof(always[0]); i++) {
        struct curl_slist *list = curl_slist_append(x->list, always[i]);
        if (!list)
            return err_nomem(x->err);
        x->list = list;
    }
    return 0;
}

#define SET(option, value)                                                       \
    do {                                                                         \
        if (curl_easy_setopt(easy, option, value) != CURLE_OK)                   \
            return err_set(x->err, ERR_INTERNAL, "libcurl refuses %s", #option); \
    } while (0)

static int
set_transport(struct exchange *x, CURL *easy)
{
    SET(CURLOPT_URL, x->request->url);
    SET(CURLOPT_HTTPHEADER, x->list);
    SET(CURLOPT_USERAGENT, "holdfast/" HOLDFAST_VERSION);
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_PATH_AS_IS, 1L);
    SET(CURLOPT_TCP_NODELAY, 1L);
    SET(CURLOPT_TCP_KEEPALIVE, 1L);
    SET(CURLOPT_FOLLOWLOCATION, 0L);
    SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(CURLOPT_PROTOCOLS_STR, "http,https");
    SET(CURLOPT_CONNECTTIMEOUT_MS,
        x->request->connect_ms ? x->request->connect_ms : CONNECT_TIMEOUT_MS);
    SET(CURLOPT_OPENSOCKETFUNCTION, on_open_socket);
    /* Only faster: libcurl 7.88 refuses it on a handle whose last name could not be resolved. */
    (void)curl_easy_setopt(easy, CURLOPT_BUFFERSIZE,
                           x->http->options.down ? (long)limit_piece(x->http->options.down)
                                                 : 256L << 10);
    (void)curl_easy_setopt(easy, CURLOPT_UPLOAD_BUFFERSIZE, 256L << 10);
    if (x->request->loopback)
        SET(CURLOPT_NOPROXY, "*");
    return 0;
}

static int
set_method(struct exchange *x, CURL *easy)
{
    const struct http_request *request = x->request;
    if (strcmp(request->method, "HEAD") == 0) {
        SET(CURLOPT_NOBODY, 1L);
        return 0;
    }
    if (request->body) {
        SET(CURLOPT_UPLOAD, 1L);
        SET(CURLOPT_INFILESIZE_LARGE, (curl_off_t)request->body->size);
        SET(CURLOPT_READFUNCTION, on_read);
        SET(CURLOPT_READDATA, x);
        SET(CURLOPT_SEEKFUNCTION, on_seek);
        SET(CURLOPT_SEEKDATA, x);
    } else {
        SET(CURLOPT_HTTPGET, 1L);
    }
    SET(CURLOPT_CUSTOMREQUEST, request->method);
    return 0;
}

static int
set_callbacks(struct exchange *x, CURL *easy)
{
    SET(CURLOPT_HEADERFUNCTION, on_header);
    SET(CURLOPT_HEADERDATA, x);
    SET(CURLOPT_WRITEFUNCTION, on_body);
    SET(CURLOPT_WRITEDATA, x);
    return 0;
}

static int
prepare(struct exchange *x, CURL *easy)
{
    curl_easy_reset(easy);
    if (set_fields(x) < 0 || set_transport(x, easy) < 0 ||
        http_tls_set(easy, &x->http->options, x->why, x->err) < 0 || set_method(x, easy) < 0)
        return -1;
    return set_callbacks(x, easy);
}

static bool
finished(CURLM *multi, CURLcode *code)
{
    int left = 0;
    for (CURLMsg *message; (message = curl_multi_info_read(multi, &left));) {
        if (message->msg == CURLMSG_DONE) {
            *code = message->data.result;
            return true;
        }
    }
    return false;
}

/* Drives the exchange, so that the deadline and the idle limit hold to the millisecond, which libcurl's own do not. */
static CURLcode
drive(struct exchange *x, CURLM *multi)
{
    CURLcode code = CURLE_OK;
    for (;;) {
        int running = 0;
        if (curl_multi_perform(multi, &running) != CURLM_OK)
            return CURLE_FAILED_INIT;
        if (finished(multi, &code))
            return code;
        int64_t now = clock_mono_ns();
        int64_t until = x->active_ns + x->request->idle_ns;
        if (x->deadline_ns < until)
            until = x->deadline_ns;
        int64_t ends = x->http->options.ends_ns ? atomic_load(x->http->options.ends_ns) : 0;
        if (ends != 0 && ends < until)
            until = ends;
        if (now >= until)
            return CURLE_OPERATION_TIMEDOUT;
        int64_t wait_ms = (until - now + NS_PER_MS - 1) / NS_PER_MS;
        int wait = wait_ms < POLL_MAX_MS ? (int)wait_ms : POLL_MAX_MS;
        if (curl_multi_poll(multi, NULL, 0, wait, NULL) != CURLM_OK)
            return CURLE_FAILED_INIT;
    }
}

/* Was the whole request handed to a connection? Then the server may have acted, whatever came back. */
static bool
whole_request_sent(const struct exchange *x, CURL *easy)
{
    curl_off_t connected = 0;
    long sent = 0;
    (void)curl_easy_getinfo(easy, CURLINFO_PRETRANSFER_TIME_T, &connected);
    (void)curl_easy_getinfo(easy, CURLINFO_REQUEST_SIZE, &sent);
    if (connected == 0 && sent == 0)
        return false;
    return !x->request->body || x->sent == x->request->body->size;
}

/* libcurl sends a request again by itself when a kept connection breaks before any answer (lib/transfer.c,
 * Curl_retry_request); a new connection in place of the kept one is the trace that this leaves. */
static long
new_connections(CURL *easy)
{
    long count = 0;
    (void)curl_easy_getinfo(easy, CURLINFO_NUM_CONNECTS, &count);
    return count;
}

static int
conclude(struct exchange *x, CURL *easy, CURLcode code)
{
    struct http_response *response = x->response;
    if (x->failed) {
        response->end = x->end;
        return -1;
    }
    switch (code) {
    case CURLE_OK:
        response->end = HTTP_WHOLE;
        return 0;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
        response->end = HTTP_NO_CONNECTION;
        return err_set(x->err, ERR_STORE_AWAY, "no connection to the store: %.200s",
                       x->why[0] ? x->why : curl_easy_strerror(code));
    case CURLE_SSL_CONNECT_ERROR:
        response->end = HTTP_NO_CONNECTION;
        return http_tls_error(easy, code, &x->http->options, x->why, x->err);
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_PINNEDPUBKEYNOTMATCH:
        response->end = HTTP_LOCAL;
        return http_tls_error(easy, code, &x->http->options, x->why, x->err);
    case CURLE_OPERATION_TIMEDOUT:
        response->end = response->whole_request_sent || x->sent > 0 || response->status
                            ? HTTP_TIMEOUT
                            : HTTP_NO_CONNECTION;
        return err_set(x->err, ERR_STORE_TIMEOUT, "the store did not answer in time");
    case CURLE_OUT_OF_MEMORY:
    case CURLE_FAILED_INIT:
        response->end = HTTP_LOCAL;
        return err_nomem(x->err);
    default:
        response->end = HTTP_BROKEN;
        return err_set(x->err, response->status ? ERR_STORE_BAD_ANSWER : ERR_STORE_AWAY,
                       "the connection to the store broke: %s", curl_easy_strerror(code));
    }
}

static int
run(struct exchange *x, struct slot *slot)
{
    if (prepare(x, slot->easy) < 0) {
        x->response->end = HTTP_LOCAL;
        return -1;
    }
    if (curl_multi_add_handle(slot->multi, slot->easy) != CURLM_OK) {
        x->response->end = HTTP_LOCAL;
        return err_nomem(x->err);
    }
    touch(x);
    CURLcode code = drive(x, slot->multi);
    x->response->whole_request_sent = whole_request_sent(x, slot->easy);
    x->response->maybe_resent = slot->connected && new_connections(slot->easy) > 0;
    slot->connected = code == CURLE_OK && !x->failed;
    (void)curl_multi_remove_handle(slot->multi, slot->easy);
    return conclude(x, slot->easy, code);
}

int
http_perform(struct http *http, const struct http_request *request, struct http_response *response,
             struct err *err)
{
    struct slot *slot = slot_take(http, err);
    if (!slot) {
        response->end = HTTP_LOCAL;
        return -1;
    }
    struct exchange x = { .http = http,
                          .request = request,
                          .response = response,
                          .err = err,
                          .deadline_ns = request->deadline_ns };
    int result = run(&x, slot);
    curl_easy_reset(slot->easy); /* it points at this frame */
    curl_slist_free_all(x.list);
    slot_give(http, slot);
    return result;
}
