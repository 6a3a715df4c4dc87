#include <assert.h>
#include <linux/fs.h>
#include <sys/stat.h>

#include "base/hash.h"
#include "base/parse.h"
#include "base/path.h"
#include "base/scope.h"
#include "volume/service_impl.h"

/* Changes of names: each is one index transaction, whatever lies below; the objects follow (docs/mechanisms.md section 7). */

int
answer_record(struct index_tx *tx, const struct volume_ctx *ctx, const struct volume_attr *attr,
              struct err *err)
{
    static const struct volume_attr none;
    if (ctx->connection == 0 || ctx->unique == 0)
        return 0;
    return index_answer_put(tx, ctx->connection, ctx->slot, ctx->unique,
                            attr == NULL ? &none : attr, sizeof(none), err);
}

bool
answer_replay(struct index_tx *tx, const struct volume_ctx *ctx, struct volume_attr *attr)
{
    struct volume_attr stored;
    size_t len = 0;
    struct err ignored = ERR_INIT;
    if (!ctx->resent || ctx->connection == 0 || ctx->unique == 0)
        return false;
    if (index_answer_get(tx, ctx->connection, ctx->unique, &stored, sizeof(stored), &len,
                         &ignored) != 0 ||
        len != sizeof(stored))
        return false;
    if (attr != NULL)
        *attr = stored;
    return true;
}

int
service_may_write(struct volume_service *service, const struct volume_ctx *ctx,
                  const struct index_volume *volume, struct err *err)
{
    if (ctx->read_only)
        return err_set(err, ERR_READ_ONLY, "mounted read-only");
    if (volume->read_only)
        return err_set(err, ERR_READ_ONLY, "volume '%s' is read-only", volume->name);
    if (atomic_load(&service->read_only))
        return err_set(err, ERR_READ_ONLY, "the gateway's own disk failed: see holdfast status");
    return 0;
}

int
service_may_grow(struct index_tx *tx, const struct index_volume *volume, uint64_t more,
                 struct err *err)
{
    uint64_t files = 0, bytes = 0, after;
    if (volume->quota == 0)
        return 0;
    if (index_node_usage(tx, volume->id, &files, &bytes, err) != 0)
        return -1;
    if (bytes >= volume->quota || !checked_add(bytes, more, &after) || after > volume->quota)
        return err_set(err, ERR_QUOTA,
                       "volume '%s' is at its quota of %llu bytes: remove files or raise it",
                       volume->name, (unsigned long long)volume->quota);
    return 0;
}

int
node_touch_dir(struct index_tx *tx, int64_t dir, struct err *err)
{
    struct index_node node;
    if (index_node_get(tx, dir, &node, err) != 0)
        return -1;
    node.mtime_ns = node.ctime_ns = clock_wall_ns();
    return index_node_update(tx, &node, err);
}

int
node_stage_inline(struct index_tx *tx, struct index_node *node, struct err *err)
{
    struct index_content content = { .node = node->id,
                                     .volume = node->volume,
                                     .state = CONTENT_FROZEN,
                                     .flags = CONTENT_ACKED | CONTENT_DURABLE | CONTENT_COMPLETE };
    const char *bytes = node->kind == INDEX_SYMLINK ? node->target : "";
    content.size = strlen(bytes);
    content.mtime_ns = node->mtime_ns;
    text_set(content.base_version, node->version);
    text_set(content.base_etag, node->etag);
    uint8_t digest[SHA256_SIZE];
    if (ulid_new(content.version, err) != 0 || sha256(bytes, content.size, digest, err) != 0)
        return -1;
    hex_encode(digest, SHA256_SIZE, content.sha256);
    if (md5(bytes, content.size, digest, err) != 0)
        return -1;
    hex_encode(digest, MD5_SIZE, content.md5);
    if (node->content != 0 && index_content_delete(tx, node->content, err) != 0)
        return -1;
    if (index_content_insert(tx, &content, err) != 0)
        return -1;
    node->content = content.id;
    return 0;
}

