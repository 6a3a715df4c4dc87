#include "base/sys.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/scope.h"
#include "tests/support/tmp.h"

/* A table whose calls can be told to fail, to be interrupted, or to do less than asked. */
static struct {
    const char *call; /* that fails */
    int error;
    unsigned short_len;  /* pread and pwrite do at most this much; 0 is no limit */
    unsigned interrupts; /* so many EINTR first */
    int create_flags;    /* of the last file that was created */
    char log[256];       /* the calls, one letter each */
} plan;

static bool
fails(const char *call, char letter)
{
    size_t len = strlen(plan.log);
    if (len + 1 < sizeof(plan.log))
        plan.log[len] = letter;
    if (plan.interrupts > 0 && (letter == 'r' || letter == 'w')) {
        plan.interrupts--;
        errno = EINTR;
        return true;
    }
    if (!plan.call || strcmp(plan.call, call) != 0)
        return false;
    errno = plan.error;
    return true;
}

static size_t
shorten(size_t len)
{
    return plan.short_len && len > plan.short_len ? plan.short_len : len;
}

static int
my_openat(int dir, const char *path, int flags, mode_t mode)
{
    if (flags & O_CREAT) {
        plan.create_flags = flags;
        if (fails("create", 'c'))
            return -1;
    }
    return sys_real.openat(dir, path, flags, mode);
}

static ssize_t
my_pread(int fd, void *data, size_t len, off_t off)
{
    return fails("pread", 'r') ? -1 : sys_real.pread(fd, data, shorten(len), off);
}

static ssize_t
my_pwrite(int fd, const void *data, size_t len, off_t off)
{
    if (fails("pwrite", 'w'))
        return errno ? -1 : 0;
    return sys_real.pwrite(fd, data, shorten(len), off);
}

static int
my_fdatasync(int fd)
{
    return fails("fdatasync", 'd') ? -1 : sys_real.fdatasync(fd);
}

static int
my_fsync(int fd)
{
    return fails("fsync", 'f') ? -1 : sys_real.fsync(fd);
}

static int
my_renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    return fails("renameat2", 'n') ? -1 : sys_real.renameat2(from_dir, from, to_dir, to, flags);
}

static struct sys_table mine;
static char folder[96];
static int dir;

static int
setup(void **state)
{
    (void)state;
    memset(&plan, 0, sizeof(plan));
    mine = sys_real;
    mine.openat = my_openat;
    mine.pread = my_pread;
    mine.pwrite = my_pwrite;
    mine.fdatasync = my_fdatasync;
    mine.fsync = my_fsync;
    mine.renameat2 = my_renameat2;
    sys = &mine;
    (void)snprintf(folder, sizeof(folder), "%s/holdfast-sys-XXXXXX", tmp_base());
    if (!mkdtemp(folder))
        return -1;
    dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return dir < 0 ? -1 : 0;
}

/* Tests leave only "file" and what they removed themselves: a temporary file that stayed makes
 * rmdir fail. */
static int
teardown(void **state)
{
    (void)state;
    sys = &sys_real;
    (void)unlinkat(dir, "file", 0);
    close(dir);
    return rmdir(folder);
}

static void
put(const char *text)
{
    struct err err = ERR_INIT;
    assert_int_equal(sys_replace_file(dir, "file", text, strlen(text), 0600, &err), 0);
}

static void
check(const char *want)
{
    struct err err = ERR_INIT;
    scope_free char *text = NULL;
    size_t len;
    assert_int_equal(sys_read_file(dir, "file", 100, &text, &len, &err), 0);
    assert_int_equal(len, strlen(want));
    assert_string_equal(text, want);
}

static int
open_file(void)
{
    int fd = sys->openat(dir, "file", O_RDWR | O_CREAT, 0600);
    assert_true(fd >= 0);
    return fd;
}

static void
test_cloexec_is_added(void **state)
{
    (void)state;
    scope_fd int fd = open_file();
    assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
}

static void
test_full_read_and_write(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    char data[20] = "";
    scope_fd int fd = open_file();
    plan.short_len = 3;
    plan.interrupts = 2;
    assert_int_equal(sys_write_full(fd, "0123456789", 10, 5, &err), 0);
    plan.interrupts = 2;
    assert_int_equal(sys_read_full(fd, data, 10, 5, &err), 10);
    assert_string_equal(data, "0123456789");
    assert_int_equal(sys_read_full(fd, data, 20, 10, &err), 5);
    assert_memory_equal(data, "56789", 5);
    assert_int_equal(sys_read_full(fd, data, 20, 100, &err), 0);
    assert_int_equal(sys_write_full(fd, "", 0, 0, &err), 0);
}

