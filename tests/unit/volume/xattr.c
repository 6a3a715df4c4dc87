/* Extended attributes: as one run of bytes, in an object's metadata, and through the volume. */
#include "tests/unit/volume/volume_fixture.h"

#include <sys/xattr.h>

#include "base/parse.h"
#include "volume/extra_impl.h"
#include "volume/xattr.h"

/* ---- pure ---- */

static int
put(struct buf *set, const char *name, const void *value, size_t len, int flags)
{
    struct err err = ERR_INIT;
    struct xattr_value what = { .data = value, .len = len, .flags = flags };
    return xattr_set(set, name, &what, &err) == 0 ? 0 : (int)err.code;
}

static void
assert_has(const struct buf *set, const char *name, const void *value, size_t len)
{
    struct xattr_entry entry;
    assert_true(xattr_find(set, name, &entry));
    assert_int_equal(entry.len, len);
    if (len > 0)
        assert_memory_equal(entry.value, value, len);
}

static void
test_set(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct xattr_entry entry;
    scope_buf set;
    scope_buf names;
    buf_init(&set, XATTR_SET_MAX);
    buf_init(&names, XATTR_SET_MAX);
    assert_int_equal(put(&set, "user.a", "1", 1, XATTR_REPLACE), ERR_NO_ATTRIBUTE);
    assert_int_equal(put(&set, "user.a", "1", 1, XATTR_CREATE), 0);
    assert_int_equal(put(&set, "user.a", "2", 1, XATTR_CREATE), ERR_EXISTS);
    assert_int_equal(put(&set, "user.b", "\0x\0", 3, 0), 0);
    assert_int_equal(put(&set, "user.empty", "", 0, 0), 0);
    assert_int_equal(put(&set, "user.a", "longer than it was", 18, XATTR_REPLACE), 0);
    assert_has(&set, "user.a", "longer than it was", 18);
    assert_has(&set, "user.b", "\0x\0", 3);
    assert_has(&set, "user.empty", "", 0);
    assert_int_equal(put(&set, "user.b", "abc", 3, 0), 0);
    assert_has(&set, "user.b", "abc", 3);
    assert_false(xattr_find(&set, "user", &entry));
    assert_int_equal(put(&set, "security.capability", "c", 1, 0), 0);
    RUN_OK(err, xattr_names(&set, &names, &err));
    assert_int_equal(names.len, 7 + 11 + 7);
    assert_int_equal(xattr_remove(&set, "user.c", &err), -1);
    assert_int_equal(err.code, ERR_NO_ATTRIBUTE);
    RUN_OK(err, xattr_remove(&set, "user.b", &err));
    RUN_OK(err, xattr_remove(&set, "user.a", &err));
    RUN_OK(err, xattr_remove(&set, "security.capability", &err));
    RUN_OK(err, xattr_remove(&set, "user.empty", &err));
    assert_int_equal(set.len, 0);
}

static void
test_limits(void **state)
{
    (void)state;
    static char big[XATTR_SET_MAX];
    char name[258] = "user.";
    scope_buf set;
    buf_init(&set, XATTR_SET_MAX);
    memset(name + 5, 'n', 250);
    assert_int_equal(put(&set, name, "v", 1, 0), 0);
    name[255] = 'n';
    assert_int_equal(put(&set, name, "v", 1, 0), ERR_RANGE);
    assert_int_equal(put(&set, "", "v", 1, 0), ERR_RANGE);
    buf_clear(&set);
    size_t fits = XATTR_SET_MAX - sizeof("user.a") - 4;
    assert_int_equal(put(&set, "user.a", big, fits + 1, 0), ERR_NO_SPACE);
    assert_int_equal(set.len, 0);
    assert_int_equal(put(&set, "user.a", big, fits, 0), 0);
    assert_int_equal(put(&set, "user.b", "", 0, 0), ERR_NO_SPACE);
    assert_int_equal(put(&set, "user.a", big, fits, 0), 0);
    assert_int_equal(put(&set, "user.a", big, fits - 1, 0), 0);
    assert_int_equal(put(&set, "user.a", big, fits, 0), 0);
    assert_int_equal(set.len, XATTR_SET_MAX);
}

/* What comes from a disk may be damaged: it ends there. */
static void
test_damage(void **state)
{
    (void)state;
    static const char whole[] = "user.a\0\2\0\0\0xyuser.b\0\1\0\0\0z";
    for (size_t len = 0; len < sizeof(whole); len++) {
        struct buf set = { .data = malloc(len + 1), .len = len, .cap = len + 1, .max = len };
        struct xattr_entry entry;
        size_t at = 0, count = 0;
        assert_non_null(set.data);
        memcpy(set.data, whole, len);
        while (xattr_next(&set, &at, &entry))
            count++;
        assert_int_equal(count, len < 13 ? 0 : len < sizeof(whole) - 1 ? 1 : 2);
        free(set.data);
    }
}

