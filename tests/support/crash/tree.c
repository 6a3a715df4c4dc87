#include "support/crash/tree.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/hash.h"
#include "base/parse.h"
#include "base/scope.h"

#define FILE_MAX_BYTES (64u << 20)

void
tree_release(struct tree *tree)
{
    free(tree->entry);
    *tree = (struct tree){ 0 };
}

struct tree_entry *
tree_add(struct tree *tree)
{
    if (tree->count == tree->cap) {
        tree->cap = tree->cap == 0 ? 64 : tree->cap * 2;
        tree->entry = reallocarray(tree->entry, tree->cap, sizeof(*tree->entry));
        if (tree->entry == NULL)
            rig_die("out of memory");
    }
    struct tree_entry *entry = &tree->entry[tree->count++];
    memset(entry, 0, sizeof(*entry));
    return entry;
}

static int
by_path(const void *a, const void *b)
{
    const struct tree_entry *left = a, *right = b;
    return strcmp(left->path, right->path);
}

void
tree_sort(struct tree *tree)
{
    if (tree->count > 0)
        qsort(tree->entry, tree->count, sizeof(*tree->entry), by_path);
}

static int
hash_hex(const void *data, size_t len, char out[SHA256_HEX], struct err *err)
{
    uint8_t sum[SHA256_SIZE];
    if (sha256(data, len, sum, err) != 0)
        return -1;
    hex_encode(sum, sizeof(sum), out);
    return 0;
}

/* ---- the volume ---- */

static int
read_once(struct volume_service *service, int64_t node, uint8_t **data, size_t *len,
          struct err *err)
{
    struct volume_ctx ctx = rig_ctx(99);
    struct volume_file *file;
    struct volume_attr attr;
    if (volume_getattr(service, &ctx, node, &attr, err) != 0)
        return -1;
    if (attr.size > FILE_MAX_BYTES)
        return err_set(err, ERR_TOO_LARGE, "a file of %llu bytes", (unsigned long long)attr.size);
    if (volume_file_open(service, &ctx, node, O_RDONLY, &file, err) != 0)
        return -1;
    /* One byte more than the size: what lies behind the end has to be nothing. */
    uint8_t *bytes = malloc(attr.size + 1);
    if (bytes == NULL)
        rig_die("out of memory");
    size_t have = 0;
    ssize_t got;
    do {
        got = volume_file_read(file, &ctx, bytes + have, attr.size + 1 - have, have, err);
        have += got > 0 ? (size_t)got : 0;
    } while (got > 0 && have <= attr.size);
    volume_file_close(file, &ctx);
    if (got >= 0 && have != attr.size)
        got = err_set(err, ERR_IO, "read %zu bytes of a file of %llu", have,
                      (unsigned long long)attr.size);
    if (got < 0) {
        free(bytes);
        return -1;
    }
    *data = bytes;
    *len = have;
    return 0;
}

/* After a power cut the index may be behind the bucket: a listing that ends between the look at the size and the open brings
 * the newer version. Then the size of now has to be the one of the bytes. */
static int
read_node(struct volume_service *service, int64_t node, uint8_t **data, size_t *len,
          struct err *err)
{
    struct volume_ctx ctx = rig_ctx(99);
    struct volume_attr before, after;
    for (int tries = 0;; tries++) {
        if (volume_getattr(service, &ctx, node, &before, err) != 0)
            return -1;
        if (read_once(service, node, data, len, err) == 0)
            return 0;
        struct err local = ERR_INIT;
        bool moved = volume_getattr(service, &ctx, node, &after, &local) == 0 &&
                     strcmp(before.etag, after.etag) != 0;
        if (!moved || tries == 3)
            return -1;
    }
}

int
tree_read_file(struct volume_service *service, int64_t volume, const char *path, uint8_t **data,
               size_t *len, struct err *err)
{
    struct volume_ctx ctx = rig_ctx(99);
    struct volume_attr attr;
    if (volume_resolve(service, &ctx, volume, path, &attr, err) != 0)
        return -1;
    return read_node(service, attr.node, data, len, err);
}

struct listing {
    struct tree *tree;
    const char *dir;
    int64_t *node;
    size_t count, cap, first;
    int64_t after;
};

