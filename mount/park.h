#ifndef MOUNT_PARK_H
#define MOUNT_PARK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/*
 * The bounded table of parked requests (docs/mechanisms.md section 9): whatever may wait for a commit, an fsync or the store is
 * put here by the loop thread and answered by a worker. Two pools, so that slow objects never stand in the way of the index:
 * `meta` for the index and the disk, `store` for what may wait for the store.
 *
 * A request is answered exactly once: whoever wants to answer claims it first. A timer claims what is not answered at its
 * deadline. Slots number the entries; one is given again only after the worker has finished with it, so after the reply was
 * written (INV-13).
 *
 * Thread safe. Callbacks run without any lock of the park (INV-8).
 */
struct park;
enum park_pool { PARK_META, PARK_STORE };

/* The head of a parked request; the rest belongs to the caller. Zero it, then set the first four fields. */
struct park_call {
    /* Works on a worker of `pool`, claiming before it answers. True: go on in the store pool. */
    bool (*run)(struct park_call *call, enum park_pool pool);
    /* Answers for the timer or an interrupt, which have claimed already. `run` may be working on the same call. */
    void (*give_up)(struct park_call *call, enum err_code code);
    void (*free)(struct park_call *call);
    /* NULL, or asked instead of giving up at an interrupt: who works on the call answers then. It never gives up by itself. */
    void (*cancel)(struct park_call *call);
    bool must_run; /* run it although it was given up (RELEASE) */
    int64_t deadline_ns;
    /* Of the park: */
    struct park *park;
    uint32_t slot;
    unsigned refs;
    bool answered;
    bool listed;
    const void *key;
    struct park_call *prev, *next; /* by deadline */
};

#define PARK_NEVER INT64_MAX /* a deadline that does not come */

struct park *park_new(unsigned meta_threads, unsigned store_threads, unsigned max_parked,
                      struct err *err) MUST_CHECK;
/* Waits for every call, then ends the threads. NULL is fine. */
void park_free(struct park *park);

/* Takes a slot for `call` (and owns it from now on); nothing runs yet. `key` is what park_interrupt() compares. ERR_AGAIN when
 * the table is full: the call stays the caller's. */
int park_enter(struct park *park, struct park_call *call, const void *key,
               struct err *err) MUST_CHECK;
/* After park_enter(), once. A pool that cannot take it answers ERR_NOMEM through give_up. */
void park_start(struct park_call *call, enum park_pool pool);
/* The same for the meta pool, on the thread of the caller, who has nothing else to do: no switch of threads. */
void park_start_here(struct park_call *call);
/* True for the first caller only: it must answer now. */
bool park_claim(struct park_call *call);
bool park_answered(struct park_call *call);
/* Claims the call in `slot` if its key is `key`, and answers ERR_CANCELED. */
void park_interrupt(struct park *park, uint32_t slot, const void *key);
/* The call stays until as many park_release(), whatever `run` answers: for an answer that somebody else gives. */
void park_hold(struct park_call *call);
void park_release(struct park_call *call);
/* Runs it once more on the store pool, for a `run` that took a hold for that and answered nothing; takes the hold. */
void park_again(struct park_call *call);
unsigned park_count(struct park *park);

#endif
