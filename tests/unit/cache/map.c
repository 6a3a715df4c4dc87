#include "tests/support/fill.h"
#include "tests/unit/cache/cache_fixture.h"

#include <sys/wait.h>

#define BLOCK CACHE_BLOCK_SIZE
#define SIZE (3 * BLOCK + 100) /* four blocks, the last one short */

static char block[BLOCK];

static struct cache_file *
begin(int64_t number)
{
    struct err err = ERR_INIT;
    struct cache_file *file = cache_create(cache, number, NULL, false, &err);
    if (file == NULL) {
        fail_msg("cache_create: %s", err.msg);
        return NULL;
    }
    RUN_OK(err, cache_map_begin(file, SIZE, &err));
    return file;
}

static void
fill(struct cache_file *file, unsigned first, char byte)
{
    struct err err = ERR_INIT;
    memset(block, byte, sizeof(block));
    RUN_OK(err, fill_blocks(file, (uint64_t)first * BLOCK, block, first == 3 ? 100 : BLOCK, &err));
}

/* off and len of the first missing run in [from, from + len) */
static void
expect_missing(struct cache_file *file, uint64_t from, uint64_t len, uint64_t off, uint64_t miss)
{
    uint64_t got_off = 1, got_len = 1;
    assert_true(cache_map_missing(file, from, len, &got_off, &got_len));
    assert_int_equal(got_off, off);
    assert_int_equal(got_len, miss);
}

static void
expect_there(struct cache_file *file, uint64_t from, uint64_t len)
{
    uint64_t off = 0, miss = 0;
    assert_false(cache_map_missing(file, from, len, &off, &miss));
}

static void
test_runs(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    uint64_t size = 0;
    char byte = 0;
    struct cache_file *file = begin(1);
    RUN_OK(err, cache_file_size(file, &size, &err));
    assert_int_equal(size, SIZE);
    assert_false(cache_complete(file));
    expect_missing(file, 0, SIZE, 0, SIZE);
    expect_missing(file, 5, 1, 0, BLOCK);
    expect_missing(file, BLOCK - 1, 2, 0, 2 * BLOCK);
    expect_missing(file, SIZE - 1, 1000, 3 * BLOCK, 100);
    expect_there(file, SIZE, 10); /* behind the end */
    expect_there(file, 0, 0);
    fill(file, 1, 'b');
    expect_there(file, BLOCK, BLOCK);
    expect_missing(file, 0, SIZE, 0, BLOCK);
    expect_missing(file, BLOCK, SIZE, 2 * BLOCK, BLOCK + 100);
    fill(file, 0, 'a');
    fill(file, 3, 'd');
    expect_missing(file, 0, UINT64_MAX, 2 * BLOCK, BLOCK);
    assert_true(on_disk("cache/01/1.map"));
    fill(file, 2, 'c');
    assert_true(cache_complete(file));
    assert_false(on_disk("cache/01/1.map"));
    expect_there(file, 0, SIZE);
    assert_int_equal(cache_file_read(file, &byte, 1, SIZE - 1, &err), 1);
    assert_int_equal(byte, 'd');
    assert_int_equal(cache_file_read(file, &byte, 1, 2 * BLOCK, &err), 1);
    assert_int_equal(byte, 'c');
    cache_put(file);
}

static void
test_half_blocks_are_refused(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct cache_file *file = begin(1);
    assert_int_equal(fill_blocks(file, 1, block, BLOCK, &err), -1);
    assert_int_equal(fill_blocks(file, 0, block, BLOCK - 1, &err), -1);
    assert_int_equal(fill_blocks(file, 3 * BLOCK, block, 101, &err), -1);
    assert_int_equal(err.code, ERR_INTERNAL);
    expect_missing(file, 0, SIZE, 0, SIZE);
    cache_put(file);
}

static void
test_present_blocks_keep_what_was_written(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    char byte = 0;
    struct cache_file *file = begin(1);
    assert_int_equal(cache_file_write(file, "w", 1, 5, &err),
                     -1); /* a fill would put old bytes over it */
    assert_int_equal(err.code, ERR_INTERNAL);
    fill(file, 0, 'a');
    RUN_OK(err, cache_file_write(file, "w", 1, 5, &err));
    static char all[SIZE];
    memset(all, 'z', sizeof(all));
    RUN_OK(err, fill_blocks(file, 0, all, SIZE, &err));
    assert_true(cache_complete(file));
    assert_int_equal(cache_file_read(file, &byte, 1, 5, &err), 1);
    assert_int_equal(byte, 'w');
    assert_int_equal(cache_file_read(file, &byte, 1, 4, &err), 1);
    assert_int_equal(byte, 'a');
    assert_int_equal(cache_file_read(file, &byte, 1, BLOCK, &err), 1);
    assert_int_equal(byte, 'z');
    cache_put(file);
}

static void
test_empty_file_is_complete(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct cache_file *file = cache_create(cache, 1, NULL, false, &err);
    RUN_OK(err, cache_map_begin(file, 0, &err));
    assert_true(cache_complete(file));
    cache_put(file);
    reopen_cache();
    file = cache_get(cache, 1, &err);
    assert_true(cache_complete(file));
    cache_put(file);
}

static void
set_boot(const char *id)
{
    assert_int_equal(setenv("HOLDFAST_TEST_BOOT_ID", id, 1), 0); /* NOLINT(concurrency-mt-unsafe) */
}
#define BOOT_A "aaaaaaaa-0000-0000-0000-000000000000"
#define BOOT_B "bbbbbbbb-0000-0000-0000-000000000000"

