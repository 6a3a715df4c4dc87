#include "volume/preserve_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/log.h"
#include "base/parse.h"
#include "base/scope.h"
#include "base/sys.h"
#include "volume/history_impl.h"

/*
 * HEAD (what the index believes: E1), COPY to the history with If-Match E1, then the write with If-Match E1 (docs/mechanisms.md
 * section 5). The row is there before the copy is asked for, so that a copy that nobody knows of stays the exception: a power cut
 * may forget the row, for what waits for a disk here would hold up each overwrite. The write's attempt is committed FULL behind it.
 */

#define PLAN_AT_MOST 64u
#define FOLLOWERS_MOST 64u

struct preserve {
    struct step *step;
    struct index_history row;
    char to[LIMIT_KEY + 1];
    bool go;
    bool unsure; /* a copy was made while the source changed */
};

bool
preserve_wanted(const struct index_volume *volume, const char *key)
{
    size_t len = strlen(key);
    return volume->history_ns > 0 && len > 0 && key[len - 1] != '/' &&
           strncmp(key, ".holdfast/", 10) != 0;
}

int
preserve_key(const struct index_volume *volume, const char *path, const char *id, char *out,
             struct err *err)
{
    uint8_t digest[SHA256_SIZE];
    char hex[SHA256_HEX];
    int len = snprintf(out, LIMIT_KEY + 1, HISTORY_PREFIX "%s/%s/%s", volume->name, path, id);
    if (len > 0 && len <= LIMIT_KEY && strncmp(path, "~/", 2) != 0)
        return 0;
    if (sha256(path, strlen(path), digest, err) != 0)
        return -1;
    hex_encode(digest, SHA256_SIZE, hex);
    (void)snprintf(out, LIMIT_KEY + 1, HISTORY_PREFIX "%s/~/%s/%s", volume->name, hex, id);
    return 0;
}

int
preserve_drop(struct index_tx *tx, const struct index_history *row, struct err *err)
{
    struct index_volume volume;
    struct index_key key = { .volume = row->volume, .discard = true, .size = row->size };
    if (index_volume_get(tx, row->volume, &volume, err) != 0 ||
        preserve_key(&volume, row->path, row->id, key.key, err) != 0 ||
        index_history_delete(tx, row->id, err) != 0)
        return -1;
    text_set(key.etag, row->etag);
    text_set(key.version, row->version);
    if (index_key_put(tx, &key, err) != 0)
        return -1;
    return key_want_since(tx, row->volume, key.key, 0, err);
}

/* ---- the row ---- */

static const char *
path_of(const struct step *step)
{
    return step->key + strlen(step->kv.volume.prefix);
}

static int
find_begun(void *arg, const struct index_history *row, struct err *err)
{
    struct preserve *call = arg;
    (void)err;
    if (row->state != INDEX_HISTORY_COPYING || row->volume != call->step->volume ||
        strcmp(row->source_etag, call->step->kv.view.have.etag) != 0)
        return 0;
    call->row = *row;
    return 1;
}

/* By clocks of this machine only: the store's and another gateway's may be ahead, and what a snapshot shows would not be pinned. */
static int
see_before(void *arg, const struct index_version *made, struct err *err)
{
    struct index_history *row = arg;
    int64_t time_ns = ulid_time_ms(made->version) * NS_PER_MS;
    (void)err;
    row->made_ns = (time_ns < made->time_ns ? time_ns : made->time_ns) + 1;
    return 1;
}

/* Nobody knows when a foreign version was made, but that it is no older than the file's version that it took the place of. */
static int
fill_foreign(struct index_tx *tx, struct index_history *row, struct err *err)
{
    if (row->version[0] != '\0' || row->node == 0)
        return 0;
    return index_version_of_node(tx, row->node, 1, see_before, row, err);
}

/* Who made it: as it was recorded when it was synced. A foreign version is nobody's. */
static int
fill_maker(struct index_tx *tx, const struct sync_view *view, struct index_history *row,
           struct err *err)
{
    struct index_version made;
    struct err missing = ERR_INIT;
    row->node = view->have.owner > 0 ? view->have.owner : 0;
    if (row->version[0] == '\0')
        return 0;
    if (history_made(tx, row->version, &row->made_ns, err) != 0)
        return -1;
    if (index_version_find(tx, row->version, &made, &missing) != 0) {
        if (missing.code == ERR_NOT_FOUND)
            return 0;
        *err = missing;
        return -1;
    }
    if (made.volume == row->volume)
        row->node = made.node;
    text_set(row->base_version, made.base_version);
    text_set(row->actor, made.actor);
    text_set(row->run, made.run);
    return 0;
}

