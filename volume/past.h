#ifndef VOLUME_PAST_H
#define VOLUME_PAST_H

#include "volume/history.h"

/*
 * A volume as it was at a time: which files lay where, and where their bytes are now. Made from the index, in memory, for one
 * moment (folders that nobody has listed yet are listed); nothing of it changes afterwards. What was replaced before the bucket had it is not in it, nor is what was removed longer ago than the
 * history is kept. Folders are there by what lies in them, and those that exist still.
 */
struct volume_past;
struct volume_past_entry {
    int64_t volume;
    const char *path; /* "" is the volume itself */
    enum index_kind kind;
    uint64_t size;
    int64_t made_ns;        /* of the version */
    const char *version;    /* "" for folders */
    const char *sha256;     /* "" unknown */
    const char *copy;       /* its copy in the history; "": it lies at a file's key */
    const char *key, *etag; /* then: which, when `past` was made; "": the newest bytes of `node` */
    int64_t node;           /* 0: unknown */
    uint32_t mode; /* with file type; 0, as the time: nobody has looked yet (volume_past_look()) */
    uint32_t uid, gid;
    int64_t mtime_ns;
};
int volume_past_open(struct volume_service *service, int64_t volume, int64_t at_ns,
                     struct volume_past **out, struct err *err) MUST_CHECK;
void volume_past_close(struct volume_past *past); /* NULL is fine */
int64_t volume_past_time(const struct volume_past *past);
/* Files, and their bytes. */
void volume_past_usage(const struct volume_past *past, uint64_t *files, uint64_t *bytes);
/* NULL: there was nothing. Lives as long as `past`. */
const struct volume_past_entry *volume_past_find(const struct volume_past *past, const char *path);
/* In order of paths, a folder before what lies in it: the one at `*at`, which moves on; NULL at the end. */
const struct volume_past_entry *volume_past_next(const struct volume_past *past, size_t *at);
/* The same of one folder's own entries; `*at` 0 to begin. */
const struct volume_past_entry *volume_past_child(const struct volume_past *past, const char *dir,
                                                  size_t *at);
/* What differs below `prefix` ("": everywhere): folders that are no more, files that moved, that are others or no more, new files, and
 * new folders, the deepest first. */
enum volume_past_change {
    VOLUME_PAST_REMOVED, /* `now` NULL */
    VOLUME_PAST_ADDED,   /* `then` NULL */
    VOLUME_PAST_CHANGED,
    VOLUME_PAST_MOVED, /* the same bytes under another name */
};
struct volume_past_difference {
    enum volume_past_change change;
    const struct volume_past_entry *then, *now;
};
typedef int volume_past_diff_fn(void *arg, const struct volume_past_difference *what,
                                struct err *err);
int volume_past_diff(const struct volume_past *then, const struct volume_past *now,
                     const char *prefix, volume_past_diff_fn *fn, void *arg,
                     struct err *err) MUST_CHECK;
/* Whether mode, owner and time of an entry are known without asking the store. */
static inline bool
volume_past_looked(const struct volume_past_entry *entry)
{
    bool somewhere = entry->copy[0] != '\0' || entry->key[0] != '\0';
    return entry->kind == INDEX_DIR || !somewhere || (entry->mode != 0 && entry->mtime_ns != 0);
}
/* Mode, owner and time where nobody has looked yet; asks the store (ctx->nowait: ERR_AGAIN). `out` is a copy of `entry`. */
int volume_past_look(struct volume_service *service, const struct volume_ctx *ctx,
                     const struct volume_past_entry *entry, struct volume_past_entry *out,
                     struct err *err) MUST_CHECK;
/* Bytes; short only at the end. A version that was the present one when `past` was made is found wherever it went since. May wait for
 * the store (ctx->nowait: ERR_AGAIN). */
ssize_t volume_past_read(struct volume_service *service, const struct volume_ctx *ctx,
                         const struct volume_past_entry *entry, void *out, size_t len, uint64_t off,
                         struct err *err) MUST_CHECK;

#endif
