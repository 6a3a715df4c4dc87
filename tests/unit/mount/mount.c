/* Mounts come and go: on a real kernel mount, over a volume in memory. */
#include "kernel_mount.h"

/* ---- mounting ---- */
static void
test_mount_and_unmount(void **state)
{
    (void)state;
    struct mount_service *service = open_service();
    struct mount_info info =
        add(service, &(struct mount_args){ .volume = 1, .path = in_work("m") });
    struct stat st;
    assert_int_equal(stat(info.path, &st), 0);
    assert_int_equal(st.st_ino, 1);
    assert_true(is_fuse(info.path));
    assert_int_equal(fake.row_count, 1);
    struct mount_info found;
    struct err err = ERR_INIT;
    assert_int_equal(mount_find_by_path(service, info.path, &found, &err), 0);
    assert_int_equal(found.id, info.id);
    assert_int_equal(found.state, MOUNT_ACTIVE);
    take_off(service, info.id, false);
    assert_false(is_fuse(in_work("m")));
    assert_int_equal(fake.row_count, 0);
    assert_int_equal(mount_find(service, info.id, &found, &err), -1);
    /* The guard is gone with the mount: the directory is the user's again. */
    put_file(in_work("m/mine"), "x");
    assert_int_equal(unlink(in_work("m/mine")), 0);
    mount_service_close(service, 0);
}

static void
test_default_path_is_guarded(void **state)
{
    (void)state;
    struct mount_service *service = open_service();
    struct mount_info one = add(service, &(struct mount_args){ .volume = 1 });
    struct mount_info two = add(service, &(struct mount_args){ .volume = 1 });
    assert_string_equal(one.path, in_work("data/1"));
    assert_string_equal(two.path, in_work("data/2"));
    /* INV-11: somebody takes the mount away; beneath it even root writes nothing. */
    assert_int_equal(umount2(one.path, 0), 0);
    assert_int_equal(open(in_work("data/1/beside"), O_WRONLY | O_CREAT | O_CLOEXEC, 0644), -1);
    assert_int_equal(errno, EROFS);
    struct mount_info found = { .state = MOUNT_ACTIVE };
    struct err err = ERR_INIT;
    for (int i = 0; i < 3000 && found.state != MOUNT_FAILED; i++) {
        clock_sleep_ns(10 * NS_PER_MS);
        assert_int_equal(mount_find(service, one.id, &found, &err), 0);
    }
    assert_int_equal(found.state, MOUNT_FAILED); /* noticed and told */
    assert_int_equal(open(in_work("data/1/beside"), O_WRONLY | O_CREAT | O_CLOEXEC, 0644), -1);
    assert_int_equal(errno, EROFS);
    take_off(service, one.id, false);
    assert_int_equal(access(in_work("data/1"), F_OK), -1);
    struct mount_info again = add(service, &(struct mount_args){ .volume = 1 });
    assert_string_equal(again.path, in_work("data/1"));
    take_off(service, again.id, false);
    take_off(service, two.id, false);
    assert_int_equal(access(in_work("data/2"), F_OK), -1);
    mount_service_close(service, 0);
}

static void
check_refused(struct mount_service *service, const char *path, enum err_code code)
{
    struct err err = ERR_INIT;
    struct mount_info info;
    assert_int_equal(
        mount_add(service, &(struct mount_args){ .volume = 1, .path = path }, &info, &err), -1);
    if (err.code != code)
        fail_msg("'%s': %s", path, err.msg);
    assert_null(strchr(err.msg, '\n'));
}

static void
test_bad_mountpoints(void **state)
{
    (void)state;
    struct mount_service *service = open_service();
    put_file(in_work("file"), "x");
    assert_int_equal(mkdir(in_work("full"), 0755), 0);
    put_file(in_work("full/file"), "x");
    check_refused(service, in_work("file"), ERR_NOT_DIR);
    check_refused(service, in_work("full"), ERR_NOT_EMPTY);
    check_refused(service, in_work("none"), ERR_NOT_FOUND);
    check_refused(service, "relative", ERR_INVAL);
    check_refused(service, "/proc", ERR_BUSY);
    struct mount_info info =
        add(service, &(struct mount_args){ .volume = 1, .path = in_work("m") });
    check_refused(service, in_work("m"), ERR_BUSY);
    take_off(service, info.id, false);
    assert_int_equal(fake.row_count, 0);
    assert_int_equal(unlink(in_work("full/file")), 0);
    assert_int_equal(rmdir(in_work("full")), 0);
    assert_int_equal(unlink(in_work("file")), 0);
    mount_service_close(service, 0);
}

