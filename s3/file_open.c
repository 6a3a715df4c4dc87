/* Opening the store in a directory: what is there, what is made, and what a crash left behind. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/sys.h"
#include "s3/file_impl.h"
#include "s3/open.h"

#define DIR_FLAGS (O_RDONLY | O_DIRECTORY | O_NOFOLLOW)
#define SHARE_TRIES 200

/* Makes the directory itself, but not its parents: an unmounted disk must not look like an empty store. */
static int
open_root(struct file_store *fs, struct err *err)
{
    struct stat st;

    if (sys->mkdirat(AT_FDCWD, fs->dir, 0755) < 0 && errno != EEXIST && errno != EROFS)
        return file_fail(err, errno, "cannot make the store's directory '%s'", fs->dir);
    fs->root = open(fs->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fs->root < 0 && errno == ENOTDIR)
        return err_set(err, ERR_USAGE, "'%s' is not a directory: name another place for the store",
                       fs->dir);
    if (fs->root < 0 || fstat(fs->root, &st) < 0)
        return file_fail(err, errno, "cannot open the store's directory '%s'", fs->dir);
    fs->dev = st.st_dev;
    fs->ino = st.st_ino;
    return 0;
}

/* -1 with errno. */
static int
open_own(const struct file_store *fs, const char *name)
{
    if (sys->mkdirat(fs->root, name, 0755) < 0 && errno != EEXIST)
        return -1;
    return openat(fs->root, name, DIR_FLAGS | O_CLOEXEC);
}

static void
sweep(const struct file_store *fs)
{
    int fd = openat(fs->tmp, ".", DIR_FLAGS | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    const struct dirent *entry;
    unsigned swept = 0;

    if (!dir) {
        scope_close_fd(&fd);
        return;
    }
    while ((entry = readdir(dir)) != NULL) { /* NOLINT(concurrency-mt-unsafe): own stream */
        if (entry->d_name[0] != '.' && sys->unlinkat(fs->tmp, entry->d_name, 0) == 0)
            swept++;
    }
    closedir(dir);
    if (swept > 0)
        log_info(s3, "swept unfinished writes dir=%s files=%u", fs->dir, swept);
}

/* Whoever gets the lock alone is the only one here, so every temporary file is a leftover. Then all share it. */
static int
join(struct file_store *fs, struct err *err)
{
    const struct timespec wait = { .tv_nsec = 10000000 };

    fs->open_lock = openat(fs->lock, "open", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fs->open_lock < 0)
        return file_fail(err, errno, "cannot open the lock of store '%s'", fs->dir);
    if (flock(fs->open_lock, LOCK_EX | LOCK_NB) == 0)
        sweep(fs);
    for (int i = 0; i < SHARE_TRIES; i++) {
        if (flock(fs->open_lock, LOCK_SH | LOCK_NB) == 0)
            return 0;
        nanosleep(&wait, NULL);
    }
    return err_set(err, ERR_STORE_TIMEOUT, "another process keeps store '%s' locked", fs->dir);
}

static int
prepare(struct file_store *fs, struct err *err)
{
    if (open_root(fs, err) < 0)
        return -1;
    fs->tmp = open_own(fs, FILE_RESERVED "tmp");
    fs->lock = fs->tmp >= 0 ? open_own(fs, FILE_RESERVED "lock") : -1;
    if (fs->lock < 0 && (errno == EROFS || errno == EACCES || errno == EPERM)) {
        scope_close_fd(&fs->tmp);
        log_warn(s3, "store can only be read dir=%s", fs->dir);
        return 0;
    }
    if (fs->lock < 0)
        return file_fail(err, errno, "cannot prepare the store's directory '%s'", fs->dir);
    if (faccessat(fs->root, ".", W_OK, AT_EACCESS) < 0 && errno == EROFS) {
        scope_close_fd(&fs->tmp);
        scope_close_fd(&fs->lock);
        log_warn(s3, "store can only be read dir=%s", fs->dir);
        return 0;
    }
    return join(fs, err);
}

static struct file_store *
new_store(const char *dir, struct err *err)
{
    struct file_store *fs = calloc(1, sizeof(*fs));

    if (!fs) {
        err_nomem(err);
        return NULL;
    }
    fs->store.ops = &file_store_ops;
    fs->root = fs->tmp = fs->lock = fs->meta = fs->open_lock = -1;
    pthread_mutex_init(&fs->mutex, NULL);
    (void)snprintf(fs->store.url, sizeof(fs->store.url), "file://%s", dir);
    fs->dir = strdup(dir);
    if (!fs->dir) {
        err_nomem(err);
        fs->store.ops->free(&fs->store);
        return NULL;
    }
    return fs;
}

struct store *
file_store_open(const char *dir, struct err *err)
{
    struct file_store *fs = new_store(dir, err);

    if (!fs)
        return NULL;
    if (prepare(fs, err) < 0 || store_probe(&fs->store, err) < 0) {
        store_free(&fs->store);
        return NULL;
    }
    return &fs->store;
}

void
file_store_use_sidecars(struct store *store)
{
    ((struct file_store *)store)->sidecar_only = true;
}
