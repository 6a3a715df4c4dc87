#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/path.h"
#include "base/scope.h"
#include "base/sys.h"
#include "mount/ino.h"
#include "mount/probe.h"
#include "mount/service_impl.h"
#include "volume/locks.h"
#include "volume/snapshot.h"

#define PROBE_NS (5 * NS_PER_S)
#define LIVE_NS (10 * NS_PER_S) /* from the mount to the first answer through it */
#define DRAIN_NS (2 * NS_PER_S)
#define MAX_NUMBER 9999u

/* ---- where ---- */

bool
attach_is_own_path(const struct mount_service *service, const char *path)
{
    size_t len = strlen(service->state_dir);
    return strncmp(path, service->state_dir, len) == 0 && strncmp(path + len, "/mnt/", 5) == 0;
}

static int
make_own_path(struct entry *entry, struct err *err)
{
    char dir[LIMIT_PATH + 1];
    int len = snprintf(dir, sizeof(dir), "%s/mnt", entry->service->state_dir);
    if (len < 0 || (size_t)len + 24 >= sizeof(entry->info.path))
        return err_set(err, ERR_NAME_TOO_LONG, "the state directory's path is too long");
    if (sys_make_dirs(dir, 0711, err) < 0)
        return -1;
    (void)snprintf(entry->info.path, sizeof(entry->info.path), "%.*s/%lld",
                   (int)(sizeof(entry->info.path) - 24), dir, (long long)entry->info.id);
    /* INV-11: nobody writes beside the volume. fusermount3 wants a directory that its user may write to. */
    mode_t mode = entry->service->mounter ? 0 : 0700;
    if (mkdir(entry->info.path, mode) < 0 && errno != EEXIST)
        return err_sys(err, errno, "make '%s'", entry->info.path);
    if (chmod(entry->info.path, mode) < 0)
        log_debug(mount, "mode of a mountpoint path=%s error=%d", entry->info.path, errno);
    entry->own_path = true;
    return 0;
}

static bool
path_taken(const struct entry *self, const char *path)
{
    struct mount_service *service = self->service;
    scope_unlock pthread_mutex_t *held = scope_lock(&service->mutex);
    (void)held;
    for (const struct entry *at = service->entries; at; at = at->next) {
        if (at != self && strcmp(at->info.path, path) == 0)
            return true;
    }
    return false;
}

static void
set_path(struct entry *entry, const char *path)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&entry->service->mutex);
    (void)held;
    (void)snprintf(entry->info.path, sizeof(entry->info.path), "%s", path);
}

/* ---- with the mounter ---- */

void
attach_clear(struct mount_service *service, const char *path, bool keep_guard)
{
    struct err err = ERR_INIT;
    if (service->mounter) {
        if (mounter_clear(service->mounter, path, keep_guard, &err) < 0 &&
            err.code != ERR_NOT_FOUND)
            log_debug(mount, "nothing cleared path=%s error=\"%s\"", path, err.msg);
    } else if (umount2(path, UMOUNT_NOFOLLOW | MNT_DETACH) < 0 && errno == EPERM &&
               session_fusermount(path, true, &err) < 0) {
        log_debug(mount, "nothing cleared path=%s error=\"%s\"", path, err.msg);
    }
}

/* A mount that an earlier life has left answers ENOTCONN for ever: true when it was one, and is cleared. */
static bool
clear_if_dead(struct entry *entry, const char *path)
{
    struct stat st;
    struct err err = ERR_INIT;
    if (probe_stat(path, PROBE_NS, &st, &err) == 0 || err.sys != ENOTCONN)
        return false;
    log_info(mount, "clearing a dead mount path=%s", path);
    attach_clear(entry->service, path, true);
    if (entry->own_path && !entry->service->mounter)
        (void)chmod(path, 0700); /* what lay beneath it was closed */
    return true;
}

static int
check_path(struct entry *entry, const char *path, struct err *err)
{
    struct stat st;
    if (path[0] != '/')
        return err_set(err, ERR_INVAL, "mountpoint '%s' is not an absolute path", path);
    (void)clear_if_dead(entry, path);
    int done = probe_stat(path, PROBE_NS, &st, err);
    if (done < 0 && err->code == ERR_NOT_FOUND)
        return err_set(err, ERR_NOT_FOUND, "mountpoint '%s' does not exist: make it first", path);
    if (done < 0)
        return err_wrap(err, "mountpoint");
    if (!S_ISDIR(st.st_mode))
        return err_set(err, ERR_NOT_DIR, "mountpoint '%s' is not a directory", path);
    return 0;
}

