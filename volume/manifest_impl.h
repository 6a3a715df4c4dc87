#ifndef VOLUME_MANIFEST_IMPL_H
#define VOLUME_MANIFEST_IMPL_H

#include "volume/past.h"

/*
 * manifest.c: a snapshot's manifest (docs/format/bucket.md), the only includer of zstd.h. Lines of JSON, compressed, written to `fd` from
 * its start; *size is what was written.
 */
struct manifest_head {
    const char *volume, *name;
};
int manifest_write(const struct volume_past *past, const struct manifest_head *head, int fd,
                   uint64_t *size, struct err *err) MUST_CHECK;

#endif
