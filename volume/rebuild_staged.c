#include <sys/stat.h>

#include "base/log.h"
#include "base/parse.h"
#include "base/scope.h"
#include "volume/extra_impl.h"
#include "volume/rebuild_impl.h"

/*
 * What the cache holds that the bucket may not have (docs/mechanisms.md section 3): each staged file says in `cache/metas` whose
 * bytes it has and what they were made from. That is held against what lies at the key now:
 *   the same version                     the bucket has it: it is a clean copy
 *   what it was made from, or nothing
 *   where it was made from nothing       it goes up when the gateway starts, with that as the condition
 *   anything else                        rows as after such a discovery: the engine makes the conflict at the start
 * What was being written when the gateway ended, or does not hold what it should, is a conflict marked torn. Nothing in the cache
 * is changed here; what gets no row is moved to STATE/lost by the next start.
 */

struct file {
    int64_t number;
    bool has_map;
    struct cache_meta meta;
};

struct staged {
    struct rebuild *rebuild;
    struct cache *cache;
    struct file *file;
    size_t count, cap;
    int64_t highest;         /* number of a content file */
    char (*kept)[ULID_SIZE]; /* versions that are losers in the bucket already */
    size_t kept_count, kept_cap;
};

/* One file that is to be taken in, and what is known about it. */
struct adopt {
    struct rebuild *rebuild;
    const struct index_volume *volume;
    const struct file *file;
    char key[LIMIT_KEY + 1];
    struct observed seen;
    struct object_attrs attrs;
    char extra[LIMIT_EXTRA + 1];
    enum { ADOPT_SYNCED, ADOPT_UPLOAD, ADOPT_CONTRARY } what;
    const char *reason; /* it becomes a conflict for this */
    char path[LIMIT_PATH + 1];
    uint64_t size;
    int64_t mtime_ns;
    bool no_place; /* set by the transaction: its name is a folder's, or its folder a file */
};

/* ---- collecting ---- */

static int
add_file(void *arg, int64_t number, uint64_t disk_bytes, bool has_meta, bool has_map,
         struct err *err)
{
    struct staged *staged = arg;
    struct err bad = ERR_INIT;
    (void)disk_bytes;
    if (number > staged->highest)
        staged->highest = number;
    if (!has_meta)
        return 0;
    if (staged->count == staged->cap) {
        size_t cap = staged->cap == 0 ? 64 : staged->cap * 2;
        struct file *grown = reallocarray(staged->file, cap, sizeof(*grown));
        if (grown == NULL)
            return err_nomem(err);
        staged->file = grown;
        staged->cap = cap;
    }
    struct file *file = &staged->file[staged->count];
    *file = (struct file){ .number = number, .has_map = has_map };
    if (cache_meta_read(staged->cache, number, &file->meta, &bad) == 0) {
        staged->count++;
        return 0;
    }
    if (bad.code != ERR_CORRUPT && bad.code != ERR_NOT_FOUND) {
        *err = bad;
        return -1;
    }
    staged->rebuild->out->staged_left++;
    return 0;
}

static int
add_kept(void *arg, const struct index_conflict *row, struct err *err)
{
    struct staged *staged = arg;
    if (staged->kept_count == staged->kept_cap) {
        size_t cap = staged->kept_cap == 0 ? 64 : staged->kept_cap * 2;
        void *grown = reallocarray(staged->kept, cap, sizeof(*staged->kept));
        if (grown == NULL)
            return err_nomem(err);
        staged->kept = grown;
        staged->kept_cap = cap;
    }
    text_set(staged->kept[staged->kept_count], row->mine_version);
    staged->kept_count++;
    return 0;
}

static int
kept_tx(struct index_tx *tx, void *arg, struct err *err)
{
    return index_conflict_each(tx, 0, add_kept, arg, err);
}

static bool
is_kept(const struct staged *staged, const char *version)
{
    for (size_t i = 0; version[0] != '\0' && i < staged->kept_count; i++)
        if (strcmp(staged->kept[i], version) == 0)
            return true;
    return false;
}

