#include "tests/unit/cache/cache_fixture.h"

#include <linux/falloc.h>
#include <unistd.h>

/* Hashes kept while a file is written are those of its bytes, or they are not told at all. */

static struct cache_file *
new_file(void)
{
    return make_file(1, 0, 'a', true);
}

static void
put(struct cache_file *file, const char *text, uint64_t off)
{
    struct err err = ERR_INIT;
    RUN_OK(err, cache_file_write(file, text, strlen(text), off, &err));
}

static bool
is_known(struct cache_file *file, uint64_t size)
{
    uint8_t sha[SHA256_SIZE], md[MD5_SIZE];
    return cache_file_hashed(file, size, sha, md);
}

/* Told, they are right: compared with a hash of what lies on the disk. */
static void
assert_right(struct cache_file *file)
{
    struct err err = ERR_INIT;
    char data[4096];
    uint8_t sha[SHA256_SIZE], md[MD5_SIZE], wanted_sha[SHA256_SIZE], wanted_md[MD5_SIZE];
    ssize_t len = pread(cache_file_fd(file), data, sizeof(data), 0);
    assert_true(len >= 0);
    RUN_OK(err, sha256(data, (size_t)len, wanted_sha, &err));
    RUN_OK(err, md5(data, (size_t)len, wanted_md, &err));
    if (cache_file_hashed(file, (uint64_t)len, sha, md)) {
        assert_memory_equal(sha, wanted_sha, sizeof(sha));
        assert_memory_equal(md, wanted_md, sizeof(md));
    }
    RUN_OK(err, cache_file_hash(file, (uint64_t)len, sha, md, &err));
    assert_memory_equal(sha, wanted_sha, sizeof(sha));
    assert_memory_equal(md, wanted_md, sizeof(md));
}

static void
in_order_they_are_known(void **state)
{
    (void)state;
    struct cache_file *file = new_file();
    assert_true(is_known(file, 0));
    put(file, "one", 0);
    put(file, " two", 3);
    assert_true(is_known(file, 7));
    assert_false(is_known(file, 6));
    assert_right(file);
    put(file, " three", 7); /* a look at them does not end them */
    assert_true(is_known(file, 13));
    assert_right(file);
    cache_put(file);
}

static void
change_size(struct cache_file *file, uint64_t size)
{
    struct err err = ERR_INIT;
    RUN_OK(err, cache_file_truncate(file, size, &err));
}

static void
allocate(struct cache_file *file, int mode, uint64_t len)
{
    struct err err = ERR_INIT;
    RUN_OK(err, cache_file_allocate(file, mode, 0, len, &err));
}

static void
break_order(struct cache_file *file, int way)
{
    switch (way) {
    case 0: /* over what is there */
        put(file, "x", 3);
        break;
    case 1: /* behind a hole */
        put(file, "x", 20);
        break;
    case 2:
        change_size(file, 5);
        break;
    case 3:
        change_size(file, 30);
        break;
    case 4:
        allocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4);
        break;
    default:
        allocate(file, 0, 100);
        break;
    }
}

static void
any_other_order_ends_them(void **state)
{
    (void)state;
    for (int way = 0; way < 6; way++) {
        struct cache_file *file = make_file(10 + way, 0, 'a', true);
        put(file, "0123456789", 0);
        break_order(file, way);
        for (uint64_t size = 0; size < 101; size++)
            assert_false(is_known(file, size));
        assert_right(file);
        put(file, "more", 10); /* what was the end once */
        assert_right(file);
        cache_put(file);
    }
}

static void
an_emptied_file_begins_anew(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct cache_file *file = new_file();
    put(file, "x", 5);
    assert_false(is_known(file, 6));
    RUN_OK(err, cache_file_truncate(file, 0, &err));
    put(file, "new", 0);
    assert_true(is_known(file, 3));
    assert_right(file);
    cache_put(file);
}

static void
a_copy_and_a_reopened_file_have_none(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct cache_file *from = make_file(1, 100, 'f', true);
    struct cache_file *to = make_file(2, 0, 't', true);
    RUN_OK(err, cache_file_copy(to, from, &err));
    assert_false(is_known(to, 0));
    assert_false(is_known(to, 100));
    assert_right(to);
    cache_put(from);
    cache_put(to);
    from = cache_get(cache, 1, &err);
    assert_non_null(from);
    assert_false(is_known(from, 100));
    put(from, "x", 0);
    assert_right(from);
    cache_put(from);
}

static void
a_failed_write_ends_them(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct cache_file *file = new_file();
    plan.pwrite_errno = EIO;
    assert_int_equal(cache_file_write(file, "lost", 4, 0, &err), -1);
    plan.pwrite_errno = 0;
    assert_false(is_known(file, 4));
    put(file, "good", 0);
    assert_right(file);
    cache_put(file);
}

int
main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(in_order_they_are_known),     T(any_other_order_ends_them),
        T(an_emptied_file_begins_anew), T(a_copy_and_a_reopened_file_have_none),
        T(a_failed_write_ends_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
