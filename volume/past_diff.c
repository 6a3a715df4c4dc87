#include <stdlib.h>
#include <string.h>

#include "volume/past_impl.h"

/* What differs between a volume at one time and at another. What has the same bytes under another name moved. */

struct file_now {
    const struct volume_past_entry *entry;
};

struct comparing {
    const struct volume_past *then, *now;
    const char *prefix;
    struct file_now *by_node; /* files of now */
    size_t node_count;
    struct file_now *moved; /* those that had another name then, by path */
    size_t moved_count;
    volume_past_diff_fn *fn;
    void *arg;
};

static bool
is_below(const char *path, const char *folder)
{
    size_t len = strlen(folder);
    return len == 0 || (strncmp(path, folder, len) == 0 && (path[len] == '/' || path[len] == '\0'));
}

static bool
same_bytes(const struct volume_past_entry *a, const struct volume_past_entry *b)
{
    return strcmp(a->version, b->version) == 0 ||
           (a->sha256[0] != '\0' && strcmp(a->sha256, b->sha256) == 0);
}

static int
node_order(const void *a, const void *b)
{
    const struct volume_past_entry *x = ((const struct file_now *)a)->entry;
    const struct volume_past_entry *y = ((const struct file_now *)b)->entry;
    return (x->node > y->node) - (x->node < y->node);
}

static int
name_order(const void *a, const void *b)
{
    return strcmp(((const struct file_now *)a)->entry->path,
                  ((const struct file_now *)b)->entry->path);
}

static const struct file_now *
find_in(const struct file_now *list, size_t count, const struct volume_past_entry *entry,
        int (*order)(const void *, const void *))
{
    struct file_now wanted = { entry };
    return count == 0 ? NULL : bsearch(&wanted, list, count, sizeof(*list), order);
}

static int
index_nodes(struct comparing *call, struct err *err)
{
    const struct volume_past_entry *entry;
    uint64_t files, bytes;
    volume_past_usage(call->now, &files, &bytes);
    call->by_node = calloc(files + 1, sizeof(*call->by_node));
    call->moved = calloc(files + 1, sizeof(*call->moved));
    if (call->by_node == NULL || call->moved == NULL)
        return err_nomem(err);
    for (size_t at = 0; (entry = volume_past_next(call->now, &at)) != NULL;)
        if (entry->kind != INDEX_DIR)
            call->by_node[call->node_count++].entry = entry;
    if (call->node_count > 1)
        qsort(call->by_node, call->node_count, sizeof(*call->by_node), node_order);
    return 0;
}

/* Where the file is now that had this entry; NULL: it has its name still, or is no more. */
static const struct volume_past_entry *
moved_to(const struct comparing *call, const struct volume_past_entry *then)
{
    if (then->kind == INDEX_DIR || then->copy[0] != '\0' || then->node == 0 ||
        volume_past_find(call->now, then->path) != NULL)
        return NULL;
    const struct file_now *found = find_in(call->by_node, call->node_count, then, node_order);
    return found != NULL && same_bytes(found->entry, then) ? found->entry : NULL;
}

static int
tell(struct comparing *call, enum volume_past_change change, const struct volume_past_entry *then,
     const struct volume_past_entry *now, struct err *err)
{
    return call->fn(call->arg,
                    &(struct volume_past_difference){ .change = change, .then = then, .now = now },
                    err);
}

/* ---- what is different, kind by kind ---- */

static int
removed_folder(struct comparing *call, const struct volume_past_entry *then, struct err *err)
{
    bool there = then->kind != INDEX_DIR || volume_past_find(call->now, then->path) != NULL;
    return there ? 0 : tell(call, VOLUME_PAST_REMOVED, then, NULL, err);
}

static int
moved_file(struct comparing *call, const struct volume_past_entry *then, struct err *err)
{
    const struct volume_past_entry *now = moved_to(call, then);
    if (now == NULL)
        return 0;
    call->moved[call->moved_count++].entry = now;
    return tell(call, VOLUME_PAST_MOVED, then, now, err);
}

static int
changed_file(struct comparing *call, const struct volume_past_entry *then, struct err *err)
{
    const struct volume_past_entry *now = volume_past_find(call->now, then->path);
    if (then->kind == INDEX_DIR || (now != NULL && now->kind != INDEX_DIR && same_bytes(then, now)))
        return 0;
    if (now == NULL && moved_to(call, then) != NULL)
        return 0;
    return tell(call, now != NULL ? VOLUME_PAST_CHANGED : VOLUME_PAST_REMOVED, then, now, err);
}

static int
added(struct comparing *call, const struct volume_past_entry *now, bool dirs, struct err *err)
{
    if ((now->kind == INDEX_DIR) != dirs || volume_past_find(call->then, now->path) != NULL ||
        find_in(call->moved, call->moved_count, now, name_order) != NULL)
        return 0;
    return tell(call, VOLUME_PAST_ADDED, NULL, now, err);
}

static int
each_then(struct comparing *call,
          int (*fn)(struct comparing *, const struct volume_past_entry *, struct err *),
          struct err *err)
{
    const struct volume_past_entry *entry;
    for (size_t at = 0; (entry = volume_past_next(call->then, &at)) != NULL;)
        if (is_below(entry->path, call->prefix) && fn(call, entry, err) != 0)
            return -1;
    return 0;
}

static int
each_added(struct comparing *call, struct err *err)
{
    const struct volume_past_entry *entry;
    for (size_t at = 0; (entry = volume_past_next(call->now, &at)) != NULL;)
        if (is_below(entry->path, call->prefix) && added(call, entry, false, err) != 0)
            return -1;
    for (size_t at = call->now->count; at-- > 0;) /* the deepest first */
        if (is_below(call->now->entry[at].path, call->prefix) &&
            added(call, &call->now->entry[at], true, err) != 0)
            return -1;
    return 0;
}

static int
compare(struct comparing *call, struct err *err)
{
    if (index_nodes(call, err) != 0 || each_then(call, removed_folder, err) != 0 ||
        each_then(call, moved_file, err) != 0)
        return -1;
    if (call->moved_count > 1)
        qsort(call->moved, call->moved_count, sizeof(*call->moved), name_order);
    return each_then(call, changed_file, err) != 0 ? -1 : each_added(call, err);
}

int
volume_past_diff(const struct volume_past *then, const struct volume_past *now, const char *prefix,
                 volume_past_diff_fn *fn, void *arg, struct err *err)
{
    struct comparing call = { .then = then, .now = now, .prefix = prefix, .fn = fn, .arg = arg };
    int rc = compare(&call, err);
    free(call.by_node);
    free(call.moved);
    return rc;
}