int
node_want_marker(struct index_tx *tx, struct index_node *dir, struct err *err)
{
    char key[LIMIT_KEY + 1];
    if (dir->parent == 0)
        return 0;
    dir->flags |= INDEX_NODE_MARKER;
    if (node_stage_inline(tx, dir, err) != 0 || index_node_update(tx, dir, err) != 0 ||
        key_of_node(tx, dir, key, err) != 0)
        return -1;
    return key_want_sync(tx, dir->volume, key, 0, err);
}

static bool
reserved_name(const struct index_volume *volume, const struct volume_name *at)
{
    static const char ours[] = ".holdfast";
    return volume->prefix[0] == '\0' && at->parent == volume->root && at->len == sizeof(ours) - 1 &&
           memcmp(at->name, ours, at->len) == 0;
}

/* Whether the name may be given in this folder, and is free. */
static int
check_free(struct index_tx *tx, const struct volume_name *at, struct index_node *parent,
           struct err *err)
{
    struct index_node taken;
    struct index_volume volume;
    struct err missing = ERR_INIT;
    if (path_check_name(at->name, at->len, err) != 0 ||
        index_node_get(tx, at->parent, parent, err) != 0 ||
        index_volume_get(tx, parent->volume, &volume, err) != 0)
        return -1;
    if (parent->kind != INDEX_DIR)
        return err_set(err, ERR_NOT_DIR, "not a folder");
    if ((parent->flags & INDEX_NODE_ORPHAN) != 0)
        return err_set(err, ERR_NOT_FOUND, "the folder was removed");
    if (reserved_name(&volume, at))
        return err_set(err, ERR_PERM, "the name '.holdfast' is taken by Holdfast itself here");
    if (index_node_child(tx, at->parent, at->name, at->len, &taken, &missing) == 0)
        return err_set(err, ERR_EXISTS, "'%.*s' exists", (int)at->len, at->name);
    if (missing.code != ERR_NOT_FOUND) {
        *err = missing;
        return -1;
    }
    return 0;
}

int
node_make(struct index_tx *tx, const struct volume_ctx *ctx, const struct volume_name *at,
          const struct node_kind *kind, struct index_node *out, struct err *err)
{
    struct index_node parent;
    char key[LIMIT_KEY + 1];
    if (check_free(tx, at, &parent, err) != 0)
        return -1;
    memset(out, 0, sizeof(*out));
    out->volume = parent.volume;
    out->parent = at->parent;
    out->name_len = (uint16_t)at->len;
    memcpy(out->name, at->name, at->len);
    out->kind = kind->kind;
    out->mode = kind->mode;
    out->uid = ctx->uid;
    out->gid = (parent.mode & S_ISGID) != 0 ? parent.gid : ctx->gid;
    out->mtime_ns = out->ctime_ns = clock_wall_ns();
    if (kind->kind == INDEX_DIR)
        out->listed_ns = out->mtime_ns;
    if (ulid_new(out->ulid, err) != 0 || index_node_insert(tx, out, err) != 0 ||
        key_of_node(tx, out, key, err) != 0)
        return -1;
    return node_touch_dir(tx, at->parent, err);
}

/* ---- mkdir, symlink ---- */

struct make_call {
    struct volume_service *service;
    const struct volume_ctx *ctx;
    const struct volume_name *at;
    enum index_kind kind;
    uint32_t mode;
    const char *target;
    struct index_node node;
    struct volume_attr *attr;
    bool replayed;
};

static int
check_parent_writable(struct volume_service *service, struct index_tx *tx,
                      const struct volume_ctx *ctx, int64_t parent, struct err *err)
{
    struct index_node node;
    struct index_volume volume;
    if (index_node_get(tx, parent, &node, err) != 0 ||
        index_volume_get(tx, node.volume, &volume, err) != 0)
        return -1;
    return service_may_write(service, ctx, &volume, err);
}

