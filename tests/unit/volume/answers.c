#include <linux/fs.h>

#include "tests/unit/volume/volume_fixture.h"

/* Answers that got lost: between the kernel and us (INV-13), and between the store and us (INV-10). */

static uint64_t next_unique = 100;

/* The context of a new request, then of the same one sent again. */
static struct volume_ctx
request(void)
{
    struct volume_ctx ctx = rig.ctx;
    ctx.connection = 7;
    ctx.unique = next_unique++;
    ctx.slot = 3;
    return ctx;
}

static struct volume_ctx
again(struct volume_ctx ctx)
{
    ctx.resent = true;
    return ctx;
}

static void
a_repeated_exchange_does_not_swap_back(void **state)
{
    (void)state;
    save("a", "A");
    save("b", "B");
    struct volume_name a = name_at("a"), b = name_at("b");
    struct volume_ctx first = request(), second = again(first);
    RUN_OK(rig.err, volume_rename(rig.service, &first, &a, &b, RENAME_EXCHANGE, &rig.err));
    RUN_OK(rig.err, volume_rename(rig.service, &second, &a, &b, RENAME_EXCHANGE, &rig.err));
    assert_reads("a", "B");
    assert_reads("b", "A");
    /* The first of its kind that was never seen is done. */
    struct volume_ctx unseen = again(request());
    RUN_OK(rig.err, volume_rename(rig.service, &unseen, &a, &b, RENAME_EXCHANGE, &rig.err));
    assert_reads("a", "A");
}

static void
a_repeated_unlink_leaves_the_next_file_alone(void **state)
{
    (void)state;
    save("f", "one");
    struct volume_name f = name_at("f");
    struct volume_ctx first = request(), second = again(first);
    RUN_OK(rig.err, volume_remove(rig.service, &first, &f, false, NULL, &rig.err));
    save("f", "two");
    RUN_OK(rig.err, volume_remove(rig.service, &second, &f, false, NULL, &rig.err));
    assert_reads("f", "two");
    flush();
    assert_bucket("f", "two");
}

static void
repeated_makings_answer_what_was_made(void **state)
{
    (void)state;
    struct volume_attr one, two;
    struct volume_file *file, *same;
    struct volume_name dir = { rig.root, "dir", 3 }, link = { rig.root, "link", 4 },
                       excl = { rig.root, "file", 4 };
    struct volume_ctx first = request(), second = again(first);
    RUN_OK(rig.err, volume_mkdir(rig.service, &first, &dir, 0755, &one, &rig.err));
    RUN_OK(rig.err, volume_mkdir(rig.service, &second, &dir, 0755, &two, &rig.err));
    assert_int_equal(one.node, two.node);
    first = request();
    second = again(first);
    RUN_OK(rig.err, volume_symlink(rig.service, &first, &link, "to", &one, &rig.err));
    RUN_OK(rig.err, volume_symlink(rig.service, &second, &link, "to", &two, &rig.err));
    assert_int_equal(one.node, two.node);
    first = request();
    second = again(first);
    RUN_OK(rig.err,
           volume_file_create(
               rig.service, &first,
               &(struct volume_new){ .at = excl, .mode = 0644, .flags = O_CREAT | O_EXCL | O_RDWR },
               &one, &file, &rig.err));
    write_at(file, "kept", 0);
    volume_file_close(file, &first);
    RUN_OK(rig.err,
           volume_file_create(rig.service, &second,
                              &(struct volume_new){ .at = excl,
                                                    .mode = 0644,
                                                    .flags = O_CREAT | O_EXCL | O_RDWR | O_TRUNC },
                              &two, &same, &rig.err));
    assert_int_equal(one.node, two.node);
    volume_file_close(same, &second);
    assert_reads("file", "kept");
    /* Without the mark it is a request like any other. */
    first = request();
    assert_int_equal(
        volume_file_create(
            rig.service, &first,
            &(struct volume_new){ .at = excl, .mode = 0644, .flags = O_CREAT | O_EXCL | O_RDWR },
            &two, &same, &rig.err),
        -1);
    assert_int_equal(rig.err.code, ERR_EXISTS);
}

/* S4, B099 */
static void
a_put_whose_answer_is_lost_is_no_conflict(void **state)
{
    (void)state;
    atomic_store(&rig.hook->lose[HOOK_PUT], 1);
    save("f", "one");
    flush();
    assert_bucket("f", "one");
    atomic_store(&rig.hook->lose[HOOK_PUT], 1);
    save("f", "two");
    flush();
    assert_bucket("f", "two");
    assert_int_equal(conflicts(NULL), 0);
    assert_reads("f", "two");
}

static void
a_delete_whose_answer_is_lost_is_done(void **state)
{
    (void)state;
    save("f", "one");
    flush();
    atomic_store(&rig.hook->lose[HOOK_DELETE], 1);
    unlink_at("f");
    flush();
    assert_false(in_bucket("f"));
    assert_gone("f");
}

/* A name that was made again while the outcome of its removal was unknown. */
static void
a_file_made_while_the_outcome_is_unknown_stands(void **state)
{
    (void)state;
    save("f", "one");
    flush();
    hold(HOOK_HEAD);
    atomic_store(&rig.hook->lose[HOOK_DELETE], 1);
    unlink_at("f");
    for (int i = 0; i < 30000 && in_bucket("f"); i++)
        clock_sleep_ns(NS_PER_MS);
    save("f", "two");
    release(HOOK_HEAD);
    flush();
    assert_bucket("f", "two");
    assert_reads("f", "two");
    assert_int_equal(conflicts(NULL), 0);
}

/* Written again, moved and removed while the outcome of its upload was unknown. */
static void
a_file_moved_while_the_outcome_is_unknown_is_at_one_place(void **state)
{
    (void)state;
    hold(HOOK_HEAD);
    atomic_store(&rig.hook->lose[HOOK_PUT], 1);
    save("a", "one");
    for (int i = 0; i < 30000 && !in_bucket("a"); i++)
        clock_sleep_ns(NS_PER_MS);
    assert_true(in_bucket("a"));
    move("a", "b", 0);
    save("a", "another");
    release(HOOK_HEAD);
    flush();
    assert_bucket("b", "one");
    assert_bucket("a", "another");
    assert_int_equal(conflicts(NULL), 0);
    unlink_at("b");
    flush();
    assert_false(in_bucket("b"));
}

#define BOTH(test)                                                  \
    cmocka_unit_test_setup_teardown(test, rig_setup, rig_teardown), \
    {                                                               \
#test " (weak)", test, rig_setup_weak, rig_teardown, NULL   \
    }
#define ONE(test) cmocka_unit_test_setup_teardown(test, rig_setup, rig_teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        ONE(a_repeated_exchange_does_not_swap_back),
        ONE(a_repeated_unlink_leaves_the_next_file_alone),
        ONE(repeated_makings_answer_what_was_made),
        BOTH(a_put_whose_answer_is_lost_is_no_conflict),
        BOTH(a_delete_whose_answer_is_lost_is_done),
        ONE(a_file_made_while_the_outcome_is_unknown_stands),
        BOTH(a_file_moved_while_the_outcome_is_unknown_is_at_one_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
