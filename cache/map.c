#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>

#include "cache/cache_impl.h"

/*
 * `<number>.map`: a header of 4 KiB, one bit per block that is there (read only in the boot that the header names), and the
 * same bits as they were at the last seal with a crc32c (read in any boot). Data is written before its bit; but a power cut
 * may keep the bit and lose the data, hence the boot and the seal.
 */
#define MAP_MAGIC "HFmap1\n"
#define BITS_OFFSET 4096
#define MAX_BLOCKS (LIMIT_FILE_SIZE / CACHE_BLOCK_SIZE)

struct header {
    char magic[8];
    char boot_id[40];
    uint64_t size;  /* little-endian, like all machines that this runs on; checked by `order` */
    uint64_t order; /* 0x0102030405060708 */
    uint32_t block;
    uint32_t crc; /* over all before it */
};
#define ORDER 0x0102030405060708ull

static uint64_t
blocks_of(uint64_t size)
{
    return size / CACHE_BLOCK_SIZE + (size % CACHE_BLOCK_SIZE != 0);
}

static size_t
bytes_of(uint64_t blocks)
{
    return (size_t)((blocks + 7) / 8);
}

static off_t
seal_offset(uint64_t blocks)
{
    return (off_t)(BITS_OFFSET + (bytes_of(blocks) + 4095) / 4096 * 4096);
}

bool
cache_map_has(const struct cache_map *map, uint64_t block)
{
    return (map->bits[block / 8] >> (block % 8) & 1) != 0;
}

static int
open_map(struct cache_file *file, int flags, struct err *err)
{
    char name[CACHE_NAME_SIZE];
    cache_name(file->entry->number, CACHE_MAP, name);
    int fd = sys->openat(file->cache->dir_fd, name, flags | O_NOFOLLOW, 0600);
    return fd >= 0 ? fd : err_sys(err, errno, "cannot open 'cache/%s'", name);
}

static void
set_has_map(struct cache_file *file, bool has_map)
{
    pthread_mutex_lock(&file->cache->lock);
    file->entry->has_map = has_map;
    pthread_mutex_unlock(&file->cache->lock);
}

/* ---- header ---- */
static int
write_header(int fd, const struct cache_file *file, uint64_t size, struct err *err)
{
    struct header head;
    memset(&head, 0, sizeof(head));
    memcpy(head.magic, MAP_MAGIC, sizeof(MAP_MAGIC));
    memcpy(head.boot_id, file->cache->boot_id, sizeof(file->cache->boot_id));
    head.size = size;
    head.order = ORDER;
    head.block = CACHE_BLOCK_SIZE;
    head.crc = crc32c(0, &head, offsetof(struct header, crc));
    return sys_write_full(fd, &head, sizeof(head), 0, err);
}

/* False: not a map of ours. */
static bool
read_header(int fd, struct header *head)
{
    struct err err = ERR_INIT;
    return sys_read_full(fd, head, sizeof(*head), 0, &err) == (ssize_t)sizeof(*head) &&
           memcmp(head->magic, MAP_MAGIC, sizeof(MAP_MAGIC)) == 0 && head->order == ORDER &&
           head->block == CACHE_BLOCK_SIZE && head->size <= LIMIT_FILE_SIZE &&
           head->crc == crc32c(0, head, offsetof(struct header, crc));
}

/* All blocks are there: the map goes. */
static void
finish_locked(struct cache_file *file)
{
    char name[CACHE_NAME_SIZE];
    cache_name(file->entry->number, CACHE_MAP, name);
    /* Should it stay, it says nothing wrong in this boot, and too little in the next. */
    (void)sys->unlinkat(file->cache->dir_fd, name, 0);
    set_has_map(file, false);
    free(steal(&file->map.bits));
}

/* ---- loading ---- */
static uint64_t
count_missing(const struct cache_map *map)
{
    uint64_t missing = 0;
    for (uint64_t i = 0; i < map->blocks; i++)
        missing += !cache_map_has(map, i);
    return missing;
}

/* The bits of the last seal, or none. */
static void
read_seal(int fd, struct cache_map *map)
{
    struct err err = ERR_INIT;
    uint32_t crc = 0;
    size_t len = bytes_of(map->blocks);
    off_t at = seal_offset(map->blocks);
    bool whole =
        sys_read_full(fd, map->bits, len, at, &err) == (ssize_t)len &&
        sys_read_full(fd, &crc, sizeof(crc), at + (off_t)len, &err) == (ssize_t)sizeof(crc) &&
        crc == crc32c(1, map->bits, len);
    if (!whole)
        memset(map->bits, 0, len);
}

