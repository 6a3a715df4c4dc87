#include "mount/handle.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/scope.h"

#define FIRST_SIZE 64u
#define MAX_HANDLES CARRY_OPENS

void
handle_table_init(struct handle_table *table, struct carry *carry)
{
    memset(table, 0, sizeof(*table));
    table->carry = carry;
    pthread_mutex_init(&table->mutex, NULL);
}

static uint64_t
number_at(struct handle_table *table, uint32_t at)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&table->mutex);
    (void)held;
    const struct handle *handle = at < table->size ? table->slots[at] : NULL;
    return handle && !handle->removed ? handle->fh : 0;
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
        generations[i] = table->carry ? table->carry->opens[i].generation : 0;
    }
    table->next = table->size;
    table->size = size;
    return 0;
}

/* The number last: a gateway that takes over must never see half an entry. */
static void
carry_locked(struct handle_table *table, const struct handle *handle, const struct handle_new *how,
             uint64_t unique)
{
    uint32_t at = (uint32_t)handle->fh;
    if (!table->carry)
        return;
    struct carry_open *entry = &table->carry->opens[at];
    entry->node = volume_file_node(handle->file);
    entry->unique = unique;
    entry->flags = how->flags;
    entry->backing = how->backing;
    entry->answer = how->answer;
    entry->generation = table->generations[at];
    if (table->carry->opens_used <= at)
        table->carry->opens_used = at + 1;
    atomic_store_explicit(&entry->fh, handle->fh, memory_order_release);
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
handle_add(struct handle_table *table, struct volume_file *file, const struct handle_new *how,
           const struct volume_ctx *ctx, uint64_t *fh, struct err *err)
{
    int placed = -1;
    struct handle *handle = calloc(1, sizeof(*handle));
    if (!handle) {
        err_nomem(err);
    } else {
        *handle = (struct handle){ .file = file, .flags = how->flags, .refs = 1 };
        pthread_mutex_lock(&table->mutex);
        placed = place_locked(table, handle, err);
        if (placed == 0)
            carry_locked(table, handle, how, ctx->unique);
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

int
handle_restore(struct handle_table *table, uint32_t at, struct volume_file *file,
               const struct volume_ctx *ctx, struct err *err)
{
    const struct carry_open *entry = &table->carry->opens[at];
    struct handle *handle = calloc(1, sizeof(*handle));
    int grown = handle ? 0 : err_nomem(err);
    pthread_mutex_lock(&table->mutex);
    while (grown == 0 && at >= table->size)
        grown = grow_locked(table, err);
    if (grown == 0) {
        *handle = (struct handle){ .file = file, .flags = entry->flags, .refs = 1 };
        handle->fh = entry->fh;
        table->slots[at] = handle;
        table->used++;
    }
    pthread_mutex_unlock(&table->mutex);
    if (grown == 0)
        return 0;
    volume_file_close(file, ctx);
    free(handle);
    return -1;
}

const struct carry_open *
handle_of_request(struct handle_table *table, uint64_t unique)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&table->mutex);
    (void)held;
    for (uint32_t i = 0; unique != 0 && table->carry && i < table->size; i++) {
        const struct handle *handle = table->slots[i];
        if (handle && !handle->removed && table->carry->opens[i].unique == unique)
            return &table->carry->opens[i];
    }
    return NULL;
}

static struct handle *
find_locked(struct handle_table *table, uint64_t fh)
{
    uint32_t at = (uint32_t)fh;
    struct handle *handle = at < table->size ? table->slots[at] : NULL;
    return handle && handle->fh == fh && !handle->removed ? handle : NULL;
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
    uint32_t at = (uint32_t)handle->fh;
    pthread_mutex_lock(&table->mutex);
    table->slots[at] = NULL;
    table->used--;
    if (table->carry)
        atomic_store_explicit(&table->carry->opens[at].fh, 0, memory_order_release);
    pthread_mutex_unlock(&table->mutex);
    free(handle);
}

void
handle_remove(struct handle_table *table, uint64_t fh, const struct volume_ctx *ctx)
{
    pthread_mutex_lock(&table->mutex);
    struct handle *handle = find_locked(table, fh);
    if (handle)
        handle->removed = true;
    pthread_mutex_unlock(&table->mutex);
    if (handle && handle->node != 0 && table->released)
        table->released(table->arg, handle->node, handle->stamp);
    handle_put(table, handle, ctx);
}
