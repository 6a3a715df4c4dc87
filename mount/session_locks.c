/* Locks of programs: fcntl(2) and flock(2), answered from the table of volume/locks.h, which all mounts share. */
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/file.h>

#include "base/clock.h"
#include "mount/session_impl.h"

static struct lock_table *
table_of(const struct call *call)
{
    return volume_locks(call->session->args.volumes);
}

static int
errno_of(enum lock_answer answer)
{
    switch (answer) {
    case LOCK_GRANTED:
        return 0;
    case LOCK_CONFLICT:
        return EAGAIN;
    case LOCK_DEADLOCK:
        return EDEADLK;
    case LOCK_CANCELED:
        return EINTR;
    case LOCK_WAITS:
    case LOCK_FULL:
        break;
    }
    return ENOLCK;
}

static void
finish_granted(struct call *call)
{
    (void)call_reply_ok(call);
}

/* Who gets a lock sees what its last holder did: the kernel forgets first what was changed through other mounts. */
static void
answer_lock(struct call *call, enum lock_answer answer)
{
    if (answer == LOCK_GRANTED && call->wait.want.type != LOCKED_NONE)
        call_when_told(call, finish_granted);
    else
        call_reply_errno(call, errno_of(answer));
}

static bool
must_be_told(const struct call *call)
{
    return call->wait.want.type != LOCKED_NONE &&
           volume_kernel_count(call->session->args.volumes) > 1;
}

/* close(2) returns before the RELEASE that ends a flock was read: one program after the other with LOCK_NB must not fail for that. */
#define RELEASE_NS (2 * NS_PER_MS)

static int
run_set(struct call *call, const struct volume_ctx *ctx, struct err *err)
{
    (void)ctx;
    if (!call->parked && must_be_told(call))
        return err_set(err, ERR_AGAIN, "other mounts are to be heard first");
    enum lock_answer answer = lock_set(table_of(call), &call->wait.want, NULL);
    if (answer == LOCK_CONFLICT && call->wait.want.owner.flock) {
        if (!call->parked)
            return err_set(err, ERR_AGAIN, "its holder may be closing it");
        clock_sleep_ns(RELEASE_NS);
        answer = lock_set(table_of(call), &call->wait.want, NULL);
    }
    answer_lock(call, answer);
    return 0;
}

/* ---- waiting: no thread does; whoever gives the lock back answers ---- */

static struct call *
call_of(struct lock_wait *wait)
{
    return (struct call *)(void *)((char *)wait - offsetof(struct call, wait));
}

static void
wait_ended(struct lock_wait *wait, enum lock_answer answer)
{
    struct call *call = call_of(wait);
    answer_lock(call, answer);
    park_release(&call->park);
}

/* Its end is the table's to say: granted or interrupted, not both. */
void
session_locks_cancel(struct park_call *parked)
{
    struct call *call = (struct call *)parked;
    (void)lock_cancel(table_of(call), &call->wait);
}

static int
run_wait(struct call *call, const struct volume_ctx *ctx, struct err *err)
{
    enum lock_answer answer;
    (void)ctx;
    if (!call->parked) {
        answer =
            must_be_told(call) ? LOCK_CONFLICT : lock_set(table_of(call), &call->wait.want, NULL);
        if (answer == LOCK_CONFLICT)
            return err_set(err, ERR_AGAIN, "others hold the lock");
        answer_lock(call, answer);
        return 0;
    }
    call->wait.done = wait_ended;
    park_hold(&call->park);
    answer = lock_set(table_of(call), &call->wait.want, &call->wait);
    if (answer == LOCK_WAITS)
        return 0;
    answer_lock(call, answer);
    park_release(&call->park);
    return 0;
}

/* ---- what the kernel asks ---- */

static const struct op set_op = { "setlk", run_set, CALL_AT_ONCE | CALL_THEN_META };
static const struct op wait_op = {
    "setlkw", run_wait, CALL_AT_ONCE | CALL_THEN_META | CALL_INTERRUPTIBLE | CALL_IS_LOCK
};

