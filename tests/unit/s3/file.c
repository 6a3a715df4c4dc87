/* What lies on the disk, and what other programs do to it. */
#include "tests/unit/s3/file_fixture.h"

/* ---- names ---- */

static void
natural_paths(void **state)
{
    struct store *store = *state;

    assert_int_equal(put(store, "reports/clean.csv", "a,b\n", none), 0);
    assert_string_equal(res.etag, "f69f5b72bc79a92dc70c63c9aa142e36"); /* md5sum(1) */
    assert_file("reports/clean.csv", "a,b\n");
    assert_int_equal(put(store, ".holdfast/store.json", "{}", none), 0);
    assert_file(".holdfast/store.json", "{}");
}

static void
file_moves_aside_for_a_directory(void **state)
{
    struct store *store = *state;

    assert_int_equal(put(store, "a", "file", none), 0);
    assert_file("a", "file");
    assert_int_equal(put(store, "a/b", "inside", none), 0);
    assert_file("a/b", "inside");
    assert_file(".hf~o~a", "file");
    assert_holds(store, "a", "file");
}

static void
empty_directories_go(void **state)
{
    struct store *store = *state;
    struct store_delete del = { .key = "x/y//z" };

    assert_int_equal(put(store, "x/y//z", "1", none), 0);
    assert_int_equal(store_delete(store, &del, NULL, &err), 0);
    assert_int_equal(access(path_of("x"), F_OK), -1);
    assert_int_equal(access(dir, F_OK), 0);
}

/* ---- other programs in the directory ---- */

static void
foreign_file_appears(void **state)
{
    struct store *store = *state;
    struct store_put_result own;
    char etag[LIMIT_ETAG];
    struct store_cond match = { .kind = STORE_COND_MATCH, .etag = etag };

    assert_int_equal(mkdir(path_of("drop"), 0755), 0);
    write_file("drop/ü x.txt", "foreign");
    assert_listed(store, "drop/ü x.txt ");
    assert_holds(store, "drop/ü x.txt", "foreign");
    assert_int_equal(put(store, "drop/ü x.txt", "lost", absent), -1);
    assert_int_equal(err.code, ERR_CONFLICT);
    etag_of(store, "drop/ü x.txt", etag);
    assert_non_null(strchr(etag, '-')); /* not the shape of an MD5 */
    assert_int_equal(store_put_small(store, "drop/ü x.txt", "ours", 4, match, &own, &err), 0);
    assert_file("drop/ü x.txt", "ours");
}

/* The ETag changes whenever the bytes do, also at once and at the same size; the worst case is one clock tick. */
static void
foreign_etag_changes(void **state)
{
    struct store *store = *state;
    char before[LIMIT_ETAG];
    char after[LIMIT_ETAG];
    char text[8];

    for (int i = 0; i < 20; i++) {
        (void)snprintf(text, sizeof(text), "v%03d", i);
        write_file("f", text);
        etag_of(store, "f", after);
        if (i > 0)
            assert_string_not_equal(before, after);
        memcpy(before, after, sizeof(before));
        etag_of(store, "f", after);
        assert_string_equal(before, after);
    }
}

/* The tick of the kernel's coarse clock is up to 10 ms: an ETag is given out only when the next change has another time. */
static void
foreign_etag_waits_for_rest(void **state)
{
    struct store *store = *state;
    struct timespec now;
    char etag[LIMIT_ETAG];
    struct stat st;

    write_file("f", "x");
    etag_of(store, "f", etag);
    clock_gettime(CLOCK_REALTIME, &now);
    assert_int_equal(stat(path_of("f"), &st), 0);
    assert_true((now.tv_sec - st.st_ctim.tv_sec) * NS_PER_S + now.tv_nsec - st.st_ctim.tv_nsec >=
                20 * NS_PER_MS);
}

