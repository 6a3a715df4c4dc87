#include <errno.h>
#include <linux/fs.h>

#include "tests/unit/volume/volume_fixture.h"

/* Hard links: one file under several names here, an object with the same bytes at each of them in the bucket (docs/adr/0008). */

static int
try_link(const char *from, const char *to)
{
    struct volume_attr attr;
    struct volume_name at = name_at(to);
    return volume_link(rig.service, &rig.ctx, node_of(from), &at, &attr, &rig.err);
}

static void
link_at(const char *from, const char *to)
{
    RUN_OK(rig.err, try_link(from, to));
}

static struct volume_attr
attr_of(const char *path)
{
    struct volume_attr attr;
    RUN_OK(rig.err, volume_resolve(rig.service, &rig.ctx, rig.volume, path, &attr, &rig.err));
    return attr;
}

/* Both lead to one file, which has so many names. */
static void
assert_same(const char *a, const char *b, uint32_t names)
{
    struct volume_attr x = attr_of(a), y = attr_of(b);
    assert_int_equal(x.node, y.node);
    assert_int_equal(x.nlink, names);
    assert_int_equal(y.nlink, names);
}

/* The volume is closed as a kill -9 leaves it: nothing more is sent, nothing is told. */
static void
restart(void)
{
    volume_service_close(rig.service, 0);
    rig_serve(&(struct rig_options){ .weak_delete = false });
}

static void
two_names_are_one_file_and_two_objects(void **state)
{
    (void)state;
    make_dir("d");
    save("a", "one");
    link_at("a", "d/b");
    assert_same("a", "d/b", 2);
    assert_reads("d/b", "one");
    flush();
    assert_bucket("a", "one");
    assert_bucket("d/b", "one");
    assert_int_equal(conflicts(NULL), 0);
    restart();
    assert_same("a", "d/b", 2);
    flush();
    assert_bucket("d/b", "one");
}

static void
what_is_written_under_one_name_reaches_every_object(void **state)
{
    (void)state;
    save("a", "old");
    flush();
    link_at("a", "b");
    link_at("b", "c");
    flush();
    assert_same("a", "c", 3);
    save("b", "newer");
    assert_reads("a", "newer");
    flush();
    assert_bucket("a", "newer");
    assert_bucket("b", "newer");
    assert_bucket("c", "newer");
    /* While it is open nothing more is known; then all follow. */
    struct volume_file *file = open_at("c", O_RDWR);
    write_at(file, "N", 0);
    link_at("a", "d");
    close_file(file);
    flush();
    assert_bucket("a", "Newer");
    assert_bucket("b", "Newer");
    assert_bucket("d", "Newer");
}

/* Its synced bytes may be changed in place while it is open: the new name waits for the close, also for one that changed nothing. */
static void
a_name_made_while_the_file_is_open_is_sent_after_the_close(void **state)
{
    (void)state;
    save("a", "bytes");
    flush();
    struct volume_file *file = open_at("a", O_RDWR);
    link_at("a", "b");
    clock_sleep_ns(300 * NS_PER_MS); /* the engine finds nothing to send */
    close_file(file);
    flush();
    assert_bucket("b", "bytes");
}

static void
assert_mode(const char *key, const char *mode)
{
    struct store_object object;
    store_object_init(&object);
    RUN_OK(rig.err, store_head(rig.mem, key, 0, &object, &rig.err));
    assert_string_equal(meta_get(&object.meta, "mode"), mode);
    store_object_release(&object);
}

static void
attributes_follow_to_every_object(void **state)
{
    (void)state;
    struct volume_attr attr;
    save("a", "bytes");
    link_at("a", "b");
    flush();
    int64_t before = attr_of("a").ctime_ns;
    struct volume_change change = { .bits = VOLUME_SET_MODE, .mode = 0600 };
    RUN_OK(rig.err, volume_setattr(rig.service, &rig.ctx, node_of("b"), &change, &attr, &rig.err));
    assert_int_equal(attr_of("a").mode, S_IFREG | 0600);
    assert_true(attr_of("a").ctime_ns > before);
    flush();
    assert_mode("v/a", "33152");
    assert_mode("v/b", "33152");
}

