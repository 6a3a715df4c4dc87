#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/parse.h"
#include "base/ulid.h"
#include "tests/fault/server/server.h"

/* Sockets, HTTP, the control requests, and the faults that concern the connection. */

#define MAX_HEAD 65536

/* ---- replies ---- */

void
reply_init(struct reply *reply)
{
    memset(reply, 0, sizeof(*reply));
    reply->status = 500;
    buf_init(&reply->head, MAX_HEAD);
    buf_init(&reply->body, MAX_BODY + 1);
}

void
reply_release(struct reply *reply)
{
    buf_release(&reply->head);
    buf_release(&reply->body);
}

void
reply_header(struct reply *reply, const char *fmt, ...)
{
    struct err err = ERR_INIT;
    va_list ap;
    va_start(ap, fmt);
    (void)!buf_vappendf(&reply->head, &err, fmt, ap);
    va_end(ap);
    (void)!buf_append_str(&reply->head, "\r\n", &err);
}

void
reply_body(struct reply *reply, const char *fmt, ...)
{
    struct err err = ERR_INIT;
    va_list ap;
    va_start(ap, fmt);
    (void)!buf_vappendf(&reply->body, &err, fmt, ap);
    va_end(ap);
}

void
reply_error(struct reply *reply, int status, const char *code, const char *message)
{
    buf_clear(&reply->head);
    buf_clear(&reply->body);
    reply->status = status;
    reply_header(reply, "Content-Type: application/xml");
    reply_body(reply, "<?xml version=\"1.0\"?><Error><Code>%s</Code><Message>%s</Message></Error>",
               code, message);
}

/* ---- requests ---- */

const char *
request_field(const struct request *request, const char *name)
{
    for (size_t i = 0; i < request->field_count; i++) {
        if (strcmp(request->field[i].name, name) == 0)
            return request->field[i].value;
    }
    return NULL;
}

bool
decode(const char *text, size_t len, char *out, size_t size)
{
    size_t used = 0;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '%') {
            if (i + 3 > len)
                return false;
            if (!hex_decode(text + i + 1, 2, &c, 1) || c == '\0')
                return false;
            i += 2;
        }
        if (used + 1 >= size)
            return false;
        out[used++] = (char)c;
    }
    out[used] = '\0';
    return size > 0;
}

bool
request_param(const struct request *request, const char *name, char *out, size_t size)
{
    size_t name_len = strlen(name);
    for (const char *p = request->query; *p;) {
        size_t len = strcspn(p, "&");
        if (len > name_len && strncmp(p, name, name_len) == 0 && p[name_len] == '=')
            return decode(p + name_len + 1, len - name_len - 1, out, size);
        p += len + (p[len] == '&');
    }
    return false;
}

static bool
parse_fields(struct request *request, char *line)
{
    while (*line) {
        char *end = strstr(line, "\r\n");
        char *colon = strchr(line, ':');
        if (!end || !colon || colon > end || request->field_count == MAX_FIELDS)
            return false;
        *end = *colon = '\0';
        for (char *p = line; *p; p++)
            *p = (char)tolower((unsigned char)*p);
        char *value = colon + 1;
        while (*value == ' ')
            value++;
        /* Two headers of one name would make the signature ambiguous. */
        if (request_field(request, line))
            return false;
        request->field[request->field_count++] = (struct field){ line, value };
        line = end + 2;
    }
    return true;
}

static bool
parse_head(struct request *request)
{
    char *end = strstr(request->head, "\r\n");
    char *target = strchr(request->head, ' ');
    if (!end || !target || target > end)
        return false;
    *target++ = '\0';
    *end = '\0';
    char *version = strchr(target, ' ');
    if (!version)
        return false;
    *version = '\0';
    char *query = strchr(target, '?');
    if (query)
        *query++ = '\0';
    request->method = request->head;
    request->path = target;
    request->query = query ? query : "";
    const char *slash = strchr(target + 1, '/');
    size_t bucket_len = slash ? (size_t)(slash - target) - 1 : strlen(target + 1);
    if (target[0] != '/' ||
        !decode(target + 1, bucket_len, request->bucket, sizeof(request->bucket)) ||
        !decode(slash ? slash + 1 : "", slash ? strlen(slash + 1) : 0, request->key,
                sizeof(request->key)))
        return false;
    return parse_fields(request, end + 2);
}

