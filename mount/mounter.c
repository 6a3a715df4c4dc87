#include "mount/mounter.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/scope.h"
#include "base/sys.h"
#include "mount/mount.h"

#define ANSWER_SECONDS 30
#define DEFAULT_PARENT "/mnt/data"

struct mounter {
    pthread_mutex_t mutex; /* one request and its reply */
    int socket;            /* -1: given up */
    pid_t pid;
};

union fd_space {
    char bytes[CMSG_SPACE(sizeof(int))];
    struct cmsghdr align;
};

/* Runs in the child of a fork: async-signal-safe calls only. */
static void
become_helper(const char *exe_path, const char *parent, int socket)
{
    char *const argv[] = { (char[]){ "holdfast-mounter" }, strdupa(parent), NULL };
    char *const envp[] = { NULL };
    if (socket == HELPER_FD)
        (void)fcntl(socket, F_SETFD, 0);
    else if (dup2(socket, HELPER_FD) < 0)
        _exit(127);
    if (close_range(HELPER_FD + 1, ~0u, 0) < 0)
        _exit(127);
    (void)execve(exe_path, argv, envp);
    _exit(127);
}

/* Searchable by all, whatever the umask: sandboxes and the gateway's own user look through it. */
static int
make_parent(const char *parent, struct err *err)
{
    struct stat st;
    if (stat(parent, &st) == 0)
        return S_ISDIR(st.st_mode) ? 0
                                   : err_set(err, ERR_NOT_DIR, "'%s' is not a directory", parent);
    if (sys_make_dirs(parent, 0755, err) < 0)
        return -1;
    return chmod(parent, 0755) < 0 ? err_sys(err, errno, "mode of '%s'", parent) : 0;
}

int
mounter_spawn(const char *exe_path, const char *default_parent, int *socket_out, pid_t *pid_out,
              struct err *err)
{
    int ends[2];
    const char *parent = default_parent ? default_parent : DEFAULT_PARENT;
    if (geteuid() != 0)
        return err_set(err, ERR_PERM, "only root can start the mounter");
    if (make_parent(parent, err) < 0)
        return -1;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return err_sys(err, errno, "socketpair");
    scope_fd int mine = ends[0];
    scope_fd int theirs = ends[1];
    pid_t pid = fork();
    if (pid < 0)
        return err_sys(err, errno, "fork");
    if (pid == 0)
        become_helper(exe_path, parent, theirs);
    scope_close_fd(&theirs);
    theirs = -1;
    /* A first answer shows that the program could be started and is of this build. */
    int probe = fcntl(mine, F_DUPFD_CLOEXEC, 0);
    struct mounter *mounter = probe < 0 ? NULL : mounter_new(probe, 0, err);
    if (!mounter) {
        scope_close_fd(&mine);
        mine = -1;
        (void)waitpid(pid, NULL, 0);
        return err_wrap(err, "start '%s'", exe_path);
    }
    mounter_free(mounter);
    *socket_out = steal_fd(&mine);
    *pid_out = pid;
    return 0;
}

int
mounter_request(struct helper_request *request, enum helper_op op, int64_t id, const char *path,
                const char *source, struct err *err)
{
    size_t path_len = strlen(path);
    size_t source_len = strlen(source);
    if (path_len >= sizeof(request->path) || source_len >= sizeof(request->source))
        return err_set(err, ERR_NAME_TOO_LONG, "the path of the mount is too long");
    memset(request, 0, sizeof(*request));
    request->version = HELPER_VERSION;
    request->op = (uint32_t)op;
    request->id = id;
    memcpy(request->path, path, path_len + 1);
    memcpy(request->source, source, source_len + 1);
    return 0;
}

static int
send_request(int socket, struct helper_request *request, int fd)
{
    union fd_space space;
    struct iovec part = { .iov_base = request, .iov_len = sizeof(*request) };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
    memset(&space, 0, sizeof(space));
    if (fd >= 0) {
        message.msg_control = space.bytes;
        message.msg_controllen = sizeof(space.bytes);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(header), &fd, sizeof(fd));
    }
    return sendmsg(socket, &message, MSG_NOSIGNAL) == (ssize_t)sizeof(*request) ? 0 : -1;
}

