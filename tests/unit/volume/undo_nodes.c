#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "volume/history_impl.h"

/* Numbers that lie close, far apart and at the same place of the table; each keeps what was noted for it. */
static void
keeps_each(void **state)
{
    struct undo_nodes nodes = { 0 };
    struct err err = ERR_INIT;
    (void)state;
    assert_int_equal(undo_nodes_get(&nodes, 7)->file, 0);
    for (int64_t i = 1; i <= 3000; i++) {
        struct undo_node *node = undo_nodes_add(&nodes, i * (i % 3 == 0 ? 4096 : 1), &err);
        assert_non_null(node);
        node->file = (size_t)i;
    }
    for (int64_t i = 1; i <= 3000; i++) {
        int64_t id = i * (i % 3 == 0 ? 4096 : 1);
        assert_int_equal(undo_nodes_get(&nodes, id)->node, id);
        assert_int_equal(undo_nodes_get(&nodes, id)->file, i);
        assert_int_equal(undo_nodes_add(&nodes, id, &err)->file, i);
    }
    assert_int_equal(nodes.count, 3000);
    assert_int_equal(undo_nodes_get(&nodes, 3)->node, 0);
    assert_int_equal(undo_nodes_get(&nodes, 3)->gone, 0);
    assert_false(undo_nodes_get(&nodes, 3 * 4096 + 1)->made);
    undo_nodes_release(&nodes);
    assert_int_equal(undo_nodes_get(&nodes, 1)->file, 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(keeps_each) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
