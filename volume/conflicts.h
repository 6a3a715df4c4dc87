#ifndef VOLUME_CONFLICTS_H
#define VOLUME_CONFLICTS_H

#include "volume/volume.h"

/*
 * Conflicts looked at and resolved. Each has four sides: `mine`, the loser's bytes; `theirs`, what lies at the path now; `base`,
 * what both began with, where it is still known; `merged`, the three put together line by line. The calls may wait for the store.
 */
enum volume_side { VOLUME_MINE, VOLUME_THEIRS, VOLUME_BASE, VOLUME_MERGED };
/* "mine", "theirs", "base", "merged"; false for any other word. */
bool volume_side_parse(const char *word, enum volume_side *out);
const char *volume_side_word(enum volume_side side);

/* What merging line by line would give. */
enum volume_merge {
    VOLUME_MERGE_CLEAN,     /* no line was changed by both */
    VOLUME_MERGE_OVERLAPS,  /* some were: `merged` has both there, between marks */
    VOLUME_MERGE_NO_BASE,   /* what both began with is not known any more */
    VOLUME_MERGE_NO_TEXT,   /* one of them holds a NUL */
    VOLUME_MERGE_TOO_LARGE, /* one has more than LIMIT_MERGE bytes */
    VOLUME_MERGE_ABSENT,    /* no file lies at the path */
};
const char *volume_merge_word(enum volume_merge merge);

struct volume_conflict {
    struct index_conflict row;
    char volume[LIMIT_VOLUME_NAME + 1];
    uint64_t size;        /* of mine */
    bool present;         /* a file lies at the path now, and this is */
    char now[LIMIT_ETAG]; /* its version */
    uint64_t now_size;
};
/* ERR_NOT_FOUND: there is none, or it was resolved. */
int volume_conflict_find(struct volume_service *service, const struct volume_ctx *ctx,
                         const char *id, struct volume_conflict *out, struct err *err) MUST_CHECK;
/* Whether the base's bytes may be had; asks only the index. */
int volume_conflict_has_base(struct volume_service *service, const char *id, bool *out,
                             struct err *err) MUST_CHECK;
/* One side as a whole. ERR_TOO_LARGE beyond LIMIT_MERGE bytes, ERR_NOT_FOUND for theirs or base where there is none, ERR_NO_MERGE for
 * merged likewise. */
int volume_conflict_side(struct volume_service *service, const struct volume_ctx *ctx,
                         const char *id, enum volume_side side, struct buf *out,
                         struct err *err) MUST_CHECK;
/* Whether, and how, the sides can be merged. */
struct volume_merged {
    enum volume_merge how;
    char theirs[LIMIT_ETAG]; /* CLEAN, OVERLAPS: the version of theirs that is in it */
    struct buf *
        text; /* set by the caller, born with VOLUME_MERGED_MAX; with those two it gets the result */
};
#define VOLUME_MERGED_MAX (3 * (size_t)LIMIT_MERGE + 4096)
int volume_conflict_merge(struct volume_service *service, const struct volume_ctx *ctx,
                          const char *id, struct volume_merged *out, struct err *err) MUST_CHECK;
/* A unified diff from one side to another, headed by their names. Where nothing lies at the path, theirs is empty. ERR_UNSUPPORTED:
 * no text. */
struct volume_sides {
    enum volume_side from, to;
};
int volume_conflict_diff(struct volume_service *service, const struct volume_ctx *ctx,
                         const char *id, const struct volume_sides *sides, struct buf *out,
                         struct err *err) MUST_CHECK;

/* ---- resolved ---- */

enum volume_keep {
    VOLUME_KEEP_MINE,   /* the loser's bytes become the path's next version */
    VOLUME_KEEP_THEIRS, /* nothing changes at the path */
    VOLUME_KEEP_BOTH,   /* the loser's bytes become a file beside it, "name (conflict abcd).ext" */
    VOLUME_KEEP_MERGE,  /* the merged text becomes the path's next version; only when it is clean */
};
bool volume_keep_parse(const char *word, enum volume_keep *out);

struct volume_resolve {
    const char *id;
    enum volume_keep keep;
    /* VOLUME_KEEP_MINE: what the caller saw at the path. PRECONDITION_NONE: what the conflict was lost to. */
    struct precondition pre;
};
struct volume_resolved {
    char volume[LIMIT_VOLUME_NAME + 1];
    char path[LIMIT_PATH + 1]; /* of the file that has the bytes */
    char version[LIMIT_ETAG];  /* and its version, "" when there is none */
    bool written;              /* false: these bytes were there already */
};
/*
 * Ends a conflict. The loser's object in the bucket goes only after the bytes that are kept are in the bucket, so an interrupted
 * call leaves the conflict as it was and can be made again: what it has done already is not done twice.
 *   ERR_CONFLICT   somebody changed the path meanwhile: nothing was changed, the conflict stays, `now` tells what is there
 *   ERR_NO_MERGE   the two cannot be merged by themselves
 *   ERR_BUSY       a program has the path open for writing
 *   ERR_NOT_SYNCED the bytes are staged and safe here; the conflict ends when the call is made again and the bucket has them
 */
int volume_conflict_resolve(struct volume_service *service, const struct volume_ctx *ctx,
                            const struct volume_resolve *how, struct volume_resolved *out,
                            struct err *err) MUST_CHECK;

#endif
