/* What the parameters of an s3:// URL make of a store, without a request. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "s3/open.h"

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

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_lower_what_goes_in_one_request),
        cmocka_unit_test(sizes_never_raise_the_provider_s),
        cmocka_unit_test(sizes_that_make_no_sense_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
