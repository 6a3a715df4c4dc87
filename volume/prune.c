#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/scope.h"
#include "base/ticker.h"
#include "versioning/retention.h"
#include "volume/preserve_impl.h"
#include "volume/prune_impl.h"

/*
 * Versions whose time is over: what goes is decided by versioning/retention.c, path by path. In one transaction the row goes and the
 * copy's key gets work, as any object that is not wanted; the engine deletes it, looks after lost answers, waits for the lease where
 * the store needs one. So it may be interrupted anywhere. Copies that were asked for and never heard of are looked at.
 */

#define EVERY (3600 * NS_PER_S)
#define FIRST (60 * NS_PER_S)
#define BATCH 256u
#define PATH_MOST 4096u
#define SEEN_MOST 4096u

struct batch {
    struct volume_service *service;
    struct index_tx *tx;
    struct index_volume volume;
    int64_t now_ns;
    char path[LIMIT_PATH + 1]; /* whose versions are in `row` */
    char from[LIMIT_PATH + 1]; /* paths before this were seen */
    unsigned seen; /* rows in this reading: it ends at the next path, for readings are short */
    struct {
        char id[ULID_SIZE];
        int64_t made_ns, gone_ns;
    } * row;           /* oldest first */
    int64_t *snapshot; /* their times */
    size_t snapshot_count, snapshot_cap;
    int64_t found_ns; /* the oldest one that a rebuild has found, INT64_MAX: none */
    struct retention_version *version;
    size_t count;
    char (*drop)[ULID_SIZE];
    size_t drop_count, dropped;
    bool more;
    struct index_history stale; /* a copy of a day ago that nobody has heard of, id "": none */
};

/* Whether a snapshot shows it. Since a rebuild the index does not know when bytes were made that got new attributes: of what was found
 * then only the end counts. */
static bool
is_pinned(const struct batch *call, int64_t made_ns, int64_t gone_ns)
{
    for (size_t i = 0; i < call->snapshot_count; i++)
        if (made_ns <= call->snapshot[i] && call->snapshot[i] < gone_ns)
            return true;
    return call->found_ns < gone_ns;
}

static void
judge_path(struct batch *call)
{
    /* A volume that keeps no history any more gives up what it has. */
    struct retention_policy policy = { .keep_ns = call->volume.history_ns > 0
                                                      ? call->volume.history_ns
                                                      : 1,
                                       .keep_count = call->volume.history_count,
                                       .now_ns = call->now_ns };
    size_t count = call->count;
    for (size_t i = 0; i < count; i++)
        call->version[i] =
            (struct retention_version){ .gone_ns = call->row[count - 1 - i].gone_ns,
                                        .pinned = is_pinned(call, call->row[count - 1 - i].made_ns,
                                                            call->row[count - 1 - i].gone_ns) };
    if (retention_plan(&policy, call->version, count) == 0)
        return;
    for (size_t i = count; i-- > 0 && call->drop_count < BATCH;)
        if (call->version[i].drop)
            memcpy(call->drop[call->drop_count++], call->row[count - 1 - i].id, ULID_SIZE);
}

static int
see_row(void *arg, const struct index_history *row, struct err *err)
{
    struct batch *call = arg;
    (void)err;
    call->seen++;
    if (strcmp(row->path, call->path) != 0 || call->count == PATH_MOST) {
        judge_path(call);
        text_set(call->path, row->path);
        call->count = 0;
        call->more = call->drop_count == BATCH || call->seen > SEEN_MOST;
        if (call->more)
            return 1;
    }
    if (row->state != INDEX_HISTORY_KEPT) {
        if (row->state == INDEX_HISTORY_COPYING &&
            call->now_ns - row->gone_ns > RETENTION_ALWAYS_NS)
            call->stale = *row;
        return 0;
    }
    memcpy(call->row[call->count].id, row->id, ULID_SIZE);
    call->row[call->count].made_ns = row->made_ns;
    call->row[call->count++].gone_ns = row->gone_ns;
    return 0;
}

