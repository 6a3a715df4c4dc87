#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/sys.h"
#include "s3/file_impl.h"

#define DIR_FLAGS (O_RDONLY | O_DIRECTORY | O_NOFOLLOW)
#define LOCK_SLOTS 64
#define LOCK_WAIT_NS (30 * NS_PER_S)

/* ---- errors ---- */

static enum err_code
code_of(int sys_errno)
{
    switch (sys_errno) {
    case EACCES:
    case EPERM:
    case EROFS:
        return ERR_STORE_DENIED;
    case ENOSPC:
        return ERR_NO_SPACE;
    case EDQUOT:
        return ERR_QUOTA;
    case ENOMEM:
        return ERR_NOMEM;
    case EMFILE:
    case ENFILE:
        return ERR_FILES;
    default:
        return ERR_STORE_AWAY;
    }
}

int
file_fail(struct err *err, int sys_errno, const char *fmt, ...)
{
    char text[LIMIT_ERR_MSG];
    const char *why = strerrordesc_np(sys_errno);
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    err_set(err, code_of(sys_errno), "%s: %s", text, why ? why : "unknown error");
    err->sys = sys_errno;
    return -1;
}

int
file_fail_again(struct err *err, const char *what)
{
    if (err->sys != 0)
        err->code = code_of(err->sys);
    return err_wrap(err, "%s", what);
}

int
file_check_time(const struct file_store *fs, int64_t deadline_ns, struct err *err)
{
    if (deadline_ns != 0 && clock_mono_ns() >= deadline_ns)
        return err_set(err, ERR_STORE_TIMEOUT, "no time left in store '%s'", fs->dir);
    return 0;
}

/* ---- walking ---- */

/* Takes the next name out of a '/'-joined path. */
static bool
next_name(const char **path, char name[LIMIT_NAME + 1])
{
    size_t len = strcspn(*path, "/");

    if (len == 0)
        return false;
    memcpy(name, *path, len);
    name[len] = '\0';
    *path += len;
    if (**path == '/')
        (*path)++;
    return true;
}

int
file_tree_walk(int from, const char *path)
{
    char name[LIMIT_NAME + 1];
    int dir = openat(from, ".", DIR_FLAGS | O_CLOEXEC);

    while (dir >= 0 && next_name(&path, name)) {
        int next = openat(dir, name, DIR_FLAGS | O_CLOEXEC);
        int saved = errno;
        close(dir);
        errno = saved;
        dir = next;
    }
    return dir;
}

static bool
is_absent(int sys_errno)
{
    return sys_errno == ENOENT || sys_errno == ENOTDIR || sys_errno == ELOOP || sys_errno == ENXIO;
}

int
file_tree_check_root(const struct file_store *fs, struct err *err)
{
    struct stat st;

    if (stat(fs->dir, &st) < 0)
        return err_set(err, ERR_STORE_AWAY, "the store's directory '%s' has vanished: %s", fs->dir,
                       strerrordesc_np(errno));
    if (st.st_dev != fs->dev || st.st_ino != fs->ino)
        return err_set(err, ERR_STORE_AWAY,
                       "the store's directory '%s' was replaced by another one", fs->dir);
    return 0;
}

/* ---- finding ---- */

void
file_found_release(struct file_found *found)
{
    scope_close_fd(&found->dir);
    scope_close_fd(&found->fd);
}

/* Opens `name` in found->dir when it is a plain file. 0 found, 1 no such object, -1 error. */
static int
open_object(const struct file_store *fs, struct file_found *found, const char *name, bool odd,
            struct err *err)
{
    int fd = openat(found->dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

    if (fd < 0)
        return is_absent(errno)
                   ? 1
                   : file_fail(err, errno, "cannot open '%.200s' in '%s'", name, fs->dir);
    if (fstat(fd, &found->st) < 0 || !S_ISREG(found->st.st_mode)) {
        close(fd);
        return 1;
    }
    found->fd = fd;
    found->odd = odd;
    (void)snprintf(found->name, sizeof(found->name), "%s", name);
    return 0;
}

static int
open_odd(const struct file_store *fs, struct file_found *found, const char *odd, struct err *err)
{
    const char *slash = strrchr(odd, '/');
    char path[FILE_LAST_MAX];
    int dir;

    if (!slash)
        return open_object(fs, found, odd, true, err);
    (void)snprintf(path, sizeof(path), "%.*s", (int)(slash - odd), odd);
    dir = file_tree_walk(found->dir, path);
    if (dir < 0)
        return is_absent(errno) ? 1 : file_fail(err, errno, "cannot look into '%s'", fs->dir);
    close(found->dir);
    found->dir = dir;
    return open_object(fs, found, slash + 1, true, err);
}

int
file_tree_find(struct file_store *fs, const struct file_path *path, struct file_found *found,
               struct err *err)
{
    int rc = 1;

