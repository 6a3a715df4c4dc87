#ifndef CACHE_CACHE_H
#define CACHE_CACHE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/hash.h"
#include "base/limits.h"
#include "base/ulid.h"

/*
 * Content files on the local disk: `STATE/cache/<xx>/<number>` (xx: the last two hex digits of the number), one sparse file
 * per version, never renamed, and while blocks are missing, `<number>.map` beside it. `STATE/cache/metas` describes the staged
 * ones, so that losing the index loses no staged byte. The cache knows nothing of the index or the store: the caller says what is
 * pinned, and is asked before anything is discarded.
 *
 * Space (INV-7): `max_bytes` for all content files, `floor_bytes` of free disk that is never used up, and a reserve file
 * that keeps index and journal alive on a full disk. Staged (pinned) bytes are never evicted; when they alone fill the
 * cache, cache_space_take() answers ERR_NO_SPACE before any byte is accepted.
 *
 * Thread safe. No lock is held across disk I/O of more than metadata.
 */
struct cache;
struct cache_file;

struct cache_limits {
    uint64_t max_bytes;     /* 0: 80 % of the file system */
    uint64_t floor_bytes;   /* free space that stays free */
    uint64_t reserve_bytes; /* size of the reserve file, allocated for real */
};

/* Asked for candidates in LRU order when space is wanted: the caller drops the index row and answers true, or refuses.
 * Called without a lock; may not call back into the cache but for cache_pinned(). */
typedef bool cache_evict_fn(void *arg, int64_t number);

struct cache *cache_open(const char *state_dir, const struct cache_limits *limits,
                         struct err *err) MUST_CHECK;
void cache_close(struct cache *cache);
void cache_on_evict(struct cache *cache, cache_evict_fn *fn, void *arg);

/* Told of each content file that was removed, without a lock, from any thread; NULL ends it, and then nobody is inside. */
typedef void cache_gone_fn(void *arg, int64_t number);
void cache_on_gone(struct cache *cache, cache_gone_fn *fn, void *arg);

/* What cache/metas says of a staged file: enough to adopt it without an index. */
struct cache_meta {
    char volume[LIMIT_VOLUME_NAME + 1];
    char path[LIMIT_PATH + 1];
    char node[ULID_SIZE];
    char version[ULID_SIZE]; /* "" while LIVE */
    char base_version[ULID_SIZE];
    char base_etag[LIMIT_ETAG];
    char sha256[SHA256_HEX]; /* once frozen and hashed */
    char run[64];
    char actor[64];
    uint32_t mode, uid, gid;
    int64_t mtime_ns;
    uint64_t size; /* once frozen */
    bool live;
};

/* A new empty content file; its number comes from the index and must be unused. `meta` is written first (may be NULL for
 * CLEAN files). The file is counted as pinned when `staged`. */
struct cache_file *cache_create(struct cache *cache, int64_t number, const struct cache_meta *meta,
                                bool staged, struct err *err) MUST_CHECK;
/* Opens an existing one; shared and counted: the same object for all callers until the last cache_put(). ERR_NOT_FOUND. */
struct cache_file *cache_get(struct cache *cache, int64_t number, struct err *err) MUST_CHECK;
struct cache_file *cache_ref(struct cache_file *file);
void cache_put(struct cache_file *file);
int64_t cache_file_number(const struct cache_file *file);
int cache_file_fd(const struct cache_file *file); /* stays the cache's; read-write */
int cache_file_size(struct cache_file *file, uint64_t *size,
                    struct err *err) MUST_CHECK; /* of the file on disk */

/* Reading: short only at end of file. The caller makes sure that the blocks are present. */
ssize_t cache_file_read(struct cache_file *file, void *out, size_t len, uint64_t off,
                        struct err *err) MUST_CHECK;
/* Writing to a LIVE file: takes space first (ERR_NO_SPACE, ERR_QUOTA are told before a byte is accepted). */
int cache_file_write(struct cache_file *file, const void *data, size_t len, uint64_t off,
                     struct err *err) MUST_CHECK;
int cache_file_truncate(struct cache_file *file, uint64_t size, struct err *err) MUST_CHECK;
int cache_file_allocate(struct cache_file *file, int mode, uint64_t off, uint64_t len,
                        struct err *err) MUST_CHECK;
/* Bytes of one file into another, or of a file elsewhere into itself, by the disk (shared where it can). Answers how many; short
 * where `from` ends. ERR_UNSUPPORTED: this disk cannot. */
ssize_t cache_file_copy_range(struct cache_file *to, uint64_t to_off, struct cache_file *from,
                              uint64_t from_off, size_t len, struct err *err) MUST_CHECK;
/* Copies all bytes of `from` (reflink where possible). */
int cache_file_copy(struct cache_file *to, struct cache_file *from, struct err *err) MUST_CHECK;
/* Level two of kept: fdatasync of the file and its meta, fsync of the directories on the way the first time. A failed
 * sync is never reported as a success later: the file stays marked and every further call fails (INV-2). */
int cache_file_sync(struct cache_file *file, struct err *err) MUST_CHECK;
int cache_file_hash(struct cache_file *file, uint64_t size, uint8_t sha256[SHA256_SIZE],
                    uint8_t md5[MD5_SIZE], struct err *err) MUST_CHECK;
