#ifndef VOLUME_TIMED_IMPL_H
#define VOLUME_TIMED_IMPL_H

#include "volume/snapshot.h"

/*
 * timed.c: the thread that takes and removes snapshots by the rule of their volume (versioning/schedule.h). Each tick plans anew from
 * the rows, so it may be interrupted anywhere: what was taken is a row, what is removed goes as by hand.
 */
int timed_start(struct volume_service *service, struct err *err) MUST_CHECK;
void timed_stop(struct volume_service *service);
/* A rule has changed. */
void timed_kick(struct volume_service *service);
/* One tick at this time of the wall clock, for all volumes; what fails is in the log. */
void timed_run(struct volume_service *service, int64_t now_ns);

#endif
