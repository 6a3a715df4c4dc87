#include "tests/unit/volume/volume_fixture.h"

#include "volume/conflicts.h"

/* Conflicts end: what is kept lies where it should before the record goes, whatever happens on the way (S25, S26). */

static struct index_conflict lost;

/* Nobody knows how they fit together: a file that was written here and replaced by others. */
static void
make_conflict(const char *path, const char *base, const char *mine, const char *theirs)
{
    struct volume_barrier barrier;
    save(path, base);
    flush();
    struct volume_file *file = open_at(path, O_RDWR | O_TRUNC);
    write_at(file, mine, 0);
    if (theirs != NULL)
        foreign_put(path, theirs);
    else
        foreign_delete(path);
    close_file(file);
    assert_int_equal(flush_within(60 * NS_PER_S, &barrier), -1);
    assert_int_equal(rig.err.code, ERR_CONFLICT);
    (void)conflicts(&lost);
    assert_string_equal(lost.path, path);
}

static bool
has_loser(const char *id)
{
    char key[LIMIT_KEY + 1];
    struct err err = ERR_INIT;
    (void)snprintf(key, sizeof(key), ".holdfast/conflicts/v/%s", id);
    return store_head(rig.mem, key, 0, NULL, &err) == 0;
}

static struct volume_resolved done;

static int
resolve_as(const char *id, enum volume_keep keep, const struct precondition *pre)
{
    struct volume_resolve how = { .id = id, .keep = keep };
    struct volume_ctx ctx = rig.ctx;
    ctx.connection = 0;
    ctx.deadline_ns = clock_mono_ns() + 60 * NS_PER_S;
    if (pre != NULL)
        how.pre = *pre;
    return volume_conflict_resolve(rig.service, &ctx, &how, &done, &rig.err);
}

static int
resolve_within(const char *id, enum volume_keep keep, int64_t ns)
{
    struct volume_resolve how = { .id = id, .keep = keep };
    struct volume_ctx ctx = rig.ctx;
    ctx.deadline_ns = clock_mono_ns() + ns;
    return volume_conflict_resolve(rig.service, &ctx, &how, &done, &rig.err);
}

#define resolve_ok(id, keep) RUN_OK(rig.err, resolve_as((id), (keep), NULL))
#define resolve_refused(id, keep, wanted)                     \
    do {                                                      \
        assert_int_equal(resolve_as((id), (keep), NULL), -1); \
        assert_int_equal(rig.err.code, (wanted));             \
    } while (0)

