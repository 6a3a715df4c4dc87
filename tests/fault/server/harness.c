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

#include "tests/fault/server/harness.h"
#include "tests/fault/server/server.h"

#include "base/hash.h"

static pid_t server_pid;
unsigned server_port;
struct store *store;

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
int
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

void
control(const char *fmt, ...)
{
    char target[512];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(target, sizeof(target), fmt, ap);
    va_end(ap);
    assert_int_equal(plain_request("POST", target, NULL, 0), 200);
}

void
fault(const char *kind, const char *op, unsigned count, unsigned arg)
{
    control("/_fault?kind=%s&op=%s&count=%u&arg=%u", kind, op, count, arg);
}

unsigned
seen(const char *op)
{
    char text[1024] = "\n";
    char name[OP_SIZE + 3];
    assert_int_equal(plain_request("GET", "/_stats", text + 1, sizeof(text) - 1), 200);
    (void)snprintf(name, sizeof(name), "\n%s=", op);
    const char *at = strstr(text, name);
    assert_non_null(at);
    return (unsigned)strtoul(at + strlen(name), NULL, 10);
}

/* What lies at the key, asked without the code under test; NULL: nothing. */
void
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
test_keys(void *arg, struct s3_credentials *out, struct err *failure)
{
    (void)failure;
    memset(out, 0, sizeof(*out));
    (void)snprintf(out->access_key, sizeof(out->access_key), "FAULTSERVERKEY000001");
    (void)snprintf(out->secret_key, sizeof(out->secret_key), "%s",
                   arg ? (const char *)arg : "faultServerSecret/0123456789+abcdefghij");
    return 0;
}

struct store *
open_store(const char *bucket, unsigned port, bool wrong_secret)
{
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

int
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

int
stop_server(void **state)
{
    (void)state;
    kill(server_pid, SIGTERM);
    waitpid(server_pid, NULL, 0);
    return 0;
}

int
begin(void **state)
{
    (void)state;
    control("/_reset");
    store = open_store("test", server_port, false);
    return 0;
}

int
end(void **state)
{
    (void)state;
    store_free(store);
    store = NULL;
    return 0;
}

/* ---- calls with a deadline that is watched ---- */

struct err err;
struct store_put_result res;
static int64_t deadline;

int64_t
within(int64_t ns)
{
    deadline = clock_mono_ns() + ns;
    return deadline;
}

int
on_time(int result)
{
    assert_true(clock_mono_ns() <= deadline + SLACK);
    return result;
}

int
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

const struct store_cond absent = { STORE_COND_ABSENT, NULL };
const struct store_cond any = { STORE_COND_NONE, NULL };

void
put_ok(const char *key, const char *text)
{
    assert_int_equal(put_at(key, text, any, NULL, 10 * NS_PER_S), 0);
}
