/* Requests of every kind, and parked ones: on a real kernel mount, over a volume in memory. */
#include "kernel_mount.h"

#include <sys/sysmacros.h>

/* ---- files ---- */
static void
with_mount(void (*fn)(struct mount_service *service, const struct mount_info *info))
{
    struct mount_service *service = open_service();
    struct mount_info info =
        add(service, &(struct mount_args){ .volume = 1, .path = in_work("m") });
    assert_true(is_fuse(info.path));
    fn(service, &info);
    take_off(service, info.id, false);
    assert_int_equal(fake.open_files, 0);
    mount_service_close(service, 0);
}

static void
check_xattrs(void)
{
    char value[64] = "";
    const char *file = in_work("m/a");
    assert_int_equal(setxattr(file, "user.x", "y", 1, XATTR_REPLACE), -1);
    assert_int_equal(errno, ENODATA);
    assert_int_equal(setxattr(file, "user.x", "yes", 3, XATTR_CREATE), 0);
    assert_int_equal(setxattr(file, "user.x", "no", 2, XATTR_CREATE), -1);
    assert_int_equal(errno, EEXIST);
    assert_int_equal(getxattr(file, "user.x", NULL, 0), 3);
    assert_int_equal(getxattr(file, "user.x", value, 2), -1);
    assert_int_equal(errno, ERANGE);
    assert_int_equal(getxattr(file, "user.x", value, sizeof(value)), 3);
    assert_memory_equal(value, "yes", 3);
    assert_int_equal(listxattr(file, value, 3), -1);
    assert_int_equal(errno, ERANGE);
    assert_int_equal(listxattr(file, value, sizeof(value)), 7);
    assert_string_equal(value, "user.x");
    /* B159: an empty value is a value. */
    assert_int_equal(setxattr(file, "user.x", "", 0, 0), 0);
    assert_int_equal(getxattr(file, "user.x", value, sizeof(value)), 0);
    assert_int_equal(removexattr(file, "user.x"), 0);
    assert_int_equal(removexattr(file, "user.x"), -1);
    assert_int_equal(errno, ENODATA);
    assert_int_equal(listxattr(file, NULL, 0), 0);
    static const char *const foreign[] = { "security.capability", "trusted.x",
                                           "system.posix_acl_access" };
    for (size_t i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++) {
        assert_int_equal(getxattr(file, foreign[i], value, sizeof(value)), -1);
        assert_int_equal(errno, ENOTSUP);
    }
    assert_int_equal(setxattr(file, "trusted.x", "y", 1, 0), -1);
    assert_int_equal(errno, ENOTSUP);
}

static void
read_text(const char *path, char *out, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    ssize_t got = read(fd, out, size - 1);
    assert_true(got >= 0);
    out[got] = '\0';
    assert_int_equal(close(fd), 0);
}

/* Whatever is tried: errno, 0 for success. */
static int
outcome(int rc)
{
    return rc < 0 ? errno : 0;
}

