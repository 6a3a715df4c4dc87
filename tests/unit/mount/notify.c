#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/clock.h"
#include "mount/notify.h"

static void
test_plan(void **state)
{
    (void)state;
    assert_true(notify_plan(VOLUME_EVENT_CREATED).name); /* a negative entry may be cached */
    assert_false(notify_plan(VOLUME_EVENT_CREATED).node_data);
    assert_true(notify_plan(VOLUME_EVENT_CHANGED).node_data);
    assert_true(notify_plan(VOLUME_EVENT_OPENED).node_data);
    assert_false(notify_plan(VOLUME_EVENT_OPENED).name);
    assert_true(notify_plan(VOLUME_EVENT_REMOVED).name);
    assert_true(notify_plan(VOLUME_EVENT_REMOVED).removed);
    assert_false(notify_plan(VOLUME_EVENT_RENAMED).removed);
    assert_true(notify_plan(VOLUME_EVENT_RENAMED).name);
    assert_true(notify_plan(VOLUME_EVENT_REMOVED).node_attrs); /* an open one lost its link */
    static const enum volume_event_kind quiet[] = { VOLUME_EVENT_SYNCED, VOLUME_EVENT_CONFLICT,
                                                    VOLUME_EVENT_STORE };
    for (size_t i = 0; i < sizeof(quiet) / sizeof(quiet[0]); i++) {
        struct notify_plan plan = notify_plan(quiet[i]);
        assert_false(plan.name || plan.node_data || plan.node_attrs);
    }
}

static _Atomic unsigned asked, asked_all;
static _Atomic bool hold;

static size_t
no_sessions(void *arg, int64_t volume, struct session **out, size_t max)
{
    (void)arg;
    (void)out;
    (void)max;
    if (volume == 0) {
        asked_all++;
        return 0;
    }
    assert_int_equal(volume, 3);
    asked++;
    while (hold)
        clock_sleep_ns(NS_PER_MS);
    return 0;
}

/* The volume's thread is never held up: what does not fit is not told, but then nothing is believed any more. */
static void
test_bounded(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct notifier *notifier = notifier_new(no_sessions, NULL, 8, &err);
    struct volume_event event = { VOLUME_EVENT_CHANGED, 3, 4, 5, "name", 0 };
    assert_non_null(notifier);
    hold = true;
    notifier_event(notifier, &event);
    for (int i = 0; i < 30000 && asked < 1; i++)
        clock_sleep_ns(NS_PER_MS);
    int64_t start = clock_mono_ns();
    for (int i = 0; i < 100; i++)
        notifier_event(notifier, &event);
    event.kind = VOLUME_EVENT_SYNCED;
    notifier_event(notifier, &event);
    assert_true(clock_mono_ns() - start < 20 * NS_PER_S);
    hold = false;
    for (int i = 0; i < 30000 && asked < 9; i++)
        clock_sleep_ns(NS_PER_MS);
    clock_sleep_ns(20 * NS_PER_MS);
    assert_int_equal(asked, 9); /* the one under way and eight that waited */
    assert_int_equal(asked_all, 1);
    event.kind = VOLUME_EVENT_LOST; /* the volume's own queue was too short */
    notifier_event(notifier, &event);
    for (int i = 0; i < 30000 && asked_all < 2; i++)
        clock_sleep_ns(NS_PER_MS);
    assert_int_equal(asked_all, 2);
    notifier_free(notifier);
}

int
main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_plan),
                                        cmocka_unit_test(test_bounded) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
