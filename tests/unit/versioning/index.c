#include "index_fixture.h"

#include <pthread.h>
#include <semaphore.h>

#include "base/clock.h"

static struct index *ix;

static int
setup(void **state)
{
    (void)state;
    scratch_make();
    ix = open_or_fail(scratch);
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    index_close(ix);
    ix = NULL;
    scratch_remove();
    return 0;
}

static void
reopen(void)
{
    index_close(ix);
    ix = open_or_fail(scratch);
}

static void
write_ok(index_fn *fn, void *arg)
{
    struct err err = ERR_INIT;
    RUN_OK(err, index_write(ix, INDEX_NORMAL, fn, arg, &err));
}

static void
read_ok(index_fn *fn, void *arg)
{
    struct err err = ERR_INIT;
    RUN_OK(err, index_read(ix, fn, arg, &err));
}

/* ---- opening ---- */
static int
get_uuid(struct index_tx *tx, void *arg, struct err *err)
{
    return index_meta_get(tx, "uuid", arg, 64, err);
}

static void
test_uuid_stays(void **state)
{
    (void)state;
    char first[64] = "", second[64] = "";
    read_ok(get_uuid, first);
    assert_true(ulid_valid(first));
    reopen();
    read_ok(get_uuid, second);
    assert_string_equal(first, second);
}

static void
test_missing_directory(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct index_options options = { .create = true };
    assert_null(index_open("/nonexistent/holdfast", &options, &err));
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_non_null(strstr(err.msg, "/nonexistent/holdfast"));
}

static void
test_not_created_unasked(void **state)
{
    (void)state;
    char dir[sizeof(scratch) + 8];
    struct err err = ERR_INIT;
    struct index_options options = { .create = false };
    snprintf(dir, sizeof(dir), "%s/sub", scratch);
    assert_int_equal(mkdir(dir, 0700), 0);
    assert_null(index_open(dir, &options, &err));
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_int_equal(rmdir(dir), 0); /* so nothing was made in it */
}

/* ---- transactions ---- */
static int
write_meta(struct index_tx *tx, void *arg, struct err *err)
{
    return index_meta_set(tx, "x", arg, err);
}

static void
test_read_refuses_changes(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    char value[] = "1";
    assert_int_equal(index_read(ix, write_meta, value, &err), -1);
    assert_int_equal(err.code, ERR_INTERNAL);
}

static int
write_inside(struct index_tx *tx, void *arg, struct err *err)
{
    (void)tx;
    return index_write(ix, INDEX_NORMAL, write_meta, arg, err);
}

static int
read_inside(struct index_tx *tx, void *arg, struct err *err)
{
    (void)tx;
    return index_read(ix, get_uuid, arg, err);
}

static void
test_no_nesting(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    char value[64] = "1";
    assert_int_equal(index_write(ix, INDEX_NORMAL, write_inside, value, &err), -1);
    assert_int_equal(err.code, ERR_INTERNAL);
    assert_int_equal(index_read(ix, read_inside, value, &err), -1);
    assert_int_equal(err.code, ERR_INTERNAL);
    read_ok(get_uuid, value); /* and all goes on */
}

struct batch {
    sem_t running, go;
    unsigned ran;
};
static struct batch batch;

/* Holds the writer until the others are queued, so that they share one transaction. */
static int
hold(struct index_tx *tx, void *arg, struct err *err)
{
    (void)tx;
    (void)arg;
    (void)err;
    sem_post(&batch.running);
    while (sem_wait(&batch.go) != 0)
        continue;
    return 0;
}

struct change {
    pthread_t thread;
    struct index_node node;
    bool refuse;
    enum index_durability durability;
    int rc;
    struct err err;
};

static int
change_or_refuse(struct index_tx *tx, void *arg, struct err *err)
{
    struct change *change = arg;
    batch.ran++;
    if (index_node_insert(tx, &change->node, err) != 0)
        return -1;
    return change->refuse ? err_set(err, ERR_QUOTA, "refused") : 0;
}

static void *
change_main(void *arg)
{
    struct change *change = arg;
    change->err = (struct err)ERR_INIT;
    change->rc = index_write(ix, change->durability, change_or_refuse, change, &change->err);
    return NULL;
}

static void *
hold_main(void *arg)
{
    struct err err = ERR_INIT;
    *(int *)arg = index_write(ix, INDEX_NORMAL, hold, NULL, &err);
    return NULL;
}

static int
read_sequence(struct index_tx *tx, void *arg, struct err *err)
{
    (void)err;
    *(uint64_t *)arg = index_sequence(tx);
    return 0;
}