static void
fill_lock(struct call *call, const struct fuse_file_info *fi, bool flock)
{
    struct lock *lock = &call->wait.want;
    lock->node = call->node;
    lock->owner.connection = call->session->args.id;
    lock->owner.id = fi->lock_owner;
    lock->owner.flock = flock;
    lock->fh = fi->fh;
    lock->end = INT64_MAX;
}

static void
fill_range(struct call *call, const struct flock *range)
{
    struct lock *lock = &call->wait.want;
    lock->type = range->l_type == F_WRLCK   ? LOCKED_WRITE
                 : range->l_type == F_RDLCK ? LOCKED_READ
                                            : LOCKED_NONE;
    lock->start = (uint64_t)range->l_start;
    if (range->l_len > 0)
        lock->end = lock->start + (uint64_t)range->l_len - 1;
    lock->pid = (uint32_t)range->l_pid;
}

static void
start_set(struct call *call, bool sleep)
{
    call->wait.want.fair = sleep;
    /* Nobody may be told of an error after all when it has the lock. */
    call->deadline_ns = PARK_NEVER;
    if (sleep)
        call->op = &wait_op;
    call_start(call);
}

static void
on_setlk(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, struct flock *range, int sleep)
{
    struct call call;
    call_init(&call, req, &set_op, ino);
    if (range->l_start < 0 || range->l_len < 0) {
        call_reply_errno(&call, EINVAL);
        return;
    }
    fill_lock(&call, fi, false);
    fill_range(&call, range);
    if (call_handle(&call, fi))
        start_set(&call, sleep != 0);
}

static void
on_flock(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, int op)
{
    struct call call;
    call_init(&call, req, &set_op, ino);
    fill_lock(&call, fi, true);
    call.wait.want.type = op & LOCK_EX ? LOCKED_WRITE : op & LOCK_SH ? LOCKED_READ : LOCKED_NONE;
    if (call_handle(&call, fi))
        start_set(&call, !(op & (LOCK_NB | LOCK_UN)));
}

static void
on_getlk(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, struct flock *range)
{
    static const struct op op = { "getlk", NULL, 0 };
    struct call call;
    struct lock other;
    struct flock answer = { .l_type = F_UNLCK, .l_whence = SEEK_SET };
    call_init(&call, req, &op, ino);
    fill_lock(&call, fi, false);
    fill_range(&call, range);
    if (lock_get(table_of(&call), &call.wait.want, &other)) {
        answer.l_type = other.type == LOCKED_WRITE ? F_WRLCK : F_RDLCK;
        answer.l_start = (off_t)other.start;
        answer.l_len = other.end >= INT64_MAX ? 0 : (off_t)(other.end - other.start + 1);
        /* All connections were made in the mounter's pid namespace; the kernel translates for who asks. */
        answer.l_pid = (pid_t)other.pid;
    }
    if (call_claim(&call))
        (void)fuse_reply_lock(req, &answer);
}

/* ---- what ends them ---- */

/* close(2): the process's range locks on the file go, whichever descriptor they were taken through. */
void
session_locks_flush(const struct call *call, const struct fuse_file_info *fi)
{
    struct lock_owner owner = { .connection = call->session->args.id, .id = fi->lock_owner };
    lock_drop_owner(table_of(call), call->node, &owner);
}

/* The open file ends: its flock, and range locks that belong to it (F_OFD_SETLK), of whose end the kernel does not tell. */
void
session_locks_release(const struct call *call, const struct fuse_file_info *fi)
{
    lock_drop_handle(table_of(call), call->node, call->session->args.id, fi->fh);
}

bool
session_locks_held(const struct call *call)
{
    return lock_held(table_of(call), call->node, call->session->args.id);
}

void
session_locks_ops(struct fuse_lowlevel_ops *ops)
{
    ops->getlk = on_getlk;
    ops->setlk = on_setlk;
    ops->flock = on_flock;
}
