#ifndef TESTS_UNIT_S3_FILE_FIXTURE_H
#define TESTS_UNIT_S3_FILE_FIXTURE_H

/* A fresh file store in a directory of its own, for the tests of s3/file*.c. */
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
#include "tests/support/tmp.h"

static const struct store_cond none = { .kind = STORE_COND_NONE };
static const struct store_cond absent = { .kind = STORE_COND_ABSENT };
static struct err err;
static struct store_put_result res;
static char dir[128];
static char top[96];

static inline int
setup(void **state)
{
    (void)snprintf(top, sizeof(top), "%s/holdfast-file.XXXXXX", tmp_base());
    if (!mkdtemp(top))
        return -1;
    (void)snprintf(dir, sizeof(dir), "%s/store", top);
    *state = file_store_open(dir, &err);
    if (!*state)
        print_message("%s\n", err.msg);
    return *state ? 0 : -1;
}

static inline int
remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static inline int
teardown(void **state)
{
    sys = &sys_real;
    store_free(*state);
    return nftw(top, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static inline int
put(struct store *store, const char *key, const char *text, struct store_cond cond)
{
    return store_put_small(store, key, text, strlen(text), cond, &res, &err);
}

static inline const char *
path_of(const char *name)
{
    static char paths[4][4096];
    static unsigned next;
    char *path = paths[next++ % 4];

    (void)snprintf(path, sizeof(paths[0]), "%s/%s", dir, name);
    return path;
}

static inline void
write_file(const char *name, const char *text)
{
    int fd = open(path_of(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

static inline void
assert_file(const char *name, const char *text)
{
    char got[256] = "";
    int fd = open(path_of(name), O_RDONLY | O_CLOEXEC);

    assert_true(fd >= 0);
    assert_true(read(fd, got, sizeof(got) - 1) >= 0);
    close(fd);
    assert_string_equal(got, text);
}

static inline void
assert_holds(struct store *store, const char *key, const char *text)
{
    char *data = NULL;
    size_t len = 0;

    assert_int_equal(store_get_small(store, key, 1000, &data, &len, NULL, &err), 0);
    assert_string_equal(data, text);
    free(data);
}

static inline void
etag_of(struct store *store, const char *key, char etag[LIMIT_ETAG])
{
    struct store_object object;

    store_object_init(&object);
    assert_int_equal(store_head(store, key, 0, &object, &err), 0);
    memcpy(etag, object.etag, LIMIT_ETAG);
    store_object_release(&object);
}

static inline unsigned
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

static inline int
append_key(void *arg, const struct store_list_entry *entry, struct err *list_err)
{
    char *text = arg;
    size_t len = strlen(text);

    (void)list_err;
    (void)snprintf(text + len, 1024 - len, "%s ", entry->key);
    return 0;
}

static inline void
assert_listed(struct store *store, const char *wanted)
{
    char text[1024] = "";
    struct store_list req = { .prefix = "", .fn = append_key, .arg = text };

    assert_int_equal(store_list(store, &req, &err), 0);
    assert_string_equal(text, wanted);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

#endif