static int
make_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct make_call *call = arg;
    char key[LIMIT_KEY + 1];
    call->replayed = answer_replay(tx, call->ctx, call->attr);
    if (call->replayed)
        return 0;
    if (check_parent_writable(call->service, tx, call->ctx, call->at->parent, err) != 0 ||
        node_make(tx, call->ctx, call->at, &(struct node_kind){ call->kind, call->mode },
                  &call->node, err) != 0)
        return -1;
    if (call->target != NULL)
        text_set(call->node.target, call->target);
    if (call->kind == INDEX_DIR)
        call->node.flags |= INDEX_NODE_MARKER;
    if (node_stage_inline(tx, &call->node, err) != 0 ||
        index_node_update(tx, &call->node, err) != 0 ||
        key_of_node(tx, &call->node, key, err) != 0 ||
        key_want_sync(tx, call->node.volume, key, 0, err) != 0 ||
        attr_fill(tx, &call->node, call->attr, err) != 0)
        return -1;
    return answer_record(tx, call->ctx, call->attr, err);
}

static int
make_inline(struct make_call *call, struct err *err)
{
    struct volume_attr parent;
    /* The folder must be known before anybody may say that the name is free. */
    struct err local = ERR_INIT;
    if (volume_lookup(call->service, call->ctx, call->at->parent, call->at->name, call->at->len,
                      &parent, &local) == 0 &&
        !call->ctx->resent)
        return err_set(err, ERR_EXISTS, "'%.*s' exists", (int)call->at->len, call->at->name);
    if (local.code != ERR_NOT_FOUND && !call->ctx->resent) {
        *err = local;
        return -1;
    }
    if (index_write(call->service->index, INDEX_NORMAL, make_tx, call, err) != 0)
        return -1;
    if (!call->replayed) {
        sync_kick(call->service);
        event_emit(call->service, VOLUME_EVENT_CREATED, &call->node, call->ctx->connection);
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
        if (volume_lookup(service, ctx, at.parent, at.name, at.len, out, &local) != 0) {
            if (local.code != ERR_NOT_FOUND) {
                *err = local;
                return -1;
            }
            if (volume_mkdir(service, ctx, &at, 0755, out, &local) != 0 &&
                (local.code != ERR_EXISTS ||
                 volume_lookup(service, ctx, at.parent, at.name, at.len, out, &local) != 0)) {
                *err = local;
                return -1;
            }
        }
        if (out->kind != INDEX_DIR)
            return err_set(err, ERR_NOT_DIR, "'%.*s' is not a folder", (int)at.len, at.name);
    }
    return 0;
}

/* ---- taking names away ---- */

struct contents_call {
    struct index_tx *tx;
    int64_t keep;
    int64_t id[32];
    size_t count;
};

static int
collect_content(void *arg, const struct index_content *row, struct err *err)
{
    struct contents_call *call = arg;
    (void)err;
    if (row->id != call->keep && call->count < 32)
        call->id[call->count++] = row->id;
    return 0;
}

int
node_drop_contents(struct index_tx *tx, int64_t node, int64_t keep, struct drop_list *drop,
                   struct err *err)
{
    struct contents_call call = { .tx = tx, .keep = keep };
    do {
        call.count = 0;
        if (index_content_of_node(tx, node, collect_content, &call, err) != 0)
            return -1;
        for (size_t i = 0; i < call.count; i++) {
            if (index_content_delete(tx, call.id[i], err) != 0 ||
                drop_add(drop, call.id[i], err) != 0)
                return -1;
        }
    } while (call.count == 32);
    return 0;
}

int
node_unname(struct volume_service *service, struct index_tx *tx, struct index_node *node,
            bool discard_object, struct drop_list *drop, struct err *err)
{
    char home[LIMIT_KEY + 1];
    if (key_of_node(tx, node, home, err) != 0 || key_want_sync(tx, node->volume, home, 0, err) != 0)
        return -1;
    if (discard_object && key_discard(tx, node->volume, node->key, err) != 0)
        return -1;
    if (inode_open_count(&service->inodes, node->id) == 0) {
        if (node_drop_contents(tx, node->id, 0, drop, err) != 0)
            return -1;
        return index_node_delete(tx, node->id, err);
    }
    /* An orphan keeps its row and bytes until the last close; its name must not stand in anybody's way. */
    node->flags |= INDEX_NODE_ORPHAN;
    node->parent = 0;
    node->ctime_ns = clock_wall_ns();
    node->name_len =
        (uint16_t)snprintf(node->name, sizeof(node->name), "#%lld", (long long)node->id);
    return index_node_update(tx, node, err);
}

