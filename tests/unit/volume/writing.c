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
    assert_int_equal(volume_file_open(rig.service, &rig.ctx, node_of("full"), O_RDWR, &second,
                                      &rig.err),
                     -1);
    assert_int_equal(rig.err.code, ERR_QUOTA);
    write_at(writer, "second", 0);
    close_file(writer);
    flush();
    assert_bucket("full", "second");
}

/* A copy for a writer is made from bytes whose upload runs. */
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

/* An upload's end is the end of the bytes that were sent, not of those that came after. */
static void
later_bytes_stay_staged_when_the_upload_before_ends(void **state)
{
    (void)state;
    struct volume_file *file = open_at("f", O_CREAT | O_RDWR);
    write_at(file, "one", 0);
    hold(HOOK_PUT);
    pthread_mutex_lock(&file->inode->lock);
    RUN_OK(rig.err, content_freeze_locked(rig.service, file->inode, &rig.err));
    pthread_mutex_unlock(&file->inode->lock);
    sync_kick(rig.service);
    wait_for_waiting(HOOK_PUT);
    write_at(file, "two", 0);
    pthread_mutex_lock(&file->inode->lock);
    RUN_OK(rig.err, content_freeze_locked(rig.service, file->inode, &rig.err));
    int64_t second = file->inode->content;
    pthread_mutex_unlock(&file->inode->lock);
    /* The first one goes, the second is held. */
    atomic_store(&rig.hook->count[HOOK_PUT], 0);
    release(HOOK_PUT);
    while (atomic_load(&rig.hook->count[HOOK_PUT]) == 0) {
        hold(HOOK_PUT);
        clock_sleep_ns(NS_PER_MS);
    }
    clock_sleep_ns(50 * NS_PER_MS);
    pthread_mutex_lock(&file->inode->lock);
    bool right = file->inode->content != second || file->inode->state != CONTENT_CLEAN ||
                 in_bucket("f");
    enum content_state seen = file->inode->state;
    pthread_mutex_unlock(&file->inode->lock);
    release(HOOK_PUT);
    assert_true(right);
    assert_true(seen == CONTENT_FROZEN || seen == CONTENT_CLEAN);
    close_file(file);
    flush();
    assert_bucket("f", "two");
}

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
        cmocka_unit_test_setup_teardown(missing_staged_bytes_are_an_error_and_not_an_absence,
                                        rig_setup, rig_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
