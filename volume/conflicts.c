#include <string.h>

#include "base/scope.h"
#include "volume/service_impl.h"

/* The bytes of a conflict's loser: in the cache, pinned, until the bucket has them. */

struct loser_call {
    const char *id;
    struct index_conflict row;
    struct index_content content;
    struct index_volume volume;
};

static int
loser_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct loser_call *call = arg;
    if (index_conflict_get(tx, call->id, &call->row, err) != 0 ||
        index_volume_get(tx, call->row.volume, &call->volume, err) != 0)
        return -1;
    return call->row.content == 0 ? 0
                                  : index_content_get(tx, call->row.content, &call->content, err);
}

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

static ssize_t
read_bucket(struct volume_service *service, const struct volume_ctx *ctx,
            const struct loser_call *call, const struct store_get *want, struct err *err)
{
    struct store_object object;
    char key[LIMIT_KEY + 1];
    struct store_get get = *want;
    struct part *part = want->sink_arg;
    if (ctx->nowait)
        return err_set(err, ERR_AGAIN, "the bytes are in the bucket");
    (void)snprintf(key, sizeof(key), CONFLICT_PREFIX "%s/%s", call->volume.name, call->id);
    get.key = key;
    get.deadline_ns = service_deadline(ctx);
    store_object_init(&object);
    int rc = store_head(service->store, key, get.deadline_ns, &object, err);
    uint64_t size = object.size;
    store_object_release(&object);
    if (rc != 0)
        return -1;
    if (part->to == NULL)
        return (ssize_t)size;
    if (get.off >= size)
        return 0;
    get.len = size - get.off < part->len ? size - get.off : part->len;
    store_object_init(&object);
    rc = store_get(service->store, &get, &object, err);
    store_object_release(&object);
    return rc == 0 ? (ssize_t)part->have : -1;
}

ssize_t /* NOLINTNEXTLINE(readability-function-size): the contract has seven parameters */
volume_conflict_read(struct volume_service *service, const struct volume_ctx *ctx, const char *id,
                     void *out, size_t len, uint64_t off, struct err *err)
{
    struct loser_call call = { .id = id };
    struct part part = { .to = out, .len = len };
    struct store_get want = { .off = off, .sink = take, .sink_arg = &part };
    if (index_read(service->index, loser_tx, &call, err) != 0)
        return -1;
    if (call.row.content == 0)
        return read_bucket(service, ctx, &call, &want, err);
    if (out == NULL)
        return (ssize_t)call.content.size;
    struct err gone = ERR_INIT;
    struct cache_file *file = cache_get(service->cache, call.row.content, &gone);
    if (file == NULL) /* synced a moment ago */
        return read_bucket(service, ctx, &call, &want, err);
    ssize_t got = cache_file_read(file, out, len, off, err);
    cache_put(file);
    return got;
}
