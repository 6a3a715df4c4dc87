#include "volume/history.h"
#include "tests/unit/volume/volume_fixture.h"
#include "versioning/retention.h"
#include "volume/prune_impl.h"

/* Versions that were replaced or removed are kept, listed, read, restored and pruned. What lies in the bucket is looked at in the
 * store itself. */

#define KEEP ".holdfast/history/v/"

struct copies {
    unsigned count;
    char key[64][256];
};

static int
see_copy(void *arg, const struct store_list_entry *entry, struct err *err)
{
    struct copies *copies = arg;
    (void)err;
    assert_true(copies->count < 64);
    (void)snprintf(copies->key[copies->count++], 256, "%s", entry->key);
    return 0;
}

/* The copies of a path that the bucket has. */
static struct copies
copies_of(const char *path)
{
    struct copies copies = { 0 };
    char prefix[256];
    (void)snprintf(prefix, sizeof(prefix), KEEP "%s", path);
    struct store_list list = { .prefix = prefix, .fn = see_copy, .arg = &copies };
    RUN_OK(rig.err, store_list(rig.mem, &list, &rig.err));
    return copies;
}

static void
assert_copy(const char *key, const char *text)
{
    char *data = NULL;
    size_t len;
    RUN_OK(rig.err, store_get_small(rig.mem, key, 4096, &data, &len, NULL, &rig.err));
    assert_string_equal(data, text);
    free(data);
}

struct versions {
    unsigned count;
    struct volume_version row[32];
};

static int
see_version(void *arg, const struct volume_version *version, struct err *err)
{
    struct versions *versions = arg;
    (void)err;
    assert_true(versions->count < 32);
    versions->row[versions->count++] = *version;
    return 0;
}

static struct versions *
history_of(const char *path)
{
    static struct versions versions;
    struct volume_history_want want = { .volume = rig.volume, .path = path };
    versions.count = 0;
    RUN_OK(rig.err,
           volume_history_each(rig.service, &rig.ctx, &want, see_version, &versions, &rig.err));
    return &versions;
}

static struct versions *
trash(const char *prefix)
{
    static struct versions versions;
    struct volume_history_want want = { .volume = rig.volume, .path = prefix };
    versions.count = 0;
    RUN_OK(rig.err,
           volume_trash_each(rig.service, &rig.ctx, &want, see_version, &versions, &rig.err));
    return &versions;
}

static void
assert_version_reads(const struct volume_version *version, const char *text)
{
    char out[256] = "";
    ssize_t got =
        volume_history_read(rig.service, &rig.ctx, version->id, out, sizeof(out) - 1, 0, &rig.err);
    if (got < 0)
        fail_msg("volume_history_read: %s", rig.err.msg);
    assert_string_equal(out, text);
    assert_int_equal(version->size, strlen(text));
}

static int
tell_skipped(void *arg, const struct volume_restored *what, struct err *err)
{
    (void)arg;
    (void)err;
    if (what->action == VOLUME_RESTORE_SKIP || what->failed)
        print_message("left: %s: %s\n", what->path, what->why);
    return 0;
}

static struct volume_restore_result
restore(const struct volume_restore *want)
{
    struct volume_restore_result result;
    struct volume_restore call = *want;
    call.volume = rig.volume;
    call.fn = tell_skipped;
    RUN_OK(rig.err, (want->run != NULL ? volume_undo : volume_restore)(rig.service, &rig.ctx, &call,
                                                                       &result, &rig.err));
    flush();
    return result;
}

static void
overwritten_is_kept(void **state)
{
    (void)state;
    save("f", "one");
    flush();
    rig.ctx.run = "second";
    save("f", "two2");
    flush();
    struct copies copies = copies_of("f/");
    assert_int_equal(copies.count, 1);
    assert_copy(copies.key[0], "one");
    assert_bucket("f", "two2");

    struct versions *all = history_of("f");
    assert_int_equal(all->count, 2);
    assert_true(all->row[0].present);
    assert_string_equal(all->row[0].run, "second");
    assert_string_equal(all->row[0].base, all->row[1].version);
    assert_string_equal(all->row[1].gone_op, "write");
    assert_string_equal(all->row[1].gone_run, "second");
    assert_string_equal(all->row[1].run, "");
    assert_version_reads(&all->row[1], "one");
    assert_true(all->row[1].made_ns <= all->row[1].gone_ns);
}

