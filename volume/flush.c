#include <sys/stat.h>

#include "base/log.h"
#include "base/scope.h"
#include "volume/move_impl.h"

/* The barrier, and what is not in the bucket yet. */

struct pending_call {
    struct index_tx *tx;
    int64_t volume;
    int64_t until_ns; /* only work that began up to then counts */
    bool hurry;       /* the first look: all that is there counts, and is due at once */
    int64_t now_ns;
    struct volume_barrier *out;
    char after[LIMIT_KEY + 1];
    unsigned seen;
    struct index_intent *hurried;
    size_t hurried_count;
};

#define PAGE 256u

static int
count_pending(void *arg, const struct index_intent *row, struct err *err)
{
    struct pending_call *call = arg;
    (void)err;
    text_set(call->after, row->key);
    call->seen++;
    /* The wall clock may have been put back since the work began. */
    if (call->hurry && row->since_ns > call->until_ns)
        call->until_ns = row->since_ns;
    if (row->since_ns > call->until_ns)
        return 0;
    if (call->out->pending++ == 0 ||
        (call->out->first_error[0] == '\0' && row->last_error[0] != '\0')) {
        text_set(call->out->first_key, row->key);
        text_set(call->out->first_error, row->last_error);
    }
    if (call->hurry && row->not_before_ns > call->now_ns && call->hurried_count < PAGE)
        call->hurried[call->hurried_count++] = *row;
    return 0;
}

static int
pending_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct pending_call *call = arg;
    call->out->pending = 0;
    call->out->first_key[0] = call->out->first_error[0] = '\0';
    call->after[0] = '\0';
    do {
        call->seen = 0;
        call->hurried_count = 0;
        if (index_intent_each(tx, call->volume, call->after, PAGE, count_pending, call, err) != 0)
            return -1;
        for (size_t i = 0; i < call->hurried_count; i++) {
            call->hurried[i].not_before_ns = call->now_ns;
            call->hurried[i].tries = 0;
            if (index_intent_put(tx, &call->hurried[i], err) != 0)
                return -1;
        }
    } while (call->seen == PAGE);
    return 0;
}

/* While one of them is there, the others need not be looked at. */
struct watch_call {
    int64_t volume;
    int64_t until_ns;
    char key[LIMIT_KEY + 1]; /* "" at first */
    bool found;
};

static int
watch_row(void *arg, const struct index_intent *row, struct err *err)
{
    struct watch_call *call = arg;
    (void)err;
    call->found = row->since_ns <= call->until_ns;
    if (!call->found)
        return 0;
    text_set(call->key, row->key);
    return 1;
}

static int
watch_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct watch_call *call = arg;
    struct index_intent row;
    struct err missing = ERR_INIT;
    char after[LIMIT_KEY + 1];
    call->found = call->key[0] != '\0' && index_intent_get(tx, call->key, &row, &missing) == 0 &&
                  row.since_ns <= call->until_ns;
    if (call->found)
        return 0;
    text_set(after, call->key);
    if (index_intent_each(tx, call->volume, after, UINT32_MAX, watch_row, call, err) != 0)
        return -1;
    /* Work may have come in before it that is as old as what it comes of. */
    if (call->found || after[0] == '\0')
        return 0;
    return index_intent_each(tx, call->volume, "", UINT32_MAX, watch_row, call, err);
}

#define LOOK_PAUSE (2 * NS_PER_MS) /* at first; then longer, as there is more to wait for */
#define LOOK_PAUSE_MAX (20 * NS_PER_MS)

