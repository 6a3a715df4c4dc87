/* Requests against the whole server in one process, over a store in memory: statuses, conditions, who may ask. */
#include <arpa/inet.h>
#include <setjmp.h>
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

#include "base/clock.h"
#include "gateway/listen.h"
#include "gateway/server.h"
#include "s3/open.h"
#include "tests/support/tmp.h"

#define TOKEN "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static struct {
    char dir[80];
    char socket[96];
    struct gateway gateway;
    struct gateway_server *local, *tcp;
    char answer[1u << 20];
    size_t answer_len;
} t;

/* ---- one exchange ---- */
static void
receive_all(int fd)
{
    t.answer_len = 0;
    for (;;) {
        ssize_t got = recv(fd, t.answer + t.answer_len, sizeof(t.answer) - 1 - t.answer_len, 0);
        if (got <= 0)
            break;
        t.answer_len += (size_t)got;
    }
    t.answer[t.answer_len] = '\0';
    assert_int_equal(close(fd), 0);
}

/* Status of the answer, which is in t.answer. `head` holds whole lines. */
static int
ask(int fd, const char *line, const char *host, const char *head, const char *body)
{
    char request[4096];
    int len =
        snprintf(request, sizeof(request),
                 "%s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n%sContent-Length: %zu\r\n\r\n%s",
                 line, host, head, strlen(body), body);
    assert_int_equal(send(fd, request, (size_t)len, MSG_NOSIGNAL), len);
    receive_all(fd);
    assert_memory_equal(t.answer, "HTTP/1.1 ", 9);
    return (int)strtol(t.answer + 9, NULL, 10);
}

static int
ask_local(const char *line, const char *head, const char *body)
{
    struct err err = ERR_INIT;
    int fd = gateway_listen_connect(t.socket, SOCK_STREAM, &err);
    assert_true(fd >= 0);
    return ask(fd, line, "localhost", head, body);
}

static const char *
body_of(void)
{
    const char *end = strstr(t.answer, "\r\n\r\n");
    assert_non_null(end);
    return end + 4;
}

static const char *
header_of(const char *name)
{
    static char value[256];
    char wanted[64];
    (void)snprintf(wanted, sizeof(wanted), "\r\n%s: ", name);
    const char *at = strstr(t.answer, wanted);
    if (!at)
        return "";
    at += strlen(wanted);
    (void)snprintf(value, sizeof(value), "%.*s", (int)strcspn(at, "\r"), at);
    return value;
}

/* ---- fixture ---- */
static int
start(void **state)
{
    struct err err = ERR_INIT;
    (void)state;
    (void)snprintf(t.dir, sizeof(t.dir), "%s/holdfast-server.XXXXXX", tmp_base());
    assert_non_null(mkdtemp(t.dir));
    (void)snprintf(t.socket, sizeof(t.socket), "%s/sock", t.dir);
    struct store *store = store_open(&(struct store_open_args){ .url = "mem:" }, &err);
    assert_non_null(store);
    struct volume_service_args args = { .state_dir = t.dir,
                                        .store = store,
                                        .cache = { .reserve_bytes = 65536 } };
    t.gateway.service = volume_service_open(&args, &err);
    if (!t.gateway.service)
        print_error("%s\n", err.msg);
    assert_non_null(t.gateway.service);
    assert_int_equal(volume_service_start(t.gateway.service, &err), 0);
    t.gateway.state_dir = t.dir;
    t.gateway.uid = getuid();
    t.gateway.gid = getgid();
    memcpy(t.gateway.token, TOKEN, sizeof(TOKEN));
    struct gateway_server_args local = { .gateway = &t.gateway,
                                         .local = true,
                                         .peer_uid = getuid() };
    local.listen_fd = gateway_listen_unix(t.socket, SOCK_STREAM, &err);
    t.local = gateway_server_start(&local, &err);
    struct gateway_server_args tcp = { .gateway = &t.gateway };
    tcp.listen_fd = gateway_listen_tcp("127.0.0.1:0", &t.gateway.port, &err);
    t.tcp = gateway_server_start(&tcp, &err);
    assert_non_null(t.local);
    assert_non_null(t.tcp);
    assert_int_equal(ask_local("POST /v1/volumes", "", "{\"name\":\"v\"}"), 201);
    return 0;
}