static void
use_virtual(struct mount_service *service, const struct mount_info *info)
{
    static char text[8192];
    struct stat st, before;
    (void)service;
    (void)info;
    put_file(in_work("m/a"), "hello");
    assert_int_equal(stat(in_work("m/.holdfast"), &before), 0);
    assert_int_equal(before.st_mode, S_IFDIR | 0555);
    fake.unsynced = true;
    read_text(in_work("m/.holdfast/status"), text, sizeof(text));
    assert_non_null(strstr(text, "\"volume\":\"fake\""));
    read_text(in_work("m/.holdfast/unsynced"), text, sizeof(text));
    assert_non_null(strstr(text, "\"path\":\"sub/b\""));
    assert_int_equal(stat(in_work("m/.holdfast/unsynced"), &st), 0);
    assert_int_equal(st.st_size, strlen(text));
#define LOSER "m/.holdfast/conflict/01KB8Q4Z017M3XW9D2TR5VNC6H"
    check_file(in_work(LOSER "/mine"), "the loser's bytes");
    assert_int_equal(readlink(in_work(LOSER "/theirs"), text, sizeof(text)), 14);
    assert_memory_equal(text, "../../../sub/b", 14);
    check_file(in_work(LOSER "/base"), "what both began with");
    assert_int_equal(outcome(access(in_work(LOSER "/merged"), F_OK)), ENOENT);
    assert_int_equal(outcome(access(in_work("m/.holdfast/conflict/other"), F_OK)), ENOENT);
    fake.unsynced = false;
    assert_int_equal(stat(in_work("m/.holdfast/unsynced"), &st), 0);
    assert_int_equal(st.st_size, 0);
    assert_int_equal(outcome(access(in_work(LOSER), F_OK)), ENOENT);
    assert_int_equal(outcome(open(in_work("m/.holdfast/status"), O_RDWR | O_CLOEXEC)), EPERM);
    assert_int_equal(outcome(open(in_work("m/.holdfast/x"), O_CREAT | O_CLOEXEC, 0600)), EPERM);
    assert_int_equal(outcome(mkdir(in_work("m/.holdfast/x"), 0700)), EPERM);
    assert_int_equal(outcome(unlink(in_work("m/.holdfast/status"))), EPERM);
    assert_int_equal(outcome(rmdir(in_work("m/.holdfast"))), EPERM);
    assert_int_equal(outcome(rename(in_work("m/.holdfast"), in_work("m/x"))), EPERM);
    assert_int_equal(outcome(rename(in_work("m/a"), in_work("m/.holdfast/a"))), EPERM);
    assert_int_equal(outcome(symlink("x", in_work("m/.holdfast/x"))), EPERM);
    assert_int_equal(outcome(chmod(in_work("m/.holdfast/status"), 0777)), EPERM);
    assert_int_equal(outcome(truncate(in_work("m/.holdfast/status"), 0)), EPERM);
    assert_int_equal(outcome(setxattr(in_work("m/.holdfast"), "user.x", "y", 1, 0)), ENOTSUP);
#define PAST "m/.holdfast/at/first"
    check_file(in_work(PAST "/d/f"), "pppppppppppppppppppp");
    assert_int_equal(stat(in_work(PAST "/d/f"), &st), 0);
    assert_int_equal(st.st_mode, S_IFREG | 0444);
    assert_int_equal(stat(in_work(PAST "/d/f"), &before), 0);
    assert_int_equal(st.st_ino, before.st_ino);
    assert_int_equal(outcome(access(in_work(PAST "/a"), F_OK)), ENOENT);
    assert_int_equal(outcome(access(in_work("m/.holdfast/at/second"), F_OK)), ENOENT);
    assert_int_equal(outcome(open(in_work(PAST "/d/f"), O_RDWR | O_CLOEXEC)), EROFS);
    assert_int_equal(outcome(unlink(in_work(PAST "/d/f"))), EROFS);
    assert_int_equal(outcome(mkdir(in_work("m/.holdfast/at/x"), 0700)), EROFS);
    assert_int_equal(outcome(truncate(in_work(PAST "/d/f"), 0)), EROFS);
}

static void
test_virtual(void **state)
{
    (void)state;
    with_mount(use_virtual);
}

/* The bytes are those of the open; what is written into flush waits, and fails when it waited in vain. */
static void
use_virtual_files(struct mount_service *service, const struct mount_info *info)
{
    static char text[8192];
    (void)service;
    (void)info;
    fake.unsynced = true;
    int fd = open(in_work("m/.holdfast/unsynced"), O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(read(fd, text, 10), 10);
    fake.unsynced = false;
    ssize_t rest = read(fd, text + 10, sizeof(text) - 10);
    assert_true(rest > 0 && text[9 + rest] == '\n');
    assert_int_equal(read(fd, text, sizeof(text)), 0);
    assert_int_equal(close(fd), 0);
    read_text(in_work("m/.holdfast/flush"), text, sizeof(text));
    assert_non_null(strstr(text, "\"synced\":true"));
    put_file(in_work("m/.holdfast/flush"), "now");
    fake.flush_fails = ERR_NOT_SYNCED;
    read_text(in_work("m/.holdfast/flush"), text, sizeof(text));
    assert_non_null(strstr(text, "\"synced\":false"));
    fd = open(in_work("m/.holdfast/flush"), O_WRONLY | O_TRUNC | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "1", 1), -1);
    assert_int_equal(errno, EIO);
    assert_int_equal(close(fd), 0);
    fake.flush_fails = 0;
}

