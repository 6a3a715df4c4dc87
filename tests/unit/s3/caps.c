#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/limits.h"
#include "s3/store.h"

/* Every capability of a store has words for its absence: what that means, and what to do. */

#define PERFECT                                                                                  \
    {                                                                                            \
        .put_if_absent = STORE_YES, .put_if_match = STORE_YES, .put_atomic = STORE_YES,          \
        .delete_if_match = STORE_YES, .copy_source_if_match = STORE_YES,                         \
        .copy_dest_conditions = STORE_YES, .server_side_copy = STORE_YES,                        \
        .etag_quoted = STORE_YES, .list_consistent = STORE_YES, .presign = STORE_YES,            \
        .folds_names = STORE_NO, .any_bytes = STORE_YES, .long_meta = STORE_YES,                 \
        .multipart = STORE_YES, .complete_if_absent = STORE_YES, .complete_if_match = STORE_YES, \
        .copy_parts = STORE_YES, .delete_many = STORE_YES, .list_uploads = STORE_YES,            \
        .max_put_bytes = LIMIT_PUT_BODY,                                                         \
    }
static const struct store_caps perfect = PERFECT;

/* The number of lines; the text stays in `out`. */
static unsigned
explain(const struct store_caps *caps, struct buf *out)
{
    struct err err = ERR_INIT;
    unsigned lines = 0;
    buf_clear(out);
    assert_int_equal(store_caps_explain(caps, out, &err), 0);
    for (const char *p = buf_cstr(out); *p; p++)
        lines += *p == '\n';
    return lines;
}

static void
nothing_to_say(void **state)
{
    (void)state;
    scope_buf out;
    buf_init(&out, 16384);
    assert_int_equal(explain(&perfect, &out), 0);
}

/* All of the flags lie one after the other, from put_if_absent to list_uploads; how ETags are sent concerns nobody. */
static void
each_has_words(void **state)
{
    (void)state;
    const size_t count =
        (offsetof(struct store_caps, list_uploads) - offsetof(struct store_caps, put_if_absent)) /
            sizeof(enum store_yes_no) +
        1;
    scope_buf out;
    buf_init(&out, 16384);
    assert_int_equal(count, 20);
    for (size_t i = 0; i < count; i++) {
        struct store_caps caps = perfect;
        enum store_yes_no *flag = &caps.put_if_absent + i;
        if (flag == &caps.etag_quoted)
            continue;
        bool bad = flag == &caps.folds_names || flag == &caps.copy_parts_decodes_twice;
        *flag = bad ? STORE_YES : STORE_NO;
        assert_int_equal(explain(&caps, &out), 1);
        /* A sentence with an explanation behind its colon, and no word of the protocol without it. */
        assert_true(out.len > 60);
        assert_non_null(strchr(buf_cstr(&out), ':'));
        *flag = STORE_NOT_PROBED;
        assert_int_equal(explain(&caps, &out), 1);
        assert_non_null(strstr(buf_cstr(&out), "not proven"));
    }
}

static void
one_write_per_second(void **state)
{
    (void)state;
    struct store_caps caps = perfect;
    scope_buf out;
    buf_init(&out, 16384);
    caps.min_write_interval_ns = 1000000000;
    assert_int_equal(explain(&caps, &out), 1);
    assert_non_null(strstr(buf_cstr(&out), "1000 ms"));
}

/* A directory takes files of any size whole: nobody misses parts there. */
static void
no_parts_needed(void **state)
{
    (void)state;
    struct store_caps caps = perfect;
    scope_buf out;
    buf_init(&out, 16384);
    caps.multipart = caps.complete_if_absent = caps.complete_if_match = STORE_NO;
    caps.copy_parts = caps.list_uploads = STORE_NO;
    assert_int_equal(explain(&caps, &out), 5);
    caps.max_put_bytes = LIMIT_FILE_SIZE;
    assert_int_equal(explain(&caps, &out), 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_to_say),
        cmocka_unit_test(each_has_words),
        cmocka_unit_test(one_write_per_second),
        cmocka_unit_test(no_parts_needed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
