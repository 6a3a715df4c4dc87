#include "tests/unit/volume/volume_fixture.h"

/* Files that stay open go up from time to time, and never torn (docs/mechanisms.md section 2). */

#define EVERY (100 * NS_PER_MS)

static int
setup(void **state)
{
    (void)state;
    rig_open(&(struct rig_options){ .sync_open_ns = EVERY, .cache_bytes = 8ull << 30 });
    return 0;
}

static bool
bucket_has(const char *path, const char *text)
{
    char key[LIMIT_KEY + 1];
    char *data = NULL;
    size_t len;
    struct err err = ERR_INIT;
    (void)snprintf(key, sizeof(key), "v/%s", path);
    if (store_get_small(rig.mem, key, 1u << 20, &data, &len, NULL, &err) != 0)
        return false;
    bool same = strcmp(data, text) == 0;
    free(data);
    return same;
}

static void
await_bucket(const char *path, const char *text)
{
    for (int i = 0; i < 60000 && !bucket_has(path, text); i++)
        clock_sleep_ns(NS_PER_MS);
    assert_bucket(path, text);
}

static int
count_row(void *arg, const struct index_content *row, struct err *err)
{
    (void)err;
    ((unsigned *)arg)[row->state]++;
    return 0;
}

static int64_t row_node;

static int
rows_tx(struct index_tx *tx, void *arg, struct err *err)
{
    return index_content_of_node(tx, row_node, count_row, arg, err);
}

static unsigned
rows(const char *path, enum content_state state)
{
    unsigned counts[8] = { 0 };
    row_node = node_of(path);
    RUN_OK(rig.err, index_read(rig.service->index, rows_tx, counts, &rig.err));
    return counts[state];
}

static void
a_file_that_stays_open_goes_up(void **state)
{
    (void)state;
    struct volume_file *file = open_at("log", O_CREAT | O_RDWR | O_APPEND);
    write_at(file, "one", 0);
    await_bucket("log", "one");
    write_at(file, "two", 3);
    await_bucket("log", "onetwo");
    assert_reads("log", "onetwo");
    close_file(file);
    flush();
    assert_bucket("log", "onetwo");
    assert_int_equal(conflicts(NULL), 0);
}

/* What is in the bucket already is not sent again, neither by the next look nor by the close. */
static void
what_went_up_does_not_go_up_again(void **state)
{
    (void)state;
    struct volume_file *file = open_at("log", O_CREAT | O_RDWR);
    write_at(file, "one", 0);
    await_bucket("log", "one");
    for (int i = 0; i < 60000 && rows("log", CONTENT_FROZEN) > 0; i++)
        clock_sleep_ns(NS_PER_MS);
    clock_sleep_ns(4 * EVERY);
    assert_int_equal(atomic_load(&rig.hook->count[HOOK_PUT]), 1);
    close_file(file);
    flush();
    assert_int_equal(atomic_load(&rig.hook->count[HOOK_PUT]), 1);
    assert_int_equal(rows("log", CONTENT_CLEAN), 1);
    assert_reads("log", "one");
    /* And goes on as any synced file. */
    save("log", "three");
    flush();
    assert_bucket("log", "three");
}

/* The close comes while the copy is on its way: the later bytes win, and nothing of them is dropped when the earlier land. */
static void
a_close_during_the_upload_of_a_copy(void **state)
{
    (void)state;
    struct volume_file *file = open_at("log", O_CREAT | O_RDWR);
    write_at(file, "one", 0);
    hold(HOOK_PUT);
    wait_for_waiting(HOOK_PUT);
    write_at(file, "two", 3);
    close_file(file);
    assert_int_equal(rows("log", CONTENT_FROZEN), 2);
    /* And is being written anew, which may come to nothing. */
    file = open_at("log", O_RDWR | O_TRUNC);
    release(HOOK_PUT);
    for (int i = 0; i < 60000 && !bucket_has("log", "onetwo"); i++)
        clock_sleep_ns(NS_PER_MS);
    assert_bucket("log", "onetwo");
    close_file(file);
    flush();
    assert_bucket("log", "");
}

static char landed[16]; /* what the second PUT brought */

static void
keep_landed(enum hook_op op, const char *key)
{
    char *data = NULL;
    size_t len;
    struct err err = ERR_INIT;
    if (op != HOOK_PUT || strcmp(key, "v/log") != 0)
        return;
    RUN_OK(err, store_get_small(rig.mem, key, 1u << 20, &data, &len, NULL, &err));
    if (strcmp(data, "one") == 0)
        atomic_store(&rig.hook->fail[HOOK_PUT], -1);
    else if (landed[0] == '\0')
        text_set(landed, data);
    free(data);
}

