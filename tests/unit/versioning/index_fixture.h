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
    const char *base = getenv("TMPDIR"); /* NOLINT(concurrency-mt-unsafe) */
    snprintf(scratch, sizeof(scratch), "%s/hf-index-XXXXXX", base != NULL ? base : "/tmp");
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

#endif
