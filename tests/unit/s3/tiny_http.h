#ifndef TESTS_UNIT_S3_TINY_HTTP_H
#define TESTS_UNIT_S3_TINY_HTTP_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* A server on loopback that gives prepared answers in order, one per connection, and keeps what it was asked. */
#define TINY_MAX 16

struct tiny_answer {
    int status;
    const char *headers; /* further ones, each with its CR LF; NULL: none */
    const char *body;
};

struct tiny {
    int fd;
    unsigned port;
    pthread_t thread;
    struct tiny_answer answer[TINY_MAX];
    size_t count;
    char request[TINY_MAX][16384];
    atomic_size_t seen;
};

/* The head of the request, and of its body what Content-Length says. */
static inline void
tiny_read(int conn, char *out, size_t size)
{
    size_t len = 0;
    size_t want = 0;
    out[0] = '\0';
    while (len + 1 < size && (want == 0 || len < want)) {
        ssize_t got = read(conn, out + len, size - 1 - len);
        if (got <= 0)
            return;
        len += (size_t)got;
        out[len] = '\0';
        const char *end = strstr(out, "\r\n\r\n");
        if (!end)
            continue;
        const char *length = strcasestr(out, "\r\ncontent-length:");
        size_t body = length && length < end ? strtoul(length + 17, NULL, 10) : 0;
        want = (size_t)(end - out) + 4 + body;
    }
}

static inline void *
tiny_main(void *arg)
{
    struct tiny *tiny = arg;
    for (;;) {
        int conn = accept4(tiny->fd, NULL, NULL, SOCK_CLOEXEC);
        if (conn < 0)
            return NULL;
        size_t i = atomic_load(&tiny->seen);
        if (i < tiny->count) {
            const struct tiny_answer *answer = &tiny->answer[i];
            tiny_read(conn, tiny->request[i], sizeof(tiny->request[i]));
            atomic_store(&tiny->seen, i + 1);
            (void)dprintf(conn,
                          "HTTP/1.1 %d X\r\nContent-Length: %zu\r\nConnection: close\r\n%s\r\n%s",
                          answer->status, strlen(answer->body),
                          answer->headers ? answer->headers : "", answer->body);
        }
        (void)shutdown(conn, SHUT_WR);
        (void)close(conn);
    }
}

static inline void
tiny_start(struct tiny *tiny, const struct tiny_answer *answer, size_t count)
{
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof(address);
    memset(tiny, 0, sizeof(*tiny));
    memcpy(tiny->answer, answer, count * sizeof(*answer));
    tiny->count = count;
    tiny->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (tiny->fd < 0 || bind(tiny->fd, (struct sockaddr *)&address, len) < 0 ||
        listen(tiny->fd, 16) < 0 || getsockname(tiny->fd, (struct sockaddr *)&address, &len) < 0 ||
        pthread_create(&tiny->thread, NULL, tiny_main, tiny) != 0)
        abort();
    tiny->port = ntohs(address.sin_port);
}

/* What the i-th request was; "" when it never came. */
static inline const char *
tiny_request(struct tiny *tiny, size_t i)
{
    return i < atomic_load(&tiny->seen) ? tiny->request[i] : "";
}

static inline void
tiny_stop(struct tiny *tiny)
{
    (void)shutdown(tiny->fd, SHUT_RDWR);
    (void)pthread_join(tiny->thread, NULL);
    (void)close(tiny->fd);
}

#endif
