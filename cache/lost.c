#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/parse.h"
#include "cache/cache_impl.h"

/* Content files that no row names: kept in lost/ for a while, in case somebody misses them. */

#define KEEP_S (7 * 24 * 3600)

/* `number[.meta]@SECONDS`: the time is in the name, because others may touch the file's own times. */
static void
lost_name(int64_t number, const char *part, char out[96])
{
    (void)snprintf(out, 96, "%" PRId64 "%s@%" PRId64, number, part,
                   (int64_t)(clock_wall_ns() / NS_PER_S));
}

int
cache_lose(struct cache *cache, int64_t number, struct err *err)
{
    char from[CACHE_NAME_SIZE], to[96];
    lost_name(number, ".meta", to);
    if (cache_meta_export(cache, number, cache->lost_fd, to, err) != 0)
        return -1;
    cache_name(number, CACHE_DATA, from);
    lost_name(number, "", to);
    if (sys->renameat2(cache->dir_fd, from, cache->lost_fd, to, 0) != 0)
        return err_sys(err, errno, "cannot move content %" PRId64 " to 'lost'", number);
    log_warn(cache, "content %" PRId64 " has no row in the index: moved to 'lost' for 7 days",
             number);
    cache_forget(cache, number);
    if (sys->fsync(cache->lost_fd) != 0)
        return err_sys(err, errno, "cannot keep the directory 'lost'");
    return 0;
}

void
cache_lost_sweep(struct cache *cache)
{
    struct err err = ERR_INIT;
    uint64_t since = 0;
    scope_dir *dir = cache_scan_open_dir(cache->state_fd, "lost", &err);
    if (dir == NULL) {
        log_warn(cache, "%s", err.msg);
        return;
    }
    int64_t now = clock_wall_ns() / NS_PER_S;
    const struct dirent *item;
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): the stream is not shared */
    while ((item = readdir(dir)) != NULL) {
        const char *at = strrchr(item->d_name, '@');
        if (at == NULL || !parse_u64(at + 1, &since) || since > INT64_MAX ||
            now - (int64_t)since < KEEP_S)
            continue;
        if (sys->unlinkat(dirfd(dir), item->d_name, 0) == 0)
            log_info(cache, "removed 'lost/%s' after 7 days", item->d_name);
    }
}
