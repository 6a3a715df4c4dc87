#include "base/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct config_def defs[] = {
    { "", "name", NULL, "name", CONFIG_STR, NULL, false, "a key before the first section" },
    { "store", "endpoint", "HFT_ENDPOINT", "endpoint", CONFIG_STR, "http://localhost", false,
      "where" },
    { "store", "secret_key", "HFT_SECRET", NULL, CONFIG_STR, NULL, true, "secret" },
    { "store", "path_style", "HFT_PATH_STYLE", "path-style", CONFIG_BOOL, "yes", false, "style" },
    { "store", "retries", NULL, NULL, CONFIG_UINT, NULL, false, "how often" },
    { "cache", "size", "HFT_SIZE", "cache-size", CONFIG_SIZE, "1.5G", false, "how much" },
    { "cache", "max_age", "HFT_AGE", "max-age", CONFIG_DURATION, "10m", false, "how long" },
    { 0 },
};

/* NULL unsets. */
static void
set_env(const char *name, const char *value)
{
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread runs */
    int rc = value ? setenv(name, value, 1) : unsetenv(name);
    assert_int_equal(rc, 0);
}

static int
setup(void **state)
{
    struct err err = ERR_INIT;
    static const char *const names[] = { "HFT_ENDPOINT", "HFT_SECRET", "HFT_PATH_STYLE", "HFT_SIZE",
                                         "HFT_AGE" };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        set_env(names[i], NULL);
    *state = config_new(defs, &err);
    return *state ? 0 : -1;
}

static int
teardown(void **state)
{
    config_free(*state);
    return 0;
}

static int
load(struct config *config, const char *text, struct err *err)
{
    return config_load_text(config, "test.conf", text, strlen(text), err);
}

static void
test_defaults(void **state)
{
    const struct config *config = *state;
    assert_null(config_str(config, "name"));
    assert_string_equal(config_str(config, "store.endpoint"), "http://localhost");
    assert_null(config_str(config, "store.secret_key"));
    assert_true(config_bool(config, "store.path_style"));
    assert_int_equal(config_uint(config, "store.retries"), 0);
    assert_int_equal(config_uint(config, "cache.size"), 1610612736);
    assert_true(config_duration(config, "cache.max_age") == 600000000000);
    assert_int_equal(config_source(config, "cache.size"), CONFIG_DEFAULT);
}

static void
test_bad_default(void **state)
{
    (void)state;
    static const struct config_def bad[] = {
        { "a", "b", NULL, NULL, CONFIG_UINT, "many", false, "" }, { 0 }
    };
    struct err err = ERR_INIT;
    assert_null(config_new(bad, &err));
    assert_string_equal(err.msg, "a.b: 'many' is not a whole number");
    config_free(NULL);
}

static void
test_file(void **state)
{
    struct config *config = *state;
    struct err err = ERR_INIT;
    assert_int_equal(
        load(config,
             "# comment\n; another\nname = top\n\n[store]\r\nendpoint=http://h:9000/?a=b#c ; d\r\n"
             "  retries =  5  \n\t# indented comment\n[ cache ]\nsize = 64K\nmax_age = 90",
             &err),
        0);
    assert_string_equal(config_str(config, "name"), "top");
    assert_string_equal(config_str(config, "store.endpoint"), "http://h:9000/?a=b#c ; d");
    assert_int_equal(config_uint(config, "store.retries"), 5);
    assert_int_equal(config_uint(config, "cache.size"), 65536);
    assert_true(config_duration(config, "cache.max_age") == 90000000000);
    assert_int_equal(config_source(config, "cache.size"), CONFIG_FILE);
    assert_int_equal(config_source(config, "store.path_style"), CONFIG_DEFAULT);
    assert_int_equal(load(config, "", &err), 0);
    assert_int_equal(load(config, "name = a\nname = b\n", &err), 0);
    assert_string_equal(config_str(config, "name"), "b");
}

static void
test_quotes(void **state)
{
    struct config *config = *state;
    static const char *const pairs[][2] = {
        { "name = \"  spaces  \"  ", "  spaces  " },
        { "name = \"a\\\"b\\\\c\"", "a\"b\\c" },
        { "name = \"\"", "" },
        { "name = \"# no comment\"", "# no comment" },
        { "name =", "" },
        { "name = a\"b", "a\"b" },
        { "name = C:\\x", "C:\\x" },
    };
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        struct err err = ERR_INIT;
        assert_int_equal(load(config, pairs[i][0], &err), 0);
        assert_string_equal(config_str(config, "name"), pairs[i][1]);
    }
}