/* What was made from it, at the file's new place. */
static int
find_follower(void *arg, const struct index_version *made, struct err *err)
{
    struct index_history *row = arg;
    (void)err;
    if (strcmp(made->base_version, row->version) != 0)
        return 0;
    text_set(row->gone_actor, made->actor);
    text_set(row->gone_run, made->run);
    return 1;
}

/* Its path is the file's of now: that goes with the time. */
static int
fill_moved(struct index_tx *tx, struct index_history *row, struct err *err)
{
    struct err missing = ERR_INIT;
    char path[LIMIT_PATH + 1];
    if (index_node_path(tx, row->node, path, sizeof(path), &missing) == 0)
        text_set(row->path, path);
    else if (missing.code != ERR_NOT_FOUND)
        return err_set(err, missing.code, "%s", missing.msg);
    return index_version_of_node(tx, row->node, FOLLOWERS_MOST, find_follower, row, err);
}

/* Who ends it: who removed the name, else who wrote what comes. */
static int
fill_end(struct index_tx *tx, const struct step *step, struct index_history *row, struct err *err)
{
    const struct sync_want *want = &step->kv.view.want;
    struct index_change change;
    struct err missing = ERR_INIT;
    bool removed = index_change_of_key(tx, step->key, &change, &missing) == 0;
    if (!removed && missing.code != ERR_NOT_FOUND) {
        *err = missing;
        return -1;
    }
    removed = removed && strcmp(change.version, row->version) == 0 && change.volume == row->volume;
    row->gone_ns = clock_wall_ns();
    if (removed) {
        text_set(row->gone_op, want->present ? "replace" : "delete");
        text_set(row->gone_actor, change.actor);
        text_set(row->gone_run, change.run);
        row->gone_ns = change.time_ns;
        text_set(row->path, change.path); /* its object may not have followed a move yet */
        if (row->node == 0)
            row->node = change.node;
    } else if (want->present) {
        text_set(row->gone_op, want->node == row->node ? "write" : "replace");
        text_set(row->gone_actor, step->kv.content.actor);
        text_set(row->gone_run, step->kv.content.run);
    } else {
        text_set(row->gone_op, "move"); /* newer bytes of the file lie at its new place */
        return fill_moved(tx, row, err);
    }
    return 0;
}

static int
plan_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct preserve *call = arg;
    struct step *step = call->step;
    const struct sync_have *have = &step->kv.view.have;
    struct index_history *row = &call->row;
    call->go = false;
    if (step_decide_tx(tx, step, err) != 0)
        return -1;
    if (step->decision.action != SYNC_PRESERVE)
        return 0;
    call->go = true;
    memset(row, 0, sizeof(*row));
    int rc = have->version[0] != '\0'
                 ? index_history_of_version(tx, have->version, find_begun, call, err)
                 : index_history_at(tx, step->volume, path_of(step), PLAN_AT_MOST, find_begun, call,
                                    err);
    if (rc != 0)
        return -1;
    if (row->id[0] == '\0') {
        if (ulid_new(row->id, err) != 0)
            return -1;
        row->volume = step->volume;
        row->state = INDEX_HISTORY_COPYING;
        row->size = have->size;
        text_set(row->version, have->version);
        text_set(row->source_etag, have->etag);
        text_set(row->sha256, have->sha256);
        text_set(row->path, path_of(step));
        if (fill_maker(tx, &step->kv.view, row, err) != 0 || fill_end(tx, step, row, err) != 0 ||
            fill_foreign(tx, row, err) != 0 || index_history_put(tx, row, err) != 0)
            return -1;
    }
    return preserve_key(&step->kv.volume, row->path, row->id, call->to, err);
}

static int
kept_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct preserve *call = arg;
    struct index_key key;
    struct err missing = ERR_INIT;
    call->row.state = INDEX_HISTORY_KEPT;
    if (index_history_put(tx, &call->row, err) != 0)
        return -1;
    if (index_key_get(tx, call->step->key, &key, &missing) == 0) {
        key.kept = 1;
        if (strcmp(key.etag, call->row.source_etag) == 0 && index_key_put(tx, &key, err) != 0)
            return -1;
    } else if (missing.code != ERR_NOT_FOUND) {
        *err = missing;
        return -1;
    }
    return step_advance(call->step, tx, err);
}

/* Something else lies there by now. A copy of what the row says may be there all the same, of a request whose answer was lost; what
 * others replaced meanwhile is kept by it. One that was taken of who knows what goes. */
static int
changed_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct preserve *call = arg;
    if (call->row.etag[0] == '\0')
        return index_history_delete(tx, call->row.id, err);
    if (call->unsure)
        return preserve_drop(tx, &call->row, err);
    call->row.state = INDEX_HISTORY_KEPT;
    text_set(call->row.gone_op, "foreign");
    call->row.gone_actor[0] = call->row.gone_run[0] = '\0';
    return index_history_put(tx, &call->row, err);
}

