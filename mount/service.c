/* The service as a whole: its parts, its beginning and its end. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/scope.h"
#include "mount/service_impl.h"

#define NOTIFY_QUEUE 65536

/* ---- the volume's events outlive us: a hook that is never freed stands between ---- */

struct watch {
    pthread_mutex_t mutex; /* held over notifier_event() and event_log_event(): they never block */
    struct notifier *notifier;
    struct volume_service *volumes;
    struct event_log *events;
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
    /* Of what it did itself the only kernel needs no telling. */
    bool own = event->connection != 0 && watch->notifier && volume_kernel_count(watch->volumes) < 2;
    if (watch->notifier && !own)
        notifier_event(watch->notifier, event);
    if (watch->events)
        event_log_event(watch->events, event);
}

static void
on_pass(void *arg, volume_done_fn *done, void *done_arg)
{
    struct watch *watch = arg;
    pthread_mutex_lock(&watch->mutex);
    bool later = watch->notifier && notifier_pass(watch->notifier, done, done_arg);
    pthread_mutex_unlock(&watch->mutex);
    if (!later)
        done(done_arg);
}

static int
start_watching(struct mount_service *service, struct err *err)
{
    struct watch *watch = calloc(1, sizeof(*watch));
    if (!watch)
        return err_nomem(err);
    pthread_mutex_init(&watch->mutex, NULL);
    watch->notifier = service->notifier;
    watch->volumes = service->args.volumes;
    watch->events = service->events;
    pthread_mutex_lock(&watches_mutex);
    watch->next = watches;
    watches = watch;
    pthread_mutex_unlock(&watches_mutex);
    service->watch = watch;
    volume_teller(service->args.volumes, on_pass, watch);
    return volume_watch(service->args.volumes, on_event, watch, err);
}

static void
stop_watching(struct mount_service *service)
{
    if (!service->watch)
        return;
    pthread_mutex_lock(&service->watch->mutex);
    service->watch->notifier = NULL;
    service->watch->events = NULL;
    pthread_mutex_unlock(&service->watch->mutex);
}

static size_t
sessions_of(void *arg, int64_t volume, struct session **out, size_t max)
{
    struct mount_service *service = arg;
    size_t count = 0;
    scope_unlock pthread_mutex_t *held = scope_lock(&service->mutex);
    (void)held;
    for (const struct entry *at = service->entries; at && count < max; at = at->next) {
        if (at->session && (volume == 0 || at->info.volume == volume) &&
            at->info.state != MOUNT_FAILED)
            out[count++] = session_ref(at->session);
    }
    return count;
}

static size_t
all_sessions(void *arg, struct session **out, size_t max)
{
    struct mount_service *service = arg;
    size_t count = 0;
    scope_unlock pthread_mutex_t *held = scope_lock(&service->mutex);
    (void)held;
    for (const struct entry *at = service->entries; at && count < max; at = at->next) {
        if (at->session)
            out[count++] = session_ref(at->session);
    }
    return count;
}

static int
start_lending(struct mount_service *service, struct err *err)
{
    if (!service->mounter)
        return 0;
    service->lender = lender_new(service->mounter, all_sessions, service, err);
    if (!service->lender)
        return -1;
    volume_on_content_gone(service->args.volumes, lender_content_gone, service->lender);
    return 0;
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
    if (service->notifier)
        service->events = event_log_new(err);
    if (service->events)
        service->pasts = past_cache_new(args->volumes, err);
    if (!service->pasts || start_watching(service, err) < 0 || start_lending(service, err) < 0)
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
        mount_carried_free(args->carried);
        err_nomem(err);
        return NULL;
    }
    service->args.carried = args->carried;
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
        mount_drop(entry);
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
    /* A start that failed has served nobody: the next one may have more luck with what lives. */
    bool unserved = service->args.carried != NULL;
    if (!unserved)
        unmount_all(service, deadline_ns);
    while (service->entries)
        mount_drop(service->entries);
    mount_carried_free(service->args.carried);
    if (service->lender)
        volume_on_content_gone(service->args.volumes, NULL, NULL);
    lender_free(service->lender);
    park_free(service->park);
    if (!unserved)
        mounter_end(service->mounter);
    past_cache_free(service->pasts);
    event_log_free(service->events);
    mounter_free(service->mounter);
    pthread_cond_destroy(&service->changed);
    pthread_mutex_destroy(&service->mutex);
    free(service->default_parent);
    free(service->state_dir);
    free(service);
}
