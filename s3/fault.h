#ifndef S3_FAULT_H
#define S3_FAULT_H

#include "s3/store.h"

/*
 * A wrapper that makes a good store behave like a bad one, by a seeded plan. For tests, the simulator and
 * `HOLDFAST_TEST_STORE_FAULT`; never in a default stack.
 */
enum fault_kind {
    FAULT_NONE,
    FAULT_ERROR,       /* fails before it reaches the store: ERR_STORE_AWAY, STORE_NOT_DONE */
    FAULT_LOST_ANSWER, /* is carried out; the caller gets ERR_STORE_TIMEOUT, STORE_UNKNOWN */
    FAULT_LATE,        /* as lost answer, but carried out only at fault_store_deliver_late() */
    FAULT_SHORT_BODY,  /* GET: the sink gets a part, then ERR_STORE_BAD_ANSWER */
    FAULT_DELAY,       /* carried out after delay_ns of clock_sleep_ns() */
    FAULT_DENIED,
    FAULT_KIND_COUNT
};

struct fault_plan {
    uint64_t seed;
    unsigned per_mille[FAULT_KIND_COUNT]; /* probability of each kind per call, FAULT_NONE unused */
    int64_t delay_ns;
    bool ignore_put_conditions; /* PUT overwrites whatever the condition says */
    bool ignore_delete_conditions;
    bool ignore_copy_conditions;
    unsigned deliver_every; /* each n-th call first carries out one held late call; 0: never */
};

/* "seed=7,error=20,lost=10,late=10,short=5,delay=50,denied=0,delay-ms=200,deliver-every=5,ignore=put+delete+copy": rates
 * per mille. What is not named is 0; an unknown word is ERR_USAGE naming it. */
int fault_plan_parse(const char *text, struct fault_plan *out, struct err *err) MUST_CHECK;

struct store *fault_store_wrap(struct store *next, const struct fault_plan *plan,
                               struct err *err) MUST_CHECK;
void fault_store_set_plan(struct store *store, const struct fault_plan *plan);
/* The next call fails thus, whatever the plan says. */
void fault_store_next(struct store *store, enum fault_kind kind);
/* Carries out the held late calls in a random order (at most `limit`, 0: all); answers how many. */
unsigned fault_store_deliver_late(struct store *store, unsigned limit);
unsigned fault_store_pending(struct store *store);
void fault_store_drop_late(struct store *store);

#endif