/* The file that stands for the inode's row goes first: the inode moves to the other name. */
static void
unlinking_either_name_leaves_the_other(void **state)
{
    (void)state;
    for (int first = 0; first < 2; first++) {
        for (int synced = 0; synced < 2; synced++) {
            save("a", "bytes");
            link_at("a", "b");
            int64_t node = node_of("a");
            if (synced)
                flush();
            const char *gone = first ? "a" : "b", *left = first ? "b" : "a";
            int puts = atomic_load(&rig.hook->count[HOOK_PUT]);
            unlink_at(gone);
            assert_gone(gone);
            assert_int_equal(attr_of(left).node, node);
            assert_int_equal(attr_of(left).nlink, 1);
            assert_reads(left, "bytes");
            flush();
            /* What lies there already is not sent again. */
            if (synced)
                assert_int_equal(atomic_load(&rig.hook->count[HOOK_PUT]), puts);
            assert_false(in_bucket(gone));
            assert_bucket(left, "bytes");
            restart();
            assert_reads(left, "bytes");
            save(left, "written after");
            flush();
            assert_bucket(left, "written after");
            unlink_at(left);
            flush();
            assert_false(in_bucket(left));
        }
    }
    assert_int_equal(conflicts(NULL), 0);
}

static void
a_file_that_only_the_bucket_has_moves_to_its_other_name(void **state)
{
    (void)state;
    foreign_put("a", "theirs");
    relist("");
    link_at("a", "b");
    flush();
    assert_bucket("b", "theirs");
    restart();
    unlink_at("a");
    flush();
    assert_false(in_bucket("a"));
    assert_reads("b", "theirs");
    assert_bucket("b", "theirs");
}

static void
the_bytes_outlive_the_last_but_one_name_while_open(void **state)
{
    (void)state;
    char out[8] = "";
    save("a", "bytes");
    link_at("a", "b");
    struct volume_file *file = open_at("a", O_RDWR);
    unlink_at("a");
    write_at(file, "B", 0);
    assert_reads("b", "Bytes");
    unlink_at("b");
    assert_int_equal(volume_file_read(file, &rig.ctx, out, 5, 0, &rig.err), 5);
    assert_string_equal(out, "Bytes");
    struct volume_attr attr;
    struct volume_name at = name_at("c");
    assert_int_equal(
        volume_link(rig.service, &rig.ctx, volume_file_node(file), &at, &attr, &rig.err), -1);
    assert_int_equal(rig.err.code, ERR_NOT_FOUND);
    close_file(file);
    flush();
    assert_false(in_bucket("a"));
    assert_false(in_bucket("b"));
}

static void
names_move_like_any(void **state)
{
    (void)state;
    make_dir("d");
    save("a", "bytes");
    save("x", "other");
    link_at("a", "b");
    flush();
    int64_t node = node_of("a");
    move("b", "d/b", 0);
    move("a", "d/a", 0);
    assert_same("d/a", "d/b", 2);
    flush();
    assert_bucket("d/a", "bytes");
    assert_bucket("d/b", "bytes");
    assert_false(in_bucket("a"));
    assert_false(in_bucket("b"));
    move("d", "e", 0);
    flush();
    assert_bucket("e/a", "bytes");
    assert_bucket("e/b", "bytes");
    assert_false(in_bucket("d/b"));
    /* One name over another of the same file: POSIX says that nothing happens (B184). */
    move("e/a", "e/b", 0);
    move("e/b", "e/a", 0);
    move("e/b", "e/a", RENAME_EXCHANGE);
    assert_same("e/a", "e/b", 2);
    move("e/b", "x", RENAME_EXCHANGE);
    assert_reads("e/b", "other");
    assert_same("e/a", "x", 2);
    flush();
    assert_bucket("x", "bytes");
    assert_bucket("e/b", "other");
    /* Another file over either name. */
    move("e/b", "e/a", 0);
    assert_int_equal(attr_of("x").node, node);
    assert_int_equal(attr_of("x").nlink, 1);
    flush();
    assert_bucket("e/a", "other");
    assert_bucket("x", "bytes");
    assert_false(in_bucket("e/b"));
    assert_int_equal(conflicts(NULL), 0);
}

static void
a_symlink_has_further_names_too(void **state)
{
    (void)state;
    struct volume_attr attr;
    char target[LIMIT_SYMLINK + 1];
    struct volume_name at = name_at("l");
    RUN_OK(rig.err, volume_symlink(rig.service, &rig.ctx, &at, "to", &attr, &rig.err));
    link_at("l", "m");
    flush();
    assert_bucket("m", "to");
    unlink_at("l");
    RUN_OK(rig.err,
           volume_readlink(rig.service, &rig.ctx, node_of("m"), target, sizeof(target), &rig.err));
    assert_string_equal(target, "to");
    flush();
    assert_bucket("m", "to");
    assert_false(in_bucket("l"));
}

