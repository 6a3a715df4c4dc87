#include "volume/trail.h"

#include <stdlib.h>
#include <string.h>

#define BREAKS_MOST 4u

enum { BY_NODE, BY_NAME };

struct named {
    const char *name;
    uint32_t at;
};

static int
by_name(const void *a, const void *b)
{
    return strcmp(((const struct named *)a)->name, ((const struct named *)b)->name);
}

static int
rank(struct trail *trail, const char *const *names)
{
    struct named *order = calloc(trail->count + 1, sizeof(*order));
    if (order == NULL)
        return -1;
    for (size_t i = 0; i < trail->count; i++)
        order[i] = (struct named){ names[i], (uint32_t)i };
    qsort(order, trail->count, sizeof(*order), by_name);
    for (size_t i = 0; i < trail->count; i++) {
        trail->entry[order[i].at].rank = (uint32_t)i;
        trail->entry[i].at_rank = order[i].at;
    }
    trail->named = true;
    free(order);
    return 0;
}

int
trail_init(struct trail *trail, struct trail_entry *entry, size_t count, const char *const *names)
{
    *trail = (struct trail){ .entry = entry, .count = count, .last = count };
    return names == NULL ? 0 : rank(trail, names);
}

void
trail_release(struct trail *trail)
{
    free(trail->entry);
    *trail = (struct trail){ .entry = NULL };
}

static size_t
find(const struct trail *trail, int64_t node)
{
    size_t low = 0, high = trail->count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (trail->entry[mid].node < node)
            low = mid + 1;
        else
            high = mid;
    }
    return low < trail->count && trail->entry[low].node == node ? low : trail->count;
}

static size_t
place(const struct trail *trail, size_t at, int order)
{
    return order == BY_NODE ? at : trail->entry[at].rank;
}

static size_t
entry_at(const struct trail *trail, size_t nth, int order)
{
    return order == BY_NODE ? nth : trail->entry[nth].at_rank;
}

static int
order_of(const struct trail *trail)
{
    return trail->score[BY_NAME] > trail->score[BY_NODE] ? BY_NAME : BY_NODE;
}

/* So often in order before anything is fetched; more often for a reader that left unread files behind before. */
static unsigned
enough(const struct trail *trail)
{
    return 2u << trail->breaks;
}

static size_t
step(const struct trail *trail, size_t at, int order)
{
    size_t before = place(trail, trail->last, order), now = place(trail, at, order);
    return now > before && now - before <= TRAIL_STEP ? now - before : 0;
}

static void
broken(struct trail *trail)
{
    size_t unread = trail_unread(trail);
    if (unread > 0 && trail->breaks < BREAKS_MOST)
        trail->breaks++;
    trail->wasted += unread;
    for (size_t i = 0; i < trail->count; i++)
        trail->entry[i].fetched = false;
    trail->window = 0;
    trail->planned = 0;
}

static void
advance(struct trail *trail, size_t steps)
{
    trail->planned = trail->planned > steps ? trail->planned - steps : 0;
    if (trail->window == 0)
        trail->window = TRAIL_FIRST;
    else if (trail->planned < trail->window / 2 + 1)
        trail->window = trail->window * 2 < TRAIL_MOST ? trail->window * 2 : TRAIL_MOST;
}

bool
trail_opened(struct trail *trail, int64_t node)
{
    size_t at = find(trail, node);
    if (at == trail->count)
        return false;
    trail->used += trail->entry[at].fetched;
    trail->entry[at].fetched = trail->entry[at].small = false;
    if (trail->last == trail->count || at == trail->last) {
        trail->last = at;
        return true;
    }
    int before = order_of(trail);
    size_t steps = 0;
    for (int order = BY_NODE; order <= (trail->named ? BY_NAME : BY_NODE); order++) {
        size_t taken = step(trail, at, order);
        trail->score[order] = taken > 0 ? trail->score[order] + 1 : 0;
        steps = order == before ? taken : steps;
    }
    trail->last = at;
    if (order_of(trail) != before || steps == 0)
        trail->planned = 0;
    if (trail->score[BY_NODE] == 0 && trail->score[BY_NAME] == 0)
        broken(trail);
    else if (trail->score[order_of(trail)] >= enough(trail))
        advance(trail, steps);
    return true;
}

void
trail_trust(struct trail *trail)
{
    trail->score[BY_NODE] = enough(trail);
    trail->window = TRAIL_FIRST;
}

int64_t
trail_next(struct trail *trail)
{
    int order = order_of(trail);
    if (trail->last == trail->count)
        return 0;
    size_t from = place(trail, trail->last, order);
    while (trail->planned < trail->window && from + trail->planned + 1 < trail->count) {
        trail->planned++;
        struct trail_entry *entry = &trail->entry[entry_at(trail, from + trail->planned, order)];
        if (!entry->small)
            continue;
        entry->small = false;
        entry->fetched = true;
        return entry->node;
    }
    return 0;
}

size_t
trail_unread(const struct trail *trail)
{
    size_t unread = 0;
    for (size_t i = 0; i < trail->count; i++)
        unread += trail->entry[i].fetched;
    return unread;
}
