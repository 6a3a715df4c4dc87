#include "tests/unit/volume/volume_fixture.h"

#include "volume/fetch_impl.h"

/* Reading what only the bucket has: who asks for what, how often, and that the bytes are right. */

#define MIB (1u << 20)

/* Each 8 bytes tell their version and place, so that every read can be judged by itself. */
static uint64_t
word_at(uint64_t version, uint64_t off)
{
    return version << 40 | off / 8;
}

static void
put_big(const char *path, size_t size, uint64_t version)
{
    char key[LIMIT_KEY + 1];
    uint64_t *data = malloc(size + 8);
    assert_non_null(data);
    for (size_t i = 0; i * 8 < size; i++)
        data[i] = word_at(version, i * 8);
    (void)snprintf(key, sizeof(key), "v/%s", path);
    struct store_put put = { .key = key, .body = { .mem = data, .size = size, .fd = -1 } };
    struct store_put_result res;
    RUN_OK(rig.err, store_put(rig.mem, &put, &res, &rig.err));
    free(data);
}

/* The version whose bytes these are; fails when they are of no version, or of two (INV-1, INV-4). */
static uint64_t
version_of(const void *data, size_t len, uint64_t off)
{
    uint64_t first, word;
    memcpy(&first, data, 8);
    for (size_t i = 0; i + 8 <= len; i += 8) {
        memcpy(&word, (const char *)data + i, 8);
        if (word != word_at(first >> 40, off + i))
            fail_msg("wrong bytes at %llu", (unsigned long long)(off + i));
    }
    return first >> 40;
}

static ssize_t
read_some(struct volume_file *file, uint64_t off, size_t len, struct err *err)
{
    scope_free char *data = malloc(len);
    struct volume_ctx ctx = rig.ctx;
    assert_non_null(data);
    ssize_t got = volume_file_read(file, &ctx, data, len, off, err);
    if (got >= 8)
        (void)version_of(data, (size_t)got, off);
    return got;
}

static void
read_all(struct volume_file *file, uint64_t from, uint64_t to, size_t step)
{
    struct err err = ERR_INIT;
    for (uint64_t off = from; off < to; off += step) {
        ssize_t wanted = to - off < step ? (ssize_t)(to - off) : (ssize_t)step;
        if (read_some(file, off, (size_t)wanted, &err) != wanted)
            fail_msg("read at %llu: %s", (unsigned long long)off, err.msg);
    }
}

static atomic_int get_count; /* of files: the service itself asks for its lease and more */

static int
count_get(struct store *store, const struct store_get *req, struct store_object *out,
          struct err *err)
{
    atomic_fetch_add(&get_count, strncmp(req->key, "v/", 2) == 0);
    return hook_get(store, req, out, err);
}

static int
gets(void)
{
    return atomic_load(&get_count);
}

static int
setup(void **state)
{
    int rc = rig_setup(state);
    atomic_store(&get_count, 0);
    atomic_store(&rig.hook->get, count_get);
    return rc;
}

static void
wait_idle(void)
{
    for (int i = 0; i < 60000; i++) {
        pthread_mutex_lock(&rig.service->fetcher->lock);
        bool idle = rig.service->fetcher->busy == 0;
        pthread_mutex_unlock(&rig.service->fetcher->lock);
        if (idle)
            return;
        clock_sleep_ns(NS_PER_MS);
    }
    fail_msg("requests in the background do not end");
}

struct reader {
    pthread_t thread;
    struct volume_file *file;
    uint64_t off;
    size_t len;
    ssize_t got;
    struct err err;
    atomic_bool done;
};

static void *
reader_main(void *arg)
{
    struct reader *reader = arg;
    reader->got = read_some(reader->file, reader->off, reader->len, &reader->err);
    atomic_store(&reader->done, true);
    return NULL;
}

static void
reader_start(struct reader *reader, struct volume_file *file, uint64_t off, size_t len)
{
    *reader = (struct reader){ .file = file, .off = off, .len = len, .err = ERR_INIT };
    assert_int_equal(pthread_create(&reader->thread, NULL, reader_main, reader), 0);
}

