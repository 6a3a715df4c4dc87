/* Attributes: of files, of the file system, and symlinks' targets. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/clock.h"
#include "mount/session_impl.h"

#define STATFS_BLOCK 4096u

/* ---- getattr, setattr ---- */
static int
run_getattr(struct call *call, const struct volume_ctx *ctx, struct err *err)
{
    struct volume_attr attr;
    if (volume_getattr(call->session->args.volumes, ctx, call->node, &attr, err) < 0)
        return -1;
    return call_reply_attr(call, &attr);
}

static void
on_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    static const struct op op = { "getattr", run_getattr, CALL_AT_ONCE | CALL_INTERRUPTIBLE };
    struct call call;
    (void)fi;
    call_init(&call, req, &op, ino);
    call_start(&call);
}

static int
drop_privileges(struct call *call, const struct volume_ctx *ctx, struct volume_change *change,
                struct err *err)
{
    struct volume_attr attr;
    unsigned cause = VOLUME_SET_UID | VOLUME_SET_GID;
    if (call_takes_privileges(call))
        cause |= VOLUME_SET_SIZE;
    if (!(change->bits & cause) || change->bits & VOLUME_SET_MODE)
        return 0;
    if (volume_getattr(call->session->args.volumes, ctx, call->node, &attr, err) < 0)
        return -1;
    if (S_ISDIR(attr.mode) || !(attr.mode & (S_ISUID | S_ISGID)))
        return 0;
    change->bits |= VOLUME_SET_MODE;
    change->mode = call_mode_without_privileges(call, &attr);
    return 0;
}

static int
run_setattr(struct call *call, const struct volume_ctx *ctx, struct err *err)
{
    struct volume_attr attr;
    struct volume_change change = call->change;
    if (change.bits == 0) { /* chown(2) with -1 twice: a change of nothing, which moves the ctime */
        if (volume_getattr(call->session->args.volumes, ctx, call->node, &attr, err) < 0)
            return -1;
        change.bits = VOLUME_SET_UID;
        change.uid = attr.uid;
    }
    if (drop_privileges(call, ctx, &change, err) < 0 ||
        volume_setattr(call->session->args.volumes, ctx, call->node, &change, &attr, err) < 0)
        return -1;
    return call_reply_attr(call, &attr);
}

/* What 64 bits of nanoseconds do not hold (before 1678, after 2261) becomes the nearest that they do. */
static int64_t
to_ns(const struct timespec *time)
{
    int64_t ns;
    if (__builtin_mul_overflow((int64_t)time->tv_sec, NS_PER_S, &ns) ||
        __builtin_add_overflow(ns, (int64_t)time->tv_nsec, &ns))
        return time->tv_sec < 0 ? -INT64_MAX : INT64_MAX;
    return ns;
}

static struct volume_change
read_change(const struct stat *st, int to_set)
{
    struct volume_change change = { 0 };
    static const struct {
        int fuse;
        unsigned bit;
    } bits[] = {
        { FUSE_SET_ATTR_MODE, VOLUME_SET_MODE },   { FUSE_SET_ATTR_UID, VOLUME_SET_UID },
        { FUSE_SET_ATTR_GID, VOLUME_SET_GID },     { FUSE_SET_ATTR_SIZE, VOLUME_SET_SIZE },
        { FUSE_SET_ATTR_MTIME, VOLUME_SET_MTIME }, { FUSE_SET_ATTR_MTIME_NOW, VOLUME_SET_MTIME },
        { FUSE_SET_ATTR_ATIME, VOLUME_SET_ATIME }, { FUSE_SET_ATTR_ATIME_NOW, VOLUME_SET_ATIME },
    };
    for (size_t i = 0; i < sizeof(bits) / sizeof(bits[0]); i++) {
        if (to_set & bits[i].fuse)
            change.bits |= bits[i].bit;
    }
    change.mode = (uint32_t)st->st_mode & 07777;
    change.uid = st->st_uid;
    change.gid = st->st_gid;
    change.size = (uint64_t)st->st_size;
    int64_t now = clock_wall_ns();
    change.mtime_ns = to_set & FUSE_SET_ATTR_MTIME_NOW ? now : to_ns(&st->st_mtim);
    change.atime_ns = to_set & FUSE_SET_ATTR_ATIME_NOW ? now : to_ns(&st->st_atim);
    return change;
}

static void
on_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *st, int to_set, struct fuse_file_info *fi)
{
    static const struct op op = { "setattr", run_setattr, 0 };
    struct call call;
    (void)fi;
    call_init(&call, req, &op, ino);
    call.change = read_change(st, to_set);
    if (call.change.bits & VOLUME_SET_SIZE && st->st_size < 0)
        call_reply_errno(&call, EINVAL);
    else
        call_start(&call);
}

/* ---- readlink ---- */
static int
run_readlink(struct call *call, const struct volume_ctx *ctx, struct err *err)
{
    char target[LIMIT_SYMLINK + 1];
    if (volume_readlink(call->session->args.volumes, ctx, call->node, target, sizeof(target), err) <
        0)
        return -1;
    if (call_claim(call))
        (void)fuse_reply_readlink(call->req, target);
    return 0;
}

static void
on_readlink(fuse_req_t req, fuse_ino_t ino)
{
    static const struct op op = { "readlink", run_readlink, CALL_AT_ONCE | CALL_INTERRUPTIBLE };
    struct call call;
    call_init(&call, req, &op, ino);
    call_start(&call);
}

/* ---- statfs: a bucket has no end, so "free" is what can be staged here, or what the quota leaves ---- */
static uint64_t
minus(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static int
run_statfs(struct call *call, const struct volume_ctx *ctx, struct err *err)
{
    struct cache_usage usage;
    struct volume_info info;
    struct statvfs out = { .f_bsize = STATFS_BLOCK, .f_frsize = STATFS_BLOCK };
    (void)ctx;
    if (volume_find(call->session->args.volumes, call->session->volume_name, &info, err) < 0)
        return -1;
    cache_usage(volume_service_cache(call->session->args.volumes), &usage);
    uint64_t room = minus(usage.max_bytes, usage.pinned_bytes);
    uint64_t disk =
        minus(usage.free_bytes, usage.floor_bytes) + minus(usage.bytes, usage.pinned_bytes);
    uint64_t left = room < disk ? room : disk;
    if (info.quota > 0 && minus(info.quota, info.bytes) < left)
        left = minus(info.quota, info.bytes);
    uint64_t total = info.quota > 0 ? info.quota : info.bytes + left;
    out.f_blocks = total / STATFS_BLOCK;
    out.f_bfree = out.f_bavail = left / STATFS_BLOCK;
    out.f_files = info.files + (1u << 30);
    out.f_ffree = out.f_favail = 1u << 30;
    out.f_namemax = LIMIT_NAME;
    if (call_claim(call))
        (void)fuse_reply_statfs(call->req, &out);
    return 0;
}

static void
on_statfs(fuse_req_t req, fuse_ino_t ino)
{
    static const struct op op = { "statfs", run_statfs, 0 };
    struct call call;
    call_init(&call, req, &op, ino);
    call_start(&call);
}

void
session_attributes_ops(struct fuse_lowlevel_ops *ops)
{
    ops->getattr = on_getattr;
    ops->setattr = on_setattr;
    ops->readlink = on_readlink;
    ops->statfs = on_statfs;
}
