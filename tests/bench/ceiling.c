/*
 * hf-ceiling MOUNTPOINT: a file system in memory that does nothing but answer: names in one hash table, bytes in malloc'd
 * blocks, nothing kept, nothing checked beyond what its own bench does. What libfuse and the kernel leave to any server on this
 * machine; scripts/bench mount compares with it. Runs until it is unmounted.
 */
#define FUSE_USE_VERSION 314
#include <errno.h>
#include <fuse_lowlevel.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define BUCKETS (1u << 18)
#define NODES (1u << 20)
#define TIMEOUT 1.0

struct node {
    fuse_ino_t ino, parent;
    char *name;
    struct stat st;
    char *data;
    struct node *next;          /* of the bucket */
    struct node *child, *after; /* of the folder, newest first */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct node *buckets[BUCKETS];
static struct node *nodes[NODES];
static fuse_ino_t last = FUSE_ROOT_ID;

static struct node **
bucket_of(fuse_ino_t parent, const char *name)
{
    uint64_t hash = 0xcbf29ce484222325u ^ parent;
    for (; *name != '\0'; name++)
        hash = (hash ^ (uint8_t)*name) * 0x100000001b3u;
    return &buckets[(hash ^ hash >> 32) % BUCKETS];
}

static struct node *
find(fuse_ino_t parent, const char *name)
{
    struct node *at = *bucket_of(parent, name);
    while (at != NULL && (at->parent != parent || strcmp(at->name, name) != 0))
        at = at->next;
    return at;
}

static struct node *
node_of(fuse_ino_t ino)
{
    return ino < NODES ? nodes[ino] : NULL;
}

static void
hang(struct node *node)
{
    struct node **bucket = bucket_of(node->parent, node->name);
    node->next = *bucket;
    *bucket = node;
    node->after = nodes[node->parent]->child;
    nodes[node->parent]->child = node;
}

static void
unhang(struct node *node)
{
    struct node **at = bucket_of(node->parent, node->name);
    while (*at != node)
        at = &(*at)->next;
    *at = node->next;
    at = &nodes[node->parent]->child;
    while (*at != node)
        at = &(*at)->after;
    *at = node->after;
}

static struct node *
make(fuse_ino_t parent, const char *name, mode_t mode)
{
    struct node *node = last + 1 < NODES ? calloc(1, sizeof(*node)) : NULL;
    if (node == NULL || (node->name = strdup(name)) == NULL) {
        free(node);
        return NULL;
    }
    node->ino = node->st.st_ino = ++last;
    node->parent = parent;
    node->st.st_mode = mode;
    node->st.st_nlink = 1;
    (void)clock_gettime(CLOCK_REALTIME, &node->st.st_mtim);
    node->st.st_ctim = node->st.st_atim = node->st.st_mtim;
    nodes[node->ino] = node;
    if (parent != 0)
        hang(node);
    return node;
}

static struct fuse_entry_param
entry_of(const struct node *node)
{
    struct fuse_entry_param entry = { .attr_timeout = TIMEOUT, .entry_timeout = TIMEOUT };
    if (node != NULL) {
        entry.ino = node->ino;
        entry.attr = node->st;
    }
    return entry;
}

static void
on_init(void *userdata, struct fuse_conn_info *conn)
{
    (void)userdata;
    conn->want |= conn->capable &
                  (FUSE_CAP_PARALLEL_DIROPS | FUSE_CAP_ATOMIC_O_TRUNC | FUSE_CAP_HANDLE_KILLPRIV);
}

static void
on_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    pthread_mutex_lock(&lock);
    struct fuse_entry_param entry = entry_of(find(parent, name));
    pthread_mutex_unlock(&lock);
    (void)fuse_reply_entry(req, &entry);
}

static void
on_forget(fuse_req_t req, fuse_ino_t ino, uint64_t count)
{
    (void)ino;
    (void)count;
    fuse_reply_none(req);
}

static void
on_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    (void)fi;
    pthread_mutex_lock(&lock);
    const struct node *node = node_of(ino);
    struct stat st = node != NULL ? node->st : (struct stat){ 0 };
    pthread_mutex_unlock(&lock);
    (void)(node != NULL ? fuse_reply_attr(req, &st, TIMEOUT) : fuse_reply_err(req, ENOENT));
}

static void
on_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *st, int to_set, struct fuse_file_info *fi)
{
    pthread_mutex_lock(&lock);
    struct node *node = node_of(ino);
    if (node != NULL && (to_set & FUSE_SET_ATTR_MODE) != 0)
        node->st.st_mode = st->st_mode;
    pthread_mutex_unlock(&lock);
    on_getattr(req, ino, fi);
}

static void
on_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
    pthread_mutex_lock(&lock);
    const struct node *node =
        find(parent, name) == NULL ? make(parent, name, S_IFDIR | mode) : NULL;
    struct fuse_entry_param entry = entry_of(node);
    pthread_mutex_unlock(&lock);
    (void)(node != NULL ? fuse_reply_entry(req, &entry) : fuse_reply_err(req, EEXIST));
}

