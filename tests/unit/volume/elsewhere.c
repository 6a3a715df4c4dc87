#include "tests/unit/volume/volume_fixture.h"

/* Ways in which others lost files or time, and that belong to no single part of the volume (tests/cases/elsewhere.tsv). */

static struct volume_attr
attr_at(const char *path)
{
    struct volume_attr attr;
    RUN_OK(rig.err, volume_resolve(rig.service, &rig.ctx, rig.volume, path, &attr, &rig.err));
    return attr;
}

struct listed {
    char names[4096];
    int64_t last;
    unsigned count, limit;
};

static int
add_name(void *arg, const struct volume_entry *entry, struct err *err)
{
    struct listed *listed = arg;
    size_t have = strlen(listed->names);
    (void)err;
    (void)snprintf(listed->names + have, sizeof(listed->names) - have, "[%.*s]",
                   (int)entry->name_len, entry->name);
    listed->last = entry->cookie;
    listed->count++;
    return 0;
}

/* All names of a folder, in pages of so many. */
static void
list_in_pages(const char *path, unsigned page, struct listed *out)
{
    unsigned before;
    memset(out, 0, sizeof(*out));
    do {
        before = out->count;
        struct volume_page wanted = { .dir = node_of(path), .after = out->last, .limit = page };
        RUN_OK(rig.err, volume_list(rig.service, &rig.ctx, &wanted, add_name, out, &rig.err));
    } while (out->count > before);
}

static void
assert_lists(const char *path, const char *const names[])
{
    for (unsigned page = 1; page <= 3; page++) {
        struct listed listed;
        unsigned count = 0;
        list_in_pages(path, page, &listed);
        for (; names[count] != NULL; count++) {
            char one[64];
            (void)snprintf(one, sizeof(one), "[%s]", names[count]);
            const char *at = strstr(listed.names, one);
            if (at == NULL || strstr(at + 1, one) != NULL)
                fail_msg("'%s' is not there once in %s", names[count], listed.names);
        }
        assert_int_equal(listed.count, count);
    }
}

/* B068: a folder sorts with its slash, behind names that are longer. */
static void
folders_and_files_with_one_beginning_are_all_there(void **state)
{
    (void)state;
    foreign_put("d/2019/a", "x");
    foreign_put("d/2019-0001/a", "x");
    foreign_put("d/2019.txt", "x");
    foreign_put("d/2019", "x");
    foreign_put("d/2019!", "x");
    foreign_put("d/20190", "x");
    /* What has the name of a folder keeps it; "2019" is one of both. */
    assert_lists("d",
                 (const char *const[]){ "2019", "2019-0001", "2019.txt", "2019!", "20190", NULL });
    assert_reads("d/2019.txt", "x");
    assert_reads("d/2019-0001/a", "x");
    assert_reads("d/20190", "x");
}

/* B076: "foo" is no folder because of "foo.js", nor "a" because of "ab/". */
static void
a_folder_needs_its_slash(void **state)
{
    (void)state;
    foreign_put("foo", "file");
    foreign_put("foo.js", "x");
    foreign_put("foo-bar/x", "x");
    foreign_put("ab/x", "x");
    foreign_put("x#1", "one");
    foreign_put("x#2", "two");
    assert_gone("a");
    assert_gone("foo-");
    assert_int_equal(attr_at("foo").kind, INDEX_FILE);
    assert_int_equal(attr_at("foo-bar").kind, INDEX_DIR);
    assert_reads("x#1", "one");
    assert_reads("x#2", "two");
}

/* B069: names that begin below the slash move with their folder, in the tree and in the bucket. */
static void
every_child_moves_with_its_folder(void **state)
{
    (void)state;
    static const char *const names[] = {
        "(x)", "!y", " z", "-w", ".v", "+u", "#t", "%41", "a", NULL
    };
    char path[32];
    for (unsigned i = 0; names[i] != NULL; i++) {
        (void)snprintf(path, sizeof(path), "d/%s", names[i]);
        foreign_put(path, names[i]);
    }
    foreign_put("d-", "beside");
    foreign_put("d/(x)2/deep", "deep");
    assert_reads("d/(x)", "(x)");
    move("d", "e", 0);
    flush();
    for (unsigned i = 0; names[i] != NULL; i++) {
        (void)snprintf(path, sizeof(path), "e/%s", names[i]);
        assert_reads(path, names[i]);
        assert_bucket(path, names[i]);
        path[0] = 'd';
        assert_false(in_bucket(path));
    }
    assert_bucket("e/(x)2/deep", "deep");
    assert_bucket("d-", "beside");
    assert_gone("d");
}

