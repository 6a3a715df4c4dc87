#ifndef VOLUME_FORK_H
#define VOLUME_FORK_H

#include "volume/volume.h"

/*
 * Forks: a new volume with the files of another one as it was. The store copies them one by one in the background, from where the
 * versions of then lie; until all are there nobody can use the new volume (volume_find() says so). A snapshot "fork-<name>" of the
 * parent holds what is still needed, and is the job: it and the volume's row come and go in one transaction, so a gateway that was
 * killed goes on where it was. The parent is never changed.
 */
struct volume_fork_args {
    int64_t parent;
    int64_t at_ns; /* 0: now */
    const char *name;
};
/* The name is taken and the work begun when this comes back. ERR_EXISTS; ERR_NOT_EMPTY: the bucket has objects below "<name>/". */
int volume_fork(struct volume_service *service, const struct volume_ctx *ctx,
                const struct volume_fork_args *args, struct err *err) MUST_CHECK;

struct volume_fork_state {
    char of[LIMIT_VOLUME_NAME + 1]; /* "": it is none, or done */
    int64_t at_ns;
    uint64_t files, copied; /* 0 while they are counted */
    char error[160];        /* why it does not go on: it tries again */
};
int volume_fork_state(struct volume_service *service, const char *name,
                      struct volume_fork_state *out, struct err *err) MUST_CHECK;

#endif
