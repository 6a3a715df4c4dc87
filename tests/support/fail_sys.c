#include "support/fail_sys.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/parse.h"
#include "base/sys.h"

#define KINDS(X) \
    X(any)       \
    X(openat)    \
    X(pread)     \
    X(pwrite)    \
    X(fdatasync) \
    X(fsync)     \
    X(ftruncate) \
    X(fallocate) \
    X(renameat2) \
    X(linkat)    \
    X(unlinkat)  \
    X(mkdirat)   \
    X(fstatvfs)

enum kind {
#define X(name) KIND_##name,
    KINDS(X)
#undef X
        KIND_COUNT
};

static const char *const kind_names[KIND_COUNT] = {
#define X(name) #name,
    KINDS(X)
#undef X
};

#define MAX_RULES 16

static struct {
    enum kind kind;
    unsigned long n;
    bool onwards;
    int action;
} rules[MAX_RULES];

static size_t rule_count;
static _Atomic unsigned long counts[KIND_COUNT];
static const struct sys_table *next; /* NULL: not installed */

/* What to do at this call: an errno, a FAIL_SYS_ action, or 0. */
static int
decide(enum kind kind)
{
    unsigned long of_any = atomic_fetch_add(&counts[KIND_any], 1) + 1;
    unsigned long of_kind = atomic_fetch_add(&counts[kind], 1) + 1;
    for (size_t i = 0; i < rule_count; i++) {
        if (rules[i].kind != kind && rules[i].kind != KIND_any)
            continue;
        unsigned long n = rules[i].kind == KIND_any ? of_any : of_kind;
        if (n == rules[i].n || (rules[i].onwards && n > rules[i].n))
            return rules[i].action;
    }
    return 0;
}

static bool
fails(enum kind kind)
{
    int action = decide(kind);
    if (action < 0)
        (void)raise(SIGKILL);
    if (action > 0)
        errno = action;
    return action != 0;
}

static int
fail_openat(int dir, const char *path, int flags, mode_t mode)
{
    return fails(KIND_openat) ? -1 : next->openat(dir, path, flags, mode);
}

static ssize_t
fail_pread(int fd, void *data, size_t len, off_t off)
{
    return fails(KIND_pread) ? -1 : next->pread(fd, data, len, off);
}

static ssize_t
fail_pwrite(int fd, const void *data, size_t len, off_t off)
{
    int action = decide(KIND_pwrite);
    if (action == 0)
        return next->pwrite(fd, data, len, off);
    if (action == FAIL_SYS_TEAR)
        (void)!next->pwrite(fd, data, len / 2, off);
    if (action < 0)
        (void)raise(SIGKILL);
    errno = action;
    return -1;
}

static int
fail_fdatasync(int fd)
{
    return fails(KIND_fdatasync) ? -1 : next->fdatasync(fd);
}

static int
fail_fsync(int fd)
{
    return fails(KIND_fsync) ? -1 : next->fsync(fd);
}

static int
fail_ftruncate(int fd, off_t size)
{
    return fails(KIND_ftruncate) ? -1 : next->ftruncate(fd, size);
}

static int
fail_fallocate(int fd, int mode, off_t off, off_t len)
{
    return fails(KIND_fallocate) ? -1 : next->fallocate(fd, mode, off, len);
}

static int
fail_renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    return fails(KIND_renameat2) ? -1 : next->renameat2(from_dir, from, to_dir, to, flags);
}

static int
fail_linkat(int from_dir, const char *from, int to_dir, const char *to, int flags)
{
    return fails(KIND_linkat) ? -1 : next->linkat(from_dir, from, to_dir, to, flags);
}

static int
fail_unlinkat(int dir, const char *path, int flags)
{
    return fails(KIND_unlinkat) ? -1 : next->unlinkat(dir, path, flags);
}

static int
fail_mkdirat(int dir, const char *path, mode_t mode)
{
    return fails(KIND_mkdirat) ? -1 : next->mkdirat(dir, path, mode);
}

static int
fail_fstatvfs(int fd, struct statvfs *out)
{
    return fails(KIND_fstatvfs) ? -1 : next->fstatvfs(fd, out);
}

