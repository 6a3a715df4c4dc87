/* Who may do what: each route with each kind of login, and what a token of a folder gets to see of what lies outside of it. */
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
#include "base/ulid.h"
#include "gateway/feed.h"
#include "gateway/listen.h"
#include "gateway/router.h"
#include "gateway/server.h"
#include "s3/open.h"
#include "tests/support/tmp.h"

#define TOKEN "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define CONFLICT_IN "01ARZ3NDEKTSV4RRFFQ69G5FAA"
#define CONFLICT_OUT "01ARZ3NDEKTSV4RRFFQ69G5FAB"

enum login { NONE, OWNER, ALL, READER, WRITER, FOLDER, OTHER, ENDED, REVOKED, LOGINS };

static struct {
    char dir[80];
    struct gateway gateway;
    struct gateway_server *tcp;
    char token[LOGINS][80], id[LOGINS][ULID_SIZE];
    char answer[1u << 18];
} t;

/* ---- one exchange ---- */

static int
ask_bytes(const char *request, size_t len)
{
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)t.gateway.port),
                                   .sin_addr = { htonl(INADDR_LOOPBACK) } };
    size_t at = 0;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(send(fd, request, len, MSG_NOSIGNAL), (ssize_t)len);
    for (;;) {
        ssize_t got = recv(fd, t.answer + at, sizeof(t.answer) - 1 - at, 0);
        if (got <= 0)
            break;
        at += (size_t)got;
    }
    t.answer[at] = '\0';
    assert_int_equal(close(fd), 0);
    assert_memory_equal(t.answer, "HTTP/1.1 ", 9);
    return (int)strtol(t.answer + 9, NULL, 10);
}

static int
ask(enum login who, const char *line, const char *head, const char *body)
{
    char request[4096], auth[128] = "";
    if (who != NONE)
        (void)snprintf(auth, sizeof(auth), "Authorization: Bearer %s\r\n", t.token[who]);
    int len = snprintf(request, sizeof(request),
                       "%s HTTP/1.1\r\nHost: 127.0.0.1:%u\r\nConnection: close\r\n%s%s"
                       "Content-Length: %zu\r\n\r\n%s",
                       line, t.gateway.port, auth, head, strlen(body), body);
    return ask_bytes(request, (size_t)len);
}

static const char *
body_of(void)
{
    const char *end = strstr(t.answer, "\r\n\r\n");
    assert_non_null(end);
    return end + 4;
}

/* A text member of the answer; "" when it is not there. */
static const char *
member(const char *name)
{
    static char value[300];
    char wanted[64];
    (void)snprintf(wanted, sizeof(wanted), "\"%s\":\"", name);
    const char *at = strstr(body_of(), wanted);
    if (!at)
        return "";
    at += strlen(wanted);
    (void)snprintf(value, sizeof(value), "%.*s", (int)strcspn(at, "\""), at);
    return value;
}

static void
put(const char *path, const char *text)
{
    char line[256];
    (void)snprintf(line, sizeof(line), "PUT /v1/files/%s", path);
    assert_int_equal(ask(OWNER, line, "If-None-Match: *\r\n", text), 201);
}

/* ---- fixture ---- */

static int
conflict_tx(struct index_tx *tx, void *arg, struct err *err)
{
    return index_conflict_put(tx, arg, err);
}

static void
make_conflict(const char *id, const char *path)
{
    struct err err = ERR_INIT;
    struct volume_info info;
    struct index_conflict row = { .reason = "conflict", .synced = true, .time_ns = 1 };
    assert_int_equal(volume_find(t.gateway.service, "v", &info, &err), 0);
    row.volume = info.id;
    (void)snprintf(row.id, sizeof(row.id), "%s", id);
    (void)snprintf(row.path, sizeof(row.path), "%s", path);
    assert_int_equal(
        index_write(volume_service_index(t.gateway.service), INDEX_NORMAL, conflict_tx, &row, &err),
        0);
}

static void
make_token(enum login who, const char *body)
{
    assert_int_equal(ask(OWNER, "POST /v1/tokens", "", body), 201);
    (void)snprintf(t.token[who], sizeof(t.token[who]), "%s", member("token"));
    (void)snprintf(t.id[who], sizeof(t.id[who]), "%s", member("id"));
    assert_int_equal(strlen(t.token[who]), 52);
}

