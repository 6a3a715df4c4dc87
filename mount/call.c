#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "mount/session_impl.h"

/* Where its answer is recorded: nobody else uses the slot until the reply was written (INV-13). */
static uint32_t
answer_slot(const struct call *call)
{
    uint32_t own = LIMIT_PARKED;
    if (session_thread)
        own += 1 + (uint32_t)(session_thread - call->session->threads);
    return session_first_slot(call->session) + (call->parked ? call->park.slot : own);
}

static struct volume_ctx
make_ctx(struct call *call)
{
    return (struct volume_ctx){
        .actor = "mount",
        .run = call->session->run,
        .uid = call->uid,
        .gid = call->gid,
        .connection = call->session->args.id,
        .unique = call->id.unique,
        .slot = answer_slot(call),
        .resent = call->id.resent,
        .replayed = &call->replayed,
        .read_only = call->session->args.read_only,
        .deadline_ns = call->deadline_ns,
    };
}

void
call_init(struct call *call, fuse_req_t req, const struct op *op, fuse_ino_t ino)
{
    const struct fuse_ctx *who = fuse_req_ctx(req);
    memset(call, 0, sizeof(*call));
    call->session = session_of(req);
    call->op = op;
    call->req = req;
    call->id = session_request;
    call->deadline_ns = clock_mono_ns() + call->session->args.deadline_ns;
    call->uid = who->uid;
    call->gid = who->gid;
    call->node = ino_to_node(ino, call->session->args.root);
}

bool
call_handle(struct call *call, const struct fuse_file_info *fi)
{
    call->fh = fi->fh;
    call->handle = handle_get(&call->session->handles, fi->fh);
    if (!call->handle)
        call_reply_errno(call, EBADF);
    return call->handle != NULL;
}

bool
call_claim(struct call *call)
{
    if (call->parked && !park_claim(&call->park))
        return false;
    struct session *session = call->session;
    atomic_fetch_add_explicit(&session->requests, 1, memory_order_relaxed);
    if (call->id.resent) {
        carry_count(session->args.carry, call->id.opcode, false);
        if (call->replayed)
            carry_count(session->args.carry, call->id.opcode, true);
    }
    return true;
}

void
call_reply_errno(struct call *call, int error)
{
    if (call_claim(call))
        (void)fuse_reply_err(call->req, error);
}

int
call_reply_ok(struct call *call)
{
    call_reply_errno(call, 0);
    return 0;
}

static struct timespec
to_timespec(int64_t ns)
{
    struct timespec time = { .tv_sec = ns / NS_PER_S, .tv_nsec = ns % NS_PER_S };
    if (time.tv_nsec < 0) {
        time.tv_nsec += NS_PER_S;
        time.tv_sec--;
    }
    return time;
}

void
call_fill_stat(const struct session *session, const struct volume_attr *attr, struct stat *out)
{
    bool orphan = attr->parent == 0 && attr->node != session->args.volume_root;
    memset(out, 0, sizeof(*out));
    out->st_ino = ino_of_node(attr->node, session->args.root);
    out->st_mode = attr->mode;
    out->st_nlink = orphan ? 0 : attr->nlink; /* 1 for a folder: "not counted" */
    out->st_uid = attr->uid;
    out->st_gid = attr->gid;
    out->st_rdev = (dev_t)attr->rdev;
    out->st_size = (off_t)attr->size;
    out->st_blksize = 4096;
    out->st_blocks = (blkcnt_t)((attr->size + 511) / 512);
    out->st_mtim = to_timespec(attr->mtime_ns);
    out->st_atim = to_timespec(attr->atime_ns);
    out->st_ctim = to_timespec(attr->ctime_ns);
}

double
call_timeout(int64_t fresh_ns)
{
    double seconds = (double)fresh_ns / (double)NS_PER_S;
    if (seconds < TIMEOUT_MIN)
        return TIMEOUT_MIN;
    return seconds > TIMEOUT_MAX ? TIMEOUT_MAX : seconds;
}

