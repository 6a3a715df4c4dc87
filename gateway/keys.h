#ifndef GATEWAY_KEYS_H
#define GATEWAY_KEYS_H

#include <stdatomic.h>

#include "base/buf.h"
#include "base/err.h"

/*
 * The credential_process of the store's profile. The gateway is locked in and may not start programs; the launcher does it
 * for it. What is run is read from the profile files by whoever runs it: the gateway can only say "now".
 */

/* Before the working directory changes: paths of AWS_* become absolute. */
int gateway_keys_prepare(struct err *err) MUST_CHECK;

/* Runs the process of the profile and answers what it printed; ERR_STORE_DENIED with the last line of its standard error,
 * which also goes into the log. It has a minute. `watch_fd` (-1: none): the process is ended when nobody reads there any
 * more. Without a shell; the environment is this process's. */
int gateway_keys_run(int watch_fd, struct buf *out, struct err *err) MUST_CHECK;

/* In a child of the launcher: the same, with the answer written to `fd`. `environment` ends in NULL. */
_Noreturn void gateway_keys_serve(int fd, char **environment);

/* An s3_process_fn that asks the launcher; `control` points at the launcher's control socket. */
int gateway_keys_ask(void *control, const atomic_bool *cancel, struct buf *out,
                     struct err *err) MUST_CHECK;
/* An s3_process_fn for programs that are not locked in (`holdfast doctor` without a gateway). */
int gateway_keys_run_here(void *unused, const atomic_bool *cancel, struct buf *out,
                          struct err *err) MUST_CHECK;

/* Copies the environment but for the keys in it; freed never (the launcher's). NULL without memory. */
char **gateway_keys_environment(void);

#endif
