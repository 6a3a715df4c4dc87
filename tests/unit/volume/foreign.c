#include "tests/unit/volume/volume_fixture.h"

/* What others put into the bucket, and what the store fails to say about it. */

static struct volume_attr
attr_at(const char *path)
{
    struct volume_attr attr;
    RUN_OK(rig.err, volume_resolve(rig.service, &rig.ctx, rig.volume, path, &attr, &rig.err));
    return attr;
}

static void
put_with(const char *path, const char *text, const char *const pairs[])
{
    struct meta meta;
    meta_init(&meta);
    for (size_t i = 0; pairs[i] != NULL; i += 2)
        RUN_OK(rig.err, meta_set(&meta, pairs[i], pairs[i + 1], &rig.err));
    foreign_put_meta(path, text, &meta);
    meta_release(&meta);
}

/* B034, B051, B052: same size, other bytes. */
static void
a_replaced_object_of_the_same_size_is_read_anew(void **state)
{
    (void)state;
    foreign_put("f", "aaaa");
    assert_reads("f", "aaaa");
    foreign_put("f", "bbbb");
    relist("");
    assert_reads("f", "bbbb");
    struct volume_file *file = open_at("f", O_RDONLY);
    foreign_put("f", "cccc");
    relist("");
    char out[8] = "";
    /* The handle keeps its version, the name shows the new one. */
    assert_int_equal(volume_file_read(file, &rig.ctx, out, 4, 0, &rig.err), 4);
    assert_string_equal(out, "bbbb");
    volume_file_close(file, &rig.ctx);
    assert_reads("f", "cccc");
}

/* B056 */
static void
what_others_deleted_goes(void **state)
{
    (void)state;
    save("f", "bytes");
    flush();
    foreign_delete("f");
    relist("");
    assert_gone("f");
}

/* B006, S14, S23: only a 404 means absent. */
static void
a_store_that_cannot_be_asked_is_not_an_absence(void **state)
{
    (void)state;
    struct volume_attr attr;
    struct volume_file *file;
    foreign_put("d/f", "bytes");
    relist("");
    atomic_store(&rig.hook->fail[HOOK_LIST], -1);
    assert_int_equal(resolve_code("d/f"), ERR_STORE_AWAY);
    assert_int_equal(resolve_code("d/none"), ERR_STORE_AWAY);
    struct volume_name at = name_at("d");
    at = (struct volume_name){ node_of("d"), "f", 1 };
    assert_int_equal(volume_file_create(
                         rig.service, &rig.ctx,
                         &(struct volume_new){ .at = at, .mode = 0644, .flags = O_CREAT | O_RDWR },
                         &attr, &file, &rig.err),
                     -1);
    assert_int_equal(rig.err.code, ERR_STORE_AWAY);
    assert_int_equal(volume_mkdir(rig.service, &rig.ctx, &at, 0755, &attr, &rig.err), -1);
    assert_int_equal(rig.err.code, ERR_STORE_AWAY);
    /* B023: rmdir says why, not "not empty" and not "done". */
    at = name_at("d");
    assert_int_equal(volume_remove(rig.service, &rig.ctx, &at, true, NULL, &rig.err), -1);
    assert_int_equal(rig.err.code, ERR_STORE_AWAY);
    atomic_store(&rig.hook->fail[HOOK_LIST], 0);
    /* B006: the object's HEAD fails, the folder's listing works. */
    relist("d");
    atomic_store(&rig.hook->fail[HOOK_HEAD], -1);
    assert_int_equal(resolve_code("d/f"), ERR_STORE_AWAY);
    atomic_store(&rig.hook->fail[HOOK_HEAD], 0);
    /* A read without bytes: an error, never zeros and never an absence. */
    char out[8];
    file = open_at("d/f", O_RDONLY);
    atomic_store(&rig.hook->fail[HOOK_GET], -1);
    assert_int_equal(volume_file_read(file, &rig.ctx, out, 5, 0, &rig.err), -1);
    assert_int_equal(rig.err.code, ERR_STORE_AWAY);
    atomic_store(&rig.hook->fail[HOOK_GET], 0);
    clock_sleep_ns(600 * NS_PER_MS);
    assert_int_equal(volume_file_read(file, &rig.ctx, out, 5, 0, &rig.err), 5);
    volume_file_close(file, &rig.ctx);
    assert_true(in_bucket("d/f"));
}