/* B007: the earlier copy lands while the closed file is being written anew, and nothing newer gets through: what was closed stays. */
static void
closed_bytes_outlive_the_landing_of_an_earlier_copy(void **state)
{
    (void)state;
    struct volume_file *file = open_at("log", O_CREAT | O_RDWR);
    write_at(file, "one", 0);
    hold(HOOK_PUT);
    wait_for_waiting(HOOK_PUT);
    write_at(file, "two", 3);
    close_file(file);
    file = open_at("log", O_RDWR | O_TRUNC);
    landed[0] = '\0';
    atomic_store(&rig.hook->after, keep_landed);
    release(HOOK_PUT);
    await_bucket("log", "one");
    for (int i = 0; i < 60000 && rows("log", CONTENT_FROZEN) > 1; i++)
        clock_sleep_ns(NS_PER_MS);
    assert_int_equal(rows("log", CONTENT_FROZEN), 1);
    atomic_store(&rig.hook->fail[HOOK_PUT], 0);
    for (int i = 0; i < 60000 && rows("log", CONTENT_FROZEN) > 0; i++)
        clock_sleep_ns(NS_PER_MS);
    close_file(file);
    flush();
    assert_string_equal(landed, "onetwo");
    assert_bucket("log", "");
}

/* Emptied and not written yet: the older version stands until the close, or until it rests for long. */
static void
a_save_over_an_older_version_waits_for_its_close(void **state)
{
    (void)state;
    save("f", "old");
    flush();
    int puts = atomic_load(&rig.hook->count[HOOK_PUT]);
    struct volume_file *file = open_at("f", O_RDWR | O_TRUNC);
    bool rested = false; /* on a machine that is busy with something else */
    for (int i = 0; i < 10; i++) {
        int64_t begin = clock_mono_ns();
        write_at(file, "half", (uint64_t)i * 4);
        clock_sleep_ns(2 * EVERY);
        rested |= clock_mono_ns() - begin > 9 * EVERY;
    }
    assert_true(rested || atomic_load(&rig.hook->count[HOOK_PUT]) == puts);
    await_bucket("f", "halfhalfhalfhalfhalfhalfhalfhalfhalfhalf");
    close_file(file);
}

struct seen {
    unsigned open;
    char why[160];
};

static int
see(void *arg, const struct volume_unsynced *row, struct err *err)
{
    struct seen *seen = arg;
    (void)err;
    if (strcmp(row->what, "open") != 0)
        return 0;
    seen->open++;
    text_set(seen->why, row->last_error);
    assert_string_equal(row->path, "log");
    assert_string_equal(row->key, "v/log");
    return 0;
}

static void
a_file_that_never_rests_is_not_sent_and_says_so(void **state)
{
    (void)state;
    struct seen seen = { 0 };
    struct volume_file *file = open_at("log", O_CREAT | O_RDWR);
    /* Each write makes two halves equal, one after the other: a copy in between would be torn. */
    int64_t end = clock_mono_ns() + 10 * EVERY;
    unsigned char value = 'a';
    while (clock_mono_ns() < end || seen.why[0] == '\0') {
        char byte[2] = { (char)value, 0 };
        write_at(file, byte, 0);
        write_at(file, byte, 1u << 18);
        value = value == 'z' ? 'a' : value + 1;
        clock_sleep_ns(NS_PER_MS);
        memset(&seen, 0, sizeof(seen));
        RUN_OK(rig.err, volume_unsynced_each(rig.service, rig.volume, 100, see, &seen, &rig.err));
        assert_true(clock_mono_ns() < end + 60 * NS_PER_S);
    }
    assert_int_equal(seen.open, 1);
    assert_non_null(strstr(seen.why, "written all the time"));
    close_file(file);
    flush();
    assert_true(in_bucket("log"));
}

