#include <errno.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/parse.h"
#include "base/scope.h"
#include "volume/service_impl.h"

/*
 * One key brought to what the tree says: decide, do one step without any lock, commit its effect, decide anew
 * (versioning/sync.h). A worker of volume/sync.c calls step_key(); nobody else works on the same key meanwhile.
 */

#define STEPS_MAX 32u
#define PARK_PREFIX ".holdfast/park/"

struct step {
    struct volume_service *service;
    int64_t volume;
    const char *key;
    struct key_view kv;
    struct sync_decision decision;
    struct sync_attempt late[SYNC_LATE_PER_KEY];
    size_t late_count;
    /* inputs of the next transaction */
    struct sync_answer answer;
    struct object_attrs attrs;
    bool has_attrs;
    struct sync_effect effect;
    struct drop_list drop;
    struct meta *meta; /* of the PUT that begins */
    bool done;         /* nothing left for now */
    int64_t lost_node; /* whose bytes cannot be fetched any more */
    int64_t cleaned,
        cleaned_node; /* the content row that the last transaction made CLEAN, 0: none */
    char error[160];
    char sha256[SHA256_HEX], md5[MD5_HEX];
    char park_key[LIMIT_KEY + 1];
    char park_etag[LIMIT_ETAG];
};

static int
decide_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct step *step = arg;
    if (view_build(step->service, tx, step->volume, step->key, &step->kv, err) != 0)
        return -1;
    step->kv.view.late = step->late;
    step->kv.view.late_count = step->late_count;
    sync_decide(&step->kv.view, &step->decision);
    return 0;
}

static bool
idle_for_now(const struct step *step)
{
    const struct sync_want *want = &step->kv.view.want;
    if (step->kv.prepare)
        return false;
    if (step->decision.action == SYNC_IDLE)
        return true;
    /* Only a LIVE content so far: the freeze makes the work item anew. What somebody else left at the key is work of its
     * own: the node may move on before its freeze, and then nobody else would remember. */
    const struct sync_have *have = &step->kv.view.have;
    return step->decision.action == SYNC_WAIT && want->present && want->writing && !want->dirty &&
           (!have->present || have->owner == want->node);
}

/* IDLE again inside the writing transaction: the work item goes. */
static int
finish_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct step *step = arg;
    if (decide_tx(tx, step, err) != 0)
        return -1;
    step->done = idle_for_now(step);
    if (!step->done || !step->kv.has_intent)
        return 0;
    return index_intent_delete(tx, step->key, err);
}

static int
postpone_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct step *step = arg;
    struct index_intent row;
    if (index_intent_get(tx, step->key, &row, err) != 0)
        return err->code == ERR_NOT_FOUND ? 0 : -1;
    row.not_before_ns = clock_wall_ns() + NS_PER_S / 4;
    return index_intent_put(tx, &row, err);
}

static int
evacuate_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct step *step = arg;
    struct index_node owner;
    char home[LIMIT_KEY + 1];
    if (index_node_get(tx, step->decision.node, &owner, err) != 0)
        return err->code == ERR_NOT_FOUND ? 0 : -1;
    if (key_of_node(tx, &owner, home, err) != 0 ||
        key_want_since(tx, step->volume, home, step->kv.intent.since_ns, err) != 0)
        return -1;
    return postpone_tx(tx, arg, err);
}

static int
apply(struct step *step, struct index_tx *tx, const struct sync_effect *effect,
      const struct object_attrs *attrs, struct err *err)
{
    struct view_change change = { .service = step->service,
                                  .tx = tx,
                                  .key = step->key,
                                  .kv = &step->kv,
                                  .effect = effect,
                                  .attrs = attrs,
                                  .drop = &step->drop };
    int rc = view_apply(&change, err);
    step->cleaned = change.cleaned;
    step->cleaned_node = change.cleaned_node;
    if (rc == 0 && (effect->bits & SYNC_KEEP_LOSER) != 0)
        inode_tell_loser(step->service, effect->node);
    return rc;
}