static int
stop(void **state)
{
    char command[] = "/bin/rm";
    char flag[] = "-rf";
    char *argv[] = { command, flag, t.dir, NULL };
    (void)state;
    gateway_server_quiesce(t.local);
    gateway_server_stop(t.local);
    gateway_server_stop(t.tcp);
    volume_service_close(t.gateway.service, clock_mono_ns() + 5 * NS_PER_S);
    pid_t pid = fork();
    if (pid == 0)
        (void)execv(command, argv);
    return waitpid(pid, NULL, 0) == pid ? 0 : -1;
}

/* ---- tests ---- */
static void
test_write_and_read(void **state)
{
    char head[256];
    (void)state;
    assert_int_equal(ask_local("PUT /v1/files/v/a", "", "one"), 428);
    assert_non_null(strstr(body_of(), "\"code\":\"precondition-needed\""));
    assert_int_equal(ask_local("PUT /v1/files/v/a", "If-None-Match: *\r\n", "one"), 201);
    (void)snprintf(head, sizeof(head), "If-Match: %s\r\n", header_of("ETag"));
    assert_int_equal(ask_local("PUT /v1/files/v/a", "If-None-Match: *\r\n", "two"), 412);
    assert_non_null(strstr(body_of(), "\"current\""));
    assert_int_equal(ask_local("PUT /v1/files/v/a", head, "three"), 200);
    assert_int_equal(ask_local("PUT /v1/files/v/a", head, "four"), 412);
    assert_int_equal(ask_local("GET /v1/files/v/a", "", ""), 200);
    assert_string_equal(body_of(), "three");
    assert_string_equal(header_of("X-Content-Type-Options"), "nosniff");
    assert_int_equal(ask_local("GET /v1/files/v/a", "Range: bytes=1-2\r\n", ""), 206);
    assert_string_equal(body_of(), "hr");
    assert_string_equal(header_of("Content-Range"), "bytes 1-2/5");
    assert_int_equal(ask_local("GET /v1/files/v/a", "Range: bytes=5-\r\n", ""), 416);
    assert_string_equal(header_of("Content-Range"), "bytes */5");
    assert_int_equal(ask_local("HEAD /v1/files/v/a", "", ""), 200);
    assert_string_equal(header_of("Content-Length"), "5");
    assert_string_equal(body_of(), "");
    assert_int_equal(ask_local("DELETE /v1/files/v/a", "", ""), 428);
    assert_int_equal(ask_local("DELETE /v1/files/v/a", head, ""), 412);
    assert_int_equal(ask_local("DELETE /v1/files/v/a", "If-Match: *\r\n", ""), 204);
    assert_int_equal(ask_local("GET /v1/files/v/a", "", ""), 404);
}

struct ask {
    const char *line;
    const char *body;
    int status;
    const char *holds;
};