static void
make_files(void)
{
    static const char dirs[] = "{\"op\":\"mkdir\",\"volume\":\"v\",\"path\":\"%s\"}";
    char body[128];
    assert_int_equal(ask(OWNER, "POST /v1/volumes", "", "{\"name\":\"v\"}"), 201);
    assert_int_equal(ask(OWNER, "POST /v1/volumes", "", "{\"name\":\"w\"}"), 201);
    for (size_t i = 0; i < 3; i++) {
        (void)snprintf(body, sizeof(body), dirs, (const char *[]){ "in", "out", "inside" }[i]);
        assert_int_equal(ask(OWNER, "POST /v1/ops", "", body), 201);
    }
    put("v/in/a", "inner");
    put("v/out/secret", "SECRET");
    put("v/inside/secret", "SECRET");
    make_conflict(CONFLICT_IN, "in/a");
    make_conflict(CONFLICT_OUT, "out/secret");
}

static int
start(void **state)
{
    struct err err = ERR_INIT;
    (void)state;
    (void)snprintf(t.dir, sizeof(t.dir), "%s/holdfast-access.XXXXXX", tmp_base());
    assert_non_null(mkdtemp(t.dir));
    struct store *store = store_open(&(struct store_open_args){ .url = "mem:" }, &err);
    assert_non_null(store);
    struct volume_service_args args = { .state_dir = t.dir,
                                        .store = store,
                                        .cache = { .reserve_bytes = 65536 } };
    t.gateway.service = volume_service_open(&args, &err);
    assert_non_null(t.gateway.service);
    t.gateway.feed = feed_open(t.gateway.service, t.dir, &err);
    assert_non_null(t.gateway.feed);
    assert_int_equal(volume_service_start(t.gateway.service, &err), 0);
    t.gateway.state_dir = t.dir;
    memcpy(t.gateway.token, TOKEN, sizeof(TOKEN));
    memcpy(t.token[OWNER], TOKEN, sizeof(TOKEN));
    struct gateway_server_args tcp = { .gateway = &t.gateway };
    tcp.listen_fd = gateway_listen_tcp("127.0.0.1:0", &t.gateway.port, &err);
    t.tcp = gateway_server_start(&tcp, &err);
    assert_non_null(t.tcp);
    make_files();
    make_token(
        ALL, "{\"allow\":[\"read\",\"write\",\"delete\",\"share\",\"mount\",\"exec\",\"admin\"]}");
    make_token(READER, "{\"volume\":\"v\"}");
    make_token(WRITER, "{\"volume\":\"v\",\"allow\":[\"read\",\"write\",\"delete\",\"mount\"]}");
    make_token(FOLDER,
               "{\"volume\":\"v\",\"folder\":\"/in/\",\"label\":\"agent 7\",\"expires_s\":0,"
               "\"allow\":[\"read\",\"write\",\"delete\",\"mount\"]}");
    make_token(OTHER,
               "{\"volume\":\"w\",\"allow\":[\"read\",\"write\",\"delete\",\"share\",\"mount\","
               "\"admin\"]}");
    make_token(REVOKED, "{\"volume\":\"v\"}");
    return 0;
}

static int
stop(void **state)
{
    char command[] = "/bin/rm";
    char flag[] = "-rf";
    char *argv[] = { command, flag, t.dir, NULL };
    (void)state;
    gateway_server_quiesce(t.tcp);
    feed_wake(t.gateway.feed);
    gateway_server_stop(t.tcp);
    volume_service_close(t.gateway.service, clock_mono_ns() + 5 * NS_PER_S);
    feed_close(t.gateway.feed);
    pid_t pid = fork();
    if (pid == 0)
        (void)execv(command, argv);
    return waitpid(pid, NULL, 0) == pid ? 0 : -1;
}

/* ---- the matrix ---- */

/*
 * One row asks one route. `expect` has a letter for each of: none, owner, all, reader, writer, folder, other. '+' let in (whatever
 * the handler says then), 'x' 403, '-' 401, '0' 404: it is there, but not for this one.
 */
struct row {
    const char *method, *prefix;
    enum exchange_takes takes;
    const char *rest; /* behind the prefix */
    const char *body;
    const char *expect;
};

