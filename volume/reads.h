#ifndef VOLUME_READS_H
#define VOLUME_READS_H

#include "volume/volume.h"

/*
 * The guard against stale reads: which versions a run has read, and whether somebody else changed one since. What the run
 * writes then is marked, or refused, as the volume that it writes to says. A file counts as read when it is opened for it,
 * in a mount or over HTTP, in a volume whose guard is not off; opening it again is reading it again. What a run changes
 * itself is never stale to it.
 *
 * The inputs are in memory, so many of a run and so many in all. When one has no room, or the gateway was started anew, the run
 * is not complete from there on, and every version that it writes is marked so: "nothing changed" is never said of a run whose
 * inputs are not all known.
 */
#define VOLUME_READS_OF_RUN 8192u
#define VOLUME_READS_IN_ALL 65536u
#define VOLUME_READS_RUNS 1024u

struct volume_run_reads {
    bool known;               /* the gateway has heard of the run since its start */
    bool complete;            /* all its inputs are remembered */
    uint64_t inputs, changed; /* remembered, and those that others changed since they were read */
    uint64_t marked,
        refused; /* versions written, and changes refused, because of that; since the start */
};
void volume_reads_of(struct volume_service *service, const char *run, struct volume_run_reads *out);

/* What is told of a version: ERR_NOT_FOUND when its inputs were as its writer had read them. */
int volume_reads_mark(struct volume_service *service, const char *version, struct index_stale *out,
                      struct err *err) MUST_CHECK;

#endif
