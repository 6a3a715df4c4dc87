#include "s3/timing.h"

#include "base/clock.h"

const int64_t store_timing_bound_ns[STORE_TIMING_BOUNDS] = {
    1 * NS_PER_MS,    2500000,         5 * NS_PER_MS,   10 * NS_PER_MS,  25 * NS_PER_MS,
    50 * NS_PER_MS,   100 * NS_PER_MS, 250 * NS_PER_MS, 500 * NS_PER_MS, 1 * NS_PER_S,
    2500 * NS_PER_MS, 5 * NS_PER_S,    30 * NS_PER_S,
};

const char *
store_call_name(enum store_call call)
{
    static const char *const names[STORE_CALL_COUNT] = { "head",   "get",  "put",
                                                         "delete", "copy", "list" };
    return names[call];
}

const char *
store_result_name(enum store_result result)
{
    static const char *const names[STORE_RESULT_COUNT] = { "ok", "refused", "failed" };
    return names[result];
}

static enum store_result
result_of(int rc, const struct err *err)
{
    if (rc == 0)
        return STORE_RESULT_OK;
    switch (err->code) {
    case ERR_NOT_FOUND:
    case ERR_CONFLICT:
    case ERR_EXISTS:
        return STORE_RESULT_REFUSED;
    default:
        return STORE_RESULT_FAILED;
    }
}

void
store_timing_add(struct store_timing *timing, enum store_call call, int64_t begun_ns, int rc,
                 const struct err *err)
{
    int64_t took = clock_mono_ns() - begun_ns;
    enum store_result result = result_of(rc, err);
    unsigned at = 0;
    while (at < STORE_TIMING_BOUNDS && took > store_timing_bound_ns[at])
        at++;
    (void)atomic_fetch_add_explicit(&timing->of[call][result].count[at], 1, memory_order_relaxed);
    (void)atomic_fetch_add_explicit(&timing->of[call][result].sum_ns,
                                    (uint64_t)(took > 0 ? took : 0), memory_order_relaxed);
}
