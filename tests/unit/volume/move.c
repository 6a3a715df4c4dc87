#include <linux/fs.h>

#include "tests/unit/volume/volume_fixture.h"
#include "volume/move_impl.h"

/* A folder is moved, and what lies below has no work items yet: whatever is done meanwhile ends with a bucket that equals the tree. */

#define WORKERS 4 /* of the fixture */

/* Every worker is busy, so that a move stays as the rename left it. */
static void
stall(void)
{
    char name[16];
    hold(HOOK_PUT);
    for (int i = 0; i < WORKERS; i++) {
        (void)snprintf(name, sizeof(name), "busy%d", i);
        save(name, "busy");
    }
    for (int i = 0; i < 60000 && atomic_load(&rig.hook->waiting[HOOK_PUT]) < WORKERS; i++)
        clock_sleep_ns(NS_PER_MS);
    assert_int_equal(atomic_load(&rig.hook->waiting[HOOK_PUT]), WORKERS);
}

struct moves {
    unsigned rows, others;
};

static int
count_row(void *arg, const struct index_intent *row, struct err *err)
{
    struct moves *moves = arg;
    (void)err;
    moves->rows += move_is_work(row->key);
    moves->others += strncmp(row->key, "v/busy", 6) != 0 && !move_is_work(row->key);
    return 0;
}

static int
moves_tx(struct index_tx *tx, void *arg, struct err *err)
{
    return index_intent_each(tx, 0, "", UINT32_MAX, count_row, arg, err);
}

static struct moves
pending(void)
{
    struct moves moves = { 0 };
    RUN_OK(rig.err, index_read(rig.service->index, moves_tx, &moves, &rig.err));
    return moves;
}

static void
go_on(void)
{
    assert_int_not_equal(pending().rows, 0);
    release(HOOK_PUT);
    flush();
    assert_int_equal(pending().rows, 0);
    assert_int_equal(conflicts(NULL), 0);
}

/* d with the files a, b, c and the folder s with f in it, all in the bucket. */
static void
make_tree(void)
{
    make_dir("d");
    make_dir("d/s");
    save("d/a", "A");
    save("d/b", "B");
    save("d/c", "C");
    save("d/s/f", "F");
    flush();
}

static void
assert_tree_at(const char *dir)
{
    static const struct {
        const char *name, *text;
    } file[] = { { "a", "A" }, { "b", "B" }, { "c", "C" }, { "s/f", "F" } };
    char path[64];
    for (size_t i = 0; i < sizeof(file) / sizeof(file[0]); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", dir, file[i].name);
        assert_bucket(path, file[i].text);
        assert_reads(path, file[i].text);
    }
}

static int
count_key(void *arg, const struct store_list_entry *entry, struct err *err)
{
    (void)entry;
    (void)err;
    ++*(unsigned *)arg;
    return 0;
}

static unsigned
keys_below(const char *prefix)
{
    unsigned count = 0;
    struct store_list list = { .prefix = prefix, .fn = count_key, .arg = &count };
    RUN_OK(rig.err, store_list(rig.mem, &list, &rig.err));
    return count;
}

static void
a_rename_makes_two_items_whatever_lies_below(void **state)
{
    (void)state;
    make_tree();
    stall();
    move("d", "e", 0);
    struct moves moves = pending();
    assert_int_equal(moves.rows, 1);
    assert_true(moves.others <= 2); /* the folder's own key, the old one and the new one */
    assert_reads("e/a", "A");
    go_on();
    assert_tree_at("e");
    assert_int_equal(keys_below("v/d/"), 0);
}

static void
a_barrier_waits_for_what_lies_below(void **state)
{
    (void)state;
    struct volume_barrier barrier;
    make_tree();
    stall();
    move("d", "e", 0);
    assert_int_equal(flush_within(NS_PER_S / 2, &barrier), -1);
    assert_int_equal(rig.err.code, ERR_NOT_SYNCED);
    assert_true(barrier.pending > 0);
    go_on();
    assert_tree_at("e");
}

