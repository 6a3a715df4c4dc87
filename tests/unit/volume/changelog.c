/* The change log between gateways: what another one says is looked at, what it says badly harms nothing, and what is missing is found
 * by a sweep; ours is told in batches. The other gateway is this test. Listings are believed for an hour. */
#include "tests/unit/volume/volume_fixture.h"

#include "volume/changelog_format.h"

#define OTHER "01ARZ3NDEKTSV4RRFFQ69G5FAV"

static uint64_t other_seq; /* of its last object */

static void
put_raw(const char *name, const char *text)
{
    char key[LIMIT_KEY + 1];
    struct store_put_result result;
    (void)snprintf(key, sizeof(key), ".holdfast/log/v/%s", name);
    RUN_OK(rig.err,
           store_put_small(rig.mem, key, text, strlen(text),
                           (struct store_cond){ .kind = STORE_COND_NONE }, &result, &rig.err));
}

/* An object of the other gateway, with lines; `lost`: it names another predecessor than its last one. */
static void
tell(const char *lines, bool lost)
{
    char name[128], text[8192];
    uint64_t prev = lost ? 0 : other_seq;
    other_seq += lost ? 2 : 1;
    (void)snprintf(name, sizeof(name), OTHER "/%016llu", (unsigned long long)other_seq);
    (void)snprintf(text, sizeof(text),
                   "{\"format\":1,\"gateway\":\"" OTHER "\",\"seq\":%llu,\"prev\":%llu}\n%s",
                   (unsigned long long)other_seq, (unsigned long long)prev, lines);
    put_raw(name, text);
}

/* Appends the line of what lies there now. */
static void
put_line(const char *path, char *lines, size_t size)
{
    char key[LIMIT_KEY + 8];
    struct store_object object;
    size_t have = strlen(lines);
    (void)snprintf(key, sizeof(key), "v/%s", path);
    store_object_init(&object);
    RUN_OK(rig.err, store_head(rig.mem, key, 0, &object, &rig.err));
    (void)snprintf(lines + have, size - have, "{\"op\":\"put\",\"path\":\"%s\",\"etag\":\"%s\"}\n",
                   path, object.etag);
    store_object_release(&object);
}

static int
setup(void **state)
{
    (void)state;
    rig_open(&(struct rig_options){ .change_log_ns = 20 * NS_PER_MS });
    other_seq = 1000;
    tell("", true);
    return 0;
}

/* ---- our own objects ---- */

struct own {
    unsigned count, lines;
    char text[65536];
};

static int
add_own(void *arg, const struct store_list_entry *entry, struct err *err)
{
    struct own *own = arg;
    scope_free char *data = NULL;
    size_t len, have = strlen(own->text);
    if (strstr(entry->key, OTHER) != NULL || strstr(entry->key, "/odd") != NULL)
        return 0;
    if (store_get_small(rig.mem, entry->key, 65536, &data, &len, NULL, err) != 0)
        return -1;
    own->count++;
    for (size_t i = 0; i < len; i++)
        own->lines += data[i] == '\n';
    (void)snprintf(own->text + have, sizeof(own->text) - have, "%s", data);
    return 0;
}

static void
own_objects(struct own *own)
{
    struct store_list list = { .prefix = ".holdfast/log/", .fn = add_own, .arg = own };
    memset(own, 0, sizeof(*own));
    RUN_OK(rig.err, store_list(rig.mem, &list, &rig.err));
}

/* Until the volume is followed: the gateway has said so. */
static void
wait_followed(void)
{
    static struct own own;
    (void)node_of("");
    assert_gone("nothing-yet");
    for (int i = 0; i < 60000; i++) {
        own_objects(&own);
        if (own.count > 0)
            return;
        clock_sleep_ns(NS_PER_MS);
    }
    fail_msg("the volume is not followed");
}

static bool
comes_true(bool (*is)(const char *path), const char *path)
{
    for (int i = 0; i < 60000; i++) {
        if (is(path))
            return true;
        clock_sleep_ns(NS_PER_MS);
    }
    return false;
}

static bool
is_there(const char *path)
{
    return resolve_code(path) == ERR_CODE_COUNT;
}

static bool
is_not_there(const char *path)
{
    return resolve_code(path) == ERR_NOT_FOUND;
}

static bool
is_longer(const char *path)
{
    struct volume_attr attr;
    struct err err = ERR_INIT;
    return volume_resolve(rig.service, &rig.ctx, rig.volume, path, &attr, &err) == 0 &&
           attr.size == strlen("much longer");
}

static void
what_is_named_is_looked_at(void **state)
{
    (void)state;
    char lines[2048] = "";
    foreign_put("f", "one");
    foreign_put("d/gone", "one");
    assert_true(is_there("f") && is_there("d/gone"));
    assert_gone("new");
    assert_gone("x/y/z");
    wait_followed();
    foreign_put("f", "much longer");
    foreign_put("new", "new");
    foreign_put("x/y/z", "deep");
    foreign_delete("d/gone");
    const char *const put[] = { "f", "new", "x/y/z" };
    (void)snprintf(lines, sizeof(lines), "%s", "{\"op\":\"delete\",\"path\":\"d/gone\"}\n");
    for (size_t i = 0; i < 3; i++)
        put_line(put[i], lines, sizeof(lines));
    tell(lines, false);
    assert_true(comes_true(is_longer, "f"));
    assert_true(comes_true(is_there, "new"));
    assert_true(comes_true(is_there, "x/y/z"));
    assert_true(comes_true(is_not_there, "d/gone"));
    assert_reads("x/y/z", "deep");
}