struct remove_call {
    struct volume_service *service;
    const struct volume_ctx *ctx;
    const struct volume_name *at;
    bool dir;
    const struct precondition *pre;
    struct index_node node;
    struct drop_list drop;
    bool replayed;
};

static int
keep_empty_parent(struct index_tx *tx, int64_t parent, struct err *err)
{
    struct index_node dir;
    bool children = false;
    if (index_node_get(tx, parent, &dir, err) != 0 ||
        index_node_has_children(tx, parent, &children, err) != 0)
        return -1;
    if (children || (dir.flags & INDEX_NODE_MARKER) != 0)
        return 0;
    return node_want_marker(tx, &dir, err);
}

static int
check_removable(struct index_tx *tx, struct remove_call *call, struct err *err)
{
    struct index_node *node = &call->node;
    struct volume_attr attr;
    bool children = false;
    if (call->dir && node->kind != INDEX_DIR)
        return err_set(err, ERR_NOT_DIR, "'%s' is not a folder", node->name);
    if (!call->dir && node->kind == INDEX_DIR)
        return err_set(err, ERR_IS_DIR, "'%s' is a folder", node->name);
    if (node->kind == INDEX_DIR && index_node_has_children(tx, node->id, &children, err) != 0)
        return -1;
    if (children)
        return err_set(err, ERR_NOT_EMPTY, "folder '%s' is not empty", node->name);
    if (call->pre == NULL)
        return 0;
    if (attr_fill(tx, node, &attr, err) != 0)
        return -1;
    if (!precondition_holds(call->pre, attr.version))
        return err_set(err, ERR_CONFLICT, "'%s' was changed meanwhile (now version %s)", node->name,
                       attr.version);
    return 0;
}

static int
remove_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct remove_call *call = arg;
    call->replayed = answer_replay(tx, call->ctx, NULL);
    if (call->replayed)
        return 0;
    if (check_parent_writable(call->service, tx, call->ctx, call->at->parent, err) != 0 ||
        index_node_child(tx, call->at->parent, call->at->name, call->at->len, &call->node, err) !=
            0 ||
        check_removable(tx, call, err) != 0)
        return -1;
    struct index_node gone = call->node;
    if (node_unname(call->service, tx, &gone, true, &call->drop, err) != 0 ||
        node_touch_dir(tx, call->at->parent, err) != 0 ||
        keep_empty_parent(tx, call->at->parent, err) != 0)
        return -1;
    return answer_record(tx, call->ctx, NULL, err);
}

/* A folder may only be called empty when the bucket was asked. */
static int
know_folder(struct volume_service *service, const struct volume_ctx *ctx, int64_t dir,
            struct err *err)
{
    struct volume_attr ignored;
    struct err local = ERR_INIT;
    if (volume_lookup(service, ctx, dir, "\x01", 1, &ignored, &local) == 0 ||
        local.code == ERR_NOT_FOUND)
        return 0;
    *err = local;
    return -1;
}

int
volume_remove(struct volume_service *service, const struct volume_ctx *ctx,
              const struct volume_name *at, bool dir, const struct precondition *pre,
              struct err *err)
{
    struct remove_call call = { .service = service, .ctx = ctx, .at = at, .dir = dir, .pre = pre };
    struct volume_attr attr;
    if (!ctx->resent) {
        if (volume_lookup(service, ctx, at->parent, at->name, at->len, &attr, err) != 0)
            return -1;
        if (attr.kind == INDEX_DIR && know_folder(service, ctx, attr.node, err) != 0)
            return -1;
    }
    int rc = index_write(service->index, INDEX_NORMAL, remove_tx, &call, err);
    if (rc == 0)
        drop_run(service, &call.drop);
    free(call.drop.number);
    if (rc == 0 && !call.replayed) {
        sync_kick(service);
        event_emit(service, VOLUME_EVENT_REMOVED, &call.node, ctx->connection);
    }
    return rc;
}

