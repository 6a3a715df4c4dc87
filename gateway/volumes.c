#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/path.h"
#include "gateway/router.h"
#include "volume/fork.h"
#include "volume/history.h"
#include "volume/snapshot.h"

#define DAY_NS (86400ll * NS_PER_S)

static json_t *
settings_json(const struct volume_info *info)
{
    char created[TIME_RFC3339_SIZE];
    char rule[SCHEDULE_TEXT_SIZE];
    time_rfc3339(info->created_ns, created, sizeof(created));
    schedule_print(&info->snapshots, rule);
    return json_pack(
        "{s:s, s:s, s:s, s:b, s:b, s:s, s:b, s:s, s:b, s:I, s:I, s:I, s:s, s:s, s:s, s:s}", "id",
        info->name, "name", info->name, "prefix", info->prefix, "read_only", (int)info->read_only,
        "frozen", (int)info->frozen, "sync", info->sync_close ? "close" : "background",
        "conflict_copy", (int)info->conflict_copy, "stale_reads",
        volume_stale_word(info->stale_reads), "audit_reads", (int)info->audit_reads, "quota",
        (json_int_t)info->quota, "history_days", (json_int_t)(info->history_ns / DAY_NS),
        "history_versions", (json_int_t)info->history_count, "created", created, "storage_class",
        info->storage_class, "encryption", info->encryption, "snapshots", rule);
}

static int
add_fork(struct volume_service *service, const struct volume_info *info, json_t *out,
         struct err *err)
{
    struct volume_fork_state fork;
    char at[TIME_RFC3339_SIZE];
    if (!info->forking)
        return 0;
    if (volume_fork_state(service, info->name, &fork, err) < 0)
        return -1;
    if (fork.of[0] == '\0') /* done a moment ago */
        return 0;
    time_rfc3339(fork.at_ns, at, sizeof(at));
    json_t *object =
        json_pack("{s:s, s:s, s:I, s:I, s:s}", "of", fork.of, "at", at, "files",
                  (json_int_t)fork.files, "copied", (json_int_t)fork.copied, "error", fork.error);
    return json_object_set_new(out, "fork", object) < 0 ? err_nomem(err) : 0;
}

/* NULL with an error. */
static json_t *
volume_json(struct volume_service *service, const struct volume_info *info, struct err *err)
{
    struct volume_history_kept kept;
    if (volume_history_usage(service, info->id, &kept, err) < 0)
        return NULL;
    scope_json *numbers = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "files", (json_int_t)info->files, "bytes",
        (json_int_t)info->bytes, "unsynced_files", (json_int_t)info->unsynced_files,
        "unsynced_bytes", (json_int_t)info->unsynced_bytes, "pending_keys",
        (json_int_t)info->pending_keys, "conflicts", (json_int_t)info->conflicts, "kept_versions",
        (json_int_t)kept.versions, "kept_bytes", (json_int_t)kept.bytes);
    json_t *out = settings_json(info);
    if (out && numbers && json_object_update(out, numbers) == 0 &&
        gateway_snapshots_next(service, info, out, err) == 0 &&
        add_fork(service, info, out, err) == 0)
        return out;
    json_decref(out);
    (void)err_nomem(err);
    return NULL;
}

struct listing {
    struct volume_service *service;
    const struct gateway_access *access;
    json_t *items;
};

static int
add_volume(void *arg, const struct volume_info *info, struct err *err)
{
    struct listing *listing = arg;
    if (!gateway_access_sees(listing->access, info->id, ""))
        return 0;
    json_t *item = volume_json(listing->service, info, err);
    if (!item)
        return -1;
    return json_array_append_new(listing->items, item) < 0 ? err_nomem(err) : 0;
}

