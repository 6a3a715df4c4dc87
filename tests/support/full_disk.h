#ifndef TESTS_SUPPORT_FULL_DISK_H
#define TESTS_SUPPORT_FULL_DISK_H

#include <errno.h>
#include <sys/types.h>

/* For the table of base/sys.h: a disk that takes no byte more. */
static inline ssize_t
full_disk_pwrite(int fd, const void *data, size_t len, off_t off)
{
    (void)fd;
    (void)data;
    (void)len;
    (void)off;
    errno = ENOSPC;
    return -1;
}

#endif
