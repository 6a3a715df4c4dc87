#include <assert.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/path.h"
#include "volume/link_impl.h"
#include "volume/move_impl.h"
#include "volume/preserve_impl.h"

/* Between the rows of the index and the pure decisions of versioning/sync.h: what is wanted and believed at a key. Everything runs inside an index transaction. */

#define RE_PUT_LIMIT (8u << 20) /* attribute changes re-send files up to this size */

static int
not_found_is_fine(const struct err *local, struct err *err)
{
    if (local->code == ERR_NOT_FOUND)
        return 0;
    *err = *local;
    return -1;
}

/* ---- building ---- */

static void
want_content(struct sync_want *want, const struct index_content *content)
{
    text_set(want->version, content->version);
    text_set(want->md5, content->md5);
    text_set(want->sha256, content->sha256);
    want->size = content->size;
}

static int
want_node(struct index_tx *tx, const char *key, struct key_view *kv, struct err *err)
{
    struct sync_want *want = &kv->view.want;
    const struct index_node *node = &kv->node;
    struct err missing = ERR_INIT;
    want->present = true;
    want->node = node->id;
    want->at_this_key = node->key[0] != '\0' && strcmp(node->key, key) == 0;
    text_set(want->version, node->version);
    text_set(want->base_etag, node->etag);
    text_set(want->base_version, node->version);
    want->size = node->size;
    want->bytes_local = node->kind != INDEX_FILE;
    bool staged = false;
    if (node->content != 0) {
        if (index_content_get(tx, node->content, &kv->content, err) != 0)
            return -1;
        want->writing = kv->content.state == CONTENT_LIVE;
        staged = kv->content.state == CONTENT_FROZEN;
        if (want->writing) {
            staged = content_frozen_of(tx, node->id, &kv->content, &missing) == 0;
            if (!staged && not_found_is_fine(&missing, err) != 0)
                return -1;
        } else if (kv->content.state == CONTENT_CLEAN &&
                   (kv->content.flags & CONTENT_COMPLETE) != 0) {
            want->bytes_local = true;
            text_set(want->md5, kv->content.md5);
            text_set(want->sha256, kv->content.sha256);
        }
    }
    if (staged) {
        want_content(want, &kv->content);
        want->dirty = true;
        want->bytes_local = true;
        return 0;
    }
    bool attrs = (node->flags & INDEX_NODE_ATTRS_DIRTY) != 0 && node->size <= RE_PUT_LIMIT;
    kv->prepare = !want->writing && (!want->at_this_key || attrs);
    if (want->writing || node->content == 0)
        memset(&kv->content, 0, sizeof(kv->content));
    return 0;
}

static int
want_conflict(struct index_tx *tx, const char *key, struct key_view *kv, struct err *err)
{
    struct sync_want *want = &kv->view.want;
    struct index_conflict conflict;
    struct err missing = ERR_INIT;
    const char *id = strrchr(key, '/') + 1;
    if (index_conflict_get(tx, id, &conflict, &missing) != 0)
        return not_found_is_fine(&missing, err);
    text_set(kv->conflict_id, id);
    want->present = true;
    want->bytes_local = true;
    if (conflict.synced || conflict.content == 0) {
        want->node = kv->view.have.owner;
        want->at_this_key = true;
        text_set(want->base_etag, kv->view.have.etag);
        return 0;
    }
    if (index_content_get(tx, conflict.content, &kv->content, err) != 0)
        return -1;
    /* No node owns a loser's bytes; a negative number that no node has stands for the content. */
    want->node = -kv->content.id;
    want->dirty = true;
    want_content(want, &kv->content);
    kv->node.mode = S_IFREG | 0600;
    kv->node.mtime_ns = kv->content.mtime_ns;
    return 0;
}

/* A version that was replaced before the bucket had it goes to the history straight. What lies there stays until its row goes. */
static int
want_history(struct index_tx *tx, const char *key, struct key_view *kv, struct err *err)
{
    struct sync_want *want = &kv->view.want;
    struct index_history row;
    struct index_node node;
    struct err missing = ERR_INIT;
    const char *id = strrchr(key, '/') + 1;
    if (index_history_get(tx, id, &row, &missing) != 0)
        return not_found_is_fine(&missing, err);
    want->present = true;
    want->bytes_local = true;
    want->node = kv->view.have.owner;
    want->at_this_key = true;
    text_set(want->base_etag, kv->view.have.etag);
    if (row.state != INDEX_HISTORY_STAGED)
        return 0;
    if (index_content_get(tx, row.content, &kv->content, err) != 0)
        return -1;
    text_set(kv->history_id, id);
    want->node = -kv->content.id;
    want->at_this_key = false;
    want->base_etag[0] = '\0';
    want->dirty = true;
    want_content(want, &kv->content);
    kv->node.kind = INDEX_FILE;
    kv->node.mode = row.mode;
    kv->node.uid = row.uid;
    kv->node.gid = row.gid;
    kv->node.mtime_ns = row.mtime_ns;
    if (index_node_get(tx, row.node, &node, &missing) != 0)
        return not_found_is_fine(&missing, err);
    kv->inode = node.id;
    text_set(kv->node.ulid, node.ulid);
    return 0;
}

