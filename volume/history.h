#ifndef VOLUME_HISTORY_H
#define VOLUME_HISTORY_H

#include "volume/volume.h"

/*
 * Versions of files, present and past, and the way back to them (docs/mechanisms.md section 5). A version that is replaced or
 * removed is copied inside the bucket first; a copy is named by its id, a ULID of the moment when the version went. What a
 * program in a mount replaced before the bucket had it left nothing.
 */
struct volume_version {
    char id[ULID_SIZE];        /* of the copy; "": the present version */
    char version[LIMIT_ETAG];  /* its id, or the ETag of a foreign one */
    char base[ULID_SIZE];      /* what it was made from, "" unknown or nothing */
    char path[LIMIT_PATH + 1]; /* of the file, when the version went */
    char sha256[SHA256_HEX];   /* "" unknown */
    uint64_t size;
    int64_t made_ns;         /* 0: unknown */
    char actor[64], run[64]; /* who made it */
    bool present, synced;
    int64_t gone_ns;  /* of a copy: */
    char gone_op[16]; /* "write", "replace", "delete", "move", "foreign" */
    char gone_actor[64], gone_run[64];
};
typedef int volume_version_fn(void *arg, const struct volume_version *version,
                              struct err *err); /* > 0: stop */

/* The versions of a path and of the file that is there now, newest first, at most `limit` (0: 1,000). Nothing there and nothing
 * kept is ERR_NOT_FOUND. */
struct volume_history_want {
    int64_t volume;
    const char *path;
    unsigned limit;
    const char *within; /* only versions of when the file lay below this folder; NULL: all */
};
int volume_history_each(struct volume_service *service, const struct volume_ctx *ctx,
                        const struct volume_history_want *want, volume_version_fn *fn, void *arg,
                        struct err *err) MUST_CHECK;
/* `which`: the id of a version or of a copy, a foreign ETag, or the beginning of one of them that only one has (8 characters). */
int volume_history_find(struct volume_service *service, const struct volume_ctx *ctx,
                        const struct volume_history_want *want, const char *which,
                        struct volume_version *out, struct err *err) MUST_CHECK;
/* The version that the path had at that time (wall); ERR_NOT_FOUND: none, or not known any more. */
int volume_history_at(struct volume_service *service, const struct volume_ctx *ctx,
                      const struct volume_history_want *want, int64_t at_ns,
                      struct volume_version *out, struct err *err) MUST_CHECK;
/* Bytes of a copy: how many there are (`out` NULL), or some of them, short only at their end. Waits for the store (ctx->nowait:
 * ERR_AGAIN). */
ssize_t volume_history_read(struct volume_service *service, const struct volume_ctx *ctx,
                            const char *id, void *out, size_t len, uint64_t off,
                            struct err *err) MUST_CHECK;
/* The last version of each file below `prefix` ("": the volume) that is no more, by path. want->path: the prefix. */
int volume_trash_each(struct volume_service *service, const struct volume_ctx *ctx,
                      const struct volume_history_want *want, volume_version_fn *fn, void *arg,
                      struct err *err) MUST_CHECK;

/* What a volume keeps of what was replaced or removed (0: all volumes). Looks at each row. */
struct volume_history_kept {
    uint64_t versions, bytes;
};
int volume_history_usage(struct volume_service *service, int64_t volume,
                         struct volume_history_kept *out, struct err *err) MUST_CHECK;

/* ---- back ---- */
enum volume_restore_action {
    VOLUME_RESTORE_WRITE,  /* the file gets the bytes of `version` */
    VOLUME_RESTORE_CREATE, /* the same, and it was not there */
    VOLUME_RESTORE_REMOVE,
    VOLUME_RESTORE_RENAME, /* `path` to `to` */
    VOLUME_RESTORE_MKDIR,
    VOLUME_RESTORE_RMDIR,
    VOLUME_RESTORE_SKIP, /* left as it is: `why` */
};
struct volume_restored {
    enum volume_restore_action action;
    bool failed; /* it was tried: `why` */
    const char *path, *to, *version, *why;
    uint64_t size;
};
typedef int volume_restored_fn(void *arg, const struct volume_restored *what, struct err *err);
struct volume_restore {
    int64_t volume;
    const char *path;    /* of a file or folder, "": the whole volume */
    const char *version; /* of a file: as volume_history_find(); NULL: what was there at `at_ns` */
    int64_t at_ns; /* 0: the last version before the present one; of what was removed: the last one */
    const char *run;        /* volume_undo() */
    const char *within;     /* ERR_DENIED when a step leads out of this folder; NULL: none does */
    bool dry_run;           /* tells, and does nothing */
    volume_restored_fn *fn; /* each step, when it is done; may be NULL */
    void *arg;
};
struct volume_restore_result {
    char run[64]; /* under which it was done: undo it by that */
    uint64_t done, skipped, failed;
};
/* Back to an older version. Each step names what it replaces and saves it to the history first, so that a change meanwhile is left
 * alone (skipped) and all of it can be undone. ERR_NOT_FOUND: nothing of that is known. */
int volume_restore(struct volume_service *service, const struct volume_ctx *ctx,
                   const struct volume_restore *want, struct volume_restore_result *out,
                   struct err *err) MUST_CHECK;
/* Takes back what a run did, where its state is still the present one; the rest is told as skipped. Waits until what is unsynced
 * in the volume is in the bucket (at most until ctx's deadline: ERR_NOT_SYNCED, and nothing was done). ERR_NOT_FOUND: nothing
 * of such a run is known. */
int volume_undo(struct volume_service *service, const struct volume_ctx *ctx,
                const struct volume_restore *want, struct volume_restore_result *out,
                struct err *err) MUST_CHECK;

#endif
