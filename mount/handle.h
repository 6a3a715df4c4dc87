#ifndef MOUNT_HANDLE_H
#define MOUNT_HANDLE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "mount/carry.h"
#include "volume/volume.h"

/*
 * The open files of one mount. FUSE's `fh` is a number, never a pointer: place and generation, so that a number that was
 * released, or comes from before a takeover, is recognised. Counted, because a request that was answered at its deadline may
 * still be working on the file when RELEASE comes. A number's place is free again once its file is closed, so that a gateway that
 * takes over finds every file whose close was not through in the mount's memory. Thread safe.
 */
enum handle_flags {
    HANDLE_WRITER = 1,
    HANDLE_PRIVILEGED = 2, /* set-id bits have to go at the first write (FUSE_HANDLE_KILLPRIV) */
    HANDLE_MAKER = 256,    /* made the file: holds its LIVE content, whatever it was opened for */
};
struct handle {
    struct volume_file *file;
    uint64_t fh;
    _Atomic unsigned flags; /* enum handle_flags */
    unsigned refs;          /* guarded by the table's mutex */
    int64_t node;           /* for released(); 0: not to be told */
    uint64_t stamp;
    bool removed; /* the same */
};
/* A number went out of use that handle_watch() was called for. */
typedef void handle_released_fn(void *arg, int64_t node, uint64_t stamp);

struct handle_table {
    pthread_mutex_t mutex; /* a leaf */
    struct handle **slots;
    uint32_t *generations;
    uint32_t size;
    uint32_t used;
    uint32_t next;
    handle_released_fn *released; /* may be NULL */
    void *arg;
    struct carry *carry; /* NULL: nobody will take over */
};

/* `carry` must outlive the table. */
void handle_table_init(struct handle_table *table, struct carry *carry);
/* Takes every number out of use; closes what no request is working on. */
void handle_table_close(struct handle_table *table, const struct volume_ctx *ctx);
void handle_table_release(struct handle_table *table, const struct volume_ctx *ctx);
/* Takes `file`, also on failure (then it is closed). The caller gets no reference; `*fh` names it. */
struct handle_new {
    unsigned flags;
    int32_t backing; /* how its open is answered, for who takes over */
    uint32_t answer;
};
int handle_add(struct handle_table *table, struct volume_file *file, const struct handle_new *how,
               const struct volume_ctx *ctx, uint64_t *fh, struct err *err) MUST_CHECK;
/* Before its number is known to anybody: released() is to be told of it. */
void handle_watch(struct handle_table *table, uint64_t fh, int64_t node, uint64_t stamp);
/* An open file of an earlier gateway, `at` in the mount's memory. Takes `file`, also on failure. */
int handle_restore(struct handle_table *table, uint32_t at, struct volume_file *file,
                   const struct volume_ctx *ctx, struct err *err) MUST_CHECK;
/* What the OPEN or CREATE with this number made in an earlier gateway, which could not answer any more; else NULL. */
const struct carry_open *handle_of_request(struct handle_table *table, uint64_t unique);
/* NULL when there is no such handle. */
struct handle *handle_get(struct handle_table *table, uint64_t fh);
struct handle *handle_ref(struct handle_table *table, struct handle *handle);
/* The last one closes the file. NULL is fine. */
void handle_put(struct handle_table *table, struct handle *handle, const struct volume_ctx *ctx);
/* RELEASE: the number is no longer valid; the table's reference is dropped. */
void handle_remove(struct handle_table *table, uint64_t fh, const struct volume_ctx *ctx);

#endif
