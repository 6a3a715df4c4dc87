#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/stat.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "mount/helper/helper_impl.h"

/* What /proc/self/mountinfo says of one mount. */
struct mount_line {
    bool fuse;
    bool ours;
    bool read_only;
};

void
helper_target_init(struct target *target)
{
    *target = (struct target){ .parent = -1, .dir = -1 };
}

static void
close_fd(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
    *fd = -1;
}

void
helper_target_release(struct target *target)
{
    close_fd(&target->dir);
    close_fd(&target->parent);
}

/* Never asks a FUSE server: a dead or hanging one must not stop the helper. */
static int
look(int dir, const char *name, struct statx *out)
{
    int flags = AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT | AT_SYMLINK_NOFOLLOW;
    if (*name == '\0')
        flags |= AT_EMPTY_PATH;
    return statx(dir, name, flags, STATX_TYPE | STATX_MODE | STATX_UID | STATX_INO | STATX_MNT_ID,
                 out) < 0
               ? errno
               : 0;
}

static int
open_top(struct target *target)
{
    close_fd(&target->dir);
    target->dir = openat(target->parent, target->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    return target->dir < 0 ? errno : 0;
}

static int
split(struct target *target, const char *path, const char **what)
{
    char dir[HELPER_PATH];
    *what = "the mountpoint's path";
    const char *slash = strrchr(path, '/');
    if (path[0] != '/' || !slash)
        return EINVAL;
    size_t name_len = strlen(slash + 1);
    if (name_len == 0 || name_len >= sizeof(target->name) || strcmp(slash + 1, ".") == 0 ||
        strcmp(slash + 1, "..") == 0)
        return EINVAL;
    memcpy(target->name, slash + 1, name_len + 1);
    size_t dir_len = slash == path ? 1 : (size_t)(slash - path);
    memcpy(dir, path, dir_len);
    dir[dir_len] = '\0';
    *what = "open the directory of the mountpoint";
    target->parent = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return target->parent < 0 ? errno : 0;
}

int
helper_target_open(struct target *target, const char *path, int wanted, const char **what)
{
    struct statx here;
    struct statx given;
    int error = split(target, path, what);
    if (error != 0)
        return error;
    *what = "open the mountpoint";
    error = open_top(target);
    if (error == 0)
        error = look(target->dir, "", &here);
    if (error != 0 || wanted < 0)
        return error;
    /* The gateway's rights chose the directory, not ours: the path may only repeat the choice. */
    error = look(wanted, "", &given);
    if (error != 0)
        return error;
    if (here.stx_ino != given.stx_ino || here.stx_dev_major != given.stx_dev_major ||
        here.stx_dev_minor != given.stx_dev_minor)
        return ESTALE;
    return 0;
}

static bool
is_number(const char *name)
{
    size_t len = strlen(name);
    return len > 0 && len <= 9 && strspn(name, "0123456789") == len && name[0] != '0';
}

static bool
is_number_below(const struct target *target, const char *path, const char *parent)
{
    size_t len = strlen(parent);
    return len > 0 && strncmp(path, parent, len) == 0 && path[len] == '/' &&
           strcmp(path + len + 1, target->name) == 0 && is_number(target->name);
}

static bool
is_made_by_us(const struct statx *here)
{
    return here->stx_uid == 0 && (here->stx_mode & 07777) == 0;
}

int
helper_target_create(struct target *target, const char *path, const char *parent, const char **what)
{
    struct statx here;
    int error = split(target, path, what);
    if (error != 0)
        return error;
    *what = "make the mountpoint";
    if (!is_number_below(target, path, parent))
        return EPERM;
    bool fresh = mkdirat(target->parent, target->name, 0) == 0;
    if (!fresh && errno != EEXIST)
        return errno;
    error = open_top(target);
    if (error == 0)
        error = look(target->dir, "", &here);
    if (error != 0)
        return error;
    /* One that an earlier life of ours has left is ours too. */
    target->created = fresh || is_made_by_us(&here);
    return target->created ? 0 : EEXIST;
}

/* Answers field `n` (from 0) of a line with single spaces; *len its length. */
static const char *
field(const char *line, unsigned n, size_t *len)
{
    while (n > 0 && line) {
        line = strchr(line, ' ');
        line = line ? line + 1 : NULL;
        n--;
    }
    *len = line ? strcspn(line, " \n") : 0;
    return line;
}

/* proc(5): 36 35 98:0 /root /mountpoint rw,noatime shared:1 - ext3 source rw */
static void
read_line(const char *line, struct mount_line *out)
{
    size_t len;
    const char *options = field(line, 5, &len);
    const char *tail = strstr(line, " - ");
    *out = (struct mount_line){ .read_only = options && strncmp(options, "ro", 2) == 0 &&
                                             (options[2] == ',' || options[2] == ' ') };
    if (!tail)
        return;
    const char *type = tail + 3;
    out->fuse = strncmp(type, "fuse", 4) == 0;
    const char *source = field(type, 1, &len);
    out->ours = out->fuse && source && strncmp(source, "holdfast:", 9) == 0;
}

static int
find_line(uint64_t mount_id, struct mount_line *out)
{
    char *line = NULL;
    size_t size = 0;
    int error = ENOENT;
    *out = (struct mount_line){ .fuse = false };
    FILE *file = fopen("/proc/self/mountinfo", "re");
    if (!file)
        return errno;
    while (error == ENOENT && getline(&line, &size, file) > 0) {
        if (strtoull(line, NULL, 10) != mount_id)
            continue;
        read_line(line, out);
        error = 0;
    }
    free(line);
    (void)fclose(file);
    return error;
}

/* 0 and the line when the target is the root of a mount, ENOENT when it is a plain directory. */
static int
top_mount(const struct target *target, struct mount_line *out)
{
    struct statx here;
    int error = look(target->dir, "", &here);
    if (error != 0)
        return error;
    if (!(here.stx_attributes & STATX_ATTR_MOUNT_ROOT))
        return ENOENT;
    return find_line(here.stx_mnt_id, out);
}

static int
check_empty(int dir)
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    DIR *stream = fdopendir(fd);
    if (!stream) {
        int error = errno;
        (void)close(fd);
        return error;
    }
    int error = 0;
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): one thread */
    for (const struct dirent *entry; error == 0 && (entry = readdir(stream));) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            error = ENOTEMPTY;
    }
    (void)closedir(stream);
    return error;
}