struct folder_told {
    bool found;
    char what[16];
};

static int
note_told(void *arg, const struct volume_unsynced *row, struct err *err)
{
    struct folder_told *told = arg;
    (void)err;
    if (move_is_work(row->key)) {
        told->found = strcmp(row->path, "e") == 0 && row->below;
        (void)snprintf(told->what, sizeof(told->what), "%s", row->what);
    }
    return 0;
}

static void
unsynced_names_the_folder(void **state)
{
    (void)state;
    struct folder_told told = { 0 };
    make_tree();
    stall();
    move("d", "e", 0);
    RUN_OK(rig.err,
           volume_unsynced_each(rig.service, rig.volume, 1000, note_told, &told, &rig.err));
    assert_true(told.found);
    assert_string_equal(told.what, "move");
    go_on();
}

static void
a_file_unlinked_below_leaves_no_object(void **state)
{
    (void)state;
    make_tree();
    stall();
    move("d", "e", 0);
    unlink_at("e/a");
    go_on();
    assert_false(in_bucket("d/a"));
    assert_false(in_bucket("e/a"));
    assert_bucket("e/b", "B");
    assert_int_equal(keys_below("v/d/"), 0);
}

static void
a_file_written_below_reaches_its_new_key_only(void **state)
{
    (void)state;
    make_tree();
    stall();
    move("d", "e", 0);
    save("e/a", "newer");
    go_on();
    assert_bucket("e/a", "newer");
    assert_int_equal(keys_below("v/d/"), 0);
}

static void
a_file_staged_before_the_move_follows(void **state)
{
    (void)state;
    make_tree();
    stall();
    save("d/a", "staged");
    save("d/new", "fresh");
    move("d", "e", 0);
    go_on();
    assert_bucket("e/a", "staged");
    assert_bucket("e/new", "fresh");
    assert_int_equal(keys_below("v/d/"), 0);
}

static void
an_upload_under_way_at_the_old_key_is_no_second_file(void **state)
{
    (void)state;
    make_tree();
    hold(HOOK_PUT);
    save("d/a", "sent");
    wait_for_waiting(HOOK_PUT);
    move("d", "e", 0);
    release(HOOK_PUT);
    flush();
    assert_bucket("e/a", "sent");
    assert_int_equal(keys_below("v/d/"), 0);
    assert_int_equal(conflicts(NULL), 0);
}

static void
new_files_at_the_old_path_wait_for_the_old_objects(void **state)
{
    (void)state;
    make_tree();
    stall();
    move("d", "e", 0);
    make_dir("d");
    save("d/a", "another");
    make_dir("d/s");
    save("d/s/f", "another f");
    go_on();
    assert_tree_at("e");
    assert_bucket("d/a", "another");
    assert_bucket("d/s/f", "another f");
    assert_false(in_bucket("d/b"));
}

static void
a_folder_moved_twice_and_back(void **state)
{
    (void)state;
    make_tree();
    stall();
    move("d", "e", 0);
    move("e", "g", 0);
    assert_int_equal(pending().rows, 1);
    go_on();
    assert_tree_at("g");
    assert_int_equal(keys_below("v/d/") + keys_below("v/e/"), 0);
    stall();
    move("g", "h", 0);
    move("h", "g", 0);
    go_on();
    assert_tree_at("g");
    assert_int_equal(keys_below("v/h/"), 0);
}

static void
a_child_moved_out_takes_its_own_way(void **state)
{
    (void)state;
    make_tree();
    stall();
    move("d", "e", 0);
    move("e/a", "out", 0);
    move("e/s", "d", 0); /* a folder, to the old name */
    move("e/b", "e/c", 0);
    go_on();
    assert_bucket("out", "A");
    assert_bucket("d/f", "F");
    assert_bucket("e/c", "B");
    assert_int_equal(keys_below("v/e/"), 2); /* the marker and c */
    assert_int_equal(keys_below("v/d/"), 2);
}