static void
what_cannot_be_linked_says_so(void **state)
{
    (void)state;
    make_dir("d");
    save("a", "bytes");
    save("b", "bytes");
    assert_int_equal(try_link("d", "e"), -1);
    assert_int_equal(rig.err.code, ERR_PERM);
    assert_int_equal(try_link("a", "b"), -1);
    assert_int_equal(rig.err.code, ERR_EXISTS);
    assert_int_equal(try_link("a", "a"), -1);
    assert_int_equal(rig.err.code, ERR_EXISTS);
    struct volume_info info;
    struct volume_attr attr;
    struct volume_settings settings = { .name = "w" };
    RUN_OK(rig.err, volume_create(rig.service, &settings, &info, &rig.err));
    struct volume_name at = { info.root, "a", 1 };
    assert_int_equal(volume_link(rig.service, &rig.ctx, node_of("a"), &at, &attr, &rig.err), -1);
    assert_int_equal(rig.err.code, ERR_CROSS_DEVICE);
    struct volume_name dir = name_at("d");
    link_at("a", "d/a");
    assert_int_equal(volume_remove(rig.service, &rig.ctx, &dir, true, NULL, &rig.err), -1);
    assert_int_equal(rig.err.code, ERR_NOT_EMPTY);
}

static void
names_end_at_a_limit(void **state)
{
    (void)state;
    char name[32];
    save("a", "x");
    hold(HOOK_PUT);
    for (int i = 1; i < LIMIT_LINKS; i++) {
        (void)snprintf(name, sizeof(name), "n%d", i);
        link_at("a", name);
    }
    assert_int_equal(attr_of("a").nlink, LIMIT_LINKS);
    assert_int_equal(try_link("a", "more"), -1);
    assert_int_equal(rig.err.sys, EMLINK);
    for (int i = 1; i < LIMIT_LINKS; i++) {
        (void)snprintf(name, sizeof(name), "n%d", i);
        unlink_at(name);
    }
    unlink_at("a");
    release(HOOK_PUT);
    flush();
    assert_false(in_bucket("a"));
    assert_false(in_bucket("n1"));
}

/* ---- others ---- */

static void
a_name_that_others_replaced_is_a_file_of_its_own(void **state)
{
    (void)state;
    save("a", "ours");
    link_at("a", "b");
    flush();
    for (int first = 0; first < 2; first++) {
        const char *theirs = first ? "a" : "b", *left = first ? "b" : "a";
        foreign_put(theirs, "theirs!");
        relist("");
        assert_reads(theirs, "theirs!");
        assert_reads(left, "ours");
        assert_int_equal(attr_of(left).nlink, 1);
        assert_int_equal(attr_of(theirs).nlink, 1);
        assert_int_equal(attr_of(theirs).size, 7);
        assert_int_not_equal(node_of(theirs), node_of(left));
        flush();
        assert_bucket(theirs, "theirs!");
        assert_bucket(left, "ours");
        /* From here on they are two files. */
        save(left, "left");
        save(theirs, "right");
        flush();
        assert_bucket(left, "left");
        assert_bucket(theirs, "right");
        unlink_at("a");
        unlink_at("b");
        save("a", "ours");
        link_at("a", "b");
        flush();
    }
    assert_int_equal(conflicts(NULL), 0);
}

static void
a_name_that_others_removed_is_gone_and_the_file_stays(void **state)
{
    (void)state;
    for (int first = 0; first < 2; first++) {
        const char *gone = first ? "a" : "b", *left = first ? "b" : "a";
        save("a", "ours");
        link_at("a", "b");
        flush();
        foreign_delete(gone);
        relist("");
        assert_gone(gone);
        assert_reads(left, "ours");
        assert_int_equal(attr_of(left).nlink, 1);
        flush();
        assert_bucket(left, "ours");
        assert_false(in_bucket(gone));
        unlink_at(left);
        flush();
    }
}

static void
a_dirty_name_that_others_replaced_is_a_conflict(void **state)
{
    (void)state;
    struct volume_barrier barrier;
    struct index_conflict row;
    save("a", "base");
    link_at("a", "b");
    flush();
    hold(HOOK_PUT);
    save("a", "mine");
    wait_for_waiting(HOOK_PUT);
    foreign_put("b", "theirs");
    release(HOOK_PUT);
    assert_int_equal(flush_within(60 * NS_PER_S, &barrier), -1);
    assert_int_equal(rig.err.code, ERR_CONFLICT);
    assert_int_equal(conflicts(&row), 1);
    assert_string_equal(row.path, "b");
    assert_bucket("a", "mine");
    assert_bucket("b", "theirs");
    assert_reads("a", "mine");
    assert_reads("b", "theirs");
    assert_int_equal(attr_of("a").nlink, 1);
}