static int
judge_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct step *step = arg;
    if (view_build(step->service, tx, step->volume, step->key, &step->kv, err) != 0)
        return -1;
    step->kv.view.late = step->late;
    step->kv.view.late_count = step->late_count;
    struct sync_attempt sent = step->kv.view.attempt;
    sync_judge(&step->kv.view, &step->answer, &step->effect);
    if (step->error[0] != '\0')
        text_set(step->kv.intent.last_error, step->error);
    if (apply(step, tx, &step->effect, step->has_attrs ? &step->attrs : NULL, err) != 0)
        return -1;
    if ((step->effect.bits & SYNC_LOOK_AGAIN) != 0 && sent.op != SYNC_OP_NONE)
        sync_late_add(step->service, step->key, &sent);
    if (step->error[0] == '\0')
        return 0;
    struct index_intent row;
    if (index_intent_get(tx, step->key, &row, err) != 0)
        return err->code == ERR_NOT_FOUND ? 0 : -1;
    text_set(row.last_error, step->error);
    return index_intent_put(tx, &row, err);
}

static int
effect_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct step *step = arg;
    enum sync_action planned = step->decision.action;
    if (decide_tx(tx, step, err) != 0 || step->decision.action != planned)
        return step->decision.action != planned ? 0 : -1;
    return apply(step, tx, &step->decision.effect, NULL, err);
}

static int
commit_with(struct step *step, enum index_durability durability, index_fn *fn, struct err *err)
{
    int rc = index_write(step->service->index, durability, fn, step, err);
    if (rc == 0)
        drop_run(step->service, &step->drop);
    free(step->drop.number);
    step->drop = (struct drop_list){ 0 };
    return rc;
}

static int
commit_step(struct step *step, index_fn *fn, struct err *err)
{
    return commit_with(step, INDEX_NORMAL, fn, err);
}

static int give_up_for_now(struct step *step, const struct err *why, struct err *err);

/* A loser's bytes may be the only ones of their version: they are on the disk before the name shows anything else. */
static int
commit_loser(struct step *step, index_fn *fn, struct err *err)
{
    struct err local = ERR_INIT;
    const struct key_view *kv = &step->kv;
    if (kv->content.id != 0 && kv->node.kind == INDEX_FILE) {
        struct cache_file *file = cache_get(step->service->cache, kv->content.id, &local);
        int rc = file == NULL ? 0 : cache_file_sync(file, &local);
        cache_put(file);
        if (rc != 0)
            return give_up_for_now(step, &local, err);
    }
    return commit_with(step, INDEX_FULL, fn, err);
}

/* ---- looking ---- */

static void
answer_from(struct step *step, int rc, enum store_outcome outcome, const char *etag,
            const struct err *why)
{
    step->answer = (struct sync_answer){ .result = SYNC_RESULT_UNKNOWN };
    step->has_attrs = false;
    step->error[0] = '\0';
    if (rc == 0) {
        step->answer.result = SYNC_RESULT_DONE;
        text_set(step->answer.etag, etag);
        return;
    }
    if (outcome == STORE_REFUSED)
        step->answer.result = SYNC_RESULT_REFUSED;
    else if (outcome == STORE_NOT_DONE)
        step->answer.result = SYNC_RESULT_NOT_DONE;
    if (outcome != STORE_REFUSED)
        (void)snprintf(step->error, sizeof(step->error), "%.*s", (int)sizeof(step->error) - 1,
                       why->msg);
}

