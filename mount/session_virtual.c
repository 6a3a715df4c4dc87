/* `.holdfast/` in the root of a mount (docs/interface.md section 5): stands before the other handlers, and answers what concerns
 * its own inodes. Everything is made from the volume's state when it is asked for; nothing can be changed. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/scope.h"
#include "mount/session_virtual_impl.h"

/* Of the files behind: the same for every session, set once. */
static struct fuse_lowlevel_ops real;
static bool real_known;
static pthread_mutex_t real_mutex = PTHREAD_MUTEX_INITIALIZER;

static int
absent(struct err *err)
{
    return err_set(err, ERR_NOT_FOUND, "there is no such file in " VIRTUAL_NAME);
}

/* ---- attributes ---- */

static int
run_getattr(struct call *call, const struct volume_ctx *ctx, struct err *err)
{
    struct stat st;
    struct virtual_place place = session_virtual_place(call);
    if (session_virtual_stat(call, ctx, &place, &st, err) < 0)
        return -1;
    if (call_claim(call))
        (void)fuse_reply_attr(call->req, &st, 0);
    return 0;
}

static void
start_getattr(fuse_req_t req, fuse_ino_t ino)
{
    OPS("getattr", run_getattr);
    struct call call;
    call_init(&call, req, &ops[session_virtual_speed(virtual_place(ino).kind)], ino);
    call_start(&call);
}

/* The root of a mount that shows a past is, too. */
static bool
is_ours(fuse_req_t req, fuse_ino_t ino)
{
    return virtual_is(ino) || session_old_is_root(req, ino);
}

static void
on_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    if (virtual_place(ino).kind == VIRTUAL_OLD || session_old_is_root(req, ino))
        session_old_getattr(req, ino);
    else if (is_ours(req, ino))
        start_getattr(req, ino);
    else
        real.getattr(req, ino, fi);
}

/* What was cannot be changed by anybody; the rest is not for programs. */
static int
refusal(fuse_req_t req, fuse_ino_t ino)
{
    return session_old_is(req, ino) ? EROFS : EPERM;
}

/* `> .holdfast/flush` may come with a new size. */
static void
on_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *st, int to_set, struct fuse_file_info *fi)
{
    if (!is_ours(req, ino))
        real.setattr(req, ino, st, to_set, fi);
    else if (virtual_place(ino).kind == VIRTUAL_FLUSH && (to_set & FUSE_SET_ATTR_SIZE) != 0)
        start_getattr(req, ino);
    else
        (void)fuse_reply_err(req, refusal(req, ino));
}

/* ---- names ---- */

struct find_id {
    const char *name;
    uint64_t id;
};

static int
match_id(void *arg, const struct index_conflict *row, const char *path, struct err *err)
{
    struct find_id *find = arg;
    (void)path;
    (void)err;
    if (strcmp(row->id, find->name) == 0)
        find->id = virtual_id(row->id);
    return 0;
}

static int
find_place(struct call *call, struct virtual_place *out, struct err *err)
{
    *out = (struct virtual_place){ .kind = VIRTUAL_ROOT };
    if (!virtual_is((uint64_t)call->node))
        return 0;
    struct virtual_place parent = session_virtual_place(call);
    if (parent.kind == VIRTUAL_CONFLICT) {
        struct find_id find = { .name = call->name };
        if (session_virtual_losers(call->session, match_id, &find, err) < 0)
            return -1;
        *out = (struct virtual_place){ .kind = VIRTUAL_CONFLICT_ID, .id = find.id };
        return find.id != 0 ? 0 : absent(err);
    }
    *out =
        (struct virtual_place){ .kind = virtual_child(parent.kind, call->name), .id = parent.id };
    return out->kind != VIRTUAL_NONE ? 0 : absent(err);
}

static int
run_lookup(struct call *call, const struct volume_ctx *ctx, struct err *err)
{
    struct fuse_entry_param entry = { .entry_timeout = 0 };
    struct virtual_place place;
    if (find_place(call, &place, err) < 0 ||
        session_virtual_stat(call, ctx, &place, &entry.attr, err) < 0)
        return -1;
    entry.ino = entry.attr.st_ino;
    entry.entry_timeout = place.id == 0 ? TIMEOUT_MAX : 0;
    if (call_claim(call))
        (void)fuse_reply_entry(call->req, &entry);
    return 0;
}

static bool
is_name(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    return !session_old_is_root(req, parent) && parent == FUSE_ROOT_ID &&
           strcmp(name, VIRTUAL_NAME) == 0;
}

static void
on_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    OPS("lookup", run_lookup);
    struct call call;
    if (!is_ours(req, parent) && !is_name(req, parent, name)) {
        real.lookup(req, parent, name);
        return;
    }
    if (session_old_is(req, parent)) {
        session_old_lookup(req, parent, name);
        return;
    }
    enum virtual_kind kind = virtual_is(parent) ? virtual_place(parent).kind : VIRTUAL_NONE;
    if (kind == VIRTUAL_ROOT)
        kind = virtual_child(kind, name);
    else if (kind == VIRTUAL_CONFLICT_ID)
        kind = VIRTUAL_MINE;
    call_init(&call, req, &ops[session_virtual_speed(kind)], parent);
    call.name = name;
    call_start(&call);
}