/* B027, B028, B029, B083: whatever ends in a slash is a folder. */
static void
markers_are_folders(void **state)
{
    (void)state;
    put_with("x 8.2.2/", "", (const char *const[]){ "mode", "16832", "mtime", "1500000000", NULL });
    foreign_put("a/b/", "some text");
    foreign_put("a/b/c", "c");
    foreign_put("plain", "p");
    relist("");
    relist("x 8.2.2"); /* a folder's own mode is known once it was looked into */
    assert_int_equal(attr_at("x 8.2.2").kind, INDEX_DIR);
    assert_int_equal(attr_at("x 8.2.2").mode, S_IFDIR | 0700);
    assert_int_equal(attr_at("x 8.2.2").mtime_ns, 1500000000 * NS_PER_S);
    assert_int_equal(attr_at("a/b").kind, INDEX_DIR);
    assert_reads("a/b/c", "c");
    assert_gone("a/b/ ");
    /* Nobody makes a folder of a file or a file of a folder. */
    struct volume_attr attr;
    struct volume_name at = name_at("plain");
    assert_int_equal(volume_mkdir(rig.service, &rig.ctx, &at, 0755, &attr, &rig.err), -1);
    assert_int_equal(rig.err.code, ERR_EXISTS);
}

static void
a_file_and_a_folder_of_one_name_leave_each_other_alone(void **state)
{
    (void)state;
    struct volume_attr attr;
    foreign_put("d", "file");
    put_with("d/", "", (const char *const[]){ "theirs", "kept", NULL });
    foreign_put("d/f", "below");
    relist("");
    attr = attr_at("d");
    struct volume_change change = { .bits = VOLUME_SET_MODE, .mode = 0700 };
    RUN_OK(rig.err, volume_setattr(rig.service, &rig.ctx, attr.node, &change, &attr, &rig.err));
    flush();
    assert_bucket("d/f", "below");
    assert_bucket("d", "file");
    assert_true(in_bucket("d/"));
}

/* Symbolic links, modes and times as s3fs and rclone write them. */
static void
metadata_of_others_is_understood(void **state)
{
    (void)state;
    char target[LIMIT_SYMLINK + 1];
    put_with("s3fs", "x",
             (const char *const[]){ "mode", "33184", "mtime", "1609459200", "uid", "7", "gid", "8",
                                    NULL });
    put_with("s3fs-ns", "x", (const char *const[]){ "mtime", "1609459200.123456789", NULL });
    put_with("octal", "x", (const char *const[]){ "mode", "100600", NULL });
    put_with("octal-dir/", "", (const char *const[]){ "mode", "40750", NULL });
    put_with("link", "some/target", (const char *const[]){ "mode", "41471", NULL });
    put_with("octal-link", "../up", (const char *const[]){ "mode", "120777", NULL });
    put_with("empty-link", "", (const char *const[]){ "mode", "41471", NULL });
    put_with("nonsense", "x",
             (const char *const[]){ "mode", "rwxr-xr-x", "mtime", "yesterday", "uid", "-1", NULL });
    put_with("before", "x", (const char *const[]){ "mtime", "-1.5", NULL });
    foreign_put("bare", "x");
    relist("");
    relist("octal-dir");
    assert_int_equal(attr_at("s3fs").mode, S_IFREG | 0640);
    assert_int_equal(attr_at("s3fs").mtime_ns, 1609459200 * NS_PER_S);
    assert_int_equal(attr_at("s3fs").uid, 7);
    assert_int_equal(attr_at("s3fs").gid, 8);
    assert_int_equal(attr_at("s3fs-ns").mtime_ns, 1609459200 * NS_PER_S + 123456789);
    assert_int_equal(attr_at("octal").mode, S_IFREG | 0600);
    assert_int_equal(attr_at("octal-dir").mode, S_IFDIR | 0750);
    assert_int_equal(attr_at("link").kind, INDEX_SYMLINK);
    RUN_OK(rig.err, volume_readlink(rig.service, &rig.ctx, node_of("link"), target, sizeof(target),
                                    &rig.err));
    assert_string_equal(target, "some/target");
    RUN_OK(rig.err, volume_readlink(rig.service, &rig.ctx, node_of("octal-link"), target,
                                    sizeof(target), &rig.err));
    assert_string_equal(target, "../up");
    assert_int_equal(attr_at("empty-link").kind, INDEX_FILE);
    assert_int_equal(attr_at("nonsense").mode, S_IFREG | 0644);
    assert_int_equal(attr_at("before").mtime_ns, -1500000000);
    assert_int_equal(attr_at("bare").mode, S_IFREG | 0644);
    /* B111: reading changes no time. */
    assert_reads("s3fs", "x");
    assert_int_equal(attr_at("s3fs").mtime_ns, 1609459200 * NS_PER_S);
}