static const struct ask asks[] = {
    { "GET /healthz", "", 200, "ok" },
    { "GET /readyz", "", 200, "ready" },
    { "GET /", "", 404, "not-found" },
    { "GET /v1/volumes", "", 200, "\"name\":\"v\"" },
    { "GET /v1/volumes/v", "", 200, "\"prefix\":\"v/\"" },
    { "GET /v1/volumes/none", "", 404, "not-found" },
    { "POST /v1/volumes", "{\"name\":\"v\"}", 409, "exists" },
    { "POST /v1/volumes", "{\"name\":\"A/b\"}", 400, "bad-name" },
    { "POST /v1/volumes", "{\"name\":\"x\",\"sync\":\"often\"}", 400, "invalid" },
    { "POST /v1/volumes", "{\"name\":\"x\",\"quota\":-1}", 400, "invalid" },
    { "POST /v1/volumes", "{\"name\":\"x\",\"qouta\":1}", 400, "qouta" },
    { "POST /v1/volumes", "{\"name\":\"x\",\"prefix\":\"v/x/\"}", 400, "'v'" },
    { "POST /v1/volumes", "[]", 400, "JSON object" },
    { "POST /v1/volumes", "{", 400, "invalid" },
    { "POST /v1/volumes", "", 400, "invalid" },
    { "PATCH /v1/volumes/v", "{\"history_days\":7}", 200, "\"history_days\":7" },
    { "PATCH /v1/volumes/v", "{\"prefix\":\"w/\"}", 422, "prefix" },
    { "POST /v1/volumes", "{\"name\":\"w\"}", 201, "\"id\":\"w\"" },
    { "DELETE /v1/volumes/w", "", 204, "" },
    { "DELETE /v1/volumes/w", "", 404, "not-found" },
    { "PUT /v1/volumes/v", "", 405, "GET, PATCH, DELETE" },
    { "POST /v1/ops", "{\"op\":\"mkdir\",\"volume\":\"v\",\"path\":\"d/e\"}", 404, "not-found" },
    { "POST /v1/ops", "{\"op\":\"mkdir\",\"volume\":\"v\",\"path\":\"d/e\",\"parents\":true}", 201,
      "\"kind\":\"dir\"" },
    { "POST /v1/ops", "{\"op\":\"mkdir\",\"volume\":\"v\",\"path\":\"/\"}", 400, "path" },
    { "POST /v1/ops", "{\"op\":\"move\",\"volume\":\"v\",\"from\":\"d\",\"to\":\"f\"}", 200,
      "\"name\":\"f\"" },
    { "POST /v1/ops", "{\"op\":\"move\",\"volume\":\"v\",\"from\":\"d\",\"to\":\"g\"}", 404,
      "not-found" },
    { "POST /v1/ops", "{\"op\":\"burn\",\"volume\":\"v\"}", 422, "burn" },
    { "POST /v1/ops", "{\"volume\":\"v\"}", 400, "op" },
    { "GET /v1/list/v", "", 200, "\"next\":null" },
    { "GET /v1/list/v/", "", 200, "\"name\":\"f\"" },
    { "GET /v1/list/v/f/", "", 200, "\"name\":\"e\"" },
    { "GET /v1/list/v/none", "", 404, "not-found" },
    { "GET /v1/list/v?limit=0", "", 400, "limit" },
    { "GET /v1/list/v?limit=x", "", 400, "limit" },
    { "GET /v1/list/v?limit=1&limit=2", "", 400, "twice" },
    { "GET /v1/list/V", "", 400, "bad-name" },
    { "GET /v1/stat/v/f/e", "", 200, "\"path\":\"f/e\"" },
    { "GET /v1/files/v/f", "", 409, "is-a-directory" },
    { "GET /v1/files/v", "", 400, "path" },
    { "GET /v1/files/v/f/", "", 400, "slash" },
    { "GET /v1/files/v/%2e%2e/x", "", 400, "bad-name" },
    { "GET /v1/mounts", "", 200, "\"mounts\":[]" },
    { "POST /v1/mounts", "{\"volume\":\"v\"}", 422, "cannot mount" },
    { "DELETE /v1/mounts/1", "", 422, "cannot mount" },
    { "POST /v1/flush", "", 200, "\"synced\":true" },
    { "POST /v1/flush", "{\"volume\":\"v\",\"timeout_s\":5}", 200, "\"pending\":0" },
    { "POST /v1/flush", "{\"timeout_s\":-1}", 400, "timeout_s" },
    { "GET /v1/status", "", 200, "\"ok\":true" },
    { "GET /v1/unsynced", "", 200, "\"unsynced\":[]" },
    { "GET /v1/conflicts?volume=v&run=01ARZ3NDEKTSV4RRFFQ69G5FAV", "", 200, "\"conflicts\":[]" },
    { "GET /v1/conflicts?volume=none", "", 404, "not-found" },
    { "GET /v1/doctor", "", 200, "\"capabilities\"" },
};