static void
there_and_back(const struct buf *set)
{
    struct err err = ERR_INIT;
    struct xattr_meta meta;
    struct xattr_entry entry;
    size_t at = 0, count = 0, again = 0;
    scope_buf back;
    buf_init(&back, XATTR_SET_MAX);
    xattr_meta_init(&meta);
    RUN_OK(err, xattr_encode(set, 2048, 2048, &meta, &err));
    assert_true(meta.s3fs.len + meta.own.len <= 2048);
    for (size_t i = 0; i < meta.s3fs.len; i++)
        assert_true(meta.s3fs.data[i] > ' ' && meta.s3fs.data[i] < 127);
    for (size_t i = 0; i < meta.own.len; i++)
        assert_true(meta.own.data[i] > ' ' && meta.own.data[i] < 127);
    if (meta.s3fs.len > 0)
        RUN_OK(err, xattr_decode_s3fs(meta.s3fs.data, &back, &err));
    if (meta.own.len > 0)
        RUN_OK(err, xattr_decode_own(meta.own.data, &back, &err));
    while (xattr_next(set, &at, &entry))
        count++;
    for (at = 0; xattr_next(&back, &at, &entry); again++)
        assert_has(set, entry.name, entry.value, entry.len);
    assert_int_equal(count, again + meta.left);
    xattr_meta_release(&meta);
}

static void
test_hostile_bytes_go_there_and_back(void **state)
{
    (void)state;
    static const char *const names[] = { "user.plain",       "user.sp ace", "user.quo\"te",
                                         "user.back\\slash", "user.a,b:c",  "user.{}",
                                         "user.\xff\xfe",    "user.\n\r\t", "user.\xc3\xbc",
                                         "user.%41%00",      "user.+&=?" };
    char value[256];
    scope_buf set;
    buf_init(&set, XATTR_SET_MAX);
    for (size_t i = 0; i < sizeof(value); i++)
        value[i] = (char)(unsigned char)i;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        assert_int_equal(put(&set, names[i], value + i, i % 3 == 0 ? 0 : 20 + i, 0), 0);
        there_and_back(&set);
    }
    /* What has no room is left out whole. */
    assert_int_equal(put(&set, "user.large", value, sizeof(value), 0), 0);
    for (int i = 0; i < 8; i++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "user.more%d", i);
        assert_int_equal(put(&set, name, value, sizeof(value), 0), 0);
        there_and_back(&set);
    }
}

/* What s3fs 1.90 wrote for `setfattr -n user.a -v hello; setfattr -n user.bin -v 0x00ff3e3f0a`. */
#define FROM_S3FS "%7B%22user.a%22%3A%22aGVsbG8%3D%22%2C%22user.bin%22%3A%22AP8%2BPwo%3D%22%7D"

static void
test_s3fs_form(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct xattr_meta meta;
    scope_buf set;
    buf_init(&set, XATTR_SET_MAX);
    RUN_OK(err, xattr_decode_s3fs(FROM_S3FS, &set, &err));
    assert_has(&set, "user.a", "hello", 5);
    assert_has(&set, "user.bin", "\0\xff>?\n", 5);
    xattr_meta_init(&meta);
    RUN_OK(err, xattr_encode(&set, 2048, 2048, &meta, &err));
    assert_string_equal(meta.s3fs.data, FROM_S3FS);
    assert_int_equal(meta.own.len, 0);
    xattr_meta_release(&meta);
    static const char *const bad[] = { "",
                                       "%",
                                       "{}x",
                                       "[]",
                                       "%7B%22a%22%3A1%7D",
                                       "{\"\":\"\"}",
                                       "{\"a\":\"!\"}",
                                       "{\"a\":\"aA==\",\"a\":\"aA==\"}" };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(xattr_decode_s3fs(bad[i], &set, &err), -1);
    static const char *const bad_own[] = { "a", "!:", ":aGk=", "AGE=:aGk=", "YQ==:aGk=,b" };
    for (size_t i = 0; i < sizeof(bad_own) / sizeof(bad_own[0]); i++)
        assert_int_equal(xattr_decode_own(bad_own[i], &set, &err), -1);
}

/* ---- through the volume ---- */

static int64_t
node_at(const char *path)
{
    struct volume_attr attr;
    RUN_OK(rig.err, volume_resolve(rig.service, &rig.ctx, rig.volume, path, &attr, &rig.err));
    return attr.node;
}

