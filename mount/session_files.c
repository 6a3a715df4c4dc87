/* Open files. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/scope.h"
#include "mount/session_impl.h"

static bool
is_writer(int flags)
{
    return (flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC) != 0;
}

/* ---- open, create ---- */
static struct fuse_file_info
make_info(const struct call *call)
{
    struct fuse_file_info fi;
    memset(&fi, 0, sizeof(fi));
    fi.flags = call->flags;
    /* Only a writer's close has something to say, or that of a process with locks. */
    fi.noflush = !is_writer(call->flags) && !session_locks_held(call);
    return fi;
}

/* Decides about passthrough, then gives the file its number. Takes `file`, also on failure. */
static int
add_handle(struct call *call, const struct volume_ctx *ctx, struct volume_file *file,
           unsigned flags, struct fuse_file_info *fi, struct err *err)
{
    struct handle_table *handles = &call->session->handles;
    struct handle_new how = { .flags = flags };
    int64_t node = volume_file_node(file);
    uint64_t stamp = is_writer(call->flags) ? 0 : volume_file_stamp(file);
    if (session_backing_open(call, ctx, file, &how, fi, err) < 0) {
        volume_file_close(file, ctx);
        return -1;
    }
    if (handle_add(handles, file, &how, ctx, &fi->fh, err) < 0) {
        session_backing_release(call->session, node, 0);
        return -1;
    }
    handle_watch(handles, fi->fh, node, stamp);
    return 0;
}

static int
find_flags(struct call *call, const struct volume_ctx *ctx, unsigned *out, struct err *err)
{
    struct volume_attr attr;
    *out = 0;
    if (!is_writer(call->flags))
        return 0;
    if (volume_getattr(call->session->args.volumes, ctx, call->node, &attr, err) < 0)
        return -1;
    *out = HANDLE_WRITER | (attr.mode & (S_ISUID | S_ISGID) ? HANDLE_PRIVILEGED : 0u);
    return 0;
}

/* The file that an earlier gateway opened for this very request, and could not tell. */
static bool
opened_before(struct call *call, struct fuse_file_info *fi)
{
    const struct carry_open *open = NULL;
    if (call->id.resent)
        open = handle_of_request(&call->session->handles, call->id.unique);
    call->replayed = open != NULL;
    if (!open)
        return false;
    fi->fh = open->fh;
    session_backing_answer(fi, open->answer, open->backing);
    return true;
}

static void
finish_open(struct call *call)
{
    /* The program may have gone meanwhile: then no RELEASE will come. */
    if (call_claim(call) && fuse_reply_open(call->req, &call->fi) >= 0)
        return;
    struct volume_ctx ctx = { .actor = "mount", .run = call->session->run };
    ctx.connection = call->session->args.id;
    handle_remove(&call->session->handles, call->fi.fh, &ctx);
}

static int
run_open(struct call *call, const struct volume_ctx *ctx, struct err *err)
{
    struct volume_file *file;
    unsigned flags;
    call->fi = make_info(call);
    if (opened_before(call, &call->fi)) {
        finish_open(call);
        return 0;
    }
    if (ctx->read_only && is_writer(call->flags))
        return err_set(err, ERR_READ_ONLY, "the mount is read-only"); /* INV-14 */
    if (find_flags(call, ctx, &flags, err) < 0 ||
        volume_file_open(call->session->args.volumes, ctx, call->node, call->flags, &file, err) < 0)
        return -1;
    if (add_handle(call, ctx, file, flags, &call->fi, err) < 0)
        return -1;
    /* Other kernels may not believe their sizes and pages any more before the first write. A truncating open comes with the
     * file's lock held. */
    if (flags & HANDLE_WRITER && !(call->flags & O_TRUNC))
        call_when_told(call, finish_open);
    else
        finish_open(call);
    return 0;
}

static void
on_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    static const struct op read_op = { "open", run_open, CALL_AT_ONCE | CALL_INTERRUPTIBLE };
    static const struct op write_op = { "open", run_open, 0 };
    struct call call;
    call_init(&call, req, is_writer(fi->flags) ? &write_op : &read_op, ino);
    call.flags = fi->flags;
    call_start(&call);
}

