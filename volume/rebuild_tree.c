#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/path.h"
#include "base/scope.h"
#include "volume/rebuild_impl.h"

/*
 * A volume's tree from one listing without a delimiter. Keys come in bytewise order, so all that lies in a folder comes
 * together, and a file before what would lie in a folder of its name: the folders of the last key are all that has to be
 * remembered. What has no place in the tree is treated as listings of folders do (volume/listing.c).
 */

struct seen {
    char key[LIMIT_KEY + 1];
    char etag[LIMIT_ETAG];
    uint64_t size;
    int64_t mtime_ns;
};

struct tree {
    struct rebuild *rebuild;
    const struct index_volume *volume;
    int64_t began_ns; /* wall */
    struct seen *batch;
    size_t count;
    uint64_t done;
    /* The folders on the way to the last key: their path, where each name ends behind its slash, their nodes. */
    char path[LIMIT_KEY + 1];
    size_t end[LIMIT_PATH_DEPTH];
    int64_t node[LIMIT_PATH_DEPTH];
    size_t depth;
    uint64_t unreachable, files, folders, bytes; /* of the transaction */
    bool ours;                                   /* it came to `.holdfast/` in an empty prefix */
};

static void
fill_node(const struct tree *tree, int64_t parent, const char *name, size_t len,
          struct index_node *out)
{
    memset(out, 0, sizeof(*out));
    out->volume = tree->volume->id;
    out->parent = parent;
    out->name_len = (uint16_t)len;
    memcpy(out->name, name, len);
    out->flags = INDEX_NODE_META_UNKNOWN;
}

static int
make_folder(struct index_tx *tx, struct tree *tree, const struct volume_name *at, int64_t *out,
            struct err *err)
{
    struct index_node node;
    fill_node(tree, at->parent, at->name, at->len, &node);
    node.kind = INDEX_DIR;
    node.mode = S_IFDIR | 0755;
    node.uid = (uint32_t)getuid();
    node.gid = (uint32_t)getgid();
    node.mtime_ns = node.ctime_ns = tree->volume->created_ns;
    node.listed_ns = tree->began_ns;
    if (ulid_new(node.ulid, err) != 0 || index_node_insert(tx, &node, err) != 0)
        return -1;
    tree->folders++;
    *out = node.id;
    return 0;
}

/* 1: the name is a file's, or none. */
static int
enter(struct index_tx *tx, struct tree *tree, const struct volume_name *at, int64_t *out,
      struct err *err)
{
    struct index_node node;
    struct err missing = ERR_INIT;
    if (path_check_name(at->name, at->len, &missing) != 0)
        return 1;
    missing = (struct err)ERR_INIT;
    if (index_node_child(tx, at->parent, at->name, at->len, &node, &missing) == 0) {
        *out = node.id;
        return node.kind == INDEX_DIR ? 0 : 1;
    }
    if (missing.code != ERR_NOT_FOUND) {
        *err = missing;
        return -1;
    }
    return make_folder(tx, tree, at, out, err);
}

/* Whether the first `end` bytes of `rest` are the folders of the last key down to `depth`. */
static bool
is_known(const struct tree *tree, size_t depth, const char *rest, size_t end)
{
    return depth < tree->depth && tree->end[depth] == end && memcmp(tree->path, rest, end) == 0;
}

/* Makes the folders of a key; *name is what stands behind the last slash. 1: it has no place. */
static int
descend(struct index_tx *tx, struct tree *tree, const char *rest, int64_t *parent,
        const char **name, struct err *err)
{
    const char *at = rest, *slash;
    size_t depth = 0;
    *parent = tree->volume->root;
    for (; (slash = strchr(at, '/')) != NULL; at = slash + 1, depth++) {
        size_t end = (size_t)(slash + 1 - rest);
        if (depth == LIMIT_PATH_DEPTH)
            return 1;
        if (!is_known(tree, depth, rest, end)) {
            struct volume_name folder = { .parent = *parent,
                                          .name = at,
                                          .len = (size_t)(slash - at) };
            tree->depth = depth;
            int rc = enter(tx, tree, &folder, &tree->node[depth], err);
            if (rc != 0)
                return rc;
            memcpy(tree->path, rest, end);
            tree->end[depth] = end;
            tree->depth = depth + 1;
        }
        *parent = tree->node[depth];
    }
    *name = at;
    return 0;
}

static int
put_key(struct index_tx *tx, const struct tree *tree, const struct seen *seen, int64_t owner,
        struct err *err)
{
    struct index_key row = { .volume = tree->volume->id,
                             .size = seen->size,
                             .owner = owner,
                             .modified_ns = seen->mtime_ns };
    text_set(row.key, seen->key);
    text_set(row.etag, seen->etag);
    return index_key_put(tx, &row, err);
}

static int
place_marker(struct index_tx *tx, const struct tree *tree, const struct seen *seen, int64_t dir,
             struct err *err)
{
    struct index_node node;
    if (dir == tree->volume->root) /* of the volume itself: nobody's */
        return put_key(tx, tree, seen, 0, err);
    if (index_node_get(tx, dir, &node, err) != 0)
        return -1;
    node.flags |= INDEX_NODE_MARKER | INDEX_NODE_META_UNKNOWN;
    text_set(node.key, seen->key);
    text_set(node.etag, seen->etag);
    node.mtime_ns = node.ctime_ns = seen->mtime_ns;
    if (index_node_update(tx, &node, err) != 0)
        return -1;
    return put_key(tx, tree, seen, node.id, err);
}

