#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/stat.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mount/helper/helper_impl.h"

static bool
lies_on(int dir, const char *name, uint32_t dev_minor)
{
    struct statx here;
    return statx(dir, name, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, STATX_INO, &here) == 0 &&
           here.stx_dev_major == 0 && here.stx_dev_minor == dev_minor;
}

static bool
has_open(int process, uint32_t dev_minor)
{
    int fd = openat(process, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = fd >= 0 ? fdopendir(fd) : NULL;
    if (!stream) {
        if (fd >= 0)
            (void)close(fd);
        return false;
    }
    bool found = false;
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): one thread */
    for (const struct dirent *entry; !found && (entry = readdir(stream));)
        found = entry->d_name[0] != '.' && lies_on(fd, entry->d_name, dev_minor);
    (void)closedir(stream);
    return found;
}

static bool
uses(int proc, const char *pid, uint32_t dev_minor)
{
    int process = openat(proc, pid, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (process < 0)
        return false;
    bool found = lies_on(process, "cwd", dev_minor) || lies_on(process, "root", dev_minor) ||
                 lies_on(process, "exe", dev_minor) || has_open(process, dev_minor);
    (void)close(process);
    return found;
}

uint32_t
helper_users(uint32_t dev_minor, int32_t pids[HELPER_PIDS])
{
    uint32_t count = 0;
    int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = proc >= 0 ? fdopendir(proc) : NULL;
    if (!stream)
        return 0;
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): one thread */
    for (const struct dirent *entry; count < HELPER_PIDS && (entry = readdir(stream));) {
        long pid = strtol(entry->d_name, NULL, 10);
        if (pid > 0 && uses(proc, entry->d_name, dev_minor))
            pids[count++] = (int32_t)pid;
    }
    (void)closedir(stream);
    return count;
}
