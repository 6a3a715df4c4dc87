#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/scope.h"
#include "volume/service_impl.h"

/*
 * Files that stay open (logs, databases): from time to time what they hold is copied to a FROZEN content file beside the LIVE
 * one, and goes up (docs/mechanisms.md section 2). The writer is not stopped: a copy during which the file changed is thrown
 * away, so nothing torn is ever sent, and a file that never rests is not synced and says so. What counts is what the disk
 * says about the file (size, mtime, ctime), so that writes which do not pass us (passthrough, mappings) are seen too.
 */

#define QUIET_NS (20 * NS_PER_MS) /* coarser than any file system's clock */
#define PAUSE_MIN (25 * NS_PER_MS)
#define TICK_MIN (10 * NS_PER_MS)
#define TICK_MAX (2 * NS_PER_S)
#define COPY_MAX (1ull << 30) /* without reflinks a larger one would keep the disk busy */
#define SAVE_PATIENCE 10      /* periods */
#define UPLOAD_SHARE 10       /* a file's uploads take at most a tenth of the time */

struct live_keeper {
    struct volume_service *service;
    pthread_mutex_t lock; /* a leaf */
    pthread_cond_t wake;
    pthread_t thread;
    bool runs, stopping;
};

/* One copy on its way. */
struct live_copy {
    struct volume_service *service;
    struct inode *inode;
    struct cache_file *from, *to;
    int64_t live, number; /* content rows */
    struct stat st;
    struct index_node node;
    struct index_content content;
    struct cache_meta meta;
    bool again;       /* not its first copy, or a barrier's */
    int64_t since_ns; /* wall: first seen changed */
    bool wanted;
    bool nameless; /* unlinked by its owner: there is nothing to send, now or later */
};

/* Its rollback journal, as SQLite names it. */
struct live_journal {
    int64_t dir, node; /* node 0: there is none */
    char name[LIMIT_NAME + 16];
};

/* ---- what the disk says ---- */

static int64_t
stamp(const struct timespec *t)
{
    return t->tv_sec * NS_PER_S + t->tv_nsec;
}

static bool
same_state(const struct stat *a, const struct stat *b)
{
    return a->st_size == b->st_size && stamp(&a->st_mtim) == stamp(&b->st_mtim) &&
           stamp(&a->st_ctim) == stamp(&b->st_ctim);
}

bool
live_copied_locked(const struct inode *inode, const struct stat *st)
{
    const struct live_file *live = &inode->live;
    return live->content != 0 && live->content == inode->content && same_state(&live->st, st);
}

/* Long enough ago that a change from now on gets another time. */
static bool
is_quiet(const struct stat *st)
{
    int64_t age = clock_wall_ns() - stamp(&st->st_ctim);
    return age > QUIET_NS || age < 0;
}

/* ---- rows ---- */

/* A file that began empty and was not closed yet may be a save: until its close the name is the older version's, or nobody's, also
 * after a crash (section 3). What rests for long is no save, but the file of a program that keeps it open; nor is a new one that
 * has been there for long. */
static bool
is_save(const struct live_copy *copy)
{
    int64_t now = clock_wall_ns(), patience = SAVE_PATIENCE * copy->service->sync_open_ns;
    unsigned flags = copy->content.flags;
    if (copy->again || (flags & CONTENT_TRUNCATED) == 0 || (flags & CONTENT_ACKED) != 0)
        return false;
    if (copy->node.key[0] == '\0' && now - copy->since_ns > patience)
        return false;
    return now - stamp(&copy->st.st_ctim) < patience;
}

static int
check_rows(struct index_tx *tx, struct live_copy *copy, struct err *err)
{
    struct index_content staged;
    struct err missing = ERR_INIT;
    copy->wanted = false;
    if (index_node_get(tx, copy->inode->node, &copy->node, err) != 0)
        return -1;
    bool orphan = (copy->node.flags & INDEX_NODE_ORPHAN) != 0;
    copy->nameless = orphan && (copy->node.flags & INDEX_NODE_LOSER) == 0;
    if (copy->node.content != copy->live || orphan)
        return 0;
    if (index_content_get(tx, copy->live, &copy->content, err) != 0)
        return -1;
    if (copy->content.state != CONTENT_LIVE)
        return 0;
    /* The last one is still on its way. */
    if (content_frozen_of(tx, copy->node.id, &staged, &missing) == 0)
        return 0;
    if (missing.code != ERR_NOT_FOUND) {
        *err = missing;
        return -1;
    }
    if (is_save(copy))
        return err_set(err, ERR_BUSY, "it may be a save that is not over");
    copy->wanted = true;
    return 0;
}

static int
number_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct live_copy *copy = arg;
    int rc = check_rows(tx, copy, err);
    if (rc != 0 || !copy->wanted)
        return rc;
    return index_content_number(tx, &copy->number, err);
}

