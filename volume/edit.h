#ifndef VOLUME_EDIT_H
#define VOLUME_EDIT_H

#include "volume/edits.h"
#include "volume/volume.h"

/* A text in a volume changed in places (edits.h), as one new version of the version that the caller has seen. Mode, owner, extended
 * attributes and line endings stay. */
struct volume_edit {
    int64_t volume;
    const char *path; /* in normal form */
    const char *base; /* the version that the edits are meant for */
    const struct edit *edits;
    size_t count;
    bool dry_run;     /* nothing is written */
    bool wait_synced; /* come back when the bucket has it, or at the deadline */
    struct buf *diff; /* gets a unified diff */
};
struct volume_edited {
    struct edits_result result; /* of a failure too */
    bool unchanged;             /* the text is as it was: nothing was written */
    bool cut;                   /* the diff was longer than the buffer takes: it is left out */
    struct volume_attr attr;    /* of the file now; after ERR_CONFLICT too, when it is there */
};
/*
 * ERR_UNSUPPORTED  the edits do not fit this text (result.reason), or it is none
 * ERR_TOO_LARGE    the file, or what becomes of it, has over EDITS_TEXT_MAX bytes
 * ERR_CONFLICT     the file has another version by now
 * ERR_BUSY         a program is writing it
 * What is safe here but not in the bucket in time is a success with attr.synced false.
 */
int volume_edit(struct volume_service *service, const struct volume_ctx *ctx,
                const struct volume_edit *want, struct volume_edited *out,
                struct err *err) MUST_CHECK;
/* A copy of a file as it is now, beside it or elsewhere in the volume; bytes, mode and time. `pre`: what lies at `to`. */
struct volume_copying {
    int64_t volume;
    const char *from, *to;
    const char *base; /* of `from`; NULL: any */
    struct precondition pre;
    bool wait_synced;
};
int volume_copy_file(struct volume_service *service, const struct volume_ctx *ctx,
                     const struct volume_copying *want, struct volume_attr *out, bool *created,
                     struct err *err) MUST_CHECK;

#endif