#define NAME EXCHANGE_TAKES_NAME
#define FILE_PATH EXCHANGE_TAKES_FILE
#define TREE EXCHANGE_TAKES_TREE
#define PART EXCHANGE_TAKES_PART
#define NOTHING EXCHANGE_TAKES_NOTHING

static const struct row rows[] = {
    { "GET", "healthz", NOTHING, "", "", "+++++++" },
    { "GET", "readyz", NOTHING, "", "", "+++++++" },
    { "GET", "v1/files", FILE_PATH, "/v/in/a", "", "-+++++x" },
    { "GET", "v1/files", FILE_PATH, "/v/out/secret", "", "-++++xx" },
    { "GET", "v1/files", FILE_PATH, "/v/inside/secret", "", "-++++xx" },
    { "GET", "v1/files", FILE_PATH, "/none/x", "", "-++xxxx" },
    { "HEAD", "v1/files", FILE_PATH, "/v/in/a", "", "-+++++x" },
    { "HEAD", "v1/files", FILE_PATH, "/v/out/secret", "", "-++++xx" },
    { "PUT", "v1/files", FILE_PATH, "/v/in/a", "", "-++x++x" },
    { "PUT", "v1/files", FILE_PATH, "/v/out/secret", "", "-++x+xx" },
    { "PUT", "v1/files", FILE_PATH, "/v/in", "", "-++x++x" },
    { "DELETE", "v1/files", FILE_PATH, "/v/in/a", "", "-++x++x" },
    { "DELETE", "v1/files", FILE_PATH, "/v/out/secret", "", "-++x+xx" },
    { "GET", "v1/list", TREE, "/v/in", "", "-+++++x" },
    { "GET", "v1/list", TREE, "/v", "", "-++++xx" },
    { "GET", "v1/list", TREE, "/v/out", "", "-++++xx" },
    { "GET", "v1/list", TREE, "/v?at=2000-01-01T00:00:00Z", "", "-++++xx" },
    { "GET", "v1/stat", TREE, "/v/in/a", "", "-+++++x" },
    { "GET", "v1/stat", TREE, "/v/out", "", "-++++xx" },
    { "GET", "v1/history", FILE_PATH, "/v/in/a", "", "-+++++x" },
    { "GET", "v1/history", FILE_PATH, "/v/out/secret", "", "-++++xx" },
    { "GET", "v1/trash", NAME, "/v", "", "-++++xx" },
    { "GET", "v1/trash", NAME, "/v?prefix=in", "", "-+++++x" },
    { "GET", "v1/trash", NAME, "/v?prefix=inside", "", "-++++xx" },
    { "POST", "v1/restore", NOTHING, "",
      "{\"volume\":\"v\",\"path\":\"in/a\",\"version\":\"01ARZ3NDEKTSV4RRFFQ69G5FAV\"}",
      "-++x++x" },
    { "POST", "v1/restore", NOTHING, "",
      "{\"volume\":\"v\",\"path\":\"out/secret\",\"version\":\"01ARZ3NDEKTSV4RRFFQ69G5FAV\"}",
      "-++x+xx" },
    { "POST", "v1/restore", NOTHING, "",
      "{\"volume\":\"v\",\"path\":\"in/a\",\"path_hex\":\"6f75742f736563726574\",\"dry_run\":true}",
      "-++x+xx" },
    { "POST", "v1/undo", NOTHING, "", "{\"volume\":\"v\",\"run\":\"01ARZ3NDEKTSV4RRFFQ69G5FAV\"}",
      "-++x+xx" },
    { "GET", "v1/snapshots", NAME, "/v", "", "-++++xx" },
    { "POST", "v1/snapshots", NAME, "/v", "{}", "-++x+xx" },
    { "GET", "v1/snapshots", PART, "/v/none", "", "-++++xx" },
    { "DELETE", "v1/snapshots", PART, "/v/none", "", "-++xxxx" },
    { "GET", "v1/find", NAME, "/v?glob=**", "", "-++++xx" },
    { "GET", "v1/find", NAME, "/v?prefix=in", "", "-+++++x" },
    { "GET", "v1/grep", NAME, "/v?q=a", "", "-++++xx" },
    { "GET", "v1/grep", NAME, "/v?q=a&prefix=in", "", "-+++++x" },
    { "GET", "v1/diff", NAME, "/v?from=1s", "", "-++++xx" },
    { "GET", "v1/diff", NAME, "/v?from=1s&prefix=in", "", "-+++++x" },
    { "POST", "v1/ops", NOTHING, "", "{\"op\":\"mkdir\",\"volume\":\"v\",\"path\":\"in/a\"}",
      "-++x++x" },
    { "POST", "v1/ops", NOTHING, "", "{\"op\":\"mkdir\",\"volume\":\"v\",\"path\":\"out\"}",
      "-++x+xx" },
    { "POST", "v1/ops", NOTHING, "", "{\"op\":\"mkdir\",\"volume\":\"v\",\"path\":\"/\"}",
      "-++x+xx" },
    { "POST", "v1/ops", NOTHING, "",
      "{\"op\":\"move\",\"volume\":\"v\",\"from\":\"in/none\",\"to\":\"in/b\"}", "-++x++x" },
    { "POST", "v1/ops", NOTHING, "",
      "{\"op\":\"move\",\"volume\":\"v\",\"from\":\"in/none\",\"to\":\"out/b\"}", "-++x+xx" },
    { "POST", "v1/ops", NOTHING, "",
      "{\"op\":\"move\",\"volume\":\"v\",\"from\":\"out/none\",\"to\":\"in/b\"}", "-++x+xx" },
    { "POST", "v1/ops", NOTHING, "", "{\"op\":\"burn\",\"volume\":\"v\",\"path\":\"in/a\"}",
      "-++xxxx" },
    { "POST", "v1/ops", NOTHING, "",
      "{\"op\":\"copy\",\"volume\":\"v\",\"from\":\"in/none\",\"to\":\"in/b\"}", "-++x++x" },
    { "POST", "v1/ops", NOTHING, "",
      "{\"op\":\"copy\",\"volume\":\"v\",\"from\":\"out/none\",\"to\":\"in/b\"}", "-++x+xx" },
    { "POST", "v1/ops", NOTHING, "", "{\"op\":\"edit\",\"volume\":\"v\",\"path\":\"out/secret\"}",
      "-++x+xx" },
    { "POST", "v1/ops", NOTHING, "",
      "{\"op\":\"restore\",\"volume\":\"v\",\"path_hex\":\"6f75742f736563726574\"}", "-++x+xx" },
    { "GET", "v1/volumes", NOTHING, "", "", "-++++++" },
    { "GET", "v1/volumes", NOTHING, "?volume=v", "", "-+++++x" },
    { "POST", "v1/volumes", NOTHING, "", "{\"name\":\"v\"}", "-++xxxx" },
    { "GET", "v1/volumes", NAME, "/v", "", "-++++xx" },
    { "PATCH", "v1/volumes", NAME, "/v", "{}", "-++xxxx" },
    { "DELETE", "v1/volumes", NAME, "/none", "", "-++xxxx" },
    { "GET", "v1/mounts", NOTHING, "", "", "-++x+++" },
    { "POST", "v1/mounts", NOTHING, "", "{\"volume\":\"v\",\"folder\":\"in\"}", "-++x++x" },
    { "POST", "v1/mounts", NOTHING, "", "{\"volume\":\"v\"}", "-++x+xx" },
    { "DELETE", "v1/mounts", NAME, "/1", "", "-++x000" },
    { "POST", "v1/flush", NOTHING, "", "{\"volume\":\"v\",\"folder\":\"in\"}", "-++x++x" },
    { "POST", "v1/flush", NOTHING, "", "{\"volume\":\"v\"}", "-++x+xx" },
    { "GET", "v1/status", NOTHING, "", "", "-++xxxx" },
    { "GET", "v1/unsynced", NOTHING, "", "", "-++++++" },
    { "GET", "v1/unsynced", NOTHING, "?volume=v", "", "-+++++x" },
    { "GET", "v1/conflicts", NOTHING, "", "", "-++++++" },
    { "GET", "v1/conflicts", NOTHING, "?volume=v", "", "-+++++x" },
    { "GET", "v1/conflicts", NAME, "/" CONFLICT_OUT, "", "-....00" },
    { "GET", "v1/conflicts", PART, "/" CONFLICT_OUT "/mine", "", "-....00" },
    { "GET", "v1/conflicts", PART, "/" CONFLICT_OUT "/theirs", "", "-++++00" },
    { "GET", "v1/conflicts", PART, "/" CONFLICT_IN "/theirs", "", "-+++++0" },
    { "POST", "v1/conflicts", PART, "/" CONFLICT_OUT "/resolve", "{}", "-++x+00" },
    { "GET", "v1/doctor", NOTHING, "", "", "-++xxxx" },
    { "POST", "v1/fsck", NOTHING, "", "", "-++xxxx" },
    { "POST", "v1/upgrade", NOTHING, "", "", "-.xxxxx" },
    { "GET", "metrics", NOTHING, "", "", "-++xxxx" },
    { "GET", "v1/events", NOTHING, "?follow=false", "", "-++++++" },
    { "GET", "v1/events", NOTHING, "?follow=false&volume=v", "", "-++++xx" },
    { "GET", "v1/events", NOTHING, "?follow=false&volume=v&prefix=in", "", "-+++++x" },
    { "GET", "v1/runs", NAME, "/01ARZ3NDEKTSV4RRFFQ69G5FAV", "", "-++xxxx" },
    { "POST", "v1/runs", NAME, "/01ARZ3NDEKTSV4RRFFQ69G5FAV", "{}", "-++xxxx" },
    { "GET", "v1/audit", NOTHING, "", "", "-++xxxx" },
    { "POST", "v1/audit", NAME, "/verify", "", "-++xxxx" },
    { "POST", "v1/freeze", NOTHING, "", "[", "-+xxxxx" },
    { "GET", "l", NAME, "/00000000000000000000000000000000", "", "+++++++" },
    { "PUT", "l", NAME, "/00000000000000000000000000000000", "", "+++++++" },
    { "GET", "v1/links", NOTHING, "", "", "-++xxx+" },
    { "GET", "v1/links", NOTHING, "?volume=v", "", "-++xxxx" },
    { "POST", "v1/links", NOTHING, "", "{\"volume\":\"v\",\"path\":\"in/none\"}", "-++xxxx" },
    { "GET", "v1/links", NAME, "/01ARZ3NDEKTSV4RRFFQ69G5FAV", "", "-++xxx0" },
    { "DELETE", "v1/links", NAME, "/01ARZ3NDEKTSV4RRFFQ69G5FAV", "", "-++xxx0" },
    { "GET", "v1/me", NOTHING, "", "", "-++++++" },
    { "GET", "v1/tokens", NOTHING, "", "", "-+xxxxx" },
    { "POST", "v1/tokens", NOTHING, "", "{\"allow\":[]}", "-+xxxxx" },
    { "DELETE", "v1/tokens", NAME, "/none", "", "-+xxxxx" },
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

static bool
fits(char expect, int status)
{
    if (expect == '+')
        return status != 401 && status != 403;
    return status == (expect == '-' ? 401 : expect == 'x' ? 403 : 404);
}

static void
test_matrix(void **state)
{
    unsigned wrong = 0;
    (void)state;
    for (size_t i = 0; i < ROWS; i++) {
        char line[256];
        (void)snprintf(line, sizeof(line), "%s /%s%s", rows[i].method, rows[i].prefix,
                       rows[i].rest);
        for (enum login who = NONE; who <= OTHER; who++) {
            char expect = rows[i].expect[who];
            int status = expect == '.' ? 0 : ask(who, line, "", rows[i].body);
            if (expect == '.' || fits(expect, status))
                continue;
            print_error("%s %s as %d: %d, not '%c'\n", line, rows[i].body, (int)who, status,
                        expect);
            wrong++;
        }
    }
    assert_int_equal(wrong, 0);
}

static bool
same(const struct row *row, const struct exchange_route *route)
{
    return strcmp(row->method, route->method) == 0 && strcmp(row->prefix, route->prefix) == 0 &&
           row->takes == route->takes;
}

/* A route without a row here fails: who may use it has to be said, and tried. */
static void
test_every_route_is_tried(void **state)
{
    (void)state;
    for (size_t i = 0; i < gateway_router_count(); i++) {
        const struct exchange_route *route = gateway_router_at(i);
        size_t j = 0;
        while (j < ROWS && !same(&rows[j], route))
            j++;
        if (j == ROWS)
            fail_msg("%s /%s is not in the table of tests/unit/gateway/access.c", route->method,
                     route->prefix);
        assert_int_not_equal(route->need.scope, GATEWAY_SCOPE_NOBODY);
        bool open = route->need.scope == GATEWAY_SCOPE_OPEN;
        assert_true(open == (rows[j].expect[NONE] == '+'));
    }
}

/* ---- tokens ---- */

static void
test_life_of_a_token(void **state)
{
    char line[80];
    (void)state;
    assert_int_equal(ask(REVOKED, "GET /v1/files/v/in/a", "", ""), 200);
    (void)snprintf(line, sizeof(line), "DELETE /v1/tokens/%s", t.id[REVOKED]);
    assert_int_equal(ask(OWNER, line, "", ""), 200);
    assert_int_equal(ask(REVOKED, "GET /v1/files/v/in/a", "", ""), 401);
    assert_string_equal(member("code"), "unauthenticated");
    assert_int_equal(ask(OWNER, line, "", ""), 404);

    assert_int_equal(ask(OWNER, "POST /v1/volumes", "", "{\"name\":\"short\"}"), 201);
    make_token(ENDED, "{\"volume\":\"short\",\"expires_s\":1}");
    int64_t end = clock_wall_ns() + 20 * NS_PER_S;
    while (ask(ENDED, "GET /v1/list/short", "", "") == 200)
        assert_true(clock_wall_ns() < end);
    assert_non_null(strstr(body_of(), "has expired"));

    /* With its volume a token ends for good: another volume of that name is not its own. */
    make_token(ENDED, "{\"volume\":\"short\"}");
    assert_int_equal(ask(ENDED, "GET /v1/list/short", "", ""), 200);
    assert_int_equal(ask(OWNER, "DELETE /v1/volumes/short", "", ""), 204);
    assert_int_equal(ask(OWNER, "POST /v1/volumes", "", "{\"name\":\"short\"}"), 201);
    assert_int_equal(ask(ENDED, "GET /v1/list/short", "", ""), 401);
    assert_int_equal(ask(OWNER, "DELETE /v1/volumes/short", "", ""), 204);
}

static void
test_tokens_told(void **state)
{
    char head[128], query[16384];
    (void)state;
    assert_int_equal(ask(FOLDER, "GET /v1/me", "", ""), 200);
    assert_string_equal(member("folder"), "in");
    assert_string_equal(member("actor"), "token:agent 7");
    assert_non_null(strstr(body_of(), "\"allow\":[\"read\",\"write\",\"delete\",\"mount\"]"));
    assert_non_null(strstr(body_of(), "\"owner\":false"));
    assert_int_equal(ask(OWNER, "GET /v1/tokens", "", ""), 200);
    assert_non_null(strstr(body_of(), t.id[FOLDER]));
    /* Neither a secret nor what it is known by. */
    assert_null(strstr(body_of(), "hft_"));
    assert_null(strstr(body_of(), "hash"));
    (void)snprintf(query, sizeof(query), "%s", t.token[FOLDER]);
    query[51] = query[51] == '0' ? '1' : '0';
    (void)snprintf(head, sizeof(head), "Authorization: Bearer %.60s\r\n", query);
    assert_int_equal(ask(NONE, "GET /v1/me", head, ""), 401);
}

static const struct {
    const char *body, *holds;
} bad_tokens[] = {
    { "{\"allow\":[\"fly\"]}", "fly" },
    { "{\"allow\":\"read\"}", "list" },
    { "{\"allow\":[1]}", "allow" },
    { "{\"folder\":\"x\"}", "folder" },
    { "{\"volume\":\"none\"}", "none" },
    { "{\"volume\":\"v\",\"folder\":\"in/../out\"}", "folder" },
    { "{\"run\":\"x\"}", "ULID" },
    { "{\"expires_s\":-1}", "expires_s" },
    { "{\"label\":\"a\\u0007\"}", "label" },
    { "{\"lable\":\"a\"}", "lable" },
};

static void
test_bad_tokens(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(bad_tokens) / sizeof(bad_tokens[0]); i++) {
        int status = ask(OWNER, "POST /v1/tokens", "", bad_tokens[i].body);
        assert_true(status == 400 || status == 404);
        assert_non_null(strstr(body_of(), bad_tokens[i].holds));
    }
}