/* Files of one node together; what is being written first, then the newest version. */
static int
by_node(const void *a, const void *b)
{
    const struct file *left = a, *right = b;
    int order = strcmp(left->meta.volume, right->meta.volume);
    if (order == 0)
        order = strcmp(left->meta.node, right->meta.node);
    if (order == 0 && left->meta.live != right->meta.live)
        return left->meta.live ? -1 : 1;
    if (order == 0)
        order = strcmp(right->meta.version, left->meta.version);
    return order != 0 ? order : (left->number < right->number) - (left->number > right->number);
}

/* ---- rows ---- */

static void
fill_content(const struct adopt *adopt, int64_t node, struct index_content *out)
{
    const struct cache_meta *meta = &adopt->file->meta;
    *out = (struct index_content){ .id = adopt->file->number,
                                   .node = node,
                                   .volume = adopt->volume->id,
                                   .state = CONTENT_FROZEN,
                                   .flags = CONTENT_ACKED | CONTENT_DURABLE | CONTENT_COMPLETE,
                                   .size = adopt->size,
                                   .mtime_ns = adopt->mtime_ns };
    text_set(out->version, meta->version);
    text_set(out->base_version, meta->base_version);
    text_set(out->base_etag, meta->base_etag);
    text_set(out->sha256, meta->live ? "" : meta->sha256);
    text_set(out->boot_id, adopt->rebuild->boot_id);
    text_set(out->actor, meta->actor);
    text_set(out->run, meta->run);
}

/* The folders on the way and the name, which may be a folder's; ERR_EXISTS when there is no place. */
static int
find_place(struct index_tx *tx, const struct adopt *adopt, struct index_node *out, bool *found,
           struct err *err)
{
    struct err missing = ERR_INIT;
    struct volume_name at = { 0 };
    if (rebuild_make_parents(tx, adopt->volume, adopt->path, &at, err) != 0)
        return -1;
    *found = index_node_child(tx, at.parent, at.name, at.len, out, &missing) == 0;
    if (!*found && missing.code != ERR_NOT_FOUND) {
        *err = missing;
        return -1;
    }
    if (*found)
        return out->kind == INDEX_DIR ? err_set(err, ERR_EXISTS, "a folder has this name") : 0;
    memset(out, 0, sizeof(*out));
    out->volume = adopt->volume->id;
    out->parent = at.parent;
    out->name_len = (uint16_t)at.len;
    memcpy(out->name, at.name, at.len);
    out->kind = INDEX_FILE;
    out->mode = S_IFREG | 0644;
    return ulid_new(out->ulid, err);
}

/* What the object told, and then what the newer bytes bring along. */
static int
fill_node(struct index_tx *tx, const struct adopt *adopt, struct index_node *node, struct err *err)
{
    const struct cache_meta *meta = &adopt->file->meta;
    struct bucket_told told = { &adopt->seen, &adopt->attrs, adopt->extra };
    if ((node->flags & INDEX_NODE_META_UNKNOWN) != 0 && adopt->seen.present &&
        bucket_complete_row(tx, node, &told, err) != 0)
        return -1;
    if (adopt->what != ADOPT_SYNCED) {
        node->size = adopt->size;
        node->mtime_ns = node->ctime_ns = adopt->mtime_ns;
        node->mode = S_IFREG | (meta->mode & 07777);
        node->uid = meta->uid;
        node->gid = meta->gid;
    }
    if (adopt->what != ADOPT_CONTRARY)
        return 0;
    /* As after the discovery that somebody else wrote there: the node knows its base only, and the object is nobody's. */
    text_set(node->key, adopt->key);
    text_set(node->etag, meta->base_etag);
    text_set(node->version, meta->base_version);
    struct index_key key;
    struct err missing = ERR_INIT;
    if (index_key_get(tx, adopt->key, &key, &missing) != 0) {
        if (missing.code == ERR_NOT_FOUND)
            return 0;
        *err = missing;
        return -1;
    }
    key.owner = 0;
    return index_key_put(tx, &key, err);
}

/* True: what was seen is not what the listing showed a moment before. */
static bool
has_moved(const struct adopt *adopt, const struct index_node *node, bool found)
{
    if (!adopt->seen.present)
        return found;
    return !found || strcmp(node->etag, adopt->seen.etag) != 0;
}

