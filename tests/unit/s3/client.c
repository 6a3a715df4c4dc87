#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/scope.h"
#include "s3/http_store_impl.h"
#include "tests/unit/s3/tiny_http.h"

/* What goes over the wire. */

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

static struct store *
open_at(const struct tiny *server, const char *params, const struct store_limits *limits)
{
    char url[256];
    struct err err = ERR_INIT;
    (void)snprintf(url, sizeof(url), "s3://bucket?endpoint=http://127.0.0.1:%u&style=path%s",
                   server->port, params);
    struct store_open_args args = { .url = url };
    if (limits)
        args.limits = *limits;
    struct store *store = s3_store_open(&args, &err);
    assert_non_null(store);
    return store;
}

/* B196: HTTP/1.1 by choice, with one Host, the signed one. */
static void
placement_and_payer(void **state)
{
    (void)state;
    static const struct tiny_answer answers[] = {
        { 200, "ETag: \"0123456789abcdef0123456789abcdef\"\r\n", "" },
        { 200, "ETag: \"0123456789abcdef0123456789abcdef\"\r\n", "" },
    };
    struct err err = ERR_INIT;
    struct store_put_result result;
    const struct store_placement placement = { .storage_class = "STANDARD_IA",
                                               .encryption = "aws:kms",
                                               .kms_key_id = "arn:aws:kms:eu-west-1:1:key/2" };
    static struct tiny server;
    set_keys();
    tiny_start(&server, answers, 2);
    struct store *store = open_at(&server, "&requester-pays=yes", NULL);
    struct store_put put = { .key = "a b",
                             .body = { .mem = "x", .fd = -1, .size = 1 },
                             .placement = &placement };
    assert_int_equal(store_put(store, &put, &result, &err), 0);
    static const char *const wanted[] = {
        "PUT /bucket/a%20b HTTP/1.1\r\n", "\r\nx-amz-storage-class: STANDARD_IA\r\n",
        "\r\nx-amz-server-side-encryption: aws:kms\r\n",
        "\r\nx-amz-server-side-encryption-aws-kms-key-id: arn:aws:kms:eu-west-1:1:key/2\r\n",
        "\r\nx-amz-request-payer: requester\r\n"
    };
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
        assert_non_null(strstr(tiny_request(&server, 0), wanted[i]));
    const char *host = strcasestr(tiny_request(&server, 0), "\r\nhost:");
    assert_non_null(host);
    assert_null(strcasestr(host + 7, "\r\nhost:"));
    /* All of them are signed. */
    const char *names = strstr(tiny_request(&server, 0), "SignedHeaders=");
    assert_non_null(names);
    assert_non_null(strstr(names, "x-amz-request-payer;x-amz-server-side-encryption;x-amz-server-"
                                  "side-encryption-aws-kms-key-id;x-amz-storage-class"));
    put.placement = NULL;
    assert_int_equal(store_put(store, &put, &result, &err), 0);
    assert_null(strstr(tiny_request(&server, 1), "x-amz-storage-class"));
    assert_null(strstr(tiny_request(&server, 1), "x-amz-server-side"));
    const struct store_placement odd = { .storage_class = "A\r\nB" };
    put.placement = &odd;
    assert_int_equal(store_put(store, &put, &result, &err), -1);
    assert_int_equal(err.code, ERR_INVAL);
    const struct store_placement no_kms = { .encryption = "AES256", .kms_key_id = "k" };
    put.placement = &no_kms;
    assert_int_equal(store_put(store, &put, &result, &err), -1);
    assert_int_equal(server.seen, 2);
    store_free(store);
    tiny_stop(&server);
}

/* B186, B187: RFC 3986 in path and query. B094: no checksum parameter. A payer is part of the link. */
static void
presigned(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    static struct tiny server = { .port = 9000 };
    scope_buf url;
    buf_init(&url, 8192);
    set_keys();
    struct store *store = open_at(&server, "&requester-pays=yes", NULL);
    const struct store_presign req = {
        .method = "PUT",
        .key = "sp ace+%#?\xc3\xa9/x",
        .expires_s = 60,
        .response_content_disposition = "attachment; filename=\"a!b(1)*.txt\"",
    };
    assert_int_equal(store_presign(store, &req, &url, &err), 0);
    const char *text = buf_cstr(&url);
    assert_non_null(strstr(text, "http://127.0.0.1:9000/bucket/sp%20ace%2B%25%23%3F%C3%A9/x?"));
    assert_non_null(strstr(text, "response-content-disposition=attachment%3B%20filename%3D%22a%21b"
                                 "%281%29%2A.txt%22"));
    assert_non_null(strstr(text, "x-amz-request-payer=requester"));
    assert_null(strcasestr(text, "checksum"));
    assert_null(strstr(text, "+"));
    store_free(store);
}

