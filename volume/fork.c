#include "volume/fork_impl.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/parse.h"
#include "base/path.h"
#include "base/scope.h"
#include "base/ticker.h"
#include "volume/admin_impl.h"
#include "volume/past_impl.h"
#include "volume/preserve_impl.h"
#include "volume/rebuild_impl.h"
#include "volume/snapshot_impl.h"

#define FIRST NS_PER_S
#define EVERY (60 * NS_PER_S)
#define BATCH 256u
#define TRIES 4u /* a version goes from its key to the history meanwhile */

/* The thread, and what is told of the job that it is at. */
struct forker {
    struct ticker *ticker;
    pthread_mutex_t lock; /* a leaf */
    int64_t volume;
    uint64_t files, copied;
    char error[160];
};

/* ---- jobs: a volume with INDEX_VOLUME_FORKING, and its parent's snapshot "fork-<name>" ---- */

struct find_job {
    char name[sizeof(FORK_PREFIX) + LIMIT_VOLUME_NAME];
    struct index_snapshot row; /* id 0: none */
};

static int
match_job(void *arg, const struct index_snapshot *row, struct err *err)
{
    struct find_job *find = arg;
    (void)err;
    if (strcmp(row->name, find->name) == 0)
        find->row = *row;
    return 0;
}

static int
find_job(struct index_tx *tx, const char *volume, struct index_snapshot *out, struct err *err)
{
    struct find_job find = { .row.id = 0 };
    (void)snprintf(find.name, sizeof(find.name), FORK_PREFIX "%s", volume);
    if (index_snapshot_each(tx, 0, match_job, &find, err) != 0)
        return -1;
    *out = find.row;
    return 0;
}

/* The volume that a snapshot of this name is held for; false: none. */
static int
held_for(struct index_tx *tx, const char *name, bool *out, struct err *err)
{
    struct index_volume fork;
    struct err missing = ERR_INIT;
    *out = false;
    if (strncmp(name, FORK_PREFIX, sizeof(FORK_PREFIX) - 1) != 0)
        return 0;
    if (index_volume_find(tx, name + sizeof(FORK_PREFIX) - 1, &fork, &missing) != 0)
        return missing.code == ERR_NOT_FOUND ? 0 : err_set(err, missing.code, "%s", missing.msg);
    *out = (fork.options & INDEX_VOLUME_FORKING) != 0;
    return 0;
}

struct need {
    struct index_tx *tx;
    int64_t at_ns; /* 0: of any time */
    char name[LIMIT_VOLUME_NAME + 1];
};

static int
see_need(void *arg, const struct index_snapshot *row, struct err *err)
{
    struct need *need = arg;
    bool held = false;
    if (need->at_ns != 0 && need->at_ns != row->at_ns)
        return 0;
    if (held_for(need->tx, row->name, &held, err) != 0)
        return -1;
    if (held)
        text_set(need->name, row->name + sizeof(FORK_PREFIX) - 1);
    return held;
}

static int
check(struct index_tx *tx, int64_t volume, int64_t at_ns, struct err *err)
{
    struct need need = { .tx = tx, .at_ns = at_ns };
    if (index_snapshot_each(tx, volume, see_need, &need, err) != 0)
        return -1;
    return need.name[0] == '\0'
               ? 0
               : err_set(err, ERR_BUSY,
                         "volume '%s' is being made of it: wait until it is done, or delete that",
                         need.name);
}

int
fork_check_volume(struct index_tx *tx, const struct index_volume *volume, struct err *err)
{
    return check(tx, volume->id, 0, err);
}

int
fork_check_snapshot(struct index_tx *tx, const struct index_snapshot *row, struct err *err)
{
    return check(tx, row->volume, row->at_ns, err);
}

int
fork_forget(struct index_tx *tx, const struct index_volume *volume, struct err *err)
{
    struct index_snapshot job;
    if ((volume->options & INDEX_VOLUME_FORKING) == 0)
        return 0;
    if (find_job(tx, volume->name, &job, err) != 0)
        return -1;
    return job.id == 0 ? 0 : snapshot_end(tx, &job, err);
}

/* ---- beginning ---- */

struct begin_call {
    const struct volume_fork_args *args;
    struct index_snapshot job;
    struct index_volume row;
};

