#include <linux/fs.h>

#include "tests/unit/volume/volume_fixture.h"

/* Moves: the names change at once, the objects follow, and every barrier ends with a bucket that equals the tree. */

static void
a_file_moved_while_open_for_writing_follows_its_name(void **state)
{
    (void)state;
    struct volume_barrier barrier;
    save("log", "line");
    flush();
    struct volume_file *file = open_at("log", O_RDWR);
    move("log", "log.1", 0);
    clock_sleep_ns(100 * NS_PER_MS);
    /* Nothing was written: the barrier ends all the same, with the file still open. */
    RUN_OK(rig.err, flush_within(60 * NS_PER_S, &barrier));
    assert_bucket("log.1", "line");
    assert_false(in_bucket("log"));
    close_file(file);
    flush();
    assert_bucket("log.1", "line");
}

static void
a_file_moved_while_open_and_closed_unchanged_follows_its_name(void **state)
{
    (void)state;
    save("a", "bytes");
    flush();
    struct volume_file *file = open_at("a", O_RDWR);
    move("a", "b", 0);
    clock_sleep_ns(400 * NS_PER_MS); /* the engine finds only a LIVE content at the new key */
    close_file(file);
    flush();
    assert_bucket("b", "bytes");
    assert_false(in_bucket("a"));
}

static void
a_mode_changed_while_open_and_closed_unchanged_reaches_the_bucket(void **state)
{
    (void)state;
    struct volume_attr attr;
    struct store_object object;
    save("a", "bytes");
    flush();
    struct volume_file *file = open_at("a", O_RDWR);
    struct volume_change change = { .bits = VOLUME_SET_MODE, .mode = 0600 };
    RUN_OK(rig.err, volume_setattr(rig.service, &rig.ctx, node_of("a"), &change, &attr, &rig.err));
    clock_sleep_ns(2500 * NS_PER_MS); /* past the delay of attribute changes */
    close_file(file);
    flush();
    store_object_init(&object);
    RUN_OK(rig.err, store_head(rig.mem, "v/a", 0, &object, &rig.err));
    assert_string_equal(meta_get(&object.meta, "mode"), "33152");
    store_object_release(&object);
}

static void
after_the_barrier_a_moved_folder_is_only_at_its_new_place(void **state)
{
    (void)state;
    char path[64];
    make_dir("d");
    for (int i = 0; i < 40; i++) {
        (void)snprintf(path, sizeof(path), "d/(%d)", i);
        save(path, path);
    }
    flush();
    move("d", "e", 0);
    flush();
    for (int i = 0; i < 40; i++) {
        (void)snprintf(path, sizeof(path), "d/(%d)", i);
        assert_false(in_bucket(path));
        (void)snprintf(path, sizeof(path), "e/(%d)", i);
        assert_true(in_bucket(path));
    }
    assert_false(in_bucket("d/"));
}

/* B053 */
static void
a_folder_moved_with_uploads_under_way_and_removed_leaves_nothing(void **state)
{
    (void)state;
    make_dir("d");
    hold(HOOK_PUT);
    save("d/a", "a");
    save("d/b", "b");
    wait_for_waiting(HOOK_PUT);
    move("d", "e", 0);
    unlink_at("e/a");
    unlink_at("e/b");
    struct volume_name at = name_at("e");
    RUN_OK(rig.err, volume_remove(rig.service, &rig.ctx, &at, true, NULL, &rig.err));
    release(HOOK_PUT);
    flush();
    static const char *const keys[] = { "d/", "d/a", "d/b", "e/", "e/a", "e/b" };
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        assert_false(in_bucket(keys[i]));
}

/* B054 */
static void
a_rename_over_a_file_under_upload_leaves_the_new_bytes(void **state)
{
    (void)state;
    hold(HOOK_PUT);
    save("target", "old");
    wait_for_waiting(HOOK_PUT);
    save("tmp", "new");
    move("tmp", "target", 0);
    release(HOOK_PUT);
    flush();
    assert_bucket("target", "new");
    assert_false(in_bucket("tmp"));
    assert_int_equal(conflicts(NULL), 0);
}

