#include <sys/stat.h>

#include "base/log.h"
#include "base/path.h"
#include "volume/effect_impl.h"
#include "volume/link_impl.h"
#include "volume/reads_impl.h"

/* What others did to an object, taken into the tree: a new file, other bytes under a name, a name that is gone. Everything runs
 * inside an index transaction. */

static const struct node_kind a_folder = { .kind = INDEX_DIR,
                                           .mode = S_IFDIR | 0755,
                                           .found = true };
static const struct node_kind a_file = { .kind = INDEX_FILE,
                                         .mode = S_IFREG | 0644,
                                         .found = true };

static void
fill_foreign(struct index_node *node, const char *key, const struct sync_have *have,
             const struct object_attrs *attrs)
{
    text_set(node->key, key);
    text_set(node->etag, have->etag);
    text_set(node->version, have->version);
    if (node->kind != INDEX_DIR)
        node->size = have->size;
    node->flags &= ~(unsigned)INDEX_NODE_ATTRS_DIRTY;
    node->flags |= INDEX_NODE_META_UNKNOWN;
    if (attrs != NULL && attrs->mtime_ns != 0)
        node->mtime_ns = node->ctime_ns = attrs->mtime_ns;
}

static int
make_parents(struct index_tx *tx, const struct index_volume *volume, const char **rest,
             size_t *rest_len, int64_t *parent, struct err *err)
{
    const char *name;
    size_t len;
    *parent = volume->root;
    while (memchr(*rest, '/', *rest_len) != NULL && path_next(rest, rest_len, &name, &len)) {
        struct index_node dir;
        struct err missing = ERR_INIT;
        if (path_check_name(name, len, err) != 0)
            return -1;
        if (index_node_child(tx, *parent, name, len, &dir, &missing) != 0) {
            struct volume_ctx nobody = { .actor = "bucket" };
            struct volume_name at = { .parent = *parent, .name = name, .len = len };
            if (effect_not_found(&missing, err) != 0 ||
                node_make(tx, &nobody, &at, &a_folder, &dir, err) != 0)
                return -1;
            dir.listed_ns = 0;
            if (index_node_update(tx, &dir, err) != 0)
                return -1;
        }
        if (dir.kind != INDEX_DIR)
            return err_set(err, ERR_EXISTS, "'%.*s' is a file in the bucket and a folder too",
                           (int)len, name);
        *parent = dir.id;
    }
    return 0;
}

/* A moved node that takes what it found at its new place leaves its own object behind: not needed when its bytes are kept
 * as the loser's, else an object like any other. */
static int
leave_old_key(struct view_change *change, const struct index_node *node, struct err *err)
{
    struct index_key row;
    struct err missing = ERR_INIT;
    if (node->key[0] == '\0' || strcmp(node->key, change->key) == 0)
        return 0;
    if (change->loser_kept || node->kind != INDEX_FILE)
        return effect_discard(change, node->key, err);
    if (index_key_get(change->tx, node->key, &row, &missing) != 0)
        return effect_not_found(&missing, err);
    row.owner = 0;
    row.discard = false;
    if (index_key_put(change->tx, &row, err) != 0)
        return -1;
    return key_want_since(change->tx, node->volume, node->key, change->kv->intent.since_ns, err);
}

/* The object at the key is `node`'s from now on. */
static int
own_foreign(struct view_change *change, struct index_node *node, enum volume_event_kind event,
            struct err *err)
{
    struct sync_have owned = change->effect->have;
    if (leave_old_key(change, node, err) != 0)
        return -1;
    fill_foreign(node, change->key, &owned, change->attrs);
    owned.owner = node->id;
    owned.discard = false;
    reads_changed(change->service, node->id, NULL);
    event_emit(change->service, event, node, 0);
    if (index_node_update(change->tx, node, err) != 0)
        return -1;
    return effect_put_have(change->tx, change->kv->intent.volume, change->key, &owned, err);
}

static int
foreign_new(struct view_change *change, struct err *err)
{
    const struct index_volume *volume = &change->kv->volume;
    const char *rest = change->key + strlen(volume->prefix);
    size_t len = strlen(rest);
    bool dir = len > 0 && rest[len - 1] == '/';
    struct index_node node;
    struct volume_ctx nobody = { .actor = "bucket" };
    struct volume_name at = { .name = rest };
    struct err missing = ERR_INIT;
    len -= dir;
    if (make_parents(change->tx, volume, &rest, &len, &at.parent, err) != 0 ||
        path_check_name(rest, len, err) != 0)
        return -1;
    at.name = rest;
    at.len = len;
    bool exists = index_node_child(change->tx, at.parent, rest, len, &node, &missing) == 0;
    if (exists && (node.kind == INDEX_DIR) != dir)
        return err_set(err, ERR_EXISTS, "the name is a file and a folder");
    if (!exists && node_make(change->tx, &nobody, &at, dir ? &a_folder : &a_file, &node, err) != 0)
        return -1;
    if (dir)
        node.flags |= INDEX_NODE_MARKER;
    if (dir && !exists)
        node.listed_ns = 0;
    return own_foreign(change, &node, VOLUME_EVENT_CREATED, err);
}

