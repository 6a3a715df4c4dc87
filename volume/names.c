#include <assert.h>
#include <linux/fs.h>
#include <sys/stat.h>

#include "base/hash.h"
#include "base/parse.h"
#include "base/path.h"
#include "base/scope.h"
#include "volume/form_impl.h"
#include "volume/link_impl.h"

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
    if (attr != NULL) {
        *attr = stored;
        attr->fresh_ns = 0;
    }
    if (ctx->replayed != NULL)
        *ctx->replayed = true;
    return true;
}

struct waits_call {
    const struct volume_ctx *ctx;
    bool found;
};

static int
waits_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct waits_call *call = arg;
    struct volume_ctx quiet = *call->ctx;
    (void)err;
    quiet.replayed = NULL;
    call->found = answer_replay(tx, &quiet, NULL);
    return 0;
}

bool
answer_waits(struct volume_service *service, const struct volume_ctx *ctx)
{
    struct waits_call call = { .ctx = ctx };
    struct err ignored = ERR_INIT;
    return ctx->resent && index_read(service->index, waits_tx, &call, &ignored) == 0 && call.found;
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

/* `number` 0: a new one. */
static int
insert_inline(struct index_tx *tx, const struct index_node *node, int64_t *number, struct err *err)
{
    struct index_content content = { .id = *number,
                                     .node = node->id,
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
    if (index_content_insert(tx, &content, err) != 0)
        return -1;
    *number = content.id;
    return 0;
}

int
node_stage_inline(struct index_tx *tx, struct index_node *node, struct err *err)
{
    if (node->content != 0 && index_content_delete(tx, node->content, err) != 0)
        return -1;
    node->content = 0;
    return insert_inline(tx, node, &node->content, err);
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

bool
node_name_reserved(const struct index_volume *volume, const struct volume_name *at)
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
    if (node_name_reserved(&volume, at))
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
    /* What is made in a folder with the set-group-id bit belongs to its group, and folders hand the bit on. */
    bool inherits = (parent.mode & S_ISGID) != 0;
    out->gid = inherits ? parent.gid : ctx->gid;
    if (inherits && out->kind == INDEX_DIR)
        out->mode |= S_ISGID;
    out->mtime_ns = out->ctime_ns = clock_wall_ns();
    out->atime_ns = kind->found ? 0 : out->mtime_ns;
    out->flags = kind->flags;
    out->content = kind->content;
    if (kind->target != NULL)
        text_set(out->target, kind->target);
    if (kind->kind == INDEX_DIR)
        out->listed_ns = out->mtime_ns;
    if (ulid_new(out->ulid, err) != 0 || index_node_insert(tx, out, err) != 0 ||
        key_of_node(tx, out, key, err) != 0)
        return -1;
    /* What the first listing of a folder finds is no change of the folder. */
    return kind->found && parent.listed_ns == 0 ? 0 : node_touch_dir(tx, at->parent, err);
}

/* ---- mkdir, symlink, mknod ---- */

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
};

int
node_parent_writable(struct volume_service *service, struct index_tx *tx,
                     const struct volume_ctx *ctx, int64_t parent, struct err *err)
{
    struct index_node node;
    struct index_volume volume;
    if (index_node_get(tx, parent, &node, err) != 0 ||
        index_volume_get(tx, node.volume, &volume, err) != 0)
        return -1;
    return service_may_write(service, ctx, &volume, err);
}

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
    if (insert_inline(tx, &call->node, &kind.content, err) != 0 ||
        key_of_node(tx, &call->node, key, err) != 0 ||
        key_want_sync(tx, call->node.volume, key, 0, err) != 0 ||
        attr_fill(tx, &call->node, call->attr, err) != 0 ||
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
        sync_kick(call->service);
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
node_mark_loser(struct index_tx *tx, struct index_node *node, struct err *err)
{
    struct index_content content;
    char path[LIMIT_PATH + 1];
    if (node->content == 0)
        return 0;
    if (index_content_get(tx, node->content, &content, err) != 0 ||
        index_node_path(tx, node->id, path, sizeof(path), err) != 0)
        return -1;
    if (content.state != CONTENT_LIVE)
        return 0;
    node->flags |= INDEX_NODE_LOSER;
    text_set(node->target, path);
    return 0;
}

int
node_unname(struct volume_service *service, struct index_tx *tx, struct index_node *node,
            bool discard_object, struct drop_list *drop, struct err *err)
{
    char home[LIMIT_KEY + 1];
    struct index_link link = { 0 };
    struct link_move move = {
        .service = service, .tx = tx, .discard_object = discard_object, .drop = drop
    };
    bool moved = false;
    if ((node->flags & INDEX_NODE_LINKED) != 0 && link_move_inode(&move, node, &moved, err) != 0)
        return -1;
    if (moved)
        return 0;
    if ((node->flags & INDEX_NODE_LINK) != 0 && index_link_get(tx, node->id, &link, err) != 0)
        return -1;
    if (key_of_node(tx, node, home, err) != 0 || key_want_sync(tx, node->volume, home, 0, err) != 0)
        return -1;
    if (discard_object && key_discard(tx, node->volume, node->key, err) != 0)
        return -1;
    if (inode_open_count(&service->inodes, node->id) == 0) {
        if (node_drop_contents(tx, node->id, 0, drop, err) != 0 ||
            index_node_delete(tx, node->id, err) != 0)
            return -1;
        return link.inode == 0 ? 0 : link_touch_inode(tx, link.inode, err);
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
    int64_t inode;          /* the same, or the file that it is a name of */
    struct index_node left; /* the file when it has other names, id 0: it has none */
    struct drop_list drop;
    bool replayed;
    bool looked; /* the bucket was asked where the index cannot know */
    bool unsure; /* it has to be, first */
};

int
node_keep_empty(struct index_tx *tx, int64_t parent, struct err *err)
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

bool
node_is_known(const struct volume_service *service, const struct index_node *node)
{
    return (node->flags & (INDEX_NODE_META_UNKNOWN | INDEX_NODE_NAME_HIDDEN)) == 0 &&
           (node->kind != INDEX_DIR || service_listed_lately(service, node));
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

/* Whether the index alone can say what has this name, and what lies below it: -1 with ERR_AGAIN and `unsure` when it cannot. */
static int
find_removed(struct index_tx *tx, struct remove_call *call, struct err *err)
{
    struct index_node dir;
    struct err missing = ERR_INIT;
    const struct volume_name *at = call->at;
    bool found = index_node_child(tx, at->parent, at->name, at->len, &call->node, &missing) == 0;
    if (!found && missing.code != ERR_NOT_FOUND) {
        *err = missing;
        return -1;
    }
    if (!call->looked) {
        if (!found && index_node_get(tx, at->parent, &dir, err) != 0)
            return -1;
        call->unsure = !found ? !service_listed_lately(call->service, &dir)
                              : !node_is_known(call->service, &call->node);
        if (call->unsure)
            return err_set(err, ERR_AGAIN, "the bucket has to be asked first");
    }
    if (!found)
        *err = missing;
    return found ? 0 : -1;
}

static int
remove_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct remove_call *call = arg;
    call->replayed = answer_replay(tx, call->ctx, NULL);
    if (call->replayed)
        return 0;
    if (node_parent_writable(call->service, tx, call->ctx, call->at->parent, err) != 0 ||
        find_removed(tx, call, err) != 0 || check_removable(tx, call, err) != 0)
        return -1;
    struct index_node gone = call->node;
    bool left = (gone.flags & (INDEX_NODE_LINK | INDEX_NODE_LINKED)) != 0;
    if (link_inode_of(tx, &gone, &call->inode, err) != 0 ||
        node_unname(call->service, tx, &gone, true, &call->drop, err) != 0 ||
        (left && index_node_get(tx, call->inode, &call->left, err) != 0) ||
        node_touch_dir(tx, call->at->parent, err) != 0 ||
        node_keep_empty(tx, call->at->parent, err) != 0)
        return -1;
    return answer_record(tx, call->ctx, NULL, err);
}

/* A folder may only be called empty when the bucket was asked. */
int
node_know_folder(struct volume_service *service, const struct volume_ctx *ctx, int64_t dir,
                 struct err *err)
{
    struct volume_attr ignored;
    struct err local = ERR_INIT;
    if (volume_lookup(service, ctx, &(struct volume_name){ dir, "\x01", 1 }, &ignored, &local) ==
            0 ||
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
    struct err local = ERR_INIT;
    int rc = index_write(service->index, INDEX_NORMAL, remove_tx, &call, &local);
    if (rc != 0 && call.unsure) {
        local = (struct err)ERR_INIT;
        rc = volume_lookup(service, ctx, &(struct volume_name){ at->parent, at->name, at->len },
                           &attr, &local);
        if (rc == 0 && attr.kind == INDEX_DIR)
            rc = node_know_folder(service, ctx, attr.node, &local);
        call.looked = true;
        call.unsure = false;
        if (rc == 0)
            rc = index_write(service->index, INDEX_NORMAL, remove_tx, &call, &local);
    }
    if (rc == 0)
        drop_run(service, &call.drop);
    else
        *err = local;
    free(call.drop.number);
    if (rc == 0 && !call.replayed) {
        sync_kick(service);
        call.node.id = call.inode;
        event_emit(service, VOLUME_EVENT_REMOVED, &call.node, ctx->connection);
        if (call.left.id != 0)
            event_emit(service, VOLUME_EVENT_CHANGED, &call.left, ctx->connection);
        event_settle(service, ctx);
    }
    return rc;
}