/* Metadata that somebody else gave an object never becomes a header of our next request for it. */
static void
foreign_names(void **state)
{
    (void)state;
    static const struct tiny_answer answers[] = {
        { 200,
          "ETag: \"a\"\r\nx-amz-meta-~x-amz-acl: public-read\r\nx-amz-meta-mode: 33188\r\n"
          "Cache-Control: no-cache\r\n",
          "" },
        { 200, "ETag: \"b\"\r\n", "" },
    };
    struct err err = ERR_INIT;
    struct store_object object;
    struct store_put_result result;
    static struct tiny server;
    set_keys();
    tiny_start(&server, answers, 2);
    struct store *store = open_at(&server, "", NULL);
    store_object_init(&object);
    assert_int_equal(store_head(store, "k", 0, &object, &err), 0);
    assert_null(meta_get(&object.meta, "~x-amz-acl"));
    assert_string_equal(meta_get(&object.meta, "mode"), "33188");
    assert_int_equal(meta_set(&object.meta, "~x-amz-acl", "public-read", &err), 0);
    const struct store_put put = { .key = "k",
                                   .body = { .mem = "x", .fd = -1, .size = 1 },
                                   .meta = &object.meta };
    assert_int_equal(store_put(store, &put, &result, &err), 0);
    assert_null(strstr(tiny_request(&server, 1), "acl"));
    assert_non_null(strstr(tiny_request(&server, 1), "\r\ncache-control: no-cache\r\n"));
    store_object_release(&object);
    store_free(store);
    tiny_stop(&server);
}

static void
put_keys(const char *path, const char *key)
{
    char fresh[128];
    (void)snprintf(fresh, sizeof(fresh), "%s.new", path);
    FILE *file = fopen(fresh, "we");
    assert_non_null(file);
    (void)fprintf(file, "[default]\naws_access_key_id=%s\naws_secret_access_key=s\n", key);
    (void)fclose(file);
    assert_int_equal(rename(fresh, path), 0);
}

#define REFUSAL(code) "<Error><Code>" code "</Code><Message>no</Message></Error>"

/* B107, S22: a refusal of the keys has them looked for anew, and the same call goes on with others; once. */
static void
refused_keys(void **state)
{
    (void)state;
    static const struct tiny_answer answers[] = {
        { 200, "ETag: \"a\"\r\n", "" },
        { 400, NULL, REFUSAL("ExpiredToken") },       /* PUT with KEY1 */
        { 200, "ETag: \"b\"\r\n", "" },               /* with KEY2 */
        { 200, "ETag: \"b\"\r\n", "" },               /* the same */
        { 403, NULL, "" },                            /* HEAD with KEY2, no document */
        { 403, NULL, REFUSAL("InvalidAccessKeyId") }, /* GET of the bucket, why */
        { 200, NULL, "<ListBucketResult/>" },         /* again with KEY3 */
        { 200, "ETag: \"b\"\r\n", "" },               /* HEAD with KEY3 */
        { 403, NULL, REFUSAL("InvalidAccessKeyId") }, /* PUT, and no other keys to be had */
    };
    static const char *const keys[] = { "KEY1", "KEY1", "KEY2", "KEY2", "KEY2",
                                        "KEY2", "KEY3", "KEY3", "KEY3" };
    struct err err = ERR_INIT;
    struct store_put_result result;
    struct store_object object;
    static struct tiny server;
    char path[] = "/tmp/holdfast-keys-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    (void)close(fd);
    set_keys();
    unsetenv("AWS_ACCESS_KEY_ID");
    setenv("AWS_SHARED_CREDENTIALS_FILE", path, 1);
    put_keys(path, "KEY1");
    tiny_start(&server, answers, 9);
    struct store *store = open_at(&server, "", NULL);
    const struct store_put put = { .key = "k", .body = { .mem = "x", .fd = -1, .size = 1 } };
    assert_int_equal(store_put(store, &put, &result, &err), 0);
    put_keys(path, "KEY2");
    assert_int_equal(store_put(store, &put, &result, &err), 0);
    assert_string_equal(result.etag, "b");
    /* Files are not looked at for every refusal, and by themselves once a second. */
    clock_sleep_ns(51 * NS_PER_S / 10);
    assert_int_equal(store_put(store, &put, &result, &err), 0);
    put_keys(path, "KEY3");
    store_object_init(&object);
    assert_int_equal(store_head(store, "k", 0, &object, &err), 0);
    store_object_release(&object);
    assert_int_equal(store_put(store, &put, &result, &err), -1);
    assert_int_equal(err.code, ERR_STORE_DENIED);
    assert_int_not_equal(result.outcome, STORE_DONE);
    assert_int_equal(server.seen, 9);
    for (size_t i = 0; i < 9; i++) {
        char wanted[32];
        (void)snprintf(wanted, sizeof(wanted), "Credential=%s/", keys[i]);
        assert_non_null(strstr(tiny_request(&server, i), wanted));
    }
    store_free(store);
    tiny_stop(&server);
    unlink(path);
    unsetenv("AWS_SHARED_CREDENTIALS_FILE");
    set_keys();
}

