#include "versioning/sync.h"

#include <assert.h>
#include <string.h>
#include <strings.h>

#define copy_text(to, from)                                                \
    do {                                                                   \
        static_assert(sizeof(to) == sizeof(from), "both are of one kind"); \
        memcpy((to), (from), sizeof(to));                                  \
    } while (0)

static bool
same(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

/* ---- what may still happen by itself ---- */

static bool
is_cond_state(const struct sync_attempt *attempt, const struct observed *seen)
{
    if (attempt->cond_absent)
        return !seen->present;
    return seen->present && same(seen->etag, attempt->cond_etag);
}

/* The earlier PUT of ours that `seen` is, or NULL. */
static const struct sync_attempt *
late_put(const struct sync_view *view, const struct observed *seen)
{
    if (!sync_rule_on(RULE_LATE_OURS))
        return NULL;
    for (size_t i = 0; i < view->late_count; i++) {
        const struct sync_attempt *late = &view->late[i];
        if (late->op == SYNC_OP_PUT && identity_landed(seen, late->version, late->size, late->md5))
            return late;
    }
    return NULL;
}

/* Whether a DELETE of ours explains that nothing lies where `etag` lay. */
static bool
late_delete(const struct sync_view *view, const char *etag)
{
    for (size_t i = 0; i < view->late_count; i++) {
        const struct sync_attempt *late = &view->late[i];
        if (late->op == SYNC_OP_DELETE &&
            (!view->rules.delete_if_match || same(late->cond_etag, etag)))
            return true;
    }
    return false;
}

/* A late PUT that can do no harm over what is wanted: of the same version, or of an empty object over an empty one. All folder
 * markers share one ETag; what such a PUT brings back are older attributes of the folder, and no bytes. A DELETE would end
 * the folder. */
static bool
is_harmless(const struct sync_attempt *late, const struct sync_want *want)
{
    return late->op == SYNC_OP_PUT &&
           (same(late->version, want->version) || (late->size == 0 && want->size == 0));
}

/* Where ETags are MD5s, bytes that come back bring their ETag back, and a late request that names it would then replace or
 * delete the new version (A, B, A). */
static bool
restores_late_condition(const struct sync_view *view)
{
    if (!sync_rule_on(RULE_ABA))
        return false;
    for (size_t i = 0; i < view->late_count; i++) {
        const struct sync_attempt *late = &view->late[i];
        if (!is_harmless(late, &view->want) && strcasecmp(late->cond_etag, view->want.md5) == 0)
            return true;
    }
    return false;
}

/* ---- decide ---- */

/* A store that ignores one kind of condition has all its writes under the lease: a DELETE that is only checked would
 * otherwise meet the conditional PUT of a gateway without it. */
bool
sync_needs_lease(const struct sync_rules *rules)
{
    return !rules->put_if_absent || !rules->put_if_match || !rules->delete_if_match;
}

/* Whether a write may be sent: with the condition, or checked under the lease. Fills the decision. */
static void
decide_write(const struct sync_view *view, enum sync_action action, bool honoured,
             struct sync_decision *out)
{
    out->checked = !honoured;
    out->action = action;
    if (sync_needs_lease(&view->rules) && !view->rules.lease_held && sync_rule_on(RULE_LEASE_WEAK))
        out->action = SYNC_WAIT;
}

static void
decide_put(const struct sync_view *view, struct sync_decision *out)
{
    const struct sync_have *have = &view->have;

    if (restores_late_condition(view)) {
        out->action = SYNC_WAIT;
        out->waits_for_late = true;
        return;
    }
    out->cond_absent = !have->present || !sync_rule_on(RULE_MERGE);
    if (!out->cond_absent)
        copy_text(out->cond_etag, have->etag);
    decide_write(view, SYNC_PUT,
                 out->cond_absent ? view->rules.put_if_absent : view->rules.put_if_match, out);
    if (!sync_rule_on(RULE_PUT_CONDITION)) {
        out->cond_absent = false;
        out->cond_etag[0] = '\0';
    }
}

static bool
equal_content(const char *sha256_a, const char *sha256_b)
{
    return sha256_a[0] != '\0' && same(sha256_a, sha256_b);
}

/* What lies there has the bytes of our version: it becomes ours without a write. */
static void
adopt(int64_t node, const char version[static ULID_SIZE], const struct sync_have *have,
      struct sync_effect *out)
{
    out->bits |= SYNC_SET_HAVE | SYNC_SYNCED;
    out->have = *have;
    out->have.owner = node;
    out->have.discard = false;
    out->node = node;
    memcpy(out->version, version, ULID_SIZE);
}

/* The name goes to what lies there. A version that is nowhere else in the bucket under this name is the loser. */
static void
lose(const struct sync_want *want, const struct sync_have *have, struct sync_effect *out)
{
    out->bits |= SYNC_TAKE_THEIRS;
    if ((want->dirty || !want->at_this_key) && sync_rule_on(RULE_KEEP_LOSER))
        out->bits |= SYNC_KEEP_LOSER;
    out->have = *have;
    out->node = want->node;
    copy_text(out->version, want->version);
}

/* Equal bytes are no conflict. That they lie there is only believed, and may have been true before our version was made:
 * a conditional PUT replaces equal by equal and has the bucket's word for it. */
static void
decide_conflict(const struct sync_view *view, struct sync_decision *out)
{
    const struct sync_want *want = &view->want;

    if (view->have.present && equal_content(want->sha256, view->have.sha256)) {
        if ((want->dirty || !want->at_this_key) && sync_rule_on(RULE_EQUAL_PUT)) {
            decide_put(view, out);
            return;
        }
        out->action = SYNC_ADOPT;
        adopt(want->node, want->version, &view->have, &out->effect);
        return;
    }
    out->action = SYNC_CONFLICT;
    lose(want, &view->have, &out->effect);
}

/* Whether the tree knew what lies at the key, or that nothing does. */
static bool
is_our_base(const struct sync_view *view)
{
    const struct sync_want *want = &view->want;
    const struct sync_have *have = &view->have;

    if (!have->present) {
        return !want->at_this_key || late_delete(view, want->base_etag) ||
               !sync_rule_on(RULE_NOT_RESURRECT);
    }
    if (have->owner == 0 && have->discard)
        return true;
    if (want->at_this_key)
        return same(have->etag, want->base_etag) || !sync_rule_on(RULE_BASE);
    return !sync_rule_on(RULE_FOREIGN);
}

static bool
is_named(const struct sync_want *want)
{
    return want->md5[0] != '\0' && want->sha256[0] != '\0' && want->version[0] != '\0';
}

/* The node's synced bytes lay here and are not what lies here now: our own late request did it, or somebody else. */
static void
decide_clean_replaced(const struct sync_view *view, struct sync_decision *out)
{
    const struct sync_want *want = &view->want;
    const struct sync_have *have = &view->have;
    bool ours =
        have->present ? have->owner == 0 && have->discard : late_delete(view, want->base_etag);

    if (have->present && !ours && same(have->etag, want->base_etag))
        out->action = SYNC_IDLE;
    else if (ours && want->bytes_local && !is_named(want))
        out->action = SYNC_HASH;
    else if (ours && want->bytes_local)
        decide_put(view, out);
    else if (want->writing)
        out->action = SYNC_WAIT;
    else
        decide_conflict(view, out);
}

static void
decide_present(const struct sync_view *view, struct sync_decision *out)
{
    const struct sync_want *want = &view->want;
    const struct sync_have *have = &view->have;
    bool others = have->present && have->owner != 0 && have->owner != want->node;

    out->node = want->node;
    if (have->present && have->owner == want->node && !want->dirty) {
        out->action = SYNC_IDLE;
    } else if (want->version[0] == '\0' && want->base_etag[0] == '\0') {
        out->action = SYNC_WAIT;
    } else if (others && sync_rule_on(RULE_EVACUATE)) {
        out->node = have->owner;
        out->action = have->owner_home_free || !sync_rule_on(RULE_PARK) ? SYNC_EVACUATE : SYNC_PARK;
    } else if (want->at_this_key && !want->dirty) {
        decide_clean_replaced(view, out);
    } else if (!want->bytes_local) {
        out->action = want->writing ? SYNC_WAIT : SYNC_FETCH;
    } else if (!is_named(want)) {
        out->action = SYNC_HASH;
    } else if (is_our_base(view) || others) {
        decide_put(view, out);
    } else {
        decide_conflict(view, out);
    }
}

static void
decide_absent(const struct sync_view *view, struct sync_decision *out)
{
    const struct sync_have *have = &view->have;

    if (!have->present)
        return; /* idle */
    if (have->owner != 0) {
        out->action = SYNC_WAIT;
    } else if (have->discard) {
        copy_text(out->cond_etag, have->etag);
        decide_write(view, SYNC_DELETE, view->rules.delete_if_match, out);
        if (!sync_rule_on(RULE_DELETE_MATCH))
            out->cond_etag[0] = '\0';
    }
    /* else a foreign object, which the listing shows */
}

/* A write that ends the present version of the key: its bytes have to lie somewhere else first. Not so when the same bytes come back
 * with other attributes. */
static bool
ends_unkept(const struct sync_view *view, const struct sync_decision *decision)
{
    const struct sync_have *have = &view->have;

    if (!view->rules.history || !have->present || have->kept || !sync_rule_on(RULE_PRESERVE))
        return false;
    if (decision->action == SYNC_DELETE)
        return true;
    return decision->action == SYNC_PUT && !decision->cond_absent &&
           !equal_content(view->want.sha256, have->sha256);
}

void
sync_decide(const struct sync_view *view, struct sync_decision *out)
{
    *out = (struct sync_decision){ .action = SYNC_IDLE };
    if (view->attempt.op != SYNC_OP_NONE && sync_rule_on(RULE_LOOK_FIRST))
        out->action = SYNC_LOOK;
    else if (view->want.present)
        decide_present(view, out);
    else
        decide_absent(view, out);
    if (ends_unkept(view, out)) {
        out->action = SYNC_PRESERVE;
        out->checked = false;
    }
}

void
sync_begin(const struct sync_view *view, const struct sync_decision *decision, int64_t content,
           struct sync_attempt *out)
{
    *out = (struct sync_attempt){ .cond_absent = decision->cond_absent };
    copy_text(out->cond_etag, decision->cond_etag);
    if (decision->action == SYNC_DELETE) {
        out->op = SYNC_OP_DELETE;
        out->size = view->have.size;
        copy_text(out->version, view->have.version);
        return;
    }
    assert(decision->action == SYNC_PUT);
    out->op = SYNC_OP_PUT;
    out->node = view->want.node;
    out->content = content;
    out->size = view->want.size;
    copy_text(out->version, view->want.version);
    copy_text(out->md5, view->want.md5);
    copy_text(out->sha256, view->want.sha256);
}

/* ---- judge ---- */

/* Whether what landed is the newest that the bucket has of the file: its newest lay here before, or the file is here and
 * cannot have been synced elsewhere since. Not when a new file was renamed away or removed meanwhile, and not when it
 * came back with another version. */
static bool
is_news(const struct sync_view *view, const struct sync_attempt *put)
{
    const struct sync_want *want = &view->want;

    if ((view->have.present && view->have.owner == put->node) || !sync_rule_on(RULE_LANDED_HOME))
        return true;
    return want->present && want->node == put->node &&
           (same(want->version, put->version) || want->at_this_key || want->base_etag[0] == '\0');
}

static void
put_landed(const struct sync_view *view, const struct sync_attempt *put, const char *etag,
           struct sync_effect *out)
{
    struct sync_have *have = &out->have;

    out->bits |= SYNC_SET_HAVE;
    *have = (struct sync_have){ .present = true, .size = put->size };
    assert(strlen(etag) < sizeof(have->etag));
    memcpy(have->etag, etag, strlen(etag) + 1);
    copy_text(have->version, put->version);
    copy_text(have->sha256, put->sha256);
    if (!is_news(view, put)) {
        have->discard = true; /* its bytes are still here, or a newer version's are */
        return;
    }
    out->bits |= SYNC_SYNCED;
    have->owner = put->node;
    out->node = put->node;
    copy_text(out->version, put->version);
}

static void
have_from(const struct observed *seen, struct sync_have *out)
{
    *out = (struct sync_have){ .present = seen->present };
    if (!seen->present)
        return;
    out->size = seen->size;
    copy_text(out->etag, seen->etag);
    if (!identity_believed(seen, NULL))
        return;
    copy_text(out->version, seen->version);
    /* Only an MD5 that agrees ties the sha256 to the bytes: the size alone is not enough to call contents equal. */
    if (identity_etag_is_md5(seen->etag) || !sync_rule_on(RULE_BELIEVED))
        copy_text(out->sha256, seen->sha256);
}

/* Somebody else put or deleted what lies here. Where the tree is dirty, sync_decide() makes the conflict. */
static void
settle_foreign(const struct sync_view *view, struct sync_effect *out)
{
    const struct sync_want *want = &view->want;

    if (!want->present) {
        out->bits |= out->have.present ? SYNC_TAKE_THEIRS : 0;
        return;
    }
    if ((want->dirty || !want->at_this_key || want->writing) && sync_rule_on(RULE_CLEAN_ONLY))
        return;
    if (out->have.present && equal_content(want->sha256, out->have.sha256)) {
        struct sync_have have = out->have;
        adopt(want->node, want->version, &have, out);
        return;
    }
    out->bits |= SYNC_TAKE_THEIRS;
    out->node = want->node;
    copy_text(out->version, want->version);
}

/* The key holds neither what we believed nor what the open attempt sent. */
static void
settle(const struct sync_view *view, const struct observed *seen, struct sync_effect *out)
{
    const struct sync_want *want = &view->want;
    const struct sync_attempt *late = late_put(view, seen);

    out->bits |= SYNC_SET_HAVE;
    have_from(seen, &out->have);
    if (late != NULL) {
        if (want->present && late->node == want->node && same(late->version, want->version))
            put_landed(view, late, seen->etag, out);
        else
            out->have.discard = true; /* its bytes are still here, or a newer version's are */
    } else if (seen->present || !late_delete(view, view->have.etag)) {
        settle_foreign(view, out);
    }
}

/* A foreign state stands where our PUT should have landed, and the node still wants this key. */
static void
judge_replaced(const struct sync_view *view, struct sync_effect *out)
{
    const struct sync_attempt *put = &view->attempt;
    struct sync_have theirs = out->have;

    if (theirs.present && equal_content(put->sha256, theirs.sha256) && is_news(view, put))
        adopt(put->node, put->version, &theirs, out);
    else if (view->want.bytes_local && (view->want.dirty || !view->want.at_this_key))
        lose(&view->want, &theirs, out);
    /* else sync_decide() comes to it when a writer has closed the file, or its bytes are here */
}

static void
judge_seen_put(const struct sync_view *view, const struct observed *seen, struct sync_effect *out)
{
    const struct sync_attempt *put = &view->attempt;
    const struct sync_want *want = &view->want;

    out->bits = SYNC_CLEAR_ATTEMPT;
    if (identity_landed(seen, put->version, put->size, put->md5)) {
        put_landed(view, put, seen->etag, out);
        /* The same version sent twice, or over itself: this may be the other one, and ours comes yet. */
        if (is_cond_state(put, seen) || late_put(view, seen) != NULL)
            out->bits |= SYNC_LOOK_AGAIN;
        return;
    }
    out->bits |= SYNC_LOOK_AGAIN;
    if (is_cond_state(put, seen)) {
        out->bits |= put->unknown ? SYNC_BACK_OFF : 0;
        return;
    }
    settle(view, seen, out);
    if (out->have.discard || (out->bits & SYNC_SYNCED) != 0)
        return;
    if (want->present && want->node == put->node)
        judge_replaced(view, out);
}

static void
judge_seen_delete(const struct sync_view *view, const struct observed *seen,
                  struct sync_effect *out)
{
    out->bits = SYNC_CLEAR_ATTEMPT | SYNC_LOOK_AGAIN;
    if (!seen->present) {
        out->bits |= SYNC_SET_HAVE;
        have_from(seen, &out->have);
    } else if (is_cond_state(&view->attempt, seen)) {
        out->bits |= view->attempt.unknown ? SYNC_BACK_OFF : 0;
    } else {
        settle(view, seen, out);
    }
}

static void
judge_done(const struct sync_view *view, const struct sync_answer *answer, struct sync_effect *out)
{
    out->bits = SYNC_CLEAR_ATTEMPT | SYNC_SET_HAVE;
    out->have = (struct sync_have){ .present = false };
    if (view->attempt.op == SYNC_OP_PUT)
        put_landed(view, &view->attempt, answer->etag, out);
}

static void
judge_refused(const struct sync_view *view, struct sync_effect *out)
{
    const struct sync_have nothing_known = { .present = true };

    out->bits = SYNC_MARK_UNKNOWN;
    if (sync_rule_on(RULE_REFUSED_LOOKS) || view->attempt.op != SYNC_OP_PUT)
        return;
    out->bits = SYNC_CLEAR_ATTEMPT;
    lose(&view->want, &nothing_known, out);
}

void
sync_judge(const struct sync_view *view, const struct sync_answer *answer, struct sync_effect *out)
{
    *out = (struct sync_effect){ .bits = 0 };
    if (view->attempt.op == SYNC_OP_NONE) {
        if (answer->result == SYNC_RESULT_SEEN)
            sync_observe(view, &answer->seen, out);
        return;
    }
    switch (answer->result) {
    case SYNC_RESULT_DONE:
        judge_done(view, answer, out);
        break;
    case SYNC_RESULT_REFUSED:
        judge_refused(view, out);
        break;
    case SYNC_RESULT_UNKNOWN:
        out->bits = SYNC_MARK_UNKNOWN | SYNC_LOOK_AGAIN;
        break;
    case SYNC_RESULT_NOT_DONE:
        out->bits = SYNC_CLEAR_ATTEMPT | SYNC_BACK_OFF;
        break;
    case SYNC_RESULT_SEEN:
        if (view->attempt.op == SYNC_OP_PUT)
            judge_seen_put(view, &answer->seen, out);
        else
            judge_seen_delete(view, &answer->seen, out);
        break;
    }
}

void
sync_observe(const struct sync_view *view, const struct observed *seen, struct sync_effect *out)
{
    const struct sync_have *have = &view->have;

    *out = (struct sync_effect){ .bits = 0 };
    if (view->attempt.op != SYNC_OP_NONE)
        return;
    /* A foreign object found under a name that the tree used, and has left since, is still to be shown. */
    bool shown = have->owner != 0 || have->discard || view->want.present;
    if (have->present == seen->present &&
        (!seen->present || (same(have->etag, seen->etag) && shown)))
        return;
    settle(view, seen, out);
}
