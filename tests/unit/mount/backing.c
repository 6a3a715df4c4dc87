/* The kernel's table of modes (docs/platform.md section 2): no answer that it refuses, whatever is asked in whatever order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "mount/backing.h"

/* Rows: how it is open; columns: the new open. From docs/platform.md section 2, not from backing.c. `same`: only with that id. */
static bool
kernel_takes(enum io_mode mode, enum io_answer answer, bool same_id)
{
    static const bool table[4][4] = {
        /*               PASS   CACHED DIRECT DIRECT_PASS */
        [IO_NONE] = { true, true, true, true },
        [IO_PASS] = { true, false, false, true },
        [IO_CACHED] = { false, true, true, false },
        [IO_DIRECT] = { true, true, true, true },
    };
    if (mode == IO_PASS && !same_id)
        return false;
    return table[mode][answer];
}

static void
test_every_view_fits(void **state)
{
    (void)state;
    for (unsigned bits = 0; bits < 32; bits++) {
        struct io_view view = {
            .mode = (enum io_mode)(bits & 3), .lent = bits & 4, .same = bits & 8, .pages = bits & 16
        };
        enum io_answer answer = io_decide(&view);
        /* With an id at all it is always the one of the inode. */
        assert_true(kernel_takes(view.mode, answer, true));
        /* Reads and writes past the gateway only where the volume lends these very bytes. */
        if (answer == IO_ANSWER_PASS)
            assert_true(view.lent && (view.mode == IO_NONE || view.same));
        /* Pages of the kernel only where nobody writes past it. */
        if (answer == IO_ANSWER_CACHED)
            assert_true(view.mode == IO_CACHED || view.pages);
    }
}

/* A model of the kernel: opens of one inode in random order, each decided by the table. */
static void
test_any_order(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct backing_table table;
    assert_int_equal(backing_table_init(&table, &err), 0);
    for (unsigned seed = 1; seed <= 200; seed++) {
        enum io_mode kernel = IO_NONE;
        unsigned opens = 0;
        unsigned dice = seed;
        for (int i = 0; i < 100; i++) {
            dice = dice * 1103515245u + 12345u;
            if (opens > 0 && (dice >> 16 & 1)) {
                backing_release(&table, 5);
                if (--opens == 0)
                    kernel = IO_NONE;
                continue;
            }
            struct backing *backing = backing_take(&table, 5, &err);
            assert_non_null(backing);
            assert_int_equal(backing->opens, opens);
            struct io_view view = { .mode = opens > 0 ? backing->mode : IO_NONE,
                                    .lent = dice >> 17 & 1,
                                    .same = dice >> 18 & 1,
                                    .pages = dice >> 19 & 1 };
            enum io_answer answer = io_decide(&view);
            if (answer == IO_ANSWER_PASS && backing->id == 0)
                backing_set_id(&table, backing, 77, 3);
            assert_true(kernel_takes(kernel, answer, true));
            if (kernel == IO_NONE)
                kernel = answer == IO_ANSWER_CACHED   ? IO_CACHED
                         : answer == IO_ANSWER_DIRECT ? IO_DIRECT
                                                      : IO_PASS;
            backing_put_open(&table, backing, answer);
            opens++;
        }
        while (opens-- > 0)
            backing_release(&table, 5);
    }
    backing_table_release(&table);
}

static void
open_with_id(struct backing_table *table, int64_t node, int32_t id)
{
    struct err err = ERR_INIT;
    struct backing *backing = backing_take(table, node, &err);
    assert_non_null(backing);
    assert_true(backing_make_room(table));
    backing_set_id(table, backing, node + 100000, id);
    backing_put_open(table, backing, IO_ANSWER_PASS);
}

static void
test_ids_are_bounded(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct backing_table table;
    int32_t ids[BACKING_KEPT];
    assert_int_equal(backing_table_init(&table, &err), 0);
    for (int i = 1; i <= 20000; i++) {
        open_with_id(&table, i, i);
        backing_release(&table, i);
        if (i % 50 == 0)
            backing_closed(&table, backing_take_dead(&table, ids, BACKING_KEPT));
        assert_true(backing_count(&table) <= BACKING_KEPT);
    }
    /* The newest are the ones that stayed. */
    struct backing *kept = backing_take(&table, 20000, &err);
    assert_int_equal(kept->id, 20000);
    backing_put(&table, kept);
    struct backing *old = backing_take(&table, 1, &err);
    assert_int_equal(old->id, 0);
    backing_put(&table, old);
    backing_table_release(&table);
}

static void
test_a_full_table_says_so(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct backing_table table;
    assert_int_equal(backing_table_init(&table, &err), 0);
    int count = 0;
    while (count < 10000 && backing_make_room(&table))
        count++, open_with_id(&table, count, count);
    assert_int_equal(count, (int)BACKING_KEPT);
    for (int i = 1; i <= count; i++)
        backing_release(&table, i);
    backing_table_release(&table);
}

static void
test_a_removed_file_gives_its_id_back(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct backing_table table;
    int32_t ids[4];
    assert_int_equal(backing_table_init(&table, &err), 0);
    open_with_id(&table, 1, 11);
    open_with_id(&table, 2, 12);
    backing_release(&table, 2);
    backing_gone(&table, 100002); /* not open: at once */
    assert_int_equal(backing_take_dead(&table, ids, 4), 1);
    assert_int_equal(ids[0], 12);
    backing_gone(&table, 100001); /* open: with the last release */
    assert_int_equal(backing_take_dead(&table, ids, 4), 0);
    backing_release(&table, 1);
    assert_int_equal(backing_take_dead(&table, ids, 4), 1);
    assert_int_equal(ids[0], 11);
    backing_gone(&table, 4711); /* unknown */
    backing_table_release(&table);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_view_fits),
        cmocka_unit_test(test_any_order),
        cmocka_unit_test(test_ids_are_bounded),
        cmocka_unit_test(test_a_full_table_says_so),
        cmocka_unit_test(test_a_removed_file_gives_its_id_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
