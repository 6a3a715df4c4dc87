#include "base/scope.h"
#include "volume/link_impl.h"

/* Reading a file does not change its access time: only who sets it does. */
static int64_t
access_time(const struct index_node *node)
{
    if (node->atime_ns == 0)
        return node->mtime_ns;
    return node->atime_ns == INDEX_ATIME_1970 ? 0 : node->atime_ns;
}

static int
fill(struct index_tx *tx, const struct index_node *node, struct volume_attr *out, struct err *err)
{
    memset(out, 0, sizeof(*out));
    out->nlink = 1;
    out->node = node->id;
    out->parent = node->parent;
    out->volume = node->volume;
    out->kind = node->kind;
    out->mode = node->mode;
    out->uid = node->uid;
    out->gid = node->gid;
    out->size = node->size;
    out->rdev = special_rdev(node);
    out->mtime_ns = node->mtime_ns;
    out->ctime_ns = node->ctime_ns;
    out->atime_ns = access_time(node);
    text_set(out->etag, node->etag);
    const char *version = node->version[0] != '\0' ? node->version : node->etag;
    out->synced =
        (node->kind == INDEX_DIR && (node->flags & INDEX_NODE_MARKER) == 0) || node->key[0] != '\0';
    struct index_content content;
    if (node->content != 0) {
        if (index_content_get(tx, node->content, &content, err) != 0)
            return -1;
        if (content.state == CONTENT_FROZEN)
            version = content.version;
        if (content.state != CONTENT_CLEAN)
            out->synced = false;
        out->writing = content.state == CONTENT_LIVE;
    }
    if (node->kind != INDEX_DIR)
        text_set(out->version, version);
    if (node->kind == INDEX_SYMLINK)
        out->size = strlen(node->target);
    if ((node->flags & INDEX_NODE_LINKED) == 0)
        return 0;
    uint32_t further = 0;
    if (index_link_count(tx, node->id, &further, err) != 0)
        return -1;
    out->nlink = 1 + further;
    return 0;
}

int
attr_fill(struct index_tx *tx, const struct index_node *node, struct volume_attr *out,
          struct err *err)
{
    struct index_node inode;
    if ((node->flags & INDEX_NODE_LINK) == 0)
        return fill(tx, node, out, err);
    inode = *node;
    if (link_resolve(tx, &inode, err) != 0 || fill(tx, &inode, out, err) != 0)
        return -1;
    out->parent = node->parent;
    return 0;
}

/* Bytes that were written are a change of the file. The time they got may be one that a program chose, in the future even. */
int64_t
attr_ctime(int64_t known_ns, const struct stat *st)
{
    int64_t mtime_ns = st->st_mtim.tv_sec * NS_PER_S + st->st_mtim.tv_nsec;
    int64_t changed_ns = st->st_ctim.tv_sec * NS_PER_S + st->st_ctim.tv_nsec;
    int64_t written_ns = mtime_ns < changed_ns ? mtime_ns : changed_ns;
    return written_ns > known_ns ? written_ns : known_ns;
}

void
attr_believe(const struct volume_service *service, const struct index_node *dir,
             struct volume_attr *attr)
{
    int64_t ttl = service->list_ttl_ns;
    attr->fresh_ns = dir == NULL ? ttl : 0;
    if (dir == NULL)
        return;
    changelog_used(service, dir->volume);
    if (!service_listed(service, dir) || dir->listed_ns <= changelog_swept_ns(service, dir->volume))
        return;
    /* The wall clock may have been set meanwhile. */
    int64_t left = dir->listed_ns + ttl - clock_wall_ns();
    attr->fresh_ns = left < 0 ? 0 : left > ttl ? ttl : left;
}

enum live { LIVE_NOT, LIVE_FILLED, LIVE_BUSY };

/* Two writes within a tick of the disk's clock, and a look between them: the second has to be seen by the time, which is all that
 * another kernel goes by (FUSE_CAP_AUTO_INVAL_DATA). */
static void
move_time(struct inode *inode, struct stat *st)
{
    int64_t mtime_ns = st->st_mtim.tv_sec * NS_PER_S + st->st_mtim.tv_nsec;
    if (inode->moved && mtime_ns == inode->told_mtime_ns) {
        mtime_ns++;
        content_set_mtime_locked(inode, mtime_ns);
        st->st_mtim.tv_sec = mtime_ns / NS_PER_S;
        st->st_mtim.tv_nsec = mtime_ns % NS_PER_S;
    }
    inode->moved = false;
    inode->told_mtime_ns = mtime_ns;
}

/* Size and times of a file that is being written; LIVE_NOT when it is not LIVE in memory (any more). */
static enum live
fill_live(struct volume_service *service, bool nowait, struct volume_attr *attr)
{
    struct stat st;
    struct inode *inode = inode_find(&service->inodes, attr->node);
    if (inode == NULL)
        return LIVE_NOT;
    if (!nowait) {
        pthread_mutex_lock(&inode->lock);
    } else if (pthread_mutex_trylock(&inode->lock) != 0) {
        inode_unref(&service->inodes, inode, false);
        return LIVE_BUSY;
    }
    bool live = inode->file != NULL && inode->state == CONTENT_LIVE &&
                fstat(cache_file_fd(inode->file), &st) == 0;
    if (live) {
        move_time(inode, &st);
        attr->size = (uint64_t)st.st_size;
        attr->mtime_ns = st.st_mtim.tv_sec * NS_PER_S + st.st_mtim.tv_nsec;
        if (backing_changed_locked(inode))
            attr->ctime_ns = attr_ctime(attr->ctime_ns, &st);
    }
    pthread_mutex_unlock(&inode->lock);
    inode_unref(&service->inodes, inode, false);
    return live ? LIVE_FILLED : LIVE_NOT;
}

static int
read_again(struct index_tx *tx, void *arg, struct err *err)
{
    struct volume_attr *attr = arg;
    struct index_node node;
    int64_t fresh_ns = attr->fresh_ns;
    if (index_node_get(tx, attr->node, &node, err) != 0 || attr_fill(tx, &node, attr, err) != 0)
        return -1;
    attr->fresh_ns = fresh_ns;
    return 0;
}

/* The file may freeze between the reading of its row and this: then only the row of now has its size. An old one would make
 * a kernel cut the file, and the next O_APPEND write over its beginning. Its lock may be held over a commit: a caller that may
 * not wait is told so. */
int
attr_live(struct volume_service *service, const struct volume_ctx *ctx, struct volume_attr *attr,
          struct err *err)
{
    for (int tries = 0; tries < 8 && attr->writing; tries++) {
        struct volume_attr now = *attr;
        enum live live = fill_live(service, ctx->nowait, attr);
        if (live == LIVE_FILLED)
            return 0;
        if (live == LIVE_BUSY)
            return err_set(err, ERR_AGAIN, "the file is being closed or synced");
        if (index_read(service->index, read_again, &now, err) != 0)
            return -1;
        *attr = now;
    }
    return 0;
}
