#include <errno.h>

#include "base/json.h"
#include "base/log.h"
#include "base/scope.h"
#include "versioning/lease.h"
#include "volume/service_impl.h"

/* Keeps the writer lease of every volume (docs/mechanisms.md section 6): one thread drives versioning/lease.h against
 * `.holdfast/leases/<volume>.json`. */

#define LEASE_TTL (60 * NS_PER_S)
#define LEASE_OP_DEADLINE (10 * NS_PER_S)
#define LEASE_LOOK_EVERY (3 * NS_PER_S) /* who waits sees soon that it was let go */
/* Where the store does not judge conditions: a claim counts only when its PUT ended this soon after the look that found the lease
 * free, and when a look so long after it still shows it. So of two that claim at once the later one stands, and one that claims
 * after a claim was confirmed has seen that one. */
#define CLAIM_WITHIN NS_PER_S
#define CLAIM_SETTLES (2 * NS_PER_S)
#define LEASES_MAX 256u

struct kept {
    int64_t volume;
    char name[LIMIT_VOLUME_NAME + 1];
    struct lease lease;
    int64_t looked_ns;
    struct lease_record claim; /* not confirmed yet */
    int64_t claim_sent_ns;     /* 0: none */
    bool listed;               /* the volume is still there */
};

struct lease_keeper {
    struct volume_service *service;
    pthread_mutex_t lock; /* leaf: the table; the thread works on copies */
    pthread_cond_t wake;
    struct kept kept[LEASES_MAX];
    size_t count;
    bool stopping, started, wanted;
    pthread_t thread;
};

bool
lease_keeper_held(struct volume_service *service, const struct index_volume *volume,
                  uint64_t *epoch)
{
    struct lease_keeper *keeper = service->leases;
    *epoch = 0;
    if (keeper == NULL)
        return false;
    scope_unlock pthread_mutex_t *held = scope_lock(&keeper->lock);
    for (size_t i = 0; i < keeper->count; i++) {
        struct kept *kept = &keeper->kept[i];
        if (kept->volume != volume->id)
            continue;
        *epoch = kept->lease.epoch;
        return lease_valid(&kept->lease, clock_boot_ns());
    }
    keeper->wanted = true; /* a volume we do not know yet: the thread reads them anew */
    pthread_cond_signal(&keeper->wake);
    return false;
}

/* ---- the record ---- */

static int
record_print(const struct lease_record *record, struct buf *out, struct err *err)
{
    char expires[TIME_RFC3339_SIZE];
    time_rfc3339(clock_wall_ns() + record->ttl_ns, expires, sizeof(expires));
    scope_json *doc = json_pack("{s:i, s:s, s:I, s:I, s:s, s:s}", "format", 1, "gateway",
                                record->gateway, "epoch", (json_int_t)record->epoch, "ttl_ms",
                                (json_int_t)(record->ttl_ns / NS_PER_MS), "nonce", record->nonce,
                                "expires", expires);
    return doc == NULL ? err_nomem(err) : json_print(doc, out, err);
}

static void
copy_id(char out[ULID_SIZE], const char *text)
{
    text_copy(out, ULID_SIZE, ulid_valid(text) ? text : "");
}

static int
record_parse(const char *text, size_t len, struct lease_record *out, struct err *err)
{
    scope_json *doc = json_parse(text, len, err);
    const char *gateway, *nonce;
    int64_t epoch, ttl;
    if (doc == NULL || json_need_str(doc, "gateway", &gateway, err) != 0 ||
        json_need_str(doc, "nonce", &nonce, err) != 0 ||
        json_need_int(doc, "epoch", &epoch, err) != 0 ||
        json_need_int(doc, "ttl_ms", &ttl, err) != 0)
        return -1;
    if (epoch < 0 || ttl < 0 || ttl > 24 * 3600 * 1000ll)
        return err_set(err, ERR_CORRUPT, "a lease record with impossible numbers");
    out->present = true;
    out->epoch = (uint64_t)epoch;
    out->ttl_ns = ttl * NS_PER_MS;
    copy_id(out->gateway, gateway);
    copy_id(out->nonce, nonce);
    return 0;
}

