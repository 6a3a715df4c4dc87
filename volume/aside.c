#include "volume/aside_impl.h"

#include <string.h>

struct part {
    char *to;
    size_t len, have;
};

static int
take(void *arg, const void *data, size_t len, struct err *err)
{
    struct part *part = arg;
    if (len > part->len - part->have)
        return err_set(err, ERR_STORE_BAD_ANSWER, "more bytes came than were asked for");
    memcpy(part->to + part->have, data, len);
    part->have += len;
    return 0;
}

ssize_t
aside_read(struct volume_service *service, const struct volume_ctx *ctx,
           const struct aside_object *object, const struct aside_part *want, struct err *err)
{
    struct part part = { .to = want->out, .len = want->len };
    struct store_object got;
    if (want->off >= object->size)
        return 0;
    if (ctx->nowait)
        return err_set(err, ERR_AGAIN, "the bytes are in the bucket");
    if (part.len > object->size - want->off)
        part.len = object->size - want->off;
    if (part.len == 0)
        return 0;
    struct store_get get = { .key = object->key,
                             .if_match = object->etag[0] != '\0' ? object->etag : NULL,
                             .off = want->off,
                             .len = part.len,
                             .sink = take,
                             .sink_arg = &part,
                             .deadline_ns = service_deadline(ctx) };
    store_object_init(&got);
    int rc = store_get(service->store, &get, &got, err);
    store_object_release(&got);
    return rc == 0 ? (ssize_t)part.have : -1;
}
