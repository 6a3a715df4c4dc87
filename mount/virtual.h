#ifndef MOUNT_VIRTUAL_H
#define MOUNT_VIRTUAL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "mount/event_log.h"
#include "volume/reads.h"

/*
 * `.holdfast/` inside a mount: its names, its inode numbers and its texts (docs/interface.md section 5). One JSON object a line.
 * Pure.
 *
 * Inode numbers have the bit 62, which no node of the index reaches. They tell all, so that a takeover needs no table; only below `at`
 * and `versions` they are short for what a table knows (number.h).
 */
#define VIRTUAL_NAME ".holdfast"

enum virtual_kind {
    VIRTUAL_NONE,
    VIRTUAL_ROOT, /* .holdfast */
    VIRTUAL_README,
    VIRTUAL_STATUS,
    VIRTUAL_UNSYNCED,
    VIRTUAL_CONFLICTS,
    VIRTUAL_EVENTS,
    VIRTUAL_FLUSH,
    VIRTUAL_CONFLICT,    /* .holdfast/conflict */
    VIRTUAL_CONFLICT_ID, /* .holdfast/conflict/ID: `id` says which */
    VIRTUAL_INFO,        /* and what lies in it */
    VIRTUAL_MINE,
    VIRTUAL_THEIRS,
    VIRTUAL_BASE, /* these two only where they can be had */
    VIRTUAL_MERGED,
    VIRTUAL_AT,       /* .holdfast/at */
    VIRTUAL_VERSIONS, /* .holdfast/versions */
    VIRTUAL_OLD,      /* and all below these two: `id` is a number of number.h */
};
struct virtual_place {
    enum virtual_kind kind;
    uint64_t id; /* virtual_id(), of a conflict's kinds; a number; else 0 */
};

bool virtual_is(uint64_t ino);
uint64_t virtual_ino(const struct virtual_place *place);
/* `ino` is one of ours; kind VIRTUAL_NONE when it was never given. */
struct virtual_place virtual_place(uint64_t ino);
/* 48 bits that stand for a conflict's id. */
uint64_t virtual_id(const char *conflict);
bool virtual_is_dir(enum virtual_kind kind);
/* Fixed names; VIRTUAL_NONE when there is none. */
enum virtual_kind virtual_child(enum virtual_kind parent, const char *name);
/* The `at`th of them from 0, NULL at the end. */
const char *virtual_entry(enum virtual_kind parent, unsigned at, enum virtual_kind *kind);

/* `path` as seen from the mounted folder ("" for the volume's root); NULL when it lies elsewhere. */
const char *virtual_below(const char *folder, const char *path);

/* ---- texts: append to `out` ---- */
int virtual_readme(const char *volume, bool read_only, struct buf *out, struct err *err) MUST_CHECK;

struct virtual_status {
    const char *volume, *folder, *run;
    bool read_only, sync_close, frozen;
    bool store_ok, degraded, denied, disk_low;
    int64_t store_since_ns; /* wall, when store_ok is false */
    int64_t lease_end_ns;   /* wall, 0: none */
    int64_t now_ns;
    uint64_t unsynced_files, unsynced_bytes, pending, conflicts;
    uint64_t files, bytes, quota;
    int64_t history_ns;
    struct volume_run_reads reads; /* of `run` */
};
int virtual_status(const struct virtual_status *status, struct buf *out,
                   struct err *err) MUST_CHECK;
/* `path` relative to the mount, "" when the name is gone. */
int virtual_unsynced(const struct volume_unsynced *row, const char *path, struct buf *out,
                     struct err *err) MUST_CHECK;
int virtual_conflict(const struct index_conflict *row, const char *path, struct buf *out,
                     struct err *err) MUST_CHECK;
/* Of no file. */
bool virtual_event_nameless(enum volume_event_kind kind);
int virtual_event(const struct event_item *item, const char *path, struct buf *out,
                  struct err *err) MUST_CHECK;
/* The first line, and where some were lost. */
int virtual_event_gap(uint64_t first, uint64_t lost, struct buf *out, struct err *err) MUST_CHECK;
/* The list was cut: `left` more. */
int virtual_more(uint64_t left, struct buf *out, struct err *err) MUST_CHECK;

struct virtual_flushed {
    bool synced;
    uint64_t pending;
    uint64_t conflicts;
};
int virtual_flush(const struct virtual_flushed *flushed, struct buf *out,
                  struct err *err) MUST_CHECK;

#endif
