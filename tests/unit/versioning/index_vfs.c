#include "tests/unit/versioning/index_fixture.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/sys.h"
#include "base/ulid.h"

/* The index through damage (S32), a full disk, a disk that fails to sync, and a newer format. */

/* ---- calls of the C library that SQLite makes, taken over here ---- */
static _Atomic int sync_errno;  /* what fdatasync answers, 0: works */
static atomic_uint syncs;       /* calls of fdatasync */
static _Atomic int write_errno; /* what pwrite answers for the index */
static atomic_uint writes;      /* calls of pwrite */

/* NOLINTNEXTLINE(readability-redundant-declaration): it has to be seen by SQLite */
__attribute__((visibility("default"))) int fdatasync(int fildes);
int
fdatasync(int fildes)
{
    atomic_fetch_add(&syncs, 1);
    if (atomic_load(&sync_errno) != 0) {
        errno = atomic_load(&sync_errno);
        return -1;
    }
    return (int)syscall(SYS_fdatasync, fildes);
}

static ssize_t
failing_pwrite(int fd, const void *data, size_t len, off_t off)
{
    atomic_fetch_add(&writes, 1);
    if (atomic_load(&write_errno) != 0) {
        errno = atomic_load(&write_errno);
        return -1;
    }
    return pwrite(fd, data, len, off);
}

static void
take_over_pwrite(void)
{
    sqlite3_vfs *vfs = sqlite3_vfs_find("unix");
    assert_non_null(vfs);
    assert_int_equal(vfs->xSetSystemCall(vfs, "pwrite", (sqlite3_syscall_ptr)failing_pwrite),
                     SQLITE_OK);
    assert_int_equal(vfs->xSetSystemCall(vfs, "pwrite64", (sqlite3_syscall_ptr)failing_pwrite),
                     SQLITE_OK);
}

/* ---- damage ---- */
#define NODES 1500

static int
insert_many(struct index_tx *tx, void *arg, struct err *err)
{
    (void)arg;
    for (unsigned i = 0; i < NODES; i++) {
        struct index_node row;
        name_of(&row, 0, i);
        row.size = size_of(0, i);
        if (insert_pair(tx, &row, err) != 0)
            return -1;
    }
    return 0;
}

struct answers {
    unsigned right, refused, wrong;
};

static void
judge(struct answers *answers, int rc, const struct err *err, bool same)
{
    if (rc == 0 && same)
        answers->right++;
    else if (rc != 0 && err->code == ERR_CORRUPT)
        answers->refused++;
    else
        answers->wrong++;
}

struct page {
    unsigned next;
    bool wrong;
};

static int
judge_child(void *arg, const struct index_node *row, struct err *err)
{
    struct page *page = arg;
    char name[32];
    (void)err;
    (void)snprintf(name, sizeof(name), "file-0-%u", page->next);
    if (strcmp(row->name, name) != 0 || row->size != size_of(0, page->next))
        page->wrong = true;
    page->next++;
    return 0;
}

/* Asks for every row by each way; what is neither right nor an error is counted as wrong. */
static int
ask_all(struct index_tx *tx, void *arg, struct err *unused)
{
    struct answers *answers = arg;
    struct page page = { .next = 0 };
    (void)unused;
    for (unsigned i = 0; i < NODES; i++) {
        struct err err = ERR_INIT;
        struct index_node row;
        struct index_key key = { .size = 0 };
        name_of(&row, 0, i);
        int rc = index_key_get(tx, row.name, &key, &err);
        judge(answers, rc, &err, key.size == size_of(0, i));
        rc = find_node(tx, &row, &err);
        judge(answers, rc, &err, row.size == size_of(0, i));
    }
    struct err err = ERR_INIT;
    int rc = index_node_children(tx, 2, 0, UINT32_MAX, judge_child, &page, &err);
    judge(answers, rc, &err, page.next == NODES);
    answers->wrong += page.wrong;
    return 0;
}

static void
read_db(char **data, size_t *len)
{
    struct err err = ERR_INIT;
    char path[256];
    (void)snprintf(path, sizeof(path), "%s/index.db", scratch);
    RUN_OK(err, sys_read_file(AT_FDCWD, path, 64u << 20, data, len, &err));
}

static void
write_db(const char *data, size_t len, off_t off, bool cut)
{
    char path[256];
    (void)snprintf(path, sizeof(path), "%s/index.db", scratch);
    int fd = open(path, O_WRONLY | O_CLOEXEC | (cut ? O_TRUNC : 0));
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, data, len, off), (ssize_t)len);
    close(fd);
}