static unsigned
open_descriptors(void)
{
    unsigned count = 0;
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    while (readdir(dir))
        count++;
    (void)closedir(dir);
    return count;
}

/* B037, B114: what fails leaves no descriptor behind, and connections are kept within their number. */
static void
no_descriptor_is_left(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct store_put_result result;
    struct store_object object;
    static struct tiny server;
    static const struct tiny_answer none[] = { { 200, NULL, "" } };
    set_keys();
    tiny_start(&server, none, 1);
    tiny_stop(&server); /* nobody listens there now */
    unsigned before = open_descriptors();
    for (int i = 0; i < 300; i++) {
        struct store *store = open_at(&server, "", NULL);
        struct store_put put = { .key = "k",
                                 .body = { .mem = "x", .fd = -1, .size = 1 },
                                 .deadline_ns = clock_mono_ns() + NS_PER_S / 100 };
        assert_int_equal(store_put(store, &put, &result, &err), -1);
        store_object_init(&object);
        assert_int_equal(store_head(store, "k", clock_mono_ns() + NS_PER_S / 100, &object, &err),
                         -1);
        store_object_release(&object);
        store_free(store);
    }
    assert_int_equal(open_descriptors(), before);
}

static void
limited(void **state)
{
    (void)state;
    static const struct tiny_answer answers[] = {
        { 200, "ETag: \"0123456789abcdef0123456789abcdef\"\r\n", "" },
        { 200, "ETag: \"0123456789abcdef0123456789abcdef\"\r\n", "" },
        { 200, "ETag: \"0123456789abcdef0123456789abcdef\"\r\n", "" },
    };
    static const struct store_limits limits = { .requests_per_s = 4, .bytes_up_per_s = 16000 };
    static char bytes[8000];
    struct err err = ERR_INIT;
    struct store_put_result result;
    struct store_counters counters;
    static struct tiny server;
    set_keys();
    memset(bytes, 'x', sizeof(bytes));
    tiny_start(&server, answers, 3);
    struct store *store = open_at(&server, "", &limits);
    const struct store_put put = { .key = "k",
                                   .body = { .mem = bytes, .fd = -1, .size = sizeof(bytes) } };
    int64_t begun = clock_mono_ns();
    for (int i = 0; i < 3; i++)
        assert_int_equal(store_put(store, &put, &result, &err), 0);
    int64_t took = clock_mono_ns() - begun;
    /* 24,000 bytes at 16,000 a second, less the burst of a tenth. */
    assert_true(took > 12 * NS_PER_S / 10);
    store_counters(store, &counters);
    assert_true(counters.limited_ns > (uint64_t)(NS_PER_S / 2));
    assert_true(counters.puts == 3 && counters.bytes_up == 24000);
    /* A wait beyond the deadline is told at once. */
    struct store_put late = put;
    for (int i = 0; i < 4; i++) {
        late.deadline_ns = clock_mono_ns() + NS_PER_S / 20;
        if (store_put(store, &late, &result, &err) < 0 && strstr(err.msg, "limit"))
            break;
    }
    assert_non_null(strstr(err.msg, "limit"));
    assert_int_equal(err.code, ERR_STORE_TIMEOUT);
    store_free(store);
    tiny_stop(&server);
}

int
main(void)
{
    (void)signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(placement_and_payer),   cmocka_unit_test(presigned),
        cmocka_unit_test(foreign_names),         cmocka_unit_test(refused_keys),
        cmocka_unit_test(no_descriptor_is_left), cmocka_unit_test(limited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
