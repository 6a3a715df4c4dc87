#include "base/scope.h"
#include "tests/unit/volume/volume_fixture.h"
#include "volume/admin_impl.h"
#include "volume/prune_impl.h"
#include "volume/timed_impl.h"

/* Snapshots by a rule. Months, so that no clock's hour ends between two steps; the service's own thread is stopped, the ticks are the test's. */

#define DAY (24ll * 3600 * NS_PER_S)
#define MONTH (32 * DAY)

static int
setup(void **state)
{
    int rc = rig_setup(state);
    timed_stop(rig.service);
    return rc;
}

static int
rule_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct index_volume row;
    struct schedule_rule rule;
    if (schedule_parse(arg, &rule, err) != 0 || index_volume_get(tx, rig.volume, &row, err) != 0)
        return -1;
    row.options = schedule_pack(&rule) << INDEX_VOLUME_SCHEDULE_SHIFT;
    return index_volume_update(tx, &row, err);
}

static void
set_rule(char *text)
{
    RUN_OK(rig.err, index_write(rig.service->index, INDEX_NORMAL, rule_tx, text, &rig.err));
}

struct names {
    char text[512], last[LIMIT_VOLUME_NAME + 1];
    unsigned automatic, others;
};

static int
add_name(void *arg, const struct volume_snapshot *snapshot, struct err *err)
{
    struct names *names = arg;
    (void)err;
    if (!snapshot->automatic)
        names->others++;
    else
        names->automatic++;
    text_set(names->last, snapshot->name);
    return 0;
}

static struct names
taken(void)
{
    struct names names = { .automatic = 0 };
    RUN_OK(rig.err, volume_snapshot_each(rig.service, rig.volume, add_name, &names, &rig.err));
    return names;
}

static void
assert_last(int64_t ns)
{
    char name[LIMIT_VOLUME_NAME + 1];
    schedule_name(ns, name);
    assert_string_equal(taken().last, name);
}

static int64_t
next(void)
{
    int64_t ns = -1;
    RUN_OK(rig.err, volume_snapshot_next(rig.service, rig.volume, &ns, &rig.err));
    return ns;
}

static void
one_a_month_and_none_for_nothing(void **state)
{
    (void)state;
    int64_t now = clock_wall_ns();
    timed_run(rig.service, now);
    assert_int_equal(next(), 0);
    assert_int_equal(taken().automatic, 0);

    set_rule("monthly=3");
    save("f", "one");
    assert_true(next() <= clock_wall_ns());
    timed_run(rig.service, now);
    assert_int_equal(taken().automatic, 1);
    assert_last(now);
    assert_true(next() > clock_wall_ns() && next() <= clock_wall_ns() + MONTH);
    save("f", "two");
    timed_run(rig.service, now);
    assert_int_equal(taken().automatic, 1);

    timed_run(rig.service, now + MONTH);
    assert_last(now + MONTH);
    /* Reading changes nothing. */
    assert_reads("f", "two");
    timed_run(rig.service, now + 2 * MONTH);
    assert_last(now + MONTH);
    make_dir("d");
    timed_run(rig.service, now + 3 * MONTH);
    assert_last(now + 3 * MONTH);
    unlink_at("f");
    timed_run(rig.service, now + 4 * MONTH);
    assert_last(now + 4 * MONTH);
    timed_run(rig.service, now + 5 * MONTH);
    assert_last(now + 4 * MONTH);
}

/* What another client put into the bucket counts once it was seen. */
static void
of_others_too(void **state)
{
    (void)state;
    int64_t now = clock_wall_ns();
    set_rule("monthly=9");
    save("f", "one");
    timed_run(rig.service, now);
    clock_sleep_ns(20 * NS_PER_MS);
    foreign_put("theirs", "other bytes");
    relist("");
    timed_run(rig.service, now + MONTH);
    assert_last(now + MONTH);
}

/* ---- what goes by the rule, and what that frees ---- */

