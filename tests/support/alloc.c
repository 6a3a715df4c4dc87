#include "support/alloc.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

static _Atomic unsigned long count;
static _Atomic unsigned long fail_at;

/* NOLINTBEGIN(readability-identifier-naming): ld makes these names */
void *__real_malloc(size_t size);
void *__real_calloc(size_t number, size_t size);
void *__real_realloc(void *mem, size_t size);
char *__real_strdup(const char *text);
char *__real_strndup(const char *text, size_t len);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t number, size_t size);
void *__wrap_realloc(void *mem, size_t size);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t len);
/* NOLINTEND(readability-identifier-naming) */

void
alloc_fail_at(unsigned long n)
{
    atomic_store(&fail_at, n);
    atomic_store(&count, 0);
}

unsigned long
alloc_count(void)
{
    return atomic_load(&count);
}

void
alloc_reset(void)
{
    alloc_fail_at(0);
}

static bool
fails(void)
{
    unsigned long n = atomic_fetch_add(&count, 1) + 1;
    if (n != atomic_load(&fail_at))
        return false;
    errno = ENOMEM;
    return true;
}

void *
__wrap_malloc(size_t size)
{
    return fails() ? NULL : __real_malloc(size);
}

void *
__wrap_calloc(size_t number, size_t size)
{
    return fails() ? NULL : __real_calloc(number, size);
}

void *
__wrap_realloc(void *mem, size_t size)
{
    return fails() ? NULL : __real_realloc(mem, size);
}

char *
__wrap_strdup(const char *text)
{
    return fails() ? NULL : __real_strdup(text);
}

char *
__wrap_strndup(const char *text, size_t len)
{
    return fails() ? NULL : __real_strndup(text, len);
}