/* Written by its program while it is copied: thrown away, and tried again. */
static void
a_write_during_the_copy_throws_it_away(void **state)
{
    (void)state;
    char *page = malloc(1u << 20);
    assert_non_null(page);
    struct volume_file *file = open_at("db", O_CREAT | O_RDWR);
    for (unsigned round = 0; round < 30; round++) {
        memset(page, 'a' + (int)(round % 26), 1u << 20);
        for (uint64_t off = 0; off < 8u << 20; off += 1u << 20)
            RUN_OK(rig.err, volume_file_write(file, &rig.ctx, page, 1u << 20, off, &rig.err));
        clock_sleep_ns((int64_t)(round % 5) * 25 * NS_PER_MS);
    }
    for (int i = 0; i < 60000 && !in_bucket("db"); i++)
        clock_sleep_ns(NS_PER_MS);
    char *data = NULL;
    size_t len;
    RUN_OK(rig.err, store_get_small(rig.mem, "v/db", 16u << 20, &data, &len, NULL, &rig.err));
    assert_int_equal(len, 8u << 20);
    for (size_t i = 1; i < len; i++)
        if (data[i] != data[0])
            fail_msg("torn at %zu: '%c' and '%c'", i, data[0], data[i]);
    free(data);
    free(page);
    close_file(file);
}

/* SQLite's rollback journal: a transaction that is not over. */
static void
a_database_with_a_hot_journal_waits(void **state)
{
    (void)state;
    struct volume_file *db = open_at("db", O_CREAT | O_RDWR);
    struct volume_file *journal = open_at("db-journal", O_CREAT | O_RDWR);
    write_at(journal, "undo", 0);
    write_at(db, "half", 0);
    RUN_OK(rig.err, volume_file_flush(db, &rig.ctx, &rig.err)); /* else it might be a save */
    clock_sleep_ns(5 * EVERY);
    assert_false(in_bucket("db"));
    write_at(db, "all of it", 0);
    volume_file_close(journal, &rig.ctx);
    unlink_at("db-journal");
    await_bucket("db", "all of it");
    close_file(db);
}

/* What a kernel writes by itself (passthrough) passes nobody here: the disk tells. A barrier need not wait for its close. */
static void
what_a_kernel_writes_past_us_goes_up(void **state)
{
    (void)state;
    struct volume_backing want = { .min_size = 0 };
    int fd = -1;
    struct volume_file *file = open_at("log", O_CREAT | O_RDWR);
    int rc = volume_file_back(file, &rig.ctx, &want, &rig.err);
    if (rc == 1) {
        volume_file_close(file, &rig.ctx);
        skip(); /* a small disk, or one in memory */
    }
    assert_int_equal(rc, 0);
    RUN_OK(rig.err, volume_file_backing_fd(file, &fd, &rig.err));
    assert_int_equal(pwrite(fd, "one", 3, 0), 3);
    flush();
    assert_bucket("log", "one");
    assert_int_equal(pwrite(fd, "two", 3, 3), 3);
    await_bucket("log", "onetwo");
    assert_int_equal(pwrite(fd, "three", 5, 6), 5);
    close(fd);
    close_file(file);
    flush();
    assert_bucket("log", "onetwothree");
}

/* B062: a child's close of a descriptor that it got with its life says nothing about what its parent still writes. */
static void
a_childs_close_sends_nothing(void **state)
{
    (void)state;
    struct volume_file *file = open_at("f", O_CREAT | O_RDWR);
    write_at(file, "half", 0);
    RUN_OK(rig.err, volume_file_flush(file, &rig.ctx, &rig.err));
    clock_sleep_ns(2 * EVERY);
    assert_int_equal(atomic_load(&rig.hook->count[HOOK_PUT]), 0);
    write_at(file, " and half", 4);
    close_file(file);
    flush();
    assert_bucket("f", "half and half");
    assert_int_equal(atomic_load(&rig.hook->count[HOOK_PUT]), 1);
}

/* Others changed the object in between: the usual conflict, and the writer goes on. */
static void
a_copy_that_loses_is_kept_as_a_conflict(void **state)
{
    (void)state;
    struct index_conflict row;
    save("log", "base");
    flush();
    struct volume_file *file = open_at("log", O_RDWR);
    write_at(file, "mine", 0);
    foreign_put("log", "theirs");
    for (int i = 0; i < 60000 && conflicts(&row) == 0; i++)
        clock_sleep_ns(NS_PER_MS);
    assert_string_equal(row.reason, "conflict");
    assert_bucket("log", "theirs");
    assert_reads("log", "theirs");
    assert_int_equal(volume_file_flush(file, &rig.ctx, &rig.err), -1);
    assert_int_equal(rig.err.code, ERR_CONFLICT);
    volume_file_close(file, &rig.ctx);
}

/* ---- sync=close: the bucket has it before the answer ---- */

