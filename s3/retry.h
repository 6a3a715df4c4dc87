#ifndef S3_RETRY_H
#define S3_RETRY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* When to try again and how many requests may be under way (docs/stores.md). Pure. */

enum retry_verdict {
    RETRY_NO,    /* an answer that trying again does not change */
    RETRY_AGAIN, /* 500, 502, 503, 504, 400 RequestTimeout, 409 */
    RETRY_SLOW,  /* the same, and with fewer requests at once: 429, SlowDown */
    RETRY_CLOCK, /* once, after the clock offset was learned: RequestTimeTooSkewed */
    RETRY_KEYS /* once, when fresh keys could be had; the client's verdict, never retry_classify()'s */
};
/* `code` is the <Code> of the error document, "" when there was none. */
enum retry_verdict retry_classify(int status, const char *code);

/* Exponential back-off with full jitter: 0 to min(5 s, 100 ms * 2^attempt). attempt counts from 0. */
int64_t retry_backoff_ns(unsigned attempt, uint64_t *random_state);
/* Retry-After: seconds or an HTTP date; 0 when absent or not understood, at most 60 s. */
int64_t retry_after_ns(const char *value, int64_t wall_now_ns);

/* The default deadline of an operation: 30 s and 1 s for each MiB. */
int64_t retry_deadline_ns(int64_t mono_now_ns, uint64_t size);

/*
 * How many requests may be under way. It begins small and grows by one with each success (so it doubles in each round)
 * until the store says slow down; then it is halved, and grows by one with each round of successes. One halving answers
 * all the requests that were under way together: they tell of one overload. Not thread safe: the client holds its lock.
 */
#define RETRY_WINDOW_START 4
struct retry_limit {
    unsigned max;
    unsigned window; /* 1 to max */
    unsigned in_flight;
    unsigned good;     /* successes since the window last changed */
    unsigned settling; /* answers that still belong to the overload of the last halving */
    bool slowed;       /* the store has said slow down before */
};
void retry_limit_init(struct retry_limit *limit, unsigned max);
bool retry_limit_enter(struct retry_limit *limit); /* false: wait */
enum retry_result { RETRY_RESULT_GOOD, RETRY_RESULT_BAD, RETRY_RESULT_SLOW };
void retry_limit_leave(struct retry_limit *limit, enum retry_result result);

#endif
