/* How often a listing asks the volume, on a real kernel mount: whether something comes behind the last entry is asked once. */
#include "kernel_mount.h"

/* The names that come, dots left out, in one string. */
static const char *
read_on(DIR *dir)
{
    static char names[256];
    size_t used = 0;
    names[0] = '\0';
    errno = 0;
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): a stream of our own */
    for (const struct dirent *entry; (entry = readdir(dir));) {
        if (entry->d_name[0] != '.')
            used += (size_t)snprintf(names + used, sizeof(names) - used, "%s ", entry->d_name);
    }
    assert_int_equal(errno, 0);
    return names;
}

static void
use_streams(struct mount_service *service, const struct mount_info *info)
{
    (void)service;
    put_file(in_work("m/a"), "x");
    put_file(in_work("m/b"), "y");
    fake.lists = 0;
    DIR *one = opendir(info->path);
    DIR *other = opendir(info->path);
    assert_non_null(one);
    assert_non_null(other);
    assert_string_equal(read_on(one), "a b ");
    assert_int_equal(fake.lists,
                     1); /* and a second READDIR came, or the stream would not have ended */
    long end = telldir(one);

    /* What comes later: the stream that has ended stays at its end, another one at the same place goes on, and a rewound one
     * sees all. */
    put_file(in_work("m/late"), "z");
    assert_string_equal(read_on(one), "");
    assert_int_equal(fake.lists, 1);
    seekdir(other, end);
    assert_string_equal(read_on(other), "late ");
    rewinddir(one);
    assert_string_equal(read_on(one), "a b late ");
    seekdir(one, end);
    assert_string_equal(read_on(one), "late ");
    check_file(in_work("m/late"), "z");
    assert_int_equal(closedir(one), 0);
    assert_int_equal(closedir(other), 0);
}

static void
use_empty(struct mount_service *service, const struct mount_info *info)
{
    (void)service;
    fake.lists = 0;
    DIR *dir = opendir(info->path);
    assert_non_null(dir);
    assert_string_equal(read_on(dir), "");
    assert_int_equal(fake.lists, 1);
    put_file(in_work("m/late"), "z");
    rewinddir(dir);
    assert_string_equal(read_on(dir), "late ");
    assert_int_equal(closedir(dir), 0);
}

static void
run(void (*fn)(struct mount_service *service, const struct mount_info *info))
{
    struct mount_service *service = open_service();
    struct mount_info info =
        add(service, &(struct mount_args){ .volume = 1, .path = in_work("m") });
    assert_true(is_fuse(info.path));
    fn(service, &info);
    take_off(service, info.id, false);
    mount_service_close(service, 0);
}

static void
test_streams(void **state)
{
    (void)state;
    run(use_streams);
}

static void
test_empty(void **state)
{
    (void)state;
    run(use_empty);
}

int
main(void)
{
    const struct CMUnitTest tests[] = { TEST(test_streams), TEST(test_empty) };
    if (!can_mount()) {
        (void)printf("skip: needs root, /dev/fuse and holdfast-mounter beside the tests\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
