#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "base/log.h"
#include "base/parse.h"
#include "base/scope.h"
#include "volume/listing_impl.h"
#include "volume/locks.h"
#include "volume/uploads.h"

#define STORE_FORMAT 1
#define STORE_KEY ".holdfast/store.json"

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

int
service_may_write(struct volume_service *service, const struct volume_ctx *ctx,
                  const struct index_volume *volume, struct err *err)
{
    if (ctx->read_only)
        return err_set(err, ERR_READ_ONLY, "mounted read-only");
    if (volume->read_only)
        return err_set(err, ERR_READ_ONLY, "volume '%s' is read-only", volume->name);
    if (atomic_load(&service->read_only))
        return err_set(err, ERR_READ_ONLY, "the gateway's own disk failed: see holdfast status");
    return 0;
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
    char store_id[64], gateway_id[64], boot_id[64], clean[8], caps[256], listed_since[32];
    char store_url[512];
    bool fresh;
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
    if (get_meta(tx, "store-id", call->store_id, sizeof(call->store_id), err) != 0 ||
        get_meta(tx, "gateway-id", call->gateway_id, sizeof(call->gateway_id), err) != 0 ||
        get_meta(tx, "boot-id", call->boot_id, sizeof(call->boot_id), err) != 0 ||
        get_meta(tx, "clean", call->clean, sizeof(call->clean), err) != 0 ||
        get_meta(tx, "caps", call->caps, sizeof(call->caps), err) != 0 ||
        get_meta(tx, "store-url", call->store_url, sizeof(call->store_url), err) != 0 ||
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
    return service_listed(service, dir) && clock_wall_ns() - dir->listed_ns <= service->list_ttl_ns;
}

/* ---- the store's identity ---- */

struct set_call {
    const char *name;
    const char *value;
};

static int
set_meta_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct set_call *call = arg;
    return index_meta_set(tx, call->name, call->value, err);
}

static int
remember(struct volume_service *service, const char *name, const char *value, struct err *err)
{
    struct set_call call = { .name = name, .value = value };
    return index_write(service->index, INDEX_FULL, set_meta_tx, &call, err);
}

static int
make_store_id(struct volume_service *service, char id[ULID_SIZE], struct err *err)
{
    char created[TIME_RFC3339_SIZE], text[256];
    struct store_put_result result;
    struct store_cond cond = { .kind = STORE_COND_ABSENT };
    if (ulid_new(id, err) != 0)
        return -1;
    time_rfc3339(clock_wall_ns(), created, sizeof(created));
    int len = snprintf(text, sizeof(text), "{\"format\":%d,\"id\":\"%s\",\"created\":\"%s\"}\n",
                       STORE_FORMAT, id, created);
    if (service->store->caps.put_if_absent != STORE_YES)
        cond.kind = STORE_COND_NONE;
    return store_put_small(service->store, STORE_KEY, text, (size_t)len, cond, &result, err);
}

static int
read_store_id(struct volume_service *service, char id[ULID_SIZE], struct err *err)
{
    scope_free char *data = NULL;
    size_t len;
    struct store_object object;
    store_object_init(&object);
    int rc = store_get_small(service->store, STORE_KEY, 65536, &data, &len, &object, err);
    store_object_release(&object);
    if (rc != 0)
        return -1;
    scope_json *doc = json_parse(data, len, err);
    const char *text;
    int64_t format;
    if (doc == NULL || json_need_int(doc, "format", &format, err) != 0 ||
        json_need_str(doc, "id", &text, err) != 0)
        return err_wrap(err, "'%s' in the bucket cannot be read", STORE_KEY);
    if (format > STORE_FORMAT)
        return err_set(err, ERR_NEWER_FORMAT,
                       "the bucket has format %lld and this program knows %d: use a newer holdfast",
                       (long long)format, STORE_FORMAT);
    if (!ulid_valid(text))
        return err_set(err, ERR_CORRUPT, "'%s' in the bucket holds no valid id", STORE_KEY);
    text_copy(id, ULID_SIZE, text);
    return 0;
}

