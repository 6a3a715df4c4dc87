#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/ulid.h"
#include "volume/locks.h"

static char boot_id[] = "01234567-89ab-cdef-0123-456789abcdef";

static struct lock_table *
new_table(void)
{
    struct err err = ERR_INIT;
    struct lock_table *table = lock_table_new(NULL, 1000, 8, &err);
    assert_non_null(table);
    return table;
}

static struct lock
range(uint64_t owner, enum lock_type type, uint64_t start, uint64_t end)
{
    return (struct lock){ .node = 7,
                          .owner = { .connection = (int64_t)(1 + owner % 2), .id = owner },
                          .type = type,
                          .start = start,
                          .end = end,
                          .fh = 100 + owner,
                          .pid = (uint32_t)(1000 + owner) };
}

static struct lock
whole(uint64_t owner, enum lock_type type)
{
    struct lock lock = range(owner, type, 0, INT64_MAX);
    lock.owner.flock = true;
    return lock;
}

static enum lock_answer
set(struct lock_table *table, struct lock want)
{
    return lock_set(table, &want, NULL);
}

/* ---- ranges against one byte after the other ---- */
#define BYTES 48
#define OWNERS 4

struct model {
    enum lock_type byte[OWNERS][BYTES];
};

static bool
model_conflicts(const struct model *model, const struct lock *want)
{
    for (unsigned other = 0; other < OWNERS; other++)
        for (uint64_t i = want->start; other != want->owner.id && i <= want->end; i++)
            if (model->byte[other][i] == LOCKED_WRITE ||
                (model->byte[other][i] == LOCKED_READ && want->type == LOCKED_WRITE))
                return true;
    return false;
}

static void
compare(struct lock_table *table, const struct model *model)
{
    struct lock out;
    for (unsigned i = 0; i < BYTES; i++) {
        for (unsigned owner = 0; owner < OWNERS; owner++) {
            struct lock want = range(owner, LOCKED_WRITE, i, i);
            assert_int_equal(lock_get(table, &want, &out), model_conflicts(model, &want));
            want.type = LOCKED_READ;
            bool stands = model_conflicts(model, &want);
            assert_int_equal(lock_get(table, &want, &out), stands);
            if (!stands)
                continue;
            assert_true(out.start <= i && i <= out.end);
            assert_int_equal(model->byte[out.owner.id][i], out.type);
            assert_int_equal(out.pid, 1000 + out.owner.id);
        }
    }
}

/* How many pieces the model's ranges make: the table keeps no more (split and merged as fcntl(2) shows them). */
static unsigned
count_pieces(const struct model *model)
{
    unsigned pieces = 0;
    for (unsigned owner = 0; owner < OWNERS; owner++)
        for (unsigned i = 0; i < BYTES; i++)
            pieces += model->byte[owner][i] != LOCKED_NONE &&
                      (i == 0 || model->byte[owner][i] != model->byte[owner][i - 1]);
    return pieces;
}

static void
walk(struct lock_table *table, uint64_t seed, unsigned steps)
{
    struct model model;
    memset(&model, 0, sizeof(model));
    for (unsigned step = 0; step < steps; step++) {
        uint64_t a = random_next(&seed) % BYTES, b = random_next(&seed) % BYTES;
        struct lock want =
            range(random_next(&seed) % OWNERS, (enum lock_type)(random_next(&seed) % 3),
                  a < b ? a : b, a < b ? b : a);
        bool conflict = want.type != LOCKED_NONE && model_conflicts(&model, &want);
        assert_int_equal(set(table, want), conflict ? LOCK_CONFLICT : LOCK_GRANTED);
        for (uint64_t i = want.start; !conflict && i <= want.end; i++)
            model.byte[want.owner.id][i] = want.type;
        assert_int_equal(lock_count(table), count_pieces(&model));
        if (step % 8 == 0)
            compare(table, &model);
    }
    for (unsigned owner = 0; owner < OWNERS; owner++) {
        struct lock mine = range(owner, LOCKED_NONE, 0, 0);
        lock_drop_owner(table, mine.node, &mine.owner);
    }
    assert_int_equal(lock_count(table), 0);
}

