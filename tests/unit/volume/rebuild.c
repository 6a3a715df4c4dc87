#include "tests/unit/volume/volume_fixture.h"

#include "volume/fsck.h"
#include "volume/history.h"
#include "volume/rebuild.h"
#include "volume/snapshot.h"

/* INV-6, S31: what the bucket and the cache hold is enough. Trees that listings of folders and one listing of all have to show alike, and
 * every way in which staged bytes may stand to what lies at their key. */

static struct volume_rebuild_report report;

static void
end_service(void)
{
    volume_service_close(rig.service, 0);
    rig.service = NULL;
}

static void
remove_index(void)
{
    static const char *const parts[] = { "index.db", "index.db-wal", "index.db-shm" };
    char path[256];
    for (size_t i = 0; i < 3; i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", rig.dir, parts[i]);
        (void)unlink(path);
    }
}

static void
rebuild(void)
{
    struct volume_rebuild_args args = { .state_dir = rig.dir,
                                        .store = rig.mem,
                                        .cache = { .max_bytes = 256u << 20, .floor_bytes = 1 } };
    RUN_OK(rig.err, volume_rebuild(&args, &report, &rig.err));
}

static void
serve_again(void)
{
    struct volume_info info;
    rig_serve(&(struct rig_options){ 0 });
    RUN_OK(rig.err, volume_find(rig.service, "v", &info, &rig.err));
    rig.volume = info.id;
    rig.root = info.root;
}

static void
put_raw(const char *key, const char *text)
{
    struct store_put_result result;
    RUN_OK(rig.err, store_put_small(rig.mem, key, text, strlen(text), (struct store_cond){ 0 },
                                    &result, &rig.err));
}

/* ---- trees ---- */

struct listing {
    struct buf text;
    int64_t folder[256];
    char path[256][LIMIT_PATH + 1];
    size_t count, at;
};

static int
add_name(void *arg, const struct volume_entry *entry, struct err *err)
{
    struct listing *all = arg;
    const char *dir = all->path[all->at];
    char path[LIMIT_PATH + LIMIT_NAME + 3];
    (void)snprintf(path, sizeof(path), "%s%s%.*s", dir, dir[0] != '\0' ? "/" : "",
                   (int)entry->name_len, entry->name);
    if (entry->attr.kind == INDEX_DIR) {
        assert_in_range(all->count, 1, 255);
        text_set(all->path[all->count], path);
        all->folder[all->count++] = entry->attr.node;
    }
    return buf_appendf(&all->text, err, "%s %d %llu\n", path, (int)entry->attr.kind,
                       (unsigned long long)entry->attr.size);
}

static int
by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Every name of the tree, sorted; the caller frees it. */
static char *
whole_tree(void)
{
    struct listing *all = calloc(1, sizeof(*all));
    assert_non_null(all);
    buf_init(&all->text, 1u << 22);
    all->folder[0] = rig.root;
    all->count = 1;
    for (; all->at < all->count; all->at++) {
        struct volume_page page = { .dir = all->folder[all->at], .limit = 10000 };
        RUN_OK(rig.err, volume_list(rig.service, &rig.ctx, &page, add_name, all, &rig.err));
    }
    char *line[2048], *save = NULL;
    size_t count = 0;
    for (char *at = strtok_r(all->text.data != NULL ? all->text.data : (char[]){ "" }, "\n", &save);
         at != NULL; at = strtok_r(NULL, "\n", &save))
        line[count++] = at;
    qsort(line, count, sizeof(*line), by_text);
    struct buf out;
    buf_init(&out, 1u << 22);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(buf_appendf(&out, &rig.err, "%s\n", line[i]), 0);
    buf_release(&all->text);
    free(all);
    return buf_steal(&out);
}

/* One listing without folders, and listings folder by folder, show the same: names that sort between a folder's name and its slash,
 * files and folders of one name, markers, names that are none. */
