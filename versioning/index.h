#ifndef VERSIONING_INDEX_H
#define VERSIONING_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "versioning/content.h"
#include "versioning/sync.h"

/*
 * The metadata index: one SQLite database (WAL) in the state directory. Changes run one at a time, each inside
 * its own SAVEPOINT of a shared transaction; index_write() comes back when that transaction is committed and, where FULL
 * durability was asked for, the WAL is on the disk up to there (INV-2). Readers may see such a change a moment earlier. Readers use one connection per thread in short read
 * transactions. No network and no file data I/O inside either. Auto-checkpoint is off; a thread of ours checkpoints.
 *
 * Row functions work inside a transaction (`struct index_tx`). They answer 0 and fill `*out`, or -1 with ERR_NOT_FOUND,
 * ERR_CORRUPT (row checksum), ERR_NO_SPACE (the reserve was freed first and one retry made), or ERR_IO.
 * Rows that matter (volumes, nodes, keys, contents, intents) carry a crc32c that is checked at each read.
 */
struct index;
struct index_tx;

#define INDEX_FORMAT 12

struct index_options {
    bool create;
    /* Called once when a commit fails for want of space: frees the reserve (cache_reserve_free). May be NULL. */
    void (*free_reserve)(void *arg);
    void *free_reserve_arg;
};

/* Opens `dir`/index.db. A newer format is ERR_NEWER_FORMAT; damage found by quick_check is ERR_CORRUPT. Migrations run in
 * one transaction after a copy of the old file. */
struct index *index_open(const char *dir, const struct index_options *options,
                         struct err *err) MUST_CHECK;
void index_close(struct index *index); /* checkpoints, then closes; waits for running calls */

enum index_durability { INDEX_NORMAL, INDEX_FULL };
typedef int index_fn(struct index_tx *tx, void *arg, struct err *err);
/* Blocks until committed. When fn answers -1 its savepoint is rolled back and its error comes back. fn runs on some
 * thread that waits in index_write(), and only once. Never call it from inside fn. */
int index_write(struct index *index, enum index_durability durability, index_fn *fn, void *arg,
                struct err *err) MUST_CHECK;
/* Comes back when every change that ran before is committed; changes nothing. */
int index_pass(struct index *index, struct err *err) MUST_CHECK;
/* Every change that was committed before survives a power cut when this comes back. Costs nothing when that is so already. */
int index_make_durable(struct index *index, struct err *err) MUST_CHECK;
/* From inside fn: only now it turned out that this change is to be kept as INDEX_FULL. */
void index_tx_durable(struct index_tx *tx);
/* Work items that this change makes for the bucket are due so much later, 0 at first; only kept here. */
void index_tx_rest(struct index_tx *tx, int64_t rest_ns);
int64_t index_tx_rests(const struct index_tx *tx);
/* Runs fn on the calling thread inside a read transaction. Writing from it is ERR_INTERNAL. */
int index_read(struct index *index, index_fn *fn, void *arg, struct err *err) MUST_CHECK;
/* Rises by one with every committed index_write(). */
uint64_t index_sequence(struct index_tx *tx);

/* ---- meta: small named values ("uuid", "store-id", "gateway-id", "boot-id", ...) ---- */
int index_meta_get(struct index_tx *tx, const char *name, char *out, size_t size,
                   struct err *err) MUST_CHECK;
int index_meta_set(struct index_tx *tx, const char *name, const char *value,
                   struct err *err) MUST_CHECK;

/* ---- volumes ---- */
enum index_volume_options {
    INDEX_VOLUME_CONFLICT_COPY = 1, /* a conflict's loser also becomes a file beside the path */
    /* What a run wrote after one of its inputs changed is marked, unless it is refused or nobody looks. */
    INDEX_VOLUME_STALE_REFUSE = 16,
    INDEX_VOLUME_STALE_OFF = 32,
    INDEX_VOLUME_HELD = 2,         /* frozen by its owner: no writes, nothing goes to the bucket */
    INDEX_VOLUME_FORKING = 4,      /* its files are still being copied: nobody uses it yet */
    INDEX_VOLUME_AUDIT_READS = 64, /* each open of a file to read it is a record too */
};
#define INDEX_VOLUME_SCHEDULE_SHIFT \
    8 /* from this bit on: schedule_pack() of versioning/schedule.h */
