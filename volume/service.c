#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/parse.h"
#include "volume/audit_impl.h"
#include "volume/fork_impl.h"
#include "volume/listing_impl.h"
#include "volume/locks.h"
#include "volume/prune_impl.h"
#include "volume/reads_impl.h"
#include "volume/snapshot_impl.h"
#include "volume/timed_impl.h"
#include "volume/uploads.h"

int64_t
service_deadline(const struct volume_ctx *ctx)
{
    return ctx != NULL && ctx->deadline_ns != 0 ? ctx->deadline_ns
                                                : clock_mono_ns() + 30 * NS_PER_S;
}

struct store *
volume_service_store(struct volume_service *service)
{
    return service->store;
}

struct cache *
volume_service_cache(struct volume_service *service)
{
    return service->cache;
}

struct index *
volume_service_index(struct volume_service *service)
{
    return service->index;
}

static bool
means_away(const struct err *err)
{
    switch (err->code) {
    case ERR_STORE_AWAY:
    case ERR_STORE_TIMEOUT:
    case ERR_STORE_BAD_ANSWER:
    case ERR_STORE_DENIED:
    case ERR_STORE_NO_BUCKET:
    case ERR_WRONG_STORE:
        return true;
    default:
        return false;
    }
}

void
service_store_seen(struct volume_service *service, const struct err *err)
{
    bool ok = err == NULL || !means_away(err);
    pthread_mutex_lock(&service->status_lock);
    bool changed = ok != service->store_ok;
    service->store_ok = ok;
    if (!ok) {
        text_set(service->store_error, err->msg);
        service->store_error_code = err->code;
        if (changed)
            service->store_error_since_ns = clock_wall_ns();
    }
    pthread_mutex_unlock(&service->status_lock);
    if (!changed)
        return;
    if (ok)
        log_info(volume, "the store answers again");
    else
        log_warn(volume, "the store %s: %s",
                 err->code == ERR_STORE_DENIED ? "refuses the keys" : "is away", err->msg);
    event_emit(service, VOLUME_EVENT_STORE, NULL, 0);
    if (ok && service->sync != NULL)
        sync_kick(service);
}

static int
may_write(struct volume_service *service, const struct volume_ctx *ctx,
          const struct index_volume *volume, struct err *err)
{
    if (ctx->read_only)
        return err_set(err, ERR_READ_ONLY, "mounted read-only");
    if (volume->read_only)
        return err_set(err, ERR_READ_ONLY, "volume '%s' is read-only", volume->name);
    if (hold_check_row(volume, err) != 0)
        return -1;
    if (atomic_load(&service->read_only))
        return err_set(err, ERR_READ_ONLY, "the gateway's own disk failed: see holdfast status");
    return reads_may_write(service, ctx, volume, err);
}

int
service_may_write(struct volume_service *service, const struct volume_ctx *ctx,
                  const struct index_volume *volume, struct err *err)
{
    if (may_write(service, ctx, volume, err) == 0)
        return 0;
    volume_audit_act(service, ctx,
                     (struct audit_record){ .verb = "refused",
                                            .volume_name = volume->name,
                                            .result = err_slug(err->code),
                                            .detail = err->msg,
                                            .bytes = -1 });
    return -1;
}

int
service_may_grow(struct index_tx *tx, const struct index_volume *volume, uint64_t more,
                 struct err *err)
{
    uint64_t files = 0, bytes = 0, after;
    if (volume->quota == 0)
        return 0;
    if (index_node_usage(tx, volume->id, &files, &bytes, err) != 0)
        return -1;
    if (bytes >= volume->quota || !checked_add(bytes, more, &after) || after > volume->quota)
        return err_set(err, ERR_QUOTA,
                       "volume '%s' is at its quota of %llu bytes: remove files or raise it",
                       volume->name, (unsigned long long)volume->quota);
    return 0;
}

/* ---- the state directory ---- */

static int
open_state(struct volume_service *service, const char *dir, struct err *err)
{
    service->state_dir = strdup(dir);
    if (service->state_dir == NULL)
        return err_nomem(err);
    if (sys_make_dirs(dir, 0700, err) != 0)
        return err_wrap(err, "state directory '%s'", dir);
    service->state_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (service->state_fd < 0)
        return err_sys(err, errno, "cannot open the state directory '%s'", dir);
    return service->lock_fd >= 0 ? 0 : volume_state_lock(dir, 0, &service->lock_fd, err);
}

struct meta_call {
    struct volume_service *service;
    struct binding binding;
    char gateway_id[64], boot_id[64], clean[8], listed_since[32];
};

static int
get_meta(struct index_tx *tx, const char *name, char *out, size_t size, struct err *err)
{
    struct err local = ERR_INIT;
    if (index_meta_get(tx, name, out, size, &local) == 0)
        return 0;
    out[0] = '\0';
    if (local.code == ERR_NOT_FOUND)
        return 0;
    *err = local;
    return -1;
}

