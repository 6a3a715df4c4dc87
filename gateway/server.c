#include "gateway/server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "gateway/connection.h"
#include "gateway/metrics.h"
#include "gateway/router.h"

static const struct gateway_connection_limits limits = {
    .head_ns = 20 * NS_PER_S,
    .body_window_ns = 10 * NS_PER_S,
    .body_window_bytes = 10u << 10,
    .reply_ns = 120 * NS_PER_S, /* for each STREAM_BLOCK, or for a whole answer from memory */
};
#define CONNECTIONS_LEAST 8
#define IDLE_SECONDS 60
#define CONNECTION_MEMORY (128u << 10)
#define STREAM_BLOCK (256u << 10)
#define EVENT_BLOCK \
    (8u << 10) /* of a stream without an end: there may be many, and each has a block */
#define DISCARD_MAX (64ull << 20) /* of a body whose request failed already */

/* How strictly libmicrohttpd itself reads; 0.9.77 has levels, of which 2 refuses bare LF and folded lines. */
#if MHD_VERSION >= 0x00097701
#define STRICT_READING MHD_OPTION_CLIENT_DISCIPLINE_LVL, 2
#else
#define STRICT_READING MHD_OPTION_STRICT_FOR_CLIENT, 1
#endif

struct gateway_server {
    const struct gateway *gateway;
    struct MHD_Daemon *daemon;
    struct gateway_connection_table *connections;
    bool local;
    uid_t peer_uid;
};

/* What belongs to one request, made by the URI callback: the only place that sees the target as it was sent. */
struct pending {
    struct gateway_server *server;
    struct exchange *x; /* NULL: no memory */
    size_t raw_len;
    bool started; /* the head was judged */
    bool failed;
    int64_t begun_ns; /* mono */
    uint64_t discarded;
    struct err err;
};

/* ---- connections ---- */
static bool
peer_allowed(const struct gateway_server *server, int fd)
{
    struct ucred peer;
    socklen_t len = sizeof(peer);
    if (!server->local)
        return true;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0)
        return false;
    return peer.uid == 0 || peer.uid == geteuid() || peer.uid == server->peer_uid;
}

static void
on_connection(void *arg, struct MHD_Connection *mhd, void **context,
              enum MHD_ConnectionNotificationCode code)
{
    struct gateway_server *server = arg;
    if (code != MHD_CONNECTION_NOTIFY_STARTED) {
        gateway_connection_remove(server->connections, *context);
        *context = NULL;
        return;
    }
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (info)
        *context = gateway_connection_add(server->connections, info->connect_fd,
                                          peer_allowed(server, info->connect_fd));
}

static struct gateway_connection *
connection_of(struct MHD_Connection *mhd)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

static void
enter_phase(struct gateway_server *server, struct MHD_Connection *mhd,
            enum gateway_connection_phase phase, uint64_t bytes)
{
    gateway_connection_enter(server->connections, connection_of(mhd), phase, bytes);
}

/* ---- reading the head ---- */
struct header_walk {
    struct exchange *x;
    const char *
        expected; /* where the next name must begin when every line ended in CRLF and none was folded */
    bool exact;
    struct err *err;
    int rc;
};

static char *
trimmed(const char *value, size_t len)
{
    while (len > 0 && (value[len - 1] == ' ' || value[len - 1] == '\t'))
        len--;
    return strndup(value, len);
}

static enum MHD_Result
walk_header(void *arg, enum MHD_ValueKind kind, const char *name, size_t name_len,
            const char *value, size_t value_len)
{
    struct header_walk *walk = arg;
    struct exchange *x = walk->x;
    (void)kind;
    if (!value || name != walk->expected)
        walk->exact = false;
    walk->expected = value ? value + value_len + 2 : NULL;
    if (x->header_count == GATEWAY_HEADERS_MAX) {
        walk->rc =
            err_set(walk->err, ERR_HEADERS_TOO_LARGE, "more than %d headers", GATEWAY_HEADERS_MAX);
        return MHD_NO;
    }
    char *own_name = strndup(name, name_len);
    char *own_value = trimmed(value ? value : "", value_len);
    if (!own_name || !own_value || strlen(own_name) != name_len) {
        free(own_name);
        free(own_value);
        walk->rc = err_set(walk->err, ERR_INVAL, "a header name is malformed");
        return MHD_NO;
    }
    x->headers[x->header_count++] = (struct gateway_request_header){
        .name = own_name, .name_len = name_len, .value = own_value, .value_len = strlen(own_value)
    };
    return MHD_YES;
}

