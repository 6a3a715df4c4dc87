#include "mount/session.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/scope.h"
#include "mount/session_impl.h"
#include "mount/wire.h"

_Thread_local struct request_id session_request;
_Thread_local struct loop_thread *session_thread;

/* ---- what libfuse asks of us ---- */

static ssize_t /* NOLINTNEXTLINE(readability-function-size): libfuse's parameters */
splice_reply(int from, off_t *from_off, int to, off_t *to_off, size_t len, unsigned flags,
             void *userdata)
{
    (void)userdata;
    return splice(from, from_off, to, to_off, len, flags);
}

static void __attribute__((format(printf, 2, 0)))
log_libfuse(enum fuse_log_level level, const char *fmt, va_list args)
{
    char line[256];
    (void)vsnprintf(line, sizeof(line), fmt, args);
    line[strcspn(line, "\n")] = '\0';
    if (level <= FUSE_LOG_ERR)
        log_warn(mount, "libfuse message=\"%s\"", line);
    else
        log_debug(mount, "libfuse message=\"%s\"", line);
}

static void
want(struct fuse_conn_info *conn, unsigned capability)
{
    conn->want |= conn->capable & capability;
}

static void
decide(struct fuse_conn_info *conn)
{
    want(conn, FUSE_CAP_READDIRPLUS);
    want(conn, FUSE_CAP_READDIRPLUS_AUTO);
    want(conn, FUSE_CAP_PARALLEL_DIROPS);
    want(conn, FUSE_CAP_ATOMIC_O_TRUNC);
    want(conn, FUSE_CAP_CACHE_SYMLINKS);
    want(conn, FUSE_CAP_AUTO_INVAL_DATA);
    want(conn, FUSE_CAP_ASYNC_READ);
    want(conn, FUSE_CAP_POSIX_LOCKS);
    want(conn, FUSE_CAP_FLOCK_LOCKS);
    want(conn, FUSE_CAP_HANDLE_KILLPRIV);
#ifdef FUSE_CAP_HANDLE_KILLPRIV_V2
    want(conn, FUSE_CAP_HANDLE_KILLPRIV_V2);
#endif
    /* Replies to READ go from the cache's file to the kernel without a copy here; libfuse alone looks at this one. */
    want(conn, FUSE_CAP_SPLICE_WRITE);
    conn->want &=
        ~(unsigned)(FUSE_CAP_WRITEBACK_CACHE | FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_MOVE);
    conn->max_write = MAX_WRITE;
    conn->max_background = 64;
    conn->congestion_threshold = 48;
    conn->time_gran = 1;
}

static void
on_init(void *userdata, struct fuse_conn_info *conn)
{
    struct session *session = userdata;
    decide(conn);
    session_backing_init(session, conn);
    session_keep_wishes(session, conn);
    scope_unlock pthread_mutex_t *held = scope_lock(&session->mutex);
    (void)held;
    session->ready = true;
}

/* ---- loop threads ---- */

static void start_threads(struct session *session);

static bool
is_ready(struct session *session)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&session->mutex);
    (void)held;
    return session->ready;
}

static void
thread_gone(struct session *session)
{
    pthread_mutex_lock(&session->mutex);
    bool last = --session->running == 0;
    pthread_mutex_unlock(&session->mutex);
    if (!last)
        return;
    if (session->args.ended)
        session->args.ended(session->args.ended_arg);
    scope_unlock pthread_mutex_t *held = scope_lock(&session->mutex);
    (void)held;
    session->ended = true;
    pthread_cond_broadcast(&session->changed);
}

/* Without it the callers of what was under way would wait for ever: better an error for all (the keeper clears up). */
static int
ask_again(struct session *session)
{
    struct err err = ERR_INIT;
    if (session_ask_again(session, &err) == 0)
        return 0;
    log_error(mount, "cannot take a mount over mount=%lld error=\"%s\"",
              (long long)session->args.id, err.msg);
    return -1;
}

/* Ours instead of libfuse's loop: threads stay, each with its buffers, and ENODEV is the only end. */
static void *
loop_main(void *arg)
{
    struct loop_thread *self = arg;
    struct session *session = self->session;
    struct fuse_buf buf = { .mem = NULL };
    bool first = self == &session->threads[0];
    session_thread = self;
    for (;;) {
        atomic_fetch_add(&session->reading, 1);
        int got = fuse_session_receive_buf(session->fuse, &buf);
        atomic_fetch_sub(&session->reading, 1);
        if (got == -EINTR || got == -EAGAIN)
            continue;
        if (got <= 0)
            break;
        fuse_session_process_buf(session->fuse, &buf);
        /* INIT sizes the buffers: nobody else may read before it. */
        if (first && is_ready(session)) {
            if (session->adopted && ask_again(session) < 0)
                break;
            /* What the one before us had no time to tell. */
            if (session->adopted)
                (void)session_forget_all(session);
            start_threads(session);
            first = false;
        }
    }
    free(buf.mem);
    free(self->reply);
    self->reply = NULL;
    thread_gone(session);
    return NULL;
}