static int
describe_failure(const char *path, struct err *err)
{
    switch (err->code) {
    case ERR_NOT_EMPTY:
        return err_set(err, ERR_NOT_EMPTY, "mountpoint '%s' is not empty", path);
    case ERR_NOT_DIR:
        return err_set(err, ERR_NOT_DIR, "mountpoint '%s' is not a directory", path);
    case ERR_BUSY:
        return err_set(err, ERR_BUSY, "mountpoint '%s' is a mount already", path);
    default:
        return err_wrap(err, "mount on '%s'", path);
    }
}

static void
fill_source(const struct entry *entry, char out[HELPER_SOURCE])
{
    (void)snprintf(out, HELPER_SOURCE, "holdfast:%s", entry->info.volume_name);
}

static int
ask_mounter(struct entry *entry, const char *path, int target, int *fuse, struct err *err)
{
    char source[HELPER_SOURCE];
    struct mounter_mount args = { .id = entry->info.id, .path = path, .target = target };
    args.read_only = entry->info.read_only;
    args.source = source;
    fill_source(entry, source);
    return mounter_mount(entry->service->mounter, &args, fuse, &entry->info.dev_minor, err);
}

static int
mount_at(struct entry *entry, int *fuse, struct err *err)
{
    const char *path = entry->info.path;
    if (check_path(entry, path, err) < 0)
        return -1;
    /* Opened with the gateway's own rights: the mounter mounts on nothing that the gateway cannot reach. */
    scope_fd int target = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (target < 0)
        return err_sys(err, errno, "mountpoint '%s'", path);
    if (ask_mounter(entry, path, target, fuse, err) < 0)
        return describe_failure(path, err);
    return 0;
}

/* default_parent/N, N the first free from 1; a restored mount has its number already. */
static int
mount_at_number(struct entry *entry, int *fuse, struct err *err)
{
    char path[LIMIT_PATH + 1];
    if (entry->info.path[0] != '\0') {
        (void)clear_if_dead(entry, entry->info.path);
        return ask_mounter(entry, entry->info.path, -1, fuse, err) < 0
                   ? describe_failure(entry->info.path, err)
                   : 0;
    }
    for (unsigned number = 1; number <= MAX_NUMBER; number++) {
        int len = snprintf(path, sizeof(path), "%s/%u", entry->service->default_parent, number);
        if (len < 0 || (size_t)len >= sizeof(path))
            return err_set(err, ERR_NAME_TOO_LONG, "the default mountpoint's path is too long");
        if (path_taken(entry, path))
            continue;
        set_path(entry, path);
        struct err why = ERR_INIT;
        if (ask_mounter(entry, path, -1, fuse, &why) == 0)
            return 0;
        if (why.code != ERR_BUSY && why.code != ERR_EXISTS && why.code != ERR_NOT_EMPTY &&
            why.sys != ENOTCONN) {
            *err = why;
            return describe_failure(path, err);
        }
    }
    return err_set(err, ERR_BUSY, "no free mountpoint below '%s'", entry->service->default_parent);
}

/* ---- serving ---- */

static void
on_session_end(void *arg)
{
    struct entry *entry = arg;
    scope_unlock pthread_mutex_t *held = scope_lock(&entry->service->mutex);
    (void)held;
    entry->gone = true;
    pthread_cond_broadcast(&entry->service->changed);
}

static unsigned
thread_count(const struct mount_service *service)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    unsigned wanted = cores > 0 ? 2 * (unsigned)cores : 2;
    if (service->args.threads > 0)
        wanted = service->args.threads;
    return wanted > 10 ? 10 : wanted;
}

static int
find_root(struct entry *entry, const struct volume_info *volume, int64_t *root, struct err *err)
{
    struct volume_attr attr;
    struct volume_ctx ctx = { .actor = "mount", .run = entry->info.run };
    *root = volume->root;
    if (entry->info.folder[0] == '\0' || entry->info.snapshot[0] != '\0')
        return 0;
    if (volume_resolve(entry->service->args.volumes, &ctx, volume->id, entry->info.folder, &attr,
                       err) < 0)
        return err_wrap(err, "folder '%s' of volume '%s'", entry->info.folder, volume->name);
    if (attr.kind != INDEX_DIR)
        return err_set(err, ERR_NOT_DIR, "'%s' in volume '%s' is not a folder", entry->info.folder,
                       volume->name);
    *root = attr.node;
    return 0;
}

