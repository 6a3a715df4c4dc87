#include "fake_volume.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>

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

/* A gateway dies: the next one finds what was open under the same numbers, and nothing of what was closed (INV-13). */
static void
test_next_gateway(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct handle_table table;
    struct handle_table next;
    struct volume_ctx asked = ctx;
    uint64_t fhs[100];
    int fd;
    struct carry *carry = carry_new(&fd, &err);
    assert_non_null(carry);
    handle_table_init(&table, carry);
    for (unsigned i = 0; i < 100; i++) {
        const struct handle_new how = { .flags = HANDLE_WRITER, .backing = 7, .answer = 2 };
        asked.unique = 1000 + i;
        assert_int_equal(handle_add(&table, open_file(), &how, &asked, &fhs[i], &err), 0);
    }
    for (unsigned i = 0; i < 100; i += 2)
        handle_remove(&table, fhs[i], &ctx);

    struct carry *same = carry_map(fd, &err);
    assert_non_null(same);
    assert_int_equal(same->opens_used, 100);
    handle_table_init(&next, same);
    for (uint32_t i = 0; i < same->opens_used; i++) {
        assert_int_equal(same->opens[i].fh != 0, i % 2 == 1);
        if (same->opens[i].fh != 0)
            assert_int_equal(handle_restore(&next, i, open_file(), &ctx, &err), 0);
    }
    for (unsigned i = 0; i < 100; i++) {
        struct handle *handle = handle_get(&next, fhs[i]);
        assert_int_equal(handle != NULL, i % 2 == 1);
        if (handle)
            assert_int_equal(handle->flags, HANDLE_WRITER);
        handle_put(&next, handle, &ctx);
        const struct carry_open *open = handle_of_request(&next, 1000 + i);
        assert_int_equal(open != NULL, i % 2 == 1);
        assert_true(!open || (open->fh == fhs[i] && open->backing == 7 && open->answer == 2));
    }
    /* A new number is none that was ever given. */
    for (unsigned i = 0; i < 100; i++) {
        uint64_t fh = add(&next);
        for (unsigned j = 0; j < 100; j++)
            assert_true(fh != fhs[j]);
    }
    handle_table_release(&next, &ctx);
    handle_table_release(&table, &ctx);
    carry_unmap(same);
    carry_unmap(carry);
    assert_int_equal(ftruncate(fd, 4096), 0);
    assert_null(carry_map(fd, &err));
    assert_int_equal(err.code, ERR_NEWER_FORMAT);
    assert_int_equal(close(fd), 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_next_gateway, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_numbers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_release_while_in_use, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
