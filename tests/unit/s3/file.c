/* What lies on the disk, what other programs do to it, and what the disk refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/sys.h"
#include "base/ulid.h"
#include "s3/file_impl.h"
#include "s3/open.h"

static const struct store_cond none = { .kind = STORE_COND_NONE };
static const struct store_cond absent = { .kind = STORE_COND_ABSENT };
static struct err err;
static struct store_put_result res;
static char dir[128];
static char top[64];

static int
setup(void **state)
{
    snprintf(top, sizeof(top), "/tmp/holdfast-file.XXXXXX");
    if (!mkdtemp(top))
        return -1;
    snprintf(dir, sizeof(dir), "%s/store", top);
    *state = file_store_open(dir, &err);
    if (!*state)
        print_message("%s\n", err.msg);
    return *state ? 0 : -1;
}

static int
remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static int
teardown(void **state)
{
    sys = &sys_real;
    store_free(*state);
    return nftw(top, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static int
put(struct store *store, const char *key, const char *text, struct store_cond cond)
{
    return store_put_small(store, key, text, strlen(text), cond, &res, &err);
}

static const char *
path_of(const char *name)
{
    static char paths[4][4096];
    static unsigned next;
    char *path = paths[next++ % 4];

    snprintf(path, sizeof(paths[0]), "%s/%s", dir, name);
    return path;
}

static void
write_file(const char *name, const char *text)
{
    int fd = open(path_of(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

static void
assert_file(const char *name, const char *text)
{
    char got[256] = "";
    int fd = open(path_of(name), O_RDONLY | O_CLOEXEC);

    assert_true(fd >= 0);
    assert_true(read(fd, got, sizeof(got) - 1) >= 0);
    close(fd);
    assert_string_equal(got, text);
}

static void
assert_holds(struct store *store, const char *key, const char *text)
{
    char *data = NULL;
    size_t len = 0;

    assert_int_equal(store_get_small(store, key, 1000, &data, &len, NULL, &err), 0);
    assert_string_equal(data, text);
    free(data);
}

static void
etag_of(struct store *store, const char *key, char etag[LIMIT_ETAG])
{
    struct store_object object;

    store_object_init(&object);
    assert_int_equal(store_head(store, key, 0, &object, &err), 0);
    memcpy(etag, object.etag, LIMIT_ETAG);
    store_object_release(&object);
}

static unsigned
count_names(const char *name)
{
    DIR *stream = opendir(path_of(name));
    unsigned count = 0;

    assert_non_null(stream);
    for (const struct dirent *entry = readdir(stream); entry; entry = readdir(stream))
        count += entry->d_name[0] != '.' ? 1 : 0;
    closedir(stream);
    return count;
}

static int
append_key(void *arg, const struct store_list_entry *entry, struct err *list_err)
{
    char *text = arg;
    size_t len = strlen(text);

    (void)list_err;
    snprintf(text + len, 1024 - len, "%s ", entry->key);
    return 0;
}

static void
assert_listed(struct store *store, const char *wanted)
{
    char text[1024] = "";
    struct store_list req = { .prefix = "", .fn = append_key, .arg = text };

    assert_int_equal(store_list(store, &req, &err), 0);
    assert_string_equal(text, wanted);
}

/* ---- names ---- */

static void
keys_have_their_places(void **state)
{
    static const struct {
        const char *key, *dir, *plain, *odd;
    } rows[] = {
        { "reports/clean.csv", "reports", "clean.csv", ".hf~o~clean.csv" },
        { "a", "", "a", ".hf~o~a" },
        { "a/", "a", "", ".hf~o~" },
        { "a//b", "a/.hf~d~", "b", ".hf~o~b" },
        { "/a", ".hf~d~", "a", ".hf~o~a" },
        { "./../x", ".hf~d~./.hf~d~..", "x", ".hf~o~x" },
        { "..", "", "", ".hf~o~.." },
        { "...", "", "...", ".hf~o~..." },
        { ".hf~tmp/x", ".hf~d~.hf~tmp", "x", ".hf~o~x" },
        { ".hf~o~a", "", "", ".hf~o~.hf~o~a" },
        { ".holdfast/store.json", ".holdfast", "store.json", ".hf~o~store.json" },
    };
    static struct file_path path;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        file_name_of_key(rows[i].key, &path);
        assert_string_equal(path.dir, rows[i].dir);
        assert_string_equal(path.plain, rows[i].plain);
        assert_string_equal(path.odd, rows[i].odd);
    }
}