static void
test_virtual_files(void **state)
{
    (void)state;
    with_mount(use_virtual_files);
}

static void
use_event_text(struct mount_service *service, const struct mount_info *info)
{
    static char text[8192];
    struct stat before, after;
    struct volume_event event = { .kind = VOLUME_EVENT_CHANGED,
                                  .volume = 1,
                                  .parent = FAKE_ROOT,
                                  .connection = info->id,
                                  .name = "seen" };
    (void)service;
    int fd = open(in_work("m/.holdfast/events"), O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    ssize_t had = read(fd, text, sizeof(text));
    assert_true(had > 0);
    assert_int_equal(memcmp(text, "{\"first_seq\":", 13), 0);
    assert_int_equal(read(fd, text, sizeof(text)), 0);
    assert_int_equal(fstat(fd, &before), 0);
    assert_int_equal(before.st_size, had);
    fake.watch(fake.watch_arg, &event);
    assert_int_equal(fstat(fd, &after), 0);
    assert_true(after.st_size > before.st_size);
    ssize_t more = read(fd, text, sizeof(text) - 1);
    assert_int_equal(more, after.st_size - before.st_size);
    text[more] = '\0';
    assert_non_null(strstr(text, "\"path\":\"seen\""));
    assert_int_equal(close(fd), 0);
}

static void
test_virtual_events(void **state)
{
    (void)state;
    with_mount(use_event_text);
}

static void
use_files(struct mount_service *service, const struct mount_info *info)
{
    struct stat st;
    char value[64] = "";
    (void)service;
    put_file(in_work("m/a"), "hello");
    check_file(in_work("m/a"), "hello");
    assert_true(fake.flushes > 0);
    assert_int_equal(fake.last_connection, info->id);
    assert_int_equal(truncate(in_work("m/a"), 2), 0);
    check_file(in_work("m/a"), "he");
    assert_int_equal(chmod(in_work("m/a"), 0600), 0);
    struct timespec times[2] = { { 1, 2 }, { 1000000000, 123456789 } };
    assert_int_equal(utimensat(AT_FDCWD, in_work("m/a"), times, 0), 0);
    assert_int_equal(stat(in_work("m/a"), &st), 0);
    assert_int_equal(st.st_mode, S_IFREG | 0600);
    assert_int_equal(st.st_mtim.tv_sec, 1000000000);
    assert_int_equal(st.st_mtim.tv_nsec, 123456789);
    assert_int_equal(symlink("a", in_work("m/l")), 0);
    assert_int_equal(readlink(in_work("m/l"), value, sizeof(value)), 1);
    check_file(in_work("m/l"), "he");
    assert_int_equal(link(in_work("m/a"), in_work("m/b")), 0);
    assert_int_equal(stat(in_work("m/a"), &st), 0);
    assert_int_equal(st.st_nlink, 2);
    assert_int_equal(link(in_work("m/a"), in_work("m/.holdfast-b")), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(link(in_work("m/a"), in_work("m/l")), -1);
    assert_int_equal(errno, EEXIST);
    assert_int_equal(mkfifo(in_work("m/p"), 0600), 0);
    assert_int_equal(mknod(in_work("m/dev"), S_IFCHR | 0600, makedev(7, 300)), 0);
    assert_int_equal(stat(in_work("m/p"), &st), 0);
    assert_int_equal(st.st_mode, S_IFIFO | 0600);
    assert_int_equal(stat(in_work("m/dev"), &st), 0);
    assert_int_equal(st.st_mode, S_IFCHR | 0600);
    assert_int_equal(st.st_rdev, makedev(7, 300));
    memset(value, 0, sizeof(value));
    assert_int_equal(getxattr(in_work("m/a"), "user.holdfast.key", value, sizeof(value)), 5);
    assert_string_equal(value, "pre/a");
    assert_int_equal(getxattr(in_work("m/a"), "user.other", value, sizeof(value)), -1);
    assert_int_equal(errno, ENODATA);
    check_xattrs();
    struct statvfs fs;
    assert_int_equal(statvfs(info->path, &fs), 0);
    assert_int_equal(fs.f_bavail * fs.f_frsize, 1u << 30);
}

static void
test_files(void **state)
{
    (void)state;
    with_mount(use_files);
}

static void
use_names(struct mount_service *service, const struct mount_info *info)
{
    (void)service;
    (void)info;
    assert_int_equal(mkdir(in_work("m/d"), 0755), 0);
    put_file(in_work("m/d/x"), "one");
    put_file(in_work("m/d/y"), "two");
    assert_int_equal(rmdir(in_work("m/d")), -1);
    assert_int_equal(errno, ENOTEMPTY);
    assert_int_equal(
        renameat2(AT_FDCWD, in_work("m/d/x"), AT_FDCWD, in_work("m/d/y"), RENAME_NOREPLACE), -1);
    assert_int_equal(errno, EEXIST);
    assert_int_equal(
        renameat2(AT_FDCWD, in_work("m/d/x"), AT_FDCWD, in_work("m/d/y"), RENAME_EXCHANGE), 0);
    check_file(in_work("m/d/x"), "two");
    assert_int_equal(rename(in_work("m/d/x"), in_work("m/d/y")), 0);
    check_file(in_work("m/d/y"), "two");
    assert_int_equal(access(in_work("m/d/x"), F_OK), -1);
    assert_int_equal(mkdir(in_work("m/.holdfast"), 0755), -1);
    assert_int_equal(errno, EEXIST);
    assert_int_equal(open(in_work("m/.holdfast-x"), O_CREAT | O_WRONLY | O_CLOEXEC, 0644), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(rename(in_work("m/d/y"), in_work("m/.holdfast")), -1);
    assert_int_equal(errno, EISDIR);
    put_file(in_work("m/d/.holdfast"), "below the root it is a name like others");
    assert_int_equal(unlink(in_work("m/d/.holdfast")), 0);
    /* An open file without a name goes on living. */
    int fd = open(in_work("m/d/y"), O_RDONLY | O_CLOEXEC);
    struct stat st;
    char seen[4] = "";
    assert_int_equal(unlink(in_work("m/d/y")), 0);
    assert_int_equal(read(fd, seen, 3), 3);
    assert_string_equal(seen, "two");
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_nlink, 0);
    assert_int_equal(close(fd), 0);
    assert_int_equal(rmdir(in_work("m/d")), 0);
}

static void
test_names(void **state)
{
    (void)state;
    with_mount(use_names);
}

static void
use_listing(struct mount_service *service, const struct mount_info *info)
{
    bool seen[2000] = { false };
    unsigned count = 0;
    unsigned dots = 0;
    (void)service;
    for (int i = 0; i < 2000; i++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "n%d", i);
        assert_true(fake_put(FAKE_ROOT, name, S_IFREG | 0644, 0) > 0);
    }
    DIR *dir = opendir(info->path);
    assert_non_null(dir);
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): a stream of our own */
    for (const struct dirent *entry; (entry = readdir(dir));) {
        if (entry->d_name[0] == '.') {
            dots++;
            continue;
        }
        long n = strtol(entry->d_name + 1, NULL, 10);
        assert_true(n >= 0 && n < 2000 && !seen[n]);
        seen[n] = true;
        count++;
        if (count % 500 == 0)
            seekdir(dir, telldir(dir)); /* offsets are cookies, not positions */
    }
    assert_int_equal(closedir(dir), 0);
    assert_int_equal(count, 2000);
    assert_int_equal(dots, 2);
}

