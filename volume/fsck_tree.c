#include "base/scope.h"
#include "volume/fsck_impl.h"
#include "volume/link_impl.h"
#include "volume/move_impl.h"

/* The files of a volume against the rows of their keys, their bytes and their work items. One read of the index sees all of it as of
 * one moment, so what does not fit is a fault. */

#define PAGE 256u

struct tree {
    struct fsck *fsck;
    const struct index_volume *volume;
    int64_t *folder; /* to be looked through */
    size_t count, cap;
    bool moving; /* a moved folder's contents follow without work items of their own */
    /* of the page at hand */
    int64_t dir, after;
    unsigned seen;
    char path[LIMIT_PATH + 1];
    struct found {
        const struct fsck_fault *fault;
        char home[LIMIT_KEY + 1], key[LIMIT_KEY + 1];
    } * found; /* PAGE */
    size_t found_count;
    struct index_tx *tx;
};

static int
push(struct tree *tree, int64_t folder, struct err *err)
{
    if (tree->count == tree->cap) {
        size_t cap = tree->cap == 0 ? 256 : tree->cap * 2;
        int64_t *grown = reallocarray(tree->folder, cap, sizeof(*grown));
        if (grown == NULL)
            return err_nomem(err);
        tree->folder = grown;
        tree->cap = cap;
    }
    tree->folder[tree->count++] = folder;
    return 0;
}

/* ---- repairs ---- */

struct want_call {
    const struct tree *tree;
    const char *key;
};

static int
want_tx(struct index_tx *tx, void *arg, struct err *err)
{
    const struct want_call *call = arg;
    return key_want_sync(tx, call->tree->volume->id, call->key, 0, err);
}

struct mend {
    const struct tree *tree;
    const struct found *found;
};

static int
mend_work(struct fsck *fsck, void *arg, struct err *err)
{
    const struct mend *mend = arg;
    struct want_call call = { mend->tree, mend->found->home };
    return index_write(fsck->service->index, INDEX_NORMAL, want_tx, &call, err);
}

static int
mend_row(struct fsck *fsck, void *arg, struct err *err)
{
    const struct mend *mend = arg;
    return bucket_observe_key(fsck->service, mend->tree->volume->id, mend->found->key, err);
}

static const struct fsck_fault no_work = {
    "work-missing", "the bucket lacks a change of this file, and nothing is planned that brings it",
    "the work is planned again", mend_work
};
static const struct fsck_fault no_row = {
    "file-row-wrong", "the index does not have this file's object as the file's",
    "the object is looked at and becomes the file's", mend_row
};
static const struct fsck_fault no_bytes = {
    "file-without-bytes", "the file has a name, but its bytes are neither here nor in the bucket",
    "none: write the file anew, or remove it", NULL
};

/* ---- one file ---- */

static int
has_intent(struct index_tx *tx, const char *key, bool *out, struct err *err)
{
    struct index_intent row;
    struct err local = ERR_INIT;
    *out = index_intent_get(tx, key, &row, &local) == 0;
    if (*out || local.code == ERR_NOT_FOUND)
        return 0;
    *err = local;
    return -1;
}

static int
row_fits(struct index_tx *tx, const struct index_node *node, bool *out, struct err *err)
{
    struct index_key row;
    struct err local = ERR_INIT;
    *out = false;
    if (index_key_get(tx, node->key, &row, &local) == 0)
        *out = row.owner == node->id && strcmp(row.etag, node->etag) == 0;
    else if (local.code != ERR_NOT_FOUND) {
        *err = local;
        return -1;
    }
    return 0;
}

/* Bytes that the bucket does not have: the newest row is not a clean copy. */
static int
is_staged(struct index_tx *tx, const struct index_node *node, bool *live, bool *frozen,
          struct err *err)
{
    struct index_content row;
    struct err local = ERR_INIT;
    *live = *frozen = false;
    if (node->content == 0)
        return 0;
    if (index_content_get(tx, node->content, &row, &local) == 0) {
        *live = row.state == CONTENT_LIVE;
        *frozen = row.state == CONTENT_FROZEN;
    } else if (local.code != ERR_NOT_FOUND) {
        *err = local;
        return -1;
    }
    return 0;
}

