#ifndef VOLUME_FETCH_IMPL_H
#define VOLUME_FETCH_IMPL_H

#include "volume/service_impl.h"

/*
 * What fetch.c, flight.c, small.c and prefetch.c share. `fetcher.lock` is a leaf. Requests in the background take a slot each
 * and hold little memory: bytes are gathered to a part of a block and go to the cache's files.
 */
#define FETCH_SPAN (4u << 20)    /* how much one request brings at most, but for small files */
#define FETCH_SMALL (256u << 10) /* files up to this come whole, through memory */

struct prefetcher;

struct fetcher {
    struct volume_service *service;
    struct pool *pool;
    pthread_mutex_t lock;
    unsigned slots, busy;
    int64_t number, number_end; /* of content files to come, given by the index */
    uint64_t ahead_max;         /* bytes that one reader's window may have */
    struct prefetcher *prefetch;
    _Atomic uint64_t bytes, requests, joined, direct;
    _Atomic uint64_t ahead_bytes, ahead_wasted;
    _Atomic uint64_t prefetched, prefetch_used, prefetch_wasted;
};

/* A slot for one request in the background; false: all are taken. */
bool fetch_enter(struct fetcher *fetcher);
void fetch_leave(struct fetcher *fetcher);

/* A request under way into missing blocks of a content file, in its inode's list: no other one brings the same blocks. */
struct flight {
    struct flight *next;
    struct volume_service *service; /* of those in the background */
    struct inode *inode;            /* those in the background hold a reference */
    struct cache_file *file;        /* referenced */
    uint64_t off, end;              /* whole blocks, or up to the end of the file */
    bool ahead;                     /* nobody has asked for it yet */
    bool may_drop; /* for a reader: where the cache is full, other blocks of the same file may go */
    atomic_bool cancel;
    /* answers */
    bool stale; /* the entry holds other bytes by now */
    bool local; /* it was our disk that failed */
    char key[LIMIT_KEY + 1];
    char etag[LIMIT_ETAG];
};

/* flight.c; all want inode->lock, which flight_run_locked() drops while it waits for the store. */
void flight_begin_locked(struct inode *inode, struct flight *flight, uint64_t off, uint64_t end);
int flight_run_locked(struct volume_service *service, struct flight *flight, int64_t deadline_ns,
                      struct err *err) MUST_CHECK;
/* The first blocks in [off, end) that are missing and that nobody brings; false: none. */
bool flight_unclaimed_locked(struct inode *inode, uint64_t off, uint64_t end, uint64_t *from,
                             uint64_t *to);
/* Who brings the block at `off`, NULL: nobody. */
struct flight *flight_at_locked(struct inode *inode, uint64_t off);
/* Starts requests in the background for what nobody brings of [off, end), as far as there are slots. */
void flight_spread_locked(struct volume_service *service, struct inode *inode, uint64_t off,
                          uint64_t end, uint64_t span);
/* The same for what the readers will want next. */
void flight_ahead_locked(struct volume_service *service, struct inode *inode);
/* A crash may have come between the last block and its row; an empty file never had a block to fetch. */
int fetch_note_complete(struct volume_service *service, struct inode *inode,
                        struct err *err) MUST_CHECK;

/* small.c: the rows of a file of which nothing is here. */
struct small_rows {
    struct index_node node;
    bool fits; /* it may come whole */
};
int small_look(struct volume_service *service, int64_t node, struct small_rows *out,
               struct err *err) MUST_CHECK;
/* Brings it; wants inode->lock, drops it. 1: `inode->file` is there. 0: somebody else, or the long way, has to look. */
int small_bring_locked(struct volume_service *service, struct inode *inode,
                       const struct small_rows *rows, int64_t deadline_ns,
                       struct err *err) MUST_CHECK;

/* prefetch.c */
int prefetch_open(struct volume_service *service, struct err *err) MUST_CHECK;

#endif