/* The record and all that belongs to it is gone. */
static void
assert_ended(const char *id)
{
    struct volume_conflict found;
    struct err err = ERR_INIT;
    flush();
    assert_int_equal(conflicts(NULL), 0);
    assert_false(has_loser(id));
    assert_int_equal(volume_conflict_find(rig.service, &rig.ctx, id, &found, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
}

static void
restart(void)
{
    bool weak = rig.hook->weak_delete;
    volume_service_close(rig.service, 0);
    rig_serve(&(struct rig_options){ .weak_delete = weak });
}

static void
assert_mine(const char *id, const char *wanted)
{
    char out[256] = "";
    struct volume_ctx ctx = rig.ctx;
    ctx.deadline_ns = 0;
    ssize_t got = volume_conflict_read(rig.service, &ctx, id, out, sizeof(out) - 1, 0, &rig.err);
    if (got < 0)
        fail_msg("%s", rig.err.msg);
    assert_string_equal(out, wanted);
}

/* ---- the four ways ---- */

static void
theirs_stays(void **state)
{
    (void)state;
    make_conflict("f", "base", "mine", "theirs");
    assert_true(has_loser(lost.id));
    resolve_ok(lost.id, VOLUME_KEEP_THEIRS);
    assert_false(done.written);
    assert_string_equal(done.path, "f");
    assert_bucket("f", "theirs");
    assert_reads("f", "theirs");
    assert_ended(lost.id);
    resolve_refused(lost.id, VOLUME_KEEP_THEIRS, ERR_NOT_FOUND);
}

static void
mine_comes_back(void **state)
{
    struct volume_attr attr;
    (void)state;
    make_conflict("f", "base", "mine", "theirs");
    resolve_ok(lost.id, VOLUME_KEEP_MINE);
    assert_true(done.written);
    assert_bucket("f", "mine"); /* at once: the record went after it */
    assert_reads("f", "mine");
    RUN_OK(rig.err, volume_resolve(rig.service, &rig.ctx, rig.volume, "f", &attr, &rig.err));
    assert_string_equal(done.version, attr.version);
    assert_ended(lost.id);
}

static void
mine_comes_back_where_the_file_was_removed(void **state)
{
    (void)state;
    make_dir("d");
    make_conflict("d/f", "base", "mine", NULL);
    assert_string_equal(lost.reason, "deleted");
    resolve_ok(lost.id, VOLUME_KEEP_MINE);
    assert_bucket("d/f", "mine");
    assert_ended(lost.id);
}

static void
theirs_stays_removed(void **state)
{
    (void)state;
    make_conflict("f", "base", "mine", NULL);
    resolve_ok(lost.id, VOLUME_KEEP_THEIRS);
    assert_string_equal(done.version, "");
    assert_gone("f");
    assert_ended(lost.id);
}

/* The name that the issue gives: name (conflict <4 characters>).ext */
static void
sibling_of(const char *stem, const char *end, char out[LIMIT_PATH + 1])
{
    char four[5];
    (void)snprintf(four, sizeof(four), "%.4s", lost.id + 22);
    for (char *c = four; *c != '\0'; c++)
        *c = (char)(*c >= 'A' && *c <= 'Z' ? *c - 'A' + 'a' : *c);
    (void)snprintf(out, LIMIT_PATH + 1, "%s (conflict %s)%s", stem, four, end);
}

static void
both_lie_side_by_side(void **state)
{
    char path[LIMIT_PATH + 1];
    static const char *const names[][3] = { { "a.txt", "a", ".txt" },
                                            { "Makefile", "Makefile", "" },
                                            { ".profile", ".profile", "" },
                                            { "d/a.tar.gz", "d/a.tar", ".gz" },
                                            { "\xc3\xbc.md", "\xc3\xbc", ".md" } };
    (void)state;
    make_dir("d");
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        make_conflict(names[i][0], "base", "mine", "theirs");
        resolve_ok(lost.id, VOLUME_KEEP_BOTH);
        sibling_of(names[i][1], names[i][2], path);
        assert_string_equal(done.path, path);
        assert_bucket(path, "mine");
        assert_bucket(names[i][0], "theirs");
        assert_reads(names[i][0], "theirs");
        assert_ended(lost.id);
    }
}

static void
a_long_name_is_cut_between_characters(void **state)
{
    char name[256] = "";
    (void)state;
    size_t len = 0;
    for (; len + 6 <= 255; len++)
        name[len] = "\xe2\x82\xac"[len % 3];
    len -= len % 3;
    name[len] = '.';
    name[len + 1] = 'c';
    name[len + 2] = '\0';
    make_conflict(name, "base", "mine", "theirs");
    resolve_ok(lost.id, VOLUME_KEEP_BOTH);
    assert_in_range(strlen(done.path), 240, 255);
    assert_memory_equal(done.path, name, 3);
    assert_int_equal((strchr(done.path, ' ') - done.path) % 3, 0);
    assert_string_equal(done.path + strlen(done.path) - 2, ".c");
    assert_bucket(done.path, "mine");
    assert_ended(lost.id);
}

static const char text_base[] = "1\n2\n3\n4\n5\n6\n", text_mine[] = "one\n2\n3\n4\n5\n6\n",
                  text_theirs[] = "1\n2\n3\n4\n5\nsix\n", text_both[] = "one\n2\n3\n4\n5\nsix\n";

static void
texts_are_merged(void **state)
{
    (void)state;
    make_conflict("f", text_base, text_mine, text_theirs);
    resolve_ok(lost.id, VOLUME_KEEP_MERGE);
    assert_bucket("f", text_both);
    assert_reads("f", text_both);
    assert_ended(lost.id);
}

/* It goes by what lies there now, not by what the conflict was lost to. */
static void
a_merge_takes_later_changes_in(void **state)
{
    (void)state;
    make_conflict("f", text_base, text_mine, text_theirs);
    save("f", "1\n2\n3\n4\n5\n6th\n7\n");
    flush();
    resolve_ok(lost.id, VOLUME_KEEP_MERGE);
    assert_bucket("f", "one\n2\n3\n4\n5\n6th\n7\n");
    assert_ended(lost.id);
}

static enum volume_merge
merge_state(const char *id)
{
    struct buf out;
    struct volume_merged merged = { .text = &out };
    buf_init(&out, VOLUME_MERGED_MAX);
    RUN_OK(rig.err, volume_conflict_merge(rig.service, &rig.ctx, id, &merged, &rig.err));
    buf_release(&out);
    return merged.how;
}

static void
what_overlaps_is_not_merged(void **state)
{
    (void)state;
    make_conflict("f", text_base, "one\n2\n3\n", "1\n2\nthree\n");
    assert_int_equal(merge_state(lost.id), VOLUME_MERGE_OVERLAPS);
    resolve_refused(lost.id, VOLUME_KEEP_MERGE, ERR_NO_MERGE);
    assert_bucket("f", "1\n2\nthree\n");
    assert_int_equal(conflicts(NULL), 1);
    assert_mine(lost.id, "one\n2\n3\n");
}

static void
what_cannot_be_merged_says_why(void **state)
{
    struct volume_barrier barrier;
    (void)state;
    make_conflict("gone", text_base, text_mine, NULL);
    assert_int_equal(merge_state(lost.id), VOLUME_MERGE_ABSENT);
    resolve_refused(lost.id, VOLUME_KEEP_MERGE, ERR_NO_MERGE);

    struct volume_file *file = open_at("new", O_CREAT | O_RDWR);
    write_at(file, text_mine, 0);
    foreign_put("new", text_theirs);
    close_file(file);
    (void)flush_within(60 * NS_PER_S, &barrier);
    (void)conflicts(&lost);
    assert_string_equal(lost.path, "new");
    assert_int_equal(merge_state(lost.id), VOLUME_MERGE_NO_BASE);

    save("bin", text_base);
    flush();
    file = open_at("bin", O_RDWR);
    RUN_OK(rig.err, volume_file_write(file, &rig.ctx, "a\0b", 3, 0, &rig.err));
    foreign_put("bin", text_theirs);
    close_file(file);
    (void)flush_within(60 * NS_PER_S, &barrier);
    (void)conflicts(&lost);
    assert_string_equal(lost.path, "bin");
    assert_int_equal(merge_state(lost.id), VOLUME_MERGE_NO_TEXT);
}

static void
assert_side(enum volume_side side, const char *wanted)
{
    struct buf out;
    buf_init(&out, 16u << 20);
    if (volume_conflict_side(rig.service, &rig.ctx, lost.id, side, &out, &rig.err) != 0)
        fail_msg("%s: %s", volume_side_word(side), rig.err.msg);
    assert_string_equal(buf_cstr(&out), wanted);
    buf_release(&out);
}

static void
every_side_can_be_read(void **state)
{
    struct volume_conflict found;
    struct volume_sides sides = { .from = VOLUME_BASE, .to = VOLUME_MERGED };
    struct buf out;
    bool base = false;
    (void)state;
    make_conflict("f", text_base, text_mine, text_theirs);
    for (int round = 0; round < 2; round++) {
        assert_side(VOLUME_MINE, text_mine);
        assert_side(VOLUME_THEIRS, text_theirs);
        assert_side(VOLUME_BASE, text_base);
        assert_side(VOLUME_MERGED, text_both);
        RUN_OK(rig.err, volume_conflict_has_base(rig.service, lost.id, &base, &rig.err));
        assert_true(base);
        if (round == 0)
            restart();
    }
    RUN_OK(rig.err, volume_conflict_find(rig.service, &rig.ctx, lost.id, &found, &rig.err));
    assert_true(found.present);
    assert_int_equal(found.size, strlen(text_mine));
    assert_int_equal(found.now_size, strlen(text_theirs));
    assert_string_equal(found.now, lost.theirs_etag);
    buf_init(&out, 1u << 20);
    RUN_OK(rig.err, volume_conflict_diff(rig.service, &rig.ctx, lost.id, &sides, &out, &rig.err));
    assert_string_equal(buf_cstr(&out),
                        "--- base\n+++ merged\n@@ -1,6 +1,6 @@\n-1\n+one\n 2\n 3\n 4\n"
                        " 5\n-6\n+six\n");
    buf_release(&out);
}

/* ---- races ---- */

static void
a_path_that_changed_since_is_not_overwritten(void **state)
{
    struct precondition pre = { .kind = PRECONDITION_MATCH, .count = 1 };
    (void)state;
    make_conflict("f", "base", "mine", "theirs");
    save("f", "third");
    flush();
    resolve_refused(lost.id, VOLUME_KEEP_MINE, ERR_CONFLICT);
    assert_bucket("f", "third");
    assert_int_equal(conflicts(NULL), 1);
    text_set(pre.tag[0], done.version);
    RUN_OK(rig.err, resolve_as(lost.id, VOLUME_KEEP_MINE, &pre));
    assert_bucket("f", "mine");
    assert_ended(lost.id);
}

static void
a_path_that_was_removed_since_is_not_made_again(void **state)
{
    struct precondition absent = { .kind = PRECONDITION_ABSENT };
    (void)state;
    make_conflict("f", "base", "mine", "theirs");
    unlink_at("f");
    flush();
    resolve_refused(lost.id, VOLUME_KEEP_MINE, ERR_CONFLICT);
    assert_false(in_bucket("f"));
    RUN_OK(rig.err, resolve_as(lost.id, VOLUME_KEEP_MINE, &absent));
    assert_bucket("f", "mine");
    assert_ended(lost.id);
}

/* Others write between our look and our PUT: the bucket refuses, and it is the same conflict, against what is there now. */
static void
a_race_in_the_bucket_is_the_same_conflict_again(void **state)
{
    struct index_conflict row;
    char id[ULID_SIZE];
    (void)state;
    make_conflict("f", "base", "mine", "theirs");
    text_set(id, lost.id);
    assert_reads("f", "theirs"); /* all of it is known: nobody asks the bucket any more */
    for (unsigned i = 0; i < 3; i++) {
        char text[32];
        (void)snprintf(text, sizeof(text), "later %u", i);
        foreign_put("f", text);
        resolve_refused(id, VOLUME_KEEP_MINE, ERR_CONFLICT);
        assert_int_equal(conflicts(&row), 1);
        assert_string_equal(row.id, id);
        assert_string_not_equal(row.theirs_etag, lost.theirs_etag);
        assert_mine(id, "mine");
        assert_bucket("f", text);
        assert_reads("f", text);
        flush(); /* the record of the lost resolve, and its object, are gone */
    }
    resolve_ok(id, VOLUME_KEEP_MINE);
    assert_bucket("f", "mine");
    assert_ended(id);
}

static void
a_removal_in_the_bucket_is_the_same_conflict_again(void **state)
{
    struct index_conflict row;
    (void)state;
    make_conflict("f", "base", "mine", "theirs");
    assert_reads("f", "theirs");
    foreign_delete("f");
    resolve_refused(lost.id, VOLUME_KEEP_MINE, ERR_CONFLICT);
    assert_int_equal(conflicts(&row), 1);
    assert_string_equal(row.id, lost.id);
    assert_string_equal(row.reason, "deleted");
    assert_false(in_bucket("f"));
    resolve_ok(lost.id, VOLUME_KEEP_MINE);
    assert_bucket("f", "mine");
    assert_ended(lost.id);
}

static void
a_merge_that_lost_a_race_can_be_made_again(void **state)
{
    (void)state;
    make_conflict("f", text_base, text_mine, text_theirs);
    assert_reads("f", text_theirs);
    foreign_put("f", "1\n2\n3\n4\n5\nsixth\n");
    resolve_refused(lost.id, VOLUME_KEEP_MERGE, ERR_CONFLICT);
    assert_int_equal(conflicts(NULL), 1);
    assert_mine(lost.id, text_mine);
    resolve_ok(lost.id, VOLUME_KEEP_MERGE);
    assert_bucket("f", "one\n2\n3\n4\n5\nsixth\n");
    assert_ended(lost.id);
}

/* The name beside it is another file's, here or only in the bucket: the next one is taken. */
static void
a_name_that_is_taken_is_left_alone(void **state)
{
    char path[LIMIT_PATH + 1];
    (void)state;
    make_conflict("f", "base", "mine", "theirs");
    sibling_of("f", "", path);
    save(path, "somebody's");
    resolve_ok(lost.id, VOLUME_KEEP_BOTH);
    assert_string_not_equal(done.path, path);
    assert_bucket(done.path, "mine");
    assert_ended(lost.id);
    assert_bucket(path, "somebody's");

    make_conflict("g", "base", "mine", "theirs");
    sibling_of("g", "", path);
    foreign_put(path, "another's");
    resolve_ok(lost.id, VOLUME_KEEP_BOTH);
    assert_string_not_equal(done.path, path);
    assert_bucket(done.path, "mine");
    assert_bucket(path, "another's");
    assert_ended(lost.id);
}

static void
a_file_that_is_being_written_is_left_alone(void **state)
{
    (void)state;
    make_conflict("f", "base", "mine", "theirs");
    struct volume_file *file = open_at("f", O_RDWR);
    write_at(file, "x", 0);
    resolve_refused(lost.id, VOLUME_KEEP_MINE, ERR_BUSY);
    resolve_refused(lost.id, VOLUME_KEEP_MERGE, ERR_BUSY);
    close_file(file);
    flush();
    assert_bucket("f", "xheirs");
    assert_int_equal(conflicts(NULL), 1);
}

static void
a_folder_in_the_way_is_said(void **state)
{
    (void)state;
    make_conflict("f", "base", "mine", "theirs");
    unlink_at("f");
    make_dir("f");
    resolve_refused(lost.id, VOLUME_KEEP_MINE, ERR_IS_DIR);
    resolve_ok(lost.id, VOLUME_KEEP_BOTH);
    assert_bucket(done.path, "mine");
    assert_ended(lost.id);
}

static void
a_read_only_volume_keeps_its_conflicts(void **state)
{
    struct volume_settings settings = { .name = "v", .read_only = true };
    (void)state;
    make_conflict("f", "base", "mine", "theirs");
    RUN_OK(rig.err, volume_set(rig.service, "v", &settings, &rig.err));
    resolve_refused(lost.id, VOLUME_KEEP_THEIRS, ERR_READ_ONLY);
    resolve_refused(lost.id, VOLUME_KEEP_MINE, ERR_READ_ONLY);
    assert_int_equal(conflicts(NULL), 1);
    assert_true(has_loser(lost.id));
}

/* ---- cut short ---- */

static void
while_the_store_is_away_the_record_stays(void **state)
{
    char version[LIMIT_ETAG];
    struct volume_attr attr;
    (void)state;
    make_conflict("f", "base", "mine", "theirs");
    atomic_store(&rig.hook->fail[HOOK_PUT], -1);
    assert_int_equal(resolve_within(lost.id, VOLUME_KEEP_MINE, 300 * NS_PER_MS), -1);
    assert_int_equal(rig.err.code, ERR_NOT_SYNCED);
    assert_reads("f", "mine");
    assert_bucket("f", "theirs");
    assert_int_equal(conflicts(NULL), 1);
    assert_true(has_loser(lost.id));
    RUN_OK(rig.err, volume_resolve(rig.service, &rig.ctx, rig.volume, "f", &attr, &rig.err));
    text_set(version, attr.version);
    /* Again, still away: nothing is written twice. */
    assert_int_equal(resolve_within(lost.id, VOLUME_KEEP_MINE, 300 * NS_PER_MS), -1);
    assert_int_equal(rig.err.code, ERR_NOT_SYNCED);
    atomic_store(&rig.hook->fail[HOOK_PUT], 0);
    resolve_ok(lost.id, VOLUME_KEEP_MINE);
    assert_false(done.written);
    assert_string_equal(done.version, version);
    assert_bucket("f", "mine");
    assert_ended(lost.id);
}

/* The process ends between the bytes and the record. */
static void
a_crash_before_the_record_ends_changes_nothing(void **state)
{
    static const enum volume_keep ways[] = { VOLUME_KEEP_MINE, VOLUME_KEEP_BOTH,
                                             VOLUME_KEEP_MERGE };
    (void)state;
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        char path[16];
        (void)snprintf(path, sizeof(path), "f%zu", i);
        make_conflict(path, text_base, text_mine, text_theirs);
        atomic_store(&rig.hook->fail[HOOK_PUT], -1);
        assert_int_equal(resolve_within(lost.id, ways[i], 200 * NS_PER_MS), -1);
        assert_int_equal(rig.err.code, ERR_NOT_SYNCED);
        restart();
        assert_int_equal(conflicts(NULL), 1);
        assert_mine(lost.id, text_mine);
        resolve_ok(lost.id, ways[i]);
        assert_false(done.written);
        assert_bucket(path, ways[i] == VOLUME_KEEP_MINE    ? text_mine
                            : ways[i] == VOLUME_KEEP_MERGE ? text_both
                                                           : text_theirs);
        if (ways[i] == VOLUME_KEEP_BOTH)
            assert_bucket(done.path, text_mine);
        assert_ended(lost.id);
    }
}

