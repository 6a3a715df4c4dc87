#include <sys/stat.h>

#include "base/hash.h"
#include "base/parse.h"
#include "base/path.h"
#include "volume/link_impl.h"

/* Rows of nodes: made, given and deprived of names, with what that means for their folders and their bytes, inside the index
 * transaction of a change; the objects follow (docs/mechanisms.md section 7). */

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

bool
node_is_known(const struct volume_service *service, const struct index_node *node)
{
    return (node->flags & (INDEX_NODE_META_UNKNOWN | INDEX_NODE_NAME_HIDDEN)) == 0 &&
           (node->kind != INDEX_DIR || service_listed_lately(service, node));
}

int
node_insert_inline(struct index_tx *tx, const struct index_node *node, int64_t *number,
                   struct err *err)
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
    return node_insert_inline(tx, node, &node->content, err);
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
