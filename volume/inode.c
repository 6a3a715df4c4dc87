#include <assert.h>
#include <errno.h>

#include "base/scope.h"
#include "volume/service_impl.h"

static size_t
slot_of(int64_t node)
{
    uint64_t state = (uint64_t)node;
    return (size_t)(random_next(&state) % INODE_BUCKETS);
}

int
inode_table_init(struct inode_table *table, struct err *err)
{
    int rc = pthread_mutex_init(&table->lock, NULL);
    return rc == 0 ? 0 : err_sys(err, rc, "cannot make a lock");
}

static void
free_inode(struct inode *inode)
{
    cache_put(inode->file);
    pthread_cond_destroy(&inode->fetched);
    pthread_mutex_destroy(&inode->lock);
    free(inode);
}

void
inode_table_release(struct inode_table *table)
{
    for (size_t i = 0; i < INODE_BUCKETS; i++) {
        struct inode *next;
        for (struct inode *inode = table->bucket[i]; inode != NULL; inode = next) {
            next = inode->next;
            free_inode(inode);
        }
        table->bucket[i] = NULL;
    }
    pthread_mutex_destroy(&table->lock);
}

static struct inode *
find_locked(struct inode_table *table, int64_t node)
{
    struct inode *inode = table->bucket[slot_of(node)];
    while (inode != NULL && inode->node != node)
        inode = inode->next;
    return inode;
}

static struct inode *
make_inode(int64_t node)
{
    struct inode *inode = calloc(1, sizeof(*inode));
    if (inode == NULL)
        return NULL;
    inode->node = node;
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&inode->lock, NULL);
    pthread_cond_init(&inode->fetched, &attr);
    pthread_condattr_destroy(&attr);
    return inode;
}

struct inode *
inode_ref(struct inode_table *table, int64_t node, bool open, struct err *err)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&table->lock);
    struct inode *inode = find_locked(table, node);
    if (inode == NULL) {
        inode = make_inode(node);
        if (inode == NULL) {
            err_nomem(err);
            return NULL;
        }
        inode->next = table->bucket[slot_of(node)];
        table->bucket[slot_of(node)] = inode;
    }
    inode->refs++;
    if (open && inode->opens++ == 0 && atomic_load(&inode->told_error) == ESTALE)
        atomic_store(&inode->told_error, 0); /* whom it was for has closed the file */
    return inode;
}

unsigned
inode_unopen(struct inode_table *table, struct inode *inode, bool *counted)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&table->lock);
    assert(inode->opens > 0);
    *counted = inode->counted;
    return --inode->opens;
}

bool
inode_is_counted(struct inode_table *table, const struct inode *inode)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&table->lock);
    return inode->counted;
}

/* Under the table's lock, through which everybody else comes to the entry. */
void
inode_making(struct inode_table *table, struct inode *inode)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&table->lock);
    inode->making = true;
}

struct inode *
inode_find(struct inode_table *table, int64_t node)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&table->lock);
    struct inode *inode = find_locked(table, node);
    if (inode != NULL)
        inode->refs++;
    return inode;
}

void
inode_unref(struct inode_table *table, struct inode *inode, bool open)
{
    if (inode == NULL)
        return;
    pthread_mutex_lock(&table->lock);
    assert(inode->refs > 0 && inode->opens >= (unsigned)open);
    inode->refs--;
    inode->opens -= open;
    bool last = inode->refs == 0;
    if (last) {
        struct inode **link = &table->bucket[slot_of(inode->node)];
        while (*link != inode)
            link = &(*link)->next;
        *link = inode->next;
    }
    pthread_mutex_unlock(&table->lock);
    if (last)
        free_inode(inode);
}

bool
inode_is_open(struct inode_table *table, struct inode *inode)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&table->lock);
    return inode->opens > 0;
}

unsigned
inode_open_count(struct inode_table *table, int64_t node)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&table->lock);
    struct inode *inode = find_locked(table, node);
    if (inode == NULL)
        return 0;
    inode->counted |= inode->opens > 0;
    return inode->opens;
}

/* Referenced. `at` is referenced too, so that it is still in its chain. */
static struct inode *
next_in_bucket(struct inode_table *table, size_t bucket, struct inode *at)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&table->lock);
    struct inode *next = at == NULL ? table->bucket[bucket] : at->next;
    if (next != NULL)
        next->refs++;
    return next;
}

void
inode_each(struct inode_table *table, void (*fn)(void *arg, struct inode *inode), void *arg)
{
    for (size_t i = 0; i < INODE_BUCKETS; i++) {
        struct inode *at = next_in_bucket(table, i, NULL);
        while (at != NULL) {
            fn(arg, at);
            struct inode *next = next_in_bucket(table, i, at);
            inode_unref(table, at, false);
            at = next;
        }
    }
}

/* The writer of a lost version hears of it at its next flush or fsync: before the commit, so that nobody who waits for it
 * (sync=close) sees the one without the other. An entry that only an upload keeps has no writer left: the next one is another. */
void
inode_tell_loser(struct volume_service *service, int64_t node)
{
    struct inode_table *table = &service->inodes;
    scope_unlock pthread_mutex_t *held = scope_lock(&table->lock);
    (void)held;
    struct inode *inode = find_locked(table, node);
    if (inode != NULL && inode->opens > 0)
        atomic_store(&inode->told_error, ESTALE);
}