/* HEAD; 1 when the store could not be asked. */
static int
look(struct step *step, struct err *err)
{
    struct store_object object;
    store_object_init(&object);
    int rc = store_head(step->service->store, step->key, 0, &object, err);
    bool absent = rc != 0 && err->code == ERR_NOT_FOUND;
    service_store_seen(step->service, rc == 0 || absent ? NULL : err);
    step->answer = (struct sync_answer){ .result = SYNC_RESULT_SEEN };
    step->has_attrs = rc == 0;
    step->error[0] = '\0';
    if (rc == 0)
        object_read(&object, &step->answer.seen, &step->attrs);
    store_object_release(&object);
    return rc == 0 || absent ? 0 : 1;
}

static int
backoff_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct step *step = arg;
    struct sync_effect effect = { .bits = SYNC_BACK_OFF };
    if (view_build(step->service, tx, step->volume, step->key, &step->kv, err) != 0)
        return -1;
    if (apply(step, tx, &effect, NULL, err) != 0)
        return -1;
    struct index_intent row;
    if (index_intent_get(tx, step->key, &row, err) != 0)
        return err->code == ERR_NOT_FOUND ? 0 : -1;
    text_set(row.last_error, step->error);
    return index_intent_put(tx, &row, err);
}

static int
give_up_for_now(struct step *step, const struct err *why, struct err *err)
{
    (void)snprintf(step->error, sizeof(step->error), "%.*s", (int)sizeof(step->error) - 1,
                   why->msg);
    step->done = true;
    return commit_step(step, backoff_tx, err);
}

static int
do_look(struct step *step, struct err *err)
{
    struct err why = ERR_INIT;
    if (look(step, &why) != 0)
        return give_up_for_now(step, &why, err);
    return commit_loser(step, judge_tx, err);
}

/* ---- sending ---- */

static int
begin_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct step *step = arg;
    struct sync_decision planned = step->decision;
    struct index_intent row;
    if (decide_tx(tx, step, err) != 0)
        return -1;
    if (step->decision.action != planned.action ||
        strcmp(step->decision.cond_etag, planned.cond_etag) != 0)
        return err_set(err, ERR_AGAIN, "the key's state moved");
    row = step->kv.intent;
    sync_begin(&step->kv.view, &step->decision, step->kv.content.id, &row.attempt);
    step->kv.view.attempt = row.attempt;
    if (planned.action == SYNC_PUT) {
        if (object_meta_make(&step->kv.node, &step->kv.content, step->kv.view.rules.epoch,
                             step->meta, err) != 0)
            return -1;
        struct index_node node;
        if (step->kv.conflict_id[0] == '\0' &&
            (step->kv.node.flags & INDEX_NODE_ATTRS_DIRTY) != 0) {
            /* This request carries them; if it does not land, the content is still unsynced and the next one does. */
            if (index_node_get(tx, step->kv.node.id, &node, err) != 0)
                return -1;
            node.flags &= ~(unsigned)INDEX_NODE_ATTRS_DIRTY;
            if (index_node_update(tx, &node, err) != 0)
                return -1;
        }
    }
    return index_intent_put(tx, &row, err);
}

static int
send_put(struct step *step, struct cache_file *file, struct err *err)
{
    struct store_put_result result = { .outcome = STORE_NOT_DONE };
    const struct index_content *content = &step->kv.content;
    uint8_t sha[SHA256_SIZE], md[MD5_SIZE];
    struct store_put put = { .key = step->key, .meta = step->meta };
    put.body.size = content->size;
    put.body.fd = -1;
    if (file != NULL)
        put.body.fd = cache_file_fd(file);
    else
        put.body.mem = step->kv.node.kind == INDEX_SYMLINK ? step->kv.node.target : "";
    if (hex_decode(content->sha256, strlen(content->sha256), sha, sizeof(sha)))
        put.body.sha256 = sha;
    if (hex_decode(content->md5, strlen(content->md5), md, sizeof(md)))
        put.body.md5 = md;
    if (step->decision.cond_absent)
        put.cond.kind = STORE_COND_ABSENT;
    else if (step->decision.cond_etag[0] != '\0')
        put.cond =
            (struct store_cond){ .kind = STORE_COND_MATCH, .etag = step->decision.cond_etag };
    if (step->decision.checked)
        put.cond.kind = STORE_COND_NONE;
    struct err why = ERR_INIT;
    int rc = store_put(step->service->store, &put, &result, &why);
    answer_from(step, rc, rc == 0 ? STORE_DONE : result.outcome, result.etag, &why);
    service_store_seen(step->service, rc == 0 || result.outcome == STORE_REFUSED ? NULL : &why);
    log_debug(sync, "put key=%s size=%llu outcome=%d%s%s", step->key,
              (unsigned long long)content->size, (int)step->answer.result,
              rc == 0 ? "" : " why=", rc == 0 ? "" : why.msg);
    return commit_step(step, judge_tx, err);
}

