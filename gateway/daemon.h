#ifndef GATEWAY_DAEMON_H
#define GATEWAY_DAEMON_H

#include "base/config.h"

/*
 * `holdfast serve`: runs until SIGTERM or SIGINT, then answers 0. The order at start: the mounter and the launcher are forked, the
 * state directory is taken over, privilege is given up, and only then is anything opened that parses what others wrote.
 * `program` is the path of this executable, beside which holdfast-mounter is looked for.
 */
int gateway_daemon_run(const struct config *config, const char *program,
                       struct err *err) MUST_CHECK;

/* The store's URL: the setting, else file://STATE/bucket. */
int gateway_daemon_store_url(const struct config *config, const char *state_dir, char *out,
                             size_t size, struct err *err) MUST_CHECK;

#endif
