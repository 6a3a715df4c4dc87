#include "base/scope.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

void
scope_free_ptr(void *value)
{
    int saved = errno;
    void *mem;
    memcpy(&mem, value, sizeof(mem)); /* the variable may have any pointer type */
    free(mem);
    errno = saved;
}

void
scope_close_fd(int *fd)
{
    if (*fd < 0)
        return;
    int saved = errno;
    (void)close(*fd);
    *fd = -1;
    errno = saved;
}

void
scope_unlock_mutex(pthread_mutex_t **mutex)
{
    if (*mutex)
        pthread_mutex_unlock(*mutex);
    *mutex = NULL;
}

void
secret_wipe(void *mem, size_t len)
{
    if (mem && len > 0)
        explicit_bzero(mem, len);
}

void
secret_free_ptr(char **value)
{
    int saved = errno;
    if (*value)
        secret_wipe(*value, strlen(*value));
    free(*value);
    *value = NULL;
    errno = saved;
}
