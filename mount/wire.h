#ifndef MOUNT_WIRE_H
#define MOUNT_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * What we must read ourselves from a raw FUSE request, because libfuse does not tell it (linux/fuse.h, struct fuse_in_header).
 * Pure.
 */
struct wire_header {
    uint32_t opcode;
    uint64_t unique; /* bit 63 cleared */
    bool resent;     /* FUSE_UNIQUE_RESEND: sent again after FUSE_NOTIFY_RESEND (INV-13) */
};
bool wire_header(const void *data, size_t len, struct wire_header *out);
bool wire_is_init(const struct wire_header *header);

/* A notification without a body: the code stands where a reply has its error (fuse_notify()). */
#define WIRE_NOTICE_SIZE 16u
void wire_notice(int code, uint8_t out[WIRE_NOTICE_SIZE]);

#endif
