#ifndef MOUNT_CARRY_H
#define MOUNT_CARRY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/*
 * Memory of one mount that outlives the gateway: its descriptor lies with the mounter, beside the connection's. It holds what the
 * next gateway has to know of open files without a word in the index (docs/adr/0007), and counts what takeovers met.
 *
 * A gateway that is killed in the middle of a change leaves either the old or the new entry: `fh` is written last.
 */
#define CARRY_OPENS (1u << 20)
#define CARRY_OPCODES 64u

struct carry_open {
    _Atomic uint64_t fh; /* 0: free */
    int64_t node;
    uint64_t unique; /* of the OPEN or CREATE, which may be sent again */
    uint32_t flags;  /* enum handle_flags */
    uint32_t generation;
    int32_t backing; /* what it was answered with (mount/backing.h) */
    uint32_t answer;
};

struct carry {
    char magic[8];
    uint32_t incarnation; /* gateways that served this connection before */
    uint32_t opens_used;  /* no entry at or above it was ever used */
    _Atomic uint64_t met; /* takeovers that met a request under way */
    _Atomic uint64_t
        resent[CARRY_OPCODES]; /* answered when they were sent again, by FUSE opcode; 0: all others */
    _Atomic uint64_t replayed[CARRY_OPCODES]; /* of these: done already by a gateway before */
    struct carry_open opens[];
};

/* A new one, mapped; `*fd_out` is the caller's. */
struct carry *carry_new(int *fd_out, struct err *err) MUST_CHECK;
/* The one of an earlier gateway. ERR_NEWER_FORMAT when it was made by another build that lays it out otherwise. */
struct carry *carry_map(int fd, struct err *err) MUST_CHECK;
/* NULL is fine. */
void carry_unmap(struct carry *carry);

void carry_count(struct carry *carry, uint32_t opcode, bool replayed);

#endif
