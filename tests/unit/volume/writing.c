#include "tests/support/fill.h"
#include "tests/support/full_disk.h"
#include "tests/unit/volume/volume_fixture.h"

/* Writing opens: what may not be lost whatever else happens to the file meanwhile. */

static void
a_refused_open_leaves_the_other_writer_alone(void **state)
{
    (void)state;
    struct volume_file *second = NULL;
    char much[201];
    memset(much, 'x', sizeof(much) - 1);
    much[sizeof(much) - 1] = '\0';
    save("full", much); /* the quota is 100 */
    struct volume_file *writer = open_at("full", O_WRONLY | O_TRUNC);
    write_at(writer, "first", 0);
    assert_int_equal(
        volume_file_open(rig.service, &rig.ctx, node_of("full"), O_RDWR, &second, &rig.err), -1);
    assert_int_equal(rig.err.code, ERR_QUOTA);
    write_at(writer, "second", 0);
    close_file(writer);
    flush();
    assert_bucket("full", "second");
}

/* B001: A copy for a writer is made from bytes whose upload runs. */
static void
an_unchanged_open_does_not_end_an_upload_that_fails(void **state)
{
    (void)state;
    save("f", "old");
    flush();
    hold(HOOK_PUT);
    save("f", "new bytes");
    wait_for_waiting(HOOK_PUT);
    close_file(open_at("f", O_RDWR));
    atomic_store(&rig.hook->fail[HOOK_PUT], 1);
    release(HOOK_PUT);
    flush();
    assert_reads("f", "new bytes");
    assert_bucket("f", "new bytes");
}

static int64_t
content_of(int64_t node)
{
    struct err err = ERR_INIT;
    struct inode *inode = inode_ref(&rig.service->inodes, node, false, &err);
    assert_non_null(inode);
    pthread_mutex_lock(&inode->lock);
    RUN_OK(err, content_open_locked(rig.service, inode, &err));
    int64_t id = inode->content;
    pthread_mutex_unlock(&inode->lock);
    inode_unref(&rig.service->inodes, inode, false);
    return id;
}