/* ---- rename ---- */

struct rename_call {
    struct volume_service *service;
    const struct volume_ctx *ctx;
    const struct volume_name *from, *to;
    unsigned flags;
    struct index_node moved, target;
    bool has_target;
    struct drop_list drop;
    bool replayed;
};

static int want_subtree(struct index_tx *tx, const struct index_node *node, struct err *err);

static int
want_one(struct index_tx *tx, const struct index_node *node, struct err *err)
{
    char key[LIMIT_KEY + 1];
    if (node->kind == INDEX_DIR && (node->flags & INDEX_NODE_MARKER) == 0)
        return 0;
    if (key_of_node(tx, node, key, err) != 0)
        return -1;
    return key_want_sync(tx, node->volume, key, 0, err);
}

struct walk {
    struct index_tx *tx;
    int64_t *dir; /* folders still to be read */
    size_t count, cap;
    int64_t last;
    unsigned seen;
};

static int
walk_push(struct walk *walk, int64_t dir, struct err *err)
{
    if (walk->count == walk->cap) {
        size_t cap = walk->cap == 0 ? 64 : walk->cap * 2;
        int64_t *grown = reallocarray(walk->dir, cap, sizeof(*grown));
        if (grown == NULL)
            return err_nomem(err);
        walk->dir = grown;
        walk->cap = cap;
    }
    walk->dir[walk->count++] = dir;
    return 0;
}

static int
walk_child(void *arg, const struct index_node *node, struct err *err)
{
    struct walk *walk = arg;
    walk->last = node->id;
    walk->seen++;
    if (node->kind == INDEX_DIR && walk_push(walk, node->id, err) != 0)
        return -1;
    return want_one(walk->tx, node, err);
}

/* Every key below a moved folder gets its work item. */
static int
want_subtree(struct index_tx *tx, const struct index_node *node, struct err *err)
{
    struct walk walk = { .tx = tx };
    int rc = want_one(tx, node, err);
    if (rc == 0 && node->kind == INDEX_DIR)
        rc = walk_push(&walk, node->id, err);
    while (rc == 0 && walk.count > 0) {
        int64_t dir = walk.dir[--walk.count];
        walk.last = 0;
        do {
            walk.seen = 0;
            rc = index_node_children(tx, dir, walk.last, 512, walk_child, &walk, err);
        } while (rc == 0 && walk.seen == 512);
    }
    free(walk.dir);
    return rc;
}

/* Whether `dir` is `node` or lies below it. */
static int
check_no_loop(struct index_tx *tx, int64_t dir, int64_t node, struct err *err)
{
    struct index_node row;
    for (unsigned depth = 0; dir != 0 && depth <= LIMIT_PATH_DEPTH; depth++) {
        if (dir == node)
            return err_set(err, ERR_INVAL, "a folder cannot be moved into itself");
        if (index_node_get(tx, dir, &row, err) != 0)
            return -1;
        dir = row.parent;
    }
    return 0;
}

static int
check_target(struct index_tx *tx, struct rename_call *call, struct err *err)
{
    bool children = false;
    if ((call->flags & RENAME_NOREPLACE) != 0)
        return err_set(err, ERR_EXISTS, "'%s' exists", call->target.name);
    if ((call->flags & RENAME_EXCHANGE) != 0)
        return check_no_loop(tx, call->from->parent, call->target.id, err);
    if (call->target.kind == INDEX_DIR && call->moved.kind != INDEX_DIR)
        return err_set(err, ERR_IS_DIR, "'%s' is a folder", call->target.name);
    if (call->target.kind != INDEX_DIR && call->moved.kind == INDEX_DIR)
        return err_set(err, ERR_NOT_DIR, "'%s' is not a folder", call->target.name);
    if (call->target.kind == INDEX_DIR &&
        index_node_has_children(tx, call->target.id, &children, err) != 0)
        return -1;
    return children ? err_set(err, ERR_NOT_EMPTY, "folder '%s' is not empty", call->target.name)
                    : 0;
}

