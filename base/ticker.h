#ifndef BASE_TICKER_H
#define BASE_TICKER_H

#include <stdint.h>

#include "base/err.h"

/* A thread that calls a function again and again, each time after as long as the last call said. */
struct ticker;
/* Answers after how many nanoseconds to come back. */
typedef int64_t ticker_fn(void *arg);
/* The first call comes after `first_ns`. `name`: of the thread, at most 15 bytes. NULL on failure. */
struct ticker *ticker_start(const char *name, int64_t first_ns, ticker_fn *fn, void *arg,
                            struct err *err);
/* The next call is due now; one that is under way is followed by another. NULL is fine. */
void ticker_kick(struct ticker *ticker);
/* Waits for a call that is under way; NULL is fine. */
void ticker_stop(struct ticker *ticker);

#endif
