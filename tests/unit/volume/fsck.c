#include "tests/unit/volume/volume_fixture.h"

#include "volume/fsck.h"

/* Faults of the index and the cache that no command can plant: each is found, what can be mended is, and nothing is lost (INV-6). */

struct found {
    char code[16][32], where[16][128];
    size_t count;
    struct volume_fsck_report report;
};

static int
add_finding(void *arg, const struct volume_finding *finding, struct err *err)
{
    struct found *found = arg;
    (void)err;
    assert_in_range(found->count, 0, 15);
    assert_true(strlen(finding->what) > 20 && strlen(finding->repair) > 3);
    text_set(found->code[found->count], finding->code);
    text_set(found->where[found->count], finding->where);
    print_message("%s %s%s%s\n", finding->code, finding->where,
                  finding->repaired ? " repaired" : "", finding->failed);
    found->count++;
    return 0;
}

static struct found
fsck(bool repair, bool full)
{
    struct found found = { .count = 0 };
    struct volume_fsck_args args = {
        .fn = add_finding, .arg = &found, .repair = repair, .full = full
    };
    RUN_OK(rig.err, volume_fsck(rig.service, &args, &found.report, &rig.err));
    return found;
}

static void
assert_found(const struct found *found, const char *code, const char *where)
{
    for (size_t i = 0; i < found->count; i++)
        if (strcmp(found->code[i], code) == 0 &&
            (where == NULL || strcmp(found->where[i], where) == 0))
            return;
    fail_msg("'%s' at '%s' was not found", code, where != NULL ? where : "anything");
}

static void
change(index_fn *fn)
{
    RUN_OK(rig.err, index_write(rig.service->index, INDEX_FULL, fn, NULL, &rig.err));
}

/* The folder is known, as after somebody looked into it. */
static void
begin(void)
{
    save("f", "bytes of f");
    save("g", "bytes of g");
    flush();
    (void)resolve_code("none");
    struct found clean = fsck(false, true);
    assert_int_equal(clean.count, 0);
    assert_int_equal(clean.report.objects, 2);
    assert_true(clean.report.bytes_read >= 20);
}

static int
wrong_size_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct index_key row;
    (void)arg;
    if (index_key_get(tx, "v/f", &row, err) != 0)
        return -1;
    row.size = 99;
    return index_key_put(tx, &row, err);
}

static void
a_wrong_size(void **state)
{
    (void)state;
    begin();
    change(wrong_size_tx);
    struct found found = fsck(true, false);
    assert_found(&found, "row-wrong", "v/f");
    assert_int_equal(found.report.repaired, 1);
    assert_int_equal(fsck(false, false).count, 0);
    assert_reads("f", "bytes of f");
}

static int
no_owner_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct index_key row;
    (void)arg;
    if (index_key_get(tx, "v/f", &row, err) != 0)
        return -1;
    row.owner = 4711;
    return index_key_put(tx, &row, err);
}

static int
no_row_tx(struct index_tx *tx, void *arg, struct err *err)
{
    (void)arg;
    return index_key_delete(tx, "v/g", err);
}

static void
rows_that_do_not_fit_their_files(void **state)
{
    (void)state;
    begin();
    change(no_owner_tx);
    change(no_row_tx);
    struct found found = fsck(false, false);
    assert_found(&found, "row-without-file", "v/f");
    assert_found(&found, "object-unknown", "v/g");
    (void)fsck(true, false);
    assert_int_equal(fsck(false, false).count, 0);
    assert_reads("f", "bytes of f");
    assert_reads("g", "bytes of g");
}

static int
no_work_tx(struct index_tx *tx, void *arg, struct err *err)
{
    (void)arg;
    return index_intent_delete(tx, "v/f", err);
}

static int
read_intent_tx(struct index_tx *tx, void *arg, struct err *err)
{
    return index_intent_get(tx, "v/f", arg, err);
}

static void
wait_for_a_failed_try(void)
{
    struct index_intent row = { 0 };
    for (int i = 0; i < 60000 && row.tries == 0; i++) {
        clock_sleep_ns(NS_PER_MS);
        RUN_OK(rig.err, index_read(rig.service->index, read_intent_tx, &row, &rig.err));
    }
    assert_in_range(row.tries, 1, 10);
}

static void
work_that_nobody_plans(void **state)
{
    (void)state;
    begin();
    atomic_store(&rig.hook->fail[HOOK_PUT], -1);
    atomic_store(&rig.hook->fail_code[HOOK_PUT], ERR_STORE_DENIED);
    save("f", "newer");
    wait_for_a_failed_try(); /* its worker has given up for now */
    change(no_work_tx);
    atomic_store(&rig.hook->fail[HOOK_PUT], 0);
    struct found found = fsck(true, false);
    assert_found(&found, "work-missing", "v/f");
    flush();
    assert_bucket("f", "newer");
    assert_int_equal(fsck(false, false).count, 0);
}

static int
collect_staged(void *arg, const struct index_content *row, struct err *err)
{
    int64_t *number = arg;
    (void)err;
    *number = row->id;
    return 0;
}

static int
staged_tx(struct index_tx *tx, void *arg, struct err *err)
{
    return index_content_each_staged(tx, collect_staged, arg, err);
}

/* What is not in the bucket and damaged here cannot be mended, is told, and is not dropped. */
static void
staged_bytes_that_are_damaged(void **state)
{
    (void)state;
    char path[256];
    int64_t number = 0;
    begin();
    atomic_store(&rig.hook->fail[HOOK_PUT], -1);
    save("f", "newer bytes");
    RUN_OK(rig.err, index_read(rig.service->index, staged_tx, &number, &rig.err));
    (void)snprintf(path, sizeof(path), "%s/cache/%02x/%lld", rig.dir, (unsigned)(number & 0xff),
                   (long long)number);
    assert_int_equal(truncate(path, 5), 0);
    struct found found = fsck(true, false);
    assert_found(&found, "staged-size", path + strlen(rig.dir) + 1);
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(unlink(path), 0);
    found = fsck(true, false);
    assert_found(&found, "staged-missing", NULL);
    assert_int_equal(found.report.repaired, 0);
}

static int
number_tx(struct index_tx *tx, void *arg, struct err *err)
{
    return index_content_number(tx, arg, err);
}

static void
a_file_that_nobody_knows(void **state)
{
    (void)state;
    char path[256];
    int64_t number;
    begin();
    RUN_OK(rig.err, index_write(rig.service->index, INDEX_FULL, number_tx, &number, &rig.err));
    struct cache_file *file = cache_create(rig.service->cache, number, NULL, false, &rig.err);
    assert_non_null(file);
    RUN_OK(rig.err, cache_file_write(file, "whose?", 6, 0, &rig.err));
    cache_put(file);
    struct found found = fsck(false, false);
    assert_found(&found, "cache-unknown", NULL);
    found = fsck(true, false);
    assert_int_equal(found.report.repaired, 1);
    (void)snprintf(path, sizeof(path), "%s/cache/%02x/%lld", rig.dir, (unsigned)(number & 0xff),
                   (long long)number);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(fsck(false, false).count, 0);
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_wrong_size),
        TEST(rows_that_do_not_fit_their_files),
        TEST(work_that_nobody_plans),
        TEST(staged_bytes_that_are_damaged),
        TEST(a_file_that_nobody_knows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