static int
adopt_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct adopt *adopt = arg;
    struct index_node node;
    struct index_content content;
    struct err local = ERR_INIT;
    bool found = false;
    if (find_place(tx, adopt, &node, &found, &local) != 0) {
        adopt->no_place = local.code == ERR_EXISTS || local.code == ERR_BAD_NAME;
        if (!adopt->no_place)
            *err = local;
        return adopt->no_place ? 0 : -1;
    }
    /* Another staged file has the name, or somebody writes there at this very moment. */
    adopt->no_place = node.content != 0 || has_moved(adopt, &node, found);
    if (adopt->no_place)
        return 0;
    if ((!found && index_node_insert(tx, &node, err) != 0) || fill_node(tx, adopt, &node, err) != 0)
        return -1;
    fill_content(adopt, node.id, &content);
    if (adopt->what == ADOPT_SYNCED) {
        content.state = CONTENT_CLEAN;
        text_set(content.etag, adopt->seen.etag);
        text_set(content.md5, adopt->seen.md5);
        text_set(content.sha256, adopt->seen.sha256);
    }
    node.content = content.id;
    if (index_content_insert(tx, &content, err) != 0 || index_node_update(tx, &node, err) != 0)
        return -1;
    if (adopt->what == ADOPT_SYNCED)
        return 0;
    return key_want_sync(tx, adopt->volume->id, adopt->key, 0, err);
}

/* The bytes become a conflict's, as view_keep_loser() does it. */
static int
conflict_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct adopt *adopt = arg;
    struct index_content mine;
    struct index_conflict row = { .volume = adopt->volume->id, .time_ns = clock_wall_ns() };
    char key[LIMIT_KEY + 1];
    fill_content(adopt, 0, &mine);
    mine.flags |= CONTENT_PINNED;
    if (ulid_new(row.id, err) != 0 || (mine.version[0] == '\0' && ulid_new(mine.version, err) != 0))
        return -1;
    row.content = mine.id;
    text_set(row.path, adopt->path);
    if (row.path[0] == '\0')
        (void)snprintf(row.path, sizeof(row.path), "unknown-path-%s", row.id);
    text_set(row.reason, adopt->reason);
    text_set(row.base_version, mine.base_version);
    text_set(row.mine_version, mine.version);
    text_set(row.theirs_version, adopt->seen.version);
    text_set(row.theirs_etag, adopt->seen.etag);
    text_set(row.actor, mine.actor);
    text_set(row.run, mine.run);
    (void)snprintf(key, sizeof(key), CONFLICT_PREFIX "%s/%s", adopt->volume->name, row.id);
    if (index_content_insert(tx, &mine, err) != 0 || index_conflict_put(tx, &row, err) != 0)
        return -1;
    return key_want_sync(tx, adopt->volume->id, key, 0, err);
}

/* ---- judging ---- */

static int
look(struct adopt *adopt, struct err *err)
{
    struct store_object object;
    struct index_node none = { .id = 0 };
    struct err local = ERR_INIT;
    store_object_init(&object);
    int rc = store_head(adopt->rebuild->store, adopt->key, 0, &object, &local);
    if (rc == 0) {
        object_read(&object, &adopt->seen, &adopt->attrs);
        extra_collect(&object, &none, adopt->extra);
    }
    store_object_release(&object);
    if (rc == 0 || local.code == ERR_NOT_FOUND)
        return 0;
    *err = local;
    return -1;
}

/* What lies there is what these bytes were made from: by its ETag, by its id, or as an earlier version of the same file by this very
 * gateway, which nobody else writes with this node's id. */
static bool
is_base(const struct adopt *adopt)
{
    const struct cache_meta *meta = &adopt->file->meta;
    const struct observed *seen = &adopt->seen;
    if (!seen->present)
        return meta->base_etag[0] == '\0' && meta->base_version[0] == '\0';
    if (meta->base_etag[0] != '\0' && strcmp(meta->base_etag, seen->etag) == 0)
        return true;
    if (seen->version[0] == '\0' || !identity_believed(seen, NULL))
        return false;
    return strcmp(meta->base_version, seen->version) == 0 ||
           (meta->node[0] != '\0' && strcmp(meta->node, seen->node) == 0 &&
            strcmp(seen->version, meta->version) < 0);
}