static void
reader_join(struct reader *reader)
{
    assert_int_equal(pthread_join(reader->thread, NULL), 0);
    if (reader->got != (ssize_t)reader->len)
        fail_msg("read at %llu: %s", (unsigned long long)reader->off, reader->err.msg);
}

static void
two_readers_of_a_range_cause_one_request(void **state)
{
    (void)state;
    struct reader reader[4];
    put_big("f", 8 * MIB, 1);
    struct volume_file *file = open_at("f", O_RDONLY);
    int before = gets();
    hold(HOOK_GET);
    for (unsigned i = 0; i < 4; i++)
        reader_start(&reader[i], file, i * 65536, 4096);
    wait_for_waiting(HOOK_GET);
    for (int i = 0; i < 20000 && atomic_load(&rig.service->fetcher->joined) < 3; i++)
        clock_sleep_ns(NS_PER_MS);
    assert_int_equal(gets() - before, 1);
    release(HOOK_GET);
    for (unsigned i = 0; i < 4; i++)
        reader_join(&reader[i]);
    assert_int_equal(gets() - before, 1);
    assert_int_equal(atomic_load(&rig.service->fetcher->joined), 3);
    volume_file_close(file, &rig.ctx);
}

static void
reading_on_has_requests_in_parallel(void **state)
{
    (void)state;
    struct reader reader;
    put_big("f", 40 * MIB, 1);
    struct volume_file *file = open_at("f", O_RDONLY);
    read_all(file, 0, 4 * MIB, 128 << 10);
    wait_idle();
    hold(HOOK_GET);
    /* Far enough for the window to move; what is behind it is not there yet. */
    reader_start(&reader, file, 4 * MIB, 24 * MIB);
    for (int i = 0; i < 20000 && atomic_load(&rig.hook->waiting[HOOK_GET]) < 3; i++)
        clock_sleep_ns(NS_PER_MS);
    assert_true(atomic_load(&rig.hook->waiting[HOOK_GET]) >= 3);
    release(HOOK_GET);
    reader_join(&reader);
    read_all(file, 28 * MIB, 40 * MIB, 128 << 10);
    wait_idle();
    /* Each byte once, in requests of up to 4 MiB. */
    assert_int_equal(atomic_load(&rig.service->fetcher->bytes), 40 * MIB);
    assert_true(atomic_load(&rig.service->fetcher->ahead_bytes) > 0);
    volume_file_close(file, &rig.ctx);
    assert_int_equal(atomic_load(&rig.service->fetcher->ahead_wasted), 0);
}

/* B133: random reads bring the block they lie in and nothing more. */
static void
random_reads_bring_one_block_each(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    put_big("f", 64 * MIB, 1);
    struct volume_file *file = open_at("f", O_RDONLY);
    int before = gets();
    static const unsigned block[] = { 40, 3, 22, 61, 9, 33, 50, 15 };
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(read_some(file, (uint64_t)block[i] * MIB + 4096, 4096, &err), 4096);
    wait_idle();
    assert_int_equal(gets() - before, 8);
    assert_int_equal(atomic_load(&rig.service->fetcher->bytes), 8 * MIB);
    volume_file_close(file, &rig.ctx);
}

/* ---- a store that stops, or fails, in the middle ---- */

static atomic_bool gate_closed;
static _Atomic uint64_t
    gate_at; /* bytes of the object behind which nothing comes while it is closed */
static _Atomic uint64_t fail_from, fail_to;

struct gate_sink {
    const struct store_get *req;
    uint64_t at;
};

static int
gate_bytes(void *arg, const void *data, size_t len, struct err *err)
{
    struct gate_sink *sink = arg;
    for (size_t done = 0; done < len;) {
        size_t part = len - done < 65536 ? len - done : 65536;
        while (atomic_load(&gate_closed) && sink->at >= atomic_load(&gate_at))
            clock_sleep_ns(NS_PER_MS);
        if (sink->at >= atomic_load(&fail_from) && sink->at < atomic_load(&fail_to))
            return err_set(err, ERR_STORE_BAD_ANSWER, "the body broke off");
        if (sink->req->sink(sink->req->sink_arg, (const char *)data + done, part, err) != 0)
            return -1;
        done += part;
        sink->at += part;
    }
    return 0;
}

