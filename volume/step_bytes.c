#include <errno.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/parse.h"
#include "base/scope.h"
#include "volume/reads_impl.h"
#include "volume/step_impl.h"
#include "volume/uploads.h"

/* What a step needs before it can send: hashes, bytes that lie elsewhere, a version for what only moved, and another place
 * for what lies in the way. */

#define PARK_PREFIX ".holdfast/park/"

static int
hash_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct step *step = arg;
    struct index_content row;
    if (index_content_get(tx, step->kv.content.id, &row, err) != 0)
        return err->code == ERR_NOT_FOUND ? 0 : -1;
    if (row.state != step->kv.content.state || strcmp(row.version, step->kv.content.version) != 0)
        return 0; /* written again meanwhile */
    text_set(row.sha256, step->sha256);
    text_set(row.md5, step->md5);
    if (index_content_update(tx, &row, err) != 0)
        return -1;
    return step_advance(step, tx, err);
}

int
step_bytes_hash(struct step *step, struct err *err)
{
    uint8_t sha[SHA256_SIZE], md[MD5_SIZE];
    struct err local = ERR_INIT;
    struct cache_file *file = cache_get(step->service->cache, step->kv.content.id, &local);
    if (file == NULL || cache_file_hash(file, step->kv.content.size, sha, md, &local) != 0) {
        cache_put(file);
        return step_give_up(step, &local, err);
    }
    cache_put(file);
    hex_encode(sha, sizeof(sha), step->sha256);
    hex_encode(md, sizeof(md), step->md5);
    return step_commit(step, hash_tx, err);
}

int
step_bytes_bring(struct step *step, int64_t node, struct err *why)
{
    struct volume_service *service = step->service;
    struct volume_ctx ctx = { .actor = "sync" };
    struct volume_attr attr;
    if (volume_getattr(service, &ctx, node, &attr, why) != 0)
        return -1;
    if (attr.kind != INDEX_FILE)
        return 0;
    struct inode *inode = inode_ref(&service->inodes, node, false, why);
    if (inode == NULL)
        return -1;
    ctx.deadline_ns = clock_mono_ns() + 30 * NS_PER_S + (int64_t)(attr.size >> 20) * NS_PER_S;
    pthread_mutex_lock(&inode->lock);
    int rc = 0;
    /* In spans, so that a huge file does not need one long request. */
    for (uint64_t off = 0; rc == 0 && (off < attr.size || off == 0); off += 16u << 20)
        rc = content_need_locked(service, &ctx, inode, off, 16u << 20, why);
    pthread_mutex_unlock(&inode->lock);
    inode_unref(&service->inodes, inode, false);
    return rc;
}

/* A moved file whose bytes were never here, and whose object somebody else has removed or replaced since: the bytes are
 * nowhere, and the name follows them. A foreign object at the old place stays there (docs/mechanisms.md section 7). */
static int
vanish_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct step *step = arg;
    struct index_node node;
    struct index_content row;
    struct index_key key;
    struct err missing = ERR_INIT;
    if (step_decide_tx(tx, step, err) != 0)
        return -1;
    const struct sync_want *want = &step->kv.view.want;
    if (!want->present || want->node != step->lost_node || want->dirty || want->writing ||
        want->bytes_local || want->at_this_key)
        return 0;
    if (index_node_get(tx, step->lost_node, &node, err) != 0)
        return -1;
    if (node.content != 0 && index_content_get(tx, node.content, &row, err) != 0)
        return -1;
    if (node.content != 0 && row.state != CONTENT_CLEAN)
        return 0;
    if (index_key_get(tx, node.key, &key, &missing) == 0 && key.owner == node.id)
        return 0;
    log_warn(sync, "a moved file was removed or replaced by others before its object moved key=%s",
             step->key);
    event_emit(step->service, VOLUME_EVENT_REMOVED, &node, 0);
    reads_changed(step->service, node.id, NULL);
    return node_unname(step->service, tx, &node, false, &step->drop, err);
}