static void
test_refused_change_leaves_the_others(void **state)
{
    (void)state;
    static struct change changes[12];
    pthread_t holder;
    int held = -1;
    uint64_t before = 0, after = 0;
    read_ok(read_sequence, &before);
    memset(&batch, 0, sizeof(batch));
    sem_init(&batch.running, 0, 0);
    sem_init(&batch.go, 0, 0);
    assert_int_equal(pthread_create(&holder, NULL, hold_main, &held), 0);
    while (sem_wait(&batch.running) != 0)
        continue;
    for (int i = 0; i < 12; i++) {
        char name[16];
        snprintf(name, sizeof(name), "n%d", i);
        fill_node(&changes[i].node, 1, name);
        changes[i].refuse = i % 3 == 0;
        changes[i].durability = i % 4 == 0 ? INDEX_FULL : INDEX_NORMAL;
        assert_int_equal(pthread_create(&changes[i].thread, NULL, change_main, &changes[i]), 0);
    }
    clock_sleep_ns(100 * NS_PER_MS);
    sem_post(&batch.go);
    assert_int_equal(pthread_join(holder, NULL), 0);
    assert_int_equal(held, 0);
    for (int i = 0; i < 12; i++)
        assert_int_equal(pthread_join(changes[i].thread, NULL), 0);
    assert_int_equal(batch.ran, 12); /* each once */
    for (int i = 0; i < 12; i++) {
        struct index_node row = changes[i].node;
        struct err err = ERR_INIT;
        assert_int_equal(changes[i].rc, changes[i].refuse ? -1 : 0);
        if (changes[i].refuse)
            assert_int_equal(changes[i].err.code, ERR_QUOTA);
        assert_int_equal(index_read(ix, find_node, &row, &err), changes[i].refuse ? -1 : 0);
        if (changes[i].refuse)
            assert_int_equal(err.code, ERR_NOT_FOUND);
    }
    read_ok(read_sequence, &after);
    assert_int_equal(after - before, 1 + 8); /* the holder and the eight that were not refused */
}

static int
sequence_in_change(struct index_tx *tx, void *arg, struct err *err)
{
    *(uint64_t *)arg = index_sequence(tx);
    return index_meta_set(tx, "x", "y", err);
}

static void
test_sequence(void **state)
{
    (void)state;
    uint64_t inside = 0, after = 0;
    write_ok(sequence_in_change, &inside);
    read_ok(read_sequence, &after);
    assert_int_equal(inside, after);
    reopen();
    uint64_t again = 0;
    read_ok(read_sequence, &again);
    assert_int_equal(again, after);
    write_ok(sequence_in_change, &inside);
    assert_int_equal(inside, after + 1);
}

/* ---- rows ---- */
static void
set(char *to, size_t size, const char *text)
{
    assert_true(strlen(text) < size);
    memcpy(to, text, strlen(text) + 1);
}
#define SET(field, text) set(field, sizeof(field), text)

/* Fills an array up to its last place, to find a field that is cut. */
static void
fill_all(char *to, size_t size, char byte)
{
    memset(to, byte, size - 1);
    to[size - 1] = '\0';
}
#define FILL(field, byte) fill_all(field, sizeof(field), byte)

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

struct tree {
    int64_t ids[8];
    unsigned count;
};

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
        snprintf(name, sizeof(name), "d%d", i);
        fill_node(&row, 60, name);
        write_ok(insert_node, &row);
        for (int j = 0; j < 2; j++) {
            snprintf(name, sizeof(name), "f%d", j);
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

struct usage {
    uint64_t files, bytes;
};

static int
get_usage(struct index_tx *tx, void *arg, struct err *err)
{
    struct usage *out = arg;
    return index_node_usage(tx, 1, &out->files, &out->bytes, err);
}

static void
expect_usage(uint64_t files, uint64_t bytes)
{
    struct usage usage = { 99, 99 };
    read_ok(get_usage, &usage);
    assert_int_equal(usage.files, files);
    assert_int_equal(usage.bytes, bytes);
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

/* ---- keys ---- */
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
    snprintf(list->seen + len, sizeof(list->seen) - len, "%s,", row->key);
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
        row.sequence = 12;
        FILL(row.etag, 'e');
        FILL(row.version, 'v');
        FILL(row.sha256, 's');
        write_ok(put_key, &row);
    }
    out = row;
    read_ok(get_key, &out);
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

/* ---- contents ---- */
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

/* ---- intents ---- */
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
    snprintf(list->seen + len, sizeof(list->seen) - len, "%s,", row->key);
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

/* ---- volumes and the other tables ---- */
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
        T(test_uuid_stays),
        T(test_missing_directory),
        T(test_not_created_unasked),
        T(test_read_refuses_changes),
        T(test_no_nesting),
        T(test_refused_change_leaves_the_others),
        T(test_sequence),
        T(test_node_keeps_every_field),
        T(test_names_are_unique_in_a_folder),
        T(test_ids_are_never_reused),
        T(test_children_in_pages),
        T(test_walk_within_a_walk),
        T(test_path),
        T(test_usage_and_orphans),
        T(test_keys),
        T(test_contents),
        T(test_content_numbers),
        T(test_intents),
        T(test_volumes),
        T(test_volume_takes_its_rows_along),
        T(test_connection_takes_its_opens_and_answers),
        T(test_answer_slots),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
