#ifndef VOLUME_VOLUME_H
#define VOLUME_VOLUME_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"
#include "cache/cache.h"
#include "s3/store.h"
#include "versioning/index.h"
#include "versioning/precondition.h"
#include "versioning/schedule.h"

/*
 * The product without its faces: volumes of files kept as objects, with one write path (volume_commit(), commit.h) and one
 * read path (volume_file_read()). mount/ and gateway/ are built on this header only.
 *
 * Calls are thread safe and may block: on the index always (a commit without fsync takes tens of microseconds), on the disk
 * for fsync, on the store where said. A caller that may not wait for the store sets `nowait` in its context: the call then
 * answers ERR_AGAIN without an effect, and the caller repeats it from a thread that may wait (docs/mechanisms.md section 9).
 */
struct volume_service;
struct lock_table;

/* What programs have open in connections that outlived the last gateway: orphans among it stay, and what is being written goes on
 * being written. */
struct volume_carried {
    const struct volume_carried_open {
        int64_t node;
        bool writer;
    } * opens;
    size_t count;
};

struct volume_service_args {
    const char *state_dir;
    int lock_fd; /* the lock of the state directory (volume_state_lock()), taken, also on failure; <= 0: take it here */
    const struct volume_carried
        *carried;        /* NULL: no connection outlived; read by volume_service_open() only */
    struct store *store; /* taken */
    struct cache_limits cache;
    unsigned upload_threads; /* 0: 8 */
    unsigned fetch_threads;  /* 0: 8 */
    int64_t list_ttl_ns;     /* how long a listing of a folder is believed, 0: 30 s */
    int64_t
        sync_rest_ns; /* what mounts change goes to the bucket once its key has rested so long; 0: at once */
    int64_t
        sync_open_ns; /* how often a file that stays open and changes is uploaded; 0: when it is closed, or by a barrier */
    int64_t
        change_log_ns; /* how often what other gateways changed is asked for while a volume is in use; 0: never, and nothing is told them */
    bool offline_start; /* true: start although the store is away (state must have been bound to it before) */
};

/* Opens index and cache, locks the state directory (ERR_BUSY: a second daemon), probes the store, checks its identity
 * (`.holdfast/store.json`: ERR_WRONG_STORE for another or emptied store behind old state), recovers what a crash left. */
struct volume_service *volume_service_open(const struct volume_service_args *args,
                                           struct err *err) MUST_CHECK;
/* Starts uploads and background listing. Before it nothing is sent but what open needed. */
int volume_service_start(struct volume_service *service, struct err *err) MUST_CHECK;
/* Stops workers, waits for running requests at most until `deadline_ns` (mono), closes everything. NULL is fine. */
void volume_service_close(struct volume_service *service, int64_t deadline_ns);
/* Takes the lock of a state directory; while another gateway holds it, waits until `until_ns` (mono), then ERR_BUSY. */
int volume_state_lock(const char *state_dir, int64_t until_ns, int *fd_out,
                      struct err *err) MUST_CHECK;
struct store *volume_service_store(struct volume_service *service);
struct cache *volume_service_cache(struct volume_service *service);
struct index *volume_service_index(struct volume_service *service);

/* Who asks, for whom, and how long it may take. */
struct volume_ctx {
    const char *actor;  /* "mount", "http", "cli", a token's label, ... ; "" allowed */
    const char *run;    /* run id or "" */
    uint32_t uid, gid;  /* owner of what is created */
    int64_t connection; /* mounts: the mount's id; else 0 */
    uint64_t unique;    /* mounts: number of the request (bit 63 cleared); 0: none */
    uint32_t slot;      /* mounts: the answer slot */
    bool resent; /* mounts: the kernel sent this request again: look for its recorded answer first (INV-13) */
    bool *replayed;      /* mounts: set when the recorded answer was used; may be NULL */
    bool nowait;         /* do not wait for the store: ERR_AGAIN instead */
    bool read_only;      /* INV-14: refuse every change with ERR_READ_ONLY */
    int64_t deadline_ns; /* clock_mono_ns(); 0: 30 s for store work */
};

/* ---- volumes ---- */
/* What a run writes after others changed a file that it has read (volume/reads.h). */
enum volume_stale_reads { VOLUME_STALE_MARK, VOLUME_STALE_REFUSE, VOLUME_STALE_OFF };
const char *volume_stale_word(enum volume_stale_reads how);
/* ERR_INVAL for another word than mark, refuse or off. */
int volume_stale_read_word(const char *word, enum volume_stale_reads *out,
                           struct err *err) MUST_CHECK;