static int
bind_store(struct volume_service *service, const char *known, struct err *err)
{
    char id[ULID_SIZE];
    struct err local = ERR_INIT;
    int rc = read_store_id(service, id, &local);
    bool absent = rc != 0 && local.code == ERR_NOT_FOUND;
    if (absent) {
        if (known[0] != '\0')
            return err_set(err, ERR_WRONG_STORE,
                           "%s is empty or another bucket, but the state directory belongs to "
                           "store %s: check --store, "
                           "or give a fresh --state",
                           service->store->url, known);
        if (make_store_id(service, id, err) != 0) {
            /* ERR_CONFLICT: another gateway was faster, its id counts. */
            if (err->code != ERR_CONFLICT || read_store_id(service, id, err) != 0)
                return err_wrap(err, "cannot write to %s", service->store->url);
        }
    } else if (rc != 0) {
        *err = local;
        return -1;
    }
    if (known[0] == '\0')
        return remember(service, "store-id", id, err);
    if (strcmp(known, id) != 0)
        return err_set(err, ERR_WRONG_STORE,
                       "%s holds store %s, but the state directory belongs to store %s: check "
                       "--store, or give a fresh "
                       "--state",
                       service->store->url, id, known);
    return 0;
}

/* What the last probe found, as digits in the order of struct store_caps: used when the store is away at start. */
#define CAPS_FLAGS 20
#define CAPS_NUMBERS 4

static void
caps_flags(struct store_caps *caps, enum store_yes_no *out[CAPS_FLAGS])
{
    enum store_yes_no *const flags[CAPS_FLAGS] = {
        &caps->put_if_absent,
        &caps->put_if_match,
        &caps->put_atomic,
        &caps->delete_if_match,
        &caps->copy_source_if_match,
        &caps->copy_dest_conditions,
        &caps->server_side_copy,
        &caps->etag_quoted,
        &caps->list_consistent,
        &caps->presign,
        &caps->folds_names,
        &caps->multipart,
        &caps->complete_if_absent,
        &caps->complete_if_match,
        &caps->copy_parts,
        &caps->delete_many,
        &caps->list_uploads,
        &caps->any_bytes,
        &caps->copy_parts_decodes_twice,
        &caps->long_meta,
    };
    memcpy(out, flags, sizeof(flags));
}

static void
caps_print(const struct store_caps *caps, char *out, size_t size)
{
    struct store_caps copy = *caps;
    enum store_yes_no *flag[CAPS_FLAGS];
    size_t len = 0;
    caps_flags(&copy, flag);
    for (size_t i = 0; i < CAPS_FLAGS; i++)
        len += (size_t)snprintf(out + len, size - len, "%d ", (int)*flag[i]);
    (void)snprintf(out + len, size - len, "%lld %llu %llu %llu",
                   (long long)caps->min_write_interval_ns, (unsigned long long)caps->max_put_bytes,
                   (unsigned long long)caps->max_copy_bytes, (unsigned long long)caps->part_bytes);
}

static bool
caps_scan(const char *text, struct store_caps *out)
{
    uint64_t value[CAPS_FLAGS + CAPS_NUMBERS];
    enum store_yes_no *flag[CAPS_FLAGS];
    for (size_t i = 0; i < CAPS_FLAGS + CAPS_NUMBERS; i++) {
        size_t len = strcspn(text, " ");
        if (!parse_u64_n(text, len, &value[i]))
            return false;
        text += len + (text[len] == ' ');
    }
    caps_flags(out, flag);
    for (size_t i = 0; i < CAPS_FLAGS; i++)
        *flag[i] = (enum store_yes_no)value[i];
    out->min_write_interval_ns = (int64_t)value[CAPS_FLAGS];
    out->max_put_bytes = value[CAPS_FLAGS + 1];
    out->max_copy_bytes = value[CAPS_FLAGS + 2];
    out->part_bytes = value[CAPS_FLAGS + 3];
    return *text == '\0';
}