static void
on_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
          struct fuse_file_info *fi)
{
    pthread_mutex_lock(&lock);
    struct node *node = find(parent, name);
    if (node == NULL)
        node = make(parent, name, S_IFREG | mode);
    struct fuse_entry_param entry = entry_of(node);
    pthread_mutex_unlock(&lock);
    (void)(node != NULL ? fuse_reply_create(req, &entry, fi) : fuse_reply_err(req, ENOSPC));
}

static void
on_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    (void)ino;
    (void)fuse_reply_open(req, fi);
}

static void
on_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
    (void)fi;
    pthread_mutex_lock(&lock);
    const struct node *node = node_of(ino);
    if (node == NULL || off >= node->st.st_size)
        size = 0;
    else if ((off_t)size > node->st.st_size - off)
        size = (size_t)(node->st.st_size - off);
    (void)fuse_reply_buf(req, size > 0 ? node->data + off : NULL, size);
    pthread_mutex_unlock(&lock);
}

static void
on_write(fuse_req_t req, fuse_ino_t ino, const char *data, size_t size, off_t off,
         struct fuse_file_info *fi)
{
    (void)fi;
    pthread_mutex_lock(&lock);
    struct node *node = node_of(ino);
    off_t end = off + (off_t)size;
    char *grown = node == NULL ? NULL : node->data;
    if (node != NULL && end > node->st.st_size &&
        (grown = realloc(node->data, (size_t)end)) != NULL)
        node->st.st_size = end;
    if (grown != NULL) {
        node->data = grown;
        memcpy(grown + off, data, size);
    }
    pthread_mutex_unlock(&lock);
    (void)(grown != NULL ? fuse_reply_write(req, size) : fuse_reply_err(req, ENOSPC));
}

static void
on_close(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    (void)ino;
    (void)fi;
    (void)fuse_reply_err(req, 0);
}

static void
on_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    pthread_mutex_lock(&lock);
    struct node *node = find(parent, name);
    if (node != NULL) {
        unhang(node);
        nodes[node->ino] = NULL;
        free(node->name);
        free(node->data);
        free(node);
    }
    pthread_mutex_unlock(&lock);
    (void)fuse_reply_err(req, node != NULL ? 0 : ENOENT);
}

static void /* NOLINTNEXTLINE(readability-function-size): libfuse's parameters */
on_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
          const char *new_name, unsigned flags)
{
    char *copy = strdup(new_name);
    (void)flags;
    pthread_mutex_lock(&lock);
    struct node *node = find(parent, name);
    if (node != NULL && copy != NULL) {
        unhang(node);
        free(node->name);
        node->name = copy;
        node->parent = new_parent;
        hang(node);
    }
    pthread_mutex_unlock(&lock);
    (void)fuse_reply_err(req, node != NULL ? 0 : ENOENT);
}

/* Names only, and as many as one answer holds: the bench lists small folders, to empty them. */
static void
on_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
    char *answer = malloc(size);
    size_t used = 0;
    off_t at = 0;
    (void)fi;
    pthread_mutex_lock(&lock);
    const struct node *dir = node_of(ino);
    for (const struct node *child = dir != NULL ? dir->child : NULL;
         child != NULL && answer != NULL; child = child->after) {
        if (at++ < off)
            continue;
        size_t need =
            fuse_add_direntry(req, answer + used, size - used, child->name, &child->st, at);
        if (need > size - used)
            break;
        used += need;
    }
    pthread_mutex_unlock(&lock);
    (void)fuse_reply_buf(req, answer, used);
    free(answer);
}

static const struct fuse_lowlevel_ops ops = {
    .init = on_init,
    .lookup = on_lookup,
    .forget = on_forget,
    .getattr = on_getattr,
    .setattr = on_setattr,
    .mkdir = on_mkdir,
    .create = on_create,
    .open = on_open,
    .read = on_read,
    .write = on_write,
    .flush = on_close,
    .release = on_close,
    .unlink = on_unlink,
    .rmdir = on_unlink,
    .rename = on_rename,
    .readdir = on_readdir,
};

int
main(int argc, char **argv)
{
    char program[] = "hf-ceiling", flag[] = "-o",
         options[] = "default_permissions,fsname=hf-ceiling";
    char *words[] = { program, flag, options, NULL };
    struct fuse_args args = FUSE_ARGS_INIT(3, words);
    struct fuse_loop_config *config = fuse_loop_cfg_create();
    if (argc != 2 || make(0, "", S_IFDIR | 0755) == NULL || config == NULL)
        return 2;
    /* make() gave the root the number after the root's. */
    nodes[FUSE_ROOT_ID] = nodes[last];
    nodes[FUSE_ROOT_ID]->ino = nodes[FUSE_ROOT_ID]->st.st_ino = FUSE_ROOT_ID;
    nodes[last] = NULL;
    struct fuse_session *session = fuse_session_new(&args, &ops, sizeof(ops), NULL);
    if (session == NULL || fuse_session_mount(session, argv[1]) != 0)
        return 1;
    fuse_loop_cfg_set_clone_fd(config, 0);
    int rc = fuse_session_loop_mt(session, config);
    fuse_session_unmount(session);
    fuse_session_destroy(session);
    fuse_loop_cfg_destroy(config);
    return rc != 0;
}