/* chmod sends the same bytes again: no version ends. */
static void
attributes_are_no_version(void **state)
{
    (void)state;
    struct volume_attr attr;
    save("f", "one");
    flush();
    struct volume_change change = { .bits = VOLUME_SET_MODE, .mode = 0600 };
    RUN_OK(rig.err, volume_setattr(rig.service, &rig.ctx, node_of("f"), &change, &attr, &rig.err));
    flush();
    assert_int_equal(copies_of("").count, 0);
}

static void
removed_is_kept(void **state)
{
    (void)state;
    make_dir("d");
    save("d/f", "one");
    flush();
    unlink_at("d/f");
    flush();
    assert_false(in_bucket("d/f"));
    struct versions *gone = trash("");
    assert_int_equal(gone->count, 1);
    assert_string_equal(gone->row[0].path, "d/f");
    assert_string_equal(gone->row[0].gone_op, "delete");
    assert_string_equal(gone->row[0].gone_actor, "test");
    assert_int_equal(trash("d")->count, 1);
    assert_int_equal(trash("d/f")->count, 1);
    assert_int_equal(trash("d/fx")->count, 0);
    assert_int_equal(trash("e")->count, 0);

    struct volume_restore_result result = restore(&(struct volume_restore){ .path = "d/f" });
    assert_int_equal(result.done, 1);
    assert_reads("d/f", "one");
    assert_bucket("d/f", "one");
    assert_int_equal(trash("")->count, 0);
}

/* An editor's save: the new file takes the name. */
static void
replaced_by_rename_is_kept(void **state)
{
    (void)state;
    save("f", "one");
    flush();
    save("f.tmp", "two");
    move("f.tmp", "f", 0);
    flush();
    struct versions *all = history_of("f");
    assert_int_equal(all->count, 2);
    assert_string_equal(all->row[1].gone_op, "replace");
    assert_version_reads(&all->row[1], "one");
}

/* What only moved is the same bytes at another key; what was changed on the way leaves a version behind. */
static void
moves_keep_only_what_changed(void **state)
{
    (void)state;
    make_dir("d");
    save("d/a", "same");
    save("d/b", "old");
    flush();
    move("d", "e", 0);
    save("e/b", "newer");
    flush();
    assert_false(in_bucket("d/a"));
    assert_bucket("e/a", "same");
    assert_int_equal(copies_of("d/a").count, 0);
    /* Once or, when the old bytes were on their way to the new key as the newer ones came, under both keys. */
    struct copies copies = copies_of("e/b/");
    assert_true(copies.count == 1 || copies.count == 2);
    for (unsigned i = 0; i < copies.count; i++)
        assert_copy(copies.key[i], "old");
    struct versions *all = history_of("e/b");
    assert_int_equal(all->count, 1 + copies.count);
    assert_version_reads(&all->row[1], "old");
    assert_int_equal(trash("")->count, 0);
}

static int
turn_off_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct index_volume row;
    (void)arg;
    if (index_volume_get(tx, rig.volume, &row, err) != 0)
        return -1;
    row.history_ns = 0;
    return index_volume_update(tx, &row, err);
}

static void
off_means_off(void **state)
{
    (void)state;
    RUN_OK(rig.err, index_write(rig.service->index, INDEX_NORMAL, turn_off_tx, NULL, &rig.err));
    save("f", "one");
    flush();
    save("f", "two");
    flush();
    unlink_at("f");
    flush();
    assert_int_equal(copies_of("").count, 0);
}

/* Nothing is written before the copy is there; a copy whose answer was lost is made again, under the same name. */
static void
copy_comes_first(void **state)
{
    (void)state;
    save("f", "one");
    flush();
    atomic_store(&rig.hook->fail[HOOK_COPY], -1);
    save("f", "two");
    for (int i = 0; i < 60000 && atomic_load(&rig.hook->count[HOOK_COPY]) < 2; i++)
        clock_sleep_ns(NS_PER_MS);
    assert_bucket("f", "one");
    atomic_store(&rig.hook->fail[HOOK_COPY], 0);
    flush();
    assert_bucket("f", "two");
    assert_int_equal(copies_of("f/").count, 1);
    assert_int_equal(history_of("f")->count, 2);
}

