#ifndef VOLUME_ASIDE_IMPL_H
#define VOLUME_ASIDE_IMPL_H

#include "volume/service_impl.h"

/* aside.c: bytes that lie below `.holdfast/`, read without the cache. Such objects never change. */
struct aside_object {
    const char *key, *etag; /* etag "": any */
    uint64_t size;
};
struct aside_part {
    void *out;
    size_t len;
    uint64_t off;
};
/* Short only at the end. ctx->nowait: ERR_AGAIN. */
ssize_t aside_read(struct volume_service *service, const struct volume_ctx *ctx,
                   const struct aside_object *object, const struct aside_part *want,
                   struct err *err) MUST_CHECK;

#endif
