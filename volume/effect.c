#include "volume/audit.h"
#include "volume/effect_impl.h"
#include "volume/link_impl.h"
#include "volume/preserve_impl.h"

/* How an effect that versioning/sync.h decided changes the rows. Everything runs inside an index transaction. */

int
effect_not_found(const struct err *local, struct err *err)
{
    if (local->code == ERR_NOT_FOUND)
        return 0;
    *err = *local;
    return -1;
}

int
effect_put_have(struct index_tx *tx, int64_t volume, const char *key, const struct sync_have *have,
                struct err *err)
{
    struct index_key row = {
        .volume = volume, .size = have->size, .owner = have->owner, .discard = have->discard
    };
    if (!have->present)
        return index_key_delete(tx, key, err);
    text_set(row.key, key);
    text_set(row.etag, have->etag);
    text_set(row.version, have->version);
    text_set(row.sha256, have->sha256);
    return index_key_put(tx, &row, err);
}

struct find_version {
    const char *version;
    struct index_content row;
    bool found;
};

static int
match_version(void *arg, const struct index_content *row, struct err *err)
{
    struct find_version *find = arg;
    (void)err;
    if (!find->found && row->state == CONTENT_FROZEN && strcmp(row->version, find->version) == 0) {
        find->row = *row;
        find->found = true;
    }
    return 0;
}

/* `path` NULL: wherever the node is now. */
static int
record_version(struct index_tx *tx, const struct index_node *node, const char *path,
               const struct index_content *content, const struct sync_have *have, struct err *err)
{
    struct index_version row = {
        .volume = node->volume, .node = node->id, .size = content->size, .time_ns = clock_wall_ns()
    };
    struct err ignored = ERR_INIT;
    text_set(row.version, content->version);
    text_set(row.base_version, content->base_version);
    text_set(row.etag, have->etag);
    text_set(row.sha256, content->sha256);
    text_set(row.actor, content->actor);
    text_set(row.run, content->run);
    (void)snprintf(row.op, sizeof(row.op), "put");
    /* The bytes of its base under a new id: the file moved, or has other attributes. */
    struct index_version base;
    if (content->base_version[0] != '\0' && content->sha256[0] != '\0' &&
        index_version_find(tx, content->base_version, &base, &ignored) == 0 &&
        strcmp(base.sha256, content->sha256) == 0)
        (void)snprintf(row.op, sizeof(row.op), "move");
    if (path != NULL)
        text_set(row.path, path);
    else if (index_node_path(tx, node->id, row.path, sizeof(row.path), &ignored) != 0)
        row.path[0] = '\0';
    return index_version_insert(tx, &row, err);
}

/* What landed was set aside here as torn after a power cut, and the name went back to an older version: the bucket has the
 * newer one whole, so the name follows. Staged bytes are newer still. */
static int
landed_without_bytes(struct index_tx *tx, struct index_node *node, const struct sync_effect *effect,
                     struct drop_list *drop, struct err *err)
{
    struct index_content row;
    if (node->kind != INDEX_FILE || (node->flags & INDEX_NODE_LINK) != 0 ||
        strcmp(node->version, effect->version) == 0)
        return 0;
    if (node->content != 0) {
        if (index_content_get(tx, node->content, &row, err) != 0)
            return -1;
        if (row.state != CONTENT_CLEAN || strcmp(row.version, effect->version) == 0)
            return 0;
    }
    node->content = 0;
    node->size = effect->have.size;
    node->flags |= INDEX_NODE_META_UNKNOWN;
    return node_drop_contents(tx, node->id, 0, drop, err);
}

struct outdated {
    const struct index_content *landed;
    int64_t id[32];
    size_t count;
};

static int
collect_outdated(void *arg, const struct index_content *row, struct err *err)
{
    struct outdated *call = arg;
    (void)err;
    /* A file that stayed open has a lower number than its copy, and what it was closed with a later version. */
    bool older = row->state == CONTENT_FROZEN ? strcmp(row->version, call->landed->version) < 0
                                              : row->id < call->landed->id;
    if (older && row->state != CONTENT_LIVE && (row->flags & CONTENT_PINNED) == 0 &&
        call->count < 32)
        call->id[call->count++] = row->id;
    return 0;
}

/* Saves from before the version that the bucket has now: a torn newer save must not go back behind it. */
static int
drop_outdated(struct index_tx *tx, int64_t node, const struct index_content *landed,
              struct drop_list *drop, struct err *err)
{
    struct outdated call = { .landed = landed };
    if (index_content_of_node(tx, node, collect_outdated, &call, err) != 0)
        return -1;
    for (size_t i = 0; i < call.count; i++)
        if (index_content_delete(tx, call.id[i], err) != 0 || drop_add(drop, call.id[i], err) != 0)
            return -1;
    return 0;
}