static int
setup_through(void **state)
{
    (void)state;
    rig_open(&(struct rig_options){ .sync_close = true });
    return 0;
}

static void *
close_it(void *arg)
{
    struct err err = ERR_INIT;
    struct volume_ctx ctx = rig.ctx;
    RUN_OK(err, volume_file_flush(arg, &ctx, &err));
    return NULL;
}

/* Another program writes on and on: a close waits for what was there when it came, and that is what goes up. */
static void
a_close_waits_for_its_own_bytes_only(void **state)
{
    (void)state;
    pthread_t thread;
    struct volume_file *one = open_at("f", O_CREAT | O_RDWR);
    struct volume_file *other = open_at("f", O_RDWR);
    write_at(one, "one", 0);
    hold(HOOK_PUT);
    assert_int_equal(pthread_create(&thread, NULL, close_it, one), 0);
    wait_for_waiting(HOOK_PUT);
    write_at(other, "more", 3);
    release(HOOK_PUT);
    pthread_join(thread, NULL);
    assert_bucket("f", "one");
    RUN_OK(rig.err, volume_file_fsync(other, &rig.ctx, &rig.err));
    assert_bucket("f", "onemore");
    volume_file_close(one, &rig.ctx);
    volume_file_close(other, &rig.ctx);
}

/* Frozen, and not sent yet: a write does not take it back. */
static void
what_a_close_waits_for_is_not_thawed(void **state)
{
    (void)state;
    pthread_t thread;
    struct volume_file *one = open_at("f", O_CREAT | O_RDWR);
    struct volume_file *other = open_at("f", O_RDWR);
    write_at(one, "one", 0);
    atomic_store(&rig.hook->fail[HOOK_PUT], -1);
    assert_int_equal(pthread_create(&thread, NULL, close_it, one), 0);
    for (int i = 0; i < 60000 && atomic_load(&rig.hook->count[HOOK_PUT]) < 2; i++)
        clock_sleep_ns(NS_PER_MS);
    write_at(other, "more", 3);
    atomic_store(&rig.hook->fail[HOOK_PUT], 0);
    pthread_join(thread, NULL);
    assert_bucket("f", "one");
    volume_file_close(one, &rig.ctx);
    close_file(other);
    assert_bucket("f", "onemore");
}

static void
fsync_of_a_folder_brings_its_names(void **state)
{
    (void)state;
    make_dir("d");
    save("d/f", "bytes");
    move("d/f", "d/g", 0);
    unlink_at("d/g");
    save("d/h", "bytes");
    move("d/h", "d/i", 0);
    RUN_OK(rig.err, volume_fsync_dir(rig.service, &rig.ctx, node_of("d"), &rig.err));
    assert_bucket("d/i", "bytes");
    assert_false(in_bucket("d/g"));
    assert_false(in_bucket("d/h"));
    struct volume_ctx hurried = rig.ctx;
    hurried.deadline_ns = clock_mono_ns() + 300 * NS_PER_MS;
    atomic_store(&rig.hook->fail[HOOK_DELETE], -1);
    unlink_at("d/i");
    assert_int_equal(volume_fsync_dir(rig.service, &hurried, node_of("d"), &rig.err), -1);
    assert_int_equal(rig.err.code, ERR_NOT_SYNCED);
    atomic_store(&rig.hook->fail[HOOK_DELETE], 0);
}

#define THROUGH(test) cmocka_unit_test_setup_teardown(test, setup_through, rig_teardown)
#define ONE(test) cmocka_unit_test_setup_teardown(test, setup, rig_teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        ONE(a_file_that_stays_open_goes_up),
        ONE(what_went_up_does_not_go_up_again),
        ONE(a_close_during_the_upload_of_a_copy),
        ONE(closed_bytes_outlive_the_landing_of_an_earlier_copy),
        ONE(a_save_over_an_older_version_waits_for_its_close),
        ONE(a_file_that_never_rests_is_not_sent_and_says_so),
        ONE(a_write_during_the_copy_throws_it_away),
        ONE(a_database_with_a_hot_journal_waits),
        ONE(what_a_kernel_writes_past_us_goes_up),
        cmocka_unit_test_setup_teardown(a_childs_close_sends_nothing, rig_setup, rig_teardown),
        ONE(a_copy_that_loses_is_kept_as_a_conflict),
        THROUGH(a_close_waits_for_its_own_bytes_only),
        THROUGH(what_a_close_waits_for_is_not_thawed),
        THROUGH(fsync_of_a_folder_brings_its_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
