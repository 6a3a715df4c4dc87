#include "versioning/lease.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define TTL 90
#define DEADLINE 10
static const struct lease fresh = { .gateway = "A", .ttl_ns = TTL, .op_deadline_ns = DEADLINE };
static const struct lease_record others = {
    .present = true, .gateway = "B", .epoch = 7, .ttl_ns = TTL, .nonce = "n1", .etag = "e1"
};
static const struct lease_record absent = { .present = false };

static struct lease
held_since(int64_t sent_ns)
{
    struct lease lease = fresh;
    const struct lease_record mine = {
        .present = true, .gateway = "A", .epoch = 8, .ttl_ns = TTL, .nonce = "m1", .etag = "e2"
    };
    lease_saw(&lease, &absent, sent_ns);
    lease_answered(&lease, LEASE_DONE, &mine, sent_ns);
    return lease;
}

static void
looks_first_and_claims_a_free_one(void **state)
{
    (void)state;
    struct lease lease = fresh;
    assert_int_equal(lease_next(&lease, 1), LEASE_LOOK);
    assert_false(lease_valid(&lease, 1));
    lease_saw(&lease, &absent, 5);
    assert_int_equal(lease_next(&lease, 5), LEASE_CLAIM);
    assert_false(lease_valid(&lease, 5));
}

/* A third, two thirds, counted from sending (docs/mechanisms.md section 6). */
static void
renews_at_a_third_and_stops_at_two(void **state)
{
    (void)state;
    struct lease lease = held_since(100);
    assert_true(lease_valid(&lease, 100));
    assert_int_equal(lease_next(&lease, 129), LEASE_NOTHING);
    assert_int_equal(lease_next_ns(&lease), 130);
    assert_int_equal(lease_next(&lease, 130), LEASE_RENEW);
    assert_true(lease_valid(&lease, 159));
    assert_false(lease_valid(&lease, 160));
}

static void
a_taker_waits_for_an_unchanged_record(void **state)
{
    (void)state;
    struct lease lease = fresh;
    struct lease_record renewed = others;
    memcpy(renewed.nonce, "n2", 3);
    memcpy(renewed.etag, "e3", 3);

    lease_saw(&lease, &others, 100);
    assert_int_equal(lease_next(&lease, 100 + TTL + DEADLINE - 1), LEASE_NOTHING);
    lease_saw(&lease, &others, 150); /* the same record: the time goes on */
    assert_int_equal(lease_next(&lease, 100 + TTL + DEADLINE), LEASE_CLAIM);
    lease_saw(&lease, &renewed, 190); /* another one: it begins anew */
    assert_int_equal(lease_next(&lease, 190 + TTL + DEADLINE - 1), LEASE_NOTHING);
    assert_int_equal(lease_next(&lease, 190 + TTL + DEADLINE), LEASE_CLAIM);
}

static void
a_longer_time_to_live_in_the_record_counts(void **state)
{
    (void)state;
    struct lease lease = fresh;
    struct lease_record longer = others;
    longer.ttl_ns = 10 * TTL;
    lease_saw(&lease, &longer, 100);
    assert_int_equal(lease_next_ns(&lease), 100 + 10 * TTL + DEADLINE);
    longer.ttl_ns = INT64_MAX; /* from outside: must not keep the volume shut for ever */
    longer.nonce[0] = 'x';
    lease_saw(&lease, &longer, 200);
    assert_int_equal(lease_next_ns(&lease), 200 + 24ll * 3600 * 1000000000 + DEADLINE);
    longer.ttl_ns = -1;
    longer.nonce[0] = 'y';
    lease_saw(&lease, &longer, 300);
    assert_int_equal(lease_next_ns(&lease), 300 + TTL + DEADLINE);
}

static void
answers(void **state)
{
    (void)state;
    struct lease lease = held_since(100);
    lease_answered(&lease, LEASE_UNKNOWN, &lease.seen, 130);
    assert_true(lease_valid(&lease, 140)); /* from the renewal that is known */
    assert_false(lease_valid(&lease, 160));
    assert_int_equal(lease_next(&lease, 140), LEASE_LOOK);

    lease = held_since(100);
    lease_answered(&lease, LEASE_REFUSED, &lease.seen, 130);
    assert_false(lease_valid(&lease, 131));
    assert_int_equal(lease_next(&lease, 131), LEASE_LOOK);
}

static void
a_record_of_somebody_else_ends_it(void **state)
{
    (void)state;
    struct lease lease = held_since(100);
    lease_saw(&lease, &others, 120);
    assert_false(lease_valid(&lease, 120));

    lease = held_since(100);
    struct lease_record next_epoch =
        lease.seen; /* our own name, claimed by a later process of ours */
    next_epoch.epoch++;
    next_epoch.nonce[0] = 'z';
    lease_saw(&lease, &next_epoch, 120);
    assert_false(lease_valid(&lease, 120));
}

/* After a kill, or an unanswered claim that landed: nobody else can be at work under our name. */
static void
our_own_record_is_claimed_at_once(void **state)
{
    (void)state;
    struct lease lease = fresh;
    struct lease_record mine = others;
    memcpy(mine.gateway, "A", 2);
    lease_saw(&lease, &mine, 100);
    assert_false(lease_valid(&lease, 100));
    assert_int_equal(lease_next(&lease, 100), LEASE_CLAIM);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(looks_first_and_claims_a_free_one),
        cmocka_unit_test(renews_at_a_third_and_stops_at_two),
        cmocka_unit_test(a_taker_waits_for_an_unchanged_record),
        cmocka_unit_test(a_longer_time_to_live_in_the_record_counts),
        cmocka_unit_test(answers),
        cmocka_unit_test(a_record_of_somebody_else_ends_it),
        cmocka_unit_test(our_own_record_is_claimed_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