/* Sleeps until the work is done or the deadline, which is no error. */
static int
await_work(struct volume_service *service, const struct pending_call *pending, int64_t deadline_ns,
           struct err *err)
{
    struct watch_call call = { .volume = pending->volume, .until_ns = pending->until_ns };
    int64_t pause = LOOK_PAUSE;
    for (;;) {
        uint64_t seen = sync_progress(service);
        if (index_read(service->index, watch_tx, &call, err) != 0)
            return -1;
        int64_t now = clock_mono_ns();
        if (!call.found || now >= deadline_ns || atomic_load(&service->stopping))
            return 0;
        clock_sleep_ns(pause);
        pause = pause < LOOK_PAUSE_MAX ? pause * 2 : pause;
        int64_t nap = now + 200 * NS_PER_MS;
        (void)sync_wait(service, seen, nap < deadline_ns ? nap : deadline_ns);
    }
}

struct conflicts_read {
    int64_t volume;
    struct told_view told;
    uint64_t count;
};

static int
count_conflict(void *arg, const struct index_conflict *row, struct err *err)
{
    struct conflicts_read *call = arg;
    if (!told_is_news(&call->told, row))
        return 0;
    call->count++;
    return told_tell(&call->told, row, err);
}

static int
conflicts_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct conflicts_read *call = arg;
    return index_conflict_each(tx, call->volume, count_conflict, call, err);
}

/* ---- files that are still open ---- */

struct freeze_all {
    struct volume_service *service;
    int64_t volume;
    uint64_t live;
    int64_t node;            /* one of them, */
    char why[LIMIT_ERR_MSG]; /* and what keeps it */
};

static void
note_live(struct freeze_all *call, const struct inode *inode, const char *why)
{
    call->live++;
    call->node = inode->node;
    (void)snprintf(call->why, sizeof(call->why), "%s", why);
}

/* LIVE and ours; what it holds that no copy of it holds is `*changed`. */
static bool
is_live_locked(const struct freeze_all *call, struct inode *inode, bool *changed)
{
    struct stat st;
    *changed = false;
    if ((call->volume != 0 && inode->volume != call->volume) || inode->state != CONTENT_LIVE ||
        inode->file == NULL)
        return false;
    *changed = backing_changed_locked(inode) &&
               (fstat(cache_file_fd(inode->file), &st) != 0 || !live_copied_locked(inode, &st));
    return true;
}

static void
count_live(void *arg, struct inode *inode)
{
    struct freeze_all *call = arg;
    bool changed;
    pthread_mutex_lock(&inode->lock);
    call->live += is_live_locked(call, inode, &changed) && changed;
    pthread_mutex_unlock(&inode->lock);
}

/* No store since this long: nobody is in the middle of writing it. */
#define QUIET_NS (20 * NS_PER_MS)

static bool
is_quiet(struct inode *inode)
{
    struct stat st;
    if (fstat(cache_file_fd(inode->file), &st) != 0)
        return false;
    int64_t mtime = st.st_mtim.tv_sec * NS_PER_S + st.st_mtim.tv_nsec;
    int64_t age = clock_wall_ns() - mtime;
    return age > QUIET_NS || age < 0;
}

/* A file that a program holds open is frozen where it stands, when it is quiet: its next write brings it back to life (by
 * row, or as a copy when its upload has begun). One that kernels write past us is copied. */
static void
freeze_live(void *arg, struct inode *inode)
{
    struct freeze_all *call = arg;
    struct err err = ERR_INIT;
    bool changed;
    pthread_mutex_lock(&inode->lock);
    bool past_us = is_live_locked(call, inode, &changed) && changed && backing_is_written(inode);
    if (changed && !past_us) {
        if (!is_quiet(inode)) {
            note_live(call, inode, "it is being written all the time");
        } else if (content_freeze_locked(call->service, inode, &err) != 0) {
            log_warn(volume, "cannot freeze node %lld for the barrier: %s", (long long)inode->node,
                     err.msg);
            note_live(call, inode, err.msg);
        }
    }
    bool free_again = inode->stuck && inode->state != CONTENT_LIVE;
    inode->stuck = inode->stuck && !free_again;
    pthread_mutex_unlock(&inode->lock);
    int copied = past_us ? live_copy(call->service, inode, &err) : 1;
    if (copied != 1)
        note_live(call, inode, copied < 0 ? err.msg : "its last copy is still on its way");
    if (free_again)
        inode_unref(&call->service->inodes, inode, false);
}