int
gateway_volumes_list(struct exchange *x, struct err *err)
{
    scope_json *list = json_array();
    if (!list)
        return err_nomem(err);
    struct listing listing = { x->gateway->service, &x->access, list };
    if (volume_each(x->gateway->service, add_volume, &listing, err) < 0)
        return -1;
    return exchange_reply_json(x, 200, json_pack("{s:O}", "volumes", list), err);
}

static int
answer_volume(struct exchange *x, int status, const char *name, struct err *err)
{
    struct volume_info info;
    if (volume_find_any(x->gateway->service, name, &info, err) < 0)
        return -1;
    json_t *answer = volume_json(x->gateway->service, &info, err);
    return answer ? exchange_reply_json(x, status, answer, err) : -1;
}

static int
read_settings(const json_t *body, struct volume_settings *settings, struct schedule_rule *rule,
              struct err *err)
{
    static const char *const known[] = {
        "name",         "prefix",           "read_only",     "sync",       "quota",
        "history_days", "history_versions", "storage_class", "encryption", "conflict_copy",
        "stale_reads",  "snapshots",        "audit_reads",   NULL
    };
    const char *snapshots = NULL;
    const char *sync = settings->sync_close ? "close" : "background";
    const char *stale = volume_stale_word(settings->stale_reads);
    int64_t quota = (int64_t)settings->quota;
    int64_t days = -1;
    int64_t versions = settings->history_count;
    if (exchange_known_fields(body, known, err) < 0 ||
        json_opt_str(body, "prefix", &settings->prefix, err) < 0 ||
        json_opt_bool(body, "read_only", &settings->read_only, err) < 0 ||
        json_opt_bool(body, "conflict_copy", &settings->conflict_copy, err) < 0 ||
        json_opt_bool(body, "audit_reads", &settings->audit_reads, err) < 0 ||
        json_opt_str(body, "stale_reads", &stale, err) < 0 ||
        volume_stale_read_word(stale, &settings->stale_reads, err) < 0 ||
        json_opt_str(body, "sync", &sync, err) < 0 ||
        json_opt_int(body, "quota", &quota, err) < 0 ||
        json_opt_int(body, "history_days", &days, err) < 0 ||
        json_opt_int(body, "history_versions", &versions, err) < 0 ||
        json_opt_str(body, "storage_class", &settings->storage_class, err) < 0 ||
        json_opt_str(body, "encryption", &settings->encryption, err) < 0 ||
        json_opt_str(body, "snapshots", &snapshots, err) < 0 ||
        (snapshots && schedule_parse(snapshots, rule, err) < 0))
        return -1;
    settings->snapshots = snapshots ? rule : NULL;
    if (strcmp(sync, "close") != 0 && strcmp(sync, "background") != 0)
        return err_set(err, ERR_INVAL, "sync must be 'background' or 'close'");
    if (quota < 0)
        return err_set(err, ERR_INVAL, "a quota cannot be negative");
    bool given = json_object_get(body, "history_days") != NULL;
    if (given && (days < 0 || days > 36500))
        return err_set(err, ERR_INVAL, "history_days must be 0 (none is kept) to 36500");
    if (versions < 0 || versions > 1000000)
        return err_set(err, ERR_INVAL, "history_versions must be 0 (any number) to 1000000");
    settings->history_count = versions;
    settings->sync_close = strcmp(sync, "close") == 0;
    settings->quota = (uint64_t)quota;
    if (given)
        settings->history_ns = days > 0 ? days * DAY_NS : -1;
    return 0;
}

