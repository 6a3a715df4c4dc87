#include "volume/snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/parse.h"
#include "base/path.h"
#include "base/scope.h"
#include "base/ticker.h"
#include "versioning/schedule.h"
#include "volume/fork_impl.h"
#include "volume/manifest_impl.h"
#include "volume/service_impl.h"
#include "volume/snapshot_impl.h"

/* A snapshot is a row: its time. The history keeps what was present then (prune.c), and a thread writes the manifests. */

#define RETRY (60 * NS_PER_S)
#define LATER (3600 * NS_PER_S)
#define LOUD (12 * 3600 * NS_PER_S) /* without a manifest for so long, a lost index would lose it */

static void
fill(const struct index_snapshot *row, struct volume_snapshot *out)
{
    memset(out, 0, sizeof(*out));
    text_set(out->name, row->name);
    out->at_ns = row->at_ns;
    out->published = row->state != INDEX_SNAPSHOT_TAKEN;
    out->files = row->files;
    out->bytes = row->bytes;
    text_set(out->actor, row->actor);
    text_set(out->run, row->run);
    int64_t ignored;
    out->automatic = schedule_name_time(row->name, &ignored);
}

static void
manifest_key(const char *volume, const char *name, char out[LIMIT_KEY + 1])
{
    (void)snprintf(out, LIMIT_KEY + 1, SNAPSHOT_PREFIX "%s/%s.json.zst", volume, name);
}

/* ---- taking one ---- */

static int
create_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct index_volume volume;
    struct index_snapshot *row = arg;
    if (index_volume_get(tx, row->volume, &volume, err) != 0)
        return -1;
    if (volume.history_ns == 0)
        return err_set(err, ERR_UNSUPPORTED,
                       "volume '%s' keeps no history, so there is nothing that a snapshot could "
                       "keep: holdfast volume set %s --history 30",
                       volume.name, volume.name);
    row->at_ns = clock_wall_ns();
    return index_snapshot_insert(tx, row, err);
}

int
snapshot_insert(struct volume_service *service, const struct volume_ctx *ctx, int64_t volume,
                const char *name, struct volume_snapshot *out, struct err *err)
{
    struct index_snapshot row = { .volume = volume, .state = INDEX_SNAPSHOT_TAKEN };
    text_set(row.name, name);
    text_set(row.actor, ctx->actor != NULL ? ctx->actor : "");
    text_set(row.run, ctx->run != NULL ? ctx->run : "");
    if (index_write(service->index, INDEX_FULL, create_tx, &row, err) != 0)
        return -1;
    fill(&row, out);
    ticker_kick(service->publisher);
    return 0;
}

int
volume_snapshot_create(struct volume_service *service, const struct volume_ctx *ctx, int64_t volume,
                       const char *name, struct volume_snapshot *out, struct err *err)
{
    struct volume_barrier barrier;
    if (path_check_volume(name, err) != 0)
        return -1;
    if (strncmp(name, SCHEDULE_NAME_PREFIX, sizeof(SCHEDULE_NAME_PREFIX) - 1) == 0 ||
        strncmp(name, FORK_PREFIX, sizeof(FORK_PREFIX) - 1) == 0)
        return err_set(err, ERR_INVAL,
                       "names that begin with '" SCHEDULE_NAME_PREFIX "' or '" FORK_PREFIX
                       "' are those of snapshots that a rule or a fork takes and removes");
    if (volume_flush_quietly(service, volume, service_deadline(ctx), &barrier, err) != 0)
        return err_wrap(err, "no snapshot was taken");
    return snapshot_insert(service, ctx, volume, name, out, err);
}

/* ---- the others ---- */

struct each_call {
    int64_t volume;
    volume_snapshot_fn *fn;
    void *arg;
};

static int
tell(void *arg, const struct index_snapshot *row, struct err *err)
{
    struct each_call *call = arg;
    struct volume_snapshot snapshot;
    fill(row, &snapshot);
    return call->fn(call->arg, &snapshot, err);
}

static int
each_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct each_call *call = arg;
    return index_snapshot_each(tx, call->volume, tell, call, err);
}

int
volume_snapshot_each(struct volume_service *service, int64_t volume, volume_snapshot_fn *fn,
                     void *arg, struct err *err)
{
    struct each_call call = { .volume = volume, .fn = fn, .arg = arg };
    return index_read(service->index, each_tx, &call, err);
}

struct find_call {
    int64_t volume;
    const char *name;
    struct index_snapshot row;
};

static int
find_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct find_call *call = arg;
    return index_snapshot_find(tx, call->volume, call->name, &call->row, err);
}

