#ifndef VOLUME_SERVICE_IMPL_H
#define VOLUME_SERVICE_IMPL_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/pool.h"
#include "base/sys.h"
#include "base/text.h"
#include "volume/readahead.h"
#include "volume/volume.h"

/*
 * What the files of this folder share. Locks in taking order (docs/LOCKS.md):
 *   1. inode.lock      the state of one open node; may be held across an index call, never across store I/O
 *   2. index writer    functions given to index_write() run one at a time, on any thread that waits there, and take only locks below
 *   3. inode_table.lock, sync.lock, events.lock, status_lock   leaves: nothing is called while they are held
 */

/* live.c: what is known of an open file's copies. */
struct live_file {
    int64_t content;         /* the row that `st` tells of, 0: none was copied yet */
    struct stat st;          /* when it was copied last */
    char version[ULID_SIZE]; /* of that copy */
    int64_t since_ns;        /* wall: it changed since; 0: it did not, or nobody has looked */
    int64_t next_ns, pause_ns, not_before_ns; /* mono: the next try, and after how long it was */
    int64_t begun_ns; /* mono: the last copy is on its way since; 0: none is */
    char why[80];     /* it cannot be copied now */
};

/* A node in memory while somebody has it open or works on its bytes. */
struct inode {
    int64_t node;
    struct inode *next; /* chain of the table */
    unsigned refs;      /* table lock */
    unsigned opens;     /* table lock: handles of programs; what makes an unlinked node an orphan */
    bool counted;       /* table lock: somebody has decided by the number of opens */

    pthread_mutex_t lock;
    pthread_cond_t fetched; /* a fetch ended */
    int64_t volume;
    int64_t content;          /* row whose bytes `file` holds, 0: not opened yet */
    struct cache_file *file;  /* NULL: none yet */
    enum content_state state; /* of that row */
    unsigned content_flags;
    unsigned writers;
    int64_t
        since_ns; /* wall: LIVE again since it was FROZEN, and the bucket lacks a change of then; 0: not so */
    unsigned awaited; /* closes that wait until the bucket has what is FROZEN: it is not thawed */
    bool making;      /* created a moment ago, its content file does not exist yet */
    /* Bytes that come from the store (fetch.c); who waits for some does so on `fetched`. */
    struct flight *flights;          /* requests under way */
    bool bringing;                   /* the whole of a small file is coming, before `file` exists */
    struct readahead ahead;          /* what will be asked for next */
    uint64_t ahead_end;              /* so far was fetched ahead */
    int64_t ahead_after_ns;          /* mono: nothing is fetched ahead before */
    int64_t failed_ns;               /* mono: when a fetch last failed, 0: it did not */
    uint64_t failed_off, failed_end; /* of what range */
    bool failed_local;               /* it was the cache's disk */
    struct err fetch_err;            /* with what */
    /* Handles whose kernel works on `file` by itself, those of them that write, and those whose kernel keeps pages (backing.c).
     * While any is lent, the node's bytes stay in this file. */
    unsigned lent, lent_writers, paged;
    bool was_lent; /* to a writer since it became LIVE: how it looked then is in `seen` */
    struct stat seen;
    int64_t seen_ns;    /* wall */
    bool stuck;         /* its last freeze failed: it holds a reference to itself until one works */
    bool dirty_size;    /* written since the last row update */
    bool loose;         /* written since the last fdatasync of `file` began */
    unsigned syncing;   /* such that have not ended: until then nothing counts as kept */
    unsigned freezes;   /* so often it was frozen */
    int64_t wrote_by;   /* the connection whose programs write it, 0: several, or none */
    char wrote_run[64]; /* the run that began to write it, "": none, or several did */
    bool moved;         /* written since its time was last told, */
    int64_t told_mtime_ns; /* which was this */
    struct live_file live;
    atomic_int told_error; /* errno that FLUSH or FSYNC still has to tell, 0: none */
};

#define INODE_BUCKETS 4096
struct inode_table {
    pthread_mutex_t lock;
    struct inode *bucket[INODE_BUCKETS];
};

