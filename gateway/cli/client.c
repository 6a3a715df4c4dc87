#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/parse.h"
#include "base/scope.h"
#include "base/sys.h"
#include "base/ulid.h"
#include "gateway/cli/cli.h"
#include "gateway/listen.h"
#include "gateway/settings.h"

#define CHUNK (256u << 10)
#define WAIT_CONTINUE_MS 5000
#define PROGRESS_AFTER (8u << 20)

struct link {
    int fd;
    int timeout_ms;
    char host[300];
    char token[160];
    /* read side */
    char in[65536];
    size_t from, to;
    /* progress */
    const char *name;
    uint64_t moved, total;
    int64_t shown_ns;
};

/* ---- where the gateway is ---- */
int
client_state(struct cli *cli, char *out, size_t size, struct err *err)
{
    struct config *config = gateway_settings_load(cli->config, NULL, err);
    if (!config)
        return -1;
    int rc = cli->state ? config_set_flag(config, "state", cli->state, err) : 0;
    if (rc == 0)
        rc = gateway_settings_state(config, out, size, err);
    config_free(config);
    return rc;
}

static int
connect_host(const char *host, const char *port, struct err *err)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
    struct addrinfo *list;
    int fd = -1;
    int rc = getaddrinfo(host, port, &hints, &list);
    if (rc != 0)
        return err_set(err, ERR_GATEWAY_AWAY, "cannot find the gateway '%s': %s", host,
                       gai_strerror(rc));
    for (struct addrinfo *at = list; at && fd < 0; at = at->ai_next) {
        fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd >= 0 && connect(fd, at->ai_addr, at->ai_addrlen) < 0) {
            (void)close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(list);
    if (fd < 0)
        return err_set(err, ERR_GATEWAY_AWAY, "no gateway answers at '%s:%s'", host, port);
    return fd;
}

static int
open_url(struct link *link, const char *url, struct err *err)
{
    static const char scheme[] = "http://";
    const char *token = secure_getenv("HOLDFAST_TOKEN");
    char host[256];
    const char *at = url + sizeof(scheme) - 1;
    if (strncmp(url, scheme, sizeof(scheme) - 1) != 0)
        return err_set(err, ERR_USAGE, "the gateway's URL '%s' must begin with http://", url);
    size_t len = strcspn(at, "/");
    size_t host_len = at[0] == '[' ? strcspn(at, "]") + 1 : strcspn(at, ":/");
    if (len >= sizeof(host) || host_len > len)
        return err_set(err, ERR_USAGE, "the gateway's URL '%s' is malformed", url);
    (void)snprintf(link->host, sizeof(link->host), "%.*s", (int)len, at);
    bool brackets = at[0] == '[';
    (void)snprintf(host, sizeof(host), "%.*s", (int)host_len - (brackets ? 2 : 0),
                   at + (brackets ? 1 : 0));
    char port[8];
    (void)snprintf(port, sizeof(port), "%.*s", host_len < len ? (int)(len - host_len) - 1 : 2,
                   host_len < len ? at + host_len + 1 : "80");
    if (token)
        (void)snprintf(link->token, sizeof(link->token), "%s", token);
    link->fd = connect_host(host, port, err);
    return link->fd < 0 ? -1 : 0;
}

static int
open_link(struct link *link, struct cli *cli, struct err *err)
{
    char state[PATH_MAX];
    char path[PATH_MAX + 16];
    if (cli->url)
        return open_url(link, cli->url, err);
    if (client_state(cli, state, sizeof(state), err) < 0)
        return -1;
    (void)snprintf(path, sizeof(path), "%s/holdfast.sock", state);
    (void)snprintf(link->host, sizeof(link->host), "localhost");
    link->fd = gateway_listen_connect(path, SOCK_STREAM, err);
    return link->fd < 0 ? -1 : 0;
}

/* ---- moving bytes ---- */
static void
show_progress(struct link *link, size_t len)
{
    int64_t now = clock_mono_ns();
    char moved[16];
    link->moved += len;
    if (!link->name || link->moved < PROGRESS_AFTER || now - link->shown_ns < 200 * NS_PER_MS)
        return;
    link->shown_ns = now;
    format_size(link->moved, moved);
    if (link->total)
        (void)fprintf(stderr, "\r%s: %s, %llu %%  ", link->name, moved,
                      (unsigned long long)(link->moved * 100 / link->total));
    else
        (void)fprintf(stderr, "\r%s: %s  ", link->name, moved);
}