static int
take_entry(void *arg, const struct volume_entry *item, struct err *err)
{
    struct listing *list = arg;
    struct tree_entry *entry = tree_add(list->tree);
    (void)err;
    (void)snprintf(entry->path, sizeof(entry->path), "%s%s%.*s", list->dir,
                   list->dir[0] == '\0' ? "" : "/", (int)item->name_len, item->name);
    entry->kind = item->attr.kind;
    entry->mode = item->attr.mode;
    entry->mtime_ns = item->attr.mtime_ns;
    entry->size = item->attr.size;
    if (list->count == list->cap) {
        list->cap = list->cap == 0 ? 64 : list->cap * 2;
        list->node = reallocarray(list->node, list->cap, sizeof(*list->node));
        if (list->node == NULL)
            rig_die("out of memory");
    }
    list->node[list->count++] = item->attr.node;
    list->after = item->cookie;
    return 0;
}

static int
list_dir(struct volume_service *service, int64_t node, struct listing *list, struct err *err)
{
    struct volume_ctx ctx = rig_ctx(99);
    size_t before;
    do {
        before = list->count;
        if (volume_list(service, &ctx,
                        &(struct volume_page){ .dir = node, .after = list->after, .limit = 50 },
                        take_entry, list, err) != 0)
            return -1;
    } while (list->count > before);
    return 0;
}

static int
fill_entry(struct volume_service *service, int64_t node, struct tree_entry *entry, struct err *err)
{
    struct volume_ctx ctx = rig_ctx(99);
    char target[LIMIT_SYMLINK + 1];
    uint8_t *data;
    size_t len;
    if (entry->kind == INDEX_SYMLINK) {
        if (volume_readlink(service, &ctx, node, target, sizeof(target), err) != 0)
            return -1;
        return hash_hex(target, strlen(target), entry->sha256, err);
    }
    if (read_node(service, node, &data, &len, err) != 0)
        return -1;
    int rc = hash_hex(data, len, entry->sha256, err);
    entry->size = len;
    free(data);
    return rc;
}

/* Breadth first over a growing list instead of recursion: entry i has node[i]. */
int
tree_of_volume(struct volume_service *service, int64_t volume, struct tree *out, struct err *err)
{
    struct volume_ctx ctx = rig_ctx(99);
    struct volume_attr root;
    struct listing list = { .tree = out, .dir = "" };
    char dir[LIMIT_PATH + 1] = "";
    int64_t node;
    if (volume_resolve(service, &ctx, volume, "", &root, err) != 0)
        return -1;
    int rc = list_dir(service, root.node, &list, err);
    for (size_t i = 0; rc == 0 && i < out->count; i++) {
        struct tree_entry *entry = &out->entry[i];
        node = list.node[i];
        (void)snprintf(dir, sizeof(dir), "%s", entry->path);
        if (entry->kind == INDEX_DIR) {
            list.dir = dir;
            list.after = 0;
            rc = list_dir(service, node, &list, err);
        } else if (fill_entry(service, node, entry, err) != 0) {
            rc = err_wrap(err, "'%s'", dir);
        }
    }
    free(list.node);
    tree_sort(out);
    return rc;
}

/* ---- the bucket ---- */

static int
take_key(void *arg, const struct store_list_entry *item, struct err *err)
{
    struct tree_entry *entry = tree_add(arg);
    (void)err;
    (void)snprintf(entry->path, sizeof(entry->path), "%s", item->key);
    entry->size = item->size;
    return 0;
}

static void
take_meta(const struct store_object *object, struct tree_entry *entry)
{
    uint64_t mode;
    const char *text = meta_get(&object->meta, "mode");
    if (text != NULL && parse_u64(text, &mode))
        entry->mode = (uint32_t)mode;
    text = meta_get(&object->meta, "mtime");
    if (text != NULL && !parse_decimal_seconds(text, &entry->mtime_ns))
        entry->mtime_ns = -1;
    if (S_ISLNK(entry->mode))
        entry->kind = INDEX_SYMLINK;
}

int
tree_read_object(struct store *store, const char *key, uint8_t **data, size_t *len, struct err *err)
{
    char *bytes;
    if (store_get_small(store, key, FILE_MAX_BYTES, &bytes, len, NULL, err) != 0)
        return -1;
    *data = (uint8_t *)bytes;
    return 0;
}

