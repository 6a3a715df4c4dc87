#ifndef CACHE_CACHE_IMPL_H
#define CACHE_CACHE_IMPL_H

#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/scope.h"
#include "base/sys.h"
#include "cache/cache.h"

/*
 * What the files of the cache share. Locks in taking order; under them at most opens, stats and unlinks, and the few bytes of a
 * map or a meta:
 *   file->map_lock, file->meta_lock   one file's map, one file's meta (never both)
 *   file->running.lock                one file's hashes (never with another)
 *   cache->lock                       the table, the LRU list, the counts, references
 *   cache->reserve_lock               the reserve (never with another)
 * Against this order cache_meta_unpair() only tries a meta_lock.
 */

/* A content file on disk, or one that is removed and still open. */
struct entry {
    int64_t number;
    struct entry *chain;         /* of the hash table */
    struct entry *older, *newer; /* of the LRU list, which holds exactly what may be evicted */
    struct cache_file *file;     /* while open */
    uint64_t bytes;              /* on disk, as counted in the cache's sum */
    uint64_t asked;              /* the eviction pass that was refused this one */
    bool listed;                 /* in the LRU list */
    bool pinned;
    bool removed; /* not in the table any more */
    bool has_map;
    uint32_t pair; /* of its meta in cache/metas, counted from 1; 0: none */
    /* INV-2: a sync failed; what the kernel dropped cannot be known, so no later one counts. */
    atomic_bool failed;
    atomic_bool dirs_synced; /* the directories on the way to the file are on disk */
};

struct cache_map {
    bool loaded;
    uint64_t size; /* of the file when complete */
    uint64_t blocks;
    uint64_t missing;              /* blocks */
    uint8_t *bits;                 /* NULL: complete */
    uint64_t hand;                 /* where cache_map_drop() goes on */
    struct cache_reading *reading; /* of a file with missing blocks: what is being read of it */
};

/* The hashes of what was written so far (running.c). */
struct cache_running {
    pthread_mutex_t lock;      /* a leaf */
    struct hash *sha256, *md5; /* both or none */
    bool forbidden;            /* others write past us */
    uint64_t end;
};

struct cache_file {
    struct cache *cache;
    struct entry *entry;
    unsigned refs; /* by cache->lock */
    int fd;
    pthread_mutex_t map_lock;
    struct cache_map map;
    pthread_mutex_t meta_lock;
    bool meta_known;       /* the two below are */
    unsigned meta_slot;    /* of the pair: where the newest meta lies */
    bool meta_slot_synced; /* then the next one goes to the other slot */
    struct cache_running running;
    _Atomic uint64_t stirs;
};

/* Pairs of cache/metas that belong to nobody. */
struct free_pairs {
    uint32_t *pair;
    size_t count, room;
};

struct cache {
    char *state_dir; /* for what people read */
    int state_fd, dir_fd, lost_fd, metas_fd;
    uint32_t pairs; /* that cache/metas has room for, by cache->lock as the next */
    struct free_pairs free_pairs;
    _Atomic uint64_t metas_turn; /* the last one given */
    struct cache_limits limits;
    char boot_id[SYS_BOOT_ID_SIZE];
    pthread_mutex_t lock;
    struct entry **table;
    size_t buckets, count;
    struct entry *oldest, *newest;
    uint64_t files, bytes, pinned_files, pinned_bytes;
    uint64_t promised; /* space taken for writes that are under way */
    uint64_t pass;
    cache_evict_fn *evict;
    void *evict_arg;
    pthread_mutex_t gone_lock; /* held over gone(), which takes leaves only */
    cache_gone_fn *gone;
    void *gone_arg;
    pthread_mutex_t reserve_lock;
    bool reserve_freed;
};

/* Names relative to cache->dir_fd. */
#define CACHE_NAME_SIZE 40
enum cache_part { CACHE_DATA, CACHE_MAP };
void cache_name(int64_t number, enum cache_part part, char out[CACHE_NAME_SIZE]);

/* After the content file is gone: what belongs to it, and its entry. */
void cache_forget(struct cache *cache, int64_t number);

