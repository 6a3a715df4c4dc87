#ifndef VOLUME_EFFECT_IMPL_H
#define VOLUME_EFFECT_IMPL_H

#include "volume/service_impl.h"

/* What effect.c and theirs.c share. Everything runs inside an index transaction. */

/* effect.c */
/* 0 when `local` says no more than that a row is not there; else it becomes `err`. */
int effect_not_found(const struct err *local, struct err *err) MUST_CHECK;
/* What is believed of the bucket at this key. */
int effect_put_have(struct index_tx *tx, int64_t volume, const char *key,
                    const struct sync_have *have, struct err *err) MUST_CHECK;
/* The object at `key` ("": none) is no longer wanted. Work that comes of other work is as old: a barrier that waits for the one waits
 * for the other. */
int effect_discard(struct view_change *change, const char *key, struct err *err) MUST_CHECK;

/* theirs.c: SYNC_TAKE_THEIRS. */
int theirs_apply(struct view_change *change, struct err *err) MUST_CHECK;

#endif
