#ifndef GATEWAY_FDPASS_H
#define GATEWAY_FDPASS_H

#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"

/* Packets with descriptors beside them (unix(7), SCM_RIGHTS). Blocking. */
#define FDPASS_MAX 8

int gateway_fdpass_send(int sock, const void *data, size_t len, const int *fds, size_t count,
                        struct err *err) MUST_CHECK;
/* Answers the packet's length, 0 at the end. Descriptors come with O_CLOEXEC; more than `*count` of them is an error. */
ssize_t gateway_fdpass_receive(int sock, void *data, size_t size, int *fds, size_t *count,
                               struct err *err) MUST_CHECK;

#endif
