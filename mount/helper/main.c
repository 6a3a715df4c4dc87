#include <errno.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mount/helper/helper_impl.h"

static struct connection *connections;
static const char *permitted_parent = "";

static struct connection *
find(int64_t id)
{
    for (struct connection *at = connections; at; at = at->next) {
        if (at->id == id)
            return at;
    }
    return NULL;
}

static void
insert(struct connection *connection)
{
    struct connection **at = &connections;
    while (*at && (*at)->id < connection->id)
        at = &(*at)->next;
    connection->next = *at;
    *at = connection;
}

static void
drop(struct connection *connection)
{
    for (struct connection **at = &connections; *at; at = &(*at)->next) {
        if (*at == connection) {
            *at = connection->next;
            break;
        }
    }
    if (connection->fuse >= 0)
        (void)close(connection->fuse);
    helper_target_release(&connection->target);
    free(connection->backings); /* the ids end with the connection */
    free(connection);
}

/* A mount that somebody else took away, or covered with another, is not ours to unmount. */
static int
unmount(struct connection *connection, uint32_t flags)
{
    int error = 0;
    if (connection->mounted && helper_target_minor(&connection->target) == connection->dev_minor) {
        if (connection->target.dir >= 0)
            (void)close(connection->target.dir); /* would keep it busy */
        connection->target.dir = -1;
        error = helper_target_umount(&connection->target, flags & HELPER_DETACH ? MNT_DETACH : 0);
    }
    if (error != 0)
        return error;
    connection->mounted = false;
    if (!(flags & HELPER_KEEP_GUARD))
        helper_target_clear(&connection->target);
    return 0;
}

static int
do_mount(const struct helper_request *request, int given, struct helper_reply *reply, int *answer,
         const char **what)
{
    *what = "mount";
    if (request->id <= 0 || find(request->id) || strncmp(request->source, "holdfast:", 9) != 0)
        return EINVAL;
    struct connection *made = calloc(1, sizeof(*made));
    if (!made)
        return ENOMEM;
    made->id = request->id;
    made->fuse = -1;
    made->read_only = (request->flags & HELPER_READ_ONLY) != 0;
    helper_target_init(&made->target);
    int error = request->flags & HELPER_CREATE
                    ? helper_target_create(&made->target, request->path, permitted_parent, what)
                    : helper_target_open(&made->target, request->path, given, what);
    if (error == 0)
        error = helper_target_check(&made->target, what);
    if (error == 0)
        error = helper_connection_mount(made, request, what);
    if (error != 0) {
        if (made->target.created || made->target.guarded)
            helper_target_clear(&made->target);
        drop(made);
        return error;
    }
    insert(made);
    (void)close(made->target.dir);
    made->target.dir = -1;
    reply->dev_minor = made->dev_minor;
    *answer = made->fuse;
    return 0;
}

static int
do_next(const struct helper_request *request, struct helper_reply *reply)
{
    for (const struct connection *at = connections; at; at = at->next) {
        if (at->id <= request->id)
            continue;
        reply->id = at->id;
        reply->dev_minor = at->dev_minor;
        reply->flags = helper_connection_gone(at) ? HELPER_IS_GONE : 0;
        return 0;
    }
    return ENOENT;
}

static int
do_record(struct connection *connection, const struct helper_request *request)
{
    if (request->record_len > HELPER_RECORD)
        return EINVAL;
    memcpy(connection->record, request->record, request->record_len);
    connection->record_len = request->record_len;
    helper_connection_read_ahead(connection); /* INIT was answered: nothing lowers it any more */
    return 0;
}

static int
do_clear(const struct helper_request *request, const char **what)
{
    struct target target;
    helper_target_init(&target);
    int error = helper_target_open(&target, request->path, -1, what);
    if (error == 0)
        error = helper_target_clear_dead(&target, request->path, permitted_parent, what);
    helper_target_release(&target);
    return error;
}

static int
for_connection(const struct helper_request *request, int given, struct helper_reply *reply)
{
    struct connection *connection = find(request->id);
    if (!connection)
        return ENOENT;
    switch (request->op) {
    case HELPER_UMOUNT:
        return unmount(connection, request->flags);
    case HELPER_ABORT:
        return helper_connection_abort(connection);
    case HELPER_FORGET:
        drop(connection);
        return 0;
    case HELPER_RECORD_INIT:
        return do_record(connection, request);
    case HELPER_USERS:
        reply->pid_count = helper_users(connection->dev_minor, reply->pid);
        return 0;
    case HELPER_BACKING_OPEN:
        return helper_backing_open(connection, request, given, reply);
    case HELPER_BACKING_CLOSE:
        return helper_backing_close(connection, request);
    case HELPER_BACKING_NEXT:
        return helper_backing_next(connection, request, reply);
    default:
        return ENOSYS;
    }
}

