/* The whole front end on a real kernel mount, over a volume in memory. Needs root and /dev/fuse. */
#include "fake_volume.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cmocka.h>

#include "mount/mount.h"

#define FUSE_MAGIC 0x65735546

static char work[64];
static char mounter_path[4096];
static bool with_mounter;

static char *
in_work(const char *name)
{
    static char paths[8][128];
    static unsigned turn;
    char *out = paths[turn++ % 8];
    (void)snprintf(out, 128, "%s/%s", work, name);
    return out;
}

static struct mount_service *
open_service(void)
{
    struct err err = ERR_INIT;
    struct mount_service_args args = { .volumes = &fake_service, .mounter = -1 };
    args.state_dir = work;
    args.default_parent = in_work("data");
    args.request_deadline_ns = NS_PER_S;
    if (with_mounter)
        assert_int_equal(mounter_spawn(mounter_path, args.default_parent, &args.mounter,
                                       &args.mounter_pid, &err),
                         0);
    struct mount_service *service = mount_service_open(&args, &err);
    if (!service)
        fail_msg("%s", err.msg);
    return service;
}

static struct mount_info
add(struct mount_service *service, const struct mount_args *args)
{
    struct err err = ERR_INIT;
    struct mount_info info;
    if (mount_add(service, args, &info, &err) < 0)
        fail_msg("%s", err.msg);
    return info;
}

static void
take_off(struct mount_service *service, int64_t id, bool force)
{
    struct err err = ERR_INIT;
    struct mount_remove_args args = { .force = force };
    if (mount_remove(service, id, &args, NULL, &err) < 0)
        fail_msg("%s", err.msg);
}

static bool
is_fuse(const char *path)
{
    struct statfs fs;
    return statfs(path, &fs) == 0 && fs.f_type == FUSE_MAGIC;
}

static void
put_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    assert_int_equal(close(fd), 0);
}

static void
check_file(const char *path, const char *text)
{
    char seen[256] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(read(fd, seen, sizeof(seen) - 1), (ssize_t)strlen(text));
    assert_string_equal(seen, text);
    assert_int_equal(close(fd), 0);
}

static int
set_up(void **state)
{
    (void)state;
    fake_reset();
    (void)snprintf(work, sizeof(work), "/tmp/holdfast-mount.XXXXXX");
    if (!mkdtemp(work) || mkdir(in_work("m"), 0755) < 0)
        return -1;
    with_mounter = true;
    return 0;
}

