#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "volume/past_impl.h"

/* The entries of a past: kept, put in order, found. */

/* ---- memory ---- */

const char *
past_text(struct volume_past *past, const char *text, struct err *err)
{
    size_t len = strlen(text) + 1;
    if (len == 1)
        return "";
    struct chunk *chunk = past->chunks;
    if (chunk == NULL || chunk->size - chunk->used < len) {
        size_t size = len > 65536 ? len : 65536;
        chunk = malloc(sizeof(*chunk) + size);
        if (chunk == NULL) {
            err_nomem(err);
            return NULL;
        }
        *chunk = (struct chunk){ .next = past->chunks, .size = size };
        past->chunks = chunk;
    }
    char *at = chunk->data + chunk->used;
    memcpy(at, text, len);
    chunk->used += len;
    return at;
}

struct volume_past_entry *
past_add(struct volume_past *past, const char *path, struct err *err)
{
    if (past->count == past->cap) {
        size_t cap = past->cap == 0 ? 256 : past->cap * 2;
        struct volume_past_entry *grown = reallocarray(past->entry, cap, sizeof(*grown));
        if (grown == NULL) {
            err_nomem(err);
            return NULL;
        }
        past->entry = grown;
        past->cap = cap;
    }
    struct volume_past_entry *entry = &past->entry[past->count];
    *entry = (struct volume_past_entry){ .volume = past->volume,
                                         .kind = INDEX_FILE,
                                         .version = "",
                                         .sha256 = "",
                                         .copy = "",
                                         .key = "",
                                         .etag = "" };
    entry->path = past_text(past, path, err);
    if (entry->path == NULL)
        return NULL;
    past->count++;
    return entry;
}

void
volume_past_close(struct volume_past *past)
{
    if (past == NULL)
        return;
    while (past->chunks != NULL) {
        struct chunk *next = past->chunks->next;
        free(past->chunks);
        past->chunks = next;
    }
    free(past->entry);
    free(past);
}

/* ---- order ---- */

/* As bytes, but a folder's entries come right behind it. */
static int
path_order(const char *a, const char *b)
{
    while (*a != '\0' && *a == *b) {
        a++;
        b++;
    }
    int x = *a == '/' ? 1 : *a == '\0' ? 0 : (unsigned char)*a + 2;
    int y = *b == '/' ? 1 : *b == '\0' ? 0 : (unsigned char)*b + 2;
    return x - y;
}

/* Of two for one path the younger: an older one ended when the bucket had the younger, which is a little later. */
static int
entry_order(const void *a, const void *b)
{
    const struct volume_past_entry *x = a, *y = b;
    int order = path_order(x->path, y->path);
    if (order != 0)
        return order;
    if (x->made_ns != y->made_ns)
        return x->made_ns < y->made_ns ? 1 : -1;
    /* The same one: where it is still. */
    return strcmp(x->copy, y->copy);
}

/* Folders that nobody has a row of any more. */
static int
add_parents(struct volume_past *past, struct err *err)
{
    char last[LIMIT_PATH + 1] = "", dir[LIMIT_PATH + 1];
    size_t count = past->count;
    for (size_t i = 0; i < count; i++) {
        const char *path = past->entry[i].path;
        for (const char *at = strchr(path, '/'); at != NULL; at = strchr(at + 1, '/')) {
            size_t len = (size_t)(at - path);
            if (strncmp(last, path, len) == 0 && (last[len] == '/' || last[len] == '\0'))
                continue; /* of the one before */
            (void)snprintf(dir, sizeof(dir), "%.*s", (int)len, path);
            struct volume_past_entry *entry = past_add(past, dir, err);
            if (entry == NULL)
                return -1;
            entry->kind = INDEX_DIR;
            entry->mode = S_IFDIR | 0755;
            entry->mtime_ns = past->at_ns;
            path = past->entry[i].path;
        }
        text_set(last, past->entry[i].path);
    }
    return 0;
}

static void
drop_doubles(struct volume_past *past)
{
    size_t kept = 0;
    for (size_t i = 0; i < past->count; i++) {
        struct volume_past_entry *last = kept > 0 ? &past->entry[kept - 1] : NULL;
        if (last != NULL && strcmp(last->path, past->entry[i].path) == 0) {
            /* A row of the folder says more than that something lay in it. */
            if (last->kind == INDEX_DIR && last->node == 0 && past->entry[i].node != 0)
                *last = past->entry[i];
            continue;
        }
        past->entry[kept++] = past->entry[i];
    }
    past->count = kept;
}

int
past_order(struct volume_past *past, struct err *err)
{
    if (past->count > 1)
        qsort(past->entry, past->count, sizeof(*past->entry), entry_order);
    if (add_parents(past, err) != 0)
        return -1;
    if (past->count > 1)
        qsort(past->entry, past->count, sizeof(*past->entry), entry_order);
    drop_doubles(past);
    for (size_t i = 0; i < past->count; i++) {
        past->files += past->entry[i].kind != INDEX_DIR;
        past->bytes += past->entry[i].kind != INDEX_DIR ? past->entry[i].size : 0;
    }
    return 0;
}

int64_t
volume_past_time(const struct volume_past *past)
{
    return past->at_ns;
}

void
volume_past_usage(const struct volume_past *past, uint64_t *files, uint64_t *bytes)
{
    *files = past->files;
    *bytes = past->bytes;
}

/* ---- looking ---- */

/* The first entry that does not come before `path`. */
static size_t
lower_bound(const struct volume_past *past, const char *path)
{
    size_t low = 0, high = past->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (path_order(past->entry[middle].path, path) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const struct volume_past_entry *
volume_past_find(const struct volume_past *past, const char *path)
{
    size_t at = lower_bound(past, path);
    bool found = at < past->count && strcmp(past->entry[at].path, path) == 0;
    return found ? &past->entry[at] : NULL;
}

const struct volume_past_entry *
volume_past_next(const struct volume_past *past, size_t *at)
{
    return *at < past->count ? &past->entry[(*at)++] : NULL;
}

const struct volume_past_entry *
volume_past_child(const struct volume_past *past, const char *dir, size_t *at)
{
    char end[LIMIT_PATH + 3];
    size_t len = strlen(dir);
    size_t i = *at;
    if (i == 0) {
        i = lower_bound(past, dir);
        i += i < past->count && strcmp(past->entry[i].path, dir) == 0;
    } else if (past->entry[i - 1].kind == INDEX_DIR) {
        /* Behind all that lies in the last one. */
        (void)snprintf(end, sizeof(end), "%s/\xff", past->entry[i - 1].path);
        i = lower_bound(past, end);
        while (i < past->count && strncmp(past->entry[i].path, end, strlen(end) - 1) == 0)
            i++;
    }
    *at = i;
    if (i >= past->count)
        return NULL;
    const char *path = past->entry[i].path;
    if (len > 0 && (strncmp(path, dir, len) != 0 || path[len] != '/'))
        return NULL;
    *at = i + 1;
    return &past->entry[i];
}