static int
count_tx(struct index_tx *tx, void *arg, struct err *err)
{
    uint64_t *out = arg, bytes;
    return index_history_usage(tx, rig.volume, out, &bytes, err);
}

static uint64_t
kept(void)
{
    uint64_t count = 0;
    RUN_OK(rig.err, index_read(rig.service->index, count_tx, &count, &rig.err));
    return count;
}

static int
age_snapshot(void *arg, const struct index_snapshot *row, struct err *err)
{
    (void)err;
    ((struct index_snapshot *)arg)[0] = *row;
    return 1;
}

static int
take_row(void *arg, const struct index_history *row, struct err *err)
{
    (void)err;
    *(struct index_history *)arg = *row;
    return 1;
}

/* The first snapshot, and the one version that ended, are 100 days old. */
static int
age_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct index_history row = { 0 };
    struct index_snapshot snapshot = { 0 };
    (void)arg;
    if (index_history_at(tx, rig.volume, "f", 1, take_row, &row, err) != 0 ||
        index_snapshot_each(tx, rig.volume, age_snapshot, &snapshot, err) != 0)
        return -1;
    row.made_ns -= 100 * DAY;
    row.gone_ns -= 100 * DAY;
    snapshot.at_ns -= 100 * DAY;
    return index_history_put(tx, &row, err) != 0 || index_snapshot_update(tx, &snapshot, err) != 0
               ? -1
               : 0;
}