static void
a_failed_truncating_open_keeps_what_was_staged(void **state)
{
    (void)state;
    struct volume_file *file = NULL;
    char path[256];
    hold(HOOK_PUT);
    save("f", "staged");
    int64_t node = node_of("f");
    long long next = (long long)content_of(node) + 1;
    /* The next content file cannot be made: something is in its place. */
    for (long long n = next; n < next + 3; n++) {
        (void)snprintf(path, sizeof(path), "%s/cache/%02llx", rig.dir, (unsigned long long)n & 255);
        (void)mkdir(path, 0700);
        (void)snprintf(path, sizeof(path), "%s/cache/%02llx/%lld", rig.dir,
                       (unsigned long long)n & 255, n);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    assert_int_equal(
        volume_file_open(rig.service, &rig.ctx, node, O_WRONLY | O_TRUNC, &file, &rig.err), -1);
    release(HOOK_PUT);
    assert_reads("f", "staged");
    flush();
    assert_bucket("f", "staged");
}

/* The handle of a writer went away without a freeze that worked: the next one may not take its bytes for the synced ones. */
static void
bytes_of_a_lost_writer_are_a_change(void **state)
{
    (void)state;
    save("f", "synced");
    flush();
    struct volume_file *file = open_at("f", O_RDWR);
    write_at(file, "SYNCED", 0);
    /* As if the freeze of the last close had failed. */
    pthread_mutex_lock(&file->inode->lock);
    file->inode->writers = 0;
    pthread_mutex_unlock(&file->inode->lock);
    handle_forget(file);
    close_file(open_at("f", O_RDWR));
    flush();
    assert_bucket("f", "SYNCED");
}

static void
hold_the_next(enum hook_op op, const char *key)
{
    (void)key;
    if (op == HOOK_PUT)
        hold(HOOK_PUT);
}

static int64_t
freeze(struct volume_file *file)
{
    pthread_mutex_lock(&file->inode->lock);
    RUN_OK(rig.err, content_freeze_locked(rig.service, file->inode, &rig.err));
    int64_t id = file->inode->content;
    pthread_mutex_unlock(&file->inode->lock);
    sync_kick(rig.service);
    return id;
}

/* B173: An upload's end is the end of the bytes that were sent, not of those that came after. */
static void
later_bytes_stay_staged_when_the_upload_before_ends(void **state)
{
    (void)state;
    struct volume_file *file = open_at("f", O_CREAT | O_RDWR);
    write_at(file, "one", 0);
    hold(HOOK_PUT);
    freeze(file);
    wait_for_waiting(HOOK_PUT);
    write_at(file, "two", 0);
    int64_t second = freeze(file);
    atomic_store(&rig.hook->after, hold_the_next);
    release(HOOK_PUT);
    while (!in_bucket("f") || atomic_load(&rig.hook->waiting[HOOK_PUT]) == 0)
        clock_sleep_ns(NS_PER_MS);
    assert_bucket("f", "one");
    pthread_mutex_lock(&file->inode->lock);
    assert_int_equal(file->inode->content, second);
    assert_int_equal(file->inode->state, CONTENT_FROZEN);
    pthread_mutex_unlock(&file->inode->lock);
    assert_true(cache_pinned(rig.service->cache, second));
    atomic_store(&rig.hook->after, NULL);
    release(HOOK_PUT);
    close_file(file);
    flush();
    assert_bucket("f", "two");
}

/* B057 */
static void
a_missing_cache_file_is_fetched_again(void **state)
{
    (void)state;
    char path[256];
    save("f", "bytes");
    flush();
    int64_t id = content_of(node_of("f"));
    (void)snprintf(path, sizeof(path), "%s/cache/%02llx/%lld", rig.dir,
                   (unsigned long long)id & 255, (long long)id);
    assert_int_equal(unlink(path), 0);
    assert_reads("f", "bytes");
}

/* B057 */
static void
missing_staged_bytes_are_an_error_and_not_an_absence(void **state)
{
    (void)state;
    char path[256], out[16];
    struct volume_file *file;
    hold(HOOK_PUT);
    save("f", "bytes");
    int64_t id = content_of(node_of("f"));
    (void)snprintf(path, sizeof(path), "%s/cache/%02llx/%lld", rig.dir,
                   (unsigned long long)id & 255, (long long)id);
    assert_int_equal(unlink(path), 0);
    /* The uploader may hold the file open still; it ends with what it has. */
    file = open_at("f", O_RDONLY);
    ssize_t got = volume_file_read(file, &rig.ctx, out, sizeof(out), 0, &rig.err);
    assert_true(got == 5 || rig.err.code == ERR_IO);
    volume_file_close(file, &rig.ctx);
    release(HOOK_PUT);
}

/* B003, B008, B061 */
static void
a_file_is_changed_in_the_middle_and_by_its_path(void **state)
{
    (void)state;
    struct volume_attr attr;
    foreign_put("f", "0123456789");
    struct volume_file *file = open_at("f", O_WRONLY);
    write_at(file, "ab", 4);
    RUN_OK(rig.err, volume_file_flush(file, &rig.ctx, &rig.err)); /* of a dup */
    write_at(file, "c", 6);
    close_file(file);
    flush();
    assert_bucket("f", "0123abc789");
    struct volume_change change = { .bits = VOLUME_SET_SIZE, .size = 5 };
    RUN_OK(rig.err, volume_setattr(rig.service, &rig.ctx, node_of("f"), &change, &attr, &rig.err));
    assert_int_equal(attr.size, 5);
    flush();
    assert_bucket("f", "0123a");
    change.size = 8;
    RUN_OK(rig.err, volume_setattr(rig.service, &rig.ctx, node_of("f"), &change, &attr, &rig.err));
    flush();
    struct store_object object;
    store_object_init(&object);
    RUN_OK(rig.err, store_head(rig.mem, "v/f", 0, &object, &rig.err));
    assert_int_equal(object.size, 8);
    store_object_release(&object);
    assert_reads("f", "0123a");
}

/* B009, B136: one state per file, whoever opens it. */
static void
a_second_open_sees_what_the_first_wrote(void **state)
{
    (void)state;
    char out[16] = "";
    struct volume_file *first = open_at("f", O_CREAT | O_RDWR);
    write_at(first, "first", 0);
    struct volume_file *second = open_at("f", O_RDWR);
    assert_int_equal(volume_file_read(second, &rig.ctx, out, 15, 0, &rig.err), 5);
    assert_string_equal(out, "first");
    write_at(second, "+second", 5);
    close_file(second);
    assert_reads("f", "first+second");
    close_file(first);
    flush();
    assert_bucket("f", "first+second");
}

/* B199, B011, B084 */
static void
nothing_is_uploaded_before_the_close(void **state)
{
    (void)state;
    struct volume_file *file = open_at("f", O_CREAT | O_RDWR);
    clock_sleep_ns(100 * NS_PER_MS);
    write_at(file, "bytes", 0);
    clock_sleep_ns(100 * NS_PER_MS);
    assert_false(in_bucket("f"));
    close_file(file);
    flush();
    assert_bucket("f", "bytes");
    close_file(open_at("f", O_CREAT | O_RDWR));
    flush();
    assert_bucket("f", "bytes");
}

struct racer {
    const char *path;
    atomic_bool stop;
    unsigned opened, wrong;
};

static void *
open_as_soon_as_seen(void *arg)
{
    struct racer *racer = arg;
    struct volume_ctx ctx = { .actor = "racer", .connection = 2 };
    struct volume_file *file;
    struct volume_attr attr;
    while (!atomic_load(&racer->stop)) {
        struct err err = ERR_INIT;
        if (volume_lookup(rig.service, &ctx, &(struct volume_name){ rig.root, "race", 4 }, &attr,
                          &err) != 0)
            continue;
        if (volume_file_open(rig.service, &ctx, attr.node, O_RDWR | O_TRUNC, &file, &err) != 0) {
            /* Gone again is fine, a name without a file is not. */
            racer->wrong += err.code != ERR_NOT_FOUND || strstr(err.msg, "content") != NULL;
            continue;
        }
        racer->opened++;
        if (volume_file_write(file, &ctx, "r", 1, 0, &err) != 0)
            racer->wrong++;
        volume_file_close(file, &ctx);
    }
    return NULL;
}

static int
count_row(void *arg, const struct index_content *row, struct err *err)
{
    (void)row;
    (void)err;
    ++*(unsigned *)arg;
    return 0;
}

static int
count_rows(struct index_tx *tx, void *arg, struct err *err)
{
    return index_content_each(tx, count_row, arg, err);
}

/* A name is seen before its maker has answered; two that close an unlinked file at once leave nothing. */
static void
others_may_open_a_name_that_is_just_made(void **state)
{
    (void)state;
    struct racer racer = { .path = "race" };
    pthread_t thread;
    unsigned rows = 0;
    assert_int_equal(pthread_create(&thread, NULL, open_as_soon_as_seen, &racer), 0);
    for (int i = 0; i < 300; i++) {
        struct volume_file *file = open_at("race", O_CREAT | O_RDWR);
        write_at(file, "m", 0);
        unlink_at("race");
        volume_file_close(file, &rig.ctx);
    }
    atomic_store(&racer.stop, true);
    pthread_join(thread, NULL);
    assert_int_equal(racer.wrong, 0);
    flush();
    RUN_OK(rig.err, index_read(rig.service->index, count_rows, &rows, &rig.err));
    assert_int_equal(rows, 0);
    assert_false(in_bucket("race"));
}

/* A file with holes in its cache copy all over is completed for a writer, run by run. */
static void
a_writer_completes_a_file_with_many_gaps(void **state)
{
    (void)state;
    const uint64_t blocks = 140;
    char out[16];
    size_t size = blocks * CACHE_BLOCK_SIZE;
    char *bytes = malloc(size + 1);
    assert_non_null(bytes);
    memset(bytes, 'x', size);
    bytes[size] = '\0';
    foreign_put("big", bytes);
    free(bytes);
    int64_t node = node_of("big");
    struct inode *inode = inode_ref(&rig.service->inodes, node, false, &rig.err);
    assert_non_null(inode);
    pthread_mutex_lock(&inode->lock);
    RUN_OK(rig.err, content_open_locked(rig.service, inode, &rig.err));
    char *block = malloc(CACHE_BLOCK_SIZE);
    assert_non_null(block);
    memset(block, 'x', CACHE_BLOCK_SIZE);
    for (uint64_t i = 0; i < blocks; i += 2)
        RUN_OK(rig.err,
               fill_blocks(inode->file, i * CACHE_BLOCK_SIZE, block, CACHE_BLOCK_SIZE, &rig.err));
    free(block);
    pthread_mutex_unlock(&inode->lock);
    struct volume_file *file = open_at("big", O_RDWR);
    inode_unref(&rig.service->inodes, inode, false);
    assert_int_equal(volume_file_read(file, &rig.ctx, out, 8, size - 8, &rig.err), 8);
    assert_memory_equal(out, "xxxxxxxx", 8);
    volume_file_close(file, &rig.ctx);
}

/* A full volume may be made smaller. */
static void
a_volume_over_its_quota_may_shrink(void **state)
{
    (void)state;
    struct volume_attr attr;
    char much[201];
    memset(much, 'x', sizeof(much) - 1);
    much[sizeof(much) - 1] = '\0';
    save("full", much);
    struct volume_change change = { .bits = VOLUME_SET_SIZE, .size = 300 };
    assert_int_equal(
        volume_setattr(rig.service, &rig.ctx, node_of("full"), &change, &attr, &rig.err), -1);
    assert_int_equal(rig.err.code, ERR_QUOTA);
    change.size = 10;
    RUN_OK(rig.err,
           volume_setattr(rig.service, &rig.ctx, node_of("full"), &change, &attr, &rig.err));
    assert_int_equal(attr.size, 10);
}

/* The next fdatasync of one file waits for the test; its others are counted. */
static struct {
    struct sys_table table;
    atomic_int fd;
    atomic_bool hold, waits;
    atomic_uint ended;
    atomic_bool full;
} disk;

static ssize_t
full_pwrite(int fd, const void *data, size_t len, off_t off)
{
    bool full = atomic_load(&disk.full);
    return full ? full_disk_pwrite(fd, data, len, off) : sys_real.pwrite(fd, data, len, off);
}

static int
slow_fdatasync(int fd)
{
    int rc = sys_real.fdatasync(fd);
    if (fd != atomic_load(&disk.fd))
        return rc;
    if (atomic_exchange(&disk.hold, false)) {
        atomic_store(&disk.waits, true);
        while (atomic_load(&disk.waits))
            clock_sleep_ns(NS_PER_MS);
    } else {
        atomic_fetch_add(&disk.ended, 1);
    }
    return rc;
}

static void *
fsync_it(void *arg)
{
    struct err err = ERR_INIT;
    if (volume_file_fsync(arg, &rig.ctx, &err) != 0)
        fail_msg("%s", err.msg);
    return NULL;
}

/* An fsync whose first half is done: it hangs with the bytes of now. */
static pthread_t
hang_fsync(struct volume_file *file)
{
    pthread_t thread;
    atomic_store(&disk.fd, cache_file_fd(file->inode->file));
    atomic_store(&disk.hold, true);
    assert_int_equal(pthread_create(&thread, NULL, fsync_it, file), 0);
    while (!atomic_load(&disk.waits))
        clock_sleep_ns(NS_PER_MS);
    atomic_store(&disk.ended, 0);
    return thread;
}

static void
end_fsync(pthread_t thread)
{
    atomic_store(&disk.waits, false);
    pthread_join(thread, NULL);
}

struct durable_call {
    int64_t node;
    bool durable;
};

static int
read_durable(struct index_tx *tx, void *arg, struct err *err)
{
    struct durable_call *call = arg;
    struct index_content row;
    if (content_frozen_of(tx, call->node, &row, err) != 0)
        return -1;
    call->durable = (row.flags & CONTENT_DURABLE) != 0;
    return 0;
}

static bool
is_durable(int64_t node)
{
    struct durable_call call = { .node = node };
    RUN_OK(rig.err, index_read(rig.service->index, read_durable, &call, &rig.err));
    return call.durable;
}

/* What a version that was promised is replaced by is on the disk before its row says so, also while a sync of it is under
 * way that began before. */
static void
a_freeze_does_not_count_on_a_sync_under_way(void **state)
{
    (void)state;
    hold(HOOK_PUT);
    struct volume_file *writer = open_at("f", O_CREAT | O_RDWR);
    write_at(writer, "first", 0);
    RUN_OK(rig.err, volume_file_fsync(writer, &rig.ctx, &rig.err));
    write_at(writer, "second", 0);
    struct volume_file *reader = open_at("f", O_RDONLY);
    pthread_t thread = hang_fsync(reader);
    close_file(writer);
    assert_true(is_durable(reader->inode->node));
    assert_int_equal(atomic_load(&disk.ended), 1);
    end_fsync(thread);
    close_file(reader);
    release(HOOK_PUT);
    flush();
    assert_bucket("f", "second");
}

/* Bytes that came after a sync began are not promised by its end when they are frozen meanwhile. */
static void
a_sync_promises_no_bytes_that_came_later(void **state)
{
    (void)state;
    hold(HOOK_PUT);
    struct volume_file *writer = open_at("f", O_CREAT | O_RDWR);
    write_at(writer, "first", 0);
    struct volume_file *reader = open_at("f", O_RDONLY);
    pthread_t thread = hang_fsync(reader);
    write_at(writer, "second", 0);
    close_file(writer);
    assert_false(is_durable(reader->inode->node));
    end_fsync(thread);
    assert_true(is_durable(reader->inode->node));
    assert_int_equal(atomic_load(&disk.ended), 1);
    close_file(reader);
    release(HOOK_PUT);
    flush();
    assert_bucket("f", "second");
}

static int64_t
ctime_of(int64_t node)
{
    struct volume_attr attr;
    RUN_OK(rig.err, volume_getattr(rig.service, &rig.ctx, node, &attr, &rig.err));
    return attr.ctime_ns;
}

/* A time in the future hides nothing: a file that is opened to write, and not written, has not changed. */
static void
opening_alone_moves_no_ctime(void **state)
{
    (void)state;
    struct volume_attr attr;
    struct volume_change change = { .bits = VOLUME_SET_MTIME,
                                    .mtime_ns = clock_wall_ns() + 1000 * 86400 * NS_PER_S };
    hold(HOOK_PUT); /* what is frozen is opened again, not a copy of what was synced */
    save("f", "bytes");
    int64_t node = node_of("f");
    RUN_OK(rig.err, volume_setattr(rig.service, &rig.ctx, node, &change, &attr, &rig.err));
    int64_t before = ctime_of(node);
    for (int round = 0; round < 2; round++) {
        clock_sleep_ns(20 * NS_PER_MS);
        struct volume_file *file = open_at("f", O_RDWR);
        assert_int_equal(ctime_of(node), before);
        close_file(file);
        assert_int_equal(ctime_of(node), before);
        if (round == 0) {
            release(HOOK_PUT);
            flush();
        }
    }
    struct volume_file *file = open_at("f", O_RDWR);
    write_at(file, "BYTES", 0);
    assert_true(ctime_of(node) > before);
    close_file(file);
    assert_true(ctime_of(node) > before);
}

/* The version is there, only what describes it beside its bytes could not be written: the handle is closed once. */
static void
a_close_counts_once_when_the_disk_is_full(void **state)
{
    (void)state;
    struct volume_file *writer = open_at("f", O_CREAT | O_RDWR);
    struct volume_file *reader = open_at("f", O_RDONLY);
    write_at(writer, "bytes", 0);
    unlink_at("f");
    atomic_store(&disk.full, true);
    close_file(writer);
    assert_int_equal(inode_open_count(&rig.service->inodes, reader->inode->node), 1);
    close_file(reader);
    atomic_store(&disk.full, false);
    unsigned rows = 0;
    RUN_OK(rig.err, index_read(rig.service->index, count_rows, &rows, &rig.err));
    assert_int_equal(rows, 0);
}

static int
setup_disk(void **state)
{
    disk.table = *sys;
    disk.table.fdatasync = slow_fdatasync;
    disk.table.pwrite = full_pwrite;
    sys = &disk.table;
    return rig_setup(state);
}

static int
teardown_disk(void **state)
{
    int rc = rig_teardown(state);
    atomic_store(&disk.fd, -1);
    sys = &sys_real;
    return rc;
}

static int
setup_quota(void **state)
{
    (void)state;
    rig_open(&(struct rig_options){ .quota = 100 });
    return 0;
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_refused_open_leaves_the_other_writer_alone, setup_quota,
                                        rig_teardown),
        cmocka_unit_test_setup_teardown(an_unchanged_open_does_not_end_an_upload_that_fails,
                                        rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(a_failed_truncating_open_keeps_what_was_staged, rig_setup,
                                        rig_teardown),
        cmocka_unit_test_setup_teardown(bytes_of_a_lost_writer_are_a_change, rig_setup,
                                        rig_teardown),
        cmocka_unit_test_setup_teardown(later_bytes_stay_staged_when_the_upload_before_ends,
                                        rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(a_missing_cache_file_is_fetched_again, rig_setup,
                                        rig_teardown),
        cmocka_unit_test_setup_teardown(a_file_is_changed_in_the_middle_and_by_its_path, rig_setup,
                                        rig_teardown),
        cmocka_unit_test_setup_teardown(a_second_open_sees_what_the_first_wrote, rig_setup,
                                        rig_teardown),
        cmocka_unit_test_setup_teardown(nothing_is_uploaded_before_the_close, rig_setup,
                                        rig_teardown),
        cmocka_unit_test_setup_teardown(others_may_open_a_name_that_is_just_made, rig_setup,
                                        rig_teardown),
        cmocka_unit_test_setup_teardown(a_writer_completes_a_file_with_many_gaps, rig_setup,
                                        rig_teardown),
        cmocka_unit_test_setup_teardown(a_volume_over_its_quota_may_shrink, setup_quota,
                                        rig_teardown),
        cmocka_unit_test_setup_teardown(a_freeze_does_not_count_on_a_sync_under_way, setup_disk,
                                        teardown_disk),
        cmocka_unit_test_setup_teardown(a_sync_promises_no_bytes_that_came_later, setup_disk,
                                        teardown_disk),
        cmocka_unit_test_setup_teardown(opening_alone_moves_no_ctime, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(a_close_counts_once_when_the_disk_is_full, setup_disk,
                                        teardown_disk),
        cmocka_unit_test_setup_teardown(missing_staged_bytes_are_an_error_and_not_an_absence,
                                        rig_setup, rig_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
