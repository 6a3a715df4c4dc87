#ifndef UNIT_MOUNT_FAKE_SERVICE_H
#define UNIT_MOUNT_FAKE_SERVICE_H

/* For fake_volume.h: volumes, kernels, the barrier, what is unsynced, and the rows of mounts in the index. */
#include "fake_state.h"
#include "volume/conflicts.h"
#include "volume/reads.h"

/* NOLINTBEGIN(readability-function-size,readability-inconsistent-declaration-parameter-name) */

static void
fake_info(struct volume_info *out)
{
    memset(out, 0, sizeof(*out));
    out->id = 1;
    out->root = FAKE_ROOT;
    memcpy(out->name, "fake", 5);
    memcpy(out->prefix, "pre/", 5);
}

int
volume_find(struct volume_service *service, const char *name, struct volume_info *out,
            struct err *err)
{
    (void)service;
    if (strcmp(name, "fake") != 0)
        return fake_missing(err);
    fake_info(out);
    return 0;
}

int
volume_each(struct volume_service *service, volume_info_fn *fn, void *arg, struct err *err)
{
    struct volume_info info;
    (void)service;
    fake_info(&info);
    return fn(arg, &info, err);
}

struct cache *
volume_service_cache(struct volume_service *service)
{
    (void)service;
    return NULL;
}

void
cache_usage(struct cache *cache, struct cache_usage *out)
{
    (void)cache;
    *out = (struct cache_usage){ .max_bytes = 1u << 30, .free_bytes = 1u << 30 };
}

struct lock_table *
volume_locks(struct volume_service *service)
{
    static struct lock_table *table;
    struct err err = ERR_INIT;
    (void)service;
    if (table == NULL)
        table = lock_table_new(NULL, 64, 8, &err);
    return table;
}

void
volume_teller(struct volume_service *service, volume_pass_fn *pass, void *arg)
{
    (void)service;
    (void)pass;
    (void)arg;
}

bool
volume_told(struct volume_service *service, volume_done_fn *done, void *done_arg)
{
    (void)service;
    (void)done;
    (void)done_arg;
    return false;
}

unsigned
volume_kernel_count(struct volume_service *service)
{
    (void)service;
    return 2;
}

void
volume_kernels(struct volume_service *service, int change)
{
    (void)service;
    (void)change;
}

void
volume_connection_gone(struct volume_service *service, int64_t connection)
{
    (void)service;
    (void)connection;
    scope_unlock pthread_mutex_t *held = scope_lock(&fake.mutex);
    (void)held;
    fake.gone++;
}

void
volume_connection_settled(struct volume_service *service, int64_t connection, uint32_t first,
                          uint32_t end)
{
    (void)service;
    (void)connection;
    (void)first;
    (void)end;
}

int
volume_flush(struct volume_service *service, int64_t volume, int64_t deadline_ns,
             struct volume_barrier *out, struct err *err)
{
    (void)service;
    (void)volume;
    (void)deadline_ns;
    (void)out;
    return fake.flush_fails ? err_set(err, (enum err_code)fake.flush_fails, "not yet") : 0;
}

int
volume_flush_quietly(struct volume_service *service, int64_t volume, int64_t deadline_ns,
                     struct volume_barrier *out, struct err *err)
{
    memset(out, 0, sizeof(*out));
    return volume_flush(service, volume, deadline_ns, out, err);
}

int
volume_status(struct volume_service *service, struct volume_status *out, struct err *err)
{
    (void)service;
    (void)err;
    memset(out, 0, sizeof(*out));
    out->store_ok = true;
    return 0;
}

/* One file that waits, and one conflict. */
int
volume_unsynced_each(struct volume_service *service, int64_t volume, unsigned limit,
                     volume_unsynced_fn *fn, void *arg, struct err *err)
{
    static const struct volume_unsynced row = {
        .key = "pre/sub/b", .path = "sub/b", .what = "upload", .size = 7, .last_error = ""
    };
    (void)service;
    (void)volume;
    (void)limit;
    return fake.unsynced ? fn(arg, &row, err) : 0;
}

