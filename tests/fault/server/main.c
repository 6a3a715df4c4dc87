#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/parse.h"
#include "tests/fault/server/http.h"

/* Sockets, the control requests, and the faults that concern the connection. */

/* ---- control ---- */

static void
set_mode(const struct request *request)
{
    const struct mode mode = {
        .page = (unsigned)request_number(request, "page", mode_default.page),
        .min_part = request_number(request, "min_part", mode_default.min_part),
        .max_copy = request_number(request, "max_copy", mode_default.max_copy),
        .write_ms = (unsigned)request_number(request, "write_ms", mode_default.write_ms),
        .lag_ms = (unsigned)request_number(request, "lag_ms", mode_default.lag_ms),
        .lag_lists = (unsigned)request_number(request, "lag_lists", mode_default.lag_lists),
    };
    atomic_store(&faults_skew_s, (int64_t)request_number(request, "skew", 0));
    objects_mode(&mode);
}

static void
control(const struct request *request, struct reply *reply)
{
    char kind[32] = "";
    char op[OP_SIZE] = "*";
    char key[1100] = "";
    reply->status = 200;
    if (strcmp(request->bucket, "_fault") == 0) {
        (void)request_param(request, "kind", kind, sizeof(kind));
        (void)request_param(request, "op", op, sizeof(op));
        if (!faults_add(kind, op, (unsigned)request_number(request, "skip", 0),
                        (unsigned)request_number(request, "count", 1),
                        request_number(request, "arg", 0)))
            reply->status = 400;
    } else if (strcmp(request->bucket, "_reset") == 0) {
        faults_clear();
        objects_clear();
        objects_mode(&mode_default);
    } else if (strcmp(request->bucket, "_mode") == 0) {
        set_mode(request);
    } else if (strcmp(request->bucket, "_role") == 0) {
        (void)request_param(request, "name", key, sizeof(key));
        reply->status = roles_set(key) ? 200 : 400;
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
    [FAULT_NO_UPLOAD] = { 404, "NoSuchUpload" },
    [FAULT_SPACES_ERROR] = { 200, "InternalError" },
    [FAULT_SPACES_ERROR_AFTER] = { 200, "InternalError" },
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
    char op[OP_SIZE];
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
    http_free_request(late->request);
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
    case FAULT_NO_UPLOAD:
    case FAULT_SPACES_ERROR:
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
        http_reset(fd);
        return CLOSE;
    }
    if (hit.fault == FAULT_SILENT) {
        http_wait_for_close(fd);
        return CLOSE;
    }
    if (hit.fault == FAULT_LATE) {
        hold_back(request, op, hit.arg);
        http_reset(fd);
        return CLOSE_TAKEN;
    }
    if (!fault_before(hit, is_head, reply))
        objects_handle(request, op, hit, reply);
    if (hit.fault == FAULT_RESET_AFTER) {
        http_reset(fd);
        return CLOSE;
    }
    if (hit.fault == FAULT_LOST) {
        http_wait_for_close(fd);
        return CLOSE;
    }
    if (hit.fault == FAULT_ERROR500_AFTER || hit.fault == FAULT_ERROR200_AFTER ||
        hit.fault == FAULT_SPACES_ERROR_AFTER)
        canned_reply(hit, is_head, reply);
    bool spaces = hit.fault == FAULT_SPACES || hit.fault == FAULT_SPACES_ERROR ||
                  hit.fault == FAULT_SPACES_ERROR_AFTER;
    if (spaces && reply->status == 200 && !reply->no_body && !reply->content)
        return http_send_spaces(fd, reply, hit) ? GO_ON : CLOSE;
    return http_send_reply(fd, reply, hit) ? GO_ON : CLOSE;
}

static const struct {
    const char *method, *param; /* NULL: none is needed */
    bool key, copy;
    const char *op;
} operations[] = {
    { "GET", "uploads", false, false, "UPLOADS" }, { "GET", "uploadId", true, false, "PARTS" },
    { "GET", NULL, false, false, "LIST" },         { "POST", "delete", false, false, "DELMANY" },
    { "POST", "uploads", true, false, "CREATE" },  { "POST", "uploadId", true, false, "COMPLETE" },
    { "PUT", "uploadId", true, true, "PARTCOPY" }, { "PUT", "uploadId", true, false, "PART" },
    { "PUT", NULL, true, true, "COPY" },           { "DELETE", "uploadId", true, false, "ABORT" },
};