/* INV-14 */
static void
test_read_only(void **state)
{
    (void)state;
    assert_true(fake_put(FAKE_ROOT, "f", S_IFREG | 0666, 3) > 0);
    struct mount_service *service = open_service();
    struct mount_info info =
        add(service, &(struct mount_args){ .volume = 1, .path = in_work("m"), .read_only = true });
    assert_true(info.read_only);
    assert_int_equal(open(in_work("m/f"), O_RDWR | O_CLOEXEC), -1);
    assert_int_equal(errno, EROFS);
    /* The superblock's flag, not only the mount's. */
    assert_int_equal(mount("none", info.path, NULL, MS_REMOUNT | MS_BIND, NULL), 0);
    assert_int_equal(mkdir(in_work("m/d"), 0755), -1);
    assert_int_equal(errno, EROFS);
    take_off(service, info.id, false);
    mount_service_close(service, 0);
}

/* A snapshot is mounted as it was, and comes back at the next start. */
static void
test_snapshot(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct mount_info info;
    struct stat st;
    char bytes[32];
    struct mount_service *service = open_service();
    struct mount_args args = { .volume = 1, .path = in_work("m"), .snapshot = "other" };
    assert_int_equal(mount_add(service, &args, &info, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    args.snapshot = "first";
    info = add(service, &args);
    assert_true(info.read_only);
    assert_string_equal(info.snapshot, "first");
    mount_service_close(service, 0);
    service = open_service();
    err = (struct err)ERR_INIT;
    assert_int_equal(mount_service_restore(service, &err), 0);
    assert_int_equal(mount_find(service, info.id, &info, &err), 0);
    assert_string_equal(info.snapshot, "first");
    assert_int_equal(stat(in_work("m/d/f"), &st), 0);
    assert_int_equal(st.st_mode, S_IFREG | 0444);
    int fd = open(in_work("m/d/f"), O_RDONLY | O_CLOEXEC);
    assert_int_equal(read(fd, bytes, sizeof(bytes)), 20);
    (void)close(fd);
    assert_int_equal(access(in_work("m/.holdfast"), F_OK), -1);
    assert_int_equal(errno, ENOENT);
    take_off(service, info.id, false);
    mount_service_close(service, 0);
}

static void
test_busy_and_force(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct mount_service *service = open_service();
    struct mount_info info =
        add(service, &(struct mount_args){ .volume = 1, .path = in_work("m") });
    int fd = open(in_work("m/f"), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    struct mount_remove_args args = { .force = false };
    assert_int_equal(mount_remove(service, info.id, &args, NULL, &err), -1);
    assert_int_equal(err.code, ERR_BUSY);
    char pid[32];
    (void)snprintf(pid, sizeof(pid), "%d", (int)getpid());
    assert_non_null(strstr(err.msg, pid));
    assert_true(is_fuse(info.path));
    take_off(service, info.id, true);
    assert_false(is_fuse(in_work("m")));
    assert_int_equal(write(fd, "x", 1), -1); /* ended, not hanging */
    assert_int_equal(close(fd), -1);
    assert_int_equal(fake.open_files, 0);
    assert_true(fake.gone > 0);
    mount_service_close(service, 0);
}

static void
test_unsynced_stays_mounted(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct mount_service *service = open_service();
    struct mount_info info =
        add(service, &(struct mount_args){ .volume = 1, .path = in_work("m") });
    struct mount_remove_args args = { .force = false };
    fake.flush_fails = ERR_NOT_SYNCED;
    assert_int_equal(mount_remove(service, info.id, &args, NULL, &err), -1);
    assert_int_equal(err.code, ERR_NOT_SYNCED);
    assert_true(is_fuse(info.path));
    fake.flush_fails = ERR_CONFLICT;
    take_off(service, info.id, false);
    mount_service_close(service, 0);
}

static void
test_restore(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct mount_service *service = open_service();
    struct mount_info keep = add(service, &(struct mount_args){ .volume = 1 });
    struct mount_info drop = add(service, &(struct mount_args){ .volume = 1, .transient = true });
    struct mount_info at = add(service, &(struct mount_args){ .volume = 1, .path = in_work("m") });
    mount_service_close(service, 0);
    assert_false(is_fuse(keep.path));
    /* Guarded while nobody serves (INV-11). */
    assert_int_equal(open(in_work("m/beside"), O_WRONLY | O_CREAT | O_CLOEXEC, 0644), -1);
    assert_int_equal(errno, EROFS);
    assert_int_equal(fake.row_count, 2);
    service = open_service();
    assert_int_equal(mount_service_restore(service, &err), 0);
    struct mount_info found;
    assert_int_equal(mount_find(service, keep.id, &found, &err), 0);
    assert_string_equal(found.path, keep.path);
    assert_int_equal(mount_find(service, at.id, &found, &err), 0);
    assert_int_equal(mount_find(service, drop.id, &found, &err), -1);
    assert_true(is_fuse(keep.path));
    take_off(service, at.id, false);
    take_off(service, keep.id, false);
    mount_service_close(service, 0);
}

/* ---- leases ---- */
static _Atomic int64_t boot_ahead;

static int64_t
moved_boot(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_BOOTTIME, &now);
    return now.tv_sec * NS_PER_S + now.tv_nsec + boot_ahead;
}

static int64_t
real_wall(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * NS_PER_S + now.tv_nsec;
}

static int64_t
real_mono(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * NS_PER_S + now.tv_nsec;
}

static void
real_sleep(int64_t ns)
{
    struct timespec span = { .tv_sec = ns / NS_PER_S, .tv_nsec = ns % NS_PER_S };
    (void)nanosleep(&span, NULL);
}

static void
test_lease(void **state)
{
    (void)state;
    static const struct clock_table table = { real_wall, real_mono, moved_boot, real_sleep };
    struct err err = ERR_INIT;
    struct mount_info found;
    boot_ahead = 0;
    clock_replace(&table);
    struct mount_service *service = open_service();
    assert_int_equal(
        mount_add(service, &(struct mount_args){ .volume = 1, .lease_ns = NS_PER_S }, &found, &err),
        -1);
    assert_int_equal(err.code, ERR_INVAL);
    struct mount_info info =
        add(service,
            &(struct mount_args){ .volume = 1, .path = in_work("m"), .lease_ns = 60 * NS_PER_S });
    assert_in_range(info.expires_ns - real_wall(), 58 * NS_PER_S, 60 * NS_PER_S);
    int64_t later = 120 * NS_PER_S;
    assert_int_equal(mount_renew(service, info.id, later, &found, &err), 0);
    assert_in_range(found.expires_ns - real_wall(), 118 * NS_PER_S, 120 * NS_PER_S);
    boot_ahead = 61 * NS_PER_S; /* the first end passes */
    struct mount_info other =
        add(service, &(struct mount_args){ .volume = 1 }); /* wakes the keeper */
    clock_sleep_ns(50 * NS_PER_MS);
    assert_true(is_fuse(in_work("m")));
    boot_ahead = 121 * NS_PER_S;
    take_off(service, other.id, false);
    for (int i = 0; i < 6000 && mount_find(service, info.id, &found, &err) == 0; i++)
        clock_sleep_ns(10 * NS_PER_MS);
    assert_int_equal(mount_find(service, info.id, &found, &err), -1);
    assert_false(is_fuse(in_work("m")));
    mount_service_close(service, 0);
    clock_replace(NULL);
}

/* ---- a dead gateway ---- */
static void
test_death_and_return(void **state)
{
    (void)state;
    int ready[2];
    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct mount_service *service = open_service();
        (void)add(service, &(struct mount_args){ .volume = 1, .path = in_work("m") });
        (void)!write(ready[1], &fake.rows[0], sizeof(fake.rows[0]));
        (void)pause();
        _exit(1);
    }
    assert_int_equal(read(ready[0], &fake.rows[0], sizeof(fake.rows[0])),
                     (ssize_t)sizeof(fake.rows[0]));
    fake.row_count = 1;
    assert_true(is_fuse(in_work("m")));
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    for (int i = 0; i < 3000 && is_fuse(in_work("m")); i++)
        clock_sleep_ns(10 * NS_PER_MS);
    assert_false(is_fuse(in_work("m"))); /* the mounter took it away */
    assert_int_equal(open(in_work("m/beside"), O_WRONLY | O_CREAT | O_CLOEXEC, 0644), -1);
    assert_int_equal(errno, EROFS);
    struct err err = ERR_INIT;
    struct mount_service *service = open_service();
    assert_int_equal(mount_service_restore(service, &err), 0);
    assert_true(is_fuse(in_work("m")));
    take_off(service, fake.rows[0].id, false);
    mount_service_close(service, 0);
    (void)close(ready[0]);
    (void)close(ready[1]);
}

/* ---- without the mounter ---- */
static void
test_libfuse_mounts(void **state)
{
    (void)state;
    with_mounter = false;
    struct mount_service *service = open_service();
    struct mount_info info = add(service, &(struct mount_args){ .volume = 1 });
    assert_true(is_fuse(info.path));
    char path[1100];
    (void)snprintf(path, sizeof(path), "%s/f", info.path);
    put_file(path, "hello");
    check_file(path, "hello");
    take_off(service, info.id, false);
    assert_int_equal(access(info.path, F_OK), -1);
    mount_service_close(service, 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_mount_and_unmount),
        TEST(test_default_path_is_guarded),
        TEST(test_bad_mountpoints),
        TEST(test_read_only),
        TEST(test_snapshot),
        TEST(test_busy_and_force),
        TEST(test_unsynced_stays_mounted),
        TEST(test_restore),
        TEST(test_lease),
        TEST(test_death_and_return),
        TEST(test_libfuse_mounts),
    };
    if (!can_mount()) {
        (void)printf("skip: needs root, /dev/fuse and holdfast-mounter beside the tests\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