/* The name of the inode's row: the bytes go on under the other one, and nothing has to be kept aside. */
static void
a_dirty_file_whose_own_name_others_replaced_keeps_its_bytes(void **state)
{
    (void)state;
    struct volume_barrier barrier;
    save("a", "base");
    link_at("a", "b");
    flush();
    hold(HOOK_PUT);
    save("b", "mine");
    wait_for_waiting(HOOK_PUT);
    foreign_put("a", "theirs");
    release(HOOK_PUT);
    RUN_OK(rig.err, flush_within(60 * NS_PER_S, &barrier));
    assert_int_equal(conflicts(NULL), 0);
    assert_bucket("a", "theirs");
    assert_bucket("b", "mine");
    assert_reads("a", "theirs");
    assert_reads("b", "mine");
    assert_int_equal(attr_of("b").nlink, 1);
}

static struct volume_attr
put_whole(const char *path, const char *text, const struct precondition *pre)
{
    struct volume_attr attr;
    bool created;
    struct volume_commit_args args = { .pre = *pre, .wait_synced = true };
    struct volume_upload *upload =
        volume_upload_begin(rig.service, &rig.ctx, rig.volume, path, &rig.err);
    assert_non_null(upload);
    RUN_OK(rig.err, volume_upload_write(upload, text, strlen(text), &rig.err));
    RUN_OK(rig.err, volume_commit(upload, &rig.ctx, &args, &attr, &created, &rig.err));
    assert_false(created);
    return attr;
}

static void
a_whole_put_replaces_one_name(void **state)
{
    (void)state;
    struct precondition any = { .kind = PRECONDITION_ANY };
    for (int first = 0; first < 2; first++) {
        const char *put = first ? "a" : "b", *left = first ? "b" : "a";
        save("a", "both");
        link_at("a", "b");
        flush();
        (void)put_whole(put, "put", &any);
        assert_reads(put, "put");
        assert_reads(left, "both");
        assert_int_equal(attr_of(left).nlink, 1);
        flush();
        assert_bucket(put, "put");
        assert_bucket(left, "both");
        unlink_at("a");
        unlink_at("b");
        flush();
    }
    assert_int_equal(conflicts(NULL), 0);
}

/* ---- crashes ---- */

static void
a_crash_before_a_name_was_sent_sends_it_after_the_start(void **state)
{
    (void)state;
    save("a", "bytes");
    flush();
    hold(HOOK_PUT);
    link_at("a", "b");
    wait_for_waiting(HOOK_PUT);
    atomic_store(&rig.hook->fail[HOOK_PUT], -1);
    release(HOOK_PUT);
    restart();
    assert_same("a", "b", 2);
    flush();
    assert_bucket("b", "bytes");
    assert_bucket("a", "bytes");
    assert_int_equal(conflicts(NULL), 0);
}

static void
a_lost_answer_for_a_name_is_looked_after(void **state)
{
    (void)state;
    save("a", "bytes");
    flush();
    atomic_store(&rig.hook->lose[HOOK_PUT], 1);
    link_at("a", "b");
    flush();
    assert_bucket("b", "bytes");
    atomic_store(&rig.hook->lose[HOOK_PUT], 2);
    save("b", "again");
    flush();
    assert_bucket("a", "again");
    assert_bucket("b", "again");
    assert_int_equal(conflicts(NULL), 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
#define RIG_TEST(fn) cmocka_unit_test_setup_teardown(fn, rig_setup, rig_teardown)
        RIG_TEST(two_names_are_one_file_and_two_objects),
        RIG_TEST(what_is_written_under_one_name_reaches_every_object),
        RIG_TEST(a_name_made_while_the_file_is_open_is_sent_after_the_close),
        RIG_TEST(attributes_follow_to_every_object),
        RIG_TEST(unlinking_either_name_leaves_the_other),
        RIG_TEST(a_file_that_only_the_bucket_has_moves_to_its_other_name),
        RIG_TEST(the_bytes_outlive_the_last_but_one_name_while_open),
        RIG_TEST(names_move_like_any),
        RIG_TEST(a_symlink_has_further_names_too),
        RIG_TEST(what_cannot_be_linked_says_so),
        RIG_TEST(names_end_at_a_limit),
        RIG_TEST(a_name_that_others_replaced_is_a_file_of_its_own),
        RIG_TEST(a_name_that_others_removed_is_gone_and_the_file_stays),
        RIG_TEST(a_dirty_name_that_others_replaced_is_a_conflict),
        RIG_TEST(a_dirty_file_whose_own_name_others_replaced_keeps_its_bytes),
        RIG_TEST(a_whole_put_replaces_one_name),
        RIG_TEST(a_crash_before_a_name_was_sent_sends_it_after_the_start),
        RIG_TEST(a_lost_answer_for_a_name_is_looked_after),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