static int
run_readlink(struct call *call, const struct volume_ctx *ctx, struct err *err)
{
    struct virtual_place place = session_virtual_place(call);
    scope_buf target;
    (void)ctx;
    buf_init(&target, LIMIT_PATH + 16);
    if (place.kind != VIRTUAL_THEIRS)
        return err_set(err, ERR_INVAL, "not a symbolic link");
    if (session_virtual_target(call->session, place.id, &target, err) < 0)
        return -1;
    if (call_claim(call))
        (void)fuse_reply_readlink(call->req, buf_cstr(&target));
    return 0;
}

static void
on_readlink(fuse_req_t req, fuse_ino_t ino)
{
    OPS("readlink", run_readlink);
    struct call call;
    if (!is_ours(req, ino)) {
        real.readlink(req, ino);
        return;
    }
    if (session_old_is(req, ino)) {
        session_old_readlink(req, ino);
        return;
    }
    call_init(&call, req, &ops[MAY_TAKE_TIME], ino);
    call_start(&call);
}

/* Nothing is made, moved or removed here. */
static bool
refuse(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    if (!is_ours(req, parent) && !is_name(req, parent, name))
        return false;
    (void)fuse_reply_err(req, refusal(req, parent));
    return true;
}

static void
on_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t dev)
{
    if (!refuse(req, parent, name))
        real.mknod(req, parent, name, mode, dev);
}

static void
on_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
    if (!refuse(req, parent, name))
        real.mkdir(req, parent, name, mode);
}

static void
on_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
    if (!refuse(req, parent, name))
        real.symlink(req, target, parent, name);
}

static void
on_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
    if (!refuse(req, is_ours(req, ino) ? ino : parent, name))
        real.link(req, ino, parent, name);
}

static void
on_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    if (!refuse(req, parent, name))
        real.unlink(req, parent, name);
}

static void
on_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    if (!refuse(req, parent, name))
        real.rmdir(req, parent, name);
}

static void
on_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
          const char *new_name, unsigned flags)
{
    if (!refuse(req, parent, name) && !refuse(req, new_parent, new_name))
        real.rename(req, parent, name, new_parent, new_name, flags);
}

static void
on_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
          struct fuse_file_info *fi)
{
    if (!refuse(req, parent, name))
        real.create(req, parent, name, mode, fi);
}

/* ---- open files ---- */

static void
on_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    if (session_old_is(req, ino))
        session_old_open(req, ino, fi);
    else if (is_ours(req, ino))
        session_virtual_open(req, ino, fi);
    else
        real.open(req, ino, fi);
}

static void
on_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
    if (session_old_is(req, ino))
        session_old_read(req, ino, size, off);
    else if (is_ours(req, ino))
        session_virtual_read(req, ino, size, off, fi);
    else
        real.read(req, ino, size, off, fi);
}

static void
on_write(fuse_req_t req, fuse_ino_t ino, const char *data, size_t size, off_t off,
         struct fuse_file_info *fi)
{
    if (is_ours(req, ino))
        session_virtual_write(req, ino, size);
    else
        real.write(req, ino, data, size, off, fi);
}

static void
on_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    if (is_ours(req, ino))
        (void)fuse_reply_err(req, 0);
    else
        real.flush(req, ino, fi);
}

static void
on_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
    if (is_ours(req, ino))
        (void)fuse_reply_err(req, 0);
    else
        real.fsync(req, ino, datasync, fi);
}

static void
on_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    if (!is_ours(req, ino)) {
        real.release(req, ino, fi);
        return;
    }
    session_virtual_release_file(req, fi);
}

static void
on_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len,
             struct fuse_file_info *fi)
{
    if (is_ours(req, ino))
        (void)fuse_reply_err(req, EPERM);
    else
        real.fallocate(req, ino, mode, off, len, fi);
}

/* No holes. Not ENOSYS: nobody would be asked about any file any more. */
static void
on_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi)
{
    if (is_ours(req, ino))
        (void)fuse_reply_err(req, EINVAL);
    else
        real.lseek(req, ino, off, whence, fi);
}

/* The kernel reads and writes instead. */
static void /* NOLINTNEXTLINE(readability-function-size): libfuse's parameters */
on_copy_file_range(fuse_req_t req, fuse_ino_t from, off_t from_off, struct fuse_file_info *from_fi,
                   fuse_ino_t to, off_t to_off, struct fuse_file_info *to_fi, size_t len, int flags)
{
    if (is_ours(req, from) || is_ours(req, to))
        (void)fuse_reply_err(req, EXDEV);
    else
        real.copy_file_range(req, from, from_off, from_fi, to, to_off, to_fi, len, flags);
}