/* Open for writing and not written: a move or new attributes wait for nobody. */
static void
clean_live(void *arg, struct inode *inode)
{
    struct freeze_all *call = arg;
    struct err err = ERR_INIT;
    bool changed;
    pthread_mutex_lock(&inode->lock);
    if (is_live_locked(call, inode, &changed) && !changed && !backing_is_written(inode) &&
        content_freeze_locked(call->service, inode, &err) != 0) {
        log_warn(volume, "cannot end the writing of node %lld: %s", (long long)inode->node,
                 err.msg);
        note_live(call, inode, err.msg);
    }
    pthread_mutex_unlock(&inode->lock);
}

/* The kernel sends the last RELEASE a moment after close(2) returned: give it that moment, then freeze what is open and
 * quiet. call->live: how many files are never quiet. */
#define RELEASE_GRACE (300 * NS_PER_MS)

static void
settle_open_files(struct freeze_all *call, int64_t deadline_ns)
{
    struct inode_table *inodes = &call->service->inodes;
    int64_t grace = clock_mono_ns() + RELEASE_GRACE;
    for (;;) {
        int64_t now = clock_mono_ns();
        call->live = 0;
        inode_each(inodes, now < grace ? count_live : freeze_live, call);
        if (call->live == 0)
            inode_each(inodes, clean_live, call);
        if (call->live == 0 || now >= deadline_ns)
            return;
        clock_sleep_ns(5 * NS_PER_MS);
    }
}

struct path_call {
    int64_t node;
    char path[LIMIT_PATH + 1];
};

static int
path_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct path_call *call = arg;
    return index_node_path(tx, call->node, call->path, sizeof(call->path), err);
}

static int
tell_live(const struct freeze_all *live, struct err *err)
{
    struct path_call call = { .node = live->node };
    struct err unknown = ERR_INIT;
    if (live->node == 0 || index_read(live->service->index, path_tx, &call, &unknown) != 0)
        (void)snprintf(call.path, sizeof(call.path), "node %lld", (long long)live->node);
    return err_set(err, ERR_NOT_SYNCED, "%llu open files were not synced, '%.200s' among them: %s",
                   (unsigned long long)live->live, call.path,
                   live->why[0] != '\0' ? live->why : "it was closed a moment ago");
}

/* Everything is in the bucket: what met a conflict on its way? */
static int
tell_conflicts(struct volume_service *service, struct conflicts_read *call,
               struct volume_barrier *out, struct err *err)
{
    if (index_read(service->index, conflicts_tx, call, err) != 0)
        return -1;
    out->conflicts = call->count;
    if (call->count == 0)
        return 0;
    return err_set(err, ERR_CONFLICT, "synced, but %llu conflicts were found: see holdfast status",
                   (unsigned long long)call->count);
}

/* All work that is there now. */
static int
await_all(struct volume_service *service, int64_t volume, int64_t deadline_ns,
          struct volume_barrier *out, struct err *err)
{
    scope_free struct index_intent *hurried = calloc(PAGE, sizeof(*hurried));
    if (hurried == NULL)
        return err_nomem(err);
    struct pending_call call = { .volume = volume, .hurry = true, .out = out, .hurried = hurried };
    call.now_ns = call.until_ns = clock_wall_ns();
    if (index_write(service->index, INDEX_NORMAL, pending_tx, &call, err) != 0)
        return -1;
    call.hurry = false;
    sync_kick(service);
    if (out->pending > 0 && (await_work(service, &call, deadline_ns, err) != 0 ||
                             index_read(service->index, pending_tx, &call, err) != 0))
        return -1;
    if (out->pending > 0)
        return err_set(err, ERR_NOT_SYNCED, "%llu not synced in time, '%s' among them%s%s",
                       (unsigned long long)out->pending, out->first_key,
                       out->first_error[0] == '\0' ? "" : ": ", out->first_error);
    return 0;
}