static void
many_in_one_folder_are_listed(void **state)
{
    (void)state;
    char path[64];
    static char lines[8192];
    lines[0] = '\0';
    foreign_put("d/f", "one");
    assert_true(is_there("d/f"));
    wait_followed();
    for (int i = 0; i < 40; i++) {
        (void)snprintf(path, sizeof(path), "d/n%d", i);
        foreign_put(path, "x");
        put_line(path, lines, sizeof(lines));
    }
    int heads = atomic_load(&rig.hook->count[HOOK_HEAD]);
    tell(lines, false);
    assert_true(comes_true(is_there, "d/n39") && comes_true(is_there, "d/n0"));
    /* Those that were just resolved, and nothing for the others. */
    assert_true(atomic_load(&rig.hook->count[HOOK_HEAD]) - heads < 20);
}

/* An object is missing before this one. */
static void
a_gap_lists_anew(void **state)
{
    (void)state;
    foreign_put("d/f", "one");
    assert_true(is_there("d/f"));
    wait_followed();
    foreign_put("d/f", "much longer");
    foreign_put("d/untold", "x");
    tell("", true);
    assert_true(comes_true(is_longer, "d/f"));
    assert_true(comes_true(is_there, "d/untold"));
}

static void
what_is_no_log_harms_nothing(void **state)
{
    (void)state;
    char line[512] = "", lines[2048];
    foreign_put("f", "one");
    assert_true(is_there("f"));
    /* Nobody's: too far in the future, no number, no gateway, no text; a head of somebody else. */
    put_raw(OTHER "/9999999999999999", "{}");
    put_raw(OTHER "/odd", "x");
    put_raw("odd/0000000000001001", "x");
    put_raw(OTHER "/0000000000001500",
            "{\"format\":1,\"gateway\":\"01BX5ZZKBKACTAV9WEVGEMMVRZ\",\"seq\":1500,\"prev\":1}\n");
    wait_followed();
    put_raw(OTHER "/0000000000001501", "\xff\xfe torn");
    foreign_put("f", "much longer");
    foreign_put("g", "x");
    put_line("f", line, sizeof(line));
    (void)snprintf(lines, sizeof(lines), "{\"op\":\"put\",\"path\":\"../../etc/passwd\"}\n%s%s",
                   line,
                   "{\"op\":\"put\",\"path\":\".holdfast/store.json\"}\n"
                   "{\"op\":\"delete\",\"path\":\"never/was\"}\n{\"op\":\"pu");
    other_seq = 2000;
    tell(lines, false);
    assert_true(comes_true(is_longer, "f"));
    assert_true(comes_true(is_there, "g")); /* a line that is not understood: a sweep */
    assert_gone("etc");
    assert_gone(".holdfast");
    assert_gone("never/was");
    assert_reads("f", "much longer");
}

static bool
is_told(const char *path)
{
    static struct own own;
    char wanted[256];
    own_objects(&own);
    (void)snprintf(wanted, sizeof(wanted), "\"path\":\"%s\"", path);
    return strstr(own.text, wanted) != NULL;
}

static void
our_changes_are_told_in_batches(void **state)
{
    (void)state;
    static struct own own;
    char path[64];
    wait_followed();
    save("a", "one");
    flush();
    assert_true(comes_true(is_told, "a"));
    for (int i = 0; i < 100; i++) {
        (void)snprintf(path, sizeof(path), "n%d", i);
        save(path, "x");
    }
    flush();
    unlink_at("a");
    flush();
    assert_true(comes_true(is_told, "n99"));
    for (int i = 0; i < 60000 && (own_objects(&own), strstr(own.text, "\"delete\"") == NULL); i++)
        clock_sleep_ns(NS_PER_MS);
    assert_non_null(strstr(own.text, "{\"op\":\"delete\""));
    assert_true(own.count < 50 && own.lines >= own.count + 102);
}

/* What was written is told at the end too, and that no more comes. */
static void
the_end_is_told(void **state)
{
    (void)state;
    static struct own own;
    wait_followed();
    save("last", "one");
    flush();
    volume_service_close(rig.service, clock_mono_ns() + 20 * NS_PER_S);
    rig.service = NULL;
    rig.hook = NULL; /* went with it */
    own_objects(&own);
    assert_non_null(strstr(own.text, "\"path\":\"last\""));
    assert_non_null(strstr(own.text, "\"ends\":true"));
}

/* Nobody listens: a sign of life, which goes at the end. */
static void
alone_nothing_is_told(void **state)
{
    (void)state;
    static struct own own;
    wait_followed();
    save("a", "one");
    flush();
    own_objects(&own);
    assert_int_equal(own.count, 1);
    assert_int_equal(own.lines, 1);
    volume_service_close(rig.service, clock_mono_ns() + 20 * NS_PER_S);
    rig.service = NULL;
    rig.hook = NULL; /* went with it */
    own_objects(&own);
    assert_int_equal(own.count, 0);
}

static int
setup_alone(void **state)
{
    (void)state;
    rig_open(&(struct rig_options){ .change_log_ns = 20 * NS_PER_MS });
    return 0;
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_named_is_looked_at, setup, rig_teardown),
        cmocka_unit_test_setup_teardown(many_in_one_folder_are_listed, setup, rig_teardown),
        cmocka_unit_test_setup_teardown(a_gap_lists_anew, setup, rig_teardown),
        cmocka_unit_test_setup_teardown(what_is_no_log_harms_nothing, setup, rig_teardown),
        cmocka_unit_test_setup_teardown(our_changes_are_told_in_batches, setup, rig_teardown),
        cmocka_unit_test_setup_teardown(the_end_is_told, setup, rig_teardown),
        cmocka_unit_test_setup_teardown(alone_nothing_is_told, setup_alone, rig_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