/* A token that is bound to a run works under no other one. */
static void
test_bound_to_a_run(void **state)
{
    static const char run[] = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
    (void)state;
    make_token(ENDED, "{\"volume\":\"v\",\"allow\":[\"read\",\"write\"],"
                      "\"run\":\"01ARZ3NDEKTSV4RRFFQ69G5FAV\"}");
    assert_int_equal(ask(ENDED, "PUT /v1/files/v/bound", "If-None-Match: *\r\n", "x"), 201);
    assert_int_equal(
        ask(ENDED, "GET /v1/history/v/bound", "Holdfast-Run: 01ARZ3NDEKTSV4RRFFQ69G5FAV\r\n", ""),
        200);
    assert_string_equal(member("run"), run);
    assert_int_equal(
        ask(ENDED, "GET /v1/history/v/bound", "Holdfast-Run: 01ARZ3NDEKTSV4RRFFQ69G5FAW\r\n", ""),
        403);
}

/* ---- confinement ---- */

/* Ways to say out/secret to somebody who may only see in/: none gives bytes. */
static const char *const ways_out[] = {
    "/v1/files/v/in/../out/secret",
    "/v1/files/v/in/%2e%2e/out/secret",
    "/v1/files/v/in/.%2E/out/secret",
    "/v1/files/v/in%2f..%2fout%2fsecret",
    "/v1/files/v/in%2F..%2Fout/secret",
    "/v1/files/v/in/%252e%252e/out/secret",
    "/v1/files/v/in/..%2fout/secret",
    "/v1/files/v/in/..;/out/secret",
    "/v1/files/v/in/%c0%ae%c0%ae/out/secret",
    "/v1/files/v/in/%e0%80%ae%e0%80%ae/out/secret",
    "/v1/files/v/in/%00/../../out/secret",
    "/v1/files/v/in%00/../out/secret",
    "/v1/files/v/in//../out/secret",
    "/v1/files/v/in/./../out/secret",
    "/v1/files/v/in\\..\\out\\secret",
    "/v1/files/v/in%5c..%5cout%5csecret",
    "/v1/files/v//out/secret",
    "/v1/files//v/out/secret",
    "/v1/files/w/../v/out/secret",
    "/v1/files/v/In/../out/secret",
    "/v1/files/v/inside/secret",
    "/v1/files/v/in%side/secret",
    "/v1/files/v/%69nside/secret",
    "/v1/files/v/in%2e/../out/secret",
    "/v1/files/v/in/\xef\xbc\x8e\xef\xbc\x8e/out/secret",
    "/v1/files/v/in/%ef%bc%8e%ef%bc%8e/out/secret",
    "/v1/files/v/in/a/../../out/secret",
    "/v1/files/v/in/a?at=1s&version=x/../../out/secret",
    "/v1/files/v/out/secret?prefix=in",
    "/v1/files/v/out/secret#in",
    "http://127.0.0.1/v1/files/v/out/secret",
    "/v1/./files/v/out/secret",
    "/v1/files/V/out/secret",
    "/v1/stat/v/in/..",
    "/v1/list/v/in/..",
    "/v1/list/v/in/%2e%2e",
    "/v1/trash/v?prefix=in/..",
    "/v1/trash/v?prefix=in%2f..",
    "/v1/trash/v?prefix=",
    "/v1/trash/v?prefix=in&prefix=out",
    "/v1/trash/v?%70refix=out",
    "/v1/find/v?prefix=in&glob=../out/*",
    "/v1/find/v?prefix=in/../out&glob=*",
    "/v1/diff/v?from=1s&prefix=in%2f..%2fout",
    "/v1/conflicts?volume=v&volume=w",
};

