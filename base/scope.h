#ifndef BASE_SCOPE_H
#define BASE_SCOPE_H

#include <pthread.h>
#include <stdlib.h>

/*
 * Scope cleanup: `scope_free char *p = ...;` frees p when the scope ends, `scope_fd int fd = -1;`
 * closes it, `scope_unlock pthread_mutex_t *held = lock(&m);` unlocks it. `steal(&p)` takes the
 * value out so that nothing happens.
 */
#define scope(fn) __attribute__((cleanup(fn)))
#define scope_free scope(scope_free_ptr)
#define scope_fd scope(scope_close_fd)
#define scope_unlock __attribute__((unused)) scope(scope_unlock_mutex)

#define steal(ptr)                                \
    __extension__({                               \
        __typeof__(*(ptr)) steal_value_ = *(ptr); \
        *(ptr) = NULL;                            \
        steal_value_;                             \
    })

static inline int
steal_fd(int *fd)
{
    int value = *fd;
    *fd = -1;
    return value;
}

static inline pthread_mutex_t *
scope_lock(pthread_mutex_t *mutex)
{
    pthread_mutex_lock(mutex);
    return mutex;
}

/* Defined in scope.c; `value` points at the variable. Freeing NULL and closing -1 do nothing;
 * errno is kept. */
void scope_free_ptr(void *value);
void scope_close_fd(int *fd);
void scope_unlock_mutex(pthread_mutex_t **mutex);

/* Overwrites `len` bytes in a way that the compiler does not remove. NULL with 0 is allowed. */
void secret_wipe(void *mem, size_t len);
/* Wipes and frees a NUL-terminated secret; for `scope(secret_free_ptr) char *key`. */
void secret_free_ptr(char **value);
#define scope_secret scope(secret_free_ptr)

#endif