struct volume_file {
    struct volume_service *service;
    struct inode *inode;
    uint64_t fh;
    int64_t connection;
    bool writable;
    bool counted;                  /* among the inode's writers */
    bool closed;                   /* no longer among its opens */
    bool last;                     /* closed: and nobody else has it open */
    bool lent, lent_writer, paged; /* counted in the inode */
    uint64_t stamp;
    uint64_t row_size; /* by its row when it was opened; what is LIVE may be longer */
    bool local;        /* a content row was there when it was opened */
    bool append;
};

struct drop_list {
    int64_t *number;
    size_t count, cap;
};

struct event_queue;
struct sync_engine;
struct lease_keeper;
struct live_keeper;
struct lister;
struct uploads;
struct ticker;
struct reads;
struct changelog;
struct forker;
struct audit;

/* gone.c: keys whose objects ended lately. */
#define GONE_KEYS 1024u
struct gone_keys {
    pthread_mutex_t lock; /* a leaf */
    uint64_t count;       /* so many were added ever; the last ones are in `key` */
    char *key[GONE_KEYS];
};
void gone_keys_init(struct gone_keys *gone);
void gone_keys_release(struct gone_keys *gone);
void gone_keys_add(struct gone_keys *gone, const char *key);
uint64_t gone_keys_now(struct gone_keys *gone);
/* Whether `key`, or with `prefix` any key that begins so, ended since gone_keys_now() answered `since`; true also when
 * that is not remembered. */
bool gone_keys_since(struct gone_keys *gone, uint64_t since, const char *key, bool prefix);

/* told.c: of which conflicts a barrier has told. */
struct told_mark;
struct told {
    pthread_mutex_t lock; /* a leaf */
    struct told_mark *marks;
    char start[ULID_SIZE];
};
/* As it was when a barrier began. */
struct told_view {
    struct told *told;
    struct told_mark *marks;
};
void told_init(struct told *told);
int told_start(struct told *told, struct err *err) MUST_CHECK;
void told_release(struct told *told);
int told_begin(struct told *told, struct told_view *view, struct err *err) MUST_CHECK;
bool told_is_news(const struct told_view *view, const struct index_conflict *row);
/* Later barriers do not tell of this one any more. */
int told_tell(struct told_view *view, const struct index_conflict *row, struct err *err) MUST_CHECK;
void told_end(struct told_view *view);

struct volume_service {
    char *state_dir;
    int state_fd;
    int lock_fd;
    struct store *store;
    struct cache *cache;
    struct index *index;
    struct inode_table inodes;
    struct sync_engine *sync;
    struct event_queue *events;
    struct lease_keeper *leases;
    struct changelog *changelog; /* NULL: the gateway neither tells nor asks what changes */
    struct live_keeper *live;    /* NULL: files that stay open are synced by a barrier only */
    struct lister *lister;
    struct uploads *uploads;
    struct ticker *pruner, *publisher, *timer;
    struct forker *forker;
    struct fetcher *fetcher;
    struct lock_table *locks;
    pthread_mutex_t drop_lock; /* leaf */
    struct drop_list dropped;  /* content files that wait for a durable commit */
    int64_t list_ttl_ns;
    int64_t sync_rest_ns; /* rest.c */
    atomic_uint hurried;  /* so many wait for the bucket: nothing rests meanwhile */
    int64_t sync_open_ns;
    unsigned upload_threads;
    char gateway_id[ULID_SIZE];
    char boot_id[SYS_BOOT_ID_SIZE];
    bool same_boot;
    struct gone_keys gone;
    struct told told;
    struct reads *reads; /* reads.c */
    struct audit *audit; /* audit.c */
    struct ticker *auditor;
    atomic_bool audit_reads; /* some volume wants its reads recorded */
    uint64_t audit_sent;     /* its own: all segments before this record are packed and sent */
    int64_t audit_after_ns;  /* its own: mono, no more is sent before */
    char (*found)[LIMIT_VOLUME_NAME + 1]; /* found.c */
    size_t found_count;
    int64_t listed_since_ns;              /* older listings of folders count as none */
    const struct volume_carried *carried; /* until recovery is through; NULL: nothing */
    bool started;
    atomic_bool stopping;
    atomic_bool read_only; /* our own journal failed */
    atomic_uint kernels;   /* mounts that are there */
    _Atomic uint64_t next_fh;
    char recovered[200];

    pthread_mutex_t status_lock;
    bool store_ok;
    char store_error[LIMIT_ERR_MSG];
    enum err_code store_error_code;
    int64_t store_error_since_ns;
    int64_t *held; /* hold.c: volumes that are frozen */
    size_t held_count;
    atomic_bool holds; /* there are some */
};

