#include <assert.h>
#include <stdlib.h>

#include "base/scope.h"
#include "base/ulid.h"
#include "volume/locks_impl.h"

/* The table of locks: what is held on each node and by whom, ranges split and merged, and what an earlier process held. */

static size_t
bucket_of(uint64_t seed)
{
    return (size_t)(random_next(&seed) % LOCK_BUCKETS);
}

bool
lock_table_same_owner(const struct lock_owner *a, const struct lock_owner *b)
{
    return a->connection == b->connection && a->id == b->id && a->flock == b->flock;
}

static bool
overlap(const struct lock *a, const struct lock *b)
{
    return a->start <= b->end && b->start <= a->end;
}

bool
lock_table_apart(const struct lock *a, const struct lock *b)
{
    return !overlap(a, b) || a->owner.flock != b->owner.flock ||
           (a->type != LOCKED_WRITE && b->type != LOCKED_WRITE) ||
           lock_table_same_owner(&a->owner, &b->owner);
}

struct lock_node *
lock_table_node(const struct lock_table *table, int64_t node)
{
    struct lock_node *at = table->nodes[bucket_of((uint64_t)node)];
    while (at != NULL && at->node != node)
        at = at->next;
    return at;
}

struct lock_node *
lock_table_make_node(struct lock_table *table, int64_t node)
{
    struct lock_node *at = lock_table_node(table, node);
    if (at != NULL)
        return at;
    at = calloc(1, sizeof(*at));
    if (at == NULL)
        return NULL;
    struct lock_node **bucket = &table->nodes[bucket_of((uint64_t)node)];
    at->node = node;
    at->next = *bucket;
    *bucket = at;
    return at;
}

/* Nothing is kept for a file that nobody locks. */
void
lock_table_tidy_node(struct lock_table *table, struct lock_node *node)
{
    if (node == NULL || node->held != NULL || node->first != NULL)
        return;
    struct lock_node **at = &table->nodes[bucket_of((uint64_t)node->node)];
    while (*at != node)
        at = &(*at)->next;
    *at = node->next;
    free(node);
}

struct lock_holder **
lock_table_owner(struct lock_table *table, const struct lock_owner *id)
{
    struct lock_holder **at = &table->owners[bucket_of(id->id ^ (uint64_t)id->connection << 32)];
    while (*at != NULL && !lock_table_same_owner(&(*at)->id, id))
        at = &(*at)->next;
    return at;
}

struct lock_holder *
lock_table_make_owner(struct lock_table *table, const struct lock_owner *id)
{
    struct lock_holder **at = lock_table_owner(table, id);
    if (*at != NULL)
        return *at;
    struct lock_holder *owner = calloc(1, sizeof(*owner));
    if (owner == NULL)
        return NULL;
    owner->id = *id;
    *at = owner;
    return owner;
}

void
lock_table_tidy_owner(struct lock_table *table, const struct lock_owner *id)
{
    struct lock_holder **at = lock_table_owner(table, id), *owner = *at;
    if (owner == NULL || owner->held > 0 || owner->waits != NULL)
        return;
    *at = owner->next;
    free(owner);
}

/* ---- ranges of one owner ---- */

bool
lock_table_fill_spare(struct lock_spare *spare)
{
    for (spare->count = 0; spare->count < 3; spare->count++) {
        spare->held[spare->count] = calloc(1, sizeof(struct lock_range));
        if (spare->held[spare->count] == NULL)
            return false;
    }
    return true;
}

void
lock_table_free_spare(struct lock_spare *spare)
{
    while (spare->count > 0)
        free(spare->held[--spare->count]);
}

static void
put_held(struct lock_table *table, struct lock_node *node, struct lock_spare *spare,
         const struct lock *lock)
{
    struct lock_range *held = spare->held[--spare->count];
    held->lock = *lock;
    if (table->journal != NULL)
        held->place = lock_journal_add(table->journal, lock);
    held->next = node->held;
    node->held = held;
    table->held++;
    (*lock_table_owner(table, &lock->owner))->held++;
}

void
lock_table_take(struct lock_table *table, struct lock_range **at)
{
    struct lock_range *held = *at;
    *at = held->next;
    if (table->journal != NULL)
        lock_journal_remove(table->journal, held->place);
    table->held--;
    (*lock_table_owner(table, &held->lock.owner))->held--;
    free(held);
}

/* What the new range takes the place of, or grows together with. */
static bool
is_touched(const struct lock *held, const struct lock *want)
{
    if (!lock_table_same_owner(&held->owner, &want->owner))
        return false;
    if (overlap(held, want))
        return true;
    return held->type == want->type &&
           (held->end + 1 == want->start || want->end + 1 == held->start);
}

static void
cut(struct lock_table *table, struct lock_node *node, struct lock_spare *spare,
    const struct lock *old, const struct lock *want)
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
void
lock_table_change(struct lock_table *table, struct lock_node *node, struct lock_spare *spare,
                  const struct lock *want)
{
    struct lock grown = *want;
    struct lock_range *old = node->held; /* the new ones come before it */
    for (const struct lock_range *at = old; at != NULL; at = at->next) {
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
    struct lock_range **at = &node->held;
    while (*at != old)
        at = &(*at)->next;
    while (*at != NULL) {
        if (is_touched(&(*at)->lock, want))
            lock_table_take(table, at);
        else
            at = &(*at)->next;
    }
}

const struct lock_range *
lock_table_conflict(const struct lock_node *node, const struct lock *want)
{
    for (const struct lock_range *at = node->held; at != NULL; at = at->next)
        if (!lock_table_apart(&at->lock, want))
            return at;
    return NULL;
}

/* ---- life ---- */

struct kept {
    struct lock lock;
    uint32_t place;
};

static int
put_kept(struct lock_table *table, const struct kept *kept, struct err *err)
{
    struct lock_spare spare = { .count = 0 };
    struct lock_node *node = lock_table_make_node(table, kept->lock.node);
    bool fine = node != NULL && lock_table_make_owner(table, &kept->lock.owner) != NULL &&
                lock_table_fill_spare(&spare);
    if (fine) {
        lock_table_change(table, node, &spare, &kept->lock);
        lock_journal_remove(table->journal, kept->place);
    }
    lock_table_free_spare(&spare);
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
free_node(struct lock_node *node)
{
    for (struct lock_range *at = node->held, *next; at != NULL; at = next) {
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
    for (size_t i = 0; i < LOCK_BUCKETS; i++) {
        for (struct lock_node *at = table->nodes[i], *next; at != NULL; at = next) {
            next = at->next;
            assert(at->first == NULL);
            free_node(at);
        }
        for (struct lock_holder *at = table->owners[i], *next; at != NULL; at = next) {
            next = at->next;
            free(at);
        }
    }
    lock_journal_close(table->journal);
    pthread_mutex_destroy(&table->mutex);
    free(table);
}