static int
set_at(const char *path, const char *name, const char *value, int flags)
{
    struct volume_xattr change = {
        .name = name, .value = value, .len = strlen(value), .flags = flags
    };
    struct err err = ERR_INIT;
    int rc = volume_xattr_change(rig.service, &rig.ctx, node_at(path), &change, &err);
    return rc == 0 ? 0 : (int)err.code;
}

static void
assert_attr(const char *path, const char *name, const char *wanted)
{
    struct err err = ERR_INIT;
    scope_buf value;
    buf_init(&value, XATTR_SET_MAX);
    int rc = volume_xattr_get(rig.service, &rig.ctx, node_at(path), name, &value, &err);
    if (wanted == NULL) {
        assert_int_equal(rc, -1);
        assert_int_equal(err.code, ERR_NO_ATTRIBUTE);
        return;
    }
    RUN_OK(err, rc);
    assert_string_equal(buf_cstr(&value), wanted);
}

/* The object's value of a metadata name, "" without. */
static const char *
stored(const char *path, const char *name)
{
    static char out[4096];
    char key[LIMIT_KEY + 1];
    struct store_object object;
    (void)snprintf(key, sizeof(key), "v/%s", path);
    store_object_init(&object);
    RUN_OK(rig.err, store_head(rig.mem, key, clock_mono_ns() + 5 * NS_PER_S, &object, &rig.err));
    const char *value = meta_get(&object.meta, name);
    (void)snprintf(out, sizeof(out), "%s", value == NULL ? "" : value);
    store_object_release(&object);
    return out;
}

static void
they_travel_to_the_bucket(void **state)
{
    (void)state;
    struct volume_attr before, after;
    save("f", "bytes");
    flush();
    RUN_OK(rig.err, volume_getattr(rig.service, &rig.ctx, node_at("f"), &before, &rig.err));
    clock_sleep_ns(2 * NS_PER_MS);
    assert_int_equal(set_at("f", "user.a", "hello", XATTR_CREATE), 0);
    assert_int_equal(set_at("f", "user.a", "hello", XATTR_CREATE), ERR_EXISTS);
    assert_int_equal(set_at("f", "user.\xff", "raw", 0), 0);
    assert_int_equal(set_at("f", "user.holdfast.x", "no", 0), ERR_PERM);
    assert_int_equal(set_at("f", "trusted.x", "no", 0), ERR_UNSUPPORTED);
    RUN_OK(rig.err, volume_getattr(rig.service, &rig.ctx, node_at("f"), &after, &rig.err));
    assert_true(after.ctime_ns > before.ctime_ns);
    assert_true(after.mtime_ns == before.mtime_ns);
    flush();
    assert_string_equal(stored("f", "xattr"), "%7B%22user.a%22%3A%22aGVsbG8%3D%22%7D");
    assert_string_equal(stored("f", "holdfast-xattr"), "dXNlci7/:cmF3");
    assert_reads("f", "bytes");
    struct volume_name from = { rig.root, "f", 1 }, to = { rig.root, "g", 1 };
    RUN_OK(rig.err, volume_rename(rig.service, &rig.ctx, &from, &to, 0, &rig.err));
    assert_attr("g", "user.a", "hello");
    flush();
    assert_string_equal(stored("g", "xattr"), "%7B%22user.a%22%3A%22aGVsbG8%3D%22%7D");
    save("g", "other bytes"); /* O_TRUNC keeps them */
    assert_attr("g", "user.a", "hello");
    struct volume_xattr gone = { .name = "user.a", .remove = true };
    RUN_OK(rig.err, volume_xattr_change(rig.service, &rig.ctx, node_at("g"), &gone, &rig.err));
    assert_attr("g", "user.a", NULL);
    flush();
    assert_string_equal(stored("g", "xattr"), "");
}

/* A large one stays here, and does not keep the others from the bucket. */
static void
what_does_not_fit_stays_here(void **state)
{
    (void)state;
    char large[4001];
    memset(large, 'x', 4000);
    large[4000] = '\0';
    save("f", "bytes");
    assert_int_equal(set_at("f", "user.large", large, 0), 0);
    assert_int_equal(set_at("f", "user.small", "s", 0), 0);
    flush();
    assert_string_equal(stored("f", "xattr"), "%7B%22user.small%22%3A%22cw%3D%3D%22%7D");
    assert_string_equal(stored("f", "holdfast-xattr-left"), "1");
    assert_attr("f", "user.large", large);
}