/* Bytes read beyond the end of one request belong to the next. */
struct connection {
    int fd;
    char data[MAX_HEAD];
    size_t len;
};

static bool
fill(struct connection *connection)
{
    if (connection->len == sizeof(connection->data) - 1)
        return false;
    ssize_t got = recv(connection->fd, connection->data + connection->len,
                       sizeof(connection->data) - 1 - connection->len, 0);
    if (got <= 0)
        return false;
    connection->len += (size_t)got;
    connection->data[connection->len] = '\0';
    return true;
}

static bool
read_head(struct connection *connection, struct request *request)
{
    char *end;
    connection->data[connection->len] = '\0';
    while (!(end = strstr(connection->data, "\r\n\r\n"))) {
        if (!fill(connection))
            return false;
    }
    size_t len = (size_t)(end - connection->data) + 2;
    request->head = strndup(connection->data, len);
    connection->len -= len + 2;
    memmove(connection->data, end + 4, connection->len);
    return parse_head(request);
}

static bool
read_body(struct connection *connection, struct request *request)
{
    const char *text = request_field(request, "content-length");
    uint64_t len = 0;
    if (!text)
        return strcmp(request->method, "PUT") != 0; /* 411 of the real ones */
    if (!parse_u64(text, &len) || len > MAX_BODY)
        return false;
    request->body = malloc((size_t)len + 1);
    request->body_len = (size_t)len;
    size_t got = connection->len < len ? connection->len : (size_t)len;
    memcpy(request->body, connection->data, got);
    connection->len -= got;
    memmove(connection->data, connection->data + got, connection->len);
    while (got < len) {
        ssize_t more = recv(connection->fd, request->body + got, (size_t)len - got, 0);
        if (more <= 0)
            return false;
        got += (size_t)more;
    }
    return true;
}

static void
free_request(struct request *request)
{
    free(request->head);
    free(request->body);
    free(request);
}

/* ---- sending ---- */

static bool
send_all(int fd, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t sent = send(fd, data, len, MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        data += sent;
        len -= (size_t)sent;
    }
    return true;
}

/* RST instead of FIN. */
static void
reset(int fd)
{
    struct linger linger = { .l_onoff = 1, .l_linger = 0 };
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
}

/* Until the client gives up, or the server is told to end. */
static void
wait_for_close(int fd)
{
    char byte[64];
    while (recv(fd, byte, sizeof(byte), 0) > 0)
        ;
}

/* False: the connection ends. */
static bool
send_reply(int fd, const struct reply *reply, struct hit hit)
{
    char date[TIME_HTTP_SIZE];
    struct err err = ERR_INIT;
    struct buf out;
    size_t len = reply->body.len;
    bool cut = (hit.fault == FAULT_CUT || hit.fault == FAULT_STALL) && hit.arg < len;
    buf_init(&out, MAX_HEAD);
    time_http(server_wall_ns(), date, sizeof(date));
    (void)!buf_appendf(&out, &err, "HTTP/1.1 %d X\r\nDate: %s\r\n%s", reply->status, date,
                       buf_cstr(&reply->head));
    if (hit.fault == FAULT_NO_LENGTH)
        (void)!buf_append_str(&out, "Connection: close\r\n", &err);
    else if (reply->status != 204)
        (void)!buf_appendf(&out, &err, "Content-Length: %zu\r\n",
                           hit.fault == FAULT_LONG_LENGTH ? len + 1000 : len);
    (void)!buf_append_str(&out, "\r\n", &err);
    bool good = send_all(fd, out.data, out.len);
    buf_release(&out);
    if (good && !reply->no_body && len > 0)
        good = send_all(fd, reply->body.data, cut ? hit.arg : len);
    if (hit.fault == FAULT_STALL && cut)
        wait_for_close(fd);
    return good && !cut && hit.fault != FAULT_LONG_LENGTH && hit.fault != FAULT_NO_LENGTH;
}

/* ---- control ---- */

static unsigned long
number(const struct request *request, const char *name, unsigned long fallback)
{
    char text[32];
    uint64_t value = 0;
    if (!request_param(request, name, text, sizeof(text)) || !parse_u64(text, &value))
        return fallback;
    return (unsigned long)value;
}

