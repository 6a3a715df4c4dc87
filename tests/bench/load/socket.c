#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/parse.h"
#include "base/scope.h"
#include "tests/bench/load/load.h"

/* One blocking keep-alive connection, plain HTTP/1.1 (RFC 9112). */
struct wire {
    const struct endpoint *endpoint;
    int fd;
    bool used; /* has carried a request: a broken one may only be stale */
    struct buf head;
    struct buf sign;
    size_t have; /* bytes in `block` beyond the head of the answer */
    char block[BLOCK_SIZE];
};

static int
dial(struct wire *wire, struct err *err)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
    struct addrinfo *found = NULL;
    int one = 1;
    int status = getaddrinfo(wire->endpoint->host, wire->endpoint->port, &hints, &found);
    if (status != 0)
        return err_set(err, ERR_STORE_AWAY, "no address of '%s'", wire->endpoint->host);
    int fd = -1;
    for (struct addrinfo *a = found; a && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, 0);
        if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) < 0) {
            (void)close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(found);
    if (fd < 0)
        return err_sys(err, errno, "no connection to '%s'", wire->endpoint->host_header);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    wire->fd = fd;
    wire->used = false;
    return 0;
}

static void *
wire_open(const struct endpoint *endpoint, struct err *err)
{
    if (endpoint->tls) {
        (void)err_set(err, ERR_USAGE, "the socket client speaks no TLS");
        return NULL;
    }
    struct wire *wire = malloc(sizeof(*wire));
    if (!wire) {
        (void)err_nomem(err);
        return NULL;
    }
    wire->endpoint = endpoint;
    wire->fd = -1;
    wire->used = false;
    wire->have = 0;
    buf_init(&wire->head, 65536);
    buf_init(&wire->sign, 8192);
    return wire;
}

static void
hang_up(struct wire *wire)
{
    if (wire->fd >= 0)
        (void)close(wire->fd);
    wire->fd = -1;
}

static void
wire_close(void *conn)
{
    struct wire *wire = conn;
    if (!wire)
        return;
    hang_up(wire);
    buf_release(&wire->head);
    buf_release(&wire->sign);
    free(wire);
}

static int
send_all(int fd, const void *data, size_t len, bool more, struct err *err)
{
    const char *at = data;
    while (len > 0) {
        ssize_t n = send(fd, at, len, MSG_NOSIGNAL | (more ? MSG_MORE : 0));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return err_sys(err, errno, "the server takes no more");
        at += n;
        len -= (size_t)n;
    }
    return 0;
}

static int
send_file(int to, const struct request *request, struct err *err)
{
    off_t off = (off_t)request->in_off;
    uint64_t left = request->in_len;
    while (left > 0) {
        ssize_t n = sendfile(to, request->in_fd, &off, left < BLOCK_SIZE ? left : BLOCK_SIZE);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return err_sys(err, errno, "the file or the server takes no more");
        left -= (uint64_t)n;
    }
    return 0;
}

static int
put_request(struct wire *wire, const struct request *request, struct err *err)
{
    struct buf *head = &wire->head;
    bool body = request->in_len > 0;
    if (sign_headers(wire->endpoint, request, &wire->sign, err) < 0)
        return -1;
    buf_clear(head);
    if (buf_appendf(head, err, "%s /%s%s%s%s%s HTTP/1.1\r\nHost: %s\r\n", request->method,
                    wire->endpoint->bucket, request->key[0] ? "/" : "", request->key,
                    request->query[0] ? "?" : "", request->query,
                    wire->endpoint->host_header) < 0 ||
        buf_append(head, wire->sign.data, wire->sign.len, err) < 0)
        return -1;
    if (request->range_len > 0 &&
        buf_appendf(head, err, "Range: bytes=%llu-%llu\r\n", (unsigned long long)request->range_off,
                    (unsigned long long)(request->range_off + request->range_len - 1)) < 0)
        return -1;
    if (request->method[0] == 'P' &&
        buf_appendf(head, err, "Content-Length: %llu\r\n", (unsigned long long)request->in_len) < 0)
        return -1;
    if ((request->if_absent && buf_append_str(head, "If-None-Match: *\r\n", err) < 0) ||
        buf_append_str(head, "\r\n", err) < 0 ||
        send_all(wire->fd, head->data, head->len, body, err) < 0)
        return -1;
    if (!body)
        return 0;
    return request->mem ? send_all(wire->fd, request->mem, request->in_len, false, err)
                        : send_file(wire->fd, request, err);
}

