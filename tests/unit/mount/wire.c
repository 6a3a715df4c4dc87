#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>
#include <linux/fuse.h>

#include "mount/ino.h"
#include "mount/wire.h"

static void
test_header(void **state)
{
    (void)state;
    struct wire_header out;
    struct fuse_in_header header = { .len = sizeof(header), .opcode = FUSE_MKDIR, .unique = 77 };
    assert_true(wire_header(&header, sizeof(header), &out));
    assert_int_equal(out.unique, 77);
    assert_int_equal(out.opcode, 9); /* FUSE_MKDIR in the protocol */
    assert_false(out.resent);
    assert_false(wire_is_init(&out));
    header.opcode = 26; /* FUSE_INIT */
    assert_true(wire_header(&header, sizeof(header), &out));
    assert_true(wire_is_init(&out));
}

/* INV-13: the number of a request that is sent again is that of the first time. */
static void
test_resent(void **state)
{
    (void)state;
    struct wire_header out;
    struct fuse_in_header header = { .len = sizeof(header), .unique = 1ull << 63 | 12 };
    assert_true(wire_header(&header, sizeof(header), &out));
    assert_true(out.resent);
    assert_int_equal(out.unique, 12);
}

static void
test_broken(void **state)
{
    (void)state;
    struct wire_header out;
    struct fuse_in_header header = { .len = sizeof(header) };
    assert_false(wire_header(&header, sizeof(header) - 1, &out));
    header.len++;
    assert_false(wire_header(&header, sizeof(header), &out));
    assert_false(wire_header(&header, 0, &out));
}

static void
test_inode_numbers(void **state)
{
    (void)state;
    static const int64_t roots[] = { 1, 2, 57, INT64_MAX };
    static const int64_t nodes[] = { 1, 2, 3, 57, 58, INT64_MAX };
    for (size_t r = 0; r < sizeof(roots) / sizeof(roots[0]); r++) {
        assert_int_equal(ino_of_node(roots[r], roots[r]), 1);
        assert_int_equal(ino_to_node(1, roots[r]), roots[r]);
        for (size_t n = 0; n < sizeof(nodes) / sizeof(nodes[0]); n++) {
            uint64_t ino = ino_of_node(nodes[n], roots[r]);
            assert_int_equal(ino_to_node(ino, roots[r]), nodes[n]);
            assert_true((ino == 1) == (nodes[n] == roots[r]));
        }
    }
    assert_int_equal(ino_of_node(1, 57), 57);
    assert_int_equal(ino_of_node(58, 57), 58);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_header),
        cmocka_unit_test(test_resent),
        cmocka_unit_test(test_broken),
        cmocka_unit_test(test_inode_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
