#include "tests/unit/volume/volume_fixture.h"

/* Files without a name: unlinked or replaced while open, and nothing of them stays. */

static int
count_row(void *arg, const struct index_content *row, struct err *err)
{
    (void)row;
    (void)err;
    ++*(unsigned *)arg;
    return 0;
}

static int
count_rows(struct index_tx *tx, void *arg, struct err *err)
{
    return index_content_each(tx, count_row, arg, err);
}

static unsigned
content_rows(void)
{
    unsigned count = 0;
    RUN_OK(rig.err, index_read(rig.service->index, count_rows, &count, &rig.err));
    return count;
}

/* B026, B162 */
static void
an_unlinked_file_works_until_its_close(void **state)
{
    (void)state;
    char out[16] = "";
    struct volume_attr attr;
    struct volume_file *file = open_at("f", O_CREAT | O_RDWR);
    write_at(file, "before", 0);
    unlink_at("f");
    assert_gone("f");
    write_at(file, "after!", 0);
    assert_int_equal(volume_file_read(file, &rig.ctx, out, 15, 0, &rig.err), 6);
    assert_string_equal(out, "after!");
    RUN_OK(rig.err, volume_getattr(rig.service, &rig.ctx, volume_file_node(file), &attr, &rig.err));
    assert_int_equal(attr.parent, 0);
    assert_int_equal(attr.size, 6);
    RUN_OK(rig.err, volume_file_fsync(file, &rig.ctx, &rig.err));
    close_file(file);
    flush();
    assert_false(in_bucket("f"));
    assert_int_equal(content_rows(), 0);
}

static void
an_unlinked_file_with_an_upload_under_way_leaves_nothing(void **state)
{
    (void)state;
    hold(HOOK_PUT);
    save("f", "bytes");
    struct volume_file *file = open_at("f", O_RDONLY);
    wait_for_waiting(HOOK_PUT);
    unlink_at("f");
    release(HOOK_PUT);
    flush();
    assert_false(in_bucket("f"));
    char out[8] = "";
    assert_int_equal(volume_file_read(file, &rig.ctx, out, 7, 0, &rig.err), 5);
    assert_string_equal(out, "bytes");
    volume_file_close(file, &rig.ctx);
    assert_int_equal(content_rows(), 0);
}

static void
a_name_made_anew_is_another_file(void **state)
{
    (void)state;
    char out[16] = "";
    hold(HOOK_PUT);
    save("f", "first");
    wait_for_waiting(HOOK_PUT);
    struct volume_file *old = open_at("f", O_RDWR);
    unlink_at("f");
    save("f", "second");
    write_at(old, "FIRST", 0);
    release(HOOK_PUT);
    close_file(old);
    flush();
    assert_bucket("f", "second");
    assert_reads("f", "second");
    assert_int_equal(conflicts(NULL), 0);
    (void)out;
}

/* B026 */
static void
a_file_replaced_by_a_rename_goes_on_for_its_readers(void **state)
{
    (void)state;
    char out[16] = "";
    save("f", "old");
    flush();
    struct volume_file *reader = open_at("f", O_RDONLY), *writer = open_at("f", O_RDWR);
    save("tmp", "new");
    move("tmp", "f", 0);
    assert_int_equal(volume_file_read(reader, &rig.ctx, out, 15, 0, &rig.err), 3);
    assert_string_equal(out, "old");
    write_at(writer, "lost with its name", 0);
    close_file(writer);
    volume_file_close(reader, &rig.ctx);
    assert_reads("f", "new");
    flush();
    assert_bucket("f", "new");
    assert_int_equal(conflicts(NULL), 0);
    assert_int_equal(content_rows(), 1);
}

struct closer {
    struct volume_file *file;
    pthread_barrier_t *start;
};

static void *
close_it(void *arg)
{
    struct closer *closer = arg;
    pthread_barrier_wait(closer->start);
    volume_file_close(closer->file, &rig.ctx);
    return NULL;
}

static void
of_two_that_close_at_once_one_is_the_last(void **state)
{
    (void)state;
    for (int i = 0; i < 200; i++) {
        pthread_barrier_t start;
        pthread_t thread[2];
        struct closer closer[2];
        pthread_barrier_init(&start, NULL, 2);
        for (int k = 0; k < 2; k++)
            closer[k] =
                (struct closer){ open_at("f", k == 0 ? O_CREAT | O_RDWR : O_RDONLY), &start };
        unlink_at("f");
        for (int k = 0; k < 2; k++)
            assert_int_equal(pthread_create(&thread[k], NULL, close_it, &closer[k]), 0);
        for (int k = 0; k < 2; k++)
            pthread_join(thread[k], NULL);
        pthread_barrier_destroy(&start);
    }
    assert_int_equal(content_rows(), 0);
}

/* B121 */
static void
a_folder_stays_when_its_last_file_goes(void **state)
{
    (void)state;
    foreign_put("a/b", "x");
    relist("");
    unlink_at("a/b");
    flush();
    assert_int_equal(resolve_code("a"), ERR_CODE_COUNT);
    relist("");
    assert_int_equal(resolve_code("a"), ERR_CODE_COUNT);
    struct volume_name at = name_at("a");
    RUN_OK(rig.err, volume_remove(rig.service, &rig.ctx, &at, true, NULL, &rig.err));
    make_dir("a");
    flush();
    assert_true(in_bucket("a/"));
    assert_false(in_bucket("a/b"));
}

#define BOTH(test)                                                  \
    cmocka_unit_test_setup_teardown(test, rig_setup, rig_teardown), \
    {                                                               \
#test " (weak)", test, rig_setup_weak, rig_teardown, NULL   \
    }

int
main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(an_unlinked_file_works_until_its_close),
        BOTH(an_unlinked_file_with_an_upload_under_way_leaves_nothing),
        BOTH(a_name_made_anew_is_another_file),
        BOTH(a_file_replaced_by_a_rename_goes_on_for_its_readers),
        BOTH(of_two_that_close_at_once_one_is_the_last),
        BOTH(a_folder_stays_when_its_last_file_goes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
