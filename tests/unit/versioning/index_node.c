#include "tests/unit/versioning/index_fixture.h"

static int
get_node(struct index_tx *tx, void *arg, struct err *err)
{
    struct index_node *row = arg;
    int64_t id = row->id;
    memset(row, 0, sizeof(*row));
    return index_node_get(tx, id, row, err);
}

static void
test_node_keeps_every_field(void **state)
{
    (void)state;
    static struct index_node row, out;
    memset(&row, 0, sizeof(row));
    row.volume = INT64_MAX;
    row.parent = 77;
    memset(row.name, 0xff, LIMIT_NAME); /* no UTF-8 */
    row.name[3] = '\n';
    row.name_len = LIMIT_NAME;
    row.kind = INDEX_SYMLINK;
    row.flags = INDEX_NODE_MARKER | INDEX_NODE_NAME_HIDDEN;
    row.mode = UINT32_MAX;
    row.uid = UINT32_MAX - 1;
    row.gid = 3;
    row.mtime_ns = INT64_MIN;
    row.ctime_ns = -1;
    row.size = UINT64_MAX;
    FILL(row.ulid, 'U');
    row.content = 5;
    FILL(row.version, 'V');
    FILL(row.etag, '"');
    FILL(row.key, '\xfe');
    row.listed_ns = 6;
    FILL(row.target, 't');
    write_ok(insert_node, &row);
    assert_true(row.id > 0);
    out.id = row.id;
    read_ok(get_node, &out);
    assert_memory_equal(&row, &out, sizeof(row));
    reopen();
    read_ok(get_node, &out);
    assert_memory_equal(&row, &out, sizeof(row));
}

static void
test_names_are_unique_in_a_folder(void **state)
{
    (void)state;
    struct index_node row, other;
    struct err err = ERR_INIT;
    fill_node(&row, 9, "a");
    write_ok(insert_node, &row);
    fill_node(&other, 9, "a");
    assert_int_equal(index_write(ix, INDEX_NORMAL, insert_node, &other, &err), -1);
    assert_int_equal(err.code, ERR_EXISTS);
    assert_non_null(strstr(err.msg, "'a'"));
    fill_node(&other, 10, "a");
    write_ok(insert_node, &other);
    other.parent = 9; /* a rename onto it */
    assert_int_equal(index_write(ix, INDEX_NORMAL, update_node, &other, &err), -1);
    assert_int_equal(err.code, ERR_EXISTS);
    /* Orphans have no name that could be taken. */
    for (int i = 0; i < 2; i++) {
        fill_node(&row, 0, "a");
        row.flags = INDEX_NODE_ORPHAN;
        write_ok(insert_node, &row);
    }
}

static int
delete_node(struct index_tx *tx, void *arg, struct err *err)
{
    return index_node_delete(tx, ((struct index_node *)arg)->id, err);
}

static void
test_ids_are_never_reused(void **state)
{
    (void)state;
    struct index_node row;
    fill_node(&row, 9, "a");
    write_ok(insert_node, &row);
    int64_t first = row.id;
    write_ok(delete_node, &row);
    reopen();
    fill_node(&row, 9, "a");
    write_ok(insert_node, &row);
    assert_true(row.id > first);
}

static int
note_node(void *arg, const struct index_node *row, struct err *err)
{
    struct tree *tree = arg;
    (void)err;
    tree->ids[tree->count++] = row->id;
    return 0;
}

static int
list_two_pages(struct index_tx *tx, void *arg, struct err *err)
{
    struct tree *tree = arg;
    if (index_node_children(tx, 50, 0, 2, note_node, tree, err) != 0)
        return -1;
    assert_int_equal(tree->count, 2);
    return index_node_children(tx, 50, tree->ids[1], 100, note_node, tree, err);
}

static int
has_children(struct index_tx *tx, void *arg, struct err *err)
{
    bool *out = arg;
    if (index_node_has_children(tx, 50, &out[0], err) != 0)
        return -1;
    return index_node_has_children(tx, 51, &out[1], err);
}

static void
test_children_in_pages(void **state)
{
    (void)state;
    static const char *const names[] = { "z", "b", "a", "y" };
    struct tree tree = { .count = 0 };
    int64_t ids[4];
    bool has[2] = { false, true };
    for (int i = 0; i < 4; i++) {
        struct index_node row;
        fill_node(&row, 50, names[i]);
        write_ok(insert_node, &row);
        ids[i] = row.id;
    }
    read_ok(list_two_pages, &tree);
    assert_int_equal(tree.count, 4);
    assert_memory_equal(tree.ids, ids, sizeof(ids));
    read_ok(has_children, has);
    assert_true(has[0]);
    assert_false(has[1]);
}

static int
list_folders(struct index_tx *tx, void *arg, struct err *err)
{
    struct tree *tree = arg;
    if (index_node_folders(tx, 50, 0, 2, note_node, tree, err) != 0)
        return -1;
    assert_int_equal(tree->count, 2);
    return index_node_folders(tx, 50, tree->ids[1], 100, note_node, tree, err);
}

