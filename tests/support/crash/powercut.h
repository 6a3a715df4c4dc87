#ifndef SUPPORT_CRASH_POWERCUT_H
#define SUPPORT_CRASH_POWERCUT_H

#include <stdint.h>

/*
 * A disk after the power went, built from the journal of libcrash_io.so. The model is POSIX's and not one file system's:
 *
 *  - bytes and size of a file are there when fsync or fdatasync of it answered after they were written; a name (made,
 *    renamed, removed) is there when its folder was synced after the change. A file's own fsync keeps no name.
 *  - of everything else a random part is there. Names: none, all, the first so many (a journaling file system), or any
 *    subset. Bytes, for each file by itself: none, all, the first so many writes with the last one cut at a sector, any
 *    subset of 512-byte sectors, or the new size without the bytes (zeros).
 *  - bytes written behind an unsynced truncation are there only together with it.
 *
 * Not in the model: disks that lie about flushes, bit rot, SQLite's -shm (left out: it is made anew), times of files.
 */
struct powercut;

/* Copies `live`, all of which counts as durable, to `base` and remembers its files. Nobody may be writing. */
struct powercut *powercut_begin(const char *live, const char *base);
/* Makes `to`: base, then what `journal` says happened to `live` since, as a cut at its end may leave it. */
void powercut_build(struct powercut *cut, const char *journal, const char *to, uint64_t seed);
/* Records in the last journal, and changes that were not durable. */
uint64_t powercut_records(const struct powercut *cut);
uint64_t powercut_loose(const struct powercut *cut);
void powercut_end(struct powercut *cut);

#endif