static int
receive_reply(int socket, struct helper_reply *reply, int *fd)
{
    union fd_space space;
    struct iovec part = { .iov_base = reply, .iov_len = sizeof(*reply) };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
    message.msg_control = space.bytes;
    message.msg_controllen = sizeof(space.bytes);
    ssize_t got;
    do {
        got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    } while (got < 0 && errno == EINTR);
    if (got < 0)
        return -1;
    const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    *fd = -1;
    if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
        header->cmsg_len == CMSG_LEN(sizeof(int)))
        memcpy(fd, CMSG_DATA(header), sizeof(*fd));
    if (got == (ssize_t)sizeof(*reply) && reply->version == HELPER_VERSION)
        return 0;
    errno = got == 0 ? EPIPE : EPROTO;
    return -1;
}

static void
give_up(struct mounter *mounter)
{
    if (mounter->socket >= 0)
        (void)close(mounter->socket);
    mounter->socket = -1;
}

/* `fd` goes along; `*fd_out` (may be NULL) comes back. */
static int
call(struct mounter *mounter, struct helper_request *request, int fd, struct helper_reply *reply,
     int *fd_out, struct err *err)
{
    int got = -1;
    scope_unlock pthread_mutex_t *held = scope_lock(&mounter->mutex);
    (void)held;
    if (mounter->socket < 0)
        return err_set(err, ERR_INTERNAL, "the mounter has ended: restart the gateway");
    if (send_request(mounter->socket, request, fd) < 0 ||
        receive_reply(mounter->socket, reply, &got) < 0) {
        err_sys(err, errno, "the mounter does not answer");
        err->code = ERR_INTERNAL;
        give_up(mounter);
    } else if (reply->error != 0) {
        reply->what[sizeof(reply->what) - 1] = '\0';
        err_sys(err, reply->error, "%s", reply->what[0] != '\0' ? reply->what : "the mounter");
    } else if (fd_out) {
        *fd_out = got;
        return 0;
    } else {
        if (got >= 0)
            (void)close(got);
        return 0;
    }
    if (got >= 0)
        (void)close(got);
    return -1;
}

static int
simple(struct mounter *mounter, enum helper_op op, int64_t id, uint32_t flags, const char *path,
       struct err *err)
{
    struct helper_request request;
    struct helper_reply reply;
    if (mounter_request(&request, op, id, path, "", err) < 0)
        return -1;
    request.flags = flags;
    return call(mounter, &request, -1, &reply, NULL, err);
}

struct mounter *
mounter_new(int socket, pid_t pid, struct err *err)
{
    struct timeval patience = { .tv_sec = ANSWER_SECONDS };
    struct mounter *mounter = calloc(1, sizeof(*mounter));
    if (!mounter) {
        (void)close(socket);
        err_nomem(err);
        return NULL;
    }
    mounter->socket = socket;
    mounter->pid = pid;
    pthread_mutex_init(&mounter->mutex, NULL);
    if (setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) < 0)
        log_warn(mount, "the mounter's socket has no time limit error=%d", errno);
    if (simple(mounter, HELPER_HELLO, 0, 0, "", err) == 0)
        return mounter;
    mounter_free(mounter);
    return NULL;
}

void
mounter_free(struct mounter *mounter)
{
    if (!mounter)
        return;
    give_up(mounter);
    if (mounter->pid > 0)
        (void)waitpid(mounter->pid, NULL, 0);
    pthread_mutex_destroy(&mounter->mutex);
    free(mounter);
}