int
step_bytes_fetch(struct step *step, int64_t node, struct err *err)
{
    struct err why = ERR_INIT;
    if (step_bytes_bring(step, node, &why) == 0)
        return 0;
    step->lost_node = node;
    if ((why.code == ERR_IO || why.code == ERR_NOT_FOUND) && step_commit(step, vanish_tx, err) != 0)
        return -1;
    return step_give_up(step, &why, err);
}

/* A moved or re-attributed node whose bytes are those of its synced version: they are frozen as a new version, so that the
 * usual way sends them. */
static int
prepare_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct step *step = arg;
    if (step_decide_tx(tx, step, err) != 0)
        return -1;
    struct key_view *kv = &step->kv;
    /* Nothing staged to send: a symlink or marker that has to be written again counts too. */
    if (!kv->prepare && (step->decision.action != SYNC_PUT || kv->content.id != 0))
        return 0;
    if (kv->node.kind != INDEX_FILE) {
        if (node_stage_inline(tx, &kv->node, err) != 0)
            return -1;
        return index_node_update(tx, &kv->node, err);
    }
    if (kv->content.id == 0 || (kv->content.flags & CONTENT_COMPLETE) == 0)
        return 0;
    struct index_content row = kv->content;
    row.state = CONTENT_FROZEN;
    row.flags |= CONTENT_ACKED;
    text_set(row.base_version, kv->node.version);
    text_set(row.base_etag, kv->node.etag);
    /* Whose bytes they are does not change by it. */
    struct index_version made;
    struct err unknown = ERR_INIT;
    bool known = kv->node.version[0] != '\0' &&
                 index_version_find(tx, kv->node.version, &made, &unknown) == 0;
    if (!known && kv->node.version[0] != '\0' && unknown.code != ERR_NOT_FOUND) {
        *err = unknown;
        return -1;
    }
    text_set(row.actor, known ? made.actor : "sync");
    text_set(row.run, known ? made.run : "");
    if (ulid_new(row.version, err) != 0)
        return -1;
    cache_pin(step->service->cache, row.id);
    return index_content_update(tx, &row, err);
}

struct settled_call {
    int64_t content;
    enum content_state state;
    bool gone;
};

static int
read_state(struct index_tx *tx, void *arg, struct err *err)
{
    struct settled_call *call = arg;
    struct index_content row;
    call->gone = false;
    if (index_content_get(tx, call->content, &row, err) == 0) {
        call->state = row.state;
        return 0;
    }
    call->gone = err->code == ERR_NOT_FOUND;
    return call->gone ? 0 : -1;
}

/* Open programs hold the same content file: their idea of its state follows. Since the commit that changed it a writer may have
 * written and closed again; what the row says now counts, or an fsync would take staged bytes for synced ones (INV-2) and an
 * eviction too (INV-7). */
void
step_bytes_settled(struct volume_service *service, int64_t node, int64_t content,
                   enum content_state state)
{
    struct err err = ERR_INIT;
    struct settled_call call = { .content = content };
    struct inode *inode = inode_ref(&service->inodes, node, false, &err);
    if (inode == NULL) {
        log_warn(sync, "content %lld stays pinned: %s", (long long)content, err.msg);
        return;
    }
    pthread_mutex_lock(&inode->lock);
    bool known = index_read(service->index, read_state, &call, &err) == 0;
    bool still = known && !call.gone && call.state == state;
    if (still && inode->content == content && inode->state != CONTENT_LIVE)
        inode->state = state;
    if (state == CONTENT_CLEAN && still)
        cache_clean(service->cache, content);
    else if (state == CONTENT_CLEAN && call.gone)
        cache_unpin(service->cache, content);
    pthread_mutex_unlock(&inode->lock);
    inode_unref(&service->inodes, inode, false);
}

int
step_bytes_prepare(struct step *step, struct err *err)
{
    const struct key_view *kv = &step->kv;
    if (kv->node.kind == INDEX_FILE && !kv->view.want.bytes_local) {
        if (step_bytes_fetch(step, kv->node.id, err) != 0 || step->done)
            return step->done ? 0 : -1;
    }
    if (step_commit(step, prepare_tx, err) != 0)
        return -1;
    if (step->kv.content.id != 0)
        step_bytes_settled(step->service, step->kv.node.id, step->kv.content.id, CONTENT_FROZEN);
    return 0;
}