    found->dir = file_tree_walk(fs->root, path->dir);
    if (found->dir < 0) {
        if (!is_absent(errno))
            return file_fail(err, errno, "cannot look into '%s'", fs->dir);
    } else {
        if (path->plain[0])
            rc = open_object(fs, found, path->plain, false, err);
        if (rc == 1)
            rc = open_odd(fs, found, path->odd, err);
    }
    return rc == 1 && file_tree_check_root(fs, err) < 0 ? -1 : rc;
}

/* ---- directories for writers ---- */

static bool
known_durable(struct file_store *fs, ino_t ino)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&fs->mutex);
    (void)held;
    return fs->durable[ino % (sizeof(fs->durable) / sizeof(fs->durable[0]))] == ino;
}

static void
note_durable(struct file_store *fs, ino_t ino)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&fs->mutex);
    (void)held;
    fs->durable[ino % (sizeof(fs->durable) / sizeof(fs->durable[0]))] = ino;
}

/* Whoever made the directory may have died before its name was on disk. */
static int
ensure_durable(struct file_store *fs, int parent, int child, struct err *err)
{
    struct stat st;

    if (fstat(child, &st) == 0) {
        if (known_durable(fs, st.st_ino))
            return 0;
        if (sys->fsync(parent) == 0) {
            note_durable(fs, st.st_ino);
            return 0;
        }
    }
    return file_fail(err, errno, "cannot keep a directory in '%s'", fs->dir);
}

/* The object at a place where a directory must be goes to its odd place. */
static int
move_aside(struct file_store *fs, int dir, const char *name, struct err *err)
{
    char odd[FILE_LAST_MAX];
    struct stat st;
    scope_fd int odd_dir = -1;
    char *slash;
    const char *last = odd;

    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return file_fail(err, errno, "cannot look at '%.200s' in '%s'", name, fs->dir);
    if (!S_ISREG(st.st_mode))
        return err_set(err, ERR_STORE_AWAY,
                       "'%.200s' in '%s' is neither a file nor a directory and is in the way", name,
                       fs->dir);
    file_name_escape(name, strlen(name), 'o', odd);
    slash = strrchr(odd, '/');
    if (slash) { /* at most one level: a name has no more than 255 bytes */
        *slash = '\0';
        last = slash + 1;
        if (sys->mkdirat(dir, odd, 0755) < 0 && errno != EEXIST)
            return file_fail(err, errno, "cannot make a directory in '%s'", fs->dir);
    }
    odd_dir =
        slash ? openat(dir, odd, DIR_FLAGS | O_CLOEXEC) : openat(dir, ".", DIR_FLAGS | O_CLOEXEC);
    if (odd_dir < 0 || sys->renameat2(dir, name, odd_dir, last, 0) < 0 || sys->fsync(odd_dir) < 0 ||
        sys->fsync(dir) < 0)
        return file_fail(err, errno, "cannot move '%.200s' aside in '%s'", name, fs->dir);
    return 0;
}

/* Opens one directory; with `make` whatever is needed for it to be there. */
static int
enter(struct file_store *fs, int dir, const char *name, bool make, int *out, struct err *err)
{
    int next = openat(dir, name, DIR_FLAGS | O_CLOEXEC);

    if (next < 0 && !is_absent(errno))
        return file_fail(err, errno, "cannot open directory '%.200s' in '%s'", name, fs->dir);
    if (next < 0 && !make)
        return 1;
    if (next < 0) {
        if (errno != ENOENT && move_aside(fs, dir, name, err) < 0)
            return -1;
        if (sys->mkdirat(dir, name, 0755) < 0 && errno != EEXIST)
            return file_fail(err, errno, "cannot make directory '%.200s' in '%s'", name, fs->dir);
        if (sys->fsync(dir) < 0)
            return file_fail(err, errno, "cannot keep directory '%.200s' in '%s'", name, fs->dir);
        next = openat(dir, name, DIR_FLAGS | O_CLOEXEC);
        if (next < 0)
            return file_fail(err, errno, "cannot open directory '%.200s' in '%s'", name, fs->dir);
    }
    *out = next;
    return 0;
}

