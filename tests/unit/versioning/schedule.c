#include "versioning/schedule.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"

#define MINUTE (60 * NS_PER_S)
#define HOUR (60 * MINUTE)
#define DAY (24 * HOUR)

static int64_t
at(const char *text)
{
    int64_t ns;
    if (time_parse_rfc3339(text, &ns) != 0)
        fail_msg("'%s' is no time", text);
    return ns;
}

static struct schedule_rule
rule_of(const char *text)
{
    struct schedule_rule rule;
    struct err err = ERR_INIT;
    if (schedule_parse(text, &rule, &err) != 0)
        fail_msg("'%s': %s", text, err.msg);
    return rule;
}

/* ---- a gateway that ticks ---- */

#define MOST 3000
static struct {
    struct schedule_taken taken[MOST]; /* by time */
    size_t count;
    int64_t next_id;
    unsigned takes, drops;
} rig;

static int
by_time(const void *a, const void *b)
{
    const struct schedule_taken *one = a, *two = b;
    return one->at_ns != two->at_ns ? (one->at_ns > two->at_ns) - (one->at_ns < two->at_ns)
                                    : (one->id > two->id) - (one->id < two->id);
}

static void
begin(void)
{
    memset(&rig, 0, sizeof(rig));
}

static void
put(int64_t at_ns)
{
    assert_true(rig.count < MOST);
    rig.taken[rig.count++] = (struct schedule_taken){ .id = ++rig.next_id, .at_ns = at_ns };
    qsort(rig.taken, rig.count, sizeof(rig.taken[0]), by_time);
}

static void
remove_dropped(void)
{
    size_t left = 0;
    for (size_t i = 0; i < rig.count; i++)
        if (rig.taken[i].drop)
            rig.drops++;
        else
            rig.taken[left++] = rig.taken[i];
    rig.count = left;
}

static bool
tick(const struct schedule_rule *rule, int64_t now_ns)
{
    struct schedule_plan plan;
    schedule_plan(rule, now_ns, rig.taken, rig.count, &plan);
    bool took = plan.take;
    if (took) {
        assert_int_equal(plan.next_ns, now_ns);
        put(now_ns);
        rig.takes++;
        schedule_plan(rule, now_ns, rig.taken, rig.count, &plan);
        assert_false(plan.take);
        assert_true(plan.next_ns > now_ns);
    }
    remove_dropped();
    schedule_plan(rule, now_ns, rig.taken, rig.count, &plan);
    assert_int_equal(plan.drops, 0);
    return took;
}

static void
run(const struct schedule_rule *rule, int64_t from_ns, int64_t to_ns, int64_t step_ns)
{
    for (int64_t now = from_ns; now < to_ns; now += step_ns)
        (void)tick(rule, now);
}

static bool
has(const char *text)
{
    for (size_t i = 0; i < rig.count; i++)
        if (rig.taken[i].at_ns == at(text))
            return true;
    return false;
}

/* ---- rules and names ---- */

static void
rules_in_words(void **state)
{
    static const char *const bad[] = { "",
                                       "on",
                                       "hourly",
                                       "hourly=",
                                       "hourly=0",
                                       "hourly=1001",
                                       "hourly=-1",
                                       "hourly=1,",
                                       "yearly=1",
                                       "daily=1x",
                                       "daily=1, weekly=2",
                                       "off,daily=1",
                                       "daily=1,daily=2",
                                       "daily=00000000000000000001" };
    static const char *const good[] = { "off", "hourly=24,daily=7,weekly=4,monthly=12", "daily=1",
                                        "hourly=1000,monthly=1000", "weekly=3" };
    (void)state;
    struct schedule_rule rule;
    char text[SCHEDULE_TEXT_SIZE];
    struct err err = ERR_INIT;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        if (schedule_parse(bad[i], &rule, &err) == 0)
            fail_msg("'%s' is taken for a rule", bad[i]);
        assert_int_equal(err.code, ERR_INVAL);
    }
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        rule = rule_of(good[i]);
        schedule_print(&rule, text);
        assert_string_equal(text, good[i]);
        assert_int_equal(schedule_is_on(&rule), i > 0);
        struct schedule_rule back = schedule_unpack(schedule_pack(&rule));
        assert_memory_equal(&back, &rule, sizeof(rule));
    }
    rule = rule_of("monthly=2,hourly=3");
    schedule_print(&rule, text);
    assert_string_equal(text, "hourly=3,monthly=2");
}

