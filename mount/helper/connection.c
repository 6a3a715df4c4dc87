#include <errno.h>
#include <fcntl.h>
#include <linux/stat.h>
#include <poll.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mount/helper/helper_impl.h"

static int control = -1; /* the root of fusectl, mounted nowhere */

void
helper_connection_control(void)
{
    int fs = fsopen("fusectl", FSOPEN_CLOEXEC);
    if (fs < 0)
        return;
    if (fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0)
        control = fsmount(fs, FSMOUNT_CLOEXEC, 0);
    (void)close(fs);
}

static int
set_string(int fs, const char *key, const char *value)
{
    return fsconfig(fs, FSCONFIG_SET_STRING, key, value, 0) < 0 ? errno : 0;
}

static int
set_flag(int fs, const char *key)
{
    return fsconfig(fs, FSCONFIG_SET_FLAG, key, NULL, 0) < 0 ? errno : 0;
}

static int
configure(int fs, int fuse, const struct helper_request *request)
{
    char number[16];
    (void)snprintf(number, sizeof(number), "%d", fuse);
    const char *const strings[][2] = {
        { "source", request->source }, { "subtype", "holdfast" }, { "fd", number },
        { "rootmode", "40000" },       { "user_id", "0" },        { "group_id", "0" },
    };
    for (size_t i = 0; i < sizeof(strings) / sizeof(strings[0]); i++) {
        int error = set_string(fs, strings[i][0], strings[i][1]);
        if (error != 0)
            return error;
    }
    int error = set_flag(fs, "allow_other");
    if (error == 0)
        error = set_flag(fs, "default_permissions");
    /* INV-14: the superblock's flag holds also against the root of a sandbox's user namespace. */
    if (error == 0 && request->flags & HELPER_READ_ONLY)
        error = set_flag(fs, "ro");
    return error;
}

/* Answers the detached mount's descriptor, or -1 with errno in *error. */
static int
make_mount(int fuse, const struct helper_request *request, int *error)
{
    unsigned attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
    if (request->flags & HELPER_READ_ONLY)
        attributes |= MOUNT_ATTR_RDONLY;
    int fs = fsopen("fuse", FSOPEN_CLOEXEC);
    if (fs < 0) {
        *error = errno;
        return -1;
    }
    int made = -1;
    *error = configure(fs, fuse, request);
    if (*error == 0 && fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        *error = errno;
    if (*error == 0) {
        made = fsmount(fs, FSMOUNT_CLOEXEC, attributes);
        *error = made < 0 ? errno : 0;
    }
    (void)close(fs);
    return made;
}

int
helper_connection_mount(struct connection *connection, const struct helper_request *request,
                        const char **what)
{
    struct statx here;
    int error;
    *what = "open /dev/fuse";
    connection->fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (connection->fuse < 0)
        return errno;
    /* The guard first: lists of mounts then show it before what lies on it. */
    helper_target_guard(&connection->target);
    *what = "make the file system";
    int made = make_mount(connection->fuse, request, &error);
    if (made < 0)
        return error;
    *what = "move the mount into place";
    /* Nobody serves yet: everything that asks the server would wait for ever. */
    if (statx(made, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_INO, &here) < 0 ||
        move_mount(made, "", connection->target.dir, "",
                   MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
        error = errno;
    (void)close(made);
    if (error != 0)
        return error;
    connection->dev_minor = here.stx_dev_minor;
    connection->mounted = true;
    return 0;
}

bool
helper_connection_gone(const struct connection *connection)
{
    /* The kernel raises POLLERR on /dev/fuse once the connection has ended. */
    struct pollfd pfd = { .fd = connection->fuse, .events = POLLIN };
    return connection->fuse < 0 || (poll(&pfd, 1, 0) > 0 && (pfd.revents & POLLERR) != 0);
}

int
helper_connection_abort(const struct connection *connection)
{
    char name[32];
    (void)snprintf(name, sizeof(name), "%u/abort", connection->dev_minor);
    int fd = openat(control, name, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : errno; /* ended already */
    int error = write(fd, "1", 1) < 0 ? errno : 0;
    (void)close(fd);
    return error;
}

/* INIT can only lower what the kernel begins with. Twice this is what one READ asks for at most, and fits into a pipe
 * (session_files.c). */
void
helper_connection_read_ahead(const struct connection *connection)
{
    static const char kib[] = "480";
    char name[64];
    (void)snprintf(name, sizeof(name), "/sys/class/bdi/0:%u/read_ahead_kb", connection->dev_minor);
    int fd = open(name, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    (void)!write(fd, kib, sizeof(kib) - 1);
    (void)close(fd);
}
