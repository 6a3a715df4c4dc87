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

#define DEFAULT_DEADLINE_NS (30 * NS_PER_S)
#define FORCE_GRACE_NS (2 * NS_PER_S) /* between detaching and aborting */
#define END_GRACE_NS (5 * NS_PER_S)   /* after an unmount, for other places that still show it */
#define NOTIFY_QUEUE 4096

const char *
mount_state_name(enum mount_state state)
{
    static const char *const names[] = { "starting", "mounted", "ending", "failed" };
    return names[state];
}

/* ---- the table ---- */

static void
insert_locked(struct mount_service *service, struct entry *entry)
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

static void
drop_entry(struct entry *entry)
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

static void
set_state(struct entry *entry, enum mount_state state, bool busy)
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

static size_t
sessions_of(void *arg, int64_t volume, struct session **out, size_t max)
{
    struct mount_service *service = arg;
    size_t count = 0;
    scope_unlock pthread_mutex_t *held = scope_lock(&service->mutex);
    (void)held;
    for (const struct entry *at = service->entries; at && count < max; at = at->next) {
        if (at->session && at->info.volume == volume && at->info.state == MOUNT_ACTIVE)
            out[count++] = session_ref(at->session);
    }
    return count;
}

/* ---- the volume's events outlive us: a hook that is never freed stands between ---- */

struct watch {
    pthread_mutex_t mutex; /* held over notifier_event(), which never blocks */
    struct notifier *notifier;
    struct watch *next;
};
static struct watch *watches; /* all of the process, so that none counts as lost */
static pthread_mutex_t watches_mutex = PTHREAD_MUTEX_INITIALIZER;

static void
on_event(void *arg, const struct volume_event *event)
{
    struct watch *watch = arg;
    scope_unlock pthread_mutex_t *held = scope_lock(&watch->mutex);
    (void)held;
    if (watch->notifier)
        notifier_event(watch->notifier, event);
}

static int
start_watching(struct mount_service *service, struct err *err)
{
    struct watch *watch = calloc(1, sizeof(*watch));
    if (!watch)
        return err_nomem(err);
    pthread_mutex_init(&watch->mutex, NULL);
    watch->notifier = service->notifier;
    pthread_mutex_lock(&watches_mutex);
    watch->next = watches;
    watches = watch;
    pthread_mutex_unlock(&watches_mutex);
    service->watch = watch;
    return volume_watch(service->args.volumes, on_event, watch, err);
}