static int
record_read(struct volume_service *service, const char *key, struct lease_record *out,
            struct err *err)
{
    scope_free char *data = NULL;
    size_t len;
    struct store_object object;
    struct err local = ERR_INIT;
    memset(out, 0, sizeof(*out));
    store_object_init(&object);
    int rc = store_get_small(service->store, key, 4096, &data, &len, &object, &local);
    if (rc == 0) {
        text_set(out->etag, object.etag);
        if (record_parse(data, len, out, &local) != 0) {
            /* A record that nobody can read is nobody's, but it has to be replaced under its ETag. */
            out->present = true;
            out->gateway[0] = out->nonce[0] = '\0';
        }
    }
    store_object_release(&object);
    if (rc != 0 && local.code != ERR_NOT_FOUND) {
        *err = local;
        return -1;
    }
    return 0;
}

static enum lease_answer
record_write(struct volume_service *service, const char *key, const struct lease *lease,
             struct lease_record *record, int64_t deadline_ns)
{
    scope_buf text;
    struct err err = ERR_INIT;
    struct meta meta;
    struct store_put_result result = { .outcome = STORE_NOT_DONE };
    struct store_put put = { .key = key, .meta = &meta, .deadline_ns = deadline_ns };
    const struct store_caps *caps = &service->store->caps;
    put.cond.kind = lease->seen.present ? STORE_COND_MATCH : STORE_COND_ABSENT;
    put.cond.etag = lease->seen.etag;
    if (caps->put_if_match != STORE_YES || caps->put_if_absent != STORE_YES)
        put.cond.kind = STORE_COND_NONE;
    buf_init(&text, 4096);
    meta_init(&meta);
    /* The nonce is the write id by which a lost answer is settled. */
    int rc = record_print(record, &text, &err);
    if (rc == 0)
        rc = meta_set(&meta, "holdfast-version", record->nonce, &err);
    put.body = (struct store_body){ .mem = text.data, .fd = -1, .size = text.len };
    if (rc == 0)
        rc = store_put(service->store, &put, &result, &err);
    meta_release(&meta);
    if (rc == 0) {
        text_set(record->etag, result.etag);
        return LEASE_DONE;
    }
    log_debug(volume, "lease not written key=%s why=%s", key, err.msg);
    return result.outcome == STORE_REFUSED ? LEASE_REFUSED : LEASE_UNKNOWN;
}

/* ---- steps ---- */

static int
open_attempt(void *arg, const struct index_intent *row, struct err *err)
{
    bool *open = arg;
    (void)err;
    *open |= row->attempt.op != SYNC_OP_NONE || row->look_again_until_ns > clock_wall_ns();
    return *open ? 1 : 0;
}

struct attempts_call {
    int64_t volume;
    bool open;
};

static int
attempts_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct attempts_call *call = arg;
    return index_intent_each(tx, call->volume, "", UINT32_MAX, open_attempt, &call->open, err);
}

/* Whether a request of ours may still be under way: then the lease has to end by itself. */
static bool
attempts_open(struct volume_service *service, int64_t volume)
{
    struct attempts_call call = { .volume = volume };
    struct err err = ERR_INIT;
    return index_read(service->index, attempts_tx, &call, &err) != 0 || call.open;
}

/* An orderly end lets the lease go: a record of nobody may be taken at once, with the next epoch. */
#define RELEASE_DEADLINE (2 * NS_PER_S)

static void
release_lease(struct volume_service *service, struct kept *kept)
{
    char key[LIMIT_KEY];
    struct err err = ERR_INIT;
    struct lease_record record = { .present = true,
                                   .ttl_ns = kept->lease.ttl_ns,
                                   .epoch = kept->lease.epoch };
    if (!lease_valid(&kept->lease, clock_boot_ns()) || attempts_open(service, kept->volume) ||
        ulid_new(record.nonce, &err) != 0)
        return;
    (void)snprintf(key, sizeof(key), ".holdfast/leases/%s.json", kept->name);
    if (record_write(service, key, &kept->lease, &record, clock_mono_ns() + RELEASE_DEADLINE) !=
        LEASE_DONE)
        log_debug(volume, "the lease of volume=%s ends by itself", kept->name);
}

static bool
is_judged(const struct volume_service *service)
{
    const struct store_caps *caps = &service->store->caps;
    return caps->put_if_match == STORE_YES && caps->put_if_absent == STORE_YES;
}