static void
a_lost_answer_is_no_loss(void **state)
{
    (void)state;
    make_conflict("f", "base", "mine", "theirs");
    atomic_store(&rig.hook->lose[HOOK_PUT], 1);
    resolve_ok(lost.id, VOLUME_KEEP_MINE);
    assert_bucket("f", "mine");
    assert_ended(lost.id);
}

/* The loser's own upload is under way when its record ends: what lands is taken away again. */
static void
an_upload_of_the_loser_lands_for_nobody(void **state)
{
    struct volume_file *file;
    (void)state;
    save("f", "base");
    flush();
    file = open_at("f", O_RDWR | O_TRUNC);
    write_at(file, "mine", 0);
    foreign_put("f", "theirs");
    close_file(file);
    for (int i = 0; i < 60000 && conflicts(&lost) == 0; i++) {
        clock_sleep_ns(NS_PER_MS);
        if (atomic_load(&rig.hook->count[HOOK_PUT]) >= 2)
            hold(HOOK_PUT);
    }
    hold(HOOK_PUT);
    (void)conflicts(&lost);
    resolve_ok(lost.id, VOLUME_KEEP_THEIRS);
    release(HOOK_PUT);
    assert_ended(lost.id);
    assert_bucket("f", "theirs");
}

static void
a_loser_that_is_not_in_the_bucket_yet_can_be_kept(void **state)
{
    struct index_conflict row;
    (void)state;
    save("f", "base");
    flush();
    struct volume_file *file = open_at("f", O_RDWR | O_TRUNC);
    write_at(file, "mine", 0);
    foreign_put("f", "theirs");
    /* The PUT over the path is refused by its condition, the loser's own fails. */
    atomic_store(&rig.hook->fail_code[HOOK_PUT], 0);
    close_file(file);
    for (int i = 0; i < 60000 && conflicts(&row) == 0; i++)
        clock_sleep_ns(NS_PER_MS);
    resolve_ok(row.id, VOLUME_KEEP_MINE);
    assert_bucket("f", "mine");
    assert_ended(row.id);
}

