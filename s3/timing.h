#ifndef S3_TIMING_H
#define S3_TIMING_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/err.h"

/*
 * How long the calls of a store took, by call and result, since it was opened: histograms for metrics. A call is what the caller asked
 * for, its retries and all its parts; what the gate itself refuses is none. Thread safe, without locks.
 */
enum store_call {
    STORE_CALL_HEAD,
    STORE_CALL_GET,
    STORE_CALL_PUT,
    STORE_CALL_DELETE,
    STORE_CALL_COPY,
    STORE_CALL_LIST,
    STORE_CALL_COUNT
};
enum store_result {
    STORE_RESULT_OK,
    STORE_RESULT_REFUSED, /* the store judged: a condition did not hold, or nothing is there */
    STORE_RESULT_FAILED,
    STORE_RESULT_COUNT
};
#define STORE_TIMING_BOUNDS 13
extern const int64_t
    store_timing_bound_ns[STORE_TIMING_BOUNDS]; /* rising; a call counts where it took no longer */

struct store_timing {
    struct {
        _Atomic uint64_t count[STORE_TIMING_BOUNDS + 1]; /* the last: longer than all */
        _Atomic uint64_t sum_ns;
    } of[STORE_CALL_COUNT][STORE_RESULT_COUNT];
};

const char *store_call_name(enum store_call call);
const char *store_result_name(enum store_result result);
/* A call that began at `begun_ns` (mono) ended now, with rc 0 or with `err`. */
void store_timing_add(struct store_timing *timing, enum store_call call, int64_t begun_ns, int rc,
                      const struct err *err);

#endif
