#include "mount/mount.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/path.h"
#include "base/scope.h"
#include "mount/service_impl.h"

#define FORCE_GRACE_NS (2 * NS_PER_S) /* between detaching and aborting */
#define END_GRACE_NS (5 * NS_PER_S)   /* after an unmount, for other places that still show it */

const char *
mount_state_name(enum mount_state state)
{
    static const char *const names[] = { "starting", "mounted", "ending", "failed" };
    return names[state];
}

/* ---- the table ---- */

void
mount_insert_locked(struct mount_service *service, struct entry *entry)
{
    struct entry **at = &service->entries;
    while (*at && (*at)->info.id < entry->info.id)
        at = &(*at)->next;
    entry->next = *at;
    *at = entry;
}

static struct entry *
find_locked(struct mount_service *service, int64_t id)
{
    for (struct entry *at = service->entries; at; at = at->next) {
        if (at->info.id == id)
            return at;
    }
    return NULL;
}

struct entry *
mount_find_entry(struct mount_service *service, int64_t id)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&service->mutex);
    (void)held;
    return find_locked(service, id);
}

void
mount_drop(struct entry *entry)
{
    struct mount_service *service = entry->service;
    pthread_mutex_lock(&service->mutex);
    for (struct entry **at = &service->entries; *at; at = &(*at)->next) {
        if (*at == entry) {
            *at = entry->next;
            break;
        }
    }
    pthread_cond_broadcast(&service->changed);
    pthread_mutex_unlock(&service->mutex);
    free(entry);
}

void
mount_set_state(struct entry *entry, enum mount_state state, bool busy)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&entry->service->mutex);
    (void)held;
    entry->info.state = state;
    entry->busy = busy;
    pthread_cond_broadcast(&entry->service->changed);
}

static struct mount_info
copy_info_locked(const struct entry *entry)
{
    struct mount_info info = entry->info;
    if (entry->session) {
        info.requests = session_requests(entry->session);
        info.parked = session_parked(entry->session);
        info.passthrough =
            session_passthrough(entry->session, info.plain_why, sizeof(info.plain_why));
    }
    return info;
}

static struct mount_info
copy_info(struct entry *entry)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&entry->service->mutex);
    (void)held;
    return copy_info_locked(entry);
}

/* ---- add ---- */

static int
check_args(const struct mount_args *args, struct err *err)
{
    struct err ignored = ERR_INIT;
    const char *folder = args->folder ? args->folder : "";
    if (args->lease_ns != 0 &&
        (args->lease_ns < MOUNT_LEASE_MIN_NS || args->lease_ns > MOUNT_LEASE_MAX_NS))
        return err_set(err, ERR_INVAL, "a lease is 1 to 1440 minutes");
    if (args->path && (strlen(args->path) > LIMIT_PATH || args->path[0] != '/'))
        return err_set(err, ERR_INVAL, "mountpoint '%s' is not an absolute path", args->path);
    if (args->run && strlen(args->run) >= sizeof(((struct mount_info *)NULL)->run))
        return err_set(err, ERR_INVAL, "run id '%s' is too long", args->run);
    if (args->snapshot && path_check_volume(args->snapshot, err) < 0)
        return -1;
    if (args->snapshot && strlen(args->snapshot) + strlen(folder) + 3 > LIMIT_PATH)
        return err_set(err, ERR_NAME_TOO_LONG, "the folder's path is too long");
    if (path_check(folder, strlen(folder), &ignored) < 0)
        return err_set(err, ERR_BAD_NAME, "'%s' is not a folder inside a volume", folder);
    return 0;
}

static void
set_lease_locked(struct entry *entry, int64_t lease_ns)
{
    entry->info.lease_ns = lease_ns;
    entry->info.expires_ns = lease_ns > 0 ? clock_wall_ns() + lease_ns : 0;
    entry->expires_boot_ns = lease_ns > 0 ? clock_boot_ns() + lease_ns : 0;
    if (entry->session)
        session_set_lease(entry->session, entry->info.expires_ns);
}

/* Without the slash that a user may type at the end. */
static void
copy_path(char *out, size_t size, const char *path)
{
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/')
        len--;
    (void)snprintf(out, size, "%.*s", (int)len, path);
}