static int
have_owner(struct index_tx *tx, struct key_view *kv, struct err *err)
{
    struct sync_have *have = &kv->view.have;
    struct index_node owner;
    struct index_key row;
    struct index_intent intent;
    struct index_content content;
    struct err missing = ERR_INIT;
    char home[LIMIT_KEY + 1];
    if (have->owner <= 0 || (kv->view.want.present && have->owner == kv->view.want.node))
        return 0;
    if (index_node_get(tx, have->owner, &owner, &missing) != 0 ||
        (owner.flags & INDEX_NODE_ORPHAN) != 0) {
        /* The owner is gone: nobody needs these bytes any more. */
        have->owner = 0;
        have->discard = true;
        return missing.code == ERR_INTERNAL ? 0 : not_found_is_fine(&missing, err);
    }
    if (key_of_node(tx, &owner, home, err) != 0)
        return -1;
    bool free = index_key_get(tx, home, &row, &missing) != 0;
    if (index_intent_get(tx, home, &intent, &missing) == 0)
        free = free && intent.attempt.op == SYNC_OP_NONE;
    if (owner.content != 0 && index_content_get(tx, owner.content, &content, &missing) == 0)
        free = free && content.state != CONTENT_LIVE;
    have->owner_home_free = free;
    return 0;
}

static int
have_key(struct index_tx *tx, const char *key, struct key_view *kv, struct err *err)
{
    struct index_key row;
    struct sync_have *have = &kv->view.have;
    struct err missing = ERR_INIT;
    if (index_key_get(tx, key, &row, &missing) != 0)
        return not_found_is_fine(&missing, err);
    have->present = true;
    text_set(have->etag, row.etag);
    text_set(have->version, row.version);
    text_set(have->sha256, row.sha256);
    have->size = row.size;
    have->owner = row.owner;
    have->discard = row.discard;
    have->kept = row.kept != 0;
    return 0;
}

int
view_build(struct volume_service *service, struct index_tx *tx, int64_t volume, const char *key,
           struct key_view *out, struct err *err)
{
    struct err missing = ERR_INIT;
    memset(out, 0, sizeof(*out));
    if (index_volume_get(tx, volume, &out->volume, err) != 0 || have_key(tx, key, out, err) != 0)
        return -1;
    out->has_intent = index_intent_get(tx, key, &out->intent, &missing) == 0;
    if (!out->has_intent) {
        if (not_found_is_fine(&missing, err) != 0)
            return -1;
        text_set(out->intent.key, key);
        out->intent.volume = volume;
        out->intent.since_ns = clock_wall_ns();
    }
    out->view.attempt = out->intent.attempt;
    missing = (struct err)ERR_INIT;
    if (move_is_work(key))
        return move_view(tx, key, out, err);
    if (strncmp(key, CONFLICT_PREFIX, sizeof(CONFLICT_PREFIX) - 1) == 0) {
        if (want_conflict(tx, key, out, err) != 0)
            return -1;
    } else if (strncmp(key, HISTORY_PREFIX, sizeof(HISTORY_PREFIX) - 1) == 0) {
        if (want_history(tx, key, out, err) != 0)
            return -1;
    } else if (key_to_node(tx, &out->volume, key, &out->node, &missing) == 0) {
        bool wanted = out->node.kind != INDEX_DIR || (out->node.flags & INDEX_NODE_MARKER) != 0;
        out->inode = out->node.id;
        if ((out->node.flags & INDEX_NODE_LINK) != 0) {
            if (link_view(tx, key, out, err) != 0)
                return -1;
        } else if (wanted && want_node(tx, key, out, err) != 0) {
            return -1;
        }
    } else if (missing.code != ERR_NOT_FOUND) {
        *err = missing;
        return -1;
    }
    if (have_owner(tx, out, err) != 0)
        return -1;
    const struct store_caps *caps = &service->store->caps;
    out->view.rules.put_if_absent = caps->put_if_absent == STORE_YES;
    out->view.rules.put_if_match = caps->put_if_match == STORE_YES;
    out->view.rules.delete_if_match = caps->delete_if_match == STORE_YES;
    out->view.rules.history = preserve_wanted(&out->volume, key);
    out->view.rules.lease_held = lease_keeper_held(service, &out->volume, &out->view.rules.epoch);
    return 0;
}
