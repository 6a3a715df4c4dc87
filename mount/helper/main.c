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
    if (connection->kept >= 0)
        (void)close(connection->kept);
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
do_mount(const struct helper_request *request, int given, struct helper_reply *reply, int answer[2],
         const char **what)
{
    *what = "mount";
    if (request->id <= 0 || find(request->id) || strncmp(request->source, "holdfast:", 9) != 0)
        return EINVAL;
    struct connection *made = calloc(1, sizeof(*made));
    if (!made)
        return ENOMEM;
    made->id = request->id;
    made->fuse = made->kept = -1;
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
    answer[0] = made->fuse;
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
do_record(struct connection *connection, const struct helper_request *request, int *given)
{
    if (request->record_len > HELPER_RECORD)
        return EINVAL;
    memcpy(connection->record, request->record, request->record_len);
    connection->record_len = request->record_len;
    if (*given >= 0) {
        if (connection->kept >= 0)
            (void)close(connection->kept);
        connection->kept = *given;
        *given = -1;
    }
    helper_connection_read_ahead(connection); /* INIT was answered: nothing lowers it any more */
    return 0;
}

static int
do_adopt(const struct connection *connection, struct helper_reply *reply, int answer[2])
{
    if (connection->record_len == 0 || connection->kept < 0 || connection->fuse < 0)
        return ENODATA;
    reply->dev_minor = connection->dev_minor;
    reply->flags = helper_connection_gone(connection) ? HELPER_IS_GONE : 0;
    reply->record_len = connection->record_len;
    memcpy(reply->record, connection->record, connection->record_len);
    answer[0] = connection->fuse;
    answer[1] = connection->kept;
    return 0;
}

static int
do_clear(const struct helper_request *request, const char **what)
{
    struct target target;
    helper_target_init(&target);
    int error = helper_target_open(&target, request->path, -1, what);
    if (error == 0)
        error = helper_target_clear_dead(
            &target, request->path, request->flags & HELPER_KEEP_GUARD ? NULL : permitted_parent,
            what);
    helper_target_release(&target);
    return error;
}

static int
for_connection(const struct helper_request *request, int *given, struct helper_reply *reply,
               int answer[2])
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
        return do_record(connection, request, given);
    case HELPER_ADOPT:
        return do_adopt(connection, reply, answer);
    case HELPER_USERS:
        reply->pid_count = helper_users(connection->dev_minor, reply->pid);
        return 0;
    case HELPER_BACKING_OPEN:
        return helper_backing_open(connection, request, *given, reply);
    case HELPER_BACKING_CLOSE:
        return helper_backing_close(connection, request);
    case HELPER_BACKING_NEXT:
        return helper_backing_next(connection, request, reply);
    default:
        return ENOSYS;
    }
}

int
helper_dispatch(const struct helper_request *request, int *given, struct helper_reply *reply,
                int answer[2], const char **what)
{
    if (request->version != HELPER_VERSION ||
        memchr(request->path, '\0', sizeof(request->path)) == NULL ||
        memchr(request->source, '\0', sizeof(request->source)) == NULL)
        return EPROTO;
    switch (request->op) {
    case HELPER_HELLO:
        return 0;
    case HELPER_MOUNT:
        return do_mount(request, *given, reply, answer, what);
    case HELPER_NEXT:
        return do_next(request, reply);
    case HELPER_CLEAR:
        return do_clear(request, what);
    default:
        return for_connection(request, given, reply, answer);
    }
}

bool
helper_has_connections(void)
{
    return connections != NULL;
}

/* Nobody serves these mounts any more: the names go, so that the guard beneath is seen (INV-11), then the connections end, so
 * that nobody waits for ever. */
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
    if (argc != 4 || argv[1][0] != '/' || fstat(HELPER_FD, &st) < 0 || !S_ISSOCK(st.st_mode)) {
        (void)fprintf(stderr, "holdfast-mounter is started by holdfast serve\n");
        return 2;
    }
    permitted_parent = argv[1];
    unsigned long wait_s = strtoul(argv[2], NULL, 10);
    unsigned long owner = strtoul(argv[3], NULL, 10);
    set_up();
    helper_connection_control();
    int error = helper_confine(&what);
    if (error != 0) {
        (void)fprintf(stderr, "holdfast-mounter: %s: %s\n", what, strerrordesc_np(error));
        return 1;
    }
    helper_talk((uid_t)owner, wait_s > 3600 ? 3600 : (unsigned)wait_s);
    release_all();
    return 0;
}
