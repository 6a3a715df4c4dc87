#ifndef BASE_ULID_H
#define BASE_ULID_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* ULID (github.com/ulid/spec): 48 bits of milliseconds and 80 random bits, 26 characters of
 * Crockford's base 32, upper case. Ours are strictly rising within a process also when the clock
 * steps back. */
#define ULID_LEN 26
#define ULID_SIZE 27

/* Thread safe; the time is clock_wall_ns(). A child of fork(2) does not continue its parent's. */
int ulid_new(char out[ULID_SIZE], struct err *err) MUST_CHECK;
bool ulid_valid(const char *text);
int64_t ulid_time_ms(const char *text); /* -1 when not a ULID */
/* `len` bytes from getrandom(2). */
int random_bytes(void *out, size_t len, struct err *err) MUST_CHECK;
/* A fast non-cryptographic stream for jitter and simulators: splitmix64. */
uint64_t random_next(uint64_t *state);

#endif
