#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "s3/meta.h"

static void
sets_and_gets(void **state)
{
    struct err err = ERR_INIT;
    struct meta meta;

    (void)state;
    meta_init(&meta);
    assert_int_equal(meta_set(&meta, "mtime", "1700000000.5", &err), 0);
    assert_int_equal(meta_set(&meta, "Mixed-Case", "Grüße  aus", &err), 0);
    assert_string_equal(meta_get(&meta, "mtime"), "1700000000.5");
    assert_string_equal(meta_get(&meta, "MIXED-case"), "Grüße  aus");
    assert_string_equal(meta.entry[1].name, "mixed-case");
    assert_null(meta_get(&meta, "absent"));
    meta_release(&meta);
    assert_int_equal(meta.count, 0);
}

static void
replaces_same_name(void **state)
{
    struct err err = ERR_INIT;
    struct meta meta;

    (void)state;
    meta_init(&meta);
    assert_int_equal(meta_set(&meta, "a", "1", &err), 0);
    assert_int_equal(meta_set(&meta, "b", "2", &err), 0);
    assert_int_equal(meta_set(&meta, "A", "3", &err), 0);
    assert_int_equal(meta.count, 2);
    assert_string_equal(meta_get(&meta, "a"), "3");
    /* A value that lies in the entry which it replaces. */
    assert_int_equal(meta_set(&meta, "a", meta_get(&meta, "a"), &err), 0);
    assert_string_equal(meta_get(&meta, "a"), "3");
    meta_release(&meta);
}

static void
refuses_bad_names_and_values(void **state)
{
    static const char *const names[] = { "", "a b", "a:b", "a\n", "ü", "a/b", "a\"", "(a)", "a," };
    static const char *const values[] = { "a\nb", "a\rb", "\t", "\177", "\001" };
    struct err err = ERR_INIT;
    struct meta meta;

    (void)state;
    meta_init(&meta);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        assert_int_equal(meta_set(&meta, names[i], "x", &err), -1);
        assert_int_equal(err.code, ERR_INVAL);
    }
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        assert_int_equal(meta_set(&meta, "x", values[i], &err), -1);
        assert_int_equal(err.code, ERR_INVAL);
    }
    assert_int_equal(meta.count, 0);
}

static void
refuses_too_many_and_too_large(void **state)
{
    static char large[LIMIT_META_BYTES + 1];
    struct err err = ERR_INIT;
    struct meta meta;
    char name[16];

    (void)state;
    meta_init(&meta);
    for (int i = 0; i < LIMIT_META_ENTRIES; i++) {
        (void)snprintf(name, sizeof(name), "n%d", i);
        assert_int_equal(meta_set(&meta, name, "", &err), 0);
    }
    assert_int_equal(meta_set(&meta, "one-more", "", &err), -1);
    assert_int_equal(err.code, ERR_TOO_LARGE);
    assert_int_equal(meta_set(&meta, "n3", "still possible", &err), 0);
    meta_release(&meta);

    memset(large, 'x', LIMIT_META_BYTES);
    assert_int_equal(meta_set(&meta, "a", large, &err), -1);
    assert_int_equal(err.code, ERR_TOO_LARGE);
    large[LIMIT_META_BYTES - 1] = '\0';
    assert_int_equal(meta_set(&meta, "a", large, &err), 0);
    assert_int_equal(meta_set(&meta, "a", large, &err), 0); /* its own old value does not count */
    assert_int_equal(meta_set(&meta, "b", "", &err), -1);
    assert_int_equal(meta.count, 1);
    meta_release(&meta);
}

static void
copies(void **state)
{
    struct err err = ERR_INIT;
    struct meta from;
    struct meta to;

    (void)state;
    meta_init(&from);
    meta_init(&to);
    assert_int_equal(meta_set(&from, "a", "1", &err), 0);
    assert_int_equal(meta_set(&to, "old", "x", &err), 0);
    assert_int_equal(meta_copy(&to, &from, &err), 0);
    assert_int_equal(meta_copy(&to, &to, &err), 0);
    assert_int_equal(to.count, 1);
    assert_ptr_not_equal(to.entry[0].value, from.entry[0].value);
    meta_release(&from);
    assert_string_equal(meta_get(&to, "a"), "1");
    meta_release(&to);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sets_and_gets),
        cmocka_unit_test(replaces_same_name),
        cmocka_unit_test(refuses_bad_names_and_values),
        cmocka_unit_test(refuses_too_many_and_too_large),
        cmocka_unit_test(copies),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
