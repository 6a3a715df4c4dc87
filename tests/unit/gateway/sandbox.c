/* What a sandbox may see is decided by the command line of bubblewrap alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/sandbox.h"

#define RUN "01ARZ3NDEKTSV4RRFFQ69G5FAV"

static struct sandbox_args args;
static json_t *held;

static int
build(const char *spec, struct err *err)
{
    const struct sandbox_fds fds = { 10, 11, 12 };
    struct err ignored = ERR_INIT;
    json_decref(held);
    held = json_parse(spec, strlen(spec), &ignored);
    assert_non_null(held);
    return gateway_sandbox_args(held, "/state/mnt", &fds, &args, err);
}

static bool
has(const char *a, const char *b, const char *c)
{
    for (size_t i = 0; i + 2 < args.count; i++) {
        if (strcmp(args.argv[i], a) == 0 && strcmp(args.argv[i + 1], b) == 0 &&
            (!c || strcmp(args.argv[i + 2], c) == 0))
            return true;
    }
    return false;
}

static bool
has_word(const char *word)
{
    for (size_t i = 0; i < args.count && strcmp(args.argv[i], "--") != 0; i++) {
        if (strcmp(args.argv[i], word) == 0)
            return true;
    }
    return false;
}

static void
test_plain(void **state)
{
    struct err err = ERR_INIT;
    (void)state;
    assert_int_equal(build("{\"run\":\"" RUN "\",\"argv\":[\"id\",\"-u\"],\"binds\":["
                           "{\"from\":\"/state/mnt/7\",\"to\":\"/mnt/data/1\",\"read_only\":false},"
                           "{\"from\":\"/state/mnt/8\",\"to\":\"/srv/in\",\"read_only\":true}]}",
                           &err),
                     0);
    assert_true(has_word("--unshare-all"));
    assert_true(has_word("--die-with-parent"));
    assert_true(has_word("--new-session"));
    assert_true(has_word("--clearenv"));
    assert_false(has_word("--share-net"));
    assert_true(has("--bind", "/state/mnt/7", "/mnt/data/1"));
    assert_true(has("--ro-bind", "/state/mnt/8", "/srv/in"));
    assert_true(has("--setenv", "HOLDFAST_RUN", RUN));
    assert_string_equal(args.argv[args.count - 2], "id");
    assert_string_equal(args.argv[args.count - 1], "-u");
    assert_null(args.argv[args.count]);
}

/* Every host path that is bound is one of a short list. */
static void
test_nothing_else_of_the_host(void **state)
{
    struct err err = ERR_INIT;
    (void)state;
    assert_int_equal(build("{\"run\":\"" RUN "\",\"argv\":[\"true\"],\"net\":\"host\"}", &err), 0);
    assert_true(has_word("--share-net"));
    for (size_t i = 0; i + 1 < args.count && strcmp(args.argv[i], "--") != 0; i++) {
        if (strncmp(args.argv[i], "--ro-bind", 9) != 0 ||
            strcmp(args.argv[i], "--ro-bind-data") == 0)
            continue;
        const char *from = args.argv[i + 1];
        assert_true(strcmp(from, "/usr") == 0 || strncmp(from, "/etc/", 5) == 0);
        assert_string_not_equal(from, "/etc/shadow");
        assert_string_not_equal(from, "/etc/passwd");
    }
    assert_false(has_word("--bind"));
}

static void
test_refused(void **state)
{
    static const char *const specs[] = {
        "{\"run\":\"" RUN "\",\"argv\":[]}",
        "{\"run\":\"" RUN "\"}",
        "{\"run\":\"x\",\"argv\":[\"true\"]}",
        "{\"argv\":[\"true\"]}",
        "{\"run\":\"" RUN "\",\"argv\":[1]}",
        "{\"run\":\"" RUN "\",\"argv\":[\"true\"],\"net\":\"all\"}",
        "{\"run\":\"" RUN
        "\",\"argv\":[\"true\"],\"binds\":[{\"from\":\"/etc\",\"to\":\"/mnt/data/1\"}]}",
        "{\"run\":\"" RUN
        "\",\"argv\":[\"true\"],\"binds\":[{\"from\":\"/state/mnt\",\"to\":\"/mnt/data/1\"}]}",
        "{\"run\":\"" RUN
        "\",\"argv\":[\"true\"],\"binds\":[{\"from\":\"/state/mnt/..\",\"to\":\"/mnt/data/1\"}]}",
        "{\"run\":\"" RUN
        "\",\"argv\":[\"true\"],\"binds\":[{\"from\":\"/state/mnt/1/a\",\"to\":\"/mnt/data/1\"}]}",
        "{\"run\":\"" RUN
        "\",\"argv\":[\"true\"],\"binds\":[{\"from\":\"/state/mntx/1\",\"to\":\"/mnt/data/1\"}]}",
        "{\"run\":\"" RUN
        "\",\"argv\":[\"true\"],\"binds\":[{\"from\":\"/state/mnt/1\",\"to\":\"/usr\"}]}",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(specs) / sizeof(specs[0]); i++) {
        struct err err = ERR_INIT;
        print_message("%s\n", specs[i]);
        assert_int_equal(build(specs[i], &err), -1);
    }
}

static void
test_places(void **state)
{
    (void)state;
    assert_true(gateway_sandbox_place_ok("/mnt/data/1"));
    assert_true(gateway_sandbox_place_ok("/workspace/in"));
    assert_true(gateway_sandbox_place_ok("/srv"));
    assert_true(gateway_sandbox_place_ok("/etcetera"));
    assert_false(gateway_sandbox_place_ok("/"));
    assert_false(gateway_sandbox_place_ok("srv"));
    assert_false(gateway_sandbox_place_ok("/usr"));
    assert_false(gateway_sandbox_place_ok("/usr/local/x"));
    assert_false(gateway_sandbox_place_ok("/etc/x"));
    assert_false(gateway_sandbox_place_ok("/proc/1"));
    assert_false(gateway_sandbox_place_ok("/srv/../usr"));
    assert_false(gateway_sandbox_place_ok("/srv//x"));
    assert_false(gateway_sandbox_place_ok("/tmp"));
    assert_false(gateway_sandbox_place_ok("/workspace"));
}

static int
release(void **state)
{
    (void)state;
    json_decref(held);
    held = NULL;
    return 0;
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_nothing_else_of_the_host),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_places),
    };
    return cmocka_run_group_tests(tests, NULL, release);
}
