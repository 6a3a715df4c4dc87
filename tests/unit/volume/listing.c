#include "tests/unit/volume/volume_fixture.h"

#include "volume/listing_impl.h"

/* Folders of many keys, looked at in a few requests; keys and metadata of every kind that others leave. */

static struct volume_attr
attr_at(const char *path)
{
    struct volume_attr attr;
    RUN_OK(rig.err, volume_resolve(rig.service, &rig.ctx, rig.volume, path, &attr, &rig.err));
    return attr;
}

struct counted {
    unsigned files, dirs, links, untyped;
    int64_t last;
};

static int
count_entry(void *arg, const struct volume_entry *entry, struct err *err)
{
    struct counted *counted = arg;
    (void)err;
    assert_true(entry->cookie > counted->last);
    counted->last = entry->cookie;
    switch (entry->attr.mode & S_IFMT) {
    case S_IFREG:
        counted->files++;
        break;
    case S_IFDIR:
        counted->dirs++;
        break;
    case S_IFLNK:
        counted->links++;
        break;
    default:
        assert_true(entry->name_only); /* no time, size or mode of it may be believed */
        counted->untyped++;
    }
    return 0;
}

/* As readdir does: page by page until nothing comes. */
static struct counted
list_all(int64_t dir, bool names)
{
    struct counted counted = { .last = 0 };
    int64_t before;
    do {
        struct volume_page page = {
            .dir = dir, .after = counted.last, .limit = 100, .partial = true, .names = names
        };
        before = counted.last;
        RUN_OK(rig.err, volume_list(rig.service, &rig.ctx, &page, count_entry, &counted, &rig.err));
    } while (counted.last != before);
    return counted;
}

static void
put_many(const char *form, unsigned count)
{
    char path[64];
    for (unsigned i = 0; i < count; i++) {
        (void)snprintf(path, sizeof(path), "d/%s%05u%s", form, i, i % 5 == 4 ? "/below" : "");
        foreign_put(path, "x");
    }
}

/* B067: more than a page of objects, with sub-folders between. */
static void
every_key_of_a_large_folder_is_shown_once(void **state)
{
    (void)state;
    put_many("n", 2500);
    struct counted counted = list_all(node_of("d"), true);
    assert_int_equal(counted.dirs, 500);
    assert_int_equal(counted.untyped, 2000); /* a listing tells no kind */
    counted = list_all(node_of("d"), false);
    assert_int_equal(counted.files, 2000);
    assert_int_equal(counted.dirs, 500);
}

/* B068, B069: keys around the slash in bytewise order. */
static void
names_around_the_slash_are_all_there(void **state)
{
    static const char *const keys[] = {
        "d/2019/a", "d/2019-0001/a", "d/2019.txt", "d/(x)",    "d/!y",       "d/ z",
        "d/-w",     "d/foo",         "d/foo.js",   "d/foo!/x", "d/\xff\xfe", "d/\xff/\xff\xff"
    };
    (void)state;
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        foreign_put(keys[i], "x");
    struct counted counted = list_all(node_of("d"), false);
    assert_int_equal(counted.files, 8);
    assert_int_equal(counted.dirs, 4);
    relist("d"); /* and they stay, however odd their bytes */
    counted = list_all(node_of("d"), false);
    assert_int_equal(counted.files, 8);
    assert_int_equal(counted.dirs, 4);
    move("d", "e", 0);
    flush();
    counted = list_all(node_of("e"), false);
    assert_int_equal(counted.files, 8);
    assert_int_equal(counted.dirs, 4);
}

/* B056: many of them. */
static void
many_that_went_are_asked_for_together(void **state)
{
    (void)state;
    char path[64];
    for (unsigned i = 0; i < 600; i++) {
        (void)snprintf(path, sizeof(path), "d/%05u", i);
        foreign_put(path, "x");
    }
    assert_int_equal(list_all(node_of("d"), false).files, 600);
    for (unsigned i = 0; i < 600; i += 2) {
        (void)snprintf(path, sizeof(path), "d/%05u", i);
        foreign_delete(path);
    }
    int before = atomic_load(&rig.hook->count[HOOK_HEAD]);
    relist("d");
    assert_int_equal(list_all(node_of("d"), false).files, 300);
    assert_int_equal(atomic_load(&rig.hook->count[HOOK_HEAD]) - before, 300);
}

