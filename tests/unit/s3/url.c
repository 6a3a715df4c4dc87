#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "s3/open.h"
#include "s3/url.h"

static void
takes_apart(void **state)
{
    static const struct {
        const char *text, *scheme, *host, *path;
    } rows[] = {
        { "mem:", "mem", "", "" },
        { "file:///var/lib/store", "file", "", "/var/lib/store" },
        { "file:///a%20b/%C3%BC%23", "file", "", "/a b/ü#" },
        { "FILE://localhost/x", "file", "localhost", "/x" },
        { "file:/x", "file", "", "/x" },
        { "s3://bucket", "s3", "bucket", "" },
        { "s3://bucket/", "s3", "bucket", "/" },
        { "s3://bucket/some/prefix/", "s3", "bucket", "/some/prefix/" },
        { "http://127.0.0.1:7480/p", "http", "127.0.0.1:7480", "/p" },
        { "s3://bucket?region=auto", "s3", "bucket", "" },
    };
    struct err err = ERR_INIT;
    struct url url;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(url_parse(rows[i].text, &url, &err), 0);
        assert_string_equal(url.scheme, rows[i].scheme);
        assert_string_equal(url.host, rows[i].host);
        assert_string_equal(url.path, rows[i].path);
        url_release(&url);
    }
}

static void
takes_parameters(void **state)
{
    static const char *const known[] = { "endpoint", "region", "style", NULL };
    struct err err = ERR_INIT;
    struct url url;

    (void)state;
    assert_int_equal(
        url_parse("s3://b/p?endpoint=https://h:1/x%3Fy%26z&region=a+b&&style=", &url, &err), 0);
    assert_int_equal(url.params, 3);
    assert_string_equal(url_param(&url, "endpoint"), "https://h:1/x?y&z");
    assert_string_equal(url_param(&url, "region"), "a+b");
    assert_string_equal(url_param(&url, "style"), "");
    assert_null(url_param(&url, "provider"));
    assert_int_equal(url_check_params(&url, known, &err), 0);
    assert_int_equal(url_check_params(&url, known + 1, &err), -1);
    assert_int_equal(err.code, ERR_USAGE);
    assert_non_null(strstr(err.msg, "'endpoint'"));
    assert_non_null(strstr(err.msg, "region, style"));
    url_release(&url);
}

static void
refuses_what_is_no_url(void **state)
{
    static const char *const rows[] = {
        "",           "bucket",     "/dir",        "://x",      "1s://x",
        "s3://b/%zz", "s3://b/%00", "s3://b?x",    "s3://b?=y", "s3://b?a=1&a=2",
        "s3://b#f",   "s3://b/p#f", "s3://b?a=%f", "s3://%4",   "sch eme:x",
    };
    struct err err = ERR_INIT;
    struct url url;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        err.code = ERR_INTERNAL;
        assert_int_equal(url_parse(rows[i], &url, &err), -1);
        assert_int_equal(err.code, ERR_USAGE);
    }
}

static void
keeps_secrets_out_of_errors(void **state)
{
    struct err err = ERR_INIT;
    struct url url;

    (void)state;
    assert_int_equal(url_parse("s3://KEYID:TOPSECRET@bucket/x", &url, &err), -1);
    assert_int_equal(err.code, ERR_USAGE);
    assert_null(strstr(err.msg, "TOPSECRET"));
}

static void
bounds_parameters(void **state)
{
    struct err err = ERR_INIT;
    char text[1024] = "s3://b?";
    struct url url;
    size_t len = strlen(text);

    (void)state;
    for (int i = 0; i <= URL_PARAMS; i++)
        len += (size_t)snprintf(text + len, sizeof(text) - len, "p%d=1&", i);
    assert_int_equal(url_parse(text, &url, &err), -1);
    assert_int_equal(err.code, ERR_USAGE);
}

static void
open_refuses_unknown(void **state)
{
    static const char *const rows[] = {
        "ftp://x",       "mem://x", "mem:/x",          "mem:?a=1",
        "file://host/x", "file:x",  "file:///tmp?x=1", "/tmp/plain/path",
    };
    struct err err = ERR_INIT;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct store_open_args args = { .url = rows[i] };
        err.code = ERR_INTERNAL;
        assert_null(store_open(&args, &err));
        assert_int_equal(err.code, ERR_USAGE);
    }
}

static void
open_mem_works(void **state)
{
    struct err err = ERR_INIT;
    struct store_open_args args = { .url = "mem:" };
    struct store *store = store_open(&args, &err);

    (void)state;
    assert_non_null(store);
    assert_string_equal(store->ops->name, "mem");
    store_free(store);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_apart),
        cmocka_unit_test(takes_parameters),
        cmocka_unit_test(refuses_what_is_no_url),
        cmocka_unit_test(keeps_secrets_out_of_errors),
        cmocka_unit_test(bounds_parameters),
        cmocka_unit_test(open_refuses_unknown),
        cmocka_unit_test(open_mem_works),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
