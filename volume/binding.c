#include "base/json.h"
#include "base/log.h"
#include "base/parse.h"
#include "base/scope.h"
#include "volume/found_impl.h"

/* The store's identity: the id in its bucket against what the state directory remembers, and what its last probe found. */

#define STORE_FORMAT 1
#define STORE_KEY ".holdfast/store.json"

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

int
binding_read_id(struct store *store, char id[ULID_SIZE], struct err *err)
{
    scope_free char *data = NULL;
    size_t len;
    struct store_object object;
    store_object_init(&object);
    int rc = store_get_small(store, STORE_KEY, 65536, &data, &len, &object, err);
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
    int rc = binding_read_id(service->store, id, &local);
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
            if (err->code != ERR_CONFLICT || binding_read_id(service->store, id, err) != 0)
                return err_wrap(err, "cannot write to %s", service->store->url);
        }
    } else if (rc != 0) {
        *err = local;
        return -1;
    }
    if (known[0] == '\0') {
        /* Bound only when all was found: a start that is cut off begins anew. */
        if (found_check(service, err) != 0 || (!absent && found_take(service, err) != 0))
            return -1;
        return remember(service, "store-id", id, err);
    }
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

int
binding_meet(struct volume_service *service, const struct volume_service_args *args,
             const struct binding *known, struct err *err)
{
    char caps[256];
    struct err local = ERR_INIT;
    /* Programs wait, and the last gateway asked the same store a moment ago. */
    if (args->carried != NULL && known->id[0] != '\0' &&
        strcmp(known->url, service->store->url) == 0 &&
        caps_scan(known->caps, &service->store->caps)) {
        service->store_ok = true;
        return 0;
    }
    if (store_probe(service->store, &local) == 0 && bind_store(service, known->id, &local) == 0) {
        service->store_ok = true;
        caps_print(&service->store->caps, caps, sizeof(caps));
        if (strcmp(known->url, service->store->url) != 0 &&
            strlen(service->store->url) < sizeof(known->url) &&
            remember(service, "store-url", service->store->url, err) != 0)
            return -1;
        return strcmp(caps, known->caps) == 0 ? 0 : remember(service, "caps", caps, err);
    }
    /* Keys that are refused now may be good again later, as a store that is away may be back. */
    bool may_wait = args->offline_start &&
                    (err_retryable(local.code) || local.code == ERR_STORE_DENIED) &&
                    known->id[0] != '\0' && caps_scan(known->caps, &service->store->caps);
    if (!may_wait) {
        *err = local;
        return -1;
    }
    log_warn(volume, "starting without the store: %s", local.msg);
    service->store_ok = true; /* so that the next line is a change and is told */
    service_store_seen(service, &local);
    return 0;
}