static void
test_read_and_write_fail(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    char data[4];
    scope_fd int fd = open_file();
    plan.call = "pwrite";
    plan.error = ENOSPC;
    assert_int_equal(sys_write_full(fd, "x", 1, 0, &err), -1);
    assert_int_equal(err.code, ERR_NO_SPACE);
    assert_int_equal(err.sys, ENOSPC);
    plan.error = 0; /* takes nothing and says nothing: must not loop */
    assert_int_equal(sys_write_full(fd, "x", 1, 0, &err), -1);
    assert_int_equal(err.code, ERR_IO);
    plan.call = "pread";
    plan.error = EIO;
    assert_int_equal(sys_read_full(fd, data, 4, 0, &err), -1);
    assert_int_equal(err.code, ERR_IO);
}

/* Create, write, fdatasync, rename, fsync of the directory: any other order can lose the file in
 * a crash. */
static void
test_replace_order(void **state)
{
    (void)state;
    put("old");
    memset(plan.log, 0, sizeof(plan.log));
    put("new");
    assert_string_equal(plan.log, "cwdnf");
    assert_int_equal(plan.create_flags & (O_EXCL | O_TRUNC), O_EXCL);
    check("new");
}

static void
test_replace_fails_cleanly(void **state)
{
    (void)state;
    static const char *const calls[] = { "create", "pwrite", "fdatasync", "renameat2" };
    put("old");
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        struct err err = ERR_INIT;
        plan.call = calls[i];
        plan.error = EDQUOT;
        assert_int_equal(sys_replace_file(dir, "file", "new", 3, 0600, &err), -1);
        assert_int_equal(err.code, ERR_QUOTA);
        plan.call = NULL;
        check("old");
    }
    struct err err = ERR_INIT;
    plan.call = "fsync";
    plan.error = EIO;
    assert_int_equal(sys_replace_file(dir, "file", "new", 3, 0600, &err), -1);
    plan.call = NULL;
    check("new"); /* it is there, but nobody may rely on it */
}

