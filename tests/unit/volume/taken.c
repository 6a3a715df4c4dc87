#include "tests/unit/volume/volume_fixture.h"

/* A program writes a file that others take away at that moment: it is told, and what it wrote is kept (promise 2; S25, S26). */

struct kept_call {
    const char *text;
    bool found;
};

static int
match_kept(void *arg, const struct index_conflict *row, struct err *err)
{
    struct kept_call *call = arg;
    char key[LIMIT_KEY + 1];
    char *data = NULL;
    size_t len;
    assert_string_equal(row->path, "f");
    (void)snprintf(key, sizeof(key), ".holdfast/conflicts/v/%s", row->id);
    if (store_get_small(rig.mem, key, 1u << 20, &data, &len, NULL, err) != 0)
        return -1;
    call->found |= strcmp(data, call->text) == 0;
    free(data);
    return 0;
}

static void
assert_kept(const char *text)
{
    struct kept_call call = { .text = text };
    struct volume_barrier barrier;
    (void)flush_within(60 * NS_PER_S, &barrier);
    RUN_OK(rig.err, volume_conflict_each(rig.service, rig.volume, match_kept, &call, &rig.err));
    assert_true(call.found);
}

static void
wait_for_conflicts(unsigned count)
{
    for (int i = 0; i < 60000 && conflicts(NULL) < count; i++)
        clock_sleep_ns(NS_PER_MS);
    assert_int_equal(conflicts(NULL), count);
}

/* A version on its way to the bucket, which others change meanwhile, and a program that has the file open again. */
static struct volume_file *
opened_behind_a_loser(const char *theirs)
{
    save("f", "base");
    flush();
    hold(HOOK_PUT);
    save("f", "first");
    wait_for_waiting(HOOK_PUT);
    struct volume_file *file = open_at("f", O_RDWR);
    if (theirs == NULL)
        foreign_delete("f");
    else
        foreign_put("f", theirs);
    return file;
}

static void
assert_told(struct volume_file *file)
{
    assert_int_equal(volume_file_flush(file, &rig.ctx, &rig.err), -1);
    assert_int_equal(rig.err.code, ERR_CONFLICT);
}

static void
loses(const char *theirs)
{
    struct volume_file *file = opened_behind_a_loser(theirs);
    release(HOOK_PUT);
    wait_for_conflicts(1);
    assert_told(file); /* of the first one */
    write_at(file, "mine!", 0);
    assert_told(file);
    assert_int_equal(volume_file_fsync(file, &rig.ctx, &rig.err), -1);
    assert_int_equal(rig.err.code, ERR_CONFLICT);
    volume_file_close(file, &rig.ctx);
    wait_for_conflicts(2);
    assert_kept("first");
    assert_kept("mine!");
}

static void
a_file_removed_by_others_while_it_is_written_is_kept(void **state)
{
    (void)state;
    loses(NULL);
    assert_false(in_bucket("f"));
    assert_gone("f");
}

static void
a_file_replaced_by_others_while_it_is_written_is_kept(void **state)
{
    (void)state;
    loses("theirs");
    assert_bucket("f", "theirs");
    assert_reads("f", "theirs");
}

static int
setup_sync_close(void **state)
{
    (void)state;
    rig_open(&(struct rig_options){ .sync_close = true });
    return 0;
}

/* The same in a volume that promises the bucket with each close. */
static void
a_close_that_waits_for_the_bucket_tells_it_too(void **state)
{
    (void)state;
    hold(HOOK_PUT);
    struct volume_file *file = open_at("f", O_CREAT | O_RDWR);
    write_at(file, "mine", 0);
    foreign_put("f", "theirs");
    release(HOOK_PUT);
    assert_told(file);
    write_at(file, "MINE", 0);
    assert_told(file);
    volume_file_close(file, &rig.ctx);
    wait_for_conflicts(2);
    assert_kept("mine");
    assert_kept("MINE");
}

static void
who_wrote_nothing_is_told_nothing(void **state)
{
    (void)state;
    struct volume_file *file = opened_behind_a_loser("theirs");
    release(HOOK_PUT);
    wait_for_conflicts(1);
    assert_told(file); /* of the first one */
    RUN_OK(rig.err, volume_file_flush(file, &rig.ctx, &rig.err));
    RUN_OK(rig.err, volume_file_fsync(file, &rig.ctx, &rig.err));
    volume_file_close(file, &rig.ctx);
    struct volume_barrier barrier;
    (void)flush_within(60 * NS_PER_S, &barrier);
    assert_int_equal(conflicts(NULL), 1);
    assert_bucket("f", "theirs");
}

/* An upload keeps the entry of a file that nobody has open: who opens it after the loss is another, and wrote on theirs. */
static void
who_comes_after_the_loss_is_told_nothing(void **state)
{
    (void)state;
    save("f", "base");
    flush();
    struct inode *kept = inode_ref(&rig.service->inodes, node_of("f"), false, &rig.err);
    assert_non_null(kept);
    inode_tell_loser(rig.service, kept->node);
    struct volume_file *file = open_at("f", O_RDWR);
    write_at(file, "mine", 0);
    RUN_OK(rig.err, volume_file_flush(file, &rig.ctx, &rig.err));
    inode_tell_loser(rig.service, kept->node);
    volume_file_close(file, &rig.ctx); /* without a flush: nobody is left to hear of it */
    file = open_at("f", O_RDWR);
    write_at(file, "more", 0);
    RUN_OK(rig.err, volume_file_flush(file, &rig.ctx, &rig.err));
    volume_file_close(file, &rig.ctx);
    inode_unref(&rig.service->inodes, kept, false);
    flush();
    assert_bucket("f", "more");
}

