/* What the contract suite does not see: the copy on read, the ETag's kind, speed, threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/ulid.h"
#include "s3/open.h"

static const struct store_cond none = { .kind = STORE_COND_NONE };
static struct err err;

static int
setup(void **state)
{
    *state = mem_store_open(&err);
    return *state ? 0 : -1;
}

static int
teardown(void **state)
{
    store_free(*state);
    return 0;
}

static void
etag_is_the_md5(void **state)
{
    struct store_put_result res;

    assert_int_equal(store_put_small(*state, "k", "hello", 5, none, &res, &err), 0);
    assert_string_equal(res.etag, "5d41402abc4b2a76b9719d911017c592"); /* md5sum(1) */
}

struct overwrite {
    struct store *store;
    char seen[16];
};

static int
overwriting_sink(void *arg, const void *data, size_t len, struct err *sink_err)
{
    struct overwrite *overwrite = arg;
    struct store_delete del = { .key = "k" };

    if (store_delete(overwrite->store, &del, NULL, sink_err) < 0 ||
        store_put_small(overwrite->store, "k", "new", 3, none, NULL, sink_err) < 0)
        return -1;
    memcpy(overwrite->seen, data, len);
    return 0;
}

/* INV-4: a reader goes on with the version that it began with; and no lock is held while the sink runs. */
static void
reader_keeps_its_version(void **state)
{
    struct overwrite overwrite = { .store = *state };
    struct store_get req = { .key = "k", .sink = overwriting_sink, .sink_arg = &overwrite };

    assert_int_equal(store_put_small(*state, "k", "old", 3, none, NULL, &err), 0);
    assert_int_equal(store_get(*state, &req, NULL, &err), 0);
    assert_string_equal(overwrite.seen, "old");
}

static int64_t
fixed_time(void)
{
    return 1234567890 * NS_PER_S;
}

static void
time_comes_from_the_clock_table(void **state)
{
    static const struct clock_table table = { fixed_time, fixed_time, fixed_time, NULL };
    struct store_object object;

    store_object_init(&object);
    clock_replace(&table);
    assert_int_equal(store_put_small(*state, "k", "x", 1, none, NULL, &err), 0);
    clock_replace(NULL);
    assert_int_equal(store_head(*state, "k", 0, &object, &err), 0);
    assert_int_equal(object.last_modified_ns, 1234567890 * NS_PER_S);
    store_object_release(&object);
}

/* The simulator does a million operations. */
static void
is_fast(void **state)
{
    uint64_t random = 1;
    int64_t start = clock_mono_ns();
    char key[32];

    for (int i = 0; i < 200000; i++) {
        struct store_delete del = { .key = key };
        (void)snprintf(key, sizeof(key), "v/%u/%u", (unsigned)(random_next(&random) % 50),
                       (unsigned)(random_next(&random) % 50));
        if (i % 4 == 0)
            assert_int_equal(store_delete(*state, &del, NULL, &err), 0);
        else
            assert_int_equal(store_put_small(*state, key, key, strlen(key), none, NULL, &err), 0);
    }
    assert_true(clock_mono_ns() - start < 120 * NS_PER_S); /* about 0.5 s; sanitizers take longer */
}

struct worker {
    struct store *store;
    unsigned number;
};

static int
skip_entry(void *arg, const struct store_list_entry *entry, struct err *list_err)
{
    (void)list_err;
    *(uint64_t *)arg += entry->size;
    return 0;
}

static void *
work(void *arg)
{
    const struct worker *worker = arg;
    uint64_t random = worker->number;
    uint64_t total = 0;
    struct err own = ERR_INIT;
    struct store_list list = { .prefix = "", .fn = skip_entry, .arg = &total };
    char key[16];

    for (int i = 0; i < 2000; i++) {
        struct store_delete del = { .key = key };
        int rc = 0;
        (void)snprintf(key, sizeof(key), "%u", (unsigned)(random_next(&random) % 20));
        if (i % 3 == 0)
            rc = store_put_small(worker->store, key, key, strlen(key), none, NULL, &own);
        else if (i % 3 == 1)
            rc = store_delete(worker->store, &del, NULL, &own);
        else if (i % 50 == 0)
            rc = store_list(worker->store, &list, &own);
        else if (store_head(worker->store, key, 0, NULL, &own) < 0 && own.code != ERR_NOT_FOUND)
            rc = -1;
        if (rc < 0)
            return arg;
    }
    return NULL;
}

/* For the thread sanitizer. */
static void
threads(void **state)
{
    pthread_t thread[4];
    struct worker worker[4];
    void *failed;

    for (unsigned i = 0; i < 4; i++) {
        worker[i] = (struct worker){ .store = *state, .number = i };
        assert_int_equal(pthread_create(&thread[i], NULL, work, &worker[i]), 0);
    }
    for (unsigned i = 0; i < 4; i++) {
        pthread_join(thread[i], &failed);
        assert_null(failed);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(etag_is_the_md5, setup, teardown),
        cmocka_unit_test_setup_teardown(reader_keeps_its_version, setup, teardown),
        cmocka_unit_test_setup_teardown(time_comes_from_the_clock_table, setup, teardown),
        cmocka_unit_test_setup_teardown(is_fast, setup, teardown),
        cmocka_unit_test_setup_teardown(threads, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