static int
see_snapshot(void *arg, const struct index_snapshot *row, struct err *err)
{
    struct batch *call = arg;
    if (call->snapshot_count == call->snapshot_cap) {
        size_t cap = call->snapshot_cap == 0 ? 16 : call->snapshot_cap * 2;
        int64_t *grown = reallocarray(call->snapshot, cap, sizeof(*grown));
        if (grown == NULL)
            return err_nomem(err);
        call->snapshot = grown;
        call->snapshot_cap = cap;
    }
    call->snapshot[call->snapshot_count++] = row->at_ns;
    if (row->state == INDEX_SNAPSHOT_FOUND && row->at_ns < call->found_ns)
        call->found_ns = row->at_ns;
    return 0;
}

static int
read_snapshots(struct index_tx *tx, struct batch *call, struct err *err)
{
    call->snapshot_count = 0;
    call->found_ns = INT64_MAX;
    return index_snapshot_each(tx, call->volume.id, see_snapshot, call, err);
}

/* Snapshots are read anew: one that was taken since the plan was made keeps what it shows (docs/mechanisms.md section 5). */
static int
drop_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct batch *call = arg;
    if (read_snapshots(tx, call, err) != 0)
        return -1;
    for (size_t i = 0; i < call->drop_count; i++) {
        struct index_history row;
        struct err missing = ERR_INIT;
        if (index_history_get(tx, call->drop[i], &row, &missing) != 0) {
            if (missing.code == ERR_NOT_FOUND)
                continue;
            *err = missing;
            return -1;
        }
        if (is_pinned(call, row.made_ns, row.gone_ns))
            continue;
        if (preserve_drop(tx, &row, err) != 0)
            return -1;
        call->dropped++;
    }
    return 0;
}

static int
plan_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct batch *call = arg;
    call->count = call->drop_count = 0;
    call->seen = 0;
    call->more = false;
    call->path[0] = '\0';
    if (read_snapshots(tx, call, err) != 0 ||
        index_history_from(tx, call->volume.id, call->from, see_row, call, err) != 0)
        return -1;
    if (!call->more)
        judge_path(call);
    text_set(call->from, call->path);
    return 0;
}

/* ---- copies that nobody has heard of ---- */

static int
stale_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct batch *call = arg;
    struct index_history row;
    struct err missing = ERR_INIT;
    if (index_history_get(tx, call->stale.id, &row, &missing) != 0 ||
        row.state != INDEX_HISTORY_COPYING)
        return 0;
    if (call->stale.etag[0] == '\0')
        return index_history_delete(tx, row.id, err);
    row.state = INDEX_HISTORY_KEPT;
    text_set(row.etag, call->stale.etag);
    return index_history_put(tx, &row, err);
}

static int
settle_stale(struct batch *call, struct err *err)
{
    struct store_object object;
    struct err local = ERR_INIT;
    char key[LIMIT_KEY + 1];
    if (preserve_key(&call->volume, call->stale.path, call->stale.id, key, err) != 0)
        return -1;
    store_object_init(&object);
    int rc = store_head(call->service->store, key, 0, &object, &local);
    if (rc == 0)
        text_set(call->stale.etag, object.etag);
    store_object_release(&object);
    if (rc != 0 && local.code != ERR_NOT_FOUND) {
        *err = local;
        return -1;
    }
    return index_write(call->service->index, INDEX_NORMAL, stale_tx, call, err);
}

/* ---- a volume ---- */

static int
prune_volume(struct batch *call, struct err *err)
{
    struct volume_service *service = call->service;
    call->from[0] = '\0';
    do {
        if (atomic_load(&service->stopping))
            return 0;
        call->stale.id[0] = '\0';
        if (index_read(service->index, plan_tx, call, err) != 0 ||
            (call->drop_count > 0 &&
             index_write(service->index, INDEX_NORMAL, drop_tx, call, err) != 0) ||
            (call->stale.id[0] != '\0' && settle_stale(call, err) != 0))
            return -1;
        if (call->drop_count > 0)
            sync_kick(service);
    } while (call->more);
    return 0;
}

struct names_call {
    int64_t id[64];
    size_t count;
    int64_t after;
};

static int
see_volume(void *arg, const struct index_volume *row, struct err *err)
{
    struct names_call *call = arg;
    (void)err;
    if (row->id > call->after && call->count < 64)
        call->id[call->count++] = row->id;
    return 0;
}