/* False: the store does not tell. */
static bool
look_at(struct volume_service *service, struct kept *kept, const char *key)
{
    struct lease_record record;
    struct err err = ERR_INIT;
    kept->looked_ns = clock_boot_ns();
    if (record_read(service, key, &record, &err) != 0)
        return false;
    lease_saw(&kept->lease, &record, clock_boot_ns());
    return true;
}

static void
confirm_claim(struct volume_service *service, struct kept *kept, const char *key)
{
    int64_t sent = kept->claim_sent_ns;
    if (clock_boot_ns() - sent < CLAIM_SETTLES)
        return;
    kept->claim_sent_ns = 0;
    if (!look_at(service, kept, key))
        lease_answered(&kept->lease, LEASE_UNKNOWN, &kept->claim, sent);
    else if (strcmp(kept->lease.seen.nonce, kept->claim.nonce) == 0)
        lease_answered(&kept->lease, LEASE_DONE, &kept->lease.seen, sent);
}

/* What a store that judges conditions does by itself. */
static bool
is_as_seen(struct volume_service *service, struct kept *kept, const char *key,
           enum lease_step planned)
{
    char nonce[ULID_SIZE];
    text_set(nonce, kept->lease.seen.nonce);
    return look_at(service, kept, key) && strcmp(kept->lease.seen.nonce, nonce) == 0 &&
           lease_next(&kept->lease, clock_boot_ns()) == planned;
}

static void
write_lease(struct volume_service *service, struct kept *kept, const char *key,
            enum lease_step step)
{
    struct lease_record record = { .present = true, .ttl_ns = kept->lease.ttl_ns };
    struct err err = ERR_INIT;
    int64_t looked = clock_boot_ns();
    bool judged = is_judged(service);
    if (!judged && !is_as_seen(service, kept, key, step))
        return;
    record.epoch = step == LEASE_CLAIM ? kept->lease.seen.epoch + 1 : kept->lease.epoch;
    text_set(record.gateway, kept->lease.gateway);
    if (ulid_new(record.nonce, &err) != 0)
        return;
    int64_t sent = clock_boot_ns();
    enum lease_answer answer = record_write(service, key, &kept->lease, &record, 0);
    if (judged || step == LEASE_RENEW || answer != LEASE_DONE) {
        lease_answered(&kept->lease, answer, &record, sent);
    } else if (clock_boot_ns() - looked > CLAIM_WITHIN) {
        lease_answered(&kept->lease, LEASE_UNKNOWN, &record, sent);
    } else {
        kept->claim = record;
        kept->claim_sent_ns = sent;
    }
}

static void
step_lease(struct volume_service *service, struct kept *kept)
{
    char key[LIMIT_KEY];
    bool was_held = kept->lease.held;
    enum lease_step step = lease_next(&kept->lease, clock_boot_ns());
    (void)snprintf(key, sizeof(key), ".holdfast/leases/%s.json", kept->name);
    if (kept->claim_sent_ns != 0)
        confirm_claim(service, kept, key);
    else if (step == LEASE_CLAIM || step == LEASE_RENEW)
        write_lease(service, kept, key, step);
    else if (step == LEASE_LOOK ||
             (!kept->lease.held && clock_boot_ns() - kept->looked_ns > LEASE_LOOK_EVERY))
        (void)look_at(service, kept, key);
    if (kept->lease.held && !was_held)
        log_info(volume, "writer lease taken volume=%s epoch=%llu", kept->name,
                 (unsigned long long)kept->lease.epoch);
    if (!kept->lease.held && was_held)
        log_warn(volume, "writer lease lost volume=%s", kept->name);
}

/* ---- the thread ---- */

static int
add_volume(void *arg, const struct index_volume *row, struct err *err)
{
    struct lease_keeper *keeper = arg;
    (void)err;
    scope_unlock pthread_mutex_t *held = scope_lock(&keeper->lock);
    for (size_t i = 0; i < keeper->count; i++)
        if (keeper->kept[i].volume == row->id) {
            keeper->kept[i].listed = true;
            return 0;
        }
    if (keeper->count == LEASES_MAX || row->read_only)
        return 0;
    struct kept *kept = &keeper->kept[keeper->count++];
    memset(kept, 0, sizeof(*kept));
    kept->volume = row->id;
    kept->listed = true;
    text_set(kept->name, row->name);
    text_set(kept->lease.gateway, keeper->service->gateway_id);
    kept->lease.ttl_ns = LEASE_TTL;
    kept->lease.op_deadline_ns = LEASE_OP_DEADLINE;
    return 0;
}

