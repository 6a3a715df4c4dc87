#include <string.h>

#include "base/clock.h"
#include "base/parse.h"
#include "base/path.h"
#include "gateway/router.h"
#include "volume/snapshot.h"

/* The way back: to an older version of a file, folder or volume, and of all that a run did. */

#define WAIT_DEFAULT 60
#define STEPS_DEFAULT 1000
#define STEPS_MOST 100000

struct way_back {
    struct volume_info info;
    struct volume_ctx ctx;
    struct volume_restore want;
    char path[LIMIT_PATH + 1];
    int64_t wait_s;
    /* What was done and what was left are lists of their own until the answer: the first never crowds out the second. */
    struct exchange_list done, left;
};

static const char *
action_name(enum volume_restore_action action)
{
    static const char *const names[] = {
        [VOLUME_RESTORE_WRITE] = "write",   [VOLUME_RESTORE_CREATE] = "create",
        [VOLUME_RESTORE_REMOVE] = "remove", [VOLUME_RESTORE_RENAME] = "rename",
        [VOLUME_RESTORE_MKDIR] = "mkdir",   [VOLUME_RESTORE_RMDIR] = "rmdir",
        [VOLUME_RESTORE_SKIP] = "skip",
    };
    return (size_t)action < sizeof(names) / sizeof(names[0]) ? names[action] : "skip";
}

static const char *
or_empty(const char *text)
{
    return text ? text : "";
}

static json_t *
step_json(const struct volume_restored *step)
{
    const char *path = or_empty(step->path);
    const char *to = or_empty(step->to);
    const char *version = or_empty(step->version);
    const char *why = or_empty(step->why);
    json_t *object =
        json_pack("{s:s, s:b, s:o, s:I, s:o}", "action", action_name(step->action), "failed",
                  (int)step->failed, "version", json_bytes(version, strlen(version)), "size",
                  (json_int_t)step->size, "why", json_bytes(why, strlen(why)));
    if (object && (gateway_tree_text(object, "path", path, strlen(path)) < 0 ||
                   gateway_tree_text(object, "to", to, strlen(to)) < 0)) {
        json_decref(object);
        return NULL;
    }
    return object;
}

/* A list that is full does not end the work. */
static int
add_step(void *arg, const struct volume_restored *step, struct err *err)
{
    struct way_back *way = arg;
    bool left = step->failed || step->action == VOLUME_RESTORE_SKIP;
    return exchange_list_add(left ? &way->left : &way->done, step_json(step), err) < 0 ? -1 : 0;
}

/* ---- the body ---- */

/* Fields of both calls. */
static int
read_common(struct exchange *x, const json_t *body, struct way_back *way, struct err *err)
{
    const char *volume;
    int64_t limit = STEPS_DEFAULT;
    way->wait_s = WAIT_DEFAULT;
    if (json_need_str(body, "volume", &volume, err) < 0 ||
        json_opt_bool(body, "dry_run", &way->want.dry_run, err) < 0 ||
        json_opt_int(body, "limit", &limit, err) < 0 ||
        json_opt_int(body, "timeout_s", &way->wait_s, err) < 0)
        return -1;
    if (limit < 0 || limit > STEPS_MOST)
        return err_set(err, ERR_INVAL, "limit must be 0 to %d", STEPS_MOST);
    if (way->wait_s < 0 || way->wait_s > 86400)
        return err_set(err, ERR_INVAL, "timeout_s must be 0 to 86400");
    if (volume_find(x->gateway->service, volume, &way->info, err) < 0)
        return -1;
    if (way->info.read_only && !way->want.dry_run)
        return err_set(err, ERR_READ_ONLY, "volume '%s' is read-only", way->info.name);
    /* At once: a frozen volume's own changes never get to the bucket, for which an undo waits first. */
    if (way->info.frozen && !way->want.dry_run)
        return err_set(err, ERR_READ_ONLY,
                       "volume '%s' is frozen by its owner: 'holdfast thaw' ends that",
                       way->info.name);
    way->done.limit = way->left.limit = (uint64_t)limit;
    way->done.room = way->left.room = EXCHANGE_LIST_ROOM / 2;
    way->want.volume = way->info.id;
    way->want.within = gateway_access_within(&x->access);
    way->want.fn = add_step;
    way->want.arg = way;
    exchange_ctx(x, (unsigned)(way->wait_s > 0 ? way->wait_s : WAIT_DEFAULT), &way->ctx);
    return 0;
}

/* "path", or "path_hex" for one that is no text. */
static int
read_path(const json_t *body, char *out, size_t size, struct err *err)
{
    char raw[LIMIT_PATH + 1];
    const char *hex = NULL;
    const char *path = raw;
    size_t len;
    if (json_opt_str(body, "path_hex", &hex, err) < 0)
        return -1;
    if (hex) {
        len = strlen(hex) / 2;
        if (len > LIMIT_PATH || !hex_decode(hex, strlen(hex), raw, len))
            return err_set(err, ERR_INVAL, "path_hex must be the bytes of a path in hexadecimal");
    } else {
        if (json_need_str(body, "path", &path, err) < 0)
            return -1;
        len = strlen(path);
    }
    return path_normalize(path, len, out, size, err) < 0 ? err_wrap(err, "path") : 0;
}

