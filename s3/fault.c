#include "s3/fault_impl.h"

#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/scope.h"
#include "base/ulid.h"

/* What the plan has for this call; *plan is the plan at this moment. */
static enum fault_kind
draw_kind(struct fault_store *fault, struct fault_plan *plan)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&fault->lock);
    unsigned draw = (unsigned)(random_next(&fault->random) % 1000);

    (void)held;
    *plan = fault->plan;
    if (fault->has_forced) {
        fault->has_forced = false;
        return fault->forced;
    }
    for (int kind = FAULT_NONE + 1; kind < FAULT_KIND_COUNT; kind++) {
        if (draw < plan->per_mille[kind])
            return (enum fault_kind)kind;
        draw -= plan->per_mille[kind];
    }
    return FAULT_NONE;
}

static bool
is_delivery_due(struct fault_store *fault)
{
    scope_unlock pthread_mutex_t *held = scope_lock(&fault->lock);

    (void)held;
    return fault->plan.deliver_every > 0 && ++fault->calls % fault->plan.deliver_every == 0;
}

static enum fault_kind
choose(struct fault_store *fault, struct fault_plan *plan)
{
    if (is_delivery_due(fault))
        fault_store_deliver_late(&fault->store, 1);
    return draw_kind(fault, plan);
}

/* The part that all calls share: faults before the store is reached. Answers true when the call shall go on. */
static bool
let_pass(enum fault_kind kind, const struct fault_plan *plan, struct err *err)
{
    switch (kind) {
    case FAULT_ERROR:
        err_set(err, ERR_STORE_AWAY, "injected: store is away");
        return false;
    case FAULT_DENIED:
        err_set(err, ERR_STORE_DENIED, "injected: access denied");
        return false;
    case FAULT_DELAY:
        clock_sleep_ns(plan->delay_ns);
        return true;
    default:
        return true;
    }
}

static int
lost(struct err *err)
{
    return err_set(err, ERR_STORE_TIMEOUT, "injected: no answer in time");
}

static int
cut(struct err *err)
{
    return err_set(err, ERR_STORE_BAD_ANSWER, "injected: the answer was cut off");
}

/* What the caller gets for a change that was carried out with result `rc`. */
static int
answer_change(enum fault_kind kind, int rc, enum store_outcome *outcome, struct err *err)
{
    if (kind == FAULT_LOST_ANSWER)
        rc = lost(err);
    else if (kind == FAULT_SHORT_BODY)
        rc = cut(err);
    else
        return rc;
    *outcome = STORE_UNKNOWN;
    return rc;
}

int
fault_pass_put(struct fault_store *fault, const struct store_put *req,
               const struct fault_plan *plan, struct store_put_result *res, struct err *err)
{
    struct store_put passed = *req;

    if (plan->ignore_put_conditions)
        passed.cond = (struct store_cond){ .kind = STORE_COND_NONE };
    return store_put(fault->store.next, &passed, res, err);
}

int
fault_pass_delete(struct fault_store *fault, const struct store_delete *req,
                  const struct fault_plan *plan, enum store_outcome *outcome, struct err *err)
{
    struct store_delete passed = *req;

    if (plan->ignore_delete_conditions)
        passed.if_match = NULL;
    return store_delete(fault->store.next, &passed, outcome, err);
}

int
fault_pass_copy(struct fault_store *fault, const struct store_copy *req,
                const struct fault_plan *plan, struct store_put_result *res, struct err *err)
{
    struct store_copy passed = *req;

    if (plan->ignore_copy_conditions)
        passed.from_if_match = NULL;
    return store_copy(fault->store.next, &passed, res, err);
}

static int
fault_put(struct store *store, const struct store_put *req, struct store_put_result *res,
          struct err *err)
{
    struct fault_store *fault = fault_of(store);
    struct fault_plan plan;
    enum fault_kind kind = choose(fault, &plan);

    if (!let_pass(kind, &plan, err))
        return -1;
    if (kind == FAULT_LATE) {
        if (fault_late_put(fault, req, err) < 0)
            return -1;
        res->outcome = STORE_UNKNOWN;
        return lost(err);
    }
    return answer_change(kind, fault_pass_put(fault, req, &plan, res, err), &res->outcome, err);
}

static int
fault_delete(struct store *store, const struct store_delete *req, enum store_outcome *outcome,
             struct err *err)
{
    struct fault_store *fault = fault_of(store);
    struct fault_plan plan;
    enum fault_kind kind = choose(fault, &plan);