static int
start_thread(struct session *session, unsigned number)
{
    struct loop_thread *thread = &session->threads[number];
    char name[16];
    thread->session = session;
    thread->reply = malloc(MAX_WRITE);
    if (!thread->reply)
        return -1;
    pthread_mutex_lock(&session->mutex);
    session->running++;
    pthread_mutex_unlock(&session->mutex);
    if (pthread_create(&thread->thread, NULL, loop_main, thread) != 0) {
        free(thread->reply);
        thread->reply = NULL;
        pthread_mutex_lock(&session->mutex);
        session->running--;
        pthread_mutex_unlock(&session->mutex);
        return -1;
    }
    thread->started = true;
    (void)snprintf(name, sizeof(name), "fuse-%u-%u", (unsigned)session->args.id % 10000u,
                   number % 1000u);
    (void)pthread_setname_np(thread->thread, name);
    return 0;
}

static void
start_threads(struct session *session)
{
    for (unsigned i = 1; i < session->args.threads; i++) {
        if (start_thread(session, i) < 0) {
            log_warn(mount, "fewer loop threads than wanted mount=%lld threads=%u",
                     (long long)session->args.id, i);
            return;
        }
    }
}

/* ---- life ---- */

static const struct fuse_custom_io custom_io = { .read = session_read,
                                                 .writev = session_write,
                                                 .splice_send = splice_reply };

static void
fill_ops(struct fuse_lowlevel_ops *ops)
{
    memset(ops, 0, sizeof(*ops));
    ops->init = on_init;
    session_names_ops(ops);
    session_attributes_ops(ops);
    session_xattrs_ops(ops);
    session_files_ops(ops);
    session_locks_ops(ops);
    session_folders_ops(ops);
    session_virtual_ops(ops);
}

static int
make_fuse(struct session *session, struct err *err)
{
    char program[] = "holdfast";
    char option[] = "-o";
    char options[160];
    struct fuse_lowlevel_ops ops;
    /* Read by session_start_user() only; the mounter sets the same. */
    (void)snprintf(options, sizeof(options),
                   "fsname=holdfast:%s,subtype=holdfast,default_permissions%s",
                   session->volume_name, session->args.read_only ? ",ro" : "");
    char *argv[] = { program, option, options, NULL };
    struct fuse_args args = FUSE_ARGS_INIT(3, argv);
    fill_ops(&ops);
    fuse_set_log_func(log_libfuse);
    session->fuse = fuse_session_new(&args, &ops, sizeof(ops), session);
    fuse_opt_free_args(&args);
    return session->fuse ? 0 : err_set(err, ERR_INTERNAL, "libfuse makes no session");
}

struct session *
session_new(const struct session_args *args, struct err *err)
{
    struct session *session = calloc(1, sizeof(*session));
    if (!session) {
        carry_unmap(args->carry);
        err_nomem(err);
        return NULL;
    }
    session->args = *args;
    if (session->args.threads == 0 || session->args.threads > MAX_THREADS)
        session->args.threads = MAX_THREADS;
    (void)snprintf(session->volume_name, sizeof(session->volume_name), "%s", args->volume_name);
    (void)snprintf(session->prefix, sizeof(session->prefix), "%s", args->prefix);
    (void)snprintf(session->run, sizeof(session->run), "%s", args->run);
    pthread_condattr_t attr;
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&session->mutex, NULL);
    pthread_cond_init(&session->changed, &attr);
    (void)pthread_condattr_destroy(&attr);
    handle_table_init(&session->handles, session->args.carry);
    session->handles.released = session_backing_release;
    session->handles.arg = session;
    session->refs = 1;
    session->ended = true; /* not started yet */
    if (session_virtual_init(session, err) == 0 &&
        backing_table_init(&session->backings, err) == 0 && make_fuse(session, err) == 0)
        return session;
    session_unref(session);
    return NULL;
}

static int
begin(struct session *session, struct err *err)
{
    session->ended = false;
    if (start_thread(session, 0) == 0)
        return 0;
    session->ended = true;
    return err_set(err, ERR_NOMEM, "no thread for the mount");
}

int
session_start(struct session *session, int fuse, struct err *err)
{
    int error = fuse_session_custom_io(session->fuse, &custom_io, fuse);
    if (error != 0) {
        (void)close(fuse);
        return err_sys(err, -error, "libfuse refuses the descriptor");
    }
    return begin(session, err);
}

int
session_adopt(struct session *session, int fuse, const struct session_record *record,
              struct err *err)
{
    session->record = *record;
    session->adopted = session->replay = true;
    return session_start(session, fuse, err);
}

int
session_start_user(struct session *session, const char *path, struct err *err)
{
    if (fuse_session_mount(session->fuse, path) != 0)
        return err_set(err, ERR_IO, "cannot mount on '%s' (is fusermount3 installed?)", path);
    session->path = strdup(path);
    int error = -ENOMEM;
    if (session->path)
        error = fuse_session_custom_io(session->fuse, &custom_io, fuse_session_fd(session->fuse));
    if (error == 0 && begin(session, err) == 0)
        return 0;
    if (error != 0)
        err_sys(err, -error, "libfuse refuses its own descriptor");
    return -1; /* destroy() unmounts */
}