static void
names_fit_the_file_system(void **state)
{
    static struct file_path path;
    char key[LIMIT_KEY + 1];

    (void)state;
    for (size_t len = 240; len <= LIMIT_KEY; len++) {
        memset(key, 'k', len);
        key[len] = '\0';
        file_name_of_key(key, &path);
        assert_int_equal(path.plain[0] != '\0', len <= LIMIT_NAME);
        for (const char *at = path.odd; *at; at += strspn(at, "/")) {
            size_t part = strcspn(at, "/");
            assert_in_range(part, 1, LIMIT_NAME);
            at += part;
        }
    }
}

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
        snprintf(text, sizeof(text), "v%03d", i);
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
    char moved[80];
    struct store_list list = { .prefix = "", .fn = append_key };

    assert_int_equal(put(store, "k", "1", none), 0);
    snprintf(moved, sizeof(moved), "%s/moved", top);
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
            snprintf(text, sizeof(text), "%ld", strtol(data, NULL, 10) + 1);
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
    snprintf(path, sizeof(path), "%s/no/such/parent", top);
    assert_null(file_store_open(path, &err));
    assert_int_equal(err.code, ERR_STORE_AWAY);
    assert_non_null(strstr(err.msg, path));
}

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

static ssize_t
full_disk(int fd, const void *data, size_t len, off_t off)
{
    (void)fd;
    (void)data;
    (void)len;
    (void)off;
    errno = ENOSPC;
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
    faulty.pwrite = full_disk;
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

static void
does_not_leak_descriptors(void **state)
{
    struct store *store = *state;
    struct store_copy copy = { .from = "a/b", .to = "c/d" };
    struct store_delete del = { .key = "a/b" };
    int before = dup(0);
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
    after = dup(0);
    close(after);
    assert_int_equal(before, after);
}

/* ---- against the store in memory, and many threads ---- */

static const char *const parts[] = { "a", "b", "a.", "a-b", "", ".", ".hf~o~a", "ü", "long" };

/* A random key of 1 to 4 components. */
static void
random_key(uint64_t *random, char *out, size_t size)
{
    char longest[261];
    size_t len = 0;
    unsigned count = 1 + (unsigned)(random_next(random) % 4);

    memset(longest, 'l', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    for (unsigned i = 0; i < count; i++) {
        const char *part = parts[random_next(random) % (sizeof(parts) / sizeof(parts[0]))];
        if (strcmp(part, "long") == 0) {
            longest[230] = (char)('0' + random_next(random) % 2);
            part = longest;
        }
        len += (size_t)snprintf(out + len, size - len, "%s%s", i ? "/" : "", part);
    }
    if (!out[0])
        snprintf(out, size, "a");
}

struct seen {
    struct buf text;
};

static int
note_entry(void *arg, const struct store_list_entry *entry, struct err *list_err)
{
    struct seen *seen = arg;

    return buf_appendf(&seen->text, list_err, "%s %d %s %llu\n", entry->key, entry->is_prefix,
                       entry->is_prefix ? "" : entry->etag, (unsigned long long)entry->size);
}

static void
compare_lists(struct store *file, struct store *mem, const struct store_list *shape)
{
    struct seen seen[2];
    struct store *stores[2] = { file, mem };

    for (int i = 0; i < 2; i++) {
        struct store_list req = *shape;
        buf_init(&seen[i].text, 1u << 20);
        req.fn = note_entry;
        req.arg = &seen[i];
        assert_int_equal(store_list(stores[i], &req, &err), 0);
    }
    assert_string_equal(buf_cstr(&seen[0].text), buf_cstr(&seen[1].text));
    buf_release(&seen[0].text);
    buf_release(&seen[1].text);
}

/* One random change on both; the same result, error and outcome. */
static void
change_both(struct store *file, struct store *mem, uint64_t *random)
{
    struct store *stores[2] = { file, mem };
    struct store_put_result results[2];
    enum store_outcome outcomes[2];
    enum err_code codes[2];
    int rc[2];
    char key[1100];
    char other[1100];
    unsigned what = (unsigned)(random_next(random) % 8);

    random_key(random, key, sizeof(key));
    random_key(random, other, sizeof(other));
    for (int i = 0; i < 2; i++) {
        struct store_delete del = { .key = key };
        struct store_copy copy = { .from = other, .to = key };
        results[i] = (struct store_put_result){ 0 };
        err.code = ERR_INTERNAL;
        if (what < 3)
            rc[i] = store_put_small(stores[i], key, other, strlen(other), what ? none : absent,
                                    &results[i], &err);
        else if (what == 3)
            rc[i] = store_copy(stores[i], &copy, &results[i], &err);
        else
            rc[i] = store_delete(stores[i], &del, &outcomes[i], &err);
        codes[i] = err.code;
    }
    assert_int_equal(rc[0], rc[1]);
    assert_int_equal(codes[0], codes[1]);
    assert_memory_equal(&results[0], &results[1], sizeof(results[0]));
}

static void
agrees_with_mem(void **state)
{
    struct store *mem = mem_store_open(&err);
    uint64_t random = 20261129;

    assert_non_null(mem);
    for (int i = 0; i < 1500; i++) {
        char prefix[1100];
        char after[1100];
        struct store_list shape = { .prefix = "", .delimiter = i % 2 ? '/' : 0 };
        change_both(*state, mem, &random);
        random_key(&random, prefix, sizeof(prefix));
        random_key(&random, after, sizeof(after));
        if (random_next(&random) % 2)
            shape.prefix = prefix;
        if (random_next(&random) % 2)
            shape.start_after = after;
        shape.limit = (unsigned)(random_next(&random) % 6);
        compare_lists(*state, mem, &shape);
    }
    store_free(mem);
}

struct worker {
    struct store *store;
    uint64_t seed;
    char message[2048];
};

/* Keys that are in each other's way as file and directory: no call may fail but by its condition. */
static void *
quarrel(void *arg)
{
    static const char *const keys[] = { "q", "q/", "q/r", "q/r/s", "q/r/s/t", "q//r" };
    struct worker *worker = arg;
    struct err own = ERR_INIT;

    for (int i = 0; i < 150; i++) {
        const char *key = keys[random_next(&worker->seed) % 6];
        struct store_delete del = { .key = key };
        char text[1024] = "";
        struct store_list list = { .prefix = "q", .fn = append_key, .arg = text };
        unsigned what = (unsigned)(random_next(&worker->seed) % 8);
        int rc;
        if (what < 4)
            rc = store_put_small(worker->store, key, key, strlen(key), what ? none : absent, NULL,
                                 &own);
        else if (what < 7)
            rc = store_delete(worker->store, &del, NULL, &own);
        else
            rc = store_list(worker->store, &list, &own);
        if (rc < 0 && own.code != ERR_CONFLICT) {
            snprintf(worker->message, sizeof(worker->message), "%s", own.msg);
            return NULL;
        }
    }
    return NULL;
}

static void
threads_in_each_others_way(void **state)
{
    pthread_t thread[6];
    struct worker worker[6];

    assert_int_equal(put(*state, "q/stays", "1", none), 0);
    for (unsigned i = 0; i < 6; i++) {
        worker[i] = (struct worker){ .store = *state, .seed = i };
        assert_int_equal(pthread_create(&thread[i], NULL, quarrel, &worker[i]), 0);
    }
    for (unsigned i = 0; i < 6; i++) {
        pthread_join(thread[i], NULL);
        assert_string_equal(worker[i].message, "");
    }
    assert_holds(*state, "q/stays", "1");
    assert_int_equal(count_names(".hf~tmp"), 0);
}

/* An object that is always there is always found and listed, while it is moved aside and back. */
static void *
keep_looking(void *arg)
{
    struct worker *worker = arg;
    struct err own = ERR_INIT;

    for (int i = 0; i < 400; i++) {
        char text[1024] = "";
        struct store_list list = { .prefix = "m", .limit = 1, .fn = append_key, .arg = text };
        if (store_head(worker->store, "m", 0, NULL, &own) < 0 ||
            store_list(worker->store, &list, &own) < 0 || strcmp(text, "m ") != 0) {
            snprintf(worker->message, sizeof(worker->message), "%d: %s %s", i, own.msg, text);
            break;
        }
    }
    return NULL;
}

static void
moving_object_is_always_found(void **state)
{
    struct worker worker = { .store = *state };
    struct store_delete inside = { .key = "m/x" };
    struct store_delete all = { .key = "m" };
    pthread_t thread;

    for (int round = 0; round < 5; round++) {
        assert_int_equal(put(*state, "m", "1", none), 0);
        assert_int_equal(pthread_create(&thread, NULL, keep_looking, &worker), 0);
        for (int i = 0; i < 20; i++) {
            assert_int_equal(put(*state, "m/x", "2", none), 0);
            assert_int_equal(store_delete(*state, &inside, NULL, &err), 0);
            assert_int_equal(put(*state, "m", "1", none), 0);
        }
        pthread_join(thread, NULL);
        assert_string_equal(worker.message, "");
        assert_int_equal(store_delete(*state, &all, NULL, &err), 0);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(keys_have_their_places),
        TEST(names_fit_the_file_system),
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
        TEST(order_of_syncs),
        TEST(failed_sync_of_the_file),
        TEST(failed_sync_of_the_directory),
        TEST(full_disk_keeps_the_old),
        TEST(read_only_directory),
        TEST(does_not_leak_descriptors),
        TEST(agrees_with_mem),
        TEST(threads_in_each_others_way),
        TEST(moving_object_is_always_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