/* hold.c: ERR_READ_ONLY while the owner has frozen the volume; the second one reads no index. */
int hold_load(struct volume_service *service, struct err *err) MUST_CHECK;
int hold_check_row(const struct index_volume *volume, struct err *err) MUST_CHECK;
int hold_check(struct volume_service *service, int64_t volume, struct err *err) MUST_CHECK;
int hold_postpone(struct index_tx *tx, struct index_intent *row, struct err *err) MUST_CHECK;

/* service.c */
int64_t service_deadline(const struct volume_ctx *ctx);
/* Records that the store answered, or did not; makes the STORE event when that changes. */
void service_store_seen(struct volume_service *service, const struct err *err);
/* The bucket's side of a folder is known. */
bool service_listed(const struct volume_service *service, const struct index_node *dir);
/* And that lately: what the index does not have in this folder is not there. */
bool service_listed_lately(const struct volume_service *service, const struct index_node *dir);
int service_may_write(struct volume_service *service, const struct volume_ctx *ctx,
                      const struct index_volume *volume, struct err *err) MUST_CHECK;

/* Whether `more` bytes fit the volume's quota (files being written count from their close on). */
int service_may_grow(struct index_tx *tx, const struct index_volume *volume, uint64_t more,
                     struct err *err) MUST_CHECK;

/* binding.c: what the state directory remembers of its store, "": nothing yet. */
struct binding {
    char id[64], url[512];
    char caps[256]; /* what the last probe found */
};
/* Probes the store and holds it against `known`; ERR_WRONG_STORE. One that is away may do with what is known (args->offline_start). */
int binding_meet(struct volume_service *service, const struct volume_service_args *args,
                 const struct binding *known, struct err *err) MUST_CHECK;

/* The id in the bucket; ERR_NOT_FOUND: it has none. */
int binding_read_id(struct store *store, char id[ULID_SIZE], struct err *err) MUST_CHECK;

/* evict.c: for cache_on_evict(), `arg` is the service: whether the content file may go. */
bool evict_content(void *arg, int64_t number);

/* inode.c: inode_ref() makes the entry when it is missing; NULL only without memory. */
int inode_table_init(struct inode_table *table, struct err *err) MUST_CHECK;
void inode_table_release(struct inode_table *table);
struct inode *inode_ref(struct inode_table *table, int64_t node, bool open,
                        struct err *err) MUST_CHECK;
void inode_unref(struct inode_table *table, struct inode *inode, bool open);
/* A handle counts no longer as an open, its reference stays; answers how many are left, and whether anybody has asked for their
 * number: then the node may have become an orphan because of them. */
unsigned inode_unopen(struct inode_table *table, struct inode *inode, bool *counted);
bool inode_is_counted(struct inode_table *table, const struct inode *inode);
/* A new entry whose content file is still to be made; content.c waits until create.c has done so. */
void inode_making(struct inode_table *table, struct inode *inode);
/* Handles of programs on this node; a leaf call, usable inside index functions. */
unsigned inode_open_count(struct inode_table *table, int64_t node);
bool inode_is_open(struct inode_table *table, struct inode *inode);
/* The entry if it exists, referenced; NULL else. */
struct inode *inode_find(struct inode_table *table, int64_t node);
/* The writer of a lost version hears of it at its next flush or fsync. */
void inode_tell_loser(struct volume_service *service, int64_t node);
void inode_each(struct inode_table *table, void (*fn)(void *arg, struct inode *inode), void *arg);

/* attr.c: what the index knows as a volume_attr; of a further name, its inode's. */
int attr_fill(struct index_tx *tx, const struct index_node *node, struct volume_attr *out,
              struct err *err) MUST_CHECK;
/* The ctime of a file whose row says `known_ns` and whose bytes lie in a file of `st`. */
int64_t attr_ctime(int64_t known_ns, const struct stat *st);
/* How long what was filled from a row of this folder may be believed (attr->fresh_ns); `dir` NULL: nobody else changes it. */
void attr_believe(const struct volume_service *service, const struct index_node *dir,
                  struct volume_attr *attr);
/* Overrides size and mtime while the node is being written. */
int attr_live(struct volume_service *service, const struct volume_ctx *ctx,
              struct volume_attr *attr, struct err *err) MUST_CHECK;