static void
make_damage(uint64_t *seed, size_t len)
{
    uint64_t bytes[2] = { random_next(seed), random_next(seed) };
    write_db((const char *)bytes, sizeof(bytes), (off_t)(random_next(seed) % (len - sizeof(bytes))),
             false);
}

static void *
ask_main(void *arg)
{
    struct err err = ERR_INIT;
    /* A new thread has a new connection, which has no page in memory yet. */
    if (index_read(ix, ask_all, arg, &err) != 0 && err.code == ERR_CORRUPT)
        ((struct answers *)arg)->refused++;
    return NULL;
}

static void
build_index(char **data, size_t *len)
{
    struct err err = ERR_INIT;
    ix = open_or_fail(scratch);
    RUN_OK(err, index_write(ix, INDEX_NORMAL, insert_many, NULL, &err));
    index_close(ix);
    read_db(data, len);
    assert_true(*len > 50 * 4096);
}

static void
ask_in_thread(struct answers *answers)
{
    pthread_t thread;
    memset(answers, 0, sizeof(*answers));
    assert_int_equal(pthread_create(&thread, NULL, ask_main, answers), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void
quiet(void)
{
    struct err err = ERR_INIT;
    int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    log_redirect(fd);
    RUN_OK(err, log_configure("error", &err));
}

static void
test_damage_before_open_is_never_served(void **state)
{
    (void)state;
    char *data = NULL;
    size_t len = 0;
    uint64_t seed = 20;
    unsigned noticed = 0;
    struct answers answers;
    quiet();
    build_index(&data, &len);
    for (int round = 0; round < 60; round++) {
        struct err err = ERR_INIT;
        struct index_options options = { .create = true };
        make_damage(&seed, len);
        ix = index_open(scratch, &options, &err);
        if (ix == NULL) {
            assert_true(err.code == ERR_CORRUPT || err.code == ERR_NEWER_FORMAT);
            noticed++;
        } else {
            ask_in_thread(&answers);
            assert_int_equal(answers.wrong, 0);
            noticed += answers.refused > 0;
            index_close(ix);
        }
        write_db(data, len, 0, true);
    }
    free(data);
    assert_int_equal(noticed, 60);
}

static void
test_damage_after_open_is_never_served(void **state)
{
    (void)state;
    char *data = NULL;
    size_t len = 0;
    uint64_t seed = 21;
    unsigned refused = 0, right = 0;
    struct answers answers;
    quiet();
    build_index(&data, &len);
    for (int round = 0; round < 60; round++) {
        ix = open_or_fail(scratch);
        make_damage(&seed, len);
        ask_in_thread(&answers);
        assert_int_equal(answers.wrong, 0);
        refused += answers.refused > 0;
        right += answers.right;
        write_db(data, len, 0, false);
        index_close(ix);
    }
    free(data);
    assert_true(refused > 20 && right > 1000);
}

/* The index's own file layer, so that a change carries valid page checksums: only the row's can tell. */
static sqlite3 *
open_beside(void)
{
    char path[256];
    sqlite3 *db = NULL;
    sqlite3_vfs *vfs = sqlite3_vfs_find(NULL);
    while (vfs != NULL && strncmp(vfs->zName, "holdfast-", 9) != 0)
        vfs = vfs->pNext;
    if (vfs == NULL) {
        fail_msg("the index has no file layer");
        return NULL;
    }
    (void)snprintf(path, sizeof(path), "%s/index.db", scratch);
    assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, vfs->zName), SQLITE_OK);
    return db;
}

static void
test_row_checksum(void **state)
{
    (void)state;
    static const char *const changes[] = {
        "UPDATE nodes SET size = size + 1 WHERE name = CAST('file-0-3' AS BLOB)",
        "UPDATE nodes SET crc = crc + 1 WHERE name = CAST('file-0-4' AS BLOB)",
        "UPDATE nodes SET id = 9999 WHERE name = CAST('file-0-5' AS BLOB)",
        "UPDATE nodes SET etag = 'x' WHERE name = CAST('file-0-6' AS BLOB)",
        "UPDATE nodes SET name = CAST('file-0-7x' AS BLOB) WHERE name = CAST('file-0-7' AS BLOB)",
    };
    static const char *const names[] = { "file-0-3", "file-0-4", "file-0-5", "file-0-6",
                                         "file-0-7x" };
    char *data = NULL;
    size_t len = 0;
    quiet();
    build_index(&data, &len);
    free(data);
    ix = open_or_fail(scratch);
    sqlite3 *db = open_beside();
    for (unsigned i = 0; i < 5; i++) {
        struct err err = ERR_INIT;
        struct index_node row;
        assert_int_equal(sqlite3_exec(db, changes[i], NULL, NULL, NULL), SQLITE_OK);
        assert_int_equal(sqlite3_changes(db), 1);
        fill_node(&row, 2, names[i]);
        assert_int_equal(index_read(ix, find_node, &row, &err), -1);
        assert_int_equal(err.code, ERR_CORRUPT);
        assert_non_null(strstr(err.msg, "rebuild"));
    }
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    index_close(ix);
}

