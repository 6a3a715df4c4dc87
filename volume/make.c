#include <sys/stat.h>

#include "base/path.h"
#include "volume/audit.h"
#include "volume/form_impl.h"
#include "volume/preserve_impl.h"

/* mkdir, symlink, mknod: each is one index transaction. */

struct make_call {
    struct volume_service *service;
    const struct volume_ctx *ctx;
    const struct volume_name *at;
    enum index_kind kind;
    uint32_t mode;
    uint64_t rdev;
    const char *target;
    struct index_node node;
    struct volume_attr *attr;
    bool replayed;
    bool looked; /* the folder was asked for the name */
    bool unsure; /* it has to be, first */
    char path[LIMIT_PATH + 1];
};

/* The folder must be known before anybody may say that the name is free. */
static int
must_look(struct index_tx *tx, struct make_call *call, struct err *err)
{
    struct index_node dir;
    if (call->looked)
        return 0;
    if (index_node_get(tx, call->at->parent, &dir, err) != 0)
        return -1;
    call->unsure = !service_listed_lately(call->service, &dir);
    return call->unsure ? err_set(err, ERR_AGAIN, "the folder has to be listed first") : 0;
}

static int
make_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct make_call *call = arg;
    struct index_node dir;
    struct node_kind kind = { .kind = call->kind,
                              .mode = call->mode,
                              .flags = call->kind == INDEX_DIR ? INDEX_NODE_MARKER : 0u,
                              .target = call->target };
    char key[LIMIT_KEY + 1];
    call->replayed = answer_replay(tx, call->ctx, call->attr);
    if (call->replayed)
        return 0;
    rest_begin(call->service, call->ctx, tx);
    if (must_look(tx, call, err) != 0 ||
        node_parent_writable(call->service, tx, call->ctx, call->at->parent, err) != 0 ||
        form_check(call->service, tx, call->at, err) != 0 ||
        index_content_number(tx, &kind.content, err) != 0 ||
        node_make(tx, call->ctx, call->at, &kind, &call->node, err) != 0)
        return -1;
    if (call->kind == INDEX_SPECIAL) {
        special_set(&call->node, call->mode, call->rdev);
        if (index_node_update(tx, &call->node, err) != 0)
            return -1;
    }
    if (node_insert_inline(tx, &call->node, &kind.content, err) != 0 ||
        key_of_node(tx, &call->node, key, err) != 0 ||
        key_want_sync(tx, call->node.volume, key, 0, err) != 0 ||
        change_note(tx, call->ctx, CHANGE_MAKE, &call->node, NULL, err) != 0 ||
        attr_fill(tx, &call->node, call->attr, err) != 0 ||
        index_node_path(tx, call->node.id, call->path, sizeof(call->path), err) != 0 ||
        index_node_get(tx, call->at->parent, &dir, err) != 0)
        return -1;
    attr_believe(call->service, &dir, call->attr);
    return answer_record(tx, call->ctx, call->attr, err);
}

static int
look(struct make_call *call, struct err *err)
{
    struct volume_attr found;
    struct err local = ERR_INIT;
    call->looked = true;
    if (volume_lookup(call->service, call->ctx,
                      &(struct volume_name){ call->at->parent, call->at->name, call->at->len },
                      &found, &local) == 0)
        return err_set(err, ERR_EXISTS, "'%.*s' exists", (int)call->at->len, call->at->name);
    if (local.code == ERR_NOT_FOUND)
        return 0;
    *err = local;
    return -1;
}

static void
note_made(const struct make_call *call)
{
    const char *verb = call->kind == INDEX_DIR       ? "mkdir"
                       : call->kind == INDEX_SYMLINK ? "symlink"
                                                     : "mknod";
    volume_audit_act(call->service, call->ctx,
                     (struct audit_record){ .verb = verb,
                                            .volume = call->node.volume,
                                            .path = call->path,
                                            .detail = call->target,
                                            .bytes = -1 });
}

static int
make_inline(struct make_call *call, struct err *err)
{
    struct err local = ERR_INIT;
    int rc = index_write(call->service->index, INDEX_NORMAL, make_tx, call, &local);
    if (rc != 0 && call->unsure) {
        if (look(call, err) != 0)
            return -1;
        call->unsure = false;
        local = (struct err)ERR_INIT;
        rc = index_write(call->service->index, INDEX_NORMAL, make_tx, call, &local);
    }
    if (rc != 0) {
        *err = local;
        return -1;
    }
    if (!call->replayed) {
        note_made(call);
        rest_kick(call->service, call->ctx);
        event_emit(call->service, VOLUME_EVENT_CREATED, &call->node, call->ctx->connection);
        event_settle(call->service, call->ctx);
    }
    return 0;
}

int
volume_mkdir(struct volume_service *service, const struct volume_ctx *ctx,
             const struct volume_name *at, uint32_t mode, struct volume_attr *out, struct err *err)
{
    struct make_call call = { .service = service,
                              .ctx = ctx,
                              .at = at,
                              .kind = INDEX_DIR,
                              .mode = S_IFDIR | (mode & 07777),
                              .attr = out };
    return make_inline(&call, err);
}

int
volume_symlink(struct volume_service *service, const struct volume_ctx *ctx,
               const struct volume_name *at, const char *target, struct volume_attr *out,
               struct err *err)
{
    size_t len = strlen(target);
    if (len == 0 || len > LIMIT_SYMLINK)
        return err_set(err, len == 0 ? ERR_NOT_FOUND : ERR_NAME_TOO_LONG,
                       "the link's target is empty or too long");
    struct make_call call = { .service = service,
                              .ctx = ctx,
                              .at = at,
                              .kind = INDEX_SYMLINK,
                              .mode = S_IFLNK | 0777,
                              .target = target,
                              .attr = out };
    return make_inline(&call, err);
}

int
volume_mknod(struct volume_service *service, const struct volume_ctx *ctx,
             const struct volume_node *special, struct volume_attr *out, struct err *err)
{
    struct make_call call = { .service = service,
                              .ctx = ctx,
                              .at = &special->at,
                              .kind = INDEX_SPECIAL,
                              .mode = special->mode,
                              .rdev = special->rdev,
                              .attr = out };
    if (!special_mode(special->mode))
        return err_set(err, ERR_INVAL, "not the mode of a fifo, socket or device");
    return make_inline(&call, err);
}

int
volume_make_dirs(struct volume_service *service, const struct volume_ctx *ctx, int64_t volume,
                 const char *path, struct volume_attr *out, struct err *err)
{
    if (path_check(path, strlen(path), err) != 0 ||
        volume_resolve(service, ctx, volume, "", out, err) != 0)
        return -1;
    const char *rest = path;
    size_t rest_len = strlen(path);
    struct volume_name at;
    while (path_next(&rest, &rest_len, &at.name, &at.len)) {
        struct err local = ERR_INIT;
        at.parent = out->node;
        if (volume_lookup(service, ctx, &(struct volume_name){ at.parent, at.name, at.len }, out,
                          &local) != 0) {
            if (local.code != ERR_NOT_FOUND) {
                *err = local;
                return -1;
            }
            if (volume_mkdir(service, ctx, &at, 0755, out, &local) != 0 &&
                (local.code != ERR_EXISTS ||
                 volume_lookup(service, ctx, &(struct volume_name){ at.parent, at.name, at.len },
                               out, &local) != 0)) {
                *err = local;
                return -1;
            }
        }
        if (out->kind != INDEX_DIR)
            return err_set(err, ERR_NOT_DIR, "'%.*s' is not a folder", (int)at.len, at.name);
    }
    return 0;
}