int
volume_snapshot_find(struct volume_service *service, int64_t volume, const char *name,
                     struct volume_snapshot *out, struct err *err)
{
    struct find_call call = { .volume = volume, .name = name };
    if (index_read(service->index, find_tx, &call, err) != 0)
        return -1;
    fill(&call.row, out);
    return 0;
}

/* Its manifest goes as any object that is not wanted. */
static int
drop_manifest(struct index_tx *tx, const struct index_snapshot *row, struct err *err)
{
    struct index_key key = { .volume = row->volume, .discard = true };
    struct index_volume owner;
    if (index_volume_get(tx, row->volume, &owner, err) != 0)
        return -1;
    manifest_key(owner.name, row->name, key.key);
    text_set(key.etag, row->etag);
    if (index_key_put(tx, &key, err) != 0)
        return -1;
    return key_want_since(tx, row->volume, key.key, 0, err);
}

int
snapshot_end(struct index_tx *tx, const struct index_snapshot *row, struct err *err)
{
    if (index_snapshot_delete(tx, row->id, err) != 0)
        return -1;
    return row->etag[0] == '\0' ? 0 : drop_manifest(tx, row, err);
}

/* An older manifest of this name, or this one, by a request whose answer was lost. */
static int
present_etag(struct volume_service *service, const char *key, char out[LIMIT_ETAG], struct err *err)
{
    struct store_object object;
    struct err local = ERR_INIT;
    store_object_init(&object);
    out[0] = '\0';
    int rc = store_head(service->store, key, 0, &object, &local);
    if (rc == 0)
        text_copy(out, LIMIT_ETAG, object.etag);
    store_object_release(&object);
    if (rc == 0 || local.code == ERR_NOT_FOUND)
        return 0;
    *err = local;
    return -1;
}

struct delete_call {
    struct find_call find;
    struct index_volume owner;
    char etag[LIMIT_ETAG]; /* of a manifest that nobody has heard of */
};

static int
seek_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct delete_call *call = arg;
    return find_tx(tx, &call->find, err) != 0
               ? -1
               : index_volume_get(tx, call->find.volume, &call->owner, err);
}

static int
delete_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct delete_call *call = arg;
    struct index_snapshot *row = &call->find.row;
    int64_t looked = row->id;
    if (find_tx(tx, &call->find, err) != 0 || fork_check_snapshot(tx, row, err) != 0)
        return -1;
    if (row->etag[0] == '\0' && row->id == looked)
        text_set(row->etag, call->etag);
    return snapshot_end(tx, row, err);
}

int
volume_snapshot_delete(struct volume_service *service, int64_t volume, const char *name,
                       struct err *err)
{
    scope_free struct delete_call *call = calloc(1, sizeof(*call));
    char key[LIMIT_KEY + 1];
    if (call == NULL)
        return err_nomem(err);
    call->find.volume = volume;
    call->find.name = name;
    if (index_read(service->index, seek_tx, call, err) != 0)
        return -1;
    /* Its manifest may have been written by a process that died before it could say so. */
    manifest_key(call->owner.name, name, key);
    if (call->find.row.etag[0] == '\0' && present_etag(service, key, call->etag, err) != 0)
        return err_wrap(err, "whether the bucket has the manifest of '%s' cannot be seen", name);
    if (index_write(service->index, INDEX_FULL, delete_tx, call, err) != 0)
        return -1;
    sync_kick(service);
    return 0;
}

int
volume_snapshot_time(struct volume_service *service, int64_t volume, const char *text, int64_t *out,
                     struct err *err)
{
    struct volume_snapshot snapshot;
    int64_t ago;
    if (time_parse_rfc3339(text, out) == 0)
        return 0;
    if (parse_duration(text, &ago)) {
        *out = clock_wall_ns() - ago;
        return 0;
    }
    if (volume_snapshot_find(service, volume, text, &snapshot, err) == 0) {
        *out = snapshot.at_ns;
        return 0;
    }
    if (err->code != ERR_NOT_FOUND)
        return -1;
    return err_set(
        err, ERR_NOT_FOUND,
        "'%s' is no time (2026-01-31T12:00:00Z, or 2h: so long ago) and there is no such "
        "snapshot",
        text);
}

/* ---- manifests ---- */

struct publish {
    struct volume_service *service;
    struct index_snapshot row; /* id 0: none is left */
    struct index_volume volume;
    int64_t after;
};

