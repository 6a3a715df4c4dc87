#include "tests/unit/versioning/index_fixture.h"

static void
test_uuid_stays(void **state)
{
    (void)state;
    char first[64] = "", second[64] = "";
    read_ok(get_uuid, first);
    assert_true(ulid_valid(first));
    reopen();
    read_ok(get_uuid, second);
    assert_string_equal(first, second);
}

static void
test_missing_directory(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct index_options options = { .create = true };
    assert_null(index_open("/nonexistent/holdfast", &options, &err));
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_non_null(strstr(err.msg, "/nonexistent/holdfast"));
}

static void
test_not_created_unasked(void **state)
{
    (void)state;
    char dir[sizeof(scratch) + 8];
    struct err err = ERR_INIT;
    struct index_options options = { .create = false };
    (void)snprintf(dir, sizeof(dir), "%s/sub", scratch);
    assert_int_equal(mkdir(dir, 0700), 0);
    assert_null(index_open(dir, &options, &err));
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_int_equal(rmdir(dir), 0); /* so nothing was made in it */
}

int
main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_uuid_stays),
        T(test_missing_directory),
        T(test_not_created_unasked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