/* 1: not there, it has to be made. */
static int
run_create_again(struct call *call, const struct volume_ctx *ctx, struct err *err)
{
    struct volume_attr attr;
    struct fuse_entry_param entry;
    struct handle_table *handles = &call->session->handles;
    struct fuse_file_info fi = make_info(call);
    if (!opened_before(call, &fi))
        return 1;
    struct handle *handle = handle_get(handles, fi.fh);
    if (!handle)
        return 1;
    int64_t node = volume_file_node(handle->file);
    handle_put(handles, handle, ctx);
    if (volume_getattr(call->session->args.volumes, ctx, node, &attr, err) < 0)
        return -1;
    call_fill_entry(call->session, &attr, &entry);
    if (!call_claim(call) || fuse_reply_create(call->req, &entry, &fi) < 0)
        handle_remove(handles, fi.fh, ctx);
    return 0;
}

static int
run_create(struct call *call, const struct volume_ctx *ctx, struct err *err)
{
    struct volume_attr attr;
    struct volume_file *file;
    struct fuse_entry_param entry;
    int again = run_create_again(call, ctx, err);
    if (again <= 0)
        return again;
    struct volume_name at = { call->node, call->name, strlen(call->name) };
    if (call->node == call->session->args.volume_root && strncmp(call->name, ".holdfast", 9) == 0)
        return err_set(err, ERR_PERM, "names that begin with '.holdfast' are reserved");
    if (volume_file_create(
            call->session->args.volumes, ctx,
            &(struct volume_new){ .at = at, .mode = call->mode & 07777, .flags = call->flags },
            &attr, &file, err) < 0)
        return -1;
    struct handle_table *handles = &call->session->handles;
    unsigned flags = HANDLE_MAKER | (is_writer(call->flags) ? HANDLE_WRITER : 0u);
    flags |= attr.mode & (S_ISUID | S_ISGID) ? HANDLE_PRIVILEGED : 0u;
    struct fuse_file_info fi = make_info(call);
    fi.flags |= O_CREAT;
    if (add_handle(call, ctx, file, flags, &fi, err) < 0)
        return -1;
    call_fill_entry(call->session, &attr, &entry);
    if (!call_claim(call) || fuse_reply_create(call->req, &entry, &fi) < 0)
        handle_remove(handles, fi.fh, ctx);
    return 0;
}

static void
on_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
          struct fuse_file_info *fi)
{
    static const struct op op = { "create", run_create, 0 };
    struct call call;
    call_init(&call, req, &op, parent);
    call.name = name;
    call.mode = mode;
    call.flags = fi->flags;
    call_start(&call);
}

/* ---- read, write ---- */
#define LEND_MIN (64u << 10)  /* below it a copy is cheaper */
#define LEND_MAX (960u << 10) /* a pipe holds 1 MiB, and the reply's header takes a page of it */

/* 1: to be read by copying. */
static int
run_lent_read(struct call *call, const struct volume_ctx *ctx, struct err *err)
{
    struct volume_lent lent;
    if (call->size < LEND_MIN || call->size > LEND_MAX)
        return 1;
    int got = volume_file_lend(call->handle->file, ctx, call->off, call->size, &lent, err);
    if (got != 0)
        return got;
    int rc = call_reply_file(call, lent.fd, call->off, lent.len);
    volume_file_return(&lent);
    return rc;
}

static int
run_read(struct call *call, const struct volume_ctx *ctx, struct err *err)
{
    int lent = run_lent_read(call, ctx, err);
    if (lent <= 0)
        return lent;
    scope_free char *own = NULL;
    char *to = NULL;
    if (!call->parked && session_thread && call->size <= MAX_WRITE)
        to = session_thread->reply;
    if (!to) {
        own = malloc(call->size);
        to = own;
    }
    if (!to)
        return err_nomem(err);
    ssize_t got = volume_file_read(call->handle->file, ctx, to, call->size, call->off, err);
    if (got < 0)
        return -1;
    return call_reply_data(call, to, (size_t)got);
}