static int
count_entry(void *arg, const struct volume_entry *entry, struct err *err)
{
    unsigned *count = arg;
    (void)entry;
    (void)err;
    ++*count;
    return 0;
}

static unsigned
entries(const char *dir)
{
    unsigned count = 0;
    struct volume_page page = { .dir = node_of(dir), .limit = 100 };
    RUN_OK(rig.err, volume_list(rig.service, &rig.ctx, &page, count_entry, &count, &rig.err));
    return count;
}

/* ---- the store goes away at the n-th request, and then the gateway ---- */

static atomic_int requests_left;

static void
count_down(enum hook_op op, const char *key)
{
    (void)op;
    (void)key;
    if (atomic_fetch_sub(&requests_left, 1) != 1)
        return;
    for (int i = 0; i < HOOK_OPS; i++)
        atomic_store(&rig.hook->fail[i], -1);
}

/* Mine is whole wherever it is; made again, the same resolve ends as it should. */
static void
end_what_was_cut(const char *path, enum volume_keep keep, int cut)
{
    const char *wanted = keep == VOLUME_KEEP_MINE    ? text_mine
                         : keep == VOLUME_KEEP_MERGE ? text_both
                                                     : text_theirs;
    if (conflicts(NULL) == 1) {
        assert_mine(lost.id, text_mine);
        resolve_ok(lost.id, keep);
    } else {
        assert_int_equal(cut, 0); /* it had said so */
    }
    assert_ended(lost.id);
    assert_bucket(path, wanted);
    assert_reads(path, wanted);
    if (keep == VOLUME_KEEP_BOTH)
        assert_bucket(done.path, text_mine);
    unlink_at(path);
    if (keep == VOLUME_KEEP_BOTH)
        unlink_at(done.path);
    assert_int_equal(entries(""), 0); /* nothing was made twice */
    flush();
}