static void
two_files_change_places(void **state)
{
    (void)state;
    save("a", "A");
    save("b", "B");
    flush();
    move("a", "b", RENAME_EXCHANGE);
    assert_reads("a", "B");
    flush();
    assert_bucket("a", "B");
    assert_bucket("b", "A");
    assert_int_equal(conflicts(NULL), 0);
}

static void
three_files_go_round(void **state)
{
    (void)state;
    save("a", "A");
    save("b", "B");
    save("c", "C");
    flush();
    hold(HOOK_PUT);
    move("a", "tmp", 0);
    move("b", "a", 0);
    move("c", "b", 0);
    move("tmp", "c", 0);
    release(HOOK_PUT);
    flush();
    assert_bucket("a", "B");
    assert_bucket("b", "C");
    assert_bucket("c", "A");
    assert_false(in_bucket("tmp"));
    assert_int_equal(conflicts(NULL), 0);
}

/* B024 */
static void
flags_are_kept_or_refused(void **state)
{
    (void)state;
    save("a", "A");
    save("b", "B");
    struct volume_name a = name_at("a"), b = name_at("b"), none = name_at("none");
    assert_int_equal(volume_rename(rig.service, &rig.ctx, &a, &b, RENAME_NOREPLACE, &rig.err), -1);
    assert_int_equal(rig.err.code, ERR_EXISTS);
    assert_int_equal(volume_rename(rig.service, &rig.ctx, &a, &b, RENAME_WHITEOUT, &rig.err), -1);
    assert_int_equal(rig.err.code, ERR_INVAL);
    assert_int_equal(volume_rename(rig.service, &rig.ctx, &a, &none, RENAME_EXCHANGE, &rig.err),
                     -1);
    assert_int_equal(rig.err.code, ERR_NOT_FOUND);
    assert_reads("a", "A");
    assert_reads("b", "B");
}

/* B113 */
static void
a_move_keeps_the_inode_number(void **state)
{
    (void)state;
    save("a", "A");
    int64_t node = node_of("a");
    move("a", "b", 0);
    assert_int_equal(node_of("b"), node);
    flush();
    assert_int_equal(node_of("b"), node);
}

static void
a_folder_does_not_move_into_itself(void **state)
{
    (void)state;
    make_dir("d");
    make_dir("d/e");
    struct volume_name from = name_at("d"), to = { node_of("d/e"), "x", 1 };
    assert_int_equal(volume_rename(rig.service, &rig.ctx, &from, &to, 0, &rig.err), -1);
    assert_int_equal(rig.err.code, ERR_INVAL);
    /* Nor changes places with what it holds. */
    struct volume_name inside = name_at("d/e");
    assert_int_equal(
        volume_rename(rig.service, &rig.ctx, &inside, &from, RENAME_EXCHANGE, &rig.err), -1);
    assert_int_equal(rig.err.code, ERR_INVAL);
}

/* The object of a moved file was removed by somebody else before the move reached the bucket. */
static void
a_moved_file_whose_object_is_gone_ends(void **state)
{
    (void)state;
    struct volume_barrier barrier;
    foreign_put("a", "theirs");
    assert_int_not_equal(node_of("a"), 0);
    foreign_delete("a");
    move("a", "b", 0);
    RUN_OK(rig.err, flush_within(60 * NS_PER_S, &barrier));
    assert_gone("b");
    assert_false(in_bucket("b"));
}

/* B116 */
static void
a_link_moves_over_a_file_and_back(void **state)
{
    (void)state;
    char target[LIMIT_SYMLINK + 1];
    struct volume_attr attr;
    struct volume_name at = name_at("link");
    RUN_OK(rig.err, volume_symlink(rig.service, &rig.ctx, &at, "to", &attr, &rig.err));
    save("f", "bytes");
    flush();
    move("link", "f", 0);
    assert_gone("link");
    flush();
    assert_bucket("f", "to");
    assert_false(in_bucket("link"));
    RUN_OK(rig.err,
           volume_readlink(rig.service, &rig.ctx, node_of("f"), target, sizeof(target), &rig.err));
    assert_string_equal(target, "to");
    save("g", "file");
    move("g", "f", 0);
    flush();
    assert_bucket("f", "file");
    assert_reads("f", "file");
}

