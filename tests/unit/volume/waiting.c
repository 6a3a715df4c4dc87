#include <errno.h>
#include <linux/fs.h>

#include "tests/unit/volume/volume_fixture.h"

#include "base/sys.h"

/* What others waited for in vain: bytes that a truncate took away, a lock that a refused rename kept, a disk that was well again. */

#define MIB (1u << 20)
#define SOON (20 * NS_PER_S)

struct job {
    pthread_t thread;
    void (*fn)(struct job *job);
    struct volume_file *file;
    int64_t node;
    ssize_t got;
    struct err err;
};

static void *
job_main(void *arg)
{
    struct job *job = arg;
    job->fn(job);
    return NULL;
}

static void
job_start(struct job *job, void (*fn)(struct job *job), struct volume_file *file)
{
    *job = (struct job){ .fn = fn, .file = file, .node = job->node, .err = ERR_INIT };
    assert_int_equal(pthread_create(&job->thread, NULL, job_main, job), 0);
}

/* It ends by itself, or the test does. */
static void
job_join(struct job *job, const char *what)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += SOON / NS_PER_S;
    if (pthread_timedjoin_np(job->thread, NULL, &until) != 0)
        fail_msg("%s does not end", what);
}

/* ---- a reader ---- */

#define FAR (6 * MIB)

static atomic_bool far_closed;
static atomic_int far_waiting;

/* Bytes from the 4th MiB on do not come. */
static int
far_get(struct store *store, const struct store_get *req, struct store_object *out, struct err *err)
{
    if (req->off >= 4 * MIB) {
        atomic_fetch_add(&far_waiting, 1);
        while (atomic_load(&far_closed))
            clock_sleep_ns(NS_PER_MS);
    }
    return hook_get(store, req, out, err);
}

static void
read_far(struct job *job)
{
    char out[4096];
    struct volume_ctx ctx = rig.ctx;
    job->got = volume_file_read(job->file, &ctx, out, sizeof(out), FAR, &job->err);
}

static void
put_zeros(const char *key, size_t size)
{
    scope_free char *data = calloc(1, size);
    struct store_put_result res;
    assert_non_null(data);
    struct store_put put = { .key = key, .body = { .mem = data, .size = size, .fd = -1 } };
    RUN_OK(rig.err, store_put(rig.mem, &put, &res, &rig.err));
}

static void
cut(struct job *job)
{
    struct volume_attr attr;
    struct volume_ctx ctx = { .actor = "other", .connection = 2 };
    struct volume_change change = { .bits = VOLUME_SET_SIZE, .size = MIB };
    job->got = volume_setattr(rig.service, &ctx, job->node, &change, &attr, &job->err);
}

/* B049: readers wait at 6 MiB while the file is cut to 1 MiB; they must not wait for what nobody brings any more. */
static void
a_reader_ends_when_its_bytes_are_cut_off(void **state)
{
    (void)state;
    struct job reader[4] = { 0 }, cutter = { 0 };
    put_zeros("v/f", 8 * MIB);
    atomic_store(&far_closed, true);
    atomic_store(&far_waiting, 0);
    atomic_store(&rig.hook->get, far_get);
    struct volume_file *file = open_at("f", O_RDONLY);
    for (unsigned i = 0; i < 4; i++)
        job_start(&reader[i], read_far, file);
    while (atomic_load(&far_waiting) == 0)
        clock_sleep_ns(NS_PER_MS);
    cutter.node = node_of("f");
    job_start(&cutter, cut, NULL);
    clock_sleep_ns(NS_PER_S / 2);
    atomic_store(&far_closed, false);
    job_join(&cutter, "the truncate");
    if (cutter.got != 0)
        fail_msg("truncate: %s", cutter.err.msg);
    for (unsigned i = 0; i < 4; i++) {
        job_join(&reader[i], "a reader of bytes that were cut off");
        /* It began before: it may have seen the file as it was. */
        assert_true(reader[i].got == 0 || reader[i].got == 4096);
    }
    job_start(&reader[0], read_far, file);
    job_join(&reader[0], "a reader behind the end");
    assert_int_equal(reader[0].got, 0);
    volume_file_close(file, &rig.ctx);
}

/* ---- locks ---- */

static int
use_folders(struct err *err)
{
    struct volume_attr attr;
    struct volume_ctx ctx = { .actor = "other", .connection = 2 };
    struct volume_name from = { rig.root, "d", 1 }, aside = { rig.root, "aside", 5 };
    if (volume_resolve(rig.service, &ctx, rig.volume, "full", &attr, err) != 0)
        return -1;
    struct volume_name below = { attr.node, "new", 3 };
    if (volume_rename(rig.service, &ctx, &from, &aside, 0, err) != 0 ||
        volume_rename(rig.service, &ctx, &aside, &from, 0, err) != 0 ||
        volume_mkdir(rig.service, &ctx, &below, 0755, &attr, err) != 0)
        return -1;
    return volume_remove(rig.service, &ctx, &below, true, NULL, err);
}

static void
use_the_folders(struct job *job)
{
    job->got = use_folders(&job->err);
}