static void
a_parent_moved_over_it(void **state)
{
    (void)state;
    make_dir("p");
    make_tree();
    stall();
    move("d", "p/e", 0);
    move("p", "q", 0);
    assert_int_equal(pending().rows, 2);
    go_on();
    assert_tree_at("q/e");
    assert_int_equal(keys_below("v/d/") + keys_below("v/p/"), 0);
}

static void
folders_change_places_and_back_again(void **state)
{
    (void)state;
    make_tree();
    make_dir("o");
    save("o/a", "OA");
    save("o/x", "OX");
    flush();
    stall();
    move("d", "o", RENAME_EXCHANGE);
    go_on();
    assert_tree_at("o");
    assert_bucket("d/a", "OA");
    assert_bucket("d/x", "OX");
    assert_false(in_bucket("d/b"));
    stall();
    move("d", "o", RENAME_EXCHANGE);
    move("d", "o", RENAME_EXCHANGE);
    move("d", "o", RENAME_EXCHANGE);
    go_on();
    assert_tree_at("d");
    assert_bucket("o/a", "OA");
    assert_int_equal(keys_below("v/o/"), 3);
}

/* B053 */
static void
everything_below_removed_and_the_folder_too(void **state)
{
    (void)state;
    make_tree();
    stall();
    move("d", "e", 0);
    unlink_at("e/a");
    unlink_at("e/b");
    unlink_at("e/c");
    unlink_at("e/s/f");
    struct volume_name at = name_at("e/s");
    RUN_OK(rig.err, volume_remove(rig.service, &rig.ctx, &at, true, NULL, &rig.err));
    at = name_at("e");
    RUN_OK(rig.err, volume_remove(rig.service, &rig.ctx, &at, true, NULL, &rig.err));
    go_on();
    assert_int_equal(keys_below("v/d/") + keys_below("v/e/"), 0);
}

static void
listings_of_both_places_tell_no_news(void **state)
{
    (void)state;
    make_tree();
    stall();
    move("d", "e", 0);
    relist("");
    relist("e");
    relist("e/s");
    assert_gone("d");
    assert_reads("e/a", "A");
    assert_reads("e/s/f", "F");
    make_dir("d"); /* and when somebody has the old name again */
    relist("d");
    assert_gone("d/a");
    assert_reads("e/a", "A");
    go_on();
    assert_tree_at("e");
    assert_int_equal(keys_below("v/d/"), 1);
}

static void
a_foreign_object_at_the_new_key_is_a_conflict(void **state)
{
    (void)state;
    struct index_conflict last;
    make_tree();
    stall();
    move("d", "e", 0);
    foreign_put("e/a", "theirs");
    relist("e");
    release(HOOK_PUT);
    struct volume_barrier barrier;
    (void)flush_within(60 * NS_PER_S, &barrier);
    assert_int_equal(barrier.pending, 0);
    assert_bucket("e/a", "theirs");
    assert_int_equal(conflicts(&last), 1);
    assert_bucket("e/b", "B");
    assert_false(in_bucket("d/a"));
}

static void
hard_links_in_and_out_of_the_folder(void **state)
{
    (void)state;
    struct volume_attr attr;
    make_tree();
    struct volume_name out = name_at("out"), in = name_at("d/in");
    RUN_OK(rig.err, volume_link(rig.service, &rig.ctx, node_of("d/a"), &out, &attr, &rig.err));
    RUN_OK(rig.err, volume_link(rig.service, &rig.ctx, node_of("d/b"), &in, &attr, &rig.err));
    flush();
    stall();
    move("d", "e", 0);
    save("out", "through the other name");
    unlink_at("e/b"); /* the file goes on as e/in */
    go_on();
    assert_bucket("e/a", "through the other name");
    assert_bucket("out", "through the other name");
    assert_bucket("e/in", "B");
    assert_false(in_bucket("e/b"));
    assert_int_equal(keys_below("v/d/"), 0);
}

static void *
release_later(void *arg)
{
    struct hook_store *hook = arg;
    clock_sleep_ns(NS_PER_S / 5);
    atomic_store(&hook->hold[HOOK_PUT], 0);
    return NULL;
}

