#ifndef VOLUME_LOCKS_IMPL_H
#define VOLUME_LOCKS_IMPL_H

#include <pthread.h>
#include <stddef.h>

#include "volume/locks.h"

/* What locks.c, lock_table.c and lock_wait.c share. All functions want lock_table.mutex held. */

#define LOCK_BUCKETS 1024u

struct lock_range {
    struct lock_range *next; /* of the node */
    struct lock lock;
    uint32_t place; /* in the journal */
};

struct lock_holder {
    struct lock_holder *next; /* of the bucket */
    struct lock_owner id;
    unsigned held;
    struct lock_wait *waits;
    uint64_t visited; /* by the search for a cycle of this number */
};

struct lock_node {
    struct lock_node *next; /* of the bucket */
    int64_t node;
    struct lock_range *held;
    struct lock_wait *first, *last; /* who waits, in order of arrival */
};

struct lock_table {
    pthread_mutex_t mutex; /* all below; a leaf */
    struct lock_node *nodes[LOCK_BUCKETS];
    struct lock_holder *owners[LOCK_BUCKETS];
    struct lock_journal *journal;
    unsigned held, waiting, max_held, max_waiting;
    uint64_t searches;
    struct lock_wait *ready; /* granted or canceled, to be told without the lock */
};

struct lock_spare {
    struct lock_range *held[3]; /* a change adds one, and cuts one in two */
    unsigned count;
};

/* lock_table.c */
bool lock_table_same_owner(const struct lock_owner *a, const struct lock_owner *b);
/* Whether both may be held at once. */
bool lock_table_apart(const struct lock *a, const struct lock *b);
/* NULL: nobody holds or waits for anything there. */
struct lock_node *lock_table_node(const struct lock_table *table, int64_t node);
/* The same, made when it is missing; NULL only without memory. */
struct lock_node *lock_table_make_node(struct lock_table *table, int64_t node);
/* Nothing is kept for a file that nobody locks, NULL is fine, nor for an owner that neither holds nor waits. */
void lock_table_tidy_node(struct lock_table *table, struct lock_node *node);
void lock_table_tidy_owner(struct lock_table *table, const struct lock_owner *id);
/* Where the owner is, or would be. */
struct lock_holder **lock_table_owner(struct lock_table *table, const struct lock_owner *id);
/* NULL only without memory. */
struct lock_holder *lock_table_make_owner(struct lock_table *table, const struct lock_owner *id);
/* False: no memory. What is left of it is to be freed in any case. */
bool lock_table_fill_spare(struct lock_spare *spare);
void lock_table_free_spare(struct lock_spare *spare);
/* The owner's ranges become what `want` says: split, merged, turned into another type. The owner and three spares are there. */
void lock_table_change(struct lock_table *table, struct lock_node *node, struct lock_spare *spare,
                       const struct lock *want);
/* Takes the range out of its list and frees it. */
void lock_table_take(struct lock_table *table, struct lock_range **at);
/* The first range that stands against `want`; NULL: none. */
const struct lock_range *lock_table_conflict(const struct lock_node *node, const struct lock *want);

/* lock_wait.c */
/* Whether it has to wait behind those who came before (up to `until`, NULL: all). */
bool lock_wait_behind(struct lock_table *table, const struct lock_node *node,
                      const struct lock *want, const struct lock_wait *until);
/* Whether to wait for `want` would close a circle of owners who wait for each other. */
bool lock_wait_cycle(struct lock_table *table, const struct lock *want);
void lock_wait_enqueue(struct lock_table *table, struct lock_node *node, struct lock_holder *owner,
                       struct lock_wait *wait);
void lock_wait_dequeue(struct lock_table *table, struct lock_node *node, struct lock_wait *wait);
/* It has ended: lock_wait_leave() tells. */
void lock_wait_ready(struct lock_table *table, struct lock_wait *wait, bool canceled);
/* Something was given back: who can go on goes on, in the order of arrival. */
void lock_wait_wake_node(struct lock_table *table, struct lock_node *node);
/* An owner that holds something now waits behind nobody any more (another thread of its process may). */
void lock_wait_wake_owner(struct lock_table *table, const struct lock_owner *id);
/* Unlocks the table, then tells those who are ready. */
void lock_wait_leave(struct lock_table *table);

#endif
