#ifndef MOUNT_SESSION_VIRTUAL_IMPL_H
#define MOUNT_SESSION_VIRTUAL_IMPL_H

#include "mount/session_impl.h"
#include "volume/conflicts.h"

/* What the two files of `.holdfast/` share. */

/* Each request is tried at once, or parked where it may take time or wait for the store. */
enum virtual_speed { AT_ONCE, MAY_TAKE_TIME, MAY_WAIT_FOR_STORE };
#define OPS(name, fn)                                                            \
    static const struct op ops[] = {                                             \
        [AT_ONCE] = { name, fn, CALL_AT_ONCE | CALL_INTERRUPTIBLE },             \
        [MAY_TAKE_TIME] = { name, fn, CALL_INTERRUPTIBLE },                      \
        [MAY_WAIT_FOR_STORE] = { name, fn, CALL_TO_STORE | CALL_INTERRUPTIBLE }, \
    }
enum virtual_speed session_virtual_speed(enum virtual_kind kind);

static inline struct virtual_place
session_virtual_place(const struct call *call)
{
    return virtual_place((uint64_t)call->node);
}
/* ERR_NOT_FOUND when there is no such file, or its conflict is gone. */
int session_virtual_check(struct session *session, const struct virtual_place *place,
                          struct err *err) MUST_CHECK;

#define MAX_TEXT (1u << 20)

/* session_virtual_files.c: of an inode of ours. */
void session_virtual_open(fuse_req_t req, fuse_ino_t ino, const struct fuse_file_info *fi);
void session_virtual_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                          const struct fuse_file_info *fi);
void session_virtual_write(fuse_req_t req, fuse_ino_t ino, size_t size);
void session_virtual_release_file(fuse_req_t req, const struct fuse_file_info *fi);

struct virtual_stream {
    bool plus;
    size_t size;
    off_t off;
    uint64_t fh;
};
/* session_virtual_folders.c: of a folder of ours. */
void session_virtual_readdir(fuse_req_t req, fuse_ino_t ino, const struct virtual_stream *stream);

/* session_old.c: `.holdfast/at` and `.holdfast/versions`, and all below them. */
int session_old_init(struct session *session, struct err *err) MUST_CHECK;
void session_old_release(struct session *session);
bool session_old_is(fuse_req_t req, fuse_ino_t ino);
/* The root of a mount that is such a past as a whole. */
bool session_old_is_root(fuse_req_t req, fuse_ino_t ino);
void session_old_forget(struct session *session, uint64_t ino, uint64_t count);
void session_old_lookup(fuse_req_t req, fuse_ino_t parent, const char *name);
/* Of an inode below them. */
void session_old_getattr(fuse_req_t req, fuse_ino_t ino);
void session_old_readlink(fuse_req_t req, fuse_ino_t ino);
void session_old_open(fuse_req_t req, fuse_ino_t ino, const struct fuse_file_info *fi);
void session_old_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off);
void session_old_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void session_old_readdir(fuse_req_t req, fuse_ino_t ino, const struct virtual_stream *stream);
void session_old_releasedir(fuse_req_t req, const struct fuse_file_info *fi);

/* The text of a file, made now. Not of events. */
int session_virtual_make(struct call *call, const struct volume_ctx *ctx,
                         const struct virtual_place *place, struct buf *out,
                         struct err *err) MUST_CHECK;
/* Its attributes, with the right size: that of a text wants the text made. */
int session_virtual_stat(struct call *call, const struct volume_ctx *ctx,
                         const struct virtual_place *place, struct stat *st,
                         struct err *err) MUST_CHECK;
uint32_t session_virtual_mode(enum virtual_kind kind);
/* What .holdfast/conflict/ID/theirs leads to. */
int session_virtual_target(struct session *session, uint64_t id, struct buf *out,
                           struct err *err) MUST_CHECK;
/* Fills the conflict that `id` stands for, with its path as the mount sees it; ERR_NOT_FOUND also when it lies outside the
 * mounted folder. */
struct virtual_loser {
    struct index_conflict row;
    char path[LIMIT_PATH + 1];
};
int session_virtual_loser(struct session *session, uint64_t id, struct virtual_loser *out,
                          struct err *err) MUST_CHECK;
/* Whether `base` and `merged` are shown for it. */
int session_virtual_has_base(struct session *session, uint64_t id, bool *out,
                             struct err *err) MUST_CHECK;
/* Every conflict of the mounted folder, oldest first. */
typedef int virtual_loser_fn(void *arg, const struct index_conflict *row, const char *path,
                             struct err *err);
int session_virtual_losers(struct session *session, virtual_loser_fn *fn, void *arg,
                           struct err *err) MUST_CHECK;

/* The text of events so far, and a part of it. It grows at its end, and begins anew when it is too long. */
int session_events_size(struct session *session, uint64_t *size, int64_t *changed_ns,
                        struct err *err) MUST_CHECK;
int session_events_read(struct session *session, uint64_t off, size_t len, struct buf *out,
                        struct err *err) MUST_CHECK;

#endif