static int
tear_down(void **state)
{
    (void)state;
    /* What a failed test has left; the names are below our own directory. */
    (void)umount2(in_work("m"), MNT_DETACH);
    (void)umount2(in_work("m"), MNT_DETACH);
    (void)rmdir(in_work("m"));
    (void)rmdir(in_work("data"));
    (void)rmdir(in_work("mnt"));
    return rmdir(work);
}

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
    for (int i = 0; i < 300 && found.state != MOUNT_FAILED; i++) {
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

/* ---- a dead gateway ---- */
static void
test_death_and_return(void **state)
{
    (void)state;
    int ready[2];
    assert_int_equal(pipe(ready), 0);
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
    for (int i = 0; i < 300 && is_fuse(in_work("m")); i++)
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

/* ---- files ---- */
static void
with_mount(void (*fn)(struct mount_service *service, const struct mount_info *info))
{
    struct mount_service *service = open_service();
    struct mount_info info =
        add(service, &(struct mount_args){ .volume = 1, .path = in_work("m") });
    fn(service, &info);
    take_off(service, info.id, false);
    assert_int_equal(fake.open_files, 0);
    mount_service_close(service, 0);
}

static void
use_files(struct mount_service *service, const struct mount_info *info)
{
    struct stat st;
    char value[64] = "";
    (void)service;
    put_file(in_work("m/a"), "hello");
    check_file(in_work("m/a"), "hello");
    assert_true(fake.flushes > 0);
    assert_int_equal(fake.last_connection, info->id);
    assert_int_equal(truncate(in_work("m/a"), 2), 0);
    check_file(in_work("m/a"), "he");
    assert_int_equal(chmod(in_work("m/a"), 0600), 0);
    struct timespec times[2] = { { 1, 2 }, { 1000000000, 123456789 } };
    assert_int_equal(utimensat(AT_FDCWD, in_work("m/a"), times, 0), 0);
    assert_int_equal(stat(in_work("m/a"), &st), 0);
    assert_int_equal(st.st_mode, S_IFREG | 0600);
    assert_int_equal(st.st_mtim.tv_sec, 1000000000);
    assert_int_equal(st.st_mtim.tv_nsec, 123456789);
    assert_int_equal(symlink("a", in_work("m/l")), 0);
    assert_int_equal(readlink(in_work("m/l"), value, sizeof(value)), 1);
    check_file(in_work("m/l"), "he");
    assert_int_equal(link(in_work("m/a"), in_work("m/b")), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(mkfifo(in_work("m/p"), 0600), -1);
    assert_int_equal(errno, EPERM);
    memset(value, 0, sizeof(value));
    assert_int_equal(getxattr(in_work("m/a"), "user.holdfast.key", value, sizeof(value)), 5);
    assert_string_equal(value, "pre/a");
    assert_int_equal(getxattr(in_work("m/a"), "user.other", value, sizeof(value)), -1);
    assert_int_equal(errno, ENODATA);
    assert_int_equal(setxattr(in_work("m/a"), "user.x", "y", 1, 0), -1);
    assert_int_equal(errno, ENOTSUP);
    assert_int_equal(listxattr(in_work("m/a"), value, sizeof(value)), 0);
    struct statvfs fs;
    assert_int_equal(statvfs(info->path, &fs), 0);
    assert_int_equal(fs.f_bavail * fs.f_frsize, 1u << 30);
}

static void
test_files(void **state)
{
    (void)state;
    with_mount(use_files);
}

static void
use_names(struct mount_service *service, const struct mount_info *info)
{
    (void)service;
    (void)info;
    assert_int_equal(mkdir(in_work("m/d"), 0755), 0);
    put_file(in_work("m/d/x"), "one");
    put_file(in_work("m/d/y"), "two");
    assert_int_equal(rmdir(in_work("m/d")), -1);
    assert_int_equal(errno, ENOTEMPTY);
    assert_int_equal(
        renameat2(AT_FDCWD, in_work("m/d/x"), AT_FDCWD, in_work("m/d/y"), RENAME_NOREPLACE), -1);
    assert_int_equal(errno, EEXIST);
    assert_int_equal(
        renameat2(AT_FDCWD, in_work("m/d/x"), AT_FDCWD, in_work("m/d/y"), RENAME_EXCHANGE), 0);
    check_file(in_work("m/d/x"), "two");
    assert_int_equal(rename(in_work("m/d/x"), in_work("m/d/y")), 0);
    check_file(in_work("m/d/y"), "two");
    assert_int_equal(access(in_work("m/d/x"), F_OK), -1);
    assert_int_equal(mkdir(in_work("m/.holdfast"), 0755), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(open(in_work("m/.holdfast-x"), O_CREAT | O_WRONLY | O_CLOEXEC, 0644), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(rename(in_work("m/d/y"), in_work("m/.holdfast")), -1);
    assert_int_equal(errno, EPERM);
    put_file(in_work("m/d/.holdfast"), "below the root it is a name like others");
    assert_int_equal(unlink(in_work("m/d/.holdfast")), 0);
    /* An open file without a name goes on living. */
    int fd = open(in_work("m/d/y"), O_RDONLY | O_CLOEXEC);
    struct stat st;
    char seen[4] = "";
    assert_int_equal(unlink(in_work("m/d/y")), 0);
    assert_int_equal(read(fd, seen, 3), 3);
    assert_string_equal(seen, "two");
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_nlink, 0);
    assert_int_equal(close(fd), 0);
    assert_int_equal(rmdir(in_work("m/d")), 0);
}

static void
test_names(void **state)
{
    (void)state;
    with_mount(use_names);
}

static void
use_listing(struct mount_service *service, const struct mount_info *info)
{
    bool seen[2000] = { false };
    unsigned count = 0;
    unsigned dots = 0;
    (void)service;
    for (int i = 0; i < 2000; i++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "n%d", i);
        assert_true(fake_put(FAKE_ROOT, name, S_IFREG | 0644, 0) > 0);
    }
    DIR *dir = opendir(info->path);
    assert_non_null(dir);
    for (const struct dirent *entry; (entry = readdir(dir));) {
        if (entry->d_name[0] == '.') {
            dots++;
            continue;
        }
        long n = strtol(entry->d_name + 1, NULL, 10);
        assert_true(n >= 0 && n < 2000 && !seen[n]);
        seen[n] = true;
        count++;
        if (count % 500 == 0)
            seekdir(dir, telldir(dir)); /* offsets are cookies, not positions */
    }
    assert_int_equal(closedir(dir), 0);
    assert_int_equal(count, 2000);
    assert_int_equal(dots, 2);
}

static void
test_listing(void **state)
{
    (void)state;
    with_mount(use_listing);
}

static void
use_big_file(struct mount_service *service, const struct mount_info *info)
{
    size_t size = 3u << 20;
    char *data = malloc(size);
    char *back = malloc(size);
    (void)service;
    (void)info;
    assert_non_null(data);
    assert_non_null(back);
    for (size_t i = 0; i < size; i++)
        data[i] = (char)(i * 2654435761u >> 24);
    int fd = open(in_work("m/big"), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, size), (ssize_t)size);
    assert_int_equal(fsync(fd), 0);
    assert_true(fake.fsyncs > 0);
    assert_true(fake.last_unique != 0);
    assert_int_equal(lseek(fd, 0, SEEK_HOLE), (off_t)size);
    assert_int_equal(lseek(fd, (off_t)size, SEEK_DATA), -1);
    assert_int_equal(errno, ENXIO);
    assert_int_equal(posix_fallocate(fd, 0, (off_t)size + 10), 0);
    assert_int_equal(ftruncate(fd, (off_t)size), 0);
    assert_int_equal(close(fd), 0);
    fd = open(in_work("m/big"), O_RDONLY | O_CLOEXEC);
    assert_int_equal(pread(fd, back, size, 0), (ssize_t)size);
    assert_memory_equal(data, back, size);
    assert_int_equal(close(fd), 0);
    free(data);
    free(back);
}

static void
test_big_file(void **state)
{
    (void)state;
    with_mount(use_big_file);
}

static void
use_folder(struct mount_service *service, const struct mount_info *info)
{
    (void)info;
    assert_int_equal(mkdir(in_work("sub"), 0755), 0);
    int64_t dir = fake_put(FAKE_ROOT, "d", S_IFDIR | 0755, 0);
    assert_true(fake_put(dir, "inside", S_IFREG | 0644, 0) > 0);
    struct mount_info sub =
        add(service, &(struct mount_args){ .volume = 1, .folder = "d", .path = in_work("sub") });
    assert_int_equal(access(in_work("sub/inside"), F_OK), 0);
    put_file(in_work("sub/new"), "through the folder");
    check_file(in_work("m/d/new"), "through the folder");
    take_off(service, sub.id, false);
    assert_int_equal(rmdir(in_work("sub")), 0);
}

static void
test_folder(void **state)
{
    (void)state;
    with_mount(use_folder);
}

/* ---- changes of others ---- */
static void
use_events(struct mount_service *service, const struct mount_info *info)
{
    struct err err = ERR_INIT;
    (void)service;
    put_file(in_work("m/f"), "old");
    check_file(in_work("m/f"), "old");
    assert_int_equal(access(in_work("m/later"), F_OK),
                     -1); /* a negative entry, good for a second */
    pthread_mutex_lock(&fake.mutex);
    struct fake_node *node = fake_child(FAKE_ROOT, "f", 1);
    assert_int_equal(fake_resize(node, 7, &err), 0);
    memcpy(node->data, "changed", 7);
    int64_t later = fake_make(FAKE_ROOT, "later", 5, S_IFREG | 0644)->attr.node;
    int64_t changed = node->attr.node;
    pthread_mutex_unlock(&fake.mutex);
    struct volume_event event = { VOLUME_EVENT_CHANGED, 1, changed, FAKE_ROOT, "f", 0 };
    fake.watch(fake.watch_arg, &event);
    event = (struct volume_event){ VOLUME_EVENT_CREATED, 1, later, FAKE_ROOT, "later", 0 };
    fake.watch(fake.watch_arg, &event);
    int64_t start = clock_mono_ns();
    while (access(in_work("m/later"), F_OK) < 0)
        clock_sleep_ns(NS_PER_MS);
    assert_true(clock_mono_ns() - start < 500 * NS_PER_MS); /* told, not timed out */
    check_file(in_work("m/f"), "changed");
    event = (struct volume_event){ VOLUME_EVENT_REMOVED, 1, later, FAKE_ROOT, "later", info->id };
    fake.watch(fake.watch_arg, &event); /* our own doing: no call, no deadlock */
}

static void
test_events(void **state)
{
    (void)state;
    with_mount(use_events);
}

/* ---- parked requests ---- */
static void *
read_slow(void *arg)
{
    char byte;
    int fd = open(arg, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, &byte, 1) : -1;
    int error = got < 0 ? errno : 0;
    if (fd >= 0)
        (void)close(fd);
    return (void *)(intptr_t)error;
}

static void
make_slow(int count)
{
    for (int i = 0; i < count; i++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "slow%d", i);
        assert_true(fake_put(FAKE_ROOT, name, S_IFREG | 0644, 10) > 0);
    }
    put_file(in_work("m/quick"), "here");
}

static void
use_slow(struct mount_service *service, const struct mount_info *info)
{
    enum { READERS = 12 };
    pthread_t threads[READERS];
    char paths[READERS][128];
    struct stat st;
    (void)service;
    (void)info;
    make_slow(READERS);
    for (int i = 0; i < READERS; i++) {
        (void)snprintf(paths[i], sizeof(paths[i]), "%.60s/m/slow%d", work, i);
        assert_int_equal(pthread_create(&threads[i], NULL, read_slow, paths[i]), 0);
    }
    for (int i = 0; i < 500 && fake.waits < READERS; i++)
        clock_sleep_ns(2 * NS_PER_MS);
    assert_true(fake.waits >= READERS);
    /* More slow objects than loop threads: the others are still served at once. */
    int64_t start = clock_mono_ns();
    for (int i = 0; i < 20; i++) {
        assert_int_equal(stat(in_work("m/quick"), &st), 0);
        check_file(in_work("m/quick"), "here");
    }
    assert_true(clock_mono_ns() - start < 500 * NS_PER_MS);
    fake.released = true;
    for (int i = 0; i < READERS; i++) {
        void *error;
        assert_int_equal(pthread_join(threads[i], &error), 0);
        assert_int_equal((intptr_t)error, 0);
    }
}

static void
test_slow_objects(void **state)
{
    (void)state;
    fake.waits = 0;
    with_mount(use_slow);
}

static void
use_deadline(struct mount_service *service, const struct mount_info *info)
{
    char path[128];
    (void)service;
    (void)info;
    make_slow(1);
    (void)snprintf(path, sizeof(path), "%s", in_work("m/slow0"));
    int64_t start = clock_mono_ns();
    assert_int_equal((intptr_t)read_slow(path), EIO);
    int64_t span = clock_mono_ns() - start;
    assert_in_range(span, 900 * NS_PER_MS, 3 * NS_PER_S);
}

static void
test_deadline(void **state)
{
    (void)state;
    with_mount(use_deadline);
}

static void
use_interrupt(struct mount_service *service, const struct mount_info *info)
{
    char path[128];
    (void)service;
    (void)info;
    make_slow(1);
    (void)snprintf(path, sizeof(path), "%s", in_work("m/slow0"));
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)read_slow(path);
        _exit(0);
    }
    for (int i = 0; i < 500 && fake.waits == 0; i++)
        clock_sleep_ns(2 * NS_PER_MS);
    int64_t start = clock_mono_ns();
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_true(clock_mono_ns() - start < 300 * NS_PER_MS); /* not the deadline's second */
}

