/* For tests on a real kernel mount over the volume of fake_volume.h. They need root, /dev/fuse, and holdfast-mounter beside them. */
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
#include "tests/support/tmp.h"

#define FUSE_MAGIC 0x65735546

static char work[96];
static char mounter_path[4096];
static bool with_mounter;
static int64_t request_deadline;

static char *
in_work(const char *name)
{
    static char paths[8][256];
    static unsigned turn;
    char *out = paths[turn++ % 8];
    (void)snprintf(out, sizeof(paths[0]), "%s/%s", work, name);
    return out;
}

static struct mount_service *
open_service(void)
{
    struct err err = ERR_INIT;
    struct mount_service_args args = { .volumes = &fake_service, .mounter = -1 };
    args.state_dir = work;
    args.default_parent = in_work("data");
    args.request_deadline_ns = request_deadline;
    struct mounter_spawn spawn = { .exe_path = mounter_path,
                                   .default_parent = args.default_parent,
                                   .listen = -1 };
    if (with_mounter)
        assert_int_equal(mounter_spawn(&spawn, &args.mounter, &args.mounter_pid, &err), 0);
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
    (void)snprintf(work, sizeof(work), "%s/holdfast-mount.XXXXXX", tmp_base());
    if (!mkdtemp(work) || mkdir(in_work("m"), 0755) < 0)
        return -1;
    with_mounter = true;
    request_deadline = NS_PER_S;
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