static void
cut_at_every_request(void **state)
{
    static const enum volume_keep ways[] = { VOLUME_KEEP_MINE, VOLUME_KEEP_MERGE, VOLUME_KEEP_BOTH,
                                             VOLUME_KEEP_THEIRS };
    unsigned cuts = 0;
    (void)state;
    for (size_t way = 0; way < sizeof(ways) / sizeof(ways[0]); way++) {
        bool whole = false;
        for (int n = 1; n < 20 && !whole; n++) {
            char path[16];
            (void)snprintf(path, sizeof(path), "f%zu-%d", way, n);
            make_conflict(path, text_base, text_mine, text_theirs);
            atomic_store(&requests_left, n);
            atomic_store(&rig.hook->after, count_down);
            int rc = resolve_within(lost.id, ways[way], 250 * NS_PER_MS);
            whole = rc == 0 && atomic_load(&requests_left) > 0;
            cuts += rc != 0;
            restart();
            end_what_was_cut(path, ways[way], rc);
        }
        assert_true(whole);
    }
    assert_in_range(cuts, 3, 40);
}

/* ---- the base ---- */

static void
evict_all(void)
{
    for (int64_t number = 1; number < 64; number++)
        if (evict_content(rig.service, number))
            cache_remove(rig.service->cache, number);
}