/* ---- parking an owner in the way ---- */

static int
park_read_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct step *step = arg;
    if (step_decide_tx(tx, step, err) != 0)
        return -1;
    if (step->decision.action != SYNC_PARK)
        return 0;
    struct index_node owner;
    char id[ULID_SIZE];
    if (index_node_get(tx, step->decision.node, &owner, err) != 0 || ulid_new(id, err) != 0)
        return -1;
    (void)snprintf(step->park_key, sizeof(step->park_key), PARK_PREFIX "%s/%s",
                   step->kv.volume.name, id);
    return 0;
}

/* While the copy ran, the owner went its own way: what was copied is nobody's, and goes as any object that is not wanted. */
static int
park_in_vain(struct index_tx *tx, const struct step *step, struct err *err)
{
    struct index_key row = { .volume = step->volume, .discard = true };
    text_set(row.key, step->park_key);
    text_set(row.etag, step->park_etag);
    text_set(row.version, step->kv.view.have.version);
    row.size = step->kv.view.have.size;
    if (index_key_put(tx, &row, err) != 0)
        return -1;
    return key_want_sync(tx, step->volume, step->park_key, 0, err);
}

static int
park_done_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct step *step = arg;
    struct index_node owner;
    struct index_key row;
    if (uploads_copied_tx(tx, step->park_key, err) != 0 || step_decide_tx(tx, step, err) != 0)
        return -1;
    if (step->decision.action != SYNC_PARK ||
        index_node_get(tx, step->decision.node, &owner, err) != 0 ||
        strcmp(owner.key, step->key) != 0)
        return park_in_vain(tx, step, err);
    if (index_key_get(tx, step->key, &row, err) != 0)
        return -1;
    struct index_key parked = row;
    text_set(parked.key, step->park_key);
    text_set(parked.etag, step->park_etag);
    parked.owner = owner.id;
    parked.discard = false;
    row.owner = 0;
    row.discard = true;
    text_set(owner.key, step->park_key);
    text_set(owner.etag, step->park_etag);
    if (index_key_put(tx, &parked, err) != 0 || index_key_put(tx, &row, err) != 0 ||
        index_node_update(tx, &owner, err) != 0)
        return -1;
    struct index_content bytes;
    char home[LIMIT_KEY + 1];
    /* What is still to be fetched lies under another ETag now. */
    if (owner.content != 0) {
        if (index_content_get(tx, owner.content, &bytes, err) != 0)
            return -1;
        text_set(bytes.etag, step->park_etag);
        if (bytes.state == CONTENT_CLEAN && index_content_update(tx, &bytes, err) != 0)
            return -1;
    }
    if (key_of_node(tx, &owner, home, err) != 0)
        return -1;
    return key_want_since(tx, step->volume, home, step->kv.intent.since_ns, err);
}

int
step_bytes_park(struct step *step, struct err *err)
{
    struct object_room room;
    struct store_placement placement;
    struct store_copy copy = { .from = step->key,
                               .from_if_match = step->kv.view.have.etag,
                               .to = step->park_key,
                               .from_size = step->kv.view.have.size,
                               .placement = object_placement(&step->kv.volume, &room, &placement) };
    struct store_put_result result = { .outcome = STORE_NOT_DONE };
    struct err why = ERR_INIT;
    if (index_read(step->service->index, park_read_tx, step, err) != 0)
        return -1;
    if (step->decision.action != SYNC_PARK)
        return 0;
    /* A copy that nobody knows of would lie there for ever. */
    if (uploads_begin_copy(step->service, step->volume, step->park_key, err) != 0)
        return -1;
    if (store_copy(step->service->store, &copy, &result, &why) != 0) {
        service_store_seen(step->service, &why);
        return step_give_up(step, &why, err);
    }
    text_set(step->park_etag, result.etag);
    return step_commit(step, park_done_tx, err);
}
