/* Extended attributes. */
#include <errno.h>
#include <string.h>

#include "base/scope.h"
#include "mount/session_impl.h"

/* The kernel asks for the size first (`size` 0), then for the bytes. */
static int
reply_bytes(struct call *call, const struct buf *bytes)
{
    if (!call_claim(call))
        return 0;
    if (call->size == 0)
        (void)fuse_reply_xattr(call->req, bytes->len);
    else if (bytes->len > call->size)
        (void)fuse_reply_err(call->req, ERANGE);
    else
        (void)fuse_reply_buf(call->req, bytes->data, bytes->len);
    return 0;
}

static int
run_getxattr(struct call *call, const struct volume_ctx *ctx, struct err *err)
{
    scope_buf value;
    buf_init(&value, LIMIT_XATTRS);
    if (volume_xattr_get(call->session->args.volumes, ctx, call->node, call->name, &value, err) < 0)
        return -1;
    return reply_bytes(call, &value);
}

/* security.capability is asked for before the first write to a file and by each exec, system.posix_acl_* by `ls -l`: they are
 * answered without the index, and as by a file system that has none, so that `ls` asks once. (Not ENOSYS: the kernel would ask
 * for no attribute at all any more.) */
static int
refusal(const char *name)
{
    if (strncmp(name, "user.", 5) != 0)
        return ENOTSUP;
    return name[5] == '\0' ? EINVAL : 0;
}

static void
start(struct call *call)
{
    int refused = refusal(call->name);
    if (refused == 0)
        call_start(call);
    else
        call_reply_errno(call, refused);
}

static void
on_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
    static const struct op op = { "getxattr", run_getxattr, CALL_AT_ONCE | CALL_INTERRUPTIBLE };
    struct call call;
    call_init(&call, req, &op, ino);
    call.name = name;
    call.size = size;
    start(&call);
}

static int
run_listxattr(struct call *call, const struct volume_ctx *ctx, struct err *err)
{
    scope_buf names;
    buf_init(&names, LIMIT_XATTRS);
    if (volume_xattr_list(call->session->args.volumes, ctx, call->node, &names, err) < 0)
        return -1;
    return reply_bytes(call, &names);
}

static void
on_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
    static const struct op op = { "listxattr", run_listxattr, CALL_AT_ONCE | CALL_INTERRUPTIBLE };
    struct call call;
    call_init(&call, req, &op, ino);
    call.size = size;
    call_start(&call);
}

static int
run_change(struct call *call, const struct volume_ctx *ctx, struct volume_xattr change,
           struct err *err)
{
    change.name = call->name;
    if (volume_xattr_change(call->session->args.volumes, ctx, call->node, &change, err) < 0)
        return -1;
    return call_reply_ok(call);
}

static int
run_setxattr(struct call *call, const struct volume_ctx *ctx, struct err *err)
{
    return run_change(
        call, ctx,
        (struct volume_xattr){ .value = call->data, .len = call->size, .flags = call->flags }, err);
}

static void
on_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size,
            int flags)
{
    static const struct op op = { "setxattr", run_setxattr, 0 };
    struct call call;
    call_init(&call, req, &op, ino);
    call.name = name;
    call.data = value;
    call.size = size;
    call.flags = flags;
    start(&call);
}

static int
run_removexattr(struct call *call, const struct volume_ctx *ctx, struct err *err)
{
    return run_change(call, ctx, (struct volume_xattr){ .remove = true }, err);
}

static void
on_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
    static const struct op op = { "removexattr", run_removexattr, 0 };
    struct call call;
    call_init(&call, req, &op, ino);
    call.name = name;
    start(&call);
}

void
session_xattrs_ops(struct fuse_lowlevel_ops *ops)
{
    ops->getxattr = on_getxattr;
    ops->listxattr = on_listxattr;
    ops->setxattr = on_setxattr;
    ops->removexattr = on_removexattr;
}
