#include "tests/unit/volume/volume_fixture.h"

/* What a mount changes rests before it goes to the bucket; whoever waits for the bucket ends that. */

#define LONG_REST (50 * NS_PER_S) /* nothing ends it in a test but a barrier */

static void
open_resting(int64_t rest_ns, bool sync_close)
{
    rig_open(&(struct rig_options){ .sync_rest_ns = rest_ns, .sync_close = sync_close });
}

/* The first look at a folder lists it; from here on only the changes of the test ask for something. */
static void
forget_counts(void)
{
    assert_gone("nothing");
    for (int op = 0; op < HOOK_OPS; op++)
        atomic_store(&rig.hook->count[op], 0);
}

static int
count_of(enum hook_op op)
{
    return atomic_load(&rig.hook->count[op]);
}

static uint64_t
pending(void)
{
    struct volume_info info;
    RUN_OK(rig.err, volume_find(rig.service, "v", &info, &rig.err));
    return info.pending_keys;
}

/* By itself, without a barrier. */
static void
wait_until_settled(void)
{
    int64_t end = clock_mono_ns() + 60 * NS_PER_S;
    while (pending() > 0 && clock_mono_ns() < end)
        clock_sleep_ns(5 * NS_PER_MS);
    assert_int_equal(pending(), 0);
}

static int
setup_second(void **state)
{
    (void)state;
    open_resting(NS_PER_S, false);
    forget_counts();
    return 0;
}

static int
setup_short(void **state)
{
    (void)state;
    open_resting(200 * NS_PER_MS, false);
    forget_counts();
    return 0;
}

static int
setup_long(void **state)
{
    (void)state;
    open_resting(LONG_REST, false);
    forget_counts();
    return 0;
}

static int
setup_close(void **state)
{
    (void)state;
    open_resting(LONG_REST, true);
    return 0;
}

static void
a_file_that_is_removed_again_asks_for_nothing(void **state)
{
    (void)state;
    struct volume_attr attr;
    struct volume_name at = name_at("link");
    save("lock", "bytes");
    unlink_at("lock");
    make_dir("d");
    at = name_at("d");
    RUN_OK(rig.err, volume_remove(rig.service, &rig.ctx, &at, true, NULL, &rig.err));
    at = name_at("link");
    RUN_OK(rig.err, volume_symlink(rig.service, &rig.ctx, &at, "target", &attr, &rig.err));
    unlink_at("link");
    wait_until_settled();
    assert_int_equal(count_of(HOOK_PUT), 0);
    assert_int_equal(count_of(HOOK_DELETE), 0);
    assert_int_equal(count_of(HOOK_HEAD), 0);
}

static void
saves_and_attributes_within_the_rest_are_one_request(void **state)
{
    (void)state;
    struct volume_attr attr;
    struct volume_change change = { .bits = VOLUME_SET_MODE | VOLUME_SET_MTIME,
                                    .mode = 0600,
                                    .mtime_ns = 1000000000ll * NS_PER_S };
    char text[16];
    for (int i = 0; i < 10; i++) {
        (void)snprintf(text, sizeof(text), "save %d", i);
        save("f", text);
    }
    RUN_OK(rig.err, volume_setattr(rig.service, &rig.ctx, node_of("f"), &change, &attr, &rig.err));
    assert_int_equal(count_of(HOOK_PUT), 0);
    wait_until_settled();
    assert_bucket("f", "save 9");
    assert_int_equal(count_of(HOOK_PUT), 1);
    assert_int_equal(count_of(HOOK_HEAD), 0);
}

/* As editors do: the name of the temporary file is never seen in the bucket. */
static void
a_save_by_rename_is_one_request(void **state)
{
    (void)state;
    save("f", "old");
    flush();
    forget_counts();
    for (int i = 0; i < 3; i++) {
        save("f.tmp", "new");
        move("f.tmp", "f", 0);
    }
    wait_until_settled();
    assert_bucket("f", "new");
    assert_int_equal(count_of(HOOK_PUT), 1);
    assert_int_equal(count_of(HOOK_DELETE), 0);
}

static void
a_removed_object_is_deleted_after_its_rest(void **state)
{
    (void)state;
    save("f", "bytes");
    flush();
    unlink_at("f");
    assert_true(in_bucket("f"));
    wait_until_settled();
    assert_false(in_bucket("f"));
}

