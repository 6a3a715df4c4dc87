/* What stands behind numbers of the past: written and read back; names of versions as docs/interface.md section 5 has them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "mount/old.h"

static void
assert_back(const struct old_place *place)
{
    static struct old_place back;
    char name[OLD_NAME_MAX];
    size_t len = old_name(place, name);
    assert_true(len > 0 && len < sizeof(name));
    assert_true(old_parse(name, len, &back));
    assert_int_equal(back.kind, place->kind);
    assert_int_equal(back.at_ns, place->at_ns);
    assert_int_equal(back.node, place->node);
    assert_int_equal(back.size, place->size);
    assert_int_equal(back.made_ns, place->made_ns);
    assert_string_equal(back.text, place->text);
    assert_string_equal(back.copy, place->copy);
    assert_string_equal(back.version, place->version);
    assert_string_equal(back.path, place->path);
    /* A part of it is something else, or nothing. */
    for (size_t cut = 0; cut < len; cut++)
        if (old_parse(name, cut, &back))
            assert_string_not_equal(back.path, place->path[0] ? place->path : "x");
}

static void
test_written_and_read(void **state)
{
    (void)state;
    assert_back(&(struct old_place){
        .kind = OLD_PAST, .at_ns = 1796040826123456789, .text = "2h", .path = "a/b" });
    assert_back(&(struct old_place){
        .kind = OLD_PAST, .at_ns = -1, .text = "2026-11-30T11:22:33.5Z", .path = "\n/%s/\xff" });
    assert_back(&(struct old_place){ .kind = OLD_PATH, .path = "v/c/a" });
    assert_back(&(struct old_place){ .kind = OLD_VERSION,
                                     .copy = "01KB8Q4Z017M3XW9D2TR5VNC6H",
                                     .node = 77,
                                     .size = UINT64_MAX / 2,
                                     .made_ns = 5,
                                     .version = "an/ETag/of \"others\"",
                                     .path = "d/f" });
    assert_back(&(struct old_place){
        .kind = OLD_VERSION, .node = 1, .version = "01KB8Q4Z017M3XW9D2TR5VNC6H", .path = "f" });
}

static void
test_longest(void **state)
{
    static struct old_place place = { .kind = OLD_VERSION };
    (void)state;
    memset(place.version, 'v', sizeof(place.version) - 1);
    memset(place.path, 'p', sizeof(place.path) - 1);
    memset(place.copy, 'C', sizeof(place.copy) - 1);
    place.node = place.made_ns = INT64_MAX;
    place.size = INT64_MAX;
    assert_back(&place);
    memset(place.text, 't', sizeof(place.text) - 1);
    place.kind = OLD_PAST;
    place.at_ns = INT64_MIN;
    char name[OLD_NAME_MAX];
    assert_true(old_name(&place, name) < sizeof(name));
}

static void
test_nothing(void **state)
{
    struct old_place place;
    static const char *const bad[] = { "",       "a", "a1",          "a1/t",         "ax/t/p",
                                       "x1/t/p", "c", "c/1/2/3/9/v", "c/1/2/3/-1/v", "c/1/2" };
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(old_parse(bad[i], strlen(bad[i]), &place));
}

static void
test_names_of_versions(void **state)
{
    char name[OLD_VERSION_NAME];
    static struct volume_version version = { .version = "01KB8Q4Z017M3XW9D2TR5VNC6H",
                                             .made_ns = 1764501753123456789 };
    (void)state;
    old_version_name(&version, name);
    assert_string_equal(name, "2025-11-30T11:22:33.123Z-01KB8Q4Z01");
    /* Of others: its age is not known, its ETag is anything. */
    version.made_ns = 0;
    version.gone_ns = 1764501753000000000;
    memcpy(version.version, "\"../a-b\"", 9);
    old_version_name(&version, name);
    assert_string_equal(name, "2025-11-30T11:22:33.000Z-ab");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_written_and_read),
        cmocka_unit_test(test_longest),
        cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_names_of_versions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