static void
test_bad_lines(void **state)
{
    static const char *const pairs[][2] = {
        { "name = \"open", "test.conf:1: name: the closing quote is missing" },
        { "\nname = \"a\" b", "test.conf:2: name: text after the closing quote" },
        { "name = \"a\\n\"", "test.conf:1: name: only \\\" and \\\\ are escapes" },
        { "name = \"a\\", "test.conf:1: name: only \\\" and \\\\ are escapes" },
        { "[store", "test.conf:1: ']' is missing" },
        { "[", "test.conf:1: ']' is missing" },
        { "[]", "test.conf:1: unknown section ''" },
        { "\n\njust words", "test.conf:3: 'key = value' is needed" },
        { "[store]\nretries = many", "test.conf:2: store.retries: 'many' is not a whole number" },
        { "[store]\nretries = -1", "test.conf:2: store.retries: '-1' is not a whole number" },
        { "[store]\npath_style = maybe",
          "test.conf:2: store.path_style: 'maybe' is not true or false" },
        { "[cache]\nsize = 12X",
          "test.conf:2: cache.size: '12X' is not a size such as 64M or 1.5G" },
        { "[cache]\nmax_age =",
          "test.conf:2: cache.max_age: '' is not a duration such as 500ms, 30s or 2h" },
    };
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        struct err err = ERR_INIT;
        assert_int_equal(load(*state, pairs[i][0], &err), -1);
        assert_int_equal(err.code, ERR_USAGE);
        assert_string_equal(err.msg, pairs[i][1]);
    }
    struct err err = ERR_INIT;
    assert_int_equal(config_load_text(*state, "test.conf", "name = a\0b", 10, &err), -1);
    assert_int_equal(err.code, ERR_USAGE);
}

static void
test_unknown_names_name_the_nearest(void **state)
{
    static const char *const pairs[][2] = {
        { "[store]\n\nendpont = x",
          "test.conf:3: unknown key 'endpont', did you mean 'endpoint'?" },
        { "[cache]\nmaxage = 1", "test.conf:2: unknown key 'maxage', did you mean 'max_age'?" },
        { "[cache]\nendpoint = x", "test.conf:2: unknown key 'endpoint'" },
        { "nam = x", "test.conf:1: unknown key 'nam', did you mean 'name'?" },
        { "[stor]", "test.conf:1: unknown section 'stor', did you mean 'store'?" },
        { "[quite different]", "test.conf:1: unknown section 'quite different'" },
        { " = x", "test.conf:1: unknown key ''" },
    };
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        struct err err = ERR_INIT;
        assert_int_equal(load(*state, pairs[i][0], &err), -1);
        assert_int_equal(err.code, ERR_USAGE);
        assert_string_equal(err.msg, pairs[i][1]);
    }
    struct err err = ERR_INIT;
    assert_int_equal(config_set_flag(*state, "chache-size", "1", &err), -1);
    assert_int_equal(err.code, ERR_USAGE);
    assert_string_equal(err.msg, "unknown option '--chache-size', did you mean '--cache-size'?");
}

static void
test_precedence(void **state)
{
    struct config *config = *state;
    struct err err = ERR_INIT;
    set_env("HFT_ENDPOINT", "env");
    set_env("HFT_SIZE", "2K");
    set_env("HFT_AGE", ""); /* as if unset */
    assert_int_equal(config_set_flag(config, "endpoint", "argv", &err), 0);
    assert_int_equal(config_load_env(config, &err), 0);
    assert_int_equal(load(config, "[store]\nendpoint=file\n[cache]\nsize=1K\nmax_age=1h\n", &err),
                     0);
    assert_string_equal(config_str(config, "store.endpoint"), "argv");
    assert_int_equal(config_source(config, "store.endpoint"), CONFIG_ARGV);
    assert_int_equal(config_uint(config, "cache.size"), 2048);
    assert_int_equal(config_source(config, "cache.size"), CONFIG_ENV);
    assert_true(config_duration(config, "cache.max_age") == 3600000000000);
    assert_int_equal(config_source(config, "cache.max_age"), CONFIG_FILE);
    assert_int_equal(config_set_flag(config, "cache-size", "3K", &err), 0);
    assert_int_equal(config_uint(config, "cache.size"), 3072);
    /* a value that is overridden is checked all the same */
    assert_int_equal(load(config, "[cache]\nsize=huge\n", &err), -1);
    assert_int_equal(config_uint(config, "cache.size"), 3072);
}