static void
end_progress(struct link *link)
{
    if (link->shown_ns)
        (void)fprintf(stderr, "\r\033[K");
    link->shown_ns = 0;
    link->name = NULL;
}

static int
wait_io(const struct link *link, short events, struct err *err)
{
    struct pollfd pfd = { .fd = link->fd, .events = events };
    int rc;
    do
        rc = poll(&pfd, 1, link->timeout_ms);
    while (rc < 0 && errno == EINTR);
    if (rc == 0)
        return err_set(err, ERR_GATEWAY_AWAY, "the gateway does not answer within %d s",
                       link->timeout_ms / 1000);
    return rc < 0 ? err_sys(err, errno, "cannot wait for the gateway") : 0;
}

/* 1: the other side closed early (it may have answered), 0: sent. */
static int
send_all(const struct link *link, const char *data, size_t len, struct err *err)
{
    while (len > 0) {
        if (wait_io(link, POLLOUT, err) < 0)
            return -1;
        ssize_t sent = send(link->fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (sent < 0 && (errno == EPIPE || errno == ECONNRESET))
            return 1;
        if (sent < 0)
            return err_sys(err, errno, "cannot send to the gateway");
        data += sent;
        len -= (size_t)sent;
    }
    return 0;
}

/* 1: there are bytes in the buffer, 0: the end. */
static int
fill(struct link *link, struct err *err)
{
    if (link->from < link->to)
        return 1;
    for (;;) {
        if (wait_io(link, POLLIN, err) < 0)
            return -1;
        ssize_t got = recv(link->fd, link->in, sizeof(link->in), 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno != ECONNRESET)
            return err_sys(err, errno, "cannot read from the gateway");
        link->from = 0;
        link->to = got > 0 ? (size_t)got : 0;
        return got > 0;
    }
}

static int
read_line(struct link *link, char *out, size_t size, struct err *err)
{
    size_t len = 0;
    for (;;) {
        int rc = fill(link, err);
        if (rc < 0)
            return -1;
        if (rc == 0)
            return err_set(err, ERR_GATEWAY_AWAY,
                           "the gateway closed the connection without an answer");
        char c = link->in[link->from++];
        if (c == '\n')
            break;
        if (len + 1 >= size)
            return err_set(err, ERR_GATEWAY_AWAY, "the gateway's answer is malformed");
        out[len++] = c;
    }
    if (len > 0 && out[len - 1] == '\r')
        len--;
    out[len] = '\0';
    return 0;
}

/* ---- the request ---- */
static int
make_head(const struct link *link, const struct client_request *request, struct buf *out,
          struct err *err)
{
    if (buf_appendf(
            out, err,
            "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\nUser-Agent: holdfast/%s\r\n",
            request->method, request->target, link->host, HOLDFAST_VERSION) < 0)
        return -1;
    if (link->token[0] != '\0' &&
        buf_appendf(out, err, "Authorization: Bearer %s\r\n", link->token) < 0)
        return -1;
    const char *run = secure_getenv("HOLDFAST_RUN");
    if (run && ulid_valid(run) && buf_appendf(out, err, "Holdfast-Run: %s\r\n", run) < 0)
        return -1;
    for (size_t i = 0; i < request->header_count; i++) {
        if (buf_appendf(out, err, "%s: %s\r\n", request->headers[i].name,
                        request->headers[i].value) < 0)
            return -1;
    }
    if (request->body)
        return buf_appendf(out, err,
                           "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                           strlen(request->body), request->body);
    if (request->has_fd && request->body_size < 0)
        return buf_append_str(out, "Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n",
                              err);
    if (request->has_fd)
        return buf_appendf(out, err, "Content-Length: %lld\r\nExpect: 100-continue\r\n\r\n",
                           (long long)request->body_size);
    return buf_append_str(out, "\r\n", err);
}

/* Whether the gateway wants the body: it may have refused already. */
static bool
may_send_body(const struct link *link)
{
    char peek[16] = "";
    struct pollfd pfd = { .fd = link->fd, .events = POLLIN };
    if (poll(&pfd, 1, WAIT_CONTINUE_MS) <= 0)
        return true;
    ssize_t got = recv(link->fd, peek, sizeof(peek) - 1, MSG_PEEK);
    return got >= 12 && strncmp(peek + 9, "100", 3) == 0;
}

static int
send_piece(struct link *link, const struct client_request *request, const char *data, size_t len,
           struct err *err)
{
    char size[24];
    if (request->body_size >= 0)
        return send_all(link, data, len, err);
    (void)snprintf(size, sizeof(size), "%zx\r\n", len);
    int rc = send_all(link, size, strlen(size), err);
    if (rc == 0)
        rc = send_all(link, data, len, err);
    return rc == 0 ? send_all(link, "\r\n", 2, err) : rc;
}

static int
send_body(struct link *link, const struct client_request *request, struct err *err)
{
    uint64_t sent = 0;
    scope_free char *data = malloc(CHUNK);
    if (!data)
        return err_nomem(err);
    for (;;) {
        ssize_t got = read(request->body_fd, data, CHUNK);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_sys(err, errno, "cannot read what is to be sent");
        if (got == 0)
            break;
        sent += (uint64_t)got;
        if (request->body_size >= 0 && sent > (uint64_t)request->body_size)
            return err_set(err, ERR_IO, "the file grew while it was read: put it again");
        int rc = send_piece(link, request, data, (size_t)got, err);
        if (rc != 0)
            return rc < 0 ? -1 : 0;
        show_progress(link, (size_t)got);
    }
    if (request->body_size < 0)
        return send_all(link, "0\r\n\r\n", 5, err) < 0 ? -1 : 0;
    if (sent < (uint64_t)request->body_size)
        return err_set(err, ERR_IO, "the file shrank while it was read: put it again");
    return 0;
}

static int
send_request(struct link *link, const struct client_request *request, struct err *err)
{
    scope_buf head;
    buf_init(&head, LIMIT_JSON_DOC + 65536);
    if (make_head(link, request, &head, err) < 0 || send_all(link, head.data, head.len, err) < 0)
        return -1;
    if (!request->has_fd || !may_send_body(link))
        return 0;
    return send_body(link, request, err);
}

/* ---- the answer ---- */
struct head {
    int64_t length; /* -1: until the end */
    bool chunked;
    char retry_after[16];
};

static int
read_head(struct link *link, struct client_response *response, struct head *head, struct err *err)
{
    char line[8192];
    *head = (struct head){ .length = -1 };
    do {
        if (read_line(link, line, sizeof(line), err) < 0)
            return -1;
        uint64_t status;
        if (strncmp(line, "HTTP/1.", 7) != 0 || strlen(line) < 12 ||
            !parse_u64_n(line + 9, 3, &status))
            return err_set(err, ERR_GATEWAY_AWAY, "what answers there is not a gateway");
        response->status = (int)status;
        for (;;) {
            if (read_line(link, line, sizeof(line), err) < 0)
                return -1;
            if (line[0] == '\0')
                break;
            char *value = strchr(line, ':');
            if (!value)
                continue;
            *value++ = '\0';
            value += strspn(value, " ");
            uint64_t number;
            if (strcasecmp(line, "Content-Length") == 0 && parse_u64(value, &number))
                head->length = (int64_t)number;
            else if (strcasecmp(line, "Transfer-Encoding") == 0)
                head->chunked = true;
            else if (strcasecmp(line, "ETag") == 0)
                (void)snprintf(response->etag, sizeof(response->etag), "%.*s",
                               (int)sizeof(response->etag) - 1, value);
        }
    } while (response->status == 100);
    return 0;
}

static int
write_all(int fd, const char *data, size_t len, struct err *err)
{
    while (len > 0) {
        ssize_t put = write(fd, data, len);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return err_sys(err, errno, "cannot write what was read");
        data += put;
        len -= (size_t)put;
    }
    return 0;
}

static int
take_body(struct link *link, const struct client_request *request, struct client_response *response,
          int64_t length, struct err *err)
{
    bool sink = request->has_sink && response->status < 300;
    while (length != 0) {
        int rc = fill(link, err);
        if (rc < 0)
            return -1;
        if (rc == 0)
            return length < 0
                       ? 0
                       : err_set(err, ERR_AGAIN, "the answer was cut, %lld bytes are missing",
                                 (long long)length);
        size_t len = link->to - link->from;
        if (length > 0 && len > (size_t)length)
            len = (size_t)length;
        const char *data = link->in + link->from;
        if ((sink ? write_all(request->sink_fd, data, len, err)
                  : buf_append(&response->body, data, len, err)) < 0)
            return -1;
        link->from += len;
        if (length > 0)
            length -= (int64_t)len;
        show_progress(link, len);
    }
    return 0;
}

static int
take_chunks(struct link *link, const struct client_request *request,
            struct client_response *response, struct err *err)
{
    char line[256];
    for (;;) {
        uint64_t size;
        if (read_line(link, line, sizeof(line), err) < 0)
            return -1;
        if (!parse_hex_u64(line, &size) || size > INT64_MAX)
            return err_set(err, ERR_GATEWAY_AWAY, "the gateway's answer is malformed");
        if (size == 0)
            return 0;
        if (take_body(link, request, response, (int64_t)size, err) < 0 ||
            read_line(link, line, sizeof(line), err) < 0)
            return -1;
    }
}

/* The error that a problem document describes. */
static int
problem(const struct client_response *response, struct err *err)
{
    struct err ignored = ERR_INIT;
    scope_json *document = json_parse(buf_cstr(&response->body), response->body.len, &ignored);
    const char *code = document ? get_text(document, "code") : "";
    const char *detail = document ? get_text(document, "detail") : "";
    if (code[0] == '\0')
        return err_set(err, response->status == 408 ? ERR_REQUEST_TIMEOUT : ERR_INTERNAL,
                       "the gateway answered with status %d", response->status);
    return err_set(err, err_from_slug(code), "%s", detail);
}

void
client_response_init(struct client_response *response)
{
    *response = (struct client_response){ .status = 0 };
    buf_init(&response->body, 64u << 20);
}

void
client_response_release(struct client_response *response)
{
    buf_release(&response->body);
}

static int
exchange(struct link *link, const struct client_request *request, struct client_response *response,
         struct err *err)
{
    struct head head;
    if (send_request(link, request, err) < 0 || read_head(link, response, &head, err) < 0)
        return -1;
    if (!request->has_fd && head.length > 0)
        link->total = (uint64_t)head.length;
    if (strcmp(request->method, "HEAD") == 0 || response->status == 204 || response->status == 304)
        return 0;
    return head.chunked ? take_chunks(link, request, response, err)
                        : take_body(link, request, response, head.length, err);
}

int
cli_client_call(struct cli *cli, const struct client_request *request,
                struct client_response *response, struct err *err)
{
    struct link *link = calloc(1, sizeof(*link));
    if (!link)
        return err_nomem(err);
    link->timeout_ms = (request->timeout_s ? request->timeout_s : 60) * 1000;
    link->name = request->progress && isatty(STDERR_FILENO) && !secure_getenv("NO_COLOR")
                     ? request->progress
                     : NULL;
    link->total = request->has_fd && request->body_size > 0 ? (uint64_t)request->body_size : 0;
    link->fd = -1;
    int rc = open_link(link, cli, err);
    if (rc == 0)
        rc = exchange(link, request, response, err);
    end_progress(link);
    if (link->fd >= 0)
        (void)close(link->fd);
    secret_wipe(link->token, sizeof(link->token));
    free(link);
    if (rc == 0 && response->status >= 400)
        rc = problem(response, err);
    return rc;
}

int
client_json(struct cli *cli, const struct json_call *call, json_t **out, struct err *err)
{
    scope_json *held = call->body;
    scope_buf text;
    struct client_response response;
    buf_init(&text, LIMIT_JSON_DOC);
    if (held && json_print(held, &text, err) < 0)
        return -1;
    struct client_request request = { .method = call->method,
                                      .target = call->target,
                                      .body = held ? buf_cstr(&text) : NULL,
                                      .timeout_s = call->timeout_s };
    client_response_init(&response);
    int rc = cli_client_call(cli, &request, &response, err);
    if (rc == 0 && out) {
        *out = json_parse(buf_cstr(&response.body), response.body.len, err);
        rc = *out ? 0 : err_wrap(err, "the gateway's answer");
    }
    client_response_release(&response);
    return rc;
}

int
client_query_add(struct buf *target, const char *name, const char *value, struct err *err)
{
    if (!value)
        return 0;
    if (buf_appendf(target, err, "&%s=", name) < 0)
        return -1;
    return percent_encode(value, strlen(value), false, target, err);
}

int
client_target(const char *prefix, const char *volume, const char *path, struct buf *out,
              struct err *err)
{
    if (buf_appendf(out, err, "%s/%s", prefix, volume) < 0)
        return -1;
    if (path[0] == '\0')
        return 0;
    return buf_append(out, "/", 1, err) < 0 ? -1
                                            : percent_encode(path, strlen(path), true, out, err);
}
