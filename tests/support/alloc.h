#ifndef SUPPORT_ALLOC_H
#define SUPPORT_ALLOC_H

/*
 * Makes the n-th allocation of a test program fail. Linking with `test_alloc` sends every call of
 * malloc, calloc, realloc, strdup and strndup in the program and its static libraries through a
 * counter (ld's --wrap); calls inside shared libraries are not seen. Thread safe: which thread has
 * the n-th allocation is up to the scheduler.
 */

/* Starts counting anew; the n-th allocation from now (1 is the next) answers NULL and ENOMEM,
 * once. 0: none fails. */
void alloc_fail_at(unsigned long n);
/* Allocations since the last alloc_fail_at() or alloc_reset(), with the failed one. */
unsigned long alloc_count(void);
/* Starts counting anew; none fails. */
void alloc_reset(void);

#endif
