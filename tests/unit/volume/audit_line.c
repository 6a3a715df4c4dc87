#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/scope.h"
#include "volume/audit_line.h"

/* The chain of records: what is printed is found right, and every way to change it is found. */

#define SECOND INT64_C(1798761600000000000) /* 2027-01-01T00:00:00Z, by date(1) */

static void
add(struct buf *out, struct audit_link *link, const char *verb, const char *path)
{
    struct err err = ERR_INIT;
    struct audit_record record = { .verb = verb, .path = path, .bytes = -1, .uid = -1 };
    assert_int_equal(audit_line_print(&record, SECOND, link, out, &err), 0);
}

struct seen {
    unsigned lines, faults;
    uint64_t at; /* of the first fault */
    char what[120];
};

static int
note(void *arg, const struct audit_link *link, const char *line, size_t len, const char *fault,
     struct err *err)
{
    struct seen *seen = arg;
    (void)line;
    (void)len;
    (void)err;
    seen->lines++;
    if (fault != NULL && seen->faults++ == 0) {
        seen->at = link->seq;
        (void)snprintf(seen->what, sizeof(seen->what), "%s", fault);
    }
    return 0;
}

static struct seen
look(const char *text, size_t len, bool open)
{
    struct err err = ERR_INIT;
    struct seen seen = { .lines = 0 };
    struct audit_walk walk;
    audit_walk_init(&walk);
    walk.open = open;
    walk.fn = note;
    walk.arg = &seen;
    assert_int_equal(audit_walk_lines(&walk, text, len, &err), 0);
    return seen;
}

static struct buf text;
static char *line[6]; /* where each begins; the last one: the end */

static int
setup(void **state)
{
    struct audit_link link = { .seq = 0 };
    (void)state;
    buf_init(&text, 1u << 20);
    for (unsigned i = 0; i < 5; i++) {
        char path[16];
        (void)snprintf(path, sizeof(path), "file %u", i);
        add(&text, &link, "write", path);
    }
    line[0] = text.data;
    for (unsigned i = 1; i < 6; i++)
        line[i] = strchr(line[i - 1], '\n') + 1;
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    buf_release(&text);
    return 0;
}

/* By sha256sum of the bytes before `,"hash":"`. */
static void
a_line_is_what_the_format_says(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct audit_link link = { .seq = 0 };
    scope_buf out;
    buf_init(&out, 4096);
    struct audit_record record = { .verb = "write",
                                   .face = "mount",
                                   .actor = "mount",
                                   .run = "",
                                   .volume_name = "v",
                                   .path = "a \"b\"\n\\",
                                   .to = "\xff",
                                   .after = "01",
                                   .bytes = 5,
                                   .uid = 0 };
    assert_int_equal(audit_line_print(&record, SECOND, &link, &out, &err), 0);
    assert_non_null(
        strstr(buf_cstr(&out),
               "{\"seq\":1,\"time\":\"2027-01-01T00:00:00Z\",\"verb\":\"write\",\"face\":"
               "\"mount\","
               "\"actor\":\"mount\",\"volume\":\"v\",\"path\":\"a \\u0022b\\u0022\\u000a\\u005c\","
               "\"to_hex\":\"ff\",\"after\":\"01\",\"result\":\"ok\",\"bytes\":5,\"uid\":0,"
               "\"prev\":\"0000"));
    assert_int_equal(link.seq, 1);
    assert_int_equal(look(buf_cstr(&out), out.len, false).faults, 0);
}

static void
a_whole_chain_has_no_fault(void **state)
{
    (void)state;
    struct seen seen = look(text.data, text.len, false);
    assert_int_equal(seen.lines, 5);
    assert_int_equal(seen.faults, 0);
}

static void
each_changed_byte_is_found(void **state)
{
    (void)state;
    for (size_t i = 0; i < text.len; i++) {
        text.data[i] ^= 1;
        assert_true(look(text.data, text.len, false).faults > 0);
        text.data[i] ^= 1;
    }
}

static void
a_removed_record_is_found(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        scope_buf cut;
        struct err err = ERR_INIT;
        buf_init(&cut, 1u << 20);
        assert_int_equal(buf_append(&cut, line[0], (size_t)(line[i] - line[0]), &err), 0);
        assert_int_equal(buf_append(&cut, line[i + 1], (size_t)(line[5] - line[i + 1]), &err), 0);
        struct seen seen = look(cut.data, cut.len, false);
        assert_int_equal(seen.faults, 1);
        assert_int_equal(seen.at, i + 2);
        assert_string_equal(seen.what, "records are missing before this one");
    }
}

static void
another_order_is_found(void **state)
{
    (void)state;
    scope_buf mixed;
    struct err err = ERR_INIT;
    buf_init(&mixed, 1u << 20);
    assert_int_equal(buf_append(&mixed, line[1], (size_t)(line[2] - line[1]), &err), 0);
    assert_int_equal(buf_append(&mixed, line[0], (size_t)(line[1] - line[0]), &err), 0);
    assert_int_equal(buf_append(&mixed, line[2], (size_t)(line[5] - line[2]), &err), 0);
    assert_true(look(mixed.data, mixed.len, false).faults >= 2);
}

/* A record that was made anew, with a right hash, does not fit the one behind it. */
static void
a_forged_record_is_found(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct audit_link link;
    scope_buf forged;
    buf_init(&forged, 1u << 20);
    assert_int_equal(audit_line_check(line[1], (size_t)(line[2] - line[1]) - 1, &link, &err), 0);
    assert_int_equal(buf_append(&forged, line[0], (size_t)(line[2] - line[0]), &err), 0);
    add(&forged, &link, "read", "file 2");
    assert_int_equal(buf_append(&forged, line[3], (size_t)(line[5] - line[3]), &err), 0);
    struct seen seen = look(forged.data, forged.len, false);
    assert_int_equal(seen.faults, 1);
    assert_int_equal(seen.at, 4);
}

/* Only in the segment that is being written, and only without its newline. */
static void
a_line_that_is_not_finished_is_left_out(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    for (size_t len = (size_t)(line[4] - line[0]) + 1; len < text.len; len++) {
        struct audit_walk walk;
        audit_walk_init(&walk);
        walk.open = true;
        assert_int_equal(audit_walk_lines(&walk, text.data, len, &err), 0);
        assert_int_equal(walk.records, 4);
        assert_int_equal(walk.last.seq, 4);
        assert_int_equal(walk.rest, len - (size_t)(line[4] - line[0]));
    }
    /* The newline is all that lacks. */
    assert_int_equal(look(text.data, text.len - 2, false).faults, 1);
}

#define ONE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        ONE(a_line_is_what_the_format_says),
        ONE(a_whole_chain_has_no_fault),
        ONE(each_changed_byte_is_found),
        ONE(a_removed_record_is_found),
        ONE(another_order_is_found),
        ONE(a_forged_record_is_found),
        ONE(a_line_that_is_not_finished_is_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
