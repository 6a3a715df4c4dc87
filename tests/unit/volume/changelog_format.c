/* Objects of the change log: there and back, and what others may have put in their place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "volume/changelog_format.h"

#define GATEWAY "01ARZ3NDEKTSV4RRFFQ69G5FAV"
#define VERSION "01BX5ZZKBKACTAV9WEVGEMMVRZ"
#define HEAD "{\"format\":1,\"gateway\":\"" GATEWAY "\",\"seq\":7,\"prev\":3}\n"

struct seen {
    struct changelog_line line[8];
    size_t count;
};

static int
see(void *arg, const struct changelog_line *line, struct err *err)
{
    struct seen *seen = arg;
    (void)err;
    assert_true(seen->count < 8);
    seen->line[seen->count++] = *line;
    return 0;
}

static int
read_text(const char *text, size_t len, struct changelog_head *head, struct seen *seen,
          unsigned *odd)
{
    struct err err = ERR_INIT;
    struct changelog_sink sink = { .line = see, .arg = seen };
    memset(seen, 0, sizeof(*seen));
    int rc = changelog_format_read(text, len, head, &sink, &err);
    *odd = sink.odd;
    if (rc != 0)
        assert_int_equal(err.code, ERR_CORRUPT);
    return rc;
}

static void
test_there_and_back(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct changelog_head head = { .gateway = GATEWAY, .seq = 1700000000123, .prev = 5 }, got;
    struct changelog_line put = { .size = 1ull << 40,
                                  .time_ns = 1700000000123 * NS_PER_MS,
                                  .path = "a \"b\"\n/\xc3\xa9",
                                  .etag = "e-1",
                                  .version = VERSION,
                                  .base = GATEWAY,
                                  .actor = "mount",
                                  .run = "r" };
    struct changelog_line gone = { .gone = true, .path = "n\xff\xc3/" };
    struct seen seen;
    unsigned odd;
    scope_buf text;
    buf_init(&text, CHANGELOG_OBJECT_MAX);
    assert_int_equal(changelog_format_head(&head, &text, &err), 0);
    assert_true(text.len <= CHANGELOG_HEAD_MAX);
    assert_int_equal(changelog_format_line(&put, &text, &err), 0);
    assert_int_equal(changelog_format_line(&gone, &text, &err), 0);
    assert_int_equal(read_text(text.data, text.len, &got, &seen, &odd), 0);
    assert_string_equal(got.gateway, GATEWAY);
    assert_true(got.seq == head.seq && got.prev == 5 && !got.ends);
    assert_int_equal(odd, 0);
    assert_int_equal(seen.count, 2);
    assert_string_equal(seen.line[0].path, put.path);
    assert_string_equal(seen.line[0].etag, "e-1");
    assert_string_equal(seen.line[0].version, VERSION);
    assert_string_equal(seen.line[0].base, GATEWAY);
    assert_string_equal(seen.line[0].actor, "mount");
    assert_string_equal(seen.line[0].run, "r");
    assert_true(seen.line[0].size == put.size && seen.line[0].time_ns == put.time_ns);
    assert_true(seen.line[1].gone);
    assert_string_equal(seen.line[1].path, gone.path);
}

/* A line has to be whole or not there at all. */
static void
test_full(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct changelog_line line = { .path = "some/path" };
    scope_buf text;
    buf_init(&text, 100);
    assert_int_equal(changelog_format_line(&line, &text, &err), 0);
    size_t len = text.len;
    assert_int_equal(changelog_format_line(&line, &text, &err), -1);
    assert_int_equal(err.code, ERR_TOO_LARGE);
    assert_int_equal(text.len, len);
}