static int
meet_store(struct volume_service *service, const struct volume_service_args *args,
           const struct meta_call *meta, struct err *err)
{
    char caps[256];
    struct err local = ERR_INIT;
    /* Programs wait, and the last gateway asked the same store a moment ago. */
    if (args->carried != NULL && meta->store_id[0] != '\0' &&
        strcmp(meta->store_url, service->store->url) == 0 &&
        caps_scan(meta->caps, &service->store->caps)) {
        service->store_ok = true;
        return 0;
    }
    if (store_probe(service->store, &local) == 0 &&
        bind_store(service, meta->store_id, &local) == 0) {
        service->store_ok = true;
        caps_print(&service->store->caps, caps, sizeof(caps));
        if (strcmp(meta->store_url, service->store->url) != 0 &&
            strlen(service->store->url) < sizeof(meta->store_url) &&
            remember(service, "store-url", service->store->url, err) != 0)
            return -1;
        return strcmp(caps, meta->caps) == 0 ? 0 : remember(service, "caps", caps, err);
    }
    /* Keys that are refused now may be good again later, as a store that is away may be back. */
    bool may_wait = args->offline_start &&
                    (err_retryable(local.code) || local.code == ERR_STORE_DENIED) &&
                    meta->store_id[0] != '\0' && caps_scan(meta->caps, &service->store->caps);
    if (!may_wait) {
        *err = local;
        return -1;
    }
    log_warn(volume, "starting without the store: %s", local.msg);
    service->store_ok = true; /* so that the next line is a change and is told */
    service_store_seen(service, &local);
    return 0;
}

/* ---- eviction ---- */

struct evict_call {
    struct volume_service *service;
    int64_t number;
    bool gone;
    bool rowless;
};

static int
evict_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct evict_call *call = arg;
    struct index_content row;
    struct index_node node;
    struct err missing = ERR_INIT;
    if (index_content_get(tx, call->number, &row, &missing) != 0) {
        call->gone = call->rowless = missing.code == ERR_NOT_FOUND;
        return 0;
    }
    struct content_view view = { .exists = true, .state = row.state, .flags = row.flags };
    struct inode *inode = inode_find(&call->service->inodes, row.node);
    if (inode != NULL) {
        inode_unref(&call->service->inodes, inode, false);
        return 0; /* in use */
    }
    if (!content_may_evict(&view))
        return 0;
    if (index_content_delete(tx, row.id, err) != 0)
        return -1;
    if (index_node_get(tx, row.node, &node, &missing) == 0 && node.content == row.id) {
        node.content = 0;
        if (index_node_update(tx, &node, err) != 0)
            return -1;
    }
    call->gone = true;
    return 0;
}

static bool
evict(void *arg, int64_t number)
{
    struct evict_call call = { .service = arg, .number = number };
    struct err err = ERR_INIT;
    if (index_write(call.service->index, INDEX_NORMAL, evict_tx, &call, &err) != 0) {
        log_warn(cache, "cannot evict content %lld: %s", (long long)number, err.msg);
        return false;
    }
    /* No row: its end may not be durable yet, and the file must not go before (drop.c). */
    if (call.rowless && drop_make_durable(call.service, &err) != 0)
        return false;
    return call.gone;
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
    if (inode_table_init(&service->inodes, err) != 0 || event_queue_open(service, err) != 0 ||
        open_state(service, args->state_dir, err) != 0 || sys_boot_id(service->boot_id, err) != 0)
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
    cache_on_evict(service->cache, evict, service);
    /* After a takeover both change nothing. */
    enum index_durability durability = args->carried != NULL ? INDEX_NORMAL : INDEX_FULL;
    if (index_write(service->index, durability, load_meta_tx, &meta, err) != 0 ||
        meet_store(service, args, &meta, err) != 0)
        return -1;
    unsigned slots = args->fetch_threads > 0 ? args->fetch_threads : 16;
    if (fetcher_open(service, slots, err) != 0 || lease_keeper_open(service, err) != 0 ||
        sync_engine_open(service, err) != 0 || uploads_open(service, err) != 0 ||
        lister_open(service, err) != 0 || recover_state(service, err) != 0 ||
        told_start(&service->told, err) != 0)
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
    service->sync_delay_ns = args->sync_delay_ns;
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
    if (event_queue_start(service, err) != 0 || lease_keeper_start(service, err) != 0 ||
        sync_engine_start(service, err) != 0 || uploads_start(service, err) != 0 ||
        live_keeper_start(service, err) != 0)
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
    live_keeper_close(service);
    sync_engine_close(service, deadline_ns);
    uploads_close(service);
    fetcher_close(service);
    lister_close(service);
    lease_keeper_close(service);
    event_queue_close(service);
    sync_engine_release(service);
    uploads_release(service);
    if (service->index != NULL && service->cache != NULL)
        drop_flush(service);
    /* An orderly end: what is on this disk may be trusted after the next boot too. */
    if (service->started && service->state_fd >= 0 && syncfs(service->state_fd) == 0 &&
        index_write(service->index, INDEX_FULL, clean_tx, NULL, &err) != 0)
        log_warn(volume, "the end was not recorded: %s", err.msg);
    index_close(service->index);
    fetcher_release(service);
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
    free(service->state_dir);
    free(service);
}