static void
a_base_that_the_cache_gave_up_is_no_base(void **state)
{
    bool base = true;
    (void)state;
    make_conflict("f", text_base, text_mine, text_theirs);
    RUN_OK(rig.err, volume_conflict_has_base(rig.service, lost.id, &base, &rig.err));
    assert_true(base);
    /* 60 of the id's bits name its row (volume/conflicts.c); any CLEAN content may be given up. */
    evict_all();
    RUN_OK(rig.err, volume_conflict_has_base(rig.service, lost.id, &base, &rig.err));
    assert_false(base);
    assert_int_equal(merge_state(lost.id), VOLUME_MERGE_NO_BASE);
    resolve_ok(lost.id, VOLUME_KEEP_MINE);
    assert_bucket("f", text_mine);
    assert_ended(lost.id);
}

static void
put_whole(const char *path, const char *text)
{
    bool created;
    struct volume_attr attr;
    struct volume_commit_args args = { .pre.kind = PRECONDITION_ANY, .wait_synced = true };
    struct volume_upload *upload =
        volume_upload_begin(rig.service, &rig.ctx, rig.volume, path, &rig.err);
    assert_non_null(upload);
    RUN_OK(rig.err, volume_upload_write(upload, text, strlen(text), &rig.err));
    RUN_OK(rig.err, volume_commit(upload, &rig.ctx, &args, &attr, &created, &rig.err));
}