static int
load_bits(struct cache_file *file, int fd, const struct header *head, struct err *err)
{
    struct cache_map *map = &file->map;
    map->size = head->size;
    map->blocks = blocks_of(head->size);
    size_t len = bytes_of(map->blocks);
    map->bits = calloc(1, len + 1);
    if (map->bits == NULL)
        return err_nomem(err);
    if (memcmp(head->boot_id, file->cache->boot_id, sizeof(file->cache->boot_id)) == 0) {
        /* Short is fine: blocks at the end that were never filled. */
        if (sys_read_full(fd, map->bits, len, BITS_OFFSET, err) < 0)
            return -1;
    } else {
        read_seal(fd, map);
        if (write_header(fd, file, map->size, err) != 0 ||
            sys_write_full(fd, map->bits, len, BITS_OFFSET, err) != 0)
            return -1;
    }
    map->missing = count_missing(map);
    if (map->missing == 0)
        finish_locked(file);
    return 0;
}

/* A map that cannot be read says nothing about the file: all of it counts as missing. */
static int
load_damaged(struct cache_file *file, int fd, struct err *err)
{
    struct stat st;
    struct header head = { .size = 0 };
    if (fstat(file->fd, &st) != 0)
        return err_sys(err, errno, "stat");
    if (sys->ftruncate(fd, 0) != 0)
        return err_sys(err, errno, "cannot cut a damaged map");
    head.size = (uint64_t)st.st_size;
    if (write_header(fd, file, head.size, err) != 0)
        return -1;
    memcpy(head.boot_id, file->cache->boot_id, sizeof(file->cache->boot_id));
    return load_bits(file, fd, &head, err);
}

int
cache_map_load_locked(struct cache_file *file, struct err *err)
{
    struct header head;
    struct cache_map *map = &file->map;
    if (map->loaded)
        return 0;
    pthread_mutex_lock(&file->cache->lock);
    bool has_map = file->entry->has_map && !file->entry->removed;
    pthread_mutex_unlock(&file->cache->lock);
    if (has_map) {
        scope_fd int fd = open_map(file, O_RDWR, err);
        if (fd < 0)
            return -1;
        int rc =
            read_header(fd, &head) ? load_bits(file, fd, &head, err) : load_damaged(file, fd, err);
        if (rc != 0) {
            free(steal(&map->bits));
            return -1;
        }
    }
    map->loaded = true;
    return 0;
}

void
cache_map_release(struct cache_file *file)
{
    free(file->map.bits);
    file->map = (struct cache_map){ .loaded = false };
}

/* ---- the contract ---- */
int
cache_map_begin(struct cache_file *file, uint64_t size, struct err *err)
{
    if (size > LIMIT_FILE_SIZE)
        return err_set(err, ERR_TOO_LARGE, "a file of %" PRIu64 " bytes is too large", size);
    scope_unlock pthread_mutex_t *held = scope_lock(&file->map_lock);
    (void)held;
    uint64_t blocks = blocks_of(size);
    scope_free uint8_t *bits = calloc(1, bytes_of(blocks) + 1);
    if (bits == NULL)
        return err_nomem(err);
    /* The map first: a file with its size and no map would count as complete. */
    if (blocks > 0) {
        scope_fd int fd = open_map(file, O_RDWR | O_CREAT | O_TRUNC, err);
        if (fd < 0 || write_header(fd, file, size, err) != 0)
            return -1;
        set_has_map(file, true);
    }
    if (sys->ftruncate(file->fd, (off_t)size) != 0)
        return err_sys(err, errno, "cannot make a file of %" PRIu64 " bytes in the cache", size);
    free(file->map.bits);
    file->map =
        (struct cache_map){ .loaded = true, .size = size, .blocks = blocks, .missing = blocks };
    if (blocks > 0)
        file->map.bits = steal(&bits);
    return 0;
}

bool
cache_map_blocks(const struct cache_map *map, uint64_t off, uint64_t len, uint64_t *first,
                 uint64_t *end)
{
    if (map->bits == NULL || len == 0 || off >= map->size)
        return false;
    uint64_t to = len > map->size - off ? map->size : off + len;
    *first = off / CACHE_BLOCK_SIZE;
    *end = blocks_of(to);
    return true;
}

