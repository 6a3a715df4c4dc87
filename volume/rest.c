#include "volume/service_impl.h"

/*
 * What mounts change rests for a moment before it goes to the bucket: a file that is saved again, renamed, given its mode or
 * its time, or removed within that time costs one request or none, and uploads do not compete with the program that is still
 * making files. Whoever waits for the bucket (a barrier, an umount, a write over HTTP) ends the rest of all work that is there
 * and suspends it for what comes meanwhile; work of the engine's own, of HTTP and of the command line never rests.
 */

bool
rest_is_short(const struct volume_service *service)
{
    struct cache_usage usage;
    cache_usage(service->cache, &usage);
    uint64_t room = usage.free_bytes > usage.floor_bytes ? usage.free_bytes - usage.floor_bytes : 0;
    return usage.pinned_bytes > usage.max_bytes / 4 || usage.pinned_bytes > room;
}

static int64_t
rest_ns(const struct volume_service *service, const struct volume_ctx *ctx)
{
    if (service->sync_rest_ns == 0 || atomic_load(&service->hurried) > 0)
        return 0;
    if (ctx != NULL ? ctx->connection == 0 : rest_is_short(service))
        return 0;
    return service->sync_rest_ns;
}

void
rest_begin(const struct volume_service *service, const struct volume_ctx *ctx, struct index_tx *tx)
{
    index_tx_rest(tx, rest_ns(service, ctx));
}

bool
rest_holds(const struct index_intent *row)
{
    int64_t now = clock_wall_ns();
    return row->attempt.op == SYNC_OP_NONE && row->tries == 0 && row->not_before_ns > now &&
           row->not_before_ns <= now + REST_MAX;
}

void
rest_kick(struct volume_service *service, const struct volume_ctx *ctx)
{
    int64_t rest = rest_ns(service, ctx);
    if (rest == 0)
        sync_kick(service);
    else
        sync_kick_at(service, clock_mono_ns() + rest);
}

bool
rest_is_over(const struct volume_service *service, int64_t since_ns)
{
    return since_ns != 0 && clock_wall_ns() - since_ns >= SYNC_RESTS * service->sync_rest_ns;
}

void
rest_suspend(struct volume_service *service)
{
    atomic_fetch_add(&service->hurried, 1);
    sync_hurry(service);
}

void
rest_resume(struct volume_service *service)
{
    atomic_fetch_sub(&service->hurried, 1);
}