static void
on_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
    static const struct op op = { "read", run_read, CALL_AT_ONCE | CALL_INTERRUPTIBLE };
    struct call call;
    call_init(&call, req, &op, ino);
    call.size = size;
    call.off = (uint64_t)off;
    if (call_handle(&call, fi))
        call_start(&call);
}

static int
take_privileges(struct call *call, const struct volume_ctx *ctx, struct err *err)
{
    struct volume_attr attr;
    struct volume_change change = { .bits = VOLUME_SET_MODE };
    struct volume_service *volumes = call->session->args.volumes;
    if (volume_getattr(volumes, ctx, call->node, &attr, err) < 0)
        return -1;
    change.mode = call_mode_without_privileges(call, &attr);
    if (volume_setattr(volumes, ctx, call->node, &change, &attr, err) < 0)
        return -1;
    call->handle->flags &= ~(unsigned)HANDLE_PRIVILEGED;
    return 0;
}

static int
run_write(struct call *call, const struct volume_ctx *ctx, struct err *err)
{
    bool clears = (call->handle->flags & HANDLE_PRIVILEGED) != 0 && call_takes_privileges(call);
    /* Clearing set-id bits is an index change: not for a loop thread. */
    if (clears && !call->parked)
        return err_set(err, ERR_AGAIN, "set-id bits are to be cleared first");
    if (clears && take_privileges(call, ctx, err) < 0)
        return -1;
    if (volume_file_write(call->handle->file, ctx, call->data, call->size, call->off, err) < 0)
        return -1;
    if (call_claim(call))
        (void)fuse_reply_write(call->req, call->size);
    return 0;
}

static void
on_write(fuse_req_t req, fuse_ino_t ino, const char *data, size_t size, off_t off,
         struct fuse_file_info *fi)
{
    static const struct op op = { "write", run_write, CALL_AT_ONCE };
    struct call call;
    call_init(&call, req, &op, ino);
    call.data = data;
    call.size = size;
    call.off = (uint64_t)off;
    if (call_handle(&call, fi))
        call_start(&call);
}

/* ---- flush, fsync, release ---- */
static int
run_flush(struct call *call, const struct volume_ctx *ctx, struct err *err)
{
    if (volume_file_flush(call->handle->file, ctx, err) < 0)
        return -1;
    return call_reply_ok(call);
}

static void
on_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    static const struct op op = { "flush", run_flush, 0 };
    struct call call;
    call_init(&call, req, &op, ino);
    session_locks_flush(&call, fi);
    if (!call_handle(&call, fi))
        return;
    if (call.handle->flags & HANDLE_WRITER) {
        call_start(&call);
        return;
    }
    struct volume_ctx none = { .actor = "mount", .run = "" };
    handle_put(&call.session->handles, call.handle, &none);
    (void)call_reply_ok(&call);
}

static int
run_fsync(struct call *call, const struct volume_ctx *ctx, struct err *err)
{
    if (volume_file_fsync(call->handle->file, ctx, err) < 0)
        return -1;
    return call_reply_ok(call);
}

static void
on_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
    static const struct op op = { "fsync", run_fsync, CALL_TO_STORE };
    struct call call;
    (void)datasync;
    call_init(&call, req, &op, ino);
    if (call_handle(&call, fi))
        call_start(&call);
}

static int
run_release(struct call *call, const struct volume_ctx *ctx, struct err *err)
{
    (void)err;
    /* The parked call's own reference is the last one: this is where the file is closed. */
    struct handle_table *handles = &call->session->handles;
    handle_remove(handles, call->fh, ctx);
    handle_put(handles, call->handle, ctx);
    call->handle = NULL;
    return call_reply_ok(call);
}

static void
on_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    static const struct op reader_op = { "release", run_release, CALL_MUST_RUN | CALL_AT_ONCE };
    static const struct op waiting_op = { "release", run_release, CALL_MUST_RUN };
    struct call call;
    call_init(&call, req, &waiting_op, ino);
    session_locks_release(&call, fi);
    if (!call_handle(&call, fi))
        return;
    if (!volume_file_close_waits(call.handle->file))
        call.op = &reader_op;
    call_start(&call);
}