/* ---- formats ---- */
static void
expect_newer(const char *before, size_t before_len)
{
    struct err err = ERR_INIT;
    struct index_options options = { .create = true };
    char *after = NULL;
    size_t len = 0;
    assert_null(index_open(scratch, &options, &err));
    assert_int_equal(err.code, ERR_NEWER_FORMAT);
    read_db(&after, &len);
    assert_int_equal(len, before_len);
    assert_memory_equal(after, before, len);
    free(after);
}

static void
test_newer_format_is_refused_untouched(void **state)
{
    (void)state;
    char *data = NULL, path[256];
    size_t len = 0;
    build_index(&data, &len);
    data[63] = INDEX_FORMAT + 1; /* user_version, big-endian at 60 */
    write_db(data, len, 0, false);
    expect_newer(data, len);
    (void)snprintf(path, sizeof(path), "%s/index.db-wal", scratch);
    assert_int_equal(access(path, F_OK), -1);
    free(data);
}

static int
count_uploads(struct index_tx *tx, void *arg, struct err *err)
{
    return index_upload_each(tx, NULL, arg, err);
}

/* One of format 1 from before it was settled has no way to here, and stays as it is for the version that made it (S36). */
static void
test_early_format_is_refused_untouched(void **state)
{
    (void)state;
    char *before = NULL, *after = NULL;
    size_t len = 0, len_after = 0;
    struct err err = ERR_INIT;
    struct index_options options = { .create = true };
    build_index(&before, &len);
    free(before);
    ix = open_or_fail(scratch);
    sqlite3 *db = open_beside();
    assert_int_equal(sqlite3_exec(db,
                                  "DROP TABLE uploads; DROP TRIGGER xattrs_drop; DROP TABLE xattrs;"
                                  "ALTER TABLE volumes DROP COLUMN encryption;"
                                  "PRAGMA user_version = 1",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    index_close(ix);
    read_db(&before, &len);
    assert_null(index_open(scratch, &options, &err));
    assert_int_equal(err.code, ERR_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "development version"));
    read_db(&after, &len_after);
    assert_int_equal(len, len_after);
    assert_memory_equal(before, after, len);
    free(before);
    free(after);
}

static int
read_first_node(struct index_tx *tx, void *arg, struct err *err)
{
    struct index_node node;
    (void)arg;
    if (index_node_get(tx, 1, &node, err) != 0)
        return -1;
    assert_int_equal(node.atime_ns, 0);
    node.atime_ns = 7;
    if (index_node_update(tx, &node, err) != 0 || index_node_get(tx, 1, &node, err) != 0)
        return -1;
    assert_int_equal(node.atime_ns, 7);
    return 0;
}

/* An index of format 1, without its later tables and columns, is brought to the format of now, and is kept as it was. */
#define DROP_8                                                                                    \
    "DROP TABLE stale_reads; DROP TABLE runs; "                                                   \
    "DROP TABLE history; DROP TABLE changes; DROP TABLE snapshots; ALTER TABLE keys DROP COLUMN " \
    "kept;"                                                                                       \
    "ALTER TABLE volumes DROP COLUMN history_count; DROP INDEX versions_version;"                 \
    "DROP INDEX versions_run; ALTER TABLE volumes DROP COLUMN options;"                           \
    "DROP TABLE tokens; DROP TABLE sessions; DROP TABLE shares;"

static void
test_older_format_is_brought_up(void **state)
{
    (void)state;
    char *data = NULL, path[256];
    size_t len = 0;
    struct stat st;
    struct err err = ERR_INIT;
    build_index(&data, &len);
    free(data);
    ix = open_or_fail(scratch);
    sqlite3 *db = open_beside();
    assert_int_equal(sqlite3_exec(db,
                                  "DROP TABLE uploads; DROP TRIGGER xattrs_drop; DROP TABLE xattrs;"
                                  "DROP TRIGGER links_drop; DROP TABLE links;"
                                  "DROP INDEX nodes_folders;" DROP_8
                                  "ALTER TABLE nodes DROP COLUMN atime_ns;"
                                  "CREATE TABLE opens (connection INTEGER NOT NULL);"
                                  "PRAGMA user_version = 1",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    index_close(ix);
    ix = open_or_fail(scratch);
    RUN_OK(err, index_read(ix, count_uploads, NULL, &err));
    RUN_OK(err, index_write(ix, INDEX_NORMAL, read_first_node, NULL, &err));
    (void)snprintf(path, sizeof(path), "%s/index.db.format-1", scratch);
    assert_int_equal(stat(path, &st), 0);
    assert_true(st.st_size > 0);
    index_close(ix);
}

struct last_format {
    int64_t folder;
    unsigned folders, items;
};

static int
make_folder_and_item(struct index_tx *tx, void *arg, struct err *err)
{
    struct last_format *call = arg;
    struct index_node row;
    struct index_intent item = {
        .key = "v/moved", .volume = 1, .since_ns = 5, .not_before_ns = 6, .tries = 2
    };
    fill_node(&row, 77, "file");
    if (index_node_insert(tx, &row, err) != 0)
        return -1;
    fill_node(&row, 77, "folder");
    row.kind = INDEX_DIR;
    if (index_node_insert(tx, &row, err) != 0)
        return -1;
    call->folder = row.id;
    return index_intent_put(tx, &item, err);
}

static int
see_folder(void *arg, const struct index_node *row, struct err *err)
{
    struct last_format *call = arg;
    (void)err;
    assert_int_equal(row->id, call->folder);
    call->folders++;
    return 0;
}

static int
see_item(void *arg, const struct index_intent *row, struct err *err)
{
    (void)err;
    assert_string_equal(row->key, "v/moved");
    assert_int_equal(row->tries, 2);
    ((struct last_format *)arg)->items++;
    return 0;
}

static int
read_folder_and_item(struct index_tx *tx, void *arg, struct err *err)
{
    if (index_node_folders(tx, 77, 0, 9, see_folder, arg, err) != 0)
        return -1;
    return index_intent_each(tx, 0, "", 9, see_item, arg, err);
}

/* Format 6 had no index of folders; what it was about to do is still to be done. */
static void
test_format_6_is_brought_up(void **state)
{
    (void)state;
    struct last_format call = { .folders = 0 };
    char *data = NULL, path[256];
    size_t len = 0;
    struct err err = ERR_INIT;
    build_index(&data, &len);
    free(data);
    ix = open_or_fail(scratch);
    RUN_OK(err, index_write(ix, INDEX_NORMAL, make_folder_and_item, &call, &err));
    sqlite3 *db = open_beside();
    assert_int_equal(sqlite3_exec(db, DROP_8 "DROP INDEX nodes_folders; PRAGMA user_version = 6",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    index_close(ix);
    ix = open_or_fail(scratch);
    RUN_OK(err, index_read(ix, read_folder_and_item, &call, &err));
    assert_int_equal(call.folders, 1);
    assert_int_equal(call.items, 1);
    (void)snprintf(path, sizeof(path), "%s/index.db.format-6", scratch);
    assert_int_equal(access(path, F_OK), 0);
    index_close(ix);
}

/* A newer program that was killed: its format number is in the WAL only. */
static void
test_newer_format_in_the_wal(void **state)
{
    (void)state;
    char *data = NULL;
    size_t len = 0;
    int status = 0;
    build_index(&data, &len);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        ix = open_or_fail(scratch);
        _exit(sqlite3_exec(open_beside(), "PRAGMA user_version = 99", NULL, NULL, NULL) == SQLITE_OK
                  ? 0
                  : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    expect_newer(data, len);
    expect_newer(data, len); /* also after having looked once */
    free(data);
}

static void
test_other_files_are_refused(void **state)
{
    (void)state;
    char text[8192];
    struct err err = ERR_INIT;
    struct index_options options = { .create = true };
    memset(text, 'x', sizeof(text));
    char *data = NULL;
    size_t len = 0;
    build_index(&data, &len);
    write_db(text, sizeof(text), 0, true);
    assert_null(index_open(scratch, &options, &err));
    assert_int_equal(err.code, ERR_CORRUPT);
    data[68] = 'Z'; /* application_id */
    write_db(data, len, 0, true);
    assert_null(index_open(scratch, &options, &err));
    assert_int_equal(err.code, ERR_CORRUPT);
    write_db(data, 50, 0, true);
    assert_null(index_open(scratch, &options, &err));
    assert_int_equal(err.code, ERR_CORRUPT);
    write_db(data, 0, 0, true); /* as after a crash while it was made */
    ix = index_open(scratch, &options, &err);
    assert_non_null(ix);
    index_close(ix);
    free(data);
}

/* ---- full and failing disks ---- */
static unsigned freed, ran;
static bool helps;

static void
free_reserve(void *arg)
{
    (void)arg;
    freed++;
    if (helps)
        atomic_store(&write_errno, 0);
}

static int
insert_counted(struct index_tx *tx, void *arg, struct err *err)
{
    ran++;
    return index_node_insert(tx, arg, err);
}

static void
open_with_reserve(void)
{
    struct err err = ERR_INIT;
    struct index_options options = { .create = true, .free_reserve = free_reserve };
    freed = ran = 0;
    ix = index_open(scratch, &options, &err);
    assert_non_null(ix);
}

static void
test_a_change_is_one_write(void **state)
{
    (void)state;
    struct index_node row;
    quiet();
    take_over_pwrite();
    ix = open_or_fail(scratch);
    fill_node(&row, 2, "first");
    write_ok(insert_node, &row); /* the WAL's own head, too */
    for (unsigned i = 0; i < 50; i++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "n%u", i);
        fill_node(&row, 2, name);
        unsigned before = atomic_load(&writes);
        write_ok(insert_node, &row);
        assert_int_equal(atomic_load(&writes) - before, 1);
        read_ok(find_node, &row);
    }
    index_close(ix);
}

static void
test_full_disk_frees_the_reserve(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct index_node row;
    quiet();
    take_over_pwrite();
    open_with_reserve();
    helps = true;
    atomic_store(&write_errno, ENOSPC);
    fill_node(&row, 2, "a");
    RUN_OK(err, index_write(ix, INDEX_FULL, insert_counted, &row, &err));
    assert_int_equal(freed, 1);
    assert_int_equal(ran, 1);
    index_close(ix);
    ix = open_or_fail(scratch);
    RUN_OK(err, index_read(ix, find_node, &row, &err));
    index_close(ix);
}

static void
test_full_disk_without_help(void **state)
{
    (void)state;
    static const int reasons[] = { ENOSPC, EDQUOT, EFBIG };
    struct err err = ERR_INIT;
    struct index_node row;
    quiet();
    take_over_pwrite();
    open_with_reserve();
    helps = false;
    fill_node(&row, 2, "kept");
    RUN_OK(err, index_write(ix, INDEX_NORMAL, insert_node, &row, &err));
    for (unsigned i = 0; i < 3; i++) {
        atomic_store(&write_errno, reasons[i]);
        fill_node(&row, 2, "a");
        assert_int_equal(index_write(ix, INDEX_NORMAL, insert_node, &row, &err), -1);
        assert_int_equal(err.code, ERR_NO_SPACE);
        assert_null(strstr(err.msg, "locked"));
        /* Reading goes on, and shows nothing of the change. */
        assert_int_equal(index_read(ix, find_node, &row, &err), -1);
        assert_int_equal(err.code, ERR_NOT_FOUND);
        fill_node(&row, 2, "kept");
        RUN_OK(err, index_read(ix, find_node, &row, &err));
    }
    assert_int_equal(freed, 1); /* only for a full disk, and tried once */
    atomic_store(&write_errno, 0);
    fill_node(&row, 2, "a");
    RUN_OK(err, index_write(ix, INDEX_NORMAL, insert_node, &row, &err)); /* without a restart */
    index_close(ix);
}

static char tmpfs_file[192];
static void
remove_tmpfs_file(void *arg)
{
    (void)arg;
    freed++;
    (void)unlink(tmpfs_file);
}

/* In a mount namespace of its own; answers the exit status. */
static int
fill_real_disk(void)
{
    struct err err = ERR_INIT;
    struct index_options options = { .create = true, .free_reserve = remove_tmpfs_file };
    struct index_node row;
    unsigned i = 0;
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", scratch, "tmpfs", 0, "size=4m") != 0)
        return 77;
    (void)snprintf(tmpfs_file, sizeof(tmpfs_file), "%s/reserve", scratch);
    int fd = open(tmpfs_file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || posix_fallocate(fd, 0, 1 << 20) != 0 || close(fd) != 0)
        return 1;
    ix = index_open(scratch, &options, &err);
    if (ix == NULL)
        return 2;
    int rc = 0;
    for (; rc == 0 && i < 100000; i++) {
        name_of(&row, 0, i);
        rc = index_write(ix, INDEX_NORMAL, insert_pair, &row, &err);
    }
    unsigned lost = i - 1;
    if (rc == 0 || err.code != ERR_NO_SPACE || freed == 0)
        return 3;
    for (i = 0; i < lost; i++) {
        name_of(&row, 0, i);
        if (index_read(ix, find_node, &row, &err) != 0)
            return 4;
    }
    name_of(&row, 0, lost);
    if (index_read(ix, find_node, &row, &err) == 0)
        return 5;
    if (mount("tmpfs", scratch, "tmpfs", MS_REMOUNT, "size=16m") != 0)
        return 6;
    name_of(&row, 0, lost);
    if (index_write(ix, INDEX_FULL, insert_pair, &row, &err) != 0)
        return 7;
    index_close(ix);
    return 0;
}

static void
test_really_full_disk(void **state)
{
    (void)state;
    int status = 0;
    quiet();
    if (geteuid() != 0) {
        print_message("not root: no small file system to fill\n");
        skip();
    }
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(fill_real_disk());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) {
        print_message("no mount namespaces here: no small file system to fill\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

static unsigned
syncs_of(enum index_durability durability)
{
    static unsigned number;
    char name[32];
    struct err err = ERR_INIT;
    struct index_node row;
    unsigned before = atomic_load(&syncs);
    for (int i = 0; i < 10; i++) {
        (void)snprintf(name, sizeof(name), "s%u", number++);
        fill_node(&row, 2, name);
        RUN_OK(err, index_write(ix, durability, insert_node, &row, &err));
    }
    return atomic_load(&syncs) - before;
}

/* INV-2: what is behind an fsync is on the disk before the answer; the rest does not wait for it. */
static void
test_durable_changes_are_synced(void **state)
{
    (void)state;
    for (int round = 0; round < 2; round++) { /* a new index, and one that was there */
        ix = open_or_fail(scratch);
        assert_true(syncs_of(INDEX_FULL) >= 10);
        assert_true(syncs_of(INDEX_NORMAL) <= 2);
        assert_true(syncs_of(INDEX_FULL) >= 10);
        index_close(ix);
    }
}

/* INV-2 */
static void
test_failed_sync_is_never_a_success_later(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct index_node row;
    quiet();
    ix = open_or_fail(scratch);
    fill_node(&row, 2, "a");
    RUN_OK(err, index_write(ix, INDEX_FULL, insert_node, &row, &err));
    atomic_store(&sync_errno, EIO);
    fill_node(&row, 2, "b");
    assert_int_equal(index_write(ix, INDEX_FULL, insert_node, &row, &err), -1);
    assert_int_equal(err.code, ERR_IO);
    atomic_store(&sync_errno, 0);
    for (int i = 0; i < 2; i++) { /* neither level */
        fill_node(&row, 2, "c");
        assert_int_equal(
            index_write(ix, i == 0 ? INDEX_FULL : INDEX_NORMAL, insert_node, &row, &err), -1);
        assert_int_equal(err.code, ERR_IO);
    }
    fill_node(&row, 2, "a");
    RUN_OK(err, index_read(ix, find_node, &row, &err)); /* reading goes on */
    index_close(ix);
    ix = open_or_fail(scratch);
    fill_node(&row, 2, "d");
    RUN_OK(err, index_write(ix, INDEX_FULL, insert_node, &row, &err));
    index_close(ix);
}

int
main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup_scratch, teardown_scratch)
    const struct CMUnitTest tests[] = {
        T(test_damage_before_open_is_never_served),
        T(test_damage_after_open_is_never_served),
        T(test_row_checksum),
        T(test_newer_format_is_refused_untouched),
        T(test_older_format_is_brought_up),
        T(test_format_6_is_brought_up),
        T(test_early_format_is_refused_untouched),
        T(test_newer_format_in_the_wal),
        T(test_other_files_are_refused),
        T(test_a_change_is_one_write),
        T(test_full_disk_frees_the_reserve),
        T(test_full_disk_without_help),
        T(test_really_full_disk),
        T(test_durable_changes_are_synced),
        T(test_failed_sync_is_never_a_success_later),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
