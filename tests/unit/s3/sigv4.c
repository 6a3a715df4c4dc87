#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/scope.h"
#include "s3/sigv4.h"

/*
 * Expected signatures: the AWS documentation's examples for S3 ("Signature Calculations for the Authorization Header:
 * Transferring Payload in a Single Chunk", "Authenticating Requests: Using Query Parameters") and the published
 * aws-sig-v4-test-suite (service "service").
 */

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define DOC_TIME (1369353600 * NS_PER_S)   /* 20130524T000000Z */
#define SUITE_TIME (1440938160 * NS_PER_S) /* 20150830T123600Z */

static const struct sigv4_scope doc = {
    .access_key = "AKIAIOSFODNN7EXAMPLE",
    .secret_key = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    .region = "us-east-1",
    .service = "s3",
};
static const struct sigv4_scope suite = {
    .access_key = "AKIDEXAMPLE",
    .secret_key = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
    .region = "us-east-1",
    .service = "service",
};

static void
assert_signature(const struct sigv4_request *request, const struct sigv4_scope *scope,
                 const char *hex)
{
    struct err err = ERR_INIT;
    scope_buf out;
    buf_init(&out, 65536);
    assert_int_equal(sigv4_authorization(request, scope, &out, &err), 0);
    const char *at = strstr(buf_cstr(&out), "Signature=");
    assert_non_null(at);
    assert_string_equal(at + strlen("Signature="), hex);
}

static void
path_and_query(const char *key, const struct canonical_query *query, struct buf *path,
               struct buf *text)
{
    struct err err = ERR_INIT;
    buf_init(path, 65536);
    buf_init(text, 65536);
    assert_int_equal(canonical_path("", NULL, key, path, &err), 0);
    if (query)
        assert_int_equal(canonical_query_write(query, text, &err), 0);
}

#define DOC_HOST                                 \
    {                                            \
        "host", "examplebucket.s3.amazonaws.com" \
    }
#define DOC_DATE                         \
    {                                    \
        "x-amz-date", "20130524T000000Z" \
    }
#define EMPTY_BODY                                 \
    {                                              \
        "x-amz-content-sha256", SIGV4_EMPTY_SHA256 \
    }

