#include "volume/past_impl.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/path.h"
#include "base/scope.h"
#include "volume/history_impl.h"
#include "volume/preserve_impl.h"

/*
 * How a volume was: the versions whose time it was, at the paths of that time. Files that exist are asked for their newest version and
 * for the one that the bucket has, the history for what ended since, the work items for what was removed and not copied yet. A path of
 * today, or of when a version ended, becomes one of then by taking back the renames in between.
 */

#define SLICE 512u
#define ROWS_MOST 2048u /* rows of the history in one reading */

struct rename_back {
    int64_t time_ns;
    const char *from, *to;
};

/* ---- building ---- */

struct building {
    struct volume_service *service;
    struct volume_past *past;
    struct index_tx *tx;
    struct index_volume volume;
    struct rename_back *back; /* newest first */
    size_t back_count, back_cap;
    int64_t dir, after;
    unsigned seen;
    bool unlisted;
    char prefix[LIMIT_PATH + 1];
    int64_t *todo;
    size_t todo_count, todo_cap;
    char from[LIMIT_PATH + 1]; /* of the history */
    char last_path[LIMIT_PATH + 1];
    bool more;
};

static int
add_rename(void *arg, const struct index_change *row, struct err *err)
{
    struct building *call = arg;
    if (strcmp(row->op, "rename") != 0)
        return 0;
    if (call->back_count == call->back_cap) {
        size_t cap = call->back_cap == 0 ? 64 : call->back_cap * 2;
        struct rename_back *grown = reallocarray(call->back, cap, sizeof(*grown));
        if (grown == NULL)
            return err_nomem(err);
        call->back = grown;
        call->back_cap = cap;
    }
    struct rename_back *back = &call->back[call->back_count];
    back->time_ns = row->time_ns;
    back->from = past_text(call->past, row->path, err);
    back->to = past_text(call->past, row->to_path, err);
    if (back->from == NULL || back->to == NULL)
        return -1;
    call->back_count++;
    return 0;
}

/* Where a path of `when_ns` lay then. False: at none that can be told. */
static bool
path_then(const struct building *call, const char *path, int64_t when_ns, char out[LIMIT_PATH + 1])
{
    char next[LIMIT_PATH + 1];
    text_copy(out, LIMIT_PATH + 1, path);
    for (size_t i = 0; i < call->back_count; i++) {
        const struct rename_back *back = &call->back[i];
        size_t len = strlen(back->to);
        if (back->time_ns > when_ns || strncmp(out, back->to, len) != 0 ||
            (out[len] != '\0' && out[len] != '/'))
            continue;
        int all = snprintf(next, sizeof(next), "%s%s", back->from, out + len);
        if (all < 0 || (size_t)all >= sizeof(next))
            return false;
        memcpy(out, next, sizeof(next));
    }
    return true;
}

static bool
was_made(const struct building *call, int64_t made_ns)
{
    return made_ns <= call->past->at_ns;
}

/* A foreign version is as old as its object. */
static int
made_of_node(struct building *call, const struct index_node *node, const char *version,
             int64_t *out, struct err *err)
{
    struct index_key key;
    struct err missing = ERR_INIT;
    if (history_made(call->tx, version, out, err) != 0)
        return -1;
    if (*out != 0)
        return 0;
    *out = node->ctime_ns;
    if (index_key_get(call->tx, node->key, &key, &missing) == 0 && key.modified_ns != 0)
        *out = key.modified_ns;
    return 0;
}

static int
fill_texts(struct building *call, struct volume_past_entry *entry, const char *version,
           const char *sha256, struct err *err)
{
    entry->version = past_text(call->past, version, err);
    entry->sha256 = past_text(call->past, sha256, err);
    return entry->version != NULL && entry->sha256 != NULL ? 0 : -1;
}

static int
sha_of(struct building *call, const char *version, char out[SHA256_HEX], struct err *err)
{
    struct index_version made;
    struct err missing = ERR_INIT;
    out[0] = '\0';
    if (index_version_find(call->tx, version, &made, &missing) == 0)
        memcpy(out, made.sha256, SHA256_HEX);
    else if (missing.code != ERR_NOT_FOUND)
        return err_set(err, missing.code, "%s", missing.msg);
    return 0;
}

