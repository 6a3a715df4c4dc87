#ifndef VOLUME_WALK_IMPL_H
#define VOLUME_WALK_IMPL_H

#include "base/glob.h"
#include "base/scope.h"
#include "volume/service_impl.h"

/*
 * A tree gone through in order of its paths (folder by folder, names bytewise, a folder before what lies in it), from the index
 * alone. What a glob cannot mean is not entered. Behind any path the walk can begin anew, whatever has changed meanwhile: what was
 * there all the time comes once.
 */
struct walk_frame;
struct walk {
    struct volume_service *service;
    const struct glob *glob;
    bool files, folders; /* wanted */
    bool list;           /* stop at folders that nobody has listed yet */
    struct walk_frame *frames;
    size_t depth, cap;
    char path[LIMIT_PATH + 1]; /* looked at last, below the folder where it began */
    size_t path_len;
    uint64_t names;    /* looked at so far */
    uint64_t unlisted; /* folders on the way whose side of the bucket nobody has seen */
    char unlisted_path[LIMIT_PATH + 1]; /* one of them */
    int64_t to_list;                    /* stopped at this one: list it, then go on */
};

/* `folder`: a node; `after`: the last path that was given, below it, or "". */
int walk_open(struct walk *walk, int64_t folder, const char *after, struct err *err) MUST_CHECK;
void walk_close(struct walk *walk);

/* Called in the read transaction with each path that is wanted, which is walk->path; > 0: stop behind this one. */
typedef int walk_fn(void *arg, struct index_tx *tx, int64_t node, struct err *err);
/* 0: at its end; 1: stopped by `fn`, or after `most` names, or at a folder to list. Inside index_read(). */
int walk_some(struct walk *walk, struct index_tx *tx, unsigned most, walk_fn *fn, void *arg,
              struct err *err) MUST_CHECK;
/* Lists the folder that it stopped at. One that cannot be listed counts as unlisted. */
int walk_list(struct walk *walk, const struct volume_ctx *ctx, struct err *err) MUST_CHECK;

#endif
