#ifndef VERSIONING_RETENTION_H
#define VERSIONING_RETENTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Which versions that went are kept on. Pure. By age since they went, and by number of a path; what went within the last day stays
 * whatever the policy says, so that no policy takes away what an undo of today needs, and what a snapshot pins stays too.
 */
#define RETENTION_ALWAYS_NS (24ll * 3600 * 1000000000ll)

struct retention_policy {
    int64_t keep_ns;    /* 0: no limit of age */
    int64_t keep_count; /* of one path; 0: no limit */
    int64_t now_ns;
};
struct retention_version {
    int64_t gone_ns; /* times of a clock that was put forward count as now */
    bool pinned;
    bool drop; /* answered */
};
/* The versions of one path, newest first; answers how many go. */
size_t retention_plan(const struct retention_policy *policy, struct retention_version *version,
                      size_t count);

#endif
