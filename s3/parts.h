#ifndef S3_PARTS_H
#define S3_PARTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/*
 * How something large is cut into parts, and the threads that carry parts out side by side. S3's limits: at most 10,000
 * parts, each but the last of 5 MiB to 5 GiB. R2 wants all equal but the last, which may not be larger.
 */
#define PARTS_MAX 10000
#define PARTS_DEFAULT_BYTES (16ull << 20)

struct parts {
    uint64_t total;
    uint64_t bytes; /* of each part but the last */
    unsigned count;
};
/* `wanted` bytes for each part, more (whole MiB) when that would make too many; 0: the default. ERR_TOO_LARGE when `total`
 * does not fit into parts of at most `max` bytes. Pure. */
int parts_plan(uint64_t total, uint64_t wanted, uint64_t max, struct parts *out,
               struct err *err) MUST_CHECK;
/* Part `index`, from 0. */
uint64_t parts_off(const struct parts *parts, unsigned index);
uint64_t parts_len(const struct parts *parts, unsigned index);

/*
 * Calls fn(arg, index) for 0 to count - 1, at most `threads` at once (the caller's thread is one of them; fewer when the
 * machine gives no more). After the first failure nothing new begins; its error comes back when all have returned.
 */
typedef int parts_fn(void *arg, unsigned index, struct err *err);
int parts_run(unsigned count, unsigned threads, parts_fn *fn, void *arg,
              struct err *err) MUST_CHECK;

#endif