struct volume_info {
    int64_t id;
    char name[LIMIT_VOLUME_NAME + 1];
    char prefix[LIMIT_KEY + 1];
    bool read_only;
    bool sync_close;
    bool conflict_copy; /* a conflict's loser also becomes a file beside the path */
    enum volume_stale_reads stale_reads;
    bool frozen;      /* volume_freeze() */
    bool forking;     /* its files are still being copied (volume/fork.h) */
    bool audit_reads; /* reads are recorded too (volume/audit.h) */
    uint64_t quota;
    int64_t history_ns;    /* 0: no history */
    int64_t history_count; /* at most so many versions of a path are kept, 0: any number */
    struct schedule_rule snapshots;
    int64_t created_ns;
    int64_t root;                            /* node */
    char storage_class[64], encryption[320]; /* of its objects, "": as the bucket says */
    uint64_t files, bytes;                   /* known to the index */
    uint64_t unsynced_files, unsynced_bytes; /* files whose newest bytes are not in the bucket */
    uint64_t pending_keys;                   /* keys with work left, deletes and moves included */
    uint64_t conflicts;
};
typedef int volume_info_fn(void *arg, const struct volume_info *info, struct err *err);
struct volume_settings {
    const char *name;
    const char *prefix; /* NULL: "<name>/" */
    bool read_only, sync_close, conflict_copy;
    enum volume_stale_reads stale_reads;
    bool audit_reads;
    uint64_t quota;
    int64_t
        history_ns; /* how long versions are kept that are replaced or removed; 0: 30 days, or as before; < 0: not at all */
    int64_t history_count; /* and how many of a path at most; 0: any number */
    /* How objects are kept from now on; NULL: as before, "": as the bucket says. Encryption is AES256, aws:kms or
     * aws:kms:KEY. */
    const char *storage_class, *encryption;
    const struct schedule_rule *snapshots; /* NULL: as before, or off */
};
/* Writes `.holdfast/volumes/<volume>.json` too. ERR_EXISTS; overlapping prefixes are ERR_INVAL naming the other volume. */
int volume_create(struct volume_service *service, const struct volume_settings *settings,
                  struct volume_info *out, struct err *err) MUST_CHECK;
/* ERR_AGAIN while its files are still being copied from another one. */
int volume_find(struct volume_service *service, const char *name, struct volume_info *out,
                struct err *err) MUST_CHECK;
/* The same of any. */
int volume_find_any(struct volume_service *service, const char *name, struct volume_info *out,
                    struct err *err) MUST_CHECK;
int volume_each(struct volume_service *service, volume_info_fn *fn, void *arg,
                struct err *err) MUST_CHECK;
/* Changes read_only, sync_close, conflict_copy, stale_reads, quota, history, storage class, encryption, the rule of snapshots. */
int volume_set(struct volume_service *service, const char *name,
               const struct volume_settings *settings, struct err *err) MUST_CHECK;
/* The owner's emergency stop, of one volume or (`name` NULL) of all there are: until it is taken back no face writes, by files that are
 * open already neither (but those that a kernel writes by itself, passthrough), and nothing of it goes to the bucket. Works while the
 * store is away. `*changed`: volumes that were not so before. */
int volume_freeze(struct volume_service *service, const char *name, bool frozen, unsigned *changed,
                  struct err *err) MUST_CHECK;
/* Forgets the volume; the objects stay in the bucket. ERR_BUSY while something is unsynced (unless `force`) or open. */
int volume_delete(struct volume_service *service, const char *name, bool force,
                  struct err *err) MUST_CHECK;

/* ---- the tree ---- */
struct volume_attr {
    int64_t node;
    int64_t parent;
    int64_t volume;
    enum index_kind kind;
    uint32_t mode;  /* with file type */
    uint32_t nlink; /* names of a file; 1 for a folder */
    uint32_t uid, gid;
    uint64_t size;
    uint64_t rdev; /* device nodes: as st_rdev */
    int64_t mtime_ns, ctime_ns, atime_ns;
    char version
        [LIMIT_ETAG]; /* what HTTP shows as ETag: version id, or the foreign ETag; "" for folders */
    char etag[LIMIT_ETAG]; /* of the object in the bucket, "" while never synced */
    bool synced;
    bool conflict; /* an unresolved conflict names this path */
    bool writing;  /* open for writing now: size and mtime move */
    /* So long name and attributes need not be asked for again: what changes here is told at once (volume_watch()), what others
     * do in the bucket is found when the folder is listed anew. 0: not known. */
    int64_t fresh_ns;
};

