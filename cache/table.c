#include <assert.h>
#include <stdlib.h>

#include "cache/cache_impl.h"

/* The table of content files by number, their order of use, and the sums over them. */

#define FIRST_BUCKETS 1024

int
cache_table_init(struct cache *cache, struct err *err)
{
    cache->table = calloc(FIRST_BUCKETS, sizeof(void *));
    if (cache->table == NULL)
        return err_nomem(err);
    cache->buckets = FIRST_BUCKETS;
    return 0;
}

void
cache_table_release(struct cache *cache)
{
    for (size_t i = 0; i < cache->buckets; i++) {
        while (cache->table[i] != NULL) {
            struct entry *entry = cache->table[i];
            cache->table[i] = entry->chain;
            free(entry);
        }
    }
    free(cache->table);
}

static struct entry **
bucket_of(struct entry **table, size_t buckets, int64_t number)
{
    uint64_t mixed = (uint64_t)number * 0x9e3779b97f4a7c15ull; /* Fibonacci hashing */
    return &table[(mixed >> 32) & (buckets - 1)];
}

struct entry *
cache_table_find(struct cache *cache, int64_t number)
{
    struct entry *entry = *bucket_of(cache->table, cache->buckets, number);
    while (entry != NULL && entry->number != number)
        entry = entry->chain;
    return entry;
}

/* Without memory the old table stays: slower, not wrong. */
static void
grow(struct cache *cache)
{
    size_t buckets = cache->buckets * 2;
    struct entry **table = calloc(buckets, sizeof(void *));
    if (table == NULL)
        return;
    for (size_t i = 0; i < cache->buckets; i++) {
        while (cache->table[i] != NULL) {
            struct entry *entry = cache->table[i];
            struct entry **to = bucket_of(table, buckets, entry->number);
            cache->table[i] = entry->chain;
            entry->chain = *to;
            *to = entry;
        }
    }
    free(cache->table);
    cache->table = table;
    cache->buckets = buckets;
}

struct entry *
cache_table_add(struct cache *cache, int64_t number)
{
    struct entry *entry = calloc(1, sizeof(*entry));
    if (entry == NULL)
        return NULL;
    if (cache->count >= cache->buckets)
        grow(cache);
    struct entry **at = bucket_of(cache->table, cache->buckets, number);
    entry->number = number;
    entry->chain = *at;
    *at = entry;
    cache->count++;
    cache->files++;
    return entry;
}

static void
discard(struct cache *cache, struct entry *entry)
{
    cache_table_set_bytes(cache, entry, 0);
    cache_table_set_pinned(cache, entry, false);
    cache_meta_unpair(cache, entry);
    cache->files--;
    free(entry);
}

void
cache_table_remove(struct cache *cache, struct entry *entry)
{
    struct entry **at = bucket_of(cache->table, cache->buckets, entry->number);
    assert(!entry->removed);
    while (*at != entry)
        at = &(*at)->chain;
    *at = entry->chain;
    cache->count--;
    entry->removed = true;
    cache_table_unlist(cache, entry);
    if (entry->file == NULL)
        discard(cache, entry);
}

void
cache_table_unuse(struct cache *cache, struct entry *entry)
{
    entry->file = NULL;
    if (entry->removed)
        discard(cache, entry);
    else
        cache_table_list(cache, entry);
}

void
cache_table_set_bytes(struct cache *cache, struct entry *entry, uint64_t bytes)
{
    cache->bytes += bytes - entry->bytes;
    if (entry->pinned)
        cache->pinned_bytes += bytes - entry->bytes;
    entry->bytes = bytes;
}

void
cache_table_set_pinned(struct cache *cache, struct entry *entry, bool pinned)
{
    if (entry->pinned == pinned)
        return;
    entry->pinned = pinned;
    cache->pinned_files += pinned ? 1 : -1ull;
    cache->pinned_bytes += pinned ? entry->bytes : -entry->bytes;
    if (!entry->removed)
        cache_table_list(cache, entry);
}

void
cache_table_unlist(struct cache *cache, struct entry *entry)
{
    if (!entry->listed)
        return;
    *(entry->older != NULL ? &entry->older->newer : &cache->oldest) = entry->newer;
    *(entry->newer != NULL ? &entry->newer->older : &cache->newest) = entry->older;
    entry->older = entry->newer = NULL;
    entry->listed = false;
}

void
cache_table_list(struct cache *cache, struct entry *entry)
{
    cache_table_unlist(cache, entry);
    if (entry->pinned || entry->file != NULL)
        return;
    entry->older = cache->newest;
    *(cache->newest != NULL ? &cache->newest->newer : &cache->oldest) = entry;
    cache->newest = entry;
    entry->listed = true;
}