static void
test_ways_out(void **state)
{
    char line[256];
    (void)state;
    for (size_t i = 0; i < sizeof(ways_out) / sizeof(ways_out[0]); i++) {
        (void)snprintf(line, sizeof(line), "GET %s", ways_out[i]);
        int status = ask(FOLDER, line, "", "");
        print_message("%s: %d\n", line, status);
        assert_true((status >= 400 && status < 500) || strstr(body_of(), "\"files\":[]"));
        assert_null(strstr(body_of(), "SECRET"));
        assert_null(strstr(body_of(), "\"name\":\"secret\""));
    }
}

/* Lists that are of several places show only what is in reach. */
static void
test_lists(void **state)
{
    (void)state;
    assert_int_equal(ask(FOLDER, "GET /v1/conflicts", "", ""), 200);
    assert_non_null(strstr(body_of(), CONFLICT_IN));
    assert_null(strstr(body_of(), CONFLICT_OUT));
    assert_int_equal(ask(OTHER, "GET /v1/conflicts", "", ""), 200);
    assert_null(strstr(body_of(), "01ARZ"));
    assert_int_equal(ask(READER, "GET /v1/volumes", "", ""), 200);
    assert_non_null(strstr(body_of(), "\"name\":\"v\""));
    assert_null(strstr(body_of(), "\"name\":\"w\""));
    assert_int_equal(ask(FOLDER, "GET /v1/find/v?prefix=in&glob=**", "", ""), 200);
    assert_null(strstr(body_of(), "secret"));
    assert_int_equal(ask(FOLDER, "GET /v1/volumes", "", ""), 200);
    assert_null(strstr(body_of(), "\"name\""));
}