static int
judge(struct tree *tree, const struct index_node *node, const char *home,
      const struct fsck_fault **out, struct err *err)
{
    struct index_tx *tx = tree->tx;
    bool live, frozen, fits = true, home_work, key_work = false;
    if (is_staged(tx, node, &live, &frozen, err) != 0 || has_intent(tx, home, &home_work, err) != 0)
        return -1;
    if (node->key[0] != '\0' &&
        (row_fits(tx, node, &fits, err) != 0 || has_intent(tx, node->key, &key_work, err) != 0))
        return -1;
    bool works = home_work || key_work || live;
    bool moved = node->key[0] != '\0' && strcmp(node->key, home) != 0 && !tree->moving;
    *out = NULL;
    if (works)
        return 0;
    if (frozen || moved)
        *out = &no_work;
    else if (node->key[0] == '\0' && node->content == 0 && node->kind == INDEX_FILE)
        *out = &no_bytes;
    else if (!fits)
        *out = &no_row;
    return 0;
}

static int
look_at(void *arg, const struct index_node *node, struct err *err)
{
    struct tree *tree = arg;
    char path[LIMIT_PATH + LIMIT_NAME + 2], home[LIMIT_KEY + 1];
    const struct fsck_fault *fault;
    tree->seen++;
    tree->after = node->id;
    if (node->kind == INDEX_DIR)
        return push(tree, node->id, err);
    tree->fsck->out->files++;
    if ((node->flags & INDEX_NODE_LINK) != 0) /* follows its inode */
        return 0;
    (void)snprintf(path, sizeof(path), "%s%s%s", tree->path, tree->path[0] != '\0' ? "/" : "",
                   node->name);
    if (key_of_path(tree->volume, path, false, home, err) != 0 ||
        judge(tree, node, home, &fault, err) != 0)
        return -1;
    if (fault == NULL)
        return 0;
    struct found *found = &tree->found[tree->found_count++];
    found->fault = fault;
    text_set(found->home, home);
    text_set(found->key, node->key);
    return 0;
}

static int
see_intent(void *arg, const struct index_intent *row, struct err *err)
{
    struct tree *tree = arg;
    (void)err;
    tree->moving = move_is_work(row->key);
    return 0;
}

static int
page_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct tree *tree = arg;
    struct err gone = ERR_INIT;
    tree->tx = tx;
    tree->seen = 0;
    tree->found_count = 0;
    tree->moving = false;
    if (index_intent_each(tx, 0, ".holdfast/moves/", 1, see_intent, tree, err) != 0)
        return -1;
    if (index_node_path(tx, tree->dir, tree->path, sizeof(tree->path), &gone) != 0)
        return 0; /* removed meanwhile */
    return index_node_children(tx, tree->dir, tree->after, PAGE, look_at, tree, err);
}

static int
look_through(struct tree *tree, struct err *err)
{
    struct fsck *fsck = tree->fsck;
    tree->after = 0;
    do {
        if (fsck_go_on(fsck, err) != 0 || index_read(fsck->service->index, page_tx, tree, err) != 0)
            return -1;
        for (size_t i = 0; i < tree->found_count; i++) {
            struct mend mend = { tree, &tree->found[i] };
            if (fsck_tell(fsck, tree->found[i].fault, tree->volume->name, tree->found[i].home,
                          &mend, err) != 0)
                return -1;
        }
    } while (tree->seen == PAGE);
    return 0;
}

int
fsck_tree(struct fsck *fsck, const struct index_volume *volume, struct err *err)
{
    struct tree tree = { .fsck = fsck, .volume = volume };
    tree.found = calloc(PAGE, sizeof(*tree.found));
    int rc = tree.found == NULL ? err_nomem(err) : push(&tree, volume->root, err);
    while (rc == 0 && tree.count > 0) {
        tree.dir = tree.folder[--tree.count];
        rc = look_through(&tree, err);
    }
    free(tree.found);
    free(tree.folder);
    return rc;
}
