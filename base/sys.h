#ifndef BASE_SYS_H
#define BASE_SYS_H

#include <stdint.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>

#include "base/err.h"

/*
 * The system calls that carry a promise go through this table, so that tests can make the n-th one
 * fail or kill the process there. Each function behaves like the call of its name: -1 and errno.
 * Everything else is called directly.
 */
struct sys_table {
    /* O_CLOEXEC is always added */
    int (*openat)(int dir, const char *path, int flags, mode_t mode);
    ssize_t (*pread)(int fd, void *data, size_t len, off_t off);
    ssize_t (*pwrite)(int fd, const void *data, size_t len, off_t off);
    int (*fdatasync)(int fd);
    int (*fsync)(int fd);
    int (*ftruncate)(int fd, off_t size);
    int (*fallocate)(int fd, int mode, off_t off, off_t len);
    int (*renameat2)(int from_dir, const char *from, int to_dir, const char *to, unsigned flags);
    int (*linkat)(int from_dir, const char *from, int to_dir, const char *to, int flags);
    int (*unlinkat)(int dir, const char *path, int flags);
    int (*mkdirat)(int dir, const char *path, mode_t mode);
    int (*fstatvfs)(int fd, struct statvfs *out);
};
extern const struct sys_table sys_real;
/* The one in use: sys_real unless a test replaced it. */
extern const struct sys_table *sys;

/* Whole-buffer forms: go on after EINTR and short counts. sys_read_full answers the bytes read
 * (less only at EOF). */
ssize_t sys_read_full(int fd, void *data, size_t len, off_t off, struct err *err) MUST_CHECK;
int sys_write_full(int fd, const void *data, size_t len, off_t off, struct err *err) MUST_CHECK;
/* Writes `name` in `dir` atomically and durably: temporary file, fdatasync, rename, fsync of the
 * directory. */
int sys_replace_file(int dir, const char *name, const void *data, size_t len, mode_t mode,
                     struct err *err) MUST_CHECK;
/* Reads a whole file of at most `max` bytes; caller frees *data (always NUL-terminated beyond
 * *len). */
int sys_read_file(int dir, const char *name, size_t max, char **data, size_t *len,
                  struct err *err) MUST_CHECK;
/* mkdir -p of an absolute or relative path; existing directories are fine. */
int sys_make_dirs(const char *path, mode_t mode, struct err *err) MUST_CHECK;
/* Copies `size` bytes between descriptors: reflink, then copy_file_range, then read and write. */
int sys_copy_range(int from, off_t from_off, int to, off_t to_off, uint64_t size,
                   struct err *err) MUST_CHECK;
/* The id of this boot from /proc/sys/kernel/random/boot_id (37 bytes with NUL).
 * HOLDFAST_TEST_BOOT_ID overrides it. */
#define SYS_BOOT_ID_SIZE 37
int sys_boot_id(char out[SYS_BOOT_ID_SIZE], struct err *err) MUST_CHECK;

#endif
