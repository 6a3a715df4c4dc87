/* Numbers for names: one each, the same again after it was forgotten, nothing behind one that nobody knows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "mount/number.h"

#define NAMES 20000u

static uint64_t
give(struct number_table *table, const char *name, uint32_t *check)
{
    struct err err = ERR_INIT;
    uint64_t number = 0;
    if (number_give(table, name, strlen(name), &number, check, &err) != 0)
        fail_msg("%s: %s", name, err.msg);
    assert_true(number >> NUMBER_BITS == 0);
    return number;
}

static void
assert_name(struct number_table *table, uint64_t number, const char *wanted)
{
    char name[64] = "";
    ssize_t len = number_name(table, number, name, sizeof(name));
    assert_int_equal(len, wanted ? (ssize_t)strlen(wanted) : -1);
    if (wanted)
        assert_memory_equal(name, wanted, strlen(wanted));
}

static void
test_known_while_counted(void **state)
{
    struct number_table table;
    struct err err = ERR_INIT;
    uint32_t check, again;
    uint64_t likely;
    (void)state;
    assert_int_equal(number_table_init(&table, &err), 0);
    uint64_t number = give(&table, "a", &check);
    assert_int_equal(give(&table, "a", &again), number);
    assert_int_equal(check, again);
    assert_true(give(&table, "b", &again) != number);
    assert_true(check != again);
    assert_int_equal(number_of("a", 1, &likely, &err), 0);
    assert_int_equal(likely, number);
    number_forget(&table, number, 1);
    assert_name(&table, number, "a");
    number_forget(&table, number, 1);
    assert_name(&table, number, NULL);
    number_forget(&table, number, 1); /* one that an earlier gateway gave */
    assert_int_equal(give(&table, "a", &again), number);
    number_forget(&table, number, 1000);
    assert_name(&table, number, NULL);
    number_table_release(&table);
}

/* More than are wanted is no harm: the length is right, the rest is not touched. */
static void
test_short_room(void **state)
{
    struct number_table table;
    struct err err = ERR_INIT;
    uint32_t check;
    char room[4] = "....";
    (void)state;
    assert_int_equal(number_table_init(&table, &err), 0);
    uint64_t number = give(&table, "long name", &check);
    assert_int_equal(number_name(&table, number, room, 2), 9);
    assert_memory_equal(room, "lo..", 4);
    number_table_release(&table);
}

static void
test_many(void **state)
{
    static uint64_t numbers[NAMES];
    struct number_table table;
    struct err err = ERR_INIT;
    char name[32];
    uint32_t check;
    (void)state;
    assert_int_equal(number_table_init(&table, &err), 0);
    for (unsigned i = 0; i < NAMES; i++) {
        (void)snprintf(name, sizeof(name), "folder/%u", i);
        numbers[i] = give(&table, name, &check);
    }
    assert_int_equal(table.count, NAMES);
    for (unsigned i = 0; i < NAMES; i += 2)
        number_forget(&table, numbers[i], 1);
    assert_int_equal(table.count, NAMES / 2);
    for (unsigned i = 0; i < NAMES; i++) {
        (void)snprintf(name, sizeof(name), "folder/%u", i);
        assert_name(&table, numbers[i], i % 2 ? name : NULL);
    }
    number_table_release(&table);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_while_counted),
        cmocka_unit_test(test_short_room),
        cmocka_unit_test(test_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
