/* Names, numbers and texts of `.holdfast/`. What is expected is docs/interface.md section 5; lines are read back by jansson. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "mount/ino.h"
#include "mount/virtual.h"

#define RUN_OK(err, call)                         \
    do {                                          \
        if ((call) != 0)                          \
            fail_msg("%s: %s", #call, (err).msg); \
    } while (0)

static struct buf text;

static int
setup(void **state)
{
    (void)state;
    buf_init(&text, 1u << 20);
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    buf_release(&text);
    return 0;
}

/* One line, and a document. */
static json_t *
read_line(void)
{
    struct err err = ERR_INIT;
    assert_true(text.len > 1);
    assert_ptr_equal(memchr(text.data, '\n', text.len), text.data + text.len - 1);
    json_t *line = json_parse(text.data, text.len, &err);
    if (!line)
        fail_msg("%s: %s", text.data, err.msg);
    return line;
}

static const char *
word(const json_t *line, const char *name)
{
    const char *value = json_string_value(json_object_get(line, name));
    return value ? value : "";
}

static void
test_numbers(void **state)
{
    (void)state;
    uint64_t id = virtual_id("01KB8Q4Z017M3XW9D2TR5VNC6H");
    assert_true(id != 0 && id < 1ull << 48);
    assert_true(id != virtual_id("01KB8Q4Z017M3XW9D2TR5VNC6J"));
    for (int kind = VIRTUAL_ROOT; kind <= VIRTUAL_OLD; kind++) {
        struct virtual_place place = { .kind = (enum virtual_kind)kind, .id = id };
        uint64_t ino = virtual_ino(&place);
        struct virtual_place back = virtual_place(ino);
        assert_true(virtual_is(ino));
        assert_int_equal(back.kind, kind);
        assert_true(back.id == id);
        /* The number of a node stays a node's, and ours is not moved by the root's change of places. */
        assert_true(ino_of_node((int64_t)ino, 7) == ino);
        assert_true(ino_to_node(ino, 7) == (int64_t)ino);
    }
    assert_false(virtual_is(1));
    assert_false(virtual_is(INT64_MAX >> 1));
    assert_int_equal(virtual_place((1ull << 62) + 200).kind, VIRTUAL_NONE);
    assert_int_equal(virtual_place(5).kind, VIRTUAL_NONE);
}

static void
test_names(void **state)
{
    (void)state;
    enum virtual_kind kind;
    unsigned count = 0;
    for (const char *name; (name = virtual_entry(VIRTUAL_ROOT, count, &kind)) != NULL; count++)
        assert_int_equal(virtual_child(VIRTUAL_ROOT, name), kind);
    assert_int_equal(count, 9);
    assert_int_equal(virtual_child(VIRTUAL_ROOT, "mine"), VIRTUAL_NONE);
    assert_int_equal(virtual_child(VIRTUAL_CONFLICT_ID, "mine"), VIRTUAL_MINE);
    assert_int_equal(virtual_child(VIRTUAL_CONFLICT, "README"), VIRTUAL_NONE);
    assert_int_equal(virtual_child(VIRTUAL_STATUS, "README"), VIRTUAL_NONE);
    assert_null(virtual_entry(VIRTUAL_EVENTS, 0, &kind));
    assert_true(virtual_is_dir(VIRTUAL_CONFLICT) && !virtual_is_dir(VIRTUAL_MINE));
}

/* Who sees a folder sees nothing of its neighbours. */
static void
test_below(void **state)
{
    (void)state;
    assert_string_equal(virtual_below("", "a/b"), "a/b");
    assert_string_equal(virtual_below("a", "a/b"), "b");
    assert_string_equal(virtual_below("a/b", "a/b/c/d"), "c/d");
    assert_null(virtual_below("a", "a"));
    assert_null(virtual_below("a", "ab/c"));
    assert_null(virtual_below("a/b", "a/c"));
}

static void
test_status(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct virtual_status status = { .volume = "v",
                                     .folder = "a \"b\"\n\xff",
                                     .run = "r1",
                                     .read_only = true,
                                     .store_ok = true,
                                     .lease_end_ns = 1800 * NS_PER_S,
                                     .now_ns = 1000 * NS_PER_S,
                                     .unsynced_files = 3,
                                     .history_ns = 30ll * 86400 * NS_PER_S };
    RUN_OK(err, virtual_status(&status, &text, &err));
    scope_json *line = read_line();
    assert_string_equal(word(line, "volume"), "v");
    assert_string_equal(word(line, "run"), "r1");
    assert_true(json_is_true(json_object_get(line, "read_only")));
    assert_int_equal(json_integer_value(json_object_get(line, "history_days")), 30);
    json_t *lease = json_object_get(line, "lease");
    assert_string_equal(word(lease, "until"), "1970-01-01T00:30:00Z");
    assert_int_equal(json_integer_value(json_object_get(lease, "left_s")), 800);
    assert_string_equal(word(json_object_get(line, "store"), "state"), "ok");
    assert_int_equal(json_array_size(json_object_get(line, "messages")), 0);
}

