#include "tests/unit/volume/volume_fixture.h"

#include <sys/sysmacros.h>

/* Fifos, sockets and device nodes: made here, made by s3fs, taken along by other clients; and the times of what is no file. */

static struct volume_attr
attr_at(const char *path)
{
    struct volume_attr attr;
    RUN_OK(rig.err, volume_resolve(rig.service, &rig.ctx, rig.volume, path, &attr, &rig.err));
    return attr;
}

static void
make_special(const char *path, uint32_t mode, uint64_t rdev)
{
    struct volume_attr attr;
    struct volume_node special = { .at = name_at(path), .mode = mode, .rdev = rdev };
    RUN_OK(rig.err, volume_mknod(rig.service, &rig.ctx, &special, &attr, &rig.err));
    assert_int_equal(attr.kind, INDEX_SPECIAL);
    assert_int_equal(attr.mode, mode);
    assert_int_equal(attr.rdev, rdev);
    assert_int_equal(attr.size, 0);
}

static void
put_with(const char *path, const char *text, const char *mode, const char *rdev)
{
    struct meta meta;
    meta_init(&meta);
    RUN_OK(rig.err, meta_set(&meta, "mode", mode, &rig.err));
    if (rdev != NULL)
        RUN_OK(rig.err, meta_set(&meta, "rdev", rdev, &rig.err));
    foreign_put_meta(path, text, &meta);
    meta_release(&meta);
}

static void
assert_meta(const char *key, const char *name, const char *value)
{
    struct store_object object;
    store_object_init(&object);
    RUN_OK(rig.err, store_head(rig.mem, key, 0, &object, &rig.err));
    assert_int_equal(object.size, 0);
    if (value == NULL)
        assert_null(meta_get(&object.meta, name));
    else
        assert_string_equal(meta_get(&object.meta, name), value);
    store_object_release(&object);
}

/* st_mode of each type in decimal, as s3fs writes it. */
static void
they_are_empty_objects_whose_mode_says_what_they_are(void **state)
{
    (void)state;
    make_special("fifo", S_IFIFO | 0640, 0);
    make_special("sock", S_IFSOCK | 0755, 0);
    make_special("tty", S_IFCHR | 0620, makedev(4, 64));
    make_special("disk", S_IFBLK | 0660, makedev(259, 70000));
    flush();
    assert_meta("v/fifo", "mode", "4512");
    assert_meta("v/fifo", "rdev", NULL);
    assert_meta("v/sock", "mode", "49645");
    assert_meta("v/tty", "mode", "8592");
    assert_meta("v/tty", "rdev", "440");
    assert_meta("v/disk", "mode", "25008");
    assert_meta("v/disk", "rdev", "11110370");
    assert_true(attr_at("fifo").synced);
}

static void
they_move_change_and_go_like_files(void **state)
{
    (void)state;
    struct volume_attr attr;
    struct volume_change change = { .bits = VOLUME_SET_MODE | VOLUME_SET_UID,
                                    .mode = 0600,
                                    .uid = 42 };
    make_special("a", S_IFCHR | 0620, makedev(4, 64));
    flush();
    move("a", "b", 0);
    RUN_OK(rig.err, volume_setattr(rig.service, &rig.ctx, node_of("b"), &change, &attr, &rig.err));
    flush();
    assert_false(in_bucket("a"));
    assert_meta("v/b", "mode", "8576");
    assert_meta("v/b", "uid", "42");
    assert_meta("v/b", "rdev", "440");
    assert_int_equal(attr_at("b").mode, S_IFCHR | 0600);
    assert_int_equal(attr_at("b").rdev, makedev(4, 64));
    unlink_at("b");
    flush();
    assert_false(in_bucket("b"));
}

static void
those_of_others_are_understood(void **state)
{
    (void)state;
    struct volume_file *file;
    put_with("fifo", "", "4516", NULL);
    put_with("sock", "", "49645", NULL);
    put_with("tty", "", "8592", "440");
    put_with("octal", "", "60660", "0x1");
    put_with("full", "bytes", "4516", NULL);
    relist("");
    assert_int_equal(attr_at("fifo").mode, S_IFIFO | 0644);
    assert_int_equal(attr_at("fifo").kind, INDEX_SPECIAL);
    assert_int_equal(attr_at("sock").mode, S_IFSOCK | 0755);
    assert_int_equal(attr_at("tty").mode, S_IFCHR | 0620);
    assert_int_equal(attr_at("tty").rdev, makedev(4, 64));
    assert_int_equal(attr_at("octal").mode, S_IFBLK | 0660);
    assert_int_equal(attr_at("octal").rdev, 0);
    /* Bytes are never hidden behind a mode. */
    assert_int_equal(attr_at("full").kind, INDEX_FILE);
    assert_reads("full", "bytes");
    assert_int_equal(
        volume_file_open(rig.service, &rig.ctx, node_of("fifo"), O_RDONLY, &file, &rig.err), -1);
    assert_int_equal(rig.err.code, ERR_UNSUPPORTED);
}

