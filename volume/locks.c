#include "volume/locks.h"

#include <assert.h>

#include "base/scope.h"
#include "volume/locks_impl.h"

/* The calls of volume/locks.h. */

/* flock(2): another type gives the old lock up first, whatever comes then. True: it has this type already. */
static bool
convert(struct lock_table *table, struct lock_node *node, const struct lock *want)
{
    for (struct lock_range **at = &node->held; *at != NULL; at = &(*at)->next) {
        if (!lock_table_same_owner(&(*at)->lock.owner, &want->owner))
            continue;
        if ((*at)->lock.type == want->type)
            return true;
        lock_table_take(table, at);
        lock_wait_wake_node(table, node);
        return false;
    }
    return false;
}

static enum lock_answer
wait_for(struct lock_table *table, struct lock_node *node, struct lock_holder *owner,
         struct lock_wait *wait)
{
    if (!wait->want.owner.flock && lock_wait_cycle(table, &wait->want))
        return LOCK_DEADLOCK;
    if (table->waiting >= table->max_waiting)
        return LOCK_FULL;
    lock_wait_enqueue(table, node, owner, wait);
    return LOCK_WAITS;
}

static enum lock_answer
set_locked(struct lock_table *table, struct lock_node *node, const struct lock *want,
           struct lock_wait *wait)
{
    struct lock_spare spare = { .count = 0 };
    struct lock_holder *owner = lock_table_make_owner(table, &want->owner);
    if (owner == NULL)
        return LOCK_FULL;
    if (want->owner.flock && want->type != LOCKED_NONE && convert(table, node, want))
        return LOCK_GRANTED;
    bool blocked =
        want->type != LOCKED_NONE && (lock_table_conflict(node, want) != NULL ||
                                      (want->fair && lock_wait_behind(table, node, want, NULL)));
    if (blocked)
        return wait == NULL ? LOCK_CONFLICT : wait_for(table, node, owner, wait);
    if ((table->held + 3 > table->max_held && want->type != LOCKED_NONE) ||
        !lock_table_fill_spare(&spare)) {
        lock_table_free_spare(&spare);
        return LOCK_FULL;
    }
    lock_table_change(table, node, &spare, want);
    lock_table_free_spare(&spare);
    lock_wait_wake_node(table, node);
    lock_wait_wake_owner(table, &want->owner);
    return LOCK_GRANTED;
}

enum lock_answer
lock_set(struct lock_table *table, const struct lock *want, struct lock_wait *wait)
{
    enum lock_answer answer = LOCK_GRANTED;
    assert(want->start <= want->end && want->end <= INT64_MAX);
    pthread_mutex_lock(&table->mutex);
    if (wait != NULL)
        wait->want = *want;
    struct lock_node *node = lock_table_node(table, want->node);
    if (node == NULL && want->type != LOCKED_NONE)
        node = lock_table_make_node(table, want->node);
    if (wait != NULL && wait->canceled)
        answer = LOCK_CANCELED;
    else if (node != NULL)
        answer = set_locked(table, node, want, wait);
    else if (want->type != LOCKED_NONE)
        answer = LOCK_FULL;
    lock_table_tidy_owner(table, &want->owner);
    lock_table_tidy_node(table, node);
    lock_wait_leave(table);
    return answer;
}

bool
lock_get(struct lock_table *table, const struct lock *want, struct lock *out)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&table->mutex);
    (void)held;
    const struct lock_node *node = lock_table_node(table, want->node);
    const struct lock_range *found = node != NULL ? lock_table_conflict(node, want) : NULL;
    if (found != NULL)
        *out = found->lock;
    return found != NULL;
}

bool
lock_cancel(struct lock_table *table, struct lock_wait *wait)
{
    pthread_mutex_lock(&table->mutex);
    bool waited = wait->waiting;
    wait->canceled |= !waited;
    if (waited) {
        struct lock_node *node = lock_table_node(table, wait->want.node);
        lock_wait_dequeue(table, node, wait);
        lock_wait_ready(table, wait, true);
        lock_wait_wake_node(table, node);
        lock_table_tidy_owner(table, &wait->want.owner);
        lock_table_tidy_node(table, node);
    }
    lock_wait_leave(table);
    return waited;
}

struct choice {
    const struct lock_owner *owner; /* NULL: any of `connection` */
    int64_t connection;
    uint64_t fh; /* 0: any */
};

static bool
is_chosen(const struct choice *choice, const struct lock *lock)
{
    if (choice->owner != NULL)
        return lock_table_same_owner(&lock->owner, choice->owner);
    return lock->owner.connection == choice->connection &&
           (choice->fh == 0 || lock->fh == choice->fh);
}

static void
drop_held(struct lock_table *table, struct lock_node *node, const struct choice *choice)
{
    bool gone = false;
    for (struct lock_range **at = &node->held; *at != NULL;) {
        if (!is_chosen(choice, &(*at)->lock)) {
            at = &(*at)->next;
            continue;
        }
        struct lock_owner owner = (*at)->lock.owner;
        lock_table_take(table, at);
        lock_table_tidy_owner(table, &owner);
        gone = true;
    }
    if (gone)
        lock_wait_wake_node(table, node);
}

static void
drop(struct lock_table *table, int64_t id, const struct choice *choice)
{
    pthread_mutex_lock(&table->mutex);
    struct lock_node *node = table->held > 0 ? lock_table_node(table, id) : NULL;
    if (node != NULL)
        drop_held(table, node, choice);
    lock_table_tidy_node(table, node);
    lock_wait_leave(table);
}

void
lock_drop_owner(struct lock_table *table, int64_t node, const struct lock_owner *owner)
{
    drop(table, node, &(struct choice){ .owner = owner });
}

void
lock_drop_handle(struct lock_table *table, int64_t node, int64_t connection, uint64_t fh)
{
    drop(table, node, &(struct choice){ .connection = connection, .fh = fh });
}

static void
cancel_connection(struct lock_table *table, struct lock_node *node, int64_t connection)
{
    for (struct lock_wait *at = node->first, *next; at != NULL; at = next) {
        next = at->next;
        if (at->want.owner.connection != connection)
            continue;
        lock_wait_dequeue(table, node, at);
        lock_wait_ready(table, at, true);
        lock_table_tidy_owner(table, &at->want.owner);
    }
}

void
lock_drop_connection(struct lock_table *table, int64_t connection)
{
    pthread_mutex_lock(&table->mutex);
    for (size_t i = 0; i < LOCK_BUCKETS; i++) {
        for (struct lock_node *node = table->nodes[i], *next; node != NULL; node = next) {
            next = node->next;
            cancel_connection(table, node, connection);
            drop_held(table, node, &(struct choice){ .connection = connection });
            lock_wait_wake_node(table, node);
            lock_table_tidy_node(table, node);
        }
    }
    lock_wait_leave(table);
}

bool
lock_held(struct lock_table *table, int64_t id, int64_t connection)
{
    scope_unlock pthread_mutex_t *mutex = scope_lock(&table->mutex);
    (void)mutex;
    const struct lock_node *node = table->held > 0 ? lock_table_node(table, id) : NULL;
    for (const struct lock_range *at = node != NULL ? node->held : NULL; at != NULL; at = at->next)
        if (at->lock.owner.connection == connection && !at->lock.owner.flock)
            return true;
    return false;
}

unsigned
lock_count(struct lock_table *table)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&table->mutex);
    (void)held;
    return table->held;
}
