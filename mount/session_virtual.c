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

static void
on_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    if (virtual_is(ino))
        start_getattr(req, ino);
    else
        real.getattr(req, ino, fi);
}

/* `> .holdfast/flush` may come with a new size. */
static void
on_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *st, int to_set, struct fuse_file_info *fi)
{
    if (!virtual_is(ino))
        real.setattr(req, ino, st, to_set, fi);
    else if (virtual_place(ino).kind == VIRTUAL_FLUSH && (to_set & FUSE_SET_ATTR_SIZE) != 0)
        start_getattr(req, ino);
    else
        (void)fuse_reply_err(req, EPERM);
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
is_name(fuse_ino_t parent, const char *name)
{
    return parent == FUSE_ROOT_ID && strcmp(name, VIRTUAL_NAME) == 0;
}

static void
on_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    OPS("lookup", run_lookup);
    struct call call;
    if (!virtual_is(parent) && !is_name(parent, name)) {
        real.lookup(req, parent, name);
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
    if (!virtual_is(ino)) {
        real.readlink(req, ino);
        return;
    }
    call_init(&call, req, &ops[MAY_TAKE_TIME], ino);
    call_start(&call);
}

/* Nothing is made, moved or removed here. */
static bool
refuse(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    if (!virtual_is(parent) && !is_name(parent, name))
        return false;
    (void)fuse_reply_err(req, EPERM);
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
    if (!refuse(req, virtual_is(ino) ? ino : parent, name))
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
    if (virtual_is(ino))
        session_virtual_open(req, ino, fi);
    else
        real.open(req, ino, fi);
}

static void
on_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
    if (virtual_is(ino))
        session_virtual_read(req, ino, size, off, fi);
    else
        real.read(req, ino, size, off, fi);
}

static void
on_write(fuse_req_t req, fuse_ino_t ino, const char *data, size_t size, off_t off,
         struct fuse_file_info *fi)
{
    if (virtual_is(ino))
        session_virtual_write(req, ino, size);
    else
        real.write(req, ino, data, size, off, fi);
}

static void
on_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    if (virtual_is(ino))
        (void)fuse_reply_err(req, 0);
    else
        real.flush(req, ino, fi);
}

static void
on_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
    if (virtual_is(ino))
        (void)fuse_reply_err(req, 0);
    else
        real.fsync(req, ino, datasync, fi);
}

static void
on_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    if (!virtual_is(ino)) {
        real.release(req, ino, fi);
        return;
    }
    session_virtual_release_file(req, fi);
}

static void
on_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len,
             struct fuse_file_info *fi)
{
    if (virtual_is(ino))
        (void)fuse_reply_err(req, EPERM);
    else
        real.fallocate(req, ino, mode, off, len, fi);
}

/* No holes. Not ENOSYS: nobody would be asked about any file any more. */
static void
on_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi)
{
    if (virtual_is(ino))
        (void)fuse_reply_err(req, EINVAL);
    else
        real.lseek(req, ino, off, whence, fi);
}

/* ---- locks: nobody writes here, so everybody has them ---- */

static void
on_flock(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, int op)
{
    if (virtual_is(ino))
        (void)fuse_reply_err(req, 0);
    else
        real.flock(req, ino, fi, op);
}

static void
on_setlk(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, struct flock *lock, int sleep)
{
    if (virtual_is(ino))
        (void)fuse_reply_err(req, 0);
    else
        real.setlk(req, ino, fi, lock, sleep);
}

static void
on_getlk(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, struct flock *lock)
{
    struct flock none = { .l_type = F_UNLCK, .l_whence = SEEK_SET };
    if (virtual_is(ino))
        (void)fuse_reply_lock(req, &none);
    else
        real.getlk(req, ino, fi, lock);
}

/* ---- extended attributes: none ---- */

static void
on_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
    if (virtual_is(ino))
        (void)fuse_reply_err(req, ENOTSUP);
    else
        real.getxattr(req, ino, name, size);
}

static void
on_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
    if (!virtual_is(ino))
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
    if (virtual_is(ino))
        (void)fuse_reply_err(req, ENOTSUP);
    else
        real.setxattr(req, ino, name, value, size, flags);
}

static void
on_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
    if (virtual_is(ino))
        (void)fuse_reply_err(req, ENOTSUP);
    else
        real.removexattr(req, ino, name);
}