/* ---- the copy ---- */

/* Where the path's name had to be shortened, it stands in an object of its own; the same for all copies of the path. */
static int
note_path(struct volume_service *service, const struct preserve *call, struct err *err)
{
    char key[LIMIT_KEY + 1];
    struct store_put_result result;
    struct err local = ERR_INIT;
    const char *name = strrchr(call->to, '/');
    size_t dir = (size_t)(name + 1 - call->to);
    const char *tail = call->to + sizeof(HISTORY_PREFIX) - 1 + strlen(call->step->kv.volume.name);
    if (strncmp(tail, "/~/", 3) != 0)
        return 0;
    (void)snprintf(key, sizeof(key), "%.*spath", (int)dir, call->to);
    if (store_put_small(service->store, key, call->row.path, strlen(call->row.path),
                        (struct store_cond){ .kind = STORE_COND_ABSENT }, &result, &local) == 0 ||
        local.code == ERR_CONFLICT)
        return 0;
    *err = local;
    return -1;
}

struct carry {
    int fd;
    uint64_t off;
};

static int
take(void *arg, const void *data, size_t len, struct err *err)
{
    struct carry *carry = arg;
    if (sys_write_full(carry->fd, data, len, (off_t)carry->off, err) != 0)
        return -1;
    carry->off += len;
    return 0;
}

/* A store that cannot copy: the bytes go through here. */
int
preserve_carry(struct volume_service *service, const struct store_copy *copy,
               struct store_put_result *result, struct err *err)
{
    struct store_object object;
    scope_fd int fd = sys->openat(service->state_fd, ".", O_TMPFILE | O_RDWR, 0600);
    if (fd < 0)
        return err_sys(err, errno, "cannot make a file in the state directory");
    struct carry carry = { .fd = fd };
    struct store_get get = {
        .key = copy->from, .if_match = copy->from_if_match, .sink = take, .sink_arg = &carry
    };
    store_object_init(&object);
    int rc = store_get(service->store, &get, &object, err);
    if (rc == 0) {
        struct store_put put = { .key = copy->to,
                                 .meta = &object.meta,
                                 .content_type = object.content_type,
                                 .placement = copy->placement,
                                 .body = { .fd = fd, .size = carry.off } };
        rc = store_put(service->store, &put, result, err);
    }
    store_object_release(&object);
    return rc;
}

/* Where the store does not judge the source's ETag, the source is looked at once more. */
static int
verify(struct step *step, const struct store_put_result *result, struct err *err)
{
    struct store_object object;
    const char *etag = step->kv.view.have.etag;
    if (step->service->store->caps.copy_source_if_match == STORE_YES ||
        strcmp(result->etag, etag) == 0)
        return 0;
    store_object_init(&object);
    int rc = store_head(step->service->store, step->key, 0, &object, err);
    if (rc == 0 && strcmp(object.etag, etag) != 0)
        rc = err_set(err, ERR_CONFLICT, "it was replaced while it was copied");
    store_object_release(&object);
    return rc;
}

/* Sets the row's ETag when a copy is there. */
static int
copy(struct preserve *call, struct err *err)
{
    struct step *step = call->step;
    struct volume_service *service = step->service;
    struct store_put_result result = { .outcome = STORE_NOT_DONE };
    struct object_room room;
    struct store_placement placement;
    struct store_copy copy = { .from = step->key,
                               .from_if_match = step->kv.view.have.etag,
                               .to = call->to,
                               .from_size = step->kv.view.have.size,
                               .placement = object_placement(&step->kv.volume, &room, &placement) };
    int rc = note_path(service, call, err);
    if (rc == 0 && service->store->caps.server_side_copy == STORE_NO)
        rc = preserve_carry(service, &copy, &result, err);
    else if (rc == 0)
        rc = store_copy(service->store, &copy, &result, err);
    if (rc != 0)
        return -1;
    text_set(call->row.etag, result.etag);
    rc = verify(step, &result, err);
    call->unsure = rc != 0;
    return rc;
}

/* The source is another one now: whether an earlier request made the copy. */
static int
look_for_copy(struct preserve *call, struct err *err)
{
    struct store_object object;
    struct err local = ERR_INIT;
    if (call->unsure)
        return 0;
    store_object_init(&object);
    int rc = store_head(call->step->service->store, call->to, 0, &object, &local);
    if (rc == 0 && object.size == call->row.size)
        text_set(call->row.etag, object.etag);
    store_object_release(&object);
    if (rc == 0 || local.code == ERR_NOT_FOUND)
        return 0;
    *err = local;
    return -1;
}

