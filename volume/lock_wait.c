#include "volume/locks_impl.h"

/* Who waits for a lock: in which order they go on, and whether they wait for each other (docs/adr/0009-locks.md). */

/* Behind those who came before, unless it holds something already: its order would then make cycles that no program made. */
bool
lock_wait_behind(struct lock_table *table, const struct lock_node *node, const struct lock *want,
                 const struct lock_wait *until)
{
    const struct lock_holder *owner = *lock_table_owner(table, &want->owner);
    if (owner != NULL && owner->held > 0)
        return false;
    for (const struct lock_wait *at = node->first; at != until; at = at->next)
        if (!lock_table_apart(&at->want, want))
            return true;
    return false;
}

void
lock_wait_enqueue(struct lock_table *table, struct lock_node *node, struct lock_holder *owner,
                  struct lock_wait *wait)
{
    wait->waiting = true;
    wait->prev = node->last;
    wait->next = NULL;
    *(wait->prev != NULL ? &wait->prev->next : &node->first) = wait;
    node->last = wait;
    wait->owner_next = owner->waits;
    owner->waits = wait;
    table->waiting++;
}

void
lock_wait_dequeue(struct lock_table *table, struct lock_node *node, struct lock_wait *wait)
{
    struct lock_holder *owner = *lock_table_owner(table, &wait->want.owner);
    struct lock_wait **at = &owner->waits;
    *(wait->prev != NULL ? &wait->prev->next : &node->first) = wait->next;
    *(wait->next != NULL ? &wait->next->prev : &node->last) = wait->prev;
    while (*at != wait)
        at = &(*at)->owner_next;
    *at = wait->owner_next;
    wait->waiting = false;
    table->waiting--;
}

void
lock_wait_ready(struct lock_table *table, struct lock_wait *wait, bool canceled)
{
    wait->canceled = canceled;
    wait->ready = table->ready;
    table->ready = wait;
}

static bool
wake_one(struct lock_table *table, struct lock_node *node, struct lock_wait *wait)
{
    struct lock_spare spare = { .count = 0 };
    if (lock_table_conflict(node, &wait->want) != NULL ||
        lock_wait_behind(table, node, &wait->want, wait))
        return false;
    /* Without memory it goes on waiting: the next change tries again. */
    if (table->held + 3 > table->max_held || !lock_table_fill_spare(&spare)) {
        lock_table_free_spare(&spare);
        return false;
    }
    lock_table_change(table, node, &spare, &wait->want);
    lock_table_free_spare(&spare);
    lock_wait_dequeue(table, node, wait);
    lock_wait_ready(table, wait, false);
    return true;
}

/* Something was given back: who can go on goes on, in the order of arrival. */
void
lock_wait_wake_node(struct lock_table *table, struct lock_node *node)
{
    bool moved = true;
    while (moved) {
        moved = false;
        for (struct lock_wait *at = node->first, *next; at != NULL; at = next) {
            next = at->next;
            moved |= wake_one(table, node, at);
        }
    }
}

/* An owner that holds something now waits behind nobody any more (another thread of its process may). */
void
lock_wait_wake_owner(struct lock_table *table, const struct lock_owner *id)
{
    const struct lock_holder *owner = *lock_table_owner(table, id);
    if (owner == NULL || owner->held == 0)
        return;
    for (bool moved = true; moved;) {
        moved = false;
        for (struct lock_wait *at = owner->waits; at != NULL && !moved; at = at->owner_next)
            moved = wake_one(table, lock_table_node(table, at->want.node), at);
    }
}

/* Unlocks, then tells those who are ready. */
void
lock_wait_leave(struct lock_table *table)
{
    struct lock_wait *ready;
    do {
        ready = table->ready;
        for (const struct lock_wait *at = ready; at != NULL; at = at->ready)
            lock_wait_wake_owner(table, &at->want.owner);
    } while (table->ready != ready);
    table->ready = NULL;
    pthread_mutex_unlock(&table->mutex);
    while (ready != NULL) {
        struct lock_wait *wait = ready;
        ready = wait->ready;
        wait->done(wait, wait->canceled ? LOCK_CANCELED : LOCK_GRANTED);
    }
}

/* ---- cycles ---- */

#define MAX_STACK 256u

struct search {
    struct lock_table *table;
    const struct lock_owner *self;
    struct lock_holder *stack[MAX_STACK];
    unsigned depth;
};

/* True: what stands against `want` is the seeker itself. Else its owners are to be looked at. */
static bool
push_blockers(struct search *search, const struct lock *want)
{
    const struct lock_node *node = lock_table_node(search->table, want->node);
    if (node == NULL)
        return false;
    for (const struct lock_range *at = node->held; at != NULL; at = at->next) {
        if (lock_table_apart(&at->lock, want))
            continue;
        if (lock_table_same_owner(&at->lock.owner, search->self))
            return true;
        struct lock_holder *owner = *lock_table_owner(search->table, &at->lock.owner);
        if (owner->visited == search->table->searches || search->depth == MAX_STACK)
            continue;
        owner->visited = search->table->searches;
        search->stack[search->depth++] = owner;
    }
    return false;
}

bool
lock_wait_cycle(struct lock_table *table, const struct lock *want)
{
    struct search search = { .table = table, .self = &want->owner };
    table->searches++;
    if (push_blockers(&search, want))
        return true;
    while (search.depth > 0) {
        const struct lock_holder *owner = search.stack[--search.depth];
        for (const struct lock_wait *at = owner->waits; at != NULL; at = at->owner_next)
            if (push_blockers(&search, &at->want))
                return true;
    }
    return false;
}