/* Path inside the volume (path_normalize()d). Symlinks are not followed. Where the bucket's state of a folder is not known yet
 * this lists it. ERR_NOT_FOUND is only ever said when the store said so or the index knows (INV-9). */
int volume_resolve(struct volume_service *service, const struct volume_ctx *ctx, int64_t volume,
                   const char *path, struct volume_attr *out, struct err *err) MUST_CHECK;
struct volume_name {
    int64_t parent;
    const char *name;
    size_t len;
};
/* `out->fresh_ns` is set with ERR_NOT_FOUND too: so long the name is not there. */
int volume_lookup(struct volume_service *service, const struct volume_ctx *ctx,
                  const struct volume_name *at, struct volume_attr *out,
                  struct err *err) MUST_CHECK;
int volume_getattr(struct volume_service *service, const struct volume_ctx *ctx, int64_t node,
                   struct volume_attr *out, struct err *err) MUST_CHECK;
/* The path of a node inside its volume. */
int volume_path(struct volume_service *service, int64_t node, char *out, size_t size,
                struct err *err) MUST_CHECK;

struct volume_entry {
    const char *name;
    size_t name_len;
    int64_t cookie; /* pass as `after` to go on behind this entry; rises */
    struct volume_attr attr;
    bool name_only; /* of page.names: only the name, the node and, of a folder, the type hold */
};
typedef int volume_entry_fn(void *arg, const struct volume_entry *entry,
                            struct err *err); /* > 0: stop, no error */
/* Entries of a folder after `after` (0: from the start), at most `limit`, in a stable order. */
struct volume_page {
    int64_t dir;
    int64_t after;
    unsigned limit;
    /* Fewer than `limit` may come while the folder is still being listed; none at all means the end. */
    bool partial;
    /* Only names are wanted: objects that only a listing showed come `name_only`, without a file type in attr.mode, and need
     * no HEAD. */
    bool names;
    bool *ended; /* unless NULL: set to true when nothing came behind what was given, and no listing was under way */
};
int volume_list(struct volume_service *service, const struct volume_ctx *ctx,
                const struct volume_page *page, volume_entry_fn *fn, void *arg,
                struct err *err) MUST_CHECK;

enum volume_change_bits {
    VOLUME_SET_MODE = 1,
    VOLUME_SET_UID = 2,
    VOLUME_SET_GID = 4,
    VOLUME_SET_MTIME = 8,
    VOLUME_SET_SIZE = 16,
    VOLUME_SET_ATIME = 32,
};
struct volume_change {
    unsigned bits;
    uint32_t mode, uid, gid;
    int64_t mtime_ns, atime_ns;
    uint64_t size;
};
int volume_setattr(struct volume_service *service, const struct volume_ctx *ctx, int64_t node,
                   const struct volume_change *change, struct volume_attr *out,
                   struct err *err) MUST_CHECK;

/* Extended attributes of files and folders. Only user.* are kept, at most LIMIT_XATTRS bytes a node (ERR_NO_SPACE); what fits
 * an object's metadata goes to the bucket with it, the rest stays here. Other classes are ERR_UNSUPPORTED, symlinks ERR_PERM,
 * absent ones ERR_NO_ATTRIBUTE. user.holdfast.* are said, not kept: version, etag, synced, key, base, conflict (setting one is
 * ERR_PERM). */
int volume_xattr_get(struct volume_service *service, const struct volume_ctx *ctx, int64_t node,
                     const char *name, struct buf *out, struct err *err) MUST_CHECK;
/* Each name with its NUL; those of ours are not among them. */
int volume_xattr_list(struct volume_service *service, const struct volume_ctx *ctx, int64_t node,
                      struct buf *out, struct err *err) MUST_CHECK;
struct volume_xattr {
    const char *name;
    const void *value;
    size_t len;
    int flags; /* XATTR_CREATE, XATTR_REPLACE, 0 */
    bool remove;
};
int volume_xattr_change(struct volume_service *service, const struct volume_ctx *ctx, int64_t node,
                        const struct volume_xattr *change, struct err *err) MUST_CHECK;