static int
run_barrier(struct volume_service *service, int64_t volume, int64_t deadline_ns,
            struct volume_barrier *out, struct err *err)
{
    struct freeze_all open = { .service = service, .volume = volume };
    rest_suspend(service);
    settle_open_files(&open, deadline_ns);
    int rc = await_all(service, volume, deadline_ns, out, err);
    rest_resume(service);
    if (rc != 0)
        return -1;
    return open.live > 0 ? tell_live(&open, err) : 0;
}

int
volume_flush(struct volume_service *service, int64_t volume, int64_t deadline_ns,
             struct volume_barrier *out, struct err *err)
{
    struct conflicts_read conflicts = { .volume = volume };
    memset(out, 0, sizeof(*out));
    if (told_begin(&service->told, &conflicts.told, err) != 0)
        return -1;
    int rc = run_barrier(service, volume, deadline_ns, out, err);
    if (rc == 0)
        rc = tell_conflicts(service, &conflicts, out, err);
    told_end(&conflicts.told);
    return rc;
}

int
volume_flush_quietly(struct volume_service *service, int64_t volume, int64_t deadline_ns,
                     struct volume_barrier *out, struct err *err)
{
    memset(out, 0, sizeof(*out));
    return run_barrier(service, volume, deadline_ns, out, err);
}

struct folder_call {
    int64_t dir, volume;
    bool sync_close;
};

static int
read_folder(struct index_tx *tx, void *arg, struct err *err)
{
    struct folder_call *call = arg;
    struct index_node node;
    struct index_volume volume;
    struct err missing = ERR_INIT;
    if (index_node_get(tx, call->dir, &node, &missing) != 0) {
        if (missing.code == ERR_NOT_FOUND) /* removed, and still open */
            return 0;
        *err = missing;
        return -1;
    }
    if (index_volume_get(tx, node.volume, &volume, err) != 0)
        return -1;
    call->volume = volume.id;
    call->sync_close = volume.sync_close;
    return 0;
}

int
volume_fsync_dir(struct volume_service *service, const struct volume_ctx *ctx, int64_t dir,
                 struct err *err)
{
    struct folder_call call = { .dir = dir };
    struct volume_barrier ignored = { 0 };
    if (drop_make_durable(service, err) != 0 ||
        index_read(service->index, read_folder, &call, err) != 0)
        return -1;
    if (!call.sync_close)
        return 0;
    rest_suspend(service);
    int rc = await_all(service, call.volume, service_deadline(ctx), &ignored, err);
    rest_resume(service);
    return rc;
}

/* ---- listings ---- */

struct unsynced_call {
    struct volume_service *service;
    struct index_tx *tx;
    int64_t volume;
    unsigned limit;
    unsigned told;
    volume_unsynced_fn *fn;
    void *arg;
};

static int
tell_unsynced(void *arg, const struct index_intent *row, struct err *err)
{
    struct unsynced_call *call = arg;
    struct key_view *kv = malloc(sizeof(*kv));
    char path[LIMIT_PATH + 1] = "";
    struct err ignored = ERR_INIT;
    if (kv == NULL)
        return err_nomem(err);
    if (view_build(call->service, call->tx, row->volume, row->key, kv, err) != 0) {
        free(kv);
        return -1;
    }
    const struct sync_want *want = &kv->view.want;
    if (want->present && kv->node.id != 0 &&
        index_node_path(call->tx, kv->node.id, path, sizeof(path), &ignored) != 0)
        path[0] = '\0';
    struct volume_unsynced out = { .key = row->key,
                                   .path = path,
                                   .what = !want->present ? "delete"
                                           : want->dirty  ? "upload"
                                                          : "move",
                                   .below = move_is_work(row->key),
                                   .size = want->size,
                                   .tries = row->tries,
                                   .since_ns = row->since_ns,
                                   .last_error = row->last_error };
    int rc = call->fn(call->arg, &out, err);
    call->told++;
    free(kv);
    return rc;
}