static void
a_gateway_that_ends_before_goes_on_after(void **state)
{
    (void)state;
    bool weak = rig.hook->base.caps.delete_if_match != STORE_YES;
    pthread_t thread;
    make_tree();
    stall();
    move("d", "e", 0);
    save("e/a", "newer");
    assert_int_equal(pthread_create(&thread, NULL, release_later, rig.hook), 0);
    volume_service_close(rig.service, 0);
    pthread_join(thread, NULL);
    rig_serve(&(struct rig_options){ .weak_delete = weak });
    flush();
    assert_bucket("e/a", "newer");
    assert_bucket("e/b", "B");
    assert_bucket("e/s/f", "F");
    assert_int_equal(keys_below("v/d/"), 0);
    assert_int_equal(conflicts(NULL), 0);
}

static int
slow_tx(struct index_tx *tx, void *arg, struct err *err)
{
    (void)tx;
    (void)arg;
    (void)err;
    clock_sleep_ns(4 * NS_PER_MS);
    return 0;
}

/* Somebody else changes the index all the time: the walk's transactions take turns with that. */
static void *
crowd_main(void *arg)
{
    struct err err = ERR_INIT;
    while (!atomic_load((atomic_bool *)arg))
        if (index_write(rig.service->index, INDEX_NORMAL, slow_tx, NULL, &err) != 0)
            return arg;
    return NULL;
}

static void
wait_for_items(unsigned count)
{
    for (int i = 0; i < 20000 && pending().others < count && pending().rows > 0; i++)
        clock_sleep_ns(NS_PER_MS / 2);
}

/* More than one transaction's worth, moved again in the middle of it. */
static void
a_large_folder_moved_on_in_the_middle(void **state)
{
    (void)state;
    char path[32];
    make_dir("d");
    make_dir("d/deep");
    for (int i = 0; i < 600; i++) {
        (void)snprintf(path, sizeof(path), i % 3 == 0 ? "d/deep/%d" : "d/%d", i);
        save(path, path + 2);
    }
    flush();
    pthread_t crowd;
    atomic_bool end = false;
    void *failed = NULL;
    assert_int_equal(pthread_create(&crowd, NULL, crowd_main, &end), 0);
    hold(HOOK_PUT);
    move("d", "e", 0);
    wait_for_items(200);
    move("e", "f", 0);
    release(HOOK_PUT);
    atomic_store(&end, true);
    assert_int_equal(pthread_join(crowd, &failed), 0);
    assert_null(failed);
    flush();
    assert_int_equal(keys_below("v/d/") + keys_below("v/e/"), 0);
    assert_int_equal(keys_below("v/f/"), 602);
    for (int i = 0; i < 600; i += 7) {
        (void)snprintf(path, sizeof(path), i % 3 == 0 ? "f/deep/%d" : "f/%d", i);
        assert_bucket(path, path + 2);
    }
    assert_int_equal(conflicts(NULL), 0);
}

static void
a_name_too_long_below_is_refused_at_once(void **state)
{
    (void)state;
    char name[LIMIT_NAME + 1], path[LIMIT_PATH + 1] = "d";
    memset(name, 'n', LIMIT_NAME);
    name[LIMIT_NAME] = '\0';
    make_dir("d");
    make_dir("x");
    for (int i = 0; i < 3; i++) {
        size_t len = strlen(path);
        (void)snprintf(path + len, sizeof(path) - len, "/%s", name);
        make_dir(path);
    }
    size_t len = strlen(path);
    (void)snprintf(path + len, sizeof(path) - len, "/%.240s", name);
    save(path, "deep");
    struct volume_name from = name_at("d"), to = name_at("x");
    to = (struct volume_name){ node_of("x"), name, 40 };
    assert_int_equal(volume_rename(rig.service, &rig.ctx, &from, &to, 0, &rig.err), -1);
    assert_int_equal(rig.err.code, ERR_NAME_TOO_LONG);
    to.len = 3;
    RUN_OK(rig.err, volume_rename(rig.service, &rig.ctx, &from, &to, 0, &rig.err));
    flush();
    assert_int_equal(keys_below("v/d/"), 0);
}

