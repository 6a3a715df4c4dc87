#ifndef SUPPORT_FILL_H
#define SUPPORT_FILL_H

#include "cache/cache.h"

/* Whole blocks at once. */
static inline int
fill_blocks(struct cache_file *file, uint64_t off, const void *data, size_t len, struct err *err)
{
    struct cache_fill fill = { .file = file, .off = off, .end = off + len };
    int rc = cache_fill_bytes(&fill, data, len, err);
    cache_fill_end(&fill);
    return rc;
}

#endif