static int
fill_object(struct store *store, struct tree_entry *entry, size_t prefix_len, struct err *err)
{
    struct store_object object;
    scope_free char *data = NULL;
    size_t len;
    store_object_init(&object);
    if (store_get_small(store, entry->path, FILE_MAX_BYTES, &data, &len, &object, err) != 0) {
        store_object_release(&object);
        return err_wrap(err, "object '%s'", entry->path);
    }
    entry->kind = INDEX_FILE;
    take_meta(&object, entry);
    store_object_release(&object);
    if (len != entry->size)
        return err_set(err, ERR_IO, "object '%s' was listed with another size", entry->path);
    size_t path_len = strlen(entry->path);
    if (path_len > prefix_len && entry->path[path_len - 1] == '/') {
        entry->kind = INDEX_DIR;
        entry->path[path_len - 1] = '\0';
    }
    memmove(entry->path, entry->path + prefix_len, strlen(entry->path + prefix_len) + 1);
    return hash_hex(data, len, entry->sha256, err);
}

int
tree_of_bucket(struct store *store, const char *prefix, struct tree *out, struct err *err)
{
    struct store_list list = { .prefix = prefix, .fn = take_key, .arg = out };
    int rc = store_list(store, &list, err);
    for (size_t i = 0; rc == 0 && i < out->count; i++)
        rc = fill_object(store, &out->entry[i], strlen(prefix), err);
    tree_sort(out);
    return rc;
}

/* ---- comparing ---- */

const struct tree_entry *
tree_find(const struct tree *tree, const char *path)
{
    struct tree_entry *key = malloc(sizeof(*key));
    if (key == NULL)
        rig_die("out of memory");
    (void)snprintf(key->path, sizeof(key->path), "%s", path);
    const struct tree_entry *found =
        tree->count == 0 ? NULL : bsearch(key, tree->entry, tree->count, sizeof(*key), by_path);
    free(key);
    return found;
}

static bool
is_empty_dir(const struct tree *tree, size_t at)
{
    size_t len = strlen(tree->entry[at].path);
    for (size_t i = at + 1; i < tree->count; i++) {
        if (strncmp(tree->entry[i].path, tree->entry[at].path, len) != 0)
            return true;
        if (tree->entry[i].path[len] == '/')
            return false;
    }
    return true;
}

static bool
same_bytes(const struct tree_entry *a, const struct tree_entry *b)
{
    return a->kind == b->kind && a->size == b->size && strcmp(a->sha256, b->sha256) == 0;
}

__attribute__((format(printf, 2, 3))) static unsigned
differ(const char *when, const char *fmt, ...)
{
    char text[LIMIT_PATH + 200];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (when != NULL)
        rig_break("%s: %s", when, text);
    return 1;
}

static unsigned
check_entry(const struct tree *volume, size_t at, const struct tree *bucket, const char *when)
{
    const struct tree_entry *mine = &volume->entry[at];
    const struct tree_entry *theirs = tree_find(bucket, mine->path);
    if (mine->kind == INDEX_DIR && (theirs != NULL || !is_empty_dir(volume, at)))
        return 0;
    if (theirs == NULL) {
        return differ(when, "'%s' (%llu bytes, kind %d) has no object", mine->path,
                      (unsigned long long)mine->size, (int)mine->kind);
    }
    if (mine->kind == INDEX_SYMLINK
            ? theirs->kind == INDEX_SYMLINK && strcmp(mine->sha256, theirs->sha256) == 0
            : same_bytes(mine, theirs))
        return 0;
    return differ(when,
                  "'%s' differs: volume %llu bytes %.12s kind %d, bucket %llu bytes %.12s kind %d",
                  mine->path, (unsigned long long)mine->size, mine->sha256, (int)mine->kind,
                  (unsigned long long)theirs->size, theirs->sha256, (int)theirs->kind);
}

unsigned
tree_compare(const struct tree *volume, const struct tree *bucket, const char *when)
{
    unsigned differences = 0;
    for (size_t i = 0; i < volume->count; i++)
        differences += check_entry(volume, i, bucket, when);
    for (size_t i = 0; i < bucket->count; i++) {
        const struct tree_entry *mine = tree_find(volume, bucket->entry[i].path);
        if (mine != NULL && (mine->kind == INDEX_DIR) == (bucket->entry[i].kind == INDEX_DIR))
            continue;
        differences += differ(when, "the bucket has '%s' (%llu bytes, kind %d), the volume has not",
                              bucket->entry[i].path, (unsigned long long)bucket->entry[i].size,
                              (int)bucket->entry[i].kind);
    }
    return differences;
}
