#include <assert.h>
#include <errno.h>

#include "base/log.h"
#include "base/parse.h"
#include "base/scope.h"
#include "volume/audit.h"
#include "volume/link_impl.h"
#include "volume/reads_impl.h"

/* LIVE becomes FROZEN: what was written is a version from here on, and its key has work (docs/mechanisms.md section 2). Runs
 * with inode->lock held. */

struct freeze_call {
    struct volume_service *service;
    struct inode *inode;
    struct stat st;
    bool changed;
    bool kept; /* fdatasynced right before */
    char copied
        [ULID_SIZE]; /* the version of a copy that was made beside it and holds the same bytes, else "" */
    /* About the node's other bytes. */
    bool beside;            /* some are on their way to the bucket */
    bool replaces_promised; /* and they were promised to survive a power cut */
    bool unkept;            /* so these have to be on the disk first */
    int64_t older[8];
    size_t older_count;
    char sha256[SHA256_HEX], md5[MD5_HEX]; /* known from writing it, else "" */
    bool stale;                            /* who wrote it had read what others changed meanwhile */
    index_fn *also;                        /* in the same transaction; may be NULL */
    void *also_arg;
    struct cache_meta meta;
    struct index_node node;
    struct index_content content;
    struct drop_list drop;
};

static int
note_older(void *arg, const struct index_content *row, struct err *err)
{
    struct freeze_call *call = arg;
    (void)err;
    /* What was begun with stays until this lands: if it loses, the two are merged by it. */
    if (row->id == call->inode->content || conflict_is_base(row, &call->content))
        return 0;
    call->beside |= row->state == CONTENT_FROZEN;
    call->replaces_promised |= row->state == CONTENT_FROZEN && (row->flags & CONTENT_DURABLE) != 0;
    if (row->state != CONTENT_LIVE && (row->flags & CONTENT_PINNED) == 0 && call->older_count < 8)
        call->older[call->older_count++] = row->id;
    return 0;
}

/* Older bytes of the node that nothing needs any more: CLEAN ones, and FROZEN ones that were never sent. */
static int
drop_older(struct index_tx *tx, struct freeze_call *call, const char *key, struct err *err)
{
    struct index_intent intent;
    struct err missing = ERR_INIT;
    int64_t sent = 0;
    if (call->older_count > 0 && index_intent_get(tx, key, &intent, &missing) == 0 &&
        intent.attempt.op == SYNC_OP_PUT)
        sent = intent.attempt.content;
    for (size_t i = 0; i < call->older_count; i++) {
        if (call->older[i] == sent)
            continue;
        if (index_content_delete(tx, call->older[i], err) != 0 ||
            drop_add(&call->drop, call->older[i], err) != 0)
            return -1;
    }
    return 0;
}

struct loser_call {
    int64_t node;
    bool found;
    char path[LIMIT_PATH + 1]; /* the name that it had then */
};

static int
match_conflict(void *arg, const struct index_conflict *row, struct err *err)
{
    struct loser_call *call = arg;
    (void)err;
    if (row->node != call->node)
        return 0;
    call->found = true;
    text_set(call->path, row->path);
    return 0;
}

/* An orphan that lost a conflict goes on losing: what its writer still had to say is kept too. Any other orphan was
 * unlinked by its owner. */
static int
keep_orphan(struct index_tx *tx, struct freeze_call *call, struct err *err)
{
    struct view_loser kept = { .content = &call->content, .reason = "conflict" };
    struct loser_call loser = { .node = call->node.id };
    if ((call->node.flags & INDEX_NODE_LOSER) != 0) {
        loser.found = true;
        text_set(loser.path, call->node.target);
    } else if (index_conflict_each(tx, call->node.volume, match_conflict, &loser, err) != 0) {
        return -1;
    }
    if (index_content_update(tx, &call->content, err) != 0)
        return -1;
    if (loser.found) {
        call->node.content = 0;
        kept.path = loser.path;
        if (view_keep_loser(call->service, tx, &call->node, &kept, err) != 0)
            return -1;
    }
    return index_node_update(tx, &call->node, err);
}

