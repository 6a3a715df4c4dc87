#ifndef GATEWAY_OFFLINE_H
#define GATEWAY_OFFLINE_H

#include <limits.h>

#include "base/config.h"
#include "cache/cache.h"
#include "s3/store.h"

/*
 * A state directory and its store for a command that works without a gateway (`rebuild`, `fsck`): as the user that the gateway would be,
 * so that what is written belongs to it, and with the lock of the directory.
 */
struct gateway_offline {
    char state[PATH_MAX];
    char store_url[PATH_MAX];
    char ca_file[PATH_MAX]; /* "" for none */
    int lock_fd;
    struct store *store;
    struct cache_limits cache;
};

/* Before any thread exists; gives up root's rights for good. ERR_BUSY: a gateway runs on the directory. */
int gateway_offline_open(const struct config *config, struct gateway_offline *out,
                         struct err *err) MUST_CHECK;
void gateway_offline_close(struct gateway_offline *offline);

#endif