/* ---- locks: nobody writes here, so everybody has them ---- */

static void
on_flock(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, int op)
{
    if (is_ours(req, ino))
        (void)fuse_reply_err(req, 0);
    else
        real.flock(req, ino, fi, op);
}

static void
on_setlk(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, struct flock *lock, int sleep)
{
    if (is_ours(req, ino))
        (void)fuse_reply_err(req, 0);
    else
        real.setlk(req, ino, fi, lock, sleep);
}

static void
on_getlk(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, struct flock *lock)
{
    struct flock none = { .l_type = F_UNLCK, .l_whence = SEEK_SET };
    if (is_ours(req, ino))
        (void)fuse_reply_lock(req, &none);
    else
        real.getlk(req, ino, fi, lock);
}

/* ---- extended attributes: none ---- */

static void
on_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
    if (is_ours(req, ino))
        (void)fuse_reply_err(req, ENOTSUP);
    else
        real.getxattr(req, ino, name, size);
}

static void
on_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
    if (!is_ours(req, ino))
        real.listxattr(req, ino, size);
    else if (size == 0)
        (void)fuse_reply_xattr(req, 0);
    else
        (void)fuse_reply_buf(req, NULL, 0);
}

static void
on_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size,
            int flags)
{
    if (is_ours(req, ino))
        (void)fuse_reply_err(req, ENOTSUP);
    else
        real.setxattr(req, ino, name, value, size, flags);
}

static void
on_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
    if (is_ours(req, ino))
        (void)fuse_reply_err(req, ENOTSUP);
    else
        real.removexattr(req, ino, name);
}

/* ---- folders ---- */

static bool
list(fuse_req_t req, fuse_ino_t ino, const struct virtual_stream *stream)
{
    bool ours = is_ours(req, ino);
    if (session_old_is(req, ino))
        session_old_readdir(req, ino, stream);
    else if (ours)
        session_virtual_readdir(req, ino, stream);
    return ours;
}

static void
on_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
    if (!list(req, ino, &(struct virtual_stream){ false, size, off, fi->fh }))
        real.readdir(req, ino, size, off, fi);
}

static void
on_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
    if (!list(req, ino, &(struct virtual_stream){ true, size, off, fi->fh }))
        real.readdirplus(req, ino, size, off, fi);
}

static void
on_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    if (!is_ours(req, ino)) {
        real.opendir(req, ino, fi);
        return;
    }
    if (session_old_is(req, ino)) {
        session_old_opendir(req, ino, fi);
        return;
    }
    fi->fh = 0;
    (void)fuse_reply_open(req, fi);
}

static void
on_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    if (session_old_is(req, ino))
        session_old_releasedir(req, fi);
    else if (is_ours(req, ino))
        (void)fuse_reply_err(req, 0);
    else
        real.releasedir(req, ino, fi);
}

static void
on_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
    if (is_ours(req, ino))
        (void)fuse_reply_err(req, 0);
    else
        real.fsyncdir(req, ino, datasync, fi);
}

/* Only numbers of a table are counted. */
static void
on_forget(fuse_req_t req, fuse_ino_t ino, uint64_t count)
{
    session_old_forget(session_of(req), ino, count);
    real.forget(req, ino, count);
}

static void
on_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
    for (size_t i = 0; i < count; i++)
        session_old_forget(session_of(req), forgets[i].ino, forgets[i].nlookup);
    real.forget_multi(req, count, forgets);
}

void
session_virtual_ops(struct fuse_lowlevel_ops *ops)
{
    pthread_mutex_lock(&real_mutex);
    if (!real_known)
        real = *ops;
    real_known = true;
    pthread_mutex_unlock(&real_mutex);
    ops->lookup = on_lookup;
    ops->forget = on_forget;
    ops->forget_multi = on_forget_multi;
    ops->mknod = on_mknod;
    ops->mkdir = on_mkdir;
    ops->symlink = on_symlink;
    ops->link = on_link;
    ops->unlink = on_unlink;
    ops->rmdir = on_rmdir;
    ops->rename = on_rename;
    ops->create = on_create;
    ops->getattr = on_getattr;
    ops->setattr = on_setattr;
    ops->readlink = on_readlink;
    ops->open = on_open;
    ops->read = on_read;
    ops->write = on_write;
    ops->flush = on_flush;
    ops->fsync = on_fsync;
    ops->release = on_release;
    ops->fallocate = on_fallocate;
    ops->lseek = on_lseek;
    ops->copy_file_range = on_copy_file_range;
    ops->flock = on_flock;
    ops->setlk = on_setlk;
    ops->getlk = on_getlk;
    ops->getxattr = on_getxattr;
    ops->listxattr = on_listxattr;
    ops->setxattr = on_setxattr;
    ops->removexattr = on_removexattr;
    ops->opendir = on_opendir;
    ops->readdir = on_readdir;
    ops->readdirplus = on_readdirplus;
    ops->releasedir = on_releasedir;
    ops->fsyncdir = on_fsyncdir;
}