/* mv f g, mv g f while the upload at g runs: what landed at g was the newest. */
static void
a_file_moved_away_and_back_keeps_its_newest_bytes(void **state)
{
    (void)state;
    save("f", "old");
    flush();
    hold(HOOK_PUT);
    move("f", "g", 0);
    save("g", "newest");
    wait_for_waiting(HOOK_PUT);
    move("g", "f", 0);
    release(HOOK_PUT);
    flush();
    assert_bucket("f", "newest");
    assert_false(in_bucket("g"));
    assert_reads("f", "newest");
    assert_int_equal(conflicts(NULL), 0);
}

/* Folders change places with all that lies below them, some of it on its way. */
static void
two_folders_change_places(void **state)
{
    (void)state;
    make_dir("a");
    make_dir("b");
    save("a/x", "ax");
    save("b/x", "bx");
    save("a/only", "a");
    flush();
    save("b/new", "b");
    move("a", "b", RENAME_EXCHANGE);
    flush();
    assert_bucket("a/x", "bx");
    assert_bucket("b/x", "ax");
    assert_bucket("b/only", "a");
    assert_bucket("a/new", "b");
    assert_false(in_bucket("a/only"));
    assert_false(in_bucket("b/new"));
    assert_int_equal(conflicts(NULL), 0);
}

/* Log rotation with the writer still at it. */
static void
a_log_rotates_under_its_writer(void **state)
{
    (void)state;
    struct volume_file *file = open_at("log", O_CREAT | O_RDWR);
    write_at(file, "1", 0);
    flush();
    for (int i = 0; i < 5; i++) {
        move("log", "log.1", 0);
        struct volume_file *next = open_at("log", O_CREAT | O_RDWR);
        write_at(file, "+", 1);
        close_file(file);
        file = next;
        write_at(file, "1", 0);
        flush();
        assert_bucket("log.1", "1+");
        assert_bucket("log", "1");
    }
    close_file(file);
    flush();
    assert_int_equal(conflicts(NULL), 0);
}

static void
an_empty_foreign_file_moves(void **state)
{
    (void)state;
    foreign_put("a", "");
    move("a", "b", 0);
    flush();
    assert_true(in_bucket("b"));
    assert_false(in_bucket("a"));
}

/* Emptied by a writer, moved, and the gateway ends before the close: the old bytes come back, at the new name, and the barrier
 * still ends. */
static void
a_file_moved_during_a_torn_save_follows_its_name(void **state)
{
    (void)state;
    struct volume_barrier barrier;
    bool weak = rig.hook->base.caps.delete_if_match != STORE_YES;
    save("s2", "old");
    flush();
    struct volume_file *writer = open_at("s2", O_RDWR | O_TRUNC);
    write_at(writer, "half", 0);
    move("s2", "s1", 0);
    clock_sleep_ns(NS_PER_S / 2); /* the engine sees that there is nothing to send yet */
    volume_service_close(rig.service, 0);
    free(writer);
    rig_serve(&(struct rig_options){ .weak_delete = weak });
    (void)flush_within(60 * NS_PER_S, &barrier);
    assert_int_equal(barrier.pending, 0);
    assert_reads("s1", "old");
    assert_bucket("s1", "old");
    assert_false(in_bucket("s2"));
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
        BOTH(a_file_moved_during_a_torn_save_follows_its_name),
        BOTH(a_file_moved_while_open_for_writing_follows_its_name),
        BOTH(a_file_moved_while_open_and_closed_unchanged_follows_its_name),
        BOTH(a_mode_changed_while_open_and_closed_unchanged_reaches_the_bucket),
        BOTH(after_the_barrier_a_moved_folder_is_only_at_its_new_place),
        BOTH(a_folder_moved_with_uploads_under_way_and_removed_leaves_nothing),
        BOTH(a_rename_over_a_file_under_upload_leaves_the_new_bytes),
        BOTH(two_files_change_places),
        BOTH(three_files_go_round),
        BOTH(flags_are_kept_or_refused),
        BOTH(a_move_keeps_the_inode_number),
        BOTH(a_folder_does_not_move_into_itself),
        BOTH(a_moved_file_whose_object_is_gone_ends),
        BOTH(a_link_moves_over_a_file_and_back),
        BOTH(a_file_moved_away_and_back_keeps_its_newest_bytes),
        BOTH(two_folders_change_places),
        BOTH(a_log_rotates_under_its_writer),
        BOTH(an_empty_foreign_file_moves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
