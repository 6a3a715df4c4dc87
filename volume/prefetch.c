#include <limits.h>

#include "base/log.h"
#include "base/scope.h"
#include "volume/fetch_impl.h"
#include "volume/trail.h"

/*
 * Small files of a folder that is being read through are fetched before they are opened: as many at once as there are slots, no
 * further ahead than the reader has earned (trail.c). What was fetched stays open here until its reader comes or too much else
 * has followed.
 */

#define TRAILS 8u
#define ENTRIES 4096u /* of one folder that are looked at, from the last one opened on */
#define QUEUE 256u
#define HELD 256u
#define HELD_BYTES (32ull << 20)
#define CONFIDENT \
    8u /* fetched files that were used: then the first file of another folder is enough */
#define CONFIDENT_MOST 32u

struct folder {
    int64_t dir;    /* 0: free */
    int64_t latest; /* the file that was opened last */
    uint64_t tick;
    unsigned opened;
    unsigned looked; /* objects that were asked for since the last open */
    bool loading, loaded;
    struct trail trail;
};

struct held {
    struct inode *inode;
    uint64_t bytes;
};

struct prefetcher {
    struct volume_service *service;
    pthread_mutex_t lock; /* a leaf; everything below */
    struct folder folder[TRAILS];
    uint64_t tick;
    unsigned confidence;
    int64_t queue[QUEUE];
    unsigned first, queued;
    struct held held[HELD]; /* a ring, oldest at held_first */
    unsigned held_first, held_count;
    uint64_t held_bytes, held_max;
};

/* ---- what is held open ---- */

static struct inode *
drop_oldest_locked(struct prefetcher *pre)
{
    struct held *held = &pre->held[pre->held_first];
    pre->held_first = (pre->held_first + 1) % HELD;
    pre->held_count--;
    pre->held_bytes -= held->bytes;
    return steal(&held->inode);
}

/* Takes the reference over. */
static void
hold(struct prefetcher *pre, struct inode *inode, uint64_t bytes)
{
    struct inode_table *table = &pre->service->inodes;
    for (;;) {
        pthread_mutex_lock(&pre->lock);
        bool full = pre->held_count > 0 &&
                    (pre->held_count == HELD || pre->held_bytes + bytes > pre->held_max);
        struct inode *old = full ? drop_oldest_locked(pre) : NULL;
        if (!full) {
            pre->held[(pre->held_first + pre->held_count++) % HELD] =
                (struct held){ .inode = inode, .bytes = bytes };
            pre->held_bytes += bytes;
        }
        pthread_mutex_unlock(&pre->lock);
        if (!full)
            return;
        inode_unref(table, old, false);
    }
}

static struct inode *
take_held_locked(struct prefetcher *pre, const struct inode *inode)
{
    for (unsigned i = 0; i < pre->held_count; i++) {
        struct held *held = &pre->held[(pre->held_first + i) % HELD];
        if (held->inode != inode)
            continue;
        pre->held_bytes -= held->bytes;
        held->bytes = 0;
        return steal(&held->inode);
    }
    return NULL;
}

/* ---- the entries of a folder ---- */

struct load {
    int64_t dir, after;
    struct trail_entry *entry;
    char **name;
    size_t count;
};

static int
load_one(void *arg, const struct index_node *row, struct err *err)
{
    struct load *load = arg;
    load->name[load->count] = strdup(row->name);
    if (load->name[load->count] == NULL)
        return err_nomem(err);
    load->entry[load->count++] = (struct trail_entry){
        .node = row->id,
        .small = row->kind == INDEX_FILE && row->content == 0 && row->key[0] != '\0' &&
                 row->size <= FETCH_SMALL / 2 &&
                 (row->flags & (INDEX_NODE_NAME_HIDDEN | INDEX_NODE_LINK)) == 0,
    };
    return 0;
}

static int
load_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct load *load = arg;
    return index_node_children(tx, load->dir, load->after, ENTRIES, load_one, load, err);
}