/* One that was made, or a folder above that was moved, between the look at what lies below and the rename itself. */
static int
fits_tx(struct index_tx *tx, void *arg, struct err *err)
{
    return below_fits(tx, arg, err);
}

static void
a_name_that_comes_in_between_is_measured_too(void **state)
{
    (void)state;
    char name[LIMIT_NAME + 1], path[LIMIT_PATH + 1] = "d";
    memset(name, 'n', LIMIT_NAME);
    name[LIMIT_NAME] = '\0';
    make_dir("d");
    for (int i = 0; i < 3; i++) {
        size_t len = strlen(path);
        (void)snprintf(path + len, sizeof(path) - len, "/%s", name);
        make_dir(path);
    }
    struct volume_name from = name_at("d"), to = { rig.root, name, 40 };
    struct below_move below = { .service = rig.service, .ctx = &rig.ctx, .from = &from, .to = &to };
    RUN_OK(rig.err, below_know(&below, &rig.err));
    RUN_OK(rig.err, index_write(rig.service->index, INDEX_NORMAL, fits_tx, &below, &rig.err));
    size_t len = strlen(path);
    (void)snprintf(path + len, sizeof(path) - len, "/%.240s", name);
    save(path, "deep");
    assert_int_equal(index_write(rig.service->index, INDEX_NORMAL, fits_tx, &below, &rig.err), -1);
    assert_int_equal(rig.err.code, ERR_NAME_TOO_LONG);
}

/* Neither their bytes nor their metadata are here, and one of them is no file. */
static void
files_of_others_that_nobody_read_follow(void **state)
{
    (void)state;
    struct volume_attr attr;
    foreign_put("d/a", "A");
    foreign_put("d/b", "B");
    foreign_put("d/c", "C");
    foreign_put("d/s/f", "F");
    relist("");
    struct volume_name at = name_at("d/link");
    RUN_OK(rig.err, volume_symlink(rig.service, &rig.ctx, &at, "a", &attr, &rig.err));
    flush();
    stall();
    move("d", "e", 0);
    assert_reads("e/c", "C"); /* from where it lies */
    go_on();
    assert_tree_at("e");
    assert_bucket("e/link", "a");
    assert_int_equal(keys_below("v/d/"), 0);
}

static void
what_others_do_at_the_old_keys_stays_theirs(void **state)
{
    (void)state;
    make_tree();
    stall();
    move("d", "e", 0);
    foreign_put("d/a", "theirs");
    foreign_put("d/new", "new");
    foreign_delete("d/b");
    go_on();
    assert_tree_at("e");
    assert_bucket("d/a", "theirs");
    relist("");
    assert_reads("d/a", "theirs");
    assert_reads("d/new", "new");
    assert_gone("d/b");
    flush();
    assert_int_equal(keys_below("v/d/"), 2);
    assert_int_equal(conflicts(NULL), 0);
}

static void
a_writer_that_goes_on_across_the_move(void **state)
{
    (void)state;
    make_tree();
    struct volume_file *file = open_at("d/a", O_RDWR), *other = open_at("d/s/f", O_RDWR);
    write_at(file, "live", 0);
    stall();
    move("d", "e", 0);
    write_at(file, "!", 4);
    close_file(file);
    go_on();
    assert_bucket("e/a", "live!");
    assert_bucket("e/b", "B");
    close_file(other);
    flush();
    assert_bucket("e/s/f", "F");
    assert_int_equal(keys_below("v/d/"), 0);
}

static void
lost_answers_on_the_way(void **state)
{
    (void)state;
    make_tree();
    stall();
    move("d", "e", 0);
    atomic_store(&rig.hook->lose[HOOK_PUT], 6);
    atomic_store(&rig.hook->lose[HOOK_DELETE], 2);
    go_on();
    assert_tree_at("e");
    assert_int_equal(keys_below("v/d/"), 0);
}