/* The file's newest version, or, where that is younger, the one that the bucket has still. */
static int
see_file(struct building *call, const struct index_node *node, const char *path, struct err *err)
{
    struct volume_attr attr;
    struct index_key key;
    struct err missing = ERR_INIT;
    char sha256[SHA256_HEX];
    int64_t made_ns;
    if (attr_fill(call->tx, node, &attr, err) != 0 ||
        made_of_node(call, node, attr.version, &made_ns, err) != 0)
        return -1;
    /* While it is written to, its size and bytes are those of no version yet. */
    bool newest = was_made(call, made_ns) && !attr.writing;
    if (!newest) {
        if (node->etag[0] == '\0' || (!attr.writing && strcmp(attr.version, node->version) == 0))
            return 0;
        if (made_of_node(call, node, node->version, &made_ns, err) != 0)
            return -1;
        if (!was_made(call, made_ns) || index_key_get(call->tx, node->key, &key, &missing) != 0)
            return 0;
    }
    struct volume_past_entry *entry = past_add(call->past, path, err);
    if (entry == NULL)
        return -1;
    entry->kind = node->kind;
    entry->node = node->id;
    entry->size = newest ? attr.size : key.size;
    entry->made_ns = made_ns;
    entry->mode = attr.mode;
    entry->uid = attr.uid;
    entry->gid = attr.gid;
    entry->mtime_ns = attr.mtime_ns;
    const char *version = newest ? attr.version : node->version;
    if (!newest) {
        entry->mtime_ns = 0; /* these are the newest bytes' */
        entry->key = past_text(call->past, node->key, err);
        entry->etag = past_text(call->past, node->etag, err);
        if (entry->key == NULL || entry->etag == NULL)
            return -1;
    }
    if (sha_of(call, version, sha256, err) != 0)
        return -1;
    return fill_texts(call, entry, version[0] != '\0' ? version : node->etag, sha256, err);
}

static int
push_dir(struct building *call, int64_t dir, struct err *err)
{
    if (call->todo_count == call->todo_cap) {
        size_t cap = call->todo_cap == 0 ? 64 : call->todo_cap * 2;
        int64_t *grown = reallocarray(call->todo, cap, sizeof(*grown));
        if (grown == NULL)
            return err_nomem(err);
        call->todo = grown;
        call->todo_cap = cap;
    }
    call->todo[call->todo_count++] = dir;
    return 0;
}

static int
see_node(void *arg, const struct index_node *node, struct err *err)
{
    struct building *call = arg;
    char now[LIMIT_PATH + 1], then[LIMIT_PATH + 1];
    call->after = node->id;
    call->seen++;
    int len = snprintf(now, sizeof(now), "%s%s%s", call->prefix, call->prefix[0] != '\0' ? "/" : "",
                       node->name);
    if (len < 0 || (size_t)len >= sizeof(now) || !path_then(call, now, INT64_MAX, then))
        return 0;
    if (node->kind != INDEX_DIR)
        return see_file(call, node, then, err);
    if (push_dir(call, node->id, err) != 0)
        return -1;
    if (ulid_valid(node->ulid) && !was_made(call, ulid_time_ms(node->ulid) * NS_PER_MS))
        return 0;
    struct volume_past_entry *entry = past_add(call->past, then, err);
    if (entry == NULL)
        return -1;
    entry->kind = INDEX_DIR;
    entry->node = node->id;
    entry->mode = node->mode;
    entry->uid = node->uid;
    entry->gid = node->gid;
    entry->mtime_ns = node->mtime_ns;
    return 0;
}

static int
nodes_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct building *call = arg;
    struct err missing = ERR_INIT;
    struct index_node dir;
    call->tx = tx;
    call->seen = 0;
    call->unlisted = false;
    if (index_node_get(tx, call->dir, &dir, &missing) != 0)
        return missing.code == ERR_NOT_FOUND ? 0 : err_set(err, missing.code, "%s", missing.msg);
    call->unlisted = !service_listed(call->service, &dir);
    if (call->unlisted)
        return 0;
    if (index_node_path(tx, call->dir, call->prefix, sizeof(call->prefix), &missing) != 0)
        return missing.code == ERR_NOT_FOUND ? 0 : err_set(err, missing.code, "%s", missing.msg);
    return index_node_children(tx, call->dir, call->after, SLICE, see_node, call, err);
}

/* What the bucket has in a folder that nobody has listed yet was there before, as far as anybody knows. */
static int
read_folder(struct building *call, struct err *err)
{
    struct volume_ctx ctx = { .actor = "past" };
    struct err local = ERR_INIT;
    for (unsigned tries = 0; tries < 2; tries++) {
        if (index_read(call->service->index, nodes_tx, call, err) != 0)
            return -1;
        if (!call->unlisted)
            return 0;
        if (bucket_list_dir(call->service, &ctx, call->dir, &local) != 0) {
            if (local.code == ERR_NOT_FOUND)
                return 0;
            *err = local;
            return -1;
        }
    }
    return 0;
}

static int
see_nodes(struct building *call, struct err *err)
{
    call->dir = call->volume.root;
    for (;;) {
        call->after = 0;
        do {
            if (read_folder(call, err) != 0)
                return -1;
        } while (call->seen == SLICE);
        if (call->todo_count == 0)
            return 0;
        call->dir = call->todo[--call->todo_count];
    }
}