/* B072: made elsewhere after the folder was listed; asked for once its time has passed. */
static void
a_name_made_elsewhere_is_found(void **state)
{
    (void)state;
    foreign_put("d/one", "x");
    assert_gone("d/two");
    foreign_put("d/two", "came later");
    clock_sleep_ns(20 * NS_PER_MS); /* the time to live is 10 ms */
    assert_reads("d/two", "came later");
}

/* What only refreshes what is known does not hold up a question for as long as it takes. */
static void
a_question_does_not_wait_for_a_long_refresh(void **state)
{
    (void)state;
    char path[32];
    for (int i = 0; i < 1000; i++) {
        (void)snprintf(path, sizeof(path), "d/%04d", i);
        foreign_put(path, "x");
    }
    assert_gone("d/none");
    clock_sleep_ns(20 * NS_PER_MS);
    atomic_store(&rig.hook->list_pause_ms, 8);
    int64_t begun = clock_mono_ns();
    assert_gone("d/none");
    int64_t took = clock_mono_ns() - begun;
    atomic_store(&rig.hook->list_pause_ms, 0);
    assert_true(took < 5 * NS_PER_S); /* the listing takes eight */
}

/* B082: in a folder that nobody has listed. */
static void
a_folder_is_not_made_over_a_file(void **state)
{
    (void)state;
    struct volume_attr attr;
    foreign_put("d/a", "file");
    struct volume_name at = { node_of("d"), "a", 1 };
    assert_int_equal(volume_mkdir(rig.service, &rig.ctx, &at, 0755, &attr, &rig.err), -1);
    assert_int_equal(rig.err.code, ERR_EXISTS);
    flush();
    assert_bucket("d/a", "file");
    assert_false(in_bucket("d/a/"));
}

/* B046: what is listed can be read, and what can be read is listed, whatever the upload does. */
static void
a_file_is_there_before_its_upload(void **state)
{
    (void)state;
    struct listed listed;
    hold(HOOK_PUT);
    save("d-new", "bytes");
    wait_for_waiting(HOOK_PUT);
    list_in_pages("", 10, &listed);
    assert_non_null(strstr(listed.names, "[d-new]"));
    assert_int_equal(attr_at("d-new").size, 5);
    assert_reads("d-new", "bytes");
    relist("");
    assert_reads("d-new", "bytes");
    assert_false(in_bucket("d-new"));
    release(HOOK_PUT);
    flush();
    assert_bucket("d-new", "bytes");
}

/* B109: the time of the write, from then on and after the upload. */
static void
the_time_of_a_write_stays(void **state)
{
    (void)state;
    save("f", "one");
    flush();
    int64_t before = attr_at("f").mtime_ns;
    clock_sleep_ns(20 * NS_PER_MS);
    struct volume_file *file = open_at("f", O_RDWR);
    write_at(file, "two", 0);
    int64_t at_write = attr_at("f").mtime_ns;
    assert_true(at_write > before);
    close_file(file);
    assert_int_equal(attr_at("f").mtime_ns, at_write);
    clock_sleep_ns(20 * NS_PER_MS);
    flush();
    relist("");
    assert_int_equal(attr_at("f").mtime_ns, at_write);
}

static void
assert_whole(const char *path, const char *bytes, size_t size)
{
    char *out = malloc(size);
    assert_non_null(out);
    struct volume_file *file = open_at(path, O_RDONLY);
    assert_int_equal(volume_file_read(file, &rig.ctx, out, size, 0, &rig.err), size);
    assert_memory_equal(out, bytes, size);
    volume_file_close(file, &rig.ctx);
    free(out);
}

