#ifndef VOLUME_LOSER_META_H
#define VOLUME_LOSER_META_H

#include "s3/store.h"
#include "versioning/index.h"

/*
 * What the object of a conflict's loser says about the conflict, beside what every object says about its bytes, so that the
 * bucket alone is enough to list conflicts (INV-6; docs/format/bucket.md). Pure.
 */

/* Adds to the metadata of `row`'s object: path, reason, what it lost to, who. A path that has no room is shortened. */
int loser_meta_add(const struct index_conflict *row, struct meta *out, struct err *err) MUST_CHECK;
/* Fills the same members of `out`, and base_version, mine_version and run. What the object does not tell stays "". */
int loser_meta_read(const struct meta *meta, struct index_conflict *out,
                    struct err *err) MUST_CHECK;

#endif
