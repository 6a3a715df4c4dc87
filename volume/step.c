#include "base/log.h"
#include "volume/extra_impl.h"
#include "volume/link_impl.h"
#include "volume/loser_meta.h"
#include "volume/move_impl.h"
#include "volume/preserve_impl.h"

/*
 * One key brought to what the tree says: decide, do one step without any lock, commit its effect, decide anew
 * (versioning/sync.h). A worker of volume/sync.c calls step_key(); nobody else works on the same key meanwhile.
 */

#define STEPS_MAX 32u

int
step_decide_tx(struct index_tx *tx, void *arg, struct err *err)
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

/* "": for a moment only. */
static const char *
why_it_waits(const struct step *step)
{
    const struct sync_rules *rules = &step->kv.view.rules;
    const struct sync_have *have = &step->kv.view.have;
    if (step->decision.waits_for_late)
        return "waits up to 20 minutes: a request whose answer was lost may still arrive, and "
               "would take "
               "these bytes for those that it was to end";
    if (sync_needs_lease(rules) && !rules->lease_held)
        return "waits for the volume's writer lease, which another gateway held last";
    if (step->decision.action == SYNC_EVACUATE ||
        (step->decision.action == SYNC_WAIT && have->present && have->owner != 0 &&
         have->owner != step->kv.view.want.node))
        return "waits until the file whose bytes lie at this key has them at its new one";
    return "";
}

static int
postpone_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct step *step = arg;
    struct index_intent row;
    if (index_intent_get(tx, step->key, &row, err) != 0)
        return err->code == ERR_NOT_FOUND ? 0 : -1;
    row.not_before_ns = clock_wall_ns() + NS_PER_S / 4;
    text_set(row.last_error, why_it_waits(step));
    return index_intent_put(tx, &row, err);
}

/* The store takes a write of this key only so often: the key comes back then, with what it wants by then. */
static int
wait_for_pace(struct step *step, struct index_tx *tx, int64_t until_ns, struct err *err)
{
    struct index_intent row = step->kv.intent;
    row.not_before_ns = until_ns;
    (void)snprintf(row.last_error, sizeof(row.last_error),
                   "waits: the store takes one write of a key in %lld ms",
                   (long long)(step->service->store->caps.min_write_interval_ns / NS_PER_MS));
    step->done = true;
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
    step->more |= change.more;
    if (rc == 0 && change.settled)
        step->done = step->settled = true;
    if (rc == 0 && (effect->bits & SYNC_KEEP_LOSER) != 0)
        inode_tell_loser(step->service, effect->node);
    return rc;
}

/* ---- one transaction from an answer to the next request ---- */

/* A loser's object says what the conflict is about: a rebuild has nothing else to know it by. */
static int
describe_loser(struct step *step, struct index_tx *tx, struct err *err)
{
    struct index_conflict row;
    struct err missing = ERR_INIT;
    if (index_conflict_get(tx, step->kv.conflict_id, &row, &missing) == 0)
        return loser_meta_add(&row, &step->meta, err);
    if (missing.code == ERR_NOT_FOUND)
        return 0;
    *err = missing;
    return -1;
}