/* Somebody else's version came between: ours is a conflict, and theirs stays. */
static void
changed_meanwhile_is_a_conflict(void **state)
{
    (void)state;
    struct volume_barrier barrier;
    save("f", "one");
    flush();
    foreign_put("f", "theirs");
    save("f", "mine");
    assert_int_equal(
        volume_flush(rig.service, 0, clock_mono_ns() + 30 * NS_PER_S, &barrier, &rig.err), -1);
    assert_int_equal(rig.err.code, ERR_CONFLICT);
    assert_bucket("f", "theirs");
    assert_int_equal(conflicts(NULL), 1);
    assert_int_equal(copies_of("f/").count, 0);
}

static void
restore_goes_back_and_forth(void **state)
{
    (void)state;
    char first[LIMIT_ETAG];
    save("f", "one");
    flush();
    text_set(first, history_of("f")->row[0].version);
    save("f", "two");
    flush();
    struct volume_restore_result result =
        restore(&(struct volume_restore){ .path = "f", .version = first });
    assert_int_equal(result.done, 1);
    assert_reads("f", "one");
    assert_int_equal(history_of("f")->count, 3);
    result = restore(&(struct volume_restore){ .run = result.run });
    assert_int_equal(result.done, 1);
    assert_reads("f", "two");
    /* The last version before the present one. */
    (void)restore(&(struct volume_restore){ .path = "f" });
    assert_reads("f", "one");
}

static void
folder_goes_back_to_a_time(void **state)
{
    (void)state;
    make_dir("d");
    save("d/kept", "kept");
    save("d/changed", "before");
    save("d/removed", "removed");
    flush();
    clock_sleep_ns(20 * NS_PER_MS);
    int64_t then = clock_wall_ns();
    clock_sleep_ns(20 * NS_PER_MS);
    save("d/changed", "after");
    unlink_at("d/removed");
    save("d/added", "added");
    flush();
    struct volume_restore_result dry =
        restore(&(struct volume_restore){ .path = "d", .at_ns = then, .dry_run = true });
    assert_int_equal(dry.done, 3);
    assert_reads("d/changed", "after");
    struct volume_restore_result result =
        restore(&(struct volume_restore){ .path = "d", .at_ns = then });
    assert_int_equal(result.done, 3);
    assert_reads("d/kept", "kept");
    assert_reads("d/changed", "before");
    assert_reads("d/removed", "removed");
    assert_gone("d/added");
    (void)restore(&(struct volume_restore){ .run = result.run });
    assert_reads("d/changed", "after");
    assert_gone("d/removed");
    assert_reads("d/added", "added");
}

static void
undo_takes_back_a_run(void **state)
{
    (void)state;
    make_dir("d");
    make_dir("old");
    save("d/gone", "gone");
    save("d/written", "before");
    save("d/theirs", "before");
    save("old/f", "moved");
    save("old/w", "moved and written");
    flush();
    rig.ctx.run = "agent";
    unlink_at("d/gone");
    save("d/written", "by the run");
    save("d/theirs", "by the run");
    save("d/made", "made");
    make_dir("d/new");
    save("d/new/x", "x");
    move("old", "new", 0);
    save("new/w", "newer");
    flush();
    rig.ctx.run = "";
    save("d/theirs", "by a person");
    flush();

    struct volume_restore_result dry =
        restore(&(struct volume_restore){ .run = "agent", .dry_run = true });
    struct volume_restore_result result = restore(&(struct volume_restore){ .run = "agent" });
    assert_int_equal(result.failed, 0);
    assert_int_equal(result.skipped, 1);
    assert_int_equal(result.done, dry.done);
    assert_reads("d/gone", "gone");
    assert_reads("d/written", "before");
    assert_reads("d/theirs", "by a person");
    assert_gone("d/made");
    assert_gone("d/new");
    assert_gone("new");
    assert_reads("old/f", "moved");
    assert_reads("old/w", "moved and written");

    struct volume_restore_result again = restore(&(struct volume_restore){ .run = result.run });
    assert_int_equal(again.failed, 0);
    assert_gone("d/gone");
    assert_reads("d/written", "by the run");
    assert_reads("d/theirs", "by a person");
    assert_reads("d/made", "made");
    assert_reads("d/new/x", "x");
    assert_gone("old");
    assert_reads("new/f", "moved");
    assert_reads("new/w", "newer");
    assert_int_equal(conflicts(NULL), 0);
}

