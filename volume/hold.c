#include "base/log.h"
#include "volume/service_impl.h"

/*
 * The owner's emergency stop. While a volume is held nothing writes to it by any face, and nothing of it that waits goes to the bucket:
 * what a program has just done to it can still be looked at, and taken back after. Only the index knows, so that it works while the
 * store is away; a rebuild forgets it.
 */

#define HOLD_AGAIN (2 * NS_PER_S) /* how soon work that was held is looked at again */

struct held {
    int64_t *id;
    size_t count, cap;
};

static int
collect(void *arg, const struct index_volume *row, struct err *err)
{
    struct held *held = arg;
    if ((row->options & INDEX_VOLUME_HELD) == 0)
        return 0;
    if (held->count == held->cap) {
        size_t cap = held->cap == 0 ? 8 : 2 * held->cap;
        int64_t *id = reallocarray(held->id, cap, sizeof(*id));
        if (id == NULL)
            return err_nomem(err);
        held->id = id;
        held->cap = cap;
    }
    held->id[held->count++] = row->id;
    return 0;
}

/* In the writer's turn, so that of two calls the later one stays. */
static int
load_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct volume_service *service = arg;
    struct held held = { 0 };
    if (index_volume_each(tx, collect, &held, err) != 0) {
        free(held.id);
        return -1;
    }
    pthread_mutex_lock(&service->status_lock);
    int64_t *before = service->held;
    service->held = held.id;
    service->held_count = held.count;
    atomic_store(&service->holds, held.count > 0);
    pthread_mutex_unlock(&service->status_lock);
    free(before);
    return 0;
}

/* What writers of open files ask: they do not read the index with each write. */
int
hold_load(struct volume_service *service, struct err *err)
{
    return index_write(service->index, INDEX_NORMAL, load_tx, service, err);
}

static bool
is_held(struct volume_service *service, int64_t volume)
{
    bool found = false;
    scope_unlock pthread_mutex_t *held = scope_lock(&service->status_lock);
    (void)held;
    for (size_t i = 0; i < service->held_count && !found; i++)
        found = service->held[i] == volume;
    return found;
}

static int
refuse(const char *name, struct err *err)
{
    return err_set(err, ERR_READ_ONLY, "%s%s%sis frozen by its owner: 'holdfast thaw' ends that",
                   name[0] ? "volume '" : "the volume ", name, name[0] ? "' " : "");
}

int
hold_check(struct volume_service *service, int64_t volume, struct err *err)
{
    return atomic_load(&service->holds) && is_held(service, volume) ? refuse("", err) : 0;
}

int
hold_check_row(const struct index_volume *volume, struct err *err)
{
    return (volume->options & INDEX_VOLUME_HELD) != 0 ? refuse(volume->name, err) : 0;
}

int
hold_postpone(struct index_tx *tx, struct index_intent *row, struct err *err)
{
    row->not_before_ns = clock_wall_ns() + HOLD_AGAIN;
    text_set(row->last_error, "held: the volume is frozen by its owner");
    return index_intent_put(tx, row, err);
}

struct freeze_call {
    struct index_tx *tx;
    const char *name;
    bool frozen;
    unsigned changed;
};

static int
set_one(void *arg, const struct index_volume *row, struct err *err)
{
    struct freeze_call *call = arg;
    struct index_volume next = *row;
    if (call->name != NULL && strcmp(call->name, row->name) != 0)
        return 0;
    next.options &= ~(int64_t)INDEX_VOLUME_HELD;
    next.options |= call->frozen ? INDEX_VOLUME_HELD : 0;
    if (next.options == row->options)
        return 0;
    call->changed++;
    return index_volume_update(call->tx, &next, err);
}

static int
freeze_tx(struct index_tx *tx, void *arg, struct err *err)
{
    struct freeze_call *call = arg;
    struct index_volume row;
    call->tx = tx;
    if (call->name != NULL && index_volume_find(tx, call->name, &row, err) != 0)
        return -1;
    return index_volume_each(tx, set_one, call, err);
}

int
volume_freeze(struct volume_service *service, const char *name, bool frozen, unsigned *changed,
              struct err *err)
{
    struct freeze_call call = { .name = name, .frozen = frozen };
    if (index_write(service->index, INDEX_FULL, freeze_tx, &call, err) != 0 ||
        hold_load(service, err) != 0)
        return -1;
    *changed = call.changed;
    if (call.changed > 0)
        log_warn(volume, "%s %s by the owner", name != NULL ? name : "all volumes",
                 frozen ? "frozen" : "thawed");
    if (!frozen)
        sync_kick(service);
    return 0;
}