static void
test_events(void **state)
{
    int64_t end = clock_mono_ns() + 20 * NS_PER_S;
    (void)state;
    put("v/out/event", "1");
    put("v/in/event", "2");
    do {
        assert_true(clock_mono_ns() < end);
        assert_int_equal(ask(FOLDER, "GET /v1/events?follow=false&since=0", "", ""), 200);
    } while (!strstr(body_of(), "in/event"));
    assert_null(strstr(body_of(), "out/"));
    assert_int_equal(ask(OWNER, "GET /v1/events?follow=false&since=0", "", ""), 200);
    assert_non_null(strstr(body_of(), "out/event"));
}

/* What a file was before it came into the folder stays outside; so does what left it. */
static void
test_moved_in_and_out(void **state)
{
    char version[64], line[256], body[256];
    (void)state;
    put("v/out/then", "SECRET");
    assert_int_equal(ask(OWNER, "GET /v1/history/v/out/then", "", ""), 200);
    (void)snprintf(version, sizeof(version), "%s", member("version"));
    (void)snprintf(line, sizeof(line), "If-Match: \"%s\"\r\n", version);
    assert_int_equal(ask(OWNER, "PUT /v1/files/v/out/then", line, "fine now"), 200);
    assert_int_equal(
        ask(OWNER, "POST /v1/ops", "",
            "{\"op\":\"move\",\"volume\":\"v\",\"from\":\"out/then\",\"to\":\"in/then\"}"),
        200);
    assert_int_equal(ask(OWNER, "POST /v1/flush", "", ""), 200);
    (void)snprintf(line, sizeof(line), "GET /v1/files/v/in/then?version=%s", version);
    assert_int_equal(ask(OWNER, line, "", ""), 200);
    assert_string_equal(body_of(), "SECRET");
    assert_int_equal(ask(FOLDER, line, "", ""), 404);
    assert_int_equal(ask(FOLDER, "GET /v1/history/v/in/then", "", ""), 200);
    assert_null(strstr(body_of(), "out/then"));
    (void)snprintf(body, sizeof(body),
                   "{\"volume\":\"v\",\"path\":\"in/then\",\"version\":\"%s\",\"dry_run\":true}",
                   version);
    assert_int_equal(ask(OWNER, "POST /v1/restore", "", body), 200);
    assert_int_equal(ask(FOLDER, "POST /v1/restore", "", body), 404);
    /* Back to when it was elsewhere: the owner's to decide. */
    (void)snprintf(body, sizeof(body),
                   "{\"volume\":\"v\",\"path\":\"out\",\"at\":\"1ms\",\"dry_run\":true}");
    assert_int_equal(ask(FOLDER, "POST /v1/restore", "", body), 403);
    assert_int_equal(ask(FOLDER, "GET /v1/diff/v?from=1h&prefix=in", "", ""), 200);
    assert_null(strstr(body_of(), "out/"));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_route_is_tried),
        cmocka_unit_test(test_matrix),
        cmocka_unit_test(test_life_of_a_token),
        cmocka_unit_test(test_tokens_told),
        cmocka_unit_test(test_bad_tokens),
        cmocka_unit_test(test_bound_to_a_run),
        cmocka_unit_test(test_ways_out),
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_events),
        cmocka_unit_test(test_moved_in_and_out),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