static int
load_meta_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct meta_call *call = arg;
    struct volume_service *service = call->service;
    if (get_meta(tx, "store-id", call->binding.id, sizeof(call->binding.id), err) != 0 ||
        get_meta(tx, "gateway-id", call->gateway_id, sizeof(call->gateway_id), err) != 0 ||
        get_meta(tx, "boot-id", call->boot_id, sizeof(call->boot_id), err) != 0 ||
        get_meta(tx, "clean", call->clean, sizeof(call->clean), err) != 0 ||
        get_meta(tx, "caps", call->binding.caps, sizeof(call->binding.caps), err) != 0 ||
        get_meta(tx, "store-url", call->binding.url, sizeof(call->binding.url), err) != 0 ||
        get_meta(tx, "listed-since", call->listed_since, sizeof(call->listed_since), err) != 0)
        return -1;
    if (call->gateway_id[0] == '\0') {
        if (ulid_new(service->gateway_id, err) != 0 ||
            index_meta_set(tx, "gateway-id", service->gateway_id, err) != 0)
            return -1;
    } else {
        (void)snprintf(service->gateway_id, sizeof(service->gateway_id), "%.*s", ULID_LEN,
                       call->gateway_id);
    }
    service->same_boot =
        strcmp(call->boot_id, service->boot_id) == 0 || strcmp(call->clean, "1") == 0;
    /* After a power cut the index may be behind the bucket: what was listed before is listed anew. */
    if (!service->same_boot) {
        (void)snprintf(call->listed_since, sizeof(call->listed_since), "%lld",
                       (long long)clock_wall_ns());
        if (index_meta_set(tx, "listed-since", call->listed_since, err) != 0)
            return -1;
    }
    if (!parse_i64(call->listed_since, &service->listed_since_ns))
        service->listed_since_ns = 0;
    return 0;
}

/* Only now: a start that dies while it recovers from a power cut is followed by one that still knows of it. */
static int
opened_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct volume_service *service = arg;
    if (index_meta_set(tx, "boot-id", service->boot_id, err) != 0)
        return -1;
    return index_meta_set(tx, "clean", "0", err);
}

bool
service_listed(const struct volume_service *service, const struct index_node *dir)
{
    return dir->listed_ns > service->listed_since_ns;
}

bool
service_listed_lately(const struct volume_service *service, const struct index_node *dir)
{
    return service_listed(service, dir) &&
           clock_wall_ns() - dir->listed_ns <= service->list_ttl_ns &&
           dir->listed_ns > changelog_swept_ns(service, dir->volume);
}

static void
free_reserve(void *arg)
{
    struct volume_service *service = arg;
    if (service->cache != NULL)
        cache_reserve_free(service->cache);
}

/* ---- open, start, close ---- */

static int
open_parts(struct volume_service *service, const struct volume_service_args *args, struct err *err)
{
    struct index_options options = { .create = true,
                                     .free_reserve = free_reserve,
                                     .free_reserve_arg = service };
    struct meta_call meta = { .service = service };
    service->reads = reads_new(err);
    if (service->reads == NULL || inode_table_init(&service->inodes, err) != 0 ||
        event_queue_open(service, err) != 0 || open_state(service, args->state_dir, err) != 0 ||
        sys_boot_id(service->boot_id, err) != 0)
        return -1;
    /* Twice the places: a change adds before it removes. */
    struct lock_journal *journal =
        lock_journal_open(service->state_fd, service->boot_id, 2 * LIMIT_LOCKS, err);
    if (journal == NULL)
        return -1;
    service->locks = lock_table_new(journal, LIMIT_LOCKS, LIMIT_LOCK_WAITS, err);
    if (service->locks == NULL)
        return -1;
    service->index = index_open(args->state_dir, &options, err);
    if (service->index == NULL)
        return -1;
    service->cache = cache_open(args->state_dir, &args->cache, err);
    if (service->cache == NULL)
        return -1;
    cache_on_evict(service->cache, evict_content, service);
    if (audit_open(service, err) != 0)
        return -1;
    /* After a takeover both change nothing. */
    enum index_durability durability = args->carried != NULL ? INDEX_NORMAL : INDEX_FULL;
    if (index_write(service->index, durability, load_meta_tx, &meta, err) != 0 ||
        binding_meet(service, args, &meta.binding, err) != 0)
        return -1;
    unsigned slots = args->fetch_threads > 0 ? args->fetch_threads : 16;
    if (fetcher_open(service, slots, err) != 0 || lease_keeper_open(service, err) != 0 ||
        sync_engine_open(service, err) != 0 || uploads_open(service, err) != 0 ||
        lister_open(service, err) != 0 || changelog_open(service, args->change_log_ns, err) != 0 ||
        recover_state(service, err) != 0 || told_start(&service->told, err) != 0)
        return -1;
    if (index_write(service->index, durability, opened_tx, service, err) != 0)
        return -1;
    drop_flush(service);
    return 0;
}

