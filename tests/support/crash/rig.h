#ifndef SUPPORT_CRASH_RIG_H
#define SUPPORT_CRASH_RIG_H

#include <limits.h>
#include <stdio.h>
#include <sys/types.h>

#include "volume/volume.h"

/* A place for one gateway and its bucket, and helpers for programs that crash it. Trouble of the rig itself ends the
 * program with status 2, a broken promise of the code under test with 1. */

#define RIG_STATUS_BROKEN 1
#define RIG_STATUS_TROUBLE 2

__attribute__((format(printf, 1, 2), noreturn)) void rig_die(const char *fmt, ...);
/* Prints "BROKEN: ..." and remembers it; rig_broken() answers how many there were. */
__attribute__((format(printf, 1, 2))) void rig_break(const char *fmt, ...);
unsigned rig_broken(void);
const char *rig_env(const char *name);

/* A generator of its own, so that a seed means the same run everywhere (splitmix64). */
struct rig_random {
    uint64_t state;
};
uint64_t rig_random(struct rig_random *random);
/* 0 to below - 1. */
uint64_t rig_below(struct rig_random *random, uint64_t below);
/* True once in `n`. */
bool rig_once_in(struct rig_random *random, unsigned n);
/* HOLDFAST_SEED, or the clock's. */
uint64_t rig_seed(void);

struct rig {
    char dir[PATH_MAX];
    char state[PATH_MAX];
    char bucket[PATH_MAX];
};
/* A fresh directory below $TMPDIR or /tmp. */
void rig_make(struct rig *rig);
/* The same names below another directory, which is made. */
void rig_at(struct rig *rig, const char *dir, const char *name);
void rig_remove(const struct rig *rig);
/* cp -a and rm -rf. */
void rig_copy(const char *from, const char *to);
void rig_delete(const char *path);

struct store *rig_store(const struct rig *rig);
/* A wrapper that leaves `inner` alone when it is freed: one store for several lives of a service. */
struct store *rig_borrow(struct store *inner);
/* Opens and starts; `store` is taken. NULL with err set. */
struct volume_service *rig_open(const char *state, struct store *store, struct err *err);
void rig_close(struct volume_service *service);
/* The volume of that name, made when it is missing. */
int64_t rig_volume(struct volume_service *service, const char *name);
struct volume_ctx rig_ctx(int64_t connection);

/* Runs this program again with `args` (NULL at the end) and `env` ("A=b", NULL at the end) under libcrash_io.so. */
pid_t rig_spawn(const char *const *args, const char *const *env);
/* The wait status; kills after `seconds` and then answers -1. */
int rig_wait(pid_t pid, unsigned seconds);

#endif
