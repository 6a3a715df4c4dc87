#include "volume/locks.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/scope.h"
#include "base/ulid.h"

#define BUCKETS 1024u

struct held {
    struct held *next; /* of the node */
    struct lock lock;
    uint32_t place; /* in the journal */
};

struct owner {
    struct owner *next; /* of the bucket */
    struct lock_owner id;
    unsigned held;
    struct lock_wait *waits;
    uint64_t visited; /* by the search for a cycle of this number */
};

struct node_locks {
    struct node_locks *next; /* of the bucket */
    int64_t node;
    struct held *held;
    struct lock_wait *first, *last; /* who waits, in order of arrival */
};

struct lock_table {
    pthread_mutex_t mutex; /* all below; a leaf */
    struct node_locks *nodes[BUCKETS];
    struct owner *owners[BUCKETS];
    struct lock_journal *journal;
    unsigned held, waiting, max_held, max_waiting;
    uint64_t searches;
    struct lock_wait *ready; /* granted or canceled, to be told without the lock */
};

/* ---- small parts ---- */

static size_t
bucket_of(uint64_t seed)
{
    return (size_t)(random_next(&seed) % BUCKETS);
}

static bool
same_owner(const struct lock_owner *a, const struct lock_owner *b)
{
    return a->connection == b->connection && a->id == b->id && a->flock == b->flock;
}

static bool
overlap(const struct lock *a, const struct lock *b)
{
    return a->start <= b->end && b->start <= a->end;
}

static bool
stand_apart(const struct lock *a, const struct lock *b)
{
    return !overlap(a, b) || a->owner.flock != b->owner.flock ||
           (a->type != LOCKED_WRITE && b->type != LOCKED_WRITE) || same_owner(&a->owner, &b->owner);
}

static struct node_locks *
find_node(const struct lock_table *table, int64_t node)
{
    struct node_locks *at = table->nodes[bucket_of((uint64_t)node)];
    while (at != NULL && at->node != node)
        at = at->next;
    return at;
}

static struct node_locks *
make_node(struct lock_table *table, int64_t node)
{
    struct node_locks *at = find_node(table, node);
    if (at != NULL)
        return at;
    at = calloc(1, sizeof(*at));
    if (at == NULL)
        return NULL;
    struct node_locks **bucket = &table->nodes[bucket_of((uint64_t)node)];
    at->node = node;
    at->next = *bucket;
    *bucket = at;
    return at;
}

/* Nothing is kept for a file that nobody locks. */
static void
tidy_node(struct lock_table *table, struct node_locks *node)
{
    if (node == NULL || node->held != NULL || node->first != NULL)
        return;
    struct node_locks **at = &table->nodes[bucket_of((uint64_t)node->node)];
    while (*at != node)
        at = &(*at)->next;
    *at = node->next;
    free(node);
}

static struct owner **
owner_place(struct lock_table *table, const struct lock_owner *id)
{
    struct owner **at = &table->owners[bucket_of(id->id ^ (uint64_t)id->connection << 32)];
    while (*at != NULL && !same_owner(&(*at)->id, id))
        at = &(*at)->next;
    return at;
}

static struct owner *
make_owner(struct lock_table *table, const struct lock_owner *id)
{
    struct owner **at = owner_place(table, id);
    if (*at != NULL)
        return *at;
    struct owner *owner = calloc(1, sizeof(*owner));
    if (owner == NULL)
        return NULL;
    owner->id = *id;
    *at = owner;
    return owner;
}

static void
tidy_owner(struct lock_table *table, const struct lock_owner *id)
{
    struct owner **at = owner_place(table, id), *owner = *at;
    if (owner == NULL || owner->held > 0 || owner->waits != NULL)
        return;
    *at = owner->next;
    free(owner);
}

/* ---- ranges of one owner ---- */

struct spare {
    struct held *held[3]; /* a change adds one, and cuts one in two */
    unsigned count;
};

static bool
spare_fill(struct spare *spare)
{
    for (spare->count = 0; spare->count < 3; spare->count++) {
        spare->held[spare->count] = calloc(1, sizeof(struct held));
        if (spare->held[spare->count] == NULL)
            return false;
    }
    return true;
}

static void
spare_free(struct spare *spare)
{
    while (spare->count > 0)
        free(spare->held[--spare->count]);
}

static void
put_held(struct lock_table *table, struct node_locks *node, struct spare *spare,
         const struct lock *lock)
{
    struct held *held = spare->held[--spare->count];
    held->lock = *lock;
    if (table->journal != NULL)
        held->place = lock_journal_add(table->journal, lock);
    held->next = node->held;
    node->held = held;
    table->held++;
    (*owner_place(table, &lock->owner))->held++;
}

