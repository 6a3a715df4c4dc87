#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "mount/helper/helper_impl.h"

/*
 * Who is served: one gateway at a time. When it dies, its connections stay for the next one, which is served once the dead one's
 * process is gone for certain: nobody else may work on its requests then (docs/mechanisms.md section 3).
 */

#define WAITING 4

struct peer {
    int socket; /* -1: none */
    int pid_fd; /* -1: not known; readable once the process is gone */
};

static struct peer now = { -1, -1 }; /* who is served, or was served last */
static struct peer waiting[WAITING] = { { -1, -1 }, { -1, -1 }, { -1, -1 }, { -1, -1 } };
static bool listening;

union fd_space {
    char bytes[CMSG_SPACE(2 * sizeof(int))];
    struct cmsghdr align;
};

static void
close_fd(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
    *fd = -1;
}

/* The first descriptor that came along; others are closed. */
static int
given_fd(struct msghdr *message)
{
    int fds[2] = { -1, -1 };
    const struct cmsghdr *part = CMSG_FIRSTHDR(message);
    if (!part || part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
        return -1;
    size_t len = part->cmsg_len - CMSG_LEN(0);
    memcpy(fds, CMSG_DATA(part), len < sizeof(fds) ? len : sizeof(fds));
    if (fds[1] >= 0)
        (void)close(fds[1]);
    return fds[0];
}

/* Answers 1 with a request, 0 at the end of the talk, -1 for a message to be passed over. */
static int
receive(int socket, struct helper_request *request, int *given)
{
    union fd_space space;
    struct iovec part = { .iov_base = request, .iov_len = sizeof(*request) };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
    message.msg_control = space.bytes;
    message.msg_controllen = sizeof(space.bytes);
    ssize_t got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    if (got < 0 && errno == EINTR)
        return -1;
    if (got <= 0)
        return 0;
    *given = given_fd(&message);
    if (got == (ssize_t)sizeof(*request) && !(message.msg_flags & MSG_TRUNC))
        return 1;
    close_fd(given);
    return 0; /* not our gateway's build */
}

static void
send_reply(int socket, const struct helper_reply *reply, const int fds[2])
{
    union fd_space space = { { 0 } };
    struct iovec part = { .iov_len = sizeof(*reply) };
    struct helper_reply copy = *reply;
    size_t count = (fds[0] >= 0) + (size_t)(fds[0] >= 0 && fds[1] >= 0);
    part.iov_base = &copy;
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
    if (count > 0) {
        message.msg_control = space.bytes;
        message.msg_controllen = CMSG_SPACE(count * sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(header), fds, count * sizeof(int));
    }
    /* A gateway that died meanwhile is seen by the next receive(). */
    (void)!sendmsg(socket, &message, MSG_NOSIGNAL);
}

/* ---- who may ask, and whose turn it is ---- */

static bool
is_readable(int fd)
{
    struct pollfd pfd = { .fd = fd, .events = POLLIN };
    return poll(&pfd, 1, 0) > 0;
}

/* The one that is served, or a dead one whose threads have not all ended. */
static bool
is_taken(void)
{
    return now.socket >= 0 || (now.pid_fd >= 0 && !is_readable(now.pid_fd));
}

static bool
identify(struct peer *peer, uid_t owner, bool check)
{
    struct ucred who;
    socklen_t len = sizeof(who);
    if (getsockopt(peer->socket, SOL_SOCKET, SO_PEERCRED, &who, &len) < 0)
        return !check;
    if (check && who.uid != 0 && who.uid != owner)
        return false;
    peer->pid_fd = (int)syscall(SYS_pidfd_open, who.pid, 0);
    return true;
}

static void
drop_peer(struct peer *peer)
{
    close_fd(&peer->socket);
    close_fd(&peer->pid_fd);
}

static void
accept_peer(uid_t owner)
{
    struct peer peer = { .pid_fd = -1 };
    peer.socket = accept4(HELPER_LISTEN_FD, NULL, NULL, SOCK_CLOEXEC);
    for (size_t i = 0; peer.socket >= 0 && i < WAITING; i++) {
        if (waiting[i].socket >= 0)
            continue;
        if (!identify(&peer, owner, true))
            break;
        waiting[i] = peer;
        return;
    }
    drop_peer(&peer);
}

/* Only HELLO is answered before its turn has come. */
static void
serve_waiting(struct peer *peer)
{
    static struct helper_request request;
    static struct helper_reply reply;
    int given = -1;
    int got = receive(peer->socket, &request, &given);
    close_fd(&given);
    if (got == 0)
        drop_peer(peer);
    if (got <= 0)
        return;
    memset(&reply, 0, sizeof(reply));
    reply.version = HELPER_VERSION;
    reply.op = request.op;
    bool hello = request.op == HELPER_HELLO && request.version == HELPER_VERSION;
    bool taken = is_taken();
    if (!hello)
        reply.error = request.version == HELPER_VERSION ? EBUSY : EPROTO;
    else if (taken)
        reply.flags = HELPER_IS_TAKEN;
    send_reply(peer->socket, &reply, (const int[2]){ -1, -1 });
    if (!hello || taken)
        return;
    drop_peer(&now);
    now = *peer;
    *peer = (struct peer){ -1, -1 };
}

/* False: the gateway has ended in order. */
static bool
serve_now(void)
{
    static struct helper_request request;
    static struct helper_reply reply;
    int given = -1;
    int answer[2] = { -1, -1 };
    const char *what = "";
    int got = receive(now.socket, &request, &given);
    if (got == 0)
        close_fd(&now.socket);
    if (got <= 0)
        return true;
    if (request.op == HELPER_END && request.version == HELPER_VERSION)
        return false;
    memset(&reply, 0, sizeof(reply));
    reply.version = HELPER_VERSION;
    reply.op = request.op;
    reply.id = request.id;
    reply.error = helper_dispatch(&request, &given, &reply, answer, &what);
    (void)snprintf(reply.what, sizeof(reply.what), "%s", reply.error != 0 ? what : "");
    send_reply(now.socket, &reply, answer);
    close_fd(&given);
    return true;
}

static int64_t
now_ms(void)
{
    struct timespec time;
    (void)clock_gettime(CLOCK_BOOTTIME, &time);
    return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

/* False when there is nothing to wait for, or it took too long: programs wait, and must not for ever. */
static bool
may_wait(int64_t *until, unsigned wait_s)
{
    if (now.socket >= 0 || is_taken()) {
        *until = 0;
        return true;
    }
    if (!listening || !helper_has_connections())
        return false;
    if (*until == 0)
        *until = now_ms() + (int64_t)wait_s * 1000;
    return now_ms() < *until;
}

void
helper_talk(uid_t owner, unsigned wait_s)
{
    int64_t until = 0;
    now.socket = HELPER_FD;
    (void)identify(&now, owner, false);
    listening = wait_s > 0 && fcntl(HELPER_LISTEN_FD, F_GETFD) >= 0;
    while (may_wait(&until, wait_s)) {
        struct pollfd fds[WAITING + 3] = { { .fd = now.socket, .events = POLLIN },
                                           { .fd = listening ? HELPER_LISTEN_FD : -1,
                                             .events = POLLIN } };
        for (size_t i = 0; i < WAITING; i++)
            fds[i + 2] = (struct pollfd){ .fd = waiting[i].socket, .events = POLLIN };
        /* A dead gateway's process: only while it is still ending. */
        fds[WAITING + 2].fd = now.socket < 0 && is_taken() ? now.pid_fd : -1;
        fds[WAITING + 2].events = POLLIN;
        int limit = until == 0 ? -1 : (int)(until - now_ms());
        if (poll(fds, WAITING + 3, until != 0 && limit < 0 ? 0 : limit) < 0 && errno != EINTR)
            return;
        if (fds[0].revents != 0 && !serve_now())
            return;
        for (size_t i = 0; i < WAITING; i++) {
            if (fds[i + 2].revents != 0 && waiting[i].socket >= 0)
                serve_waiting(&waiting[i]);
        }
        if (fds[1].revents != 0)
            accept_peer(owner);
    }
}