static int
gate_get(struct store *store, const struct store_get *req, struct store_object *out,
         struct err *err)
{
    struct gate_sink sink = { .req = req, .at = req->off };
    struct store_get inner = *req;
    inner.sink = gate_bytes;
    inner.sink_arg = &sink;
    return count_get(store, &inner, out, err);
}

static void
use_gate(void)
{
    atomic_store(&gate_closed, false);
    atomic_store(&fail_to, 0);
    atomic_store(&rig.hook->get, gate_get);
}

static void
a_reader_wakes_when_its_block_is_there(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct reader all;
    use_gate();
    put_big("f", 8 * MIB, 1);
    struct volume_file *file = open_at("f", O_RDONLY);
    atomic_store(&gate_at, 2 * MIB);
    atomic_store(&gate_closed, true);
    reader_start(&all, file, 0, 4 * MIB); /* one request that stops half way */
    assert_int_equal(read_some(file, MIB + 100 * 8, 4096, &err), 4096);
    assert_false(atomic_load(&all.done));
    atomic_store(&gate_closed, false);
    reader_join(&all);
    volume_file_close(file, &rig.ctx);
}

/* B117, B119: a body that ends early is an error for those who wait for it, and for nobody else. */
static void
an_error_in_the_middle_is_told_to_those_who_need_it(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    use_gate();
    put_big("f", 24 * MIB, 1);
    struct volume_file *file = open_at("f", O_RDONLY);
    atomic_store(&fail_from, 10 * MIB + 300000);
    atomic_store(&fail_to, 11 * MIB);
    read_all(file, 0, 10 * MIB, 128 << 10);
    assert_int_equal(read_some(file, 10 * MIB + 400000, 4096, &err), -1);
    assert_int_equal(err.code, ERR_STORE_BAD_ANSWER);
    read_all(file, 11 * MIB, 24 * MIB, 128 << 10);
    read_all(file, 9 * MIB, 10 * MIB, 128 << 10);
    /* The kernel asks page by page: one request fails for all of them. */
    int before = gets();
    for (unsigned i = 0; i < 16; i++)
        assert_int_equal(read_some(file, 10 * MIB + 4096 * (100 + i), 4096, &err), -1);
    assert_true(gets() - before <= 1);
    atomic_store(&fail_to, 0);
    clock_sleep_ns(NS_PER_S * 6 / 10);
    read_all(file, 10 * MIB, 11 * MIB, 128 << 10);
    volume_file_close(file, &rig.ctx);
}

static void
what_is_fetched_ahead_ends_with_the_last_close(void **state)
{
    (void)state;
    use_gate();
    put_big("f", 64 * MIB, 1);
    struct volume_file *file = open_at("f", O_RDONLY);
    read_all(file, 0, 2 * MIB, 128 << 10);
    wait_idle();
    atomic_store(&gate_at, 3 * MIB);
    atomic_store(&gate_closed, true);
    read_all(file, 2 * MIB, 3 * MIB, 128 << 10);
    volume_file_close(file, &rig.ctx);
    int before;
    do { /* what was sent off is at the gate */
        before = gets();
        clock_sleep_ns(100 * NS_PER_MS);
    } while (before != gets());
    uint64_t bytes = atomic_load(&rig.service->fetcher->bytes);
    atomic_store(&gate_closed, false);
    wait_idle();
    assert_int_equal(gets(), before); /* no new one */
    assert_true(atomic_load(&rig.service->fetcher->bytes) - bytes <= 4 * MIB);
    assert_true(atomic_load(&rig.service->fetcher->ahead_wasted) > 0);
    assert_null(inode_find(&rig.service->inodes, node_of("f")));
}