static void
stop_watching(struct mount_service *service)
{
    if (!service->watch)
        return;
    pthread_mutex_lock(&service->watch->mutex);
    service->watch->notifier = NULL;
    pthread_mutex_unlock(&service->watch->mutex);
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
    info->read_only = args->read_only || volume->read_only;
    info->state = MOUNT_STARTING;
    (void)snprintf(info->volume_name, sizeof(info->volume_name), "%s", volume->name);
    (void)snprintf(info->folder, sizeof(info->folder), "%s", args->folder ? args->folder : "");
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
static int
bring_up(struct entry *entry, const struct volume_info *volume, enum attach_where where,
         struct err *err)
{
    if (attach_mount(entry, volume, where, err) < 0)
        return -1;
    if (record_put(entry, err) == 0) {
        set_state(entry, MOUNT_ACTIVE, false);
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
    insert_locked(service, entry);
    pthread_mutex_unlock(&service->mutex);
    int done = -1;
    if (args->path && path_in_use(service, entry))
        err_set(err, ERR_BUSY, "mountpoint '%s' is a mount already", entry->info.path);
    else
        done = bring_up(entry, &volume, where, err);
    if (done == 0) {
        *out = copy_info(entry);
        log_info(mount, "mounted id=%lld volume=%s path=%s read_only=%d", (long long)out->id,
                 out->volume_name, out->path, out->read_only);
        return 0;
    }
    struct err ignored = ERR_INIT;
    (void)!record_delete(service, entry->info.id, &ignored);
    drop_entry(entry);
    return -1;
}

/* ---- remove ---- */

static struct entry *
take(struct mount_service *service, int64_t id, struct err *err)
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

static void
take_down(struct entry *entry, bool forced)
{
    struct err err = ERR_INIT;
    struct mount_service *service = entry->service;
    attach_finish(entry, clock_mono_ns() + (forced ? FORCE_GRACE_NS : END_GRACE_NS));
    if (record_delete(service, entry->info.id, &err) < 0 && err.code != ERR_NOT_FOUND)
        log_error(mount, "the mount's row stays mount=%lld error=\"%s\"", (long long)entry->info.id,
                  err.msg);
    log_info(mount, "unmounted id=%lld path=%s", (long long)entry->info.id, entry->info.path);
    drop_entry(entry);
}

int
mount_remove(struct mount_service *service, int64_t id, const struct mount_remove_args *args,
             struct volume_barrier *barrier, struct err *err)
{
    struct volume_barrier own;
    struct entry *entry = take(service, id, err);
    if (!entry)
        return -1;
    enum mount_state before = entry->info.state;
    if (barrier_first(entry, args, barrier ? barrier : &own, err) < 0) {
        set_state(entry, before, false);
        return -1;
    }
    int done = attach_unmount(entry, false, false, err);
    bool forced = done < 0 && args->force;
    if (forced)
        done = attach_unmount(entry, true, false, err);
    if (done < 0) {
        set_state(entry, before, false);
        return -1;
    }
    set_state(entry, MOUNT_ENDING, true);
    if (before == MOUNT_FAILED)
        attach_clear(service, entry->info.path);
    take_down(entry, forced);
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
    struct entry *entry = take(service, id, err);
    if (!entry)
        return -1;
    pthread_mutex_lock(&service->mutex);
    set_lease_locked(entry, lease_ns);
    pthread_mutex_unlock(&service->mutex);
    int done = record_put(entry, err);
    *out = copy_info(entry);
    set_state(entry, out->state, false);
    return done;
}

/* ---- the keeper: ends leases, notices mounts that somebody else took away ---- */

static struct entry *
next_due_locked(struct mount_service *service, int64_t now, int64_t *wake_ns)
{
    for (struct entry *at = service->entries; at; at = at->next) {
        if (at->busy || at->info.state != MOUNT_ACTIVE)
            continue;
        if (at->gone || (at->expires_boot_ns != 0 && at->expires_boot_ns <= now))
            return at;
        if (at->expires_boot_ns != 0 && at->expires_boot_ns - now < *wake_ns)
            *wake_ns = at->expires_boot_ns - now;
    }
    return NULL;
}

static void
end_lease(struct mount_service *service, int64_t id)
{
    struct err err = ERR_INIT;
    struct mount_remove_args args = { .force = true };
    log_info(mount, "a lease has ended id=%lld", (long long)id);
    if (mount_remove(service, id, &args, NULL, &err) < 0)
        log_warn(mount, "cannot end the mount id=%lld error=\"%s\"", (long long)id, err.msg);
}

/* Nobody told us to unmount: programs may go on writing to the path, so it stays guarded (INV-11) and the mount stays in the
 * list until it is unmounted by its id. */
static void
lose_entry(struct mount_service *service, int64_t id)
{
    struct err err = ERR_INIT;
    struct entry *entry = take(service, id, &err);
    if (!entry)
        return;
    log_warn(mount, "a mount was taken away by somebody else id=%lld path=%s", (long long)id,
             entry->info.path);
    bool keep = !entry->own_path && !entry->transient;
    if (attach_unmount(entry, true, keep, &err) < 0)
        log_warn(mount, "cannot clean up the mount id=%lld error=\"%s\"", (long long)id, err.msg);
    if (!keep) {
        take_down(entry, true);
        return;
    }
    attach_finish(entry, clock_mono_ns());
    pthread_mutex_lock(&service->mutex);
    (void)snprintf(
        entry->info.error, sizeof(entry->info.error),
        "unmounted by somebody else; its path stays read-only until it is unmounted here");
    entry->gone = false;
    pthread_mutex_unlock(&service->mutex);
    set_state(entry, MOUNT_FAILED, false);
}

static void
sleep_locked(struct mount_service *service, int64_t span)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t end = until.tv_nsec + span;
    until.tv_sec += end / NS_PER_S;
    until.tv_nsec = end % NS_PER_S;
    (void)pthread_cond_timedwait(&service->changed, &service->mutex, &until);
}

static void *
keeper_main(void *arg)
{
    struct mount_service *service = arg;
    pthread_mutex_lock(&service->mutex);
    while (!service->closing) {
        int64_t span = 10 * NS_PER_S;
        struct entry *due = next_due_locked(service, clock_boot_ns(), &span);
        if (!due) {
            sleep_locked(service, span);
            continue;
        }
        int64_t id = due->info.id;
        bool gone = due->gone;
        pthread_mutex_unlock(&service->mutex);
        if (gone)
            lose_entry(service, id);
        else
            end_lease(service, id);
        pthread_mutex_lock(&service->mutex);
    }
    pthread_mutex_unlock(&service->mutex);
    return NULL;
}

/* ---- restore ---- */

static void
forget_row(struct mount_service *service, const struct index_mount *row)
{
    struct err err = ERR_INIT;
    attach_clear(service, row->path);
    if (attach_is_own_path(service, row->path))
        (void)rmdir(row->path);
    volume_connection_gone(service->args.volumes, row->id);
    if (record_delete(service, row->id, &err) < 0)
        log_warn(mount, "an old mount's row stays id=%lld error=\"%s\"", (long long)row->id,
                 err.msg);
}

static struct entry *
entry_of_row(struct mount_service *service, const struct index_mount *row)
{
    struct entry *entry = calloc(1, sizeof(*entry));
    if (!entry)
        return NULL;
    entry->service = service;
    entry->busy = true;
    entry->info.id = row->id;
    entry->info.volume = row->volume;
    entry->info.read_only = row->read_only;
    (void)snprintf(entry->info.folder, sizeof(entry->info.folder), "%s", row->folder);
    (void)snprintf(entry->info.path, sizeof(entry->info.path), "%s", row->path);
    (void)snprintf(entry->info.run, sizeof(entry->info.run), "%s", row->run);
    return entry;
}

static void
restore_row(struct mount_service *service, const struct index_mount *row)
{
    struct err err = ERR_INIT;
    struct volume_info volume;
    struct entry *entry = entry_of_row(service, row);
    if (!entry)
        return;
    volume_connection_gone(service->args.volumes, row->id);
    pthread_mutex_lock(&service->mutex);
    insert_locked(service, entry);
    pthread_mutex_unlock(&service->mutex);
    size_t parent = strlen(service->default_parent);
    enum attach_where where = ATTACH_AT_PATH;
    if (attach_is_own_path(service, row->path))
        where = ATTACH_IN_STATE;
    else if (strncmp(row->path, service->default_parent, parent) == 0 && row->path[parent] == '/' &&
             service->mounter)
        where = ATTACH_AT_NUMBER;
    int done = record_find_volume(service->args.volumes, row->volume, &volume, &err);
    if (done == 0) {
        (void)snprintf(entry->info.volume_name, sizeof(entry->info.volume_name), "%s", volume.name);
        done = bring_up(entry, &volume, where, &err);
    }
    if (done == 0) {
        log_info(mount, "mounted again id=%lld path=%s", (long long)row->id, entry->info.path);
        return;
    }
    log_error(mount, "cannot mount again id=%lld path=%s error=\"%s\"", (long long)row->id,
              row->path, err.msg);
    (void)snprintf(entry->info.error, sizeof(entry->info.error), "%s", err.msg);
    set_state(entry, MOUNT_FAILED, false);
}

int
mount_service_restore(struct mount_service *service, struct err *err)
{
    struct record_list list;
    int done = record_load(service, &list, err);
    for (size_t i = 0; done == 0 && i < list.count; i++) {
        if (list.rows[i].expires_ns != 0)
            forget_row(service, &list.rows[i]);
    }
    for (size_t i = 0; done == 0 && i < list.count; i++) {
        if (list.rows[i].expires_ns == 0)
            restore_row(service, &list.rows[i]);
    }
    free(list.rows);
    return done;
}

/* ---- open and close ---- */

static int
copy_settings(struct mount_service *service, const struct mount_service_args *args, struct err *err)
{
    service->args = *args;
    if (service->args.request_deadline_ns == 0)
        service->args.request_deadline_ns = DEFAULT_DEADLINE_NS;
    service->state_dir = realpath(args->state_dir, NULL);
    if (!service->state_dir)
        return err_sys(err, errno, "state directory '%s'", args->state_dir);
    service->default_parent = strdup(args->default_parent ? args->default_parent : "/mnt/data");
    return service->default_parent ? 0 : err_nomem(err);
}

static int
start_parts(struct mount_service *service, struct err *err)
{
    const struct mount_service_args *args = &service->args;
    service->park = park_new(args->meta_threads ? args->meta_threads : 4,
                             args->store_threads ? args->store_threads : 16, LIMIT_PARKED, err);
    if (!service->park)
        return -1;
    service->notifier = notifier_new(sessions_of, service, NOTIFY_QUEUE, err);
    if (!service->notifier || start_watching(service, err) < 0)
        return -1;
    if (pthread_create(&service->keeper, NULL, keeper_main, service) != 0)
        return err_set(err, ERR_NOMEM, "no thread for the mounts");
    service->keeper_runs = true;
    return 0;
}

struct mount_service *
mount_service_open(const struct mount_service_args *args, struct err *err)
{
    struct mount_service *service = calloc(1, sizeof(*service));
    if (!service) {
        if (args->mounter >= 0)
            (void)close(args->mounter);
        err_nomem(err);
        return NULL;
    }
    pthread_condattr_t attr;
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&service->mutex, NULL);
    pthread_cond_init(&service->changed, &attr);
    (void)pthread_condattr_destroy(&attr);
    if (args->mounter >= 0)
        service->mounter = mounter_new(args->mounter, args->mounter_pid, err);
    if ((args->mounter < 0 || service->mounter) && copy_settings(service, args, err) == 0 &&
        start_parts(service, err) == 0)
        return service;
    mount_service_close(service, 0);
    return NULL;
}

