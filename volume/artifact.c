#include "volume/artifact.h"

#include <string.h>

#include "base/scope.h"
#include "base/text.h"
#include "base/ulid.h"
#include "volume/service_impl.h"

/* Frozen copies for sharing. */

#define TRIES 5
#define REQUEST (60 * NS_PER_S)

struct source {
    int64_t id;
    struct index_node node;
};

static int
node_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct source *source = arg;
    return index_node_get(tx, source->id, &source->node, err);
}

/* The file's row, once the bucket has its bytes. */
static int
find_synced(struct volume_service *service, const struct volume_ctx *ctx, int64_t volume,
            const char *path, struct source *out, struct err *err)
{
    struct volume_attr attr;
    struct volume_barrier barrier;
    for (unsigned i = 0; i < TRIES; i++) {
        if (volume_resolve(service, ctx, volume, path, &attr, err) != 0)
            return -1;
        if (attr.kind != INDEX_FILE)
            return err_set(err, attr.kind == INDEX_DIR ? ERR_IS_DIR : ERR_UNSUPPORTED,
                           "'%s' is not a plain file", path);
        if (attr.writing)
            return err_set(err, ERR_BUSY, "'%s' is being written: try again when it is closed",
                           path);
        out->id = attr.node;
        if (index_read(service->index, node_tx, out, err) != 0)
            return -1;
        if (attr.synced && out->node.etag[0] != '\0' && out->node.key[0] != '\0')
            return 0;
        if (volume_flush_quietly(service, volume, service_deadline(ctx), &barrier, err) != 0)
            return err_wrap(err, "'%s' is not in the bucket yet", path);
    }
    return err_set(err, ERR_AGAIN, "'%s' is being changed all the time, try again", path);
}

static int
make_key(const struct volume_ctx *ctx, const char *name, char out[LIMIT_KEY + 1], struct err *err)
{
    char id[ULID_SIZE];
    const char *run = ctx->run != NULL && ulid_valid(ctx->run) ? ctx->run : "shared";
    if (ulid_new(id, err) != 0)
        return -1;
    (void)snprintf(out, LIMIT_KEY + 1, ".holdfast/artifacts/%s/%s/%s", run, id, name);
    return 0;
}

static int
copy_node(struct volume_service *service, const struct volume_ctx *ctx,
          const struct index_node *node, struct volume_artifact *out, struct err *err)
{
    struct store_put_result result;
    struct store_copy copy = { .from = node->key,
                               .from_if_match = node->etag,
                               .to = out->key,
                               .from_size = node->size,
                               .deadline_ns = service_deadline(ctx) };
    if (store_copy(service->store, &copy, &result, err) != 0)
        return -1;
    text_set(out->version, node->version[0] != '\0' ? node->version : node->etag);
    out->size = node->size;
    return 0;
}

int /* NOLINTNEXTLINE(readability-function-size): the contract has seven parts */
volume_artifact_make(struct volume_service *service, const struct volume_ctx *ctx, int64_t volume,
                     const char *path, const char *name, struct volume_artifact *out,
                     struct err *err)
{
    struct source source;
    if (service->store->caps.server_side_copy == STORE_NO)
        return err_set(err, ERR_STORE_UNSUPPORTED,
                       "this store cannot copy, so nothing is published");
    if (make_key(ctx, name, out->key, err) != 0)
        return -1;
    for (unsigned i = 0; i < TRIES; i++) {
        struct err lost = ERR_INIT;
        if (find_synced(service, ctx, volume, path, &source, err) != 0)
            return -1;
        if (copy_node(service, ctx, &source.node, out, &lost) == 0)
            return 0;
        /* Changed, or moved on in the bucket, since we looked. */
        if (lost.code != ERR_CONFLICT && lost.code != ERR_NOT_FOUND)
            return err_set(err, lost.code, "'%s' cannot be copied: %s", path, lost.msg);
    }
    return err_set(err, ERR_AGAIN, "'%s' is being changed all the time, try again", path);
}

bool
volume_artifact_presigns(struct volume_service *service)
{
    return service->store->caps.presign == STORE_YES;
}

int
volume_artifact_presign(struct volume_service *service, const struct volume_artifact_url *want,
                        struct buf *url, struct err *err)
{
    struct store_presign request = { .method = "GET",
                                     .key = want->key,
                                     .expires_s = want->expires_s,
                                     .response_content_type = want->type,
                                     .response_content_disposition = want->disposition };
    return store_presign(service->store, &request, url, err);
}

struct reading {
    char *out;
    size_t room, got;
};

static int
take(void *arg, const void *data, size_t len, struct err *err)
{
    struct reading *reading = arg;
    if (len > reading->room - reading->got)
        return err_set(err, ERR_STORE_BAD_ANSWER, "the store sent more than was asked for");
    memcpy(reading->out + reading->got, data, len);
    reading->got += len;
    return 0;
}

ssize_t
volume_artifact_read(struct volume_service *service, const char *key, void *out, size_t len,
                     uint64_t off, struct err *err)
{
    struct reading reading = { .out = out, .room = len };
    struct store_object object;
    struct store_get get = { .key = key,
                             .off = off,
                             .len = len,
                             .sink = take,
                             .sink_arg = &reading,
                             .deadline_ns = clock_mono_ns() + REQUEST };
    store_object_init(&object);
    int rc = store_get(service->store, &get, &object, err);
    store_object_release(&object);
    return rc == 0 ? (ssize_t)reading.got : -1;
}

int
volume_artifact_remove(struct volume_service *service, const char *key, struct err *err)
{
    enum store_outcome outcome;
    struct err local = ERR_INIT;
    struct store_delete request = { .key = key, .deadline_ns = clock_mono_ns() + REQUEST };
    if (store_delete(service->store, &request, &outcome, &local) == 0 ||
        local.code == ERR_NOT_FOUND)
        return 0;
    return err_set(err, local.code, "%s", local.msg);
}