static void
test_addresses(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(asks) / sizeof(asks[0]); i++) {
        const char *content = asks[i].body[0] != '\0' ? "Content-Type: application/json\r\n" : "";
        print_message("%s %s\n", asks[i].line, asks[i].body);
        int status = ask_local(asks[i].line, content, asks[i].body);
        if (status != asks[i].status || !strstr(t.answer, asks[i].holds))
            print_error("%s\n", t.answer);
        assert_int_equal(status, asks[i].status);
        assert_non_null(strstr(t.answer, asks[i].holds));
    }
}

/* TCP: the same server, but Host, token and origin are asked for. */
#define AUTH "Authorization: Bearer " TOKEN "\r\n"

static const struct {
    const char *line;
    const char *host; /* NULL: ours */
    const char *head;
    int status;
} tcp_asks[] = {
    { "GET /healthz", NULL, "", 200 },
    { "GET /healthz", "evil.example", "", 200 },
    { "GET /v1/volumes", NULL, "", 401 },
    { "GET /v1/volumes", NULL, AUTH, 200 },
    { "GET /v1/volumes", NULL, "authorization: bearer " TOKEN "\r\n", 200 },
    { "GET /v1/volumes", NULL, "Authorization: Bearer " TOKEN "0\r\n", 401 },
    { "GET /v1/volumes", NULL, "Authorization: Basic " TOKEN "\r\n", 401 },
    { "GET /v1/volumes", NULL, "Authorization: Bearer \r\n", 401 },
    { "GET /v1/volumes", "evil.example", AUTH, 421 },
    { "GET /v1/volumes", "127.0.0.1", AUTH, 421 },
    { "POST /v1/flush", NULL, AUTH "Origin: http://evil.example\r\n", 403 },
    { "POST /v1/flush", NULL, AUTH "Origin: null\r\n", 403 },
    { "POST /v1/flush", NULL, AUTH "Sec-Fetch-Site: cross-site\r\n", 403 },
    { "POST /v1/flush", NULL, AUTH "Sec-Fetch-Site: same-site\r\n", 403 },
    { "POST /v1/flush", NULL, AUTH "Sec-Fetch-Site: same-origin\r\n", 200 },
    { "POST /v1/flush", NULL, AUTH, 200 },
    { "GET /v1/volumes", NULL, AUTH "Origin: http://evil.example\r\n", 200 },
};

static void
test_tcp(void **state)
{
    char ours[32];
    (void)state;
    (void)snprintf(ours, sizeof(ours), "127.0.0.1:%u", t.gateway.port);
    for (size_t i = 0; i < sizeof(tcp_asks) / sizeof(tcp_asks[0]); i++) {
        struct sockaddr_in address = { .sin_family = AF_INET,
                                       .sin_port = htons((uint16_t)t.gateway.port),
                                       .sin_addr = { htonl(INADDR_LOOPBACK) } };
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(connect(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
        print_message("%s as %s, %s\n", tcp_asks[i].line,
                      tcp_asks[i].host ? tcp_asks[i].host : ours, tcp_asks[i].head);
        assert_int_equal(ask(fd, tcp_asks[i].line, tcp_asks[i].host ? tcp_asks[i].host : ours,
                             tcp_asks[i].head, ""),
                         tcp_asks[i].status);
    }
}

static void
test_listening(void **state)
{
    static const char *const good[] = { "127.0.0.1:0", "127.9.9.9:80", "[::1]:8480",
                                        "localhost:1" };
    static const char *const bad[] = { "0.0.0.0:0",       "10.0.0.1:80", "[::]:80",     "127.0.0.1",
                                       "127.0.0.1:65536", "127.0.0.1:x", ":80",         "",
                                       "example.org:80",  "[::1:80",     "128.0.0.1:80" };
    struct err err = ERR_INIT;
    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        assert_int_equal(gateway_listen_check(good[i], &err), 0);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(gateway_listen_check(bad[i], &err), -1);
        assert_int_equal(err.code, ERR_USAGE);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_write_and_read),
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_tcp),
        cmocka_unit_test(test_listening),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