static int
pick(void *arg, const struct index_snapshot *row, struct err *err)
{
    struct publish *call = arg;
    (void)err;
    if (row->state != INDEX_SNAPSHOT_TAKEN || row->id <= call->after || call->row.id != 0)
        return 0;
    call->row = *row;
    return 0;
}

static int
pick_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct publish *call = arg;
    call->row.id = 0;
    if (index_snapshot_each(tx, 0, pick, call, err) != 0)
        return -1;
    return call->row.id == 0 ? 0 : index_volume_get(tx, call->row.volume, &call->volume, err);
}

/* It was deleted meanwhile: then what was written goes, unless another one of that name overwrites it. */
static int
published_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct publish *call = arg;
    struct index_snapshot row;
    struct err missing = ERR_INIT;
    if (index_snapshot_find(tx, call->row.volume, call->row.name, &row, &missing) == 0)
        return row.id == call->row.id ? index_snapshot_update(tx, &call->row, err) : 0;
    if (missing.code != ERR_NOT_FOUND) {
        *err = missing;
        return -1;
    }
    return drop_manifest(tx, &call->row, err);
}

static int
put_manifest(struct publish *call, int fd, uint64_t size, struct err *err)
{
    struct store *store = call->service->store;
    struct store_put_result result;
    char key[LIMIT_KEY + 1], etag[LIMIT_ETAG];
    manifest_key(call->volume.name, call->row.name, key);
    if (present_etag(call->service, key, etag, err) != 0)
        return -1;
    struct store_put put = { .key = key,
                             .content_type = "application/zstd",
                             .body = { .fd = fd, .size = size } };
    if (etag[0] == '\0' && store->caps.put_if_absent == STORE_YES)
        put.cond.kind = STORE_COND_ABSENT;
    else if (etag[0] != '\0' && store->caps.put_if_match == STORE_YES)
        put.cond = (struct store_cond){ .kind = STORE_COND_MATCH, .etag = etag };
    if (store_put(store, &put, &result, err) != 0)
        return -1;
    text_set(call->row.etag, result.etag);
    call->row.state = INDEX_SNAPSHOT_PUBLISHED;
    if (index_write(call->service->index, INDEX_NORMAL, published_tx, call, err) != 0)
        return -1;
    sync_kick(call->service);
    return 0;
}

static int
publish(struct publish *call, struct err *err)
{
    struct volume_past *past = NULL;
    uint64_t size = 0;
    scope_fd int fd = sys->openat(call->service->state_fd, ".", O_TMPFILE | O_RDWR, 0600);
    if (fd < 0)
        return err_sys(err, errno, "cannot make a file in the state directory");
    if (volume_past_open(call->service, call->row.volume, call->row.at_ns, &past, err) != 0)
        return -1;
    struct manifest_head head = { .volume = call->volume.name, .name = call->row.name };
    volume_past_usage(past, &call->row.files, &call->row.bytes);
    int rc = manifest_write(past, &head, fd, &size, err);
    volume_past_close(past);
    return rc == 0 ? put_manifest(call, fd, size, err) : -1;
}

static void
complain(const struct publish *call, const struct err *why)
{
    bool loud = clock_wall_ns() - call->row.at_ns > LOUD;
    if (loud)
        log_error(volume,
                  "the manifest of snapshot '%s' of volume '%s' is not in the bucket since over 12 "
                  "hours: with the index it would be lost: %s",
                  call->row.name, call->volume.name, why->msg);
    else
        log_warn(volume, "the manifest of snapshot '%s' has to wait: %s", call->row.name, why->msg);
}

static int64_t
publish_all(void *arg)
{
    struct volume_service *service = arg;
    struct publish *call = calloc(1, sizeof(*call));
    struct err err = ERR_INIT;
    int64_t pause = LATER;
    if (call == NULL)
        return RETRY;
    call->service = service;
    while (!atomic_load(&service->stopping)) {
        if (index_read(service->index, pick_tx, call, &err) != 0) {
            log_warn(volume, "cannot look for snapshots: %s", err.msg);
            pause = RETRY;
            break;
        }
        if (call->row.id == 0)
            break;
        call->after = call->row.id;
        if (publish(call, &err) != 0) {
            complain(call, &err);
            pause = RETRY;
        }
    }
    free(call);
    return pause;
}

int
snapshot_start(struct volume_service *service, struct err *err)
{
    service->publisher = ticker_start("hf-snapshots", NS_PER_S, publish_all, service, err);
    return service->publisher != NULL ? 0 : -1;
}

void
snapshot_stop(struct volume_service *service)
{
    ticker_stop(service->publisher);
    service->publisher = NULL;
}