static const struct sys_table wrapper = {
    .openat = fail_openat,
    .pread = fail_pread,
    .pwrite = fail_pwrite,
    .fdatasync = fail_fdatasync,
    .fsync = fail_fsync,
    .ftruncate = fail_ftruncate,
    .fallocate = fail_fallocate,
    .renameat2 = fail_renameat2,
    .linkat = fail_linkat,
    .unlinkat = fail_unlinkat,
    .mkdirat = fail_mkdirat,
    .fstatvfs = fail_fstatvfs,
};

void
fail_sys_install(void)
{
    if (next)
        return;
    next = sys;
    sys = &wrapper;
}

void
fail_sys_remove(void)
{
    if (next)
        sys = next;
    next = NULL;
    fail_sys_reset();
}

static bool
find_kind(const char *name, size_t len, enum kind *out)
{
    for (int i = 0; i < KIND_COUNT; i++) {
        if (strlen(kind_names[i]) == len && memcmp(kind_names[i], name, len) == 0) {
            *out = (enum kind)i;
            return true;
        }
    }
    return false;
}

static bool
add_rule(enum kind kind, unsigned long n, bool onwards, int action)
{
    if (rule_count == MAX_RULES || n == 0 || action == 0)
        return false;
    rules[rule_count].kind = kind;
    rules[rule_count].n = n;
    rules[rule_count].onwards = onwards;
    rules[rule_count].action = action;
    rule_count++;
    return true;
}

bool
fail_sys_at(const char *kind, unsigned long n, bool onwards, int action)
{
    enum kind k;
    return find_kind(kind, strlen(kind), &k) && add_rule(k, n, onwards, action);
}

static bool
parse_action(const char *text, size_t len, int *out)
{
    char word[32];
    if (len >= sizeof(word))
        return false;
    memcpy(word, text, len);
    word[len] = '\0';
    if (strcmp(word, "kill") == 0 || strcmp(word, "tear") == 0) {
        *out = word[0] == 'k' ? FAIL_SYS_KILL : FAIL_SYS_TEAR;
        return true;
    }
    for (int e = 1; e < 134; e++) { /* EHWPOISON, 133, is the last */
        char number[8];
        const char *name = strerrorname_np(e);
        (void)snprintf(number, sizeof(number), "%d", e);
        if (strcmp(word, number) == 0 || (name && strcmp(word, name) == 0)) {
            *out = e;
            return true;
        }
    }
    return false;
}

static bool
parse_rule(const char *text, size_t len)
{
    const char *end = text + len;
    const char *first = memchr(text, ':', len);
    const char *second = first ? memchr(first + 1, ':', (size_t)(end - first) - 1) : NULL;
    if (!second)
        return false;
    enum kind kind;
    uint64_t n;
    int action;
    bool onwards = second[-1] == '+';
    size_t digits = (size_t)(second - first) - 1 - onwards;
    return find_kind(text, (size_t)(first - text), &kind) && parse_u64_n(first + 1, digits, &n) &&
           parse_action(second + 1, (size_t)(end - second) - 1, &action) &&
           add_rule(kind, n, onwards, action);
}

bool
fail_sys_parse(const char *spec)
{
    for (const char *at = spec; *at != '\0';) {
        size_t len = strcspn(at, ",");
        if (!parse_rule(at, len))
            return false;
        at += len + (at[len] == ',');
    }
    return true;
}

void
fail_sys_reset(void)
{
    rule_count = 0;
    for (int i = 0; i < KIND_COUNT; i++)
        atomic_store(&counts[i], 0);
}

unsigned long
fail_sys_count(const char *kind)
{
    enum kind k;
    return find_kind(kind, strlen(kind), &k) ? atomic_load(&counts[k]) : 0;
}

/* A test with a misspelt rule would pass for the wrong reason, so it does not start. */
__attribute__((constructor)) static void
install_from_environment(void)
{
    const char *spec = secure_getenv("HOLDFAST_TEST_SYS");
    if (!spec || spec[0] == '\0')
        return;
    if (!fail_sys_parse(spec)) {
        (void)fprintf(stderr, "HOLDFAST_TEST_SYS: '%s' is not kind:n:action\n", spec);
        abort();
    }
    fail_sys_install();
}
