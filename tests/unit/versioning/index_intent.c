#include "tests/unit/versioning/index_fixture.h"

static int
put_intent(struct index_tx *tx, void *arg, struct err *err)
{
    return index_intent_put(tx, arg, err);
}

static int
get_intent(struct index_tx *tx, void *arg, struct err *err)
{
    struct index_intent *row = arg;
    char key[LIMIT_KEY + 1];
    memcpy(key, row->key, sizeof(key));
    memset(row, 0, sizeof(*row));
    return index_intent_get(tx, key, row, err);
}

struct intent_list {
    char seen[64];
    uint64_t count[2];
};

static int
note_intent(void *arg, const struct index_intent *row, struct err *err)
{
    struct intent_list *list = arg;
    size_t len = strlen(list->seen);
    (void)err;
    (void)snprintf(list->seen + len, sizeof(list->seen) - len, "%s,", row->key);
    return 0;
}

static int
due(struct index_tx *tx, void *arg, struct err *err)
{
    struct intent_list *list = arg;
    if (index_intent_count(tx, 0, &list->count[0], err) != 0 ||
        index_intent_count(tx, 2, &list->count[1], err) != 0)
        return -1;
    return index_intent_due(tx, 30, 10, note_intent, arg, err);
}

static int
intents_of_volume(struct index_tx *tx, void *arg, struct err *err)
{
    return index_intent_each(tx, 1, "a", 10, note_intent, arg, err);
}

static int
delete_intent(struct index_tx *tx, void *arg, struct err *err)
{
    return index_intent_delete(tx, arg, err);
}

static void
test_intents(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        int64_t volume, not_before;
    } items[] = { { "c", 1, 30 }, { "a", 1, 20 }, { "b", 2, 10 }, { "d", 1, 31 } };
    static struct index_intent row, out;
    struct intent_list list = { .seen = "" };
    for (unsigned i = 0; i < 4; i++) {
        memset(&row, 0, sizeof(row));
        SET(row.key, items[i].key);
        row.volume = items[i].volume;
        row.not_before_ns = items[i].not_before;
        row.tries = UINT32_MAX;
        FILL(row.last_error, 'x');
        row.since_ns = 1;
        row.attempt.op = SYNC_OP_DELETE;
        row.attempt.unknown = true;
        row.attempt.node = 2;
        row.attempt.content = 3;
        FILL(row.attempt.version, 'v');
        row.attempt.size = UINT64_MAX;
        FILL(row.attempt.md5, 'm');
        FILL(row.attempt.sha256, 's');
        row.attempt.cond_absent = true;
        FILL(row.attempt.cond_etag, 'e');
        row.look_again_until_ns = 9;
        write_ok(put_intent, &row);
    }
    out = row;
    read_ok(get_intent, &out);
    assert_memory_equal(&row, &out, sizeof(row));
    read_ok(due, &list);
    assert_string_equal(list.seen, "b,a,c,");
    assert_int_equal(list.count[0], 4);
    assert_int_equal(list.count[1], 1);
    list.seen[0] = '\0';
    read_ok(intents_of_volume, &list);
    assert_string_equal(list.seen, "c,d,");
    char gone[] = "b";
    write_ok(delete_intent, gone);
    list.seen[0] = '\0';
    read_ok(due, &list);
    assert_string_equal(list.seen, "a,c,");
}

int
main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_intents),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
