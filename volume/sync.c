#include <assert.h>
#include <errno.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/parse.h"
#include "base/scope.h"
#include "volume/service_impl.h"

/*
 * The background engine that brings the bucket to what the tree says. A dispatcher reads the work items that are due and
 * hands keys to workers; a key is with one worker at a time. A worker decides, does one step without any lock, commits its
 * effect, and decides anew (versioning/sync.h).
 */

#define QUEUE_MAX 256u
#define BUSY_BUCKETS 1024u
#define LATE_MAX 1024u
#define LATE_PER_KEY 8u
#define LATE_LIFE (20 * 60 * NS_PER_S)
#define STEPS_MAX 32u
#define PARK_PREFIX ".holdfast/park/"

struct work {
    struct work *next;
    int64_t volume;
    char key[LIMIT_KEY + 1];
};

struct late {
    char key[LIMIT_KEY + 1];
    struct sync_attempt attempt;
    int64_t until_ns;
};

struct sync_engine {
    struct volume_service *service;
    pthread_mutex_t lock;
    pthread_cond_t wake;     /* dispatcher: new work, a free place, or the end */
    pthread_cond_t ready;    /* workers: something is queued */
    pthread_cond_t progress; /* barriers */
    struct work *head, *tail;
    unsigned queued, running;
    struct work *busy[BUSY_BUCKETS]; /* keys queued or with a worker */
    uint64_t progress_count;
    bool kicked, stopping;
    struct late *late[LATE_MAX];
    size_t late_count;
    pthread_t dispatcher;
    pthread_t *worker;
    unsigned workers;
};

/* ---- one key at a time ---- */

static size_t
busy_slot(const char *key)
{
    return crc32c(0, key, strlen(key)) % BUSY_BUCKETS;
}

static bool
is_busy_locked(struct sync_engine *engine, const char *key)
{
    for (struct work *work = engine->busy[busy_slot(key)]; work != NULL; work = work->next)
        if (strcmp(work->key, key) == 0)
            return true;
    return false;
}

static bool
mark_busy_locked(struct sync_engine *engine, const char *key)
{
    struct work *mark = calloc(1, sizeof(*mark));
    if (mark == NULL)
        return false;
    snprintf(mark->key, sizeof(mark->key), "%s", key);
    mark->next = engine->busy[busy_slot(key)];
    engine->busy[busy_slot(key)] = mark;
    return true;
}

static void
clear_busy_locked(struct sync_engine *engine, const char *key)
{
    struct work **link = &engine->busy[busy_slot(key)];
    while (*link != NULL && strcmp((*link)->key, key) != 0)
        link = &(*link)->next;
    struct work *mark = *link;
    if (mark == NULL)
        return;
    *link = mark->next;
    free(mark);
}

/* ---- attempts that may land late ---- */

static void
late_add(struct sync_engine *engine, const char *key, const struct sync_attempt *attempt)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&engine->lock);
    int64_t now = clock_wall_ns();
    size_t kept = 0;
    for (size_t i = 0; i < engine->late_count; i++) {
        if (engine->late[i]->until_ns > now)
            engine->late[kept++] = engine->late[i];
        else
            free(engine->late[i]);
    }
    engine->late_count = kept;
    struct late *late = kept < LATE_MAX ? calloc(1, sizeof(*late)) : NULL;
    if (late == NULL)
        return;
    snprintf(late->key, sizeof(late->key), "%s", key);
    late->attempt = *attempt;
    late->until_ns = now + LATE_LIFE;
    engine->late[engine->late_count++] = late;
}

static size_t
late_of(struct sync_engine *engine, const char *key, struct sync_attempt out[LATE_PER_KEY])
{
    scope_unlock pthread_mutex_t *held = scope_lock(&engine->lock);
    size_t count = 0;
    int64_t now = clock_wall_ns();
    for (size_t i = engine->late_count; i > 0 && count < LATE_PER_KEY; i--) {
        struct late *late = engine->late[i - 1];
        if (late->until_ns > now && strcmp(late->key, key) == 0)
            out[count++] = late->attempt;
    }
    return count;
}