static int
begin_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct begin_call *call = arg;
    struct index_volume *row = &call->row, parent;
    if (index_volume_get(tx, call->args->parent, &parent, err) != 0)
        return -1;
    if (parent.history_ns == 0)
        return err_set(err, ERR_UNSUPPORTED,
                       "volume '%s' keeps no history: what is replaced while its files are copied "
                       "would be missing",
                       parent.name);
    *row = parent;
    text_set(row->name, call->args->name);
    (void)snprintf(row->prefix, sizeof(row->prefix), "%s/", row->name);
    row->options &= (1 << INDEX_VOLUME_SCHEDULE_SHIFT) - 1; /* no rule */
    row->options &= ~(int64_t)INDEX_VOLUME_HELD;
    row->options |= INDEX_VOLUME_FORKING;
    row->created_ns = clock_wall_ns();
    row->read_only = false;
    row->quota = 0;
    call->job.at_ns = call->args->at_ns != 0 ? call->args->at_ns : row->created_ns;
    if (call->job.at_ns > row->created_ns)
        return err_set(err, ERR_INVAL, "that time has not come yet");
    return admin_insert(tx, row, err) != 0 ? -1 : index_snapshot_insert(tx, &call->job, err);
}

static int
see_object(void *arg, const struct store_list_entry *entry, struct err *err)
{
    (void)arg;
    return err_set(err, ERR_NOT_EMPTY, "the bucket has '%.200s' already: give another name",
                   entry->key);
}

/* Nothing of the name may lie in the bucket: the copies are made without asking what they replace. */
static int
check_free(struct volume_service *service, const char *name, struct err *err)
{
    char key[LIMIT_KEY];
    struct err local = ERR_INIT;
    (void)snprintf(key, sizeof(key), VOLUMES_PREFIX "%s.json", name);
    if (store_head(service->store, key, 0, NULL, &local) == 0)
        return err_set(err, ERR_EXISTS, "volume '%s' exists in the bucket", name);
    if (local.code != ERR_NOT_FOUND)
        return err_set(err, local.code, "%s", local.msg);
    (void)snprintf(key, sizeof(key), "%s/", name);
    struct store_list list = { .prefix = key, .fn = see_object };
    return store_list(service->store, &list, err);
}

int
volume_fork(struct volume_service *service, const struct volume_ctx *ctx,
            const struct volume_fork_args *args, struct err *err)
{
    struct begin_call call = { .args = args };
    struct volume_barrier barrier;
    if (path_check_volume(args->name, err) != 0)
        return -1;
    if (strlen(args->name) + sizeof(FORK_PREFIX) - 1 > LIMIT_VOLUME_NAME)
        return err_set(err, ERR_NAME_TOO_LONG, "the name of a fork has %zu characters at most",
                       (size_t)LIMIT_VOLUME_NAME - sizeof(FORK_PREFIX) + 1);
    if (check_free(service, args->name, err) != 0)
        return -1;
    call.job.volume = args->parent;
    call.job.state = INDEX_SNAPSHOT_TAKEN;
    (void)snprintf(call.job.name, sizeof(call.job.name), FORK_PREFIX "%s", args->name);
    text_set(call.job.actor, ctx->actor != NULL ? ctx->actor : "");
    text_set(call.job.run, ctx->run != NULL ? ctx->run : "");
    if (volume_flush_quietly(service, args->parent, service_deadline(ctx), &barrier, err) != 0 ||
        index_write(service->index, INDEX_FULL, begin_tx, &call, err) != 0)
        return err_wrap(err, "no volume '%s' was made", args->name);
    ticker_kick(service->publisher);
    ticker_kick(service->forker->ticker);
    return 0;
}

/* ---- the copies ---- */

struct run {
    struct volume_service *service;
    struct forker *forker;
    struct index_volume volume;
    struct index_snapshot job;
    struct volume_past *past;
    char **there; /* keys that were copied by an earlier run, in order */
    size_t there_count, there_cap;
};

struct copy {
    struct run *run;
    const struct volume_past_entry *entry;
};

