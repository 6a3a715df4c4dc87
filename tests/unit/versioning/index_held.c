#include "tests/unit/versioning/index_fixture.h"

/*
 * What a change sees is what the database holds: random changes, some of them taken back, and after each the same rows asked
 * for in a change, which may have them in memory, and in a reading, which never has. More nodes than there is room for.
 */
#define NODES 700
#define ROUNDS 4000

static int64_t ids[NODES];
static unsigned seed = 20261130;

static unsigned
pick(unsigned below)
{
    seed = seed * 1103515245u + 12345u;
    return (seed >> 8) % below;
}

struct asked {
    int64_t id;
    int64_t parent;
    char name[8];
    struct index_node node, child;
    struct index_content content;
    bool has_node, has_child, has_content;
};

static int
ask(struct index_tx *tx, void *arg, struct err *err)
{
    struct asked *asked = arg;
    struct err ignored = ERR_INIT;
    (void)err;
    asked->has_node = index_node_get(tx, asked->id, &asked->node, &ignored) == 0;
    asked->has_child = index_node_child(tx, asked->parent, asked->name, strlen(asked->name),
                                        &asked->child, &ignored) == 0;
    asked->has_content = index_content_get(tx, asked->id, &asked->content, &ignored) == 0;
    return 0;
}

static void
compare(int64_t id, int64_t parent, unsigned name)
{
    static struct asked change, reading; /* zeros where nothing is found */
    memset(&change, 0, sizeof(change));
    change.id = id;
    change.parent = parent;
    (void)snprintf(change.name, sizeof(change.name), "n%u", name);
    reading = change;
    write_ok(ask, &change);
    read_ok(ask, &reading);
    assert_int_equal(change.has_node, reading.has_node);
    assert_int_equal(change.has_child, reading.has_child);
    assert_int_equal(change.has_content, reading.has_content);
    if (reading.has_node)
        assert_int_equal(change.node.mtime_ns, reading.node.mtime_ns);
    if (reading.has_node)
        assert_string_equal(change.node.name, reading.node.name);
    if (reading.has_child)
        assert_int_equal(change.child.id, reading.child.id);
    if (reading.has_content)
        assert_int_equal(change.content.size, reading.content.size);
}

struct turn {
    unsigned what, slot, name;
    int64_t parent;
    bool take_back;
};

static int
add(struct index_tx *tx, const struct turn *turn, struct err *err)
{
    struct index_node node;
    struct index_content content = { .volume = 1, .state = CONTENT_LIVE };
    char name[8];
    (void)snprintf(name, sizeof(name), "n%u", turn->name);
    fill_node(&node, turn->parent, name);
    if (index_node_insert(tx, &node, err) != 0)
        return -1;
    content.id = content.node = node.id;
    ids[turn->slot] = node.id; /* also of one that is taken back: then nothing has this number */
    return index_content_insert(tx, &content, err);
}

static int
change_one(struct index_tx *tx, const struct turn *turn, struct err *err)
{
    struct index_node node;
    struct index_content content;
    int64_t id = ids[turn->slot];
    if (id == 0 || index_node_get(tx, id, &node, err) != 0)
        return add(tx, turn, err);
    if (index_content_get(tx, id, &content, err) != 0)
        return -1;
    switch (turn->what) {
    case 0:
        return index_node_delete(tx, id, err) != 0 || index_content_delete(tx, id, err) != 0 ? -1
                                                                                             : 0;
    case 1: /* moved: perhaps onto a name that is taken, which fails */
        node.parent = turn->parent;
        node.name_len = (uint16_t)snprintf(node.name, sizeof(node.name), "n%u", turn->name);
        break;
    default:
        content.size++;
        if (index_content_update(tx, &content, err) != 0)
            return -1;
    }
    node.mtime_ns++;
    return index_node_update(tx, &node, err);
}

static int
take_turn(struct index_tx *tx, void *arg, struct err *err)
{
    const struct turn *turn = arg;
    if (change_one(tx, turn, err) != 0)
        return -1;
    return turn->take_back ? err_set(err, ERR_CANCELED, "taken back") : 0;
}

static void
test_a_change_sees_the_rows(void **state)
{
    (void)state;
    unsigned failed = 0;
    for (unsigned i = 0; i < ROUNDS; i++) {
        struct turn turn = { .what = pick(4),
                             .slot = pick(NODES),
                             .name = pick(40),
                             .parent = 1 + pick(30),
                             .take_back = pick(5) == 0 };
        struct err err = ERR_INIT;
        if (index_write(ix, INDEX_NORMAL, take_turn, &turn, &err) != 0)
            failed++;
        compare(ids[turn.slot], turn.parent, turn.name);
        compare(ids[pick(NODES)], 1 + pick(30), pick(40));
    }
    assert_in_range(failed, ROUNDS / 10, ROUNDS / 2); /* taken back, or a name was taken */
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_change_sees_the_rows, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