/* B149: reads may fill the cache; what waits for its upload stays, and goes up. */
static void
a_full_cache_keeps_what_is_to_be_uploaded(void **state)
{
    (void)state;
    const size_t size = 3u << 20;
    char path[32];
    char *bytes = malloc(size + 1);
    assert_non_null(bytes);
    memset(bytes, 'r', size);
    bytes[size] = '\0';
    for (int i = 0; i < 6; i++) { /* 18 MiB through a cache of 8 */
        (void)snprintf(path, sizeof(path), "read/%d", i);
        foreign_put(path, bytes);
    }
    hold(HOOK_PUT);
    for (int i = 0; i < 20; i++) {
        (void)snprintf(path, sizeof(path), "staged/%d", i);
        if (i == 0)
            make_dir("staged");
        save(path, path);
    }
    for (int i = 0; i < 6; i++) {
        (void)snprintf(path, sizeof(path), "read/%d", i);
        assert_whole(path, bytes, size);
    }
    release(HOOK_PUT);
    flush();
    for (int i = 0; i < 20; i++) {
        (void)snprintf(path, sizeof(path), "staged/%d", i);
        assert_bucket(path, path);
    }
    free(bytes);
}

static atomic_bool race_over;

static void *
race_with_uploads(void *arg)
{
    struct volume_ctx ctx = { .actor = "racer", .connection = 2 };
    (void)arg;
    while (!atomic_load(&race_over)) {
        struct err err = ERR_INIT;
        struct volume_file *file;
        struct volume_attr attr;
        if (volume_lookup(rig.service, &ctx, &(struct volume_name){ rig.root, "f", 1 }, &attr,
                          &err) != 0 ||
            volume_file_open(rig.service, &ctx, attr.node, O_RDWR | O_TRUNC, &file, &err) != 0)
            continue;
        (void)!volume_file_write(file, &ctx, "raced", 5, 0, &err);
        (void)!volume_file_flush(file, &ctx, &err);
        volume_file_close(file, &ctx);
    }
    return NULL;
}

static void
only_whole_bytes(enum hook_op op, const char *key)
{
    char *data = NULL;
    size_t len = 0;
    struct err err = ERR_INIT;
    if (op != HOOK_PUT || strcmp(key, "v/f") != 0 ||
        store_get_small(rig.mem, key, 4096, &data, &len, NULL, &err) != 0)
        return;
    if (strcmp(data, "saved whole") != 0 && strcmp(data, "raced") != 0)
        print_error("the bucket got '%s'\n", data);
    assert_true(strcmp(data, "saved whole") == 0 || strcmp(data, "raced") == 0);
    free(data);
}

/* B171: cut, replaced and removed while it is uploaded: no object that was never a file. */
static void
an_upload_reads_what_does_not_change(void **state)
{
    (void)state;
    pthread_t thread;
    atomic_store(&race_over, false);
    atomic_store(&rig.hook->after, only_whole_bytes);
    assert_int_equal(pthread_create(&thread, NULL, race_with_uploads, NULL), 0);
    for (int i = 0; i < 150; i++) {
        save("tmp", "saved whole");
        move("tmp", "f", 0);
        if (i % 5 == 4)
            unlink_at("f");
    }
    atomic_store(&race_over, true);
    pthread_join(thread, NULL);
    save("f", "saved whole");
    flush();
    atomic_store(&rig.hook->after, NULL);
    assert_bucket("f", "saved whole");
    assert_int_equal(conflicts(NULL), 0);
}

/* B172: a longer version here, a shorter one there. */
static void
a_shorter_version_has_no_old_tail(void **state)
{
    (void)state;
    char out[32] = "";
    foreign_put("f", "a long version of it");
    assert_reads("f", "a long version of it");
    foreign_put("f", "short");
    relist("");
    assert_int_equal(attr_at("f").size, 5);
    assert_reads("f", "short");
    struct volume_file *file = open_at("f", O_RDONLY);
    assert_int_equal(volume_file_read(file, &rig.ctx, out, 20, 3, &rig.err), 2);
    assert_string_equal(out, "rt");
    assert_int_equal(volume_file_read(file, &rig.ctx, out, 20, 5, &rig.err), 0);
    volume_file_close(file, &rig.ctx);
    /* And what is written here then is no longer than that. */
    file = open_at("f", O_RDWR);
    write_at(file, "SH", 0);
    close_file(file);
    flush();
    assert_bucket("f", "SHort");
}