static void
test_listing(void **state)
{
    (void)state;
    with_mount(use_listing);
}

static void
use_big_file(struct mount_service *service, const struct mount_info *info)
{
    size_t size = 3u << 20;
    char *data = malloc(size);
    char *back = malloc(size);
    (void)service;
    (void)info;
    assert_non_null(data);
    assert_non_null(back);
    for (size_t i = 0; i < size; i++)
        data[i] = (char)(i * 2654435761u >> 24);
    int fd = open(in_work("m/big"), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, size), (ssize_t)size);
    assert_int_equal(fsync(fd), 0);
    assert_true(fake.fsyncs > 0);
    assert_true(fake.last_unique != 0);
    assert_int_equal(lseek(fd, 0, SEEK_HOLE), (off_t)size);
    assert_int_equal(lseek(fd, (off_t)size, SEEK_DATA), -1);
    assert_int_equal(errno, ENXIO);
    assert_int_equal(posix_fallocate(fd, 0, (off_t)size + 10), 0);
    assert_int_equal(ftruncate(fd, (off_t)size), 0);
    assert_int_equal(close(fd), 0);
    fd = open(in_work("m/big"), O_RDONLY | O_CLOEXEC);
    assert_int_equal(pread(fd, back, size, 0), (ssize_t)size);
    assert_memory_equal(data, back, size);
    assert_int_equal(close(fd), 0);
    free(data);
    free(back);
}

