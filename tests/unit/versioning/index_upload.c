#include "tests/unit/versioning/index_fixture.h"

static int
put(struct index_tx *tx, void *arg, struct err *err)
{
    return index_upload_put(tx, arg, err);
}

struct list {
    const char *key; /* NULL: all */
    char seen[64];
    struct index_upload last;
};

static int
note(void *arg, const struct index_upload *row, struct err *err)
{
    struct list *list = arg;
    size_t len = strlen(list->seen);
    (void)err;
    (void)snprintf(list->seen + len, sizeof(list->seen) - len, "%.8s,", row->id);
    list->last = *row;
    return 0;
}

static int
each(struct index_tx *tx, void *arg, struct err *err)
{
    struct list *list = arg;
    return list->key == NULL ? index_upload_each(tx, note, arg, err)
                             : index_upload_of_key(tx, list->key, note, arg, err);
}

static int
delete_one(struct index_tx *tx, void *arg, struct err *err)
{
    return index_upload_delete(tx, arg, err);
}

/* What was begun is known until its end, by its key too. */
static void
test_uploads(void **state)
{
    (void)state;
    static const char *const items[][2] = { { "u3", "k1" }, { "u1", "k2" }, { "u2", "k1" } };
    static struct index_upload row;
    static struct list list;
    for (unsigned i = 0; i < 3; i++) {
        memset(&row, 0, sizeof(row));
        SET(row.id, items[i][0]);
        SET(row.key, items[i][1]);
        row.volume = 7;
        FILL(row.life, 'l');
        row.begun_ns = -5;
        write_ok(put, &row);
    }
    read_ok(each, &list);
    assert_string_equal(list.seen, "u1,u2,u3,");
    list = (struct list){ .key = "k1" };
    read_ok(each, &list);
    assert_string_equal(list.seen, "u2,u3,");
    list = (struct list){ .key = "k" };
    read_ok(each, &list);
    assert_string_equal(list.seen, "");
    char gone[] = "u3";
    write_ok(delete_one, gone);
    write_ok(delete_one, gone);
    list = (struct list){ .key = "k1" };
    read_ok(each, &list);
    assert_string_equal(list.seen, "u2,");
    assert_memory_equal(&list.last, &row, sizeof(row));
}

/* The longest id and any bytes in it. */
static void
test_long_ids(void **state)
{
    (void)state;
    static struct index_upload row;
    static struct list list;
    memset(row.id, '\xff', sizeof(row.id) - 1);
    memset(row.key, '\x01', sizeof(row.key) - 1);
    write_ok(put, &row);
    list.key = row.key;
    read_ok(each, &list);
    assert_memory_equal(&list.last, &row, sizeof(row));
}

int
main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_uploads),
        T(test_long_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