static void
test_bad_heads(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "\n",
        "x",
        "{}\n",
        "{\"format\":2,\"gateway\":\"" GATEWAY "\",\"seq\":7,\"prev\":3}\n",
        "{\"format\":1,\"gateway\":\"me\",\"seq\":7,\"prev\":3}\n",
        "{\"format\":1,\"gateway\":\"" GATEWAY "\",\"seq\":7,\"prev\":7}\n",
        "{\"format\":1,\"gateway\":\"" GATEWAY "\",\"seq\":-7,\"prev\":-9}\n",
        "{\"format\":1,\"gateway\":\"" GATEWAY "\",\"seq\":\"7\",\"prev\":3}\n",
        "{\"format\":1,\"gateway\":\"" GATEWAY "\",\"seq\":7,\"prev\":3",
        "{\"format\":1,\"seq\":7,\"seq\":8,\"prev\":3}\n",
    };
    struct changelog_head head;
    struct seen seen;
    unsigned odd;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (read_text(bad[i], strlen(bad[i]), &head, &seen, &odd) == 0)
            fail_msg("taken: %s", bad[i]);
}

/* Each is passed over, and counted; the others stand. */
static void
test_bad_lines(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "[]",
        "{\"op\":\"put\"}",
        "{\"op\":\"put\",\"path\":\"\"}",
        "{\"op\":\"put\",\"path\":\"/\"}",
        "{\"op\":\"put\",\"path\":\"/etc\"}",
        "{\"op\":\"put\",\"path\":\"a/../b\"}",
        "{\"op\":\"put\",\"path\":\"a//b\"}",
        "{\"op\":\"put\",\"path\":\"a\\u0000b\"}",
        "{\"op\":\"put\",\"path_b64\":\"YQBi\"}",
        "{\"op\":\"put\",\"path_b64\":\"!\"}",
        "{\"op\":\"chmod\",\"path\":\"a\"}",
        "{\"op\":\"put\",\"path\":\"a\",\"size\":-1}",
        "{\"op\":\"put\",\"path\":\"a\",\"version\":\"1\"}",
        "{\"op\":\"put\",\"path\":\"a\",\"at_ms\":9223372036854775807}",
        "{\"op\":\"put\",\"path\":7}",
        "",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char text[1024];
        struct changelog_head head;
        struct seen seen;
        unsigned odd;
        (void)snprintf(text, sizeof(text),
                       HEAD "%s\n{\"op\":\"delete\",\"path\":\"good\"}\n"
                            "{\"op\":\"delete\",\"path\":\"cut\"}",
                       bad[i]);
        assert_int_equal(read_text(text, strlen(text), &head, &seen, &odd), 0);
        if (odd != 2 || seen.count != 1)
            fail_msg("odd=%u seen=%zu: %s", odd, seen.count, bad[i]);
        assert_string_equal(seen.line[0].path, "good");
    }
}

static void
test_too_long(void **state)
{
    (void)state;
    struct changelog_head head;
    struct seen seen;
    unsigned odd;
    static char text[CHANGELOG_OBJECT_MAX + 64];
    memset(text, ' ', sizeof(text));
    memcpy(text, HEAD, sizeof(HEAD) - 1); /* NOLINT(bugprone-not-null-terminated-result) */
    assert_int_equal(read_text(text, sizeof(text), &head, &seen, &odd), -1);
    /* A line of its own length limit, within an object that fits. */
    text[CHANGELOG_LINE_MAX + 200] = '\n';
    assert_int_equal(read_text(text, CHANGELOG_LINE_MAX + 201, &head, &seen, &odd), 0);
    assert_int_equal(odd, 1);
}

static void
test_numbers(void **state)
{
    (void)state;
    char text[CHANGELOG_SEQ_DIGITS + 1];
    uint64_t seq = 0;
    changelog_format_seq(1700000000123, text);
    assert_string_equal(text, "0001700000000123");
    assert_true(changelog_format_seq_read(text, &seq));
    assert_true(seq == 1700000000123);
    assert_false(changelog_format_seq_read("1700000000123", &seq));
    assert_false(changelog_format_seq_read("000170000000012x", &seq));
    assert_false(changelog_format_seq_read("-001700000000123", &seq));
    assert_false(changelog_format_seq_read("0001700000000123/", &seq));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_there_and_back), cmocka_unit_test(test_full),
        cmocka_unit_test(test_bad_heads),      cmocka_unit_test(test_bad_lines),
        cmocka_unit_test(test_too_long),       cmocka_unit_test(test_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
