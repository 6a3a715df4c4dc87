#include "tests/unit/versioning/index_fixture.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"

/* Many readers beside the writer. Run under the thread sanitizer too. */

#define WRITERS 3
#define READERS 4
#define RUN_NS (1200 * NS_PER_MS)

static struct index_node left, right;
static atomic_uint turns, reads;
static atomic_bool stop;

static int
setup_pair(void **state)
{
    struct err err = ERR_INIT;
    (void)state;
    scratch_make();
    ix = open_or_fail(scratch);
    fill_node(&left, 2, "left");
    fill_node(&right, 3, "right");
    RUN_OK(err, index_write(ix, INDEX_NORMAL, insert_node, &left, &err));
    RUN_OK(err, index_write(ix, INDEX_NORMAL, insert_node, &right, &err));
    atomic_store(&stop, false);
    return 0;
}

/* Both sizes rise together, or neither does. */
static int
turn(struct index_tx *tx, void *arg, struct err *err)
{
    struct index_node a, b;
    (void)arg;
    if (index_node_get(tx, left.id, &a, err) != 0 || index_node_get(tx, right.id, &b, err) != 0)
        return -1;
    a.size++;
    b.size++;
    if (index_node_update(tx, &a, err) != 0)
        return -1;
    if ((atomic_fetch_add(&turns, 1) & 7) == 7) /* half done and taken back */
        return err_set(err, ERR_BUSY, "not this time");
    return index_node_update(tx, &b, err);
}

static void *
write_main(void *arg)
{
    struct index_node row;
    char name[32];
    for (unsigned i = 0; !atomic_load(&stop); i++) {
        struct err err = ERR_INIT;
        if (index_write(ix, i % 20 == 0 ? INDEX_FULL : INDEX_NORMAL, turn, NULL, &err) != 0)
            assert_int_equal(err.code, ERR_BUSY); /* taken back */
        (void)snprintf(name, sizeof(name), "w%u-%u", (unsigned)(uintptr_t)arg, i);
        fill_node(&row, 4, name);
        RUN_OK(err, index_write(ix, INDEX_NORMAL, insert_node, &row, &err));
    }
    return NULL;
}

struct seen {
    uint64_t sequence;
    uint64_t size;
};

static int
look(struct index_tx *tx, void *arg, struct err *err)
{
    struct seen *seen = arg;
    struct index_node a, b;
    uint64_t sequence = index_sequence(tx);
    if (index_node_get(tx, left.id, &a, err) != 0 || index_node_get(tx, right.id, &b, err) != 0)
        return -1;
    if (a.size != b.size || sequence < seen->sequence || a.size < seen->size)
        return err_set(err, ERR_INTERNAL, "a reader saw half a change, or the past");
    seen->sequence = sequence;
    seen->size = a.size;
    return 0;
}

static void *
read_main(void *arg)
{
    struct seen seen = { .sequence = 0 };
    (void)arg;
    while (!atomic_load(&stop)) {
        struct err err = ERR_INIT;
        RUN_OK(err, index_read(ix, look, &seen, &err));
        atomic_fetch_add(&reads, 1);
    }
    return NULL;
}

/* A thread that comes and goes has a connection of its own meanwhile. */
static void *
read_once(void *arg)
{
    struct err err = ERR_INIT;
    RUN_OK(err, index_read(ix, look, arg, &err));
    return NULL;
}

/* B157 */
static void
test_readers_see_whole_changes(void **state)
{
    (void)state;
    pthread_t threads[WRITERS + READERS];
    for (uintptr_t i = 0; i < WRITERS + READERS; i++)
        assert_int_equal(
            pthread_create(&threads[i], NULL, i < WRITERS ? write_main : read_main, (void *)i), 0);
    int64_t end = clock_mono_ns() + RUN_NS;
    while (clock_mono_ns() < end) {
        pthread_t visitor;
        struct seen seen = { .sequence = 0 };
        assert_int_equal(pthread_create(&visitor, NULL, read_once, &seen), 0);
        assert_int_equal(pthread_join(visitor, NULL), 0);
    }
    atomic_store(&stop, true);
    for (unsigned i = 0; i < WRITERS + READERS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    index_close(ix);
    assert_true(atomic_load(&turns) > 16 && atomic_load(&reads) > 100);
}

/* A thread that lives on after the index was closed and opened again. */
struct steps {
    pthread_barrier_t barrier;
};

static void *
outlive_main(void *arg)
{
    struct steps *steps = arg;
    struct seen seen = { .sequence = 0 };
    for (int i = 0; i < 3; i++) {
        pthread_barrier_wait(&steps->barrier); /* it is open */
        struct err err = ERR_INIT;
        RUN_OK(err, index_read(ix, look, &seen, &err));
        pthread_barrier_wait(&steps->barrier);
    }
    return NULL;
}

static void
test_thread_outlives_the_index(void **state)
{
    (void)state;
    pthread_t thread;
    struct steps steps;
    assert_int_equal(pthread_barrier_init(&steps.barrier, NULL, 2), 0);
    assert_int_equal(pthread_create(&thread, NULL, outlive_main, &steps), 0);
    for (int i = 0; i < 3; i++) {
        pthread_barrier_wait(&steps.barrier);
        pthread_barrier_wait(&steps.barrier);
        index_close(ix);
        ix = i < 2 ? open_or_fail(scratch) : NULL;
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    pthread_barrier_destroy(&steps.barrier);
}

int
main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup_pair, teardown_scratch)
    const struct CMUnitTest tests[] = {
        T(test_readers_see_whole_changes),
        T(test_thread_outlives_the_index),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
