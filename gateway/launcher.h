#ifndef GATEWAY_LAUNCHER_H
#define GATEWAY_LAUNCHER_H

#include <sys/types.h>

#include "base/err.h"
#include "gateway/privilege.h"

/*
 * The launcher: a process without privilege, forked before the gateway locks itself in, that starts sandboxes (bubblewrap). Clients
 * speak to it over STATE/launcher.sock (SOCK_SEQPACKET): one packet with the specification (gateway/sandbox.h) and the descriptors
 * of stdin, stdout and stderr; one packet back: {"outcome": "exited"|"timeout"|"failed", "status": N, "message": TEXT}. When the
 * client goes away the sandbox ends. A sandbox outlives the gateway, not its client. For the gateway it also runs the process that
 * gives the store's keys (gateway/keys.h), from the first moment on.
 */
struct gateway_launcher {
    pid_t pid;
    int control; /* the listening socket goes over here; closing it ends the launcher */
};

#define LAUNCHER_SPEC_MAX (192u << 10)

/* Call before any thread exists. */
int gateway_launcher_start(const struct gateway_user *user, const char *state_dir,
                           struct gateway_launcher *out, struct err *err) MUST_CHECK;
/* Hands the listening socket over: from now on clients are served. */
int gateway_launcher_listen(struct gateway_launcher *launcher, int listen_fd,
                            struct err *err) MUST_CHECK;
void gateway_launcher_stop(struct gateway_launcher *launcher);

#endif
