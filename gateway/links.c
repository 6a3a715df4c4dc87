#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/parse.h"
#include "base/path.h"
#include "base/text.h"
#include "base/ticker.h"
#include "gateway/router.h"
#include "gateway/share.h"
#include "volume/artifact.h"

/* Links: a short URL for a frozen copy of a file, or for a file that somebody is to bring. Made, listed, revoked, swept. */

#define SECRET_BYTES 16
#define EXPIRES_DEFAULT_S 3600
#define EXPIRES_MOST_S (7 * 86400)
#define URL_LIFE \
    (60 * NS_PER_S) /* of a presigned URL that was handed out: the copy stays as long */
#define SWEEP (60 * NS_PER_S)
#define AGAIN (5 * NS_PER_S)

static struct index *
index_of(const struct exchange *x)
{
    return volume_service_index(x->gateway->service);
}

/* ---- JSON ---- */

static json_t *
link_json(const struct index_share *row, const char *volume)
{
    char created[TIME_RFC3339_SIZE], expires[TIME_RFC3339_SIZE];
    time_rfc3339(row->created_ns, created, sizeof(created));
    time_rfc3339(row->expires_ns, expires, sizeof(expires));
    bool put = (row->flags & INDEX_SHARE_PUT) != 0;
    json_t *object =
        json_pack("{s:s, s:s, s:s, s:o, s:I, s:I, s:I, s:b, s:b, s:s, s:s, s:b, s:o, s:s}", "id",
                  row->id, "method", put ? "PUT" : "GET", "volume", volume, "name",
                  json_bytes(row->name, strlen(row->name)), put ? "max_bytes" : "size",
                  (json_int_t)row->size, "hits", (json_int_t)row->hits, "downloads",
                  (json_int_t)row->most, "proxy", (int)((row->flags & INDEX_SHARE_PROXY) != 0),
                  "inline", (int)((row->flags & INDEX_SHARE_INLINE) != 0), "created", created,
                  "expires", expires, "expired", (int)(row->expires_ns <= clock_wall_ns()), "actor",
                  json_bytes(row->actor, strlen(row->actor)), "run", row->run);
    if (object && gateway_tree_text(object, "path", row->path, strlen(row->path)) < 0) {
        json_decref(object);
        return NULL;
    }
    return object;
}

/* ---- made ---- */

struct making {
    struct index_share row;
    struct volume_info info;
    char secret[2 * SECRET_BYTES + 1];
};

static int
read_place(struct exchange *x, const json_t *body, struct making *call, struct err *err)
{
    const char *volume, *path, *method = "GET", *name = NULL;
    if (json_need_str(body, "volume", &volume, err) < 0 ||
        json_need_str(body, "path", &path, err) < 0 ||
        json_opt_str(body, "method", &method, err) < 0 ||
        json_opt_str(body, "name", &name, err) < 0)
        return -1;
    if (path_normalize(path, strlen(path), call->row.path, sizeof(call->row.path), err) < 0)
        return err_wrap(err, "path");
    if (call->row.path[0] == '\0')
        return err_set(err, ERR_INVAL, "path: a link is for one file");
    if (strcmp(method, "PUT") == 0)
        call->row.flags |= INDEX_SHARE_PUT;
    else if (strcmp(method, "GET") != 0)
        return err_set(err, ERR_INVAL, "method must be GET or PUT");
    const char *base = strrchr(call->row.path, '/');
    name = name ? name : base ? base + 1 : call->row.path;
    if (path_check_name(name, strlen(name), err) < 0)
        return err_wrap(err, "name");
    text_set(call->row.name, name);
    if (volume_find(x->gateway->service, volume, &call->info, err) < 0)
        return -1;
    call->row.volume = call->info.id;
    return 0;
}

static int
read_limits(const json_t *body, struct index_share *row, struct err *err)
{
    bool proxy = false, show = false;
    int64_t seconds = EXPIRES_DEFAULT_S, most = 0, bytes = 0;
    if (json_opt_bool(body, "proxy", &proxy, err) < 0 ||
        json_opt_bool(body, "inline", &show, err) < 0 ||
        json_opt_int(body, "expires_s", &seconds, err) < 0 ||
        json_opt_int(body, "downloads", &most, err) < 0 ||
        json_opt_int(body, "max_bytes", &bytes, err) < 0)
        return -1;
    if (seconds < 1 || seconds > EXPIRES_MOST_S)
        return err_set(err, ERR_INVAL, "expires_s must be 1 to %d", EXPIRES_MOST_S);
    if (most < 0 || bytes < 0 || (uint64_t)bytes > LIMIT_PUT_BODY)
        return err_set(err, ERR_INVAL, "downloads and max_bytes must be 0 (no limit) or more");
    row->flags |= (proxy ? INDEX_SHARE_PROXY : 0u) | (show ? INDEX_SHARE_INLINE : 0u);
    row->most = (uint64_t)most;
    row->size = (uint64_t)bytes;
    row->created_ns = clock_wall_ns();
    row->expires_ns = row->created_ns + seconds * NS_PER_S;
    return 0;
}