/* FROZEN becomes CLEAN, or goes when something newer or nothing local follows it. `here`: at the node's own place; `takes`: there, or
 * the node's newest bytes lie there until its move is done. */
static int
clean_content(struct view_change *change, struct index_node *node, bool here, bool takes,
              struct err *err)
{
    struct index_tx *tx = change->tx;
    const struct sync_effect *effect = change->effect;
    struct drop_list *drop = change->drop;
    struct find_version find = { .version = effect->version };
    if (index_content_of_node(tx, node->id, match_version, &find, err) != 0)
        return -1;
    if (!find.found)
        return takes ? landed_without_bytes(tx, node, effect, drop, err) : 0;
    const char *path =
        here && node->kind != INDEX_DIR ? change->key + strlen(change->kv->volume.prefix) : NULL;
    if (record_version(tx, node, path, &find.row, &effect->have, err) != 0)
        return -1;
    bool follows = (node->flags & INDEX_NODE_LINK) != 0; /* its copy was made for this */
    if (node->kind == INDEX_FILE && node->content == find.row.id && !follows) {
        find.row.state = CONTENT_CLEAN;
        text_set(find.row.etag, effect->have.etag);
        if (index_content_update(tx, &find.row, err) != 0)
            return -1;
        change->cleaned = find.row.id;
        change->cleaned_node = node->id;
        return node_drop_contents(tx, node->id, find.row.id, drop, err);
    }
    if (node->content == find.row.id)
        node->content = 0;
    if (node->kind == INDEX_FILE && drop_add(drop, find.row.id, err) != 0)
        return -1;
    if (index_content_delete(tx, find.row.id, err) != 0)
        return -1;
    return drop_outdated(tx, node->id, &find.row, drop, err);
}

int
effect_discard(struct view_change *change, const char *key, struct err *err)
{
    int64_t volume = change->kv->intent.volume;
    if (key[0] == '\0')
        return 0;
    if (key_discard(change->tx, volume, key, err) != 0)
        return -1;
    change->more = true;
    return key_want_since(change->tx, volume, key, change->kv->intent.since_ns, err);
}

/* What the file left at its former place is what lies at the new one: it needs no keeping. */
static int
mark_moved(struct index_tx *tx, const char *old, const struct sync_have *have, struct err *err)
{
    struct index_key row;
    struct err missing = ERR_INIT;
    if (have->sha256[0] == '\0')
        return 0;
    if (index_key_get(tx, old, &row, &missing) != 0)
        return effect_not_found(&missing, err);
    if (strcmp(row.sha256, have->sha256) != 0)
        return 0;
    row.kept = 1;
    return index_key_put(tx, &row, err);
}

static int
place_node(struct view_change *change, struct index_node *node, struct err *err)
{
    struct index_tx *tx = change->tx;
    const char *key = change->key;
    const struct sync_effect *effect = change->effect;
    char old[LIMIT_KEY + 1];
    text_set(old, node->key);
    text_set(node->key, key);
    text_set(node->version, effect->version);
    text_set(node->etag, effect->have.etag);
    if (index_node_update(tx, node, err) != 0 ||
        link_want(tx, node, 0, change->kv->intent.since_ns, err) != 0)
        return -1;
    change->more |= (node->flags & INDEX_NODE_LINKED) != 0;
    if (strcmp(old, key) == 0 || old[0] == '\0')
        return 0;
    if (mark_moved(tx, old, &effect->have, err) != 0)
        return -1;
    return effect_discard(change, old, err);
}

static int
synced_conflict(struct index_tx *tx, struct key_view *kv, struct drop_list *drop, struct err *err)
{
    struct index_conflict conflict;
    if (index_conflict_get(tx, kv->conflict_id, &conflict, err) != 0)
        return -1;
    int64_t content = conflict.content;
    conflict.synced = true;
    conflict.content = 0;
    if (index_conflict_put(tx, &conflict, err) != 0 || content == 0)
        return content == 0 ? 0 : -1;
    if (drop_add(drop, content, err) != 0)
        return -1;
    return index_content_delete(tx, content, err);
}

/* Renamed or removed while the request ran. What landed here may be all that the bucket has of the newest bytes. */
static int
synced_elsewhere(struct view_change *change, struct index_node *node, const char *home,
                 struct err *err)
{
    /* Gone, or at home already: this copy is not needed. */
    if (home[0] == '\0' || (change->cleaned == 0 && strcmp(node->key, home) == 0)) {
        if (index_node_update(change->tx, node, err) != 0)
            return -1;
        return effect_discard(change, change->key, err);
    }
    if (place_node(change, node, err) != 0)
        return -1;
    change->more = true;
    return key_want_since(change->tx, node->volume, home, change->kv->intent.since_ns, err);
}

