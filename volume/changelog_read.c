#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/scope.h"
#include "base/ticker.h"
#include "volume/changelog_impl.h"

/*
 * The thread that follows: which volumes are in use, and what others changed in them. Who follows a volume says so with an object of
 * its own and looks who else does; alone, it looks every 15 s and writes nothing. A volume that nobody used for ten minutes is left.
 */

struct using
{
    struct changelog *log;
    int64_t now;
    int64_t mounted[CHANGELOG_SLOTS];
    size_t mounted_count;
};

static int64_t
unused_for(const struct changelog *log, int64_t volume, int64_t now)
{
    int64_t used = atomic_load_explicit(&log->used_ns[(uint64_t)volume % CHANGELOG_SLOTS],
                                        memory_order_relaxed);
    return used == 0 ? INT64_MAX : now - used;
}

static int
see_mount(void *arg, const struct index_mount *row, struct err *err)
{
    struct using *call = arg;
    (void)err;
    if (call->mounted_count < CHANGELOG_SLOTS)
        call->mounted[call->mounted_count++] = row->volume;
    return 0;
}

static bool
is_mounted(const struct using *call, int64_t volume)
{
    for (size_t i = 0; i < call->mounted_count; i++)
        if (call->mounted[i] == volume)
            return true;
    return false;
}

static struct changelog_volume *
find_volume(const struct changelog *log, int64_t id)
{
    for (unsigned i = 0; i < log->volumes; i++)
        if (log->volume[i]->id == id)
            return log->volume[i];
    return NULL;
}

static int
add_volume(struct changelog *log, const struct index_volume *row, struct err *err)
{
    struct changelog_volume *volume = calloc(1, sizeof(*volume));
    if (volume == NULL)
        return err_nomem(err);
    volume->id = row->id;
    text_set(volume->name, row->name);
    text_set(volume->prefix, row->prefix);
    volume->live = true;
    buf_init(&volume->line, CHANGELOG_OBJECT_MAX - CHANGELOG_HEAD_MAX);
    buf_init(&volume->out, CHANGELOG_OBJECT_MAX - CHANGELOG_HEAD_MAX);
    pthread_mutex_lock(&log->lock);
    log->volume[log->volumes++] = volume;
    pthread_mutex_unlock(&log->lock);
    return 0;
}

static int
see_volume(void *arg, const struct index_volume *row, struct err *err)
{
    struct using *call = arg;
    struct changelog *log = call->log;
    bool mounted = is_mounted(call, row->id);
    if (!mounted && unused_for(log, row->id, call->now) > CHANGELOG_FORGET)
        return 0;
    if (mounted)
        atomic_store_explicit(&log->used_ns[(uint64_t)row->id % CHANGELOG_SLOTS], call->now,
                              memory_order_relaxed);
    struct changelog_volume *volume = find_volume(log, row->id);
    if (volume == NULL)
        return log->volumes < CHANGELOG_SLOTS ? add_volume(log, row, err) : 0;
    volume->live = true;
    return 0;
}

static int
using_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct using *call = arg;
    call->mounted_count = 0;
    for (unsigned i = 0; i < call->log->volumes; i++)
        call->log->volume[i]->live = false;
    if (index_mount_each(tx, see_mount, call, err) != 0)
        return -1;
    return index_volume_each(tx, see_volume, call, err);
}

/* ---- one volume ---- */

static uint64_t
keep_from(void)
{
    int64_t ms = clock_wall_ns() / NS_PER_MS - (int64_t)CHANGELOG_KEEP_MS;
    return ms > 0 ? (uint64_t)ms : 0;
}

/* Who comes says so before it looks, so that of two that come at once each sees the other. */
static int
join(struct changelog *log, struct changelog_volume *volume, struct err *err)
{
    uint64_t last;
    if (changelog_write_own(log, volume, keep_from(), &last, err) != 0)
        return -1;
    volume->members = 0;
    volume->last_seq = 0;
    if (volume->out_seq < last)
        volume->out_seq = last;
    pthread_mutex_lock(&log->lock);
    volume->say = volume->gap = true;
    pthread_mutex_unlock(&log->lock);
    if (!changelog_write_now(log, volume))
        log_debug(volume, "others do not know yet that we follow volume=%s", volume->name);
    if (changelog_member_list(log, volume, err) != 0)
        return -1;
    pthread_mutex_lock(&log->lock);
    volume->joined = true;
    pthread_mutex_unlock(&log->lock);
    volume->listed_ns = volume->polled_ns = clock_mono_ns();
    return 0;
}