struct index_volume {
    int64_t id;
    char name[LIMIT_VOLUME_NAME + 1];
    char prefix[LIMIT_KEY + 1]; /* ends in '/', or "" */
    bool read_only;
    bool sync_close;
    uint64_t quota;     /* bytes, 0: none */
    int64_t history_ns; /* how long replaced versions are kept */
    int64_t created_ns;
    int64_t root;           /* node id of its root folder */
    char storage_class[64]; /* of its objects, "": the bucket's own */
    char encryption[320];   /* "AES256", "aws:kms", "aws:kms:KEY", "": the bucket's own */
    int64_t options;        /* enum index_volume_options, and the rule of its snapshots */
    int64_t history_count; /* at most so many replaced versions of a path are kept, 0: any number */
};
typedef int index_volume_fn(void *arg, const struct index_volume *row, struct err *err);
int index_volume_get(struct index_tx *tx, int64_t id, struct index_volume *out,
                     struct err *err) MUST_CHECK;
int index_volume_find(struct index_tx *tx, const char *name, struct index_volume *out,
                      struct err *err) MUST_CHECK;
int index_volume_each(struct index_tx *tx, index_volume_fn *fn, void *arg,
                      struct err *err) MUST_CHECK;
int index_volume_insert(struct index_tx *tx, struct index_volume *row,
                        struct err *err) MUST_CHECK; /* sets id */
int index_volume_update(struct index_tx *tx, const struct index_volume *row,
                        struct err *err) MUST_CHECK;
int index_volume_delete(struct index_tx *tx, int64_t id,
                        struct err *err) MUST_CHECK; /* and all its rows */

/* ---- nodes: the tree ---- */
/* INDEX_SPECIAL: a fifo, socket or device node; the mode says which. */
enum index_kind { INDEX_FILE = 1, INDEX_DIR = 2, INDEX_SYMLINK = 3, INDEX_SPECIAL = 4 };
enum index_node_flags {
    INDEX_NODE_META_UNKNOWN = 1, /* seen in a listing only: mode, times and kind wait for a HEAD */
    INDEX_NODE_ORPHAN = 2, /* unlinked or replaced while open: has no name any more (parent 0) */
    INDEX_NODE_ATTRS_DIRTY = 4, /* mode, owner or times differ from the object's metadata */
    INDEX_NODE_MARKER = 8,      /* a folder whose marker object exists or is wanted */
    INDEX_NODE_NAME_HIDDEN =
        16, /* a key that cannot be a Linux name: listed as unreachable, not shown */
    INDEX_NODE_LOSER =
        32, /* an orphan whose writer lost its name: what it still writes is kept as a conflict */
    INDEX_NODE_LINK =
        64, /* another name of an inode (table links): its bytes and attributes are the inode's */
    INDEX_NODE_LINKED = 128, /* an inode with further names */
};
#define INDEX_ATIME_1970 INT64_MIN
struct index_node {
    int64_t id; /* AUTOINCREMENT: never reused; also the inode number */
    int64_t volume;
    int64_t parent; /* 0 for a volume's root and for orphans */
    uint16_t name_len;
    char name[LIMIT_NAME + 1]; /* bytes, NUL added */
    enum index_kind kind;
    unsigned flags;
    uint32_t mode; /* with file type */
    uint32_t uid, gid;
    int64_t mtime_ns, ctime_ns;
    uint64_t size;
    char ulid[ULID_SIZE]; /* holdfast-node */
    int64_t content;      /* content row with the newest bytes, 0: none here */
    char version[ULID_SIZE]; /* newest synced version ("" foreign or never synced) = base of the next */
    char etag[LIMIT_ETAG];   /* its ETag at `key` */
    char key[LIMIT_KEY + 1]; /* where its newest synced bytes lie now; "" never synced */
    int64_t listed_ns;       /* folders: wall time of the last complete listing, 0: never */
    /* symlinks; devices: "MAJOR:MINOR"; INDEX_NODE_LOSER: the path it had */
    char target[LIMIT_SYMLINK + 1];
    int64_t atime_ns; /* 0: the same as mtime_ns; INDEX_ATIME_1970: 0 itself */
};
typedef int index_node_fn(void *arg, const struct index_node *row, struct err *err);
int index_node_get(struct index_tx *tx, int64_t id, struct index_node *out,
                   struct err *err) MUST_CHECK;
int index_node_child(struct index_tx *tx, int64_t parent, const char *name, size_t name_len,
                     struct index_node *out, struct err *err) MUST_CHECK;
/* Children with id > after, in order of id (a stable readdir cookie), at most `limit`. */
int index_node_children(struct index_tx *tx, int64_t parent, int64_t after, unsigned limit,
                        index_node_fn *fn, void *arg, struct err *err) MUST_CHECK;
/* The same of those that are folders; the other children cost nothing. */
int index_node_folders(struct index_tx *tx, int64_t parent, int64_t after, unsigned limit,
                       index_node_fn *fn, void *arg, struct err *err) MUST_CHECK;
/* Names in a folder greater than `after` ("" from the start), in bytewise order, at most `limit`: read from the names alone, as
 * whoever looks through many wants it. `fn` may not ask the index. */
