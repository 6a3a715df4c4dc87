#include <linux/magic.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>

#include "tests/unit/volume/volume_fixture.h"

/* Content files that kernels work on by themselves. What a kernel does is done here by descriptor, past the service. */

static int
setup(void **state)
{
    (void)state;
    rig_open(&(struct rig_options){ .cache_bytes = 64ull << 30 });
    return 0;
}

static int
lend(struct volume_file *file, struct volume_backing *out)
{
    int rc = volume_file_back(file, &rig.ctx, out, &rig.err);
    assert_true(rc >= 0);
    return rc;
}

static int
lent_fd(struct volume_file *file)
{
    int fd = -1;
    RUN_OK(rig.err, volume_file_backing_fd(file, &fd, &rig.err));
    return fd;
}

static void
assert_fd(int fd, const char *text)
{
    char bytes[64] = "";
    ssize_t got = pread(fd, bytes, sizeof(bytes) - 1, 0);
    assert_true(got >= 0);
    assert_string_equal(bytes, text);
}

static void
await_bucket(const char *path, const char *text)
{
    char key[LIMIT_KEY + 1];
    (void)snprintf(key, sizeof(key), "v/%s", path);
    for (int i = 0; i < 20000; i++) {
        char *data = NULL;
        size_t len;
        struct err err = ERR_INIT;
        if (store_get_small(rig.mem, key, 1u << 20, &data, &len, NULL, &err) == 0) {
            assert_string_equal(data, text);
            free(data);
            return;
        }
        clock_sleep_ns(NS_PER_MS);
    }
    fail_msg("'%s' does not get into the bucket", path);
}

static void
flush_all(void)
{
    struct volume_barrier barrier;
    assert_int_equal(flush_within(20 * NS_PER_S, &barrier), 0);
}

/* Whether this machine's disk has the room that writing past the service wants. */
static bool
has_disk(void)
{
    struct statvfs vfs;
    struct statfs fs;
    return statvfs(rig.dir, &vfs) == 0 && statfs(rig.dir, &fs) == 0 && fs.f_type != TMPFS_MAGIC &&
           (uint64_t)vfs.f_bavail * vfs.f_frsize > 3ull << 30;
}