/* Who has it open for writing did not give the name up: what it writes from now on is kept too (freeze.c), and it is told. */
static int
mark_loser(struct view_change *change, struct index_node *node, struct err *err)
{
    char path[LIMIT_PATH + 1];
    if (!change->loser_kept)
        return node_mark_loser(change->tx, node, err);
    if (index_node_path(change->tx, node->id, path, sizeof(path), err) != 0)
        return -1;
    node->flags |= INDEX_NODE_LOSER;
    text_set(node->target, path);
    return 0;
}

static int
foreign_replace(struct view_change *change, struct err *err)
{
    struct index_tx *tx = change->tx;
    struct index_node node;
    if (index_node_get(tx, change->kv->node.id, &node, err) != 0)
        return -1;
    bool linked = (node.flags & INDEX_NODE_LINKED) != 0;
    if (link_tell(change->service, tx, &node, err) != 0)
        return -1;
    if (node.kind != INDEX_DIR &&
        (linked || inode_open_count(&change->service->inodes, node.id) > 0)) {
        if ((!linked && mark_loser(change, &node, err) != 0) ||
            node_unname(change->service, tx, &node, false, change->drop, err) != 0)
            return -1;
        reads_changed(change->service, node.id, NULL);
        return foreign_new(change, err);
    }
    enum volume_event_kind event = VOLUME_EVENT_CHANGED;
    if ((node.flags & INDEX_NODE_LINK) != 0) {
        event = VOLUME_EVENT_CREATED; /* another file than kernels know under the name */
        if (link_break(tx, &node, err) != 0)
            return -1;
    }
    if (node_drop_contents(tx, node.id, 0, change->drop, err) != 0)
        return -1;
    node.content = 0;
    if (node.kind == INDEX_SYMLINK || node.kind == INDEX_SPECIAL) {
        /* A kernel takes no other kind of file under a number that it knows. */
        event_emit(change->service, VOLUME_EVENT_REMOVED, &node, 0);
        node.kind = INDEX_FILE;
        node.mode = S_IFREG | 0644;
        node.target[0] = '\0';
    }
    return own_foreign(change, &node, event, err);
}

/* A folder is there by its marker or by what lies in it: without both the bucket knows of none. */
static int
drop_bare_folders(struct view_change *change, int64_t id, struct err *err)
{
    struct index_node dir;
    for (;;) {
        bool children = false;
        if (index_node_get(change->tx, id, &dir, err) != 0 ||
            index_node_has_children(change->tx, id, &children, err) != 0)
            return -1;
        if (children || dir.parent == 0 || (dir.flags & INDEX_NODE_MARKER) != 0)
            return 0;
        id = dir.parent;
        event_emit(change->service, VOLUME_EVENT_REMOVED, &dir, 0);
        if (node_unname(change->service, change->tx, &dir, false, change->drop, err) != 0)
            return -1;
    }
}

static int
foreign_gone(struct view_change *change, struct err *err)
{
    struct index_tx *tx = change->tx;
    struct index_node node;
    bool children = false;
    if (index_node_get(tx, change->kv->node.id, &node, err) != 0)
        return -1;
    int64_t parent = node.parent;
    if (node.kind == INDEX_DIR && index_node_has_children(tx, node.id, &children, err) != 0)
        return -1;
    if (children) {
        node.flags &= ~(unsigned)INDEX_NODE_MARKER;
        node.key[0] = node.etag[0] = node.version[0] = '\0';
        return index_node_update(tx, &node, err);
    }
    event_emit(change->service, VOLUME_EVENT_REMOVED, &node, 0);
    reads_changed(change->service, node.id, NULL);
    bool alone = node.kind == INDEX_FILE && (node.flags & INDEX_NODE_LINKED) == 0;
    if (link_tell(change->service, tx, &node, err) != 0 ||
        (alone && mark_loser(change, &node, err) != 0) ||
        node_unname(change->service, tx, &node, false, change->drop, err) != 0)
        return -1;
    return drop_bare_folders(change, parent, err);
}

int
theirs_apply(struct view_change *change, struct err *err)
{
    bool wanted = change->kv->view.want.present;
    struct err local = ERR_INIT;
    if (!change->effect->have.present)
        return wanted ? foreign_gone(change, err) : 0;
    if (wanted)
        return foreign_replace(change, err);
    if (foreign_new(change, &local) == 0)
        return 0;
    if (local.code != ERR_EXISTS && local.code != ERR_BAD_NAME && local.code != ERR_NAME_TOO_LONG) {
        *err = local;
        return -1;
    }
    log_warn(volume, "an object has no place in the tree key=%s why=%s", change->key, local.msg);
    return effect_put_have(change->tx, change->kv->intent.volume, change->key,
                           &change->effect->have, err);
}
