#include "tests/unit/versioning/index_fixture.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/ulid.h"

/* ---- transactions ---- */
static int
write_meta(struct index_tx *tx, void *arg, struct err *err)
{
    return index_meta_set(tx, "x", arg, err);
}

static void
test_read_refuses_changes(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    char value[] = "1";
    assert_int_equal(index_read(ix, write_meta, value, &err), -1);
    assert_int_equal(err.code, ERR_INTERNAL);
}

static int
write_inside(struct index_tx *tx, void *arg, struct err *err)
{
    (void)tx;
    return index_write(ix, INDEX_NORMAL, write_meta, arg, err);
}

static int
read_inside(struct index_tx *tx, void *arg, struct err *err)
{
    (void)tx;
    return index_read(ix, get_uuid, arg, err);
}

static void
test_no_nesting(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    char value[64] = "1";
    assert_int_equal(index_write(ix, INDEX_NORMAL, write_inside, value, &err), -1);
    assert_int_equal(err.code, ERR_INTERNAL);
    assert_int_equal(index_read(ix, read_inside, value, &err), -1);
    assert_int_equal(err.code, ERR_INTERNAL);
    read_ok(get_uuid, value); /* and all goes on */
}

struct batch {
    sem_t running, go;
    unsigned ran;
};
static struct batch batch;

/* Holds the writer until the others are queued, so that they share one transaction. */
static int
hold(struct index_tx *tx, void *arg, struct err *err)
{
    (void)tx;
    (void)arg;
    (void)err;
    sem_post(&batch.running);
    while (sem_wait(&batch.go) != 0)
        continue;
    return 0;
}

struct change {
    pthread_t thread;
    struct index_node node;
    bool refuse;
    enum index_durability durability;
    int rc;
    struct err err;
};

static int
change_or_refuse(struct index_tx *tx, void *arg, struct err *err)
{
    struct change *change = arg;
    batch.ran++;
    if (index_node_insert(tx, &change->node, err) != 0)
        return -1;
    return change->refuse ? err_set(err, ERR_QUOTA, "refused") : 0;
}

static void *
change_main(void *arg)
{
    struct change *change = arg;
    change->err = (struct err)ERR_INIT;
    change->rc = index_write(ix, change->durability, change_or_refuse, change, &change->err);
    return NULL;
}

static void *
hold_main(void *arg)
{
    struct err err = ERR_INIT;
    *(int *)arg = index_write(ix, INDEX_NORMAL, hold, NULL, &err);
    return NULL;
}

static int
read_sequence(struct index_tx *tx, void *arg, struct err *err)
{
    (void)err;
    *(uint64_t *)arg = index_sequence(tx);
    return 0;
}

static void
test_refused_change_leaves_the_others(void **state)
{
    (void)state;
    static struct change changes[12];
    pthread_t holder;
    int held = -1;
    uint64_t before = 0, after = 0;
    read_ok(read_sequence, &before);
    memset(&batch, 0, sizeof(batch));
    sem_init(&batch.running, 0, 0);
    sem_init(&batch.go, 0, 0);
    assert_int_equal(pthread_create(&holder, NULL, hold_main, &held), 0);
    while (sem_wait(&batch.running) != 0)
        continue;
    for (int i = 0; i < 12; i++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "n%d", i);
        fill_node(&changes[i].node, 1, name);
        changes[i].refuse = i % 3 == 0;
        changes[i].durability = i % 4 == 0 ? INDEX_FULL : INDEX_NORMAL;
        assert_int_equal(pthread_create(&changes[i].thread, NULL, change_main, &changes[i]), 0);
    }
    clock_sleep_ns(100 * NS_PER_MS);
    sem_post(&batch.go);
    assert_int_equal(pthread_join(holder, NULL), 0);
    assert_int_equal(held, 0);
    for (int i = 0; i < 12; i++)
        assert_int_equal(pthread_join(changes[i].thread, NULL), 0);
    assert_int_equal(batch.ran, 12); /* each once */
    for (int i = 0; i < 12; i++) {
        struct index_node row = changes[i].node;
        struct err err = ERR_INIT;
        assert_int_equal(changes[i].rc, changes[i].refuse ? -1 : 0);
        if (changes[i].refuse)
            assert_int_equal(changes[i].err.code, ERR_QUOTA);
        assert_int_equal(index_read(ix, find_node, &row, &err), changes[i].refuse ? -1 : 0);
        if (changes[i].refuse)
            assert_int_equal(err.code, ERR_NOT_FOUND);
    }
    read_ok(read_sequence, &after);
    assert_int_equal(after - before, 1 + 8); /* the holder and the eight that were not refused */
}

static int
sequence_in_change(struct index_tx *tx, void *arg, struct err *err)
{
    *(uint64_t *)arg = index_sequence(tx);
    return index_meta_set(tx, "x", "y", err);
}