static void
doc_get_object(void **state)
{
    (void)state;
    const struct sigv4_header headers[] = {
        { "range", "bytes=0-9" }, DOC_HOST, EMPTY_BODY, DOC_DATE
    };
    struct sigv4_request request = { .method = "GET",
                                     .path = "/test.txt",
                                     .query = "",
                                     .headers = headers,
                                     .header_count = COUNT(headers),
                                     .payload_hash = SIGV4_EMPTY_SHA256,
                                     .wall_ns = DOC_TIME };
    assert_signature(&request, &doc,
                     "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");

    struct err err = ERR_INIT;
    scope_buf out;
    buf_init(&out, 65536);
    assert_int_equal(sigv4_authorization(&request, &doc, &out, &err), 0);
    assert_string_equal(
        buf_cstr(&out),
        "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, "
        "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, "
        "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
}

static void
doc_put_object(void **state)
{
    (void)state;
    scope_buf path;
    scope_buf text;
    path_and_query("test$file.text", NULL, &path, &text);
    assert_string_equal(buf_cstr(&path), "/test%24file.text");
    const char *sha = "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072";
    const struct sigv4_header headers[] = {
        DOC_HOST, { "date", "Fri, 24 May 2013 00:00:00 GMT" },     { "x-amz-content-sha256", sha },
        DOC_DATE, { "x-amz-storage-class", "REDUCED_REDUNDANCY" },
    };
    struct sigv4_request request = { .method = "PUT",
                                     .path = buf_cstr(&path),
                                     .query = "",
                                     .headers = headers,
                                     .header_count = COUNT(headers),
                                     .payload_hash = sha,
                                     .wall_ns = DOC_TIME };
    assert_signature(&request, &doc,
                     "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
}

static void
doc_bucket_queries(void **state)
{
    (void)state;
    const struct sigv4_header headers[] = { DOC_HOST, EMPTY_BODY, DOC_DATE };
    struct canonical_query lifecycle = { .count = 0 };
    struct canonical_query list = { .count = 0 };
    canonical_query_add(&lifecycle, "lifecycle", "");
    canonical_query_add(&list, "prefix", "J");
    canonical_query_add(&list, "max-keys", "2");
    const struct {
        const struct canonical_query *query;
        const char *hex;
    } rows[] = {
        { &lifecycle, "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543" },
        { &list, "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7" },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        scope_buf path;
        scope_buf text;
        path_and_query(NULL, rows[i].query, &path, &text);
        struct sigv4_request request = { .method = "GET",
                                         .path = buf_cstr(&path),
                                         .query = buf_cstr(&text),
                                         .headers = headers,
                                         .header_count = COUNT(headers),
                                         .payload_hash = SIGV4_EMPTY_SHA256,
                                         .wall_ns = DOC_TIME };
        assert_signature(&request, &doc, rows[i].hex);
    }
}

static void
doc_presigned_get(void **state)
{
    (void)state;
    const struct sigv4_header headers[] = { DOC_HOST };
    const struct canonical_query query = { .count = 0 };
    const struct sigv4_link link = { &query, 86400, "" };
    struct sigv4_request request = { .method = "GET",
                                     .path = "/test.txt",
                                     .query = "",
                                     .headers = headers,
                                     .header_count = 1,
                                     .payload_hash = SIGV4_UNSIGNED_PAYLOAD,
                                     .wall_ns = DOC_TIME };
    struct err err = ERR_INIT;
    scope_buf out;
    buf_init(&out, 65536);
    assert_int_equal(sigv4_presign(&request, &doc, &link, &out, &err), 0);
    assert_string_equal(
        buf_cstr(&out),
        "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2F"
        "us-east-1%2Fs3%2Faws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&"
        "X-Amz-SignedHeaders=host&X-Amz-Signature="
        "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404");
}

static void
suite_requests(void **state)
{
    (void)state;
    struct canonical_query two = { .count = 0 };
    struct canonical_query utf8 = { .count = 0 };
    canonical_query_add(&two, "Param2", "value2");
    canonical_query_add(&two, "Param1", "value1");
    canonical_query_add(&utf8, "\xe1\x88\xb4", "bar");
    const struct {
        const char *method;
        const char *key;
        const struct canonical_query *query;
        const char *header[2];
        const char *hex;
    } rows[] = {
        /* get-vanilla, post-vanilla, get-vanilla-query-order-key-case, get-vanilla-utf8-query, get-utf8,
         * get-space-unnormalized, get-unreserved, post-header-key-sort */
        { "GET",
          "",
          NULL,
          { NULL },
          "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31" },
        { "POST",
          "",
          NULL,
          { NULL },
          "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b" },
        { "GET",
          "",
          &two,
          { NULL },
          "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500" },
        { "GET",
          "",
          &utf8,
          { NULL },
          "2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04" },
        { "GET",
          "\xe1\x88\xb4",
          NULL,
          { NULL },
          "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85" },
        { "GET",
          "example space/",
          NULL,
          { NULL },
          "652487583200325589f1fba4c7e578f72c47cb61beeca81406b39ddec1366741" },
        { "GET",
          "-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
          NULL,
          { NULL },
          "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f" },
        { "POST",
          "",
          NULL,
          { "my-header1", "value1" },
          "c5410059b04c1ee005303aed430f6e6645f61f4dc9e1461ec8f8916fdf18852c" },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        scope_buf path;
        scope_buf text;
        path_and_query(rows[i].key, rows[i].query, &path, &text);
        struct sigv4_header headers[] = { { "x-amz-date", "20150830T123600Z" },
                                          { "host", "example.amazonaws.com" },
                                          { rows[i].header[0], rows[i].header[1] } };
        struct sigv4_request request = { .method = rows[i].method,
                                         .path = buf_cstr(&path),
                                         .query = buf_cstr(&text),
                                         .headers = headers,
                                         .header_count = rows[i].header[0] ? 3 : 2,
                                         .payload_hash = SIGV4_EMPTY_SHA256,
                                         .wall_ns = SUITE_TIME };
        assert_signature(&request, &suite, rows[i].hex);
    }
}

/* get-header-value-trim of the suite: blanks at the ends go, runs inside become one. */
static void
suite_header_trim(void **state)
{
    (void)state;
    const struct sigv4_header headers[] = { { "host", "example.amazonaws.com" },
                                            { "my-header1", " value1" },
                                            { "my-header2", " \"a   b   c\"" },
                                            { "x-amz-date", "20150830T123600Z" } };
    struct sigv4_request request = { .method = "GET",
                                     .path = "/",
                                     .query = "",
                                     .headers = headers,
                                     .header_count = COUNT(headers),
                                     .payload_hash = SIGV4_EMPTY_SHA256,
                                     .wall_ns = SUITE_TIME };
    assert_signature(&request, &suite,
                     "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736");
}

static void
canonical_paths(void **state)
{
    (void)state;
    const struct {
        const char *endpoint, *bucket, *key, *want;
    } rows[] = {
        { "", "b", "k", "/b/k" },
        { "/", "b", NULL, "/b" },
        { "", NULL, NULL, "/" },
        { "/cdn-cgi/local/r2/s3", "b", "a b/\xc3\xa4+%",
          "/cdn-cgi/local/r2/s3/b/a%20b/%C3%A4%2B%25" },
        { "/x y/", NULL, "k", "/x%20y/k" },
        { "", "b", "a//b/../c/.", "/b/a//b/../c/." },
        { "", "b", "!*'()", "/b/%21%2A%27%28%29" },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct err err = ERR_INIT;
        scope_buf out;
        buf_init(&out, 4096);
        assert_int_equal(canonical_path(rows[i].endpoint, rows[i].bucket, rows[i].key, &out, &err),
                         0);
        assert_string_equal(buf_cstr(&out), rows[i].want);
    }
}

/* By name first: "a" < "a-b" although "a=" > "a-". */
static void
query_order(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct canonical_query query = { .count = 0 };
    scope_buf out;
    buf_init(&out, 4096);
    canonical_query_add(&query, "a-b", "1");
    canonical_query_add(&query, "a", "z");
    canonical_query_add(&query, "a", "b c/d");
    canonical_query_add(&query, "B", "");
    assert_int_equal(canonical_query_write(&query, &out, &err), 0);
    assert_string_equal(buf_cstr(&out), "B=&a=b%20c%2Fd&a=z&a-b=1");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(doc_get_object),     cmocka_unit_test(doc_put_object),
        cmocka_unit_test(doc_bucket_queries), cmocka_unit_test(doc_presigned_get),
        cmocka_unit_test(suite_requests),     cmocka_unit_test(suite_header_trim),
        cmocka_unit_test(canonical_paths),    cmocka_unit_test(query_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