static int
place_file(struct index_tx *tx, struct tree *tree, const struct seen *seen,
           const struct volume_name *at, struct err *err)
{
    struct index_node node;
    fill_node(tree, at->parent, at->name, at->len, &node);
    node.kind = INDEX_FILE;
    node.mode = S_IFREG | 0644;
    node.size = seen->size;
    node.mtime_ns = node.ctime_ns = seen->mtime_ns;
    text_set(node.key, seen->key);
    text_set(node.etag, seen->etag);
    if (ulid_new(node.ulid, err) != 0 || index_node_insert(tx, &node, err) != 0)
        return -1;
    tree->files++;
    tree->bytes += seen->size;
    return put_key(tx, tree, seen, node.id, err);
}

static int
hide(struct index_tx *tx, struct tree *tree, const struct seen *seen, struct err *err)
{
    log_debug(volume, "an object has no place in the tree key=%s", seen->key);
    tree->unreachable++;
    return put_key(tx, tree, seen, 0, err);
}

static int
place(struct index_tx *tx, struct tree *tree, const struct seen *seen, struct err *err)
{
    struct volume_name at = { 0 };
    struct err bad = ERR_INIT;
    int rc = descend(tx, tree, seen->key + strlen(tree->volume->prefix), &at.parent, &at.name, err);
    if (rc != 0)
        return rc < 0 ? -1 : hide(tx, tree, seen, err);
    at.len = strlen(at.name);
    if (at.len == 0)
        return place_marker(tx, tree, seen, at.parent, err);
    if (path_check_name(at.name, at.len, &bad) != 0)
        return hide(tx, tree, seen, err);
    return place_file(tx, tree, seen, &at, err);
}

static int
batch_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct tree *tree = arg;
    tree->unreachable = tree->files = tree->folders = tree->bytes = 0;
    for (size_t i = 0; i < tree->count; i++)
        if (place(tx, tree, &tree->batch[i], err) != 0)
            return -1;
    return 0;
}

static int
flush_batch(struct tree *tree, struct err *err)
{
    struct volume_rebuild_report *out = tree->rebuild->out;
    if (tree->count == 0)
        return 0;
    if (index_write(tree->rebuild->index, INDEX_NORMAL, batch_tx, tree, err) != 0)
        return -1;
    out->unreachable += tree->unreachable;
    out->files += tree->files;
    out->folders += tree->folders;
    out->bytes += tree->bytes;
    tree->done += tree->count;
    tree->count = 0;
    rebuild_progress(tree->rebuild, "objects", tree->volume->name, tree->done);
    return 0;
}

static int
add_entry(void *arg, const struct store_list_entry *entry, struct err *err)
{
    struct tree *tree = arg;
    if (tree->volume->prefix[0] == '\0' && strncmp(entry->key, ".holdfast/", 10) == 0) {
        tree->ours = true;
        return err_set(err, ERR_CANCELED, "Holdfast's own objects");
    }
    struct seen *seen = &tree->batch[tree->count];
    memset(seen, 0, sizeof(*seen));
    text_set(seen->key, entry->key);
    if (entry->etag != NULL)
        text_set(seen->etag, entry->etag);
    seen->size = entry->size;
    seen->mtime_ns = entry->last_modified_ns;
    return ++tree->count < REBUILD_BATCH ? 0 : flush_batch(tree, err);
}

/* In an empty prefix our own objects are stepped over: there may be many. */
static int
list_all(struct tree *tree, struct err *err)
{
    struct store_list list = { .prefix = tree->volume->prefix, .fn = add_entry, .arg = tree };
    struct err local = ERR_INIT;
    if (store_list(tree->rebuild->store, &list, &local) == 0)
        return 0;
    if (!tree->ours) {
        *err = local;
        return -1;
    }
    list.start_after = ".holdfast/~";
    return store_list(tree->rebuild->store, &list, err);
}

static int
listed_tx(struct index_tx *tx, void *arg, struct err *err)
{
    const struct tree *tree = arg;
    struct index_node root;
    if (index_node_get(tx, tree->volume->root, &root, err) != 0)
        return -1;
    root.listed_ns = tree->began_ns;
    return index_node_update(tx, &root, err);
}

int
rebuild_tree(struct rebuild *rebuild, const struct index_volume *volume, struct err *err)
{
    scope_free struct tree *tree = calloc(1, sizeof(*tree));
    scope_free struct seen *batch = calloc(REBUILD_BATCH, sizeof(*batch));
    if (tree == NULL || batch == NULL)
        return err_nomem(err);
    tree->rebuild = rebuild;
    tree->volume = volume;
    tree->batch = batch;
    tree->began_ns = clock_wall_ns();
    if (list_all(tree, err) != 0 || flush_batch(tree, err) != 0 ||
        index_write(rebuild->index, INDEX_NORMAL, listed_tx, tree, err) != 0)
        return err_wrap(err, "cannot list volume '%s'", volume->name);
    return 0;
}

int
rebuild_make_parents(struct index_tx *tx, const struct index_volume *volume, const char *path,
                     struct volume_name *last, struct err *err)
{
    scope_free struct tree *tree = calloc(1, sizeof(*tree));
    if (tree == NULL)
        return err_nomem(err);
    tree->volume = volume;
    tree->began_ns = clock_wall_ns();
    int rc = descend(tx, tree, path, &last->parent, &last->name, err);
    if (rc != 0)
        return rc < 0 ? -1 : err_set(err, ERR_EXISTS, "a folder of '%.100s' is a file", path);
    last->len = strlen(last->name);
    return path_check_name(last->name, last->len, err);
}