int
mounter_mount(struct mounter *mounter, const struct mounter_mount *args, int *fuse, uint32_t *minor,
              struct err *err)
{
    struct helper_request request;
    struct helper_reply reply;
    if (mounter_request(&request, HELPER_MOUNT, args->id, args->path, args->source, err) < 0)
        return -1;
    request.flags =
        (args->read_only ? HELPER_READ_ONLY : 0u) | (args->target < 0 ? HELPER_CREATE : 0u);
    if (call(mounter, &request, args->target, &reply, fuse, err) < 0)
        return -1;
    if (*fuse < 0)
        return err_set(err, ERR_INTERNAL, "the mounter sent no descriptor");
    *minor = reply.dev_minor;
    return 0;
}

int
mounter_umount(struct mounter *mounter, int64_t id, uint32_t flags, struct err *err)
{
    return simple(mounter, HELPER_UMOUNT, id, flags, "", err);
}

int
mounter_abort(struct mounter *mounter, int64_t id, struct err *err)
{
    return simple(mounter, HELPER_ABORT, id, 0, "", err);
}

int
mounter_forget(struct mounter *mounter, int64_t id, struct err *err)
{
    return simple(mounter, HELPER_FORGET, id, 0, "", err);
}

int
mounter_clear(struct mounter *mounter, const char *path, struct err *err)
{
    return simple(mounter, HELPER_CLEAR, 0, 0, path, err);
}

int
mounter_record_init(struct mounter *mounter, int64_t id, const void *record, size_t len,
                    struct err *err)
{
    struct helper_request request;
    struct helper_reply reply;
    if (mounter_request(&request, HELPER_RECORD_INIT, id, "", "", err) < 0)
        return -1;
    if (len > sizeof(request.record))
        return err_set(err, ERR_TOO_LARGE, "INIT request of %zu bytes", len);
    memcpy(request.record, record, len);
    request.record_len = (uint32_t)len;
    return call(mounter, &request, -1, &reply, NULL, err);
}

int
mounter_backing_open(struct mounter *mounter, int64_t id, int fd, struct mounter_backing *backing,
                     struct err *err)
{
    struct helper_request request;
    struct helper_reply reply;
    if (mounter_request(&request, HELPER_BACKING_OPEN, id, "", "", err) < 0)
        return -1;
    request.node = backing->node;
    request.content = backing->content;
    if (call(mounter, &request, fd, &reply, NULL, err) < 0)
        return -1;
    backing->id = reply.backing;
    return 0;
}

int
mounter_backing_close(struct mounter *mounter, int64_t id, const int32_t *backings, size_t count,
                      struct err *err)
{
    struct helper_request request;
    struct helper_reply reply;
    assert(count <= HELPER_CLOSE_MANY);
    if (mounter_request(&request, HELPER_BACKING_CLOSE, id, "", "", err) < 0)
        return -1;
    memcpy(request.record, backings, count * sizeof(backings[0]));
    request.record_len = (uint32_t)(count * sizeof(backings[0]));
    return call(mounter, &request, -1, &reply, NULL, err);
}

int
mounter_backing_next(struct mounter *mounter, int64_t id, struct mounter_backing *backing,
                     struct err *err)
{
    struct helper_request request;
    struct helper_reply reply;
    if (mounter_request(&request, HELPER_BACKING_NEXT, id, "", "", err) < 0)
        return -1;
    request.backing = backing->id;
    if (call(mounter, &request, -1, &reply, NULL, err) < 0)
        return -1;
    *backing = (struct mounter_backing){ reply.node, reply.content, reply.backing };
    return 0;
}

void
mounter_users(struct mounter *mounter, int64_t id, char *out, size_t size)
{
    struct err err = ERR_INIT;
    struct helper_request request;
    struct helper_reply reply;
    out[0] = '\0';
    if (mounter_request(&request, HELPER_USERS, id, "", "", &err) < 0 ||
        call(mounter, &request, -1, &reply, NULL, &err) < 0)
        return;
    size_t len = 0;
    for (uint32_t i = 0; i < reply.pid_count && i < HELPER_PIDS && len < size; i++) {
        int put = snprintf(out + len, size - len, i > 0 ? ", %d" : "%d", (int)reply.pid[i]);
        len += put > 0 ? (size_t)put : 0;
    }
}
