/* What the parameters of an s3:// URL make of a store, without a request. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "s3/client.h"

static int
keys(void *arg, struct s3_credentials *out, struct err *err)
{
    (void)arg;
    (void)out;
    (void)err;
    return 0;
}

static struct store *
open_with(const char *params, struct err *err)
{
    char url[256];
    (void)snprintf(url, sizeof(url), "s3://bucket?endpoint=http://127.0.0.1:9&provider=r2%s",
                   params);
    struct store_open_args args = { .url = url, .credentials = keys };
    return s3_store_open(&args, err);
}

static void
sizes_lower_what_goes_in_one_request(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    scope_store *store = open_with("&max-put=32M&max-copy=1G", &err);
    assert_non_null(store);
    assert_int_equal(store->caps.max_put_bytes, 33554432);
    assert_int_equal(store->caps.max_copy_bytes, 1073741824);
}

static void
sizes_never_raise_the_provider_s(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    scope_store *store = open_with("&max-put=900G", &err);
    assert_non_null(store);
    assert_true(store->caps.max_put_bytes < (5ull << 30)); /* R2: 4.995 GiB */
}

static void
sizes_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = { "&max-put=", "&max-put=1M", "&max-copy=-1", "&max-put=x" };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct err err = ERR_INIT;
        assert_null(open_with(bad[i], &err));
        assert_int_equal(err.code, ERR_USAGE);
    }
}

static void
set_keys(void)
{
    setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", 1);
    setenv("HOME", "/nonexistent-home", 1);
    unsetenv("AWS_SESSION_TOKEN");
    unsetenv("AWS_REGION");
    unsetenv("AWS_DEFAULT_REGION");
    unsetenv("AWS_CONFIG_FILE");
    unsetenv("AWS_ENDPOINT_URL");
    unsetenv("AWS_ENDPOINT_URL_S3");
}

static void
places(void **state)
{
    (void)state;
    static const struct {
        const char *url, *provider; /* as given by the settings */
        const char *host, *region, *name;
        bool path_style;
    } rows[] = {
        { "s3://b", NULL, "s3.us-east-1.amazonaws.com", "us-east-1", "aws", false },
        { "s3://b?region=eu-west-1", NULL, "s3.eu-west-1.amazonaws.com", "eu-west-1", "aws",
          false },
        { "s3://b?region=cn-north-1", NULL, "s3.cn-north-1.amazonaws.com.cn", "cn-north-1", "aws",
          false },
        { "s3://a.b", NULL, "s3.us-east-1.amazonaws.com", "us-east-1", "aws", true },
        { "s3://b?endpoint=https://s3.us-west-004.backblazeb2.com", NULL,
          "s3.us-west-004.backblazeb2.com", "us-west-004", "b2", true },
        { "s3://b?provider=r2&account=abc", NULL, "abc.r2.cloudflarestorage.com", "auto", "r2",
          true },
        { "s3://b?account=abc", "r2", "abc.r2.cloudflarestorage.com", "auto", "r2", true },
        { "s3://b?endpoint=http://127.0.0.1:9000", "ceph", "127.0.0.1:9000", "us-east-1", "ceph",
          true },
        { "s3://b?endpoint=http://127.0.0.1:9000&provider=minio", "ceph", "127.0.0.1:9000",
          "us-east-1", "minio", true },
        { "s3://b?region=hel1", "hetzner", "hel1.your-objectstorage.com", "hel1", "hetzner", true },
    };
    set_keys();
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct err err = ERR_INIT;
        struct client client;
        const struct store_open_args args = { .url = rows[i].url, .provider = rows[i].provider };
        assert_int_equal(client_open(&client, &args, &err), 0);
        assert_string_equal(client.endpoint.host, rows[i].host);
        assert_string_equal(client.region, rows[i].region);
        assert_string_equal(client.provider->name, rows[i].name);
        assert_int_equal(client.path_style, rows[i].path_style);
        client_close(&client);
    }
}

static void
endpoint_of_the_environment(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct client client;
    struct store_open_args args = { .url = "s3://b" };
    set_keys();
    setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1", 1);
    setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:2", 1);
    assert_int_equal(client_open(&client, &args, &err), 0);
    assert_string_equal(client.endpoint.host, "127.0.0.1:2");
    client_close(&client);
    args.url = "s3://b?endpoint=http://127.0.0.1:3";
    assert_int_equal(client_open(&client, &args, &err), 0);
    assert_string_equal(client.endpoint.host, "127.0.0.1:3");
    client_close(&client);
    args = (struct store_open_args){ .url = "s3://b?account=x", .provider = "r2" };
    assert_int_equal(client_open(&client, &args, &err), 0);
    assert_string_equal(client.endpoint.host, "x.r2.cloudflarestorage.com");
    client_close(&client);
    set_keys();
}

static void
refused_urls(void **state)
{
    (void)state;
    static const struct {
        const char *url, *words;
    } rows[] = {
        { "s3://b?provider=nobody", "aws, b2" },
        { "s3://b?provider=minio", "endpoint=" },
        { "s3://b?provider=r2", "account=" },
        { "s3://b?provider=b2", "region=" },
        { "s3://b?requester-pays=perhaps", "yes or no" },
        { "s3://b?pin=sha256//AAAA", "sha256//BASE64" },
        { "s3://b?pin=md5//AAAA", "sha256//BASE64" },
        { "s3://b?endpoint=http://x&ca=/x", "https://" },
        { "s3://b?ca=authority.pem", "absolute" },
        { "s3://b?insecure=yes", "insecure" },
    };
    set_keys();
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct err err = ERR_INIT;
        struct client client;
        const struct store_open_args args = { .url = rows[i].url };
        assert_int_equal(client_open(&client, &args, &err), -1);
        assert_int_equal(err.code, ERR_USAGE);
        assert_non_null(strstr(err.msg, rows[i].words));
        client_close(&client);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_lower_what_goes_in_one_request),
        cmocka_unit_test(sizes_never_raise_the_provider_s),
        cmocka_unit_test(sizes_that_make_no_sense_are_refused),
        cmocka_unit_test(places),
        cmocka_unit_test(endpoint_of_the_environment),
        cmocka_unit_test(refused_urls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
