#include "tests/unit/versioning/index_fixture.h"

static int
insert_volume(struct index_tx *tx, void *arg, struct err *err)
{
    return index_volume_insert(tx, arg, err);
}

static int
find_volume(struct index_tx *tx, void *arg, struct err *err)
{
    struct index_volume *row = arg;
    char name[sizeof(row->name)];
    memcpy(name, row->name, sizeof(name));
    memset(row, 0, sizeof(*row));
    return index_volume_find(tx, name, row, err);
}

static int
update_volume(struct index_tx *tx, void *arg, struct err *err)
{
    return index_volume_update(tx, arg, err);
}

static int
delete_volume(struct index_tx *tx, void *arg, struct err *err)
{
    return index_volume_delete(tx, ((struct index_volume *)arg)->id, err);
}

static void
test_volumes(void **state)
{
    (void)state;
    static struct index_volume row, out;
    struct err err = ERR_INIT;
    FILL(row.name, 'v');
    FILL(row.prefix, '\xfd');
    row.read_only = row.sync_close = true;
    row.quota = UINT64_MAX;
    row.history_ns = 4;
    row.created_ns = 5;
    row.root = 6;
    write_ok(insert_volume, &row);
    memcpy(out.name, row.name, sizeof(out.name));
    read_ok(find_volume, &out);
    assert_memory_equal(&row, &out, sizeof(row));
    struct index_volume twin = row;
    assert_int_equal(index_write(ix, INDEX_NORMAL, insert_volume, &twin, &err), -1);
    assert_int_equal(err.code, ERR_EXISTS);
    row.quota = 1;
    write_ok(update_volume, &row);
    read_ok(find_volume, &out);
    assert_int_equal(out.quota, 1);
}

struct everything {
    struct index_volume volume;
    struct index_node node;
    struct index_key key;
    struct index_content content;
    struct index_intent intent;
    struct index_version version;
    struct index_conflict conflict;
    struct index_open open;
    struct index_mount mount;
    unsigned rows;
};

static int
insert_everything(struct index_tx *tx, void *arg, struct err *err)
{
    struct everything *all = arg;
    if (index_volume_insert(tx, &all->volume, err) != 0)
        return -1;
    int64_t volume = all->volume.id;
    all->node.volume = all->key.volume = all->content.volume = all->intent.volume = volume;
    all->version.volume = all->conflict.volume = all->mount.volume = volume;
    if (index_node_insert(tx, &all->node, err) != 0 || index_key_put(tx, &all->key, err) != 0 ||
        index_content_insert(tx, &all->content, err) != 0 ||
        index_intent_put(tx, &all->intent, err) != 0 ||
        index_version_insert(tx, &all->version, err) != 0 ||
        index_conflict_put(tx, &all->conflict, err) != 0 ||
        index_mount_put(tx, &all->mount, err) != 0)
        return -1;
    all->open.node = all->node.id;
    all->open.connection = all->mount.id;
    if (index_open_put(tx, &all->open, err) != 0)
        return -1;
    return index_answer_put(tx, all->mount.id, 1, 77, "reply", 5, err);
}

static int
count_open(void *arg, const struct index_open *row, struct err *err)
{
    (void)err;
    assert_int_equal(row->fh, UINT64_MAX);
    assert_true(row->writable);
    assert_int_equal(row->error, -5);
    ((struct everything *)arg)->rows++;
    return 0;
}

static int
count_mount(void *arg, const struct index_mount *row, struct err *err)
{
    struct everything *all = arg;
    (void)err;
    assert_string_equal(row->path, "/mnt/x");
    assert_int_equal(row->lease_ns, 60);
    assert_int_equal(row->uuid_hint, UINT64_MAX);
    all->rows++;
    return 0;
}

static int
count_conflict(void *arg, const struct index_conflict *row, struct err *err)
{
    (void)err;
    assert_string_equal(row->reason, "torn");
    assert_int_equal(row->content, 12);
    ((struct everything *)arg)->rows++;
    return 0;
}

static int
count_version(void *arg, const struct index_version *row, struct err *err)
{
    (void)err;
    assert_string_equal(row->path, "a/b");
    ((struct everything *)arg)->rows++;
    return 0;
}