static void
test_ranges(void **state)
{
    (void)state;
    struct lock_table *table = new_table();
    for (uint64_t seed = 1; seed <= 40; seed++)
        walk(table, seed, 500);
    lock_table_free(table);
}

/* ---- waiting ---- */
struct waiter {
    struct lock_wait wait;
    unsigned told;
    enum lock_answer answer;
};

static unsigned order, last_told;

static void
on_done(struct lock_wait *wait, enum lock_answer answer)
{
    struct waiter *waiter = (struct waiter *)wait;
    waiter->told++;
    waiter->answer = answer;
    last_told = ++order;
}

static enum lock_answer
wait_for(struct lock_table *table, struct waiter *waiter, struct lock want)
{
    memset(waiter, 0, sizeof(*waiter));
    waiter->wait.done = on_done;
    want.fair = true;
    return lock_set(table, &want, &waiter->wait);
}

static void
test_waits(void **state)
{
    (void)state;
    struct lock_table *table = new_table();
    struct waiter writer, reader, other;
    assert_int_equal(set(table, range(1, LOCKED_READ, 0, 9)), LOCK_GRANTED);
    assert_int_equal(wait_for(table, &writer, range(2, LOCKED_WRITE, 5, 5)), LOCK_WAITS);
    /* A reader that comes later does not overtake the writer, for ever perhaps; one who only tries is not held up. */
    assert_int_equal(wait_for(table, &reader, range(3, LOCKED_READ, 0, 9)), LOCK_WAITS);
    assert_int_equal(wait_for(table, &other, range(4, LOCKED_READ, 6, 9)), LOCK_GRANTED);
    assert_int_equal(set(table, range(5, LOCKED_READ, 5, 5)), LOCK_GRANTED);
    assert_int_equal(set(table, range(5, LOCKED_NONE, 5, 5)), LOCK_GRANTED);
    assert_int_equal(writer.told, 0);
    assert_int_equal(set(table, range(1, LOCKED_NONE, 5, 5)), LOCK_GRANTED);
    assert_int_equal(writer.told, 1);
    assert_int_equal(writer.answer, LOCK_GRANTED);
    assert_int_equal(reader.told, 0);
    assert_int_equal(set(table, range(2, LOCKED_READ, 0, 9)),
                     LOCK_GRANTED); /* now a reader itself */
    assert_int_equal(reader.told, 1);
    assert_int_equal(reader.answer, LOCK_GRANTED);
    lock_table_free(table);
}

static void
test_canceled(void **state)
{
    (void)state;
    struct lock_table *table = new_table();
    struct waiter writer, reader;
    assert_int_equal(set(table, range(1, LOCKED_READ, 0, 9)), LOCK_GRANTED);
    assert_int_equal(wait_for(table, &writer, range(2, LOCKED_WRITE, 5, 5)), LOCK_WAITS);
    assert_int_equal(wait_for(table, &reader, range(3, LOCKED_READ, 5, 5)), LOCK_WAITS);
    assert_true(lock_cancel(table, &writer.wait));
    assert_int_equal(writer.told, 1);
    assert_int_equal(writer.answer, LOCK_CANCELED);
    assert_int_equal(reader.answer, LOCK_GRANTED);  /* nobody before it any more */
    assert_false(lock_cancel(table, &reader.wait)); /* too late */
    assert_int_equal(reader.told, 1);
    /* An interrupt that is faster than the request. */
    memset(&writer, 0, sizeof(writer));
    writer.wait.done = on_done;
    assert_false(lock_cancel(table, &writer.wait));
    struct lock want = range(2, LOCKED_WRITE, 5, 5);
    assert_int_equal(lock_set(table, &want, &writer.wait), LOCK_CANCELED);
    assert_int_equal(writer.told, 0);
    lock_table_free(table);
}

