#include "base/scope.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

static int
open_null(void)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static bool
is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

static int
close_at_end(void)
{
    scope_fd int fd = open_null();
    assert_true(is_open(fd));
    errno = EXDEV;
    return fd;
}

static void
test_fd_is_closed(void **state)
{
    (void)state;
    int fd = close_at_end();
    assert_int_equal(errno, EXDEV);
    assert_false(is_open(fd));
    int none = -1;
    scope_close_fd(&none);
    assert_int_equal(none, -1);
}

static int
steal_out(void)
{
    scope_fd int fd = open_null();
    return steal_fd(&fd);
}

static void
test_fd_is_stolen(void **state)
{
    (void)state;
    int fd = steal_out();
    assert_true(is_open(fd));
    assert_int_equal(close(fd), 0);
}

static char *
make_text(char **seen)
{
    scope_free char *text = strdup("kept");
    *seen = text;
    return steal(&text);
}

/* That the scope frees is for the leak checker of the asan build to see. */
static void
test_free_and_steal(void **state)
{
    (void)state;
    char *seen;
    char *text = make_text(&seen);
    assert_ptr_equal(text, seen);
    assert_string_equal(text, "kept");
    free(text);
    scope_free char *freed = strdup("freed by the scope");
    assert_non_null(freed);
    scope_free int *none = NULL;
    assert_null(none);
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static int
try_inside(void)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&mutex);
    assert_non_null(held);
    return pthread_mutex_trylock(&mutex);
}

static void
test_unlock(void **state)
{
    (void)state;
    assert_int_equal(try_inside(), EBUSY);
    assert_int_equal(pthread_mutex_trylock(&mutex), 0);
    pthread_mutex_unlock(&mutex);
    pthread_mutex_t *none = NULL;
    scope_unlock_mutex(&none);
}

static void
test_wipe(void **state)
{
    (void)state;
    char secret[8] = "hunter2";
    secret_wipe(secret, 6);
    assert_memory_equal(secret,
                        "\0\0\0\0\0\0"
                        "2",
                        8);
    secret_wipe(NULL, 0);
    scope_secret char *key = strdup("hunter2");
    assert_non_null(key);
    char *none = NULL;
    secret_free_ptr(&none);
    char *other = strdup("hunter3");
    secret_free_ptr(&other);
    assert_null(other);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fd_is_closed),   cmocka_unit_test(test_fd_is_stolen),
        cmocka_unit_test(test_free_and_steal), cmocka_unit_test(test_unlock),
        cmocka_unit_test(test_wipe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