static int
source_changed(struct preserve *call, struct err *err)
{
    struct step *step = call->step;
    struct err why = ERR_INIT;
    if (look_for_copy(call, &why) != 0)
        return step_give_up(step, &why, err);
    if (step_commit_arg(step, changed_tx, call, err) != 0)
        return -1;
    return step_request_look(step, err);
}

int
preserve_step(struct step *step, struct err *err)
{
    scope_free struct preserve *call = calloc(1, sizeof(*call));
    struct err why = ERR_INIT;
    if (call == NULL)
        return err_nomem(err);
    call->step = step;
    if (step_commit_arg(step, plan_tx, call, err) != 0)
        return -1;
    if (!call->go)
        return 0;
    int rc = copy(call, &why);
    log_debug(sync, "keep key=%s as=%s%s%s", step->key, call->to,
              rc == 0 ? "" : " why=", rc == 0 ? "" : why.msg);
    if (rc != 0 && (why.code == ERR_CONFLICT || why.code == ERR_NOT_FOUND))
        return source_changed(call, err);
    service_store_seen(step->service, rc == 0 ? NULL : &why);
    return rc == 0 ? step_commit_arg(step, kept_tx, call, err) : step_give_up(step, &why, err);
}

/* ---- versions that were replaced before the bucket had them ---- */

static void
fill_staged(const struct index_node *node, const struct index_content *content,
            const struct volume_ctx *ctx, struct index_history *row)
{
    row->volume = node->volume;
    row->node = node->id;
    row->state = INDEX_HISTORY_STAGED;
    row->content = content->id;
    row->size = content->size;
    row->mode = node->mode;
    row->uid = node->uid;
    row->gid = node->gid;
    row->mtime_ns = content->mtime_ns;
    row->made_ns = ulid_time_ms(content->version) * NS_PER_MS;
    row->gone_ns = clock_wall_ns();
    text_set(row->version, content->version);
    text_set(row->base_version, content->base_version);
    text_set(row->sha256, content->sha256);
    text_set(row->actor, content->actor);
    text_set(row->run, content->run);
    if (ctx->actor != NULL)
        text_copy(row->gone_actor, sizeof(row->gone_actor), ctx->actor);
    if (ctx->run != NULL)
        text_copy(row->gone_run, sizeof(row->gone_run), ctx->run);
}

int
preserve_staged(struct volume_service *service, struct index_tx *tx, const struct volume_ctx *ctx,
                struct index_node *node, const char *op, struct err *err)
{
    struct index_content content;
    struct index_history row = { .state = INDEX_HISTORY_STAGED };
    struct index_volume volume;
    char key[LIMIT_KEY + 1];
    bool linked = (node->flags & (INDEX_NODE_LINK | INDEX_NODE_LINKED)) != 0;
    if (node->kind != INDEX_FILE || linked || node->content == 0)
        return 0;
    if (index_content_get(tx, node->content, &content, err) != 0 ||
        index_volume_get(tx, node->volume, &volume, err) != 0)
        return -1;
    if (volume.history_ns == 0 || content.state != CONTENT_FROZEN ||
        (content.flags & (CONTENT_ACKED | CONTENT_COMPLETE)) != (CONTENT_ACKED | CONTENT_COMPLETE))
        return 0;
    fill_staged(node, &content, ctx, &row);
    text_set(row.gone_op, op);
    content.node = 0;
    content.flags |= CONTENT_PINNED;
    node->content = 0;
    if (ulid_new(row.id, err) != 0 ||
        index_node_path(tx, node->id, row.path, sizeof(row.path), err) != 0 ||
        preserve_key(&volume, row.path, row.id, key, err) != 0 ||
        index_content_update(tx, &content, err) != 0 || index_history_put(tx, &row, err) != 0)
        return -1;
    cache_pin(service->cache, content.id);
    return key_want_since(tx, node->volume, key, 0, err);
}

int
preserve_synced(struct index_tx *tx, struct view_change *change, struct err *err)
{
    struct index_history row;
    struct err missing = ERR_INIT;
    int64_t content = -change->effect->node;
    const char *id = strrchr(change->key, '/') + 1;
    if (index_history_get(tx, id, &row, &missing) != 0) {
        if (missing.code != ERR_NOT_FOUND)
            return err_set(err, missing.code, "%s", missing.msg);
    } else if (row.content == content) {
        row.state = INDEX_HISTORY_KEPT;
        row.content = 0;
        text_set(row.etag, change->effect->have.etag);
        text_set(row.source_etag, change->effect->have.etag);
        text_set(row.sha256, change->effect->have.sha256);
        if (index_history_put(tx, &row, err) != 0)
            return -1;
    }
    if (drop_add(change->drop, content, err) != 0)
        return -1;
    return index_content_delete(tx, content, err);
}
