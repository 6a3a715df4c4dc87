#include "mount/mounter.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
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
    char bytes[CMSG_SPACE(2 * sizeof(int))];
    struct cmsghdr align;
};

static int send_request(int socket, struct helper_request *request, int fd);
static int receive_reply(int socket, struct helper_reply *reply, int fds[2]);

/* The descriptors of the helper, whatever numbers they have here. */
static int
place_fds(int socket, int listen)
{
    int high = fcntl(socket, F_DUPFD_CLOEXEC, 16);
    int high_listen = listen < 0 ? -1 : fcntl(listen, F_DUPFD_CLOEXEC, 16);
    if (high < 0 || dup2(high, HELPER_FD) < 0 ||
        (listen >= 0 && (high_listen < 0 || dup2(high_listen, HELPER_LISTEN_FD) < 0)))
        return -1;
    unsigned first = listen < 0 ? HELPER_LISTEN_FD : HELPER_LISTEN_FD + 1;
    return close_range(first, ~0u, 0);
}

/* Runs in the child of a fork: async-signal-safe calls only. */
static void
become_helper(const struct mounter_spawn *args, const char *parent, const char *numbers[2],
              int socket)
{
    char *const argv[] = { (char[]){ "holdfast-mounter" }, strdupa(parent), strdupa(numbers[0]),
                           strdupa(numbers[1]), NULL };
    char *const envp[] = { NULL };
    if (place_fds(socket, args->listen) < 0)
        _exit(127);
    (void)execve(args->exe_path, argv, envp);
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

static int
start_helper(const struct mounter_spawn *args, int theirs, struct err *err)
{
    const char *parent = args->default_parent ? args->default_parent : DEFAULT_PARENT;
    char wait[16];
    char owner[16];
    const char *numbers[2] = { wait, owner };
    (void)snprintf(wait, sizeof(wait), "%u", args->listen < 0 ? 0 : args->wait_s);
    (void)snprintf(owner, sizeof(owner), "%u", (unsigned)args->owner);
    if (make_parent(parent, err) < 0)
        return -1;
    pid_t pid = fork();
    if (pid < 0)
        return err_sys(err, errno, "fork");
    if (pid == 0)
        become_helper(args, parent, numbers, theirs);
    return pid;
}

int
mounter_spawn(const struct mounter_spawn *args, int *socket_out, pid_t *pid_out, struct err *err)
{
    int ends[2];
    if (geteuid() != 0)
        return err_set(err, ERR_PERM, "only root can start the mounter");
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return err_sys(err, errno, "socketpair");
    scope_fd int mine = ends[0];
    scope_fd int theirs = ends[1];
    pid_t pid = start_helper(args, theirs, err);
    if (pid < 0)
        return -1;
    scope_close_fd(&theirs);
    theirs = -1;
    /* A first answer shows that the program could be started and is of this build. */
    int probe = fcntl(mine, F_DUPFD_CLOEXEC, 0);
    struct mounter *mounter = probe < 0 ? NULL : mounter_new(probe, 0, err);
    if (!mounter) {
        scope_close_fd(&mine);
        mine = -1;
        (void)waitpid(pid, NULL, 0);
        return err_wrap(err, "start '%s'", args->exe_path);
    }
    mounter_free(mounter);
    *socket_out = steal_fd(&mine);
    *pid_out = pid;
    return 0;
}

/* Until it is our turn: the dead gateway's process may still be ending. */
static int
await_turn(int socket, int64_t until_ns, struct err *err)
{
    for (;;) {
        struct helper_request request;
        struct helper_reply reply;
        int fds[2] = { -1, -1 };
        if (mounter_request(&request, HELPER_HELLO, 0, "", "", err) < 0)
            return -1;
        if (send_request(socket, &request, -1) < 0 || receive_reply(socket, &reply, fds) < 0)
            return err_set(
                err, ERR_INTERNAL,
                "the living mounter is of another version: end the gateway in order first");
        if (!(reply.flags & HELPER_IS_TAKEN))
            return 0;
        if (clock_mono_ns() >= until_ns)
            return err_set(err, ERR_BUSY, "another gateway is served by the mounter");
        clock_sleep_ns(2 * NS_PER_MS);
    }
}

int
mounter_connect(const char *path, int64_t until_ns, int *socket_out, struct err *err)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    struct timeval patience = { .tv_sec = ANSWER_SECONDS };
    if (strlen(path) >= sizeof(address.sun_path))
        return err_set(err, ERR_NAME_TOO_LONG, "the path '%s' is too long for a socket", path);
    memcpy(address.sun_path, path, strlen(path) + 1);
    scope_fd int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return err_sys(err, errno, "socket");
    if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0)
        return err_set(err, ERR_NOT_FOUND, "no mounter listens at '%s'", path);
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    if (await_turn(fd, until_ns, err) < 0)
        return -1;
    *socket_out = steal_fd(&fd);
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
receive_reply(int socket, struct helper_reply *reply, int fds[2])
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
    fds[0] = fds[1] = -1;
    if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS)
        memcpy(fds, CMSG_DATA(header),
               header->cmsg_len == CMSG_LEN(sizeof(int)) ? sizeof(int) : 2 * sizeof(int));
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

