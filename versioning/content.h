#ifndef VERSIONING_CONTENT_H
#define VERSIONING_CONTENT_H

#include <stdbool.h>
#include <stdint.h>

/*
 * The states of a content file and what may be done with it (docs/mechanisms.md sections 2 and 3). Pure.
 *
 *   CLEAN   immutable; equals a synced version; may be discarded unless pinned
 *   LIVE    being written by a node; never discarded
 *   FROZEN  immutable; not yet synced; not discarded until it is CLEAN
 */
enum content_state { CONTENT_CLEAN = 1, CONTENT_LIVE = 2, CONTENT_FROZEN = 3 };

enum content_flags {
    CONTENT_ACKED = 1,     /* a close, fsync or HTTP answer promised these bytes at least once */
    CONTENT_DURABLE = 2,   /* the bytes were fdatasynced before the row that says so */
    CONTENT_TRUNCATED = 4, /* LIVE began empty (O_TRUNC, create): without ACKED it is a torn save */
    CONTENT_COMPLETE = 8,  /* every block is present */
    CONTENT_PINNED = 16,   /* a snapshot or an attempt needs exactly these bytes */
};

struct content_view {
    bool exists;
    enum content_state state;
    unsigned flags;
    bool attempt_sent;  /* a PUT of exactly these bytes was sent and is not known to have ended */
    bool backing_lent;  /* readers hold its backing id (passthrough) */
    bool copied;        /* FROZEN: a copy of the bytes has a row of its own */
    bool other_writers; /* the node is already open for writing */
    uint64_t size;
};

enum content_open {
    CONTENT_OPEN_JOIN,      /* LIVE already: use it */
    CONTENT_OPEN_NEW_EMPTY, /* (a) new LIVE file, nothing copied */
    CONTENT_OPEN_NEW_COPY,  /* (a), (d) new LIVE file with the bytes copied */
    CONTENT_OPEN_IN_PLACE,  /* (b) CLEAN becomes LIVE; durable commit before the answer */
    CONTENT_OPEN_THAW, /* (c) FROZEN without attempt goes back to LIVE, the intent is withdrawn */
    CONTENT_OPEN_ASIDE_IN_PLACE, /* (d) with lent backing: the uploader gets a copy, the file becomes LIVE */
    CONTENT_OPEN_FETCH_FIRST, /* bytes are missing: complete it, then ask again */
};
/* What a writing open must do. `truncate`: O_TRUNC. `copy_limit`: up to this size a CLEAN file is copied rather than
 * changed in place. */
enum content_open content_open_for_writing(const struct content_view *view, bool truncate,
                                           uint64_t copy_limit);

/* Whether the bytes may be removed from the cache. */
bool content_may_evict(const struct content_view *view);

/* What to do with a row found at start (no program has it open any more). */
enum content_recovery {
    CONTENT_KEEP, /* CLEAN, usable as it is */
    CONTENT_VERIFY, /* CLEAN after an unclean boot without durable mark: keep only if the sha256 agrees, else drop */
    CONTENT_DROP,   /* CLEAN and partial after an unclean boot */
    CONTENT_FREEZE, /* LIVE with a promise on it: becomes FROZEN and is synced */
    CONTENT_UPLOAD, /* FROZEN: synced as it is */
    CONTENT_TORN, /* no promise covers these bytes: kept as a conflict marked torn, the old version stays */
};
enum content_recovery content_recover(const struct content_view *view, bool same_boot);

#endif