static void
judge(struct adopt *adopt)
{
    const struct cache_meta *meta = &adopt->file->meta;
    bool same = adopt->seen.present && strcmp(adopt->seen.version, meta->version) == 0 &&
                identity_believed(&adopt->seen, NULL) && adopt->seen.size == adopt->size;
    if (same)
        adopt->what = ADOPT_SYNCED;
    else
        adopt->what = is_base(adopt) ? ADOPT_UPLOAD : ADOPT_CONTRARY;
}

static int
hash_of(struct cache_file *file, uint64_t size, char hex[SHA256_HEX], struct err *err)
{
    uint8_t sha[SHA256_SIZE], md[MD5_SIZE];
    if (cache_file_hash(file, size, sha, md, err) != 0)
        return -1;
    hex_encode(sha, sizeof(sha), hex);
    return 0;
}

/* Whether the file holds the version that its meta names: what was written in this boot is there, else it has to prove it. Then it is
 * on the disk too. */
static int
is_whole(const struct adopt *adopt, struct cache_file *file, bool *out, struct err *err)
{
    const struct cache_meta *meta = &adopt->file->meta;
    char hex[SHA256_HEX];
    *out = !meta->live && !adopt->file->has_map && adopt->size == meta->size &&
           ulid_valid(meta->version);
    if (*out && !adopt->rebuild->same_boot) {
        *out = meta->sha256[0] != '\0';
        if (*out && hash_of(file, adopt->size, hex, err) != 0)
            return -1;
        *out = *out && strcmp(hex, meta->sha256) == 0;
    }
    return *out ? cache_file_sync(file, err) : 0;
}

static int
set_apart(struct adopt *adopt, const char *reason, struct err *err)
{
    struct volume_rebuild_report *out = adopt->rebuild->out;
    adopt->reason = reason;
    if (index_write(adopt->rebuild->index, INDEX_NORMAL, conflict_tx, adopt, err) != 0)
        return -1;
    if (strcmp(reason, "torn") == 0)
        out->staged_torn++;
    else
        out->staged_contrary++;
    return 0;
}

static int
take_in(struct adopt *adopt, struct err *err)
{
    struct volume_rebuild_report *out = adopt->rebuild->out;
    judge(adopt);
    if (adopt->path[0] == '\0')
        return set_apart(adopt, "conflict", err);
    if (index_write(adopt->rebuild->index, INDEX_NORMAL, adopt_tx, adopt, err) != 0)
        return -1;
    if (adopt->no_place && adopt->what != ADOPT_SYNCED)
        return set_apart(adopt, "conflict", err);
    if (adopt->no_place)
        out->staged_left++;
    else if (adopt->what == ADOPT_SYNCED)
        out->staged_synced++;
    else if (adopt->what == ADOPT_UPLOAD)
        out->staged_uploads++;
    else
        out->staged_contrary++;
    return 0;
}

/* Being written when the gateway ended: bytes that are elsewhere too need no keeping. `frozen`: the newest saved version of the node,
 * NULL: none. */
static int
take_torn(struct adopt *adopt, const struct file *frozen, struct cache_file *file, struct err *err)
{
    char hex[SHA256_HEX];
    const struct cache_meta *meta = &adopt->file->meta;
    bool needless = adopt->size == 0 || (!meta->live && meta->version[0] != '\0' &&
                                         strcmp(meta->version, adopt->seen.version) == 0);
    if (!needless && hash_of(file, adopt->size, hex, err) != 0)
        return -1;
    needless = needless || strcmp(hex, adopt->seen.sha256) == 0 ||
               (frozen != NULL && strcmp(hex, frozen->meta.sha256) == 0);
    if (!needless)
        return set_apart(adopt, "torn", err);
    adopt->rebuild->out->staged_left++;
    return 0;
}

