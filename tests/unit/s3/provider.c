#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/scope.h"
#include "s3/provider.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void
guesses(void **state)
{
    (void)state;
    const struct {
        const char *host, *path, *name;
    } rows[] = {
        { "0123abcd.r2.cloudflarestorage.com", "", "r2" },
        { "0123abcd.eu.r2.cloudflarestorage.com", "", "r2" },
        { "127.0.0.1:7580", "/cdn-cgi/local/r2/s3", "r2" },
        { "s3.eu-central-1.amazonaws.com", "", "aws" },
        { "S3.AMAZONAWS.COM:443", "", "aws" },
        { "s3.cn-north-1.amazonaws.com.cn", "", "aws" },
        { "storage.googleapis.com", "", "gcs" },
        { "s3.us-west-004.backblazeb2.com", "", "b2" },
        { "fsn1.your-objectstorage.com", "", "hetzner" },
        { "s3.wasabisys.com", "", "wasabi" },
        { "127.0.0.1:9000", "", "generic" },
        { "amazonaws.com.evil.example", "", "generic" },
        { "evilamazonaws.com", "", "generic" },
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        assert_string_equal(provider_guess(rows[i].host, rows[i].path)->name, rows[i].name);
}

static void
by_name(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    scope_buf names;
    buf_init(&names, 1024);
    assert_string_equal(provider_find("ceph")->name, "ceph");
    assert_true(provider_find("ceph")->etag_bare);
    assert_null(provider_find("nobody"));
    assert_null(provider_find(""));
    assert_int_equal(provider_names(&names, &err), 0);
    assert_non_null(strstr(buf_cstr(&names), "minio, r2"));
}

/* INV-3: a profile never claims a capability, and takes away what others have seen to fail. */
static void
caps_before_and_after_the_probe(void **state)
{
    (void)state;
    struct store_caps caps;
    provider_caps(provider_find("r2"), &caps);
    assert_int_equal(caps.put_if_absent, STORE_NOT_PROBED);
    assert_int_equal(caps.delete_if_match, STORE_NO);
    assert_int_equal(caps.folds_names, STORE_YES);
    assert_true(caps.min_write_interval_ns == NS_PER_S);
    assert_true(caps.max_put_bytes < LIMIT_PUT_BODY);

    provider_caps(provider_find("gcs"), &caps);
    assert_int_equal(caps.put_if_absent, STORE_NO);
    caps.put_if_absent = STORE_YES; /* as if a probe had been lucky */
    caps.put_atomic = STORE_YES;
    provider_limit_caps(provider_find("gcs"), &caps);
    assert_int_equal(caps.put_if_absent, STORE_NO);
    assert_int_equal(caps.put_atomic, STORE_NO);

    provider_caps(provider_find("ceph"), &caps);
    assert_int_equal(caps.etag_quoted, STORE_NO);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(guesses),
        cmocka_unit_test(by_name),
        cmocka_unit_test(caps_before_and_after_the_probe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