static void
a_tree_is_what_listings_show(void **state)
{
    (void)state;
    static const char *const part[] = { "a", "b", "a-", "a.", "a0", "", ".", "..", "\xff", "ab" };
    uint64_t seed = (uint64_t)clock_wall_ns();
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int i = 0; i < 400; i++) {
        char key[128] = "v/";
        unsigned depth = 1 + (unsigned)(random_next(&seed) % 4);
        for (unsigned d = 0; d < depth; d++) {
            size_t len = strlen(key);
            (void)snprintf(key + len, sizeof(key) - len, "%s%s", d > 0 ? "/" : "",
                           part[random_next(&seed) % 10]);
        }
        if (random_next(&seed) % 8 == 0)
            strncat(key, "/", sizeof(key) - strlen(key) - 1);
        put_raw(key, key[strlen(key) - 1] == '/' ? "" : key);
    }
    char *before = whole_tree();
    end_service();
    remove_index();
    rebuild();
    assert_int_equal(report.volumes, 1);
    assert_int_equal(report.heads, 0);
    assert_int_equal(report.gets, 2); /* store.json, the volume's settings */
    serve_again();
    int lists = atomic_load(&rig.hook->count[HOOK_LIST]);
    char *after = whole_tree();
    assert_string_equal(before, after);
    assert_int_equal(atomic_load(&rig.hook->count[HOOK_LIST]), lists); /* all was listed */
    free(before);
    free(after);
}

/* ---- staged bytes ---- */

static void
lose_index_offline(void)
{
    atomic_store(&rig.hook->fail[HOOK_PUT], -1); /* the store is away from here on */
}

static void
crash(void)
{
    end_service();
    remove_index();
}

static void
staged_bytes_go_up_on_their_base(void **state)
{
    (void)state;
    save("old", "base");
    save("other", "base");
    flush();
    lose_index_offline();
    save("old", "newer");
    save("fresh", "new");
    save("other", "mine");
    crash();
    put_raw("v/other", "theirs");
    rebuild();
    assert_int_equal(report.staged_uploads, 2);
    assert_int_equal(report.staged_contrary, 1);
    assert_int_equal(report.staged_torn, 0);
    rebuild(); /* again, over what it made */
    assert_int_equal(report.staged_uploads, 2);
    assert_string_not_equal(report.old_index, "");
    serve_again();
    struct volume_barrier barrier;
    assert_int_equal(flush_within(60 * NS_PER_S, &barrier), -1);
    assert_int_equal(rig.err.code, ERR_CONFLICT);
    assert_bucket("old", "newer");
    assert_bucket("fresh", "new");
    assert_bucket("other", "theirs");
    assert_reads("other", "theirs");
    struct index_conflict row;
    assert_int_equal(conflicts(&row), 1);
    assert_string_equal(row.path, "other");
}

/* Saved by rename, as editors do: the bytes have the name of now, over the version that they replaced. */
static void
a_save_by_rename_has_its_new_name(void **state)
{
    (void)state;
    save("f", "old");
    save("g", "old");
    flush();
    lose_index_offline();
    save("f.tmp", "new");
    struct volume_name from = name_at("f.tmp"), to = name_at("f");
    RUN_OK(rig.err, volume_rename(rig.service, &rig.ctx, &from, &to, 0, &rig.err));
    save("g", "newer");
    from = name_at("g");
    to = name_at("elsewhere");
    RUN_OK(rig.err, volume_rename(rig.service, &rig.ctx, &from, &to, 0, &rig.err));
    crash();
    rebuild();
    assert_int_equal(report.staged_uploads, 2);
    serve_again();
    flush();
    assert_gone("f.tmp");
    assert_bucket("f", "new");
    assert_bucket("elsewhere", "newer");
}

/* The PUT landed, and the gateway never heard of it. */
static void
what_landed_is_a_clean_copy(void **state)
{
    (void)state;
    atomic_store(&rig.hook->fail[HOOK_HEAD], -1); /* nor can it look */
    atomic_store(&rig.hook->lose[HOOK_PUT], 1);
    save("landed", "bytes");
    for (int i = 0; i < 60000 && atomic_load(&rig.hook->lose[HOOK_PUT]) != 0; i++)
        clock_sleep_ns(NS_PER_MS);
    crash();
    rebuild();
    assert_int_equal(report.staged_synced, 1);
    assert_int_equal(report.staged_uploads + report.staged_contrary, 0);
    serve_again();
    flush();
    assert_reads("landed", "bytes");
    assert_int_equal(conflicts(NULL), 0);
    assert_int_equal(atomic_load(&rig.hook->count[HOOK_PUT]), 0);
}