static void
what_goes_frees_what_it_kept(void **state)
{
    (void)state;
    struct volume_snapshot mine;
    struct err err = ERR_INIT;
    char key[LIMIT_KEY + 1];
    size_t dropped = 0;
    int64_t now = clock_wall_ns();
    set_rule("monthly=2");
    save("f", "one");
    timed_run(rig.service, now);
    assert_int_equal(taken().automatic, 1);
    (void)snprintf(key, sizeof(key), ".holdfast/snapshots/v/%s.json.zst", taken().last);
    for (int i = 0; i < 60000 && store_head(rig.mem, key, 0, NULL, &err) != 0; i++)
        clock_sleep_ns(NS_PER_MS);
    save("f", "two");
    flush();
    RUN_OK(rig.err, index_write(rig.service->index, INDEX_NORMAL, age_tx, NULL, &rig.err));
    RUN_OK(rig.err, prune_all(rig.service, &dropped, &rig.err));
    assert_int_equal(dropped, 0);
    assert_int_equal(kept(), 1);

    /* The last one is in another month now. */
    timed_run(rig.service, now + 2 * NS_PER_S);
    assert_int_equal(taken().automatic, 2);
    RUN_OK(rig.err,
           volume_snapshot_create(rig.service, &rig.ctx, rig.volume, "mine", &mine, &rig.err));
    save("f", "three");
    flush();
    set_rule("monthly=1");
    timed_run(rig.service, now + 2 * NS_PER_S);
    assert_int_equal(taken().automatic, 1);
    assert_int_equal(taken().others, 1);
    for (int i = 0; i < 60000 && kept() > 1; i++)
        clock_sleep_ns(NS_PER_MS);
    assert_int_equal(kept(), 1); /* "two", which has just gone */
    flush();
    assert_int_equal(store_head(rig.mem, key, 0, NULL, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);

    /* Without a rule all that is left stays. */
    set_rule("off");
    timed_run(rig.service, now + 12 * MONTH);
    assert_int_equal(taken().automatic, 1);
    assert_int_equal(taken().others, 1);
}

static void
names_of_the_rule_are_its_own(void **state)
{
    (void)state;
    struct volume_snapshot snapshot;
    struct err err = ERR_INIT;
    assert_int_equal(volume_snapshot_create(rig.service, &rig.ctx, rig.volume,
                                            "auto-2026-01-31-140000", &snapshot, &err),
                     -1);
    assert_int_equal(err.code, ERR_INVAL);
    assert_int_equal(
        volume_snapshot_create(rig.service, &rig.ctx, rig.volume, "auto-mine", &snapshot, &err),
        -1);
    RUN_OK(rig.err, volume_snapshot_create(rig.service, &rig.ctx, rig.volume, "autumn", &snapshot,
                                           &rig.err));
    assert_false(snapshot.automatic);
}

/* Another gateway on this bucket has taken this month's. */
static void
not_twice_on_one_bucket(void **state)
{
    (void)state;
    char name[LIMIT_VOLUME_NAME + 1], key[LIMIT_KEY + 1];
    int64_t now = clock_wall_ns();
    set_rule("monthly=2");
    save("f", "one");
    flush();
    schedule_name(now - NS_PER_S, name);
    (void)snprintf(key, sizeof(key), ".holdfast/snapshots/v/%s.json.zst", name);
    struct store_put_result result;
    RUN_OK(rig.err,
           store_put_small(rig.mem, key, "other", 5, (struct store_cond){ .kind = STORE_COND_NONE },
                           &result, &rig.err));
    timed_run(rig.service, now);
    assert_int_equal(taken().automatic, 0);
    timed_run(rig.service, now + MONTH);
    assert_last(now + MONTH);
}

static void
a_store_that_is_away(void **state)
{
    (void)state;
    int64_t now = clock_wall_ns();
    set_rule("monthly=2");
    save("f", "one");
    flush();
    atomic_store(&rig.hook->fail[HOOK_LIST], -1);
    timed_run(rig.service, now);
    assert_int_equal(taken().automatic, 0);
    atomic_store(&rig.hook->fail[HOOK_LIST], 0);
    timed_run(rig.service, now);
    assert_int_equal(taken().automatic, 1);
}

/* ---- settings ---- */

static void
settings_travel_in_the_bucket(void **state)
{
    (void)state;
    struct schedule_rule rule, off = { { 0 } };
    struct volume_settings settings = { .name = "v", .snapshots = &rule, .conflict_copy = true };
    struct volume_info info;
    struct index_volume row;
    struct err err = ERR_INIT;
    scope_free char *data = NULL;
    size_t len;
    char text[SCHEDULE_TEXT_SIZE];
    RUN_OK(rig.err, schedule_parse("hourly=24,monthly=12", &rule, &rig.err));
    RUN_OK(rig.err, volume_set(rig.service, "v", &settings, &rig.err));
    RUN_OK(rig.err, volume_find(rig.service, "v", &info, &rig.err));
    schedule_print(&info.snapshots, text);
    assert_string_equal(text, "hourly=24,monthly=12");
    assert_true(info.conflict_copy);
    RUN_OK(rig.err, store_get_small(rig.mem, ".holdfast/volumes/v.json", 65536, &data, &len, NULL,
                                    &rig.err));
    RUN_OK(rig.err, admin_settings_read(data, len, &row, &rig.err));
    assert_true(row.options ==
                (schedule_pack(&rule) << INDEX_VOLUME_SCHEDULE_SHIFT | INDEX_VOLUME_CONFLICT_COPY));

    /* No history, no snapshots; what is not said stays. */
    settings.snapshots = NULL;
    settings.history_ns = -1;
    assert_int_equal(volume_set(rig.service, "v", &settings, &err), -1);
    assert_int_equal(err.code, ERR_INVAL);
    settings.history_ns = 0;
    RUN_OK(rig.err, volume_set(rig.service, "v", &settings, &rig.err));
    RUN_OK(rig.err, volume_find(rig.service, "v", &info, &rig.err));
    assert_int_equal(schedule_pack(&info.snapshots), schedule_pack(&rule));
    settings.snapshots = &off;
    settings.history_ns = -1;
    RUN_OK(rig.err, volume_set(rig.service, "v", &settings, &rig.err));
}

int
main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, rig_teardown)
    const struct CMUnitTest tests[] = {
        T(one_a_month_and_none_for_nothing), T(of_others_too),
        T(what_goes_frees_what_it_kept),     T(names_of_the_rule_are_its_own),
        T(not_twice_on_one_bucket),          T(a_store_that_is_away),
        T(settings_travel_in_the_bucket),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
