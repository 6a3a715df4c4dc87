#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "base/path.h"
#include "gateway/router.h"
#include "volume/snapshot.h"

/* Snapshots of a volume, and what differs between two of its times. */

#define DIFF_DEFAULT 1000
#define DIFF_MOST 100000
#define SYNC_WAIT_SECONDS 60

static json_t *
snapshot_json(const struct volume_snapshot *snapshot)
{
    char at[TIME_RFC3339_SIZE];
    time_rfc3339(snapshot->at_ns, at, sizeof(at));
    json_t *object = json_pack("{s:s, s:s, s:b, s:o, s:o, s:b}", "name", snapshot->name, "at", at,
                               "published", (int)snapshot->published, "actor",
                               json_bytes(snapshot->actor, strlen(snapshot->actor)), "run",
                               json_bytes(snapshot->run, strlen(snapshot->run)), "automatic",
                               (int)snapshot->automatic);
    if (object != NULL && snapshot->published &&
        (json_object_set_new(object, "files", json_integer((json_int_t)snapshot->files)) < 0 ||
         json_object_set_new(object, "bytes", json_integer((json_int_t)snapshot->bytes)) < 0)) {
        json_decref(object);
        return NULL;
    }
    return object;
}

static int
add_snapshot(void *arg, const struct volume_snapshot *snapshot, struct err *err)
{
    return exchange_list_add(arg, snapshot_json(snapshot), err);
}

int
gateway_snapshots_next(struct volume_service *service, const struct volume_info *info, json_t *out,
                       struct err *err)
{
    char next[TIME_RFC3339_SIZE];
    int64_t next_ns;
    if (volume_snapshot_next(service, info->id, &next_ns, err) < 0)
        return -1;
    if (next_ns == 0)
        return 0;
    time_rfc3339(next_ns - next_ns % NS_PER_S, next, sizeof(next));
    return json_object_set_new(out, "next_snapshot", json_string(next)) < 0 ? err_nomem(err) : 0;
}

int
gateway_snapshots_list(struct exchange *x, struct err *err)
{
    struct volume_info info;
    scope_json *items = json_array();
    struct exchange_list list = { .items = items, .limit = UINT64_MAX, .room = EXCHANGE_LIST_ROOM };
    if (!items)
        return err_nomem(err);
    if (gateway_volume_of(x, &info, err) < 0 ||
        volume_snapshot_each(x->gateway->service, info.id, add_snapshot, &list, err) < 0)
        return -1;
    char rule[SCHEDULE_TEXT_SIZE];
    schedule_print(&info.snapshots, rule);
    json_t *answer = json_pack("{s:s, s:O, s:b, s:s}", "volume", info.name, "snapshots", items,
                               "truncated", (int)list.truncated, "rule", rule);
    if (answer && gateway_snapshots_next(x->gateway->service, &info, answer, err) < 0) {
        json_decref(answer);
        return -1;
    }
    return exchange_reply_json(x, 200, answer, err);
}

int
gateway_snapshots_create(struct exchange *x, struct err *err)
{
    static const char *const known[] = { "name", "timeout_s", NULL };
    struct volume_info info;
    struct volume_ctx ctx;
    struct volume_snapshot snapshot;
    const char *name;
    int64_t wait = SYNC_WAIT_SECONDS;
    scope_json *body = exchange_json(x, err);
    if (!body || exchange_known_fields(body, known, err) < 0 ||
        json_need_str(body, "name", &name, err) < 0 ||
        json_opt_int(body, "timeout_s", &wait, err) < 0 || gateway_volume_of(x, &info, err) < 0)
        return -1;
    if (wait < 1 || wait > 86400)
        return err_set(err, ERR_INVAL, "timeout_s must be 1 to 86400");
    exchange_ctx(x, (unsigned)wait, &ctx);
    if (volume_snapshot_create(x->gateway->service, &ctx, info.id, name, &snapshot, err) < 0)
        return -1;
    return exchange_reply_json(x, 201, snapshot_json(&snapshot), err);
}

int
gateway_snapshots_show(struct exchange *x, struct err *err)
{
    struct volume_info info;
    struct volume_snapshot snapshot;
    if (gateway_volume_of(x, &info, err) < 0 ||
        volume_snapshot_find(x->gateway->service, info.id, x->path, &snapshot, err) < 0)
        return -1;
    return exchange_reply_json(x, 200, snapshot_json(&snapshot), err);
}

int
gateway_snapshots_delete(struct exchange *x, struct err *err)
{
    struct volume_info info;
    if (gateway_volume_of(x, &info, err) < 0 ||
        volume_snapshot_delete(x->gateway->service, info.id, x->path, err) < 0)
        return -1;
    return exchange_reply_json(
        x, 200, json_pack("{s:s, s:s}", "volume", info.name, "deleted", x->path), err);
}

/* ---- differences ---- */

static const char *
change_name(enum volume_past_change change)
{
    static const char *const names[] = { [VOLUME_PAST_REMOVED] = "removed",
                                         [VOLUME_PAST_ADDED] = "added",
                                         [VOLUME_PAST_CHANGED] = "changed",
                                         [VOLUME_PAST_MOVED] = "moved" };
    return names[change];
}