/* Where the store ignores the condition: look first, and send only while the lease holds. */
static int
check_first(struct step *step, bool *go, struct err *err)
{
    struct err why = ERR_INIT;
    const struct sync_decision *decision = &step->decision;
    *go = false;
    if (look(step, &why) != 0)
        return give_up_for_now(step, &why, err);
    const struct observed *seen = &step->answer.seen;
    bool as_wanted = decision->cond_absent
                         ? !seen->present
                         : seen->present && strcmp(seen->etag, decision->cond_etag) == 0;
    if (as_wanted) {
        *go = true;
        return 0;
    }
    return commit_step(step, judge_tx, err);
}

/* What is about to be replaced or deleted is kept first (docs/mechanisms.md section 5). There is no history yet, so nothing
 * is kept; the place in the order is here, between the decision and the attempt. */
static int
preserve(struct step *step, struct err *err)
{
    (void)step;
    (void)err;
    return 0;
}

static int
do_put(struct step *step, struct err *err)
{
    struct meta meta;
    struct err local = ERR_INIT;
    bool go = true;
    if (step->decision.checked) {
        if (check_first(step, &go, err) != 0 || !go)
            return go ? -1 : 0;
    }
    if (preserve(step, err) != 0)
        return -1;
    meta_init(&meta);
    step->meta = &meta;
    /* The attempt is durable before its request goes out: after a power cut too somebody has to look first. */
    int rc = commit_with(step, INDEX_FULL, begin_tx, &local);
    struct cache_file *file = NULL;
    if (rc == 0 && (step->kv.node.kind == INDEX_FILE || step->kv.conflict_id[0] != '\0')) {
        file = cache_get(step->service->cache, step->kv.content.id, &local);
        rc = file == NULL ? -1 : 0;
        if (rc != 0) {
            /* The attempt stands in the index but was never sent. */
            answer_from(step, -1, STORE_NOT_DONE, "", &local);
            rc = commit_step(step, judge_tx, err);
            step->done = true;
            meta_release(&meta);
            return rc;
        }
    }
    if (rc == 0)
        rc = send_put(step, file, &local);
    cache_put(file);
    meta_release(&meta);
    step->meta = NULL;
    if (rc != 0 && local.code != ERR_AGAIN) {
        *err = local;
        return -1;
    }
    return 0;
}

static int
do_delete(struct step *step, struct err *err)
{
    struct err local = ERR_INIT;
    enum store_outcome outcome = STORE_NOT_DONE;
    bool go = true;
    if (step->decision.checked && (check_first(step, &go, err) != 0 || !go))
        return go ? -1 : 0;
    if (preserve(step, err) != 0)
        return -1;
    if (commit_with(step, INDEX_FULL, begin_tx, &local) != 0) {
        if (local.code == ERR_AGAIN)
            return 0;
        *err = local;
        return -1;
    }
    struct store_delete req = { .key = step->key,
                                .if_match =
                                    step->decision.checked ? NULL : step->decision.cond_etag };
    int rc = store_delete(step->service->store, &req, &outcome, &local);
    if (rc != 0 && local.code == ERR_NOT_FOUND) {
        rc = 0; /* it is gone: all that was wanted */
        outcome = STORE_DONE;
    }
    answer_from(step, rc, rc == 0 ? STORE_DONE : outcome, "", &local);
    service_store_seen(step->service, rc == 0 || outcome == STORE_REFUSED ? NULL : &local);
    log_debug(sync, "delete key=%s outcome=%d", step->key, (int)step->answer.result);
    return commit_step(step, judge_tx, err);
}