/* key.c: keys of nodes. `out` holds LIMIT_KEY + 1. ERR_NAME_TOO_LONG when the path does not fit. */
int key_of_path(const struct index_volume *volume, const char *path, bool dir, char *out,
                struct err *err) MUST_CHECK;
int key_of_node(struct index_tx *tx, const struct index_node *node, char *out,
                struct err *err) MUST_CHECK;
/* The node whose path is this key, ERR_NOT_FOUND when there is none or its kind does not fit the key's form. */
int key_to_node(struct index_tx *tx, const struct index_volume *volume, const char *key,
                struct index_node *out, struct err *err) MUST_CHECK;
/* Makes or advances the work item of a key. It is due after `delay_ns` or what its transaction rests (rest_begin()), the longer
 * of both; each further change puts it off, to SYNC_RESTS such times after the first one that the bucket does not have at most. */
#define SYNC_RESTS 5
int key_want_sync(struct index_tx *tx, int64_t volume, const char *key, int64_t delay_ns,
                  struct err *err) MUST_CHECK;
/* The same for a change that came of one at `since_ns` (0: now). */
int key_want_again(struct index_tx *tx, int64_t volume, const char *key, int64_t since_ns,
                   struct err *err) MUST_CHECK;
/* The same at once, for work that comes of other work begun at `since_ns` (0: now). */
int key_want_since(struct index_tx *tx, int64_t volume, const char *key, int64_t since_ns,
                   struct err *err) MUST_CHECK;
/* The object at `key` is no longer wanted by us: its row says so, and its work item is made. */
int key_discard(struct index_tx *tx, int64_t volume, const char *key, struct err *err) MUST_CHECK;

/* node.c */
struct node_kind {
    enum index_kind kind;
    uint32_t mode; /* with file type */
    /* What else its one row is made with: nothing in most cases. */
    unsigned flags;
    int64_t content;
    const char *target;
    bool found; /* in the bucket: it was there before */
};
int node_make(struct index_tx *tx, const struct volume_ctx *ctx, const struct volume_name *at,
              const struct node_kind *kind, struct index_node *out, struct err *err) MUST_CHECK;
/* Before a node loses its name to another version: is somebody writing it, what the writer closes with is kept as a conflict
 * under the path of now. */
int node_mark_loser(struct index_tx *tx, struct index_node *node, struct err *err) MUST_CHECK;
/* Takes the name away from a node: an orphan while it is open, else gone with its content rows (numbers of files to remove
 * come back through `drop`). The object at its key is discarded. */
int node_unname(struct volume_service *service, struct index_tx *tx, struct index_node *node,
                bool discard_object, struct drop_list *drop, struct err *err) MUST_CHECK;
/* All content rows of a node except `keep`. */
int node_drop_contents(struct index_tx *tx, int64_t node, int64_t keep, struct drop_list *drop,
                       struct err *err) MUST_CHECK;
/* Times of a folder whose entries changed. */
int node_touch_dir(struct index_tx *tx, int64_t dir, struct err *err) MUST_CHECK;
/* A content row for what has no content file: a folder's marker or a symlink's target; sets node->content. */
int node_stage_inline(struct index_tx *tx, struct index_node *node, struct err *err) MUST_CHECK;
/* The same beside what the node has; `*number` 0: a new one. */
int node_insert_inline(struct index_tx *tx, const struct index_node *node, int64_t *number,
                       struct err *err) MUST_CHECK;
/* Makes the marker of a folder wanted. */
int node_want_marker(struct index_tx *tx, struct index_node *dir, struct err *err) MUST_CHECK;
/* Whether the volume of this folder may be written to now. */
int node_parent_writable(struct volume_service *service, struct index_tx *tx,
                         const struct volume_ctx *ctx, int64_t parent, struct err *err) MUST_CHECK;
/* '.holdfast' in a volume with an empty prefix. */
bool node_name_reserved(const struct index_volume *volume, const struct volume_name *at);
/* A folder that has just lost its last entry stays, by its marker. */
int node_keep_empty(struct index_tx *tx, int64_t parent, struct err *err) MUST_CHECK;
/* A folder may only be called empty when the bucket was asked. */
int node_know_folder(struct volume_service *service, const struct volume_ctx *ctx, int64_t dir,
                     struct err *err) MUST_CHECK;
