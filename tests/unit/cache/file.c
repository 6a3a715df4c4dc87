#include "tests/unit/cache/cache_fixture.h"

#include <linux/falloc.h>

#include "base/parse.h"

static void
test_truncate_and_allocate(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct cache_usage before, after;
    uint64_t size = 0;
    struct cache_file *file = make_file(1, 200000, 'a', true);
    cache_usage(cache, &before);
    RUN_OK(err, cache_file_truncate(file, 10, &err));
    cache_usage(cache, &after);
    assert_true(after.bytes + 150000 < before.bytes);
    RUN_OK(err, cache_file_size(file, &size, &err));
    assert_int_equal(size, 10);
    RUN_OK(err, cache_file_allocate(file, 0, 0, 1 << 20, &err));
    RUN_OK(err, cache_file_size(file, &size, &err));
    assert_int_equal(size, 1 << 20);
    cache_usage(cache, &after);
    assert_true(after.bytes >= 1 << 20);
    RUN_OK(err,
           cache_file_allocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1 << 20, &err));
    cache_usage(cache, &after);
    assert_true(after.bytes < 1 << 16);
    assert_int_equal(cache_file_truncate(file, LIMIT_FILE_SIZE + 1, &err), -1);
    assert_int_equal(err.code, ERR_TOO_LARGE);
    assert_int_equal(cache_file_write(file, "x", 1, LIMIT_FILE_SIZE, &err), -1);
    assert_int_equal(err.code, ERR_TOO_LARGE);
    cache_put(file);
}

static void
test_copy(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct cache_file *from = make_file(1, 300001, 'q', true);
    struct cache_file *to = make_file(2, 400000, 'r', true);
    uint64_t size = 0;
    char byte = 0;
    RUN_OK(err, cache_file_copy(to, from, &err));
    RUN_OK(err, cache_file_size(to, &size, &err));
    assert_int_equal(size, 300001);
    assert_int_equal(cache_file_read(to, &byte, 1, 300000, &err), 1);
    assert_int_equal(byte, 'q');
    RUN_OK(err, cache_file_write(to, "w", 1, 0, &err)); /* two files, not one */
    assert_int_equal(cache_file_read(from, &byte, 1, 0, &err), 1);
    assert_int_equal(byte, 'q');
    cache_put(from);
    cache_put(to);
}

/* FIPS 180-2 B.1 and RFC 1321 A.5: "abc". */
static void
test_hash(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    uint8_t sha256_out[SHA256_SIZE], md5_out[MD5_SIZE];
    char hex[SHA256_HEX];
    struct cache_file *file = make_file(1, 0, 'a', true);
    RUN_OK(err, cache_file_write(file, "abcdef", 6, 0, &err));
    RUN_OK(err, cache_file_hash(file, 3, sha256_out, md5_out, &err));
    hex_encode(sha256_out, SHA256_SIZE, hex);
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    hex_encode(md5_out, MD5_SIZE, hex);
    assert_string_equal(hex, "900150983cd24fb0d6963f7d28e17f72");
    assert_int_equal(cache_file_hash(file, 7, sha256_out, md5_out, &err),
                     -1); /* fewer bytes there */
    cache_put(file);
}

static void
test_sync_reaches_file_meta_and_directory(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct cache_meta meta;
    memset(&meta, 0, sizeof(meta));
    struct cache_file *file = cache_create(cache, 1, &meta, true, &err);
    plan.fdatasyncs = plan.fsyncs = 0;
    RUN_OK(err, cache_file_sync(file, &err));
    assert_int_equal(plan.fdatasyncs, 2); /* data and meta */
    assert_int_equal(plan.fsyncs, 1);     /* the names */
    RUN_OK(err, cache_file_sync(file, &err));
    assert_int_equal(plan.fdatasyncs, 3); /* the data may have changed, the meta did not */
    assert_int_equal(plan.fsyncs, 1);
    RUN_OK(err, cache_meta_write(file, &meta, &err));
    RUN_OK(err, cache_file_sync(file, &err));
    assert_int_equal(plan.fdatasyncs, 5);
    cache_put(file);
}

/* INV-2 */
static void
test_failed_sync_is_never_a_success_later(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct cache_file *file = make_file(1, 10, 'a', true);
    plan.fdatasync_errno = EIO;
    assert_int_equal(cache_file_sync(file, &err), -1);
    assert_int_equal(err.code, ERR_IO);
    plan.fdatasync_errno = 0;
    assert_int_equal(cache_file_sync(file, &err), -1);
    assert_int_equal(err.code, ERR_IO);
    cache_put(file);
    file = cache_get(cache, 1, &err); /* nor for the next who opens it */
    assert_int_equal(cache_file_sync(file, &err), -1);
    cache_put(file);
    file = make_file(2, 10, 'a', true); /* other files go on */
    RUN_OK(err, cache_file_sync(file, &err));
    cache_put(file);
}

static void
test_write_errors_come_back(void **state)
{
    (void)state;
    static const struct {
        int sys_errno;
        enum err_code code;
    } items[] = { { ENOSPC, ERR_NO_SPACE }, { EDQUOT, ERR_QUOTA }, { EIO, ERR_IO } };
    struct cache_file *file = make_file(1, 10, 'a', true);
    for (unsigned i = 0; i < 3; i++) {
        struct err err = ERR_INIT;
        plan.pwrite_errno = items[i].sys_errno;
        assert_int_equal(cache_file_write(file, "b", 1, 0, &err), -1);
        assert_int_equal(err.code, items[i].code);
    }
    plan.pwrite_errno = 0;
    cache_put(file);
}

int
main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_truncate_and_allocate),
        T(test_copy),
        T(test_hash),
        T(test_sync_reaches_file_meta_and_directory),
        T(test_failed_sync_is_never_a_success_later),
        T(test_write_errors_come_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
