#include <stdlib.h>
#include <string.h>

#include "base/scope.h"
#include "versioning/index.h"
#include "volume/history_impl.h"
#include "volume/listing_impl.h"
#include "volume/past_impl.h"

/*
 * Files that a snapshot shows, that a rebuild has found, and that were moved since: a move keeps the bytes at the new key, under a new
 * version, and the index has lost that it was one. Here the bytes tell: by the sha256 of the manifest they are found in the history,
 * else among the files of now, of which those of the same size are looked at.
 */

#define PAGE 512u

struct wanted {
    uint64_t size;
    size_t entry;
};

struct moved {
    struct volume_past *past;
    struct wanted *wanted; /* by size */
    size_t count;
    /* folders to be walked through, and files that may have the bytes */
    struct ids {
        int64_t *id;
        size_t count, cap;
    } dirs, files;
    int64_t after;
    size_t dir;
    bool more;
};

static int
add_id(struct ids *ids, int64_t id, struct err *err)
{
    if (ids->count == ids->cap) {
        size_t cap = ids->cap == 0 ? 64 : ids->cap * 2;
        int64_t *grown = reallocarray(ids->id, cap, sizeof(*grown));
        if (grown == NULL)
            return err_nomem(err);
        ids->id = grown;
        ids->cap = cap;
    }
    ids->id[ids->count++] = id;
    return 0;
}

static int
by_size(const void *a, const void *b)
{
    const struct wanted *x = a, *y = b;
    return (x->size > y->size) - (x->size < y->size);
}

static bool
is_missing(const struct volume_past_entry *entry)
{
    return entry->kind == INDEX_FILE && entry->path[0] != '\0' && entry->copy[0] == '\0' &&
           entry->node == 0 && entry->sha256[0] != '\0';
}

static int
collect(struct moved *moved, struct err *err)
{
    const struct volume_past *past = moved->past;
    moved->wanted = calloc(past->count, sizeof(*moved->wanted));
    if (moved->wanted == NULL)
        return err_nomem(err);
    for (size_t i = 0; i < past->count; i++)
        if (is_missing(&past->entry[i]))
            moved->wanted[moved->count++] =
                (struct wanted){ .size = past->entry[i].size, .entry = i };
    qsort(moved->wanted, moved->count, sizeof(*moved->wanted), by_size);
    return 0;
}

/* The first one of that size; `count` when there is none. */
static size_t
first_of(const struct moved *moved, uint64_t size)
{
    size_t low = 0, high = moved->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (moved->wanted[middle].size < size)
            low = middle + 1;
        else
            high = middle;
    }
    return low < moved->count && moved->wanted[low].size == size ? low : moved->count;
}

static int
fill(struct moved *moved, uint64_t size, const char *sha256, const char *copy, int64_t node,
     struct err *err)
{
    for (size_t i = first_of(moved, size); i < moved->count && moved->wanted[i].size == size; i++) {
        struct volume_past_entry *entry = &moved->past->entry[moved->wanted[i].entry];
        if (!is_missing(entry) || strcmp(entry->sha256, sha256) != 0)
            continue;
        entry->node = node;
        if (copy[0] != '\0' && (entry->copy = past_text(moved->past, copy, err)) == NULL)
            return -1;
    }
    return 0;
}

/* ---- in the history ---- */

static int
see_copy(void *arg, const struct index_history *row, struct err *err)
{
    struct moved *moved = arg;
    if (!history_is_kept(row) || row->volume != moved->past->volume)
        return 0;
    return fill(moved, row->size, row->sha256, row->id, 0, err);
}

static int
copies_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct moved *moved = arg;
    return index_history_from(tx, moved->past->volume, "", see_copy, moved, err);
}

/* ---- among the files of now ---- */

static int
see_node(void *arg, const struct index_node *row, struct err *err)
{
    struct moved *moved = arg;
    moved->after = row->id;
    moved->more = true;
    if (row->kind == INDEX_DIR)
        return add_id(&moved->dirs, row->id, err);
    if (row->kind != INDEX_FILE || first_of(moved, row->size) == moved->count)
        return 0;
    return add_id(&moved->files, row->id, err);
}

static int
page_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct moved *moved = arg;
    moved->more = false;
    return index_node_children(tx, moved->dirs.id[moved->dir], moved->after, PAGE, see_node, moved,
                               err);
}

static int
walk(struct moved *moved, struct index *index, int64_t root, struct err *err)
{
    if (add_id(&moved->dirs, root, err) != 0)
        return -1;
    for (moved->dir = 0; moved->dir < moved->dirs.count; moved->dir++) {
        moved->after = 0;
        do {
            if (index_read(index, page_tx, moved, err) != 0)
                return -1;
        } while (moved->more);
    }
    return 0;
}

static int
match_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct moved *moved = arg;
    for (size_t i = 0; i < moved->files.count; i++) {
        struct index_node node;
        struct index_version made;
        struct err missing = ERR_INIT;
        if (index_node_get(tx, moved->files.id[i], &node, &missing) == 0 &&
            index_version_find(tx, node.version, &made, &missing) == 0 &&
            fill(moved, node.size, made.sha256, "", node.id, err) != 0)
            return -1;
        if (missing.code != ERR_NOT_FOUND && missing.msg[0] != '\0')
            return err_set(err, missing.code, "%s", missing.msg);
    }
    return 0;
}

static int
find(struct moved *moved, struct volume_service *service, int64_t root, struct err *err)
{
    const struct volume_ctx ctx = { .actor = "" };
    struct err gone = ERR_INIT;
    if (index_read(service->index, copies_tx, moved, err) != 0 ||
        walk(moved, service->index, root, err) != 0)
        return -1;
    if (moved->files.count > 0 &&
        heads_complete_many(service, &ctx, moved->files.id, moved->files.count, &gone) != 0 &&
        gone.code != ERR_NOT_FOUND)
        return err_set(err, gone.code, "%s", gone.msg);
    return index_read(service->index, match_tx, moved, err);
}

int
past_moved(struct volume_service *service, struct volume_past *past, int64_t root, struct err *err)
{
    struct moved moved = { .past = past };
    int rc = collect(&moved, err);
    if (rc == 0 && moved.count > 0)
        rc = find(&moved, service, root, err);
    free(moved.wanted);
    free(moved.dirs.id);
    free(moved.files.id);
    return rc;
}