static int
add_side(json_t *object, const char *size_name, const char *version_name,
         const struct volume_past_entry *entry)
{
    if (entry == NULL || entry->kind == INDEX_DIR)
        return 0;
    return json_object_set_new(object, size_name, json_integer((json_int_t)entry->size)) < 0 ||
                   json_object_set_new(object, version_name,
                                       json_bytes(entry->version, strlen(entry->version))) < 0
               ? -1
               : 0;
}

static json_t *
difference_json(const struct volume_past_difference *what)
{
    const struct volume_past_entry *one = what->then != NULL ? what->then : what->now;
    assert(one != NULL);
    json_t *object = json_pack("{s:s, s:b}", "change", change_name(what->change), "folder",
                               (int)(one->kind == INDEX_DIR));
    int rc = object != NULL ? gateway_tree_text(object, "path", one->path, strlen(one->path)) : -1;
    if (rc == 0 && what->change == VOLUME_PAST_MOVED)
        rc = gateway_tree_text(object, "to", what->now->path, strlen(what->now->path));
    if (rc == 0)
        rc = add_side(object, "size_before", "version_before", what->then);
    if (rc == 0)
        rc = add_side(object, "size", "version", what->now);
    if (rc == 0)
        return object;
    json_decref(object);
    return NULL;
}

/* All are counted, also those that the list has no room for. */
struct differing {
    const struct gateway_access *access;
    struct exchange_list list;
    uint64_t count[4];
};

/* What came from, or went to, where a token does not reach was added or removed, as far as it can see. */
static void
narrow(const struct gateway_access *access, struct volume_past_difference *what)
{
    if (what->change != VOLUME_PAST_MOVED || access->volume == 0)
        return;
    if (!path_within(what->then->path, access->folder)) {
        what->change = VOLUME_PAST_ADDED;
        what->then = NULL;
    } else if (!path_within(what->now->path, access->folder)) {
        what->change = VOLUME_PAST_REMOVED;
        what->now = NULL;
    }
}

static int
add_difference(void *arg, const struct volume_past_difference *what, struct err *err)
{
    struct differing *call = arg;
    struct volume_past_difference seen = *what;
    narrow(call->access, &seen);
    call->count[seen.change]++;
    if (call->list.truncated)
        return 0;
    return exchange_list_add(&call->list, difference_json(&seen), err) < 0 ? -1 : 0;
}

/* A query parameter as a time; absent: now. */
static int
read_when(struct exchange *x, const char *name, int64_t volume, int64_t *out, struct err *err)
{
    scope_buf text;
    buf_init(&text, 128);
    int found = gateway_request_query(&x->target, name, &text, err);
    if (found < 0)
        return -1;
    *out = clock_wall_ns();
    if (found == 0)
        return 0;
    return volume_snapshot_time(x->gateway->service, volume, buf_cstr(&text), out, err);
}

static int
compare(struct exchange *x, const struct volume_info *info, int64_t from_ns, int64_t to_ns,
        struct differing *call, struct err *err)
{
    struct volume_past *from = NULL, *to = NULL;
    char prefix[LIMIT_PATH + 1];
    if (gateway_tree_prefix(x, prefix, err) < 0)
        return -1;
    int rc = volume_past_open(x->gateway->service, info->id, from_ns, &from, err);
    if (rc == 0)
        rc = volume_past_open(x->gateway->service, info->id, to_ns, &to, err);
    if (rc == 0)
        rc = volume_past_diff(from, to, prefix, add_difference, call, err);
    volume_past_close(from);
    volume_past_close(to);
    return rc;
}

int
gateway_snapshots_diff(struct exchange *x, struct err *err)
{
    struct volume_info info;
    int64_t from_ns, to_ns;
    char from[TIME_RFC3339_SIZE], to[TIME_RFC3339_SIZE];
    scope_json *items = json_array();
    struct differing call = {
        .access = &x->access,
        .list = { .items = items, .limit = DIFF_DEFAULT, .room = EXCHANGE_LIST_ROOM }
    };
    if (!items)
        return err_nomem(err);
    if (exchange_query_uint(x, "limit", &call.list.limit, err) < 0 ||
        gateway_volume_of(x, &info, err) < 0 || read_when(x, "from", info.id, &from_ns, err) < 0 ||
        read_when(x, "to", info.id, &to_ns, err) < 0)
        return -1;
    if (call.list.limit > DIFF_MOST)
        return err_set(err, ERR_INVAL, "limit must be 0 to %d", DIFF_MOST);
    if (compare(x, &info, from_ns, to_ns, &call, err) < 0)
        return -1;
    time_rfc3339(from_ns, from, sizeof(from));
    time_rfc3339(to_ns, to, sizeof(to));
    return exchange_reply_json(x, 200,
                               json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:O, s:b}", "volume",
                                         info.name, "from", from, "to", to, "added",
                                         (json_int_t)call.count[VOLUME_PAST_ADDED], "removed",
                                         (json_int_t)call.count[VOLUME_PAST_REMOVED], "changed",
                                         (json_int_t)call.count[VOLUME_PAST_CHANGED], "moved",
                                         (json_int_t)call.count[VOLUME_PAST_MOVED], "differences",
                                         items, "truncated", (int)call.list.truncated),
                               err);
}
