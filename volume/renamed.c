#include "base/log.h"
#include "volume/service_impl.h"

/*
 * A staged file's meta has the name that it was written under; saving by rename gives it another one a moment later. So that a rebuild
 * finds the name of now, the meta follows the rename of a file (not that of a folder above it, which may have any number below).
 */

struct renamed_call {
    int64_t node, number;
    struct cache_meta meta;
};

/* What these bytes may replace at the new name: what the rename replaced, or nothing, where nothing lies there. */
static int
fill_base(struct index_tx *tx, const struct index_node *node, struct cache_meta *meta,
          struct err *err)
{
    char home[LIMIT_KEY + 1];
    struct index_key key;
    struct err missing = ERR_INIT;
    if (key_of_node(tx, node, home, err) != 0)
        return -1;
    bool taken = index_key_get(tx, home, &key, &missing) == 0;
    if (!taken && missing.code != ERR_NOT_FOUND)
        return err_set(err, missing.code, "%s", missing.msg);
    if (!taken)
        meta->base_etag[0] = meta->base_version[0] = '\0';
    if (!taken || key.owner != 0 || !key.discard)
        return 0;
    text_set(meta->base_etag, key.etag);
    text_set(meta->base_version, key.version);
    return 0;
}

static int
meta_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct renamed_call *call = arg;
    struct index_node node;
    struct index_content row;
    call->number = 0;
    if (index_node_get(tx, call->node, &node, err) != 0 || node.kind != INDEX_FILE ||
        node.content == 0 || (node.flags & (INDEX_NODE_ORPHAN | INDEX_NODE_LINK)) != 0)
        return node.id == call->node ? 0 : -1;
    if (index_content_get(tx, node.content, &row, err) != 0)
        return -1;
    if (row.state == CONTENT_CLEAN)
        return 0;
    content_meta_fill(tx, &node, &row, &call->meta);
    call->number = row.id;
    return fill_base(tx, &node, &call->meta, err);
}

static int
write_meta(struct volume_service *service, struct renamed_call *call, struct err *err)
{
    if (index_read(service->index, meta_tx, call, err) != 0 || call->number == 0)
        return call->number == 0 ? 0 : -1;
    struct cache_file *file = cache_get(service->cache, call->number, err);
    if (file == NULL)
        return -1;
    int rc = cache_meta_write(file, &call->meta, err);
    cache_put(file);
    return rc;
}

void
renamed_note(struct volume_service *service, const struct index_node *moved)
{
    struct renamed_call call = { .node = moved->id };
    struct err err = ERR_INIT;
    if (moved->kind != INDEX_FILE || moved->content == 0)
        return;
    struct inode *inode = inode_ref(&service->inodes, moved->id, false, &err);
    if (inode == NULL)
        return;
    /* Whoever freezes it holds the lock, perhaps over an fsync, and writes a meta of its own. */
    if (pthread_mutex_trylock(&inode->lock) == 0) {
        if (write_meta(service, &call, &err) != 0)
            log_debug(cache, "the meta of a renamed file has its old name: %s", err.msg);
        pthread_mutex_unlock(&inode->lock);
    }
    inode_unref(&service->inodes, inode, false);
}