static void
a_folder_that_comes_back_asks_for_nothing(void **state)
{
    (void)state;
    make_dir("d");
    save("d/a", "A");
    save("d/b", "B");
    flush();
    forget_counts();
    move("d", "e", 0);
    sync_kick(rig.service);
    clock_sleep_ns(100 * NS_PER_MS); /* whatever was due would be under way */
    move("e", "f", 0);
    move("f", "d", 0);
    wait_until_settled();
    assert_int_equal(count_of(HOOK_PUT), 0);
    assert_int_equal(count_of(HOOK_DELETE), 0);
    assert_bucket("d/a", "A");
    move("d", "e", 0); /* and one that stays away goes up by itself */
    wait_until_settled();
    assert_bucket("e/a", "A");
    assert_bucket("e/b", "B");
    assert_false(in_bucket("d/a"));
}

static void
a_barrier_ends_the_rest_of_a_moved_folder(void **state)
{
    (void)state;
    make_dir("d");
    save("d/a", "A");
    flush();
    move("d", "e", 0);
    clock_sleep_ns(50 * NS_PER_MS);
    assert_true(in_bucket("d/a"));
    flush();
    assert_bucket("e/a", "A");
    assert_false(in_bucket("d/a"));
}

static void
nothing_is_sent_while_it_rests(void **state)
{
    (void)state;
    save("f", "bytes");
    make_dir("d");
    clock_sleep_ns(300 * NS_PER_MS);
    assert_int_equal(count_of(HOOK_PUT), 0);
    assert_int_equal(pending(), 2);
}

static void
a_barrier_does_not_wait_for_the_rest(void **state)
{
    (void)state;
    char path[16];
    int64_t begun = clock_mono_ns();
    for (int i = 0; i < 300; i++) {
        (void)snprintf(path, sizeof(path), "f%d", i);
        save(path, path);
    }
    make_dir("d");
    flush();
    assert_true(clock_mono_ns() - begun < LONG_REST / 2);
    for (int i = 0; i < 300; i++) {
        (void)snprintf(path, sizeof(path), "f%d", i);
        assert_bucket(path, path);
    }
    save("f0", "again");
    clock_sleep_ns(100 * NS_PER_MS);
    assert_bucket("f0", "f0"); /* the barrier has gone: it rests again */
}

static void *
flush_main(void *arg)
{
    struct err *err = arg;
    struct volume_barrier barrier;
    if (volume_flush(rig.service, rig.volume, clock_mono_ns() + 40 * NS_PER_S, &barrier, err) == 0)
        return arg;
    return NULL;
}

/* What is saved while a barrier waits is part of what it waits for: it must not be put off either. */
static void
saves_during_a_barrier_do_not_hold_it_up(void **state)
{
    (void)state;
    pthread_t thread;
    void *done = NULL;
    struct err err = ERR_INIT;
    hold(HOOK_PUT);
    save("f", "one");
    assert_int_equal(pthread_create(&thread, NULL, flush_main, &err), 0);
    wait_for_waiting(HOOK_PUT);
    save("f", "two");
    int64_t begun = clock_mono_ns();
    release(HOOK_PUT);
    pthread_join(thread, &done);
    if (done == NULL)
        fail_msg("flush: %s", err.msg);
    assert_true(clock_mono_ns() - begun < LONG_REST / 2);
    assert_bucket("f", "two");
}

/* As a program that makes one file after the other: 300 in about a second and a half. */
static void
make_files(const char *prefix)
{
    char path[32];
    for (int i = 0; i < 300; i++) {
        (void)snprintf(path, sizeof(path), "%s%d", prefix, i);
        save(path, path);
        clock_sleep_ns(4 * NS_PER_MS);
    }
}

/* Each PUT takes the store a moment, so that what uploads take of the time can be seen. */
static void
pause_after_put(enum hook_op op, const char *key)
{
    (void)key;
    if (op == HOOK_PUT)
        clock_sleep_ns(20 * NS_PER_MS);
}

static void
uploads_give_way_to_programs_that_change_much(void **state)
{
    (void)state;
    atomic_store(&rig.hook->after, pause_after_put);
    int64_t begun = clock_mono_ns();
    make_files("a");
    int meanwhile = count_of(HOOK_PUT);
    bool quick = clock_mono_ns() - begun <
                 4 * NS_PER_S; /* else much was due, and the programs were not that busy */
    assert_true(meanwhile > 0);
    assert_true(meanwhile < 60 || !quick); /* eight workers would have sent most of them */
    wait_until_settled();                  /* and nothing is left lying */
    assert_int_equal(count_of(HOOK_PUT), 300);
}