/* table.c: entries; all but _init and _release want cache->lock. */
int cache_table_init(struct cache *cache, struct err *err) MUST_CHECK;
void cache_table_release(struct cache *cache);
struct entry *cache_table_find(struct cache *cache, int64_t number);
/* NULL: no memory. Not yet counted or listed. */
struct entry *cache_table_add(struct cache *cache, int64_t number);
/* Takes it out of table and list; it is freed now, or with its last user. */
void cache_table_remove(struct cache *cache, struct entry *entry);
void cache_table_set_bytes(struct cache *cache, struct entry *entry, uint64_t bytes);
void cache_table_set_pinned(struct cache *cache, struct entry *entry, bool pinned);
/* Puts it at the young end of the list, or takes it off, as its state wants. */
void cache_table_list(struct cache *cache, struct entry *entry);
void cache_table_unlist(struct cache *cache, struct entry *entry);
void cache_table_unuse(struct cache *cache, struct entry *entry); /* its file was closed */

/* space.c: takes `bytes` until cache_space_settle(), which counts what the file really has now. */
int cache_space_promise(struct cache *cache, uint64_t bytes, struct err *err) MUST_CHECK;
void cache_space_settle(struct cache_file *file, uint64_t promised);
uint64_t cache_space_on_disk(const struct stat *st);

/* running.c */
void cache_running_init(struct cache_running *running);
void cache_running_release(struct cache_running *running);
void cache_running_start(struct cache_running *running); /* of a file that is empty now */
void cache_running_stop(struct cache_running *running);
void cache_running_forbid(struct cache_running *running); /* for good */
void cache_running_truncated(struct cache_running *running, uint64_t size);
void cache_running_write(struct cache_running *running, const void *data, size_t len, uint64_t off);

/* reserve.c */
void cache_reserve_init(struct cache *cache);

/* scan.c: fills the table from the disk. */
int cache_scan_load(struct cache *cache, struct err *err) MUST_CHECK;
DIR *cache_scan_open_dir(int at, const char *name, struct err *err) MUST_CHECK;
void cache_scan_close_dir(DIR **dir);
#define scope_dir scope(cache_scan_close_dir) DIR

/* lost.c */
void cache_lost_sweep(struct cache *cache);

/* map.c; those that end in _locked want file->map_lock. */
void cache_map_release(struct cache_file *file);
int cache_map_load_locked(struct cache_file *file, struct err *err) MUST_CHECK;
int cache_map_mark_locked(struct cache_file *file, uint64_t first, uint64_t end,
                          struct err *err) MUST_CHECK;
/* These blocks count as missing from now on, in every later life too. */
int cache_map_unmark_locked(struct cache_file *file, uint64_t first, uint64_t end,
                            struct err *err) MUST_CHECK;
bool cache_map_has(const struct cache_map *map, uint64_t block);
/* The blocks [*first, *end) that touch the range; false: none, or the file is complete. */
bool cache_map_blocks(const struct cache_map *map, uint64_t off, uint64_t len, uint64_t *first,
                      uint64_t *end);
/* Whether a byte of the range is missing. */
bool cache_map_touches_missing(struct cache_file *file, uint64_t off, uint64_t len);

/* meta.c */
/* Opens cache/metas and says which entry has which pair; after the table is filled. */
int cache_meta_load(struct cache *cache, struct err *err) MUST_CHECK;
void cache_meta_unload(struct cache *cache);
/* Writes the first meta of a content and answers its pair, which is still nobody's; 0 and *err. */
uint32_t cache_meta_create(struct cache *cache, int64_t number, const struct cache_meta *meta,
                           struct err *err) MUST_CHECK;
void cache_meta_abandon(struct cache *cache, uint32_t pair);
/* The pair is free for others: the bucket has the bytes, or nobody wants them. With cache->lock. */
void cache_meta_unpair(struct cache *cache, struct entry *entry);
/* What stands in a pair that was given back is a meta no more: its content file stays, and a rebuild shall not take it for staged. With
 * cache->lock, so that nobody has the pair yet. Not synced: after a power cut it may be there again, which a rebuild finds out. */
void cache_meta_void(struct cache *cache, uint32_t pair);
int cache_meta_sync(struct cache_file *file, struct err *err) MUST_CHECK;
/* The lines of a meta as a file of their own; nothing when there is none. */
int cache_meta_export(struct cache *cache, int64_t number, int dir, const char *name,
                      struct err *err) MUST_CHECK;

#endif