static void
test_cycles(void **state)
{
    (void)state;
    struct lock_table *table = new_table();
    struct waiter one, two;
    for (uint64_t i = 1; i <= 3; i++)
        assert_int_equal(set(table, range(i, LOCKED_WRITE, i, i)), LOCK_GRANTED);
    assert_int_equal(wait_for(table, &one, range(1, LOCKED_WRITE, 2, 2)), LOCK_WAITS);
    assert_int_equal(wait_for(table, &two, range(2, LOCKED_READ, 3, 3)), LOCK_WAITS);
    struct waiter three;
    assert_int_equal(wait_for(table, &three, range(3, LOCKED_READ, 1, 1)), LOCK_DEADLOCK);
    assert_int_equal(three.told, 0);
    assert_int_equal(set(table, range(3, LOCKED_NONE, 3, 3)), LOCK_GRANTED);
    assert_int_equal(two.answer, LOCK_GRANTED);
    assert_int_equal(one.told, 0);
    assert_int_equal(wait_for(table, &three, range(3, LOCKED_READ, 1, 1)), LOCK_WAITS);
    struct lock mine = range(2, LOCKED_NONE, 0, 0);
    lock_drop_owner(table, mine.node, &mine.owner); /* killed */
    assert_int_equal(one.answer, LOCK_GRANTED);
    mine = range(1, LOCKED_NONE, 0, 0);
    lock_drop_owner(table, mine.node, &mine.owner);
    assert_int_equal(three.answer, LOCK_GRANTED);
    /* Two readers who both want to write. */
    assert_int_equal(set(table, range(1, LOCKED_READ, 20, 29)), LOCK_GRANTED);
    assert_int_equal(set(table, range(2, LOCKED_READ, 20, 29)), LOCK_GRANTED);
    assert_int_equal(wait_for(table, &one, range(1, LOCKED_WRITE, 20, 29)), LOCK_WAITS);
    assert_int_equal(wait_for(table, &two, range(2, LOCKED_WRITE, 25, 25)), LOCK_DEADLOCK);
    mine = range(2, LOCKED_NONE, 0, 0);
    lock_drop_owner(table, mine.node, &mine.owner);
    assert_int_equal(one.answer, LOCK_GRANTED);
    lock_table_free(table);
}

static void
test_flock(void **state)
{
    (void)state;
    struct lock_table *table = new_table();
    struct waiter one, two;
    /* The two kinds do not see each other. */
    assert_int_equal(set(table, range(9, LOCKED_WRITE, 0, INT64_MAX)), LOCK_GRANTED);
    assert_int_equal(set(table, whole(1, LOCKED_READ)), LOCK_GRANTED);
    assert_int_equal(set(table, whole(2, LOCKED_READ)), LOCK_GRANTED);
    assert_int_equal(set(table, whole(3, LOCKED_WRITE)), LOCK_CONFLICT);
    /* flock(2): a conversion gives up the old lock first: it fails without it, and two do not wait for each other. */
    assert_int_equal(set(table, whole(1, LOCKED_WRITE)), LOCK_CONFLICT);
    assert_int_equal(lock_count(table), 2);
    assert_int_equal(set(table, whole(1, LOCKED_READ)), LOCK_GRANTED);
    assert_int_equal(wait_for(table, &one, whole(1, LOCKED_WRITE)), LOCK_WAITS);
    assert_int_equal(wait_for(table, &two, whole(2, LOCKED_WRITE)), LOCK_WAITS);
    assert_int_equal(one.answer, LOCK_GRANTED);
    assert_int_equal(one.told, 1);
    assert_int_equal(two.told, 0);
    lock_drop_handle(table, 7, 2, 101);
    assert_int_equal(two.told, 1);
    lock_table_free(table);
}

static void
test_ends(void **state)
{
    (void)state;
    struct lock_table *table = new_table();
    struct waiter here, there;
    assert_int_equal(set(table, range(1, LOCKED_WRITE, 0, 9)), LOCK_GRANTED);
    assert_int_equal(set(table, range(3, LOCKED_WRITE, 20, 29)), LOCK_GRANTED);
    assert_true(lock_held(table, 7, 2));
    assert_false(lock_held(table, 7, 1));
    assert_false(lock_held(table, 8, 2));
    assert_int_equal(wait_for(table, &here, range(2, LOCKED_WRITE, 0, 0)), LOCK_WAITS);
    assert_int_equal(wait_for(table, &there, range(5, LOCKED_WRITE, 20, 20)), LOCK_WAITS);
    lock_drop_handle(table, 7, 2, 999);
    assert_int_equal(lock_count(table), 2);
    lock_drop_connection(table, 2); /* owners with odd numbers */
    assert_int_equal(here.answer, LOCK_GRANTED);
    assert_int_equal(there.answer, LOCK_CANCELED);
    assert_int_equal(lock_count(table), 1);
    lock_table_free(table);
}