static int
load_trail(struct volume_service *service, struct load *load, struct trail *out, struct err *err)
{
    load->entry = calloc(ENTRIES, sizeof(*load->entry));
    load->name = calloc(ENTRIES, sizeof(*load->name));
    int rc = load->entry == NULL || load->name == NULL ? err_nomem(err) : 0;
    if (rc == 0)
        rc = index_read(service->index, load_tx, load, err);
    /* Names tell an order only where all of them are known. */
    bool all = load->after == 0 && load->count < ENTRIES;
    if (rc == 0 && trail_init(out, load->entry, load->count,
                              all ? (const char *const *)load->name : NULL) != 0)
        rc = err_nomem(err);
    for (size_t i = 0; load->name != NULL && i < load->count; i++)
        free(load->name[i]);
    free(load->name);
    if (rc != 0)
        free(load->entry);
    return rc;
}

/* ---- folders ---- */

static struct folder *
find_locked(struct prefetcher *pre, int64_t dir)
{
    for (unsigned i = 0; i < TRAILS; i++)
        if (pre->folder[i].dir == dir)
            return &pre->folder[i];
    return NULL;
}

static void
count_wasted_locked(struct prefetcher *pre, struct folder *folder)
{
    if (!folder->loaded)
        return;
    struct fetcher *fetcher = pre->service->fetcher;
    atomic_fetch_add(&fetcher->prefetch_wasted,
                     folder->trail.wasted + trail_unread(&folder->trail));
    trail_release(&folder->trail);
    folder->loaded = false;
}

static struct folder *
folder_locked(struct prefetcher *pre, int64_t dir)
{
    struct folder *folder = find_locked(pre, dir);
    if (folder == NULL) {
        folder = &pre->folder[0];
        for (unsigned i = 1; i < TRAILS; i++)
            if (pre->folder[i].tick < folder->tick)
                folder = &pre->folder[i];
        count_wasted_locked(pre, folder);
        *folder = (struct folder){ .dir = dir };
    }
    folder->tick = ++pre->tick;
    return folder;
}

/* ---- workers ---- */

static int64_t
next_job_locked(struct prefetcher *pre)
{
    if (pre->queued == 0)
        return 0;
    int64_t node = pre->queue[pre->first];
    pre->first = (pre->first + 1) % QUEUE;
    pre->queued--;
    return node;
}

static int
bring_locked(struct prefetcher *pre, struct inode *inode, struct small_rows *rows,
             int64_t deadline_ns)
{
    struct err err = ERR_INIT;
    if (inode->file != NULL || inode->making ||
        small_look(pre->service, inode->node, rows, &err) != 0 || !rows->fits)
        return 0;
    int got = small_bring_locked(pre->service, inode, rows, deadline_ns, &err);
    if (got < 0)
        log_debug(volume, "prefetching failed node=%lld error=\"%s\"", (long long)inode->node,
                  err.msg);
    return got;
}

/* True: it came. */
static bool
fetch_node(struct prefetcher *pre, int64_t node, int64_t deadline_ns, bool wait)
{
    struct volume_service *service = pre->service;
    struct small_rows rows;
    struct err ignored = ERR_INIT;
    struct inode *inode = inode_ref(&service->inodes, node, false, &ignored);
    if (inode == NULL)
        return false;
    pthread_mutex_lock(&inode->lock);
    bool coming = inode->bringing;
    struct timespec until = { deadline_ns / NS_PER_S, deadline_ns % NS_PER_S };
    while (wait && inode->bringing &&
           pthread_cond_timedwait(&inode->fetched, &inode->lock, &until) == 0)
        continue;
    int got = coming ? 0 : bring_locked(pre, inode, &rows, deadline_ns);
    pthread_mutex_unlock(&inode->lock);
    if (got > 0) {
        atomic_fetch_add(&service->fetcher->prefetched, 1);
        hold(pre, inode, rows.node.size);
    } else {
        inode_unref(&service->inodes, inode, false);
    }
    return got > 0 || coming;
}