void
call_fill_entry(const struct session *session, const struct volume_attr *attr,
                struct fuse_entry_param *out)
{
    memset(out, 0, sizeof(*out));
    call_fill_stat(session, attr, &out->attr);
    out->ino = out->attr.st_ino;
    /* A file that is written moves under other mounts too: nobody may believe old sizes. */
    out->entry_timeout = call_timeout(attr->fresh_ns);
    out->attr_timeout = attr->writing ? 0 : out->entry_timeout;
}

int
call_reply_entry(struct call *call, const struct volume_attr *attr)
{
    struct fuse_entry_param entry;
    call_fill_entry(call->session, attr, &entry);
    if (call_claim(call))
        (void)fuse_reply_entry(call->req, &entry);
    return 0;
}

int
call_reply_attr(struct call *call, const struct volume_attr *attr)
{
    struct stat st;
    call_fill_stat(call->session, attr, &st);
    log_trace(mount, "%s node=%lld size=%llu writing=%d", call->op->name, (long long)attr->node,
              (unsigned long long)attr->size, attr->writing);
    if (call_claim(call))
        (void)fuse_reply_attr(call->req, &st, attr->writing ? 0 : call_timeout(attr->fresh_ns));
    return 0;
}

int
call_reply_data(struct call *call, const void *data, size_t len)
{
    if (call_claim(call))
        (void)fuse_reply_buf(call->req, data, len);
    return 0;
}

int
call_reply_file(struct call *call, int fd, uint64_t off, size_t len)
{
    struct fuse_bufvec bytes = FUSE_BUFVEC_INIT(len);
    bytes.buf[0].flags = FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK;
    bytes.buf[0].fd = fd;
    bytes.buf[0].pos = (off_t)off;
    if (call_claim(call))
        (void)fuse_reply_data(call->req, &bytes, 0);
    return 0;
}

static void
told(void *arg)
{
    struct call *call = arg;
    call->finish(call);
    park_release(&call->park);
}

void
call_when_told(struct call *call, void (*finish)(struct call *call))
{
    call->finish = finish;
    if (call->parked) {
        park_hold(&call->park);
        if (volume_told(call->session->args.volumes, told, call))
            return;
        park_release(&call->park);
    }
    finish(call);
}

static void
reply_failure(struct call *call, const struct err *err)
{
    int error = err_errno(err->code);
    if (error == EIO)
        log_warn(mount, "%s failed mount=%lld node=%lld error=\"%s\"", call->op->name,
                 (long long)call->session->args.id, (long long)call->node, err->msg);
    else
        log_debug(mount, "%s refused mount=%lld node=%lld error=\"%s\"", call->op->name,
                  (long long)call->session->args.id, (long long)call->node, err->msg);
    call_reply_errno(call, error);
}

/* ---- parked ---- */

static bool
run_parked(struct park_call *parked, enum park_pool pool)
{
    struct call *call = (struct call *)parked;
    struct err err = ERR_INIT;
    struct volume_ctx ctx = make_ctx(call);
    ctx.nowait = pool == PARK_META;
    if (call->op->fn(call, &ctx, &err) == 0)
        return false;
    if (err.code == ERR_AGAIN && pool == PARK_META)
        return true;
    reply_failure(call, &err);
    return false;
}

static void
give_up_parked(struct park_call *parked, enum err_code code)
{
    struct call *call = (struct call *)parked;
    log_debug(mount, "%s given up mount=%lld node=%lld reason=%s", call->op->name,
              (long long)call->session->args.id, (long long)call->node, err_slug(code));
    atomic_fetch_add_explicit(&call->session->requests, 1, memory_order_relaxed);
    (void)fuse_reply_err(call->req, err_errno(code));
}

static void
free_parked(struct park_call *parked)
{
    struct call *call = (struct call *)parked;
    struct session *session = call->session;
    struct volume_ctx ctx = make_ctx(call);
    handle_put(&session->handles, call->handle, &ctx);
    atomic_fetch_sub_explicit(&session->parked, 1, memory_order_relaxed);
    free(call);
    session_unref(session);
}

static const void *
copy_part(char **to, const void *from, size_t len)
{
    char *at = *to;
    if (!from)
        return NULL;
    memcpy(at, from, len);
    *to = at + len;
    return at;
}