static void
test_interrupt(void **state)
{
    (void)state;
    fake.waits = 0;
    with_mount(use_interrupt);
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

static bool
can_mount(void)
{
    ssize_t len = readlink("/proc/self/exe", mounter_path, sizeof(mounter_path) - 32);
    if (geteuid() != 0 || access("/dev/fuse", R_OK | W_OK) < 0 || len < 0)
        return false;
    mounter_path[len] = '\0';
    for (int i = 0; i < 2 && strrchr(mounter_path, '/'); i++)
        *strrchr(mounter_path, '/') = '\0';
    (void)strncat(mounter_path, "/holdfast-mounter", 20);
    return access(mounter_path, X_OK) == 0;
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_mount_and_unmount),
        TEST(test_default_path_is_guarded),
        TEST(test_bad_mountpoints),
        TEST(test_read_only),
        TEST(test_busy_and_force),
        TEST(test_unsynced_stays_mounted),
        TEST(test_restore),
        TEST(test_death_and_return),
        TEST(test_files),
        TEST(test_names),
        TEST(test_listing),
        TEST(test_big_file),
        TEST(test_folder),
        TEST(test_events),
        TEST(test_slow_objects),
        TEST(test_deadline),
        TEST(test_interrupt),
        TEST(test_libfuse_mounts),
    };
    if (!can_mount()) {
        (void)printf("skip: needs root, /dev/fuse and holdfast-mounter beside the tests\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
