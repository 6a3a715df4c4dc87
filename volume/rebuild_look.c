#include "volume/rebuild_impl.h"

/* Many requests at once: a bucket far away takes tens of milliseconds for each. */

#define LOOK_THREADS 16u

struct looks {
    rebuild_look_fn *fn;
    pthread_mutex_t lock; /* a leaf, for the two below */
    int rc;
    struct err err;
};

struct look {
    struct looks *all;
    void *item;
};

static void
run(void *arg)
{
    struct look *look = arg;
    struct looks *all = look->all;
    struct err err = ERR_INIT;
    if (all->fn(look->item, &err) == 0)
        return;
    pthread_mutex_lock(&all->lock);
    if (all->rc == 0)
        all->err = err;
    all->rc = -1;
    pthread_mutex_unlock(&all->lock);
}

int
rebuild_look_many(void *items, size_t size, size_t count, rebuild_look_fn *fn, struct err *err)
{
    struct looks all = { .fn = fn, .err = ERR_INIT };
    scope_free struct look *look = calloc(count + 1, sizeof(*look));
    if (look == NULL)
        return err_nomem(err);
    struct pool *pool = pool_new("hf-rebuild", LOOK_THREADS, REBUILD_BATCH, err);
    if (pool == NULL)
        return -1;
    pthread_mutex_init(&all.lock, NULL);
    for (size_t i = 0; i < count; i++) {
        struct err full = ERR_INIT;
        look[i] = (struct look){ &all, (char *)items + i * size };
        if (pool_submit(pool, run, NULL, &look[i], &full) != 0)
            run(&look[i]);
    }
    pool_drain(pool);
    pool_free(pool);
    pthread_mutex_destroy(&all.lock);
    if (all.rc != 0)
        *err = all.err;
    return all.rc;
}