static void
test_environment_and_flags(void **state)
{
    struct config *config = *state;
    struct err err = ERR_INIT;
    set_env("HFT_SIZE", "big");
    assert_int_equal(config_load_env(config, &err), -1);
    assert_int_equal(err.code, ERR_USAGE);
    assert_string_equal(err.msg, "HFT_SIZE: 'big' is not a size such as 64M or 1.5G");
    set_env("HFT_SIZE", NULL);
    assert_int_equal(config_set_flag(config, "path-style", "off", &err), 0);
    assert_false(config_bool(config, "store.path_style"));
    assert_int_equal(config_set_flag(config, "path-style", NULL, &err), 0);
    assert_true(config_bool(config, "store.path_style"));
    assert_int_equal(config_set_flag(config, "endpoint", NULL, &err), -1);
    assert_string_equal(err.msg, "--endpoint needs a value");
    assert_int_equal(config_set_flag(config, "max-age", "soon", &err), -1);
    assert_string_equal(err.msg, "--max-age: 'soon' is not a duration such as 500ms, 30s or 2h");
}

static void
test_load_file(void **state)
{
    struct config *config = *state;
    struct err err = ERR_INIT;
    char path[] = "/tmp/holdfast-config-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "[cache]\nsize = 7K\n", 18), 18);
    assert_int_equal(config_load_file(config, path, &err), 0);
    assert_int_equal(config_uint(config, "cache.size"), 7168);
    assert_int_equal(ftruncate(fd, LIMIT_CONFIG_FILE + 1), 0);
    assert_int_equal(config_load_file(config, path, &err), -1);
    assert_int_equal(err.code, ERR_TOO_LARGE);
    close(fd);
    unlink(path);
    assert_int_equal(config_load_file(config, path, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
}

static void
test_show_hides_secrets(void **state)
{
    struct config *config = *state;
    struct err err = ERR_INIT;
    assert_int_equal(load(config, "name = a\x1b[1m\n[store]\nsecret_key = hunter2\n", &err), 0);
    assert_int_equal(config_set_flag(config, "cache-size", "1K", &err), 0);
    set_env("HFT_PATH_STYLE", "no");
    assert_int_equal(config_load_env(config, &err), 0);
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    assert_non_null(out);
    config_show(config, out);
    assert_int_equal(fclose(out), 0);
    assert_string_equal(text, "name = a\\x1b[1m  # file\n"
                              "store.endpoint = http://localhost  # default\n"
                              "store.secret_key = (set)  # file\n"
                              "store.path_style = no  # environment\n"
                              "store.retries = (unset)  # default\n"
                              "cache.size = 1K  # command line\n"
                              "cache.max_age = 10m  # default\n");
    free(text);
    assert_string_equal(config_str(config, "store.secret_key"), "hunter2");
}

static void
test_nearest_word(void **state)
{
    (void)state;
    static const char *const words[] = { "get", "put", "list", "restore", "versions", NULL };
    assert_string_equal(nearest_word("lst", words), "list");
    assert_string_equal(nearest_word("lits", words), "list");
    assert_string_equal(nearest_word("version", words), "versions");
    assert_string_equal(nearest_word("retsore", words), "restore");
    assert_string_equal(nearest_word("get", words), "get");
    assert_null(nearest_word("delete-all", words));
    assert_null(nearest_word("x", words));
    assert_null(nearest_word("", words));
    assert_null(nearest_word(
        "lllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllll", words));
    static const char *const none[] = { NULL };
    assert_null(nearest_word("get", none));
}

#define test(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        test(test_defaults),     test(test_bad_default),
        test(test_file),         test(test_quotes),
        test(test_bad_lines),    test(test_unknown_names_name_the_nearest),
        test(test_precedence),   test(test_environment_and_flags),
        test(test_load_file),    test(test_show_hides_secrets),
        test(test_nearest_word),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