static int
see_copy(void *arg, const struct index_history *row, struct err *err)
{
    struct building *call = arg;
    char then[LIMIT_PATH + 1];
    if (call->seen++ >= ROWS_MOST && strcmp(row->path, call->last_path) != 0) {
        text_set(call->from, row->path);
        call->more = true;
        return 1;
    }
    text_set(call->last_path, row->path);
    if (!history_is_kept(row) || !was_made(call, row->made_ns) ||
        row->gone_ns <= call->past->at_ns || !path_then(call, row->path, row->gone_ns, then))
        return 0;
    struct volume_past_entry *entry = past_add(call->past, then, err);
    if (entry == NULL)
        return -1;
    entry->copy = past_text(call->past, row->id, err);
    if (entry->copy == NULL)
        return -1;
    entry->node = row->node;
    entry->size = row->size;
    entry->made_ns = row->made_ns;
    entry->mode = row->mode;
    entry->uid = row->uid;
    entry->gid = row->gid;
    entry->mtime_ns = row->mtime_ns;
    if (S_ISLNK(row->mode))
        entry->kind = INDEX_SYMLINK;
    return fill_texts(call, entry, row->version[0] != '\0' ? row->version : row->source_etag,
                      row->sha256, err);
}

static int
copies_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct building *call = arg;
    call->tx = tx;
    call->seen = 0;
    call->more = false;
    return index_history_from(tx, call->volume.id, call->from, see_copy, call, err);
}

/* Removed, and not copied yet: it lies at its key. */
static int
see_work(void *arg, const struct index_intent *row, struct err *err)
{
    struct building *call = arg;
    struct index_key key;
    struct index_change change;
    struct err missing = ERR_INIT;
    char then[LIMIT_PATH + 1];
    int64_t made_ns;
    text_set(call->last_path, row->key);
    call->seen++;
    if (!preserve_wanted(&call->volume, row->key) ||
        index_key_get(call->tx, row->key, &key, &missing) != 0 || !key.discard || key.kept != 0 ||
        key.owner != 0 || index_change_of_key(call->tx, row->key, &change, &missing) != 0 ||
        change.time_ns <= call->past->at_ns || strcmp(change.version, key.version) != 0)
        return 0;
    if (history_made(call->tx, key.version, &made_ns, err) != 0)
        return -1;
    if (!was_made(call, made_ns) || !path_then(call, change.path, change.time_ns, then))
        return 0;
    struct volume_past_entry *entry = past_add(call->past, then, err);
    if (entry == NULL)
        return -1;
    entry->node = change.node;
    entry->size = key.size;
    entry->made_ns = made_ns;
    entry->mode = change.mode;
    entry->key = past_text(call->past, key.key, err);
    entry->etag = past_text(call->past, key.etag, err);
    if (entry->key == NULL || entry->etag == NULL)
        return -1;
    return fill_texts(call, entry, key.version[0] != '\0' ? key.version : key.etag, key.sha256,
                      err);
}

static int
work_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct building *call = arg;
    call->tx = tx;
    call->seen = 0;
    return index_intent_each(tx, call->volume.id, call->from, SLICE, see_work, call, err);
}

/* ---- the whole ---- */

static int
begin_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct building *call = arg;
    if (index_volume_get(tx, call->past->volume, &call->volume, err) != 0)
        return -1;
    struct volume_past_entry *root = past_add(call->past, "", err);
    if (root == NULL)
        return -1;
    root->kind = INDEX_DIR;
    root->node = call->volume.root;
    root->mode = S_IFDIR | 0755;
    root->mtime_ns = call->past->at_ns;
    return index_change_since(tx, call->volume.id, call->past->at_ns, add_rename, call, err);
}

static int
build(struct building *call, struct err *err)
{
    struct index *index = call->service->index;
    if (index_read(index, begin_tx, call, err) != 0 || see_nodes(call, err) != 0)
        return -1;
    do {
        if (index_read(index, work_tx, call, err) != 0)
            return -1;
        text_set(call->from, call->last_path);
    } while (call->seen == SLICE);
    /* What ends while this is read shows up here at the latest. */
    call->from[0] = call->last_path[0] = '\0';
    do {
        if (index_read(index, copies_tx, call, err) != 0)
            return -1;
    } while (call->more);
    return past_order(call->past, err);
}

int
volume_past_open(struct volume_service *service, int64_t volume, int64_t at_ns,
                 struct volume_past **out, struct err *err)
{
    scope_free struct building *call = calloc(1, sizeof(*call));
    struct volume_past *past = calloc(1, sizeof(*past));
    if (call == NULL || past == NULL) {
        free(past);
        return err_nomem(err);
    }
    past->volume = volume;
    past->at_ns = at_ns;
    call->service = service;
    call->past = past;
    bool found = false;
    int rc = past_found(service, past, &found, err);
    if (rc == 0 && !found)
        rc = build(call, err);
    free(call->back);
    free(call->todo);
    if (rc == 0)
        *out = past;
    else
        volume_past_close(past);
    return rc;
}