/*
 * libmicrohttpd 0.9.75 joins folded lines and takes a bare LF for a line's end, and does not tell. But it splits the head in
 * place: when every line ended in CRLF and none was folded, the parts stand exactly where we compute them, and the head is as
 * long as it says. Newer versions (0.9.77) refuse both by themselves on request.
 */
static bool
head_is_plain(struct MHD_Connection *mhd, const struct header_walk *walk, const char *method)
{
#if MHD_VERSION >= 0x00097701
    (void)mhd, (void)walk, (void)method;
    return true;
#else
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    return walk->exact && walk->expected && info &&
           walk->expected + 2 == method + info->header_size;
#endif
}

static int
read_head(struct pending *pending, struct MHD_Connection *mhd, const char *method,
          const char *version, struct err *err)
{
    struct exchange *x = pending->x;
    struct header_walk walk = {
        .x = x, .expected = version + strlen(version) + 2, .exact = true, .err = err
    };
    if (version != method + strlen(method) + 1 + pending->raw_len + 1)
        walk.exact = false;
    (void)MHD_get_connection_values_n(mhd, MHD_HEADER_KIND, walk_header, &walk);
    if (walk.rc < 0)
        return -1;
    if (!head_is_plain(mhd, &walk, method))
        return err_set(err, ERR_INVAL,
                       "the request's head has a folded line or a line that does not end in CRLF");
    if (strcmp(version, "HTTP/1.1") != 0 && strcmp(version, "HTTP/1.0") != 0)
        return err_set(err, ERR_INVAL, "only HTTP/1.1 is spoken here");
    if (gateway_request_headers(x->headers, x->header_count, &x->content_length, &x->chunked, err) <
        0)
        return -1;
    return gateway_request_target(x->raw, &x->target, err);
}

static int
judge_body(const struct exchange *x, struct err *err)
{
    uint64_t most = x->route->chunk ? LIMIT_PUT_BODY : LIMIT_JSON_DOC;
    if (x->content_length >= 0 && (uint64_t)x->content_length > most)
        return err_set(err, ERR_TOO_LARGE, "the body is larger than %llu bytes",
                       (unsigned long long)most);
    return 0;
}

static int
begin_request(struct pending *pending, struct MHD_Connection *mhd, const char *method,
              const char *version, struct err *err)
{
    struct exchange *x = pending->x;
    if (read_head(pending, mhd, method, version, err) < 0)
        return -1;
    if (!gateway_connection_allowed(connection_of(mhd)))
        return err_set(err, ERR_DENIED,
                       "this socket is for root and the owner of the state directory");
    (void)snprintf(x->method, sizeof(x->method), "%s", method);
    if (gateway_router_find(x, err) < 0)
        return -1;
    if (x->route->need.scope != GATEWAY_SCOPE_OPEN && gateway_auth_check(x, err) < 0)
        return -1;
    if (gateway_access_begin(x, err) < 0)
        return -1;
    if (judge_body(x, err) < 0)
        return -1;
    return x->route->begin ? x->route->begin(x, err) : 0;
}

/* ---- answering ---- */
struct sending {
    struct exchange_stream stream;
    struct gateway_server *server;
    struct MHD_Connection *mhd;
};

static ssize_t
stream_read(void *arg, uint64_t off, char *out, size_t max)
{
    struct sending *sending = arg;
    struct err err = ERR_INIT;
    enter_phase(sending->server, sending->mhd, GATEWAY_PHASE_BUSY, 0);
    ssize_t got = sending->stream.read(sending->stream.arg, off, out, max, &err);
    enter_phase(sending->server, sending->mhd, GATEWAY_PHASE_REPLY, 0);
    if (got > 0)
        return got;
    if (got == 0 && sending->stream.size == EXCHANGE_SIZE_UNKNOWN)
        return MHD_CONTENT_READER_END_OF_STREAM;
    /* Fewer bytes than announced: the connection is cut, so that nobody takes a part for the whole (INV-9). */
    log_warn(http, "an answer was cut at byte %llu: %s", (unsigned long long)off,
             got < 0 ? err.msg : "the file ended");
    return MHD_CONTENT_READER_END_WITH_ERROR;
}

static void
stream_free(void *arg)
{
    struct sending *sending = arg;
    if (sending->stream.free)
        sending->stream.free(sending->stream.arg);
    free(sending);
}

