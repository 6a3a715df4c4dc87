#ifndef GATEWAY_SANDBOX_H
#define GATEWAY_SANDBOX_H

#include <stdbool.h>
#include <stddef.h>

#include "base/json.h"

/*
 * The command line of bubblewrap for one `holdfast run`: what the sandbox may see. Pure.
 *
 * The specification (JSON, from the command line to the launcher):
 *   {"run": ULID, "argv": [...], "net": "none"|"host", "timeout_s": N, "term": TERM,
 *    "binds": [{"from": STATE/mnt/..., "to": /mnt/data/1, "read_only": bool}]}
 */
#define SANDBOX_ARGS_MAX 4096

struct sandbox_args {
    const char *
        argv[SANDBOX_ARGS_MAX]; /* ends in NULL; texts belong to the specification or are constant */
    size_t count;
    size_t
        command; /* where "--" and the command begin: what stands before goes to bubblewrap by descriptor, because its
                     * command line can be read inside */
    char status_fd[12], passwd_fd[12], group_fd[12];
};

/* Descriptors that the child of the launcher has for bubblewrap. */
struct sandbox_fds {
    int status, passwd, group;
};

/* `mounts` is STATE/mnt: only what lies there may be bound. ERR_INVAL names what is wrong. */
int gateway_sandbox_args(const json_t *spec, const char *mounts, const struct sandbox_fds *fds,
                         struct sandbox_args *out, struct err *err) MUST_CHECK;

/* Whether a place inside the sandbox may hold a volume: absolute, in normal form, not a part of the system. */
bool gateway_sandbox_place_ok(const char *path);

#endif
