#ifndef MOUNT_SESSION_RECORD_H
#define MOUNT_SESSION_RECORD_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/*
 * What the mounter keeps of a connection besides its descriptors (docs/platform.md section 1, rule 1): the raw INIT request, and what
 * the first gateway answered to it. The kernel goes by that answer for as long as the connection lives, whatever a later build
 * would like better. Pure.
 */
#define SESSION_INIT_MAX 512u
#define SESSION_UUID_SIZE 64u

struct session_wishes {
    uint64_t want; /* FUSE_CAP_* */
    uint32_t max_write, max_background, congestion, time_gran, stack_depth;
    uint32_t unused;
};
struct session_record {
    char magic[8];
    char index_uuid[SESSION_UUID_SIZE]; /* node ids mean something with this index only */
    int64_t root;                       /* the mounted folder: it may have moved since */
    struct session_wishes wishes;
    uint32_t init_len;
    uint32_t unused;
    uint8_t init[SESSION_INIT_MAX];
};

/* ERR_NEWER_FORMAT: made by a build that lays it out otherwise. */
int session_record_read(const void *data, size_t len, struct session_record *out,
                        struct err *err) MUST_CHECK;
void session_record_begin(struct session_record *record);

#endif
