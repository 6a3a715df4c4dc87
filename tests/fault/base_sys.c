#include "base/sys.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/scope.h"
#include "support/fail_sys.h"
#include "tests/support/tmp.h"

/* Larger than one page, and with different bytes everywhere, so that half a file is neither. */
#define SIZE 10000
static char old_text[SIZE];
static char new_text[SIZE];
static char folder[96];
static int dir;

static int
replace(const char *text)
{
    struct err err = ERR_INIT;
    return sys_replace_file(dir, "file", text, SIZE, 0600, &err);
}

/* Removes everything in the directory but "file" and answers how much there was. */
static unsigned
sweep(void)
{
    unsigned count = 0;
    DIR *list = opendir(folder);
    assert_non_null(list);
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): the stream is not shared */
    for (struct dirent *entry; (entry = readdir(list));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            strcmp(entry->d_name, "file") == 0)
            continue;
        assert_int_equal(unlinkat(dir, entry->d_name, 0), 0);
        count++;
    }
    closedir(list);
    return count;
}

static int
setup(void **state)
{
    (void)state;
    for (size_t i = 0; i < SIZE; i++) {
        old_text[i] = (char)(i % 101);
        new_text[i] = (char)(128 + i % 103);
    }
    (void)snprintf(folder, sizeof(folder), "%s/holdfast-fault-XXXXXX", tmp_base());
    if (!mkdtemp(folder))
        return -1;
    dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return dir < 0 ? -1 : replace(old_text);
}

static int
teardown(void **state)
{
    (void)state;
    fail_sys_remove();
    (void)unlinkat(dir, "file", 0);
    close(dir);
    return rmdir(folder);
}

/* The file is whole: all old or all new. Answers whether it is new. */
static bool
is_new(void)
{
    struct err err = ERR_INIT;
    scope_free char *text = NULL;
    size_t len;
    assert_int_equal(sys_read_file(dir, "file", 2 * SIZE, &text, &len, &err), 0);
    assert_int_equal(len, SIZE);
    bool fresh = memcmp(text, new_text, SIZE) == 0;
    assert_true(fresh || memcmp(text, old_text, SIZE) == 0);
    return fresh;
}

static unsigned long
count_calls(void)
{
    fail_sys_install();
    fail_sys_reset();
    assert_int_equal(replace(old_text), 0);
    unsigned long calls = fail_sys_count("any");
    fail_sys_remove();
    assert_true(calls >= 6); /* open, create, write, fdatasync, rename, fsync */
    return calls;
}

static void
test_replace_with_each_call_failing(void **state)
{
    (void)state;
    unsigned long calls = count_calls();
    for (unsigned long n = 1; n <= calls; n++) {
        fail_sys_install();
        assert_true(fail_sys_at("any", n, false, EIO));
        assert_int_equal(replace(new_text), -1);
        fail_sys_remove();
        assert_int_equal(sweep(), 0);
        assert_int_equal(is_new(), n == calls); /* only the fsync comes after the rename */
    }
}

/* Runs one replacement in a child under `spec`; answers whether it was killed. */
static bool
replace_in_child(const char *spec)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        fail_sys_install();
        _exit(fail_sys_parse(spec) && replace(new_text) == 0 ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFSIGNALED(status)) {
        assert_int_equal(WTERMSIG(status), SIGKILL);
        return true;
    }
    assert_int_equal(WEXITSTATUS(status), 0);
    return false;
}

static void
test_replace_killed_at_each_call(void **state)
{
    (void)state;
    unsigned long calls = count_calls();
    for (unsigned long n = 1; n <= calls; n++) {
        char spec[40];
        (void)snprintf(spec, sizeof(spec), "any:%lu:tear", n);
        assert_true(replace_in_child(spec));
        assert_int_equal(is_new(), n == calls);
        assert_true(sweep() <= 1); /* the temporary file of the dead */
        assert_int_equal(replace(old_text), 0);
    }
    char spec[40];
    (void)snprintf(spec, sizeof(spec), "any:%lu:kill", calls + 1);
    assert_false(replace_in_child(spec));
    assert_true(is_new());
}

static void
test_rules(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    int fd = openat(dir, "file", O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    fail_sys_install();
    fail_sys_install();
    assert_true(fail_sys_parse("pwrite:2:ENOSPC,pread:2+:5"));
    char byte;
    assert_int_equal(sys_write_full(fd, "x", 1, 0, &err), 0);
    assert_int_equal(sys_write_full(fd, "x", 1, 0, &err), -1);
    assert_int_equal(err.sys, ENOSPC);
    assert_int_equal(sys_write_full(fd, "x", 1, 0, &err), 0);
    assert_int_equal(sys_read_full(fd, &byte, 1, 0, &err), 1);
    assert_int_equal(sys_read_full(fd, &byte, 1, 0, &err), -1);
    assert_int_equal(err.sys, EIO);
    assert_int_equal(sys_read_full(fd, &byte, 1, 0, &err), -1);
    assert_int_equal(fail_sys_count("pwrite"), 3);
    assert_int_equal(fail_sys_count("pread"), 3);
    assert_int_equal(fail_sys_count("any"), 6);
    fail_sys_remove();
    assert_ptr_equal(sys, &sys_real);
    close(fd);
}

static void
test_bad_rules(void **state)
{
    (void)state;
    static const char *const bad[] = { "pwrite",         "pwrite:1",       "write:1:EIO",
                                       "pwrite:0:EIO",   "pwrite:x:EIO",   "pwrite:1:EWHAT",
                                       "pwrite:+:EIO",   "pwrite:1:",      ":1:EIO",
                                       "pwrite:1:EIO,,", "pwrite::EIO:1:", "pwrite:1:0" };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(fail_sys_parse(bad[i]));
    fail_sys_reset();
}

/* The environment's rules reach a program that does not know of them. */
static void
test_environment(void **state)
{
    (void)state;
    char self[256];
    ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
    assert_true(len > 0);
    self[len] = '\0';
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        /* NOLINTNEXTLINE(concurrency-mt-unsafe): a child of one thread */
        setenv("HOLDFAST_TEST_SYS", "mkdirat:1:EROFS", 1);
        execl(self, self, "make-dirs", (char *)NULL);
        _exit(127);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), EROFS);
}

#define test(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int
main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "make-dirs") == 0) {
        struct err err = ERR_INIT;
        return sys_make_dirs("/", 0700, &err) < 0 ? err.sys : 0;
    }
    const struct CMUnitTest tests[] = {
        test(test_replace_with_each_call_failing),
        test(test_replace_killed_at_each_call),
        test(test_rules),
        test(test_bad_rules),
        test(test_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