static void
test_replace_mode_and_places(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct stat st;
    mode_t mask = umask(022);
    assert_int_equal(sys_replace_file(dir, "file", "", 0, 0640, &err), 0);
    umask(mask);
    assert_int_equal(fstatat(dir, "file", &st, 0), 0);
    assert_int_equal(st.st_mode & 07777, 0640);
    assert_int_equal(st.st_size, 0);
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/file", folder);
    assert_int_equal(sys_replace_file(AT_FDCWD, path, "abs", 3, 0600, &err), 0);
    check("abs");
    assert_int_equal(sys_replace_file(dir, "no/file", "x", 1, 0600, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
}

static void
test_read_file(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    char *text = NULL;
    size_t len;
    put("12345");
    assert_int_equal(sys_read_file(dir, "file", 5, &text, &len, &err), 0);
    assert_int_equal(len, 5);
    assert_string_equal(text, "12345");
    free(text);
    assert_int_equal(sys_read_file(dir, "file", 4, &text, &len, &err), -1);
    assert_int_equal(err.code, ERR_TOO_LARGE);
    assert_int_equal(sys_read_file(dir, "none", 4, &text, &len, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    plan.call = "pread";
    plan.error = EIO;
    assert_int_equal(sys_read_file(dir, "file", 9, &text, &len, &err), -1);
    assert_int_equal(err.code, ERR_IO);
    plan.call = NULL;
    put("");
    assert_int_equal(sys_read_file(dir, "file", 0, &text, &len, &err), 0);
    assert_string_equal(text, "");
    free(text);
    /* has no size to stat */
    assert_int_equal(sys_read_file(AT_FDCWD, "/proc/self/status", 1 << 20, &text, &len, &err), 0);
    assert_memory_equal(text, "Name:", 5);
    free(text);
}

static void
test_make_dirs(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    char path[128];
    struct stat st;
    (void)snprintf(path, sizeof(path), "%s/a//b/c/", folder);
    assert_int_equal(sys_make_dirs(path, 0700, &err), 0);
    assert_int_equal(sys_make_dirs(path, 0700, &err), 0);
    assert_int_equal(fstatat(dir, "a/b/c", &st, 0), 0);
    assert_true(S_ISDIR(st.st_mode));
    assert_int_equal(st.st_mode & 0777, 0700);
    put("x");
    (void)snprintf(path, sizeof(path), "%s/file", folder);
    assert_int_equal(sys_make_dirs(path, 0700, &err), -1);
    assert_int_equal(err.code, ERR_NOT_DIR);
    (void)snprintf(path, sizeof(path), "%s/file/x", folder);
    assert_int_equal(sys_make_dirs(path, 0700, &err), -1);
    assert_int_equal(err.code, ERR_NOT_DIR);
    assert_int_equal(sys_make_dirs("/", 0700, &err), 0);
    assert_int_equal(sys_make_dirs("", 0700, &err), -1);
    assert_int_equal(unlinkat(dir, "a/b/c", AT_REMOVEDIR), 0);
    assert_int_equal(unlinkat(dir, "a/b", AT_REMOVEDIR), 0);
    assert_int_equal(unlinkat(dir, "a", AT_REMOVEDIR), 0);
}

static void
test_copy_range(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    char data[16] = "";
    scope_fd int to = sys->openat(dir, ".", O_RDWR | O_TMPFILE, 0600);
    assert_true(to >= 0);
    put("0123456789");
    scope_fd int source = open_file();
    assert_int_equal(sys_copy_range(source, 2, to, 3, 5, &err), 0);
    assert_int_equal(sys_read_full(to, data, 16, 0, &err), 8);
    assert_memory_equal(data,
                        "\0\0\0"
                        "23456",
                        8);
    assert_int_equal(sys_copy_range(source, 0, to, 0, 0, &err), 0);
    assert_int_equal(sys_copy_range(source, 5, to, 0, 6, &err), -1);
    assert_int_equal(err.code, ERR_IO);
    assert_int_equal(sys_copy_range(source, 5, to, 0, UINT64_MAX, &err), -1);
    assert_int_equal(err.code, ERR_TOO_LARGE);
    assert_int_equal(sys_copy_range(-1, 0, to, 0, 5, &err), -1);
}

/* From /proc the kernel's own copy takes nothing, so this goes through read and write. */
static void
test_copy_by_hand(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    char a[37] = "", b[37] = "";
    scope_fd int from = sys->openat(AT_FDCWD, "/proc/sys/kernel/random/boot_id", O_RDONLY, 0);
    scope_fd int to = open_file();
    assert_true(from >= 0);
    plan.short_len = 7;
    assert_int_equal(sys_copy_range(from, 0, to, 0, 36, &err), 0);
    assert_int_equal(sys_read_full(from, a, 36, 0, &err), 36);
    assert_int_equal(sys_read_full(to, b, 36, 0, &err), 36);
    assert_string_equal(a, b);
    plan.call = "pwrite";
    plan.error = ENOSPC;
    assert_int_equal(sys_copy_range(from, 0, to, 0, 36, &err), -1);
    assert_int_equal(err.code, ERR_NO_SPACE);
}

/* NULL unsets. */
static void
set_env(const char *name, const char *value)
{
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread runs */
    int rc = value ? setenv(name, value, 1) : unsetenv(name);
    assert_int_equal(rc, 0);
}

static void
test_boot_id(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    char id[SYS_BOOT_ID_SIZE], again[SYS_BOOT_ID_SIZE];
    set_env("HOLDFAST_TEST_BOOT_ID", NULL);
    assert_int_equal(sys_boot_id(id, &err), 0);
    assert_int_equal(sys_boot_id(again, &err), 0);
    assert_string_equal(id, again);
    assert_int_equal(strlen(id), 36);
    assert_int_equal(strspn(id, "0123456789abcdef-"), 36);
    set_env("HOLDFAST_TEST_BOOT_ID", "another-boot");
    assert_int_equal(sys_boot_id(again, &err), 0);
    assert_string_equal(again, "another-boot");
    set_env("HOLDFAST_TEST_BOOT_ID", "");
    assert_int_equal(sys_boot_id(again, &err), -1);
    set_env("HOLDFAST_TEST_BOOT_ID", "0123456789012345678901234567890123456");
    assert_int_equal(sys_boot_id(again, &err), -1);
    assert_int_equal(err.code, ERR_INVAL);
    set_env("HOLDFAST_TEST_BOOT_ID", NULL);
}

#define test(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        test(test_cloexec_is_added),
        test(test_full_read_and_write),
        test(test_read_and_write_fail),
        test(test_replace_order),
        test(test_replace_fails_cleanly),
        test(test_replace_mode_and_places),
        test(test_read_file),
        test(test_make_dirs),
        test(test_copy_range),
        test(test_copy_by_hand),
        test(test_boot_id),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
