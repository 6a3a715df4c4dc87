#include "mount/number.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/scope.h"

#define TWIN_BITS 3 /* so many names may share the rest */
#define FIRST_SIZE 64u

struct number {
    struct number *next;
    uint64_t number;
    uint64_t count;
    size_t len;
    char name[];
};

static size_t
bucket_of(const struct number_table *table, uint64_t number)
{
    return (size_t)(number >> TWIN_BITS) & (table->size - 1);
}

static int
hash_name(const void *name, size_t len, uint64_t *number, uint32_t *check, struct err *err)
{
    uint8_t digest[SHA256_SIZE];
    if (sha256(name, len, digest, err) < 0)
        return -1;
    memcpy(number, digest, sizeof(*number));
    memcpy(check, digest + sizeof(*number), sizeof(*check));
    *number = (*number & ((1ull << NUMBER_BITS) - 1)) >> TWIN_BITS << TWIN_BITS;
    return 0;
}

int
number_table_init(struct number_table *table, struct err *err)
{
    pthread_mutex_init(&table->mutex, NULL);
    table->size = FIRST_SIZE;
    table->count = 0;
    table->bucket = calloc(table->size, sizeof(struct number *));
    return table->bucket ? 0 : err_nomem(err);
}

void
number_table_release(struct number_table *table)
{
    for (size_t i = 0; table->bucket && i < table->size; i++) {
        for (struct number *at = table->bucket[i], *next; at; at = next) {
            next = at->next;
            free(at);
        }
    }
    free(table->bucket);
    table->bucket = NULL;
    pthread_mutex_destroy(&table->mutex);
}

/* Without memory it stays as it is, and slower. */
static void
grow_locked(struct number_table *table)
{
    size_t size = table->size * 2, before = table->size;
    struct number **bucket = calloc(size, sizeof(struct number *));
    struct number **old = table->bucket;
    if (!bucket)
        return;
    table->bucket = bucket;
    table->size = size;
    for (size_t i = 0; i < before; i++) {
        for (struct number *at = old[i], *next; at; at = next) {
            struct number **to = &bucket[bucket_of(table, at->number)];
            next = at->next;
            at->next = *to;
            *to = at;
        }
    }
    free(old);
}

/* The entry of the name, or NULL and in `*number` the first that none of its twins has. */
static struct number *
find_locked(struct number_table *table, const void *name, size_t len, uint64_t *number)
{
    uint64_t base = *number;
    unsigned taken = 0;
    for (struct number *at = table->bucket[bucket_of(table, base)]; at; at = at->next) {
        if (at->number >> TWIN_BITS != base >> TWIN_BITS)
            continue;
        if (at->len == len && memcmp(at->name, name, len) == 0)
            return at;
        taken |= 1u << (at->number - base);
    }
    while (taken & 1u) {
        taken >>= 1;
        (*number)++;
    }
    return NULL;
}

static struct number *
add_locked(struct number_table *table, const void *name, size_t len, uint64_t number,
           struct err *err)
{
    struct number *entry = malloc(sizeof(*entry) + len);
    if (!entry) {
        err_nomem(err);
        return NULL;
    }
    if (table->count >= table->size)
        grow_locked(table);
    struct number **to = &table->bucket[bucket_of(table, number)];
    *entry = (struct number){ .next = *to, .number = number, .len = len };
    memcpy(entry->name, name, len);
    *to = entry;
    table->count++;
    return entry;
}

int
number_give(struct number_table *table, const void *name, size_t len, uint64_t *number,
            uint32_t *check, struct err *err)
{
    uint64_t wanted;
    if (hash_name(name, len, &wanted, check, err) < 0)
        return -1;
    uint64_t last = wanted + (1u << TWIN_BITS) - 1;
    scope_unlock pthread_mutex_t *held = scope_lock(&table->mutex);
    (void)held;
    struct number *entry = find_locked(table, name, len, &wanted);
    if (!entry && wanted > last)
        return err_set(err, ERR_INTERNAL, "too many names share a number");
    if (!entry)
        entry = add_locked(table, name, len, wanted, err);
    if (!entry)
        return -1;
    entry->count++;
    *number = entry->number;
    return 0;
}

int
number_of(const void *name, size_t len, uint64_t *number, struct err *err)
{
    uint32_t check;
    return hash_name(name, len, number, &check, err);
}

ssize_t
number_name(struct number_table *table, uint64_t number, void *out, size_t size)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&table->mutex);
    (void)held;
    for (const struct number *at = table->bucket[bucket_of(table, number)]; at; at = at->next) {
        if (at->number != number)
            continue;
        memcpy(out, at->name, at->len < size ? at->len : size);
        return (ssize_t)at->len;
    }
    return -1;
}

void
number_forget(struct number_table *table, uint64_t number, uint64_t count)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&table->mutex);
    (void)held;
    for (struct number **at = &table->bucket[bucket_of(table, number)]; *at; at = &(*at)->next) {
        struct number *entry = *at;
        if (entry->number != number)
            continue;
        entry->count -= count < entry->count ? count : entry->count;
        if (entry->count > 0)
            return;
        *at = entry->next;
        table->count--;
        free(entry);
        return;
    }
}
