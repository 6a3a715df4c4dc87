#include "mount/handle.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/scope.h"

#define FIRST_SIZE 64u
#define MAX_HANDLES (1u << 24)

void
handle_table_init(struct handle_table *table)
{
    memset(table, 0, sizeof(*table));
    pthread_mutex_init(&table->mutex, NULL);
}

static uint64_t
number_at(struct handle_table *table, uint32_t at)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&table->mutex);
    (void)held;
    return at < table->size && table->slots[at] ? table->slots[at]->fh : 0;
}

void
handle_table_close(struct handle_table *table, const struct volume_ctx *ctx)
{
    for (uint32_t i = 0; i < table->size; i++) {
        uint64_t fh = number_at(table, i);
        if (fh != 0)
            handle_remove(table, fh, ctx);
    }
}

void
handle_table_release(struct handle_table *table, const struct volume_ctx *ctx)
{
    handle_table_close(table, ctx);
    free(table->slots);
    free(table->generations);
    pthread_mutex_destroy(&table->mutex);
}

static int
grow_locked(struct handle_table *table, struct err *err)
{
    uint32_t size = table->size == 0 ? FIRST_SIZE : table->size * 2;
    if (size > MAX_HANDLES)
        return err_set(err, ERR_FILES, "too many open files in one mount");
    struct handle **slots = realloc(table->slots, size * sizeof(struct handle *));
    if (!slots)
        return err_nomem(err);
    table->slots = slots;
    uint32_t *generations = realloc(table->generations, size * sizeof(*generations));
    if (!generations)
        return err_nomem(err);
    table->generations = generations;
    for (uint32_t i = table->size; i < size; i++) {
        slots[i] = NULL;
        generations[i] = 0;
    }
    table->next = table->size;
    table->size = size;
    return 0;
}

static int
place_locked(struct handle_table *table, struct handle *handle, struct err *err)
{
    if (table->used == table->size && grow_locked(table, err) < 0)
        return -1;
    while (table->slots[table->next])
        table->next = (table->next + 1) % table->size;
    uint32_t at = table->next;
    handle->fh = (uint64_t)++table->generations[at] << 32 | at;
    table->slots[at] = handle;
    table->used++;
    return 0;
}

int
handle_add(struct handle_table *table, struct volume_file *file, unsigned flags,
           const struct volume_ctx *ctx, uint64_t *fh, struct err *err)
{
    int placed = -1;
    struct handle *handle = calloc(1, sizeof(*handle));
    if (!handle) {
        err_nomem(err);
    } else {
        *handle = (struct handle){ .file = file, .flags = flags, .refs = 1 };
        pthread_mutex_lock(&table->mutex);
        placed = place_locked(table, handle, err);
        pthread_mutex_unlock(&table->mutex);
    }
    if (placed < 0) {
        volume_file_close(file, ctx);
        free(handle);
        return -1;
    }
    *fh = handle->fh;
    return 0;
}

static struct handle *
find_locked(struct handle_table *table, uint64_t fh)
{
    uint32_t at = (uint32_t)fh;
    struct handle *handle = at < table->size ? table->slots[at] : NULL;
    return handle && handle->fh == fh ? handle : NULL;
}

void
handle_watch(struct handle_table *table, uint64_t fh, int64_t node, uint64_t stamp)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&table->mutex);
    (void)held;
    struct handle *handle = find_locked(table, fh);
    assert(handle);
    handle->node = node;
    handle->stamp = stamp;
}

struct handle *
handle_get(struct handle_table *table, uint64_t fh)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&table->mutex);
    (void)held;
    struct handle *handle = find_locked(table, fh);
    if (handle)
        handle->refs++;
    return handle;
}

struct handle *
handle_ref(struct handle_table *table, struct handle *handle)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&table->mutex);
    (void)held;
    handle->refs++;
    return handle;
}

void
handle_put(struct handle_table *table, struct handle *handle, const struct volume_ctx *ctx)
{
    if (!handle)
        return;
    pthread_mutex_lock(&table->mutex);
    assert(handle->refs > 0);
    bool last = --handle->refs == 0;
    pthread_mutex_unlock(&table->mutex);
    if (!last)
        return;
    volume_file_close(handle->file, ctx);
    free(handle);
}

void
handle_remove(struct handle_table *table, uint64_t fh, const struct volume_ctx *ctx)
{
    pthread_mutex_lock(&table->mutex);
    struct handle *handle = find_locked(table, fh);
    if (handle) {
        table->slots[(uint32_t)fh] = NULL;
        table->used--;
    }
    pthread_mutex_unlock(&table->mutex);
    if (handle && handle->node != 0 && table->released)
        table->released(table->arg, handle->node, handle->stamp);
    handle_put(table, handle, ctx);
}