int
gateway_links_hash(const char *secret, char out[SHA256_HEX], struct err *err)
{
    uint8_t digest[SHA256_SIZE];
    if (sha256(secret, strlen(secret), digest, err) < 0)
        return -1;
    hex_encode(digest, sizeof(digest), out);
    return 0;
}

static int
make_secret(struct making *call, struct err *err)
{
    uint8_t random[SECRET_BYTES];
    if (random_bytes(random, sizeof(random), err) < 0 || ulid_new(call->row.id, err) < 0)
        return -1;
    hex_encode(random, sizeof(random), call->secret);
    return gateway_links_hash(call->secret, call->row.hash, err);
}

/* What is shared has to be in reach of who shares it: read for a download, write for an upload. */
static int
freeze(struct exchange *x, struct making *call, struct err *err)
{
    struct volume_ctx ctx;
    struct volume_artifact artifact;
    struct index_share *row = &call->row;
    bool put = (row->flags & INDEX_SHARE_PUT) != 0;
    exchange_ctx(x, 60, &ctx);
    text_set(row->actor, ctx.actor);
    text_set(row->run, ctx.run);
    if (gateway_access_may(&x->access, put ? GATEWAY_WRITE : GATEWAY_READ, err) < 0)
        return -1;
    if (put)
        return 0;
    if (volume_artifact_make(x->gateway->service, &ctx, call->info.id, row->path, row->name,
                             &artifact, err) < 0)
        return -1;
    text_set(row->key, artifact.key);
    row->size = artifact.size;
    return 0;
}

static int
put_tx(struct index_tx *tx, void *arg, struct err *err)
{
    return index_share_put(tx, arg, err);
}

static int
answer(struct exchange *x, const struct making *call, struct err *err)
{
    char url[400];
    char ours[64];
    const char *host = x->local ? NULL : exchange_header(x, "Host");
    (void)snprintf(ours, sizeof(ours), "127.0.0.1:%u", x->gateway->port);
    (void)snprintf(url, sizeof(url), "http://%.256s/l/%s", host ? host : ours, call->secret);
    json_t *object = link_json(&call->row, call->info.name);
    if (object && json_object_set_new(object, "url", json_string(url)) < 0) {
        json_decref(object);
        return err_nomem(err);
    }
    return exchange_reply_json(x, 201, object, err);
}

int
gateway_links_create(struct exchange *x, struct err *err)
{
    static const char *const known[] = { "volume",    "path",      "method", "name",   "expires_s",
                                         "downloads", "max_bytes", "proxy",  "inline", NULL };
    scope_json *body = exchange_json(x, err);
    scope_free struct making *call = calloc(1, sizeof(*call));
    if (!body)
        return -1;
    if (!call)
        return err_nomem(err);
    if (exchange_known_fields(body, known, err) < 0 || read_place(x, body, call, err) < 0 ||
        read_limits(body, &call->row, err) < 0 || make_secret(call, err) < 0 ||
        freeze(x, call, err) < 0 ||
        index_write(index_of(x), INDEX_FULL, put_tx, &call->row, err) != 0)
        return -1;
    return answer(x, call, err);
}

/* ---- listed ---- */

struct listing {
    struct exchange *x;
    struct exchange_list list;
    int64_t volume; /* 0: all */
    struct index_tx *tx;
};

static int
add_link(void *arg, const struct index_share *row, struct err *err)
{
    struct listing *call = arg;
    struct index_volume volume;
    struct err gone = ERR_INIT;
    if ((row->flags & INDEX_SHARE_ENDED) != 0 ||
        (call->volume != 0 && call->volume != row->volume) ||
        !gateway_access_sees(&call->x->access, row->volume, row->path))
        return 0;
    bool there = index_volume_get(call->tx, row->volume, &volume, &gone) == 0;
    return exchange_list_add(&call->list, link_json(row, there ? volume.name : ""), err) < 0 ? -1
                                                                                             : 0;
}