static struct entry *
make_entry(struct mount_service *service, const struct mount_args *args,
           const struct volume_info *volume, struct err *err)
{
    struct entry *entry = calloc(1, sizeof(*entry));
    if (!entry) {
        err_nomem(err);
        return NULL;
    }
    struct mount_info *info = &entry->info;
    entry->service = service;
    entry->busy = true;
    entry->transient = args->transient;
    info->volume = volume->id;
    info->read_only = args->read_only || volume->read_only || args->snapshot;
    info->state = MOUNT_STARTING;
    (void)snprintf(info->volume_name, sizeof(info->volume_name), "%s", volume->name);
    (void)snprintf(info->folder, sizeof(info->folder), "%s", args->folder ? args->folder : "");
    (void)snprintf(info->snapshot, sizeof(info->snapshot), "%s",
                   args->snapshot ? args->snapshot : "");
    (void)snprintf(info->run, sizeof(info->run), "%s", args->run ? args->run : "");
    if (args->path)
        copy_path(info->path, sizeof(info->path), args->path);
    set_lease_locked(entry, args->lease_ns);
    if (record_put(entry, err) == 0)
        return entry;
    free(entry);
    return NULL;
}

/* The row first: a mount that a crash cuts off here is cleared or made again at the next start. */
int
mount_bring_up(struct entry *entry, const struct volume_info *volume, enum attach_where where,
               struct err *err)
{
    if (attach_mount(entry, volume, where, err) < 0)
        return -1;
    if (record_put(entry, err) == 0) {
        mount_set_state(entry, MOUNT_ACTIVE, false);
        return 0;
    }
    struct err ignored = ERR_INIT;
    (void)!attach_unmount(entry, true, false, &ignored);
    attach_finish(entry, clock_mono_ns());
    return -1;
}

static bool
path_in_use(struct mount_service *service, const struct entry *self)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&service->mutex);
    (void)held;
    for (const struct entry *at = service->entries; at; at = at->next) {
        if (at != self && strcmp(at->info.path, self->info.path) == 0)
            return true;
    }
    return false;
}

int
mount_add(struct mount_service *service, const struct mount_args *args, struct mount_info *out,
          struct err *err)
{
    struct volume_info volume;
    enum attach_where where = ATTACH_AT_PATH;
    if (!args->path)
        where = args->private_path ? ATTACH_IN_STATE : ATTACH_AT_NUMBER;
    if (check_args(args, err) < 0 ||
        record_find_volume(service->args.volumes, args->volume, &volume, err) < 0)
        return -1;
    struct entry *entry = make_entry(service, args, &volume, err);
    if (!entry)
        return -1;
    pthread_mutex_lock(&service->mutex);
    mount_insert_locked(service, entry);
    pthread_mutex_unlock(&service->mutex);
    int done = -1;
    if (args->path && path_in_use(service, entry))
        err_set(err, ERR_BUSY, "mountpoint '%s' is a mount already", entry->info.path);
    else
        done = mount_bring_up(entry, &volume, where, err);
    if (done == 0) {
        *out = copy_info(entry);
        log_info(mount, "mounted id=%lld volume=%s path=%s read_only=%d", (long long)out->id,
                 out->volume_name, out->path, out->read_only);
        return 0;
    }
    struct err ignored = ERR_INIT;
    (void)!record_delete(service, entry->info.id, &ignored);
    mount_drop(entry);
    return -1;
}

/* ---- remove ---- */

struct entry *
mount_take(struct mount_service *service, int64_t id, struct err *err)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&service->mutex);
    (void)held;
    struct entry *entry = find_locked(service, id);
    if (!entry) {
        err_set(err, ERR_NOT_FOUND, "no mount with id %lld", (long long)id);
        return NULL;
    }
    if (entry->busy) {
        err_set(err, ERR_BUSY, "mount %lld is being %s", (long long)id,
                entry->info.state == MOUNT_STARTING ? "made" : "removed");
        return NULL;
    }
    entry->busy = true;
    return entry;
}

static int
barrier_first(struct entry *entry, const struct mount_remove_args *args,
              struct volume_barrier *barrier, struct err *err)
{
    int64_t deadline =
        args->deadline_ns != 0 ? args->deadline_ns : clock_mono_ns() + DEFAULT_DEADLINE_NS;
    memset(barrier, 0, sizeof(*barrier));
    if (args->no_flush || entry->info.read_only || !entry->session)
        return 0;
    struct err why = ERR_INIT;
    if (volume_flush(entry->service->args.volumes, entry->info.volume, deadline, barrier, &why) ==
            0 ||
        why.code == ERR_CONFLICT)
        return 0;
    if (args->force) {
        log_warn(mount, "unmounting although not everything is synced mount=%lld error=\"%s\"",
                 (long long)entry->info.id, why.msg);
        return 0;
    }
    *err = why;
    return -1;
}

