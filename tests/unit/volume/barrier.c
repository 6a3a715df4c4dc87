#include "tests/unit/volume/volume_fixture.h"

/* The barrier says that all is in the bucket only when it is, and ends. */

static void
a_barrier_with_the_store_away_names_what_waits(void **state)
{
    (void)state;
    struct volume_barrier barrier;
    atomic_store(&rig.hook->fail[HOOK_PUT], -1);
    save("f", "bytes");
    int64_t begin = clock_mono_ns();
    assert_int_equal(flush_within(NS_PER_S, &barrier), -1);
    assert_int_equal(rig.err.code, ERR_NOT_SYNCED);
    assert_true(clock_mono_ns() - begin < 20 * NS_PER_S);
    assert_int_equal(barrier.pending, 1);
    assert_string_equal(barrier.first_key, "v/f");
    assert_non_null(strstr(barrier.first_error, "503"));
    /* S14: a store in trouble is not hammered. */
    assert_in_range(atomic_load(&rig.hook->count[HOOK_PUT]), 2, 12);
    atomic_store(&rig.hook->fail[HOOK_PUT], 0);
    flush();
    assert_bucket("f", "bytes");
}

/* One bad object holds up none of the others. */
static void
a_failing_key_does_not_hold_up_others(void **state)
{
    (void)state;
    struct volume_barrier barrier;
    atomic_store(&rig.hook->fail[HOOK_PUT], -1);
    save("bad", "bytes");
    (void)flush_within(200 * NS_PER_MS, &barrier);
    atomic_store(&rig.hook->fail[HOOK_PUT], 0);
    save("good", "bytes");
    flush();
    assert_bucket("bad", "bytes");
    assert_bucket("good", "bytes");
}

static void
an_open_file_is_frozen_by_the_barrier_and_goes_on(void **state)
{
    (void)state;
    struct volume_file *file = open_at("f", O_CREAT | O_RDWR);
    write_at(file, "one", 0);
    flush();
    assert_bucket("f", "one");
    write_at(file, "two", 3);
    flush();
    assert_bucket("f", "onetwo");
    close_file(file);
    flush();
    assert_bucket("f", "onetwo");
}

/* More than one page of work, and more than a listing batch. */
static void
many_small_files_are_all_there(void **state)
{
    (void)state;
    char path[32];
    for (int i = 0; i < 700; i++) {
        (void)snprintf(path, sizeof(path), "f%d", i);
        save(path, path);
    }
    flush();
    for (int i = 0; i < 700; i++) {
        (void)snprintf(path, sizeof(path), "f%d", i);
        assert_bucket(path, path);
    }
    relist("");
    for (int i = 0; i < 700; i++) {
        (void)snprintf(path, sizeof(path), "f%d", i);
        unlink_at(path);
    }
    flush();
    for (int i = 0; i < 700; i++) {
        (void)snprintf(path, sizeof(path), "f%d", i);
        assert_false(in_bucket(path));
    }
}

/* A burst of saves of one file is one upload at a time, and the last one wins. */
static void
saves_of_one_file_merge(void **state)
{
    (void)state;
    char text[32] = "";
    for (int i = 0; i < 50; i++) {
        (void)snprintf(text, sizeof(text), "save %d", i);
        save("f", text);
    }
    flush();
    assert_bucket("f", text);
    assert_int_equal(conflicts(NULL), 0);
}

static int
put_far_away(struct index_tx *tx, void *arg, struct err *err)
{
    struct index_intent row;
    (void)arg;
    if (index_intent_get(tx, "v/f", &row, err) != 0)
        return -1;
    row.not_before_ns = row.since_ns = clock_wall_ns() + 1200 * NS_PER_S;
    return index_intent_put(tx, &row, err);
}

