#ifndef S3_FAULT_IMPL_H
#define S3_FAULT_IMPL_H

#include <pthread.h>

#include "s3/fault.h"

/* What the fault wrapper's calls (fault.c) and the calls that land late (fault_late.c) share. */

struct late;
struct fault_store {
    struct store store;
    pthread_mutex_t lock; /* guards the rest; not held while the next store works */
    struct fault_plan plan;
    uint64_t random;
    unsigned calls;
    bool has_forced;
    enum fault_kind forced;
    struct late **late;
    size_t late_count;
    size_t late_cap;
};

static inline struct fault_store *
fault_of(struct store *store)
{
    return (struct fault_store *)store;
}

/* The call to the next store, without the conditions that the plan ignores. */
int fault_pass_put(struct fault_store *fault, const struct store_put *req,
                   const struct fault_plan *plan, struct store_put_result *res, struct err *err);
int fault_pass_delete(struct fault_store *fault, const struct store_delete *req,
                      const struct fault_plan *plan, enum store_outcome *outcome, struct err *err);
int fault_pass_copy(struct fault_store *fault, const struct store_copy *req,
                    const struct fault_plan *plan, struct store_put_result *res, struct err *err);

/* Holds a call back, with copies of all it needs. */
int fault_late_put(struct fault_store *fault, const struct store_put *req,
                   struct err *err) MUST_CHECK;
int fault_late_delete(struct fault_store *fault, const struct store_delete *req,
                      struct err *err) MUST_CHECK;
int fault_late_copy(struct fault_store *fault, const struct store_copy *req,
                    struct err *err) MUST_CHECK;

#endif
