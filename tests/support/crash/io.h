#ifndef SUPPORT_CRASH_IO_H
#define SUPPORT_CRASH_IO_H

#include <stdint.h>

/*
 * libcrash_io.so, put under a program with LD_PRELOAD, sees every call of the program and its libraries (SQLite too) that
 * changes files below one directory. It can kill the process at the n-th of them, and it can write them all into a
 * journal from which powercut.h builds what a disk could hold after the power went.
 *
 *   CRASH_IO_ROOT     the directory below which calls count as points
 *   CRASH_IO_KIND     which calls: "any", or names of CRASH_IO_KINDS with commas between them
 *   CRASH_IO_KILL     SIGKILL at the n-th point, instead of the call; a write is done by half first when CRASH_IO_TEAR
 *                     is set
 *   CRASH_IO_ARMED    count from the start; else from crash_io_arm()
 *   CRASH_IO_COUNTS   file that gets "kind count" lines at crash_io_report()
 *   CRASH_IO_JOURNAL  file that gets the records below; CRASH_IO_DIR: the directory they are about
 *   CRASH_IO_NOSYNC   fsync and its like answer 0 without waiting: kill -9 does not ask for them, and the journal has its
 *                     own idea of what is durable
 *
 * `commit` is the write that makes a transaction of SQLite's WAL count (instead of a `write`); put to delete_done are told by the
 * program's store (points.h), before a request is sent and behind its effect.
 *
 * Not seen: mmap (SQLite's -shm only, which it makes anew after a crash), file descriptors from other processes,
 * openat2. One lock keeps the journal in the order of the calls.
 */
#define CRASH_IO_KINDS(X) \
    X(create)             \
    X(write)              \
    X(truncate)           \
    X(allocate)           \
    X(fdatasync)          \
    X(fsync)              \
    X(rename)             \
    X(link)               \
    X(unlink)             \
    X(mkdir)              \
    X(copy)               \
    X(commit)             \
    X(put)                \
    X(put_done)           \
    X(copy_object)        \
    X(copy_object_done)   \
    X(delete)             \
    X(delete_done)

/* The program's side: weak, so that it also runs without the library. */
void crash_io_arm(void) __attribute__((weak));
void crash_io_report(void) __attribute__((weak));
/* For programs that fork instead of starting anew: arms with these kinds and that point (0: none), and counts from 0. */
void crash_io_aim(const char *kinds, unsigned long at) __attribute__((weak));
unsigned long crash_io_count(const char *kind)
    __attribute__((weak)); /* "any": the kinds aimed at */
/* A point of the program's own. */
void crash_io_event(const char *kind) __attribute__((weak));

enum crash_io_op {
    CRASH_IO_CREATE = 1, /* path1, ino; dir says a folder */
    CRASH_IO_WRITE,      /* ino, off, len and so many bytes behind the paths */
    CRASH_IO_SIZE,       /* ino, len: the new size */
    CRASH_IO_RENAME,     /* path1, path2; off: flags of renameat2 */
    CRASH_IO_LINK,       /* ino, path2 */
    CRASH_IO_UNLINK,     /* path1; dir says rmdir */
    CRASH_IO_SYNC,       /* ino: file or folder */
    CRASH_IO_SYNC_ALL,
};

#define CRASH_IO_MAGIC 0x48664a31u
/* Paths are relative to CRASH_IO_DIR, without NUL. */
struct crash_io_record {
    uint32_t magic;
    uint8_t op;
    uint8_t dir;
    uint16_t len1, len2;
    uint16_t reserved[3];
    uint64_t ino, off, len;
};

#endif