/* ---- status ---- */

struct status_call {
    struct volume_service *service;
    struct volume_status *out;
    char after[LIMIT_KEY + 1];
    unsigned seen;
};

static int
count_failing(void *arg, const struct index_intent *row, struct err *err)
{
    struct status_call *call = arg;
    (void)err;
    text_set(call->after, row->key);
    call->seen++;
    call->out->uploads_failing += row->tries > 0;
    return 0;
}

static int
count_conflict(void *arg, const struct index_conflict *row, struct err *err)
{
    struct status_call *call = arg;
    (void)row;
    (void)err;
    call->out->conflicts++;
    return 0;
}

static int
status_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct status_call *call = arg;
    struct volume_status *out = call->out;
    if (index_content_unsynced(tx, 0, &out->unsynced_files, &out->unsynced_bytes, err) != 0 ||
        index_intent_count(tx, 0, &out->pending_keys, err) != 0 ||
        index_conflict_each(tx, 0, count_conflict, call, err) != 0 ||
        uploads_count(call->service, tx, &out->uploads_open, &out->uploads_foreign, err) != 0)
        return -1;
    do {
        call->seen = 0;
        if (index_intent_each(tx, 0, call->after, 256, count_failing, call, err) != 0)
            return -1;
    } while (call->seen == 256);
    return 0;
}

/* An operation tries for its whole deadline; who looks at the status wants to know sooner. */
#define SILENCE_MAX (2 * NS_PER_S)

static void
tell_silence(struct volume_status *out)
{
    int64_t silent = out->counters.silent_ns == 0 ? 0 : clock_mono_ns() - out->counters.silent_ns;
    if (!out->store_ok || silent < SILENCE_MAX)
        return;
    out->store_ok = false;
    out->store_error_code = ERR_STORE_AWAY;
    out->store_error_since_ns = clock_wall_ns() - silent;
    text_set(out->store_error, "nothing answers there; requests go on being tried");
}

int
volume_status(struct volume_service *service, struct volume_status *out, struct err *err)
{
    struct status_call call = { .service = service, .out = out };
    memset(out, 0, sizeof(*out));
    if (index_read(service->index, status_tx, &call, err) != 0)
        return -1;
    text_set(out->store_url, service->store->url);
    text_set(out->provider, service->store->provider);
    pthread_mutex_lock(&service->status_lock);
    out->store_ok = service->store_ok;
    if (!out->store_ok) {
        text_set(out->store_error, service->store_error);
        out->store_error_code = service->store_error_code;
        out->store_error_since_ns = service->store_error_since_ns;
    }
    pthread_mutex_unlock(&service->status_lock);
    out->caps = service->store->caps;
    out->degraded = out->caps.put_if_absent != STORE_YES || out->caps.put_if_match != STORE_YES;
    store_counters(service->store, &out->counters);
    tell_silence(out);
    cache_usage(service->cache, &out->cache);
    fetcher_tell(service, &out->reading);
    out->disk_low = out->cache.free_bytes < out->cache.floor_bytes || out->cache.reserve_freed;
    out->read_only = atomic_load(&service->read_only);
    text_set(out->recovered, service->recovered);
    lister_unreachable(service, &out->unreachable);
    return 0;
}