static void
take_held(struct lock_table *table, struct held **at)
{
    struct held *held = *at;
    *at = held->next;
    if (table->journal != NULL)
        lock_journal_remove(table->journal, held->place);
    table->held--;
    (*owner_place(table, &held->lock.owner))->held--;
    free(held);
}

/* What the new range takes the place of, or grows together with. */
static bool
is_touched(const struct lock *held, const struct lock *want)
{
    if (!same_owner(&held->owner, &want->owner))
        return false;
    if (overlap(held, want))
        return true;
    return held->type == want->type &&
           (held->end + 1 == want->start || want->end + 1 == held->start);
}

static void
cut(struct lock_table *table, struct node_locks *node, struct spare *spare, const struct lock *old,
    const struct lock *want)
{
    struct lock piece = *old;
    if (old->start < want->start) {
        piece.end = want->start - 1;
        put_held(table, node, spare, &piece);
    }
    piece = *old;
    if (old->end > want->end) {
        piece.start = want->end + 1;
        put_held(table, node, spare, &piece);
    }
}

/* The owner's ranges become what `want` says: split, merged, turned into another type. Everything new is there before anything
 * old goes (lock_journal.c). The owner and three spares are there. */
static void
change(struct lock_table *table, struct node_locks *node, struct spare *spare,
       const struct lock *want)
{
    struct lock grown = *want;
    struct held *old = node->held; /* the new ones come before it */
    for (const struct held *at = old; at != NULL; at = at->next) {
        if (!is_touched(&at->lock, want))
            continue;
        if (at->lock.type != want->type) {
            cut(table, node, spare, &at->lock, want);
            continue;
        }
        grown.start = at->lock.start < grown.start ? at->lock.start : grown.start;
        grown.end = at->lock.end > grown.end ? at->lock.end : grown.end;
    }
    if (want->type != LOCKED_NONE)
        put_held(table, node, spare, &grown);
    struct held **at = &node->held;
    while (*at != old)
        at = &(*at)->next;
    while (*at != NULL) {
        if (is_touched(&(*at)->lock, want))
            take_held(table, at);
        else
            at = &(*at)->next;
    }
}

static const struct held *
find_conflict(const struct node_locks *node, const struct lock *want)
{
    for (const struct held *at = node->held; at != NULL; at = at->next)
        if (!stand_apart(&at->lock, want))
            return at;
    return NULL;
}

/* ---- who waits ---- */

/* Behind those who came before, unless it holds something already: its order would then make cycles that no program made. */
static bool
is_behind(struct lock_table *table, const struct node_locks *node, const struct lock *want,
          const struct lock_wait *until)
{
    const struct owner *owner = *owner_place(table, &want->owner);
    if (owner != NULL && owner->held > 0)
        return false;
    for (const struct lock_wait *at = node->first; at != until; at = at->next)
        if (!stand_apart(&at->want, want))
            return true;
    return false;
}