/* Those of s3fs are read, and what it noted for itself goes out again with ours. */
static void
those_of_others_are_read(void **state)
{
    (void)state;
    struct meta meta;
    meta_init(&meta);
    RUN_OK(rig.err, meta_set(&meta, "xattr",
                             "%7B%22user.a%22%3A%22aGVsbG8%3D%22%2C%22security.x%22%3A%22eA%3D%3D"
                             "%22%7D",
                             &rig.err));
    foreign_put_meta("f", "theirs", &meta);
    meta_release(&meta);
    relist("");
    assert_attr("f", "user.a", "hello");
    assert_int_equal(set_at("f", "user.b", "b", 0), 0);
    flush();
    assert_string_equal(stored("f", "xattr"),
                        "%7B%22user.a%22%3A%22aGVsbG8%3D%22%2C%22security.x%22%3A%22eA%3D%3D%22%2C"
                        "%22user.b%22%3A%22Yg%3D%3D%22%7D");
    /* Another version without any has none. */
    foreign_put("f", "again theirs");
    relist("");
    assert_attr("f", "user.a", NULL);
    /* What nobody can read stays as it is. */
    meta_init(&meta);
    RUN_OK(rig.err, meta_set(&meta, "xattr", "gibberish", &rig.err));
    foreign_put_meta("g", "theirs", &meta);
    meta_release(&meta);
    relist("");
    assert_attr("g", "user.a", NULL);
    struct volume_change change = { .bits = VOLUME_SET_MODE, .mode = 0600 };
    struct volume_attr attr;
    RUN_OK(rig.err, volume_setattr(rig.service, &rig.ctx, node_at("g"), &change, &attr, &rig.err));
    flush();
    assert_string_equal(stored("g", "xattr"), "gibberish");
}

static void
folders_have_them_too(void **state)
{
    (void)state;
    struct volume_attr attr;
    struct volume_name at = { rig.root, "d", 1 };
    RUN_OK(rig.err, volume_mkdir(rig.service, &rig.ctx, &at, 0755, &attr, &rig.err));
    assert_int_equal(set_at("d", "user.a", "hello", 0), 0);
    at = (struct volume_name){ rig.root, "l", 1 };
    RUN_OK(rig.err, volume_symlink(rig.service, &rig.ctx, &at, "d", &attr, &rig.err));
    assert_int_equal(set_at("l", "user.a", "hello", 0), ERR_PERM);
    flush();
    assert_string_equal(stored("d/", "xattr"), "%7B%22user.a%22%3A%22aGVsbG8%3D%22%7D");
}

/* INV-13: a request that came again is answered as the first time. */
static void
a_repeated_request_changes_once(void **state)
{
    (void)state;
    save("f", "bytes");
    rig.ctx.connection = 9;
    rig.ctx.unique = 77;
    assert_int_equal(set_at("f", "user.a", "hello", XATTR_CREATE), 0);
    rig.ctx.resent = true;
    assert_int_equal(set_at("f", "user.a", "hello", XATTR_CREATE), 0);
    rig.ctx.unique = 78;
    assert_int_equal(set_at("f", "user.a", "hello", XATTR_CREATE), ERR_EXISTS);
    rig.ctx.connection = 0;
    rig.ctx.unique = 0;
    rig.ctx.resent = false;
}

static void
ours_are_said(void **state)
{
    (void)state;
    struct volume_attr attr;
    scope_buf names;
    buf_init(&names, XATTR_SET_MAX);
    save("f", "bytes");
    flush();
    RUN_OK(rig.err, volume_getattr(rig.service, &rig.ctx, node_at("f"), &attr, &rig.err));
    assert_attr("f", "user.holdfast.version", attr.version);
    assert_attr("f", "user.holdfast.etag", attr.etag);
    assert_attr("f", "user.holdfast.synced", "yes");
    assert_attr("f", "user.holdfast.key", "v/f");
    assert_attr("f", "user.holdfast.base", NULL);
    assert_attr("f", "user.holdfast.conflict", NULL);
    assert_attr("f", "user.holdfast.other", NULL);
    atomic_store(&rig.hook->hold[HOOK_PUT], 1);
    save("f", "newer bytes");
    assert_attr("f", "user.holdfast.synced", "no");
    assert_attr("f", "user.holdfast.base", attr.version);
    atomic_store(&rig.hook->hold[HOOK_PUT], 0);
    flush();
    RUN_OK(rig.err, volume_xattr_list(rig.service, &rig.ctx, node_at("f"), &names, &rig.err));
    assert_int_equal(names.len, 0);
}

#define ONE(test) cmocka_unit_test_setup_teardown(test, rig_setup, rig_teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_set),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_hostile_bytes_go_there_and_back),
        cmocka_unit_test(test_s3fs_form),
        ONE(they_travel_to_the_bucket),
        ONE(what_does_not_fit_stays_here),
        ONE(those_of_others_are_read),
        ONE(folders_have_them_too),
        ONE(a_repeated_request_changes_once),
        ONE(ours_are_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