int
helper_target_check(struct target *target, const char **what)
{
    struct statx here;
    struct mount_line line = { .fuse = false };
    *what = "look at the mountpoint";
    int error = look(target->dir, "", &here);
    if (error != 0)
        return error;
    if (!S_ISDIR(here.stx_mode))
        return ENOTDIR;
    error = top_mount(target, &line);
    if (error == 0 && (line.fuse || !line.read_only))
        return EBUSY;
    if (error != 0 && error != ENOENT)
        return error;
    bool guard = error == 0;
    error = check_empty(target->dir);
    if (error != 0)
        return guard ? EBUSY : error;
    target->guarded = guard;
    return 0;
}

void
helper_target_guard(struct target *target)
{
    if (target->guarded)
        return;
    int bind =
        open_tree(target->dir, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | (unsigned)OPEN_TREE_CLOEXEC);
    if (bind < 0)
        return;
    struct mount_attr attr = { .attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID |
                                           MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC };
    if (mount_setattr(bind, "", AT_EMPTY_PATH, &attr, sizeof(attr)) == 0 &&
        move_mount(bind, "", target->dir, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) ==
            0) {
        target->guarded = true;
        (void)open_top(target);
    }
    (void)close(bind);
}

/* umount2() wants a name: of one component, seen from the directory that we hold. */
int
helper_target_umount(const struct target *target, int flags)
{
    if (fchdir(target->parent) < 0)
        return errno;
    int error = umount2(target->name, flags | UMOUNT_NOFOLLOW) < 0 ? errno : 0;
    return chdir("/") < 0 && error == 0 ? errno : error;
}

uint32_t
helper_target_minor(const struct target *target)
{
    struct statx here;
    if (look(target->parent, target->name, &here) != 0 ||
        !(here.stx_attributes & STATX_ATTR_MOUNT_ROOT) || here.stx_dev_major != 0)
        return 0;
    return here.stx_dev_minor;
}

static void
clear_guard(struct target *target)
{
    struct mount_line line = { .fuse = false };
    if (open_top(target) == 0 && top_mount(target, &line) == 0 && !line.fuse && line.read_only &&
        check_empty(target->dir) == 0) {
        close_fd(&target->dir);
        (void)helper_target_umount(target, MNT_DETACH);
    }
    target->guarded = false;
}

void
helper_target_clear(struct target *target)
{
    if (target->guarded)
        clear_guard(target);
    close_fd(&target->dir);
    if (target->created)
        (void)unlinkat(target->parent, target->name, AT_REMOVEDIR);
    target->created = false;
}

int
helper_target_clear_dead(struct target *target, const char *path, const char *parent,
                         const char **what)
{
    struct mount_line line = { .fuse = false };
    struct statx here;
    *what = "clear the mountpoint";
    int error = top_mount(target, &line);
    if (error == 0 && line.fuse && !line.ours)
        return EBUSY;
    if (error == 0 && line.ours) {
        close_fd(&target->dir);
        error = helper_target_umount(target, MNT_DETACH);
        if (error != 0)
            return error;
    }
    if (!parent) /* to be mounted on again: the guard stays in between (INV-11) */
        return 0;
    clear_guard(target);
    if (is_number_below(target, path, parent) && look(target->parent, target->name, &here) == 0 &&
        is_made_by_us(&here))
        (void)unlinkat(target->parent, target->name, AT_REMOVEDIR);
    return 0;
}