void
mount_take_down(struct entry *entry, bool forced)
{
    struct err err = ERR_INIT;
    struct mount_service *service = entry->service;
    attach_finish(entry, clock_mono_ns() + (forced ? FORCE_GRACE_NS : END_GRACE_NS));
    if (record_delete(service, entry->info.id, &err) < 0 && err.code != ERR_NOT_FOUND)
        log_error(mount, "the mount's row stays mount=%lld error=\"%s\"", (long long)entry->info.id,
                  err.msg);
    log_info(mount, "unmounted id=%lld path=%s", (long long)entry->info.id, entry->info.path);
    mount_drop(entry);
}

int
mount_remove(struct mount_service *service, int64_t id, const struct mount_remove_args *args,
             struct volume_barrier *barrier, struct err *err)
{
    struct volume_barrier own;
    struct entry *entry = mount_take(service, id, err);
    if (!entry)
        return -1;
    enum mount_state before = entry->info.state;
    if (barrier_first(entry, args, barrier ? barrier : &own, err) < 0) {
        mount_set_state(entry, before, false);
        return -1;
    }
    int done = attach_unmount(entry, false, false, err);
    bool forced = done < 0 && args->force;
    if (forced)
        done = attach_unmount(entry, true, false, err);
    if (done < 0) {
        mount_set_state(entry, before, false);
        return -1;
    }
    mount_set_state(entry, MOUNT_ENDING, true);
    if (before == MOUNT_FAILED)
        attach_clear(service, entry->info.path, false);
    mount_take_down(entry, forced);
    return 0;
}

/* ---- look ---- */

int
mount_each(struct mount_service *service, mount_info_fn *fn, void *arg, struct err *err)
{
    int64_t after = 0;
    for (;;) {
        struct mount_info info = { .id = 0 };
        pthread_mutex_lock(&service->mutex);
        for (const struct entry *at = service->entries; at && info.id == 0; at = at->next) {
            if (at->info.id > after)
                info = copy_info_locked(at);
        }
        pthread_mutex_unlock(&service->mutex);
        if (info.id == 0)
            return 0;
        after = info.id;
        if (fn(arg, &info, err) < 0)
            return -1;
    }
}

int
mount_find(struct mount_service *service, int64_t id, struct mount_info *out, struct err *err)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&service->mutex);
    (void)held;
    const struct entry *entry = find_locked(service, id);
    if (!entry)
        return err_set(err, ERR_NOT_FOUND, "no mount with id %lld", (long long)id);
    *out = copy_info_locked(entry);
    return 0;
}

int
mount_find_by_path(struct mount_service *service, const char *path, struct mount_info *out,
                   struct err *err)
{
    char wanted[LIMIT_PATH + 1];
    copy_path(wanted, sizeof(wanted), path);
    scope_unlock pthread_mutex_t *held = scope_lock(&service->mutex);
    (void)held;
    for (const struct entry *at = service->entries; at; at = at->next) {
        if (strcmp(at->info.path, wanted) == 0) {
            *out = copy_info_locked(at);
            return 0;
        }
    }
    return err_set(err, ERR_NOT_FOUND, "nothing of ours is mounted on '%s'", wanted);
}

int
mount_renew(struct mount_service *service, int64_t id, int64_t lease_ns, struct mount_info *out,
            struct err *err)
{
    if (lease_ns != 0 && (lease_ns < MOUNT_LEASE_MIN_NS || lease_ns > MOUNT_LEASE_MAX_NS))
        return err_set(err, ERR_INVAL, "a lease is 1 to 1440 minutes");
    struct entry *entry = mount_take(service, id, err);
    if (!entry)
        return -1;
    pthread_mutex_lock(&service->mutex);
    set_lease_locked(entry, lease_ns);
    pthread_mutex_unlock(&service->mutex);
    int done = record_put(entry, err);
    *out = copy_info(entry);
    mount_set_state(entry, out->state, false);
    return done;
}