static void
control(const struct request *request, struct reply *reply)
{
    char kind[32] = "";
    char op[8] = "*";
    char key[1100] = "";
    reply->status = 200;
    if (strcmp(request->bucket, "_fault") == 0) {
        (void)request_param(request, "kind", kind, sizeof(kind));
        (void)request_param(request, "op", op, sizeof(op));
        if (!faults_add(kind, op, (unsigned)number(request, "skip", 0),
                        (unsigned)number(request, "count", 1), number(request, "arg", 0)))
            reply->status = 400;
    } else if (strcmp(request->bucket, "_reset") == 0) {
        faults_clear();
        objects_clear();
        atomic_store(&objects_page_size, 1000);
    } else if (strcmp(request->bucket, "_mode") == 0) {
        atomic_store(&faults_skew_s, (int64_t)number(request, "skew", 0));
        atomic_store(&objects_page_size, (unsigned)number(request, "page", 1000));
    } else if (strcmp(request->bucket, "_stats") == 0) {
        faults_stats(&reply->body);
    } else if (strcmp(request->bucket, "_raw") == 0) {
        (void)request_param(request, "key", key, sizeof(key));
        objects_raw(key, reply);
    } else {
        reply->status = 404;
    }
}

/* ---- faults of the connection ---- */

struct answer {
    int status;
    const char *code;
};

static const struct answer canned[] = {
    [FAULT_ERROR500] = { 500, "InternalError" },
    [FAULT_ERROR502] = { 502, "BadGateway" },
    [FAULT_ERROR504] = { 504, "GatewayTimeout" },
    [FAULT_SLOWDOWN] = { 503, "SlowDown" },
    [FAULT_BUSY429] = { 429, "TooManyRequests" },
    [FAULT_REQUEST_TIMEOUT] = { 400, "RequestTimeout" },
    [FAULT_RACE409] = { 409, "ConditionalRequestConflict" },
    [FAULT_ERROR200] = { 200, "InternalError" },
    [FAULT_DENIED] = { 403, "AccessDenied" },
    [FAULT_EXPIRED] = { 400, "ExpiredToken" },
    [FAULT_ERROR500_AFTER] = { 500, "InternalError" },
    [FAULT_ERROR200_AFTER] = { 200, "InternalError" },
    [FAULT_IGNORE_CONDITIONS] = { 0, NULL },
};

static void
canned_reply(struct hit hit, bool is_head, struct reply *reply)
{
    reply_error(reply, canned[hit.fault].status, canned[hit.fault].code, "as planned");
    reply->no_body = is_head;
    if (hit.fault == FAULT_BUSY429)
        reply_header(reply, "Retry-After: %lu", hit.arg ? hit.arg : 1);
}

struct late {
    struct request *request;
    char op[8];
    unsigned long ms;
};

static void *
carry_out_late(void *arg)
{
    struct late *late = arg;
    struct reply reply;
    clock_sleep_ns((int64_t)late->ms * NS_PER_MS);
    reply_init(&reply);
    objects_handle(late->request, late->op, (struct hit){ FAULT_NONE, 0 }, &reply);
    reply_release(&reply);
    free_request(late->request);
    free(late);
    return NULL;
}

/* Takes the request. */
static void
hold_back(struct request *request, const char *op, unsigned long ms)
{
    pthread_t thread;
    struct late *late = calloc(1, sizeof(*late));
    late->request = request;
    late->ms = ms;
    (void)snprintf(late->op, sizeof(late->op), "%s", op);
    if (pthread_create(&thread, NULL, carry_out_late, late) == 0)
        pthread_detach(thread);
}

enum next { GO_ON, CLOSE, CLOSE_TAKEN };

/* Faults in place of the call. */
static bool
fault_before(struct hit hit, bool is_head, struct reply *reply)
{
    switch (hit.fault) {
    case FAULT_WRONG_REGION:
        reply_error(reply, 400, "AuthorizationHeaderMalformed", "x");
        buf_clear(&reply->body);
        reply_body(reply, "<Error><Code>AuthorizationHeaderMalformed</Code><Message>the region is "
                          "wrong</Message><Region>eu-west-3</Region></Error>");
        reply->no_body = is_head;
        return true;
    case FAULT_HTML404:
        reply->status = 404;
        reply_body(reply, "<html><body>Not here</body></html>");
        reply->no_body = is_head;
        return true;
    case FAULT_ERROR500:
    case FAULT_ERROR502:
    case FAULT_ERROR504:
    case FAULT_SLOWDOWN:
    case FAULT_BUSY429:
    case FAULT_REQUEST_TIMEOUT:
    case FAULT_RACE409:
    case FAULT_ERROR200:
    case FAULT_DENIED:
    case FAULT_EXPIRED:
        canned_reply(hit, is_head, reply);
        return true;
    default:
        return false;
    }
}

