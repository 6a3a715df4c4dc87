#include "mount/wire.h"

#include <assert.h>
#include <linux/fuse.h>
#include <string.h>

#define RESEND_BIT (1ull << 63) /* FUSE_UNIQUE_RESEND of newer headers */

bool
wire_header(const void *data, size_t len, struct wire_header *out)
{
    struct fuse_in_header header;
    if (len < sizeof(header))
        return false;
    memcpy(&header, data, sizeof(header));
    if (header.len != len)
        return false;
    out->opcode = header.opcode;
    out->unique = header.unique & ~RESEND_BIT;
    out->resent = (header.unique & RESEND_BIT) != 0;
    return true;
}

bool
wire_is_init(const struct wire_header *header)
{
    return header->opcode == FUSE_INIT;
}

void
wire_notice(int code, uint8_t out[WIRE_NOTICE_SIZE])
{
    struct fuse_out_header header = { .len = WIRE_NOTICE_SIZE, .error = code };
    static_assert(sizeof(header) == WIRE_NOTICE_SIZE, "struct fuse_out_header");
    memcpy(out, &header, sizeof(header));
}