/* A removed base: the bytes are kept as a conflict, the name stays away. */
static void
a_base_that_is_gone_makes_a_conflict(void **state)
{
    (void)state;
    save("f", "base");
    flush();
    lose_index_offline();
    save("f", "mine");
    crash();
    enum store_outcome outcome;
    RUN_OK(rig.err,
           store_delete(rig.mem, &(struct store_delete){ .key = "v/f" }, &outcome, &rig.err));
    rebuild();
    assert_int_equal(report.staged_contrary, 1);
    serve_again();
    struct volume_barrier barrier;
    assert_int_equal(flush_within(60 * NS_PER_S, &barrier), -1);
    assert_int_equal(resolve_code("f"), ERR_NOT_FOUND);
    struct index_conflict row;
    assert_int_equal(conflicts(&row), 1);
    assert_string_equal(row.reason, "deleted");
}

/* A new index over staged files would lose their names: the start says what to do. */
static void
a_lost_index_is_not_begun_anew(void **state)
{
    (void)state;
    lose_index_offline();
    save("fresh", "new");
    crash();
    struct volume_service_args args = { .state_dir = rig.dir, .store = hook_wrap(false) };
    assert_null(volume_service_open(&args, &rig.err));
    assert_int_equal(rig.err.code, ERR_CORRUPT);
    assert_non_null(strstr(rig.err.msg, "holdfast rebuild"));
    rebuild();
    assert_int_equal(report.staged_uploads, 1);
    serve_again();
    flush();
    assert_bucket("fresh", "new");
}

