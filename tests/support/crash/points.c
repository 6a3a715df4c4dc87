#include "support/crash/points.h"

#include <stdio.h>
#include <stdlib.h>

#include "support/crash/io.h"
#include "support/crash/rig.h"

struct points {
    struct store store;
    bool weak;
};

static void
event(const char *kind)
{
    if (crash_io_event != NULL)
        crash_io_event(kind);
}

static bool
is_weak(const struct store *store)
{
    return ((const struct points *)(const void *)store)->weak;
}

static int
points_head(struct store *store, const char *key, int64_t deadline_ns, struct store_object *out,
            struct err *err)
{
    return store_head(store->next, key, deadline_ns, out, err);
}

static int
points_get(struct store *store, const struct store_get *req, struct store_object *out,
           struct err *err)
{
    return store_get(store->next, req, out, err);
}

static int
points_put(struct store *store, const struct store_put *req, struct store_put_result *res,
           struct err *err)
{
    event("put");
    int rc = store_put(store->next, req, res, err);
    event("put_done");
    return rc;
}

static int
points_del(struct store *store, const struct store_delete *req, enum store_outcome *outcome,
           struct err *err)
{
    struct store_delete blind = *req;
    if (is_weak(store))
        blind.if_match = NULL;
    event("delete");
    int rc = store_delete(store->next, &blind, outcome, err);
    event("delete_done");
    return rc;
}

static int
points_copy(struct store *store, const struct store_copy *req, struct store_put_result *res,
            struct err *err)
{
    struct store_copy blind = *req;
    if (is_weak(store))
        blind.from_if_match = NULL;
    event("copy_object");
    int rc = store_copy(store->next, &blind, res, err);
    event("copy_object_done");
    return rc;
}

static int
points_list(struct store *store, const struct store_list *req, struct err *err)
{
    return store_list(store->next, req, err);
}

static void
take_caps(struct store *store, bool weak)
{
    store->caps = store->next->caps;
    if (weak)
        store->caps.delete_if_match = store->caps.copy_source_if_match =
            store->caps.copy_dest_conditions = STORE_NO;
}

static int
points_probe(struct store *store, struct store_caps *caps, struct err *err)
{
    if (store_probe(store->next, err) != 0)
        return -1;
    take_caps(store, is_weak(store));
    *caps = store->caps;
    return 0;
}

static void
points_counters(struct store *store, struct store_counters *out)
{
    store_counters(store->next, out);
}

static void
points_free(struct store *store)
{
    free(store); /* store_free() goes on with `next` */
}

struct store *
points_store(struct store *inner, bool weak)
{
    static const struct store_ops ops = { .name = "points",
                                          .head = points_head,
                                          .get = points_get,
                                          .put = points_put,
                                          .del = points_del,
                                          .copy = points_copy,
                                          .list = points_list,
                                          .probe = points_probe,
                                          .counters = points_counters,
                                          .free = points_free };
    struct points *points = calloc(1, sizeof(*points));
    if (points == NULL)
        rig_die("out of memory");
    points->store.ops = &ops;
    points->store.next = inner;
    points->weak = weak;
    take_caps(&points->store, weak);
    (void)snprintf(points->store.url, sizeof(points->store.url), "%s", inner->url);
    return &points->store;
}