static int
journal_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct live_journal *journal = arg;
    struct index_node node;
    struct err missing = ERR_INIT;
    journal->node = 0;
    if (index_node_child(tx, journal->dir, journal->name, strlen(journal->name), &node, &missing) ==
        0) {
        journal->node = node.id;
        return 0;
    }
    if (missing.code == ERR_NOT_FOUND)
        return 0;
    *err = missing;
    return -1;
}

/* Whether nothing of the node is on its way to the bucket. */
static int
uploading_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct live_copy *copy = arg;
    struct err missing = ERR_INIT;
    (void)err;
    copy->wanted = content_frozen_of(tx, copy->inode->node, &copy->content, &missing) != 0;
    return 0;
}

static int
fill_frozen(struct index_tx *tx, struct live_copy *copy, struct err *err)
{
    struct index_content *row = &copy->content;
    row->id = copy->number;
    row->state = CONTENT_FROZEN;
    row->flags = CONTENT_COMPLETE | CONTENT_ACKED | CONTENT_DURABLE;
    row->size = (uint64_t)copy->st.st_size;
    row->mtime_ns = stamp(&copy->st.st_mtim);
    row->sha256[0] = row->md5[0] = row->etag[0] = '\0';
    text_set(row->base_version, copy->node.version);
    text_set(row->base_etag, copy->node.etag);
    text_set(row->boot_id, copy->service->boot_id);
    if (ulid_new(row->version, err) != 0)
        return -1;
    copy->node.size = row->size;
    copy->node.mtime_ns = row->mtime_ns;
    copy->node.ctime_ns = attr_ctime(copy->node.ctime_ns, &copy->st);
    content_meta_fill(tx, &copy->node, row, &copy->meta);
    return 0;
}

static int
meta_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct live_copy *copy = arg;
    int rc = check_rows(tx, copy, err);
    if (rc != 0 || !copy->wanted)
        return rc;
    return fill_frozen(tx, copy, err);
}

static int
insert_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct live_copy *copy = arg;
    struct index_content made = copy->content;
    struct index_node before = copy->node;
    char key[LIMIT_KEY + 1];
    int rc = check_rows(tx, copy, err);
    if (rc != 0 || !copy->wanted)
        return rc;
    /* Its base moves only by a landing, of which there is none without a FROZEN row; by others' changes it may. */
    text_set(made.base_version, copy->node.version);
    text_set(made.base_etag, copy->node.etag);
    copy->content = made;
    copy->node.size = before.size;
    copy->node.mtime_ns = before.mtime_ns;
    copy->node.ctime_ns = before.ctime_ns;
    if (index_content_insert(tx, &copy->content, err) != 0 ||
        index_node_update(tx, &copy->node, err) != 0 || key_of_node(tx, &copy->node, key, err) != 0)
        return -1;
    return key_want_sync(tx, copy->node.volume, key, 0, err);
}

/* ---- one file ---- */

/* A database in the middle of a transaction that its rollback journal could undo: a copy of it alone would be torn. Looked at
 * while the file is quiet, between the two looks at the file: a transaction that wrote to it before has ended by then, one
 * that begins later has not written to it yet. */
static int
check_journal(struct live_copy *copy, bool *hot, struct err *err)
{
    struct volume_ctx ctx = { .actor = "sync" };
    struct volume_attr attr;
    struct err missing = ERR_INIT;
    struct live_journal journal = { .dir = copy->node.parent };
    (void)snprintf(journal.name, sizeof(journal.name), "%s-journal", copy->node.name);
    *hot = false;
    if (strlen(journal.name) > LIMIT_NAME)
        return 0;
    if (index_read(copy->service->index, journal_tx, &journal, err) != 0)
        return -1;
    *hot = journal.node != 0 &&
           volume_getattr(copy->service, &ctx, journal.node, &attr, &missing) == 0 &&
           attr.kind == INDEX_FILE && attr.size > 0;
    return 0;
}

/* ERR_BUSY with the reason: not now. */
static int
check_room(struct live_copy *copy, struct err *err)
{
    struct cache_usage usage;
    uint64_t size = (uint64_t)copy->st.st_size;
    cache_usage(copy->service->cache, &usage);
    uint64_t room =
        usage.max_bytes > usage.pinned_bytes ? (usage.max_bytes - usage.pinned_bytes) / 4 : 0;
    if (size > COPY_MAX || size > room)
        return err_set(err, ERR_BUSY, "too large to be copied while it is open");
    return 0;
}

