#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "s3/fault.h"
#include "s3/open.h"

static const struct store_cond none = { .kind = STORE_COND_NONE };
static const struct store_cond absent = { .kind = STORE_COND_ABSENT };
static struct err err;
static struct store_put_result res;

static int
setup(void **state)
{
    struct fault_plan plan = { .seed = 42 };
    struct store *mem = mem_store_open(&err);
    struct store *fault = mem ? fault_store_wrap(mem, &plan, &err) : NULL;

    *state = fault;
    return fault ? 0 : -1;
}

static int
teardown(void **state)
{
    store_free(*state);
    return 0;
}

static int
put(struct store *store, const char *key, const char *text, struct store_cond cond)
{
    return store_put_small(store, key, text, strlen(text), cond, &res, &err);
}

static void
assert_holds(struct store *store, const char *key, const char *text)
{
    char *data = NULL;
    size_t len = 0;

    assert_int_equal(store_get_small(store, key, 1000, &data, &len, NULL, &err), 0);
    assert_string_equal(data, text);
    free(data);
}

static void
assert_absent(struct store *store, const char *key)
{
    assert_int_equal(store_head(store, key, 0, NULL, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
}

static void
error_does_nothing(void **state)
{
    struct store *store = *state;

    fault_store_next(store, FAULT_ERROR);
    assert_int_equal(put(store, "k", "v", none), -1);
    assert_int_equal(err.code, ERR_STORE_AWAY);
    assert_int_equal(res.outcome, STORE_NOT_DONE);
    assert_absent(store, "k");
    fault_store_next(store, FAULT_DENIED);
    assert_int_equal(put(store, "k", "v", none), -1);
    assert_int_equal(err.code, ERR_STORE_DENIED);
    assert_absent(store, "k");
    fault_store_next(store, FAULT_ERROR);
    assert_int_equal(store_head(store, "k", 0, NULL, &err), -1);
    assert_int_equal(err.code, ERR_STORE_AWAY); /* INV-9: never "not found" */
}

static void
lost_answer_is_carried_out(void **state)
{
    struct store *store = *state;
    struct store_delete del = { .key = "k" };
    enum store_outcome outcome;

    fault_store_next(store, FAULT_LOST_ANSWER);
    assert_int_equal(put(store, "k", "v", absent), -1);
    assert_int_equal(err.code, ERR_STORE_TIMEOUT);
    assert_int_equal(res.outcome, STORE_UNKNOWN);
    assert_string_equal(res.etag, "");
    assert_holds(store, "k", "v");
    /* Also the loser of a condition does not hear that it lost. */
    fault_store_next(store, FAULT_LOST_ANSWER);
    assert_int_equal(put(store, "k", "w", absent), -1);
    assert_int_equal(res.outcome, STORE_UNKNOWN);
    assert_holds(store, "k", "v");
    fault_store_next(store, FAULT_LOST_ANSWER);
    assert_int_equal(store_delete(store, &del, &outcome, &err), -1);
    assert_int_equal(outcome, STORE_UNKNOWN);
    assert_absent(store, "k");
}

static void
late_put_lands_later(void **state)
{
    struct store *store = *state;
    char body[] = "late";
    struct store_put req = { .key = "k",
                             .body = { .mem = body, .fd = -1, .size = 4 },
                             .cond = absent };

    fault_store_next(store, FAULT_LATE);
    assert_int_equal(store_put(store, &req, &res, &err), -1);
    assert_int_equal(err.code, ERR_STORE_TIMEOUT);
    assert_int_equal(res.outcome, STORE_UNKNOWN);
    memset(body, 'x', sizeof(body)); /* the wrapper has its own copy */
    assert_absent(store, "k");
    assert_int_equal(fault_store_pending(store), 1);
    assert_int_equal(fault_store_deliver_late(store, 0), 1);
    assert_holds(store, "k", "late");
    assert_int_equal(fault_store_pending(store), 0);
    assert_int_equal(fault_store_deliver_late(store, 0), 0);
}

static void
late_put_is_judged_when_it_lands(void **state)
{
    struct store *store = *state;
    char etag[LIMIT_ETAG];
    struct store_cond match = { .kind = STORE_COND_MATCH, .etag = etag };

    assert_int_equal(put(store, "k", "first", none), 0);
    memcpy(etag, res.etag, sizeof(etag));
    fault_store_next(store, FAULT_LATE);
    assert_int_equal(put(store, "k", "late", match), -1);
    assert_int_equal(put(store, "k", "second", match), 0);
    assert_int_equal(fault_store_deliver_late(store, 0), 1);
    assert_holds(store, "k", "second");
}

static void
late_delete_and_copy(void **state)
{
    struct store *store = *state;
    struct store_delete del = { .key = "a" };
    struct store_copy copy = { .from = "b", .to = "c" };
    enum store_outcome outcome;

    assert_int_equal(put(store, "a", "1", none), 0);
    assert_int_equal(put(store, "b", "2", none), 0);
    fault_store_next(store, FAULT_LATE);
    assert_int_equal(store_delete(store, &del, &outcome, &err), -1);
    assert_int_equal(outcome, STORE_UNKNOWN);
    fault_store_next(store, FAULT_LATE);
    assert_int_equal(store_copy(store, &copy, &res, &err), -1);
    assert_int_equal(res.outcome, STORE_UNKNOWN);
    assert_holds(store, "a", "1");
    assert_absent(store, "c");
    assert_int_equal(fault_store_deliver_late(store, 1), 1);
    assert_int_equal(fault_store_pending(store), 1);
    assert_int_equal(fault_store_deliver_late(store, 5), 1);
    assert_absent(store, "a");
    assert_holds(store, "c", "2");
}

static void
drops_late(void **state)
{
    struct store *store = *state;

    fault_store_next(store, FAULT_LATE);
    assert_int_equal(put(store, "k", "late", none), -1);
    fault_store_drop_late(store);
    assert_int_equal(fault_store_pending(store), 0);
    assert_int_equal(fault_store_deliver_late(store, 0), 0);
    assert_absent(store, "k");
}

/* Over many seeds both orders of two late writes are seen. */
static void
late_order_varies(void **state)
{
    struct store *store = *state;
    bool seen[2] = { false, false };

    for (uint64_t seed = 1; seed < 20; seed++) {
        struct fault_plan plan = { .seed = seed };
        char *data = NULL;
        size_t len;

        fault_store_set_plan(store, &plan);
        fault_store_next(store, FAULT_LATE);
        assert_int_equal(put(store, "k", "0", none), -1);
        fault_store_next(store, FAULT_LATE);
        assert_int_equal(put(store, "k", "1", none), -1);
        assert_int_equal(fault_store_deliver_late(store, 0), 2);
        assert_int_equal(store_get_small(store, "k", 1, &data, &len, NULL, &err), 0);
        seen[data[0] - '0'] = true;
        free(data);
    }
    assert_true(seen[0] && seen[1]);
}

static int
count_bytes(void *arg, const void *data, size_t len, struct err *ignored)
{
    (void)data;
    (void)ignored;
    *(size_t *)arg += len;
    return 0;
}

static void
short_body(void **state)
{
    struct store *store = *state;
    size_t got = 0;
    struct store_get req = { .key = "k", .sink = count_bytes, .sink_arg = &got };

    assert_int_equal(put(store, "k", "0123456789", none), 0);
    fault_store_next(store, FAULT_SHORT_BODY);
    assert_int_equal(store_get(store, &req, NULL, &err), -1);
    assert_int_equal(err.code, ERR_STORE_BAD_ANSWER);
    assert_int_equal(got, 5);
    assert_int_equal(put(store, "k", "", none), 0);
    fault_store_next(store, FAULT_SHORT_BODY);
    assert_int_equal(store_get(store, &req, NULL, &err), -1);
    assert_int_equal(err.code, ERR_STORE_BAD_ANSWER);
    fault_store_next(store, FAULT_SHORT_BODY);
    assert_int_equal(put(store, "k", "done", none), -1);
    assert_int_equal(err.code, ERR_STORE_BAD_ANSWER);
    assert_int_equal(res.outcome, STORE_UNKNOWN);
    assert_holds(store, "k", "done");
}

static int64_t fake_now;

static int64_t
fake_clock(void)
{
    return fake_now;
}

static void
fake_sleep(int64_t ns)
{
    fake_now += ns;
}

static void
delay_eats_the_deadline(void **state)
{
    static const struct clock_table table = { fake_clock, fake_clock, fake_clock, fake_sleep };
    struct store *store = *state;
    struct fault_plan plan = { .seed = 1, .delay_ns = 5 * NS_PER_S };
    struct store_put req = { .key = "k", .body = { .mem = "x", .fd = -1, .size = 1 } };

    fake_now = NS_PER_S;
    clock_replace(&table);
    fault_store_set_plan(store, &plan);
    req.deadline_ns = fake_now + 10 * NS_PER_S;
    fault_store_next(store, FAULT_DELAY);
    assert_int_equal(store_put(store, &req, &res, &err), 0);
    assert_int_equal(fake_now, 6 * NS_PER_S);
    req.deadline_ns = fake_now + 2 * NS_PER_S;
    fault_store_next(store, FAULT_DELAY);
    assert_int_equal(store_put(store, &req, &res, &err), -1);
    assert_int_equal(err.code, ERR_STORE_TIMEOUT);
    clock_replace(NULL);
}

/* A store that lies overwrites; once probed, the gate refuses to rely on it. */
static void
ignores_conditions(void **state)
{
    struct store *store = *state;
    struct fault_plan plan = {
        .ignore_put_conditions = true,
        .ignore_delete_conditions = true,
        .ignore_copy_conditions = true,
    };
    struct store_delete del = { .key = "k", .if_match = "0" };
    struct store_copy copy = { .from = "k", .from_if_match = "0", .to = "c" };

    fault_store_set_plan(store, &plan);
    assert_int_equal(put(store, "k", "1", none), 0);
    assert_int_equal(put(store, "k", "2", absent), 0);
    assert_holds(store, "k", "2");
    assert_int_equal(store_copy(store, &copy, &res, &err), 0);
    assert_holds(store, "c", "2");
    assert_int_equal(store_delete(store, &del, NULL, &err), 0);
    assert_absent(store, "k");
    assert_int_equal(store_probe(store, &err), 0);
    assert_int_equal(store->caps.put_if_absent, STORE_NO);
    assert_int_equal(store->caps.delete_if_match, STORE_NO);
    assert_int_equal(put(store, "k", "3", absent), -1);
    assert_int_equal(err.code, ERR_STORE_UNSUPPORTED);
}

/* 1,000 calls at 20 % and 10 %: the counts lie within five standard deviations, and the seed repeats them. */
static void
plan_has_its_rates_and_is_seeded(void **state)
{
    struct store *store = *state;
    struct fault_plan plan = { .seed = 7 };
    unsigned first[2] = { 0, 0 };
    unsigned second[2] = { 0, 0 };

    plan.per_mille[FAULT_ERROR] = 200;
    plan.per_mille[FAULT_DENIED] = 100;
    for (int round = 0; round < 2; round++) {
        unsigned *counts = round ? second : first;
        fault_store_set_plan(store, &plan);
        for (int i = 0; i < 1000; i++) {
            if (put(store, "k", "v", none) < 0)
                counts[err.code == ERR_STORE_DENIED]++;
        }
    }
    assert_in_range(first[0], 137, 263);
    assert_in_range(first[1], 53, 147);
    assert_memory_equal(first, second, sizeof(first));
}

static void
plan_is_parsed(void **state)
{
    static const char *const bad[] = { "error",      "error=",  "error=1001",  "error=-1", "foo=1",
                                       "ignore=all", "ignore=", "ignore=put+", "late=1,,x" };
    struct fault_plan plan;

    (void)state;
    assert_int_equal(fault_plan_parse("", &plan, &err), 0);
    assert_int_equal(plan.per_mille[FAULT_ERROR], 0);
    assert_int_equal(fault_plan_parse("seed=7,error=20,late=1000,delay-ms=3,deliver-every=2,"
                                      "ignore=put+copy",
                                      &plan, &err),
                     0);
    assert_int_equal(plan.seed, 7);
    assert_int_equal(plan.per_mille[FAULT_ERROR], 20);
    assert_int_equal(plan.per_mille[FAULT_LATE], 1000);
    assert_int_equal(plan.delay_ns, 3000000);
    assert_int_equal(plan.deliver_every, 2);
    assert_true(plan.ignore_put_conditions && plan.ignore_copy_conditions);
    assert_false(plan.ignore_delete_conditions);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(fault_plan_parse(bad[i], &plan, &err), -1);
        assert_int_equal(err.code, ERR_USAGE);
    }
}

static void
late_lands_by_itself(void **state)
{
    struct store *store = *state;
    struct fault_plan plan = { .seed = 1, .deliver_every = 3 };

    fault_store_set_plan(store, &plan);
    fault_store_next(store, FAULT_LATE);
    assert_int_equal(put(store, "k", "late", none), -1);
    assert_absent(store, "k");        /* the second call */
    assert_holds(store, "k", "late"); /* the third one delivers first */
}

struct told {
    unsigned good, bad;
    enum err_code code;
};

static void
tell(void *arg, const char *key, enum err_code code, const char *message)
{
    struct told *told = arg;

    (void)key;
    (void)message;
    told->good += code == 0;
    told->bad += code != 0;
    told->code = code;
}

/* One fault hits the whole batch, and each key is told of. */
static void
batches(void **state)
{
    struct store *store = *state;
    const char *keys[] = { "a", "b" };
    struct told told = { 0 };

    assert_int_equal(put(store, "a", "x", none), 0);
    fault_store_next(store, FAULT_ERROR);
    assert_int_equal(store_delete_many(store, keys, 2, 0, tell, &told, &err), -1);
    assert_int_equal(told.bad, 2);
    assert_int_equal(told.code, ERR_STORE_AWAY);
    assert_holds(store, "a", "x");
    fault_store_next(store, FAULT_LOST_ANSWER);
    assert_int_equal(store_delete_many(store, keys, 2, 0, tell, &told, &err), -1);
    assert_int_equal(told.code, ERR_STORE_TIMEOUT);
    assert_absent(store, "a");
    assert_int_equal(store_delete_many(store, keys, 2, 0, tell, &told, &err), 0);
    assert_int_equal(told.good, 2);
    assert_int_equal(store_upload_abort(store, "a", "id", 0, &err), -1);
    assert_int_equal(err.code, ERR_STORE_UNSUPPORTED);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(error_does_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(lost_answer_is_carried_out, setup, teardown),
        cmocka_unit_test_setup_teardown(late_put_lands_later, setup, teardown),
        cmocka_unit_test_setup_teardown(late_put_is_judged_when_it_lands, setup, teardown),
        cmocka_unit_test_setup_teardown(late_delete_and_copy, setup, teardown),
        cmocka_unit_test_setup_teardown(drops_late, setup, teardown),
        cmocka_unit_test_setup_teardown(late_order_varies, setup, teardown),
        cmocka_unit_test_setup_teardown(batches, setup, teardown),
        cmocka_unit_test_setup_teardown(short_body, setup, teardown),
        cmocka_unit_test_setup_teardown(delay_eats_the_deadline, setup, teardown),
        cmocka_unit_test_setup_teardown(ignores_conditions, setup, teardown),
        cmocka_unit_test_setup_teardown(plan_has_its_rates_and_is_seeded, setup, teardown),
        cmocka_unit_test(plan_is_parsed),
        cmocka_unit_test_setup_teardown(late_lands_by_itself, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