/* B118: a read is as long as it was asked for, up to the end, also over the borders of blocks that have to come first. */
static void
a_read_is_short_only_at_the_end(void **state)
{
    (void)state;
    const size_t size = 2 * CACHE_BLOCK_SIZE + 100;
    char *bytes = malloc(size + 1), *out = malloc(size + 1);
    assert_non_null(bytes);
    assert_non_null(out);
    for (size_t i = 0; i < size; i++)
        bytes[i] = (char)('a' + (i / 7) % 26);
    bytes[size] = '\0';
    foreign_put("f", bytes);
    struct volume_file *file = open_at("f", O_RDONLY);
    const struct {
        uint64_t off;
        size_t len, got;
    } rows[] = {
        { CACHE_BLOCK_SIZE - 10, 20, 20 },
        { 2 * CACHE_BLOCK_SIZE - 1, 2, 2 },
        { 0, size, size },
        { size - 50, 100, 50 },
        { 10, 2 * CACHE_BLOCK_SIZE, 2 * CACHE_BLOCK_SIZE },
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        ssize_t got = volume_file_read(file, &rig.ctx, out, rows[i].len, rows[i].off, &rig.err);
        assert_int_equal(got, rows[i].got);
        assert_memory_equal(out, bytes + rows[i].off, rows[i].got);
    }
    volume_file_close(file, &rig.ctx);
    free(bytes);
    free(out);
}

/* B182: what went wrong has its own name. */
static void
errors_keep_their_names(void **state)
{
    (void)state;
    struct volume_attr attr;
    struct volume_file *file;
    save("file", "x");
    make_dir("full");
    save("full/x", "x");
    make_dir("empty");
    struct volume_name at = { rig.root, "none", 4 };
    assert_int_equal(volume_remove(rig.service, &rig.ctx, &at, false, NULL, &rig.err), -1);
    assert_int_equal(rig.err.code, ERR_NOT_FOUND);
    at = name_at("full");
    assert_int_equal(volume_remove(rig.service, &rig.ctx, &at, true, NULL, &rig.err), -1);
    assert_int_equal(rig.err.code, ERR_NOT_EMPTY);
    assert_int_equal(volume_remove(rig.service, &rig.ctx, &at, false, NULL, &rig.err), -1);
    assert_int_equal(rig.err.code, ERR_IS_DIR);
    at = name_at("file");
    assert_int_equal(volume_remove(rig.service, &rig.ctx, &at, true, NULL, &rig.err), -1);
    assert_int_equal(rig.err.code, ERR_NOT_DIR);
    assert_int_equal(volume_mkdir(rig.service, &rig.ctx, &at, 0755, &attr, &rig.err), -1);
    assert_int_equal(rig.err.code, ERR_EXISTS);
    struct volume_name below = { node_of("file"), "x", 1 };
    assert_int_equal(volume_lookup(rig.service, &rig.ctx, &below, &attr, &rig.err), -1);
    assert_int_equal(rig.err.code, ERR_NOT_DIR);
    assert_int_equal(
        volume_file_open(rig.service, &rig.ctx, node_of("empty"), O_RDWR, &file, &rig.err), -1);
    assert_int_equal(rig.err.code, ERR_IS_DIR);
    struct volume_name from = name_at("full"), to = { node_of("full"), "in", 2 };
    assert_int_equal(volume_rename(rig.service, &rig.ctx, &from, &to, 0, &rig.err), -1);
    assert_int_equal(rig.err.code, ERR_INVAL); /* into itself */
    to = name_at("file");
    assert_int_equal(volume_rename(rig.service, &rig.ctx, &from, &to, 0, &rig.err), -1);
    assert_int_equal(rig.err.code, ERR_NOT_DIR);
    assert_int_equal(volume_rename(rig.service, &rig.ctx, &to, &from, 0, &rig.err), -1);
    assert_int_equal(rig.err.code, ERR_IS_DIR);
}

static int
read_code(const char *path)
{
    char out[16];
    struct volume_file *file = open_at(path, O_RDONLY);
    ssize_t got = volume_file_read(file, &rig.ctx, out, sizeof(out), 0, &rig.err);
    volume_file_close(file, &rig.ctx);
    return got < 0 ? (int)rig.err.code : (int)ERR_CODE_COUNT;
}