/* The bytes are those of the synced version: nothing was written since it was opened, or since its last copy landed. */
static int
unfreeze_unchanged(struct index_tx *tx, struct freeze_call *call, struct err *err)
{
    struct index_content *row = &call->content;
    row->state = CONTENT_CLEAN;
    row->flags &= ~(unsigned)CONTENT_TRUNCATED;
    row->size = (uint64_t)call->st.st_size;
    text_set(row->version, call->node.version);
    text_set(row->etag, call->node.etag);
    if (index_content_update(tx, row, err) != 0)
        return -1;
    if ((call->node.flags & INDEX_NODE_ORPHAN) != 0)
        return 0;
    /* What waited for the writer, a move or new attributes, goes on. */
    char home[LIMIT_KEY + 1];
    if (key_of_node(tx, &call->node, home, err) != 0)
        return -1;
    bool waits =
        (call->node.flags & INDEX_NODE_ATTRS_DIRTY) != 0 || strcmp(call->node.key, home) != 0;
    if (waits && key_want_sync(tx, call->node.volume, home, 0, err) != 0)
        return -1;
    return link_want(tx, &call->node, 0, 0, err);
}

static int
note_reads(struct index_tx *tx, struct freeze_call *call, struct err *err)
{
    const char *by = call->inode->wrote_run;
    const struct reads_written written = { .volume = call->node.volume,
                                           .run = by[0] != '\0' ? by : call->content.run,
                                           .version = call->content.version };
    return call->changed ? reads_mark(call->service, tx, &written, &call->stale, err) : 0;
}

static int
freeze_rows(struct index_tx *tx, struct freeze_call *call, struct err *err)
{
    struct index_content *row = &call->content;
    char key[LIMIT_KEY + 1];
    row->state = CONTENT_FROZEN;
    row->size = (uint64_t)call->st.st_size;
    row->mtime_ns = call->st.st_mtim.tv_sec * NS_PER_S + call->st.st_mtim.tv_nsec;
    row->flags |= CONTENT_COMPLETE | CONTENT_ACKED | (call->kept ? CONTENT_DURABLE : 0u);
    text_set(row->sha256, call->sha256);
    text_set(row->md5, call->md5);
    if (ulid_new(row->version, err) != 0)
        return -1;
    call->node.size = row->size;
    call->node.mtime_ns = row->mtime_ns;
    if (call->changed) /* else the file on disk only got its time when it was opened */
        call->node.ctime_ns = attr_ctime(call->node.ctime_ns, &call->st);
    content_meta_fill(tx, &call->node, row, &call->meta);
    if ((call->node.flags & INDEX_NODE_ORPHAN) != 0)
        return keep_orphan(tx, call, err);
    if (index_content_update(tx, row, err) != 0 || index_node_update(tx, &call->node, err) != 0 ||
        note_reads(tx, call, err) != 0)
        return -1;
    if (key_of_node(tx, &call->node, key, err) != 0 || drop_older(tx, call, key, err) != 0)
        return -1;
    if (key_want_again(tx, call->node.volume, key, call->inode->since_ns, err) != 0)
        return -1;
    return link_want(tx, &call->node, 0, 0, err);
}

static int
freeze_one(struct index_tx *tx, struct freeze_call *call, struct err *err)
{
    if (index_node_get(tx, call->inode->node, &call->node, err) != 0 ||
        index_content_get(tx, call->inode->content, &call->content, err) != 0)
        return -1;
    if (call->content.state != CONTENT_LIVE)
        return 0;
    bool was_synced = call->node.key[0] != '\0' && call->content.version[0] == '\0';
    was_synced |=
        call->node.key[0] != '\0' && strcmp(call->content.version, call->node.version) == 0;
    call->beside = call->replaces_promised = false;
    call->older_count = 0;
    if (index_content_of_node(tx, call->node.id, note_older, call, err) != 0)
        return -1;
    /* Also when nothing was written: a copy that was made for a writer is on no disk yet. */
    call->unkept = call->replaces_promised && !call->kept;
    if (call->unkept)
        return err_set(err, ERR_AGAIN, "what replaces a durable version is synced first");
    /* A copy made beside an upload holds bytes that no object has yet: it is no copy of the synced version. */
    if (!call->changed && was_synced && !call->beside &&
        strcmp(call->content.base_etag, call->node.etag) == 0 &&
        (call->content.flags & CONTENT_TRUNCATED) == 0)
        return unfreeze_unchanged(tx, call, err);
    if (!call->beside && call->copied[0] != '\0' && strcmp(call->copied, call->node.version) == 0)
        return unfreeze_unchanged(tx, call, err);
    return freeze_rows(tx, call, err);
}

static int
freeze_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct freeze_call *call = arg;
    rest_begin(call->service, NULL, tx);
    if (freeze_one(tx, call, err) != 0)
        return -1;
    return call->also == NULL ? 0 : call->also(tx, call->also_arg, err);
}

