#include "volume/conflicts.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/parse.h"
#include "base/scope.h"
#include "base/text.h"
#include "base/ulid.h"
#include "gateway/router.h"

/* Conflicts: listed, looked at side by side, resolved (docs/http.md). */

/* ---- listed ---- */

struct listing {
    struct exchange *x;
    json_t *list;
    const char *run; /* "" for all */
    json_t *volumes; /* names by number */
};

static int
note_name(void *arg, const struct volume_info *info, struct err *err)
{
    char number[24];
    (void)snprintf(number, sizeof(number), "%lld", (long long)info->id);
    return json_object_set_new(arg, number, json_string(info->name)) < 0 ? err_nomem(err) : 0;
}

static json_t *
conflict_json(const struct index_conflict *row, const char *volume)
{
    char time[TIME_RFC3339_SIZE];
    time_rfc3339(row->time_ns, time, sizeof(time));
    return json_pack("{s:s, s:s, s:I, s:o, s:s, s:s, s:s, s:s, s:b, s:s, s:s, s:s}", "id", row->id,
                     "volume", volume, "volume_id", (json_int_t)row->volume, "path",
                     json_bytes(row->path, strlen(row->path)), "reason", row->reason, "base",
                     row->base_version, "mine", row->mine_version, "theirs",
                     row->theirs_version[0] != '\0' ? row->theirs_version : row->theirs_etag,
                     "synced", (int)row->synced, "actor", row->actor, "run", row->run, "time",
                     time);
}

static int
add_conflict(void *arg, const struct index_conflict *row, struct err *err)
{
    struct listing *listing = arg;
    char number[24];
    if (listing->run[0] != '\0' && strcmp(listing->run, row->run) != 0)
        return 0;
    if (!gateway_access_sees(&listing->x->access, row->volume, row->path))
        return 0;
    (void)snprintf(number, sizeof(number), "%lld", (long long)row->volume);
    const char *volume = json_string_value(json_object_get(listing->volumes, number));
    json_t *item = conflict_json(row, volume ? volume : "");
    return json_array_append_new(listing->list, item) < 0 ? err_nomem(err) : 0;
}

int
gateway_conflicts_list(struct exchange *x, struct err *err)
{
    int64_t volume;
    scope_json *list = json_array();
    scope_json *names = json_object();
    scope_buf run;
    buf_init(&run, 64);
    if (!list || !names)
        return err_nomem(err);
    if (gateway_state_volume(x, &volume, err) < 0 ||
        gateway_request_query(&x->target, "run", &run, err) < 0 ||
        volume_each(x->gateway->service, note_name, names, err) < 0)
        return -1;
    struct listing listing = { x, list, buf_cstr(&run), names };
    if (volume_conflict_each(x->gateway->service, volume, add_conflict, &listing, err) < 0)
        return -1;
    return exchange_reply_json(x, 200, json_pack("{s:O}", "conflicts", list), err);
}

/* ---- in listings of folders ---- */

struct marking {
    const char *dir;
    size_t len;
    json_t *names; /* of files in it that have a conflict */
};

static int
note_path(void *arg, const struct index_conflict *row, struct err *err)
{
    struct marking *marking = arg;
    const char *name = row->path;
    if (marking->len > 0) {
        if (strncmp(name, marking->dir, marking->len) != 0 || name[marking->len] != '/')
            return 0;
        name += marking->len + 1;
    }
    if (strchr(name, '/') != NULL || !utf8_valid(name, strlen(name)))
        return 0;
    return json_object_set_new(marking->names, name, json_true()) < 0 ? err_nomem(err) : 0;
}

int
gateway_conflicts_mark(struct exchange *x, int64_t volume, const char *dir, json_t *entries,
                       struct err *err)
{
    json_t *entry;
    size_t i;
    scope_json *names = json_object();
    struct marking marking = { dir, strlen(dir), names };
    if (!names)
        return err_nomem(err);
    if (volume_conflict_each(x->gateway->service, volume, note_path, &marking, err) < 0)
        return -1;
    if (json_object_size(names) == 0)
        return 0;
    json_array_foreach (entries, i, entry) {
        const char *name = json_string_value(json_object_get(entry, "name"));
        if (name && json_object_get(names, name) &&
            json_object_set_new(entry, "conflict", json_true()) < 0)
            return err_nomem(err);
    }
    return 0;
}

/* ---- one ---- */

static int
check_id(const struct exchange *x, struct err *err)
{
    return ulid_valid(x->name) ? 0
                               : err_set(err, ERR_NOT_FOUND, "there is no conflict '%s'", x->name);
}