static void
a_barrier_ends_giving_way(void **state)
{
    (void)state;
    pthread_t thread;
    void *done = NULL;
    struct err err = ERR_INIT;
    make_files("a");
    assert_int_equal(pthread_create(&thread, NULL, flush_main, &err), 0);
    make_files("b");
    assert_true(count_of(HOOK_PUT) >= 300);
    pthread_join(thread, &done);
    if (done == NULL)
        fail_msg("flush: %s", err.msg);
}

static void
what_is_not_a_mounts_does_not_rest(void **state)
{
    (void)state;
    rig.ctx.connection = 0;
    make_dir("d");
    int64_t end = clock_mono_ns() + LONG_REST / 2;
    while (!in_bucket("d/") && clock_mono_ns() < end)
        clock_sleep_ns(5 * NS_PER_MS);
    assert_true(in_bucket("d/"));
}

static void
a_close_that_promises_the_bucket_does_not_wait(void **state)
{
    (void)state;
    int64_t begun = clock_mono_ns();
    save("f", "bytes");
    assert_true(clock_mono_ns() - begun < LONG_REST / 2);
    assert_bucket("f", "bytes");
}

/* Changed all the time, each time before its rest is over, until it is in the bucket all the same. */
static void
save_until_it_is_there(const char *path, bool stays_open)
{
    int64_t end = clock_mono_ns() + 30 * NS_PER_S;
    save(path, "x");
    for (uint64_t off = 1; !in_bucket(path) && clock_mono_ns() < end; off++) {
        struct volume_file *file = open_at(path, O_RDWR);
        write_at(file, "x", off);
        clock_sleep_ns(stays_open ? 50 * NS_PER_MS : 0);
        close_file(file);
        clock_sleep_ns(stays_open ? 20 * NS_PER_MS : 50 * NS_PER_MS);
    }
    assert_true(in_bucket(path));
}

static void
what_is_saved_for_ever_goes_up_too(void **state)
{
    (void)state;
    save_until_it_is_there("f", false);
    save_until_it_is_there("g", true);
}

/* A version that lands is not followed at once by the one that was saved during its upload. */
static void
a_save_during_an_upload_rests_too(void **state)
{
    (void)state;
    save("f", "one");
    hold(HOOK_PUT);
    wait_for_waiting(HOOK_PUT);
    for (int i = 0; i < 5; i++)
        save("f", "two");
    release(HOOK_PUT);
    for (int i = 0; i < 60000 && !in_bucket("f"); i++)
        clock_sleep_ns(NS_PER_MS);
    assert_bucket("f", "one");
    save("f", "three");
    wait_until_settled();
    assert_bucket("f", "three");
    assert_int_equal(count_of(HOOK_PUT), 2);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_file_that_is_removed_again_asks_for_nothing, setup_second,
                                        rig_teardown),
        cmocka_unit_test_setup_teardown(saves_and_attributes_within_the_rest_are_one_request,
                                        setup_second, rig_teardown),
        cmocka_unit_test_setup_teardown(a_save_by_rename_is_one_request, setup_second,
                                        rig_teardown),
        cmocka_unit_test_setup_teardown(a_removed_object_is_deleted_after_its_rest, setup_second,
                                        rig_teardown),
        cmocka_unit_test_setup_teardown(a_folder_that_comes_back_asks_for_nothing, setup_second,
                                        rig_teardown),
        cmocka_unit_test_setup_teardown(a_barrier_ends_the_rest_of_a_moved_folder, setup_long,
                                        rig_teardown),
        cmocka_unit_test_setup_teardown(nothing_is_sent_while_it_rests, setup_long, rig_teardown),
        cmocka_unit_test_setup_teardown(uploads_give_way_to_programs_that_change_much, setup_short,
                                        rig_teardown),
        cmocka_unit_test_setup_teardown(a_barrier_ends_giving_way, setup_long, rig_teardown),
        cmocka_unit_test_setup_teardown(a_barrier_does_not_wait_for_the_rest, setup_long,
                                        rig_teardown),
        cmocka_unit_test_setup_teardown(saves_during_a_barrier_do_not_hold_it_up, setup_long,
                                        rig_teardown),
        cmocka_unit_test_setup_teardown(what_is_not_a_mounts_does_not_rest, setup_long,
                                        rig_teardown),
        cmocka_unit_test_setup_teardown(a_close_that_promises_the_bucket_does_not_wait, setup_close,
                                        rig_teardown),
        cmocka_unit_test_setup_teardown(what_is_saved_for_ever_goes_up_too, setup_short,
                                        rig_teardown),
        cmocka_unit_test_setup_teardown(a_save_during_an_upload_rests_too, setup_second,
                                        rig_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