struct volume_service *
volume_service_open(const struct volume_service_args *args, struct err *err)
{
    struct volume_service *service = calloc(1, sizeof(*service));
    if (service == NULL) {
        store_free(args->store);
        if (args->lock_fd > 0)
            (void)close(args->lock_fd);
        err_nomem(err);
        return NULL;
    }
    service->state_fd = -1;
    service->lock_fd = args->lock_fd > 0 ? args->lock_fd : -1;
    service->carried = args->carried;
    service->store = args->store;
    service->list_ttl_ns = args->list_ttl_ns > 0 ? args->list_ttl_ns : 30 * NS_PER_S;
    service->sync_rest_ns = args->sync_rest_ns < REST_MAX ? args->sync_rest_ns : REST_MAX;
    service->sync_open_ns = args->sync_open_ns;
    service->upload_threads = args->upload_threads > 0 ? args->upload_threads : 8;
    atomic_store(&service->next_fh, (uint64_t)clock_wall_ns());
    pthread_mutex_init(&service->status_lock, NULL);
    pthread_mutex_init(&service->drop_lock, NULL);
    gone_keys_init(&service->gone);
    told_init(&service->told);
    int rc = open_parts(service, args, err);
    service->carried = NULL;
    if (rc == 0)
        return service;
    volume_service_close(service, 0);
    return NULL;
}

struct lock_table *
volume_locks(struct volume_service *service)
{
    return service->locks;
}

int
volume_service_start(struct volume_service *service, struct err *err)
{
    service->started = true;
    if (audit_start(service, err) != 0 || changelog_start(service, err) != 0)
        return -1;
    if (event_queue_start(service, err) != 0 || lease_keeper_start(service, err) != 0 ||
        sync_engine_start(service, err) != 0 || uploads_start(service, err) != 0 ||
        hold_load(service, err) != 0 || live_keeper_start(service, err) != 0 ||
        prune_start(service, err) != 0 || snapshot_start(service, err) != 0 ||
        timed_start(service, err) != 0 || fork_start(service, err) != 0)
        return -1;
    return 0;
}

#define END_PATIENCE (2 * NS_PER_S)

static int
clean_tx(struct index_tx *tx, void *arg, struct err *err)
{
    (void)arg;
    return index_meta_set(tx, "clean", "1", err);
}

void
volume_service_close(struct volume_service *service, int64_t deadline_ns)
{
    struct err err = ERR_INIT;
    if (service == NULL)
        return;
    atomic_store(&service->stopping, true);
    /* A store that is away holds up no end; giving the lease back takes a moment. */
    int64_t soon = clock_mono_ns() + END_PATIENCE;
    if (service->store != NULL)
        store_end(service->store, deadline_ns > soon ? deadline_ns : soon);
    fork_stop(service);
    timed_stop(service); /* it kicks both that follow */
    audit_stop(service);
    prune_stop(service);
    snapshot_stop(service);
    live_keeper_close(service);
    sync_engine_close(service, deadline_ns);
    changelog_close(service); /* the lister is still there */
    uploads_close(service);
    fetcher_close(service);
    lister_close(service);
    prefetch_close(service); /* the lister's HEADs look at it to their end */
    lease_keeper_close(service);
    event_queue_close(service);
    sync_engine_release(service);
    changelog_release(service);
    uploads_release(service);
    if (service->index != NULL && service->cache != NULL)
        drop_flush(service);
    audit_close(service);
    /* An orderly end: what is on this disk may be trusted after the next boot too. */
    if (service->started && service->state_fd >= 0 && syncfs(service->state_fd) == 0 &&
        index_write(service->index, INDEX_FULL, clean_tx, NULL, &err) != 0)
        log_warn(volume, "the end was not recorded: %s", err.msg);
    index_close(service->index);
    fetcher_release(service);
    fork_release(service);
    inode_table_release(&service->inodes);
    lock_table_free(service->locks);
    cache_close(service->cache);
    store_free(service->store);
    if (service->lock_fd >= 0)
        close(service->lock_fd);
    if (service->state_fd >= 0)
        close(service->state_fd);
    pthread_mutex_destroy(&service->status_lock);
    pthread_mutex_destroy(&service->drop_lock);
    free(service->dropped.number);
    gone_keys_release(&service->gone);
    told_release(&service->told);
    reads_free(service->reads);
    free(service->found);
    free(service->held);
    free(service->state_dir);
    free(service);
}