static void
closing_the_service_does_not_wait_for_the_rest(void **state)
{
    (void)state;
    use_gate();
    put_big("f", 64 * MIB, 1);
    struct volume_file *file = open_at("f", O_RDONLY);
    read_all(file, 0, 4 * MIB, 128 << 10);
    atomic_store(&gate_at, 6 * MIB);
    atomic_store(&gate_closed, true);
    struct reader reader;
    reader_start(&reader, file, 5 * MIB, MIB);
    assert_int_equal(pthread_join(reader.thread, NULL), 0);
    volume_file_close(file, &rig.ctx);
    uint64_t before = atomic_load(&rig.service->fetcher->bytes);
    atomic_store(&rig.service->stopping, true);
    atomic_store(&gate_closed, false);
    wait_idle();
    assert_true(atomic_load(&rig.service->fetcher->bytes) - before <= 2 * MIB);
    atomic_store(&rig.service->stopping, false); /* the teardown closes in order */
}

/* ---- versions ---- */

struct mixer {
    pthread_t thread;
    unsigned seed;
    atomic_bool stop;
    atomic_uint reads, versions;
    uint64_t last;
};

/* Opens, reads here and there or on and on, closes; one handle's reads are of one version or fail. */
static void *
mixer_main(void *arg)
{
    struct mixer *mixer = arg;
    struct volume_ctx ctx = rig.ctx;
    uint64_t seed = mixer->seed;
    scope_free char *data = malloc(256 << 10);
    while (!atomic_load(&mixer->stop)) {
        struct volume_file *file = NULL;
        struct volume_attr attr;
        struct err err = ERR_INIT;
        if (volume_resolve(rig.service, &ctx, rig.volume, "f", &attr, &err) != 0 ||
            volume_file_open(rig.service, &ctx, attr.node, O_RDONLY, &file, &err) != 0)
            continue; /* the name has another node by now */
        bool on = random_next(&seed) % 2 == 0;
        uint64_t off = random_next(&seed) % (4 * MIB) / 8 * 8;
        for (unsigned i = 0; i < 12; i++) {
            ssize_t got = volume_file_read(file, &ctx, data, 128 << 10, off, &err);
            if (got < 0)
                break;
            if (got >= 8) {
                uint64_t version = version_of(data, (size_t)got, off);
                atomic_fetch_add(&mixer->versions, version != mixer->last);
                mixer->last = version;
                atomic_fetch_add(&mixer->reads, 1);
            }
            off = on ? off + (uint64_t)got : random_next(&seed) % (4 * MIB) / 8 * 8;
        }
        volume_file_close(file, &ctx);
    }
    return NULL;
}

static unsigned
seen_by(struct mixer *mixer)
{
    unsigned versions = 0;
    for (unsigned i = 0; i < 3; i++)
        versions += atomic_load(&mixer[i].versions);
    return versions;
}

static void
no_read_mixes_two_versions(void **state)
{
    (void)state;
    struct mixer mixer[3];
    unsigned reads = 0;
    memset(mixer, 0, sizeof(mixer));
    put_big("f", 5 * MIB, 1);
    (void)node_of("f");
    int64_t begun = clock_mono_ns(), now = begun;
    for (unsigned i = 0; i < 3; i++) {
        mixer[i].seed = i + 1;
        assert_int_equal(pthread_create(&mixer[i].thread, NULL, mixer_main, &mixer[i]), 0);
    }
    /* Two seconds, and on a busy machine until something was seen. */
    for (uint64_t version = 2;
         now - begun < 2 * NS_PER_S || (seen_by(mixer) < 6 && now - begun < 60 * NS_PER_S);
         version++, now = clock_mono_ns()) {
        put_big("f", 5 * MIB + (version % 3) * MIB, version);
        clock_sleep_ns(30 * NS_PER_MS);
        if (version % 4 == 0)
            relist("");
    }
    for (unsigned i = 0; i < 3; i++) {
        atomic_store(&mixer[i].stop, true);
        assert_int_equal(pthread_join(mixer[i].thread, NULL), 0);
        reads += atomic_load(&mixer[i].reads);
    }
    assert_true(reads > 10);
    assert_true(seen_by(mixer) >= 6);
}

/* ---- space ---- */

static int
setup_small_cache(void **state)
{
    (void)state;
    rig_open(&(struct rig_options){ .cache_bytes = 16 * MIB });
    return 0;
}