/* A copy that outlives the loop thread's buffer. It takes the handle's reference over. */
static struct call *
copy_call(const struct call *call)
{
    size_t name = call->name ? strlen(call->name) + 1 : 0;
    size_t name2 = call->name2 ? strlen(call->name2) + 1 : 0;
    size_t data = call->data ? call->size : 0;
    struct call *copy = malloc(sizeof(*copy) + name + name2 + data);
    if (!copy)
        return NULL;
    memcpy(copy, call, sizeof(*copy));
    char *to = copy->copies;
    copy->name = copy_part(&to, call->name, name);
    copy->name2 = copy_part(&to, call->name2, name2);
    copy->data = copy_part(&to, call->data, data);
    copy->park = (struct park_call){
        .run = run_parked,
        .give_up = give_up_parked,
        .free = free_parked,
        .cancel = call->op->flags & CALL_IS_LOCK ? session_locks_cancel : NULL,
        .must_run = (call->op->flags & CALL_MUST_RUN) != 0,
        .deadline_ns = call->deadline_ns,
    };
    copy->parked = true;
    return copy;
}

static void
interrupted(fuse_req_t req, void *arg)
{
    park_interrupt(session_of(req)->args.park, (uint32_t)(uintptr_t)arg, req);
}

static int
park_copy(struct call *call, enum park_pool pool, struct err *err)
{
    struct session *session = call->session;
    struct call *copy = copy_call(call);
    if (!copy)
        return err_nomem(err);
    if (park_enter(session->args.park, &copy->park, copy->req, err) < 0) {
        free(copy);
        return -1;
    }
    (void)session_ref(session);
    atomic_fetch_add_explicit(&session->parked, 1, memory_order_relaxed);
    /* May call back at once; park_start() sees that. Nobody else can answer before it. */
    if (call->op->flags & CALL_INTERRUPTIBLE)
        fuse_req_interrupt_func(copy->req, interrupted, (void *)(uintptr_t)copy->park.slot);
    if (pool == PARK_META && session_has_reader(session))
        park_start_here(&copy->park);
    else
        park_start(&copy->park, pool);
    return 0;
}

static void
release_handle(struct call *call)
{
    struct volume_ctx ctx = make_ctx(call);
    handle_put(&call->session->handles, call->handle, &ctx);
}

void
call_start(struct call *call)
{
    struct err err = ERR_INIT;
    enum park_pool pool = call->op->flags & CALL_TO_STORE ? PARK_STORE : PARK_META;
    if (call->op->flags & CALL_AT_ONCE) {
        struct volume_ctx ctx = make_ctx(call);
        ctx.nowait = true;
        int done = call->op->fn(call, &ctx, &err);
        if (done < 0 && err.code != ERR_AGAIN)
            reply_failure(call, &err);
        if (done == 0 || err.code != ERR_AGAIN) {
            release_handle(call);
            return;
        }
        pool = call->op->flags & CALL_THEN_META ? PARK_META : PARK_STORE;
    }
    struct err full = ERR_INIT;
    if (park_copy(call, pool, &full) == 0)
        return;
    log_warn(mount, "%s cannot be parked error=\"%s\"", call->op->name, full.msg);
    /* RELEASE cannot be refused: better a loop thread that waits once than a file that stays open. */
    struct volume_ctx ctx = make_ctx(call);
    ctx.nowait = true;
    if (!(call->op->flags & CALL_MUST_RUN) || call->op->fn(call, &ctx, &err) < 0)
        reply_failure(call, &full);
    release_handle(call);
}

/* ---- set-id bits ---- */
bool
call_takes_privileges(const struct call *call)
{
    return call->uid != 0;
}

/* The group's bit only goes where the group may execute, or for those to whom the group is foreign. */
uint32_t
call_mode_without_privileges(const struct call *call, const struct volume_attr *attr)
{
    uint32_t off = S_ISUID;
    if (attr->mode & S_IXGRP || (call->uid != 0 && call->gid != attr->gid))
        off |= S_ISGID;
    return attr->mode & 07777 & ~off;
}