bool
cache_map_missing(struct cache_file *file, uint64_t off, uint64_t len, uint64_t *miss_off,
                  uint64_t *miss_len)
{
    struct err err = ERR_INIT;
    uint64_t block = 0, end = 0;
    scope_unlock pthread_mutex_t *held = scope_lock(&file->map_lock);
    (void)held;
    const struct cache_map *map = &file->map;
    if (cache_map_load_locked(file, &err) != 0) { /* not known to be there: has to be fetched */
        *miss_off = off;
        *miss_len = len;
        return true;
    }
    if (!cache_map_blocks(map, off, len, &block, &end))
        return false;
    while (block < end && cache_map_has(map, block))
        block++;
    if (block == end)
        return false;
    uint64_t first = block;
    while (block < end && !cache_map_has(map, block))
        block++;
    *miss_off = first * CACHE_BLOCK_SIZE;
    uint64_t to = block * (uint64_t)CACHE_BLOCK_SIZE;
    *miss_len = (to < map->size ? to : map->size) - *miss_off;
    return true;
}

bool
cache_map_touches_missing(struct cache_file *file, uint64_t off, uint64_t len)
{
    uint64_t miss_off = 0, miss_len = 0;
    return cache_map_missing(file, off, len, &miss_off, &miss_len);
}

bool
cache_complete(struct cache_file *file)
{
    struct err err = ERR_INIT;
    scope_unlock pthread_mutex_t *held = scope_lock(&file->map_lock);
    (void)held;
    return cache_map_load_locked(file, &err) == 0 && file->map.bits == NULL;
}

static bool
is_removed(struct cache_file *file)
{
    pthread_mutex_lock(&file->cache->lock);
    bool removed = file->entry->removed;
    pthread_mutex_unlock(&file->cache->lock);
    return removed;
}

static int
write_bits(int fd, const struct cache_map *map, uint64_t first, uint64_t end, struct err *err)
{
    uint64_t from = first / 8, to = (end - 1) / 8;
    return sys_write_full(fd, map->bits + from, (size_t)(to - from + 1),
                          (off_t)(BITS_OFFSET + from), err);
}

int
cache_map_mark_locked(struct cache_file *file, uint64_t first, uint64_t end, struct err *err)
{
    struct cache_map *map = &file->map;
    for (uint64_t i = first; i < end; i++) {
        map->missing -= !cache_map_has(map, i);
        map->bits[i / 8] |= (uint8_t)(1u << (i % 8));
    }
    if (map->missing == 0) {
        finish_locked(file);
        return 0;
    }
    if (is_removed(file))
        return 0;
    scope_fd int fd = open_map(file, O_RDWR, err);
    return fd < 0 ? -1 : write_bits(fd, map, first, end, err);
}

/* A seal would bring the blocks back after the next boot: it goes first, and for good. */
int
cache_map_unmark_locked(struct cache_file *file, uint64_t first, uint64_t end, struct err *err)
{
    struct stat st;
    struct cache_map *map = &file->map;
    scope_fd int fd = -1;
    if (!is_removed(file) && (fd = open_map(file, O_RDWR, err)) < 0)
        return -1;
    if (fd >= 0 && fstat(fd, &st) != 0)
        return err_sys(err, errno, "cannot look at a map");
    if (fd >= 0 && st.st_size > seal_offset(map->blocks) &&
        (sys->ftruncate(fd, seal_offset(map->blocks)) != 0 || sys->fdatasync(fd) != 0))
        return err_sys(err, errno, "cannot take back what a map promised");
    for (uint64_t i = first; i < end; i++) {
        map->missing += cache_map_has(map, i);
        map->bits[i / 8] &= (uint8_t) ~(1u << (i % 8));
    }
    return fd < 0 ? 0 : write_bits(fd, map, first, end, err);
}

/* The bits as they are are copied before the data is synced, so that none counts whose data came later. */
int
cache_map_seal(struct cache_file *file, struct err *err)
{
    scope_free uint8_t *copy = NULL;
    pthread_mutex_lock(&file->map_lock);
    int rc = cache_map_load_locked(file, err);
    uint64_t blocks = file->map.blocks;
    size_t len = bytes_of(blocks);
    if (rc == 0 && file->map.bits != NULL && (copy = malloc(len + sizeof(uint32_t))) != NULL)
        memcpy(copy, file->map.bits, len);
    bool complete = rc == 0 && file->map.bits == NULL;
    pthread_mutex_unlock(&file->map_lock);
    if (rc != 0 || (rc = cache_file_sync(file, err)) != 0 || complete)
        return rc;
    if (copy == NULL)
        return err_nomem(err);
    uint32_t crc = crc32c(1, copy, len);
    memcpy(copy + len, &crc, sizeof(crc));
    scope_fd int fd = open_map(file, O_RDWR, err);
    if (fd < 0 || sys_write_full(fd, copy, len + sizeof(crc), seal_offset(blocks), err) != 0)
        return -1;
    if (sys->fdatasync(fd) != 0)
        return err_sys(err, errno, "cannot keep the map of content %" PRId64, file->entry->number);
    return 0;
}