struct index_names {
    int64_t parent;
    const char *after;
    size_t after_len;
    unsigned limit;
};
typedef int index_name_fn(void *arg, int64_t node, const char *name, size_t len, struct err *err);
int index_node_names(struct index_tx *tx, const struct index_names *want, index_name_fn *fn,
                     void *arg, struct err *err) MUST_CHECK;
/* What tells most nodes that nobody wants, without their rows' checksums: to be shown, a row is read. */
struct index_brief {
    unsigned flags;
    int64_t content;
    uint64_t size;
    int64_t mtime_ns;
};
int index_node_brief(struct index_tx *tx, int64_t node, struct index_brief *out,
                     struct err *err) MUST_CHECK;
/* The folders in a folder, in order of their numbers. */
struct index_folder {
    int64_t node;
    int64_t listed_ns;
    unsigned flags;
};
typedef int index_folder_fn(void *arg, const struct index_folder *folder, struct err *err);
int index_node_folders_brief(struct index_tx *tx, int64_t parent, index_folder_fn *fn, void *arg,
                             struct err *err) MUST_CHECK;
int index_node_has_children(struct index_tx *tx, int64_t parent, bool *out,
                            struct err *err) MUST_CHECK;
int index_node_insert(struct index_tx *tx, struct index_node *row,
                      struct err *err) MUST_CHECK; /* sets id */
int index_node_update(struct index_tx *tx, const struct index_node *row,
                      struct err *err) MUST_CHECK;
int index_node_delete(struct index_tx *tx, int64_t id, struct err *err) MUST_CHECK;
/* The path inside the volume ("" for the root); ERR_NOT_FOUND for an orphan. `out` holds LIMIT_PATH + 1. */
int index_node_path(struct index_tx *tx, int64_t id, char *out, size_t size,
                    struct err *err) MUST_CHECK;
int index_node_orphans(struct index_tx *tx, index_node_fn *fn, void *arg,
                       struct err *err) MUST_CHECK;
/* Files (not folders) and their bytes below a volume. */
int index_node_usage(struct index_tx *tx, int64_t volume, uint64_t *files, uint64_t *bytes,
                     struct err *err) MUST_CHECK;

/* ---- keys: whose object lies where ---- */
struct index_key {
    char key[LIMIT_KEY + 1];
    int64_t volume;
    char etag[LIMIT_ETAG];
    char version[ULID_SIZE];
    char sha256[SHA256_HEX];
    uint64_t size;
    int64_t owner;     /* node or 0 */
    bool discard;      /* removed or moved by us knowing this version: to be deleted or replaced */
    uint64_t sequence; /* index_sequence() of the last change */
    int64_t
        modified_ns; /* the object's time in the last listing, 0: not listed since it was written */
    int64_t
        kept; /* 1: these very bytes lie elsewhere in the bucket too: in the history, or where their file was moved to */
};
typedef int index_key_fn(void *arg, const struct index_key *row, struct err *err);
int index_key_get(struct index_tx *tx, const char *key, struct index_key *out,
                  struct err *err) MUST_CHECK;
int index_key_put(struct index_tx *tx, const struct index_key *row,
                  struct err *err) MUST_CHECK; /* insert or replace; sets sequence itself */
int index_key_delete(struct index_tx *tx, const char *key,
                     struct err *err) MUST_CHECK; /* absent is fine */
/* Keys that start with `prefix`, greater than `after` ("" from the start), in bytewise order. */
int index_key_range(struct index_tx *tx, const char *prefix, const char *after, unsigned limit,
                    index_key_fn *fn, void *arg, struct err *err) MUST_CHECK;

/* ---- extras: what others wrote with an object and nobody here has a use for, kept so that the next PUT sends it again ---- */
struct index_extra {
    int64_t node;
    char text[LIMIT_EXTRA + 1]; /* volume/extra.c */
};
int index_extra_get(struct index_tx *tx, int64_t node, struct index_extra *out,
                    struct err *err) MUST_CHECK;
int index_extra_put(struct index_tx *tx, const struct index_extra *row, struct err *err) MUST_CHECK;
/* Absent is fine; a node's goes with the node. */
int index_extra_delete(struct index_tx *tx, int64_t node, struct err *err) MUST_CHECK;

/* ---- xattrs: the extended attributes of a node, as volume/xattr.h lays them out; not part of the node's row, which every
 * lookup reads. At most LIMIT_XATTRS bytes, nothing is no row; they go with the node. ---- */
/* Appends to `out`; a node without any appends nothing. */
int index_xattrs_get(struct index_tx *tx, int64_t node, struct buf *out,
                     struct err *err) MUST_CHECK;