static void
prefetch_main(void *arg)
{
    struct prefetcher *pre = arg;
    for (;;) {
        pthread_mutex_lock(&pre->lock);
        int64_t node = atomic_load(&pre->service->stopping) ? 0 : next_job_locked(pre);
        pthread_mutex_unlock(&pre->lock);
        if (node == 0)
            break;
        struct volume_ctx ctx = { .actor = "prefetch" };
        (void)fetch_node(pre, node, service_deadline(&ctx), false);
    }
    fetch_leave(pre->service->fetcher);
}

static void
start_workers(struct prefetcher *pre, unsigned jobs)
{
    struct fetcher *fetcher = pre->service->fetcher;
    struct err ignored = ERR_INIT;
    for (; jobs > 0 && fetch_enter(fetcher); jobs--)
        if (pool_submit(fetcher->pool, prefetch_main, NULL, pre, &ignored) != 0) {
            fetch_leave(fetcher);
            return;
        }
}

static unsigned
plan_locked(struct prefetcher *pre, struct folder *folder)
{
    int64_t node;
    while (pre->queued < QUEUE && (node = trail_next(&folder->trail)) != 0)
        pre->queue[(pre->first + pre->queued++) % QUEUE] = node;
    return pre->queued;
}

struct load_job {
    struct prefetcher *pre;
    int64_t dir, after;
    bool eager; /* fetch at once */
};

static unsigned
loaded_locked(struct prefetcher *pre, struct folder *folder, bool eager)
{
    bool known = trail_opened(&folder->trail, folder->latest);
    folder->loaded = true;
    if (!known || !eager)
        return 0;
    trail_trust(&folder->trail);
    return plan_locked(pre, folder);
}

static void
load_main(void *arg)
{
    struct load_job *job = arg;
    struct prefetcher *pre = job->pre;
    struct load load = { .dir = job->dir, .after = job->after };
    struct trail trail = { .entry = NULL };
    struct err err = ERR_INIT;
    unsigned jobs = 0;
    int rc = load_trail(pre->service, &load, &trail, &err);
    pthread_mutex_lock(&pre->lock);
    struct folder *folder = find_locked(pre, job->dir);
    if (folder != NULL && folder->loading && rc == 0) {
        folder->trail = trail;
        trail = (struct trail){ .entry = NULL };
        jobs = loaded_locked(pre, folder, job->eager);
    }
    if (folder != NULL)
        folder->loading = false;
    pthread_mutex_unlock(&pre->lock);
    trail_release(&trail);
    free(job);
    start_workers(pre, jobs > 1 ? jobs - 1 : 0);
    prefetch_main(pre); /* in this slot */
}

static bool
submit_load(struct fetcher *fetcher, const struct load_job *wanted)
{
    struct err ignored = ERR_INIT;
    struct load_job *job = malloc(sizeof(*job));
    if (job == NULL)
        return false;
    *job = *wanted;
    if (fetch_enter(fetcher)) {
        if (pool_submit(fetcher->pool, load_main, NULL, job, &ignored) == 0)
            return true;
        fetch_leave(fetcher);
    }
    free(job);
    return false;
}

static void
start_load(struct prefetcher *pre, const struct load_job *job)
{
    if (submit_load(pre->service->fetcher, job))
        return;
    pthread_mutex_lock(&pre->lock);
    struct folder *folder = find_locked(pre, job->dir);
    if (folder != NULL)
        folder->loading = false;
    pthread_mutex_unlock(&pre->lock);
}

/* ---- what readers open ---- */

static bool
wants_load_locked(struct prefetcher *pre, struct folder *folder, const struct index_node *row,
                  struct load_job *job)
{
    bool trusted = pre->confidence >= CONFIDENT;
    *job = (struct load_job){ .pre = pre, .dir = folder->dir, .eager = trusted };
    if (folder->loading || row->content != 0)
        return false;
    if (folder->loaded) {
        /* Behind the entries that were looked at: those that follow. */
        job->after = row->id - 1;
        job->eager = folder->trail.window > 0;
        count_wasted_locked(pre, folder);
    } else if (folder->opened < 2 && !trusted) {
        return false;
    }
    folder->loading = true;
    return true;
}