/* {"name", "from", "at" (a time, how long ago, a snapshot; without it: now), "timeout_s"} */
static int
create_fork(struct exchange *x, const json_t *body, struct err *err)
{
    static const char *const known[] = { "name", "from", "at", "timeout_s", NULL };
    struct volume_info parent;
    struct volume_ctx ctx;
    struct volume_fork_args args = { 0 };
    const char *from, *at = NULL;
    int64_t wait = 60;
    if (exchange_known_fields(body, known, err) < 0 ||
        json_need_str(body, "name", &args.name, err) < 0 ||
        json_need_str(body, "from", &from, err) < 0 || json_opt_str(body, "at", &at, err) < 0 ||
        json_opt_int(body, "timeout_s", &wait, err) < 0 ||
        volume_find(x->gateway->service, from, &parent, err) < 0)
        return -1;
    if (wait < 1 || wait > 86400)
        return err_set(err, ERR_INVAL, "timeout_s must be 1 to 86400");
    args.parent = parent.id;
    if (at && volume_snapshot_time(x->gateway->service, parent.id, at, &args.at_ns, err) < 0)
        return -1;
    exchange_ctx(x, (unsigned)wait, &ctx);
    if (volume_fork(x->gateway->service, &ctx, &args, err) < 0)
        return -1;
    return answer_volume(x, 202, args.name, err);
}

int
gateway_volumes_create(struct exchange *x, struct err *err)
{
    struct volume_settings settings = { 0 };
    struct schedule_rule rule;
    struct volume_info info;
    scope_json *body = exchange_json(x, err);
    if (body && json_object_get(body, "from"))
        return create_fork(x, body, err);
    if (!body || json_need_str(body, "name", &settings.name, err) < 0 ||
        read_settings(body, &settings, &rule, err) < 0)
        return -1;
    if (path_check_volume(settings.name, err) < 0)
        return -1;
    if (volume_create(x->gateway->service, &settings, &info, err) < 0)
        return -1;
    return answer_volume(x, 201, info.name, err);
}

int
gateway_volumes_show(struct exchange *x, struct err *err)
{
    return answer_volume(x, 200, x->name, err);
}

int
gateway_volumes_set(struct exchange *x, struct err *err)
{
    struct volume_info info;
    scope_json *body = exchange_json(x, err);
    if (!body || gateway_volume_of(x, &info, err) < 0)
        return -1;
    struct volume_settings settings = { .name = info.name,
                                        .read_only = info.read_only,
                                        .sync_close = info.sync_close,
                                        .conflict_copy = info.conflict_copy,
                                        .stale_reads = info.stale_reads,
                                        .audit_reads = info.audit_reads,
                                        .quota = info.quota,
                                        .history_ns = info.history_ns,
                                        .history_count = info.history_count };
    struct schedule_rule rule;
    if (read_settings(body, &settings, &rule, err) < 0)
        return -1;
    if (settings.prefix && strcmp(settings.prefix, info.prefix) != 0)
        return err_set(err, ERR_UNSUPPORTED, "a volume keeps its prefix: make another volume");
    if (volume_set(x->gateway->service, x->name, &settings, err) < 0)
        return -1;
    return answer_volume(x, 200, x->name, err);
}

int
gateway_volumes_delete(struct exchange *x, struct err *err)
{
    bool force = false;
    if (exchange_query_bool(x, "force", &force, err) < 0)
        return -1;
    if (volume_delete(x->gateway->service, x->name, force, err) < 0)
        return -1;
    x->reply.status = 204;
    return 0;
}

/* The emergency stop: works while the store is away, and whatever else is going on. */
int
gateway_volumes_freeze(struct exchange *x, struct err *err)
{
    static const char *const known[] = { "volume", "frozen", NULL };
    const char *name = NULL;
    bool frozen = true;
    unsigned changed = 0;
    scope_json *body = exchange_json(x, err);
    if (!body || exchange_known_fields(body, known, err) < 0 ||
        json_opt_str(body, "volume", &name, err) < 0 ||
        json_opt_bool(body, "frozen", &frozen, err) < 0 ||
        (name && path_check_volume(name, err) < 0) ||
        volume_freeze(x->gateway->service, name, frozen, &changed, err) < 0)
        return -1;
    return exchange_reply_json(
        x, 200, json_pack("{s:b, s:i}", "frozen", (int)frozen, "changed", (int)changed), err);
}