static int
dispatch(const struct helper_request *request, int given, struct helper_reply *reply, int *answer,
         const char **what)
{
    if (request->version != HELPER_VERSION ||
        memchr(request->path, '\0', sizeof(request->path)) == NULL ||
        memchr(request->source, '\0', sizeof(request->source)) == NULL)
        return EPROTO;
    switch (request->op) {
    case HELPER_HELLO:
        return 0;
    case HELPER_MOUNT:
        return do_mount(request, given, reply, answer, what);
    case HELPER_NEXT:
        return do_next(request, reply);
    case HELPER_CLEAR:
        return do_clear(request, what);
    default:
        return for_connection(request, given, reply);
    }
}

union fd_space {
    char bytes[CMSG_SPACE(sizeof(int))];
    struct cmsghdr align;
};

static int
given_fd(struct msghdr *message)
{
    int fd = -1;
    const struct cmsghdr *part = CMSG_FIRSTHDR(message);
    if (part && part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_RIGHTS &&
        part->cmsg_len == CMSG_LEN(sizeof(int)))
        memcpy(&fd, CMSG_DATA(part), sizeof(fd));
    return fd;
}

/* Answers 1 with a request, 0 at the end of the talk, -1 for a message to be passed over. */
static int
receive(struct helper_request *request, int *given)
{
    union fd_space space;
    struct iovec part = { .iov_base = request, .iov_len = sizeof(*request) };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
    message.msg_control = space.bytes;
    message.msg_controllen = sizeof(space.bytes);
    ssize_t got = recvmsg(HELPER_FD, &message, MSG_CMSG_CLOEXEC);
    if (got < 0 && errno == EINTR)
        return -1;
    if (got <= 0)
        return 0;
    *given = given_fd(&message);
    if (got == (ssize_t)sizeof(*request) && !(message.msg_flags & MSG_TRUNC))
        return 1;
    if (*given >= 0)
        (void)close(*given);
    return 0; /* not our gateway's build: end */
}

static void
answer_with(const struct helper_reply *reply, int fd)
{
    union fd_space space = { { 0 } };
    struct iovec part = { .iov_len = sizeof(*reply) };
    struct helper_reply copy = *reply;
    part.iov_base = &copy;
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
    if (fd >= 0) {
        message.msg_control = space.bytes;
        message.msg_controllen = sizeof(space.bytes);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(header), &fd, sizeof(fd));
    }
    /* A gateway that died meanwhile is seen by the next receive(). */
    (void)!sendmsg(HELPER_FD, &message, MSG_NOSIGNAL);
}

/*
 * The gateway is gone. The seam of a takeover: instead of this, descriptors, INIT records and targets would be handed to the
 * next gateway. For now nobody will serve these mounts again: take the names away, so that the guard beneath is seen
 * (INV-11), then end the connections, so that nobody waits for ever.
 */
static void
release_all(void)
{
    struct connection *next;
    for (struct connection *at = connections; at; at = next) {
        next = at->next;
        (void)unmount(at, HELPER_DETACH | HELPER_KEEP_GUARD);
        (void)helper_connection_abort(at);
        drop(at);
    }
}

static void
serve(void)
{
    static struct helper_request request;
    for (;;) {
        int given = -1;
        int answer = -1;
        const char *what = "";
        int got = receive(&request, &given);
        if (got < 0)
            continue;
        if (got == 0)
            return;
        struct helper_reply reply = { .version = HELPER_VERSION, .op = request.op };
        reply.id = request.id;
        reply.error = dispatch(&request, given, &reply, &answer, &what);
        (void)snprintf(reply.what, sizeof(reply.what), "%s", reply.error != 0 ? what : "");
        answer_with(&reply, answer);
        if (given >= 0)
            (void)close(given);
    }
}

static void
set_up(void)
{
    struct rlimit files;
    /* The end is the gateway's death, not a signal to its process group. */
    (void)setsid();
    for (size_t i = 0; i < 4; i++) {
        static const int ignored[] = { SIGINT, SIGTERM, SIGHUP, SIGPIPE };
        (void)signal(ignored[i], SIG_IGN);
    }
    (void)umask(0);
    if (chdir("/") < 0)
        return;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
}

int
main(int argc, char **argv)
{
    struct stat st;
    const char *what = "";
    if (argc != 2 || argv[1][0] != '/' || fstat(HELPER_FD, &st) < 0 || !S_ISSOCK(st.st_mode)) {
        (void)fprintf(stderr, "holdfast-mounter is started by holdfast serve\n");
        return 2;
    }
    permitted_parent = argv[1];
    set_up();
    helper_connection_control();
    int error = helper_confine(&what);
    if (error != 0) {
        (void)fprintf(stderr, "holdfast-mounter: %s: %s\n", what, strerrordesc_np(error));
        return 1;
    }
    serve();
    release_all();
    return 0;
}
