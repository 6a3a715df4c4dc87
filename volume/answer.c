#include "volume/service_impl.h"

/* Answers of changes, recorded in their transaction: a request that the kernel sends again is answered from there (INV-13). */

int
answer_record(struct index_tx *tx, const struct volume_ctx *ctx, const struct volume_attr *attr,
              struct err *err)
{
    static const struct volume_attr none;
    if (ctx->connection == 0 || ctx->unique == 0)
        return 0;
    return index_answer_put(tx, ctx->connection, ctx->slot, ctx->unique,
                            attr == NULL ? &none : attr, sizeof(none), err);
}

bool
answer_replay(struct index_tx *tx, const struct volume_ctx *ctx, struct volume_attr *attr)
{
    struct volume_attr stored;
    size_t len = 0;
    struct err ignored = ERR_INIT;
    if (!ctx->resent || ctx->connection == 0 || ctx->unique == 0)
        return false;
    if (index_answer_get(tx, ctx->connection, ctx->unique, &stored, sizeof(stored), &len,
                         &ignored) != 0 ||
        len != sizeof(stored))
        return false;
    if (attr != NULL) {
        *attr = stored;
        attr->fresh_ns = 0;
    }
    if (ctx->replayed != NULL)
        *ctx->replayed = true;
    return true;
}

struct waits_call {
    const struct volume_ctx *ctx;
    bool found;
};

static int
waits_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct waits_call *call = arg;
    struct volume_ctx quiet = *call->ctx;
    (void)err;
    quiet.replayed = NULL;
    call->found = answer_replay(tx, &quiet, NULL);
    return 0;
}

bool
answer_waits(struct volume_service *service, const struct volume_ctx *ctx)
{
    struct waits_call call = { .ctx = ctx };
    struct err ignored = ERR_INIT;
    return ctx->resent && index_read(service->index, waits_tx, &call, &ignored) == 0 && call.found;
}