int volume_mkdir(struct volume_service *service, const struct volume_ctx *ctx,
                 const struct volume_name *at, uint32_t mode, struct volume_attr *out,
                 struct err *err) MUST_CHECK;
int volume_symlink(struct volume_service *service, const struct volume_ctx *ctx,
                   const struct volume_name *at, const char *target, struct volume_attr *out,
                   struct err *err) MUST_CHECK;
/* A fifo, socket or device node: a name and a mode (with its type), without bytes. */
struct volume_node {
    struct volume_name at;
    uint32_t mode;
    uint64_t rdev; /* devices: as st_rdev */
};
int volume_mknod(struct volume_service *service, const struct volume_ctx *ctx,
                 const struct volume_node *special, struct volume_attr *out,
                 struct err *err) MUST_CHECK;
/* A further name for a file or symlink (docs/adr/0008). ERR_PERM for a folder, ERR_CROSS_DEVICE, ERR_EXISTS, ERR_NOT_FOUND when
 * it was unlinked, EMLINK beyond LIMIT_LINKS. `out`: the file's, with the new name's parent. */
int volume_link(struct volume_service *service, const struct volume_ctx *ctx, int64_t node,
                const struct volume_name *at, struct volume_attr *out, struct err *err) MUST_CHECK;
/* `out` holds LIMIT_SYMLINK + 1. */
int volume_readlink(struct volume_service *service, const struct volume_ctx *ctx, int64_t node,
                    char *out, size_t size, struct err *err) MUST_CHECK;
/* Removes a file, symlink (`dir` false) or empty folder (`dir` true). `pre` NULL: whatever is there is the base. */
int volume_remove(struct volume_service *service, const struct volume_ctx *ctx,
                  const struct volume_name *at, bool dir, const struct precondition *pre,
                  struct err *err) MUST_CHECK;
/* RENAME_NOREPLACE and RENAME_EXCHANGE as renameat2(2). One index change, whatever lies below. */
int volume_rename(struct volume_service *service, const struct volume_ctx *ctx,
                  const struct volume_name *from, const struct volume_name *to, unsigned flags,
                  struct err *err) MUST_CHECK;
/* Makes every missing folder of a path ("" is fine) and answers the last one. */
int volume_make_dirs(struct volume_service *service, const struct volume_ctx *ctx, int64_t volume,
                     const char *path, struct volume_attr *out, struct err *err) MUST_CHECK;

/* ---- open files (mounts) ---- */
struct volume_file;
/* `flags` as open(2): O_RDONLY, O_WRONLY, O_RDWR, O_TRUNC, O_APPEND. A writing open is recorded before the answer. */
int volume_file_open(struct volume_service *service, const struct volume_ctx *ctx, int64_t node,
                     int flags, struct volume_file **out, struct err *err) MUST_CHECK;
/* O_EXCL in `flags` refuses an existing name; without it an existing file is opened. `mode`: permission bits. */
struct volume_new {
    struct volume_name at;
    uint32_t mode;
    int flags;
};
int volume_file_create(struct volume_service *service, const struct volume_ctx *ctx,
                       const struct volume_new *new_file, struct volume_attr *attr,
                       struct volume_file **out, struct err *err) MUST_CHECK;
/* An open file of an earlier gateway. Nothing is recorded or changed. ERR_NOT_FOUND: the node is gone. */
int volume_file_reopen(struct volume_service *service, const struct volume_ctx *ctx, int64_t node,
                       bool writer, struct volume_file **out, struct err *err) MUST_CHECK;
int64_t volume_file_node(const struct volume_file *file);
/* Fetches what is missing (unless ctx->nowait: ERR_AGAIN). Answers bytes read, short only at end of file. */
ssize_t volume_file_read(struct volume_file *file, const struct volume_ctx *ctx, void *out,
                         size_t len, uint64_t off, struct err *err) MUST_CHECK;
/* The same without a copy: the bytes lie at `off` in `fd` until volume_file_return(). 1: not now, they have to be read. */
struct volume_lent {
    int fd;
    size_t len; /* short only at end of file */
    struct cache_reading reading;
};
int volume_file_lend(struct volume_file *file, const struct volume_ctx *ctx, uint64_t off,
                     size_t len, struct volume_lent *out, struct err *err) MUST_CHECK;