/* The attempt is durable before its request goes out: after a power cut too somebody has to look first. */
int
step_begin(struct step *step, struct index_tx *tx, struct err *err)
{
    struct index_intent row = step->kv.intent;
    struct index_node node;
    int64_t wait_until = sync_paced_until(step->service, step->key);
    if (wait_until != 0)
        return wait_for_pace(step, tx, wait_until, err);
    sync_begin(&step->kv.view, &step->decision, step->kv.content.id, &row.attempt);
    step->kv.view.attempt = row.attempt;
    if (step->decision.action == SYNC_PUT) {
        meta_release(&step->meta);
        meta_init(&step->meta);
        if (object_meta_make(&step->kv.node, &step->kv.content, step->kv.view.rules.epoch,
                             &step->meta, err) != 0 ||
            extra_add(step->service, tx, step->kv.inode, &step->meta, err) != 0)
            return -1;
        if (step->kv.conflict_id[0] != '\0' && describe_loser(step, tx, err) != 0)
            return -1;
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
    index_tx_durable(tx);
    step->begun = true;
    return index_intent_put(tx, &row, err);
}

static bool
begins_at_once(const struct step *step)
{
    const struct sync_decision *decision = &step->decision;
    if (decision->checked)
        return false;
    return decision->action == SYNC_DELETE ||
           (decision->action == SYNC_PUT && !step->kv.prepare && step->kv.content.id != 0);
}

int
step_advance(struct step *step, struct index_tx *tx, struct err *err)
{
    step->begun = false;
    step->late_count = sync_late_of(step->service, step->key, step->late);
    if (step_decide_tx(tx, step, err) != 0)
        return -1;
    step->decided = true;
    if (idle_for_now(step)) {
        step->done = step->settled = true;
        return step->kv.has_intent ? index_intent_delete(tx, step->key, err) : 0;
    }
    if (step->kv.has_intent && (step->kv.volume.options & INDEX_VOLUME_HELD) != 0) {
        step->done = true;
        return hold_postpone(tx, &step->kv.intent, err);
    }
    /* Changed again while a worker was at it. */
    if (step->kv.has_intent && rest_holds(&step->kv.intent)) {
        step->done = true;
        return 0;
    }
    return begins_at_once(step) ? step_begin(step, tx, err) : 0;
}

static int
advance_tx(struct index_tx *tx, void *arg, struct err *err)
{
    return step_advance(arg, tx, err);
}

static int
note_error(struct step *step, struct index_tx *tx, struct err *err)
{
    struct index_intent row;
    if (step->error[0] == '\0')
        return 0;
    if (index_intent_get(tx, step->key, &row, err) != 0)
        return err->code == ERR_NOT_FOUND ? 0 : -1;
    text_set(row.last_error, step->error);
    return index_intent_put(tx, &row, err);
}

int
step_judge_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct step *step = arg;
    if (view_build(step->service, tx, step->volume, step->key, &step->kv, err) != 0)
        return -1;
    if (step->upload_id[0] != '\0' && step->answer.result == SYNC_RESULT_DONE &&
        index_upload_delete(tx, step->upload_id, err) != 0)
        return -1;
    step->kv.view.late = step->late;
    step->kv.view.late_count = step->late_count;
    struct sync_attempt sent = step->kv.view.attempt;
    sync_judge(&step->kv.view, &step->answer, &step->effect);
    if (step->error[0] != '\0')
        text_set(step->kv.intent.last_error, step->error);
    if (apply(step, tx, &step->effect, step->has_attrs ? &step->attrs : NULL, err) != 0)
        return -1;
    if ((step->effect.bits & SYNC_SET_HAVE) != 0 && sent.op != SYNC_OP_NONE)
        changelog_note(step->service, step->key, &step->kv, &step->effect.have);
    /* The row says when to come back; to go on here would hammer a store in trouble. */
    step->done |= (step->effect.bits & SYNC_BACK_OFF) != 0;
    if ((step->effect.bits & SYNC_LOOK_AGAIN) != 0 && sent.op != SYNC_OP_NONE)
        sync_late_add(step->service, step->key, &sent);
    if (!step->settled && note_error(step, tx, err) != 0)
        return -1;
    return step->done ? 0 : step_advance(step, tx, err);
}

static int
effect_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct step *step = arg;
    enum sync_action planned = step->decision.action;
    if (step_decide_tx(tx, step, err) != 0 || step->decision.action != planned)
        return step->decision.action != planned ? 0 : -1;
    return apply(step, tx, &step->decision.effect, NULL, err);
}

static int
commit_with(struct step *step, enum index_durability durability, index_fn *fn, void *arg,
            struct err *err)
{
    int rc = index_write(step->service->index, durability, fn, arg, err);
    if (rc == 0)
        drop_run(step->service, &step->drop);
    free(step->drop.number);
    step->drop = (struct drop_list){ 0 };
    return rc;
}

int
step_commit(struct step *step, index_fn *fn, struct err *err)
{
    return commit_with(step, INDEX_NORMAL, fn, step, err);
}

int
step_commit_arg(struct step *step, index_fn *fn, void *arg, struct err *err)
{
    return commit_with(step, INDEX_NORMAL, fn, arg, err);
}

/* A loser's bytes may be the only ones of their version: they are on the disk before the name shows anything else. */
int
step_commit_loser(struct step *step, index_fn *fn, struct err *err)
{
    struct err local = ERR_INIT;
    const struct key_view *kv = &step->kv;
    if (kv->content.id != 0 && kv->node.kind == INDEX_FILE) {
        struct cache_file *file = cache_get(step->service->cache, kv->content.id, &local);
        int rc = file == NULL ? 0 : cache_file_sync(file, &local);
        cache_put(file);
        if (rc != 0)
            return step_give_up(step, &local, err);
    }
    return commit_with(step, INDEX_FULL, fn, step, err);
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
    return note_error(step, tx, err);
}