static void
enqueue(struct lock_table *table, struct node_locks *node, struct owner *owner,
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

static void
dequeue(struct lock_table *table, struct node_locks *node, struct lock_wait *wait)
{
    struct owner *owner = *owner_place(table, &wait->want.owner);
    struct lock_wait **at = &owner->waits;
    *(wait->prev != NULL ? &wait->prev->next : &node->first) = wait->next;
    *(wait->next != NULL ? &wait->next->prev : &node->last) = wait->prev;
    while (*at != wait)
        at = &(*at)->owner_next;
    *at = wait->owner_next;
    wait->waiting = false;
    table->waiting--;
}

static void
make_ready(struct lock_table *table, struct lock_wait *wait, bool canceled)
{
    wait->canceled = canceled;
    wait->ready = table->ready;
    table->ready = wait;
}

static bool
wake_one(struct lock_table *table, struct node_locks *node, struct lock_wait *wait)
{
    struct spare spare = { .count = 0 };
    if (find_conflict(node, &wait->want) != NULL || is_behind(table, node, &wait->want, wait))
        return false;
    /* Without memory it goes on waiting: the next change tries again. */
    if (table->held + 3 > table->max_held || !spare_fill(&spare)) {
        spare_free(&spare);
        return false;
    }
    change(table, node, &spare, &wait->want);
    spare_free(&spare);
    dequeue(table, node, wait);
    make_ready(table, wait, false);
    return true;
}

/* Something was given back: who can go on goes on, in the order of arrival. */
static void
wake_node(struct lock_table *table, struct node_locks *node)
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
static void
wake_owner(struct lock_table *table, const struct lock_owner *id)
{
    const struct owner *owner = *owner_place(table, id);
    if (owner == NULL || owner->held == 0)
        return;
    for (bool moved = true; moved;) {
        moved = false;
        for (struct lock_wait *at = owner->waits; at != NULL && !moved; at = at->owner_next)
            moved = wake_one(table, find_node(table, at->want.node), at);
    }
}

/* Unlocks, then tells those who are ready. */
static void
leave(struct lock_table *table)
{
    struct lock_wait *ready;
    do {
        ready = table->ready;
        for (const struct lock_wait *at = ready; at != NULL; at = at->ready)
            wake_owner(table, &at->want.owner);
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
    struct owner *stack[MAX_STACK];
    unsigned depth;
};

/* True: what stands against `want` is the seeker itself. Else its owners are to be looked at. */
static bool
push_blockers(struct search *search, const struct lock *want)
{
    const struct node_locks *node = find_node(search->table, want->node);
    if (node == NULL)
        return false;
    for (const struct held *at = node->held; at != NULL; at = at->next) {
        if (stand_apart(&at->lock, want))
            continue;
        if (same_owner(&at->lock.owner, search->self))
            return true;
        struct owner *owner = *owner_place(search->table, &at->lock.owner);
        if (owner->visited == search->table->searches || search->depth == MAX_STACK)
            continue;
        owner->visited = search->table->searches;
        search->stack[search->depth++] = owner;
    }
    return false;
}

static bool
makes_cycle(struct lock_table *table, const struct lock *want)
{
    struct search search = { .table = table, .self = &want->owner };
    table->searches++;
    if (push_blockers(&search, want))
        return true;
    while (search.depth > 0) {
        const struct owner *owner = search.stack[--search.depth];
        for (const struct lock_wait *at = owner->waits; at != NULL; at = at->owner_next)
            if (push_blockers(&search, &at->want))
                return true;
    }
    return false;
}

/* ---- the calls ---- */

/* flock(2): another type gives the old lock up first, whatever comes then. True: it has this type already. */
static bool
convert(struct lock_table *table, struct node_locks *node, const struct lock *want)
{
    for (struct held **at = &node->held; *at != NULL; at = &(*at)->next) {
        if (!same_owner(&(*at)->lock.owner, &want->owner))
            continue;
        if ((*at)->lock.type == want->type)
            return true;
        take_held(table, at);
        wake_node(table, node);
        return false;
    }
    return false;
}

static enum lock_answer
wait_for(struct lock_table *table, struct node_locks *node, struct owner *owner,
         struct lock_wait *wait)
{
    if (!wait->want.owner.flock && makes_cycle(table, &wait->want))
        return LOCK_DEADLOCK;
    if (table->waiting >= table->max_waiting)
        return LOCK_FULL;
    enqueue(table, node, owner, wait);
    return LOCK_WAITS;
}

static enum lock_answer
set_locked(struct lock_table *table, struct node_locks *node, const struct lock *want,
           struct lock_wait *wait)
{
    struct spare spare = { .count = 0 };
    struct owner *owner = make_owner(table, &want->owner);
    if (owner == NULL)
        return LOCK_FULL;
    if (want->owner.flock && want->type != LOCKED_NONE && convert(table, node, want))
        return LOCK_GRANTED;
    bool blocked =
        want->type != LOCKED_NONE &&
        (find_conflict(node, want) != NULL || (want->fair && is_behind(table, node, want, NULL)));
    if (blocked)
        return wait == NULL ? LOCK_CONFLICT : wait_for(table, node, owner, wait);
    if ((table->held + 3 > table->max_held && want->type != LOCKED_NONE) || !spare_fill(&spare)) {
        spare_free(&spare);
        return LOCK_FULL;
    }
    change(table, node, &spare, want);
    spare_free(&spare);
    wake_node(table, node);
    wake_owner(table, &want->owner);
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
    struct node_locks *node = find_node(table, want->node);
    if (node == NULL && want->type != LOCKED_NONE)
        node = make_node(table, want->node);
    if (wait != NULL && wait->canceled)
        answer = LOCK_CANCELED;
    else if (node != NULL)
        answer = set_locked(table, node, want, wait);
    else if (want->type != LOCKED_NONE)
        answer = LOCK_FULL;
    tidy_owner(table, &want->owner);
    tidy_node(table, node);
    leave(table);
    return answer;
}

bool
lock_get(struct lock_table *table, const struct lock *want, struct lock *out)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&table->mutex);
    (void)held;
    const struct node_locks *node = find_node(table, want->node);
    const struct held *found = node != NULL ? find_conflict(node, want) : NULL;
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
        struct node_locks *node = find_node(table, wait->want.node);
        dequeue(table, node, wait);
        make_ready(table, wait, true);
        wake_node(table, node);
        tidy_owner(table, &wait->want.owner);
        tidy_node(table, node);
    }
    leave(table);
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
        return same_owner(&lock->owner, choice->owner);
    return lock->owner.connection == choice->connection &&
           (choice->fh == 0 || lock->fh == choice->fh);
}

