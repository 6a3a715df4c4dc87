#ifndef MOUNT_PROBE_H
#define MOUNT_PROBE_H

#include <stdint.h>
#include <sys/stat.h>

#include "base/err.h"

/*
 * stat(2) of a path that a FUSE server of ours, or a dead or hanging one, may have to answer; given up after `wait_ns`
 * (ERR_BUSY). Other failures: err->sys is the errno (ENOTCONN: a dead mount). Fills device, inode and mode.
 *
 * It is done by a forked process without any descriptor of ours. A thread would not do: a gateway that is killed while one
 * of its own threads waits for its own mount never ends, keeps the mounter's socket open, and so keeps the mount.
 */
int probe_stat(const char *path, int64_t wait_ns, struct stat *out, struct err *err) MUST_CHECK;

#endif