/* Reads to the empty line; what came of the body stays in `block`, the head is cut off with NUL. */
static int
read_head(struct wire *wire, struct err *err)
{
    char *end = NULL;
    buf_clear(&wire->head);
    while (!end) {
        char *room = buf_reserve(&wire->head, 16384, err);
        if (!room)
            return -1;
        ssize_t n = recv(wire->fd, room, 16384, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return err_set(err, ERR_STORE_AWAY, "the server closed the connection");
        buf_commit(&wire->head, (size_t)n);
        end = strstr(buf_cstr(&wire->head), "\r\n\r\n");
    }
    size_t head = (size_t)(end - wire->head.data) + 4;
    wire->have = wire->head.len - head;
    memcpy(wire->block, wire->head.data + head, wire->have);
    buf_truncate(&wire->head, head - 2);
    return 0;
}

/* The value of a header into `out`; false when there is none. */
static bool
header(const char *head, const char *name, char *out, size_t size)
{
    size_t len = strlen(name);
    for (const char *line = strstr(head, "\r\n"); line; line = strstr(line + 2, "\r\n")) {
        if (strncasecmp(line + 2, name, len) != 0 || line[2 + len] != ':')
            continue;
        const char *value = line + 3 + len;
        value += strspn(value, " \t");
        (void)snprintf(out, size, "%.*s", (int)strcspn(value, "\r"), value);
        return true;
    }
    return false;
}

static int
keep(const struct request *request, struct answer *answer, const char *data, size_t len,
     struct err *err)
{
    if (request->out_fd < 0 || answer->status / 100 != 2) {
        answer->got += len;
        return buf_append(&answer->body, data, len, err);
    }
    while (len > 0) {
        ssize_t n = pwrite(request->out_fd, data, len, (off_t)(request->out_off + answer->got));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return err_sys(err, errno, "cannot write the file");
        data += n;
        len -= (size_t)n;
        answer->got += (uint64_t)n;
    }
    return 0;
}

static int
read_sized(struct wire *wire, const struct request *request, struct answer *answer, struct err *err)
{
    if (keep(request, answer, wire->block, wire->have, err) < 0)
        return -1;
    while (answer->got < answer->length) {
        uint64_t left = answer->length - answer->got;
        ssize_t n = recv(wire->fd, wire->block, left < BLOCK_SIZE ? left : BLOCK_SIZE, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return err_set(err, ERR_STORE_AWAY, "the answer is cut");
        if (keep(request, answer, wire->block, (size_t)n, err) < 0)
            return -1;
    }
    return 0;
}

/* Listings and XML answers may come in chunks (RFC 9112 section 7.1): small, so unpacked when all is there. */
static int
read_chunked(struct wire *wire, struct answer *answer, struct err *err)
{
    scope_buf raw;
    buf_init(&raw, 8 << 20);
    if (buf_append(&raw, wire->block, wire->have, err) < 0)
        return -1;
    size_t at = 0;
    for (;;) {
        const char *line = buf_cstr(&raw) + at;
        const char *end = strstr(line, "\r\n");
        char *stop = NULL;
        size_t size = end ? strtoul(line, &stop, 16) : 0;
        size_t begin = end ? (size_t)(end - buf_cstr(&raw)) + 2 : 0;
        if (end && raw.len >= begin + size + 2) {
            if (size == 0)
                return 0;
            if (buf_append(&answer->body, raw.data + begin, size, err) < 0)
                return -1;
            at = begin + size + 2;
            continue;
        }
        ssize_t n = recv(wire->fd, wire->block, BLOCK_SIZE, 0);
        if (n <= 0)
            return err_set(err, ERR_STORE_AWAY, "the answer is cut");
        if (buf_append(&raw, wire->block, (size_t)n, err) < 0)
            return -1;
    }
}

static int
read_answer(struct wire *wire, const struct request *request, struct answer *answer,
            struct err *err)
{
    char value[160];
    if (read_head(wire, err) < 0)
        return -1;
    const char *head = buf_cstr(&wire->head);
    if (strncmp(head, "HTTP/1.", 7) != 0 || wire->head.len < 12)
        return err_set(err, ERR_STORE_BAD_ANSWER, "this is no HTTP answer");
    answer->status = (int)strtol(head + 9, NULL, 10);
    answer->got = 0;
    answer->length = 0;
    if (header(head, "content-length", value, sizeof(value)) && !parse_u64(value, &answer->length))
        return err_set(err, ERR_STORE_BAD_ANSWER, "the length '%s' is no number", value);
    if (!header(head, "etag", answer->etag, sizeof(answer->etag)))
        answer->etag[0] = '\0';
    bool close_it = header(head, "connection", value, sizeof(value)) && !strcasecmp(value, "close");
    int result = 0;
    if (request->method[0] == 'H' || answer->status == 204)
        wire->have = 0;
    else if (header(head, "transfer-encoding", value, sizeof(value)))
        result = read_chunked(wire, answer, err);
    else
        result = read_sized(wire, request, answer, err);
    if (close_it)
        hang_up(wire);
    return result;
}

static int
wire_send(void *conn, const struct request *request, struct answer *answer, struct err *err)
{
    struct wire *wire = conn;
    for (;;) {
        if (wire->fd < 0 && dial(wire, err) < 0)
            return -1;
        bool stale = wire->used;
        buf_clear(&answer->body);
        if (put_request(wire, request, err) == 0 && read_answer(wire, request, answer, err) == 0) {
            wire->used = true;
            return 0;
        }
        hang_up(wire);
        if (!stale)
            return -1;
    }
}

const struct transport transport_socket = { "socket", wire_open, wire_send, wire_close };
