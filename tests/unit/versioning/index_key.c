#include "tests/unit/versioning/index_fixture.h"

struct key_list {
    char seen[256];
    const char *prefix, *after;
    unsigned limit;
};

static int
put_key(struct index_tx *tx, void *arg, struct err *err)
{
    return index_key_put(tx, arg, err);
}

static int
get_key(struct index_tx *tx, void *arg, struct err *err)
{
    struct index_key *row = arg;
    char key[LIMIT_KEY + 1];
    memcpy(key, row->key, sizeof(key));
    memset(row, 0, sizeof(*row));
    return index_key_get(tx, key, row, err);
}

static int
note_key(void *arg, const struct index_key *row, struct err *err)
{
    struct key_list *list = arg;
    size_t len = strlen(list->seen);
    (void)err;
    (void)snprintf(list->seen + len, sizeof(list->seen) - len, "%s,", row->key);
    return 0;
}

static int
list_keys(struct index_tx *tx, void *arg, struct err *err)
{
    struct key_list *list = arg;
    list->seen[0] = '\0';
    return index_key_range(tx, list->prefix, list->after, list->limit, note_key, list, err);
}

static int
delete_key(struct index_tx *tx, void *arg, struct err *err)
{
    return index_key_delete(tx, arg, err);
}

static void
expect_keys(const char *prefix, const char *after, unsigned limit, const char *seen)
{
    struct key_list list = { .prefix = prefix, .after = after, .limit = limit };
    read_ok(list_keys, &list);
    assert_string_equal(list.seen, seen);
}

static void
test_keys(void **state)
{
    (void)state;
    static struct index_key row, out;
    static const char *const names[] = { "b/1", "a", "b/", "c", "b/\xff", "b/2", "b0", "b" };
    for (unsigned i = 0; i < 8; i++) {
        memset(&row, 0, sizeof(row));
        SET(row.key, names[i]);
        row.volume = 3;
        row.size = UINT64_MAX;
        row.owner = 8;
        row.discard = true;
        FILL(row.etag, 'e');
        FILL(row.version, 'v');
        FILL(row.sha256, 's');
        write_ok(put_key, &row);
    }
    out = row;
    read_ok(get_key, &out);
    assert_true(out.sequence > 0);
    row.sequence = out.sequence;
    assert_memory_equal(&row, &out, sizeof(row));
    row.size = 7;
    write_ok(put_key, &row); /* replaces */
    read_ok(get_key, &out);
    assert_int_equal(out.size, 7);
    expect_keys("b/", "", 100, "b/,b/1,b/2,b/\xff,");
    expect_keys("b/", "", 2, "b/,b/1,");
    expect_keys("b/", "b/1", 100, "b/2,b/\xff,");
    expect_keys("b/", "b/\xff", 100, "");
    expect_keys("", "b0", 100, "c,");
    expect_keys("x", "", 100, "");
    char gone[] = "c";
    write_ok(delete_key, gone);
    write_ok(delete_key, gone); /* absent is fine */
    expect_keys("", "b0", 100, "");
}

int
main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