void volume_file_return(struct volume_lent *lent);
int volume_file_write(struct volume_file *file, const struct volume_ctx *ctx, const void *data,
                      size_t len, uint64_t off, struct err *err) MUST_CHECK;
/* copy_file_range(2): answers how many bytes, 0 at the end of `from`; a piece of what was asked for. ERR_UNSUPPORTED: by reading and
 * writing only. */
struct volume_copy {
    struct volume_file *from;
    uint64_t from_off, to_off;
    size_t len;
};
ssize_t volume_file_copy(struct volume_file *to, const struct volume_ctx *ctx,
                         const struct volume_copy *copy, struct err *err) MUST_CHECK;
int volume_file_allocate(struct volume_file *file, const struct volume_ctx *ctx, int mode,
                         uint64_t off, uint64_t len, struct err *err) MUST_CHECK;
/* lseek SEEK_DATA / SEEK_HOLE. */
int volume_file_seek(struct volume_file *file, const struct volume_ctx *ctx, uint64_t off,
                     int whence, uint64_t *out, struct err *err) MUST_CHECK;
/*
 * Passthrough (docs/design.md section 7). Lends the file's content file to a kernel, until the handle is closed: whatever is
 * done to the file by others happens to this very content file as long as anybody has it. A handle that was opened for writing
 * is lent to be written, only while the disk and the quota have plenty of room. 1: not now, the gateway has to serve it.
 */
struct volume_backing {
    uint64_t min_size; /* in: shorter files are not worth it (readers only) */
    bool direct; /* in: read and write will come to the gateway all the same, only mappings go past it */
    int64_t content; /* out: names the bytes */
};
int volume_file_back(struct volume_file *file, const struct volume_ctx *ctx,
                     struct volume_backing *backing, struct err *err) MUST_CHECK;
/* The same for a file that an earlier gateway has lent (volume_file_reopen()); false: it has other bytes now. */
bool volume_file_back_again(struct volume_file *file, int64_t content);
/* A descriptor (the caller's) of what is lent, for writing only when the handle is. ERR_NOT_FOUND: it has no name any more. */
int volume_file_backing_fd(struct volume_file *file, int *fd, struct err *err) MUST_CHECK;
/* Changes whenever the bytes do, 0: may change at any time. Of the moment of the open. */
uint64_t volume_file_stamp(const struct volume_file *file);
/* It was not used. */
void volume_file_unback(struct volume_file *file);
/* The kernel keeps pages of the file for this handle, until it is closed: meanwhile it is lent to no writer. False: it is
 * already, and the pages would be stale. */
bool volume_file_paged(struct volume_file *file);
/* close(2): level one of kept; a conflict or failed upload that was not told yet comes out here. May be called many times. */
int volume_file_flush(struct volume_file *file, const struct volume_ctx *ctx,
                      struct err *err) MUST_CHECK;
/* fsync(2): level two; in `sync=close` volumes level three. */
int volume_file_fsync(struct volume_file *file, const struct volume_ctx *ctx,
                      struct err *err) MUST_CHECK;
/* The last close: frees the handle; a writer's bytes are frozen and queued for upload. */
void volume_file_close(struct volume_file *file, const struct volume_ctx *ctx);
/* Its close may have to change the index, and wait for that. False is an answer of this moment, which an unlink may outdate. */
bool volume_file_close_waits(const struct volume_file *file);
/* fsync of a folder: every namespace change so far is durable on this machine; in `sync=close` volumes the bucket has them. */
int volume_fsync_dir(struct volume_service *service, const struct volume_ctx *ctx, int64_t dir,
                     struct err *err) MUST_CHECK;
/* Mounts that came (1) or went (-1): with one alone nobody has to be told of what it does itself. */
void volume_kernels(struct volume_service *service, int change);
unsigned volume_kernel_count(struct volume_service *service);
/* Locks of programs, volume/locks.h. */
struct lock_table *volume_locks(struct volume_service *service);
/* All handles and locks of a mount that is gone. */
void volume_connection_gone(struct volume_service *service, int64_t connection);
/* Everything that the kernel sent again to this mount was answered: answers in slots below `first` or from `end` on are dropped. */
void volume_connection_settled(struct volume_service *service, int64_t connection, uint32_t first,
                               uint32_t end);

