#include "cache/cache.h"

#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sys.h"
#include "tests/fuzz/fuzz.h"

/*
 * What a crash, a bad disk or a meddler may leave about a content file: `cache/metas` (the input after 'M' as the fields of a slot,
 * after 'm' as the whole file) and `.map` (after 'P' behind a right head, after 'p' as the whole file). Damage is found, never believed.
 */
#define NUMBER 1 /* lies at cache/01/1 */
#define MAP_NAME "01/1.map"
#define BLOCKS 40u

static char state_dir[128];
static char boot_id[SYS_BOOT_ID_SIZE];

static int
remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st;
    (void)kind;
    (void)ftw;
    return remove(path);
}

static void
clean_up(void)
{
    (void)nftw(state_dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static struct cache *
open_cache(void)
{
    static const struct cache_limits limits = { .max_bytes = 1u << 30, .floor_bytes = 1 };
    struct err err = ERR_INIT;
    struct cache *cache = cache_open(state_dir, &limits, &err);
    HOLDS(cache);
    return cache;
}

static void
begin(void)
{
    struct err err = ERR_INIT;
    const char *base = secure_getenv("TMPDIR");
    (void)snprintf(state_dir, sizeof(state_dir), "%s/hf-fuzz-XXXXXX", base ? base : "/tmp");
    HOLDS(mkdtemp(state_dir));
    (void)atexit(clean_up);
    HOLDS(sys_boot_id(boot_id, &err) == 0);
    struct cache *cache = open_cache();
    struct cache_file *file = cache_create(cache, NUMBER, NULL, false, &err);
    HOLDS(file && cache_file_truncate(file, BLOCKS * CACHE_BLOCK_SIZE, &err) == 0);
    cache_put(file);
    cache_close(cache);
}

static void
put_file(const char *name, const void *data, size_t len)
{
    char path[192];
    (void)snprintf(path, sizeof(path), "%s/cache/%s", state_dir, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    HOLDS(fd >= 0 && write(fd, data, len) == (ssize_t)len);
    close(fd);
}

static void
drop_file(const char *name)
{
    char path[192];
    (void)snprintf(path, sizeof(path), "%s/cache/%s", state_dir, name);
    (void)unlink(path);
}

#define ENDS(text) HOLDS(memchr(text, 0, sizeof(text)))

static void
check_meta(void)
{
    struct err err = ERR_INIT;
    struct cache_meta meta, again;
    struct cache *cache = open_cache();
    if (cache_meta_read(cache, NUMBER, &meta, &err) == 0) {
        ENDS(meta.volume);
        ENDS(meta.path);
        ENDS(meta.node);
        ENDS(meta.version);
        ENDS(meta.base_version);
        ENDS(meta.base_etag);
        ENDS(meta.sha256);
        ENDS(meta.run);
        ENDS(meta.actor);
        struct cache_file *file = cache_get(cache, NUMBER, &err);
        HOLDS(file);
        HOLDS(cache_meta_write(file, &meta, &err) == 0);
        HOLDS(cache_meta_read(cache, NUMBER, &again, &err) == 0);
        HOLDS(strcmp(meta.path, again.path) == 0 && meta.size == again.size &&
              meta.mtime_ns == again.mtime_ns && meta.live == again.live);
        cache_put(file);
    } else {
        HOLDS(err.code == ERR_CORRUPT || err.code == ERR_NEWER_FORMAT || err.code == ERR_NOT_FOUND);
    }
    cache_close(cache);
}

static void
fuzz_meta(const uint8_t *data, size_t size, bool whole)
{
    char slot[8192];
    uint64_t numbers[2] = { NUMBER, 1 }; /* and the turn */
    if (!whole) {
        uint32_t crc = crc32c(crc32c(0, numbers, sizeof(numbers)), data, size);
        int head =
            snprintf(slot, sizeof(slot), "holdfast-meta 2 %d 1 %zu %08x\n", NUMBER, size, crc);
        if ((size_t)head + size > sizeof(slot))
            return;
        memcpy(slot + head, data, size);
        put_file("metas", slot, (size_t)head + size);
    } else {
        put_file("metas", data, size);
    }
    check_meta();
    drop_file("metas");
}

static void
check_map(void)
{
    struct err err = ERR_INIT;
    uint64_t off = 0, len = 0, size = 0;
    struct cache *cache = open_cache();
    struct cache_file *file = cache_get(cache, NUMBER, &err);
    HOLDS(file);
    HOLDS(cache_file_size(file, &size, &err) == 0);
    bool missing = cache_map_missing(file, 0, UINT64_MAX / 2, &off, &len);
    if (missing)
        HOLDS(len > 0);
    HOLDS(missing == !cache_complete(file));
    cache_put(file);
    cache_close(cache);
}

/* The head as cache/map.c has it; its size is the first 8 bytes of the input. */
static void
fuzz_map(const uint8_t *data, size_t size, bool whole)
{
    static char map[16384];
    uint64_t order = 0x0102030405060708, length = BLOCKS * CACHE_BLOCK_SIZE;
    uint32_t block = CACHE_BLOCK_SIZE, crc;
    if (whole) {
        put_file(MAP_NAME, data, size);
    } else {
        memset(map, 0, sizeof(map));
        memcpy(map, "HFmap1\n", 8);
        memcpy(map + 8, boot_id, sizeof(boot_id));
        if (size >= 8)
            memcpy(&length, data, 8);
        memcpy(map + 48, &length, 8);
        memcpy(map + 56, &order, 8);
        memcpy(map + 64, &block, 4);
        crc = crc32c(0, map, 68);
        memcpy(map + 68, &crc, 4);
        size_t bits = size < 8 ? 0 : size - 8;
        if (bits > sizeof(map) - 4096)
            bits = sizeof(map) - 4096;
        if (bits > 0)
            memcpy(map + 4096, data + 8, bits);
        put_file(MAP_NAME, map, 4096 + bits);
    }
    check_map();
    drop_file(MAP_NAME);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (state_dir[0] == '\0')
        begin();
    if (size == 0)
        return 0;
    switch (data[0]) {
    case 'M':
    case 'm':
        fuzz_meta(data + 1, size - 1, data[0] == 'm');
        break;
    case 'P':
    case 'p':
        fuzz_map(data + 1, size - 1, data[0] == 'p');
        break;
    default:
        break;
    }
    return 0;
}
