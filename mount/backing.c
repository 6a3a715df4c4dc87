#include "mount/backing.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/scope.h"

#define CLOSED_AT_ONCE 64u

/* ---- the kernel's rules ---- */

enum io_answer
io_decide(const struct io_view *view)
{
    switch (view->mode) {
    case IO_PASS:
        return view->lent && view->same ? IO_ANSWER_PASS : IO_ANSWER_DIRECT_PASS;
    case IO_CACHED:
        return IO_ANSWER_CACHED;
    case IO_DIRECT:
        return IO_ANSWER_DIRECT;
    case IO_NONE:
        break;
    }
    if (view->lent)
        return IO_ANSWER_PASS;
    return view->pages ? IO_ANSWER_CACHED : IO_ANSWER_DIRECT;
}

enum io_mode
io_mode_after(enum io_mode now, enum io_answer answer)
{
    if (now != IO_NONE)
        return now;
    if (answer == IO_ANSWER_CACHED)
        return IO_CACHED;
    return answer == IO_ANSWER_DIRECT ? IO_DIRECT : IO_PASS;
}

/* ---- the table ---- */

static size_t
slot_of(int64_t number)
{
    return (size_t)((uint64_t)number * 0x9e3779b97f4a7c15ull >> 54) % BACKING_BUCKETS;
}

int
backing_table_init(struct backing_table *table, struct err *err)
{
    memset(table, 0, sizeof(*table));
    pthread_mutex_init(&table->mutex, NULL);
    pthread_cond_init(&table->changed, NULL);
    table->dead = calloc(BACKING_KEPT, sizeof(table->dead[0]));
    return table->dead ? 0 : err_nomem(err);
}

void
backing_table_release(struct backing_table *table)
{
    for (size_t i = 0; i < BACKING_BUCKETS; i++) {
        struct backing *next;
        for (struct backing *at = table->by_node[i]; at; at = next) {
            next = at->next_node;
            free(at);
        }
    }
    free(table->dead);
    pthread_cond_destroy(&table->changed);
    pthread_mutex_destroy(&table->mutex);
}

static struct backing *
find_locked(struct backing_table *table, int64_t node)
{
    struct backing *at = table->by_node[slot_of(node)];
    while (at && at->node != node)
        at = at->next_node;
    return at;
}

static struct backing *
add_locked(struct backing_table *table, int64_t node)
{
    struct backing *made = calloc(1, sizeof(*made));
    if (!made)
        return NULL;
    made->node = node;
    made->next_node = table->by_node[slot_of(node)];
    table->by_node[slot_of(node)] = made;
    return made;
}

static void
unlist_locked(struct backing_table *table, struct backing *backing)
{
    if (!backing->older && !backing->newer && table->oldest != backing)
        return;
    *(backing->older ? &backing->older->newer : &table->oldest) = backing->newer;
    *(backing->newer ? &backing->newer->older : &table->newest) = backing->older;
    backing->older = backing->newer = NULL;
}

static void
list_locked(struct backing_table *table, struct backing *backing)
{
    backing->older = table->newest;
    *(table->newest ? &table->newest->newer : &table->oldest) = backing;
    table->newest = backing;
}

/* Its id is given up. */
static void
bury_locked(struct backing_table *table, struct backing *backing)
{
    if (backing->id == 0)
        return;
    struct backing **link = &table->by_content[slot_of(backing->content)];
    while (*link != backing)
        link = &(*link)->next_content;
    *link = backing->next_content;
    assert(table->dead_count < BACKING_KEPT);
    table->dead[table->dead_count++] = backing->id;
    backing->id = 0;
    backing->content = 0;
    backing->gone = false;
}

/* Nobody uses it any more: kept by its id, or dropped. */
static void
settle_locked(struct backing_table *table, struct backing *backing)
{
    if (backing->busy || backing->opens > 0)
        return;
    backing->mode = IO_NONE;
    if (backing->gone)
        bury_locked(table, backing);
    if (backing->id != 0) {
        list_locked(table, backing);
        return;
    }
    struct backing **link = &table->by_node[slot_of(backing->node)];
    while (*link != backing)
        link = &(*link)->next_node;
    *link = backing->next_node;
    free(backing);
}

struct backing *
backing_take(struct backing_table *table, int64_t node, struct err *err)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&table->mutex);
    (void)held;
    struct backing *at;
    while ((at = find_locked(table, node)) && at->busy)
        pthread_cond_wait(&table->changed, &table->mutex);
    if (!at)
        at = add_locked(table, node);
    if (!at) {
        err_nomem(err);
        return NULL;
    }
    unlist_locked(table, at);
    at->busy = true;
    return at;
}

static void
end_busy_locked(struct backing_table *table, struct backing *backing)
{
    backing->busy = false;
    settle_locked(table, backing);
    pthread_cond_broadcast(&table->changed);
}

void
backing_put(struct backing_table *table, struct backing *backing)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&table->mutex);
    (void)held;
    end_busy_locked(table, backing);
}

void
backing_put_open(struct backing_table *table, struct backing *backing, enum io_answer answer)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&table->mutex);
    (void)held;
    /* The others may have been released since it was decided; what was decided fits that too. */
    backing->mode = io_mode_after(backing->opens == 0 ? IO_NONE : backing->mode, answer);
    backing->opens++;
    end_busy_locked(table, backing);
}

static void
bury_oldest_locked(struct backing_table *table, size_t count)
{
    for (size_t i = 0; i < count && table->oldest; i++) {
        struct backing *old = table->oldest;
        unlist_locked(table, old);
        bury_locked(table, old);
        settle_locked(table, old);
    }
}

bool
backing_make_room(struct backing_table *table)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&table->mutex);
    (void)held;
    /* Many at once, so that their closing costs one request. */
    if (table->ids - table->dead_count >= BACKING_KEPT - CLOSED_AT_ONCE)
        bury_oldest_locked(table, CLOSED_AT_ONCE);
    return table->ids < BACKING_KEPT;
}

void
backing_forget_idle(struct backing_table *table)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&table->mutex);
    (void)held;
    bury_oldest_locked(table, BACKING_KEPT);
}

void
backing_set_id(struct backing_table *table, struct backing *backing, int64_t content, int32_t id)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&table->mutex);
    (void)held;
    bury_locked(table, backing);
    backing->content = content;
    backing->id = id;
    backing->gone = false;
    backing->next_content = table->by_content[slot_of(content)];
    table->by_content[slot_of(content)] = backing;
    table->ids++;
}

void
backing_release(struct backing_table *table, int64_t node)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&table->mutex);
    (void)held;
    struct backing *at = find_locked(table, node);
    assert(at && at->opens > 0);
    at->opens--;
    settle_locked(table, at);
}

void
backing_gone(struct backing_table *table, int64_t content)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&table->mutex);
    (void)held;
    struct backing *at = table->by_content[slot_of(content)];
    while (at && at->content != content)
        at = at->next_content;
    if (!at)
        return;
    at->gone = true;
    unlist_locked(table, at);
    settle_locked(table, at);
}

size_t
backing_take_dead(struct backing_table *table, int32_t *out, size_t max)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&table->mutex);
    (void)held;
    size_t count = table->dead_count < max ? table->dead_count : max;
    table->dead_count -= count;
    memcpy(out, table->dead + table->dead_count, count * sizeof(out[0]));
    return count;
}

void
backing_closed(struct backing_table *table, size_t count)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&table->mutex);
    (void)held;
    table->ids -= count;
}

size_t
backing_count(struct backing_table *table)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&table->mutex);
    (void)held;
    return table->ids;
}
