#ifndef S3_FILE_IMPL_H
#define S3_FILE_IMPL_H

#include <pthread.h>
#include <sys/stat.h>

#include "base/ulid.h"
#include "s3/store.h"

/*
 * The parts of the file: store (s3/file.c). On disk, below the store's directory:
 *
 *   reports/clean.csv   the object "reports/clean.csv", whenever the key can be a path
 *   .hf~o~NAME          an object whose last component is NAME and cannot lie at NAME: a directory has that place ("a"
 *                       beside "a/b"), or it is "", ".", "..", begins with ".hf~", or has more than 255 bytes
 *   .hf~d~NAME          a directory whose component cannot be a name, likewise
 *   .hf~l~PART          the first 200 bytes of a longer component; its rest lies inside, again as .hf~o~, .hf~d~, .hf~l~
 *   .hf~tmp/            files being written, swept at open when no other process has the store open
 *   .hf~lock/           "open", "tree" and 64 key locks, taken with flock(2) on a description of their own
 *   .hf~meta/INO-MTIME  metadata where the file system has no (or too small) extended attributes
 *
 * Every other name beginning with ".hf~" is ours and hidden. An object's metadata is the extended attribute
 * "user.holdfast" of its file, bound to the file's size and mtime: once somebody else writes into the file, the
 * attribute counts no more, and the object is a foreign one, named by size, inode, mtime and ctime.
 */
#define FILE_RESERVED ".hf~"
#define FILE_CHUNK 200                /* bytes of a long component in one name */
#define FILE_PATH_MAX (8 * LIMIT_KEY) /* an empty component becomes ".hf~d~/" */
#define FILE_LAST_MAX 1536

struct file_store {
    struct store store;
    char *dir;
    int root;
    int tmp;       /* -1 when the directory cannot be written */
    int lock;      /* likewise */
    int meta;      /* -1 until there is one; set under `mutex` */
    int open_lock; /* held shared while the store is open */
    dev_t dev;
    ino_t ino;
    bool sidecar_only;     /* tests: as on a file system without extended attributes */
    pthread_mutex_t mutex; /* guards what follows */
    struct store_counters counters;
    ino_t durable[1024]; /* directories whose names are known to be on disk, by inode */
};

/* ---- names (s3/file_name.c), pure ---- */

/* Where a key may lie. `dir` and `odd` are '/'-joined names; plain is "" when the last component cannot be a name. */
struct file_path {
    char dir[FILE_PATH_MAX];
    char plain[LIMIT_NAME + 1];
    char odd[FILE_LAST_MAX];
};
void file_name_of_key(const char *key, struct file_path *out);

enum file_name_kind {
    FILE_NAME_PLAIN,
    FILE_NAME_OBJECT,
    FILE_NAME_DIR,
    FILE_NAME_LONG,
    FILE_NAME_OURS
};
/* What a name in the store's directory is; *part is the (rest of the) component. */
enum file_name_kind file_name_decode(const char *name, const char **part);
/* The escaped form of a component, kind 'o' or 'd'. `out` holds FILE_LAST_MAX. */
void file_name_escape(const char *part, size_t len, char kind, char *out);

/* ---- metadata (s3/file_meta.c) ---- */

/* Sets the mtime to now and keeps etag, content type and metadata with the file `fd` (not yet durable for the attribute:
 * the caller syncs fd; a sidecar is durable). */
int file_meta_write(struct file_store *fs, int fd, const struct store_object *object,
                    struct err *err) MUST_CHECK;
/* Fills `out` from the file. A foreign file that was touched in the last moments is waited for when `settle`, since its
 * ETag could not tell the next change apart; ERR_STORE_RACE when it does not come to rest. *st is renewed. */
int file_meta_read(struct file_store *fs, int fd, bool settle, struct stat *st,
                   struct store_object *out, struct err *err) MUST_CHECK;
/* The ETag of a file that is not ours. `out` holds LIMIT_ETAG. */
void file_meta_foreign_etag(const struct stat *st, char *out);
/* Removes the sidecar of a file that is gone, if there is one. */
void file_meta_forget(struct file_store *fs, const struct stat *st);

/* ---- tree and locks (s3/file_tree.c) ---- */

/* An object's open file. */
struct file_found {
    int dir; /* of the name below */
    int fd;
    bool odd;
    struct stat st;
    char name[LIMIT_NAME + 1]; /* in dir */
};
#define FILE_FOUND_INIT     \
    {                       \
        .dir = -1, .fd = -1 \
    }
void file_found_release(struct file_found *found);
#define scope_found scope(file_found_release) struct file_found

/* 0 found, 1 there is none, -1 error. Needs no lock: an object moves only from its plain to its odd place, and that is
 * the order of looking. */
int file_tree_find(struct file_store *fs, const struct file_path *path, struct file_found *found,
                   struct err *err) MUST_CHECK;
/* ERR_STORE_AWAY when the directory is not (any more) the one that was opened. */
int file_tree_check_root(const struct file_store *fs, struct err *err) MUST_CHECK;
/* Opens the directory `path` below `from`; -1 with errno. */
int file_tree_walk(int from, const char *path);
/* The same for a writer: makes sure that the names on the way are durable, and with `make` creates what is missing and
 * moves objects out of the way (tree lock held exclusively). 0, 1 when something is missing and !make, -1 error. */
int file_tree_walk_durable(struct file_store *fs, int from, const char *path, bool make, int *out,
                           struct err *err) MUST_CHECK;
/* Removes `path` and its parents below `from` as far as they are empty. */
void file_tree_prune(int from, const char *path);

struct file_locks {
    int tree;
    int key;
};
#define FILE_LOCKS_INIT       \
    {                         \
        .tree = -1, .key = -1 \
    }
/* Tree shared; with a key also that key's lock. */
int file_lock_shared(struct file_store *fs, const char *key, int64_t deadline_ns,
                     struct file_locks *locks, struct err *err) MUST_CHECK;
int file_lock_exclusive(struct file_store *fs, int64_t deadline_ns, struct file_locks *locks,
                        struct err *err) MUST_CHECK;
void file_locks_release(struct file_locks *locks);
#define scope_locks scope(file_locks_release) struct file_locks

/* err from errno in the words of the store contract: never ERR_NOT_FOUND (INV-9). Answers -1. */
int file_fail(struct err *err, int sys_errno, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* The same for an error that a helper of base made. Answers -1. */
int file_fail_again(struct err *err, const char *what);

/* ERR_STORE_TIMEOUT when the deadline (0: none) is over. */
int file_check_time(const struct file_store *fs, int64_t deadline_ns, struct err *err) MUST_CHECK;

/* ---- staging (s3/file_stage.c) ---- */

/* A file in .hf~tmp, removed with its sidecar by the release unless `name` was cleared (it was renamed away). */
struct file_stage {
    struct file_store *fs;
    int fd;
    char name[ULID_SIZE];
    char etag[LIMIT_ETAG];
};
void file_stage_release(struct file_stage *stage);
#define scope_stage scope(file_stage_release) struct file_stage
/* Writes and syncs body and metadata; makes the ETag, the MD5. */
int file_stage_put(struct file_stage *stage, const struct store_put *req,
                   struct err *err) MUST_CHECK;

/* ---- listing (s3/file_list.c) ---- */
int file_list(struct file_store *fs, const struct store_list *req, struct err *err) MUST_CHECK;

extern const struct store_ops file_store_ops;

/* Tests. */
void file_store_use_sidecars(struct store *store);

#endif