static int
keep(struct freeze_call *call, struct err *err)
{
    if (cache_file_sync(call->inode->file, err) != 0) {
        if (err->code == ERR_IO)
            atomic_store(&call->service->read_only, true);
        return -1;
    }
    call->kept = true;
    return 0;
}

/* After a power cut a row that says durable is believed, and nothing else holds what it promised: where fsync was answered for
 * these bytes and more were written since, and where freezing ends an unsynced version that was promised (freeze_one()), the
 * bytes are on the disk first. */
static int
freeze_kept(struct freeze_call *call, struct err *err)
{
    const struct inode *inode = call->inode;
    struct index *index = call->service->index;
    struct err local = ERR_INIT;
    bool durable = (inode->content_flags & CONTENT_DURABLE) != 0;
    bool loose = inode->loose || inode->syncing > 0;
    call->kept = durable && !loose;
    if (call->changed && durable && loose && keep(call, err) != 0)
        return -1;
    if (index_write(index, INDEX_NORMAL, freeze_tx, call, &local) == 0)
        return 0;
    if (call->unkept)
        return keep(call, err) != 0 ? -1 : index_write(index, INDEX_NORMAL, freeze_tx, call, err);
    *err = local;
    return -1;
}

static void
take_hashes(struct freeze_call *call)
{
    uint8_t sha[SHA256_SIZE], md[MD5_SIZE];
    if (!cache_file_hashed(call->inode->file, (uint64_t)call->st.st_size, sha, md))
        return;
    hex_encode(sha, sizeof(sha), call->sha256);
    hex_encode(md, sizeof(md), call->md5);
}

static void
note_write(const struct freeze_call *call)
{
    const struct inode *inode = call->inode;
    bool one = inode->wrote_run[0] != '\0';
    struct volume_ctx by = { .actor = call->content.actor,
                             .run = one ? inode->wrote_run : call->content.run,
                             .uid = call->node.uid,
                             .connection = inode->wrote_by != 0 ? inode->wrote_by : 1 };
    volume_audit_act(call->service, &by,
                     (struct audit_record){ .verb = "write",
                                            .volume_name = call->meta.volume,
                                            .path = call->meta.path,
                                            .before = call->content.base_version,
                                            .after = call->content.version,
                                            .bytes = (int64_t)call->content.size,
                                            .detail = call->stale ? "stale reads" : NULL });
}

static int
freeze(struct freeze_call *call, struct err *err)
{
    struct volume_service *service = call->service;
    struct inode *inode = call->inode;
    call->changed = backing_changed_locked(inode);
    /* Nobody saw when it was last written. */
    inode->loose |= inode->was_lent && call->changed;
    if (fstat(cache_file_fd(inode->file), &call->st) != 0)
        return err_sys(err, errno, "cannot look at a content file");
    take_hashes(call);
    if (live_copied_locked(inode, &call->st))
        text_set(call->copied, inode->live.version);
    if (freeze_kept(call, err) != 0) {
        free(call->drop.number);
        return -1;
    }
    drop_run(service, &call->drop);
    inode->freezes++;
    inode->state = call->content.state;
    inode->content_flags = call->content.flags;
    inode->dirty_size = inode->loose = inode->was_lent = false;
    inode->since_ns = 0;
    cache_file_settle(inode->file);
    if (call->changed && call->content.state != CONTENT_CLEAN)
        note_write(call);
    if (call->changed) {
        reads_changed(service, call->node.id, inode->wrote_run);
        event_emit(service, VOLUME_EVENT_CHANGED, &call->node, inode->wrote_by);
    }
    if (call->stale)
        event_emit(service, VOLUME_EVENT_STALE, &call->node, 0);
    if (call->content.state == CONTENT_CLEAN) {
        cache_clean(service->cache, inode->content);
        return 0;
    }
    return cache_meta_write(inode->file, &call->meta, err);
}

int
content_freeze_locked(struct volume_service *service, struct inode *inode, struct err *err)
{
    struct freeze_call call = { .service = service, .inode = inode, .changed = false };
    if (inode->file == NULL || inode->state != CONTENT_LIVE)
        return 0;
    if (backing_is_written(inode))
        return err_set(err, ERR_BUSY, "a program has the file open for writing");
    return freeze(&call, err);
}

int
content_freeze_and_locked(struct volume_service *service, struct inode *inode, index_fn *also,
                          void *arg, struct err *err)
{
    struct freeze_call call = {
        .service = service, .inode = inode, .changed = false, .also = also, .also_arg = arg
    };
    if (inode->file == NULL || inode->state != CONTENT_LIVE)
        return index_write(service->index, INDEX_NORMAL, also, arg, err);
    return freeze(&call, err);
}
