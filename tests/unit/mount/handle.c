#include "fake_volume.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "mount/handle.h"

static const struct volume_ctx ctx = { .actor = "test", .run = "" };

static struct volume_file *
open_file(void)
{
    struct err err = ERR_INIT;
    struct volume_file *file = NULL;
    assert_int_equal(volume_file_open(&fake_service, &ctx, FAKE_ROOT + 1, O_RDONLY, &file, &err),
                     0);
    return file;
}

static uint64_t
add(struct handle_table *table)
{
    struct err err = ERR_INIT;
    uint64_t fh;
    assert_int_equal(
        handle_add(table, open_file(), &(struct handle_new){ .flags = 0 }, &ctx, &fh, &err), 0);
    return fh;
}

static int
set_up(void **state)
{
    (void)state;
    fake_reset();
    fake.open_files = 0;
    return fake_put(FAKE_ROOT, "f", S_IFREG | 0644, 0) > 0 ? 0 : -1;
}

static int
tear_down(void **state)
{
    (void)state;
    fake_reset();
    return 0;
}

static void
test_numbers(void **state)
{
    (void)state;
    struct handle_table table;
    uint64_t fhs[200];
    handle_table_init(&table, NULL);
    for (int i = 0; i < 200; i++)
        fhs[i] = add(&table);
    for (int i = 0; i < 200; i++) {
        struct handle *handle = handle_get(&table, fhs[i]);
        assert_non_null(handle);
        assert_int_equal(handle->fh, fhs[i]);
        handle_put(&table, handle, &ctx);
    }
    assert_int_equal(fake.open_files, 200);
    handle_remove(&table, fhs[7], &ctx);
    assert_int_equal(fake.open_files, 199);
    assert_null(handle_get(&table, fhs[7]));
    handle_remove(&table, fhs[7], &ctx); /* RELEASE may come twice */
    assert_int_equal(fake.open_files, 199);
    /* The place is given again, the number never. */
    uint64_t again = add(&table);
    assert_int_not_equal(again, fhs[7]);
    assert_null(handle_get(&table, fhs[7]));
    assert_null(handle_get(&table, 0));
    assert_null(handle_get(&table, UINT64_MAX));
    handle_table_release(&table, &ctx);
    assert_int_equal(fake.open_files, 0);
}

static void
test_release_while_in_use(void **state)
{
    (void)state;
    struct handle_table table;
    handle_table_init(&table, NULL);
    uint64_t fh = add(&table);
    struct handle *handle = handle_get(&table, fh);
    handle_remove(&table, fh, &ctx);
    assert_null(handle_get(&table, fh));
    assert_int_equal(fake.open_files, 1); /* a request still works on it */
    handle_put(&table, handle, &ctx);
    assert_int_equal(fake.open_files, 0);
    handle_table_release(&table, &ctx);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_numbers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_release_while_in_use, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
