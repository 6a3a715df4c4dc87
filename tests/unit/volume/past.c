#include "tests/unit/volume/volume_fixture.h"
#include "volume/prune_impl.h"
#include "volume/snapshot.h"

/* A volume as it was: against what was there at that time. */

#define DAY (24ll * 3600 * NS_PER_S)

static int64_t
moment(void)
{
    clock_sleep_ns(3 * NS_PER_MS);
    int64_t now = clock_wall_ns();
    clock_sleep_ns(3 * NS_PER_MS);
    return now;
}

static struct volume_past *
past_at(int64_t at_ns)
{
    struct volume_past *past = NULL;
    RUN_OK(rig.err, volume_past_open(rig.service, rig.volume, at_ns, &past, &rig.err));
    return past;
}

static void
assert_past(const struct volume_past *past, const char *path, const char *text)
{
    char out[256] = "";
    const struct volume_past_entry *entry = volume_past_find(past, path);
    if (entry == NULL) {
        fail_msg("'%s' was not there", path);
        return;
    }
    assert_int_equal(entry->size, strlen(text));
    ssize_t got = volume_past_read(rig.service, &rig.ctx, entry, out, sizeof(out) - 1, 0, &rig.err);
    if (got < 0)
        fail_msg("volume_past_read '%s': %s", path, rig.err.msg);
    assert_string_equal(out, text);
    assert_true(strlen(text) < 2 ||
                volume_past_read(rig.service, &rig.ctx, entry, out, 1, 1, &rig.err) == 1);
    assert_int_equal(out[0], strlen(text) < 2 ? out[0] : text[1]);
}

static void
assert_was_not(const struct volume_past *past, const char *path)
{
    assert_null(volume_past_find(past, path));
}

/* The names in a folder, joined. */
static void
assert_children(const struct volume_past *past, const char *dir, const char *names)
{
    char out[512] = "";
    const struct volume_past_entry *entry;
    for (size_t at = 0; (entry = volume_past_child(past, dir, &at)) != NULL;) {
        const char *slash = strrchr(entry->path, '/');
        size_t len = strlen(out);
        (void)snprintf(out + len, sizeof(out) - len, "%s ",
                       slash != NULL ? slash + 1 : entry->path);
    }
    assert_string_equal(out, names);
}

static void
shows_what_was(void **state)
{
    (void)state;
    make_dir("d");
    make_dir("d/sub");
    save("d/kept", "kept");
    save("d/changed", "before");
    save("d/removed", "removed");
    save("d/sub/deep", "deep");
    save("d-x", "beside");
    flush();
    int64_t then = moment();
    save("d/changed", "after it");
    unlink_at("d/removed");
    save("d/added", "added");
    make_dir("new");
    flush();
    struct volume_past *past = past_at(then);
    assert_past(past, "d/kept", "kept");
    assert_past(past, "d/changed", "before");
    assert_past(past, "d/removed", "removed");
    assert_was_not(past, "d/added");
    assert_was_not(past, "new");
    assert_children(past, "", "d d-x ");
    assert_children(past, "d", "changed kept removed sub ");
    assert_children(past, "d/sub", "deep ");
    assert_children(past, "d/kept", "");

    /* What is present still while it is looked at may end afterwards. */
    save("d/kept", "other bytes");
    flush();
    assert_past(past, "d/kept", "kept");
    unlink_at("d/sub/deep");
    flush();
    assert_past(past, "d/sub/deep", "deep");
    volume_past_close(past);

    past = past_at(moment());
    assert_past(past, "d/changed", "after it");
    assert_past(past, "d/added", "added");
    assert_was_not(past, "d/removed");
    volume_past_close(past);
}

static void
shows_old_paths(void **state)
{
    (void)state;
    make_dir("a");
    make_dir("a/s");
    save("a/s/same", "same");
    save("a/s/later", "one");
    save("f", "file");
    flush();
    int64_t first = moment();
    move("a", "b", 0);
    save("b/s/later", "two2");
    int64_t second = moment();
    move("b/s", "c", 0);
    move("f", "g", 0);
    flush();
    unlink_at("c/same");
    flush();

    struct volume_past *past = past_at(first);
    assert_past(past, "a/s/same", "same");
    assert_past(past, "a/s/later", "one");
    assert_past(past, "f", "file");
    assert_was_not(past, "b");
    assert_was_not(past, "c");
    assert_was_not(past, "g");
    volume_past_close(past);
    past = past_at(second);
    assert_past(past, "b/s/same", "same");
    assert_past(past, "b/s/later", "two2");
    assert_was_not(past, "a");
    assert_children(past, "", "b f ");
    volume_past_close(past);
}