static int
apply_synced(struct view_change *change, struct err *err)
{
    struct index_tx *tx = change->tx;
    struct index_node node;
    struct err missing = ERR_INIT;
    char home[LIMIT_KEY + 1] = "";
    if (change->kv->conflict_id[0] != '\0')
        return synced_conflict(tx, change->kv, change->drop, err);
    if (change->effect->node < 0)
        return preserve_synced(tx, change, err);
    if (index_node_get(tx, change->effect->node, &node, &missing) != 0) {
        if (effect_not_found(&missing, err) != 0)
            return -1;
        return key_discard(tx, change->kv->intent.volume, change->key, err);
    }
    bool orphan = (node.flags & INDEX_NODE_ORPHAN) != 0;
    if (!orphan && key_of_node(tx, &node, home, err) != 0)
        return -1;
    bool here = strcmp(home, change->key) == 0;
    bool takes = here || (home[0] != '\0' && strcmp(node.key, home) != 0);
    if (clean_content(change, &node, here, takes, err) != 0)
        return -1;
    if (!here)
        return synced_elsewhere(change, &node, home, err);
    if (place_node(change, &node, err) != 0)
        return -1;
    change->at_rest = change->cleaned != 0 && (node.flags & INDEX_NODE_ATTRS_DIRTY) == 0;
    event_emit(change->service, VOLUME_EVENT_SYNCED, &node, 0);
    return 0;
}

struct pick_loser {
    const char *version;
    struct index_content row;
    bool found;
};

static int
match_loser(void *arg, const struct index_content *row, struct err *err)
{
    struct pick_loser *pick = arg;
    (void)err;
    bool local = (row->flags & CONTENT_COMPLETE) != 0 && row->state != CONTENT_LIVE;
    if (!pick->found && local && strcmp(row->version, pick->version) == 0) {
        pick->row = *row;
        pick->found = true;
    }
    return 0;
}

static void
fill_conflict(const struct index_content *mine, const char *reason, const struct sync_have *theirs,
              struct index_conflict *row)
{
    row->content = mine->id;
    row->time_ns = clock_wall_ns();
    text_set(row->reason, reason);
    text_set(row->base_version, mine->base_version);
    text_set(row->mine_version, mine->version);
    text_set(row->theirs_version, theirs->version);
    text_set(row->theirs_etag, theirs->etag);
    text_set(row->actor, mine->actor);
    text_set(row->run, mine->run);
}

int
view_keep_loser(struct volume_service *service, struct index_tx *tx, const struct index_node *node,
                const struct view_loser *loser, struct err *err)
{
    struct index_conflict row = { .volume = node->volume, .node = node->id };
    struct index_volume volume;
    struct index_content mine = *loser->content;
    char key[LIMIT_KEY + 1];
    struct err ignored = ERR_INIT;
    if (ulid_new(row.id, err) != 0 || index_volume_get(tx, node->volume, &volume, err) != 0)
        return -1;
    if (loser->path != NULL)
        text_set(row.path, loser->path);
    else if (index_node_path(tx, node->id, row.path, sizeof(row.path), &ignored) != 0)
        text_set(row.path, node->name);
    mine.node = 0;
    mine.state = CONTENT_FROZEN;
    mine.flags |= CONTENT_PINNED;
    if (mine.version[0] == '\0' && ulid_new(mine.version, err) != 0)
        return -1;
    fill_conflict(&mine, loser->reason, &loser->theirs, &row);
    cache_pin(service->cache, mine.id);
    (void)snprintf(key, sizeof(key), CONFLICT_PREFIX "%s/%s", volume.name, row.id);
    if (index_content_update(tx, &mine, err) != 0 ||
        conflict_keep_base(tx, &row, &mine, node, err) != 0 ||
        index_conflict_put(tx, &row, err) != 0)
        return -1;
    event_emit(service, VOLUME_EVENT_CONFLICT, node, 0);
    volume_audit_note(service, &(struct audit_record){ .verb = "conflict",
                                                       .face = "gateway",
                                                       .actor = row.actor,
                                                       .run = row.run,
                                                       .volume_name = volume.name,
                                                       .path = row.path,
                                                       .before = row.base_version,
                                                       .after = row.mine_version,
                                                       .result = row.reason,
                                                       .detail = row.id,
                                                       .bytes = (int64_t)mine.size,
                                                       .uid = -1 });
    return key_want_since(tx, node->volume, key, loser->since_ns, err);
}

