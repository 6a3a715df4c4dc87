#ifndef VOLUME_PAST_IMPL_H
#define VOLUME_PAST_IMPL_H

#include "volume/past.h"
#include "volume/service_impl.h"

/* What past.c and past_tree.c share. */

struct chunk {
    struct chunk *next;
    size_t used, size;
    char data[];
};

struct volume_past {
    int64_t volume, at_ns;
    struct volume_past_entry *entry;
    size_t count, cap;
    struct chunk *chunks; /* where the texts lie */
    uint64_t files, bytes;
};

/* A copy that lives as long as `past`; NULL without memory. */
const char *past_text(struct volume_past *past, const char *text, struct err *err);
/* A plain file without texts; NULL without memory. */
struct volume_past_entry *past_add(struct volume_past *past, const char *path, struct err *err);
/* Everything was added: sorts, adds the folders that nobody has a row of, drops doubles, counts. */
int past_order(struct volume_past *past, struct err *err) MUST_CHECK;

/* past_found.c: fills `past` when its time is that of a snapshot that a rebuild has found; else *out is false. */
int past_found(struct volume_service *service, struct volume_past *past, bool *out,
               struct err *err) MUST_CHECK;
/* past_moved.c: for entries of it that are at their paths no more and in no copy that the manifest names: where else these bytes are.
 * May ask the store. */
int past_moved(struct volume_service *service, struct volume_past *past, int64_t root,
               struct err *err) MUST_CHECK;

/* past_read.c: the object that has the bytes of an entry at this moment. ERR_NOT_FOUND: none has them any more; ERR_AGAIN: they are on
 * their way from one to another. Not for folders. */
struct past_source {
    char key[LIMIT_KEY + 1], etag[LIMIT_ETAG];
    uint64_t size;
};
int past_source(struct volume_service *service, const struct volume_ctx *ctx,
                const struct volume_past_entry *entry, struct past_source *out,
                struct err *err) MUST_CHECK;

#endif
