#include "tests/unit/versioning/index_fixture.h"

struct one {
    int64_t node;
    const char *data;
    size_t len;
    struct buf out;
};

static int
put_one(struct index_tx *tx, void *arg, struct err *err)
{
    struct one *one = arg;
    return index_xattrs_put(tx, one->node, one->data, one->len, err);
}

static int
get_one(struct index_tx *tx, void *arg, struct err *err)
{
    struct one *one = arg;
    buf_clear(&one->out);
    return index_xattrs_get(tx, one->node, &one->out, err);
}

static void
assert_data(int64_t node, const char *data, size_t len)
{
    struct err err = ERR_INIT;
    struct one one = { .node = node };
    buf_init(&one.out, LIMIT_XATTRS);
    RUN_OK(err, index_read(ix, get_one, &one, &err));
    assert_int_equal(one.out.len, len);
    if (len > 0)
        assert_memory_equal(one.out.data, data, len);
    buf_release(&one.out);
}

static int
delete_node(struct index_tx *tx, void *arg, struct err *err)
{
    return index_node_delete(tx, *(int64_t *)arg, err);
}

static void
test_xattrs(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    static struct index_node node;
    static char big[LIMIT_XATTRS + 1];
    fill_node(&node, 1, "file");
    RUN_OK(err, index_write(ix, INDEX_NORMAL, insert_node, &node, &err));
    struct one one = { .node = node.id, .data = "a\0b\0", .len = 4 };
    assert_data(node.id, "", 0);
    RUN_OK(err, index_write(ix, INDEX_NORMAL, put_one, &one, &err));
    assert_data(node.id, "a\0b\0", 4);
    assert_data(node.id + 1, "", 0);
    one.data = big;
    one.len = LIMIT_XATTRS;
    RUN_OK(err, index_write(ix, INDEX_NORMAL, put_one, &one, &err));
    assert_data(node.id, big, LIMIT_XATTRS);
    one.len++;
    assert_int_equal(index_write(ix, INDEX_NORMAL, put_one, &one, &err), -1);
    assert_int_equal(err.code, ERR_NO_SPACE);
    one.len = 0;
    RUN_OK(err, index_write(ix, INDEX_NORMAL, put_one, &one, &err));
    assert_data(node.id, "", 0);
    /* They end with their node. */
    one.len = 3;
    RUN_OK(err, index_write(ix, INDEX_NORMAL, put_one, &one, &err));
    RUN_OK(err, index_write(ix, INDEX_NORMAL, delete_node, &node.id, &err));
    assert_data(node.id, "", 0);
}

int
main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_xattrs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
