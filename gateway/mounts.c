#include <string.h>

#include "base/clock.h"
#include "base/parse.h"
#include "base/path.h"
#include "gateway/router.h"

static int
need_mounts(const struct exchange *x, struct err *err)
{
    if (x->gateway->mounts)
        return 0;
    return err_set(err, ERR_UNSUPPORTED, "this gateway cannot mount: see 'holdfast doctor'");
}

static json_t *
mount_json(const struct mount_info *info)
{
    char id[24];
    char expires[TIME_RFC3339_SIZE] = "";
    (void)snprintf(id, sizeof(id), "%lld", (long long)info->id);
    if (info->expires_ns)
        time_rfc3339(info->expires_ns, expires, sizeof(expires));
    return json_pack("{s:s, s:s, s:s?, s:o, s:o, s:s, s:b, s:s, s:s?, s:I, s:I, s:b, s:s?, s:s?}",
                     "id", id, "volume", info->volume_name, "snapshot",
                     info->snapshot[0] != '\0' ? info->snapshot : NULL, "folder",
                     json_bytes(info->folder, strlen(info->folder)), "path",
                     json_bytes(info->path, strlen(info->path)), "run", info->run, "read_only",
                     (int)info->read_only, "state", mount_state_name(info->state), "expires",
                     info->expires_ns ? expires : NULL, "requests", (json_int_t)info->requests,
                     "parked", (json_int_t)info->parked, "passthrough", (int)info->passthrough,
                     "passthrough_why", info->plain_why[0] != '\0' ? info->plain_why : NULL,
                     "error", info->error[0] != '\0' ? info->error : NULL);
}

struct listing {
    const struct gateway_access *access;
    json_t *list;
};

static int
add_mount(void *arg, const struct mount_info *info, struct err *err)
{
    struct listing *listing = arg;
    if (!gateway_access_sees(listing->access, info->volume, info->folder))
        return 0;
    return json_array_append_new(listing->list, mount_json(info)) < 0 ? err_nomem(err) : 0;
}

int
gateway_mounts_list(struct exchange *x, struct err *err)
{
    scope_json *list = json_array();
    if (!list)
        return err_nomem(err);
    struct listing listing = { &x->access, list };
    if (x->gateway->mounts && mount_each(x->gateway->mounts, add_mount, &listing, err) < 0)
        return -1;
    return exchange_reply_json(x, 200, json_pack("{s:O}", "mounts", list), err);
}

static int
read_mount(struct exchange *x, const json_t *body, struct mount_args *args, char *folder,
           size_t size, struct err *err)
{
    struct volume_info info;
    const char *volume;
    const char *text = "";
    int64_t lease_minutes = 0;
    if (json_need_str(body, "volume", &volume, err) < 0 ||
        json_opt_str(body, "folder", &text, err) < 0 ||
        json_opt_str(body, "snapshot", &args->snapshot, err) < 0 ||
        json_opt_str(body, "path", &args->path, err) < 0 ||
        json_opt_bool(body, "read_only", &args->read_only, err) < 0 ||
        json_opt_bool(body, "private", &args->private_path, err) < 0 ||
        json_opt_str(body, "run", &args->run, err) < 0 ||
        json_opt_int(body, "lease_minutes", &lease_minutes, err) < 0)
        return -1;
    if (path_normalize(text, strlen(text), folder, size, err) < 0)
        return err_wrap(err, "folder");
    if (args->path && args->path[0] != '/')
        return err_set(err, ERR_INVAL, "the mountpoint '%s' must be an absolute path", args->path);
    if (args->run && !ulid_valid(args->run))
        return err_set(err, ERR_INVAL, "a run's id is a ULID");
    if (lease_minutes < 0 || lease_minutes > 1440)
        return err_set(err, ERR_INVAL, "a lease is 1 to 1440 minutes");
    if (volume_find(x->gateway->service, volume, &info, err) < 0)
        return -1;
    args->volume = info.id;
    args->folder = folder;
    args->transient = args->private_path;
    args->lease_ns = lease_minutes * 60 * NS_PER_S;
    return 0;
}

/* A place of this machine is the owner's to choose. What a mount lets programs do, the token has to allow. */
static int
check_args(const struct gateway_access *access, const struct mount_args *args, struct err *err)
{
    unsigned verbs = GATEWAY_READ | (args->read_only ? 0 : GATEWAY_WRITE | GATEWAY_DELETE);
    if (args->path && !gateway_access_is_owner(access))
        return err_set(err, ERR_DENIED, "only the owner may say where: leave out 'path'");
    return gateway_access_may(access, verbs, err);
}

int
gateway_mounts_create(struct exchange *x, struct err *err)
{
    char folder[LIMIT_PATH + 1];
    struct mount_args args = { 0 };
    struct mount_info info;
    scope_json *body = exchange_json(x, err);
    if (!body || need_mounts(x, err) < 0 ||
        read_mount(x, body, &args, folder, sizeof(folder), err) < 0)
        return -1;
    if (x->access.run[0] != '\0')
        args.run = x->access.run;
    if (check_args(&x->access, &args, err) < 0 ||
        mount_add(x->gateway->mounts, &args, &info, err) < 0)
        return -1;
    return exchange_reply_json(x, 201, mount_json(&info), err);
}

static int
remove_args(struct exchange *x, struct mount_remove_args *args, struct err *err)
{
    uint64_t seconds = 30;
    if (exchange_query_bool(x, "force", &args->force, err) < 0 ||
        exchange_query_bool(x, "no_flush", &args->no_flush, err) < 0 ||
        exchange_query_uint(x, "timeout_s", &seconds, err) < 0)
        return -1;
    args->deadline_ns = clock_mono_ns() + (int64_t)(seconds < 3600 ? seconds : 3600) * NS_PER_S;
    return 0;
}

int
gateway_mounts_delete(struct exchange *x, struct err *err)
{
    struct mount_remove_args args = { 0 };
    struct volume_barrier barrier = { 0 };
    int64_t id;
    if (need_mounts(x, err) < 0)
        return -1;
    if (!parse_i64(x->name, &id))
        return err_set(err, ERR_INVAL, "a mount's id is a number");
    if (remove_args(x, &args, err) < 0 ||
        mount_remove(x->gateway->mounts, id, &args, &barrier, err) < 0)
        return -1;
    return exchange_reply_json(x, 200,
                               json_pack("{s:s, s:I, s:I}", "id", x->name, "pending",
                                         (json_int_t)barrier.pending, "conflicts",
                                         (json_int_t)barrier.conflicts),
                               err);
}