static int
by_key(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool
is_there(const struct run *run, const char *key)
{
    return run->there_count > 0 &&
           bsearch(&key, run->there, run->there_count, sizeof(run->there[0]), by_key) != NULL;
}

static int
copy_once(struct run *run, const struct past_source *from, const char *to, struct err *err)
{
    struct store *store = run->service->store;
    struct store_put_result result = { .outcome = STORE_NOT_DONE };
    struct object_room room;
    struct store_placement placement;
    struct store_object object;
    struct store_copy copy = { .from = from->key,
                               .from_if_match = from->etag,
                               .to = to,
                               .from_size = from->size,
                               .placement = object_placement(&run->volume, &room, &placement) };
    if (store->caps.server_side_copy == STORE_NO)
        return preserve_carry(run->service, &copy, &result, err);
    if (store_copy(store, &copy, &result, err) != 0)
        return -1;
    if (store->caps.copy_source_if_match == STORE_YES || strcmp(result.etag, from->etag) == 0)
        return 0;
    /* A store that does not judge the source's ETag: whether it is still that. */
    store_object_init(&object);
    int rc = store_head(store, from->key, 0, &object, err);
    if (rc == 0 && strcmp(object.etag, from->etag) != 0)
        rc = err_set(err, ERR_CONFLICT, "it was replaced while it was copied");
    store_object_release(&object);
    return rc;
}

static int
copy_file(struct run *run, const struct volume_past_entry *entry, const char *to, struct err *err)
{
    static const struct volume_ctx ctx = { .actor = "fork" };
    struct past_source from;
    struct err why = ERR_INIT;
    for (unsigned i = 0; i < TRIES; i++) {
        why = (struct err)ERR_INIT;
        if (past_source(run->service, &ctx, entry, &from, &why) == 0 &&
            copy_once(run, &from, to, &why) == 0)
            return 0;
        if (why.code != ERR_AGAIN && why.code != ERR_NOT_FOUND && why.code != ERR_CONFLICT)
            break;
    }
    return err_set(err, why.code, "'%.100s': %s", entry->path, why.msg);
}

/* Its marker; a folder of which nothing is known is there by what lies in it. */
static int
make_folder(struct run *run, const struct volume_past_entry *entry, const char *to, struct err *err)
{
    struct index_node node = { .kind = INDEX_DIR,
                               .mode = entry->mode,
                               .uid = entry->uid,
                               .gid = entry->gid,
                               .mtime_ns = entry->mtime_ns };
    struct index_content content = { .size = 0 };
    struct store_put_result result;
    struct object_room room;
    struct store_placement placement;
    struct meta meta;
    if (entry->node == 0)
        return 0;
    text_set(content.actor, run->job.actor);
    if (ulid_new(node.ulid, err) != 0 || ulid_new(content.version, err) != 0)
        return -1;
    meta_init(&meta);
    struct store_put put = { .key = to,
                             .meta = &meta,
                             .placement = object_placement(&run->volume, &room, &placement),
                             .body = { .mem = "", .fd = -1, .size = 0 } };
    int rc = object_meta_make(&node, &content, 0, &meta, err);
    if (rc == 0)
        rc = store_put(run->service->store, &put, &result, err);
    meta_release(&meta);
    return rc;
}

static int
copy_one(void *arg, struct err *err)
{
    struct copy *copy = arg;
    struct run *run = copy->run;
    char to[LIMIT_KEY + 1];
    bool folder = copy->entry->kind == INDEX_DIR;
    int len = snprintf(to, sizeof(to), "%s%s%s", run->volume.prefix, copy->entry->path,
                       folder ? "/" : "");
    if (len < 0 || (size_t)len >= sizeof(to))
        return err_set(err, ERR_NAME_TOO_LONG, "'%.100s' is too long below '%s'", copy->entry->path,
                       run->volume.prefix);
    int rc = 0;
    if (!is_there(run, to))
        rc = folder ? make_folder(run, copy->entry, to, err) : copy_file(run, copy->entry, to, err);
    pthread_mutex_lock(&run->forker->lock);
    run->forker->copied += rc == 0 && !folder;
    pthread_mutex_unlock(&run->forker->lock);
    return rc;
}

static int
volume_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct run *run = arg;
    if (index_volume_get(tx, run->volume.id, &run->volume, err) != 0)
        return -1;
    return find_job(tx, run->volume.name, &run->job, err);
}