int
step_give_up(struct step *step, const struct err *why, struct err *err)
{
    (void)snprintf(step->error, sizeof(step->error), "%.*s", (int)sizeof(step->error) - 1,
                   why->msg);
    step->done = true;
    return step_commit(step, backoff_tx, err);
}

/* ---- one step ---- */

static int
do_conflict(struct step *step, struct err *err)
{
    const struct sync_want *want = &step->kv.view.want;
    bool needs_bytes = (step->decision.effect.bits & SYNC_KEEP_LOSER) != 0 && !want->bytes_local;
    if (needs_bytes) {
        struct err why = ERR_INIT;
        if (step_bytes_bring(step, want->node, &why) != 0 && err_retryable(why.code))
            return step_give_up(step, &why, err);
    }
    return step_commit_loser(step, effect_tx, err);
}

static int
wait_a_bit(struct step *step, index_fn *fn, struct err *err)
{
    step->done = true;
    return step_commit(step, fn, err);
}

static int
take_step(struct step *step, struct err *err)
{
    bool sends = step->decision.action == SYNC_PUT || step->decision.action == SYNC_HASH ||
                 step->decision.action == SYNC_IDLE;
    bool unstaged = step->decision.action == SYNC_PUT && step->kv.content.id == 0;
    if (link_needs_copy(step))
        return link_step_copy(step, err);
    if ((step->kv.prepare && sends) || unstaged)
        return step_bytes_prepare(step, err);
    switch (step->decision.action) {
    case SYNC_IDLE:
        return 0; /* step_advance() has ended it */
    case SYNC_WAIT:
        return wait_a_bit(step, postpone_tx, err);
    case SYNC_LOOK:
        return step_request_look(step, err);
    case SYNC_HASH:
        return step_bytes_hash(step, err);
    case SYNC_FETCH:
        return step_bytes_fetch(step, step->decision.node, err);
    case SYNC_EVACUATE:
        return wait_a_bit(step, evacuate_tx, err);
    case SYNC_PARK:
        return step_bytes_park(step, err);
    case SYNC_PRESERVE:
        return preserve_step(step, err);
    case SYNC_PUT:
        return step_request_put(step, err);
    case SYNC_DELETE:
        return step_request_delete(step, err);
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
    if (step->cleaned != 0)
        step_bytes_settled(service, step->cleaned_node, step->cleaned, CONTENT_CLEAN);
    step->cleaned = 0;
    step->effect.bits = 0;
    sync_progressed(service);
}

bool
step_key(struct volume_service *service, int64_t volume, const char *key)
{
    if (move_is_work(key))
        return move_run(service, key);
    struct step *step = calloc(1, sizeof(*step));
    struct err err = ERR_INIT;
    if (step == NULL)
        return false;
    step->service = service;
    step->volume = volume;
    step->key = key;
    meta_init(&step->meta);
    if (strncmp(key, CONFLICT_PREFIX, sizeof(CONFLICT_PREFIX) - 1) == 0)
        conflict_beside(service, key);
    for (unsigned i = 0; i < STEPS_MAX && !step->done && !atomic_load(&service->stopping); i++) {
        int rc = step->decided ? 0 : step_commit(step, advance_tx, &err);
        step->decided = false;
        if (rc == 0 && !step->done)
            rc = take_step(step, &err);
        if (rc != 0) {
            log_warn(sync, "cannot sync key=%s why=%s", key, err.msg);
            struct err ignored = ERR_INIT;
            if (step_give_up(step, &err, &ignored) != 0)
                log_debug(sync, "nor can that be noted key=%s why=%s", key, ignored.msg);
            break;
        }
        after_step(step);
    }
    /* Step after step and no end: others first, and no worker turns on one key for ever. */
    if (!step->done && step_commit(step, postpone_tx, &err) != 0)
        log_debug(sync, "cannot postpone key=%s why=%s", key, err.msg);
    after_step(step);
    bool settled = step->settled && !step->more;
    meta_release(&step->meta);
    free(step);
    return settled;
}