/* The run put another file at the name of one that it removed. */
static void
undo_of_a_replacement(void **state)
{
    (void)state;
    save("a", "A");
    save("b", "B");
    flush();
    rig.ctx.run = "agent";
    unlink_at("a");
    save("a", "other");
    save("t", "saved");
    move("t", "b", 0);
    flush();
    rig.ctx.run = "";
    struct volume_restore_result result = restore(&(struct volume_restore){ .run = "agent" });
    assert_int_equal(result.failed + result.skipped, 0);
    assert_reads("a", "A");
    assert_reads("b", "B");
    assert_gone("t");
}

/* What HTTP does: a whole file, staged. */
static void
put_whole(const char *path, const char *text, const char *base, char version[LIMIT_ETAG])
{
    struct volume_attr attr;
    bool created;
    struct volume_ctx http = { .actor = "http" };
    struct volume_commit_args args = { .pre = { .kind = PRECONDITION_ABSENT } };
    if (base != NULL) {
        args.pre.kind = PRECONDITION_MATCH;
        args.pre.count = 1;
        text_set(args.pre.tag[0], base);
    }
    struct volume_upload *upload =
        volume_upload_begin(rig.service, &http, rig.volume, path, &rig.err);
    assert_non_null(upload);
    RUN_OK(rig.err, volume_upload_write(upload, text, strlen(text), &rig.err));
    RUN_OK(rig.err, volume_commit(upload, &http, &args, &attr, &created, &rig.err));
    text_copy(version, LIMIT_ETAG, attr.version);
}

/* Each of a row of writers was told that its version is kept: the bucket was away meanwhile. */
static void
no_writer_loses_its_version(void **state)
{
    (void)state;
    char v[4][LIMIT_ETAG];
    struct volume_ctx http = { .actor = "http" };
    put_whole("f", "v0", NULL, v[0]);
    flush();
    hold(HOOK_PUT);
    hold(HOOK_COPY);
    put_whole("f", "v1", v[0], v[1]);
    put_whole("f", "v2", v[1], v[2]);
    struct versions *all = history_of("f");
    assert_int_equal(all->count, 2);
    assert_string_equal(all->row[1].version, v[1]);
    assert_false(all->row[1].synced);
    assert_version_reads(&all->row[1], "v1");
    put_whole("g", "g0", NULL, v[3]);
    struct volume_name at = name_at("g");
    RUN_OK(rig.err, volume_remove(rig.service, &http, &at, false, NULL, &rig.err));
    /* And the gateway dies. */
    release(HOOK_PUT);
    release(HOOK_COPY);
    atomic_store(&rig.hook->fail[HOOK_PUT], -1);
    volume_service_close(rig.service, 0);
    rig_serve(&(struct rig_options){ .weak_delete = false });
    flush();
    assert_bucket("f", "v2");
    all = history_of("f");
    assert_int_equal(all->count, 3);
    assert_string_equal(all->row[1].version, v[1]);
    assert_true(all->row[1].synced);
    assert_version_reads(&all->row[1], "v1");
    assert_version_reads(&all->row[2], "v0");
    assert_int_equal(copies_of("f/").count, 2);
    assert_int_equal(trash("")->count, 1);
    assert_version_reads(&trash("")->row[0], "g0");
    assert_int_equal(conflicts(NULL), 0);
    struct volume_restore_result result =
        restore(&(struct volume_restore){ .path = "f", .version = v[1] });
    assert_int_equal(result.done, 1);
    assert_reads("f", "v1");
}

static void
unknown_run(void **state)
{
    (void)state;
    struct volume_restore_result result;
    struct volume_restore want = { .volume = rig.volume, .run = "nobody" };
    assert_int_equal(volume_undo(rig.service, &rig.ctx, &want, &result, &rig.err), -1);
    assert_int_equal(rig.err.code, ERR_NOT_FOUND);
}

/* ---- pruning ---- */

#define DAY (24ll * 3600 * NS_PER_S)

static int
age_row(void *arg, const struct index_history *row, struct err *err)
{
    (void)err;
    struct index_history *out = arg;
    *out = *row;
    return 1;
}

static int
age_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct index_history row = { 0 };
    if (index_history_at(tx, rig.volume, "f", 1, age_row, &row, err) != 0)
        return -1;
    row.gone_ns -= *(int64_t *)arg;
    return index_history_put(tx, &row, err);
}

