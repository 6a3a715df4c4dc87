#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/stat.h>

#include "base/log.h"
#include "cache/cache_impl.h"

/* Blocks of a partly present file while they come, are read, and go again. */

/* ---- coming ---- */

static uint64_t
block_end(const struct cache_fill *fill)
{
    uint64_t end = (fill->off / CACHE_BLOCK_SIZE + 1) * CACHE_BLOCK_SIZE;
    return end < fill->end ? end : fill->end;
}

static int
begin_block(struct cache_fill *fill, uint64_t end, struct err *err)
{
    struct cache_file *file = fill->file;
    pthread_mutex_lock(&file->map_lock);
    int rc = cache_map_load_locked(file, err);
    const struct cache_map *map = &file->map;
    fill->there =
        rc == 0 && (map->bits == NULL || cache_map_has(map, fill->off / CACHE_BLOCK_SIZE));
    bool borders = map->bits == NULL || (fill->off % CACHE_BLOCK_SIZE == 0 &&
                                         (end % CACHE_BLOCK_SIZE == 0 || end == map->size));
    pthread_mutex_unlock(&file->map_lock);
    if (rc != 0)
        return -1;
    if (!borders)
        return err_set(err, ERR_INTERNAL, "the cache was given half a block");
    uint64_t bytes = fill->there ? 0 : end - fill->off;
    if (bytes > 0 && cache_space_promise(file->cache, bytes, err) != 0)
        return -1;
    fill->promised = bytes;
    fill->begun = true;
    return 0;
}

/* Data before its bit. */
static int
finish_block(struct cache_fill *fill, struct err *err)
{
    struct cache_file *file = fill->file;
    uint64_t block = (fill->off - 1) / CACHE_BLOCK_SIZE;
    cache_fill_end(fill);
    if (fill->there)
        return 0;
    scope_unlock pthread_mutex_t *held = scope_lock(&file->map_lock);
    (void)held;
    if (cache_map_load_locked(file, err) != 0)
        return -1;
    return file->map.bits == NULL ? 0 : cache_map_mark_locked(file, block, block + 1, err);
}

int
cache_fill_bytes(struct cache_fill *fill, const void *data, size_t len, struct err *err)
{
    const uint8_t *at = data;
    while (len > 0) {
        uint64_t end = block_end(fill);
        size_t part = len < end - fill->off ? len : (size_t)(end - fill->off);
        if (part == 0)
            return err_set(err, ERR_INTERNAL, "the cache was given more than was asked for");
        if (!fill->begun && begin_block(fill, end, err) != 0)
            return -1;
        if (!fill->there && sys_write_full(fill->file->fd, at, part, (off_t)fill->off, err) != 0)
            return err_wrap(err, "cannot write to the cache");
        fill->off += part;
        at += part;
        len -= part;
        if (fill->off == end && finish_block(fill, err) != 0)
            return -1;
    }
    return 0;
}

void
cache_fill_end(struct cache_fill *fill)
{
    if (fill->promised > 0)
        cache_space_settle(fill->file, fill->promised);
    fill->promised = 0;
    fill->begun = false;
}

/* ---- being read ---- */

static bool
all_there(const struct cache_map *map, uint64_t first, uint64_t end)
{
    while (first < end && cache_map_has(map, first))
        first++;
    return first == end;
}

bool
cache_read_begin(struct cache_file *file, uint64_t off, uint64_t len, struct cache_reading *out)
{
    struct err err = ERR_INIT;
    *out = (struct cache_reading){ .file = file };
    pthread_mutex_lock(&file->map_lock);
    bool there = cache_map_load_locked(file, &err) == 0;
    if (there && cache_map_blocks(&file->map, off, len, &out->first, &out->end)) {
        there = all_there(&file->map, out->first, out->end);
        if (there) {
            out->listed = true;
            out->next = file->map.reading;
            file->map.reading = out;
        }
    }
    pthread_mutex_unlock(&file->map_lock);
    out->file = there ? cache_ref(file) : NULL;
    return there;
}

void
cache_read_end(struct cache_reading *reading)
{
    struct cache_file *file = reading->file;
    if (reading->listed) {
        pthread_mutex_lock(&file->map_lock);
        struct cache_reading **at = &file->map.reading;
        while (*at != reading)
            at = &(*at)->next;
        *at = reading->next;
        pthread_mutex_unlock(&file->map_lock);
    }
    cache_put(file);
}

/* ---- going ---- */

static bool
is_lent(const struct cache_map *map, uint64_t block)
{
    for (const struct cache_reading *at = map->reading; at != NULL; at = at->next)
        if (at->first <= block && block < at->end)
            return true;
    return false;
}

/* The bit goes before the bytes: a crash in between leaves bytes that nobody reads, not zeros that somebody does. */
static uint64_t
drop_block(struct cache_file *file, uint64_t block)
{
    struct err err = ERR_INIT;
    uint64_t off = block * CACHE_BLOCK_SIZE, len = CACHE_BLOCK_SIZE;
    if (cache_map_unmark_locked(file, block, block + 1, &err) != 0) {
        log_warn(cache, "cannot drop a block: %s", err.msg);
        return 0;
    }
    if (len > file->map.size - off)
        len = file->map.size - off;
    if (sys->fallocate(file->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)off,
                       (off_t)len) == 0)
        return len;
    log_debug(cache, "the blocks of a file cannot be given back: %s", strerrordesc_np(errno));
    return 0;
}

uint64_t
cache_map_drop(struct cache_file *file, uint64_t bytes)
{
    struct err err = ERR_INIT;
    uint64_t gone = 0;
    pthread_mutex_lock(&file->map_lock);
    struct cache_map *map = &file->map;
    if (cache_map_load_locked(file, &err) == 0 && map->bits != NULL) {
        for (uint64_t i = 0; i < map->blocks && gone < bytes; i++) {
            uint64_t block = map->hand;
            map->hand = (map->hand + 1) % map->blocks;
            if (cache_map_has(map, block) && !is_lent(map, block))
                gone += drop_block(file, block);
        }
    }
    pthread_mutex_unlock(&file->map_lock);
    if (gone > 0)
        cache_space_settle(file, 0);
    return gone;
}
