#ifndef GATEWAY_FSCK_H
#define GATEWAY_FSCK_H

#include "base/json.h"
#include "volume/fsck.h"

/* A check of index, cache and bucket as the document that the API and the command line give (docs/interface.md). */
struct gateway_fsck {
    const char *volume; /* NULL: all */
    bool full, repair;
    void (*progress)(void *arg, const char *what, uint64_t done); /* may be NULL */
    void *progress_arg;
};
int gateway_fsck_run(struct volume_service *service, const struct gateway_fsck *call, json_t **out,
                     struct err *err) MUST_CHECK;

#endif