/* What replaced the base here kept it in the history. */
static void
a_base_comes_from_the_history(void **state)
{
    bool base = false;
    struct volume_barrier barrier;
    (void)state;
    save("f", text_base);
    flush();
    struct volume_file *writer = open_at("f", O_RDWR | O_TRUNC);
    write_at(writer, text_mine, 0);
    put_whole("f", text_theirs);
    volume_file_close(writer, &rig.ctx);
    (void)flush_within(60 * NS_PER_S, &barrier);
    assert_int_equal(conflicts(&lost), 1);
    evict_all();
    RUN_OK(rig.err, volume_conflict_has_base(rig.service, lost.id, &base, &rig.err));
    assert_true(base);
    assert_side(VOLUME_BASE, text_base);
    resolve_ok(lost.id, VOLUME_KEEP_MERGE);
    assert_bucket("f", text_both);
    assert_ended(lost.id);
}

/* What mounts change rests, so that a file that is renamed at once never lay at its first name. */
static int
setup_rest(void **state)
{
    (void)state;
    rig_open(&(struct rig_options){ .sync_rest_ns = NS_PER_S });
    return 0;
}

/* As editors save: what the new file takes the name from is its base. */
static void
a_save_by_rename_has_a_base(void **state)
{
    struct volume_barrier barrier;
    struct volume_attr attr;
    (void)state;
    save("f", text_base);
    flush();
    RUN_OK(rig.err, volume_resolve(rig.service, &rig.ctx, rig.volume, "f", &attr, &rig.err));
    save("f.tmp", text_mine);
    foreign_put("f", text_theirs);
    move("f.tmp", "f", 0);
    assert_int_equal(flush_within(60 * NS_PER_S, &barrier), -1);
    assert_int_equal(rig.err.code, ERR_CONFLICT);
    assert_int_equal(conflicts(&lost), 1);
    assert_string_equal(lost.path, "f");
    assert_string_equal(lost.base_version, attr.version);
    assert_side(VOLUME_BASE, text_base);
    resolve_ok(lost.id, VOLUME_KEEP_MERGE);
    assert_bucket("f", text_both);
    assert_ended(lost.id);
    /* Without a conflict nothing of it stays. */
    save("g", text_base);
    flush();
    save("g.tmp", text_mine);
    move("g.tmp", "g", 0);
    flush();
    assert_bucket("g", text_mine);
    assert_reads("g", text_mine);
    restart();
    assert_reads("g", text_mine);
    flush();
    assert_bucket("g", text_mine);
}

/* ---- conflict_copy=on ---- */

static void
with_copies(bool on)
{
    struct volume_info info;
    struct volume_settings settings = { .name = "v", .conflict_copy = on };
    RUN_OK(rig.err, volume_set(rig.service, "v", &settings, &rig.err));
    RUN_OK(rig.err, volume_find(rig.service, "v", &info, &rig.err));
    assert_int_equal(info.conflict_copy, on);
}

static void
a_copy_lies_beside_the_path(void **state)
{
    char path[LIMIT_PATH + 1];
    struct volume_attr attr, beside;
    struct volume_change mode = { .bits = VOLUME_SET_MODE, .mode = 0640 };
    (void)state;
    with_copies(true);
    make_dir("d");
    make_conflict("d/a.txt", text_base, text_mine, text_theirs);
    sibling_of("d/a", ".txt", path);
    assert_reads(path, text_mine);
    assert_reads("d/a.txt", text_theirs);
    flush();
    assert_bucket(path, text_mine);
    assert_int_equal(entries("d"), 2);
    assert_int_equal(conflicts(NULL), 1);
    RUN_OK(rig.err, volume_resolve(rig.service, &rig.ctx, rig.volume, "d/a.txt", &attr, &rig.err));
    RUN_OK(rig.err, volume_resolve(rig.service, &rig.ctx, rig.volume, path, &beside, &rig.err));
    assert_int_equal(attr.mode, beside.mode);
    /* Both are there already. */
    resolve_ok(lost.id, VOLUME_KEEP_BOTH);
    assert_false(done.written);
    assert_string_equal(done.path, path);
    assert_int_equal(entries("d"), 2);
    assert_ended(lost.id);

    with_copies(false);
    RUN_OK(rig.err,
           volume_setattr(rig.service, &rig.ctx, node_of("d/a.txt"), &mode, &attr, &rig.err));
    flush();
    make_conflict("d/b", "base", "mine", "theirs");
    assert_int_equal(entries("d"), 3);
    resolve_ok(lost.id, VOLUME_KEEP_BOTH);
    assert_int_equal(entries("d"), 4);
}

