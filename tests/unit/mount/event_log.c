#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "mount/event_log.h"

static struct event_log *history;
static struct event_item *items;
static struct err err = ERR_INIT;

static int
setup(void **state)
{
    (void)state;
    history = event_log_new(&err);
    items = calloc(EVENT_LOG_ITEMS, sizeof(*items));
    return history && items ? 0 : -1;
}

static int
teardown(void **state)
{
    (void)state;
    event_log_free(history);
    free(items);
    return 0;
}

static void
happen(int64_t volume, enum volume_event_kind kind, const char *name)
{
    struct volume_event event = { .kind = kind, .volume = volume, .node = 3, .name = name };
    event_log_event(history, &event);
}

static void
test_only_what_is_wanted(void **state)
{
    (void)state;
    uint64_t first = 0;
    happen(1, VOLUME_EVENT_CREATED, "before");
    assert_int_equal(event_log_want(history, 1, &err), 0);
    assert_int_equal(event_log_want(history, 1, &err), 0);
    happen(1, VOLUME_EVENT_CREATED, "a");
    happen(2, VOLUME_EVENT_CREATED, "other");
    happen(1, VOLUME_EVENT_OPENED, "for kernels");
    happen(0, VOLUME_EVENT_STORE, "");
    assert_int_equal(event_log_read(history, 1, 0, items, &first), 2);
    assert_string_equal(items[0].name, "a");
    assert_true(items[0].seq == first && items[1].seq == first + 1);
    assert_int_equal(items[1].kind, VOLUME_EVENT_STORE);
    assert_int_equal(event_log_read(history, 1, first, items, &first), 1);
    assert_int_equal(event_log_read(history, 1, first + 1, items, &first), 0);
    assert_int_equal(event_log_read(history, 2, 0, items, &first), 0);
    event_log_release(history, 1);
    assert_int_equal(event_log_read(history, 1, 0, items, &first), 2);
    event_log_release(history, 1);
    assert_int_equal(event_log_read(history, 1, 0, items, &first), 0);
}

static void
test_the_last_ones(void **state)
{
    (void)state;
    uint64_t first = 0, begun = 0;
    char name[16];
    assert_int_equal(event_log_want(history, 1, &err), 0);
    assert_int_equal(event_log_read(history, 1, 0, items, &begun), 0);
    for (unsigned i = 0; i < 3 * EVENT_LOG_ITEMS + 7; i++) {
        (void)snprintf(name, sizeof(name), "%u", i);
        happen(1, VOLUME_EVENT_CHANGED, name);
    }
    assert_int_equal(event_log_read(history, 1, 0, items, &first), EVENT_LOG_ITEMS);
    assert_true(first == begun + 2 * EVENT_LOG_ITEMS + 7);
    for (unsigned i = 0; i < EVENT_LOG_ITEMS; i++) {
        (void)snprintf(name, sizeof(name), "%u", 2 * EVENT_LOG_ITEMS + 7 + i);
        assert_string_equal(items[i].name, name);
        assert_true(items[i].seq == first + i);
    }
    event_log_release(history, 1);
}

int
main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_only_what_is_wanted),
        T(test_the_last_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
