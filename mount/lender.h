#ifndef MOUNT_LENDER_H
#define MOUNT_LENDER_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "mount/mounter.h"

/*
 * Registers content files with kernels through the mounter, and closes what is not needed any more on a thread of its own: an
 * id pins the disk space of a removed file. Thread safe.
 */
struct lender;
struct session;

/* Answers referenced sessions, at most `max`. */
typedef size_t lender_sessions_fn(void *arg, struct session **out, size_t max);

struct lender *lender_new(struct mounter *mounter, lender_sessions_fn *sessions, void *arg,
                          struct err *err) MUST_CHECK;
void lender_free(struct lender *lender); /* stops the thread; NULL is fine */
/* `fd` stays the caller's. */
int lender_open(struct lender *lender, int64_t mount, int fd, struct mounter_backing *backing,
                struct err *err) MUST_CHECK;
/* A volume_content_gone_fn; `arg` is the lender. */
void lender_content_gone(void *arg, int64_t content);
/* Some session has ids to be closed. */
void lender_kick(struct lender *lender);

#endif
