#ifndef VOLUME_FORK_IMPL_H
#define VOLUME_FORK_IMPL_H

#include "volume/fork.h"
#include "volume/service_impl.h"

#define FORK_PREFIX "fork-"

int fork_start(struct volume_service *service, struct err *err) MUST_CHECK;
void fork_stop(struct volume_service *service);
void fork_release(struct volume_service *service);
/* One look at all volumes, for tests too; what fails is noted for volume_fork_state(). */
void fork_run(struct volume_service *service);

/* For who ends a volume or a snapshot. ERR_BUSY while a fork needs it. */
int fork_check_volume(struct index_tx *tx, const struct index_volume *volume,
                      struct err *err) MUST_CHECK;
int fork_check_snapshot(struct index_tx *tx, const struct index_snapshot *row,
                        struct err *err) MUST_CHECK;
/* The volume goes: its job too. */
int fork_forget(struct index_tx *tx, const struct index_volume *volume, struct err *err) MUST_CHECK;

#endif
