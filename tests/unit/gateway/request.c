/* The strict reading of a request's head: what passes, and what another server could read differently (INV-12). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/request.h"

struct target_case {
    const char *raw;
    const char *path; /* NULL: refused */
    bool slash;
    const char *query;
};

static const struct target_case target_cases[] = {
    { "/", "", false, "" },
    { "/v1/files/reports/a.csv", "v1/files/reports/a.csv", false, "" },
    { "/v1/list/reports/", "v1/list/reports", true, "" },
    { "/a?b=c&d", "a", false, "b=c&d" },
    { "/a?b=c?d", "a", false, "b=c?d" },
    { "/a%20b/%c3%a4", "a b/\xc3\xa4", false, "" },
    { "/a+b", "a+b", false, "" },
    { "/%41%2e%2e", "A..", false, "" },
    { "/...", "...", false, "" },
    { "/%ff", "\xff", false, "" },
    { "", NULL, false, "" },
    { "*", NULL, false, "" },
    { "http://h/a", NULL, false, "" },
    { "/a//b", NULL, false, "" },
    { "//a", NULL, false, "" },
    { "/a/../b", NULL, false, "" },
    { "/a/./b", NULL, false, "" },
    { "/..", NULL, false, "" },
    { "/a/%2e%2e/b", NULL, false, "" },
    { "/a/.%2E", NULL, false, "" },
    { "/a%2fb", NULL, false, "" },
    { "/a%2Fb", NULL, false, "" },
    { "/a%00b", NULL, false, "" },
    { "/a%", NULL, false, "" },
    { "/a%4", NULL, false, "" },
    { "/a%zz", NULL, false, "" },
    { "/a#b", NULL, false, "" },
    { "/a\\b", NULL, false, "" },
    { "/a b", NULL, false, "" },
    { "/a\tb", NULL, false, "" },
    { "/a\xc3\xa4", NULL, false, "" },
};

static void
test_targets(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(target_cases) / sizeof(target_cases[0]); i++) {
        const struct target_case *c = &target_cases[i];
        struct gateway_request_target target;
        struct err err = ERR_INIT;
        print_message("target '%s'\n", c->raw);
        int rc = gateway_request_target(c->raw, &target, &err);
        assert_int_equal(rc, c->path ? 0 : -1);
        if (rc < 0)
            continue;
        assert_string_equal(buf_cstr(&target.path), c->path);
        assert_int_equal(target.trailing_slash, c->slash);
        assert_string_equal(target.query, c->query);
        gateway_request_target_release(&target);
    }
}

static void
test_component_length(void **state)
{
    char raw[300] = "/";
    struct gateway_request_target target;
    struct err err = ERR_INIT;
    (void)state;
    memset(raw + 1, 'a', 255);
    assert_int_equal(gateway_request_target(raw, &target, &err), 0);
    gateway_request_target_release(&target);
    raw[256] = 'a';
    assert_int_equal(gateway_request_target(raw, &target, &err), -1);
    assert_int_equal(err.code, ERR_NAME_TOO_LONG);
}

static void
test_query(void **state)
{
    struct gateway_request_target target;
    struct err err = ERR_INIT;
    scope_buf value;
    (void)state;
    buf_init(&value, 64);
    assert_int_equal(gateway_request_target("/a?limit=10&x=%20y&lim=3&flag&twice=1&twice=2&bad=%0",
                                            &target, &err),
                     0);
    assert_int_equal(gateway_request_query(&target, "limit", &value, &err), 1);
    assert_string_equal(buf_cstr(&value), "10");
    buf_clear(&value);
    assert_int_equal(gateway_request_query(&target, "x", &value, &err), 1);
    assert_string_equal(buf_cstr(&value), " y");
    buf_clear(&value);
    assert_int_equal(gateway_request_query(&target, "flag", &value, &err), 1);
    assert_string_equal(buf_cstr(&value), "");
    assert_int_equal(gateway_request_query(&target, "none", &value, &err), 0);
    assert_int_equal(gateway_request_query(&target, "twice", &value, &err), -1);
    assert_int_equal(gateway_request_query(&target, "bad", &value, &err), -1);
    gateway_request_target_release(&target);
}

#define H(n, v)                                                                          \
    {                                                                                    \
        .name = (n), .name_len = sizeof(n) - 1, .value = (v), .value_len = sizeof(v) - 1 \
    }
struct header_case {
    const char *what;
    struct gateway_request_header headers[4];
    size_t count;
    int rc;
    int64_t length;
    bool chunked;
};

