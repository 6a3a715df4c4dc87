#include "volume/timed_impl.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/scope.h"
#include "base/ticker.h"
#include "versioning/schedule.h"
#include "volume/service_impl.h"
#include "volume/snapshot_impl.h"

#define FIRST (5 * NS_PER_S)
#define EVERY (60 * NS_PER_S)
#define SLICE_TRIES 30 /* of a moment each, so that an end of the gateway does not wait */
#define SLICE (2 * NS_PER_S)

struct pass {
    struct volume_service *service;
    int64_t now_ns;
    struct index_volume volume;
    struct schedule_rule rule;
    struct schedule_taken *taken; /* by time */
    char (*name)[LIMIT_VOLUME_NAME + 1];
    size_t count, cap;
    struct schedule_plan plan;
    bool look;    /* whether anything */
    bool changed; /* since the last one */
    bool elsewhere;
};

static int
add_taken(void *arg, const struct index_snapshot *row, struct err *err)
{
    struct pass *pass = arg;
    int64_t ignored;
    if (!schedule_name_time(row->name, &ignored))
        return 0;
    if (pass->count == pass->cap) {
        size_t cap = pass->cap == 0 ? 64 : pass->cap * 2;
        struct schedule_taken *taken = reallocarray(pass->taken, cap, sizeof(*taken));
        if (taken == NULL)
            return err_nomem(err);
        pass->taken = taken;
        void *name = reallocarray(pass->name, cap, sizeof(*pass->name));
        if (name == NULL)
            return err_nomem(err);
        pass->name = name;
        pass->cap = cap;
    }
    text_set(pass->name[pass->count], row->name);
    pass->taken[pass->count++] = (struct schedule_taken){ .id = row->id, .at_ns = row->at_ns };
    return 0;
}

static int
plan_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct pass *pass = arg;
    const struct schedule_taken *last = NULL;
    pass->count = 0;
    if (index_volume_get(tx, pass->volume.id, &pass->volume, err) != 0)
        return -1;
    pass->rule = schedule_unpack(pass->volume.options >> INDEX_VOLUME_SCHEDULE_SHIFT);
    if (!schedule_is_on(&pass->rule))
        memset(&pass->plan, 0, sizeof(pass->plan));
    if (!schedule_is_on(&pass->rule))
        return 0;
    if (index_snapshot_each(tx, pass->volume.id, add_taken, pass, err) != 0)
        return -1;
    schedule_plan(&pass->rule, pass->now_ns, pass->taken, pass->count, &pass->plan);
    pass->changed = true;
    for (size_t i = 0; i < pass->count; i++)
        if (last == NULL || pass->taken[i].id > last->id)
            last = &pass->taken[i];
    if (!pass->plan.take || last == NULL || !pass->look)
        return 0;
    struct index_snapshot row = { .id = last->id, .volume = pass->volume.id, .at_ns = last->at_ns };
    return index_snapshot_is_behind(tx, &row, &pass->changed, err);
}

static void
forget(struct pass *pass)
{
    free(pass->taken);
    free(pass->name);
}

int
volume_snapshot_next(struct volume_service *service, int64_t volume, int64_t *out, struct err *err)
{
    scope_free struct pass *pass = calloc(1, sizeof(*pass));
    if (pass == NULL)
        return err_nomem(err);
    pass->now_ns = clock_wall_ns();
    pass->volume.id = volume;
    int rc = index_read(service->index, plan_tx, pass, err);
    *out = pass->plan.next_ns;
    forget(pass);
    return rc;
}

/* ---- taking one ---- */

/* Where only the holder of the lease writes, only it takes and removes them. */
static bool
is_ours(const struct pass *pass)
{
    const struct store_caps *caps = &pass->service->store->caps;
    struct sync_rules rules = { .put_if_absent = caps->put_if_absent == STORE_YES,
                                .put_if_match = caps->put_if_match == STORE_YES,
                                .delete_if_match = caps->delete_if_match == STORE_YES };
    uint64_t epoch;
    return !sync_needs_lease(&rules) || lease_keeper_held(pass->service, &pass->volume, &epoch);
}

static int
see_manifest(void *arg, const struct store_list_entry *entry, struct err *err)
{
    struct pass *pass = arg;
    char name[LIMIT_VOLUME_NAME + 1];
    const char *last = strrchr(entry->key, '/');
    int64_t at_ns;
    (void)err;
    size_t len = last != NULL ? strcspn(last + 1, ".") : 0;
    if (len == 0 || len >= sizeof(name))
        return 0;
    (void)snprintf(name, sizeof(name), "%.*s", (int)len, last + 1);
    if (!schedule_name_time(name, &at_ns) || !schedule_serves(&pass->rule, at_ns, pass->now_ns))
        return 0;
    bool own = false;
    for (size_t i = 0; i < pass->count; i++)
        own |= strcmp(pass->name[i], name) == 0;
    pass->elsewhere |= !own;
    return 0;
}

/* Another gateway on this bucket may have taken it: its manifest tells. */
static int
look_elsewhere(struct pass *pass, struct err *err)
{
    char prefix[LIMIT_KEY + 1];
    (void)snprintf(prefix, sizeof(prefix), SNAPSHOT_PREFIX "%s/" SCHEDULE_NAME_PREFIX,
                   pass->volume.name);
    struct store_list list = { .prefix = prefix, .fn = see_manifest, .arg = pass };
    pass->elsewhere = false;
    return store_list(pass->service->store, &list, err);
}

