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
    FILL(row.storage_class, 'S');
    FILL(row.encryption, 'E');
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
    return index_answer_put(tx, all->mount.id, 1, 77, "reply", 5, err);
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
    if (index_mount_each(tx, count_mount, all, err) != 0 ||
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
    assert_int_equal(all.rows, 8);
    expect_usage(1, 0);
    write_ok(delete_volume, &all.volume);
    read_ok(count_rest, &all);
    assert_int_equal(all.rows, 0);
    expect_usage(0, 0);
}

/* Also of all connections: number 0. */
static int
drop_connection(struct index_tx *tx, void *arg, struct err *err)
{
    return index_answer_drop_connection(tx, *(int64_t *)arg, err);
}

static int
put_answer(struct index_tx *tx, void *arg, struct err *err)
{
    return index_answer_put(tx, *(int64_t *)arg, 1, 77, "reply", 5, err);
}

static void
test_connection_takes_its_answers(void **state)
{
    (void)state;
    static struct everything all;
    int64_t other = 99;
    fill_everything(&all);
    write_ok(insert_everything, &all);
    write_ok(drop_connection, &other);
    read_ok(count_rest, &all);
    assert_int_equal(all.rows, 8);
    write_ok(drop_connection, &all.mount.id);
    read_ok(count_rest, &all);
    assert_int_equal(all.rows, 7);
    other = 0;
    write_ok(put_answer, &all.mount.id);
    read_ok(count_rest, &all);
    assert_int_equal(all.rows, 8);
    write_ok(drop_connection, &other);
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

/* ---- each row by itself ---- */
static int
note_volume(void *arg, const struct index_volume *row, struct err *err)
{
    struct tree *tree = arg;
    (void)err;
    tree->ids[tree->count++] = row->id;
    return 0;
}

static int
all_volumes(struct index_tx *tx, void *arg, struct err *err)
{
    struct index_volume row;
    struct tree *tree = arg;
    if (index_volume_each(tx, note_volume, tree, err) != 0)
        return -1;
    for (unsigned i = 0; i < tree->count; i++) {
        if (index_volume_get(tx, tree->ids[i], &row, err) != 0)
            return -1;
        assert_int_equal(row.id, tree->ids[i]);
    }
    return index_volume_get(tx, 4711, &row, err);
}

static void
test_volumes_by_number(void **state)
{
    (void)state;
    static const char *const names[] = { "b", "a" };
    struct tree tree = { .count = 0 };
    struct err err = ERR_INIT;
    int64_t ids[2];
    for (unsigned i = 0; i < 2; i++) {
        struct index_volume row;
        memset(&row, 0, sizeof(row));
        SET(row.name, names[i]);
        write_ok(insert_volume, &row);
        ids[i] = row.id;
    }
    assert_int_equal(index_read(ix, all_volumes, &tree, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_int_equal(tree.count, 2);
    assert_memory_equal(tree.ids, ids, sizeof(ids));
    struct index_volume absent = { .id = 4711 };
    assert_int_equal(index_write(ix, INDEX_NORMAL, update_volume, &absent, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_int_equal(index_write(ix, INDEX_NORMAL, delete_volume, &absent, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
}

static int
note_mount(void *arg, const struct index_mount *row, struct err *err)
{
    (void)err;
    *(struct index_mount *)arg = *row;
    return 0;
}

static int
change_mount(struct index_tx *tx, void *arg, struct err *err)
{
    static struct index_mount seen;
    struct index_mount *row = arg;
    struct err absent = ERR_INIT;
    if (index_mount_put(tx, row, err) != 0)
        return -1;
    int64_t id = row->id;
    row->expires_ns = 5;
    if (index_mount_put(tx, row, err) != 0 || index_mount_each(tx, note_mount, &seen, err) != 0)
        return -1;
    assert_int_equal(row->id, id); /* changed, not added */
    assert_int_equal(seen.id, id);
    assert_int_equal(seen.expires_ns, 5);
    if (index_mount_delete(tx, id, err) != 0)
        return -1;
    assert_int_equal(index_mount_delete(tx, id, &absent), -1);
    assert_int_equal(absent.code, ERR_NOT_FOUND);
    return 0;
}

static void
test_mounts(void **state)
{
    (void)state;
    struct index_mount row;
    memset(&row, 0, sizeof(row));
    write_ok(change_mount, &row);
}

static int
change_conflict(struct index_tx *tx, void *arg, struct err *err)
{
    static struct index_conflict out;
    struct index_conflict *row = arg;
    struct err absent = ERR_INIT;
    if (index_conflict_put(tx, row, err) != 0 || index_conflict_get(tx, row->id, &out, err) != 0)
        return -1;
    assert_memory_equal(row, &out, sizeof(out));
    row->synced = true;
    if (index_conflict_put(tx, row, err) != 0 || index_conflict_get(tx, row->id, &out, err) != 0)
        return -1;
    assert_true(out.synced);
    assert_int_equal(index_conflict_get(tx, "none", &out, &absent), -1);
    assert_int_equal(absent.code, ERR_NOT_FOUND);
    return 0;
}

static void
test_conflict_keeps_every_field(void **state)
{
    (void)state;
    static struct index_conflict row;
    FILL(row.id, 'I');
    FILL(row.path, '\xfa');
    FILL(row.reason, 'r');
    FILL(row.base_version, 'b');
    FILL(row.mine_version, 'm');
    FILL(row.theirs_version, 't');
    FILL(row.theirs_etag, 'e');
    FILL(row.actor, 'a');
    FILL(row.run, '\n');
    row.volume = 1;
    row.node = 2;
    row.content = 3;
    row.time_ns = 4;
    write_ok(change_conflict, &row);
}

struct newest {
    int64_t seen[4];
    unsigned count;
};

static int
note_version(void *arg, const struct index_version *row, struct err *err)
{
    struct newest *newest = arg;
    (void)err;
    newest->seen[newest->count++] = row->time_ns;
    return 0;
}

static int
three_versions(struct index_tx *tx, void *arg, struct err *err)
{
    static struct index_version row;
    for (int64_t i = 1; i <= 3; i++) {
        memset(&row, 0, sizeof(row));
        row.node = 5;
        row.time_ns = i;
        FILL(row.path, 'p');
        if (index_version_insert(tx, &row, err) != 0)
            return -1;
    }
    return index_version_of_node(tx, 5, 2, note_version, arg, err);
}

static void
test_newest_versions_first(void **state)
{
    (void)state;
    struct newest newest = { .count = 0 };
    write_ok(three_versions, &newest);
    assert_int_equal(newest.count, 2);
    assert_int_equal(newest.seen[0], 3);
    assert_int_equal(newest.seen[1], 2);
}

int
main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_volumes),
        T(test_volume_takes_its_rows_along),
        T(test_connection_takes_its_answers),
        T(test_answer_slots),
        T(test_volumes_by_number),
        T(test_mounts),
        T(test_conflict_keeps_every_field),
        T(test_newest_versions_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