    if (!let_pass(kind, &plan, err))
        return -1;
    if (kind == FAULT_LATE) {
        if (fault_late_delete(fault, req, err) < 0)
            return -1;
        *outcome = STORE_UNKNOWN;
        return lost(err);
    }
    return answer_change(kind, fault_pass_delete(fault, req, &plan, outcome, err), outcome, err);
}

static int
fault_copy(struct store *store, const struct store_copy *req, struct store_put_result *res,
           struct err *err)
{
    struct fault_store *fault = fault_of(store);
    struct fault_plan plan;
    enum fault_kind kind = choose(fault, &plan);

    if (!let_pass(kind, &plan, err))
        return -1;
    if (kind == FAULT_LATE) {
        if (fault_late_copy(fault, req, err) < 0)
            return -1;
        res->outcome = STORE_UNKNOWN;
        return lost(err);
    }
    return answer_change(kind, fault_pass_copy(fault, req, &plan, res, err), &res->outcome, err);
}

static bool
loses_answer(enum fault_kind kind)
{
    return kind == FAULT_LOST_ANSWER || kind == FAULT_LATE;
}

static int
fault_head(struct store *store, const char *key, int64_t deadline_ns, struct store_object *out,
           struct err *err)
{
    struct fault_plan plan;
    enum fault_kind kind = choose(fault_of(store), &plan);

    if (!let_pass(kind, &plan, err))
        return -1;
    if (loses_answer(kind))
        return lost(err);
    if (kind == FAULT_SHORT_BODY)
        return cut(err);
    return store_head(store->next, key, deadline_ns, out, err);
}

/* Passes the first half of the first piece on, then ends the GET. */
static int
short_sink(void *arg, const void *data, size_t len, struct err *err)
{
    const struct store_get *req = arg;

    if (len / 2 > 0 && req->sink(req->sink_arg, data, len / 2, err) < 0)
        return -1;
    return cut(err);
}

static int
short_get(struct store *store, const struct store_get *req, struct err *err)
{
    struct store_get passed = *req;
    struct store_get asked = *req;

    passed.sink = short_sink;
    passed.sink_arg = &asked;
    if (store_get(store->next, &passed, NULL, err) < 0)
        return -1;
    return cut(err); /* an empty object: its answer is cut before the end */
}

static int
fault_get(struct store *store, const struct store_get *req, struct store_object *out,
          struct err *err)
{
    struct fault_plan plan;
    enum fault_kind kind = choose(fault_of(store), &plan);

    if (!let_pass(kind, &plan, err))
        return -1;
    if (loses_answer(kind))
        return lost(err);
    if (kind == FAULT_SHORT_BODY)
        return short_get(store, req, err);
    return store_get(store->next, req, out, err);
}

static int
fault_list(struct store *store, const struct store_list *req, struct err *err)
{
    struct store_list passed = *req;
    struct fault_plan plan;
    enum fault_kind kind = choose(fault_of(store), &plan);

    if (!let_pass(kind, &plan, err))
        return -1;
    if (loses_answer(kind))
        return lost(err);
    if (kind != FAULT_SHORT_BODY)
        return store_list(store->next, req, err);
    passed.limit = 1;
    if (store_list(store->next, &passed, err) < 0)
        return -1;
    return cut(err);
}

static int
tell_all(const char *const *keys, size_t count, store_deleted_fn *fn, void *arg,
         const struct err *err)
{
    for (size_t i = 0; i < count; i++)
        fn(arg, keys[i], err->code, err->msg);
    return -1;
}

/* One fault for the whole batch; a late batch is one that was lost. */
static int /* NOLINTNEXTLINE(readability-function-size): the operation's parameters */
fault_delete_many(struct store *store, const char *const *keys, size_t count, int64_t deadline_ns,
                  store_deleted_fn *fn, void *arg, struct err *err)
{
    struct fault_plan plan;
    enum fault_kind kind = choose(fault_of(store), &plan);
    int rc = 0;

    if (count == 0)
        return 0;
    if (!let_pass(kind, &plan, err))
        return tell_all(keys, count, fn, arg, err);
    if (!loses_answer(kind) && kind != FAULT_SHORT_BODY)
        return store_delete_many(store->next, keys, count, deadline_ns, fn, arg, err);
    rc = store_delete_many(store->next, keys, count, deadline_ns, NULL, NULL, err);
    (void)rc;
    (void)(kind == FAULT_SHORT_BODY ? cut(err) : lost(err));
    return tell_all(keys, count, fn, arg, err);
}