static int
copy_bytes(struct live_copy *copy, struct err *err)
{
    struct stat after;
    bool hot = false;
    if (check_journal(copy, &hot, err) != 0)
        return -1;
    if (hot)
        return err_set(err, ERR_BUSY, "a transaction with a rollback journal is under way");
    if (cache_file_copy(copy->to, copy->from, err) != 0 || cache_file_sync(copy->from, err) != 0)
        return -1;
    if (fstat(cache_file_fd(copy->from), &after) != 0)
        return err_sys(err, errno, "cannot look at a content file");
    if (!same_state(&copy->st, &after))
        return err_set(err, ERR_BUSY, "it is being written all the time");
    return 0;
}

static int
look(struct live_copy *copy, struct err *err)
{
    if (fstat(cache_file_fd(copy->from), &copy->st) != 0)
        return err_sys(err, errno, "cannot look at a content file");
    if (!is_quiet(&copy->st))
        return err_set(err, ERR_BUSY, "it is being written all the time");
    return check_room(copy, err);
}

static int
check_tx(struct index_tx *tx, void *arg, struct err *err)
{
    return check_rows(tx, arg, err);
}

static int
make_copy(struct live_copy *copy, struct err *err)
{
    struct volume_service *service = copy->service;
    if (look(copy, err) != 0 || index_read(service->index, check_tx, copy, err) != 0)
        return -1;
    if (!copy->wanted)
        return 0;
    /* What a mapping wrote has its time once it is on the disk. */
    if (cache_file_sync(copy->from, err) != 0 || look(copy, err) != 0 ||
        index_write(service->index, INDEX_NORMAL, number_tx, copy, err) != 0)
        return -1;
    if (!copy->wanted)
        return 0;
    copy->to = cache_create(service->cache, copy->number, NULL, true, err);
    if (copy->to == NULL || copy_bytes(copy, err) != 0 ||
        index_write(service->index, INDEX_NORMAL, meta_tx, copy, err) != 0)
        return -1;
    if (!copy->wanted)
        return 0;
    if (cache_meta_write(copy->to, &copy->meta, err) != 0 || cache_file_sync(copy->to, err) != 0)
        return -1;
    return index_write(service->index, INDEX_NORMAL, insert_tx, copy, err);
}

/* 1: copied, and its key has work. 0: not wanted any more. ERR_BUSY: not now. */
static int
copy_inode(struct live_copy *copy, struct err *err)
{
    int rc = make_copy(copy, err);
    bool made = rc == 0 && copy->wanted;
    bool there = copy->to != NULL;
    cache_put(copy->to);
    if (there && !made)
        cache_remove(copy->service->cache, copy->number);
    return made ? 1 : rc;
}

/* Whether there is something to copy, and the time for it has come. */
static bool
take_locked(struct live_copy *copy, int64_t now)
{
    struct inode *inode = copy->inode;
    struct live_file *live = &inode->live;
    if (inode->file == NULL || inode->state != CONTENT_LIVE || !backing_changed_locked(inode) ||
        inode->writers == 0 || fstat(cache_file_fd(inode->file), &copy->st) != 0 ||
        live_copied_locked(inode, &copy->st)) {
        live->since_ns = live->next_ns = live->pause_ns = 0;
        live->why[0] = '\0';
        return false;
    }
    if (live->since_ns == 0) { /* its changes are new: they have their time */
        live->since_ns = clock_wall_ns();
        live->next_ns = now + copy->service->sync_open_ns;
        if (live->not_before_ns > live->next_ns)
            live->next_ns = live->not_before_ns;
    }
    if (now < live->next_ns)
        return false;
    copy->from = cache_ref(inode->file);
    copy->live = inode->content;
    copy->again = live->content == copy->live;
    copy->since_ns = live->since_ns;
    return true;
}

static void
note_busy_locked(struct live_file *live, int64_t every, const struct err *why)
{
    live->pause_ns = live->pause_ns == 0 ? PAUSE_MIN : live->pause_ns * 2;
    if (live->pause_ns > every)
        live->pause_ns = every;
    live->next_ns = clock_mono_ns() + live->pause_ns;
    text_set(live->why, why->msg);
}

static void
note_copied_locked(struct live_copy *copy)
{
    struct live_file *live = &copy->inode->live;
    live->st = copy->st;
    live->content = copy->live;
    text_set(live->version, copy->content.version);
    live->since_ns = live->next_ns = live->pause_ns = 0;
    live->begun_ns = clock_mono_ns();
    live->why[0] = '\0';
}