static void
leave(struct changelog *log, struct changelog_volume *volume)
{
    struct err err = ERR_INIT;
    uint64_t last;
    pthread_mutex_lock(&log->lock);
    bool alone = !volume->others && !volume->has_out && volume->line.len == 0;
    if (alone)
        volume->joined = false;
    else
        volume->say = volume->leaving = true;
    pthread_mutex_unlock(&log->lock);
    if (!alone)
        ticker_kick(log->writer);
    else if (changelog_write_own(log, volume, UINT64_MAX, &last, &err) != 0)
        log_debug(volume, "objects of the change log stay volume=%s why=%s", volume->name, err.msg);
}

/* So that the others know that we live, and what is old goes. */
static void
say_again(struct changelog *log, struct changelog_volume *volume, int64_t now)
{
    struct err err = ERR_INIT;
    uint64_t last;
    pthread_mutex_lock(&log->lock);
    bool due = now - volume->wrote_ns > CHANGELOG_SAY && !volume->say;
    volume->say |= due;
    pthread_mutex_unlock(&log->lock);
    if (!due)
        return;
    ticker_kick(log->writer);
    if (changelog_write_own(log, volume, keep_from(), &last, &err) != 0)
        log_debug(volume, "old objects of the change log stay volume=%s why=%s", volume->name,
                  err.msg);
}

static bool
has_joined(struct changelog *log, const struct changelog_volume *volume)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&log->lock);
    (void)held;
    return volume->joined;
}

static void
poll_volume(struct changelog *log, struct changelog_volume *volume, int64_t now)
{
    struct changelog_hints hints = { .count = 0 };
    struct err err = ERR_INIT;
    int rc = 0;
    volume->polled_ns = now;
    if (now - volume->listed_ns >= CHANGELOG_IDLE_POLL) {
        volume->listed_ns = now;
        say_again(log, volume, now);
        rc = changelog_member_list(log, volume, &err);
    }
    if (rc == 0)
        rc = changelog_member_read(log, volume, &hints, &err);
    /* What was read of one gateway is followed although another's could not be. */
    struct err why = ERR_INIT;
    if (changelog_hint_follow(log, volume, &hints, &why) != 0)
        log_debug(volume, "cannot look at what others changed volume=%s why=%s", volume->name,
                  why.msg);
    if (rc != 0)
        log_debug(volume, "cannot read the change log volume=%s why=%s", volume->name, err.msg);
    free(hints.hint);
}

static int64_t
poll_every(const struct changelog *log, const struct changelog_volume *volume, int64_t now)
{
    bool active = volume->members > 0 && unused_for(log, volume->id, now) < CHANGELOG_USED;
    return active ? log->poll_ns : CHANGELOG_IDLE_POLL;
}

static void
step_volume(struct changelog *log, struct changelog_volume *volume)
{
    struct err err = ERR_INIT;
    int64_t now = clock_mono_ns();
    bool joined = has_joined(log, volume);
    if (!volume->live) {
        if (joined)
            leave(log, volume);
        return;
    }
    if (!joined) {
        if (volume->polled_ns != 0 && now - volume->polled_ns < log->poll_ns)
            return;
        volume->polled_ns = now;
        if (join(log, volume, &err) != 0)
            log_debug(volume, "cannot follow volume=%s why=%s", volume->name, err.msg);
    } else if (now - volume->polled_ns >= poll_every(log, volume, now)) {
        poll_volume(log, volume, now);
    }
    (void)changelog_hint_sweep(log, volume);
}

int64_t
changelog_read_tick(void *arg)
{
    struct changelog *log = arg;
    struct using call = { .log = log, .now = clock_mono_ns() };
    struct err err = ERR_INIT;
    if (atomic_load(&log->service->stopping))
        return NS_PER_S;
    if (index_read(log->service->index, using_tx, &call, &err) != 0)
        log_debug(volume, "cannot read which volumes are in use: %s", err.msg);
    for (unsigned i = 0; i < log->volumes && !atomic_load(&log->service->stopping); i++)
        step_volume(log, log->volume[i]);
    return log->poll_ns < NS_PER_S ? log->poll_ns : NS_PER_S;
}