/* The snapshot, and that the folder was there. */
static int
find_past(struct entry *entry, const struct volume_info *volume, struct volume_snapshot *out,
          struct err *err)
{
    struct volume_service *volumes = entry->service->args.volumes;
    const char *folder = entry->info.folder;
    struct volume_past *past;
    if (volume_snapshot_find(volumes, volume->id, entry->info.snapshot, out, err) < 0)
        return -1;
    if (folder[0] == '\0')
        return 0;
    if (volume_past_open(volumes, volume->id, out->at_ns, &past, err) < 0)
        return -1;
    const struct volume_past_entry *found = volume_past_find(past, folder);
    int rc = 0;
    if (!found || found->kind != INDEX_DIR)
        rc = err_set(err, found ? ERR_NOT_DIR : ERR_NOT_FOUND, "'%s' %s in snapshot '%s' of '%s'",
                     folder, found ? "is not a folder" : "is not", out->name, volume->name);
    volume_past_close(past);
    return rc;
}

struct session *
attach_session(struct entry *entry, const struct volume_info *volume, int64_t root,
               struct carry *carry, struct err *err)
{
    struct mount_service *service = entry->service;
    struct volume_snapshot snapshot;
    struct session_past past = { .name = entry->info.snapshot, .path = entry->info.folder };
    if (past.name[0] != '\0') {
        if (find_past(entry, volume, &snapshot, err) < 0) {
            carry_unmap(carry);
            return NULL;
        }
        past.at_ns = snapshot.at_ns;
    }
    struct session_args args = {
        .volumes = service->args.volumes,
        .park = service->park,
        .lender = service->lender,
        .events = service->events,
        .pasts = service->pasts,
        .id = entry->info.id,
        .volume = volume->id,
        .root = root,
        .volume_root = volume->root,
        .volume_name = volume->name,
        .prefix = volume->prefix,
        .run = entry->info.run,
        .past = past.name[0] != '\0' ? &past : NULL,
        .read_only = entry->info.read_only,
        .threads = thread_count(service),
        .deadline_ns = service->args.request_deadline_ns,
        .ended = on_session_end,
        .ended_arg = entry,
        .carry = carry,
    };
    return session_new(&args, err);
}

/* `*kept` is the descriptor of the memory that the mounter is to keep, -1: none. */
static struct session *
make_session(struct entry *entry, const struct volume_info *volume, int *kept, struct err *err)
{
    int64_t root;
    struct carry *carry = NULL;
    *kept = -1;
    if (find_root(entry, volume, &root, err) < 0)
        return NULL;
    if (entry->service->mounter) {
        carry = carry_new(kept, err);
        if (!carry)
            return NULL;
    }
    return attach_session(entry, volume, root, carry, err);
}

static int
start_with_mounter(struct entry *entry, struct session *session, enum attach_where where,
                   struct err *err)
{
    int fuse = -1;
    int done = where == ATTACH_AT_NUMBER ? mount_at_number(entry, &fuse, err)
                                         : mount_at(entry, &fuse, err);
    if (done < 0)
        return -1;
    if (session_start(session, fuse, err) == 0)
        return 0;
    struct err ignored = ERR_INIT;
    (void)!mounter_umount(entry->service->mounter, entry->info.id, HELPER_DETACH, &ignored);
    (void)!mounter_forget(entry->service->mounter, entry->info.id, &ignored);
    return -1;
}

