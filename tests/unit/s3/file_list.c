/* Against the store in memory, and many threads. */
#include "tests/unit/s3/file_fixture.h"

/* ---- against the store in memory, and many threads ---- */

static const char *const parts[] = { "a", "b", "a.", "a-b", "", ".", ".hf~o~a", "ü", "long" };

/* A random key of 1 to 4 components. */
static void
random_key(uint64_t *random, char *out, size_t size)
{
    char longest[261];
    size_t len = 0;
    unsigned count = 1 + (unsigned)(random_next(random) % 4);

    memset(longest, 'l', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    for (unsigned i = 0; i < count; i++) {
        const char *part = parts[random_next(random) % (sizeof(parts) / sizeof(parts[0]))];
        if (strcmp(part, "long") == 0) {
            longest[230] = (char)('0' + random_next(random) % 2);
            part = longest;
        }
        len += (size_t)snprintf(out + len, size - len, "%s%s", i ? "/" : "", part);
    }
    if (!out[0])
        (void)snprintf(out, size, "a");
}

struct seen {
    struct buf text;
};

static int
note_entry(void *arg, const struct store_list_entry *entry, struct err *list_err)
{
    struct seen *seen = arg;

    return buf_appendf(&seen->text, list_err, "%s %d %s %llu\n", entry->key, entry->is_prefix,
                       entry->is_prefix ? "" : entry->etag, (unsigned long long)entry->size);
}

static void
compare_lists(struct store *file, struct store *mem, const struct store_list *shape)
{
    struct seen seen[2];
    struct store *stores[2] = { file, mem };

    for (int i = 0; i < 2; i++) {
        struct store_list req = *shape;
        buf_init(&seen[i].text, 1u << 20);
        req.fn = note_entry;
        req.arg = &seen[i];
        assert_int_equal(store_list(stores[i], &req, &err), 0);
    }
    assert_string_equal(buf_cstr(&seen[0].text), buf_cstr(&seen[1].text));
    buf_release(&seen[0].text);
    buf_release(&seen[1].text);
}

/* One random change on both; the same result, error and outcome. */
static void
change_both(struct store *file, struct store *mem, uint64_t *random)
{
    struct store *stores[2] = { file, mem };
    struct store_put_result results[2];
    enum store_outcome outcomes[2];
    enum err_code codes[2];
    int rc[2];
    char key[1100];
    char other[1100];
    unsigned what = (unsigned)(random_next(random) % 8);

    random_key(random, key, sizeof(key));
    random_key(random, other, sizeof(other));
    for (int i = 0; i < 2; i++) {
        struct store_delete del = { .key = key };
        struct store_copy copy = { .from = other, .to = key };
        results[i] = (struct store_put_result){ 0 };
        err.code = ERR_INTERNAL;
        if (what < 3)
            rc[i] = store_put_small(stores[i], key, other, strlen(other), what ? none : absent,
                                    &results[i], &err);
        else if (what == 3)
            rc[i] = store_copy(stores[i], &copy, &results[i], &err);
        else
            rc[i] = store_delete(stores[i], &del, &outcomes[i], &err);
        codes[i] = err.code;
    }
    assert_int_equal(rc[0], rc[1]);
    assert_int_equal(codes[0], codes[1]);
    assert_memory_equal(&results[0], &results[1], sizeof(results[0]));
}

static void
agrees_with_mem(void **state)
{
    struct store *mem = mem_store_open(&err);
    uint64_t random = 20261129;

    assert_non_null(mem);
    for (int i = 0; i < 1500; i++) {
        char prefix[1100];
        char after[1100];
        struct store_list shape = { .prefix = "", .delimiter = i % 2 ? '/' : 0 };
        change_both(*state, mem, &random);
        random_key(&random, prefix, sizeof(prefix));
        random_key(&random, after, sizeof(after));
        if (random_next(&random) % 2)
            shape.prefix = prefix;
        if (random_next(&random) % 2)
            shape.start_after = after;
        shape.limit = (unsigned)(random_next(&random) % 6);
        compare_lists(*state, mem, &shape);
    }
    store_free(mem);
}

struct worker {
    struct store *store;
    uint64_t seed;
    char message[2048];
};

/* Keys that are in each other's way as file and directory: no call may fail but by its condition. */
static void *
quarrel(void *arg)
{
    static const char *const keys[] = { "q", "q/", "q/r", "q/r/s", "q/r/s/t", "q//r" };
    struct worker *worker = arg;
    struct err own = ERR_INIT;

    for (int i = 0; i < 150; i++) {
        const char *key = keys[random_next(&worker->seed) % 6];
        struct store_delete del = { .key = key };
        char text[1024] = "";
        struct store_list list = { .prefix = "q", .fn = append_key, .arg = text };
        unsigned what = (unsigned)(random_next(&worker->seed) % 8);
        int rc;
        if (what < 4)
            rc = store_put_small(worker->store, key, key, strlen(key), what ? none : absent, NULL,
                                 &own);
        else if (what < 7)
            rc = store_delete(worker->store, &del, NULL, &own);
        else
            rc = store_list(worker->store, &list, &own);
        if (rc < 0 && own.code != ERR_CONFLICT) {
            (void)snprintf(worker->message, sizeof(worker->message), "%s", own.msg);
            return NULL;
        }
    }
    return NULL;
}

static void
threads_in_each_others_way(void **state)
{
    pthread_t thread[6];
    struct worker worker[6];

    assert_int_equal(put(*state, "q/stays", "1", none), 0);
    for (unsigned i = 0; i < 6; i++) {
        worker[i] = (struct worker){ .store = *state, .seed = i };
        assert_int_equal(pthread_create(&thread[i], NULL, quarrel, &worker[i]), 0);
    }
    for (unsigned i = 0; i < 6; i++) {
        pthread_join(thread[i], NULL);
        assert_string_equal(worker[i].message, "");
    }
    assert_holds(*state, "q/stays", "1");
    assert_int_equal(count_names(".hf~tmp"), 0);
}

/* An object that is always there is always found and listed, while it is moved aside and back. */
static void *
keep_looking(void *arg)
{
    struct worker *worker = arg;
    struct err own = ERR_INIT;

    for (int i = 0; i < 400; i++) {
        char text[1024] = "";
        struct store_list list = { .prefix = "m", .limit = 1, .fn = append_key, .arg = text };
        if (store_head(worker->store, "m", 0, NULL, &own) < 0 ||
            store_list(worker->store, &list, &own) < 0 || strcmp(text, "m ") != 0) {
            (void)snprintf(worker->message, sizeof(worker->message), "%d: %s %s", i, own.msg, text);
            break;
        }
    }
    return NULL;
}

static void
moving_object_is_always_found(void **state)
{
    struct worker worker = { .store = *state };
    struct store_delete inside = { .key = "m/x" };
    struct store_delete all = { .key = "m" };
    pthread_t thread;

    for (int round = 0; round < 5; round++) {
        assert_int_equal(put(*state, "m", "1", none), 0);
        assert_int_equal(pthread_create(&thread, NULL, keep_looking, &worker), 0);
        for (int i = 0; i < 20; i++) {
            assert_int_equal(put(*state, "m/x", "2", none), 0);
            assert_int_equal(store_delete(*state, &inside, NULL, &err), 0);
            assert_int_equal(put(*state, "m", "1", none), 0);
        }
        pthread_join(thread, NULL);
        assert_string_equal(worker.message, "");
        assert_int_equal(store_delete(*state, &all, NULL, &err), 0);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(agrees_with_mem),
        TEST(threads_in_each_others_way),
        TEST(moving_object_is_always_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