static void
old_versions_go(void **state)
{
    (void)state;
    size_t dropped = 0;
    int64_t age = 31 * DAY;
    save("f", "one");
    flush();
    save("f", "two");
    flush();
    RUN_OK(rig.err, index_write(rig.service->index, INDEX_NORMAL, age_tx, &age, &rig.err));
    save("f", "three");
    flush();
    assert_int_equal(copies_of("f/").count, 2);
    RUN_OK(rig.err, prune_all(rig.service, &dropped, &rig.err));
    assert_int_equal(dropped, 1);
    flush();
    struct copies copies = copies_of("f/");
    assert_int_equal(copies.count, 1);
    assert_copy(copies.key[0], "two");
    assert_int_equal(history_of("f")->count, 2);
    RUN_OK(rig.err, prune_all(rig.service, &dropped, &rig.err));
    assert_int_equal(dropped, 0);
}

/* Where deletes need the writer lease: another gateway holds it, so nothing of what is kept is given up here. */
static void
only_who_holds_the_lease_prunes(void **state)
{
    (void)state;
    static const char theirs[] =
        "{\"format\":1,\"gateway\":\"01ARZ3NDEKTSV4RRFFQ69G5FAV\",\"epoch\":99,"
        "\"ttl_ms\":3600000,\"nonce\":\"01BX5ZZKBKACTAV9WEVGEMMVRZ\","
        "\"expires\":\"2100-01-01T00:00:00Z\"}";
    struct store_put_result result;
    size_t dropped = 0;
    int64_t age = 31 * DAY;
    save("f", "one");
    flush();
    save("f", "two");
    flush();
    RUN_OK(rig.err, index_write(rig.service->index, INDEX_NORMAL, age_tx, &age, &rig.err));
    save("f", "three");
    flush();
    volume_service_close(rig.service, clock_mono_ns() + 20 * NS_PER_S);
    RUN_OK(rig.err,
           store_put_small(rig.mem, ".holdfast/leases/v.json", theirs, strlen(theirs),
                           (struct store_cond){ .kind = STORE_COND_NONE }, &result, &rig.err));
    rig_serve(&(struct rig_options){ .weak_delete = true });
    RUN_OK(rig.err, prune_all(rig.service, &dropped, &rig.err));
    assert_int_equal(dropped, 0);
    assert_int_equal(history_of("f")->count, 3);
}

static void
retention_is_by_age_and_number(void **state)
{
    (void)state;
    struct retention_policy policy = { .keep_ns = 30 * DAY, .keep_count = 3, .now_ns = 100 * DAY };
    struct retention_version v[] = {
        { .gone_ns = 100 * DAY - 1 }, { .gone_ns = 98 * DAY },
        { .gone_ns = 97 * DAY },      { .gone_ns = 96 * DAY },
        { .gone_ns = 60 * DAY },      { .gone_ns = 50 * DAY, .pinned = true },
    };
    assert_int_equal(retention_plan(&policy, v, 6), 2);
    assert_false(v[0].drop || v[1].drop || v[2].drop || v[5].drop);
    assert_true(v[3].drop && v[4].drop);
    /* What went today stays, however many there are. */
    struct retention_version today[] = { { .gone_ns = 100 * DAY },
                                         { .gone_ns = 99 * DAY + 1 },
                                         { .gone_ns = 101 * DAY },
                                         { .gone_ns = 99 * DAY + 2 } };
    policy.keep_count = 1;
    assert_int_equal(retention_plan(&policy, today, 4), 0);
    policy = (struct retention_policy){ .now_ns = 100 * DAY };
    assert_int_equal(retention_plan(&policy, v, 6), 0);
}

int
main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)
    const struct CMUnitTest tests[] = {
        T(overwritten_is_kept),
        T(attributes_are_no_version),
        T(removed_is_kept),
        T(replaced_by_rename_is_kept),
        T(moves_keep_only_what_changed),
        T(off_means_off),
        T(copy_comes_first),
        T(changed_meanwhile_is_a_conflict),
        T(restore_goes_back_and_forth),
        T(folder_goes_back_to_a_time),
        T(undo_takes_back_a_run),
        T(undo_of_a_replacement),
        T(no_writer_loses_its_version),
        T(unknown_run),
        T(old_versions_go),
        cmocka_unit_test(retention_is_by_age_and_number),
        cmocka_unit_test_setup_teardown(overwritten_is_kept, rig_setup_weak, rig_teardown),
        cmocka_unit_test_setup_teardown(removed_is_kept, rig_setup_weak, rig_teardown),
        cmocka_unit_test_setup_teardown(old_versions_go, rig_setup_weak, rig_teardown),
        cmocka_unit_test_setup_teardown(only_who_holds_the_lease_prunes, rig_setup_weak,
                                        rig_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
