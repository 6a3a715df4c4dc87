#include "base/log.h"
#include "base/scope.h"
#include "base/ticker.h"
#include "volume/changelog_impl.h"

/*
 * The change log: gateways of one bucket tell each other what they brought into it, so that what others do is seen within seconds and
 * not only when a folder is listed anew (docs/mechanisms.md section 8). Lines are hints. Nothing here holds up a change, and what is
 * lost of the log is made good by a sweep, or by the next listing.
 */

static struct changelog_volume *
find_locked(struct changelog *log, int64_t id)
{
    for (unsigned i = 0; i < log->volumes; i++)
        if (log->volume[i]->id == id)
            return log->volume[i];
    return NULL;
}

void
changelog_used(const struct volume_service *service, int64_t volume)
{
    struct changelog *log = service->changelog;
    if (log == NULL || volume <= 0)
        return;
    _Atomic int64_t *slot = &log->used_ns[(uint64_t)volume % CHANGELOG_SLOTS];
    int64_t now = clock_mono_ns(), before = atomic_load_explicit(slot, memory_order_relaxed);
    if (before != 0 && now - before < NS_PER_S / 2)
        return;
    atomic_store_explicit(slot, now, memory_order_relaxed);
    if (before == 0 || now - before > CHANGELOG_FORGET)
        ticker_kick(log->reader);
}

int64_t
changelog_swept_ns(const struct volume_service *service, int64_t volume)
{
    struct changelog *log = service->changelog;
    if (log == NULL)
        return 0;
    return atomic_load_explicit(&log->swept_ns[(uint64_t)volume % CHANGELOG_SLOTS],
                                memory_order_relaxed);
}

static bool
is_file_key(const char *key, const struct key_view *kv)
{
    size_t prefix = strlen(kv->volume.prefix);
    return kv->conflict_id[0] == '\0' && kv->history_id[0] == '\0' &&
           strncmp(key, ".holdfast/", 10) != 0 && strncmp(key, kv->volume.prefix, prefix) == 0 &&
           key[prefix] != '\0';
}

void
changelog_note(struct volume_service *service, const char *key, const struct key_view *kv,
               const struct sync_have *have)
{
    struct changelog *log = service->changelog;
    if (log == NULL || !is_file_key(key, kv))
        return;
    struct changelog_line line = { .gone = !have->present,
                                   .size = have->size,
                                   .time_ns = clock_wall_ns() };
    text_set(line.path, key + strlen(kv->volume.prefix));
    text_set(line.etag, have->etag);
    text_set(line.version, have->version);
    if (have->present && strcmp(kv->content.version, have->version) == 0) {
        text_set(line.base, kv->content.base_version);
        text_set(line.actor, kv->content.actor);
        text_set(line.run, kv->content.run);
    }
    changelog_used(service, kv->volume.id);
    pthread_mutex_lock(&log->lock);
    struct changelog_volume *volume = find_locked(log, kv->volume.id);
    pthread_mutex_unlock(&log->lock);
    /* Who is not followed yet begins with an object that says that changes are missing before it. */
    if (volume != NULL)
        changelog_write_line(log, volume, &line);
}

/* ---- life ---- */

int
changelog_open(struct volume_service *service, int64_t poll_ns, struct err *err)
{
    if (poll_ns <= 0)
        return 0;
    struct changelog *log = calloc(1, sizeof(*log));
    if (log == NULL)
        return err_nomem(err);
    pthread_mutex_init(&log->lock, NULL);
    log->service = service;
    log->poll_ns = poll_ns;
    service->changelog = log;
    return 0;
}

int
changelog_start(struct volume_service *service, struct err *err)
{
    struct changelog *log = service->changelog;
    if (log == NULL)
        return 0;
    log->writer = ticker_start("hf-log", NS_PER_S, changelog_write_tick, log, err);
    if (log->writer == NULL)
        return -1;
    log->reader = ticker_start("hf-follow", NS_PER_S, changelog_read_tick, log, err);
    return log->reader == NULL ? -1 : 0;
}

/* The last word: what is left, and that no more comes. Where nobody listens, nothing stays. */
static void
end_volume(struct changelog *log, struct changelog_volume *volume)
{
    struct err err = ERR_INIT;
    uint64_t last = 0;
    if (!volume->joined)
        return;
    if (volume->others) {
        volume->say = volume->leaving = true;
        volume->not_before_ns = 0;
        /* One that went before may still have had no answer. */
        bool done = changelog_write_now(log, volume);
        if (volume->joined)
            done = changelog_write_now(log, volume);
        if (!done)
            log_debug(volume, "the end of the change log was not written volume=%s", volume->name);
    } else if (changelog_write_own(log, volume, UINT64_MAX, &last, &err) != 0) {
        log_debug(volume, "objects of the change log stay volume=%s why=%s", volume->name, err.msg);
    }
}

void
changelog_close(struct volume_service *service)
{
    struct changelog *log = service->changelog;
    if (log == NULL)
        return;
    ticker_stop(log->reader);
    ticker_stop(log->writer);
    log->reader = log->writer = NULL;
    for (unsigned i = 0; i < log->volumes; i++)
        end_volume(log, log->volume[i]);
}

void
changelog_release(struct volume_service *service)
{
    struct changelog *log = service->changelog;
    if (log == NULL)
        return;
    for (unsigned i = 0; i < log->volumes; i++) {
        struct changelog_volume *volume = log->volume[i];
        buf_release(&volume->line);
        buf_release(&volume->out);
        free(volume->todo);
        free(volume);
    }
    service->changelog = NULL;
    pthread_mutex_destroy(&log->lock);
    free(log);
}
