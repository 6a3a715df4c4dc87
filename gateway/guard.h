#ifndef GATEWAY_GUARD_H
#define GATEWAY_GUARD_H

#include "base/err.h"

/*
 * The guard: a process that only waits. It is forked before the gateway gives anything up, has no thread and reads nothing but single
 * letters from its gateway; when that dies without a word, it forks the next one (docs/adr/0007). It also starts the new program of
 * an upgrade, and the old one again should the new one fail.
 */
struct gateway_guard {
    int control; /* -1: nobody guards */
};

/* What a gateway that is started again runs; it never comes back here. */
typedef int gateway_guard_fn(void *arg, struct gateway_guard *guard);

/* Call as root, before any thread or descriptor exists. */
int gateway_guard_start(gateway_guard_fn *again, void *arg, struct gateway_guard *out,
                        struct err *err) MUST_CHECK;
/* From now on a death counts as one. */
void gateway_guard_ready(const struct gateway_guard *guard);
/* An orderly end, or a start that failed: nobody is to come after. */
void gateway_guard_end(struct gateway_guard *guard);

/* Starts the program anew from its file and waits until it could take over. Then this gateway has to end by
 * gateway_guard_hand_over(). ERR_UNSUPPORTED: nobody guards. */
int gateway_guard_upgrade(struct gateway_guard *guard, struct err *err) MUST_CHECK;
void gateway_guard_hand_over(struct gateway_guard *guard);

/* In a program that was started so: the descriptor of the guard who waits for it, else -1. */
int gateway_guard_heir(void);
/* The heir could take over now / serves. `fd` -1 is fine. */
void gateway_guard_heir_ready(int fd);
void gateway_guard_heir_serves(int *fd);

#endif