static void
test_big_file(void **state)
{
    (void)state;
    with_mount(use_big_file);
}

static void
use_folder(struct mount_service *service, const struct mount_info *info)
{
    (void)info;
    assert_int_equal(mkdir(in_work("sub"), 0755), 0);
    int64_t dir = fake_put(FAKE_ROOT, "d", S_IFDIR | 0755, 0);
    assert_true(fake_put(dir, "inside", S_IFREG | 0644, 0) > 0);
    struct mount_info sub =
        add(service, &(struct mount_args){ .volume = 1, .folder = "d", .path = in_work("sub") });
    assert_int_equal(access(in_work("sub/inside"), F_OK), 0);
    put_file(in_work("sub/new"), "through the folder");
    check_file(in_work("m/d/new"), "through the folder");
    take_off(service, sub.id, false);
    assert_int_equal(rmdir(in_work("sub")), 0);
}

static void
test_folder(void **state)
{
    (void)state;
    with_mount(use_folder);
}

/* ---- changes of others ---- */

/* A name that others make is seen at once although the kernel has just learned that there is none. */
static bool
told_in_time(const char *name, int64_t *made)
{
    struct volume_event event = { VOLUME_EVENT_CREATED, 1, 0, FAKE_ROOT, name, 0 };
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/m/%s", work, name);
    assert_int_equal(access(path, F_OK), -1); /* a negative entry, good for a second */
    int64_t start = clock_mono_ns();
    pthread_mutex_lock(&fake.mutex);
    event.node = fake_make(FAKE_ROOT, name, strlen(name), S_IFREG | 0644)->attr.node;
    pthread_mutex_unlock(&fake.mutex);
    fake.watch(fake.watch_arg, &event);
    while (access(path, F_OK) < 0)
        clock_sleep_ns(NS_PER_MS);
    *made = event.node;
    return clock_mono_ns() - start < 500 * NS_PER_MS; /* told, not timed out */
}

static void
use_events(struct mount_service *service, const struct mount_info *info)
{
    static const char *const names[] = { "later", "later1", "later2", "later3", "later4" };
    struct err err = ERR_INIT;
    int64_t later = 0;
    bool told = false;
    (void)service;
    put_file(in_work("m/f"), "old");
    check_file(in_work("m/f"), "old");
    pthread_mutex_lock(&fake.mutex);
    struct fake_node *node = fake_child(FAKE_ROOT, "f", 1);
    if (!node)
        __builtin_trap(); /* it was written above */
    assert_int_equal(fake_resize(node, 7, &err), 0);
    memcpy(node->data, "changed", 7);
    int64_t changed = node->attr.node;
    pthread_mutex_unlock(&fake.mutex);
    struct volume_event event = { VOLUME_EVENT_CHANGED, 1, changed, FAKE_ROOT, "f", 0 };
    fake.watch(fake.watch_arg, &event);
    /* The machine may be busy once, not each time. */
    for (size_t i = 0; i < 5 && !told; i++) {
        event = (struct volume_event){ .kind = VOLUME_EVENT_REMOVED,
                                       .volume = 1,
                                       .parent = FAKE_ROOT,
                                       .name = names[i],
                                       .connection = info->id };
        told = told_in_time(names[i], &later);
    }
    assert_true(told);
    check_file(in_work("m/f"), "changed");
    event.node = later;
    fake.watch(fake.watch_arg, &event); /* our own doing: no call, no deadlock */
}