int
file_tree_walk_durable(struct file_store *fs, int from, const char *path, bool make, int *out,
                       struct err *err)
{
    scope_fd int dir = openat(from, ".", DIR_FLAGS | O_CLOEXEC);
    char name[LIMIT_NAME + 1];

    if (dir < 0)
        return file_fail(err, errno, "cannot open '%s'", fs->dir);
    while (next_name(&path, name)) {
        scope_fd int next = -1;
        int rc = enter(fs, dir, name, make, &next, err);
        if (rc != 0)
            return rc;
        if (ensure_durable(fs, dir, next, err) < 0)
            return -1;
        close(dir);
        dir = steal_fd(&next);
    }
    *out = steal_fd(&dir);
    return 0;
}

void
file_tree_prune(int from, const char *path)
{
    char left[FILE_PATH_MAX];

    (void)snprintf(left, sizeof(left), "%s", path);
    while (left[0]) {
        char *slash = strrchr(left, '/');
        const char *name = slash ? slash + 1 : left;
        scope_fd int parent = -1;
        if (slash)
            *slash = '\0';
        parent = file_tree_walk(from, slash ? left : "");
        if (parent < 0 || sys->unlinkat(parent, name, AT_REMOVEDIR) < 0 || !slash)
            return;
    }
}

/* ---- locks ---- */

/* FNV-1a (draft-eastlake-fnv-17) */
static unsigned
slot_of(const char *key)
{
    uint32_t hash = 2166136261u;

    for (; *key; key++)
        hash = (hash ^ (unsigned char)*key) * 16777619u;
    return hash % LOCK_SLOTS;
}

/* Polls, so that a stopped process that holds the lock cannot hold us beyond the deadline. */
static int
take_lock(const struct file_store *fs, const char *name, int how, int64_t deadline_ns, int *out,
          struct err *err)
{
    scope_fd int fd = openat(fs->lock, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    int64_t wait_ns = 50000;

    if (fd < 0)
        return file_fail(err, errno, "cannot open lock '%s' of store '%s'", name, fs->dir);
    while (flock(fd, how | LOCK_NB) < 0) {
        struct timespec wait = { .tv_nsec = wait_ns };
        if (errno != EWOULDBLOCK && errno != EINTR)
            return file_fail(err, errno, "cannot lock store '%s'", fs->dir);
        if (clock_mono_ns() >= deadline_ns)
            return err_set(err, ERR_STORE_TIMEOUT, "another process holds lock '%s' of store '%s'",
                           name, fs->dir);
        nanosleep(&wait, NULL);
        if (wait_ns < 4 * NS_PER_MS)
            wait_ns *= 2;
    }
    *out = steal_fd(&fd);
    return 0;
}

static int
check_writable(const struct file_store *fs, struct err *err)
{
    if (fs->lock < 0)
        return err_set(err, ERR_STORE_DENIED, "the store's directory '%s' cannot be written",
                       fs->dir);
    return file_tree_check_root(fs, err);
}

static int64_t
deadline_or_default(int64_t deadline_ns)
{
    return deadline_ns ? deadline_ns : clock_mono_ns() + LOCK_WAIT_NS;
}

int
file_lock_shared(struct file_store *fs, const char *key, int64_t deadline_ns,
                 struct file_locks *locks, struct err *err)
{
    char name[8];

    deadline_ns = deadline_or_default(deadline_ns);
    if (check_writable(fs, err) < 0 ||
        take_lock(fs, "tree", LOCK_SH, deadline_ns, &locks->tree, err) < 0)
        return -1;
    if (!key)
        return 0;
    (void)snprintf(name, sizeof(name), "%02x", slot_of(key));
    return take_lock(fs, name, LOCK_EX, deadline_ns, &locks->key, err);
}

int
file_lock_exclusive(struct file_store *fs, int64_t deadline_ns, struct file_locks *locks,
                    struct err *err)
{
    if (check_writable(fs, err) < 0)
        return -1;
    return take_lock(fs, "tree", LOCK_EX, deadline_or_default(deadline_ns), &locks->tree, err);
}

void
file_locks_release(struct file_locks *locks)
{
    scope_close_fd(&locks->key);
    scope_close_fd(&locks->tree);
}