/* As a killed process leaves it. */
static void
fill_and_die(bool seal)
{
    struct err err = ERR_INIT;
    int status = 0;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct cache_file *file = begin(1);
        fill(file, 1, 'b');
        if (seal && cache_map_seal(file, &err) != 0)
            _exit(1);
        fill(file, 2, 'c');
        (void)raise(SIGKILL);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    reopen_cache();
}

static void
test_map_survives_the_process(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    set_boot(BOOT_A);
    reopen_cache();
    fill_and_die(false);
    struct cache_file *file = cache_get(cache, 1, &err);
    expect_missing(file, 0, SIZE, 0, BLOCK);
    expect_there(file, BLOCK, 2 * BLOCK);
    expect_missing(file, 2 * BLOCK, SIZE, 3 * BLOCK, 100);
    cache_put(file);
}

static void
test_map_of_another_boot_counts_as_empty(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    set_boot(BOOT_A);
    reopen_cache();
    fill_and_die(false);
    set_boot(BOOT_B);
    reopen_cache();
    struct cache_file *file = cache_get(cache, 1, &err);
    expect_missing(file, 0, SIZE, 0, SIZE);
    fill(file, 0, 'a');
    cache_put(file);
    reopen_cache(); /* what was filled in this boot counts, and nothing older comes back */
    file = cache_get(cache, 1, &err);
    expect_there(file, 0, BLOCK);
    expect_missing(file, 0, SIZE, BLOCK, SIZE - BLOCK);
    cache_put(file);
}

static void
test_sealed_blocks_count_in_any_boot(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    set_boot(BOOT_A);
    reopen_cache();
    fill_and_die(true);
    set_boot(BOOT_B);
    reopen_cache();
    struct cache_file *file = cache_get(cache, 1, &err);
    expect_missing(file, 0, SIZE, 0, BLOCK);
    expect_there(file, BLOCK, BLOCK);
    expect_missing(file, BLOCK, SIZE, 2 * BLOCK, BLOCK + 100); /* filled after the seal */
    cache_put(file);
}

/* A power cut in the middle of a seal. */
static void
test_torn_seal_counts_as_empty(void **state)
{
    (void)state;
    char path[256];
    struct err err = ERR_INIT;
    (void)snprintf(path, sizeof(path), "%s/cache/01/1.map", scratch);
    for (int i = 0; i < 5; i++) { /* the one byte of bits, and the four of its checksum */
        set_boot(BOOT_A);
        reopen_cache();
        fill_and_die(true);
        int fd = open(path, O_RDWR | O_CLOEXEC);
        off_t end = lseek(fd, 0, SEEK_END);
        unsigned char byte = 0;
        assert_true(end > 4096 + 5);
        assert_int_equal(pread(fd, &byte, 1, end - 1 - i), 1);
        byte ^= 0x10;
        assert_int_equal(pwrite(fd, &byte, 1, end - 1 - i), 1);
        close(fd);
        set_boot(BOOT_B);
        reopen_cache();
        struct cache_file *file = cache_get(cache, 1, &err);
        expect_missing(file, 0, SIZE, 0, SIZE);
        cache_put(file);
        cache_remove(cache, 1);
    }
}

static void
test_seal_syncs_data_before_map(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct cache_file *file = begin(1);
    fill(file, 1, 'b');
    plan.fdatasyncs = 0;
    RUN_OK(err, cache_map_seal(file, &err));
    assert_int_equal(plan.fdatasyncs, 2);
    plan.fdatasync_errno = EIO;
    assert_int_equal(cache_map_seal(file, &err), -1);
    plan.fdatasync_errno = 0;
    assert_int_equal(cache_map_seal(file, &err), -1);
    cache_put(file);
}

static void
test_damaged_map_counts_as_empty(void **state)
{
    (void)state;
    char path[256];
    struct err err = ERR_INIT;
    (void)snprintf(path, sizeof(path), "%s/cache/01/1.map", scratch);
    for (off_t at = 0; at < 72; at += 3) {
        struct cache_file *file = begin(1);
        fill(file, 1, 'b');
        cache_put(file);
        int fd = open(path, O_RDWR | O_CLOEXEC);
        unsigned char byte = 0;
        assert_true(fd >= 0);
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        byte ^= 0x55;
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        close(fd);
        reopen_cache();
        file = cache_get(cache, 1, &err);
        expect_missing(file, 0, SIZE, 0, SIZE);
        cache_put(file);
        cache_remove(cache, 1);
    }
}

static void
test_too_large(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct cache_file *file = cache_create(cache, 1, NULL, false, &err);
    assert_int_equal(cache_map_begin(file, LIMIT_FILE_SIZE + 1, &err), -1);
    assert_int_equal(err.code, ERR_TOO_LARGE);
    RUN_OK(err, cache_map_begin(file, LIMIT_FILE_SIZE, &err));
    expect_missing(file, LIMIT_FILE_SIZE - 1, 1, LIMIT_FILE_SIZE - BLOCK, BLOCK);
    cache_put(file);
}

int
main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_runs),
        T(test_half_blocks_are_refused),
        T(test_present_blocks_keep_what_was_written),
        T(test_empty_file_is_complete),
        T(test_map_survives_the_process),
        T(test_map_of_another_boot_counts_as_empty),
        T(test_sealed_blocks_count_in_any_boot),
        T(test_torn_seal_counts_as_empty),
        T(test_seal_syncs_data_before_map),
        T(test_damaged_map_counts_as_empty),
        T(test_too_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