static int
take_open(struct staged *staged, struct adopt *adopt, const struct file *frozen, struct err *err)
{
    struct stat st;
    bool whole;
    struct err gone = ERR_INIT;
    struct cache_file *file = cache_get(staged->cache, adopt->file->number, &gone);
    if (file == NULL || fstat(cache_file_fd(file), &st) != 0) {
        cache_put(file);
        staged->rebuild->out->staged_left++;
        return 0;
    }
    adopt->size = (uint64_t)st.st_size;
    adopt->mtime_ns = adopt->file->meta.live ? st.st_mtim.tv_sec * NS_PER_S + st.st_mtim.tv_nsec
                                             : adopt->file->meta.mtime_ns;
    int rc = is_whole(adopt, file, &whole, err);
    if (rc == 0)
        rc = whole ? take_in(adopt, err) : take_torn(adopt, frozen, file, err);
    cache_put(file);
    return rc;
}

static int
take_file(struct staged *staged, const struct file *file, const struct file *frozen,
          struct err *err)
{
    scope_free struct adopt *adopt = calloc(1, sizeof(*adopt));
    const char *name = file->meta.volume;
    if (adopt == NULL)
        return err_nomem(err);
    adopt->rebuild = staged->rebuild;
    adopt->file = file;
    adopt->volume = rebuild_volume(staged->rebuild, name, strlen(name));
    if (adopt->volume == NULL || is_kept(staged, file->meta.version)) {
        staged->rebuild->out->staged_left++;
        return 0;
    }
    text_set(adopt->path, file->meta.path);
    if (adopt->path[0] != '\0' &&
        (key_of_path(adopt->volume, adopt->path, false, adopt->key, err) != 0 ||
         look(adopt, err) != 0))
        return -1;
    return take_open(staged, adopt, frozen, err);
}

/* ---- all ---- */

static bool
same_node(const struct file *a, const struct file *b)
{
    return a->meta.node[0] != '\0' && strcmp(a->meta.node, b->meta.node) == 0 &&
           strcmp(a->meta.volume, b->meta.volume) == 0;
}

/* The newest saved version of the node that file `i` belongs to. */
static const struct file *
newest_of(const struct staged *staged, size_t i)
{
    for (size_t at = i; at < staged->count && same_node(&staged->file[i], &staged->file[at]); at++)
        if (!staged->file[at].meta.live)
            return &staged->file[at];
    return NULL;
}

static int
take_all(struct staged *staged, struct err *err)
{
    const struct file *newest = NULL;
    if (staged->count > 0)
        qsort(staged->file, staged->count, sizeof(*staged->file), by_node);
    for (size_t i = 0; i < staged->count; i++) {
        const struct file *file = &staged->file[i];
        if (i == 0 || !same_node(file, file - 1))
            newest = newest_of(staged, i);
        /* A later save has what an earlier one had, as freezing it would have found. */
        bool outdated = !file->meta.live && newest != NULL && file != newest;
        if (outdated)
            staged->rebuild->out->staged_left++;
        else if (take_file(staged, file, newest, err) != 0)
            return -1;
        rebuild_progress(staged->rebuild, "staged files", "", i + 1);
    }
    return 0;
}

/* Numbers of content files are never given twice, whatever becomes of those that get no row. */
static int
number_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct index_content row = { .id = *(int64_t *)arg, .state = CONTENT_CLEAN };
    return row.id == 0 || (index_content_insert(tx, &row, err) == 0 &&
                           index_content_delete(tx, row.id, err) == 0)
               ? 0
               : -1;
}

int
rebuild_staged(struct rebuild *rebuild, struct err *err)
{
    struct staged staged = { .rebuild = rebuild };
    staged.cache = cache_open(rebuild->args->state_dir, &rebuild->args->cache, err);
    if (staged.cache == NULL)
        return -1;
    int rc = cache_scan(staged.cache, add_file, &staged, err);
    if (rc == 0)
        rc = index_write(rebuild->index, INDEX_NORMAL, number_tx, &staged.highest, err);
    if (rc == 0 && staged.count > 0)
        rc = index_read(rebuild->index, kept_tx, &staged, err);
    if (rc == 0)
        rc = take_all(&staged, err);
    cache_close(staged.cache);
    free(staged.file);
    free(staged.kept);
    return rc;
}