/* Files between them, what was moved out, and what lies elsewhere are not among them; what became one is. */
static void
test_folders_in_pages(void **state)
{
    (void)state;
    static const char *const names[] = { "z", "file", "a", "b", "link", "gone", "late" };
    struct tree tree = { .count = 0 };
    struct index_node row;
    int64_t ids[7];
    for (int i = 0; i < 7; i++) {
        fill_node(&row, 50, names[i]);
        row.kind = i == 1 || i == 6 ? INDEX_FILE : i == 4 ? INDEX_SYMLINK : INDEX_DIR;
        write_ok(insert_node, &row);
        ids[i] = row.id;
    }
    row.kind = INDEX_DIR;
    write_ok(update_node, &row);
    fill_node(&row, 50, "gone");
    row.kind = INDEX_DIR;
    row.id = ids[5];
    row.parent = 51;
    write_ok(update_node, &row);
    reopen();
    read_ok(list_folders, &tree);
    assert_int_equal(tree.count, 4);
    assert_int_equal(tree.ids[0], ids[0]);
    assert_int_equal(tree.ids[1], ids[2]);
    assert_int_equal(tree.ids[2], ids[3]);
    assert_int_equal(tree.ids[3], ids[6]);
}

struct walk_call {
    struct index_tx *tx;
    unsigned seen;
};

/* A callback may ask the same question again: it gets a statement of its own. */
static int
walk(void *arg, const struct index_node *row, struct err *err)
{
    struct walk_call *call = arg;
    call->seen++;
    return index_node_children(call->tx, row->id, 0, 100, walk, call, err);
}

static int
walk_from(struct index_tx *tx, void *arg, struct err *err)
{
    struct walk_call *call = arg;
    call->tx = tx;
    return index_node_children(tx, 60, 0, 100, walk, call, err);
}

static void
test_walk_within_a_walk(void **state)
{
    (void)state;
    struct walk_call call = { .seen = 0 };
    for (int i = 0; i < 3; i++) {
        char name[16];
        struct index_node row, below;
        (void)snprintf(name, sizeof(name), "d%d", i);
        fill_node(&row, 60, name);
        write_ok(insert_node, &row);
        for (int j = 0; j < 2; j++) {
            (void)snprintf(name, sizeof(name), "f%d", j);
            fill_node(&below, row.id, name);
            write_ok(insert_node, &below);
        }
    }
    read_ok(walk_from, &call);
    assert_int_equal(call.seen, 3 + 6);
}

struct path_call {
    int64_t id;
    char path[LIMIT_PATH + 1];
};

static int
get_path(struct index_tx *tx, void *arg, struct err *err)
{
    struct path_call *call = arg;
    return index_node_path(tx, call->id, call->path, sizeof(call->path), err);
}

static int64_t
add(int64_t parent, const char *name, enum index_kind kind)
{
    struct index_node row;
    fill_node(&row, parent, name);
    row.kind = kind;
    write_ok(insert_node, &row);
    return row.id;
}

static void
test_path(void **state)
{
    (void)state;
    struct path_call call;
    struct err err = ERR_INIT;
    struct index_node loop;
    int64_t root = add(0, "", INDEX_DIR);
    int64_t dir = add(root, "some dir", INDEX_DIR);
    call.id = add(dir, "x", INDEX_FILE);
    read_ok(get_path, &call);
    assert_string_equal(call.path, "some dir/x");
    call.id = root;
    read_ok(get_path, &call);
    assert_string_equal(call.path, "");
    fill_node(&loop, 0, "gone");
    loop.flags = INDEX_NODE_ORPHAN;
    write_ok(insert_node, &loop);
    call.id = loop.id;
    assert_int_equal(index_read(ix, get_path, &call, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    /* A loop that damage might make ends with an error. */
    loop.flags = 0;
    loop.parent = loop.id;
    write_ok(update_node, &loop);
    assert_int_equal(index_read(ix, get_path, &call, &err), -1);
    assert_true(err.code == ERR_CORRUPT || err.code == ERR_NAME_TOO_LONG);
}

static int
list_orphans(struct index_tx *tx, void *arg, struct err *err)
{
    return index_node_orphans(tx, note_node, arg, err);
}

static void
test_usage_and_orphans(void **state)
{
    (void)state;
    struct index_node file, other;
    struct tree tree = { .count = 0 };
    expect_usage(0, 0);
    int64_t root = add(0, "", INDEX_DIR);
    fill_node(&file, root, "f");
    file.size = 1000;
    write_ok(insert_node, &file);
    fill_node(&other, root, "g");
    other.size = 1;
    write_ok(insert_node, &other);
    expect_usage(2, 1001);
    file.size = 500;
    write_ok(update_node, &file);
    expect_usage(2, 501);
    memcpy(file.name, "h", 2); /* renamed: nothing changes */
    write_ok(update_node, &file);
    expect_usage(2, 501);
    file.parent = 0;
    file.flags |= INDEX_NODE_ORPHAN;
    write_ok(update_node, &file);
    expect_usage(1, 1);
    read_ok(list_orphans, &tree);
    assert_int_equal(tree.count, 1);
    assert_int_equal(tree.ids[0], file.id);
    write_ok(delete_node, &file);
    write_ok(delete_node, &other);
    expect_usage(0, 0);
}

int
main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_node_keeps_every_field),
        T(test_names_are_unique_in_a_folder),
        T(test_ids_are_never_reused),
        T(test_children_in_pages),
        T(test_folders_in_pages),
        T(test_walk_within_a_walk),
        T(test_path),
        T(test_usage_and_orphans),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