/* ---- space inside a file ---- */
static int
run_fallocate(struct call *call, const struct volume_ctx *ctx, struct err *err)
{
    if (volume_file_allocate(call->handle->file, ctx, call->flags, call->off, call->size, err) < 0)
        return -1;
    return call_reply_ok(call);
}

static void
on_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len,
             struct fuse_file_info *fi)
{
    static const struct op op = { "fallocate", run_fallocate, 0 };
    struct call call;
    call_init(&call, req, &op, ino);
    call.flags = mode;
    call.off = (uint64_t)off;
    call.size = (size_t)len;
    if (call_handle(&call, fi))
        call_start(&call);
}

/* What cannot be done here the kernel does by reading and writing, when it is told EXDEV. */
static int
run_copy(struct call *call, const struct volume_ctx *ctx, struct err *err)
{
    struct handle_table *handles = &call->session->handles;
    struct handle *from = handle_get(handles, call->fh2);
    if (!from || call->handle->flags & HANDLE_PRIVILEGED) {
        handle_put(handles, from, ctx);
        call_reply_errno(call, EXDEV);
        return 0;
    }
    struct volume_copy copy = { from->file, call->off2, call->off, call->size };
    ssize_t done = volume_file_copy(call->handle->file, ctx, &copy, err);
    handle_put(handles, from, ctx);
    if (done < 0 && err->code != ERR_UNSUPPORTED)
        return -1;
    if (done < 0)
        call_reply_errno(call, EXDEV);
    else if (call_claim(call))
        (void)fuse_reply_write(call->req, (size_t)done);
    return 0;
}

static void /* NOLINTNEXTLINE(readability-function-size): libfuse's parameters */
on_copy_file_range(fuse_req_t req, fuse_ino_t from, off_t from_off, struct fuse_file_info *from_fi,
                   fuse_ino_t to, off_t to_off, struct fuse_file_info *to_fi, size_t len, int flags)
{
    static const struct op op = { "copy", run_copy, 0 };
    struct call call;
    (void)from;
    call_init(&call, req, &op, to);
    call.fh2 = from_fi->fh;
    call.off2 = (uint64_t)from_off;
    call.off = (uint64_t)to_off;
    call.size = len;
    if (flags != 0)
        call_reply_errno(&call, EINVAL);
    else if (call_handle(&call, to_fi))
        call_start(&call);
}

static int
run_lseek(struct call *call, const struct volume_ctx *ctx, struct err *err)
{
    uint64_t found;
    if (volume_file_seek(call->handle->file, ctx, call->off, call->flags, &found, err) < 0) {
        if (err->code != ERR_RANGE)
            return -1;
        call_reply_errno(call, ENXIO); /* lseek(2): behind the end */
        return 0;
    }
    if (call_claim(call))
        (void)fuse_reply_lseek(call->req, (off_t)found);
    return 0;
}

static void
on_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi)
{
    static const struct op op = { "lseek", run_lseek, CALL_AT_ONCE | CALL_INTERRUPTIBLE };
    struct call call;
    call_init(&call, req, &op, ino);
    call.off = (uint64_t)off;
    call.flags = whence;
    if (call_handle(&call, fi))
        call_start(&call);
}

/* NOLINTBEGIN(readability-function-size): the arguments are libfuse's */
static void
on_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned cmd, void *arg, struct fuse_file_info *fi,
         unsigned flags, const void *in, size_t in_size, size_t out_size)
{
    (void)ino;
    (void)cmd;
    (void)arg;
    (void)fi;
    (void)flags;
    (void)in;
    (void)in_size;
    (void)out_size;
    (void)fuse_reply_err(req, ENOTTY);
}
/* NOLINTEND(readability-function-size) */

void
session_files_ops(struct fuse_lowlevel_ops *ops)
{
    ops->open = on_open;
    ops->create = on_create;
    ops->read = on_read;
    ops->write = on_write;
    ops->flush = on_flush;
    ops->fsync = on_fsync;
    ops->release = on_release;
    ops->fallocate = on_fallocate;
    ops->copy_file_range = on_copy_file_range;
    ops->lseek = on_lseek;
    ops->ioctl = on_ioctl;
}