static void
write_text(const char *name, const char *text)
{
    char path[256];
    (void)snprintf(path, sizeof(path), "%s/%s", rig.dir, name);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* Killed while it built, and killed between setting the old index aside and putting the new one there: what lies about is nobody's. */
static void
what_a_killed_rebuild_left_is_no_hindrance(void **state)
{
    (void)state;
    save("f", "bytes");
    flush();
    end_service();
    char path[256];
    (void)snprintf(path, sizeof(path), "%s/rebuild", rig.dir);
    assert_int_equal(mkdir(path, 0700), 0);
    write_text("rebuild/index.db", "half an index");
    write_text("rebuild/index.db-wal", "and its log");
    rebuild();
    serve_again();
    assert_reads("f", "bytes");
    end_service();
    remove_index();
    write_text("index.db-wal", "of an index that was set aside");
    rebuild();
    assert_string_equal(report.old_index, "");
    serve_again();
    assert_reads("f", "bytes");
    end_service();
    remove_index();
    write_text("index.db-wal", "of an index that was set aside");
    serve_again(); /* it finds the volume without a rebuild */
    assert_reads("f", "bytes");
}

/* ---- history ---- */

struct versions {
    struct volume_version *list;
    size_t count;
};

static int
add_version(void *arg, const struct volume_version *version, struct err *err)
{
    struct versions *all = arg;
    (void)err;
    if (version->present)
        return 0;
    all->list = reallocarray(all->list, all->count + 1, sizeof(*all->list));
    assert_non_null(all->list);
    all->list[all->count++] = *version;
    return 0;
}

static struct versions
versions_of(const char *path)
{
    struct versions all = { 0 };
    struct volume_history_want want = { .volume = rig.volume, .path = path };
    RUN_OK(rig.err, volume_history_each(rig.service, &rig.ctx, &want, add_version, &all, &rig.err));
    return all;
}

static void
assert_same_versions(const struct versions *was, const struct versions *is)
{
    assert_int_equal(was->count, is->count);
    for (size_t i = 0; i < was->count; i++) {
        const struct volume_version *a = &was->list[i], *b = &is->list[i];
        char text[64];
        assert_string_equal(a->id, b->id);
        assert_string_equal(a->version, b->version);
        assert_string_equal(a->base, b->base);
        assert_string_equal(a->path, b->path);
        assert_string_equal(a->sha256, b->sha256);
        assert_string_equal(a->actor, b->actor);
        assert_string_equal(a->run, b->run);
        assert_int_equal(a->size, b->size);
        assert_int_equal(a->made_ns, b->made_ns);
        ssize_t len =
            volume_history_read(rig.service, &rig.ctx, b->id, text, sizeof(text), 0, &rig.err);
        assert_int_equal(len, (ssize_t)b->size);
    }
}

static int
count_code(void *arg, const struct volume_finding *finding, struct err *err)
{
    unsigned *count = arg;
    (void)err;
    print_message("%s %s: %s\n", finding->code, finding->where, finding->what);
    *count += strcmp(finding->code, "history-unknown") == 0 ||
              strcmp(finding->code, "history-missing") == 0;
    return 0;
}

static unsigned
fsck_history_findings(bool repair)
{
    unsigned count = 0;
    struct volume_fsck_report found;
    struct volume_fsck_args args = { .fn = count_code, .arg = &count, .repair = repair };
    RUN_OK(rig.err, volume_fsck(rig.service, &args, &found, &rig.err));
    return count;
}

/* Versions that were overwritten, removed, and one whose path has no room in a key: the bucket tells of each. */
static void
older_versions_are_found(void **state)
{
    (void)state;
    char far[1000], deep[1024];
    struct volume_attr attr;
    memset(far, 0, sizeof(far));
    for (size_t i = 0; i < 990; i++)
        far[i] = i % 200 == 199 ? '/' : 'd';
    (void)snprintf(deep, sizeof(deep), "%s/f", far);
    RUN_OK(rig.err, volume_make_dirs(rig.service, &rig.ctx, rig.volume, far, &attr, &rig.err));
    rig.ctx.run = "run-1";
    for (int i = 0; i < 3; i++) {
        char text[32];
        (void)snprintf(text, sizeof(text), "bytes %d", i);
        save("f", text);
        save("gone", text);
        save(deep, text);
        flush();
    }
    struct volume_name at = name_at("gone");
    RUN_OK(rig.err, volume_remove(rig.service, &rig.ctx, &at, false, NULL, &rig.err));
    flush();
    struct versions f = versions_of("f"), gone = versions_of("gone"), hidden = versions_of(deep);
    assert_int_equal(f.count, 2);
    assert_int_equal(gone.count, 3);
    assert_int_equal(hidden.count, 2);
    assert_int_equal(fsck_history_findings(false), 0);
    end_service();
    remove_index();
    rebuild();
    assert_int_equal(report.history, 7);
    assert_int_equal(report.nameless, 0);
    serve_again();
    struct versions f2 = versions_of("f"), gone2 = versions_of("gone"), hidden2 = versions_of(deep);
    assert_same_versions(&f, &f2);
    assert_same_versions(&gone, &gone2);
    assert_same_versions(&hidden, &hidden2);
    assert_string_equal(f2.list[0].gone_op, "write");
    assert_string_equal(gone2.list[0].gone_op, "delete");
    assert_string_equal(gone2.list[1].gone_op, "write");
    assert_string_equal(gone2.list[1].gone_run, "run-1");
    assert_int_equal(fsck_history_findings(false), 0);
    /* A start without an index finds volumes, and fsck finds the rest. */
    end_service();
    remove_index();
    serve_again();
    assert_int_equal(fsck_history_findings(false), 1);
    assert_int_equal(fsck_history_findings(true), 1);
    assert_int_equal(fsck_history_findings(false), 0);
    struct versions hidden3 = versions_of(deep);
    assert_same_versions(&hidden, &hidden3);
    for (size_t i = 0; i < 7; i++)
        free((struct versions[]){ f, gone, hidden, f2, gone2, hidden2, hidden3 }[i].list);
}

/* ---- snapshots ---- */

static int
wait_published(void *arg, const struct volume_snapshot *snapshot, struct err *err)
{
    bool *out = arg;
    (void)err;
    *out = snapshot->published;
    return 0;
}

/* One line for each entry: kind, path, size, sha256, and the bytes; new attributes give a version another id. */
static char *
past_lines(const char *name)
{
    struct volume_snapshot snapshot;
    struct volume_past *past = NULL;
    const struct volume_past_entry *entry;
    struct buf out;
    char bytes[256];
    buf_init(&out, 1u << 20);
    RUN_OK(rig.err, volume_snapshot_find(rig.service, rig.volume, name, &snapshot, &rig.err));
    RUN_OK(rig.err, volume_past_open(rig.service, rig.volume, snapshot.at_ns, &past, &rig.err));
    for (size_t at = 0; (entry = volume_past_next(past, &at)) != NULL;) {
        ssize_t got = 0;
        if (entry->kind != INDEX_DIR)
            got = volume_past_read(rig.service, &rig.ctx, entry, bytes, sizeof(bytes), 0, &rig.err);
        if (got < 0)
            fail_msg("%s: %s", entry->path, rig.err.msg);
        assert_int_equal(buf_appendf(&out, &rig.err, "%d %s %llu %s %.*s\n", (int)entry->kind,
                                     entry->path, (unsigned long long)entry->size, entry->sha256,
                                     (int)got, bytes),
                         0);
    }
    volume_past_close(past);
    return buf_steal(&out);
}

/* A snapshot shows the same after the index was lost: files that were there still, with new attributes, overwritten, removed since. */
static void
snapshots_are_found(void **state)
{
    (void)state;
    struct volume_snapshot snapshot;
    struct volume_attr attr;
    bool published = false;
    RUN_OK(rig.err, volume_make_dirs(rig.service, &rig.ctx, rig.volume, "d/e", &attr, &rig.err));
    save("d/same", "same");
    save("d/e/touched", "touched");
    save("over", "old");
    save("removed", "removed");
    save("new\nline \xff", "a name");
    flush();
    RUN_OK(rig.err, volume_snapshot_create(rig.service, &rig.ctx, rig.volume, "before", &snapshot,
                                           &rig.err));
    for (int i = 0; i < 60000 && !published; i++) {
        RUN_OK(rig.err,
               volume_snapshot_each(rig.service, rig.volume, wait_published, &published, &rig.err));
        clock_sleep_ns(NS_PER_MS);
    }
    assert_true(published);
    clock_sleep_ns(2 * NS_PER_MS);
    save("over", "new");
    save("young", "not in it");
    struct volume_name at = name_at("removed");
    RUN_OK(rig.err, volume_remove(rig.service, &rig.ctx, &at, false, NULL, &rig.err));
    struct volume_change change = { .bits = VOLUME_SET_MODE, .mode = 0600 };
    RUN_OK(rig.err,
           volume_setattr(rig.service, &rig.ctx, node_of("d/e/touched"), &change, &attr, &rig.err));
    flush();
    char *was = past_lines("before");
    end_service();
    remove_index();
    rebuild();
    assert_int_equal(report.snapshots, 1);
    serve_again();
    char *is = past_lines("before");
    assert_string_equal(was, is);
    free(was);
    free(is);
    RUN_OK(rig.err, volume_snapshot_delete(rig.service, rig.volume, "before", &rig.err));
    flush();
    struct store_object object;
    store_object_init(&object);
    assert_int_equal(
        store_head(rig.mem, ".holdfast/snapshots/v/before.json.zst", 0, &object, &rig.err), -1);
    assert_int_equal(rig.err.code, ERR_NOT_FOUND);
    store_object_release(&object);
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_tree_is_what_listings_show),
        TEST(staged_bytes_go_up_on_their_base),
        TEST(a_save_by_rename_has_its_new_name),
        TEST(what_landed_is_a_clean_copy),
        TEST(a_base_that_is_gone_makes_a_conflict),
        TEST(a_lost_index_is_not_begun_anew),
        TEST(what_a_killed_rebuild_left_is_no_hindrance),
        TEST(older_versions_are_found),
        TEST(snapshots_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