int index_xattrs_put(struct index_tx *tx, int64_t node, const void *data, size_t len,
                     struct err *err) MUST_CHECK;

/* ---- links: further names of an inode (docs/adr/0008) ---- */
struct index_link {
    int64_t node;  /* the name's, with INDEX_NODE_LINK; its end ends the row */
    int64_t inode; /* the node that it is a name of, with INDEX_NODE_LINKED */
    char version
        [LIMIT_ETAG]; /* of the inode: what the name's newest own bytes are a copy of (a foreign one by its ETag); "":
                                 none yet */
};
typedef int index_link_fn(void *arg, const struct index_link *row, struct err *err);
int index_link_get(struct index_tx *tx, int64_t node, struct index_link *out,
                   struct err *err) MUST_CHECK;
int index_link_put(struct index_tx *tx, const struct index_link *row, struct err *err) MUST_CHECK;
int index_link_delete(struct index_tx *tx, int64_t node, struct err *err) MUST_CHECK;
/* Names of an inode in order of their nodes, greater than `after`. `fn` may not change links. */
int index_link_each(struct index_tx *tx, int64_t inode, int64_t after, index_link_fn *fn, void *arg,
                    struct err *err) MUST_CHECK;
int index_link_count(struct index_tx *tx, int64_t inode, uint32_t *out, struct err *err) MUST_CHECK;

/* ---- contents: one row per content file in the cache ---- */
struct index_content {
    int64_t id; /* the content file's number; never reused */
    int64_t node;
    int64_t volume;
    enum content_state state;
    unsigned flags;               /* enum content_flags */
    char version[ULID_SIZE];      /* CLEAN, FROZEN: of these bytes */
    char base_version[ULID_SIZE]; /* what they were made from */
    char base_etag[LIMIT_ETAG];
    char etag[LIMIT_ETAG]; /* CLEAN: the object's ETag, for If-Match of further ranges */
    uint64_t size;         /* CLEAN, FROZEN; LIVE: fstat tells */
    char sha256[SHA256_HEX];
    char md5[MD5_HEX];
    char boot_id[37]; /* boot in which the row was last written */
    int64_t mtime_ns;
    char actor[64];
    char run[64];
};
typedef int index_content_fn(void *arg, const struct index_content *row, struct err *err);
int index_content_get(struct index_tx *tx, int64_t id, struct index_content *out,
                      struct err *err) MUST_CHECK;
int index_content_insert(struct index_tx *tx, struct index_content *row,
                         struct err *err) MUST_CHECK; /* sets id */
/* A number for a content file that is made before its row; never given twice. */
int index_content_number(struct index_tx *tx, int64_t *out, struct err *err) MUST_CHECK;
int index_content_update(struct index_tx *tx, const struct index_content *row,
                         struct err *err) MUST_CHECK;
int index_content_delete(struct index_tx *tx, int64_t id, struct err *err) MUST_CHECK;
int index_content_each(struct index_tx *tx, index_content_fn *fn, void *arg,
                       struct err *err) MUST_CHECK;
/* Those that are not CLEAN. */
int index_content_each_staged(struct index_tx *tx, index_content_fn *fn, void *arg,
                              struct err *err) MUST_CHECK;
/* The rows of one node, newest (largest id) first. */
int index_content_of_node(struct index_tx *tx, int64_t node, index_content_fn *fn, void *arg,
                          struct err *err) MUST_CHECK;
/* LIVE and FROZEN rows of a volume (0: all): count and bytes of FROZEN. */
int index_content_unsynced(struct index_tx *tx, int64_t volume, uint64_t *count, uint64_t *bytes,
                           struct err *err) MUST_CHECK;

/* ---- intents: the keys where want and have may differ ---- */
struct index_intent {
    char key[LIMIT_KEY + 1];
    int64_t volume;
    int64_t not_before_ns; /* clock_wall_ns(); workers take the smallest first */
    uint32_t tries;
    char last_error[160];
    int64_t since_ns; /* wall time of the oldest unsynced change */
    struct sync_attempt attempt;
    int64_t look_again_until_ns; /* wall; 0: no unanswered attempt may still land */
};
typedef int index_intent_fn(void *arg, const struct index_intent *row, struct err *err);
int index_intent_get(struct index_tx *tx, const char *key, struct index_intent *out,
                     struct err *err) MUST_CHECK;
int index_intent_put(struct index_tx *tx, const struct index_intent *row,
                     struct err *err) MUST_CHECK;
int index_intent_delete(struct index_tx *tx, const char *key, struct err *err) MUST_CHECK;
/* In order of not_before, up to `until_ns`. */
int index_intent_due(struct index_tx *tx, int64_t until_ns, unsigned limit, index_intent_fn *fn,
                     void *arg, struct err *err) MUST_CHECK;