/* B059: one open file that is larger than the cache gives its own blocks back, oldest first. */
static void
a_file_larger_than_the_cache_is_readable(void **state)
{
    (void)state;
    struct cache_usage usage;
    struct err err = ERR_INIT;
    put_big("f", 48 * MIB, 1);
    struct volume_file *file = open_at("f", O_RDONLY);
    for (uint64_t at = 0; at < 48 * MIB; at += 4 * MIB) {
        read_all(file, at, at + 4 * MIB, 128 << 10);
        cache_usage(rig.service->cache, &usage);
        assert_true(usage.bytes <= 16 * MIB + MIB / 2);
    }
    static const unsigned block[] = { 40, 3, 22, 47, 9, 33, 3, 15 };
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(read_some(file, (uint64_t)block[i] * MIB, 65536, &err), 65536);
    volume_file_close(file, &rig.ctx);
}

/* B058: where staged bytes fill the cache nothing of theirs goes, and reading goes past it. */
static void
a_cache_full_of_staged_bytes_is_read_past(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    put_big("f", 6 * MIB, 1);
    put_big("small", 4096, 1);
    assert_int_equal(node_of("f") > 0, 1);
    atomic_store(&rig.hook->fail[HOOK_PUT], -1); /* nothing leaves */
    struct volume_file *staged = open_at("staged", O_CREAT | O_RDWR);
    scope_free char *block = calloc(1, MIB);
    for (unsigned i = 0; i < 16; i++)
        if (volume_file_write(staged, &rig.ctx, block, MIB, (uint64_t)i * MIB, &err) != 0)
            break;
    struct volume_file *file = open_at("f", O_RDONLY);
    read_all(file, 0, 6 * MIB, 128 << 10);
    assert_true(atomic_load(&rig.service->fetcher->direct) > 0);
    volume_file_close(file, &rig.ctx);
    file = open_at("small", O_RDONLY);
    read_all(file, 0, 4096, 4096);
    volume_file_close(file, &rig.ctx);
    assert_int_equal(volume_file_read(staged, &rig.ctx, block, 4096, 0, &err), 4096);
    atomic_store(&rig.hook->fail[HOOK_PUT], 0);
    volume_file_close(staged, &rig.ctx);
}

/* ---- small files ---- */

#define SMALL 120u

static void
small_path(unsigned i, char *out, size_t size)
{
    (void)snprintf(out, size, "d/%03u", i);
}

static void
put_small(void)
{
    char path[32];
    for (unsigned i = 0; i < SMALL; i++) {
        small_path(i, path, sizeof(path));
        put_big(path, 4096, i + 1);
    }
}

static void
read_small(unsigned i)
{
    char path[32], data[4096];
    small_path(i, path, sizeof(path));
    struct volume_file *file = open_at(path, O_RDONLY);
    assert_int_equal(volume_file_read(file, &rig.ctx, data, sizeof(data), 0, &rig.err), 4096);
    assert_int_equal(version_of(data, sizeof(data), 0), i + 1);
    volume_file_close(file, &rig.ctx);
}

static void
a_folder_read_through_is_fetched_ahead(void **state)
{
    (void)state;
    put_small();
    struct fetcher *fetcher = rig.service->fetcher;
    for (unsigned i = 0; i < SMALL; i++)
        read_small(i);
    wait_idle();
    assert_int_equal(gets(), (int)SMALL); /* each once */
    assert_true(atomic_load(&fetcher->prefetched) > SMALL / 2);
    assert_int_equal(atomic_load(&fetcher->bytes), SMALL * 4096);
    /* What a listing does not tell came with the bytes. */
    assert_true(atomic_load(&rig.hook->count[HOOK_HEAD]) < 20);
}

static void
who_stops_reading_a_folder_fetches_no_more(void **state)
{
    (void)state;
    put_small();
    for (unsigned i = 0; i < 12; i++)
        read_small(i);
    wait_idle();
    int before = gets();
    assert_true(before < 12 + 40);
    clock_sleep_ns(50 * NS_PER_MS);
    assert_int_equal(gets(), before);
    /* Elsewhere and back: what came is used. */
    read_small(90);
    wait_idle();
    assert_int_equal(gets(), before + 1);
}