/* Nothing about it, or about what lies in a folder, has to be asked of the bucket. */
bool node_is_known(const struct volume_service *service, const struct index_node *node);

/* answer.c */
int answer_record(struct index_tx *tx, const struct volume_ctx *ctx, const struct volume_attr *attr,
                  struct err *err) MUST_CHECK;
/* True when a resent request was answered before: fills attr (may be NULL). */
bool answer_replay(struct index_tx *tx, const struct volume_ctx *ctx, struct volume_attr *attr);
/* Whether it was answered by an earlier gateway: then nothing is looked up before. */
bool answer_waits(struct volume_service *service, const struct volume_ctx *ctx);

/* renamed.c: a file got another name: if it is staged, its meta in the cache says so. Outside index functions. */
void renamed_note(struct volume_service *service, const struct index_node *moved);

/* drop.c: files go once their rows' end is durable. drop_run() frees the list. */
int drop_add(struct drop_list *list, int64_t number, struct err *err) MUST_CHECK;
void drop_run(struct volume_service *service, struct drop_list *list);
void drop_flush(struct volume_service *service);
int drop_make_durable(struct volume_service *service, struct err *err) MUST_CHECK;

/* carried.c: whether a program has it open in a connection that outlived the last gateway (`writer`: to write). */
bool carried_is_open(const struct volume_service *service, int64_t node, bool writer);

/* close.c: the staged bytes of a node are durable, and its row says so, before this answers. */
int close_keep(struct volume_service *service, int64_t node, struct err *err) MUST_CHECK;

/* content.c, fetch.c, freeze.c: bytes of an inode. All want inode->lock held (and may drop it while they wait for the store). */
int content_open_locked(struct volume_service *service, struct inode *inode,
                        struct err *err) MUST_CHECK;
int content_need_locked(struct volume_service *service, const struct volume_ctx *ctx,
                        struct inode *inode, uint64_t off, uint64_t len,
                        struct err *err) MUST_CHECK;
int content_begin_write_locked(struct volume_service *service, const struct volume_ctx *ctx,
                               struct inode *inode, bool truncate, struct err *err) MUST_CHECK;
/* For a reader: brings the bytes and lends them (cache_read_end(need->lent)); what it will ask for next is fetched ahead. */
struct content_need {
    uint64_t off, len;
    struct cache_reading *lent;
    bool local; /* it was the cache's disk that failed, or is full: the bytes can only come past it */
};
int content_lend_locked(struct volume_service *service, const struct volume_ctx *ctx,
                        struct inode *inode, struct content_need *need, struct err *err) MUST_CHECK;
/* The same bytes straight into memory, past the cache; without inode->lock. Answers how many there are. */
ssize_t content_read_past(struct volume_service *service, const struct volume_ctx *ctx,
                          struct inode *inode, const struct content_need *need, void *out,
                          struct err *err) MUST_CHECK;
/* The last handle was closed: what is fetched ahead for nobody ends. */
void content_unused(struct volume_service *service, struct inode *inode);
/* prefetch.c: where the files of this node's folder are being read through, what is not known of it yet comes with its bytes. True:
 * it did, or was coming. */
bool prefetch_complete(struct volume_service *service, const struct volume_ctx *ctx, int64_t node);
/* An object of this folder is asked for: whether somebody reads its files, rather than their attributes. */
bool prefetch_follows(struct volume_service *service, int64_t dir);
/* A program opened this file to read it. */
void prefetch_opened(struct volume_service *service, const struct inode *inode,
                     const struct index_node *row);
/* fetch.c: the requests in the background. Closing waits for them; they end soon once service->stopping is set. */
int fetcher_open(struct volume_service *service, unsigned slots, struct err *err) MUST_CHECK;
void fetcher_close(struct volume_service *service);
void prefetch_close(
    struct volume_service *service); /* after the fetcher's and the lister's threads */
void fetcher_release(struct volume_service *service);
void fetcher_tell(struct volume_service *service, struct volume_reading *out);
/* A content file that was just made, and its row, become the inode's. */
void content_adopt_locked(struct inode *inode, const struct index_content *content,
                          struct cache_file *take_file);
/* The time of the open content file. */
void content_set_mtime_locked(struct inode *inode, int64_t mtime_ns);
int content_freeze_locked(struct volume_service *service, struct inode *inode,
                          struct err *err) MUST_CHECK;