static void
assert_refused(const char *from, const char *to, unsigned flags, enum err_code code)
{
    struct job other = { 0 };
    struct volume_name a = name_at(from), b = name_at(to);
    assert_int_equal(volume_rename(rig.service, &rig.ctx, &a, &b, flags, &rig.err), -1);
    assert_int_equal(rig.err.code, code);
    job_start(&other, use_the_folders, NULL);
    job_join(&other, "another caller in the same folders");
    if (other.got != 0)
        fail_msg("after a refused rename of '%s': %s", from, other.err.msg);
}

/* B146: whatever a rename was refused for, others go on in the same folders. */
static void
a_refused_rename_keeps_no_lock(void **state)
{
    (void)state;
    make_dir("d");
    make_dir("d/sub");
    make_dir("full");
    save("full/x", "x");
    save("f", "f");
    assert_refused("d", "full", 0, ERR_NOT_EMPTY);
    assert_refused("d", "d/sub/d", 0, ERR_INVAL);
    assert_refused("d", "f", 0, ERR_NOT_DIR);
    assert_refused("f", "d", 0, ERR_IS_DIR);
    assert_refused("f", "full/x", RENAME_NOREPLACE, ERR_EXISTS);
    assert_refused("none", "full/x", 0, ERR_NOT_FOUND);
    assert_refused("f", "none", RENAME_EXCHANGE, ERR_NOT_FOUND);
    flush();
    assert_bucket("full/x", "x");
    assert_bucket("f", "f");
}

/* ---- the disk of the cache ---- */

static atomic_bool disk_broken;
static struct sys_table table;

static bool
is_broken(int fd)
{
    char link[64], path[512];
    if (!atomic_load(&disk_broken))
        return false;
    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, path, sizeof(path) - 1);
    if (len < 0)
        return false;
    path[len] = 0;
    return strstr(path, "/cache/") != NULL;
}

static ssize_t
broken_pread(int fd, void *data, size_t len, off_t off)
{
    if (!is_broken(fd))
        return sys_real.pread(fd, data, len, off);
    errno = EIO;
    return -1;
}

static ssize_t
broken_pwrite(int fd, const void *data, size_t len, off_t off)
{
    if (!is_broken(fd))
        return sys_real.pwrite(fd, data, len, off);
    errno = EIO;
    return -1;
}

static int
setup_disk(void **state)
{
    table = sys_real;
    table.pread = broken_pread;
    table.pwrite = broken_pwrite;
    atomic_store(&disk_broken, false);
    sys = &table; /* before there is a thread */
    return rig_setup(state);
}

static int
teardown_disk(void **state)
{
    int rc = rig_teardown(state);
    sys = &sys_real;
    return rc;
}

/* B152: while the disk fails a write says so at once; when it is well again everything goes on within seconds. */
static void
a_disk_that_is_well_again_is_used_at_once(void **state)
{
    (void)state;
    struct volume_barrier barrier;
    hold(HOOK_PUT);
    save("before", "staged");
    struct volume_file *file = open_at("during", O_CREAT | O_RDWR);
    write_at(file, "one", 0);
    atomic_store(&disk_broken, true);
    int64_t began = clock_mono_ns();
    assert_int_equal(volume_file_write(file, &rig.ctx, "two", 3, 3, &rig.err), -1);
    assert_int_equal(rig.err.code, ERR_IO);
    assert_true(clock_mono_ns() - began < 5 * NS_PER_S);
    release(HOOK_PUT);
    clock_sleep_ns(2 * NS_PER_S); /* uploads try, and fail, meanwhile */
    atomic_store(&disk_broken, false);
    write_at(file, "two", 3);
    close_file(file);
    RUN_OK(rig.err, flush_within(SOON, &barrier));
    assert_bucket("before", "staged");
    assert_bucket("during", "onetwo");
    assert_reads("during", "onetwo");
}

/* A request whose answer was lost may land yet, and names as its condition what would lie there again: that waits, and says why. */
static void
what_waits_for_a_lost_request_says_so(void **state)
{
    (void)state;
    struct volume_barrier barrier;
    struct sync_attempt lost = { .op = SYNC_OP_PUT, .size = 4 };
    struct store_object object;
    save("f", "AAA");
    flush();
    store_object_init(&object);
    RUN_OK(rig.err, store_head(rig.mem, "v/f", 0, &object, &rig.err));
    text_set(lost.cond_etag, object.etag); /* mem: has MD5s */
    store_object_release(&object);
    RUN_OK(rig.err, ulid_new(lost.version, &rig.err));
    save("f", "BBB");
    flush();
    sync_late_add(rig.service, "v/f", &lost);
    save("f", "AAA");
    assert_int_equal(flush_within(NS_PER_S, &barrier), -1);
    assert_int_equal(rig.err.code, ERR_NOT_SYNCED);
    assert_string_equal(barrier.first_key, "v/f");
    assert_non_null(strstr(barrier.first_error, "20 minutes"));
    assert_bucket("f", "BBB");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_reader_ends_when_its_bytes_are_cut_off, rig_setup,
                                        rig_teardown),
        cmocka_unit_test_setup_teardown(what_waits_for_a_lost_request_says_so, rig_setup,
                                        rig_teardown),
        cmocka_unit_test_setup_teardown(a_refused_rename_keeps_no_lock, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(a_disk_that_is_well_again_is_used_at_once, setup_disk,
                                        teardown_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
