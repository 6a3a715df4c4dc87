/* What the disk refuses, and the order of syncs. */
#include "tests/support/full_disk.h"
#include "tests/unit/s3/file_fixture.h"

/* ---- what the disk refuses ---- */

static struct sys_table faulty;
static char trace[256];
static int fail_fsync_at; /* the n-th fsync fails; 0: none */

static int
traced_fsync(int fd)
{
    struct stat st;

    assert_int_equal(fstat(fd, &st), 0);
    strncat(trace, S_ISDIR(st.st_mode) ? "D" : "F", sizeof(trace) - strlen(trace) - 1);
    if (fail_fsync_at > 0 && --fail_fsync_at == 0) {
        errno = EIO;
        return -1;
    }
    return fsync(fd);
}

static int
traced_rename(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    strncat(trace, "R", sizeof(trace) - strlen(trace) - 1);
    return renameat2(from_dir, from, to_dir, to, flags);
}

static int
read_only_mkdir(int at, const char *path, mode_t mode)
{
    (void)at;
    (void)path;
    (void)mode;
    errno = EROFS;
    return -1;
}

static void
replace_calls(void)
{
    faulty = sys_real;
    faulty.fsync = traced_fsync;
    faulty.renameat2 = traced_rename;
    trace[0] = '\0';
    fail_fsync_at = 0;
    sys = &faulty;
}

/* Bytes on disk before the name, the name on disk before the answer; a new directory's name before what is in it. */
static void
order_of_syncs(void **state)
{
    struct store *store = *state;

    replace_calls();
    assert_int_equal(put(store, "k", "1", none), 0);
    assert_string_equal(trace, "FRD");
    trace[0] = '\0';
    assert_int_equal(put(store, "new/k", "1", none), 0);
    assert_string_equal(strchr(trace, 'R'), "RD");
    assert_int_equal(strncmp(trace, "FD", 2), 0);
    trace[0] = '\0';
    assert_int_equal(put(store, "new/k", "2", none), 0);
    assert_string_equal(trace, "FRD");
}

static void
failed_sync_of_the_file(void **state)
{
    struct store *store = *state;

    assert_int_equal(put(store, "k", "old", none), 0);
    replace_calls();
    fail_fsync_at = 1;
    assert_int_equal(put(store, "k", "new", none), -1);
    assert_int_equal(err.code, ERR_STORE_AWAY);
    assert_int_equal(res.outcome, STORE_NOT_DONE);
    assert_holds(store, "k", "old");
    assert_int_equal(count_names(".hf~tmp"), 0);
}

static void
failed_sync_of_the_directory(void **state)
{
    struct store *store = *state;

    assert_int_equal(put(store, "k", "old", none), 0);
    replace_calls();
    fail_fsync_at = 2;
    assert_int_equal(put(store, "k", "new", none), -1);
    assert_int_equal(res.outcome, STORE_UNKNOWN);
    sys = &sys_real;
    assert_holds(store, "k", "new");
}

static void
full_disk_keeps_the_old(void **state)
{
    struct store *store = *state;

    assert_int_equal(put(store, "k", "old", none), 0);
    replace_calls();
    faulty.pwrite = full_disk_pwrite;
    assert_int_equal(put(store, "k", "new", none), -1);
    assert_int_equal(err.code, ERR_NO_SPACE);
    assert_int_equal(res.outcome, STORE_NOT_DONE);
    sys = &sys_real;
    assert_holds(store, "k", "old");
    assert_int_equal(count_names(".hf~tmp"), 0);
}

static void
read_only_directory(void **state)
{
    struct store *store = *state;
    struct store *reader;
    struct store_delete del = { .key = "k" };

    assert_int_equal(put(store, "k", "v", none), 0);
    replace_calls();
    faulty.mkdirat = read_only_mkdir;
    reader = file_store_open(dir, &err);
    assert_non_null(reader);
    assert_holds(reader, "k", "v");
    assert_listed(reader, "k ");
    assert_int_equal(put(reader, "k", "w", none), -1);
    assert_int_equal(err.code, ERR_STORE_DENIED);
    assert_int_equal(res.outcome, STORE_NOT_DONE);
    assert_int_equal(store_delete(reader, &del, NULL, &err), -1);
    assert_int_equal(err.code, ERR_STORE_DENIED);
    store_free(reader);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(order_of_syncs),
        TEST(failed_sync_of_the_file),
        TEST(failed_sync_of_the_directory),
        TEST(full_disk_keeps_the_old),
        TEST(read_only_directory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