/* What another client wrote was not there before what it took the place of, also when it has gone since. */
static void
others_are_no_older_than_what_they_replaced(void **state)
{
    (void)state;
    struct volume_barrier barrier;
    save("a", "a");
    flush();
    int64_t then = moment();
    save("lost", "base");
    flush();
    foreign_put("lost",
                "theirs"); /* seen by a write that its condition refuses, not by a listing */
    save("lost", "mine");
    assert_int_equal(flush_within(60 * NS_PER_S, &barrier), -1);
    assert_int_equal(rig.err.code, ERR_CONFLICT);
    int64_t later = moment();
    unlink_at("lost");
    flush();
    struct volume_past *past = past_at(then);
    assert_past(past, "a", "a");
    assert_was_not(past, "lost");
    volume_past_close(past);
    past = past_at(later);
    assert_past(past, "lost", "theirs");
    volume_past_close(past);
}

/* Nothing of it has reached the bucket yet: the versions of then lie at their keys. */
static void
before_the_bucket_knows(void **state)
{
    (void)state;
    save("changed", "before");
    save("removed", "removed");
    flush();
    int64_t then = moment();
    hold(HOOK_COPY);
    save("changed", "after");
    unlink_at("removed");
    struct volume_past *past = past_at(then);
    assert_past(past, "changed", "before");
    assert_past(past, "removed", "removed");
    release(HOOK_COPY);
    flush();
    volume_past_close(past);
    past = past_at(then);
    assert_past(past, "changed", "before");
    assert_past(past, "removed", "removed");
    volume_past_close(past);
}

static void
symlinks_of_then(void **state)
{
    (void)state;
    struct volume_attr attr;
    struct volume_name at = name_at("l");
    struct volume_past_entry looked;
    RUN_OK(rig.err, volume_symlink(rig.service, &rig.ctx, &at, "to/there", &attr, &rig.err));
    flush();
    int64_t then = moment();
    struct volume_past *past = past_at(then);
    assert_past(past, "l", "to/there");
    volume_past_close(past);
    unlink_at("l");
    flush();
    past = past_at(then);
    assert_past(past, "l", "to/there");
    const struct volume_past_entry *entry = volume_past_find(past, "l");
    RUN_OK(rig.err, volume_past_look(rig.service, &rig.ctx, entry, &looked, &rig.err));
    assert_int_equal(looked.kind, INDEX_SYMLINK);
    int heads = atomic_load(&rig.hook->count[HOOK_HEAD]);
    RUN_OK(rig.err, volume_past_look(rig.service, &rig.ctx, entry, &looked, &rig.err));
    assert_int_equal(atomic_load(&rig.hook->count[HOOK_HEAD]), heads);
    volume_past_close(past);
}

static void
folder_restored_over_renames(void **state)
{
    (void)state;
    struct volume_restore_result result;
    make_dir("d");
    make_dir("d/s");
    save("d/s/same", "same");
    save("d/s/changed", "one");
    save("x", "x");
    flush();
    int64_t then = moment();
    move("d/s", "d/t", 0);
    move("x", "d/y", 0);
    save("d/t/changed", "two");
    save("d/t/added", "added");
    flush();
    struct volume_restore want = { .volume = rig.volume, .path = "", .at_ns = then };
    int copies = atomic_load(&rig.hook->count[HOOK_COPY]);
    RUN_OK(rig.err, volume_restore(rig.service, &rig.ctx, &want, &result, &rig.err));
    flush();
    assert_int_equal(result.failed + result.skipped, 0);
    assert_reads("d/s/same", "same");
    assert_reads("d/s/changed", "one");
    assert_reads("x", "x");
    assert_gone("d/t");
    assert_gone("d/y");
    /* What only went back to its name is no copy. */
    assert_true(atomic_load(&rig.hook->count[HOOK_COPY]) - copies <= 2);
    struct volume_past *past = past_at(then);
    assert_past(past, "d/s/changed", "one");
    volume_past_close(past);
}

/* ---- snapshots ---- */