/* ---- preparing bytes ---- */

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
    return index_content_update(tx, &row, err);
}

static int
do_hash(struct step *step, struct err *err)
{
    uint8_t sha[SHA256_SIZE], md[MD5_SIZE];
    struct err local = ERR_INIT;
    struct cache_file *file = cache_get(step->service->cache, step->kv.content.id, &local);
    if (file == NULL || cache_file_hash(file, step->kv.content.size, sha, md, &local) != 0) {
        cache_put(file);
        return give_up_for_now(step, &local, err);
    }
    cache_put(file);
    hex_encode(sha, sizeof(sha), step->sha256);
    hex_encode(md, sizeof(md), step->md5);
    return commit_step(step, hash_tx, err);
}

static int
fetch_node(struct step *step, int64_t node, struct err *why)
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
    if (decide_tx(tx, step, err) != 0)
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
    return node_unname(step->service, tx, &node, false, &step->drop, err);
}

static int
do_fetch(struct step *step, int64_t node, struct err *err)
{
    struct err why = ERR_INIT;
    if (fetch_node(step, node, &why) == 0)
        return 0;
    step->lost_node = node;
    if ((why.code == ERR_IO || why.code == ERR_NOT_FOUND) && commit_step(step, vanish_tx, err) != 0)
        return -1;
    return give_up_for_now(step, &why, err);
}

/* A moved or re-attributed node whose bytes are those of its synced version: they are frozen as a new version, so that the
 * usual way sends them. */
static int
prepare_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct step *step = arg;
    if (decide_tx(tx, step, err) != 0)
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
    (void)snprintf(row.actor, sizeof(row.actor), "sync");
    if (ulid_new(row.version, err) != 0)
        return -1;
    cache_pin(step->service->cache, row.id);
    return index_content_update(tx, &row, err);
}

/* Open programs hold the same content file: their idea of its state follows. */
static void
refresh_inode(struct volume_service *service, int64_t node, int64_t content,
              enum content_state state)
{
    struct inode *inode = inode_find(&service->inodes, node);
    if (inode == NULL)
        return;
    pthread_mutex_lock(&inode->lock);
    if (inode->content == content && inode->state != CONTENT_LIVE)
        inode->state = state;
    pthread_mutex_unlock(&inode->lock);
    inode_unref(&service->inodes, inode, false);
}

static int
do_prepare(struct step *step, struct err *err)
{
    const struct key_view *kv = &step->kv;
    if (kv->node.kind == INDEX_FILE && !kv->view.want.bytes_local) {
        if (do_fetch(step, kv->node.id, err) != 0 || step->done)
            return step->done ? 0 : -1;
    }
    if (commit_step(step, prepare_tx, err) != 0)
        return -1;
    if (step->kv.content.id != 0)
        refresh_inode(step->service, step->kv.node.id, step->kv.content.id, CONTENT_FROZEN);
    return 0;
}

/* ---- parking an owner in the way ---- */

static int
park_read_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct step *step = arg;
    if (decide_tx(tx, step, err) != 0)
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

static int
park_done_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct step *step = arg;
    struct index_node owner;
    struct index_key row;
    if (decide_tx(tx, step, err) != 0)
        return -1;
    if (step->decision.action != SYNC_PARK ||
        index_node_get(tx, step->decision.node, &owner, err) != 0 ||
        strcmp(owner.key, step->key) != 0)
        return 0;
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