static struct MHD_Response *
make_response(struct pending *pending, struct MHD_Connection *mhd)
{
    struct exchange_reply *reply = &pending->x->reply;
    if (!reply->stream.read)
        return MHD_create_response_from_buffer(
            reply->body.len, reply->body.len ? reply->body.data : pending->x->trace,
            MHD_RESPMEM_MUST_COPY);
    struct sending *sending = malloc(sizeof(*sending));
    if (!sending)
        return NULL;
    *sending = (struct sending){ reply->stream, pending->server, mhd };
    size_t block = reply->stream.size == EXCHANGE_SIZE_UNKNOWN ? EVENT_BLOCK : STREAM_BLOCK;
    struct MHD_Response *response = MHD_create_response_from_callback(
        reply->stream.size, block, stream_read, sending, stream_free);
    if (!response) {
        free(sending);
        return NULL;
    }
    reply->stream.read = NULL; /* the response owns it now */
    return response;
}

static enum MHD_Result
send_reply(struct pending *pending, struct MHD_Connection *mhd, bool close)
{
    struct exchange *x = pending->x;
    struct MHD_Response *response = make_response(pending, mhd);
    if (!response)
        return MHD_NO;
    for (size_t i = 0; i < x->reply.header_count; i++)
        (void)MHD_add_response_header(response, x->reply.headers[i].name,
                                      x->reply.headers[i].value);
    if (x->reply.location.len > 0)
        (void)MHD_add_response_header(response, "Location", buf_cstr(&x->reply.location));
    (void)MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    (void)MHD_add_response_header(response, "Holdfast-Trace", x->trace);
    if (close)
        (void)MHD_add_response_header(response, "Connection", "close");
    log_debug(http, "%s %.200s -> %d trace=%s", x->method, exchange_shown(x), x->reply.status,
              x->trace);
    gateway_metrics_answered(x->reply.status, clock_mono_ns() - pending->begun_ns);
    enter_phase(pending->server, mhd, GATEWAY_PHASE_REPLY, 0);
    enum MHD_Result queued = MHD_queue_response(mhd, (unsigned)x->reply.status, response);
    MHD_destroy_response(response);
    return queued;
}

static enum MHD_Result
send_problem(struct pending *pending, struct MHD_Connection *mhd, bool close)
{
    exchange_reply_problem(pending->x, &pending->err);
    return send_reply(pending, mhd, close);
}

/* ---- the callbacks of libmicrohttpd ---- */
static void *
on_uri(void *arg, const char *uri, struct MHD_Connection *mhd)
{
    struct gateway_server *server = arg;
    struct pending *pending = calloc(1, sizeof(*pending));
    (void)mhd;
    if (!pending)
        return NULL;
    pending->server = server;
    pending->raw_len = strlen(uri);
    pending->begun_ns = clock_mono_ns();
    pending->x = exchange_new(server->gateway, server->local, "", uri, &pending->err);
    return pending;
}

/* Unescaping is ours: libmicrohttpd would cut at %00 and turn %2F into a slash. */
static size_t
keep_escapes(void *arg, struct MHD_Connection *mhd, char *text)
{
    (void)arg, (void)mhd;
    return strlen(text);
}

static enum MHD_Result
on_chunk(struct pending *pending, const char *data, size_t *len)
{
    struct exchange *x = pending->x;
    size_t count = *len;
    *len = 0;
    if (!pending->failed) {
        int rc = x->route->chunk ? x->route->chunk(x, data, count, &pending->err)
                                 : buf_append(&x->body, data, count, &pending->err);
        pending->failed = rc < 0;
        return MHD_YES;
    }
    /* An answer can only be sent behind the body: take the rest, within reason. */
    pending->discarded += count;
    return pending->discarded > DISCARD_MAX ? MHD_NO : MHD_YES;
}

static enum MHD_Result
finish_request(struct pending *pending, struct MHD_Connection *mhd)
{
    struct exchange *x = pending->x;
    if (!pending->failed)
        pending->failed = gateway_access_body(x, &pending->err) < 0;
    if (!pending->failed)
        pending->failed = x->route->end(x, &pending->err) < 0;
    gateway_audit_request(x, pending->failed ? &pending->err : NULL);
    if (pending->failed)
        return send_problem(pending, mhd, false);
    return send_reply(pending, mhd, false);
}