static const char *
operation(const struct request *request)
{
    bool key = request->key[0] != '\0';
    bool copy = request_field(request, "x-amz-copy-source") != NULL;
    for (size_t i = 0; i < sizeof(operations) / sizeof(operations[0]); i++) {
        if (strcmp(request->method, operations[i].method) == 0 && key == operations[i].key &&
            copy == operations[i].copy &&
            (!operations[i].param || request_has(request, operations[i].param)))
            return operations[i].op;
    }
    return request->method;
}

/* Some stores refuse a body, even an empty one, where none belongs. */
static bool
shape_fits(const struct request *request, struct reply *reply)
{
    const char *method = request->method;
    if (atomic_load(&objects_lenient) || !request_field(request, "content-length") ||
        strcmp(method, "PUT") == 0 || strcmp(method, "POST") == 0)
        return true;
    reply_error(reply, 400, "InvalidRequest", "a body where none belongs");
    return false;
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
        next = http_send_reply(fd, &reply, none) ? GO_ON : CLOSE;
    } else if (!sigv4_check(request, &reply) || !shape_fits(request, &reply)) {
        reply.no_body = strcmp(request->method, "HEAD") == 0;
        next = http_send_reply(fd, &reply, none) ? GO_ON : CLOSE;
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
        if (!http_read_head(connection, request) || !http_read_body(connection, request))
            next = CLOSE;
        else
            next = serve(connection->fd, request);
        if (next != CLOSE_TAKEN)
            http_free_request(request);
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

/* Options; answers whether they make sense. */
struct options {
    uint64_t port;
    bool stay; /* live on without the process that started it */
    struct mode mode;
};

static bool
read_number(const char *text, unsigned *out)
{
    uint64_t value = 0;
    if (!text || !parse_u64(text, &value) || value > UINT32_MAX)
        return false;
    *out = (unsigned)value;
    return true;
}

static bool
read_options(int argc, char **argv, struct options *out)
{
    const char *role = getenv("FAULT_SERVER_ROLE");
    bool good = !role || roles_set(role);
    for (int i = 1; i < argc && good; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(argv[i], "--stay") == 0) {
            out->stay = true;
            continue;
        }
        if (strcmp(argv[i], "--lenient") == 0) {
            atomic_store(&objects_lenient, true);
            continue;
        }
        if (strcmp(argv[i], "--port") == 0)
            good = value && parse_u64(value, &out->port) && out->port <= 65535;
        else if (strcmp(argv[i], "--role") == 0)
            good = value && roles_set(value);
        else if (strcmp(argv[i], "--write-ms") == 0)
            good = read_number(value, &out->mode.write_ms);
        else if (strcmp(argv[i], "--lag-ms") == 0)
            good = read_number(value, &out->mode.lag_ms);
        else if (strcmp(argv[i], "--lag-lists") == 0)
            good = read_number(value, &out->mode.lag_lists);
        else
            good = false;
        i++;
    }
    return good;
}

static void
usage(void)
{
    char names[256];
    roles_names(names, sizeof(names));
    (void)fprintf(stderr,
                  "usage: fault-server --port N [--role NAME[,NAME]...] [--write-ms N] [--lag-ms "
                  "N] [--lag-lists N] "
                  "[--stay] [--lenient]\n"
                  "  --port 0 takes any; the port is printed. Roles (also FAULT_SERVER_ROLE): %s\n",
                  names);
}

int
main(int argc, char **argv)
{
    struct options options = { .mode = mode_default };
    if (argc < 3 || !read_options(argc, argv, &options)) {
        usage();
        return 2;
    }
    mode_default = options.mode;
    objects_mode(&mode_default);
    (void)signal(SIGPIPE, SIG_IGN);
    if (!options.stay)
        (void)prctl(PR_SET_PDEATHSIG, SIGTERM); /* ends with the test that started it */
    int fd = listen_on((unsigned)options.port);
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
