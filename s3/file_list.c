/*
 * Listing: one directory at a time, its names sorted as the keys sort (a directory with its slash), the deepest directory
 * on top of a stack. Memory is bounded by the names of the directories on one path.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/scope.h"
#include "s3/file_impl.h"

#define OPEN_LEVELS 32 /* deeper, the directories above are closed and opened again later */
#define CHECK_EVERY 256

struct item {
    char *sort; /* component, with a slash for a directory */
    char *path; /* below the level's directory */
    bool dir;
    bool odd;
};

struct level {
    struct item *items;
    size_t count;
    size_t cap;
    size_t next;
    size_t key_len;  /* of the key prefix that all items share */
    size_t path_len; /* of the directory's path */
    int fd;          /* -1 when closed */
};

struct lister {
    struct file_store *fs;
    const struct store_list *req;
    size_t prefix_len;
    struct level *levels;
    size_t depth;
    size_t cap;
    size_t probing; /* depth of the level whose directory is asked for any object; 0: none */
    unsigned listed;
    unsigned steps;
    char key[2 * LIMIT_KEY + LIMIT_NAME];
    char path[2 * FILE_PATH_MAX];
};

static void
release_level(struct level *level)
{
    for (size_t i = 0; i < level->count; i++) {
        free(level->items[i].sort);
        free(level->items[i].path);
    }
    free(level->items);
    scope_close_fd(&level->fd);
}

static void
lister_release(struct lister *lister)
{
    while (lister->depth > 0)
        release_level(&lister->levels[--lister->depth]);
    free(lister->levels);
}

/* Whether this item can lead to a key that is asked for. lister->key holds the level's prefix. */
static bool
is_wanted(const struct lister *lister, size_t key_len, const char *sort, bool dir)
{
    const struct store_list *req = lister->req;
    const char *after = req->start_after;
    char full[sizeof(lister->key) + LIMIT_KEY];
    size_t len;

    if (lister->prefix_len > key_len &&
        strncmp(sort, req->prefix + key_len, lister->prefix_len - key_len) != 0)
        return false;
    if (!after || lister->probing)
        return true;
    len = (size_t)snprintf(full, sizeof(full), "%.*s%s", (int)key_len, lister->key, sort);
    if (strcmp(full, after) > 0)
        return true;
    /* Greater keys may still lie in the directory; as a common prefix it was listed already. */
    return dir && !req->delimiter && strncmp(full, after, len) == 0;
}

static int
add_item(struct level *level, const struct item *item, struct err *err)
{
    if (level->count == level->cap) {
        size_t cap = level->cap ? level->cap * 2 : 64;
        struct item *items = reallocarray(level->items, cap, sizeof(*items));
        if (!items)
            return err_nomem(err);
        level->items = items;
        level->cap = cap;
    }
    level->items[level->count++] = *item;
    return 0;
}

/* A directory to read for one level: the level's own, or a part of a long component inside it. */
struct source {
    char path[FILE_LAST_MAX]; /* below the level's directory, "" for itself */
    char part[FILE_LAST_MAX]; /* the bytes of the component so far */
};

struct sources {
    struct source *source;
    size_t count;
    struct source now; /* the one being read, and its directory */
    int fd;
};

/* Adds the directory `name` of the one being read. */
static int
add_source(struct sources *sources, const char *name, const char *part, struct err *err)
{
    const struct source *base = &sources->now;
    struct source *grown;
    struct source fresh;
    int path_len = snprintf(fresh.path, sizeof(fresh.path), "%s%s%s", base->path,
                            base->path[0] ? "/" : "", name);
    int part_len = snprintf(fresh.part, sizeof(fresh.part), "%s%s", base->part, part);

    if ((size_t)path_len >= sizeof(fresh.path) || (size_t)part_len >= sizeof(fresh.part))
        return 0; /* not made by us: such a key has more than 1,024 bytes */
    grown = reallocarray(sources->source, sources->count + 1, sizeof(*grown));
    if (!grown)
        return err_nomem(err);
    sources->source = grown;
    sources->source[sources->count++] = fresh;
    return 0;
}