static int
do_park(struct step *step, struct err *err)
{
    struct store_copy copy = { .from = step->key,
                               .from_if_match = step->kv.view.have.etag,
                               .to = step->park_key };
    struct store_put_result result = { .outcome = STORE_NOT_DONE };
    struct err why = ERR_INIT;
    if (index_read(step->service->index, park_read_tx, step, err) != 0)
        return -1;
    if (step->decision.action != SYNC_PARK)
        return 0;
    if (store_copy(step->service->store, &copy, &result, &why) != 0) {
        service_store_seen(step->service, &why);
        return give_up_for_now(step, &why, err);
    }
    text_set(step->park_etag, result.etag);
    return commit_step(step, park_done_tx, err);
}

/* ---- one step ---- */

static int
do_conflict(struct step *step, struct err *err)
{
    const struct sync_want *want = &step->kv.view.want;
    bool needs_bytes = (step->decision.effect.bits & SYNC_KEEP_LOSER) != 0 && !want->bytes_local;
    if (needs_bytes) {
        struct err why = ERR_INIT;
        if (fetch_node(step, want->node, &why) != 0 && err_retryable(why.code))
            return give_up_for_now(step, &why, err);
    }
    return commit_loser(step, effect_tx, err);
}

static int
wait_a_bit(struct step *step, index_fn *fn, struct err *err)
{
    step->done = true;
    return commit_step(step, fn, err);
}

static int
take_step(struct step *step, struct err *err)
{
    bool sends = step->decision.action == SYNC_PUT || step->decision.action == SYNC_HASH ||
                 step->decision.action == SYNC_IDLE;
    bool unstaged = step->decision.action == SYNC_PUT && step->kv.content.id == 0;
    if ((step->kv.prepare && sends) || unstaged)
        return do_prepare(step, err);
    switch (step->decision.action) {
    case SYNC_IDLE:
        return commit_step(step, finish_tx, err);
    case SYNC_WAIT:
        return idle_for_now(step) ? commit_step(step, finish_tx, err)
                                  : wait_a_bit(step, postpone_tx, err);
    case SYNC_LOOK:
        return do_look(step, err);
    case SYNC_HASH:
        return do_hash(step, err);
    case SYNC_FETCH:
        return do_fetch(step, step->decision.node, err);
    case SYNC_EVACUATE:
        return wait_a_bit(step, evacuate_tx, err);
    case SYNC_PARK:
        return do_park(step, err);
    case SYNC_PUT:
        return do_put(step, err);
    case SYNC_DELETE:
        return do_delete(step, err);
    case SYNC_CONFLICT:
    case SYNC_ADOPT:
        return do_conflict(step, err);
    }
    return 0;
}

static void
after_step(struct step *step)
{
    struct volume_service *service = step->service;
    /* Exactly what was sent: the node may have newer bytes by now. */
    if (step->cleaned != 0) {
        cache_unpin(service->cache, step->cleaned);
        refresh_inode(service, step->cleaned_node, step->cleaned, CONTENT_CLEAN);
    }
    step->cleaned = 0;
    step->effect.bits = 0;
    sync_progressed(service);
}

void
step_key(struct volume_service *service, int64_t volume, const char *key)
{
    struct step *step = calloc(1, sizeof(*step));
    struct err err = ERR_INIT;
    if (step == NULL)
        return;
    step->service = service;
    step->volume = volume;
    step->key = key;
    for (unsigned i = 0; i < STEPS_MAX && !step->done && !atomic_load(&service->stopping); i++) {
        step->late_count = sync_late_of(service, key, step->late);
        if (index_read(service->index, decide_tx, step, &err) != 0 || take_step(step, &err) != 0) {
            log_warn(sync, "cannot sync key=%s why=%s", key, err.msg);
            struct err ignored = ERR_INIT;
            (void)give_up_for_now(step, &err, &ignored);
            break;
        }
        after_step(step);
    }
    after_step(step);
    free(step);
}