static int
volumes_tx(struct index_tx *tx, void *arg, struct err *err)
{
    return index_volume_each(tx, see_volume, arg, err);
}

static int
volume_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct batch *call = arg;
    return index_volume_get(tx, call->volume.id, &call->volume, err);
}

/* So long a run is known to have read something before the gateway was started. */
#define RUNS_NS (90ll * 24 * 3600 * NS_PER_S)

/* What was done to names is of no use any more when the versions of then are gone. */
static int
changes_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct batch *call = arg;
    unsigned count;
    int64_t keep = call->volume.history_ns > RETENTION_ALWAYS_NS ? call->volume.history_ns
                                                                 : RETENTION_ALWAYS_NS;
    int64_t before = call->now_ns - keep;
    if (read_snapshots(tx, call, err) != 0)
        return -1;
    for (size_t i = 0; i < call->snapshot_count; i++) /* renames since lead back to its paths */
        before = call->snapshot[i] < before ? call->snapshot[i] : before;
    if (index_change_prune(tx, call->volume.id, before, BATCH, &count, err) != 0)
        return -1;
    call->more = count == BATCH;
    if (index_stale_prune(tx, call->volume.id, before, err) != 0)
        return -1;
    return index_run_prune(tx, call->now_ns - RUNS_NS, err);
}

/* Where writes need the volume's lease, whoever holds it prunes: nobody else could delete what it gives up. */
static bool
may_prune(const struct batch *call)
{
    const struct store_caps *caps = &call->service->store->caps;
    const struct sync_rules rules = { .put_if_absent = caps->put_if_absent == STORE_YES,
                                      .put_if_match = caps->put_if_match == STORE_YES,
                                      .delete_if_match = caps->delete_if_match == STORE_YES };
    uint64_t epoch;
    return !sync_needs_lease(&rules) || lease_keeper_held(call->service, &call->volume, &epoch);
}

static int
prune_one(struct batch *call, int64_t volume, struct err *err)
{
    struct err gone = ERR_INIT;
    call->volume.id = volume;
    if (index_read(call->service->index, volume_tx, call, &gone) != 0)
        return gone.code == ERR_NOT_FOUND ? 0 : err_set(err, gone.code, "%s", gone.msg);
    if (!may_prune(call))
        return 0;
    if (prune_volume(call, err) != 0)
        return -1;
    do {
        if (index_write(call->service->index, INDEX_NORMAL, changes_tx, call, err) != 0)
            return -1;
    } while (call->more && !atomic_load(&call->service->stopping));
    return 0;
}

int
prune_all(struct volume_service *service, size_t *dropped, struct err *err)
{
    scope_free struct batch *call = calloc(1, sizeof(*call));
    struct names_call names = { 0 };
    int rc = 0;
    if (call == NULL)
        return err_nomem(err);
    call->service = service;
    call->now_ns = clock_wall_ns();
    call->row = calloc(PATH_MOST, sizeof(*call->row));
    call->version = calloc(PATH_MOST, sizeof(*call->version));
    call->drop = calloc(BATCH, sizeof(*call->drop));
    if (call->row == NULL || call->version == NULL || call->drop == NULL)
        rc = err_nomem(err);
    while (rc == 0) {
        names.count = 0;
        rc = index_read(service->index, volumes_tx, &names, err);
        for (size_t i = 0; rc == 0 && i < names.count; i++)
            rc = prune_one(call, names.after = names.id[i], err);
        if (names.count < 64)
            break;
    }
    *dropped = call->dropped;
    free(call->row);
    free(call->snapshot);
    free(call->version);
    free(call->drop);
    return rc;
}

static int64_t
prune_now(void *arg)
{
    struct err err = ERR_INIT;
    size_t dropped = 0;
    if (prune_all(arg, &dropped, &err) != 0)
        log_warn(volume, "cannot prune the history: %s", err.msg);
    else if (dropped > 0)
        log_info(volume, "history pruned versions=%zu", dropped);
    return EVERY;
}

int
prune_start(struct volume_service *service, struct err *err)
{
    service->pruner = ticker_start("hf-prune", FIRST, prune_now, service, err);
    return service->pruner != NULL ? 0 : -1;
}

void
prune_stop(struct volume_service *service)
{
    ticker_stop(service->pruner);
    service->pruner = NULL;
}