/* True: `row` is among the entries. */
static bool
follow_locked(struct prefetcher *pre, struct folder *folder, const struct index_node *row)
{
    struct trail *trail = &folder->trail;
    uint64_t used = trail->used;
    unsigned breaks = trail->breaks;
    if (!trail_opened(trail, row->id))
        return false;
    if (trail->used > used) {
        atomic_fetch_add(&pre->service->fetcher->prefetch_used, 1);
        pre->confidence += pre->confidence < CONFIDENT_MOST;
    }
    if (trail->breaks > breaks)
        pre->confidence /= 2;
    return true;
}

void
prefetch_opened(struct volume_service *service, const struct inode *inode,
                const struct index_node *row)
{
    struct prefetcher *pre = service->fetcher->prefetch;
    struct load_job job;
    if (row->parent == 0)
        return;
    pthread_mutex_lock(&pre->lock);
    struct inode *mine = take_held_locked(pre, inode);
    struct folder *folder = folder_locked(pre, row->parent);
    folder->opened++;
    folder->looked = 0;
    folder->latest = row->id;
    unsigned jobs = 0;
    bool load = false;
    if (folder->loaded && follow_locked(pre, folder, row))
        jobs = plan_locked(pre, folder);
    else
        load = wants_load_locked(pre, folder, row, &job);
    pthread_mutex_unlock(&pre->lock);
    inode_unref(&service->inodes, mine, false);
    if (load)
        start_load(pre, &job);
    start_workers(pre, jobs);
}

#define LOOKS_WITHOUT_OPEN 3u /* so many, and it is a reader of attributes, not of files */

bool
prefetch_follows(struct volume_service *service, int64_t dir)
{
    struct prefetcher *pre = service->fetcher->prefetch;
    scope_unlock pthread_mutex_t *held = scope_lock(&pre->lock);
    struct folder *folder = find_locked(pre, dir);
    return folder != NULL && folder->looked++ < LOOKS_WITHOUT_OPEN;
}

static bool
is_followed(struct prefetcher *pre, int64_t dir)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&pre->lock);
    const struct folder *folder = find_locked(pre, dir);
    return folder != NULL && folder->loaded && folder->trail.window > 0;
}

bool
prefetch_complete(struct volume_service *service, const struct volume_ctx *ctx, int64_t node)
{
    struct prefetcher *pre = service->fetcher->prefetch;
    struct small_rows rows;
    struct err ignored = ERR_INIT;
    return small_look(service, node, &rows, &ignored) == 0 && rows.fits &&
           is_followed(pre, rows.node.parent) && fetch_node(pre, node, service_deadline(ctx), true);
}

/* ---- life ---- */

int
prefetch_open(struct volume_service *service, struct err *err)
{
    struct cache_usage usage;
    struct prefetcher *pre = calloc(1, sizeof(*pre));
    if (pre == NULL)
        return err_nomem(err);
    pre->service = service;
    pthread_mutex_init(&pre->lock, NULL);
    cache_usage(service->cache, &usage);
    pre->held_max = usage.max_bytes / 16 < HELD_BYTES ? usage.max_bytes / 16 : HELD_BYTES;
    service->fetcher->prefetch = pre;
    return 0;
}

void
prefetch_close(struct volume_service *service)
{
    struct prefetcher *pre = service->fetcher == NULL ? NULL : service->fetcher->prefetch;
    if (pre == NULL)
        return;
    while (pre->held_count > 0)
        inode_unref(&service->inodes, drop_oldest_locked(pre), false);
    for (unsigned i = 0; i < TRAILS; i++)
        if (pre->folder[i].loaded)
            trail_release(&pre->folder[i].trail);
    pthread_mutex_destroy(&pre->lock);
    free(steal(&service->fetcher->prefetch));
}
