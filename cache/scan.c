#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/parse.h"
#include "cache/cache_impl.h"

/* What lies on the disk: read at open, told to the caller. */

struct found {
    struct entry *entry;
    int64_t used_ns;
};
struct found_list {
    struct found *items;
    size_t count, room;
};

void
cache_scan_close_dir(DIR **dir)
{
    if (*dir != NULL)
        (void)closedir(*dir);
}

DIR *
cache_scan_open_dir(int at, const char *name, struct err *err)
{
    scope_fd int fd = sys->openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (dir == NULL)
        err_sys(err, errno, "cannot read the directory '%s'", name);
    else
        (void)steal_fd(&fd);
    return dir;
}

/* "123", "123.map" in the directory where it belongs; false: not ours. */
static bool
parse_name(const char *text, unsigned dir, int64_t *number, enum cache_part *part)
{
    uint64_t value = 0;
    size_t len = strspn(text, "0123456789");
    if (!parse_u64_n(text, len, &value) || value == 0 || value > INT64_MAX || value % 256 != dir ||
        text[0] == '0')
        return false;
    *number = (int64_t)value;
    *part = text[len] == '\0' ? CACHE_DATA : CACHE_MAP;
    return *part == CACHE_DATA || strcmp(text + len, ".map") == 0;
}

static int
remember(struct found_list *list, struct entry *entry, const struct stat *st, struct err *err)
{
    if (list->count == list->room) {
        size_t room = list->room > 0 ? list->room * 2 : 1024;
        struct found *items = reallocarray(list->items, room, sizeof(*items));
        if (items == NULL)
            return err_nomem(err);
        list->items = items;
        list->room = room;
    }
    int64_t used = st->st_atim.tv_sec * NS_PER_S + st->st_atim.tv_nsec;
    int64_t changed = st->st_mtim.tv_sec * NS_PER_S + st->st_mtim.tv_nsec;
    list->items[list->count++] = (struct found){ entry, used > changed ? used : changed };
    return 0;
}

static int
load_data(struct cache *cache, struct found_list *list, int dir_fd, const char *name,
          int64_t number, struct err *err)
{
    struct stat st;
    if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return err_sys(err, errno, "cannot look at '%s' in the cache", name);
    if (!S_ISREG(st.st_mode))
        return 0;
    struct entry *entry = cache_table_add(cache, number);
    if (entry == NULL)
        return err_nomem(err);
    cache_table_set_bytes(cache, entry, cache_space_on_disk(&st));
    return remember(list, entry, &st, err);
}

/* One of the two passes over a directory: first the content files, then what belongs to them. */
static int
load_dir(struct cache *cache, struct found_list *list, unsigned number_of_dir, bool data,
         struct err *err)
{
    char name[4];
    (void)snprintf(name, sizeof(name), "%02x", number_of_dir & 0xff);
    scope_dir *dir = cache_scan_open_dir(cache->dir_fd, name, err);
    if (dir == NULL)
        return -1;
    const struct dirent *item;
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): the stream is not shared */
    while ((item = readdir(dir)) != NULL) {
        int64_t number = 0;
        enum cache_part part = CACHE_DATA;
        if (!parse_name(item->d_name, number_of_dir, &number, &part) ||
            (part == CACHE_DATA) != data)
            continue;
        struct entry *entry = cache_table_find(cache, number);
        if (data && load_data(cache, list, dirfd(dir), item->d_name, number, err) != 0)
            return -1;
        if (!data && entry == NULL) /* a crash between it and the content file */
            (void)sys->unlinkat(dirfd(dir), item->d_name, 0);
        else if (!data)
            entry->has_map = true;
    }
    return 0;
}

static int
by_use(const void *a, const void *b)
{
    const struct found *left = a, *right = b;
    if (left->used_ns != right->used_ns)
        return left->used_ns < right->used_ns ? -1 : 1;
    return left->entry->number < right->entry->number ? -1 : 1;
}

int
cache_scan_load(struct cache *cache, struct err *err)
{
    struct found_list list = { .items = NULL };
    int rc = 0;
    pthread_mutex_lock(&cache->lock); /* nobody else is here yet */
    for (unsigned i = 0; rc == 0 && i < 256; i++) {
        rc = load_dir(cache, &list, i, true, err);
        if (rc == 0)
            rc = load_dir(cache, &list, i, false, err);
    }
    if (list.count > 0)
        qsort(list.items, list.count, sizeof(list.items[0]), by_use);
    for (size_t i = 0; i < list.count; i++)
        cache_table_list(cache, list.items[i].entry);
    pthread_mutex_unlock(&cache->lock);
    free(list.items);
    return rc;
}

/* ---- telling ---- */
static int64_t *
all_numbers(struct cache *cache, size_t *count, struct err *err)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&cache->lock);
    (void)held;
    int64_t *numbers = calloc(cache->count + 1, sizeof(*numbers));
    *count = 0;
    if (numbers == NULL) {
        err_nomem(err);
        return NULL;
    }
    for (size_t i = 0; i < cache->buckets; i++) {
        for (const struct entry *entry = cache->table[i]; entry != NULL; entry = entry->chain)
            numbers[(*count)++] = entry->number;
    }
    return numbers;
}

static int
by_number(const void *a, const void *b)
{
    const int64_t *left = a, *right = b;
    return (*left > *right) - (*left < *right);
}

int
cache_scan(struct cache *cache, cache_scan_fn *fn, void *arg, struct err *err)
{
    size_t count = 0;
    scope_free int64_t *numbers = all_numbers(cache, &count, err);
    if (numbers == NULL)
        return -1;
    qsort(numbers, count, sizeof(*numbers), by_number);
    for (size_t i = 0; i < count; i++) {
        pthread_mutex_lock(&cache->lock);
        const struct entry *entry = cache_table_find(cache, numbers[i]);
        struct entry now = { .number = 0 };
        if (entry != NULL) {
            now.bytes = entry->bytes;
            now.pair = entry->pair;
            now.has_map = entry->has_map;
        }
        pthread_mutex_unlock(&cache->lock);
        if (entry != NULL && fn(arg, numbers[i], now.bytes, now.pair != 0, now.has_map, err) != 0)
            return -1;
    }
    return 0;
}
