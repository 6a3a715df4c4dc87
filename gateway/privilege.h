#ifndef GATEWAY_PRIVILEGE_H
#define GATEWAY_PRIVILEGE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"

/*
 * Giving up what the gateway does not need (docs/design.md section 8). Call in this order, before any thread exists.
 */
struct gateway_user {
    uid_t uid;
    gid_t gid;
    char name[64];
    char home[256]; /* "" for an ordinary user: HOME stays */
};

/* The user to become: `name`, else "holdfast", else "nobody". For an ordinary user: itself. */
int gateway_privilege_user(const char *name, struct gateway_user *out, struct err *err) MUST_CHECK;

/* Makes `dir` if it is missing (mode 0700) and gives it to `user` when it is new, empty or root's own. A directory of somebody
 * else is ERR_DENIED. */
int gateway_privilege_own(const char *dir, const struct gateway_user *user,
                          struct err *err) MUST_CHECK;

/* Groups, uid, capabilities and the bounding set; cannot be undone. Does nothing for an ordinary user. */
int gateway_privilege_drop(const struct gateway_user *user, struct err *err) MUST_CHECK;

/* no_new_privs, Landlock (writing only below `writable`, a list that ends in NULL) and the seccomp filter. `readable`: further
 * files that are read ("" is skipped); with them, as with the profile files of AWS, their directory is opened for reading, since
 * a file that is replaced by a rename is another one. Best effort: `report` says in words what is on. */
void gateway_privilege_harden(const char *const *writable, const char *const *readable,
                              char *report, size_t size);

#endif