static void
test_trouble_has_a_message(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct virtual_status status = { .volume = "v",
                                     .folder = "",
                                     .run = "",
                                     .store_since_ns = NS_PER_S,
                                     .conflicts = 2,
                                     .disk_low = true,
                                     .quota = 10,
                                     .bytes = 10,
                                     .now_ns = NS_PER_S };
    RUN_OK(err, virtual_status(&status, &text, &err));
    scope_json *line = read_line();
    assert_string_equal(word(json_object_get(line, "store"), "state"), "away");
    assert_true(json_is_null(json_object_get(line, "lease")));
    assert_int_equal(json_array_size(json_object_get(line, "messages")), 4);
}

/* Each of these bytes in a name, and a line stays a line. */
static void
test_hostile_names(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    for (unsigned byte = 1; byte < 256; byte++) {
        char path[] = { 'a', (char)(unsigned char)byte, 'b', '\0' };
        struct volume_unsynced row = { .what = "upload", .tries = byte % 2 };
        buf_clear(&text);
        RUN_OK(err, virtual_unsynced(&row, path, &text, &err));
        scope_json *line = read_line();
        assert_string_equal(word(line, "state"), byte % 2 ? "retrying" : "staged");
        if (byte < 128)
            assert_string_equal(word(line, "path"), path);
        else
            assert_true(json_object_get(line, "path") == NULL && word(line, "path_b64")[0] != '\0');
    }
}

static void
test_conflict(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    static struct index_conflict row = { .id = "01KB8Q4Z017M3XW9D2TR5VNC6H",
                                         .reason = "deleted",
                                         .mine_version = "m",
                                         .theirs_etag = "t" };
    RUN_OK(err, virtual_conflict(&row, "f", &text, &err));
    scope_json *line = read_line();
    assert_string_equal(word(line, "why"), "deleted_meanwhile");
    assert_string_equal(word(line, "dir"), ".holdfast/conflict/01KB8Q4Z017M3XW9D2TR5VNC6H");
    assert_string_equal(word(line, "mine"), "m");
    assert_string_equal(word(line, "theirs"), "t");
}

static void
test_event(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    static struct event_item item = { .seq = 12, .kind = VOLUME_EVENT_REMOVED };
    RUN_OK(err, virtual_event(&item, "d/f", &text, &err));
    scope_json *line = read_line();
    assert_string_equal(word(line, "type"), "change");
    assert_string_equal(word(line, "op"), "remove");
    assert_string_equal(word(line, "path"), "d/f");
    buf_clear(&text);
    item.kind = VOLUME_EVENT_STORE;
    RUN_OK(err, virtual_event(&item, "", &text, &err));
    scope_json *store = read_line();
    assert_string_equal(word(store, "type"), "store");
    assert_null(json_object_get(store, "path"));
    buf_clear(&text);
    RUN_OK(err, virtual_event_gap(7, 3, &text, &err));
    scope_json *gap = read_line();
    assert_int_equal(json_integer_value(json_object_get(gap, "first_seq")), 7);
    assert_int_equal(json_integer_value(json_object_get(gap, "lost")), 3);
}

static void
test_flush(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct virtual_flushed flushed = { .synced = true };
    RUN_OK(err, virtual_flush(&flushed, &text, &err));
    scope_json *line = read_line();
    assert_true(json_is_true(json_object_get(line, "synced")));
    assert_null(json_object_get(line, "next"));
    buf_clear(&text);
    flushed = (struct virtual_flushed){ .pending = 4 };
    RUN_OK(err, virtual_flush(&flushed, &text, &err));
    scope_json *not_yet = read_line();
    assert_true(json_is_false(json_object_get(not_yet, "synced")));
    assert_true(word(not_yet, "next")[0] != '\0');
}

/* All that the help names is there. */
static void
test_readme(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    enum virtual_kind kind;
    RUN_OK(err, virtual_readme("reports", true, &text, &err));
    assert_non_null(strstr(text.data, "\"reports\" (read-only)"));
    for (const char *at = text.data; (at = strstr(at, ".holdfast/")) != NULL;) {
        char name[32] = "";
        at += strlen(".holdfast/");
        (void)snprintf(name, sizeof(name), "%.*s", (int)strspn(at, "abcdefghijklmnopqrstuvwxyz"),
                       at);
        assert_int_not_equal(virtual_child(VIRTUAL_ROOT, name), VIRTUAL_NONE);
    }
    for (unsigned i = 1; virtual_entry(VIRTUAL_ROOT, i, &kind) != NULL; i++)
        assert_non_null(strstr(text.data, virtual_entry(VIRTUAL_ROOT, i, &kind)));
}

int
main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_numbers),
        T(test_names),
        T(test_below),
        T(test_status),
        T(test_trouble_has_a_message),
        T(test_hostile_names),
        T(test_conflict),
        T(test_event),
        T(test_flush),
        T(test_readme),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
