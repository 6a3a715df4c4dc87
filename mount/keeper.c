/* The keeper thread: ends leases, and notices mounts that somebody else took away. */
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/scope.h"
#include "mount/service_impl.h"

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

/* An adopted connection whose old answers nobody can ask for any more. */
static struct entry *
next_settled_locked(struct mount_service *service, int64_t now)
{
    for (struct entry *at = service->entries; at; at = at->next) {
        if (!at->busy && at->session && at->settled_ns != 0 && at->settled_ns <= now)
            return at;
    }
    return NULL;
}

/* Runs without the mutex: only `busy` ones are ever changed by others. */
static void
settle(struct mount_service *service)
{
    pthread_mutex_lock(&service->mutex);
    struct entry *entry = next_settled_locked(service, clock_mono_ns());
    uint32_t first = entry ? session_first_slot(entry->session) : 0;
    int64_t id = entry ? entry->info.id : 0;
    if (entry)
        entry->settled_ns = 0;
    pthread_mutex_unlock(&service->mutex);
    if (entry)
        volume_connection_settled(service->args.volumes, id, first, first + (1u << 16));
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
    struct entry *entry = mount_take(service, id, &err);
    if (!entry)
        return;
    log_warn(mount, "a mount was taken away by somebody else id=%lld path=%s", (long long)id,
             entry->info.path);
    bool keep = !entry->own_path && !entry->transient;
    if (attach_unmount(entry, true, keep, &err) < 0)
        log_warn(mount, "cannot clean up the mount id=%lld error=\"%s\"", (long long)id, err.msg);
    if (!keep) {
        mount_take_down(entry, true);
        return;
    }
    attach_finish(entry, clock_mono_ns());
    pthread_mutex_lock(&service->mutex);
    (void)snprintf(
        entry->info.error, sizeof(entry->info.error),
        "unmounted by somebody else; its path stays read-only until it is unmounted here");
    entry->gone = false;
    pthread_mutex_unlock(&service->mutex);
    mount_set_state(entry, MOUNT_FAILED, false);
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

void *
keeper_main(void *arg)
{
    struct mount_service *service = arg;
    pthread_mutex_lock(&service->mutex);
    while (!service->closing) {
        int64_t span = 10 * NS_PER_S;
        struct entry *due = next_due_locked(service, clock_boot_ns(), &span);
        if (!due) {
            sleep_locked(service, span);
            pthread_mutex_unlock(&service->mutex);
            settle(service);
            past_cache_sweep(service->pasts);
            pthread_mutex_lock(&service->mutex);
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
