#include "versioning/index.h"

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
#include <unistd.h>

#include "base/log.h"
#include "support/alloc.h"

/* Every allocation of the index fails once; what was answered is there afterwards, and nothing else breaks. */

static char scratch[64];

static int
insert(struct index_tx *tx, void *arg, struct err *err)
{
    return index_node_insert(tx, arg, err);
}

static int
find(struct index_tx *tx, void *arg, struct err *err)
{
    struct index_node *row = arg, out;
    return index_node_child(tx, row->parent, row->name, row->name_len, &out, err);
}

static void
name_node(struct index_node *row, unsigned long n)
{
    memset(row, 0, sizeof(*row));
    row->volume = 1;
    row->parent = 2;
    row->kind = INDEX_FILE;
    row->name_len = (uint16_t)snprintf(row->name, sizeof(row->name), "n%lu", n);
}

/* True when the row was answered for. */
static bool
use(unsigned long n)
{
    struct err err = ERR_INIT;
    struct index_options options = { .create = true };
    struct index_node row;
    name_node(&row, n);
    struct index *index = index_open(scratch, &options, &err);
    if (index == NULL) {
        assert_int_equal(err.code, ERR_NOMEM);
        return false;
    }
    bool written = index_write(index, INDEX_NORMAL, insert, &row, &err) == 0;
    if (!written)
        assert_true(err.code == ERR_NOMEM || err.code == ERR_IO);
    name_node(&row, n);
    err = (struct err)ERR_INIT;
    if (index_read(index, find, &row, &err) != 0)
        assert_true(err.code == ERR_NOMEM || err.code == ERR_IO ||
                    (!written && err.code == ERR_NOT_FOUND));
    index_close(index);
    return written;
}

static bool
is_there(unsigned long n)
{
    struct err err = ERR_INIT;
    struct index_options options = { .create = true };
    struct index_node row;
    name_node(&row, n);
    struct index *index = index_open(scratch, &options, &err);
    if (index == NULL)
        fail_msg("%s", err.msg);
    bool found = index_read(index, find, &row, &err) == 0;
    if (!found)
        assert_int_equal(err.code, ERR_NOT_FOUND);
    index_close(index);
    return found;
}

static void
remove_scratch(void)
{
    DIR *dir = opendir(scratch);
    assert_non_null(dir);
    const struct dirent *item;
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): the stream is not shared */
    while ((item = readdir(dir)) != NULL) {
        if (item->d_name[0] != '.')
            assert_int_equal(unlinkat(dirfd(dir), item->d_name, 0), 0);
    }
    closedir(dir);
    assert_int_equal(rmdir(scratch), 0);
}

static void
make_scratch(void)
{
    const char *base = secure_getenv("TMPDIR");
    (void)snprintf(scratch, sizeof(scratch), "%s/hf-index-XXXXXX", base != NULL ? base : "/tmp");
    assert_non_null(mkdtemp(scratch));
}

static void
sweep(bool anew)
{
    unsigned long n = 1, count = 0;
    int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    log_redirect(fd);
    make_scratch();
    do {
        if (anew) { /* also the making of the index */
            remove_scratch();
            make_scratch();
        }
        alloc_fail_at(n);
        bool written = use(n);
        count = alloc_count();
        alloc_reset();
        assert_int_equal(is_there(n), written);
    } while (count >= n++);
    assert_true(n > 10);
    remove_scratch();
}

static void
test_new_index(void **state)
{
    (void)state;
    sweep(true);
}

static void
test_old_index(void **state)
{
    (void)state;
    sweep(false);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_new_index),
        cmocka_unit_test(test_old_index),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
