#include "base/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

static int64_t
fake_wall(void)
{
    return 1782900000000000000; /* 2026-07-01T10:00:00Z */
}

static const struct clock_table fake = { .wall = fake_wall };
static int fd;
static char text[200000];

static int
setup(void **state)
{
    (void)state;
    char path[] = "/tmp/holdfast-log-XXXXXX";
    struct err err = ERR_INIT;
    fd = mkstemp(path);
    if (fd < 0 || unlink(path) < 0 || fcntl(fd, F_SETFL, O_APPEND) < 0)
        return -1;
    clock_replace(&fake);
    log_redirect(fd);
    return log_configure("", &err);
}

static int
teardown(void **state)
{
    (void)state;
    clock_replace(NULL);
    log_redirect(STDERR_FILENO);
    return close(fd);
}

/* What was written since the last call. */
static const char *
written(void)
{
    ssize_t len = pread(fd, text, sizeof(text) - 1, 0);
    assert_true(len >= 0);
    text[len] = '\0';
    assert_int_equal(ftruncate(fd, 0), 0);
    return text;
}

static void
test_line(void **state)
{
    (void)state;
    errno = EDOM;
    log_warn(s3, "slow answer host=%s ms=%d", "h", 12);
    assert_int_equal(errno, EDOM);
    assert_string_equal(written(), "2026-07-01T10:00:00Z warn  s3 slow answer host=h ms=12\n");
    log_error(audit, "%s", "x");
    assert_string_equal(written(), "2026-07-01T10:00:00Z error audit x\n");
}

/* Whatever comes in from outside, a line of the log is one line and changes no terminal. */
static void
test_control_characters_stay_in_one_line(void **state)
{
    (void)state;
    log_info(http, "path='%s'",
             "a\n2026-07-01T10:00:00Z error audit forged\r\x1b[2J\xff\xc2\x9b\xc3\xa9\\");
    assert_string_equal(
        written(), "2026-07-01T10:00:00Z info  http path='a\\x0a2026-07-01T10:00:00Z error audit "
                   "forged\\x0d\\x1b[2J\\xff\\xc2\\x9b\xc3\xa9\\'\n");
}

static void
test_long_line_is_cut(void **state)
{
    (void)state;
    static char big[3 * LIMIT_LOG_LINE];
    memset(big, 'x', sizeof(big) - 1);
    log_info(base, "%s", big);
    const char *line = written();
    assert_int_equal(strlen(line), LIMIT_LOG_LINE - 1);
    assert_ptr_equal(strchr(line, '\n'), line + LIMIT_LOG_LINE - 2);
    memset(big, '\n', sizeof(big) - 1);
    log_info(base, "%s", big);
    line = written();
    assert_true(strlen(line) < LIMIT_LOG_LINE);
    assert_ptr_equal(strchr(line, '\n'), line + strlen(line) - 1);
}

static void
log_all_levels(void)
{
    log_error(cache, "e");
    log_warn(cache, "w");
    log_info(cache, "i");
    log_debug(cache, "d");
    log_trace(cache, "t");
}

static size_t
lines(void)
{
    size_t count = 0;
    for (const char *at = written(); *at; at++)
        count += *at == '\n';
    return count;
}

static void
test_levels(void **state)
{
    (void)state;
    static const char *const levels[] = { "error", "warn", "info", "debug", "trace" };
    struct err err = ERR_INIT;
    log_all_levels();
    assert_int_equal(lines(), 3); /* "info" unless told otherwise */
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(log_configure(levels[i], &err), 0);
        log_all_levels();
        assert_int_equal(lines(), i + 1);
    }
}

static void
test_components(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    assert_int_equal(log_configure("warn,s3=debug,cache=trace", &err), 0);
    assert_true(log_enabled(LOG_s3, LOG_LEVEL_DEBUG));
    assert_false(log_enabled(LOG_s3, LOG_LEVEL_TRACE));
    assert_true(log_enabled(LOG_cache, LOG_LEVEL_TRACE));
    assert_true(log_enabled(LOG_mount, LOG_LEVEL_WARN));
    assert_false(log_enabled(LOG_mount, LOG_LEVEL_INFO));
    /* the general level does not override, wherever it stands */
    assert_int_equal(log_configure("s3=debug,error", &err), 0);
    assert_true(log_enabled(LOG_s3, LOG_LEVEL_DEBUG));
    assert_false(log_enabled(LOG_cache, LOG_LEVEL_WARN));
}

static void
test_bad_specs_change_nothing(void **state)
{
    (void)state;
    static const char *const bad[] = { "loud",
                                       "s3",
                                       "s3=",
                                       "=debug",
                                       "disk=info",
                                       "info,,warn",
                                       "info;s3=debug",
                                       "INFO",
                                       "s3=debug=trace",
                                       "error,s3=louder",
                                       "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct err err = ERR_INIT;
        assert_int_equal(log_configure(bad[i], &err), -1);
        assert_int_equal(err.code, ERR_USAGE);
        assert_true(log_enabled(LOG_s3, LOG_LEVEL_INFO));
        assert_false(log_enabled(LOG_s3, LOG_LEVEL_DEBUG));
    }
    struct err err = ERR_INIT;
    assert_int_equal(log_configure("chache=info", &err), -1);
    assert_string_equal(err.msg, "unknown log component 'chache', did you mean 'cache'?");
    assert_int_equal(log_configure("s3=debgu", &err), -1);
    assert_string_equal(err.msg, "unknown log level 'debgu', did you mean 'debug'?");
}

static unsigned evaluated;

static int
count_evaluation(void)
{
    return (int)++evaluated;
}

static void
test_disabled_arguments_are_not_evaluated(void **state)
{
    (void)state;
    log_debug(base, "%d", count_evaluation());
    log_trace(base, "%d", count_evaluation());
    assert_int_equal(evaluated, 0);
}

static void *
write_many(void *arg)
{
    for (int i = 0; i < 200; i++)
        log_info(base, "%s", (const char *)arg);
    return NULL;
}

static void
test_threads_write_whole_lines(void **state)
{
    (void)state;
    char a[101], b[101];
    memset(a, 'a', 100);
    memset(b, 'b', 100);
    a[100] = b[100] = '\0';
    pthread_t threads[2];
    assert_int_equal(pthread_create(&threads[0], NULL, write_many, a), 0);
    assert_int_equal(pthread_create(&threads[1], NULL, write_many, b), 0);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    char want[2][160];
    (void)snprintf(want[0], sizeof(want[0]), "2026-07-01T10:00:00Z info  base %s", a);
    (void)snprintf(want[1], sizeof(want[1]), "2026-07-01T10:00:00Z info  base %s", b);
    size_t count = 0;
    char *rest;
    (void)written();
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        assert_true(strcmp(line, want[0]) == 0 || strcmp(line, want[1]) == 0);
        count++;
    }
    assert_int_equal(count, 400);
}

/* A log that cannot be written harms nobody. */
static void
test_broken_target(void **state)
{
    (void)state;
    log_redirect(-1);
    log_error(base, "lost");
    log_redirect(fd);
    assert_string_equal(written(), "");
}

#define test(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        test(test_line),
        test(test_control_characters_stay_in_one_line),
        test(test_long_line_is_cut),
        test(test_levels),
        test(test_components),
        test(test_bad_specs_change_nothing),
        test(test_disabled_arguments_are_not_evaluated),
        test(test_threads_write_whole_lines),
        test(test_broken_target),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