static void
names_from_times(void **state)
{
    static const char *const others[] = { "",
                                          "auto-",
                                          "auto-2026-01-31",
                                          "auto-2026-01-31-1400000",
                                          "daily",
                                          "auto-2026-13-31-140000",
                                          "auto-2026-01-31_140000",
                                          "auto-2026-01-31-14000x" };
    (void)state;
    char name[LIMIT_VOLUME_NAME + 1];
    int64_t ns;
    schedule_name(at("2026-01-31T14:00:59.9Z"), name);
    assert_string_equal(name, "auto-2026-01-31-140059");
    assert_true(schedule_name_time(name, &ns));
    assert_int_equal(ns, at("2026-01-31T14:00:59Z"));
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (schedule_name_time(others[i], &ns))
            fail_msg("'%s' is taken for a name of the rule", others[i]);
}

/* ---- the plan ---- */

static void
off_takes_and_drops_nothing(void **state)
{
    (void)state;
    struct schedule_rule off = rule_of("off");
    begin();
    for (int i = 0; i < 100; i++)
        put(at("2026-01-01T00:00:00Z") + i * HOUR);
    assert_false(tick(&off, at("2026-06-01T00:00:00Z")));
    assert_int_equal(rig.count, 100);
}

/* What is left after 400 days of ticks each 10 minutes, counted by hand. */
static void
a_year_leaves_what_the_rule_says(void **state)
{
    (void)state;
    struct schedule_rule rule = rule_of("hourly=24,daily=7,weekly=4,monthly=12");
    begin();
    run(&rule, at("2025-01-01T00:00:00Z"), at("2025-12-31T23:59:00Z"), 10 * MINUTE);
    assert_int_equal(rig.takes, 365 * 24);
    for (int hour = 0; hour < 24; hour++) {
        char text[32];
        (void)snprintf(text, sizeof(text), "2025-12-31T%02d:00:00Z", hour);
        assert_true(has(text));
    }
    for (int day = 25; day <= 31; day++) {
        char text[32];
        (void)snprintf(text, sizeof(text), "2025-12-%02dT00:00:00Z", day);
        assert_true(has(text));
    }
    assert_true(has("2025-12-29T00:00:00Z") && has("2025-12-22T00:00:00Z") &&
                has("2025-12-15T00:00:00Z") && has("2025-12-08T00:00:00Z")); /* Mondays */
    for (int month = 1; month <= 12; month++) {
        char text[32];
        (void)snprintf(text, sizeof(text), "2025-%02d-01T00:00:00Z", month);
        assert_true(has(text));
    }
    /* 24 hours of the 31st, 6 more days, 3 more Mondays (the 29th is one of the days), 12 months. */
    assert_int_equal(rig.count, 24 + 6 + 3 + 12);
}

static void
months_and_weeks_begin_where_they_do(void **state)
{
    (void)state;
    struct schedule_rule weekly = rule_of("weekly=4"), monthly = rule_of("monthly=4");
    struct schedule_plan plan;
    begin();
    assert_true(tick(&weekly, at("2025-12-31T12:00:00Z")));
    schedule_plan(&weekly, at("2025-12-31T12:00:00Z"), rig.taken, rig.count, &plan);
    assert_int_equal(plan.next_ns, at("2026-01-05T00:00:00Z"));
    assert_false(tick(&weekly, at("2026-01-04T23:59:59Z")));
    assert_true(tick(&weekly, at("2026-01-05T00:00:00Z")));
    begin();
    assert_true(tick(&monthly, at("2027-12-31T12:00:00Z")));
    schedule_plan(&monthly, at("2027-12-31T12:00:00Z"), rig.taken, rig.count, &plan);
    assert_int_equal(plan.next_ns, at("2028-01-01T00:00:00Z"));
    assert_true(tick(&monthly, at("2028-02-29T00:00:00Z")));
    schedule_plan(&monthly, at("2028-02-29T00:00:00Z"), rig.taken, rig.count, &plan);
    assert_int_equal(plan.next_ns, at("2028-03-01T00:00:00Z"));
}

/* A month may begin within a week: each class has its own. */
static void
every_class_is_served(void **state)
{
    (void)state;
    struct schedule_rule rule = rule_of("weekly=2,monthly=2");
    begin();
    assert_true(tick(&rule, at("2026-07-27T03:00:00Z")));
    assert_false(tick(&rule, at("2026-07-31T23:00:00Z")));
    assert_true(tick(&rule, at("2026-08-01T01:00:00Z"))); /* a Saturday */
    assert_false(tick(&rule, at("2026-08-02T01:00:00Z")));
    assert_true(tick(&rule, at("2026-08-03T00:00:00Z")));
    assert_true(has("2026-08-01T01:00:00Z"));
}

static void
one_after_a_long_pause(void **state)
{
    (void)state;
    struct schedule_rule rule = rule_of("hourly=24,daily=3");
    begin();
    run(&rule, at("2026-03-01T00:00:00Z"), at("2026-03-03T00:00:00Z"), 10 * MINUTE);
    unsigned before = rig.takes;
    size_t kept = rig.count;
    run(&rule, at("2026-03-10T05:30:00Z"), at("2026-03-10T06:00:00Z"), MINUTE);
    assert_int_equal(rig.takes, before + 1);
    /* What is old stays: it goes by number. */
    assert_true(rig.count >= kept);
    assert_true(has("2026-03-10T05:30:00Z") && has("2026-03-02T23:00:00Z"));
}