/* It is made before the loser's upload, which is tried again and again. */
static void
a_copy_is_made_once(void **state)
{
    struct volume_barrier barrier;
    char path[LIMIT_PATH + 1];
    (void)state;
    with_copies(true);
    save("f", "base");
    flush();
    struct volume_file *file = open_at("f", O_RDWR | O_TRUNC);
    write_at(file, "mine", 0);
    foreign_put("f", "theirs");
    close_file(file);
    for (int i = 0; i < 60000 && conflicts(&lost) == 0; i++)
        clock_sleep_ns(NS_PER_MS);
    atomic_store(&rig.hook->fail[HOOK_PUT], -1);
    assert_int_equal(flush_within(NS_PER_S, &barrier), -1);
    sibling_of("f", "", path);
    restart();
    assert_int_equal(flush_within(60 * NS_PER_S, &barrier), 0);
    assert_bucket(path, "mine");
    assert_int_equal(entries(""), 2);
    assert_true(has_loser(lost.id));
}

/* Two writers of one file lose one after the other: each is resolved by itself. */
static void
two_conflicts_at_one_path(void **state)
{
    struct index_conflict first;
    struct volume_barrier barrier;
    (void)state;
    make_conflict("f", text_base, text_mine, text_theirs);
    first = lost;
    assert_reads("f", text_theirs); /* so that the cache has what the next writer begins with */
    struct volume_file *file = open_at("f", O_RDWR | O_TRUNC);
    write_at(file, "1\n2\nthree\n4\n5\nsix\n", 0);
    foreign_put("f", "1\n2\n3\n4\n5\nsix\n7\n");
    close_file(file);
    (void)flush_within(60 * NS_PER_S, &barrier);
    assert_int_equal(conflicts(&lost), 2);
    resolve_ok(lost.id, VOLUME_KEEP_MERGE);
    assert_bucket("f", "1\n2\nthree\n4\n5\nsix\n7\n");
    resolve_ok(first.id, VOLUME_KEEP_MERGE);
    assert_bucket("f", "one\n2\nthree\n4\n5\nsix\n7\n");
    assert_ended(first.id);
}

#define BOTH(test)                                                  \
    cmocka_unit_test_setup_teardown(test, rig_setup, rig_teardown), \
    {                                                               \
#test " (weak)", test, rig_setup_weak, rig_teardown, NULL   \
    }
#define ONE(test) cmocka_unit_test_setup_teardown(test, rig_setup, rig_teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(theirs_stays),
        BOTH(mine_comes_back),
        BOTH(mine_comes_back_where_the_file_was_removed),
        ONE(theirs_stays_removed),
        BOTH(both_lie_side_by_side),
        ONE(a_long_name_is_cut_between_characters),
        BOTH(texts_are_merged),
        ONE(a_merge_takes_later_changes_in),
        ONE(what_overlaps_is_not_merged),
        ONE(what_cannot_be_merged_says_why),
        ONE(every_side_can_be_read),
        ONE(a_path_that_changed_since_is_not_overwritten),
        ONE(a_path_that_was_removed_since_is_not_made_again),
        BOTH(a_race_in_the_bucket_is_the_same_conflict_again),
        ONE(a_removal_in_the_bucket_is_the_same_conflict_again),
        ONE(a_merge_that_lost_a_race_can_be_made_again),
        ONE(a_name_that_is_taken_is_left_alone),
        ONE(a_file_that_is_being_written_is_left_alone),
        ONE(a_folder_in_the_way_is_said),
        ONE(a_read_only_volume_keeps_its_conflicts),
        BOTH(while_the_store_is_away_the_record_stays),
        BOTH(a_crash_before_the_record_ends_changes_nothing),
        BOTH(a_lost_answer_is_no_loss),
        BOTH(an_upload_of_the_loser_lands_for_nobody),
        ONE(a_loser_that_is_not_in_the_bucket_yet_can_be_kept),
        BOTH(cut_at_every_request),
        ONE(a_base_that_the_cache_gave_up_is_no_base),
        ONE(a_base_comes_from_the_history),
        cmocka_unit_test_setup_teardown(a_save_by_rename_has_a_base, setup_rest, rig_teardown),
        BOTH(a_copy_lies_beside_the_path),
        ONE(a_copy_is_made_once),
        ONE(two_conflicts_at_one_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