/* Those not due at `after_ns`, the earliest first. */
int index_intent_later(struct index_tx *tx, int64_t after_ns, unsigned limit, index_intent_fn *fn,
                       void *arg, struct err *err) MUST_CHECK;
/* All of a volume (0: all) in order of key, greater than `after`. */
int index_intent_each(struct index_tx *tx, int64_t volume, const char *after, unsigned limit,
                      index_intent_fn *fn, void *arg, struct err *err) MUST_CHECK;
int index_intent_count(struct index_tx *tx, int64_t volume, uint64_t *out,
                       struct err *err) MUST_CHECK;

/* ---- uploads: those in parts whose end is not known yet ---- */
#define INDEX_UPLOAD_ID 1024
struct index_upload {
    char id[INDEX_UPLOAD_ID]; /* the store's */
    char key[LIMIT_KEY + 1];
    int64_t volume;
    char life[ULID_SIZE]; /* of the process that began it */
    int64_t begun_ns;
};
typedef int index_upload_fn(void *arg, const struct index_upload *row, struct err *err);
int index_upload_put(struct index_tx *tx, const struct index_upload *row,
                     struct err *err) MUST_CHECK;
int index_upload_delete(struct index_tx *tx, const char *id,
                        struct err *err) MUST_CHECK; /* absent is fine */
int index_upload_each(struct index_tx *tx, index_upload_fn *fn, void *arg,
                      struct err *err) MUST_CHECK;
int index_upload_of_key(struct index_tx *tx, const char *key, index_upload_fn *fn, void *arg,
                        struct err *err) MUST_CHECK;

/* ---- versions: what was synced, by whom ---- */
struct index_version {
    int64_t id;
    int64_t volume, node;
    char version[ULID_SIZE];
    char base_version[ULID_SIZE];
    char etag[LIMIT_ETAG];
    char sha256[SHA256_HEX];
    uint64_t size;
    char path[LIMIT_PATH + 1]; /* at the time */
    char actor[64], run[64], op[16];
    int64_t time_ns;
};
typedef int index_version_fn(void *arg, const struct index_version *row, struct err *err);
int index_version_insert(struct index_tx *tx, struct index_version *row,
                         struct err *err) MUST_CHECK;
int index_version_of_node(struct index_tx *tx, int64_t node, unsigned limit, index_version_fn *fn,
                          void *arg, struct err *err) MUST_CHECK; /* newest first */
/* The last row of this version; ERR_NOT_FOUND. */
int index_version_find(struct index_tx *tx, const char *version, struct index_version *out,
                       struct err *err) MUST_CHECK;
int index_version_of_run(struct index_tx *tx, const char *run, index_version_fn *fn, void *arg,
                         struct err *err) MUST_CHECK; /* oldest first */

/* ---- history: versions that are the present ones no more, each a copy in the bucket ---- */
enum index_history_state {
    INDEX_HISTORY_COPYING = 1, /* the copy was, or is about to be, asked for */
    INDEX_HISTORY_KEPT = 2,
    INDEX_HISTORY_STAGED = 3, /* replaced before the bucket had it: `content` goes there straight */
};
struct index_history {
    char id[ULID_SIZE]; /* in the copy's key, made when the version went */
    int64_t volume;
    int64_t node;                                     /* whose version it was, 0: unknown */
    int state;                                        /* enum index_history_state */
    char version[ULID_SIZE], base_version[ULID_SIZE]; /* "" foreign */
    char source_etag[LIMIT_ETAG];                     /* at the file's key */
    char etag[LIMIT_ETAG];                            /* of the copy */
    char sha256[SHA256_HEX];                          /* "" unknown */
    uint64_t size;
    char path[LIMIT_PATH + 1]; /* the file's when it went */
    char actor[64], run[64];   /* who made it */
    int64_t made_ns;           /* 0: unknown */
    int64_t gone_ns;
    char gone_op[16]; /* "write", "replace", "delete", "move" */
    char gone_actor[64], gone_run[64];
    uint32_t
        mode; /* with file type, as the copy's metadata say; 0: nobody has looked yet, nor at the next three */
    uint32_t uid, gid;
    int64_t mtime_ns;
    int64_t content; /* STAGED: its bytes, pinned; else 0 */
};
typedef int index_history_fn(void *arg, const struct index_history *row, struct err *err);
int index_history_put(struct index_tx *tx, const struct index_history *row,
                      struct err *err) MUST_CHECK; /* insert or replace */
int index_history_get(struct index_tx *tx, const char *id, struct index_history *out,
                      struct err *err) MUST_CHECK;
int index_history_delete(struct index_tx *tx, const char *id,
                         struct err *err) MUST_CHECK; /* absent is fine */