static void
a_plain_object_in_its_place_is_a_file(void **state)
{
    (void)state;
    make_special("x", S_IFBLK | 0660, makedev(8, 1));
    flush();
    foreign_put("x", "bytes");
    relist("");
    assert_int_equal(attr_at("x").kind, INDEX_FILE);
    assert_int_equal(attr_at("x").rdev, 0);
    assert_reads("x", "bytes");
}

static void
only_special_modes_make_one(void **state)
{
    (void)state;
    struct volume_attr attr;
    struct volume_node special = { .at = name_at("x"), .mode = S_IFREG | 0644 };
    assert_int_equal(volume_mknod(rig.service, &rig.ctx, &special, &attr, &rig.err), -1);
    assert_int_equal(rig.err.code, ERR_INVAL);
    special.mode = S_IFIFO | 0644;
    RUN_OK(rig.err, volume_mknod(rig.service, &rig.ctx, &special, &attr, &rig.err));
    assert_int_equal(volume_mknod(rig.service, &rig.ctx, &special, &attr, &rig.err), -1);
    assert_int_equal(rig.err.code, ERR_EXISTS);
}

/* utimensat(2): each time alone, 1970 itself, and what a write leaves alone. */
static void
access_times_are_kept_as_they_were_set(void **state)
{
    (void)state;
    struct volume_attr attr;
    struct volume_change change = { .bits = VOLUME_SET_ATIME, .atime_ns = 7 * NS_PER_S + 9 };
    save("f", "x");
    int64_t node = node_of("f"), mtime = attr_at("f").mtime_ns;
    RUN_OK(rig.err, volume_setattr(rig.service, &rig.ctx, node, &change, &attr, &rig.err));
    assert_int_equal(attr.atime_ns, 7 * NS_PER_S + 9);
    assert_int_equal(attr.mtime_ns, mtime);
    change = (struct volume_change){ .bits = VOLUME_SET_MTIME, .mtime_ns = 5 };
    RUN_OK(rig.err, volume_setattr(rig.service, &rig.ctx, node, &change, &attr, &rig.err));
    assert_int_equal(attr.atime_ns, 7 * NS_PER_S + 9);
    assert_int_equal(attr.mtime_ns, 5);
    change = (struct volume_change){ .bits = VOLUME_SET_ATIME, .atime_ns = 0 };
    RUN_OK(rig.err, volume_setattr(rig.service, &rig.ctx, node, &change, &attr, &rig.err));
    assert_int_equal(attr.atime_ns, 0);
    flush();
    save("f", "other");
    assert_int_equal(attr_at("f").atime_ns, 0);
    assert_true(attr_at("f").mtime_ns > 5);
}

static void
an_object_of_others_was_read_when_it_was_written(void **state)
{
    (void)state;
    struct volume_attr attr;
    struct volume_change change = { .bits = VOLUME_SET_MTIME, .mtime_ns = 5 };
    foreign_put("f", "x");
    relist("");
    int64_t mtime = attr_at("f").mtime_ns;
    assert_int_equal(attr_at("f").atime_ns, mtime);
    RUN_OK(rig.err, volume_setattr(rig.service, &rig.ctx, node_of("f"), &change, &attr, &rig.err));
    assert_int_equal(attr.mtime_ns, 5);
    assert_int_equal(attr.atime_ns, mtime);
}

#define ONE(test) cmocka_unit_test_setup_teardown(test, rig_setup, rig_teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        ONE(they_are_empty_objects_whose_mode_says_what_they_are),
        ONE(they_move_change_and_go_like_files),
        ONE(those_of_others_are_understood),
        ONE(a_plain_object_in_its_place_is_a_file),
        ONE(only_special_modes_make_one),
        ONE(access_times_are_kept_as_they_were_set),
        ONE(an_object_of_others_was_read_when_it_was_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