/* ---- the steps of one key ---- */

struct step {
    struct volume_service *service;
    int64_t volume;
    const char *key;
    struct key_view kv;
    struct sync_decision decision;
    struct sync_attempt late[LATE_PER_KEY];
    size_t late_count;
    /* inputs of the next transaction */
    struct sync_answer answer;
    struct object_attrs attrs;
    bool has_attrs;
    struct sync_effect effect;
    struct drop_list drop;
    struct meta *meta; /* of the PUT that begins */
    bool done;         /* nothing left for now */
    int64_t lost_node; /* a node whose writer has to hear of a conflict */
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
    /* Only a LIVE content so far: the freeze makes the work item anew. */
    return step->decision.action == SYNC_WAIT && want->present && want->writing && !want->dirty;
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
    if (key_of_node(tx, &owner, home, err) != 0 || key_want_sync(tx, step->volume, home, 0, err) != 0)
        return -1;
    return postpone_tx(tx, arg, err);
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
        snprintf(step->kv.intent.last_error, sizeof(step->kv.intent.last_error), "%s", step->error);
    if (view_apply(step->service, tx, step->key, &step->kv, &step->effect, step->has_attrs ? &step->attrs : NULL,
                   &step->drop, err) != 0)
        return -1;
    if ((step->effect.bits & SYNC_KEEP_LOSER) != 0)
        step->lost_node = step->effect.node;
    if ((step->effect.bits & SYNC_LOOK_AGAIN) != 0 && sent.op != SYNC_OP_NONE)
        late_add(step->service->sync, step->key, &sent);
    if (step->error[0] == '\0')
        return 0;
    struct index_intent row;
    if (index_intent_get(tx, step->key, &row, err) != 0)
        return err->code == ERR_NOT_FOUND ? 0 : -1;
    snprintf(row.last_error, sizeof(row.last_error), "%s", step->error);
    return index_intent_put(tx, &row, err);
}

static int
effect_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct step *step = arg;
    enum sync_action planned = step->decision.action;
    if (decide_tx(tx, step, err) != 0 || step->decision.action != planned)
        return step->decision.action != planned ? 0 : -1;
    if ((step->decision.effect.bits & SYNC_KEEP_LOSER) != 0)
        step->lost_node = step->decision.effect.node;
    return view_apply(step->service, tx, step->key, &step->kv, &step->decision.effect, NULL, &step->drop, err);
}

static int
commit_step(struct step *step, index_fn *fn, struct err *err)
{
    int rc = index_write(step->service->index, INDEX_NORMAL, fn, step, err);
    if (rc == 0)
        drop_run(step->service, &step->drop);
    free(step->drop.number);
    step->drop = (struct drop_list){0};
    return rc;
}

/* ---- looking ---- */

static void
answer_from(struct step *step, int rc, enum store_outcome outcome, const char *etag, const struct err *why)
{
    step->answer = (struct sync_answer){.result = SYNC_RESULT_UNKNOWN};
    step->has_attrs = false;
    step->error[0] = '\0';
    if (rc == 0) {
        step->answer.result = SYNC_RESULT_DONE;
        snprintf(step->answer.etag, sizeof(step->answer.etag), "%s", etag);
        return;
    }
    if (outcome == STORE_REFUSED)
        step->answer.result = SYNC_RESULT_REFUSED;
    else if (outcome == STORE_NOT_DONE)
        step->answer.result = SYNC_RESULT_NOT_DONE;
    if (outcome != STORE_REFUSED)
        snprintf(step->error, sizeof(step->error), "%.*s", (int)sizeof(step->error) - 1, why->msg);
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
    step->answer = (struct sync_answer){.result = SYNC_RESULT_SEEN};
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
    struct sync_effect effect = {.bits = SYNC_BACK_OFF};
    if (view_build(step->service, tx, step->volume, step->key, &step->kv, err) != 0)
        return -1;
    if (view_apply(step->service, tx, step->key, &step->kv, &effect, NULL, &step->drop, err) != 0)
        return -1;
    struct index_intent row;
    if (index_intent_get(tx, step->key, &row, err) != 0)
        return err->code == ERR_NOT_FOUND ? 0 : -1;
    snprintf(row.last_error, sizeof(row.last_error), "%s", step->error);
    return index_intent_put(tx, &row, err);
}