/* The same with `also` in its transaction, which runs even when there is nothing to freeze. */
int content_freeze_and_locked(struct volume_service *service, struct inode *inode, index_fn *also,
                              void *arg, struct err *err) MUST_CHECK;
void content_meta_fill(struct index_tx *tx, const struct index_node *node,
                       const struct index_content *content, struct cache_meta *out);
/* Content `number` is immutable and lent to readers: a copy of it gets a row, and what is sent goes on with that (backing.c), unless
 * it changed meanwhile. */
int content_aside_locked(struct volume_service *service, struct inode *inode, int64_t number,
                         struct err *err) MUST_CHECK;
/* The newest FROZEN content row of a node; ERR_NOT_FOUND. */
int content_frozen_of(struct index_tx *tx, int64_t node, struct index_content *out,
                      struct err *err) MUST_CHECK;

/* backing.c */
/* Whether a LIVE file changed since it became so, as far as can be told. */
bool backing_changed_locked(struct inode *inode);
/* A kernel may be writing it at this moment. */
static inline bool
backing_is_written(const struct inode *inode)
{
    return inode->lent_writers > 0;
}
/* The handle is being closed. */
void backing_return_locked(struct volume_file *file);

/* file.c: a handle counts as an open of its node from here on; forgetting it does not freeze anything. */
struct volume_file *handle_new(struct volume_service *service, const struct volume_ctx *ctx,
                               int64_t node, int flags, struct err *err) MUST_CHECK;
void handle_forget(struct volume_file *file);
/* Writes a row whose attributes changed, and makes the work that brings them to its object. */
int node_attrs_changed(struct index_tx *tx, struct index_node *row, struct err *err) MUST_CHECK;

/* xattrs.c: what takes a file's place without being another file has its extended attributes too. */
int xattrs_copy(struct index_tx *tx, int64_t from, int64_t to, struct err *err) MUST_CHECK;

/* special.c: fifos, sockets and device nodes. */
bool special_mode(uint32_t mode);
/* The node becomes one; `rdev` as st_rdev, devices only. */
void special_set(struct index_node *node, uint32_t mode, uint64_t rdev);
uint64_t special_rdev(const struct index_node *node); /* 0: no device */
int special_meta(const struct index_node *node, struct meta *out, struct err *err) MUST_CHECK;
uint64_t special_meta_read(const struct meta *meta);

/* object.c: metadata of objects, the s3fs/rclone convention and ours. */
struct object_attrs {
    bool has_mode, has_mtime, has_owner;
    uint32_t mode, uid, gid;
    int64_t mtime_ns;
    uint64_t rdev; /* 0: none was told */
    char actor[64], run[64];
};
/* How the volume's objects are kept; NULL when the bucket decides. `out` points into `volume` and `room`. */
struct object_room {
    char encryption[16];
};
const struct store_placement *object_placement(const struct index_volume *volume,
                                               struct object_room *room,
                                               struct store_placement *out);
int object_meta_make(const struct index_node *node, const struct index_content *content,
                     uint64_t epoch, struct meta *out, struct err *err) MUST_CHECK;
void object_read(const struct store_object *object, struct observed *seen,
                 struct object_attrs *attrs);

/* bucket.c: what others put there. */
/* HEADs a node seen only in a listing and completes its row. */
int bucket_complete_node(struct volume_service *service, const struct volume_ctx *ctx, int64_t node,
                         struct err *err) MUST_CHECK;
/* Lists a folder's prefix and merges; blocks. */
int bucket_list_dir(struct volume_service *service, const struct volume_ctx *ctx, int64_t dir,
                    struct err *err) MUST_CHECK;
/* Listed long ago: refresh in the background. */
void bucket_refresh_dir(struct volume_service *service, int64_t dir);
/* The row of a node that a listing showed gets what its object told; the caller writes it. Not for symlinks. */
struct bucket_told {
    const struct observed *seen;
    const struct object_attrs *attrs;
    const char *extra; /* extra_collect() */
};
int bucket_complete_row(struct index_tx *tx, struct index_node *row, const struct bucket_told *told,
                        struct err *err) MUST_CHECK;