/* Keeps the directory's descriptor over the mount, to take its mode away underneath (INV-11). */
static int
start_as_user(struct entry *entry, struct session *session, struct err *err)
{
    struct stat st;
    if (check_path(entry, entry->info.path, err) < 0)
        return -1;
    scope_fd int dir = open(entry->info.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return err_sys(err, errno, "mountpoint '%s'", entry->info.path);
    if (session_start_user(session, entry->info.path, err) < 0)
        return -1;
    if (entry->own_path)
        (void)fchmod(dir, 0);
    if (probe_stat(entry->info.path, LIVE_NS, &st, err) < 0)
        return -1;
    entry->info.dev_minor = minor(st.st_dev);
    return 0;
}

/* Says "mounted" only when a stat has come through it: right device, our root. */
static int
check_live(struct entry *entry, struct err *err)
{
    struct stat st;
    if (probe_stat(entry->info.path, LIVE_NS, &st, err) < 0)
        return err_wrap(err, "the new mount does not answer");
    if (major(st.st_dev) != 0 || minor(st.st_dev) != entry->info.dev_minor || st.st_ino != INO_ROOT)
        return err_set(err, ERR_INTERNAL, "'%s' shows something else than the new mount",
                       entry->info.path);
    return 0;
}

/* From here on another gateway could go on. */
static void
record_init(struct entry *entry, int kept)
{
    struct err err = ERR_INIT;
    struct session_record record;
    struct mounter *mounter = entry->service->mounter;
    if (!mounter || !session_record(entry->session, &record))
        return;
    if (adopt_index_uuid(entry->service, record.index_uuid, &err) < 0 ||
        mounter_record(mounter, entry->info.id, &record, sizeof(record), kept, &err) < 0)
        log_warn(mount, "INIT is not kept mount=%lld error=\"%s\"", (long long)entry->info.id,
                 err.msg);
}

int
attach_mount(struct entry *entry, const struct volume_info *volume, enum attach_where where,
             struct err *err)
{
    struct mount_service *service = entry->service;
    if (where == ATTACH_AT_NUMBER && !service->mounter)
        where = ATTACH_IN_STATE;
    if (where == ATTACH_IN_STATE && make_own_path(entry, err) < 0)
        return -1;
    scope_fd int kept = -1;
    struct session *session = make_session(entry, volume, &kept, err);
    if (!session)
        return -1;
    int done = service->mounter ? start_with_mounter(entry, session, where, err)
                                : start_as_user(entry, session, err);
    if (done < 0 && session_ended(session)) {
        session_unref(session);
        if (entry->own_path)
            (void)rmdir(entry->info.path);
        return -1;
    }
    pthread_mutex_lock(&service->mutex);
    entry->session = session;
    session_set_lease(session, entry->info.expires_ns);
    pthread_mutex_unlock(&service->mutex);
    volume_kernels(service->args.volumes, 1);
    if (done == 0 && check_live(entry, err) == 0) {
        record_init(entry, kept);
        return 0;
    }
    struct err ignored = ERR_INIT;
    (void)!attach_unmount(entry, true, false, &ignored);
    attach_finish(entry, clock_mono_ns() + DRAIN_NS);
    return -1;
}

/* ---- the way back ---- */

int
attach_unmount(struct entry *entry, bool detach, bool keep_guard, struct err *err)
{
    struct mount_service *service = entry->service;
    if (!entry->session)
        return 0;
    if (!service->mounter)
        return session_unmount_user(entry->session, detach, err);
    uint32_t flags = (detach ? HELPER_DETACH : 0u) | (keep_guard ? HELPER_KEEP_GUARD : 0u);
    if (mounter_umount(service->mounter, entry->info.id, flags, err) == 0)
        return 0;
    if (err->code == ERR_BUSY) {
        char users[160];
        mounter_users(service->mounter, entry->info.id, users, sizeof(users));
        return err_set(err, ERR_BUSY, "'%s' is in use%s%s", entry->info.path,
                       users[0] != '\0' ? " by process " : "", users);
    }
    return err_wrap(err, "unmount '%s'", entry->info.path);
}

static void
wait_parked(struct session *session)
{
    int64_t until = clock_mono_ns() + DRAIN_NS;
    while (session_parked(session) > 0 && clock_mono_ns() < until)
        clock_sleep_ns(5 * NS_PER_MS);
}

void
attach_finish(struct entry *entry, int64_t deadline_ns)
{
    struct err err = ERR_INIT;
    struct mount_service *service = entry->service;
    struct session *session = entry->session;
    if (session && !session_wait_end(session, deadline_ns)) {
        log_warn(mount, "aborting a mount that is still in use mount=%lld path=%s",
                 (long long)entry->info.id, entry->info.path);
        if (service->mounter && mounter_abort(service->mounter, entry->info.id, &err) < 0)
            log_warn(mount, "cannot abort mount=%lld error=\"%s\"", (long long)entry->info.id,
                     err.msg);
    }
    if (service->mounter)
        (void)!mounter_forget(service->mounter, entry->info.id, &err);
    if (entry->own_path)
        (void)rmdir(entry->info.path);
    if (!session)
        return;
    bool ended = session_wait_end(session, clock_mono_ns() + DRAIN_NS);
    session_close_files(session);
    lock_drop_connection(volume_locks(service->args.volumes), entry->info.id); /* nobody waits on */
    wait_parked(session);
    volume_connection_gone(service->args.volumes, entry->info.id);
    volume_kernels(service->args.volumes, -1);
    pthread_mutex_lock(&service->mutex);
    entry->session = NULL;
    pthread_mutex_unlock(&service->mutex);
    if (ended)
        session_unref(session);
    else
        log_error(mount, "a connection does not end; its threads are left mount=%lld",
                  (long long)entry->info.id);
}