static int
give_up_for_now(struct step *step, const struct err *why, struct err *err)
{
    snprintf(step->error, sizeof(step->error), "%.*s", (int)sizeof(step->error) - 1, why->msg);
    step->done = true;
    return commit_step(step, backoff_tx, err);
}

static int
do_look(struct step *step, struct err *err)
{
    struct err why = ERR_INIT;
    if (look(step, &why) != 0)
        return give_up_for_now(step, &why, err);
    return commit_step(step, judge_tx, err);
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
    if (step->decision.action != planned.action || strcmp(step->decision.cond_etag, planned.cond_etag) != 0)
        return err_set(err, ERR_AGAIN, "the key's state moved");
    row = step->kv.intent;
    sync_begin(&step->kv.view, &step->decision, step->kv.content.id, &row.attempt);
    step->kv.view.attempt = row.attempt;
    if (planned.action == SYNC_PUT) {
        if (object_meta_make(&step->kv.node, &step->kv.content, step->kv.view.rules.epoch, step->meta, err) != 0)
            return -1;
        struct index_node node;
        if (step->kv.conflict_id[0] == '\0' && (step->kv.node.flags & INDEX_NODE_ATTRS_DIRTY) != 0) {
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
    struct store_put_result result = {.outcome = STORE_NOT_DONE};
    const struct index_content *content = &step->kv.content;
    uint8_t sha[SHA256_SIZE], md[MD5_SIZE];
    struct store_put put = {.key = step->key, .meta = step->meta};
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
        put.cond = (struct store_cond){.kind = STORE_COND_MATCH, .etag = step->decision.cond_etag};
    if (step->decision.checked)
        put.cond.kind = STORE_COND_NONE;
    struct err why = ERR_INIT;
    int rc = store_put(step->service->store, &put, &result, &why);
    answer_from(step, rc, rc == 0 ? STORE_DONE : result.outcome, result.etag, &why);
    service_store_seen(step->service, rc == 0 || result.outcome == STORE_REFUSED ? NULL : &why);
    log_debug(sync, "put key=%s size=%llu outcome=%d%s%s", step->key, (unsigned long long)content->size,
              (int)step->answer.result, rc == 0 ? "" : " why=", rc == 0 ? "" : why.msg);
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
    bool as_wanted = decision->cond_absent ? !seen->present
                                           : seen->present && strcmp(seen->etag, decision->cond_etag) == 0;
    if (as_wanted) {
        *go = true;
        return 0;
    }
    return commit_step(step, judge_tx, err);
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
    meta_init(&meta);
    step->meta = &meta;
    int rc = commit_step(step, begin_tx, &local);
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
    if (commit_step(step, begin_tx, &local) != 0) {
        if (local.code == ERR_AGAIN)
            return 0;
        *err = local;
        return -1;
    }
    struct store_delete req = {.key = step->key,
                               .if_match = step->decision.checked ? NULL : step->decision.cond_etag};
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
    snprintf(row.sha256, sizeof(row.sha256), "%s", step->sha256);
    snprintf(row.md5, sizeof(row.md5), "%s", step->md5);
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
    struct volume_ctx ctx = {.actor = "sync"};
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

static int
do_fetch(struct step *step, int64_t node, struct err *err)
{
    struct err why = ERR_INIT;
    return fetch_node(step, node, &why) == 0 ? 0 : give_up_for_now(step, &why, err);
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
    snprintf(row.base_version, sizeof(row.base_version), "%s", kv->node.version);
    snprintf(row.base_etag, sizeof(row.base_etag), "%s", kv->node.etag);
    snprintf(row.actor, sizeof(row.actor), "sync");
    if (ulid_new(row.version, err) != 0)
        return -1;
    cache_pin(step->service->cache, row.id);
    return index_content_update(tx, &row, err);
}

/* Open programs hold the same content file: their idea of its state follows. */
static void
refresh_inode(struct volume_service *service, int64_t node, int64_t content, enum content_state state)
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
    snprintf(step->park_key, sizeof(step->park_key), PARK_PREFIX "%s/%s", step->kv.volume.name, id);
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
        index_node_get(tx, step->decision.node, &owner, err) != 0 || strcmp(owner.key, step->key) != 0)
        return 0;
    if (index_key_get(tx, step->key, &row, err) != 0)
        return -1;
    struct index_key parked = row;
    snprintf(parked.key, sizeof(parked.key), "%s", step->park_key);
    snprintf(parked.etag, sizeof(parked.etag), "%s", step->park_etag);
    parked.owner = owner.id;
    parked.discard = false;
    row.owner = 0;
    row.discard = true;
    snprintf(owner.key, sizeof(owner.key), "%s", step->park_key);
    snprintf(owner.etag, sizeof(owner.etag), "%s", step->park_etag);
    if (index_key_put(tx, &parked, err) != 0 || index_key_put(tx, &row, err) != 0 ||
        index_node_update(tx, &owner, err) != 0)
        return -1;
    char home[LIMIT_KEY + 1];
    if (key_of_node(tx, &owner, home, err) != 0)
        return -1;
    return key_want_sync(tx, step->volume, home, 0, err);
}

static int
do_park(struct step *step, struct err *err)
{
    struct store_copy copy = {.from = step->key, .from_if_match = step->kv.view.have.etag, .to = step->park_key};
    struct store_put_result result = {.outcome = STORE_NOT_DONE};
    struct err why = ERR_INIT;
    if (index_read(step->service->index, park_read_tx, step, err) != 0)
        return -1;
    if (step->decision.action != SYNC_PARK)
        return 0;
    if (store_copy(step->service->store, &copy, &result, &why) != 0) {
        service_store_seen(step->service, &why);
        return give_up_for_now(step, &why, err);
    }
    snprintf(step->park_etag, sizeof(step->park_etag), "%s", result.etag);
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
    return commit_step(step, effect_tx, err);
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
        return idle_for_now(step) ? commit_step(step, finish_tx, err) : wait_a_bit(step, postpone_tx, err);
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

/* The writer of a lost version hears of it at its next flush or fsync. */
static void
tell_loser(struct volume_service *service, int64_t node)
{
    struct inode *inode = inode_find(&service->inodes, node);
    if (inode == NULL)
        return;
    pthread_mutex_lock(&inode->lock);
    inode->told_error = ESTALE;
    pthread_mutex_unlock(&inode->lock);
    inode_unref(&service->inodes, inode, false);
}

static void
after_step(struct step *step)
{
    struct volume_service *service = step->service;
    if (step->lost_node > 0)
        tell_loser(service, step->lost_node);
    step->lost_node = 0;
    if ((step->effect.bits & SYNC_SYNCED) != 0) {
        cache_unpin(service->cache, step->kv.content.id);
        refresh_inode(service, step->effect.node, step->kv.content.id, CONTENT_CLEAN);
    }
    step->effect.bits = 0;
    pthread_mutex_lock(&service->sync->lock);
    service->sync->progress_count++;
    pthread_cond_broadcast(&service->sync->progress);
    pthread_mutex_unlock(&service->sync->lock);
}

static void
run_key(struct volume_service *service, int64_t volume, const char *key)
{
    struct step *step = calloc(1, sizeof(*step));
    struct err err = ERR_INIT;
    if (step == NULL)
        return;
    step->service = service;
    step->volume = volume;
    step->key = key;
    for (unsigned i = 0; i < STEPS_MAX && !step->done && !atomic_load(&service->stopping); i++) {
        step->late_count = late_of(service->sync, key, step->late);
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

/* ---- threads ---- */

static void *
worker_main(void *arg)
{
    struct sync_engine *engine = arg;
    pthread_setname_np(pthread_self(), "hf-sync");
    pthread_mutex_lock(&engine->lock);
    for (;;) {
        while (engine->head == NULL && !engine->stopping)
            pthread_cond_wait(&engine->ready, &engine->lock);
        if (engine->stopping)
            break;
        struct work *work = engine->head;
        engine->head = work->next;
        if (engine->head == NULL)
            engine->tail = NULL;
        engine->queued--;
        engine->running++;
        pthread_mutex_unlock(&engine->lock);
        run_key(engine->service, work->volume, work->key);
        pthread_mutex_lock(&engine->lock);
        clear_busy_locked(engine, work->key);
        engine->running--;
        engine->kicked = true;
        pthread_cond_signal(&engine->wake);
        free(work);
    }
    pthread_mutex_unlock(&engine->lock);
    return NULL;
}

struct due_call {
    struct sync_engine *engine;
    int64_t now;
    int64_t next; /* the earliest one that is not due yet, 0: none */
    unsigned added;
};

static int
take_due(void *arg, const struct index_intent *row, struct err *err)
{
    struct due_call *call = arg;
    struct sync_engine *engine = call->engine;
    if (row->not_before_ns > call->now) {
        if (call->next == 0 || row->not_before_ns < call->next)
            call->next = row->not_before_ns;
        return 0;
    }
    scope_unlock pthread_mutex_t *held = scope_lock(&engine->lock);
    if (engine->queued >= QUEUE_MAX || is_busy_locked(engine, row->key))
        return 0;
    struct work *work = calloc(1, sizeof(*work));
    if (work == NULL || !mark_busy_locked(engine, row->key)) {
        free(work);
        return err_nomem(err);
    }
    work->volume = row->volume;
    snprintf(work->key, sizeof(work->key), "%s", row->key);
    if (engine->tail == NULL)
        engine->head = work;
    else
        engine->tail->next = work;
    engine->tail = work;
    engine->queued++;
    call->added++;
    pthread_cond_signal(&engine->ready);
    return 0;
}

static int
due_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct due_call *call = arg;
    /* A little into the future, so that the next wake-up is known. */
    return index_intent_due(tx, call->now + 3600 * NS_PER_S, QUEUE_MAX + 64, take_due, call, err);
}

static void
sleep_until_kick(struct sync_engine *engine, int64_t until_mono)
{
    struct timespec until = {.tv_sec = until_mono / NS_PER_S, .tv_nsec = until_mono % NS_PER_S};
    while (!engine->kicked && !engine->stopping)
        if (pthread_cond_timedwait(&engine->wake, &engine->lock, &until) == ETIMEDOUT)
            break;
    engine->kicked = false;
}

static void *
dispatcher_main(void *arg)
{
    struct sync_engine *engine = arg;
    struct err err = ERR_INIT;
    pthread_setname_np(pthread_self(), "hf-dispatch");
    pthread_mutex_lock(&engine->lock);
    while (!engine->stopping) {
        engine->kicked = false;
        pthread_mutex_unlock(&engine->lock);
        struct due_call call = {.engine = engine, .now = clock_wall_ns()};
        if (index_read(engine->service->index, due_tx, &call, &err) != 0)
            log_warn(sync, "cannot read the work items: %s", err.msg);
        int64_t wait = call.next == 0 ? 5 * NS_PER_S : call.next - call.now;
        if (wait > 5 * NS_PER_S)
            wait = 5 * NS_PER_S;
        if (wait < NS_PER_MS)
            wait = NS_PER_MS;
        pthread_mutex_lock(&engine->lock);
        sleep_until_kick(engine, clock_mono_ns() + wait);
    }
    pthread_mutex_unlock(&engine->lock);
    return NULL;
}

void
sync_kick(struct volume_service *service)
{
    struct sync_engine *engine = service->sync;
    pthread_mutex_lock(&engine->lock);
    engine->kicked = true;
    pthread_cond_signal(&engine->wake);
    pthread_mutex_unlock(&engine->lock);
}

uint64_t
sync_progress(struct volume_service *service)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&service->sync->lock);
    return service->sync->progress_count;
}

bool
sync_wait(struct volume_service *service, uint64_t seen, int64_t deadline_ns)
{
    struct sync_engine *engine = service->sync;
    scope_unlock pthread_mutex_t *held = scope_lock(&engine->lock);
    struct timespec until = {.tv_sec = deadline_ns / NS_PER_S, .tv_nsec = deadline_ns % NS_PER_S};
    while (engine->progress_count == seen && !engine->stopping)
        if (pthread_cond_timedwait(&engine->progress, &engine->lock, &until) == ETIMEDOUT)
            return false;
    return clock_mono_ns() < deadline_ns;
}

int
sync_engine_open(struct volume_service *service, struct err *err)
{
    struct sync_engine *engine = calloc(1, sizeof(*engine));
    if (engine == NULL)
        return err_nomem(err);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&engine->lock, NULL);
    pthread_cond_init(&engine->wake, &attr);
    pthread_cond_init(&engine->ready, NULL);
    pthread_cond_init(&engine->progress, &attr);
    pthread_condattr_destroy(&attr);
    engine->service = service;
    service->sync = engine;
    return 0;
}