/* B206: reads are refused for an hour (a cap on the account), writes and listings are not. */
static void
refused_reads_are_no_absence_and_end_by_themselves(void **state)
{
    (void)state;
    foreign_put("theirs", "bytes");
    save("mine", "cached");
    flush();
    assert_int_equal(attr_at("theirs").size, 5);
    for (int op = HOOK_HEAD; op <= HOOK_GET; op++) {
        atomic_store(&rig.hook->fail_code[op], ERR_STORE_DENIED);
        atomic_store(&rig.hook->fail[op], -1);
    }
    assert_int_equal(read_code("theirs"), ERR_STORE_DENIED);
    assert_reads("mine", "cached");
    save("mine", "newer");
    save("new", "new");
    flush();
    assert_bucket("mine", "newer");
    assert_bucket("new", "new");
    for (int op = HOOK_HEAD; op <= HOOK_GET; op++)
        atomic_store(&rig.hook->fail[op], 0);
    clock_sleep_ns(600 * NS_PER_MS);
    assert_reads("theirs", "bytes");
    assert_int_equal(conflicts(NULL), 0);
}

/* B207: a name that the store never takes waits, says why, and holds up none of the others. */
static void
a_name_that_the_store_refuses_is_told_and_kept(void **state)
{
    (void)state;
    struct volume_barrier barrier;
    atomic_store(&rig.hook->fail_code[HOOK_PUT], ERR_STORE_BAD_ANSWER);
    atomic_store(&rig.hook->fail[HOOK_PUT], -1);
    save("with\ttab", "kept");
    assert_int_equal(flush_within(500 * NS_PER_MS, &barrier), -1);
    assert_int_equal(rig.err.code, ERR_NOT_SYNCED);
    assert_string_equal(barrier.first_key, "v/with\ttab");
    assert_non_null(strstr(barrier.first_error, "refuses"));
    assert_reads("with\ttab", "kept");
    atomic_store(&rig.hook->fail[HOOK_PUT], 0);
    save("plain", "bytes");
    for (int i = 0; i < 20000 && !in_bucket("plain"); i++)
        clock_sleep_ns(NS_PER_MS);
    assert_bucket("plain", "bytes");
    /* Under another name it goes up. */
    move("with\ttab", "without", 0);
    flush();
    assert_bucket("without", "kept");
}

/* B103: what is gone is answered with 412 where a version was named; a plain look tells which it was. */
static void
a_412_for_a_missing_key_is_looked_into(void **state)
{
    (void)state;
    foreign_put("f", "bytes");
    assert_int_equal(attr_at("f").size, 5);
    struct volume_file *file = open_at("f", O_RDONLY);
    char out[8];
    foreign_delete("f");
    atomic_store(&rig.hook->fail_code[HOOK_GET], ERR_CONFLICT);
    atomic_store(&rig.hook->fail[HOOK_GET], -1);
    int64_t begun = clock_mono_ns();
    assert_true(volume_file_read(file, &rig.ctx, out, 5, 0, &rig.err) < 0);
    assert_true(clock_mono_ns() - begun < 10 * NS_PER_S); /* no turning round and round */
    volume_file_close(file, &rig.ctx);
    assert_gone("f");
    /* The same for a version that is another one by now. */
    atomic_store(&rig.hook->fail[HOOK_GET], 0);
    foreign_put("g", "older");
    relist("");
    assert_int_equal(attr_at("g").size, 5);
    file = open_at("g", O_RDONLY);
    foreign_put("g", "the newer one");
    atomic_store(&rig.hook->fail[HOOK_GET], 1);
    (void)!volume_file_read(file, &rig.ctx, out, 5, 0, &rig.err);
    volume_file_close(file, &rig.ctx);
    atomic_store(&rig.hook->fail[HOOK_GET], 0);
    assert_reads("g", "the newer one");
}