/* `fd` goes along; what comes back is put into `fds_out` (may be NULL). */
static int
call(struct mounter *mounter, struct helper_request *request, int fd, struct helper_reply *reply,
     int fds_out[2], struct err *err)
{
    int got[2] = { -1, -1 };
    int rc = -1;
    scope_unlock pthread_mutex_t *held = scope_lock(&mounter->mutex);
    (void)held;
    if (mounter->socket < 0)
        return err_set(err, ERR_INTERNAL, "the mounter has ended: restart the gateway");
    if (send_request(mounter->socket, request, fd) < 0 ||
        receive_reply(mounter->socket, reply, got) < 0) {
        err_sys(err, errno, "the mounter does not answer");
        err->code = ERR_INTERNAL;
        give_up(mounter);
    } else if (reply->error != 0) {
        reply->what[sizeof(reply->what) - 1] = '\0';
        err_sys(err, reply->error, "%s", reply->what[0] != '\0' ? reply->what : "the mounter");
    } else {
        rc = 0;
    }
    for (size_t i = 0; i < 2; i++) {
        if (rc == 0 && fds_out)
            fds_out[i] = got[i];
        else if (got[i] >= 0)
            (void)close(got[i]);
    }
    return rc;
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
    int fds[2];
    if (call(mounter, &request, args->target, &reply, fds, err) < 0)
        return -1;
    *fuse = fds[0];
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
mounter_clear(struct mounter *mounter, const char *path, bool keep_guard, struct err *err)
{
    return simple(mounter, HELPER_CLEAR, 0, keep_guard ? HELPER_KEEP_GUARD : 0, path, err);
}

int
mounter_record(struct mounter *mounter, int64_t id, const void *record, size_t len, int kept,
               struct err *err)
{
    struct helper_request request;
    struct helper_reply reply;
    if (mounter_request(&request, HELPER_RECORD_INIT, id, "", "", err) < 0)
        return -1;
    if (len > sizeof(request.record))
        return err_set(err, ERR_TOO_LARGE, "a mount's record of %zu bytes", len);
    memcpy(request.record, record, len);
    request.record_len = (uint32_t)len;
    return call(mounter, &request, kept, &reply, NULL, err);
}

int
mounter_next(struct mounter *mounter, int64_t *id, bool *gone, struct err *err)
{
    struct helper_request request;
    struct helper_reply reply;
    if (mounter_request(&request, HELPER_NEXT, *id, "", "", err) < 0 ||
        call(mounter, &request, -1, &reply, NULL, err) < 0)
        return -1;
    *id = reply.id;
    *gone = (reply.flags & HELPER_IS_GONE) != 0;
    return 0;
}

int
mounter_adopt(struct mounter *mounter, int64_t id, struct mounter_adopted *out, struct err *err)
{
    struct helper_request request;
    struct helper_reply reply;
    int fds[2];
    if (mounter_request(&request, HELPER_ADOPT, id, "", "", err) < 0 ||
        call(mounter, &request, -1, &reply, fds, err) < 0)
        return -1;
    out->fuse = fds[0];
    out->kept = fds[1];
    out->dev_minor = reply.dev_minor;
    out->record_len = reply.record_len < sizeof(out->record) ? reply.record_len : 0;
    memcpy(out->record, reply.record, out->record_len);
    if (fds[0] >= 0 && fds[1] >= 0)
        return 0;
    for (size_t i = 0; i < 2; i++) {
        if (fds[i] >= 0)
            (void)close(fds[i]);
    }
    return err_set(err, ERR_INTERNAL, "the mounter sent no descriptor");
}

void
mounter_end(struct mounter *mounter)
{
    struct helper_request request;
    struct err ignored = ERR_INIT;
    if (!mounter || mounter_request(&request, HELPER_END, 0, "", "", &ignored) < 0)
        return;
    scope_unlock pthread_mutex_t *held = scope_lock(&mounter->mutex);
    (void)held;
    if (mounter->socket >= 0)
        (void)send_request(mounter->socket, &request, -1);
    give_up(mounter);
}

bool
mounter_lives(struct mounter *mounter)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&mounter->mutex);
    (void)held;
    struct pollfd pfd = { .fd = mounter->socket };
    return mounter->socket >= 0 && poll(&pfd, 1, 0) == 0; /* it says nothing unasked but its end */
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