static int
volumes_tx(struct index_tx *tx, void *arg, struct err *err)
{
    return index_volume_each(tx, add_volume, arg, err);
}

/* Volumes come and go: whose volume is gone, its lease is not renewed any more. */
static void
update_volumes(struct lease_keeper *keeper)
{
    struct err err = ERR_INIT;
    pthread_mutex_lock(&keeper->lock);
    for (size_t i = 0; i < keeper->count; i++)
        keeper->kept[i].listed = false;
    pthread_mutex_unlock(&keeper->lock);
    if (index_read(keeper->service->index, volumes_tx, keeper, &err) != 0) {
        log_warn(volume, "cannot read the volumes for their leases: %s", err.msg);
        return;
    }
    pthread_mutex_lock(&keeper->lock);
    size_t kept = 0;
    for (size_t i = 0; i < keeper->count; i++)
        if (keeper->kept[i].listed)
            keeper->kept[kept++] = keeper->kept[i];
    keeper->count = kept;
    pthread_mutex_unlock(&keeper->lock);
}

static void
step_all(struct lease_keeper *keeper)
{
    update_volumes(keeper);
    for (size_t i = 0; i < keeper->count; i++) {
        pthread_mutex_lock(&keeper->lock);
        struct kept copy = keeper->kept[i];
        pthread_mutex_unlock(&keeper->lock);
        bool held = copy.lease.held;
        /* A fresh lease needs a look and then a claim: both at once. */
        for (int round = 0; round < 2; round++)
            step_lease(keeper->service, &copy);
        pthread_mutex_lock(&keeper->lock);
        keeper->kept[i] = copy;
        pthread_mutex_unlock(&keeper->lock);
        if (copy.lease.held && !held)
            sync_kick(keeper->service);
    }
}

static void *
keeper_main(void *arg)
{
    struct lease_keeper *keeper = arg;
    pthread_setname_np(pthread_self(), "hf-lease");
    pthread_mutex_lock(&keeper->lock);
    while (!keeper->stopping) {
        keeper->wanted = false;
        pthread_mutex_unlock(&keeper->lock);
        step_all(keeper);
        drop_flush(keeper->service);
        pthread_mutex_lock(&keeper->lock);
        int64_t until_ns = clock_mono_ns() + NS_PER_S;
        struct timespec until = { .tv_sec = until_ns / NS_PER_S, .tv_nsec = until_ns % NS_PER_S };
        while (!keeper->stopping && !keeper->wanted)
            if (pthread_cond_timedwait(&keeper->wake, &keeper->lock, &until) == ETIMEDOUT)
                break;
    }
    pthread_mutex_unlock(&keeper->lock);
    return NULL;
}

int
lease_keeper_open(struct volume_service *service, struct err *err)
{
    struct lease_keeper *keeper = calloc(1, sizeof(*keeper));
    if (keeper == NULL)
        return err_nomem(err);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&keeper->lock, NULL);
    pthread_cond_init(&keeper->wake, &attr);
    pthread_condattr_destroy(&attr);
    keeper->service = service;
    service->leases = keeper;
    return 0;
}

int
lease_keeper_start(struct volume_service *service, struct err *err)
{
    struct lease_keeper *keeper = service->leases;
    int rc = pthread_create(&keeper->thread, NULL, keeper_main, keeper);
    keeper->started = rc == 0;
    return rc == 0 ? 0 : err_sys(err, rc, "cannot start the lease thread");
}

void
lease_keeper_close(struct volume_service *service)
{
    struct lease_keeper *keeper = service->leases;
    if (keeper == NULL)
        return;
    pthread_mutex_lock(&keeper->lock);
    keeper->stopping = true;
    pthread_cond_broadcast(&keeper->wake);
    pthread_mutex_unlock(&keeper->lock);
    if (keeper->started) {
        pthread_join(keeper->thread, NULL);
        for (size_t i = 0; i < keeper->count; i++)
            release_lease(service, &keeper->kept[i]);
    }
    pthread_cond_destroy(&keeper->wake);
    pthread_mutex_destroy(&keeper->lock);
    free(keeper);
    service->leases = NULL;
}