static int
read_restore(struct exchange *x, const json_t *body, struct way_back *way, struct err *err)
{
    const char *at = NULL;
    struct volume_restore *want = &way->want;
    if (read_path(body, way->path, sizeof(way->path), err) < 0 ||
        json_opt_str(body, "version", &want->version, err) < 0 ||
        json_opt_str(body, "at", &at, err) < 0)
        return -1;
    want->path = way->path;
    if (want->version && at)
        return err_set(err, ERR_INVAL, "'version' and 'at' exclude each other");
    if (want->version && (want->version[0] == '\0' || way->path[0] == '\0'))
        return err_set(err, ERR_INVAL,
                       "a version is one file's: for a folder or volume say 'at' which time");
    if (way->path[0] == '\0' && !at)
        return err_set(err, ERR_INVAL, "a whole volume goes back to a time: say 'at' which");
    if (at && volume_snapshot_time(x->gateway->service, way->info.id, at, &want->at_ns, err) < 0)
        return -1;
    if (at && want->at_ns <= 0)
        return err_set(err, ERR_INVAL, "'at' must be a time as in 2026-07-01T10:00:00Z");
    if (at && want->at_ns > clock_wall_ns())
        return err_set(err, ERR_INVAL, "the time '%s' is still to come", at);
    return 0;
}

/* ---- the answer ---- */

/* Whether the bucket has it all: a wait in vain is no failure, for what was done is safe here and goes up by itself. */
static bool
wait_synced(struct exchange *x, const struct way_back *way, uint64_t done)
{
    struct volume_barrier barrier = { 0 };
    struct err ignored = ERR_INIT;
    uint64_t wait = (uint64_t)way->wait_s;
    if (done == 0)
        return true;
    (void)exchange_prefers(x, "wait", &wait);
    if (wait == 0 || exchange_prefers(x, "respond-async", NULL))
        return false;
    int64_t deadline = clock_mono_ns() + (int64_t)(wait < 86400 ? wait : 86400) * NS_PER_S;
    return volume_flush_quietly(x->gateway->service, way->info.id, deadline, &barrier, &ignored) ==
               0 ||
           ignored.code == ERR_CONFLICT;
}

static int
answer(struct exchange *x, struct way_back *way, const struct volume_restore_result *result,
       struct err *err)
{
    bool dry = way->want.dry_run;
    bool synced = dry || wait_synced(x, way, result->done);
    if (json_array_extend(way->done.items, way->left.items) < 0)
        return err_nomem(err);
    return exchange_reply_json(
        x, synced ? 200 : 202,
        json_pack("{s:s, s:s, s:b, s:b, s:I, s:I, s:I, s:O, s:b}", "volume", way->info.name, "run",
                  result->run, "dry_run", (int)dry, "synced", (int)(synced && !dry), "done",
                  (json_int_t)result->done, "skipped", (json_int_t)result->skipped, "failed",
                  (json_int_t)result->failed, "steps", way->done.items, "truncated",
                  (int)(way->done.truncated || way->left.truncated)),
        err);
}

/* What the two calls have in common: fields that only one knows are read by `read`. */
typedef int way_read_fn(struct exchange *x, const json_t *body, struct way_back *way,
                        struct err *err);
typedef int way_go_fn(struct volume_service *service, const struct volume_ctx *ctx,
                      const struct volume_restore *want, struct volume_restore_result *out,
                      struct err *err);

static int
go_back(struct exchange *x, const char *const *known, way_read_fn *read, way_go_fn *go,
        struct err *err)
{
    struct volume_restore_result result = { .run = "" };
    scope_json *done = json_array();
    scope_json *left = json_array();
    scope_json *body = exchange_json(x, err);
    struct way_back way = { .done = { .items = done }, .left = { .items = left } };
    if (!body)
        return -1;
    if (!done || !left)
        return err_nomem(err);
    if (exchange_known_fields(body, known, err) < 0 || read_common(x, body, &way, err) < 0 ||
        read(x, body, &way, err) < 0 ||
        go(x->gateway->service, &way.ctx, &way.want, &result, err) < 0)
        return -1;
    return answer(x, &way, &result, err);
}

int
gateway_restore_path(struct exchange *x, struct err *err)
{
    static const char *const known[] = { "volume",  "path",  "path_hex",  "version", "at",
                                         "dry_run", "limit", "timeout_s", "op",      NULL };
    return go_back(x, known, read_restore, volume_restore, err);
}

static int
read_undo(struct exchange *x, const json_t *body, struct way_back *way, struct err *err)
{
    (void)x;
    if (json_need_str(body, "run", &way->want.run, err) < 0)
        return -1;
    way->want.path = "";
    if (way->want.run[0] == '\0' ||
        strlen(way->want.run) >= sizeof(((struct volume_restore_result *)0)->run))
        return err_set(err, ERR_INVAL, "'run' must be the id of a run");
    return 0;
}

int
gateway_restore_undo(struct exchange *x, struct err *err)
{
    static const char *const known[] = { "volume", "run", "dry_run", "limit", "timeout_s", NULL };
    return go_back(x, known, read_undo, volume_undo, err);
}
