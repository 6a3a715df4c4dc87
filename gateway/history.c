#include <string.h>

#include "base/clock.h"
#include "base/path.h"
#include "gateway/router.h"
#include "volume/history.h"

/* Versions, present and past: of one file, and of what is no more. */

#define LIST_DEFAULT 1000
#define LIST_MOST 10000

static json_t *
time_json(int64_t wall_ns)
{
    char text[TIME_RFC3339_SIZE];
    if (wall_ns == 0)
        return json_null();
    time_rfc3339(wall_ns, text, sizeof(text));
    return json_string(text);
}

static json_t *
gone_json(const struct volume_version *v)
{
    if (v->present)
        return json_null();
    return json_pack("{s:o, s:s, s:o, s:o}", "time", time_json(v->gone_ns), "op", v->gone_op,
                     "actor", json_bytes(v->gone_actor, strlen(v->gone_actor)), "run",
                     json_bytes(v->gone_run, strlen(v->gone_run)));
}

static json_t *
version_json(const struct volume_version *v)
{
    json_t *object =
        json_pack("{s:s, s:o, s:s, s:I, s:s, s:o, s:o, s:o, s:b, s:b, s:o}", "id", v->id, "version",
                  json_bytes(v->version, strlen(v->version)), "base", v->base, "size",
                  (json_int_t)v->size, "sha256", v->sha256, "made", time_json(v->made_ns), "actor",
                  json_bytes(v->actor, strlen(v->actor)), "run", json_bytes(v->run, strlen(v->run)),
                  "present", (int)v->present, "synced", (int)v->synced, "gone", gone_json(v));
    if (object && gateway_tree_text(object, "path", v->path, strlen(v->path)) < 0) {
        json_decref(object);
        return NULL;
    }
    return object;
}

static int
add_version(void *arg, const struct volume_version *version, struct err *err)
{
    return exchange_list_add(arg, version_json(version), err);
}

/* How many are asked for: one more than are shown, so that the answer knows whether there are more. */
static int
read_limit(struct exchange *x, struct exchange_list *list, unsigned *ask, struct err *err)
{
    list->limit = LIST_DEFAULT;
    if (exchange_query_uint(x, "limit", &list->limit, err) < 0)
        return -1;
    if (list->limit < 1 || list->limit > LIST_MOST)
        return err_set(err, ERR_INVAL, "limit must be 1 to %d", LIST_MOST);
    *ask = (unsigned)list->limit + 1;
    return 0;
}

int
gateway_history_list(struct exchange *x, struct err *err)
{
    struct volume_info info;
    struct volume_ctx ctx;
    scope_json *items = json_array();
    struct exchange_list list = { .items = items, .room = EXCHANGE_LIST_ROOM };
    struct volume_history_want want = { .path = x->path };
    if (!items)
        return err_nomem(err);
    exchange_ctx(x, 30, &ctx);
    if (read_limit(x, &list, &want.limit, err) < 0 || gateway_volume_of(x, &info, err) < 0)
        return -1;
    want.volume = info.id;
    if (volume_history_each(x->gateway->service, &ctx, &want, add_version, &list, err) < 0)
        return -1;
    return exchange_reply_json(x, 200,
                               json_pack("{s:s, s:o, s:O, s:b}", "volume", x->name, "path",
                                         json_bytes(x->path, strlen(x->path)), "versions", items,
                                         "truncated", (int)list.truncated),
                               err);
}

int
gateway_history_trash(struct exchange *x, struct err *err)
{
    struct volume_info info;
    struct volume_ctx ctx;
    char prefix[LIMIT_PATH + 1];
    scope_json *items = json_array();
    struct exchange_list list = { .items = items, .room = EXCHANGE_LIST_ROOM };
    struct volume_history_want want = { .path = prefix };
    if (!items)
        return err_nomem(err);
    exchange_ctx(x, 30, &ctx);
    if (read_limit(x, &list, &want.limit, err) < 0 || gateway_tree_prefix(x, prefix, err) < 0 ||
        gateway_volume_of(x, &info, err) < 0)
        return -1;
    want.volume = info.id;
    if (volume_trash_each(x->gateway->service, &ctx, &want, add_version, &list, err) < 0)
        return -1;
    return exchange_reply_json(x, 200,
                               json_pack("{s:s, s:o, s:O, s:b}", "volume", x->name, "prefix",
                                         json_bytes(prefix, strlen(prefix)), "files", items,
                                         "truncated", (int)list.truncated),
                               err);
}