/* ---- whole files (HTTP, CLI, restore) ---- */
struct volume_upload;
/* Staging for a new whole version of `path`; nothing is visible before the commit. `mode` 0: keep or 0644. */
struct volume_upload *volume_upload_begin(struct volume_service *service,
                                          const struct volume_ctx *ctx, int64_t volume,
                                          const char *path, struct err *err) MUST_CHECK;
int volume_upload_write(struct volume_upload *upload, const void *data, size_t len,
                        struct err *err) MUST_CHECK;
struct volume_commit_args {
    struct precondition
        pre;          /* judged against the index in the commit's transaction, then by the bucket */
    uint32_t mode;    /* permission bits, 0: keep the old or 0644 */
    int64_t mtime_ns; /* 0: now */
    bool wait_synced; /* come back when the bucket has it (level three), else when it is staged durably */
    bool make_dirs;
    const struct volume_like *like; /* NULL: a file of the caller's */
    char *version; /* unless NULL: gets the id of these bytes (ULID_SIZE) once they are staged */
};
/* A new version that is to be like an object: its owner, its extended attributes, and what others wrote with it. */
struct volume_like {
    bool has_owner;
    uint32_t uid, gid;
    const char *extra; /* as extra_collect() found it */
};
/* The one write path. Takes and frees `upload` in every case. On ERR_CONFLICT `out` describes what is there now; the loser's
 * bytes are kept as a conflict when they were already staged as this path's content, else nothing was changed.
 * ERR_NOT_SYNCED: staged and safe here, but the bucket did not take it within the deadline. */
int volume_commit(struct volume_upload *upload, const struct volume_ctx *ctx,
                  const struct volume_commit_args *args, struct volume_attr *out, bool *created,
                  struct err *err) MUST_CHECK;
void volume_upload_abort(struct volume_upload *upload);

/* ---- synced or not ---- */
struct volume_barrier {
    uint64_t pending;              /* keys still with work when the barrier ended */
    uint64_t conflicts;            /* that no barrier told of which ended before this one began */
    char first_key[LIMIT_KEY + 1]; /* one of the pending ones and why, for the message */
    char first_error[160];
};
/* Everything that was changed before the call is in the bucket, or ERR_NOT_SYNCED at the deadline. `volume` 0: all. Files open
 * for writing are frozen first where they are quiet. ERR_CONFLICT: synced, but some of it met a conflict. A barrier tells of every
 * conflict in its volumes, found before the call or during it, that no barrier has told of which ended before this one began;
 * those of an earlier service are in the lists only. */
int volume_flush(struct volume_service *service, int64_t volume, int64_t deadline_ns,
                 struct volume_barrier *out, struct err *err) MUST_CHECK;
/* The same wait, and nothing is told: its conflicts stay news for the next barrier. */
int volume_flush_quietly(struct volume_service *service, int64_t volume, int64_t deadline_ns,
                         struct volume_barrier *out, struct err *err) MUST_CHECK;
struct volume_unsynced {
    const char *key;
    const char *path; /* "" when the name is gone (a delete under way) */
    const char *what; /* "upload", "delete", "move", "open": changed, and still open for writing */
    bool below; /* a folder that was moved: all that lies below too, which is not told one by one yet */
    uint64_t size;
    uint32_t tries;
    int64_t since_ns;
    const char *last_error;
};
typedef int volume_unsynced_fn(void *arg, const struct volume_unsynced *row, struct err *err);
int volume_unsynced_each(struct volume_service *service, int64_t volume, unsigned limit,
                         volume_unsynced_fn *fn, void *arg, struct err *err) MUST_CHECK;
int volume_conflict_each(struct volume_service *service, int64_t volume, index_conflict_fn *fn,
                         void *arg, struct err *err) MUST_CHECK;
/* The loser's bytes: how many (`out` NULL) or some of them, short only at their end. From the disk until they are in the bucket,
 * then from there (ctx->nowait: ERR_AGAIN). */
ssize_t volume_conflict_read(struct volume_service *service, const struct volume_ctx *ctx,
                             const char *id, void *out, size_t len, uint64_t off,
                             struct err *err) MUST_CHECK;