/* B111: neither does listing, of a folder either; what comes later is a change of it. */
static void
a_first_listing_changes_no_time(void **state)
{
    (void)state;
    put_with("d/", "", (const char *const[]){ "mtime", "1609459200", NULL });
    foreign_put("d/f", "x");
    foreign_put("d/sub/f", "x");
    relist("d");
    assert_int_equal(attr_at("d/f").kind, INDEX_FILE);
    assert_int_equal(attr_at("d").mtime_ns, 1609459200 * NS_PER_S);
    foreign_put("d/later", "x");
    relist("d");
    assert_int_equal(attr_at("d/later").kind, INDEX_FILE);
    assert_true(attr_at("d").mtime_ns > 1609459200 * NS_PER_S);
}

static void
a_huge_object_that_says_it_is_a_link_is_a_file(void **state)
{
    (void)state;
    size_t size = LIMIT_SYMLINK + 10;
    char *text = malloc(size + 1);
    assert_non_null(text);
    memset(text, 'x', size);
    text[size] = '\0';
    put_with("big", text, (const char *const[]){ "mode", "41471", NULL });
    free(text);
    assert_int_equal(attr_at("big").kind, INDEX_FILE);
    assert_int_equal(attr_at("big").size, size);
}

/* Ours, as others read them. */
static void
our_metadata_is_theirs(void **state)
{
    (void)state;
    struct volume_attr attr;
    struct store_object object;
    struct volume_name at = name_at("link");
    RUN_OK(rig.err, volume_symlink(rig.service, &rig.ctx, &at, "to/here", &attr, &rig.err));
    save("f", "x");
    struct volume_change change = { .bits = VOLUME_SET_MODE | VOLUME_SET_MTIME | VOLUME_SET_UID,
                                    .mode = 0755,
                                    .mtime_ns = 1234567890 * NS_PER_S + 5,
                                    .uid = 42 };
    RUN_OK(rig.err, volume_setattr(rig.service, &rig.ctx, node_of("f"), &change, &attr, &rig.err));
    flush();
    assert_bucket("link", "to/here");
    store_object_init(&object);
    RUN_OK(rig.err, store_head(rig.mem, "v/link", 0, &object, &rig.err));
    assert_string_equal(meta_get(&object.meta, "mode"), "41471");
    store_object_release(&object);
    store_object_init(&object);
    RUN_OK(rig.err, store_head(rig.mem, "v/f", 0, &object, &rig.err));
    assert_string_equal(meta_get(&object.meta, "mode"), "33261");
    assert_string_equal(meta_get(&object.meta, "mtime"), "1234567890.000000005");
    assert_string_equal(meta_get(&object.meta, "uid"), "42");
    store_object_release(&object);
}

/* S40, B031, B032, B063, B064: names that cannot be, on either side. */
static void
names_that_are_too_long_are_refused_before_any_upload(void **state)
{
    (void)state;
    char name[LIMIT_NAME + 2];
    char path[LIMIT_KEY + 1] = "";
    struct volume_attr attr;
    struct volume_file *file;
    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    int puts = atomic_load(&rig.hook->count[HOOK_PUT]);
    struct volume_name at = { rig.root, name, LIMIT_NAME + 1 };
    assert_int_equal(volume_file_create(
                         rig.service, &rig.ctx,
                         &(struct volume_new){ .at = at, .mode = 0644, .flags = O_CREAT | O_RDWR },
                         &attr, &file, &rig.err),
                     -1);
    assert_int_equal(rig.err.code, ERR_NAME_TOO_LONG);
    at.len = LIMIT_NAME;
    hold(HOOK_PUT);
    for (int depth = 0; depth < 3; depth++) {
        RUN_OK(rig.err, volume_mkdir(rig.service, &rig.ctx, &at, 0755, &attr, &rig.err));
        at.parent = attr.node;
    }
    /* v/ and three folders are 770 bytes: a file of 254 has its key, one of 255 and a folder of 254 do not. */
    at.len = 255;
    assert_int_equal(volume_file_create(
                         rig.service, &rig.ctx,
                         &(struct volume_new){ .at = at, .mode = 0644, .flags = O_CREAT | O_RDWR },
                         &attr, &file, &rig.err),
                     -1);
    assert_int_equal(rig.err.code, ERR_NAME_TOO_LONG);
    at.len = 254;
    assert_int_equal(volume_mkdir(rig.service, &rig.ctx, &at, 0755, &attr, &rig.err), -1);
    assert_int_equal(rig.err.code, ERR_NAME_TOO_LONG);
    RUN_OK(rig.err, volume_file_create(
                        rig.service, &rig.ctx,
                        &(struct volume_new){ .at = at, .mode = 0644, .flags = O_CREAT | O_RDWR },
                        &attr, &file, &rig.err));
    volume_file_close(file, &rig.ctx);
    /* Nor does a move make one. */
    struct volume_name from = at, to = { at.parent, name, 255 };
    assert_int_equal(volume_rename(rig.service, &rig.ctx, &from, &to, 0, &rig.err), -1);
    assert_int_equal(rig.err.code, ERR_NAME_TOO_LONG);
    (void)path;
    release(HOOK_PUT);
    flush();
    assert_true(atomic_load(&rig.hook->count[HOOK_PUT]) > puts);
}