/* ---- folders: an entry's offset is its place in the list ---- */

struct listing {
    struct call *call;
    bool plus, full;
    char *to;
    size_t used;
    uint64_t at;
};

static void
put(struct listing *list, const char *name, const struct virtual_place *place)
{
    struct fuse_entry_param entry = { .ino = 0 }; /* no lookup: sizes are not asked for here */
    char *to = list->to + list->used;
    size_t room = list->call->size - list->used;
    uint64_t at = list->at++;
    if (list->full || at < list->call->off)
        return;
    entry.attr.st_ino = virtual_ino(place);
    entry.attr.st_mode = session_virtual_mode(place->kind);
    fuse_req_t req = list->call->req;
    size_t wanted = list->plus ? fuse_add_direntry_plus(req, to, room, name, &entry, (off_t)at + 1)
                               : fuse_add_direntry(req, to, room, name, &entry.attr, (off_t)at + 1);
    list->full = wanted > room;
    list->used += list->full ? 0 : wanted;
}

static int
put_loser(void *arg, const struct index_conflict *row, const char *path, struct err *err)
{
    struct virtual_place place = { .kind = VIRTUAL_CONFLICT_ID, .id = virtual_id(row->id) };
    (void)path;
    (void)err;
    put(arg, row->id, &place);
    return 0;
}

static int
list(struct call *call, bool plus, struct err *err)
{
    struct virtual_place dir = session_virtual_place(call);
    scope_free char *to = malloc(call->size);
    struct listing list = { .call = call, .plus = plus, .to = to };
    struct virtual_place place = { .id = dir.id };
    const char *name;
    if (!to)
        return err_nomem(err);
    if (!virtual_is_dir(dir.kind))
        return err_set(err, ERR_NOT_DIR, "not a folder");
    bool base = false;
    if (dir.kind == VIRTUAL_CONFLICT_ID &&
        session_virtual_has_base(call->session, dir.id, &base, err) < 0)
        return -1;
    put(&list, ".", &dir);
    put(&list, "..", &dir);
    for (unsigned i = 0; (name = virtual_entry(dir.kind, i, &place.kind)) != NULL; i++)
        if (base || (place.kind != VIRTUAL_BASE && place.kind != VIRTUAL_MERGED))
            put(&list, name, &place);
    if (dir.kind == VIRTUAL_CONFLICT &&
        session_virtual_losers(call->session, put_loser, &list, err) < 0)
        return -1;
    return call_reply_data(call, to, list.used);
}

static int
run_readdir(struct call *call, const struct volume_ctx *ctx, struct err *err)
{
    (void)ctx;
    return list(call, false, err);
}

static int
run_readdirplus(struct call *call, const struct volume_ctx *ctx, struct err *err)
{
    (void)ctx;
    return list(call, true, err);
}

static void
start_list(struct call *call, size_t size, off_t off)
{
    call->size = size < MAX_WRITE ? size : MAX_WRITE;
    call->off = (uint64_t)off;
    if (off < 0)
        call_reply_errno(call, EINVAL);
    else
        call_start(call);
}

static void
on_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
    OPS("readdir", run_readdir);
    struct call call;
    if (!virtual_is(ino)) {
        real.readdir(req, ino, size, off, fi);
        return;
    }
    call_init(&call, req, &ops[session_virtual_speed(virtual_place(ino).kind)], ino);
    start_list(&call, size, off);
}

static void
on_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
    OPS("readdirplus", run_readdirplus);
    struct call call;
    if (!virtual_is(ino)) {
        real.readdirplus(req, ino, size, off, fi);
        return;
    }
    call_init(&call, req, &ops[session_virtual_speed(virtual_place(ino).kind)], ino);
    start_list(&call, size, off);
}

static void
on_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    if (!virtual_is(ino)) {
        real.opendir(req, ino, fi);
        return;
    }
    fi->fh = 0;
    (void)fuse_reply_open(req, fi);
}

static void
on_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    if (virtual_is(ino))
        (void)fuse_reply_err(req, 0);
    else
        real.releasedir(req, ino, fi);
}

static void
on_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
    if (virtual_is(ino))
        (void)fuse_reply_err(req, 0);
    else
        real.fsyncdir(req, ino, datasync, fi);
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