static void
stop_keeper(struct mount_service *service)
{
    pthread_mutex_lock(&service->mutex);
    service->closing = true;
    pthread_cond_broadcast(&service->changed);
    pthread_mutex_unlock(&service->mutex);
    if (service->keeper_runs)
        (void)pthread_join(service->keeper, NULL);
}

static bool
comes_back(const struct entry *entry)
{
    return !entry->transient && entry->info.expires_ns == 0;
}

/* All names first, so that no program starts something new; then each connection's end. */
static void
unmount_all(struct mount_service *service, int64_t deadline_ns)
{
    struct err err = ERR_INIT;
    for (struct entry *at = service->entries; at; at = at->next) {
        at->info.state = MOUNT_ENDING;
        if (attach_unmount(at, true, comes_back(at), &err) < 0)
            log_warn(mount, "cannot unmount path=%s error=\"%s\"", at->info.path, err.msg);
    }
    while (service->entries) {
        struct entry *entry = service->entries;
        bool keep_row = comes_back(entry);
        attach_finish(entry, deadline_ns);
        if (!keep_row)
            (void)!record_delete(service, entry->info.id, &err);
        drop_entry(entry);
    }
}

void
mount_service_close(struct mount_service *service, int64_t deadline_ns)
{
    if (!service)
        return;
    stop_keeper(service);
    stop_watching(service);
    notifier_free(service->notifier);
    unmount_all(service, deadline_ns);
    park_free(service->park);
    mounter_free(service->mounter);
    pthread_cond_destroy(&service->changed);
    pthread_mutex_destroy(&service->mutex);
    free(service->default_parent);
    free(service->state_dir);
    free(service);
}