static int
place(struct index_tx *tx, struct index_node *node, const struct volume_name *at, struct err *err)
{
    node->parent = at->parent;
    node->name_len = (uint16_t)at->len;
    memset(node->name, 0, sizeof(node->name));
    memcpy(node->name, at->name, at->len);
    node->ctime_ns = clock_wall_ns();
    return index_node_update(tx, node, err);
}

static int
exchange(struct index_tx *tx, struct rename_call *call, struct err *err)
{
    /* Two rows cannot hold one name even for a moment: park the first under a name nobody can type. */
    struct volume_name aside = { .parent = call->from->parent, .name = "\x01/exchange", .len = 10 };
    char old_key[LIMIT_KEY + 1];
    if (key_of_node(tx, &call->target, old_key, err) != 0 ||
        key_want_sync(tx, call->target.volume, old_key, 0, err) != 0)
        return -1;
    if (place(tx, &call->moved, &aside, err) != 0 ||
        place(tx, &call->target, call->from, err) != 0 ||
        place(tx, &call->moved, call->to, err) != 0)
        return -1;
    return want_subtree(tx, &call->target, err);
}

static int
rename_rows(struct index_tx *tx, struct rename_call *call, struct err *err)
{
    char old_key[LIMIT_KEY + 1];
    if (key_of_node(tx, &call->moved, old_key, err) != 0)
        return -1;
    if (call->has_target && (call->flags & RENAME_EXCHANGE) != 0) {
        if (exchange(tx, call, err) != 0)
            return -1;
    } else {
        struct index_node gone = call->target;
        if (call->has_target && node_unname(call->service, tx, &gone, true, &call->drop, err) != 0)
            return -1;
        if (place(tx, &call->moved, call->to, err) != 0)
            return -1;
    }
    if (want_subtree(tx, &call->moved, err) != 0 ||
        key_want_sync(tx, call->moved.volume, old_key, 0, err) != 0 ||
        node_touch_dir(tx, call->from->parent, err) != 0 ||
        node_touch_dir(tx, call->to->parent, err) != 0)
        return -1;
    return keep_empty_parent(tx, call->from->parent, err);
}

static int
rename_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct rename_call *call = arg;
    struct index_node to_dir;
    struct index_volume volume;
    struct err missing = ERR_INIT;
    call->replayed = answer_replay(tx, call->ctx, NULL);
    if (call->replayed)
        return 0;
    if (check_parent_writable(call->service, tx, call->ctx, call->from->parent, err) != 0 ||
        index_node_child(tx, call->from->parent, call->from->name, call->from->len, &call->moved,
                         err) != 0 ||
        index_node_get(tx, call->to->parent, &to_dir, err) != 0 ||
        index_volume_get(tx, to_dir.volume, &volume, err) != 0)
        return -1;
    if (to_dir.volume != call->moved.volume)
        return err_set(err, ERR_CROSS_DEVICE, "a move between volumes is a copy");
    if (to_dir.kind != INDEX_DIR)
        return err_set(err, ERR_NOT_DIR, "not a folder");
    if (reserved_name(&volume, call->to))
        return err_set(err, ERR_PERM, "the name '.holdfast' is taken by Holdfast itself here");
    if (call->moved.kind == INDEX_DIR &&
        check_no_loop(tx, call->to->parent, call->moved.id, err) != 0)
        return -1;
    call->has_target = index_node_child(tx, call->to->parent, call->to->name, call->to->len,
                                        &call->target, &missing) == 0;
    if (!call->has_target && missing.code != ERR_NOT_FOUND) {
        *err = missing;
        return -1;
    }
    if (!call->has_target && (call->flags & RENAME_EXCHANGE) != 0)
        return err_set(err, ERR_NOT_FOUND, "no such file to exchange with");
    if (call->has_target && call->target.id == call->moved.id)
        return 0;
    if (call->has_target && check_target(tx, call, err) != 0)
        return -1;
    if (rename_rows(tx, call, err) != 0)
        return -1;
    return answer_record(tx, call->ctx, NULL, err);
}

