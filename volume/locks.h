#ifndef VOLUME_LOCKS_H
#define VOLUME_LOCKS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/*
 * Locks of programs on open files, over all mounts of a gateway: byte ranges as fcntl(2) says, whole files as flock(2) says; the
 * two do not see each other. Kept in memory, with a copy of what is held in a mapped file (lock_journal.c), so that a gateway
 * that takes a mount over knows it; who waits comes again by the kernel's resend (docs/adr/0009-locks.md).
 *
 * Thread safe: one lock, a leaf; callbacks run without it. No I/O.
 */
struct lock_table;
struct lock_journal;

enum lock_type { LOCKED_NONE, LOCKED_READ, LOCKED_WRITE };

struct lock_owner {
    int64_t connection;
    uint64_t id; /* the kernel's lock_owner */
    bool flock;  /* of a whole file, by flock(2) */
};

struct lock {
    int64_t node;
    struct lock_owner owner;
    enum lock_type type;
    uint64_t start, end; /* inclusive */
    uint64_t fh;         /* of the descriptor it was taken through */
    uint32_t pid;        /* in the mounter's namespace */
    bool fair;           /* asked for by one who would wait: behind those who do */
};

enum lock_answer {
    LOCK_GRANTED,
    LOCK_WAITS,
    LOCK_CONFLICT, /* EAGAIN */
    LOCK_DEADLOCK, /* EDEADLK */
    LOCK_FULL,     /* ENOLCK: too many, or no memory */
    LOCK_CANCELED, /* EINTR, or the mount is gone */
};

/* Somebody who waits. Zeroed, with `done` set, before lock_set(); it must stay where it is until `done` ran. */
struct lock_wait {
    void (*done)(struct lock_wait *wait,
                 enum lock_answer answer); /* once after LOCK_WAITS, by any thread */
    /* of the table: */
    struct lock want;
    struct lock_wait *prev, *next; /* of the node, in order of arrival */
    struct lock_wait *owner_next;  /* of the same owner */
    struct lock_wait *ready;       /* to be told */
    bool waiting, canceled;
};

/* `journal` may be NULL; it is taken, and what it holds is held. `max_held` and `max_waiting` bound the table. */
struct lock_table *lock_table_new(struct lock_journal *journal, unsigned max_held,
                                  unsigned max_waiting, struct err *err) MUST_CHECK;
/* Nobody may wait any more. NULL is fine. */
void lock_table_free(struct lock_table *table);

/* F_GETLK: false, when `want` could be had; else `out` is one that stands against it. */
bool lock_get(struct lock_table *table, const struct lock *want, struct lock *out);
/* Takes, changes or (LOCKED_NONE) gives back. `wait` NULL: do not wait. LOCK_WAITS: `wait->done` will tell. Who holds nothing waits
 * behind those who came before; who holds something does not, or that order alone would make cycles. As with flock(2) on Linux,
 * another type gives the old lock up first. */
enum lock_answer lock_set(struct lock_table *table, const struct lock *want,
                          struct lock_wait *wait);
/* The wait ends with LOCK_CANCELED, unless it has ended, or is ended by somebody else right now: then false. Also before
 * lock_set(), which then answers so. */
bool lock_cancel(struct lock_table *table, struct lock_wait *wait);

/* A descriptor of the owner's was closed (close(2) drops all range locks of a process on the file). */
void lock_drop_owner(struct lock_table *table, int64_t node, const struct lock_owner *owner);
/* An open file has ended: what was taken through it goes. */
void lock_drop_handle(struct lock_table *table, int64_t node, int64_t connection, uint64_t fh);
/* A mount is gone: its locks go, and who waits there is told LOCK_CANCELED. */
void lock_drop_connection(struct lock_table *table, int64_t connection);
/* Whether programs of this connection hold range locks on the file. */
bool lock_held(struct lock_table *table, int64_t node, int64_t connection);
unsigned lock_count(struct lock_table *table);

/* lock_journal.c: what is held, in a file that outlives the process, not the machine (`boot_id`). Bounded by `max` places. */
struct lock_journal *lock_journal_open(int state_dir, const char *boot_id, unsigned max,
                                       struct err *err) MUST_CHECK;
/* Whether the last gateway of this state directory ran in this boot, as far as its journal tells. */
bool lock_journal_of_boot(int state_dir, const char *boot_id);
void lock_journal_close(struct lock_journal *journal);
/* A free place gets the lock; there is one: twice as many as a table holds, and some. */
uint32_t lock_journal_add(struct lock_journal *journal, const struct lock *lock);
void lock_journal_remove(struct lock_journal *journal, uint32_t place);
/* False at the end. Places that nobody owns yet are walked, `*place` from 0. */
bool lock_journal_next(struct lock_journal *journal, uint32_t *place, struct lock *out);

#endif