/* NOLINTBEGIN(readability-function-size): the parameters are libmicrohttpd's */
static enum MHD_Result
on_request(void *arg, struct MHD_Connection *mhd, const char *url, const char *method,
           const char *version, const char *data, size_t *len, void **context)
{
    struct gateway_server *server = arg;
    struct pending *pending = *context;
    (void)url;
    if (!pending || !pending->x)
        return MHD_NO;
    if (!pending->started) {
        pending->started = true;
        enter_phase(server, mhd, GATEWAY_PHASE_BUSY, 0);
        if (begin_request(pending, mhd, method, version, &pending->err) < 0) {
            gateway_audit_request(pending->x, &pending->err);
            return send_problem(pending, mhd, true);
        }
        enter_phase(server, mhd, GATEWAY_PHASE_BODY, 0);
        return MHD_YES;
    }
    size_t count = *len;
    enter_phase(server, mhd, GATEWAY_PHASE_BUSY, 0);
    if (count == 0)
        return finish_request(pending, mhd);
    enum MHD_Result result = on_chunk(pending, data, len);
    enter_phase(server, mhd, GATEWAY_PHASE_BODY, count);
    return result;
}
/* NOLINTEND(readability-function-size) */

static void
on_completed(void *arg, struct MHD_Connection *mhd, void **context,
             enum MHD_RequestTerminationCode code)
{
    struct gateway_server *server = arg;
    struct pending *pending = *context;
    *context = NULL;
    (void)code;
    enter_phase(server, mhd, GATEWAY_PHASE_HEAD, 0);
    if (!pending)
        return;
    exchange_free(pending->x);
    free(pending);
}

static void __attribute__((format(printf, 2, 0))) on_log(void *arg, const char *fmt, va_list ap)
{
    char line[256];
    (void)arg;
    (void)vsnprintf(line, sizeof(line), fmt, ap);
    line[strcspn(line, "\r\n")] = '\0';
    log_debug(http, "%s", line);
}

/* ---- life ---- */
/* A quarter of the descriptors for each server: beyond its limit libmicrohttpd rests, without descriptors it would spin, and
 * index, cache and uploads need theirs. */
static unsigned
connection_limit(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) < 0 || files.rlim_cur / 4 >= LIMIT_HTTP_CONNECTIONS)
        return LIMIT_HTTP_CONNECTIONS;
    return files.rlim_cur / 4 < CONNECTIONS_LEAST ? CONNECTIONS_LEAST
                                                  : (unsigned)files.rlim_cur / 4;
}

static struct MHD_Daemon *
start_daemon(struct gateway_server *server, int listen_fd)
{
    unsigned flags = MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD |
                     MHD_USE_POLL | MHD_USE_ITC | MHD_USE_ERROR_LOG;
    return MHD_start_daemon(
        flags, 0, NULL, NULL, on_request, server, MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL,
        MHD_OPTION_LISTEN_SOCKET, listen_fd, MHD_OPTION_URI_LOG_CALLBACK, on_uri, server,
        MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes, NULL, MHD_OPTION_NOTIFY_COMPLETED, on_completed,
        server, MHD_OPTION_NOTIFY_CONNECTION, on_connection, server, MHD_OPTION_CONNECTION_LIMIT,
        connection_limit(), MHD_OPTION_PER_IP_CONNECTION_LIMIT,
        server->local ? 0u : (unsigned)LIMIT_HTTP_CONNECTIONS_PER_ADDRESS,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_SECONDS, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)CONNECTION_MEMORY, STRICT_READING, MHD_OPTION_THREAD_STACK_SIZE,
        (size_t)(512u << 10), MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, MHD_OPTION_END);
}

struct gateway_server *
gateway_server_start(const struct gateway_server_args *args, struct err *err)
{
    scope_fd int listen_fd = args->listen_fd;
    struct gateway_server *server = calloc(1, sizeof(*server));
    if (!server) {
        (void)err_nomem(err);
        return NULL;
    }
    server->gateway = args->gateway;
    server->local = args->local;
    server->peer_uid = args->peer_uid;
    server->connections = gateway_connection_table_new(&limits, err);
    if (!server->connections) {
        free(server);
        return NULL;
    }
    server->daemon = start_daemon(server, listen_fd);
    if (!server->daemon) {
        gateway_server_stop(server);
        (void)err_set(err, ERR_INTERNAL, "the HTTP server does not start");
        return NULL;
    }
    (void)steal_fd(&listen_fd);
    return server;
}

void
gateway_server_quiesce(struct gateway_server *server)
{
    int fd = MHD_quiesce_daemon(server->daemon);
    if (fd >= 0)
        (void)close(fd);
}

void
gateway_server_stop(struct gateway_server *server)
{
    if (!server)
        return;
    if (server->daemon)
        MHD_stop_daemon(server->daemon);
    gateway_connection_table_free(server->connections);
    free(server);
}