static void
test_a_reader_sees_writers(void **state)
{
    (void)state;
    struct volume_backing first = { 0 }, second = { 0 };
    save("f", "one");
    flush_all();
    struct volume_file *reader = open_at("f", O_RDONLY);
    assert_int_equal(lend(reader, &first), 0);
    int fd = lent_fd(reader);
    assert_int_equal(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
    assert_fd(fd, "one");
    struct volume_file *writer = open_at("f", O_WRONLY);
    write_at(writer, "two", 0);
    assert_fd(fd, "two");
    close_file(writer);
    struct volume_file *again = open_at("f", O_RDONLY);
    assert_int_equal(lend(again, &second), 0);
    assert_int_equal(second.content, first.content); /* or the kernel would say EIO */
    close_file(again);
    flush_all();
    assert_bucket("f", "two");
    (void)close(fd);
    close_file(reader);
}

static void
test_emptied_under_a_reader(void **state)
{
    (void)state;
    struct volume_backing bytes = { 0 };
    struct volume_attr attr;
    atomic_store(&rig.hook->hold[HOOK_PUT], 1);
    save("f", "one");
    while (atomic_load(&rig.hook->waiting[HOOK_PUT]) == 0) /* its attempt is under way */
        clock_sleep_ns(NS_PER_MS);
    struct volume_file *reader = open_at("f", O_RDONLY);
    assert_int_equal(lend(reader, &bytes), 0);
    int fd = lent_fd(reader);
    struct volume_file *writer = open_at("f", O_WRONLY | O_TRUNC);
    assert_fd(fd, "");
    RUN_OK(rig.err, volume_getattr(rig.service, &rig.ctx, node_of("f"), &attr, &rig.err));
    assert_int_equal(attr.size, 0);
    write_at(writer, "three", 0);
    assert_fd(fd, "three");
    /* What is sent of the first save is the first save, or nothing. */
    atomic_store(&rig.hook->hold[HOOK_PUT], 0);
    await_bucket("f", "one");
    close_file(writer);
    flush_all();
    assert_bucket("f", "three");
    (void)close(fd);
    close_file(reader);
}

static void
test_written_past_the_service(void **state)
{
    (void)state;
    struct volume_backing bytes = { 0 };
    struct volume_attr attr;
    if (!has_disk())
        skip();
    struct volume_file *file = open_at("f", O_RDWR | O_CREAT);
    assert_int_equal(lend(file, &bytes), 0);
    int fd = lent_fd(file);
    assert_int_equal(pwrite(fd, "hello", 5, 0), 5);
    RUN_OK(rig.err, volume_getattr(rig.service, &rig.ctx, node_of("f"), &attr, &rig.err));
    assert_int_equal(attr.size, 5);
    close_file(file);
    (void)close(fd);
    flush_all();
    assert_bucket("f", "hello");
    /* In place, with the same size. */
    clock_sleep_ns(30 * NS_PER_MS);
    file = open_at("f", O_RDWR);
    assert_int_equal(lend(file, &bytes), 0);
    fd = lent_fd(file);
    assert_int_equal(pwrite(fd, "HELLO", 5, 0), 5);
    close_file(file);
    (void)close(fd);
    flush_all();
    assert_bucket("f", "HELLO");
}

static void
test_not_written_is_no_version(void **state)
{
    (void)state;
    struct volume_backing bytes = { 0 };
    struct volume_attr before, after;
    if (!has_disk())
        skip();
    save("f", "same");
    flush_all();
    clock_sleep_ns(30 * NS_PER_MS);
    RUN_OK(rig.err, volume_getattr(rig.service, &rig.ctx, node_of("f"), &before, &rig.err));
    struct volume_file *file = open_at("f", O_RDWR);
    assert_int_equal(lend(file, &bytes), 0);
    close_file(file);
    RUN_OK(rig.err, volume_getattr(rig.service, &rig.ctx, node_of("f"), &after, &rig.err));
    assert_string_equal(after.version, before.version);
    assert_true(after.synced);
}

/* A new file that a kernel writes by itself. */
static struct volume_file *
open_lent(const char *path, int *fd)
{
    struct volume_backing bytes = { 0 };
    struct volume_file *file = open_at(path, O_RDWR | O_CREAT);
    assert_int_equal(lend(file, &bytes), 0);
    *fd = lent_fd(file);
    return file;
}

static void
test_a_barrier_copies(void **state)
{
    (void)state;
    int fd = -1;
    if (!has_disk())
        skip();
    struct volume_file *file = open_lent("f", &fd);
    assert_int_equal(pwrite(fd, "first", 5, 0), 5);
    clock_sleep_ns(50 * NS_PER_MS);
    flush_all();
    assert_bucket("f", "first");
    /* Nobody is asked before this, so what went up must have been a copy. */
    assert_int_equal(pwrite(fd, "second", 6, 0), 6);
    assert_bucket("f", "first");
    close_file(file);
    (void)close(fd);
    flush_all();
    assert_bucket("f", "second");
}

/* A temporary file that its program unlinked has nothing to send: a barrier does not wait for it. */
static void
test_a_barrier_leaves_unlinked_files_alone(void **state)
{
    (void)state;
    int fd = -1;
    if (!has_disk())
        skip();
    struct volume_file *file = open_lent("f", &fd);
    unlink_at("f");
    assert_int_equal(pwrite(fd, "first", 5, 0), 5);
    clock_sleep_ns(50 * NS_PER_MS);
    flush_all();
    assert_false(in_bucket("f"));
    assert_int_equal(pwrite(fd, "second", 6, 0), 6);
    close_file(file);
    (void)close(fd);
    flush_all();
}

static void
test_when_it_is_not_lent(void **state)
{
    (void)state;
    struct volume_backing bytes = { .min_size = 10 };
    save("f", "short");
    struct volume_file *reader = open_at("f", O_RDONLY);
    assert_int_equal(lend(reader, &bytes), 1);
    bytes.min_size = 0;
    /* A kernel keeps pages of it: they would not hear of writes past the service. */
    assert_true(volume_file_paged(reader));
    struct volume_file *writer = open_at("f", O_RDWR);
    assert_int_equal(lend(writer, &bytes), 1);
    close_file(reader);
    if (has_disk())
        assert_int_equal(lend(writer, &bytes), 0);
    /* The other way round. */
    struct volume_file *late = open_at("f", O_RDONLY);
    assert_int_equal(volume_file_paged(late), !has_disk());
    close_file(late);
    close_file(writer);
}

static void
test_little_room(void **state)
{
    (void)state;
    struct volume_backing bytes = { 0 };
    struct volume_file *file = open_at("f", O_RDWR | O_CREAT);
    assert_int_equal(lend(file, &bytes), 1);
    close_file(file);
}

static int
setup_small_cache(void **state)
{
    (void)state;
    rig_open(&(struct rig_options){ .cache_bytes = 1ull << 30 });
    return 0;
}

static int
setup_small_quota(void **state)
{
    (void)state;
    rig_open(&(struct rig_options){ .cache_bytes = 64ull << 30, .quota = 512u << 20 });
    return 0;
}

static int
setup_sync_close(void **state)
{
    (void)state;
    rig_open(&(struct rig_options){ .cache_bytes = 64ull << 30, .sync_close = true });
    return 0;
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_reader_sees_writers, setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_emptied_under_a_reader, setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_written_past_the_service, setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_not_written_is_no_version, setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_a_barrier_copies, setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_a_barrier_leaves_unlinked_files_alone, setup,
                                        rig_teardown),
        cmocka_unit_test_setup_teardown(test_when_it_is_not_lent, setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_little_room, setup_small_cache, rig_teardown),
        cmocka_unit_test_setup_teardown(test_little_room, setup_small_quota, rig_teardown),
        cmocka_unit_test_setup_teardown(test_little_room, setup_sync_close, rig_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
