#include "tests/unit/cache/cache_fixture.h"

#include "base/sys.h"
#include "base/ulid.h"
#include "tests/support/full_disk.h"

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
    (void)snprintf(path, sizeof(path), "%s/cache/metas", scratch);
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
    (void)snprintf(path, sizeof(path), "%s/cache/metas", scratch);
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
    data[14] = '3'; /* "holdfast-meta 2": a later format with a right checksum */
    write_meta_file(data, len);
    assert_int_equal(cache_meta_read(cache, 1, &out, &err), -1);
    assert_int_equal(err.code, ERR_NEWER_FORMAT);
    write_meta_file("", 0);
    assert_int_equal(cache_meta_read(cache, 1, &out, &err), -1);
    assert_int_equal(err.code, ERR_CORRUPT);
}

static void
make(int64_t number, const char *path)
{
    struct err err = ERR_INIT;
    struct cache_meta meta;
    fill(&meta, path);
    struct cache_file *file = cache_create(cache, number, &meta, true, &err);
    assert_non_null(file);
    cache_put(file);
}

static void
change(int64_t number, const char *path)
{
    struct err err = ERR_INIT;
    struct cache_meta meta;
    fill(&meta, path);
    struct cache_file *file = cache_get(cache, number, &err);
    RUN_OK(err, cache_meta_write(file, &meta, &err));
    cache_put(file);
}

static void
assert_path(int64_t number, const char *path)
{
    struct err err = ERR_INIT;
    struct cache_meta meta;
    RUN_OK(err, cache_meta_read(cache, number, &meta, &err));
    assert_string_equal(meta.path, path);
}

static int64_t
pairs_on_disk(void)
{
    char path[256];
    struct stat st;
    (void)snprintf(path, sizeof(path), "%s/cache/metas", scratch);
    assert_int_equal(stat(path, &st), 0);
    return (st.st_size + 16383) / 16384;
}

/* The room of those that are in the bucket, or gone, serves others; nobody reads another one's text. */
static void
test_room_is_used_again(void **state)
{
    (void)state;
    char path[32];
    struct err err = ERR_INIT;
    struct cache_meta meta;
    for (int64_t n = 1; n <= 50; n++) {
        (void)snprintf(path, sizeof(path), "p%d", (int)n);
        make(n, path);
    }
    assert_int_equal(pairs_on_disk(), 50);
    for (int round = 0; round < 2; round++) {
        int64_t base = round * 50;
        for (int64_t n = base + 1; n <= base + 50; n++) {
            if (n % 2 == 0)
                cache_clean(cache, n);
            else
                cache_remove(cache, n);
        }
        if (round == 1)
            reopen_cache();
        for (int64_t n = base + 51; n <= base + 100; n++) {
            (void)snprintf(path, sizeof(path), "p%d", (int)n);
            make(n, path);
        }
        /* Also after a start: what is in the bucket is no meta any more, or a rebuild would take it for staged (INV-6). */
        assert_int_equal(pairs_on_disk(), 50);
    }
    for (int round = 0; round < 2; round++) {
        for (int64_t n = 101; n <= 150; n++) {
            (void)snprintf(path, sizeof(path), "p%d", (int)n);
            assert_path(n, path);
        }
        for (int64_t n = 2; n <= 50; n += 2) {
            assert_int_equal(cache_meta_read(cache, n, &meta, &err), -1);
            assert_int_equal(err.code, ERR_NOT_FOUND);
        }
        reopen_cache();
    }
}

/* Two pairs may bear one content's number after a crash: the later one counts, wherever it lies. */
static void
test_the_later_of_two_pairs_counts(void **state)
{
    (void)state;
    make(1, "one");
    make(2, "two");
    cache_clean(cache, 2);
    cache_clean(cache, 1);
    change(2, "two, again"); /* where 1 was */
    reopen_cache();
    assert_path(2, "two, again");
    change(2, "two, third time");
    make(3, "three");
    assert_path(2, "two, third time");
    cache_clean(cache, 3);
    cache_clean(cache, 2);
    make(4, "four"); /* where 2 was last */
    change(2, "two, behind");
    reopen_cache();
    assert_path(2, "two, behind");
    assert_path(4, "four");
}

/* Open users of a removed file go on with it: its room is not given away under them. */
static void
test_a_removed_file_keeps_its_room_while_open(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct cache_meta meta;
    make(1, "removed");
    struct cache_file *file = cache_get(cache, 1, &err);
    cache_remove(cache, 1);
    make(2, "other");
    fill(&meta, "written late");
    RUN_OK(err, cache_meta_write(file, &meta, &err));
    RUN_OK(err, cache_file_sync(file, &err));
    assert_path(2, "other");
    cache_put(file);
    make(3, "third");
    reopen_cache();
    assert_path(2, "other");
    assert_path(3, "third");
}

/* A disk that is full when a meta is written: no content file, and nothing is lost of the others. */
static void
test_no_room_for_a_meta(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct cache_meta meta;
    make(1, "one");
    fill(&meta, "two");
    struct sys_table full = sys_real;
    full.pwrite = full_disk_pwrite;
    sys = &full;
    assert_null(cache_create(cache, 2, &meta, true, &err));
    assert_int_equal(err.code, ERR_NO_SPACE);
    sys = &sys_real;
    assert_false(is_cached(2));
    make(2, "two");
    reopen_cache();
    assert_path(1, "one");
    assert_path(2, "two");
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
        T(test_room_is_used_again),
        T(test_the_later_of_two_pairs_counts),
        T(test_a_removed_file_keeps_its_room_while_open),
        T(test_no_room_for_a_meta),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
