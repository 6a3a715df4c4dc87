#ifndef MOUNT_MOUNTER_H
#define MOUNT_MOUNTER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "mount/helper_proto.h"

/*
 * The gateway's end of the talk with holdfast-mounter. Thread safe: one request at a time. A helper that died or does not answer
 * within 30 s is given up: every further call is ERR_INTERNAL. mounter_spawn() and mounter_connect() are in mount.h.
 */
struct mounter;

/* Takes `socket`, also on failure. `pid` (0: none) is reaped by mounter_free(). */
struct mounter *mounter_new(int socket, pid_t pid, struct err *err) MUST_CHECK;
/* Ends the talk. NULL is fine. */
void mounter_free(struct mounter *mounter);

struct mounter_mount {
    int64_t id;
    const char *path;
    int target; /* O_PATH descriptor of `path` (stays the caller's), -1: the helper makes it */
    bool read_only;
    const char *source;
};
/* `*fuse` is the caller's. */
int mounter_mount(struct mounter *mounter, const struct mounter_mount *args, int *fuse,
                  uint32_t *minor, struct err *err) MUST_CHECK;
/* `flags`: HELPER_DETACH, HELPER_KEEP_GUARD. ERR_BUSY. */
int mounter_umount(struct mounter *mounter, int64_t id, uint32_t flags, struct err *err) MUST_CHECK;
int mounter_abort(struct mounter *mounter, int64_t id, struct err *err) MUST_CHECK;
int mounter_forget(struct mounter *mounter, int64_t id, struct err *err) MUST_CHECK;
/* Takes a dead mount of ours away from `path`; `keep_guard`: it is mounted on again, and nobody writes in between (INV-11). */
int mounter_clear(struct mounter *mounter, const char *path, bool keep_guard,
                  struct err *err) MUST_CHECK;

/* What a takeover needs of a connection is kept with it: up to HELPER_RECORD bytes, and a descriptor (stays the caller's; -1: the
 * one kept before). */
int mounter_record(struct mounter *mounter, int64_t id, const void *record, size_t len, int kept,
                   struct err *err) MUST_CHECK;
/* The smallest known connection above `*id`; `*gone`: the kernel ended it. ERR_NOT_FOUND at the end. */
int mounter_next(struct mounter *mounter, int64_t *id, bool *gone, struct err *err) MUST_CHECK;
struct mounter_adopted {
    int fuse, kept; /* the caller's */
    uint32_t dev_minor;
    size_t record_len;
    uint8_t record[HELPER_RECORD];
};
int mounter_adopt(struct mounter *mounter, int64_t id, struct mounter_adopted *out,
                  struct err *err) MUST_CHECK;
/* An orderly end: the helper unmounts what is left and ends. Without it, it waits for the next gateway. */
void mounter_end(struct mounter *mounter);
/* Whether it still answers. */
bool mounter_lives(struct mounter *mounter);
/* Lends the kernel the file of `fd` (stays the caller's) for `node`; `*id` is what opens are answered with. */
struct mounter_backing {
    int64_t node, content;
    int32_t id;
};
int mounter_backing_open(struct mounter *mounter, int64_t id, int fd,
                         struct mounter_backing *backing, struct err *err) MUST_CHECK;
/* At most HELPER_CLOSE_MANY. */
int mounter_backing_close(struct mounter *mounter, int64_t id, const int32_t *backings,
                          size_t count, struct err *err) MUST_CHECK;
/* What is lent, for a takeover: the entry with the smallest id above backing->id. ERR_NOT_FOUND at the end. */
int mounter_backing_next(struct mounter *mounter, int64_t id, struct mounter_backing *backing,
                         struct err *err) MUST_CHECK;
/* Writes "12, 345" (may be "") for the message of an ERR_BUSY. */
void mounter_users(struct mounter *mounter, int64_t id, char *out, size_t size);

/* Pure: fills a request. ERR_NAME_TOO_LONG. */
int mounter_request(struct helper_request *request, enum helper_op op, int64_t id, const char *path,
                    const char *source, struct err *err) MUST_CHECK;

#endif