static int
count_tx(struct index_tx *tx, void *arg, struct err *err)
{
    uint64_t *out = arg, bytes;
    return index_history_usage(tx, rig.volume, out, &bytes, err);
}

static uint64_t
kept(void)
{
    uint64_t count = 0;
    RUN_OK(rig.err, index_read(rig.service->index, count_tx, &count, &rig.err));
    return count;
}

static int
age_row(void *arg, const struct index_history *row, struct err *err)
{
    (void)err;
    struct index_history *out = arg;
    *out = *row;
    return 1;
}

/* Everything happened so long ago. */
static int
age_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct index_history row = { 0 };
    struct index_snapshot snapshot;
    int64_t age = *(int64_t *)arg;
    if (index_history_at(tx, rig.volume, "f", 1, age_row, &row, err) != 0 ||
        index_snapshot_find(tx, rig.volume, "s", &snapshot, err) != 0)
        return -1;
    row.gone_ns -= age;
    row.made_ns -= age;
    snapshot.at_ns -= age;
    return index_history_put(tx, &row, err) != 0 || index_snapshot_update(tx, &snapshot, err) != 0
               ? -1
               : 0;
}

static void
snapshots_keep_what_they_show(void **state)
{
    (void)state;
    struct volume_snapshot snapshot;
    struct err err = ERR_INIT;
    size_t dropped = 0;
    int64_t age = 40 * DAY;
    save("f", "one");
    RUN_OK(rig.err,
           volume_snapshot_create(rig.service, &rig.ctx, rig.volume, "s", &snapshot, &rig.err));
    assert_int_equal(
        volume_snapshot_create(rig.service, &rig.ctx, rig.volume, "s", &snapshot, &err), -1);
    assert_int_equal(err.code, ERR_EXISTS);
    save("f", "two");
    flush();
    for (int i = 0; i < 60000 && !snapshot.published; i++) {
        RUN_OK(rig.err, volume_snapshot_find(rig.service, rig.volume, "s", &snapshot, &rig.err));
        clock_sleep_ns(NS_PER_MS);
    }
    assert_true(snapshot.published);
    assert_int_equal(snapshot.files, 1);
    assert_int_equal(snapshot.bytes, 3);
    RUN_OK(rig.err, store_head(rig.mem, ".holdfast/snapshots/v/s.json.zst", 0, NULL, &rig.err));

    RUN_OK(rig.err, index_write(rig.service->index, INDEX_NORMAL, age_tx, &age, &rig.err));
    RUN_OK(rig.err, prune_all(rig.service, &dropped, &rig.err));
    assert_int_equal(dropped, 0);
    assert_int_equal(kept(), 1);
    RUN_OK(rig.err, volume_snapshot_delete(rig.service, rig.volume, "s", &rig.err));
    flush();
    assert_int_equal(store_head(rig.mem, ".holdfast/snapshots/v/s.json.zst", 0, NULL, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    RUN_OK(rig.err, prune_all(rig.service, &dropped, &rig.err));
    assert_int_equal(dropped, 1);
    assert_int_equal(kept(), 0);
}

static void
times_in_words(void **state)
{
    (void)state;
    struct volume_snapshot snapshot;
    struct err err = ERR_INIT;
    int64_t at;
    RUN_OK(rig.err,
           volume_snapshot_create(rig.service, &rig.ctx, rig.volume, "s", &snapshot, &rig.err));
    RUN_OK(rig.err, volume_snapshot_time(rig.service, rig.volume, "s", &at, &rig.err));
    assert_true(at == snapshot.at_ns);
    RUN_OK(rig.err,
           volume_snapshot_time(rig.service, rig.volume, "2026-01-02T03:04:05Z", &at, &rig.err));
    assert_true(at == 1767323045ll * NS_PER_S);
    RUN_OK(rig.err, volume_snapshot_time(rig.service, rig.volume, "2h", &at, &rig.err));
    assert_true(llabs(clock_wall_ns() - 7200 * NS_PER_S - at) < 60 * NS_PER_S);
    assert_int_equal(volume_snapshot_time(rig.service, rig.volume, "other", &at, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
}

int
main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)
    const struct CMUnitTest tests[] = {
        T(shows_what_was),
        T(shows_old_paths),
        T(others_are_no_older_than_what_they_replaced),
        T(before_the_bucket_knows),
        T(symlinks_of_then),
        T(folder_restored_over_renames),
        T(snapshots_keep_what_they_show),
        T(times_in_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