static int
know_both(struct rename_call *call, struct err *err)
{
    struct volume_attr attr;
    struct err local = ERR_INIT;
    if (volume_lookup(call->service, call->ctx, call->from->parent, call->from->name,
                      call->from->len, &attr, err) != 0)
        return -1;
    if (volume_lookup(call->service, call->ctx, call->to->parent, call->to->name, call->to->len,
                      &attr, &local) != 0) {
        if (local.code == ERR_NOT_FOUND)
            return 0;
        *err = local;
        return -1;
    }
    return attr.kind == INDEX_DIR ? know_folder(call->service, call->ctx, attr.node, err) : 0;
}

struct replace_call {
    const struct rename_call *rename;
    int64_t node; /* what has to be durable first, 0: nothing */
};

static bool
is_kept(struct index_tx *tx, const struct index_node *node)
{
    struct index_content content;
    struct err ignored = ERR_INIT;
    if (node->key[0] != '\0')
        return true;
    return node->content != 0 && index_content_get(tx, node->content, &content, &ignored) == 0 &&
           (content.flags & CONTENT_DURABLE) != 0;
}

static int
find_replaced(struct index_tx *tx, void *arg, struct err *err)
{
    struct replace_call *call = arg;
    const struct volume_name *from = call->rename->from, *to = call->rename->to;
    struct index_node moved, target;
    struct index_content content;
    struct err ignored = ERR_INIT;
    (void)err;
    if (index_node_child(tx, from->parent, from->name, from->len, &moved, &ignored) == 0 &&
        index_node_child(tx, to->parent, to->name, to->len, &target, &ignored) == 0 &&
        moved.kind == INDEX_FILE && target.kind == INDEX_FILE && is_kept(tx, &target) &&
        moved.content != 0 && index_content_get(tx, moved.content, &content, &ignored) == 0 &&
        content.state != CONTENT_CLEAN && (content.flags & CONTENT_DURABLE) == 0)
        call->node = moved.id;
    return 0;
}

/* The name may not lose a version that survives a power cut to one that does not: its bytes reach the disk first. */
static int
keep_before_replace(const struct rename_call *call, struct err *err)
{
    struct replace_call replace = { .rename = call };
    if ((call->flags & (RENAME_EXCHANGE | RENAME_NOREPLACE)) != 0)
        return 0;
    if (index_read(call->service->index, find_replaced, &replace, err) != 0)
        return -1;
    return replace.node == 0 ? 0 : file_keep(call->service, replace.node, err);
}

int
volume_rename(struct volume_service *service, const struct volume_ctx *ctx,
              const struct volume_name *from, const struct volume_name *to, unsigned flags,
              struct err *err)
{
    struct rename_call call = {
        .service = service, .ctx = ctx, .from = from, .to = to, .flags = flags
    };
    if ((flags & ~(unsigned)(RENAME_NOREPLACE | RENAME_EXCHANGE)) != 0 ||
        (flags & (RENAME_NOREPLACE | RENAME_EXCHANGE)) == (RENAME_NOREPLACE | RENAME_EXCHANGE))
        return err_set(err, ERR_INVAL, "unknown rename flags %#x", flags);
    if (path_check_name(to->name, to->len, err) != 0 ||
        (!ctx->resent && know_both(&call, err) != 0) || keep_before_replace(&call, err) != 0)
        return -1;
    int rc = index_write(service->index, INDEX_NORMAL, rename_tx, &call, err);
    if (rc == 0)
        drop_run(service, &call.drop);
    free(call.drop.number);
    if (rc == 0 && !call.replayed) {
        struct index_node old = call.moved;
        old.parent = from->parent;
        (void)snprintf(old.name, sizeof(old.name), "%.*s", (int)from->len, from->name);
        sync_kick(service);
        event_emit(service, VOLUME_EVENT_RENAMED, &old, ctx->connection);
        event_emit(service, VOLUME_EVENT_CREATED, &call.moved, ctx->connection);
    }
    return rc;
}