static int
unsynced_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct unsynced_call *call = arg;
    call->tx = tx;
    return index_intent_each(tx, call->volume, "", call->limit, tell_unsynced, call, err);
}

struct open_call {
    struct unsynced_call *call;
    struct inode *inode;
    struct volume_unsynced out;
    struct live_file live;
    char key[LIMIT_KEY + 1];
    char path[LIMIT_PATH + 1];
    struct err *err;
    int rc;
};

/* A changed file that is open has no work item before it is copied or closed. */
static int
open_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct open_call *open = arg;
    struct index_node node;
    struct index_intent intent;
    struct err missing = ERR_INIT;
    open->out.what = NULL;
    if (index_node_get(tx, open->inode->node, &node, &missing) != 0 ||
        (node.flags & INDEX_NODE_ORPHAN) != 0)
        return 0;
    if (key_of_node(tx, &node, open->key, err) != 0 ||
        index_node_path(tx, node.id, open->path, sizeof(open->path), err) != 0)
        return -1;
    if (index_intent_get(tx, open->key, &intent, &missing) != 0)
        open->out.what = "open";
    return 0;
}

static void
tell_open(void *arg, struct inode *inode)
{
    struct open_call *open = arg;
    struct unsynced_call *call = open->call;
    struct stat st;
    if (open->rc != 0 || call->limit == 0)
        return;
    pthread_mutex_lock(&inode->lock);
    bool changed = (call->volume == 0 || inode->volume == call->volume) && inode->file != NULL &&
                   inode->state == CONTENT_LIVE && inode->dirty_size &&
                   fstat(cache_file_fd(inode->file), &st) == 0 && !live_copied_locked(inode, &st);
    open->live = inode->live;
    pthread_mutex_unlock(&inode->lock);
    if (!changed)
        return;
    open->inode = inode;
    if (index_read(call->service->index, open_tx, open, open->err) != 0) {
        open->rc = -1;
        return;
    }
    if (open->out.what == NULL)
        return;
    open->out.key = open->key;
    open->out.path = open->path;
    open->out.size = (uint64_t)st.st_size;
    open->out.since_ns = open->live.since_ns != 0 ? open->live.since_ns : clock_wall_ns();
    open->out.last_error = open->live.why;
    call->limit--;
    open->rc = call->fn(call->arg, &open->out, open->err);
}

int
volume_unsynced_each(struct volume_service *service, int64_t volume, unsigned limit,
                     volume_unsynced_fn *fn, void *arg, struct err *err)
{
    struct unsynced_call call = {
        .service = service, .volume = volume, .limit = limit, .fn = fn, .arg = arg
    };
    scope_free struct open_call *open = calloc(1, sizeof(*open));
    if (open == NULL)
        return err_nomem(err);
    if (index_read(service->index, unsynced_tx, &call, err) != 0)
        return -1;
    call.limit = call.told < limit ? limit - call.told : 0;
    open->call = &call;
    open->err = err;
    inode_each(&service->inodes, tell_open, open);
    return open->rc < 0 ? -1 : 0;
}

struct each_conflict {
    int64_t volume;
    index_conflict_fn *fn;
    void *arg;
};

static int
each_conflict_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct each_conflict *call = arg;
    return index_conflict_each(tx, call->volume, call->fn, call->arg, err);
}

int
volume_conflict_each(struct volume_service *service, int64_t volume, index_conflict_fn *fn,
                     void *arg, struct err *err)
{
    struct each_conflict call = { .volume = volume, .fn = fn, .arg = arg };
    return index_read(service->index, each_conflict_tx, &call, err);
}