/* `fn` > 0: stop. It may not change the history. */
/* Of one path, newest first, at most `limit`. */
int index_history_at(struct index_tx *tx, int64_t volume, const char *path, unsigned limit,
                     index_history_fn *fn, void *arg, struct err *err) MUST_CHECK;
/* Of all paths that begin with `prefix` ("": all), by path, then oldest first. */
int index_history_below(struct index_tx *tx, int64_t volume, const char *prefix,
                        index_history_fn *fn, void *arg, struct err *err) MUST_CHECK;
/* Of this path and all that come after it, by path, then oldest first. */
int index_history_from(struct index_tx *tx, int64_t volume, const char *path, index_history_fn *fn,
                       void *arg, struct err *err) MUST_CHECK;
/* Newest first, at most `limit`. */
int index_history_of_node(struct index_tx *tx, int64_t node, unsigned limit, index_history_fn *fn,
                          void *arg, struct err *err) MUST_CHECK;
int index_history_of_version(struct index_tx *tx, const char *version, index_history_fn *fn,
                             void *arg, struct err *err) MUST_CHECK;
/* What went by this run, oldest first. */
int index_history_of_run(struct index_tx *tx, const char *run, index_history_fn *fn, void *arg,
                         struct err *err) MUST_CHECK;
/* All behind `after` ("": from the oldest), at most `limit`. */
int index_history_each(struct index_tx *tx, const char *after, unsigned limit, index_history_fn *fn,
                       void *arg, struct err *err) MUST_CHECK;
/* Kept copies of a volume and their bytes. */
int index_history_usage(struct index_tx *tx, int64_t volume, uint64_t *count, uint64_t *bytes,
                        struct err *err) MUST_CHECK;

/* ---- snapshots: moments of a volume that have a name; what was present then is kept ---- */
enum index_snapshot_state {
    INDEX_SNAPSHOT_TAKEN = 1, /* its manifest is not in the bucket yet */
    INDEX_SNAPSHOT_PUBLISHED = 2,
    INDEX_SNAPSHOT_FOUND =
        3, /* by a rebuild: how it was stands in its manifest, the index knows less */
};
struct index_snapshot {
    int64_t id; /* shares its numbers with versions */
    int64_t volume;
    char name[LIMIT_VOLUME_NAME + 1];
    int64_t at_ns;
    int state;             /* enum index_snapshot_state */
    uint64_t files, bytes; /* once published */
    char etag[LIMIT_ETAG]; /* of the manifest */
    char actor[64], run[64];
};
typedef int index_snapshot_fn(void *arg, const struct index_snapshot *row, struct err *err);
int index_snapshot_insert(struct index_tx *tx, struct index_snapshot *row,
                          struct err *err) MUST_CHECK; /* sets id; ERR_EXISTS */
int index_snapshot_update(struct index_tx *tx, const struct index_snapshot *row,
                          struct err *err) MUST_CHECK;
int index_snapshot_find(struct index_tx *tx, int64_t volume, const char *name,
                        struct index_snapshot *out, struct err *err) MUST_CHECK;
int index_snapshot_delete(struct index_tx *tx, int64_t id, struct err *err) MUST_CHECK;
/* Of a volume (0: all), oldest first. */
int index_snapshot_each(struct index_tx *tx, int64_t volume, index_snapshot_fn *fn, void *arg,
                        struct err *err) MUST_CHECK;

/* Whether anything that the index knows of has changed in the volume since this one was taken: `id`, `volume` and `at_ns` of it. */
int index_snapshot_is_behind(struct index_tx *tx, const struct index_snapshot *row, bool *out,
                             struct err *err) MUST_CHECK;

/* ---- stale_reads: versions whose writer had read what others changed meanwhile, and what may be one ---- */
struct index_stale {
    char version[ULID_SIZE];
    int64_t volume;
    char run[64];
    int64_t
        changed; /* so many inputs were not any more what the run had read; 0: none that is known */
    bool incomplete; /* not all inputs of the run were remembered: others may have changed too */
    char inputs
        [4096]; /* some of those that changed: "VOLUME:PATH", percent-encoded, with blanks between */
    int64_t time_ns;
};
int index_stale_put(struct index_tx *tx, const struct index_stale *row, struct err *err) MUST_CHECK;
/* ERR_NOT_FOUND: nothing is said against that version. */
int index_stale_get(struct index_tx *tx, const char *version, struct index_stale *out,
                    struct err *err) MUST_CHECK;
int index_stale_prune(struct index_tx *tx, int64_t volume, int64_t before_ns,
                      struct err *err) MUST_CHECK;