static void *
stat_all(void *arg)
{
    (void)arg;
    (void)list_all(node_of("d"), false);
    return NULL;
}

/* A HEAD each, but not one after the other; a second look asks nothing. */
static void
metadata_of_many_comes_at_once(void **state)
{
    (void)state;
    pthread_t thread;
    put_many("n", 100);
    RUN_OK(rig.err, bucket_list_dir(rig.service, &rig.ctx, node_of("d"), &rig.err));
    hold(HOOK_HEAD);
    assert_int_equal(pthread_create(&thread, NULL, stat_all, NULL), 0);
    for (int i = 0; i < 1000 && atomic_load(&rig.hook->waiting[HOOK_HEAD]) < 16; i++)
        clock_sleep_ns(10 * NS_PER_MS);
    assert_int_equal(atomic_load(&rig.hook->waiting[HOOK_HEAD]), 16);
    release(HOOK_HEAD);
    pthread_join(thread, NULL);
    int before = atomic_load(&rig.hook->count[HOOK_HEAD]);
    (void)list_all(node_of("d"), false);
    assert_int_equal(atomic_load(&rig.hook->count[HOOK_HEAD]), before);
}

/* One object that cannot be looked at, or all, do not keep a folder from being shown. */
static void
what_cannot_be_looked_at_shows_what_the_listing_told(void **state)
{
    (void)state;
    put_many("n", 40);
    RUN_OK(rig.err, bucket_list_dir(rig.service, &rig.ctx, node_of("d"), &rig.err));
    atomic_store(&rig.hook->fail[HOOK_HEAD], -1);
    struct counted counted = list_all(node_of("d"), false);
    assert_int_equal(counted.files, 32);
    assert_int_equal(counted.dirs, 8);
    /* Known to be away: nothing is asked. */
    int before = atomic_load(&rig.hook->count[HOOK_HEAD]);
    (void)list_all(node_of("d"), false);
    assert_int_equal(atomic_load(&rig.hook->count[HOOK_HEAD]), before);
    atomic_store(&rig.hook->fail[HOOK_HEAD], 0);
}

/* One who asks for one after the other is soon overtaken. */
static void
lookups_in_order_are_foreseen(void **state)
{
    (void)state;
    char path[64];
    struct volume_attr attr;
    for (unsigned i = 0; i < 300; i++) {
        (void)snprintf(path, sizeof(path), "d/%05u", i);
        foreign_put(path, "x");
    }
    int64_t dir = node_of("d");
    RUN_OK(rig.err, bucket_list_dir(rig.service, &rig.ctx, dir, &rig.err));
    for (unsigned i = 0; i < 3; i++) {
        (void)snprintf(path, sizeof(path), "%05u", i);
        RUN_OK(rig.err,
               volume_lookup(rig.service, &rig.ctx,
                             &(struct volume_name){ dir, path, strlen(path) }, &attr, &rig.err));
    }
    for (int i = 0; i < 500 && atomic_load(&rig.hook->count[HOOK_HEAD]) < 34; i++)
        clock_sleep_ns(10 * NS_PER_MS);
    assert_true(atomic_load(&rig.hook->count[HOOK_HEAD]) >= 34);
}