static int
list_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct listing *call = arg;
    call->tx = tx;
    return index_share_each(tx, add_link, call, err);
}

int
gateway_links_list(struct exchange *x, struct err *err)
{
    scope_json *items = json_array();
    struct listing call = {
        .x = x, .list = { .items = items, .limit = UINT64_MAX, .room = EXCHANGE_LIST_ROOM }
    };
    if (!items)
        return err_nomem(err);
    if (gateway_state_volume(x, &call.volume, err) < 0 ||
        index_read(index_of(x), list_tx, &call, err) != 0)
        return -1;
    return exchange_reply_json(
        x, 200, json_pack("{s:O, s:b}", "links", items, "truncated", (int)call.list.truncated),
        err);
}

/* ---- one ---- */

struct one {
    const struct exchange *x;
    struct index_share row;
    struct index_volume volume;
    bool end;
};

static int
one_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct one *call = arg;
    struct err gone = ERR_INIT;
    if (index_share_get(tx, call->x->name, &call->row, err) != 0)
        return -1;
    if ((call->row.flags & INDEX_SHARE_ENDED) != 0 ||
        !gateway_access_sees(&call->x->access, call->row.volume, call->row.path))
        return err_set(err, ERR_NOT_FOUND, "there is no such link");
    if (index_volume_get(tx, call->row.volume, &call->volume, &gone) != 0)
        call->volume.name[0] = '\0';
    if (!call->end)
        return 0;
    call->row.flags |= INDEX_SHARE_ENDED;
    return index_share_put(tx, &call->row, err);
}

int
gateway_links_show(struct exchange *x, struct err *err)
{
    scope_free struct one *call = calloc(1, sizeof(*call));
    if (!call)
        return err_nomem(err);
    call->x = x;
    if (index_read(index_of(x), one_tx, call, err) != 0)
        return -1;
    return exchange_reply_json(x, 200, link_json(&call->row, call->volume.name), err);
}

int
gateway_links_revoke(struct exchange *x, struct err *err)
{
    scope_free struct one *call = calloc(1, sizeof(*call));
    if (!call)
        return err_nomem(err);
    call->x = x;
    call->end = true;
    if (index_write(index_of(x), INDEX_FULL, one_tx, call, err) != 0)
        return -1;
    ticker_kick(x->gateway->sweeper);
    return exchange_reply_json(x, 200, json_pack("{s:s, s:b}", "id", x->name, "revoked", 1), err);
}

/* ---- the copies of ended ones ---- */

struct sweep {
    int64_t before_ns;
    bool found;
    struct index_share row;
    char after[ULID_SIZE]; /* those up to here were tried in this round */
};

static int
pick(void *arg, const struct index_share *row, struct err *err)
{
    struct sweep *sweep = arg;
    (void)err;
    if (strcmp(row->id, sweep->after) <= 0 ||
        ((row->flags & INDEX_SHARE_ENDED) == 0 && row->expires_ns >= sweep->before_ns))
        return 0;
    sweep->row = *row;
    sweep->found = true;
    return 1;
}

static int
pick_tx(struct index_tx *tx, void *arg, struct err *err)
{
    return index_share_each(tx, pick, arg, err);
}

static int
forget_tx(struct index_tx *tx, void *arg, struct err *err)
{
    return index_share_delete(tx, arg, err);
}

/* The object first: a row without one is nothing, an object without a row is litter. */
static int64_t
sweep_all(void *arg)
{
    struct gateway *gateway = arg;
    struct index *index = volume_service_index(gateway->service);
    struct err err = ERR_INIT;
    int64_t again = SWEEP;
    scope_free struct sweep *sweep = calloc(1, sizeof(*sweep));
    if (!sweep)
        return AGAIN;
    sweep->before_ns = clock_wall_ns() - URL_LIFE;
    for (;;) {
        sweep->found = false;
        if (index_read(index, pick_tx, sweep, &err) != 0 || !sweep->found)
            return again;
        text_set(sweep->after, sweep->row.id);
        if ((sweep->row.key[0] != '\0' &&
             volume_artifact_remove(gateway->service, sweep->row.key, &err) < 0) ||
            index_write(index, INDEX_NORMAL, forget_tx, sweep->row.id, &err) != 0) {
            log_warn(gateway, "the copy of an ended link stays for now: %s", err.msg);
            again = AGAIN;
        }
    }
}

struct ticker *
gateway_share_sweeper(struct gateway *gateway, struct err *err)
{
    return ticker_start("links", SWEEP, sweep_all, gateway, err);
}