static int
fault_uploads(struct store *store, const char *prefix, store_uploads_fn *fn, void *arg,
              struct err *err)
{
    struct fault_plan plan;
    enum fault_kind kind = choose(fault_of(store), &plan);

    if (!let_pass(kind, &plan, err))
        return -1;
    if (loses_answer(kind))
        return lost(err);
    return kind == FAULT_SHORT_BODY ? cut(err) : store_uploads(store->next, prefix, fn, arg, err);
}

static int
fault_upload_abort(struct store *store, const char *key, const char *upload_id, int64_t deadline_ns,
                   struct err *err)
{
    struct fault_plan plan;
    enum fault_kind kind = choose(fault_of(store), &plan);

    if (!let_pass(kind, &plan, err))
        return -1;
    if (store_upload_abort(store->next, key, upload_id, deadline_ns, err) < 0)
        return -1;
    if (loses_answer(kind))
        return lost(err);
    return kind == FAULT_SHORT_BODY ? cut(err) : 0;
}

static int
fault_presign(struct store *store, const struct store_presign *req, struct buf *url,
              struct err *err)
{
    return store_presign(store->next, req, url, err);
}

/* What a probe would find out: the conditions that the plan ignores are not there. */
static int
fault_probe(struct store *store, struct store_caps *caps, struct err *err)
{
    struct fault_store *fault = fault_of(store);
    struct fault_plan plan;

    if (store_probe(store->next, err) < 0)
        return -1;
    pthread_mutex_lock(&fault->lock);
    plan = fault->plan;
    pthread_mutex_unlock(&fault->lock);
    *caps = store->next->caps;
    if (plan.ignore_put_conditions) {
        caps->put_if_absent = STORE_NO;
        caps->put_if_match = STORE_NO;
        caps->put_atomic = STORE_NO;
        caps->complete_if_absent = STORE_NO;
        caps->complete_if_match = STORE_NO;
    }
    if (plan.ignore_delete_conditions)
        caps->delete_if_match = STORE_NO;
    if (plan.ignore_copy_conditions)
        caps->copy_source_if_match = STORE_NO;
    return 0;
}

static void
fault_counters(struct store *store, struct store_counters *out)
{
    store_counters(store->next, out);
}

static void
fault_free(struct store *store)
{
    struct fault_store *fault = fault_of(store);

    fault_store_drop_late(store);
    free(fault->late);
    pthread_mutex_destroy(&fault->lock);
    free(fault);
}

static const struct store_ops fault_ops = {
    .name = "fault",
    .head = fault_head,
    .get = fault_get,
    .put = fault_put,
    .del = fault_delete,
    .copy = fault_copy,
    .list = fault_list,
    .delete_many = fault_delete_many,
    .uploads = fault_uploads,
    .upload_abort = fault_upload_abort,
    .presign = fault_presign,
    .probe = fault_probe,
    .counters = fault_counters,
    .free = fault_free,
};

struct store *
fault_store_wrap(struct store *next, const struct fault_plan *plan, struct err *err)
{
    struct fault_store *fault = calloc(1, sizeof(*fault));

    if (!fault) {
        err_nomem(err);
        return NULL;
    }
    fault->store.ops = &fault_ops;
    fault->store.next = next;
    fault->store.caps = next->caps;
    memcpy(fault->store.url, next->url, sizeof(fault->store.url));
    memcpy(fault->store.provider, next->provider, sizeof(fault->store.provider));
    pthread_mutex_init(&fault->lock, NULL);
    fault_store_set_plan(&fault->store, plan);
    return &fault->store;
}

void
fault_store_set_plan(struct store *store, const struct fault_plan *plan)
{
    struct fault_store *fault = fault_of(store);
    scope_unlock pthread_mutex_t *held = scope_lock(&fault->lock);

    (void)held;
    fault->plan = *plan;
    fault->random = plan->seed;
}

void
fault_store_next(struct store *store, enum fault_kind kind)
{
    struct fault_store *fault = fault_of(store);
    scope_unlock pthread_mutex_t *held = scope_lock(&fault->lock);

    (void)held;
    fault->forced = kind;
    fault->has_forced = true;
}