/* ---- whole files ---- */

struct put {
    const char *text;
    bool wait;
    int rc;
    struct volume_attr attr;
    char version[ULID_SIZE];
    struct err err;
};

static void *
put_whole(void *arg)
{
    struct put *put = arg;
    bool created;
    struct volume_commit_args args = { .pre = { .kind = PRECONDITION_ANY },
                                       .wait_synced = put->wait,
                                       .version = put->version };
    struct volume_upload *upload =
        volume_upload_begin(rig.service, &rig.ctx, rig.volume, "f", &put->err);
    put->rc =
        upload == NULL ? -1 : volume_upload_write(upload, put->text, strlen(put->text), &put->err);
    if (put->rc == 0)
        put->rc = volume_commit(upload, &rig.ctx, &args, &put->attr, &created, &put->err);
    return NULL;
}

/* Else its writer would name the next one's version as what it has seen, and replace it unseen. */
static void
who_writes_a_whole_file_is_told_its_own_version(void **state)
{
    (void)state;
    struct put first = { .text = "first", .wait = true }, second = { .text = "second" };
    pthread_t thread;
    save("f", "base");
    flush();
    hold(HOOK_PUT);
    assert_int_equal(pthread_create(&thread, NULL, put_whole, &first), 0);
    wait_for_waiting(HOOK_PUT);
    (void)put_whole(&second);
    RUN_OK(second.err, second.rc);
    release(HOOK_PUT);
    pthread_join(thread, NULL);
    RUN_OK(first.err, first.rc);
    assert_string_equal(first.attr.version, first.version);
    assert_int_equal(first.attr.size, strlen("first"));
    assert_string_equal(second.attr.version, second.version);
    assert_string_not_equal(first.version, second.version);
    flush();
    assert_bucket("f", "second");
}

/* What is told as saved is saved: a version that a program in a mount replaced before it was in the bucket is not. */
static void
replaced_on_its_way(void (*replace)(void))
{
    struct put put = { .text = "whole", .wait = true };
    struct volume_attr attr = { 0 };
    pthread_t thread;
    save("f", "base");
    save("other", "other");
    flush();
    atomic_store(&rig.hook->fail[HOOK_PUT], -1);
    assert_int_equal(pthread_create(&thread, NULL, put_whole, &put), 0);
    for (int i = 0; i < 60000 && attr.size != strlen("whole"); i++) {
        clock_sleep_ns(NS_PER_MS);
        RUN_OK(rig.err, volume_resolve(rig.service, &rig.ctx, rig.volume, "f", &attr, &rig.err));
    }
    replace();
    pthread_join(thread, NULL); /* before: a request that was about to go would land, and be kept */
    atomic_store(&rig.hook->fail[HOOK_PUT], 0);
    assert_int_equal(put.rc, -1);
    assert_int_equal(put.err.code, ERR_CONFLICT);
    flush();
}

static void
by_a_rename(void)
{
    move("other", "f", 0);
}

static void
by_an_unlink(void)
{
    unlink_at("f");
}

static void
a_whole_file_replaced_on_its_way_is_not_told_as_saved(void **state)
{
    (void)state;
    replaced_on_its_way(by_a_rename);
    assert_bucket("f", "other");
    replaced_on_its_way(by_an_unlink);
    assert_false(in_bucket("f"));
}

/* A writer in a mount begins with a copy: what is on its way arrives. */
static void
a_whole_file_written_to_on_its_way_arrives_first(void **state)
{
    (void)state;
    struct put put = { .text = "whole", .wait = true };
    pthread_t thread;
    save("f", "base");
    flush();
    hold(HOOK_PUT);
    assert_int_equal(pthread_create(&thread, NULL, put_whole, &put), 0);
    wait_for_waiting(HOOK_PUT);
    struct volume_file *file = open_at("f", O_RDWR);
    write_at(file, "W", 0);
    close_file(file);
    release(HOOK_PUT);
    pthread_join(thread, NULL);
    RUN_OK(put.err, put.rc);
    assert_string_equal(put.attr.version, put.version);
    flush();
    assert_bucket("f", "Whole");
}

#define BOTH(test)                                                  \
    cmocka_unit_test_setup_teardown(test, rig_setup, rig_teardown), \
    {                                                               \
#test " (weak)", test, rig_setup_weak, rig_teardown, NULL   \
    }

int
main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(a_file_removed_by_others_while_it_is_written_is_kept),
        BOTH(a_file_replaced_by_others_while_it_is_written_is_kept),
        cmocka_unit_test_setup_teardown(a_close_that_waits_for_the_bucket_tells_it_too,
                                        setup_sync_close, rig_teardown),
        BOTH(who_wrote_nothing_is_told_nothing),
        BOTH(who_comes_after_the_loss_is_told_nothing),
        BOTH(who_writes_a_whole_file_is_told_its_own_version),
        BOTH(a_whole_file_replaced_on_its_way_is_not_told_as_saved),
        BOTH(a_whole_file_written_to_on_its_way_arrives_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
