#ifndef TESTS_UNIT_CACHE_CACHE_FIXTURE_H
#define TESTS_UNIT_CACHE_CACHE_FIXTURE_H

/* What the tests of the cache share: a scratch state directory, and system calls that can be told to fail. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sys.h"
#include "cache/cache.h"

#define RUN_OK(err, call)                         \
    do {                                          \
        if ((call) != 0)                          \
            fail_msg("%s: %s", #call, (err).msg); \
    } while (0)

static char scratch[128];
static struct cache *cache;
static struct cache_limits limits;

/* ---- system calls ---- */
static struct {
    int fdatasync_errno, pwrite_errno, openat_errno;
    uint64_t free_bytes; /* what the disk says; 0: the truth */
    unsigned fdatasyncs, fsyncs;
} plan;
static struct sys_table table;

static inline int
plan_fdatasync(int fd)
{
    plan.fdatasyncs++;
    if (plan.fdatasync_errno == 0)
        return sys_real.fdatasync(fd);
    errno = plan.fdatasync_errno;
    return -1;
}

static inline int
plan_fsync(int fd)
{
    plan.fsyncs++;
    return sys_real.fsync(fd);
}

static inline ssize_t
plan_pwrite(int fd, const void *data, size_t len, off_t off)
{
    if (plan.pwrite_errno == 0)
        return sys_real.pwrite(fd, data, len, off);
    errno = plan.pwrite_errno;
    return -1;
}

static inline int
plan_fstatvfs(int fd, struct statvfs *out)
{
    int rc = sys_real.fstatvfs(fd, out);
    if (plan.free_bytes > 0)
        out->f_bavail = plan.free_bytes / out->f_frsize;
    return rc;
}

/* ---- the scratch directory ---- */
static inline int
remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st;
    (void)kind;
    (void)ftw;
    return remove(path);
}

static inline void
open_cache(void)
{
    struct err err = ERR_INIT;
    cache = cache_open(scratch, &limits, &err);
    if (cache == NULL)
        fail_msg("cache_open: %s", err.msg);
}

static inline int
setup(void **state)
{
    (void)state;
    const char *base = secure_getenv("TMPDIR");
    (void)snprintf(scratch, sizeof(scratch), "%s/hf-cache-XXXXXX", base != NULL ? base : "/tmp");
    assert_non_null(mkdtemp(scratch));
    memset(&plan, 0, sizeof(plan));
    table = sys_real;
    table.fdatasync = plan_fdatasync;
    table.fsync = plan_fsync;
    table.pwrite = plan_pwrite;
    table.fstatvfs = plan_fstatvfs;
    sys = &table;
    limits = (struct cache_limits){ .max_bytes = 64u << 20 };
    open_cache();
    return 0;
}

static inline int
teardown(void **state)
{
    (void)state;
    cache_close(cache);
    cache = NULL;
    sys = &sys_real;
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread is left */
    assert_int_equal(nftw(scratch, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
    return 0;
}

static inline void
reopen_cache(void)
{
    cache_close(cache);
    open_cache();
}

/* Whether `name` is there below the state directory. */
static inline bool
on_disk(const char *name)
{
    char path[256];
    (void)snprintf(path, sizeof(path), "%s/%s", scratch, name);
    return access(path, F_OK) == 0;
}

/* A file of `len` bytes of `byte`. */
static inline struct cache_file *
make_file(int64_t number, size_t len, char byte, bool staged)
{
    struct err err = ERR_INIT;
    struct cache_file *file = cache_create(cache, number, NULL, staged, &err);
    char *data = malloc(len + 1);
    if (file == NULL || data == NULL) {
        fail_msg("cache_create: %s", err.msg);
        return NULL;
    }
    memset(data, byte, len);
    RUN_OK(err, cache_file_write(file, data, len, 0, &err));
    free(data);
    return file;
}

static inline void
make_closed(int64_t number, size_t len, bool staged)
{
    cache_put(make_file(number, len, 'x', staged));
}

static inline bool
is_cached(int64_t number)
{
    struct err err = ERR_INIT;
    struct cache_file *file = cache_get(cache, number, &err);
    if (file == NULL)
        assert_int_equal(err.code, ERR_NOT_FOUND);
    cache_put(file);
    return file != NULL;
}

#endif