struct names {
    char list[512];
};

static int
add_name(void *arg, const struct volume_entry *entry, struct err *err)
{
    struct names *names = arg;
    size_t have = strlen(names->list);
    (void)err;
    (void)snprintf(names->list + have, sizeof(names->list) - have, "%.*s,", (int)entry->name_len,
                   entry->name);
    return 0;
}

/* S40 */
static void
keys_that_cannot_be_names_do_no_harm(void **state)
{
    (void)state;
    struct names names = { "" };
    char longer[300];
    memset(longer, 'k', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    static const char *const keys[] = { "a//b", "/x",  "p/./b", "p/../b", "..",
                                        ".",    "a#1", "a%20b", "a+b c",  "a\xc3\xa4" };
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        /* mem: takes what S3 takes */
        struct store_put_result res;
        struct err err = ERR_INIT;
        char key[64];
        (void)snprintf(key, sizeof(key), "v/%s", keys[i]);
        if (store_put_small(rig.mem, key, "x", 1, (struct store_cond){ .kind = STORE_COND_NONE },
                            &res, &err) != 0)
            print_message("the store refuses '%s': %s\n", key, err.msg);
    }
    foreign_put(longer, "x");
    relist("");
    relist("a");
    relist("p");
    RUN_OK(rig.err, volume_list(rig.service, &rig.ctx,
                                &(struct volume_page){ .dir = rig.root, .after = 0, .limit = 100 },
                                add_name, &names, &rig.err));
    assert_null(strstr(names.list, "kkkk"));
    assert_non_null(strstr(names.list, "a#1,"));
    assert_non_null(strstr(names.list, "a%20b,"));
    assert_non_null(strstr(names.list, "a+b c,"));
    assert_non_null(strstr(names.list, "a\xc3\xa4,"));
    assert_null(strstr(names.list, "..,"));
    assert_reads("a#1", "x");
    flush();
}

static int64_t race_node;
static void
remove_the_listed(enum hook_op op, const char *key)
{
    (void)key;
    if (op != HOOK_LIST || race_node == 0)
        return;
    race_node = 0;
    atomic_store(&rig.hook->after, NULL);
    unlink_at("f");
    flush();
}

/* RULE_LISTING: the listing began before the file was removed here. */
static void
a_listing_from_before_brings_nothing_back(void **state)
{
    (void)state;
    save("f", "bytes");
    flush();
    race_node = node_of("f");
    atomic_store(&rig.hook->after, remove_the_listed);
    relist("");
    assert_false(in_bucket("f"));
    assert_gone("f");
}

static void
write_the_looked_at(enum hook_op op, const char *key)
{
    if (op != HOOK_HEAD || race_node == 0 || strcmp(key, "v/f") != 0)
        return;
    race_node = 0;
    atomic_store(&rig.hook->after, NULL);
    struct volume_file *file = open_at("f", O_RDWR);
    write_at(file, "NEW", 0);
    close_file(file);
    flush();
}

static void
a_look_from_before_takes_nothing_away(void **state)
{
    (void)state;
    save("f", "old");
    flush();
    foreign_put("f", "odd");
    foreign_put("f", "old");
    race_node = node_of("f");
    atomic_store(&rig.hook->after, write_the_looked_at);
    RUN_OK(rig.err, bucket_observe_key(rig.service, rig.volume, "v/f", &rig.err));
    assert_int_equal(race_node, 0);
    assert_reads("f", "NEW");
    assert_int_equal(conflicts(NULL), 0);
    flush();
    assert_bucket("f", "NEW");
}

#define ONE(test) cmocka_unit_test_setup_teardown(test, rig_setup, rig_teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        ONE(a_replaced_object_of_the_same_size_is_read_anew),
        ONE(what_others_deleted_goes),
        ONE(a_store_that_cannot_be_asked_is_not_an_absence),
        ONE(markers_are_folders),
        ONE(a_file_and_a_folder_of_one_name_leave_each_other_alone),
        ONE(metadata_of_others_is_understood),
        ONE(a_first_listing_changes_no_time),
        ONE(a_huge_object_that_says_it_is_a_link_is_a_file),
        ONE(our_metadata_is_theirs),
        ONE(names_that_are_too_long_are_refused_before_any_upload),
        ONE(keys_that_cannot_be_names_do_no_harm),
        ONE(a_listing_from_before_brings_nothing_back),
        ONE(a_look_from_before_takes_nothing_away),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