static int
apply_loser(struct view_change *change, struct err *err)
{
    struct index_tx *tx = change->tx;
    const struct sync_effect *effect = change->effect;
    struct index_node node;
    struct pick_loser pick = { .version = effect->version };
    if (index_node_get(tx, effect->node, &node, err) != 0 ||
        index_content_of_node(tx, effect->node, match_loser, &pick, err) != 0)
        return -1;
    /* A folder's marker or a symlink has no bytes worth a conflict: theirs stands. A file with other names keeps its bytes there. */
    if (!pick.found || node.kind != INDEX_FILE || (node.flags & INDEX_NODE_LINKED) != 0)
        return 0;
    if (node.content == pick.row.id) {
        node.content = 0;
        if (index_node_update(tx, &node, err) != 0)
            return -1;
        change->kv->node = node;
    }
    struct view_loser loser = { .content = &pick.row,
                                .reason = effect->have.present ? "conflict" : "deleted",
                                .theirs = effect->have,
                                .since_ns = change->kv->intent.since_ns };
    change->loser_kept = true;
    return view_keep_loser(change->service, tx, &node, &loser, err);
}

/* ---- the work item ---- */

#define BACK_OFF_MIN (200 * NS_PER_MS)
#define BACK_OFF_MAX (60 * NS_PER_S)

static int64_t
back_off(uint32_t tries)
{
    uint64_t seed = (uint64_t)clock_mono_ns();
    int64_t cap = BACK_OFF_MIN << (tries < 9 ? tries : 9);
    if (cap > BACK_OFF_MAX)
        cap = BACK_OFF_MAX;
    return cap / 2 + (int64_t)(random_next(&seed) % (uint64_t)(cap / 2));
}

static int
apply_intent(struct index_tx *tx, struct key_view *kv, const struct sync_effect *effect,
             struct err *err)
{
    struct index_intent row;
    struct err missing = ERR_INIT;
    int64_t now = clock_wall_ns();
    /* Earlier parts of the effect may have touched the row: read it again. */
    if (index_intent_get(tx, kv->intent.key, &row, &missing) != 0) {
        if (!kv->has_intent)
            return effect_not_found(&missing, err);
        row = kv->intent;
    }
    if ((effect->bits & SYNC_CLEAR_ATTEMPT) != 0)
        memset(&row.attempt, 0, sizeof(row.attempt));
    if ((effect->bits & SYNC_MARK_UNKNOWN) != 0)
        row.attempt.unknown = true;
    if ((effect->bits & SYNC_LOOK_AGAIN) != 0)
        row.look_again_until_ns = now + 20 * 60 * NS_PER_S;
    if ((effect->bits & SYNC_BACK_OFF) != 0) {
        row.not_before_ns = now + back_off(row.tries);
        row.tries++;
    } else {
        row.tries = 0;
        row.last_error[0] = '\0';
    }
    /* What is still to be done here came after the version that landed. */
    if ((effect->bits & SYNC_SYNCED) != 0 && kv->view.want.node == effect->node) {
        int64_t made = ulid_time_ms(effect->version) * NS_PER_MS;
        if (made > row.since_ns && made <= now)
            row.since_ns = made;
    }
    return index_intent_put(tx, &row, err);
}

/* Landed, clean and at home: whoever decided anew would find nothing to do (versioning/sync.c, decide_present()). */
static bool
is_settled(const struct view_change *change)
{
    return change->at_rest &&
           change->effect->bits == (SYNC_CLEAR_ATTEMPT | SYNC_SET_HAVE | SYNC_SYNCED) &&
           change->effect->have.owner == change->effect->node;
}

int
view_apply(struct view_change *change, struct err *err)
{
    const struct sync_effect *effect = change->effect;
    int64_t volume = change->kv->intent.volume;
    change->more = (effect->bits & (SYNC_KEEP_LOSER | SYNC_TAKE_THEIRS)) != 0;
    if ((effect->bits & SYNC_SET_HAVE) != 0 && !effect->have.present)
        gone_keys_add(&change->service->gone, change->key);
    if ((effect->bits & SYNC_SET_HAVE) != 0 &&
        effect_put_have(change->tx, volume, change->key, &effect->have, err) != 0)
        return -1;
    if ((effect->bits & SYNC_SYNCED) != 0 && apply_synced(change, err) != 0)
        return -1;
    if ((effect->bits & SYNC_KEEP_LOSER) != 0 && apply_loser(change, err) != 0)
        return -1;
    if ((effect->bits & SYNC_TAKE_THEIRS) != 0 && theirs_apply(change, err) != 0)
        return -1;
    change->settled = is_settled(change);
    if (change->settled)
        return index_intent_delete(change->tx, change->key, err);
    return apply_intent(change->tx, change->kv, effect, err);
}