/* cp over an object of ours keeps inode and attributes; it must not keep the version. */
static void
overwritten_in_place(void **state)
{
    struct store *store = *state;
    struct store_object object;
    char etag[LIMIT_ETAG];
    struct meta meta;
    struct store_put req = { .key = "k",
                             .body = { .mem = "ours", .fd = -1, .size = 4 },
                             .meta = &meta };
    struct store_get get = { .key = "k", .if_match = etag };

    meta_init(&meta);
    assert_int_equal(meta_set(&meta, "holdfast-version", "1", &err), 0);
    assert_int_equal(store_put(store, &req, &res, &err), 0);
    meta_release(&meta);
    memcpy(etag, res.etag, sizeof(etag));
    write_file("k", "cp'd"); /* same size, most likely within one tick of the coarse clock */
    store_object_init(&object);
    assert_int_equal(store_head(store, "k", 0, &object, &err), 0);
    assert_string_not_equal(object.etag, etag);
    assert_null(meta_get(&object.meta, "holdfast-version"));
    store_object_release(&object);
    assert_int_equal(store_get(store, &get, NULL, &err), -1);
    assert_int_equal(err.code, ERR_CONFLICT);
    assert_holds(store, "k", "cp'd");
}

static void
foreign_over_moved_aside(void **state)
{
    struct store *store = *state;
    struct store_delete del = { .key = "a" };

    assert_int_equal(put(store, "a/b", "1", none), 0);
    assert_int_equal(put(store, "a", "odd", none), 0);
    assert_int_equal(unlink(path_of("a/b")), 0);
    assert_int_equal(rmdir(path_of("a")), 0);
    assert_holds(store, "a", "odd");
    write_file("a", "plain");
    assert_holds(store, "a", "plain");
    assert_listed(store, "a ");
    assert_int_equal(store_delete(store, &del, NULL, &err), 0);
    assert_listed(store, "");
    assert_int_equal(store_head(store, "a", 0, NULL, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
}

static void
links_and_pipes_are_no_objects(void **state)
{
    struct store *store = *state;

    assert_int_equal(symlink("/etc", path_of("link")), 0);
    assert_int_equal(symlink("/etc/passwd", path_of("file-link")), 0);
    assert_int_equal(mkfifo(path_of("pipe"), 0644), 0);
    assert_listed(store, "");
    assert_int_equal(store_head(store, "link/passwd", 0, NULL, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_int_equal(store_head(store, "file-link", 0, NULL, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_int_equal(store_head(store, "pipe", 0, NULL, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_int_equal(put(store, "link/x", "1", none), -1);
    assert_int_equal(err.code, ERR_STORE_AWAY);
    assert_int_equal(put(store, "pipe", "1", none), -1);
    assert_int_equal(err.code, ERR_STORE_AWAY);
    assert_int_equal(res.outcome, STORE_NOT_DONE);
}

static void
vanished_directory_is_not_empty(void **state)
{
    struct store *store = *state;
    char moved[128];
    struct store_list list = { .prefix = "", .fn = append_key };

    assert_int_equal(put(store, "k", "1", none), 0);
    (void)snprintf(moved, sizeof(moved), "%s/moved", top);
    assert_int_equal(rename(dir, moved), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(store_head(store, "other", 0, NULL, &err), -1);
        assert_int_equal(err.code, ERR_STORE_AWAY);
        assert_non_null(strstr(err.msg, dir));
        assert_int_equal(store_list(store, &list, &err), -1);
        assert_int_equal(err.code, ERR_STORE_AWAY);
        assert_int_equal(put(store, "k", "2", none), -1);
        assert_int_equal(err.code, ERR_STORE_AWAY);
        assert_int_equal(mkdir(dir, 0755), i == 0 ? 0 : -1); /* another directory in its place */
    }
    assert_int_equal(rmdir(dir), 0);
    assert_int_equal(rename(moved, dir), 0);
    assert_holds(store, "k", "1");
}

static void
bad_bytes_are_not_copied(void **state)
{
    struct store *store = *state;
    struct store_copy copy = { .from = "k", .to = "to" };
    struct timespec times[2];
    struct stat st;

    assert_int_equal(put(store, "k", "good", none), 0);
    assert_int_equal(stat(path_of("k"), &st), 0);
    write_file("k", "goof");
    times[0] = st.st_atim;
    times[1] = st.st_mtim;
    assert_int_equal(utimensat(AT_FDCWD, path_of("k"), times, 0), 0);
    assert_int_equal(store_copy(store, &copy, &res, &err), -1);
    assert_int_equal(err.code, ERR_CORRUPT);
    assert_int_equal(res.outcome, STORE_NOT_DONE);
    assert_int_equal(access(path_of("to"), F_OK), -1);
}

/* ---- metadata ---- */

static void
check_metadata(struct store **store, bool sidecars)
{
    struct store_object object;
    struct meta meta;
    struct store_put req = { .key = "d/k",
                             .body = { .mem = "m", .fd = -1, .size = 1 },
                             .meta = &meta };
    struct store_delete del = { .key = "d/k" };

    if (sidecars)
        file_store_use_sidecars(*store);
    req.content_type = "text/x";
    meta_init(&meta);
    assert_int_equal(meta_set(&meta, "holdfast-version", "01J", &err), 0);
    assert_int_equal(store_put(*store, &req, &res, &err), 0);
    assert_int_equal(store_put(*store, &req, &res, &err), 0);
    meta_release(&meta);
    store_free(*store);
    *store = file_store_open(dir, &err);
    assert_non_null(*store);
    store_object_init(&object);
    assert_int_equal(store_head(*store, "d/k", 0, &object, &err), 0);
    assert_string_equal(object.etag, res.etag);
    assert_string_equal(object.content_type, "text/x");
    assert_string_equal(meta_get(&object.meta, "holdfast-version"), "01J");
    store_object_release(&object);
    if (sidecars)
        assert_int_equal(count_names(".hf~meta"), 1);
    assert_listed(*store, "d/k ");
    assert_int_equal(store_delete(*store, &del, NULL, &err), 0);
    if (sidecars)
        assert_int_equal(count_names(".hf~meta"), 0);
}

static void
metadata_survives(void **state)
{
    struct store *store = *state;
    check_metadata(&store, false);
    *state = store;
}

static void
metadata_survives_in_sidecars(void **state)
{
    struct store *store = *state;
    check_metadata(&store, true);
    *state = store;
}

static void
metadata_too_large_for_an_attribute(void **state)
{
    struct store *store = *state;
    struct store_object object;
    static char value[LIMIT_META_BYTES - 8];
    struct meta meta;
    struct store_put req = { .key = "k",
                             .body = { .mem = "m", .fd = -1, .size = 1 },
                             .meta = &meta };

    memset(value, 'v', sizeof(value) - 1);
    meta_init(&meta);
    assert_int_equal(meta_set(&meta, "large", value, &err), 0);
    assert_int_equal(store_put(store, &req, &res, &err), 0);
    meta_release(&meta);
    store_object_init(&object);
    assert_int_equal(store_head(store, "k", 0, &object, &err), 0);
    assert_string_equal(meta_get(&object.meta, "large"), value);
    store_object_release(&object);
}

/* ---- processes ---- */

/* Each child adds to the number by compare and swap; no update may be lost between processes. */
static int
count_up(unsigned times)
{
    struct store *store = file_store_open(dir, &err);
    int rc = store ? 0 : -1;

    for (unsigned done = 0; rc == 0 && done < times;) {
        struct store_object object;
        struct store_cond match = { .kind = STORE_COND_MATCH, .etag = object.etag };
        char *data = NULL;
        char text[32];
        size_t len;

        store_object_init(&object);
        rc = store_get_small(store, "n/counter", 30, &data, &len, &object, &err);
        if (rc == 0) {
            (void)snprintf(text, sizeof(text), "%ld", strtol(data, NULL, 10) + 1);
            if (put(store, "n/counter", text, match) == 0)
                done++;
            else if (err.code != ERR_CONFLICT)
                rc = -1;
        }
        free(data);
        store_object_release(&object);
    }
    store_free(store);
    return rc;
}

static void
conditions_hold_between_processes(void **state)
{
    struct store *store = *state;
    pid_t pids[3];

    assert_int_equal(put(store, "n/counter", "0", none), 0);
    for (int i = 0; i < 3; i++) {
        pids[i] = fork();
        if (pids[i] == 0)
            _exit(count_up(20) == 0 ? 0 : 1);
        assert_true(pids[i] > 0);
    }
    for (int i = 0; i < 3; i++) {
        int status;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
    assert_holds(store, "n/counter", "60");
}

static void
held_lock_meets_the_deadline(void **state)
{
    struct store *store = *state;
    struct store_put req = { .key = "k", .body = { .mem = "x", .fd = -1, .size = 1 } };
    int fd = open(path_of(".hf~lock/tree"), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    int64_t start = clock_mono_ns();

    assert_true(fd >= 0);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    req.deadline_ns = start + 100 * NS_PER_MS;
    assert_int_equal(store_put(store, &req, &res, &err), -1);
    assert_int_equal(err.code, ERR_STORE_TIMEOUT);
    assert_int_equal(res.outcome, STORE_NOT_DONE);
    assert_true(clock_mono_ns() - start < 5 * NS_PER_S);
    close(fd);
    assert_int_equal(count_names(".hf~tmp"), 0);
    assert_int_equal(put(store, "k", "x", absent), 0);
}

static void
leftovers_are_swept(void **state)
{
    struct store *store = *state;
    struct store *second;

    write_file(".hf~tmp/01J", "half");
    second = file_store_open(dir, &err); /* the first one may be writing it */
    assert_non_null(second);
    assert_int_equal(count_names(".hf~tmp"), 1);
    store_free(second);
    store_free(store);
    *state = file_store_open(dir, &err);
    assert_non_null(*state);
    assert_int_equal(count_names(".hf~tmp"), 0);
    assert_listed(*state, "");
}

/* ---- opening ---- */

static void
opening_fails_clearly(void **state)
{
    char path[128];

    (void)state;
    write_file("plain", "x");
    assert_null(file_store_open(path_of("plain"), &err));
    assert_int_equal(err.code, ERR_USAGE);
    assert_non_null(strstr(err.msg, "not a directory"));
    (void)snprintf(path, sizeof(path), "%s/no/such/parent", top);
    assert_null(file_store_open(path, &err));
    assert_int_equal(err.code, ERR_STORE_AWAY);
    assert_non_null(strstr(err.msg, path));
}

static void
does_not_leak_descriptors(void **state)
{
    struct store *store = *state;
    struct store_copy copy = { .from = "a/b", .to = "c/d" };
    struct store_delete del = { .key = "a/b" };
    int before = fcntl(0, F_DUPFD_CLOEXEC, 0);
    int after;

    close(before);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(put(store, "a", "1", none), 0);
        assert_int_equal(put(store, "a/b", "1", none), 0);
        assert_int_equal(put(store, "a/b", "1", absent), -1);
        assert_int_equal(store_copy(store, &copy, &res, &err), 0);
        assert_int_equal(store_delete(store, &del, NULL, &err), 0);
        assert_int_equal(store_head(store, "x/y", 0, NULL, &err), -1);
        assert_listed(store, "a c/d ");
    }
    after = fcntl(0, F_DUPFD_CLOEXEC, 0);
    close(after);
    assert_int_equal(before, after);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(natural_paths),
        TEST(file_moves_aside_for_a_directory),
        TEST(empty_directories_go),
        TEST(foreign_file_appears),
        TEST(foreign_etag_changes),
        TEST(foreign_etag_waits_for_rest),
        TEST(overwritten_in_place),
        TEST(foreign_over_moved_aside),
        TEST(links_and_pipes_are_no_objects),
        TEST(vanished_directory_is_not_empty),
        TEST(bad_bytes_are_not_copied),
        TEST(metadata_survives),
        TEST(metadata_survives_in_sidecars),
        TEST(metadata_too_large_for_an_attribute),
        TEST(conditions_hold_between_processes),
        TEST(held_lock_meets_the_deadline),
        TEST(leftovers_are_swept),
        TEST(opening_fails_clearly),
        TEST(does_not_leak_descriptors),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