static void
test_bounds(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct lock_table *table = lock_table_new(NULL, 20, 2, &err);
    struct waiter waiter[3];
    unsigned granted = 0;
    for (uint64_t i = 0; i < 40; i++)
        granted += set(table, range(1, LOCKED_WRITE, 2 * i, 2 * i)) == LOCK_GRANTED;
    assert_in_range(granted, 10, 20);
    assert_int_equal(set(table, range(1, LOCKED_WRITE, 200, 200)), LOCK_FULL); /* B179 */
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(wait_for(table, &waiter[i], range(2 + i, LOCKED_READ, 0, 0)),
                         i < 2 ? LOCK_WAITS : LOCK_FULL);
    assert_int_equal(set(table, range(1, LOCKED_NONE, 0, 1000)), LOCK_GRANTED);
    assert_int_equal(waiter[1].answer, LOCK_GRANTED);
    assert_int_equal(lock_count(table), 2);
    lock_table_free(table);
}

/* ---- the journal: a gateway that takes over holds what its predecessor held ---- */
static struct lock_table *
open_journal(int dir, const char *boot)
{
    struct err err = ERR_INIT;
    struct lock_journal *journal = lock_journal_open(dir, boot, 2000, &err);
    assert_non_null(journal);
    struct lock_table *table = lock_table_new(journal, 1000, 8, &err);
    assert_non_null(table);
    return table;
}

static void
test_journal(void **state)
{
    (void)state;
    char path[] = "/tmp/holdfast-locks.XXXXXX";
    assert_non_null(mkdtemp(path));
    int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct lock_table *table = open_journal(dir, boot_id);
    assert_int_equal(set(table, range(1, LOCKED_WRITE, 0, 9)), LOCK_GRANTED);
    assert_int_equal(set(table, range(1, LOCKED_READ, 3, 5)), LOCK_GRANTED);
    assert_int_equal(set(table, range(2, LOCKED_READ, 4, 4)), LOCK_GRANTED);
    assert_int_equal(set(table, whole(3, LOCKED_WRITE)), LOCK_GRANTED);
    assert_int_equal(lock_count(table), 5);
    lock_table_free(table); /* takes nothing out of the file: as kill -9 does */
    for (unsigned round = 0; round < 3; round++) {
        struct lock out, probe = range(9, LOCKED_WRITE, 4, 4);
        table = open_journal(dir, boot_id);
        assert_int_equal(lock_count(table), 5);
        assert_int_equal(set(table, range(8, LOCKED_READ, 0, 0)), LOCK_CONFLICT);
        assert_int_equal(set(table, range(8, LOCKED_READ, 3, 5)), LOCK_GRANTED);
        assert_int_equal(set(table, range(8, LOCKED_NONE, 3, 5)), LOCK_GRANTED);
        assert_true(lock_get(table, &probe, &out));
        assert_int_equal(out.type, LOCKED_READ);
        assert_int_equal(set(table, whole(4, LOCKED_READ)), LOCK_CONFLICT);
        lock_table_free(table);
    }
    /* A random history, closed and opened again: the walk's model holds over it. */
    table = open_journal(dir, boot_id);
    lock_drop_connection(table, 1);
    lock_drop_connection(table, 2);
    assert_int_equal(lock_count(table), 0);
    walk(table, 99, 300);
    lock_table_free(table);
    table = open_journal(dir, boot_id);
    assert_int_equal(lock_count(table), 0);
    assert_int_equal(set(table, range(1, LOCKED_WRITE, 0, 9)), LOCK_GRANTED);
    lock_table_free(table);
    table = open_journal(dir, "another boot"); /* the programs are gone */
    assert_int_equal(lock_count(table), 0);
    lock_table_free(table);
    assert_int_equal(unlinkat(dir, "locks", 0), 0);
    assert_int_equal(close(dir), 0);
    assert_int_equal(rmdir(path), 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges),   cmocka_unit_test(test_waits),
        cmocka_unit_test(test_canceled), cmocka_unit_test(test_cycles),
        cmocka_unit_test(test_flock),    cmocka_unit_test(test_ends),
        cmocka_unit_test(test_bounds),   cmocka_unit_test(test_journal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
