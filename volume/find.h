#ifndef VOLUME_FIND_H
#define VOLUME_FIND_H

#include "volume/volume.h"

/*
 * Paths that a glob (base/glob.h) means, from the index: the store is not asked, unless folders that nobody has listed yet are to
 * be listed first. In order of paths: folder by folder, names bytewise, a folder before what lies in it.
 */
enum volume_find_kinds { VOLUME_FIND_FILES = 1, VOLUME_FIND_DIRS = 2 };
/* `path`: inside the volume. Without locks, outside transactions. */
typedef int volume_find_fn(void *arg, const char *path, const struct volume_attr *attr,
                           struct err *err);
struct volume_find {
    int64_t volume;
    const char *folder; /* in normal form, "": the volume */
    const char *glob;   /* of paths below it */
    unsigned kinds;     /* enum volume_find_kinds: all that is no folder, folders; 0: both */
    int64_t newer_ns;   /* changed after this time (mtime), 0: any time */
    uint64_t larger;    /* more bytes than this, when `by_size` */
    bool by_size;
    const char *after; /* path below the folder, as `last` of the page before; "": from the start */
    unsigned limit;
    bool list;           /* folders that nobody has listed yet are listed first */
    int64_t patience_ns; /* so long it looks, then it tells how to go on; 0: 5 s */
    volume_find_fn *fn;  /* > 0: not this one, and no more: the next page begins with it */
    void *arg;
};
struct volume_find_result {
    bool more;                 /* it did not come to the end: go on behind `last` */
    char last[LIMIT_PATH + 1]; /* below the folder; may be a path that was looked at, not given */
    uint64_t names;            /* looked at */
    uint64_t
        unlisted; /* folders whose content in the bucket nobody has seen: there may be more in them */
    char unlisted_path[LIMIT_PATH + 1]; /* one of them, inside the volume */
};
/* ERR_NOT_FOUND, ERR_NOT_DIR: the folder; ERR_INVAL, ERR_TOO_LARGE: the glob. */
int volume_find_paths(struct volume_service *service, const struct volume_ctx *ctx,
                      const struct volume_find *want, struct volume_find_result *out,
                      struct err *err) MUST_CHECK;

#endif