static void
test_sequence(void **state)
{
    (void)state;
    uint64_t inside = 0, after = 0;
    write_ok(sequence_in_change, &inside);
    read_ok(read_sequence, &after);
    assert_int_equal(inside, after);
    reopen();
    uint64_t again = 0;
    read_ok(read_sequence, &again);
    assert_int_equal(again, after);
    write_ok(sequence_in_change, &inside);
    assert_int_equal(inside, after + 1);
}

/* ---- kill -9 ---- */
#define THREADS 4
struct acked {
    atomic_uint count[THREADS];
};
static struct acked *acked; /* shared with the child */

static void *
write_on(void *arg)
{
    unsigned thread = (unsigned)(uintptr_t)arg;
    for (unsigned i = atomic_load(&acked->count[thread]);; i++) {
        struct index_node row;
        struct err err = ERR_INIT;
        name_of(&row, thread, i);
        row.size = size_of(thread, i);
        int rc = index_write(ix, i % 50 == 0 ? INDEX_FULL : INDEX_NORMAL, insert_pair, &row, &err);
        if (rc != 0 && err.code != ERR_EXISTS) /* committed, and killed before the answer */
            _exit(1);
        atomic_store(&acked->count[thread], i + 1);
    }
    return NULL;
}

static void
write_until_killed(void)
{
    struct err err = ERR_INIT;
    struct index_options options = { .create = true };
    pthread_t threads[THREADS];
    ix = index_open(scratch, &options, &err);
    if (ix == NULL)
        _exit(1);
    for (uintptr_t i = 0; i < THREADS; i++) {
        if (pthread_create(&threads[i], NULL, write_on, (void *)i) != 0)
            _exit(1);
    }
    for (;;)
        pause();
}

static int
check_pairs(struct index_tx *tx, void *arg, struct err *err)
{
    uint64_t *files = arg;
    struct index_key key;
    for (unsigned thread = 0; thread < THREADS; thread++) {
        unsigned count = atomic_load(&acked->count[thread]);
        for (unsigned i = 0; i < count + 1; i++) {
            struct index_node row;
            struct err absent = ERR_INIT;
            name_of(&row, thread, i);
            char name[sizeof(row.name)];
            memcpy(name, row.name, sizeof(name));
            int rc = find_node(tx, &row, i < count ? err : &absent);
            if (rc != 0 && i < count)
                return -1;
            if (rc != 0)
                continue;
            ++*files;
            assert_int_equal(row.size, size_of(thread, i));
            if (index_key_get(tx, name, &key, err) != 0)
                return -1;
            assert_int_equal(key.size, row.size);
        }
    }
    return 0;
}

static int
count_files(struct index_tx *tx, void *arg, struct err *err)
{
    uint64_t bytes = 0;
    return index_node_usage(tx, 1, arg, &bytes, err);
}

static unsigned
answered(void)
{
    unsigned sum = 0;
    for (unsigned thread = 0; thread < THREADS; thread++)
        sum += atomic_load(&acked->count[thread]);
    return sum;
}

/* How long `more` changes take depends on the machine; that they come does not. */
static void
wait_for_answers(unsigned more)
{
    int64_t end = clock_mono_ns() + 60 * NS_PER_S;
    unsigned wanted = answered() + more;
    while (answered() < wanted && clock_mono_ns() < end)
        clock_sleep_ns(NS_PER_MS);
    assert_true(answered() >= wanted);
}

static void
test_every_answered_change_survives_kill(void **state)
{
    (void)state;
    uint64_t seed = 7, total = 0;
    acked = mmap(NULL, sizeof(*acked), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(acked != MAP_FAILED);
    for (int round = 0; round < 12; round++) {
        uint64_t files = 0, counted = 0;
        struct err err = ERR_INIT;
        int status = 0;
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            write_until_killed();
        if (round % 3 != 0) /* the others may die while they open the index */
            wait_for_answers(25);
        clock_sleep_ns((int64_t)(10 + random_next(&seed) % 120) * NS_PER_MS);
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status)); /* and not ended by an error of its own */
        ix = open_or_fail(scratch);
        RUN_OK(err, index_read(ix, check_pairs, &files, &err));
        RUN_OK(err, index_read(ix, count_files, &counted, &err));
        assert_int_equal(counted, files);
        index_close(ix);
        total = files;
    }
    assert_true(total >= UINT64_C(8) * 25); /* the kills hit a working index */
    munmap(acked, sizeof(*acked));
}

int
main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_read_refuses_changes),
        T(test_no_nesting),
        T(test_refused_change_leaves_the_others),
        T(test_sequence),
        cmocka_unit_test_setup_teardown(test_every_answered_change_survives_kill, setup_scratch,
                                        teardown_scratch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