static unsigned char
type_of(int dir, const struct dirent *entry)
{
    struct stat st;

    if (entry->d_type != DT_UNKNOWN)
        return entry->d_type;
    if (fstatat(dir, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return DT_UNKNOWN;
    return S_ISREG(st.st_mode) ? DT_REG : S_ISDIR(st.st_mode) ? DT_DIR : DT_UNKNOWN;
}

/* What a name stands for. 1 when it is an item, 0 when it is none. */
static int
classify(const struct source *source, const char *name, unsigned char type, bool *odd,
         const char **part)
{
    enum file_name_kind kind = file_name_decode(name, part);

    *odd = kind != FILE_NAME_PLAIN;
    switch (kind) {
    case FILE_NAME_PLAIN:
        return !source->path[0] && (type == DT_REG || type == DT_DIR);
    case FILE_NAME_OBJECT:
        return type == DT_REG;
    case FILE_NAME_DIR:
        return type == DT_DIR;
    default:
        return 0;
    }
}

static bool
is_dots(const char *name)
{
    return name[0] == '.' && (name[1] == '\0' || (name[1] == '.' && name[2] == '\0'));
}

static int
add_name(struct level *level, const struct source *source, const char *name, struct item item,
         struct err *err)
{
    char path[sizeof(source->path) + LIMIT_NAME + 2];

    (void)snprintf(path, sizeof(path), "%s%s%s", source->path, source->path[0] ? "/" : "", name);
    item.sort = strdup(item.sort);
    item.path = strdup(path);
    if (item.sort && item.path && add_item(level, &item, err) == 0)
        return 0;
    free(item.sort);
    free(item.path);
    return err_nomem(err);
}

/* Takes one name of a directory into the level, or a long part into the sources. */
static int
take_name(struct lister *lister, struct level *level, struct sources *sources,
          const struct dirent *entry, struct err *err)
{
    const struct source *source = &sources->now;
    unsigned char type = type_of(sources->fd, entry);
    char text[FILE_LAST_MAX + LIMIT_NAME + 2];
    struct item item = { .sort = text, .dir = type == DT_DIR };
    const char *part;
    int len;

    if (is_dots(entry->d_name))
        return 0;
    if (file_name_decode(entry->d_name, &part) == FILE_NAME_LONG && type == DT_DIR)
        return add_source(sources, entry->d_name, part, err);
    if (!classify(source, entry->d_name, type, &item.odd, &part))
        return 0;
    len = snprintf(text, sizeof(text), "%s%s%s", source->part, part, item.dir ? "/" : "");
    if (level->key_len + (size_t)len > LIMIT_KEY) {
        log_warn(s3, "file is unreachable, its key would be longer than 1024 bytes name=%.100s",
                 entry->d_name);
        return 0;
    }
    if (!is_wanted(lister, level->key_len, text, item.dir))
        return 0;
    return add_name(level, source, entry->d_name, item, err);
}

static int
read_names(struct lister *lister, struct level *level, struct sources *sources, DIR *dir,
           struct err *err)
{
    const struct dirent *entry;

    for (;;) {
        errno = 0;
        entry = readdir(dir); /* NOLINT(concurrency-mt-unsafe): a stream of our own */
        if (!entry && errno != 0)
            return file_fail(err, errno, "cannot list '%s'", lister->fs->dir);
        if (!entry)
            return 0;
        if (take_name(lister, level, sources, entry, err) < 0)
            return -1;
    }
}

static int
read_source(struct lister *lister, struct level *level, struct sources *sources, size_t at,
            struct err *err)
{
    DIR *dir;
    int rc;

    sources->now = sources->source[at];
    sources->fd = file_tree_walk(level->fd, sources->now.path);
    dir = sources->fd >= 0 ? fdopendir(sources->fd) : NULL;
    if (!dir) {
        int sys_errno = errno;
        scope_close_fd(&sources->fd);
        if (sys_errno == ENOENT || sys_errno == ENOTDIR)
            return 0;
        return file_fail(err, sys_errno, "cannot list '%s'", lister->fs->dir);
    }
    rc = read_names(lister, level, sources, dir, err);
    closedir(dir);
    return rc;
}

static int
compare_items(const void *a, const void *b)
{
    const struct item *left = a;
    const struct item *right = b;
    int order = strcmp(left->sort, right->sort);

    return order != 0 ? order : (int)left->odd - (int)right->odd;
}

/* A plain file that lies over an odd one hides it, as in file_tree_find(). */
static void
drop_hidden(struct level *level)
{
    size_t kept = 0;

    for (size_t i = 0; i < level->count; i++) {
        struct item *item = &level->items[i];
        if (kept > 0 && strcmp(level->items[kept - 1].sort, item->sort) == 0) {
            free(item->sort);
            free(item->path);
            continue;
        }
        level->items[kept++] = *item;
    }
    level->count = kept;
}

static int
read_sources(struct lister *lister, struct level *level, struct err *err)
{
    struct sources sources = { .fd = -1 };
    int rc = add_source(&sources, "", "", err);

    for (size_t i = 0; rc == 0 && i < sources.count; i++)
        rc = read_source(lister, level, &sources, i, err);
    free(sources.source);
    if (rc == 0 && level->count > 0) {
        qsort(level->items, level->count, sizeof(level->items[0]), compare_items);
        drop_hidden(level);
    }
    return rc;
}

/* An object that moves to its odd place while its directory is read could be missed: the tree stands still. */
static int
fill_level(struct lister *lister, struct level *level, struct err *err)
{
    scope_locks locks = FILE_LOCKS_INIT;

    if (lister->fs->lock >= 0 &&
        file_lock_shared(lister->fs, NULL, lister->req->deadline_ns, &locks, err) < 0)
        return -1;
    level->fd = file_tree_walk(lister->fs->root, lister->path);
    if (level->fd < 0 && errno == EACCES && strcmp(lister->path, "lost+found") == 0)
        return 0; /* mkfs made it for root; nothing of ours is there */
    if (level->fd < 0 && errno != ENOENT && errno != ENOTDIR)
        return file_fail(err, errno, "cannot list '%s'", lister->fs->dir);
    return level->fd < 0 ? 0 : read_sources(lister, level, err);
}

static int
push_level(struct lister *lister, struct err *err)
{
    struct level level = { .key_len = strlen(lister->key),
                           .path_len = strlen(lister->path),
                           .fd = -1 };

    if (lister->depth == lister->cap) {
        size_t cap = lister->cap ? lister->cap * 2 : 16;
        struct level *levels = reallocarray(lister->levels, cap, sizeof(*levels));
        if (!levels)
            return err_nomem(err);
        lister->levels = levels;
        lister->cap = cap;
    }
    if (fill_level(lister, &level, err) < 0) {
        release_level(&level);
        return -1;
    }
    if (lister->depth >= OPEN_LEVELS)
        scope_close_fd(&lister->levels[lister->depth - 1].fd);
    lister->levels[lister->depth++] = level;
    return 0;
}

static void
pop_level(struct lister *lister)
{
    release_level(&lister->levels[--lister->depth]);
    if (lister->probing == lister->depth)
        lister->probing = 0;
}

static int
emit(struct lister *lister, const struct store_list_entry *entry, struct err *err)
{
    lister->listed++;
    return lister->req->fn(lister->req->arg, entry, err);
}

/* Opens the item's file; -1 with errno. */
static int
open_item(struct lister *lister, struct level *level, const struct item *item)
{
    if (level->fd < 0) {
        lister->path[level->path_len] = '\0';
        level->fd = file_tree_walk(lister->fs->root, lister->path);
    }
    if (level->fd < 0)
        return -1;
    return openat(level->fd, item->path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
}

/* Opens the object of an item. It may have moved aside since its directory was read: then it is looked for by its key.
 * 0 found, 1 gone, -1 error. */
static int
find_item(struct lister *lister, struct level *level, const struct item *item,
          struct file_found *found, struct err *err)
{
    int fd = open_item(lister, level, item);
    struct file_path path;

    if (fd < 0 && errno != ENOENT && errno != ENOTDIR && errno != ELOOP)
        return file_fail(err, errno, "cannot open '%.200s' in '%s'", lister->key, lister->fs->dir);
    if (fd >= 0 && fstat(fd, &found->st) == 0 && S_ISREG(found->st.st_mode)) {
        found->fd = fd;
        return 0;
    }
    scope_close_fd(&fd);
    file_name_of_key(lister->key, &path);
    return file_tree_find(lister->fs, &path, found, err);
}

static int
emit_object(struct lister *lister, struct level *level, const struct item *item, struct err *err)
{
    struct store_object object;
    struct store_list_entry entry = { .key = lister->key, .etag = object.etag };
    scope_found found = FILE_FOUND_INIT;
    int rc = find_item(lister, level, item, &found, err);

    if (rc != 0)
        return rc == 1 ? 0 : -1; /* 1: deleted since */
    store_object_init(&object);
    rc = file_meta_read(lister->fs, found.fd, false, &found.st, &object, err);
    if (rc == 0) {
        entry.size = object.size;
        entry.last_modified_ns = object.last_modified_ns;
        rc = emit(lister, &entry, err);
    }
    store_object_release(&object);
    return rc;
}

/* The directory under `probing` holds an object, so it is a common prefix. */
static int
emit_prefix(struct lister *lister, struct err *err)
{
    size_t depth = lister->probing;
    struct store_list_entry entry = { .key = lister->key, .is_prefix = true };

    lister->key[lister->levels[depth].key_len] = '\0';
    while (lister->depth > depth)
        pop_level(lister);
    return emit(lister, &entry, err);
}

static int
enter(struct lister *lister, const struct level *level, const struct item *item, struct err *err)
{
    size_t len = level->path_len;

    if (len + strlen(item->path) + 2 > sizeof(lister->path))
        return err_set(err, ERR_NAME_TOO_LONG, "directories in '%s' are nested too deeply",
                       lister->fs->dir);
    (void)snprintf(lister->path + len, sizeof(lister->path) - len, "%s%s", len ? "/" : "",
                   item->path);
    if (lister->req->delimiter && !lister->probing)
        lister->probing = lister->depth;
    return push_level(lister, err);
}

static int
check_time(struct lister *lister, struct err *err)
{
    int64_t deadline_ns = lister->req->deadline_ns;

    if (deadline_ns && lister->steps++ % CHECK_EVERY == 0 && clock_mono_ns() >= deadline_ns)
        return err_set(err, ERR_STORE_TIMEOUT, "listing of '%s' took too long", lister->fs->dir);
    return 0;
}

static int
step(struct lister *lister, struct err *err)
{
    struct level *level = &lister->levels[lister->depth - 1];
    const struct item *item;

    if (check_time(lister, err) < 0)
        return -1;
    if (level->next == level->count) {
        pop_level(lister);
        return 0;
    }
    item = &level->items[level->next++];
    (void)snprintf(lister->key + level->key_len, sizeof(lister->key) - level->key_len, "%s",
                   item->sort);
    if (item->dir)
        return enter(lister, level, item, err);
    return lister->probing ? emit_prefix(lister, err) : emit_object(lister, level, item, err);
}

/* The directory that holds all of the prefix but its last component. */
static int
start(struct lister *lister, struct err *err)
{
    const char *slash = strrchr(lister->req->prefix, '/');
    struct file_path path;

    file_name_of_key(lister->req->prefix, &path);
    (void)snprintf(lister->path, sizeof(lister->path), "%s", path.dir);
    if (slash)
        (void)snprintf(lister->key, sizeof(lister->key), "%.*s",
                       (int)(slash - lister->req->prefix) + 1, lister->req->prefix);
    return push_level(lister, err);
}

static int
run(struct lister *lister, struct err *err)
{
    int rc = start(lister, err);

    while (rc == 0 && lister->depth > 0 &&
           (lister->req->limit == 0 || lister->listed < lister->req->limit))
        rc = step(lister, err);
    return rc;
}

int
file_list(struct file_store *fs, const struct store_list *req, struct err *err)
{
    struct lister *lister = calloc(1, sizeof(*lister));
    int rc;

    if (!lister)
        return err_nomem(err);
    lister->fs = fs;
    lister->req = req;
    lister->prefix_len = strlen(req->prefix);
    rc = file_tree_check_root(fs, err);
    if (rc == 0)
        rc = run(lister, err);
    if (rc == 0) /* an emptied or unmounted directory is not an empty store (INV-9) */
        rc = file_tree_check_root(fs, err);
    lister_release(lister);
    free(lister);
    return rc;
}