static int
count_rest(struct index_tx *tx, void *arg, struct err *err)
{
    struct everything *all = arg;
    char reply[16];
    size_t len = 0;
    struct err missing = ERR_INIT;
    struct index_node node;
    struct index_key key;
    struct index_content content;
    struct index_intent intent;
    all->rows = 0;
    all->rows += index_node_get(tx, all->node.id, &node, &missing) == 0;
    all->rows += index_key_get(tx, "k", &key, &missing) == 0;
    all->rows += index_content_get(tx, all->content.id, &content, &missing) == 0;
    all->rows += index_intent_get(tx, "k", &intent, &missing) == 0;
    if (index_answer_get(tx, all->mount.id, 77, reply, sizeof(reply), &len, &missing) == 0) {
        assert_int_equal(len, 5);
        assert_memory_equal(reply, "reply", 5);
        all->rows++;
    }
    if (index_open_each(tx, 0, count_open, all, err) != 0 ||
        index_mount_each(tx, count_mount, all, err) != 0 ||
        index_conflict_each(tx, all->volume.id, count_conflict, all, err) != 0)
        return -1;
    return index_version_of_node(tx, 4, 10, count_version, all, err);
}

static void
fill_everything(struct everything *all)
{
    memset(all, 0, sizeof(*all));
    SET(all->volume.name, "v");
    fill_node(&all->node, 5, "n");
    SET(all->key.key, "k");
    all->content.state = CONTENT_CLEAN;
    SET(all->intent.key, "k");
    all->version.node = 4;
    SET(all->version.path, "a/b");
    SET(all->conflict.id, "01ARZ3NDEKTSV4RRFFQ69G5FAV");
    SET(all->conflict.reason, "torn");
    all->conflict.content = 12;
    all->open.fh = UINT64_MAX;
    all->open.writable = true;
    all->open.error = -5;
    SET(all->mount.path, "/mnt/x");
    all->mount.lease_ns = 60;
    all->mount.uuid_hint = UINT64_MAX;
}

static void
test_volume_takes_its_rows_along(void **state)
{
    (void)state;
    static struct everything all;
    fill_everything(&all);
    write_ok(insert_everything, &all);
    read_ok(count_rest, &all);
    assert_int_equal(all.rows, 9);
    expect_usage(1, 0);
    write_ok(delete_volume, &all.volume);
    read_ok(count_rest, &all);
    assert_int_equal(all.rows, 0);
    expect_usage(0, 0);
}

static int
drop_connection(struct index_tx *tx, void *arg, struct err *err)
{
    return index_open_drop_connection(tx, *(int64_t *)arg, err);
}

static void
test_connection_takes_its_opens_and_answers(void **state)
{
    (void)state;
    static struct everything all;
    int64_t other = 99;
    fill_everything(&all);
    write_ok(insert_everything, &all);
    write_ok(drop_connection, &other);
    read_ok(count_rest, &all);
    assert_int_equal(all.rows, 9);
    write_ok(drop_connection, &all.mount.id);
    read_ok(count_rest, &all);
    assert_int_equal(all.rows, 7);
}

static int
answers(struct index_tx *tx, void *arg, struct err *err)
{
    char reply[4];
    size_t len = 0;
    struct err other = ERR_INIT;
    (void)arg;
    if (index_answer_put(tx, 1, 0, 10, "old", 3, err) != 0 ||
        index_answer_put(tx, 1, 0, 11, "", 0, err) != 0 || /* the slot is used again */
        index_answer_get(tx, 1, 11, reply, sizeof(reply), &len, err) != 0)
        return -1;
    assert_int_equal(len, 0);
    assert_int_equal(index_answer_get(tx, 1, 10, reply, sizeof(reply), &len, &other), -1);
    assert_int_equal(other.code, ERR_NOT_FOUND);
    if (index_answer_put(tx, 1, 1, 12, "12345", 5, err) != 0)
        return -1;
    assert_int_equal(index_answer_get(tx, 1, 12, reply, sizeof(reply), &len, &other), -1);
    assert_int_equal(other.code, ERR_TOO_LARGE);
    return 0;
}

static void
test_answer_slots(void **state)
{
    (void)state;
    write_ok(answers, NULL);
}

int
main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_volumes),
        T(test_volume_takes_its_rows_along),
        T(test_connection_takes_its_opens_and_answers),
        T(test_answer_slots),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
