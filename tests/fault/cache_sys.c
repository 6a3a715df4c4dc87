#include "cache/cache.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/fail_sys.h"
#include "tests/support/fill.h"

/*
 * The life of three content files, with the n-th system call of a promise killed or failing, for every n. What was answered
 * with success before must be there when the cache is opened anew.
 */
#define BLOCK CACHE_BLOCK_SIZE
#define LEN 10000

enum step { NOTHING, WRITTEN, SYNCED, CHANGED, FILLED, SEALED, REFILLED, LOST_MADE, LOST, REMOVED };

static char scratch[64];
static void *shared;
static _Atomic int *reached; /* shared with the child: the last step that was answered with success */
static char block[BLOCK];
static char text[LEN];

static void
fill_meta(struct cache_meta *meta, const char *path)
{
    memset(meta, 0, sizeof(*meta));
    (void)snprintf(meta->path, sizeof(meta->path), "%s", path);
}

static int
reach(int rc, enum step step)
{
    if (rc == 0)
        atomic_store(reached, step);
    return rc;
}

static int
write_new(struct cache *cache, int64_t number, struct cache_file **file, struct err *err)
{
    struct cache_meta meta;
    fill_meta(&meta, "first");
    *file = cache_create(cache, number, &meta, true, err);
    if (*file == NULL)
        return -1;
    return cache_file_write(*file, text, LEN, 0, err);
}

static int
staged_life(struct cache *cache, struct err *err)
{
    struct cache_file *file = NULL;
    struct cache_meta meta;
    fill_meta(&meta, "second");
    int rc = reach(write_new(cache, 5, &file, err), WRITTEN);
    if (rc == 0)
        rc = reach(cache_file_sync(file, err), SYNCED);
    if (rc == 0)
        rc = reach(cache_meta_write(file, &meta, err), CHANGED);
    cache_put(file);
    return rc;
}

static int
partial_life(struct cache *cache, struct err *err)
{
    struct cache_file *file = cache_create(cache, 6, NULL, false, err);
    if (file == NULL)
        return -1;
    int rc = cache_map_begin(file, 3 * BLOCK, err);
    if (rc == 0)
        rc = reach(fill_blocks(file, BLOCK, block, BLOCK, err), FILLED);
    if (rc == 0)
        rc = reach(cache_map_seal(file, err), SEALED);
    if (rc == 0)
        rc = reach(fill_blocks(file, 0, block, BLOCK, err), REFILLED);
    cache_put(file);
    return rc;
}

static int
lost_life(struct cache *cache, struct err *err)
{
    struct cache_file *file = NULL;
    int rc = reach(write_new(cache, 7, &file, err), LOST_MADE);
    cache_put(file);
    return rc == 0 ? reach(cache_lose(cache, 7, err), LOST) : -1;
}

static void
live(struct cache *cache)
{
    struct err err = ERR_INIT;
    if (staged_life(cache, &err) != 0 || partial_life(cache, &err) != 0 ||
        lost_life(cache, &err) != 0)
        return;
    cache_remove(cache, 5);
    atomic_store(reached, REMOVED);
}

/* ---- what must hold ---- */
static struct cache *
open_cache(void)
{
    struct err err = ERR_INIT;
    struct cache_limits limits = { .max_bytes = 1u << 30 };
    struct cache *cache = cache_open(scratch, &limits, &err);
    if (cache == NULL)
        fail_msg("cache_open: %s", err.msg);
    return cache;
}

static void
check_staged(struct cache *cache, enum step step, bool failed)
{
    struct err err = ERR_INIT;
    struct cache_meta meta;
    static char data[LEN + 1];
    struct cache_file *file = cache_get(cache, 5, &err);
    if (file == NULL) {
        assert_true(step < WRITTEN || step >= LOST);
        return;
    }
    if (step >= WRITTEN) {
        assert_int_equal(cache_file_read(file, data, sizeof(data), 0, &err), LEN);
        assert_memory_equal(data, text, LEN);
    }
    if (step >= WRITTEN && step < LOST) {
        if (cache_meta_read(cache, 5, &meta, &err) != 0)
            fail_msg("%s", err.msg);
        if (step != SYNCED || failed)
            assert_string_equal(meta.path, step >= CHANGED ? "second" : "first");
    }
    cache_put(file);
}

