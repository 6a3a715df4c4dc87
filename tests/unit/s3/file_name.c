/* Where keys lie. */
#include "tests/unit/s3/file_fixture.h"

static void
keys_have_their_places(void **state)
{
    static const struct {
        const char *key, *dir, *plain, *odd;
    } rows[] = {
        { "reports/clean.csv", "reports", "clean.csv", ".hf~o~clean.csv" },
        { "a", "", "a", ".hf~o~a" },
        { "a/", "a", "", ".hf~o~" },
        { "a//b", "a/.hf~d~", "b", ".hf~o~b" },
        { "/a", ".hf~d~", "a", ".hf~o~a" },
        { "./../x", ".hf~d~./.hf~d~..", "x", ".hf~o~x" },
        { "..", "", "", ".hf~o~.." },
        { "...", "", "...", ".hf~o~..." },
        { ".hf~tmp/x", ".hf~d~.hf~tmp", "x", ".hf~o~x" },
        { ".hf~o~a", "", "", ".hf~o~.hf~o~a" },
        { ".holdfast/store.json", ".holdfast", "store.json", ".hf~o~store.json" },
    };
    static struct file_path path;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        file_name_of_key(rows[i].key, &path);
        assert_string_equal(path.dir, rows[i].dir);
        assert_string_equal(path.plain, rows[i].plain);
        assert_string_equal(path.odd, rows[i].odd);
    }
}

static void
names_fit_the_file_system(void **state)
{
    static struct file_path path;
    char key[LIMIT_KEY + 1];

    (void)state;
    for (size_t len = 240; len <= LIMIT_KEY; len++) {
        memset(key, 'k', len);
        key[len] = '\0';
        file_name_of_key(key, &path);
        assert_int_equal(path.plain[0] != '\0', len <= LIMIT_NAME);
        for (const char *at = path.odd; *at; at += strspn(at, "/")) {
            size_t part = strcspn(at, "/");
            assert_in_range(part, 1, LIMIT_NAME);
            at += part;
        }
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(keys_have_their_places),
        TEST(names_fit_the_file_system),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