static enum next
serve_signed(int fd, struct request *request, const char *op, struct reply *reply)
{
    struct hit hit = faults_next(op);
    bool is_head = strcmp(op, "HEAD") == 0;
    if (hit.fault == FAULT_RESET_BEFORE) {
        reset(fd);
        return CLOSE;
    }
    if (hit.fault == FAULT_SILENT) {
        wait_for_close(fd);
        return CLOSE;
    }
    if (hit.fault == FAULT_LATE) {
        hold_back(request, op, hit.arg);
        reset(fd);
        return CLOSE_TAKEN;
    }
    if (!fault_before(hit, is_head, reply))
        objects_handle(request, op, hit, reply);
    if (hit.fault == FAULT_RESET_AFTER) {
        reset(fd);
        return CLOSE;
    }
    if (hit.fault == FAULT_LOST) {
        wait_for_close(fd);
        return CLOSE;
    }
    if (hit.fault == FAULT_ERROR500_AFTER || hit.fault == FAULT_ERROR200_AFTER)
        canned_reply(hit, is_head, reply);
    return send_reply(fd, reply, hit) ? GO_ON : CLOSE;
}

static const char *
operation(const struct request *request)
{
    if (strcmp(request->method, "GET") == 0 && request->key[0] == '\0')
        return "LIST";
    if (strcmp(request->method, "PUT") == 0 && request_field(request, "x-amz-copy-source"))
        return "COPY";
    return request->method;
}

static enum next
serve(int fd, struct request *request)
{
    struct hit none = { FAULT_NONE, 0 };
    struct reply reply;
    enum next next = GO_ON;
    reply_init(&reply);
    if (request->bucket[0] == '_') {
        control(request, &reply);
        next = send_reply(fd, &reply, none) ? GO_ON : CLOSE;
    } else if (!sigv4_check(request, &reply)) {
        reply.no_body = strcmp(request->method, "HEAD") == 0;
        next = send_reply(fd, &reply, none) ? GO_ON : CLOSE;
    } else {
        next = serve_signed(fd, request, operation(request), &reply);
    }
    reply_release(&reply);
    return next;
}

static void *
run_connection(void *arg)
{
    struct connection *connection = arg;
    enum next next = GO_ON;
    while (next == GO_ON) {
        struct request *request = calloc(1, sizeof(*request));
        if (!read_head(connection, request) || !read_body(connection, request))
            next = CLOSE;
        else
            next = serve(connection->fd, request);
        if (next != CLOSE_TAKEN)
            free_request(request);
    }
    close(connection->fd);
    free(connection);
    return NULL;
}

static int
listen_on(unsigned port)
{
    int one = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)port),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof(address);
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
        listen(fd, 128) < 0 || getsockname(fd, (struct sockaddr *)&address, &len) < 0) {
        (void)fprintf(stderr, "fault-server: no socket: %s\n", strerrordesc_np(errno));
        return -1;
    }
    (void)printf("%u\n", (unsigned)ntohs(address.sin_port));
    (void)fflush(stdout);
    return fd;
}

int
main(int argc, char **argv)
{
    uint64_t port = 0;
    if (argc != 3 || strcmp(argv[1], "--port") != 0 || !parse_u64(argv[2], &port) || port > 65535) {
        (void)fprintf(stderr, "usage: fault-server --port N (0: any; the port is printed)\n");
        return 2;
    }
    (void)signal(SIGPIPE, SIG_IGN);
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM); /* ends with the test that started it */
    int fd = listen_on((unsigned)port);
    if (fd < 0)
        return 1;
    for (;;) {
        int client = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
        if (client < 0)
            continue;
        int one = 1;
        (void)setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        pthread_t thread;
        struct connection *connection = calloc(1, sizeof(*connection));
        connection->fd = client;
        if (pthread_create(&thread, NULL, run_connection, connection) == 0)
            pthread_detach(thread);
    }
}