static void
opens_here_and_there_fetch_what_they_open(void **state)
{
    (void)state;
    put_small();
    static const unsigned at[] = { 90, 10, 50, 30, 110, 70, 20, 100 };
    for (unsigned i = 0; i < 8; i++)
        read_small(at[i]);
    wait_idle();
    assert_int_equal(gets(), 8);
    assert_int_equal(atomic_load(&rig.service->fetcher->prefetched), 0);
}

/* An open of a file that is on its way waits for it and asks for nothing itself. */
static void
an_open_joins_what_is_on_its_way(void **state)
{
    (void)state;
    struct reader reader[3];
    struct volume_file *file[3];
    put_big("f", 4096, 1);
    for (unsigned i = 0; i < 3; i++)
        file[i] = open_at("f", O_RDONLY);
    hold(HOOK_GET);
    for (unsigned i = 0; i < 3; i++)
        reader_start(&reader[i], file[i], 0, 4096);
    wait_for_waiting(HOOK_GET);
    for (int i = 0; i < 20000 && atomic_load(&rig.service->fetcher->joined) < 2; i++)
        clock_sleep_ns(NS_PER_MS);
    release(HOOK_GET);
    for (unsigned i = 0; i < 3; i++) {
        reader_join(&reader[i]);
        volume_file_close(file[i], &rig.ctx);
    }
    assert_int_equal(gets(), 1);
}

static void
metadata_comes_with_the_bytes(void **state)
{
    (void)state;
    struct volume_attr attr;
    char path[32];
    struct meta meta;
    meta_init(&meta);
    RUN_OK(rig.err, meta_set(&meta, "mode", "33188", &rig.err)); /* 0100644 */
    RUN_OK(rig.err, meta_set(&meta, "mtime", "1500000000", &rig.err));
    RUN_OK(rig.err, meta_set(&meta, "uid", "77", &rig.err));
    RUN_OK(rig.err, meta_set(&meta, "gid", "78", &rig.err));
    for (unsigned i = 0; i < 40; i++) {
        small_path(i, path, sizeof(path));
        foreign_put_meta(path, "1234", &meta);
    }
    meta_release(&meta);
    for (unsigned i = 0; i < 40; i++) {
        small_path(i, path, sizeof(path));
        assert_reads(path, "1234");
        RUN_OK(rig.err, volume_resolve(rig.service, &rig.ctx, rig.volume, path, &attr, &rig.err));
        assert_int_equal(attr.mode, S_IFREG | 0644);
        assert_int_equal(attr.mtime_ns, 1500000000 * NS_PER_S);
        assert_int_equal(attr.uid, 77);
    }
    assert_true(atomic_load(&rig.service->fetcher->prefetched) > 0);
}

#define ONE(test) cmocka_unit_test_setup_teardown(test, setup, rig_teardown)
#define SMALL_CACHE(test) cmocka_unit_test_setup_teardown(test, setup_small_cache, rig_teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        ONE(two_readers_of_a_range_cause_one_request),
        ONE(reading_on_has_requests_in_parallel),
        ONE(random_reads_bring_one_block_each),
        ONE(a_reader_wakes_when_its_block_is_there),
        ONE(an_error_in_the_middle_is_told_to_those_who_need_it),
        ONE(what_is_fetched_ahead_ends_with_the_last_close),
        ONE(closing_the_service_does_not_wait_for_the_rest),
        ONE(no_read_mixes_two_versions),
        SMALL_CACHE(a_file_larger_than_the_cache_is_readable),
        SMALL_CACHE(a_cache_full_of_staged_bytes_is_read_past),
        ONE(a_folder_read_through_is_fetched_ahead),
        ONE(who_stops_reading_a_folder_fetches_no_more),
        ONE(opens_here_and_there_fetch_what_they_open),
        ONE(an_open_joins_what_is_on_its_way),
        ONE(metadata_comes_with_the_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