/* The folders of an exchange are looked through on both sides, also below one that changes places with a file. */
static void
a_file_and_a_folder_of_others_change_places(void **state)
{
    (void)state;
    foreign_put("o/deep/deeper/x", "X");
    save("f", "file");
    flush();
    relist("");
    move("f", "o", RENAME_EXCHANGE);
    flush();
    assert_bucket("o", "file");
    assert_bucket("f/deep/deeper/x", "X");
    assert_int_equal(keys_below("v/o/"), 0);
    assert_reads("f/deep/deeper/x", "X");
}

/* The gateway ends while the items of what lies below are being made, or used. */
static void
a_gateway_that_ends_in_the_middle(void **state)
{
    (void)state;
    bool weak = rig.hook->base.caps.delete_if_match != STORE_YES;
    static const char *const names[] = { "d", "e", "f", "g" };
    char path[32];
    make_dir("d");
    make_dir("d/deep");
    for (int i = 0; i < 900; i++) {
        (void)snprintf(path, sizeof(path), i % 3 == 0 ? "d/deep/%d" : "d/%d", i);
        save(path, path + 2);
    }
    flush();
    for (int turn = 0; turn < 3; turn++) {
        move(names[turn], names[turn + 1], 0);
        clock_sleep_ns((2 + 20 * turn) * NS_PER_MS);
        volume_service_close(rig.service, 0);
        rig_serve(&(struct rig_options){ .weak_delete = weak });
    }
    flush();
    assert_int_equal(keys_below("v/d/") + keys_below("v/e/") + keys_below("v/f/"), 0);
    assert_int_equal(keys_below("v/g/"), 902);
    for (int i = 0; i < 900; i++) {
        (void)snprintf(path, sizeof(path), i % 3 == 0 ? "g/deep/%d" : "g/%d", i);
        assert_bucket(path, path + 2);
    }
    assert_int_equal(conflicts(NULL), 0);
}

static int
end(void **state)
{
    release(HOOK_PUT); /* a test that failed may have left it held */
    return rig_teardown(state);
}

#define BOTH(test)                                         \
    cmocka_unit_test_setup_teardown(test, rig_setup, end), \
    {                                                      \
#test " (weak)", test, rig_setup_weak, end, NULL   \
    }

int
main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(a_rename_makes_two_items_whatever_lies_below),
        BOTH(a_barrier_waits_for_what_lies_below),
        BOTH(unsynced_names_the_folder),
        BOTH(a_file_unlinked_below_leaves_no_object),
        BOTH(a_file_written_below_reaches_its_new_key_only),
        BOTH(a_file_staged_before_the_move_follows),
        BOTH(an_upload_under_way_at_the_old_key_is_no_second_file),
        BOTH(new_files_at_the_old_path_wait_for_the_old_objects),
        BOTH(a_folder_moved_twice_and_back),
        BOTH(a_child_moved_out_takes_its_own_way),
        BOTH(a_parent_moved_over_it),
        BOTH(folders_change_places_and_back_again),
        BOTH(everything_below_removed_and_the_folder_too),
        BOTH(listings_of_both_places_tell_no_news),
        BOTH(a_foreign_object_at_the_new_key_is_a_conflict),
        BOTH(hard_links_in_and_out_of_the_folder),
        BOTH(a_gateway_that_ends_before_goes_on_after),
        BOTH(a_large_folder_moved_on_in_the_middle),
        BOTH(a_gateway_that_ends_in_the_middle),
        BOTH(a_name_too_long_below_is_refused_at_once),
        BOTH(a_name_that_comes_in_between_is_measured_too),
        BOTH(files_of_others_that_nobody_read_follow),
        BOTH(what_others_do_at_the_old_keys_stays_theirs),
        BOTH(a_writer_that_goes_on_across_the_move),
        BOTH(lost_answers_on_the_way),
        BOTH(a_file_and_a_folder_of_others_change_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