/* B081: metadata of others stays as far as there is room, and never keeps an edit from its upload. */
static void
much_metadata_of_others_does_not_hold_up_an_edit(void **state)
{
    (void)state;
    struct meta meta;
    struct store_object object;
    char name[32], value[64];
    size_t bytes = 0;
    meta_init(&meta);
    for (unsigned i = 0; i < 28; i++) {
        (void)snprintf(name, sizeof(name), "Theirs-%u", i);
        (void)snprintf(value, sizeof(value), "%040u", i);
        RUN_OK(rig.err, meta_set(&meta, name, value, &rig.err));
    }
    foreign_put_meta("f", "bytes", &meta);
    meta_release(&meta);
    assert_reads("f", "bytes");
    struct volume_file *file = open_at("f", O_RDWR);
    write_at(file, "BYTES", 0);
    close_file(file);
    flush();
    assert_bucket("f", "BYTES");
    store_object_init(&object);
    RUN_OK(rig.err, store_head(rig.mem, "v/f", 0, &object, &rig.err));
    assert_non_null(meta_get(&object.meta, "mode"));
    assert_non_null(meta_get(&object.meta, "holdfast-version"));
    assert_string_equal(meta_get(&object.meta, "theirs-0"),
                        "0000000000000000000000000000000000000000");
    for (size_t i = 0; i < object.meta.count; i++)
        bytes += strlen(object.meta.entry[i].name) + strlen(object.meta.entry[i].value);
    assert_true(bytes <= 2048);
    store_object_release(&object);
}

static atomic_uint long_asked;

static void
note_long_names(enum hook_op op, const char *key)
{
    if (op != HOOK_LIST && strlen(key) > LIMIT_NAME)
        atomic_fetch_add(&long_asked, 1);
}

/* B033: some stores fail for ever on a name that is too long for Linux; nobody asks for it, and the others are there. */
static void
a_name_too_long_is_never_asked_for(void **state)
{
    (void)state;
    char longer[LIMIT_NAME + 30];
    struct volume_attr attr;
    memset(longer, 'k', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    foreign_put(longer, "x");
    foreign_put("plain", "x");
    atomic_store(&long_asked, 0);
    atomic_store(&rig.hook->after, note_long_names);
    relist("");
    assert_reads("plain", "x");
    struct volume_name at = { rig.root, longer, strlen(longer) };
    assert_int_equal(volume_mkdir(rig.service, &rig.ctx, &at, 0755, &attr, &rig.err), -1);
    assert_int_equal(rig.err.code, ERR_NAME_TOO_LONG);
    assert_int_equal(volume_lookup(rig.service, &rig.ctx, &at, &attr, &rig.err), -1);
    assert_true(rig.err.code == ERR_NAME_TOO_LONG || rig.err.code == ERR_NOT_FOUND);
    move("plain", "moved", 0);
    flush();
    atomic_store(&rig.hook->after, NULL);
    assert_int_equal(atomic_load(&long_asked), 0);
    assert_bucket("moved", "x");
}

static int
setup_short_ttl(void **state)
{
    (void)state;
    rig_open(&(struct rig_options){ .list_ttl_ns = 10 * NS_PER_MS });
    return 0;
}

static int
setup_small_cache(void **state)
{
    (void)state;
    rig_open(&(struct rig_options){ .cache_bytes = 8u << 20 });
    return 0;
}

#define WITH(test, setup) cmocka_unit_test_setup_teardown(test, setup, rig_teardown)
#define ONE(test) WITH(test, rig_setup)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        ONE(folders_and_files_with_one_beginning_are_all_there),
        ONE(a_folder_needs_its_slash),
        ONE(every_child_moves_with_its_folder),
        WITH(every_child_moves_with_its_folder, rig_setup_weak),
        WITH(a_name_made_elsewhere_is_found, setup_short_ttl),
        WITH(a_question_does_not_wait_for_a_long_refresh, setup_short_ttl),
        ONE(a_folder_is_not_made_over_a_file),
        ONE(a_file_is_there_before_its_upload),
        ONE(the_time_of_a_write_stays),
        WITH(a_full_cache_keeps_what_is_to_be_uploaded, setup_small_cache),
        ONE(an_upload_reads_what_does_not_change),
        ONE(a_shorter_version_has_no_old_tail),
        ONE(a_read_is_short_only_at_the_end),
        ONE(errors_keep_their_names),
        ONE(refused_reads_are_no_absence_and_end_by_themselves),
        ONE(a_name_that_the_store_refuses_is_told_and_kept),
        ONE(a_412_for_a_missing_key_is_looked_into),
        ONE(a_name_too_long_is_never_asked_for),
        ONE(much_metadata_of_others_does_not_hold_up_an_edit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
