#include "tests/unit/volume/volume_fixture.h"

/* Settings of volumes that go with each upload, and stay with the volume. */

static void
set_placement_of(const char *class, const char *encryption)
{
    struct volume_settings settings = { .name = "v",
                                        .storage_class = class,
                                        .encryption = encryption };
    RUN_OK(rig.err, volume_set(rig.service, "v", &settings, &rig.err));
}

static void
assert_placed(const char *path, const char *text, const char *wanted)
{
    save(path, text);
    flush();
    assert_bucket(path, text);
    assert_string_equal(rig.hook->placed, wanted);
}

static void
placement_goes_with_uploads(void **state)
{
    (void)state;
    struct volume_info info;
    assert_placed("a", "plain", "  ");
    set_placement_of("STANDARD_IA", NULL);
    assert_placed("b", "class", "STANDARD_IA  ");
    set_placement_of(NULL, "AES256");
    assert_placed("c", "both", "STANDARD_IA AES256 ");
    set_placement_of(NULL, "aws:kms:arn:aws:kms:eu-west-1:1:key/2");
    assert_placed("d", "key", "STANDARD_IA aws:kms arn:aws:kms:eu-west-1:1:key/2");
    set_placement_of(NULL, "aws:kms:dsse");
    assert_placed("e", "two layers", "STANDARD_IA aws:kms:dsse ");
    RUN_OK(rig.err, volume_find(rig.service, "v", &info, &rig.err));
    assert_string_equal(info.storage_class, "STANDARD_IA");
    assert_string_equal(info.encryption, "aws:kms:dsse");
    set_placement_of("", "");
    assert_placed("f", "plain again", "  ");
}

/* A rebuild finds them in the bucket. */
static void
placement_is_kept(void **state)
{
    (void)state;
    char *text = NULL;
    size_t len = 0;
    struct store_object object;
    struct volume_info info;
    const struct volume_settings settings = { .name = "w",
                                              .storage_class = "GLACIER_IR",
                                              .encryption = "aws:kms" };
    RUN_OK(rig.err, volume_create(rig.service, &settings, &info, &rig.err));
    assert_string_equal(info.storage_class, "GLACIER_IR");
    store_object_init(&object);
    RUN_OK(rig.err, store_get_small(rig.mem, ".holdfast/volumes/w.json", 65536, &text, &len,
                                    &object, &rig.err));
    assert_non_null(strstr(text, "\"storage_class\":\"GLACIER_IR\""));
    assert_non_null(strstr(text, "\"encryption\":\"aws:kms\""));
    store_object_release(&object);
    free(text);
}

static void
bad_placement_is_refused(void **state)
{
    (void)state;
    static const struct volume_settings bad[] = {
        { .name = "v", .storage_class = "A B" },
        { .name = "v", .storage_class = "A\r\nx-amz-acl: public-read" },
        { .name = "v", .encryption = "ROT13" },
        { .name = "v", .encryption = "aws:kms:" },
        { .name = "v", .encryption = "aws:kmsx" },
        { .name = "v", .encryption = "aws:kms:a b" },
    };
    struct volume_info info;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct err err = ERR_INIT;
        assert_int_equal(volume_set(rig.service, "v", &bad[i], &err), -1);
        assert_int_equal(err.code, ERR_INVAL);
        struct volume_settings other = bad[i];
        other.name = "other";
        assert_int_equal(volume_create(rig.service, &other, &info, &err), -1);
        assert_int_equal(err.code, ERR_INVAL);
    }
    RUN_OK(rig.err, volume_find(rig.service, "v", &info, &rig.err));
    assert_string_equal(info.storage_class, "");
    assert_string_equal(info.encryption, "");
}

/* B042: what other tools put there without a mode or an owner can be read by everybody, and folders be entered. */
static void
objects_without_attributes(void **state)
{
    (void)state;
    struct volume_attr attr;
    foreign_put("d/x", "text");
    RUN_OK(rig.err, volume_resolve(rig.service, &rig.ctx, rig.volume, "d", &attr, &rig.err));
    assert_int_equal(attr.mode, S_IFDIR | 0755);
    RUN_OK(rig.err, volume_resolve(rig.service, &rig.ctx, rig.volume, "d/x", &attr, &rig.err));
    RUN_OK(rig.err, volume_getattr(rig.service, &rig.ctx, attr.node, &attr, &rig.err));
    assert_int_equal(attr.mode, S_IFREG | 0644);
    assert_int_equal(attr.uid, getuid());
    assert_int_equal(attr.gid, getgid());
    assert_reads("d/x", "text");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(placement_goes_with_uploads, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(placement_is_kept, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(bad_placement_is_refused, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(objects_without_attributes, rig_setup, rig_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
