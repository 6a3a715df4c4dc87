#ifndef BASE_POOL_H
#define BASE_POOL_H

#include "base/err.h"

/*
 * A bounded worker pool. Jobs run in the order of submission on one of `threads` threads.
 * pool_free() runs what is queued, then joins; pool_drop() discards what has not started (calling
 * each job's `drop`, if any) and leaves the pool usable; pool_free() still has to follow. Workers
 * are named "<name>-<n>" and have all signals blocked but those of faults. A job may submit, but
 * must not drain or free its own pool.
 */
struct pool;
typedef void pool_fn(void *arg);

struct pool *pool_new(const char *name, unsigned threads, unsigned max_queued,
                      struct err *err) MUST_CHECK;
/* ERR_AGAIN when the queue is full: the caller still owns `arg`. `drop` may be NULL. */
int pool_submit(struct pool *pool, pool_fn *fn, pool_fn *drop, void *arg,
                struct err *err) MUST_CHECK;
/* Waits until nothing is queued or running. */
void pool_drain(struct pool *pool);
void pool_free(struct pool *pool);
void pool_drop(struct pool *pool);
unsigned pool_queued(struct pool *pool);

#endif