static int
flush_patiently(struct pass *pass, struct err *err)
{
    struct volume_barrier barrier;
    struct err local = ERR_INIT;
    for (int tries = 0; tries < SLICE_TRIES && !atomic_load(&pass->service->stopping); tries++) {
        local = (struct err)ERR_INIT;
        if (volume_flush_quietly(pass->service, pass->volume.id, clock_mono_ns() + SLICE, &barrier,
                                 &local) == 0)
            return 0;
        if (local.code != ERR_NOT_SYNCED)
            break;
    }
    return local.msg[0] == '\0' ? err_set(err, ERR_NOT_SYNCED, "the gateway ends")
                                : err_set(err, local.code, "%s", local.msg);
}

static int
take(struct pass *pass, struct err *err)
{
    static const struct volume_ctx ctx = { .actor = "schedule" };
    struct volume_snapshot snapshot;
    char name[LIMIT_VOLUME_NAME + 1];
    if (look_elsewhere(pass, err) != 0 || pass->elsewhere)
        return pass->elsewhere ? 0 : -1;
    schedule_name(pass->now_ns, name);
    if (flush_patiently(pass, err) != 0 ||
        snapshot_insert(pass->service, &ctx, pass->volume.id, name, &snapshot, err) != 0)
        return -1;
    log_info(volume, "snapshot taken by the rule volume=%s name=%s", pass->volume.name, name);
    return 0;
}

static int
remove_old(struct pass *pass, struct err *err)
{
    for (size_t i = 0; i < pass->count; i++) {
        struct err local = ERR_INIT;
        if (!pass->taken[i].drop)
            continue;
        if (volume_snapshot_delete(pass->service, pass->volume.id, pass->name[i], &local) == 0)
            log_info(volume, "snapshot removed by the rule volume=%s name=%s", pass->volume.name,
                     pass->name[i]);
        else if (local.code != ERR_NOT_FOUND)
            return err_set(err, local.code, "%s", local.msg);
    }
    ticker_kick(pass->service->pruner);
    return 0;
}

static int
run_volume(struct pass *pass, struct err *err)
{
    struct index *index = pass->service->index;
    if (index_read(index, plan_tx, pass, err) != 0)
        return err->code == ERR_NOT_FOUND ? 0 : -1;
    bool wanted = pass->plan.take && pass->changed;
    bool held = (pass->volume.options & INDEX_VOLUME_HELD) != 0;
    if ((!wanted && pass->plan.drops == 0) || held || !is_ours(pass))
        return 0;
    struct err why = ERR_INIT;
    if (wanted && take(pass, &why) != 0)
        log_warn(volume, "no snapshot of volume '%s' was taken by its rule yet: %s",
                 pass->volume.name, why.msg);
    if (wanted && index_read(index, plan_tx, pass, err) != 0)
        return err->code == ERR_NOT_FOUND ? 0 : -1;
    return pass->plan.drops > 0 ? remove_old(pass, err) : 0;
}

/* ---- the thread ---- */

struct volumes {
    int64_t *id;
    size_t count, cap;
};

static int
add_volume(void *arg, const struct index_volume *row, struct err *err)
{
    struct volumes *volumes = arg;
    if (row->options >> INDEX_VOLUME_SCHEDULE_SHIFT == 0)
        return 0;
    if (volumes->count == volumes->cap) {
        size_t cap = volumes->cap == 0 ? 16 : volumes->cap * 2;
        int64_t *id = reallocarray(volumes->id, cap, sizeof(*id));
        if (id == NULL)
            return err_nomem(err);
        volumes->id = id;
        volumes->cap = cap;
    }
    volumes->id[volumes->count++] = row->id;
    return 0;
}

static int
volumes_tx(struct index_tx *tx, void *arg, struct err *err)
{
    return index_volume_each(tx, add_volume, arg, err);
}

void
timed_run(struct volume_service *service, int64_t now_ns)
{
    struct volumes volumes = { 0 };
    struct err err = ERR_INIT;
    int rc = index_read(service->index, volumes_tx, &volumes, &err);
    for (size_t i = 0; rc == 0 && i < volumes.count && !atomic_load(&service->stopping); i++) {
        scope_free struct pass *pass = calloc(1, sizeof(*pass));
        if (pass == NULL)
            break;
        pass->service = service;
        pass->now_ns = now_ns;
        pass->look = true;
        pass->volume.id = volumes.id[i];
        rc = run_volume(pass, &err);
        forget(pass);
    }
    free(volumes.id);
    if (rc != 0)
        log_warn(volume, "cannot keep the rules of snapshots: %s", err.msg);
}

static int64_t
tick(void *arg)
{
    timed_run(arg, clock_wall_ns());
    return EVERY;
}

int
timed_start(struct volume_service *service, struct err *err)
{
    service->timer = ticker_start("hf-timed", FIRST, tick, service, err);
    return service->timer != NULL ? 0 : -1;
}

void
timed_stop(struct volume_service *service)
{
    ticker_stop(service->timer);
    service->timer = NULL;
}

void
timed_kick(struct volume_service *service)
{
    ticker_kick(service->timer);
}