/* 1: the gateway ends, or the volume was deleted meanwhile. */
static int
copy_all(struct run *run, struct err *err)
{
    const struct volume_past_entry *entry;
    scope_free struct copy *batch = calloc(BATCH, sizeof(*batch));
    size_t at = 0;
    if (batch == NULL)
        return err_nomem(err);
    do {
        struct err gone = ERR_INIT;
        size_t count = 0;
        while (count < BATCH && (entry = volume_past_next(run->past, &at)) != NULL)
            if (entry->path[0] != '\0')
                batch[count++] = (struct copy){ run, entry };
        if (atomic_load(&run->service->stopping))
            return 1;
        if (index_read(run->service->index, volume_tx, run, &gone) != 0)
            return gone.code == ERR_NOT_FOUND ? 1 : err_set(err, gone.code, "%s", gone.msg);
        if (hold_check_row(&run->volume, err) != 0)
            return -1;
        if (rebuild_look_many(batch, sizeof(*batch), count, copy_one, err) != 0)
            return -1;
    } while (entry != NULL);
    return 0;
}

/* ---- one job ---- */

static int
see_there(void *arg, const struct store_list_entry *entry, struct err *err)
{
    struct run *run = arg;
    if (run->there_count == run->there_cap) {
        size_t cap = run->there_cap == 0 ? 256 : run->there_cap * 2;
        char **grown = reallocarray(run->there, cap, sizeof(*grown));
        if (grown == NULL)
            return err_nomem(err);
        run->there = grown;
        run->there_cap = cap;
    }
    run->there[run->there_count] = strdup(entry->key);
    return run->there[run->there_count++] != NULL ? 0 : err_nomem(err);
}

/* Only now others may find it in the bucket. */
static int
end_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct run *run = arg;
    if (volume_tx(tx, run, err) != 0)
        return -1;
    run->volume.options &= ~(int64_t)INDEX_VOLUME_FORKING;
    if (index_volume_update(tx, &run->volume, err) != 0)
        return -1;
    return run->job.id == 0 ? 0 : snapshot_end(tx, &run->job, err);
}

/* The volume was deleted a moment ago: a rebuild must not find it. */
static int
take_back(struct run *run, const char *name, struct err *err)
{
    char key[LIMIT_KEY];
    enum store_outcome outcome;
    struct err local = ERR_INIT;
    (void)snprintf(key, sizeof(key), VOLUMES_PREFIX "%s.json", name);
    struct store_delete req = { .key = key };
    if (store_delete(run->service->store, &req, &outcome, &local) == 0 ||
        local.code == ERR_NOT_FOUND)
        return 0;
    return err_set(err, local.code, "%s", local.msg);
}

static int
end(struct run *run, struct err *err)
{
    struct index_volume row = run->volume;
    row.options &= ~(int64_t)INDEX_VOLUME_FORKING;
    struct err why = ERR_INIT;
    if (admin_settings_put(run->service, &row, err) != 0)
        return -1;
    if (index_write(run->service->index, INDEX_FULL, end_tx, run, &why) != 0)
        return why.code == ERR_NOT_FOUND ? take_back(run, row.name, err)
                                         : err_set(err, why.code, "%s", why.msg);
    sync_kick(run->service);
    log_info(volume, "fork done volume=%s files=%llu", row.name,
             (unsigned long long)run->forker->copied);
    return 0;
}

static int
work(struct run *run, struct err *err)
{
    struct forker *forker = run->forker;
    uint64_t files, bytes;
    if (index_read(run->service->index, volume_tx, run, err) != 0)
        return err->code == ERR_NOT_FOUND ? 0 : -1;
    if (run->job.id == 0)
        return err_set(err, ERR_INTERNAL, "what it is to be made of is not known: delete it");
    if (volume_past_open(run->service, run->job.volume, run->job.at_ns, &run->past, err) != 0)
        return -1;
    struct store_list list = { .prefix = run->volume.prefix, .fn = see_there, .arg = run };
    if (store_list(run->service->store, &list, err) != 0)
        return -1;
    /* In bytewise order as listings are, but for stores that are folders. */
    if (run->there_count > 0)
        qsort(run->there, run->there_count, sizeof(run->there[0]), by_key);
    volume_past_usage(run->past, &files, &bytes);
    pthread_mutex_lock(&forker->lock);
    forker->volume = run->volume.id;
    forker->files = files;
    forker->copied = 0;
    pthread_mutex_unlock(&forker->lock);
    int rc = copy_all(run, err);
    return rc == 0 ? end(run, err) : rc < 0 ? -1 : 0;
}