/* ---- runs: those that have read something under the guard; what they read is in memory only ---- */
struct index_run {
    char run[64];
    int64_t since_ns;
};
int index_run_known(struct index_tx *tx, const char *run, bool *known, struct err *err) MUST_CHECK;
/* Makes its row; `*met`: there was one. */
int index_run_meet(struct index_tx *tx, const char *run, int64_t now_ns, bool *met,
                   struct err *err) MUST_CHECK;
int index_run_prune(struct index_tx *tx, int64_t before_ns, struct err *err) MUST_CHECK;

/* ---- changes: what was done to names, and by whom ---- */
struct index_change {
    int64_t id;
    int64_t volume, node, parent;
    char op[16]; /* "delete", "rmdir", "rename", "mkdir", "create" */
    char path[LIMIT_PATH + 1];
    char to_path[LIMIT_PATH + 1]; /* rename */
    char key[LIMIT_KEY + 1];      /* delete: where the newest synced bytes lay, "" never synced */
    char version[ULID_SIZE];      /* delete: of these */
    uint32_t mode;                /* rmdir: with file type */
    char actor[64], run[64];
    int64_t time_ns;
};
typedef int index_change_fn(void *arg, const struct index_change *row, struct err *err);
int index_change_insert(struct index_tx *tx, struct index_change *row,
                        struct err *err) MUST_CHECK; /* sets id */
/* The last one about this key; ERR_NOT_FOUND. */
int index_change_of_key(struct index_tx *tx, const char *key, struct index_change *out,
                        struct err *err) MUST_CHECK;
int index_change_of_run(struct index_tx *tx, const char *run, index_change_fn *fn, void *arg,
                        struct err *err) MUST_CHECK; /* oldest first */
/* Those of a volume after `since_ns`, newest first. */
int index_change_since(struct index_tx *tx, int64_t volume, int64_t since_ns, index_change_fn *fn,
                       void *arg, struct err *err) MUST_CHECK;
/* Those before `before_ns` go, at most `limit`; *count: how many went. */
int index_change_prune(struct index_tx *tx, int64_t volume, int64_t before_ns, unsigned limit,
                       unsigned *count, struct err *err) MUST_CHECK;

/* ---- conflicts: losers' bytes, and torn saves found by recovery ---- */
struct index_conflict {
    char id[ULID_SIZE];
    int64_t volume, node;
    char path[LIMIT_PATH + 1];
    char reason[16]; /* "conflict", "deleted", "torn" */
    char base_version[ULID_SIZE], mine_version[ULID_SIZE], theirs_version[ULID_SIZE];
    char theirs_etag[LIMIT_ETAG];
    int64_t content; /* local bytes (pinned until they are in the bucket), 0 after */
    bool synced;     /* the bytes lie under .holdfast/conflicts/<volume>/<id> */
    char actor[64], run[64];
    int64_t time_ns;
};
typedef int index_conflict_fn(void *arg, const struct index_conflict *row, struct err *err);
int index_conflict_put(struct index_tx *tx, const struct index_conflict *row,
                       struct err *err) MUST_CHECK;
int index_conflict_get(struct index_tx *tx, const char *id, struct index_conflict *out,
                       struct err *err) MUST_CHECK;
/* absent is fine */
int index_conflict_delete(struct index_tx *tx, const char *id, struct err *err) MUST_CHECK;
int index_conflict_each(struct index_tx *tx, int64_t volume, index_conflict_fn *fn, void *arg,
                        struct err *err) MUST_CHECK; /* 0: all volumes; oldest first */

/* ---- answers: what a takeover needs (docs/mechanisms.md sections 2, 3) ---- */
int index_answer_drop_connection(struct index_tx *tx, int64_t connection,
                                 struct err *err) MUST_CHECK; /* 0: all */
/* Answers of a connection in slots other than `first` to `end` - 1. */
int index_answer_drop_others(struct index_tx *tx, int64_t connection, uint32_t first, uint32_t end,
                             struct err *err) MUST_CHECK;
int index_answer_forget(struct index_tx *tx, int64_t connection, uint64_t unique,
                        struct err *err) MUST_CHECK;
int index_answer_put(struct index_tx *tx, int64_t connection, uint32_t slot, uint64_t unique,
                     const void *reply, size_t len, struct err *err) MUST_CHECK;
/* `out` is filled with the stored reply of that unique, *len its length; ERR_NOT_FOUND when there is none. */
int index_answer_get(struct index_tx *tx, int64_t connection, uint64_t unique, void *out,
                     size_t size, size_t *len, struct err *err) MUST_CHECK;

