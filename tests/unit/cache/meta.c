#include "tests/unit/cache/cache_fixture.h"

#include "base/ulid.h"

static void
fill(struct cache_meta *meta, const char *path)
{
    memset(meta, 0, sizeof(*meta));
    (void)snprintf(meta->volume, sizeof(meta->volume), "vol");
    (void)snprintf(meta->path, sizeof(meta->path), "%s", path);
}

static void
fill_all(char *to, size_t size, char byte)
{
    memset(to, byte, size - 1);
    to[size - 1] = '\0';
}
#define FILL(field, byte) fill_all(field, sizeof(field), byte)

static void
test_every_field_at_its_longest(void **state)
{
    (void)state;
    static struct cache_meta meta, out;
    struct err err = ERR_INIT;
    FILL(meta.volume, 'v');
    FILL(meta.path, '\xff'); /* three bytes each when encoded */
    meta.path[0] = '\n';
    meta.path[1] = '=';
    FILL(meta.node, 'N');
    FILL(meta.version, 'V');
    FILL(meta.base_version, 'B');
    FILL(meta.base_etag, '"');
    FILL(meta.sha256, 's');
    FILL(meta.run, '\x80');
    FILL(meta.actor, '%');
    meta.mode = meta.uid = meta.gid = UINT32_MAX;
    meta.mtime_ns = INT64_MIN;
    meta.size = UINT64_MAX;
    meta.live = true;
    cache_put(cache_create(cache, 1, &meta, true, &err));
    RUN_OK(err, cache_meta_read(cache, 1, &out, &err));
    assert_memory_equal(&meta, &out, sizeof(meta));
    reopen_cache();
    memset(&out, 0, sizeof(out));
    RUN_OK(err, cache_meta_read(cache, 1, &out, &err));
    assert_memory_equal(&meta, &out, sizeof(meta));
}

static void
test_missing(void **state)
{
    (void)state;
    struct cache_meta out;
    struct err err = ERR_INIT;
    make_closed(1, 1, true);
    assert_int_equal(cache_meta_read(cache, 1, &out, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    struct cache_file *file = cache_get(cache, 1, &err);
    struct cache_meta meta;
    fill(&meta, "later");
    RUN_OK(err, cache_meta_write(file, &meta, &err)); /* made when it is first wanted */
    RUN_OK(err, cache_meta_read(cache, 1, &out, &err));
    assert_string_equal(out.path, "later");
    cache_put(file);
}

static void
read_meta_file(char *data, size_t size, size_t *len)
{
    char path[256];
    (void)snprintf(path, sizeof(path), "%s/cache/01/1.meta", scratch);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    ssize_t got = read(fd, data, size);
    assert_true(got > 0);
    *len = (size_t)got;
    close(fd);
}

static void
write_meta_file(const char *data, size_t len)
{
    char path[256];
    (void)snprintf(path, sizeof(path), "%s/cache/01/1.meta", scratch);
    int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, len), (ssize_t)len);
    close(fd);
}

/* What a power cut may leave of a change: the text that was synced before is whole in its slot. */
static void
test_a_torn_change_finds_the_synced_text(void **state)
{
    (void)state;
    static char data[32768];
    size_t len = 0;
    struct err err = ERR_INIT;
    struct cache_meta meta, out;
    fill(&meta, "first");
    struct cache_file *file = cache_create(cache, 1, &meta, true, &err);
    RUN_OK(err, cache_file_sync(file, &err));
    for (int round = 0; round < 3; round++) { /* several changes without a sync between them */
        fill(&meta, "second");
        RUN_OK(err, cache_meta_write(file, &meta, &err));
    }
    RUN_OK(err, cache_meta_read(cache, 1, &out, &err));
    assert_string_equal(out.path, "second");
    read_meta_file(data, sizeof(data), &len);
    assert_true(len > 8192);
    for (size_t cut = 8192; cut < len; cut++) {
        write_meta_file(data, cut);
        RUN_OK(err, cache_meta_read(cache, 1, &out, &err));
        assert_string_equal(out.path, "first");
    }
    write_meta_file(data, len);
    RUN_OK(err, cache_file_sync(file, &err));
    fill(&meta, "third");
    RUN_OK(err, cache_meta_write(file, &meta, &err)); /* now over the first */
    RUN_OK(err, cache_meta_read(cache, 1, &out, &err));
    assert_string_equal(out.path, "third");
    cache_put(file);
    reopen_cache();
    file = cache_get(cache, 1, &err);
    fill(&meta, "fourth"); /* by a new process, which does not know what was synced */
    RUN_OK(err, cache_meta_write(file, &meta, &err));
    cache_put(file);
    RUN_OK(err, cache_meta_read(cache, 1, &out, &err));
    assert_string_equal(out.path, "fourth");
}

static void
test_damage_is_noticed(void **state)
{
    (void)state;
    static char data[16384];
    size_t len = 0;
    uint64_t seed = 3;
    struct err err = ERR_INIT;
    struct cache_meta meta, out;
    fill(&meta, "a path");
    cache_put(cache_create(cache, 1, &meta, true, &err));
    read_meta_file(data, sizeof(data), &len);
    for (unsigned round = 0; round < 400; round++) {
        size_t at = (size_t)(random_next(&seed) % len);
        char old = data[at];
        data[at] ^= (char)(1 + random_next(&seed) % 255);
        write_meta_file(data, len);
        if (cache_meta_read(cache, 1, &out, &err) == 0)
            assert_memory_equal(&meta, &out,
                                sizeof(meta)); /* a changed space or newline in the head */
        else
            assert_true(err.code == ERR_CORRUPT || err.code == ERR_NEWER_FORMAT);
        data[at] = old;
    }
    data[14] = '2'; /* "holdfast-meta 1": a later format with a right checksum */
    write_meta_file(data, len);
    assert_int_equal(cache_meta_read(cache, 1, &out, &err), -1);
    assert_int_equal(err.code, ERR_NEWER_FORMAT);
    write_meta_file("", 0);
    assert_int_equal(cache_meta_read(cache, 1, &out, &err), -1);
    assert_int_equal(err.code, ERR_CORRUPT);
}

int
main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_every_field_at_its_longest),
        T(test_missing),
        T(test_a_torn_change_finds_the_synced_text),
        T(test_damage_is_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
