#include "mount/wire.h"

#include "tests/fuzz/fuzz.h"

/* A raw request of the kernel, or what a takeover hands over as one. */
int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct wire_header header;
    if (wire_header(data, size, &header)) {
        HOLDS(size >= 40 && header.unique >> 63 == 0); /* sizeof(struct fuse_in_header) */
        (void)wire_is_init(&header);
    }
    return 0;
}
