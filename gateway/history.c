#include <string.h>

#include "base/clock.h"
#include "base/parse.h"
#include "base/path.h"
#include "gateway/router.h"
#include "volume/history.h"
#include "volume/reads.h"

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

/* Each "VOLUME:PATH" of a mark. */
static json_t *
inputs_json(const struct gateway_access *access, const char *text, struct err *err)
{
    struct err outside = ERR_INIT;
    char volume[LIMIT_VOLUME_NAME + 1];
    json_t *list = json_array();
    scope_buf path;
    buf_init(&path, 4 * LIMIT_PATH);
    bool ok = list != NULL;
    while (ok && *text != '\0') {
        size_t len = strcspn(text, " "), name = strcspn(text, ":");
        json_t *item = NULL;
        bool seen = true;
        buf_clear(&path);
        if (name < len && percent_decode(text + name + 1, len - name - 1, &path, err) == 0) {
            (void)snprintf(volume, sizeof(volume), "%.*s", (int)name, text);
            seen = gateway_access_reaches(access, volume, buf_cstr(&path), &outside) == 0;
            item = json_pack("{s:s#}", "volume", text, (int)name);
        }
        ok = item && gateway_tree_text(item, "path", buf_cstr(&path), path.len) == 0;
        ok = ok && (!seen || json_array_append(list, item) == 0);
        json_decref(item);
        text += len + (text[len] == ' ');
    }
    if (ok)
        return list;
    json_decref(list);
    (void)err_nomem(err);
    return NULL;
}

/* What is known of the inputs of who wrote it: nothing to say is no member. */
static int
set_stale(json_t *object, const struct gateway_access *access, const struct index_stale *mark,
          struct err *err)
{
    json_t *inputs = inputs_json(access, mark->inputs, err);
    json_t *stale = inputs ? json_pack("{s:I, s:b, s:o}", "changed", (json_int_t)mark->changed,
                                       "complete", (int)!mark->incomplete, "inputs", inputs)
                           : NULL;
    return stale && json_object_set_new(object, "stale_reads", stale) == 0 ? 0 : err_nomem(err);
}

struct versions {
    struct exchange_list list;
    struct volume_service *service;
    const struct gateway_access *access;
};

static int
add_version(void *arg, const struct volume_version *version, struct err *err)
{
    struct versions *versions = arg;
    struct err none = ERR_INIT;
    scope_free struct index_stale *mark = malloc(sizeof(*mark));
    scope_json *object = version_json(version);
    if (!mark || !object)
        return err_nomem(err);
    if (volume_reads_mark(versions->service, version->version, mark, &none) == 0) {
        if (set_stale(object, versions->access, mark, err) < 0)
            return -1;
    } else if (none.code != ERR_NOT_FOUND) {
        return err_set(err, none.code, "%s", none.msg);
    }
    return exchange_list_add(&versions->list, json_incref(object), err);
}

/* The trash is told inside one read of the index: what is known of inputs stands in each file's own history. */
static int
add_removed(void *arg, const struct volume_version *version, struct err *err)
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
    struct versions versions = { .list = { .items = items, .room = EXCHANGE_LIST_ROOM },
                                 .service = x->gateway->service,
                                 .access = &x->access };
    struct volume_history_want want = { .path = x->path,
                                        .within = gateway_access_within(&x->access) };
    if (!items)
        return err_nomem(err);
    exchange_ctx(x, 30, &ctx);
    if (read_limit(x, &versions.list, &want.limit, err) < 0 || gateway_volume_of(x, &info, err) < 0)
        return -1;
    want.volume = info.id;
    if (volume_history_each(x->gateway->service, &ctx, &want, add_version, &versions, err) < 0)
        return -1;
    return exchange_reply_json(x, 200,
                               json_pack("{s:s, s:o, s:O, s:b}", "volume", x->name, "path",
                                         json_bytes(x->path, strlen(x->path)), "versions", items,
                                         "truncated", (int)versions.list.truncated),
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
    if (volume_trash_each(x->gateway->service, &ctx, &want, add_removed, &list, err) < 0)
        return -1;
    return exchange_reply_json(x, 200,
                               json_pack("{s:s, s:o, s:O, s:b}", "volume", x->name, "prefix",
                                         json_bytes(prefix, strlen(prefix)), "files", items,
                                         "truncated", (int)list.truncated),
                               err);
}