static void
drop_held(struct lock_table *table, struct node_locks *node, const struct choice *choice)
{
    bool gone = false;
    for (struct held **at = &node->held; *at != NULL;) {
        if (!is_chosen(choice, &(*at)->lock)) {
            at = &(*at)->next;
            continue;
        }
        struct lock_owner owner = (*at)->lock.owner;
        take_held(table, at);
        tidy_owner(table, &owner);
        gone = true;
    }
    if (gone)
        wake_node(table, node);
}

static void
drop(struct lock_table *table, int64_t id, const struct choice *choice)
{
    pthread_mutex_lock(&table->mutex);
    struct node_locks *node = table->held > 0 ? find_node(table, id) : NULL;
    if (node != NULL)
        drop_held(table, node, choice);
    tidy_node(table, node);
    leave(table);
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
cancel_connection(struct lock_table *table, struct node_locks *node, int64_t connection)
{
    for (struct lock_wait *at = node->first, *next; at != NULL; at = next) {
        next = at->next;
        if (at->want.owner.connection != connection)
            continue;
        dequeue(table, node, at);
        make_ready(table, at, true);
        tidy_owner(table, &at->want.owner);
    }
}

void
lock_drop_connection(struct lock_table *table, int64_t connection)
{
    pthread_mutex_lock(&table->mutex);
    for (size_t i = 0; i < BUCKETS; i++) {
        for (struct node_locks *node = table->nodes[i], *next; node != NULL; node = next) {
            next = node->next;
            cancel_connection(table, node, connection);
            drop_held(table, node, &(struct choice){ .connection = connection });
            wake_node(table, node);
            tidy_node(table, node);
        }
    }
    leave(table);
}

bool
lock_held(struct lock_table *table, int64_t id, int64_t connection)
{
    scope_unlock pthread_mutex_t *mutex = scope_lock(&table->mutex);
    (void)mutex;
    const struct node_locks *node = table->held > 0 ? find_node(table, id) : NULL;
    for (const struct held *at = node != NULL ? node->held : NULL; at != NULL; at = at->next)
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

/* ---- life ---- */

struct kept {
    struct lock lock;
    uint32_t place;
};

static int
put_kept(struct lock_table *table, const struct kept *kept, struct err *err)
{
    struct spare spare = { .count = 0 };
    struct node_locks *node = make_node(table, kept->lock.node);
    bool fine = node != NULL && make_owner(table, &kept->lock.owner) != NULL && spare_fill(&spare);
    if (fine) {
        change(table, node, &spare, &kept->lock);
        lock_journal_remove(table->journal, kept->place);
    }
    spare_free(&spare);
    return fine ? 0 : err_nomem(err);
}

/* Killed between the two halves of a change a range may be there twice: writers last, so that they lead; the request that made the
 * change comes again. */
static int
load(struct lock_table *table, struct err *err)
{
    size_t count = 0;
    struct lock lock;
    for (uint32_t place = 0; lock_journal_next(table->journal, &place, &lock); place++)
        count++;
    if (count == 0)
        return 0;
    scope_free struct kept *kept = calloc(count, sizeof(*kept));
    if (kept == NULL)
        return err_nomem(err);
    count = 0;
    for (uint32_t place = 0; lock_journal_next(table->journal, &place, &lock); place++)
        kept[count++] = (struct kept){ lock, place };
    for (size_t i = 0; i < 2 * count; i++) {
        const struct kept *at = &kept[i % count];
        bool writer = at->lock.type == LOCKED_WRITE;
        if (writer == (i >= count) && put_kept(table, at, err) != 0)
            return -1;
    }
    return 0;
}

struct lock_table *
lock_table_new(struct lock_journal *journal, unsigned max_held, unsigned max_waiting,
               struct err *err)
{
    struct lock_table *table = calloc(1, sizeof(*table));
    if (table == NULL) {
        lock_journal_close(journal);
        err_nomem(err);
        return NULL;
    }
    pthread_mutex_init(&table->mutex, NULL);
    table->journal = journal;
    table->max_held = max_held;
    table->max_waiting = max_waiting;
    if (journal == NULL || load(table, err) == 0)
        return table;
    lock_table_free(table);
    return NULL;
}

static void
free_node(struct node_locks *node)
{
    for (struct held *at = node->held, *next; at != NULL; at = next) {
        next = at->next;
        free(at);
    }
    free(node);
}

void
lock_table_free(struct lock_table *table)
{
    if (table == NULL)
        return;
    for (size_t i = 0; i < BUCKETS; i++) {
        for (struct node_locks *at = table->nodes[i], *next; at != NULL; at = next) {
            next = at->next;
            assert(at->first == NULL);
            free_node(at);
        }
        for (struct owner *at = table->owners[i], *next; at != NULL; at = next) {
            next = at->next;
            free(at);
        }
    }
    lock_journal_close(table->journal);
    pthread_mutex_destroy(&table->mutex);
    free(table);
}
