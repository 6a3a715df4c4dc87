#ifndef MOUNT_PROBE_H
#define MOUNT_PROBE_H

#include <stdint.h>
#include <sys/stat.h>

#include "base/err.h"

/* stat(2) of a path that a FUSE server of ours, or a dead one, may have to answer: done by a thread of its own, given up after
 * `wait_ns` (ERR_BUSY). Other failures: err->sys is the errno (ENOTCONN: a dead mount). */
int probe_stat(const char *path, int64_t wait_ns, struct stat *out, struct err *err) MUST_CHECK;

#endif