static const struct header_case header_cases[] = {
    { "plain", { H("Host", "a") }, 1, 0, -1, false },
    { "length", { H("Host", "a"), H("Content-Length", "5") }, 2, 0, 5, false },
    { "chunked", { H("Host", "a"), H("Transfer-Encoding", "Chunked") }, 2, 0, -1, true },
    { "no host", { H("Accept", "a") }, 1, -1, 0, false },
    { "two hosts", { H("Host", "a"), H("host", "a") }, 2, -1, 0, false },
    { "both framings",
      { H("Host", "a"), H("Content-Length", "5"), H("Transfer-Encoding", "chunked") },
      3,
      -1,
      0,
      false },
    { "two lengths",
      { H("Host", "a"), H("Content-Length", "5"), H("Content-Length", "5") },
      3,
      -1,
      0,
      false },
    { "list of lengths", { H("Host", "a"), H("Content-Length", "5, 5") }, 2, -1, 0, false },
    { "signed length", { H("Host", "a"), H("Content-Length", "+5") }, 2, -1, 0, false },
    { "hex length", { H("Host", "a"), H("Content-Length", "0x5") }, 2, -1, 0, false },
    { "huge length",
      { H("Host", "a"), H("Content-Length", "9223372036854775808") },
      2,
      -1,
      0,
      false },
    { "empty length", { H("Host", "a"), H("Content-Length", "") }, 2, -1, 0, false },
    { "two codings",
      { H("Host", "a"), H("Transfer-Encoding", "chunked"), H("Transfer-Encoding", "chunked") },
      3,
      -1,
      0,
      false },
    { "other coding", { H("Host", "a"), H("Transfer-Encoding", "gzip, chunked") }, 2, -1, 0, false },
    { "space before colon", { H("Host", "a"), H("Transfer-Encoding ", "chunked") }, 2, -1, 0, false },
    { "control in value", { H("Host", "a"), H("X", "a\rb") }, 2, -1, 0, false },
    { "bracket in name", { H("Host", "a"), H("X(", "b") }, 2, -1, 0, false },
    { "two conditions", { H("Host", "a"), H("If-Match", "*"), H("If-Match", "*") }, 3, -1, 0, false },
};

static void
test_headers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(header_cases) / sizeof(header_cases[0]); i++) {
        const struct header_case *c = &header_cases[i];
        struct err err = ERR_INIT;
        int64_t length = 0;
        bool chunked = false;
        print_message("headers: %s\n", c->what);
        assert_int_equal(gateway_request_headers(c->headers, c->count, &length, &chunked, &err),
                         c->rc);
        if (c->rc < 0) {
            assert_int_equal(err.code, ERR_INVAL);
            continue;
        }
        assert_int_equal(length, c->length);
        assert_int_equal(chunked, c->chunked);
    }
}

static void
test_hosts(void **state)
{
    (void)state;
    assert_true(gateway_request_host_allowed("127.0.0.1:8480", 8480, NULL));
    assert_true(gateway_request_host_allowed("localhost:8480", 8480, NULL));
    assert_true(gateway_request_host_allowed("LOCALHOST:8480", 8480, NULL));
    assert_true(gateway_request_host_allowed("[::1]:8480", 8480, NULL));
    assert_true(gateway_request_host_allowed("localhost", 80, NULL));
    assert_false(gateway_request_host_allowed("localhost", 8480, NULL));
    assert_false(gateway_request_host_allowed("localhost:8481", 8480, NULL));
    assert_false(gateway_request_host_allowed("evil.example:8480", 8480, NULL));
    assert_false(gateway_request_host_allowed("localhost.evil.example:8480", 8480, NULL));
    assert_false(gateway_request_host_allowed("127.0.0.1:8480@evil.example", 8480, NULL));
    assert_false(gateway_request_host_allowed("", 8480, NULL));
    assert_true(gateway_request_host_allowed("files.example", 8480, "a.example, files.example"));
    assert_true(gateway_request_host_allowed("files.example:443", 8480, "a.example,files.example"));
    assert_false(gateway_request_host_allowed("files.example.org", 8480, "files.example"));
    assert_false(gateway_request_host_allowed(":8480", 8480, "a.example"));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_targets), cmocka_unit_test(test_component_length),
        cmocka_unit_test(test_query),   cmocka_unit_test(test_headers),
        cmocka_unit_test(test_hosts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
