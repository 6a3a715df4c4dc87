#include "tests/unit/versioning/index_fixture.h"

static int
insert_content(struct index_tx *tx, void *arg, struct err *err)
{
    return index_content_insert(tx, arg, err);
}

static int
update_content(struct index_tx *tx, void *arg, struct err *err)
{
    return index_content_update(tx, arg, err);
}

static int
get_content(struct index_tx *tx, void *arg, struct err *err)
{
    struct index_content *row = arg;
    int64_t id = row->id;
    memset(row, 0, sizeof(*row));
    return index_content_get(tx, id, row, err);
}

static int
content_number(struct index_tx *tx, void *arg, struct err *err)
{
    return index_content_number(tx, arg, err);
}

static int
unsynced(struct index_tx *tx, void *arg, struct err *err)
{
    uint64_t *out = arg;
    if (index_content_unsynced(tx, 1, &out[0], &out[1], err) != 0)
        return -1;
    return index_content_unsynced(tx, 0, &out[2], &out[3], err);
}

static int
note_content(void *arg, const struct index_content *row, struct err *err)
{
    struct tree *tree = arg;
    (void)err;
    tree->ids[tree->count++] = row->id;
    return 0;
}

static int
contents_of_node(struct index_tx *tx, void *arg, struct err *err)
{
    return index_content_of_node(tx, 4, note_content, arg, err);
}

static int
delete_content(struct index_tx *tx, void *arg, struct err *err)
{
    return index_content_delete(tx, ((struct index_content *)arg)->id, err);
}

static void
test_contents(void **state)
{
    (void)state;
    static struct index_content row, out;
    struct tree tree = { .count = 0 };
    uint64_t counts[4];
    int64_t ids[3];
    for (int i = 0; i < 3; i++) { /* CLEAN, LIVE, FROZEN; the last in another volume */
        memset(&row, 0, sizeof(row));
        row.node = 4;
        row.volume = i == 2 ? 2 : 1;
        row.state = (enum content_state)(CONTENT_CLEAN + i);
        row.flags = CONTENT_ACKED | CONTENT_PINNED;
        row.size = 10;
        row.mtime_ns = -5;
        FILL(row.version, 'v');
        FILL(row.base_version, 'b');
        FILL(row.base_etag, 'e');
        FILL(row.etag, 'f');
        FILL(row.sha256, 's');
        FILL(row.md5, 'm');
        FILL(row.boot_id, 'i');
        FILL(row.actor, '\xc3');
        FILL(row.run, 'r');
        write_ok(insert_content, &row);
        ids[i] = row.id;
    }
    out.id = row.id;
    read_ok(get_content, &out);
    assert_memory_equal(&row, &out, sizeof(row));
    read_ok(unsynced, counts);
    assert_int_equal(counts[0], 1); /* the LIVE one, whose bytes are not counted */
    assert_int_equal(counts[1], 0);
    assert_int_equal(counts[2], 2);
    assert_int_equal(counts[3], 10);
    row.state = CONTENT_CLEAN;
    write_ok(update_content, &row);
    read_ok(unsynced, counts);
    assert_int_equal(counts[2], 1);
    read_ok(contents_of_node, &tree);
    assert_int_equal(tree.count, 3);
    assert_int_equal(tree.ids[0], ids[2]);
    assert_int_equal(tree.ids[2], ids[0]);
    write_ok(delete_content, &row);
    struct err err = ERR_INIT;
    out.id = row.id;
    assert_int_equal(index_read(ix, get_content, &out, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
}

static void
test_content_numbers(void **state)
{
    (void)state;
    static struct index_content row;
    int64_t number = 0, next = 0;
    write_ok(content_number, &number);
    row.id = number;
    row.state = CONTENT_LIVE;
    write_ok(insert_content, &row); /* under the number that was given */
    assert_int_equal(row.id, number);
    row.id = number + 1000; /* found on disk by a rebuild */
    write_ok(insert_content, &row);
    reopen();
    write_ok(content_number, &next);
    assert_true(next > number + 1000);
}

int
main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_contents),
        T(test_content_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