/* Keys in the folders listed since the start that cannot be shown as files (INV-12). */
struct volume_unreachable {
    uint64_t count;
    char key[LIMIT_KEY + 1]; /* one of them, "" for none */
    char why[64];
};
/* How bytes came from the bucket since the start. */
struct volume_reading {
    uint64_t requests, bytes; /* GETs of files, and what they brought */
    uint64_t joined;          /* reads that waited for what somebody else had asked for already */
    uint64_t past_cache;      /* reads past a cache that is full or broken */
    uint64_t ahead_bytes, ahead_unread;
    uint64_t prefetched, prefetch_used, prefetch_unread; /* small files, before they were opened */
};
/* Removed content files: what a kernel still holds of them can go. Called without locks, from any thread; `fn` NULL ends it, and
 * after that returns nobody is inside. */
typedef void volume_content_gone_fn(void *arg, int64_t content);
void volume_on_content_gone(struct volume_service *service, volume_content_gone_fn *fn, void *arg);

struct volume_status {
    bool store_ok;
    char store_url[512];
    char provider[24];               /* whose prices and habits count, "" for none */
    char store_error[LIMIT_ERR_MSG]; /* why store_ok is false */
    enum err_code store_error_code;  /* ERR_STORE_DENIED: the store refuses the keys */
    int64_t store_error_since_ns;    /* wall */
    struct store_caps caps;
    bool degraded; /* no conditional writes (INV-3) */
    struct store_counters counters;
    struct cache_usage cache;
    struct volume_reading reading;
    uint64_t unsynced_files, unsynced_bytes, pending_keys, conflicts;
    uint64_t uploads_open;    /* in parts, begun and not ended yet */
    uint64_t uploads_foreign; /* the same of others, over a day old, below the volumes: left alone */
    uint64_t uploads_failing; /* keys whose last attempt failed */
    bool disk_low;
    bool read_only;      /* a failed fsync of our own journal */
    char recovered[200]; /* what the last start had to mend, "" when nothing */
    struct volume_unreachable unreachable;
};
int volume_status(struct volume_service *service, struct volume_status *out,
                  struct err *err) MUST_CHECK;

/* How long the calls to the store took; lives as long as the service. */
const struct store_timing *volume_store_timing(const struct volume_service *service);

/* ---- what changed, for kernels and event streams ---- */
enum volume_event_kind {
    VOLUME_EVENT_CREATED,
    VOLUME_EVENT_CHANGED, /* content or attributes; of a file that was written: at its close */
    VOLUME_EVENT_OPENED,  /* begun to be written: sizes and bytes that are known end */
    VOLUME_EVENT_REMOVED,
    VOLUME_EVENT_RENAMED, /* old name gone; a CREATED follows */
    VOLUME_EVENT_SYNCED,
    VOLUME_EVENT_CONFLICT,
    VOLUME_EVENT_RESOLVED, /* that was ended; where nothing lies at its path, `parent` is the root and `name` the path */
    VOLUME_EVENT_STALE, /* a run wrote it after something that it had read was changed by others (volume/reads.h) */
    VOLUME_EVENT_STORE, /* the store went away or came back */
    VOLUME_EVENT_LOST,  /* too many at once: some were not told */
};
/* The words for it: change, synced, conflict, resolved, store or lost; of a change also create, write, remove or move_from (else NULL). */
const char *volume_event_type(enum volume_event_kind kind);
const char *volume_event_op(enum volume_event_kind kind);
struct volume_event {
    enum volume_event_kind kind;
    int64_t volume, node, parent;
    const char *name;   /* NUL-terminated, may be "" */
    int64_t connection; /* the mount whose request caused it (its kernel knows already), 0: others */
};
/* Called by the service's one notifier thread, without locks. Register before volume_service_start(). */
typedef void volume_event_fn(void *arg, const struct volume_event *event);
int volume_watch(struct volume_service *service, volume_event_fn *fn, void *arg,
                 struct err *err) MUST_CHECK;
/* Who tells kernels sets this before volume_service_start(): `pass` hands `done` on behind what it was told so far. */
typedef void volume_done_fn(void *arg);
typedef void volume_pass_fn(void *arg, volume_done_fn *done, void *done_arg);
void volume_teller(struct volume_service *service, volume_pass_fn *pass, void *arg);
/* `done` runs once, by any thread, when all kernels were told of what has changed so far. False, and it does not run: there is
 * one kernel at most. What waits for it may not hold a lock that a notification needs: a folder's, or a file's (a rename, a
 * truncation). */
bool volume_told(struct volume_service *service, volume_done_fn *done, void *done_arg);

#endif