int
volume_conflict_each(struct volume_service *service, int64_t volume, index_conflict_fn *fn,
                     void *arg, struct err *err)
{
    static struct index_conflict row = { .id = "01KB8Q4Z017M3XW9D2TR5VNC6H",
                                         .path = "sub/b",
                                         .reason = "conflict",
                                         .mine_version = "mine" };
    (void)service;
    (void)volume;
    return fake.unsynced ? fn(arg, &row, err) : 0;
}

void
volume_reads_of(struct volume_service *service, const char *run, struct volume_run_reads *out)
{
    (void)service;
    (void)run;
    *out = (struct volume_run_reads){ .complete = true };
}

ssize_t
volume_conflict_read(struct volume_service *service, const struct volume_ctx *ctx, const char *id,
                     void *out, size_t len, uint64_t off, struct err *err)
{
    static const char bytes[] = "the loser's bytes";
    (void)service;
    (void)id;
    if (ctx->nowait)
        return err_set(err, ERR_AGAIN, "in the bucket");
    size_t left = off < sizeof(bytes) - 1 ? sizeof(bytes) - 1 - off : 0;
    if (!out)
        return sizeof(bytes) - 1;
    memcpy(out, bytes + off, left < len ? left : len);
    return (ssize_t)(left < len ? left : len);
}

int
volume_conflict_has_base(struct volume_service *service, const char *id, bool *out, struct err *err)
{
    (void)service;
    (void)id;
    (void)err;
    *out = true;
    return 0;
}

/* A base is known, and there is nothing to merge. */
int
volume_conflict_side(struct volume_service *service, const struct volume_ctx *ctx, const char *id,
                     enum volume_side side, struct buf *out, struct err *err)
{
    (void)service;
    (void)id;
    if (ctx->nowait)
        return err_set(err, ERR_AGAIN, "in the bucket");
    if (side == VOLUME_MERGED)
        return err_set(err, ERR_NO_MERGE, "no text");
    return buf_append_str(out, "what both began with", err);
}

int
volume_watch(struct volume_service *service, volume_event_fn *fn, void *arg, struct err *err)
{
    (void)service;
    (void)err;
    fake.watch = fn;
    fake.watch_arg = arg;
    return 0;
}

struct index *
volume_service_index(struct volume_service *service)
{
    (void)service;
    return NULL;
}

int
index_write(struct index *index, enum index_durability durability, index_fn *fn, void *arg,
            struct err *err)
{
    (void)index;
    (void)durability;
    scope_unlock pthread_mutex_t *held = scope_lock(&fake.mutex);
    (void)held;
    return fn(NULL, arg, err);
}

int
index_read(struct index *index, index_fn *fn, void *arg, struct err *err)
{
    return index_write(index, INDEX_NORMAL, fn, arg, err);
}

int
index_meta_get(struct index_tx *tx, const char *name, char *out, size_t size, struct err *err)
{
    (void)tx;
    (void)err;
    (void)snprintf(out, size, "a %s", name);
    return 0;
}

int
index_mount_put(struct index_tx *tx, struct index_mount *row, struct err *err)
{
    (void)tx;
    if (row->id == 0)
        row->id = fake.next_row++;
    for (size_t i = 0; i < fake.row_count; i++) {
        if (fake.rows[i].id == row->id) {
            fake.rows[i] = *row;
            return 0;
        }
    }
    if (fake.row_count == sizeof(fake.rows) / sizeof(fake.rows[0]))
        return err_set(err, ERR_NO_SPACE, "full");
    fake.rows[fake.row_count++] = *row;
    return 0;
}

int
index_mount_delete(struct index_tx *tx, int64_t id, struct err *err)
{
    (void)tx;
    for (size_t i = 0; i < fake.row_count; i++) {
        if (fake.rows[i].id == id) {
            fake.rows[i] = fake.rows[--fake.row_count];
            return 0;
        }
    }
    return fake_missing(err);
}

int
index_mount_each(struct index_tx *tx, index_mount_fn *fn, void *arg, struct err *err)
{
    (void)tx;
    for (size_t i = 0; i < fake.row_count; i++) {
        if (fn(arg, &fake.rows[i], err) < 0)
            return -1;
    }
    return 0;
}

/* NOLINTEND(readability-function-size,readability-inconsistent-declaration-parameter-name) */

#endif