int
session_fusermount(const char *path, bool detach, struct err *err)
{
    pid_t pid;
    int status;
    char *const argv[] = { (char[]){ "fusermount3" }, (char[]){ "-u" },
                           detach ? (char[]){ "-z" } : (char[]){ "-q" }, strdupa(path), NULL };
    int error = posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ);
    if (error != 0)
        return err_sys(err, error, "start fusermount3");
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR)
            return err_sys(err, errno, "wait for fusermount3");
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return err_set(err, ERR_BUSY, "fusermount3 cannot unmount '%s'", path);
    return 0;
}

/* Not fuse_session_unmount(): it closes the descriptor that the loop threads read from. */
int
session_unmount_user(struct session *session, bool detach, struct err *err)
{
    if (session_ended(session))
        return 0;
    if (geteuid() != 0)
        return session_fusermount(session->path, detach, err);
    if (umount2(session->path, UMOUNT_NOFOLLOW | (detach ? MNT_DETACH : 0)) < 0)
        return err_sys(err, errno, "unmount '%s'", session->path);
    return 0;
}

void
session_close_files(struct session *session)
{
    struct volume_ctx ctx = { .actor = "mount", .run = session->run };
    ctx.connection = session->args.id;
    handle_table_close(&session->handles, &ctx);
}

bool
session_ended(struct session *session)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&session->mutex);
    (void)held;
    return session->ended;
}

bool
session_wait_end(struct session *session, int64_t deadline_ns)
{
    struct timespec until = { .tv_sec = deadline_ns / NS_PER_S, .tv_nsec = deadline_ns % NS_PER_S };
    scope_unlock pthread_mutex_t *held = scope_lock(&session->mutex);
    (void)held;
    while (!session->ended &&
           pthread_cond_timedwait(&session->changed, &session->mutex, &until) == 0)
        continue;
    return session->ended;
}

struct session *
session_ref(struct session *session)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&session->mutex);
    (void)held;
    session->refs++;
    return session;
}

static void
destroy(struct session *session)
{
    struct volume_ctx ctx = { .actor = "mount", .run = session->run };
    ctx.connection = session->args.id;
    for (unsigned i = 0; i < MAX_THREADS; i++) {
        if (session->threads[i].started)
            (void)pthread_join(session->threads[i].thread, NULL);
    }
    handle_table_release(&session->handles, &ctx);
    backing_table_release(&session->backings);
    if (session->path)
        fuse_session_unmount(session->fuse);
    if (session->fuse)
        fuse_session_destroy(session->fuse);
    carry_unmap(session->args.carry);
    session_virtual_release(session);
    free(session->path);
    pthread_cond_destroy(&session->changed);
    pthread_mutex_destroy(&session->mutex);
    free(session);
}

void
session_unref(struct session *session)
{
    if (!session)
        return;
    pthread_mutex_lock(&session->mutex);
    bool last = --session->refs == 0;
    pthread_mutex_unlock(&session->mutex);
    if (last)
        destroy(session);
}

int64_t
session_id(const struct session *session)
{
    return session->args.id;
}

int64_t
session_volume(const struct session *session)
{
    return session->args.volume;
}

uint64_t
session_requests(struct session *session)
{
    return atomic_load_explicit(&session->requests, memory_order_relaxed);
}

uint64_t
session_parked(struct session *session)
{
    return atomic_load_explicit(&session->parked, memory_order_relaxed);
}

bool
session_forget_node(struct session *session, int64_t node, bool data)
{
    /* A negative offset means attributes only. */
    return fuse_lowlevel_notify_inval_inode(session->fuse, ino_of_node(node, session->args.root),
                                            data ? 0 : -1, 0) == 0;
}

bool
session_forget_name(struct session *session, int64_t parent, const char *name)
{
    return fuse_lowlevel_notify_inval_entry(session->fuse, ino_of_node(parent, session->args.root),
                                            name, strlen(name)) == 0;
}

bool
session_forget_removed(struct session *session, int64_t parent, int64_t node, const char *name)
{
    return fuse_lowlevel_notify_delete(session->fuse, ino_of_node(parent, session->args.root),
                                       ino_of_node(node, session->args.root), name,
                                       strlen(name)) == 0;
}

/* FUSE_NOTIFY_INC_EPOCH of the kernel's include/uapi/linux/fuse.h (7.44); libfuse 3.17 has no call for it. */
#define NOTIFY_INC_EPOCH 8

bool
session_forget_all(struct session *session)
{
    uint8_t notice[WIRE_NOTICE_SIZE];
    wire_notice(NOTIFY_INC_EPOCH, notice);
    return write(fuse_session_fd(session->fuse), notice, sizeof(notice)) == (ssize_t)sizeof(notice);
}