static void
test_events(void **state)
{
    (void)state;
    with_mount(use_events);
}

/* ---- parked requests ---- */
static void *
read_slow(void *arg)
{
    char byte;
    int fd = open(arg, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, &byte, 1) : -1;
    int error = got < 0 ? errno : 0;
    if (fd >= 0)
        (void)close(fd);
    return (void *)(intptr_t)error;
}

static void
make_slow(int count)
{
    for (int i = 0; i < count; i++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "slow%d", i);
        assert_true(fake_put(FAKE_ROOT, name, S_IFREG | 0644, 10) > 0);
    }
    put_file(in_work("m/quick"), "here");
}

static void
use_slow(struct mount_service *service, const struct mount_info *info)
{
    enum { READERS = 12 };
    pthread_t threads[READERS];
    char paths[READERS][128];
    struct stat st;
    (void)service;
    (void)info;
    make_slow(READERS);
    for (int i = 0; i < READERS; i++) {
        (void)snprintf(paths[i], sizeof(paths[i]), "%s/m/slow%d", work, i);
        assert_int_equal(pthread_create(&threads[i], NULL, read_slow, paths[i]), 0);
    }
    for (int i = 0; i < 10000 && fake.waits < READERS; i++)
        clock_sleep_ns(2 * NS_PER_MS);
    assert_true(fake.waits >= READERS);
    /* More slow objects than loop threads: the others are still served at once. */
    int64_t start = clock_mono_ns();
    for (int i = 0; i < 20; i++) {
        assert_int_equal(stat(in_work("m/quick"), &st), 0);
        check_file(in_work("m/quick"), "here");
    }
    assert_true(clock_mono_ns() - start < request_deadline / 2);
    fake.released = true;
    for (int i = 0; i < READERS; i++) {
        void *error;
        assert_int_equal(pthread_join(threads[i], &error), 0);
        assert_int_equal((intptr_t)error, 0);
    }
}

static void
test_slow_objects(void **state)
{
    (void)state;
    fake.waits = 0;
    request_deadline = 60 * NS_PER_S;
    with_mount(use_slow);
}

static void
use_deadline(struct mount_service *service, const struct mount_info *info)
{
    char path[128];
    (void)service;
    (void)info;
    make_slow(1);
    (void)snprintf(path, sizeof(path), "%s", in_work("m/slow0"));
    int64_t start = clock_mono_ns();
    assert_int_equal((intptr_t)read_slow(path), EIO);
    int64_t span = clock_mono_ns() - start;
    assert_in_range(span, 900 * NS_PER_MS, 20 * NS_PER_S);
}

static void
test_deadline(void **state)
{
    (void)state;
    with_mount(use_deadline);
}

static void
use_interrupt(struct mount_service *service, const struct mount_info *info)
{
    char path[128];
    (void)service;
    (void)info;
    make_slow(1);
    (void)snprintf(path, sizeof(path), "%s", in_work("m/slow0"));
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)read_slow(path);
        _exit(0);
    }
    for (int i = 0; i < 10000 && fake.waits == 0; i++)
        clock_sleep_ns(2 * NS_PER_MS);
    int64_t start = clock_mono_ns();
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_true(clock_mono_ns() - start < request_deadline / 2);
    fake.released = true;
}

static void
test_interrupt(void **state)
{
    (void)state;
    fake.waits = 0;
    request_deadline = 60 * NS_PER_S;
    with_mount(use_interrupt);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_files),          TEST(test_virtual),  TEST(test_virtual_files),
        TEST(test_virtual_events), TEST(test_names),    TEST(test_listing),
        TEST(test_big_file),       TEST(test_folder),   TEST(test_events),
        TEST(test_slow_objects),   TEST(test_deadline), TEST(test_interrupt),
    };
    if (!can_mount()) {
        (void)printf("skip: needs root, /dev/fuse and holdfast-mounter beside the tests\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
