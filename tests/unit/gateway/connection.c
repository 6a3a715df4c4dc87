/* The deadlines of connections, with limits of milliseconds: who is slow is ended, who is not stays. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "gateway/connection.h"

#define MS 1000000ll

static const struct gateway_connection_limits limits = {
    .head_ns = 500 * MS, .body_window_ns = 500 * MS, .body_window_bytes = 1000, .reply_ns = 500 * MS
};

struct fixture {
    struct gateway_connection_table *table;
    struct gateway_connection *connection;
    int ours, theirs;
};

static void
begin(struct fixture *f)
{
    struct err err = ERR_INIT;
    int pair[2];
    f->table = gateway_connection_table_new(&limits, &err);
    assert_non_null(f->table);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    f->ours = pair[0];
    f->theirs = pair[1];
    f->connection = gateway_connection_add(f->table, f->ours, true);
    assert_non_null(f->connection);
    assert_true(gateway_connection_allowed(f->connection));
}

/* Whether the other side saw the end within `ms`; `text` gets what came before it. */
static bool
ended(struct fixture *f, int64_t ms, char *text, size_t size)
{
    int64_t end = clock_mono_ns() + ms * MS;
    size_t len = 0;
    while (clock_mono_ns() < end) {
        ssize_t got = recv(f->theirs, text + len, size - 1 - len, MSG_DONTWAIT);
        if (got == 0) {
            text[len] = '\0';
            return true;
        }
        if (got > 0)
            len += (size_t)got;
        clock_sleep_ns(20 * MS);
    }
    return false;
}

static void
finish(struct fixture *f)
{
    gateway_connection_remove(f->table, f->connection);
    gateway_connection_table_free(f->table);
    (void)close(f->ours);
    (void)close(f->theirs);
}

static void
test_slow_head(void **state)
{
    struct fixture f;
    char text[256];
    (void)state;
    begin(&f);
    assert_true(ended(&f, 4000, text, sizeof(text)));
    assert_non_null(strstr(text, "HTTP/1.1 408 "));
    finish(&f);
}

static void
test_busy_is_not_slow(void **state)
{
    struct fixture f;
    char text[256];
    (void)state;
    begin(&f);
    gateway_connection_enter(f.table, f.connection, GATEWAY_PHASE_BUSY, 0);
    assert_false(ended(&f, 2500, text, sizeof(text)));
    finish(&f);
}

static void
test_slow_body(void **state)
{
    struct fixture f;
    char text[256];
    (void)state;
    begin(&f);
    gateway_connection_enter(f.table, f.connection, GATEWAY_PHASE_BODY, 0);
    /* a byte now and then does not save it: the clock is not the library's */
    for (int i = 0; i < 10; i++) {
        gateway_connection_enter(f.table, f.connection, GATEWAY_PHASE_BUSY, 0);
        gateway_connection_enter(f.table, f.connection, GATEWAY_PHASE_BODY, 1);
        clock_sleep_ns(100 * MS);
    }
    assert_true(ended(&f, 2500, text, sizeof(text)));
    assert_non_null(strstr(text, "HTTP/1.1 408 "));
    finish(&f);
}

static void
test_fast_body_stays(void **state)
{
    struct fixture f;
    char text[256];
    (void)state;
    begin(&f);
    gateway_connection_enter(f.table, f.connection, GATEWAY_PHASE_BODY, 0);
    for (int i = 0; i < 30; i++) {
        gateway_connection_enter(f.table, f.connection, GATEWAY_PHASE_BUSY, 0);
        gateway_connection_enter(f.table, f.connection, GATEWAY_PHASE_BODY, 2000);
        assert_false(ended(&f, 100, text, sizeof(text)));
    }
    finish(&f);
}

static void
test_slow_reader(void **state)
{
    struct fixture f;
    char text[256];
    (void)state;
    begin(&f);
    gateway_connection_enter(f.table, f.connection, GATEWAY_PHASE_REPLY, 0);
    assert_true(ended(&f, 4000, text, sizeof(text)));
    assert_string_equal(text, ""); /* in the middle of an answer nothing may be added */
    finish(&f);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slow_head),   cmocka_unit_test(test_busy_is_not_slow),
        cmocka_unit_test(test_slow_body),   cmocka_unit_test(test_fast_body_stays),
        cmocka_unit_test(test_slow_reader),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
