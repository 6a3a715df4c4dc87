#ifndef TESTS_UNIT_VERSIONING_INDEX_FIXTURE_H
#define TESTS_UNIT_VERSIONING_INDEX_FIXTURE_H

/* What the tests of the index share: a scratch directory, and short forms of the calls. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "versioning/index.h"

#define RUN_OK(err, call)                         \
    do {                                          \
        if ((call) != 0)                          \
            fail_msg("%s: %s", #call, (err).msg); \
    } while (0)

static char scratch[128];

static inline void
scratch_make(void)
{
    const char *base = secure_getenv("TMPDIR");
    (void)snprintf(scratch, sizeof(scratch), "%s/hf-index-XXXXXX", base != NULL ? base : "/tmp");
    assert_non_null(mkdtemp(scratch));
}

static inline void
scratch_remove(void)
{
    DIR *dir = opendir(scratch);
    assert_non_null(dir);
    const struct dirent *item;
    while ((item = readdir(dir)) != NULL) { /* NOLINT(concurrency-mt-unsafe) */
        if (item->d_name[0] != '.')
            assert_int_equal(unlinkat(dirfd(dir), item->d_name, 0), 0);
    }
    closedir(dir);
    assert_int_equal(rmdir(scratch), 0);
}

static inline struct index *
open_or_fail(const char *dir)
{
    struct err err = ERR_INIT;
    struct index_options options = { .create = true };
    struct index *index = index_open(dir, &options, &err);
    if (index == NULL)
        fail_msg("index_open: %s", err.msg);
    return index;
}

static inline void
fill_node(struct index_node *row, int64_t parent, const char *name)
{
    memset(row, 0, sizeof(*row));
    row->volume = 1;
    row->parent = parent;
    row->name_len = (uint16_t)strlen(name);
    memcpy(row->name, name, strlen(name));
    row->kind = INDEX_FILE;
    row->mode = 0100644;
}

static inline int
insert_node(struct index_tx *tx, void *arg, struct err *err)
{
    return index_node_insert(tx, arg, err);
}

static inline int
update_node(struct index_tx *tx, void *arg, struct err *err)
{
    return index_node_update(tx, arg, err);
}

/* Finds the child named by (parent, name) and fills the rest. */
static inline int
find_node(struct index_tx *tx, void *arg, struct err *err)
{
    struct index_node *row = arg, out;
    memset(&out, 0, sizeof(out));
    int rc = index_node_child(tx, row->parent, row->name, row->name_len, &out, err);
    if (rc == 0)
        *row = out;
    return rc;
}

/* ---- one index per test ---- */
static struct index *ix;

static inline int
setup(void **state)
{
    (void)state;
    scratch_make();
    ix = open_or_fail(scratch);
    return 0;
}

static inline int
teardown(void **state)
{
    (void)state;
    index_close(ix);
    ix = NULL;
    scratch_remove();
    return 0;
}

static inline void
reopen(void)
{
    index_close(ix);
    ix = open_or_fail(scratch);
}

static inline void
write_ok(index_fn *fn, void *arg)
{
    struct err err = ERR_INIT;
    RUN_OK(err, index_write(ix, INDEX_NORMAL, fn, arg, &err));
}

static inline void
read_ok(index_fn *fn, void *arg)
{
    struct err err = ERR_INIT;
    RUN_OK(err, index_read(ix, fn, arg, &err));
}

/* ---- rows ---- */
static inline void
set(char *to, size_t size, const char *text)
{
    assert_true(strlen(text) < size);
    memcpy(to, text, strlen(text) + 1);
}
#define SET(field, text) set(field, sizeof(field), text)

/* Fills an array up to its last place, to find a field that is cut. */
static inline void
fill_all(char *to, size_t size, char byte)
{
    memset(to, byte, size - 1);
    to[size - 1] = '\0';
}
#define FILL(field, byte) fill_all(field, sizeof(field), byte)

/* Rows that a callback was shown. */
struct tree {
    int64_t ids[8];
    unsigned count;
};

struct usage {
    uint64_t files, bytes;
};

static inline int
get_usage(struct index_tx *tx, void *arg, struct err *err)
{
    struct usage *out = arg;
    return index_node_usage(tx, 1, &out->files, &out->bytes, err);
}

static inline void
expect_usage(uint64_t files, uint64_t bytes)
{
    struct usage usage = { 99, 99 };
    read_ok(get_usage, &usage);
    assert_int_equal(usage.files, files);
    assert_int_equal(usage.bytes, bytes);
}

static inline int
get_uuid(struct index_tx *tx, void *arg, struct err *err)
{
    return index_meta_get(tx, "uuid", arg, 64, err);
}

static inline uint64_t
size_of(unsigned thread, unsigned i)
{
    return ((uint64_t)thread << 32) + i * 7ull;
}

static inline void
name_of(struct index_node *row, unsigned thread, unsigned i)
{
    char name[32];
    (void)snprintf(name, sizeof(name), "file-%u-%u", thread, i);
    fill_node(row, 2 + thread, name);
}

/* A node and its key, which must be there together or not at all. */
static inline int
insert_pair(struct index_tx *tx, void *arg, struct err *err)
{
    struct index_node *row = arg;
    struct index_key key;
    memset(&key, 0, sizeof(key));
    (void)snprintf(key.key, sizeof(key.key), "%s", row->name);
    key.size = row->size;
    if (index_node_insert(tx, row, err) != 0)
        return -1;
    return index_key_put(tx, &key, err);
}

/* A scratch directory only: the test opens the index. */
static inline int
setup_scratch(void **state)
{
    (void)state;
    scratch_make();
    return 0;
}

static inline int
teardown_scratch(void **state)
{
    (void)state;
    scratch_remove();
    return 0;
}

#endif