/* ---- mounts: what must come back after a restart ---- */
struct index_mount {
    int64_t id; /* also the connection number */
    int64_t volume;
    char folder[LIMIT_PATH + 1];
    char path[LIMIT_PATH + 1]; /* where it is mounted */
    bool read_only;
    char run[64];
    int64_t lease_ns;   /* minutes of the lease in ns, 0: until unmounted */
    int64_t expires_ns; /* wall, 0: never */
    uint64_t uuid_hint;
};
typedef int index_mount_fn(void *arg, const struct index_mount *row, struct err *err);
int index_mount_put(struct index_tx *tx, struct index_mount *row,
                    struct err *err) MUST_CHECK; /* id 0: new */
int index_mount_delete(struct index_tx *tx, int64_t id, struct err *err) MUST_CHECK;
int index_mount_each(struct index_tx *tx, index_mount_fn *fn, void *arg,
                     struct err *err) MUST_CHECK;

/* ---- tokens and sessions: who may ask over HTTP. Only hashes of their secrets are kept. ---- */
struct index_token {
    char id[ULID_SIZE];
    char hash[SHA256_HEX];       /* of the secret, as it is sent */
    int64_t volume;              /* 0: all */
    char folder[LIMIT_PATH + 1]; /* "": the whole volume */
    uint32_t verbs;              /* as gateway/access.h */
    char run[64];                /* the run that it is bound to, "" none */
    char label[LIMIT_LABEL + 1];
    int64_t created_ns, expires_ns; /* wall; expires 0: never */
};
typedef int index_token_fn(void *arg, const struct index_token *row, struct err *err);
int index_token_insert(struct index_tx *tx, const struct index_token *row,
                       struct err *err) MUST_CHECK;
int index_token_find(struct index_tx *tx, const char *hash, struct index_token *out,
                     struct err *err) MUST_CHECK; /* ERR_NOT_FOUND */
int index_token_get(struct index_tx *tx, const char *id, struct index_token *out,
                    struct err *err) MUST_CHECK; /* ERR_NOT_FOUND */
int index_token_delete(struct index_tx *tx, const char *id,
                       struct err *err) MUST_CHECK; /* ERR_NOT_FOUND */
int index_token_each(struct index_tx *tx, index_token_fn *fn, void *arg,
                     struct err *err) MUST_CHECK;
/* Tokens that ended before that time (wall). */
int index_token_forget(struct index_tx *tx, int64_t before_ns, struct err *err) MUST_CHECK;

struct index_session {
    char hash[SHA256_HEX];
    int64_t created_ns, expires_ns;
};
int index_session_insert(struct index_tx *tx, const struct index_session *row,
                         struct err *err) MUST_CHECK;
int index_session_find(struct index_tx *tx, const char *hash, struct index_session *out,
                       struct err *err) MUST_CHECK; /* ERR_NOT_FOUND */
int index_session_delete(struct index_tx *tx, const char *hash, struct err *err) MUST_CHECK;
/* Sessions that ended before that time; INT64_MAX: all. */
int index_session_forget(struct index_tx *tx, int64_t before_ns, struct err *err) MUST_CHECK;

/* ---- links: what was shared, with a frozen copy, or where somebody may put a file ---- */
enum index_share_flags {
    INDEX_SHARE_PUT = 1,    /* takes a file instead of giving one */
    INDEX_SHARE_PROXY = 2,  /* the gateway sends the bytes itself */
    INDEX_SHARE_INLINE = 4, /* browsers may show it */
    INDEX_SHARE_ENDED = 8,  /* revoked: only its copy has to go */
};
struct index_share {
    char id[ULID_SIZE];
    char hash[SHA256_HEX]; /* of the secret in its URL */
    int64_t volume;
    char path[LIMIT_PATH + 1]; /* of the file then, or to be */
    char key[LIMIT_KEY + 1];   /* of the frozen copy, "" none */
    char name[LIMIT_NAME + 1]; /* that a client saves it under */
    uint64_t size;             /* of the copy; of an upload at most */
    uint64_t hits, most;       /* downloads so far, and how many there may be; 0: any number */
    uint32_t flags;
    char actor[LIMIT_LABEL + 8], run[64];
    int64_t created_ns, expires_ns; /* wall */
};
typedef int index_share_fn(void *arg, const struct index_share *row, struct err *err);
int index_share_put(struct index_tx *tx, const struct index_share *row, struct err *err) MUST_CHECK;
int index_share_find(struct index_tx *tx, const char *hash, struct index_share *out,
                     struct err *err) MUST_CHECK; /* ERR_NOT_FOUND */
int index_share_get(struct index_tx *tx, const char *id, struct index_share *out,
                    struct err *err) MUST_CHECK; /* ERR_NOT_FOUND */
int index_share_delete(struct index_tx *tx, const char *id, struct err *err) MUST_CHECK;
int index_share_each(struct index_tx *tx, index_share_fn *fn, void *arg,
                     struct err *err) MUST_CHECK;

#endif
