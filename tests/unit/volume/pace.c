#include "tests/unit/volume/volume_fixture.h"

/* A store that takes one write of a key in an interval, and refuses the second as R2 does with 429. */

#define INTERVAL (400 * NS_PER_MS)

static struct store_ops ops;
static int (*plain_put)(struct store *store, const struct store_put *req,
                        struct store_put_result *res, struct err *err);
static _Atomic int64_t last_put;
static atomic_uint sent, refused;

static int
strict_put(struct store *store, const struct store_put *req, struct store_put_result *res,
           struct err *err)
{
    if (strcmp(req->key, "v/f") != 0)
        return plain_put(store, req, res, err);
    int64_t now = clock_mono_ns();
    if (atomic_load(&last_put) != 0 && now - atomic_load(&last_put) < INTERVAL) {
        atomic_fetch_add(&refused, 1);
        res->outcome = STORE_NOT_DONE;
        return err_set(err, ERR_STORE_AWAY,
                       "429: reduce your concurrent request rate for the same object");
    }
    int rc = plain_put(store, req, res, err);
    atomic_store(&last_put, clock_mono_ns());
    atomic_fetch_add(&sent, 1);
    return rc;
}

static int
probe_paced(struct store *store, struct store_caps *caps, struct err *err)
{
    if (hook_probe(store, caps, err) != 0)
        return -1;
    caps->min_write_interval_ns = INTERVAL;
    return 0;
}

static void
adapt(struct hook_store *hook)
{
    ops = *hook->base.ops;
    plain_put = ops.put;
    ops.put = strict_put;
    ops.probe = probe_paced;
    hook->base.ops = &ops;
}

static int
begin(void **state)
{
    atomic_store(&last_put, 0);
    atomic_store(&sent, 0);
    atomic_store(&refused, 0);
    rig_adapt = adapt;
    return rig_setup(state);
}

/* R2 answers 429 to a second write of a key within a second. A burst of saves is one PUT for each interval, and none is
 * refused. */
static void
a_burst_of_saves_is_one_write_for_each_interval(void **state)
{
    (void)state;
    char text[32] = "";
    int64_t began = clock_mono_ns();
    for (int i = 0; i < 40; i++) {
        (void)snprintf(text, sizeof(text), "save %d", i);
        save("f", text);
        clock_sleep_ns(10 * NS_PER_MS);
    }
    flush();
    int64_t took = clock_mono_ns() - began;
    assert_bucket("f", text);
    assert_int_equal(atomic_load(&refused), 0);
    assert_true(atomic_load(&sent) >= 2);
    assert_true(atomic_load(&sent) <= (unsigned)(took / INTERVAL) + 1);
}

struct waiting {
    unsigned count;
    char why[160];
};

static int
note(void *arg, const struct volume_unsynced *row, struct err *err)
{
    struct waiting *waiting = arg;
    (void)err;
    waiting->count++;
    text_set(waiting->why, row->last_error);
    return 0;
}

static void
what_waits_says_why_and_holds_up_nobody(void **state)
{
    (void)state;
    struct waiting waiting = { 0 };
    save("f", "one");
    flush();
    save("f", "two");
    save("g", "other");
    for (int i = 0; i < 1000 && !in_bucket("g"); i++)
        clock_sleep_ns(NS_PER_MS);
    bool early = clock_mono_ns() - atomic_load(&last_put) < INTERVAL / 2;
    for (int i = 0; i < 20 && waiting.why[0] == '\0'; i++) {
        RUN_OK(rig.err,
               volume_unsynced_each(rig.service, rig.volume, 10, note, &waiting, &rig.err));
        clock_sleep_ns(5 * NS_PER_MS);
    }
    if (early)
        assert_non_null(strstr(waiting.why, "one write of a key"));
    flush();
    assert_bucket("f", "two");
    assert_int_equal(atomic_load(&refused), 0);
}

/* A delete is a write too. */
static void
a_removed_file_waits_as_well(void **state)
{
    (void)state;
    save("f", "one");
    flush();
    int64_t written = atomic_load(&last_put);
    unlink_at("f");
    flush();
    assert_false(in_bucket("f"));
    assert_true(clock_mono_ns() - written >= INTERVAL);
}

int
main(void)
{
#define ONE(name) cmocka_unit_test_setup_teardown(name, begin, rig_teardown)
    const struct CMUnitTest tests[] = {
        ONE(a_burst_of_saves_is_one_write_for_each_interval),
        ONE(what_waits_says_why_and_holds_up_nobody),
        ONE(a_removed_file_waits_as_well),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
