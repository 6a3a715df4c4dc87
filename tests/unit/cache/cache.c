#include "tests/unit/cache/cache_fixture.h"

#include <sys/wait.h>
#include <time.h>

#include "base/clock.h"

static void
test_layout_and_life(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct cache_usage usage;
    char data[8] = "";
    struct cache_file *file = make_file(0x1234ab, 5, 'a', true); /* 1193131 */
    assert_int_equal(cache_file_number(file), 0x1234ab);
    assert_true(on_disk("cache/ab/1193131"));
    struct cache_file *again = cache_get(cache, 0x1234ab, &err);
    assert_ptr_equal(again, file); /* the same object */
    cache_put(again);
    assert_int_equal(cache_file_read(file, data, sizeof(data), 0, &err), 5);
    assert_memory_equal(data, "aaaaa", 5);
    assert_int_equal(cache_file_read(file, data, sizeof(data), 3, &err), 2);
    assert_int_equal(cache_file_read(file, data, sizeof(data), 9, &err), 0);
    cache_usage(cache, &usage);
    assert_int_equal(usage.files, 1);
    assert_int_equal(usage.pinned_files, 1);
    assert_int_equal(usage.bytes, usage.pinned_bytes);
    assert_true(usage.bytes >= 5 && usage.bytes <= 65536);
    cache_put(file);
    reopen_cache();
    cache_usage(cache, &usage);
    assert_int_equal(usage.files, 1);
    assert_int_equal(usage.pinned_files, 0); /* the caller says what is pinned */
    assert_true(is_cached(0x1234ab));
    assert_false(is_cached(1));
}

static void
test_numbers_are_used_once(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    make_closed(7, 10, false);
    assert_null(cache_create(cache, 7, NULL, false, &err));
    assert_int_equal(err.code, ERR_EXISTS);
    assert_null(cache_create(cache, 0, NULL, false, &err));
}

static void
test_remove_keeps_open_users_reading(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct cache_usage usage;
    char byte = 0;
    struct cache_meta meta;
    memset(&meta, 0, sizeof(meta));
    struct cache_file *file = cache_create(cache, 9, &meta, true, &err);
    assert_non_null(file);
    RUN_OK(err, cache_file_write(file, "z", 1, 0, &err));
    RUN_OK(err, cache_map_begin(file, 10, &err));
    assert_true(on_disk("cache/09/9") && on_disk("cache/09/9.map"));
    cache_remove(cache, 9);
    assert_false(on_disk("cache/09/9") || on_disk("cache/09/9.map"));
    assert_int_equal(cache_file_read(file, &byte, 1, 0, &err), 1);
    assert_int_equal(byte, 'z');
    assert_false(is_cached(9));
    cache_put(file);
    cache_usage(cache, &usage);
    assert_int_equal(usage.files, 0);
    assert_int_equal(usage.bytes, 0);
    assert_int_equal(usage.pinned_bytes, 0);
    assert_int_equal(usage.pinned_files, 0);
    cache_remove(cache, 9); /* missing is fine */
}

static void
test_leftovers_of_a_crash_go(void **state)
{
    (void)state;
    char path[256];
    (void)snprintf(path, sizeof(path), "%s/cache/05/5.map", scratch);
    close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    (void)snprintf(path, sizeof(path), "%s/cache/05/notes", scratch);
    close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    reopen_cache();
    assert_false(on_disk("cache/05/5.map")); /* a map without its file says nothing */
    assert_true(on_disk("cache/05/notes"));  /* not ours */
}

struct found {
    unsigned count;
    int64_t numbers[4];
    bool meta[4], map[4];
    uint64_t bytes[4];
};

static int
note(void *arg, int64_t number, uint64_t bytes, bool has_meta, bool has_map, struct err *err)
{
    struct found *found = arg;
    (void)err;
    found->numbers[found->count] = number;
    found->bytes[found->count] = bytes;
    found->meta[found->count] = has_meta;
    found->map[found->count++] = has_map;
    return 0;
}

static void
test_scan(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct found found = { .count = 0 };
    struct cache_meta meta;
    memset(&meta, 0, sizeof(meta));
    make_closed(300, 100000, false);
    cache_put(cache_create(cache, 2, &meta, true, &err));
    struct cache_file *file = cache_create(cache, 3, NULL, false, &err);
    RUN_OK(err, cache_map_begin(file, 5, &err));
    cache_put(file);
    for (int round = 0; round < 2; round++) { /* as it is known, and as it is found */
        memset(&found, 0, sizeof(found));
        RUN_OK(err, cache_scan(cache, note, &found, &err));
        assert_int_equal(found.count, 3);
        assert_int_equal(found.numbers[0], 2);
        assert_int_equal(found.numbers[2], 300);
        assert_true(found.meta[0] && !found.map[0] && !found.meta[1] && found.map[1]);
        assert_true(found.bytes[2] >= 100000 && !found.meta[2] && !found.map[2]);
        reopen_cache();
    }
}

/* ---- lost/ ---- */
static int64_t wall_s;
static int64_t
wall(void)
{
    return wall_s * NS_PER_S;
}

static int64_t
real_mono(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * NS_PER_S + ts.tv_nsec;
}

static void
test_lost_files_stay_seven_days(void **state)
{
    (void)state;
    static const struct clock_table moved = { .wall = wall, .mono = real_mono, .boot = real_mono };
    struct err err = ERR_INIT;
    struct cache_meta meta;
    memset(&meta, 0, sizeof(meta));
    wall_s = 1700000000;
    clock_replace(&moved);
    cache_put(cache_create(cache, 4, &meta, false, &err));
    RUN_OK(err, cache_lose(cache, 4, &err));
    assert_false(is_cached(4));
    assert_false(on_disk("cache/04/4"));
    assert_int_equal(cache_meta_read(cache, 4, &meta, &err), -1);
    assert_true(on_disk("lost/4@1700000000") && on_disk("lost/4.meta@1700000000"));
    wall_s += 7 * 86400 - 1;
    reopen_cache();
    assert_true(on_disk("lost/4@1700000000"));
    wall_s += 1;
    reopen_cache();
    assert_false(on_disk("lost/4@1700000000") || on_disk("lost/4.meta@1700000000"));
    assert_int_equal(cache_lose(cache, 4, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    clock_replace(NULL);
}

/* ---- kill -9 ---- */
static void
test_written_bytes_survive_kill(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    int status = 0;
    char data[4] = "";
    struct cache_meta meta;
    memset(&meta, 0, sizeof(meta));
    (void)snprintf(meta.path, sizeof(meta.path), "kept");
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct cache_file *file = cache_create(cache, 21, &meta, true, &err);
        if (file == NULL || cache_file_write(file, "data", 4, 0, &err) != 0)
            _exit(1);
        (void)raise(SIGKILL);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    reopen_cache();
    struct cache_file *file = cache_get(cache, 21, &err);
    assert_non_null(file);
    assert_int_equal(cache_file_read(file, data, 4, 0, &err), 4);
    assert_memory_equal(data, "data", 4);
    cache_put(file);
    memset(&meta, 0, sizeof(meta));
    RUN_OK(err, cache_meta_read(cache, 21, &meta, &err));
    assert_string_equal(meta.path, "kept");
}

int
main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_layout_and_life),
        T(test_numbers_are_used_once),
        T(test_remove_keeps_open_users_reading),
        T(test_leftovers_of_a_crash_go),
        T(test_scan),
        T(test_lost_files_stay_seven_days),
        T(test_written_bytes_survive_kill),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