/* An upload has ended, one way or another: the next copy comes no sooner than in proportion to it. */
static void
watch_upload(struct volume_service *service, struct inode *inode)
{
    struct live_copy look = { .service = service, .inode = inode };
    struct live_file *live = &inode->live;
    struct err ignored = ERR_INIT;
    pthread_mutex_lock(&inode->lock);
    bool uploading = live->begun_ns != 0;
    pthread_mutex_unlock(&inode->lock);
    if (!uploading || index_read(service->index, uploading_tx, &look, &ignored) != 0 ||
        !look.wanted)
        return;
    pthread_mutex_lock(&inode->lock);
    int64_t now = clock_mono_ns();
    live->not_before_ns = now + UPLOAD_SHARE * (now - live->begun_ns);
    live->begun_ns = 0;
    if (live->next_ns != 0 && live->next_ns < live->not_before_ns)
        live->next_ns = live->not_before_ns;
    pthread_mutex_unlock(&inode->lock);
}

/* 1: copied, and on its way. */
static int
copy_noted(struct live_copy *copy, struct err *err)
{
    struct volume_service *service = copy->service;
    struct inode *inode = copy->inode;
    int rc = copy_inode(copy, err);
    cache_put(copy->from);
    if (rc < 0 && err->code != ERR_BUSY)
        log_warn(sync, "cannot copy open node %lld: %s", (long long)inode->node, err->msg);
    pthread_mutex_lock(&inode->lock);
    if (rc > 0)
        note_copied_locked(copy);
    else if (rc < 0)
        note_busy_locked(&inode->live, service->sync_open_ns, err);
    pthread_mutex_unlock(&inode->lock);
    if (rc > 0)
        sync_kick(service);
    return rc;
}

static void
copy_one(void *arg, struct inode *inode)
{
    struct live_keeper *keeper = arg;
    struct volume_service *service = keeper->service;
    struct live_copy copy = { .service = service, .inode = inode };
    struct err err = ERR_INIT;
    if (atomic_load(&service->stopping) || atomic_load(&service->read_only))
        return;
    watch_upload(service, inode);
    pthread_mutex_lock(&inode->lock);
    bool due = take_locked(&copy, clock_mono_ns());
    pthread_mutex_unlock(&inode->lock);
    if (due)
        (void)copy_noted(&copy, &err);
}

int
live_copy(struct volume_service *service, struct inode *inode, struct err *err)
{
    struct live_copy copy = { .service = service, .inode = inode, .again = true };
    pthread_mutex_lock(&inode->lock);
    bool live = inode->file != NULL && inode->state == CONTENT_LIVE;
    if (live) {
        copy.from = cache_ref(inode->file);
        copy.live = inode->content;
    }
    pthread_mutex_unlock(&inode->lock);
    int rc = live ? copy_noted(&copy, err) : 0;
    return rc == 0 && copy.nameless ? 1 : rc;
}

/* ---- the thread ---- */

static void *
keeper_main(void *arg)
{
    struct live_keeper *keeper = arg;
    int64_t tick = keeper->service->sync_open_ns / 8;
    tick = tick < TICK_MIN ? TICK_MIN : tick > TICK_MAX ? TICK_MAX : tick;
    pthread_setname_np(pthread_self(), "hf-live");
    pthread_mutex_lock(&keeper->lock);
    while (!keeper->stopping) {
        int64_t end = clock_mono_ns() + tick;
        struct timespec until = { .tv_sec = end / NS_PER_S, .tv_nsec = end % NS_PER_S };
        while (!keeper->stopping &&
               pthread_cond_timedwait(&keeper->wake, &keeper->lock, &until) != ETIMEDOUT)
            ;
        if (keeper->stopping)
            break;
        pthread_mutex_unlock(&keeper->lock);
        inode_each(&keeper->service->inodes, copy_one, keeper);
        pthread_mutex_lock(&keeper->lock);
    }
    pthread_mutex_unlock(&keeper->lock);
    return NULL;
}

int
live_keeper_start(struct volume_service *service, struct err *err)
{
    if (service->sync_open_ns <= 0)
        return 0;
    struct live_keeper *keeper = calloc(1, sizeof(*keeper));
    if (keeper == NULL)
        return err_nomem(err);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&keeper->lock, NULL);
    pthread_cond_init(&keeper->wake, &attr);
    pthread_condattr_destroy(&attr);
    keeper->service = service;
    service->live = keeper;
    int rc = pthread_create(&keeper->thread, NULL, keeper_main, keeper);
    keeper->runs = rc == 0;
    return rc == 0 ? 0 : err_sys(err, rc, "cannot start the thread of open files");
}

void
live_keeper_close(struct volume_service *service)
{
    struct live_keeper *keeper = service->live;
    if (keeper == NULL)
        return;
    pthread_mutex_lock(&keeper->lock);
    keeper->stopping = true;
    pthread_cond_signal(&keeper->wake);
    pthread_mutex_unlock(&keeper->lock);
    if (keeper->runs)
        pthread_join(keeper->thread, NULL);
    pthread_cond_destroy(&keeper->wake);
    pthread_mutex_destroy(&keeper->lock);
    free(keeper);
    service->live = NULL;
}
