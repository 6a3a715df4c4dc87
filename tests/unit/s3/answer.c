#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "s3/answer.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void
errors(void **state)
{
    (void)state;
    const struct {
        int status;
        const char *code;
        const char *region;
        bool head;
        enum err_code want;
        const char *text; /* a part of the message */
    } rows[] = {
        { 403, "SignatureDoesNotMatch", "", false, ERR_STORE_DENIED, "secret key is wrong" },
        { 403, "InvalidAccessKeyId", "", false, ERR_STORE_DENIED, "access key" },
        { 403, "AccessDenied", "", false, ERR_STORE_DENIED, "policy" },
        { 400, "ExpiredToken", "", false, ERR_STORE_DENIED, "fresh" },
        { 403, "", "", true, ERR_STORE_DENIED, "refused access" },
        { 404, "NoSuchBucket", "", false, ERR_STORE_NO_BUCKET, "create it" },
        { 404, "NoSuchKey", "", false, ERR_NOT_FOUND, "" },
        { 404, "", "", true, ERR_NOT_FOUND, "" },
        /* INV-9: a proxy's 404 is not "absent" */
        { 404, "", "", false, ERR_STORE_BAD_ANSWER, "error document" },
        { 400, "AuthorizationHeaderMalformed", "eu-west-3", false, ERR_STORE_DENIED,
          "region=eu-west-3" },
        { 301, "PermanentRedirect", "", false, ERR_STORE_DENIED, "endpoint" },
        { 412, "PreconditionFailed", "", false, ERR_CONFLICT, "" },
        { 412, "", "", false, ERR_CONFLICT, "" },
        { 409, "ConditionalRequestConflict", "", false, ERR_STORE_RACE, "" },
        { 416, "InvalidRange", "", false, ERR_RANGE, "" },
        { 501, "NotImplemented", "", false, ERR_STORE_UNSUPPORTED, "" },
        { 503, "SlowDown", "", false, ERR_STORE_AWAY, "SlowDown" },
        { 500, "", "", false, ERR_STORE_AWAY, "" },
        /* B006: trouble, whatever else it says */
        { 503, "NoSuchKey", "", false, ERR_STORE_AWAY, "" },
        { 500, "NoSuchBucket", "", false, ERR_STORE_AWAY, "" },
        { 429, "PreconditionFailed", "", false, ERR_STORE_AWAY, "" },
        { 418, "", "", false, ERR_STORE_BAD_ANSWER, "418" },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct err err = ERR_INIT;
        struct xml_error error = { .code = "" };
        strncpy(error.code, rows[i].code, sizeof(error.code) - 1);
        strncpy(error.region, rows[i].region, sizeof(error.region) - 1);
        assert_int_equal(answer_error(rows[i].status, &error, "key 'x'", rows[i].head, &err), -1);
        assert_int_equal(err.code, rows[i].want);
        assert_non_null(strstr(err.msg, rows[i].text));
        assert_non_null(strstr(err.msg, "key 'x'"));
    }
}

static void
content_range(void **state)
{
    (void)state;
    uint64_t first = 0;
    uint64_t last = 0;
    uint64_t total = 0;
    /* RFC 9110 section 14.4 */
    assert_true(answer_content_range("bytes 42-1233/1234", &first, &last, &total));
    assert_int_equal(first, 42);
    assert_int_equal(last, 1233);
    assert_int_equal(total, 1234);
    const char *bad[] = { "bytes 42-1233/*",
                          "bytes */1234",
                          "bytes 5-4/10",
                          "bytes 0-10/10",
                          "0-1/2",
                          "bytes 0-1/2 ",
                          "bytes -1/2",
                          "bytes 0-1",
                          "bytes 0-18446744073709551616/2",
                          "" };
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_false(answer_content_range(bad[i], &first, &last, &total));
}

static void
md5_shape(void **state)
{
    (void)state;
    assert_true(answer_is_md5("d41d8cd98f00b204e9800998ecf8427e"));
    assert_false(answer_is_md5("d41d8cd98f00b204e9800998ecf8427e-3"));
    assert_false(answer_is_md5("d41d8cd98f00b204e9800998ecf8427g"));
    assert_false(answer_is_md5(""));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors),
        cmocka_unit_test(content_range),
        cmocka_unit_test(md5_shape),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