/* The clock goes back three hours: the hours that come again have theirs, and nothing is taken and removed again and again. */
static void
a_clock_that_is_put_back(void **state)
{
    (void)state;
    struct schedule_rule rule = rule_of("hourly=4");
    begin();
    run(&rule, at("2026-03-01T00:00:00Z"), at("2026-03-01T12:30:00Z"), MINUTE);
    unsigned before = rig.takes;
    run(&rule, at("2026-03-01T09:30:00Z"), at("2026-03-01T12:30:00Z"), MINUTE);
    assert_int_equal(rig.takes, before + 4); /* in the hours 9, 10, 11, 12 */
    run(&rule, at("2026-03-01T12:30:00Z"), at("2026-03-01T18:00:00Z"), MINUTE);
    assert_int_equal(rig.takes, before + 4 + 5);
    assert_int_equal(rig.count, 4);
    assert_true(has("2026-03-01T17:00:00Z") && has("2026-03-01T14:00:00Z"));
}

/* A year ahead for an hour, and back. */
static void
a_clock_that_is_put_forward(void **state)
{
    (void)state;
    struct schedule_rule rule = rule_of("hourly=4,daily=2");
    begin();
    run(&rule, at("2026-03-01T00:00:00Z"), at("2026-03-01T12:30:00Z"), MINUTE);
    unsigned before = rig.takes;
    run(&rule, at("2027-03-01T12:31:00Z"), at("2027-03-01T12:59:00Z"), MINUTE);
    assert_int_equal(rig.takes, before + 1);
    assert_true(has("2026-03-01T12:00:00Z") && has("2026-03-01T10:00:00Z"));
    run(&rule, at("2026-03-01T12:59:00Z"), at("2026-03-01T16:30:00Z"), MINUTE);
    assert_int_equal(rig.takes, before + 1 + 5); /* once more in the hour 12, then 13 to 16 */
    /* That of the far day holds one place of each class. */
    assert_true(has("2027-03-01T12:31:00Z") && has("2026-03-01T16:00:00Z") &&
                has("2026-03-01T14:00:00Z"));
    assert_true(rig.count <= 6);
}

static void
fewer_are_kept_when_the_rule_says_so(void **state)
{
    (void)state;
    struct schedule_rule many = rule_of("hourly=24"), few = rule_of("hourly=3");
    begin();
    run(&many, at("2026-03-01T00:00:00Z"), at("2026-03-02T12:30:00Z"), 10 * MINUTE);
    assert_int_equal(rig.count, 24);
    assert_false(tick(&few, at("2026-03-02T12:31:00Z")));
    assert_int_equal(rig.count, 3);
    assert_true(has("2026-03-02T12:00:00Z") && has("2026-03-02T10:00:00Z"));
}

/* Whatever is there: never the last one, at most what the rule adds up to, and each class has its newest first one. */
static void
any_set_of_them(void **state)
{
    (void)state;
    struct schedule_rule rule = rule_of("hourly=3,daily=2,weekly=2,monthly=1");
    uint64_t seed = 1;
    for (unsigned round = 0; round < 2000; round++) {
        struct schedule_plan plan;
        int64_t last = 0;
        begin();
        for (unsigned i = 0; i < round % 40; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            put(at("2026-01-01T00:00:00Z") + (int64_t)(seed >> 33) % (90 * 24 * 60) * MINUTE);
        }
        schedule_plan(&rule, at("2026-02-01T00:00:00Z"), rig.taken, rig.count, &plan);
        size_t drops = 0, left = 0;
        for (size_t i = 0; i < rig.count; i++) {
            drops += rig.taken[i].drop;
            left += !rig.taken[i].drop;
            last = rig.taken[i].id == rig.next_id && rig.taken[i].drop ? -1 : last;
        }
        assert_int_equal(drops, plan.drops);
        assert_true(left <= 3 + 2 + 2 + 1 + 1);
        assert_true(rig.count == 0 || left >= (rig.count < 3 ? 1 : 2));
        assert_int_equal(last, 0);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_in_words),
        cmocka_unit_test(names_from_times),
        cmocka_unit_test(off_takes_and_drops_nothing),
        cmocka_unit_test(a_year_leaves_what_the_rule_says),
        cmocka_unit_test(months_and_weeks_begin_where_they_do),
        cmocka_unit_test(every_class_is_served),
        cmocka_unit_test(one_after_a_long_pause),
        cmocka_unit_test(a_clock_that_is_put_back),
        cmocka_unit_test(a_clock_that_is_put_forward),
        cmocka_unit_test(fewer_are_kept_when_the_rule_says_so),
        cmocka_unit_test(any_set_of_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
