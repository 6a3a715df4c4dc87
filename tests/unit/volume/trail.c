#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "volume/trail.h"

#define COUNT 1000u

static struct trail trail;

/* Nodes 10, 20, ...; the name of the i-th is that of place (i * 7) % COUNT. */
static void
begin(bool named)
{
    struct trail_entry *entry = calloc(COUNT, sizeof(*entry));
    static char text[COUNT][8];
    static const char *names[COUNT];
    assert_non_null(entry);
    for (unsigned i = 0; i < COUNT; i++) {
        entry[i] = (struct trail_entry){ .node = 10 * (int64_t)(i + 1), .small = true };
        (void)snprintf(text[i], sizeof(text[i]), "%04u", i * 7 % COUNT);
        names[i] = text[i];
    }
    assert_int_equal(trail_init(&trail, entry, COUNT, named ? names : NULL), 0);
}

static int64_t
node_at(unsigned i)
{
    return 10 * (int64_t)(i + 1);
}

/* The entry whose name stands at this place: 7 * 143 = 1001. */
static unsigned
by_name(unsigned place)
{
    return place * 143 % COUNT;
}

static unsigned
fetch_all(int64_t *last)
{
    unsigned count = 0;
    int64_t node;
    while ((node = trail_next(&trail)) != 0) {
        *last = node;
        count++;
    }
    return count;
}

static void
nothing_is_fetched_at_first(void **state)
{
    (void)state;
    int64_t last = 0;
    begin(true);
    assert_int_equal(fetch_all(&last), 0);
    assert_true(trail_opened(&trail, node_at(0)));
    assert_true(trail_opened(&trail, node_at(1)));
    assert_int_equal(fetch_all(&last), 0);
    trail_release(&trail);
}

static void
readdir_order_is_followed(void **state)
{
    (void)state;
    int64_t last = 0;
    unsigned fetched = 0, most = 0;
    begin(true);
    for (unsigned i = 0; i < COUNT; i++) {
        assert_true(trail_opened(&trail, node_at(i)));
        fetched += fetch_all(&last);
        assert_true(last == 0 || last <= node_at(i + TRAIL_MOST));
        if (trail.window > most)
            most = trail.window;
    }
    assert_int_equal(most, TRAIL_MOST);
    assert_int_equal(fetched, COUNT - 3);
    assert_int_equal(trail.used, fetched);
    assert_int_equal(trail_unread(&trail), 0);
    trail_release(&trail);
}

static void
name_order_is_followed(void **state)
{
    (void)state;
    int64_t last = 0;
    unsigned fetched = 0;
    begin(true);
    for (unsigned i = 0; i < COUNT; i++) {
        assert_true(trail_opened(&trail, node_at(by_name(i))));
        fetched += fetch_all(&last);
    }
    assert_true(fetched >= COUNT - 4);
    assert_int_equal(trail.used + trail.wasted + trail_unread(&trail), fetched);
    assert_true(trail.used >= COUNT - 4);
    trail_release(&trail);
}

/* Who stops is not run ahead of: the window holds, and what was fetched is counted. */
static void
a_reader_that_stops_costs_a_window(void **state)
{
    (void)state;
    int64_t last = 0;
    unsigned fetched = 0;
    begin(true);
    for (unsigned i = 0; i < 20; i++) {
        (void)trail_opened(&trail, node_at(i));
        fetched += fetch_all(&last);
    }
    assert_int_equal(fetch_all(&last), 0);
    assert_true(fetched > 17 && fetched <= 20 + 32);
    assert_int_equal(trail_unread(&trail), fetched - trail.used);
    trail_release(&trail);
}

static void
random_opens_fetch_little_and_ever_less(void **state)
{
    (void)state;
    int64_t last = 0;
    unsigned fetched = 0;
    uint64_t seed = 3;
    begin(true);
    for (unsigned i = 0; i < 2000; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        (void)trail_opened(&trail, node_at((unsigned)(seed >> 33) % COUNT));
        fetched += fetch_all(&last);
    }
    assert_true(fetched <= 64);
    trail_release(&trail);
}

static void
leaving_unread_files_makes_it_harder(void **state)
{
    (void)state;
    int64_t last = 0;
    unsigned needed[3];
    begin(false);
    for (unsigned round = 0; round < 3; round++) {
        needed[round] = 0;
        for (unsigned i = 0; fetch_all(&last) == 0; i++, needed[round]++)
            assert_true(trail_opened(&trail, node_at(300 * round + i)));
        assert_true(trail_unread(&trail) > 0);
    }
    assert_true(needed[1] > needed[0] && needed[2] > needed[1]);
    assert_true(trail.wasted >= 2 * TRAIL_FIRST);
    trail_release(&trail);
}

static void
what_is_here_already_is_passed_by(void **state)
{
    (void)state;
    int64_t node;
    begin(true);
    for (unsigned i = 0; i < COUNT; i += 2)
        trail.entry[i].small = false;
    for (unsigned i = 0; i < 100; i++) {
        (void)trail_opened(&trail, node_at(i));
        while ((node = trail_next(&trail)) != 0)
            assert_int_equal(node / 10 % 2, 0);
    }
    assert_false(trail_opened(&trail, 5));
    trail_release(&trail);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_fetched_at_first),
        cmocka_unit_test(readdir_order_is_followed),
        cmocka_unit_test(name_order_is_followed),
        cmocka_unit_test(a_reader_that_stops_costs_a_window),
        cmocka_unit_test(random_opens_fetch_little_and_ever_less),
        cmocka_unit_test(leaving_unread_files_makes_it_harder),
        cmocka_unit_test(what_is_here_already_is_passed_by),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