static json_t *
now_json(const struct volume_conflict *conflict)
{
    if (!conflict->present)
        return json_null();
    return json_pack("{s:s, s:I}", "version", conflict->now, "size",
                     (json_int_t)conflict->now_size);
}

int
gateway_conflicts_show(struct exchange *x, struct err *err)
{
    struct volume_ctx ctx;
    scope_free struct volume_conflict *conflict = malloc(sizeof(*conflict));
    scope_buf text;
    struct volume_merged merged = { .text = &text };
    buf_init(&text, VOLUME_MERGED_MAX);
    exchange_ctx(x, 30, &ctx);
    if (!conflict)
        return err_nomem(err);
    if (check_id(x, err) < 0 ||
        volume_conflict_find(x->gateway->service, &ctx, x->name, conflict, err) < 0)
        return -1;
    const char *word = "open"; /* somebody is writing the path */
    if (volume_conflict_merge(x->gateway->service, &ctx, x->name, &merged, err) == 0)
        word = volume_merge_word(merged.how);
    else if (err->code != ERR_BUSY && err->code != ERR_AGAIN)
        return -1;
    json_t *out = conflict_json(&conflict->row, conflict->volume);
    if (out && (json_object_set_new(out, "size", json_integer((json_int_t)conflict->size)) < 0 ||
                json_object_set_new(out, "now", now_json(conflict)) < 0 ||
                json_object_set_new(out, "merge", json_string(word)) < 0)) {
        json_decref(out);
        out = NULL;
    }
    return exchange_reply_json(x, 200, out, err);
}

/* ---- bytes ---- */

struct mine {
    struct volume_service *service;
    struct volume_ctx ctx;
    char id[ULID_SIZE];
};

static ssize_t
mine_read(void *arg, uint64_t off, void *out, size_t max, struct err *err)
{
    struct mine *mine = arg;
    mine->ctx.deadline_ns = clock_mono_ns() + 60 * NS_PER_S;
    return volume_conflict_read(mine->service, &mine->ctx, mine->id, out, max, off, err);
}

static int
part_headers(struct exchange *x, const char *type, struct err *err)
{
    x->reply.status = 200;
    if (exchange_reply_header(x, "Cache-Control", err, "private, no-cache") < 0)
        return -1;
    return exchange_reply_header(x, "Content-Type", err, "%s", type);
}

/* As long as it may be: it is streamed. */
static int
send_mine(struct exchange *x, const struct volume_ctx *ctx, struct err *err)
{
    ssize_t size = volume_conflict_read(x->gateway->service, ctx, x->name, NULL, 0, 0, err);
    if (size < 0 || part_headers(x, "application/octet-stream", err) < 0)
        return -1;
    if (size == 0)
        return 0;
    struct mine *mine = calloc(1, sizeof(*mine));
    if (!mine)
        return err_nomem(err);
    mine->service = x->gateway->service;
    mine->ctx = *ctx;
    mine->ctx.run = mine->ctx.actor = ""; /* they outlive the request */
    text_set(mine->id, x->name);
    x->reply.stream = (struct exchange_stream){ mine_read, free, mine, (uint64_t)size };
    return 0;
}

/* As if the path itself was asked for. */
static int
send_theirs(struct exchange *x, const struct volume_ctx *ctx, struct err *err)
{
    struct volume_conflict *conflict = malloc(sizeof(*conflict));
    if (!conflict)
        return err_nomem(err);
    x->state = conflict; /* x->path stays in it */
    x->state_free = free;
    if (volume_conflict_find(x->gateway->service, ctx, x->name, conflict, err) < 0)
        return -1;
    (void)snprintf(x->name, sizeof(x->name), "%s", conflict->volume);
    x->path = conflict->row.path;
    return gateway_files_get(x, err);
}

static int
query_side(struct exchange *x, const char *name, enum volume_side *out, struct err *err)
{
    scope_buf word;
    buf_init(&word, 64);
    int found = gateway_request_query(&x->target, name, &word, err);
    if (found <= 0)
        return found;
    return volume_side_parse(buf_cstr(&word), out)
               ? 0
               : err_set(err, ERR_INVAL, "'%s' must be mine, theirs, base or merged", name);
}