static void
check_partial(struct cache *cache, enum step step)
{
    struct err err = ERR_INIT;
    uint64_t off = 0, len = 0, size = 0;
    static char data[BLOCK];
    struct cache_file *file = cache_get(cache, 6, &err);
    if (file == NULL) {
        assert_true(step < FILLED);
        return;
    }
    assert_int_equal(cache_file_size(file, &size, &err), 0);
    for (uint64_t at = 0; at < size; at += BLOCK) {
        if (cache_map_missing(file, at, BLOCK, &off, &len)) {
            assert_false(at == BLOCK && step >= FILLED);
            assert_false(at == 0 && step >= REFILLED);
            continue;
        }
        assert_int_equal(cache_file_read(file, data, BLOCK, at, &err), BLOCK);
        assert_memory_equal(data, block, BLOCK); /* never a hole that counts as bytes */
    }
    cache_put(file);
}

static int
note_lost(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)ftw;
    return kind == FTW_F && strstr(path, "/lost/7@") != NULL && st->st_size == LEN;
}

static void
check_lost(struct cache *cache, enum step step)
{
    struct err err = ERR_INIT;
    struct cache_file *file = cache_get(cache, 7, &err);
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread */
    int in_lost = nftw(scratch, note_lost, 16, FTW_PHYS);
    if (step >= LOST_MADE)
        assert_true(file != NULL || in_lost == 1);
    cache_put(file);
}

static void
check(bool failed)
{
    enum step step = (enum step)atomic_load(reached);
    struct cache *cache = open_cache();
    check_staged(cache, step, failed);
    check_partial(cache, step);
    check_lost(cache, step);
    cache_close(cache);
}

/* ---- the sweeps ---- */
static int
remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st;
    (void)kind;
    (void)ftw;
    return remove(path);
}

static int
setup(void **state)
{
    (void)state;
    const char *base = secure_getenv("TMPDIR");
    (void)snprintf(scratch, sizeof(scratch), "%s/hf-cache-XXXXXX", base != NULL ? base : "/tmp");
    assert_non_null(mkdtemp(scratch));
    memset(block, 'b', sizeof(block));
    memset(text, 't', sizeof(text));
    cache_close(open_cache()); /* the directories are made once */
    reached =
        mmap(NULL, sizeof(*reached), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(reached != MAP_FAILED);
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    fail_sys_remove();
    (void)munmap(shared, sizeof(*reached));
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread */
    assert_int_equal(nftw(scratch, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
    return 0;
}

static int
remove_lost(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st;
    (void)ftw;
    return kind == FTW_F && strstr(path, "/lost/") != NULL ? remove(path) : 0;
}

static void
forget(void)
{
    struct cache *cache = open_cache();
    for (int64_t i = 5; i <= 7; i++)
        cache_remove(cache, i);
    cache_close(cache);
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread */
    assert_int_equal(nftw(scratch, remove_lost, 16, FTW_PHYS), 0);
    atomic_store(reached, NOTHING);
}

/* True when the child came to its end, so that all calls were visited. */
static bool
killed_at(unsigned long n, int action)
{
    int status = 0;
    struct cache *cache = open_cache();
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        fail_sys_install();
        fail_sys_reset();
        if (!fail_sys_at("any", n, false, action))
            _exit(2);
        live(cache);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    cache_close(cache);
    if (WIFEXITED(status))
        assert_int_equal(WEXITSTATUS(status), 0);
    return WIFEXITED(status);
}

static void
test_killed_at_every_call(void **state)
{
    (void)state;
    static const int actions[] = { FAIL_SYS_KILL, FAIL_SYS_TEAR };
    for (unsigned i = 0; i < 2; i++) {
        unsigned long n = 1;
        while (!killed_at(n, actions[i])) {
            check(false);
            forget();
            n++;
        }
        assert_int_equal(atomic_load(reached), REMOVED);
        assert_true(n > 25);
        forget();
    }
}

static void
test_every_call_fails_once(void **state)
{
    (void)state;
    static const int errors[] = { EIO, ENOSPC };
    for (unsigned i = 0; i < 2; i++) {
        unsigned long n = 1;
        for (;; n++) {
            struct cache *cache = open_cache();
            fail_sys_install();
            fail_sys_reset();
            assert_true(fail_sys_at("any", n, false, errors[i]));
            live(cache);
            unsigned long calls = fail_sys_count("any");
            fail_sys_remove();
            struct cache_usage before, after;
            cache_usage(cache, &before);
            cache_close(cache);
            cache = open_cache();
            cache_usage(cache, &after);
            assert_int_equal(after.files, before.files); /* the count is what lies there */
            assert_int_equal(after.bytes, before.bytes);
            cache_close(cache);
            check(true);
            bool all = atomic_load(reached) == REMOVED && calls < n;
            forget();
            if (all)
                break;
        }
        assert_true(n > 25);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_killed_at_every_call, setup, teardown),
        cmocka_unit_test_setup_teardown(test_every_call_fails_once, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