static void
run_volume(struct volume_service *service, int64_t volume)
{
    struct forker *forker = service->forker;
    struct err err = ERR_INIT;
    scope_free struct run *run = calloc(1, sizeof(*run));
    if (run == NULL)
        return;
    run->service = service;
    run->forker = forker;
    run->volume.id = volume;
    int rc = work(run, &err);
    if (rc != 0)
        log_warn(volume, "volume '%s' is not made yet: %s", run->volume.name, err.msg);
    pthread_mutex_lock(&forker->lock);
    (void)snprintf(forker->error, sizeof(forker->error), "%.*s", (int)sizeof(forker->error) - 1,
                   rc != 0 ? err.msg : "");
    forker->volume = volume;
    pthread_mutex_unlock(&forker->lock);
    volume_past_close(run->past);
    for (size_t i = 0; i < run->there_count; i++)
        free(run->there[i]);
    free(run->there);
}

/* ---- the thread ---- */

struct next {
    int64_t after, volume;
};

static int
see_volume(void *arg, const struct index_volume *row, struct err *err)
{
    struct next *next = arg;
    (void)err;
    if ((row->options & INDEX_VOLUME_FORKING) != 0 && row->id > next->after &&
        (next->volume == 0 || row->id < next->volume))
        next->volume = row->id;
    return 0;
}

static int
next_tx(struct index_tx *tx, void *arg, struct err *err)
{
    return index_volume_each(tx, see_volume, arg, err);
}

void
fork_run(struct volume_service *service)
{
    struct next next = { 0 };
    struct err err = ERR_INIT;
    while (!atomic_load(&service->stopping)) {
        next.volume = 0;
        if (index_read(service->index, next_tx, &next, &err) != 0)
            log_warn(volume, "cannot look for forks: %s", err.msg);
        if (next.volume == 0)
            return;
        next.after = next.volume;
        run_volume(service, next.volume);
    }
}

static int64_t
tick(void *arg)
{
    fork_run(arg);
    return EVERY;
}

int
fork_start(struct volume_service *service, struct err *err)
{
    service->forker = calloc(1, sizeof(*service->forker));
    if (service->forker == NULL)
        return err_nomem(err);
    pthread_mutex_init(&service->forker->lock, NULL);
    service->forker->ticker = ticker_start("hf-fork", FIRST, tick, service, err);
    return service->forker->ticker != NULL ? 0 : -1;
}

void
fork_stop(struct volume_service *service)
{
    if (service->forker == NULL)
        return;
    ticker_stop(service->forker->ticker);
    service->forker->ticker = NULL;
}

void
fork_release(struct volume_service *service)
{
    if (service->forker != NULL)
        pthread_mutex_destroy(&service->forker->lock);
    free(service->forker);
    service->forker = NULL;
}

/* ---- told ---- */

struct state_call {
    const char *name;
    struct index_volume volume, parent;
    struct index_snapshot job;
};

static int
state_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct state_call *call = arg;
    if (index_volume_find(tx, call->name, &call->volume, err) != 0)
        return -1;
    if ((call->volume.options & INDEX_VOLUME_FORKING) == 0)
        return 0;
    if (find_job(tx, call->name, &call->job, err) != 0)
        return -1;
    return call->job.id == 0 ? 0 : index_volume_get(tx, call->job.volume, &call->parent, err);
}

int
volume_fork_state(struct volume_service *service, const char *name, struct volume_fork_state *out,
                  struct err *err)
{
    scope_free struct state_call *call = calloc(1, sizeof(*call));
    struct forker *forker = service->forker;
    memset(out, 0, sizeof(*out));
    if (call == NULL)
        return err_nomem(err);
    call->name = name;
    if (index_read(service->index, state_tx, call, err) != 0)
        return -1;
    if (call->job.id == 0)
        return 0;
    text_set(out->of, call->parent.name);
    out->at_ns = call->job.at_ns;
    pthread_mutex_lock(&forker->lock);
    if (forker->volume == call->volume.id) {
        out->files = forker->files;
        out->copied = forker->copied;
        text_set(out->error, forker->error);
    }
    pthread_mutex_unlock(&forker->lock);
    return 0;
}
