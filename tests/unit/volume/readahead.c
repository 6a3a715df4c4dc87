#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "volume/readahead.h"

#define KIB 1024u
#define MIB (1024u * KIB)

/* The furthest byte that anybody wants, 0: nobody wants any. */
static uint64_t
wanted(const struct readahead *ahead)
{
    uint64_t most = 0, off, end;
    for (unsigned i = 0; i < READAHEAD_STREAMS; i++)
        if (readahead_want(ahead, i, UINT64_MAX, &off, &end) && end > most)
            most = end;
    return most;
}

static void
read_on(struct readahead *ahead, uint64_t from, uint64_t to, uint64_t step, bool waited)
{
    for (uint64_t off = from; off < to; off += step)
        readahead_saw(ahead, off, step, waited, READAHEAD_MAX);
}

static void
a_look_at_the_head_fetches_nothing_ahead(void **state)
{
    (void)state;
    struct readahead ahead = { .tick = 0 };
    read_on(&ahead, 0, 64 * KIB, 4 * KIB, true);
    assert_int_equal(wanted(&ahead), 0);
}

static void
the_window_doubles_with_what_was_read(void **state)
{
    (void)state;
    struct readahead ahead = { .tick = 0 };
    read_on(&ahead, 0, 128 * KIB, 128 * KIB, false);
    assert_int_equal(wanted(&ahead), 128 * KIB + 2 * MIB);
    uint64_t before = 2 * MIB;
    for (uint64_t at = 128 * KIB; at < 256 * MIB; at += 128 * KIB) {
        readahead_saw(&ahead, at, 128 * KIB, false, READAHEAD_MAX);
        uint64_t window = wanted(&ahead) - (at + 128 * KIB);
        assert_true(window <= READAHEAD_MAX);
        /* Never more than doubled, and never much more than was read. */
        assert_true(window <= 2 * before + 128 * KIB);
        assert_true(window <= 4 * at + 2 * MIB);
        before = window > before ? window : before;
    }
    assert_true(before > READAHEAD_MAX - MIB);
}

static void
a_waiting_reader_fills_the_link_soon(void **state)
{
    (void)state;
    struct readahead patient = { .tick = 0 }, waiting = { .tick = 0 };
    read_on(&patient, 0, 4 * MIB, 128 * KIB, false);
    read_on(&waiting, 0, 4 * MIB, 128 * KIB, true);
    assert_true(wanted(&waiting) > wanted(&patient));
    assert_true(wanted(&waiting) >= 24 * MIB);
}

static void
the_limit_holds(void **state)
{
    (void)state;
    struct readahead ahead = { .tick = 0 };
    for (uint64_t at = 0; at < 64 * MIB; at += 128 * KIB) {
        readahead_saw(&ahead, at, 128 * KIB, true, 3 * MIB);
        assert_true(wanted(&ahead) <= at + 128 * KIB + 3 * MIB);
    }
}

/* B133: who reads here and there gets no window, however many files and reads there are. */
static void
random_reads_fetch_nothing_ahead(void **state)
{
    (void)state;
    struct readahead ahead = { .tick = 0 };
    uint64_t seed = 7;
    for (unsigned i = 0; i < 20000; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        readahead_saw(&ahead, seed % (1ull << 40), 4 * KIB, true, READAHEAD_MAX);
        assert_int_equal(wanted(&ahead), 0);
    }
}

/* The kernel sends several reads at once, and they arrive in any order. */
static void
reads_out_of_order_are_in_order(void **state)
{
    (void)state;
    struct readahead ahead = { .tick = 0 };
    static const unsigned order[] = { 1, 0, 3, 2 };
    for (uint64_t at = 0; at < 32 * MIB; at += 4 * 128 * KIB)
        for (unsigned i = 0; i < 4; i++)
            readahead_saw(&ahead, at + order[i] * 128 * KIB, 128 * KIB, false, READAHEAD_MAX);
    assert_true(wanted(&ahead) >= 48 * MIB);
}

static void
several_readers_keep_their_windows(void **state)
{
    (void)state;
    struct readahead ahead = { .tick = 0 };
    for (uint64_t at = 0; at < 8 * MIB; at += 128 * KIB)
        for (uint64_t reader = 0; reader < READAHEAD_STREAMS; reader++)
            readahead_saw(&ahead, (reader << 32) + at, 128 * KIB, false, READAHEAD_MAX);
    for (unsigned i = 0; i < READAHEAD_STREAMS; i++)
        assert_true(ahead.stream[i].window >= 8 * MIB);
}

static void
after_a_failure_the_window_is_earned_anew(void **state)
{
    (void)state;
    struct readahead ahead = { .tick = 0 };
    read_on(&ahead, 0, 16 * MIB, 128 * KIB, true);
    assert_true(wanted(&ahead) > 16 * MIB);
    readahead_cut(&ahead);
    assert_int_equal(wanted(&ahead), 0);
    readahead_saw(&ahead, 16 * MIB, 128 * KIB, true, READAHEAD_MAX);
    assert_int_equal(wanted(&ahead), 16 * MIB + 128 * KIB + READAHEAD_MIN);
}

static void
the_first_requests_are_small(void **state)
{
    (void)state;
    struct readahead ahead = { .tick = 0 };
    read_on(&ahead, 0, 128 * KIB, 128 * KIB, false);
    assert_int_equal(readahead_span(&ahead, 0), MIB);
    read_on(&ahead, 128 * KIB, 128 * MIB, 128 * KIB, false);
    assert_int_equal(readahead_span(&ahead, 0), 4 * MIB);
}

static void
nothing_is_wanted_behind_the_end(void **state)
{
    (void)state;
    struct readahead ahead = { .tick = 0 };
    uint64_t off, end;
    read_on(&ahead, 0, 4 * MIB, 128 * KIB, true);
    assert_true(readahead_want(&ahead, 0, 5 * MIB, &off, &end));
    assert_int_equal(end, 5 * MIB);
    assert_false(readahead_want(&ahead, 0, 4 * MIB, &off, &end));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_look_at_the_head_fetches_nothing_ahead),
        cmocka_unit_test(the_window_doubles_with_what_was_read),
        cmocka_unit_test(a_waiting_reader_fills_the_link_soon),
        cmocka_unit_test(the_limit_holds),
        cmocka_unit_test(random_reads_fetch_nothing_ahead),
        cmocka_unit_test(reads_out_of_order_are_in_order),
        cmocka_unit_test(several_readers_keep_their_windows),
        cmocka_unit_test(after_a_failure_the_window_is_earned_anew),
        cmocka_unit_test(the_first_requests_are_small),
        cmocka_unit_test(nothing_is_wanted_behind_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
