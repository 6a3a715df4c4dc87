#ifndef VOLUME_MERGE_H
#define VOLUME_MERGE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

/* Texts compared and merged line by line, by libgit2. Pure; from any thread. Bytes that are no UTF-8 are kept as they are. */
struct merge_text {
    const char *name; /* in headings and marks */
    const void *data;
    size_t len;
};
/* False: a NUL is in it, or more than LIMIT_MERGE bytes. */
bool merge_is_text(const void *data, size_t len);
/* Appends what `mine` and `theirs` made of `base`. Where both changed the same lines `*clean` becomes false, and both stand there,
 * between lines of "<<<<<<< name", "=======" and ">>>>>>> name". */
int merge_three(const struct merge_text *base, const struct merge_text *mine,
                const struct merge_text *theirs, struct buf *out, bool *clean,
                struct err *err) MUST_CHECK;
/* Appends a unified diff with three lines around each change; nothing when they are equal. */
int merge_diff(const struct merge_text *from, const struct merge_text *to, struct buf *out,
               struct err *err) MUST_CHECK;

#endif