int
sync_engine_start(struct volume_service *service, struct err *err)
{
    struct sync_engine *engine = service->sync;
    engine->worker = calloc(service->upload_threads, sizeof(*engine->worker));
    if (engine->worker == NULL)
        return err_nomem(err);
    int rc = pthread_create(&engine->dispatcher, NULL, dispatcher_main, engine);
    for (unsigned i = 0; rc == 0 && i < service->upload_threads; i++) {
        rc = pthread_create(&engine->worker[i], NULL, worker_main, engine);
        engine->workers += rc == 0;
    }
    return rc == 0 ? 0 : err_sys(err, rc, "cannot start the upload threads");
}

void
sync_engine_close(struct volume_service *service, int64_t deadline_ns)
{
    struct sync_engine *engine = service->sync;
    (void)deadline_ns;
    if (engine == NULL)
        return;
    pthread_mutex_lock(&engine->lock);
    engine->stopping = true;
    pthread_cond_broadcast(&engine->wake);
    pthread_cond_broadcast(&engine->ready);
    pthread_cond_broadcast(&engine->progress);
    pthread_mutex_unlock(&engine->lock);
    for (unsigned i = 0; i < engine->workers; i++)
        pthread_join(engine->worker[i], NULL);
    if (engine->worker != NULL && service->started)
        pthread_join(engine->dispatcher, NULL);
    for (struct work *work = engine->head, *next; work != NULL; work = next) {
        next = work->next;
        free(work);
    }
    for (size_t i = 0; i < BUSY_BUCKETS; i++)
        for (struct work *mark = engine->busy[i], *next; mark != NULL; mark = next) {
            next = mark->next;
            free(mark);
        }
    for (size_t i = 0; i < engine->late_count; i++)
        free(engine->late[i]);
    pthread_cond_destroy(&engine->wake);
    pthread_cond_destroy(&engine->ready);
    pthread_cond_destroy(&engine->progress);
    pthread_mutex_destroy(&engine->lock);
    free(engine->worker);
    free(engine);
    service->sync = NULL;
}
