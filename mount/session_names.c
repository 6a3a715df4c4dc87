/* Names: lookup, and everything that adds, moves or removes one. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "mount/session_impl.h"

/* `.holdfast/` at the root of a volume is ours (docs/interface.md section 5; it comes later): no name of a user may
 * begin like it. */
static int
check_reserved(const struct call *call, int64_t parent, const char *name, struct err *err)
{
    if (parent == call->session->args.volume_root && strncmp(name, ".holdfast", 9) == 0)
        return err_set(err, ERR_PERM, "names that begin with '.holdfast' are reserved");
    return 0;
}

static struct volume_name
name_of(const struct call *call)
{
    return (
        struct volume_name){ .parent = call->node, .name = call->name, .len = strlen(call->name) };
}

/* ---- lookup ---- */
static int
run_lookup(struct call *call, const struct volume_ctx *ctx, struct err *err)
{
    struct volume_attr attr = { .fresh_ns = 0 };
    struct fuse_entry_param none = { .ino = 0 };
    if (volume_lookup(call->session->args.volumes, ctx,
                      &(struct volume_name){ call->node, call->name, strlen(call->name) }, &attr,
                      err) == 0)
        return call_reply_entry(call, &attr);
    if (err->code != ERR_NOT_FOUND)
        return -1;
    none.entry_timeout = call_timeout(attr.fresh_ns);
    if (call_claim(call))
        (void)fuse_reply_entry(call->req, &none); /* the kernel remembers that there is nothing */
    return 0;
}

static void
on_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    static const struct op op = { "lookup", run_lookup, CALL_AT_ONCE | CALL_INTERRUPTIBLE };
    struct call call;
    call_init(&call, req, &op, parent);
    call.name = name;
    call_start(&call);
}

/* Node ids outlive every table: a lookup count would have to survive a takeover, and cannot. */
static void
on_forget(fuse_req_t req, fuse_ino_t ino, uint64_t count)
{
    (void)ino;
    (void)count;
    fuse_reply_none(req);
}

static void
on_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
    (void)count;
    (void)forgets;
    fuse_reply_none(req);
}

/* ---- new names ---- */
static int
run_mknod(struct call *call, const struct volume_ctx *ctx, struct err *err)
{
    struct volume_attr attr;
    struct volume_file *file;
    struct volume_name at = name_of(call);
    if (check_reserved(call, call->node, call->name, err) < 0)
        return -1;
    if (volume_file_create(call->session->args.volumes, ctx,
                           &(struct volume_new){ .at = at,
                                                 .mode = call->mode & 07777,
                                                 .flags = O_WRONLY | O_CREAT | O_EXCL },
                           &attr, &file, err) < 0)
        return -1;
    volume_file_close(file, ctx);
    attr.writing = false;
    return call_reply_entry(call, &attr);
}

static int
run_mknod_special(struct call *call, const struct volume_ctx *ctx, struct err *err)
{
    struct volume_attr attr;
    struct volume_node special = { .at = name_of(call), .mode = call->mode, .rdev = call->rdev };
    if (check_reserved(call, call->node, call->name, err) < 0 ||
        volume_mknod(call->session->args.volumes, ctx, &special, &attr, err) < 0)
        return -1;
    return call_reply_entry(call, &attr);
}

/* Device nodes are kept and shown; the mount is `nodev`, so none of them opens. */
static void
on_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t dev)
{
    static const struct op file_op = { "mknod", run_mknod, 0 };
    static const struct op special_op = { "mknod", run_mknod_special, 0 };
    struct call call;
    call_init(&call, req, S_ISREG(mode) ? &file_op : &special_op, parent);
    call.name = name;
    call.mode = mode;
    call.rdev = dev;
    call_start(&call);
}

static int
run_mkdir(struct call *call, const struct volume_ctx *ctx, struct err *err)
{
    struct volume_attr attr;
    struct volume_name at = name_of(call);
    if (check_reserved(call, call->node, call->name, err) < 0 ||
        volume_mkdir(call->session->args.volumes, ctx, &at, call->mode & 07777, &attr, err) < 0)
        return -1;
    return call_reply_entry(call, &attr);
}

static void
on_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
    static const struct op op = { "mkdir", run_mkdir, 0 };
    struct call call;
    call_init(&call, req, &op, parent);
    call.name = name;
    call.mode = mode;
    call_start(&call);
}

static int
run_symlink(struct call *call, const struct volume_ctx *ctx, struct err *err)
{
    struct volume_attr attr;
    struct volume_name at = name_of(call);
    if (check_reserved(call, call->node, call->name, err) < 0 ||
        volume_symlink(call->session->args.volumes, ctx, &at, call->name2, &attr, err) < 0)
        return -1;
    return call_reply_entry(call, &attr);
}

static void
on_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
    static const struct op op = { "symlink", run_symlink, 0 };
    struct call call;
    call_init(&call, req, &op, parent);
    call.name = name;
    call.name2 = target;
    call_start(&call);
}

static int
run_link(struct call *call, const struct volume_ctx *ctx, struct err *err)
{
    struct volume_attr attr;
    struct volume_name at = { call->node2, call->name, strlen(call->name) };
    if (check_reserved(call, call->node2, call->name, err) < 0 ||
        volume_link(call->session->args.volumes, ctx, call->node, &at, &attr, err) < 0)
        return -1;
    return call_reply_entry(call, &attr);
}

static void
on_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
    static const struct op op = { "link", run_link, 0 };
    struct call call;
    call_init(&call, req, &op, ino);
    call.node2 = ino_to_node(parent, call.session->args.root);
    call.name = name;
    call_start(&call);
}

/* ---- fewer names ---- */
static int
run_unlink(struct call *call, const struct volume_ctx *ctx, struct err *err)
{
    struct volume_name at = name_of(call);
    if (volume_remove(call->session->args.volumes, ctx, &at, false, NULL, err) < 0)
        return -1;
    return call_reply_ok(call);
}

static int
run_rmdir(struct call *call, const struct volume_ctx *ctx, struct err *err)
{
    struct volume_name at = name_of(call);
    if (volume_remove(call->session->args.volumes, ctx, &at, true, NULL, err) < 0)
        return -1;
    return call_reply_ok(call);
}

static void
on_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    static const struct op op = { "unlink", run_unlink, 0 };
    struct call call;
    call_init(&call, req, &op, parent);
    call.name = name;
    call_start(&call);
}

static void
on_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    static const struct op op = { "rmdir", run_rmdir, 0 };
    struct call call;
    call_init(&call, req, &op, parent);
    call.name = name;
    call_start(&call);
}

static int
run_rename(struct call *call, const struct volume_ctx *ctx, struct err *err)
{
    struct volume_name from = name_of(call);
    struct volume_name to = { call->node2, call->name2, strlen(call->name2) };
    if (check_reserved(call, call->node2, call->name2, err) < 0 ||
        volume_rename(call->session->args.volumes, ctx, &from, &to, (unsigned)call->flags, err) < 0)
        return -1;
    return call_reply_ok(call);
}

static void
on_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
          const char *new_name, unsigned flags)
{
    static const struct op op = { "rename", run_rename, 0 };
    struct call call;
    call_init(&call, req, &op, parent);
    call.node2 = ino_to_node(new_parent, call.session->args.root);
    call.name = name;
    call.name2 = new_name;
    call.flags = (int)flags;
    if (flags & ~(unsigned)(RENAME_NOREPLACE | RENAME_EXCHANGE))
        call_reply_errno(&call, EINVAL);
    else
        call_start(&call);
}

void
session_names_ops(struct fuse_lowlevel_ops *ops)
{
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
}
