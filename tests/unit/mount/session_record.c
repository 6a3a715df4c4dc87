/* What the mounter gives back of a connection may be of another build, or damaged. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "mount/session_record.h"

static void
test_read(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct session_record record;
    struct session_record seen;
    session_record_begin(&record);
    record.root = 42;
    record.wishes.max_write = 1u << 20;
    record.init_len = 3;
    memcpy(record.init, "abc", 3);
    assert_int_equal(session_record_read(&record, sizeof(record), &seen, &err), 0);
    assert_memory_equal(&record, &seen, sizeof(seen));

    assert_int_equal(session_record_read(&record, sizeof(record) - 1, &seen, &err), -1);
    assert_int_equal(err.code, ERR_NEWER_FORMAT);
    assert_int_equal(session_record_read("", 0, &seen, &err), -1);
    struct session_record other = record;
    other.magic[7]++;
    assert_int_equal(session_record_read(&other, sizeof(other), &seen, &err), -1);
    assert_int_equal(err.code, ERR_NEWER_FORMAT);
    const uint32_t wrong[] = { 0, SESSION_INIT_MAX + 1, UINT32_MAX };
    for (size_t i = 0; i < 3; i++) {
        other = record;
        other.init_len = wrong[i];
        assert_int_equal(session_record_read(&other, sizeof(other), &seen, &err), -1);
        assert_int_equal(err.code, ERR_CORRUPT);
    }
    other = record;
    memset(other.index_uuid, 'x', sizeof(other.index_uuid));
    assert_int_equal(session_record_read(&other, sizeof(other), &seen, &err), -1);
}

int
main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_read) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
