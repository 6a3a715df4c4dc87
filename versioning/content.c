#include "versioning/content.h"

#include "versioning/rules.h"

static bool
has(const struct content_view *view, enum content_flags flag)
{
    return (view->flags & (unsigned)flag) != 0;
}

static enum content_open
open_clean(const struct content_view *view, uint64_t copy_limit)
{
    if (!has(view, CONTENT_COMPLETE))
        return CONTENT_OPEN_FETCH_FIRST;
    if (view->attempt_sent || has(view, CONTENT_PINNED))
        return view->backing_lent ? CONTENT_OPEN_ASIDE_IN_PLACE : CONTENT_OPEN_NEW_COPY;
    if (view->backing_lent || view->size > copy_limit)
        return CONTENT_OPEN_IN_PLACE;
    return CONTENT_OPEN_NEW_COPY;
}

static enum content_open
open_frozen(const struct content_view *view)
{
    if (!sync_rule_on(RULE_FROZEN))
        return CONTENT_OPEN_THAW;
    if (!view->attempt_sent && !has(view, CONTENT_PINNED))
        return CONTENT_OPEN_THAW;
    return view->backing_lent ? CONTENT_OPEN_ASIDE_IN_PLACE : CONTENT_OPEN_NEW_COPY;
}

/* Who reads the file's very bytes is to see it become empty. Until the writer closes, the version before is what counts: of an
 * unsynced one a copy is kept. */
static enum content_open
truncate_lent(const struct content_view *view)
{
    bool needed = view->attempt_sent || has(view, CONTENT_PINNED);
    if (needed || (view->state == CONTENT_FROZEN && !view->copied))
        return CONTENT_OPEN_ASIDE_IN_PLACE;
    if (view->state == CONTENT_FROZEN)
        return CONTENT_OPEN_THAW;
    return has(view, CONTENT_COMPLETE) ? CONTENT_OPEN_IN_PLACE : CONTENT_OPEN_NEW_EMPTY;
}

enum content_open
content_open_for_writing(const struct content_view *view, bool truncate, uint64_t copy_limit)
{
    if (view->exists && view->state == CONTENT_LIVE &&
        (view->other_writers || view->backing_lent || !truncate))
        return CONTENT_OPEN_JOIN;
    if (view->exists && view->backing_lent && truncate)
        return truncate_lent(view);
    if (truncate || (!view->exists && view->size == 0))
        return CONTENT_OPEN_NEW_EMPTY;
    if (!view->exists)
        return CONTENT_OPEN_FETCH_FIRST;
    return view->state == CONTENT_FROZEN ? open_frozen(view) : open_clean(view, copy_limit);
}

bool
content_may_evict(const struct content_view *view)
{
    if (!view->exists)
        return false;
    if (!sync_rule_on(RULE_EVICT))
        return true;
    return view->state == CONTENT_CLEAN && !has(view, CONTENT_PINNED) && !view->attempt_sent;
}

static enum content_recovery
recover_clean(const struct content_view *view, bool same_boot)
{
    if (same_boot || has(view, CONTENT_DURABLE) || !sync_rule_on(RULE_VERIFY))
        return CONTENT_KEEP;
    return has(view, CONTENT_COMPLETE) ? CONTENT_VERIFY : CONTENT_DROP;
}

enum content_recovery
content_recover(const struct content_view *view, bool same_boot)
{
    bool lasting = same_boot || has(view, CONTENT_DURABLE) || !sync_rule_on(RULE_DURABLE);
    bool promised = has(view, CONTENT_ACKED) || !sync_rule_on(RULE_TORN);

    switch (view->state) {
    case CONTENT_FROZEN:
        return lasting ? CONTENT_UPLOAD : CONTENT_TORN;
    case CONTENT_LIVE:
        return lasting && promised ? CONTENT_FREEZE : CONTENT_TORN;
    case CONTENT_CLEAN:
        break;
    }
    return recover_clean(view, same_boot);
}