/* B064, B063, B031: nothing is invisible in silence. */
static void
what_cannot_be_shown_is_counted(void **state)
{
    (void)state;
    struct volume_unreachable hidden;
    char longer[300];
    memset(longer, 'k', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    foreign_put("ok", "x");
    foreign_put(longer, "x");
    foreign_put("a//b", "x");
    foreign_put("a/../../../../tmp/evil", "x");
    foreign_put("both", "x");
    foreign_put("both/below", "x");
    (void)list_all(rig.root, false);
    (void)list_all(node_of("a"), false);
    for (int i = 0; i < 2; i++) { /* a second listing counts the same */
        lister_unreachable(rig.service, &hidden);
        assert_int_equal(hidden.count, 4);
        assert_string_not_equal(hidden.key, "");
        relist("");
        relist("a");
    }
    assert_reads("both", "x");
    foreign_delete("both/below");
    foreign_delete("a//b");
    foreign_delete("a/../../../../tmp/evil");
    foreign_delete(longer);
    foreign_put("a/x", "x");
    relist("");
    relist("a");
    lister_unreachable(rig.service, &hidden);
    assert_int_equal(hidden.count, 0);
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

static void
assert_meta(const char *key, const char *name, const char *value)
{
    struct store_object object;
    store_object_init(&object);
    RUN_OK(rig.err, store_head(rig.mem, key, 0, &object, &rig.err));
    const char *seen = meta_get(&object.meta, name);
    if (value == NULL)
        assert_null(seen);
    else
        assert_string_equal(seen == NULL ? "(none)" : seen, value);
    store_object_release(&object);
}

static void
change_mode(const char *path, uint32_t mode)
{
    struct volume_attr attr;
    RUN_OK(rig.err, volume_setattr(rig.service, &rig.ctx, node_of(path),
                                   &(struct volume_change){ .bits = VOLUME_SET_MODE, .mode = mode },
                                   &attr, &rig.err));
}

/* B027, B081, B092: what others wrote with the object is sent again, in whatever case they wrote it. */
static void
metadata_of_others_survives_our_changes(void **state)
{
    (void)state;
    put_with("f.css", "bytes",
             (const char *const[]){ "Colour", "Blue", "mode", "33188", "~cache-control",
                                    "max-age=7", "~content-encoding", "aws-chunked,gzip", NULL });
    foreign_put("d", "a file beside its folder's marker");
    put_with("e/", "", (const char *const[]){ "mode", "16877", "theirs", "kept", NULL });
    relist("");
    relist("e");
    change_mode("f.css", 0600);
    change_mode("e", 0700);
    flush();
    assert_meta("v/f.css", "colour", "Blue");
    assert_meta("v/f.css", "mode", "33152");
    assert_meta("v/f.css", "~cache-control", "max-age=7");
    assert_meta("v/f.css", "~content-encoding",
                ""); /* the bytes are no gzip: nobody shall decode them */
    assert_meta("v/e/", "theirs", "kept");
    assert_meta("v/e/", "mode", "16832");
    save("f.css", "other bytes");
    flush();
    assert_meta("v/f.css", "colour", "Blue");
    /* Replaced by others: theirs counts from then on. */
    put_with("f.css", "new bytes", (const char *const[]){ "other", "1", NULL });
    relist("");
    change_mode("f.css", 0640);
    flush();
    assert_meta("v/f.css", "other", "1");
    assert_meta("v/f.css", "colour", NULL);
}

/* B052: chmod by s3fs leaves the bytes and the ETag, and gives the object another time. */
static void
metadata_that_others_change_is_seen(void **state)
{
    (void)state;
    put_with("f", "bytes", (const char *const[]){ "mode", "33188", "mtime", "1500000000", NULL });
    relist("");
    assert_int_equal(attr_at("f").mode, S_IFREG | 0644);
    relist("");
    int before = atomic_load(&rig.hook->count[HOOK_HEAD]);
    assert_int_equal(attr_at("f").mode, S_IFREG | 0644);
    assert_int_equal(atomic_load(&rig.hook->count[HOOK_HEAD]), before);
    put_with("f", "bytes", (const char *const[]){ "mode", "33152", "mtime", "1600000000", NULL });
    relist("");
    assert_int_equal(attr_at("f").mode, S_IFREG | 0600);
    assert_int_equal(attr_at("f").mtime_ns, 1600000000 * NS_PER_S);
    assert_reads("f", "bytes");
    /* A change of ours that is not sent yet is newer. */
    hold(HOOK_PUT);
    change_mode("f", 0400);
    put_with("f", "bytes", (const char *const[]){ "mode", "33216", NULL });
    relist("");
    assert_int_equal(attr_at("f").mode, S_IFREG | 0400);
    release(HOOK_PUT);
}

/* s3cmd --preserve, as s3cmd 2.3 writes it. */
static void
the_attributes_of_s3cmd_are_understood(void **state)
{
    (void)state;
    put_with("f", "bytes",
             (const char *const[]){ "s3cmd-attrs",
                                    "atime:1795989452/ctime:1795989451/gid:20/gname:dialout/"
                                    "md5:4ac44bfad6a5ad9f5a450d1ea761bad5/"
                                    "mode:33184/mtime:1600000001/uid:1000/uname:me",
                                    NULL });
    put_with("g", "bytes",
             (const char *const[]){ "s3cmd-attrs", "mode:x/mtime:/uid:9999999999999", NULL });
    relist("");
    struct volume_attr attr = attr_at("f");
    assert_int_equal(attr.mode, S_IFREG | 0640);
    assert_int_equal(attr.mtime_ns, 1600000001 * NS_PER_S);
    assert_int_equal(attr.uid, 1000);
    assert_int_equal(attr.gid, 20);
    assert_int_equal(attr_at("g").mode, S_IFREG | 0644);
    change_mode("f", 0600);
    flush();
    assert_meta("v/f", "s3cmd-attrs",
                "gid:20/mode:33152/mtime:1600000001/uid:1000/md5:4b3a6218bb3e3a7303e8a171a60fcf92");
}

/* B121, B028: a folder's marker tells its mode before anybody looks into the folder. */
static void
a_marker_tells_the_mode_of_its_folder(void **state)
{
    (void)state;
    put_with("m/", "", (const char *const[]){ "mode", "16832", "mtime", "1500000000", NULL });
    foreign_put("m/x", "x");
    foreign_put("bare/x", "x");
    RUN_OK(rig.err, bucket_list_dir(rig.service, &rig.ctx, rig.root, &rig.err));
    assert_int_equal(attr_at("m").mode, S_IFDIR | 0700);
    assert_int_equal(attr_at("m").mtime_ns, 1500000000 * NS_PER_S);
    assert_int_equal(attr_at("bare").mode, S_IFDIR | 0755);
    int before = atomic_load(&rig.hook->count[HOOK_HEAD]);
    (void)attr_at("m");
    (void)attr_at("bare");
    assert_int_equal(atomic_load(&rig.hook->count[HOOK_HEAD]), before);
    unlink_at("bare/x");
    struct volume_name at = name_at("bare");
    RUN_OK(rig.err, volume_remove(rig.service, &rig.ctx, &at, true, NULL, &rig.err));
    make_dir("bare");
    flush();
}

/* Of two names that are one key to the store the second is refused before anything is accepted. */
static void
a_store_that_composes_names_takes_one_form(void **state)
{
    (void)state;
    struct volume_attr attr;
    rig.hook->base.caps.folds_names = STORE_YES;
    save("\xc3\xbc", "bytes");
    make_dir("d");
    struct volume_name at = { rig.root, "u\xcc\x88", 3 };
    assert_int_equal(volume_mkdir(rig.service, &rig.ctx, &at, 0755, &attr, &rig.err), -1);
    assert_int_equal(rig.err.code, ERR_EXISTS);
    assert_non_null(strstr(rig.err.msg, "composes"));
    struct volume_name from = { rig.root, "\xc3\xbc", 2 };
    assert_int_equal(volume_rename(rig.service, &rig.ctx, &from, &at, 0, &rig.err), -1);
    assert_int_equal(rig.err.code, ERR_EXISTS);
    at.parent = node_of("d");
    struct volume_file *file = NULL;
    assert_int_equal(volume_file_create(
                         rig.service, &rig.ctx,
                         &(struct volume_new){ .at = at, .mode = 0644, .flags = O_CREAT | O_RDWR },
                         &attr, &file, &rig.err),
                     -1);
    assert_int_equal(rig.err.code, ERR_BAD_NAME);
    rig.hook->base.caps.folds_names = STORE_NO;
    RUN_OK(rig.err, volume_mkdir(rig.service, &rig.ctx, &at, 0755, &attr, &rig.err));
    flush();
}

#define ONE(test) cmocka_unit_test_setup_teardown(test, rig_setup, rig_teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        ONE(every_key_of_a_large_folder_is_shown_once),
        ONE(names_around_the_slash_are_all_there),
        ONE(many_that_went_are_asked_for_together),
        ONE(metadata_of_many_comes_at_once),
        ONE(what_cannot_be_looked_at_shows_what_the_listing_told),
        ONE(lookups_in_order_are_foreseen),
        ONE(what_cannot_be_shown_is_counted),
        ONE(metadata_of_others_survives_our_changes),
        ONE(metadata_that_others_change_is_seen),
        ONE(the_attributes_of_s3cmd_are_understood),
        ONE(a_marker_tells_the_mode_of_its_folder),
        ONE(a_store_that_composes_names_takes_one_form),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