static int
send_diff(struct exchange *x, const struct volume_ctx *ctx, struct err *err)
{
    struct volume_sides sides = { .from = VOLUME_THEIRS, .to = VOLUME_MINE };
    if (query_side(x, "from", &sides.from, err) < 0 || query_side(x, "to", &sides.to, err) < 0 ||
        volume_conflict_diff(x->gateway->service, ctx, x->name, &sides, &x->reply.body, err) < 0)
        return -1;
    return part_headers(x, "text/plain; charset=utf-8", err);
}

static int
send_merged(struct exchange *x, const struct volume_ctx *ctx, struct err *err)
{
    struct volume_merged merged = { .text = &x->reply.body };
    if (volume_conflict_merge(x->gateway->service, ctx, x->name, &merged, err) < 0)
        return -1;
    const char *how = volume_merge_word(merged.how);
    if (merged.how != VOLUME_MERGE_CLEAN && merged.how != VOLUME_MERGE_OVERLAPS)
        return err_set(err, ERR_NO_MERGE, "conflict '%s' cannot be merged: %s", x->name, how);
    if (exchange_reply_header(x, "Holdfast-Merge", err, "%s", how) < 0)
        return -1;
    return part_headers(x, "application/octet-stream", err);
}

int
gateway_conflicts_part(struct exchange *x, struct err *err)
{
    struct volume_ctx ctx;
    enum volume_side side;
    exchange_ctx(x, 30, &ctx);
    if (check_id(x, err) < 0)
        return -1;
    if (strcmp(x->path, "diff") == 0)
        return send_diff(x, &ctx, err);
    if (!volume_side_parse(x->path, &side))
        return err_set(err, ERR_NOT_FOUND,
                       "a conflict has mine, theirs, base, merged and diff, not '%s'", x->path);
    if (side == VOLUME_MINE)
        return send_mine(x, &ctx, err);
    if (side == VOLUME_THEIRS)
        return send_theirs(x, &ctx, err);
    if (side == VOLUME_MERGED)
        return send_merged(x, &ctx, err);
    if (volume_conflict_side(x->gateway->service, &ctx, x->name, side, &x->reply.body, err) < 0)
        return -1;
    return part_headers(x, "application/octet-stream", err);
}

/* ---- resolved ---- */

/* What is at the path now, for who wants to decide anew. */
static void
tell_now(struct exchange *x, const struct volume_ctx *ctx)
{
    struct err ignored = ERR_INIT;
    scope_free struct volume_conflict *conflict = malloc(sizeof(*conflict));
    if (!conflict ||
        volume_conflict_find(x->gateway->service, ctx, x->name, conflict, &ignored) < 0)
        return;
    json_decref(x->extra);
    x->extra = json_pack("{s:o}", "current", now_json(conflict));
}

static int
read_resolve(struct exchange *x, struct volume_resolve *how, struct err *err)
{
    const char *keep = NULL;
    scope_json *body = exchange_json(x, err);
    if (!body || json_need_str(body, "keep", &keep, err) < 0 ||
        precondition_parse(exchange_header(x, "If-Match"), exchange_header(x, "If-None-Match"),
                           &how->pre, err) < 0)
        return -1;
    if (json_object_size(body) > 1)
        return err_set(err, ERR_INVAL, "the body has one field: keep");
    if (how->pre.kind == PRECONDITION_NONE_MATCH)
        return err_set(err, ERR_INVAL, "If-None-Match can only be *: nothing lies there");
    if (!volume_keep_parse(keep, &how->keep))
        return err_set(err, ERR_INVAL, "keep must be mine, theirs, both or merge");
    return 0;
}

int
gateway_conflicts_resolve(struct exchange *x, struct err *err)
{
    struct volume_ctx ctx;
    struct volume_resolve how = { .id = x->name };
    scope_free struct volume_resolved *done = malloc(sizeof(*done));
    exchange_ctx(x, 30, &ctx);
    if (!done)
        return err_nomem(err);
    if (strcmp(x->path, "resolve") != 0)
        return err_set(err, ERR_NOT_FOUND, "a conflict can be resolved, not '%s'", x->path);
    if (check_id(x, err) < 0 || read_resolve(x, &how, err) < 0)
        return -1;
    if (volume_conflict_resolve(x->gateway->service, &ctx, &how, done, err) < 0) {
        if (err->code == ERR_CONFLICT)
            tell_now(x, &ctx);
        return -1;
    }
    return exchange_reply_json(x, 200,
                               json_pack("{s:s, s:s, s:o, s:s, s:b}", "id", x->name, "volume",
                                         done->volume, "path",
                                         json_bytes(done->path, strlen(done->path)), "version",
                                         done->version, "written", (int)done->written),
                               err);
}