/* S21: the wall clock was twenty minutes ahead when the work began. */
static void
a_clock_put_back_hides_no_work(void **state)
{
    (void)state;
    struct volume_barrier barrier;
    atomic_store(&rig.hook->fail[HOOK_PUT], -1);
    save("f", "bytes");
    clock_sleep_ns(50 * NS_PER_MS);
    RUN_OK(rig.err, index_write(rig.service->index, INDEX_NORMAL, put_far_away, NULL, &rig.err));
    assert_int_equal(flush_within(300 * NS_PER_MS, &barrier), -1);
    assert_int_equal(rig.err.code, ERR_NOT_SYNCED);
    RUN_OK(rig.err, index_write(rig.service->index, INDEX_NORMAL, put_far_away, NULL, &rig.err));
    atomic_store(&rig.hook->fail[HOOK_PUT], 0);
    sync_kick(rig.service);
    for (int i = 0; i < 60000 && !in_bucket("f"); i++)
        clock_sleep_ns(NS_PER_MS);
    assert_bucket("f", "bytes");
}

/* The loser of a conflict is in the bucket when the barrier comes back, too. */
static void
the_barrier_waits_for_the_losers_bytes(void **state)
{
    (void)state;
    struct volume_barrier barrier;
    struct index_conflict row;
    char key[LIMIT_KEY + 1];
    for (int i = 0; i < 10; i++) {
        char path[16];
        (void)snprintf(path, sizeof(path), "f%d", i);
        save(path, "mine");
        foreign_put(path, "theirs");
        (void)flush_within(60 * NS_PER_S, &barrier);
        (void)conflicts(&row);
        (void)snprintf(key, sizeof(key), ".holdfast/conflicts/v/%s", row.id);
        /* Ours may have been faster than the other client. */
        if (row.id[0] != '\0')
            RUN_OK(rig.err, store_head(rig.mem, key, 0, NULL, &rig.err));
    }
}

static void
a_removed_volume_gives_its_lease_back_to_nobody(void **state)
{
    (void)state;
    struct volume_info info;
    struct volume_file *file = open_at("f", O_CREAT | O_RDWR);
    assert_int_equal(volume_delete(rig.service, "v", true, &rig.err), -1);
    assert_int_equal(rig.err.code, ERR_BUSY); /* something is open */
    close_file(file);
    flush();
    for (int i = 0; i < 300; i++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "n%d", i);
        struct volume_settings settings = { .name = name };
        RUN_OK(rig.err, volume_create(rig.service, &settings, &info, &rig.err));
        RUN_OK(rig.err, volume_delete(rig.service, name, false, &rig.err));
    }
    struct volume_settings settings = { .name = "last" };
    RUN_OK(rig.err, volume_create(rig.service, &settings, &info, &rig.err));
    uint64_t epoch = 0;
    struct index_volume row = { .id = info.id };
    for (int i = 0; i < 60000 && !lease_keeper_held(rig.service, &row, &epoch); i++)
        clock_sleep_ns(NS_PER_MS);
    assert_true(lease_keeper_held(rig.service, &row, &epoch));
}

static void
settings_that_did_not_reach_the_bucket_are_taken_back(void **state)
{
    (void)state;
    struct volume_info info;
    struct volume_settings settings = { .name = "v", .read_only = true };
    atomic_store(&rig.hook->fail[HOOK_HEAD], 1);
    assert_int_equal(volume_set(rig.service, "v", &settings, &rig.err), -1);
    assert_int_equal(rig.err.code, ERR_STORE_AWAY);
    RUN_OK(rig.err, volume_find(rig.service, "v", &info, &rig.err));
    assert_false(info.read_only);
    save("f", "still written");
    flush();
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
        ONE(a_barrier_with_the_store_away_names_what_waits),
        ONE(a_failing_key_does_not_hold_up_others),
        ONE(an_open_file_is_frozen_by_the_barrier_and_goes_on),
        BOTH(many_small_files_are_all_there),
        ONE(saves_of_one_file_merge),
        ONE(a_clock_put_back_hides_no_work),
        ONE(the_barrier_waits_for_the_losers_bytes),
        ONE(a_removed_volume_gives_its_lease_back_to_nobody),
        ONE(settings_that_did_not_reach_the_bucket_are_taken_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