/* HEADs a key and takes what it finds into the index (outside an attempt). */
int bucket_observe_key(struct volume_service *service, int64_t volume, const char *key,
                       struct err *err) MUST_CHECK;
int lister_open(struct volume_service *service, struct err *err) MUST_CHECK;
void lister_close(struct volume_service *service);

/* view.c, effect.c */
#define CONFLICT_PREFIX ".holdfast/conflicts/"
struct key_view {
    struct sync_view view;
    struct index_volume volume;
    struct index_node node;       /* when view.want.present and it is a node's key */
    int64_t inode;                /* the same node, or the one that it is a further name of */
    struct index_content content; /* the FROZEN row to send, id 0: none */
    struct index_intent intent;
    bool has_intent;
    bool prepare; /* the node must be sent here but has no FROZEN bytes yet: fetch and freeze a copy */
    char conflict_id[ULID_SIZE]; /* the key is a conflict's */
    char history_id[ULID_SIZE];  /* the key is that of a version whose bytes are here still */
};
int view_build(struct volume_service *service, struct index_tx *tx, int64_t volume, const char *key,
               struct key_view *out, struct err *err) MUST_CHECK;
/* An effect and what it is applied with. */
struct view_change {
    struct volume_service *service;
    struct index_tx *tx;
    const char *key;
    struct key_view *kv;
    const struct sync_effect *effect;
    const struct object_attrs *attrs; /* what a HEAD told about theirs; NULL: unknown */
    struct drop_list *drop;
    /* set on the way */
    bool loser_kept;               /* ours lives on as a conflict */
    int64_t cleaned, cleaned_node; /* the content row that is CLEAN now, 0: none */
    bool at_rest; /* the file's newest bytes lie at its key, and nothing of it is dirty */
    bool settled; /* so the work item has gone */
    bool more;    /* other keys may have got work of it */
};
int view_apply(struct view_change *change, struct err *err) MUST_CHECK;

/* The bytes of a node become a conflict's: pinned, detached from the node, queued for .holdfast/conflicts/. */
struct view_loser {
    const struct index_content *content;
    const char *reason; /* "conflict", "deleted" or "torn" */
    struct sync_have theirs;
    int64_t since_ns; /* of the work that found it, 0: now */
    const char *path; /* NULL: the node's */
};
int view_keep_loser(struct volume_service *service, struct index_tx *tx,
                    const struct index_node *node, const struct view_loser *loser,
                    struct err *err) MUST_CHECK;

/* conflicts.c: what a loser was made from is kept with it, as long as the cache has the room: a CLEAN row whose `node` is a negative
 * number that comes of the conflict's id. */
bool conflict_is_base(const struct index_content *row, const struct index_content *mine);
/* `to`, a new file, takes the name of `from`, which nobody has open: it was made of that. */
int conflict_pass_base(struct index_tx *tx, const struct index_node *from,
                       const struct index_node *to, struct err *err) MUST_CHECK;
/* Names it in the row too, where that names none. */
int conflict_keep_base(struct index_tx *tx, struct index_conflict *row,
                       const struct index_content *mine, const struct index_node *node,
                       struct err *err) MUST_CHECK;
/* ERR_NOT_FOUND */
int conflict_base(struct index_tx *tx, const char *id, struct index_content *out,
                  struct err *err) MUST_CHECK;

/* resolve.c: with conflict_copy=on a loser that is on its way to the bucket also becomes a file beside the path; not twice. */
void conflict_beside(struct volume_service *service, const char *key);

/* sync.c */
int sync_engine_open(struct volume_service *service, struct err *err) MUST_CHECK;
int sync_engine_start(struct volume_service *service, struct err *err) MUST_CHECK;
void sync_engine_close(struct volume_service *service, int64_t deadline_ns);
void sync_engine_release(struct volume_service *service);
void sync_kick(struct volume_service *service);
/* Workers that give way to programs in mounts look again whether they have to. */
void sync_hurry(struct volume_service *service);
/* As sync_kick(), at this time (mono), for a change of a mount. */
void sync_kick_at(struct volume_service *service, int64_t at_ns);
/* Sleeps until any key made progress or the deadline; answers false at the deadline. `seen`: value of sync_progress(). */
uint64_t sync_progress(struct volume_service *service);
void sync_progressed(struct volume_service *service);
/* Attempts that a LOOK did not find landed and that may land within 20 minutes. In memory only: without them nothing is lost
 * on a store that honours conditions, a late request of ours only shows as a foreign one. */
