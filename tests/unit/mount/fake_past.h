#ifndef UNIT_MOUNT_FAKE_PAST_H
#define UNIT_MOUNT_FAKE_PAST_H

/* For fake_volume.h and the cache of pasts: a past has a folder `d` and in it a file `f`, whose bytes say when it was. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "volume/snapshot.h"

/* NOLINTBEGIN(readability-function-size,readability-inconsistent-declaration-parameter-name) */

#define FAKE_PAST_ENTRIES 3u

struct volume_past {
    int64_t at_ns;
    struct volume_past_entry entry[FAKE_PAST_ENTRIES];
};
/* How many were made, and are there; while `gate` is locked none gets ready. */
static atomic_int fake_pasts_made, fake_pasts;
static atomic_bool fake_past_fails;
static pthread_mutex_t fake_past_gate = PTHREAD_MUTEX_INITIALIZER;

int
volume_past_open(struct volume_service *service, int64_t volume, int64_t at_ns,
                 struct volume_past **out, struct err *err)
{
    static const char *const paths[] = { "", "d", "d/f" };
    (void)service;
    (void)volume;
    atomic_fetch_add(&fake_pasts_made, 1);
    pthread_mutex_lock(&fake_past_gate);
    pthread_mutex_unlock(&fake_past_gate);
    if (atomic_load(&fake_past_fails))
        return err_set(err, ERR_IO, "no past today");
    struct volume_past *past = calloc(1, sizeof(*past));
    if (past == NULL)
        return err_nomem(err);
    past->at_ns = at_ns;
    for (unsigned i = 0; i < FAKE_PAST_ENTRIES; i++)
        past->entry[i] =
            (struct volume_past_entry){ .path = paths[i],
                                        .kind = i < 2 ? INDEX_DIR : INDEX_FILE,
                                        .mode = i < 2 ? S_IFDIR | 0755 : S_IFREG | 0644,
                                        .mtime_ns = 1,
                                        .node = 1000 + i,
                                        .version = "",
                                        .sha256 = "",
                                        .copy = "",
                                        .key = "",
                                        .etag = "" };
    past->entry[2].size = 20;
    atomic_fetch_add(&fake_pasts, 1);
    *out = past;
    return 0;
}

void
volume_past_close(struct volume_past *past)
{
    if (past != NULL)
        atomic_fetch_sub(&fake_pasts, 1);
    free(past);
}

const struct volume_past_entry *
volume_past_find(const struct volume_past *past, const char *path)
{
    for (unsigned i = 0; i < FAKE_PAST_ENTRIES; i++)
        if (strcmp(past->entry[i].path, path) == 0)
            return &past->entry[i];
    return NULL;
}

const struct volume_past_entry *
volume_past_next(const struct volume_past *past, size_t *at)
{
    return *at < FAKE_PAST_ENTRIES ? &past->entry[(*at)++] : NULL;
}

const struct volume_past_entry *
volume_past_child(const struct volume_past *past, const char *dir, size_t *at)
{
    size_t want = dir[0] == '\0' ? 1 : 2;
    if (*at > want)
        return NULL;
    *at = want + 1;
    return &past->entry[want];
}

int
volume_past_look(struct volume_service *service, const struct volume_ctx *ctx,
                 const struct volume_past_entry *entry, struct volume_past_entry *out,
                 struct err *err)
{
    (void)service;
    (void)ctx;
    (void)err;
    *out = *entry;
    return 0;
}

ssize_t
volume_past_read(struct volume_service *service, const struct volume_ctx *ctx,
                 const struct volume_past_entry *entry, void *out, size_t len, uint64_t off,
                 struct err *err)
{
    (void)service;
    (void)ctx;
    (void)err;
    size_t left = entry->size - (size_t)off;
    memset(out, 'p', len < left ? len : left);
    return (ssize_t)(len < left ? len : left);
}

int
volume_history_each(struct volume_service *service, const struct volume_ctx *ctx,
                    const struct volume_history_want *want, volume_version_fn *fn, void *arg,
                    struct err *err)
{
    (void)service;
    (void)ctx;
    (void)want;
    (void)fn;
    (void)arg;
    return err_set(err, ERR_NOT_FOUND, "no history");
}

int
volume_trash_each(struct volume_service *service, const struct volume_ctx *ctx,
                  const struct volume_history_want *want, volume_version_fn *fn, void *arg,
                  struct err *err)
{
    (void)service;
    (void)ctx;
    (void)want;
    (void)fn;
    (void)arg;
    (void)err;
    return 0;
}

int
volume_snapshot_each(struct volume_service *service, int64_t volume, volume_snapshot_fn *fn,
                     void *arg, struct err *err)
{
    struct volume_snapshot snapshot = { .name = "first", .at_ns = 1 };
    (void)service;
    (void)volume;
    return fn(arg, &snapshot, err);
}

int
volume_snapshot_find(struct volume_service *service, int64_t volume, const char *name,
                     struct volume_snapshot *out, struct err *err)
{
    (void)service;
    (void)volume;
    *out = (struct volume_snapshot){ .name = "first", .at_ns = 1 };
    return strcmp(name, "first") == 0 ? 0 : err_set(err, ERR_NOT_FOUND, "no such snapshot");
}

int
volume_snapshot_time(struct volume_service *service, int64_t volume, const char *text, int64_t *out,
                     struct err *err)
{
    (void)service;
    (void)volume;
    *out = 1;
    return strcmp(text, "first") == 0 ? 0 : err_set(err, ERR_NOT_FOUND, "no such time");
}
/* NOLINTEND(readability-function-size,readability-inconsistent-declaration-parameter-name) */

#endif