/* The same when it is known without reading: a file that was made here, and written from its beginning to its end. */
bool cache_file_hashed(struct cache_file *file, uint64_t size, uint8_t sha256[SHA256_SIZE],
                       uint8_t md5[MD5_SIZE]);
/* For a kernel that works on the file by itself (FUSE passthrough). A descriptor of the caller's for reading only; ERR_NOT_FOUND
 * when the file has no name any more. */
int cache_file_reader(struct cache_file *file, int *fd, struct err *err) MUST_CHECK;
/* Somebody else writes to it from now on: no hashes are made while writing. */
void cache_file_unseen(struct cache_file *file);
/* Bytes that others may be reading change from now on: cache_file_stirs() moves. */
void cache_file_stir(struct cache_file *file);
uint64_t cache_file_stirs(struct cache_file *file);
/* Counts what the file takes on disk now, after changes that did not come through here. */
void cache_file_settle(struct cache_file *file);
/* Whether its file system keeps nothing over a power cut, or its room is not that of a disk. */
bool cache_in_memory(struct cache *cache);
int cache_meta_write(struct cache_file *file, const struct cache_meta *meta,
                     struct err *err) MUST_CHECK;
int cache_meta_read(struct cache *cache, int64_t number, struct cache_meta *out,
                    struct err *err) MUST_CHECK;

/* Partly present files. cache_map_begin() makes a sparse file of `size` with every block missing; without a map a file is
 * complete. Blocks are CACHE_BLOCK_SIZE (the last one shorter). A map belongs to one boot (`boot_id` in it); from another boot
 * it counts as all missing unless cache_map_seal() fdatasynced data and map. */
int cache_map_begin(struct cache_file *file, uint64_t size, struct err *err) MUST_CHECK;
/* The first missing run of blocks touching [off, off+len), as a byte range clipped to the file; false when all are there. */
bool cache_map_missing(struct cache_file *file, uint64_t off, uint64_t len, uint64_t *miss_off,
                       uint64_t *miss_len);
bool cache_complete(struct cache_file *file);
/* Bytes on their way into missing blocks: written as they come, each block marked once it is whole. Blocks that are there stay
 * as they are: a writer may have changed them since. The caller sees to it that a block has one filler at a time. After an error `off` tells how far it came; it may go on there. */
struct cache_fill {
    struct cache_file *file;
    uint64_t off,
        end; /* the next byte, and behind the last; both at borders of blocks or the end of the file */
    uint64_t promised; /* space taken for the block at `off` */
    bool begun, there; /* that block: some of it came; it was there before */
};
int cache_fill_bytes(struct cache_fill *fill, const void *data, size_t len,
                     struct err *err) MUST_CHECK;
void cache_fill_end(struct cache_fill *fill);
/* Lends bytes to a reader: their blocks stay until cache_read_end(). False, and nothing to end: some are missing. */
struct cache_reading {
    struct cache_file *file; /* with a reference */
    uint64_t first, end;     /* blocks */
    struct cache_reading *next;
    bool listed;
};
bool cache_read_begin(struct cache_file *file, uint64_t off, uint64_t len,
                      struct cache_reading *out);
void cache_read_end(struct cache_reading *reading);
/* Of a CLEAN file with missing blocks, which may be larger than the cache: gives up to `bytes` of its blocks back to the disk,
 * the ones that were filled first first, none that is lent. Answers how many bytes. */
uint64_t cache_map_drop(struct cache_file *file, uint64_t bytes);
/* fdatasyncs the data, then the map with the blocks that were there before: these count in any boot from now on. */
int cache_map_seal(struct cache_file *file, struct err *err) MUST_CHECK;

/* Space and life. */
void cache_pin(struct cache *cache, int64_t number); /* staged: never evicted */
void cache_unpin(struct cache *cache, int64_t number);
/* The bucket has its bytes: it is unpinned, and needs no meta any more. */
void cache_clean(struct cache *cache, int64_t number);
bool cache_pinned(struct cache *cache, int64_t number);
void cache_touch(struct cache *cache, int64_t number); /* used now */
/* Unlinks file, meta and map; open users keep reading. Missing is fine. */
void cache_remove(struct cache *cache, int64_t number);
/* Makes room for `bytes`: evicts down to the low watermark; ERR_NO_SPACE when pinned bytes or the floor stand in the way. */
int cache_space_take(struct cache *cache, uint64_t bytes, struct err *err) MUST_CHECK;
struct cache_usage {
    uint64_t files, bytes, pinned_files, pinned_bytes, max_bytes, free_bytes, floor_bytes;
    bool reserve_freed;
};
void cache_usage(struct cache *cache, struct cache_usage *out);
void cache_reserve_free(struct cache *cache); /* gives the reserve's space back to the disk */
int cache_reserve_restore(struct cache *cache,
                          struct err *err) MUST_CHECK; /* when there is room again */

/* Every content file on disk, for start-up and rebuild. */
typedef int cache_scan_fn(void *arg, int64_t number, uint64_t disk_bytes, bool has_meta,
                          bool has_map, struct err *err);
int cache_scan(struct cache *cache, cache_scan_fn *fn, void *arg, struct err *err) MUST_CHECK;
/* Moves a content file without a row to STATE/lost/ (kept 7 days; older ones there are removed at open). */
int cache_lose(struct cache *cache, int64_t number, struct err *err) MUST_CHECK;

#endif