#define SYNC_LATE_PER_KEY 8u
void sync_late_add(struct volume_service *service, const char *key,
                   const struct sync_attempt *attempt);
size_t sync_late_of(struct volume_service *service, const char *key,
                    struct sync_attempt out[SYNC_LATE_PER_KEY]);
bool sync_wait(struct volume_service *service, uint64_t seen, int64_t deadline_ns);

/* rest.c: what mounts change goes up once its key has rested, so that what is changed again, or removed, is sent once or never.
 * Nothing rests while somebody waits for the bucket. In a function of index_write(): its work items rest when it is a mount's; `ctx` NULL: bytes that one wrote. */
#define REST_MAX (60 * NS_PER_S)
void rest_begin(const struct volume_service *service, const struct volume_ctx *ctx,
                struct index_tx *tx);
/* After such a change: the dispatcher looks when its items are due. */
void rest_kick(struct volume_service *service, const struct volume_ctx *ctx);
/* Whether what the bucket lacks since then (0: nothing) may not be put off any more. */
bool rest_is_over(const struct volume_service *service, int64_t since_ns);
/* Staged bytes cannot be evicted, and take so much room that they have to go up. */
bool rest_is_short(const struct volume_service *service);
/* Around waiting for the bucket. */
void rest_suspend(struct volume_service *service);
void rest_resume(struct volume_service *service);
/* Whether the item is put off for that reason, and was found by no clock that was put back since. */
bool rest_holds(const struct index_intent *row);

/* step.c: works on one key until it is settled (its work item is gone, and it made none for other keys:
 * true) or has to wait. */
bool step_key(struct volume_service *service, int64_t volume, const char *key);

/* live.c: copies of files that stay open go up every sync_open_ns. Close it before the sync engine. */
int live_keeper_start(struct volume_service *service, struct err *err) MUST_CHECK;
void live_keeper_close(struct volume_service *service);
/* For a barrier: now, if it is quiet. 1: copied, and its key has work, or it has no name any more; 0: not LIVE, or its last copy is still on its way; ERR_BUSY: it
 * does not rest. Without inode->lock. */
int live_copy(struct volume_service *service, struct inode *inode, struct err *err) MUST_CHECK;
/* Whether a file of this state holds what its last copy holds (`inode->live.version`). */
bool live_copied_locked(const struct inode *inode, const struct stat *st);

/* lease.c */
int lease_keeper_open(struct volume_service *service, struct err *err) MUST_CHECK;
int lease_keeper_start(struct volume_service *service, struct err *err) MUST_CHECK;
void lease_keeper_close(struct volume_service *service);
bool lease_keeper_held(struct volume_service *service, const struct index_volume *volume,
                       uint64_t *epoch);

/* changelog.c: what gateways of one bucket tell each other (docs/mechanisms.md section 8). Closing, behind the sync engine,
 * tells what is left. */
int changelog_open(struct volume_service *service, int64_t poll_ns, struct err *err) MUST_CHECK;
int changelog_start(struct volume_service *service, struct err *err) MUST_CHECK;
void changelog_close(struct volume_service *service);
void changelog_release(struct volume_service *service);
/* Somebody looks at the volume, or changes it: it is followed. Cheap, under any lock. */
void changelog_used(const struct volume_service *service, int64_t volume);
/* Wall: listings of the volume's folders from before are old, 0: none is. */
int64_t changelog_swept_ns(const struct volume_service *service, int64_t volume);
struct key_view;
/* The object at `key` is as `have` says since a request of ours. Inside index functions. */
void changelog_note(struct volume_service *service, const char *key, const struct key_view *kv,
                    const struct sync_have *have);

/* events.c */
int event_queue_open(struct volume_service *service, struct err *err) MUST_CHECK;
int event_queue_start(struct volume_service *service, struct err *err) MUST_CHECK;
void event_queue_close(struct volume_service *service);
/* For changes of other faces: kernels were told of it, or a second is over. */
void event_settle(struct volume_service *service, const struct volume_ctx *ctx);
void event_emit(struct volume_service *service, enum volume_event_kind kind,
                const struct index_node *node, int64_t connection);

/* recover.c */
int recover_state(struct volume_service *service, struct err *err) MUST_CHECK;

#endif
